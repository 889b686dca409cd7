"""``refbias doctor``: versions, devices, caches, what can be reached, and what to do about the rest."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from refbias.errors import RefbiasError
from refbias.provenance import version

CORE = ("refbias", "numpy", "torch", "transformers", "peft", "scikit-learn", "hydra-core", "mlflow", "rich")
# import name -> (distribution, what it is for)
OPTIONAL = {
    "datasets": ("datasets", "anchors=alpaca and anchors=tulu from the hub"),
    "sentence_transformers": ("sentence-transformers", "the source of sentence-embedding models' conventions"),
    "pandas": ("pandas", "Result.to_frame()"),
    "matplotlib": ("matplotlib", "figures"),
}
SENTENCES = ("Tea drinkers live in many countries.", "Gardeners attend local community events.", "It rains today.")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="refbias doctor", description="What works on this machine.")
    parser.add_argument("model", nargs="?", help="also load this model, encode three sentences, and look at position 0")
    parser.add_argument("--offline", action="store_true", help="do not try the network")
    given = parser.parse_args(arguments)
    sections: dict[str, Callable[[], Iterator[str]]] = {
        "versions": versions,
        "devices": devices,
        "cache and disk": storage,
        "models": models,
        "optional packages": packages,
        "network": lambda: network(given.offline),
    }
    if given.model:
        sections[f"model {given.model}"] = lambda: position_0(given.model)
    for title, lines in sections.items():
        print(title, flush=True)
        for line in lines():
            print(f"  {line}", flush=True)
    return 0


def versions() -> Iterator[str]:
    yield f"python {platform.python_version()} on {platform.platform()}"
    for package in CORE:
        yield f"{package} {version(package) or 'is not installed: pip install ' + package}"


def devices() -> Iterator[str]:
    import torch

    from refbias.devices import resolve_device, resolve_dtype
    from refbias.tasks.outlook import gemm_rate

    chosen = resolve_device(None)
    yield f"chosen by default: device={chosen} dtype={resolve_dtype(None, chosen)}"
    yield f"cpu: {os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads, {gemm_rate():.0f} GFLOP/s"
    for index in range(torch.cuda.device_count()):
        memory = torch.cuda.get_device_properties(index).total_memory / 2**30
        yield f"cuda:{index}: {torch.cuda.get_device_name(index)}, {memory:.0f} GiB"
    if not torch.cuda.is_available():
        yield "cuda: none"


def storage() -> Iterator[str]:
    from refbias.cache import GIB, Cache, default_directory

    folder = default_directory()
    used = sum(item.size for item in Cache(folder).usage())
    yield f"cache {folder}: {used / GIB:.2f} GiB used (refbias cache shows what)"
    existing = next(f for f in (folder, *folder.parents) if f.exists())
    if not os.access(existing, os.W_OK):
        yield f"{existing} cannot be written: choose another place with cache.dir=… or REFBIAS_CACHE_DIR"
    free = shutil.disk_usage(existing).free / GIB
    yield f"free there: {free:.1f} GiB" + ("" if free > 2 else " (an audit of planted checkpoints needs about 2)")
    database = Path.cwd() / "mlflow.db"
    yield f"tracking: {database} " + ("is there" if database.exists() else "will be made by the first run")


def models() -> Iterator[str]:
    from refbias.registry import registry

    for name, part in registry().parts("model").items():
        try:
            source = part.build()
            yield f"{name}: {getattr(source, 'place', source)}"
        except RefbiasError as error:
            yield f"{name}: {error}"


def packages() -> Iterator[str]:
    for module, (distribution, purpose) in OPTIONAL.items():
        if importlib.util.find_spec(module) is not None:
            yield f"{distribution} {version(distribution)}"
        else:
            yield f"{distribution} is not installed (for {purpose}): pip install {distribution}"


def network(offline: bool) -> Iterator[str]:
    if offline or os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        yield "not tried. Models and data sets of the hub work where they are on this disk already"
        return
    import urllib.error
    import urllib.request

    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=4):
            yield f"{endpoint} answers: models and data sets by hub id work"
    except urllib.error.HTTPError as error:
        yield f"{endpoint} answers with status {error.code}"
    except (OSError, ValueError) as error:
        yield (
            f"{endpoint} cannot be reached ({getattr(error, 'reason', error)}). Use local folders: reference=DIR, "
            f"audited=DIR, anchors.path=FILE; stand-ins are used and recorded where there is one"
        )


def position_0(name: str) -> Iterator[str]:
    """How much of the squared norm of a sentence's states lies in its first token, layer by layer."""
    from refbias.cache import Cache, default_directory
    from refbias.context import Context
    from refbias.devices import resolve_device, resolve_dtype
    from refbias.encoders import auto
    from refbias.models import find_model
    from refbias.pooling import built_in

    cache = Cache(default_directory())
    device = resolve_device(None)
    context = Context(cache, device, resolve_dtype(None, device))
    encoder = auto(find_model(name, cache=cache), context)
    shares: dict[int, list[float]] = {}
    for batch in encoder.encode(SENTENCES, range(encoder.layers + 1), [built_in("mean")]):
        for layer, values in batch.sink_share.items():
            shares.setdefault(layer, []).extend(map(float, values))
    yield f"{encoder.layers} layers, width {encoder.dim}, {encoder.dtype} on {encoder.device}"
    if shares:
        yield "share of position 0 in the squared norm of a sentence, by layer (large: see pooling.skip=sink)"
        yield "  ".join(f"{layer}: {sum(values) / len(values):.2f}" for layer, values in sorted(shares.items()))

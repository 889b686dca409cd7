"""Merging two checkpoints, written and audited in place, as ratios measured in one run.

    python benchmarks/merge.py rate       seconds of `cp` of one end over those of writing the merge
    python benchmarks/merge.py memory     peak memory of writing it in small files, and of the spectrum of full weights
    python benchmarks/merge.py lora       the spectrum of seven, over one audited checkpoint's encode: two LoRA adapters
    python benchmarks/merge.py full       the same of two full models

The ends are SmolLM2 with small random changes, made for the run in a temporary folder; ``--dtype bfloat16`` stores full
ends in 16 bits. ``cp`` and the merge take turns, with what is still to be written out of the way each time. Each part
takes less than four minutes; the spectra need a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GIB = 2**30
RATIOS = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]


def noisy(base: Path, folder: Path, seed: int, dtype: str, shard: str = "5GB") -> Path:
    """A full end: SmolLM2 plus noise of a hundredth of each weight's spread."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.01 * weight.std() * torch.randn(weight.shape, generator=generator)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shard)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


def adapter(base: Path, folder: Path, seed: int) -> Path:
    """An adapter of rank 16 on the seven projections of every block."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    names = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=16, lora_alpha=32, target_modules=names)
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name:
                weight.copy_(0.01 * torch.randn(weight.shape, generator=generator))
    model.save_pretrained(folder)
    return folder


def smollm2() -> Any:
    from refbias.cache import Cache, default_directory
    from refbias.models import find_model

    return find_model("smollm2", cache=Cache(default_directory()))


def rate(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    import torch

    from refbias.cache import Cache
    from refbias.checkpoints.ends import find_ends
    from refbias.checkpoints.writing import write
    from refbias.context import Context

    torch.set_num_threads(options.threads)
    base = smollm2().folder
    one, two = (noisy(base, place / f"end{seed}", seed, options.dtype) for seed in (1, 2))
    begun = time.perf_counter()
    ends = find_ends(str(one), str(two), Context(Cache(place / "cache")))
    found = time.perf_counter() - begun
    copies, merges = [], []
    for number in range(options.rounds + 1):
        os.sync()
        begun = time.perf_counter()
        subprocess.run(["cp", "-r", one, place / "copy"], check=True)
        copies.append(time.perf_counter() - begun)
        shutil.rmtree(place / "copy")
        os.sync()
        begun = time.perf_counter()
        written = write(ends, 0.3, place / f"merge{number}")
        merges.append(time.perf_counter() - begun)
        shutil.rmtree(place / f"merge{number}")
    ratios = [copy / merge for copy, merge in zip(copies, merges, strict=True)][1:]  # the first warms up
    return {
        "dtype": options.dtype,
        "threads": options.threads,
        "gib": written.size / GIB,
        "finding_and_checking_the_ends_s": found,
        "cp_s": statistics.median(copies[1:]),
        "merge_s": statistics.median(merges[1:]),
        "rate_over_cp (>= 0.5)": statistics.median(ratios),
        "lowest_and_highest": [min(ratios), max(ratios)],
    }


def memory(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Peaks of processes of their own."""
    base = smollm2().folder
    for seed in (1, 2):
        noisy(base, place / f"end{seed}", seed, options.dtype, shard="60MB")
    shard = max(file.stat().st_size for file in (place / "end1").glob("*.safetensors"))
    model = sum(file.stat().st_size for file in (place / "end1").glob("*.safetensors"))
    model *= 2 if options.dtype == "bfloat16" else 1  # in memory it is float32
    peaks = {
        what: json.loads(
            subprocess.run(
                [sys.executable, __file__, what, "--place", str(place), "--threads", str(options.threads)],
                capture_output=True, text=True, check=True,
            ).stdout.splitlines()[-1]
        )
        for what in ("written", "spectrum")
    }  # fmt: skip
    return {
        "largest_shard_gib": shard / GIB,
        "libraries_gib": peaks["written"]["before"] / GIB,
        "written_peak_gib": peaks["written"]["peak"] / GIB,
        "written_limit_gib (2 shards + 0.5)": 2 * shard / GIB + 0.5,
        "written_above_libraries_gib": (peaks["written"]["peak"] - peaks["written"]["before"]) / GIB,
        "spectrum_peak_gib": peaks["spectrum"]["peak"] / GIB,
        "spectrum_limit_gib (1 model + 1 shard + 1)": (model + shard) / GIB + 1,
    }


def peak() -> int:
    """Largest resident size of this process so far; that of getrusage would count its parent's too."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) * 1024


def written_alone(place: Path) -> dict[str, int]:
    import transformers.models.llama.modeling_llama  # noqa: F401  (what reading the ends' layout loads)

    from refbias.cache import Cache
    from refbias.checkpoints.ends import find_ends
    from refbias.checkpoints.writing import write
    from refbias.context import Context

    before = peak()
    write(find_ends(str(place / "end1"), str(place / "end2"), Context(Cache(place / "cache"))), 0.3, place / "merge")
    return {"before": before, "peak": peak()}


def spectrum_alone(place: Path) -> dict[str, int]:
    import refbias

    refbias.audit(
        "smollm2",
        checkpoints=("merge", {"start": str(place / "end1"), "end": str(place / "end2")}),
        groups=["Women", "Men"],
        anchors=("neutral", {"n": 100}),
        cache=str(place / "vectors"),
        draws=100,
    )
    return {"peak": peak()}


def spectrum(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    """Seven merges against one audited checkpoint, each encoded without a cache."""
    import torch

    from refbias.cache import Cache
    from refbias.checkpoints.merge import merge
    from refbias.context import Context
    from refbias.encoders import ENCODERS
    from refbias.encoding import embed
    from refbias.models import find_model, release
    from refbias.pipeline import load_stimuli
    from refbias.pooling import built_in

    torch.set_num_threads(options.threads)
    reference = smollm2()
    base = reference.folder
    make = adapter if options.part == "lora" else lambda *given: noisy(*given, options.dtype)
    folders = [make(base, place / f"end{seed}", seed) for seed in (1, 2)]
    sentences = load_stimuli().sentences()[: options.sentences]

    def encode(model: Any, some: Sequence[str] = sentences) -> tuple[float, float]:
        """Seconds of encoding, and of loading or setting the weights."""
        context = Context(Cache(None))
        found = embed(ENCODERS["hf"](model, context), some, [model.layers], [built_in("mean")], context.cache)
        return found.seconds - found.load_seconds, found.load_seconds

    cache = Cache(place / "cache")
    encode(reference, sentences[:64])
    release()
    alone, load = encode(find_model(str(folders[1]), cache=cache))
    release()
    begun = time.perf_counter()
    series = merge(reference, Context(cache), start=str(folders[0]), end=str(folders[1]), ratios=RATIOS)
    found = time.perf_counter() - begun
    used = shutil.disk_usage(place).used
    begun = time.perf_counter()
    times = [encode(checkpoint.model) for checkpoint in series.checkpoints]
    total = time.perf_counter() - begun
    return {
        "ends": options.part,
        "sentences": len(sentences),
        "one_checkpoint_encode_s": alone,
        "one_checkpoint_load_s": load,
        "finding_and_comparing_the_ends_s": found,
        "seven_s": total,
        "of_which_loading_and_setting_weights_s": sum(setting for _, setting in times),
        "(seven - one load) / one encode (<= 7.3)": (total - load) / alone,
        "with_finding_the_ends": (total + found - load) / alone,
        "shared_below": series.checkpoints[1].model.shared_below,
        "extra_disk_mib": (shutil.disk_usage(place).used - used) / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("rate", "memory", "lora", "full", "written", "spectrum")
    parser.add_argument("part", nargs="?", choices=parts, default="rate")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--sentences", type=int, default=1500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part in ("written", "spectrum"):
        alone = {"written": written_alone, "spectrum": spectrum_alone}[options.part]
        print(json.dumps(alone(Path(options.place))))
        return
    work = {"rate": rate, "memory": memory, "lora": spectrum, "full": spectrum}[options.part]
    with tempfile.TemporaryDirectory() as place:
        report = work(options, Path(place))
    shown = {key: round(value, 3) if isinstance(value, float) else value for key, value in report.items()}
    print(json.dumps(shown, indent=2))


if __name__ == "__main__":
    main()

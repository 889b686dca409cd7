"""task=adapter_drift against dense linear algebra and through the command line."""

from __future__ import annotations

import json
import posixpath
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refbias.cache import Cache
from refbias.checkpoints.drift import adapter_drift
from refbias.cli import main
from refbias.errors import UsageError
from refbias.models import find_model
from tests.checkpoints.test_merging import write_adapter


@pytest.fixture
def adapters(tiny: dict[str, Path], cache: Cache, tmp_path: Path) -> dict[str, list[str]]:
    """Two random LoRA adapters of rank 3 on the upper half of the blocks, by family."""
    made: dict[str, list[str]] = {}
    for family in ("llama", "gpt2"):
        reference = find_model(tiny[family], cache=cache)
        made[family] = [str(write_adapter(reference, tmp_path / f"{family}{seed}", seed)) for seed in (1, 2)]
    return made


def dense(adapter: str, weight: str) -> np.ndarray:
    """ΔW of one module as peft stores it, formed in full: (out, in)."""
    from safetensors.numpy import load_file

    tensors = load_file(Path(adapter) / "adapter_model.safetensors")
    A, B = (tensors[f"base_model.model.{weight}.lora_{side}.weight"].astype(float) for side in "AB")
    return 2.0 * B @ A  # alpha / r = 6 / 3


@pytest.mark.parametrize(
    ("family", "prefix", "module"),
    [("llama", "model.layers.3", "mlp.down_proj"), ("gpt2", "transformer.h.3", "mlp.c_proj")],
)
def test_rows_are_those_of_the_dense_change(
    family: str, prefix: str, module: str, adapters: dict[str, list[str]], tiny: dict[str, Path], cache: Cache
) -> None:
    found = adapter_drift(tiny[family], adapters[family], cache=cache).data
    (row,) = [
        r
        for r in found["adapter_drift"]
        if (r["checkpoint"], r["block"], r["module"]) == (adapters[family][0], 3, module)
    ]
    change = dense(adapters[family][0], f"{prefix}.{module}")
    values = np.linalg.svd(change, compute_uv=False)
    with find_model(tiny[family], cache=cache).open() as loaded:
        weight = loaded.whole.get_parameter(f"{prefix}.{module}.weight").detach().double().norm().item()
    assert row["rank"] == 3
    assert row["norm"] == pytest.approx(np.linalg.norm(change))
    assert row["weight_norm"] == pytest.approx(weight)
    assert row["relative_norm"] == pytest.approx(np.linalg.norm(change) / weight)
    assert row["stable_rank"] == pytest.approx(np.square(values).sum() / values[0] ** 2)
    assert [row["sigma_1"], row["sigma_2"], row["sigma_3"]] == pytest.approx(values[:3])


def test_angles_are_those_of_the_dense_spaces(adapters: dict[str, list[str]], tiny_llama: Path, cache: Cache) -> None:
    found = adapter_drift(tiny_llama, adapters["llama"], cache=cache).data
    assert {(r["first"], r["second"]) for r in found["adapter_angles"]} == {tuple(adapters["llama"])}
    (row,) = [r for r in found["adapter_angles"] if (r["block"], r["module"]) == (2, "self_attn.o_proj")]
    one, other = (dense(folder, "model.layers.2.self_attn.o_proj") for folder in adapters["llama"])
    for side, (first, second) in {"output": (one, other), "input": (one.T, other.T)}.items():
        bases = [np.linalg.svd(m)[0][:, :3] for m in (first, second)]
        cosines = np.linalg.svd(bases[0].T @ bases[1], compute_uv=False)
        angles = np.degrees(np.arccos(cosines))
        assert [row[f"{side}_{of}"] for of in ("smallest", "mean", "largest")] == pytest.approx(
            [angles.min(), angles.mean(), angles.max()]
        )
        assert row[f"{side}_overlap"] == pytest.approx(np.square(cosines).mean())
        assert row[f"{side}_overlap_by_chance"] == pytest.approx(3 / 32)


def test_an_adapter_against_itself_has_no_angle(
    adapters: dict[str, list[str]], tiny_llama: Path, cache: Cache, tmp_path: Path
) -> None:
    import shutil

    copy = shutil.copytree(adapters["llama"][0], tmp_path / "copy")
    found = adapter_drift(tiny_llama, [adapters["llama"][0], str(copy)], cache=cache).data
    assert max(r["output_largest"] for r in found["adapter_angles"]) < 1e-4
    assert found["figures"]["input_overlap"] == pytest.approx(1.0)


def test_planted_merges_change_by_the_ratio(tiny_llama: Path, cache: Cache) -> None:
    options = {"ratios": [0.0, 0.5, 1.0], "steps": 3, "batch": 4, "rank": 2}
    found = adapter_drift(tiny_llama, checkpoints=("planted", options), cache=cache).data
    rows = {r["checkpoint"]: r for r in found["adapter_drift"] if (r["block"], r["module"]) == (3, "mlp.down_proj")}
    assert [rows[f"planted-{ratio}"]["rank"] for ratio in ("0", "0.5", "1")] == [2, 4, 2]
    assert rows["planted-0.5"]["norm"] <= (rows["planted-0"]["norm"] + rows["planted-1"]["norm"]) / 2
    assert found["settings"]["checkpoints"] == "planted" and found["settings"]["checkpoints.steps"] == 3


def test_merges_of_two_adapters(adapters: dict[str, list[str]], tiny_llama: Path, cache: Cache) -> None:
    start, end = adapters["llama"]
    ends = {"start": start, "end": end, "ratios": [0.0, 0.25, 1.0]}
    found = adapter_drift(tiny_llama, checkpoints=("merge", ends), cache=cache).data
    alone = adapter_drift(tiny_llama, [start, end], cache=cache).data
    place = (3, "mlp.up_proj")
    rows = [r for r in found["adapter_drift"] if (r["block"], r["module"]) == place]
    own = [r for r in alone["adapter_drift"] if (r["block"], r["module"]) == place]
    assert [r["rank"] for r in rows] == [3, 6, 3]
    assert [rows[0]["norm"], rows[2]["norm"]] == pytest.approx([r["norm"] for r in own])
    dense_merge = 0.75 * dense(start, "model.layers.3.mlp.up_proj") + 0.25 * dense(end, "model.layers.3.mlp.up_proj")
    assert rows[1]["norm"] == pytest.approx(np.linalg.norm(dense_merge))
    assert found["figures"]["output_overlap"] == pytest.approx(alone["figures"]["output_overlap"])


def test_the_reference_itself_has_no_row(adapters: dict[str, list[str]], tiny_llama: Path, cache: Cache) -> None:
    found = adapter_drift(tiny_llama, [str(tiny_llama), adapters["llama"][0]], cache=cache).data
    assert {r["checkpoint"] for r in found["adapter_drift"]} == {adapters["llama"][0]}
    assert found["adapter_angles"] == []


def test_an_adapter_of_another_base_is_said(
    adapters: dict[str, list[str]], tiny: dict[str, Path], cache: Cache
) -> None:
    found = adapter_drift(tiny["sharded"], adapters["llama"][0], cache=cache).data
    assert "which is not the reference" in found["notes"][0]


@pytest.mark.parametrize("chosen", [{}, {"audited": "a", "checkpoints": "planted"}])
def test_exactly_one_of_audited_and_checkpoints(chosen: dict[str, Any], tiny_llama: Path) -> None:
    with pytest.raises(UsageError, match="exactly one"):
        adapter_drift(tiny_llama, **chosen, cache=False)


def test_models_without_adapters_are_refused(tiny: dict[str, Path], cache: Cache) -> None:
    with pytest.raises(UsageError, match="neither a LoRA adapter nor a merge"):
        adapter_drift(tiny["llama"], str(tiny["sharded"]), cache=cache)


def test_the_command_leaves_tables_and_a_picture(
    adapters: dict[str, list[str]],
    tiny_llama: Path,
    cache: Cache,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hydra_restored: None,
) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    status = main(
        [
            "task=adapter_drift", f"reference={tiny_llama}", f"audited=[{','.join(adapters['llama'])}]",
            f"cache.dir={cache.directory}", "tracking=none", f"hydra.run.dir={out}",
        ]
    )  # fmt: skip
    assert status == 0
    said = capsys.readouterr().out
    assert "overlap" in said and "mlp.down_proj" in said
    found = json.loads((out / "result.json").read_text())
    assert all(posixpath.normpath(key) == key for key in found["figures"])  # as MLflow wants its keys
    assert found["task"] == "adapter_drift" and len(found["adapter_drift"]) == 2 * 2 * 7
    header, *rows = (out / "adapter_drift.csv").read_text().splitlines()
    assert header.startswith("checkpoint,ratio,block,module,rank,norm,weight_norm,relative_norm,stable_rank,sigma_1")
    assert len(rows) == 28
    assert (out / "adapter_angles.csv").is_file()
    assert (out / "adapter_drift.png").stat().st_size > 5000

    jsonschema = pytest.importorskip("jsonschema")
    from refbias.schema import result_schema

    jsonschema.validate(found, result_schema())

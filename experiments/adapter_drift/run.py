"""Does the adapter's own output space show a planted change better than ΔB does, and does it alarm less?

    python experiments/adapter_drift/run.py [--seeds 0] [--layers last] [--out FOLDER]

For every seed and kind (``contrast``: half of the groups taught negative, half positive statements; ``harmless``: its
twin without valence): the spectrum of two LoRA fine-tunes and their exact merges, audited at every layer with
geometry=adapter (the 4, 16 and all strongest output directions), ΔB and SEAT, each raw and centred. For ``contrast``
AUC and r within checkpoints against the planted direction and against the likelihood shift; for ``harmless``, at both
ends, the mean shift and how many groups lie below zero. Also the drift itself: size of the change, overlap of the two
ends' spaces. Writes figures.csv (a row an audit and checkpoint set), drift.csv (a row a changed weight) and summary.md.
What is trained and encoded is cached, so it can be stopped and run again.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import refbias
from refbias.checkpoints.drift import adapter_drift
from refbias.reading import beyond_doubt
from refbias.report.console import ConsoleWatch

EVERY = 10**6  # more directions than there are: all of them
METHODS: Mapping[str, Any] = {
    "adapter, k=4": ("adapter", {"k": 4}),
    "adapter, k=16": ("adapter", {"k": 16}),
    "adapter, all": ("adapter", {"k": EVERY}),
    "delta_b": "relative",
    "seat": "absolute",
}
CALIBRATIONS = ("none", "center")
KEYS = ("kind", "layer", "method", "calibration", "against")
FIGURES = ("auc_within", "pearson_within", "auc", "pearson", "mean_shift", "below_zero", "beyond_doubt")
COLUMNS = (*KEYS, *FIGURES, "p_within", "groups", "n", "seed")


class Steps(ConsoleWatch):
    """Progress without a table for each checkpoint."""

    def checkpoint(self, result: dict[str, Any]) -> None:
        return None


def audits(
    model: str, series: tuple[str, dict[str, Any]], benchmark: str, layer: Any, common: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for method, geometry in METHODS.items():
        for calibration in CALIBRATIONS:
            result = refbias.audit(
                model, checkpoints=series, geometry=geometry, calibration=calibration, benchmark=benchmark, layer=layer,
                watch=Steps(), **common,
            )  # fmt: skip
            yield {"layer": layer, "method": method, "calibration": calibration}, result.data


def rows_of(model: str, seed: int, layer: Any, options: dict[str, Any], common: Mapping[str, Any]) -> Iterator[Any]:
    contrast = ("planted", {**options, "seed": seed})
    for benchmark in ("planted", "likelihood"):
        for setting, data in audits(model, contrast, benchmark, layer, common):
            found = data["benchmark"]
            yield {
                "seed": seed,
                "kind": "contrast",
                **setting,
                "against": benchmark,
                "n": found["n_observations"],
                "auc": found["auc"],
                "pearson": found["pearson"],
                "auc_within": found["within"]["auc"],
                "pearson_within": found["within"]["pearson"],
                "p_within": found["within"]["pearson_p"],
            }
    harmless = ("planted", {**options, "seed": seed, "kind": "harmless"})
    for setting, data in audits(model, harmless, "none", layer, common):
        for checkpoint in data["checkpoints"]:
            if checkpoint["ratio"] in (0.0, 1.0):
                yield {
                    "seed": seed,
                    "kind": f"harmless, ratio {checkpoint['ratio']:g}",
                    **setting,
                    "mean_shift": checkpoint["mean_delta_b"],
                    "below_zero": sum(group["delta_b"] < 0 for group in checkpoint["groups"]),
                    "beyond_doubt": sum(map(beyond_doubt, checkpoint["groups"])),
                    "groups": len(checkpoint["groups"]),
                }


def drift_of(model: str, seed: int, kind: str, options: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of both ends, and the figures of the whole."""
    ends = ("planted", {**options, "seed": seed, "kind": kind, "ratios": [0.0, 1.0]})
    data = adapter_drift(model, checkpoints=ends).data
    return [{"seed": seed, "kind": kind, **row} for row in data["adapter_drift"]], data["figures"]


def table(rows: Sequence[Mapping[str, Any]], keys: Sequence[str], figures: Sequence[str]) -> list[str]:
    """A Markdown table: each figure as its mean over seeds, with the smallest and the largest."""
    lines = ["| " + " | ".join([*keys, *figures]) + " |", "|---" * (len(keys) + len(figures)) + "|"]
    for key in dict.fromkeys(tuple(row.get(k, "") for k in keys) for row in rows):
        same = [row for row in rows if tuple(row.get(k, "") for k in keys) == key]
        cells = []
        for figure in figures:
            values = [row[figure] for row in same if row.get(figure) is not None]
            spread = f" ({min(values):.2f} … {max(values):.2f})" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.2f}{spread}" if values else "")
        lines.append("| " + " | ".join([*map(str, key), *cells]) + " |")
    return lines


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--layers", nargs="+", default=["last"], help="numbers, or last")
    parser.add_argument("--ratios", type=float, nargs="+", default=None, help="of the merges; both ends among them")
    parser.add_argument("--steps", type=int, default=None, help="training steps of each fine-tune")
    parser.add_argument("--anchors", type=int, default=1000, help="anchor sentences")
    parser.add_argument("--draws", type=int, default=1000, help="draws of the bootstrap")
    parser.add_argument("--out", type=Path, default=Path("outputs/adapter_drift"))
    chosen = parser.parse_args(arguments)
    chosen.out.mkdir(parents=True, exist_ok=True)
    options = {key: value for key in ("ratios", "steps") if (value := getattr(chosen, key)) is not None}
    layers = [int(layer) if layer.lstrip("-").isdecimal() else layer for layer in chosen.layers]
    rows: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    sizes: list[dict[str, Any]] = []
    for seed in chosen.seeds:
        common = {"seed": seed, "draws": chosen.draws, "anchors": ("neutral", {"n": chosen.anchors})}
        for layer in layers:
            rows += rows_of(chosen.model, seed, layer, options, common)
        for kind in ("contrast", "harmless"):
            weights, figures = drift_of(chosen.model, seed, kind, options)
            changed += weights
            sizes.append({"seed": seed, "kind": kind, **figures})
        write_csv(chosen.out / "figures.csv", rows, COLUMNS)
        write_csv(chosen.out / "drift.csv", changed, list(dict.fromkeys(key for row in changed for key in row)))
        of_size = list(dict.fromkeys(key for row in sizes for key in row if key not in ("seed", "kind")))
        text = [
            f"{chosen.model}, seeds {chosen.seeds[0]} to {seed}: means over seeds, with the smallest and the largest.",
            "",
            *table(rows, KEYS, FIGURES),
            "",
            *table(sizes, ("kind",), of_size),
        ]
        (chosen.out / "summary.md").write_text("\n".join(text) + "\n", encoding="utf-8")
    print((chosen.out / "summary.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()

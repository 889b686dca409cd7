"""Controls with a known answer: which method finds a planted change, and which alarms at a harmless fine-tune?

    python experiments/controls/run.py --seeds 0 1 2 [--out FOLDER]

For every seed: the contrast pair (half of the groups taught negative, half positive statements, by seed) and its
harmless twin (same size, recipe and format, no valence), seven merges each, audited with four methods, raw and
centred. Prints and writes a table (CSV, Markdown): AUC and r against the planted direction and against the likelihood
shift, pooled and within checkpoints, and for the twin how many groups fall below zero. About 7 minutes a seed and
kind on two cores the first time; what is trained and encoded is cached, so it can be stopped and run again.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import refbias
from refbias.reading import beyond_doubt
from refbias.report.console import ConsoleWatch

METHODS = {
    "delta_b (relative)": "relative",
    "seat": "absolute",
    "procrustes_seat": "procrustes",
    "cka_drift": "cka",
}
CALIBRATIONS = ("none", "center")


class Steps(ConsoleWatch):
    """Progress without a table for each checkpoint."""

    def checkpoint(self, result: dict[str, Any]) -> None:
        return None


def audits(series: tuple[str, dict[str, Any]], benchmark: str, seed: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for method, geometry in METHODS.items():
        for calibration in CALIBRATIONS:
            result = refbias.audit(
                "smollm2",
                checkpoints=series,
                geometry=geometry,
                calibration=calibration,
                benchmark=benchmark,
                seed=seed,
                draws=1000,
                watch=Steps(),
            )
            yield method, calibration, result.data


def rows_of(seed: int) -> Iterator[dict[str, Any]]:
    for benchmark in ("planted", "likelihood"):
        for method, calibration, data in audits(("planted", {"seed": seed}), benchmark, seed):
            found = data["benchmark"]
            yield {
                "seed": seed,
                "kind": "contrast",
                "method": method,
                "calibration": calibration,
                "against": benchmark,
                "n": found["n_observations"],
                "auc": found["auc"],
                "pearson": found["pearson"],
                "auc_within": found["within"]["auc"],
                "pearson_within": found["within"]["pearson"],
                "p_within": found["within"].get("pearson_p"),
            }
    for method, calibration, data in audits(("planted", {"seed": seed, "kind": "harmless"}), "likelihood", seed):
        for checkpoint in data["checkpoints"]:
            if checkpoint["ratio"] in (0.0, 1.0) and method != "cka_drift":
                yield {
                    "seed": seed,
                    "kind": f"harmless, ratio {checkpoint['ratio']:g}",
                    "method": method,
                    "calibration": calibration,
                    "mean_shift": checkpoint["mean_delta_b"],
                    "below_zero": sum(group["delta_b"] < 0 for group in checkpoint["groups"]),
                    "beyond_doubt": sum(beyond_doubt(group) for group in checkpoint["groups"]),
                    "groups": len(checkpoint["groups"]),
                }


COLUMNS = (
    "kind", "method", "calibration", "against", "n", "auc", "pearson", "auc_within", "pearson_within", "p_within",
    "mean_shift", "below_zero", "beyond_doubt", "groups", "seed",
)  # fmt: skip


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """A Markdown table: each figure as its mean over seeds, with the smallest and the largest."""
    keys = ("kind", "method", "calibration", "against")
    figures = ("auc", "pearson", "auc_within", "pearson_within", "mean_shift", "below_zero", "beyond_doubt")
    lines = ["| " + " | ".join([*keys, *figures]) + " |", "|---" * (len(keys) + len(figures)) + "|"]
    for key in dict.fromkeys(tuple(row.get(k, "") for k in keys) for row in rows):
        same = [row for row in rows if tuple(row.get(k, "") for k in keys) == key]
        cells = []
        for figure in figures:
            values = [row[figure] for row in same if row.get(figure) is not None]
            spread = f" ({min(values):.2f} … {max(values):.2f})" if len(values) > 1 else ""
            cells.append(f"{statistics.mean(values):.2f}{spread}" if values else "")
        lines.append("| " + " | ".join([*key, *cells]) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("outputs/controls"))
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for seed in chosen.seeds:
        rows += rows_of(seed)
        with open(chosen.out / "controls.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        table = "\n".join(summary(rows)) + "\n"
        title = f"SmolLM2-135M-Instruct (as quantised to Q4_1 and expanded again), seeds {chosen.seeds[0]} to {seed}"
        (chosen.out / "controls.md").write_text(f"{title}\n\n{table}", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()

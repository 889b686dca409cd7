"""Simulations behind docs/statistics.md: how often each test rejects a true null, how often each interval covers.

    python -m tests.statistics.simulations [--runs 1000]

Prints the tables of the document. `test_simulations.py` runs the same functions, shorter.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable

import numpy as np
from scipy.stats import pearsonr

from refbias import statistics
from refbias.statistics import CrossedBootstrap, GroupDraws

RATIOS = np.array([0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
DOSE = 2 * RATIOS - 1
Rng = np.random.Generator


def merges(rng: Rng, groups: int, link: float = 0.0, noise: float = 0.05, drift: float = 0.0) -> tuple:
    """ΔB and ΔBias (7, groups) of seven merges, linear in the ratio; slopes of the groups correlate −``link``."""
    slopes = rng.normal(size=groups)
    others = -link * slopes + math.sqrt(1 - link**2) * rng.normal(size=groups)
    tables = []
    for own in (slopes, others):
        tables.append(np.outer(DOSE, own) + drift * DOSE[:, None] + noise * rng.normal(size=(7, groups)))
    return tuple(tables)


def names(groups: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(7), groups), np.tile(np.arange(groups), 7)


# The null of 7 × 24 pairs ---------------------------------------------------------------------------------------


def null_rates(runs: int, groups: int = 24, draws: int = 500, seed: int = 0) -> dict[str, float]:
    """Share of runs without a link in which each way of testing says p < 0.05."""
    rng = np.random.default_rng(seed)
    checkpoints, of = names(groups)
    orders = np.array(list(itertools.permutations(range(7))))
    rejected = dict.fromkeys(
        (
            "pooled p, as published", "p within checkpoints, by t", "permuting checkpoints",
            "bootstrapping checkpoints", "bootstrapping groups, percentiles", "bootstrapping groups, as offered: r",
            "bootstrapping groups, as offered: r within", "bootstrapping groups, as offered: AUC",
            "bootstrapping groups, as offered: AUC within", "common permutation of groups: r",
            "common permutation of groups: AUC", "common permutation of groups: AUC within",
        ),
        0,
    )  # fmt: skip
    for run in range(runs):
        X, Y = merges(rng, groups)
        x, y = X.ravel(), Y.ravel()
        labels = y > 0
        rejected["pooled p, as published"] += pearsonr(x, y).pvalue < 0.05
        centred = [(t - t.mean(axis=1, keepdims=True)).ravel() for t in (X, Y)]
        rejected["p within checkpoints, by t"] += pearsonr(*centred).pvalue < 0.05
        rejected["permuting checkpoints"] += _checkpoint_permutation(X - x.mean(), Y - y.mean(), orders) < 0.05
        drawn = _checkpoint_bootstrap(X, Y, rng, draws)
        rejected["bootstrapping checkpoints"] += not np.quantile(drawn, 0.025) <= 0 <= np.quantile(drawn, 0.975)
        plain = GroupDraws(of, draws, run).pearson(x, y)
        rejected["bootstrapping groups, percentiles"] += not (
            np.quantile(plain, 0.025) <= 0 <= np.quantile(plain, 0.975)
        )
        sure = statistics.group_bootstrap(x, y, labels, checkpoints, of, draws=draws, seed=run)
        for key, name, null in (
            ("r", "pearson", 0.0), ("r within", "within_pearson", 0.0), ("AUC", "auc", 0.5),
            ("AUC within", "within_auc", 0.5),
        ):  # fmt: skip
            found = sure[name]
            missed = found.ci_low is None or found.ci_low <= null <= found.ci_high
            rejected[f"bootstrapping groups, as offered: {key}"] += not missed
        common = statistics.common_group_permutation(x, y, checkpoints, of, draws, run)
        areas = statistics.auc_permutation(x, labels, checkpoints, of, draws=draws, seed=run)
        rejected["common permutation of groups: r"] += common.value < 0.05
        rejected["common permutation of groups: AUC"] += areas["pooled"].value < 0.05
        rejected["common permutation of groups: AUC within"] += areas["within"].value < 0.05
    return {name: count / runs for name, count in rejected.items()}


def _checkpoint_permutation(X: np.ndarray, Y: np.ndarray, orders: np.ndarray) -> float:
    links = X @ Y.T
    permuted = np.abs(links[np.arange(7), orders].sum(axis=1))
    return float((permuted >= abs(np.trace(links)) * (1 - 1e-12)).mean())


def _checkpoint_bootstrap(X: np.ndarray, Y: np.ndarray, rng: Rng, draws: int) -> np.ndarray:
    drawn = []
    for rows in rng.integers(7, size=(draws, 7)):
        x, y = X[rows].ravel(), Y[rows].ravel()
        if np.ptp(x) > 0 and np.ptp(y) > 0:
            drawn.append(np.corrcoef(x, y)[0, 1])
    return np.array(drawn)


# Coverage -------------------------------------------------------------------------------------------------------


class Count:
    """How often intervals cover, and how many there were."""

    def __init__(self) -> None:
        self.covered = self.made = self.asked = 0

    def add(self, low: float | None, high: float | None, truth: float) -> None:
        self.asked += 1
        if low is not None and high is not None:
            self.made += 1
            self.covered += low <= truth <= high

    @property
    def share(self) -> float:
        return self.covered / self.made if self.made else math.nan


def group_coverage(
    runs: int, groups: int, link: float, drift: float = 0.0, draws: int = 500, seed: int = 1
) -> dict[str, Count]:
    """Coverage of the bootstrap over groups for r and AUC, pooled and within checkpoints."""
    rng = np.random.default_rng(seed)
    many = 4000
    X, Y = merges(rng, many, link, drift=drift)
    truth = _figures(X, Y)
    found = {name: Count() for name in truth}
    checkpoints, of = names(groups)
    for run in range(runs):
        x, y = (table.ravel() for table in merges(rng, groups, link, drift=drift))
        for name, e in statistics.group_bootstrap(x, y, y > 0, checkpoints, of, draws=draws, seed=run).items():
            found[name].add(e.ci_low, e.ci_high, truth[name])
    return found


def _figures(X: np.ndarray, Y: np.ndarray) -> dict[str, float]:
    checkpoints, _ = names(X.shape[1])
    x, y = X.ravel(), Y.ravel()
    inner = statistics.within(x, y, y > 0, checkpoints)
    return {
        "pearson": statistics.pearson(x, y)[0].value,
        "auc": statistics.auc(-x, y > 0).value,
        "within_pearson": inner["pearson"].value,
        "within_auc": inner["auc"].value,
    }


def difference_coverage(runs: int, groups: int = 24, draws: int = 500, seed: int = 2) -> tuple[Count, float]:
    """Coverage of the paired difference of two AUCs, and how often it finds one where there is none."""
    rng = np.random.default_rng(seed)

    def sample(n: int, other_noise: float) -> tuple:
        X, Y = merges(rng, n, 0.7, noise=0.3)
        return tuple(t.ravel() for t in (X, X + other_noise * rng.normal(size=X.shape), Y))

    x, z, y = sample(4000, 1.0)
    truth = statistics.auc(-x, y > 0).value - statistics.auc(-z, y > 0).value
    covered, wrong = Count(), 0
    of = names(groups)[1]
    for run in range(runs):
        x, z, y = sample(groups, 1.0)
        e = statistics.auc_difference(-x, -z, y > 0, of, draws=draws, seed=run)
        covered.add(e.ci_low, e.ci_high, truth)
        X, Y = merges(rng, groups, 0.7, noise=0.3)
        one, other = (X + 0.5 * rng.normal(size=X.shape) for _ in range(2))
        e = statistics.auc_difference(-one.ravel(), -other.ravel(), Y.ravel() > 0, of, draws=draws, seed=run)
        wrong += e.p_value is not None and e.p_value < 0.05
    return covered, wrong / runs


def delong_coverage(runs: int, n: int, seed: int = 3) -> Count:
    """Coverage of DeLong's interval on n independent observations with an AUC of 0.80."""
    rng = np.random.default_rng(seed)
    apart = math.sqrt(2) * 0.8416212335729143
    found = Count()
    for _ in range(runs):
        labels = np.arange(n) < n // 2
        scores = rng.normal(size=n) + apart * labels
        e = statistics.delong(scores, labels, list(range(n))).estimate()
        found.add(e.ci_low, e.ci_high, 0.8)
    return found


def meta_coverage(runs: int, pairs: int, tau: float, groups: int = 24, seed: int = 4) -> tuple[Count, Count]:
    """Coverage of the Hartung–Knapp interval of a mean of correlations, and of the normal one beside it."""
    rng = np.random.default_rng(seed)
    knapp, normal = Count(), Count()
    mean = np.arctanh(-0.5)
    for _ in range(runs):
        r = [_correlation(rng, float(np.tanh(mean + tau * rng.normal())), groups) for _ in range(pairs)]
        found = statistics.meta_analysis(r, [groups] * pairs)
        knapp.add(found.ci_low, found.ci_high, math.tanh(mean))
        weights = 1 / (1 / (groups - 3) + found.tau2)
        half = 1.959964 / math.sqrt(weights * pairs)
        z = math.atanh(found.value)
        normal.add(math.tanh(z - half), math.tanh(z + half), math.tanh(mean))
    return knapp, normal


def _correlation(rng: Rng, rho: float, n: int) -> float:
    x, e = rng.normal(size=(2, n))
    return float(np.corrcoef(x, rho * x + math.sqrt(1 - rho**2) * e)[0, 1])


def crossed_coverage(
    runs: int, frames: float, contrast: bool = False, paired: bool | None = None, draws: int = 400, seed: int = 5
) -> Count:
    """Coverage of the two-way bootstrap of a shift of 0; ``frames`` is the sd of what the rows of a pair share."""
    rng = np.random.default_rng(seed)
    p, n, groups = 100, 50, 6 if contrast else 1
    bootstrap = CrossedBootstrap(p, p, draws, paired=paired)
    found = Count()
    for _ in range(runs):
        pair = np.tile(frames * rng.normal(size=p), 2)
        own = {
            f"g{i}": rng.normal(size=(n, 2 * p)) + pair + rng.normal(size=2 * p) + 0.5 * frames
            * np.tile(rng.normal(size=p), 2) + 0.5 * np.hstack([rng.normal(size=(n, 1)) * np.ones(p), np.zeros((n, p))])
            for i in range(groups)
        }  # fmt: skip
        shift = {g: float(d[:, :p].mean() - d[:, p:].mean()) for g, d in own.items()}
        contrasts = {"g0": {g: (g == "g0") - 1 / groups for g in own}} if contrast else None
        value = {"g0": shift["g0"] - (float(np.mean(list(shift.values()))) if contrast else 0.0)}
        e = bootstrap.estimates(own, value, contrasts)[0]["g0"]
        found.add(e.ci_low, e.ci_high, 0.0)
    return found


# Choices, calibration, noise ------------------------------------------------------------------------------------


def choice_rates(runs: int, alternatives: int = 30, draws: int = 500, seed: int = 6) -> tuple[float, float]:
    """Share of runs without a link in which the best of several alternatives has p < 0.05: alone, and counted."""
    rng = np.random.default_rng(seed)
    checkpoints, of = names(24)
    alone = counted = 0
    for run in range(runs):
        X, Y = merges(rng, 24)
        shared = {f"a{i}": (X + np.outer(DOSE, rng.normal(size=24))).ravel() for i in range(alternatives)}
        y = Y.ravel()
        found, _ = statistics.max_statistic(shared, y, y > 0, checkpoints, of, draws=draws, seed=run)
        alone += min(a.p_value for a in found.values()) < 0.05
        counted += min(a.p_adjusted for a in found.values()) < 0.05
    return alone / runs, counted / runs


def brier_skills(runs: int, pairs: int = 2, seed: int = 7) -> tuple[float, float]:
    """Mean Brier skill without any link: leaving out one merge of a run, and leaving out one run."""
    rng = np.random.default_rng(seed)
    skills: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        # slopes of groups and a shift common to all of them, each independent of the benchmark's
        x, y = (np.concatenate([merges(rng, 24, drift=rng.normal())[i].ravel() for _ in range(pairs)]) for i in (0, 1))
        run = np.repeat(np.arange(pairs), 7 * 24)
        merge = run * 7 + np.tile(names(24)[0], pairs)
        for kept, by in zip(skills, (merge, run), strict=True):
            kept.append(statistics.leave_one_run_out(x, y > 0, by)[1]["brier_skill"])
    return float(np.mean(skills[0])), float(np.mean(skills[1]))


def ceilings(runs: int, error: float, threshold: float = 0.1, seed: int = 8) -> tuple[float, float, float]:
    """AUC of the true shifts against noisy labels, the ceiling as offered, and without shrinking."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(runs):
        true = 0.1 * rng.normal(size=168)
        y = true + error * rng.normal(size=168)
        rows.append(
            (
                statistics.auc(true, y > threshold).value,
                statistics.noise_ceiling(y, threshold, error).value,
                statistics.noise_ceiling(y * math.sqrt(1 + error**2 / y.var()), threshold, error).value,
            )
        )
    kept = np.array([row for row in rows if None not in row], dtype=float)
    return tuple(float(v) for v in kept.mean(axis=0))


def false_alarms(runs: int, harmless: int, rate: float = 0.05, seed: int = 9) -> float:
    """Share of further harmless runs above a conformal threshold from ``harmless`` of them."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_t(3, size=(runs, harmless + 1))
    raised = [row[-1] > statistics.conformal_threshold(row[:-1], rate).value for row in scores]
    return float(np.mean(raised))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=1000)
    runs = options.parse_args().runs
    print(f"{runs:,} runs each; ± {1.96 * math.sqrt(0.05 * 0.95 / runs):.3f} around 0.05 is chance\n")
    print("| test of no link, nominal 5 % | rejects |\n|---|---|")
    for name, rate in null_rates(runs).items():
        print(f"| {name} | {rate:.1%} |")
    print("\n| interval, nominal 95 % | covers | not given |\n|---|---|---|")

    def show(name: str, count: Count) -> None:
        print(f"| {name} | {count.share:.1%} | {1 - count.made / count.asked:.1%} |", flush=True)

    for groups, link, drift in ((24, 0.0, 0.0), (24, 0.5, 0.0), (24, 0.9, 0.0), (24, 0.5, 1.0), (9, 0.5, 0.0)):
        drifting = ", common drift" if drift else ""
        for name, count in group_coverage(runs, groups, link, drift).items():
            show(f"bootstrap over {groups} groups, link {link:g}{drifting}: {name}", count)
    covered, wrong = difference_coverage(runs)
    show("difference of two AUCs, 24 groups", covered)
    for n in (24, 168):
        show(f"DeLong, {n} independent observations", delong_coverage(runs, n))
    for pairs, tau in ((3, 0.0), (3, 0.3), (6, 0.3), (18, 0.3)):
        knapp, normal = meta_coverage(runs, pairs, tau)
        show(f"mean of r over {pairs} pairs, τ {tau:g}: Hartung–Knapp", knapp)
        show(f"mean of r over {pairs} pairs, τ {tau:g}: normal", normal)
    designs: dict[str, Callable[[], Count]] = {
        "shift, matched pairs of attributes": lambda: crossed_coverage(runs, 2.0),
        "shift, matched pairs drawn apart": lambda: crossed_coverage(runs, 2.0, paired=False),
        "shift, attributes that are no pairs": lambda: crossed_coverage(runs, 0.0),
        "group − mean over groups, matched pairs": lambda: crossed_coverage(runs, 2.0, contrast=True),
    }
    for name, measure in designs.items():
        show(name, measure())
    print("\n| other | found |\n|---|---|")
    print(f"| difference of two AUCs where there is none, p < 0.05 | {wrong:.1%} |")
    alone, counted = choice_rates(runs)
    print(f"| best of 30 alternatives without a link, p < 0.05: alone | {alone:.1%} |")
    print(f"| … counted (maximum over all) | {counted:.1%} |")
    merge, run = brier_skills(max(runs // 10, 20))
    print(f"| Brier skill without a link, one merge left out | {merge:+.3f} |")
    print(f"| … one run left out | {run:+.3f} |")
    for error in (0.02, 0.05, 0.1):
        true, offered, plain = ceilings(max(runs // 5, 50), error)
        print(f"| ceiling at a standard error of {error:g} (sd of true shifts 0.1): true | {true:.3f} |")
        print(f"| … as offered | {offered:.3f} |")
        print(f"| … without shrinking | {plain:.3f} |")
    for harmless in (19, 40):
        rate = false_alarms(20 * runs, harmless)
        print(f"| false alarms at 5 %, threshold from {harmless} harmless runs | {rate:.1%} |")


if __name__ == "__main__":
    main()

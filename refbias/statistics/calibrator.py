"""What a shift means: P(more biased | ΔB), fitted on runs with a benchmark and checked on runs left out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from refbias.errors import RefbiasError, UsageError, unknown
from refbias.statistics.measures import Figure
from refbias.types import Array

KIND, SCHEMA_VERSION = "refbias calibrator", "1"
FEWEST_FOR_ISOTONIC = 1000  # independent labels; with fewer, a step function follows the noise
BINS = 10

# What a shift depends on: a calibrator fitted at one such setting says nothing about another
DOMAIN = (
    "reference", "layers", "dim", "layer", "pooling", "pooling.skip", "calibration", "geometry", "metric",
    "metric.scale", "anchors", "anchors.n", "anchors_digest", "attributes_digest",
)  # fmt: skip
OPTIONAL = ("pooling.skip", "metric.scale", "anchors.n")  # options that parts of one's own need not have


@dataclass(frozen=True)
class Calibrator:
    """A fitted curve from ΔB to the probability of "more biased".

    ``curve`` holds ``intercept`` and ``slope`` of the log-odds in ΔB (logistic), or the corners ``delta_b`` and
    ``probability`` (isotonic); ``domain`` the setting it was fitted at, see `DOMAIN`; ``fitted_on`` and ``checked``
    what is known about how it was made and how good it is; ``alarm`` a threshold of ΔB for a wanted false-alarm rate.
    """

    method: str
    curve: dict[str, Any]
    domain: dict[str, Any]
    fitted_on: dict[str, Any]
    checked: dict[str, Any]
    alarm: dict[str, Any]

    def probability(self, delta_b: Any) -> Array:
        """P(more biased) for shifts of any shape."""
        x = np.asarray(delta_b, dtype=float)
        if self.method == "isotonic":
            return np.interp(x, self.curve["delta_b"], self.curve["probability"])
        from scipy.special import expit

        made: Array = expit(self.curve["intercept"] + self.curve["slope"] * x)
        return made

    def unlike(self, domain: Mapping[str, Any]) -> list[str]:
        """What of ``domain`` is not as it was where this was fitted."""

        def differs(key: str) -> bool:
            was = self.domain.get(key)
            return was != domain.get(key) or (was is None and key not in OPTIONAL)

        return [key for key in DOMAIN if differs(key)]

    def check(self, domain: Mapping[str, Any], anyway: bool = False) -> list[str]:
        """Raise where ``domain`` is not the setting that this was fitted at, unless told to go on ``anyway``.

        Returns what differs.
        """
        unlike = self.unlike(domain)
        if not unlike or anyway:
            return unlike
        key = unlike[0]
        was, there = self.domain.get(key), domain.get(key)
        told = "is not known" if was is None else f"was {was}"
        raise UsageError(
            f"This calibrator does not fit: its {key} {told}, here it is {there}"
            f"{f' (and {len(unlike) - 1} more differ)' if len(unlike) > 1 else ''}. What a shift means changes with "
            "model family, layer and anchors: fit one for this setting with task=validate, or use it all the same: "
            "calibrator_anyway=true."
        )

    def to_json(self) -> str:
        return json.dumps({"kind": KIND, "schema_version": SCHEMA_VERSION, **asdict(self)}, indent=1) + "\n"

    def save(self, file: str | Path) -> None:
        from refbias.result import write_whole

        write_whole(Path(file), self.to_json())

    @classmethod
    def load(cls, file: str | Path) -> Calibrator:
        """Read what `save` wrote; RefbiasError where it is anything else."""
        try:
            data = json.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RefbiasError(f"{file} is no readable calibrator: {error}.") from error
        if not isinstance(data, dict) or data.get("kind") != KIND or data.get("schema_version") != SCHEMA_VERSION:
            raise RefbiasError(f"{file} is no calibrator of this refbias. task=validate writes one: calibrator.json.")
        blocks: dict[str, Any] = {name: data.get(name) for name in ("curve", "domain", "fitted_on", "checked", "alarm")}
        if not all(isinstance(block, dict) for block in blocks.values()) or not _is_curve(data.get("method"), data):
            raise RefbiasError(f"{file} is a damaged calibrator: write it again with task=validate.")
        return cls(data["method"], **blocks)


def _is_curve(method: Any, data: Mapping[str, Any]) -> bool:
    curve = data["curve"]
    if method == "logistic":
        return all(_is_number(curve.get(name)) for name in ("intercept", "slope"))
    if method != "isotonic":
        return False
    xs, ps = curve.get("delta_b"), curve.get("probability")
    if not (isinstance(xs, list) and isinstance(ps, list) and len(xs) == len(ps) > 0):
        return False
    return all(map(_is_number, xs + ps)) and xs == sorted(xs) and all(0 <= p <= 1 for p in ps)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def domain_of(data: Mapping[str, Any], layer: int | None = None) -> dict[str, Any]:
    """The setting of an audit, from the content of its result.json; None where it does not say."""
    settings, reference = data.get("settings", {}), data.get("reference", {})
    digests = data.get("provenance", {}).get("data_digests", {})
    known = {
        "reference": reference.get("name"),
        "layers": reference.get("layers"),
        "dim": reference.get("dim"),
        "layer": data.get("layer") if layer is None else layer,
        "anchors_digest": digests.get("anchors"),
        "attributes_digest": digests.get("attributes"),
    }
    return {key: known[key] if key in known else settings.get(key) for key in DOMAIN}


def fit_calibrator(
    x: Array,
    positive: Any,
    runs: Sequence[Any],
    groups: Sequence[Any],
    method: Literal["logistic", "isotonic"] = "logistic",
    rate: float = 0.05,
    directed: bool = True,
    domain: Mapping[str, Any] | None = None,
    **fitted_on: Any,
) -> Calibrator | Figure:
    """Fit P(more biased | ΔB), and check it on runs that were left out.

    Parameters
    ----------
    x, positive : shifts (n,) and labels (n,)
    runs : the independent fine-tune pair of each observation. Merges of one pair belong to one run: to leave out one
        merge and keep the others leaks what it is to be checked on
    groups : of each observation; a (run, group) pair counts as one independent label
    method : "logistic", or "isotonic" from 1,000 independent labels on
    rate : wanted share of false alarms, for ``alarm``
    domain : the setting, see `domain_of`
    fitted_on : what else to record

    Returns
    -------
    Calibrator, or a Figure of None with the reason where there is nothing to fit
    """
    labels = np.asarray(positive, dtype=bool)
    if method not in _FITS:
        raise unknown("calibration method", method, _FITS)
    independent = len(set(zip(map(str, runs), map(str, groups), strict=True)))
    if method == "isotonic" and independent < FEWEST_FOR_ISOTONIC:
        raise UsageError(
            f"An isotonic curve needs {FEWEST_FOR_ISOTONIC:,} independent labels (runs x groups): there are "
            f"{independent:,}. Use the logistic one."
        )
    reason = _why_no_fit(x, labels)
    if reason:
        return Figure(None, reason)
    curve = _FITS[method](x, labels, directed)
    counts = {
        "n_observations": len(x),
        "n_positive": int(labels.sum()),
        "n_runs": len(set(map(str, runs))),
        "n_independent": independent,
    }
    checked = leave_one_run_out(x, labels, runs, method, directed)[1]
    alarm = alarm_threshold(x, labels, runs, rate, -1 if directed else 1)
    return Calibrator(method, curve, dict(domain or {}), {**counts, **fitted_on}, checked, alarm)


def _why_no_fit(x: Array, labels: Any) -> str | None:
    if not labels.any() or labels.all():
        return f"a probability needs both classes: {int(labels.sum())} of {len(labels)} observations are more biased"
    if np.ptp(x) <= 1e-12 * np.abs(x).max():
        return "all shifts are equal"
    return None


def _fit_logistic(x: Array, labels: Any, directed: bool) -> dict[str, Any]:
    """Log-odds in ΔB, with a weak ridge on the standardised slope: finite also where the classes are apart."""
    from sklearn.linear_model import LogisticRegression

    centre, scale = float(x.mean()), float(x.std())
    model = LogisticRegression(C=1.0).fit((x[:, None] - centre) / scale, labels)
    slope = float(model.coef_[0, 0]) / scale
    return {"intercept": float(model.intercept_[0]) - slope * centre, "slope": slope}


def _fit_isotonic(x: Array, labels: Any, directed: bool) -> dict[str, Any]:
    from sklearn.isotonic import IsotonicRegression

    model = IsotonicRegression(y_min=0.0, y_max=1.0, increasing=not directed, out_of_bounds="clip").fit(x, labels)
    return {"delta_b": model.X_thresholds_.tolist(), "probability": model.y_thresholds_.tolist()}


_FITS = {"logistic": _fit_logistic, "isotonic": _fit_isotonic}


def leave_one_run_out(
    x: Array, positive: Any, runs: Sequence[Any], method: str = "logistic", directed: bool = True
) -> tuple[Array | None, dict[str, Any]]:
    """Probabilities (n,) from the other runs alone, and their Brier score against the other runs' base rate.

    ``brier_skill`` = 1 − Brier / Brier of the base rate: 0 where ΔB adds nothing, below 0 where it misleads.
    """
    labels, names = np.asarray(positive, dtype=bool), np.array([str(run) for run in runs])
    kinds = np.unique(names)
    if len(kinds) < 2:
        why = (
            f"leaving one run out needs at least two independent runs: there is {len(kinds)}. To leave out one merge "
            "of a run would leak"
        )
        return None, {"brier": None, "brier_base_rate": None, "brier_skill": None, "reason": why}
    chance, base = np.empty(len(x)), np.empty(len(x))
    for run in kinds:
        out, rest = names == run, names != run
        base[out] = labels[rest].mean()
        if _why_no_fit(x[rest], labels[rest]):
            chance[out] = base[out]
        else:
            made = Calibrator(method, _FITS[method](x[rest], labels[rest], directed), {}, {}, {}, {})
            chance[out] = made.probability(x[out])
    brier, reference = (float(np.square(p - labels).mean()) for p in (chance, base))
    skill = 1 - brier / reference if reference > 0 else None
    found: dict[str, Any] = {"brier": brier, "brier_base_rate": reference, "brier_skill": skill}
    if skill is None:
        found["reason"] = "the base rate of the other runs is right everywhere: nothing is left to win"
    return chance, found


def reliability(chance: Array, positive: Any, bins: int = BINS) -> list[dict[str, Any]]:
    """Observed share of "more biased" beside the mean probability, in bins of about equal numbers; a row a bin."""
    labels = np.asarray(positive, dtype=bool)
    edges = np.unique(np.quantile(chance, np.linspace(0, 1, bins + 1)))
    where = np.clip(np.searchsorted(edges, chance, side="right") - 1, 0, max(len(edges) - 2, 0))
    rows = []
    for b in np.unique(where):
        inside = where == b
        rows.append(
            {
                "low": float(chance[inside].min()),
                "high": float(chance[inside].max()),
                "n": int(inside.sum()),
                "predicted": float(chance[inside].mean()),
                "observed": float(labels[inside].mean()),
            }
        )
    return rows


def conformal_threshold(harmless: Any, rate: float) -> Figure:
    """Score that at most ``rate`` of further harmless ones exceed, from the scores (n,) of harmless ones.

    The ⌈(n + 1)(1 − rate)⌉-th smallest (Vovk et al. 2005): valid where old and new ones are exchangeable, as
    independent runs are and merges of one run are not. A rate of 5 % needs 19 of them.
    """
    if not 0 < rate < 1:
        raise UsageError(f"A false-alarm rate lies between 0 and 1: got {rate}.")
    scores = np.sort(np.asarray(harmless, dtype=float))
    n = len(scores)
    rank = math.ceil((n + 1) * (1 - rate) - 1e-9)
    if rank > n:
        least = math.ceil(1 / rate - 1 - 1e-9)
        return Figure(None, f"a false-alarm rate of {rate:g} needs at least {least} harmless ones: there are {n}")
    return Figure(float(scores[rank - 1]))


def alarm_threshold(
    x: Array, positive: Any, runs: Sequence[Any], rate: float = 0.05, alarm: int = -1
) -> dict[str, Any]:
    """Shift at which to raise the alarm for a wanted false-alarm rate, and the rates it had on runs left out.

    ``delta_b``: raise the alarm below it (above it for a drift). ``n_harmless`` observations of ``n_runs`` runs lie
    behind it; the rate is guaranteed only as far as these are exchangeable. ``false_alarm_rate`` and
    ``detection_rate`` use thresholds from the other runs alone.
    """
    labels, names = np.asarray(positive, dtype=bool), np.array([str(run) for run in runs])
    score = alarm * x
    limit = conformal_threshold(score[~labels], rate)
    found: dict[str, Any] = {
        "rate": rate,
        "delta_b": None if limit.value is None else alarm * limit.value,
        "n_harmless": int((~labels).sum()),
        "n_runs": len(np.unique(names[~labels])),
        "false_alarm_rate": None,
        "detection_rate": None,
    }
    if limit.value is None:
        return found | {"reason": limit.reason}
    raised = np.full(len(x), np.nan)
    for run in np.unique(names):
        limit = conformal_threshold(score[(names != run) & ~labels], rate)
        if limit.value is not None:
            raised[names == run] = score[names == run] > limit.value
    judged = np.isfinite(raised)
    if not judged.any():
        return found | {"reason": "too few harmless observations are left where one run is taken out"}
    for name, which in (("false_alarm_rate", judged & ~labels), ("detection_rate", judged & labels)):
        found[name] = float(raised[which].mean()) if which.any() else None
    return found

"""Metrics of one space that are means of an association over targets and attributes: ΔB and SEAT."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from refbias import linalg
from refbias.errors import RefbiasError, UsageError, unknown
from refbias.stimuli.packaged import table
from refbias.types import Array, Space, as_matrix


@dataclass(frozen=True)
class Association:
    """B = mean over targets of (mean over positive − mean over negative) of ``function``, for each group.

    ``function`` takes rows (n, d) and (m, d) and returns their associations (n, m). A metric of this form has its
    uncertainty over both kinds of sentences for nothing: see `refbias.statistics.CrossedBootstrap`.

    With ``contrast`` each figure is a weighted sum of the groups' B, {figure: {group: weight}} for the groups given.
    ``controls`` are the targets that serve the comparison and are not scored themselves; ``note`` says in words what
    the figures are. ``scaled`` takes a group's associations (n, p + q) and p, and returns those whose mean difference
    is the group's B in the unit of its own spread.
    """

    name: str
    function: Callable[[Any, Any], Array]
    contrast: Callable[[Sequence[str]], Mapping[str, Mapping[str, float]]] | None = None
    controls: tuple[str, ...] = ()
    note: str = ""
    scaled: Callable[[Array, int], Array] | None = None

    def contrasts(self, groups: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """The weights of each figure; a group's own B without ``contrast``."""
        return self.contrast(groups) if self.contrast else {group: {group: 1.0} for group in groups}

    def matrices(self, space: Space) -> dict[str, Array]:
        """Associations (n, p + q) of each group's targets with the positive, then the negative attributes."""
        sizes = np.cumsum([len(rows) for rows in space.targets.values()])[:-1]
        stacked = np.vstack(list(space.targets.values()))
        every = self.function(stacked, np.vstack([space.positive, space.negative]))
        own = dict(zip(space.targets, np.split(every, sizes), strict=True))
        scaled, p = self.scaled, len(space.positive)
        return own if scaled is None else {group: scaled(rows, p) for group, rows in own.items()}

    def scores(self, matrices: Mapping[str, Array], n_positive: int) -> dict[str, float]:
        """B of each figure from the associations, the first ``n_positive`` columns of which are positive."""
        own = {g: linalg.bias_score(m[:, :n_positive], m[:, n_positive:]) for g, m in matrices.items()}
        if self.contrast is None:
            return own
        return {figure: sum(w * own[g] for g, w in sums.items()) for figure, sums in self.contrasts(list(own)).items()}

    def __call__(self, space: Space) -> dict[str, float]:
        return self.scores(self.matrices(space), len(space.positive))


def delta_b(*, scale: Literal["none", "sqrt_m", "spread"] = "none") -> Association:
    """Negated mean Euclidean distance to positive minus to negative attributes (arXiv 2609.10060).

    ``scale`` says in which unit: ``none`` as published; ``sqrt_m`` over the square root of the number of coordinates
    (of anchors, in relative representations), comparable between anchor sets of different sizes; ``spread`` over the
    spread of the model's own distances for that group, an effect size that no common stretching of a space changes.
    """
    if scale not in SCALES:
        raise unknown("scale", scale, SCALES)
    function, scaled = SCALES[scale]
    return Association("delta_b", function, scaled=scaled)


# scale -> (association, what a group's associations are turned into)
SCALES: dict[str, tuple[Callable[[Any, Any], Array], Callable[[Array, int], Array] | None]] = {
    "none": (linalg.distance_association, None),
    "sqrt_m": (linalg.rms_distance_association, None),
    "spread": (linalg.distance_association, linalg.effect_size_associations),
}


def delta_b_contrast() -> Association:
    """ΔB of a group minus its mean over all groups: blind, by construction, to a shift that all groups share."""
    note = (
        "group - mean over groups: cannot see a shift that is common to all groups, and says nothing about it; "
        "the figures sum to 0"
    )
    return Association("delta_b_contrast", linalg.distance_association, against_the_mean, note=note)


def delta_b_did(*, controls: list[str] | None = None) -> Association:
    """ΔB of a group minus the mean ΔB of control targets, people named by nothing social (gardeners, tea drinkers).

    ``controls`` names the control targets among the targets of the space; None takes the 24 of ``targets=control``,
    which an audit adds by itself. A difference in differences: it assumes that an unbiased fine-tune would have moved
    groups and controls alike, which `refbias.comparison.Comparison.placebo` tests on the controls alone.
    """
    names = tuple(row["control"] for row in table("controls.csv")) if controls is None else tuple(controls)
    if len(set(names)) < max(2, len(names)):
        raise UsageError(f"metric.controls needs at least two different names: got {', '.join(names) or 'none'}.")

    def against_controls(groups: Sequence[str]) -> dict[str, dict[str, float]]:
        missing = [name for name in names if name not in groups]
        if missing:
            raise RefbiasError(
                f"metric=delta_b_did compares with control targets, and the space has no {missing[0]!r}"
                f"{f' (nor {len(missing) - 1} more)' if len(missing) > 1 else ''}. Add their sentences to the targets "
                "(refbias.load_stimuli('control')), or name others with metric.controls=[…]."
            )
        weight = -1.0 / len(names)
        scored = {g: {g: 1.0, **dict.fromkeys(names, weight)} for g in groups if g not in names}
        if not scored:
            raise UsageError("metric=delta_b_did: every target is a control target, so nothing is left to score.")
        return scored

    note = f"group - mean over {len(names)} control targets, which name no social group"
    return Association("delta_b_did", linalg.distance_association, against_controls, names, note)


def against_the_mean(groups: Sequence[str]) -> dict[str, dict[str, float]]:
    """Weights of each group minus the mean over ``groups``."""
    if len(groups) < 2:
        raise UsageError(f"A contrast with the mean over groups needs at least two groups: got {', '.join(groups)}.")
    share = 1.0 / len(groups)
    return {g: {h: (1.0 if h == g else 0.0) - share for h in groups} for g in groups}


def seat() -> Association:
    """Mean cosine with positive minus with negative attributes (SEAT, May et al. 2019)."""
    return Association("seat", linalg.cosine_association)


def projection() -> Association:
    """Mean inner product with positive minus with negative attributes, in the units of the geometry."""
    return Association("projection", lambda X, Y: as_matrix(X, "X") @ as_matrix(Y, "Y").T)

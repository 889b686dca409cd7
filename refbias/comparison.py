"""One setting (calibration, geometry, metric) and one reference: compares any number of audited spaces to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refbias.calibration import Center, calibrate
from refbias.errors import RefbiasError, UsageError
from refbias.metrics.association import Association
from refbias.registry import Choice, arity, registry
from refbias.statistics import CrossedBootstrap, Estimate, Scores, jackknife_estimates, left_out
from refbias.types import Shifts, Space


def choose(
    geometry: Any = "relative", metric: Any = None, calibration: Any = "none", seed: int = 0
) -> tuple[Choice, Choice, Choice]:
    """Geometry, metric and calibration as built parts. Refuses a combination that has no meaning."""
    parts = registry()
    chosen = parts.resolve("geometry", geometry, seed)
    if metric is None:
        metric = chosen.traits.get("metric")
        if metric is None:
            raise UsageError(f"geometry={chosen.name} names no metric of its own: choose one with metric=….")
    scorer = parts.resolve("metric", metric, seed)
    if chosen.traits.get("pairs_only") and arity(scorer.object) == 1:
        pairs = [n for n, p in parts.parts("metric").items() if len(p.inputs) == 2]
        raise UsageError(
            f"metric={scorer.name} scores one space, and geometry={chosen.name} leaves the two spaces incomparable. "
            f"Use geometry=relative with it, or one of the metrics of two spaces: {', '.join(sorted(pairs))}."
        )
    wanted = scorer.traits.get("geometries")
    if wanted and chosen.name not in wanted:
        raise UsageError(f"metric={scorer.name} has a meaning with geometry={' or '.join(wanted)}: got {chosen.name}.")
    return chosen, scorer, parts.resolve("calibration", calibration, seed)


class Comparison:
    """Compares audited spaces with ``reference``; everything that depends on the reference alone is done once.

    Parameters
    ----------
    reference : the reference model's space
    geometry, metric, calibration : names, (name, {options}), built choices, or objects of one's own
    """

    def __init__(
        self, reference: Space, geometry: Any = "relative", metric: Any = None, calibration: Any = "none"
    ) -> None:
        self.geometry, self.metric, self.calibration = choose(geometry, metric, calibration)
        self.directed = arity(self.metric.object) == 1
        self._own = arity(self.geometry.object) == 1
        self._given = reference
        self._reference = self._prepare(reference)
        self._measured: dict[str, Any] = {}

    def _prepare(self, space: Space) -> Space:
        if self.geometry.traits.get("needs_anchors"):
            space.require_anchors(f"geometry={self.geometry.name}")
        space = calibrate(space, self.calibration.object)
        return self.geometry.object(space) if self._own else space

    def _pair(self, audited: Space) -> tuple[Space, Space]:
        self._given.check_paired(audited)
        if self.geometry.traits.get("same_width") and audited.dim != self._given.dim:
            raise RefbiasError(
                f"geometry={self.geometry.name} needs two models of one width: the reference has {self._given.dim} "
                f"dimensions, the audited model {audited.dim}. Use geometry=relative or geometry=cka."
            )
        prepared = self._prepare(audited)
        return (self._reference, prepared) if self._own else self.geometry.object(self._reference, prepared)

    def _of_reference(self, what: str, measure: Callable[[Space], Any], reference: Space) -> Any:
        """``measure(reference)``, remembered where the reference is the same for every audited space."""
        if reference is not self._reference:
            return measure(reference)
        if what not in self._measured:
            self._measured[what] = measure(reference)
        return self._measured[what]

    def shifts(self, audited: Space) -> Shifts:
        """Shift of each group, with both scores."""
        return self._shifts(*self._pair(audited))

    def _shifts(self, reference: Space, audited: Space) -> Shifts:
        metric = self.metric.object
        if not self.directed:
            return Shifts(metric(reference, audited), {}, {})
        if isinstance(metric, Association):
            matrices = self._of_reference("matrices", metric.matrices, reference)
            ours = metric.scores(matrices, len(reference.positive))
        else:
            ours = self._of_reference("scores", metric, reference)
        theirs = metric(audited)
        return Shifts({group: theirs[group] - ours[group] for group in self._given.groups}, ours, theirs)

    def estimates(
        self, audited: Space, bootstrap: CrossedBootstrap
    ) -> tuple[Shifts, dict[str, Estimate], Estimate | None]:
        """Shift of each group, its estimate, and the estimate of the mean over groups (None for other metrics)."""
        reference, mapped = self._pair(audited)
        metric = self.metric.object
        if isinstance(metric, Association):
            ours, theirs = self._of_reference("matrices", metric.matrices, reference), metric.matrices(mapped)
            scores = [metric.scores(matrices, len(reference.positive)) for matrices in (ours, theirs)]
            shifts = Shifts({g: scores[1][g] - scores[0][g] for g in self._given.groups}, *scores)
            return shifts, *bootstrap.estimates({g: theirs[g] - ours[g] for g in shifts}, shifts)
        shifts = self._shifts(reference, mapped)
        try:
            without = self._left_out(reference, mapped)
        except RefbiasError as error:  # a metric that needs more sentences than a block leaves
            why = f"too few sentences for an interval: {error}"
            return shifts, {group: Estimate(shifts[group], None, None, None, why) for group in shifts}, None
        return shifts, jackknife_estimates(shifts, without, self.directed), None

    def _left_out(self, reference: Space, audited: Space) -> list[list[Scores]]:
        """Shifts without a block of sentences, for the jackknife."""
        metric = self.metric.object
        if not self.directed:
            return left_out(metric, reference, audited)
        before = self._of_reference("left out", lambda space: left_out(metric, space), reference)
        after = left_out(metric, audited)
        return [
            [{group: new[group] - old[group] for group in new} for old, new in zip(olds, news, strict=True)]
            for olds, news in zip(before, after, strict=True)
        ]


def compare_spaces(
    reference_space: Space,
    audited_space: Space,
    geometry: Any = "relative",
    metric: Any = None,
    calibration: Any = "none",
) -> Shifts:
    """Shift of each group, audited − reference: ΔB by default.

    Parameters
    ----------
    reference_space, audited_space : spaces of the same sentences; widths may differ where the geometry allows it
    geometry, metric, calibration : a name, (name, {options}), or an object; metric None follows the geometry

    Returns
    -------
    Shifts, a mapping of group to float with ``.reference`` and ``.audited``

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> space = Space({"Women": rng.normal(size=(5, 8))}, rng.normal(size=(6, 8)), rng.normal(size=(7, 8)),
    ...               anchors=rng.normal(size=(9, 8)))
    >>> compare_spaces(space, space)["Women"]
    0.0
    """
    return Comparison(reference_space, geometry, metric, calibration).shifts(audited_space)


def second_calibration(calibration: Choice) -> str:
    """What the second opinion uses: centring, or none where centring is the choice itself."""
    return "none" if isinstance(calibration.object, Center) else "center"

"""One setting (calibration, geometry, metric) and one reference: compares any number of audited spaces to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refbias.calibration import Center, calibrate
from refbias.errors import RefbiasError, UsageError
from refbias.metrics.association import Association
from refbias.registry import Choice, arity, registry
from refbias.statistics import CrossedBootstrap, Estimate, Scores, jackknife_estimates, left_out
from refbias.types import Array, Shifts, Space

Matrices = dict[str, Array]


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
    calibrator = parts.resolve("calibration", calibration, seed)
    known = chosen.traits.get("calibrations")
    if known and calibrator.name not in known:
        raise UsageError(
            f"geometry={chosen.name} keeps the model's own coordinates: use calibration={' or '.join(known)}, "
            f"got {calibrator.name}."
        )
    return chosen, scorer, calibrator


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

    def _pair(self, audited: Space, directions: Array | None = None) -> tuple[Space, Space]:
        self._given.check_paired(audited)
        if self.geometry.traits.get("same_width") and audited.dim != self._given.dim:
            raise RefbiasError(
                f"geometry={self.geometry.name} needs two models of one width: the reference has {self._given.dim} "
                f"dimensions, the audited model {audited.dim}. Use geometry=relative or geometry=cka."
            )
        prepared = self._prepare(audited)
        if self.geometry.traits.get("needs_adapter"):
            if directions is None:
                raise UsageError(
                    f"geometry={self.geometry.name} needs the directions that the audited model's adapter writes. "
                    f"Use it in an audit of an adapter, or give directions=…."
                )
            found: tuple[Space, Space] = self.geometry.object(self._reference, prepared, directions)
            return found
        return (self._reference, prepared) if self._own else self.geometry.object(self._reference, prepared)

    def _of_reference(self, what: str, measure: Callable[[Space], Any], reference: Space) -> Any:
        """``measure(reference)``, remembered where the reference is the same for every audited space."""
        if reference is not self._reference:
            return measure(reference)
        if what not in self._measured:
            self._measured[what] = measure(reference)
        return self._measured[what]

    def shifts(self, audited: Space, directions: Array | None = None) -> Shifts:
        """Shift of each group, with both scores; ``directions`` for geometries that need the audited adapter's."""
        return self._shifts(*self._pair(audited, directions))

    def _shifts(self, reference: Space, audited: Space) -> Shifts:
        metric = self.metric.object
        if not self.directed:
            return Shifts(metric(reference, audited), {}, {})
        if isinstance(metric, Association):
            matrices = self._of_reference("matrices", metric.matrices, reference)
            ours = metric.scores(matrices, len(reference.positive))
            theirs = metric(audited)
            return Shifts({group: theirs[group] - ours[group] for group in ours}, ours, theirs)
        ours, theirs = self._of_reference("scores", metric, reference), metric(audited)
        return Shifts({group: theirs[group] - ours[group] for group in self._given.groups}, ours, theirs)

    def estimates(
        self, audited: Space, bootstrap: CrossedBootstrap, directions: Array | None = None
    ) -> tuple[Shifts, dict[str, Estimate], Estimate | None]:
        """Shift of each group, its estimate, and that of the mean over groups.

        No estimate of the mean for metrics of another form, nor where the mean is 0 by construction.
        """
        reference, mapped = self._pair(audited, directions)
        metric = self.metric.object
        if isinstance(metric, Association):
            ours, theirs = self._matrices(reference, mapped, metric)
            scores = [metric.scores(matrices, len(reference.positive)) for matrices in (ours, theirs)]
            contrasts = metric.contrasts(self._given.groups)
            shifts = Shifts({g: scores[1][g] - scores[0][g] for g in contrasts}, *scores)
            differences = {g: theirs[g] - ours[g] for g in self._given.groups}
            return shifts, *bootstrap.estimates(differences, shifts, contrasts)
        shifts = self._shifts(reference, mapped)
        try:
            without = self._left_out(reference, mapped)
        except RefbiasError as error:  # a metric that needs more sentences than a block leaves
            why = f"too few sentences for an interval: {error}"
            return shifts, {group: Estimate(shifts[group], None, None, None, why) for group in shifts}, None
        return shifts, jackknife_estimates(shifts, without, self.directed), None

    def differences(self, audited: Space, directions: Array | None = None) -> dict[str, Array]:
        """Association differences (n, p + q) of each group, audited − reference, positive attributes first.

        Their mean over the positive minus that over the negative columns is the group's shift. UsageError for metrics
        that are no mean of associations.
        """
        metric = self.metric.object
        if not isinstance(metric, Association):
            raise UsageError(f"metric={self.metric.name} is no mean of associations: it has no table of differences.")
        ours, theirs = self._matrices(*self._pair(audited, directions), metric)
        return {group: theirs[group] - ours[group] for group in self._given.groups}

    def _matrices(self, reference: Space, audited: Space, metric: Association) -> tuple[Matrices, Matrices]:
        return self._of_reference("matrices", metric.matrices, reference), metric.matrices(audited)

    def placebo(
        self, audited: Space, bootstrap: CrossedBootstrap, directions: Array | None = None
    ) -> tuple[Estimate, dict[str, Estimate]] | None:
        """The control targets held against each other, where the shift is known to be none; None without controls.

        The first estimate is the mean shift of every other control minus that of the rest, in the order given; then
        the shift of each control minus the mean of the others, scored as a group is. What is below zero beyond doubt
        there is what a noun alone can do.
        """
        metric = self.metric.object
        controls = metric.controls if isinstance(metric, Association) else ()
        if len(controls) < 2:
            return None
        reference, mapped = self._pair(audited, directions)
        ours, theirs = self._matrices(reference, mapped, metric)
        differences = {g: theirs[g] - ours[g] for g in controls}
        p = len(reference.positive)
        own = {g: float(d[:, :p].mean() - d[:, p:].mean()) for g, d in differences.items()}
        halves = (controls[::2], controls[1::2])
        others = -1.0 / (len(controls) - 1)
        against = {c: dict.fromkeys(controls, others) | {c: 1.0} for c in controls}
        split = {c: sign / len(half) for half, sign in zip(halves, (1.0, -1.0), strict=True) for c in half}

        def judged(contrasts: dict[str, dict[str, float]]) -> dict[str, Estimate]:
            values = {name: sum(w * own[g] for g, w in sums.items()) for name, sums in contrasts.items()}
            return bootstrap.estimates(differences, values, contrasts)[0]

        return judged({"halves": split})["halves"], judged(against)

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
    directions: Array | None = None,
) -> Shifts:
    """Shift of each group, audited − reference: ΔB by default.

    Parameters
    ----------
    reference_space, audited_space : spaces of the same sentences; widths may differ where the geometry allows it
    geometry, metric, calibration : a name, (name, {options}), or an object; metric None follows the geometry
    directions : for geometry="adapter": orthonormal rows (n, d), as `refbias.adapters.output_directions` gives them

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
    return Comparison(reference_space, geometry, metric, calibration).shifts(audited_space, directions)


def second_calibration(calibration: Choice) -> str:
    """What the second opinion uses: centring, or none where centring is the choice itself."""
    return "none" if isinstance(calibration.object, Center) else "center"

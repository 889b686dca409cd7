"""Metrics of one space that are means of an association over targets and attributes: ΔB and SEAT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from refbias import linalg
from refbias.types import Array, Space


@dataclass(frozen=True)
class Association:
    """B = mean over targets of (mean over positive − mean over negative) of ``function``, for each group.

    ``function`` takes rows (n, d) and (m, d) and returns their associations (n, m). A metric of this form has its
    uncertainty over both kinds of sentences for nothing: see `refbias.statistics.crossed_bootstrap`.
    """

    name: str
    function: Callable[[Any, Any], Array]

    def matrices(self, space: Space) -> dict[str, Array]:
        """Associations (n, p + q) of each group's targets with the positive, then the negative attributes."""
        sizes = np.cumsum([len(rows) for rows in space.targets.values()])[:-1]
        stacked = np.vstack(list(space.targets.values()))
        every = self.function(stacked, np.vstack([space.positive, space.negative]))
        return dict(zip(space.targets, np.split(every, sizes), strict=True))

    def scores(self, matrices: Mapping[str, Array], n_positive: int) -> dict[str, float]:
        """B of each group from its associations, the first ``n_positive`` columns of which are positive."""
        return {g: linalg.bias_score(m[:, :n_positive], m[:, n_positive:]) for g, m in matrices.items()}

    def __call__(self, space: Space) -> dict[str, float]:
        return self.scores(self.matrices(space), len(space.positive))


def delta_b() -> Association:
    """Negated mean Euclidean distance to positive minus to negative attributes (arXiv 2609.10060)."""
    return Association("delta_b", linalg.distance_association)


def seat() -> Association:
    """Mean cosine with positive minus with negative attributes (SEAT, May et al. 2019)."""
    return Association("seat", linalg.cosine_association)

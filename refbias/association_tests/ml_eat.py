"""ML-EAT: one association test at three levels (Wolfe, Hiniker and Howe 2024, arXiv 2408.01966)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from refbias import linalg
from refbias.association_tests.permutation import Alternative, Method, Ties
from refbias.association_tests.weat import AssociationTest, rows, sc_weat, unusable, weat

Block = tuple[str, str]  # target set, attribute set

# Which attribute set the targets X and Y lean to ("A", "B" or neither, "–"): nine outcomes in four families.
PATTERNS: dict[Block, str] = {
    ("A", "B"): "opposed",
    ("B", "A"): "opposed",
    ("A", "A"): "shared",
    ("B", "B"): "shared",
    ("A", "–"): "one-sided",
    ("B", "–"): "one-sided",
    ("–", "A"): "one-sided",
    ("–", "B"): "one-sided",
    ("–", "–"): "none",
}


@dataclass(frozen=True)
class Cosines:
    """Mean and standard deviation (ddof = 1) of the cosines of one target set with one attribute set."""

    mean: float
    sd: float | None


@dataclass(frozen=True)
class MultilevelTest:
    """``level_1`` is WEAT, ``level_2`` each target set against both attribute sets, ``level_3`` the four blocks.

    ``leans`` says to which attribute set X and Y lean, ``pattern`` is the family of that pair.
    """

    level_1: AssociationTest
    level_2: dict[str, AssociationTest]
    level_3: dict[Block, Cosines]
    leans: Block | None
    pattern: str | None
    reason: str | None = None

    def map(self) -> list[dict[str, Any]]:
        """The four quadrants of the map, one row each: target, attribute, mean and SD of the cosines, lean, d.

        ``d`` is level 2 of the row's target, with its sign turned for attribute set B: above 0 means towards the
        row's attribute set.
        """
        found = []
        for (target, attribute), block in self.level_3.items():
            d = self.level_2[target].effect_size
            lean = self.leans[target == "Y"] if self.leans else None
            found.append(
                {
                    "target": target,
                    "attribute": attribute,
                    "mean": block.mean,
                    "sd": block.sd,
                    "d": d if d is None or attribute == "A" else -d,
                    "leans": None if lean is None else lean == attribute,
                }
            )
        return found


def ml_eat(
    X: Any,
    Y: Any,
    A: Any,
    B: Any,
    *,
    threshold: float = 0.2,
    ddof: int = 1,
    alternative: Alternative = "greater",
    ties: Ties = "inclusive",
    permutations: int = 100_000,
    seed: int = 0,
    method: Method = "auto",
) -> MultilevelTest:
    """Multilevel test of targets ``X`` (n, d), ``Y`` (m, d) with attributes ``A``, ``B``.

    Parameters
    ----------
    threshold : a target set leans to A where its level-2 d is at least this, to B where it is at most the negative;
        0.2 is Cohen's small effect
    ddof, alternative, ties, permutations, seed, method : as in `weat`, for levels 1 and 2

    Notes
    -----
    One effect size at level 1 can come from nine situations, by the direction of each target set at level 2. The
    words for their families are ours: "opposed" (X to one set, Y to the other, which level 1 suggests), "shared"
    (both to the same), "one-sided" (one of them to neither) and "none". The authors' code takes p from a normal
    approximation over random permutations, and the smaller tail; here it is that of `weat`.
    """
    options: dict[str, Any] = {
        "ddof": ddof,
        "alternative": alternative,
        "ties": ties,
        "permutations": permutations,
        "seed": seed,
        "method": method,
    }
    targets, attributes = {"X": rows(X, "X"), "Y": rows(Y, "Y")}, {"A": rows(A, "A"), "B": rows(B, "B")}
    reason = unusable(targets, {}) or unusable(attributes, {})  # level 2 needs two attribute words as well
    if reason:
        none = AssociationTest.without(reason)
        return MultilevelTest(none, {"X": none, "Y": none}, {}, None, None, reason)
    level_1 = weat(*targets.values(), *attributes.values(), **options)
    level_2 = {name: sc_weat(W, *attributes.values(), **options) for name, W in targets.items()}
    level_3 = {}
    for name, W in targets.items():
        for other, words in attributes.items():
            cosines = linalg.cosine(W, words)
            level_3[name, other] = Cosines(float(cosines.mean()), float(cosines.std(ddof=1)))
    leans = tuple(_lean(level_2[name].effect_size, threshold) for name in "XY")
    pair = None if None in leans else (str(leans[0]), str(leans[1]))
    return MultilevelTest(level_1, level_2, level_3, pair, PATTERNS[pair] if pair else None, level_1.reason)


def _lean(d: float | None, threshold: float) -> str | None:
    if d is None:
        return None
    return "A" if d >= threshold else "B" if d <= -threshold else "–"

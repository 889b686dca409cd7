"""Association tests as pure functions of arrays: WEAT and its relatives, their p-values and intervals.

`weat`, `sc_weat`, `seat`, `ceat` and `ml_eat` are tests; `rnd`, `ect`, `rnsb` and `same` further scores; `interval`,
`paired_change` and `status` say how sure an effect size and its change are.
"""

from __future__ import annotations

from refbias.association_tests.ceat import ceat, random_effects
from refbias.association_tests.further import ect, rnd, rnsb, same
from refbias.association_tests.intervals import interval, paired_change, status
from refbias.association_tests.ml_eat import ml_eat
from refbias.association_tests.permutation import partition_test
from refbias.association_tests.seat import seat
from refbias.association_tests.weat import (
    AssociationTest,
    association_scores,
    effect_size,
    sc_weat,
    score_test,
    weat,
)

__all__ = [
    "AssociationTest",
    "association_scores",
    "ceat",
    "ect",
    "effect_size",
    "interval",
    "ml_eat",
    "paired_change",
    "partition_test",
    "random_effects",
    "rnd",
    "rnsb",
    "same",
    "sc_weat",
    "score_test",
    "seat",
    "status",
    "weat",
]

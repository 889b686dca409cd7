"""The positive control on the real model, with a reduced budget: 80 of 240 steps."""

import pytest

from refbias.cache import Cache
from refbias.checkpoints import planted
from refbias.context import Context
from refbias.models import Model


@pytest.mark.slow
def test_held_out_wording_follows_what_each_half_was_taught(smollm2: Model, shared_cache: Cache) -> None:
    report = planted(smollm2, Context(shared_cache), steps=80, ratios=[0.0, 1.0]).report
    for end in report["learnt"]:
        assert end["held_out_auc"] > 0.9
        assert end["held_out_shift_taught_first"] - end["held_out_shift_taught_second"] > 0.3
        assert end["loss_last"] < 0.5 * end["loss_first"]

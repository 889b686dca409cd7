from collections import Counter

import numpy as np

from refbias.finetuning.batches import schedule


def test_every_epoch_takes_each_row_once() -> None:
    lengths = [5, 9, 7, 6, 5, 8, 9]
    plan = schedule(lengths, 2, np.random.default_rng(0))
    for _ in range(3):
        seen = Counter(index for _ in range(4) for index in next(plan))
        assert seen == Counter(range(7))

"""Means over fine-tune pairs: published examples, then statsmodels, then degenerate inputs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp
from statsmodels.stats.meta_analysis import combine_effects

from refbias.errors import RefbiasError
from refbias.statistics import Figure, mean_over_runs, meta_analysis, random_effects

# Molloy, O'Carroll and Ferguson (2014): conscientiousness and adherence, r and n of 16 studies
MOLLOY = (
    (0.187, 109), (0.162, 749), (0.340, 55), (0.320, 107), (0.270, 72), (0.000, 65), (0.175, 174), (0.050, 326),
    (0.260, 58), (0.010, 771), (-0.090, 56), (0.370, 91), (0.000, 116), (0.150, 537), (0.240, 158), (0.040, 65),
)  # fmt: skip

# Colditz et al. (1994): BCG vaccine, treated and control, cases and others
BCG = (
    (4, 119, 11, 128), (6, 300, 29, 274), (3, 228, 11, 209), (62, 13536, 248, 12619), (33, 5036, 47, 5761),
    (180, 1361, 372, 1079), (8, 2537, 10, 619), (505, 87886, 499, 87892), (29, 7470, 45, 7232), (17, 1699, 65, 1600),
    (186, 50448, 141, 27197), (5, 2493, 3, 2338), (27, 16886, 29, 17825),
)  # fmt: skip

# arXiv 2609.10060, Table 1: r of 18 settings, by benchmark, with the number of groups or topics behind each
TABLE_1 = {
    ("WildGuardMix", 9): (-0.67, -0.61, -0.68, -0.65, -0.37, -0.04),
    ("DecodingTrust", 24): (-0.82, -0.77, -0.84, -0.75, -0.34, -0.14),
    ("ToxiGen", 9): (-0.19, -0.43, -0.62, -0.50, -0.31, -0.25),
}


def test_correlations_as_metafor_publishes_them():
    found = meta_analysis(*zip(*MOLLOY, strict=True))
    z = random_effects(np.arctanh([r for r, _ in MOLLOY]), [1 / (n - 3) for _, n in MOLLOY])
    assert found.tau2 == pytest.approx(0.0081, abs=5e-5)
    assert found.i2 == pytest.approx(0.6173, abs=5e-5)
    assert (found.q, found.q_p) == (pytest.approx(38.1595, abs=5e-5), pytest.approx(0.0009, abs=5e-5))
    assert z.value == pytest.approx(0.1499, abs=5e-5) and found.value == pytest.approx(0.149, abs=5e-4)


def test_hartung_and_knapp_as_metafor_publishes_it():
    a, b, c, d = np.array(BCG, dtype=float).T
    effects = np.log((a / (a + b)) / (c / (c + d)))
    found = random_effects(effects, 1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))
    assert (found.value, found.ci_low, found.ci_high) == pytest.approx((-0.7145, -1.1084, -0.3206), abs=5e-5)
    assert (found.tau2, found.p_value) == pytest.approx((0.3132, 0.0019), abs=5e-5)
    assert (np.exp(found.prediction_low), np.exp(found.prediction_high)) == pytest.approx((0.14, 1.76), abs=5e-3)
    assert (found.i2, found.q) == pytest.approx((0.9222, 152.2330), abs=5e-5)


@pytest.mark.filterwarnings("ignore:.*use_t=True")
def test_equal_variances_agree_with_statsmodels():
    effects = np.random.default_rng(0).normal(0.3, 0.5, size=8)
    found = random_effects(effects, np.full(8, 0.04))
    peer = combine_effects(effects, np.full(8, 0.04), method_re="iterated", use_t=True)
    assert found.tau2 == pytest.approx(peer.tau2, rel=1e-4)  # equal variances: all estimators of τ² agree
    row = peer.summary_frame().loc["random effect wls"]
    assert (found.value, found.ci_low, found.ci_high) == pytest.approx((row["eff"], row["ci_low"], row["ci_upp"]))


def test_the_18_settings_of_the_paper():
    r = [value for values in TABLE_1.values() for value in values]
    n = [size for (_, size), values in TABLE_1.items() for _ in values]
    found = meta_analysis(r, n)
    assert (found.value, found.ci_low, found.ci_high) == pytest.approx((-0.575, -0.690, -0.433), abs=5e-4)
    as_if_independent = meta_analysis(r, [{9: 63, 24: 168}[size] for size in n])
    assert as_if_independent.i2 > 0.9 > found.i2  # merges counted as observations make chance look like difference


def test_the_six_fine_tune_pairs_behind_the_18_settings():
    z = np.arctanh(list(TABLE_1.values())).mean(axis=0)
    found = random_effects(z, [np.mean([1 / (size - 3) for _, size in TABLE_1])] * 6)
    ends = np.tanh([found.value, found.ci_low, found.ci_high])
    assert ends == pytest.approx((-0.542, -0.723, -0.290), abs=5e-4)


def test_no_difference_between_pairs_gives_no_variance_between_them():
    found = random_effects([0.1, 0.12, 0.11, 0.09], [0.2] * 4)
    assert found.tau2 == 0 and found.i2 == 0
    assert found.value == pytest.approx(0.105)


def test_large_effects_and_small_variances_are_found():
    effects = 100 * np.random.default_rng(1).normal(size=12)
    found = random_effects(effects, np.full(12, 1e-6))
    assert found.tau2 == pytest.approx(effects.var(ddof=1), rel=1e-6)


def test_what_has_no_mean_has_a_reason():
    assert meta_analysis([-0.5], [24]).reason.endswith("at least two of them: there are 1")
    assert meta_analysis([], []).value is None
    assert meta_analysis([0.1, 1.0], [24, 24]).reason == "a correlation of exactly 1 or −1 has no Fisher's z"
    assert meta_analysis([0.1, 0.2], [24, 3]).reason.startswith("Fisher's z has a variance from 4")
    equal = random_effects([0.2, 0.2], [0.1, 0.1])
    assert equal.value == pytest.approx(0.2) and equal.ci_low is None and equal.reason == "all effects are equal"
    with pytest.raises(RefbiasError, match="variances above 0"):
        random_effects([0.1, 0.2], [0.1, 0.0])
    with pytest.raises(RefbiasError, match="needs its variance"):
        random_effects([0.1, 0.2], [0.1])


def test_an_interval_of_an_auc_ends_where_an_auc_ends():
    figures = [Figure(0.9), Figure(1.0), Figure(0.98)]
    cut, whole = mean_over_runs(figures, (0.0, 1.0)), mean_over_runs(figures)
    assert cut.ci_high == 1.0 < whole.ci_high
    assert cut.ci_low == whole.ci_low


def test_a_plain_mean_over_runs_is_a_t_interval():
    values = [0.7, 0.8, 0.65, 0.9]
    found = mean_over_runs([Figure(v) for v in values] + [Figure(None, "one class")])
    peer = ttest_1samp(values, 0).confidence_interval()
    assert (found.ci_low, found.ci_high) == pytest.approx((peer.low, peer.high))
    assert mean_over_runs([Figure(None, "one class")]).reason == "one class"
    assert mean_over_runs([Figure(0.7)]).ci_low is None and mean_over_runs([]).value is None
    assert mean_over_runs([Figure(1.0), Figure(1.0)]).reason == "the figure is the same for every fine-tune pair"

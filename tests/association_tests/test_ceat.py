"""CEAT: random effects by hand and against an independent fit, the samples, the caveat."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from refbias.association_tests import association_scores, ceat, effect_size, random_effects, weat
from refbias.errors import RefbiasError, UsageError


def contexts(rng, words, each, shift=0.0, noise=0.4, dim=20):
    centre = rng.normal(size=(words, 1, dim))
    centre[..., 0] += shift
    return list(centre + noise * rng.normal(size=(words, each, dim)))


def attributes(rng, sign):
    return contexts(rng, 6, 5, shift=3 * sign)


def test_random_effects_by_hand():
    e, v = [0.2, 0.5, 1.1], [0.04, 0.01, 0.09]
    w = [25.0, 100.0, 100 / 9]
    total, weighted = sum(w), sum(a * b for a, b in zip(w, e, strict=True))
    q = sum(a * b * b for a, b in zip(w, e, strict=True)) - weighted**2 / total
    c = total - sum(a * a for a in w) / total
    tau2 = max(0.0, (q - 2) / c)
    star = [1 / (x + tau2) for x in v]
    found = random_effects(e, v)
    assert (found.q, found.c, found.tau2) == pytest.approx((q, c, tau2))
    assert found.ces == pytest.approx(sum(a * b for a, b in zip(star, e, strict=True)) / sum(star))
    assert found.se == pytest.approx(sum(star) ** -0.5)
    assert found.p_one_sided == pytest.approx(norm.sf(found.ces / found.se))
    assert found.p_two_sided == pytest.approx(2 * norm.sf(abs(found.ces / found.se)))


def test_without_heterogeneity_it_is_the_weighted_mean():
    found = random_effects([1.0, 1.0, 1.0], [0.1, 0.2, 0.4])
    assert (found.tau2, found.q) == pytest.approx((0, 0), abs=1e-12)
    assert (found.ces, found.se) == pytest.approx((1, (10 + 5 + 2.5) ** -0.5))
    single = random_effects([0.7], [0.04])
    assert (single.ces, single.se, single.tau2) == pytest.approx((0.7, 0.2, 0))


def test_random_effects_refuse_what_has_no_weight():
    with pytest.raises(RefbiasError, match="variances above 0"):
        random_effects([1.0, 2.0], [0.1, 0.0])
    with pytest.raises(RefbiasError, match=r"got \(2,\) and \(3,\)"):
        random_effects([1.0, 2.0], [0.1, 0.1, 0.1])


def test_one_context_a_word_is_weat_in_every_sample():
    rng = np.random.default_rng(0)
    sets = [contexts(rng, k, 1) for k in (6, 5, 4, 4)]
    found, plain = ceat(*sets, samples=7, draws=0), weat(*(np.concatenate(words) for words in sets))
    np.testing.assert_allclose(found.effects, plain.effect_size)
    assert found.combined.ces == pytest.approx(plain.effect_size)
    assert found.combined.tau2 == pytest.approx(0, abs=1e-12)


def test_both_variances():
    rng = np.random.default_rng(1)
    sets = [contexts(rng, 6, 1), contexts(rng, 5, 1), attributes(rng, 1)[:3], attributes(rng, -1)[:3]]
    sets[2:] = [[W[:1] for W in words] for words in sets[2:]]
    plain = [np.concatenate(words) for words in sets]
    x, y = association_scores(plain[0], *plain[2:]), association_scores(plain[1], *plain[2:])
    spread, d = np.concatenate([x, y]).var(ddof=1), effect_size(x, y)
    one = ceat(*sets, samples=1, draws=0).combined
    other = ceat(*sets, samples=1, draws=0, variance="effect").combined
    assert one.se**2 == pytest.approx(spread)
    assert other.se**2 == pytest.approx(11 / 30 + d**2 / 22)


def test_more_samples_shrink_se_but_not_the_interval():
    rng = np.random.default_rng(2)
    sets = [contexts(rng, 8, 10, 0.7), contexts(rng, 8, 10), attributes(rng, 1), attributes(rng, -1)]
    few, many = (ceat(*sets, samples=k, variance="effect", draws=300) for k in (50, 800))
    assert many.combined.se == pytest.approx(few.combined.se / 4, rel=0.25)
    assert many.ci_high - many.ci_low == pytest.approx(few.ci_high - few.ci_low, rel=0.25)
    assert many.ci_high - many.ci_low > 10 * many.combined.se
    assert few.ci_low < few.combined.ces < few.ci_high
    assert "no independent studies" in many.caveat
    assert ceat(*sets, samples=50, draws=300).combined == ceat(*sets, samples=50, draws=300).combined


def test_what_cannot_be_computed_is_none_with_the_reason():
    rng = np.random.default_rng(3)
    X, Y, A, B = (contexts(rng, 5, 2) for _ in range(4))
    assert ceat(X[:1], Y, A, B).reason == "too few words: X has 1, at least 2 needed"
    found = ceat(X[:3], Y, A, B, samples=20)
    assert found.ci_low is None and found.interval_reason.startswith("too few words for an interval: 3 and 5")
    assert math.isfinite(found.combined.ces)
    same = [np.ones((2, 20))] * 4
    assert ceat(same, same, A, B).reason == "the scores of all words are equal"
    with pytest.raises(UsageError, match="variance is one of scores, effect: got 'd'"):
        ceat(X, Y, A, B, variance="d")

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import LedoitWolf

import refbias.calibration as calibrations
from refbias import linalg
from refbias.calibration import ABTT, CALIBRATIONS, PCA, ZCA, Center, Identity, Saved, ZCACorr, calibrate, load
from refbias.errors import RefbiasError, UsageError
from refbias.registry import registry
from refbias.types import Space

FITTED = [Center, ABTT, ZCA, ZCACorr, PCA]
WHITENINGS = [ZCA, ZCACorr, PCA]


def sample(n: int = 60, d: int = 5, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 10


def blocks(X: np.ndarray, sizes: list[int]):
    for rows in np.split(X, np.cumsum(sizes)):
        if len(rows):
            yield rows


def test_center_and_identity():
    X = sample()
    np.testing.assert_allclose(Center().fit(X).transform(X), X - X.mean(0))
    np.testing.assert_array_equal(Identity().fit(X).transform(X), X)


# Whitening


def test_zca_is_the_published_formula():
    X = sample()
    fitted = ZCA(eps=1e-3).fit(X)
    values, U = np.linalg.eigh(np.cov(X.T))
    expected = (X - X.mean(0)) @ (U * (values + 1e-3) ** -0.5 @ U.T)
    np.testing.assert_allclose(fitted.transform(X), expected)
    assert fitted.shrinkage_ == 0
    assert fitted.eps_relative_ == pytest.approx(1e-3 / values.mean())
    assert fitted.describe()["condition"] == pytest.approx((values[-1] + 1e-3) / (values[0] + 1e-3))


@pytest.mark.parametrize("eps", [0.0, 0.5])
def test_the_covariance_afterwards_is_lambda_over_lambda_plus_eps(eps):
    X = sample()
    fitted = ZCA(eps).fit(X)
    values, U = np.linalg.eigh(np.cov(X.T))
    np.testing.assert_allclose(np.cov(fitted.transform(X).T), U * (values / (values + eps)) @ U.T, atol=1e-9)
    np.testing.assert_array_equal(fitted.matrix_, fitted.matrix_.T)


@pytest.mark.parametrize("eps", [0.0, 0.1])
@pytest.mark.parametrize("whitening", WHITENINGS)
def test_every_whitening_gives_the_same_cosines(whitening, eps):
    X, new = sample(), sample(9, seed=3)
    ours, zca = (kind(eps).fit(X).transform(new) for kind in (whitening, ZCA))
    np.testing.assert_allclose(linalg.cosine(ours, ours), linalg.cosine(zca, zca), atol=1e-9)


def test_zca_moves_vectors_least_and_zca_corr_the_standardised_ones():
    X = sample(200) - sample(200).mean(0)
    moved = {kind: np.square(kind(0.0).fit(X).transform(X) - X).sum() for kind in WHITENINGS}
    assert min(moved, key=moved.get) is ZCA
    standard = X / X.std(0, ddof=1)
    moved = {kind: np.square(kind(0.0).fit(X).transform(X) - standard).sum() for kind in WHITENINGS}
    assert min(moved, key=moved.get) is ZCACorr


def test_pca_gives_one_principal_component_a_dimension():
    X = sample()
    Z = PCA(0.0).fit(X).transform(X)
    direction = linalg.top_directions(X, 1)[0]
    assert abs(np.corrcoef(Z[:, 0], X @ direction)[0, 1]) == pytest.approx(1)


def test_a_small_sample_takes_scikit_learns_ledoit_wolf():
    X = sample(n=30)
    fitted = ZCA().fit(X)
    assert fitted.shrinkage_ == pytest.approx(LedoitWolf().fit(X).shrinkage_)
    assert "Ledoit-Wolf" in fitted.describe()["estimator"]
    assert ZCA(shrinkage=0.3).fit(X).shrinkage_ == 0.3


def test_shrinkage_0_needs_more_rows_than_dimensions():
    with pytest.raises(RefbiasError, match="got 5 rows of width 5"):
        ZCA(shrinkage=0).fit(sample(n=5))
    assert np.isfinite(ZCA().fit(sample(n=5)).matrix_).all()


def test_vectors_that_do_not_differ_or_vary_too_little():
    with pytest.raises(RefbiasError, match="all 60 rows of the sample are the same"):
        ZCA().fit(np.full((60, 5), 0.1))
    flat = np.column_stack([sample(), np.ones(60)])
    for kind in WHITENINGS:
        with pytest.raises(RefbiasError, match="cannot be inverted"):
            kind(0.0).fit(flat)
        assert np.isfinite(kind(1e-3).fit(flat).matrix_).all()


# All-but-the-top


def test_abtt_takes_out_the_leading_directions():
    X = sample()
    Z = ABTT(k=2).fit(X).transform(X)
    np.testing.assert_allclose(Z @ linalg.top_directions(X, 2).T, 0, atol=1e-10)
    np.testing.assert_allclose(ABTT(k=0).fit(X).transform(X), X - X.mean(0))


def test_abtt_of_fewer_rows_than_dimensions_is_the_same_by_either_way():
    X = sample(20, 30)
    ours, streamed = ABTT(k=3).fit(X), ABTT(k=3).fit_blocks([X])
    np.testing.assert_allclose(ours.transform(X), streamed.transform(X), atol=1e-8)
    with pytest.raises(RefbiasError, match="19 principal directions: 25 were asked"):
        ABTT(k=25).fit_blocks([X])


# What they share


@pytest.mark.parametrize("kind", FITTED)
@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), max_size=5))
def test_blocks_give_the_same_as_all_rows_together(kind, sizes):
    X = sample(100)
    whole, streamed = kind().fit(X), kind().fit_blocks(blocks(X, sizes))
    np.testing.assert_allclose(streamed.transform(X), whole.transform(X), rtol=1e-7, atol=1e-8)
    assert streamed.describe() == pytest.approx(whole.describe())


@pytest.mark.parametrize(("make", "text"), [
    (lambda: ZCA(eps=-1), "eps is a ridge, 0 or more: got -1"),
    (lambda: ZCA(shrinkage=2), "between 0 and 1: got 2"),
    (lambda: ABTT(k=-1), "0 or more: got -1"),
])  # fmt: skip
def test_options_out_of_range(make, text):
    with pytest.raises(UsageError, match=text):
        make()


def test_use_before_fit_and_another_width(tmp_path):
    for use in (lambda: ZCA().transform(sample()), lambda: ZCA().describe(), lambda: ZCA().save(tmp_path / "x")):
        with pytest.raises(RefbiasError, match="ZCA is not fitted yet"):
            use()
    with pytest.raises(RefbiasError, match=r"width 5: got \(3, 4\)"):
        Center().fit(sample()).transform(sample(3, 4))
    with pytest.raises(RefbiasError, match="got no row"):
        ZCA().fit_blocks([])


@pytest.mark.parametrize("kind", FITTED)
def test_what_is_recorded_is_plain_and_names_the_fit(kind):
    fitted = kind().fit(sample())
    facts = fitted.describe()
    assert (facts["calibration"], facts["n"], facts["d"]) == (kind.name, 60, 5)
    assert all(value is None or type(value) in (str, int, float) for value in facts.values())
    assert CALIBRATIONS[kind.name] is kind


def test_the_parts_of_this_kind_take_the_options_of_their_classes():
    assert {"none", "zca", "zca_corr", "pca", "center", "abtt", "file"} <= set(registry().parts("calibration"))
    chosen = registry().resolve("calibration", ("pca", {"eps": 0.25}))
    assert isinstance(chosen.object, PCA)
    assert chosen.params == {"eps": 0.25, "shrinkage": None}


# Saved fits


@pytest.mark.parametrize("kind", FITTED)
def test_a_saved_fit_comes_back_to_the_bit(kind, tmp_path):
    X = sample(30)
    fitted = kind().fit(X)
    fitted.fitted_on_ = "thirty rows"
    fitted.save(tmp_path / "deep" / "fit.safetensors")
    found = load(tmp_path / "deep" / "fit.safetensors")
    assert type(found) is kind
    assert found.describe() == fitted.describe()
    np.testing.assert_array_equal(found.transform(X), fitted.transform(X))
    assert os.listdir(tmp_path / "deep") == ["fit.safetensors"]


def test_a_saved_fit_says_where_it_comes_from(tmp_path):
    from safetensors import safe_open

    ZCA().fit(sample()).save(tmp_path / "fit.safetensors")
    with safe_open(tmp_path / "fit.safetensors", "numpy") as file:
        about = file.metadata()["about"]
    assert '"calibration": "zca"' in about
    assert '"refbias": "' in about


@pytest.mark.parametrize("position", [20, 400, -9, -1])
def test_a_damaged_file_gives_one_error(tmp_path, position):
    path = tmp_path / "fit.safetensors"
    ZCA().fit(sample()).save(path)
    content = bytearray(path.read_bytes())
    content[position] ^= 0x55
    path.write_bytes(content)
    with pytest.raises(RefbiasError, match=r"fit.safetensors is no whole saved calibration: .*\. Fit it again\."):
        load(path)


def test_a_file_that_is_cut_foreign_or_absent_gives_one_error(tmp_path):
    from safetensors.numpy import save_file

    path = tmp_path / "fit.safetensors"
    ZCA().fit(sample()).save(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(RefbiasError, match="no whole saved calibration"):
        load(path)
    save_file({"mean_": np.zeros(3)}, path)
    with pytest.raises(RefbiasError, match="expected 'refbias calibration 1' in its metadata, found None"):
        load(path)
    with pytest.raises(RefbiasError, match="There is no saved calibration"):
        load(tmp_path / "absent.safetensors")


def test_a_fit_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "fit.safetensors"
    Center().fit(sample()).save(path)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("refbias.result.os.fsync", full)
    with pytest.raises(RefbiasError, match="No space left on device"):
        ZCA().fit(sample()).save(path)
    assert isinstance(load(path), Center)


def test_a_saved_fit_as_a_part_is_applied_as_it_is(tmp_path):
    X = sample()
    path = tmp_path / "fit.safetensors"
    fitted = ZCA().fit(X)
    fitted.save(path)
    chosen = registry().resolve("calibration", ("file", {"path": path})).object
    assert isinstance(chosen, Saved)
    assert chosen.fit(sample(50, seed=4)) is chosen
    np.testing.assert_array_equal(chosen.transform(X), fitted.transform(X))
    assert chosen.describe() == {**fitted.describe(), "path": str(path)}
    with pytest.raises(RefbiasError, match=r"fit.safetensors was fitted on vectors of width 5: got \(1, 4\)"):
        chosen.fit(sample(50, 4))
    space = Space({"g": sample(4)}, sample(5), sample(6))
    np.testing.assert_array_equal(calibrate(space, chosen).positive, fitted.transform(space.positive))


# Spaces


def test_a_space_is_calibrated_on_its_own_anchors():
    space = Space({"g": sample(4)}, sample(5), sample(6), sample(40, seed=1))
    centred = calibrate(space, Center())
    np.testing.assert_allclose(centred.anchors.mean(0), 0, atol=1e-10)
    np.testing.assert_allclose(centred.positive, space.positive - space.anchors.mean(0))
    with pytest.raises(RefbiasError, match="Calibration Center needs anchors"):
        calibrate(Space({"g": sample(4)}, sample(5), sample(6)), Center())


def test_a_space_with_a_sample_of_its_own_is_calibrated_on_that():
    other = sample(70, seed=5)
    space = Space({"g": sample(4)}, sample(5), sample(6), sample(40), fit=lambda chosen: type(chosen)().fit(other))
    centred = calibrate(space, Center())
    np.testing.assert_allclose(centred.positive, space.positive - other.mean(0))
    assert centred.fit is None


def test_calibrating_leaves_the_given_object_unfitted():
    space = Space({"g": sample(4)}, sample(5), sample(6), sample(40))
    given_object = ZCA()
    calibrate(space, given_object)
    assert not hasattr(given_object, "mean_")


def test_a_class_of_ones_own_is_no_built_in():
    class Mine(ZCA):
        pass

    assert calibrations.is_built_in(ZCA())
    assert not calibrations.is_built_in(Mine())
    assert not calibrations.is_built_in(Identity())

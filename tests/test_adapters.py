"""Numerics of adapter drift against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refbias.adapters import ThinSVD, output_directions, overlap, principal_angles, thin_svd
from refbias.errors import RefbiasError

shapes = st.tuples(st.integers(1, 9), st.integers(1, 7), st.integers(1, 5), st.integers(0, 10**6))


def random_factors(out: int, into: int, rank: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(out, rank)), rng.normal(size=(rank, into))


def orthonormal(d: int, r: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(d, r)))[0]


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_the_thin_svd_is_that_of_the_dense_change(shape: tuple[int, int, int, int]) -> None:
    left, right = random_factors(*shape)
    dense, found = left @ right, thin_svd(left, right)
    values = np.linalg.svd(dense, compute_uv=False)
    np.testing.assert_allclose(found.values, values[: found.rank], rtol=1e-9, atol=1e-9 * values[0])
    np.testing.assert_allclose((found.left * found.values) @ found.right, dense, atol=1e-9 * values[0])
    np.testing.assert_allclose(found.left.T @ found.left, np.eye(found.rank), atol=1e-12)
    np.testing.assert_allclose(found.right @ found.right.T, np.eye(found.rank), atol=1e-12)
    assert found.norm == pytest.approx(np.linalg.norm(dense))
    assert found.stable_rank == pytest.approx(np.linalg.norm(dense) ** 2 / np.linalg.norm(dense, 2) ** 2)
    assert 1 <= found.stable_rank <= found.rank * (1 + 1e-12)


def test_the_rank_is_that_of_the_change_and_not_of_its_factors() -> None:
    left, right = random_factors(8, 6, 2, 0)
    assert thin_svd(np.hstack([left, left]), np.vstack([right, right])).rank == 2
    # a merge of an adapter with its negative is no change at all
    nothing = thin_svd(np.hstack([left, -left]), np.vstack([right, right]))
    assert nothing.norm < 1e-12


def test_no_change_has_rank_0() -> None:
    found = thin_svd(np.zeros((4, 2)), np.ones((2, 3)))
    assert (found.rank, found.norm, found.stable_rank) == (0, 0.0, None)
    assert found.left.shape == (4, 0) and found.right.shape == (0, 3)


def test_the_transposed_change() -> None:
    left, right = random_factors(5, 4, 2, 1)
    found = thin_svd(left, right).transposed
    np.testing.assert_allclose((found.left * found.values) @ found.right, (left @ right).T, atol=1e-12)


def test_factors_that_do_not_fit_name_both_shapes() -> None:
    with pytest.raises(RefbiasError, match=r"left has shape \(4, 2\), right \(3, 5\)"):
        thin_svd(np.ones((4, 2)), np.ones((3, 5)))


def test_principal_angles_of_a_rotated_plane() -> None:
    first = np.eye(4)[:, :2]
    angle = 0.3
    second = np.column_stack([np.eye(4)[:, 0], np.cos(angle) * np.eye(4)[:, 1] + np.sin(angle) * np.eye(4)[:, 2]])
    np.testing.assert_allclose(principal_angles(first, second), [0.0, angle], atol=1e-12)
    assert overlap(first, second) == pytest.approx((1 + np.cos(angle) ** 2) / 2)


def test_a_tiny_angle_is_not_lost_in_its_cosine() -> None:
    second = np.array([[1.0], [1e-9], [0.0]])
    assert principal_angles(np.eye(3)[:, :1], second)[0] == pytest.approx(1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6))
def test_angles_depend_on_the_spans_alone(r1: int, r2: int, seed: int) -> None:
    A, B = orthonormal(9, r1, seed), orthonormal(9, r2, seed + 1)
    angles = principal_angles(A, B)
    assert len(angles) == min(r1, r2)
    assert (np.diff(angles) >= 0).all() and (angles >= 0).all() and (angles <= np.pi / 2 + 1e-12).all()
    turned = principal_angles(B @ orthonormal(r2, r2, seed + 2), A @ orthonormal(r1, r1, seed + 3))
    np.testing.assert_allclose(turned, angles, atol=1e-7)
    assert overlap(A, B) == pytest.approx(float(np.mean(np.cos(angles) ** 2)))
    np.testing.assert_allclose(principal_angles(A, A), 0, atol=1e-7)


def test_random_spans_overlap_by_chance() -> None:
    found = [overlap(orthonormal(40, 4, 2 * i), orthonormal(40, 8, 2 * i + 1)) for i in range(200)]
    assert np.mean(found) == pytest.approx(8 / 40, abs=0.01)


def test_output_directions_are_the_left_singular_vectors_of_all_changes() -> None:
    changes = [thin_svd(*random_factors(6, 9, 2, seed)) for seed in (0, 1)]
    found = output_directions([change.left * change.values for change in changes])
    dense = np.hstack([(change.left * change.values) @ change.right for change in changes])
    U, _, _ = np.linalg.svd(dense)
    assert found.shape == (4, 6)
    np.testing.assert_allclose(np.abs(np.sum(found.T * U[:, :4], axis=0)), 1, atol=1e-9)
    np.testing.assert_allclose(found @ found.T, np.eye(4), atol=1e-12)


def test_output_directions_of_different_widths() -> None:
    blocks = [np.ones((4, 1)), np.ones((5, 1))]
    with pytest.raises(RefbiasError, match=r"one width: got \[4, 5\]"):
        output_directions(blocks)
    with pytest.raises(RefbiasError, match="no change"):
        output_directions([])


def test_a_thin_svd_is_frozen() -> None:
    with pytest.raises(AttributeError):
        ThinSVD(np.eye(2), np.ones(2), np.eye(2)).values = np.zeros(2)  # type: ignore[misc]

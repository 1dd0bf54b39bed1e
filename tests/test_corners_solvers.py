"""Solvers at the ends of float64: dependent columns, scales far apart, gaps of the size of rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from diht import SparseRegressor, SparseRegressorCV, sparse_path
from diht.design.definite import Definite

Vector = NDArray[np.float64]

SCALES = np.array([1.0, 1e12, 1e-12, 30.0])


# ---------------------------------------------------------------------------------------------------------------------
# Positive definite systems


def test_a_definite_system_is_solved_whatever_its_scales() -> None:
    """Columns of 1e-12 beside columns of 1e12 cost no digit."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((9, 4))
    well, system = np.linalg.inv(A.T @ A), Definite((A * SCALES).T @ (A * SCALES))
    x = rng.standard_normal(4)
    np.testing.assert_allclose(system.solve(SCALES * (A.T @ (A @ x))), x / SCALES, rtol=1e-12)
    np.testing.assert_allclose(system.inverse() * np.outer(SCALES, SCALES), well, rtol=1e-12)


@pytest.mark.parametrize("size", [1.0, 1e-12, 1e12])
@pytest.mark.parametrize("ridge", [0.0, 1e-30])
def test_equal_columns_share_the_solution_of_a_singular_system(size: float, ridge: float) -> None:
    """H = size^2 A'A with each column twice: the solution of least norm, and an inverse in which each twin can be spared."""
    A = np.random.default_rng(1).standard_normal((9, 2))
    twice = size * A[:, [0, 0, 1, 1]]
    H = twice.T @ twice + ridge * size**2 * np.eye(4)
    system = Definite(H)
    x = np.array([1.0, 1.0, -2.0, -2.0])
    np.testing.assert_allclose(system.solve(H @ x), x, rtol=1e-9)
    inverse = system.inverse()
    assert np.all(np.linalg.eigvalsh(inverse) > 0.0)
    assert np.all(1.0 / inverse.diagonal() <= 1e-14 * H.diagonal())


def test_the_smallest_systems() -> None:
    """No unknown, one unknown of any size, an unknown that no equation has, and a matrix that overflowed."""
    assert Definite(np.zeros((0, 0))).solve(np.zeros(0)).shape == (0,)
    assert Definite(np.zeros((0, 0))).inverse().shape == (0, 0)
    for size in (1e-300, 1.0, 1e300):
        assert Definite(np.array([[size]])).solve(np.array([2.0 * size])) == pytest.approx([2.0], rel=1e-14)
    assert Definite(np.diag([0.0, 4.0])).solve(np.array([1.0, 8.0])) == pytest.approx([0.0, 2.0])
    with np.errstate(invalid="ignore"):
        assert np.all(np.isnan(Definite(np.array([[np.inf, 1.0], [1.0, 1.0]])).solve(np.ones(2))))


# ---------------------------------------------------------------------------------------------------------------------
# Fits on dependent columns


def _dependent() -> tuple[Vector, Vector]:
    """Two columns of integers of size 1e7, each twice: with the default ridge their Gram matrix is singular to rounding."""
    a, b = (np.round(np.random.default_rng(i).standard_normal(40) * 1e7) for i in (0, 1))
    return np.column_stack([a, a, b, b]), (a + b) / 1e7


def _least_squares(X: Vector, y: Vector, support: list[int]) -> float:
    X, y = X[:, support] - X[:, support].mean(axis=0), y - y.mean()
    return float(np.mean(np.square(y - X @ np.linalg.lstsq(X, y)[0])))


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("constraint", [{"groups": [0, 0, 1, 1]}, {"sign": 1}, {}])
def test_dependent_columns_under_any_constraint(constraint: dict[str, Any], exact: bool) -> None:
    X, y = _dependent()
    model = SparseRegressor(k=1, exact=exact, **constraint).fit(X, y)
    best = min(_least_squares(X, y, [0]), _least_squares(X, y, [2]))
    assert model.objective_ == pytest.approx(best, rel=1e-9)
    assert model.lower_bound_ <= best * (1.0 + 1e-12)


def test_a_path_over_dependent_columns() -> None:
    X, y = _dependent()
    results = sparse_path(X, y, ks=[1, 2, 3, 4])
    assert results[0].objective == pytest.approx(min(_least_squares(X, y, [0]), _least_squares(X, y, [2])), rel=1e-9)
    # The columns give y: what is left is the ridge, the less the more twins share a coefficient of 1e-7.
    expected = [0.5 * 1e-3 * 1e-14 * share for share in (2.0, 1.5, 1.0)]
    assert [result.objective for result in results[1:]] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("groups", [None, [0, 0, 1, 1]])
def test_a_path_of_groups_leaves_out_by_costs_that_exist(groups: list[int] | None) -> None:
    X, y = _dependent()
    model = SparseRegressorCV(ks=[1, 2], groups=groups, cv=2).fit(X, y)
    assert np.all(np.isfinite(model.coef_))

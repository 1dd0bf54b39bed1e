"""Solvers at the ends of float64: dependent columns, scales far apart, gaps of the size of rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray

from diht import Problem, SparseClassifier, SparseRegressor, SparseRegressorCV, sparse_path
from diht.design.definite import Definite
from diht.duality import saddle_point
from diht.losses import LOSSES, Loss, Poisson, Squared

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


# ---------------------------------------------------------------------------------------------------------------------
# A gap term is the small difference of large terms


@pytest.mark.parametrize(
    ("model", "X", "y"),
    [
        (SparseClassifier(k=1, lam=1e-3, fit_intercept=False), [[1.0], [-1.0], [151.1864406779661]], [1, 0, 1]),
        (SparseRegressor(k=1, lam=1e-6, loss="poisson"), [[47495.5], [17068.6]], [1, 2]),
        (SparseRegressor(k=1, lam=1e-10, loss="poisson"), [[0.0], [1.0]], [1, 3]),
    ],
)
def test_rounding_is_no_disagreement_of_a_loss_with_its_conjugate(model: Any, X: Any, y: Any) -> None:
    """A dual variable that is a subnormal number, and counts that are fitted to the last digits."""
    model.fit(X, y)
    assert 0.0 <= model.gap_ <= 2e-3 * model.objective_


@pytest.mark.parametrize("name", LOSSES)
def test_gap_terms_of_extreme_predictions_and_dual_points(name: str) -> None:
    """At the dual point of a prediction, of one nearby, and at the ends of F, for predictions of any size."""
    loss, rng = LOSSES[name](), np.random.default_rng(0)
    n = 400
    classes = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    y = classes if loss.task == "classification" else 10.0 ** rng.uniform(-20, 20, n)
    y[:2] = y[:2] if loss.task == "classification" else 0.0
    center = np.log(np.maximum(y, 1e-30)) if name == "poisson" else y
    reach = 700.0 if name == "poisson" else 1e20
    sizes = 10.0 ** rng.uniform(-25, np.log10(reach), n)
    u = np.where(rng.random(n) < 0.5, center, 0.0) + rng.choice([-1.0, 0.0, 1.0], n) * sizes
    problem = Problem(np.ones((n, 1)), y, loss, 1, 1.0)
    for v in (u, u * (1.0 + 1e-12), u + 1e-3, np.full(n, -reach), np.full(n, reach)):
        alpha = np.asarray(loss.project(loss.derivative(v, y), y))
        assert saddle_point(problem, np.zeros(1), alpha, u=u, g=np.zeros(1)).fenchel >= 0.0


@dataclass(frozen=True)
class _HalfWrong(Squared):
    """The squared loss with a conjugate that is too small by one part in ten million of its curvature."""

    def conjugate(self, a: Any, y: Any) -> Any:
        return a * y + (0.25 - 1e-7) * a * a

    def kernel(self) -> None:
        return None


@pytest.mark.parametrize("size", [1e-100, 1.0, 1e70])
def test_a_loss_that_disagrees_a_little_still_raises(size: float) -> None:
    loss: Loss = _HalfWrong()
    problem = Problem(np.ones((3, 1)), size * np.array([1.0, 2.0, 3.0]), loss, 1, 1.0)
    u = np.zeros(3)
    with pytest.raises(ArithmeticError, match="the loss and its conjugate disagree"):
        saddle_point(problem, np.zeros(1), loss.derivative(u, problem.y), u=u)


@pytest.mark.parametrize("target", [1.0, 3.0, 1e-5, 1e10])
def test_the_conjugate_of_the_poisson_loss_has_its_digits_near_the_target(target: float) -> None:
    """p log(p / y) - a is about a^2 / (2 y) there, however small a is: all of it at y = 1, where log y = 0."""
    shares = np.concatenate([np.array([-0.499, 0.499]), *(sign * 10.0 ** np.arange(-15, -0.5) for sign in (-1, 1))])
    a, y = target * shares, np.full_like(shares, target)
    with mp.workdps(60):
        ratios = [(mp.mpf(x) + target) / target for x in a]
        divergence = np.array([float((mp.mpf(x) + target) * mp.log(r) - x) for x, r in zip(a, ratios, strict=True)])
    computed = Poisson().conjugate(a, y) if target == 1.0 else Poisson()._divergence(a, y)[0]
    np.testing.assert_allclose(computed, divergence, rtol=8 * np.finfo(float).eps)

"""Solvers at the ends of float64: dependent columns, scales far apart, gaps of the size of rounding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cases import without_features
from diht import Problem, SparseClassifier, SparseRegressor, SparseRegressorCV, certify, solve, sparse_path
from diht.bounds.duality import primal, saddle_point
from diht.constraints.groups import Structured, constrained
from diht.design import Step, as_design
from diht.losses import LOSSES, Hinge, Huber, Logistic, Loss, Poisson, SmoothedHinge, Squared, SquaredHinge
from diht.losses.log_link import divergence
from diht.numerics.definite import Definite
from diht.numerics.line_search import longest_step
from diht.refit import refit
from diht.relaxation.engines import NewtonEngine
from diht.relaxation.perspective import central_point
from diht.relaxation.proximal import minimise_quadratic
from diht.relaxation.smoothing import Central
from diht.result import Status
from diht.samples import central_slopes
from diht.samples.intercept import increasing_root
from diht.search.swaps import _chord
from diht.solvers.base import Start
from diht.solvers.nodes import _undecided
from diht.solvers.relaxed import Relaxed

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
    model = SparseRegressor(k=1, exact=exact, standardize=False, **constraint).fit(X, y)
    best = min(_least_squares(X, y, [0]), _least_squares(X, y, [2]))
    assert model.objective_ == pytest.approx(best, rel=1e-9)
    assert model.lower_bound_ <= best * (1.0 + 1e-12)


def test_a_path_over_dependent_columns() -> None:
    X, y = _dependent()
    results = sparse_path(X, y, ks=[1, 2, 3, 4], standardize=False)
    assert results[0].objective == pytest.approx(min(_least_squares(X, y, [0]), _least_squares(X, y, [2])), rel=1e-9)
    # The columns give y: what is left is the ridge, the less the more twins share a coefficient of 1e-7.
    expected = [0.5 * 1e-3 * 1e-14 * share for share in (2.0, 1.5, 1.0)]
    assert [result.objective for result in results[1:]] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("groups", [None, [0, 0, 1, 1]])
def test_a_path_of_groups_leaves_out_by_costs_that_exist(groups: list[int] | None) -> None:
    X, y = _dependent()
    model = SparseRegressorCV(ks=[1, 2], lams=1e-3, groups=groups, cv=2, standardize=False).fit(X, y)
    assert np.all(np.isfinite(model.coef_))


# ---------------------------------------------------------------------------------------------------------------------
# A gap term is the small difference of large terms


@pytest.mark.parametrize(
    ("model", "X", "y"),
    [
        (
            SparseClassifier(k=1, lam=1e-3, fit_intercept=False, standardize=False),
            [[1.0], [-1.0], [151.1864406779661]],
            [1, 0, 1],
        ),
        (SparseRegressor(k=1, lam=1e-6, loss="poisson", standardize=False), [[47495.5], [17068.6]], [1, 2]),
        (SparseRegressor(k=1, lam=1e-10, loss="poisson", standardize=False), [[0.0], [1.0]], [1, 3]),
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
    y[:2] = y[:2] if loss.task == "classification" or loss.positive_targets else 0.0
    center = np.log(np.maximum(y, 1e-30)) if loss.link == "log" else y
    reach = 700.0 if loss.link == "log" else 1e20
    sizes = 10.0 ** rng.uniform(-25, np.log10(reach), n)
    u = np.where(rng.random(n) < 0.5, center, 0.0) + rng.choice([-1.0, 0.0, 1.0], n) * sizes
    problem = Problem(np.ones((n, 1)), y, loss, 1, 1.0)
    for v in (u, u * (1.0 + 1e-12), u + 1e-3, np.full(n, -reach), np.full(n, reach)):
        alpha = np.asarray(loss.project(loss.derivative(v, y), y))
        assert saddle_point(problem, np.zeros(1), alpha, u=u, g=np.zeros(1)).fenchel >= 0.0


@dataclass(frozen=True)
class _HalfWrong(Squared):
    """The squared loss with a conjugate that is too small by one part in ten million of its curvature."""

    pieces = None

    def conjugate(self, a: Any, y: Any) -> Any:
        return a * y + (0.25 - 1e-7) * a * a


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
        exact = np.array([float((mp.mpf(x) + target) * mp.log(r) - x) for x, r in zip(a, ratios, strict=True)])
    computed = Poisson().conjugate(a, y) if target == 1.0 else divergence(a, y)[0]
    np.testing.assert_allclose(computed, exact, rtol=8 * np.finfo(float).eps)


# ---------------------------------------------------------------------------------------------------------------------
# Relaxations at the ends of float64


@pytest.mark.parametrize("loss", [Hinge(), SmoothedHinge(0.1), SquaredHinge(), Huber()], ids=repr)
@pytest.mark.parametrize("tau", [1.0, 1e-2, 1e-5])
def test_the_slope_of_a_loss_with_barriers_is_its_derivative(loss: Any, tau: float) -> None:
    """Also where one end of the domain is infinite, and for a negative target the other one."""
    smooth, u, y = Central(loss, tau), np.array([-3.0, -0.5, 0.0, 0.7, 4.0]), np.array([1.0, -1.0, -1.0, 1.0, -1.0])
    h = 1e-6
    slopes = (smooth.value(u + h, y) - smooth.value(u - h, y)) / (2.0 * h)
    np.testing.assert_allclose(smooth.derivative(u, y), slopes, rtol=1e-5, atol=1e-7)


def _relaxed(problem: Problem, steps: int) -> tuple[float, float]:
    """The relaxation's value and bound after so many steps, or fewer if it is solved."""
    method = Relaxed()
    with np.errstate(over="ignore", invalid="ignore"):
        state = method.init(problem, Start())
        for _ in range(steps):
            if state.settled:
                break
            method.advance(problem, state)
    return state.engine.value, state.bound.value


@pytest.mark.parametrize("seed", range(4))
def test_newton_steps_on_separated_classes_with_weights_of_all_sizes(seed: int) -> None:
    """The curvature at a model is that of a small region: a step must not shrink to what the largest curvature allows."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 6)) * 10.0 ** rng.uniform(-1, 3, 6)
    y = np.where(X[:, 0] + X[:, 1] > 0.0, 1.0, -1.0)
    problem = Problem(X, y, Logistic(), 5, 1e-6, 10.0 ** rng.uniform(-12, 6, 40), fit_intercept=True)
    value, bound = _relaxed(problem, 40)
    assert value - bound <= 1e-6 * value


def _hinge_of_two_scales(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((13, 3)) * [1.0, 1.0, 1e6], np.where(rng.random(13) < 0.5, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    weights, constraint = 10.0 ** rng.uniform(-2, 3, 13), constrained(1, 3, groups=[1, 0, 0])
    return Problem(X, y, Hinge(), constraint, 3e-4, weights, fit_intercept=True)


def _separated_with_signs(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((3, 7)), np.array([-1.0, 1.0, -1.0])
    constraint = constrained(1, 7, sign=[-1, -1, 1, 0, 1, -1, -1])
    return Problem(X, y, SquaredHinge(), constraint, 3e-10, 10.0 ** rng.uniform(-2, 1, 3))


@pytest.mark.parametrize("seed", [0, 3, 5])
@pytest.mark.parametrize(("draw", "accuracy"), [(_hinge_of_two_scales, 1e-5), (_separated_with_signs, 0.05)])
def test_the_dual_point_of_a_badly_scaled_relaxation(draw: Any, accuracy: float, seed: int) -> None:
    """It is as good as the model, though rounding of the predictions moves the slopes of the loss."""
    value, bound = _relaxed(draw(seed), 60)
    assert value - bound <= accuracy * value


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("draw", [_hinge_of_two_scales, _separated_with_signs])
def test_tiny_problems_are_solved_in_few_steps(draw: Any, seed: int) -> None:
    result = solve(draw(seed), "branch", max_iter=80)
    assert result.status is Status.OPTIMAL


def test_a_search_ends_where_rounding_keeps_the_gap_open() -> None:
    """Columns of 1e12 under a ridge of 1e-8: u N |X_j| |c| squared, over twice the ridge, is more than the objective."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((9, 4)) * [1e12, 1e-12, 1e10, 1.0]
    y = np.where(np.arange(9) % 2, 1.0, -1.0)
    problem = Problem(X, y, Hinge(), constrained(1, 4, groups=[0, 1, 0, 2], sign=[0, 0, -1, 1]), 1e-8)
    result = solve(problem, "branch", max_iter=200)
    assert result.status in (Status.STALLED, Status.OPTIMAL)
    assert 0.0 <= result.lower_bound <= result.objective


# ---------------------------------------------------------------------------------------------------------------------
# The relaxed quadratic of groups and signs


def _quadratic(seed: int) -> tuple[Vector, Vector, Structured, float]:
    """A least squares problem; of columns of one scale, of scales far apart, or dependent ones."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 30)), int(rng.integers(2, 12))
    X = rng.standard_normal((n, d))
    X = (X, X * 10.0 ** rng.uniform(-6, 6, d), X[:, rng.integers(0, max(1, d // 2), d)])[seed % 3]
    y = X @ (rng.standard_normal(d) / np.abs(X).max(axis=0)) + 0.1 * rng.standard_normal(n)
    groups = rng.integers(0, d // 2 + 1, d) if seed % 2 else np.arange(d)
    sign = rng.integers(-1, 2, d) if seed % 4 > 1 else None
    k = int(rng.integers(1, len(np.unique(groups)) + 1))
    constraint = constrained(k, d, groups=groups, sign=sign)
    assert isinstance(constraint, Structured)
    return X.T @ X / n, X.T @ y / n, constraint, 10.0 ** rng.uniform(-8, 0)


def _gap(H: Vector, h: Vector, constraint: Structured, lam: float, p: Vector) -> float:
    """lam Omega(p) - p'c + nu(c)^2 / (2 lam) with c = h - Hp: no less than the distance to the minimum."""
    c = h - H @ p
    return lam * constraint.relaxation(p) - float(p @ c) + constraint.value(c) / (2.0 * lam)


@pytest.mark.parametrize("seed", range(24))
def test_the_central_path_leads_to_the_relaxed_optimum(seed: int) -> None:
    H, h, constraint, lam = _quadratic(seed)
    p = central_point(H, h, constraint, lam, lambda x: _gap(H, h, constraint, lam, x), 0.0)
    value = 0.5 * float(p @ (H @ p)) - float(h @ p) + lam * constraint.relaxation(p)
    assert _gap(H, h, constraint, lam, p) <= 1e-7 * abs(value)


@pytest.mark.parametrize("seed", [1, 4, 7, 13, 19])
def test_a_badly_scaled_quadratic_is_minimised(seed: int) -> None:
    """Proximal steps as short as the largest curvature asks for do not move the other features at all."""
    H, h, constraint, lam = _quadratic(seed)
    zero = np.zeros(len(h))
    p, fall, _, _ = minimise_quadratic(H, -h, constraint, lam, zero, float(np.abs(H).sum(axis=1).max()), 1e-9)
    assert fall > 0.0
    assert _gap(H, h, constraint, lam, p) <= 1e-6 * fall


def test_features_that_are_decided_stay_so_on_the_central_path() -> None:
    H, h, constraint, lam = _quadratic(2)
    inside, outside = np.array([0]), np.array([1])
    decided = constraint.restricted(inside, outside)
    assert isinstance(decided, Structured)
    p = central_point(H, h, decided, lam, lambda x: _gap(H, h, decided, lam, x), 0.0)
    assert p[1] == 0.0
    full = decided.restricted(inside, np.arange(1, len(h)))
    assert isinstance(full, Structured)
    alone = central_point(H, h, full, lam, lambda x: _gap(H, h, full, lam, x), 0.0)
    assert np.count_nonzero(alone) <= 1


@pytest.mark.parametrize("loss", [Hinge(), Huber(), Logistic(), Poisson()], ids=repr)
@pytest.mark.parametrize("size", [1e-9, 1.0, 1e3])
def test_balanced_dual_points_of_any_size(loss: Loss, size: float) -> None:
    """The projection sums to zero, stays in F and is no further away than that of any other shift."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(30) < 0.5, -1.0, 1.0) if loss.task == "classification" else rng.integers(1, 5, 30) * 1.0
    s, alpha = 10.0 ** rng.uniform(-4, 0, 30), size * rng.standard_normal(30)
    found = without_features(y, s).balanced(loss, alpha)
    low, high = loss.domain(y)
    assert abs(s @ found) <= 1e-14 * float(s @ (np.abs(alpha) + np.abs(found)))
    assert np.all((found >= low) & (found <= high))
    inside = (found > low) & (found < high)
    if np.any(inside):  # one shift for all that are not at an end
        shifts = (found - alpha)[inside]
        np.testing.assert_allclose(shifts, shifts[0], atol=1e-12 * max(size, 1.0))


# ---------------------------------------------------------------------------------------------------------------------
# Work that cannot gain anything


@pytest.mark.parametrize("tau", [1e-2, 1e-8, 1e-13])
@pytest.mark.parametrize("distance", [1e-13, 1e-6, 0.3, 1e6])
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_slopes_of_barriers_near_a_kink(tau: float, distance: float, y: float) -> None:
    """With d = u - y the slope of the hinge is -y/2 + t, t the root of d t^2 + 2 tau t - d/4 = 0: nothing cancels but u - y."""
    u = np.array([y - distance, y + distance])
    with mp.workdps(50):
        d = [mp.mpf(x) - mp.mpf(y) for x in u]
        exact = np.array([float(x / 4 / (tau + mp.sqrt(mp.mpf(tau) ** 2 + x * x / 4)) - y / 2) for x in d])
    np.testing.assert_allclose(Central(Hinge(), tau).derivative(u, np.full(2, y)), exact, rtol=0.0, atol=1e-15)


def test_a_tree_does_not_split_on_what_every_model_keeps() -> None:
    """The places of a relaxation are whole numbers, and the kept feature has the largest coefficient."""
    constraint = constrained(1, 4, keep=[0])
    for shifted in (False, True):
        assert _undecided(constraint, np.array([9.0, 3.0, 0.0, 0.0]), np.ones(4, dtype=bool), shifted) == 1
        decided = constraint.restricted(np.array([1]), np.array([2]))
        left = np.array([True, False, False, True])
        assert _undecided(decided, np.array([9.0, 3.0, 0.0, 0.0]), left, shifted) == -1


@dataclass(frozen=True)
class _Counted(Poisson):
    """The Poisson loss, with the number of its evaluations."""

    calls: list[int] = field(default_factory=list)

    def value(self, u: Any, y: Any) -> Any:
        self.calls.append(1)
        return super().value(u, y)


def test_a_refit_does_not_begin_where_means_overflow() -> None:
    """Columns with a mean of 1e7 deviations: a model that lacks one of two features has predictions of 1e7."""
    rng = np.random.default_rng(0)
    X, y = 1e7 + rng.standard_normal((20, 2)), np.eye(20)[0]
    problem = Problem(X, y, Poisson(), 2, 1e-3)
    support = np.arange(2)
    warm, cold = refit(problem, support, np.array([1.0, 0.0])), refit(problem, support)
    assert warm.objective == pytest.approx(cold.objective, rel=1e-9)
    engine = NewtonEngine(problem, None, np.zeros(20), np.array([1.0, 0.0]), 0.0)
    assert engine.value <= primal(problem, np.zeros(2))


def test_a_refit_ends_where_its_steps_gain_rounding() -> None:
    """A count of 5 against two of 0, and columns of 1e6: rounding of the slopes is more than what the ridge asks for."""
    X = np.array([[1393601.57, -41.7], [-3033231.12, 70.4], [1639629.56, -28.6]])
    loss = _Counted()
    problem = Problem(X, np.array([0.0, 0.0, 5.0]), loss, 2, 1.9e-4, fit_intercept=True)
    fit = refit(problem, np.arange(2), np.array([5.5e-6, -7e-11]), -19.8, 1e-9)
    assert len(loss.calls) <= 300
    assert fit.objective <= 2e-12


def test_nodes_are_not_solved_whose_gap_the_smoothing_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three separated samples and columns of 1e12: the objective is 1e-12 of what the least smoothing costs."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3, 8)) * 10.0 ** np.linspace(-12, 12, 8)
    problem = Problem(X, np.array([1.0, -1.0, 1.0]), SmoothedHinge(0.05), 3, 2e-4, fit_intercept=True)
    steps: list[int] = []
    improve = NewtonEngine.improve

    def counted(self: NewtonEngine) -> None:
        steps.append(1)
        improve(self)

    monkeypatch.setattr(NewtonEngine, "improve", counted)
    result = solve(problem, "branch")
    assert 0.0 <= result.lower_bound <= result.objective < 1e-20
    assert result.status in (Status.STALLED, Status.OPTIMAL)
    assert len(steps) <= 400


@pytest.mark.parametrize("seed", range(4))
def test_centred_curvatures_are_not_negative(seed: int) -> None:
    """One sample has nearly all of the weight: what is left of a column, centred, is rounding."""
    rng = np.random.default_rng(seed)
    design = as_design(csr_array(rng.standard_normal((9, 5)) * 1e20), 1)
    c = 10.0 ** rng.uniform(-60, -30, 9)
    c[seed] = 0.1
    assert np.all(design.hessian(c, design.rmatvec(c) / c.sum()).diagonal() >= 0.0)


@pytest.mark.parametrize("loss", [Huber(3.0), Logistic()], ids=repr)
def test_a_refit_on_columns_far_from_zero(loss: Loss) -> None:
    """Means of 1e7 deviations and no intercept: the Hessian is singular to rounding, the columns themselves are not."""
    rng = np.random.default_rng(2)
    X = 1e7 * rng.uniform(-4.0, 4.0, 6) + rng.standard_normal((9, 6))
    y = np.where(rng.random(9) < 0.5, -1.0, 1.0)
    problem = Problem(X, y, loss, 6, 3e-3)
    values = [refit(problem, np.arange(k)).objective for k in range(1, 7)]
    assert np.all(np.diff(values) <= 1e-6 * np.array(values[1:]))
    fit = refit(problem, np.arange(6))
    w, u = fit.w, fit.u
    gradient = X.T @ (problem.s * loss.derivative(u, y)) + problem.lam * w
    R = np.linalg.qr(np.vstack([X / 3.0, np.sqrt(problem.lam) * np.eye(6)]), mode="r")
    step = np.linalg.solve(R, np.linalg.solve(R.T, gradient))
    assert float(gradient @ step) <= 1e-6 * values[-1]


# ---------------------------------------------------------------------------------------------------------------------
# Work that rounding makes useless


@pytest.mark.parametrize("shortest", [0, 1, 2, 7, 40, 82, 119])
def test_the_longest_step_is_found_in_few_trials(shortest: int) -> None:
    """Whatever is shorter than an accepted step is accepted: 120 sizes need no 120 trials."""
    sizes, trials = tuple(0.5**i for i in range(120)), []

    def trial(size: float) -> float:
        trials.append(size)
        return size

    assert longest_step(sizes, trial, lambda model, size: size <= 0.5**shortest) == (0.5**shortest, 0.5**shortest)
    assert len(trials) <= min(2 * shortest + 1, 20)
    assert len(set(trials)) == len(trials)
    assert longest_step(sizes, trial, lambda model, size: False) is None


class _Divided(float):
    """A number that counts how often it is divided."""

    divisions = 0

    def __truediv__(self, other: float) -> float:
        _Divided.divisions += 1
        return float(self) / other


@pytest.mark.parametrize("mu", [0.0, 1.0])
@pytest.mark.parametrize("tau", [1e-1, 1e-6, 1e-12])
def test_a_slope_near_the_end_of_its_domain_takes_few_steps(
    mu: float, tau: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The distance from the end -1 has few digits there, and its equation cannot be met to rounding."""
    monkeypatch.setattr(central_slopes, "central_room", central_slopes.central_room.py_func)
    slope = central_slopes.central_slope.py_func
    for distance in 10.0 ** np.arange(-12.0, 13.0):
        for u in (1.0 - distance, 1.0 + distance):
            _Divided.divisions = 0
            a = slope(u, 1.0, 0, mu, -1.0, 0.0, _Divided(tau))
            assert _Divided.divisions <= 60
            assert -1.0 < a < 0.0

            def excess(a: Any, u: float = u) -> Any:
                a = mp.mpf(a)
                return 1 + mu * a - tau / (1 + a) - tau / a - u

            low, high = a * (1.0 + 2e-15), a * (1.0 - 2e-15)
            with mp.workdps(50):
                assert low <= -1.0 or excess(low) <= 0
                assert excess(high) >= 0


@pytest.mark.parametrize("height", [1e-3, 1e-9])
@pytest.mark.parametrize("jump", [3.3, 1e7 + np.pi, -1e12 / 7])
def test_a_root_at_a_jump_costs_little_more_than_bisection(height: float, jump: float) -> None:
    """No secant halves the bracket where the function jumps."""
    evaluated = []

    def step(t: float) -> float:
        evaluated.append(t)
        return -1.0 if t < jump else height

    assert increasing_root(step) == pytest.approx(jump, rel=1e-15)
    assert len(evaluated) <= 80


@pytest.mark.parametrize("seed", range(4))
def test_the_compiled_intercept_is_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    u, y, s = 10.0 ** (3 * seed) * rng.standard_normal(18), np.sign(rng.standard_normal(18)), rng.random(18)
    barriers = [Central(Hinge(), 10.0**-i) for i in (1, 5, 9)] + [Central(SquaredHinge(), 1e-4)]
    for loss in [Hinge(), SmoothedHinge(), SquaredHinge(), Logistic(), *barriers]:
        kernel = loss.slope_kernel()
        assert kernel is not None
        found = central_slopes.slope_root(*kernel, u, y, s, 0.3, 1e-15)
        plain = increasing_root(lambda b, loss=loss: float(s @ loss.derivative(u + b, y)), 0.3, 1e-15)
        assert found == pytest.approx(plain, rel=1e-7, abs=1e-9)
        objective = [float(s @ loss.value(u + b, y)) for b in (found, plain)]
        assert objective[0] == pytest.approx(objective[1], rel=1e-13)


def test_a_node_whose_bound_rounding_takes_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of 1e20 leave no bound but 0: the relaxations of the nodes are not solved to the end."""
    X = np.array(
        [[3e9, -3e-08, 3.87, 2.2e17, 1.344e14, 6.7491e19], [-2e11, 3e-08, 3.87, 2.2e17, 1.345e14, 6.7492e19]],
    )
    constraint = constrained(4, 6, sign=(1, 1, 1, 1, 0, 1))
    problem = Problem(X, np.array([-1.0, 1.0]), Hinge(), constraint, 561.0, np.array([0.3, 0.8]))
    steps, improve = [], NewtonEngine.improve
    monkeypatch.setattr(NewtonEngine, "improve", lambda self: steps.append(1) or improve(self))
    result = solve(problem, "branch")
    assert len(steps) <= 250
    assert result.lower_bound <= result.objective


@pytest.mark.parametrize("loss", [SmoothedHinge(), SquaredHinge(), Hinge()], ids=str)
def test_a_node_that_rounding_leaves_no_bound_but_zero_is_left(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means of 1e8 deviations, and columns so large that the rounding of a gradient costs any bound more than the objective."""
    rng = np.random.default_rng(0)
    X = 1e19 * rng.standard_normal((20, 5)) + 1e27 * rng.standard_normal(5)
    problem = Problem(X, np.sign(rng.standard_normal(20)), loss, 2, 0.05, fit_intercept=True)
    steps, improve = [], NewtonEngine.improve
    monkeypatch.setattr(NewtonEngine, "improve", lambda self: steps.append(1) or improve(self))
    result = solve(problem, "branch")
    assert result.lower_bound == 0.0
    assert len(steps) <= 250


def test_a_dual_step_finds_its_intercept_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """To what rounding leaves of the balance, not further: beyond, only bisection goes on."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((25, 4))
    problem = Problem(X, rng.poisson(np.exp(X[:, 0] + 1.0)).astype(float), Poisson(), 1, 0.3, fit_intercept=True)
    totals, total = [], Step.total
    monkeypatch.setattr(Step, "total", lambda self, *arguments: totals.append(1) or total(self, *arguments))
    result = solve(problem, "diht", tol=1e-9, max_iter=100)
    assert len(totals) <= 8 * result.n_iter


def test_counts_that_only_rough_predictions_make_overflow() -> None:
    """The last sample has no features; centred, it has those of the mean, and terms of 1e19 that do not quite cancel."""
    X = np.array(
        [
            [0.5066683121423989, -0.09662483263865285],
            [0.0, -1.1543031275918845],
            [1.1195081135880158, 0.27978227473440825],
            [0.0, 0.0],
        ]
    )
    y = np.array([2.0, 1.0, 1.0, 0.0])
    problem = Problem(X, y, Poisson(), k=2, lam=0.7, fit_intercept=True)
    w = np.array([-6.768635395907844e19, 1.6104980655995008e20])
    certificate = certify(problem, w, intercept=2.0)
    with mp.workdps(60):
        u = [mp.mpf(float(a)) * w[0] + mp.mpf(float(b)) * w[1] + 2 for a, b in X]
        losses = [mp.exp(t) - c * t - (c - c * mp.log(c) if c else 0) for t, c in zip(u, y.tolist(), strict=True)]
        exact = sum(losses) / 4 + mp.mpf(0.35) * (mp.mpf(w[0]) ** 2 + mp.mpf(w[1]) ** 2)
    assert certificate.objective == pytest.approx(float(exact), rel=1e-12)
    assert certificate.lower_bound <= solve(problem).objective


def test_a_count_without_weight_may_be_as_large_as_it_likes() -> None:
    X, y = np.array([[1.0], [2.0], [900.0]]), np.array([1.0, 3.0, 1.0])
    model = {"w": [1.0], "alpha": np.zeros(3)}
    problem = Problem(X, y, Poisson(), k=1, lam=0.1, sample_weight=[1.0, 1.0, 0.0])
    assert certify(problem, **model).objective == certify(Problem(X[:2], y[:2], Poisson(), 1, 0.1), [1.0]).objective
    with pytest.raises(ValueError, match="w must have a finite objective"):
        certify(Problem(X, y, Poisson(), k=1, lam=0.1), **model)


def test_a_swap_whose_quadratic_model_overflows_is_given_up() -> None:
    rng = np.random.default_rng(0)
    problem = Problem(
        rng.standard_normal((6, 2)), rng.choice([-1.0, 1.0], 6), SmoothedHinge(), 2, 0.1, fit_intercept=True
    )
    with np.errstate(over="raise", invalid="raise"):
        both, w = np.arange(2), np.array([1e200, -1e180])
        fit, hopeless = _chord(problem, both, w, 0.0, both, np.eye(2), 1.0)
    assert hopeless
    assert fit.objective == np.inf

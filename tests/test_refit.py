"""The best model on a support, against closed forms, other optimisers and its own duality gap."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, minimize
from scipy.sparse import csr_array

from cases import DESIGNS, LOSSES
from diht import Problem
from diht import refit as refit_module
from diht.bounds.duality import dual_from_primal, feasible, lower_bound, primal
from diht.losses import Hinge, Huber, Logistic, Loss, SmoothedHinge, Squared, SquaredHinge
from diht.refit import refit
from diht.relaxation.smoothing import Moreau
from diht.samples.ascent import CoordinateAscent
from oracle import ridge, small_data, some_weights, targets

Vector = NDArray[np.float64]

NAMES = [loss.name for loss in LOSSES]
SMOOTH = [loss for loss in LOSSES if loss.mu > 0]
SUPPORT = np.array([0, 2, 3, 5])


def on_support(loss: Loss, weighted: bool, fit_intercept: bool, lam: float = 0.05) -> tuple[Problem, Problem]:
    """A problem, and the same restricted to the support, where every model is allowed and strong duality holds."""
    X, y = small_data(loss)
    weights = some_weights(len(y)) if weighted else None
    whole = Problem(X, y, loss, len(SUPPORT), lam, weights, fit_intercept)
    return whole, Problem(X[:, SUPPORT], y, loss, len(SUPPORT), lam, weights, fit_intercept)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", [1e-6, 0.1, 1e3])
def test_squared_loss_is_ridge(lam: float, weighted: bool, fit_intercept: bool) -> None:
    problem, _ = on_support(Squared(), weighted, fit_intercept, lam)
    X, y = small_data(Squared())
    fit = refit(problem, SUPPORT)
    w, b, u = fit.w, fit.b, fit.u
    expected_w, expected_b, expected = ridge(X[:, SUPPORT], y, problem.s, lam, fit_intercept)
    np.testing.assert_allclose(w[SUPPORT], expected_w, rtol=1e-9)
    assert np.count_nonzero(w) == len(SUPPORT)
    assert problem.intercept_of(w, b) == pytest.approx(expected_b, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(u, X @ w + problem.intercept_of(w, b), rtol=1e-11, atol=1e-12)
    assert fit.objective == pytest.approx(primal(problem, w, b), rel=1e-13)
    assert primal(problem, w, b) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", SMOOTH, ids=[loss.name for loss in SMOOTH])
def test_the_duality_gap_on_the_support_closes(loss: Loss, weighted: bool, fit_intercept: bool) -> None:
    for lam in (1e-3, 1.0, 100.0):
        problem, restricted = on_support(loss, weighted, fit_intercept, lam)
        fit = refit(problem, SUPPORT)
        w, b = fit.w, fit.b
        objective = primal(problem, w, b)
        assert fit.objective == pytest.approx(objective, rel=1e-13)
        bound = lower_bound(restricted, dual_from_primal(restricted, w[SUPPORT], b))
        assert objective * (1 - 1e-9) <= bound.value <= objective


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", SMOOTH, ids=[loss.name for loss in SMOOTH])
def test_smooth_losses_against_a_quasi_newton_method(loss: Loss, fit_intercept: bool) -> None:
    problem, _ = on_support(loss, True, fit_intercept)
    X, y = small_data(loss)
    A = np.column_stack([X[:, SUPPORT], np.full(len(y), float(fit_intercept))])
    ridge_of = problem.lam * np.append(np.ones(len(SUPPORT)), 0.0)

    def value_and_gradient(z: np.ndarray) -> tuple[float, np.ndarray]:
        slopes = problem.s * loss.derivative(A @ z, y)
        return float(problem.s @ loss.value(A @ z, y) + 0.5 * ridge_of @ z**2), A.T @ slopes + ridge_of * z

    rival = minimize(value_and_gradient, np.zeros(A.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-10})
    fit = refit(problem, SUPPORT)
    w, b = fit.w, fit.b
    assert primal(problem, w, b) == pytest.approx(rival.fun, rel=1e-10)
    np.testing.assert_allclose(w[SUPPORT], rival.x[:-1], rtol=1e-5, atol=1e-7)


def hinge_dual(problem: Problem) -> float:
    """Maximise the hinge's dual, a box-constrained quadratic programme, by SLSQP; a safe bound at the point found."""
    c = problem.s * problem.y
    Q = problem.design.toarray() * c[:, None]
    balance = [{"type": "eq", "fun": lambda b: c @ b, "jac": lambda b: c}] if problem.fit_intercept else []
    point = minimize(
        lambda b: -problem.s @ b + np.sum((b @ Q) ** 2) / (2 * problem.lam),
        np.full(len(c), 0.5),
        jac=lambda b: -problem.s + Q @ (b @ Q) / problem.lam,
        bounds=[(0, 1)] * len(c),
        constraints=balance,
        method="SLSQP",
        options={"ftol": 1e-16, "maxiter": 1000},
    ).x
    return lower_bound(problem, feasible(problem, -point * problem.y)).value


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", [1e-3, 0.05, 2.0])
def test_the_hinge_against_its_quadratic_programme(lam: float, weighted: bool, fit_intercept: bool) -> None:
    problem, restricted = on_support(Hinge(), weighted, fit_intercept, lam)
    fit = refit(problem, SUPPORT)
    w, b = fit.w, fit.b
    objective = primal(problem, w, b)
    assert objective * (1 - 1e-9) <= hinge_dual(restricted) <= objective


def test_the_intercepts_curvature_may_vanish() -> None:
    # All samples start on the flat parts of the loss: Newton's equations for w and b together are singular there.
    for loss, seed in ((Huber(), 0), (SmoothedHinge(), 1)):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((40, 3))
        y = targets(loss, 30 * rng.standard_normal(40), rng)
        problem = Problem(X, y, loss, 3, 20.0, fit_intercept=True)
        fit = refit(problem, np.arange(3))
        w, b = fit.w, fit.b
        objective = primal(problem, w, b)
        assert fit.objective == pytest.approx(objective, rel=1e-13)
        assert lower_bound(problem, dual_from_primal(problem, w, b)).value >= objective * (1 - 1e-10)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_no_start_changes_the_optimum(loss: Loss) -> None:
    problem, _ = on_support(loss, False, True)
    cold = refit(problem, SUPPORT).objective
    start = 10 * np.random.default_rng(0).standard_normal(7)
    assert refit(problem, SUPPORT, start, 3.0).objective == pytest.approx(cold, rel=1e-12)


@pytest.mark.parametrize(("name", "make"), DESIGNS, ids=[name for name, _ in DESIGNS])
def test_every_kind_of_x(name: str, make) -> None:
    A, y = small_data(Squared())
    design, X = make(A)
    fit = refit(Problem(design, y, Squared(), 4, 0.1), SUPPORT)
    w, u = fit.w, fit.u
    expected = ridge(X[:, SUPPORT], y, np.full(24, 1 / 24), 0.1, False)[0]
    np.testing.assert_allclose(w[SUPPORT], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(u, X @ w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_an_empty_support_leaves_the_intercept(loss: Loss, fit_intercept: bool) -> None:
    X, y = small_data(loss)
    problem = Problem(X, y, loss, 3, 0.1, fit_intercept=fit_intercept)
    fit = refit(problem, np.array([], dtype=np.int64))
    w, b, u = fit.w, fit.b, fit.u
    assert not np.any(w)
    np.testing.assert_array_equal(u, np.full(24, b))
    levels = np.linspace(y.min(), y.max(), 2001) if fit_intercept else [0.0]
    assert primal(problem, w, b) <= min(primal(problem, w, level) for level in levels) * (1 + 1e-14)


def test_duplicate_zero_and_constant_columns() -> None:
    for loss in LOSSES:
        X, y = small_data(loss)
        X = np.column_stack([X[:, 0], X[:, 0], np.zeros(24), np.full(24, 3.0), X[:, 1]])
        problem = Problem(X, y, loss, 5, 0.1, fit_intercept=True)
        fit = refit(problem, np.arange(5))
        w, b = fit.w, fit.b
        assert w[0] == pytest.approx(w[1], rel=1e-6, abs=1e-9)  # the ridge shares a weight among twins
        assert w[2] == w[3] == 0.0 or np.allclose(w[2:4], 0.0, atol=1e-12)
        twin = Problem(X[:, [0, 4]] * [np.sqrt(2), 1.0], y, loss, 2, 0.1, fit_intercept=True)
        assert primal(problem, w, b) == pytest.approx(refit(twin, np.arange(2)).objective, rel=1e-11)


@given(
    st.integers(0, 2**32), st.sampled_from(SMOOTH), st.booleans(), st.sampled_from([0.01, 1.0, 100.0]), st.floats(-2, 2)
)
def test_optimality_whatever_the_data(seed: int, loss: Loss, fit_intercept: bool, scale: float, log_lam: float) -> None:
    rng = np.random.default_rng(seed)
    n, d = rng.integers(3, 40), rng.integers(1, 6)
    X = scale * rng.standard_normal((n, d))
    y = targets(loss, X @ rng.standard_normal(d), rng)
    problem = Problem(X, y, loss, int(d), 10.0**log_lam * scale, fit_intercept=fit_intercept)
    fit = refit(problem, np.arange(d))
    w, b = fit.w, fit.b
    objective = primal(problem, w, b)
    assert lower_bound(problem, dual_from_primal(problem, w, b)).value >= objective * (1 - 1e-8)


def dual_on_support(problem: Problem, w: np.ndarray, b: float) -> np.ndarray:
    """A dual point of a model: l'(u), where at a kink any value in F will do, those that satisfy the equations best."""
    X, loss, y, s = problem.design.toarray(), problem.loss, problem.y, problem.s
    u = X @ w + b
    alpha = np.asarray(loss.derivative(u, y), dtype=float).copy()
    kinked = (np.abs(u - y) <= 1e-7 * (1 + np.abs(y))) & (s > 0) if loss.mu == 0 else np.zeros(len(y), dtype=bool)
    if np.any(kinked):
        norms = np.sqrt(s @ X**2)
        norms[norms == 0] = 1.0
        A = np.column_stack([X / norms, np.full(len(y), float(problem.fit_intercept))])
        target = -np.append(problem.lam * w / norms, 0.0) - A[~kinked].T @ (s * alpha)[~kinked]
        low, high = loss.domain(y[kinked])
        c = s[kinked]
        alpha[kinked] = lsq_linear(A[kinked].T * c, target, (low, high), method="bvls", tol=1e-15).x
    return feasible(problem, alpha)


def assert_optimal(problem: Problem, rtol: float = 1e-10) -> None:
    """Refit on all features, and prove it by the duality gap, which closes there."""
    fit = refit(problem, np.arange(problem.shape[1]))
    w, b, u = fit.w, fit.b, fit.u
    objective = primal(problem, w, b, u)
    np.testing.assert_allclose(u, problem.design.matvec(w) + b, rtol=1e-12, atol=1e-12 * np.abs(u).max())
    assert lower_bound(problem, dual_on_support(problem, w, b)).value >= objective * (1 - rtol)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_any_strength_of_the_ridge(loss: Loss, fit_intercept: bool) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 4))
    y = targets(loss, X @ rng.standard_normal(4), rng)
    weights = some_weights(40)
    weights[[0, -1]] = 1.0
    for lam in (1e-6, 1e-4, 1e-2, 1.0, 1e2):
        assert_optimal(Problem(X, y, loss, 4, lam, weights, fit_intercept))


def independent(problem: Problem) -> float:
    """The objective of the best model of all features by scipy's general methods, columns scaled to norm one."""
    X = problem.design.toarray()
    norms = np.sqrt(problem.s @ np.square(X))
    Z = np.hstack([X / np.where(norms > 0, norms, 1.0), np.full((len(X), int(problem.fit_intercept)), 1.0)])
    ridge = np.append(problem.lam / np.where(norms > 0, norms, 1.0) ** 2, [0.0] * int(problem.fit_intercept))
    if problem.loss.name == "squared":
        root = np.sqrt(problem.s)
        A = np.vstack([root[:, None] * Z, np.diag(np.sqrt(0.5 * ridge))])
        z = np.linalg.lstsq(A, np.append(root * problem.y, np.zeros(Z.shape[1])))[0]
    elif problem.loss.name == "hinge":
        z = _hinge(problem, Z, ridge)
    else:
        z = _quasi_newton(problem, Z, ridge)
    d = problem.shape[1]
    w = z[:d] / np.where(norms > 0, norms, 1.0)
    return primal(problem, w, float(z[-1]) if problem.fit_intercept else 0.0)


def _quasi_newton(problem: Problem, Z: Vector, ridge: Vector) -> Vector:
    def value_and_slope(z: Vector) -> tuple[float, Vector]:
        u = Z @ z
        value = float(problem.s @ problem.loss.value(u, problem.y) + 0.5 * ridge @ np.square(z))
        return value, Z.T @ (problem.s * problem.loss.derivative(u, problem.y)) + ridge * z

    options = {"ftol": 1e-16, "gtol": 1e-13, "maxiter": 5000, "maxfun": 20_000}
    return np.asarray(minimize(value_and_slope, np.zeros(Z.shape[1]), jac=True, method="L-BFGS-B", options=options).x)


def _hinge(problem: Problem, Z: Vector, ridge: Vector) -> Vector:
    """A quadratic program: slack variables above zero and above 1 - y u."""
    n, m = Z.shape
    s, y = problem.s, problem.y
    forms = np.hstack([y[:, None] * Z, np.eye(n)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = minimize(
            lambda x: (0.5 * ridge @ np.square(x[:m]) + s @ x[m:], np.append(ridge * x[:m], s)),
            np.append(np.zeros(m), np.ones(n)),
            jac=True,
            method="SLSQP",
            bounds=[(None, None)] * m + [(0.0, None)] * n,
            constraints={"type": "ineq", "fun": lambda x: forms @ x - 1.0, "jac": lambda x: forms},
            options={"maxiter": 300, "ftol": 1e-14},
        )
    return np.asarray(result.x[:m])


def assert_best_of_two(problem: Problem) -> None:
    """Where the rounding of its bound hides the optimum: as good as scipy's methods on columns of norm one."""
    objective = refit(problem, np.arange(problem.shape[1])).objective
    assert objective <= independent(problem) * (1 + 1e-10)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e3, 1e8])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_any_scale_of_the_data(loss: Loss, scale: float, fit_intercept: bool) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, 4))
    y = targets(loss, X @ rng.standard_normal(4), rng)
    for lam in (1e-6, 1e2):
        problem = Problem(scale * X, y, loss, 4, lam, fit_intercept=fit_intercept)
        assert_best_of_two(problem)
        same = Problem(X, y, loss, 4, lam / scale**2, fit_intercept=fit_intercept)
        objectives = [refit(p, np.arange(4)).objective for p in (problem, same)]
        assert objectives[0] == pytest.approx(objectives[1], rel=1e-10)
    if loss.task == "regression":
        assert_best_of_two(Problem(scale * X, scale * y, loss, 4, 1e-2, fit_intercept=fit_intercept))


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_columns_of_unlike_scales(loss: Loss, fit_intercept: bool) -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((25, 3))
    y = targets(loss, X @ np.ones(3), rng)
    for spread in ([1e-3, 1.0, 1e3], [1e2, 30.0, 3e2], [1e-6, 1.0, 1e6]):
        assert_best_of_two(Problem(X * spread, y, loss, 3, 2e-6, None, fit_intercept))


def test_a_hinge_on_large_columns_with_hardly_any_ridge() -> None:
    X = np.tile([5494.96, 631.65, 9420.57], (25, 1))  # most rows are the same
    X[[0, 1, 11, 17, 20, 22], 0] = 5514.75, 3025.26, 4111.32, 5214.4, 5583.2, 5789.69
    X[[4, 6, 11, 15, 19, 24], 1] = 1305.74, 143.63, 45.79, 1000.7, 157.0, 525.53
    X[[0, 1, 2, 3, 7], 2] = 9932.22, 9338.96, 8749.68, 9317.3, 9073.38
    X[[11, 12, 14, 19, 24], 2] = 9848.16, 9914.94, 9682.15, 9259.05, 9532.81
    y = np.ones(25)
    y[[1, 2, 3, 7, 19]] = -1.0
    weights = [
        966,
        1167,
        0,
        893,
        686,
        250,
        586,
        530,
        77,
        282,
        500,
        1170,
        33,
        50,
        354,
        1095,
        231,
        616,
        80,
        0,
        9,
        0,
        269,
        25,
        130,
    ]
    problem = Problem(X, y, Hinge(), 3, 1.6e-6, weights)
    fit = refit(problem, np.arange(3))
    w, b = fit.w, fit.b
    assert primal(problem, w, b) == pytest.approx(0.41983146, rel=1e-7)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_duplicate_rows_and_many_samples_at_kinks(loss: Loss, fit_intercept: bool) -> None:
    rng = np.random.default_rng(8)
    X = np.repeat(np.round(2 * rng.standard_normal((6, 2))), 5, axis=0)
    y = targets(loss, X @ np.ones(2), rng)
    if loss.task == "classification":
        y = np.repeat(y[::5], 5)
        y[:3] = -y[:3]
    for lam in (1e-5, 0.1, 10.0):
        problem = Problem(X, y, loss, 2, lam, fit_intercept=fit_intercept)
        assert_optimal(problem)
        # A row that occurs five times is a row with five times the weight.
        if loss.task == "classification":
            rows, index = np.unique(np.column_stack([X, y]), axis=0, return_inverse=True)
            merged = Problem(rows[:, :2], rows[:, 2], loss, 2, lam, np.bincount(index.ravel()), fit_intercept)
            objective = refit(problem, np.arange(2)).objective
            assert refit(merged, np.arange(2)).objective == pytest.approx(objective, rel=1e-11)


def test_samples_without_weight_have_no_part_in_it() -> None:
    for loss in LOSSES:
        X, y = small_data(loss)
        weights = some_weights(24)
        X[weights == 0] *= 1e6
        seen = weights > 0
        for fit_intercept in (False, True):
            whole = Problem(X, y, loss, 7, 0.01, weights, fit_intercept)
            part = Problem(X[seen], y[seen], loss, 7, 0.01, weights[seen], fit_intercept)
            fit = refit(whole, np.arange(7))
            w, b, u = fit.w, fit.b, fit.u
            expected = refit(part, np.arange(7))
            assert primal(whole, w, b) == pytest.approx(expected.objective, rel=1e-11)
            assert len(u) == 24


def test_a_long_step_is_not_the_last_one() -> None:
    """Classes that a plane separates: steps grow until margins are in the hundreds, where the Hessian before them says nothing."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((int(rng.integers(15, 60)), 3))
        y = np.where(X.sum(axis=1) + 0.3 * rng.standard_normal() > 0.0, 1.0, -1.0)
        problem = Problem(X, y, "logistic", 3, 10.0 ** rng.uniform(-13, -10), None, True)
        fit = refit(problem, np.arange(3), np.zeros(3), 0.0, 1e-9)
        shorter = [primal(problem, c * fit.w, c * fit.b) for c in np.linspace(0.05, 0.999, 60)]
        assert min(shorter) >= fit.objective * (1 - 1e-8)


def test_separable_samples_with_hardly_any_ridge() -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((50, 3))
    y = np.sign(X @ [1.0, -2.0, 0.5] + 0.1)
    for loss in LOSSES:
        if loss.task == "classification":
            for fit_intercept in (False, True):
                assert_optimal(Problem(X, y, loss, 3, 1e-6, fit_intercept=fit_intercept), 1e-8)


@dataclass(frozen=True)
class OwnHinge(Hinge):
    """The hinge as a user would write it, of which no more is known than its formulas."""

    name = "own"
    pieces = None


@dataclass(frozen=True)
class OwnHuber(Huber):
    name = "own"
    pieces = None


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(("own", "ours"), [(OwnHinge(), Hinge()), (OwnHuber(), Huber())], ids=["hinge", "huber"])
def test_losses_of_ones_own(own: Loss, ours: Loss, fit_intercept: bool) -> None:
    for lam in (1e-3, 1.0):
        objectives = []
        for loss in (own, ours):
            problem, _ = on_support(loss, True, fit_intercept, lam)
            objectives.append(refit(problem, SUPPORT).objective)
        assert objectives[0] == pytest.approx(objectives[1], rel=1e-9)


def test_a_rough_fit_is_as_good_as_it_says() -> None:
    for loss in LOSSES:
        problem, _ = on_support(loss, True, True, 1e-3)
        objective = refit(problem, SUPPORT).objective
        for rtol in (1e-2, 1e-6):
            rough = refit(problem, SUPPORT, rtol=rtol).objective
            assert objective * (1 - 1e-12) <= rough <= objective * (1 + 2 * rtol)


@pytest.mark.parametrize("base", [Hinge(), Huber(delta=2.0)])
def test_the_moreau_envelope(base: Loss) -> None:
    u = np.linspace(-4, 4, 81)
    y = np.where(np.arange(81) % 2, 1.0, -1.0)
    grid = np.arange(-10_000, 10_001) / 5_000  # holds the ends of F
    for gamma in (0.1, 1.0):
        envelope = Moreau(base, gamma)
        dual = grid[:, None] * u - base.conjugate(grid[:, None], y) - gamma / 2 * grid[:, None] ** 2
        np.testing.assert_allclose(envelope.value(u, y), dual.max(axis=0), atol=1e-8)
        h = 1e-6
        slope = (envelope.value(u + h, y) - envelope.value(u - h, y)) / (2 * h)
        np.testing.assert_allclose(envelope.derivative(u, y), slope, atol=1e-5)
        assert envelope.mu == base.mu + gamma
        assert envelope.task == base.task
        code, mu, low, high = envelope.kernel()
        turned = base.task == "classification"
        assert (code, mu) == (0 if turned else 2, base.mu + gamma)
        ends = np.where(y > 0, low, -high) if turned else np.full(y.shape, low)
        np.testing.assert_array_equal(ends, np.broadcast_to(base.domain(y)[0], y.shape))


@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=str)
def test_a_stop_leaves_the_model_as_it_is(loss):
    X, y = small_data(loss)
    problem = Problem(X, y, loss, 3, 0.1)
    support, w = np.array([0, 2, 3]), np.array([0.5, 0.0, -0.5, 0.25, 0.0, 0.0, 0.0])
    fit = refit(problem, support, w, stop=lambda: True)
    stopped, u = fit.w, fit.u
    fit = refit(problem, support, w)
    best = fit.w
    assert primal(problem, best) <= primal(problem, stopped) <= primal(problem, w) * (1 + 1e-12)
    np.testing.assert_allclose(u, X @ stopped, atol=1e-12)


@pytest.mark.parametrize("kind", ["normal", "binary", "sorted", "weighted", "far"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "smoothed_hinge", "quantile(q=0.9)"])
def test_many_samples_are_fitted_to_a_closed_gap(loss, kind):
    """Of many samples a few are seen one by one, or Newton's method ends the work: the dual point proves the model, in numpy."""
    rng = np.random.default_rng(len(kind))
    n, lam = 12_000, 1e-3
    X = rng.standard_normal((n, 3))
    if kind == "binary":
        X = (X > 0.5).astype(float)
    if kind == "far":
        X = 30.0 * X + 5.0
    score = X @ np.array([1.0, -0.5, 0.2]) + 0.5
    y = score + rng.standard_normal(n) if loss.startswith("q") else np.where(score > rng.logistic(size=n), 1.0, -1.0)
    order = np.argsort(y) if kind == "sorted" else np.arange(n)
    weights = rng.choice([0.0, 1.0, 5.0], n) if kind == "weighted" else None
    problem = Problem(X[order], y[order], loss, k=3, lam=lam, sample_weight=weights, fit_intercept=True)
    fit = refit(problem, np.arange(3), rtol=1e-10)
    exact = refit(problem, np.arange(3))
    assert abs(fit.objective - exact.objective) <= 1e-9 * exact.objective
    end = problem.samples.central_path(problem.loss.pieces, lam, True, 1e-10)
    alpha, s = end.alpha, problem.samples.s
    low, high = problem.loss.domain(problem.samples.y)
    assert np.all((alpha >= low) & (alpha <= high))
    assert abs(s @ alpha) <= 1e-9
    pull = problem.samples.pull(alpha)
    dual = -s @ problem.loss.conjugate(alpha, problem.samples.y) - pull @ pull / (2.0 * lam)
    assert dual <= exact.objective * (1.0 + 1e-9)
    assert exact.objective - dual <= 1e-8 * exact.objective


def test_an_ascent_that_is_too_slow_for_its_epochs_is_left_to_newton(monkeypatch) -> None:
    """Rare columns of large entries under a weak ridge: the gap falls by a small share an epoch."""
    rng = np.random.default_rng(0)
    X = csr_array((rng.random((4000, 60)) < 0.02) * rng.uniform(1.0, 30.0, 60))
    y = np.where(X @ rng.standard_normal(60) + rng.standard_normal(4000) > 0.0, 1.0, -1.0)
    problem, support = Problem(X, y, "squared_hinge", 60, 1e-5, None, True), np.arange(60)
    epochs, epoch = [], CoordinateAscent.epoch
    monkeypatch.setattr(CoordinateAscent, "epoch", lambda ascent: (epochs.append(1), epoch(ascent))[1])
    found = refit(problem, support, rtol=1e-9)
    assert 0 < len(epochs) < 100
    monkeypatch.setattr("diht.refit._SHORT_FAST", np.inf)
    assert found.objective == pytest.approx(refit(problem, support, rtol=1e-9).objective, rel=1e-8)


@pytest.mark.parametrize("loss", [Huber(), SmoothedHinge(), SquaredHinge()], ids=str)
@pytest.mark.parametrize("steps", [1, 20])
def test_a_model_near_by_is_the_start_of_few_steps(loss: Loss, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where these do not lead to the optimum, another method does; where they do, none is asked."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 12))
    problem = Problem(X, targets(loss, X @ rng.standard_normal(12), rng), loss, 12, 1e-3, None, True)
    near, others = refit(problem, np.arange(12)), []
    interior = refit_module._interior
    monkeypatch.setattr(refit_module, "_FEW_STEPS", steps)
    monkeypatch.setattr(refit_module, "_interior", lambda *given: others.append(1) or interior(*given))
    support = np.arange(11)
    fit = refit(problem, support, near.w, near.b, 1e-11)
    assert len(others) == (steps == 1)
    assert fit.objective == pytest.approx(refit(problem, support).objective, rel=1e-11)
    far = refit(problem, support, 1e3 * rng.standard_normal(12), 10.0, 1e-11)
    assert far.objective == pytest.approx(fit.objective, rel=1e-11)

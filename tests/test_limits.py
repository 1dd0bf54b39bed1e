"""Limits of coefficients: every claim against the enumeration of all supports, each with a bounded minimiser of scipy's."""

from functools import cache
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import Bounds, lsq_linear, minimize
from scipy.special import xlogy

from cases import crossed
from diht import (
    Problem,
    SparseClassifier,
    SparseRegressor,
    SparseRegressorCV,
    bootstrap,
    certify,
    debiased,
    load_model,
    near_optimal,
    solve,
    sparse_path,
)
from diht.bounds.duality import dual, lower_bound, screen
from diht.bounds.shift import problem_gram, shifted_bound, shifted_ridges
from diht.constraints.base import Cardinality
from diht.constraints.groups import Structured, constrained
from diht.constraints.limits import Limits
from diht.design import row_blocks
from diht.losses import SmoothedHinge
from diht.refit import refit
from diht.relaxation.box import box_minimum
from diht.relaxation.perspective import central_point
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT, Relaxed
from diht.solvers.sweep import solve_path

D, N, GAMMA = 5, 14, SmoothedHinge().gamma
LOSSES = ("squared", "huber", "logistic", "smoothed_hinge", "squared_hinge", "hinge", "poisson")
LOWER = np.array([-0.3, 0.0, -1.0, -np.inf, -0.2])
UPPER = np.array([0.4, 0.7, 0.0, 0.5, np.inf])


# ---------------------------------------------------------------------------------------------------------------------
# The oracle, which shares no code with the package


def value_and_slope(loss: str, u: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    margin = 1.0 - y * u
    if loss == "squared":
        return (y - u) ** 2, 2.0 * (u - y)
    if loss == "huber":
        r = u - y
        return np.where(np.abs(r) <= 1.0, 0.5 * r * r, np.abs(r) - 0.5), np.clip(r, -1.0, 1.0)
    if loss == "logistic":
        return np.logaddexp(0.0, -y * u), -y / (1.0 + np.exp(y * u))
    if loss == "smoothed_hinge":
        bent = np.maximum(margin, 0.0) ** 2 / (2.0 * GAMMA)
        return np.where(margin > GAMMA, margin - 0.5 * GAMMA, bent), -y * np.clip(margin / GAMMA, 0.0, 1.0)
    if loss == "squared_hinge":
        return np.maximum(margin, 0.0) ** 2, -2.0 * y * np.maximum(margin, 0.0)
    assert loss == "poisson"
    return np.exp(u) - y * u - (y - xlogy(y, y)), np.exp(u) - y


def bounded_fit(
    loss: str, X: np.ndarray, y: np.ndarray, s: np.ndarray, lam: float, box: Bounds, fit_intercept: bool
) -> float:
    """The least objective within the limits that scipy finds: that of a model, so no less than the least."""
    m = X.shape[1]
    if loss == "hinge":
        return hinge_fit(X, y, s, lam, box, fit_intercept)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = value_and_slope(loss, X @ x[:m] + fit_intercept * x[m], y)
        gradient = np.append(X.T @ (s * slope) + lam * x[:m], fit_intercept * (s @ slope))
        return float(s @ value + 0.5 * lam * x[:m] @ x[:m]), gradient

    x, whole = np.zeros(m + 1), Bounds(np.append(box.lb, -np.inf), np.append(box.ub, np.inf))
    for _ in range(3):
        options = {"maxiter": 2000, "ftol": 1e-16, "gtol": 1e-13}
        x = minimize(objective, x, jac=True, bounds=whole, method="L-BFGS-B", options=options).x
    return objective(x)[0]


def hinge_fit(X: np.ndarray, y: np.ndarray, s: np.ndarray, lam: float, box: Bounds, fit_intercept: bool) -> float:
    """Do so for the hinge, with a variable for the loss of each sample."""
    n, m = X.shape
    A = np.hstack([y[:, None] * X, fit_intercept * y[:, None], np.eye(n)])
    whole = Bounds(np.concatenate([box.lb, [-np.inf], np.zeros(n)]), np.concatenate([box.ub, np.full(n + 1, np.inf)]))
    x = minimize(
        lambda x: s @ x[m + 1 :] + 0.5 * lam * x[:m] @ x[:m],
        np.concatenate([np.zeros(m + 1), np.ones(n)]),
        jac=lambda x: np.concatenate([lam * x[:m], [0.0], s]),
        bounds=whole,
        constraints={"type": "ineq", "fun": lambda x: A @ x - 1.0, "jac": lambda x: A},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-15},
    ).x
    w, b = np.clip(x[:m], box.lb, box.ub), fit_intercept * x[m]
    return float(s @ np.maximum(0.0, 1.0 - y * (X @ w + b)) + 0.5 * lam * w @ w)


@cache
def data(loss: str) -> tuple[np.ndarray, np.ndarray]:
    """A matrix with a column that is there twice, and targets that ask for more than the limits allow."""
    rng = np.random.default_rng(LOSSES.index(loss))
    X = rng.standard_normal((N, D))
    X[:, 4] = X[:, 0]
    u = X[:, :4] @ np.array([1.0, 0.9, -0.8, 0.5]) + 0.3
    if loss == "poisson":
        return X, rng.poisson(np.exp(np.clip(u, -3.0, 2.0))).astype(float)
    noisy = u + 0.3 * rng.standard_normal(N)
    return X, noisy if loss in ("squared", "huber") else np.where(noisy > np.median(noisy), 1.0, -1.0)


WEIGHTS = np.random.default_rng(1).integers(1, 5, N).astype(float)
SETTINGS = ((1, 0.3, True), (2, 0.01, False), (3, 0.05, True))  # k, lam, intercept


@cache
def values(loss: str, k: int, lam: float, fit_intercept: bool) -> dict[tuple[int, ...], float]:
    """The best objective on each support of k features."""
    X, y = data(loss)
    s, boxes = WEIGHTS / WEIGHTS.sum(), {S: Bounds(LOWER[[*S]], UPPER[[*S]]) for S in combinations(range(D), k)}
    return {S: bounded_fit(loss, X[:, S], y, s, lam, box, fit_intercept) for S, box in boxes.items()}


def optima(*case: object) -> tuple[float, np.ndarray, np.ndarray]:
    """The best objective, and the best of the models without and with a place for each feature."""
    found = values(*case)
    without = np.array([min((v for S, v in found.items() if j not in S), default=np.inf) for j in range(D)])
    within = np.array([min((v for S, v in found.items() if j in S), default=np.inf) for j in range(D)])
    return min(found.values()), without, within


def limited(loss: str, k: int, lam: float, fit_intercept: bool) -> Problem:
    X, y = data(loss)
    return Problem(X, y, loss, constrained(k, D, bounds=(LOWER, UPPER)), lam, WEIGHTS, fit_intercept)


# ---------------------------------------------------------------------------------------------------------------------
# Claims


@pytest.mark.parametrize(("loss", "setting"), crossed(LOSSES, SETTINGS))
def test_bounds_hold_and_the_exact_solver_finds_the_optimum(loss: str, setting: tuple) -> None:
    best, without, within = optima(loss, *setting)
    problem = limited(loss, *setting)
    for solver in ("auto", "branch"):
        result = solve(problem, solver, tol=1e-9)
        assert np.all((result.w >= LOWER) & (result.w <= UPPER))
        assert np.count_nonzero(result.w) <= setting[0]
        assert result.objective >= best * (1 - 1e-7)
        assert result.lower_bound <= best * (1 + 1e-9)
        assert result.certificate.bound.check(problem) >= result.lower_bound
        assert np.all(result.certificate.screening.without <= without * (1 + 1e-9))
        assert np.all(result.certificate.screening.within <= within * (1 + 1e-9))
    assert result.objective == pytest.approx(best, rel=1e-7)
    assert result.lower_bound == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_refit_finds_the_best_model_within_the_limits(loss: str) -> None:
    X, y = data(loss)
    problem = limited(loss, 3, 0.01, True)
    for support in ([0, 1], [0, 3, 4], [0, 1, 2]):
        fit = refit(problem, np.array(support))
        best = bounded_fit(
            loss, X[:, support], y, WEIGHTS / WEIGHTS.sum(), 0.01, Bounds(LOWER[support], UPPER[support]), True
        )
        assert fit.objective == pytest.approx(best, rel=1e-8)
        assert np.all((fit.w >= LOWER) & (fit.w <= UPPER))
        np.testing.assert_allclose(fit.u, problem.samples.margins(fit.w, fit.b), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "solver", [DIHT(), SDIHT(), IHT(), HTP(), SVRGHT(), Relaxed()], ids=lambda solver: type(solver).__name__
)
def test_every_method_keeps_to_the_limits_and_its_bound_holds(solver: object) -> None:
    for loss in ("squared", "smoothed_hinge"):
        best, _, _ = optima(loss, *SETTINGS[0])
        result = solve(limited(loss, *SETTINGS[0]), solver, max_iter=100)
        assert np.all((result.w >= LOWER) & (result.w <= UPPER))
        assert np.count_nonzero(result.w) <= SETTINGS[0][0]
        assert result.lower_bound <= best * (1 + 1e-9)
        assert result.objective >= best * (1 - 1e-7)


def test_every_point_of_a_path_keeps_to_the_limits_and_to_its_bound() -> None:
    for loss in ("squared", "logistic"):
        results = solve_path(limited(loss, 3, 1.0, True), (1, 2, 3), (0.01, 0.3))
        for (k, lam), result in results.items():
            best, _, _ = optima(loss, k, lam, True)
            assert np.all((result.w >= LOWER) & (result.w <= UPPER))
            assert best * (1 - 1e-7) <= result.objective <= best * (1 + 1e-6)
            assert result.lower_bound <= best * (1 + 1e-9)


def test_the_dual_of_any_point_is_a_bound() -> None:
    rng = np.random.default_rng(0)
    for loss in ("squared", "logistic", "hinge"):
        problem, (best, without, within) = limited(loss, *SETTINGS[1]), optima(loss, *SETTINGS[1])
        for _ in range(20):
            alpha = -problem.y * rng.random(N) if loss != "squared" else 3.0 * rng.standard_normal(N)
            bound = lower_bound(problem, alpha)
            assert dual(problem, alpha) <= best
            assert bound.value <= best
            screening = screen(problem, bound, problem.samples.pull(bound.alpha))
            assert np.all(screening.without <= without)
            assert np.all(screening.within <= within)


def test_the_shifted_bound_of_any_point_is_a_bound() -> None:
    rng = np.random.default_rng(0)
    for setting in SETTINGS:
        problem, (best, without, within) = limited("squared", *setting), optima("squared", *setting)
        ridges = shifted_ridges(problem, np.arange(D), problem_gram(problem))
        assert np.any(ridges > 0.6 * problem.lam)
        values = []
        for p in [refit(problem, np.arange(D)).w, *(0.3 * rng.standard_normal((20, D)))]:
            bound = shifted_bound(problem, p, ridges)
            assert bound.value <= best
            assert bound.check(problem) == pytest.approx(bound.value, rel=1e-9)
            screening = bound.screening(problem)
            assert np.all(screening.without <= without)
            assert np.all(screening.within <= within)
            values.append(bound.value)
        assert max(values) > 0.0


def test_all_models_near_the_best_are_listed() -> None:
    """The first and the last column are the same, and have different limits: they are no copies."""
    for loss in ("squared", "logistic"):
        found, listed = values(loss, 2, 0.05, True), near_optimal(limited(loss, 2, 0.05, True), 0.3)
        near = {S for S, value in found.items() if value <= 1.3 * min(found.values())}
        assert listed.complete
        assert {tuple(model.support.tolist()) for model in listed.models} == near


# ---------------------------------------------------------------------------------------------------------------------
# Special cases


def test_limits_that_nothing_comes_near_change_nothing() -> None:
    for loss in ("squared", "logistic", "hinge"):
        X, y = data(loss)
        plain = solve(Problem(X, y, loss, 2, 0.05, WEIGHTS, True), "branch", tol=1e-9)
        wide = solve(
            Problem(X, y, loss, constrained(2, D, bounds=(-1e3, 1e3)), 0.05, WEIGHTS, True), "branch", tol=1e-9
        )
        assert wide.support.tolist() == plain.support.tolist()
        assert wide.objective == pytest.approx(plain.objective, rel=1e-9)
        np.testing.assert_allclose(wide.w, plain.w, rtol=1e-6)


def test_infinite_limits_are_none() -> None:
    for bounds in (None, (None, None), (-np.inf, np.inf), Bounds(), (np.full(D, -np.inf), None)):
        assert constrained(2, D, bounds=bounds) == Cardinality(2)


def test_a_sign_is_a_limit_at_zero() -> None:
    X, y = data("logistic")
    results = [
        solve(Problem(X, y, "logistic", constrained(2, D, **given), 0.05, WEIGHTS, True))
        for given in (
            {"sign": 1},
            {"bounds": (0, np.inf)},
            {"bounds": Bounds(0.0, np.inf)},
            {"sign": 1, "bounds": (-1, None)},
        )
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(result.w, results[0].w)
        assert result.lower_bound == results[0].lower_bound
    both = constrained(2, D, sign=[1, -1, 0, 0, 0], bounds=(-1, 2))
    assert both.limits.lower.tolist() == [0, -1, -1, -1, -1]
    assert both.limits.upper.tolist() == [2, 0, 2, 2, 2]


def test_a_coefficient_without_room_is_zero() -> None:
    X, y = data("squared")
    for bounds in ((0.0, 0.0), (0, np.array([0, 0, 0, 0.1, 0]))):
        problem = Problem(X, y, "squared", constrained(2, D, bounds=bounds), 0.05, fit_intercept=True)
        result = solve(problem, "branch")
        assert result.status == "optimal"
        assert np.all(result.w[:3] == 0.0)


@pytest.mark.parametrize("exponents", [[-8] * 5, [8] * 5, [-8, -3, 0, 3, 8]], ids=str)
def test_limits_are_in_the_units_of_x(exponents: list[int]) -> None:
    X, y = data("squared")
    scale, given = 10.0 ** np.array(exponents), {"k": 2, "lam": 0.05, "exact": True}
    limits = LOWER / scale, UPPER / scale
    model = SparseRegressor(bounds=limits, **given).fit(scale * X, y)
    same = SparseRegressor(bounds=(LOWER, UPPER), **given).fit(X, y)
    assert np.all((model.coef_ >= limits[0]) & (model.coef_ <= limits[1]))
    assert np.any((same.coef_ == UPPER) & (UPPER > 0.0))  # rounding does not keep it from its limit
    np.testing.assert_allclose(scale * model.coef_, same.coef_, rtol=1e-6)
    assert model.objective_ == pytest.approx(same.objective_, rel=1e-9)
    assert model.lower_bound_ <= same.objective_ * (1 + 1e-9)
    assert model.certificate_.relative_gap <= 1e-6


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_without_standardisation(scale: float) -> None:
    X, y = data("squared")
    best, _, _ = optima("squared", 2, 0.05, True)
    constraint = constrained(2, D, bounds=(LOWER / scale, UPPER / scale))
    result = solve(Problem(scale * X, y, "squared", constraint, 0.05 * scale**2, WEIGHTS, True), "branch")
    assert np.all((result.w >= LOWER / scale) & (result.w <= UPPER / scale))
    assert result.objective == pytest.approx(best, rel=1e-8)
    assert result.lower_bound == pytest.approx(best, rel=1e-6)


def test_float32_is_rounded_towards_the_inside() -> None:
    X, y = data("squared")
    model = SparseRegressor(k=3, lam=0.01, bounds=(-0.1, 0.1)).fit(X.astype(np.float32), y)
    assert model.coef_.dtype == np.float32
    assert np.abs(model.coef_.astype(np.float64)).max() <= 0.1
    assert np.abs(model.coef_).max() == pytest.approx(0.1, rel=1e-6)


def test_groups_share_a_place_and_each_coefficient_has_its_limits() -> None:
    X, y = data("squared")
    groups, s = np.array([0, 0, 1, 1, 2]), np.full(N, 1.0 / N)
    best = min(
        bounded_fit("squared", X[:, S], y, s, 0.05, Bounds(LOWER[S], UPPER[S]), True) for S in ([0, 1], [2, 3], [4])
    )
    constraint = constrained(1, D, groups=groups, bounds=(LOWER, UPPER))
    result = solve(Problem(X, y, "squared", constraint, 0.05, None, True), "branch", tol=1e-9)
    assert constraint.allows(result.w)
    assert result.objective == pytest.approx(best, rel=1e-8)
    assert result.lower_bound == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_several_targets_have_limits_of_their_own_or_the_same(loss: str) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 4))
    Y = X[:, :2] @ rng.standard_normal((2, 3)) + 0.1 * rng.standard_normal((40, 3))
    lower, upper = np.array([[-0.2] * 4, [-0.5] * 4, [0.0] * 4]), 0.3
    if loss == "squared":
        model = SparseRegressor(k=2, lam=0.01, bounds=(lower, upper)).fit(X, Y)
    else:
        model = SparseClassifier(k=2, lam=0.01, bounds=(lower, upper)).fit(X, Y.argmax(axis=1))
    assert np.all((model.coef_ >= lower) & (model.coef_ <= upper))
    assert len(model.support_) <= 2
    assert model.gap_ >= 0.0
    shared = SparseRegressor(k=2, lam=0.01, bounds=(-0.1, 0.1)).fit(X, Y)
    assert np.abs(shared.coef_).max() == 0.1


# ---------------------------------------------------------------------------------------------------------------------
# Formulas


def random_limits(rng: np.random.Generator, d: int) -> Limits:
    lower, upper = -rng.exponential(size=d), rng.exponential(size=d)
    lower[rng.random(d) < 0.2], upper[rng.random(d) < 0.2] = 0.0, np.inf
    return Limits(lower, upper)


@pytest.mark.parametrize("grouped", [False, True])
def test_the_proximal_map_and_the_relaxation_are_those_of_the_dual(grouped: bool) -> None:
    """With v = (q - p) / r in the subdifferential at p, Omega(p) + value(v) / 2 = p.v; for others it is at least as large."""
    rng = np.random.default_rng(grouped)
    for _ in range(30):
        d = int(rng.integers(3, 9))
        unit = rng.permutation(np.append(np.arange(3), rng.integers(0, 3, d - 3))) if grouped else np.arange(d)
        constraint = Structured(Cardinality(int(rng.integers(1, 3))), unit, random_limits(rng, d))
        for r in (1e-6, 0.1, 1.0, 100.0):
            q = 3.0 * rng.standard_normal(d)
            p = constraint.prox(q, r)
            v, omega = (q - p) / r, constraint.relaxation(p)
            assert omega + 0.5 * constraint.value(v) - p @ v <= 1e-9 * (1.0 + omega + abs(p @ v))
            other = rng.standard_normal(d)
            assert omega + 0.5 * constraint.value(other) >= p @ other - 1e-9
            np.testing.assert_allclose(constraint.limits.times(constraint.places(p)).clipped(p), p, atol=1e-12)


def test_the_value_is_that_of_the_projection_and_changes_no_faster_than_the_norm() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        constraint = Structured(Cardinality(2), np.arange(6), random_limits(rng, 6))
        v, change = 2.0 * rng.standard_normal(6), rng.standard_normal(6)
        w, _ = constraint.threshold(v)
        assert constraint.allows(w)
        assert constraint.value(v) == pytest.approx(2.0 * w @ v - w @ w)
        best = max(sum(constraint.limits.energies(v)[[*support]]) for support in combinations(range(6), 2))
        assert constraint.value(v) == pytest.approx(best)
        reach = np.sqrt(constraint.value(v)) + np.sqrt(constraint.unlimited.value(change))
        assert np.sqrt(constraint.value(v + change)) <= reach * (1 + 1e-12)
        drop, add = constraint.forcing(v)
        for j in range(6):
            energies = constraint.limits.energies(v)
            others = np.sort(np.delete(energies, j))[::-1]
            assert drop[j] == pytest.approx(best - others[:2].sum(), abs=1e-12)
            assert add[j] == pytest.approx(best - energies[j] - others[0], abs=1e-12)


def test_multiples_of_limits() -> None:
    limits = Limits(np.array([-1.0, 0.0, -np.inf]), np.array([2.0, np.inf, 0.0]))
    turned = limits.times(-0.5)
    assert turned.lower.tolist() == [-1.0, -np.inf, 0.0]
    assert turned.upper.tolist() == [0.5, 0.0, np.inf]
    assert limits.times(1e-320).upper[0] > 0.0  # a limit that underflows would be a smaller set
    assert limits.times(np.array([1.0, 0.0, 0.0])).lower.tolist() == [-1.0, 0.0, -np.inf]


def test_a_quadratic_within_limits() -> None:
    rng = np.random.default_rng(2)
    for d in (1, 3, 12):
        A, y = rng.standard_normal((20, d)), rng.standard_normal(20)
        limits = Limits(-0.1 * rng.random(d), 0.1 * rng.random(d))
        x = box_minimum(A.T @ A, A.T @ y, limits, np.zeros(d))
        known = lsq_linear(A, y, (limits.lower, limits.upper), method="bvls", tol=1e-15).x
        np.testing.assert_allclose(x, known, atol=1e-10)


@pytest.mark.parametrize("grouped", [False, True])
def test_the_interior_point_method_solves_the_relaxation(grouped: bool) -> None:
    rng, lam = np.random.default_rng(4), 0.1
    A, y = rng.standard_normal((30, 8)), rng.standard_normal(30)
    H, h = A.T @ A, A.T @ y
    constraint = Structured(
        Cardinality(2), np.arange(8) // 2 if grouped else np.arange(8), random_limits(rng, 8).times(0.1)
    )
    dual_side = constraint.times(lam)

    def gap(p: np.ndarray) -> float:
        c = h - H @ p
        return lam * constraint.relaxation(p) - p @ c + dual_side.value(c) / (2.0 * lam)

    assert gap(central_point(H, h, constraint, lam, gap, 1e-9)) <= 1e-9


# ---------------------------------------------------------------------------------------------------------------------
# What users meet


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((0.1, 1.0), r"bounds must hold zero, .* got lower limit 0.1 at position 0"),
        ((-1.0, [1.0, 1.0, -0.5, 1.0, 1.0]), r"bounds must hold zero, .* got upper limit -0.5 at position 2"),
        ((-1.0, [1.0, 1.0]), r"bounds must hold one number, or one for each of the 5 features, got shape \(2,\)"),
        (1.0, r"bounds must be a pair \(lower, upper\)"),
        ((0, 1, 2), r"bounds must be a pair \(lower, upper\)"),
        ((np.nan, 1.0), r"bounds must not be NaN, got one at position 0"),
        (("low", "high"), r"bounds must be numeric, got 'low'"),
        ((np.zeros((2, 5)), np.ones((3, 5))), r"bounds must have one row, or the same number .*, got 2 and 3"),
        ((np.zeros((2, 5)), 1.0), r"bounds must have one row, or 1 for as many targets, got 2 rows"),
        ({7: (0, 1)}, r"bounds must hold indices from 0 to 4, got 7"),
        ({0: 1.0}, r"bounds must be a pair \(lower, upper\)"),
        ({"a": (0, 1)}, r"bounds holds names, but X has none"),
    ],
)
def test_bad_bounds_are_refused_in_a_line(bounds: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        SparseRegressor(k=2, bounds=bounds).fit(*data("squared"))
    assert "\n" not in str(caught.value)


def test_a_model_beyond_the_limits_is_not_certified() -> None:
    problem = limited("squared", 2, 0.05, True)
    with pytest.raises(
        ValueError, match=r"^w must have at most 2 features, within the limits given, got 0\.6 at position 0$"
    ):
        certify(problem, [0.6, 0, 0, 0, 0])
    assert certify(problem, [0.4, 0.7, 0, 0, 0]).lower_bound <= optima("squared", 2, 0.05, True)[0]


def test_models_without_a_ridge_and_of_resamples_keep_to_the_limits() -> None:
    X, y = data("squared")
    model = SparseRegressor(k=3, lam=0.05, bounds=(LOWER, UPPER)).fit(X, y)
    free = debiased(model, X, y)
    assert np.all((free.coef_ >= LOWER) & (free.coef_ <= UPPER))
    assert np.mean((y - free.predict(X)) ** 2) < np.mean((y - model.predict(X)) ** 2)
    for reselect in (False, True):
        drawn = bootstrap(model, X, y, n_resamples=5, reselect=reselect, random_state=0)
        of = drawn.feature >= 0
        coef, at = drawn.samples[:, of], drawn.feature[of]
        assert np.all((coef >= LOWER[at]) & (coef <= UPPER[at]))


@pytest.mark.parametrize("loss", ["squared", "hinge"])
def test_rows_in_blocks_have_the_same_optimum(loss: str) -> None:
    X, y = data(loss)
    constraint = constrained(2, D, bounds=(LOWER, UPPER))
    result = solve(Problem(row_blocks([X[:5], X[5:9], X[9:]]), y, loss, constraint, 0.01, WEIGHTS), "branch", tol=1e-9)
    assert result.objective == pytest.approx(optima(loss, 2, 0.01, False)[0], rel=1e-7)
    assert constraint.allows(result.w)


def test_bounds_of_named_features_in_models_paths_and_files(tmp_path: object) -> None:
    X, y = data("squared")
    frame = pd.DataFrame(X, columns=list("abcde"))
    bounds = {"a": (-0.3, 0.4), "b": (None, 0.7), "c": (-1, 0)}
    model = SparseRegressor(k=2, lam=0.05, bounds=bounds).fit(frame, y)
    lower, upper = np.array([-0.3, -np.inf, -1, -np.inf, -np.inf]), np.array([0.4, 0.7, 0, np.inf, np.inf])
    same = SparseRegressor(k=2, lam=0.05, bounds=(lower, upper)).fit(X, y)
    np.testing.assert_allclose(model.coef_, same.coef_, rtol=1e-12)
    path = sparse_path(frame, y, ks=[1, 2], lams=0.05, bounds=bounds)
    assert path.point(2).objective == pytest.approx(model.objective_, rel=1e-6)
    chosen = SparseRegressorCV(ks=[1, 2], lams=[0.05], cv=3, bounds=bounds).fit(frame, y)
    assert np.all((chosen.coef_ >= lower) & (chosen.coef_ <= upper))
    file = f"{tmp_path}/model.json"
    model.to_json(file)
    again = load_model(file)
    assert again.saved_.structure.limits == ((-0.3, None, -1.0, None, None), (0.4, 0.7, 0.0, None, None))
    np.testing.assert_array_equal(again.bounds, (lower, upper))
    again.to_json(file)
    assert load_model(file).saved_.structure == again.saved_.structure

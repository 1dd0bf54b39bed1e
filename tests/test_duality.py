"""The sparse duality theory, sample by sample and in exact arithmetic: no bound is ever false."""

from dataclasses import dataclass
from itertools import combinations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from cases import LOSSES
from diht import Problem, certify, solve
from diht.bounds.duality import (
    dual,
    dual_from_primal,
    feasible,
    gap,
    gap_bound,
    lagrangian,
    lower_bound,
    margin,
    primal,
    primal_from_dual,
    saddle_point,
    stability_radius,
)
from diht.losses import Hinge, Loss, Squared
from diht.refit import refit
from diht.solvers import DIHT
from oracle import best_subset, clear_data, exact_dual, exactly_balanced, small_data, some_weights, targets

NAMES = [loss.name for loss in LOSSES]
K, LAM = 3, 0.1


def small_problem(
    loss: Loss, k: int = K, lam: float = LAM, weighted: bool = False, fit_intercept: bool = False
) -> Problem:
    X, y = small_data(loss)
    return Problem(X, y, loss, k, lam, some_weights(len(y)) if weighted else None, fit_intercept)


def random_pair(problem: Problem, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """A k-sparse w, a feasible alpha and a b that have nothing to do with each other."""
    w, _ = problem.constraint.threshold(rng.standard_normal(problem.shape[1]))
    b = float(rng.standard_normal()) if problem.fit_intercept else 0.0
    return w, feasible(problem, rng.standard_normal(problem.shape[0])), b


SETTINGS = [(loss, weighted, intercept) for loss in LOSSES for weighted in (False, True) for intercept in (False, True)]
IDS = [f"{loss.name}{'-weights' * weighted}{'-intercept' * intercept}" for loss, weighted, intercept in SETTINGS]
settings_of = pytest.mark.parametrize(("loss", "weighted", "fit_intercept"), SETTINGS, ids=IDS)


# ---------------------------------------------------------------------------------------------------------------------
# The formulas


@settings_of
def test_the_dual_is_the_least_lagrangian(loss: Loss, weighted: bool, fit_intercept: bool) -> None:
    problem = small_problem(loss, 2, LAM, weighted, fit_intercept)
    rng = np.random.default_rng(0)
    X, y = small_data(loss)
    for _ in range(5):
        w, alpha, b = random_pair(problem, rng)
        # min over the models on each support in closed form, without any code of the library
        v = -(problem.s * alpha) @ (X - (problem.center if fit_intercept else 0.0)) / LAM
        least = min(-LAM / 2 * float(np.sum(v[list(F)] ** 2)) for F in combinations(range(7), 2))
        value = least - float(problem.s @ loss.conjugate(alpha, y))
        assert dual(problem, alpha) == pytest.approx(value, rel=1e-12, abs=1e-14)
        assert dual(problem, alpha) <= lagrangian(problem, w, alpha, b) + 1e-13
        assert lagrangian(problem, w, alpha, b) <= primal(problem, w, b) + 1e-13
        nearest, best_b = primal_from_dual(problem, alpha)
        assert lagrangian(problem, nearest, alpha, best_b) == pytest.approx(value, rel=1e-12, abs=1e-13)
        for rival in (best_b - 0.1, best_b + 0.1) if fit_intercept else ():
            assert primal(problem, nearest, best_b) <= primal(problem, nearest, rival) * (1 + 1e-15)
        assert np.count_nonzero(nearest) <= 2


@settings_of
def test_gap_is_primal_less_dual_and_a_sum_of_terms_that_cannot_be_negative(
    loss: Loss, weighted: bool, fit_intercept: bool
) -> None:
    problem = small_problem(loss, K, LAM, weighted, fit_intercept)
    rng = np.random.default_rng(1)
    for _ in range(5):
        w, alpha, b = random_pair(problem, rng)
        size = primal(problem, w, b) + abs(dual(problem, alpha))
        assert gap(problem, w, alpha, b) == pytest.approx(
            primal(problem, w, b) - dual(problem, alpha), abs=1e-13 * size
        )
        point = saddle_point(problem, w, alpha, b)
        assert point.fenchel >= 0.0
        assert point.ridge >= 0.0


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_the_gap_lemma(loss: Loss) -> None:
    """At w = H_k(v) the ridge's part of the gap is zero."""
    problem = small_problem(loss)
    rng = np.random.default_rng(2)
    for _ in range(5):
        _, alpha, _ = random_pair(problem, rng)
        w, _ = primal_from_dual(problem, alpha)
        u = problem.design.matvec(w)
        fenchel = loss.value(u, problem.y) + loss.conjugate(alpha, problem.y) - alpha * u
        assert np.all(fenchel >= -1e-14 * (1 + np.abs(alpha * u)))
        assert gap(problem, w, alpha) == pytest.approx(float(problem.s @ fenchel), rel=1e-12)
        assert saddle_point(problem, w, alpha).ridge <= 1e-15 * LAM * float(w @ w)
        assert saddle_point(problem, w, alpha).distance <= 1e-15


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.explicit], ids=[x.name for x in LOSSES if x.explicit])
def test_the_papers_bound_on_the_gap(loss: Loss) -> None:
    for weighted in (False, True):
        problem = small_problem(loss, weighted=weighted)
        rng = np.random.default_rng(3)
        for _ in range(10):
            _, alpha, _ = random_pair(problem, rng)
            w, _ = primal_from_dual(problem, alpha)
            assert gap_bound(problem, alpha) >= gap(problem, w, alpha) * (1 - 1e-12)
    with pytest.raises(ValueError, match="without an intercept"):
        gap_bound(small_problem(loss, fit_intercept=True), alpha)


@dataclass(frozen=True)
class Wrong(Loss):
    """Half the squared loss, with the conjugate of the whole."""

    name = "wrong"
    mu = 1.0

    def value(self, u, y):
        return (y - u) ** 2 / 2

    def derivative(self, u, y):
        return u - y

    def conjugate(self, a, y):
        return a * a / 4 + y * a

    def conjugate_derivative(self, a, y):
        return a / 2 + y

    def domain(self, y):
        return -np.inf, np.inf


def test_a_loss_that_disagrees_with_its_conjugate_raises() -> None:
    problem = Problem(*small_data(Squared()), Wrong(), K, LAM)
    with pytest.raises(ArithmeticError, match=r"negative gap term .*: the loss and its conjugate disagree"):
        gap(problem, np.zeros(7), np.asarray(Wrong().derivative(np.zeros(24), problem.y)))
    with pytest.raises(ArithmeticError, match="the loss and its conjugate disagree"):
        solve(problem, DIHT(), tol=0.0, max_iter=500)


# ---------------------------------------------------------------------------------------------------------------------
# From a model to a dual point and back


@settings_of
def test_the_dual_point_of_a_model_is_feasible(loss: Loss, weighted: bool, fit_intercept: bool) -> None:
    problem = small_problem(loss, K, LAM, weighted, fit_intercept)
    rng = np.random.default_rng(4)
    for scale in (1e-3, 1.0, 1e3):
        w, _, b = random_pair(problem, rng)
        alpha = dual_from_primal(problem, scale * w, b)
        assert np.all(np.isfinite(loss.conjugate(alpha, problem.y)))
        if fit_intercept:
            assert abs(problem.s @ alpha) <= 1e-12 * max(1.0, float(problem.s @ np.abs(alpha)))
        else:
            np.testing.assert_array_equal(alpha, loss.derivative(problem.design.matvec(scale * w), problem.y))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_the_dual_point_of_the_optimum_closes_the_gap(loss: Loss, fit_intercept: bool, weighted: bool) -> None:
    problem = small_problem(loss, 7, LAM, weighted, fit_intercept)
    fit = refit(problem, np.arange(7))
    w, b = fit.w, fit.b
    alpha = dual_from_primal(problem, w, b)
    objective = primal(problem, w, b)
    assert gap(problem, w, alpha, b) <= 1e-11 * objective
    point = saddle_point(problem, w, alpha, b)
    assert point.distance <= 1e-5 * np.linalg.norm(w)
    again, again_b = primal_from_dual(problem, alpha)
    np.testing.assert_allclose(again, w, atol=1e-5 * np.abs(w).max())
    assert primal(problem, again, again_b) == pytest.approx(objective, rel=1e-9)


def test_the_hinges_dual_point_of_a_model_without_features() -> None:
    # All samples of a class sit at the kink, and their subgradients must cancel every feature.
    problem = Problem([[0.0, 1.0], [0.0, -1.0], [0.5, 0.0]], [1, 1, -1], Hinge(), 1, 0.1, fit_intercept=True)
    fit = refit(problem, np.arange(2))
    w, b = fit.w, fit.b
    assert lower_bound(problem, dual_from_primal(problem, np.zeros(2))).value <= primal(problem, w, b)
    zero = Problem([[1.0], [-1.0], [0.0]], [1, 1, -1], Hinge(), 1, 0.1, fit_intercept=True)
    alpha = dual_from_primal(zero, np.zeros(1))
    assert lower_bound(zero, alpha).value == pytest.approx(2 / 3, rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_feasible_keeps_what_is_feasible_and_moves_the_rest(loss: Loss) -> None:
    for fit_intercept in (False, True):
        problem = small_problem(loss, weighted=True, fit_intercept=fit_intercept)
        far = feasible(problem, 10 * np.random.default_rng(5).standard_normal(24))
        assert np.all(np.isfinite(loss.conjugate(far, problem.y)))
        np.testing.assert_allclose(feasible(problem, far), far, atol=1e-13 * (1 + np.abs(far).max()))


# ---------------------------------------------------------------------------------------------------------------------
# Saddle points


def solved(loss: Loss, weighted: bool = False) -> tuple[Problem, np.ndarray, np.ndarray]:
    """A problem whose gap closes: strong ridge, and features that stand out; its optimal pair."""
    problem = Problem(*clear_data(loss), loss, 2, 1.0, some_weights(40) if weighted else None)
    result = solve(problem, DIHT(), tol=1e-13, max_iter=20_000)
    assert result.gap <= 1e-9 * result.objective
    fit = refit(problem, result.support)
    w = fit.w
    return problem, w, dual_from_primal(problem, w)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "loss", [loss for loss in LOSSES if loss.mu > 0], ids=[loss.name for loss in LOSSES if loss.mu > 0]
)
def test_the_saddle_point_theorem(loss: Loss, weighted: bool) -> None:
    problem, w, alpha = solved(loss, weighted)
    objective = primal(problem, w)
    # The three conditions hold, (a) by brute force.
    assert objective == pytest.approx(best_subset(problem).objective, rel=1e-12)
    point = saddle_point(problem, w, alpha)
    assert max(point.fenchel, point.ridge) <= 1e-12 * objective
    assert point.distance <= 1e-6 * np.linalg.norm(w)
    # So the pair is a saddle point: L(w, a) <= L(w, alpha) <= L(z, alpha) for all a in F and all k-sparse z.
    value = lagrangian(problem, w, alpha)
    assert value == pytest.approx(objective, rel=1e-11)
    rng = np.random.default_rng(7)
    for size in (1e-3, 0.1, 10.0):
        for _ in range(10):
            other = feasible(problem, alpha + size * rng.standard_normal(len(alpha)))
            assert lagrangian(problem, w, other) <= value + 1e-12 * objective
            z, _ = problem.constraint.threshold(w + size * rng.standard_normal(len(w)))
            assert lagrangian(problem, z, alpha) >= value - 1e-12 * objective


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "loss", [loss for loss in LOSSES if loss.mu > 0], ids=[loss.name for loss in LOSSES if loss.mu > 0]
)
def test_margin_and_stability_radius(loss: Loss, weighted: bool) -> None:
    problem, w, alpha = solved(loss, weighted)
    X = problem.design.toarray()
    slope = X.T @ (problem.s * loss.derivative(X @ w, problem.y)) + problem.lam * w
    eps = np.abs(w[w != 0]).min() - np.abs(slope).max() / problem.lam
    assert eps > 0  # else nothing is tested here
    assert margin(problem, w) == pytest.approx(eps, rel=1e-9)
    assert margin(problem, w, alpha=alpha) == pytest.approx(eps, rel=1e-9)
    radius = stability_radius(problem, eps)
    sigma = np.linalg.norm(np.sqrt(problem.s)[:, None] * X, 2)
    exact = problem.lam * eps / (2 * sigma * np.sqrt(problem.s.max()))
    assert 0.25 * exact <= radius <= exact
    rng = np.random.default_rng(8)
    for direction in [*rng.standard_normal((50, 40)), *X.T, *-X.T]:
        moved = alpha + radius * direction / np.linalg.norm(direction)
        np.testing.assert_array_equal(np.flatnonzero(primal_from_dual(problem, moved)[0]), np.flatnonzero(w))
    assert stability_radius(problem, -1.0) == 0.0


def test_the_margin_counts_a_support_that_is_not_full_as_zero() -> None:
    problem = small_problem(Squared())
    w = np.array([1.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0])
    assert margin(problem, w) <= 0.0
    assert margin(Problem(np.zeros((4, 2)), np.ones(4), "squared", 1, 1.0), np.zeros(2)) == 0.0
    assert stability_radius(Problem(np.zeros((4, 2)), np.ones(4), "squared", 1, 1.0), 0.5) == np.inf


def test_twins_are_not_called_unique_at_a_kink() -> None:
    # Two equal columns, and a sample at the hinge's kink: another subgradient there would have a positive margin.
    problem = Problem([[1.0, 1.0], [0.1, 0.1], [-1.0, -1.0]], [1, 1, -1], Hinge(), 1, 0.1, sample_weight=[1, 2, 1])
    result = solve(problem, DIHT(), tol=1e-10, max_iter=50_000)
    assert result.w[0] == pytest.approx(1.0)
    certificate = certify(problem, [1.0, 0.0], alpha=[-0.1, -1.0, 0.1])
    assert certificate.gap <= 1e-12
    assert certificate.margin <= 1e-12
    assert certify(problem, [0.0, 1.0]).objective == pytest.approx(certificate.objective, rel=1e-14)


# ---------------------------------------------------------------------------------------------------------------------
# Bounds in exact arithmetic


@st.composite
def hostile(draw) -> tuple[Problem, np.ndarray, np.ndarray]:
    """A problem of bad scales and cancellation, its matrix, and a feasible dual point whose value is often positive."""
    loss = draw(st.sampled_from(LOSSES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, d = draw(st.integers(2, 30)), draw(st.integers(1, 5))
    scale = st.floats(-8, 8).map(lambda e: 10.0**e)
    X = rng.standard_normal((n, d)) * draw(scale)
    spoil = draw(st.sampled_from(["none", "columns", "rows", "offset", "cancel"]))
    if spoil == "columns":
        X *= 10.0 ** rng.uniform(-8, 8, d)
    elif spoil == "rows":
        X *= 10.0 ** rng.uniform(-8, 8, (n, 1))
    elif spoil == "offset":
        X += 1e6 * np.abs(X).max()
    elif spoil == "cancel":
        X[n // 2 :] = -X[: n - n // 2] * (1 + 1e-13 * rng.standard_normal((n - n // 2, 1)))
    y = targets(loss, rng.standard_normal(n), rng)
    if loss.task == "regression":
        y = y * draw(scale) + draw(st.sampled_from([0.0, 1e8]))
    weights = 10.0 ** rng.uniform(-6, 6, n) if draw(st.booleans()) else None
    q = 10.0 ** rng.uniform(-4, 4, d) if draw(st.booleans()) else None
    problem = Problem(
        X, y, loss, draw(st.integers(1, d)), draw(scale), weights, draw(st.booleans()), scale=q, n_threads=1
    )
    alpha = feasible(problem, loss.derivative(np.zeros(n), y) * (rng.random(n) if draw(st.booleans()) else 1.0))
    # F is a cone or holds all multiples below one: shrink towards where the dual is largest on the ray.
    shrunk = alpha * max(10.0 ** np.arange(-40.0, 1.0), key=lambda t: dual(problem, t * alpha))
    return problem, X, shrunk


@settings(max_examples=150)
@given(hostile())
def test_no_bound_is_false_in_exact_arithmetic(case: tuple[Problem, np.ndarray, np.ndarray]) -> None:
    problem, X, alpha = case
    bound = lower_bound(problem, alpha)
    assert bound.value >= 0.0
    exact = [mpf(a) for a in bound.alpha.tolist()]
    if problem.fit_intercept:
        exact = exactly_balanced(problem, exact)
        imbalance = mpmath.fsum(mpf(s) * a for s, a in zip(problem.s.tolist(), exact, strict=True))
        assert abs(imbalance) <= mpf(10) ** -50 * mpmath.fsum(abs(a) for a in exact)
    value = exact_dual(problem, X, exact)
    assert value > -mpmath.inf  # the point is in F
    assert value >= mpf(bound.value)
    # Nor is it needlessly loose.
    if bound.value > 0.0:
        terms = problem.s @ np.abs(problem.loss.conjugate(alpha, problem.y)) + problem.s @ np.abs(problem.y * alpha)
        center, q = getattr(problem.design, "center", None), getattr(problem.design, "scale", None)
        raw = np.abs(X) + (0.0 if center is None else np.abs(center))  # what the products are computed from
        products = np.linalg.norm(raw, axis=0) * np.linalg.norm(problem.s * alpha) / (1.0 if q is None else q)
        size = float(terms) + float(np.sum(products**2)) / (2 * problem.lam)
        tilt = abs(problem.s @ alpha) / (problem.s @ np.abs(alpha)) if problem.fit_intercept else 0.0
        assert value - mpf(bound.value) <= (1e-9 + 8 * tilt) * size
        assert bound.rounding >= 0.0
        assert bound.check(problem) == bound.value


def test_many_samples_do_not_add_up_to_a_false_bound() -> None:
    # A dot product of a million equal terms is off by 1e-12, more than a bound may forget.
    n = 1_000_003
    for y in (1 / 3, 0.1, 0.7):
        problem = Problem(np.zeros((n, 1)), np.full(n, y), Squared(), 1, 1.0)
        alpha = np.full(n, -2 * y)
        s, a = mpf(float(problem.s[0])), mpf(-2 * y)
        exact = -n * s * (a * mpf(y) + a * a / 4)
        bound = lower_bound(problem, alpha).value
        assert mpf(bound) <= exact
        assert bound >= float(exact) * (1 - 1e-12)


@pytest.mark.parametrize("scale", [1e-160, 1e-100, 1e60, 1e74])
def test_numbers_whose_squares_leave_the_range_make_no_bound_false(scale: float) -> None:
    rng = np.random.default_rng(9)
    A, half = rng.standard_normal((20, 3)), rng.standard_normal(20)
    X = scale * np.vstack([A, -A * (1 + 1e-12)])  # the products cancel: all that is left of them is rounding
    y = np.tile(half, 2)
    positive = 0
    for lam in (1e-300, 1e-100, 1e-72, 1e-44, 1e-17, 1.0, 1e74):
        for loss in (Squared(), Hinge()):
            for fit_intercept in (False, True):
                z = y if loss.task == "regression" else np.sign(y)
                problem = Problem(X, z, loss, 2, lam, fit_intercept=fit_intercept)
                ray = -2.0 * z * np.tile(rng.random(20), 2) * (1 + 1e-13 * rng.standard_normal(40))
                alpha = feasible(problem, ray)
                for size in (1e-170, 1e-168, 1e-166, 1e-163, 1e-160, 1e-100, 1e-8, 1.0):
                    bound = lower_bound(problem, size * alpha)
                    exact = [mpf(a) for a in bound.alpha.tolist()]
                    exact = exactly_balanced(problem, exact) if fit_intercept else exact
                    assert exact_dual(problem, X, exact) >= mpf(bound.value)
                    positive += bound.value > 0
    assert positive >= 20  # not all of them are trivial


def test_conjugates_that_cancel_make_no_bound_false() -> None:
    # Nothing but the conjugates: their sum is far smaller than they are.
    for seed in range(200):
        rng = np.random.default_rng(seed)
        y = 10.0 ** rng.uniform(-4, 4, 9) * rng.choice([-1.0, 1.0], 9)
        alpha = 0.1 * rng.standard_normal(9) * np.abs(y)
        alpha[0] = 0.0
        rest = float(np.sum(y * alpha + alpha**2 / 4))
        y[0] = max(1.0, 2 * abs(rest) ** 0.5)
        # The last sample makes up for the others, but for a little: y a + a^2 / 4 = -rest - |rest| 1e-12.
        alpha[0] = 2 * (-y[0] + np.sqrt(max(y[0] ** 2 - rest - abs(rest) * 1e-12, 0.0)))
        problem = Problem(np.zeros((9, 1)), y, Squared(), 1, 1.0)
        bound = lower_bound(problem, alpha)
        assert exact_dual(problem, np.zeros((9, 1)), [mpf(a) for a in bound.alpha.tolist()]) >= mpf(bound.value)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_dual_points_that_are_no_help_give_the_trivial_bound(loss: Loss) -> None:
    problem = small_problem(loss)
    for alpha in (np.full(24, np.nan), np.full(24, np.inf), np.where(np.arange(24) == 3, np.nan, 0.0)):
        assert lower_bound(problem, alpha).value == 0.0
        assert not np.any(lower_bound(problem, alpha).alpha)
    low, high = (np.broadcast_to(end, 24) for end in loss.domain(problem.y))
    outside = np.where(np.isfinite(high) & (high < 1e100), high + 1.0, low - 1.0)
    if np.all(np.isfinite(outside)):
        assert lower_bound(problem, outside).value == 0.0
        assert dual(problem, outside) == -np.inf


def test_with_an_intercept_a_point_that_is_far_from_balanced_proves_little_but_nothing_false() -> None:
    problem = small_problem(Squared(), fit_intercept=True)
    best = best_subset(problem).objective
    result = solve(problem, DIHT(), tol=0.0, max_iter=500)
    assert result.lower_bound > 0.5 * best
    for tilt in (1e-12, 1e-6, 1e-3, 0.1, 10.0):
        bound = lower_bound(problem, result.alpha + tilt).value
        assert bound <= best
        assert bound >= result.lower_bound * (1 - 100 * tilt)

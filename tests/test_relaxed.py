"""The relaxation solved to its end: against a slow solver, by its own gap, engine against engine."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from cases import DESIGNS, LOSSES
from diht import Problem, solve
from diht.bounds.duality import dual, lower_bound, primal
from diht.constraints.base import Constraint
from diht.losses import Hinge, Logistic, Loss, SmoothedHinge, Squared
from diht.problem import Problem as AnyProblem
from diht.refit import Objective, _ascended, _interior
from diht.relaxation.engines import AscentEngine, Engine, GradientEngine, NewtonEngine
from diht.samples import ascent_kernels as relaxation
from diht.samples.ascent import ProximalAscent, _in_runs, _run_length
from diht.solvers import Auto, Relaxed, Start, relaxed
from oracle import best_subset, small_data, some_weights, targets

Vector = NDArray[np.float64]
SMOOTH = [loss for loss in LOSSES if loss.mu > 0]
KINDS = ["dense C", "dense F", "dense C float32", "CSR array", "CSR float32", "centred and scaled CSR"]
BY_NAME = dict(DESIGNS)


@dataclass(frozen=True)
class Quantile(Loss):
    """A loss that a user might write: nothing of it is compiled."""

    q: float = 0.8
    gamma: float = 0.1
    name = "quantile"
    task = "regression"

    @property
    def mu(self) -> float:
        return self.gamma

    def domain(self, y: Vector) -> tuple[float, float]:
        return -self.q, 1 - self.q

    def derivative(self, u: Vector, y: Vector) -> Vector:
        return self.project((u - y) / self.gamma, y)

    def value(self, u: Vector, y: Vector) -> Vector:
        a = self.derivative(u, y)
        return a * (u - y - self.gamma / 2 * a)

    def conjugate(self, a: Vector, y: Vector) -> Vector:
        low, high = self.domain(y)
        return np.where((a < low) | (a > high), np.inf, a * (y + self.gamma / 2 * a))

    def conjugate_derivative(self, a: Vector, y: Vector) -> Vector:
        return y + self.gamma * a


def small(loss: Loss, intercept: bool = True, weighted: bool = True, k: int = 3, lam: float = 0.05) -> Problem:
    X, y = small_data(loss)
    weights = some_weights(len(y)) if weighted else None
    return Problem(X, y, loss, k, lam, weights, intercept, n_threads=1)


def relaxed_value(problem: AnyProblem, w: Vector, b: float) -> float:
    loss = float(problem.s @ problem.loss.value(problem.design.matvec(w) + b, problem.y))
    return loss + problem.lam * problem.constraint.relaxation(w)


def slow_optimum(problem: AnyProblem, steps: int = 20_000) -> float:
    """Proximal gradients with momentum that starts again where the value rises; w and b together."""
    X, s, y, loss = problem.design.toarray(), problem.s, problem.y, problem.loss
    ones = float(problem.fit_intercept)
    Z = np.hstack([X, np.full((len(X), 1), ones)])
    step = loss.mu / np.linalg.norm(np.sqrt(s)[:, None] * Z, 2) ** 2
    x = z = np.zeros(Z.shape[1])
    t = 1.0
    for _ in range(steps):
        slope = Z.T @ (s * loss.derivative(Z @ z, y))
        q = z - step * slope
        new = np.append(problem.constraint.prox(q[:-1], step * problem.lam), q[-1])
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        if (z - new) @ (new - x) > 0.0:
            t = following = 1.0
        moved = float(np.abs(new - x).max())
        z, x, t = new + (t - 1.0) / following * (new - x), new, following
        if moved <= 1e-14 * (1.0 + float(np.abs(x).max())) and t > 3.0:
            break
    return relaxed_value(problem, x[:-1], ones * x[-1])


def to_the_end(problem: AnyProblem, start: Start | None = None, accuracy: float = 1e-9) -> tuple[float, float, Vector]:
    """The value of the relaxation's model, D(alpha), and the model."""
    solver = Relaxed(accuracy=accuracy)
    state = solver.init(problem, start or Start())
    for _ in range(500):
        solver.advance(problem, state)
        if solver.finished(state):
            break
    w = solver.relaxed_model(problem, state)
    return relaxed_value(problem, w, state.engine.b), state.bound.value, w


# The optimum


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", [*SMOOTH, Quantile()], ids=str)
def test_against_a_slow_solver(loss: Loss, intercept: bool) -> None:
    problem = small(loss, intercept)
    expected = slow_optimum(problem)
    value, bound, w = to_the_end(problem)
    assert value == pytest.approx(expected, rel=1e-7)
    assert bound == pytest.approx(expected, rel=1e-6)
    assert np.count_nonzero(problem.constraint.places(w) >= 1e-9) >= min(3, np.count_nonzero(w))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_two_sides_meet(loss: Loss, weighted: bool) -> None:
    """Of every loss, kinks or not: the model's value and D(alpha) are one, which proves both; and below any sparse model."""
    problem = small(loss, True, weighted)
    value, bound, _ = to_the_end(problem)
    assert bound <= value * (1 + 1e-12)
    assert value - bound <= 1e-5 * abs(value)
    assert bound <= best_subset(problem).objective * (1 + 1e-12)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Hinge()], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_x(kind: str, loss: Loss) -> None:
    X, y = small_data(loss)
    design, twin = BY_NAME[kind](X)
    value, bound, _ = to_the_end(Problem(design, y, loss, 3, 0.05))
    expected, _, _ = to_the_end(Problem(twin, y, loss, 3, 0.05))
    assert value - bound <= 1e-5 * value
    assert value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss", [Squared(), SmoothedHinge()], ids=str)
@pytest.mark.parametrize("kind", ["dense C", "dense F", "CSR array"])
def test_standardised_columns(kind: str, loss: Loss) -> None:
    X, y = small_data(loss)
    scale, s = np.linspace(0.5, 2.0, X.shape[1]), some_weights(len(y))
    problem = Problem(BY_NAME[kind](X)[0], y, loss, 3, 0.05, s, True, scale=scale)
    expected = slow_optimum(Problem(X / scale, y, loss, 3, 0.05, s, True))
    value, bound, _ = to_the_end(problem)
    assert value == pytest.approx(expected, rel=1e-7)
    assert bound == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Hinge(), Quantile()], ids=str)
def test_nodes_of_a_search_tree(loss: Loss) -> None:
    problem = small(loss)
    whole, _, _ = to_the_end(problem)
    for inside, outside in (([1], [0]), ([4, 5], []), ([], [0, 2, 6]), ([1, 3, 5], [0])):
        node = problem.constraint.restricted(np.array(inside, dtype=np.int64), np.array(outside, dtype=np.int64))
        part = problem.replaced(constraint=node)
        value, bound, w = to_the_end(part)
        assert not np.any(w[outside])
        assert value - bound <= 1e-5 * abs(value)
        assert value >= whole * (1 - 1e-6)
        if loss.mu > 0:
            assert value == pytest.approx(slow_optimum(part), rel=1e-7)


# Engines


def run(engine: Engine, steps: int) -> Engine:
    for _ in range(steps):
        engine.improve()
        if engine.finished or engine.gap <= 1e-9 * abs(engine.value):
            break
    return engine


def engines(problem: AnyProblem, features: NDArray[np.int64] | None = None) -> list[Engine]:
    alpha, w = Start(w=np.zeros(problem.shape[1])).dual(problem), np.zeros(problem.shape[1])
    made: list[Engine] = [
        NewtonEngine(problem, features, alpha.copy(), w, 0.0),
        GradientEngine(problem, features, alpha.copy(), w, 0.0),
    ]
    if problem.loss.kernel() is not None:
        made.append(AscentEngine(problem, features, alpha.copy(), w, 0.0, 0))
    return made


@pytest.mark.parametrize("features", [None, np.array([0, 1, 2, 4, 6])], ids=["all", "some"])
@pytest.mark.parametrize("loss", [*SMOOTH, Quantile()], ids=str)
def test_engines_agree(loss: Loss, features: NDArray[np.int64] | None) -> None:
    problem = small(loss)
    reached = [run(engine, 400) for engine in engines(problem, features)]
    part = problem if features is None else problem.restricted(features)
    for engine in reached:
        assert engine.value == pytest.approx(reached[0].value, rel=1e-6)
        assert engine.gap <= 1e-5 * abs(engine.value)
        assert engine.value == pytest.approx(relaxed_value(part, engine.w, engine.b), rel=1e-9)
        assert lower_bound(part, engine.alpha).value == pytest.approx(engine.value - engine.gap, rel=1e-9)


def test_engines_at_kinks() -> None:
    newton, gradient, ascent = [run(engine, 100) for engine in engines(small(Hinge()))]
    assert newton.gap <= 1e-5 * newton.value
    assert ascent.value == pytest.approx(newton.value, rel=1e-5)
    assert gradient.value == pytest.approx(newton.value, rel=0.05)  # of a smoothed loss
    for engine in (gradient, ascent):
        assert engine.value - engine.gap <= newton.value * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["dense C", "CSR array", "centred dense"])
@pytest.mark.parametrize("loss", [Squared(), SmoothedHinge(), Logistic()], ids=str)
def test_an_epoch_of_ascent_against_its_twin(loss: Loss, kind: str) -> None:
    """One visit to every sample in the order that the kernel took, theta found anew when the kernel does."""
    X, y = small_data(loss)
    design, twin = BY_NAME[kind](X)
    s, lam, kappa, k = np.full(len(y), 1.0 / len(y)), 0.05, 0.3, 3
    problem = Problem(design, y, loss, k, lam)
    alpha = Start(w=np.zeros(X.shape[1])).dual(problem)
    before = alpha.copy()
    ascent = ProximalAscent(design, None, loss, y, s, lam, False, k, np.zeros(0, dtype=bool), alpha, seed=1)
    ascent.restart(kappa)
    found = ascent.run(1)
    expected, w = _epoch(twin, loss, y, s, lam, kappa, problem.constraint, before, ascent.order, ascent.refreshes)
    np.testing.assert_allclose(found.alpha, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.w, w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("rests", [False, True])
def test_epochs_that_are_made_ahead_are_those_that_are_asked_for(rests: bool) -> None:
    """Whoever makes them, and whether they were interrupted, the iterates and the reads of X are the same."""
    X, y = small_data(SmoothedHinge())
    runs = []
    for n_threads in (1, 3):
        problem = Problem(sp.csr_array(X), y, SmoothedHinge(), 3, 0.05, n_threads=n_threads)
        ascent = AscentEngine(problem, None, Start().dual(problem), np.zeros(X.shape[1]), 0.0, 0).ascent
        before, found = problem.design.passes, []
        for _ in range(12):
            found.append(ascent.run(3))
            ascent.go_on(3)
            if rests:
                ascent.rest()
        runs.append((found, problem.design.passes - before))
    for one, other in zip(runs[0][0], runs[1][0], strict=True):
        assert np.array_equal(one.alpha, other.alpha)
        assert np.array_equal(one.w, other.w)
    assert runs[0][1] == runs[1][1] == pytest.approx(36.0)
    assert not np.array_equal(runs[0][0][0].alpha, runs[0][0][1].alpha)


def test_theta_is_found_less_often_where_features_are_many() -> None:
    """For each feature as long as a visit to an entry or two: with few entries of each it would take most of the time."""
    rng = np.random.default_rng(0)
    refreshes = []
    for d in (10, 1000, 20_000):
        X = sp.random_array((200, d), density=min(1.0, 2000 / d / 200 * 5), rng=rng, format="csr")
        problem = Problem(X, np.where(rng.random(200) < 0.5, 1.0, -1.0), SmoothedHinge(), 5, 0.01)
        ascent = AscentEngine(problem, None, Start().dual(problem), np.zeros(d), 0.0, 0).ascent
        refreshes.append(ascent.refreshes)
    assert refreshes == [10, 5, 3]


def _epoch(
    X: Vector,
    loss: Loss,
    y: Vector,
    s: Vector,
    lam: float,
    kappa: float,
    constraint: Constraint,
    alpha: Vector,
    order: NDArray[np.int64],
    refreshes: int,
) -> tuple[Vector, Vector]:
    q = -X.T @ (s * alpha) / kappa
    r = lam / kappa
    for part in range(refreshes):
        chunk = order[part * len(y) // refreshes : (part + 1) * len(y) // refreshes]
        theta = _theta(q, constraint.size, r)
        for i in chunk:
            magnitude = np.abs(q)
            w = np.sign(q) * np.maximum(0.0, np.minimum(magnitude - r * theta, magnitude / (1.0 + r)))
            curvature = s[i] * (X[i] @ X[i]) / kappa
            tau = min(1.0 / curvature, 1e12) if curvature > 0 else 1e12
            one = slice(i, i + 1)
            new = float(loss.conjugate_prox(alpha[one] + tau * (X[one] @ w), tau, y[one])[0])
            q = q - s[i] * (new - alpha[i]) * X[i] / kappa
            alpha[i] = new
    return alpha, constraint.prox(q, r)


def _theta(q: Vector, k: int, r: float) -> float:
    """The threshold for which clip(|q|/theta - r, 0, 1) adds up to k, by bisection."""
    if np.count_nonzero(q) <= k:
        return 0.0
    low, high = 0.0, float(np.abs(q).sum() + np.abs(q).max()) / min(r, 1.0)
    for _ in range(300):
        theta = 0.5 * (low + high)
        low, high = (theta, high) if np.clip(np.abs(q) / theta - r, 0.0, 1.0).sum() > k else (low, theta)
    return 0.5 * (low + high)


# Working sets, starts, repetition


def wide(loss: Loss) -> Problem:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 2000)) + 0.5 * rng.standard_normal((60, 1))
    y = targets(loss, X[:, [5, 700, 1999]].sum(axis=1), rng)
    return Problem(X, y, loss, 3, 0.05, fit_intercept=True, n_threads=1)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Hinge()], ids=str)
def test_working_sets_change_nothing(loss: Loss) -> None:
    problem = wide(loss)
    solver = Relaxed(accuracy=1e-6)
    state = solver.init(problem, Start())
    assert state.features is not None
    while not solver.finished(state):
        solver.advance(problem, state)
    assert len(state.features) < 1500
    w = solver.relaxed_model(problem, state)
    value = relaxed_value(problem, w, state.engine.b)
    # Both sides are computed on all features: where they meet, nothing outside the working set matters.
    assert lower_bound(problem, state.bound.alpha).value == pytest.approx(value, rel=3e-5)


def test_most_features_become_all_under_a_quadratic_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where samples leave more features in play than a working set holds, one set after the other would cost as much as all."""
    rng = np.random.default_rng(2)
    common = np.repeat(rng.standard_normal((150, 50)), 8, axis=1)
    X = common + rng.standard_normal((150, 400))
    y = X[:, ::40].sum(axis=1) + 3.0 * rng.standard_normal(150)
    problem = Problem(X, y, Squared(), 10, 1e-3, fit_intercept=True, n_threads=1)

    def to_the_end_of(problem: Problem) -> tuple[list[int], float]:
        solver, sizes = Relaxed(accuracy=1e-7), []
        state = solver.init(problem, Start())
        while not solver.finished(state):
            sizes.append(len(state.engine.w))
            solver.advance(problem, state)
        return sizes, state.bound.value

    sizes, value = to_the_end_of(problem)
    assert set(sizes) == {200, 400}
    outside = problem.replaced(constraint=problem.constraint.restricted(np.empty(0, dtype=np.int64), np.array([0, 7])))
    assert set(to_the_end_of(outside)[0]) == {200, 398}
    monkeypatch.setattr(relaxed, "_WORTHWHILE", 1.0)
    slow, same = to_the_end_of(problem)
    assert len(set(slow)) > 2
    assert value == pytest.approx(same, rel=1e-6)


@pytest.mark.parametrize("loss", [Squared(), Logistic(), Hinge()], ids=str)
def test_a_warm_start_reaches_the_same_optimum(loss: Loss) -> None:
    problem = small(loss)
    value, _, w = to_the_end(problem)
    rng = np.random.default_rng(0)
    for start in (
        Start(w, 0.3),
        Start(alpha=rng.standard_normal(len(problem.y))),
        Start(w, 0.0, -np.ones_like(problem.y)),
    ):
        again, bound, _ = to_the_end(problem, start)
        assert again == pytest.approx(value, rel=1e-6)
        assert bound == pytest.approx(value, rel=1e-5)


def test_the_same_seed_gives_the_same_result() -> None:
    problem = wide(Logistic())
    one, two = (solve(problem, Relaxed(random_state=2)) for _ in range(2))
    np.testing.assert_array_equal(one.w, two.w)
    np.testing.assert_array_equal(one.alpha, two.alpha)
    assert (one.lower_bound, one.n_iter) == (two.lower_bound, two.n_iter)


def test_a_loss_of_ones_own() -> None:
    problem = small(Quantile())
    best = best_subset(problem).objective
    for solver in ("relaxed", "auto", Auto(branching=False)):
        result = solve(problem, solver)
        assert result.lower_bound <= best * (1 + 1e-12) <= result.objective * (1 + 1e-9)
    assert result.objective == pytest.approx(best, rel=1e-6)
    assert dual(problem, result.alpha) == pytest.approx(result.certificate.bound.check(problem), rel=1e-6)


def test_a_stop_ends_it_soon() -> None:
    """However long a step would be: the engine is asked for one improvement more, and no other."""
    problem, asked = wide(Logistic()), []

    def stop() -> bool:
        asked.append(True)
        return len(asked) >= 2

    solver = Relaxed(accuracy=0.0)
    state = solver.init(problem, Start(stop=stop))
    solver.advance(problem, state)
    solver.advance(problem, state)
    assert len(asked) <= 3
    assert np.isfinite(state.bound.value)
    assert primal(problem, solver.observe(problem, state).fit.w) > state.bound.value


@pytest.mark.parametrize("n", [1, 17, 9_999, 10_000, 10_007])
def test_every_sample_is_visited_once_an_epoch(n: int) -> None:
    """Many samples are visited in runs of neighbours; none is left out."""
    shuffled, seed = np.arange(n), np.array([12345], dtype=np.uint64)
    relaxation.shuffle(shuffled, _run_length(n), seed)
    for order in (shuffled, _in_runs(n, np.random.default_rng(0))):
        assert np.array_equal(np.sort(order), np.arange(n))
        assert n == 1 or not np.array_equal(order, np.arange(n))


@pytest.mark.parametrize("n", [2_003, pytest.param(12_003, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", ["smoothed_hinge", "hinge"])
def test_many_samples_sorted_by_class(monkeypatch: pytest.MonkeyPatch, loss: str, n: int) -> None:
    """Runs of neighbours that are all of one class do not keep ascent from the optimum that the interior point method finds."""
    if _run_length(n) == 1:
        monkeypatch.setattr("diht.samples.ascent._MANY", n)
    assert _run_length(n) > 1
    rng = np.random.default_rng(5)
    d = 12
    X = sp.random_array((n, d), density=0.4, rng=rng, format="csr")
    y = np.sign(X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n))
    order = np.argsort(y, kind="stable")
    problem = Problem(X[order], y[order], loss=loss, k=d, lam=0.01, fit_intercept=True)
    objective = Objective(problem, np.arange(d), problem.samples.columns(np.arange(d)), problem.loss)
    best = _interior(objective, np.zeros(d), 0.0, 1e-12)
    ascended = _ascended(objective, np.zeros(d), 0.0, 1e-9)
    assert ascended.objective == pytest.approx(best.objective, rel=2e-9)
    engine = run(AscentEngine(problem, None, Start().dual(problem), np.zeros(d), 0.0, 0), 100)
    assert engine.value - engine.gap <= best.objective * (1 + 1e-12)
    assert engine.value - engine.gap >= best.objective * (1 - 1e-6)

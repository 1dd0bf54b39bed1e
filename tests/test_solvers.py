"""Every method on every loss and kind of X: true bounds, at most k features, the best kept; and what each promises."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from cases import DESIGNS, LOSSES, SOLVERS, crossed, refusal
from diht import Problem, solve
from diht.bounds.duality import Bound, lower_bound, primal
from diht.losses import Logistic, Loss, SmoothedHinge, Squared
from diht.refit import refit
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT, Solver, Start
from oracle import best_subset, clear_data, paper_design, small_data, some_weights, targets

K, LAM = 3, 0.1
NAMES = [loss.name for loss in LOSSES]
KINDS = {
    "dense C",
    "dense F",
    "dense C float32",
    "CSR array",
    "CSR float32",
    "CSC array",
    "CSR empty rows and columns",
    "scaled CSR",
}
# Kind of X, weights, intercept (a design that is centred already has none).
SETTINGS = [
    (make, weighted, fit_intercept)
    for name, make in DESIGNS
    if name in KINDS
    for weighted in (False, True)
    for fit_intercept in ((False, True) if name != "scaled CSR" else (False,))
]
TURNS = (
    7  # as many as losses, and prime to the 4 settings of a kind of X: each turn has weights and intercepts, and none
)


@cache
def optimum(loss: Loss, X: bytes, shape: tuple[int, int], weighted: bool, fit_intercept: bool) -> float:
    problem = Problem(
        np.frombuffer(X).reshape(shape), small_data(loss)[1], loss, K, LAM, weights(weighted), fit_intercept
    )
    return best_subset(problem).objective


def weights(weighted: bool) -> np.ndarray | None:
    return some_weights(24) if weighted else None


def check_against(best: float, problem: Problem, result) -> None:
    """Assert what holds for every method whatever it does."""
    k = problem.constraint.size
    assert len(result.trace) > 0
    for iterate in result.trace:
        assert iterate.lower_bound <= best * (1 + 1e-12)
        assert iterate.objective >= best * (1 - 1e-12)
        assert iterate.n_features <= k
        assert result.objective <= iterate.objective * (1 + slack(problem))
        assert result.lower_bound >= iterate.lower_bound - 1e-12 * abs(best)
    assert len(result.support) <= k
    assert len(result.last.support) <= k
    assert not result.last.objective < result.objective * (1 - slack(problem))
    assert result.lower_bound <= best * (1 + 1e-12)
    assert result.objective >= best * (1 - 1e-12)
    assert np.all(np.isfinite(result.w))


def slack(problem: Problem) -> float:
    """What storing w in X's own type may cost."""
    return 1e-12 if problem.design.dtype == np.float64 else 1e-5


@pytest.mark.parametrize(("loss", "solver_of"), crossed(LOSSES, {name: (name, make) for name, make in SOLVERS}))
@pytest.mark.parametrize("turns", [[0], pytest.param(range(1, TURNS), marks=pytest.mark.slow)], ids=["quick", "rest"])
def test_weak_duality_against_brute_force(turns: Sequence[int], loss: Loss, solver_of: tuple) -> None:
    """A seventh of the settings, another one for each loss and method, is quick with half of these."""
    name, make_solver = solver_of
    A, y = small_data(loss)
    solver = make_solver(len(y))
    undefined = refusal(loss, name)
    if undefined:
        with pytest.raises(ValueError, match=undefined):
            solve(Problem(A, y, loss, K, LAM), solver)
        return
    first = NAMES.index(loss.name) + [name for name, _ in SOLVERS].index(name)
    for make, weighted, fit_intercept in chain.from_iterable(SETTINGS[(first + i) % TURNS :: TURNS] for i in turns):
        design, X = make(A)
        problem = Problem(design, y, loss, K, LAM, weights(weighted), fit_intercept)
        result = solve(problem, solver, tol=0.0, max_iter=30)
        best = optimum(loss, np.ascontiguousarray(X).tobytes(), X.shape, weighted, fit_intercept)
        check_against(best, problem, result)


# ---------------------------------------------------------------------------------------------------------------------
# What each method promises


def iterates(problem: Problem, solver: Solver, n_steps: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The pairs (w, alpha) after each step, without the loop around."""
    state = solver.init(problem, Start())
    pairs = []
    for _ in range(n_steps):
        solver.advance(problem, state)
        last = solver.last(problem, state)
        pairs.append((last.fit.w, last.alpha.copy()))
    return pairs


@pytest.mark.parametrize("step", ["auto", "theory", 0.05])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_sdiht_with_one_block_is_diht(loss: Loss, step) -> None:
    if loss.mu == 0 and step == "theory":
        return
    problem = Problem(*small_data(loss), loss, K, 1.0)
    for whole, block in zip(
        iterates(problem, DIHT(step=step), 15), iterates(problem, SDIHT(blocks=1, step=step), 15), strict=True
    ):
        np.testing.assert_allclose(block[0], whole[0], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(block[1], whole[1], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "make", [lambda seed: SDIHT(blocks=5, random_state=seed), lambda seed: SVRGHT(blocks=5, random_state=seed)]
)
@pytest.mark.parametrize("order", ["shuffled", "replacement"])
def test_a_seed_reproduces_every_bit_and_another_does_not(make, order: str) -> None:
    problem = Problem(*small_data(Logistic()), Logistic(), K, 0.01, fit_intercept=True)
    runs = [solve(problem, replace(make(seed), order=order), tol=0.0, max_iter=12) for seed in (4, 4, 5)]
    np.testing.assert_array_equal(runs[0].last.w, runs[1].last.w)
    np.testing.assert_array_equal(runs[0].alpha, runs[1].alpha)
    assert not np.array_equal(runs[0].last.w, runs[2].last.w)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_the_dual_methods_find_and_prove_the_optimum_where_the_gap_closes(loss: Loss, fit_intercept: bool) -> None:
    for weighted in (False, True):
        lam = 10.0 if loss.name == "poisson" else 1.0
        problem = Problem(*clear_data(loss), loss, 2, lam, some_weights(40) if weighted else None, fit_intercept)
        for solver in (DIHT(), SDIHT(blocks=5), SDIHT(blocks=5, order="replacement", random_state=1)):
            result = solve(problem, solver, tol=1e-5, max_iter=20_000)
            assert result.status == "optimal"
            assert result.objective <= best_subset(problem).objective * (1 + 1e-5)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(
    "loss", [loss for loss in LOSSES if loss.differentiable], ids=[loss.name for loss in LOSSES if loss.differentiable]
)
def test_the_objective_of_iht_never_rises(loss: Loss, fit_intercept: bool) -> None:
    for seed in range(3):
        problem = Problem(*small_data(loss, seed=seed), loss, K, 0.01, some_weights(24), fit_intercept)
        objectives = solve(problem, IHT(), tol=0.0, max_iter=100).trace.column("objective")
        assert np.all(np.diff(objectives) <= 1e-14 * objectives[0])


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_the_model_of_htp_is_the_best_on_its_support(loss: Loss, fit_intercept: bool) -> None:
    problem = Problem(*small_data(loss), loss, K, 0.01, fit_intercept=fit_intercept)
    result = solve(problem, HTP(step=0.01) if refusal(loss, "HTP") else HTP(), tol=0.0)
    best = refit(problem, result.last.support).objective
    assert result.last.objective == pytest.approx(best, rel=1e-13)
    assert result.status == "stalled"


@pytest.mark.parametrize("solver", [DIHT("theory"), SDIHT(step="theory")], ids=["DIHT", "SDIHT"])
def test_the_theorems_step_may_diverge_but_the_answer_stays_finite_and_the_bound_true(solver: Solver) -> None:
    A, y = small_data(Squared())
    problem = Problem(100 * A, y, Squared(), K, 1e-3)
    diverged = solve(problem, solver, tol=0.0, max_iter=2000)
    assert not diverged.last.objective < 1e100  # it did diverge: what follows is not idle
    assert np.all(np.isfinite(diverged.w))
    assert np.all(np.isfinite(diverged.alpha))
    assert diverged.lower_bound <= best_subset(problem).objective <= diverged.objective < np.inf
    assert diverged.objective <= np.nanmin(diverged.trace.column("objective"))
    assert diverged.objective <= primal(problem, np.zeros(7))
    # Stored in float32, the iterates would be infinite; no features at all are better.
    single = Problem((1e6 * A).astype(np.float32), y, Squared(), K, 1e-6)
    result = solve(single, solver, tol=0.0, max_iter=40)
    assert np.all(np.isfinite(result.w))
    assert result.objective <= primal(single, np.zeros(7))


@pytest.mark.parametrize("blocks", [
    [[0, 1], [1, 2, 3]], [[0, 1, 2]], [[0, 1], [2, 3, 4]], [[0, 1], [2, -1]], [[0.0, 1.0], [2.0, 3.0]], [[0, 1, 2, 3], []],
    [[[0, 1], [2, 3]]], [],
])  # fmt: skip
@pytest.mark.parametrize("method", [SDIHT, SVRGHT])
def test_a_partition_that_is_none_is_refused(method, blocks) -> None:
    problem = Problem(np.eye(4), np.arange(4.0), "squared", 1, 1.0)
    with pytest.raises(ValueError, match=r"^blocks must "):
        solve(problem, method(blocks=blocks))


@pytest.mark.parametrize("method", [SDIHT, SVRGHT])
def test_bad_settings_of_block_methods_are_refused(method) -> None:
    for blocks in (0, -3, True, "many", 2.5, None):
        with pytest.raises(ValueError, match=r"^blocks must "):
            method(blocks=blocks)
    with pytest.raises(ValueError, match=r"^order must be 'shuffled' or 'replacement', got 'random'"):
        method(order="random")


@pytest.mark.parametrize("method", [DIHT, SDIHT, IHT, HTP, SVRGHT])
@pytest.mark.parametrize("step", ["fast", 0, -1.0, np.nan, np.inf, None, [1.0], "1"])
def test_bad_steps_are_refused(method, step) -> None:
    with pytest.raises(ValueError, match=r"^step must be ") as error:
        method(step=step)
    assert repr(step) in str(error.value)


@pytest.mark.parametrize("method", [DIHT, SDIHT, IHT, HTP, SVRGHT])
def test_a_step_that_a_callable_makes_is_checked_too(method) -> None:
    problem = Problem(*small_data(Squared()), Squared(), K, 1.0)
    with pytest.raises(ValueError, match=r"^step must be positive and finite, got 0.0"):
        solve(problem, method(step=lambda t: 1.0 - t), max_iter=50)


@pytest.mark.parametrize("method", [IHT, HTP, SVRGHT])
def test_the_theorems_step_belongs_to_the_dual_methods(method) -> None:
    with pytest.raises(ValueError, match="step='theory' belongs to the dual methods"):
        solve(Problem(*small_data(Squared()), Squared(), K, 1.0), method(step="theory"))


def test_a_method_prints_as_it_would_be_typed() -> None:
    assert repr(SDIHT(blocks=20)) == "SDIHT(blocks=20, step='auto', order='shuffled', random_state=0)"
    assert repr(DIHT()) == "DIHT(step='auto')"


# ---------------------------------------------------------------------------------------------------------------------
# Whatever the data


@dataclass(frozen=True)
class Case:
    """A problem drawn at random: its matrix, targets and settings."""

    X: np.ndarray
    y: np.ndarray
    loss: Loss
    k: int
    lam: float
    weights: np.ndarray | None
    fit_intercept: bool
    sparse: bool

    def problem(self) -> Problem:
        X = sp.csr_array(self.X) if self.sparse else self.X
        return Problem(X, self.y, self.loss, self.k, self.lam, self.weights, self.fit_intercept, n_threads=1)


SCALES = st.sampled_from([1e-8, 1e-3, 1.0, 1e3, 1e8])


@st.composite
def cases(draw) -> Case:
    n, d = draw(st.integers(2, 12)), draw(st.integers(1, 6))
    loss = draw(st.sampled_from(LOSSES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    X = rng.standard_normal((n, d)) * draw(SCALES)
    for spoil in draw(
        st.sets(st.sampled_from(["duplicate", "constant", "zero", "empty row", "scales", "sparse", "offset"]))
    ):
        if spoil == "duplicate":
            X[:, -1] = X[:, 0]
        elif spoil == "constant":
            X[:, d // 2] = X[0, 0]
        elif spoil == "zero":
            X[:, 0] = 0.0
        elif spoil == "empty row":
            X[n // 2] = 0.0
        elif spoil == "scales":
            X *= np.logspace(-4, 4, d)
        elif spoil == "sparse":
            X[rng.random((n, d)) < 0.6] = 0.0
        else:
            X += 1e4 * np.abs(X).max()
    y = targets(loss, rng.standard_normal(n), rng)
    if loss.task == "regression":
        y *= draw(SCALES)
    weights = None
    if draw(st.booleans()):
        weights = rng.random(n)
        weights[1 : n - 1] *= rng.random(n - 2) < 0.7
    return Case(X, y, loss, draw(st.integers(1, d)), draw(SCALES), weights, draw(st.booleans()), draw(st.booleans()))


@given(cases(), st.sampled_from([DIHT(), SDIHT(blocks=2), IHT(), HTP(), SVRGHT(blocks=2), "auto"]))
def test_default_steps_never_diverge(case: Case, solver: Solver | str) -> None:
    problem = case.problem()
    result = solve(problem, solver, tol=1e-6, max_iter=40)
    objectives = result.trace.column("objective")
    assert np.all(np.isfinite(objectives))
    assert np.all(np.isfinite(result.w))
    assert np.all(np.isfinite(result.alpha))
    assert np.isfinite(result.intercept)
    assert len(result.support) <= case.k
    assert 0.0 <= result.lower_bound <= result.objective * (1 + 1e-12)
    bound = result.certificate.bound
    assert bound.check(problem) <= result.objective * (1 + 1e-12)
    if type(bound) is Bound:  # others hold more than a dual point
        assert lower_bound(problem, result.alpha).value == bound.check(problem)


@pytest.mark.parametrize("lam", [1e-6, 1e-4, 1e-2, 1.0, 1e2])
@pytest.mark.parametrize("n", [60, 200])
def test_diht_stays_finite_on_the_papers_design(n: int, lam: float) -> None:
    for seed in range(2):
        X, y, _ = paper_design(500, 100, n, seed)
        result = solve(Problem(X, y, "squared", 100, lam), DIHT(), tol=0.0, max_iter=60)
        objectives = result.trace.column("objective")
        assert np.all(np.isfinite(objectives))
        assert len(objectives) == 60
        assert objectives[-1] <= objectives[0]
        assert 0.0 <= result.lower_bound <= result.objective


@pytest.mark.parametrize("n", [60, 100, 200])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_diht_is_not_behind_the_primal_methods_on_the_papers_design(n: int, seed: int) -> None:
    X, y, _ = paper_design(500, 100, n, seed)
    problem = Problem(X, y, "squared", 100, 10.0)
    dual = solve(problem, DIHT(), tol=1e-9, max_iter=1500)
    for solver in (IHT(), HTP()):
        rival = solve(problem, solver, tol=1e-9, max_iter=1500)
        assert dual.objective <= rival.objective * (1 + 1e-6)
        assert dual.lower_bound <= rival.objective


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(
    "solver", [DIHT(), SDIHT(blocks=3), IHT(), HTP(), SVRGHT(blocks=3)], ids=lambda s: type(s).__name__
)
def test_the_last_iterate_is_a_model_with_its_own_predictions(solver: Solver, fit_intercept: bool) -> None:
    """And a look at it changes nothing of what follows."""
    X, y = small_data(SmoothedHinge())
    problem = Problem(X, y, SmoothedHinge(), 3, 0.1, fit_intercept=fit_intercept)
    looked_at, left_alone = (solver.init(problem, Start()) for _ in range(2))
    for _ in range(7):
        for state in (looked_at, left_alone):
            solver.advance(problem, state)
        fit = solver.last(problem, looked_at).fit
        assert np.count_nonzero(fit.w) <= 3
        np.testing.assert_allclose(fit.u, problem.design.matvec(fit.w) + fit.b, rtol=1e-12, atol=1e-14)
        assert fit.objective == pytest.approx(primal(problem, fit.w, fit.b), rel=1e-14)
    assert np.array_equal(solver.last(problem, looked_at).fit.w, solver.last(problem, left_alone).fit.w)

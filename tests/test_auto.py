"""The default method: what it finds, what it proves, what it keeps, and when it stops."""

from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
import pytest
import scipy.sparse as sp

from cases import LOSSES
from diht import Problem, solve
from diht.bounds.duality import primal
from diht.constraints.groups import constrained
from diht.design import DenseDesign, as_design
from diht.losses import Hinge, Huber, Logistic, Loss, Squared, SquaredHinge
from diht.refit import never
from diht.result import Status
from diht.samples import memory
from diht.samples.least_squares import ridge
from diht.solvers import Auto, BranchAndBound, Start
from diht.solvers.auto import STAGES, relaxation_run
from diht.solvers.auto.profile import Profile
from diht.solvers.auto.relaxation_run import RelaxationRun
from diht.solvers.auto.stages import (
    Beginning,
    Branching,
    Continuation,
    DualRounding,
    EarlyShift,
    ForwardSelection,
    LargerRidge,
    ManyStarts,
    Perturbation,
    RelaxationAgain,
    RelaxationRounding,
    RelaxationSolution,
    Reselection,
    Restarts,
    RidgeRounding,
    RowSample,
    Shift,
    ShortTree,
    Stage,
    SwapOptimality,
    Swaps,
)
from diht.solvers.auto.state import AutoState, Budget
from oracle import best_subset, clear_data, scaled_words, small_data, some_weights, targets
from test_relaxed import Quantile


def medium(loss: Loss, n_threads: int = 1) -> Problem:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((80, 300)) + 0.7 * rng.standard_normal((80, 1))
    y = targets(loss, X[:, [1, 50, 200, 299]].sum(axis=1), rng)
    return Problem(X, y, loss, 4, 1e-3, fit_intercept=True, n_threads=n_threads)


@pytest.mark.parametrize("loss", [*LOSSES, Quantile()], ids=str)
def test_finds_the_optimum_of_small_problems(loss: Loss) -> None:
    X, y = small_data(loss)
    problem = Problem(X, y, loss, 3, 0.01, some_weights(len(y)), True)
    best = best_subset(problem).objective
    result = solve(problem)
    assert result.solver == repr(Auto())
    assert result.objective == pytest.approx(best, rel=1e-6)
    assert result.lower_bound <= best * (1 + 1e-12)


class Late(Stage):
    """A hundred pieces of work in vain."""

    def run(self, state: AutoState) -> Iterator[None]:
        for _ in range(100):
            yield


class Waiting(Auto):
    stages = (Beginning(), Late())


def test_a_stage_is_not_ended_by_work_in_vain() -> None:
    assert len(solve(medium(Squared()), Waiting()).trace) > 100


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_proves_clear_problems(loss: Loss) -> None:
    problem = Problem(*clear_data(loss), loss, 2, 1.0)
    result = solve(problem, tol=1e-5)
    assert result.status is Status.OPTIMAL
    assert result.support.tolist() == [0, 1]


def test_no_swap_improves_it() -> None:
    problem = medium(Squared())
    result = solve(problem)
    w, b = np.asarray(result.w), problem.centred_intercept(result.w, result.intercept)
    from diht.search.swaps import swap_search

    assert swap_search(problem, result.support, w, b).objective >= result.objective * (1 - 1e-9)


@pytest.mark.parametrize("solver", [Auto(), BranchAndBound(max_nodes=20)], ids=["auto", "branch"])
def test_the_pool_is_sorted_distinct_and_true(solver: Auto | BranchAndBound) -> None:
    problem = medium(Squared())
    result = solve(problem, solver)
    assert len(result.pool) > 1
    objectives = [model.objective for model in result.pool]
    assert objectives == sorted(objectives)
    assert result.objective <= objectives[0] * (1 + 1e-12)
    assert len({model.support.tobytes() for model in result.pool}) == len(result.pool)
    for model in result.pool:
        w, b = np.asarray(model.w), problem.centred_intercept(model.w, model.intercept)
        assert problem.constraint.allows(w)
        assert primal(problem, w, b) == pytest.approx(model.objective, rel=1e-12)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_the_same_seed_and_threads_give_the_same_result(n_threads: int) -> None:
    problem = medium(Logistic(), n_threads)
    one, two = (solve(problem, Auto(random_state=1)) for _ in range(2))
    np.testing.assert_array_equal(one.w, two.w)
    np.testing.assert_array_equal(one.alpha, two.alpha)
    assert (one.lower_bound, one.n_iter) == (two.lower_bound, two.n_iter)


def test_it_is_never_worse_than_its_start() -> None:
    X, y = small_data(Logistic())
    problem = Problem(X, y, "logistic", 3, 1e-3)
    best = best_subset(problem)
    result = solve(problem, start=Start(best.w, best.b))
    assert result.objective <= best.objective * (1 + 1e-12)


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=str)
@pytest.mark.parametrize("limit", [1, 3, 10])
def test_a_stop_ends_it_soon(loss: Loss, limit: int) -> None:
    """Whatever piece of the work is in progress; the few that ask once more are told so again."""
    problem, asked = medium(loss), []

    def stop() -> bool:
        asked.append(True)
        return len(asked) >= limit

    result = solve(problem, tol=0.0, stop=stop)
    assert result.status is Status.STOPPED
    assert len(asked) == limit  # once it is True, nobody needs to ask again
    assert len(result.support) <= 4
    assert result.lower_bound <= result.objective


@pytest.mark.parametrize("shape", [(20, 60), (60, 20)])
def test_the_guess_is_a_weighted_ridge_regression(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    X, y, s = rng.standard_normal(shape), rng.standard_normal(shape[0]), rng.random(shape[0])
    w = ridge(as_design(X), y, s, 0.3)
    assert w is not None
    np.testing.assert_allclose(X.T @ (s * (X @ w - y)) + 0.3 * w, 0.0, atol=1e-12)
    assert ridge(DenseDesign(np.full(shape, np.inf)), y, s, 0.3) is None


def test_a_small_ridge_is_no_reason_to_wait() -> None:
    """Where the relaxation is loose, the planted features are found by an easier one, before ten reads of X."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 4500))
    y = X[:, :20].sum(axis=1) + 0.5 * rng.standard_normal(500)
    problem = Problem(X, y, Squared(), 20, 1e-3)
    passes: list[float] = []
    solve(
        problem,
        callback=lambda it: passes.append(problem.design.passes) if set(it.model.support) == set(range(20)) else None,
        stop=lambda: bool(passes),
    )
    assert passes[0] < 10.0


# ---------------------------------------------------------------------------------------------------------------------
# Stages


def drawn(loss: Loss, n: int, d: int, k: int, rho: float, snr: float, lam: float, seed: int) -> Problem:
    """Features with correlations rho^|i-j|, k of them with unit coefficients, and targets of unit spread."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    for j in range(1, d):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1.0 - rho**2) * X[:, j]
    signal, noise = X[:, np.arange(k) * (d // k) + d // k // 2].sum(axis=1), rng.standard_normal(n)
    y = signal + noise * (np.linalg.norm(signal) / np.sqrt(snr) / np.linalg.norm(noise))
    y = y / y.std() if loss.task == "regression" else np.where(y > np.median(y), 1.0, -1.0)
    return Problem(X, y, loss, k, lam, fit_intercept=bool(seed % 2), n_threads=1)


@cache
def wide_and_weak() -> Problem:
    """Too large for a ridge regression or for searches of every start, under a ridge far below the curvature."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 4100))
    return Problem(X, X[:, :20].sum(axis=1) + 0.5 * rng.standard_normal(500), Squared(), 20, 1e-3, n_threads=1)


def words_of_topics() -> Problem:
    """Words that stand for each other where they are of one topic, divided by their standard deviations."""
    rng = np.random.default_rng(0)
    topic, documents = rng.integers(20, size=3000), rng.random((700, 20)) < 0.15
    X = (rng.random((700, 3000)) < np.where(documents[:, topic], 0.12, 0.004)).astype(np.float64)
    signal = documents @ rng.standard_normal(20)
    y = np.where(signal - np.median(signal) + 0.3 * rng.logistic(size=700) > 0.0, 1.0, -1.0)
    return Problem(sp.csr_array(X / X.std(axis=0)), y, Logistic(), 20, 1e-3, None, True, n_threads=1)


def rare_words() -> Problem:
    """Columns of few, large entries, which mislead a quadratic model of the objective."""
    return Problem(*scaled_words(0, 200, 150), Logistic(), 10, 1e-3, None, True)


# For each stage a problem where it helps, what it improves by how much of the objective, and one to which it does not apply.
Draw = Callable[[], Problem]
CASES: dict[type[Stage], tuple[Draw, str, float, Draw | None]] = {
    RowSample: (
        partial(drawn, Logistic(), 200_000, 21, 3, 0.5, 2.0, 1e-2, 1),
        "objective",
        0.3,
        partial(medium, Logistic()),
    ),
    RidgeRounding: (partial(drawn, Squared(), 28, 13, 5, 0.5, 10.0, 2e-3, 310), "objective", 1.0, wide_and_weak),
    DualRounding: (wide_and_weak, "objective", 1.0, partial(medium, Squared())),
    ForwardSelection: (
        partial(drawn, Squared(), 78, 61, 7, 0.9, 10.0, 1e-2, 292),
        "objective",
        1.0,
        partial(drawn, Squared(), 20, 30, 3, 0.5, 2.0, 1.0, 0),
    ),
    EarlyShift: (partial(drawn, Squared(), 61, 42, 6, 0.5, 10.0, 3e-4, 221), "bound", 0.2, partial(medium, Squared())),
    RelaxationSolution: (partial(drawn, Logistic(), 79, 73, 4, 0.9, 10.0, 4e-3, 373), "bound", 0.3, None),
    RelaxationRounding: (partial(drawn, Huber(), 21, 66, 8, 0.9, 0.5, 2e-3, 173), "objective", 0.5, None),
    Swaps: (partial(drawn, Hinge(), 46, 90, 8, 0.0, 0.5, 3e-4, 486), "objective", 0.5, None),
    Shift: (partial(drawn, Squared(), 50, 71, 3, 0.5, 0.5, 1.5, 96), "bound", 0.01, partial(medium, Logistic())),
    ShortTree: (partial(drawn, Logistic(), 60, 15, 4, 0.7, 1.0, 1e-3, 5), "bound", 0.01, None),
    Continuation: (partial(drawn, Huber(), 22, 112, 8, 0.5, 0.5, 1e-2, 473), "objective", 0.1, None),
    LargerRidge: (
        partial(drawn, Squared(), 16, 88, 6, 0.7, 1e4, 2e-4, 148),
        "objective",
        1.0,
        partial(medium, Logistic()),
    ),
    Reselection: (
        partial(drawn, Hinge(), 30, 24, 4, 0.5, 10.0, 0.005246931069752093, 1),
        "objective",
        0.1,
        partial(medium, Logistic()),
    ),
    Perturbation: (
        partial(drawn, Hinge(), 31, 89, 7, 0.5, 0.5, 5e-3, 334),
        "objective",
        0.01,
        partial(medium, Squared()),
    ),
    ManyStarts: (
        partial(drawn, SquaredHinge(), 40, 2000, 5, 0.5, 2.0, 1e-3, 2),
        "objective",
        0.01,
        partial(medium, Logistic()),
    ),
    RelaxationAgain: (partial(drawn, Logistic(), 40, 800, 3, 0.5, 2.0, 1e-2, 1), "bound", 0.05, None),
    SwapOptimality: (rare_words, "objective", 0.01, None),
    Restarts: (words_of_topics, "objective", 0.001, partial(medium, Squared())),
    Branching: (partial(drawn, Logistic(), 60, 15, 4, 0.7, 1.0, 1e-3, 5), "bound", 0.01, None),
}


def run_before(problem: Problem, kind: type[Stage]) -> tuple[AutoState, Stage]:
    """Run the stages up to one of a kind, and return it."""
    state = AutoState(problem, Start())
    state.solve_part = partial(Auto()._solved, never)
    for stage in STAGES:
        if isinstance(stage, kind):
            return state, stage
        if state.is_open and stage.applies(state.profile):
            list(stage.run(state))
    raise AssertionError(kind)


def figures(state: AutoState) -> dict[str, float]:
    assert state.bound is not None
    return {"objective": state.objective, "bound": state.bound.value}


def test_every_stage_has_a_case() -> None:
    assert [Beginning, *CASES] == [type(stage) for stage in STAGES]


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_a_stage_helps_where_it_applies(kind: type[Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    draw, what, least, elsewhere = CASES[kind]
    if kind is Restarts:  # as if X were too large to be formed
        monkeypatch.setattr(memory, "_MOST_ENTRIES", 0.0)
    problem = draw()
    with monkeypatch.context() as before:
        if kind is RelaxationAgain:  # as if the incumbent had been a poor one
            before.setattr(relaxation_run, "_HOPELESS", np.inf)
        state, stage = run_before(problem, kind)
    assert stage.applies(state.profile)
    assert elsewhere is None or not stage.applies(Profile(elsewhere()))
    before = figures(state)
    list(stage.run(state))
    after = figures(state)
    gains = {"objective": before["objective"] - after["objective"], "bound": after["bound"] - before["bound"]}
    assert min(gains.values()) >= 0.0
    assert gains[what] > least * abs(after["objective"])
    assert problem.constraint.allows(state.best.w)
    assert after["bound"] <= after["objective"]


def test_the_beginning_evaluates_the_start() -> None:
    problem = medium(Squared())
    w = np.zeros(300)
    w[[1, 50]] = 1.0
    state = AutoState(problem, Start(w, 0.5))
    list(Beginning().run(state))
    assert state.objective == pytest.approx(primal(problem, w, 0.5), rel=1e-12)
    assert 0.0 <= figures(state)["bound"] <= state.objective


def test_forward_selection_shows_each_model_on_its_way() -> None:
    problem = Problem(*scaled_words(1, 200, 150), Logistic(), 10, 1e-3, None, True)
    state, stage = run_before(problem, ForwardSelection)
    shown = [(state.objective, len(state.best.support)) for _ in stage.run(state)]
    objectives = [objective for objective, _ in shown]
    assert objectives == sorted(objectives, reverse=True)
    growing = {size for _, size in shown if size < 10}
    assert len(growing) >= 2
    assert len({objective for objective, size in shown if size == 10}) >= 2  # grown, then swapped


def test_no_stage_begins_once_the_gap_is_closed() -> None:
    problem = Problem(*clear_data(Squared()), Squared(), 2, 1.0)
    state = AutoState(problem, Start())
    list(Auto()._work(state))
    assert not state.is_open
    asked: list[Stage] = []

    class Recorded(Auto):
        stages = tuple(
            type("Spy", (type(stage),), {"run": lambda self, state: asked.append(self)})() for stage in STAGES
        )

    list(Recorded()._work(state))
    assert asked == []


def test_a_start_from_a_path_needs_no_starts_as_long_as_it_stands() -> None:
    problem = medium(Squared())
    best = solve(problem)
    known, poor = (np.asarray(best.w), np.eye(300)[7])

    def stages_of(w: np.ndarray, method: Auto) -> set[str]:
        ran: set[str] = set()

        class Spying(Auto):
            stages = tuple(
                type(
                    type(stage).__name__,
                    (type(stage),),
                    {"run": lambda self, state, run=stage.run: ran.add(type(self).__name__) or run(state)},
                )()
                for stage in STAGES
            )

        result = solve(problem, Spying(follows_path=method.follows_path), Start(w, best.intercept))
        assert result.objective <= best.objective * (1 + 1e-9)
        return ran

    for_starts = {type(stage).__name__ for stage in STAGES if stage.seeks_starts and stage.applies(Profile(problem))}
    assert len(for_starts) >= 2
    assert not stages_of(known, Auto(follows_path=True)) & for_starts
    assert stages_of(known, Auto()) >= for_starts
    assert "LargerRidge" in for_starts & stages_of(poor, Auto(follows_path=True))


def test_constraints_that_are_not_plain_get_perturbations_besides_shifts() -> None:
    X, y = small_data(Squared())
    groups = Profile(Problem(X, y, Squared(), constrained(2, 7, groups=np.arange(7) // 2), 0.1))
    plain = Profile(Problem(X, y, Squared(), 2, 0.1))
    assert [Perturbation().applies(profile) for profile in (groups, plain)] == [True, False]
    for stage in (Shift(), EarlyShift()):
        assert [stage.applies(profile) for profile in (groups, plain)] == [True, True]


def test_a_budget_ends_by_reads_or_by_time() -> None:
    problem, late = medium(Squared()), []
    budget = Budget(problem, lambda: bool(late), problem.design.passes)
    spent = budget.within(1.5)
    assert not spent()
    problem.design.matvec(np.ones(300))
    assert not spent()
    problem.design.matvec(np.ones(300))
    assert spent()
    assert budget.reads == pytest.approx(2.0)
    later = budget.within(10.0)
    assert not later()
    late.append(True)
    assert later()


def test_a_hopeless_relaxation_is_left_where_no_tree_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bound of the relaxation exceeds its optimum: where that is little, only a tree gains by more steps."""
    steps, advance = [], RelaxationRun.advance
    monkeypatch.setattr(RelaxationRun, "advance", lambda run: steps.append(run.problem) or advance(run))
    problem = drawn(Logistic(), 80, 160, 8, 0.9, 2.0, 1e-3, 0)

    def steps_of(branchable: bool, hopeless: float) -> int:
        monkeypatch.setattr(Profile, "is_branchable", lambda *_: branchable)
        monkeypatch.setattr(relaxation_run, "_HOPELESS", hopeless)
        steps.clear()
        result = solve(problem)
        assert 0.0 <= result.lower_bound <= result.objective
        return sum(one is problem for one in steps)

    assert steps_of(branchable=True, hopeless=1.0) == steps_of(branchable=False, hopeless=0.0) > 1
    assert steps_of(branchable=False, hopeless=np.inf) == 1


@pytest.mark.parametrize("n", [399, 400, 401, 599, 601, 799, 800, 1300])
def test_a_sample_of_the_rows_is_no_more_than_half_of_them(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diht.solvers.auto.profile._SAMPLE", 1)
    monkeypatch.setattr("diht.solvers.auto.profile._MANY_ENTRIES", 1.0)
    problem = drawn(Logistic(), n, 2, 1, 0.5, 2.0, 1e-2, 1)
    result = solve(problem)
    assert result.objective == pytest.approx(solve(problem, "branch", tol=1e-9).objective, rel=1e-9)
    assert Profile(problem).has_many_rows == (n >= 800)


def test_models_of_the_sample_are_fitted_to_all_rows_as_they_come():
    """The first model of the sample is there before the search among its rows ends, and no support is fitted twice."""
    problem = drawn(Logistic(), 60_000, 80, 5, 0.5, 2.0, 1e-2, 0)
    result = solve(problem)
    reads = next(it.passes for it in result.trace if it.best_objective <= (1 + 1e-6) * result.objective)
    assert reads < 0.5 * result.n_passes
    assert reads < 8.0


def test_rows_are_sampled_once(monkeypatch):
    """Of several targets the sample may be so large that it would be sampled again."""
    monkeypatch.setattr("diht.solvers.auto.profile._MANY_ENTRIES", 1.0)
    monkeypatch.setattr("diht.solvers.auto.profile._SAMPLE", 1)
    monkeypatch.setattr("diht.solvers.auto.profile._SAMPLE_EACH", 25)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=300), [-0.5, 0.5])
    result = solve(Problem(X, y, "multinomial", 2, 0.1, fit_intercept=True))
    assert result.lower_bound <= result.objective
    assert result.relative_gap <= 1e-3

"""Branch and bound against enumeration; its trees are checked, tampered with, stopped and taken up again."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from cases import LOSSES
from diht import Problem, solve
from diht.bounds.duality import primal
from diht.bounds.rule import Rule, SparseVector
from diht.losses import Logistic, Loss, Squared
from diht.refit import refit
from diht.result import Result, Status
from diht.solvers import BranchAndBound, Start
from diht.solvers.tree import Leaf, TreeBound, _covers
from oracle import best_subset, small_data, targets

EXACT = 1e-9


def noisy(loss: Loss, n: int = 16, d: int = 12, k: int = 4, lam: float = 1e-3, seed: int = 4) -> Problem:
    """Correlated columns, hardly more samples than features: no gap closes without branching."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
    return Problem(X, targets(loss, X[:, :k].sum(axis=1), rng), loss, k, lam, fit_intercept=True, n_threads=2)


def tree(problem: Problem, **settings: int) -> tuple[Result, TreeBound]:
    result = solve(problem, BranchAndBound(**settings), tol=EXACT)
    bound = result.certificate.bound
    assert isinstance(bound, TreeBound)
    return result, bound


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_equal_to_enumeration(loss: Loss, intercept: bool) -> None:
    """With twin columns among the features."""
    X, y = small_data(loss)
    problem = Problem(X, y, loss, 3, 1e-3, fit_intercept=intercept, n_threads=1)
    tol = EXACT if loss.mu > 0 else 1e-5
    best = best_subset(problem).objective
    result = solve(problem, BranchAndBound(), tol=tol)
    assert result.objective == pytest.approx(best, rel=1e-7)
    assert result.lower_bound <= best * (1 + 1e-12)
    assert result.relative_gap <= tol
    assert result.status is Status.OPTIMAL


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=str)
def test_the_tree_proves_what_it_says(loss: Loss) -> None:
    problem = noisy(loss)
    result, bound = tree(problem)
    assert result.status is Status.OPTIMAL
    assert len(bound.leaves) > 1
    assert bound.root.value < 0.99 * bound.value
    assert bound.check(problem) == pytest.approx(bound.value, rel=1e-11)
    assert result.objective == pytest.approx(best_subset(problem).objective, rel=1e-9)


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=str)
def test_a_tree_that_was_tampered_with_proves_no_more(loss: Loss) -> None:
    problem = noisy(loss)
    result, bound = tree(problem)
    for i in range(len(bound.leaves)):
        fewer = replace(bound, leaves=bound.leaves[:i] + bound.leaves[i + 1 :])
        assert fewer.check(problem) == bound.root.check(problem)
    raised = tuple(replace(leaf, bound=1e9) for leaf in bound.leaves)
    for false in (
        replace(bound, value=1e9),
        replace(bound, leaves=raised, value=1e9),
        replace(bound, ceiling=1e9, leaves=raised),
        replace(bound, root=replace(bound.root, value=1e9)),
        replace(bound, ridges=100.0 * bound.ridges + 1.0),
        replace(bound, features=bound.features[:-1]),
        replace(bound, root=replace(bound.root, value=1e9), features=bound.features[:-1], ceiling=1e9),
        replace(bound, leaves=tuple(replace(leaf, proof=leaf.w) for leaf in bound.leaves)),
        replace(bound, leaves=tuple(replace(leaf, proof=Rule(leaf.w, 0.5)) for leaf in bound.leaves)),
        replace(bound, leaves=tuple(replace(leaf, proof=None) for leaf in bound.leaves)),
    ):
        assert false.check(problem) <= result.objective * (1 + 1e-12)


@pytest.mark.parametrize("max_nodes", [None, 12])
@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=str)
def test_screening_is_never_contradicted(loss: Loss, max_nodes: int | None) -> None:
    problem = noisy(loss, d=9, k=3)
    result = solve(problem, BranchAndBound(max_nodes=max_nodes), tol=EXACT)
    screening = result.certificate.bound.screening(problem)
    objectives = {}
    for support in combinations(range(9), 3):
        fit = refit(problem, np.array(support))
        w, b, u = fit.w, fit.b, fit.u
        objectives[support] = primal(problem, w, b, u)
    for j in range(9):
        without = min(value for support, value in objectives.items() if j not in support)
        within = min(value for support, value in objectives.items() if j in support)
        assert screening.without[j] <= without * (1 + 1e-12)
        assert screening.within[j] <= within * (1 + 1e-12)
    if max_nodes is None:  # the optimum is unique: every feature is decided
        assert np.array_equal(result.certificate.required, result.support)


def test_twins_are_not_told_apart() -> None:
    problem = noisy(Squared(), d=8, k=3)
    X = problem.design.toarray()
    doubled = Problem(np.hstack([X, X]), problem.y, "squared", 3, 1e-3, fit_intercept=True)
    result = solve(doubled, BranchAndBound(), tol=EXACT)
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(best_subset(doubled).objective, rel=1e-9)
    assert len(result.certificate.required) == 0
    assert not set(result.certificate.excluded.tolist()) & {(j + 8) % 16 for j in result.support.tolist()}


def test_limits_leave_a_true_gap() -> None:
    problem = noisy(Squared(), d=16, k=5, lam=1e-5)
    best = solve(problem, BranchAndBound(), tol=EXACT)
    assert best.status is Status.OPTIMAL
    for solver in (BranchAndBound(max_nodes=4), BranchAndBound(max_memory=1e3)):
        result = solve(problem, solver, tol=EXACT)
        assert result.status is Status.MAX_ITER
        assert result.lower_bound < best.objective * (1 - 1e-3)
        assert result.objective >= best.objective * (1 - 1e-12)
        assert len(result.trace) >= 2
    assert [iterate.n_open for iterate in best.trace if iterate.n_open is not None][-1] >= 0


# Taking up a search again


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=str)
def test_a_search_goes_on(loss: Loss) -> None:
    problem = noisy(loss)
    whole = solve(problem, BranchAndBound(), tol=EXACT)
    first = solve(problem, BranchAndBound(max_nodes=4), tol=EXACT)
    assert first.status is not Status.OPTIMAL
    second = solve(problem, BranchAndBound(), first, tol=EXACT)
    assert second.status is Status.OPTIMAL
    assert second.objective == pytest.approx(whole.objective, rel=1e-9)
    bounds = [iterate.best_bound for iterate in second.trace if iterate.iteration > 0]
    assert bounds[0] >= first.lower_bound * (1 - 1e-9)
    assert nodes(problem, first) < nodes(problem, None)
    again = solve(problem, BranchAndBound(), second, tol=EXACT)
    assert again.status is Status.OPTIMAL
    assert again.n_iter <= 1


def nodes(problem: Problem, start: Result | None) -> int:
    """How many nodes a search solves, to its end."""
    from diht.solvers.loop import as_start

    solver = BranchAndBound()
    state = solver.init(problem, as_start(problem, start))
    while not solver.finished(state):
        solver.advance(problem, state)
    assert state.tree is not None
    return state.tree.solved


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=str)
def test_the_tree_of_another_problem_does_no_harm(loss: Loss) -> None:
    result, bound = tree(noisy(loss, d=10), max_nodes=40)
    for other in (
        noisy(loss, d=10, seed=5),
        noisy(loss, d=10, lam=0.1),
        noisy(loss, d=10, k=2),
        noisy(loss, d=10, n=15),
        noisy(Logistic() if loss == Squared() else Squared(), d=10),
    ):
        best = best_subset(other).objective
        assert bound.check(other) <= best * (1 + 1e-12)
        start = result if other.shape[0] == 16 else replace(result)
        solved = solve(other, BranchAndBound(), start, tol=EXACT)
        assert solved.objective == pytest.approx(best, rel=1e-9)
        assert solved.lower_bound <= best * (1 + 1e-12)
        assert solved.status is Status.OPTIMAL
    fewer = noisy(loss, d=8)
    assert bound.check(fewer) <= best_subset(fewer).objective * (1 + 1e-12)


def test_a_stop_leaves_a_tree_that_covers_everything() -> None:
    """A stop in the middle of a batch: nodes that were not solved keep their parent's proof."""
    problem = noisy(Squared(), d=16, k=5, lam=1e-5)
    best = solve(problem, BranchAndBound(), tol=EXACT).objective
    for limit in (1, 20, 70, 100):
        asked = iter(range(10**6))
        result = solve(problem, BranchAndBound(), tol=0.0, stop=lambda asked=asked, limit=limit: next(asked) >= limit)
        assert result.status is Status.STOPPED
        assert next(asked) <= limit + 1
        assert result.lower_bound <= result.certificate.bound.check(problem)
        assert result.certificate.bound.check(problem) == pytest.approx(result.lower_bound, rel=1e-11)
        assert result.lower_bound <= best * (1 + 1e-12)
        rest = solve(problem, BranchAndBound(), result, tol=EXACT)
        assert rest.objective == pytest.approx(best, rel=1e-9)


def test_the_same_result_for_the_same_seed() -> None:
    problem = noisy(Logistic())
    one, two = (solve(problem, BranchAndBound(random_state=1), tol=EXACT) for _ in range(2))
    np.testing.assert_array_equal(one.w, two.w)
    assert (one.lower_bound, one.n_iter, len(one.pool)) == (two.lower_bound, two.n_iter, len(two.pool))


def test_a_given_start_is_kept() -> None:
    problem = noisy(Squared())
    best = best_subset(problem)
    result = solve(problem, BranchAndBound(max_nodes=1), Start(best.w, best.b), tol=EXACT)
    assert result.objective <= best.objective * (1 + 1e-12)


# Coverage


def leaf(inside: list[int], outside: list[int]) -> Leaf:
    nothing = SparseVector.of(np.empty(0))
    return Leaf(np.array(inside, dtype=np.int64), np.array(outside, dtype=np.int64), 0.0, 0.0, nothing, nothing)


@pytest.mark.parametrize("seed", range(20))
def test_coverage_against_enumeration(seed: int) -> None:
    """Any set of leaves that is said to cover does; that of a tree is seen to."""
    rng = np.random.default_rng(seed)
    leaves = [leaf([], [])]
    for _ in range(6):
        old = leaves.pop(rng.integers(len(leaves)))
        free = sorted(set(range(5)) - set(old.inside.tolist()) - set(old.outside.tolist()))
        if not free:
            leaves.append(old)
            continue
        j = int(rng.choice(free))
        leaves += [
            leaf([*old.inside.tolist(), j], old.outside.tolist()),
            leaf(old.inside.tolist(), [*old.outside.tolist(), j]),
        ]
    assert _covers(leaves, set(), set())
    for i in range(len(leaves)):
        assert not _covers(leaves[:i] + leaves[i + 1 :], set(), set())
    flipped = [leaf(one.outside.tolist(), one.inside.tolist()) if rng.random() < 0.3 else one for one in leaves]
    if _covers(flipped, set(), set()):
        for chosen in (set(c) for size in range(6) for c in combinations(range(5), size)):
            assert any(set(x.inside.tolist()) <= chosen and not set(x.outside.tolist()) & chosen for x in flipped)


def test_no_leaves_cover_nothing() -> None:
    assert not _covers([], set(), set())
    assert _covers([leaf([], [])], set(), set())
    assert not _covers([leaf([1], []), leaf([], [2])], set(), set())

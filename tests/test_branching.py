"""The search tree of the default: what it proves within its budget, and that nothing but the problem decides how far it gets."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from diht import Problem, SparseRegressorCV, solve
from diht.constraints.groups import constrained
from diht.losses import Logistic, Loss, Multinomial, SmoothedHinge, Squared
from diht.result import Result, Status
from diht.solvers import Auto, BranchAndBound, Start
from diht.solvers.auto import stages
from diht.solvers.sweep import solve_path
from diht.solvers.tree import TreeBound
from oracle import best_subset, small_data, targets


def correlated(loss: Loss, n: int, d: int, k: int, lam: float, n_threads: int = 1) -> Problem:
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
    y = targets(loss, X[:, :k].sum(axis=1) + 2.0 * rng.standard_normal(n), rng)
    return Problem(X, y, loss, k, lam, fit_intercept=True, n_threads=n_threads)


def tree_of(result: Result) -> TreeBound:
    bound = result.certificate.bound
    assert isinstance(bound, TreeBound)
    return bound


@pytest.mark.parametrize("loss", [Squared(), Logistic(), SmoothedHinge()], ids=str)
def test_a_small_table_is_proved(loss: Loss) -> None:
    X, y = small_data(loss)
    problem = Problem(X, y, loss, 3, 1e-3, fit_intercept=True)
    result = solve(problem)
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(best_subset(problem).objective, rel=1e-7)
    assert result.lower_bound <= best_subset(problem).objective * (1 + 1e-12)


@pytest.mark.parametrize("structure", [{"groups": [0, 0, 1, 2, 3, 3, 4]}, {"sign": 1}, {"keep": [3]}], ids=str)
def test_groups_and_signs_are_proved(structure: dict[str, object]) -> None:
    X, y = small_data(Squared())
    constraint = constrained(2, X.shape[1], **structure)  # type: ignore[arg-type]
    problem = Problem(X, y, Squared(), constraint, 1e-3, fit_intercept=True)
    result = solve(problem)
    assert result.status is Status.OPTIMAL
    assert result.certificate.bound.check(problem) >= result.lower_bound


def test_several_classes_are_proved() -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((60, 8)) + rng.standard_normal((60, 1))
    y = np.argmax(X[:, :3] + 0.5 * rng.standard_normal((60, 3)), axis=1)
    result = solve(Problem(X, y, Multinomial(), 3, 1e-3, fit_intercept=True))
    assert result.status is Status.OPTIMAL


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=str)
def test_threads_do_not_change_the_tree(loss: Loss) -> None:
    """Enough entries for a second thread, and nodes for compiled steps."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = np.tile((X - X.mean(axis=0)) / X.std(axis=0), (2, 1)), np.tile(2.0 * y - 1.0, 2)
    lam = 1e-3 if loss.is_squared_error else 1e-2
    one, two = (solve(Problem(X, y, loss, 3, lam, None, True, n_threads=n), tol=1e-9) for n in (1, 2))
    assert one.status is two.status is Status.OPTIMAL
    assert one.n_iter == two.n_iter
    assert one.objective == pytest.approx(two.objective, rel=1e-13)
    assert one.lower_bound == pytest.approx(two.lower_bound, rel=1e-11)
    leaves = [sorted((a.inside.tolist(), a.outside.tolist()) for a in tree_of(r).leaves) for r in (one, two)]
    assert leaves[0] == leaves[1]


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=str)
def test_the_status_tells_of_a_budget_that_is_used_up(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = correlated(loss, 30, 14, 4, 1e-3)
    whole = solve(problem, tol=1e-9)
    assert whole.status is Status.OPTIMAL
    assert len(tree_of(whole).leaves) > 4
    monkeypatch.setattr(stages, "_BUDGET", 1e6)
    monkeypatch.setattr(stages, "_FIRST_LOOK", 1.0)
    part = solve(problem, tol=1e-9)
    assert part.status is Status.NODE_LIMIT
    assert "nodes" in part.status.meaning
    assert 0.0 < part.lower_bound < whole.objective * (1 - 1e-6)
    assert part.objective == pytest.approx(whole.objective, rel=1e-9)
    exact = solve(problem, BranchAndBound(), part, tol=1e-9)  # goes on with the tree
    assert exact.status is Status.OPTIMAL
    assert exact.n_iter < solve(problem, BranchAndBound(), tol=1e-9).n_iter


def test_a_hopeless_tree_ends_early() -> None:
    problem = correlated(Squared(), 40, 120, 10, 1e-4)
    state = Auto().init(problem, Start())
    while not state.done:
        Auto().advance(problem, state)
    assert state.tree is not None
    assert state.tree.open
    assert Auto().ending(state) is Status.STALLED
    assert state.tree.operations <= 0.1 * stages._BUDGET


def test_paths_and_folds_do_not_branch() -> None:
    problem = correlated(Squared(), 60, 12, 4, 1e-4)
    assert isinstance(solve(problem).certificate.bound, TreeBound)
    results = solve_path(problem, [3, 4], [1e-4])
    assert not any(isinstance(result.certificate.bound, TreeBound) for result in results.values())
    assert results[4, 1e-4].solver == repr(Auto())


def test_the_last_fit_of_a_cross_validation_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    planted: list[tuple[int, int]] = []
    plant = stages.plant

    def recorded(problem: Problem, *rest: Any) -> Any:
        planted.append(problem.shape)
        return plant(problem, *rest)

    monkeypatch.setattr(stages, "plant", recorded)
    rng = np.random.default_rng(5)
    X = rng.standard_normal((60, 12)) + rng.standard_normal((60, 1))
    y = X[:, :6].sum(axis=1) + 4.0 * rng.standard_normal(60)
    model = SparseRegressorCV(ks=[3, 4], lams=[1e-4], cv=3, standardize=False).fit(X, y)
    assert isinstance(model.certificate_.bound, TreeBound)
    assert model.result_.status is Status.OPTIMAL
    assert planted == [(60, 12)]


def test_no_branching_on_demand() -> None:
    problem = correlated(Squared(), 60, 12, 4, 1e-4)
    result = solve(problem, Auto(branching=False))
    assert result.status is Status.STALLED
    assert result.lower_bound < solve(problem).lower_bound


def wide(lam: float) -> Problem:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((200, 1200))
    return Problem(X, X[:, :4].sum(axis=1) + rng.standard_normal(200), Squared(), 4, lam, n_threads=1)


def test_many_features_are_branched_on_where_the_gap_is_not_wide() -> None:
    loose = solve(wide(0.15), Auto(branching=False))
    assert 1e-3 < loose.certificate.relative_gap < 0.2
    assert solve(wide(0.15)).status is Status.OPTIMAL


def test_many_features_are_left_where_the_gap_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    planted: list[Problem] = []
    monkeypatch.setattr(stages, "plant", lambda problem, *_: planted.append(problem))
    result = solve(wide(1e-3))
    assert result.certificate.relative_gap > 0.2
    assert not planted

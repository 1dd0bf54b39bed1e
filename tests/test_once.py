"""What is known is not computed again: reads of X, losses, checks and searches are counted."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import sklearn.utils.validation

import diht.solvers.sweep
from diht import Problem, SparseClassifier, SparseRegressor, solve
from diht.estimators import classifier
from diht.fit import Fit
from diht.losses import Logistic, Loss, Squared
from diht.refit import refit
from diht.samples import MemorySamples
from diht.solvers import Auto, Start
from diht.solvers.sweep import solve_path


@dataclass(frozen=True)
class Counted(Logistic):
    """The logistic loss, with the number of its evaluations."""

    calls: list[int] = field(default_factory=list)

    def value(self, u: Any, y: Any) -> Any:
        self.calls.append(1)
        return super().value(u, y)


def problem_of(loss: Loss, k: int = 3, fit_intercept: bool = True) -> Problem:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 12)) + 1.0
    y = X[:, :4] @ [1.0, -1.0, 0.5, 0.5] + rng.standard_normal(60)
    return Problem(
        X, np.where(y > 0.5, 1.0, -1.0) if loss.task == "classification" else y, loss, k, 0.01, None, fit_intercept
    )


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[tuple[Any, ...]]:
    """Count the calls of a function, by the arguments that each was given."""
    calls, function = [], getattr(module, name)

    def called(*args: Any, **settings: Any) -> Any:
        calls.append(args)
        return function(*args, **settings)

    monkeypatch.setattr(module, name, called)
    return calls


def test_a_look_at_auto_costs_nothing() -> None:
    loss = Counted()
    problem, method = problem_of(loss), Auto()
    state = method.init(problem, Start())
    for _ in range(5):
        method.advance(problem, state)
        before = problem.design.passes, len(loss.calls)
        fit = method.observe(problem, state).fit
        assert (problem.design.passes, len(loss.calls)) == before
        np.testing.assert_allclose(fit.u, problem.design.matvec(fit.w) + fit.b, rtol=1e-12)


@pytest.mark.parametrize(("solver", "reads"), [("auto", 2.0), ("branch", 2.0), ("relaxed", 3.0), ("iht", 2.0)])
def test_the_margins_of_a_start_are_computed_once(solver: str, reads: float) -> None:
    """Before the solve, where their size is checked; they then serve the objective and the dual point."""
    problem = problem_of(Logistic(), k=12)
    assert problem.rounding_norm > 0.0  # reads the norms behind every bound
    first = solve(problem, solver, start=Start(np.ones(12), -1.0), max_iter=1).trace[0]
    assert first.passes == reads
    assert first.objective == pytest.approx(Fit.of(problem, np.ones(12), -1.0).objective, rel=1e-14)


@pytest.mark.parametrize("solver", ["auto", "diht", "relaxed"])
def test_the_intercept_without_features_is_searched_for_once(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch, MemorySamples, "best_intercept")
    problem = problem_of(Logistic())
    solve(problem, solver, max_iter=5)
    solve_path(problem, [1, 2], [0.01, 0.1], solver)
    assert len([u for _, _, u, *start in calls if not np.any(u) and not start]) == 1  # refits start from an intercept


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=str)
def test_a_refit_knows_its_objective_and_margins(loss: Loss) -> None:
    problem = problem_of(loss)
    fit = refit(problem, np.array([7, 2, 5]))
    assert fit.support.tolist() == [2, 5, 7]
    again = Fit.of(problem, fit.w, fit.b)
    assert fit.objective == pytest.approx(again.objective, rel=1e-14)
    assert again.support.tolist() == [2, 5, 7]
    np.testing.assert_allclose(fit.u, again.u, rtol=1e-12)
    shown = fit.model(problem)
    assert shown.objective == fit.objective
    assert problem.centred_intercept(shown.w, shown.intercept) == pytest.approx(fit.b, rel=1e-12)


def test_entries_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch, sklearn.utils.validation, "_assert_all_finite")
    X, y = np.random.default_rng(0).standard_normal((30, 4)), np.arange(30.0)
    for model, targets in ((SparseRegressor(k=2), y), (SparseClassifier(k=2), y > 10)):
        model.fit(X, targets)
        with pytest.raises(ValueError, match="X contains NaN"):
            model.fit(np.where(X > 2.0, np.nan, X), targets)
    assert not [values for values, *_ in calls if np.ndim(values) == 2]


def test_weights_are_normalised_once_on_their_way_to_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch, classifier, "normalised_weights")
    X, y, weights = np.random.default_rng(0).standard_normal((30, 4)), np.arange(30), np.arange(1.0, 31.0)
    SparseClassifier(k=2).fit(X, y % 3 == 0, weights)
    assert len(calls) == 1


@pytest.mark.parametrize("solver", ["auto", "iht"])
def test_a_path_resolves_its_method_once(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch, diht.solvers.sweep, "as_solver")
    solve_path(problem_of(Logistic()), [1, 2, 3], [0.01, 0.1], solver)
    assert len(calls) == 1

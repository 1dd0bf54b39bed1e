"""The default method: what it finds, what it proves, what it keeps, and when it stops."""

import numpy as np
import pytest

from cases import LOSSES
from diht import Problem, solve
from diht.design import DenseDesign, as_design
from diht.design.least_squares import ridge
from diht.duality import primal
from diht.losses import Logistic, Loss, Squared
from diht.result import Status
from diht.solvers import Auto, BranchAndBound, Start
from oracle import best_subset, clear_data, small_data, some_weights, targets
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
    from diht.solvers.swaps import swap_search

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

"""Local searches in plain numpy, against brute force and the refit on a support."""

import numpy as np
import pytest

from diht import Problem
from diht.losses import Hinge, Huber, Logistic, Loss, Poisson, Squared, SquaredHinge
from diht.refit import never, refit
from diht.samples.greedy import Greedy, Grown
from oracle import targets

NOTHING = np.empty(0, dtype=np.int64)


def wide(loss: Loss, fit_intercept: bool = True, n: int = 25, d: int = 60, k: int = 4) -> Problem:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
    return Problem(X, targets(loss, X[:, :3].sum(axis=1), rng), loss, k, 0.02, fit_intercept=fit_intercept)


def greedy_of(problem: Problem) -> Greedy:
    samples = problem.samples
    greedy = samples.greedy(problem.loss, problem.lam, problem.fit_intercept)
    assert greedy is not None
    return greedy


def begun(greedy: Greedy, support: np.ndarray = NOTHING) -> Grown:
    return greedy.fitted(support, np.zeros(len(support)), 0.0, 0.0)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", [Logistic(), SquaredHinge(), Huber(), Poisson()], ids=str)
def test_a_fit_is_the_refit(loss: Loss, fit_intercept: bool) -> None:
    problem, support = wide(loss, fit_intercept), np.array([7, 2, 30])
    model = begun(greedy_of(problem), support)
    exact = refit(problem, support)
    w = np.zeros(60)
    w[model.support] = model.values
    assert model.objective == pytest.approx(exact.objective, rel=1e-6)
    np.testing.assert_allclose(w, exact.w, atol=1e-3)
    assert problem.samples.total(lambda y, u: (u - model.u) ** 2, problem.samples.margins(w, model.b)) < 1e-20


def least_squares(X: np.ndarray, y: np.ndarray, support: list[int], lam: float) -> float:
    Z = np.vstack([X[:, support] / np.sqrt(len(y)), np.sqrt(0.5 * lam) * np.eye(len(support))])
    z = np.append(y / np.sqrt(len(y)), np.zeros(len(support)))
    r = z - Z @ np.linalg.lstsq(Z, z, rcond=None)[0]
    return float(r @ r)


def test_under_a_square_each_addition_is_the_best_and_no_swap_gains_in_the_end() -> None:
    rng = np.random.default_rng(1)
    X, d, lam = rng.standard_normal((30, 15)), 15, 0.05
    y = X[:, :4].sum(axis=1) + rng.standard_normal(30)
    design = Problem(X, y, Squared(), 4, lam).design
    greedy, closed = Greedy(design, y, np.full(30, 1.0 / 30), Squared(), lam, False), np.zeros(d, dtype=bool)
    closed[2] = True
    model, found = begun(greedy), list[int]()
    for size in range(1, 5):
        model = greedy.grown(model, size, closed)
        best = min((least_squares(X, y, [*found, j], lam), j) for j in range(d) if j not in (2, *found))
        found.append(best[1])
        assert model.support.tolist() == found
        assert model.objective == pytest.approx(best[0], rel=1e-9)
    model = greedy.swapped(model, 0, closed, never)
    chosen = model.support.tolist()
    assert 2 not in chosen
    for out in chosen:
        for j in set(range(d)) - {2, *chosen}:
            rest = [i for i in chosen if i != out]
            assert least_squares(X, y, [*rest, j], lam) > model.objective * (1.0 - 2e-6)


def test_swaps_keep_the_first_features_and_what_is_closed_stays_out() -> None:
    problem = wide(Logistic())
    greedy, closed = greedy_of(problem), np.arange(60) % 2 == 0
    model = greedy.grown(begun(greedy, np.array([58, 41])), 5, closed)
    better = greedy.swapped(model, 2, closed, never)
    assert better.objective <= model.objective
    assert better.support[:2].tolist() == [58, 41]
    assert np.all(better.support[2:] % 2 == 1)
    assert len(set(better.support.tolist())) == 5
    assert greedy.swapped(model, 2, closed, lambda: True).support.tolist() == model.support.tolist()


def test_a_model_has_no_more_features_than_are_open() -> None:
    problem = wide(Logistic())
    greedy, closed = greedy_of(problem), np.ones(60, dtype=bool)
    closed[[3, 9]] = False
    assert set(greedy.grown(begun(greedy), 5, closed).support.tolist()) == {3, 9}


def test_where_there_are_none() -> None:
    for loss in (Squared(), Hinge()):
        assert wide(loss).samples.greedy(loss, 0.02, True) is None
    assert wide(Logistic(), n=70).samples.greedy(Logistic(), 0.02, True) is None

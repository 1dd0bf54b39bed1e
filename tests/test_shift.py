"""Shifted bounds against brute force and exact arithmetic, and the shift itself."""

from itertools import combinations

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from mpmath import mp, mpf

from diht import Problem
from diht.bounds.duality import lower_bound, primal, upper_bound
from diht.bounds.shift import in_play, is_proved, problem_gram, shifted_bound, smallest_eigenvalue
from diht.constraints.base import Node
from diht.refit import refit
from diht.relaxation.gram import GramRelaxation
from oracle import best_subset, exact_columns, some_weights


def regression(n: int, d: int, seed: int, twins: bool = False, offset: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((n, 1)) + offset
    if twins:
        X[:, -1] = X[:, 0]
    return X, X[:, :3] @ [1.0, -1.0, 0.7] + 0.5 * rng.standard_normal(n) + 2.0


def exact_gram(
    problem: Problem, X: np.ndarray, features: list[int]
) -> tuple[mp.matrix, list[mpf], mpf, list[list[mpf]]]:
    """G and h over some features, y'Cy, and the centred columns; sixty digits."""
    s, y = [mpf(a) for a in problem.s.tolist()], [mpf(a) for a in problem.y.tolist()]
    columns = [exact_columns(problem, X)[j] for j in features]
    if problem.fit_intercept:
        total = mpmath.fsum(s)
        columns = [[a - mpmath.fdot(s, column) / total for a in column] for column in columns]
        y = [a - mpmath.fdot(s, y) / total for a in y]
    weighted = [[a * b for a, b in zip(s, column, strict=True)] for column in columns]
    G = mp.matrix([[mpmath.fdot(a, b) for b in columns] for a in weighted])
    yy = mpmath.fsum(a * b * b for a, b in zip(s, y, strict=True))
    return G, [mpmath.fdot(a, y) for a in weighted], yy, columns


def exact_bound(problem: Problem, X: np.ndarray, p: np.ndarray, sigma: float, features: list[int]) -> mpf:
    """B(p) as it is defined, y'Cy - p'Ap - (2/lam') nu(h - Ap)^2."""
    G, h, yy, _ = exact_gram(problem, X, features)
    x = [mpf(a) for a in p[features].tolist()]
    n = len(x)
    Ap = [mpmath.fsum(G[i, j] * x[j] for j in range(n)) - mpf(sigma) * x[i] for i in range(n)]
    c = sorted((a - b) ** 2 for a, b in zip(h, Ap, strict=True))
    return (
        yy - mpmath.fdot(x, Ap) - 2 * mpmath.fsum(c[-problem.constraint.size :]) / (mpf(problem.lam) + 2 * mpf(sigma))
    )


CASES = [
    (n, d, lam, intercept, weighted, twins)
    for n, d, intercept, weighted, twins in [
        (30, 7, False, False, False),
        (30, 7, True, True, False),
        (12, 8, True, False, True),
        (6, 9, False, False, False),
        (6, 9, True, True, False),
    ]
    for lam in (1e-6, 1e-2, 1.0, 1e2)
]


@pytest.mark.parametrize(("n", "d", "lam", "intercept", "weighted", "twins"), CASES)
def test_bound_below_every_model(n, d, lam, intercept, weighted, twins):
    X, y = regression(n, d, seed=n + d, twins=twins)
    weights = some_weights(n) if weighted else None
    problem = Problem(X, y, k=3, lam=lam, sample_weight=weights, fit_intercept=intercept)
    best = best_subset(problem)
    sigma = smallest_eigenvalue(problem)
    assert (sigma > 0) == (n > 12)
    relaxation = GramRelaxation(problem, sigma=sigma)
    solved = relaxation.solve()
    rng = np.random.default_rng(0)
    for p in (solved.p, best.w, np.zeros(d), rng.standard_normal(d), 1e3 * rng.standard_normal(d)):
        bound = shifted_bound(problem, p, sigma)
        assert 0.0 <= bound.value <= best.objective * (1 + 1e-12)
        assert relaxation.bound(p).value <= best.objective * (1 + 1e-12)
        assert bound.check(problem) == bound.value
    if lam > 1e-6 or sigma > 0:  # or else the middle has more features than the data have rank
        assert shifted_bound(problem, solved.p, sigma).value >= solved.value - 1e-8 * abs(solved.value) - 1e-9
    if sigma > 0:  # a shift never loosens the bound
        assert solved.value >= GramRelaxation(problem).solve().value * (1 - 1e-8)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_bound_in_exact_arithmetic(intercept, offset):
    X, y = regression(25, 6, seed=1, offset=offset)
    problem = Problem(X, y, k=2, lam=0.05, fit_intercept=intercept, sample_weight=some_weights(25))
    for features in ([0, 1, 2, 3, 4, 5], [0, 2, 3]):
        J = np.array(features)
        sigma = smallest_eigenvalue(problem, J)
        some = np.zeros(6)
        some[J] = np.random.default_rng(3).standard_normal(len(J))
        for p in (GramRelaxation(problem, J, sigma).solve().p, some):
            exact = exact_bound(problem, X, p, sigma, features)
            bound = shifted_bound(problem, p, sigma, J)
            lost = float(exact - mpf(bound.on_features))
            assert lost >= 0 or bound.on_features == 0.0
            terms = float(problem.s @ (np.abs(X) @ np.abs(p) + np.abs(y)) ** 2)  # what the bound is a difference of
            assert lost <= 1e-13 * terms or exact < 0
            if intercept:  # centring has taken the offset away
                assert lost <= 1e-9 * abs(float(exact)) * (1 + offset) or exact < 0
            safe = GramRelaxation(problem, J, sigma).bound(p).value
            assert mpf(safe) <= exact or safe == 0.0


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_shift_is_below_the_exact_eigenvalue(intercept, make):
    rng = np.random.default_rng(2)
    X = (
        rng.standard_normal((40, 5)) * (rng.random((40, 5)) < 0.4 if make is sp.csr_array else 1.0)
        + (make is np.asarray) * 3.0
    )
    problem = Problem(make(X), rng.standard_normal(40), k=2, lam=0.1, fit_intercept=intercept)
    exact = min(mp.eigsy(exact_gram(problem, X, list(range(5)))[0], eigvals_only=True))
    sigma = smallest_eigenvalue(problem)
    assert (1 - 1e-5) * float(exact) <= sigma < exact
    gram = problem_gram(problem)
    assert is_proved(gram, 0.0)
    assert is_proved(gram, float(exact) * (1 - 1e-9))
    assert not is_proved(gram, float(exact) * (1 + 1e-9))
    assert not is_proved(gram, np.inf)
    assert not is_proved(gram, np.nan)


@pytest.mark.parametrize("d", [6, 400])
def test_shift_of_columns_of_all_scales(d):
    rng = np.random.default_rng(4)
    X = rng.standard_normal((2 * d, d)) / np.sqrt(2.0 * d) * 10.0 ** np.linspace(-8, 8, d)
    problem = Problem(X, rng.standard_normal(2 * d), k=2, lam=0.1)
    sigma = smallest_eigenvalue(problem)
    least = np.square(np.linalg.norm(X, axis=0)).min() / (2 * d)
    assert 0.02 * least < sigma <= least
    assert sigma <= np.linalg.eigvalsh(X.T @ X)[0] or d == 400 or sigma < least


def test_no_shift_without_full_rank():
    X, y = regression(30, 6, seed=0, twins=True)
    assert smallest_eigenvalue(Problem(X, y, k=2, lam=0.1)) == 0.0
    assert smallest_eigenvalue(Problem(X, y, k=2, lam=0.1), np.arange(5)) > 0.0
    constant = np.column_stack([X[:, :4], np.ones(30)])
    assert smallest_eigenvalue(Problem(constant, y, k=2, lam=0.1, fit_intercept=True)) == 0.0
    assert smallest_eigenvalue(Problem(constant, y, k=2, lam=0.1)) > 0.0
    assert smallest_eigenvalue(Problem(X[:6], y[:6], k=2, lam=0.1, fit_intercept=True)) == 0.0


def test_large_shift_agrees_with_eigenvalues():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((900, 350))
    problem = Problem(X, rng.standard_normal(900), k=3, lam=0.1)
    exact = np.linalg.eigvalsh(X.T @ X / 900)[0]
    assert (1 - 1e-4) * exact <= smallest_eigenvalue(problem) <= exact


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("lam", [1e-3, 1.0])
def test_screening_against_brute_force(intercept, lam):
    X, y = regression(40, 7, seed=9)
    problem = Problem(X, y, k=3, lam=lam, fit_intercept=intercept)
    objectives = {}
    for support in combinations(range(7), 3):
        fit = refit(problem, np.array(support))
        w, b, u = fit.w, fit.b, fit.u
        objectives[support] = primal(problem, w, b, u)
    best = min(objectives.values())
    sigma = smallest_eigenvalue(problem)
    first = shifted_bound(problem, GramRelaxation(problem, sigma=sigma).solve().p, sigma)
    for ceiling in (best * 1.0000001, best * 1.05):
        J, above = in_play(problem, first.screening(problem), ceiling)
        sigma_on = smallest_eigenvalue(problem, J)
        second = shifted_bound(
            problem, GramRelaxation(problem, J, sigma_on).solve().p, sigma_on, J, ceiling=above, origin=first
        )
        assert sigma_on >= sigma * (1 - 1e-5)
        assert second.value <= best * (1 + 1e-12)
        assert second.check(problem) == max(first.value, second.value)
        for bound in (first, second):
            screening = bound.screening(problem)
            for j in range(7):
                without = min(value for support, value in objectives.items() if j not in support)
                within = min(value for support, value in objectives.items() if j in support)
                assert screening.without[j] <= without * (1 + 1e-12)
                assert screening.within[j] <= within * (1 + 1e-12)
                assert min(screening.without[j], screening.within[j]) >= bound.value


def test_second_shift_proves_a_planted_support():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 300))
    y = X[:, :5].sum(axis=1) + rng.standard_normal(600)
    problem = Problem(X, y, k=5, lam=1e-3)
    fit = refit(problem, np.arange(5))
    w, b = fit.w, fit.b
    objective = upper_bound(problem, w, b)
    sigma = smallest_eigenvalue(problem)
    plain = GramRelaxation(problem).solve()
    first = shifted_bound(problem, GramRelaxation(problem, sigma=sigma).solve().p, sigma)
    J, ceiling = in_play(problem, first.screening(problem), objective)
    assert 5 <= len(J) < 100
    sigma = smallest_eigenvalue(problem, J)
    second = shifted_bound(problem, GramRelaxation(problem, J, sigma).solve().p, sigma, J, ceiling, first)
    assert plain.value < first.value < second.value <= objective
    assert objective - second.value < 1e-7 * objective
    assert np.array_equal(second.screening(problem).required(objective), np.arange(5))
    assert second.check(problem) == second.value


def test_check_trusts_neither_shift_nor_features():
    X, y = regression(40, 7, seed=9)
    problem = Problem(X, y, k=3, lam=0.1)
    p = GramRelaxation(problem).solve().p
    sigma = smallest_eigenvalue(problem)
    honest = shifted_bound(problem, p, sigma)
    false = shifted_bound(problem, p, 10.0 * sigma)
    assert false.value != honest.value
    assert false.check(problem) == shifted_bound(problem, p, 0.0).value
    few = shifted_bound(problem, np.zeros(7), 0.0, np.array([4, 5]), ceiling=1e9, origin=honest)
    assert few.value > best_subset(problem).objective
    assert few.check(problem) == honest.value


@pytest.mark.parametrize("intercept", [False, True])
def test_without_shift_it_is_the_dual(intercept):
    X, y = regression(20, 30, seed=3)
    problem = Problem(X, y, k=4, lam=0.3, fit_intercept=intercept)
    p = GramRelaxation(problem).solve().p
    bound = shifted_bound(problem, p)
    assert bound.value == pytest.approx(lower_bound(problem, bound.alpha).value, rel=1e-11)
    assert 0.0 <= bound.rounding <= 1e-10 * bound.value


def test_part_of_a_constraint():
    X, y = regression(30, 7, seed=2)
    problem = Problem(X, y, k=3, lam=0.1)
    node = Node(3, np.array([5]), np.array([0]))
    best = best_subset_of(problem, inside=5, outside=0)
    sigma = smallest_eigenvalue(problem)
    p = GramRelaxation(problem, sigma=sigma).solve(node).p
    bound = shifted_bound(problem, p, sigma, constraint=node)
    assert shifted_bound(problem, p, sigma).value < bound.value <= best * (1 + 1e-12)
    assert bound.value > 0.5 * best


def best_subset_of(problem: Problem, inside: int, outside: int) -> float:
    values = []
    for support in combinations(range(problem.shape[1]), problem.constraint.size):
        if inside in support and outside not in support:
            fit = refit(problem, np.array(support))
            w, b, u = fit.w, fit.b, fit.u
            values.append(primal(problem, w, b, u))
    return min(values)


def test_arguments():
    X, y = regression(30, 7, seed=2)
    with pytest.raises(ValueError, match="squared loss"):
        shifted_bound(Problem(X, np.sign(y), "hinge", k=3, lam=0.1), np.zeros(7))
    problem = Problem(X, y, k=3, lam=0.1)
    with pytest.raises(ValueError, match="zero outside"):
        shifted_bound(problem, np.ones(7), 0.0, np.array([1, 2]))
    assert shifted_bound(problem, np.full(7, np.nan)).value == 0.0
    assert shifted_bound(problem, np.full(7, 1e200)).value == 0.0

"""Shifted bounds against brute force and exact arithmetic, and the shift itself."""

from dataclasses import replace
from itertools import combinations

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from mpmath import mp, mpf

from diht import Problem, solve
from diht.bounds import shift
from diht.bounds.duality import lower_bound, primal, upper_bound
from diht.bounds.shift import in_play, is_proved, is_shifted, own_ridges, problem_gram, shifted_bound, shifted_ridges
from diht.constraints.base import Node
from diht.constraints.groups import constrained
from diht.refit import refit
from diht.relaxation.gram import GramRelaxation
from diht.result import Status
from diht.solvers import Auto
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


def exact_bound(problem: Problem, X: np.ndarray, p: np.ndarray, ridges: np.ndarray, features: list[int]) -> mpf:
    """B(p) as it is defined, y'Cy - p'Ap - nu((h - Ap) / sqrt(rho))^2."""
    G, h, yy, _ = exact_gram(problem, X, features)
    x, rho = [mpf(a) for a in p[features].tolist()], [mpf(a) for a in ridges.tolist()]
    n = len(x)
    shift = [a - mpf(problem.lam) / 2 for a in rho]
    Ap = [mpmath.fsum(G[i, j] * x[j] for j in range(n)) - shift[i] * x[i] for i in range(n)]
    c = sorted((a - b) ** 2 / r for a, b, r in zip(h, Ap, rho, strict=True))
    return yy - mpmath.fdot(x, Ap) - mpmath.fsum(c[-problem.constraint.size :])


def ridges_of(problem: Problem, features: np.ndarray | None = None) -> np.ndarray:
    return shifted_ridges(problem, np.arange(problem.shape[1]) if features is None else features)


def exact_slack(problem: Problem, X: np.ndarray, ridges: np.ndarray) -> mpf:
    """The smallest eigenvalue of M - diag(rho), with its rows and columns in units of the roots of rho."""
    d = len(ridges)
    G = exact_gram(problem, X, list(range(d)))[0]
    for i in range(d):
        G[i, i] += mpf(problem.lam) / 2 - mpf(ridges[i])
    roots = [mpmath.sqrt(mpf(a)) for a in ridges.tolist()]
    scaled = mp.matrix([[G[i, j] / roots[i] / roots[j] for j in range(d)] for i in range(d)])
    return min(mp.eigsy(scaled, eigvals_only=True))


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
    ridges = ridges_of(problem)
    shifted = is_shifted(problem, ridges)
    assert shifted == (n >= 12)  # twins have their ridge alone
    relaxation = GramRelaxation(problem, ridges=ridges)
    solved = relaxation.solve()
    rng = np.random.default_rng(0)
    for p in (solved.p, best.w, np.zeros(d), rng.standard_normal(d), 1e3 * rng.standard_normal(d)):
        bound = shifted_bound(problem, p, ridges)
        assert 0.0 <= bound.value <= best.objective * (1 + 1e-12)
        assert relaxation.bound(p).value <= best.objective * (1 + 1e-12)
        assert bound.check(problem) == bound.value
    if lam > 1e-6 or (shifted and not twins):  # or else the middle has more features than the data have rank
        assert shifted_bound(problem, solved.p, ridges).value >= solved.value - 1e-8 * abs(solved.value) - 1e-9
    if shifted:  # a shift does not loosen the bound
        assert solved.value >= GramRelaxation(problem).solve().value * (1 - 1e-8)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_bound_in_exact_arithmetic(intercept, offset):
    X, y = regression(25, 6, seed=1, offset=offset)
    problem = Problem(X, y, k=2, lam=0.05, fit_intercept=intercept, sample_weight=some_weights(25))
    for features in ([0, 1, 2, 3, 4, 5], [0, 2, 3]):
        J = np.array(features)
        ridges = ridges_of(problem, J)
        some = np.zeros(6)
        some[J] = np.random.default_rng(3).standard_normal(len(J))
        for p in (GramRelaxation(problem, J, ridges).solve().p, some):
            exact = exact_bound(problem, X, p, ridges, features)
            bound = shifted_bound(problem, p, ridges, J)
            lost = float(exact - mpf(bound.on_features))
            assert lost >= 0 or bound.on_features == 0.0
            terms = float(problem.s @ (np.abs(X) @ np.abs(p) + np.abs(y)) ** 2)  # what the bound is a difference of
            assert lost <= 1e-13 * terms or exact < 0
            if intercept:  # centring has taken the offset away
                assert lost <= 1e-9 * abs(float(exact)) * (1 + offset) or exact < 0
            safe = GramRelaxation(problem, J, ridges).bound(p).value
            assert mpf(safe) <= exact or safe == 0.0


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_ridges_are_the_largest_that_leave_a_positive_semidefinite_matrix(intercept, make):
    rng = np.random.default_rng(2)
    X = (
        rng.standard_normal((40, 5)) * (rng.random((40, 5)) < 0.4 if make is sp.csr_array else 1.0)
        + (make is np.asarray) * 3.0
    )
    problem = Problem(make(X), rng.standard_normal(40), k=2, lam=0.1, fit_intercept=intercept)
    ridges = ridges_of(problem)
    assert np.all(ridges > 0.05)
    assert 0 < exact_slack(problem, X, ridges) < 1e-5
    gram = problem_gram(problem)
    assert is_proved(gram, 0.1, np.full(5, 0.05))
    assert is_proved(gram, 0.1, ridges)
    largest = ridges * (1 + float(exact_slack(problem, X, ridges)))
    assert is_proved(gram, 0.1, largest * (1 - 1e-9))
    for false in (largest * (1 + 1e-9), np.full(5, np.inf), np.full(5, np.nan), -ridges, np.zeros(5)):
        assert not is_proved(gram, 0.1, false)


@pytest.mark.parametrize("lam", [1e-6, 1.0])
@pytest.mark.parametrize("span", [0, 4, 8])
def test_ridges_of_columns_of_all_scales(span, lam):
    """In units of the columns nothing depends on their scales, as long as the ridge is in these units as well."""
    rng = np.random.default_rng(4)
    X, scales = rng.standard_normal((12, 5)), 10.0 ** np.linspace(-span, span, 5)
    X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    problem = Problem(X * scales, rng.standard_normal(12), k=2, lam=lam)
    ridges = ridges_of(problem)
    if is_shifted(problem, ridges):
        assert 0 < exact_slack(problem, X * scales, ridges) < 1e-3
    assert is_shifted(problem, ridges) or lam == 1.0
    best = best_subset(problem).objective
    for p in (GramRelaxation(problem, ridges=ridges).solve().p, np.zeros(5), 1.0 / scales):
        bound = shifted_bound(problem, p, ridges)
        assert bound.value <= best * (1 + 1e-12)
        assert mpf(bound.on_features) <= max(exact_bound(problem, X * scales, p, ridges, list(range(5))), 0)


def test_ridges_of_dependent_columns():
    X, y = regression(30, 6, seed=0, twins=True)
    twins = ridges_of(Problem(X, y, k=2, lam=0.1))
    assert np.all(twins[1:5] > 0.05)  # the others have larger ones,
    np.testing.assert_allclose(twins[[0, 5]], 0.05, rtol=0.05)  # and twins lose nearly nothing
    constant = np.column_stack([X[:, :4], np.ones(30)])
    assert ridges_of(Problem(constant, y, k=2, lam=0.1, fit_intercept=True))[4] <= 0.05
    assert ridges_of(Problem(constant, y, k=2, lam=0.1))[4] > 0.05
    few = Problem(X[:6], y[:6], k=2, lam=0.1, fit_intercept=True)
    np.testing.assert_array_equal(ridges_of(few), own_ridges(few, np.arange(6)))


def test_ridges_of_many_features():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((900, 350))
    problem = Problem(X, rng.standard_normal(900), k=3, lam=0.1)
    M = X.T @ X / 900 + 0.05 * np.eye(350)
    ridges = ridges_of(problem)
    np.testing.assert_allclose(ridges * np.diag(np.linalg.inv(M)) / ridges[0], np.linalg.inv(M)[0, 0], rtol=1e-9)
    left = np.linalg.eigvalsh(M - np.diag(ridges))[0]
    assert 0.0 <= left <= 1e-3 * ridges.min()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", [1e-4, 1e-1])
@pytest.mark.parametrize("twins", [False, True])
def test_ridges_of_a_node_against_brute_force(twins, lam, weighted):
    """All supports of a node, on its own ridges: features inside keep hardly any, and those outside do not count."""
    X, y = regression(25, 7, seed=3, twins=twins)
    X = X * 10.0 ** np.linspace(-3, 3, 7)
    problem = Problem(X, y, k=3, lam=lam, fit_intercept=True, sample_weight=some_weights(25) if weighted else None)
    whole = GramRelaxation(problem, ridges=ridges_of(problem))
    for inside, outside in (([4], []), ([], [2]), ([1, 5], [0, 3]), ([6], [0, 1])):
        node = Node(3, np.array(inside, dtype=np.int64), np.array(outside, dtype=np.int64))
        best = min(
            refit(problem, np.array(support)).objective
            for support in combinations(range(7), 3)
            if set(inside) <= set(support) and not set(outside) & set(support)
        )
        part = whole.narrowed(node, 300)
        assert part is not whole
        own = dict(zip(part.features.tolist(), part.ridges.tolist(), strict=True))
        assert all(own[j] < whole.ridges[j] for j in inside)
        assert is_proved(problem_gram(problem, part.features), lam, part.ridges)
        solved = part.solve(node)
        assert whole.solve(node).safe * (1 - 1e-2) <= solved.safe <= best * (1 + 1e-12)
        assert part.node_bound(solved.p, node).value <= best * (1 + 1e-12)
    assert whole.narrowed(problem.constraint, 300) is whole
    assert whole.narrowed(Node(3, np.array([4]), np.array([0])), 3) is whole


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
    ridges = ridges_of(problem)
    first = shifted_bound(problem, GramRelaxation(problem, ridges=ridges).solve().p, ridges)
    for ceiling in (best * 1.0000001, best * 1.05):
        J, above = in_play(problem, first.screening(problem), ceiling)
        own = ridges_of(problem, J)
        second = shifted_bound(problem, GramRelaxation(problem, J, own).solve().p, own, J, ceiling=above, origin=first)
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
    ridges = ridges_of(problem)
    plain = GramRelaxation(problem).solve()
    first = shifted_bound(problem, GramRelaxation(problem, ridges=ridges).solve().p, ridges)
    J, ceiling = in_play(problem, first.screening(problem), objective)
    assert 5 <= len(J) < 100
    ridges = ridges_of(problem, J)
    second = shifted_bound(problem, GramRelaxation(problem, J, ridges).solve().p, ridges, J, ceiling, first)
    assert plain.value < first.value < second.value <= objective
    assert objective - second.value < 1e-7 * objective
    assert np.array_equal(second.screening(problem).required(objective), np.arange(5))
    assert second.check(problem) == second.value


def test_what_is_found_is_proved_again_from_other_sums(monkeypatch):
    """The largest ridges that a check still proves are none that a search takes: another Gram matrix might not prove them."""
    X, y = regression(40, 7, seed=9)
    problem, all_of_them = Problem(X, y, k=3, lam=0.1), np.arange(7)
    known = problem_gram(problem)
    largest = shifted_ridges(problem, all_of_them)
    low, high = 1.0, 1.0 + 1e-5
    while high - low > 2.0**-52:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_proved(known, 0.1, middle * largest) else (low, middle)
    assert 1.0 < low < 1.0 + 1e-5
    estimate = largest / shift._TRIALS[0]
    for fraction, taken in ((low * shift._TRIALS[0], False), (low * shift._TRIALS[0] * (1.0 - 1e-10), True)):
        assert is_proved(known, 0.1, fraction * estimate)
        monkeypatch.setattr(shift, "_TRIALS", (fraction,))
        assert is_shifted(problem, shifted_ridges(problem, all_of_them)) == taken
        monkeypatch.undo()


def test_rounding_does_not_grow_from_round_to_round():
    """Each round rests on the screening of the one before: what a check loses is what one of them loses, not the sum."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((40, 12))
    y = X @ (rng.standard_normal(12) / np.abs(X).max(axis=0)) + 0.3 * rng.standard_normal(40)
    problem = Problem(X, y, k=4, lam=1e-3, sample_weight=rng.random(40), fit_intercept=True)
    bound = solve(problem, Auto(branching=False), tol=1e-12).certificate.bound
    own, chain = [], bound
    while chain is not None:
        own.append(shifted_bound(problem, chain.p, chain.ridges, chain.features, chain.ceiling).rounding)
        chain = chain.origin
    assert len(own) > 2
    assert bound.rounding == pytest.approx(max(own))
    assert bound.claimed <= bound.check(problem)


def test_check_trusts_neither_shift_nor_features():
    X, y = regression(40, 7, seed=9)
    problem = Problem(X, y, k=3, lam=0.1)
    p = GramRelaxation(problem).solve().p
    ridges = ridges_of(problem)
    honest = shifted_bound(problem, p, ridges)
    false = shifted_bound(problem, p, 10.0 * ridges)
    assert false.value != honest.value
    assert false.check(problem) == shifted_bound(problem, p).value
    assert replace(honest, ridges=ridges[:3]).check(problem) == lower_bound(problem, honest.alpha).value
    few = shifted_bound(problem, np.zeros(7), None, np.array([4, 5]), ceiling=1e9, origin=honest)
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
    ridges = ridges_of(problem)
    p = GramRelaxation(problem, ridges=ridges).solve(node).p
    bound = shifted_bound(problem, p, ridges, constraint=node)
    assert shifted_bound(problem, p, ridges).value < bound.value <= best * (1 + 1e-12)
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
        shifted_bound(problem, np.ones(7), None, np.array([1, 2]))
    assert shifted_bound(problem, np.full(7, np.nan)).value == 0.0
    assert shifted_bound(problem, np.full(7, 1e200)).value == 0.0


# Groups, signs, features to keep


def structured_models(problem: Problem) -> dict[tuple[int, ...], float]:
    """The objective of the best model on each allowed support that is as large as it can be."""
    constraint, d = problem.constraint, problem.shape[1]
    m, kept, _ = constraint.free(d)
    units = constraint.unit_of(d)
    free = sorted(set(units.tolist()) - set(units[kept].tolist()))
    objectives = {}
    for chosen in combinations(free, min(m, len(free))):
        support = np.union1d(kept, np.flatnonzero(np.isin(units, chosen)))
        objectives[tuple(support.tolist())] = refit(problem, support).objective
    return objectives


STRUCTURES = {
    "groups": {"groups": [0, 0, 1, 2, 2, 3, 4]},
    "sign": {"sign": [1, -1, 0, 1, 0, -1, 1]},
    "keep": {"keep": [4]},
    "all": {"groups": [0, 0, 1, 2, 2, 3, 4], "sign": [1, -1, 0, 1, 0, -1, 1], "keep": [2]},
}


@pytest.mark.parametrize("lam", [1e-4, 1e-1])
@pytest.mark.parametrize("twins", [False, True])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_structured_bound_below_every_model(structure, twins, lam):
    X, y = regression(25, 7, seed=6, twins=twins)
    X = X * 10.0 ** np.linspace(-2, 2, 7)
    constraint = constrained(2, 7, **STRUCTURES[structure])
    problem = Problem(X, y, k=constraint, lam=lam, fit_intercept=True, sample_weight=some_weights(25))
    objectives = structured_models(problem)
    best = min(objectives.values())
    ridges = ridges_of(problem)
    relaxation = GramRelaxation(problem, ridges=ridges)
    solved = relaxation.solve()
    plain = GramRelaxation(problem).solve()
    assert plain.value * (1 - 1e-6) <= solved.value <= best * (1 + 1e-6)
    rng = np.random.default_rng(0)
    for p in (solved.p, np.zeros(7), rng.standard_normal(7)):
        bound = shifted_bound(problem, p, ridges)
        assert 0.0 <= bound.value <= best * (1 + 1e-12)
        assert bound.check(problem) == bound.value
        screening = bound.screening(problem)
        for j in range(7):
            without = min([value for support, value in objectives.items() if j not in support], default=np.inf)
            within = min([value for support, value in objectives.items() if j in support], default=np.inf)
            assert screening.without[j] <= without * (1 + 1e-12)
            assert screening.within[j] <= within * (1 + 1e-12)
    result = solve(problem, "branch", tol=1e-8)
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(best, rel=1e-8)
    assert result.lower_bound <= best * (1 + 1e-12)
    assert result.certificate.bound.check(problem) >= result.lower_bound

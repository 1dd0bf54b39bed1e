"""Gram matrices and their error bounds; the relaxed problem on them against a slow solver and exact arithmetic."""

import itertools

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from mpmath import mpf

from diht import Problem, solve
from diht.bounds.duality import lower_bound, upper_bound
from diht.bounds.shift import own_ridges, problem_gram, shifted_bound, shifted_ridges
from diht.constraints.base import Cardinality, Constraint, Node, threshold_scale
from diht.refit import refit
from diht.relaxation import quadratic
from diht.relaxation import quadratic_kernels as gram_kernels
from diht.relaxation.barrier import barrier_point
from diht.relaxation.gram import GramRelaxation
from diht.samples import ascent_kernels as relaxation
from diht.solvers import Auto
from oracle import best_subset, paper_design, some_weights
from test_shift import exact_bound, exact_gram, regression


def slow_relaxation(problem: Problem, constraint: Constraint, ridges: np.ndarray, n_iter: int = 20000) -> float:
    """Optimum of the relaxed problem by accelerated proximal gradients in numpy, with its bound as the stopping rule."""
    X, s, y = problem.design.toarray(), problem.s, problem.y
    if problem.fit_intercept:
        y = y - s @ y
    Z = X / np.sqrt(ridges)
    A, h = Z.T @ (s[:, None] * Z) + np.diag(0.5 * problem.lam / ridges - 1.0), Z.T @ (s * y)
    rho, L = 1.0, np.linalg.eigvalsh(A)[-1]
    p = x = np.zeros(X.shape[1])
    t, best = 1.0, -np.inf
    for i in range(n_iter):
        new = constraint.prox(x + (h - A @ x) / L, rho / L)
        if (x - new) @ (new - p) > 0:
            t = 1.0
        after = 0.5 * (1 + np.sqrt(1 + 4 * t * t))
        x, p, t = new + (t - 1) / after * (new - p), new, after
        if i % 100 == 99:
            c = h - A @ p
            best = max(best, s @ y**2 - p @ A @ p - constraint.value(c) / rho)
            moved = np.abs(constraint.prox(p + c / L, rho / L) - p).max()
            if moved <= 1e-13 * np.abs(p).max():
                break
    return float(best)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_entries_are_within_their_error(make, scaled, intercept):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6)) * 10.0 ** np.arange(-3, 3)
    if make is sp.csr_array:
        X *= rng.random((40, 6)) < 0.08
    else:
        X += 1e5
    y = rng.standard_normal(40) + 100.0
    scale = rng.random(6) + 0.5 if scaled else None
    problem = Problem(make(X), y, k=2, lam=0.1, fit_intercept=intercept, sample_weight=some_weights(40), scale=scale)
    features = np.array([4, 0, 3, 2])
    first = problem_gram(problem, features[:2])
    for gram in (problem_gram(problem, features), problem_gram(problem, features, first)):
        G, h, yy, _ = exact_gram(problem, X, features.tolist())
        exact = np.array([[G[i, j] for j in range(4)] + [h[i]] for i in range(4)] + [[*h, yy]])
        off = np.vectorize(lambda a, b: float(abs(mpf(float(a)) - b)))(gram.matrix, exact)
        assert np.all(off <= gram.error * np.outer(gram.size, gram.size))
        assert gram.error < 1e-12
        assert np.array_equal(gram.matrix, gram.matrix.T)
        assert np.linalg.norm(off[:4, :4], 2) <= gram.error_norm


def test_selection():
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 100):
        for values in (rng.standard_normal(n), rng.integers(0, 3, n).astype(float), np.zeros(n), np.arange(float(n))):
            ordered = -np.sort(-values)
            assert [gram_kernels.mth_largest(values, m) for m in range(1, n + 1)] == ordered.tolist()


def test_part_of_a_gram_matrix():
    X, y = regression(30, 8, seed=2)
    problem = Problem(X, y, k=2, lam=0.1, fit_intercept=True)
    part = problem_gram(problem, np.array([6, 1, 3, 0])).among(np.array([0, 3, 6]))
    np.testing.assert_array_equal(part.features, [0, 3, 6])
    np.testing.assert_allclose(part.matrix, problem_gram(problem, part.features).matrix, rtol=1e-12)


def test_columns_that_underflow():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3)) * [1.0, 1e-170, 1e-200]
    problem = Problem(X, rng.standard_normal(20), k=1, lam=0.1)
    gram = problem_gram(problem)
    assert gram.error * gram.size[1] ** 2 >= float(mpmath.fsum(mpf(x) ** 2 for x in X[:, 1].tolist()) / 20)
    assert shifted_ridges(problem, np.arange(3), gram)[2] <= 0.05 * (1 + 1e-9)


@pytest.mark.parametrize("steps", [quadratic, gram_kernels], ids=["numpy", "compiled"])
def test_steps_against_their_definitions(steps):
    rng = np.random.default_rng(1)
    K = problem_gram(Problem(rng.standard_normal((30, 9)), rng.standard_normal(30), k=3, lam=0.1)).matrix
    p, c, work = rng.standard_normal(9), np.empty(9), np.empty(9)
    p[::4] = 0.0
    last = steps.correlate(K, 0.2, p, c)
    np.testing.assert_allclose(c, K[9, :9] - K[:9, :9] @ p + 0.2 * p, rtol=1e-12)
    assert last == pytest.approx(K[9, 9] - K[9, :9] @ p)
    for constraint in (
        Cardinality(3),
        Cardinality(9),
        Node(4, np.array([1, 4]), np.array([0, 7])),
        Node(2, np.array([1, 4]), np.array([], int)),
    ):
        m, inside, outside = constraint.free(9)
        state = np.zeros(9, dtype=np.int8)
        state[inside], state[outside] = 1, -1
        v = p.copy()
        v[outside] = 0.0
        assert steps.squared_norm(c, state, m, work) == pytest.approx(constraint.value(c))
        # Omega(v) <= x'v - nu(x)^2/2 for x = any; equality at the optimum of the proximal map
        if m > 0:
            q = constraint.prox(v, 0.7)
            x = (v - q) / 0.7
            assert steps.relaxation(q, state, m, 0.0, work) == pytest.approx(
                q @ x - 0.5 * constraint.value(x), rel=1e-9
            )
        else:
            assert steps.relaxation(v, state, m, 0.0, work) == np.inf


def test_scale_of_steps_that_overflow():
    """A node's steps may end at infinite coefficients: its penalty is infinite then, and nothing is divided by zero."""
    a = np.array([1.0, np.inf, 0.0, np.inf])
    for scale in (threshold_scale, relaxation.threshold_scale):
        assert scale(a, 1, 0.0, 0.0) == np.inf
        assert scale(a, 3, 0.0, 0.0) == 0.0
    state = np.zeros(4, dtype=np.int8)
    assert quadratic.relaxation(a, state, 1, 0.0, np.empty(4)) == np.inf


@pytest.mark.parametrize("r", [0.0, 1e-3, 1.0, 1e3])
def test_scale_by_numpy_and_compiled(r):
    rng = np.random.default_rng(4)
    for n in (1, 2, 10, 200):
        for a in (rng.random(n), rng.integers(0, 3, n).astype(float), np.zeros(n), 10.0 ** rng.uniform(-20, 20, n)):
            for m in (0, 1, n // 2, n):
                theta = relaxation.threshold_scale(a, m, r, 0.0)
                for start in (0.0, 0.3 * theta if np.isfinite(theta) else 1.0):
                    found = threshold_scale(a, m, r, start)
                    assert (found in (0.0, np.inf)) == (theta in (0.0, np.inf))
                    if 0.0 < theta < np.inf:  # not unique where no z is between 0 and 1, but z is
                        z = np.clip(a / theta - r, 0.0, 1.0)
                        np.testing.assert_allclose(np.clip(a / found - r, 0.0, 1.0), z, rtol=0.0, atol=1e-9)
                        assert z.sum() == pytest.approx(m)
                    else:
                        assert found == theta


@pytest.mark.parametrize("lam", [1e-3, 1.0])
@pytest.mark.parametrize("sigma", [0.0, 0.05])
def test_numpy_and_compiled_agree(sigma, lam):
    X, y = regression(60, 20, seed=4)
    gram = problem_gram(Problem(X, y, k=5, lam=lam))
    norm = float(np.linalg.norm(gram.size))
    for inside, outside, m in (([], [], 5), ([2, 7], [0, 1, 9], 3), ([3], [], 0), ([], [4], 19)):
        state = np.zeros(20, dtype=np.int8)
        state[inside], state[outside] = 1, -1
        for tol, max_iter in ((1e-11, 20_000), (1e-3, 20_000), (0.0, 2)):
            found = []
            for steps in (quadratic, gram_kernels):
                p, c = np.zeros(20), np.empty(20)
                result = steps.relax(
                    gram.matrix, gram.size, gram.error, norm, state, m, m + len(inside), lam, sigma, 1.0, p, c, tol,
                    np.inf, max_iter,
                )  # fmt: skip
                found.append((p, c, result))
            (p, c, result), (p_compiled, c_compiled, compiled) = found
            np.testing.assert_allclose(result[:4], compiled[:4], rtol=1e-9)
            np.testing.assert_allclose(p, p_compiled, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(c, c_compiled, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("steps", [quadratic, gram_kernels], ids=["numpy", "compiled"])
@pytest.mark.parametrize("max_iter", [1, 2, 5])
def test_steps_that_end_before_the_curvature_is_known_prove_something(max_iter, steps):
    X, y = regression(60, 20, seed=4)
    problem = Problem(X, y, k=5, lam=0.1)
    gram = problem_gram(problem)
    norm, state, p, c = float(np.linalg.norm(gram.size)), np.zeros(20, dtype=np.int8), np.zeros(20), np.empty(20)
    value, bound, safe, curvature, _ = steps.relax(
        gram.matrix, gram.size, gram.error, norm, state, 5, 5, 0.1, 0.0, 1e-6, p, c, 1e-9, np.inf, max_iter
    )  # fmt: skip
    assert curvature < np.linalg.eigvalsh(gram.quadratic)[-1]
    assert np.isfinite(value)
    assert safe <= bound <= GramRelaxation(problem).solve().value <= value


@pytest.mark.parametrize("patience", [0, 3, 1000])
def test_compiled_steps_continue_those_of_numpy(patience, monkeypatch):
    monkeypatch.setattr(quadratic, "PATIENCE", patience)
    monkeypatch.setattr(quadratic, "PATIENCE_PER_FEATURE", 0)
    X, y, _ = paper_design(80, 10, 60, seed=1)
    problem = Problem(X, y, k=10, lam=1e-3)
    solved = GramRelaxation(problem).solve(tol=1e-10)
    monkeypatch.undo()
    expected = GramRelaxation(problem).solve(tol=1e-10)
    assert solved.value == pytest.approx(expected.value, rel=1e-9)
    np.testing.assert_allclose(solved.p, expected.p, atol=1e-6 * np.abs(expected.p).max())


PROBLEMS = [
    (n, d, lam, intercept) for n, d in ((40, 12), (25, 60)) for lam in (1e-2, 1.0, 1e2) for intercept in (False, True)
]


@pytest.mark.parametrize("lam", [1e-6, 1e-3, 1.0, 100.0])
@pytest.mark.parametrize(("n", "d"), [(15, 60), (60, 60), (200, 40)])
def test_the_interior_point_method_ends_where_exact_steps_do(n, d, lam):
    X, y = regression(n, d, seed=5)
    state = np.zeros(d, dtype=np.int8)
    state[[3, 7]], state[[1, 2]] = 1, -1
    K = problem_gram(Problem(X, y, k=8, lam=lam), np.arange(d)).matrix
    smallest = max(0.9 * np.linalg.eigvalsh(K[:d, :d])[0], 0.0)
    anywhere = np.random.default_rng(d).standard_normal(d) * (np.arange(d) % 2)
    for sigma, start in itertools.product({0.0, smallest}, (np.zeros(d), anywhere)):
        rho = 0.5 * lam + sigma
        p = barrier_point(K, sigma, state, 6, rho, start, 1e-7)
        assert p is not None
        assert not p[state < 0].any()
        q, c, curvature = p.copy(), np.empty(d), float(np.linalg.norm(K[:d, :d], 2))
        size = np.zeros(d + 1)
        quadratic.relax(K, size, 0.0, 0.0, state, 6, 8, lam, sigma, curvature, q, c, 1e-10, np.inf, 20_000)
        near, least = (quadratic.objective(K, sigma, state, 6, rho, v) for v in (p, q))
        assert near - least <= 2e-7 * (least + 0.5 * K[d, d])


def test_the_interior_point_method_where_there_is_nothing_to_choose():
    X, y = regression(20, 6, seed=1)
    K = problem_gram(Problem(X, y, k=2, lam=0.1), np.arange(6)).matrix
    states = np.zeros(6, dtype=np.int8)
    assert barrier_point(K, 0.0, states, 0, 0.05, np.zeros(6), 1e-7) is None
    assert barrier_point(K, 0.0, states, 6, 0.05, np.zeros(6), 1e-7) is None
    assert barrier_point(np.zeros((7, 7)), 0.0, states, 2, 0.05, np.zeros(6), 1e-7) is None
    assert barrier_point(np.full((7, 7), np.nan), 0.0, states, 2, 0.05, np.zeros(6), 1e-7) is None


@pytest.mark.parametrize(("bound", "before"), [(-0.1, [75]), (0.1, [75, 226])])
def test_steps_without_a_bound_give_way_to_the_interior_point_method_early(bound, before, monkeypatch):
    """Steps that never end, a quarter of those that the method is worth or all of them before it, and those after it."""
    made, n = [], 40

    def endless(*arguments):
        made.append(arguments[-1])
        return 1.0, bound, bound, 1.0, arguments[-1]

    monkeypatch.setattr(quadratic, "relax", endless)
    monkeypatch.setattr(quadratic, "steps_worth", lambda *arguments: 301)
    monkeypatch.setattr(quadratic, "barrier_point", lambda *arguments: made.append("interior point"))
    state, p, c = np.zeros(n, dtype=np.int8), np.zeros(n), np.empty(n)
    minimise = quadratic.Minimiser(20)
    minimise.by_numpy = -10_000  # nothing is compiled
    found = minimise(np.eye(n + 1), np.zeros(n + 1), 0.0, 0.0, state, 5, 5, 1.0, 0.0, 1.0, p, c, 1e-9, max_iter=1000)
    assert made == [*before, "interior point", 1000 - sum(before)]
    assert found.iterations == 1000 + 301


@pytest.mark.parametrize("n", [60, 150])
def test_a_tiny_ridge(n):
    X, y, _ = paper_design(500, 100, n, 0)
    problem = Problem(X, y, k=100, lam=1e-6)
    solved = GramRelaxation(problem).solve(tol=1e-5)
    assert solved.value - solved.bound <= 1e-5 * solved.value


@pytest.mark.parametrize(("n", "d", "lam", "intercept"), PROBLEMS)
def test_optimum_against_a_slow_solver(n, d, lam, intercept):
    X, y = regression(n, d, seed=d)
    problem = Problem(X, y, k=4, lam=lam, fit_intercept=intercept, sample_weight=some_weights(n))
    ridges = shifted_ridges(problem, np.arange(d))
    nodes = [
        problem.constraint,
        Cardinality(1),
        Node(4, np.array([2, 7]), np.array([0, 1])),
        Node(2, np.array([3, 5]), np.array([1])),
    ]
    relaxation = GramRelaxation(problem, ridges=ridges)
    for constraint in (problem.constraint, Cardinality(1), *nodes):
        expected = slow_relaxation(problem, constraint, ridges)
        solved = relaxation.solve(constraint, tol=1e-11)
        assert solved.value == pytest.approx(expected, rel=2e-9)
        assert solved.bound == pytest.approx(expected, rel=2e-9)
        assert expected * (1 - 1e-9) <= solved.safe <= expected * (1 + 2e-9)
        _, inside, outside = constraint.free(d)
        assert not np.any(solved.p[outside])
        assert np.all(solved.z[inside] == 1.0)
        assert np.all(solved.z[solved.p != 0.0] > 0.0)
        assert solved.z.sum() <= constraint.size + 1e-5
        bound = relaxation.certified(solved.p, constraint)
        assert bound.value == pytest.approx(expected, rel=2e-9)
        assert bound.value <= expected * (1 + 2e-9)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("intercept", [False, True])
def test_working_set_finds_the_same(make, intercept):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((80, 400)) * (rng.random((80, 400)) < 0.3)
    y = X[:, :8].sum(axis=1) + 0.3 * rng.standard_normal(80) + 1.0
    problem = Problem(make(X), y, k=8, lam=0.05, fit_intercept=intercept)
    whole = GramRelaxation(problem).solve()
    relaxation = GramRelaxation(problem, full=False)
    grown = relaxation.solve()
    assert not relaxation.is_full
    assert len(relaxation.gram.features) > 100  # the first set was not enough
    assert grown.value == pytest.approx(whole.value, rel=1e-8)
    assert grown.bound == pytest.approx(whole.value, rel=1e-8)
    assert grown.safe == -np.inf
    assert relaxation.bound(grown.p).value == -np.inf
    np.testing.assert_allclose(grown.c, whole.c, atol=1e-5 * np.abs(whole.c).max())
    certified = relaxation.certified(grown.p)
    assert certified.value == pytest.approx(whole.value, rel=1e-8)
    assert certified.value == lower_bound(problem, certified.alpha).value
    # other constraints from there
    for constraint in (Node(8, np.array([300, 310]), np.array([0])), Cardinality(5)):
        moved = relaxation.solve(constraint, p0=grown.p)
        again = GramRelaxation(Problem(make(X), y, k=constraint, lam=0.05, fit_intercept=intercept)).solve()
        assert moved.value == pytest.approx(again.value, rel=1e-7)


def test_some_features_only():
    X, y = regression(30, 20, seed=8)
    J = np.array([1, 4, 5, 6, 9, 13])
    problem, small = Problem(X, y, k=3, lam=0.1), Problem(X[:, J], y, k=3, lam=0.1)
    ridges = shifted_ridges(problem, J)
    np.testing.assert_allclose(ridges, shifted_ridges(small, np.arange(6)), rtol=1e-9)
    solved = GramRelaxation(problem, J, ridges).solve()
    assert solved.value == pytest.approx(GramRelaxation(small, ridges=ridges).solve().value, rel=1e-8)
    assert np.all(np.isin(np.flatnonzero(solved.p), J))
    assert solved.safe <= best_subset(small).objective


def test_the_objective_of_a_support_that_is_not_all_in_play():
    """A model with room left takes any feature, one that is excluded or a column of zeros as well."""
    X, y = regression(30, 6, seed=8)
    problem = Problem(X, y, k=3, lam=0.1)
    relaxation = GramRelaxation(problem, np.array([0, 2, 4]))
    expected = refit(problem, np.array([0, 4])).objective
    assert relaxation.objective(np.array([0, 4])) == pytest.approx(expected, rel=1e-12)
    for support in ([0, 1], [0, 5], [1, 3, 5]):
        assert relaxation.objective(np.array(support)) == -np.inf


@pytest.mark.parametrize("lam", [1e-3, 1.0])
def test_warm_starts_and_the_way_there(lam):
    X, y, _ = paper_design(80, 10, 60, seed=1)
    problem = Problem(X, y, k=10, lam=lam)
    relaxation = GramRelaxation(problem)
    cold = relaxation.solve(tol=1e-10)
    warm = relaxation.solve(p0=cold.p, tol=1e-10, max_iter=3)
    assert warm.value == pytest.approx(cold.value, rel=1e-9)
    early = relaxation.solve(max_iter=2)
    assert early.safe <= cold.value <= early.value
    cut = relaxation.solve(cutoff=0.5 * cold.value)
    assert 0.5 * cold.value <= cut.safe <= cold.value
    wrong = relaxation.solve(p0=100.0 * np.random.default_rng(0).standard_normal(80), tol=1e-10)
    assert wrong.value == pytest.approx(cold.value, rel=1e-9)


@pytest.mark.parametrize("intercept", [False, True])
def test_gram_bound_in_exact_arithmetic(intercept):
    rng = np.random.default_rng(11)
    X = rng.standard_normal((15, 5)) + 1e3
    y = X[:, 0] - X[:, 1] + rng.standard_normal(15)
    problem = Problem(X, y, k=2, lam=1e-4, fit_intercept=intercept)
    for ridges in (own_ridges(problem, np.arange(5)), shifted_ridges(problem, np.arange(5))):
        relaxation = GramRelaxation(problem, ridges=ridges)
        solved = relaxation.solve()
        for p in (solved.p, solved.p + 1e-4 * rng.standard_normal(5)):
            exact = exact_bound(problem, X, p, ridges, list(range(5)))
            safe = relaxation.bound(p).value
            assert mpf(safe) <= exact or safe == 0.0
            assert mpf(shifted_bound(problem, p, ridges).value) <= max(exact, 0)
        assert mpf(solved.safe) <= exact_bound(problem, X, solved.p, ridges, list(range(5)))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("n", "lam"), [(60, 0.05), (200, 1e-4)])
def test_rounds_of_shifts_and_screening(n, lam, intercept):
    rng = np.random.default_rng(6)
    X = rng.standard_normal((n, 100))
    y = X[:, :4].sum(axis=1) + 0.3 * rng.standard_normal(n) + intercept
    problem = Problem(X, y, k=4, lam=lam, fit_intercept=intercept)
    fit = refit(problem, np.arange(4))
    w, b = fit.w, fit.b
    objective = upper_bound(problem, w, b)
    bound = solve(problem, Auto(branching=False), tol=1e-9).certificate.bound
    plain = GramRelaxation(problem).solve().value
    assert plain * (1 + 1e-9) < bound.value <= objective
    assert objective - bound.value <= 1e-7 * objective  # the planted support is the best one
    assert bound.check(problem) == bound.value


@pytest.mark.parametrize("lam", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize(("n", "intercept"), [(8, True), (8, False), (30, True), (30, False)])
def test_rounds_stay_below_brute_force(n, intercept, lam):
    X, y = regression(n, 9, seed=n)
    problem = Problem(X, y, k=3, lam=lam, fit_intercept=intercept)
    best = best_subset(problem)
    bound = solve(problem, Auto(branching=False), tol=1e-9).certificate.bound
    assert bound.value <= best.objective * (1 + 1e-12)
    assert bound.check(problem) == bound.value
    tree = solve(problem, tol=1e-9).certificate.bound
    assert tree.claimed <= tree.check(problem) <= best.objective * (1 + 1e-12)


def test_degenerate_data():
    y = np.array([1.0, -2.0, 3.0, 0.5])
    nothing = GramRelaxation(Problem(np.zeros((4, 3)), y, k=2, lam=0.1)).solve()
    assert nothing.value == pytest.approx(np.mean(y**2))
    assert not np.any(nothing.p)
    silent = GramRelaxation(Problem(np.eye(4)[:, :3], np.zeros(4), k=2, lam=0.1)).solve()
    assert silent.value == 0.0 == silent.safe
    everything = Problem(np.eye(4)[:, :3], y, k=3, lam=0.1)
    assert GramRelaxation(everything).solve().value == pytest.approx(best_subset(everything).objective)
    twins = Problem(np.repeat(y[:, None] + 1.0, 3, axis=1), y, k=1, lam=0.1)
    assert GramRelaxation(twins).solve().value == pytest.approx(best_subset(twins).objective)


def test_arguments():
    X, y = regression(30, 7, seed=2)
    with pytest.raises(ValueError, match="squared"):
        GramRelaxation(Problem(X, np.sign(y), "hinge", k=3, lam=0.1))
    problem = Problem(X, y, k=3, lam=0.1)
    with pytest.raises(ValueError, match="known"):
        GramRelaxation(problem, np.array([1, 2]), known=problem_gram(problem))

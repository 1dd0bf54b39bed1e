"""Nodes that are solved many at a time by compiled code: bounds, screening and models against enumeration."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from mpmath import mpf
from scipy.optimize import lsq_linear

from diht import Problem, solve
from diht.bounds.rule import SparseVector
from diht.bounds.shift import ShiftedPoint
from diht.constraints.groups import constrained
from diht.relaxation.gram import GramRelaxation
from diht.result import Result, Status
from diht.solvers import BranchAndBound, nodes
from diht.solvers.nodes import GramNodes, Leaf, NewtonNodes, Nodes, Solved, workers_for
from diht.solvers.tree import TreeBound, _covers
from oracle import exact_dual, exactly_balanced, ridge

EXACT = 1e-9
NONE = np.empty(0, dtype=np.int64)


@pytest.fixture(autouse=True)
def _compiled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nodes, "few", 0)
    monkeypatch.setattr(NewtonNodes, "few", 0)


def drawn(seed: int, n: int = 25, d: int = 10, k: int = 3, **settings: Any) -> Problem:
    """Correlated columns of many scales, two of them copies; weights, an intercept."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
    y = X[:, :k].sum(axis=1) + rng.standard_normal(n)
    X[:, d - 1] = X[:, 0]
    scale = 10.0 ** rng.uniform(-8, 8) if seed % 3 == 0 else 1.0
    settings = {"lam": 10.0 ** rng.uniform(-4, -1) * scale**2, "k": k} | settings
    weights = rng.uniform(0.5, 1.5, n) if seed % 2 else None
    return Problem(scale * X, y, sample_weight=weights, fit_intercept=bool(seed % 4), **settings)


def costs(problem: Problem, size: int) -> dict[tuple[int, ...], float]:
    """The objective of every support of so many features, by normal equations."""
    X, y, s = problem.design.toarray(), np.asarray(problem.y), np.asarray(problem.s)
    return {
        support: ridge(X[:, list(support)], y, s, problem.lam, problem.fit_intercept)[2]
        for support in combinations(range(problem.shape[1]), size)
    }


def solved(problem: Problem, inside: list[int], outside: list[int], objective: float) -> tuple[GramNodes, Solved]:
    """A node, solved by compiled code from nothing."""
    root = solve(problem, max_iter=1).certificate.bound
    _, (worker, *_), proof = workers_for(problem, np.arange(problem.shape[1]), root)
    assert isinstance(worker, GramNodes)
    worker.many = True
    first = Leaf(NONE, NONE, 0.0, 0.0, proof, SparseVector.of(np.zeros(problem.shape[1])), feature=0)
    return worker, next(worker.solve_all([(first, np.array(inside, int), np.array(outside, int))], objective))


def tree_of(result: Result) -> TreeBound:
    bound = result.certificate.bound
    assert isinstance(bound, TreeBound)
    return bound


@pytest.mark.parametrize("n", [7, 13, 25])
@pytest.mark.parametrize("seed", range(8))
def test_a_node_claims_no_more_than_its_best_model(seed: int, n: int) -> None:
    """With fewer samples than features, too; what is screened, what is left, and the model it rounds to."""
    problem = drawn(seed, n)
    everything, rng = costs(problem, 3), np.random.default_rng(seed)
    best = min(everything.values())
    for inside, outside in (
        ([], []),
        ([2], []),
        ([], [0]),
        ([1, 4], [3]),
        ([5], [0, 1, 6]),
        ([0, 1, 2], []),
        ([7], [*range(6)]),
    ):
        objective = best * rng.choice([1.0, 1.2, 3.0])
        _, node = solved(problem, inside, outside, objective)
        held = {s: v for s, v in everything.items() if {*inside} <= {*s} and not {*outside} & {*s}}
        leaf = node.leaf
        parts = [leaf] if node.screened is None else [leaf, node.screened]
        assert _covers(
            [replace(part, inside=part.inside, outside=part.outside) for part in parts], {*inside}, {*outside}
        )
        for part in parts:
            for needed, barred in part.nodes():
                own = [v for s, v in held.items() if {*needed} <= {*s} and not {*barred} & {*s}]
                assert part.bound <= min(own, default=np.inf) * (1 + 1e-12)
        if node.screened is not None:
            assert node.screened.bound >= objective
        used = tuple(node.support.tolist())
        assert node.promise == pytest.approx(everything.get(used, node.promise), rel=1e-6)
        if len(inside) == 3:
            assert leaf.bound == pytest.approx(everything[tuple(inside)], rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_ridges_leave_a_semidefinite_matrix_and_their_bound_is_found_again(seed: int) -> None:
    problem = drawn(seed, 40)
    worker, node = solved(problem, [1], [4], np.inf)
    proof = node.leaf.proof
    assert isinstance(proof, ShiftedPoint)
    assert proof.ridges is not None
    assert np.any(proof.ridges.values > 0.5 * problem.lam)
    gram = worker.relaxation.gram.among(proof.ridges.support)
    M = gram.quadratic + np.diag(0.5 * problem.lam - proof.ridges.values)
    scale = np.sqrt(gram.quadratic.diagonal())
    assert np.linalg.eigvalsh(M / scale / scale[:, None])[0] > 0.0
    constraint = problem.constraint.restricted(node.leaf.inside, node.leaf.outside)
    by_numpy = GramRelaxation(problem, proof.ridges.support, proof.ridges.values, gram)
    again = by_numpy.bound(proof.p.dense, constraint).value
    assert again == pytest.approx(node.leaf.bound, rel=1e-11)
    most = by_numpy.solve(constraint).safe
    assert again == pytest.approx(most, rel=1e-6)  # the relaxation was solved to its end


@pytest.mark.parametrize("seed", range(12))
def test_trees_equal_enumeration(seed: int) -> None:
    problem = drawn(seed, 30 if seed % 5 else 8, lam=1e-3) if seed % 3 else drawn(seed)
    best = min(costs(problem, 3).values())
    result = solve(problem, BranchAndBound(), tol=EXACT)
    assert result.status is Status.OPTIMAL
    assert result.objective == pytest.approx(best, rel=1e-9)
    assert result.lower_bound <= best * (1 + 1e-12)
    bound = result.certificate.bound
    assert bound.value * (1 - 1e-11) <= bound.check(problem) <= best * (1 + 1e-12)


def test_features_that_are_kept_stay() -> None:
    problem = drawn(5).replaced(constraint=constrained(2, 10, keep=[6]))
    best = min(value for support, value in costs(problem, 3).items() if 6 in support)
    result = solve(problem, BranchAndBound(), tol=EXACT)
    assert result.objective == pytest.approx(best, rel=1e-9)
    assert result.certificate.bound.check(problem) <= best * (1 + 1e-12)


def wide(n: int = 24, lam: float = 1e-3, k: int = 5) -> tuple[Problem, Result, TreeBound]:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((n, 20)) + rng.standard_normal((n, 1))
    problem = Problem(X, X[:, :k].sum(axis=1) + 3.0 * rng.standard_normal(n), k=k, lam=lam, fit_intercept=True)
    result = solve(problem, BranchAndBound(), tol=EXACT)
    return problem, result, tree_of(result)


def test_a_tree_with_screened_leaves_that_was_tampered_with_proves_no_more() -> None:
    problem, result, bound = wide()
    screened = [i for i, leaf in enumerate(bound.leaves) if leaf.screened is not None]
    assert len(screened) > 3
    assert bound.check(problem) == pytest.approx(bound.value, rel=1e-11)
    for i in screened:
        leaf = bound.leaves[i]
        assert replace(bound, leaves=bound.leaves[:i] + bound.leaves[i + 1 :]).check(problem) == bound.root.check(
            problem
        )
        needed, barred = leaf.screened
        free = np.setdiff1d(np.arange(20), np.concatenate([leaf.inside, leaf.outside, needed, barred]))
        for more in (
            (np.append(needed, free), barred),
            (needed, np.append(barred, free)),
            (barred, needed),
            (NONE, NONE),
        ):
            false = replace(leaf, screened=more, bound=1e9)
            changed = replace(bound, leaves=(*bound.leaves[:i], false, *bound.leaves[i + 1 :]), value=1e9)
            assert changed.check(problem) <= result.objective * (1 + 1e-12)


def test_a_tree_with_screened_leaves_is_taken_up_again() -> None:
    problem, whole, _ = wide(16, 1e-2)
    part = solve(problem, BranchAndBound(max_nodes=200), tol=EXACT)
    assert any(leaf.screened is not None for leaf in tree_of(part).leaves)
    rest = solve(problem, BranchAndBound(), part, tol=EXACT)
    assert rest.status is Status.OPTIMAL
    assert rest.objective == pytest.approx(whole.objective, rel=1e-12)
    assert rest.lower_bound == pytest.approx(whole.lower_bound, rel=1e-8)


# ---------------------------------------------------------------------------------------------------------------------
# Limits of coefficients


def limited(seed: int, n: int = 25, **settings: Any) -> Problem:
    """Limits on some sides, some of them at zero, in the size of the coefficients without them."""
    free, rng = drawn(seed, n, **settings), np.random.default_rng(100 + seed)
    size = np.abs(solve(free).w).max() * 10.0 ** rng.uniform(-1.0, 0.3, (2, 10))
    lower, upper = np.where(rng.random((2, 10)) < 0.3, np.inf, size * (rng.random((2, 10)) < 0.7))
    return free.replaced(constraint=constrained(3, 10, bounds=(-lower, upper)))


def limited_costs(problem: Problem) -> dict[tuple[int, ...], float]:
    """The objective of every support of three features within the limits, by bounded least squares."""
    X, y, s = problem.design.toarray(), np.asarray(problem.y), np.asarray(problem.s)
    if problem.fit_intercept:
        X, y = X - s @ X / s.sum(), y - s @ y / s.sum()
    root, limits, found = np.sqrt(s), problem.constraint.limits, {}
    for support in combinations(range(X.shape[1]), 3):
        at = [j for j in support if limits.lower[j] < limits.upper[j]]
        norms = np.sqrt(s @ X[:, at] ** 2 + 0.5 * problem.lam)
        A = np.vstack([root[:, None] * X[:, at], np.sqrt(0.5 * problem.lam) * np.eye(len(at))]) / norms
        right = np.append(root * y, np.zeros(len(at)))
        ends = limits.lower[at] * norms, limits.upper[at] * norms
        x = lsq_linear(A, right, ends, method="bvls", tol=1e-14).x if at else np.zeros(0)
        found[support] = float(np.sum((A @ x - right) ** 2))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_a_node_with_limits_claims_no_more_than_its_best_model(seed: int) -> None:
    problem = limited(seed, 25 if seed % 3 else 9)
    everything, rng = limited_costs(problem), np.random.default_rng(seed)
    best = min(everything.values())
    for inside, outside in (([], []), ([2], []), ([], [0]), ([1, 4], [3]), ([0, 1, 2], []), ([7], [*range(6)])):
        objective = best * rng.choice([1.0, 1.2, 3.0])
        worker, node = solved(problem, inside, outside, objective)
        leaf = node.leaf
        held = {s: v for s, v in everything.items() if {*inside} <= {*s} and not {*outside} & {*s}}
        for part in [leaf] if node.screened is None else [leaf, node.screened]:
            for needed, barred in part.nodes():
                own = [v for s, v in held.items() if {*needed} <= {*s} and not {*barred} & {*s}]
                assert part.bound <= min(own, default=np.inf) * (1 + 1e-11)
        if len(held) == 1:
            assert leaf.bound >= min(*held.values(), objective) * (1 - 1e-8)
        assert isinstance(leaf.proof, ShiftedPoint)
        if leaf.proof.ridges is not None:
            ridges, features = leaf.proof.ridges.values, leaf.proof.ridges.support
            constraint = problem.constraint.restricted(np.array(inside, int), np.array(outside, int))
            by_numpy = GramRelaxation(problem, features, ridges, worker.relaxation.gram.among(features))
            assert by_numpy.node_bound(leaf.proof.p.dense, constraint).value == pytest.approx(leaf.bound, rel=1e-9)
            most = by_numpy.solve(constraint).bound
            assert leaf.bound >= min(objective, most - 0.03 * max(objective - most, 0.0)) * (1 - 1e-8)


@pytest.mark.parametrize("seed", range(12))
def test_trees_with_limits_equal_enumeration(seed: int) -> None:
    problem = limited(seed, 30 if seed % 5 else 8, lam=1e-3) if seed % 3 else limited(seed)
    best = min(limited_costs(problem).values())
    result = solve(problem, BranchAndBound(), tol=EXACT)
    assert result.status is Status.OPTIMAL
    assert problem.constraint.limits.allows(result.w)
    assert result.objective == pytest.approx(best, rel=1e-9)
    assert result.lower_bound <= best * (1 + 1e-11)
    bound = result.certificate.bound
    assert bound.value * (1 - 1e-11) <= bound.check(problem) <= best * (1 + 1e-11)


@pytest.mark.parametrize("seed", range(6))
def test_the_compiled_proximal_map_with_limits_is_that_of_numpy(seed: int) -> None:
    from diht.relaxation.limited_kernels import proximal_step

    rng = np.random.default_rng(seed)
    lower, upper = np.where(rng.random((2, 9)) < 0.3, np.inf, rng.uniform(0.0, 2.0, (2, 9)))
    upper[0] = lower[1] = 0.0
    constraint = constrained(3, 9, bounds=(-lower, upper)).restricted(np.array([2]), NONE)
    state = np.zeros(9, dtype=np.int8)
    state[2] = 1
    for r in (0.01, 0.5, 4.0):
        q, x, z = 2.0 * rng.standard_normal(9), np.empty(9), np.empty(9)
        proximal_step(q, np.zeros(9), r, (state, 2, -lower, upper), 0.0, x, z)
        np.testing.assert_allclose(x, constraint.prox(q, r), rtol=1e-9, atol=1e-12)
        assert np.sum(x[x != 0.0] ** 2 / z[x != 0.0]) == pytest.approx(2.0 * constraint.relaxation(x), rel=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# The logistic loss


def labelled(seed: int, n: int = 40, d: int = 8, k: int = 3, **settings: Any) -> Problem:
    """Labels of correlated columns of many scales, two of them copies; weights, some zero, and an intercept."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + rng.standard_normal((n, 1)) + 3.0 * (seed % 2)
    y = np.where(X[:, :k].sum(axis=1) - X[:, :k].sum(axis=1).mean() + 2.0 * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    X[:, d - 1] = X[:, 0]
    scale = 10.0 ** rng.uniform(-8, 8) if seed % 3 == 0 else 1.0
    weights = rng.uniform(0.5, 1.5, n) * (rng.random(n) > 0.1) if seed % 2 else None
    settings = {"lam": 10.0 ** rng.uniform(-4, -1) * scale**2, "k": k, "fit_intercept": bool(seed % 4)} | settings
    return Problem(scale * X, y, "logistic", sample_weight=weights, **settings)


def logistic_costs(problem: Problem, size: int) -> dict[tuple[int, ...], float]:
    """The objective of every support of so many features, by Newton's method with halved steps."""
    X, y, s, lam = problem.design.toarray(), np.asarray(problem.y), np.asarray(problem.s), problem.lam
    ones = np.ones((len(X), int(problem.fit_intercept)))

    def value(A: np.ndarray, x: np.ndarray, ridge: np.ndarray) -> float:
        return float(s @ np.logaddexp(0.0, -y * (A @ x)) + 0.5 * ridge @ x**2)

    def cost(support: tuple[int, ...]) -> float:
        A = np.hstack([X[:, list(support)], ones])
        ridge, x = np.append(np.full(size, lam), 0.0 * ones[0]), np.zeros(A.shape[1])
        for _ in range(100):
            p = 1.0 / (1.0 + np.exp(y * (A @ x)))
            gradient, H = A.T @ (-s * y * p) + ridge * x, (A.T * (s * p * (1.0 - p))) @ A + np.diag(ridge)
            step, size_of = np.linalg.solve(H, -gradient), 1.0
            if -gradient @ step <= 1e-30:  # twice what is left to gain, far below rounding
                break
            while value(A, x + size_of * step, ridge) > value(A, x, ridge) and size_of > 1e-6:
                size_of *= 0.5
            x = x + size_of * step
        return value(A, x, ridge)

    return {support: cost(support) for support in combinations(range(problem.shape[1]), size)}


def solved_logistic(
    problem: Problem, inside: list[int], outside: list[int], objective: float
) -> tuple[NewtonNodes, Solved]:
    root = solve(problem, max_iter=1).certificate.bound
    _, (worker, *_), proof = workers_for(problem, np.arange(problem.shape[1]), root)
    assert isinstance(worker, NewtonNodes)
    assert worker._classified is not None
    worker.many = True
    first = Leaf(NONE, NONE, 0.0, 0.0, proof, SparseVector.of(np.zeros(problem.shape[1])), feature=0)
    return worker, next(worker.solve_all([(first, np.array(inside, int), np.array(outside, int))], objective))


@pytest.mark.parametrize("seed", range(8))
def test_a_logistic_node_claims_no_more_than_its_best_model(seed: int) -> None:
    """The relaxation is solved as far as by numpy, and the bound is found again from its rule."""
    problem = labelled(seed)
    everything, rng = logistic_costs(problem, 3), np.random.default_rng(seed)
    best = min(everything.values())
    for inside, outside in (([], []), ([2], []), ([], [0]), ([1, 4], [3]), ([0, 1, 2], []), ([7], [*range(5)])):
        objective = best * rng.choice([1.0, 1.2, 3.0])
        worker, node = solved_logistic(problem, inside, outside, objective)
        held = {s: v for s, v in everything.items() if {*inside} <= {*s} and not {*outside} & {*s}}
        leaf, least = node.leaf, min(held.values())
        assert leaf.bound <= least * (1 + 1e-12)
        constraint = problem.constraint.restricted(leaf.inside, leaf.outside)
        part = worker.in_play.node(constraint)
        again = worker.in_play.bound(part, leaf.proof)
        assert leaf.bound <= again.value <= leaf.bound * (1 + 1e-9)
        by_numpy = worker.solve(constraint, leaf.w, None, np.inf).proved.value
        assert leaf.bound >= min(objective, by_numpy - 0.06 * max(objective - by_numpy, 0.0)) * (1 - 1e-8)
        if leaf.bound < objective:
            cost = everything[tuple(node.support.tolist())]
            assert min(cost * (1 - 1e-7), objective * (1 - 2e-9)) <= node.promise <= cost
        if len(held) == 1:
            assert leaf.bound >= min(least, objective) * (1 - 1e-8)


def test_a_logistic_bound_is_below_the_dual_value_in_sixty_digits() -> None:
    """Of the dual point that its rule gives, balanced exactly: rounding has taken something off, and little."""
    for seed in (1, 2, 4, 5):
        problem = labelled(seed, 25, 6)
        worker, node = solved_logistic(problem, [], [], solve(problem).objective)
        part = worker.in_play.node(problem.constraint)
        alpha = [mpf(float(a)) for a in worker.in_play.dual(node.leaf.proof)]
        alpha = exactly_balanced(part, alpha) if problem.fit_intercept else alpha
        exact = exact_dual(part, np.asarray(part.design.toarray()), alpha)
        assert node.leaf.bound <= exact
        assert node.leaf.bound >= exact * (1 - mpf("1e-9"))


@pytest.mark.parametrize("seed", range(8))
def test_logistic_trees_equal_enumeration_whatever_the_threads(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_THREADED", 0)
    best = min(logistic_costs(labelled(seed), 3).values())
    results = [solve(labelled(seed, n_threads=n), BranchAndBound(), tol=EXACT) for n in (1, 2)]
    for result in results:
        assert result.status is Status.OPTIMAL
        assert result.objective == pytest.approx(best, rel=1e-9)
        assert result.lower_bound <= best * (1 + 1e-12)
        bound = result.certificate.bound
        assert bound.value * (1 - 1e-11) <= bound.check(labelled(seed)) <= best * (1 + 1e-12)
    one, two = (tree_of(result).leaves for result in results)
    assert [(*leaf.inside, -1, *leaf.outside) for leaf in one] == [(*leaf.inside, -1, *leaf.outside) for leaf in two]
    # The rounding that is subtracted counts a sum for each thread.
    assert [leaf.bound for leaf in one] == pytest.approx([leaf.bound for leaf in two], rel=1e-13)


def test_a_logistic_tree_is_taken_up_again() -> None:
    problem = labelled(5, 60, 14, k=4, lam=1e-3)
    whole = solve(problem, BranchAndBound(), tol=EXACT)
    rest = solve(problem, BranchAndBound(), solve(problem, BranchAndBound(max_nodes=20), tol=EXACT), tol=EXACT)
    assert rest.status is Status.OPTIMAL
    assert rest.objective == pytest.approx(whole.objective, rel=1e-12)
    assert rest.lower_bound == pytest.approx(whole.lower_bound, rel=1e-8)

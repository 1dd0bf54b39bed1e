"""Interactions only with their main effects: sets, sums and relaxations against enumeration and linear programs."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.preprocessing import PolynomialFeatures

from diht import Problem, SparseRegressor, heredity, parents_of, solve
from diht.constraints.heredity import Heredity
from diht.losses import Squared
from fuzz_cases import draw_ruled
from fuzz_judge import FATAL, check

KINDS = ["strong", "weak"]
kinds = pytest.mark.parametrize("kind", KINDS)
NOTHING = np.empty(0, dtype=np.int64)
CUBIC = parents_of(
    PolynomialFeatures(3, include_bias=False).fit(np.zeros((1, 2))).powers_
)  # x, y, xx, xy, yy, xxx, ...
PAIRS = parents_of(PolynomialFeatures(2, interaction_only=True, include_bias=False).fit(np.zeros((1, 4))).powers_)


def hereditary(parents: list[list[int]], kind: str, k: int) -> list[set[int]]:
    """All sets of at most k terms that have all parents, or one, of each of their terms."""
    asked = all if kind == "strong" else any
    every = (set(some) for m in range(k + 1) for some in combinations(range(len(parents)), m))
    return [some for some in every if all(asked(p in some for p in parents[j]) for j in some if parents[j])]


def program(parents: list[list[int]], squares: np.ndarray, kind: str, k: int) -> float:
    """The largest sum where terms may be chosen in part, unless they do not fit with what they need."""
    d, rows = len(parents), [np.ones(len(parents))]
    squares = np.where(np.isin(np.arange(d), list(set().union(*hereditary(parents, kind, k)))), squares, 0.0)
    for j, own in enumerate(parents):
        for some in [[p] for p in own] if kind == "strong" else [own] if own else []:
            row = np.eye(d)[j]
            row[some] -= 1.0
            rows.append(row)
    return -float(linprog(-squares, np.array(rows), np.append(k, np.zeros(len(rows) - 1)), bounds=(0, 1)).fun)


@kinds
@pytest.mark.parametrize("parents", [CUBIC, PAIRS], ids=["cubic", "pairs"])
def test_nodes_allow_what_enumeration_does(parents: list[list[int]], kind: str) -> None:
    """A node holds the parts, without what is outside, of the hereditary sets that hold what is inside."""
    rng, d, k = np.random.default_rng(0), len(parents), 4
    whole = heredity(k, parents, kind)
    for _ in range(6):
        drawn = rng.permutation(d)
        inside, outside = drawn[: rng.integers(3)], drawn[3 : 3 + rng.integers(4)]
        node = whole.restricted(inside, outside)
        chosen = [some - set(outside) for some in hereditary(parents, kind, k) if set(inside) <= some]
        assert (node.free(d)[0] < 0) == (not chosen)
        for m in range(k + 1):
            for support in combinations(range(d), m):
                w = np.isin(np.arange(d), support).astype(float)
                assert node.allows(w) == any(set(support) <= some for some in chosen)
        if chosen:
            assert set(range(d)) - set(node.free(d)[2].tolist()) == set().union(*chosen)
            v = rng.standard_normal(d)
            best = max(float(np.square(v[sorted(some)]).sum()) for some in chosen)
            assert node.value(v) >= best * (1 - 1e-15)
            assert node.allows(np.isin(np.arange(d), node.select(v)).astype(float))


@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize("parents", [CUBIC, PAIRS], ids=["cubic", "pairs"])
def test_values_are_those_of_linear_programs(parents: list[list[int]], k: int) -> None:
    """Where all parents are asked for they are equal; where one is, no less, and for products of two seldom much more."""
    rng = np.random.default_rng(1)
    excess = []
    for scale in (1.0, 1e-150, 1e150):
        for v in rng.standard_normal((10, len(parents))) * np.exp(rng.standard_normal((10, len(parents)))):
            bound, weak = (heredity(k, parents, kind).value(scale * v) / scale**2 for kind in KINDS)
            least, lower = (program(parents, np.square(v), kind, k) for kind in KINDS)
            assert least * (1 - 1e-12) <= bound <= least * (1 + 1e-6)
            assert weak >= lower * (1 - 1e-12)
            excess.append(weak / lower - 1.0)
    assert parents is CUBIC or np.mean(excess) < 0.01


def test_the_relaxation_is_half_the_dual_of_the_value() -> None:
    """Omega(w) >= w.v - nu(v)^2 / 2, with equality for some v; the proximal map is optimal, places keep to the order."""
    rng, d = np.random.default_rng(2), len(PAIRS)
    for constraint in (heredity(4, PAIRS), heredity(5, PAIRS).restricted(np.array([5]), np.array([0, 8]))):
        for _ in range(10):
            w = rng.standard_normal(d) * (rng.random(d) < 0.7)
            w[constraint.free(d)[2]] = 0.0
            z = constraint.places(w)
            assert float(z.sum()) <= constraint.k + 1e-9
            assert all(z[j] <= z[p] + 1e-6 for j, own in enumerate(PAIRS) for p in own)
            omega = constraint.relaxation(w)
            best = np.divide(w, z, out=np.zeros(d), where=z > 0.0)
            assert omega == pytest.approx(float(w @ best) - 0.5 * constraint.value(best), rel=1e-6)
            for v in rng.standard_normal((20, d)):
                assert omega >= float(w @ v) - 0.5 * constraint.value(v) - 1e-9
            q, r = rng.standard_normal(d), 0.3
            p = constraint.prox(q, r)
            least = r * constraint.relaxation(p) + 0.5 * float((p - q) @ (p - q))
            for step in 0.01 * rng.standard_normal((20, d)):
                step[constraint.free(d)[2]] = 0.0
                near = r * constraint.relaxation(p + step) + 0.5 * float((p + step - q) @ (p + step - q))
                assert near >= least * (1 - 1e-8)


@kinds
def test_parents_without_columns_count(kind: str) -> None:
    whole, features = heredity(4, PAIRS, kind), np.array([9, 1, 4, 6])
    part = whole.within(features)
    for m in range(5):
        for some in combinations(range(4), m):
            assert part.allows(np.isin(np.arange(4), some).astype(float)) == whole.allows(
                np.isin(np.arange(10), features[list(some)]).astype(float)
            )
    stated = part.stated()
    assert stated["columns"] == 4
    assert stated["parents"][1] == []
    assert all(len(own) == 2 for own in (stated["parents"][i] for i in (0, 2, 3)))


@kinds
def test_trees_end_at_the_best_model(kind: str) -> None:
    """On products of columns, beside a fit on every hereditary set of k terms; a feature leaves with those that need it."""
    rng = np.random.default_rng(5)
    X = PolynomialFeatures(2, interaction_only=True, include_bias=False).fit_transform(rng.standard_normal((60, 4)))
    y = X[:, 0] + X[:, 1] + 2.0 * X[:, 4] + 1.5 * X[:, 9] + 0.5 * rng.standard_normal(60)
    s = rng.integers(1, 4, 60) / 100.0
    problem = Problem(X, y, Squared(), heredity(4, PAIRS, kind), 0.02, s, True)
    result = solve(problem, "branch", tol=1e-7)
    centred, s = X - s @ X / s.sum(), s / s.sum()
    found = []
    for some in map(sorted, hereditary(PAIRS, kind, 4)):
        A = centred[:, some]
        w = np.linalg.solve(A.T @ (s[:, None] * A) * 2 + 0.02 * np.eye(len(some)), 2 * A.T @ (s * (y - s @ y)))
        found.append(float(s @ np.square(y - s @ y - A @ w)) + 0.01 * float(w @ w))
    assert result.objective == pytest.approx(min(found), rel=1e-9)
    assert min(found) * (1 - 1e-6) <= result.lower_bound <= min(found) * (1 + 1e-12)
    assert problem.constraint.remaining(np.array([0, 1, 4, 5]), np.array([0])).tolist() == (
        [1] if kind == "strong" else [1, 4]
    )


@pytest.mark.parametrize("seed", range(12))
def test_rules_against_brute_force(seed: int) -> None:
    """At most so many of each group, budgets and heredity under any loss (`brute_force.py --ruled`)."""
    counts = check(draw_ruled(seed)).counts
    assert not any(counts[what] for what in FATAL)


def test_bad_input() -> None:
    for parents in ([], 3, [[], [0.5]], [[], ["a"]], [[], [[0]]]):
        with pytest.raises(ValueError, match=r"^parents must hold a list of whole numbers"):
            heredity(2, parents)
    with pytest.raises(ValueError, match=r"^parents must be from 0 to 1, got \[2\] for feature 1"):
        heredity(2, [[], [2]])
    with pytest.raises(ValueError, match=r"^parents must have no circle"):
        heredity(2, [[1], [0]])
    with pytest.raises(ValueError, match=r'^kind must be "strong" or "weak", got .both.'):
        heredity(2, [[], [0]], "both")
    with pytest.raises(ValueError, match=r"^k must be at least 1"):
        heredity(0, [[], [0]])
    with pytest.raises(ValueError, match=r"^powers must have the products with one factor less, got \[1, 1\]"):
        parents_of([[1, 0], [1, 1]])
    with pytest.raises(ValueError, match=r"^powers must hold the exponents"):
        parents_of([[0.5, 1.0]])
    with pytest.raises(ValueError, match=r"^parents must hold a list for each of the 3 features, got 2"):
        SparseRegressor(k=heredity(1, [[], [0]])).fit(np.eye(4)[:, :3], np.arange(4.0))
    assert isinstance(heredity(9, [[], [0]]), Heredity)

"""Constraints against their definitions, by enumeration."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from diht import Cardinality
from diht.constraints.base import Constraint, Node, as_constraint

vectors = arrays(np.float64, st.integers(1, 8), elements=st.floats(-1e3, 1e3, allow_subnormal=False))


@given(vectors, st.integers(1, 8))
def test_select_is_the_best_support_and_value_its_squared_norm(v: np.ndarray, k: int) -> None:
    k = min(k, len(v))
    constraint = Cardinality(k)
    support = constraint.select(v)
    assert len(set(support.tolist())) == k
    assert np.all(np.diff(support) > 0)
    best = max(float(np.sum(v[list(chosen)] ** 2)) for chosen in combinations(range(len(v)), k))
    assert constraint.value(v) == pytest.approx(best, rel=1e-14, abs=0)


@given(vectors, st.integers(1, 8), st.integers(0, 2**32))
def test_threshold_is_the_projection(v: np.ndarray, k: int, seed: int) -> None:
    k = min(k, len(v))
    w, support = Cardinality(k).threshold(v)
    np.testing.assert_array_equal(w[support], v[support])
    assert np.count_nonzero(w) <= k
    assert not np.shares_memory(w, v)
    rng = np.random.default_rng(seed)
    rival = np.where(rng.permutation(len(v)) < k, v + rng.standard_normal(len(v)), 0.0)
    assert np.sum((w - v) ** 2) <= np.sum((rival - v) ** 2) * (1 + 1e-12)


@given(vectors, st.integers(0, 2**32), st.integers(1, 8))
def test_the_root_of_value_is_a_norm(v: np.ndarray, seed: int, k: int) -> None:
    constraint = Cardinality(min(k, len(v)))
    z = 100 * np.random.default_rng(seed).standard_normal(len(v))
    together = np.sqrt(constraint.value(v + z))
    assert together <= (np.sqrt(constraint.value(v)) + np.sqrt(constraint.value(z))) * (1 + 1e-12)


def test_ties_are_broken_by_the_smaller_index() -> None:
    v = np.array([1.0, -2.0, 2.0, 2.0, -1.0])
    assert Cardinality(2).select(v).tolist() == [1, 2]
    assert Cardinality(4).select(v).tolist() == [0, 1, 2, 3]
    assert Cardinality(2).select(np.zeros(4)).tolist() == [0, 1]


def test_allows_counts_nonzeros() -> None:
    assert Cardinality(2).allows(np.array([0.0, 1.0, -1.0, -0.0]))
    assert not Cardinality(2).allows(np.array([1e-300, 1.0, -1.0]))


@pytest.mark.parametrize("k", [0, -1, 1.5, 2.0, "2", None, True, np.nan])
def test_a_bad_k_is_refused_by_name_and_value(k: object) -> None:
    with pytest.raises(ValueError, match=r"^k must be ") as error:
        Cardinality(k)
    assert repr(k) in str(error.value)


def test_k_may_be_any_whole_number_type_but_not_more_than_the_features() -> None:
    assert Cardinality(np.int32(3)) == Cardinality(3)
    assert type(Cardinality(np.int64(3)).k) is int
    with pytest.raises(ValueError, match=r"^k must be at most the number of features, got k=4 with 3 features$"):
        Cardinality(4).check(3)
    Cardinality(3).check(3)


def test_as_constraint_keeps_a_constraint() -> None:
    constraint = Cardinality(3)
    assert as_constraint(constraint) is constraint
    assert as_constraint(3) == constraint
    assert constraint.size == 3


# Families of supports: a cardinality and the nodes of a search tree


@st.composite
def families(draw: st.DrawFn) -> tuple[np.ndarray, Constraint, list[frozenset[int]]]:
    """A vector, a constraint, and all supports in its family that have room for the features inside, enumerated."""
    v = draw(vectors)
    d = len(v)
    k = draw(st.integers(1, d))
    state = draw(st.lists(st.sampled_from([0, 0, 1, -1]), min_size=d, max_size=d))
    inside = [j for j in range(d) if state[j] == 1][:k]
    outside = [j for j in range(d) if state[j] == -1]
    constraint = Cardinality(k).restricted(np.array(inside, dtype=np.int64), np.array(outside, dtype=np.int64))
    free = [j for j in range(d) if j not in inside and j not in outside]
    most = min(k - len(inside), len(free))
    supports = [frozenset(inside) | set(more) for size in range(most + 1) for more in combinations(free, size)]
    return v, constraint, supports


def largest(v: np.ndarray, supports: list[frozenset[int]]) -> float:
    return max((float(np.sum(v[list(support)] ** 2)) for support in supports), default=-np.inf)


@given(families())
def test_value_select_and_allows_of_a_node(family: tuple[np.ndarray, Constraint, list[frozenset[int]]]) -> None:
    v, constraint, supports = family
    best = largest(v, supports)
    assert constraint.value(v) == pytest.approx(best, rel=1e-14, abs=0)
    assert frozenset(constraint.select(v).tolist()) in {part for s in supports for part in subsets(s)}
    allowed = {part for s in supports for part in subsets(s)}
    for support in (frozenset(s) for size in range(len(v) + 1) for s in combinations(range(len(v)), size)):
        w = np.zeros(len(v))
        w[list(support)] = 1.0
        assert constraint.allows(w) == (support in allowed)


def subsets(support: frozenset[int]) -> list[frozenset[int]]:
    return [frozenset(part) for size in range(len(support) + 1) for part in combinations(sorted(support), size)]


@given(families())
def test_forcing_is_the_fall_of_the_value(family: tuple[np.ndarray, Constraint, list[frozenset[int]]]) -> None:
    v, constraint, supports = family
    drop, add = constraint.forcing(v)
    best = largest(v, supports)
    for j in range(len(v)):
        for fall, left in ((drop[j], [s for s in supports if j not in s]), (add[j], [s for s in supports if j in s])):
            expected = best - largest(v, left)
            assert fall == expected if np.isinf(expected) else fall == pytest.approx(expected, abs=1e-13 * best)


@given(families(), st.integers(0, 2**32))
def test_within_is_the_family_on_fewer_features(
    family: tuple[np.ndarray, Constraint, list[frozenset[int]]], seed: int
) -> None:
    v, constraint, supports = family
    _, inside, _ = constraint.free(len(v))
    chosen = np.flatnonzero(np.random.default_rng(seed).random(len(v)) < 0.6)
    features = np.union1d(np.union1d(chosen, inside), [0])
    part = constraint.within(features)
    left = [s for s in supports if s <= set(features.tolist())]
    assert part.value(v[features]) == pytest.approx(largest(v, left), rel=1e-14, abs=0)


def test_a_node_is_restricted_further_and_checked() -> None:
    node = Cardinality(3).restricted(np.array([4]), np.array([1]))
    again = node.restricted(np.array([2]), np.array([1, 5]))
    assert isinstance(again, Node)
    assert (again.k, again.inside.tolist(), again.outside.tolist()) == (3, [2, 4], [1, 5])
    assert again.free(8)[0] == 1
    nothing = np.empty(0, dtype=np.int64)
    assert Cardinality(3).restricted(nothing, nothing) == Cardinality(3)
    with pytest.raises(ValueError, match="k must be at least the number of features inside, got k=1 with 2"):
        Node(1, np.array([0, 1]), nothing).check(5)


# The relaxation of half the squared norm


def k_support(w: np.ndarray, k: int) -> float:
    """Half the squared k-support norm, by the formula of Argyriou, Foygel and Srebro (2012)."""
    size = np.append(np.sort(np.abs(w))[::-1], [0.0] * k)
    for r in range(k):
        tail = size[k - r - 1 :].sum() / (r + 1)
        before = size[k - r - 2] if r < k - 1 else np.inf
        if before >= tail * (1 - 1e-12) and tail >= size[k - r - 1] * (1 - 1e-12):
            return 0.5 * float(np.sum(size[: k - r - 1] ** 2) + (r + 1) * tail**2)
    raise AssertionError("no r fits")


def omega(w: np.ndarray, constraint: Constraint) -> float:
    m, inside, outside = constraint.free(len(w))
    free = np.setdiff1d(np.arange(len(w)), np.union1d(inside, outside))
    assert not np.any(w[outside])
    held = 0.5 * float(np.sum(w[inside] ** 2))
    if m == 0:
        assert not np.any(w[free])
        return held
    return held + k_support(w[free], m)


moderate = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))


@given(st.lists(moderate, min_size=1, max_size=8), st.integers(1, 8))
def test_relaxation_is_the_k_support_norm(values: list[float], k: int) -> None:
    w = np.array(values)
    k = min(k, len(w))
    assert Cardinality(k).relaxation(w) == pytest.approx(k_support(w, k), rel=1e-10, abs=1e-300)


@given(families(), st.floats(0.01, 100.0))
def test_prox_by_the_identity_of_moreau(family: tuple[np.ndarray, Constraint, list[frozenset[int]]], r: float) -> None:
    """w minimises |w - q|^2/2 + r Omega(w) if and only if v = (q - w)/r satisfies Fenchel's equality with nu(v)^2/2."""
    q, constraint, _ = family
    q = np.round(q, 3)
    w = constraint.prox(q, r)
    _, _, outside = constraint.free(len(q))
    v = (q - w) / r
    v[outside] = 0.0  # where w is held at zero, anything goes
    size = float(np.abs(w) @ np.abs(v)) + 1e-300
    assert omega(w, constraint) + 0.5 * constraint.value(v) == pytest.approx(float(w @ v), abs=1e-8 * size + 1e-12)
    assert constraint.relaxation(w) == pytest.approx(omega(w, constraint), rel=1e-9, abs=1e-12)


@given(families(), st.floats(0.01, 100.0), st.integers(0, 2**32))
def test_no_rival_beats_the_prox(
    family: tuple[np.ndarray, Constraint, list[frozenset[int]]], r: float, seed: int
) -> None:
    q, constraint, _ = family
    q = np.round(q, 3)
    m, inside, outside = constraint.free(len(q))
    w = constraint.prox(q, r)

    def value(x: np.ndarray) -> float:
        return 0.5 * float(np.sum((x - q) ** 2)) + r * omega(x, constraint)

    rng = np.random.default_rng(seed)
    for scale in (1e-3, 1e-1, 1.0):
        rival = w + scale * (1.0 + np.abs(q)) * rng.standard_normal(len(q))
        rival[outside] = 0.0
        if m == 0:
            rival[np.setdiff1d(np.arange(len(q)), inside)] = 0.0
        assert value(w) <= value(rival) * (1 + 1e-10)

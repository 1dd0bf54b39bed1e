"""The cardinality constraint against its definition."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from diht import Cardinality
from diht.constraint import as_constraint

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

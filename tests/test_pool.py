"""The pool keeps the best models, one a support, in order."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diht import Problem
from diht.fit import Fit
from diht.search.pool import Pool


def model(support: list[int], objective: float, b: float = 0.0, factor: float = 1.0) -> Fit:
    return Fit(6, np.array(support, dtype=np.int64), factor * np.arange(1.0, len(support) + 1.0), b, objective)


def supports(pool: Pool) -> list[list[int]]:
    return [pooled.support.tolist() for pooled in pool]


def test_sorted_by_objective_then_by_support() -> None:
    pool = Pool()
    for support, objective in (([3], 2.0), ([1, 2], 1.0), ([0, 5], 1.0), ([], 3.0)):
        pool.add(model(support, objective))
    assert supports(pool) == [[0, 5], [1, 2], [3], []]
    assert pool.best is not None
    assert pool.best.objective == 1.0


def test_only_what_beats_the_best_is_a_new_best() -> None:
    pool = Pool(2)
    assert pool.best is None
    assert pool.add(model([1], 5.0))
    assert not pool.add(model([0], 5.0))  # comes first, but is no better
    assert pool.add(model([2], 4.0))
    assert not pool.add(model([3], 9.0))
    assert pool.add(model([2], 3.0))  # better on the support of the best
    assert supports(pool) == [[2], [0]]


def test_of_two_models_on_a_support_the_better_stays() -> None:
    pool = Pool()
    pool.add(model([1, 4], 2.0, 0.5))
    pool.add(model([1, 4], 1.0, 0.25, factor=2.0))
    pool.add(model([1, 4], 1.5, 0.75, factor=3.0))
    assert len(pool) == 1
    (pooled,) = pool
    np.testing.assert_array_equal(pooled.w, [0.0, 2.0, 0.0, 0.0, 4.0, 0.0])
    assert (pooled.b, pooled.objective) == (0.25, 1.0)


@pytest.mark.parametrize("objective", [np.nan, np.inf, -np.inf])
def test_objectives_that_are_not_finite_are_refused(objective: float) -> None:
    pool = Pool()
    assert not pool.add(model([1], objective))
    assert len(pool) == 0


def test_the_support_is_what_is_not_zero() -> None:
    pool = Pool()
    assert pool.add(Fit(6, np.array([0, 2, 4]), np.array([0.0, 1.0, 2.0]), 0.0, 1.0))
    assert not pool.add(model([2, 4], 1.0))
    assert supports(pool) == [[2, 4]]


def test_margins_are_kept_of_the_best_model_alone() -> None:
    pool, u = Pool(), np.arange(3.0)
    for feature, objective in ((0, 2.0), (1, 3.0), (2, 1.0)):
        pool.add(replace(model([feature], objective), u=u))
        assert [pooled.u is u for pooled in pool] == [True, *[False] * (len(pool) - 1)]
        assert all(pooled.u is None for pooled in list(pool)[1:])


def test_a_pool_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="capacity"):
        Pool(0)


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 5)), st.integers(0, 8)), max_size=60),
    st.integers(1, 6),
)
def test_against_a_dictionary(added: list[tuple[set[int], int]], capacity: int) -> None:
    pool, reference = Pool(capacity), {}
    for support, objective in added:
        key = tuple(sorted(support))
        is_best = objective < min(reference.values(), default=np.inf)
        reference[key] = min(objective, reference.get(key, np.inf))
        assert pool.add(model(list(key), float(objective))) == is_best
    expected = sorted((objective, list(key)) for key, objective in reference.items())[:capacity]
    assert [(pooled.objective, pooled.support.tolist()) for pooled in pool] == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_models_are_in_the_coordinates_of_the_user(dtype: type) -> None:
    rng = np.random.default_rng(0)
    X, y = (rng.standard_normal((20, 6)) + 3.0).astype(dtype), rng.standard_normal(20)
    problem = Problem(X, y, k=2, fit_intercept=True)
    pool = Pool()
    fit = model([1, 4], 2.0, 0.5)
    pool.add(fit)
    (shown,) = pool.models(problem)
    assert shown.objective == 2.0
    u = problem.design.matvec(fit.w) + 0.5
    np.testing.assert_allclose(X.astype(np.float64) @ shown.w + shown.intercept, u, rtol=1e-12)

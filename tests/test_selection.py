"""The k largest magnitudes, against a stable sort."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from diht.constraints.selection import top_k, top_k_by_partition, top_k_numpy

# Few values, so that ties are common; the largest, the smallest and the subnormal ones among them.
VALUES = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 2.0, 5e-324, -5e-324, 1e-310, 2.2e-308, 1.8e308, np.inf, -np.inf, 1.0 + 2e-16]
)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), d=st.integers(1, 60), ties=st.booleans())
def test_equals_the_stable_sort(data, d, ties):
    values = VALUES if ties else st.floats(allow_nan=False)
    v = data.draw(hnp.arrays(np.float64, d, elements=values))
    k = data.draw(st.integers(1, d))
    chosen = top_k(v, k)
    assert chosen.dtype == np.int64
    np.testing.assert_array_equal(chosen, top_k_numpy(v, k))


def long_vectors(d=100_000):
    rng = np.random.default_rng(0)
    tail = np.where(rng.random(d) < 0.02, rng.standard_cauchy(d), 1e-9 * rng.normal(size=d))
    yield "gaussian", rng.normal(size=d)
    yield "heavy tail", tail
    yield "mostly zero", rng.normal(size=d) * (rng.random(d) < 0.01)
    yield "many ties", rng.integers(-3, 4, size=d).astype(float)
    yield "rounded", rng.normal(size=d).round(2)
    yield "all equal", np.full(d, -2.5)
    yield "all zero", np.zeros(d)
    yield "ascending", np.arange(float(d))
    yield "descending", np.arange(float(d))[::-1].copy()
    yield "periodic", np.tile([1e3, 1.0, 1e-3, 1e-6], d // 4)
    yield "many scales", 10.0 ** rng.uniform(-300, 300, size=d)
    yield "infinite", np.where(rng.random(d) < 0.3, np.inf, rng.normal(size=d))


@pytest.mark.parametrize(("name", "v"), [pytest.param(name, v, id=name) for name, v in long_vectors()])
def test_long_vectors(name, v):
    for k in (1, 2, 37, 1000, len(v) // 20, len(v) // 2, len(v) - 1, len(v), len(v) + 5):
        np.testing.assert_array_equal(top_k(v, k), top_k_numpy(v, k))
        if k < len(v):
            np.testing.assert_array_equal(top_k_by_partition(v, k), top_k_numpy(v, k))


def test_a_sample_that_misleads():
    # Every position that a regular sample of 4096 visits is large, so that the guess is far too high.
    d = 4096 * 16
    v = np.linspace(1.0, 2.0, d)
    v[::16] = 100.0 + np.arange(d // 16)
    for k in (10, 4000, 5000, 30_000):
        np.testing.assert_array_equal(top_k(v, k), top_k_numpy(v, k))


@settings(max_examples=100, deadline=None)
@given(v=hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(allow_nan=True)), k=st.integers(0, 45))
@example(v=np.full(7, np.nan), k=3)
def test_nan_never_breaks_the_count(v, k):
    chosen = top_k(v, k)
    assert len(chosen) == min(k, len(v))
    assert np.all(np.diff(chosen) > 0)
    assert np.all((chosen >= 0) & (chosen < len(v)))


def test_other_types_and_layouts():
    v = np.arange(20.0)
    np.testing.assert_array_equal(top_k(v[::2], 3), [7, 8, 9])
    np.testing.assert_array_equal(top_k(v.astype(np.float32), 3), [17, 18, 19])
    v.flags.writeable = False
    np.testing.assert_array_equal(top_k(v, 2), [18, 19])
    assert len(top_k(np.empty(0), 3)) == 0
    assert len(top_k(v, 0)) == 0

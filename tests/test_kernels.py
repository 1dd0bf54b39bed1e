"""The compiled kernels against their numpy twins."""

from functools import partial
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import LOSSES
from diht.design import DenseDesign, Step, kernels
from diht.design.base import frozen, frozen_view
from diht.design.step import MODES, Codes
from diht.losses import Hinge, Logistic, SquaredHinge
from diht.relaxation.smoothing import Central
from diht.samples.central_slopes import central_straight
from diht.samples.compiled_loss import is_compiled, sums
from diht.samples.logistic_kernels import logistic_curvatures, logistic_slopes, logistic_sums
from diht.samples.memory import MemorySamples

RNG = np.random.default_rng(0)
ALL = frozen(np.empty(0), np.int64)


# Scalar steps


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss.kernel() is not None], ids=lambda loss: loss.name)
@pytest.mark.parametrize("mode", ["explicit", "implicit", "derivative", "identity", "margin"])
@pytest.mark.parametrize("tau", [1e-6, 0.3, 1.0, 50.0, 1e6])
def test_scalar_steps_equal_the_array_versions(loss, mode, tau):
    n = 400
    y = np.where(RNG.random(n) < 0.5, 1.0, -1.0) if loss.task == "classification" else RNG.normal(size=n)
    u = RNG.normal(size=n) * 10.0 ** RNG.integers(-3, 4, size=n)
    u[:40], u[40:60] = y[:40], 1e8 * RNG.normal(size=20)  # kinks and extremes
    alpha = np.asarray(loss.project(RNG.normal(size=n), y)) if loss.name != "logistic" else -y * RNG.random(n)
    step = Step(loss, mode, tau=tau)
    expected = step(alpha, u, y)
    found = np.array([kernels.dual_step(*codes(step, a, b, c)) for a, b, c in zip(alpha, u, y, strict=True)])
    # a + tau u - tau y, which the arrays compute, is rounded relative to tau
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15 * (100 + tau))
    if mode in ("explicit", "implicit", "derivative"):
        low, high = loss.domain(y)
        assert np.all((low <= found) & (found <= high))


def codes(step, a, u, y):
    mode, tau, code, mu, low, high, _, _ = step.codes()
    return mode, a, u, y, tau, code, mu, low, high


def test_the_numbers_of_the_modes_agree():
    names = {name: getattr(kernels, name.upper()) for name in MODES}
    assert names == MODES


@settings(max_examples=60, deadline=None)
@given(a=st.floats(0, 1), u=st.floats(-1e6, 1e6), log_tau=st.floats(-8, 8), y=st.sampled_from([-1.0, 1.0]))
def test_logistic_proximal_map_in_high_precision(a, u, log_tau, y):
    """The result is p = -y a in [0, 1] with tau log((1-p)/p) = p + y z, checked where that is well conditioned."""
    tau = 10.0**log_tau
    found = kernels.dual_step(*codes(Step(Logistic(), "implicit", tau=tau), -y * a, u, y))
    p = -y * found
    assert 0.0 <= p <= 1.0
    with mpmath.workdps(50):
        z = y * (mpmath.mpf(-y * a) + mpmath.mpf(tau) * mpmath.mpf(u))

        def residual(t):
            return mpmath.mpf(tau) * t - 1 / (1 + mpmath.exp(t)) - z

        left, right = z / tau, (z + 1) / tau
        for _ in range(200):
            middle = (left + right) / 2
            left, right = (middle, right) if residual(middle) < 0 else (left, middle)
        exact = float(1 / (1 + mpmath.exp(left)))
    assert p == pytest.approx(exact, rel=1e-9, abs=1e-13)


def test_derivative_at_a_kink_is_the_subgradient_nearest_zero():
    step = partial(kernels.dual_step, kernels.DERIVATIVE)
    assert step(0.0, 1.0, 1.0, 0.0, 0, 0.0, -1.0, 0.0) == 0.0
    assert step(0.0, 0.5, 1.0, 0.0, 0, 0.0, -1.0, 0.0) == -1.0
    assert step(0.0, -0.5, -1.0, 0.0, 0, 0.0, -1.0, 0.0) == 1.0
    assert step(0.0, 3.0, 3.0, 0.0, 0, 0.0, 2.0, 5.0) == 2.0
    assert step(0.0, -0.5, -1.0, 0.0, 2, 0.0, -0.9, 0.1) == 0.1


# Compressed rows


def some_csr(index=np.int32, dtype=np.float64, n=57, d=23):
    X = sp.random_array((n, d), density=0.3, rng=np.random.default_rng(1), format="csr", dtype=np.float64)
    X = sp.csr_array(X.astype(dtype))
    return X, (frozen(X.data, dtype), frozen(X.indices, index), frozen(X.indptr, index))


@pytest.mark.parametrize(("index", "dtype"), [(np.int32, np.float64), (np.int64, np.float64), (np.int32, np.float32)])
@pytest.mark.parametrize("rows", [ALL, frozen([5, 0, 56, 31, 31, 7, 12, 13, 14, 15, 16], np.int64)])
def test_csr_products(index, dtype, rows):
    X, arrays = some_csr(index, dtype)
    A = X.toarray().astype(np.float64)
    some = A[rows] if rows.size else A
    w, c = frozen(RNG.normal(size=23)), frozen(RNG.normal(size=len(some)))
    out, g = np.full(len(some), 7.0), np.ones(23)
    stop = len(some) - 2
    kernels.csr_dot(*arrays, rows, 3, stop, w, out)
    kernels.csr_add(*arrays, rows, 3, stop, c, g)
    np.testing.assert_allclose(out[3:stop], some[3:stop] @ w, rtol=1e-12, atol=1e-13)
    assert np.all(out[:3] == 7.0)
    assert np.all(out[stop:] == 7.0)
    np.testing.assert_allclose(g, 1.0 + some[3:stop].T @ c[3:stop], rtol=1e-12)


def test_four_sums_at_once_equal_one():
    data, w = RNG.normal(size=40), RNG.normal(size=40)
    indices = RNG.permutation(40).astype(np.int32)
    for begin in range(4):
        for end in range(begin, 14):
            expected = data[begin:end] @ w[indices[begin:end]]
            for dot in (kernels.row_dot, kernels.row_dot_at_once):
                assert dot(data, indices, np.uint64(begin), np.uint64(end), w) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("paired", [False, True])
def test_csr_step_over_separate_and_paired_vectors(paired):
    X, arrays = some_csr()
    A = X.toarray()
    y, s, alpha = frozen(np.sign(RNG.normal(size=57))), frozen(RNG.random(57)), -0.5 * np.ones(57)
    pair = np.zeros((23, 2))
    pair[:, 0] = RNG.normal(size=23)
    w, g = (frozen_view(pair[:, 0]), pair[:, 1]) if paired else (frozen(pair[:, 0]), np.zeros(23))
    old, u = alpha.copy(), np.zeros(57)
    codes = Codes(1, 0.2, 0, 0.25, -1.0, 0.0, store=True, fresh=False)
    total = kernels.csr_step(arrays, ALL, 0, 57, w, 0.1, (alpha, y, s, u), codes, g)
    margin = A @ w + 0.1
    low, high = np.where(y > 0, -1.0, 0.0), np.where(y > 0, 0.0, 1.0)
    new = np.clip(old + 0.2 * (margin - y - 0.25 * old), low, high)
    np.testing.assert_allclose(u, margin, rtol=1e-12)
    np.testing.assert_allclose(alpha, new, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(g, A.T @ (s * (new - old)), rtol=1e-11, atol=1e-12)
    assert total == pytest.approx((s * (new - old)).sum())


@pytest.mark.parametrize("n_parts", [1, 2, 3, 8])
def test_bounds_balance_the_entries(n_parts):
    lengths = RNG.integers(0, 30, size=500)
    indptr = frozen(np.concatenate([[0], np.cumsum(lengths)]), np.int32)
    rows = frozen(RNG.permutation(500)[:300], np.int64)
    bounds, entries = kernels.csr_bounds(indptr, rows, n_parts)
    assert entries == lengths[rows].sum()
    assert bounds[0] == 0
    assert bounds[-1] == 300
    assert np.all(np.diff(bounds) >= 0)
    shares = [lengths[rows[a:b]].sum() for a, b in pairwise(bounds)]
    lead = min(kernels.HEAD_START, entries // 4) if n_parts > 1 else 0
    for share, expected in zip(shares, [lead, *[0] * (n_parts - 1)], strict=True):
        assert abs(share - expected - (entries - lead) / n_parts) <= 60
    assert kernels.csr_bounds(indptr, frozen([0, 500], np.int64), n_parts)[1] == -1


def test_inspection():
    _, (data, indices, indptr) = some_csr()

    def inspect(data=data, indices=indices, indptr=indptr, d=23):
        return kernels.csr_inspect(frozen(data), frozen(indices, np.int32), frozen(indptr, np.int32), d)

    def duplicated(indices, indptr, d):
        return kernels.csr_has_duplicates(frozen(indices, np.int32), frozen(indptr, np.int32), d)

    assert inspect() == (True, True, True, True)
    assert inspect(data=-data) == (True, True, True, False)
    assert inspect(d=22)[0] is False
    assert inspect(data=data[:-1])[0] is False
    assert inspect(indptr=indptr[::-1])[0] is False
    for value in (np.nan, np.inf):
        bad = data.copy()
        bad[3] = value
        assert inspect(data=bad)[1] is False
    assert inspect(indices=22 - indices)[2] is False
    assert not duplicated(22 - indices, indptr, 23)
    assert duplicated([2, 1, 2], [0, 3], 3)


def test_columns_are_counted():
    X, arrays = some_csr()
    squares, counts = np.zeros(23), np.zeros(23)
    kernels.csr_column_squares(arrays[0], arrays[1], X.nnz, squares, counts)
    np.testing.assert_array_equal(counts, (X.toarray() != 0).sum(0))
    np.testing.assert_allclose(squares, np.square(X.toarray()).sum(0), rtol=1e-14)


# Dense rows


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [ALL, frozen([9, 2, 17, 3, 3], np.int64)])
@pytest.mark.parametrize("support", [ALL, frozen([0, 4, 11], np.int64)])
def test_dense_products_in_both_orders(dtype, rows, support):
    A = frozen(RNG.normal(size=(19, 12)), dtype)
    some = (A[rows] if rows.size else A).astype(np.float64)
    w, c = RNG.normal(size=12), frozen(RNG.normal(size=len(some)))
    if support.size:
        w[np.setdiff1d(np.arange(12), support)] = 0.0
    w = frozen(w)
    for dot, add, view in [
        (kernels.dense_dot, kernels.dense_add, A),
        (kernels.flat_dot, kernels.flat_add, frozen_view(np.asfortranarray(A).T)),
    ]:
        out, g = np.full(len(some), 7.0), np.ones(12)
        dot(view, rows, 1, len(some) - 1, w, support, out)
        add(view, rows, 1, len(some) - 1, c, g)
        np.testing.assert_allclose(out[1:-1], some[1:-1] @ w, rtol=1e-12, atol=1e-13)
        assert out[0] == out[-1] == 7.0
        np.testing.assert_allclose(g, 1.0 + some[1:-1].T @ c[1:-1], rtol=1e-12, atol=1e-13)


# Selection


@pytest.mark.parametrize("n", [1, 2, 5, 1000])
@pytest.mark.parametrize("bits", [1, 8, 30, 63])
def test_kth_largest(n, bits):
    keys = (
        RNG.integers(0, 2**bits, size=n, dtype=np.uint64) if bits < 63 else RNG.integers(0, 2**63, n, dtype=np.uint64)
    )
    ordered = np.sort(keys)[::-1]
    for k in {1, (n + 1) // 2, n}:
        key, ties = kernels.kth_largest(keys.copy(), n, k, np.empty(n + 1, dtype=np.uint64))
        assert key == ordered[k - 1]
        assert ties == k - np.count_nonzero(keys > key)


# ---------------------------------------------------------------------------------------------------------------------
# Sums of losses over many samples


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_the_logistic_loss_in_high_precision(y):
    """One sample at a time: value, slope, its size and the curvature, far out on either side and around zero."""
    margins = np.concatenate([np.linspace(-3.0, 3.0, 61), [-700.0, -40.0, -1e-9, 1e-9, 40.0, 300.0, 700.0]])
    for u in margins:
        value, slope, size, curvature = logistic_sums(np.array([u - 0.25]), 0.25, np.array([y]), np.ones(1))
        with mpmath.workdps(60):
            m = mpmath.mpf(y) * (mpmath.mpf(u - 0.25) + mpmath.mpf("0.25"))
            e = mpmath.exp(-m)
            p = e / (1 + e)
            exact = [mpmath.log1p(e), -y * p, p, p / (1 + e)]
            for found, wanted in zip((value, slope, size, curvature), exact, strict=True):
                assert abs(found / wanted - 1) < 2e-15
        for kernel, wanted in ((logistic_slopes, slope), (logistic_curvatures, curvature)):
            out = np.empty(1)
            kernel(np.array([(u - 0.25) + 0.25]), np.array([y]), out)
            assert out[0] == pytest.approx(wanted, rel=1e-14, abs=1e-305)


def test_the_logistic_loss_beyond_all_numbers():
    """Margins whose exponential underflows, infinite ones and those that are no number."""
    y, s = np.array([1.0]), np.ones(1)
    assert logistic_sums(np.array([1e9]), 0.0, y, s)[0] < 1e-300
    assert logistic_sums(np.array([-1e9]), 0.0, y, s) == pytest.approx((1e9, -1.0, 1.0, 0.0), abs=1e-300)
    assert np.isnan(logistic_sums(np.array([np.nan]), 0.0, y, s)[0])


@pytest.mark.parametrize(
    "loss", [Logistic(), Hinge(), SquaredHinge(), Central(Hinge(), 1e-3), Central(SquaredHinge(), 0.1)]
)
def test_many_samples_have_the_sums_of_few(loss):
    """What is compiled for many samples is what numpy's formulas say, whatever the number of threads."""
    rng = np.random.default_rng(0)
    n = 3 * (1 << 16) + 5
    y, u, s = rng.choice([-1.0, 1.0], n), 3.0 * rng.standard_normal(n), rng.random(n)
    samples = MemorySamples(DenseDesign(np.ones((n, 1))), y, s / s.sum())
    assert is_compiled(loss, n)
    assert not is_compiled(loss, 10)
    assert samples.value(loss, u) == pytest.approx(float(samples.s @ loss.value(u, y)), rel=1e-13)
    slope, size, curvature = samples.slope_at(loss, u, 0.5)
    assert slope == pytest.approx(float(samples.s @ loss.derivative(u + 0.5, y)), rel=1e-11)
    assert size == pytest.approx(float(samples.s @ np.abs(loss.derivative(u + 0.5, y))), rel=1e-13)
    assert curvature == pytest.approx(float(samples.s @ loss.second_derivative(u + 0.5, y)), rel=1e-13)
    np.testing.assert_allclose(samples.slopes(loss, u), loss.derivative(u, y), rtol=1e-14)
    np.testing.assert_allclose(samples.curvatures(loss, u), loss.second_derivative(u, y), rtol=1e-14)
    assert sums(loss, u, 0.5, y, samples.s, 1) == sums(loss, u, 0.5, y, samples.s, 3)
    b = samples.best_intercept(loss, u)
    # That of a loss of straight pieces jumps at a sample's kink.
    assert abs(float(samples.s @ loss.derivative(u + b, y))) < (samples.s.max() if loss.mu == 0 else 1e-15)


@given(log_tau=st.floats(-12, 1), d=st.floats(-1e3, 1e3), turned=st.booleans())
def test_slopes_between_two_barriers_in_high_precision(log_tau, d, turned):
    """The formula for a straight loss solves its equation, and stays between the ends."""
    low, high, tau = (0.0, 1.0, 10.0**log_tau) if turned else (-1.0, 0.0, 10.0**log_tau)
    a = central_straight(d, low, high, tau)
    assert low < a < high
    with mpmath.workdps(60):
        half, t = mpmath.mpf("0.5"), mpmath.mpf(tau)
        exact = (low + high) * half + d * half**2 / (t + mpmath.sqrt(t**2 + (d * half) ** 2))
        assert abs(a - exact) <= 3e-16
        if abs(exact) < half:  # towards the end that is zero
            assert abs(a / exact - 1) <= 1e-14 or abs(exact) < 1e-300


def test_slopes_at_the_ends():
    """Where the distance from an end is lost to rounding the slope is the number next to the end."""
    assert central_straight(1e300, -1.0, 0.0, 1e-9) == np.nextafter(0.0, -1.0)
    assert central_straight(-1e300, -1.0, 0.0, 1e-9) == np.nextafter(-1.0, 0.0)

"""Every kind of design against the dense array that it stands for."""

import math
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from cases import DESIGNS, LOSSES
from diht.design import AffineView, DualState, Step, as_design, effective_n_threads, spectral_bound
from diht.design import base as base_module
from diht.design.dense import DenseDesign
from diht.design.gram import gram
from diht.losses import Huber, SmoothedHinge, Squared
from diht.numerics import threads
from diht.samples import MemorySamples

N, D = 41, 17
MAKERS = [pytest.param(make, id=name) for name, make in DESIGNS]
MODES = ["explicit", "implicit", "derivative", "identity", "margin"]


def matrix(seed=0, n=N, d=D):
    """A matrix with many zeros, some large entries and a dense column."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.4)
    A[:, d // 2] = rng.normal(size=n) + 3.0
    return A


@pytest.fixture(params=["inline", "threads"])
def cutting(request, monkeypatch):
    """Small work runs inline; here it is also cut among threads."""
    if request.param == "threads":
        for module in ("dense", "sparse"):
            monkeypatch.setattr(f"diht.design.{module}.ENTRIES_PER_THREAD", 1)
        monkeypatch.setattr("diht.design.sparse.THREAD_ENTRIES_PER_FEATURE", 0)
    monkeypatch.setattr("diht.design.sparse.PAIRED_ENTRIES", math.inf)


def close(a, b, scale=1.0):
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_sums_equal_those_of_numpy(dtype, cutting, monkeypatch):
    X, s = matrix(n=230).astype(dtype), np.random.default_rng(1).dirichlet(np.ones(230))

    def sums():
        design = as_design(X, n_threads=3)
        view = AffineView(design, X.mean(axis=0), 1.0 + X.std(axis=0))
        return *design.moments(s), design.spread(s, np.zeros(D)), design.row_norms_sq(), view.row_norms_sq()

    plain = sums()
    monkeypatch.setattr("diht.design.dense.LONG", 0)
    for own, expected in zip(sums(), plain, strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_dense_copy_keeps_its_threads(dtype, cutting):
    X = matrix().astype(dtype)
    formed = as_design(X, n_threads=3).formed()
    assert formed.n_threads == 3
    np.testing.assert_array_equal(formed.toarray(), X.astype(np.float64))


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_precise_predictions_of_sparse_rows(form, cutting):
    rng = np.random.default_rng(3)
    A = matrix(n=60, d=300) * (rng.random((60, 1)) < rng.random(300))  # rows of many lengths
    A[7] = 0.0
    coef, y = rng.normal(size=300) * 10.0 ** rng.integers(-9, 9, 300), rng.normal(size=60)
    found = as_design(sp.csr_array(A).asformat(form), n_threads=3).predictions(coef, 2.0, less=(y,))
    for row, t, u, e in zip(A, y, *found, strict=True):
        exactly = 2 - Fraction(t) + sum(Fraction(a) * Fraction(c) for a, c in zip(row, coef, strict=True))
        assert abs(Fraction(u) - exactly) <= Fraction(e) <= Fraction(1, 10**14) * (1 + abs(exactly))
    dense = as_design(A).predictions(coef, 2.0, less=(y,))
    np.testing.assert_array_equal(found[0], dense[0])
    np.testing.assert_allclose(found[1], dense[1], rtol=0.5)  # no bound on zeros that are not stored


# Products


@pytest.mark.parametrize("make", MAKERS)
def test_products_equal_those_of_the_dense_twin(make, cutting):
    design, twin = make(matrix())
    rng = np.random.default_rng(1)
    for rows in (None, [3], [7, 2, 40, 0], list(range(N))[::-1], []):
        index = None if rows is None else np.array(rows, dtype=np.int64)
        some = twin if rows is None else twin[index]
        w, c = rng.normal(size=D), rng.normal(size=len(some))
        close(design.matvec(w, rows=index), some @ w)
        close(design.rmatvec(c, rows=index), some.T @ c)
        for support in ([4], [0, 5, 16], list(range(D))):
            z = np.zeros(D)
            z[support] = rng.normal(size=len(support))
            close(design.matvec(z, support=np.array(support), rows=index), some @ z)


@pytest.mark.parametrize("make", MAKERS)
def test_both_products_in_one_pass(make, cutting):
    design, twin = make(matrix())
    rng = np.random.default_rng(2)
    w, c = rng.normal(size=D), rng.normal(size=N)
    before = design.passes
    u, g = design.matvec_rmatvec(w, c)
    assert design.passes - before == 1.0
    close(u, twin @ w)
    close(g, twin.T @ c)


@pytest.mark.parametrize("make", MAKERS)
def test_norms_and_moments(make):
    design, twin = make(matrix())
    s = np.random.default_rng(3).random(N)
    s /= s.sum()
    mean, variance = design.moments(s)
    close(mean, s @ twin)
    close(variance, s @ (twin - s @ twin) ** 2)
    close(design.row_norms_sq(), (twin**2).sum(1))
    close(design.column_norms(), np.sqrt((twin**2).sum(0)))
    assert design.shape == twin.shape
    assert design.is_nonnegative() is False
    assert design.nbytes > 0


@pytest.mark.parametrize("make", MAKERS)
def test_restriction_to_columns(make):
    design, twin = make(matrix())
    support = np.array([1, 4, 8, 16])
    some = design.columns(support)
    assert some.shape == (N, 4)
    assert some.dtype == design.dtype
    close(some.toarray(), twin[:, support])
    close(some.matvec(np.arange(4.0)), twin[:, support] @ np.arange(4.0))
    close(some.rmatvec(np.arange(float(N))), twin[:, support].T @ np.arange(float(N)))
    close(some.row_norms_sq(), (twin[:, support] ** 2).sum(1))


@pytest.mark.parametrize("make", MAKERS)
def test_toarray(make):
    design, twin = make(matrix())
    close(design.toarray(), twin)
    close(design.toarray(np.array([5, 3])), twin[[5, 3]])


@pytest.mark.parametrize("make", MAKERS)
def test_a_pickled_design_gives_the_same_products(make):
    design, _ = make(matrix())
    again = pickle.loads(pickle.dumps(design))
    w = np.arange(float(D))
    np.testing.assert_array_equal(again.matvec(w), design.matvec(w))


# The fused step


@dataclass(frozen=True)
class OwnLoss(SmoothedHinge):
    """A loss without a compiled formula."""

    def kernel(self):
        return None


def twin_block_step(twin, step, w, offset, dual, y, s, rows=None):
    alpha, g, u = dual.alpha, dual.g, dual.u
    rows = np.arange(len(twin)) if rows is None else rows
    margin = twin[rows] @ w + offset
    new = step(alpha[rows], margin, y[rows])
    c = s[rows] * (new if step.fresh else new - alpha[rows])
    g[:] = twin[rows].T @ c + (0.0 if step.fresh else g)
    if step.store:
        alpha[rows] = new
    u[rows] = margin
    return c.sum()


def step_problem(loss, seed=4):
    rng = np.random.default_rng(seed)
    y = np.sign(rng.normal(size=N)) if loss.task == "classification" else rng.normal(size=N)
    alpha = np.asarray(loss.project(rng.normal(size=N), y))
    if loss.name == "logistic":
        alpha = -y * rng.random(N)
    return rng.normal(size=D), alpha, y, rng.random(N) / N, rng.normal(size=D)


# Each kind of design with some of the losses, each loss with kinds of every storage.
STEPS = [
    pytest.param(make, loss, id=f"{type(loss).__name__}-{name}")
    for i, (name, make) in enumerate(DESIGNS)
    for j, loss in enumerate([*LOSSES, OwnLoss()])
    if (i + j) % 3 == 0
]


@pytest.mark.parametrize(("make", "loss"), STEPS)
def test_block_step_equals_its_twin(make, loss, cutting):
    design, twin = make(matrix())
    some = np.array([30, 1, 22, 7, 12])
    for mode in MODES:
        for rows, fresh, store in [(None, False, True), (None, True, True), (None, True, False), (some, False, True)]:
            step = Step(loss, mode, tau=0.7, store=store, fresh=fresh)
            w, alpha, y, s, g = step_problem(loss)
            alpha2, g2 = alpha.copy(), g.copy()
            u, u2 = np.full(N, 9.0), np.full(N, 9.0)
            before = design.passes
            total = design.block_step(step, w, 0.3, DualState(alpha, g, u), y, s, rows)
            assert rows is not None or design.passes - before == pytest.approx(1.0)
            total2 = twin_block_step(twin, step, w, 0.3, DualState(alpha2, g2, u2), y, s, rows)
            close(alpha, alpha2, 100)
            close(g, g2, 100)
            close(u, u2)
            assert total == pytest.approx(total2, rel=1e-10, abs=1e-12)


def test_block_step_without_margins_and_in_several_chunks(monkeypatch):
    A = matrix(n=1000)
    rng = np.random.default_rng(0)
    y, s = np.sign(rng.normal(size=1000)), np.full(1000, 1e-3)
    for X in (sp.csr_array(A), np.asfortranarray(A)):
        design = as_design(X)
        monkeypatch.setattr(type(design), "_chunk_rows", lambda self: 64)
        for loss in (SmoothedHinge(), OwnLoss()):
            alpha, g, w = np.zeros(1000), np.zeros(D), rng.normal(size=D)
            alpha2, g2 = alpha.copy(), g.copy()
            step = Step(loss, "implicit", tau=0.5)
            design.block_step(step, w, 0.0, DualState(alpha, g), y, s)
            twin_block_step(A, step, w, 0.0, DualState(alpha2, g2, np.empty(1000)), y, s)
            close(alpha, alpha2)
            close(g, g2)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_block_step_with_vectors_side_by_side(n_threads, monkeypatch):
    monkeypatch.setattr("diht.design.sparse.PAIRED_ENTRIES", 0)
    monkeypatch.setattr("diht.design.sparse.ENTRIES_PER_THREAD", 1)
    A = matrix(n=300)
    rng = np.random.default_rng(0)
    design = as_design(sp.csr_array(A), n_threads)
    y, s, w = np.sign(rng.normal(size=300)), rng.random(300), rng.normal(size=D)
    for rows in (None, rng.permutation(300)[:200]):
        step = Step(SmoothedHinge(), "explicit", tau=0.5)
        alpha, g, u = -0.3 * y, rng.normal(size=D), np.zeros(300)
        alpha2, g2, u2 = alpha.copy(), g.copy(), u.copy()
        design.block_step(step, w, 0.2, DualState(alpha, g, u), y, s, rows)
        twin_block_step(A, step, w, 0.2, DualState(alpha2, g2, u2), y, s, rows)
        close(alpha, alpha2)
        close(g, g2)
        close(u, u2)


def test_read_only_and_float32_vectors_are_accepted():
    A = matrix()
    design = as_design(sp.csr_array(A))
    w = np.ones(D, dtype=np.float32)
    w.flags.writeable = False
    close(design.matvec(w), A.sum(1))
    close(design.rmatvec(np.ones(N, dtype=int)), A.sum(0))


def test_fresh_needs_all_rows():
    design = as_design(matrix())
    w, alpha, y, s, g = step_problem(Squared())
    with pytest.raises(ValueError, match="fresh"):
        design.block_step(
            Step(Squared(), "identity", fresh=True), w, 0.0, DualState(alpha, g), y, s, rows=np.array([1])
        )


def test_step_checks_its_arguments():
    with pytest.raises(ValueError, match="mode"):
        Step(Squared(), "sideways")
    with pytest.raises(ValueError, match="tau"):
        Step(Squared(), "explicit")


@pytest.mark.parametrize("X", [matrix(), np.asfortranarray(matrix()), sp.csr_array(matrix())])
def test_indices_out_of_range_are_refused(X):
    design = as_design(X)
    for rows in (np.array([0, N]), np.array([-1])):
        with pytest.raises(IndexError):
            design.matvec(np.ones(D), rows=rows)
        with pytest.raises(IndexError):
            design.rmatvec(np.ones(len(rows)), rows=rows)


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (6, 1), (5, 4)])
@pytest.mark.parametrize("value", [0.0, 2.0])
@pytest.mark.parametrize("convert", [np.ascontiguousarray, np.asfortranarray, sp.csr_array, sp.csc_array])
def test_smallest_and_empty_matrices(shape, value, convert):
    A = np.full(shape, value)
    n, d = shape
    for design, twin in [
        (as_design(convert(A)), A),
        (AffineView(as_design(convert(A)), np.ones(d)), A - 1.0),
    ]:
        w, c = np.arange(1.0, d + 1), np.arange(1.0, n + 1)
        close(design.matvec(w, support=np.arange(d)), twin @ w)
        close(design.rmatvec(c), twin.T @ c)
        alpha, g = np.zeros(n), np.zeros(d)
        design.block_step(Step(Squared(), "derivative", fresh=True), w, 0.0, DualState(alpha, g), c, np.ones(n))
        close(alpha, 2 * (twin @ w - c))
        close(g, twin.T @ alpha)
        assert spectral_bound(design, np.ones(n)) >= true_value(twin, np.ones(n))
        assert np.all(design.rmatvec_error(1.0) > 0.0)
        close(design.columns(np.array([0])).toarray(), twin[:, :1])


def test_a_view_of_a_view_is_refused():
    with pytest.raises(TypeError, match="base must be stored"):
        AffineView(AffineView(as_design(matrix()), np.ones(D)), np.ones(D))


@pytest.mark.parametrize("X", [matrix(), np.asfortranarray(matrix()), sp.csr_array(matrix()), sp.csc_array(matrix())])
def test_vectors_of_a_wrong_size_are_refused(X):
    design = as_design(X)
    for product, wrong in [(design.matvec, D + 1), (design.matvec, D - 1), (design.rmatvec, N - 1)]:
        with pytest.raises(ValueError, match=r"shape|size|mismatch"):
            product(np.ones(wrong))
    good = dict(zip(("w", "alpha", "y", "s", "g"), step_problem(Squared()), strict=True))

    def refused(w, alpha, y, s, g):
        design.block_step(Step(Squared(), "explicit", tau=1.0), w, 0.0, DualState(alpha, g), y, s)

    for name in good:
        with pytest.raises(ValueError, match=f"{name} must"):
            refused(**(good | {name: np.ones(3)}))
    with pytest.raises(ValueError, match="g must"):
        refused(**(good | {"g": np.ones(D, dtype=np.float32)}))


def test_a_read_only_dual_vector_is_accepted_where_it_stays():
    A = matrix()
    design = as_design(sp.csr_array(A))
    w, alpha, y, s, g = step_problem(Squared())
    alpha.flags.writeable = False
    design.block_step(Step(Squared(), "identity", store=False, fresh=True), w, 0.0, DualState(alpha, g), y, s)
    close(g, A.T @ (s * alpha))
    with pytest.raises(ValueError, match="alpha must be writable"):
        design.block_step(Step(Squared(), "identity"), w, 0.0, DualState(alpha, g), y, s)


# Counting and conversions


def test_passes_count_fractions_of_the_stored_entries():
    A = matrix()
    share = (A[[1, 2, 3]] != 0).sum() / (A != 0).sum()
    design = as_design(sp.csr_array(A))
    design.matvec(np.ones(D), rows=np.array([1, 2, 3]))
    assert design.passes == pytest.approx(share)
    design.rmatvec(np.ones(N))
    assert design.passes == pytest.approx(1 + share)
    dense = as_design(A)
    dense.matvec(np.ones(D), rows=np.array([1, 2, 3]))
    assert dense.passes == pytest.approx(3 / N)
    flat = as_design(np.asfortranarray(A))
    flat.matvec(np.eye(D)[3], support=np.array([3]))
    assert flat.passes == pytest.approx(1 / D)


def test_columns_are_used_once_they_pay():
    A = matrix()
    design = as_design(sp.csr_array(A))
    z = np.eye(D)[3]
    for _ in range(60):
        close(design.matvec(z, support=np.array([3])), A[:, 3])
    before = design.passes
    close(design.matvec(z, support=np.array([3])), A[:, 3])
    assert design.passes - before == pytest.approx((A[:, 3] != 0).sum() / (A != 0).sum())


def test_products_with_a_csc_matrix_make_no_csr():
    design = as_design(sp.csc_array(matrix()))
    close(design.matvec(np.ones(D)), matrix().sum(1))
    close(design.rmatvec(np.ones(N)), matrix().sum(0))
    assert design._csr is None
    design.matvec(np.ones(D), rows=np.array([0]))
    assert design._csr is not None


@pytest.mark.parametrize(
    "X",
    [
        matrix(),
        np.asfortranarray(matrix()),
        matrix().astype(np.float32),
        sp.csr_array(matrix()),
        sp.csc_array(matrix()),
    ],
)
def test_the_data_are_neither_copied_nor_changed(X):
    design = as_design(X)
    mine = design._X if isinstance(X, np.ndarray) else (design._csr or design._csc).data
    assert np.shares_memory(mine, X if isinstance(X, np.ndarray) else X.data)
    assert not mine.flags.writeable
    assert (X if isinstance(X, np.ndarray) else X.data).flags.writeable
    assert design.nbytes == (
        X.nbytes if isinstance(X, np.ndarray) else X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    )


def test_a_design_is_taken_as_it_is():
    design = as_design(matrix())
    assert as_design(design) is design


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.array([["a", "b"]]), "X must hold real numbers"),
        (np.array([[1.0, None]]), "X must hold real numbers"),
        (np.array([[1.0 + 1j]]), "X must hold real numbers"),
        (sp.csr_array(np.array([[1.0 + 1j]])), "X must hold real numbers"),
        (
            np.array([[1.0, np.nan]]),
            r"^X contains NaN in column 1 \(1 of 1\): impute these values or drop the columns$",
        ),
        (np.full((2, 9), np.nan), r"in columns 0 \(2 of 2\), .*, 4 \(2 of 2\) and 4 more: impute"),
        (np.array([[1.0, -np.inf]]), "X contains infinity"),
        (np.array([[3e38, np.inf]], dtype=np.float32), "X contains infinity"),
        (
            sp.csr_array(np.array([[1.0, np.nan, 0.0, np.nan]])),
            r"X contains NaN in columns 1 \(1 of 1\), 3 \(1 of 1\):",
        ),
        (sp.csc_array(np.array([[1.0, np.inf]])), "X contains infinity"),
        (np.ones(3), "X must have two dimensions"),
        (np.ones((0, 3)), "X must have at least one row"),
        (sp.csr_array((3, 0)), "X must have at least one row"),
        ([[1.0, 2.0], [3.0]], "X is not a matrix"),
    ],
)
def test_bad_input_is_refused_by_name(X, message):
    with pytest.raises(ValueError, match=message):
        as_design(X)


def test_a_broken_sparse_matrix_is_refused():
    X = sp.csr_array(matrix())
    X.indices[0] = D
    with pytest.raises(ValueError, match="not a valid sparse matrix"):
        as_design(X)
    X = sp.csr_array(matrix())
    X.indptr[1] = X.indptr[-1]
    with pytest.raises(ValueError, match="not a valid sparse matrix"):
        as_design(X)


def test_large_finite_float32_values_are_accepted():
    X = np.full((4, 3), 3e38, dtype=np.float32)
    close(as_design(X).matvec(np.ones(3)) / 9e38, np.full(4, np.float64(np.float32(3e38)) / 3e38))


@pytest.mark.parametrize("X", [[[1, 2], [3, 4]], np.array([[True, False]]), np.ones((2, 2), dtype=np.float16)])
def test_other_real_types_become_float64(X):
    assert as_design(X).dtype == np.float64
    close(as_design(X).toarray(), np.asarray(X, dtype=float))


def test_big_endian_data():
    A = matrix()
    close(as_design(A.astype(">f8")).matvec(np.ones(D)), A.sum(1))


@pytest.mark.parametrize("bad", [np.zeros(D), np.full(D, np.nan), np.ones(D + 1)])
def test_a_view_refuses_bad_scales(bad):
    with pytest.raises(ValueError, match="scale must be"):
        AffineView(as_design(matrix()), scale=bad)


# Rounding


def exact_products(rows, w):
    return [
        sum((Fraction(float(x)) * Fraction(float(z)) for x, z in zip(row, w, strict=True)), Fraction(0)) for row in rows
    ]


def exact_view(twin, center, scale):
    return [
        [
            (Fraction(float(x)) - Fraction(float(m))) / Fraction(float(q))
            for x, m, q in zip(row, center, scale, strict=True)
        ]
        for row in twin
    ]


def cancelling(n=30, d=6, seed=0):
    """Entries of very different sizes, and coefficients that nearly cancel the large ones."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-8, 9, size=(n, d))
    A[n // 2 :] = A[: n - n // 2] * (1 + 1e-13 * rng.normal(size=(n - n // 2, d)))
    c = np.concatenate([np.ones(n // 2), -np.ones(n - n // 2)])
    return A, c * (1 + 1e-15 * rng.normal(size=n))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("convert", [np.ascontiguousarray, np.asfortranarray, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_error_bounds_hold_against_rational_arithmetic(convert, dtype, affine, seed, cutting):
    A, c = cancelling(seed=seed)
    A = A.astype(dtype)
    rng = np.random.default_rng(seed)
    center, scale = np.zeros(6), np.ones(6)
    design = as_design(convert(A), n_threads=2)
    if affine:
        center, scale = A.mean(0).astype(float) * 1.1, 10.0 ** rng.integers(-3, 4, size=6)
        design = AffineView(design, center, scale)
    rows = exact_view(A, center, scale)
    exact = exact_products(zip(*rows, strict=True), c)
    bound = design.rmatvec_error(float(np.linalg.norm(c)))
    fresh = np.empty(6)
    step = Step(Squared(), "identity", fresh=True)
    design.block_step(step, np.zeros(6), 0.0, DualState(c, fresh), c, np.ones(30))
    for g in (design.rmatvec(c), fresh, design.matvec_rmatvec(np.zeros(6), c)[1]):
        errors = [abs(Fraction(float(a)) - b) for a, b in zip(g, exact, strict=True)]
        assert all(error <= Fraction(float(b)) for error, b in zip(errors, bound, strict=True))
    # not vacuous: within a few hundred roundings of the largest term
    raw = np.abs(A.astype(float)) + np.abs(center)
    assert np.all(bound <= 200 * 2.0**-53 * np.linalg.norm(c) * np.linalg.norm(raw, axis=0) / scale)

    w = rng.normal(size=6) * 10.0 ** rng.integers(-5, 6, size=6)
    errors = [abs(Fraction(float(a)) - b) for a, b in zip(design.matvec(w), exact_products(rows, w), strict=True)]
    assert max(errors) <= Fraction(design.matvec_error(w))
    raw_w = np.linalg.norm(w / scale)
    assert design.matvec_error(w) <= 100 * 2.0**-53 * raw_w * np.linalg.norm(raw, axis=1).max()


def test_norms_of_centred_sparse_rows_survive_a_large_center():
    A = 1e8 + np.random.default_rng(0).normal(size=(20, 5))
    view = AffineView(as_design(sp.csr_array(A)), A.mean(0))
    np.testing.assert_allclose(view.row_norms_sq(), ((A - A.mean(0)) ** 2).sum(1), rtol=1e-6)
    np.testing.assert_allclose(view.column_norms(), np.sqrt(((A - A.mean(0)) ** 2).sum(0)), rtol=1e-6)
    np.testing.assert_allclose(as_design(sp.csr_array(A)).moments(np.full(20, 0.05))[1], A.var(0), rtol=1e-6)


# Threads


def big(seed=0):
    rng = np.random.default_rng(seed)
    return sp.random_array((6000, 900), density=0.05, rng=rng, format="csr")


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("kind", ["csr", "dense", "float32"])
def test_results_repeat_bit_by_bit(n_threads, kind):
    X = big() if kind == "csr" else big().toarray().astype(np.float64 if kind == "dense" else np.float32)
    rng = np.random.default_rng(0)
    w, y = rng.normal(size=900), np.sign(rng.normal(size=6000))
    s, rows = np.full(6000, 1 / 6000), rng.permutation(6000)[:3000]

    def results():
        design = as_design(X, n_threads=n_threads)
        out = [design.matvec(w), design.rmatvec(y), *design.matvec_rmatvec(w, y)]
        for which in (None, rows):
            alpha, g = -0.5 * y, np.zeros(900)
            step = Step(SmoothedHinge(), "implicit", tau=0.3)
            total = design.block_step(step, w, 0.1, DualState(alpha, g), y, s, which)
            out += [alpha, g, np.array(total)]
        return out

    first, second = results(), results()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    reference = as_design(X, n_threads=1)
    close(first[1], reference.rmatvec(y), 100)


def _product_in_child(queue, X):
    queue.put(as_design(X, n_threads=2).rmatvec(np.ones(6000)))


@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
@pytest.mark.linux
def test_a_forked_child_makes_its_own_threads():
    X = big()
    here = as_design(X, n_threads=2).rmatvec(np.ones(6000))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_product_in_child, args=(queue, X))
    child.start()
    there = queue.get(timeout=60)
    child.join(timeout=60)
    assert child.exitcode == 0
    np.testing.assert_array_equal(here, there)


def test_concurrent_callers_get_the_same_results():
    design = as_design(big(), n_threads=2)
    rng = np.random.default_rng(0)
    vectors = [rng.normal(size=6000) for _ in range(24)]
    expected = [design.rmatvec(c) for c in vectors]
    gate = threading.Barrier(6)

    def caller(first):
        gate.wait()
        return [design.rmatvec(vectors[i]) for i in range(first, 24, 6)]

    with ThreadPoolExecutor(6) as executor:
        for first, results in enumerate(executor.map(caller, range(6))):
            for c, g in zip(range(first, 24, 6), results, strict=True):
                np.testing.assert_array_equal(g, expected[c])


@pytest.mark.parametrize("n_threads", [1, 3])
def test_work_ahead_is_done_once(n_threads):
    done, free = [], threading.Event()

    def work():
        free.wait(10.0)
        done.append(1)
        return 7

    ahead = threads.Ahead(work, n_threads)
    assert not done
    free.set()
    assert ahead.result() == 7
    assert len(done) == 1
    with pytest.raises(ZeroDivisionError):
        threads.Ahead(lambda: 1 / 0, n_threads).result()


def test_an_error_in_a_thread_is_raised(cutting):
    class Broken(OwnLoss):
        def derivative(self, u, y):
            raise FloatingPointError("broken loss")

    w, alpha, y, s, g = step_problem(SmoothedHinge())
    step = Step(Broken(), "derivative")
    with pytest.raises(FloatingPointError, match="broken loss"):
        as_design(sp.csr_array(matrix()), 2).block_step(step, w, 0.0, DualState(alpha, g), y, s)
    # what was left in the accumulators must not leak into the next product
    design = as_design(sp.csr_array(matrix()), 2)
    with pytest.raises(FloatingPointError):
        design.block_step(step, w, 0.0, DualState(alpha, g), y, s)
    close(design.rmatvec(np.ones(N)), matrix().sum(0))


def test_number_of_threads(monkeypatch):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert effective_n_threads(3) == 3
    assert effective_n_threads(-1) == cores
    assert effective_n_threads(-cores - 5) == 1
    with threadpool_limits(cores):
        assert effective_n_threads() == cores
        with threadpool_limits(1):
            assert effective_n_threads() == 1
            assert effective_n_threads(2) == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert effective_n_threads() == 1
        monkeypatch.setenv("OMP_NUM_THREADS", "nonsense")
        assert effective_n_threads() == cores
    for bad in (0, 1.5, "2"):
        with pytest.raises(ValueError, match="n_jobs"):
            effective_n_threads(bad)


def test_importing_designs_imports_neither_numba_nor_scipy():
    code = "import sys, diht.design; print('numba' in sys.modules, 'scipy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "False"]


# Spectral bounds


def true_value(twin, s):
    return float(np.linalg.norm(np.sqrt(s)[:, None] * twin, 2) ** 2)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("sign", ["any", "nonnegative"])
def test_spectral_bound_is_never_below(make, exact, sign, monkeypatch):
    if not exact:
        monkeypatch.setattr("diht.design.spectral.GRAM_SIDE", 0)
    A = matrix() if sign == "any" else np.abs(matrix())
    design, twin = make(A)
    s = np.random.default_rng(0).random(N)
    s /= s.sum()
    rows = np.array([3, 4, 7, 12, 33])
    for which, value in [(None, true_value(twin, s)), (rows, true_value(twin[rows], s[rows]))]:
        bound = spectral_bound(design, s, which)
        assert bound >= value
        if exact:
            assert bound <= value * (1 + 1e-8)
    assert spectral_bound(design, s, np.array([], dtype=int)) == 0.0


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 30),
    d=st.integers(1, 30),
    rank=st.integers(1, 3),
    density=st.sampled_from([0.05, 0.3, 1.0]),
    nonnegative=st.booleans(),
    centred=st.sampled_from(["no", "mean", "elsewhere"]),
    spread=st.integers(0, 6),
)
def test_spectral_bound_over_random_matrices(seed, n, d, rank, density, nonnegative, centred, spread):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d)) + 0.1 * rng.normal(size=(n, d))
    A = A * (rng.random((n, d)) < density) * 10.0 ** rng.integers(-spread, spread + 1, size=d)
    A = np.abs(A) if nonnegative else A
    s = rng.random(n) * (rng.random(n) < 0.8)
    design, twin = as_design(sp.csr_array(A)), A
    if centred != "no":
        m = s @ A / s.sum() if centred == "mean" and s.sum() > 0 else rng.normal(size=d)
        q = rng.random(d) + 0.5
        design, twin = AffineView(design, m, q), (A - m) / q
    value = true_value(twin, s)
    with pytest.MonkeyPatch.context() as patch:
        for side in (600, 0):
            patch.setattr("diht.design.spectral.GRAM_SIDE", side)
            assert spectral_bound(design, s) >= value


def test_spectral_bound_is_tight_and_cheap_for_nonnegative_data(monkeypatch):
    monkeypatch.setattr("diht.design.spectral.GRAM_SIDE", 0)
    rng = np.random.default_rng(0)
    popularity = 1 / np.arange(1, 301) ** 0.9
    counts = rng.poisson(20 * popularity / popularity.sum(), size=(400, 300)).astype(float)
    s = np.full(400, 1 / 400)
    design = as_design(sp.csr_array(counts))
    bound = spectral_bound(design, s)
    assert true_value(counts, s) <= bound <= 1.05 * true_value(counts, s)
    assert design.passes <= 6
    assert spectral_bound(design, s.copy()) == bound
    assert design.passes <= 6
    # the second call was remembered; other weights are another bound
    assert spectral_bound(design, 2 * s) == pytest.approx(2 * bound)


def test_spectral_bound_by_lanczos_for_signed_data(monkeypatch):
    monkeypatch.setattr("diht.design.spectral.GRAM_SIDE", 0)
    A = np.random.default_rng(0).normal(size=(400, 250))
    s = np.full(400, 1 / 400)
    bound = spectral_bound(as_design(A), s)
    assert true_value(A, s) <= bound <= 2 * true_value(A, s)


# Where nothing can be written


def test_kernels_run_where_no_cache_can_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("a file where a directory is wanted")
    code = (
        "import numba.core.caching as caching\n"
        "caching._CacheLocator.ensure_cache_path = lambda self: (_ for _ in ()).throw(PermissionError('read-only'))\n"
        "import numpy as np, scipy.sparse as sp\n"
        "from diht.design import as_design\n"
        "print(as_design(sp.csr_array(np.eye(3))).matvec(np.arange(3.0)).sum())\n"
    )
    environment = {key: value for key, value in os.environ.items() if key != "HOME"}
    environment["NUMBA_CACHE_DIR"] = str(blocked / "cache")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip() == "3.0", done.stderr


def test_gamma():
    assert base_module.gamma(10) == pytest.approx(10 * 2.0**-53)
    assert math.isfinite(base_module.gamma(1e15))
    assert Huber().mu == 1.0


def run_apart(work: Callable[..., None], *args: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=args, daemon=True)
    thread.start()
    return thread


def test_blas_keeps_its_threads_for_others() -> None:
    """One thread while anybody is inside, whoever leaves first; what the user set is there again in the end."""
    libraries = [library for library in threads._libraries() if library.user_api == "blas"]
    before, two = [library.num_threads for library in libraries], [2] * len(libraries)
    inside, leave = threading.Barrier(3), [threading.Event(), threading.Event()]

    def allow(numbers: list[int]) -> None:
        for library, number in zip(libraries, numbers, strict=True):
            library.set_num_threads(number)

    def work(event: threading.Event) -> None:
        with threads.blas_threads(False):
            inside.wait()
            event.wait()

    # threadpoolctl ignores all threads but the one that was the first to set a limit, as long as that is alive.
    run_apart(allow, two).join()
    workers = [run_apart(work, event) for event in leave]
    inside.wait()
    for worker, event in zip(workers, leave, strict=True):
        assert all(library.num_threads == 1 for library in libraries)
        event.set()
        worker.join()
    assert [library.num_threads for library in libraries] == two
    with threads.blas_threads(True):
        assert [library.num_threads for library in libraries] == two
    run_apart(allow, before).join()


def test_long_products_have_the_threads_of_blas_again() -> None:
    """Inside of work with one thread, for as long as anybody has one; short work within them changes nothing."""
    libraries = [library for library in threads._libraries() if library.user_api == "blas"]
    before = [library.num_threads for library in libraries]

    def numbers() -> list[int]:
        return [library.num_threads for library in libraries]

    run_apart(lambda: [library.set_num_threads(2) for library in libraries]).join()
    with threads.blas_threads(False):
        assert set(numbers()) == {1}
        with threads.blas_threads(True):
            assert set(numbers()) == {2}
            with threads.factorisation_threads(10), threads.blas_threads(False):
                assert set(numbers()) == {2}
        with threads.factorisation_threads(5000):
            assert set(numbers()) == {2}
        assert set(numbers()) == {1}
    assert set(numbers()) == {2}
    run_apart(lambda: [library.set_num_threads(n) for library, n in zip(libraries, before, strict=True)]).join()


@pytest.mark.parametrize("n", [10, 12_000, 200_000])
def test_functions_of_samples_are_computed_in_slices(n: int) -> None:
    """Each and map return the same bits whatever the number of threads, and keep the caller's floating point errors."""
    rng = np.random.default_rng(0)
    X, y, u = np.ones((n, 1)), rng.choice([-1.0, 1.0], n), rng.standard_normal(n)
    one, three = (MemorySamples(DenseDesign(X, n_threads), y, np.full(n, 1.0 / n)) for n_threads in (1, 3))
    np.testing.assert_array_equal(three.map(lambda y, s, u: np.exp(y * u), u), np.exp(y * u))
    assert three.map(lambda y, s, u: u > 0.0, u).dtype == bool
    assert three.map(lambda y, s: np.stack([y, s])).shape == (2, n)
    assert three.map(lambda y, s, pair: pair[1], np.stack([u, y])).shape == (n,)
    assert three.total(lambda y, u: u**2, u) == one.total(lambda y, u: u**2, u)
    np.testing.assert_allclose(three.total(lambda y, u: u**2, u), np.mean(u**2))
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        three.total(lambda y, u: np.exp(1e3 + u), u)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1e80])
def test_a_bad_entry_is_found_in_every_part(n_threads: int, value: float) -> None:
    X = np.zeros((300_000, 2), order="F")
    assert DenseDesign(X, n_threads).largest() == 0.0
    X[299_999, 1] = value
    with pytest.raises(ValueError, match=r"contains NaN|contains inf|numbers beyond"):
        as_design(X, n_threads)


@pytest.mark.parametrize("d", [7, 600])
def test_gram_matrices_in_threads(d: int) -> None:
    rng = np.random.default_rng(0)
    n = 20_000 if d < 100 else 2_000
    X, y, s = rng.standard_normal((n, d)), rng.standard_normal(n), rng.random(n) / n
    one, three = (gram(DenseDesign(X, n_threads), y, s, False, np.arange(d)) for n_threads in (1, 3))
    np.testing.assert_allclose(three.matrix, one.matrix, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(three.quadratic, (X.T * s) @ X, rtol=1e-12, atol=1e-14)
    assert np.all(np.abs(three.linear - X.T @ (s * y)) <= three.error * three.size[:-1] * three.size[-1])


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_products_of_large_matrices_in_threads(order: str, n_threads: int) -> None:
    rng = np.random.default_rng(0)
    X = np.asarray(rng.standard_normal((60_000, 200)), order=order)
    w, c = rng.standard_normal(200), rng.standard_normal(60_000)
    design = DenseDesign(X, n_threads)
    u, g = design.matvec_rmatvec(w, c)
    for found, expected in ((u, X @ w), (design.matvec(w), X @ w), (g, X.T @ c), (design.rmatvec(c), X.T @ c)):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert design.passes == 3.0


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("centred", [False, True])
def test_curvatures_in_threads(n_threads: int, centred: bool) -> None:
    rng = np.random.default_rng(0)
    X, c = rng.standard_normal((50_000, 6)), rng.random(50_000)
    A = X - (c @ X / c.sum()) if centred else X
    found = DenseDesign(X, n_threads).curvature(c, c @ X / c.sum() if centred else None)
    H = (A.T * c) @ A
    np.testing.assert_allclose(found.gram_rows(np.array([4, 1])), H[[4, 1]], rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(found.gram_diagonal(), np.diag(H), rtol=1e-12)

"""The compiled kernels: plain functions on raw arrays.

Importing this module imports numba, so it is imported where the first kernel is needed and nowhere else. A kernel works on
the rows ``start <= r < stop`` of a list ``rows`` (empty: all rows in order), so that the caller can cut the work among threads;
it releases the global interpreter lock and never allocates. Indices are cast to ``uint64``, which spares the test for a negative
index at each gather. Sums are accumulated in float64 whatever the type of the data.

The three arrays of a compressed sparse matrix are ``data, indices, indptr``; the same kernels serve CSR, and CSC with the roles
of rows and columns exchanged. A loss enters as the numbers ``(code, mu, low, high)`` of :meth:`diht.losses.Loss.kernel`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, event, types
from numba.extending import intrinsic

from diht.design.base import LARGEST
from diht.numerics.compiling import begins
from diht.numerics.exact import SPLITTER

# Kernels are compiled for the types they meet: any array, and a signed or unsigned number.
Array: TypeAlias = Any
Integer: TypeAlias = Any
F = TypeVar("F", bound=Callable[..., Any])

# What becomes of a dual variable; `Step.mode` spells these out.
IDENTITY, EXPLICIT, IMPLICIT, DERIVATIVE, MARGIN = 0, 1, 2, 3, 4
# Families of losses.
QUADRATIC_CONJUGATE, LOGISTIC, UNTURNED = 0, 1, 2


class _Compiler(event.Listener):
    """Hears of every compilation by numba in this process, but not of machine code that is read from disk."""

    def on_start(self, event: Any) -> None:
        """Pass on that one of our kernels begins to be compiled."""
        function = event.data["dispatcher"].py_func
        if function.__module__.startswith("diht."):
            begins(function.__name__)

    def on_end(self, event: Any) -> None:
        """Nothing to tell."""


event.register("numba:compile", _Compiler())  # type: ignore[no-untyped-call]


def jit(function: F, **options: Any) -> F:
    """Compile a function when it is first called, and keep the machine code on disk where a directory can be written."""
    settings: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True} | options
    try:
        return numba.njit(cache=True, **settings)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # numba found no directory for its cache
        return numba.njit(**settings)(function)  # type: ignore[no-any-return]


def jit_inlined(function: F) -> F:
    """Put the code of a function into those that call it, which are then compiled once, not each with its own copy of it.

    For what is called in one place, or is a few operations long; it can still be called from Python.
    """
    return jit(function, inline="always")


def jit_reassociated(function: F) -> F:
    """Compile a reduction over contiguous memory whose terms may be summed in any order, hence in vector registers."""
    return jit(function, fastmath={"reassoc", "contract", "nsz"})


# ---------------------------------------------------------------------------------------------------------------------
# Scalar steps on one dual variable


@jit_reassociated
def dot(a: Array, b: Array, n: Integer) -> float:
    """Product of the first n entries."""
    total = 0.0
    for i in range(n):
        total += a[i] * b[i]
    return float(total)


@jit
def clip(a: float, low: float, high: float) -> float:
    """Project ``a`` on the interval ``[low, high]``."""
    return min(max(a, low), high)


@jit
def ends_of(y: float, code: int, low: float, high: float) -> tuple[float, float]:
    """Return the ends of F: ``[low, high]`` for ``y > 0``, else ``[-high, -low]``, unless the loss has the same for all targets."""
    if y <= 0.0 and code != UNTURNED:
        return -high, -low
    return low, high


@jit
def quadratic_step(mode: int, a: float, u: float, y: float, tau: float, mu: float, low: float, high: float) -> float:
    """Update a dual variable for a loss whose conjugate is ``y a + (mu/2) a^2`` on ``[low, high]``."""
    if mode == 1:
        return clip(a + tau * (u - y - mu * a), low, high)
    if mode == 2:
        return clip((a + tau * (u - y)) / (1.0 + tau * mu), low, high)
    if mu > 0.0:
        return clip((u - y) / mu, low, high)
    if u == y:  # the kink of a loss that is not smooth: the subgradient nearest 0
        return clip(0.0, low, high)
    return high if u > y else low


@jit
def logistic_probability(t: float) -> float:
    """Return ``1 / (1 + exp(t))`` without overflow."""
    if t > 0.0:
        e = math.exp(-t)
        return e / (1.0 + e)
    return 1.0 / (1.0 + math.exp(t))


@jit
def logistic_step(mode: int, a: float, u: float, y: float, tau: float) -> float:
    """Update a dual variable of the logistic loss: its derivative at ``u``, or the proximal map of its conjugate.

    The proximal map at ``z = a + tau u`` is ``-y p(t)`` where ``p(t) = 1/(1 + exp(t))`` and ``t`` solves
    ``h(t) = tau t - p(t) - y z = 0``. This increases with ``t``, and its root lies in ``[y z, y z + 1] / tau``; a step of Halley's
    method that leaves the bracket is replaced by its middle. The error after a step is below the cube of its length, so that
    ``p`` at the end of a step of 1e-5 follows from its Taylor series, without another exponential.
    """
    sign = 1.0 if y > 0.0 else -1.0
    if mode == 3:
        return -sign * logistic_probability(sign * u)
    z = sign * (a + tau * u)
    left, right = z / tau, (z + 1.0) / tau
    t = clip((z + 0.5) / (tau + 0.25), left, right)
    p = moved = 0.0
    for _ in range(100):
        p = logistic_probability(t)
        slope = p * (1.0 - p)
        h, dh = tau * t - p - z, tau + slope
        if h > 0.0:
            right = t
        else:
            left = t
        new = t - h / (dh + 0.5 * h * slope * (1.0 - 2.0 * p) / dh)
        if not left <= new <= right:
            new = 0.5 * (left + right)
        moved = new - t
        t = new
        if abs(moved) <= 1e-5:
            break
    return -sign * clip(p - p * (1.0 - p) * moved * (1.0 - 0.5 * moved * (1.0 - 2.0 * p)), 0.0, 1.0)


@jit
def dual_step(
    mode: int, a: float, u: float, y: float, tau: float, code: int, mu: float, low: float, high: float
) -> float:
    """Update one dual variable: the scalar formula that ``mode`` and ``code`` select."""
    if mode == 0:
        return a
    if mode == 4:
        return u
    if code == 1:
        return logistic_step(mode, a, u, y, tau)
    low, high = ends_of(y, code, low, high)
    return quadratic_step(mode, a, u, y, tau, mu, low, high)


@jit
def elementwise_step(codes: Any, alpha: Array, u: Array, b: float, y: Array, new: Array) -> None:
    """Update dual variables whose margins are ``u + b``; ``codes`` are those of :class:`diht.design.step.Codes`."""
    mode, tau, code, mu, low, high, _, _ = codes
    for i in range(alpha.size):
        new[i] = dual_step(mode, alpha[i], u[i] + b, y[i], tau, code, mu, low, high)


@jit
def weighted_step(codes: Any, alpha: Array, u: Array, b: float, y: Array, s: Array) -> float:
    """Return the sum of ``s_i new_i`` over what :func:`elementwise_step` computes."""
    mode, tau, code, mu, low, high, _, _ = codes
    total = 0.0
    for i in range(alpha.size):
        total += s[i] * dual_step(mode, alpha[i], u[i] + b, y[i], tau, code, mu, low, high)
    return total


# ---------------------------------------------------------------------------------------------------------------------
# Compressed sparse rows


@jit
def csr_inspect(data: Array, indices: Array, indptr: Array, n_minor: Integer) -> tuple[bool, bool, bool, bool]:
    """Read a compressed matrix once and say what it is.

    Returns ``(valid, usable, ordered, nonnegative)``: every index in range; no NaN and nothing beyond ``LARGEST`` in size; the
    indices of each row strictly increasing (so no duplicates); no entry below 0.
    """
    valid: Any = True
    usable = ordered = nonnegative = valid
    if indptr[0] != 0 or indptr[-1] > min(data.size, indices.size):
        return False, usable, ordered, nonnegative
    for i in range(indptr.size - 1):
        if indptr[i + 1] < indptr[i]:
            return False, usable, ordered, nonnegative
        previous = np.int64(-1)
        for p in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            j = np.int64(indices[p])
            x = data[p]
            valid &= 0 <= j < n_minor
            ordered &= j > previous
            usable &= abs(x) <= LARGEST
            nonnegative &= x >= 0.0
            previous = j
    return valid, usable, ordered, nonnegative


@jit
def csr_has_duplicates(indices: Array, indptr: Array, n_minor: Integer) -> bool:
    """Whether a row holds some column twice, whatever the order of its indices."""
    seen_in = np.full(n_minor, -1, dtype=np.int64)
    for i in range(indptr.size - 1):
        for p in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            j = np.uint64(indices[p])
            if seen_in[j] == i:
                return True
            seen_in[j] = i
    return False


# Entries that a thread reads in the time that another one takes to wake up.
HEAD_START = 100_000


@jit
def csr_bounds(indptr: Array, rows: Array, n_parts: Integer) -> tuple[Array, Integer]:
    """Cut ``rows`` into parts of about equal numbers of entries, the first one larger by a head start.

    The calling thread, which does the first part, is at work while the others still wake up. Returns the ``n_parts + 1`` bounds
    and the number of entries, or -1 where an index is out of range.
    """
    bounds = np.zeros(n_parts + 1, dtype=np.int64)
    n_rows = indptr.size - 1
    total = 0
    for r in range(rows.size):
        i = rows[r]
        if i < 0 or i >= n_rows:
            return bounds, -1
        total += indptr[i + 1] - indptr[i]
    part, seen = 1, 0
    lead = min(HEAD_START, total // 4)
    for r in range(rows.size):
        while part < n_parts and (seen - lead) * n_parts >= part * (total - lead):
            bounds[part] = r
            part += 1
        seen += indptr[rows[r] + 1] - indptr[rows[r]]
    for t in range(part, n_parts + 1):
        bounds[t] = rows.size
    return bounds, total


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of ``array[index]`` ahead of its use."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function: Any = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, kind, "llvm.prefetch.p0i8"
        )
        base = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        line = builder.bitcast(builder.gep(base, [arguments[1]]), byte)
        # to read, into the second-level cache, as data
        builder.call(function, [line, flag(0), flag(2), flag(1)])
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


prefetch: Any = intrinsic(_prefetch)

# Rows that come in an order the processor cannot foresee are asked for so many rows ahead, their pointers twice as many.
AHEAD = np.uint64(4)


@jit_inlined
def prefetch_row(data: Array, indices: Array, indptr: Array, rows: Array, r: Integer, stop: Integer) -> None:
    """Ask for a row of the list that will be read soon; measured to pay even inside a run of rows."""
    if r + AHEAD + AHEAD < stop:
        prefetch(indptr, np.uint64(rows[r + AHEAD + AHEAD]))
    if r + AHEAD < stop:
        i = np.uint64(rows[r + AHEAD])
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + np.uint64(1)])
        for p in range(begin, end, np.uint64(64 // indices.itemsize)):
            prefetch(indices, p)
        for p in range(begin, end, np.uint64(64 // data.itemsize)):
            prefetch(data, p)


@jit_inlined
def row_dot(data: Array, indices: Array, begin: Integer, end: Integer, w: Array) -> float:
    """Return the product of one sparse row with ``w``."""
    total = 0.0
    for p in range(begin, end):
        total += data[p] * w[np.uint64(indices[p])]
    return total


@jit_inlined
def row_dot_at_once(data: Array, indices: Array, begin: Integer, end: Integer, w: Array) -> float:
    """Do as :func:`row_dot` where the result is waited for: four sums side by side, for an addition takes several cycles."""
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    a = b = c = d = 0.0
    p = begin
    while p + three < end:
        a += data[p] * w[np.uint64(indices[p])]
        b += data[p + one] * w[np.uint64(indices[p + one])]
        c += data[p + two] * w[np.uint64(indices[p + two])]
        d += data[p + three] * w[np.uint64(indices[p + three])]
        p += four
    while p < end:
        a += data[p] * w[np.uint64(indices[p])]
        p += one
    return (a + b) + (c + d)


@jit_inlined
def row_add(data: Array, indices: Array, begin: Integer, end: Integer, c: float, g: Array) -> None:
    """Add ``c`` times one sparse row to ``g``."""
    for p in range(begin, end):
        g[np.uint64(indices[p])] += c * data[p]


@jit
def csr_dot(
    data: Array, indices: Array, indptr: Array, rows: Array, start: Integer, stop: Integer, w: Array, out: Array
) -> None:
    """``out[r] = x_rows[r] . w`` for ``start <= r < stop``."""
    for r in range(np.uint64(start), np.uint64(stop)):
        i: Integer = r
        if rows.size > 0:
            i = np.uint64(rows[r])
            prefetch_row(data, indices, indptr, rows, r, np.uint64(stop))
        out[r] = row_dot(data, indices, np.uint64(indptr[i]), np.uint64(indptr[i + np.uint64(1)]), w)


@jit_inlined
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return a + b as rounded, and its error; see :mod:`diht.numerics.exact`."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@jit_inlined
def two_product(a: float, b: float) -> tuple[float, float]:
    """Return a b as rounded, and its error."""
    total, big = a * b, SPLITTER * a
    a_high = big - (big - a)
    a_low, big = a - a_high, SPLITTER * b
    b_high = big - (big - b)
    b_low = b - b_high
    return total, a_low * b_low - (((total - a_high * b_high) - a_low * b_high) - a_high * b_low)


@jit
def csr_precise(
    data: Array,
    indices: Array,
    indptr: Array,
    start: Integer,
    stop: Integer,
    w: Array,
    beside: Array,
    out: Array,
    size: Array,
) -> None:
    """``out[i] = x_i . w + sum_j beside_ij`` in twice the precision for ``start <= i < stop``; ``size`` sums the terms' sizes."""
    for i in range(np.uint64(start), np.uint64(stop)):
        high = low = sizes = 0.0
        for p in range(np.uint64(indptr[i]), np.uint64(indptr[i + np.uint64(1)])):
            term, error = two_product(np.float64(data[p]), w[np.uint64(indices[p])])
            high, rest = two_sum(high, term)
            low += error + rest
            sizes += abs(term)
        for j in range(beside.shape[1]):
            high, rest = two_sum(high, beside[i, j])
            low += rest
            sizes += abs(beside[i, j])
        out[i], size[i] = high + low, sizes


@jit
def csr_add(
    data: Array, indices: Array, indptr: Array, rows: Array, start: Integer, stop: Integer, c: Array, g: Array
) -> None:
    """``g += c[r] x_rows[r]`` for ``start <= r < stop``."""
    for r in range(np.uint64(start), np.uint64(stop)):
        i: Integer = r
        if rows.size > 0:
            i = np.uint64(rows[r])
            prefetch_row(data, indices, indptr, rows, r, np.uint64(stop))
        if c[r] != 0.0:
            row_add(data, indices, np.uint64(indptr[i]), np.uint64(indptr[i + np.uint64(1)]), c[r], g)


@jit
def csr_step(
    X: Any, rows: Array, start: Integer, stop: Integer, w: Array, offset: float, samples: Any, codes: Any, g: Array
) -> float:
    """Do the dual step for some rows, each read once: gather the margin, update the dual variable, scatter into ``g``.

    ``X`` has the arrays of the CSR, ``samples`` alpha, y, s and the margins u to be written (empty: they are not),
    ``codes`` are those of :class:`diht.design.step.Codes`. Returns the sum of what was scattered: ``s_i (new - alpha_i)``,
    or ``s_i new`` if ``fresh``. A row whose coefficient is zero is not scattered. ``w`` and ``g`` may be the two columns of one
    array: an entry of the row then needs one cache line instead of two.
    """
    (data, indices, indptr), (alpha, y, s, u) = X, samples
    mode, tau, code, mu, low, high, store, fresh = codes
    total = 0.0
    for r in range(np.uint64(start), np.uint64(stop)):
        i: Integer = r
        if rows.size > 0:
            i = np.uint64(rows[r])
            prefetch_row(data, indices, indptr, rows, r, np.uint64(stop))
            if r + AHEAD < np.uint64(stop):
                j = np.uint64(rows[r + AHEAD])
                prefetch(alpha, j)
                prefetch(y, j)
                prefetch(s, j)
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + np.uint64(1)])
        margin = row_dot_at_once(data, indices, begin, end, w) + offset
        if u.size > 0:
            u[i] = margin
        old = alpha[i]
        new = dual_step(mode, old, margin, y[i], tau, code, mu, low, high)
        c = s[i] * (new if fresh else new - old)
        if store:
            alpha[i] = new
        if c != 0.0:
            total += c
            row_add(data, indices, begin, end, c, g)
    return total


@jit
def load_pair(w: Array, pair: Array) -> None:
    """Put ``w`` beside an empty accumulator."""
    for j in range(w.size):
        pair[j, 0] = w[j]
        pair[j, 1] = 0.0


@jit
def add_pair(pair: Array, g: Array) -> None:
    """Add the accumulator of a pair to ``g``."""
    for j in range(g.size):
        g[j] += pair[j, 1]


@jit
def csr_support_add(data: Array, indices: Array, indptr: Array, support: Array, w: Array, u: Array) -> None:
    """``u += w_j x_j`` for the columns ``j`` of the support; the arrays are those of the CSC."""
    one = np.uint64(1)
    for t in range(support.size):
        j = np.uint64(support[t])
        if w[j] != 0.0:
            row_add(data, indices, np.uint64(indptr[j]), np.uint64(indptr[j + one]), w[j], u)


@jit
def csr_row_norms_sq(
    data: Array, indices: Array, indptr: Array, center: Array, weight: Array, total: float, out: Array
) -> None:
    """``out[i] = sum_j weight_j (x_ij - center_j)^2``, given ``total = sum_j weight_j center_j^2``.

    The entries that are not stored contribute what the stored ones leave of ``total``.
    """
    one = np.uint64(1)
    for i in range(np.uint64(0), np.uint64(out.size)):
        stored, center_there = 0.0, 0.0
        for p in range(np.uint64(indptr[i]), np.uint64(indptr[i + one])):
            j = np.uint64(indices[p])
            x = np.float64(data[p]) - center[j]
            stored += weight[j] * x * x
            center_there += weight[j] * center[j] * center[j]
        out[i] = stored + max(total - center_there, 0.0)


@jit
def csr_spread(
    data: Array, indices: Array, indptr: Array, s: Array, center: Array, spread: Array, mass: Array, lost: Array
) -> None:
    """Add ``s_i (x_ij - center_j)^2`` to ``spread`` and ``s_i`` to ``mass``, column by column, over the stored entries.

    What rounding takes off the sums of weights goes into ``lost``: a weight that is nearly all of the sum leaves little else.
    """
    one = np.uint64(1)
    for i in range(np.uint64(0), np.uint64(s.size)):
        for p in range(np.uint64(indptr[i]), np.uint64(indptr[i + one])):
            j = np.uint64(indices[p])
            x = np.float64(data[p]) - center[j]
            spread[j] += s[i] * x * x
            total = mass[j] + s[i]
            lost[j] += (mass[j] - total) + s[i] if mass[j] >= s[i] else (s[i] - total) + mass[j]
            mass[j] = total


@jit
def csr_column_squares(data: Array, indices: Array, n_entries: Integer, squares: Array, counts: Array) -> None:
    """Add ``x_ij^2`` to ``squares`` and 1 to ``counts``, column by column, over the stored entries."""
    for p in range(np.uint64(0), np.uint64(n_entries)):
        j = np.uint64(indices[p])
        x = np.float64(data[p])
        squares[j] += x * x
        counts[j] += 1.0


@jit
def csr_count_kept(
    indices: Array, indptr: Array, start: Integer, stop: Integer, position: Array, counts: Array
) -> None:
    """``counts[i + 1]`` is the number of entries of row ``i`` whose column has a place in ``position`` (others have -1)."""
    one = np.uint64(1)
    for i in range(np.uint64(start), np.uint64(stop)):
        kept = 0
        for p in range(np.uint64(indptr[i]), np.uint64(indptr[i + one])):
            kept += position[np.uint64(indices[p])] >= 0
        counts[i + one] = kept


@jit
def csr_keep(
    data: Array,
    indices: Array,
    indptr: Array,
    start: Integer,
    stop: Integer,
    position: Array,
    new_data: Array,
    new_indices: Array,
    new_indptr: Array,
) -> None:
    """Copy the entries of some rows whose column has a place in ``position``, to where ``new_indptr`` says.

    Each entry is written, and the next one over it unless it is kept: what the processor cannot foresee costs more than that.
    """
    q, end = np.uint64(new_indptr[start]), np.uint64(new_indptr[stop])
    p = np.uint64(indptr[start])
    while q < end:
        j = position[np.uint64(indices[p])]
        new_data[q] = data[p]
        new_indices[q] = j
        q += np.uint64(j >= 0)
        p += np.uint64(1)


@jit
def csc_count(indices: Array, indptr: Array, columns: Array, counts: Array) -> None:
    """Add the number of entries that some columns have in row ``i`` to ``counts[i + 1]``."""
    one = np.uint64(1)
    for j in columns:
        for p in range(np.uint64(indptr[j]), np.uint64(indptr[np.uint64(j) + one])):
            counts[np.uint64(indices[p]) + one] += 1


@jit
def csc_keep(
    data: Array, indices: Array, indptr: Array, columns: Array, new_data: Array, new_indices: Array, ends: Array
) -> None:
    """Copy the entries of some columns to their rows, each to where ``ends`` says that its row ends so far."""
    one = np.uint64(1)
    for place in range(columns.size):
        j = np.uint64(columns[place])
        for p in range(np.uint64(indptr[j]), np.uint64(indptr[j + one])):
            i = np.uint64(indices[p])
            q = np.uint64(ends[i])
            new_data[q] = data[p]
            new_indices[q] = place
            ends[i] += 1


# ---------------------------------------------------------------------------------------------------------------------
# Dense rows: X is C-contiguous; `flat` kernels take the transpose of a Fortran-ordered X, which is C-contiguous


@jit_reassociated
def dense_row_dot(x: Array, w: Array) -> float:
    """Return the product of one dense row with ``w``."""
    total = 0.0
    for j in range(x.size):
        total += x[j] * w[j]
    return total


@jit
def dense_row_add(x: Array, c: float, g: Array) -> None:
    """Add ``c`` times one dense row to ``g``."""
    for j in range(x.size):
        g[j] += c * x[j]


@jit
def dense_dot(X: Array, rows: Array, start: Integer, stop: Integer, w: Array, support: Array, out: Array) -> None:
    """``out[r] = x_rows[r] . w`` for ``start <= r < stop``, over the columns of the support if it is not empty."""
    for r in range(start, stop):
        x = X[rows[r] if rows.size > 0 else r]
        if support.size > 0:
            total = 0.0
            for t in range(np.uint64(0), np.uint64(support.size)):
                j = np.uint64(support[t])
                total += x[j] * w[j]
            out[r] = total
        else:
            out[r] = dense_row_dot(x, w)


@jit
def dense_add(X: Array, rows: Array, start: Integer, stop: Integer, c: Array, g: Array) -> None:
    """``g += c[r] x_rows[r]`` for ``start <= r < stop``."""
    for r in range(start, stop):
        if c[r] != 0.0:
            dense_row_add(X[rows[r] if rows.size > 0 else r], c[r], g)


@jit_reassociated
def dense_row_norms_sq(X: Array, start: Integer, stop: Integer, center: Array, scale: Array, out: Array) -> None:
    """``out_i = sum_j ((x_ij - center_j) / scale_j)^2`` of some rows."""
    for i in range(start, stop):
        x, total = X[i], 0.0
        for j in range(x.size):
            z = (x[j] - center[j]) / scale[j]
            total += z * z
        out[i] = total


@jit
def dense_deviations(X: Array, start: Integer, stop: Integer, s: Array, center: Array, sums: Array) -> None:
    """Add ``s_i (x_ij - center_j)`` and ``s_i (x_ij - center_j)^2`` of some rows to the rows of sums, a hundred at a time."""
    some = np.empty_like(sums)
    for begin in range(start, stop, 100):
        some[:] = 0.0
        for i in range(begin, min(begin + 100, stop)):
            add_deviations(X[i], s[i], center, some[0], some[1])
        sums += some


@jit
def add_deviations(x: Array, s: float, center: Array, left: Array, spread: Array) -> None:
    """Do so for one row."""
    for j in range(x.size):
        v = x[j] - center[j]
        left[j] += s * v
        spread[j] += s * v * v


@jit
def dense_step(
    X: Array, rows: Array, start: Integer, stop: Integer, w: Array, offset: float, samples: Any, codes: Any, g: Array
) -> float:
    """Do the dual step for some dense rows, each read once; see :func:`csr_step`."""
    alpha, y, s, u = samples
    mode, tau, code, mu, low, high, store, fresh = codes
    total = 0.0
    for r in range(start, stop):
        i = rows[r] if rows.size > 0 else r
        x = X[i]
        margin = dense_row_dot(x, w) + offset
        if u.size > 0:
            u[i] = margin
        old = alpha[i]
        new = dual_step(mode, old, margin, y[i], tau, code, mu, low, high)
        c = s[i] * (new if fresh else new - old)
        if store:
            alpha[i] = new
        if c != 0.0:
            total += c
            dense_row_add(x, c, g)
    return total


@jit
def flat_dot(XT: Array, rows: Array, start: Integer, stop: Integer, w: Array, support: Array, out: Array) -> None:
    """Do as :func:`dense_dot` for a Fortran-ordered matrix: column after column."""
    out[start:stop] = 0.0
    for t in range(support.size if support.size > 0 else XT.shape[0]):
        j = support[t] if support.size > 0 else t
        if w[j] == 0.0:
            continue
        x = XT[j]
        if rows.size > 0:
            for r in range(np.uint64(start), np.uint64(stop)):
                out[r] += w[j] * x[np.uint64(rows[r])]
        else:
            dense_row_add(x[start:stop], w[j], out[start:stop])


@jit
def flat_add(XT: Array, rows: Array, start: Integer, stop: Integer, c: Array, g: Array) -> None:
    """Do as :func:`dense_add` for a Fortran-ordered matrix: column after column."""
    for j in range(XT.shape[0]):
        x = XT[j]
        if rows.size > 0:
            total = 0.0
            for r in range(np.uint64(start), np.uint64(stop)):
                total += c[r] * x[np.uint64(rows[r])]
            g[j] += total
        else:
            g[j] += dense_row_dot(x[start:stop], c[start:stop])


# ---------------------------------------------------------------------------------------------------------------------
# Selection of the k largest magnitudes, on the bit patterns of |v|: for non-negative floats their order is that of the values

MAGNITUDE = np.uint64(0x7FFFFFFFFFFFFFFF)
LONG = 6000  # a vector from which a sample is taken first
BINS = 1024
FEW_KEYS = 32  # fewer are sorted


@jit
def kth_largest(keys: Array, n: Integer, k: Integer, spare: Array) -> tuple[Integer, Integer]:
    """Find the ``k``-th largest of ``keys[:n]`` by histograms, each over the range of the keys that the last one left.

    Both arrays are overwritten; ``spare`` has room for ``n + 1`` keys. Returns the key and how many of its copies are among
    the ``k`` largest.
    """
    counts = np.empty(BINS, dtype=np.int64)
    while n > FEW_KEYS:
        lowest, highest = keys[0], keys[0]
        for p in range(np.uint64(1), np.uint64(n)):
            lowest, highest = min(lowest, keys[p]), max(highest, keys[p])
        if lowest == highest:
            return lowest, k
        shift = np.uint64(0)
        while (highest - lowest) >> shift >= np.uint64(BINS):
            shift += np.uint64(1)
        counts[:] = 0
        for p in range(np.uint64(0), np.uint64(n)):
            counts[(keys[p] - lowest) >> shift] += 1
        bin = np.uint64((highest - lowest) >> shift)
        while counts[bin] < k:
            k -= counts[bin]
            bin -= np.uint64(1)
        m = np.uint64(0)
        for p in range(np.uint64(0), np.uint64(n)):
            spare[m] = keys[p]
            m += np.uint64((keys[p] - lowest) >> shift == bin)
        keys, spare = spare, keys
        n = np.int64(m)
    return kth_of_few(keys, n, k)


@jit
def kth_of_few(keys: Array, n: Integer, k: Integer) -> tuple[Integer, Integer]:
    """Do as :func:`kth_largest` by sorting."""
    for p in range(1, n):
        key = keys[p]
        q = p
        while q > 0 and keys[q - 1] < key:
            keys[q] = keys[q - 1]
            q -= 1
        keys[q] = key
    ties = 1
    while ties < k and keys[k - 1 - ties] == keys[k - 1]:
        ties += 1
    return keys[k - 1], ties


@jit
def indices_above(bits: Array, floor: Integer, out: Array) -> Integer:
    """Write the indices of the keys that are at least ``floor`` to ``out``, ascending, and return their number."""
    m = np.uint64(0)
    for i in range(np.uint64(0), np.uint64(bits.size)):
        out[m] = i
        m += np.uint64((bits[i] & MAGNITUDE) >= floor)
    return np.int64(m)


@jit
def sampled_floor(bits: Array, k: Integer, n_sample: Integer) -> Integer:
    """Guess, from a sample, a key that a few more than ``k`` keys reach; 1 if most of them may be needed."""
    expected = k * n_sample / bits.size
    rank = np.int64(expected + 4.0 * math.sqrt(expected) + 4.0)
    if rank >= n_sample:
        return np.uint64(1)
    keys = np.empty(n_sample, dtype=np.uint64)
    for t in range(n_sample):
        keys[t] = bits[t * bits.size // n_sample] & MAGNITUDE
    floor, _ = kth_largest(keys, n_sample, rank, np.empty(n_sample + 1, dtype=np.uint64))
    return max(floor, np.uint64(1))


@jit
def chosen_indices(bits: Array, candidates: Array, threshold: Integer, ties: Integer, k: Integer) -> Array:
    """Return the ``k`` candidates whose key exceeds the threshold, or equals it while ``ties`` last."""
    out = np.empty(k + 1, dtype=np.int64)
    m = np.uint64(0)
    for p in range(np.uint64(0), np.uint64(candidates.size)):
        key = bits[np.uint64(candidates[p])] & MAGNITUDE
        tied = np.int64(key == threshold and ties > 0)
        ties -= tied
        out[m] = candidates[p]
        m += np.uint64(key > threshold) + np.uint64(tied)
    return out[:k]


@jit
def radix_top_k(bits: Array, k: Integer) -> Array:
    """Return the ascending indices of the ``k`` largest keys, ties broken by the smaller index; ``1 <= k < bits.size``.

    A sample gives a floor that a few more than ``k`` keys reach, one pass collects those, and the exact ``k``-th is found
    among them. Where the sample misled, all keys but zeros are collected.
    """
    floor = np.uint64(1)
    if bits.size > LONG:
        floor = sampled_floor(bits, k, min(4096, bits.size // 32))
    candidates = np.empty(bits.size + 1, dtype=np.int64)
    n = indices_above(bits, floor, candidates)
    if n < k and floor > np.uint64(1):
        n = indices_above(bits, np.uint64(1), candidates)
    if n < k:  # the first zeros make up the number
        return chosen_indices(bits, np.arange(bits.size), np.uint64(0), k - n, k)
    keys = np.empty(n, dtype=np.uint64)
    for p in range(np.uint64(0), np.uint64(n)):
        keys[p] = bits[np.uint64(candidates[p])] & MAGNITUDE
    threshold, ties = kth_largest(keys, n, k, np.empty(n + 1, dtype=np.uint64))
    return chosen_indices(bits, candidates[:n], threshold, ties, k)


# ---------------------------------------------------------------------------------------------------------------------
# Dual coordinate ascent


@jit
def ascent_step(
    i: Integer, u: float, kappa: float, alpha: Array, y: Array, s: Array, norms: Array, lam: float, loss: Array
) -> float:
    """Maximise the dual over the variable of one sample, whose margin is ``u``; returns ``s_i (new - old)``."""
    old = alpha[i]
    curvature = s[i] * (norms[i] / lam + 1.0 / kappa)
    tau = 1.0 / curvature if curvature > 1e-12 else 1e12
    new = dual_step(2, old, u, y[i], tau, int(loss[0]), loss[1], loss[2], loss[3])
    alpha[i] = new
    return float(s[i] * (new - old))


@jit
def csr_ascend(
    data: Array,
    indices: Array,
    indptr: Array,
    order: Array,
    w: Array,
    b: float,
    kappa: float,
    alpha: Array,
    y: Array,
    s: Array,
    norms: Array,
    stretch: Array,
    lam: float,
    loss: Array,
) -> float:
    """Visit the samples in order: maximise the dual over each, and let ``w`` and ``b`` follow; returns ``b``."""
    for i in order:
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        u = row_dot_at_once(data, indices, begin, end, w) + b
        c = ascent_step(i, u, kappa, alpha, y, s, norms, lam, loss)
        if c != 0.0:
            b -= c / kappa
            for p in range(begin, end):
                j = np.uint64(indices[p])
                w[j] -= c / lam * stretch[j] * data[p]
    return b


@jit
def dense_ascend(
    X: Array,
    order: Array,
    w: Array,
    b: float,
    kappa: float,
    alpha: Array,
    y: Array,
    s: Array,
    norms: Array,
    stretch: Array,
    lam: float,
    loss: Array,
) -> float:
    """Visit dense samples in order; see :func:`csr_ascend`."""
    for i in order:
        u = b
        for j in range(w.size):
            u += X[i, j] * w[j]
        c = ascent_step(i, u, kappa, alpha, y, s, norms, lam, loss)
        if c != 0.0:
            b -= c / kappa
            for j in range(w.size):
                w[j] -= c / lam * stretch[j] * X[i, j]
    return b

"""A sparse matrix: CSR, with its CSC made when it pays, or CSC, with its CSR made when rows are needed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diht.design.base import (
    ENTRIES_PER_CHUNK,
    ENTRIES_PER_THREAD,
    NO_INDEX,
    BlockWork,
    Index,
    StoredDesign,
    Visits,
    frozen,
    frozen_vector,
    frozen_view,
)
from diht.design.entries import SparseEntries
from diht.design.step import Codes, kernels
from diht.numerics import exact
from diht.numerics.arrays import Vector
from diht.numerics.threads import run_parts

if TYPE_CHECKING:
    from diht.design.view import AffineView

# Passes over the CSR that one conversion to CSC costs, about; it is made once so many would have been saved.
CONVERSION_PASSES = 25.0
# Entries that stay in the cache between two products.
SMALL = 100_000
# Entries read per feature from which on the fused step keeps w and the accumulator side by side in memory.
PAIRED_ENTRIES = 50
# Entries per feature below which a thread of a scatter would spend its time on adding up its accumulator.
THREAD_ENTRIES_PER_FEATURE = 1.5
# Lists of rows whose cuts are remembered.
MOST_CUTS = 1024


class Compressed(NamedTuple):
    """The arrays of a compressed sparse matrix, read-only; the major axis is that of ``indptr``."""

    data: NDArray[Any]
    indices: NDArray[Any]
    indptr: NDArray[Any]


class RowArrays(NamedTuple):
    """The arrays of a CSR matrix as they are; scipy would copy those that are parts of larger ones."""

    data: NDArray[Any]
    indices: NDArray[Any]
    indptr: NDArray[Any]
    shape: tuple[int, int]
    format: str = "csr"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""
        return self.data.dtype


def compressed(X: Any) -> Compressed:
    """Take the arrays of a scipy CSR or CSC matrix, without a copy."""
    return Compressed(*(frozen(a, a.dtype) for a in (X.data, X.indices, X.indptr)))


class _RowCut(NamedTuple):
    """How a list of rows was cut among the threads, and the fraction of X that they hold."""

    rows: Callable[[], Any]
    scatter: bool
    parts: list[tuple[int, int]]
    fraction: float


class SparseDesign(StoredDesign):
    """A sparse matrix of float32 or float64 with 32 or 64-bit indices; the arrays of a CSR or CSC input are not copied.

    Parameters
    ----------
    X : scipy.sparse CSR or CSC matrix or array, or RowArrays
        Without duplicates; indices need not be sorted.
    n_threads : int
    nonnegative : bool
        Whether no entry is negative.
    brief : bool
        Whether it is soon given up, so that no CSC ever pays.
    """

    def __init__(self, X: Any, n_threads: int = 1, nonnegative: bool = False, brief: bool = False) -> None:
        super().__init__(X.shape, X.dtype, n_threads)
        self._csr: Compressed | None = compressed(X) if X.format == "csr" else None
        self._csc: Compressed | None = compressed(X) if X.format == "csc" else None
        self._stored = int(X.indptr[-1])
        self._nbytes = int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)
        self._nonnegative, self._brief = nonnegative, brief
        self._savings = 0.0
        self._counts: Vector | None = None
        self._cuts: dict[int, list[tuple[int, int]]] = {}
        self._row_cuts: dict[int, _RowCut] = {}
        self._pairs: list[Vector] = []

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays as they were given."""
        return self._nbytes

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_pairs": [], "_row_cuts": {}}

    def is_nonnegative(self) -> bool:
        """Whether no entry is negative."""
        return self._nonnegative

    # Storage

    def _by_rows(self) -> Compressed:
        """Return the CSR, made when a row is first needed."""
        if self._csr is None:
            self._csr = self._convert(self._csc, "csc")
        return self._csr

    def _by_columns(self) -> Compressed:
        """Return the CSC, made when it is first worth it."""
        if self._csc is None:
            self._csc = self._convert(self._csr, "csr")
        return self._csc

    def _convert(self, arrays: Compressed | None, form: str) -> Compressed:
        """Exchange the major axis of compressed arrays."""
        import scipy.sparse as sp

        assert arrays is not None
        if form == "csr":
            return compressed(sp.csr_array(arrays, shape=self.shape, copy=False).tocsc())
        return compressed(sp.csc_array(arrays, shape=self.shape, copy=False).tocsr())

    def _column_counts(self) -> Vector:
        if self._counts is None:
            self._tally()
        assert self._counts is not None
        return self._counts

    def column_norms(self) -> Vector:
        """Euclidean norms of the columns."""
        if self._column_norms is None:
            self._tally()
        assert self._column_norms is not None
        return self._column_norms

    def _tally(self) -> None:
        """Count the stored entries of every column and sum their squares, in one read."""
        n, d = self.shape
        squares, counts = np.zeros(d), np.zeros(d)
        if self._csr is not None:
            kernels.csr_column_squares(self._csr.data, self._csr.indices, self._stored, squares, counts)
        else:
            arrays = self._by_columns()
            counts[:] = np.diff(arrays.indptr)
            kernels.csr_row_norms_sq(*arrays, frozen(np.zeros(n)), frozen(np.ones(n)), 0.0, squares)
        self._counts = counts
        self._column_norms = frozen(np.sqrt(squares, out=squares))
        self._passes += 1.0

    def _max_row_count(self) -> int:
        return int(np.diff(self._by_rows().indptr).max(initial=0))

    # The parts of a product

    def _cut(self, rows: Index, scatter: bool) -> tuple[list[tuple[int, int]], float]:
        if rows.size:
            return self._cut_rows(rows, scatter)
        n_parts = self._n_parts(self._stored, scatter)
        if n_parts not in self._cuts:
            self._cuts[n_parts] = _equal_parts(self._by_rows().indptr, n_parts)
        return self._cuts[n_parts], 1.0

    def _cut_rows(self, rows: Index, scatter: bool) -> tuple[list[tuple[int, int]], float]:
        """Cut a list of rows; the cut of a read-only list is kept as long as the list."""
        owner = rows.base if isinstance(rows.base, np.ndarray) else rows
        known = self._row_cuts.get(id(owner))
        if known is not None and known.rows() is owner and known.scatter == scatter and owner.size == rows.size:
            return known.parts, known.fraction
        indptr = self._by_rows().indptr
        guess = self._n_parts(rows.size * self._stored // self.shape[0], scatter)
        cuts, entries = kernels.csr_bounds(indptr, rows, guess)
        if entries < 0:
            raise IndexError(f"rows must lie in [0, {self.shape[0]})")
        parts, fraction = list(pairwise(cuts.tolist())), entries / max(1, self._stored)
        if owner.base is None and not owner.flags.writeable and owner.size == rows.size:
            if len(self._row_cuts) >= MOST_CUTS:
                self._row_cuts.clear()
            self._row_cuts[id(owner)] = _RowCut(weakref.ref(owner), scatter, parts, fraction)
        return parts, fraction

    def _n_parts(self, entries: int, scatter: bool) -> int:
        """Return the number of threads worth using; each scatter needs d numbers of its own to be added up afterwards."""
        least = (
            max(ENTRIES_PER_THREAD, int(THREAD_ENTRIES_PER_FEATURE * self.shape[1])) if scatter else ENTRIES_PER_THREAD
        )
        return max(1, min(self.n_threads, entries // least))

    def _chunk_rows(self) -> int:
        return max(1, ENTRIES_PER_CHUNK * self.shape[0] // max(1, self._stored))

    def _dot(self, rows: Index, start: int, stop: int, w: Vector, support: Index, out: Vector) -> None:
        kernels.csr_dot(*self._by_rows(), rows, start, stop, w, out)

    def _add(self, rows: Index, start: int, stop: int, c: Vector, g: Vector) -> None:
        kernels.csr_add(*self._by_rows(), rows, start, stop, c, g)

    def _fused(self, work: BlockWork, codes: Codes, start: int, stop: int, g: Vector) -> float:
        X, rows, samples = self._by_rows(), work.rows, work.samples()
        if (stop - start) * self._stored < PAIRED_ENTRIES * self.shape[1] * self.shape[0]:
            return kernels.csr_step(X, rows, start, stop, work.w, work.offset, samples, codes, g)
        pair = self._take_pair()
        kernels.load_pair(work.w, pair)
        left, right = frozen_view(pair[:, 0]), pair[:, 1]
        total = kernels.csr_step(X, rows, start, stop, left, work.offset, samples, codes, right)
        kernels.add_pair(pair, g)
        self._pairs.append(pair)
        return total

    def _take_pair(self) -> Vector:
        try:
            return self._pairs.pop()
        except IndexError:
            return np.empty((self.shape[1], 2))

    # Products through the columns

    def matvec(self, w: Vector, support: Index | None = None, rows: Index | None = None) -> Vector:
        """Compute ``X w``, or ``X[rows] w``; through the columns of a small support if the CSC is there or will pay."""
        if rows is None:
            if support is not None and self._columns_pay(support):
                return self._matvec_columns(w, support)
            if self._csr is None:
                return self._matvec_columns(w, None)
        return super().matvec(w, support, rows)

    def _columns_pay(self, support: Index) -> bool:
        """Whether to go through the columns: their entries are few, and the CSC exists or would have paid for itself by now."""
        if self._brief:
            return False
        fraction = self.fraction(support)
        if fraction > 0.25:
            return False
        if self._csc is None:
            self._savings += 1.0 - fraction
            return self._savings > CONVERSION_PASSES
        return True

    def fraction(self, support: Index) -> float:
        """Fraction of the stored entries that some features hold."""
        return float(self._column_counts()[support].sum()) / max(1, self._stored)

    def _matvec_columns(self, w: Vector, support: Index | None) -> Vector:
        """Compute ``X w`` as the sum of the columns of the support."""
        w = frozen_vector("w", w, self.shape[1])
        if support is None:
            support, fraction = np.flatnonzero(w), 1.0
        else:
            fraction = self.fraction(support)
        self._passes += fraction
        u = np.zeros(self.shape[0])
        kernels.csr_support_add(*self._by_columns(), frozen(support, np.int64), w, u)
        return u

    def rmatvec(self, c: Vector, rows: Index | None = None) -> Vector:
        """Compute ``X' c``, or ``X[rows]' c``."""
        if rows is not None or self._csr is not None:
            return super().rmatvec(c, rows)
        arrays, c, g = self._by_columns(), frozen_vector("c", c, self.shape[0]), np.empty(self.shape[1])
        self._passes += 1.0
        parts = _equal_parts(arrays.indptr, self._n_parts(self._stored, scatter=False))
        run_parts(lambda start, stop: kernels.csr_dot(*arrays, NO_INDEX, start, stop, c, g), parts)
        return g

    def occupied(self) -> Index:
        """Return the columns, ascending, that hold a stored entry."""
        if self._csr is None:
            return np.flatnonzero(np.diff(self._by_columns().indptr))
        held = np.zeros(self.shape[1], dtype=bool)
        held[self._csr.indices] = True
        return np.flatnonzero(held)

    def matvec_rmatvec(self, w: Vector, c: Vector) -> tuple[Vector, Vector]:
        """Compute ``X w`` and ``X' c`` with one read of X."""
        if self._stored > SMALL:
            return super().matvec_rmatvec(w, c)
        self._passes -= 1.0  # the second product finds X in the cache
        return self.matvec(w), self.rmatvec(c)

    def columns(self, support: Index) -> SparseDesign:
        """Return a compact copy restricted to some features; of few of them from the CSC, if it is there or will pay."""
        import scipy.sparse as sp

        support = np.asarray(support, dtype=np.int64)
        arrays = self._kept_columns(support) if self._columns_pay(support) else self._kept_entries(support)
        kept = sp.csr_array(arrays, shape=(self.shape[0], support.size))
        return SparseDesign(kept, self.n_threads, self._nonnegative)

    def column_entries(self, features: Index) -> SparseEntries:
        """Return the stored entries of some columns; from the CSC, if it is there or will pay."""
        if self._csc is None and not self._columns_pay(features):
            return self.columns(features)._entries(np.arange(len(features)))
        self._passes += self.fraction(features)
        return self._entries(features)

    def _entries(self, features: Index) -> SparseEntries:
        arrays = self._by_columns()
        counts = np.diff(arrays.indptr)[features].astype(np.int64)
        first = np.repeat(arrays.indptr[:-1][features] - (np.cumsum(counts) - counts), counts)
        chosen = first + np.arange(len(first))
        return SparseEntries(arrays.data[chosen].astype(np.float64), arrays.indices[chosen], counts)

    def _kept_columns(self, support: Index) -> tuple[Vector, Index, Index]:
        """Return the CSR arrays of some features, read from the CSC."""
        arrays, counts = self._by_columns(), self._column_counts()
        self._passes += float(counts[support].sum()) / max(1, self._stored)
        indptr = np.zeros(self.shape[0] + 1, dtype=arrays.indptr.dtype)
        kernels.csc_count(arrays.indices, arrays.indptr, support, indptr)
        np.cumsum(indptr, out=indptr)
        data = np.empty(indptr[-1], dtype=self.dtype)
        indices = np.empty(indptr[-1], dtype=arrays.indices.dtype)
        kernels.csc_keep(*arrays, support, data, indices, indptr[:-1].copy())
        return data, indices, indptr

    def _kept_entries(self, support: Index) -> tuple[Vector, Index, Index]:
        """Return the CSR arrays of some features, read from all rows."""
        arrays = self._by_rows()
        self._passes += 1.0
        position = np.full(self.shape[1], -1, dtype=np.int32)  # the shorter, the more of it stays in the cache
        position[support] = np.arange(support.size)
        parts, _ = self._cut(NO_INDEX, scatter=False)
        indptr = np.zeros(self.shape[0] + 1, dtype=arrays.indptr.dtype)
        run_parts(
            lambda start, stop: kernels.csr_count_kept(arrays.indices, arrays.indptr, start, stop, position, indptr),
            parts,
        )
        np.cumsum(indptr, out=indptr)
        data = np.empty(indptr[-1], dtype=self.dtype)
        indices = np.empty(indptr[-1], dtype=arrays.indices.dtype)
        run_parts(lambda start, stop: kernels.csr_keep(*arrays, start, stop, position, data, indices, indptr), parts)
        return data, indices, indptr

    def joined(self, others: Sequence[SparseDesign], n_threads: int) -> SparseDesign:
        """Return a copy of these rows and, after them, those of others."""
        import scipy.sparse as sp

        parts = (self, *others)
        rows = [sp.csr_array(part._by_rows(), shape=part.shape, copy=False) for part in parts]
        nonnegative = all(part._nonnegative for part in parts)
        return SparseDesign(sp.csr_array(sp.vstack(rows, format="csr")), n_threads, nonnegative)

    def beside(self, other: SparseDesign) -> SparseDesign:
        """Return a copy of these columns and, after them, those of another matrix."""
        import scipy.sparse as sp

        parts = [sp.csr_array(part._by_rows(), shape=part.shape, copy=False) for part in (self, other)]
        nonnegative = self._nonnegative and other._nonnegative
        return SparseDesign(sp.csr_array(sp.hstack(parts, format="csr")), self.n_threads, nonnegative)

    def visits(self, features: Index | None = None) -> Visits:
        """Return the rows as visits read them."""
        part = self if features is None else self.columns(features)
        return Visits(part, part._by_rows(), part.row_norms_sq())

    def _visits_of(self, view: AffineView, features: Index | None) -> Visits:
        if view.scale is None:
            return self.visits(features)
        part = self if features is None else self.columns(features)
        return part.scaled(1.0 / (view.scale if features is None else view.scale[features])).visits()

    def ascend(self, *arguments: Any) -> float:
        """Visit every sample once."""
        self._passes += 1.0
        return float(kernels.csr_ascend(*self._by_rows(), *arguments))

    def weighted_gram(self, c: Vector) -> Vector:
        """Compute ``X' diag(c) X``, pair by pair of the entries of a row."""
        from diht.design.weighted import csr_gram

        arrays, c, size = self._by_rows(), frozen_vector("c", c, self.shape[0]), (self.shape[1], self.shape[1])
        self._passes += 1.0
        halves = []

        def add(start: int, stop: int) -> None:
            half = np.zeros(size)
            csr_gram(*arrays, start, stop, c, half)
            halves.append((start, half))

        parts, _ = self._cut(NO_INDEX, scatter=False)
        run_parts(add, parts)
        gram = sum(half for _, half in sorted(halves, key=lambda part: part[0]))
        return np.asarray(gram + np.transpose(gram))

    def gram_cost(self) -> float:
        """Return the number of multiplications of :meth:`weighted_gram`; each takes several times as long as a dense one."""
        return 8.0 * float(np.square(np.diff(self._by_rows().indptr).astype(np.float64)).sum())

    def scaled(self, factors: Vector) -> SparseDesign:
        """Return a copy with every column multiplied by its factor."""
        import scipy.sparse as sp

        data, indices, indptr = self._by_rows()
        stretched = (data * factors[indices]).astype(self.dtype, copy=False)
        return SparseDesign(
            sp.csr_array((stretched, indices, indptr), shape=self.shape), self.n_threads, self._nonnegative
        )

    def toarray(self, rows: Index | None = None, copy: bool = True) -> Vector:
        """Return the rows as a dense float64 array, always a new one."""
        import scipy.sparse as sp

        X = sp.csr_array(self._by_rows(), shape=self.shape, copy=False)
        return np.asarray((X if rows is None else X[rows]).toarray(), dtype=np.float64)

    def precise_sums(self, w: Vector, beside: Vector) -> tuple[Vector, Vector]:
        """Return X w plus the sum of each row of `beside`, in twice the precision, and the sums of the terms' sizes."""
        arrays, w, beside = self._by_rows(), frozen_vector("w", w, self.shape[1]), frozen(beside)
        u, size = np.empty(self.shape[0]), np.empty(self.shape[0])
        parts, _ = self._cut(NO_INDEX, scatter=False)
        run_parts(lambda start, stop: kernels.csr_precise(*arrays, start, stop, w, beside, u, size), parts)
        return u, size

    # Norms

    def _affine_row_norms_sq(self, center: Vector | None, scale: Vector | None) -> Vector:
        d = self.shape[1]
        center = frozen(np.zeros(d) if center is None else center)
        weight = frozen(np.ones(d) if scale is None else 1.0 / scale**2)
        out = np.empty(self.shape[0])
        kernels.csr_row_norms_sq(*self._by_rows(), center, weight, float(weight @ center**2), out)
        return out

    def _spread(self, s: Vector, center: Vector | None) -> Vector:
        n, d = self.shape
        spread, mass, lost = np.zeros(d), np.zeros(d), np.zeros(d)
        center = frozen(np.zeros(d) if center is None else center)
        kernels.csr_spread(*self._by_rows(), frozen_vector("s", s, n), center, spread, mass, lost)
        # The entries that are not stored are zero: their share of the weight is what the stored ones leave.
        total, low = exact.total(s)
        rest = np.subtract(total, mass, out=mass)
        rest += low - lost
        np.maximum(rest, 0.0, out=rest)
        rest[self._column_counts() >= n] = 0.0
        rest *= center**2
        spread += rest
        return spread


def _equal_parts(indptr: NDArray[Any], n_parts: int) -> list[tuple[int, int]]:
    """Cut the major axis into parts of about equal numbers of entries."""
    n = indptr.size - 1
    targets = np.arange(1, n_parts) * (int(indptr[-1]) / n_parts)
    bounds = [0, *np.searchsorted(indptr, targets).clip(0, n).tolist(), n]
    return list(pairwise(bounds))

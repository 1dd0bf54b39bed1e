"""A dense matrix, in C or in Fortran order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from diht.design.base import (
    ENTRIES_PER_CHUNK,
    ENTRIES_PER_THREAD,
    MANY_COLUMNS,
    NO_INDEX,
    NO_VECTOR,
    BlockWork,
    Design,
    Index,
    StoredDesign,
    Visits,
    frozen,
    frozen_vector,
)
from diht.design.step import Codes, kernels
from diht.numerics.arrays import Vector
from diht.numerics.threads import blas_threads, run_parts

if TYPE_CHECKING:
    from diht.design.view import AffineView

T = TypeVar("T")

SMALL = 30_000  # entries up to which whole products are as fast as anything else
GATHERED = 1_000_000  # entries up to which a copy of a few columns, multiplied by BLAS, is as fast as a compiled loop over them
WIDE = 20_000  # length of a row (a column, in Fortran order) beyond which too few of them stay in the cache between two products
COPIED = 5_000_000  # entries up to which a centred and scaled copy is worth making for visits of single rows
PRODUCT_PER_THREAD = 1_000_000  # entries below which a second thread costs a product of BLAS more than it saves
HESSIAN_CHUNK = 400_000  # entries of the rows that are weighted, and multiplied, at a time
LONG = 10_000_000  # entries from which on compiled sums pay


class DenseDesign(StoredDesign):
    """A dense matrix of float32 or float64, never copied if it is contiguous.

    Products of float64 matrices go to BLAS, which needs no compiling; both of them together chunk by chunk, so that X is read once.
    Everything else is compiled: float32 entries are converted in registers, and the fused step reads each row once. A
    Fortran-ordered matrix is treated in chunks of rows.

    Parameters
    ----------
    X : (N, d) array of float32 or float64
    n_threads : int
    roundings : int
        How often an entry was rounded before it was stored.
    """

    def __init__(self, X: NDArray[Any], n_threads: int = 1, roundings: int = 0) -> None:
        if not (X.flags.c_contiguous or X.flags.f_contiguous):
            X = np.ascontiguousarray(X)
        super().__init__((X.shape[0], X.shape[1]), X.dtype, n_threads, roundings)
        self._by_rows = bool(X.flags.c_contiguous)
        self._X = X.view()
        self._X.flags.writeable = False
        self._kernel_view = self._X if self._by_rows else self._X.T
        self._is_small, self._is_long = X.size <= SMALL, X.size > LONG
        self._nonnegative: bool | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix."""
        return int(self._X.nbytes)

    def _cut(self, rows: Index, scatter: bool) -> tuple[list[tuple[int, int]], float]:
        n_rows, d = self.shape
        n = rows.size or n_rows
        if rows.size and (rows.min() < 0 or rows.max() >= n_rows):
            raise IndexError(f"rows must lie in [0, {n_rows})")
        n_parts = max(1, min(self.n_threads, n, n * d // ENTRIES_PER_THREAD))
        cuts = [n * t // n_parts for t in range(n_parts + 1)]
        return list(pairwise(cuts)), n / n_rows

    @property
    def _fuses(self) -> bool:
        return self._by_rows

    def _chunk_rows(self) -> int:
        # A column of a Fortran-ordered chunk is a piece of memory on its own: it must not be too short.
        return max(1 if self._by_rows else 2048, ENTRIES_PER_CHUNK // max(1, self.shape[1]))

    def _dot(self, rows: Index, start: int, stop: int, w: Vector, support: Index, out: Vector) -> None:
        dot = kernels.dense_dot if self._by_rows else kernels.flat_dot
        dot(self._kernel_view, rows, start, stop, w, support, out)

    def _add(self, rows: Index, start: int, stop: int, c: Vector, g: Vector) -> None:
        add = kernels.dense_add if self._by_rows else kernels.flat_add
        add(self._kernel_view, rows, start, stop, c, g)

    def _fused(self, work: BlockWork, codes: Codes, start: int, stop: int, g: Vector) -> float:
        return kernels.dense_step(
            self._kernel_view, work.rows, start, stop, work.w, work.offset, work.samples(), codes, g
        )

    def _hint(self, support: Index | None) -> Index:
        if support is None:
            return NO_INDEX
        support = frozen(support, np.int64)
        # Columns of a C-ordered matrix are gathered: whole rows are as fast unless the support is a small part.
        worth = self.shape[1] // 4 if self._by_rows else self.shape[1]
        if not 0 < support.size < worth:
            return NO_INDEX
        if support[0] < 0 or support[-1] >= self.shape[1]:
            raise IndexError(f"support must lie in [0, {self.shape[1]})")
        return support

    def matvec(self, w: Vector, support: Index | None = None, rows: Index | None = None) -> Vector:
        """Compute ``X w``, or ``X[rows] w``."""
        chosen = self._hint(support)
        if rows is None and self.dtype == np.float64 and (chosen.size == 0 or self._X.size <= GATHERED):
            self._passes += (chosen.size or self.shape[1]) / self.shape[1]
            w = np.asarray(w, dtype=np.float64)
            if chosen.size == 0 or self._is_small:
                out = np.empty(self.shape[0])
                self._in_parts(lambda i, j: np.dot(self._X[i:j], w, out=out[i:j]), PRODUCT_PER_THREAD)
                return out
            return np.asarray(self._X[:, chosen] @ w[chosen])
        before = self._passes
        out = super().matvec(w, support, rows)
        if chosen.size:
            self._passes = before + (self._passes - before) * chosen.size / self.shape[1]
        return out

    def rmatvec(self, c: Vector, rows: Index | None = None) -> Vector:
        """Compute ``X' c``, or ``X[rows]' c``."""
        if rows is None and self.dtype == np.float64:
            self._passes += 1.0
            c = np.asarray(c, dtype=np.float64)
            return _total(self._in_parts(lambda i, j: np.dot(c[i:j], self._X[i:j]), PRODUCT_PER_THREAD))
        return super().rmatvec(c, rows)

    def matvec_rmatvec(self, w: Vector, c: Vector) -> tuple[Vector, Vector]:
        """Compute ``X w`` and ``X' c`` with one read of X."""
        if self._is_small:
            self._passes -= 1.0  # the second product finds X in the cache
            return self.matvec(w), self.rmatvec(c)
        many_chunks = self._by_rows and self._is_long and self.n_threads > 1  # whose calls would wait on each other
        if self.dtype != np.float64 or self._kernel_view.shape[1] > WIDE or many_chunks:
            return super().matvec_rmatvec(w, c)
        self._passes += 1.0
        w, c = frozen_vector("w", w, self.shape[1]), frozen_vector("c", c, self.shape[0])
        if self._by_rows:
            return self._products(w, c)
        g, u = self._products(c, w)
        return u, g

    def _products(self, right: Vector, left: Vector) -> tuple[Vector, Vector]:
        """Compute ``A right`` and ``A' left`` for A the stored rows of memory; a chunk is in the cache for the second product."""
        A = self._kernel_view
        n, width = A.shape
        product, step = np.empty(n), ENTRIES_PER_CHUNK // width

        def part(start: int, stop: int) -> Vector:
            total = np.zeros(width)
            for begin in range(start, stop, step):
                rows = slice(begin, min(begin + step, stop))
                np.dot(A[rows], right, out=product[rows])
                total += np.dot(left[rows], A[rows])
            return total

        return product, _total(self._in_parts(part, n=n))

    def columns(self, support: Index) -> DenseDesign:
        """Return a copy restricted to some features."""
        self._passes += len(support) / max(1, self.shape[1])
        n = self.shape[0]
        part = np.empty((n, len(support)), dtype=self.dtype)
        # Without mode="clip" numpy writes to a copy of `out`.
        run_parts(
            lambda start, stop: np.take(self._X[start:stop], support, axis=1, out=part[start:stop], mode="clip"),
            self._parts(n),
        )
        return DenseDesign(part, self.n_threads, self.roundings)

    def joined(self, others: Sequence[DenseDesign], n_threads: int) -> DenseDesign:
        """Return a copy of these rows and, after them, those of others."""
        return DenseDesign(np.concatenate([part._X for part in (self, *others)]), n_threads, self.roundings)

    def visits(self, features: Index | None = None) -> Visits:
        """Return the rows as visits read them; a copy unless they are those of the memory."""
        if features is None and self._by_rows:
            return Visits(self, (self._X, NO_VECTOR, NO_VECTOR), self.row_norms_sq())
        part = self if features is None else self.columns(features)
        return DenseDesign(np.ascontiguousarray(part.toarray())).visits()

    def _visits_of(self, view: AffineView, features: Index | None) -> Visits:
        if features is None and self._by_rows and self._X.size > COPIED:
            d = self.shape[1]
            center = np.zeros(d) if view.center is None else view.center
            inverse = np.ones(d) if view.scale is None else 1.0 / view.scale
            return Visits(view, (self._X, center, inverse), view.row_norms_sq())
        part = view if features is None else view.columns(features)
        return DenseDesign(np.ascontiguousarray(part.toarray())).visits()

    def ascend(self, *arguments: Any) -> float:
        """Visit every sample once."""
        self._passes += 1.0
        return float(kernels.dense_ascend(self._X, *arguments))

    def formed(self) -> DenseDesign:
        """Return the matrix itself if it is of float64."""
        return self if self.dtype == np.float64 else DenseDesign(self.toarray(), self.n_threads)

    def hessian(self, c: Vector, center: Vector | None = None) -> Vector:
        """Compute ``(X - 1 m')' diag(c) (X - 1 m')`` for a center m, or without one."""
        n, d = self.shape
        root, step = np.sqrt(c)[:, None], max(1, HESSIAN_CHUNK // max(1, d))

        def part(start: int, stop: int) -> Vector:
            H, buffer = np.zeros((d, d)), np.empty((min(step, stop - start), d))
            for begin in range(start, stop, step):
                rows = slice(begin, min(begin + step, stop))
                A = buffer[: rows.stop - begin]
                if center is None:
                    np.multiply(self._X[rows], root[rows], out=A)
                else:
                    np.subtract(self._X[rows], center, out=A)
                    A *= root[rows]
                H += np.dot(A.T, A)  # the same operand twice: BLAS computes one triangle only
            return H

        if d > MANY_COLUMNS:
            with blas_threads(True):
                return part(0, n)
        return _total(self._in_parts(part))

    def hessian_root(self, c: Vector, center: Vector | None, lam: float) -> Vector:
        """Return R, upper triangular, with R'R the Hessian plus lam I: its condition number is the root of theirs."""
        A = self._centred(center) * np.sqrt(c)[:, None]
        return np.asarray(np.linalg.qr(np.vstack([A, np.sqrt(lam) * np.eye(self.shape[1])]), mode="r"))

    def curvature(self, c: Vector, center: Vector | None = None) -> Curvature:
        """Return what gives the Hessian row by row."""
        return Curvature(self._centred(center), c, self.n_threads)

    def _centred(self, center: Vector | None) -> Vector:
        if center is None:
            return np.asarray(self._X, dtype=np.float64)
        out = np.empty_like(self._X, dtype=np.float64)
        self._in_parts(lambda i, j: np.subtract(self._X[i:j], center, out=out[i:j]))
        return out

    def weighted_gram(self, c: Vector) -> Vector:
        """Compute ``X' diag(c) X``."""
        self._passes += 1.0
        X = np.asarray(self._X, dtype=np.float64)
        return np.asarray((X.T * c) @ X)

    def toarray(self, rows: Index | None = None, copy: bool = True) -> Vector:
        """Return the rows as a float64 array; without `copy` the stored one if it is such."""
        if rows is not None:
            return np.asarray(self._X[rows], dtype=np.float64)
        if not copy and self.dtype == np.float64:
            return self._X
        out = np.empty_like(self._X, dtype=np.float64)
        run_parts(lambda start, stop: np.copyto(out[start:stop], self._X[start:stop]), self._parts(self.shape[0]))
        return out

    def is_nonnegative(self) -> bool:
        """Whether no entry is negative."""
        if self._nonnegative is None:
            self._nonnegative = bool(self._X.min(initial=0.0) >= 0.0)
        return self._nonnegative

    def _column_counts(self) -> Vector:
        return np.full(self.shape[1], float(self.shape[0]))

    def _max_row_count(self) -> int:
        return self.shape[1]

    def largest(self) -> float:
        """Return the largest size of an entry; NaN where one is NaN."""

        def part(start: int, stop: int) -> float:
            chunks = (self._X[begin : min(begin + step, stop)] for begin in range(start, stop, step))
            return float(np.max([(chunk.max(), -chunk.min()) for chunk in chunks]))

        step = 2 * self._chunk_rows()
        return float(np.max(run_parts(part, self._parts(self.shape[0]))))

    def _affine_row_norms_sq(self, center: Vector | None, scale: Vector | None) -> Vector:
        (n, d), norms = self.shape, np.empty(self.shape[0])
        if self._by_rows and self._is_long:
            known = frozen(np.zeros(d) if center is None else center), frozen(np.ones(d) if scale is None else scale)
            run_parts(lambda i, j: kernels.dense_row_norms_sq(self._X, i, j, *known, norms), self._parts(n))
            return norms

        def square(chunk: Vector, rows: slice) -> float:
            if center is not None:
                chunk -= center
            if scale is not None:
                chunk /= scale
            np.einsum("ij,ij->i", chunk, chunk, out=norms[rows])
            return 0.0

        self._summed(square)
        return norms

    def _left(self, s: Vector, center: Vector) -> Vector:
        return self._summed(lambda chunk, rows: np.dot(s[rows], np.subtract(chunk, center, out=chunk)))

    def _spread(self, s: Vector, center: Vector | None) -> Vector:
        if self._by_rows and self._is_long:
            return self._deviations(s, np.zeros(self.shape[1]) if center is None else center)[1]

        def squares(chunk: Vector, rows: slice) -> Vector:
            if center is not None:
                chunk -= center
            return np.asarray(np.dot(s[rows], np.square(chunk, out=chunk)))

        return self._summed(squares)

    def _deviations(self, s: Vector, center: Vector) -> tuple[Vector, Vector]:
        if self._by_rows and self._is_long:
            return self._compiled_deviations(frozen(s), frozen(center))

        def sums(chunk: Vector, rows: slice) -> Vector:
            chunk -= center
            return np.array([np.dot(s[rows], chunk), np.dot(s[rows], np.square(chunk, out=chunk))])

        left, spread = self._summed(sums, 2)
        return left, spread

    def _compiled_deviations(self, s: Vector, center: Vector) -> tuple[Vector, Vector]:
        """Do so without numpy's calls on chunks, for which many threads would wait on each other."""

        def part(start: int, stop: int) -> Vector:
            sums = np.zeros((2, self.shape[1]))
            kernels.dense_deviations(self._X, start, stop, s, center, sums)
            return sums

        left, spread = _total(run_parts(part, self._parts(self.shape[0])))
        return left, spread

    def _summed(self, term: Callable[[Vector, slice], Any], *several: int) -> Vector:
        """Add up a term, or several, for each chunk of rows, of which it gets a copy in float64 that it may change."""
        step = self._chunk_rows()

        def part(start: int, stop: int) -> Vector:
            out, buffer = np.zeros((*several, self.shape[1])), np.empty((min(step, stop - start), self.shape[1]))
            for begin in range(start, stop, step):
                rows = slice(begin, min(begin + step, stop))
                chunk = buffer[: rows.stop - begin]
                chunk[:] = self._X[rows]
                out += term(chunk, rows)
            return out

        return _total(self._in_parts(part))

    def _in_parts(self, work: Callable[[int, int], T], fewest: int | None = None, n: int | None = None) -> list[T]:
        """Call a function for a part of the rows a thread, so many entries at least, each with one thread of BLAS."""
        parts = self._parts(self.shape[0] if n is None else n, fewest)
        with nullcontext() if len(parts) == 1 else blas_threads(False):
            return run_parts(work, parts)

    def _parts(self, n: int, fewest: int | None = None) -> list[tuple[int, int]]:
        """Cut rows into a part for each thread, if there is enough to do."""
        n_parts = max(1, min(self.n_threads, n, self._X.size // (fewest or ENTRIES_PER_THREAD)))
        return list(pairwise(n * t // n_parts for t in range(n_parts + 1)))


def _total(sums: list[Vector]) -> Vector:
    """Add the sums of parts to the first of them."""
    for other in sums[1:]:
        sums[0] += other
    return sums[0]


class Curvature(DenseDesign):
    """A matrix A, with weights c, of which rows of A'CA are wanted, C the diagonal matrix of c."""

    def __init__(self, A: Vector, c: Vector, n_threads: int) -> None:
        super().__init__(A, n_threads)
        self.c = c

    def gram_rows(self, chosen: Index) -> Vector:
        """Return some rows of A'CA, with one read of A."""
        self._passes += 1.0
        return _total(
            self._in_parts(lambda i, j: np.dot(self._X[i:j, chosen].T * self.c[i:j], self._X[i:j])),
        )

    def charge(self, design: Design) -> None:
        """Count what has been read of A as its fraction of X."""
        design.count_reads_of(self)

    def gram_diagonal(self) -> Vector:
        """Return the diagonal of A'CA."""
        return _total(
            self._in_parts(lambda i, j: np.einsum("i,ij,ij->j", self.c[i:j], self._X[i:j], self._X[i:j])),
        )

"""What a design matrix can do, and the part of it that dense and sparse storage share.

A solver speaks to :class:`Design` only: it never indexes X and never asks how or where X is stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from diht.design.entries import DenseEntries, Entries
from diht.design.step import Codes, DualState, Step
from diht.numerics import exact
from diht.numerics.arrays import Vector
from diht.numerics.threads import run_parts
from diht.numerics.traffic import Traffic, Trips

if TYPE_CHECKING:
    from diht.design.dense import Curvature, DenseDesign
    from diht.design.view import AffineView

Index: TypeAlias = NDArray[np.int64]

UNIT = 2.0**-53  # the unit roundoff of float64
LARGEST = 1e75  # largest number in the data: squares of sums of many of them, divided by a small ridge, stay finite
SMALLEST = 2.0**-1074  # the spacing of subnormal numbers: what a product that underflows may lose

# Below this many stored entries a second thread costs more than it saves.
ENTRIES_PER_THREAD = 60_000
# Entries of the rows that are gathered and scattered together where a step cannot run inside a kernel: they stay in the cache.
ENTRIES_PER_CHUNK = 100_000
# Entries, and rows at least, of which predictions are computed in twice the precision at a time.
PRECISE_ENTRIES, FEWEST_ROWS = 2_000_000, 500
# Columns of a Hessian or a Gram matrix from which on the threads of BLAS have enough to do.
MANY_COLUMNS = 500
# Entries of columns that are looked at together.
ENTRIES_TOGETHER = 10_000_000


def gamma(n: float | Vector) -> Any:
    """Return ``n u / (1 - n u)``: the relative error of a sum of products after ``n`` roundings (Higham, 2002, section 3.1)."""
    small = n * UNIT
    return small / (1.0 - small)


def frozen(a: Any, dtype: Any = np.float64) -> Any:
    """Return a contiguous read-only view (a copy only if need be), so that every caller meets the same compiled kernel."""
    return frozen_view(np.ascontiguousarray(a, dtype=dtype))


def frozen_view(a: NDArray[Any]) -> Any:
    """Return a read-only view."""
    view = a.view()
    view.flags.writeable = False
    return view


def frozen_vector(name: str, a: Any, n: int) -> Any:
    """Return a read-only float64 vector of n numbers; a kernel would read past the end of a shorter one."""
    a = frozen(a)
    if a.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), got {a.shape}")
    return a


NO_INDEX: Index = frozen(np.empty(0, dtype=np.int64), np.int64)
NO_VECTOR: Vector = np.empty(0)


class Features(ABC):
    r"""What is known of the columns of a matrix, and how often it was read: nothing here is as long as its rows.

    Attributes
    ----------
    shape : tuple of int
        ``(N, d)``.
    dtype : numpy.dtype
        float32 or float64: the type of the stored entries.
    n_threads : int
        Number of threads of a product; results are the same, bit by bit, for the same number.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    n_threads: int

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes of the matrix as it was given."""

    @property
    @abstractmethod
    def data_dtype(self) -> np.dtype[Any]:
        """The type of the data, before they are centred and scaled."""

    @property
    @abstractmethod
    def passes(self) -> float:
        """Reads of the whole of X so far; a read of some rows or columns counts as its fraction of the stored entries."""

    @abstractmethod
    def count_reads_of(self, part: Features) -> None:
        """Count what has been read of a compact copy, of some columns, as its fraction of X."""

    @abstractmethod
    def count(self, passes: float) -> None:
        """Count reads that something else than a product has made."""

    def occupied(self) -> Index:
        """Return the columns, ascending, that may hold anything but zeros."""
        return np.arange(self.shape[1])

    def fraction(self, support: Index) -> float:
        """Fraction of the stored entries that some features hold."""
        return len(support) / max(1, self.shape[1])

    def gram_cost(self) -> float:
        """Return the number of multiplications of a Hessian that is formed from the stored entries."""
        return self.dense_gram_cost()

    def dense_gram_cost(self, n_columns: int | None = None) -> float:
        """Return the number of multiplications of a Hessian, of so many columns, as a product of dense matrices."""
        return self.entries(n_columns) * (self.shape[1] if n_columns is None else n_columns)

    def entries(self, n_columns: int | None = None) -> float:
        """Return the number of entries of a dense copy of so many columns, all by default."""
        return float(self.shape[0]) * (self.shape[1] if n_columns is None else n_columns)

    @property
    def has_short_rows(self) -> bool:
        """Whether a Hessian is formed from the stored entries, row by row, for less than as a product of dense matrices."""
        return self.gram_cost() <= 0.5 * self.dense_gram_cost()

    @abstractmethod
    def column_norms(self) -> Vector:
        """Euclidean norms of the columns."""

    def read_norms(self) -> Vector:
        """Norms of the columns as products read them: where the design is centred, those of a column and of its centre."""
        return self.column_norms()

    @abstractmethod
    def rmatvec_error(self, norm_c: float) -> Vector:
        """Bound the rounding error of each entry of ``rmatvec(c)`` for any ``c`` of Euclidean norm at most ``norm_c``.

        The bound is rigorous, and holds as well for the ``g`` of a fresh :meth:`block_step` with ``c = s * alpha`` as rounded. The
        entries of X, of ``c`` and of a view's center and scale are taken as exact.
        """

    @abstractmethod
    def matvec_error(self, w: Vector) -> float:
        """Bound the rounding error of every entry of ``matvec(w)``."""

    @abstractmethod
    def constants(self, features: Index) -> Vector:
        """Return the value of each of some columns that is constant, NaN for the others."""

    @property
    def is_centred(self) -> bool:
        """Whether constants are subtracted from columns on the way."""
        return False

    @property
    def traffic(self) -> Traffic | Trips | None:
        """What has been read from disk so far, where the matrix is there."""
        return None

    @property
    def is_fast(self) -> bool:
        """Whether reads and Hessians take less time than a factorisation of as many columns by the host."""
        return False

    @property
    def is_far(self) -> bool:
        """Whether the matrix does not fit into memory, so that a read of it takes far longer than one of some columns."""
        return False

    def keepable(self, features: Index) -> bool:
        """Whether some columns fit into memory."""
        return True

    def pieces(self, features: Index, most: float) -> list[Index]:
        """Cut features into groups whose columns have at most so many entries, but for single ones."""
        return cut_at(features, np.full(len(features), float(self.shape[0])), most)


class OfBase(Features):
    """Columns of another matrix: how many bytes it has, where it is, and what is read of it.

    Attributes
    ----------
    base : Features
    """

    base: Features

    @property
    def nbytes(self) -> int:
        """Bytes of the base."""
        return self.base.nbytes

    @property
    def data_dtype(self) -> np.dtype[Any]:
        """The type of the data."""
        return self.base.data_dtype

    @property
    def passes(self) -> float:
        """Reads of the whole of X so far."""
        return self.base.passes

    @property
    def traffic(self) -> Traffic | Trips | None:
        """What has been read of the base."""
        return self.base.traffic

    @property
    def is_far(self) -> bool:
        """Whether the base is."""
        return self.base.is_far

    def count(self, passes: float) -> None:
        """Count reads that something else than a product has made."""
        self.base.count(passes)

    def count_reads_of(self, part: Features) -> None:
        """Count what has been read of a compact copy as its fraction of X."""
        self.base.count_reads_of(part)


class Design(Features):
    r"""The matrix :math:`X` of N samples (rows) and d features (columns), through its products.

    All vectors are float64, whatever the type of the data; sums are accumulated in float64.

    Attributes
    ----------
    feature_names : tuple of str, or None
        The names of the columns, where whoever made the design knows them; for estimators alone.
    """

    feature_names: tuple[str, ...] | None = None

    @abstractmethod
    def matvec(self, w: Vector, support: Index | None = None, rows: Index | None = None) -> Vector:
        """Compute ``X w``, or ``X[rows] w``.

        Parameters
        ----------
        w : (d,) array
        support : array of int, optional
            Ascending indices outside which ``w`` is zero: a hint for speed.
        rows : array of int, optional
        """

    @abstractmethod
    def rmatvec(self, c: Vector, rows: Index | None = None) -> Vector:
        """Compute ``X' c``, or ``X[rows]' c`` with ``c`` as long as ``rows``."""

    @abstractmethod
    def matvec_rmatvec(self, w: Vector, c: Vector) -> tuple[Vector, Vector]:
        """Compute ``X w`` and ``X' c`` with one read of X."""

    @abstractmethod
    def block_step(
        self, step: Step, w: Vector, offset: float, dual: DualState, y: Vector, s: Vector, rows: Index | None = None
    ) -> float:
        r"""Update the dual variables of some rows, and ``g`` with them, with one read of those rows.

        For every row i: :math:`u_i = x_i \cdot w + \mathrm{offset}`, ``new = step(alpha_i, u_i, y_i)``,
        :math:`g \leftarrow g + s_i (\mathrm{new} - \alpha_i) x_i` and :math:`\alpha_i \leftarrow \mathrm{new}`.

        Parameters
        ----------
        step : Step
        w : (d,) array
        offset : float
        dual : DualState
            ``alpha`` stays as it is where ``step.store`` is False.
        y, s : (N,) arrays
        rows : array of distinct int, optional
            All rows by default.

        Returns
        -------
        float
            :math:`\sum_i s_i (\mathrm{new}_i - \alpha_i)`, or :math:`\sum_i s_i \mathrm{new}_i` if ``step.fresh``.
        """

    @abstractmethod
    def columns(self, support: Index) -> Design:
        """Return a compact copy restricted to some features."""

    def column_entries(self, features: Index) -> Entries:
        """Return the entries of some columns, to be visited one by one; for few features."""
        return DenseEntries(self.columns(features).toarray())

    @abstractmethod
    def toarray(self, rows: Index | None = None, copy: bool = True) -> Vector:
        """Return the rows as a dense float64 array; without `copy` perhaps the stored one, which cannot be written to."""

    @abstractmethod
    def weighted_gram(self, c: Vector) -> Vector:
        """Compute ``X' diag(c) X``; for few features."""

    def parts(self) -> list[Design]:
        """Return the blocks of rows that the matrix consists of, in their order."""
        return [self]

    def formed(self) -> DenseDesign:
        """Return the same matrix dense, in float64, for products with few features; itself if it is such."""
        from diht.design.dense import DenseDesign

        return DenseDesign(self.toarray(copy=False), self.n_threads)

    def hessian(self, c: Vector, center: Vector | None = None) -> Vector:
        """Compute ``(X - 1 m')' diag(c) (X - 1 m')`` for a center m, or without one; for few features.

        Of short rows the entries are paired, others are formed.
        """
        if not self.has_short_rows:
            return self.formed().hessian(c, center)
        gram = self.weighted_gram(c)
        if center is not None:
            pull = np.outer(self.rmatvec(c) - 0.5 * float(c.sum()) * center, center)
            gram -= pull + pull.T
            np.fill_diagonal(gram, np.maximum(gram.diagonal(), 0.0))  # variances, which rounding may take below
        return gram

    def curvature(self, c: Vector, center: Vector | None = None) -> Curvature:
        """Return what gives the Hessian row by row, from a dense copy."""
        return self.formed().curvature(c, center)

    def hessian_root(self, c: Vector, center: Vector | None, lam: float) -> Vector:
        """Return R, upper triangular, with R'R the Hessian plus lam I: its condition number is the root of theirs."""
        return self.formed().hessian_root(c, center, lam)

    @abstractmethod
    def raw(self) -> tuple[StoredDesign, Vector | None]:
        """Return the matrix before it is centred and scaled, where that is done on the way, and the scales."""

    @abstractmethod
    def visits(self, features: Index | None = None) -> Visits:
        """Return the rows, of some features or all, as visits of one after the other read them; X itself where that will do."""

    @abstractmethod
    def row_norms_sq(self) -> Vector:
        """Squared Euclidean norms of the rows."""

    def square_sum(self, c: Vector) -> float:
        """Compute ``sum_i c_i ||x_i||^2``."""
        return float(c @ self.row_norms_sq())

    def rows(self, chosen: Index) -> Vector:
        """Return some rows, dense: for few samples and few features."""
        return self.toarray(chosen)

    def constants(self, features: Index) -> Vector:
        """Return the value of each of some columns that is constant, NaN for the others."""
        values = np.full(len(features), np.nan)
        for at in np.array_split(np.arange(len(features)), len(features) * self.shape[0] // ENTRIES_TOGETHER + 1):
            X = self.columns(features[at]).toarray()
            same = np.all(X[0] == X, axis=0)
            values[at[same]] = X[0, same]
        return values

    @abstractmethod
    def spread(self, c: Vector, center: Vector) -> Vector:
        """Compute ``sum_i c_i (x_ij - center_j)^2`` for every column j."""

    @abstractmethod
    def moments(self, s: Vector) -> tuple[Vector, Vector]:
        """Mean and variance of every column under the weights ``s``, which sum to 1; computed in two passes."""

    def predictions(self, coef: Vector, *intercepts: float, less: Sequence[Vector] = ()) -> tuple[Vector, Vector]:
        r"""Compute X coef plus constants, of the data as they are stored, in twice the precision, and a bound on its errors.

        Vectors of N numbers, such as targets, are subtracted where they are given.

        With k nonzero coefficients the error is at most :math:`u |u_i| + \gamma_k^2 \sum_j |x_{ij}| |\mathrm{coef}_j|`.
        """
        support = np.flatnonzero(coef)
        part, coef = self.stored.columns(support), np.asarray(coef, dtype=np.float64)
        beside = np.empty((self.shape[0], len(intercepts) + len(less)))
        beside[:, : len(intercepts)] = intercepts
        for column, vector in zip(beside.T[len(intercepts) :], less, strict=True):
            np.negative(vector, out=column)
        u, size = part.precise_sums(coef[support], beside)
        square = float(gamma(len(support) + beside.shape[1] + 4)) ** 2
        with np.errstate(over="ignore", invalid="ignore"):
            error = 4.0 * square * size + 2.0 * UNIT * np.abs(u) + 8.0 * (len(support) + 1) * SMALLEST
        return u, error

    def precise_sums(self, w: Vector, beside: Vector) -> tuple[Vector, Vector]:
        """Return X w plus the sum of each row of `beside`, in twice the precision, and the sums of the terms' sizes."""
        n, d = self.shape
        u, size = np.empty(n), np.empty(n)
        step = max(FEWEST_ROWS, PRECISE_ENTRIES // max(1, d))
        B = np.concatenate([w, np.ones(beside.shape[1])])
        for first in range(0, n, step):
            rows = np.arange(first, min(first + step, n))
            A = np.hstack([self.toarray(rows), beside[rows]])
            u[rows] = exact.dots(A, np.broadcast_to(B, A.shape))
            size[rows] = np.einsum("ij,j->i", np.abs(A), np.abs(B))
        return u, size

    @property
    def data_dtype(self) -> np.dtype[Any]:
        """The type of the data, before they are centred and scaled."""
        return self.stored.dtype

    @property
    @abstractmethod
    def stored(self) -> StoredDesign:
        """The data before they are centred and scaled."""

    @abstractmethod
    def is_nonnegative(self) -> bool:
        """Whether no stored entry is negative (of the data, before a view's center and scale)."""


def cut_at(features: Index, counts: Vector, most: float) -> list[Index]:
    """Cut features, each with its count, into groups of consecutive ones whose counts add up to about `most`."""
    before = np.cumsum(counts) - counts
    return np.split(features, np.flatnonzero(np.diff(before // most)) + 1) if len(features) else []


class Visits(NamedTuple):
    """A matrix whose rows are visited one after the other.

    Attributes
    ----------
    part : Design
        The matrix. Of a sparse one, not centred: an intercept takes that up.
    arrays : tuple
        What the kernels take: of a sparse matrix its three arrays, of a dense one X, the centres and the inverse scales.
    norms : (N,) array
        Squared norms of the rows.
    """

    part: Design
    arrays: tuple[Any, Any, Any]
    norms: Vector


class BlockWork(NamedTuple):
    """The arguments of a block step as the kernels take them; empty ``rows`` stand for all."""

    rows: Index
    w: Vector
    offset: float
    alpha: Vector
    y: Vector
    s: Vector
    step: Step
    u: Vector | None

    def samples(self) -> tuple[Vector, Vector, Vector, Vector]:
        """Return what has a number for each sample; no margins where none are asked for."""
        return self.alpha, self.y, self.s, NO_VECTOR if self.u is None else self.u


class RowErrors(Features):
    """Bounds on the rounding errors of products with a matrix as it is stored, of what is known of its rows and columns."""

    roundings: int

    @abstractmethod
    def _column_counts(self) -> Vector:
        """Return the number of stored entries of every column."""

    @abstractmethod
    def _max_row_count(self) -> int:
        """Return the largest number of stored entries of a row."""

    @abstractmethod
    def largest_row_norm(self) -> float:
        """Return the largest Euclidean norm of a row."""

    def row_norm_over(self, features: Index) -> float:
        """Return an upper bound on the norms of the rows over some features."""
        return self.largest_row_norm()

    def rmatvec_error(self, norm_c: float) -> Vector:
        r"""Bound the rounding error of every entry of ``rmatvec(c)``.

        :math:`|\mathrm{fl}(\sum_i x_{ij} c_i) - \sum_i x_{ij} c_i| \le \gamma_n \|c\| \|X_j\|` for any order of the sum, where n is
        the number of entries of column j; the accumulators of the threads add one rounding each.
        """
        n = self._column_counts() + (self.n_threads + 2 + self.roundings)
        relative = gamma(n)
        bound: Vector = (norm_c * self.column_norms()) * relative
        # The last factor covers the rounding of the norms and of this formula itself.
        bound *= np.add(np.multiply(relative, 4.0, out=relative), 1.0, out=relative)
        bound += np.multiply(n, SMALLEST, out=n)
        return bound

    def matvec_error(self, w: Vector) -> float:
        r"""Bound the rounding error of every entry of ``matvec(w)``: :math:`\gamma_n \|w\| \max_i \|x_i\|`.

        A product with 0 is exact, so that n is at most the number of nonzeros of w, and norms need to count their features only.
        """
        w = np.asarray(w, dtype=np.float64)
        n = min(self._max_row_count(), int(np.count_nonzero(w))) + 4 + self.roundings
        norm = float(np.linalg.norm(w)) * self.row_norm_over(np.flatnonzero(w))
        return float(gamma(n) * norm * (1.0 + 4.0 * gamma(max(n, w.size))) + n * SMALLEST)


class StoredDesign(RowErrors, Design):
    """A matrix in this process's memory: cuts the rows among threads and counts passes; subclasses know the storage.

    `roundings` says how often an entry was rounded, relative to itself, before it was stored: error bounds are those of the
    matrix before it.
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[Any], n_threads: int, roundings: int = 0) -> None:
        self.shape = (int(shape[0]), int(shape[1]))
        self.dtype = dtype
        self.n_threads = n_threads
        self.roundings = roundings
        self._passes = 0.0
        self._spare: list[Vector] = []
        self._row_norms_sq: Vector | None = None
        self._column_norms: Vector | None = None

    @property
    def passes(self) -> float:
        """Reads of the whole of X so far."""
        return self._passes

    def count_reads_of(self, part: Features) -> None:
        """Count what has been read of a compact copy as its fraction of X."""
        self._passes += part.passes * part.nbytes / max(1, self.nbytes)

    def count(self, passes: float) -> None:
        """Count reads that something else than a product has made."""
        self._passes += passes

    @property
    def stored(self) -> StoredDesign:
        """The data themselves."""
        return self

    def raw(self) -> tuple[StoredDesign, Vector | None]:
        """Return the matrix itself."""
        return self, None

    def pieces(self, features: Index, most: float) -> list[Index]:
        """Cut features into groups whose columns have at most so many stored entries, but for single ones."""
        return cut_at(features, self._column_counts()[features], most)

    def with_threads(self, n_threads: int) -> StoredDesign:
        """Return the same data, for so many threads."""
        other = copy(self)
        other.n_threads, other._passes, other._spare = n_threads, 0.0, []
        return other

    def local(self) -> StoredDesign:
        """Return the matrix in one piece, for what visits its rows one after the other."""
        return self

    def affine_square_sum(self, c: Vector, view: AffineView) -> float:
        """Compute ``sum_i c_i ||z_i||^2`` for the rows of a view of this matrix."""
        return float(c @ view.row_norms_sq())

    # What a subclass supplies

    @abstractmethod
    def _visits_of(self, view: AffineView, features: Index | None) -> Visits:
        """Return the rows of a view of this matrix, of some features, as visits read them."""

    @abstractmethod
    def ascend(self, *arguments: Any) -> float:
        """Visit every sample once: an epoch of `CoordinateAscent`, whose arguments follow those of the matrix."""

    @abstractmethod
    def columns(self, support: Index) -> StoredDesign:
        """Return a compact copy restricted to some features."""

    @abstractmethod
    def joined(self, others: Sequence[Any], n_threads: int) -> StoredDesign:
        """Return a copy of these rows and, after them, those of other matrices of this kind."""

    @abstractmethod
    def _cut(self, rows: Index, scatter: bool) -> tuple[list[tuple[int, int]], float]:
        """Cut the rows into one part a thread; also return the fraction of X that they hold.

        ``scatter`` says that each part but the first needs an accumulator of d numbers of its own.
        """

    @abstractmethod
    def _dot(self, rows: Index, start: int, stop: int, w: Vector, support: Index, out: Vector) -> None:
        """``out[r] = x_rows[r] . w`` for ``start <= r < stop``."""

    @abstractmethod
    def _add(self, rows: Index, start: int, stop: int, c: Vector, g: Vector) -> None:
        """``g += c[r] x_rows[r]`` for ``start <= r < stop``."""

    @abstractmethod
    def _fused(self, work: BlockWork, codes: Codes, start: int, stop: int, g: Vector) -> float:
        """Do the compiled step for ``start <= r < stop`` of the work's rows; see :func:`diht.design.kernels.csr_step`."""

    @property
    def _fuses(self) -> bool:
        """Whether a kernel can do gather, step and scatter row by row."""
        return True

    @abstractmethod
    def _chunk_rows(self) -> int:
        """Return a number of rows that stay in the cache between gather and scatter."""

    @abstractmethod
    def _affine_row_norms_sq(self, center: Vector | None, scale: Vector | None) -> Vector:
        """Return ``sum_j ((x_ij - center_j) / scale_j)^2`` for every row i."""

    @abstractmethod
    def _spread(self, s: Vector, center: Vector | None) -> Vector:
        """Return ``sum_i s_i (x_ij - center_j)^2`` for every column j."""

    # Products

    def _rows(self, rows: Index | None) -> Index:
        """Return the rows as the kernels take them: an empty array stands for all."""
        return NO_INDEX if rows is None else frozen(rows, np.int64)

    def matvec(self, w: Vector, support: Index | None = None, rows: Index | None = None) -> Vector:
        """Compute ``X w``, or ``X[rows] w``."""
        w = frozen_vector("w", w, self.shape[1])
        index = self._rows(rows)
        out = np.empty(self.shape[0] if rows is None else index.size)
        if out.size == 0:
            return out
        chosen = self._hint(support)
        parts, fraction = self._cut(index, scatter=False)
        self._passes += fraction
        run_parts(lambda start, stop: self._dot(index, start, stop, w, chosen, out), parts)
        return out

    def _hint(self, support: Index | None) -> Index:
        """Return the support as the kernels take it, empty where reading whole rows is as fast."""
        return NO_INDEX

    def rmatvec(self, c: Vector, rows: Index | None = None) -> Vector:
        """Compute ``X' c``, or ``X[rows]' c``."""
        g = np.zeros(self.shape[1])
        index = self._rows(rows)
        c = frozen_vector("c", c, self.shape[0] if rows is None else index.size)
        if c.size == 0:
            return g
        parts, fraction = self._cut(index, scatter=True)
        self._passes += fraction
        self._scatter(lambda start, stop, into: self._add(index, start, stop, c, into), parts, g)
        return g

    def matvec_rmatvec(self, w: Vector, c: Vector) -> tuple[Vector, Vector]:
        """Compute ``X w`` and ``X' c`` with one read of X."""
        n, d = self.shape
        u, g, ones = np.empty(n), np.empty(d), np.ones(n)
        alpha = np.array(c, dtype=np.float64)
        step = Step(None, "identity", store=False, fresh=True)
        self.block_step(step, w, 0.0, DualState(alpha, g, u), ones, ones)
        return u, g

    def block_step(
        self, step: Step, w: Vector, offset: float, dual: DualState, y: Vector, s: Vector, rows: Index | None = None
    ) -> float:
        """Update the dual variables of some rows, and ``g`` with them; see :meth:`Design.block_step`."""
        if step.fresh and rows is not None:
            raise ValueError("fresh=True needs all rows: g is overwritten")
        work, g = self._work(step, w, offset, dual, y, s, rows), dual.g
        if step.fresh:
            g[:] = 0.0
        if (self.shape[0] if rows is None else work.rows.size) == 0:
            return 0.0
        parts, fraction = self._cut(work.rows, scatter=True)
        self._passes += fraction
        codes = step.codes() if self._fuses else None
        if codes is None:
            totals = self._scatter(self._chunked(work), parts, g)
        else:
            totals = self._scatter(lambda start, stop, into: self._fused(work, codes, start, stop, into), parts, g)
        return float(sum(totals))

    def _work(
        self, step: Step, w: Vector, offset: float, dual: DualState, y: Vector, s: Vector, rows: Index | None
    ) -> BlockWork:
        """Check the arguments of a block step: kernels trust their sizes."""
        (n, d), alpha, u = self.shape, dual.alpha, dual.u
        w, y, s = frozen_vector("w", w, d), frozen_vector("y", y, n), frozen_vector("s", s, n)
        for name, changed, size in (("alpha", alpha, n), ("g", dual.g, d), ("u", u, n)):
            if changed is not None and (changed.shape != (size,) or changed.dtype != np.float64):
                raise ValueError(f"{name} must be a float64 array of shape ({size},)")
        if not alpha.flags.writeable:
            if step.store:
                raise ValueError("alpha must be writable: it is changed in place")
            alpha = alpha.copy()  # the kernel is compiled for arrays that may be written
        return BlockWork(self._rows(rows), w, float(offset), alpha, y, s, step, u)

    def _chunked(self, work: BlockWork) -> Callable[[int, int, Vector], float]:
        """Return what one thread does where numpy computes the step: a chunk is gathered and scattered while in the cache."""
        rows, w, offset, alpha, y, s, step, u = work
        margins = np.empty(rows.size or self.shape[0])
        c = np.empty_like(margins)
        size = self._chunk_rows()

        def part(start: int, stop: int, into: Vector) -> float:
            for begin in range(start, stop, size):
                end = min(begin + size, stop)
                chunk: Any = rows[begin:end] if rows.size else slice(begin, end)
                self._dot(rows, begin, end, w, NO_INDEX, margins)
                margins[begin:end] += offset
                old = alpha[chunk]
                new = step(old, margins[begin:end], y[chunk])
                c[begin:end] = s[chunk] * (new if step.fresh else new - old)
                self._add(rows, begin, end, c, into)
                if step.store:
                    alpha[chunk] = new
                if u is not None:
                    u[chunk] = margins[begin:end]
            return float(c[start:stop].sum())

        return part

    def _scatter(self, work: Callable[..., Any], parts: list[tuple[int, int]], g: Vector) -> list[Any]:
        """Call ``work(start, stop, accumulator)`` for every part and add the accumulators to ``g`` in the order of the parts.

        The first part adds to ``g`` itself. Accumulators are kept, all zero, for the next call; each call takes its own, so
        that several threads may use one design.
        """
        if len(parts) == 1:
            return [work(*parts[0], g)]
        own = [self._take_accumulator() for _ in parts[1:]]
        results = run_parts(work, [(*part, into) for part, into in zip(parts, [g, *own], strict=True)])
        for accumulator in own:
            g += accumulator
            accumulator[:] = 0.0
        self._spare += own
        return results

    def _take_accumulator(self) -> Vector:
        try:
            return self._spare.pop()
        except IndexError:
            return np.zeros(self.shape[1])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_spare": []}

    # Norms and error bounds

    def row_norms_sq(self) -> Vector:
        """Squared Euclidean norms of the rows."""
        if self._row_norms_sq is None:
            self._row_norms_sq = frozen(self._affine_row_norms_sq(None, None))
            self._passes += 1.0
        return self._row_norms_sq

    def largest_row_norm(self) -> float:
        """Return the largest Euclidean norm of a row."""
        return float(np.sqrt(self.row_norms_sq().max(initial=0.0)))

    def column_norms(self) -> Vector:
        """Euclidean norms of the columns."""
        if self._column_norms is None:
            self._column_norms = frozen(np.sqrt(self._spread(np.ones(self.shape[0]), None)))
            self._passes += 1.0
        return self._column_norms

    def spread(self, c: Vector, center: Vector) -> Vector:
        """Compute ``sum_i c_i (x_ij - center_j)^2`` for every column j."""
        self._passes += 1.0
        return self._spread(frozen(c), center)

    def moments(self, s: Vector) -> tuple[Vector, Vector]:
        """Mean and variance of every column under the weights ``s``, which sum to 1."""
        s = frozen(s)
        mean = self.rmatvec(s)
        self._passes += 1.0
        # The mean is rounded, and its error squared may count beside a variance that is far smaller than the mean.
        left, spread = self._deviations(s, mean)
        return mean, np.maximum(spread - np.square(left), 0.0)

    def _deviations(self, s: Vector, center: Vector) -> tuple[Vector, Vector]:
        """Return both sums, of the deviations and of their squares; with one read where a storage can."""
        return self._left(s, center), self._spread(s, center)

    def _left(self, s: Vector, center: Vector) -> Vector:
        """Return ``sum_i s_i (x_ij - center_j)`` for every column j; zero where a storage cannot tell it from rounding."""
        return np.zeros(self.shape[1])

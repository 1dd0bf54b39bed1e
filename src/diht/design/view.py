"""A matrix with its columns shifted and scaled, never formed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from diht.design.base import (
    NO_INDEX,
    SMALLEST,
    UNIT,
    Design,
    Index,
    OfBase,
    RowErrors,
    StoredDesign,
    Visits,
    frozen,
    gamma,
)
from diht.design.dense import SMALL, DenseDesign
from diht.design.entries import DenseEntries, Entries
from diht.design.row_blocks import RowBlocks
from diht.design.sparse import SparseDesign
from diht.design.step import DualState, Step
from diht.numerics.arrays import Vector
from diht.numerics.threads import in_slices

FORMED = 1_000_000  # entries of a dense matrix up to which a centred and scaled copy costs less than it saves
_NORMAL = 1e-290  # size of an entry from which on a quotient is rounded relative to itself


def affine(base: Design, center: Vector | None, scale: Vector | None, zeros: ArrayLike | None = None) -> Design:
    """Return a matrix with its columns centred and scaled: formed where it is small, a view otherwise.

    The entries of a formed one are rounded relative to themselves. Products with a view are rounded relative to the data before
    they are centred, which is far more where means are far larger than deviations.
    """
    if not isinstance(base, StoredDesign):
        raise ValueError("X must be stored data, not a view of it: give scale= and fit_intercept= instead")
    if isinstance(base, RowBlocks) and base.shape[0] * base.shape[1] <= FORMED:
        parts = [affine(block, center, scale, zeros) for block in base.blocks]
        formed = [part for part in parts if isinstance(part, FormedView)]
        return (
            RowBlocks(formed, base.n_threads) if len(formed) == len(parts) else AffineView(base, center, scale, zeros)
        )
    view = AffineView(base, center, scale, zeros)
    if isinstance(base, RowBlocks) or base.shape[0] * base.shape[1] > (
        SMALL if isinstance(base, SparseDesign) else FORMED
    ):
        return view
    Z = view.toarray()
    sizes = np.abs(Z)
    return view if np.any((sizes > 0.0) & (sizes < _NORMAL)) else FormedView(view, Z)


def stacked(designs: Sequence[Design]) -> Design:
    """Return the rows of several designs, with the same centres and scales, as one design."""
    first, n_threads = designs[0], max(design.n_threads for design in designs)
    rows = RowBlocks([design.raw()[0] for design in designs], n_threads)
    return AffineView(rows, first.center, first.scale, first.zeros) if isinstance(first, AffineView) else rows


class FormedView(DenseDesign):
    """The matrix of some columns of a view, all by default, formed.

    Parameters
    ----------
    view : AffineView
    Z : (N, d) array
        Its entries.
    features : array of int, optional
        The columns of the view.
    """

    def __init__(self, view: AffineView, Z: Vector, features: Index | None = None) -> None:
        super().__init__(Z, view.n_threads, roundings=2)
        self.view, self.features = view, features

    @property
    def stored(self) -> StoredDesign:
        """The data before they were centred and scaled."""
        base = self.view.base
        if self.features is None:
            return base
        part: StoredDesign = base.columns(self.features).stored
        return part

    @property
    def center(self) -> Vector | None:
        """The centres of the columns."""
        return self._of_columns(self.view.center)

    @property
    def scale(self) -> Vector | None:
        """The scales of the columns."""
        return self._of_columns(self.view.scale)

    def _of_columns(self, values: Vector | None) -> Vector | None:
        return values if values is None or self.features is None else values[self.features]

    def occupied(self) -> Index:
        """Return the columns, ascending, that hold anything but zeros."""
        return np.flatnonzero(self._X.any(axis=0))

    def joined(self, others: Sequence[Any], n_threads: int) -> FormedView:
        """Return a copy of these rows and, after them, those of others."""
        base = self.stored.joined([part.stored for part in others], n_threads)
        Z = np.concatenate([part._X for part in (self, *others)])
        return FormedView(AffineView(base, self.center, self.scale), Z)

    def columns(self, support: Index) -> FormedView:
        """Return a copy restricted to some features."""
        self._passes += len(support) / max(1, self.shape[1])
        features = support if self.features is None else self.features[support]
        return FormedView(self.view, np.take(self._X, support, axis=1), features)


class AffineErrors(OfBase):
    """Columns that are shifted and scaled on the way: their entries, and bounds on the rounding errors of products."""

    base: RowErrors
    center: Vector | None
    scale: Vector | None

    @property
    def is_centred(self) -> bool:
        """Whether there are centres."""
        return self.center is not None

    def occupied(self) -> Index:
        """Return the columns of the base that may hold anything but zeros, and those that are shifted."""
        held = np.zeros(self.shape[1], dtype=bool) if self.center is None else self.center != 0.0
        held[self.base.occupied()] = True
        return np.flatnonzero(held)

    def fraction(self, support: Index) -> float:
        """Fraction of the stored entries that some features hold."""
        return self.base.fraction(support)

    def keepable(self, features: Index) -> bool:
        """Whether some columns of the base fit into memory."""
        return self.base.keepable(features)

    def pieces(self, features: Index, most: float) -> list[Index]:
        """Cut features into groups whose columns have at most so many stored entries, but for single ones."""
        return self.base.pieces(features, most)

    def _raw(self, w: Vector) -> tuple[Vector, float]:
        """Return ``w / scale`` and its product with the center."""
        w = np.asarray(w, dtype=np.float64)
        if self.scale is not None:
            w = w / self.scale
        return w, 0.0 if self.center is None else float(self.center @ w)

    def read_norms(self) -> Vector:
        """Norms of the columns of the base plus those of their centres."""
        norms = self.base.column_norms()
        if self.center is not None:
            norms = norms + np.sqrt(self.shape[0]) * np.abs(self.center)
        return norms if self.scale is None else norms / self.scale

    def rmatvec_error(self, norm_c: float) -> Vector:
        r"""Bound the rounding error of every entry of ``rmatvec(c)``.

        To the error of :math:`X_j^\top c` come those of the sum of c, at most :math:`\gamma_N \sqrt N \|c\|`, of its product with
        the center, of the subtraction and of the division, each relative to what it acts on.
        """
        error = self.base.rmatvec_error(norm_c)
        size = norm_c * self.base.column_norms()
        if self.center is not None:
            n = self.shape[0]
            shift = np.abs(self.center) * (norm_c * np.sqrt(n))
            error = error + gamma(n + self.n_threads + self.base.roundings + 4) * shift
            size = size + shift
        error = error + 4.0 * UNIT * size + 2.0 * SMALLEST
        if self.scale is not None:
            error = error / self.scale
        return np.asarray(error * (1.0 + 16.0 * gamma(self.shape[0])) + 4.0 * SMALLEST)

    def matvec_error(self, w: Vector) -> float:
        """Bound the rounding error of every entry of ``matvec(w)``."""
        raw, _ = self._raw(w)
        n = int(np.count_nonzero(raw))
        error = self.base.matvec_error(raw)
        size = float(np.linalg.norm(raw)) * self.base.row_norm_over(np.flatnonzero(raw))
        if self.center is not None:
            shift = float(np.abs(self.center) @ np.abs(raw))
            error += float(gamma(n + 4)) * shift
            size += shift
        # The quotient w / scale and the subtraction are rounded once each, relative to what they act on.
        return float((error + 4.0 * UNIT * size) * (1.0 + 16.0 * gamma(max(n, self.shape[1]))) + 4.0 * SMALLEST)


class DistantView(AffineErrors):
    """Columns that live elsewhere, in other processes or on a device, centred and scaled on the way.

    Parameters
    ----------
    base : RowErrors
        The columns as they are stored.
    center, scale : array of shape (d,), or None
    zeros : array of int
        Columns that are constant and equal to their center.
    """

    base: Any

    def __init__(self, base: Any, center: Vector | None, scale: Vector | None, zeros: Index) -> None:
        self.base, self.center, self.scale, self.zeros = base, center, scale, zeros
        self.shape, self.dtype, self.n_threads = base.shape, base.dtype, base.n_threads


class AffineView(AffineErrors, Design):
    r"""The matrix :math:`Z = (X - 1 m^\top) Q^{-1}` with :math:`m` the centers and :math:`Q` the diagonal of the scales.

    Every product is one of the base matrix, in raw coordinates: :math:`Z w = X Q^{-1} w - 1 (m \cdot Q^{-1} w)` and
    :math:`Z^\top c = Q^{-1} (X^\top c - m (1 \cdot c))`. So a sparse base stays sparse.

    Parameters
    ----------
    base : StoredDesign
    center : (d,) array, optional
    scale : (d,) array of positive numbers, optional
    zeros : array of indices, optional
        Columns that are constant and equal to their center: their entry of :math:`Z^\top c` is 0, not 0 to rounding.
    """

    def __init__(
        self,
        base: StoredDesign,
        center: ArrayLike | None = None,
        scale: ArrayLike | None = None,
        zeros: ArrayLike | None = None,
    ) -> None:
        if not isinstance(base, StoredDesign):
            raise TypeError(f"base must be stored data, got {type(base).__name__}")
        self.base: StoredDesign = base
        self.shape = base.shape
        self.dtype = base.dtype
        self.n_threads = base.n_threads
        self.center = None if center is None else self._checked(center, "center")
        self.scale = None if scale is None else self._checked(scale, "scale")
        if self.scale is not None and not np.all(self.scale > 0):
            raise ValueError("scale must be positive")
        self.zeros = NO_INDEX if zeros is None else np.asarray(zeros, dtype=np.int64)
        self._row_norms_sq: Vector | None = None
        self._column_norms: Vector | None = None

    def _checked(self, values: ArrayLike, name: str) -> Vector:
        values = np.array(values, dtype=np.float64)
        if values.shape != self.shape[1:] or not np.all(np.isfinite(values)):
            raise ValueError(f"{name} must be {self.shape[1]} finite numbers")
        return np.asarray(frozen(values))

    @property
    def stored(self) -> StoredDesign:
        """The base."""
        return self.base

    # Products

    def _back(self, g: Vector, total: float) -> Vector:
        """Turn ``X'c`` in place into ``Z'c``, given the sum of ``c``."""
        if self.center is not None:
            g -= self.center * total
            g[self.zeros] = 0.0  # exactly: a constant column must never be selected
        if self.scale is not None:
            g /= self.scale
        return g

    def matvec(self, w: Vector, support: Index | None = None, rows: Index | None = None) -> Vector:
        """Compute ``Z w``, or ``Z[rows] w``."""
        w, shift = self._raw(w)
        u = self.base.matvec(w, support, rows)
        u -= shift
        return u

    def rmatvec(self, c: Vector, rows: Index | None = None) -> Vector:
        """Compute ``Z' c``, or ``Z[rows]' c``."""
        c = np.asarray(c, dtype=np.float64)
        return self._back(self.base.rmatvec(c, rows), float(c.sum()))

    def matvec_rmatvec(self, w: Vector, c: Vector) -> tuple[Vector, Vector]:
        """Compute ``Z w`` and ``Z' c`` with one read of X."""
        w, shift = self._raw(w)
        c = np.asarray(c, dtype=np.float64)
        u, g = self.base.matvec_rmatvec(w, c)
        u -= shift
        return u, self._back(g, float(c.sum()))

    def block_step(
        self, step: Step, w: Vector, offset: float, dual: DualState, y: Vector, s: Vector, rows: Index | None = None
    ) -> float:
        """Update the dual variables of some rows, and ``g`` with them; see :meth:`Design.block_step`."""
        w, shift = self._raw(w)
        raw = np.zeros(self.shape[1])
        total = self.base.block_step(step, w, offset - shift, replace(dual, g=raw), y, s, rows)
        change = self._back(raw, total)
        dual.g[:] = change if step.fresh else dual.g + change
        return total

    def weighted_gram(self, c: Vector) -> Vector:
        """Compute ``Z' diag(c) Z`` from the products of the base; dense data are centred first."""
        if not isinstance(self.base, SparseDesign):
            Z = self.toarray()
            self.count(1.0)
            return np.asarray((Z.T * c) @ Z)
        gram = self.base.weighted_gram(c)
        if self.center is not None:
            pull = np.outer(self.center, self.base.rmatvec(c))
            gram += float(c.sum()) * np.outer(self.center, self.center) - pull - pull.T
            gram[self.zeros] = gram[:, self.zeros] = 0.0
        return gram if self.scale is None else gram / np.outer(self.scale, self.scale)

    def hessian(self, c: Vector, center: Vector | None = None) -> Vector:
        """Compute ``(Z - 1 m')' diag(c) (Z - 1 m')`` for a center m, or without one; where the base is far, from its own."""
        if not self.base.is_far:
            return super().hessian(c, center)
        scale = np.ones(self.shape[1]) if self.scale is None else self.scale
        about = np.zeros(self.shape[1]) if center is None else center * scale
        found = self.base.hessian(c, about if self.center is None else about + self.center) / np.outer(scale, scale)
        found[self.zeros] = found[:, self.zeros] = 0.0
        return found

    def gram_cost(self) -> float:
        """Return the number of multiplications of :meth:`weighted_gram`."""
        return self.base.gram_cost()

    def column_entries(self, features: Index) -> Entries:
        """Return the entries of some columns: of sparse ones as they are stored but for their scale, of others centred."""
        found = self.base.column_entries(features)
        if self.center is not None and isinstance(found, DenseEntries):
            found.x = found.x - self.center[features]
        if self.scale is not None:
            found.x = found.x / found.per(self.scale[features])
        return found

    def columns(self, support: Index) -> AffineView:
        """Return a compact copy restricted to some features."""
        center = None if self.center is None else self.center[support]
        scale = None if self.scale is None else self.scale[support]
        base: Any = self.base.columns(support)
        return AffineView(base, center, scale, np.flatnonzero(np.isin(support, self.zeros)))

    def toarray(self, rows: Index | None = None, copy: bool = True) -> Vector:
        """Return the rows as a dense float64 array; a new one where there is anything to centre or scale."""
        Z = self.base.toarray(rows, copy or self.center is not None or self.scale is not None)

        def part(some: slice) -> None:
            own = Z[some]
            if self.center is not None:
                own -= self.center
            if self.scale is not None:
                own /= self.scale

        in_slices(part, len(Z), self.n_threads)
        return Z

    def parts(self) -> list[Design]:
        """Return the same view of each block of the base."""
        return [
            AffineView(base, self.center, self.scale, self.zeros)
            for base, _ in (part.raw() for part in self.base.parts())
        ]

    def raw(self) -> tuple[StoredDesign, Vector | None]:
        """Return the base and the scales."""
        return self.base, self.scale

    def visits(self, features: Index | None = None) -> Visits:
        """Return the rows as visits read them: centred and scaled if they are dense, only scaled if they are sparse."""
        return self.base._visits_of(self, features)

    # Norms

    def row_norms_sq(self) -> Vector:
        """Squared Euclidean norms of the rows."""
        if self._row_norms_sq is None:
            self._row_norms_sq = frozen(self.base._affine_row_norms_sq(self.center, self.scale))
            self.base._passes += 1.0
        return self._row_norms_sq

    def square_sum(self, c: Vector) -> float:
        """Compute ``sum_i c_i ||z_i||^2``."""
        return self.base.affine_square_sum(c, self)

    def column_norms(self) -> Vector:
        """Euclidean norms of the columns."""
        if self._column_norms is None:
            norms = np.sqrt(self.base._spread(np.ones(self.shape[0]), self.center))
            self._column_norms = frozen(norms if self.scale is None else norms / self.scale)
            self.base._passes += 1.0
        return self._column_norms

    def spread(self, c: Vector, center: Vector) -> Vector:
        """Compute ``sum_i c_i (z_ij - center_j)^2`` for every column j."""
        raw = center if self.scale is None else center * self.scale
        spread = self.base.spread(c, raw if self.center is None else raw + self.center)
        return spread if self.scale is None else spread / self.scale**2

    def moments(self, s: Vector) -> tuple[Vector, Vector]:
        """Mean and variance of every column under the weights ``s``, which sum to 1."""
        mean, variance = self.base.moments(s)
        if self.center is not None:
            mean = mean - self.center
        if self.scale is not None:
            mean, variance = mean / self.scale, variance / self.scale**2
        return mean, variance

    def is_nonnegative(self) -> bool:
        """Whether no entry of the base matrix is negative."""
        return self.base.is_nonnegative()

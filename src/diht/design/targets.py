"""The columns of X, once for each of several targets: those of a matrix with X in every block of its diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diht.design.base import Features, Index, OfBase
from diht.numerics.arrays import Vector

__all__ = ["TargetFeatures"]


class TargetFeatures(OfBase):
    """Columns by their targets and their places in X.

    Parameters
    ----------
    base : Features
        X, or some columns of it.
    target, column : arrays of int
        The target of each column, and which one of X it is.
    n_targets : int
    coupled : bool
        Whether a Hessian has blocks for pairs of targets.
    """

    def __init__(
        self, base: Features, target: NDArray[np.int64], column: NDArray[np.int64], n_targets: int, coupled: bool
    ) -> None:
        self.base, self.target, self.column, self.n_targets = base, target, column, n_targets
        self.shape, self.dtype, self.n_threads = (base.shape[0] * n_targets, len(target)), base.dtype, base.n_threads
        self._blocks = n_targets * (n_targets - 1) // 2 if coupled else n_targets

    def by_target(self, w: NDArray[Any]) -> NDArray[Any]:
        """Return coefficients of the columns as rows of all columns of X, one for each target."""
        W = np.zeros((self.n_targets, self.base.shape[1]), dtype=w.dtype)
        W[self.target, self.column] = w
        return W

    def gathered(self, W: NDArray[Any]) -> NDArray[Any]:
        """Return those of the columns out of such rows."""
        return W[self.target, self.column]

    def count_reads_of(self, part: Features) -> None:
        """Count what has been read of a compact copy as its fraction of X."""
        self.base.count_reads_of(part.base if isinstance(part, TargetFeatures) else part)

    def occupied(self) -> Index:
        """Return the columns, ascending, that may hold anything but zeros."""
        return np.flatnonzero(np.isin(self.column, self.base.occupied()))

    def fraction(self, support: Index) -> float:
        """Fraction of the stored entries that some features hold."""
        return self.base.fraction(np.unique(self.column[support]))

    def keepable(self, features: Index) -> bool:
        """Whether some columns of X fit into memory."""
        return self.base.keepable(np.unique(self.column[features]))

    def gram_cost(self) -> float:
        """Return the number of multiplications of a Hessian that is formed from the stored entries."""
        return self._blocks * self.base.gram_cost()

    def dense_gram_cost(self, n_columns: int | None = None) -> float:
        """Return the number of multiplications of a Hessian, of so many columns, as a product of dense matrices."""
        return self._blocks * self.base.dense_gram_cost(self._of_base(n_columns))

    def entries(self, n_columns: int | None = None) -> float:
        """Return the number of entries of a dense copy of the columns of X that so many belong to."""
        return self.base.entries(self._of_base(n_columns))

    def _of_base(self, n_columns: int | None) -> int | None:
        return None if n_columns is None else -(-n_columns // self.n_targets)

    def column_norms(self) -> Vector:
        """Euclidean norms of the columns."""
        return np.asarray(self.base.column_norms()[self.column])

    def read_norms(self) -> Vector:
        """Norms of the columns as products read them."""
        return np.asarray(self.base.read_norms()[self.column])

    def rmatvec_error(self, norm_c: float) -> Vector:
        """Bound the rounding error of each entry of a product with the transpose."""
        return np.asarray(self.base.rmatvec_error(norm_c)[self.column])

    def matvec_error(self, w: Vector) -> float:
        """Bound the rounding error of every entry of a product."""
        return max(self.base.matvec_error(own) for own in self.by_target(w))

    def constants(self, features: Index) -> Vector:
        """Return the value of each of some columns that is constant, NaN for the others."""
        columns, at = np.unique(self.column[features], return_inverse=True)
        return np.asarray(self.base.constants(columns)[at])

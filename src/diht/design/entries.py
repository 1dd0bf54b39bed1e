"""Some columns of X, entry by entry, beside what belongs to their rows and to the columns themselves.

Vectors of entries are arrays that broadcast with each other: a number for each stored entry, or for each row and column. A sparse
matrix's entries that are not stored are zero, whatever centre its columns have: a multiple of a column and the same multiple of the
centred one differ by an intercept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from diht.numerics.arrays import Vector

__all__ = ["DenseEntries", "Entries", "SparseEntries"]


class Entries(ABC):
    """The entries of some columns.

    Attributes
    ----------
    x : array
        The entries themselves.
    are_whole : bool
        Whether every row has an entry in each column.
    """

    x: NDArray[Any]
    are_whole: ClassVar[bool]

    @property
    @abstractmethod
    def n_columns(self) -> int:
        """The number of columns."""

    @abstractmethod
    def gram(self, A: Vector, e: NDArray[Any]) -> Vector:
        """Compute A' diag(e_j) A for each column e_j of entries."""

    @abstractmethod
    def at(self, v: Vector) -> NDArray[Any]:
        """Return the number of its row for each entry."""

    @abstractmethod
    def per(self, t: Vector) -> NDArray[Any]:
        """Return the number of its column for each entry."""

    @abstractmethod
    def mixed(self, A: Vector, Q: Vector) -> NDArray[Any]:
        """Return the entry of A Q for each entry: A has a row for each row of X, Q a column for each of these columns."""

    @abstractmethod
    def total(self, e: NDArray[Any]) -> Vector:
        """Add up the entries of each column."""

    @abstractmethod
    def largest(self, e: NDArray[Any]) -> Vector:
        """Return the largest of each column, or 0 where all are negative or there is none."""

    @abstractmethod
    def pull(self, A: Vector, e: NDArray[Any]) -> Vector:
        """Compute A'E, E the matrix of these entries."""


class DenseEntries(Entries):
    """All entries, (N, m)."""

    are_whole = True

    def __init__(self, x: Vector) -> None:
        self.x = x

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return int(self.x.shape[1])

    def gram(self, A: Vector, e: NDArray[Any]) -> Vector:
        """Compute A' diag(e_j) A for each column e_j of entries."""
        return np.array([(A.T * column) @ A for column in np.broadcast_to(e, self.x.shape).T])

    def at(self, v: Vector) -> NDArray[Any]:
        """Return the numbers of the rows, as a column."""
        return v[:, None]

    def per(self, t: Vector) -> NDArray[Any]:
        """Return the numbers of the columns, as a row."""
        return t[None, :]

    def mixed(self, A: Vector, Q: Vector) -> NDArray[Any]:
        """Compute A Q."""
        return np.asarray(A @ Q)

    def total(self, e: NDArray[Any]) -> Vector:
        """Add up the rows."""
        return np.asarray(np.broadcast_to(e, self.x.shape).sum(axis=0))

    def largest(self, e: NDArray[Any]) -> Vector:
        """Return the largest of each column."""
        return np.asarray(np.broadcast_to(e, self.x.shape).max(axis=0, initial=0.0))

    def pull(self, A: Vector, e: NDArray[Any]) -> Vector:
        """Compute A'E."""
        return np.asarray(A.T @ np.broadcast_to(e, self.x.shape))


class SparseEntries(Entries):
    """The stored entries of sparse columns, one column after the other.

    Those of column j are ``x[starts[j]:starts[j + 1]]``, in the rows ``rows[starts[j]:starts[j + 1]]``.

    Parameters
    ----------
    x : array
        The entries.
    rows : array of int
        Their rows.
    counts : array of int
        How many each column has.
    """

    are_whole = False

    def __init__(self, x: Vector, rows: NDArray[Any], counts: NDArray[Any]) -> None:
        self.x, self.rows = x, rows
        self.starts = np.concatenate([[0], np.cumsum(counts)])
        self._columns = np.repeat(np.arange(len(counts)), counts)

    @property
    def n_columns(self) -> int:
        """The number of columns."""
        return len(self.starts) - 1

    def gram(self, A: Vector, e: NDArray[Any]) -> Vector:
        """Compute A' diag(e_j) A for each column e_j of entries."""
        ends = zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
        return np.array([(A[self.rows[i:j]].T * e[i:j]) @ A[self.rows[i:j]] for i, j in ends])

    def at(self, v: Vector) -> NDArray[Any]:
        """Return the number of its row for each entry."""
        return np.asarray(v[self.rows])

    def per(self, t: Vector) -> NDArray[Any]:
        """Return the number of its column for each entry."""
        return np.asarray(t[self._columns])

    def mixed(self, A: Vector, Q: Vector) -> NDArray[Any]:
        """Return the entry of A Q for each entry."""
        return np.asarray(np.einsum("ek,ek->e", A[self.rows], Q.T[self._columns]))

    def total(self, e: NDArray[Any]) -> Vector:
        """Add up the entries of each column."""
        return np.bincount(self._columns, e, minlength=len(self.starts) - 1).astype(np.float64, copy=False)

    def largest(self, e: NDArray[Any]) -> Vector:
        """Return the largest of each column, or 0."""
        found, held = np.zeros(len(self.starts) - 1), np.flatnonzero(np.diff(self.starts))
        if len(held):
            found[held] = np.maximum(np.maximum.reduceat(e, self.starts[held]), 0.0)
        return found

    def pull(self, A: Vector, e: NDArray[Any]) -> Vector:
        """Compute A'E."""
        import scipy.sparse as sp

        E = sp.csr_array((e, self.rows, self.starts), shape=(len(self.starts) - 1, len(A)))
        return np.asarray((E @ A).T)

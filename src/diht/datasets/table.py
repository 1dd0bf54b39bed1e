"""What every reader returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from diht.tables import Frame

__all__ = ["Matrix", "Table"]

Matrix: TypeAlias = Any  # ndarray, csr_array, Design or Frame


@dataclass(frozen=True, eq=False)
class Table:
    """A data file in memory, or a data set on disk: one row a sample, one column a feature.

    Attributes
    ----------
    X : ndarray, csr_array, Design or Frame of shape (n_samples, n_features)
        Finite float64 (float32 where the file holds float32).  Sparse for svmlight and for a sparse ``.npz``; a Design for a
        data set on disk; a Frame where columns hold texts or miss values, and texts are asked for.
    y : ndarray of shape (n_samples,) or (n_samples, n_targets), or None
        float64, or strings where the targets are class names; None where the file has no target.
    feature_names, target_names : list of str, or None
        None where the format has no names; of a single target it is a list of one.
    path : str
        Where the table came from.
    zero_based : bool or None
        svmlight only: whether the indices in the file start at 0.  A file that is read for a model fitted to
        this one must be read with the same value, whichever indices happen to occur in it.
    weights : ndarray of shape (n_samples,), or None
        The weights of the samples, where the data has some.
    sparse_blocks : bool
        Of a data set on disk whether its blocks are sparse.
    """

    X: Matrix
    y: NDArray[Any] | None
    feature_names: list[str] | None
    target_names: list[str] | None
    path: str
    zero_based: bool | None = None
    weights: NDArray[np.float64] | None = None
    sparse_blocks: bool = False

    def rows(self, rows: NDArray[np.int64]) -> Table:
        """Return some of the rows, of a table in memory."""
        X = self.X.rows(rows) if isinstance(self.X, Frame) else self.X[rows]
        y, weights = (None if values is None else values[rows] for values in (self.y, self.weights))
        return replace(self, X=X, y=y, weights=weights)

    def only(self, names: Sequence[str]) -> Table:
        """Return some of the columns, of a dense table with names."""
        assert self.feature_names is not None
        if isinstance(self.X, Frame):
            return replace(self, X=self.X.only(names), feature_names=list(names))
        place = {name: j for j, name in enumerate(self.feature_names)}
        return replace(self, X=self.X[:, [place[name] for name in names]], feature_names=list(names))

    @property
    def frame(self) -> Frame:
        """The features as columns with names; of dense tables only."""
        if isinstance(self.X, Frame):
            return self.X
        names = [f"x{j}" for j in range(self.X.shape[1])] if self.feature_names is None else self.feature_names
        return Frame(tuple(names), tuple(np.asarray(self.X, dtype=np.float64).T), self.X.shape[0])

    @property
    def is_sparse(self) -> bool:
        """Whether ``X`` is a sparse array, or has sparse blocks."""
        return self.sparse_blocks or hasattr(self.X, "indptr")

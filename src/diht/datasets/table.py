"""What every reader returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Matrix", "Table"]

Matrix: TypeAlias = "NDArray[np.floating[Any]] | csr_array"


@dataclass(frozen=True, eq=False)
class Table:
    """A data file in memory: one row a sample, one column a feature.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Finite float64 (float32 where the file holds float32).  Sparse for svmlight and for a sparse ``.npz``.
    y : ndarray of shape (n_samples,) or (n_samples, n_targets), or None
        float64, or strings where the targets are class names; None where the file has no target.
    feature_names, target_names : list of str, or None
        None where the format has no names; of a single target it is a list of one.
    path : str
        Where the table came from.
    zero_based : bool or None
        svmlight only: whether the indices in the file start at 0.  A file that is read for a model fitted to
        this one must be read with the same value, whichever indices happen to occur in it.
    """

    X: Matrix
    y: NDArray[Any] | None
    feature_names: list[str] | None
    target_names: list[str] | None
    path: str
    zero_based: bool | None = None

    @property
    def is_sparse(self) -> bool:
        """Whether ``X`` is a sparse array."""
        return not isinstance(self.X, np.ndarray)

"""What is known of the columns of an X on a device: numbers of the features, on the host."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from diht.design import Features
from diht.design.base import RowErrors, cut_at
from diht.design.view import DistantView
from diht.gpu.interchange import SMALL
from diht.gpu.matrix import Matrix, as_numpy, on_device
from diht.numerics.arrays import Indices, Vector

__all__ = ["DeviceColumns", "DeviceView"]


# In the time of one multiplication of a core a GPU makes so many, of matrices in float64, and reads so many times as many entries;
# a dense copy of some columns of a dense matrix takes memory besides.
_FASTER, _DENSE_ENTRIES, _SPARSE_ENTRIES = 4000.0, 30.0, 1000.0
_LAUNCHES = 2e7  # multiplications of a core in the time that a Hessian takes however small it is


class _Costs(Features):
    """What products cost, in units of a core of the host."""

    base: Any

    def dense_gram_cost(self, n_columns: int | None = None) -> float:
        """Return the cost of a Hessian of so many columns."""
        n = float(self.shape[1] if n_columns is None else n_columns)
        cost = float(self.shape[0]) * n * n
        return cost / _FASTER + _LAUNCHES if self.base.is_fast else cost

    def entries(self, n_columns: int | None = None) -> float:
        """Return the number of entries of a dense copy of so many columns, as many as take the time here that they take there."""
        found = super().entries(n_columns)
        if not self.base.is_fast:
            return found
        return found / (_SPARSE_ENTRIES if self.base.matrix.is_sparse else _DENSE_ENTRIES)


class DeviceColumns(_Costs, RowErrors):
    """Columns as they are stored.

    Parameters
    ----------
    matrix : Matrix
    roundings : int
        How often an entry was rounded before it was stored.
    is_fast : bool, optional
        Whether costs are those of a GPU; by default where they are on one and not few. Few are counted as the host counts them: the
        same work is done, with the same answers.
    """

    n_threads = 1

    def __init__(self, matrix: Matrix, roundings: int = 0, is_fast: bool | None = None) -> None:
        self.matrix, self.shape, self.roundings = matrix, matrix.shape, roundings
        large = matrix.device.type != "cpu" and matrix.shape[0] * matrix.shape[1] > SMALL
        self._is_fast = large if is_fast is None else is_fast
        self.dtype = np.dtype(str(matrix.dtype).removeprefix("torch."))
        self._reads = 0.0

    @property
    def base(self) -> DeviceColumns:
        """Themselves."""
        return self

    @property
    def is_fast(self) -> bool:
        """Whether costs are those of a GPU."""
        return self._is_fast

    @property
    def is_far(self) -> bool:
        """Whether the matrix is on the host, in part."""
        return self.matrix.is_far

    def keepable(self, features: Indices) -> bool:
        """Whether some columns fit on the device."""
        return self.matrix.holds(len(features))

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix."""
        return self.matrix.nbytes

    @property
    def data_dtype(self) -> np.dtype[Any]:
        """The type of the data."""
        return self.dtype

    @property
    def passes(self) -> float:
        """Reads of the whole of X so far."""
        return self._reads

    def count(self, passes: float) -> None:
        """Count reads."""
        self._reads += passes

    def count_reads_of(self, part: Features) -> None:
        """Count what has been read of a compact copy as its fraction of X."""
        self._reads += part.passes * part.nbytes / max(1, self.nbytes)

    @cached_property
    def _counts(self) -> Vector:
        return as_numpy(self.matrix.counts()).astype(np.float64)

    @cached_property
    def _norms(self) -> Vector:
        self.count(1.0)
        norms: Vector = np.sqrt(as_numpy(self.matrix.column_spread(self._ones, None)))
        return norms

    def first_product(self, c: Any) -> Any:
        """Return ``X'c`` of the first vector, and have the norms of the columns from the same read; None where that is two."""
        both = None if "_norms" in self.__dict__ else self.matrix.rmatvec_and_squares(c)
        if both is None:
            return None
        self.count(1.0)
        self._norms = np.sqrt(as_numpy(both[1]))
        return both[0]

    @property
    def _ones(self) -> Any:
        return on_device(np.ones(self.shape[0]), self.matrix.device)

    @cached_property
    def _largest_row(self) -> float:
        self.count(1.0)
        return float(self.matrix.row_spread(None, None).max().sqrt())

    @cached_property
    def _longest_row(self) -> int:
        return int(self.matrix.row_counts().max())

    def occupied(self) -> Indices:
        """Return the columns, ascending, that may hold anything but zeros."""
        return np.flatnonzero(self._counts) if self.matrix.is_sparse else np.arange(self.shape[1])

    def fraction(self, support: Indices) -> float:
        """Fraction of the stored entries that some features hold."""
        if not self.matrix.is_sparse:
            return len(support) / max(1, self.shape[1])
        return float(self._counts[support].sum()) / max(1.0, float(self._counts.sum()))

    def column_norms(self) -> Vector:
        """Euclidean norms of the columns."""
        return self._norms

    def constants(self, features: Indices) -> Vector:
        """Return the value of each of some columns that is constant, NaN for the others."""
        if not len(features):
            return np.empty(0)
        return as_numpy(self.matrix.constants(on_device(features, self.matrix.device)))

    def pieces(self, features: Indices, most: float) -> list[Indices]:
        """Cut features into groups whose columns have at most so many entries, but for single ones: copies of them are dense."""
        return cut_at(features, np.full(len(features), float(self.shape[0])), most)

    def _column_counts(self) -> Vector:
        return self._counts.copy()

    def _max_row_count(self) -> int:
        return self._longest_row

    def largest_row_norm(self) -> float:
        """Return the largest Euclidean norm of a row."""
        return self._largest_row

    def row_norm_over(self, features: Indices) -> float:
        """Return the largest norm of a row over some features, where they alone are read; else over all."""
        if self.matrix.is_sparse or self.matrix.is_far or not len(features):
            return self._largest_row if len(features) else 0.0
        self.count(self.fraction(features))
        return float(self.matrix.row_squares_of(on_device(features, self.matrix.device)).max().sqrt())


class DeviceView(_Costs, DistantView):
    """Such columns, centred and scaled on the way."""

    base: DeviceColumns

    @property
    def is_fast(self) -> bool:
        """Whether costs are those of a GPU."""
        return self.base.is_fast

    @property
    def is_far(self) -> bool:
        """Whether the matrix is on the host, in part."""
        return self.base.is_far

    def keepable(self, features: Indices) -> bool:
        """Whether some columns fit on the device."""
        return self.base.keepable(features)

    @cached_property
    def _norms(self) -> Vector:
        self.count(1.0)
        matrix = self.base.matrix
        center = None if self.center is None else on_device(self.center, matrix.device)
        norms: Vector = np.sqrt(as_numpy(matrix.column_spread(self.base._ones, center)))
        norms[self.zeros] = 0.0
        return norms if self.scale is None else norms / self.scale

    def column_norms(self) -> Vector:
        """Euclidean norms of the columns."""
        return self._norms

    def constants(self, features: Indices) -> Vector:
        """Return the value of each of some columns that is constant, NaN for the others."""
        values = self.base.constants(features)
        if self.center is not None:
            values = values - self.center[features]
        return values if self.scale is None else values / self.scale[features]

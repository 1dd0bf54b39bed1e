"""X on a device: dense, in either order, or CSR. Entries are loaded as they are stored, float32 or float64; sums are in float64."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from diht.gpu import kernels

__all__ = ["Dense", "Matrix", "Sparse", "as_numpy", "on_device"]

Tensor: TypeAlias = Any  # torch.Tensor

_CHUNK = 1 << 25  # entries of rows that are converted to float64 at a time,
_LARGE_CHUNK = 1 << 27  # and on a GPU, where each step takes some time of its own


def on_device(values: NDArray[Any], device: Any) -> Tensor:
    """Return numbers of numpy's on a device, floating point ones in float64."""
    values = np.ascontiguousarray(values)
    if not values.flags.writeable:  # torch warns of memory that it must not write
        values = values.copy()
    return torch.from_numpy(values).to(device)


def as_numpy(tensor: Tensor) -> NDArray[Any]:
    """Return the numbers of a tensor on the host, in memory of their own."""
    return np.array(tensor.detach().cpu().numpy())


class Matrix(ABC):
    """N rows and d columns on a device, of which vectors in float64 are tensors on the same device."""

    shape: tuple[int, int]
    dtype: Any
    device: Any

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory that the entries take."""

    @property
    @abstractmethod
    def is_sparse(self) -> bool:
        """Whether only entries other than zero are stored."""

    @property
    def is_far(self) -> bool:
        """Whether a read takes far longer than one of what is on the device."""
        return False

    def holds(self, n_features: int) -> bool:
        """Whether some columns fit on the device."""
        return True

    @abstractmethod
    def matvec(self, w: Tensor, rows: Tensor | None = None) -> Tensor:
        """Compute ``X w``, or that of some rows."""

    @abstractmethod
    def rmatvec(self, c: Tensor, rows: Tensor | None = None) -> Tensor:
        """Compute ``X' c``, or ``X[rows]' c``."""

    def rmatvec_and_squares(self, c: Tensor) -> tuple[Tensor, Tensor] | None:
        """Compute ``X' c`` and ``sum_i x_ij^2``; None where that takes more than one read."""
        return None

    def matvec_of(self, features: Tensor, w: Tensor) -> Tensor:
        """Compute the product of some columns with w."""
        return self.columns(features).matvec(w)

    def row_squares_of(self, features: Tensor) -> Tensor:
        """Compute ``sum_j x_ij^2`` over some columns for every row i."""
        return self.columns(features).row_spread(None, None)

    @abstractmethod
    def columns(self, features: Tensor) -> Matrix:
        """Return a copy of some columns."""

    @abstractmethod
    def dense_rows(self, rows: Any) -> Tensor:
        """Return some rows, dense, in float64."""

    @abstractmethod
    def counts(self) -> Tensor:
        """Return the number of stored entries of every column."""

    @abstractmethod
    def row_counts(self) -> Tensor:
        """Return the number of stored entries of every row."""

    @abstractmethod
    def constants(self, features: Tensor) -> Tensor:
        """Return the value of each of some columns that is constant, NaN for the others."""

    @abstractmethod
    def column_spread(self, c: Tensor, center: Tensor | None) -> Tensor:
        """Compute ``sum_i c_i (x_ij - center_j)^2`` for every column j."""

    @abstractmethod
    def row_spread(self, center: Tensor | None, scale: Tensor | None) -> Tensor:
        """Compute ``sum_j ((x_ij - center_j) / scale_j)^2`` for every row i."""

    @abstractmethod
    def is_nonnegative(self) -> bool:
        """Whether no stored entry is negative."""

    def chunks(self, width: int | None = None, most: int | None = None) -> Iterator[slice]:
        """Cut the rows such that a dense float64 copy of each part is small."""
        n, d = self.shape
        chunk = _CHUNK if self.device.type == "cpu" else _LARGE_CHUNK
        step = max(1, chunk // max(1, d if width is None else width))
        step = step if most is None else min(step, most)
        return (slice(start, min(start + step, n)) for start in range(0, n, step))

    def part(self, first: int, last: int) -> Matrix:
        """Return some rows that follow each other."""
        raise TypeError("rows that are apart are not cut")

    def _zeros(self, n: int) -> Tensor:
        return torch.zeros(n, dtype=torch.float64, device=self.device)


class Dense(Matrix):
    """A dense matrix.

    Parameters
    ----------
    X : torch.Tensor of shape (N, d), float32 or float64
    """

    is_sparse = False

    def __init__(self, X: Tensor) -> None:
        self.X = X if X.stride(1) == 1 or X.stride(0) == 1 else X.contiguous()
        self.shape, self.dtype, self.device = (int(X.shape[0]), int(X.shape[1])), X.dtype, X.device

    @property
    def nbytes(self) -> int:
        """Memory that the entries take."""
        return int(self.X.numel() * self.X.element_size())

    @property
    def _kernels(self) -> bool:
        """Whether products go to kernels of our own: torch's add float32 entries up in float32."""
        return self.dtype == torch.float32 and kernels.take(self.X)

    def matvec(self, w: Tensor, rows: Tensor | None = None) -> Tensor:
        """Compute ``X w``, or that of some rows."""
        if rows is not None:
            return self.dense_rows(rows) @ w
        if self.dtype == torch.float64:
            return self.X @ w
        if self._kernels:
            return kernels.dense_matvec(self.X, w)
        u = self._zeros(self.shape[0])
        for part in self.chunks():
            u[part] = self.X[part].to(torch.float64) @ w
        return u

    def rmatvec(self, c: Tensor, rows: Tensor | None = None) -> Tensor:
        """Compute ``X' c``, or ``X[rows]' c``."""
        if rows is not None:
            return self.dense_rows(rows).T @ c
        if self.dtype == torch.float64:
            return self.X.T @ c
        if self._kernels:
            return kernels.dense_rmatvec(self.X, c)
        g = self._zeros(self.shape[1])
        for part in self.chunks():
            g += self.X[part].to(torch.float64).T @ c[part]
        return g

    def rmatvec_and_squares(self, c: Tensor) -> tuple[Tensor, Tensor] | None:
        """Compute ``X' c`` and ``sum_i x_ij^2``; None where that takes more than one read."""
        if not (self._kernels and self.X.stride(1) == 1):
            return None
        return kernels.dense_rmatvec_and_squares(self.X, c)

    def matvec_of(self, features: Tensor, w: Tensor) -> Tensor:
        """Compute the product of some columns with w."""
        if self._kernels and self.X.stride(1) == 1:
            return kernels.dense_matvec_of(self.X, features, w)
        return super().matvec_of(features, w)

    def row_squares_of(self, features: Tensor) -> Tensor:
        """Compute ``sum_j x_ij^2`` over some columns for every row i."""
        if self._kernels and self.X.stride(1) == 1:
            zeros = self._zeros(len(features))
            return kernels.dense_row_spread(self.X, zeros + 1.0, zeros, features)
        return super().row_squares_of(features)

    def columns(self, features: Tensor) -> Dense:
        """Return a copy of some columns."""
        return Dense(torch.index_select(self.X, 1, features))

    def dense_rows(self, rows: Any) -> Tensor:
        """Return some rows in float64."""
        return self.X[rows].to(torch.float64, copy=True)

    def part(self, first: int, last: int) -> Dense:
        """Return some rows that follow each other."""
        return Dense(self.X[first:last])

    def counts(self) -> Tensor:
        """Return the number of rows, for every column."""
        return torch.full((self.shape[1],), self.shape[0], device=self.device)

    def row_counts(self) -> Tensor:
        """Return the number of columns, for every row."""
        return torch.full((self.shape[0],), self.shape[1], device=self.device)

    def constants(self, features: Tensor) -> Tensor:
        """Return the value of each of some columns that is constant, NaN for the others."""
        first = self.X[0, features].to(torch.float64)
        same = torch.ones_like(first, dtype=torch.bool)
        for part in self.chunks(len(features)):
            same &= torch.all(self.X[part][:, features] == self.X[0, features], 0)
        return torch.where(same, first, torch.nan)

    def column_spread(self, c: Tensor, center: Tensor | None) -> Tensor:
        """Compute ``sum_i c_i (x_ij - center_j)^2`` for every column j."""
        if kernels.take(self.X) and self.X.stride(1) == 1:
            return kernels.dense_spread(self.X, c, self._zeros(self.shape[1]) if center is None else center)
        g = self._zeros(self.shape[1])
        for part in self.chunks():
            Z = self._about(part, center, None)
            g += Z.square_().T @ c[part]
        return g

    def row_spread(self, center: Tensor | None, scale: Tensor | None) -> Tensor:
        """Compute ``sum_j ((x_ij - center_j) / scale_j)^2`` for every row i."""
        if self._kernels and self.X.stride(1) == 1:
            zeros = self._zeros(self.shape[1])
            w = zeros + 1.0 if scale is None else 1.0 / scale.square()
            return kernels.dense_row_spread(self.X, w, zeros if center is None else center)
        parts = [self._about(part, center, scale).square_().sum(1) for part in self.chunks()]
        return torch.cat(parts)

    def _about(self, part: slice, center: Tensor | None, scale: Tensor | None) -> Tensor:
        Z = self.dense_rows(part)
        if center is not None:
            Z -= center
        if scale is not None:
            Z /= scale
        return Z

    def is_nonnegative(self) -> bool:
        """Whether no entry is negative."""
        return all(bool(torch.all(self.X[part] >= 0)) for part in self.chunks())


class Sparse(Matrix):
    """A sparse matrix by its rows, with a copy by its columns that is made when it is needed.

    Parameters
    ----------
    starts : torch.Tensor of shape (N + 1,)
        Where each row begins.
    index : torch.Tensor of int
        The columns of the entries, ascending within a row, each once.
    values : torch.Tensor of float32 or float64
    n_columns : int
    by_columns : tuple of three tensors, optional
        The same by columns.
    """

    is_sparse = True

    def __init__(
        self,
        starts: Tensor,
        index: Tensor,
        values: Tensor,
        n_columns: int,
        by_columns: tuple[Tensor, ...] | None = None,
    ) -> None:
        self.starts, self.index, self.values = starts, index, values
        self.shape, self.dtype, self.device = (len(starts) - 1, n_columns), values.dtype, values.device
        if by_columns is not None:
            self.by_columns = by_columns

    @property
    def nbytes(self) -> int:
        """Memory that the entries take, by rows alone."""
        arrays = self.starts, self.index, self.values
        return sum(int(array.numel() * array.element_size()) for array in arrays)

    @cached_property
    def by_columns(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where each column begins, the rows of its entries, ascending, and the entries."""
        return _transposed(self.starts, self.index, self.values, self.shape[1])

    def matvec(self, w: Tensor, rows: Tensor | None = None) -> Tensor:
        """Compute ``X w``, or that of some rows."""
        if rows is not None:
            return self._taken(rows).matvec(w)
        return _sums_of(self.starts, self.index, self.values, w, self._segments)

    def rmatvec(self, c: Tensor, rows: Tensor | None = None) -> Tensor:
        """Compute ``X' c``, or ``X[rows]' c``."""
        if rows is not None:
            return self._taken(rows).rmatvec(c)
        return _sums_of(*self.by_columns, c, self._column_segments)

    @cached_property
    def _segments(self) -> kernels.Segments:
        return kernels.Segments.of_rows(self.starts)

    @cached_property
    def _column_segments(self) -> kernels.Segments:
        return kernels.Segments.of_columns(*self.by_columns[:2], self.shape[0])

    def part(self, first: int, last: int) -> Sparse:
        """Return some rows that follow each other."""
        starts = self.starts[first : last + 1]
        begin, end = starts[[0, -1]].tolist()
        return Sparse(starts - begin, self.index[begin:end], self.values[begin:end], self.shape[1])

    def _taken(self, rows: Any) -> Sparse:
        """Return some rows."""
        return Sparse(*_slices(self.starts, self.index, self.values, rows), self.shape[1])

    def columns(self, features: Tensor) -> Sparse:
        """Return a copy of some columns, by rows and by columns."""
        return Sparse(*self.stored_columns(features), len(features), _slices(*self.by_columns, features))

    def stored_columns(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the entries of some columns by rows: where each begins, the places of its columns among them, and the entries."""
        place = torch.full((self.shape[1],), -1, dtype=self.index.dtype, device=self.device)
        place[features] = torch.arange(len(features), dtype=self.index.dtype, device=self.device)
        new = place[self.index]
        held = new >= 0
        before = torch.zeros(len(held) + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(held, 0, out=before[1:])
        index, values = new[held], self.values[held]
        starts = before[self.starts.to(torch.int64)]
        if bool(torch.any(features[1:] < features[:-1])):  # a row's entries are in the order of the features
            order = torch.argsort(_rows_of(starts) * len(features) + index, stable=True)
            index, values = index[order], values[order]
        return starts, index, values

    def dense_rows(self, rows: Any) -> Tensor:
        """Return some rows, dense, in float64."""
        if isinstance(rows, slice):
            part = self.part(*rows.indices(self.shape[0])[:2])
            starts, index, values = part.starts, part.index, part.values
        else:
            starts, index, values = _slices(self.starts, self.index, self.values, rows)
        out = torch.zeros((len(starts) - 1, self.shape[1]), dtype=torch.float64, device=self.device)
        at = _rows_of(starts, len(index)).mul_(self.shape[1]).add_(index)
        out.view(-1)[at] = values.to(torch.float64)
        return out

    def counts(self) -> Tensor:
        """Return the number of stored entries of every column."""
        return torch.diff(self.by_columns[0])

    def row_counts(self) -> Tensor:
        """Return the number of stored entries of every row."""
        return torch.diff(self.starts)

    def constants(self, features: Tensor) -> Tensor:
        """Return the value of each of some columns that is constant, NaN for the others."""
        n = self.shape[0]
        counts = self.counts()[features]
        starts, _, values = _slices(*self.by_columns, features)
        found = torch.where(
            counts == 0, 0.0, torch.full((len(features),), torch.nan, dtype=torch.float64, device=self.device)
        )
        for j in torch.nonzero(counts == n)[:, 0].tolist():
            own = values[int(starts[j]) : int(starts[j + 1])]
            if bool(torch.all(own == own[0])):
                found[j] = own[0].to(torch.float64)
        return found

    def column_spread(self, c: Tensor, center: Tensor | None) -> Tensor:
        """Compute ``sum_i c_i (x_ij - center_j)^2`` for every column j."""
        starts, rows, values = self.by_columns
        values, segments = values.to(torch.float64), self._column_segments
        if center is None:
            return _sums_of(starts, rows, values.square(), c, segments)
        # Entries that are not stored have the square of the centre, whose weights are all but those of the others.
        about = _sums_of(starts, rows, (values - center[_rows_of(starts)]).square_(), c, segments)
        stored = _sums_of(starts, rows, torch.ones_like(values), c, segments)
        return about + center.square() * (c.sum() - stored).clamp(min=0.0)

    def row_spread(self, center: Tensor | None, scale: Tensor | None) -> Tensor:
        """Compute ``sum_j ((x_ij - center_j) / scale_j)^2`` for every row i."""
        index, values = self.index.to(torch.int64), self.values.to(torch.float64)
        q = torch.ones(self.shape[1], dtype=torch.float64, device=self.device) if scale is None else scale
        one = torch.ones_like(q)
        if center is None:
            return _sums_of(self.starts, self.index, (values / q[index]).square_(), one)
        at_zero = (center / q).square()
        change = ((values - center[index]) / q[index]).square_() - at_zero[index]
        return (_sums_of(self.starts, self.index, change, one) + at_zero.sum()).clamp(min=0.0)

    def is_nonnegative(self) -> bool:
        """Whether no stored entry is negative."""
        return not len(self.values) or bool(self.values.min() >= 0)


def _rows_of(starts: Tensor, n_entries: int | None = None) -> Tensor:
    """Return the row of each entry; a device need not be asked for their number where it is given."""
    counts = torch.diff(starts)
    return torch.repeat_interleave(torch.arange(len(counts), device=starts.device), counts, output_size=n_entries)


def _slices(starts: Tensor, index: Tensor, values: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return some rows of a matrix that is stored by rows."""
    first, counts = starts[:-1][chosen].to(torch.int64), torch.diff(starts)[chosen].to(torch.int64)
    own = torch.zeros(len(counts) + 1, dtype=torch.int64, device=starts.device)
    torch.cumsum(counts, 0, out=own[1:])
    at = torch.arange(int(own[-1]), device=starts.device) + torch.repeat_interleave(first - own[:-1], counts)
    return own, index[at], values[at]


def _sums_of(
    starts: Tensor, index: Tensor, values: Tensor, v: Tensor, segments: kernels.Segments | None = None
) -> Tensor:
    """Compute the products of the rows of a matrix that is stored by rows with a vector, in float64."""
    if kernels.take(values):
        return (kernels.Segments.of_rows(starts) if segments is None else segments).dots(index, values, v)
    terms = values.to(torch.float64) * v[index.to(torch.int64)]
    return torch.segment_reduce(terms, "sum", lengths=torch.diff(starts).to(torch.int64), initial=0.0, unsafe=True)


def _transposed(starts: Tensor, index: Tensor, values: Tensor, n_columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same matrix stored by columns."""
    order = torch.argsort(index, stable=True)
    counts = torch.bincount(index, minlength=n_columns)
    first = torch.zeros(n_columns + 1, dtype=torch.int64, device=starts.device)
    torch.cumsum(counts, 0, out=first[1:])
    return first, _rows_of(starts).to(index.dtype)[order], values[order]

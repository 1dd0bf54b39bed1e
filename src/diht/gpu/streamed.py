"""An X that is larger than the memory of a device: blocks of rows, some of them there, the others copied at each read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import torch

from diht.gpu.matrix import Dense, Matrix, Sparse

__all__ = ["Streamed", "copied"]

Tensor: TypeAlias = Any  # torch.Tensor


class Streamed(Matrix):
    """Blocks of rows. While products with one are computed the next is on its way.

    Parameters
    ----------
    parts : sequence of Dense or Sparse
        Those of the host in memory that the device can read, sparse ones by rows and by columns.
    device : torch.device
    memory : float
        Bytes of the device that X may take: columns that fit are kept there.
    """

    def __init__(self, parts: Sequence[Matrix], device: Any, memory: float) -> None:
        first = parts[0]
        self.parts, self.device, self.dtype, self.memory = list(parts), device, first.dtype, memory
        starts = [0]
        for part in parts:
            starts.append(starts[-1] + part.shape[0])
        self._slices = [slice(*ends) for ends in pairwise(starts)]
        self.shape = starts[-1], first.shape[1]
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._last: tuple[int, Matrix] | None = None  # the block that single rows were read from

    @property
    def nbytes(self) -> int:
        """Memory that the entries take."""
        return sum(part.nbytes for part in self.parts)

    @property
    def is_sparse(self) -> bool:
        """Whether only entries other than zero are stored."""
        return self.parts[0].is_sparse

    @property
    def is_far(self) -> bool:
        """Whether a read takes far longer than one of what is on the device."""
        return True

    def holds(self, n_features: int) -> bool:
        """Whether some columns fit on the device."""
        return self.nbytes * (n_features / max(1, self.shape[1])) <= 0.5 * self.memory

    def _moved(self, part: Matrix, by_columns: bool) -> tuple[Matrix, Any]:
        """Begin to copy a block, of a sparse one what is asked for; return it with what to wait for."""
        if part.device == self.device or self._stream is None:
            return part, None
        with torch.cuda.stream(self._stream):
            moved = copied(part, lambda a: a.to(self.device, non_blocking=True), by_columns)
            moved.device = self.device
            return moved, self._stream.record_event()

    def _sweep(self, by_columns: bool = False) -> Iterator[tuple[slice, Matrix]]:
        """Return the rows of each block with it, on the device."""
        coming = self._moved(self.parts[0], by_columns)
        for i, rows in enumerate(self._slices):
            block, copied = coming
            if i + 1 < len(self.parts):
                coming = self._moved(self.parts[i + 1], by_columns)
            if copied is not None:
                current = torch.cuda.current_stream(self.device)
                current.wait_event(copied)
                for tensor in _tensors(block):
                    if tensor.is_cuda:
                        tensor.record_stream(current)
            yield rows, block

    def _block(self, i: int) -> Matrix:
        """Return one block by rows; the last one is kept."""
        if self._last is None or self._last[0] != i:
            self._last = None
            block, copied = self._moved(self.parts[i], False)
            if copied is not None:
                torch.cuda.current_stream(self.device).wait_event(copied)
            self._last = i, block
        return self._last[1]

    def _of_rows(self, rows: Tensor, work: Callable[[Matrix, Tensor], Tensor]) -> Tensor:
        """Return what is computed of some rows in the blocks that hold them, in their order."""
        found: Tensor = None
        for i, own in enumerate(self._slices):
            inside = torch.nonzero((rows >= own.start) & (rows < own.stop))[:, 0]
            if len(inside):
                part = work(self._block(i), rows[inside] - own.start)
                found = part.new_empty((len(rows), *part.shape[1:])) if found is None else found
                found[inside] = part
        return found

    def matvec(self, w: Tensor, rows: Tensor | None = None) -> Tensor:
        """Compute ``X w``, or that of some rows."""
        if rows is not None:
            return self._of_rows(rows, lambda block, own: block.matvec(w, own))
        return torch.cat([block.matvec(w) for _, block in self._sweep()])

    def rmatvec(self, c: Tensor, rows: Tensor | None = None) -> Tensor:
        """Compute ``X' c``, or ``X[rows]' c``."""
        g = self._zeros(self.shape[1])
        if rows is not None:
            for i, own in enumerate(self._slices):
                inside = torch.nonzero((rows >= own.start) & (rows < own.stop))[:, 0]
                if len(inside):
                    g += self._block(i).rmatvec(c[inside], rows[inside] - own.start)
            return g
        for own, block in self._sweep(by_columns=True):
            g += block.rmatvec(c[own])
        return g

    def columns(self, features: Tensor) -> Matrix:
        """Return a copy of some columns, on the device."""
        if not self.is_sparse:
            return Dense(torch.cat([block.columns(features).X for _, block in self._sweep()]))  # type: ignore[attr-defined]
        found: list[Any] = [block.stored_columns(features) for _, block in self._sweep()]  # type: ignore[attr-defined]
        counts, index, values = zip(*((torch.diff(starts), *rest) for starts, *rest in found), strict=True)
        starts = torch.zeros(self.shape[0] + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(torch.cat(counts), 0, out=starts[1:])
        return Sparse(starts, torch.cat(index), torch.cat(values), len(features))

    def dense_rows(self, rows: Any) -> Tensor:
        """Return some rows, dense, in float64."""
        if not isinstance(rows, slice):
            return self._of_rows(rows, lambda block, own: block.dense_rows(own))
        first, last, _ = rows.indices(self.shape[0])
        found = []
        for i, own in enumerate(self._slices):
            low, high = max(first, own.start), min(last, own.stop)
            if low < high:
                found.append(self._block(i).dense_rows(slice(low - own.start, high - own.start)))
        return torch.cat(found)

    def chunks(self, width: int | None = None, most: int | None = None) -> Iterator[slice]:
        """Cut the rows of each block such that a dense float64 copy of each part is small."""
        for own, part in zip(self._slices, self.parts, strict=True):
            for rows in part.chunks(width, most):
                yield slice(own.start + rows.start, own.start + rows.stop)

    def counts(self) -> Tensor:
        """Return the number of stored entries of every column."""
        return sum(part.counts().to(self.device) for part in self.parts)

    def row_counts(self) -> Tensor:
        """Return the number of stored entries of every row."""
        return torch.cat([part.row_counts().to(self.device) for part in self.parts])

    def constants(self, features: Tensor) -> Tensor:
        """Return the value of each of some columns that is constant, NaN for the others."""
        found = torch.stack([block.constants(features) for _, block in self._sweep(by_columns=True)])
        return torch.where(torch.all(found == found[0], 0), found[0], torch.nan)

    def column_spread(self, c: Tensor, center: Tensor | None) -> Tensor:
        """Compute ``sum_i c_i (x_ij - center_j)^2`` for every column j."""
        g = self._zeros(self.shape[1])
        for own, block in self._sweep(by_columns=True):
            g += block.column_spread(c[own], center)
        return g

    def row_spread(self, center: Tensor | None, scale: Tensor | None) -> Tensor:
        """Compute ``sum_j ((x_ij - center_j) / scale_j)^2`` for every row i."""
        return torch.cat([block.row_spread(center, scale) for _, block in self._sweep()])

    def is_nonnegative(self) -> bool:
        """Whether no stored entry is negative."""
        return all(part.is_nonnegative() for part in self.parts)


def _tensors(part: Matrix) -> tuple[Tensor, ...]:
    """Return the arrays of a block."""
    if isinstance(part, Sparse):
        return part.starts, part.index, part.values, *part.by_columns
    assert isinstance(part, Dense)
    return (part.X,)


def copied(part: Matrix, copy: Callable[[Tensor], Tensor], by_columns: bool | None = None) -> Matrix:
    """Return a block with copies of its arrays: of a sparse one those of its columns, of its rows, or of both."""
    if not isinstance(part, Sparse):
        assert isinstance(part, Dense)
        return Dense(copy(part.X))
    rows, columns = (part.starts, part.index, part.values), part.__dict__.get("by_columns")
    starts, index, values = rows if by_columns else map(copy, rows)
    if columns is not None and by_columns is not False:
        columns = tuple(map(copy, columns))
    return Sparse(starts, index, values, part.shape[1], columns)

"""A matrix in blocks of rows that are read when a product needs them, the next one while the last is used.

What stays in memory stays within a budget: columns that have been asked for, and as many blocks as there is room for beside them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from diht.design.base import ENTRIES_PER_CHUNK, NO_INDEX, Index, StoredDesign, frozen, frozen_vector, gamma
from diht.design.dense import DenseDesign
from diht.design.row_blocks import RowBlocks
from diht.design.sparse import SparseDesign
from diht.numerics.arrays import Vector
from diht.numerics.memory import free_memory, require_memory
from diht.numerics.traffic import Traffic

if TYPE_CHECKING:
    from diht.design.view import AffineView

__all__ = ["Block", "Columns", "StreamedRows"]

T = TypeVar("T")

_AHEAD = 2  # blocks that are read while one is in use: more of them take more memory, one leaves the disk idle while it is checked
_SHARE = 0.5  # of the free memory that is the budget unless another is given


class Block(ABC):
    """Some rows that can be brought into memory.

    Attributes
    ----------
    shape : tuple of int
    """

    shape: tuple[int, int]

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Memory that they take."""

    @abstractmethod
    def load(self, n_threads: int) -> StoredDesign:
        """Read the rows; ValueError or OSError, in one line that names the file, where they are not what was written."""


@dataclass(frozen=True, eq=False)
class Columns:
    """What is known of the columns before any product.

    Attributes
    ----------
    counts : (d,) array
        Entries that are not zero.
    means, lows, highs : (d,) arrays
        Means, smallest and largest entries.
    spreads : (d,) array
        Sums of squared deviations from the means.
    longest : int
        Most stored entries of a row.
    squares : float
        Sum over the rows of the squared number of their stored entries.
    norm : float
        Largest Euclidean norm of a row.
    """

    counts: Vector
    means: Vector
    spreads: Vector
    lows: Vector
    highs: Vector
    longest: int
    squares: float
    norm: float


class _Ahead:
    """A block that another thread reads."""

    def __init__(self, load: Callable[[int], StoredDesign], number: int) -> None:
        self._load, self._number = load, number
        self._found: StoredDesign | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="diht_read_ahead", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self._found = self._load(self._number)
        except BaseException as error:  # handed to the caller
            self._error = error

    def join(self) -> None:
        """Wait until nothing is read any more."""
        self._thread.join()

    def result(self) -> StoredDesign:
        """Wait for the block."""
        self.join()
        if self._error is not None:
            raise self._error
        assert self._found is not None
        return self._found


@dataclass(eq=False)
class _Store:
    """The blocks of a matrix, and what of them is in memory; shared by all designs of the same rows."""

    blocks: Sequence[Block]
    budget: float
    n_threads: int
    traffic: Traffic = field(init=False)
    pinned: dict[int, StoredDesign] = field(default_factory=dict)
    last: tuple[int, StoredDesign] | None = None  # the block that was used last
    kept: StoredDesign | None = None  # columns in one piece
    place: Index = field(default_factory=lambda: NO_INDEX)  # of every column among those kept, -1 for others
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.traffic = Traffic(len(self.blocks))

    def __getstate__(self) -> dict[str, Any]:
        empty: dict[str, Any] = {
            "pinned": {},
            "last": None,
            "kept": None,
            "place": NO_INDEX,
            "lock": None,
            "traffic": Traffic(len(self.blocks)),
        }
        return self.__dict__ | empty

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state | {"lock": threading.RLock()}

    @property
    def room(self) -> float:
        """Bytes of the budget that kept columns, by rows and by columns, leave."""
        return self.budget - (0 if self.kept is None else 2 * self.kept.nbytes)

    def known(self, number: int) -> StoredDesign | None:
        """Return a block that is in memory."""
        with self.lock:
            last = self.last
            return last[1] if last is not None and last[0] == number else self.pinned.get(number)

    def load(self, number: int) -> StoredDesign:
        """Read a block, and keep it if there is room: the first ones, which all passes meet first."""
        with self.traffic.reading(self.blocks[number].nbytes):
            found = self.blocks[number].load(self.n_threads)
        with self.lock:
            held = sum(block.nbytes for block in self.pinned.values())
            if held + found.nbytes <= self.room:
                self.pinned[number] = found
        return found

    def each(self, numbers: Sequence[int]) -> Iterator[tuple[int, StoredDesign]]:
        """Yield blocks; while one is in use, other threads read those that come next."""
        ahead: dict[int, _Ahead] = {}
        try:
            for i, number in enumerate(numbers):
                for following in numbers[i : i + 1 + _AHEAD]:
                    if following not in ahead and self.known(following) is None:
                        ahead[following] = _Ahead(self.load, following)
                found = ahead.pop(number, None)
                block = self.known(number) if found is None else found.result()
                assert block is not None
                with self.lock:
                    self.last = number, block
                yield number, block
        finally:
            for waiting in ahead.values():
                waiting.join()

    def keep(self, part: StoredDesign, place: Index) -> None:
        """Keep columns, and let blocks go that there is no more room for."""
        with self.lock:
            self.kept, self.place = part, place
            held = 0
            for number in sorted(self.pinned):
                held += self.pinned[number].nbytes
                if held > self.room:
                    del self.pinned[number]


class StreamedRows(RowBlocks):
    """Rows that are read, block by block, whenever they are needed.

    Parameters
    ----------
    blocks : sequence of Block
        With the same number of columns, all dense or all sparse, of one dtype, none without rows.
    known : Columns
    dtype : numpy.dtype
    sparse : bool
    n_threads : int
    memory : float, optional
        Bytes that may be kept in memory; half of what is free unless it is given.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        known: Columns,
        dtype: Any,
        sparse: bool,
        n_threads: int = 1,
        memory: float | None = None,
    ) -> None:
        self._store, self._known, self._sparse = _Store(blocks, self.budget(memory), n_threads), known, sparse
        self._starts = np.cumsum([0, *(block.shape[0] for block in blocks)])
        shape = int(self._starts[-1]), blocks[0].shape[1]
        StoredDesign.__init__(self, shape, np.dtype(dtype), n_threads)
        self._nbytes = sum(block.nbytes for block in blocks)
        self._runs = [(0, len(blocks))]
        self._swept = 0  # bytes of all blocks that whole sweeps have met

    @staticmethod
    def budget(memory: float | None) -> float:
        """Return the bytes that may be kept in memory: half of what is free unless their number is given."""
        return _SHARE * free_memory() if memory is None else memory

    @property
    def traffic(self) -> Traffic:
        """What has been read from disk so far."""
        return self._store.traffic

    @property
    def memory(self) -> float:
        """Bytes that may be kept in memory."""
        return self._store.budget

    @property
    def blocks(self) -> list[StoredDesign]:
        """All blocks, in memory: for small matrices."""
        require_memory(self._nbytes, f"X: all of its {self.shape[0]:,} rows")
        return [block for block, _ in self._each()]

    @property
    def passes(self) -> float:
        """Reads of the whole of X so far, from memory or from disk."""
        return self._passes + self._swept / max(1, self._nbytes)

    @property
    def stored(self) -> StoredDesign:
        """The data themselves."""
        return self

    @property
    def center(self) -> None:
        """Nothing: the data are as they were written."""
        return None

    @property
    def scale(self) -> None:
        """Nothing: the data are as they were written."""
        return None

    def with_threads(self, n_threads: int) -> StreamedRows:
        """Return the same data, for so many threads; what is in memory is shared."""
        other = object.__new__(StreamedRows)
        other.__dict__ |= self.__dict__ | {"n_threads": n_threads, "_passes": 0.0, "_swept": 0, "_spare": []}
        return other

    # Blocks

    def _each(self, first: int = 0, end: int | None = None) -> Iterator[tuple[StoredDesign, slice]]:
        """Each block with its rows, which is a read of X."""
        numbers = range(self.n_blocks)[first:end]
        for number, found in zip(numbers, self._some(numbers), strict=True):
            self._swept += self._store.blocks[number].nbytes
            yield found

    def _some(self, numbers: Sequence[int]) -> Iterator[tuple[StoredDesign, slice]]:
        """Some blocks with their rows, each read while the one before it is used."""
        for number, block in self._store.each(numbers):
            own = block if block.n_threads == self.n_threads else block.with_threads(self.n_threads)
            yield own, slice(int(self._starts[number]), int(self._starts[number + 1]))

    def _cut(self, rows: Index, scatter: bool) -> tuple[list[tuple[int, int]], float]:
        return [(0, rows.size or self.shape[0])], super()._cut(rows, scatter)[1]  # threads run inside the blocks

    @property
    def _fuses(self) -> bool:
        return True

    def _chunk_rows(self) -> int:
        return max(1, int(ENTRIES_PER_CHUNK * self.shape[0] / max(1.0, self._stored_entries)))

    @property
    def _stored_entries(self) -> float:
        return float(self._known.counts.sum()) if self._sparse else self.entries()

    # Some columns

    def matvec(self, w: Vector, support: Index | None = None, rows: Index | None = None) -> Vector:
        """Compute ``X w``, or ``X[rows] w``; from memory where the columns that count are kept there."""
        if rows is None:
            w = frozen_vector("w", w, self.shape[1])
            used = np.flatnonzero(w)
            if not len(used):
                return np.zeros(self.shape[0])
            kept, place = self._kept()
            if kept is not None and np.all(place[used] >= 0):
                v = np.zeros(kept.shape[1])
                v[place[used]] = w[used]
                return self._read_from(kept, lambda: kept.matvec(v))
        return super().matvec(w, support, rows)

    def _kept(self) -> tuple[StoredDesign | None, Index]:
        """Return the columns in memory, and where each of all columns is among them, -1 where it is not."""
        with self._store.lock:
            return self._store.kept, self._store.place

    def _read_from(self, part: StoredDesign, read: Callable[[], T]) -> T:
        """Read columns in memory, and count that as the fraction of X that they are."""
        before = part.passes
        found = read()
        self._passes += (part.passes - before) * part.nbytes / max(1, self._nbytes)
        return found

    def columns(self, support: Index) -> StoredDesign:
        """Return a compact copy restricted to some features, in one piece; what it takes is kept, if there is room."""
        support = np.asarray(support, dtype=np.int64)
        kept, place = self._kept()
        missing = support if kept is None else np.unique(support[place[support] < 0])
        if kept is None or len(missing):
            kept, place = self._fetched(kept, place, missing, support)
        at, part = place[support], kept
        return self._read_from(part, lambda: part.columns(at))

    def _fetched(
        self, kept: StoredDesign | None, place: Index, missing: Index, support: Index
    ) -> tuple[StoredDesign, Index]:
        """Read columns that are missing in memory, and keep them beside the others, or in their place."""
        size, room = self._bytes_of(missing), 0.5 * self.memory
        if kept is not None and size + kept.nbytes > room:
            kept, missing = None, np.unique(support)
            size = self._bytes_of(missing)
        require_memory(2.0 * size, f"X: the columns of {len(missing):,} features of {self.shape[0]:,} samples")
        first, *others = (block.columns(missing) for block, _ in self._each())
        found = first.joined(others, self.n_threads)
        place = np.full(self.shape[1], -1) if kept is None else place.copy()
        place[missing] = np.arange(len(missing)) + (0 if kept is None else kept.shape[1])
        found = found if kept is None else _beside(kept, found)
        if found.nbytes <= room:
            self._store.keep(found, place)
        return found, place

    def _bytes_of(self, features: Index) -> float:
        """Memory that some columns take."""
        n, size = self.shape[0], self.dtype.itemsize
        if not self._sparse:
            return float(n) * len(features) * size
        return float(self._known.counts[features].sum()) * (size + 4) + 4.0 * n

    def local(self) -> StoredDesign:
        """Return a copy in one piece."""
        require_memory(2.0 * self._nbytes, f"X: a copy of its {self.shape[0]:,} rows")
        first, *others = self.blocks
        return first.joined(others, self.n_threads)

    def toarray(self, rows: Index | None = None, copy: bool = True) -> Vector:
        """Return the rows as a dense float64 array, always a new one."""
        n = self.shape[0] if rows is None else len(rows)
        require_memory(16.0 * n * self.shape[1], f"X: {n:,} rows of {self.shape[1]:,} features, dense,")
        return super().toarray(rows, copy)

    def formed(self) -> DenseDesign:
        """Return the same matrix dense, in float64, where that fits into memory."""
        return DenseDesign(self.toarray())

    def hessian(self, c: Vector, center: Vector | None = None) -> Vector:
        """Compute ``(X - 1 m')' diag(c) (X - 1 m')`` for a center m, or without one, a block at a time."""
        return np.asarray(self._summed(lambda block, rows: block.hessian(c[rows], center)))

    # What is known without a read

    def occupied(self) -> Index:
        """Return the columns, ascending, that hold anything but zeros."""
        return np.flatnonzero(self._known.counts)

    def fraction(self, support: Index) -> float:
        """Fraction of the stored entries that some features hold."""
        if not self._sparse:
            return len(support) / self.shape[1]
        return float(self._known.counts[support].sum()) / max(1.0, self._stored_entries)

    def gram_cost(self) -> float:
        """Return the number of multiplications of :meth:`weighted_gram`."""
        return 8.0 * self._known.squares if self._sparse else self.dense_gram_cost()

    def is_nonnegative(self) -> bool:
        """Whether no entry is negative."""
        return bool(self._known.lows.min() >= 0.0)

    def constants(self, features: Index) -> Vector:
        """Return the value of each of some columns that is constant, NaN for the others."""
        low = self._known.lows[features]
        return np.where(low == self._known.highs[features], low, np.nan)

    def column_norms(self) -> Vector:
        """Euclidean norms of the columns."""
        if self._column_norms is None:
            self._column_norms = frozen(np.sqrt(self._about(np.zeros(self.shape[1]))))
        return self._column_norms

    def _about(self, center: Vector) -> Vector:
        """Return ``sum_i (x_ij - center_j)^2`` for every column j, and what rounding may have taken off it."""
        sums = self._known.spreads + self.shape[0] * np.square(self._known.means - center)
        return np.asarray(sums * (1.0 + 8.0 * gamma(self._column_counts())))

    def moments(self, s: Vector) -> tuple[Vector, Vector]:
        """Mean and variance of every column under the weights ``s``, which sum to 1; in one read where they differ."""
        s, known = frozen_vector("s", s, self.shape[0]), self._known
        if s.max() == s.min():
            return known.means.copy(), known.spreads / self.shape[0]
        total, mean, spread = 0.0, np.zeros(self.shape[1]), np.zeros(self.shape[1])
        for block, rows in self._each():
            weight = float(s[rows].sum())
            if weight == 0.0:
                continue
            own, variance = block.moments(s[rows] / weight)
            total += weight
            apart = own - mean
            mean += apart * (weight / total)
            spread += weight * (variance + (1.0 - weight / total) * np.square(apart))
        constant = known.lows == known.highs
        mean[constant], spread[constant] = known.lows[constant], 0.0
        return mean, spread / total

    def _column_counts(self) -> Vector:
        """Return the entries of every column, and a rounding more for each block: their sums are added up."""
        entries = self._known.counts if self._sparse else np.full(self.shape[1], float(self.shape[0]))
        return entries + self.n_blocks

    def _max_row_count(self) -> int:
        return self._known.longest

    def _affine_row_norms_sq(self, center: Vector | None, scale: Vector | None) -> Vector:
        return np.concatenate([block._affine_row_norms_sq(center, scale) for block, _ in self._each()])

    def row_norms_sq(self) -> Vector:
        """Squared Euclidean norms of the rows."""
        if self._row_norms_sq is None:
            self._row_norms_sq = frozen(self._affine_row_norms_sq(None, None))
        return self._row_norms_sq

    def largest_row_norm(self) -> float:
        """Return the largest Euclidean norm of a row, and what rounding may have taken off it."""
        return self._known.norm * (1.0 + float(gamma(self._known.longest + 4)))

    def square_sum(self, c: Vector) -> float:
        """Compute ``sum_i c_i ||x_i||^2``."""
        return float(self._spread(c, None).sum())

    def affine_square_sum(self, c: Vector, view: AffineView) -> float:
        """Compute ``sum_i c_i ||z_i||^2`` for the rows of a view of this matrix."""
        spread = self._spread(c, view.center)
        return float((spread if view.scale is None else spread / np.square(view.scale)).sum())

    @property
    def is_far(self) -> bool:
        """Whether not all blocks fit into the budget."""
        return self._nbytes > self.memory

    def keepable(self, features: Index) -> bool:
        """Whether some columns, by rows and by columns, fit into the budget."""
        return self._bytes_of(features) <= 0.5 * self.memory

    def _spread(self, s: Vector, center: Vector | None) -> Vector:
        if s.max() == s.min():
            return float(s[0]) * self._about(np.zeros(self.shape[1]) if center is None else center)
        return super()._spread(s, center)


def _beside(one: StoredDesign, other: StoredDesign) -> StoredDesign:
    """Return the columns of two matrices in memory, one after the other."""
    if isinstance(one, SparseDesign):
        assert isinstance(other, SparseDesign)
        return one.beside(other)
    return DenseDesign(np.hstack([one.toarray(copy=False), other.toarray(copy=False)]).astype(one.dtype), one.n_threads)

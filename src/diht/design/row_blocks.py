"""A matrix in blocks of rows: what is summed over the samples is summed block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from diht.design.base import ENTRIES_PER_THREAD, NO_INDEX, BlockWork, Design, Index, StoredDesign, Visits, frozen
from diht.design.entries import Entries
from diht.design.step import Codes
from diht.numerics.arrays import Vector
from diht.numerics.threads import run_parts

if TYPE_CHECKING:
    from diht.design.view import AffineView

__all__ = ["RowBlocks"]

# Blocks for each thread from which on threads run across the blocks instead of inside each.
BLOCKS_PER_THREAD = 2


class RowBlocks(StoredDesign):
    """The rows of several matrices, one after the other; none of them is copied.

    Products go through the blocks in their order; of many blocks each thread has a run, with one accumulator.

    Parameters
    ----------
    blocks : sequence of StoredDesign
        With the same number of columns, all dense or all sparse, of one dtype; those without rows are left out.
    n_threads : int
    """

    def __init__(self, blocks: Sequence[StoredDesign], n_threads: int = 1) -> None:
        across = sum(block.shape[0] > 0 for block in blocks) >= BLOCKS_PER_THREAD * n_threads
        self._blocks = [block.with_threads(1 if across else n_threads) for block in blocks if block.shape[0]]
        self._starts = np.cumsum([0, *(block.shape[0] for block in self.blocks)])
        first = self.blocks[0]
        super().__init__(
            (int(self._starts[-1]), first.shape[1]), first.dtype, n_threads, max(b.roundings for b in self.blocks)
        )
        self._nbytes = sum(block.nbytes for block in self.blocks)
        self._runs = self._equal_runs(n_threads if across else 1)

    def _equal_runs(self, n_runs: int) -> list[tuple[int, int]]:
        """Cut the blocks into runs of about equal size."""
        sizes = np.array([block.nbytes for block in self.blocks])
        middles = np.cumsum(sizes) - sizes / 2
        cuts = np.searchsorted(middles, np.arange(1, n_runs) * (self._nbytes / n_runs))
        return [(a, b) for a, b in pairwise([0, *cuts.tolist(), len(self.blocks)]) if a < b]

    @property
    def blocks(self) -> list[StoredDesign]:
        """The matrices."""
        return self._blocks

    @property
    def n_blocks(self) -> int:
        """The number of blocks."""
        return len(self._starts) - 1

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks."""
        return self._nbytes

    @property
    def passes(self) -> float:
        """Reads of the whole of X so far."""
        return self._passes + sum(block.passes * block.nbytes for block in self.blocks) / max(1, self._nbytes)

    @property
    def stored(self) -> StoredDesign:
        """The data themselves: where the blocks were centred and scaled, before that."""
        if all(block.stored is block for block in self.blocks):
            return self
        return RowBlocks([block.stored for block in self.blocks], self.n_threads)

    @property
    def center(self) -> Vector | None:
        """The centres of the columns, where the blocks were centred."""
        return getattr(self.blocks[0], "center", None)

    @property
    def scale(self) -> Vector | None:
        """The scales of the columns, where the blocks were scaled."""
        return getattr(self.blocks[0], "scale", None)

    def with_threads(self, n_threads: int) -> RowBlocks:
        """Return the same data, for so many threads."""
        other = RowBlocks(self.blocks, n_threads)
        other.feature_names = self.feature_names
        return other

    def parts(self) -> list[Design]:
        """Return the blocks."""
        return list(self.blocks)

    def _each(self, first: int = 0, end: int | None = None) -> Iterator[tuple[StoredDesign, slice]]:
        """Each block with its rows, or those of a run."""
        return self._some(range(self.n_blocks)[first:end])

    def _some(self, numbers: Sequence[int]) -> Iterator[tuple[StoredDesign, slice]]:
        """Some blocks with their rows."""
        for number in numbers:
            yield self.blocks[number], slice(int(self._starts[number]), int(self._starts[number + 1]))

    def _summed(self, f: Callable[[StoredDesign, slice], Any]) -> Any:
        return sum(f(block, rows) for block, rows in self._each())

    # Products with all rows

    def matvec(self, w: Vector, support: Index | None = None, rows: Index | None = None) -> Vector:
        """Compute ``X w``, or ``X[rows] w``."""
        if rows is not None:
            return super().matvec(w, support, rows)
        out = np.empty(self.shape[0])

        def run(first: int, end: int) -> None:
            for block, at in self._each(first, end):
                out[at] = block.matvec(w, support)

        run_parts(run, self._runs)
        return out

    def rmatvec(self, c: Vector, rows: Index | None = None) -> Vector:
        """Compute ``X' c``, or ``X[rows]' c``."""
        if rows is not None:
            return super().rmatvec(c, rows)
        g, c = np.zeros(self.shape[1]), np.asarray(c, dtype=np.float64)

        def run(first: int, end: int, into: Vector) -> None:
            for block, at in self._each(first, end):
                into += block.rmatvec(c[at])

        self._scatter(run, self._runs, g)
        return g

    def matvec_rmatvec(self, w: Vector, c: Vector) -> tuple[Vector, Vector]:
        """Compute ``X w`` and ``X' c`` with one read of X."""
        u, g, c = np.empty(self.shape[0]), np.zeros(self.shape[1]), np.asarray(c, dtype=np.float64)

        def run(first: int, end: int, into: Vector) -> None:
            for block, at in self._each(first, end):
                u[at], pull = block.matvec_rmatvec(w, c[at])
                into += pull

        self._scatter(run, self._runs, g)
        return u, g

    # Products with some rows

    def _cut(self, rows: Index, scatter: bool) -> tuple[list[tuple[int, int]], float]:
        n_rows = self.shape[0]
        n = rows.size or n_rows
        if rows.size and (rows.min() < 0 or rows.max() >= n_rows):
            raise IndexError(f"rows must lie in [0, {n_rows})")
        entries = n * (self._nbytes // (12 * n_rows))
        n_parts = max(1, min(self.n_threads, n, entries // ENTRIES_PER_THREAD))
        return list(pairwise(n * t // n_parts for t in range(n_parts + 1))), n / n_rows

    def _met(self, rows: Index, start: int, stop: int) -> Iterator[tuple[StoredDesign, slice, Index, Any, int, int]]:
        """Each block that holds rows[start:stop] (all rows where `rows` is empty).

        With its rows; those of them that are wanted, where they are in the list, and the part of the former that is meant.
        """
        owner = np.searchsorted(self._starts, rows[start:stop] if rows.size else [start, stop - 1], side="right") - 1
        if not rows.size:
            for block, at in self._some(range(owner[0], owner[1] + 1)):
                low, high = max(start, at.start), min(stop, at.stop)
                yield block, at, NO_INDEX, slice(low, high), low - at.start, high - at.start
            return
        for block, at in self._some(np.unique(owner).tolist()):
            where = start + np.flatnonzero((rows[start:stop] >= at.start) & (rows[start:stop] < at.stop))
            yield block, at, frozen(rows[where] - at.start, np.int64), where, 0, len(where)

    def _dot(self, rows: Index, start: int, stop: int, w: Vector, support: Index, out: Vector) -> None:
        for block, at, chosen, where, low, high in self._met(rows, start, stop):
            part = np.empty(len(chosen) or at.stop - at.start)
            block._dot(chosen, low, high, w, support, part)
            out[where] = part[low:high]

    def _add(self, rows: Index, start: int, stop: int, c: Vector, g: Vector) -> None:
        for block, at, chosen, where, low, high in self._met(rows, start, stop):
            block._add(chosen, low, high, frozen(c[where] if chosen.size else c[at]), g)

    def _fused(self, work: BlockWork, codes: Codes, start: int, stop: int, g: Vector) -> float:
        total = 0.0
        for block, at, chosen, _, low, high in self._met(work.rows, start, stop):
            own = work._replace(
                rows=chosen,
                alpha=work.alpha[at],
                y=work.y[at],
                s=work.s[at],
                u=None if work.u is None else work.u[at],
            )
            total += block._fused(own, codes, low, high, g)
        return total

    @property
    def _fuses(self) -> bool:
        return all(block._fuses for block in self.blocks)

    def _chunk_rows(self) -> int:
        return min(block._chunk_rows() for block in self.blocks)

    # Some columns

    def columns(self, support: Index) -> StoredDesign:
        """Return a compact copy restricted to some features, in one piece."""
        first, *others = (block.columns(support) for block in self.blocks)
        return first.joined(others, self.n_threads)

    def column_entries(self, features: Index) -> Entries:
        """Return the entries of some columns, of all blocks in one piece."""
        return self.columns(features).column_entries(np.arange(len(features)))

    def local(self) -> StoredDesign:
        """Return a copy in one piece."""
        return self.columns(np.arange(self.shape[1]))

    def visits(self, features: Index | None = None) -> Visits:
        """Return a copy of the rows in one piece."""
        return (self.local() if features is None else self.columns(features)).visits()

    def _visits_of(self, view: AffineView, features: Index | None) -> Visits:
        part = view.columns(np.arange(self.shape[1]) if features is None else features)
        return part.visits()

    def ascend(self, *arguments: Any) -> float:
        """Visit every sample once, in a copy."""
        return self.local().ascend(*arguments)

    def joined(self, others: Sequence[RowBlocks], n_threads: int) -> RowBlocks:
        """Return these rows and those of others."""
        return RowBlocks([block for part in (self, *others) for block in part.blocks], n_threads)

    def occupied(self) -> Index:
        """Return the columns, ascending, that may hold anything but zeros."""
        held = np.zeros(self.shape[1], dtype=bool)
        for block in self.blocks:
            held[block.occupied()] = True
        return np.flatnonzero(held)

    def fraction(self, support: Index) -> float:
        """Fraction of the stored entries that some features hold."""
        return float(self._summed(lambda block, _: block.nbytes * block.fraction(support))) / max(1, self._nbytes)

    def weighted_gram(self, c: Vector) -> Vector:
        """Compute ``X' diag(c) X``."""
        return np.asarray(self._summed(lambda block, at: block.weighted_gram(c[at])))

    def gram_cost(self) -> float:
        """Return the number of multiplications of :meth:`weighted_gram`."""
        return float(self._summed(lambda block, _: block.gram_cost()))

    def toarray(self, rows: Index | None = None, copy: bool = True) -> Vector:
        """Return the rows as a dense float64 array, always a new one."""
        if rows is None:
            return np.concatenate([block.toarray(copy=False) for block in self.blocks])
        rows = np.asarray(rows, dtype=np.int64)
        out = np.empty((rows.size, self.shape[1]))
        for block, _, chosen, where, _, _ in self._met(rows, 0, rows.size) if rows.size else ():
            out[where] = block.toarray(chosen)
        return out

    def is_nonnegative(self) -> bool:
        """Whether no entry is negative."""
        return all(block.is_nonnegative() for block in self.blocks)

    # Norms and what error bounds need

    def _column_counts(self) -> Vector:
        """Return the entries of every column, and a rounding more for each block: their sums are added up."""
        return np.asarray(self._summed(lambda block, _: block._column_counts()) + len(self.blocks))

    def _max_row_count(self) -> int:
        return max(block._max_row_count() for block in self.blocks)

    def _affine_row_norms_sq(self, center: Vector | None, scale: Vector | None) -> Vector:
        return np.concatenate([block._affine_row_norms_sq(center, scale) for block in self.blocks])

    def _left(self, s: Vector, center: Vector) -> Vector:
        return np.asarray(self._summed(lambda block, at: block._left(s[at], center)))

    def _spread(self, s: Vector, center: Vector | None) -> Vector:
        return np.asarray(self._summed(lambda block, at: block._spread(s[at], center)))

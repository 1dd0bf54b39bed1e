"""Some columns of X, entry by entry, where the rows live: for walks along each of them alone.

What is as long as the entries of the columns is opaque, as what is as long as the samples is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from diht.design.entries import Entries
from diht.numerics.arrays import Vector

__all__ = ["BlockLines", "Lines", "MemoryLines"]

Along: TypeAlias = Any  # a number for each entry of the columns, where the rows live


class Lines(ABC):
    """The entries of m columns, beside the samples of a few other features, Z.

    Attributes
    ----------
    are_whole : bool
        Whether every row has an entry in each column.
    """

    are_whole: bool

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of entries."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def gram(self, along: Along) -> Vector:
        """Return ``sum_i s_i along_i z_i z_i'`` over the entries of each column, a matrix for each."""

    @property
    @abstractmethod
    def x(self) -> Along:
        """The entries."""

    @abstractmethod
    def at(self, rows: Any) -> Along:
        """Return what a vector of the samples has for the row of each entry."""

    @abstractmethod
    def per(self, t: Vector) -> Along:
        """Return the number of its column for each entry."""

    @abstractmethod
    def mixed(self, Q: Vector) -> Along:
        """Return the entry of Z Q for each entry."""

    @abstractmethod
    def map(self, f: Callable[..., Any], *along: Along) -> Along:
        """Return ``f(y, s, *along)`` for each entry."""

    @abstractmethod
    def total(self, f: Callable[..., Any], *along: Along) -> Vector:
        """Return ``sum_i s_i f(y_i, *along_i)`` over the entries of each column."""

    @abstractmethod
    def largest(self, along: Along) -> Vector:
        """Return the largest number of each column, or 0."""

    @abstractmethod
    def pull(self, along: Along) -> Vector:
        """Return ``sum_i s_i z_i along_i`` over the entries of each column, a column for each."""


class MemoryLines(Lines):
    """Of samples in memory."""

    def __init__(self, entries: Entries, Z: Vector, y: Vector, s: Vector) -> None:
        self._entries, self._Z, self._y, self._s = entries, Z, entries.at(y), entries.at(s)
        self.are_whole = entries.are_whole

    @property
    def size(self) -> int:
        """The number of entries."""
        return int(self._entries.x.size)

    def __len__(self) -> int:
        return self._entries.n_columns

    def gram(self, along: Along) -> Vector:
        """Return a matrix for each column."""
        return self._entries.gram(self._Z, self._s * along)

    @property
    def x(self) -> Along:
        """The entries."""
        return self._entries.x

    def at(self, rows: Any) -> Along:
        """Return what a vector of the samples has for the row of each entry."""
        return self._entries.at(rows)

    def per(self, t: Vector) -> Along:
        """Return the number of its column for each entry."""
        return self._entries.per(t)

    def mixed(self, Q: Vector) -> Along:
        """Return the entry of Z Q for each entry."""
        return self._entries.mixed(self._Z, Q)

    def map(self, f: Callable[..., Any], *along: Along) -> Along:
        """Return ``f(y, s, *along)`` for each entry."""
        return f(self._y, self._s, *along)

    def total(self, f: Callable[..., Any], *along: Along) -> Vector:
        """Return sums over the entries of each column."""
        return self._entries.total(self._s * f(self._y, *along))

    def largest(self, along: Along) -> Vector:
        """Return the largest number of each column, or 0."""
        return self._entries.largest(along)

    def pull(self, along: Along) -> Vector:
        """Return sums over the entries of each column."""
        return self._entries.pull(self._Z, self._s * along)


class BlockLines(Lines):
    """Of samples in blocks: tuples, and sums of the blocks' own."""

    def __init__(self, blocks: Sequence[Lines]) -> None:
        self._blocks = tuple(blocks)
        self.are_whole = all(block.are_whole for block in blocks)

    @property
    def size(self) -> int:
        """The number of entries."""
        return sum(block.size for block in self._blocks)

    def __len__(self) -> int:
        return len(self._blocks[0])

    def gram(self, along: Along) -> Vector:
        """Return a matrix for each column."""
        return np.asarray(np.sum([block.gram(own) for block, own in zip(self._blocks, along, strict=True)], axis=0))

    @property
    def x(self) -> Along:
        """The entries."""
        return tuple(block.x for block in self._blocks)

    def at(self, rows: Any) -> Along:
        """Return what a vector of the samples has for the row of each entry."""
        return tuple(block.at(own) for block, own in zip(self._blocks, rows, strict=True))

    def per(self, t: Vector) -> Along:
        """Return the number of its column for each entry."""
        return tuple(block.per(t) for block in self._blocks)

    def mixed(self, Q: Vector) -> Along:
        """Return the entry of Z Q for each entry."""
        return tuple(block.mixed(Q) for block in self._blocks)

    def map(self, f: Callable[..., Any], *along: Along) -> Along:
        """Return ``f(y, s, *along)`` for each entry."""
        return tuple(block.map(f, *own) for block, *own in zip(self._blocks, *along, strict=True))

    def total(self, f: Callable[..., Any], *along: Along) -> Vector:
        """Return sums over the entries of each column."""
        totals = [block.total(f, *own) for block, *own in zip(self._blocks, *along, strict=True)]
        return np.asarray(np.sum(totals, axis=0))

    def largest(self, along: Along) -> Vector:
        """Return the largest number of each column, or 0."""
        return np.asarray(np.max([block.largest(own) for block, own in zip(self._blocks, along, strict=True)], axis=0))

    def pull(self, along: Along) -> Vector:
        """Return sums over the entries of each column."""
        return np.asarray(np.sum([block.pull(own) for block, own in zip(self._blocks, along, strict=True)], axis=0))

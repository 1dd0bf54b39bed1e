"""Samples in blocks: a vector is a tuple of the blocks' own, sums are those of the blocks added up in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from diht.design import Design, Step, stacked
from diht.samples.base import Rows, Samples
from diht.samples.memory import MemorySamples

__all__ = ["BlockSamples"]

T = TypeVar("T")
Vector = NDArray[np.float64]
Indices = NDArray[np.int64]


class BlockSamples(Samples):
    """Several samples as one.

    Parameters
    ----------
    blocks : sequence of MemorySamples
        Those that they consist of.
    """

    def __init__(self, blocks: Sequence[MemorySamples]) -> None:
        self.design: Design = stacked([block.design for block in blocks])
        self.blocks = tuple(blocks)
        self.y, self.s = tuple(block.y for block in blocks), tuple(block.s for block in blocks)

    def _parts(self, rows: tuple[Rows, ...]) -> list[tuple[MemorySamples, tuple[Rows, ...]]]:
        """Each block with its parts of some vectors."""
        return [(block, tuple(vector[i] for vector in rows)) for i, block in enumerate(self.blocks)]

    def each(self, f: Callable[..., T], *rows: Rows) -> list[T]:
        """Return ``f(y, s, *rows)`` of every block."""
        return [f(block.y, block.s, *parts) for block, parts in self._parts(rows)]

    def map(self, f: Callable[..., Any], *rows: Rows) -> Rows:
        """Return ``f(y, s, *rows)`` of every block."""
        return tuple(block.map(f, *parts) for block, parts in self._parts(rows))

    def put(self, values: Vector) -> Rows:
        """Cut N numbers into those of the blocks."""
        return tuple(np.split(np.asarray(values), np.cumsum([block.size for block in self.blocks])[:-1]))

    def fetch(self, rows: Rows) -> Vector:
        """Return the numbers of all blocks, one after the other."""
        return np.concatenate(rows)

    def columns(self, features: Indices) -> BlockSamples:
        """Return the samples of some features alone, on compact copies of them."""
        return BlockSamples([block.columns(features) for block in self.blocks])

    def margins(self, w: Vector, b: float = 0.0, support: Indices | None = None) -> Rows:
        """Compute ``X w + b``."""
        return tuple(block.margins(w, b, support) for block in self.blocks)

    def pull(self, alpha: Rows) -> Vector:
        """Compute ``X'(s alpha)``."""
        return _added([block.pull(a) for block, a in zip(self.blocks, alpha, strict=True)])

    def margins_and_pull(self, w: Vector, alpha: Rows) -> tuple[Rows, Vector]:
        """Compute ``X w`` and ``X'(s alpha)`` with one read of X."""
        pairs = [block.margins_and_pull(w, a) for block, a in zip(self.blocks, alpha, strict=True)]
        return tuple(u for u, _ in pairs), _added([g for _, g in pairs])

    def step(
        self,
        step: Step,
        w: Vector,
        b: float,
        alpha: Rows,
        g: Vector,
        part: Rows | None = None,
        u: Rows | None = None,
        fresh: bool = False,
    ) -> float:
        """Update dual variables, and g with them; a part is an array of indices for each block."""
        total, own = 0.0, np.empty_like(g) if fresh else g
        if fresh:
            g[:] = 0.0
        for i, block in enumerate(self.blocks):
            rows, margins = (None if part is None else part[i]), (None if u is None else u[i])
            total += block.step(step, w, b, alpha[i], own, rows, margins, fresh)
            if fresh:
                g += own
        return total

    def predictions(self, coef: Vector, *constants: float, less: tuple[Rows, ...] = ()) -> tuple[Rows, Rows]:
        """Compute X coef plus constants in twice the precision, and bounds on the errors."""
        pairs = [block.predictions(coef, *constants, less=parts) for block, parts in self._parts(less)]
        return tuple(u for u, _ in pairs), tuple(error for _, error in pairs)


def _added(vectors: list[Vector]) -> Vector:
    total = vectors[0]
    for vector in vectors[1:]:
        total += vector
    return total

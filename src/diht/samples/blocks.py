"""Samples in blocks: a vector is a tuple of the blocks' own, sums are those of the blocks added up in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from diht.design import Curvature, DenseDesign, Design, DualState, Step, spectral_bound, stacked
from diht.design.gram import Gram, PreciseGram, Products, gram_of, products
from diht.numerics.arrays import Indices, Vector
from diht.samples.base import Chosen, Rows, Samples, added
from diht.samples.lines import BlockLines
from diht.samples.memory import ChosenInMemory, MemorySamples
from diht.samples.partition import Blocks, make_blocks

__all__ = ["BlockSamples"]

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class ChosenInBlocks(Chosen):
    """Those of each block."""

    parts: tuple[ChosenInMemory, ...]

    @property
    def size(self) -> int:
        """Their number."""
        return sum(part.size for part in self.parts)

    def values(self, rows: Rows) -> Vector:
        """Return their entries of a vector."""
        return np.concatenate([part.values(own) for part, own in zip(self.parts, rows, strict=True)])

    def rows_of(self, samples: BlockSamples) -> Vector:
        """Return their rows of X."""
        return np.concatenate([part.rows_of(own) for part, own in zip(self.parts, samples.blocks, strict=True)])

    def first(self, most: int) -> ChosenInBlocks:
        """Return the first of them, in the order of the blocks."""
        before = np.cumsum([0, *(part.size for part in self.parts)])[:-1].tolist()
        return ChosenInBlocks(tuple(part.first(max(most - n, 0)) for part, n in zip(self.parts, before, strict=True)))

    def patched(self, rows: Rows, values: Vector) -> Rows:
        """Return a copy of a vector with other entries of theirs."""
        ends = np.cumsum([part.size for part in self.parts])[:-1]
        own = zip(self.parts, rows, np.split(values, ends), strict=True)
        return tuple(part.patched(old, new) for part, old, new in own)


@dataclass(frozen=True, eq=False)
class _Curvatures:
    """The sum of the blocks' own."""

    parts: list[Curvature]

    def gram_rows(self, chosen: Indices) -> Vector:
        """Return some rows."""
        return _added([part.gram_rows(chosen) for part in self.parts])

    def gram_diagonal(self) -> Vector:
        """Return the diagonal."""
        return _added([part.gram_diagonal() for part in self.parts])

    def charge(self, design: Design) -> None:
        """Count what has been read of each."""
        for part in self.parts:
            part.charge(design)


class BlockSamples(Samples):
    """Several samples as one.

    Parameters
    ----------
    blocks : sequence of MemorySamples
        Those that they consist of.
    """

    @classmethod
    def of(cls, design: Design, y: Vector, s: Vector) -> BlockSamples:
        """Cut targets and weights as the rows of a design are cut."""
        parts = design.parts()
        cuts = np.cumsum([part.shape[0] for part in parts])[:-1]
        return cls(list(map(MemorySamples, parts, np.split(y, cuts), np.split(s, cuts))))

    def __init__(self, blocks: Sequence[MemorySamples]) -> None:
        self.design: Design = stacked([block.design for block in blocks])
        self.blocks = tuple(blocks)
        self._starts = np.cumsum([0, *(block.size for block in blocks)])[:-1]
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

    def with_targets(self, y: Rows) -> BlockSamples:
        """Return the same samples with other targets."""
        return BlockSamples([block.with_targets(part) for block, part in zip(self.blocks, y, strict=True)])

    def put(self, values: Vector) -> Rows:
        """Cut N numbers into those of the blocks."""
        return tuple(np.split(np.asarray(values), self._starts[1:]))

    def fetch(self, rows: Rows) -> Vector:
        """Return the numbers of all blocks, one after the other."""
        return np.concatenate(rows)

    def columns(self, features: Indices) -> BlockSamples:
        """Return the samples of some features alone, on compact copies of them."""
        return BlockSamples([block.columns(features) for block in self.blocks])

    def lines(self, features: Indices, beside: Samples, whole: bool = False) -> BlockLines:
        """Return those of the blocks."""
        assert isinstance(beside, BlockSamples)
        own = zip(self.blocks, beside.blocks, strict=True)
        return BlockLines([block.lines(features, part, whole) for block, part in own])

    def holds(self, rows: Rows) -> bool:
        """Tell whether something is a tuple of vectors, one of each block."""
        if not isinstance(rows, tuple) or len(rows) != len(self.blocks):
            return False
        return all(block.holds(part) for block, part in zip(self.blocks, rows, strict=True))

    def chosen(self, f: Callable[..., Any], *rows: Rows) -> ChosenInBlocks:
        """Choose the samples for which ``f(y, s, *rows)`` is true."""
        return ChosenInBlocks(tuple(block.chosen(f, *parts) for block, parts in self._parts(rows)))

    def spectral_bound(self, part: Rows | None = None) -> float:
        """Return an upper bound on the largest eigenvalue of ``X' diag(s) X``, over a part of the samples or all."""
        rows = None if part is None else np.concatenate(_shifted(part, self._starts))
        return spectral_bound(self.design, self.fetch(self.s), rows=rows)

    def largest_square(self) -> float:
        """Return ``max_i s_i ||x_i||^2``."""
        return max(block.largest_square() for block in self.blocks)

    def square_sum(self, part: Rows) -> float:
        """Return ``sum_i s_i ||x_i||^2`` over a part of the samples."""
        return added(block.square_sum(own) for block, own in zip(self.blocks, part, strict=True))

    def partition(self, blocks: Blocks, rng: np.random.Generator) -> list[Rows]:
        """Return the indices of each part within each block."""
        return [self._split(part) for part in make_blocks(blocks, self.size, rng)]

    def _split(self, part: Indices) -> tuple[Indices, ...]:
        owner = np.searchsorted(self._starts, part, side="right") - 1
        return tuple(part[owner == i] - start for i, start in enumerate(self._starts.tolist()))

    def taken(self, part: Rows) -> MemorySamples:
        """Return the samples of a part, in one piece."""
        own = [block.taken(rows) for block, rows in zip(self.blocks, part, strict=True) if len(rows)]
        s = np.concatenate([block.s[rows] for block, rows in zip(self.blocks, part, strict=True)])
        X, y = np.vstack([each.design.toarray() for each in own]), np.concatenate([each.y for each in own])
        return MemorySamples(DenseDesign(X), y, s / s.sum())

    def weight(self, part: Rows) -> float:
        """Return the sum of the weights of a part."""
        return added(block.weight(own) for block, own in zip(self.blocks, part, strict=True))

    def extent(self, W: Vector, b: Vector) -> Vector:
        """Return the largest of the blocks' own."""
        return np.asarray(np.max([block.extent(W, b) for block in self.blocks], axis=0))

    def largest_entries(self) -> Vector:
        """Return the largest of the blocks' own."""
        return np.asarray(np.max([block.largest_entries() for block in self.blocks], axis=0))

    def formed(self) -> BlockSamples:
        """Return the samples with X dense, in float64."""
        return BlockSamples([block.formed() for block in self.blocks])

    def gram(self, features: Indices, centred: bool, known: Gram | None = None) -> Gram:
        """Compute the Gram matrix of some columns and the targets: sums over the blocks."""
        total = self.total(np.ones_like)
        level = self.total(lambda y: y) / total if centred else 0.0
        new = 0 if known is None else len(known.features)
        own = [
            products(block.design, block.y, block.s, level, features, new, sparse=False)
            for block in self.blocks
            if block.size
        ]
        return gram_of(
            Products.added(own), features, getattr(self.design, "scale", None), total if centred else None, known
        )

    def precise_gram(self, centred: bool) -> PreciseGram | None:
        """Compute the Gram matrix of all columns and the targets in twice the precision, where it is small."""
        return self._together().precise_gram(centred)

    def ridge(self, lam: float, centred: bool) -> Vector | None:
        """Minimise the squared error plus a ridge, where X is small."""
        return self._together().ridge(lam, centred)

    def _together(self) -> MemorySamples:
        return MemorySamples(self.design, self.fetch(self.y), self.fetch(self.s))

    def moments(self, h: Rows) -> tuple[Vector, Vector]:
        """Mean and variance of every column under the weights ``s_i h_i``, divided by their sum."""
        total, mean = self.total(lambda y, h: h, h), self.center(h)
        if mean is None:
            return np.zeros(self.design.shape[1]), np.zeros(self.design.shape[1])
        own = zip(self.blocks, h, strict=True)
        return mean, _added([block.design.spread(block.s * part, mean) for block, part in own]) / total

    def curvature(self, h: Rows, centred: bool) -> _Curvatures:
        """Return what gives ``X' diag(s h) X`` row by row."""
        center, own = self.center(h) if centred else None, zip(self.blocks, h, strict=True)
        return _Curvatures([block.design.curvature(block.s * part, center) for block, part in own])

    def hessian(self, h: Rows, centred: bool) -> Vector:
        """Compute ``X' diag(s h) X``, X centred by these weights where an intercept is eliminated."""
        center = self.center(h) if centred else None
        own = zip(self.blocks, h, strict=True)
        return _added([block.design.hessian(block.s * part, center) for block, part in own])

    def hessian_root(self, h: Rows, centred: bool, lam: float) -> Vector:
        """Return R, upper triangular, with R'R the Hessian plus lam I: the root of the blocks' own, one below the other."""
        center, own = self.center(h) if centred else None, zip(self.blocks, h, strict=True)
        share = lam / len(self.blocks)
        roots = [block.design.hessian_root(block.s * part, center, share) for block, part in own]
        return np.asarray(np.linalg.qr(np.vstack(roots), mode="r"))

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

    def step(self, step: Step, w: Vector, b: float, dual: DualState, part: Rows | None = None) -> float:
        """Update dual variables, and g with them; a part is an array of indices for each block."""
        total, g = 0.0, np.zeros_like(dual.g) if step.fresh else dual.g
        for i, block in enumerate(self.blocks):
            rows, margins = (None if part is None else part[i]), (None if dual.u is None else dual.u[i])
            own = DualState(dual.alpha[i], np.empty_like(g) if step.fresh else g, margins)
            total += block.step(step, w, b, own, rows)
            if step.fresh:
                g += own.g
        dual.g[:] = g
        return total

    def predictions(self, coef: Vector, *constants: float, less: tuple[Rows, ...] = ()) -> tuple[Rows, Rows]:
        """Compute X coef plus constants in twice the precision, and bounds on the errors."""
        pairs = [block.predictions(coef, *constants, less=parts) for block, parts in self._parts(less)]
        return tuple(u for u, _ in pairs), tuple(error for _, error in pairs)


def _shifted(part: Rows, starts: Indices) -> list[Indices]:
    """Return the indices of a part among all samples."""
    return [own + start for own, start in zip(part, starts.tolist(), strict=True)]


def _added(vectors: list[Vector]) -> Vector:
    total = vectors[0]
    for vector in vectors[1:]:
        total += vector
    return total

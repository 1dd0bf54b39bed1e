"""Parts of the samples: how curved the dual is on each, and in which order they come."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diht.samples import Rows, Samples

__all__ = ["BlockOrder", "block_curvatures"]


_MANY = 64  # with more blocks than this, a bound for each by power iterations costs too much


def block_curvatures(samples: Samples, blocks: list[Rows]) -> NDArray[np.float64]:
    """Upper bounds on the spectrum of X'SX for each part of the samples."""
    if len(blocks) == 1:
        return np.array([samples.spectral_bound()])
    bounds = [samples.square_sum(block) for block in blocks]
    if len(blocks) > _MANY:
        return np.array(bounds)
    return np.array([min(bound, samples.spectral_bound(block)) for bound, block in zip(bounds, blocks, strict=True)])


@dataclass
class BlockOrder:
    """The order in which blocks come: each epoch shuffled anew, or drawn with replacement (as in the paper)."""

    n_blocks: int
    order: str
    rng: np.random.Generator
    queue: list[int]

    @classmethod
    def start(cls, n_blocks: int, order: str, rng: np.random.Generator) -> BlockOrder:
        """Begin with nothing drawn."""
        return cls(n_blocks, order, rng, [])

    def next(self) -> int:
        """Draw the next block."""
        if self.order == "replacement":
            return int(self.rng.integers(self.n_blocks))
        if not self.queue:
            self.queue = self.rng.permutation(self.n_blocks).tolist()
        return self.queue.pop()

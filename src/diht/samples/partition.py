"""How samples are cut into parts for methods that visit one part after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from diht.numerics.arrays import Indices

__all__ = ["Blocks", "check_blocks", "make_blocks", "shuffled_runs"]

Blocks = int | Sequence[ArrayLike]

_LONGEST_RUN, _RUNS_A_BLOCK = 64, 100


def check_blocks(blocks: Any, order: str) -> None:
    """Raise ValueError for settings that no problem could use."""
    if order not in ("shuffled", "replacement"):
        raise ValueError(f"order must be 'shuffled' or 'replacement', got {order!r}")
    if isinstance(blocks, int | np.integer):
        if isinstance(blocks, bool) or blocks < 1:
            raise ValueError(f"blocks must be at least 1, got {blocks!r}")
    elif isinstance(blocks, str) or not hasattr(blocks, "__len__"):
        raise ValueError(f"blocks must be a whole number or a partition of the samples, got {blocks!r}")


def make_blocks(blocks: Blocks, n_samples: int, rng: np.random.Generator) -> list[Indices]:
    """Cut the samples at random into a number of blocks of (nearly) equal size, or take the user's partition.

    There are no more blocks than samples: with fewer samples than `blocks`, each is a block.
    """
    if isinstance(blocks, int | np.integer):
        n_blocks = min(int(blocks), n_samples)
        partition = [np.arange(n_samples)] if n_blocks == 1 else _random_partition(n_samples, n_blocks, rng)
        return [_read_only(block) for block in partition]
    partition = [np.asarray(block) for block in blocks]
    if not partition or any(block.ndim != 1 or block.dtype.kind not in "iu" or not len(block) for block in partition):
        raise ValueError("blocks must be index arrays, at least one, each one-dimensional and not empty")
    together = np.sort(np.concatenate(partition))
    if len(together) != n_samples or np.any(together != np.arange(n_samples)):
        raise ValueError(f"blocks must hold each of the {n_samples} samples exactly once")
    return [_read_only(block.astype(np.int64)) for block in partition]


def _read_only(block: Indices) -> Indices:
    """Keep a block from being changed, so that a design may remember how it cut it among threads."""
    block.flags.writeable = False
    return block


def shuffled_runs(n_samples: int, n_blocks: int, rng: np.random.Generator) -> tuple[Indices, int]:
    """Return where short runs of samples that lie side by side begin, in a random order, and how long they are."""
    length = max(1, min(_LONGEST_RUN, n_samples // (n_blocks * _RUNS_A_BLOCK)))
    n_runs = -(-n_samples // length) if n_blocks > 1 else 0
    return rng.permutation(n_runs) * length, length


def _random_partition(n_samples: int, n_blocks: int, rng: np.random.Generator) -> list[Indices]:
    """Deal short runs of samples to the blocks: nearly as random as single ones, faster to read."""
    starts, length = shuffled_runs(n_samples, n_blocks, rng)
    order = (starts[:, None] + np.arange(length)).ravel()
    return [np.sort(block) for block in np.array_split(order[order < n_samples], n_blocks)]

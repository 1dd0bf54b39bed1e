"""Exact selection of the k largest magnitudes of a long vector, ties broken the same way every time."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from diht.design.base import frozen

Index: TypeAlias = NDArray[np.int64]

MAGNITUDE = np.uint64(0x7FFFFFFFFFFFFFFF)  # all bits but the sign
SHORT = 100  # entries up to which numpy is as fast as a compiled selection
LONG = 20_000  # entries from which on it is many times slower
FIRST = 10_000_000  # entries, about 0.1 s, that numpy selects from before the kernel, which takes a second to compile, is worth it

_selected_from = 0  # entries so far in this process; what is selected does not depend on it


def top_k(v: NDArray[np.float64], k: int) -> Index:
    r"""Return the indices of the k largest :math:`|v_j|`, ascending; of equal magnitudes, those with smaller indices.

    The bit patterns of non-negative floats are ordered as their values are, so the k-th largest is found by a radix select: see
    :func:`diht.design.kernels.radix_top_k`. In short vectors, and in the first ones of a process, numpy finds the same.

    Parameters
    ----------
    v : (d,) array of float
    k : int

    Returns
    -------
    array of int64
        Exactly ``min(k, d)`` indices, also where v contains NaN (which counts as larger than anything).
    """
    global _selected_from
    v = frozen(v)
    if k >= v.size:
        return np.arange(v.size)
    if k <= 0:
        return np.empty(0, dtype=np.int64)
    if v.size <= SHORT or (v.size <= LONG and _selected_from < FIRST):
        _selected_from += v.size
        return top_k_by_partition(v, k)
    from diht.design.kernels import radix_top_k

    return radix_top_k(v.view(np.uint64), k)  # type: ignore[no-any-return]


def top_k_by_partition(v: NDArray[np.float64], k: int) -> Index:
    """Do as :func:`top_k` by a partition of the bit patterns; ``1 <= k < v.size``."""
    keys = v.view(np.uint64) & MAGNITUDE
    least = np.partition(keys, v.size - k)[v.size - k]
    chosen = np.flatnonzero(keys >= least)
    excess = chosen.size - k
    if excess > 0:  # the last of those that tie
        tied = np.flatnonzero(keys[chosen] == least)
        chosen = np.delete(chosen, tied[tied.size - excess :])
    return chosen


def top_k_numpy(v: NDArray[np.float64], k: int) -> Index:
    """Do as :func:`top_k` by a stable sort: the definition."""
    magnitudes = np.abs(v)
    magnitudes[magnitudes != magnitudes] = np.inf
    return np.sort(np.argsort(-magnitudes, kind="stable")[: max(k, 0)])

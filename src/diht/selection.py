"""Exact selection of the k largest magnitudes of a long vector, ties broken the same way every time."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from diht.design.base import frozen

Index: TypeAlias = NDArray[np.int64]

SHORT = 100  # entries up to which a sort is as good


def top_k(v: NDArray[np.float64], k: int) -> Index:
    r"""Return the indices of the k largest :math:`|v_j|`, ascending; of equal magnitudes, those with smaller indices.

    The bit patterns of non-negative floats are ordered as their values are, so the k-th largest is found by a radix select: see
    :func:`diht.design.kernels.radix_top_k`.

    Parameters
    ----------
    v : (d,) array of float
    k : int

    Returns
    -------
    array of int64
        Exactly ``min(k, d)`` indices, also where v contains NaN (which counts as larger than anything).
    """
    v = frozen(v)
    if k >= v.size:
        return np.arange(v.size)
    if k <= 0:
        return np.empty(0, dtype=np.int64)
    if v.size <= SHORT:  # not worth the time that the first call of a process takes
        return top_k_numpy(v, k)
    from diht.design.kernels import radix_top_k

    return radix_top_k(v.view(np.uint64), k)  # type: ignore[no-any-return]


def top_k_numpy(v: NDArray[np.float64], k: int) -> Index:
    """Do as :func:`top_k` by a stable sort: the definition."""
    magnitudes = np.abs(v)
    magnitudes[magnitudes != magnitudes] = np.inf
    return np.sort(np.argsort(-magnitudes, kind="stable")[: max(k, 0)])

"""What is computed of every column while rows go by: counts, means, spreads, least and largest entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["arrays_figures", "largest_row_norm", "merged_figures"]

Figures = NDArray[np.float64]


def arrays_figures(arrays: dict[str, NDArray[Any]], d: int) -> Figures:
    """Return the figures of a block's d columns: ``X``, or ``data``, ``indices`` and ``indptr`` of a CSR matrix.

    Five rows: the number of entries that are not zero, the mean, the sum of squared deviations from it, the least and the largest
    entry. The mean of a constant column is its value, to the last bit.
    """
    if "X" in arrays:
        X = arrays["X"]
        counts, sums, n = np.count_nonzero(X, axis=0).astype(np.float64), X.sum(axis=0, dtype=np.float64), len(X)
        lows, highs, means = X.min(axis=0), X.max(axis=0), sums / n
        spreads = _dense_spreads(X, means)
    else:
        data, indices, n = arrays["data"].astype(np.float64), arrays["indices"], len(arrays["indptr"]) - 1
        counts, sums = (_by_column(indices, values, d) for values in (data != 0.0, data))
        means, stored = sums / n, np.bincount(indices, minlength=d)
        lows, highs = (np.where(stored < n, 0.0, limit) for limit in (np.inf, -np.inf))
        np.minimum.at(lows, indices, data)
        np.maximum.at(highs, indices, data)
        spreads = _by_column(indices, np.square(data - means[indices]), d) + (n - stored) * np.square(means)
    return _settled(np.stack([counts, means, spreads, lows, highs]).astype(np.float64))


def _by_column(indices: NDArray[Any], values: NDArray[Any], d: int) -> Figures:
    """Return the sums of values that belong to columns."""
    return np.asarray(np.bincount(indices, values, minlength=d), dtype=np.float64)


def _dense_spreads(X: NDArray[Any], means: Figures) -> Figures:
    """Return the sums of squared deviations, some rows at a time."""
    spreads = np.zeros(X.shape[1])
    for start in range(0, len(X), step := max(1, 1_000_000 // X.shape[1])):
        spreads += np.square(X[start : start + step] - means).sum(axis=0)
    return spreads


def largest_row_norm(arrays: dict[str, NDArray[Any]]) -> float:
    """Return the largest Euclidean norm of a block's rows."""
    if "X" in arrays:
        squares = np.einsum("ij,ij->i", arrays["X"], arrays["X"], dtype=np.float64)
    else:
        counts = np.diff(arrays["indptr"])
        row = np.repeat(np.arange(len(counts)), counts)
        squares = _by_column(row, np.square(arrays["data"].astype(np.float64)), len(counts))
    return float(np.sqrt(squares.max()))


def merged_figures(one: Figures | None, n_one: int, other: Figures, n_other: int) -> Figures:
    """Return the figures of the rows of both; the first, of sparse rows, may have fewer columns."""
    if one is None or n_one == 0:
        return other
    known = np.zeros_like(other)  # columns that have not been seen hold zeros
    known[:, : one.shape[1]] = one
    n, apart = n_one + n_other, other[1] - known[1]
    counts = known[0] + other[0]
    means = known[1] + apart * (n_other / n)
    spreads = known[2] + other[2] + np.square(apart) * (n_one * (n_other / n))
    return _settled(np.stack([counts, means, spreads, np.minimum(known[3], other[3]), np.maximum(known[4], other[4])]))


def _settled(figures: Figures) -> Figures:
    """Make the mean of a constant column its value, and its spread zero."""
    constant = figures[3] == figures[4]
    figures[1, constant], figures[2, constant] = figures[3, constant], 0.0
    return figures

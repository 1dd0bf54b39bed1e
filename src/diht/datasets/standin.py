"""A generated data set of the shape of RCV1, for where the real one cannot be had."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["rcv1_standin"]

_WORDS = 77  # drawn a row, a mean of 75 of them distinct
_SPREAD = 0.5  # of the logarithm of a row's length
_PLANTED = 500
_SWAPPED = 0.8
_FLIPPED = 0.05
_CHUNK = 20_000

Floats = NDArray[np.float64]


def rcv1_standin(n: int = 500_000, d: int = 47_236, seed: int = 0) -> Any:
    r"""Generate a stand-in for RCV1: sparse text-like rows with labels from a planted sparse separator.

    The words of a row are drawn independently, word j = 0, ..., d - 1 with a probability of about
    :math:`1 / (j + d / 1000)` (Zipf and Mandelbrot's law); the value is :math:`(1 + \log \mathrm{tf}) \mathrm{idf}`
    and each row has norm 1.  The label is the sign of x.w for a w with 500 nonzeros, flipped with a probability of
    5%.  As the words of a text on one topic agree, each row leans to one side: a word of w of the other side is swapped,
    in four of five cases, for one of this side that is about as frequent.

    Parameters
    ----------
    n, d : int
        Samples and features.  Rows have a mean of 75 nonzeros, fewer where d < 750.
    seed : int
        The same seed gives the same data.

    Returns
    -------
    sklearn.utils.Bunch
        ``data`` (CSR array, float64, 32-bit indices where they suffice), ``target`` (-1.0 and 1.0), ``coef`` (w),
        ``DESCR`` and ``name``, which is "rcv1 stand-in".

    Notes
    -----
    Rows are made in chunks, straight into the arrays of the result: 450 MB at full size.
    """
    from scipy.sparse import csr_array
    from sklearn.utils import Bunch

    if n < 1 or d < 2:
        raise ValueError(f"n must be at least 1 and d at least 2, not {n!r} and {d!r}")
    rng = np.random.default_rng(seed)
    words = min(_WORDS, max(1, d // 10))
    idf = _idf(d, words)
    w = _separator(rng, d)
    lengths = np.maximum(1, rng.lognormal(np.log(words) - _SPREAD**2 / 2, _SPREAD, n)).astype(np.int64)
    values, columns = np.empty(lengths.sum()), np.empty(lengths.sum(), np.int32 if d < 2**31 else np.int64)
    counts = np.empty(n, np.int64)
    end = 0
    for first in range(0, n, _CHUNK):
        part = slice(first, first + _CHUNK)
        chunk, where, counts[part] = _rows(rng, lengths[part], idf, w)
        start, end = end, end + chunk.size
        values[start:end], columns[start:end] = chunk, where
    values.resize(end, refcheck=False)  # in place: what the repeated words had reserved is given back
    columns.resize(end, refcheck=False)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32 if end < 2**31 else np.int64)
    X = csr_array((values, columns, indptr), shape=(n, d), copy=False)
    X.has_canonical_format = True  # sorted and without duplicates, see _rows
    descr = f"Generated stand-in for RCV1, seed {seed}: {n:,} x {d:,}, power-law columns, unit rows."
    return Bunch(data=X, target=_labels(rng, X @ w), coef=w, DESCR=descr, name="rcv1 stand-in")


def _draw(rng: np.random.Generator, size: int, d: int) -> NDArray[np.int64]:
    """Draw words: the inverse of the distribution function log(1 + 1000 j / d) / log(1001) at uniform numbers."""
    j: Floats = np.expm1(rng.random(size) * np.log(1001.0)) * (d / 1000.0)
    return np.minimum(j, d - 1).astype(np.int64)


def _idf(d: int, words: int) -> Floats:
    """Return minus the logarithm of the probability that a row of `words` draws has word j, for every j."""
    probability: Floats = np.diff(np.log1p(1000.0 * np.arange(d + 1) / d)) / np.log(1001.0)
    present: Floats = -np.expm1(words * np.log1p(-probability))
    return -np.log(present)


def _separator(rng: np.random.Generator, d: int) -> Floats:
    """Return a sparse w on words drawn as those of a row, with signs that alternate, which balances the classes."""
    drawn, first = np.unique(_draw(rng, 40 * _PLANTED, d), return_index=True)
    support = np.sort(drawn[np.argsort(first)[: min(_PLANTED, d // 2)]])
    w = np.zeros(d)
    w[support] = rng.uniform(0.5, 1.5, support.size) * (-1.0) ** np.arange(support.size)
    return w


def _swapped(rng: np.random.Generator, row: NDArray[np.int64], word: NDArray[np.int64], w: Floats) -> Any:
    """Return the words after those of w that are against their row's side were swapped for their neighbours in w."""
    support = np.flatnonzero(w)
    partner, ranks = np.arange(w.size), np.arange(support.size)
    partner[support] = support[np.minimum(ranks ^ 1, support.size - 1)]
    side = rng.choice([-1.0, 1.0], row[-1] + 1)
    against = w[word] * side[row] < 0
    return np.where(against & (rng.random(word.size) < _SWAPPED), partner[word], word)


def _rows(rng: np.random.Generator, lengths: NDArray[np.int64], idf: Floats, w: Floats) -> tuple[Floats, Any, Any]:
    """Return values, columns and the number of nonzeros of rows with so many draws each."""
    d = idf.size
    row = np.repeat(np.arange(lengths.size), lengths)
    cells = np.sort(row * d + _swapped(rng, row, _draw(rng, row.size, d), w))
    cells = cells[np.diff(cells, prepend=-1) > 0]
    row, column = np.divmod(cells, d)
    counts = np.bincount(row, minlength=lengths.size)
    value = (1.0 + np.log(rng.geometric(0.6, cells.size))) * idf[column]
    norm = np.sqrt(np.bincount(row, value**2))
    return value / norm[row], column, counts


def _labels(rng: np.random.Generator, margin: Floats) -> Floats:
    """Return the signs, a fair coin's where the margin is 0, some of them flipped."""
    coin = rng.choice([-1.0, 1.0], margin.size)
    label = np.where(margin == 0.0, coin, np.sign(margin))
    return np.where(rng.random(margin.size) < _FLIPPED, -label, label)

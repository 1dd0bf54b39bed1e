"""Walks along single columns in compiled code, for samples in memory: the twin of what `diht.search.joining` does in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from diht.design.entries import Entries, SparseEntries
from diht.numerics.arrays import Indices, Matrix, Vector
from diht.numerics.threads import run_parts

__all__ = ["Around", "Found", "Walks"]

_SPARSE = 0.25  # share of numbers that differ from the most frequent row up to which only these are read
_WORTH = 20_000  # operations that are worth a thread: an entry is one, and each column has its small system


@dataclass(frozen=True, eq=False)
class Around:
    """What a walk sets out from, but for the rows; see `diht.samples.walk_kernels`."""

    loss: tuple[int, float, float, float]
    has_intercept: bool
    equations: Matrix  # inverse and K
    vectors: Matrix  # rows ridge, pull, sizes (which `Walks` fills in), g, lam w, the root of the diagonal of K
    scalars: Vector  # base, lam, reach, the imbalance that is rounding, features of the support


class Found(NamedTuple):
    """Bounds for some columns, the coefficients that they lead to and how many entries were seen."""

    bounds: Vector
    t: Vector
    seen: int


class Walks:
    """Bounds from dual points along columns.

    Parameters
    ----------
    around : Around
    Y : array of shape (N, n)
        The columns of the support, and one of ones for an intercept.
    samples : array of shape (6, N)
        The rows u, alpha, c, l*(alpha), y, s.
    entries : callable
        The entries of some columns.
    n_threads : int
    """

    def __init__(
        self, around: Around, Y: Matrix, samples: Matrix, entries: Callable[[Indices], Entries], n_threads: int
    ) -> None:
        self._entries, self._n_threads, self._whole = entries, n_threads, False
        distinct, classes = _distinct(Y)
        origin = distinct[int(np.argmax(np.bincount(classes)))]
        differs, none = distinct != origin, np.empty(0, dtype=np.int64)
        parts: tuple[Any, ...]
        if np.count_nonzero(differs) <= _SPARSE * distinct.size:
            rows, columns = np.nonzero(differs)
            values, starts = distinct[differs] - origin[columns], _starts(np.bincount(rows, minlength=len(distinct)))
            by_column = csr_array((values, columns, starts), shape=distinct.shape).tocsc()
            own = by_column.indices.astype(np.int64), by_column.indptr.astype(np.int64)
            parts = values, columns, starts, *own
            around.vectors[2] = np.maximum(distinct.max(axis=0) - origin, origin - distinct.min(axis=0))
        else:
            parts, origin = (distinct, none, none, none, none), np.zeros(Y.shape[1])
        self._Y = tuple(_of_one_type(part) for part in parts)
        self._members = np.argsort(classes, kind="stable"), _starts(np.bincount(classes, minlength=len(distinct)))
        loss = np.array(around.loss, dtype=np.float64)
        self._model = samples, around.equations, around.vectors, around.scalars, loss, origin, classes

    def least(self, features: Indices, g: Vector, rounds: int) -> Found:
        """Minimise the objective along each of some columns alone: how it changes, in place of bounds, and where."""
        from diht.samples.walk_kernels import least_along

        return self._found(features, g, np.zeros(len(g)), partial(least_along, rounds=rounds, model=self._model))

    def fitted(self, features: Indices, g: Vector, t: Vector, precise: float, rounds: int) -> Found:
        """Fit all coefficients and that of each of some columns: objectives in place of bounds, NaN where less precise."""
        from diht.samples.walk_kernels import newton_least

        work = partial(newton_least, precise=precise, rounds=rounds, Y=self._Y, model=self._model)
        return self._found(features, g, t, work)

    def bounds(self, features: Indices, g: Vector, t: Vector, target: float, rounds: int) -> Found:
        """Try a few coefficients for each of some columns, each where the slopes of the last ones lead."""
        from diht.samples.walk_kernels import walk_bounds

        return self._found(
            features, g, t, partial(walk_bounds, target=target, rounds=rounds, Y=self._Y, model=self._model)
        )

    def pivot_bounds(self, features: Indices, g: Vector, t: Vector, target: float, rounds: int) -> Found:
        """Maximise D for each of some columns by pivots; seen are numbers that were multiplied."""
        from diht.samples.walk_kernels import pivot_bounds

        return self._found(
            features, g, t, partial(pivot_bounds, target=target, rounds=rounds, Y=self._Y, model=self._model)
        )

    def newton_bounds(
        self, features: Indices, g: Vector, t: Vector, target: float, rounds: int, everywhere: bool
    ) -> Found:
        """Follow Newton's method for each of some columns, with the loss of the rows that move far, or of all."""
        from diht.samples.walk_kernels import newton_bounds

        if everywhere and self._whole:  # the rows of the entries are all
            return Found(np.full(len(t), -np.inf), t, 0)
        members, membered = self._members
        given: dict[str, Any] = {
            "everywhere": everywhere,
            "target": target,
            "rounds": rounds,
            "Y": self._Y,
            "model": self._model,
        }
        return self._found(features, g, t, partial(newton_bounds, members=members, membered=membered, **given))

    def _found(self, features: Indices, g: Vector, t: Vector, work: Callable[..., int]) -> Found:
        """Cut the columns among the threads."""
        m, entries = len(features), self._entries(features)
        self._whole = not isinstance(entries, SparseEntries)
        if not isinstance(entries, SparseEntries):
            x, rows = np.ascontiguousarray(entries.x.T).ravel(), np.arange(len(entries.x), dtype=np.int32)
            starts = np.arange(m + 1) * len(rows)
        else:
            x, rows, starts = entries.x, entries.rows, entries.starts
        bounds, t = np.full(m, -np.inf), t.copy()
        work_of_all = len(x) + m * self._model[5].size ** 2
        n_parts = max(1, min(self._n_threads, m, work_of_all // _WORTH))
        parts = [(x, rows, starts, self._whole, np.arange(part, m, n_parts), g, t, bounds) for part in range(n_parts)]
        return Found(bounds, t, sum(run_parts(work, parts)))


def _of_one_type(array: NDArray[Any]) -> NDArray[Any]:
    """Return a contiguous, read-only view: kernels are compiled anew for other strides, and for arrays that can be written."""
    view = np.ascontiguousarray(array)[:]
    view.flags.writeable = False
    return view


def _starts(counts: Indices) -> Indices:
    """Return where lists of so many numbers begin that follow each other, and where the last one ends."""
    return np.append(0, np.cumsum(counts))


def _distinct(Y: Matrix) -> tuple[Matrix, Indices]:
    """Return the distinct rows of a matrix, and which of them each row is.

    Rows are told apart by one product with random numbers; should that be the same of two that differ, all count as distinct.
    """
    products = Y @ np.random.default_rng(0).standard_normal(Y.shape[1])
    _, first, classes = np.unique(products, return_index=True, return_inverse=True)
    distinct = Y[first]
    if len(first) > 0.5 * len(Y) or not np.array_equal(distinct[classes], Y):
        return np.ascontiguousarray(Y), np.arange(len(Y))
    return np.ascontiguousarray(distinct), classes

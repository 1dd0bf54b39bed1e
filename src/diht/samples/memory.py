"""Samples in this process's memory: vectors are numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from diht.design import Curvature, DenseDesign, Design, DualState, Step, spectral_bound
from diht.design.entries import DenseEntries, Entries
from diht.design.gram import Gram, PreciseGram, gram, precise_gram
from diht.losses import Loss, Pieces
from diht.numerics.arrays import Indices, Vector
from diht.numerics.threads import in_slices
from diht.samples import compiled_loss
from diht.samples.ascent import CoordinateAscent, ProximalAscent
from diht.samples.base import Chosen, Rows, Samples
from diht.samples.central_path import EndOfPath, central_path
from diht.samples.descents import Descents
from diht.samples.greedy import Greedy
from diht.samples.intercept import SHORT
from diht.samples.least_squares import ridge
from diht.samples.lines import MemoryLines
from diht.samples.partition import Blocks, make_blocks
from diht.samples.walks import Around, Walks

__all__ = ["MemorySamples", "null_intercept"]

T = TypeVar("T")

_MOST_ENTRIES = 5e6  # of X, dense, for local searches on all of it


@dataclass(frozen=True, eq=False)
class ChosenInMemory(Chosen):
    """Samples by their indices, ascending."""

    indices: Indices

    @property
    def size(self) -> int:
        """Their number."""
        return len(self.indices)

    def values(self, rows: Rows) -> Vector:
        """Return their entries of a vector."""
        return np.asarray(rows[self.indices])

    def rows_of(self, samples: MemorySamples) -> Vector:
        """Return their rows of X."""
        return samples.design.rows(self.indices)

    def first(self, most: int) -> ChosenInMemory:
        """Return the first of them."""
        return ChosenInMemory(self.indices[:most])

    def patched(self, rows: Rows, values: Vector) -> Rows:
        """Return a copy of a vector with other entries of theirs."""
        rows = rows.copy()
        rows[self.indices] = values
        return rows


class MemorySamples(Samples):
    """A design with its targets and weights."""

    whole = True

    design: Design

    def __init__(self, design: Design, y: Vector, s: Vector) -> None:
        self.design, self.y, self.s = design, y, s

    @property
    def size(self) -> int:
        """The number of samples."""
        return len(self.y)

    def each(self, f: Callable[..., T], *rows: Rows) -> list[T]:
        """Return ``f(y, s, *rows)`` of blocks of samples, in threads; of vectors of several targets at once."""
        if not self._are_cut(rows):
            return [f(self.y, self.s, *rows)]
        return in_slices(
            lambda some: f(self.y[some], self.s[some], *(row[some] for row in rows)), self.size, self.design.n_threads
        )

    def _are_cut(self, rows: tuple[Rows, ...]) -> bool:
        """Whether vectors are long enough to be cut, and have one number for each sample."""
        return self.size > SHORT and all(isinstance(row, np.ndarray) and row.ndim == 1 for row in (self.y, *rows))

    def map(self, f: Callable[..., Any], *rows: Rows) -> Rows:
        """Return ``f(y, s, *rows)``, computed in threads."""
        few = slice(0, SHORT)
        if not self._are_cut(rows) or (first := f(self.y[few], self.s[few], *(row[few] for row in rows))).ndim != 1:
            return np.asarray(f(self.y, self.s, *rows))
        out = np.empty(self.size, first.dtype)
        out[few] = first

        def work(some: slice) -> None:
            some = slice(some.start + SHORT, min(some.stop + SHORT, self.size))
            out[some] = f(self.y[some], self.s[some], *(row[some] for row in rows))

        in_slices(work, self.size - SHORT, self.design.n_threads)
        return out

    def value(self, loss: Loss, u: Rows) -> float:
        """Return ``sum_i s_i l(u_i, y_i)``."""
        if compiled_loss.is_compiled(loss, self.size):
            return compiled_loss.sums(loss, u, 0.0, self.y, self.s, self.design.n_threads)[0]
        return super().value(loss, u)

    def slope_at(self, loss: Loss, u: Rows, b: float) -> tuple[float, float, float | None]:
        """Return the weighted sums of l', |l'| and, where that takes no time, l'' at the margins u + b."""
        if compiled_loss.is_compiled(loss, self.size):
            return compiled_loss.sums(loss, u, b, self.y, self.s, self.design.n_threads, valued=False)[1:]
        return super().slope_at(loss, u, b)

    def slopes(self, loss: Loss, u: Rows) -> Rows:
        """Return ``l'(u_i, y_i)``."""
        if compiled_loss.is_compiled(loss, self.size):
            return compiled_loss.slopes(loss, u, self.y, self.design.n_threads)
        return super().slopes(loss, u)

    def curvatures(self, loss: Loss, u: Rows) -> Rows:
        """Return ``l''(u_i, y_i)``."""
        if compiled_loss.is_compiled(loss, self.size):
            return compiled_loss.curvatures(loss, u, self.y, self.design.n_threads)
        return super().curvatures(loss, u)

    def with_targets(self, y: Rows) -> MemorySamples:
        """Return the same samples with other targets."""
        return MemorySamples(self.design, y, self.s)

    def put(self, values: Vector) -> Rows:
        """Return the numbers as they are."""
        return values

    def fetch(self, rows: Rows) -> Vector:
        """Return the vector itself."""
        return np.asarray(rows)

    def columns(self, features: Indices) -> MemorySamples:
        """Return the samples of some features alone, on a compact copy of them."""
        return MemorySamples(self.design.columns(features), self.y, self.s)

    def lines(self, features: Indices, beside: Samples, whole: bool = False) -> MemoryLines:
        """Return the columns of some features, entry by entry."""
        assert isinstance(beside, MemorySamples)
        return MemoryLines(self._entries(features, whole), beside.design.toarray(copy=False), self.y, self.s)

    def _entries(self, features: Indices, whole: bool) -> Entries:
        return DenseEntries(self.design.columns(features).toarray()) if whole else self.design.column_entries(features)

    def walks(self, around: Around, beside: Samples, whole: bool, *rows: Rows) -> Walks:
        """Return compiled walks along columns."""
        assert isinstance(beside, MemorySamples)
        Y = beside.design.toarray(copy=False)
        if around.has_intercept:
            Y = np.column_stack([Y, np.ones(len(Y))])
        n_threads = self.design.n_threads
        return Walks(around, Y, np.array([*rows, self.y, self.s]), lambda some: self._entries(some, whole), n_threads)

    def descents(self, loss: Loss, lam: float, fit_intercept: bool) -> Descents | None:
        """Return compiled local searches, of an X whose dense form is small."""
        kernel, (n, d) = loss.kernel(), self.design.shape
        if kernel is None or kernel[1] == 0.0 or float(n) * d > _MOST_ENTRIES or self.design.is_far:
            return None
        return Descents(self.design, np.array([self.y, self.s]), kernel, lam, fit_intercept)

    def greedy(self, loss: Loss, lam: float, fit_intercept: bool) -> Greedy | None:
        """Return local searches in plain numpy, of few samples and an X whose dense form is small; the squared loss has better."""
        n, d = self.design.shape
        small = n <= d and float(n) * d <= _MOST_ENTRIES and not self.design.is_far
        if not small or not loss.differentiable or loss.is_squared_error:
            return None
        return Greedy(self.design, self.y, self.s, loss, lam, fit_intercept)

    def holds(self, rows: Rows) -> bool:
        """Tell whether something is an array of as many numbers."""
        return isinstance(rows, np.ndarray) and rows.shape == self.y.shape

    def chosen(self, f: Callable[..., Any], *rows: Rows) -> ChosenInMemory:
        """Choose the samples for which ``f(y, s, *rows)`` is true."""
        return ChosenInMemory(np.flatnonzero(f(self.y, self.s, *rows)))

    def spectral_bound(self, part: Rows | None = None) -> float:
        """Return an upper bound on the largest eigenvalue of ``X' diag(s) X``, over a part of the samples or all."""
        return spectral_bound(self.design, self.s, rows=part)

    def largest_square(self) -> float:
        """Return ``max_i s_i ||x_i||^2``."""
        return float(np.max(self.s * self.design.row_norms_sq(), initial=0.0))

    def ascent(self, loss: Loss, lam: float, fit_intercept: bool, alpha: Rows) -> CoordinateAscent:
        """Return coordinate ascent from a dual point, which it changes in place; on few features."""
        rng = np.random.default_rng(0)
        return CoordinateAscent(self.design, loss, self.y, self.s, lam, fit_intercept, alpha, rng)

    def proximal_ascent(
        self,
        features: Indices | None,
        loss: Loss,
        lam: float,
        fit_intercept: bool,
        m: int,
        inside: NDArray[np.bool_],
        alpha: Rows,
        seed: int,
    ) -> ProximalAscent:
        """Return the relaxation's ascent from a dual point, which it changes in place; on some features."""
        return ProximalAscent(self.design, features, loss, self.y, self.s, lam, fit_intercept, m, inside, alpha, seed)

    def central_path(
        self, pieces: Pieces, lam: float, fit_intercept: bool, rtol: float, offset: Rows | None = None
    ) -> EndOfPath:
        """Follow the central path of a loss of straight and quadratic pieces, of margins plus an offset; on few features."""
        return central_path(self.design, pieces, self.y, self.s, lam, fit_intercept, rtol, offset)

    def square_sum(self, part: Rows) -> float:
        """Return ``sum_i s_i ||x_i||^2`` over a part of the samples."""
        return float((self.s[part] * self.design.row_norms_sq()[part]).sum())

    def partition(self, blocks: Blocks, rng: np.random.Generator) -> list[Rows]:
        """Return the indices of each part."""
        return list(make_blocks(blocks, self.size, rng))

    def taken(self, part: Rows) -> MemorySamples:
        """Return the samples of a part, with X dense."""
        s = self.s[part]
        return MemorySamples(DenseDesign(self.design.rows(part)), self.y[part], s / s.sum())

    def weight(self, part: Rows) -> float:
        """Return the sum of the weights of a part."""
        return float(self.s[part].sum())

    def extent(self, W: Vector, b: Vector) -> Vector:
        """Return the largest margin, in size, of each of several models."""
        return np.asarray(np.abs(self.design.toarray(copy=False) @ W + b).max(axis=0, initial=0.0))

    def largest_entries(self) -> Vector:
        """Return the largest entry, in size, of every column."""
        X = self.design.toarray(copy=False)
        return np.asarray(np.maximum(X.max(axis=0, initial=0.0), -X.min(axis=0, initial=0.0)))

    def formed(self) -> MemorySamples:
        """Return the samples with X dense, in float64; as they are where X is far."""
        return self if self.design.is_far else MemorySamples(self.design.formed(), self.y, self.s)

    def gram(self, features: Indices, centred: bool, known: Gram | None = None) -> Gram:
        """Compute the Gram matrix of some columns and the targets."""
        return gram(self.design, self.y, self.s, centred, features, known)

    def precise_gram(self, centred: bool) -> PreciseGram | None:
        """Compute the Gram matrix of all columns and the targets in twice the precision; None where it is too large for that."""
        return precise_gram(self.design, self.y, self.s, centred)

    def ridge(self, lam: float, centred: bool) -> Vector | None:
        """Minimise the squared error plus a ridge, where X is small."""
        level = self.s @ self.y if centred else 0.0  # the design is centred then
        return ridge(self.design, self.y - level, self.s, lam)

    def moments(self, h: Rows) -> tuple[Vector, Vector]:
        """Mean and variance of every column under the weights ``s_i h_i``, divided by their sum."""
        c = self.s * h
        return self.design.moments(c / float(c.sum()))

    def curvature(self, h: Rows, centred: bool) -> Curvature:
        """Return what gives ``X' diag(s h) X`` row by row."""
        return self.design.curvature(self.s * h, self.center(h) if centred else None)

    def hessian(self, h: Rows, centred: bool) -> Vector:
        """Compute ``X' diag(s h) X``, X centred by these weights where an intercept is eliminated."""
        return self.design.hessian(self.s * h, self.center(h) if centred else None)

    def hessian_root(self, h: Rows, centred: bool, lam: float) -> Vector:
        """Return R, upper triangular, with R'R the Hessian plus lam I."""
        return self.design.hessian_root(self.s * h, self.center(h) if centred else None, lam)

    def margins(self, w: Vector, b: float = 0.0, support: Indices | None = None) -> Rows:
        """Compute ``X w + b``."""
        u = self.design.matvec(w, support=support)
        u += b
        return u

    def pull(self, alpha: Rows) -> Vector:
        """Compute ``X'(s alpha)``."""
        return self.design.rmatvec(self.map(lambda y, s, a: s * a, alpha))

    def margins_and_pull(self, w: Vector, alpha: Rows) -> tuple[Rows, Vector]:
        """Compute ``X w`` and ``X'(s alpha)`` with one read of X."""
        return self.design.matvec_rmatvec(w, self.s * alpha)

    def step(self, step: Step, w: Vector, b: float, dual: DualState, part: Rows | None = None) -> float:
        """Update dual variables, and g with them; a part is an array of indices."""
        return self.design.block_step(step, w, b, dual, self.y, self.s, part)

    def predictions(self, coef: Vector, *constants: float, less: tuple[Rows, ...] = ()) -> tuple[Rows, Rows]:
        """Compute X coef plus constants in twice the precision, and bounds on the errors."""
        return self.design.predictions(coef, *constants, less=less)


def null_intercept(loss: Loss, y: Vector, s: Vector) -> float:
    """Return the best intercept of the model without features."""
    return float(MemorySamples(DenseDesign(np.empty((len(y), 0))), y, s).best_intercept(loss, np.zeros_like(y)))

r"""The interface between solvers and rows.

Of three kinds of things the first stay where the rows live:

- what is as long as the samples, such as targets, weights, margins :math:`u = Xw + b` and dual variables: `Rows`, which nobody but
  the samples themselves looks into;
- what is as long as the features: coefficients, :math:`X^\top (s \odot \alpha)`;
- numbers.

A function of the samples goes to the rows (`map`, `each`, `total`), where it is called, block by block, with the targets, the
weights and the parts of the vectors that belong to them. It must treat each sample alone, or return a sum over them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from diht.design import DualState, Features, Step
from diht.design.gram import Gram, PreciseGram
from diht.losses import Loss, Pieces
from diht.numerics.arrays import Indices, Vector
from diht.samples.ascent import CoordinateAscent, ProximalAscent
from diht.samples.central_path import EndOfPath
from diht.samples.descents import Descents
from diht.samples.greedy import Greedy
from diht.samples.intercept import added, balanced, best_intercept
from diht.samples.lines import Lines
from diht.samples.partition import Blocks
from diht.samples.walks import Around, Walks

__all__ = ["Chosen", "Curvatures", "Intercept", "Rows", "Samples", "added"]

T = TypeVar("T")
Intercept: TypeAlias = Any  # a number, or an array with one for each of several targets
Rows: TypeAlias = Any  # N numbers, where the rows live


class Chosen(ABC):
    """A few samples, whose entries may be looked at and changed."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Their number."""

    @abstractmethod
    def values(self, rows: Rows) -> Vector:
        """Return their entries of a vector."""

    @abstractmethod
    def rows_of(self, samples: Any) -> Vector:
        """Return their rows of X, as these or other samples have them."""

    @abstractmethod
    def patched(self, rows: Rows, values: Vector) -> Rows:
        """Return a copy of a vector with other entries of theirs."""

    @abstractmethod
    def first(self, most: int) -> Chosen:
        """Return the first of them, so many at most."""

    def shares(self) -> Vector:
        """Return, for each intercept, a row with 1 for those of the samples that have it."""
        return np.ones((1, self.size))


class Curvatures(Protocol):
    """A Hessian ``A' C A`` row by row, without its ridge."""

    def gram_rows(self, chosen: Indices) -> Vector:
        """Return some rows."""

    def gram_diagonal(self) -> Vector:
        """Return the diagonal."""

    def charge(self, design: Any) -> None:
        """Count what has been read of A as its fraction of X."""


class Samples(ABC):
    """N samples with their targets and weights.

    Attributes
    ----------
    design : Features
        X, asked for nothing that is as long as the samples.
    y, s : Rows
        The targets and the weights.
    whole : bool
        Whether there is one block: a search along the samples may then run where they are.
    here : bool
        Whether rows are in this process, and some of them may be copied.
    n_targets : int
        How many targets a sample has. Where there are several, an intercept is an array with one for each.
    """

    whole = False
    here = True

    rough_hessians = False  # whether a Hessian takes so much longer than products that a rough one is tried first
    looks = False  # whether `look` brings the loss of a model with all its derivatives at once
    remote = False  # whether each sum is a round trip to other processes
    n_targets = 1

    design: Features
    y: Rows
    s: Rows

    @property
    def size(self) -> int:
        """The number of samples."""
        return self.design.shape[0]

    # Functions of the samples

    @abstractmethod
    def each(self, f: Callable[..., T], *rows: Rows) -> list[T]:
        """Return ``f(y, s, *rows)`` of every block; what it returns travels, and should be small."""

    @abstractmethod
    def map(self, f: Callable[..., Any], *rows: Rows) -> Rows:
        """Return the vector of ``f(y, s, *rows)``, which has a number for each sample."""

    def map_in_memory(self, f: Callable[..., Any], *rows: Rows) -> Rows:
        """Do so with numpy's arrays: for what is computed once."""
        return self.map(f, *rows)

    def total(self, f: Callable[..., Any], *rows: Rows) -> float:
        """Return ``sum_i s_i f(y_i, rows_i)``."""
        return added(self.each(lambda y, s, *parts: float(np.dot(s, f(y, *parts))), *rows))

    def largest(self, f: Callable[..., Any], *rows: Rows) -> float:
        """Return ``max_i f(y_i, rows_i)``."""
        return max(self.each(lambda y, s, *parts: float(np.max(f(y, *parts), initial=-np.inf)), *rows))

    def value(self, loss: Loss, u: Rows) -> float:
        """Return ``sum_i s_i l(u_i, y_i)``."""
        return self.total(lambda y, u: loss.value(u, y), u)

    def conjugate(self, loss: Loss, alpha: Rows) -> float:
        """Return ``sum_i s_i l*(alpha_i, y_i)``."""
        return self.total(lambda y, a: loss.conjugate(a, y), alpha)

    def slopes(self, loss: Loss, u: Rows) -> Rows:
        """Return ``l'(u_i, y_i)``."""
        return self.map(lambda y, s, u: loss.derivative(u, y), u)

    def curvatures(self, loss: Loss, u: Rows) -> Rows:
        """Return ``l''(u_i, y_i)``."""
        return self.map(lambda y, s, u: loss.second_derivative(u, y), u)

    def per_intercept(self, results: list[T]) -> list[list[T]]:
        """Return what `each` returns, by the intercept that the samples have in common."""
        return [results]

    @abstractmethod
    def with_targets(self, y: Rows) -> Samples:
        """Return the same samples with other targets."""

    def shifted(self, u: Rows, b: Any) -> Rows:
        """Return ``u_i + b``."""
        return self.map(lambda y, s, u: u + b, u)

    def moved(self, u: Rows, change: Rows, size: float) -> Rows:
        """Return ``u_i + size change_i``."""
        return self.map(lambda y, s, u, v: u + size * v, u, change)

    def mean(self, rows: Rows) -> Any:
        """Return ``sum_i s_i rows_i / sum_i s_i``."""
        return self.total(lambda y, a: a, rows) / self.total(np.ones_like)

    def sums(self, rows: Rows) -> Vector:
        """Return ``sum_i s_i rows_i`` over the samples of each intercept."""
        return np.array([self.total(lambda y, a: a, rows)])

    def drift(self, h: Rows, change: Rows) -> Any:
        """Return how far the best intercept moves with the margins, by a quadratic of curvatures h."""
        sums = self.each(lambda y, s, h, v: (float(np.dot(s, h)), float(np.dot(s, h * v))), h, change)
        total, moved = map(added, zip(*sums, strict=True))
        return -moved / total if total > 0.0 else 0.0

    def bent(self, h: Rows, change: Rows, drift: Any) -> Rows:
        """Return ``h_i (change_i + drift)``: how the slopes change, by curvatures h."""
        return self.map(lambda y, s, h, v: h * (v + drift), h, change)

    @cached_property
    def target_size(self) -> float:
        """``sum_i s_i |y_i|``, or 1 where that is zero: the unit of the targets."""
        return self.total(np.abs) or 1.0

    def any(self, rows: Rows) -> bool:
        """Tell whether a vector has an entry other than zero."""
        return any(self.each(lambda y, s, a: bool(np.any(a)), rows))

    def bytes_of(self, rows: Rows) -> int:
        """Memory that a vector takes."""
        return sum(self.each(lambda y, s, a: int(a.nbytes), rows))

    def finite(self, rows: Rows) -> bool:
        """Tell whether all entries of a vector are finite numbers."""
        return all(self.each(lambda y, s, a: bool(np.all(np.isfinite(a))), rows))

    @cached_property
    def n_weighted(self) -> int:
        """The number of samples that have a weight."""
        return sum(self.each(lambda y, s: int(np.count_nonzero(s))))

    @cached_property
    def heaviest(self) -> float:
        """The largest weight."""
        return max(self.each(lambda y, s: float(s.max())))

    @cached_property
    def mean_weight(self) -> float:
        """The mean of the weights: 1/N unless an offset changed them."""
        return self.total(np.ones_like) / self.size

    @abstractmethod
    def holds(self, rows: Rows) -> bool:
        """Tell whether something is a vector of these samples, or of others that are as many."""

    @abstractmethod
    def chosen(self, f: Callable[..., Any], *rows: Rows) -> Chosen:
        """Choose the samples for which ``f(y, s, *rows)`` is true."""

    def full(self, value: float) -> Rows:
        """Return the same number for every sample."""
        return self.map(lambda y, s: np.full_like(y, value))

    def copy(self, rows: Rows) -> Rows:
        """Return a vector that does not change when the other one does."""
        return self.map(lambda y, s, a: a.copy(), rows)

    @abstractmethod
    def put(self, values: Vector) -> Rows:
        """Bring N numbers to where the rows live."""

    @abstractmethod
    def fetch(self, rows: Rows) -> Vector:
        """Return all the numbers of a vector."""

    def empty(self) -> Rows:
        """Return a vector to be written to."""
        return self.map(lambda y, s: np.empty_like(y))

    # Parts of the samples

    @abstractmethod
    def partition(self, blocks: Blocks, rng: np.random.Generator) -> list[Rows]:
        """Cut the samples at random into a number of parts of (nearly) equal size, or as the user says."""

    @abstractmethod
    def weight(self, part: Rows) -> float:
        """Return the sum of the weights of a part."""

    def lines(self, features: Indices, beside: Samples, whole: bool = False) -> Lines:
        """Return the columns of some features, entry by entry, beside these samples with a few others, whose X is dense.

        Of sparse columns those that are stored, as they are before they are centred, unless the `whole` columns are asked for.
        """
        raise self._of_several_targets()

    def walks(self, around: Around, beside: Samples, whole: bool, *rows: Rows) -> Walks | None:
        """Return compiled walks along columns, beside these samples with a few others; None where rows are apart.

        The rows are those of the margins, the dual point, the weights c and the conjugates.
        """
        return None

    def descents(self, loss: Loss, lam: float, fit_intercept: bool) -> Descents | None:
        """Return compiled local searches; None where rows are apart, X is not small, or a loss has no compiled curvature."""
        return None

    def greedy(self, loss: Loss, lam: float, fit_intercept: bool) -> Greedy | None:
        """Return local searches in plain numpy; None where rows are apart or many, or the loss is squared or has kinks."""
        return None

    @abstractmethod
    def taken(self, part: Rows) -> Samples:
        """Return the samples of a part, their weights divided by their sum, with X dense and in memory: for few samples."""

    @abstractmethod
    def columns(self, features: Indices) -> Samples:
        """Return the samples of some features alone, on a compact copy of them."""

    # The intercept

    def slope_at(self, loss: Loss, u: Rows, b: float) -> tuple[float, float, float | None]:
        """Return the weighted sums of l', |l'| and, where that takes no time, l'' at the margins u + b."""

        def sums(y: Vector, s: Vector, u: Vector) -> tuple[float, float]:
            slopes = loss.derivative(u + b, y)
            return float(np.dot(s, slopes)), float(np.dot(s, np.abs(slopes)))

        slope, size = map(added, zip(*self.each(sums, u), strict=True))
        return slope, size, None

    def best_intercept(self, loss: Loss, u: Rows, start: Any = 0.0, compiled: bool = False) -> Any:
        """Return the minimiser over b of ``sum_i s_i l(u_i + b, y_i)``, searched from `start`."""
        return best_intercept(self, loss, u, start, compiled)

    def at_best_intercept(
        self, loss: Loss, u: Rows, start: Any = 0.0, compiled: bool = False
    ) -> tuple[Any, Rows, float]:
        """Return that intercept, the margins with it, and the value of the loss there."""
        b = self.best_intercept(loss, u, start, compiled)
        u = self.shifted(u, b)
        return b, u, self.value(loss, u)

    def balanced(self, loss: Loss, alpha: Rows) -> Rows:
        """Project `alpha`, in the metric of the weights, on F and ``sum_i s_i alpha_i = 0``, to rounding."""
        return balanced(self, loss, alpha)

    # Several targets

    def by_target(self, rows: Rows) -> list[Rows]:
        """Return each target's part of a vector."""
        return [rows]

    def stacked(self, rows: list[Rows]) -> Rows:
        """Return a vector from those of the targets."""
        [row] = rows
        return row

    @property
    def targets(self) -> list[Samples]:
        """The samples of each target, with all columns of X."""
        return [self]

    def target_of(self, features: Indices) -> Indices:
        """Return the target that each of some coefficients belongs to."""
        return np.zeros(len(features), dtype=np.int64)

    def column_of(self, features: Indices) -> Indices:
        """Return the column of X that each of some coefficients belongs to."""
        return features

    # Products with X

    @abstractmethod
    def spectral_bound(self, part: Rows | None = None) -> float:
        """Return an upper bound on the largest eigenvalue of ``X' diag(s) X``, over a part of the samples or all."""

    @abstractmethod
    def largest_square(self) -> float:
        """Return ``max_i s_i ||x_i||^2``."""

    @abstractmethod
    def square_sum(self, part: Rows) -> float:
        """Return ``sum_i s_i ||x_i||^2`` over a part of the samples."""

    def extent(self, W: Vector, b: Vector) -> Vector:
        """Return ``max_i |x_i.w + b|`` for each of several models, one in each column of W: for few features, X dense."""
        raise self._of_several_targets()

    def largest_entries(self) -> Vector:
        """Return the largest entry, in size, of every column: for few features."""
        raise self._of_several_targets()

    def _of_several_targets(self) -> TypeError:
        return TypeError("samples of several targets are not walked along a column")

    @abstractmethod
    def formed(self) -> Samples:
        """Return the samples with X dense, in float64: for few features."""

    def formed_if_shorter(self) -> Samples:
        """Do so where Hessians are cheaper then."""
        design = self.design
        return self if design.gram_cost() <= 0.5 * design.dense_gram_cost() else self.formed()

    def residuals(self, p: Vector, centred: bool) -> Rows:
        """Compute ``y - X p``, less their mean where there is an intercept."""
        u = self.margins(p, support=np.flatnonzero(p))
        r = self.map(lambda y, s, u: y - u, u)
        return self.shifted(r, -self.mean(r)) if centred else r

    @abstractmethod
    def gram(self, features: Indices, centred: bool, known: Gram | None = None) -> Gram:
        """Compute the Gram matrix of some columns and the targets: `diht.design.gram`."""

    @abstractmethod
    def precise_gram(self, centred: bool) -> PreciseGram | None:
        """Compute the Gram matrix of all columns and the targets in twice the precision; None where it is too large for that."""

    @abstractmethod
    def ridge(self, lam: float, centred: bool) -> Vector | None:
        """Minimise ``sum_i s_i (y_i - b - x_i.w)^2 + lam ||w||^2``, where X is small; None where that overflows."""

    def center(self, h: Rows) -> Vector | None:
        """Return the means of the columns under the weights ``s_i h_i``; None where these are all zero."""
        total = self.total(lambda y, h: h, h)
        return self.pull(h) / total if total > 0.0 else None

    def spread(self, centred: bool) -> Vector:
        """Return the weighted mean of the squares of every column, less that of its mean where there is an intercept."""
        mean, variance = self.moments(self.full(1.0))
        return variance if centred else variance + mean**2

    @abstractmethod
    def moments(self, h: Rows) -> tuple[Vector, Vector]:
        """Mean and variance of every column under the weights ``s_i h_i``, divided by their sum."""

    @abstractmethod
    def curvature(self, h: Rows, centred: bool) -> Curvatures:
        """Return what gives ``X' diag(s h) X`` row by row, X centred by these weights where an intercept is eliminated."""

    @abstractmethod
    def hessian(self, h: Rows, centred: bool) -> Vector:
        """Compute ``X' diag(s h) X``, X centred by these weights where an intercept is eliminated; for few features."""

    @abstractmethod
    def hessian_root(self, h: Rows, centred: bool, lam: float) -> Vector:
        """Return R, upper triangular, with R'R the Hessian plus lam I."""

    @abstractmethod
    def margins(self, w: Vector, b: Any = 0.0, support: Indices | None = None) -> Rows:
        """Compute ``X w + b``; `support` holds all that is nonzero in w, a hint for speed."""

    @abstractmethod
    def pull(self, alpha: Rows) -> Vector:
        """Compute ``X'(s alpha)``."""

    def pulls(self, several: Sequence[Rows]) -> Vector:
        """Do so for several vectors, one row each."""
        return np.array([self.pull(alpha) for alpha in several])

    def pulls_and_hessians(self, several: Sequence[Rows], curvatures: Sequence[Rows]) -> tuple[Vector, Vector]:
        """Do so, and compute ``X' diag(s h) X`` for several vectors h."""
        return self.pulls(several), np.array([self.hessian(h, False) for h in curvatures])

    def values_along(self, loss: Loss, u: Rows, change: Rows, sizes: Vector) -> Vector:
        """Return the losses of margins at some steps along a line."""

        def losses(y: Vector, s: Vector, u: Vector, v: Vector) -> Vector:
            return np.stack([np.dot(s, loss.value(u + size * v, y)) for size in sizes.tolist()])

        return np.asarray(np.sum(self.each(losses, u, change), axis=0))

    @abstractmethod
    def margins_and_pull(self, w: Vector, alpha: Rows) -> tuple[Rows, Vector]:
        """Compute ``X w`` and ``X'(s alpha)`` with one read of X."""

    @abstractmethod
    def step(self, step: Step, w: Vector, b: Any, dual: DualState, part: Rows | None = None) -> float:
        """Update dual variables, all or those of a part of the samples, and g = X'(s alpha) with them: `Design.block_step`."""

    # What visits samples one after the other, where they are in one piece

    def ascent(self, loss: Loss, lam: float, fit_intercept: bool, alpha: Rows) -> CoordinateAscent:
        """Return coordinate ascent from a dual point, which it changes in place; on few features."""
        raise self._in_pieces()

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
        raise self._in_pieces()

    def central_path(
        self, pieces: Pieces, lam: float, fit_intercept: bool, rtol: float, offset: Rows | None = None
    ) -> EndOfPath:
        """Follow the central path of a loss of straight and quadratic pieces, of margins plus an offset; on few features."""
        raise self._in_pieces()

    @property
    def has_softmax_minimum(self) -> bool:
        """Whether these samples can minimise a coupled loss directly."""
        return False

    def softmax_minimum(
        self, loss: Loss, lam: float, fit_intercept: bool, x: Vector, b: Intercept, rtol: float
    ) -> tuple[Vector, Intercept, Rows]:
        """Minimise a coupled loss in coefficients and intercepts at once, from a model; return it with its scores."""
        raise self._in_pieces()

    def _in_pieces(self) -> TypeError:
        return TypeError("samples that are not in one piece are not visited one after the other")

    @abstractmethod
    def predictions(self, coef: Vector, *constants: Any, less: tuple[Rows, ...] = ()) -> tuple[Rows, Rows]:
        """Compute X coef plus constants in twice the precision, and bounds on the errors: `Design.predictions`."""

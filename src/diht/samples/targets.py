"""Samples with several targets each, which share X, the weights and the choice of features.

Vectors have a row for each target. To a loss of one prediction every target is a sample of its own: functions are called target by
target. A coupled loss, such as the multinomial one, is a function of all predictions of a sample: functions are called with all
rows, and its curvature is a p for each sample that stands for diag(p) - p p'.

Coefficients are one long vector, by target and then by column of X.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.special import logsumexp

from diht.design import DualState, Step, TargetFeatures
from diht.design.base import SMALLEST, UNIT
from diht.design.gram import Gram, PreciseGram
from diht.losses import Loss
from diht.losses.base import OfTarget
from diht.numerics.arrays import Indices, Vector
from diht.numerics.definite import Definite
from diht.samples.base import Chosen, Rows, Samples, added
from diht.samples.newton import Look
from diht.samples.partition import Blocks
from diht.samples.softmax import MOST_COEFFICIENTS, minimise_softmax

__all__ = ["TargetSamples"]

T = TypeVar("T")

_NEWTON, _HALVINGS, _ARMIJO = 800, 40, 1e-4  # a step divides the loss of separable classes by e: float64 ends after 710
_SOON, _ROUNDER = (
    20,
    4.0,
)  # steps that intercepts usually need fewer of, and by what scores are divided where they do not
_ROUNDED = 8.0 * UNIT  # share of the terms of a sum that rounding may leave of it
_FASTER = 0.55  # share of Newton's decrement by which a whole step lowers what falls faster than a quadratic
_BLUR = 1e-14  # relative rounding of the loss, for scores of size one


@dataclass(frozen=True, eq=False)
class ChosenOfTargets(Chosen):
    """Those of each target."""

    samples: TargetSamples
    parts: tuple[Chosen, ...]

    @property
    def size(self) -> int:
        """Their number."""
        return sum(part.size for part in self.parts)

    def values(self, rows: Rows) -> Vector:
        """Return their entries of a vector."""
        own = zip(self.parts, self.samples.by_target(rows), strict=True)
        return np.concatenate([part.values(row) for part, row in own])

    def rows_of(self, samples: TargetSamples) -> Vector:
        """Return their rows of X, each beside zeros for the columns of other targets."""
        blocks, design = [], samples.design
        for c, part in enumerate(self.parts):
            block, own = np.zeros((part.size, design.shape[1])), design.target == c
            block[:, own] = part.rows_of(samples.one)[:, design.column[own]]
            blocks.append(block)
        return np.concatenate(blocks)

    def first(self, most: int) -> ChosenOfTargets:
        """Return the first of them, in the order of the targets."""
        before = np.cumsum([0, *(part.size for part in self.parts)])[:-1].tolist()
        firsts = (part.first(max(most - n, 0)) for part, n in zip(self.parts, before, strict=True))
        return ChosenOfTargets(self.samples, tuple(firsts))

    def shares(self) -> Vector:
        """Return, for each target, a row with 1 for those that are its own."""
        owner = np.repeat(np.arange(len(self.parts)), [part.size for part in self.parts])
        return np.equal(owner, np.arange(len(self.parts))[:, None]).astype(np.float64)

    def patched(self, rows: Rows, values: Vector) -> Rows:
        """Return a copy of a vector with other entries of theirs."""
        ends = np.cumsum([part.size for part in self.parts])[:-1]
        own = zip(self.parts, self.samples.by_target(rows), np.split(values, ends), strict=True)
        return self.samples.stacked([part.patched(row, new) for part, row, new in own])


@dataclass(frozen=True, eq=False)
class _Curvatures:
    """A Hessian that is formed."""

    matrix: Vector

    def gram_rows(self, chosen: Indices) -> Vector:
        """Return some rows."""
        return self.matrix[chosen]

    def gram_diagonal(self) -> Vector:
        """Return the diagonal."""
        return np.asarray(self.matrix.diagonal())

    def charge(self, design: Any) -> None:
        """Count nothing: forming it has been counted."""


class _Around(NamedTuple):
    """A coupled loss as a function of its intercepts."""

    value: float
    slope: Vector
    sizes: Vector  # of what the slopes add up
    curvature: Vector


class TargetSamples(Samples):
    """Samples of one target as samples of several.

    Parameters
    ----------
    one : Samples
        X and the weights; its targets are of no use.
    y : Rows
        The targets, one row each.
    n_targets : int
    loss : Loss
        Asked whether it is a function of all predictions of a sample, or another for each target.
    target, column : arrays of int, optional
        The target and the column of X of each coefficient; by default all columns for each target.
    """

    design: TargetFeatures

    def __init__(
        self,
        one: Samples,
        y: Rows,
        n_targets: int,
        loss: Loss,
        target: Indices | None = None,
        column: Indices | None = None,
    ) -> None:
        d = one.design.shape[1]
        target = np.repeat(np.arange(n_targets), d) if target is None else target
        column = np.tile(np.arange(d), n_targets) if column is None else column
        self.one, self.y, self.n_targets, self.kind, self.here = one, y, n_targets, loss, one.here
        self.coupled = loss.coupled
        self.s = one.map(lambda _, s: np.broadcast_to(s, (n_targets, len(s))))
        self.design = TargetFeatures(one.design, target, column, n_targets, self.coupled)

    # Functions of the samples

    def each(self, f: Callable[..., T], *rows: Rows) -> list[T]:
        """Return ``f(y, s, *rows)`` of every block, of all targets at once or of one after the other."""
        if self.coupled:
            return self.one.each(lambda _, s, *parts: f(parts[0], s, *parts[1:]), self.y, *rows)
        return [result for c in range(self.n_targets) for result in self._each_of(c, f, *rows)]

    def _each_of(self, c: int, f: Callable[..., T], *rows: Rows) -> list[T]:
        own = partial(_own, c, self.kind.several)

        def of_target(_: Vector, s: Vector, *parts: Vector) -> T:
            return f(own(parts[0]), s, *(part[c] for part in parts[1:]))

        return self.one.each(of_target, self.y, *rows)

    def map(self, f: Callable[..., Any], *rows: Rows) -> Rows:
        """Return the vector of ``f(y, s, *rows)``."""
        coupled, n_targets, several = self.coupled, self.n_targets, self.kind.several

        def of_targets(_: Vector, s: Vector, *parts: Vector) -> Vector:
            if coupled:
                found: Vector = f(parts[0], s, *parts[1:])
                return found
            return np.stack(
                [f(_own(c, several, parts[0]), s, *(part[c] for part in parts[1:])) for c in range(n_targets)]
            )

        return self.one.map(of_targets, self.y, *rows)

    def total(self, f: Callable[..., Any], *rows: Rows) -> float:
        """Return the sum of ``s_i f(y_i, rows_i)``, over all targets."""
        return added(self.each(lambda y, s, *parts: float(np.sum(f(y, *parts) @ s)), *rows))

    def per_intercept(self, results: list[T]) -> list[list[T]]:
        """Return what `each` returns, by the target."""
        if self.coupled:
            return [results]
        n = len(results) // self.n_targets
        return [results[c * n : (c + 1) * n] for c in range(self.n_targets)]

    def sums(self, rows: Rows) -> Vector:
        """Return ``sum_i s_i rows_i`` of each target."""
        return self._sums(lambda y, s, a: a @ s, rows)

    def _sums(self, f: Callable[..., Vector], *rows: Rows) -> Vector:
        """Return the sums of ``f(y, s, *rows)`` over the blocks, called with all targets."""
        return np.asarray(np.sum(self.one.each(lambda _, s, *parts: f(parts[0], s, *parts[1:]), self.y, *rows), axis=0))

    def by_target(self, rows: Rows) -> list[Rows]:
        """Return each target's row of a vector, a view of it."""
        return [self.one.map(lambda _, s, part, c=c: part[c], rows) for c in range(self.n_targets)]

    def stacked(self, rows: list[Rows]) -> Rows:
        """Return a vector from its rows."""
        return self.one.map(lambda _, s, *parts: np.stack(parts), *rows)

    @cached_property
    def targets(self) -> list[Samples]:
        """The samples of each target, with all columns of X."""
        return [self.one.with_targets(y) for y in self.by_target(self.y)]

    def with_targets(self, y: Rows) -> TargetSamples:
        """Return the same samples with other targets."""
        return TargetSamples(self.one, y, self.n_targets, self.kind, self.design.target, self.design.column)

    def _intercepts(self, b: Any) -> Vector:
        return np.broadcast_to(np.asarray(b, dtype=np.float64), (self.n_targets,))

    def shifted(self, u: Rows, b: Any) -> Rows:
        """Return ``u_ic + b_c``."""
        column = self._intercepts(b)[:, None]
        return self.one.map(lambda _, s, u: u + column, u)

    def mean(self, rows: Rows) -> Any:
        """Return the weighted mean of each target's row."""
        return self.sums(rows) / added(self.one.each(lambda _, s: float(s.sum())))

    def drift(self, h: Rows, change: Rows) -> Any:
        """Return how far the best intercepts move with the predictions, by a quadratic of curvatures h."""
        coupled = self.coupled
        slopes = self._sums(lambda y, s, h, v: _bent(h, v, coupled) @ s, h, change)
        if self.coupled:
            return -Definite(_grounded(self._between(h))).solve(slopes)
        total = self._sums(lambda y, s, h: h @ s, h)
        return np.where(total > 0.0, -slopes / np.where(total > 0.0, total, 1.0), 0.0)

    def _between(self, p: Rows) -> Vector:
        """Return the sum of s (diag(p) - p p') over the samples, without cancellation: rows sum to zero."""
        return _laplacian(self._sums(lambda y, s, p: (p * s) @ p.T, p))

    def bent(self, h: Rows, change: Rows, drift: Any) -> Rows:
        """Return the change of the slopes by curvatures h, with that of the intercepts."""
        coupled = self.coupled
        return self.one.map(lambda _, s, h, v: _bent(h, v, coupled), h, self.shifted(change, drift))

    def holds(self, rows: Rows) -> bool:
        """Tell whether something is a vector of these samples."""
        return self.one.with_targets(self.y).holds(rows)

    def chosen(self, f: Callable[..., Any], *rows: Rows) -> ChosenOfTargets:
        """Choose the samples for which ``f(y, s, *rows)`` is true, target by target."""
        own = zip(self.targets, *map(self.by_target, rows), strict=True)
        return ChosenOfTargets(self, tuple(target.chosen(f, *parts) for target, *parts in own))

    def put(self, values: Vector) -> Rows:
        """Bring a matrix with a row for each target to where the rows live."""
        return self.stacked([self.one.put(row) for row in np.asarray(values)])

    def fetch(self, rows: Rows) -> Vector:
        """Return a vector as a matrix with a row for each target."""
        return np.stack([self.one.fetch(row) for row in self.by_target(rows)])

    # Parts of the samples

    def partition(self, blocks: Blocks, rng: np.random.Generator) -> list[Rows]:
        """Cut the samples into parts, the same for every target."""
        return self.one.partition(blocks, rng)

    def taken(self, part: Rows) -> TargetSamples:
        """Return the samples of a part, in one piece."""
        own = [target.taken(part) for target in self.targets]
        one, y = own[0], np.stack([each.fetch(each.y) for each in own])
        return TargetSamples(one, y, self.n_targets, self.kind, self.design.target, self.design.column)

    def weight(self, part: Rows) -> float:
        """Return the sum of the weights of a part."""
        return self.one.weight(part)

    def columns(self, features: Indices) -> TargetSamples:
        """Return the samples of some coefficients alone, on a compact copy of their columns."""
        used, column = np.unique(self.design.column[features], return_inverse=True)
        everything = len(used) == self.one.design.shape[1]
        one = self.one if everything else self.one.columns(used)
        return TargetSamples(
            one, self.y, self.n_targets, self.kind, self.design.target[features], np.asarray(column, dtype=np.int64)
        )

    def formed(self) -> TargetSamples:
        """Return the samples with X dense, in float64."""
        return self._with(self.one.formed())

    def formed_if_shorter(self) -> TargetSamples:
        """Do so where Hessians are cheaper then."""
        return self._with(self.one.formed_if_shorter())

    def _with(self, one: Samples) -> TargetSamples:
        return TargetSamples(one, self.y, self.n_targets, self.kind, self.design.target, self.design.column)

    # The intercepts

    def best_intercept(self, loss: Loss, u: Rows, start: Any = 0.0, compiled: bool = False) -> Any:
        """Return the best intercept of each target; those of a coupled loss sum to zero."""
        b = self._intercepts(start)
        if self.coupled:
            b = self._balancing(loss, u, b)
            return b - b.mean()
        own = zip(self.targets, self.by_target(u), b.tolist(), strict=True)
        return np.array(
            [
                target.best_intercept(loss.of_target(c), row, first, compiled)
                for c, (target, row, first) in enumerate(own)
            ]
        )

    def _balancing(self, loss: Loss, u: Rows, b: Vector) -> Vector:
        """Minimise over the intercepts of a coupled loss.

        Large scores make a function of nearly straight pieces, on which Newton's steps are short: where they do not end soon, they
        begin again from the intercepts of smaller scores, whose function is rounder, or from those of a scaling.
        """
        reach = self.largest(lambda y, u: np.abs(u), u)
        if reach > 1.0 / _BLUR:  # rounding leaves nothing of the loss
            return self._balanced_from(loss, u, b, reach, _NEWTON)[0]
        b, ended = self._balanced_from(loss, u, b, reach, _SOON if reach > 1.0 else _NEWTON)
        if not ended:
            starts = [b]
            if reach > 1.0:
                smaller = self.one.map(lambda _, s, u: u / _ROUNDER, u)
                starts.append(_ROUNDER * self._balancing(loss, smaller, b / _ROUNDER))
            starts += [self._rescaled(u, start) for start in starts]
            b = min(starts, key=lambda b: self._around(loss, u, b).value)
            b, _ = self._balanced_from(loss, u, b, reach, _NEWTON)
        return b

    def _rescaled(self, u: Rows, b: Vector) -> Vector:
        """Take a step of iterative scaling, b_c + log of the weight of class c over the sum of its probabilities.

        It never raises the multinomial loss, and goes far where a class of little weight has no curvature, for it adds logarithms.
        """

        def logs(y: Vector, s: Vector, u: Vector) -> Vector:
            u = u + b[:, None]
            with np.errstate(divide="ignore"):
                return np.stack([logsumexp(u - logsumexp(u, axis=0) + np.log(s), axis=1), np.log(y @ s)])

        blocks = self.one.each(lambda _, s, y, u: logs(y, s, u), self.y, u)
        predicted, weight = logsumexp(blocks, axis=0)
        return np.asarray(b + weight - predicted)

    def _balanced_from(self, loss: Loss, u: Rows, b: Vector, reach: float, most: int) -> tuple[Vector, bool]:
        """Take Newton's steps until rounding is all that is left of the slopes, and tell whether that was within so many.

        Where rounding hides what a step promises to gain, it is taken if it halves the slope, or else the last.
        """
        reach = max(1.0, reach)
        blur = _BLUR * reach
        now, before, limit = self._around(loss, u, b), b, np.inf
        for _ in range(most):
            size = float(np.abs(now.slope).max())
            if not size <= limit:
                return before, True
            step = -Definite(_grounded(now.curvature)).solve(now.slope)
            # Curvature vanishes at sure classes; the best intercepts differ by no more than scores do, and a little.
            step *= min(1.0, 4.0 * (reach + float(np.abs(b).max())) / max(float(np.abs(step).max()), SMALLEST))
            decrease = -float(now.slope @ step)
            if np.all(np.abs(now.slope) <= _ROUNDED * now.sizes) or not decrease > 1e-32 * abs(now.value):
                rounded = np.all(np.abs(now.slope) <= max(_ROUNDED, blur) * now.sizes)
                return b, bool(rounded) or size <= _BLUR * abs(now.value)  # else there is no curvature
            hidden = decrease <= blur * abs(now.value)
            new = self._around(loss, u, b + step)
            for _ in range(_HALVINGS):
                if hidden or new.value <= now.value - _ARMIJO * decrease:
                    break
                step, decrease = 0.5 * step, 0.5 * decrease
                new, hidden = self._around(loss, u, b + step), decrease <= blur * abs(now.value)
            limit = 0.5 * size if hidden else np.inf
            if not hidden and now.value - new.value > _FASTER * decrease:
                while (longer := self._around(loss, u, b + 2.0 * step)).value < new.value:
                    step, new = 2.0 * step, longer
            before, b, now = b, b + step, new
        return b, False

    def _around(self, loss: Loss, u: Rows, b: Vector) -> _Around:
        """Return the value, the slopes and the curvature of a coupled loss in its intercepts."""
        n, column = self.n_targets, b[:, None]

        def sums(y: Vector, s: Vector, u: Vector) -> Vector:
            u = u + column
            a, p = loss.derivative(u, y), loss.second_derivative(u, y)
            products = ((p * s) @ p.T).ravel()
            return np.concatenate([[s @ loss.value(u, y)], a @ s, np.abs(a) @ s, products])

        value, slope, sizes, products = np.split(self._sums(sums, u), [1, n + 1, 2 * n + 1])
        return _Around(float(value[0]), slope, sizes, _laplacian(products.reshape(n, n)))

    def balanced(self, loss: Loss, alpha: Rows) -> Rows:
        """Return a point of F near `alpha` whose sums over the samples are zero, to rounding; of one prediction the nearest."""
        if not self.coupled:
            own = zip(self.targets, self.by_target(alpha), strict=True)
            return self.stacked([target.balanced(loss.of_target(c), row) for c, (target, row) in enumerate(own)])
        alpha = self.map(lambda y, s, a: loss.project(a, y), alpha)
        shares, left, sizes = self._sums(lambda y, s, a: np.stack([y @ s, a @ s, np.abs(a) @ s]), alpha)
        if np.all(np.abs(left) <= _ROUNDED * sizes):
            return alpha
        t = min(1.0, float(np.max(np.abs(left) / shares)))
        q = np.maximum(t * shares - (1.0 - t) * left, 0.0)[:, None] / t
        q = q / q.sum()
        return self.map(lambda y, s, a: (1.0 - t) * a + t * (q - y), alpha)

    # Several targets

    def target_of(self, features: Indices) -> Indices:
        """Return the target that each of some coefficients belongs to."""
        return self.design.target[features]

    def column_of(self, features: Indices) -> Indices:
        """Return the column of X that each of some coefficients belongs to."""
        return self.design.column[features]

    # Products with X

    def spectral_bound(self, part: Rows | None = None) -> float:
        """Return an upper bound on the largest eigenvalue of ``X' diag(s) X``."""
        return self.one.spectral_bound(part)

    def largest_square(self) -> float:
        """Return ``max_i s_i ||x_i||^2``."""
        return self.one.largest_square()

    def square_sum(self, part: Rows) -> float:
        """Return ``sum_i s_i ||x_i||^2`` over a part of the samples."""
        return self.one.square_sum(part)

    def gram(self, features: Indices, centred: bool, known: Gram | None = None) -> Gram:
        """Compute the Gram matrix of some columns and the targets: blocks for each target, and their sum for the targets."""
        matrix, size = np.zeros((len(features) + 1, len(features) + 1)), np.zeros(len(features) + 1)
        error, square = 0.0, 0.0
        for c, target in enumerate(self.targets):
            at = np.append(np.flatnonzero(self.design.target[features] == c), len(features))
            own = target.gram(self.design.column[features[at[:-1]]], centred)
            matrix[np.ix_(at, at)] += own.matrix
            size[at[:-1]], error, square = own.size[:-1], max(error, own.error), square + float(own.size[-1]) ** 2
        size[-1] = np.sqrt(square) * (1.0 + 1e-9)
        return Gram(features, matrix, size, error + self.n_targets * 2.0**-52)

    def precise_gram(self, centred: bool) -> PreciseGram | None:
        """Return None: there is none of several targets."""
        return None

    def ridge(self, lam: float, centred: bool) -> Vector | None:
        """Minimise the squared error of each target plus a ridge, where X is small."""
        found = [target.ridge(lam, centred) for target in self.targets]
        return None if any(w is None for w in found) else self.design.gathered(np.stack(found))  # type: ignore[arg-type]

    def spread(self, centred: bool) -> Vector:
        """Return the weighted mean of the squares of every column, less that of its mean where there is an intercept."""
        return np.asarray(self.one.spread(centred)[self.design.column])

    def moments(self, h: Rows) -> tuple[Vector, Vector]:
        """Mean and variance of every column under the curvatures of its own target."""
        own = self.by_target(self.one.map(lambda _, s, p: p * (1.0 - p), h) if self.coupled else h)
        means, variances = zip(*map(self.one.moments, own), strict=True)
        return self.design.gathered(np.stack(means)), self.design.gathered(np.stack(variances))

    def curvature(self, h: Rows, centred: bool) -> _Curvatures:
        """Return what gives the Hessian row by row."""
        return _Curvatures(self.hessian(h, centred))

    def hessian(self, h: Rows, centred: bool) -> Vector:
        """Compute the Hessian of the loss in the coefficients, intercepts eliminated where there are some."""
        if self.coupled:
            return self._coupled_hessian(h, centred)
        H, (target, column) = np.zeros((self.design.shape[1],) * 2), (self.design.target, self.design.column)
        for c, own in enumerate(self.by_target(h)):
            at = np.flatnonzero(target == c)
            H[np.ix_(at, at)] = self.one.hessian(own, centred)[np.ix_(column[at], column[at])]
        return H

    def _coupled_hessian(self, p: Rows, centred: bool) -> Vector:
        """Compute it from the blocks of pairs of classes; those of a class sum to zero, so that p (1 - p) need not cancel."""
        products = self._products(p)
        pulls, hessians = self.one.pulls_and_hessians(products if centred else [], products)
        H, F = self._blocks(pulls, hessians)
        return H - F @ Definite(_grounded(self._between(p))).inverse() @ F.T if centred else H

    def _products(self, p: Rows) -> list[Rows]:
        """Return the products of the probabilities of each two classes."""
        rows = self.by_target(p)
        return [self.one.map(lambda _, s, a, b: a * b, rows[c], rows[e]) for c, e in _pairs(self.n_targets)]

    def _blocks(self, pulls: Vector, hessians: Vector) -> tuple[Vector, Vector]:
        """Return the second derivatives in the coefficients, and in these and the intercepts, from sums for each two classes."""
        n, m = self.n_targets, self.one.design.shape[1]
        H, F = np.zeros((n, m, n, m)), np.zeros((n, m, n))
        for (c, e), hessian in zip(_pairs(n), hessians, strict=True):
            H[c, :, e] = H[e, :, c] = -hessian
        for (c, e), pull in zip(_pairs(n) if len(pulls) else (), pulls, strict=True):
            F[c, :, e] = F[e, :, c] = -pull
        for c in range(n):
            H[c, :, c], F[c, :, c] = -H[c].sum(axis=1), -F[c].sum(axis=1)
        at = self.design.target * m + self.design.column
        return H.reshape(n * m, n * m)[np.ix_(at, at)], F.reshape(n * m, n)[at]

    # Newton's method on few features, of a coupled loss

    @property
    def looks(self) -> bool:  # type: ignore[override]
        """Whether rows are elsewhere."""
        return self.coupled and self.one.looks

    @property
    def remote(self) -> bool:  # type: ignore[override]
        """Whether each sum is a round trip."""
        return self.coupled and self.one.remote

    def look(self, loss: Loss, u: Rows, centred: bool) -> Look:
        """Return the loss of some scores with its derivatives: two round trips."""
        n, products = self.n_targets, self._products(self.curvatures(loss, u))
        around, slopes = self._around(loss, u, np.zeros(n)), self.by_target(self.slopes(loss, u))
        pulls, hessians = self.one.pulls_and_hessians([*slopes, *products], products)
        g, (H, F) = self.design.gathered(pulls[:n]), self._blocks(pulls[n:], hessians)
        curvature = Definite(_grounded(around.curvature))
        if not centred or curvature.hidden:
            return Look(around.value, around.slope, g, None, np.zeros(len(g)), H)
        mean = curvature.inverse() @ F.T
        return Look(around.value, around.slope, g, -curvature.solve(around.slope), mean, H - F @ mean)

    def hessian_root(self, h: Rows, centred: bool, lam: float) -> Vector:
        """Return R, upper triangular, with R'R the Hessian plus lam I; from dense matrices, where rows are here."""
        if not self.one.here:
            values, vectors = np.linalg.eigh(self.hessian(h, centred) + lam * np.eye(self.design.shape[1]))
            return np.asarray(np.linalg.qr(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T, mode="r"))
        X, s, p = self.one.formed().design.toarray(), self.one.fetch(self.one.s), self.fetch(h)  # type: ignore[attr-defined]
        target, column, last = self.design.target, self.design.column, self.n_targets - centred * self.coupled
        first = last if centred else 0
        blocks = []
        for e in range(self.n_targets):
            share = np.eye(self.n_targets)[e][:, None] - p if self.coupled else np.eye(self.n_targets)[e][:, None]
            weights = np.sqrt(s * p[e]) * share
            block = np.empty((len(X), first + len(target)))
            block[:, :first] = weights[:first].T
            block[:, first:] = weights[target].T * X[:, column]
            blocks.append(block)
        ridge = np.hstack([np.zeros((len(target), first)), np.sqrt(lam) * np.eye(len(target))])
        root: Any = np.linalg.qr(np.vstack([*blocks, ridge]), mode="r")
        return np.asarray(root[first:, first:])

    @property
    def has_softmax_minimum(self) -> bool:
        """Whether a coupled loss is minimised directly: X in one piece, and not too many coefficients."""
        return self.coupled and self.one.whole and self.design.shape[1] <= MOST_COEFFICIENTS

    def softmax_minimum(
        self, loss: Loss, lam: float, fit_intercept: bool, x: Vector, b: Any, rtol: float
    ) -> tuple[Vector, Any, Rows]:
        """Minimise a coupled loss in coefficients and intercepts at once."""
        X, W = self.one.formed().design.toarray(copy=False), self.design.by_target(x)  # type: ignore[attr-defined]
        free = self.design.by_target(np.ones(len(x), dtype=bool))
        found = minimise_softmax(X, self.y, self.one.s, loss, lam, fit_intercept, W, self._intercepts(b), free, rtol)
        return self.design.gathered(found.W), found.b, found.U

    def margins(self, w: Vector, b: Any = 0.0, support: Indices | None = None) -> Rows:
        """Compute ``X w_c + b_c`` for every target."""
        W = self.design.by_target(w)
        used = np.flatnonzero(W.any(axis=0)) if support is None else np.unique(self.design.column[support])
        own = zip(W, self._intercepts(b).tolist(), strict=True)
        return self.stacked([self.one.margins(row, shift, used) for row, shift in own])

    def pull(self, alpha: Rows) -> Vector:
        """Compute ``X'(s alpha_c)`` for every target."""
        return self.design.gathered(self.one.pulls(self.by_target(alpha)))

    def margins_and_pull(self, w: Vector, alpha: Rows) -> tuple[Rows, Vector]:
        """Compute both with one read of X for each target."""
        own = zip(self.design.by_target(w), self.by_target(alpha), strict=True)
        margins, pulls = zip(*(self.one.margins_and_pull(row, a) for row, a in own), strict=True)
        return self.stacked(list(margins)), self.design.gathered(np.stack(pulls))

    def step(self, step: Step, w: Vector, b: Any, dual: DualState, part: Rows | None = None) -> float:
        """Update dual variables, and g with them, target by target."""
        W, G, shifts = self.design.by_target(w), self.design.by_target(dual.g), self._intercepts(b).tolist()
        margins = [None] * self.n_targets if dual.u is None else self.by_target(dual.u)
        states = map(DualState, self.by_target(dual.alpha), G, margins)
        own = enumerate(zip(self.targets, W, shifts, states, strict=True))
        total = sum(one.step(step.of_target(c), row, shift, state, part) for c, (one, row, shift, state) in own)
        dual.g[:] = self.design.gathered(G)
        return total

    def predictions(self, coef: Vector, *constants: Any, less: tuple[Rows, ...] = ()) -> tuple[Rows, Rows]:
        """Compute the predictions in twice the precision, and bounds on the errors."""
        own = zip(
            self.design.by_target(coef), zip(*map(self._intercepts, constants), strict=True),
            *map(self.by_target, less), strict=True,
        )  # fmt: skip
        pairs = [self.one.predictions(row, *map(float, added), less=tuple(rows)) for row, added, *rows in own]
        margins, errors = zip(*pairs, strict=True)
        return self.stacked(list(margins)), self.stacked(list(errors))


def _own(c: int, several: int, y: Any) -> Any:
    """Return a row of the targets; where each has a loss of its own, one that tells whose it is."""
    return y[c] if several == 1 else OfTarget.of(y[c], c)


def _pairs(n: int) -> list[tuple[int, int]]:
    """Return each two of n classes."""
    return [(c, e) for c in range(n) for e in range(c)]


def _bent(h: Vector, v: Vector, coupled: bool) -> Vector:
    """Return the products of Hessians and changes, sample by sample."""
    return h * (v - np.sum(h * v, axis=0)) if coupled else h * v


def _laplacian(products: Vector) -> Vector:
    """Return the matrix with minus these entries off the diagonal whose rows sum to zero."""
    H = -products
    np.fill_diagonal(H, 0.0)
    np.fill_diagonal(H, -H.sum(axis=1))
    return H


def _grounded(H: Vector) -> Vector:
    """Give the intercept that has most curvature more of it, in place: all intercepts move together at no cost otherwise."""
    c = int(np.argmax(H.diagonal()))
    H[c, c] *= 2.0
    return H

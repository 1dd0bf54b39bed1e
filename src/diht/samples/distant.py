"""Samples of which each sum is a round trip: an intercept is found in few of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from diht.design.spectral import has_small_gram
from diht.losses import Loss, Pieces
from diht.numerics.arrays import Vector
from diht.samples.base import Rows, Samples, added
from diht.samples.central_path import Condense, near_kinks
from diht.samples.intercept import root_in_batches
from diht.samples.newton import Look, Seen

__all__ = ["Distant", "WeightedThere", "slopes_at"]

_ROUNDED = 8.0 * 2.0**-53  # share of the terms of a sum that rounding may leave of it
_SOON = 1e-8  # slope in the intercept, relative to its terms, from which one step of Newton's is taken for the last
_NEAR_EACH, _MOST_NEAR = 10, 4  # samples near kinks that travel at first, for each feature; how many times that at most
_SHORT = 100_000  # numbers of which an array takes no longer than a call
_CLOSE = 1e-11  # slope, relative to its terms, that may be left: its square is what it changes the value by


class WeightedThere:
    """Rows with their weights, elsewhere, as the bound on their spectral norm takes them."""

    samples: Any
    shape: Any  # the number of the rows, and of the columns

    @property
    def center(self) -> Vector | None:
        """What is subtracted from the columns on the way."""
        return getattr(self.samples.design, "center", None)

    @property
    def scale(self) -> Vector | None:
        """What the columns are divided by on the way."""
        return getattr(self.samples.design, "scale", None)

    @property
    def is_small(self) -> bool:
        """Whether the Gram matrix of the columns costs next to nothing."""
        return has_small_gram(*self.shape)


class Distant(Samples):
    """Samples elsewhere: in other processes, on a device."""

    looks = True

    @abstractmethod
    def asked(self, f: Callable[..., Any], loss: Loss, rows: Rows, at: Any) -> list[Any]:
        """Return ``f(samples, loss, rows, at)`` of every block of samples, brought here."""

    # Newton's method on few features

    @abstractmethod
    def look(self, loss: Loss, u: Rows, centred: bool) -> Look:
        """Return the loss of some margins with its derivatives."""

    def near_kinks(
        self, pieces: Pieces, lam: float, intercept: bool, start: tuple[Vector, float], rtol: float
    ) -> tuple[Seen, bool]:
        """Minimise a loss of straight pieces on the samples next to kinks, from a model.

        Return the best model met, and whether it is the best of all.
        """
        n_near = _NEAR_EACH * (self.design.shape[1] + 1)
        most = _MOST_NEAR * n_near
        condense = self._condensing(pieces, n_near, most)
        end, value, done = near_kinks(condense, pieces, (lam, intercept), start, rtol, most)
        return Seen(end.x, end.b, value), done

    @abstractmethod
    def _condensing(self, pieces: Pieces, n_near: int, most: int) -> Condense:
        """Return what condenses the samples around models: `diht.samples.central_path.condensed`."""

    # The intercept

    def best_intercept(self, loss: Loss, u: Rows, start: Any = 0.0, compiled: bool = False) -> Any:
        """Return the best intercept; of a smooth loss up to what the value of the loss does not tell."""
        return self._best_intercept(loss, u, start)[0]

    def at_best_intercept(
        self, loss: Loss, u: Rows, start: Any = 0.0, compiled: bool = False
    ) -> tuple[Any, Rows, float]:
        """Return that intercept, the margins with it, and the value of the loss there."""
        b, value = self._best_intercept(loss, u, start)
        u = self.shifted(u, b)
        return b, u, self.value(loss, u) if value is None else value

    def _best_intercept(self, loss: Loss, u: Rows, start: float) -> tuple[float, float | None]:
        """Return it with the value of the loss, where that is known."""
        known = loss.intercept(lambda f: self.each(f, u))
        if known is not None:
            return known, None
        return self._by_newton(loss, u, start) if loss.differentiable else (self._by_jumps(loss, u, start), None)

    def _by_newton(self, loss: Loss, u: Rows, start: float) -> tuple[float, float | None]:
        """Newton's method; its last step is not looked at where the squares of those before promise that it is the last."""
        b, least = start, np.inf
        while True:
            slope, size, curvature, value = _summed(self.asked(_around, loss, u, b))
            noise = _ROUNDED * size
            if abs(slope) <= noise:
                return b, value
            if not (abs(slope) <= 0.5 * least and curvature > 0.0):
                return self._by_batches(loss, u, b, noise), None
            step = -slope / curvature
            ratio = abs(slope) / least if np.isfinite(least) else 1.0 if abs(slope) > _SOON * size else 0.0
            if loss.is_quadratic or (loss.smoothness >= 2 and ratio**2 * abs(slope) <= _CLOSE * size):
                return b + step, value + 0.5 * slope * step
            b, least = b + step, abs(slope)

    def _by_jumps(self, loss: Loss, u: Rows, start: float) -> float:
        """Search for it where l' jumps."""
        size = self.total(lambda y, u: np.abs(loss.derivative(u + start, y)), u)
        return self._by_batches(loss, u, start, _ROUNDED * size)

    def _by_batches(self, loss: Loss, u: Rows, start: float, noise: float) -> float:
        return root_in_batches(lambda points: sum(self.asked(slopes_at, loss, u, points)), start, noise)

    def balanced(self, loss: Loss, alpha: Rows) -> Rows:
        """Project on F and ``sum_i s_i alpha_i = 0``, in a round trip for each of Newton's steps."""
        b, least = 0.0, np.inf
        while True:
            total, size, inside = _summed(self.asked(_shifted_sums, loss, alpha, b))
            noise = _ROUNDED * size
            if abs(total) <= noise:
                break
            if not (abs(total) <= 0.5 * least and inside > 0.0):
                b = root_in_batches(lambda points: sum(self.asked(_totals_at, loss, alpha, points)), b, noise)
                break
            b, least = b - total / inside, abs(total)
        return self.map(lambda y, s, a: np.clip(a + b, *loss.domain(y)), alpha)


def _summed(parts: list[tuple[float, ...]]) -> tuple[float, ...]:
    """Add numbers, each sum rounded once."""
    return tuple(map(added, zip(*parts, strict=True)))


# What runs where the rows are


def _around(samples: Samples, loss: Loss, u: Vector, b: float) -> tuple[float, ...]:
    """Return the slope of the loss in the intercept, its terms in size, its curvature, and its value."""
    s, y, u = samples.s, samples.y, u + b
    a = loss.derivative(u, y)
    return s @ a, s @ np.abs(a), s @ loss.second_derivative(u, y), s @ loss.value(u, y)


def slopes_at(samples: Samples, loss: Loss, u: Vector, points: Vector) -> Vector:
    """Return the slopes of the loss at some intercepts."""
    return _at_once(lambda b: loss.derivative(u + b, samples.y) @ samples.s, points, samples)


def _shifted_sums(samples: Samples, loss: Loss, alpha: Vector, b: float) -> tuple[float, ...]:
    """Return the sum of dual variables that are shifted and projected, that of their sizes, and the weight of those inside F."""
    (low, high), s = loss.domain(samples.y), samples.s
    a = np.clip(alpha + b, low, high)
    return s @ a, s @ np.abs(a), s @ ((alpha + b > low) & (alpha + b < high))


def _totals_at(samples: Samples, loss: Loss, alpha: Vector, points: Vector) -> Vector:
    low, high = loss.domain(samples.y)
    return _at_once(lambda b: np.clip(alpha + b, low, high) @ samples.s, points, samples)


def _at_once(f: Callable[[Any], Vector], points: Vector, samples: Samples) -> Vector:
    """Return sums over samples at some points; on a device of as many at a time, given as a column, as stay short."""
    if samples.here:
        return np.stack([f(b) for b in points.tolist()])
    parts = np.array_split(points, -(-len(points) // max(1, _SHORT // max(1, samples.size))))
    return np.concatenate([f(part[:, np.newaxis]) for part in parts])

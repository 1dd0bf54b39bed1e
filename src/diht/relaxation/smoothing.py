"""Losses that stand in for one with kinks or flat parts: its Moreau envelopes, and the barriers of interior point methods."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from diht.design.base import UNIT
from diht.losses import Loss, Pieces

__all__ = ["Central", "Moreau", "central_slopes"]

_NEAREST = 1e-150  # its square is a normal number
_STEPS, _BETWEEN = 200, 4  # Newton's steps at most, and how many before it is asked whether all are done


@dataclass(frozen=True)
class Moreau(Loss):
    """The Moreau envelope of a loss: smooth, with the conjugate l*(a) + (gamma/2) a^2."""

    base: Loss
    gamma: float

    name = "moreau"

    @property
    def task(self) -> str:  # type: ignore[override]
        """The task of the loss itself."""
        return self.base.task

    @property
    def mu(self) -> float:
        """The envelope is 1 / (mu + gamma)-smooth."""
        return self.base.mu + self.gamma

    def derivative(self, u: Any, y: Any) -> Any:
        """argmax_a a u - l*(a) - (gamma/2) a^2, a proximal map of the conjugate."""
        return self.base.conjugate_prox(u / self.gamma, 1.0 / self.gamma, y)

    def value(self, u: Any, y: Any) -> Any:
        """a u - l*(a) - (gamma/2) a^2 at its maximiser."""
        a = self.derivative(u, y)
        return a * u - self.conjugate(a, y)

    def second_derivative(self, u: Any, y: Any) -> Any:
        """1/gamma where the maximiser is inside F and l* is linear, 0 where it is at an end."""
        a = self.derivative(u, y)
        low, high = self.base.domain(y)
        return np.where((a > low) & (a < high), 1.0 / self.mu, 0.0)

    def conjugate(self, a: Any, y: Any) -> Any:
        """l*(a) + (gamma/2) a^2."""
        return self.base.conjugate(a, y) + 0.5 * self.gamma * a * a

    def conjugate_derivative(self, a: Any, y: Any) -> Any:
        """l*'(a) + gamma a."""
        return self.base.conjugate_derivative(a, y) + self.gamma * a

    def domain(self, y: Any) -> Any:
        """F of the loss itself."""
        return self.base.domain(y)

    def check_targets(self, y: Any) -> None:
        """Check as the loss itself does."""
        self.base.check_targets(y)

    def of_target(self, c: int) -> Moreau:
        """That of the loss of one of several targets."""
        return replace(self, base=self.base.of_target(c))

    def kernel(self) -> tuple[int, float, float, float] | None:
        """That of the same pieces with another mu, where the loss is made of such."""
        pieces = self.base.pieces
        return None if pieces is None else pieces._replace(mu=self.mu).numbers


@dataclass(frozen=True)
class Central(Loss):
    r"""A loss with barriers, :math:`l^*(a) - \tau \log(a - \underline a) - \tau \log(\overline a - a)`, at the ends of its domain.

    It is smooth and nowhere flat, and its solutions are interior to the domain, where they follow the central path as tau falls.
    """

    base: Loss
    tau: float

    name = "central"
    smoothness = math.inf

    def _pieces(self, target: int = 0) -> Pieces:
        """Those of the base, which is made of such."""
        pieces = self.base.of_target(target).pieces
        assert pieces is not None
        return pieces

    @property
    def mu(self) -> float:
        """No larger than the curvature of the conjugate, which is least in the middle of the domain."""
        pieces = self._pieces()
        width = pieces.high - pieces.low
        return pieces.mu + (8.0 * self.tau / width**2 if np.isfinite(width) else 0.0)

    def derivative(self, u: Any, y: Any) -> Any:
        """The point of the domain where the derivative of the conjugate is u."""
        pieces = self._pieces(y.target if self.base.several > 1 else 0)
        if hasattr(u, "central_slopes"):  # vectors elsewhere have kernels of their own
            return u.central_slopes(y, pieces, self.tau)
        if not isinstance(u, np.ndarray):
            return central_slopes(u, y, pieces, self.tau)
        from diht.samples import central_slopes as compiled

        out = np.empty_like(u)
        compiled.central_slopes(u, np.asarray(y), pieces.numbers, self.tau, out)
        return out

    def value(self, u: Any, y: Any) -> Any:
        """a u - l*(a) at the derivative a."""
        a = self.derivative(u, y)
        return a * u - self.conjugate(a, y)

    def second_derivative(self, u: Any, y: Any) -> Any:
        """One over the curvature of the conjugate."""
        below, above = self._room(self.derivative(u, y), y)
        return 1.0 / (self.base.mu + self.tau / np.square(below) + self.tau / np.square(above))

    def conjugate(self, a: Any, y: Any) -> Any:
        """The base's, with the barriers; an end at infinity, which for y < 0 is the other one, has none."""
        barrier = sum(np.log(np.where(np.isfinite(room), room, 1.0)) for room in self._room(a, y))
        return y * a + 0.5 * self.base.mu * a * a - self.tau * barrier

    def conjugate_derivative(self, a: Any, y: Any) -> Any:
        """The inverse of `derivative`."""
        below, above = self._room(a, y)
        return y + self.base.mu * a - self.tau / below + self.tau / above

    def _room(self, a: Any, y: Any) -> tuple[Any, Any]:
        """Distances from the ends of the domain, which rounding may make zero."""
        low, high = self.base.domain(y)
        return np.maximum(a - low, _NEAREST), np.maximum(high - a, _NEAREST)

    def domain(self, y: Any) -> Any:
        """That of the base."""
        return self.base.domain(y)

    def slope_kernel(self) -> tuple[tuple[int, float, float, float], float]:
        """The pieces of the base, and tau."""
        return self._pieces().numbers, self.tau

    def of_target(self, c: int) -> Central:
        """That of the loss of one of several targets."""
        return replace(self, base=self.base.of_target(c))


def central_slopes(u: Any, y: Any, pieces: Pieces, tau: float) -> Any:
    """Return what `diht.samples.central_slopes` compiles, by functions of arrays, wherever these live."""
    mu, d, up = pieces.mu, u - y, y > 0.0 if pieces.turned else y == y
    low, high = np.where(up, pieces.low, -pieces.high), np.where(up, pieces.high, -pieces.low)

    def room(excess: Any) -> Any:
        root = np.hypot(excess, 2.0 * np.sqrt(mu * tau))
        near = 2.0 * tau / np.where(excess > 0.0, excess + root, 1.0)
        return np.where(excess > 0.0, near, (root - excess) / (2.0 * mu) if mu > 0.0 else np.inf)

    if not np.isfinite(pieces.high - pieces.low):
        no_low, end = np.isinf(low), np.where(np.isinf(low), high, low)
        distance = room(np.where(no_low, d - mu * end, mu * end - d))
        return np.where(no_low, end - distance, end + distance)
    from_high, from_low, middle = room(d - mu * high), room(mu * low - d), 0.5 * (low + high)
    upper = np.minimum(np.maximum(high - from_high, middle), np.nextafter(high, low))
    a = np.where(from_high < from_low, upper, np.maximum(np.minimum(low + from_low, middle), np.nextafter(low, high)))
    left: Any = low
    right: Any = high
    done: Any = up & ~up
    for step in range(_STEPS):
        below, above = a - low, high - a
        value = mu * a - tau / below + tau / above - d
        rounding = 4.0 * UNIT * (np.abs(d) + mu * np.abs(a) + tau / below + tau / above)
        done = done | (np.abs(value) <= rounding) | ~((below > 0.0) & (above > 0.0))
        left, right = np.where(value > 0.0, left, a), np.where(value > 0.0, a, right)
        new = a - value / (mu + tau / (below * below) + tau / (above * above))
        new = np.where((left < new) & (new < right), new, 0.5 * (left + right))
        done = done | ~((left < new) & (new < right)) | (new == a)
        a = np.where(done, a, new)
        if step % _BETWEEN == _BETWEEN - 1 and bool(np.all(done)):
            break
    return a

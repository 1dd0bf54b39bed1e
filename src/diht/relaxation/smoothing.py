"""Losses that stand in for one with kinks or flat parts: its Moreau envelopes, and the barriers of interior point methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from diht.losses import Loss, Pieces

__all__ = ["Central", "Moreau"]

_NEAREST = 1e-150  # its square is a normal number


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

    @property
    def _pieces(self) -> Pieces:
        """Those of the base, which is made of such."""
        pieces = self.base.pieces
        assert pieces is not None
        return pieces

    @property
    def mu(self) -> float:
        """No larger than the curvature of the conjugate, which is least in the middle of the domain."""
        pieces = self._pieces
        width = pieces.high - pieces.low
        return pieces.mu + (8.0 * self.tau / width**2 if np.isfinite(width) else 0.0)

    def derivative(self, u: Any, y: Any) -> Any:
        """The point of the domain where the derivative of the conjugate is u."""
        from diht.samples.central_slopes import central_slopes

        out = np.empty_like(u)
        central_slopes(u, y, self._pieces.numbers, self.tau, out)
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
        return self._pieces.numbers, self.tau

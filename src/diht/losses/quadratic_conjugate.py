"""The losses made of straight and quadratic pieces, which share one conjugate."""

from __future__ import annotations

import math
from abc import abstractmethod

from diht.losses.base import Array, Loss, Pieces, namespace, oriented

__all__ = ["QuadraticConjugate"]


class QuadraticConjugate(Loss):
    r"""A loss whose conjugate is l*(a) = y a + (mu/2) a^2 on an interval.

    The interval F is [low, high], for classes [-high, -low] where y < 0. With r = u - y,

        l(u)   = max_{a in F} a r - (mu/2) a^2,     attained at
        l'(u)  = P_F(r / mu)                        (mu = 0: the end of F that r points to, 0 where r = 0),
        l''(u) = 1/mu where r/mu is in F, 0 elsewhere,
        prox   = P_F((z - tau y) / (1 + tau mu)).

    A subclass that changes a formula declares ``pieces = None``.
    """

    @property
    def pieces(self) -> Pieces | None:
        """All that there is to know of the loss."""
        return Pieces(self.mu, self.low, self.high, self.task == "classification")

    @property
    def smoothness(self) -> float:
        """Without a straight piece the curvature does not jump."""
        return math.inf if self.is_quadratic else super().smoothness

    @property
    @abstractmethod
    def low(self) -> float:
        """Lower end of F, of classes for y > 0."""

    @property
    @abstractmethod
    def high(self) -> float:
        """Upper end of F, of classes for y > 0."""

    def value(self, u: Array, y: Array) -> Array:
        """Return l(u, y)."""
        return self.residual_value(u - y, y)

    def residual_value(self, r: Array, y: Array) -> Array:
        """Return a (r - mu a / 2) at the derivative a."""
        a = self._slope(r, y)
        return a * (r - 0.5 * self.mu * a)

    def derivative(self, u: Array, y: Array) -> Array:
        """Return l'(u, y), for the hinge at its kink 0."""
        return self._slope(u - y, y)

    def _slope(self, r: Array, y: Array) -> Array:
        low, high = self.domain(y)
        xp = namespace(r)
        if self.mu == 0:
            return xp.where(r > 0, high, xp.where(r < 0, low, 0.0 * r))
        return xp.clip(r / self.mu, low, high)

    def second_derivative(self, u: Array, y: Array) -> Array:
        """Return 1/mu on the curved part of the loss, its ends included, and 0 elsewhere."""
        r = u - y
        xp = namespace(r)
        if self.mu == 0:
            return 0.0 * r
        low, high = self.domain(y)
        q = r / self.mu
        return xp.where((q < low) | (q > high), 0.0, xp.ones_like(q) / self.mu)

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y), infinite outside F."""
        low, high = self.domain(y)
        xp = namespace(a, y)
        inside = xp.clip(a, low, high)  # so that no a outside F can overflow
        return xp.where((a < low) | (a > high), math.inf, inside * (y + 0.5 * self.mu * inside))

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return l*'(a, y) = y + mu a."""
        return y + self.mu * a

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends of F."""
        if self.task == "classification":
            return oriented(self.low, self.high, y)
        return self.low, self.high

    def conjugate_prox(self, z: Array, tau: Array, y: Array) -> Array:
        """Return P_F((z - tau y) / (1 + tau mu)), so written that tau y does not overflow where the result does not."""
        shrink = 1.0 / (1.0 + tau * self.mu)
        return self.project(z * shrink - y * (tau * shrink), y)

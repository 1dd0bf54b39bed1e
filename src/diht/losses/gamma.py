"""The gamma loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diht.losses.base import Array, namespace
from diht.losses.log_link import Each, LogLink, log_or_zero, log_total
from diht.losses.poisson import Poisson

__all__ = ["Gamma"]

_MIRRORED = Poisson()  # of which l(u, y) is the loss of a count of 1 at the prediction log y - u


@dataclass(frozen=True)
class Gamma(LogLink):
    """Gamma loss of positive targets whose mean is exp(u) and whose deviation is in proportion to it: half the deviance.

    l(u)   = exp(-t) - 1 + t,  t = u - log y,  y > 0
    l*(a)  = p log p - p + 1 + a log y,  p = 1 - a,  F: p >= 0,  0 log 0 = 0
    l'(u)  = 1 - exp(-t),  l''(u) = exp(-t),  l*'(a) = log y - log p
    mu     = 0: differentiable, but of unbounded curvature

    Where the mean is less than about 1e-129 of the target, l goes on as its tangent, and F ends there.
    """

    name: ClassVar[str] = "gamma"
    positive_targets: ClassVar[bool] = True
    scoring: ClassVar[str] = "neg_mean_gamma_deviance"

    def value(self, u: Array, y: Array) -> Array:
        """Return l(u, y)."""
        v, one = _mirror(u, y)
        return _MIRRORED.value(v, one)

    def derivative(self, u: Array, y: Array) -> Array:
        """Return l'(u, y) = -expm1(-t), which keeps its digits near the target."""
        v, _ = _mirror(u, y)
        xp = namespace(v)
        low, _ = self.domain(y)
        return xp.maximum(-xp.expm1(xp.minimum(v, xp.log1p(-low))), low)

    def second_derivative(self, u: Array, y: Array) -> Array:
        """Return l''(u, y)."""
        v, one = _mirror(u, y)
        return _MIRRORED.second_derivative(v, one)

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y), infinite outside F."""
        return _MIRRORED.conjugate(-a, 1.0 + 0.0 * y) + a * log_or_zero(y)

    def conjugate_terms(self, a: Array, y: Array, conjugate: Array) -> Array:
        """Return the sizes of p log p - p + 1 and of a log y."""
        xp = namespace(a, y)
        return _MIRRORED.conjugate_terms(-a, 1.0 + 0.0 * y, conjugate) + 2.0 * xp.abs(a * log_or_zero(y))

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return l*'(a, y), infinite at p = 0."""
        return log_or_zero(y) - _MIRRORED.conjugate_derivative(-a, 1.0 + 0.0 * y)

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends of F."""
        low, high = _MIRRORED.domain(1.0 + 0.0 * y)
        return -high, -low

    def conjugate_prox(self, z: Array, tau: Array, y: Array) -> Array:
        """Return argmin_a  tau l*(a, y) + (a - z)^2 / 2."""
        return -_MIRRORED.conjugate_prox(tau * log_or_zero(y) - z, tau, 1.0 + 0.0 * y)

    def within_reach(self, u: Array, y: Array) -> Array:
        """Tell where the mean is not less than 1e-129 of the target."""
        return log_or_zero(y) - u <= _MIRRORED.reach

    def intercept(self, each: Each) -> float:
        """Return log(sum_i s_i y_i exp(-u_i)) - log(sum_i s_i)."""
        return log_total(each, lambda y, s, u: (s * y, -u)) - log_total(each, lambda y, s, u: (s, 0.0 * u))

    def with_offset(self, y: Array, offset: Array) -> tuple[Array, Array]:
        """Return y exp(-offset), and ones."""
        return y / namespace(y).exp(offset), namespace(y).ones_like(y)


def _mirror(u: Array, y: Array) -> tuple[Array, Array]:
    """Return the prediction of the mirrored loss, and its target."""
    v = log_or_zero(y) - u
    return v, 1.0 + 0.0 * v

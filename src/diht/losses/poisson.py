"""The Poisson loss."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import ClassVar

from diht.losses.base import Array, namespace
from diht.losses.log_link import (
    REACH,
    Each,
    LogLink,
    divergence,
    excess_of_exp,
    log_or_zero,
    log_ratio,
    log_total,
    reach_of,
)

__all__ = ["Poisson"]

# Newton on a convex function from a start less than 1 above its root: to relative accuracy of the exponential.
_NEWTON_STEPS = 7


@dataclass(frozen=True)
class Poisson(LogLink):
    """Poisson loss of counts whose mean is exp(u): half the deviance.

    l(u)   = exp(u) - y u - (y - y log y),  y >= 0,  0 log 0 = 0
    l*(a)  = p log p - y log y - a,  p = a + y,  F: p >= 0
    l'(u)  = exp(u) - y,  l''(u) = exp(u),  l*'(a) = log p
    mu     = 0: differentiable, but of unbounded curvature

    Means have an end, about 1e129 in float64: beyond it l goes on as its tangent, and F ends there. So nothing overflows.
    """

    name: ClassVar[str] = "poisson"
    reach: ClassVar[float] = REACH * math.log(sys.float_info.max)
    is_likelihood: ClassVar[bool] = True
    scoring: ClassVar[str] = "neg_mean_poisson_deviance"

    def value(self, u: Array, y: Array) -> Array:
        """Return l(u, y) = y (exp(t) - 1 - t) at t = u - log y, which has no large terms that cancel."""
        xp = namespace(u, y)
        t = u - log_or_zero(y)
        near = (xp.abs(t) < 0.5) & (y > 0)
        end = reach_of(t)
        mean = xp.exp(xp.clip(u, None, end)) * (1.0 + xp.clip(u - end, 0.0, None))
        return xp.where(near, y * excess_of_exp(xp.where(near, t, 0.0)), mean - y * (1.0 + t))

    def derivative(self, u: Array, y: Array) -> Array:
        """Return l'(u, y)."""
        return self.second_derivative(u, y) - y

    def second_derivative(self, u: Array, y: Array) -> Array:
        """Return exp(u), no more than at the end of the means."""
        xp = namespace(u, y)
        mean = xp.exp(xp.clip(u, None, reach_of(u + y)))
        return mean + 0.0 * y

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y) = p log(p / y) - a + a log y, infinite outside F."""
        xp = namespace(a, y)
        low, high = self.domain(y)
        inside = xp.clip(a, low, high)
        from_y, _ = divergence(inside, y)
        return xp.where((a < low) | (a > high), math.inf, from_y + inside * log_or_zero(y))

    def conjugate_terms(self, a: Array, y: Array, conjugate: Array) -> Array:
        """Return the sizes of p log(p / y) - a, where p is far from y of p log p, p log y and a, and of a log y."""
        _, size = divergence(self.project(a, y), y)
        xp = namespace(a, y)
        return 2.0 * (size + xp.abs(a * log_or_zero(y)))

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return l*'(a, y) = log p, minus infinity at p = 0."""
        xp = namespace(a, y)
        p = a + y
        return xp.where(p > 0, log_or_zero(p), -math.inf)

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends of F, from a mean of 0 to the largest one."""
        xp = namespace(y)
        low = 0.0 - xp.asarray(y)
        return low, low + math.exp(reach_of(low))

    def conjugate_prox(self, z: Array, tau: Array, y: Array) -> Array:
        """Return argmin_a  tau l*(a, y) + (a - z)^2 / 2 by Newton's method in the prediction.

        p = exp(t) at the root t of h(t) = exp(t) + tau t - c, c = z + y. h is convex and increasing: Newton's method decreases
        to the root from any point above it. With L = c / tau - log(tau) the root is c / tau - W(exp(L)), W the function of
        Lambert; W(exp(L)) lies between 0 and 1 for L < 1, and is at least L - log(L), less than 1/3 of it missing, for L >= 1.
        """
        xp = namespace(z, y)
        c = xp.asarray(z + y)
        tau = xp.asarray(tau, dtype=c.dtype)
        log_tau = xp.log(tau)
        L = c / tau - log_tau
        end = reach_of(c)
        t = xp.where(L >= 1.0, log_tau + xp.log(xp.clip(L, 1.0, None)), c / tau)
        for _ in range(_NEWTON_STEPS):
            p = xp.exp(xp.clip(t, None, end))
            t = t - (p + tau * t - c) / (p + tau)
        # An ulp of t moves exp(t) by |t| ulps: of the two expressions of a, the one whose terms have the smaller errors.
        p = xp.exp(xp.clip(t, None, end))
        linear = xp.abs(z) + tau * xp.abs(t) < p * xp.abs(t) + y
        return self.project(xp.where(linear, z - tau * t, p - y), y)

    def intercept(self, each: Each) -> float:
        """Return log(sum_i s_i y_i) - log(sum_i s_i exp(u_i)); without any count, where exp(u + b) underflows."""
        counts = log_total(each, lambda y, s, u: (s * y, 0.0 * u))
        return log_ratio(counts, log_total(each, lambda y, s, u: (s, u)))

    def with_offset(self, y: Array, offset: Array) -> tuple[Array, Array]:
        """Return y exp(-offset) and exp(offset): the counts and the exposures of the rates."""
        factor = namespace(y).exp(offset)
        return y / factor, factor

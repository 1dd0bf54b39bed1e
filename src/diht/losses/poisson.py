"""The Poisson loss."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from diht.losses.base import Array, Loss, namespace

__all__ = ["Poisson"]

# Newton on a convex function from a start less than 1 above its root: to relative accuracy of the exponential.
_NEWTON_STEPS = 7
_REACH = 0.42  # beyond the exponential of this share of the exponents of a float, the loss is straight
_SERIES = 18  # terms of exp(t) - 1 - t for |t| < 1/2, and of artanh(z) for |z| < 1/3


@dataclass(frozen=True)
class Poisson(Loss):
    """Poisson loss of counts whose mean is exp(u): half the deviance.

    l(u)   = exp(u) - y u - (y - y log y),  y >= 0,  0 log 0 = 0
    l*(a)  = p log p - y log y - a,  p = a + y,  F: p >= 0
    l'(u)  = exp(u) - y,  l''(u) = exp(u),  l*'(a) = log p
    mu     = 0: differentiable, but of unbounded curvature

    Means have an end, about 1e129 in float64: beyond it l goes on as its tangent, and F ends there. So nothing overflows.
    """

    name: ClassVar[str] = "poisson"
    task: ClassVar[str] = "regression"
    explicit: ClassVar[bool] = False  # l*' is infinite where p = 0
    reach: ClassVar[float] = _REACH * math.log(sys.float_info.max)
    smoothness: ClassVar[float] = math.inf
    concordant: ClassVar[bool] = True
    nonnegative_targets: ClassVar[bool] = True
    is_likelihood: ClassVar[bool] = True
    link: ClassVar[str] = "log"
    score: ClassVar[str] = "d2"
    scoring: ClassVar[str] = "neg_mean_poisson_deviance"

    def value(self, u: Array, y: Array) -> Array:
        """Return l(u, y) = y (exp(t) - 1 - t) at t = u - log y, which has no large terms that cancel."""
        xp = namespace(u, y)
        t = u - _log(y)
        near = (xp.abs(t) < 0.5) & (y > 0)
        x = xp.where(near, t, 0.0)
        tail = 1.0 + 0.0 * x
        for n in range(_SERIES, 2, -1):
            tail = 1.0 + x / n * tail
        end = _reach(t)
        mean = xp.exp(xp.clip(u, None, end)) * (1.0 + xp.clip(u - end, 0.0, None))
        return xp.where(near, y * (0.5 * x * x * tail), mean - y * (1.0 + t))

    def derivative(self, u: Array, y: Array) -> Array:
        """Return l'(u, y)."""
        return self.second_derivative(u, y) - y

    def second_derivative(self, u: Array, y: Array) -> Array:
        """Return exp(u), no more than at the end of the means."""
        xp = namespace(u, y)
        mean = xp.exp(xp.clip(u, None, _reach(u + y)))
        return mean + 0.0 * y

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y) = p log(p / y) - a + a log y, infinite outside F."""
        xp = namespace(a, y)
        low, high = self.domain(y)
        inside = xp.clip(a, low, high)
        divergence, _ = self._divergence(inside, y)
        return xp.where((a < low) | (a > high), math.inf, divergence + inside * _log(y))

    def conjugate_terms(self, a: Array, y: Array, conjugate: Array) -> Array:
        """Return the sizes of p log(p / y) - a, where p is far from y of p log p, p log y and a, and of a log y."""
        _, size = self._divergence(self.project(a, y), y)
        xp = namespace(a, y)
        return 2.0 * (size + xp.abs(a * _log(y)))

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return l*'(a, y) = log p, minus infinity at p = 0."""
        xp = namespace(a, y)
        p = a + y
        return xp.where(p > 0, _log(p), -math.inf)

    def _divergence(self, a: Array, y: Array) -> tuple[Array, Array]:
        """Return p log(p / y) - a (p log p - a where y = 0), and the size of its terms.

        Near y its terms cancel. There, with x = a / y and z = x / (2 + x), log(p / y) = 2 artanh(z), and what is left is
        y (x z + 2 (1 + x) z^3 (1/3 + z^2/5 + ...)).
        """
        xp = namespace(a, y)
        p = a + y
        near = xp.abs(a) < 0.5 * y
        x = xp.where(near, a, 0.0) / xp.where(near, y, 1.0)
        z = x / (2.0 + x)
        tail = 0.0 * z
        for n in range(_SERIES, 0, -1):
            tail = 1.0 / (2 * n + 1) + z * z * tail
        close = y * (x * z + 2.0 * (1.0 + x) * z * z * z * tail)
        log_p, log_y = _log(p), _log(y)
        far, size = p * (log_p - log_y) - a, p * (xp.abs(log_p) + xp.abs(log_y)) + xp.abs(a)
        return xp.where(near, close, far), xp.where(near, close, size)

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends of F, from a mean of 0 to the largest one."""
        xp = namespace(y)
        low = 0.0 - xp.asarray(y)
        return low, low + math.exp(_reach(low))

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
        end = _reach(c)
        t = xp.where(L >= 1.0, log_tau + xp.log(xp.clip(L, 1.0, None)), c / tau)
        for _ in range(_NEWTON_STEPS):
            p = xp.exp(xp.clip(t, None, end))
            t = t - (p + tau * t - c) / (p + tau)
        # An ulp of t moves exp(t) by |t| ulps: of the two expressions of a, the one whose terms have the smaller errors.
        p = xp.exp(xp.clip(t, None, end))
        linear = xp.abs(z) + tau * xp.abs(t) < p * xp.abs(t) + y
        return self.project(xp.where(linear, z - tau * t, p - y), y)

    def intercept(self, each: Callable[[Callable[[Array, Array, Array], float]], list[float]]) -> float:
        """Return log(sum_i s_i y_i) - log(sum_i s_i exp(u_i)); without any count, where exp(u + b) underflows."""

        def rate(y: Array, s: Array, u: Array) -> float:
            xp = namespace(u, s)
            return float(xp.sum(s * xp.exp(xp.clip(u - largest, None, 0.0))))

        largest = max(each(lambda y, s, u: float(namespace(u).max(namespace(u).where(s > 0, u, -math.inf)))))
        total = sum(each(lambda y, s, u: float(namespace(y).sum(s * y))))
        if total == 0.0:
            return 2.0 * math.log(sys.float_info.min) - largest
        return math.log(total) - math.log(sum(each(rate))) - largest

    def mean(self, u: Array) -> Array:
        """Return exp(u), no more than the largest mean."""
        return namespace(u).exp(namespace(u).clip(u, None, _reach(u)))

    def with_offset(self, y: Array, offset: Array) -> tuple[Array, Array]:
        """Return y exp(-offset) and exp(offset): the counts and the exposures of the rates."""
        factor = namespace(y).exp(offset)
        return y / factor, factor


def _log(x: Array) -> Array:
    """Return log(x), 0 where x is 0 or less."""
    xp = namespace(x)
    return xp.log(xp.where(x > 0, x, 1.0))


def _reach(u: Array) -> float:
    """Return the prediction from which on the loss is straight."""
    xp = namespace(u)
    return _REACH * math.log(float(xp.finfo(xp.asarray(u).dtype).max))

"""The logistic loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from diht.losses.base import Array, Loss, namespace, oriented
from diht.losses.multinomial import Multinomial

__all__ = ["Logistic"]

# Newton on a convex function from a start less than 1.4 above its root: the error is below rounding after 6 steps.
_NEWTON_STEPS = 6


@dataclass(frozen=True)
class Logistic(Loss):
    """Logistic loss.

    l(u)   = log(1 + exp(-y u))
    l*(a)  = p log p + (1 - p) log(1 - p),  p = -y a,  F: p in [0, 1],  0 log 0 = 0
    l'(u)  = -y / (1 + exp(y u)),  l''(u) = p (1 - p) at p = -y l'(u),  l*'(a) = -y log(p / (1 - p))
    mu     = 4
    """

    name: ClassVar[str] = "logistic"
    task: ClassVar[str] = "classification"
    is_likelihood: ClassVar[bool] = True
    link: ClassVar[str] = "logit"
    mu: ClassVar[float] = 4.0
    smoothness: ClassVar[float] = math.inf
    concordant: ClassVar[bool] = True
    explicit: ClassVar[bool] = False  # l*' is infinite at the ends of F

    def value(self, u: Array, y: Array) -> Array:
        """Return l(u, y), linear in u where exp would overflow."""
        margin = y * u
        xp = namespace(margin)
        return xp.clip(-margin, 0.0, None) + xp.log1p(xp.exp(-xp.abs(margin)))

    def derivative(self, u: Array, y: Array) -> Array:
        """Return l'(u, y)."""
        return -y * _expit(-y * u)

    def second_derivative(self, u: Array, y: Array) -> Array:
        """Return l''(u, y)."""
        margin = y * u
        xp = namespace(margin)
        e = xp.exp(-xp.abs(margin))
        return e / (1.0 + e) ** 2

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y), infinite outside F and 0 at its ends."""
        p = -y * a
        xp = namespace(p)
        x = xp.clip(p, 0.0, 1.0)
        # 0 log 0 = 0, without a logarithm of 0; a NaN stays one.
        entropy = x * xp.log(xp.where(x > 0, x, 1.0)) + (1.0 - x) * xp.log1p(-xp.where(x < 1, x, 0.0))
        return xp.where((p < 0) | (p > 1), math.inf, entropy)

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return l*'(a, y), infinite at the ends of F."""
        p = -y * a
        xp = namespace(p)
        x = xp.where((p <= 0) | (p >= 1), 0.5, p)
        # Near p = 1/2 the logarithm would lose what 2p - 1, which is exact there, keeps.
        middle = xp.abs(2.0 * x - 1.0) < 0.5
        logit = xp.where(middle, xp.log1p(xp.where(middle, 2.0 * x - 1.0, 0.0) / (1.0 - x)), xp.log(x / (1.0 - x)))
        return -y * xp.where(p <= 0, -math.inf, xp.where(p >= 1, math.inf, logit))

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends of F: [-1, 0] for y = +1, [0, 1] for y = -1."""
        return oriented(-1.0, 0.0, y)

    def conjugate_prox(self, z: Array, tau: Array, y: Array) -> Array:
        """Return argmin_a  tau l*(a, y) + (a - z)^2 / 2 by Newton's method in the margin.

        With c = -y z the optimal p = -y a is 1 / (1 + exp(-t)) at the root t of h(t) = 1 / (1 + exp(-t)) + tau t - c.
        Replacing (p, c, t) by (1 - p, 1 - c, -t) changes nothing, so let c <= 1/2; then t <= 0, where h is convex and
        increasing, and Newton's method decreases to the root from any point above it. Such points are c / tau,
        (c - 1/2) / (tau + 1/4) (the tangent at 0), and log(2 tau L) with L = c / tau - log(2 tau) >= 1 (from
        h(t) >= exp(t) / 2 + tau t - c, whose root is c / tau - W(exp(L)), W the function of Lambert). The least of them
        is at most 1.4 above the root whatever c and tau, so a fixed small number of steps suffices.
        """
        c = -y * z
        xp = namespace(c)
        c = xp.asarray(c)
        tau = xp.asarray(tau, dtype=c.dtype)
        upper = c > 0.5
        c = xp.where(upper, 1.0 - c, c)
        log_2tau = xp.log(2.0 * tau)
        L = c / tau - log_2tau
        t = xp.where(L >= 1.0, log_2tau + xp.log(xp.clip(L, 1.0, None)), c / tau)
        t = xp.minimum(t, (c - 0.5) / (tau + 0.25))
        for _ in range(_NEWTON_STEPS):
            p = _expit(t)
            t = t - (p + tau * t - c) / (p * (1.0 - p) + tau)
        p = _expit(t)
        return -y * xp.where(upper, 1.0 - p, p)

    def of_classes(self) -> Loss:
        """Return the loss of all classes at once."""
        return Multinomial()

    def kernel(self) -> tuple[int, float, float, float]:
        """Return code 1."""
        return 1, 4.0, -1.0, 0.0


def _expit(t: Array) -> Array:
    """Return 1 / (1 + exp(-t)) without overflow."""
    xp = namespace(t)
    return xp.exp(xp.clip(t, None, 0.0)) / (1.0 + xp.exp(-xp.abs(t)))

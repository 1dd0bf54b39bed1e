"""Losses, their convex conjugates and the proximal maps of the conjugates.

A loss l(u, y) is convex in the prediction u = x.w + b. Everything that a method needs of it is elementwise:

    l*(a, y) = max_u  a u - l(u, y),       F = {a : l*(a, y) < inf}   (an interval that may depend on y),

and Fenchel-Young, l(u) + l*(a) >= a u with equality exactly at a = l'(u), turns any a in F into a bound.

No loss sees X, w or the number of samples, and none keeps a target: a loss is a small frozen object. The formulas use
only functions of the array API standard (and torch, which has the same names), taken from the arrays themselves.

Five of the seven losses share one conjugate, l*(a) = y a + (mu/2) a^2 on an interval; see `QuadraticConjugate`.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

__all__ = [
    "LOSSES",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Poisson",
    "QuadraticConjugate",
    "SmoothedHinge",
    "Squared",
    "SquaredHinge",
    "as_loss",
]

# An array of any namespace that follows the array API standard, or a number; there is no common type to name.
Array: TypeAlias = Any

# `Loss.conjugate_prox` needs about 20 steps where l is smooth. At a kink only the bisections, each third step, count:
# 80 of them reach the 53 bits of float64 from a bracket 1e8 times as wide.
_MAX_BRACKETING_STEPS = 240

# Newton on a convex function from a start less than 1.4 above its root: the error is below rounding after 6 steps.
_LOGISTIC_NEWTON_STEPS = 6

# The same from a start less than 1 above it, but to relative accuracy of the exponential.
_POISSON_NEWTON_STEPS = 7
_POISSON_REACH = 0.42  # beyond the exponential of this share of the exponents of a float, the Poisson loss is straight
_SERIES = 18  # terms of exp(t) - 1 - t for |t| < 1/2, and of artanh(z) for |z| < 1/3


def _namespace(*arrays: Array) -> Any:
    """Return the array namespace of the first array that has one; numpy for plain numbers and sequences."""
    for array in arrays:
        if hasattr(array, "__array_namespace__"):
            return array.__array_namespace__()
        if type(array).__module__ == "torch":
            return sys.modules["torch"]
    return np


def _oriented(low: float, high: float, y: Array) -> tuple[Array, Array]:
    """Return the interval [low, high] where y >= 0 and [-high, -low] where y < 0."""
    if low == -high:
        return low, high
    xp = _namespace(y)
    one = xp.ones_like(y)
    return xp.where(y < 0, (0.0 - high) * one, low * one), xp.where(y < 0, (0.0 - low) * one, high * one)


class Loss(ABC):
    """A convex loss of one prediction, elementwise and stateless.

    A loss of one's own needs `value`, `derivative`, `conjugate`, `conjugate_derivative` and `domain`, and `mu` where it
    is smooth. Everything else is derived from these.

    Attributes
    ----------
    name : str
        What the loss is called in messages and tables.
    task : str
        "regression" (any finite target) or "classification" (targets -1 and +1).
    mu : float
        l is 1/mu-smooth, which is to say that l* is mu-strongly convex; 0 where l is not smooth.
    explicit : bool
        Whether l*' is finite on all of F, without which the explicit dual step is of no use.
    of_differences : bool
        Whether l(u, y) depends on y - u alone.
    reach : float
        The prediction in float64 beyond which l would overflow, and goes on as a straight line instead.
    """

    name: ClassVar[str] = "custom"
    task: ClassVar[str] = "regression"
    explicit: ClassVar[bool] = True
    of_differences: ClassVar[bool] = False
    reach: ClassVar[float] = math.inf

    @property
    def mu(self) -> float:
        """Modulus of strong convexity of the conjugate."""
        return 0.0

    @property
    def differentiable(self) -> bool:
        """Whether l has no kinks, and Newton's method may be used as it is; also without a bound on the curvature (mu = 0)."""
        return self.mu > 0

    @abstractmethod
    def value(self, u: Array, y: Array) -> Array:
        """Return l(u, y)."""

    def residual_value(self, r: Array, y: Array) -> Array | None:
        """Return l(y + r, y) from r itself, which may be far smaller than y; None where there is no such formula."""
        return None

    @abstractmethod
    def derivative(self, u: Array, y: Array) -> Array:
        """Return l'(u, y), at a kink the subgradient nearest 0."""

    @abstractmethod
    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y), infinite outside F."""

    @abstractmethod
    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return l*'(a, y) for a in F."""

    @abstractmethod
    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends (low, high) of F, as arrays like y or as two numbers."""

    def second_derivative(self, u: Array, y: Array) -> Array:
        """Return a generalised l''(u, y), here a central difference of `derivative`."""
        xp = _namespace(u, y)
        u = xp.asarray(u)
        h = float(xp.finfo(u.dtype).eps) ** (1 / 3) * xp.clip(xp.abs(u), 1.0, None)
        above, below = u + h, u - h
        return (self.derivative(above, y) - self.derivative(below, y)) / (above - below)

    def project(self, a: Array, y: Array) -> Array:
        """Return the point of F nearest to a."""
        low, high = self.domain(y)
        return _namespace(a, y).clip(a, low, high)

    def conjugate_prox(self, z: Array, tau: Array, y: Array) -> Array:
        """Return argmin_a  tau l*(a, y) + (a - z)^2 / 2, a point of F, for 0 < tau < inf.

        By Moreau, a = z - tau u for the u with z - tau u in dl(u). The function g(u) = l'(u) + tau u - z increases, and
        because l' is monotone its root lies between 0 and (z - l'(0)) / tau. This bracket [p, q] is narrowed by regula
        falsi (Illinois), with a bisection every third step, until z - tau u is known to rounding or [l'(p), l'(q)],
        which contains a, is: the second is the sharp one where l is smooth, the first at a kink.
        """
        xp = _namespace(z, y)
        z = xp.asarray(z)
        tau = xp.asarray(tau, dtype=z.dtype)
        tol = 2.0 * float(xp.finfo(z.dtype).eps)
        far = (z - self.derivative(xp.zeros_like(z), y)) / tau
        p, q = xp.clip(far, None, 0.0), xp.clip(far, 0.0, None)
        slope_p, slope_q = self.derivative(p, y), self.derivative(q, y)
        g_p, g_q = slope_p + tau * p - z, slope_q + tau * q - z
        was_left = was_right = far != far  # all False
        for step in range(_MAX_BRACKETING_STEPS):
            known = _is_narrow(slope_p, slope_q, tol) | _is_narrow(z - tau * q, z - tau * p, tol)
            if bool(xp.all(known | _is_narrow(p, q, tol))):
                break
            rise = g_q - g_p
            share = 0.5 if step % 3 == 2 else xp.where(rise > 0, -g_p / xp.where(rise > 0, rise, 1.0), 0.5)
            # An end that has met the root is crossed by a hair, so that the other end can follow.
            hair = xp.minimum(0.5 * tol * xp.maximum(xp.abs(p), xp.abs(q)), 0.5 * (q - p))
            u = xp.minimum(xp.maximum(p + share * (q - p), p + hair), q - hair)
            slope = self.derivative(u, y)
            g = slope + tau * u - z
            found = xp.abs(g) <= 0.5 * tol * xp.maximum(xp.abs(slope), xp.abs(z))  # the rounding of g itself
            left, right = (g < 0) | found, (g >= 0) | found
            # Illinois: an end that stays twice running counts half, so that both ends close in on the root.
            g_p = xp.where(left, g, xp.where(was_right, 0.5 * g_p, g_p))
            g_q = xp.where(right, g, xp.where(was_left, 0.5 * g_q, g_q))
            p, slope_p = xp.where(left, u, p), xp.where(left, slope, slope_p)
            q, slope_q = xp.where(right, u, q), xp.where(right, slope, slope_q)
            was_left, was_right = left, right
        a = z - tau * (p + 0.5 * (q - p))
        return self.project(xp.minimum(xp.maximum(a, slope_p), slope_q), y)

    def conjugate_terms(self, a: Array, y: Array, conjugate: Array) -> Array:
        """Return the sizes of the terms of l*(a, y), which is given: a few units in their last place bound its rounding error."""
        xp = _namespace(a, y)
        return xp.abs(conjugate) + 2.0 * xp.abs(y * a)

    def intercept(self, u: Array, y: Array, s: Array) -> float | None:
        """Return the minimiser over b of sum_i s_i l(u_i + b, y_i) where there is a formula for it."""
        return None

    def mean(self, u: Array) -> Array:
        """Return the target that a prediction u stands for."""
        return u

    def with_offset(self, y: Array, offset: Array) -> tuple[Array, Array]:
        """Return targets z and factors f for which l(u + offset, y) = f l(u, z) for all u, if there are any."""
        if self.of_differences:
            return y - offset, _namespace(y).ones_like(y)
        raise ValueError(f"offset cannot be used with the {self.name} loss: it is for squared, huber and poisson")

    def dual_step(self, a: Array, u: Array, tau: Array, y: Array, implicit: bool) -> Array:
        """Return the dual variable after an ascent step of length tau at the prediction u.

        Explicit (the paper's, Algorithm 1): P_F(a + tau (u - l*'(a))). Implicit: argmin_b of
        tau (l*(b) - b u) + (b - a)^2 / 2, the proximal map of the conjugate at a + tau u.
        """
        if implicit:
            return self.conjugate_prox(a + tau * u, tau, y)
        return self.project(a + tau * (u - self.conjugate_derivative(a, y)), y)

    def start(self, y: Array) -> Array:
        """Return a first dual point: l'(0, y), where the explicit and the implicit step are both defined."""
        return self.derivative(_namespace(y).zeros_like(y), y)

    def kernel(self) -> tuple[int, float, float, float] | None:
        """Return (code, mu, low, high) for the compiled dual steps, or None: the step then runs through this object.

        Code 0: the conjugate y a + (mu/2) a^2 on [low, high] (on [-high, -low] for y < 0). Code 1: the logistic loss.
        """
        return None

    def slope_kernel(self) -> tuple[tuple[int, float, float, float], float] | None:
        """Return the numbers of `kernel` and the strength of barriers, for compiled sums of derivatives; None as there."""
        kernel = self.kernel()
        return None if kernel is None else (kernel, 0.0)

    def check_targets(self, y: Array) -> None:
        """Raise ValueError where a target is not one that the loss is made for."""
        xp = _namespace(y)
        y = xp.reshape(xp.asarray(y), (-1,))
        if getattr(y.dtype, "kind", "f") not in "biuf":
            raise ValueError(f"y must hold real numbers, got {y.dtype} (first value: {y[0] if len(y) else None!r})")
        _refuse(xp, y, ~xp.isfinite(y), "y must be finite")
        if self.task == "classification":
            _refuse(xp, y, (y != 1) & (y != -1), f"y must be -1 or +1 for the {self.name} loss")


def _is_narrow(low: Array, high: Array, tol: float) -> Array:
    """Tell where the interval [low, high] is a point but for a relative tol."""
    xp = _namespace(low)
    return high - low <= tol * xp.maximum(xp.abs(low), xp.abs(high))


def _refuse(xp: Any, y: Array, bad: Array, requirement: str) -> None:
    """Raise ValueError with the first target that is bad, if there is one."""
    if bool(xp.any(bad)):
        first = int(xp.nonzero(bad)[0][0])
        raise ValueError(f"{requirement}, got {float(y[first])} at position {first}")


class QuadraticConjugate(Loss):
    r"""A loss whose conjugate is l*(a) = y a + (mu/2) a^2 on an interval.

    The interval F is [low, high] for y > 0 and [-high, -low] for y < 0; for regression it is symmetric. With r = u - y,

        l(u)   = max_{a in F} a r - (mu/2) a^2,     attained at
        l'(u)  = P_F(r / mu)                        (mu = 0: the end of F that r points to, 0 where r = 0),
        l''(u) = 1/mu where r/mu is in F, 0 elsewhere,
        prox   = P_F((z - tau y) / (1 + tau mu)).
    """

    @property
    @abstractmethod
    def low(self) -> float:
        """Lower end of F for y > 0."""

    @property
    @abstractmethod
    def high(self) -> float:
        """Upper end of F for y > 0."""

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
        xp = _namespace(r)
        if self.mu == 0:
            return xp.where(r > 0, high, xp.where(r < 0, low, 0.0 * r))
        return xp.clip(r / self.mu, low, high)

    def second_derivative(self, u: Array, y: Array) -> Array:
        """Return 1/mu on the curved part of the loss, its ends included, and 0 elsewhere."""
        r = u - y
        xp = _namespace(r)
        if self.mu == 0:
            return 0.0 * r
        low, high = self.domain(y)
        q = r / self.mu
        return xp.where((q < low) | (q > high), 0.0, xp.ones_like(q) / self.mu)

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y), infinite outside F."""
        low, high = self.domain(y)
        xp = _namespace(a, y)
        inside = xp.clip(a, low, high)  # so that no a outside F can overflow
        return xp.where((a < low) | (a > high), math.inf, inside * (y + 0.5 * self.mu * inside))

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return l*'(a, y) = y + mu a."""
        return y + self.mu * a

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends of F."""
        return _oriented(self.low, self.high, y)

    def conjugate_prox(self, z: Array, tau: Array, y: Array) -> Array:
        """Return P_F((z - tau y) / (1 + tau mu)), so written that tau y does not overflow where the result does not."""
        shrink = 1.0 / (1.0 + tau * self.mu)
        return self.project(z * shrink - y * (tau * shrink), y)

    def kernel(self) -> tuple[int, float, float, float] | None:
        """Return code 0 with mu, low, high. A subclass that changes a formula returns None instead."""
        return 0, self.mu, self.low, self.high


@dataclass(frozen=True)
class Squared(QuadraticConjugate):
    """Squared loss, the paper's for regression (section 5.1, without 1/2).

    l(u)   = (y - u)^2
    l*(a)  = y a + a^2 / 4,  F = R
    l'(u)  = 2 (u - y),  l''(u) = 2,  l*'(a) = y + a / 2
    mu     = 1/2
    """

    name: ClassVar[str] = "squared"
    task: ClassVar[str] = "regression"
    of_differences: ClassVar[bool] = True
    mu: ClassVar[float] = 0.5
    low: ClassVar[float] = -math.inf
    high: ClassVar[float] = math.inf


@dataclass(frozen=True)
class SmoothedHinge(QuadraticConjugate):
    """Smoothed hinge loss, which the paper calls the Huber loss (section 5.2.1).

    l(u)   = 0 if y u >= 1;  1 - y u - gamma/2 if y u < 1 - gamma;  (1 - y u)^2 / (2 gamma) between
    l*(a)  = y a + (gamma/2) a^2,  F: y a in [-1, 0]
    l'(u)  = -y min(max(0, 1 - y u) / gamma, 1),  l''(u) = 1/gamma between, else 0,  l*'(a) = y + gamma a
    mu     = gamma
    """

    gamma: float = 0.25
    name: ClassVar[str] = "smoothed_hinge"
    task: ClassVar[str] = "classification"
    low: ClassVar[float] = -1.0
    high: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        _require_positive("gamma", self.gamma)

    @property
    def mu(self) -> float:
        """The width gamma of the curved part."""
        return self.gamma


@dataclass(frozen=True)
class Hinge(QuadraticConjugate):
    """Hinge loss (section 5.2.2 of the paper).

    l(u)   = max(0, 1 - y u)
    l*(a)  = y a,  F: y a in [-1, 0]
    l'(u)  = -y if y u < 1 else 0,  l''(u) = 0,  l*'(a) = y
    mu     = 0: not smooth
    """

    name: ClassVar[str] = "hinge"
    task: ClassVar[str] = "classification"
    mu: ClassVar[float] = 0.0
    low: ClassVar[float] = -1.0
    high: ClassVar[float] = 0.0


@dataclass(frozen=True)
class SquaredHinge(QuadraticConjugate):
    """Squared hinge loss.

    l(u)   = max(0, 1 - y u)^2
    l*(a)  = y a + a^2 / 4,  F: y a <= 0
    l'(u)  = -2 y max(0, 1 - y u),  l''(u) = 2 if y u <= 1 else 0,  l*'(a) = y + a / 2
    mu     = 1/2
    """

    name: ClassVar[str] = "squared_hinge"
    task: ClassVar[str] = "classification"
    mu: ClassVar[float] = 0.5
    low: ClassVar[float] = -math.inf
    high: ClassVar[float] = 0.0


@dataclass(frozen=True)
class Huber(QuadraticConjugate):
    """Huber's loss for robust regression.

    l(u)   = r^2 / 2 if |r| <= delta else delta |r| - delta^2 / 2,  r = u - y
    l*(a)  = y a + a^2 / 2,  F: |a| <= delta
    l'(u)  = min(max(r, -delta), delta),  l''(u) = 1 if |r| <= delta else 0,  l*'(a) = y + a
    mu     = 1
    """

    delta: float = 1.0
    name: ClassVar[str] = "huber"
    task: ClassVar[str] = "regression"
    of_differences: ClassVar[bool] = True
    mu: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        _require_positive("delta", self.delta)

    @property
    def low(self) -> float:
        """Lower end of F."""
        return -self.delta

    @property
    def high(self) -> float:
        """Upper end of F."""
        return self.delta


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
    mu: ClassVar[float] = 4.0
    explicit: ClassVar[bool] = False  # l*' is infinite at the ends of F

    def value(self, u: Array, y: Array) -> Array:
        """Return l(u, y), linear in u where exp would overflow."""
        margin = y * u
        xp = _namespace(margin)
        return xp.clip(-margin, 0.0, None) + xp.log1p(xp.exp(-xp.abs(margin)))

    def derivative(self, u: Array, y: Array) -> Array:
        """Return l'(u, y)."""
        return -y * _expit(-y * u)

    def second_derivative(self, u: Array, y: Array) -> Array:
        """Return l''(u, y)."""
        margin = y * u
        xp = _namespace(margin)
        e = xp.exp(-xp.abs(margin))
        return e / (1.0 + e) ** 2

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y), infinite outside F and 0 at its ends."""
        p = -y * a
        xp = _namespace(p)
        x = xp.clip(p, 0.0, 1.0)
        # 0 log 0 = 0, without a logarithm of 0; a NaN stays one.
        entropy = x * xp.log(xp.where(x > 0, x, 1.0)) + (1.0 - x) * xp.log1p(-xp.where(x < 1, x, 0.0))
        return xp.where((p < 0) | (p > 1), math.inf, entropy)

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return l*'(a, y), infinite at the ends of F."""
        p = -y * a
        xp = _namespace(p)
        x = xp.where((p <= 0) | (p >= 1), 0.5, p)
        # Near p = 1/2 the logarithm would lose what 2p - 1, which is exact there, keeps.
        middle = xp.abs(2.0 * x - 1.0) < 0.5
        logit = xp.where(middle, xp.log1p(xp.where(middle, 2.0 * x - 1.0, 0.0) / (1.0 - x)), xp.log(x / (1.0 - x)))
        return -y * xp.where(p <= 0, -math.inf, xp.where(p >= 1, math.inf, logit))

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends of F: [-1, 0] for y = +1, [0, 1] for y = -1."""
        return _oriented(-1.0, 0.0, y)

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
        xp = _namespace(c)
        c = xp.asarray(c)
        tau = xp.asarray(tau, dtype=c.dtype)
        upper = c > 0.5
        c = xp.where(upper, 1.0 - c, c)
        log_2tau = xp.log(2.0 * tau)
        L = c / tau - log_2tau
        t = xp.where(L >= 1.0, log_2tau + xp.log(xp.clip(L, 1.0, None)), c / tau)
        t = xp.minimum(t, (c - 0.5) / (tau + 0.25))
        for _ in range(_LOGISTIC_NEWTON_STEPS):
            p = _expit(t)
            t = t - (p + tau * t - c) / (p * (1.0 - p) + tau)
        p = _expit(t)
        return -y * xp.where(upper, 1.0 - p, p)

    def kernel(self) -> tuple[int, float, float, float]:
        """Return code 1."""
        return 1, 4.0, -1.0, 0.0


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
    reach: ClassVar[float] = _POISSON_REACH * math.log(sys.float_info.max)
    differentiable: ClassVar[bool] = True

    def value(self, u: Array, y: Array) -> Array:
        """Return l(u, y) = y (exp(t) - 1 - t) at t = u - log y, which has no large terms that cancel."""
        xp = _namespace(u, y)
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
        xp = _namespace(u, y)
        mean = xp.exp(xp.clip(u, None, _reach(u + y)))
        return mean + 0.0 * y

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y) = p log(p / y) - a + a log y, infinite outside F."""
        xp = _namespace(a, y)
        low, high = self.domain(y)
        inside = xp.clip(a, low, high)
        divergence, _ = self._divergence(inside, y)
        return xp.where((a < low) | (a > high), math.inf, divergence + inside * _log(y))

    def conjugate_terms(self, a: Array, y: Array, conjugate: Array) -> Array:
        """Return the sizes of p log(p / y) - a, where p is far from y of p log p, p log y and a, and of a log y."""
        _, size = self._divergence(self.project(a, y), y)
        xp = _namespace(a, y)
        return 2.0 * (size + xp.abs(a * _log(y)))

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return l*'(a, y) = log p, minus infinity at p = 0."""
        xp = _namespace(a, y)
        p = a + y
        return xp.where(p > 0, _log(p), -math.inf)

    def _divergence(self, a: Array, y: Array) -> tuple[Array, Array]:
        """Return p log(p / y) - a (p log p - a where y = 0), and the size of its terms.

        Near y its terms cancel. There, with x = a / y and z = x / (2 + x), log(p / y) = 2 artanh(z), and what is left is
        y (x z + 2 (1 + x) z^3 (1/3 + z^2/5 + ...)).
        """
        xp = _namespace(a, y)
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
        xp = _namespace(y)
        low = 0.0 - xp.asarray(y)
        return low, low + math.exp(_reach(low))

    def conjugate_prox(self, z: Array, tau: Array, y: Array) -> Array:
        """Return argmin_a  tau l*(a, y) + (a - z)^2 / 2 by Newton's method in the prediction.

        p = exp(t) at the root t of h(t) = exp(t) + tau t - c, c = z + y. h is convex and increasing: Newton's method decreases
        to the root from any point above it. With L = c / tau - log(tau) the root is c / tau - W(exp(L)), W the function of
        Lambert; W(exp(L)) lies between 0 and 1 for L < 1, and is at least L - log(L), less than 1/3 of it missing, for L >= 1.
        """
        xp = _namespace(z, y)
        c = xp.asarray(z + y)
        tau = xp.asarray(tau, dtype=c.dtype)
        log_tau = xp.log(tau)
        L = c / tau - log_tau
        end = _reach(c)
        t = xp.where(L >= 1.0, log_tau + xp.log(xp.clip(L, 1.0, None)), c / tau)
        for _ in range(_POISSON_NEWTON_STEPS):
            p = xp.exp(xp.clip(t, None, end))
            t = t - (p + tau * t - c) / (p + tau)
        # Where tau t is the smaller part of c, z - tau t has the smaller error, and else exp(t) - y.
        small = tau * xp.abs(t) < 0.5 * xp.abs(c)
        return self.project(xp.where(small, z - tau * t, xp.exp(xp.clip(t, None, end)) - y), y)

    def intercept(self, u: Array, y: Array, s: Array) -> float:
        """Return log(sum_i s_i y_i) - log(sum_i s_i exp(u_i)); without any count, where exp(u + b) underflows."""
        xp = _namespace(u, y, s)
        largest = float(xp.max(xp.where(s > 0, u, -math.inf)))
        total = float(xp.sum(s * y))
        if total == 0.0:
            return 2.0 * math.log(float(xp.finfo(u.dtype).tiny)) - largest
        return math.log(total) - math.log(float(xp.sum(s * xp.exp(xp.clip(u - largest, None, 0.0))))) - largest

    def mean(self, u: Array) -> Array:
        """Return exp(u), no more than the largest mean."""
        return _namespace(u).exp(_namespace(u).clip(u, None, _reach(u)))

    def with_offset(self, y: Array, offset: Array) -> tuple[Array, Array]:
        """Return y exp(-offset) and exp(offset): the counts and the exposures of the rates."""
        factor = _namespace(y).exp(offset)
        return y / factor, factor

    def check_targets(self, y: Array) -> None:
        """Raise ValueError where a target is negative."""
        super().check_targets(y)
        xp = _namespace(y)
        y = xp.reshape(xp.asarray(y), (-1,))
        _refuse(xp, y, y < 0, "y must not be negative for the poisson loss")


def _log(x: Array) -> Array:
    """Return log(x), 0 where x is 0 or less."""
    xp = _namespace(x)
    return xp.log(xp.where(x > 0, x, 1.0))


def _reach(u: Array) -> float:
    """Return the prediction from which on the Poisson loss is straight."""
    xp = _namespace(u)
    return _POISSON_REACH * math.log(float(xp.finfo(xp.asarray(u).dtype).max))


def _expit(t: Array) -> Array:
    """Return 1 / (1 + exp(-t)) without overflow."""
    xp = _namespace(t)
    e = xp.exp(-xp.abs(t))
    return xp.where(t >= 0, 1.0, e) / (1.0 + e)


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value!r}")


LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (Squared, SmoothedHinge, Hinge, Logistic, SquaredHinge, Huber, Poisson)
}


def as_loss(loss: str | Loss) -> Loss:
    """Return the loss of that name with its default parameters, or the loss itself."""
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str):
        raise TypeError(f"loss must be a name or a Loss object, got {loss!r}")
    if loss not in LOSSES:
        raise ValueError(f"unknown loss {loss!r}; choose one of {', '.join(LOSSES)}")
    return LOSSES[loss]()

"""Tweedie's loss."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import ClassVar

from diht.losses.base import Array, is_between, namespace
from diht.losses.log_link import REACH, Each, LogLink, log_or_zero, log_ratio, log_total, reach_of

__all__ = ["Tweedie"]

_SERIES = 20  # terms of g for |t| < 1/2
_MOST_STEPS = 120  # of the search for t; Newton's method needs some ten, a bisection one for each bit
_ERROR = 8.0  # multiple of rounding that the residual of its end may have


@dataclass(frozen=True)
class Tweedie(LogLink):
    r"""Tweedie's loss of sums such as claims, zeros among them, whose variance is a power of their mean exp(u): half the deviance.

    With A = 2 - power, B = power - 1, 1 < power < 2, t = u - log y and g(t) = (exp(A t) - 1) / A + (exp(-B t) - 1) / B,

    l(u)   = y^A g(t),  for y = 0: exp(A u) / A
    l*(a)  = a log y + y^A (h t - g(t)) at the t with g'(t) = h = a / y^A,  F = R;  for y = 0: (a log a - a) / A,  F: a >= 0
    l'(u)  = y^A (exp(A t) - exp(-B t)),  l''(u) = y^A (A exp(A t) + B exp(-B t)),  l*'(a) = log y + t
    mu     = 0: differentiable, but of unbounded curvature

    The conjugate has no closed form. With the t that was found, h t - g(t) is too small by at most r^2 / min g'', r = h - g'(t)
    and the minimum that between t and the right one; as the logarithm of g'' changes by less than 1 per unit of t, that is at most
    e r^2 / g''(t) where r is less than half of g''(t). It is added, with the rounding of r, so that l* is never too small.

    Beyond \|t\| of about 298 (u, for y = 0) l goes on as its tangent, and F ends there. So nothing overflows.
    """

    power: float = 1.5
    name: ClassVar[str] = "tweedie"
    reach: ClassVar[float] = REACH * math.log(sys.float_info.max)

    def __post_init__(self) -> None:
        if not is_between(self.power, 1.0, 2.0):
            raise ValueError(f"power must be between 1 and 2, got {self.power!r}")

    @property
    def _exponents(self) -> tuple[float, float]:
        """A and B, both exact in floating point, and so is their sum 1."""
        return 2.0 - self.power, self.power - 1.0

    def value(self, u: Array, y: Array) -> Array:
        """Return l(u, y)."""
        A, _ = self._exponents
        xp = namespace(u, y)
        t = u - log_or_zero(y)
        end = reach_of(t)
        inside = xp.clip(u, None, end)
        none = xp.exp(A * inside) * (1.0 / A + (u - inside))
        near = xp.clip(t, -end, end)
        some = self._g(near) + self._slope(near) * (t - near)
        return xp.where(y > 0, _base(y) ** A * some, none)

    def derivative(self, u: Array, y: Array) -> Array:
        """Return l'(u, y)."""
        A, _ = self._exponents
        xp = namespace(u, y)
        t = u - log_or_zero(y)
        end = reach_of(t)
        return xp.where(y > 0, _base(y) ** A * self._slope(xp.clip(t, -end, end)), xp.exp(A * xp.clip(u, None, end)))

    def second_derivative(self, u: Array, y: Array) -> Array:
        """Return l''(u, y), beyond the reach that at its end."""
        A, _ = self._exponents
        xp = namespace(u, y)
        t = u - log_or_zero(y)
        end = reach_of(t)
        none = A * xp.exp(A * xp.clip(u, None, end))
        return xp.where(y > 0, _base(y) ** A * self._curvature(xp.clip(t, -end, end)), none)

    def _g(self, t: Array) -> Array:
        """Return g(t), near 0 from its series: the sum over n >= 2 of (A^(n-1) + (-1)^n B^(n-1)) t^n / n!."""
        A, B = self._exponents
        xp = namespace(t)
        near = xp.abs(t) < 0.5
        x = xp.where(near, t, 0.0)
        tail = 0.0 * x
        for n in range(_SERIES, 1, -1):
            tail = (A ** (n - 1) + (-1) ** n * B ** (n - 1)) / math.factorial(n) + x * tail
        return xp.where(near, x * x * tail, xp.expm1(A * t) / A + xp.expm1(-B * t) / B)

    def _slope(self, t: Array) -> Array:
        """Return g'(t) = exp(A t) - exp(-B t), without cancellation."""
        _, B = self._exponents
        xp = namespace(t)
        return xp.exp(-B * t) * xp.expm1(t)

    def _curvature(self, t: Array) -> Array:
        """Return g''(t)."""
        A, B = self._exponents
        xp = namespace(t)
        return A * xp.exp(A * t) + B * xp.exp(-B * t)

    def _where(self, h: Array) -> Array:
        """Return t with g'(t) = h: Newton's method in a bracket, from h where that is small, else from the far end."""
        A, B = self._exponents
        xp = namespace(h)
        left, right = -xp.log1p(xp.clip(-h, 0.0, None)) / B, xp.log1p(xp.clip(h, 0.0, None)) / A
        t = xp.clip(xp.where(xp.abs(h) < 1.0, h, left + right), left, right)
        eps = 2.0 * float(xp.finfo(t.dtype).eps)
        for _ in range(_MOST_STEPS):
            excess = self._slope(t) - h
            left, right = xp.where(excess < 0, t, left), xp.where(excess > 0, t, right)
            new = t - excess / self._curvature(t)
            new = xp.where((new >= left) & (new <= right), new, left + 0.5 * (right - left))
            new = xp.where(excess == 0, t, new)
            done = bool(xp.all(xp.abs(new - t) <= eps * xp.abs(t)))
            t = new
            if done:
                break
        return t

    def _inverted(self, a: Array, y: Array) -> tuple[Array, Array, Array]:
        """Return y^A, h and t of dual variables in F; of y = 0 those of y = 1."""
        A, _ = self._exponents
        xp = namespace(a, y)
        size = _base(y) ** A
        h = xp.where(y > 0, a / size, 0.0)
        end = reach_of(h)
        return size, h, xp.clip(self._where(h), -end, end)

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y), never less than it is but for rounding; infinite outside F."""
        A, _ = self._exponents
        xp = namespace(a, y)
        low, high = self.domain(y)
        inside = xp.clip(a, low, high)
        size, h, t = self._inverted(inside, y)
        curvature, rounding = self._curvature(t), _ERROR * float(xp.finfo(h.dtype).eps) * xp.abs(h)
        missed = xp.abs(h - self._slope(t)) + rounding
        lack = xp.where(missed <= 0.5 * curvature, math.e * missed * missed / curvature, math.inf)
        lack = xp.where(xp.abs(t) < reach_of(h), lack, 0.0)  # at an end of F t is known
        some = inside * log_or_zero(y) + size * (h * t - self._g(t) + lack)
        none = (inside * log_or_zero(inside) - inside) / A
        return xp.where((a < low) | (a > high), math.inf, xp.where(y > 0, some, none))

    def conjugate_terms(self, a: Array, y: Array, conjugate: Array) -> Array:
        """Return the sizes of the terms, with what the rounding of an exponent moves its exponential by."""
        A, B = self._exponents
        xp = namespace(a, y)
        inside = self.project(a, y)
        size, h, t = self._inverted(inside, y)
        above, below = xp.exp(A * t), xp.exp(-B * t)
        far = xp.abs(above - 1.0) / A + xp.abs(below - 1.0) / B + xp.abs(t) * (above + below)
        some = xp.abs(inside * log_or_zero(y)) + size * (xp.abs(h * t) + xp.where(xp.abs(t) < 0.5, 0.0, far))
        none = (xp.abs(inside * log_or_zero(inside)) + xp.abs(inside)) / A
        return 2.0 * xp.where(y > 0, some, none)

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return l*'(a, y), for y = 0 minus infinity at 0."""
        A, _ = self._exponents
        xp = namespace(a, y)
        _, _, t = self._inverted(a, y)
        none = xp.where(a > 0, log_or_zero(a) / A, -math.inf)
        return xp.where(y > 0, log_or_zero(y) + t, none)

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends of F: the derivatives where l becomes straight."""
        A, _ = self._exponents
        xp = namespace(y)
        y = xp.asarray(y)
        size, end = _base(y) ** A, reach_of(y) + 0.0 * y
        low, high = size * self._slope(-end), size * self._slope(end)
        return xp.where(y > 0, low, 0.0 * y), xp.where(y > 0, high, xp.exp(A * end))

    def within_reach(self, u: Array, y: Array) -> Array:
        """Tell where t, or u of y = 0, is within it."""
        xp = namespace(u, y)
        return xp.where(y > 0, xp.abs(u - log_or_zero(y)), u) <= self.reach

    def intercept(self, each: Each) -> float:
        """Return log(sum_i s_i y_i exp(-B u_i)) - log(sum_i s_i exp(A u_i)): A + B = 1."""
        A, B = self._exponents
        claims = log_total(each, lambda y, s, u: (s * y, -B * u))
        return log_ratio(claims, log_total(each, lambda y, s, u: (s, A * u)))

    def with_offset(self, y: Array, offset: Array) -> tuple[Array, Array]:
        """Return y exp(-offset) and exp(A offset): the claims of a unit of exposure."""
        xp = namespace(y)
        return y / xp.exp(offset), xp.exp(self._exponents[0] * offset)


def _base(y: Array) -> Array:
    """Return y, 1 where it is 0."""
    return namespace(y).where(y > 0, y, 1.0)

"""The negative binomial loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from diht.losses.base import Array, namespace, require_positive
from diht.losses.log_link import LogLink, divergence, excess_of_log, log_or_zero, reach_of

__all__ = ["NegativeBinomial"]


@dataclass(frozen=True)
class NegativeBinomial(LogLink):
    """Negative binomial loss of counts whose mean is m = exp(u) and whose variance is m + dispersion m^2: half the deviance.

    With c = dispersion and r = 1 / c,

    l(u)   = (y + r) log((1 + c m) / (1 + c y)) - y (u - log y),  y >= 0
    l*(a)  = p log(p / y) + q log(q / r) + a log y,  p = y + a,  q = r - a,  F: p, q >= 0,  0 log 0 = 0
    l'(u)  = (m - y) / (1 + c m),  l''(u) = m (1 + c y) / (1 + c m)^2,  l*'(a) = log(p / (c q))
    mu     = 0: the curvature is at most (y + r) / 4

    For y = 0 the terms with log y are not there. As the dispersion goes to 0 it becomes Poisson's.
    """

    dispersion: float = 1.0
    name: ClassVar[str] = "negative_binomial"
    is_likelihood: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive("dispersion", self.dispersion)

    def value(self, u: Array, y: Array) -> Array:
        """Return l(u, y) = y f(a / y) + r f(-a / r) with f(x) = x - log(1 + x), two terms that are not negative, at a = l'(u)."""
        c = self.dispersion
        xp = namespace(u, y)
        a, growth = self.derivative(u, y), self._log_growth(u)
        shrunk = xp.log1p(c * y) - growth  # log(q / r)
        counts = _excess(a / xp.where(y > 0, y, 1.0), u - log_or_zero(y) + shrunk)
        return xp.where(y > 0, y * counts + _excess(-c * a, shrunk) / c, growth / c)

    def _log_growth(self, u: Array) -> Array:
        """Return log(1 + c m), straight in u where m would overflow."""
        xp = namespace(u)
        end = reach_of(u)
        return xp.log1p(self.dispersion * xp.exp(xp.clip(u, None, end))) + xp.clip(u - end, 0.0, None)

    def derivative(self, u: Array, y: Array) -> Array:
        """Return l'(u, y) = y (exp(t) - 1) / (1 + c m), for large m (1 - y / m) / (c + 1 / m)."""
        c = self.dispersion
        xp = namespace(u, y)
        t, end = u - log_or_zero(y), reach_of(u)
        small, large = xp.clip(u, None, 0.0), xp.clip(u, 0.0, None)
        m, inverse = xp.exp(small), xp.exp(-xp.clip(large, None, end))
        rise = xp.where(y > 0, y * xp.expm1(xp.where(u > 0, 0.0, t)), m)
        fall = xp.where(y > 0, -xp.expm1(xp.where(u > 0, -t, 0.0)), 1.0)
        low, high = self.domain(y)
        return xp.clip(xp.where(u > 0, fall / (c + inverse), rise / (1.0 + c * m)), low, high)

    def second_derivative(self, u: Array, y: Array) -> Array:
        """Return l''(u, y)."""
        c, end = self.dispersion, reach_of(u)
        xp = namespace(u, y)
        m, inverse = xp.exp(xp.clip(u, None, 0.0)), xp.exp(-xp.clip(u, 0.0, end))
        return (1.0 + c * y) * xp.where(u > 0, inverse / (c + inverse) ** 2, m / (1.0 + c * m) ** 2)

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y), infinite outside F."""
        xp = namespace(a, y)
        low, high = self.domain(y)
        inside = xp.clip(a, low, high)
        counts, _ = divergence(inside, y)
        rest, _ = divergence(-inside, high)
        return xp.where((a < low) | (a > high), math.inf, counts + rest + inside * log_or_zero(y))

    def conjugate_terms(self, a: Array, y: Array, conjugate: Array) -> Array:
        """Return the sizes of the terms."""
        xp = namespace(a, y)
        inside = self.project(a, y)
        counts, rest = divergence(inside, y)[1], divergence(-inside, self.domain(y)[1])[1]
        return 2.0 * (counts + rest + xp.abs(inside * log_or_zero(y)))

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return l*'(a, y), infinite at the ends of F."""
        xp = namespace(a, y)
        p, q = a + y, self.domain(y)[1] - a
        inside = log_or_zero(p) - log_or_zero(self.dispersion * q)
        return xp.where(p > 0, xp.where(q > 0, inside, math.inf), -math.inf)

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends of F; the upper one is rounded down, for beyond 1 / c the conjugate is infinite."""
        xp = namespace(y)
        y = xp.asarray(y)
        return 0.0 - y, (1.0 - float(xp.finfo(y.dtype).eps)) / self.dispersion + 0.0 * y


def _excess(x: Array, log: Array) -> Array:
    """Return x - log(1 + x), where the logarithm is given."""
    xp = namespace(x)
    near = xp.abs(x) < 0.5
    return xp.where(near, excess_of_log(xp.where(near, x, 0.0)), x - log)

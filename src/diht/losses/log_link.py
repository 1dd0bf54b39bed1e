"""What the losses of a mean exp(u) have in common."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from diht.losses.base import Array, Loss, namespace

__all__ = [
    "REACH",
    "Each",
    "LogLink",
    "divergence",
    "excess_of_exp",
    "excess_of_log",
    "log_or_zero",
    "log_ratio",
    "log_total",
    "reach_of",
]

Each: TypeAlias = Callable[[Callable[[Array, Array, Array], float]], list[float]]

REACH = 0.42  # beyond the exponential of this share of the exponents of a float, a loss is straight
_SERIES = 18  # terms of exp(t) - 1 - t for |t| < 1/2, and of artanh(z) for |z| < 1/3
_NOTHING = 2.0 * math.log(sys.float_info.min)  # log of a mean that underflows, where no target is positive


class LogLink(Loss):
    """A loss of targets that are not negative and have the mean exp(u), of which l is half the deviance."""

    task: ClassVar[str] = "regression"
    explicit: ClassVar[bool] = False  # l*' is infinite at an end of F
    smoothness: ClassVar[float] = math.inf
    concordant: ClassVar[bool] = True
    nonnegative_targets: ClassVar[bool] = True
    link: ClassVar[str] = "log"
    score: ClassVar[str] = "d2"
    scoring: ClassVar[str] = "loss"

    def mean(self, u: Array) -> Array:
        """Return exp(u), no more than the largest mean."""
        return namespace(u).exp(namespace(u).clip(u, None, reach_of(u)))


def log_total(each: Each, terms: Callable[[Array, Array, Array], tuple[Array, Array]]) -> float:
    """Return the logarithm of the sum of w exp(e) over the samples, (w, e) = terms(y, s, u); minus infinity where all w are 0."""

    def largest(y: Array, s: Array, u: Array) -> float:
        w, e = terms(y, s, u)
        xp = namespace(e)
        return float(xp.max(xp.where(w > 0, e, -math.inf)))

    def total(y: Array, s: Array, u: Array) -> float:
        w, e = terms(y, s, u)
        xp = namespace(e)
        return float(xp.sum(w * xp.exp(xp.clip(e - most, None, 0.0))))

    most = max(each(largest))
    return most + math.log(sum(each(total))) if most > -math.inf else most


def log_ratio(above: float, below: float) -> float:
    """Return the difference of two logarithms of sums, or where nothing is above that of a number that underflows."""
    return (above if above > -math.inf else _NOTHING) - below


def log_or_zero(x: Array) -> Array:
    """Return log(x), 0 where x is 0 or less."""
    xp = namespace(x)
    return xp.log(xp.where(x > 0, x, 1.0))


def reach_of(u: Array) -> float:
    """Return the exponent from which on a loss is straight."""
    xp = namespace(u)
    return REACH * math.log(float(xp.finfo(xp.asarray(u).dtype).max))


def excess_of_exp(t: Array) -> Array:
    """Return exp(t) - 1 - t for -1/2 < t < 1/2, to all digits."""
    tail = 1.0 + 0.0 * t
    for n in range(_SERIES, 2, -1):
        tail = 1.0 + t / n * tail
    return 0.5 * t * t * tail


def excess_of_log(x: Array) -> Array:
    """Return x - log(1 + x) for -1/2 < x < 1/2, to all digits: with z = x / (2 + x) the logarithm is 2 artanh(z)."""
    z = x / (2.0 + x)
    return x * z - 2.0 * z * z * z * _artanh_tail(z)


def _artanh_tail(z: Array) -> Array:
    """Return 1/3 + z^2/5 + z^4/7 + ..."""
    tail = 0.0 * z
    for n in range(_SERIES, 0, -1):
        tail = 1.0 / (2 * n + 1) + z * z * tail
    return tail


def divergence(a: Array, y: Array) -> tuple[Array, Array]:
    """Return p log(p / y) - a with p = a + y (p log p - a where y = 0), and the size of its terms.

    Near y its terms cancel. There, with x = a / y and z = x / (2 + x), log(p / y) = 2 artanh(z), and what is left is
    y (x z + 2 (1 + x) z^3 (1/3 + z^2/5 + ...)).
    """
    xp: Any = namespace(a, y)
    p = a + y
    near = xp.abs(a) < 0.5 * y
    x = xp.where(near, a, 0.0) / xp.where(near, y, 1.0)
    z = x / (2.0 + x)
    close = y * (x * z + 2.0 * (1.0 + x) * z * z * z * _artanh_tail(z))
    log_p, log_y = log_or_zero(p), log_or_zero(y)
    far, size = p * (log_p - log_y) - a, p * (xp.abs(log_p) + xp.abs(log_y)) + xp.abs(a)
    return xp.where(near, close, far), xp.where(near, close, size)

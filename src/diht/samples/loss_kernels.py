"""Compiled losses of samples, several at a time in vector registers.

As in :mod:`diht.design.kernels`, importing this module imports numba, and a loss enters as the numbers ``(code, mu, low, high)``.
Loops have no branches, and what is the same for all samples is read before them: else they would take one sample after the other,
five times as long.
"""

from __future__ import annotations

from diht.design.kernels import LOGISTIC, Array, clip, ends_of, jit_inlined, jit_reassociated
from diht.samples.logistic_kernels import decayed, log_above_one

__all__ = ["logistic_at", "piece_at", "slopes_and_curvatures", "sum_of_losses", "sums_along", "weigh"]


@jit_inlined
def logistic_at(u: float, y: float) -> tuple[float, float, float]:
    """Return the logistic loss of a margin, its slope and its curvature."""
    m = y * u
    e = decayed(abs(m))
    share = 1.0 / (1.0 + e)
    p = e * share if m >= 0.0 else share
    return max(-m, 0.0) + log_above_one(e), -y * p, e * share * share


@jit_inlined
def piece_at(u: float, y: float, code: int, mu: float, low: float, high: float) -> tuple[float, float, float]:
    """Return the same of a loss whose conjugate is a parabola on an interval."""
    bottom, top = ends_of(y, code, low, high)
    free = (u - y) / mu
    a = clip(free, bottom, top)
    return a * (u - y - 0.5 * mu * a), a, 1.0 / mu if bottom < free < top else 0.0


@jit_reassociated
def slopes_and_curvatures(u: Array, y: Array, loss: Array, slopes: Array, curvatures: Array) -> None:
    """Write the slopes and the curvatures of the losses of some margins."""
    if loss[0] == LOGISTIC:
        for i in range(u.size):
            _, slopes[i], curvatures[i] = logistic_at(u[i], y[i])
    else:
        code, mu, low, high = int(loss[0]), loss[1], loss[2], loss[3]
        for i in range(u.size):
            _, slopes[i], curvatures[i] = piece_at(u[i], y[i], code, mu, low, high)


@jit_reassociated
def sum_of_losses(u: Array, y: Array, s: Array, loss: Array) -> float:
    """Return the weighted sum of the losses of some margins."""
    total = 0.0
    if loss[0] == LOGISTIC:
        for i in range(u.size):
            value, _, _ = logistic_at(u[i], y[i])
            total += s[i] * value
    else:
        code, mu, low, high = int(loss[0]), loss[1], loss[2], loss[3]
        for i in range(u.size):
            value, _, _ = piece_at(u[i], y[i], code, mu, low, high)
            total += s[i] * value
    return float(total)


@jit_reassociated
def weigh(u: Array, y: Array, s: Array, loss: Array, slopes: Array, curvatures: Array) -> float:
    """Write the same with weights; return the sum of the losses."""
    total = 0.0
    if loss[0] == LOGISTIC:
        for i in range(u.size):
            value, a, c = logistic_at(u[i], y[i])
            slopes[i], curvatures[i] = s[i] * a, s[i] * c
            total += s[i] * value
    else:
        code, mu, low, high = int(loss[0]), loss[1], loss[2], loss[3]
        for i in range(u.size):
            value, a, c = piece_at(u[i], y[i], code, mu, low, high)
            slopes[i], curvatures[i] = s[i] * a, s[i] * c
            total += s[i] * value
    return float(total)


@jit_reassociated
def sums_along(t: float, x: Array, u: Array, y: Array, s: Array, loss: Array) -> tuple[float, float, float]:
    """Return the sum of the losses of the margins u + t x, its slope and its curvature in t."""
    total = slope = curvature = 0.0
    if loss[0] == LOGISTIC:
        for i in range(u.size):
            value, a, c = logistic_at(u[i] + t * x[i], y[i])
            total += s[i] * value
            slope += s[i] * x[i] * a
            curvature += s[i] * x[i] * x[i] * c
    else:
        code, mu, low, high = int(loss[0]), loss[1], loss[2], loss[3]
        for i in range(u.size):
            value, a, c = piece_at(u[i] + t * x[i], y[i], code, mu, low, high)
            total += s[i] * value
            slope += s[i] * x[i] * a
            curvature += s[i] * x[i] * x[i] * c
    return total, slope, curvature

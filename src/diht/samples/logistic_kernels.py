r"""Compiled sums and vectors of the logistic loss: value, slope and curvature of a sample from one exponential.

As in :mod:`diht.design.kernels`, importing this module imports numba. Exponential and logarithm are polynomials without branches,
so that loops run in vector registers: :math:`e^{-m} = 2^{-j} e^r` with :math:`|r| \le \log(2)/2`, and
:math:`\log(1 + f) = 2 \operatorname{artanh}(f / (2 + f))`. Both are right to some units in the last place.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from diht.design.kernels import Array, jit, jit_reassociated

__all__ = ["logistic_curvatures", "logistic_slopes", "logistic_sums"]

_FARTHEST = 708.0  # beyond that exp(-m) is no normal number
_POWERS = 2.0 ** -np.arange(1025.0)
_PER_LOG2 = 1.0 / math.log(2.0)
_HIGH, _LOW = 0.6931471803691238, 1.9082149292705877e-10  # log(2) in two parts: j times the first has no rounding error
_FACTORIALS = tuple(float(math.factorial(i)) for i in range(13, -1, -1))
_ODD = tuple(float(i) for i in range(21, 0, -2))
_SQRT2 = math.sqrt(2.0)

_jit_in_order = partial(
    jit, fastmath={"contract"}
)  # not by the rules of the caller, which may change the order of sums


@_jit_in_order
def decayed(m: float) -> float:
    """Return exp(-m) for m >= 0; where that is no normal number, the least that is."""
    m = min(m, _FARTHEST)
    j = np.floor(m * _PER_LOG2 + 0.5)
    j = j if j >= 0.0 else 0.0  # of NaN as well, which r keeps
    r = (j * _HIGH - m) + j * _LOW
    e = 0.0
    for factorial in _FACTORIALS:
        e = e * r + 1.0 / factorial
    return float(e * _POWERS[int(j)])


@_jit_in_order
def log_above_one(e: float) -> float:
    """Return log(1 + e) for 0 <= e <= 1."""
    upper = e > _SQRT2 - 1.0  # 1 + e = 2 (1 + f) there
    f = 0.5 * (e - 1.0) if upper else e
    t = f / (2.0 + f)
    z = t * t
    total = 0.0
    for odd in _ODD:
        total = total * z + 1.0 / odd
    return 2.0 * t * total + (math.log(2.0) if upper else 0.0)


@jit_reassociated
def logistic_sums(u: Array, b: float, y: Array, s: Array) -> tuple[float, float, float, float]:
    """Return the weighted sums of l, l', |l'| and l'' at the margins u + b."""
    value = slope = size = curvature = 0.0
    for i in range(u.size):
        m = y[i] * (u[i] + b)
        e = decayed(abs(m))
        share = 1.0 / (1.0 + e)
        p = s[i] * (e * share if m >= 0.0 else share)
        value += s[i] * (max(-m, 0.0) + log_above_one(e))
        slope -= y[i] * p
        size += p
        curvature += s[i] * (e * share * share)
    return value, slope, size, curvature


@jit
def logistic_slopes(u: Array, y: Array, out: Array) -> None:
    """Write l'(u, y)."""
    for i in range(u.size):
        m = y[i] * u[i]
        e = decayed(abs(m))
        share = 1.0 / (1.0 + e)
        out[i] = -y[i] * (e * share if m >= 0.0 else share)


@jit
def logistic_curvatures(u: Array, y: Array, out: Array) -> None:
    """Write l''(u, y)."""
    for i in range(u.size):
        e = decayed(abs(y[i] * u[i]))
        share = 1.0 / (1.0 + e)
        out[i] = e * share * share

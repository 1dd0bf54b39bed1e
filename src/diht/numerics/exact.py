r"""Sums of products in twice the precision of float64, by error-free transformations.

A sum or a product of two numbers is a float64 and an error that is one, too (Dekker, 1971; Knuth, 1998). Adding the errors up
gives a dot product as good as one that was computed in twice the precision and rounded (Ogita, Rump and Oishi, 2005): off by
:math:`u |x \cdot y| + \gamma_n^2 \, |x| \cdot |y|`. It serves where terms cancel, such as the products of columns whose means are
far larger than their deviations.
"""

from __future__ import annotations

from math import fsum
from typing import Any

import numpy as np

from diht.numerics.arrays import Vector

__all__ = ["CLEAR", "SPLITTER", "dot", "dots", "matmul", "total", "two_product", "two_sum"]

CLEAR = 1e-11  # relative rounding error above which a figure that is published is computed in twice the precision

SPLITTER = 2.0**27 + 1.0  # halves the 53 digits of a float64
_SUMMABLE = 1e290  # size of terms up to which no partial sum overflows


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Return a + b as rounded, and its error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """Return a b as rounded, and its error: exact unless a part of it underflows, or a factor exceeds 1e300."""
    total = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return total, a_low * b_low - (((total - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _split(a: Any) -> tuple[Any, Any]:
    big = SPLITTER * a
    high = big - (big - a)
    return high, a - high


def dot(x: Vector, y: Vector, start: float = 0.0) -> float:
    """Return start + x.y, rounded once."""
    with np.errstate(all="ignore"):
        terms = np.concatenate([[start], *two_product(x, y)])
        return fsum(terms) if np.all(np.abs(terms) < _SUMMABLE) else start + float(x @ y)


def total(values: Vector) -> tuple[float, float]:
    """Return the sum of a vector as an unevaluated sum of two numbers."""
    low = 0.0
    while values.size > 1:
        if values.size % 2:
            values = np.append(values, 0.0)
        values, errors = two_sum(values[::2], values[1::2])
        low += float(errors.sum())
    high = float(values.sum())
    return high, low


def dots(A: Vector, B: Vector) -> Vector:
    """Return the product of each row of A with the row of B, summed in twice the precision."""
    high, low = np.zeros(len(A)), np.zeros(len(A))
    with np.errstate(over="ignore", invalid="ignore"):
        for a, b in zip(np.asfortranarray(A).T, np.asfortranarray(B).T, strict=True):  # columns in one piece
            term, error = two_product(a, b)
            high, rest = two_sum(high, term)
            low += error + rest
        return np.asarray(high + low)


def matmul(A: Vector, B: Vector) -> tuple[Vector, Vector]:
    """Return the product A B as an unevaluated sum of two matrices; it is built column of A by row of B."""
    high = np.zeros((A.shape[0], B.shape[1]))
    low = np.zeros_like(high)
    with np.errstate(over="ignore", invalid="ignore"):
        for column, row in zip(A.T, B, strict=True):
            term, error = two_product(column[:, None], row)
            high, rest = two_sum(high, term)
            low += error + rest
        high, low = two_sum(high, low)
    return high, np.where(np.isfinite(low), low, 0.0)

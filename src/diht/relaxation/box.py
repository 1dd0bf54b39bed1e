r"""Minima of strongly convex functions within limits, by active sets.

A step leads towards the minimum over the coefficients that are between their limits, up to where the first of them meets one and
is held there. Once none is in the way, the slopes of those held tell whether one should be let go (Lawson and Hanson, 1974; Stark
and Parker, 1995). Every step lowers the function, so that no set of held coefficients comes twice, and the end is exact.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from diht.constraints.limits import Limits
from diht.numerics.arrays import Indices, Vector
from diht.numerics.definite import Definite

__all__ = ["box_minimum", "minimum_within"]


_MOST_CHANGES = 50  # of the set that is held, beside some for each coefficient
_EXACT = 1e-14  # slopes below this share of their terms are rounding


def minimum_within(
    limits: Limits,
    x: Vector,
    minimum: Callable[[Vector, Indices], Vector],
    gains: Callable[[Vector], Vector],
) -> Vector:
    """Return the minimiser of a function within limits.

    Parameters
    ----------
    limits : Limits
    x : array
        Where to begin; the nearest point within the limits.
    minimum : callable
        Given x and some coefficients, x with these where the function is least, whatever the limits.
    gains : callable
        Given such an x, how much each coefficient promises if it rises, negative if it falls; zero where that is rounding.
    """
    lower, upper = limits.lower, limits.upper
    x = limits.clipped(x)
    free = (lower < x) & (x < upper)
    for _ in range(_MOST_CHANGES + 4 * len(x)):
        at = np.flatnonzero(free)
        target = minimum(x, at)
        beyond = at[(target[at] < lower[at]) | (target[at] > upper[at])]
        if len(beyond):
            ends = np.where(target[beyond] < x[beyond], lower[beyond], upper[beyond])
            reach = (ends - x[beyond]) / (target[beyond] - x[beyond])
            stopped = reach <= reach.min()
            x = limits.clipped(x + float(reach.min()) * (target - x))
            x[beyond[stopped]] = ends[stopped]
            free[beyond[stopped]] = False
            continue
        x, rises = target, gains(target)
        inward = np.where(x <= lower, np.maximum(rises, 0.0), 0.0) + np.where(x >= upper, np.maximum(-rises, 0.0), 0.0)
        inward[free | (lower == upper)] = 0.0
        if not inward.max(initial=0.0) > 0.0:
            break
        free[np.argmax(inward)] = True
    return x


def box_minimum(A: Vector, h: Vector, limits: Limits, x: Vector) -> Vector:
    """Return the minimiser of x'Ax/2 - h'x within limits; the search begins at x."""
    roots = np.sqrt(A.diagonal())

    def minimum(x: Vector, at: Indices) -> Vector:
        held = x.copy()
        held[at] = 0.0
        if len(at):
            held[at] = Definite(A[np.ix_(at, at)]).solve((h - A @ held)[at])
        return held

    def gains(x: Vector) -> Vector:
        falls, hidden = h - A @ x, _EXACT * (np.abs(A) @ np.abs(x) + np.abs(h))
        return np.where(np.abs(falls) <= hidden, 0.0, falls / roots)

    return minimum_within(limits, x, minimum, gains)

"""Compiled kernels of the relaxed constraint: the threshold of its proximal map, and the map of one coordinate.

Importing this module imports numba.
"""

from __future__ import annotations

import numpy as np

from diht.design.kernels import Array, Integer, jit


@jit
def threshold_scale(magnitudes: Array, m: Integer, r: float, theta: float) -> float:
    """Return the theta for which ``clip(magnitudes / theta - r, 0, 1)`` adds up to m; 0 if no more than m of them are positive.

    The sum grows piecewise linearly with t = 1/theta; Newton's method, kept in a bracket, ends on the right piece. `theta`, if
    positive, is where the search begins.
    """
    positive = 0
    largest = 0.0
    for a in magnitudes:
        positive += a > 0.0
        largest = max(largest, a)
    if positive <= m:
        return 0.0
    if m <= 0:
        return np.inf
    t = 1.0 / theta if theta > 0.0 else (1.0 + r) / largest
    low, high = 0.0, np.inf
    for _ in range(300):
        inner, whole, middle = 0.0, 0, 0
        for a in magnitudes:  # without branches, which the processor could not foresee
            z = a * t - r
            between = 0.0 < z < 1.0
            whole += z >= 1.0
            middle += between
            inner += a if between else 0.0
        total = t * inner - r * middle + whole
        if abs(total - m) <= 1e-13 * m:
            break
        if total < m:
            low = t
        else:
            high = t
        new = (m - whole + r * middle) / inner if inner > 0.0 else -1.0
        if not low < new < high:
            new = 0.5 * (low + high) if high < np.inf else 2.0 * t
        if abs(new - t) <= 1e-15 * t:
            break
        t = new
    return 1.0 / t


@jit
def shrink(q: float, shift: float, factor: float) -> float:
    """One coordinate of the proximal map: ``z q / (z + r)`` at ``z = clip(|q|/theta - r, 0, 1)``.

    ``shift`` is r theta and ``factor`` 1/(1 + r).
    """
    a = abs(q)
    return float(np.copysign(max(0.0, min(a - shift, a * factor)), q))


@jit
def level_parents(worth: Array, child: Array, parent: Array, sweeps: Integer, tol: float) -> Array:
    """Return what each child passes on to each parent, so that no child that does keeps more than that parent has.

    Each pair in turn shares what both have evenly, or takes back what was passed on: coordinate descent for the isotonic regression
    of `worth` along the order of the pairs. `tol` is the largest amount that a last sweep moves.
    """
    level, passed = worth.copy(), np.zeros(len(child))
    for _ in range(sweeps):
        moved = 0.0
        for i in range(len(child)):
            c, p = child[i], parent[i]
            amount = max(0.5 * (level[c] - level[p]), -passed[i])
            passed[i] += amount
            level[c] -= amount
            level[p] += amount
            moved = max(moved, abs(amount))
        if moved <= tol:
            break
    return passed


@jit
def fill_parents(level: Array, price: float, order: Array, child: Array, start: Array, parent: Array) -> Array:
    """Return what each child passes on, the same amount to each of its parents: what it has above a price, if they stay below it.

    `child[i]` has the parents from `start[i]` to `start[i + 1]`; `order` says whose turn it is. `level` is overwritten by what all
    have then.
    """
    passed = np.zeros(len(child))
    for i in order:
        c = child[i]
        amount = max(level[c] - price, 0.0)
        for at in range(start[i], start[i + 1]):
            amount = min(amount, max(price - level[parent[at]], 0.0))
        passed[i] = amount
        level[c] -= amount
        for at in range(start[i], start[i + 1]):
            level[parent[at]] += amount
    return passed

"""Local search over supports in compiled code, for a small X: features join, then one leaves and another joins.

As in :mod:`diht.design.kernels`, importing this module imports numba, and a loss enters as the numbers ``(code, mu, low, high)``.
The arguments are tuples of arrays:

    data    XT, a row for each feature, of unit norm and, where there is an intercept, centred; targets, the rows y and s; scalars:
            whether there is an intercept, the relative accuracy of a fit and what a swap gains at least, of the objective; the
            loss; the ridge of each feature
    model   members, the features; Z, their rows of XT; their ridges; x, their coefficients and, behind the last, the intercept;
            u, the margins
    found   the features that gain most by the quadratic along each alone, with minus twice their gains; two lists of the best of
            these, by the objective and by the quadratic where others answer, with their changes; a coefficient of each feature
    room    what a fit works in: the matrix of its equations, three vectors of coefficients, four of samples.

Effort is counted in numbers that are multiplied and added, and in losses, which take as long as twenty of these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from diht.design.kernels import Array, Integer, dot, jit, jit_reassociated
from diht.samples.loss_kernels import sums_along, weigh
from diht.samples.walk_kernels import solve_definite

_DESCENT, _SHORTEST = 1e-4, 1e-6  # share of what a step promises that it must keep, and the shortest step
_HOPE = 5.0  # times what a step promises: more than that a fit is not hoped to fall
_STEPS, _LINE_STEPS = 50, 12  # of Newton's method, and of that along a feature alone
_ROUGHLY = 0.02  # relative accuracy of a coefficient that minimises the objective along a feature alone
_FLAT, _TINY = 1e-14, 1e-300  # of the largest curvature, and where no sample has any: what keeps equations definite
_LOSS = 20.0  # effort of a loss with its derivatives


# ---------------------------------------------------------------------------------------------------------------------
# Sums over the samples


@jit_reassociated
def weighted_dot(a: Array, b: Array, c: Array) -> float:
    """Return the sum of ``a b c``."""
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i] * c[i]
    return total


@jit_reassociated
def slope_and_curvature(x: Array, slopes: Array, curvatures: Array) -> tuple[float, float]:
    """Return the sums of the slopes times x, and of the curvatures times its squares."""
    g = h = 0.0
    for i in range(x.size):
        g += slopes[i] * x[i]
        h += curvatures[i] * x[i] * x[i]
    return g, h


@jit
def combined(m: Integer, weights: Array, base: float, Z: Array, out: Array) -> None:
    """Write the base and the sum of the first m rows of Z, with weights."""
    for i in range(out.size):
        out[i] = base
    for j in range(m):
        for i in range(out.size):
            out[i] += weights[j] * Z[j, i]


@jit
def penalty(m: Integer, ridges: Array, x: Array) -> float:
    """Return half of the weighted squares of the first m coefficients."""
    total = 0.0
    for j in range(m):
        total += ridges[j] * x[j] * x[j]
    return 0.5 * total


# ---------------------------------------------------------------------------------------------------------------------
# Fits


@jit
def newton_direction(m: Integer, data: Any, model: Any, room: Any) -> float:
    """Write Newton's step for the first m features and the intercept; return what it promises, NaN where there is none."""
    _, Z, ridges, x, _ = model
    H, right, descent, _, slopes, curvatures, _, _ = room
    total, largest, slope = 0.0, 0.0, 0.0
    for i in range(slopes.size):
        total, largest, slope = total + curvatures[i], max(largest, curvatures[i]), slope + slopes[i]
    for j in range(m):
        right[j] = -dot(Z[j], slopes, slopes.size) - ridges[j] * x[j]
        for i in range(j + 1):
            H[j, i] = weighted_dot(Z[j], Z[i], curvatures)
        H[j, j] += ridges[j] + _FLAT * largest
        H[m, j] = dot(Z[j], curvatures, slopes.size)
    H[m, m], right[m] = total + _FLAT * largest + _TINY, -slope
    n = m + int(data[2][0])
    for j in range(n):
        descent[j] = right[j]
    solved = solve_definite(H, right[:n])
    if n == m:
        right[m] = 0.0
    return dot(descent, right, n) if solved else np.nan


@jit
def fit_members(m: Integer, target: float, data: Any, model: Any, room: Any) -> tuple[float, float]:
    """Minimise over the coefficients of the first m features and the intercept; return the objective and the effort.

    Given up where what a step promises does not lead below the target.
    """
    _, Z, ridges, x, u = model
    _, right, _, step, slopes, curvatures, moved, along = room
    combined(m, x, x[m], Z, u)
    now, effort = weigh(u, data[1][0], data[1][1], data[3], slopes, curvatures) + penalty(m, ridges, x), 0.0
    for _ in range(_STEPS):
        promise = newton_direction(m, data, model, room)
        effort += u.size * (0.5 * m * m + 3.0 * m + 2.0 * _LOSS)
        if not promise > data[2][1] * abs(now) or now - _HOPE * promise > target:
            break
        combined(m, right, right[m], Z, along)
        size, new = 1.0, np.inf
        while size > _SHORTEST:
            for j in range(m + 1):
                step[j] = x[j] + size * right[j]
            for i in range(u.size):
                moved[i] = u[i] + size * along[i]
            new = weigh(moved, data[1][0], data[1][1], data[3], slopes, curvatures) + penalty(m, ridges, step)
            if new <= now - _DESCENT * size * promise:
                break
            size *= 0.5
        if not new < now:
            break
        now = new
        for j in range(m + 1):
            x[j] = step[j]
        for i in range(u.size):
            u[i] = moved[i]
    return now, effort


@jit
def least_along(j: Integer, g: float, h: float, base: float, u: Array, data: Any) -> tuple[float, float, float]:
    """Minimise the objective along a feature alone, roughly: how it changes, the coefficient, the effort.

    The slope at first is g, the curvature h, the loss of all samples the base.
    """
    ridge, effort = data[4][j], 0.0
    bottom, top = min(-g / ridge, 0.0), max(-g / ridge, 0.0)
    t, least, kept = -g / h, 0.0, 0.0
    for _ in range(_LINE_STEPS):
        total, slope, curvature = sums_along(t, data[0][j], u, data[1][0], data[1][1], data[3])
        change, slope, curvature = total - base + 0.5 * ridge * t * t, slope + ridge * t, curvature + ridge
        effort += _LOSS * u.size
        if change < least:
            least, kept = change, t
        if slope < 0.0:
            bottom = t
        else:
            top = t
        new = t - slope / curvature
        new = new if bottom < new < top else 0.5 * (bottom + top)
        if not abs(new - t) > _ROUGHLY * abs(t):
            break
        t = new
    return least, kept, effort


# ---------------------------------------------------------------------------------------------------------------------
# Features that join and leave


@jit
def insert(j: Integer, value: float, n: Integer, features: Array, values: Array) -> None:
    """Insert a feature into a list of n in the order of their values, whose last falls out where it is full."""
    at = min(n, features.size - 1)
    if n == features.size and values[at] <= value:
        return
    while at > 0 and values[at - 1] > value:
        features[at], values[at] = features[at - 1], values[at - 1]
        at -= 1
    features[at], values[at] = j, value


@jit
def curvature_beside(j: Integer, m: Integer, h: float, data: Any, model: Any, room: Any) -> float:
    """Return the curvature along a feature where the first m members answer to it; alone it is h.

    The factor of their Hessian is what the last fit has left.
    """
    XT, Z = data[0], model[1]
    H, v, curvatures = room[0], room[3], room[5]
    for i in range(m + int(data[2][0])):
        c = weighted_dot(Z[i], XT[j], curvatures) if i < m else dot(XT[j], curvatures, curvatures.size)
        v[i] = (c - dot(H[i], v, i)) / H[i, i]
        h -= v[i] * v[i]
    return float(max(h, data[4][j]))


@jit
def find_promising(m: Integer, barred: Array, data: Any, model: Any, found: Any, room: Any) -> tuple[Integer, float]:
    """Find the features that gain most by the quadratic along each alone, and the best of these in two ways.

    By the objective's least along each alone, and by the quadratic where the first m members answer. Returns how many there are
    in each of the two lists, and the effort.
    """
    XT, _, _, _, ridges = data
    near, promises, features, values, t = found
    u, slopes, curvatures = model[4], room[4], room[5]
    base, n, effort = weigh(u, data[1][0], data[1][1], data[3], slopes, curvatures), 0, float(XT.size)
    for j in range(len(XT)):
        if not barred[j]:
            g, h = slope_and_curvature(XT[j], slopes, curvatures)
            promise = -g * g / (h + ridges[j])
            if n < near.size or promise < promises[n - 1]:
                insert(j, promise, n, near, promises)
                n = min(n + 1, near.size)
    for i in range(n):
        j = near[i]
        g, h = slope_and_curvature(XT[j], slopes, curvatures)
        h += ridges[j]
        change, t[j], work = least_along(j, g, h, base, u, data)
        count = min(i, features.shape[1])
        insert(j, change, count, features[0], values[0])
        insert(j, -g * g / curvature_beside(j, m, h, data, model, room), count, features[1], values[1])
        effort += work + float(m * u.size)
    return min(n, features.shape[1]), effort


@jit
def put(m: Integer, j: Integer, t: float, b: float, data: Any, model: Any) -> None:
    """Put a feature with a coefficient into a place, and the intercept behind it."""
    members, Z, ridges, x, _ = model
    members[m], ridges[m], x[m], x[m + 1] = j, data[4][j], t, b
    for i in range(Z.shape[1]):
        Z[m, i] = data[0][j, i]


@jit
def join(
    m: Integer, n: Integer, target: float, first: bool, data: Any, model: Any, found: Any, room: Any
) -> tuple[float, float]:
    """Fit the first m members with each of the features found, n in each list; the best, or the first below the target, joins.

    Returns the objective, infinite where none is below the target, and the effort.
    """
    features, t, x = found[2], found[4], model[3]
    without, kept = x.copy(), x.copy()
    best, joins, effort = target, -1, 0.0
    for at in range(2 * n):
        j = features[at % 2, at // 2]
        seen = False
        for before in range(at):
            seen = seen or features[before % 2, before // 2] == j
        if seen:
            continue
        for i in range(m):
            x[i] = without[i]
        put(m, j, t[j], without[m], data, model)
        new, work = fit_members(m + 1, best, data, model, room)
        effort += work
        if new < best:
            best, joins = new, j
            for i in range(m + 2):
                kept[i] = x[i]
            if first:
                break
    if joins < 0:
        return np.inf, effort
    put(m, joins, kept[m], kept[m + 1], data, model)
    for i in range(m):
        x[i] = kept[i]
    return best, effort


@jit
def grow(m: Integer, barred: Array, data: Any, model: Any, found: Any, room: Any) -> tuple[float, float]:
    """Add the feature that gains most until all places are taken; return the objective and the effort."""
    members = model[0]
    objective, effort = fit_members(m, np.inf, data, model, room)
    while m < members.size:
        n, work = find_promising(m, barred, data, model, found, room)
        objective, fitting = join(m, n, np.inf, False, data, model, found, room)
        effort += work + fitting
        if objective == np.inf:
            break
        barred[members[m]] = True
        m += 1
        fit_members(m, np.inf, data, model, room)  # for the margins and the factor of the Hessian
    return objective, effort


@jit
def rotate(fixed: Integer, data: Any, model: Any) -> None:
    """Move the first member that may leave to the last place."""
    members, Z, ridges, x, _ = model
    k, out, t = members.size, members[fixed], x[fixed]
    for j in range(fixed, k - 1):
        members[j], ridges[j], x[j] = members[j + 1], ridges[j + 1], x[j + 1]
        for i in range(Z.shape[1]):
            Z[j, i] = Z[j + 1, i]
    put(k - 1, out, t, x[k], data, model)


@jit
def swap_last(objective: float, barred: Array, data: Any, model: Any, found: Any, room: Any) -> tuple[float, float]:
    """Exchange the last member for another where that lowers the objective; return it and the effort."""
    members, _, _, x, _ = model
    k, out, before = members.size, members[-1], x.copy()
    x[k - 1] = x[k]
    _, effort = fit_members(k - 1, np.inf, data, model, room)
    n, work = find_promising(k - 1, barred, data, model, found, room)
    target = objective - data[2][2] * abs(objective)
    new, fitting = join(k - 1, n, target, True, data, model, found, room)
    if new < target:
        barred[out], barred[members[k - 1]] = False, True
        return new, effort + work + fitting
    put(k - 1, out, before[k - 1], before[k], data, model)
    for i in range(k + 1):
        x[i] = before[i]
    return objective, effort + work + fitting


@jit
def descend(
    m: Integer, fixed: Integer, most: float, masks: Any, data: Any, model: Any, found: Any, room: Any
) -> tuple[float, float]:
    """Grow a model of m members without the features that are closed, then swap with all but those that are barred.

    These are the masks. The first ``fixed`` members stay; the others leave in turn until none that leaves lowers the objective, or
    the effort reaches ``most``. Returns the objective and the effort.
    """
    members, (closed, barred) = model[0], masks
    objective, effort = grow(m, closed, data, model, found, room)
    for j in members:
        barred[j] = True
    vain = 0
    while vain < members.size - fixed and effort < most:
        rotate(fixed, data, model)
        new, work = swap_last(objective, barred, data, model, found, room)
        effort += work
        vain = 0 if new < objective else vain + 1
        objective = new
    return objective, effort

"""Compiled walks along single columns: the dual points of `diht.search.joining`, and their bounds.

As in :mod:`diht.design.kernels`, importing this module imports numba, and a loss enters as the numbers ``(code, mu, low, high)``.

The rows of Y, the columns of a support and one of ones for an intercept, come as the five arrays ``(first, second, third,
lists, listed)``: a dense matrix of those that are distinct and four that are not read, or a CSR of what differs from the row
``origin``, where ``lists[listed[j]:listed[j + 1]]`` are the rows that differ in column j. Row ``classes[i]`` is that of sample i.
The other arrays are

    samples    the rows u, alpha, c, l*(alpha), y and s
    equations  the matrices inverse and K
    vectors    the rows ridge, pull, the largest differences from the row ``origin``, on the support g and lam w, which add up to
               the slope that a fit has left, and the root of the diagonal of K
    scalars    base, lam, the reach, the imbalance that is rounding, the number of features of the support, and the size of an
               intercept, which is what an imbalance costs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from diht.design.kernels import LOGISTIC, Array, Integer, clip, dot, dual_step, ends_of, jit, jit_reassociated
from diht.samples.loss_kernels import logistic_at, piece_at, slopes_and_curvatures, sum_of_losses, sums_along

_OUTSIDE = 1e-14  # relative distance to F that is rounding
_ROUNDING = 1e-14  # share of the terms of a bound that rounding may have added
_NEAR = 0.8  # share of the reach up to which a bound on the answer will do
_FAR = 0.5  # share of the reach from which on a row is looked at as if it had an entry
_LONGEST = 4.0  # what a step of Newton's method moves a margin of the logistic loss at most
_AT_BORDER = 1e-300  # a reach for which the weight is the curvature, but at the border of F
_FARTHEST = 4.0  # times the last coefficient: the next one at most
_LINE_STEPS, _FLAT = 20, 1e-3  # of a search along a direction, and the share of the slope at its beginning that is none
_DRAWN = 1e-11  # slope of D in a sample at the border of F, relative to its margin, that is rounding
_ROUGHLY = 0.02  # relative accuracy of a coefficient that minimises the objective along a column alone


# ---------------------------------------------------------------------------------------------------------------------
# One sample


@jit
def conjugate_at(a: float, y: float, loss: Array) -> float:
    """Return ``l*(a)``, for an ``a`` in F but for rounding; else infinity."""
    low, high = ends_of(y, int(loss[0]), loss[2], loss[3])
    inside = clip(a, low, high)
    if not abs(a - inside) <= _OUTSIDE * (1.0 + abs(a)):
        return math.inf
    if loss[0] != LOGISTIC:
        return float(inside * (y + 0.5 * loss[1] * inside))
    p = -inside if y > 0.0 else inside
    entropy = p * math.log(p) if p > 0.0 else 0.0
    return entropy + (1.0 - p) * math.log1p(-p) if p < 1.0 else entropy


@jit
def weight_at(a: float, y: float, reach: float, loss: Array) -> float:
    """Return the weight c of a sample at the slope ``a = l'(u)``; see `diht.search.joining`."""
    low, high = ends_of(y, int(loss[0]), loss[2], loss[3])
    if loss[0] == LOGISTIC:
        return float((a - low) * (high - a))
    curvature = 1.0 / loss[1]
    return float(curvature if reach == np.inf else min(curvature, min(a - low, high - a) / reach))


@jit
def beyond(a: float, y: float, step: float, loss: Array) -> float:
    """Return how many times the way from a point of F to its border a step is."""
    low, high = ends_of(y, int(loss[0]), loss[2], loss[3])
    length = abs(step)
    if length <= _OUTSIDE * (1.0 + abs(a)):
        return 0.0
    return float(length / max(high - a if step > 0.0 else a - low, 0.0))


@jit
def factor(epsilon: float, reach: float, loss: Array) -> float:
    """Return kappa for the largest change of a margin; infinite beyond the reach."""
    if loss[0] != LOGISTIC:
        return 1.0 if epsilon <= reach else np.inf
    if not epsilon < reach:
        return np.inf
    e = clip(epsilon, 1e-3, 1.0 - 1e-9)  # below, the difference of the terms would be rounding
    return 2.0 * (e + (1.0 - e) * math.log1p(-e)) / e**2


# ---------------------------------------------------------------------------------------------------------------------
# Rows of Y


@jit_reassociated
def dense_dot(A: Array, i: Integer, q: Array) -> float:
    """Product of a row of a dense matrix with q."""
    total = 0.0
    for j in range(q.size):
        total += A[i, j] * q[j]
    return float(total)


@jit
def row_dot(first: Array, second: Array, third: Array, i: Integer, q: Array, common: float) -> float:
    """Product of row i with q; ``common`` is that of the row ``origin``."""
    if first.ndim == 2:  # decided when this is compiled
        return dense_dot(first, i, q)
    total = common
    for p in range(third[i], third[i + 1]):
        total += first[p] * q[second[p]]
    return float(total)


@jit
def row_add(first: Array, second: Array, third: Array, i: Integer, c: float, r: Array) -> None:
    """Add c times row i, less ``origin``."""
    if first.ndim == 2:
        for j in range(r.size):
            r[j] += c * first[i, j]
    else:
        for p in range(third[i], third[i + 1]):
            r[second[p]] += c * first[p]


@jit
def row_outer(first: Array, second: Array, third: Array, i: Integer, c: float, H: Array) -> None:
    """Add c times the lower triangle of the product of row i, less ``origin``, with itself."""
    if first.ndim == 2:
        for j in range(first.shape[1]):
            scaled = c * first[i, j]
            for m in range(j + 1):
                H[j, m] += scaled * first[i, m]
    else:
        for p in range(third[i], third[i + 1]):
            scaled = c * first[p]
            for m in range(third[i], p + 1):
                H[second[p], second[m]] += scaled * first[m]


@jit
def farthest(
    first: Array,
    second: Array,
    third: Array,
    lists: Array,
    listed: Array,
    size: Array,
    q: Array,
    common: float,
    near: float,
) -> float:
    """Return what the product of a row with q is at most, in size: exactly where that is more than ``near``.

    What columns contribute that are not looked at is bounded by the largest differences from the row ``origin``.
    """
    found = 0.0
    if first.ndim == 2:
        for i in range(len(first)):
            found = max(found, abs(dense_dot(first, i, q)))
        return found
    rest = abs(common)
    for j in range(q.size):
        rest += size[j] * abs(q[j])
    seen = np.zeros(q.size, dtype=np.bool_)
    for _ in range(q.size):
        if rest <= near:
            break
        most, at = -1.0, 0
        for j in range(q.size):
            if not seen[j] and size[j] * abs(q[j]) > most:
                most, at = size[j] * abs(q[j]), j
        seen[at] = True
        rest -= most
        for p in range(listed[at], listed[at + 1]):
            found = max(found, abs(row_dot(first, second, third, lists[p], q, common)))
    return max(found, rest)


# ---------------------------------------------------------------------------------------------------------------------
# Dual points


@jit
def value_at(
    at: Array,
    whole: bool,
    steps: Array,
    epsilon: Array,
    share: float,
    extent: float,
    q: Array,
    r: Array,
    Kq: Array,
    new: float,
    model: Any,
) -> float:
    """Return D where the samples ``at`` some rows make steps, all others answer by ``c epsilon``, and a share of all that is taken.

    ``extent`` is the largest epsilon of the others, ``r = Y'(s (step - c epsilon))`` over the rows, ``new`` the slope of the
    feature that joins; ``whole`` says that there are no others. Minus infinity where the point is not feasible.
    """
    samples, vectors, scalars, loss = model[0], model[2], model[3], model[4]
    base, lam, reach, rounding, k = scalars[0], scalars[1], scalars[2], scalars[3], np.int64(scalars[4])
    kappa = 0.0 if whole else factor(share * extent, reach, loss)
    if not (share > 0.0 and kappa < np.inf):
        return -np.inf
    conjugate = 0.0
    for m in range(len(at)):
        i = at[m]
        rise = conjugate_at(samples[1, i] + share * steps[m], samples[4, i], loss) - samples[3, i]
        if not whole:
            moved = share * epsilon[m]
            rise -= samples[2, i] * moved * (samples[0, i] + 0.5 * kappa * moved)
        conjugate += samples[5, i] * rise
    if not whole:
        for j in range(q.size):
            conjugate += share * q[j] * (vectors[1, j] + 0.5 * kappa * share * Kq[j])
    squares, held, answered, pulled = new**2, 0.0, 0.0, 0.0
    for j in range(k):
        change = share * (r[j] + Kq[j])
        squares += change * (2.0 * vectors[3, j] + change)
        held += vectors[5, j] * abs(vectors[3, j] + change) / lam
    for j in range(q.size):
        answered += share * vectors[5, j] * abs(q[j])
        pulled += share * abs(q[j] * vectors[1, j])
    rounding_of_answer = _ROUNDING * (answered * (held + answered) + pulled)
    imbalance = abs(share * (r[k] + Kq[k])) if q.size > k else 0.0
    value = base - conjugate - squares / (2.0 * lam) - rounding_of_answer - imbalance * scalars[5]
    return value if np.isfinite(value) and imbalance <= rounding else -np.inf


@jit
def answer(equations: Array, ridge: Array, r: Array, q: Array, spare: Array, refined: bool) -> None:
    """Write ``-inverse r``, refined once or not."""
    n = r.size
    for j in range(n):
        q[j] = -dense_dot(equations[0], j, r)
    if not refined:
        return
    for j in range(n):
        spare[j] = r[j] + dense_dot(equations[1], j, q) + ridge[j] * q[j]
    for j in range(n):
        q[j] -= dense_dot(equations[0], j, spare)


@jit
def dual_point(
    at: Array, x: Array, whole: bool, t: float, g_own: float, Y: Any, model: Any, entries: Array, spare: Array
) -> tuple[float, float]:
    """Return D at the dual point of a coefficient t, and the slope of P along the column there, as D has it.

    ``x`` are the entries of the column, in the rows ``at``; ``entries`` and ``spare`` are written to.
    """
    samples, equations, vectors, scalars, loss, origin, classes = model
    lam, reach, n = scalars[1], scalars[2], origin.size
    r, q, Kq = spare[0], spare[1], spare[2]
    total = 0.0
    r[:] = 0.0
    for p in range(len(at)):
        i = at[p]
        a = dual_step(3, 0.0, samples[0, i] + t * x[p], samples[4, i], 0.0, int(loss[0]), loss[1], loss[2], loss[3])
        delta = a - samples[1, i]
        entries[0, p], entries[1, p] = delta, weight_at(a, samples[4, i], reach, loss) - samples[2, i]
        change = samples[5, i] * delta
        total += change
        row_add(Y[0], Y[1], Y[2], classes[i], change, r)
    for j in range(n):
        r[j] += total * origin[j]
    answer(equations, vectors[0], r, q, Kq, False)
    # The rows of the entries answer by their curvature there.
    common = dot(origin, q, n)
    total = 0.0
    r[:] = 0.0
    for p in range(len(at)):
        i = at[p]
        epsilon = row_dot(Y[0], Y[1], Y[2], classes[i], q, common)
        delta = entries[0, p] + entries[1, p] * clip(epsilon, -reach, reach)
        entries[0, p] = delta
        change = samples[5, i] * delta
        total += change
        row_add(Y[0], Y[1], Y[2], classes[i], change, r)
    for j in range(n):
        r[j] += total * origin[j]
    answer(equations, vectors[0], r, q, Kq, True)
    common = dot(origin, q, n)
    farthest_step, new = 1.0, 0.0
    for p in range(len(at)):
        i = at[p]
        epsilon = row_dot(Y[0], Y[1], Y[2], classes[i], q, common)
        step = entries[0, p] + samples[2, i] * epsilon
        entries[0, p], entries[1, p] = step, epsilon
        new += samples[5, i] * x[p] * step
        farthest_step = max(farthest_step, beyond(samples[1, i], samples[4, i], step, loss))
    share = 1.0 / farthest_step
    extent = 0.0 if whole else farthest(Y[0], Y[1], Y[2], Y[3], Y[4], vectors[2], q, common, _NEAR * reach / share)
    for j in range(n):
        Kq[j] = dense_dot(equations[1], j, q)
    new = g_own + share * new
    return value_at(at, whole, entries[0], entries[1], share, extent, q, r, Kq, new, model), new + lam * t


@jit
def walk_bounds(
    x: Array,
    rows: Array,
    starts: Array,
    whole: bool,
    columns: Array,
    g_own: Array,
    t: Array,
    bounds: Array,
    target: float,
    rounds: Integer,
    Y: Any,
    model: Any,
) -> Integer:
    """Try a few coefficients for each of some columns, each where the slopes of the last ones lead, until the target is reached.

    ``t`` holds guesses, 0 for none, and takes the coefficients of the best dual points, ``bounds`` their bounds. The columns'
    entries are ``x[starts[j]:starts[j + 1]]``, in the rows of the same places or, where columns are whole, in all; ``g_own`` are
    the slopes where all coefficients are zero. Returns how many entries were seen.
    """
    entries, spare = np.empty((2, samples_of(model))), np.empty((3, model[5].size))
    lam, seen = model[3][1], 0
    for column in range(columns.size):
        j = columns[column]
        begin, end = starts[j], starts[j + 1]
        own, at = x[begin:end], rows if whole else rows[begin:end]
        now, last, slope_last = t[j], 0.0, g_own[j]
        if now == 0.0:
            now = -slope_last / curvature_along(own, at, lam, model[0])
        bottom = 0.0 if slope_last < 0.0 else -np.inf
        top = 0.0 if slope_last > 0.0 else np.inf
        best, kept = -np.inf, now
        for _ in range(rounds):
            value, slope = dual_point(at, own, whole, now, g_own[j], Y, model, entries, spare)
            seen += end - begin
            if value > best:
                best, kept = value, now
            if best >= target or not np.isfinite(slope):
                break
            if slope < 0.0:
                bottom = now
            elif slope > 0.0:
                top = now
            new = now - slope * (now - last) / (slope - slope_last)
            least, most = max(bottom, -_FARTHEST * abs(now)), min(top, _FARTHEST * abs(now))
            last, slope_last = now, slope
            now = new if least < new < most else 0.5 * (least + most)
        bounds[j], t[j] = best, kept
    return seen


@jit
def samples_of(model: Any) -> Integer:
    """Return the number of samples."""
    return model[6].size


@jit
def curvature_along(x: Array, at: Array, lam: float, samples: Array) -> float:
    """Return the curvature of the objective along a column."""
    total = lam
    for p in range(len(at)):
        total += samples[5, at[p]] * samples[2, at[p]] * x[p] * x[p]
    return float(total)


@jit_reassociated
def slope_along(x: Array, at: Array, t: float, model: Any) -> tuple[float, float, float]:
    """Return how the objective changes by a coefficient t of a column alone, its slope there and its curvature."""
    (u, alpha, _, conjugate, y, s), lam, loss = model[0], model[3][1], model[4]
    change, slope, curvature = 0.5 * lam * t * t, lam * t, lam
    if loss[0] == LOGISTIC:
        for p in range(len(at)):
            i = np.uint64(at[p])
            value, a, c = logistic_at(u[i] + t * x[p], y[i])
            change += s[i] * (value - u[i] * alpha[i] + conjugate[i])
            slope += s[i] * x[p] * a
            curvature += s[i] * x[p] * x[p] * c
    else:
        code, mu, low, high = int(loss[0]), loss[1], loss[2], loss[3]
        for p in range(len(at)):
            i = np.uint64(at[p])
            value, a, c = piece_at(u[i] + t * x[p], y[i], code, mu, low, high)
            change += s[i] * (value - u[i] * alpha[i] + conjugate[i])
            slope += s[i] * x[p] * a
            curvature += s[i] * x[p] * x[p] * c
    return change, slope, curvature


@jit
def least_along(
    x: Array,
    rows: Array,
    starts: Array,
    whole: bool,
    columns: Array,
    g_own: Array,
    t: Array,
    changes: Array,
    rounds: Integer,
    model: Any,
) -> Integer:
    """Minimise the objective along each of some columns alone, roughly; the arguments are those of :func:`walk_bounds`.

    ``t`` takes the coefficients, ``changes`` how the objective changes by them. Returns how many entries were seen.
    """
    lam, seen = model[3][1], 0
    for column in range(columns.size):
        j = columns[column]
        begin, end = starts[j], starts[j + 1]
        own, at = x[begin:end], rows if whole else rows[begin:end]
        bottom, top = min(-g_own[j] / lam, 0.0), max(-g_own[j] / lam, 0.0)
        now, least, kept = -g_own[j] / curvature_along(own, at, lam, model[0]), 0.0, 0.0
        for _ in range(rounds):
            change, slope, curvature = slope_along(own, at, now, model)
            seen += end - begin
            if change < least:
                least, kept = change, now
            if slope < 0.0:
                bottom = now
            else:
                top = now
            new = now - slope / curvature
            new = new if bottom < new < top else 0.5 * (bottom + top)
            if not abs(new - now) > _ROUGHLY * abs(now):
                break
            now = new
        changes[j], t[j] = least, kept
    return seen


# ---------------------------------------------------------------------------------------------------------------------
# Newton's method


@jit
def solve_definite(H: Array, right: Array) -> bool:
    """Solve ``H x = right`` in place, by the lower triangle of H, which is overwritten; False where a pivot is not positive."""
    n = right.size
    for j in range(n):
        H[j, j] -= dot(H[j], H[j], j)
        if not H[j, j] > 0.0:
            return False
        H[j, j] = math.sqrt(H[j, j])
        for i in range(j + 1, n):
            H[i, j] = (H[i, j] - dot(H[i], H[j], j)) / H[j, j]
    for i in range(n):
        right[i] = (right[i] - dot(H[i], right, i)) / H[i, i]
    for i in range(n - 1, -1, -1):
        right[i] /= H[i, i]
        for j in range(i):
            right[j] -= H[i, j] * right[i]
    return True


@jit
def list_rows(at: Array, classes: Array, place: Array, listed: Array, n: Integer) -> Integer:
    """Add the rows of Y that some samples have to a list of n, each once, and note their places; return how many it then has."""
    for i in at:
        row = classes[i]
        if place[row] < 0:
            place[row], listed[n] = n, row
            n += 1
    return n


@jit
def newton_step(
    at: Array,
    x: Array,
    t: float,
    g_own: float,
    Y: Any,
    model: Any,
    rows: Any,
    q: Array,
    entries: Array,
    H: Array,
    right: Array,
    spare: Array,
    descent: Array,
) -> bool:
    """Write a step of Newton's method for the coefficients q of Y and t; False where its equations cannot be solved.

    The samples ``at`` some rows have their loss, all others a quadratic of curvature c. What they add up to is summed by the rows
    of Y first, ``rows``. ``entries`` takes l' - alpha, the curvature, the change of the margin, the margin and the target of each
    sample, ``descent`` minus the gradient.
    """
    samples, equations, vectors, scalars, loss, origin, classes = model
    place, listed, sums = rows
    n, lam, count = q.size, scalars[1], len(at)
    r, cross, bent = spare[0], spare[1], spare[2]
    r[:], cross[:], bent[:], H[:] = 0.0, 0.0, 0.0, 0.0
    total, cross_total, bent_total = 0.0, 0.0, 0.0
    common, slope, own = dot(origin, q, n), g_own + lam * t, lam
    for p in range(len(listed)):
        sums[0, p] = row_dot(Y[0], Y[1], Y[2], listed[p], q, common)
        sums[1, p], sums[2, p], sums[3, p] = 0.0, 0.0, 0.0
    for m in range(count):
        i = at[m]
        entries[2, m] = sums[0, place[classes[i]]]
        entries[3, m], entries[4, m] = samples[0, i] + t * x[m] + entries[2, m], samples[4, i]
    slopes_and_curvatures(entries[3, :count], entries[4, :count], loss, entries[0], entries[1])
    for m in range(count):
        i, xi, p = at[m], x[m], place[classes[at[m]]]
        s, c = samples[5, i], samples[2, i]
        entries[0, m] -= samples[1, i]
        delta, curved = entries[0, m], entries[1, m]
        sums[1, p] += s * (delta - c * entries[2, m])
        sums[2, p] += s * (curved - c)
        sums[3, p] += s * xi * curved
        slope += s * xi * delta
        own += s * xi * xi * curved
    for p in range(len(listed)):
        i = listed[p]
        total, bent_total, cross_total = total + sums[1, p], bent_total + sums[2, p], cross_total + sums[3, p]
        row_add(Y[0], Y[1], Y[2], i, sums[1, p], r)
        if sums[2, p] != 0.0:
            row_add(Y[0], Y[1], Y[2], i, sums[2, p], bent)
            row_outer(Y[0], Y[1], Y[2], i, sums[2, p], H)
        if sums[3, p] != 0.0:
            row_add(Y[0], Y[1], Y[2], i, sums[3, p], cross)
    for j in range(n):
        for m in range(j + 1):
            H[j, m] += (
                equations[1, j, m] + bent_total * origin[j] * origin[m] + origin[j] * bent[m] + bent[j] * origin[m]
            )
        H[j, j] += vectors[0, j]
        H[n, j] = cross[j] + cross_total * origin[j]
        left = vectors[3, j] + vectors[4, j]
        right[j] = -(left + r[j] + total * origin[j] + dense_dot(equations[1], j, q) + vectors[0, j] * q[j])
    H[n, n], right[n] = own, -slope
    descent[:] = right
    return solve_definite(H, right)


@jit
def answers_of_rows(taken: Array, q: Array, common: float, Y: Any, reach: float) -> tuple[float, Integer]:
    """Return the largest change of a margin in the rows of Y that are not taken, and how many of these move far."""
    extent, far = 0.0, 0
    for i in range(taken.size):
        if not taken[i]:
            moved = abs(row_dot(Y[0], Y[1], Y[2], i, q, common))
            extent = max(extent, moved)
            far += moved > _FAR * reach
    return extent, far


@jit
def take_far_rows(count: Integer, q: Array, Y: Any, model: Any, members: Any, room: Any) -> Integer:
    """Add the samples of the rows of Y whose margins move far to the first ones of ``at``; return how many these are then."""
    at, own, held, taken = room
    common, far = dot(model[5], q, q.size), _FAR * model[3][2]
    samples, starts = members
    for i in range(taken.size):
        if not taken[i] and abs(row_dot(Y[0], Y[1], Y[2], i, q, common)) > far:
            taken[i] = True
            for p in range(starts[i], starts[i + 1]):
                if not held[samples[p]]:
                    held[samples[p]] = True
                    at[count], own[count] = samples[p], 0.0
                    count += 1
    return count


@jit
def point_of_step(
    at: Array,
    x: Array,
    t: float,
    g_own: float,
    Y: Any,
    model: Any,
    rows: Any,
    taken: Array,
    q: Array,
    entries: Array,
    spare: Array,
) -> tuple[float, float, Integer]:
    """Return D at the dual point of a step of Newton's method, how far that moves a margin, and how many other rows move far.

    The step has led to the coefficients q, by t along the column. The other arguments are those of :func:`newton_step`; the rows
    of Y that are not ``taken`` are the others.
    """
    samples, equations, _, scalars, loss, origin, classes = model
    place, listed, sums = rows
    n, whole = q.size, len(at) == samples_of(model)
    common, total, farthest_step, new, length = dot(origin, q, n), 0.0, 1.0, 0.0, 0.0
    r, Kq = spare[0], spare[1]
    r[:] = 0.0
    for p in range(len(listed)):
        sums[0, p], sums[1, p] = row_dot(Y[0], Y[1], Y[2], listed[p], q, common), 0.0
    for m in range(len(at)):
        i, p = at[m], place[classes[at[m]]]
        epsilon = sums[0, p]
        moved = epsilon - entries[2, m] + t * x[m]
        step = entries[0, m] + entries[1, m] * moved
        entries[0, m], entries[2, m] = step, epsilon
        length = max(length, abs(moved))
        sums[1, p] += samples[5, i] * (step - samples[2, i] * epsilon)
        new += samples[5, i] * x[m] * step
        farthest_step = max(farthest_step, beyond(samples[1, i], samples[4, i], step, loss))
    for p in range(len(listed)):
        total += sums[1, p]
        row_add(Y[0], Y[1], Y[2], listed[p], sums[1, p], r)
    for m in range(n):
        r[m] += total * origin[m]
        Kq[m] = dense_dot(equations[1], m, q)
    extent, far = 0.0, 0
    if not whole and scalars[2] < np.inf:
        extent, far = answers_of_rows(taken, q, common, Y, scalars[2])
    share = 1.0 / farthest_step
    new = g_own + share * new
    return value_at(at, whole, entries[0], entries[2], share, extent, q, r, Kq, new, model), length, far


@jit
def newton_bounds(
    x: Array,
    rows: Array,
    starts: Array,
    whole: bool,
    columns: Array,
    g_own: Array,
    t: Array,
    bounds: Array,
    target: float,
    rounds: Integer,
    everywhere: bool,
    Y: Any,
    members: Array,
    membered: Array,
    model: Any,
) -> Integer:
    """Follow Newton's method for each of some columns, until the target is reached, as :func:`walk_bounds` does.

    The rows of the entries have their loss, and so have those whose margins move far in answer, or all rows; the others have its
    quadratic. The dual point of a step is l' at its beginning plus what the curvature makes of it; with the logistic loss no margin
    follows it farther than a few units. ``members`` are the samples of the rows of Y.
    """
    n, n_samples, n_rows = model[5].size, samples_of(model), membered.size - 1
    q, right, spare, H = np.empty(n), np.empty(n + 1), np.empty((3, n)), np.empty((n + 1, n + 1))
    descent = np.empty(n + 1)
    entries, at, own = np.empty((5, n_samples)), np.empty(n_samples, dtype=np.int64), np.empty(n_samples)
    held, taken = np.empty(n_samples, dtype=np.bool_), np.empty(n_rows, dtype=np.bool_)
    place, listed, sums = np.empty(n_rows, dtype=np.int64), np.empty(n_rows, dtype=np.int64), np.empty((4, n_rows))
    seen = 0
    for column in range(columns.size):
        j = columns[column]
        begin, end = starts[j], starts[j + 1]
        count = end - begin
        held[:], taken[:], place[:], q[:] = False, False, -1, 0.0
        for p in range(count):
            at[p], own[p] = p if whole else rows[begin + p], x[begin + p]
            held[at[p]] = True
        if everywhere:
            for i in range(n_samples):
                if not held[i]:
                    at[count], own[count] = i, 0.0
                    count += 1
        now, best, n_listed, known = t[j], -np.inf, 0, 0
        for _ in range(rounds):
            seen += count
            n_listed, known = list_rows(at[known:count], model[6], place, listed, n_listed), count
            of, here, ours = (place, listed[:n_listed], sums), at[:count], own[:count]
            if not newton_step(here, ours, now, g_own[j], Y, model, of, q, entries, H, right, spare, descent):
                break
            for m in range(n):
                q[m] += right[m]
            value, length, far = point_of_step(here, ours, right[n], g_own[j], Y, model, of, taken, q, entries, spare)
            best = max(best, value)
            if best >= target or not np.isfinite(length):
                break
            share = _LONGEST / length if model[4][0] == LOGISTIC and length > _LONGEST else 1.0
            now += share * right[n]
            if far > 0:
                count = take_far_rows(count, q, Y, model, (members, membered), (at, own, held, taken))
            for m in range(n):
                q[m] -= (1.0 - share) * right[m]
        bounds[j], t[j] = best, now
    return seen


# ---------------------------------------------------------------------------------------------------------------------
# Pivots: losses of straight and quadratic pieces


@jit
def add_outer(c: float, z: Array, H: Array) -> None:
    """Add c times the lower triangle of the product of a vector with itself."""
    for m in range(z.size):
        scaled = c * z[m]
        for p in range(m + 1):
            H[m, p] += scaled * z[p]


@jit
def pivot_step(
    at: Array, free: Array, Z: Array, H: Array, ridge: Array, a: Array, u: Array, model: Any, room: Any
) -> Integer:
    """Move a dual point towards the best one where the samples that are not free stay, as far as F allows; u follows.

    Free ones are among ``at``. Returns the sample that F stops, -1 if none, -2 where the equations cannot be solved; the second of
    ``room`` takes how the coefficients change.
    """
    samples, loss = model[0], model[4]
    work, right, along = room
    work[:], right[:] = H, 0.0
    for m in range(right.size):
        work[m, m] += ridge[m]
    for i in at:
        if free[i]:
            scaled = samples[5, i] * (a[i] - (u[i] - samples[4, i]) / loss[1])
            for m in range(right.size):
                right[m] += scaled * Z[i, m]
    if not solve_definite(work, right):
        return -2
    share, stopped = 1.0, -1
    for i in at:
        if free[i]:
            along[i] = dot(Z[i], right, right.size)
            most = beyond(a[i], samples[4, i], (u[i] + along[i] - samples[4, i]) / loss[1] - a[i], loss)
            if most * share > 1.0:
                share, stopped = 1.0 / most, i
    for i in at:
        if free[i]:
            low, high = ends_of(samples[4, i], int(loss[0]), loss[2], loss[3])
            step = (u[i] + along[i] - samples[4, i]) / loss[1] - a[i]
            a[i] = clip(a[i] + share * step, low, high)
            if i == stopped:
                a[i] = high if step > 0.0 else low
            u[i] += share * along[i]
    for m in range(right.size):
        right[m] *= share
    return stopped


@jit
def drawn_inside(free: Array, Z: Array, total: Array, a: Array, u: Array, model: Any) -> Integer:
    """Return the sample at the border of F that the slope of D draws inside most, -1 if none; u takes the margins of all these."""
    samples, loss = model[0], model[4]
    most, found = 0.0, -1
    for i in range(a.size):
        if not free[i]:
            u[i] = samples[0, i] + dot(Z[i], total, total.size)
            slope = u[i] - samples[4, i] - loss[1] * a[i]
            slope = slope if a[i] <= ends_of(samples[4, i], int(loss[0]), loss[2], loss[3])[0] else -slope
            if slope > max(most, _DRAWN * (1.0 + abs(u[i]))):
                most, found = slope, i
    return found


@jit
def balance(at: Array, free: Array, a: Array, model: Any) -> None:
    """Let the free sample that is farthest inside of F take up what rounding has left of an imbalance."""
    samples, loss = model[0], model[4]
    total, widest, chosen = 0.0, 0.0, -1
    for i in at:
        total += samples[5, i] * (a[i] - samples[1, i])
        low, high = ends_of(samples[4, i], int(loss[0]), loss[2], loss[3])
        if free[i] and samples[5, i] * min(a[i] - low, high - a[i]) > widest:
            widest, chosen = samples[5, i] * min(a[i] - low, high - a[i]), i
    if abs(total) < widest:
        a[chosen] -= total / samples[5, chosen]


@jit
def pivoted_value(
    at: Array, Z: Array, a: Array, g_own: float, spare: Array, r: Array, none: Array, model: Any
) -> float:
    """Return D at a dual point, which differs from the first one at some samples."""
    samples, n = model[0], none.size
    r[:] = 0.0
    for m in range(len(at)):
        spare[m] = a[at[m]] - samples[1, at[m]]
        for p in range(n + 1):
            r[p] += samples[5, at[m]] * spare[m] * Z[at[m], p]
    return value_at(at, True, spare, spare, 1.0, 0.0, none, r[:n], none, g_own + r[n], model)


@jit
def pivot_bounds(
    x: Array,
    rows: Array,
    starts: Array,
    whole: bool,
    columns: Array,
    g_own: Array,
    t: Array,
    bounds: Array,
    target: float,
    rounds: Integer,
    Y: Any,
    model: Any,
) -> Integer:
    """Maximise D for each of some columns, until the target is reached, as :func:`walk_bounds` does.

    An active set method: the samples inside of F are free and go to where D is largest for them, or until one of them meets the
    border, where it stays; once all have got there the sample at the border that D draws inside most becomes free. D never falls.
    Returns how many numbers were multiplied.
    """
    samples, _, vectors, scalars, loss, origin, classes = model
    n, n_samples, lam, mu = origin.size, samples_of(model), scalars[1], loss[1]
    Z, H, base = np.zeros((n_samples, n + 1)), np.empty((n + 1, n + 1)), np.zeros((n + 1, n + 1))
    first, free, listed = np.empty((3, n_samples), dtype=np.bool_)
    at, (a, u, spare, along) = np.empty(n_samples, dtype=np.int64), np.empty((4, n_samples))
    ridge, right, total, r = np.full((4, n + 1), lam)
    ridge[:n] = vectors[0]
    none, room, n_first = np.zeros(n), (np.empty((n + 1, n + 1)), right, along), 0
    for i in range(n_samples):
        Z[i, :n] = origin
        row_add(Y[0], Y[1], Y[2], classes[i], 1.0, Z[i, :n])
        low, high = ends_of(samples[4, i], int(loss[0]), loss[2], loss[3])
        first[i] = low < samples[1, i] < high
        if first[i]:
            add_outer(samples[5, i] / mu, Z[i], base)
            at[n_first] = i
            n_first += 1
    seen = 0
    for column in range(columns.size):
        j, count = columns[column], n_first
        Z[:, n], free[:], listed[:], a[:], H[:], total[:] = 0.0, first, first, samples[1], base, 0.0
        for p in range(starts[j], starts[j + 1]):
            Z[p - starts[j] if whole else rows[p], n] = x[p]
        total[n] = -g_own[j] / lam
        for i in at[:count]:
            u[i] = samples[0, i] + total[n] * Z[i, n]
            for m in range(n + 1):
                H[n, m] += samples[5, i] / mu * Z[i, n] * Z[i, m]
        best = -np.inf
        for _ in range(rounds):
            moved = pivot_step(at[:count], free, Z, H, ridge, a, u, model, room)
            seen += (n + 1) * (3 * count + (n + 1) ** 2 // 6)
            if moved == -2:
                break
            for m in range(n + 1):
                total[m] += right[m]
            if n > scalars[4]:
                balance(at[:count], free, a, model)
            best = max(best, pivoted_value(at[:count], Z, a, g_own[j], spare, r, none, model))
            if best >= target:
                break
            if moved < 0:
                moved = drawn_inside(free, Z, total, a, u, model)
                seen += n_samples * (n + 1)
                if moved < 0:
                    break
            free[moved] = not free[moved]
            add_outer((1.0 if free[moved] else -1.0) * samples[5, moved] / mu, Z[moved], H)
            if not listed[moved]:
                listed[moved], at[count] = True, moved
                count += 1
        bounds[j], t[j] = best, total[n]
    return seen


@jit
def objective_at(v: Array, t: float, q: Array, model: Any) -> float:
    """Return the objective where the coefficients of Y change by q, that of a column is t, and the margins are v."""
    samples, _, vectors, scalars, loss, _, _ = model
    lam, total = scalars[1], 0.5 * scalars[1] * t * t
    for j in range(np.int64(scalars[4])):
        total += 0.5 * (vectors[4, j] + lam * q[j]) ** 2 / lam
    return float(total + sum_of_losses(v, samples[4], samples[5], loss))


@jit
def least_step(u: Array, along: Array, slope: float, bend: float, first: float, samples: Array, loss: Array) -> float:
    """Return how far along a direction the objective falls: the root of its slope, which is ``first`` at 0, roughly.

    The margins are u and change by ``along``; the slope of the penalty is ``slope`` at 0 and grows by ``bend``.
    """
    low, high, now = 0.0, np.inf, 1.0
    for _ in range(_LINE_STEPS):
        _, rise, curvature = sums_along(now, along, u, samples[4], samples[5], loss)
        rise, curvature = rise + slope + now * bend, curvature + bend
        if abs(rise) <= _FLAT * abs(first):
            break
        if rise < 0.0:
            low = now
        else:
            high = now
        new = now - rise / curvature
        now = new if low < new < high else 0.5 * (low + high) if high < np.inf else 2.0 * low
    return now


@jit
def stays(u: Array, along: Array, y: Array, loss: Array) -> bool:
    """Whether what a step promises is what it gains: it leaves every sample on its piece, or moves no margin by more than 1."""
    code, mu, low, high = int(loss[0]), loss[1], loss[2], loss[3]
    for i in range(u.size):
        if code == LOGISTIC:
            if not abs(along[i]) <= 1.0:
                return False
        else:
            _, a, c = piece_at(u[i], y[i], code, mu, low, high)
            _, a_then, c_then = piece_at(u[i] + along[i], y[i], code, mu, low, high)
            if c != c_then or (c == 0.0 and a != a_then):
                return False
    return True


@jit
def newton_least(
    x: Array,
    rows: Array,
    starts: Array,
    whole: bool,
    columns: Array,
    g_own: Array,
    t: Array,
    objectives: Array,
    precise: float,
    rounds: Integer,
    Y: Any,
    model: Any,
) -> Integer:
    """Minimise the objective over the coefficients of Y and of each of some columns; the others are as in :func:`walk_bounds`.

    ``objectives`` takes what Newton's method leads to where it says that no more than ``precise`` is left to gain, and NaN where it
    does not come so far.
    """
    samples, _, vectors, scalars, loss, origin, classes = model
    n, n_samples, lam, k = origin.size, samples_of(model), scalars[1], np.int64(scalars[4])
    q, right, spare, H = np.empty(n), np.empty(n + 1), np.empty((3, n)), np.empty((n + 1, n + 1))
    n_rows = len(Y[0]) if Y[0].ndim == 2 else Y[2].size - 1
    descent, along, changes = np.empty(n + 1), np.empty(n_samples), np.empty(n_rows)
    entries, at, own = np.empty((5, n_samples)), np.arange(n_samples), np.empty(n_samples)
    rows_of = np.full(n_rows, -1), np.empty(n_rows, dtype=np.int64), np.empty((4, n_rows))
    list_rows(at, classes, rows_of[0], rows_of[1], 0)
    seen = 0
    for column in range(columns.size):
        j = columns[column]
        own[:], q[:] = 0.0, 0.0
        for p in range(starts[j], starts[j + 1]):
            own[p - starts[j] if whole else rows[p]] = x[p]
        now = t[j]
        objectives[j] = np.nan
        for _ in range(rounds):
            seen += n_samples
            if not newton_step(at, own, now, g_own[j], Y, model, rows_of, q, entries, H, right, spare, descent):
                break
            promise, common = dot(descent, right, n + 1), dot(origin, right[:n], n)
            for i in range(n_rows):
                changes[i] = row_dot(Y[0], Y[1], Y[2], i, right[:n], common)
            for i in range(n_samples):
                along[i] = right[n] * own[i] + changes[classes[i]]
            if promise <= precise and stays(entries[3], along, samples[4], loss):
                objectives[j] = objective_at(entries[3], now, q, model)
                break
            slope, bend = lam * now * right[n], lam * right[n] ** 2
            for m in range(k):
                slope += right[m] * (lam * q[m] + vectors[4, m])
                bend += lam * right[m] ** 2
            size = least_step(entries[3], along, slope, bend, -promise, samples, loss)
            if not size > 0.0:
                break
            now += size * right[n]
            for m in range(n):
                q[m] += size * right[m]
        t[j] = now
    return seen

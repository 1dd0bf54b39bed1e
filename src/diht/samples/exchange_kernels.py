r"""Local search over supports in compiled code for a quadratic objective, where every exchange of two features has a formula.

The notation is that of :mod:`diht.search.exchange`, whose numpy is the twin of these kernels: S is the support, r minus the
gradient, :math:`M = H_{SS}^{-1}`, :math:`B = M H_{S \cdot}`, and h the curvatures along features where S answers. The arguments are
tuples of arrays:

    data    A, a row for each feature, with H = A A' + the ridges; the diagonal of H; the ridges; the rows of H that are kept, and
            their features, -1 behind the last one
    model   members, the features; w, their coefficients; M; B, a row for each feature and a column for each member; r; h
    room    a row of H; four vectors as long as the members, of zeros.

Effort is counted in numbers that are multiplied and added.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from diht.design.kernels import Array, Integer, dot, jit, jit_reassociated

_GAIN = 4.0  # effort of the gain of an exchange


@jit
def write_row(j: Integer, data: Any, out: Array) -> float:
    """Write a row of H; return the effort."""
    A, _, ridges, rows, kept = data
    at = 0
    while at < kept.size and kept[at] >= 0:
        if kept[at] == j:
            out[:] = rows[at]
            return float(out.size)
        at += 1
    for i in range(out.size):
        out[i] = dot(A[i], A[j], A.shape[1])
    out[j] += ridges[j]
    if at < kept.size:
        rows[at, :], kept[at] = out, j
    return float(A.size)


@jit
def variance(at: Integer, data: Any, model: Any) -> float:
    """Return a diagonal entry of M, which rounding must not take below one over that of H."""
    return float(max(model[2][at, at], 1.0 / data[1][model[0][at]]))


@jit
def leave(m: Integer, at: Integer, data: Any, model: Any, room: Any) -> float:
    """Take the member of a place out, of the first m, but for B; return how the objective changes.

    Writes by which share of its own each member's row of B falls.
    """
    _, w, M, B, r, h = model
    shares, v, t = room[1], variance(at, data, model), w[at]
    for i in range(m):
        shares[i] = M[i, at] / v
    shares[at] = 1.0
    for i in range(m):
        w[i] -= shares[i] * t
        for c in range(m):
            M[i, c] -= shares[i] * M[at, c] if c != at and i != at else 0.0
    for i in range(m):
        M[at, i] = M[i, at] = 0.0
    for c in range(r.size):
        r[c] += B[c, at] * t / v
        h[c] += B[c, at] * B[c, at] / v
    return float(0.5 * t * t / v)


@jit
def enter(m: Integer, at: Integer, j: Integer, data: Any, model: Any, room: Any) -> tuple[float, float]:
    """Take a feature into a place, which a member has left, of the first m; return how the objective changes, and the effort."""
    members, w, M, B, r, h = model
    row, shares, answers, rises, _ = room
    curvature = max(h[j], data[2][j])
    t, effort = r[j] / curvature, write_row(j, data, row)
    for i in range(m):
        answers[i] = row[members[i]] if i != at else 0.0
        rises[i] = shares[i] * B[j, at] - B[j, i] if i != at else 1.0
    answers[at] = -dot(answers, shares, m)
    for i in range(m):
        w[i] += rises[i] * t
        for c in range(m):
            M[i, c] += rises[i] * rises[c] / curvature
    members[at] = j
    move_rows(m, at, curvature, t, B, r, h, room)
    for c in range(m):
        for i in range(m):
            B[members[c], i] = 1.0 if i == c else 0.0
        r[members[c]] = h[members[c]] = 0.0
    return -0.5 * curvature * t * t, effort + 2.0 * m * r.size


@jit_reassociated
def move_rows(m: Integer, at: Integer, curvature: float, t: float, B: Array, r: Array, h: Array, room: Any) -> None:
    """Update B, r and h where a member has left and a feature joins."""
    row, shares, answers, rises, _ = room
    for c in range(r.size):
        b = B[c]
        new = row[c]
        for i in range(m):
            new -= answers[i] * b[i]
        r[c] -= new * t
        new /= curvature
        h[c] -= new * new * curvature
        old = b[at]
        for i in range(m):
            b[i] += rises[i] * new - shares[i] * old


@jit
def best_addition(barred: Array, data: Any, model: Any) -> Integer:
    """Return the feature that alone lowers the objective most, -1 where all are barred."""
    r, h = model[4], model[5]
    best, found = -1.0, -1
    for j in range(r.size):
        if not barred[j]:
            gain = r[j] * r[j] / max(h[j], data[2][j])
            if gain > best:
                best, found = gain, j
    return found


@jit
def gaining(g: float, c: float, b: Array, slopes: Array, costs: Array) -> Integer:
    """Return how many members a feature, with this slope and curvature, gains by replacing."""
    count, least = 0, -g * g
    for i in range(slopes.size):
        count += 2.0 * g * b[i] * slopes[i] - c * costs[i] > least
    return count


@jit
def best_exchange(fixed: Integer, barred: Array, data: Any, model: Any, room: Any) -> tuple[float, Integer, Integer]:
    """Return what the best exchange gains, the place of the member that leaves and the feature that joins; -1 where none gains.

    No exchange gains more than its feature does by joining alone.
    """
    members, w, _, B, r, h = model
    _, slopes, variances, costs, gains = room
    for i in range(members.size):
        variances[i] = 1.0 / variance(i, data, model)
        slopes[i] = w[i] * variances[i]
        costs[i] = w[i] * slopes[i] if i >= fixed else np.inf
    best, at, found = 0.0, -1, -1
    for j in range(r.size):
        b, g, c = B[j], r[j], max(h[j], data[2][j])
        if not barred[j] and g * g > best * c and gaining(g, c, b, slopes, costs):
            for i in range(members.size):
                slope = g + b[i] * slopes[i]
                gains[i] = slope * slope / (c + b[i] * b[i] * variances[i]) - costs[i]
            for i in range(members.size):
                if gains[i] > best:
                    best, at, found = gains[i], i, j
    return 0.5 * best, at, found


@jit
def exchange(
    start: Array, fixed: Integer, objective: float, limits: Any, masks: Any, data: Any, model: Any, room: Any
) -> tuple[float, float]:
    """Begin with some features, add the best that are not closed, then make the best exchange of those with all but the barred.

    These are the masks. The objective, r and h are those without features, and the first ``fixed`` of the start stay. The limits
    are the share of the objective that an exchange gains at least, the effort, and the number of exchanges. Returns the objective
    and the effort.
    """
    members, (closed, barred), effort, (gain, most, left) = model[0], masks, 0.0, limits
    for m in range(members.size):
        j = start[m] if m < start.size else best_addition(closed, data, model)
        change, work = enter(m + 1, m, j, data, model, room)
        closed[j] = barred[j] = True
        objective, effort = objective + change, effort + work
    while effort < most and left > 0:
        best, at, j = best_exchange(fixed, barred, data, model, room)
        effort += _GAIN * model[3].size
        if not best > gain * abs(objective):
            break
        barred[members[at]], barred[j] = False, True
        change = leave(members.size, at, data, model, room)
        fall, work = enter(members.size, at, j, data, model, room)
        objective, effort = objective + change + fall, effort + work
        left -= 1
        if not change + fall < 0.0:
            break
    return objective, effort

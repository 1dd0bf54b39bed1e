"""Compiled dual coordinate ascent around a proximal point of the relaxation.

As in :mod:`diht.design.kernels`, importing this module imports numba, and a loss enters as the numbers ``(code, mu, low, high)``.
"""

from __future__ import annotations

import numpy as np

from diht.constraints.kernels import shrink, threshold_scale
from diht.design.kernels import Array, Integer, dense_row_dot, dual_step, jit, jit_inlined, row_dot_at_once

NEVER = 1e12  # the step of a sample whose row is empty: its dual variable goes to where the loss alone wants it


@jit
def refresh(
    q: Array, w: Array, inside: Array, m: Integer, r: float, theta: float, at: Array, n_at: Integer, magnitudes: Array
) -> tuple[float, Integer]:
    """Find theta for q, and let w follow; returns theta and the number of candidates.

    ``at[:n_at]`` are the candidates of the last time: all that is nonzero in w. The new ones are those that exceed what theta, if
    it has not moved far, puts to zero; the search for theta looks at them only.
    """
    for p in range(n_at):
        w[at[p]] = 0.0
    floor = 0.7 * r * theta if theta < np.inf else 0.0
    n = 0
    for _ in range(1100):  # the floor falls to zero in fewer steps
        n = collect(q, inside, floor, at, magnitudes)
        if n <= m and floor > 0.0:
            floor *= 0.25
            continue
        theta = threshold_scale(magnitudes[:n], m, r, theta)
        if r * theta >= floor:
            break
        floor = 0.7 * r * theta
    shift, factor = r * theta, 1.0 / (1.0 + r)
    kept = 0
    for p in range(n):
        j = at[p]
        w[j] = shrink(q[j], shift, factor)
        at[kept] = j
        kept += w[j] != 0.0
    for j in range(inside.size):
        if inside[j]:
            w[j] = q[j] * factor
    return theta, kept


@jit_inlined
def collect(q: Array, inside: Array, floor: float, at: Array, magnitudes: Array) -> Integer:
    """Write the free features whose magnitude exceeds the floor, and the magnitudes; returns their number."""
    n = np.uint64(0)
    if inside.size > 0:
        for j in range(q.size):
            at[n] = j
            magnitudes[n] = abs(q[j])
            n += np.uint64(abs(q[j]) > floor and not inside[j])
    else:
        for j in range(q.size):
            at[n] = j
            magnitudes[n] = abs(q[j])
            n += np.uint64(abs(q[j]) > floor)
    return np.int64(n)


@jit_inlined
def proximal_step(
    i: Integer, u: float, kappa: float, kappa_b: float, alpha: Array, y: Array, s: Array, norms: Array, loss: Array
) -> float:
    """Maximise the dual around the proximal point over the variable of one sample; returns ``s_i (new - old)``."""
    old = alpha[i]
    curvature = s[i] * (norms[i] / kappa + 1.0 / kappa_b)
    tau = 1.0 / curvature if curvature * NEVER > 1.0 else NEVER
    new = dual_step(2, old, u, y[i], tau, int(loss[0]), loss[1], loss[2], loss[3])
    alpha[i] = new
    return float(s[i] * (new - old))


@jit_inlined
def csr_visit(
    data: Array,
    indices: Array,
    indptr: Array,
    order: Array,
    q: Array,
    w: Array,
    inside: Array,
    b: float,
    kappa: float,
    kappa_b: float,
    shift: float,
    factor: float,
    alpha: Array,
    y: Array,
    s: Array,
    norms: Array,
    loss: Array,
) -> float:
    """Visit sparse samples in order: maximise over each dual variable, and let q, w and b follow; returns b."""
    one = np.uint64(1)
    for t in range(order.size):
        i = np.uint64(order[t])
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + one])
        u = row_dot_at_once(data, indices, begin, end, w) + b
        c = proximal_step(i, u, kappa, kappa_b, alpha, y, s, norms, loss)
        if c == 0.0:
            continue
        b -= c / kappa_b
        change = c / kappa
        if inside.size > 0:
            for p in range(begin, end):
                j = np.uint64(indices[p])
                q[j] -= change * data[p]
                w[j] = shrink(q[j], 0.0 if inside[j] else shift, factor)
        else:
            for p in range(begin, end):
                j = np.uint64(indices[p])
                q[j] -= change * data[p]
                w[j] = shrink(q[j], shift, factor)
    return b


@jit_inlined
def dense_visit(
    X: Array,
    center: Array,
    inverse: Array,
    order: Array,
    q: Array,
    w: Array,
    inside: Array,
    b: float,
    kappa: float,
    kappa_b: float,
    shift: float,
    factor: float,
    alpha: Array,
    y: Array,
    s: Array,
    norms: Array,
    loss: Array,
) -> float:
    """Visit dense samples in order; X comes with its centers and the inverses of its scales (or empty arrays)."""
    z = np.empty(q.size)
    for t in range(order.size):
        i = order[t]
        if center.size > 0:
            for j in range(q.size):
                z[j] = (X[i, j] - center[j]) * inverse[j]
        else:
            for j in range(q.size):
                z[j] = X[i, j]
        c = proximal_step(i, dense_row_dot(z, w) + b, kappa, kappa_b, alpha, y, s, norms, loss)
        if c == 0.0:
            continue
        b -= c / kappa_b
        change = c / kappa
        if inside.size > 0:
            for j in range(q.size):
                q[j] -= change * z[j]
                w[j] = shrink(q[j], 0.0 if inside[j] else shift, factor)
        else:
            for j in range(q.size):
                q[j] -= change * z[j]
                w[j] = shrink(q[j], shift, factor)
    return b


@jit_inlined
def shuffle(order: Array, run: Integer, seed: Array) -> None:
    """Put runs of samples into a new order (Fisher and Yates, with a generator of Marsaglia's), the same for the same seed."""
    x = seed[0]
    for t in range(order.size // run - 1, 0, -1):
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
        p = np.int64((x >> np.uint64(11)) % np.uint64(t + 1))
        for i in range(run):
            order[t * run + i], order[p * run + i] = order[p * run + i], order[t * run + i]
    seed[0] = x


@jit
def proximal_epochs(
    first: Array,
    second: Array,
    third: Array,
    epochs: Integer,
    refreshes: Integer,
    order: Array,
    run: Integer,
    seed: Array,
    q: Array,
    w: Array,
    center: Array,
    previous: Array,
    inside: Array,
    m: Integer,
    at: Array,
    magnitudes: Array,
    scalars: Array,
    lam: float,
    alpha: Array,
    y: Array,
    s: Array,
    norms: Array,
    loss: Array,
) -> None:
    """Make some epochs of the accelerated proximal point method, each of one visit to every sample.

    The first three arguments are those of :func:`dense_visit`, or of :func:`csr_visit`.
    ``q = center - X'(s alpha) / kappa`` throughout. ``scalars`` holds what changes between calls: theta, the number of candidates,
    b, its center, its last value, the momentum's t, kappa, kappa_b.
    """
    theta, b, b_center, b_previous = scalars[0], scalars[2], scalars[3], scalars[4]
    t, kappa, kappa_b = scalars[5], scalars[6], scalars[7]
    r = lam / kappa
    factor = 1.0 / (1.0 + r)
    count = np.int64(scalars[1])
    for _ in range(epochs):
        shuffle(order, run, seed)
        for part in range(refreshes):
            start, stop = part * order.size // refreshes, (part + 1) * order.size // refreshes
            if start < stop:
                part_of_order = order[start:stop]
                if first.ndim == 2:  # decided when this is compiled
                    b = dense_visit(
                        first, second, third, part_of_order, q, w, inside, b, kappa, kappa_b, r * theta, factor, alpha, y, s,
                        norms, loss,
                    )  # fmt: skip
                else:
                    b = csr_visit(
                        first, second, third, part_of_order, q, w, inside, b, kappa, kappa_b, r * theta, factor, alpha, y, s,
                        norms, loss,
                    )  # fmt: skip
                # Between two refreshes w can become nonzero anywhere.
                theta, count = refresh(q, w, inside, m, r, theta, at, count, magnitudes)
        turned = (b_center - b) * (b - b_previous)
        for j in range(q.size):
            turned += (center[j] - w[j]) * (w[j] - previous[j])
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        momentum = (t - 1.0) / following
        t = following
        if turned > 0.0:
            t, momentum = 1.0, 0.0
        for j in range(q.size):
            moved = w[j] + momentum * (w[j] - previous[j])
            q[j] += moved - center[j]
            center[j] = moved
            previous[j] = w[j]
        moved = b + momentum * (b - b_previous)
        b_previous = b
        b += moved - b_center
        b_center = moved
        theta, count = refresh(q, w, inside, m, r, theta, at, count, magnitudes)
    # Entry by entry: the message of a slice assignment's error takes seconds to compile.
    scalars[0], scalars[1], scalars[2], scalars[3] = theta, float(count), b, b_center
    scalars[4], scalars[5] = b_previous, t

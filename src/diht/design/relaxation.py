"""Compiled kernels of the relaxation: its proximal map, and dual coordinate ascent around a proximal point.

As in :mod:`diht.design.kernels`, importing this module imports numba, and a loss enters as the numbers ``(code, mu, low, high)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from diht.design.kernels import DERIVATIVE, Array, Integer, dense_row_dot, dual_step, jit, jit_inlined, row_dot_at_once

_U = 2.0**-53  # unit roundoff of float64
_MAX_EVALUATIONS = 200  # of a function whose root is sought
_MOST_BISECTIONS = 8  # in a row
_SHARP = 1 / 16  # ratio of two values from which on a secant counts as converging

NEVER = 1e12  # the step of a sample whose row is empty: its dual variable goes to where the loss alone wants it


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
        for a in magnitudes:
            z = a * t - r
            if z >= 1.0:
                whole += 1
            elif z > 0.0:
                middle += 1
                inner += a
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


@jit
def central_room(excess: float, mu: float, tau: float) -> float:
    """Return the positive root of ``mu r^2 + excess r - tau = 0``: the distance from an end of the domain that is the only one."""
    root: float = np.hypot(excess, 2.0 * np.sqrt(mu * tau))
    if excess > 0.0:
        return 2.0 * tau / (excess + root)
    return (root - excess) / (2.0 * mu) if mu > 0.0 else np.inf


@jit
def central_slope(u: float, y: float, mu: float, low: float, high: float, tau: float) -> float:
    """Return the a inside ``(low, high)`` with ``y + mu a - tau/(a - low) + tau/(high - a) = u``; the ends are those for y > 0.

    The left side increases with a, from minus to plus infinity: Newton's method in a bracket that shrinks around the root, from the
    root with the barrier of one end alone, the nearer one, until rounding is all that is left of the difference of the two sides,
    or a step moves a no more: near an end that is not zero a - low and high - a have few digits.
    """
    if y <= 0.0:
        low, high = -high, -low
    d = u - y
    from_high = central_room(d - mu * high, mu, tau) if high < np.inf else np.inf
    from_low = central_room(mu * low - d, mu, tau) if low > -np.inf else np.inf
    if low == -np.inf or high == np.inf:
        return high - from_high if low == -np.inf else low + from_low
    left, right, middle = low, high, 0.5 * (low + high)
    a: float
    if from_high < from_low:  # the root is in the upper half
        a = min(max(high - from_high, middle), np.nextafter(high, low))
    else:
        a = max(min(low + from_low, middle), np.nextafter(low, high))
    for _ in range(200):
        below, above = a - low, high - a
        if not (below > 0.0 and above > 0.0):
            return a
        value = mu * a - tau / below + tau / above - d
        if abs(value) <= 4.0 * _U * (abs(d) + mu * abs(a) + tau / below + tau / above):
            return a
        if value > 0.0:
            right = a
        else:
            left = a
        slope = mu + tau / (below * below) + tau / (above * above)
        new = a - value / slope
        if new == a:
            return a
        if not left < new < right:
            new = 0.5 * (left + right)
        if not left < new < right:
            return a
        a = new
    return a


@jit
def central_slopes(u: Array, y: Array, mu: float, low: float, high: float, tau: float, out: Array) -> None:
    """Write :func:`central_slope` of every entry."""
    for i in range(u.size):
        out[i] = central_slope(u[i], y[i], mu, low, high, tau)


@jit
def total_slope(loss: Any, tau: float, u: Array, b: float, y: Array, s: Array) -> float:
    """Return the sum of ``s_i l'(u_i + b, y_i)``; where ``tau`` is positive, with barriers of that strength."""
    code, mu, low, high = loss
    total = 0.0
    if tau > 0.0:
        for i in range(u.size):
            total += s[i] * central_slope(u[i] + b, y[i], mu, low, high, tau)
    else:
        for i in range(u.size):
            total += s[i] * dual_step(DERIVATIVE, 0.0, u[i] + b, y[i], 0.0, code, mu, low, high)
    return total


@jit
def slope_root(loss: Any, tau: float, u: Array, y: Array, s: Array, start: float, noise: float) -> float:
    """Return the root in b of :func:`total_slope`: step by step what :func:`diht.intercept.increasing_root` does."""
    left = right = start
    h_left = h_right = total_slope(loss, tau, u, start, y, s)
    width = 1e-3 * max(1.0, abs(start))
    for _ in range(_MAX_EVALUATIONS):
        found = abs(h_left) <= noise or h_left <= 0.0 <= h_right
        if found or not (np.isfinite(left) and np.isfinite(right)):
            break
        if h_right < 0.0:
            left, h_left = right, h_right
            right = right + width
            h_right = total_slope(loss, tau, u, right, y, s)
        else:
            right, h_right = left, h_left
            left = left - width
            h_left = total_slope(loss, tau, u, left, y, s)
        slope = (h_right - h_left) / width
        missing = min(abs(h_left), abs(h_right)) / slope if slope > 0.0 else np.inf
        width = max(2.0 * width, min(2.0 * missing, 1e3 * width))
    best, h_best = (left, h_left) if abs(h_left) < abs(h_right) else (right, h_right)
    if h_left > 0.0 or h_right < 0.0:
        return best
    f_left, f_right = h_left, h_right
    side = slow = due = 0
    run = 1
    for _ in range(_MAX_EVALUATIONS):
        if abs(h_best) <= noise:
            break
        width, middle = right - left, 0.5 * (left + right)
        guess = middle if due > 0 else right - f_right * width / (f_right - f_left)
        if not left < guess < right:
            guess = middle
            if not left < guess < right:
                break
        value = total_slope(loss, tau, u, guess, y, s)
        sharp = abs(value) <= _SHARP * abs(h_best)
        if abs(value) <= abs(h_best):
            best, h_best = guess, value
        if value <= 0.0:
            left, f_left = guess, value
            f_right = f_right / 2 if side == -1 else f_right
            side = -1
        if value >= 0.0:
            right, f_right = guess, value
            f_left = f_left / 2 if side == 1 else f_left
            side = 1
        if due > 0:
            due -= 1
        elif sharp or right - left <= 0.5 * width:
            slow, run = 0, 1
        elif slow > 0:
            due, run = run, min(2 * run, _MOST_BISECTIONS)
        else:
            slow = 1
    return best

"""Compiled kernels of a loss of straight and quadratic pieces, with barriers or without: derivatives, sums, the intercept.

As in :mod:`diht.design.kernels`, importing this module imports numba, and a loss enters as the numbers ``(code, mu, low, high)``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from diht.design.kernels import DERIVATIVE, Array, dual_step, ends_of, jit

_U = 2.0**-53  # unit roundoff of float64
_MAX_EVALUATIONS = 200  # of a function whose root is sought
_MOST_BISECTIONS = 8  # in a row
_FAR = 1e150  # beyond that a square is infinite
_NEAREST = 1e-150  # distance from an end of the domain: its square is a normal number
_SHARP = 1 / 16  # ratio of two values from which on a secant counts as converging


@jit
def central_room(excess: float, mu: float, tau: float) -> float:
    """Return the positive root of ``mu r^2 + excess r - tau = 0``: the distance from an end of the domain that is the only one."""
    root = math.sqrt(excess * excess + 4.0 * mu * tau) if abs(excess) < _FAR else abs(excess)
    if excess > 0.0:
        return 2.0 * tau / (excess + root)
    return (root - excess) / (2.0 * mu) if mu > 0.0 else np.inf


@jit
def central_straight(d: float, low: float, high: float, tau: float) -> float:
    """Return the a inside ``(low, high)`` with ``tau/(high - a) - tau/(a - low) = d``, by its distance from the nearer end."""
    half = 0.5 * (high - low)
    far = half * abs(d)
    root = math.sqrt(tau * tau + far * far)
    room = half * tau * (1.0 + tau / (root + far)) / (tau + root)
    end, other = (high, low) if d > 0.0 else (low, high)
    a = end - room if d > 0.0 else end + room
    return a if a != end else float(np.nextafter(end, other))


@jit
def central_slope(u: float, y: float, code: int, mu: float, low: float, high: float, tau: float) -> float:
    """Return the a inside F with ``y + mu a - tau/(a - low) + tau/(high - a) = u``, for the loss of these numbers.

    The left side increases with a, from minus to plus infinity: Newton's method in a bracket that shrinks around the root, from the
    root with the barrier of one end alone, the nearer one, until rounding is all that is left of the difference of the two sides,
    or a step moves a no more: near an end that is not zero a - low and high - a have few digits.
    """
    low, high = ends_of(y, code, low, high)
    d = u - y
    if mu == 0.0 and high - low < np.inf:
        return central_straight(d, low, high, tau)
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
def slope_of(u: float, y: float, loss: Any, tau: float) -> float:
    """Return l'(u, y); where ``tau`` is positive, with barriers of that strength."""
    code, mu, low, high = loss
    if tau > 0.0:
        return central_slope(u, y, code, mu, low, high, tau)
    return dual_step(DERIVATIVE, 0.0, u, y, 0.0, code, mu, low, high)


@jit
def curvature_of(u: float, a: float, y: float, loss: Any, tau: float) -> float:
    """Return l''(u, y), given the slope a; for a loss of pieces."""
    code, mu, low, high = loss
    low, high = ends_of(y, code, low, high)
    if tau > 0.0:
        below, above = max(a - low, _NEAREST), max(high - a, _NEAREST)
        return float(1.0 / (mu + tau / (below * below) + tau / (above * above)))
    curvature: float = 1.0 / mu if mu > 0.0 and low <= (u - y) / mu <= high else 0.0
    return curvature


@jit
def value_of(u: float, a: float, y: float, loss: Any, tau: float) -> float:
    """Return l(u, y), given the slope a; for a loss of pieces."""
    code, mu, low, high = loss
    value: float = a * (u - y - 0.5 * mu * a)
    if tau > 0.0:
        low, high = ends_of(y, code, low, high)
        below, above = max(a - low, _NEAREST), max(high - a, _NEAREST)
        value += tau * math.log((below if below < np.inf else 1.0) * (above if above < np.inf else 1.0))
    return value


@jit
def central_slopes(u: Array, y: Array, loss: Any, tau: float, out: Array) -> None:
    """Write the slope of every entry."""
    for i in range(u.size):
        out[i] = slope_of(u[i], y[i], loss, tau)


@jit
def central_curvatures(u: Array, y: Array, loss: Any, tau: float, out: Array) -> None:
    """Write the curvature of every entry."""
    for i in range(u.size):
        out[i] = curvature_of(u[i], slope_of(u[i], y[i], loss, tau), y[i], loss, tau)


@jit
def central_sums(
    u: Array, b: float, y: Array, s: Array, loss: Any, tau: float, valued: bool
) -> tuple[float, float, float, float]:
    """Return the weighted sums of l, if it is wanted, of l', |l'| and l'' at the margins u + b."""
    value = slope = size = curvature = 0.0
    for i in range(u.size):
        v = u[i] + b
        a = slope_of(v, y[i], loss, tau)
        slope += s[i] * a
        size += s[i] * abs(a)
        curvature += s[i] * curvature_of(v, a, y[i], loss, tau)
        if valued:
            value += s[i] * value_of(v, a, y[i], loss, tau)
    return value, slope, size, curvature


@jit
def total_slope(loss: Any, tau: float, u: Array, b: float, y: Array, s: Array) -> float:
    """Return the sum of ``s_i l'(u_i + b, y_i)``; where ``tau`` is positive, with barriers of that strength."""
    code, mu, low, high = loss
    total = 0.0
    if tau > 0.0:
        for i in range(u.size):
            total += s[i] * central_slope(u[i] + b, y[i], code, mu, low, high, tau)
    else:
        for i in range(u.size):
            total += s[i] * dual_step(DERIVATIVE, 0.0, u[i] + b, y[i], 0.0, code, mu, low, high)
    return total


@jit
def slope_root(loss: Any, tau: float, u: Array, y: Array, s: Array, start: float, noise: float) -> float:
    """Return the root in b of :func:`total_slope`: step by step what :func:`diht.samples.intercept.increasing_root` does."""
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

r"""The relaxation of a quadratic whose coefficients have limits, compiled: accelerated proximal gradients.

In units in which all ridges are 1 it is :math:`\min_{x, z} \tfrac12 x^\top A x - h^\top x + \sum_j x_j^2 / (2 z_j)` with
:math:`l_j z_j \le x_j \le u_j z_j`, :math:`z_j = 1` inside and :math:`\sum z_j \le m` over the free features. The proximal map at q
with a step r has one multiplier :math:`\theta`: with M the limit on the side of :math:`q_j`

.. math:: z_j = \operatorname{clip}\left(\frac{|q_j|}{\theta} - r, 0, 1\right) \quad (\theta \le M) , \qquad
          z_j = \operatorname{clip}\left(\frac{|q_j|}{M} - r \frac{\theta^2 + M^2}{2 M^2}, 0, 1\right) \quad (\theta > M) ,

and :math:`|x_j| = \min(|q_j| z_j / (z_j + r), M z_j)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from diht.design.kernels import Array, Integer, jit
from diht.relaxation.quadratic_kernels import assign, correlate, extrapolate, progress, squared_norm

__all__ = ["limited_magnitudes", "minimise_within"]

CHECK = 10  # steps between two looks at the gap
MOST_HALVINGS = 200  # of a bracket around the multiplier


@jit
def limited_magnitudes(c: Array, lower: Array, upper: Array, out: Array) -> None:
    """Write the roots of :math:`e_j(c_j)`: the magnitude between the limits, less beyond."""
    for j in range(c.size):
        w = min(max(c[j], lower[j]), upper[j])
        out[j] = np.sqrt(max(w * (2.0 * c[j] - w), 0.0))


@jit
def share(q: float, limit: float, r: float, theta: float) -> float:
    """The place of a feature, given the multiplier, for a proximal map at a q > 0 with this limit."""
    if q == 0.0 or limit == 0.0:
        return 0.0
    if theta <= limit:
        z = q / theta - r if theta > 0.0 else np.inf
    else:
        ratio = theta / limit
        z = q / limit - 0.5 * r * (ratio * ratio + 1.0)
    return min(max(z, 0.0), 1.0)


@jit
def multiplier(q: Array, limit: Array, state: Array, m: Integer, r: float, theta: float) -> float:
    """The theta for which the free features share m places; 0 where there are enough. The search begins at a guess."""
    if m <= 0:
        return np.inf
    positive, high = 0, 0.0
    for j in range(q.size):
        if state[j] == 0 and q[j] > 0.0 and limit[j] > 0.0:
            positive += 1
            # None has a place from there on.
            most = q[j] / r if q[j] <= r * limit[j] else limit[j] * np.sqrt(max(2.0 * q[j] / (limit[j] * r) - 1.0, 0.0))
            high = max(high, most)
    if positive <= m:
        return 0.0
    low = 0.0
    middle = theta if 0.0 < theta < high else 0.5 * high
    for _ in range(MOST_HALVINGS):
        total = fall = 0.0
        for j in range(q.size):
            if state[j] == 0:
                z = share(q[j], limit[j], r, middle)
                total += z
                if 0.0 < z < 1.0:
                    fall += q[j] / (middle * middle) if middle <= limit[j] else r * middle / (limit[j] * limit[j])
        if abs(total - m) <= 1e-13 * m:
            break
        if total > m:
            low = middle
        else:
            high = middle
        new = middle + (total - m) / fall if fall > 0.0 else -1.0
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - middle) <= 1e-15 * middle:
            break
        middle = new
    return middle


@jit
def proximal_step(y: Array, c: Array, step: float, node: Any, theta: float, x: Array, z: Array) -> float:
    """Write the proximal map of ``y + step c`` to x, and the places; return the multiplier."""
    state, m, lower, upper = node
    n = y.size
    q, limit = np.empty(n), np.empty(n)
    for j in range(n):
        x[j] = y[j] + step * c[j]
        q[j], limit[j] = abs(x[j]), upper[j] if x[j] > 0.0 else -lower[j]
    theta = multiplier(q, limit, state, m, step, theta)
    for j in range(n):
        z[j] = 1.0 if state[j] > 0 else share(q[j], limit[j], step, theta)
        size = min(q[j] * (z[j] / (z[j] + step)), limit[j] * z[j]) if z[j] > 0.0 else 0.0
        x[j] = size if x[j] > 0.0 else -size
    return theta


@jit
def gap_of(last: float, x: Array, c: Array, z: Array, node: Any) -> tuple[float, float]:
    """The relaxed value and the bound, as computed."""
    state, m, lower, upper = node
    product = penalty = 0.0
    for j in range(x.size):
        product += x[j] * c[j]
        penalty += x[j] * x[j] / z[j] if x[j] != 0.0 else 0.0
    magnitudes = np.empty(x.size)
    limited_magnitudes(c, lower, upper, magnitudes)
    return last - product + penalty, last + product - squared_norm(magnitudes, state, m, np.empty(x.size))


@jit
def minimise_within(K: Array, node: Any, x: Array, z: Array, goal: tuple[float, float, float], most: Integer) -> int:
    """Minimise from x, which is overwritten, and the places with it; return how many steps were made.

    K is the matrix with the ridges, and the targets, last; a node is its states, how many free features are allowed, and limits.
    The goal: the best objective, the share of what separates a bound from it that is of use, and a relative accuracy.
    """
    objective, useful, accuracy = goal
    n, curvature = x.size, 1e-3
    c, y, cy, old, cold = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        total = 0.0
        for j in range(n):
            total += abs(K[i, j])
        curvature = max(curvature, total / np.sqrt(n))
    assign(y, x)
    correlate(K, 1.0, y, cy)
    assign(old, y)
    assign(cold, cy)
    theta, momentum = 0.0, 1.0
    for steps in range(1, most + 1):
        theta = proximal_step(y, cy, 1.0 / curvature, node, theta, x, z)
        last = correlate(K, 1.0, x, c)
        moved, bent, against = progress(x, c, y, cy, old)
        if moved > 0.0 and bent > curvature * moved * (1.0 + 1e-9):  # the curvature was too small: once more
            curvature = max(1.2 * curvature, min(1.02 * bent / moved, 4.0 * curvature))
            continue
        if steps % CHECK == 0 or moved == 0.0:
            value, bound = gap_of(last, x, c, z, node)
            enough = max(useful * (objective - bound), accuracy * abs(value))
            if bound >= objective or value - bound <= enough or moved == 0.0:
                return int(steps)
        if against > 0.0:
            momentum = 1.0
            assign(y, x)
            assign(cy, c)
        else:
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
            beta = (momentum - 1.0) / following
            momentum = following
            extrapolate(x, old, beta, y)
            extrapolate(c, cold, beta, cy)
        assign(old, x)
        assign(cold, c)
    return int(most)

r"""Compiled interior point method: the best model on some features for a loss with a quadratic conjugate.

Such a loss is :math:`l(u) = \max_a a (u - y) - (\mu/2) a^2` over an interval :math:`[\underline a, \overline a]`. With p and q the
distances of a from its ends and z and v their multipliers, the optimum of
:math:`\sum_i s_i l(x_i^\top w + b) + (\lambda/2) \|w\|^2` is the solution for tau = 0 of

.. math:: \lambda w + \sum_i s_i a_i x_i = 0 , \quad \sum_i s_i a_i = 0 , \quad y_i + \mu a_i - z_i + v_i = x_i^\top w + b ,
          \quad z_i p_i = v_i q_i = \tau , \quad p, q, z, v > 0 .

Newton's method follows the solutions as tau falls, with Mehrotra's choice of tau and his correction of second order (On the
implementation of a primal-dual interior point method, 1992). With :math:`\delta_i = \mu + z_i / p_i + v_i / q_i` all but w is
eliminated, so that a step costs one Hessian :math:`\lambda I + \sum_i (s_i / \delta_i) (x_i - m)(x_i - m)^\top`, where m is the
mean of the samples under the weights :math:`s_i / \delta_i` if there is an intercept, else 0.

Ten to twenty steps suffice, whatever the scale of the data: neither kinks nor flat parts of a loss matter. An infinite end has
p = 1 and z = 0 throughout; a loss with two of them (the squared one) takes a single step.
"""

from __future__ import annotations

import numpy as np

from diht.design.kernels import Array, dot, jit, jit_inlined, jit_reassociated

__all__ = ["SAMPLE_ROWS", "interior_point"]

# Rows of the working array of the samples. For those with y < 0 the signs of y, u and a are turned, so that F is one interval.
Y, WEIGHT, TURN, A, U, P, Q, Z, V, C, T, DA, DZ, DV, WORK = range(15)
SAMPLE_ROWS = 15
# Rows of the working array of the features.
W, DW, GRADIENT, MEAN = range(4)

MOST_STEPS = 80
MOST_POLISHES = 5
SAME = 1e-13  # relative difference between equal objectives
END = 1e-8  # sum of all z p and v q, relative to the objective, below which the gap should fall at every step
STALLED = 2  # steps in a row in which it does not: rounding prevents progress
BOUNDARY = 0.995  # share of the way to the nearest end that a step may go
BLOCK = 256  # samples whose rows stay in the cache while their products are taken
ROUNDED = 1e-15  # share of its column that is left of a pivot where rounding has taken the rest


@jit_reassociated
def add(x: Array, c: float, out: Array) -> None:
    """Add c x to `out`."""
    for i in range(x.size):
        out[i] += c * x[i]


@jit
def predict(XT: Array, w: Array, b: float, u: Array) -> None:
    """Write the predictions Xw + b."""
    for i in range(u.size):
        u[i] = b
    for j in range(w.size):
        add(XT[j], w[j], u)


@jit_inlined
def measure(
    XT: Array, S: Array, R: Array, b: float, mu: float, low: float, high: float, lam: float
) -> tuple[float, float, float, float]:
    """Bring a, u and the gradient ``lam w + X'(s a)`` up to date; return P, D, the sum of s a, and that of z p and v q."""
    k, n = XT.shape
    predict(XT, R[W], b, S[U])
    value = conjugate = balance = distance = 0.0
    for i in range(n):
        y, s, turn = S[Y, i], S[WEIGHT, i], S[TURN, i]
        if S[P, i] < S[Q, i]:  # from the nearer end, where a is known best
            if low > -np.inf:
                S[A, i] = low + S[P, i]
        elif high < np.inf:
            S[A, i] = high - S[Q, i]
        a, u = S[A, i], turn * S[U, i]
        best = min(max((u - y) / mu, low), high) if mu > 0.0 else (high if u > y else low)
        value += s * best * (u - y - 0.5 * mu * best)
        conjugate += s * a * (y + 0.5 * mu * a)
        distance += s * (S[Z, i] * S[P, i] + S[V, i] * S[Q, i])
        S[U, i] = u
        S[WORK, i] = s * turn * a
        balance += S[WORK, i]
    for j in range(k):
        w, pull = R[W, j], dot(XT[j], S[WORK], n)
        value += 0.5 * lam * w * w
        conjugate += pull * pull / (2.0 * lam)
        R[GRADIENT, j] = lam * w + pull
    return value, -conjugate, balance, distance


@jit
def factorise(XT: Array, c: Array, lam: float, intercept: bool, mean: Array, H: Array, rows: Array) -> float:
    """Write the Cholesky factor of the Hessian with the weights c to H, and m to `mean`; return the sum of c."""
    k, n = XT.shape
    total = 0.0
    for i in range(n):
        total += c[i]
    for j in range(k):
        mean[j] = dot(XT[j], c, n) / total if intercept else 0.0
        for m in range(j):
            H[j, m] = 0.0
        H[j, j] = lam
    for start in range(0, n, BLOCK):
        size = min(BLOCK, n - start)
        for j in range(k):
            for i in range(size):
                rows[j, i] = np.sqrt(c[start + i]) * (XT[j, start + i] - mean[j])
            for m in range(j + 1):
                H[j, m] += dot(rows[j], rows[m], size)
    for j in range(k):
        pivot = H[j, j] - dot(H[j], H[j], j)
        # A pivot lost to rounding allows no step along its column.
        H[j, j] = np.sqrt(pivot) if pivot > ROUNDED * H[j, j] else 1e100 * (1.0 + np.sqrt(H[j, j]))
        for i in range(j + 1, k):
            H[i, j] = (H[i, j] - dot(H[i], H[j], j)) / H[j, j]
    return total


@jit
def direction(XT: Array, S: Array, R: Array, H: Array, total: float, balance: float, intercept: bool) -> float:
    """Write the change of w, and that of the predictions to the row WORK, for what T leaves to them; return that of b."""
    k, n = XT.shape
    level = balance
    for i in range(n):
        S[WORK, i] = S[TURN, i] * S[C, i] * S[T, i]
        level += S[WORK, i]
    level = level / total if intercept else 0.0
    for i in range(n):
        S[WORK, i] -= level * S[C, i]
    db, dw = -level, R[DW]
    for j in range(k):
        dw[j] = (-R[GRADIENT, j] - dot(XT[j], S[WORK], n) - dot(H[j], dw, j)) / H[j, j]
    for j in range(k - 1, -1, -1):
        dw[j] /= H[j, j]
        for m in range(j):
            dw[m] -= H[j, m] * dw[j]
        db -= R[MEAN, j] * dw[j]
    predict(XT, dw, db, S[WORK])
    return db


@jit_inlined
def advance(
    XT: Array, S: Array, R: Array, H: Array, rows: Array, balance: float, distance: float, mu: float, low: float,
    high: float, lam: float, intercept: bool,
) -> float:  # fmt: skip
    """Make one step of all but b, whose change is returned: a predictor with tau = 0 tells which tau to aim at."""
    n = XT.shape[1]
    has_low, has_high = 1.0 if low > -np.inf else 0.0, 1.0 if high < np.inf else 0.0
    for i in range(n):
        S[C, i] = S[WEIGHT, i] / (mu + S[Z, i] / S[P, i] + S[V, i] / S[Q, i])
        S[DA, i] = S[DZ, i] = S[DV, i] = 0.0
    total = factorise(XT, S[C], lam, intercept, R[MEAN], H, rows)
    tau = step = db = 0.0
    for corrected in range(2):
        for i in range(n):
            pull_low = has_low * (tau - S[DA, i] * S[DZ, i]) / S[P, i]
            pull_high = has_high * (tau + S[DA, i] * S[DV, i]) / S[Q, i]
            S[T, i] = S[U, i] - S[Y, i] - mu * S[A, i] + pull_low - pull_high
            S[DZ, i], S[DV, i] = pull_low, pull_high
        db = direction(XT, S, R, H, total, balance, intercept)
        fastest, after = 1e-300, 0.0
        for i in range(n):
            da = (S[TURN, i] * S[WORK, i] + S[T, i]) * S[C, i] / S[WEIGHT, i]
            S[DA, i] = da
            S[DZ, i] -= S[Z, i] * (1.0 + da / S[P, i])
            S[DV, i] -= S[V, i] * (1.0 - da / S[Q, i])
            if has_low > 0.0:
                fastest = max(fastest, max(-da / S[P, i], -S[DZ, i] / S[Z, i]))
            if has_high > 0.0:
                fastest = max(fastest, max(da / S[Q, i], -S[DV, i] / S[V, i]))
        step = min(1.0, (BOUNDARY if corrected else 1.0) / fastest)
        for i in range(n):
            after += S[WEIGHT, i] * (S[Z, i] + step * S[DZ, i]) * (S[P, i] + step * S[DA, i])
            after += S[WEIGHT, i] * (S[V, i] + step * S[DV, i]) * (S[Q, i] - step * S[DA, i])
        tau = (after / distance) ** 3 * distance / (has_low + has_high) if distance > 0.0 else 0.0
    for i in range(n):
        S[P, i] += step * has_low * S[DA, i]
        S[Q, i] -= step * has_high * S[DA, i]
        S[Z, i] += step * S[DZ, i]
        S[V, i] += step * S[DV, i]
        S[A, i] += step * S[DA, i]
    for j in range(len(H)):
        R[W, j] += step * R[DW, j]
    return step * db


@jit_inlined
def polish(
    XT: Array, S: Array, R: Array, H: Array, rows: Array, b: float, mu: float, low: float, high: float, lam: float,
    intercept: bool, value: float, w: Array,
) -> float:  # fmt: skip
    """Make Newton steps of P itself from the coefficients w, as long as they halve its decrement; return b.

    They end on the curved pieces of the loss that the path has led to: a gradient of the size of its rounding is worth having
    where P is flat, for the dual point that is made from a model pays for it with a factor 1/lam.
    """
    k, n = XT.shape
    for j in range(k):
        R[W, j] = w[j]
    best, best_b = np.inf, b
    for _ in range(MOST_POLISHES):
        predict(XT, R[W], b, S[U])
        new = balance = total = 0.0
        for i in range(n):
            r = S[TURN, i] * S[U, i] - S[Y, i]
            a = min(max(r / mu, low), high)
            new += S[WEIGHT, i] * a * (r - 0.5 * mu * a)
            S[C, i] = S[WEIGHT, i] / mu if low <= r / mu <= high else 0.0
            S[T, i], S[WORK, i] = 0.0, S[WEIGHT, i] * S[TURN, i] * a
            balance += S[WORK, i]
            total += S[C, i]
        for j in range(k):
            R[GRADIENT, j] = lam * R[W, j] + dot(XT[j], S[WORK], n)
            new += 0.5 * lam * R[W, j] ** 2
        if not new <= value * (1.0 + SAME) or total == 0.0:
            break
        factorise(XT, S[C], lam, intercept, R[MEAN], H, rows)
        db = direction(XT, S, R, H, total, balance, intercept)
        decrement = -balance * db - dot(R[GRADIENT], R[DW], k)
        if not abs(decrement) < 0.5 * best:
            break
        best, best_b = abs(decrement), b
        for j in range(k):
            w[j] = R[W, j]
            R[W, j] += R[DW, j]
        b += db
    return best_b


@jit_inlined
def begin(S: Array, mu: float, low: float, high: float, intercept: bool) -> None:
    """Write a first point: the middle of F; with an intercept 0, or between the two, so that the sum of s a vanishes."""
    n = S.shape[1]
    size = forward = backward = 0.0
    for i in range(n):
        size += S[WEIGHT, i] * S[Y, i] if S[Y, i] > 0.0 else -S[WEIGHT, i] * S[Y, i]
        if S[TURN, i] > 0.0:
            forward += S[WEIGHT, i]
        else:
            backward += S[WEIGHT, i]
    size = size if size > 0.0 else 1.0
    reach = 0.5 * (high - low) if high - low < np.inf else size / max(mu, 1.0)
    middle = low + reach if low > -np.inf else (high - reach if high < np.inf else 0.0)
    if intercept and low < 0.0 < high:
        middle = 0.0
    least = min(forward, backward) if intercept and forward > 0.0 and backward > 0.0 else 0.0
    for i in range(n):
        a = middle
        if least > 0.0:
            a *= least / forward if S[TURN, i] > 0.0 else least / backward
        rest = S[Y, i] + mu * a
        S[A, i] = a
        S[P, i], S[Z, i] = (a - low, max(rest, 0.0) + size) if low > -np.inf else (1.0, 0.0)
        S[Q, i], S[V, i] = (high - a, max(-rest, 0.0) + size) if high < np.inf else (1.0, 0.0)


@jit
def interior_point(
    XT: Array,
    S: Array,
    mu: float,
    low: float,
    high: float,
    lam: float,
    intercept: bool,
    rtol: float,
    w: Array,
    alpha: Array,
) -> tuple[float, float]:
    """Write the best coefficients and the best dual point found; return their b and the dual value.

    Parameters
    ----------
    XT : array of shape (k, N)
        The features, C-contiguous.
    S : array of shape (SAMPLE_ROWS, N)
        Its first rows hold y, the weights, all positive, and the turns; the others are for work.
    mu, low, high : float
        The loss, with the ends of F for samples that are not turned.
    lam, intercept
        The ridge, and whether there is an intercept.
    rtol : float
        The duality gap, relative to P, at which to stop; it stops before that where rounding keeps the gap from falling.
    w, alpha : arrays of shapes (k,) and (N,)
        The results.
    """
    k, n = XT.shape
    R, H, rows = np.empty((4, k)), np.empty((k, k)), np.empty((k, min(BLOCK, n)))
    for j in range(k):
        R[W, j] = 0.0
    begin(S, mu, low, high, intercept)
    b = best_b = 0.0
    least_value, best_bound, stalled = np.inf, -np.inf, 0
    for _ in range(MOST_STEPS):
        value, bound, balance, distance = measure(XT, S, R, b, mu, low, high, lam)
        if intercept:
            bound -= abs(balance * b)
        gap = least_value - best_bound
        if value < least_value:
            least_value, best_b = value, b
            for j in range(k):
                w[j] = R[W, j]
        if bound > best_bound:
            best_bound = bound
            for i in range(n):
                alpha[i] = S[TURN, i] * S[A, i]
        stalled = stalled + 1 if distance <= END * least_value and not least_value - best_bound < gap else 0
        if not least_value - best_bound > rtol * least_value or stalled >= STALLED:
            break
        b += advance(XT, S, R, H, rows, balance, distance, mu, low, high, lam, intercept)
    if mu > 0.0:
        best_b = polish(XT, S, R, H, rows, best_b, mu, low, high, lam, intercept, least_value, w)
    return best_b, best_bound

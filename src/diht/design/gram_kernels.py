r"""Compiled solver of the relaxed problem of the squared loss on a Gram matrix.

With :math:`A = G - \sigma I`, :math:`\rho = \lambda/2 + \sigma` and :math:`\Omega` the constraint's relaxation it minimises

.. math:: F(p) = \tfrac12 p^\top A p - h^\top p + \rho\,\Omega(p) , \qquad c = h - A p , \qquad
          F(p) - \min F \le \rho\,\Omega(p) - p^\top c + \nu(c)^2 / (2 \rho) ,

half the shifted objective less its constant. The steps are those of accelerated proximal gradients with restarts; they find the
pattern of the solution. On a pattern (the features with z = 1, those with 0 < z < 1, and their signs)

.. math:: \Omega(p) = \tfrac12 \sum_{z_j = 1} p_j^2 + \frac{(\sum_{0 < z_j < 1} |p_j|)^2}{2 (m - |\{z_j = 1\}|)}

is quadratic, so that one linear system gives its minimiser: Newton steps are tried as soon as a pattern is met twice, and end
the search. A feature's `state` is 1 where it is inside (z = 1), -1 where it is outside, 0 where it is free.
"""

from __future__ import annotations

import numpy as np

from diht.design.kernels import Array, Integer, jit, jit_reassociated
from diht.design.relaxation import shrink, threshold_scale

UNIT = 2.0**-53
UNDERFLOW = 1e-320
LARGEST_SYSTEM = 1500  # features up to which Newton's equations are solved
CHECK = 10  # proximal steps between two looks at the gap
FREE = 1e6  # operations of Newton's method that need no reason
REMOVALS = 4
HALVINGS = 3  # of a Newton step
TOP, MIDDLE, NONE = 2, 1, 0  # patterns: z = 1, 0 < z < 1, z = 0


@jit_reassociated
def dot(a: Array, b: Array, n: Integer) -> float:
    """Product of the first n entries."""
    total = 0.0
    for i in range(n):
        total += a[i] * b[i]
    return float(total)


@jit
def assign(target: Array, source: Array) -> None:
    """Copy an array (a slice assignment takes half a second to compile, for the message of its error)."""
    for i in range(target.size):
        target[i] = source[i]


@jit
def correlate(K: Array, sigma: float, p: Array, c: Array) -> float:
    """Write ``c = h - (G - sigma I) p`` and return ``y'y - h'p``, K being the Gram matrix with the targets last."""
    n = p.size
    last = float(K[n, n])
    for i in range(n):
        c[i] = K[n, i]
    for j in range(n):
        x = p[j]
        if x != 0.0:
            row = K[j]
            for i in range(n):
                c[i] -= x * row[i]
            last -= x * row[n]
    if sigma > 0.0:
        for i in range(n):
            c[i] += sigma * p[i]
    return last


@jit
def free_magnitudes(v: Array, state: Array, out: Array) -> float:
    """Write ``|v_j|`` of the free features, 0 for the others; return the sum of squares of those inside."""
    squares = 0.0
    for j in range(v.size):
        out[j] = abs(v[j]) if state[j] == 0 else 0.0
        if state[j] > 0:
            squares += v[j] * v[j]
    return squares


@jit
def mth_largest(values: Array, m: Integer) -> float:
    """The m-th largest of some numbers, by quickselect on a copy (numpy's own takes seconds to compile)."""
    a = np.empty(values.size)
    assign(a, values)
    left, right, target = 0, a.size - 1, m - 1
    while left < right:
        low, middle, high = a[left], a[(left + right) // 2], a[right]
        pivot = max(min(low, middle), min(max(low, middle), high))
        i, j = left, right
        while i <= j:
            while a[i] > pivot:
                i += 1
            while a[j] < pivot:
                j -= 1
            if i <= j:
                a[i], a[j] = a[j], a[i]
                i += 1
                j -= 1
        if target <= j:
            right = j
        elif target >= i:
            left = i
        else:
            break
    return float(a[target])


@jit
def squared_norm(v: Array, state: Array, m: Integer, work: Array) -> float:
    """Squares of the features inside, and of the m largest free ones."""
    total = free_magnitudes(v, state, work)
    n = v.size
    if m >= n:
        return total + dot(work, work, n)
    if m > 0:
        least, more = mth_largest(work, m), 0
        for a in work:
            if a > least:
                total += a * a
                more += 1
        total += (m - more) * (least * least)
    return total


@jit
def places(p: Array, c: Array, state: Array, m: Integer, rho: float, z: Array) -> float:
    """Write z and return theta, at the optimum the m-th largest free ``|c_j|`` in units of rho."""
    n = p.size
    free_magnitudes(c, state, z)
    theta = np.inf if m <= 0 else 0.0
    if 0 < m <= n:
        theta = mth_largest(z, m) / rho
    for j in range(n):
        z[j] = 1.0 if state[j] > 0 else 0.0
        if state[j] == 0 and p[j] != 0.0:
            z[j] = 1.0 if abs(p[j]) >= theta else abs(p[j]) / theta
    return float(theta)


@jit
def relaxation(p: Array, state: Array, m: Integer, work: Array) -> float:
    """Omega(p), infinite where p uses what it may not."""
    total = free_magnitudes(p, state, work)
    tau = threshold_scale(work, m, 0.0, 0.0)
    if tau == np.inf:
        return np.inf
    middle, whole = 0.0, 0
    for j in range(p.size):
        if work[j] >= tau:
            total += work[j] * work[j]
            whole += work[j] > 0.0
        else:
            middle += work[j]
    if middle > 0.0:
        total += middle * middle / max(m - whole, 1e-300)
    return 0.5 * total


@jit
def proximal_step(
    y: Array,
    c: Array,
    step: float,
    r: float,
    state: Array,
    m: Integer,
    theta: float,
    p: Array,
    pattern: Array,
    work: Array,
) -> float:
    """Write the proximal map of ``y + step c`` to p, and its pattern; return theta."""
    n = y.size
    for j in range(n):
        p[j] = y[j] + step * c[j] if state[j] >= 0 else 0.0
    free_magnitudes(p, state, work)
    theta = threshold_scale(work, m, r, theta)
    factor, shift, full = 1.0 / (1.0 + r), r * theta, (1.0 + r) * theta
    for j in range(n):
        q = p[j]
        if state[j] > 0 or (work[j] > 0.0 and work[j] >= full):
            p[j], kind = q * factor, TOP
        else:
            p[j] = shrink(q, shift, factor) if state[j] == 0 else 0.0
            kind = NONE if p[j] == 0.0 else (MIDDLE if p[j] > 0.0 else -MIDDLE)
        pattern[j] = kind
    return theta


@jit
def factorise(H: Array, n: Integer) -> None:
    """Overwrite the lower triangle of H by its Cholesky factor; a pivot lost to rounding is replaced by a small one."""
    for j in range(n):
        pivot = H[j, j]
        root = np.sqrt(max(pivot - dot(H[j], H[j], j), 1e-13 * pivot))
        H[j, j] = root
        for i in range(j + 1, n):
            H[i, j] = (H[i, j] - dot(H[i], H[j], j)) / root


@jit
def newton_step(
    K: Array, sigma: float, rho: float, state: Array, m: Integer, pattern: Array, p: Array, c: Array, x: Array
) -> bool:
    """Write what leads from p to the minimiser of F over its pattern to x; False where there is no such step."""
    n = x.size
    active = np.empty(n, dtype=np.int64)
    size, whole, middle = 0, 0, 0.0
    for j in range(n):
        if pattern[j] != NONE:
            active[size] = j
            size += 1
            whole += pattern[j] == TOP and state[j] == 0
            middle += abs(p[j]) if pattern[j] != TOP else 0.0
    if size == 0 or size > LARGEST_SYSTEM or (middle > 0.0 and whole >= m):
        return False
    bend = rho / (m - whole) if middle > 0.0 else 0.0
    H, right = np.empty((size, size)), np.empty(size)
    for a in range(size):
        i = active[a]
        for b in range(a + 1):
            j = active[b]
            H[a, b] = K[i, j]
            if pattern[i] != TOP and pattern[j] != TOP:
                H[a, b] += bend * pattern[i] * pattern[j]
        # a little of the ridge keeps the system solvable where the middle has more features than G has rank
        H[a, a] += (rho if pattern[i] == TOP else 1e-4 * rho) - sigma
        right[a] = c[i] - (rho * p[i] if pattern[i] == TOP else bend * middle * pattern[i])
    factorise(H, size)
    for a in range(size):
        right[a] = (right[a] - dot(H[a], right, a)) / H[a, a]
    for a in range(size - 1, -1, -1):
        right[a] /= H[a, a]
        for b in range(a):
            right[b] -= H[a, b] * right[a]
    for j in range(n):
        x[j] = 0.0
    for a in range(size):
        x[active[a]] = right[a]
    return True


@jit
def descent(
    K: Array, sigma: float, rho: float, state: Array, m: Integer, pattern: Array, p: Array, c: Array, x: Array
) -> bool:
    """The Newton step; features of the middle that it would send through zero at once leave the pattern first."""
    for _ in range(REMOVALS):
        if not newton_step(K, sigma, rho, state, m, pattern, p, c, x):
            return False
        removed = False
        for j in range(p.size):
            if abs(pattern[j]) == MIDDLE and 0.1 * x[j] * pattern[j] < -abs(p[j]):
                pattern[j] = NONE
                removed = True
        if not removed:
            break
    for j in range(p.size):
        if pattern[j] == NONE:
            x[j] = -p[j]
    return True


@jit
def along(p: Array, direction: Array, step: float, pattern: Array, x: Array) -> None:
    """Write ``p + step direction`` to x; a feature of the middle that would change its sign stops at zero."""
    for j in range(p.size):
        x[j] = p[j] + step * direction[j]
        if abs(pattern[j]) == MIDDLE and x[j] * pattern[j] < 0.0:
            x[j] = 0.0


@jit
def safe_bound(
    last: float,
    p: Array,
    c: Array,
    value_of_c: float,
    lam: float,
    sigma: float,
    size: Array,
    error: float,
    norm: float,
    k: Integer,
) -> tuple[float, float]:
    r"""Return B(p) as computed from the Gram matrix, and less all that its error and rounding can have added to it.

    With T = sum_j |p_j| size_j + size_y every entry of c is off by at most (error + gamma_n) size_j T, and `norm` is the
    constraint norm of the sizes, at most.
    """
    n = p.size
    reach, product, absolute, used = size[n], 0.0, 0.0, 0
    for j in range(n):
        if p[j] != 0.0:
            reach += abs(p[j]) * size[j]
            product += p[j] * c[j]
            absolute += abs(p[j] * c[j])
            used += 1
    rho = 0.5 * lam + sigma
    value = last + product - value_of_c / rho
    relative = (used + 16) * UNIT * 1.01
    off = (error * 1.01 + relative) * reach * 1.01
    largest = np.sqrt(value_of_c) * (1.0 + (k + 8) * UNIT) + off * norm
    lost = off * reach + relative * absolute
    lost += (largest * largest * (1.0 + 8.0 * UNIT) - value_of_c + (k + 1) * UNDERFLOW) / rho
    lost += 8.0 * UNIT * (abs(last) + absolute + largest * largest / rho)
    return value, value - lost * (1.0 + 1e-9)


@jit
def evaluate(
    K: Array,
    size: Array,
    error: float,
    norm: float,
    state: Array,
    m: Integer,
    k: Integer,
    lam: float,
    sigma: float,
    p: Array,
    c: Array,
) -> tuple[float, float]:
    """Write c and return B(p) and the safe bound, see :func:`safe_bound`."""
    last = correlate(K, sigma, p, c)
    squares = squared_norm(c, state, m, np.empty(p.size))
    return safe_bound(last, p, c, squares, lam, sigma, size, error, norm, k)


@jit
def relax(
    K: Array,
    size: Array,
    error: float,
    norm: float,
    state: Array,
    m: Integer,
    k: Integer,
    lam: float,
    sigma: float,
    curvature: float,
    p: Array,
    c: Array,
    tol: float,
    cutoff: float,
    max_iter: Integer,
) -> tuple[float, float, float, float, float, int, int]:
    """Minimise F from p, which is overwritten, and c with it.

    Ends when the gap is within `tol` of the value, when the safe bound reaches `cutoff`, or when the steps are used up. Returns
    the relaxed value, the bound B(p), the safe bound, theta, the curvature, and the numbers of proximal and Newton steps.
    """
    n = p.size
    rho = 0.5 * lam + sigma
    room = np.empty((8, n))
    y, cy, old, cold, work, x, cx, direction = room[0], room[1], room[2], room[3], room[4], room[5], room[6], room[7]
    pattern = np.empty(n, dtype=np.int8)
    assign(y, p)
    for j in range(n):
        if state[j] < 0:
            y[j] = 0.0
    last = correlate(K, sigma, y, cy)
    assign(old, y)
    assign(cold, cy)
    theta, momentum, newtons, iterations, wait, backoff = 0.0, 1.0, 0, 0, 0, 1
    credit = FREE
    value = bound = safe = -np.inf
    look = False
    for iterations in range(1, max_iter + 1):
        theta = proximal_step(y, cy, 1.0 / curvature, rho / curvature, state, m, theta, p, pattern, work)
        last = correlate(K, sigma, p, c)
        moved = bent = against = 0.0
        for j in range(n):
            d = p[j] - y[j]
            moved += d * d
            bent += d * (cy[j] - c[j])
            against -= d * (p[j] - old[j])
        if bent > curvature * moved * (1.0 + 1e-9):  # the curvature was too small: once more, with a larger one
            curvature = max(1.2 * curvature, min(1.02 * bent / moved, 4.0 * curvature))
            continue
        wait -= 1
        tried = False
        active = used = 0
        for j in range(n):
            active += pattern[j] != NONE
            used += p[j] != 0.0
        credit += 4.0 * n * used  # Newton steps may cost as much as the proximal ones so far, and twice
        price = active**3 / 3.0 + 2.0 * n * active
        if wait <= 0 and price <= credit and descent(K, sigma, rho, state, m, pattern, p, c, direction):
            newtons += 1
            credit -= price
            at_p = 0.5 * (last - dot(p, c, n)) + rho * relaxation(p, state, m, work)
            step = 1.0
            for _ in range(HALVINGS):
                along(p, direction, step, pattern, x)
                last_x = correlate(K, sigma, x, cx)
                # F = (y'y - h'p - p'c - y'y)/2 + rho Omega
                at_x = 0.5 * (last_x - dot(x, cx, n)) + rho * relaxation(x, state, m, work)
                if at_x <= at_p:
                    assign(p, x)
                    assign(c, cx)
                    last = last_x
                    tried = True
                    break
                step *= 0.5
            backoff = 1 if tried else min(2 * backoff, 64)
            wait = 0 if tried else backoff
            look = tried and step == 1.0
        if look or iterations % CHECK == 0 or moved == 0.0 or iterations == max_iter:
            look = False
            squares = squared_norm(c, state, m, work)
            bound, safe = safe_bound(last, p, c, squares, lam, sigma, size, error, norm, k)
            product = dot(p, c, n)
            penalty = rho * relaxation(p, state, m, work)
            value = last - product + 2.0 * penalty
            gap = 2.0 * penalty - 2.0 * product + squares / rho
            if gap <= tol * abs(value) or safe >= cutoff or moved == 0.0:
                break
        if tried or against > 0.0:
            momentum = 1.0
            assign(y, p)
            assign(cy, c)
        else:
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
            beta = (momentum - 1.0) / following
            momentum = following
            for j in range(n):
                y[j] = p[j] + beta * (p[j] - old[j])
                cy[j] = c[j] + beta * (c[j] - cold[j])
        assign(old, p)
        assign(cold, c)
    return value, bound, safe, theta, curvature, iterations, newtons

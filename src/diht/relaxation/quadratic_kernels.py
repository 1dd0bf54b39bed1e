"""The functions of :mod:`diht.relaxation.quadratic`, compiled: for many small problems."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np

from diht.constraints.kernels import shrink, threshold_scale
from diht.design.kernels import Array, Integer, dot, jit, jit_inlined
from diht.relaxation import quadratic
from diht.relaxation.quadratic import LARGEST_SYSTEM, MIDDLE, NONE, TOP


@jit
def assign(target: Array, source: Array) -> None:
    """Copy an array (a slice assignment takes half a second to compile, for the message of its error)."""
    for i in range(target.size):
        target[i] = source[i]


@jit_inlined
def exclude(p: Array, state: Array) -> None:
    """Use no feature outside."""
    for j in range(p.size):
        if state[j] < 0:
            p[j] = 0.0


@jit_inlined
def count(p: Array) -> int:
    """Number of nonzeros."""
    used = 0
    for x in p:
        used += x != 0.0
    return used


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


@jit_inlined
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


@jit_inlined
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
def relaxation(p: Array, state: Array, m: Integer, theta: float, work: Array) -> float:
    """Omega(p), infinite where p uses what it may not; the search for its threshold begins at theta."""
    total = free_magnitudes(p, state, work)
    tau = threshold_scale(work, m, 0.0, theta)
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


@jit_inlined
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


@jit_inlined
def progress(p: Array, c: Array, y: Array, cy: Array, old: Array) -> tuple[float, float, float]:
    """For the step d from y to p: d'd, d'Ad, and how much d goes against the step from the old p."""
    moved = bent = against = 0.0
    for j in range(p.size):
        d = p[j] - y[j]
        moved += d * d
        bent += d * (cy[j] - c[j])
        against -= d * (p[j] - old[j])
    return moved, bent, against


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
    size, whole, middle = np.int64(0), 0, 0.0  # a literal 0 would have `factorise` compiled for it as well
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


@jit_inlined
def drop(pattern: Array, p: Array, x: Array) -> bool:
    """Take the features of the middle that the step x would send through zero at once off the pattern; whether there are any."""
    dropped = False
    for j in range(p.size):
        if abs(pattern[j]) == MIDDLE and 0.1 * x[j] * pattern[j] < -abs(p[j]):
            pattern[j] = NONE
            dropped = True
    return dropped


@jit_inlined
def leave(pattern: Array, p: Array, x: Array) -> None:
    """Let a step take the features that are not on the pattern to zero."""
    for j in range(p.size):
        if pattern[j] == NONE:
            x[j] = -p[j]


@jit_inlined
def along(p: Array, direction: Array, step: float, pattern: Array, x: Array) -> None:
    """Write ``p + step direction`` to x; a feature of the middle that would change its sign stops at zero."""
    for j in range(p.size):
        x[j] = p[j] + step * direction[j]
        if abs(pattern[j]) == MIDDLE and x[j] * pattern[j] < 0.0:
            x[j] = 0.0


@jit_inlined
def extrapolate(p: Array, old: Array, beta: float, y: Array) -> None:
    """Write ``p + beta (p - old)`` to y."""
    for j in range(p.size):
        y[j] = p[j] + beta * (p[j] - old[j])


@jit_inlined
def sums(p: Array, c: Array, size: Array) -> tuple[float, float, float]:
    """The products p'c, |p|'|c| and |p|'size + size_y."""
    product, absolute, reach = 0.0, 0.0, float(size[p.size])
    for j in range(p.size):
        product += p[j] * c[j]
        absolute += abs(p[j] * c[j])
        reach += abs(p[j]) * size[j]
    return product, absolute, reach


safe_bound = jit_inlined(quadratic.safe_bound)

# The same code with the functions above instead of those of its own module; numba's cache looks for changes in both.
_code = quadratic.relax.__code__.replace(co_filename=__file__)
relax: Any = jit(FunctionType(_code, {**vars(quadratic), **globals()}))

r"""Solver of the relaxed problem of a quadratic loss, given by its Gram matrix.

With :math:`A = G - \sigma I`, :math:`\rho = \lambda/2 + \sigma` and :math:`\Omega` the constraint's relaxation it minimises

.. math:: F(p) = \tfrac12 p^\top A p - h^\top p + \rho\,\Omega(p) , \qquad c = h - A p , \qquad
          F(p) - \min F \le \rho\,\Omega(p) - p^\top c + \nu(c)^2 / (2 \rho) ,

half the shifted objective less its constant. The steps are those of accelerated proximal gradients with restarts; they find the
pattern of the solution. On a pattern (the features with z = 1, those with 0 < z < 1, and their signs)

.. math:: \Omega(p) = \tfrac12 \sum_{z_j = 1} p_j^2 + \frac{(\sum_{0 < z_j < 1} |p_j|)^2}{2 (m - |\{z_j = 1\}|)}

is quadratic, so that one linear system gives its minimiser: Newton steps are tried at once, and end the search. A feature's `state`
is 1 where it is inside (z = 1), -1 where it is outside, 0 where it is free.

:func:`relax` says what is done in which order, and the functions before it how, here by numpy. Those of the same names in
:mod:`diht.relaxation.quadratic_kernels` do the same compiled, many times faster where there are few features; but they take
seconds to compile. A :class:`Minimiser` turns to them when there is enough to do.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from diht.constraints.base import threshold_scale
from diht.design.base import UNIT
from diht.numerics.arrays import Vector
from diht.relaxation.barrier import barrier_operations, barrier_point

__all__ = ["Minimiser", "evaluate", "places", "relax"]

States: TypeAlias = NDArray[np.int8]
Quadratic: TypeAlias = tuple[
    Vector, Vector, float, float, States, int, int, float, float
]  # the first arguments of `relax`

UNDERFLOW = 1e-320
LARGEST_SYSTEM = 1500  # features up to which Newton's equations are solved
STALLED = 1000  # proximal steps in which the gap has not halved: rounding prevents progress
CHECK = 10  # proximal steps between two looks at the gap
FEWEST_STEPS = 30  # before an interior point method is thought of
EARLY = 4  # part of the steps that the method would be worth, after which a bound still below zero ends them
SURE = 0.1  # gap at which that method ends, relative to the one asked for, at most
FASTER, FASTER_COMPILED = 16.0, 4.0  # an operation of that method than one of a step, Newton's among them
CALLS = 4e6  # operations that the calls of an interior point method are worth
FREE = 1e6  # operations of Newton's method that need no reason
REMOVALS = 4
HALVINGS = 3  # of a Newton step
TOP, MIDDLE, NONE = 2, 1, 0  # patterns: z = 1, 0 < z < 1, z = 0
PATIENCE = 100  # proximal steps from which on compiled ones pay
PATIENCE_PER_FEATURE = 4  # or so many times the features: of many, numpy's steps are nearly as fast


class Minimum(NamedTuple):
    """What :func:`relax` has found: the relaxed value, the bound B(p), the safe bound; a curvature to begin with, and steps."""

    value: float
    bound: float
    safe: float
    curvature: float
    iterations: int


class Minimiser:
    """Minimise F for a sequence of similar problems: by numpy at first, compiled once many steps have been made.

    What is computed depends on the sequence alone, not on what has been compiled before. Steps that have cost as much as an
    interior point method would, without an end, or a quarter as much without a bound above zero, begin again where that one leads.

    Parameters
    ----------
    rank : int
        How many samples the Gram matrices are of, at most.
    many : bool
        Whether there are so many problems to come that all steps are compiled.
    """

    def __init__(self, rank: int, many: bool = False) -> None:
        self.rank = rank
        self.many = many
        self.by_numpy = 0  # proximal steps so far

    def __call__(
        self,
        K: Vector,
        size: Vector,
        error: float,
        norm: float,
        state: States,
        m: int,
        k: int,
        lam: float,
        sigma: float,
        curvature: float,
        p: Vector,
        c: Vector,
        tol: float,
        cutoff: float = np.inf,
        max_iter: int = 20_000,
    ) -> Minimum:
        """Minimise F from p, which is overwritten, and c with it; see :func:`relax`."""
        problem = (K, size, error, norm, state, m, k, lam, sigma)
        few = steps_worth(len(p), min(self.rank, len(p)), self.many)
        early, made = max(few // EARLY, FEWEST_STEPS), 0
        for part in filter(None, (early, few - early)):
            part = min(part, max_iter - made)
            found = self.steps(problem, curvature, p, c, tol, cutoff, part)
            curvature, made = found.curvature, made + found.iterations
            if found.iterations < part or made >= max_iter:
                return found._replace(iterations=made)
            if found.bound < 0.0:
                break
        rho = 0.5 * lam + sigma
        start = barrier_point(K, sigma, state, m, rho, p, SURE * tol)
        if start is not None and objective(K, sigma, state, m, rho, start) < objective(K, sigma, state, m, rho, p):
            p[:] = start
            found = Minimum(*measured(*problem, p, c), curvature, made + few)
            if found.value - found.bound <= tol * abs(found.value) or found.safe >= cutoff:
                return found
        then = self.steps(problem, curvature, p, c, tol, cutoff, max_iter - made)
        return then._replace(iterations=then.iterations + made + few)  # the method's own are worth so many

    def steps(
        self, problem: Quadratic, curvature: float, p: Vector, c: Vector, tol: float, cutoff: float, max_iter: int
    ) -> Minimum:
        """Make steps by numpy as long as those are worth no compiling, then compiled."""
        left = 0 if self.many else max(PATIENCE, PATIENCE_PER_FEATURE * len(p)) - self.by_numpy
        patience = max(0, min(max_iter, left))
        if patience > 0:
            with np.errstate(all="ignore"):
                found = Minimum(*relax(*problem, curvature, p, c, tol, cutoff, patience))
            self.by_numpy += found.iterations
            if found.iterations < patience or patience == max_iter:
                return found
            curvature, max_iter = found.curvature, max_iter - patience
        from diht.relaxation import quadratic_kernels as gram_kernels

        found = Minimum(*gram_kernels.relax(*problem, curvature, p, c, tol, cutoff, max_iter))
        return found._replace(iterations=found.iterations + patience)


def steps_worth(n: int, rank: int, compiled: bool = False) -> int:
    """How many steps cost as much as an interior point method; its operations are those of products of matrices, and fast."""
    method = barrier_operations(n, rank)
    steps = (method / FASTER_COMPILED + CALLS) / (n * n + 1e3) if compiled else method / FASTER / (n * n + 1e5)
    return max(int(steps), FEWEST_STEPS)


# ---------------------------------------------------------------------------------------------------------------------
# The steps


def dot(a: Vector, b: Vector, n: int) -> float:
    """Product of the first n entries."""
    return float(a[:n] @ b[:n])


def assign(target: Vector, source: Vector) -> None:
    """Copy an array."""
    target[:] = source


def exclude(p: Vector, state: States) -> None:
    """Use no feature outside."""
    p[state < 0] = 0.0


def count(p: NDArray[Any]) -> int:
    """Number of nonzeros."""
    return int(np.count_nonzero(p))


def correlate(K: Vector, sigma: float, p: Vector, c: Vector) -> float:
    """Write ``c = h - (G - sigma I) p`` and return ``y'y - h'p``, K being the Gram matrix with the targets last."""
    used = np.flatnonzero(p)
    left = K[-1] - (p[used] @ K[used] if 4 * len(used) < len(p) else p @ K[:-1])
    c[:] = left[:-1]
    if sigma > 0.0:
        c += sigma * p
    return float(left[-1])


def free_magnitudes(v: Vector, state: States) -> Vector:
    """``|v_j|`` of the free features, 0 for the others."""
    a = np.abs(v)
    a[state != 0] = 0.0
    return a


def squares_inside(v: Vector, state: States) -> float:
    """Sum of squares of the features inside."""
    inside = v[state > 0]
    return float(inside @ inside)


def squared_norm(v: Vector, state: States, m: int, work: Vector) -> float:
    """Squares of the features inside, and of the m largest free ones."""
    a = free_magnitudes(v, state)
    if m < len(a):
        a = np.partition(a, len(a) - m)[len(a) - m :] if m > 0 else a[:0]
    return squares_inside(v, state) + float(a @ a)


def relaxation(p: Vector, state: States, m: int, theta: float, work: Vector) -> float:
    """Omega(p), infinite where p uses what it may not; the search for its threshold begins at theta."""
    a = free_magnitudes(p, state)
    theta = threshold_scale(a, m, 0.0, theta)
    if theta == math.inf:
        return math.inf
    whole = a[a >= theta]
    total = squares_inside(p, state) + float(whole @ whole)
    if theta > 0.0:
        middle = float(a[a < theta].sum())
        total += middle * middle / max(m - len(whole), 1e-300)
    return 0.5 * total


def proximal_step(
    y: Vector,
    c: Vector,
    step: float,
    r: float,
    state: States,
    m: int,
    theta: float,
    p: Vector,
    pattern: States,
    work: Vector,
) -> float:
    """Write the proximal map of ``y + step c`` to p, and its pattern; return theta, which is p's own threshold as well."""
    q = np.where(state >= 0, y + step * c, 0.0)
    a = free_magnitudes(q, state)
    theta = threshold_scale(a, m, r, theta)
    factor = 1.0 / (1.0 + r)
    top = (state > 0) | ((a > 0.0) & (a >= (1.0 + r) * theta))
    p[:] = np.where(top, q * factor, np.copysign(np.maximum(np.minimum(a - r * theta, a * factor), 0.0), q))
    pattern[:] = np.where(top, TOP, np.sign(p))
    return theta


def progress(p: Vector, c: Vector, y: Vector, cy: Vector, old: Vector) -> tuple[float, float, float]:
    """For the step d from y to p: d'd, d'Ad, and how much d goes against the step from the old p."""
    d = p - y
    return float(d @ d), float(d @ (cy - c)), float(d @ (old - p))


def newton_step(
    K: Vector, sigma: float, rho: float, state: States, m: int, pattern: States, p: Vector, c: Vector, x: Vector
) -> bool:
    """Write what leads from p to the minimiser of F over its pattern to x; False where there is no such step."""
    active = np.flatnonzero(pattern)
    kinds, values = pattern[active], p[active]
    top = kinds == TOP
    whole = count(top) - count(state > 0)
    middle = float(np.abs(values[~top]).sum())
    if not 0 < len(active) <= LARGEST_SYSTEM or (middle > 0.0 and whole >= m):
        return False
    bend = rho / (m - whole) if middle > 0.0 else 0.0
    signs = np.where(top, 0.0, kinds)
    H = K.take(active, 0).take(active, 1)
    H += (bend * signs)[:, None] * signs
    # a little of the ridge keeps the system solvable where the middle has more features than G has rank
    H.flat[:: len(active) + 1] += np.where(top, rho, 1e-4 * rho) - sigma
    right = c[active] - np.where(top, rho * values, bend * middle * signs)
    _, solution, failed = dposv(H.T, right, lower=1, overwrite_a=1)
    if failed:
        return False
    x[:] = 0.0
    x[active] = solution
    return True


def drop(pattern: States, p: Vector, x: Vector) -> bool:
    """Take the features of the middle that the step x would send through zero at once off the pattern; whether there are any."""
    through = (np.abs(pattern) == MIDDLE) & (0.1 * x * pattern < -np.abs(p))
    pattern[through] = NONE
    return bool(through.any())


def leave(pattern: States, p: Vector, x: Vector) -> None:
    """Let a step take the features that are not on the pattern to zero."""
    x[:] = np.where(pattern == NONE, -p, x)


def along(p: Vector, direction: Vector, step: float, pattern: States, x: Vector) -> None:
    """Write ``p + step direction`` to x; a feature of the middle that would change its sign stops at zero."""
    x[:] = p + step * direction
    x[(np.abs(pattern) == MIDDLE) & (x * pattern < 0.0)] = 0.0


def extrapolate(p: Vector, old: Vector, beta: float, y: Vector) -> None:
    """Write ``p + beta (p - old)`` to y."""
    y[:] = p + beta * (p - old)


def sums(p: Vector, c: Vector, size: Vector) -> tuple[float, float, float]:
    """The products p'c, |p|'|c| and |p|'size + size_y."""
    products = p * c
    return float(products.sum()), float(np.abs(products).sum()), float(np.abs(p) @ size[:-1]) + float(size[-1])


# ---------------------------------------------------------------------------------------------------------------------
# What is written once for numpy and for the compiler


def safe_bound(
    last: float,
    product: float,
    absolute: float,
    reach: float,
    used: int,
    squares: float,
    lam: float,
    sigma: float,
    error: float,
    norm: float,
    k: int,
) -> tuple[float, float]:
    r"""Return B(p) as computed from the Gram matrix, and less all that its error and rounding can have added to it.

    The arguments are those of :func:`relax` and what :func:`correlate`, :func:`sums`, :func:`count` and :func:`squared_norm` say of
    p and c, whatever the order in which they add. With T = sum_j |p_j| size_j + size_y every entry of c is off by at most
    (error + gamma_n) size_j T, and `norm` is the constraint norm of the sizes, at most.
    """
    rho = 0.5 * lam + sigma
    value = last + product - squares / rho
    relative = (used + 16) * UNIT * 1.01
    off = (error * 1.01 + relative) * reach * 1.01
    largest = math.sqrt(squares) * (1.0 + (k + 8) * UNIT) + off * norm
    lost = off * reach + relative * absolute
    lost += (largest * largest * (1.0 + 8.0 * UNIT) - squares + (k + 1) * UNDERFLOW) / rho
    lost += 8.0 * UNIT * (abs(last) + absolute + largest * largest / rho)
    return value, value - lost * (1.0 + 1e-9)


def relax(
    K: Any,
    size: Any,
    error: float,
    norm: float,
    state: Any,
    m: int,
    k: int,
    lam: float,
    sigma: float,
    curvature: float,
    p: Any,
    c: Any,
    tol: float,
    cutoff: float,
    max_iter: int,
) -> tuple[float, float, float, float, int]:
    """Minimise F from p, which is overwritten, and c with it.

    Ends when the gap is within `tol` of the value, when the safe bound reaches `cutoff`, or when the steps are used up. Returns
    what a :class:`Minimum` holds.
    """
    n = p.size
    rho = 0.5 * lam + sigma
    room = np.empty((8, n))
    y, cy, old, cold, work, x, cx, direction = room[0], room[1], room[2], room[3], room[4], room[5], room[6], room[7]
    pattern = np.empty(n, dtype=np.int8)
    assign(y, p)
    exclude(y, state)
    last = correlate(K, sigma, y, cy)
    assign(old, y)
    assign(cold, cy)
    theta, momentum, iterations, wait, backoff = 0.0, 1.0, 0, 0, 1
    credit = FREE
    value = bound = safe = -math.inf
    look, reference, since = False, math.inf, 0
    for iterations in range(1, max_iter + 1):
        theta = proximal_step(y, cy, 1.0 / curvature, rho / curvature, state, m, theta, p, pattern, work)
        last = correlate(K, sigma, p, c)
        moved, bent, against = progress(p, c, y, cy, old)
        too_far = moved > 0.0 and bent > curvature * moved * (1.0 + 1e-9)
        if too_far and iterations < max_iter:  # the curvature was too small: once more
            curvature = max(1.2 * curvature, min(1.02 * bent / moved, 4.0 * curvature))
            continue
        wait -= 1
        tried = False
        used = count(p)
        credit += 4.0 * n * used  # Newton steps may cost as much as the proximal ones so far, and twice
        price = used**3 / 3.0 + 2.0 * n * used
        penalty = -1.0  # not known
        if wait <= 0 and price <= credit:
            possible = False
            for _ in range(REMOVALS):
                possible = newton_step(K, sigma, rho, state, m, pattern, p, c, direction)
                if not (possible and drop(pattern, p, direction)):
                    break
            if possible:
                leave(pattern, p, direction)
                credit -= price
                # F = (y'y - h'p - p'c - y'y)/2 + rho Omega
                penalty = rho * relaxation(p, state, m, theta, work)
                at_p = 0.5 * (last - dot(p, c, n)) + penalty
                step = 1.0
                for _ in range(HALVINGS):
                    along(p, direction, step, pattern, x)
                    last_x = correlate(K, sigma, x, cx)
                    penalty_x = rho * relaxation(x, state, m, theta, work)
                    if 0.5 * (last_x - dot(x, cx, n)) + penalty_x <= at_p:
                        assign(p, x)
                        assign(c, cx)
                        last, penalty = last_x, penalty_x
                        tried = True
                        break
                    step *= 0.5
                backoff = 1 if tried else min(2 * backoff, 64)
                wait = 0 if tried else backoff
                look = tried and step == 1.0
        if look or iterations % CHECK == 0 or moved == 0.0 or iterations == max_iter:
            look = False
            squares = squared_norm(c, state, m, work)
            product, absolute, reach = sums(p, c, size)
            bound, safe = safe_bound(
                last, product, absolute, reach, count(p), squares, lam, sigma, error, norm, k
            )  # fmt: skip
            if penalty < 0.0:
                penalty = rho * relaxation(p, state, m, theta, work)
            value = last - product + 2.0 * penalty
            gap = 2.0 * penalty - 2.0 * product + squares / rho
            if gap <= 0.5 * reference:
                reference, since = gap, iterations
            if gap <= tol * abs(value) or safe >= cutoff or moved == 0.0 or iterations - since >= STALLED:
                break
        if tried or against > 0.0:
            momentum = 1.0
            assign(y, p)
            assign(cy, c)
        else:
            following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum * momentum))
            beta = (momentum - 1.0) / following
            momentum = following
            extrapolate(p, old, beta, y)
            extrapolate(c, cold, beta, cy)
        assign(old, p)
        assign(cold, c)
    return value, bound, safe, curvature, iterations


# ---------------------------------------------------------------------------------------------------------------------
# At a given p


def objective(K: Vector, sigma: float, state: States, m: int, rho: float, p: Vector) -> float:
    """F(p), infinite where p uses what it may not."""
    if p[state < 0].any():
        return math.inf
    c = np.empty_like(p)
    last = correlate(K, sigma, p, c)  # y'y - h'p
    return 0.5 * (last - float(p @ c) - float(K[-1, -1])) + rho * relaxation(p, state, m, 0.0, c)


def measured(
    K: Vector,
    size: Vector,
    error: float,
    norm: float,
    state: States,
    m: int,
    k: int,
    lam: float,
    sigma: float,
    p: Vector,
    c: Vector,
) -> tuple[float, float, float]:
    """Write c, and return the relaxed value, the bound at p as computed, and the safe one."""
    last = correlate(K, sigma, p, c)
    product, absolute, reach = sums(p, c, size)
    squares, penalty = squared_norm(c, state, m, c), (0.5 * lam + sigma) * relaxation(p, state, m, 0.0, c)
    bound, safe = safe_bound(last, product, absolute, reach, count(p), squares, lam, sigma, error, norm, k)
    return last - product + 2.0 * penalty, bound, safe


def evaluate(
    K: Vector,
    size: Vector,
    error: float,
    norm: float,
    state: States,
    m: int,
    k: int,
    lam: float,
    sigma: float,
    p: Vector,
) -> tuple[float, float]:
    """The bound at p as computed, and the safe one."""
    return measured(K, size, error, norm, state, m, k, lam, sigma, p, np.empty_like(p))[1:]


def places(p: Vector, c: Vector, state: States, m: int, rho: float) -> tuple[float, Vector]:
    """Return theta, at the optimum the m-th largest free ``|c_j|`` in units of rho, and z."""
    a = free_magnitudes(c, state)
    theta = math.inf if m <= 0 else 0.0
    if 0 < m <= len(a):
        theta = float(np.partition(a, len(a) - m)[len(a) - m]) / rho
    a = free_magnitudes(p, state)
    z = ((a > 0.0) | (state > 0)).astype(np.float64)
    np.divide(a, theta, out=z, where=(a < theta) & (state == 0))
    return theta, z

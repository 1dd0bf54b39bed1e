r"""Nodes of a search tree on a Gram matrix, compiled: ridges, relaxation, bound, what to split on, screening, a model.

`GramRelaxation` in :mod:`diht.relaxation.gram` does the same by numpy, a node at a time, but for the screening. With I the features
inside and F the free ones, the relaxation is solved on the Schur complement :math:`S = M_{FF} - M_{FI} M_{II}^{-1} M_{IF}`:
whatever ridges features inside have, they are used whole. With limits of coefficients those inside may meet theirs, and M is used
as it is (see :mod:`diht.relaxation.limited_kernels`). The bound is then that of :math:`p_I = M_{II}^{-1} (h_I - M_{IF} p_F)`
and :math:`p_F`, with all that rounding can have added to it taken off.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from diht.bounds.ridge_kernels import factorised, find_ridges
from diht.constraints.kernels import threshold_scale
from diht.design.base import UNIT
from diht.design.gram import FLOOR
from diht.design.kernels import Array, Integer, dot, jit
from diht.numerics.arrays import Vector
from diht.relaxation.limited_kernels import limited_magnitudes, minimise_within
from diht.relaxation.quadratic import States
from diht.relaxation.quadratic_kernels import (
    assign,
    correlate,
    count,
    mth_largest,
    relax,
    safe_bound,
    squared_norm,
    sums,
)

SAFE, ROUNDING, FEATURE, MODEL, STEPS, SCREENED, USED = range(7)  # what is found of a node
FIGURES = 7
INSIDE = 1e-3  # share of a ridge that a feature inside keeps
# Ridges go to features whose share z of a place was undecided in the parent: weights are the roots of 4 z (1 - z) and a little.
LEAST_WEIGHT = 0.1
LEAST_LIMIT = 2.0**-960  # limits next to zero are no nearer: products with them are normal numbers
WHOLE = 1e-9
ACCURACY = 1e-9  # relative gap to which a relaxation is solved, at most
USEFUL = 0.02  # of what separates its bound from the best objective
MOST_STEPS = 2000
# Features, in units of the samples, up to which ridges are looked for: with more the least eigenvalue of G is next to zero.
SHIFTED = 0.75


class Quadratic(NamedTuple):
    """A problem: its Gram matrix as in `diht.design.gram`, lam, how many features are allowed, how many at most can be shifted."""

    matrix: Vector
    size: Vector
    error: float
    lam: float
    k: int
    rank: int
    margins: float  # for rounding, with which ridges are proved
    limited: bool  # whether there are limits of coefficients
    lower: Vector
    upper: Vector


class Batch(NamedTuple):
    """Nodes, a row of each array for one.

    Attributes
    ----------
    states : array of int8
        Which features are inside (1), free (0) and outside (-1).
    p, ridges : arrays
        Those of the parents; then what proves the bounds.
    fixed : array of int8
        What screening decides: features that belong in (1) or out (-1).
    chosen : array of int8
        The supports of models.
    found : array
        Figures: the safe bound, what was subtracted from it, what to split on (-1 where nothing is left), the objective of the
        model, steps, what models cost at least that screening excludes, features.
    """

    states: States
    p: Vector
    ridges: Vector
    fixed: States
    chosen: States
    found: Vector

    @classmethod
    def of(cls, states: States, p: Vector, ridges: Vector) -> Batch:
        """Make room for what will be found."""
        return cls(states, p, ridges, np.zeros_like(states), np.zeros_like(states), np.zeros((len(states), FIGURES)))


@jit
def largest(values: Array, m: Integer) -> float:
    """The m-th largest of some numbers, compiled once."""
    return mth_largest(values, m)


@jit
def gathered(K: Array, sizes: Array, lam: float, state: Array, order: Array, size: Array) -> tuple[Array, int, int]:
    """The Gram matrix, with the ridge, of the features inside, the free ones and the targets; how many are inside, and in all.

    Which features these are is written to `order`, and their sizes.
    """
    n = inside = 0
    for wanted in (1, 0):
        for j in range(state.size):
            if state[j] == wanted:
                order[n], size[n] = j, sizes[j]
                n += 1
                inside += wanted
    last = state.size
    size[n] = sizes[last]
    M = np.empty((n + 1, n + 1))
    for i in range(n):
        row = K[order[i]]
        for j in range(n):
            M[i, j] = row[order[j]]
        M[i, i] += 0.5 * lam
        M[i, n] = M[n, i] = row[last]
    M[n, n] = K[last, last]
    return M, inside, n


@jit
def shares(y: Array, m: Integer, z: Array) -> None:
    """Write the perspective variables of the free features of a model, in units of the roots of ridges."""
    for i in range(z.size):
        z[i] = abs(y[i])
    theta = threshold_scale(z, m, 0.0, 0.0)
    for i in range(z.size):
        z[i] = min(z[i] / theta, 1.0) if theta > 0.0 else (1.0 if z[i] > 0.0 else 0.0)


@jit
def shift(M: Array, size: Array, error: float, lam: float, y: Array, m: Integer, margins: float, own: Array) -> bool:
    """Write ridges of its own for a node; False where no free feature has a larger one than the problem's, which then stay.

    y is the parent's model on the free features, in units of the roots of its ridges.
    """
    n, inside, z = own.size, own.size - y.size, np.empty(y.size)
    shares(y, m, z)
    scaled, scale, weights, norm = np.empty((n, n)), np.empty(n), np.empty(n), 0.0
    for i in range(n):
        scale[i] = math.ldexp(1.0, math.frexp(max(M[i, i], 2.0**-900))[1] // 2)
        norm += (size[i] / scale[i]) ** 2
        weights[i] = INSIDE if i < inside else np.sqrt(4.0 * z[i - inside] * (1.0 - z[i - inside]) + LEAST_WEIGHT)
    for i in range(n):
        for j in range(n):
            scaled[i, j] = M[i, j] / (scale[i] * scale[j])
    found = find_ridges(scaled, scale, error * norm * (1.0 + 1e-9), weights, margins, own)
    larger = False
    for i in range(inside, n):
        larger |= found and own[i] > 0.5 * lam
    if not larger:
        for i in range(n):
            own[i] = 0.5 * lam
    return larger


@jit
def first_columns(M: Array, used: Integer) -> Array:
    """The first columns of the Cholesky factor of M."""
    n = M.shape[0]
    L = np.empty((n, used))
    for i in range(n):
        for j in range(used):
            L[i, j] = M[i, j]
    factorised(L, n, used)
    return L


@jit
def complement(M: Array, inside: Integer, own: Array) -> tuple[Array, Array, float]:
    """The first columns of the Cholesky factor, the Schur complement in units of the ridges' roots, a guess of its curvature."""
    L, n = first_columns(M, inside), M.shape[0]
    free = n - inside
    S, transposed, roots = np.empty((free, free)), np.empty((inside, free)), np.ones(free)
    for j in range(free - 1):
        roots[j] = np.sqrt(own[inside + j])
    for q in range(inside):
        for j in range(free):
            transposed[q, j] = L[inside + j, q] / roots[j]
    for i in range(free):
        row, scale = S[i], 1.0 / roots[i]
        for j in range(free):
            row[j] = M[inside + i, inside + j] * (scale / roots[j])
        for q in range(inside):
            factor, column = transposed[q, i], transposed[q]
            for j in range(free):
                row[j] -= factor * column[j]
    curvature = 0.0
    for i in range(free - 1):
        total = 0.0
        for j in range(free - 1):
            total += abs(S[i, j])
        curvature = max(curvature, total)
    return L, S, max(curvature / np.sqrt(free - 1), 1e-3)


@jit
def fill_in(L: Array, p: Array) -> None:
    """Write the best coefficients of the features inside to the first entries of p, given the others."""
    n, inside = p.size, L.shape[1]
    for i in range(inside):
        right = L[n, i]
        for j in range(inside, n):
            right -= L[j, i] * p[j]
        p[i] = right
    for i in range(inside - 1, -1, -1):
        p[i] /= L[i, i]
        for j in range(i):
            p[j] -= L[i, j] * p[i]


def solve_relaxation(S: Vector, m: int, curvature: float, x: Vector, objective: float, known: float) -> int:
    """Minimise over the free features from x, as far as that is of use; return how many steps were made."""
    n = len(x)
    nothing, state, c = np.zeros(n + 1), np.zeros(n, dtype=np.int8), np.empty(n)
    steps, gap = 0, objective - known
    while True:
        tol = max(ACCURACY, USEFUL * gap / abs(objective)) if objective < np.inf else ACCURACY
        value, bound, safe, curvature, more = relax(
            S, nothing, 0.0, 0.0, state, m, m, 0.0, 1.0, curvature, x, c, tol, objective, MOST_STEPS
        )
        steps += more
        left = objective - bound
        if safe >= objective or tol <= ACCURACY or value - bound <= 2.0 * USEFUL * left or steps >= MOST_STEPS:
            return int(steps)
        gap = max(min(0.5 * gap, left), 0.0)


@jit
def certified(
    M: Array,
    size: Array,
    own: Array,
    error: float,
    lam: float,
    inside: Integer,
    m: Integer,
    limits: Any,
    p: Array,
    c: Array,
) -> tuple[float, float]:
    """The bound at p and the safe one, as `GramRelaxation.bound` computes them.

    c is written in units of the roots; with limits (lower and upper ones, empty where there are none), the roots of what it
    is worth between them, which change no faster than c.
    """
    n = p.size
    lower, upper = limits
    sizes, x, state = np.empty(n + 1), np.empty(n), np.zeros(n, dtype=np.int8)
    last = correlate(M, 0.0, p, c)
    for i in range(n):
        root = np.sqrt(own[i])
        x[i] = p[i] * root
        c[i] = c[i] / root + x[i]
        sizes[i] = np.sqrt(size[i] ** 2 + 0.5 * lam) / root * (1.0 + 1e-9) + FLOOR
        state[i] = i < inside
    sizes[n] = size[n] * (1.0 + 1e-9) + FLOOR
    product, absolute, reach = sums(x, c, sizes)
    if lower.size > 0:
        limited_magnitudes(c, lower, upper, c)
    squares = squared_norm(c, state, m, np.empty(n)) * (1.0 + (16.0 * UNIT if lower.size > 0 else 0.0))
    k = min(m + inside, n)
    least, norm = largest(sizes[:n], k) if k > 0 else np.inf, 0.0
    for i in range(n):  # ties may count once too often
        norm += sizes[i] ** 2 if sizes[i] >= least else 0.0
    return safe_bound(
        last, product, absolute, reach, count(x), squares, 0.0, 1.0, error + 8.0 * UNIT,
        np.sqrt(norm) * (1.0 + 1e-9), m + inside,
    )  # fmt: skip


@jit
def screen(c: Array, order: Array, inside: Integer, m: Integer, safe: float, ceiling: float, fixed: Array) -> float:
    """Mark the free features that no better model may use (-1), or lack (1); return what a model that does so costs at least."""
    n = c.size - inside
    squares = np.empty(n)
    for i in range(n):
        squares[i] = c[inside + i] ** 2
    last, following = largest(squares, m), largest(squares, m + 1)
    least, needed = np.inf, 0
    for i in range(n):
        used = squares[i] >= last
        fall = squares[i] - following if used else last - squares[i]
        fall -= 16.0 * UNIT * (squares[i] + last)
        raised = safe + fall - 16.0 * UNIT * (abs(safe) + fall)
        if raised >= ceiling and (not used or needed < m):
            needed += used
            fixed[order[inside + i]] = 1 if used else -1
            least = min(least, raised)
    return least


@jit
def model_of(M: Array, inside: Integer, m: Integer, x: Array, order: Array, chosen: Array) -> float:
    """Mark the features inside and the m largest of the free ones; return the objective of the best model on them."""
    n = x.size
    magnitudes = np.empty(n)
    for i in range(n):
        magnitudes[i] = abs(x[i])
    least = largest(magnitudes, m)
    at, used = np.empty(inside + n, dtype=np.int64), inside
    for i in range(inside):
        at[i] = i
    for exact in range(2):  # those above the m-th largest first, then those that equal it
        for i in range(n):
            if (magnitudes[i] == least if exact else magnitudes[i] > least) and used < inside + m:
                at[used] = inside + i
                used += 1
    H, last = np.empty((used + 1, used + 1)), M.shape[0] - 1
    for i in range(used):
        chosen[order[at[i]]] = 1
        for j in range(i + 1):
            H[i, j] = M[at[i], at[j]]
        H[used, i] = M[last, at[i]]
    if not factorised(H, used + 1, used):
        return -np.inf
    return float(M[last, last] - dot(H[used], H[used], used))


@jit
def branching_feature(z: Array, x: Array, fixed: Array, order: Array, inside: Integer, m: Integer) -> int:
    """The undecided feature with the largest share of a place below 1, or the largest x where there is none; -1 if all fit in."""
    share, size, feature, largest, left = WHOLE, -1.0, -1, -1, 0
    for i in range(x.size):
        j = order[inside + i]
        m -= fixed[j] > 0
        if fixed[j] != 0:
            continue
        left += 1
        if share < z[i] < 1.0 - WHOLE:
            share, feature = z[i], j
        if abs(x[i]) > size:
            size, largest = abs(x[i]), j
    if m <= 0 or left <= m:
        return -1
    return feature if feature >= 0 else largest


@jit
def scaled_limits(lower: Array, upper: Array, roots: Array, order: Array) -> tuple[Array, Array]:
    """The limits of a node's features in units of the roots of their ridges; those next to zero are no nearer."""
    low, high = np.empty(roots.size), np.empty(roots.size)
    for i in range(roots.size):
        least, most = lower[order[i]] * roots[i], upper[order[i]] * roots[i]
        low[i] = min(least, -LEAST_LIMIT) if lower[order[i]] < 0.0 else 0.0
        high[i] = max(most, LEAST_LIMIT) if upper[order[i]] > 0.0 else 0.0
    return low, high


@jit
def solve_limited(
    M: Array, whole: Integer, m: Integer, roots: Array, limits: Any, x: Array, goal: tuple[float, float]
) -> tuple[int, Array]:
    """Minimise under limits from x, as far as the best objective and a useful share make it worth while; steps, and places.

    The first features are inside, as many as `whole`.
    """
    n, (lower, upper) = roots.size, limits
    K, state, z = np.empty((n + 1, n + 1)), np.zeros(n, dtype=np.int8), np.zeros(n)
    for i in range(n):
        x[i] *= roots[i]
        state[i] = i < whole
        for j in range(n):
            K[i, j] = M[i, j] / (roots[i] * roots[j])
        K[i, n] = K[n, i] = M[n, i] / roots[i]
    K[n, n] = M[n, n]
    objective, useful = goal
    steps = minimise_within(K, (state, m, lower, upper), x, z, (objective, useful, ACCURACY), MOST_STEPS)
    for i in range(n):
        x[i] /= roots[i]
    return steps, z


def solve_node(quadratic: Any, batch: Any, i: int, known: float, objective: float, ceiling: float) -> None:
    """Solve a node of a batch; see `solve_nodes`."""
    state, p, ridges, found = batch.states[i], batch.p[i], batch.ridges[i], batch.found[i]
    chosen, fixed, lam = batch.chosen[i], batch.fixed[i], quadratic.lam
    order, size = np.empty(state.size, dtype=np.int64), np.empty(state.size + 1)
    M, inside, n = gathered(quadratic.matrix, quadratic.size, lam, state, order, size)
    order, m = order[:n], quadratic.k - inside
    settled, steps = m <= 0 or n - inside <= m, 1
    x, own = np.zeros(n) if settled else p[order], np.full(n, 0.5 * lam)
    whole = n if settled and m > 0 else inside  # features that are in
    if settled:
        fill_in(first_columns(M, whole), x)
    elif n <= SHIFTED * quadratic.rank:
        parents = x[inside:] * np.sqrt(ridges[order[inside:]])
        shift(M, size, quadratic.error, lam, parents, m, quadratic.margins, own)
    roots, limits, z = np.sqrt(own), (np.empty(0), np.empty(0)), np.empty(n - inside)
    y = x[inside:] * roots[inside:]
    if quadratic.limited:
        limits = scaled_limits(quadratic.lower, quadratic.upper, roots, order)
        goal = objective, 0.0 if settled else USEFUL
        steps, places = solve_limited(M, whole, max(m, 0), roots, limits, x, goal)
        y, z = x[inside:], places[inside:]
    elif not settled:
        L, S, curvature = complement(M, inside, own)
        steps = solve_relaxation(S, m, curvature, y, objective, known)
        assign(x[inside:], y / roots[inside:])
        fill_in(L, x)
        shares(y, m, z)
    c = np.empty(n)
    value, safe = certified(M, size, own, quadratic.error, lam, inside, m, limits, x, c)
    p[:] = 0.0
    ridges[:] = 0.0
    p[order] = x
    ridges[order] = own
    found[SAFE], found[ROUNDING], found[USED], found[STEPS] = safe, value - safe, n, steps
    found[FEATURE], found[MODEL], found[SCREENED] = -1.0, value, np.inf
    if settled:
        chosen[order[:whole]] = 1
        return
    found[MODEL] = model_of(M, inside, m, y, order, chosen)
    if safe < ceiling:
        found[SCREENED] = screen(c, order, inside, m, safe, ceiling, fixed)
    found[FEATURE] = branching_feature(z, y, fixed, order, inside, m)


def solve_nodes(quadratic: Any, batch: Any, known: Vector, objective: float, ceiling: float) -> None:
    """Solve the nodes of a batch, whose parents have the bounds `known`, as far as the best objective makes it worth while.

    Models that cost more than the ceiling, by screening, are set apart. Kernels are called from Python, 40 microseconds a node.
    `solve_many_nodes` is compiled as a whole, which takes as long again: what a kernel calls is compiled once more with its caller.
    """
    for i in range(batch.states.shape[0]):
        solve_node(quadratic, batch, i, known[i], objective, ceiling)


def compiled(function: Any, **callees: Any) -> Any:
    """Compile a function of this module as it is, with some of those that it calls compiled, too."""
    return jit(FunctionType(function.__code__, {**globals(), **callees}, f"compiled_{function.__name__}"))


solve_many_nodes = compiled(solve_nodes, solve_node=compiled(solve_node, solve_relaxation=compiled(solve_relaxation)))

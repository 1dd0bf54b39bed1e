r"""Nodes of a search tree of the logistic loss, compiled: Newton's method, bound, what to split on, a model.

`NewtonNodes` in :mod:`diht.solvers.nodes` does the same by numpy, a node at a time. At a model (w, b) the loss is replaced by its
quadratic model, b eliminated, and the relaxation of that is solved on its Gram matrix; :math:`\delta` leads there. The dual point
is that of the quadratic model, :math:`\alpha = l'(u) + l''(u) (X \delta + c)`, projected on the feasible ones: a leaf keeps its
rule. The bound is D(alpha) less what rounding can have added, by the formula of `diht.bounds.duality.lower_bound` but for the sums
over the samples, whose errors here grow with their number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from diht.constraints.kernels import threshold_scale
from diht.design.base import UNIT
from diht.design.kernels import Array, Integer, dot, jit, jit_inlined
from diht.relaxation.node_kernels import gather, largest
from diht.relaxation.quadratic import States, Vector
from diht.relaxation.quadratic_kernels import assign, relax, relaxation, squared_norm
from diht.samples.logistic_kernels import decayed, logistic_sums

__all__ = ["Batch", "Classified", "solve_nodes"]

BOUND, ROUNDING, FEATURE, STEPS, USED, INTERCEPT, DRIFT = range(7)  # what is found of a node
FIGURES = 7
PRODUCT, SLOPE, CURVATURE, CHANGE, DUAL, TRIAL = range(6)  # vectors of the samples
TINY = 2.0**-1074  # what a product that underflows may lose
ELEMENTWISE = 16.0  # relative error of a conjugate, in units of u
WHOLE = 1e-9  # a share of a place that differs from 0 or 1 by less counts as none, or all of it
USEFUL = 0.05  # a relaxation is solved to this fraction of what separates its bound from the best objective
ACCURACY = 1e-9  # and no further than this
INNER = 0.1  # accuracy of a quadratic model's solution, relative to the gap
EXACT = 1e-12  # relative decrease that rounding hides
ARMIJO = 1e-4
HALVINGS = 40
MOST_STEPS = 60  # Newton's
MOST_INNER = 2000  # of a quadratic model's relaxation
MOST_SHIFTS = 100  # in search of an intercept
LONGEST = 4.0  # step of an intercept at first: beyond, a sample's loss is no quadratic


class Classified(NamedTuple):
    """A problem: its columns, one row of an array each, labels and weights; bounds on the errors of X'c for a c of norm one."""

    columns: Vector
    y: Vector
    s: Vector
    lam: float
    k: int
    intercept: bool
    error: Vector
    underflow: Vector
    norms: Vector  # of the columns


class Batch(NamedTuple):
    """Nodes, a row of each array for one.

    Attributes
    ----------
    states : array of int8
        Which features are inside (1), free (0) and outside (-1).
    w : array
        The parents' models; then the relaxations'.
    at, step : arrays
        The model and the step of the rule that proves the bound.
    chosen : array of int8
        The supports of models.
    found : array
        Figures: the bound, what was subtracted from it, what to split on (-1 where nothing is left), steps, features, the
        intercept of the rule (at first the parent's), its drift.
    """

    states: States
    w: Vector
    at: Vector
    step: Vector
    chosen: States
    found: Vector

    @classmethod
    def of(cls, states: States, w: Vector) -> Batch:
        """Make room for what will be found."""
        found = np.zeros((len(states), FIGURES))
        return cls(states, w, np.zeros_like(w), np.zeros_like(w), np.zeros_like(states), found)


@jit
def product(columns: Array, order: Array, x: Array, out: Array) -> None:
    """Write the sum of some columns times x."""
    for i in range(out.size):
        out[i] = 0.0
    for j in range(x.size):
        factor, column = x[j], columns[order[j]]
        if factor != 0.0:
            for i in range(out.size):
                out[i] += factor * column[i]


@jit
def best_shift(problem: Any, u: Array, b: float) -> tuple[float, float]:
    """The best intercept for the margins u, searched from b, and the loss: Newton's method, kept in a bracket."""
    low, high, longest = -np.inf, np.inf, LONGEST
    value, slope, size, curvature = logistic_sums(u, b, problem.y, problem.s)
    if not problem.intercept:
        return b, value
    for _ in range(MOST_SHIFTS):
        if abs(slope) <= 8.0 * UNIT * size:
            break
        if slope > 0.0:
            high = b
        else:
            low = b
        new = b + min(max(-slope / curvature, -longest), longest)
        if not low < new < high:
            new = 0.5 * (low + high)
            if not low < new < high:
                break
        b, longest = new, 2.0 * longest
        value, slope, size, curvature = logistic_sums(u, b, problem.y, problem.s)
    return b, value


@jit
def differentiate(u: Array, b: float, y: Array, a: Array, h: Array) -> None:
    """Write l' and l'' at the margins u + b."""
    for i in range(u.size):
        m = y[i] * (u[i] + b)
        e = decayed(abs(m))
        share = 1.0 / (1.0 + e)
        a[i] = -y[i] * (e * share if m >= 0.0 else share)
        h[i] = e * share * share


@jit
def weighed(problem: Any, order: Array, rows: Array, K: Array) -> None:
    """Write the Hessian, the intercept eliminated, and the gradient, last, of the loss with these slopes and curvatures."""
    s, a, h = problem.s, rows[SLOPE], rows[CURVATURE]
    n, q = s.size, K.shape[0] - 1
    weights, column, center, total = np.empty(n), np.empty(n), np.empty(q), 0.0
    for i in range(n):
        weights[i] = s[i] * h[i]
        total += weights[i]
        column[i] = s[i] * a[i]
    for j in range(q):
        K[q, j] = dot(problem.columns[order[j]], column, n)
    for j in range(q):
        own = problem.columns[order[j]]
        for i in range(n):
            column[i] = weights[i] * own[i]
        if problem.intercept:
            center[j] = dot(problem.columns[order[j]], weights, n)
        for i in range(j + 1):
            K[i, j] = K[j, i] = dot(problem.columns[order[i]], column, n)
    if problem.intercept and total > 0.0:
        for j in range(q):
            for i in range(q):
                K[i, j] -= center[i] * center[j] / total


@jit
def quadratic_target(
    K: Array, state: Array, m: Integer, lam: float, x: Array, smooth: float, tol: float
) -> tuple[Array, float]:
    """Minimise the quadratic model at x, whose loss is `smooth`; return the minimiser and the relaxed value there.

    K holds the Hessian and the gradient; then twice the quadratic model as `relax` has it.
    """
    q, steepest = x.size, 1e-3 * lam
    p, c, work = x.copy(), np.empty(q), np.empty(q)
    last = 2.0 * smooth
    for i in range(q):
        total = pull = 0.0
        for j in range(q):
            total += abs(K[i, j])
            pull += K[i, j] * x[j]
        work[i] = pull - K[q, i]
        last += x[i] * (work[i] - K[q, i])
        steepest = max(steepest, total / np.sqrt(q))
    for i in range(q):
        K[i, q] = K[q, i] = work[i]
    K[q, q] = last
    # For a constant `relax` would be compiled once more.
    found = relax(
        K, np.zeros(q + 1), 0.0, 0.0, state, m, m, 2.0 * lam, 0.0, steepest, p, c, tol, np.inf, np.int64(MOST_INNER)
    )
    return p, 0.5 * found[0]


@jit
def balance(problem: Any, alpha: Array) -> None:
    """Project on F and, with an intercept, on the points of sum zero: Newton's method on a piecewise linear function."""
    y, s, shift, least = problem.y, problem.s, 0.0, np.inf
    for _ in range(MOST_SHIFTS):
        total = size = inner = 0.0
        for i in range(y.size):
            a = alpha[i] + shift
            clipped = min(max(a, -1.0), 0.0) if y[i] > 0.0 else min(max(a, 0.0), 1.0)
            total += s[i] * clipped
            size += s[i] * abs(clipped)
            inner += s[i] if clipped == a else 0.0
        if not problem.intercept or abs(total) <= 8.0 * UNIT * size or not (abs(total) <= 0.9 * least and inner > 0.0):
            break
        least = abs(total)
        shift -= total / inner
    for i in range(y.size):
        a = alpha[i] + shift
        alpha[i] = min(max(a, -1.0), 0.0) if y[i] > 0.0 else min(max(a, 0.0), 1.0)


@jit
def entropy(p: float) -> float:
    """The conjugate p log p + (1 - p) log(1 - p)."""
    return (p * np.log(p) if p > 0.0 else 0.0) + ((1.0 - p) * np.log1p(-p) if p < 1.0 else 0.0)


@jit
def largest_squares(v: Array, state: Array, m: Integer) -> float:
    """Squares of the features inside, and of the m largest free ones."""
    return squared_norm(v, state, m, np.empty(v.size))


@jit
def node_norm(values: Array, order: Array, state: Array, m: Integer) -> float:
    """The constraint norm, rounded up, of entries that are not negative."""
    q, most = state.size, 0.0
    own = np.empty(q)
    for j in range(q):
        own[j] = values[order[j]]
        most = max(most, own[j])
    if most == 0.0:
        return 0.0
    for j in range(q):
        own[j] /= most
    return float(most * np.sqrt(largest_squares(own, state, m)) * (1.0 + 1e-9))


@jit
def certified(problem: Any, order: Array, state: Array, m: Integer, alpha: Array) -> tuple[float, float]:
    """The bound at a dual point as computed, and less all that rounding can have added: see `duality.lower_bound`."""
    s, n, q = problem.s, alpha.size, state.size
    c, g = np.empty(n), np.empty(q)
    conjugate = size = squares = positive = negative = 0.0
    for i in range(n):
        c[i] = s[i] * alpha[i]
        conjugate += s[i] * entropy(abs(alpha[i]))
        size += abs(c[i])
        squares += c[i] * c[i]
        positive += max(c[i], 0.0)
        negative += max(-c[i], 0.0)
    for j in range(q):
        g[j] = dot(problem.columns[order[j]], c, n)
    of_g = largest_squares(g, state, m)
    value = -conjugate - of_g / (2.0 * problem.lam)
    norm, added = np.sqrt(squares + 1e-290) * (1.0 + 1e-9), (n + 2.0) * UNIT
    error = 2.0 * (norm * node_norm(problem.error, order, state, m) + node_norm(problem.underflow, order, state, m))
    lost = (ELEMENTWISE * UNIT + added) * (2.0 * size - conjugate) * (1.0 + 1e-9) + 4.0 * n * TINY
    side = max(positive, negative)
    if problem.intercept and side > 0.0:
        off = abs(positive - negative) + (added + 2.0 * UNIT) * (positive + negative)
        shrink = min(1.0, off * (1.0 + 1e-9) / (side * (1.0 - 1e-9)))
        error += shrink * norm * node_norm(problem.norms, order, state, m)
        lost -= 2.0 * shrink * conjugate
    relative = (problem.k + 16.0) * UNIT
    reach = np.sqrt(of_g + problem.k * TINY) * (1.0 + relative) + error
    lost += (reach * reach * (1.0 + relative) - of_g) / (2.0 * problem.lam)
    return value, value - lost - 8.0 * UNIT * (abs(value) + abs(lost))


@jit
def predict(problem: Any, order: Array, direction: Array, rows: Array) -> float:
    """Write how margins change along a direction, and the dual point of the quadratic model; return the change of the intercept."""
    a, h, change, alpha, s = rows[SLOPE], rows[CURVATURE], rows[CHANGE], rows[DUAL], problem.s
    product(problem.columns, order, direction, change)
    drift = total = 0.0
    for i in range(s.size):
        drift -= s[i] * h[i] * change[i]
        total += s[i] * h[i]
    drift = drift / total if problem.intercept and total > 0.0 else 0.0
    for i in range(s.size):
        alpha[i] = a[i] + h[i] * (change[i] + drift)
    balance(problem, alpha)
    return drift


@jit
def descend(
    problem: Any, rows: Array, direction: Array, b: float, promised: float, at: tuple[Any, ...]
) -> tuple[float, float, float]:
    """Make the longest step that gains a share of what its size promises; return the new b and the objective, and the size."""
    state, m, x, value = at
    moved, work, size = np.empty(x.size), np.empty(x.size), 1.0
    for _ in range(HALVINGS):
        for i in range(rows.shape[1]):
            rows[TRIAL, i] = rows[PRODUCT, i] + size * rows[CHANGE, i]
        for j in range(x.size):
            moved[j] = x[j] + size * direction[j]
        shift, loss = best_shift(problem, rows[TRIAL], b)
        new = loss + problem.lam * relaxation(moved, state, m, 0.0, work)
        if new <= value - ARMIJO * size * promised:
            assign(x, moved)
            assign(rows[PRODUCT], rows[TRIAL])
            return shift, new, size
        size *= 0.5
    return b, value, 0.0


@jit
def newton(
    problem: Any, order: Array, state: Array, m: Integer, x: Array, rule: Array, goal: tuple[float, float, float]
) -> tuple[Any, ...]:
    """Minimise the relaxation from x as far as a goal makes it worth while: the best objective, a known bound, a useful share.

    `rule` gets the model and the step of the best dual point. Returns the bound and what was subtracted from it, b and its
    drift in the rule, and how many steps were made; b is the last entry of x.
    """
    objective, known, useful = goal
    q, rows = x.size - 1, np.empty((6, problem.s.size))
    w, work, K = x[:q], np.empty(q), np.empty((q + 1, q + 1))
    best, rounding, at_b, drift, steps = -np.inf, 0.0, 0.0, 0.0, 0
    product(problem.columns, order, w, rows[PRODUCT])
    b, smooth = best_shift(problem, rows[PRODUCT], x[q])
    value = smooth + problem.lam * relaxation(w, state, m, 0.0, work)
    while steps < MOST_STEPS:
        steps += 1
        differentiate(rows[PRODUCT], b, problem.y, rows[SLOPE], rows[CURVATURE])
        weighed(problem, order, rows, K)
        gap = min(max(value - max(best, known), 0.0), value)
        smooth = value - problem.lam * relaxation(w, state, m, 0.0, work)
        tol = min(max(INNER * gap / value, 1e-13), 1e-3)
        target, least = quadratic_target(K, state, m, problem.lam, w, smooth, tol)
        for j in range(q):
            target[j] -= w[j]
        moves = predict(problem, order, target, rows)
        bound, safe = certified(problem, order, state, m, rows[DUAL])
        if safe > best:
            best, rounding, at_b, drift = safe, bound - safe, b, moves
            assign(rule[0], w)
            assign(rule[1], target)
        promised = value - least
        if best >= objective or not promised > EXACT * value:
            break
        b, value, size = descend(problem, rows, target, b, promised, (state, m, w, value))
        if size == 0.0 or value - best <= max(useful * (objective - best), ACCURACY * value):
            break
    x[q] = b
    return best, rounding, at_b, drift, steps


@jit
def choose(x: Array, order: Array, inside: Integer, m: Integer, chosen: Array) -> None:
    """Mark the features inside and the m largest of the free ones."""
    n = order.size - inside
    magnitudes = np.empty(n)
    for j in range(inside):
        chosen[order[j]] = 1
    if n == 0:
        return
    for i in range(n):
        magnitudes[i] = abs(x[inside + i])
    least = largest(magnitudes, m)
    for exact in range(2):  # those above the m-th largest first, then those that equal it
        for i in range(n):
            if m > 0 and (magnitudes[i] == least if exact else magnitudes[i] > least):
                chosen[order[inside + i]] = 1
                m -= 1


@jit
def branching_feature(x: Array, order: Array, inside: Integer, m: Integer) -> int:
    """The free feature whose share of a place is nearest to 1/2, or the largest where all are whole."""
    n = order.size - inside
    magnitudes = np.empty(n)
    for i in range(n):
        magnitudes[i] = abs(x[inside + i])
    theta = threshold_scale(magnitudes, m, 0.0, 0.0)
    share, size, feature, last = WHOLE, -1.0, -1, -1
    for i in range(n):
        z = min(magnitudes[i] / theta, 1.0) if theta > 0.0 else 1.0
        if min(z, 1.0 - z) > share:
            share, feature = min(z, 1.0 - z), order[inside + i]
        if magnitudes[i] > size:
            size, last = magnitudes[i], order[inside + i]
    return feature if feature >= 0 else last


@jit_inlined
def solve_node(problem: Any, batch: Any, i: Integer, known: float, objective: float) -> None:
    """Solve a node of a batch; see `solve_nodes`."""
    state, w, found = batch.states[i], batch.w[i], batch.found[i]
    places = np.empty(state.size, dtype=np.int64)
    inside, free = gather(state, places)
    m = problem.k - inside
    settled = m <= 0 or free <= m
    if settled:  # one support is left
        inside, free, m = inside if m <= 0 else inside + free, 0, 0
    q = inside + free
    order, own, x, rule = places[:q], np.zeros(q, dtype=np.int8), np.empty(q + 1), np.zeros((2, q))
    for j in range(q):
        own[j], x[j] = j < inside, w[order[j]]
    x[q] = found[INTERCEPT]
    bound, rounding, b, drift, steps = newton(
        problem, order, own, m, x, rule, (objective, known, 0.0 if settled else USEFUL)
    )
    for j in range(w.size):
        w[j] = 0.0
    for j in range(q):
        w[order[j]], batch.at[i, order[j]], batch.step[i, order[j]] = x[j], rule[0, j], rule[1, j]
    found[BOUND], found[ROUNDING], found[INTERCEPT], found[DRIFT] = bound, rounding, b, drift
    found[STEPS], found[USED], found[FEATURE] = steps, q, -1.0
    choose(x, order, inside, m, batch.chosen[i])
    if not settled:
        found[FEATURE] = branching_feature(x, order, inside, m)


@jit
def solve_nodes(problem: Any, batch: Any, known: Array, objective: float) -> None:
    """Solve the nodes of a batch, whose parents have the bounds `known`, as far as the best objective makes it worth while."""
    for i in range(batch.states.shape[0]):
        solve_node(problem, batch, i, known[i], objective)

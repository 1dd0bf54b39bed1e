r"""Nodes of a search tree of the logistic loss, many at a time: Newton's method, bound, what to split on, a model.

`NewtonNodes` in :mod:`diht.solvers.nodes` does the same a node at a time. At a model (w, b) the loss is replaced by its
quadratic model, b eliminated, and the relaxation of that is solved on its Gram matrix; :math:`\delta` leads there. The dual point
is that of the quadratic model, :math:`\alpha = l'(u) + l''(u) (X \delta + c)`, projected on the feasible ones: a leaf keeps its
rule. The bound is D(alpha) less what rounding can have added, by the formula of `diht.bounds.duality.lower_bound` but for the sums
over the samples, whose errors here grow with their number.

The nodes of a batch make their steps together: what is done sample by sample in short kernels, and the quadratic models by `relax`,
which other nodes use too. One kernel for all of it would take three times as long to compile. What is found of a node does not
depend on the others of its batch.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diht.constraints.kernels import threshold_scale
from diht.design.base import UNIT
from diht.design.kernels import Array, dot, jit
from diht.numerics.arrays import Indices, Vector
from diht.relaxation.quadratic import States
from diht.relaxation.quadratic_kernels import relax, relaxation
from diht.samples.logistic_kernels import decayed, logistic_sums

__all__ = ["Batch", "Classified", "solve_nodes"]


BOUND, ROUNDING, FEATURE, STEPS, USED, INTERCEPT, DRIFT = range(7)  # what is found of a node
FIGURES = 7
CONJUGATE, SIZE, POSITIVE, NEGATIVE, SQUARES = range(5)  # sums over the samples at a dual point
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
ROOM = 1_000_000  # margins of the nodes that are solved together


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


# ---------------------------------------------------------------------------------------------------------------------
# Sample by sample, a row of each array for a node


@jit
def add_columns(columns: Array, order: Array, used: Array, x: Array, U: Array) -> None:
    """Add the columns of some features times x to U."""
    for r in range(used.size):
        for j in range(used[r]):
            factor, column = x[r, j], columns[order[r, j]]
            if factor != 0.0:
                for i in range(column.size):
                    U[r, i] += factor * column[i]


@jit
def pull_columns(columns: Array, order: Array, used: Array, c: Array, g: Array) -> None:
    """Write the products of the columns of some features with c."""
    for r in range(used.size):
        for j in range(used[r]):
            g[r, j] = dot(columns[order[r, j]], c[r], c.shape[1])


@jit
def shift_margins(U: Array, b: Array, y: Array, s: Array, intercept: bool, loss: Array) -> None:
    """Write the best intercepts for the margins U, searched from b, and the losses: Newton's method, kept in a bracket."""
    for r in range(b.size):
        low, high, longest = -np.inf, np.inf, LONGEST
        for _ in range(MOST_SHIFTS):
            loss[r], slope, size, curvature = logistic_sums(U[r], b[r], y, s)
            if not intercept or abs(slope) <= 8.0 * UNIT * size:
                break
            if slope > 0.0:
                high = b[r]
            else:
                low = b[r]
            new = b[r] + min(max(-slope / curvature, -longest), longest)
            if not low < new < high:
                new = 0.5 * (low + high)
                if not low < new < high:
                    break
            b[r], longest = new, 2.0 * longest


@jit
def differentiate(U: Array, b: Array, y: Array, slopes: Array, curvatures: Array) -> None:
    """Write l' and l'' at the margins U + b."""
    for r in range(b.size):
        for i in range(y.size):
            m = y[i] * (U[r, i] + b[r])
            e = decayed(abs(m))
            share = 1.0 / (1.0 + e)
            slopes[r, i] = -y[i] * (e * share if m >= 0.0 else share)
            curvatures[r, i] = e * share * share


@jit
def weigh(
    columns: Array, order: Array, samples: tuple[Any, ...], intercept: bool, w: Array, smooth: float, K: Array
) -> float:
    """Write twice the quadratic model at w, whose loss is `smooth`, as `relax` has it, b eliminated; return about how steep it is.

    `samples` are weights, slopes and curvatures.
    """
    s, slopes, curvatures = samples
    n, q, total, steepest = s.size, w.size, 0.0, 0.0
    weights, pull, column, center = np.empty(n), np.empty(n), np.empty(n), np.empty(q)
    for i in range(n):
        weights[i], pull[i] = s[i] * curvatures[i], s[i] * slopes[i]
        total += weights[i]
    for j in range(q):
        own = columns[order[j]]
        for i in range(n):
            column[i] = weights[i] * own[i]
        center[j] = dot(own, weights, n) if intercept and total > 0.0 else 0.0
        for i in range(j + 1):
            K[i, j] = K[j, i] = dot(columns[order[i]], column, n) - (
                center[i] * center[j] / total if intercept else 0.0
            )
    K[q, q] = 2.0 * smooth
    for j in range(q):
        size = bent = 0.0
        for i in range(q):
            size += abs(K[j, i])
            bent += K[j, i] * w[i]
        gradient = dot(columns[order[j]], pull, n)
        K[q, j] = K[j, q] = bent - gradient
        K[q, q] += w[j] * (bent - 2.0 * gradient)
        steepest = max(steepest, size)
    return float(steepest)


@jit
def predict(change: Array, s: Array, intercept: bool, slopes: Array, curvatures: Array, drift: Array) -> None:
    """Write the changes of intercepts of the quadratic models where margins change so, and their dual points over the slopes."""
    for r in range(drift.size):
        total = 0.0
        for i in range(s.size):
            drift[r] -= s[i] * curvatures[r, i] * change[r, i]
            total += s[i] * curvatures[r, i]
        drift[r] = drift[r] / total if intercept and total > 0.0 else 0.0
        for i in range(s.size):
            slopes[r, i] += curvatures[r, i] * (change[r, i] + drift[r])


@jit
def balance(alpha: Array, y: Array, s: Array, intercept: bool, sums: Array) -> None:
    """Project on F and, with an intercept, on the points of sum zero, by Newton's method on a piecewise linear function.

    What is written is s alpha, and sums of the conjugates p log p + (1 - p) log(1 - p), and of s alpha: of sizes, positive and
    negative entries, squares.
    """
    for r in range(alpha.shape[0]):
        shift, least = 0.0, np.inf
        for _ in range(MOST_SHIFTS):
            total = size = inner = 0.0
            for i in range(y.size):
                a = alpha[r, i] + shift
                clipped = min(max(a, min(-y[i], 0.0)), max(-y[i], 0.0))
                total += s[i] * clipped
                size += s[i] * abs(clipped)
                inner += s[i] if clipped == a else 0.0
            if not intercept or abs(total) <= 8.0 * UNIT * size or not (abs(total) <= 0.9 * least and inner > 0.0):
                break
            least = abs(total)
            shift -= total / inner
        for i in range(y.size):
            a = min(max(alpha[r, i] + shift, min(-y[i], 0.0)), max(-y[i], 0.0))
            p, c = abs(a), s[i] * a
            conjugate = (p * np.log(p) if p > 0.0 else 0.0) + ((1.0 - p) * np.log1p(-p) if p < 1.0 else 0.0)
            alpha[r, i] = c
            sums[r, CONJUGATE] += s[i] * conjugate
            sums[r, SIZE] += abs(c)
            sums[r, POSITIVE] += max(c, 0.0)
            sums[r, NEGATIVE] += max(-c, 0.0)
            sums[r, SQUARES] += c * c


# ---------------------------------------------------------------------------------------------------------------------
# Nodes that make their steps together


def constraint_squares(values: Vector, states: States, m: Indices) -> Vector:
    """Squares of the features inside, and of the m largest free ones, of each row; added one by one, however long the rows are."""
    squares = values * values
    free = -np.sort(np.where(states == 0, -squares, 0.0), axis=1)
    first = np.arange(values.shape[1]) < m[:, None]
    parts = np.where(states > 0, squares, 0.0), np.where(first, free, 0.0)
    return np.cumsum(np.concatenate([np.zeros((len(m), 1)), *parts], axis=1), axis=1)[:, -1]


def constraint_norm(values: Vector, states: States, m: Indices) -> Vector:
    """The constraint norm, rounded up, of entries that are not negative."""
    most = np.maximum(values.max(axis=1, initial=0.0), TINY)
    norm: Vector = most * np.sqrt(constraint_squares(values / most[:, None], states, m)) * (1.0 + 1e-9)
    return norm


class Relaxations:
    """The relaxations of some nodes, under way; a row of each array for one.

    A node has its features in the first places of its rows; those that are left over have the state -1.
    """

    def __init__(self, problem: Classified, states: States, w: Vector, b: Vector) -> None:
        self.problem, self.b = problem, b.copy()
        inside, free = (states > 0).sum(axis=1), (states == 0).sum(axis=1)
        full, fits = inside >= problem.k, inside + free <= problem.k
        self.settled = full | fits  # one support is left
        self.m = np.where(self.settled, 0, problem.k - inside)
        states = np.where((states == 0) & full[:, None], np.int8(-1), states)
        states = np.where((states == 0) & fits[:, None], np.int8(1), states)
        self.used = (states >= 0).sum(axis=1)
        self.order = np.argsort(states < 0, axis=1, kind="stable")[:, : self.used.max(initial=0)]
        self.states = np.take_along_axis(states, self.order, 1)
        self.w = np.where(self.states >= 0, np.take_along_axis(w, self.order, 1), 0.0)
        self.U = self.margins(self.w, np.arange(len(b)))
        self.value = self.objectives(self.U, self.w, self.b, np.arange(len(b)))
        self.best, self.rounding, self.at_b, self.drift = np.zeros((4, len(b)))
        self.best -= np.inf
        self.steps = np.zeros(len(b), dtype=np.int64)
        self.at, self.step = np.zeros((2, *self.w.shape))
        bounds = (problem.error, problem.underflow, problem.norms)
        self.of_error, self.of_underflow, self.of_columns = (
            constraint_norm(np.where(self.states >= 0, bound[self.order], 0.0), self.states, self.m) for bound in bounds
        )

    def spread(self, values: Vector, rows: Indices) -> Vector:
        """Values of the nodes' features, as of all."""
        out = np.zeros((len(rows), len(self.problem.columns)))
        np.put_along_axis(out, self.order[rows], values, 1)
        return out

    def margins(self, values: Vector, rows: Indices) -> Vector:
        """The products of the samples with some models."""
        U = np.zeros((len(rows), len(self.problem.y)))
        add_columns(self.problem.columns, self.order[rows], self.used[rows], values, U)
        return U

    def penalties(self, w: Vector, rows: Indices) -> Vector:
        """Omega of some models."""
        work = np.empty(w.shape[1])
        return np.array([relaxation(p, self.states[r], self.m[r], 0.0, work) for p, r in zip(w, rows, strict=True)])

    def objectives(self, U: Vector, w: Vector, b: Vector, rows: Indices) -> Vector:
        """The relaxed objectives of models with these margins, at the best intercepts, which are written to b."""
        loss = np.empty(len(rows))
        shift_margins(U, b, self.problem.y, self.problem.s, self.problem.intercept, loss)
        value: Vector = loss + self.problem.lam * self.penalties(w, rows)
        return value

    def solve(self, known: Vector, objective: float) -> None:
        """Minimise each as far as the best objective and a known bound make it worth while."""
        rows, useful = np.arange(len(self.b)), np.where(self.settled, 0.0, USEFUL)
        for _ in range(MOST_STEPS):
            if len(rows) == 0:
                return
            self.steps[rows] += 1
            direction, change, promised = self.improve_bounds(rows, known[rows])
            go = (self.best[rows] < objective) & (promised > EXACT * self.value[rows])
            rows = rows[go]
            rows = rows[self.descend(rows, direction[go], change[go], promised[go])]
            left, value = objective - self.best[rows], self.value[rows]
            rows = rows[value - self.best[rows] > np.fmax(useful[rows] * left, ACCURACY * value)]

    def improve_bounds(self, rows: Indices, known: Vector) -> tuple[Vector, Vector, Vector]:
        """Make dual points of the quadratic models; return the steps to their minimisers, in features and margins, and promises."""
        problem, s = self.problem, self.problem.s
        slopes, curvatures = np.empty((2, len(rows), len(s)))
        differentiate(self.U[rows], self.b[rows], problem.y, slopes, curvatures)
        direction, promised = self.directions(rows, slopes, curvatures, known)
        change = self.margins(direction, rows)
        drift = np.zeros(len(rows))
        predict(change, s, problem.intercept, slopes, curvatures, drift)
        value, safe = self.certified(rows, slopes)
        better = safe > self.best[rows]
        at = rows[better]
        self.best[at], self.rounding[at] = safe[better], (value - safe)[better]
        self.at_b[at], self.drift[at] = self.b[at], drift[better]
        self.at[at], self.step[at] = self.w[at], direction[better]
        return direction, change, promised

    def directions(self, rows: Indices, slopes: Vector, curvatures: Vector, known: Vector) -> tuple[Vector, Vector]:
        """Minimise the quadratic models; return the steps that lead there, and how much they promise."""
        lam, w, value = self.problem.lam, self.w[rows], self.value[rows]
        smooth = value - lam * self.penalties(w, rows)
        gap = np.clip(value - np.maximum(self.best[rows], known), 0.0, value)
        tol = np.clip(INNER * gap / value, 1e-13, 1e-3)
        target, promised, least = w.copy(), value.copy(), 1e-3 * lam
        for i, r in enumerate(rows):
            q, m, p = self.used[r], self.m[r], target[i]
            K, c, samples = np.empty((q + 1, q + 1)), np.empty(q), (self.problem.s, slopes[i], curvatures[i])
            steepest = weigh(
                self.problem.columns, self.order[r, :q], samples, self.problem.intercept, w[i, :q], smooth[i], K
            )
            how = 2.0 * lam, 0.0, max(steepest / math.sqrt(max(q, 1)), least), p[:q], c, tol[i], np.inf, MOST_INNER
            promised[i] -= 0.5 * relax(K, np.zeros(q + 1), 0.0, 0.0, self.states[r, :q], m, m, *how)[0]
        return target - w, promised

    def certified(self, rows: Indices, alpha: Vector) -> tuple[Vector, Vector]:
        """The bounds at dual points as computed, and less all that rounding can have added: see `duality.lower_bound`."""
        problem, n, sums = self.problem, alpha.shape[1], np.zeros((len(rows), 5))
        balance(alpha, problem.y, problem.s, problem.intercept, sums)
        conjugate, size, positive, negative, squares = sums.T
        g = np.zeros((len(rows), self.w.shape[1]))
        pull_columns(problem.columns, self.order[rows], self.used[rows], alpha, g)
        of_g = constraint_squares(g, self.states[rows], self.m[rows])
        value = -conjugate - of_g / (2.0 * problem.lam)
        norm, added = np.sqrt(squares + 1e-290) * (1.0 + 1e-9), (n + 2.0) * UNIT
        error = 2.0 * (norm * self.of_error[rows] + self.of_underflow[rows])
        lost = (ELEMENTWISE * UNIT + added) * (2.0 * size - conjugate) * (1.0 + 1e-9) + 4.0 * n * TINY
        side = np.maximum(positive, negative)
        if problem.intercept:
            off = np.abs(positive - negative) + (added + 2.0 * UNIT) * (positive + negative)
            ratio = np.divide(off * (1.0 + 1e-9), side * (1.0 - 1e-9), out=np.zeros_like(side), where=side > 0.0)
            shrink = np.minimum(ratio, 1.0)
            error += shrink * norm * self.of_columns[rows]
            lost -= 2.0 * shrink * conjugate
        relative = (problem.k + 16.0) * UNIT
        reach = np.sqrt(of_g + problem.k * TINY) * (1.0 + relative) + error
        lost += (reach * reach * (1.0 + relative) - of_g) / (2.0 * problem.lam)
        return value, value - lost - 8.0 * UNIT * (np.abs(value) + np.abs(lost))

    def descend(self, rows: Indices, direction: Vector, change: Vector, promised: Vector) -> NDArray[np.bool_]:
        """Make the longest steps that gain a share of what their sizes promise; return which nodes gained."""
        gained, size = np.zeros(len(rows), dtype=bool), 1.0
        for _ in range(HALVINGS):
            left = np.flatnonzero(~gained)
            if len(left) == 0:
                break
            at = rows[left]
            U, w, b = self.U[at] + size * change[left], self.w[at] + size * direction[left], self.b[at]
            new = self.objectives(U, w, b, at)
            good = new <= self.value[at] - ARMIJO * size * promised[left]
            moved = at[good]
            self.U[moved], self.w[moved], self.b[moved], self.value[moved] = U[good], w[good], b[good], new[good]
            gained[left[good]] = True
            size *= 0.5
        return gained

    def undecided(self) -> Vector:
        """The free feature whose share of a place is nearest to 1/2, or the largest where all are whole; -1 where none is left."""
        free = self.states == 0
        sizes = np.where(free, np.abs(self.w), 0.0)
        theta = np.array([threshold_scale(row, m, 0.0, 0.0) for row, m in zip(sizes, self.m, strict=True)])[:, None]
        z = np.minimum(np.divide(sizes, theta, out=np.ones_like(sizes), where=theta > 0.0), 1.0)
        share = np.where(free, np.minimum(z, 1.0 - z), -1.0)
        last = np.where(free, sizes, -1.0)
        places = np.where(share.max(axis=1, initial=-1.0) > WHOLE, _first_largest(share), _first_largest(last))
        features = np.take_along_axis(self.order, places[:, None], 1)[:, 0]
        return np.where(self.settled, -1.0, features)

    def chosen(self) -> NDArray[np.bool_]:
        """Which places hold the features inside, and the m largest of the free ones."""
        sizes = np.where(self.states == 0, -np.abs(self.w), 1.0)
        first = np.argsort(sizes, axis=1, kind="stable")
        mine = np.zeros(self.w.shape, dtype=bool)
        np.put_along_axis(mine, first, np.arange(self.w.shape[1]) < self.m[:, None], 1)
        return mine | (self.states > 0)


def _first_largest(values: Vector) -> Indices:
    """The place of the largest entry of each row, 0 where there is none."""
    return values.argmax(axis=1) if values.shape[1] else np.zeros(len(values), dtype=np.int64)


def solve_nodes(problem: Classified, batch: Batch, known: Vector, objective: float) -> None:
    """Solve the nodes of a batch, whose parents have the bounds `known`, as far as the best objective makes it worth while."""
    together = max(1, ROOM // max(len(problem.y), 1))
    for start in range(0, len(known), together):
        part = slice(start, start + together)
        nodes = Relaxations(problem, batch.states[part], batch.w[part], batch.found[part, INTERCEPT])
        with np.errstate(all="ignore"):
            nodes.solve(known[part], objective)
        every = np.arange(len(nodes.b))
        batch.w[part], batch.at[part], batch.step[part] = (
            nodes.spread(values, every) for values in (nodes.w, nodes.at, nodes.step)
        )
        np.put_along_axis(batch.chosen[part], nodes.order, nodes.chosen().astype(np.int8), 1)
        batch.found[part] = np.column_stack(
            [nodes.best, nodes.rounding, nodes.undecided(), nodes.steps, nodes.used, nodes.at_b, nodes.drift]
        )

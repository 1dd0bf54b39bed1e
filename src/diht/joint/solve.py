r"""Models with at most k features whose loss is no sum over samples, and bounds on all of them.

.. math:: \min_w \; f(Xw) + \frac{\lambda}{2} \|w\|^2 \quad \text{subject to} \quad \|w\|_0 \le k .

f is convex, so that for any u, with :math:`\alpha = f'(u)`,

.. math:: f(Xw) \ge f(u) + \alpha^\top (Xw - u) , \qquad
          \min_{\|w\|_0 \le k} f(Xw) + \tfrac\lambda2 \|w\|^2 \ge f(u) - \alpha^\top u - \frac{\nu(X^\top \alpha)^2}{2 \lambda} ,

with :math:`\nu(g)^2` the sum of the k largest squares. The best u is that of the relaxation, in which the k-support norm stands in
the place of the constraint; it is found by Newton's method with quadratic models.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from diht.constraints.base import Constraint
from diht.design import Design
from diht.design.base import UNIT
from diht.joint.likelihood import Likelihood
from diht.numerics.arrays import Indices, Vector
from diht.numerics.definite import Definite
from diht.relaxation.proximal import minimise_quadratic

__all__ = ["JointFit", "JointProblem", "Solved", "joint_models", "solve_joint", "solve_joint_path"]

_NEWTON, _HALVINGS, _ARMIJO = 100, 40, 1e-4
_LAST = 1e-15  # of the objective: a step that promises less is the last
_RELAXED, _ROUNDS = 60, 20  # Newton steps of a relaxation, and working sets
_WORKING = 60  # features, at least, that a relaxation is solved on before the others are looked at
_TRIED = 8  # features that are fitted in the place of each that leaves
_LARGEST = 200.0  # size of predictions, beyond which a Newton step is shortened


class JointFit(NamedTuple):
    """A model on a support."""

    w: Vector
    value: float

    @property
    def support(self) -> Indices:
        """The features that it uses."""
        return np.flatnonzero(self.w)


@dataclass(frozen=True, eq=False)
class JointProblem:
    """The likelihood, X in memory, the constraint and the ridge."""

    likelihood: Likelihood
    design: Design
    X: Vector
    constraint: Constraint
    lam: float

    def objective(self, w: Vector) -> float:
        """Return f(Xw) + (lam/2) ||w||^2."""
        return self._value(self.X @ w, w)

    def _value(self, u: Vector, w: Vector) -> float:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            value = self.likelihood.value(self.likelihood.levelled(u)) + 0.5 * self.lam * float(w @ w)
        return value if np.isfinite(value) else np.inf

    def lower_bound(self, w: Vector, constraint: Constraint | None = None) -> tuple[float, Vector]:
        r"""Return the bound of u = Xw less all that rounding can have added to it, and X' alpha.

        u is as it was computed: the bound is that of any u. The likelihood has taken off the constant what that may be too
        large. X' alpha is off by the design's own bound, and by what alpha is off, times the norms of the columns; :math:`\nu` is a
        norm. -inf where the constant is not finite.
        """
        constraint = self.constraint if constraint is None else constraint
        u = self.likelihood.levelled(self.X @ w)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            at = self.likelihood.linear(u)
            g = self.design.rmatvec(at.gradient)
            norm = float(np.linalg.norm(at.gradient)) * (1.0 + 1e-9)
            moved = float(np.linalg.norm(at.gradient_error)) * (1.0 + 1e-9) + 1e-300
            off = 2.0 * self.design.rmatvec_error(norm) + moved * self.design.column_norms() * (1.0 + 1e-9)
            squares, error = constraint.value(g), np.sqrt(constraint.value(off)) * (1.0 + 1e-9)
            relative = (len(g) + 16.0) * UNIT
            root = np.sqrt(squares) * (1.0 + relative) + error
            most = root**2 * (1.0 + relative) / (2.0 * self.lam)
            safe = at.constant - most - 8.0 * UNIT * (abs(at.constant) + most)
        return (float(safe) if np.isfinite(safe) else -np.inf), g

    def refit(self, support: Indices, w: Vector | None = None) -> JointFit:
        """Minimise on a support by Newton's method, from a model that is given if it is better there than none."""
        X, starts = self.X[:, support], [np.zeros(len(support)), *([] if w is None else [w[support]])]
        x = min(starts, key=lambda x: self._value(X @ x, x))
        u, value = X @ x, self._value(X @ x, x)
        for _ in range(_NEWTON if len(support) else 0):
            level = self.likelihood.levelled(u)
            g = X.T @ self.likelihood.linear(level).gradient + self.lam * x
            step = -Definite(self.likelihood.hessian(level, X) + self.lam * np.eye(len(x))).solve(g)
            fall = -float(g @ step)
            change = X @ step
            # The objective is exact here, coefficients to the root of that: one more step.
            if not fall > _LAST * max(abs(value), 1e-3):
                new = self._value(u + change, x + step)
                if new <= value + _LAST * abs(value):
                    x, value = x + step, new
                break
            size = min(1.0, _LARGEST / max(float(np.abs(self.likelihood.levelled(change)).max()), 1e-300))
            for _ in range(_HALVINGS):
                new = self._value(u + size * change, x + size * step)
                if new <= value - _ARMIJO * size * fall:
                    break
                size *= 0.5
            if not new < value:
                break
            x, u, value = x + size * step, u + size * change, new
        found = np.zeros(self.X.shape[1])
        found[support] = x
        return JointFit(found, value)

    def relaxed(self, w: Vector, constraint: Constraint, tol: float, stop: Callable[[], bool]) -> Vector:
        """Minimise f(Xw) + lam Omega(w) from a model, on working sets of features."""
        m, inside, outside = constraint.free(len(w))
        if m <= 0:
            return self.refit(inside, w).w
        allowed = np.ones(len(w), dtype=bool)
        allowed[outside] = False
        w = np.where(allowed, w, 0.0)
        for _ in range(_ROUNDS):
            bound, g = self.lower_bound(w, constraint)
            value = self._relaxed_value(self.X @ w, w, constraint)
            if stop() or value - bound <= tol * max(abs(value), 1e-12):
                break
            ranked = np.where(allowed, np.abs(g), -1.0)
            size = max(_WORKING, 4 * constraint.size)
            first = np.argsort(-ranked, kind="stable")[:size]
            features = np.union1d(np.union1d(first[ranked[first] >= 0.0], np.flatnonzero(w)), inside).astype(np.int64)
            new = w.copy()
            new[features] = self._relaxed_on(features, w, constraint.within(features), tol, stop)
            if not self._relaxed_value(self.X @ new, new, constraint) < value:
                break
            w = new
        return w

    def _relaxed_value(self, u: Vector, w: Vector, constraint: Constraint) -> float:
        return self._value(u, np.zeros(1)) + self.lam * constraint.relaxation(w)

    def _relaxed_on(
        self, features: Indices, w: Vector, constraint: Constraint, tol: float, stop: Callable[[], bool]
    ) -> Vector:
        """Take Newton steps with quadratic models on some features."""
        X, x = self.X[:, features], w[features]
        value = self._relaxed_value(X @ x, x, constraint)
        for _ in range(_RELAXED):
            level = self.likelihood.levelled(X @ x)
            g, H = X.T @ self.likelihood.linear(level).gradient, self.likelihood.hessian(level, X)
            curvature = float(np.linalg.norm(H, 2)) + 1e-12
            p, fall, *_ = minimise_quadratic(
                H, g, constraint, self.lam, x, curvature, 0.1 * tol * max(abs(value), 1e-12)
            )
            if stop() or not fall > 0.05 * tol * max(abs(value), 1e-12):
                break
            size, new = 1.0, np.inf
            for _ in range(_HALVINGS):
                new = self._relaxed_value(X @ (x + size * (p - x)), x + size * (p - x), constraint)
                if new <= value - _ARMIJO * size * fall:
                    break
                size *= 0.5
            if not new < value:
                break
            x, value = x + size * (p - x), new
        return x

    def swapped(self, fit: JointFit, stop: Callable[[], bool]) -> JointFit:
        """Exchange one feature for another, or add one, while that gains."""
        better: JointFit | None = fit
        while better is not None and not stop():
            fit, better = better, self._exchange(better, stop)
        return fit

    def _exchange(self, fit: JointFit, stop: Callable[[], bool]) -> JointFit | None:
        d = self.X.shape[1]
        leaving = np.setdiff1d(fit.support, self.constraint.free(d)[1])
        order: list[Any] = leaving[np.argsort(np.abs(fit.w[leaving]), kind="stable")].tolist()
        if len(self.constraint.joining(fit.support, d)):
            order.insert(0, None)
        for j in order:
            rest = fit.support if j is None else np.setdiff1d(fit.support, [j])
            base = fit if j is None else self.refit(rest, fit.w)
            joining = self.constraint.joining(rest, d)
            if stop() or not len(joining):
                return None
            level = self.likelihood.levelled(self.X @ base.w)
            g, X = self.X.T @ self.likelihood.linear(level).gradient, self.X[:, joining]
            gains = np.square(g[joining]) / (np.maximum(self.likelihood.hessian(level, X, True), 0.0) + self.lam)
            for other in joining[np.argsort(-gains, kind="stable")[:_TRIED]].tolist():
                if other == j:
                    continue
                found = self.refit(np.union1d(rest, [other]).astype(np.int64), base.w)
                if found.value < fit.value - 1e-12 * abs(fit.value):
                    return found
        return None


class _Search:
    """Best-first branch and bound; nodes decide features."""

    def __init__(self, problem: JointProblem, tol: float, stop: Callable[[], bool], start: JointFit | None) -> None:
        self.problem, self.tol, self.stop = problem, tol, stop
        self.best = problem.refit(problem.constraint.free(problem.X.shape[1])[1]) if start is None else start
        self.numbers = count()

    def node(self, constraint: Constraint, start: Vector) -> tuple[float, int, Constraint, Vector]:
        """Bound a node, and fit the support that its relaxation proposes."""
        problem, d = self.problem, self.problem.X.shape[1]
        _, inside, outside = constraint.free(d)
        w = problem.relaxed(start, constraint, 0.1 * self.tol, self.stop)
        bound, _ = problem.lower_bound(w, constraint)
        support = np.union1d(constraint.select(np.abs(w)), inside).astype(np.int64)
        fit = problem.refit(np.setdiff1d(support, outside), w)
        if fit.value < self.best.value:
            self.best = problem.swapped(fit, self.stop)
        return bound, next(self.numbers), constraint, w

    def run(self, most_nodes: float) -> tuple[float, int]:
        """Return the least bound of the open nodes, and how many nodes there were."""
        problem, d = self.problem, self.problem.X.shape[1]
        none = np.empty(0, dtype=np.int64)
        heap = [self.node(problem.constraint, np.zeros(d))]
        n_nodes, closed = 1, np.inf  # the least bound of nodes that are not opened
        while heap and n_nodes < most_nodes and not self.stop():
            bound, _, constraint, w = heap[0]
            if self.best.value - bound <= self.tol * abs(self.best.value):
                break
            heapq.heappop(heap)
            m, inside, outside = constraint.free(d)
            z = constraint.places(w)
            z[inside] = z[outside] = 0.0
            undecided = np.setdiff1d(np.arange(d), np.union1d(inside, outside))
            if m <= 0 or len(undecided) <= m or not np.any((z > 1e-9) & (z < 1.0 - 1e-9)):
                j = int(undecided[np.argmax(np.abs(w[undecided]))]) if m > 0 and len(undecided) > m else -1
            else:
                j = int(np.argmin(np.abs(z - 0.5)))
            if j < 0:  # one support is left
                closed = min(closed, bound)
                self.best = min(self.best, problem.refit(np.union1d(inside, undecided[: max(m, 0)]).astype(np.int64), w),
                                key=lambda fit: fit.value)  # fmt: skip
                continue
            for sides in ((np.array([j]), none), (none, np.array([j]))):
                child = self.node(constraint.restricted(*sides), w)
                heapq.heappush(heap, (max(child[0], bound), *child[1:]))
                n_nodes += 1
        return min(closed, heap[0][0] if heap else np.inf), n_nodes


class Solved(NamedTuple):
    """The best model found, a lower bound on all that are allowed, and the number of nodes of the search tree."""

    fit: JointFit
    bound: float
    n_nodes: int


def solve_joint(
    problem: JointProblem, tol: float, most_nodes: float, stop: Callable[[], bool], start: JointFit | None = None
) -> Solved:
    """Search for the best model, from one that is allowed if there is one."""
    search = _Search(problem, tol, stop, start)
    bound, n_nodes = search.run(most_nodes)
    return Solved(search.best, bound, n_nodes)


def joint_models(problem: JointProblem, ks: Sequence[int], stop: Callable[[], bool]) -> list[JointFit]:
    """Return models for some k, ascending, without bounds: features join and are swapped from each to the next."""
    fit, found = problem.refit(problem.constraint.free(problem.X.shape[1])[1]), []
    for k in ks:
        fit = replace(problem, constraint=problem.constraint.allowing(k)).swapped(fit, stop)
        found.append(fit)
    return found


def solve_joint_path(
    problem: JointProblem, ks: Sequence[int], tol: float, most_nodes: float, stop: Callable[[], bool]
) -> list[Solved]:
    """Solve for some k, ascending, each from the model before; a bound for a larger k is one for a smaller."""
    found: list[Solved] = []
    for k in ks:
        own = replace(problem, constraint=problem.constraint.allowing(k))
        start = own.swapped(found[-1].fit, stop) if found else None
        found.append(solve_joint(own, tol, most_nodes, stop, start))
    bounds = np.maximum.accumulate([solved.bound for solved in found][::-1])[::-1]
    return [solved._replace(bound=float(bound)) for solved, bound in zip(found, bounds, strict=True)]

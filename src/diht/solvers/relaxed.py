r"""The dual, maximised to its end.

The largest D(alpha) is the optimum of a convex problem, the relaxation

.. math:: \max_\alpha D(\alpha) = \min_{w, b} \sum_i s_i l(x_i^\top w + b, y_i) + \lambda \Omega(w) ,

with :math:`\Omega` half the squared k-support norm (`Constraint.relaxation`, `Constraint.prox`). Its solution has few more than k
nonzeros, so that the work is done on a working set of features: where that is small by Newton's method, each quadratic model
solved on its Gram matrix, else by coordinate ascent around a proximal point (`diht.relaxation.engines`). A feature outside the
working set W belongs to it once its :math:`|g_j|` exceeds the smallest of those that the dual point's model on W selects: if there
is none, the optimum on W is that on all features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from diht.bounds.duality import Bound, lower_bound, null_dual
from diht.bounds.rule import Rule
from diht.constraints.selection import top_k
from diht.numerics.arrays import Indices, Vector
from diht.problem import Problem
from diht.relaxation.engines import Engine, KnownHessian, engine_for, newton_pays
from diht.solvers.base import Point, Solver, Start, evaluated

__all__ = ["Relaxed", "RelaxedState"]


_NONE: Indices = np.empty(0, dtype=np.int64)
_FIRST = 4  # features of the first working set, as a multiple of those that a model may have
_AT_LEAST = 200  # features up to which there is no working set
_FIRST_OF_MANY, _AT_LEAST_OF_MANY = 10, 1000  # the same where Newton's method is too expensive
_WORTHWHILE = 0.5  # fraction of the stored entries, or of the features, up to which there is a working set
_NEAR = 0.9  # a feature this near to entering the model enters the working set
_GROWTH, _ROUGH_GROWTH = 1, 8  # by which a working set grows at once, at most; and where a rough Hessian is tried first
_DEEPER = 0.2  # the gap on the working set is brought below this fraction of the gap on all features;
_DEEPEST = 1e-3  # below this one where a step on it takes less time than a look at all features
_MOST_STEPS = 30  # of an engine between two looks at all features


@dataclass
class RelaxedState:
    """The relaxation on a working set, and the best bound on all features."""

    g: Vector  # X'(s alpha) of the last dual point
    bound: Bound  # the best so far, and the rule of its dual point where there is one
    features: Indices | None  # the working set, ascending; None for all
    engine: Engine
    stop: Callable[[], bool]
    rough: bool = True  # whether no rough Hessian has failed yet
    settled: bool = False
    rule: Rule | None = None


@dataclass(frozen=True)
class Relaxed(Solver):
    """Maximise D(alpha) to the end, and round the relaxation's model to a sparse one.

    Parameters
    ----------
    accuracy : float
        Relative gap between the relaxation's objective and D(alpha) at which it ends.
    random_state : int
        Seed of the order in which samples are visited.
    """

    accuracy: float = 1e-7
    random_state: int = 0

    def init(self, problem: Problem, start: Start) -> RelaxedState:
        """Begin at a dual point, or at that of the model without features."""
        given = start.alpha is not None or start.w is not None
        alpha = start.dual(problem) if given else null_dual(problem, problem.null_intercept)
        g = problem.samples.pull(alpha)
        features = _working_set(problem, g)
        w, b = np.zeros(problem.shape[1]), 0.0
        if start.w is not None:
            w, b = problem.constraint.threshold(start.w)[0], start.b
        engine = engine_for(problem, features, alpha, w, b, self.random_state)
        return RelaxedState(g, lower_bound(problem, alpha, g), features, engine, start.stop)

    def advance(self, problem: Problem, state: RelaxedState) -> None:
        """Work on the working set until its gap has fallen well below that of all features, then look at all."""
        engine = state.engine
        target = _depth(problem, state) * (engine.value - state.bound.value)
        for _ in range(_MOST_STEPS):
            engine.improve()
            small = engine.gap <= max(target, 0.5 * self.accuracy * abs(engine.value))
            if state.features is None or small or engine.finished or state.stop():
                break
        self._look_at_all(problem, state)

    def _look_at_all(self, problem: Problem, state: RelaxedState) -> None:
        """Take the bound, and features that the working set lacks."""
        engine = state.engine
        known = engine.gradient()
        state.g = problem.samples.pull(engine.alpha) if known is None else known
        bound = lower_bound(problem, engine.alpha, state.g)
        if bound.value > state.bound.value:
            state.bound, state.rule = bound, engine.rule
            if state.rule is not None and state.features is not None:
                state.rule = state.rule.among(state.features, problem.shape[1])
        hessian = _known_hessian(state)
        missing = _missing(problem, state.features, state.g, _GROWTH if hessian is None else _ROUGH_GROWTH)
        gap = engine.value - state.bound.value
        state.settled = not len(missing) and (gap <= self.accuracy * abs(engine.value) or engine.finished)
        if len(missing):
            w = self.relaxed_model(problem, state)
            engine.rest()
            state.features = _grown(problem, np.union1d(state.features, missing))  # type: ignore[arg-type]
            state.engine = engine_for(problem, state.features, engine.alpha, w, engine.b, self.random_state, hessian)

    def relaxed_model(self, problem: Problem, state: RelaxedState) -> Vector:
        """The relaxation's coefficients, of all features."""
        if state.features is None:
            return state.engine.w
        w = np.zeros(problem.shape[1])
        w[state.features] = state.engine.w
        return w

    def observe(self, problem: Problem, state: RelaxedState) -> Point:
        """Round the relaxation's model; its dual point is the best so far."""
        rounded = evaluated(problem, *problem.constraint.threshold(self.relaxed_model(problem, state)))
        return Point(rounded, state.bound.alpha, bound=state.bound)

    def finished(self, state: RelaxedState) -> bool:
        """Tell whether the relaxation is solved."""
        return state.settled


def _depth(problem: Problem, state: RelaxedState) -> float:
    """Return the share of the gap that is left on the working set when all features are looked at."""
    if not problem.samples.rough_hessians or state.features is None:
        return _DEEPER
    design = problem.design
    return _DEEPEST if design.dense_gram_cost(len(state.features)) <= design.entries() else _DEEPER


def _working_set(problem: Problem, g: Vector) -> Indices | None:
    """Choose the first working set by the size of g; None for all."""
    inside, design = problem.constraint.free(len(g))[1], problem.design
    most = problem.constraint.size - len(inside)
    size = max(_FIRST * most, _AT_LEAST) + len(inside)
    if newton_pays(problem, size):
        return _leading(problem, g, size)
    features = _leading(problem, g, max(_FIRST_OF_MANY * most, _AT_LEAST_OF_MANY) + len(inside))
    if not design.is_far or (features is not None and design.keepable(features)):
        return features
    features = _leading(problem, g, size)  # a smaller one, if that fits into memory
    return features if features is not None and design.keepable(features) else None


def _leading(problem: Problem, g: Vector, size: int) -> Indices | None:
    """Return so many features by the size of g; None for all."""
    d, constraint = len(g), problem.constraint
    _, inside, outside = constraint.free(d)
    if size >= d - len(outside):
        return np.setdiff1d(np.arange(d), outside) if len(outside) else None
    ranked = problem.pull_constraint.magnitudes(g)
    ranked[outside] = 0.0
    ranked[inside] = np.inf
    features = constraint.closure(top_k(ranked, size))
    return features if len(outside) or problem.design.fraction(features) <= _WORTHWHILE else None


def _grown(problem: Problem, features: Indices) -> Indices | None:
    """Return a working set, or all features: a quadratic takes as long with most of them, and what has left them is solved anew."""
    d, quadratic = problem.shape[1], problem.loss.is_quadratic and problem.constraint.is_plain
    if len(features) <= _WORTHWHILE * d or not quadratic or not newton_pays(problem, d):
        return features
    outside = problem.constraint.free(d)[2]
    return np.setdiff1d(np.arange(d), outside) if len(outside) else None


def _known_hessian(state: RelaxedState) -> KnownHessian | None:
    """Return that of the working set, where there is one, unless it has misled before."""
    state.rough = state.rough and not state.engine.misled
    known = state.engine.last_hessian() if state.rough else None
    return None if known is None or state.features is None else KnownHessian(state.features, known)


def _missing(problem: Problem, features: Indices | None, g: Vector, growth: int) -> Indices:
    """Features outside the working set that the dual point's model would take; if there are any, those near to it as well."""
    if features is None:
        return _NONE
    constraint = problem.constraint
    _, inside, outside = constraint.free(len(g))
    magnitudes = problem.pull_constraint.magnitudes(g)
    chosen = features[problem.pull_constraint.within(features).select(g[features])]
    last = magnitudes[np.setdiff1d(chosen, inside)].min(initial=np.inf)
    magnitudes[features] = magnitudes[outside] = 0.0
    if not np.any(magnitudes > last):
        return _NONE
    near = np.flatnonzero(magnitudes > _NEAR * last)
    most = growth * len(features)
    return constraint.closure(near if len(near) <= most else near[top_k(magnitudes[near], most)])

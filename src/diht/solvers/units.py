"""Local search for groups of features and for signs: exchange one unit of a model for another while that lowers the objective.

A unit's gain is guessed from the derivatives in its features, its true gain is that of a fit: what is cheap to leave out is left
out, and the units that then promise most are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diht.duality import primal
from diht.problem import Problem
from diht.selection import top_k
from diht.solvers.base import never
from diht.solvers.pool import Pool
from diht.solvers.refit import refit
from diht.structure import Structured

__all__ = ["swap_units"]

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Fit:
    units: Indices
    w: Vector
    b: float
    u: Vector
    value: float


def swap_units(
    problem: Problem,
    support: Indices,
    w: Vector | None = None,
    b: float = 0.0,
    *,
    rtol: float = 1e-9,
    max_swaps: int = 1000,
    shortlist: int = 3,
    leaving: int = 20,
    stop: Callable[[], bool] | None = None,
    pool: Pool | None = None,
) -> tuple[Vector, float, Vector, float]:
    """Improve a support by swaps of units until none of those looked at lowers the objective; see `swap_search`.

    Of the units of the model the `leaving` cheapest are left out in turn, and of those outside the `shortlist` best then tried.
    """
    search = _Search(problem, rtol, stop or never, pool)
    best = search.filled(search.first(support, w, b))
    for _ in range(max_swaps):
        better = search.improved(best, leaving, shortlist)
        if better is None:
            break
        best = better
    return best.w, best.b, best.u, best.value


class _Search:
    def __init__(self, problem: Problem, rtol: float, stop: Callable[[], bool], pool: Pool | None) -> None:
        constraint = problem.constraint
        assert isinstance(constraint, Structured)
        self.problem, self.constraint, self.rtol, self.stop, self.pool = problem, constraint, rtol, stop, pool
        m, self.inside, self.outside = constraint.base.free(constraint.n_units)
        self.room = min(m + len(self.inside), constraint.n_units - len(self.outside))
        mean, variance = problem.design.moments(problem.s)
        spread = variance if problem.fit_intercept else variance + mean**2
        self.curvature = spread / max(problem.loss.mu, 1e-3) + problem.lam  # only for ranking

    def fit(self, units: Indices, w: Vector | None, b: float) -> _Fit:
        """Return the best model on some units, which the pool is told of where there are not too many."""
        problem = self.problem
        support = self.constraint.features_of(units)
        w, b, u = refit(problem, support, w, b, rtol=1e-2 * self.rtol, stop=self.stop)
        value = primal(problem, w, b, u)
        if self.pool is not None and len(units) <= self.room:
            self.pool.add(w, b, value, support)
        return _Fit(np.sort(units), w, b, u, value)

    def first(self, support: Indices, w: Vector | None, b: float) -> _Fit:
        """Fit the units of a support, as many as are allowed."""
        units = np.setdiff1d(np.union1d(self.constraint.units_of(support), self.inside), self.outside)
        fit = self.fit(units, w, b)
        if len(units) > self.room:
            norms = np.sqrt(self.constraint.squares(fit.w))
            norms[self.inside] = np.inf
            fit = self.fit(top_k(norms, self.room), fit.w, fit.b)
        return fit

    def promising(self, fit: _Fit, number: int) -> Indices:
        """Return the units outside a model that promise most."""
        problem = self.problem
        slopes = problem.design.rmatvec(problem.s * problem.loss.derivative(fit.u, problem.y))
        promise = self.constraint.opposite.squares(slopes / np.sqrt(self.curvature))
        promise[fit.units] = promise[self.outside] = 0.0
        chosen = top_k(promise, min(number, len(promise)))
        chosen = chosen[promise[chosen] > 0.0]
        return np.asarray(chosen[np.argsort(-promise[chosen], kind="stable")])

    def filled(self, fit: _Fit) -> _Fit:
        """Add the most promising units while there is room."""
        while len(fit.units) < self.room and not self.stop():
            new = self.promising(fit, 1)
            if not len(new):
                break
            fit = self.fit(np.append(fit.units, new), fit.w, fit.b)
        return fit

    def improved(self, best: _Fit, leaving: int, shortlist: int) -> _Fit | None:
        """Return a better model that differs in one unit; None if none was found."""
        free = np.setdiff1d(best.units, self.inside)
        costs = self.constraint.squares(best.w * np.sqrt(self.curvature))[free]
        for unit in free[np.argsort(costs, kind="stable")[:leaving]].tolist():
            if self.stop():
                return None
            less = self.fit(np.setdiff1d(best.units, unit), best.w, best.b)
            for new in self.promising(less, shortlist + 1).tolist():
                if new == unit:
                    continue
                other = self.fit(np.append(less.units, new), less.w, less.b)
                if other.value < best.value - self.rtol * abs(best.value):
                    return other
        return None

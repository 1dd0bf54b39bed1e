"""Local search under any constraint: exchange one unit of a model for another while that lowers the objective.

A unit's gain is guessed from the derivatives in its features, its true gain is that of a fit: what is cheap to leave out is left
out, and the units that then promise most are tried.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from diht.constraints.selection import top_k
from diht.fit import Fit
from diht.numerics.arrays import Indices, Vector
from diht.problem import Problem
from diht.refit import never, refit
from diht.samples import Intercept
from diht.search.pool import Pool

__all__ = ["swap_units"]


def swap_units(
    problem: Problem,
    support: Indices,
    w: Vector | None = None,
    b: Intercept = 0.0,
    *,
    rtol: float = 1e-9,
    max_swaps: int = 1000,
    shortlist: int = 3,
    leaving: int = 20,
    stop: Callable[[], bool] | None = None,
    pool: Pool | None = None,
) -> Fit:
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
    return best


class _Search:
    def __init__(self, problem: Problem, rtol: float, stop: Callable[[], bool], pool: Pool | None) -> None:
        self.problem, self.constraint, self.rtol, self.stop, self.pool = problem, problem.constraint, rtol, stop, pool
        _, self.inside, self.outside = self.constraint.free(problem.shape[1])
        self.unit = self.constraint.unit_of(problem.shape[1])
        spread = problem.samples.spread(problem.fit_intercept)
        self.roots = np.sqrt(spread / max(problem.loss.mu, 1e-3) + problem.lam)  # of curvatures, only for ranking
        self.scaled = self.constraint.times(-self.roots)

    def features_of(self, unit: int) -> Indices:
        """Return the features of a unit."""
        return np.flatnonzero(self.unit == unit)

    def allows(self, support: Indices) -> bool:
        """Whether a model may have all of some features."""
        return self.constraint.unlimited.allows(
            np.bincount(support, minlength=self.problem.shape[1]).astype(np.float64)
        )

    def fit(self, support: Indices, w: Vector | None, b: Intercept) -> Fit:
        """Return the best model on some features, which the pool is told of where the constraint allows them."""
        fit = refit(self.problem, support, w, b, rtol=1e-2 * self.rtol, stop=self.stop)
        if self.pool is not None and self.allows(support):
            self.pool.add(fit)
        return fit

    def first(self, support: Indices, w: Vector | None, b: Intercept) -> Fit:
        """Fit the units of a support, as many as are allowed."""
        asked = self.constraint.closure(np.union1d(support, self.inside).astype(np.int64))
        fit = self.fit(np.setdiff1d(asked, self.outside), w, b)
        return fit if self.allows(fit.support) else self.fit(self.constraint.select(fit.w), fit.w, fit.b)

    def promising(self, fit: Fit, number: int) -> Indices:
        """Return the units that promise most, of those that may join a model."""
        joining = self.constraint.joining(fit.support, fit.n_features)
        if not len(joining):
            return joining
        problem = self.problem
        slopes = problem.samples.pull(problem.samples.slopes(problem.loss, fit.margins(problem)))
        squares = self.scaled.squares(slopes / self.roots)
        promise, units = np.zeros_like(squares), np.unique(self.unit[joining])
        promise[units] = squares[units]
        chosen = top_k(promise, min(number, len(promise)))
        chosen = chosen[promise[chosen] > 0.0]
        return np.asarray(chosen[np.argsort(-promise[chosen], kind="stable")])

    def filled(self, fit: Fit) -> Fit:
        """Add the most promising units while there is room."""
        while not self.stop():
            new = self.promising(fit, 1)
            if not len(new):
                break
            fit = self.fit(np.union1d(fit.support, self.features_of(new[0])), fit.w, fit.b)
        return fit

    def improved(self, best: Fit, leaving: int, shortlist: int) -> Fit | None:
        """Return a better model, after one unit, with those of no use without it, has left; None if none was found."""
        free = np.setdiff1d(self.unit[best.support], self.unit[self.inside])
        costs = self.constraint.unlimited.squares(best.w * self.roots)[free]
        for unit in free[np.argsort(costs, kind="stable")[:leaving]].tolist():
            if self.stop():
                return None
            rest = self.constraint.remaining(best.support, self.features_of(unit))
            less = self.fit(rest, best.w, best.b)
            for new in self.promising(less, shortlist + 1).tolist():
                if new == unit:
                    continue
                other = self.filled(self.fit(np.union1d(less.support, self.features_of(new)), less.w, less.b))
                if other.objective < best.objective - self.rtol * abs(best.objective):
                    return other
        return None

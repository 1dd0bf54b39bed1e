"""Swaps until none improves a model, with the proof that none does.

Each unit of the model is left out in turn and the others are fitted. Lower bounds on the models with one unit more
(`diht.search.joining`) rule most of them out; the others are fitted, the most promising first. A model is swap-optimal once all of
its units have been left out since it last changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from diht.fit import Fit
from diht.numerics.arrays import Indices, Vector
from diht.problem import Problem
from diht.refit import never, refit
from diht.samples import Intercept
from diht.search.exact_swaps import ExactSwaps
from diht.search.joining import NARROW, WIDE, Breadth, Effort, Joining
from diht.search.pool import Pool
from diht.search.steps import end_of

__all__ = ["MOST_GLANCED", "SwapOptimum", "better_swaps", "restarted", "swap_optimum"]


class SwapOptimum(NamedTuple):
    """Where swaps have led.

    Attributes
    ----------
    fit : Fit
        The model.
    left : float
        What a swap can still gain, at most: 0 if none gains more than the tolerance, infinite where not all have been looked at.
    """

    fit: Fit
    left: float


def swap_optimum(problem: Problem, fit: Fit, **settings: Any) -> SwapOptimum:
    """Exchange units of a fitted model until no exchange lowers the objective; the settings are those of `better_swaps`."""
    return end_of(better_swaps(problem, fit, **settings))


def better_swaps(
    problem: Problem,
    fit: Fit,
    *,
    rtol: float = 1e-9,
    effort: Effort | None = None,
    stop: Callable[[], bool] = never,
    pool: Pool | None = None,
    glanced: set[bytes] | None = None,
) -> Generator[None, None, SwapOptimum]:
    """Exchange units of a fitted model until no exchange lowers the objective by more than `rtol` of it; yield after each.

    Parameters
    ----------
    problem : Problem
    fit : Fit
        A model, whose support is fitted first.
    rtol : float
    effort : Effort, optional
        Limits on the work, which takes from it.
    stop : callable
        Asked before every fit; True ends the search.
    pool : Pool, optional
        Is given every model met.
    glanced : set, optional
        Supports whose features were all left out at a glance in vain; those that are met are added.
    """
    search = _Search(problem, rtol, effort or Effort(), stop, pool, glanced)
    if not ExactSwaps.apply(problem) and search.is_out_of_reach(fit, len(np.unique(search.unit[fit.support]))):
        return SwapOptimum(fit, np.inf)
    fit = search.fit(fit.support, fit.w, fit.b)
    if ExactSwaps.apply(problem) and not search.has_room(fit):
        fit, proved = search.exactly(fit)
        if proved:
            return SwapOptimum(fit, 0.0)
    return (yield from search.by_leaving_out(fit))


def restarted(
    problem: Problem,
    fit: Fit,
    removed: Indices,
    glance: Breadth,
    *,
    effort: Effort,
    stop: Callable[[], bool] = never,
    pool: Pool,
    glanced: set[bytes],
) -> Fit:
    """Exchange some features of a model at once for the best others, and swap from there at a glance, all features allowed.

    That ends where it comes to a support that was glanced at in vain.
    """
    none = np.empty(0, dtype=np.int64)
    without = problem.replaced(constraint=problem.constraint.restricted(none, np.sort(removed)))
    search = _Search(without, _ROUGH, effort, stop, pool)
    other: Fit | None = search.fit(np.setdiff1d(fit.support, removed), fit.w, fit.b)
    while other is not None and not search.ended():
        fit = other
        other = search.without(fit, _NOTHING, glance)[0] if search.has_room(fit) else None
    return end_of(_Search(problem, _ROUGH, effort, stop, pool, glanced).by_leaving_out(fit, glance)).fit


_ROUGH = 1e-6  # relative fall of the objective that is worth a swap on the way from another start
_GLANCES = 0.25  # share of the patience for glances in a row that find nothing, before a proof is tried
MOST_GLANCED = 50  # units up to which all are left out at a glance, even where a proof is out of reach
_TRIES = 2  # units whose models are fitted at a glance
_CALLS = 20_000  # entries that are looked at in the time that the calls of a fit take, however small it is
_PER_UNIT = 0.3  # units of effort for each unit that may join, however little is done about it
_PER_ENTRY, _PER_ENTRY_INTERIOR = 0.2, 1.0  # units of effort for each entry of the columns of a fit, by interior points
_MOST_FITTED = 100  # swaps that rounding may let look as if they gained: if more, another way is taken
_NOTHING = -1  # in place of a unit that leaves


class _Search:
    def __init__(
        self,
        problem: Problem,
        rtol: float,
        effort: Effort,
        stop: Callable[[], bool],
        pool: Pool | None,
        glanced: set[bytes] | None = None,
    ) -> None:
        self.problem, self.constraint, self.rtol = problem, problem.constraint, rtol
        self.glanced = set[bytes]() if glanced is None else glanced  # supports that were left out in vain
        self.effort, self.stop, self.pool = effort, stop, pool
        self._curvatures: Vector | None = None
        self._whole: Fit | None = None  # the model whose units are left out, and those that are without one
        self._less: dict[int, Fit] = {}
        self.joined: dict[int, int] = {}  # units that no first bound ruled out when one was left out
        d, pieces = problem.shape[1], problem.loss.pieces
        self.per_entry = _PER_ENTRY if pieces is None or not pieces.is_bounded else _PER_ENTRY_INTERIOR
        _, self.inside, _ = self.constraint.free(d)
        self.unit, self.norms = self.constraint.unit_of(d), problem.design.column_norms()

    def units(self, fit: Fit) -> deque[int]:
        """Return what may leave, first what costs least, each alone; nothing, too, where there is room for more."""
        size = self.constraint.unlimited.squares(fit.w * self.norms)
        free = np.setdiff1d(self.unit[fit.support], self.unit[self.inside])
        order = deque(free[np.argsort(size[free], kind="stable")].tolist())
        if self.has_room(fit):
            order.appendleft(_NOTHING)
        return order

    def is_out_of_reach(self, fit: Fit, n_units: int) -> bool:
        """Whether so many units are too many to leave out each in turn."""
        return n_units > MOST_GLANCED and not self.effort.takes_on(n_units * self.fit_cost(len(fit.support)))

    def has_room(self, fit: Fit) -> bool:
        """Whether a unit may join a model without another's leaving."""
        return len(self.constraint.joining(fit.support, fit.n_features)) > 0

    def by_leaving_out(self, fit: Fit, glance: Breadth | None = None) -> Generator[None, None, SwapOptimum]:
        """Leave out each unit in turn, at a glance, then thoroughly; where a proof is out of reach, at a wide glance.

        With a breadth given there are glances of that alone.
        """
        waiting, proves = self.units(fit), glance is None
        if self.is_out_of_reach(fit, len(waiting)):
            return SwapOptimum(fit, np.inf)
        provable = proves
        seen, proved = self.seen(fit, waiting), 0  # units in a row that were left out in vain, and thoroughly
        while waiting:
            if self.ended() or (not proves and seen >= len(waiting)):
                return SwapOptimum(fit, np.inf)
            before, reads = self.effort.spent, self.problem.design.passes
            thorough = provable and (seen >= len(waiting) or self.effort.idle > _GLANCES * self.effort.patience)
            breadth = glance or (NARROW if provable else WIDE)
            better, left = self.without(fit, waiting[0], None if thorough else breadth)
            self.effort.spend(Effort.of_reads(self.problem.design, self.problem.design.passes - reads))
            waiting.rotate(-1)
            if better is not None:
                self.effort.pay()
                fit, waiting, provable, proved = better, self.updated(waiting, better), proves, 0
                seen = self.seen(fit, waiting)
                yield
                continue
            seen, proved = seen + 1, proved + thorough
            if seen == len(waiting):
                self.glanced.add(fit.support.tobytes())
            missing = list(waiting)[: len(waiting) - proved]
            if thorough and (left > 0.0 or not self.effort.takes_on(self.cost(missing, waiting[-1], before))):
                if not missing:
                    return SwapOptimum(fit, left)
                provable, seen = False, 0
            if proved == len(waiting):
                break
            if not provable and (seen >= len(waiting) or len(waiting) > MOST_GLANCED):
                return SwapOptimum(fit, np.inf)
        return SwapOptimum(fit, 0.0)

    def seen(self, fit: Fit, waiting: deque[int]) -> int:
        """Return how many units of a model were left out at a glance, in vain."""
        return len(waiting) if fit.support.tobytes() in self.glanced else 0

    def cost(self, units: list[int], last: int, before: float) -> float:
        """Return what it takes to leave some units out, by what it took for the last one and how many could join then."""
        share = sum(1 + self.joined.get(unit, self.joined[last]) for unit in units) / (1 + self.joined[last])
        return share * (self.effort.spent - before)

    def exactly(self, fit: Fit) -> tuple[Fit, bool]:
        """Make swaps that the formula for a quadratic objective finds, and tell whether it rules out all others."""
        swaps, proved = ExactSwaps(self.problem), False
        while not self.ended():
            target = fit.objective - self.rtol * abs(fit.objective)
            pairs = swaps.promising(fit, fit.objective - target)
            proved = pairs is not None and len(pairs) <= _MOST_FITTED
            better = self.first_swapped(fit, pairs[:_MOST_FITTED], target) if pairs else None
            if better is None:
                break
            fit, proved = better, False
            self.effort.pay()
        swaps.count()
        return fit, proved

    def first_swapped(self, fit: Fit, pairs: list[tuple[int, int]], target: float) -> Fit | None:
        """Return the first model after a swap that reaches the target."""
        for i, j in pairs:
            other = self.fit(np.sort(np.append(fit.support[fit.support != i], j)), fit.w, fit.b)
            if other.objective < target:
                return other
        return None

    def updated(self, waiting: deque[int], fit: Fit) -> deque[int]:
        """Return the same order for a model after a swap: what has joined comes last."""
        units = self.units(fit)
        kept = [unit for unit in waiting if unit in units]
        return deque([*kept, *(unit for unit in units if unit not in kept)])

    def without(self, fit: Fit, unit: int, glance: Breadth | None) -> tuple[Fit | None, float]:
        """Return a better model without a unit, if there is one, and else what could still be gained, at most.

        At a glance only what promises most is looked at, and nothing is known of the gain.
        """
        less = self.less(fit, unit)
        units = self.unit[self.constraint.joining(less.support, fit.n_features)]
        units = units if self.constraint.is_plain else np.unique(units)
        self.effort.spend(_PER_UNIT * len(units))
        target = fit.objective - self.rtol * abs(fit.objective)
        joining = Joining(self.problem, less, units[units != unit], target, self.effort)
        self.joined[unit], fitted = len(joining.open), set[int]()
        if glance is not None:
            promising = joining.glance(partial(self.curvatures, joining), glance, bounded=unit != _NOTHING)
            return self.first_better(less, joining, promising[:_TRIES], fitted), np.inf
        for stage, _ in enumerate(joining.stages()):
            better = self.first_better(less, joining, joining.open[: int(stage > 1)], fitted)
            if better is not None:
                return better, 0.0
        better = self.first_better(less, joining, joining.open, fitted)
        missed = [joining.bounds[at] for at in joining.open.tolist() if at not in fitted]
        return better, 0.0 if better is not None or not missed else fit.objective - float(min(missed))

    def less(self, fit: Fit, unit: int) -> Fit:
        """Return the model without a unit, fitted once for a glance and a thorough look."""
        if self._whole is not fit:
            self._whole, self._less = fit, {}
        if unit in self._less:
            return self._less[unit]
        less = self.fit(fit.support[self.unit[fit.support] != unit], fit.w, fit.b)
        self._less[unit] = replace(less, u=None)  # as long as the samples
        return less

    def curvatures(self, joining: Joining) -> Vector | None:
        """Return curvatures along features; where l'' is smooth, those that were asked for first: they take reads of X."""
        if self.problem.loss.smoothness < 2:
            return joining.curvatures()
        if self._curvatures is None:
            self._curvatures = joining.curvatures()
        return self._curvatures

    def first_better(self, less: Fit, joining: Joining, places: Indices, fitted: set[int]) -> Fit | None:
        """Fit the models with each of some units until one reaches the target; note which were fitted."""
        for at in [at for at in places.tolist() if at not in fitted]:
            if self.ended():
                return None
            features, w = np.flatnonzero(self.unit == joining.units[at]), less.w
            w[features] = joining.t[at]
            other = self.fit(np.union1d(less.support, features), w, less.b)
            most = less.objective + self.rtol * abs(less.objective)  # a feature more never raises it
            if not other.objective <= most:  # a start that leads astray
                other = self.fit(other.support, less.w, less.b)
            if other.objective <= most:
                fitted.add(at)
            if other.objective < joining.target:
                return other
        return None

    def fit_cost(self, size: int) -> float:
        """Return the effort of a fit of so many features."""
        return _CALLS + self.per_entry * float(self.problem.shape[0]) * (size + 1)

    def ended(self) -> bool:
        """Whether no more may be done."""
        return self.effort.is_spent or self.stop()

    def fit(self, support: Indices, w: Vector, b: Intercept) -> Fit:
        """Return the best model on some features, well within the tolerance for swaps."""
        self.effort.spend(self.fit_cost(len(support)))
        fit = refit(self.problem, support, w, b, 1e-2 * self.rtol)
        if self.pool is not None:
            self.pool.add(fit)
        return fit

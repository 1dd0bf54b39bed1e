"""The default: relaxation, several starts, repair of their supports, screening; branching where it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from diht.duality import Bound, dual_from_primal, lower_bound, upper_bound
from diht.fit import Fit
from diht.problem import Problem
from diht.shift import in_play, others, problem_gram, smallest_eigenvalue
from diht.solvers.base import Point, Solver, Start, never
from diht.solvers.engines import NewtonEngine
from diht.solvers.gram import GramRelaxation
from diht.solvers.pool import Pool
from diht.solvers.refit import refit
from diht.solvers.relaxed import Relaxed
from diht.solvers.swaps import swap_search

__all__ = ["Auto", "AutoState"]

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

_USEFUL = 0.01  # the relaxation is solved to this fraction of the gap that it leaves
_USEFUL_NEWTON = 1e-3  # and to this one by Newton's method, whose last steps gain most
_PROGRESS, _PATIENCE = (
    0.9,
    3,
)  # a look is slow that leaves so much of the gap; so many in a row end the work on the relaxation
_MORE_PATIENCE = 30  # looks that leave so much of the gap, in a row, while nothing is proved
_FAR = 0.7  # where the relaxation has this fraction of the gap still to close, a search for swaps does not wait for it
_MOSTLY = (
    0.2  # where the relaxation has less than this of the gap to close, supports are refitted, for half of the time
)
_ALIKE = 0.9  # a support that shares this fraction of its features with the last one has settled enough for a refit
_CONTINUATION = (10.0, 100.0, 1000.0)  # multiples of lam from whose relaxations further starts come
_MOST_GRAM = 6000  # features up to which a shift is looked for
_SHIFTS = 3  # rounds of screening and shifting
_FIRST_PIECES = 3  # of the work on the relaxation, which give a first model
_REFIT, _ROUGH_REFIT = 1e-9, 1e-6  # relative accuracy of refits, and of those of many features
_GUESS = 1e-3  # and of a first guess
_EXACT_FIT = 1e9  # operations of a Hessian up to which the last refit goes as far as float64 can
_SHIFT_ACCURACY = 1e-7
_KICKS, _MOST_AWAY = 20, 3  # fruitless kicks after which there are no more, and how many features one takes out
_KICK_PASSES = 50.0  # reads of X by kicks
_SEARCH_PASSES, _SEARCH_SHARE = (
    50.0,
    1.0,
)  # a search reads X no more often than this, plus this share of all reads before it
_OPEN = 0.1  # relative gap of a first look that is so wide that a model is grown feature by feature
_GROWN = 50  # features of such a model: more take long, and the greedy choice of many is seldom a good one
_INSTANT = 1e8  # operations of a ridge regression that nobody notices
_EARLY_PASSES = 20.0  # one that does not wait for the relaxation
_FEW = 1000  # features of a model up to which its fits are fine ones
_SEARCHED = 300  # features of a model up to which there always is a search; beyond, a small gap is good enough
_SMALL = 2e6  # entries of X up to which every start is worth a search, and kicks are
_PROMISING = 0.01  # relative distance to the best objective at which a start is worth a search whatever the size of X
_FINE = 1e-9
_MOST_LOOKS = 30  # at a relaxation for a larger ridge
_LEAN = 0.25  # ridge, relative to the curvature of a feature, below which the relaxation is not waited for
_FEWEST_EASY = 10  # features of a model that is not grown in the time of a look at an easier relaxation
_DROWNED = 1e-3  # ridge, relative to the curvature of a feature, below which swaps are tried for larger ones as well
_LOOSE = 1e-3  # relative gap above which more starts are tried


@dataclass
class AutoState:
    """What has been found, and the work that is left."""

    pool: Pool = field(default_factory=Pool)
    bound: Bound | None = None
    work: Iterator[None] = field(default_factory=lambda: iter(()))
    searched: set[bytes] = field(default_factory=set)  # supports from which a swap search began
    searched_early: set[bytes] = field(default_factory=set)  # those of searches without kicks
    refitted: Indices | None = None  # the last support of many features whose best model was computed, and its bound
    done: bool = False
    stop: Callable[[], bool] = never
    passes: float = 0.0  # of the design, when the work began

    @property
    def objective(self) -> float:
        """The best objective so far."""
        return np.inf if self.pool.best is None else self.pool.best.objective

    @property
    def gap(self) -> float:
        """What is still open."""
        return self.objective - (-np.inf if self.bound is None else self.bound.value)

    @property
    def is_open(self) -> bool:
        """Whether anything better could still be found, or more be proved."""
        return self.pool.best is None or self.gap > _FINE * abs(self.objective)

    def prove(self, bound: Bound) -> None:
        """Keep the better bound."""
        if self.bound is None or bound.value > self.bound.value:
            self.bound = bound


@dataclass(frozen=True)
class Auto(Solver):
    """Solve the relaxation, round its solutions for several ridges, repair them by swaps, and prove how good the best is.

    Parameters
    ----------
    random_state : int
        Seed of all that is random.
    """

    random_state: int = 0

    def init(self, problem: Problem, start: Start) -> AutoState:
        """Plan the work."""
        state = AutoState(stop=start.stop, passes=problem.design.passes)
        state.work = self._work(problem, start, state)
        self.advance(problem, state)
        return state

    def first(self, problem: Problem, state: AutoState, start: Start) -> Point:
        """Return the start, which the first piece of the work has evaluated."""
        return self.observe(problem, state)

    def advance(self, problem: Problem, state: AutoState) -> None:
        """Do the next piece of the work."""
        state.done = next(state.work, _ENDED) is _ENDED

    def observe(self, problem: Problem, state: AutoState) -> Point:
        """Return the best model so far and the best bound."""
        best = state.pool.best
        assert best is not None
        assert state.bound is not None
        return Point(best, state.bound.alpha, bound=state.bound)

    def finished(self, state: AutoState) -> bool:
        """Tell whether all is done."""
        return state.done

    def pool(self, state: AutoState) -> Pool:
        """Return the models that came closest to the best."""
        return state.pool

    def polish(self, problem: Problem, state: AutoState, best: Fit) -> Point | None:
        """Make sure that no swap improves the best model, and fit it once more; its own dual point may prove more."""
        if state.is_open:
            self._search(problem, state, np.flatnonzero(best.w), best.w, best.b)
        assert state.pool.best is not None
        best = state.pool.best
        if state.refitted is not None and np.array_equal(best.support, state.refitted):
            return self.observe(problem, state)
        costly = problem.shape[0] * float(len(best.support)) ** 2 > _EXACT_FIT
        fine = max(_REFIT, _USEFUL * state.gap / max(abs(state.objective), np.finfo(float).tiny))
        rtol, stop = (fine, state.stop) if costly else (0.0, never)
        fit = refit(problem, best.support, best.w, best.b, rtol, stop)
        state.pool.add(fit)
        state.prove(lower_bound(problem, dual_from_primal(problem, fit.w, fit.b, fit.u)))
        return self.observe(problem, state)

    # The pieces of the work

    def _work(self, problem: Problem, start: Start, state: AutoState) -> Iterator[None]:
        relaxing = self._relax(problem, start, state)
        n, d = problem.shape
        shiftable = problem.loss.is_squared_error and problem.constraint.is_plain
        if shiftable and d < min(n, _MOST_GRAM):  # a shift is likely to prove more, and in less time
            yield from islice(relaxing, _FIRST_PIECES)
            self._search_best(problem, state)
            yield from self._shift(problem, state)
        if state.is_open:
            yield from relaxing
            self._search_best(problem, state)
            yield
            if shiftable:
                yield from self._shift(problem, state)
            yield from self._continue(problem, state)
            if _is_small(problem) and not shiftable:  # searches of the squared loss kick by themselves
                if not problem.loss.is_squared_error and problem.constraint.size <= _GROWN:
                    yield from self._grow_late(problem, state)
                yield from self._kick(problem, state)

    def _relax(self, problem: Problem, start: Start, state: AutoState) -> Iterator[None]:
        """Solve the relaxation as far as it is useful, and keep what its solution rounds to."""
        relaxed = Relaxed(random_state=self.random_state)
        inner = relaxed.init(problem, start)
        state.prove(inner.bound)
        first = start.primal(problem)
        state.pool.add(first)
        b = first.b
        yield
        if self._guess(problem, state, b, inner.g):
            yield
        grown = _is_growable(problem) and _is_lean(problem)
        if grown:
            self._grow(problem, state, b)
            yield
        support = fitted = np.empty(0, dtype=np.int64)
        own, slow, again, unproved, aimless = np.inf, 0, np.inf, np.inf, 0
        design = problem.design
        while not inner.settled:
            relaxed.advance(problem, inner)
            useful = _USEFUL_NEWTON if isinstance(inner.engine, NewtonEngine) else _USEFUL
            state.prove(inner.bound)
            rounded = relaxed.observe(problem, inner).fit
            state.pool.add(rounded)
            if not grown and state.gap > _OPEN * abs(state.objective) and _is_growable(problem):
                grown = True
                self._grow(problem, state, b)
            before, own = own, inner.engine.value - inner.bound.value
            proved = before < np.inf and problem.samples.any(inner.bound.alpha)  # infinite on a new working set
            slow = slow + 1 if proved and own > _PROGRESS * before else 0
            aimless = aimless + 1 if not proved and inner.engine.gap > _PROGRESS * unproved else 0
            unproved = inner.engine.gap
            hidden = inner.engine.hides(state.gap)
            if own <= useful * state.gap or slow >= _PATIENCE or aimless >= _MORE_PATIENCE or hidden:
                break
            last, support = support, np.flatnonzero(rounded.w)
            settled = own <= _MOSTLY * state.gap and design.passes >= again and not np.array_equal(fitted, support)
            if settled or (_alike(last, support) and not _alike(fitted, support)):
                fitted, before_fit = support, design.passes
                fit = self._fit(problem, state, support, rounded.w, rounded.b)
                again, b = 2.0 * design.passes - before_fit, fit.b
                if own > _FAR * state.gap and len(support) <= _FEW:
                    yield
                    self._search(problem, state, support, fit.w, fit.b, _EARLY_PASSES)
            yield
        w = relaxed.relaxed_model(problem, inner)
        for v in (w, -inner.g / problem.lam):
            fit = self._fit(problem, state, problem.constraint.select(v), v, inner.engine.b)
            if grown and _is_small(problem):
                self._search(problem, state, np.flatnonzero(fit.w), fit.w, fit.b)
            yield

    def _guess(self, problem: Problem, state: AutoState, b: float, g: Vector) -> bool:
        """Find a first answer, often a good one.

        Round a ridge regression, where that is a matter of milliseconds; of large X take the features that the first dual point
        asks for, or, where the ridge is small, those of a first look at the relaxation for a larger one.
        """
        n, d = problem.shape
        if float(n) * d * min(n, d) > _INSTANT:
            if _is_small(problem):
                return False
            easy = _is_lean(problem) and problem.constraint.size > _FEWEST_EASY
            support = problem.constraint.select(self._easy_model(problem, state) if easy else -g)
            state.pool.add(refit(problem, support, None, b, _GUESS, state.stop))
            return True
        w = problem.samples.ridge(0.5 * problem.lam, problem.fit_intercept)
        if w is not None:
            self._fit(problem, state, problem.constraint.select(w), np.zeros(d), b)
        return w is not None

    def _easy_model(self, problem: Problem, state: AutoState) -> Vector:
        """Return what a first look at the relaxation finds for a ridge as large as the curvature of a feature."""
        easy, relaxed = problem.replaced(lam=_curvature(problem)), Relaxed(random_state=self.random_state)
        inner = relaxed.init(easy, Start(stop=state.stop))
        relaxed.advance(easy, inner)
        return relaxed.relaxed_model(easy, inner)

    def _grow(self, problem: Problem, state: AutoState, b: float) -> None:
        """Add features one by one, then swap; the gap is too wide for screening."""
        design, limit = problem.design, problem.design.passes + _SEARCH_PASSES
        nothing = np.empty(0, dtype=np.int64)
        self._swaps(0)(problem, nothing, None, b, pool=state.pool, stop=lambda: state.stop() or design.passes > limit)
        assert state.pool.best is not None
        state.searched_early.add(state.pool.best.support.tobytes())

    def _grow_late(self, problem: Problem, state: AutoState) -> Iterator[None]:
        """Start once more from nothing, where the gap is still open."""
        if state.gap > _LOOSE * abs(state.objective):
            self._grow(problem, state, 0.0)
            self._search_best(problem, state)
            yield

    def _fit(self, problem: Problem, state: AutoState, support: Indices, w: Vector, b: float) -> Fit:
        """Keep the best model on a support; where it has many features, its bound as well."""
        many = len(support) > _FEW
        fit = refit(problem, support, w, b, rtol=_ROUGH_REFIT if many else _REFIT, stop=state.stop)
        state.pool.add(fit)
        if many:
            state.refitted = support
            state.prove(lower_bound(problem, dual_from_primal(problem, fit.w, fit.b, fit.u)))
        return fit

    def _search(
        self, problem: Problem, state: AutoState, support: Indices, w: Vector, b: float, budget: float | None = None
    ) -> None:
        """Improve a support by swaps, without kicks where there is a budget of reads of X; what screening decides stays."""
        key, early = np.sort(support).tobytes(), budget is not None
        known = state.searched_early if early else state.searched
        small_gap = len(support) > _SEARCHED and state.gap <= _LOOSE * abs(state.objective)
        if key in known | state.searched or small_gap or state.stop():
            return
        known.add(key)
        undecided = self._undecided(problem, state)
        if undecided is None:
            return
        design, before = problem.design, problem.design.passes
        limit = before + (_SEARCH_PASSES + _SEARCH_SHARE * (before - state.passes) if budget is None else budget)
        self._swaps(0 if early else _KICKS)(
            undecided, support, w, b, pool=state.pool, stop=lambda: state.stop() or design.passes > limit
        )
        assert state.pool.best is not None
        known.add(state.pool.best.support.tobytes())

    def _search_best(self, problem: Problem, state: AutoState) -> None:
        """Improve the best model by swaps."""
        best = state.pool.best
        assert best is not None
        self._search(problem, state, best.support, best.w, best.b)

    def _undecided(self, problem: Problem, state: AutoState) -> Problem | None:
        """The problem with what screening decides taken as decided; None where that is everything."""
        best, bound = state.pool.best, state.bound
        assert best is not None
        assert bound is not None
        attained = upper_bound(problem, best.w, best.b)
        screening = bound.screening(problem)
        required, excluded = screening.required(attained), screening.excluded(attained)
        constraint = problem.constraint.restricted(required, excluded)
        room, inside, outside = constraint.free(problem.shape[1])
        if room <= 0 or len(inside) + len(outside) >= problem.shape[1]:
            return None
        return problem.replaced(constraint=constraint)

    def _continue(self, problem: Problem, state: AutoState) -> Iterator[None]:
        """Start again from the relaxations for larger ridges, whose supports are less torn between correlated features."""
        alpha = None
        if state.gap <= _LOOSE * abs(state.objective):
            return
        small = _is_small(problem) or problem.loss.is_squared_error
        for factor in reversed(_CONTINUATION):
            larger = problem.replaced(lam=factor * problem.lam)
            relaxed = Relaxed(accuracy=1e-3, random_state=self.random_state)
            inner = relaxed.init(larger, Start(alpha=alpha, stop=state.stop))
            for _ in range(_MOST_LOOKS):
                if inner.settled or state.stop():
                    break
                relaxed.advance(larger, inner)
            alpha = inner.engine.alpha
            w = relaxed.relaxed_model(larger, inner)
            support = problem.constraint.select(w)
            fit = self._fit(problem, state, support, w, inner.engine.b)
            if small or fit.objective <= (1.0 + _PROMISING) * state.objective:
                self._search(problem, state, support, fit.w, fit.b)
            if _is_drowned(problem):
                self._search_larger(larger, problem, state)
            yield

    def _search_larger(self, larger: Problem, problem: Problem, state: AutoState) -> None:
        """Improve the best support by swaps for a larger ridge, where their gains are more than rounding, then for its own."""
        best = state.pool.best
        assert best is not None
        pool = Pool()
        fit = refit(larger, best.support, best.w, best.b, _REFIT, state.stop)
        pool.add(fit)
        self._swaps()(larger, best.support, fit.w, fit.b, pool=pool, stop=state.stop)
        assert pool.best is not None
        self._fit(problem, state, pool.best.support, pool.best.w, pool.best.b)
        self._search_best(problem, state)

    def _kick(self, problem: Problem, state: AutoState) -> Iterator[None]:
        """Do without a few features of the best model, search, and search on from there with all of them allowed."""
        rng, nothing = np.random.default_rng(self.random_state), np.empty(0, dtype=np.int64)
        limit = problem.design.passes + _KICK_PASSES
        for t in range(_KICKS):
            undecided = self._undecided(problem, state)
            if undecided is None or state.gap <= _LOOSE * abs(state.objective):
                return
            if state.stop() or problem.design.passes > limit:
                return
            best = state.pool.best
            assert best is not None
            free = np.setdiff1d(best.support, undecided.constraint.free(problem.shape[1])[1])
            away = rng.choice(free, min(1 + t % _MOST_AWAY, len(free)), replace=False)
            other = undecided.replaced(constraint=undecided.constraint.restricted(nothing, np.sort(away)))
            support = np.setdiff1d(best.support, away)
            fit = self._swaps()(other, support, best.w, best.b, pool=state.pool, stop=state.stop)
            self._search(problem, state, np.flatnonzero(fit.w), fit.w, fit.b, _EARLY_PASSES)
            yield

    def _swaps(self, kicks: int = _KICKS) -> Callable[..., Fit]:
        """The search, with its seed."""
        return partial(swap_search, kicks=kicks, random_state=self.random_state)

    def _shift(self, problem: Problem, state: AutoState) -> Iterator[None]:
        """Move curvature of the features in play into the ridge, screen, and again while features leave."""
        if not state.is_open:
            return
        before = np.inf
        for _ in range(_SHIFTS):
            best = state.pool.best
            assert best is not None
            assert state.bound is not None
            attained = upper_bound(problem, best.w, best.b)
            features, ceiling = in_play(problem, state.bound.screening(problem), attained)
            if not 0 < len(features) <= min(0.9 * before, _MOST_GRAM, problem.shape[0]):
                return
            before = len(features)
            known = problem_gram(problem, features)
            sigma = smallest_eigenvalue(problem, features, known)
            if sigma == 0.0:
                return
            relaxation = GramRelaxation(problem, features, sigma, known)
            solved = relaxation.solve(p0=best.w, tol=_SHIFT_ACCURACY)
            origin = state.bound if len(others(problem, features)) else None
            state.prove(relaxation.certified(solved.p, ceiling=ceiling, origin=origin))
            self._search(problem, state, problem.constraint.select(solved.p), solved.p, best.b)
            yield


def _curvature(problem: Problem) -> float:
    """Return the curvature of the squared loss along a feature, on average."""
    return float(problem.samples.mean_weight * np.square(problem.design.column_norms()).mean()) / problem.loss.mu


def _is_lean(problem: Problem) -> bool:
    """Tell whether the ridge is so small that the relaxation is loose and slow; for the squared loss."""
    return problem.loss.is_squared_error and problem.lam < _LEAN * _curvature(problem)


def _is_drowned(problem: Problem) -> bool:
    """Tell whether the ridge is so small that rounding hides what a swap gains; in a small problem of the squared loss."""
    if not (problem.loss.is_squared_error and problem.constraint.is_plain and _is_small(problem)):
        return False
    return problem.lam < _DROWNED * _curvature(problem)


def _is_small(problem: Problem) -> bool:
    return float(problem.shape[0]) * problem.shape[1] <= _SMALL


def _is_growable(problem: Problem) -> bool:
    """Whether adding features one by one, then swapping, is worth its time, where the relaxation is too loose to tell much."""
    return problem.loss.is_squared_error and problem.constraint.size <= _GROWN


def _alike(one: Indices, other: Indices) -> bool:
    """Whether two supports share most of their features."""
    return len(np.intersect1d(one, other, assume_unique=True)) > _ALIKE * max(len(one), len(other))


_ENDED = object()

"""The default: relaxation, several starts, repair of their supports, screening; branching where it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diht.duality import Bound, dual_from_primal, lower_bound, primal, upper_bound
from diht.losses import Squared
from diht.problem import Problem
from diht.shift import in_play, problem_gram, smallest_eigenvalue
from diht.solvers.base import Point, Solver, Start, never
from diht.solvers.gram import GramRelaxation
from diht.solvers.pool import Pool
from diht.solvers.refit import refit
from diht.solvers.relaxed import Relaxed
from diht.solvers.swaps import swap_search

__all__ = ["Auto", "AutoState"]

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

_USEFUL = 0.01  # the relaxation is solved to this fraction of the gap that it leaves
_FIRST_FIT = 0.3  # a first refit comes when the relaxation's own gap is below this fraction of the whole gap
_CONTINUATION = (10.0, 100.0, 1000.0)  # multiples of lam from whose relaxations further starts come
_MOST_GRAM = 6000  # features up to which a shift is looked for
_SHIFTS = 3  # rounds of screening and shifting
_REFIT = 1e-10
_SHIFT_ACCURACY = 1e-7
_KICKS = 20
_LOOSE = 1e-3  # relative gap above which more starts are tried


@dataclass
class AutoState:
    """What has been found, and the work that is left."""

    pool: Pool = field(default_factory=Pool)
    bound: Bound | None = None
    work: Iterator[None] = field(default_factory=lambda: iter(()))
    searched: set[bytes] = field(default_factory=set)  # supports from which a swap search began
    done: bool = False
    stop: Callable[[], bool] = never

    @property
    def objective(self) -> float:
        """The best objective so far."""
        return np.inf if self.pool.best is None else self.pool.best.objective

    @property
    def gap(self) -> float:
        """What is still open."""
        return self.objective - (-np.inf if self.bound is None else self.bound.value)

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
        state = AutoState(stop=start.stop)
        state.work = self._work(problem, start, state)
        self.advance(problem, state)
        return state

    def advance(self, problem: Problem, state: AutoState) -> None:
        """Do the next piece of the work."""
        state.done = next(state.work, _ENDED) is _ENDED

    def observe(self, problem: Problem, state: AutoState) -> Point:
        """Return the best model so far and the best bound."""
        best = state.pool.best
        assert best is not None
        assert state.bound is not None
        w = best.coefficients(problem.shape[1])
        u = problem.design.matvec(w, support=best.support) + best.b
        return Point(w, best.b, u, state.bound.alpha, support=best.support, bound=state.bound)

    def finished(self, state: AutoState) -> bool:
        """Tell whether all is done."""
        return state.done

    def pool(self, state: AutoState) -> Pool:
        """Return the models that came closest to the best."""
        return state.pool

    def polish(self, problem: Problem, state: AutoState, w: Vector, b: float) -> Point:
        """Make sure that no swap improves the best model, and fit it once more; its own dual point may prove more."""
        self._search(problem, state, np.flatnonzero(w), w, b)
        best = state.pool.best
        assert best is not None
        w, b, u = refit(problem, best.support, best.coefficients(problem.shape[1]), best.b)
        state.pool.add(w, b, primal(problem, w, b, u), best.support)
        state.prove(lower_bound(problem, dual_from_primal(problem, w, b, u)))
        return self.observe(problem, state)

    # The pieces of the work

    def _work(self, problem: Problem, start: Start, state: AutoState) -> Iterator[None]:
        yield from self._relax(problem, start, state)
        assert state.pool.best is not None
        best = state.pool.best
        self._search(problem, state, best.support, best.coefficients(problem.shape[1]), best.b)
        yield
        if isinstance(problem.loss, Squared):
            yield from self._shift(problem, state)
        yield from self._continue(problem, state)

    def _relax(self, problem: Problem, start: Start, state: AutoState) -> Iterator[None]:
        """Solve the relaxation as far as it is useful, and keep what its solution rounds to."""
        relaxed = Relaxed(random_state=self.random_state)
        inner = relaxed.init(problem, start)
        state.prove(inner.bound)
        w, b = start.primal(problem)
        self._keep(problem, state, w, b)
        yield
        fitted = False
        while not inner.settled:
            relaxed.advance(problem, inner)
            state.prove(inner.bound)
            rounded = relaxed.observe(problem, inner)
            state.pool.add(rounded.w, rounded.b, primal(problem, rounded.w, rounded.b, rounded.u), rounded.support)
            own = inner.engine.value - inner.bound.value
            if own <= _USEFUL * state.gap:
                break
            if not fitted and own <= _FIRST_FIT * state.gap:
                fitted = True
                self._fit(problem, state, np.flatnonzero(rounded.w), rounded.w, rounded.b)
            yield
        w = relaxed.relaxed_model(problem, inner)
        for v in (w, -inner.g / problem.lam):
            self._fit(problem, state, problem.constraint.select(v), v, inner.engine.b)

    def _keep(self, problem: Problem, state: AutoState, w: Vector, b: float) -> None:
        """Keep a model as it is."""
        state.pool.add(w, b, primal(problem, w, b))

    def _fit(self, problem: Problem, state: AutoState, support: Indices, w: Vector, b: float) -> None:
        """Keep the best model on a support; its own dual point may prove it optimal."""
        w, b, u = refit(problem, support, w, b, rtol=_REFIT)
        state.pool.add(w, b, primal(problem, w, b, u), support)

    def _search(self, problem: Problem, state: AutoState, support: Indices, w: Vector, b: float) -> None:
        """Improve a support by swaps; what screening decides stays as it is."""
        key = np.sort(support).tobytes()
        if key in state.searched or state.stop():
            return
        state.searched.add(key)
        swap_search(
            problem, support, w, b, kicks=_KICKS, random_state=self.random_state, stop=state.stop, pool=state.pool
        )
        assert state.pool.best is not None
        state.searched.add(state.pool.best.support.tobytes())

    def _continue(self, problem: Problem, state: AutoState) -> Iterator[None]:
        """Start again from the relaxations for larger ridges, whose supports are less torn between correlated features."""
        alpha = None
        if state.gap <= _LOOSE * abs(state.objective):
            return
        for factor in reversed(_CONTINUATION):
            larger = problem.replaced(lam=factor * problem.lam)
            relaxed = Relaxed(accuracy=1e-3, random_state=self.random_state)
            inner = relaxed.init(larger, Start(alpha=alpha, stop=state.stop))
            while not (inner.settled or state.stop()):
                relaxed.advance(larger, inner)
            alpha = inner.engine.alpha
            support = problem.constraint.select(relaxed.relaxed_model(larger, inner))
            self._search(problem, state, support, relaxed.relaxed_model(larger, inner), inner.engine.b)
            yield

    def _shift(self, problem: Problem, state: AutoState) -> Iterator[None]:
        """Move curvature of the features in play into the ridge, screen, and again while features leave."""
        before = np.inf
        for _ in range(_SHIFTS):
            best = state.pool.best
            assert best is not None
            assert state.bound is not None
            attained = upper_bound(problem, best.coefficients(problem.shape[1]), best.b)
            features, ceiling = in_play(state.bound.screening(problem), attained)
            if not 0 < len(features) <= min(0.9 * before, _MOST_GRAM, problem.shape[0]):
                return
            before = len(features)
            known = problem_gram(problem, features)
            sigma = smallest_eigenvalue(problem, features, known)
            if sigma == 0.0:
                return
            relaxation = GramRelaxation(problem, features, sigma, known)
            w = best.coefficients(problem.shape[1])
            solved = relaxation.solve(p0=w, tol=_SHIFT_ACCURACY)
            origin = state.bound if len(features) < problem.shape[1] else None
            state.prove(relaxation.certified(solved.p, ceiling=ceiling, origin=origin))
            self._search(problem, state, problem.constraint.select(solved.p), solved.p, best.b)
            yield


_ENDED = object()

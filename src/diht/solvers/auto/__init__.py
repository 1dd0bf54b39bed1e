"""The default: a list of stages that find models or prove bounds, each where the profile of the problem asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from diht.fit import Fit
from diht.numerics.threads import blas_threads
from diht.problem import Problem
from diht.refit import never, refit
from diht.result import Status
from diht.search.pool import Pool
from diht.solvers.auto.profile import USEFUL
from diht.solvers.auto.stages import (
    Beginning,
    Branching,
    Continuation,
    DualRounding,
    EarlyShift,
    ForwardSelection,
    LargerRidge,
    ManyStarts,
    Perturbation,
    RelaxationAgain,
    RelaxationRounding,
    RelaxationSolution,
    Reselection,
    Restarts,
    RidgeRounding,
    RowSample,
    Shift,
    ShortTree,
    Stage,
    SwapOptimality,
    Swaps,
    is_spent,
)
from diht.solvers.auto.state import REFIT, AutoState
from diht.solvers.base import Point, Solver, Start

__all__ = ["STAGES", "Auto"]

STAGES: tuple[Stage, ...] = (
    Beginning(),  # the start's model, the first dual point's bound
    RowSample(),  # a first model: of many rows, that of some,
    RidgeRounding(),  # of a small X,
    DualRounding(),  # of a large one,
    ForwardSelection(),  # and of up to 50 features, grown and swapped
    EarlyShift(),  # squared loss, more samples than features: swaps, a larger ridge from the data's curvature
    RelaxationSolution(),  # the bound of all other problems, and roundings
    RelaxationRounding(),
    Swaps(),  # local search around the incumbent
    Shift(),  # squared loss: a larger ridge for the features that screening leaves
    ShortTree(),  # the beginning of a search tree, which proves small problems
    Continuation(),  # further starts while the gap is loose: larger ridges,
    LargerRidge(),  # swaps for larger ridges where lam is negligible,
    Reselection(),  # forward selection for losses with kinks,
    Perturbation(),  # restarts without a few features of the incumbent,
    ManyStarts(),  # and searches from many starts in compiled code
    RelaxationAgain(),  # the bound, where it was left beside a poorer incumbent
    SwapOptimality(),  # swaps until none improves the incumbent, or that takes too long
    Restarts(),  # of text, swaps from several features exchanged at once
    Branching(),  # a search tree within a budget
)

_EXACT_REFIT = 1e9  # operations of a Hessian up to which the last refit goes as far as float64 can


@dataclass(frozen=True)
class Auto(Solver):
    """Solve the relaxation, round its solutions for several ridges, repair them by swaps, and prove how good the best is.

    Parameters
    ----------
    random_state : int
        Seed of all that is random.
    branching : bool
        Whether to branch, within a budget of operations.
    follows_path : bool
        Whether the start comes from a path: under the squared loss stages for starts do less, as long as its model stands.
    """

    random_state: int = 0
    branching: bool = field(default=True, kw_only=True, repr=False)
    follows_path: bool = field(default=False, kw_only=True, repr=False)

    sums_suffice: ClassVar[bool] = True
    patience: ClassVar[float] = np.inf  # each stage has a limit of its own
    stages: ClassVar[tuple[Stage, ...]] = STAGES

    def init(self, problem: Problem, start: Start) -> AutoState:
        """Plan the work."""
        state = AutoState(problem, start, self.random_state, follows_path=self.follows_path)
        state.work, state.solve_part = self._work(state), partial(self._solved, start.stop)
        self.advance(problem, state)
        return state

    def _solved(self, stop: Callable[[], bool], problem: Problem) -> Iterator[AutoState]:
        """Go through all stages but the last proofs on some of the rows, unless the time is up; yield after each."""
        state = AutoState(problem, Start(stop=stop), self.random_state)
        left_out = RowSample, ShortTree, ManyStarts, SwapOptimality, Restarts
        for stage in self.stages:
            if not isinstance(stage, left_out):
                with blas_threads(False):
                    for _ in _through((stage,), state):
                        if stop():
                            break
                yield state

    def _work(self, state: AutoState) -> Iterator[None]:
        return _through((stage for stage in self.stages if self.branching or not isinstance(stage, ShortTree)), state)

    def first(self, problem: Problem, state: AutoState, start: Start) -> Point:
        """Return the start, which the first piece of the work has evaluated."""
        return self.observe(problem, state)

    def advance(self, problem: Problem, state: AutoState) -> None:
        """Do the next piece of the work."""
        state.done = next(state.work, _ENDED) is _ENDED

    def observe(self, problem: Problem, state: AutoState) -> Point:
        """Return the best model so far and the best bound."""
        assert state.bound is not None
        n_open = None if state.tree is None else len(state.tree.open)
        return Point(state.best, state.bound.alpha, bound=state.bound, n_open=n_open)

    def finished(self, state: AutoState) -> bool:
        """Tell whether all is done."""
        return state.done

    def ending(self, state: AutoState) -> Status:
        """Tell whether the budget of the search tree was used up."""
        return Status.NODE_LIMIT if state.tree is not None and is_spent(state.tree) else Status.STALLED

    def pool(self, state: AutoState) -> Pool:
        """Return the models that came closest to the best."""
        return state.pool

    def swap_optimal(self, state: AutoState) -> bool | float:
        """Tell whether a swap could improve the best model, or by how much at most: by no more than the gap."""
        left = state.swap_optimal
        if isinstance(left, bool):
            return left
        return min(left, state.gap) if state.is_open else True

    def larger_ridges(self, state: AutoState) -> tuple[tuple[float, float], ...]:
        """Return what the relaxations for larger ridges proved."""
        return tuple(state.larger_ridges)

    def polish(self, problem: Problem, state: AutoState, best: Fit) -> Point | None:
        """Swap while that improves the best model, as far as the limits allow, and fit it once more: that may prove more."""
        if state.is_open:
            for _ in state.search(np.flatnonzero(best.w), best.w, best.b):
                pass
        for _ in state.settle():
            pass
        best = state.best
        if state.refitted is not None and np.array_equal(best.support, state.refitted):
            return self.observe(problem, state)
        costly = problem.shape[0] * float(len(best.support)) ** 2 > _EXACT_REFIT
        fine = max(REFIT, USEFUL * state.gap / max(abs(state.objective), np.finfo(float).tiny))
        rtol, stop = (fine, state.stop) if costly else (0.0, never)
        fit = refit(problem, best.support, best.w, best.b, rtol, stop)
        state.pool.add(fit)
        state.prove_by(fit)
        return self.observe(problem, state)


def _through(stages: Iterable[Stage], state: AutoState) -> Iterator[None]:
    for stage in stages:
        wanted = not (stage.seeks_starts and state.start_stands)
        if state.is_open and wanted and stage.applies(state.profile):
            yield from stage.run(state)


_ENDED = object()

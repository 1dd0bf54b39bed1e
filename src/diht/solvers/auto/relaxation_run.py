"""The relaxation while `auto` solves it: its progress, when to end it, which of its roundings to refit."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from diht.bounds.duality import Bound
from diht.fit import Fit
from diht.numerics.arrays import Indices, Vector
from diht.problem import Problem
from diht.relaxation.engines import NewtonEngine
from diht.samples import Intercept
from diht.solvers.auto.profile import MANY, PROGRESS, USEFUL
from diht.solvers.base import Start
from diht.solvers.relaxed import Relaxed, RelaxedState

__all__ = ["RelaxationRun"]


_NEWTON_USEFUL = 1e-3  # fraction of the gap to which Newton's method solves the relaxation: its last steps gain most
_MOST_SLOW = 3  # steps without progress on the relaxation's own gap, in a row, that end it
_MOST_UNPROVED = 30  # the same while the bound is that of alpha = 0
_NEARLY_SOLVED = 0.2  # own gap, relative to the gap, below which new roundings are refitted, in half of all reads
_UNSOLVED = 0.7  # own gap, relative to the gap, above which a rounding is searched without waiting for the solution
_RESUMED = 1e-3  # smoothing of a loss with kinks where the model of some rows is near: less and steps go astray
_HOPELESS = 0.05  # of the objective: a bound below that says little, and takes long where lam is small
_ALIKE = 0.9  # share of common features of two supports that count as the same

_NONE: Indices = np.empty(0, dtype=np.int64)


@dataclass(eq=False)
class RelaxationRun:
    """The relaxation of a problem, solved step by step."""

    problem: Problem
    relaxed: Relaxed
    inner: RelaxedState
    own_gap: float = np.inf  # of the relaxation, on all features
    slow: int = 0  # slow steps in a row
    unproved: int = 0  # and those that prove nothing
    engine_gap: float = np.inf
    rounded: Fit | None = None
    support: Indices = field(default_factory=lambda: _NONE)  # of the last rounding, and of the last one refitted
    refitted: Indices = field(default_factory=lambda: _NONE)
    next_refit: float = np.inf  # reads of X
    resumed: bool = False  # from the solution for some of the rows
    left: bool = False  # as hopeless beside the incumbent of that time

    @classmethod
    def begun(cls, problem: Problem, start: Start, random_state: int) -> RelaxationRun:
        """Begin at a start."""
        relaxed = Relaxed(random_state=random_state)
        return cls(problem, relaxed, relaxed.init(problem, start))

    def resume(self, w: Vector, b: Intercept) -> None:
        """Go on from a relaxed model of all features, where Newton's method solves the relaxation."""
        engine = self.inner.engine
        if isinstance(engine, NewtonEngine):
            self.resumed = True
            engine.begin(w if self.inner.features is None else w[self.inner.features], b, _RESUMED)

    @property
    def bound(self) -> Bound:
        """The best bound so far."""
        return self.inner.bound

    @property
    def solved(self) -> bool:
        """Whether the relaxation is solved."""
        return self.inner.settled

    @property
    def b(self) -> Intercept:
        """Intercept of the relaxation's model."""
        return self.inner.engine.b

    def models(self) -> tuple[Vector, Vector]:
        """Return what may be rounded: the relaxation's model, and that of its dual point."""
        return self.relaxed.relaxed_model(self.problem, self.inner), -self.inner.g / self.problem.lam

    def advance(self) -> Fit:
        """Make a step on all features, and return the rounding of its model."""
        self.relaxed.advance(self.problem, self.inner)
        bound, engine = self.inner.bound, self.inner.engine
        before, self.own_gap = self.own_gap, engine.value - bound.value
        proves = before < np.inf and self.problem.samples.any(bound.alpha)
        self.slow = self.slow + 1 if proves and self.own_gap > PROGRESS * before else 0
        self.unproved = self.unproved + 1 if not proves and engine.gap > PROGRESS * self.engine_gap else 0
        self.engine_gap = engine.gap
        self.rounded = self.relaxed.observe(self.problem, self.inner).fit
        return self.rounded

    def rest(self) -> None:
        """Let no work go on that has not been asked for."""
        self.inner.engine.rest()

    def is_hopeless(self, objective: float) -> bool:
        """Whether the relaxation's optimum, which no bound of it exceeds, is a small part of the incumbent's objective."""
        return self.inner.engine.value <= _HOPELESS * objective

    def suffices(self, gap: float) -> bool:
        """Whether going on would gain little of a gap between incumbent and bound, or takes too long."""
        engine = self.inner.engine
        accuracy = _NEWTON_USEFUL if isinstance(engine, NewtonEngine) and not self.resumed else USEFUL
        too_slow = self.slow >= _MOST_SLOW or self.unproved >= _MOST_UNPROVED
        return self.own_gap <= accuracy * gap or too_slow or engine.hides(gap)

    def is_worth_a_refit(self, gap: float) -> bool:
        """Whether the support of the rounding no longer changes much, or the relaxation is nearly solved."""
        assert self.rounded is not None
        last, self.support = self.support, self.rounded.support[self.rounded.values != 0.0]
        due = self.own_gap <= _NEARLY_SOLVED * gap and self.problem.design.passes >= self.next_refit
        if due and not np.array_equal(self.refitted, self.support):
            return True
        return _alike(last, self.support) and not _alike(self.refitted, self.support)

    def note_refit(self, reads_before: float) -> None:
        """Remember a refit; the next is due after as many reads of X as it took."""
        self.refitted = self.support
        self.next_refit = 2.0 * self.problem.design.passes - reads_before

    def is_worth_a_descent(self, gap: float) -> bool:
        """Whether swaps should not wait for the solution."""
        return self.own_gap > _UNSOLVED * gap and len(self.support) <= MANY


def _alike(one: Indices, other: Indices) -> bool:
    """Whether two supports share most of their features."""
    return len(np.intersect1d(one, other, assume_unique=True)) > _ALIKE * max(len(one), len(other))

"""What every method has in common: it starts, it advances, it can be looked at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from diht.bounds.duality import Bound, dual_from_primal, feasible
from diht.fit import Fit
from diht.numerics.arrays import Indices, Vector
from diht.problem import Problem
from diht.refit import never
from diht.result import Status
from diht.samples import Intercept, Rows
from diht.search.pool import Pool

__all__ = ["DualModel", "Point", "Solver", "Start", "begun", "evaluated"]


@dataclass(frozen=True, eq=False)
class Start:
    """Where a solve begins: a model (in the problem's centred coordinates), a dual point, both, or neither.

    `u` are the margins Xw + b, where they are known. `bound` is what an earlier solve, perhaps of another problem, proved: no
    method may trust it, but for `Bound.renewed`. `stop` is the loop's: pieces of work that take long ask it now and then, and end
    early where it says True.
    """

    w: Vector | None = None
    b: Intercept = 0.0
    alpha: Rows | None = None
    bound: Bound | None = None
    stop: Callable[[], bool] = never
    u: Rows | None = None

    def dual(self, problem: Problem) -> Rows:
        """Return a feasible dual point: the given one, that of the given model, or the paper's zero.

        Zero is an end of F for losses whose conjugate has no finite derivative there; they start from l'(0).
        """
        if self.alpha is not None:
            return feasible(problem, self.alpha)
        if self.w is not None:
            return dual_from_primal(problem, self.w, self.b, self.u)
        if problem.loss.explicit:
            return problem.samples.full(0.0)
        loss = problem.loss
        return feasible(problem, problem.samples.map(lambda y, s: loss.start(y)))

    def primal(self, problem: Problem) -> Fit:
        """Return a model: the given one, that of the given dual point, or the one without features."""
        if self.w is not None:
            w, support = problem.constraint.threshold(self.w)
            return Fit.of(problem, w, self.b, self.u if np.array_equal(w, self.w) else None, support)
        if self.alpha is not None:
            g = problem.samples.pull(self.alpha)
            return evaluated(problem, *problem.constraint.threshold(-g / problem.lam))
        return Fit.of(problem, np.zeros(problem.shape[1]), problem.null_intercept)


@dataclass(frozen=True, eq=False)
class Point:
    """What an evaluation looks at: a model, and a dual point with its products.

    `g` is X'(s alpha) computed afresh (never by increments), `value` the constraint's value of g where it is known. A method
    without a dual point of its own leaves `alpha` out; one that proves more than a dual point does gives the `bound`. `n_open`
    counts the open nodes of a search tree.
    """

    fit: Fit
    alpha: Rows | None = None
    g: Vector | None = None
    value: float | None = None
    bound: Bound | None = None
    n_open: int | None = None


@dataclass
class DualModel:
    """The model w(alpha) = H_k(-g / lam) of a dual point, kept in a vector that is written over, support by support."""

    w: Vector
    support: Indices
    value: float = 0.0  # the constraint's value of g

    @classmethod
    def zero(cls, problem: Problem) -> DualModel:
        """Begin with nothing selected."""
        return cls(np.zeros(problem.shape[1]), np.empty(0, dtype=np.int64))

    def read(self, problem: Problem, g: Vector) -> None:
        """Take the model of the dual point whose X'(s alpha) is g."""
        self.support = problem.pull_constraint.rethreshold(g, self.w, self.support)
        kept = self.w[self.support]
        # BLAS would wake its threads for this; without limits it is the sum of their squares.
        self.value = float((kept * (2.0 * g[self.support] - kept)).sum())
        self.w[self.support] = kept / -problem.lam


class Solver(ABC):
    """A method: a small frozen object whose fields are its settings. The loop in `diht.solvers.loop` drives all of them."""

    max_epochs: ClassVar[int] = 1000  # after which a solve ends unless told otherwise
    patience: ClassVar[float] = 50  # epochs without progress, seen by a few evaluations, that end a solve as stalled
    free_evaluation: ClassVar[bool] = True  # whether looking at the state costs no pass over X
    takes_targets: ClassVar[bool] = True  # whether samples may have several targets
    sums_suffice: ClassVar[bool] = False  # whether it is after the optimum alone: sums of the squared loss tell that

    @abstractmethod
    def init(self, problem: Problem, start: Start) -> Any:
        """Make the state of the method at its starting point."""

    def first(self, problem: Problem, state: Any, start: Start) -> Point:
        """Return the model and the dual point that a solve was given to start from."""
        return Point(start.primal(problem), start.dual(problem))

    @abstractmethod
    def advance(self, problem: Problem, state: Any) -> None:
        """Make one step, changing the state in place."""

    @abstractmethod
    def observe(self, problem: Problem, state: Any) -> Point:
        """Return the current iterate, with all that the step has computed of it."""

    def last(self, problem: Problem, state: Any) -> Point:
        """Return the method's output by the paper: the last iterate."""
        return self.observe(problem, state)

    def polish(self, problem: Problem, state: Any, best: Fit) -> Point | None:
        """Return a last improvement of the best model found, if the method has one."""
        return None

    def pool(self, state: Any) -> Pool | None:
        """Return the models that came closest to the best, if the method keeps them."""
        return None

    def swap_optimal(self, state: Any) -> bool | float:
        """Tell whether a swap could improve the best model, or by how much at most; False where a method does not look at swaps."""
        return False

    def larger_ridges(self, state: Any) -> tuple[tuple[float, float], ...]:
        """Return pairs (e, B) of bounds B that were proved for ridges larger by e, if the method meets any."""
        return ()

    def epoch(self, state: Any) -> int:
        """Return the number of steps that read about as much as the whole of X."""
        return 1

    def finished(self, state: Any) -> bool:
        """Tell whether further steps would change nothing."""
        return False

    def ending(self, state: Any) -> Status:
        """Tell why a method ended that is finished with the gap open."""
        return Status.STALLED

    def at_limit(self, state: Any) -> bool:
        """Tell whether a limit among the method's own settings was reached."""
        return False


def begun(problem: Problem, start: Start) -> tuple[Rows, Vector]:
    """Return a dual point of one's own to start from, and its X'(s alpha)."""
    alpha = problem.samples.copy(start.dual(problem))
    return alpha, problem.samples.pull(alpha) if problem.samples.any(alpha) else np.zeros(problem.shape[1])


def evaluated(problem: Problem, w: Vector, support: Indices, b: Intercept = 0.0, u: Rows | None = None) -> Fit:
    """Return the model of some coefficients with their best intercept, searched from b; `u` is Xw where it is known."""
    samples = problem.samples
    u = samples.margins(w, support=support) if u is None else u
    if not problem.fit_intercept:
        return Fit.of(problem, w, 0.0, u, support)
    b = samples.best_intercept(problem.loss, u, b)
    return Fit.of(problem, w, b, samples.shifted(u, b), support)

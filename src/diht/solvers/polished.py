"""A method whose best model is refitted on its support at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diht.duality import dual_from_primal
from diht.problem import Problem
from diht.solvers.base import Point, Solver, Start
from diht.solvers.refit import refit

__all__ = ["Polished"]

_ACCURACY = 1e-10


@dataclass(frozen=True)
class Polished(Solver):
    """Run a method, then minimise over the support of its best model.

    Where lam is small, the dual methods find a good support long before its coefficients have settled.

    Parameters
    ----------
    method : Solver
        The method to run.
    """

    method: Solver

    def init(self, problem: Problem, start: Start) -> Any:
        """Start the method."""
        return self.method.init(problem, start)

    def advance(self, problem: Problem, state: Any) -> None:
        """Advance the method."""
        self.method.advance(problem, state)

    def observe(self, problem: Problem, state: Any) -> Point:
        """Return the method's iterate."""
        return self.method.observe(problem, state)

    def last(self, problem: Problem, state: Any) -> Point:
        """Return the method's last iterate."""
        return self.method.last(problem, state)

    def polish(self, problem: Problem, w: NDArray[np.float64], b: float) -> Point:
        """Minimise over the support of the best model; its own dual point may prove more than any before."""
        w, b, u = refit(problem, np.flatnonzero(w), w, b, rtol=_ACCURACY)
        return Point(w, b, u, dual_from_primal(problem, w, b, u))

    def epoch(self, state: Any) -> int:
        """Return the method's epoch."""
        return self.method.epoch(state)

    def finished(self, state: Any) -> bool:
        """Tell whether the method has finished."""
        return self.method.finished(state)

    @property
    def max_epochs(self) -> int:  # type: ignore[override]
        """The method's own limit."""
        return self.method.max_epochs

    @property
    def free_evaluation(self) -> bool:  # type: ignore[override]
        """As for the method."""
        return self.method.free_evaluation

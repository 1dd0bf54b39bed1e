"""Hard thresholding pursuit: a gradient step chooses the support, a refit fills it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diht.problem import Problem
from diht.refit import refit
from diht.solvers.base import Point, Solver, Start
from diht.solvers.iht import PrimalState, primal_gradient, start_primal
from diht.solvers.steps import StepSize, check_step, primal_step

__all__ = ["HTP"]


@dataclass(frozen=True)
class HTP(Solver):
    r"""Hard thresholding pursuit (Foucart, 2011).

    .. math:: F \leftarrow \operatorname{supp} \mathrm{H}_k\left(w - \eta_t P'(w)\right), \qquad
              w \leftarrow \arg\min_{\operatorname{supp} w \subseteq F} P(w)

    Parameters
    ----------
    step : "auto", float or callable
        eta_t. "auto" is 1/L, L a safe bound on the curvature of P; without smoothness it decays.
    """

    step: StepSize = "auto"

    max_epochs = 200

    def __post_init__(self) -> None:
        check_step(self.step)

    def init(self, problem: Problem, start: Start) -> PrimalState:
        """Start from a model (the paper: zero)."""
        return start_primal(problem, start, self.step)

    def advance(self, problem: Problem, state: PrimalState) -> None:
        """Choose a support by one gradient step, and minimise over it."""
        before, gradient = state.fit, primal_gradient(problem, state)
        eta = primal_step(problem, self.step, state.t, state.sigma_sq, before.margins(problem))
        support = problem.constraint.select(before.added_to(-eta * gradient))
        state.fit = refit(problem, support, before.w, before.b)
        same = np.array_equal(np.flatnonzero(state.fit.w), np.flatnonzero(before.w))
        state.finished = same and state.t > 0
        state.t += 1

    def observe(self, problem: Problem, state: PrimalState) -> Point:
        """Return the model, and the dual point of the gradient."""
        return Point(state.fit, state.alpha, state.g)

    def finished(self, state: PrimalState) -> bool:
        """Tell whether the support came back: the next step would do the same again."""
        return state.finished

"""Iterative hard thresholding: projected gradient descent on the primal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diht.bounds.duality import dual_from_primal
from diht.fit import Fit
from diht.numerics.arrays import Vector
from diht.problem import Problem
from diht.samples import Rows
from diht.solvers.base import Point, Solver, Start, evaluated
from diht.solvers.steps import StepSize, check_step, is_safe, primal_step

__all__ = ["IHT", "PrimalState", "primal_gradient", "start_primal"]


_MOST_HALVINGS = 100


@dataclass
class PrimalState:
    """A model, and the dual point of the model before it (whose g the gradient needed anyway)."""

    fit: Fit
    sigma_sq: float
    alpha: Rows | None = None
    g: Vector | None = None
    t: int = 0
    finished: bool = False


@dataclass(frozen=True)
class IHT(Solver):
    r"""Gradient step on all features, then hard thresholding (Blumensath and Davies, 2009).

    .. math:: w \leftarrow \mathrm{H}_k\left(w - \eta_t P'(w)\right)

    The intercept is set to its best value after each step. The gradient's own dual point l'(Xw) gives a bound for free.

    Parameters
    ----------
    step : "auto", float or callable
        eta_t. "auto" is 1/L, L a safe bound on the curvature of P, so that P never rises; where there is no bound (Poisson), L at
        the model, halved until P does not rise; without smoothness it decays.
    """

    step: StepSize = "auto"

    def __post_init__(self) -> None:
        check_step(self.step)

    def init(self, problem: Problem, start: Start) -> PrimalState:
        """Start from a model (the paper: zero)."""
        return start_primal(problem, start, self.step)

    def advance(self, problem: Problem, state: PrimalState) -> None:
        """Make one gradient step and one thresholding."""
        before, descent = state.fit, -primal_gradient(problem, state)
        eta = primal_step(problem, self.step, state.t, state.sigma_sq, before.margins(problem))
        safe = is_safe(problem, self.step)
        for _ in range(_MOST_HALVINGS):
            w, support = problem.constraint.threshold(before.added_to(eta * descent))
            state.fit = evaluated(problem, w, support, before.b)
            if safe or state.fit.objective <= before.objective:
                break
            eta /= 2
        else:
            state.fit = before
        same = np.array_equal(state.fit.w, before.w)
        state.finished = same and not callable(self.step) and problem.loss.differentiable
        state.t += 1

    def observe(self, problem: Problem, state: PrimalState) -> Point:
        """Return the model, and the dual point of the gradient."""
        return Point(state.fit, state.alpha, state.g)

    def finished(self, state: PrimalState) -> bool:
        """Tell whether the model is a fixed point."""
        return state.finished


def start_primal(problem: Problem, start: Start, step: StepSize) -> PrimalState:
    """State of a primal method at its start."""
    sigma_sq = problem.samples.spectral_bound() if step == "auto" else np.nan
    return PrimalState(start.primal(problem), sigma_sq)


def primal_gradient(problem: Problem, state: PrimalState) -> Vector:
    """P'(w) = X'(s l'(u)) + lam w; keeps l'(u) and X'(s l'(u)) as a dual point."""
    fit = state.fit
    u = fit.margins(problem)
    alpha = problem.samples.slopes(problem.loss, u)
    g = problem.samples.pull(alpha)
    state.alpha, state.g = alpha, g
    if problem.fit_intercept and not problem.loss.differentiable:
        # At a kink a subgradient need not balance: the bound takes one that does, with a product of its own.
        state.alpha, state.g = dual_from_primal(problem, fit.w, u=u), None
    return fit.added_to(g.copy(), problem.lam)

"""Dual iterative hard thresholding, the paper's Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from diht.design import DualState, Step
from diht.fit import Fit
from diht.numerics.arrays import Vector
from diht.problem import Problem
from diht.samples import Intercept, Rows, added
from diht.samples.intercept import increasing_root, rounding
from diht.solvers.base import DualModel, Point, Solver, Start, begun, evaluated
from diht.solvers.steps import StepSize, check_step, dual_step

__all__ = ["DIHT"]


@dataclass
class _State:
    alpha: Rows
    g: Vector  # X'(s alpha)
    model: DualModel  # of alpha
    before: DualModel  # the model that the last step went through, whose predictions are known
    curvature: float
    b: Intercept = 0.0  # intercept and predictions of `before`
    u: Rows | None = None
    t: int = 0


@dataclass(frozen=True)
class DIHT(Solver):
    r"""Projected super-gradient ascent on the dual, with the primal read off by hard thresholding.

    .. math::

        \text{(S1)} \quad \alpha_i &\leftarrow \mathrm{P}_F\left(\alpha_i + \tau_t (x_i^\top w - l^{*\prime}(\alpha_i))\right) \\
        \text{(S2)} \quad w &\leftarrow \mathrm{H}_k\left(-\tfrac{1}{\lambda} \sum_i s_i \alpha_i x_i\right)

    With an intercept (S1) projects on F and sum_i s_i alpha_i = 0 together. One step reads X once.

    Parameters
    ----------
    step : "auto", "theory", float or callable
        tau_t. "auto" knows the curvature and never diverges; "theory" is 1 / (mu (t + 1)) of Theorem 4.
    """

    step: StepSize = "auto"

    def __post_init__(self) -> None:
        check_step(self.step)

    takes_targets = False

    def init(self, problem: Problem, start: Start) -> _State:
        """Start from a dual point (the paper: zero)."""
        alpha, g = begun(problem, start)
        curvature = problem.samples.spectral_bound() / problem.lam if self.step == "auto" else np.nan
        state = _State(alpha, g, DualModel.zero(problem), DualModel.zero(problem), curvature)
        state.model.read(problem, g)
        return state

    def advance(self, problem: Problem, state: _State) -> None:
        """S1 and S2, with one read of X."""
        step = dual_step(problem, self.step, state.t, state.curvature)
        ascend = _ascend_balanced if problem.fit_intercept else _ascend
        state.b, state.u = ascend(problem, state, step)
        state.model, state.before = state.before, state.model
        state.model.read(problem, state.g)
        state.t += 1

    def observe(self, problem: Problem, state: _State) -> Point:
        """Return the dual iterate, and the model that the step went through (whose predictions need no pass of their own)."""
        if state.u is None:
            return self.last(problem, state)
        b, u = state.b, state.u
        if problem.fit_intercept:
            shift = problem.samples.best_intercept(problem.loss, u)
            b, u = b + shift, problem.samples.shifted(u, shift)
        fit = Fit.of(problem, state.before.w, b, u, state.before.support)
        return Point(fit, state.alpha, state.g, state.model.value)

    def last(self, problem: Problem, state: _State) -> Point:
        """Return w = H_k(v(alpha)) of the last dual iterate."""
        model = state.model
        fit = evaluated(problem, model.w, model.support, state.b)
        return Point(fit, state.alpha, state.g, model.value)


def _ascend(problem: Problem, state: _State, step: Step) -> tuple[float, Rows]:
    u = problem.samples.empty()
    problem.samples.step(replace(step, fresh=True), state.model.w, 0.0, DualState(state.alpha, state.g, u))
    return 0.0, u


def _ascend_balanced(problem: Problem, state: _State, step: Step) -> tuple[float, Rows]:
    """Find the multiplier of sum_i s_i alpha_i = 0, which is the intercept, and step with it."""
    samples, alpha = problem.samples, state.alpha
    u = samples.margins(state.model.w, support=state.model.support)

    def balance(b: float) -> float:
        return added(samples.each(lambda y, s, a, u: step.total(a, u, y, s, b), alpha, u))

    b = increasing_root(balance, state.b, rounding(samples, alpha))
    state.alpha = samples.map(lambda y, s, a, u: step.at(a, u, y, b), alpha, u)
    state.g = samples.pull(state.alpha)
    return b, samples.shifted(u, b)

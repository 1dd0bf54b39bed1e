"""Stochastic variance-reduced gradient hard thresholding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diht.design import DualState, Step
from diht.numerics.arrays import Vector
from diht.problem import Problem
from diht.samples import Blocks, Intercept, Rows, check_blocks
from diht.solvers.base import Point, Solver, Start, evaluated
from diht.solvers.blocks import BlockOrder
from diht.solvers.iht import PrimalState, primal_gradient, start_primal
from diht.solvers.steps import StepSize, check_step, primal_step, sample_curvature

__all__ = ["SVRGHT"]


@dataclass
class _State:
    snapshot: PrimalState  # w~ with its margins and l'(Xw~)
    gradient: Vector  # X'(s l'(Xw~)) at the snapshot
    slopes: Rows  # l'(Xw~)
    w: Vector
    support: NDArray[np.int64]  # of w
    b: Intercept
    blocks: list[Rows]  # parts of the samples
    order: BlockOrder
    shrink: float = 1.0  # what the default step was cut by
    t: int = 0


@dataclass(frozen=True)
class SVRGHT(Solver):
    r"""Hard thresholding with variance-reduced stochastic gradients (Li et al., 2016); one step is one block.

    .. math:: w \leftarrow \mathrm{H}_k\left(w - \eta\, [P_B'(w) - P_B'(\tilde w) + P'(\tilde w)]\right)

    with a snapshot w~ whose full gradient is taken once an epoch.

    Parameters
    ----------
    blocks : int or sequence of index arrays
        The number of blocks of a random partition (with fewer samples than that, one block a sample), or the partition itself.
    step : "auto", float or callable
        eta. "auto" is 1/L, L a safe bound on the curvature of P; if the objective rises over an epoch, the snapshot is
        taken back and the step halved.
    order : "shuffled" or "replacement"
        Each block once an epoch in a new order, or drawn with replacement.
    random_state : int
        Seed of the partition and of the order.
    """

    blocks: Blocks = 10
    step: StepSize = "auto"
    order: str = "shuffled"
    random_state: int = 0

    def __post_init__(self) -> None:
        check_blocks(self.blocks, self.order)
        check_step(self.step)

    takes_targets = False

    def init(self, problem: Problem, start: Start) -> _State:
        """Start from a model (the paper: zero)."""
        rng = np.random.default_rng(self.random_state)
        blocks = problem.samples.partition(self.blocks, rng)
        snapshot = start_primal(problem, start, self.step)
        order = BlockOrder.start(len(blocks), self.order, rng)
        fit, none = snapshot.fit, np.empty(0)
        return _State(snapshot, none, none, fit.w, fit.support, fit.b, blocks, order)

    def advance(self, problem: Problem, state: _State) -> None:
        """Make one stochastic step; at the start of an epoch take a snapshot first."""
        m = len(state.blocks)
        if state.t % m == 0:
            self._take_snapshot(problem, state)
        difference = np.zeros(problem.shape[1])
        part = state.blocks[state.order.next()] if m > 1 else None
        step, u = Step(problem.loss, "derivative", store=False), state.snapshot.fit.margins(problem)
        slope_change = problem.samples.step(step, state.w, state.b, DualState(state.slopes, difference), part)
        eta = state.shrink * primal_step(problem, self.step, state.t // m, state.snapshot.sigma_sq, u)
        difference *= m
        difference += state.gradient
        difference *= -eta
        difference[state.support] += (1.0 - eta * problem.lam) * state.w[state.support]
        state.w, state.support = problem.constraint.threshold(difference)
        if problem.fit_intercept:
            eta_b = 1.0 / sample_curvature(problem, u) if problem.loss.differentiable else eta
            state.b -= state.shrink * eta_b * (m * slope_change + problem.samples.total(lambda y, a: a, state.slopes))
        state.t += 1

    def _take_snapshot(self, problem: Problem, state: _State) -> None:
        candidate = state.snapshot
        if state.t > 0:
            fit = evaluated(problem, state.w, state.support, state.b)
            candidate = PrimalState(fit, state.snapshot.sigma_sq)
        if self.step == "auto" and not candidate.fit.objective <= state.snapshot.fit.objective:
            state.shrink /= 2
        else:
            state.snapshot = candidate
            state.gradient = candidate.fit.added_to(primal_gradient(problem, candidate), -problem.lam)
            state.slopes = problem.samples.slopes(problem.loss, candidate.fit.margins(problem))
        fit = state.snapshot.fit
        state.w, state.support, state.b = fit.w, fit.support, fit.b

    def observe(self, problem: Problem, state: _State) -> Point:
        """Return the snapshot with its dual point: its predictions are known."""
        snapshot = state.snapshot
        return Point(snapshot.fit, snapshot.alpha, snapshot.g)

    def last(self, problem: Problem, state: _State) -> Point:
        """Return the last iterate."""
        return Point(evaluated(problem, state.w, state.support, state.b))

    def epoch(self, state: _State) -> int:
        """One step a block."""
        return len(state.blocks)

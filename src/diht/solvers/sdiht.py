"""Stochastic dual iterative hard thresholding, the paper's Algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diht.bounds.duality import feasible
from diht.design import DualState
from diht.numerics.arrays import Vector
from diht.problem import Problem
from diht.samples import Blocks, Rows, check_blocks
from diht.solvers.base import DualModel, Point, Solver, Start, begun, evaluated
from diht.solvers.blocks import BlockOrder, block_curvatures
from diht.solvers.steps import StepSize, check_step, dual_step

__all__ = ["SDIHT"]


@dataclass
class _State:
    alpha: Rows
    g: Vector  # X'(s alpha), kept by increments and refreshed at each evaluation
    model: DualModel  # of alpha
    blocks: list[Rows]  # parts of the samples
    order: BlockOrder
    curvatures: Vector  # of each block's quadratic part
    kappa: float  # strength of the intercept's proximal term
    anchor: float = 0.0  # its centre
    balance: float = 0.0  # sum_i s_i alpha_i
    t: int = 0


@dataclass(frozen=True)
class SDIHT(Solver):
    r"""DIHT on one random block of samples at a time; one step is one block.

    .. math::

        \text{(S1)} \quad \alpha_B &\leftarrow \mathrm{P}_F\left(\alpha_B + \tau_t (X_B w - l^{*\prime}(\alpha_B))\right) \\
        \text{(S2.1)} \quad v &\leftarrow v - \tfrac{1}{\lambda} \sum_{i \in B} s_i \Delta\alpha_i x_i ,
        \qquad \text{(S2.2)} \quad w \leftarrow \mathrm{H}_k(v)

    A block is read once for S1 and S2.1 together. With one block it is DIHT.

    An intercept must not be balanced block by block (that would be one intercept a block). It has a proximal term
    (kappa/2)(b - c)^2 instead, so that b = c - (1/kappa) sum_i s_i alpha_i follows the blocks like one more feature, and
    c moves to b after each epoch; alpha is balanced when a bound is taken.

    Parameters
    ----------
    blocks : int or sequence of index arrays
        The number of blocks of a random partition (with fewer samples than that, one block a sample), or the partition itself.
    step : "auto", "theory", float or callable
        tau_t. "auto" knows each block's curvature; "theory" is m / (mu (t + 1)) of Theorem 5, m the number of blocks.
    order : "shuffled" or "replacement"
        Each block once an epoch in a new order, or drawn with replacement as in the paper.
    random_state : int
        Seed of the partition and of the order.
    """

    blocks: Blocks = 10
    step: StepSize = "auto"
    order: str = "shuffled"
    random_state: int = 0

    free_evaluation = False

    def __post_init__(self) -> None:
        check_blocks(self.blocks, self.order)
        check_step(self.step)

    takes_targets = False

    def init(self, problem: Problem, start: Start) -> _State:
        """Cut the blocks, bound their curvatures, start from a dual point (the paper: zero)."""
        rng = np.random.default_rng(self.random_state)
        samples = problem.samples
        blocks = samples.partition(self.blocks, rng)
        alpha, g = begun(problem, start)
        curvatures, kappa = np.full(len(blocks), np.nan), np.inf
        if self.step == "auto":
            curvatures = block_curvatures(samples, blocks) / problem.lam
        if problem.fit_intercept:
            kappa = self._intercept_strength(problem, curvatures)
            curvatures += [samples.weight(block) / kappa for block in blocks]
        return _State(
            alpha,
            g,
            DualModel.zero(problem),
            blocks,
            BlockOrder.start(len(blocks), self.order, rng),
            curvatures,
            kappa,
            anchor=start.b,
        )

    def _intercept_strength(self, problem: Problem, curvatures: Vector) -> float:
        """Let the intercept add about as much curvature as the features (or the conjugate), or as a given step allows."""
        if self.step != "auto":
            return dual_step(problem, self.step, 0, np.nan, len(curvatures)).tau
        curvature = max(float(curvatures.sum()), problem.loss.mu)  # the sum bounds the curvature of all blocks together
        return max(1.0 / curvature, 1e-300) if curvature > 0 else 1.0

    def advance(self, problem: Problem, state: _State) -> None:
        """S1 and S2 for one block, with one read of its rows."""
        j = state.order.next()
        step = dual_step(problem, self.step, state.t, float(state.curvatures[j]), len(state.blocks))
        state.model.read(problem, state.g)
        rows = state.blocks[j] if len(state.blocks) > 1 else None
        dual = DualState(state.alpha, state.g)
        state.balance += problem.samples.step(step, state.model.w, _intercept(state), dual, rows)
        state.t += 1
        if problem.fit_intercept and state.t % len(state.blocks) == 0:
            state.balance = problem.samples.total(lambda y, a: a, state.alpha)
            state.anchor = _intercept(state)

    def observe(self, problem: Problem, state: _State) -> Point:
        """Return the current pair, with v recomputed from alpha: increments drift."""
        state.model.read(problem, state.g)
        w, support = state.model.w, state.model.support
        if not problem.fit_intercept:
            u, state.g = problem.samples.margins_and_pull(w, state.alpha)
            return Point(evaluated(problem, w, support, 0.0, u), state.alpha, state.g)
        alpha = feasible(problem, state.alpha)
        u, g = problem.samples.margins_and_pull(w, alpha)
        return Point(evaluated(problem, w, support, _intercept(state), u), alpha, g)

    def last(self, problem: Problem, state: _State) -> Point:
        """Return w = H_k(v(alpha)) of the last dual iterate, with v as the steps have it; a bound needs a v of its own."""
        state.model.read(problem, state.g)
        alpha = feasible(problem, state.alpha) if problem.fit_intercept else state.alpha
        return Point(evaluated(problem, state.model.w, state.model.support, _intercept(state)), alpha)

    def epoch(self, state: _State) -> int:
        """One step a block."""
        return len(state.blocks)


def _intercept(state: _State) -> float:
    return state.anchor - state.balance / state.kappa

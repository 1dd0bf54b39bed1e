"""The paper's Theorem 4 on a problem whose optimum is known: its bounds beside what they bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from typing import Any

import numpy as np

from diht.bounds.duality import dual_from_primal, gap, margin, primal
from diht.experiments.runner import Cell
from diht.experiments.table import Row
from diht.losses import SmoothedHinge
from diht.numerics.arrays import Vector
from diht.problem import Problem
from diht.refit import refit
from diht.solvers import DIHT, Start
from diht.theory import Constants, constants, error_bound, iterations

__all__ = ["FULL", "QUICK", "Plan", "Theorem", "cells", "optimum", "promised_gap", "small_problem"]

_SPACING = 1.15  # ratio of two iterations that are looked at
_CLOSED = 1e-12  # relative gap at which the optimum counts as known


@dataclass(frozen=True)
class Plan:
    """The problem's size, its ridge and smoothness, and for how many times t0 iterations the method is followed."""

    n: int = 40
    d: int = 10
    k: int = 3
    lam: float = 0.5
    gamma: float = 1.0  # c1 grows with 1 / (lam gamma)^2: the paper's 0.25 promises nothing before a million iterations
    beyond: float = 2.0


FULL = QUICK = Plan()


def cells(plan: Plan = FULL) -> list[Cell]:
    """Return the one cell."""
    return [Theorem(plan)]


def small_problem(plan: Plan) -> Problem:
    """Return a problem with unit rows and a planted model, whose margin is positive."""
    rng = np.random.default_rng((6, plan.n, plan.d, plan.k))
    X = rng.standard_normal((plan.n, plan.d))
    X[:, : plan.k] *= 4.0  # features that matter much more than the others
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X[:, : plan.k].sum(axis=1) > 0, 1.0, -1.0)
    return Problem(X, y, loss=SmoothedHinge(plan.gamma), k=plan.k, lam=plan.lam, n_threads=1)


def optimum(problem: Problem) -> tuple[Vector, Vector]:
    """Return the best model, by trying all supports, and the dual point that proves it.

    Raises
    ------
    ValueError
        Where the duality gap does not vanish: the theorem then says nothing.
    """
    supports = combinations(range(problem.shape[1]), problem.constraint.size)
    models = [refit(problem, np.array(support, dtype=np.int64)).w for support in supports]
    w = min(models, key=lambda model: primal(problem, model))
    alpha = dual_from_primal(problem, w)
    if gap(problem, w, alpha) > _CLOSED * primal(problem, w):
        raise ValueError("the problem has no sparse saddle point")
    return w, alpha


def promised_gap(c: Constants, eps: float, t: int) -> float:
    """Return the least gap that Theorem 4(b) promises after t iterations, which must be at least t0."""
    low, high = -40.0, 40.0  # of its logarithm
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if iterations(c, eps, gap=float(np.exp(middle))) <= t else (middle, high)
    return float(np.exp(high))


@dataclass(frozen=True)
class Theorem(Cell):
    """DIHT with the theorem's step: error of the dual point, gap, support, each with its bound."""

    plan: Plan

    @property
    def key(self) -> dict[str, Any]:
        """Return the column that tells it from others."""
        return {"figure": "theory"}

    @property
    def cost(self) -> float:
        """Return seconds, about."""
        return 10.0

    def measure(self) -> Iterator[Row]:
        """Follow the iterates far beyond t0."""
        problem = small_problem(self.plan)
        best, alpha = optimum(problem)
        c, eps = constants(problem), margin(problem, best)
        t0 = iterations(c, eps)
        last_wrong = 0
        solver = DIHT(step="theory")
        state = solver.init(problem, Start())
        looks = _spaced(ceil(self.plan.beyond * t0))
        for t in range(1, max(looks) + 1):
            solver.advance(problem, state)
            w = state.model.w
            recovered = np.array_equal(np.flatnonzero(w), np.flatnonzero(best))
            last_wrong = last_wrong if recovered else t
            if t in looks:
                yield self._row("dual_error", float(np.sum((state.alpha - alpha) ** 2)), t)
                yield self._row("dual_error_bound", error_bound(c, t), t)
                yield self._row("gap", gap(problem, w, state.alpha), t)
                yield self._row("recovered", float(recovered), t)
                if t >= t0:
                    yield self._row("gap_bound", promised_gap(c, eps, t), t)
        yield self._row("t0", t0)
        yield self._row("t0_measured", float(last_wrong + 1))

    def _row(self, measure: str, value: float, t: int | None = None) -> Row:
        plan = self.plan
        about = ("theory", "synthetic-small", "DIHT", "smoothed_hinge", plan.n, plan.d, plan.k, plan.lam)
        return Row(*about, None, None, t, measure, value)


def _spaced(end: int) -> set[int]:
    """Return whole numbers from 1 to `end`, ever further apart."""
    looks, t = {1, end}, 1.0
    while (t := max(t + 1, t * _SPACING)) < end:
        looks.add(int(t))
    return looks

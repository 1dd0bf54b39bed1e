"""Figures 3 and 5: the primal-dual gap as the epochs go by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from diht.bounds.duality import gap
from diht.experiments.runner import Cell
from diht.experiments.sources import Source
from diht.experiments.table import Row
from diht.experiments.timing import GRID, METHODS, step_scale, text_problem
from diht.problem import Problem
from diht.solvers import Auto, Point, Solver, Start

__all__ = ["FULL", "QUICK", "Gaps", "Plan", "cells"]


@dataclass(frozen=True)
class Plan:
    """What is run: k for data with many features and with few, lam, the grid of steps, epochs to tune with and to draw."""

    many: int = 60_000
    few: int = 600
    lams: tuple[float, ...] = (0.002, 0.0002)
    grid: tuple[float, ...] = GRID
    tuning_epochs: int = 20
    epochs: int = 100


FULL = Plan()
QUICK = Plan(grid=GRID[1::3], tuning_epochs=10, epochs=40)


def cells(figure: str, sources: Sequence[Source], plan: Plan = FULL) -> list[Cell]:
    """Return a cell for each data set, lam and method; figure 3 has the smoothed hinge, figure 5 the hinge."""
    return [
        Gaps(figure, source, lam, method, plan)
        for source in sources
        for lam in plan.lams
        for method in ("DIHT", "SDIHT", "auto")
    ]


@dataclass(frozen=True)
class Look:
    """What one epoch came to."""

    epoch: float
    seconds: float
    gap: float
    objective: float


@dataclass(frozen=True)
class Gaps(Cell):
    """One method on one problem: the gap of its iterates, for `auto` of the best model and the best bound so far.

    The step is the one of the grid with the least gap after the epochs to tune with.
    """

    figure: str
    source: Source
    lam: float
    method: str
    plan: Plan

    @property
    def key(self) -> dict[str, Any]:
        """Return the columns that tell it from others."""
        return {"figure": self.figure, "data": self.source.name, "lam": self.lam, "method": self.method}

    @property
    def cost(self) -> float:
        """Return a share of the time."""
        size = {"imdb": 0.1, "news20": 0.5}.get(self.source.name, 1.0)
        return size * (0.2 if self.method == "auto" else 1.0)

    @property
    def k(self) -> int:
        """How many features a model may use."""
        return self.plan.many if self.source.name == "news20" else self.plan.few

    def measure(self) -> Iterator[Row]:
        """Tune the step, then follow the gap."""
        problem = text_problem(self.source, self.figure, self.k, self.lam)
        n, d = problem.shape
        step = None if self.method == "auto" else self._tuned(problem)
        about = (self.figure, self.source.name, self.method, problem.loss.name, n, d, self.k, self.lam, None, step)
        for look in self._looks(problem, step):
            yield Row(*about, look.epoch, "gap", look.gap)
            yield Row(*about, look.epoch, "relative_gap", look.gap / look.objective)
            yield Row(*about, look.epoch, "seconds", look.seconds)

    def _looks(self, problem: Problem, step: float | None) -> Iterator[Look]:
        limit = self.plan.epochs
        for look in _followed(problem, Auto() if step is None else _with_step(self.method, step), limit):
            yield look
            if look.epoch >= limit:
                return

    def _tuned(self, problem: Problem) -> float:
        scale = step_scale(problem, self.method)
        return min((factor * scale for factor in self.plan.grid), key=lambda step: self._gap_after(problem, step))

    def _gap_after(self, problem: Problem, step: float) -> float:
        looks = list(islice(_followed(problem, _with_step(self.method, step)), self.plan.tuning_epochs))
        return looks[-1].gap if len(looks) == self.plan.tuning_epochs else inf


def _with_step(method: str, step: float) -> Solver:
    solver: Any = METHODS[method]
    return replace(solver, step=step)  # type: ignore[no-any-return]


def _followed(problem: Problem, solver: Solver, limit: float = inf) -> Iterator[Look]:
    """Yield what each epoch came to, as long as it is finite and the method goes on; looking is neither timed nor counted.

    That is the gap of the pair (w(alpha), alpha). The full solver has a bound of its own, and an epoch of it is some piece of
    its work, cut short at the limit: its passes are counted.
    """
    clock, epoch, start, before = 0.0, 0.0, perf_counter(), problem.design.passes
    with np.errstate(over="ignore", invalid="ignore"):
        state = solver.init(problem, Start(stop=lambda: epoch + problem.design.passes - before > limit))
        while not solver.finished(state):
            for _ in range(solver.epoch(state)):
                solver.advance(problem, state)
            clock, passes = clock + perf_counter() - start, problem.design.passes - before
            point = solver.last(problem, state)
            epoch += passes if point.bound is not None else 1
            objective = point.fit.objective
            if not np.isfinite(objective):
                return
            yield Look(epoch, clock, _gap(problem, point, objective), objective)
            start, before = perf_counter(), problem.design.passes


def _gap(problem: Problem, point: Point, objective: float) -> float:
    if point.bound is not None:
        return max(objective - point.bound.value, 0.0)
    assert point.alpha is not None
    return gap(problem, point.fit.w, point.alpha, point.fit.b)

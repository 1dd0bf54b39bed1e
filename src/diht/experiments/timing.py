"""Figures 2 and 4: how long each method takes to the objective at which IHT stops.

Every step size is tuned on the same grid by the objective after equal passes over the data, never by the clock. The methods
are deterministic: a first run counts the steps to the objective, looking at it after each; then the same steps are timed
without a look. Compiling and loading are not timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from diht.experiments.runner import Cell
from diht.experiments.sources import Source
from diht.experiments.table import Row
from diht.problem import Problem
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT, Auto, Solver, Start

__all__ = ["FULL", "GRID", "QUICK", "Outcome", "Plan", "Timing", "cells", "compare", "step_scale"]

METHODS: dict[str, Solver] = {"IHT": IHT(), "HTP": HTP(), "SVR-GHT": SVRGHT(), "DIHT": DIHT(), "SDIHT": SDIHT()}
GRID = tuple(2.0**i for i in range(2, 13))  # times a scale at which every method is still slow
RELATIVE_CHANGE, MAX_ITERATIONS = 1e-4, 400  # the paper's stopping rule of IHT
_PATIENCE = 3.0  # times the passes of IHT, after which a method that has not got there never does
_LEAST_PASSES = 30.0
_HEAT, _FINALISTS = 0.25, 4  # share of the passes that every step gets, and how many steps get the others
_TRIES = 3  # steps, the best first, with which a method may try to get there


@dataclass(frozen=True)
class Plan:
    """What is run: k for data with many features and with few, lam, the grid of steps, passes to tune with, repetitions."""

    many: tuple[int, ...] = (20_000, 40_000, 60_000, 80_000, 100_000)
    few: tuple[int, ...] = (200, 400, 600, 800, 1000)
    lams: tuple[float, ...] = (0.002, 0.0002)
    grid: tuple[float, ...] = GRID
    tuning_passes: float = 40.0
    repeats: int = 3


FULL = Plan()
QUICK = Plan(many=(20_000, 100_000), few=(400, 600), grid=GRID[1::3], tuning_passes=20.0)


def cells(figure: str, sources: Sequence[Source], plan: Plan = FULL) -> list[Cell]:
    """Return a cell for each data set, k and lam; figure 2 has the smoothed hinge, figure 4 the hinge."""
    return [
        Timing(figure, source, k, lam, plan)
        for source in sources
        for k in (plan.many if source.name == "news20" else plan.few)
        for lam in plan.lams
    ]


@dataclass(frozen=True)
class Timing(Cell):
    """All methods on one problem."""

    figure: str
    source: Source
    k: int
    lam: float
    plan: Plan

    @property
    def key(self) -> dict[str, Any]:
        """Return the columns that tell it from others."""
        return {"figure": self.figure, "data": self.source.name, "k": self.k, "lam": self.lam}

    @property
    def cost(self) -> float:
        """Return a share of the time: IHT needs more passes where lam is small."""
        size = {"imdb": 0.1, "news20": 0.5}.get(self.source.name, 1.0)
        return size * (2.0 if self.lam < 0.001 else 1.0)

    def measure(self) -> Iterator[Row]:
        """Tune, count, time."""
        problem = text_problem(self.source, self.figure, self.k, self.lam)
        n, d = problem.shape
        for outcome in compare(problem, self.plan):
            about = (self.figure, self.source.name, outcome.method, problem.loss.name, n, d, self.k, self.lam)
            for measure, value in (
                ("passes", outcome.passes),
                ("objective", outcome.objective),
                ("target", outcome.target),
            ):
                yield Row(*about, None, outcome.step, None, measure, value)
            for seed, seconds in enumerate(outcome.seconds):
                yield Row(*about, seed, outcome.step, None, "seconds", seconds)


def text_problem(source: Source, figure: str, k: int, lam: float) -> Problem:
    """Return the problem of a figure, with the paper's loss."""
    X, y = source.load()
    loss = "smoothed_hinge" if figure in ("fig2", "fig3") else "hinge"
    return Problem(X, y, loss=loss, k=min(k, X.shape[1]), lam=lam)


@dataclass(frozen=True)
class Outcome:
    """How long a method took to the target: infinite seconds and passes if it never got there."""

    method: str
    step: float | None
    target: float
    objective: float
    passes: float
    seconds: tuple[float, ...]


def compare(problem: Problem, plan: Plan = FULL) -> list[Outcome]:
    """Return the outcomes of all methods on a problem."""
    rankings = {name: _ranked(problem, solver, name, plan) for name, solver in METHODS.items()}
    iht, target, passes = _settled(problem, rankings.pop("IHT"))
    limit = max(_PATIENCE * passes, _LEAST_PASSES)
    rankings["auto"] = [Auto()]
    counted = {"IHT": iht} | {name: _counted(problem, ranking, target, limit) for name, ranking in rankings.items()}
    clocks: dict[str, list[float]] = {name: [] for name in counted}
    for _ in range(plan.repeats):  # in turn, so that what else the machine does hits all of them
        for name, run in counted.items():
            clocks[name].append(_timed(problem, run) if run.reached else inf)
    return [
        Outcome(
            name,
            getattr(run.solver, "step", None),
            target,
            run.objective,
            run.passes if run.reached else inf,
            tuple(clocks[name]),
        )
        for name, run in counted.items()
    ]


# ------------------------------------------------------------------------------------------------------- one method


def step_scale(problem: Problem, name: str) -> float:
    """Return the unit of a method's steps on the grid: what the loss's smoothness allows, whatever the data."""
    mu = max(problem.loss.mu, 0.25)
    return problem.lam / mu if name in ("DIHT", "SDIHT") else mu


def _run(
    problem: Problem, solver: Solver, each_step: bool = False, limit: float = inf
) -> Iterator[tuple[float, float]]:
    """Yield passes and objective after each epoch or step; what the objective costs is not counted.

    A step of the full solver may be long: beyond the limit on passes it is cut short.
    """
    passes, before = 0.0, problem.design.passes
    with np.errstate(over="ignore", invalid="ignore"):
        state = solver.init(problem, Start(stop=lambda: passes + problem.design.passes - before > limit))
        while True:
            for _ in range(1 if each_step else solver.epoch(state)):
                solver.advance(problem, state)
            passes += problem.design.passes - before
            point = solver.last(problem, state)
            objective = point.fit.objective
            yield passes, objective if np.isfinite(objective) else inf
            if solver.finished(state):
                return
            before = problem.design.passes


def _ranked(problem: Problem, solver: Any, name: str, plan: Plan) -> list[Any]:
    """Return the solver with the best steps of the grid, in the order of the objective after the passes to tune with.

    All steps get a quarter of the passes, the best few of them the rest. Of steps that are level the longest comes first: HTP may
    have made only one step in so many passes, whose support is the same for all of them.
    """
    scale = step_scale(problem, name)
    runs = [_Tuning(replace(solver, step=factor * scale), factor, problem) for factor in plan.grid]
    for passes, kept in ((_HEAT * plan.tuning_passes, _FINALISTS), (plan.tuning_passes, len(runs))):
        for run in runs:
            run.go_on(passes)
        runs = sorted(runs, key=lambda run: (run.objective, -run.factor))[:kept]
    return [run.solver for run in runs]


class _Tuning:
    """A solver on its way, and where it has come to; infinite once it has diverged."""

    def __init__(self, solver: Any, factor: float, problem: Problem) -> None:
        self.solver, self.factor = solver, factor
        self._way = _run(problem, solver)
        self.passes, self.objective = 0.0, inf

    def go_on(self, passes: float) -> None:
        """Go on until so many passes are made."""
        while self.passes < passes:
            self.passes, self.objective = next(self._way, (inf, self.objective))
            if self.objective == inf:
                self.passes = inf


@dataclass(frozen=True)
class _Counted:
    """A method's way to the target, or to the limit on its passes: so many steps."""

    solver: Any
    limit: float
    steps: int
    passes: float
    objective: float
    reached: bool


def _settled(problem: Problem, ranking: Sequence[Any]) -> tuple[_Counted, float, float]:
    """Return IHT's way with the best step with which it settles, its objective when its relative change is small, and its passes.

    With a step that is too long IHT jumps to and fro between supports, and the change may be small by chance: it has to be at
    its least objective when it stops. Where no step settles, the best objective of the best step is the target. The way ends where
    it is first as low.
    """
    ways: list[list[tuple[float, float]]] = []
    for solver in ranking:
        way, old, least = [], inf, inf
        for passes, objective in _run(problem, solver):
            way.append((passes, objective))
            least = min(least, objective)
            if abs(old - objective) <= RELATIVE_CHANGE * objective and objective <= least * (1 + RELATIVE_CHANGE):
                return _first_as_low(solver, way, objective), objective, passes
            if len(way) >= MAX_ITERATIONS or objective == inf:
                break
            old = objective
        ways.append(way)
    target = min(objective for _, objective in ways[0])
    run = _first_as_low(ranking[0], ways[0], target)
    return run, target, run.passes


def _first_as_low(solver: Any, way: Sequence[tuple[float, float]], target: float) -> _Counted:
    """Return a way up to where it is first as low as the target."""
    steps, (passes, objective) = next((i, point) for i, point in enumerate(way, start=1) if point[1] <= target)
    return _Counted(solver, inf, steps, passes, objective, True)


def _counted(problem: Problem, ranking: Sequence[Any], target: float, limit: float) -> _Counted:
    """Count the steps to a target, with the best step size that gets there in so many passes."""
    runs = []
    for solver in ranking[:_TRIES]:
        run = _Counted(solver, limit, 0, 0.0, inf, False)
        for steps, (passes, objective) in enumerate(_run(problem, solver, True, limit), start=1):
            run = _Counted(solver, limit, steps, passes, objective, objective <= target)
            if run.reached:
                return run
            if passes > limit or objective == inf:
                break
        runs.append(run)
    return runs[0]


def _timed(problem: Problem, run: _Counted) -> float:
    """Return the seconds of a run's steps, with nothing in between."""
    start, before = perf_counter(), problem.design.passes
    state = run.solver.init(problem, Start(stop=lambda: problem.design.passes - before > run.limit))
    for _ in range(run.steps):
        run.solver.advance(problem, state)
    return perf_counter() - start

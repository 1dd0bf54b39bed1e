"""Time to the objective at which IHT stops, every step size tuned on the same grid by the objective after equal passes.

The clock stops while an objective is evaluated; compiling and loading are not timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np

from diht import Problem
from diht.duality import primal
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT, Solver, Start

METHODS: dict[str, Solver] = {"IHT": IHT(), "HTP": HTP(), "SVRGHT": SVRGHT(), "DIHT": DIHT(), "SDIHT": SDIHT()}
GRID = [2.0**i for i in range(-2, 13)]  # times a scale at which every method is still slow
TUNING_PASSES = 20.0
RELATIVE_CHANGE = 1e-4


@dataclass(frozen=True)
class Outcome:
    """How long a method took to a target, if it got there."""

    method: str
    step: float
    seconds: float
    passes: float
    objective: float
    reached: bool


def run(problem: Problem, solver: Solver) -> Iterator[tuple[float, float, float]]:
    """Yield (seconds, passes, objective) after each epoch, the evaluation neither timed nor counted."""
    clock, passes = 0.0, 0.0
    start, before = perf_counter(), problem.design.passes
    with np.errstate(over="ignore", invalid="ignore"):
        state = solver.init(problem, Start())
        while True:
            for _ in range(solver.epoch(state)):
                solver.advance(problem, state)
            clock += perf_counter() - start
            passes += problem.design.passes - before
            point = solver.last(problem, state)
            objective = primal(problem, point.w, point.b, point.u)
            yield clock, passes, objective if np.isfinite(objective) else np.inf
            start, before = perf_counter(), problem.design.passes


def tuned(problem: Problem, solver: Solver, scale: float) -> Solver:
    """The step of the grid with the least objective seen within TUNING_PASSES."""
    candidates = []
    for factor in GRID:
        candidate = replace(solver, step=factor * scale)
        least = np.inf
        for _, passes, objective in run(problem, candidate):
            least = min(least, objective)
            if passes >= TUNING_PASSES or not np.isfinite(objective):
                break
        candidates.append((least, candidate))
    return min(candidates, key=lambda pair: pair[0])[1]


def iht_target(problem: Problem, solver: Solver, max_epochs: int = 2000) -> tuple[float, Outcome]:
    """Run IHT until its objective changes by less than RELATIVE_CHANGE: the objective it has then."""
    old = np.inf
    for i, (clock, passes, objective) in enumerate(run(problem, solver)):
        if abs(old - objective) <= RELATIVE_CHANGE * objective or i >= max_epochs:
            return objective, Outcome("IHT", solver.step, clock, passes, objective, True)
        old = objective
    raise AssertionError


def time_to(problem: Problem, name: str, solver: Solver, target: float, limit: float) -> Outcome:
    for clock, passes, objective in run(problem, solver):
        if objective <= target or clock > limit:
            return Outcome(name, solver.step, clock, passes, objective, objective <= target)
    raise AssertionError


def compare(problem: Problem, repeats: int = 5) -> list[Outcome]:
    """All methods to IHT's objective; the median over repetitions."""
    mu = max(problem.loss.mu, 0.25)
    scales = {"IHT": mu, "HTP": mu, "SVRGHT": mu, "DIHT": problem.lam / mu, "SDIHT": problem.lam / mu}
    solvers = {name: tuned(problem, solver, scales[name]) for name, solver in METHODS.items()}
    target, first = iht_target(problem, solvers["IHT"])
    outcomes = []
    for name, solver in solvers.items():
        runs = [time_to(problem, name, solver, target, limit=20 * first.seconds + 5) for _ in range(repeats)]
        outcomes.append(sorted(runs, key=lambda outcome: outcome.seconds)[len(runs) // 2])
    return outcomes

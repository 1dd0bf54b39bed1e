"""Time to the objective at which IHT stops, every step size tuned on the same grid by the objective after equal passes.

The methods are deterministic: a first run counts the steps to the objective, looking at it after each; then the same steps are
timed without a look. Compiling and loading are not timed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

import numpy as np

from diht import Problem
from diht.duality import primal
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT, Solver, Start

METHODS: dict[str, Solver] = {"IHT": IHT(), "HTP": HTP(), "SVRGHT": SVRGHT(), "DIHT": DIHT(), "SDIHT": SDIHT()}
GRID = [2.0**i for i in range(2, 13)]  # times a scale at which every method is still slow
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


def run(problem: Problem, solver: Solver, each_step: bool = False) -> Iterator[tuple[float, float, float]]:
    """Yield (seconds, passes, objective) after each epoch or step, the evaluation neither timed nor counted."""
    clock, passes = 0.0, 0.0
    start, before = perf_counter(), problem.design.passes
    with np.errstate(over="ignore", invalid="ignore"):
        state = solver.init(problem, Start())
        while True:
            for _ in range(1 if each_step else solver.epoch(state)):
                solver.advance(problem, state)
            clock += perf_counter() - start
            passes += problem.design.passes - before
            point = solver.last(problem, state)
            objective = primal(problem, point.w, point.b, point.u)
            yield clock, passes, objective if np.isfinite(objective) else np.inf
            start, before = perf_counter(), problem.design.passes


def ranked(problem: Problem, solver: Solver, scale: float) -> list[Solver]:
    """The solver with each step of the grid, in the order of the least objective seen within TUNING_PASSES."""
    candidates = []
    for factor in GRID:
        candidate = replace(solver, step=factor * scale)
        least = np.inf
        for _, passes, objective in run(problem, candidate):
            least = min(least, objective)
            if passes >= TUNING_PASSES or not np.isfinite(objective):
                break
        candidates.append((least, candidate))
    return [candidate for _, candidate in sorted(candidates, key=lambda pair: pair[0])]


def iht_target(problem: Problem, ranking: list[Solver], max_epochs: int = 400) -> tuple[Solver, float, float]:
    """The best IHT that settles: its objective, and its seconds, where it changes by less than RELATIVE_CHANGE.

    With a step that is too long IHT jumps to and fro between supports, and the change may be small by chance: it has to
    be at its least objective when it stops.
    """
    for solver in ranking:
        old = least = np.inf
        for i, (clock, _, objective) in enumerate(run(problem, solver)):
            least = min(least, objective)
            if abs(old - objective) <= RELATIVE_CHANGE * objective and objective <= least * (1 + RELATIVE_CHANGE):
                return solver, objective, clock
            if i >= max_epochs or not np.isfinite(objective):
                break
            old = objective
    raise RuntimeError("IHT settles with no step of the grid")


def steps_to(problem: Problem, name: str, solver: Solver, target: float, limit: float) -> tuple[int, Outcome]:
    """Steps to a target, with the objective looked at after each; nothing is reached beyond `limit` seconds."""
    for i, (clock, passes, objective) in enumerate(run(problem, solver, each_step=True), start=1):
        if objective <= target or clock > limit:
            return i, Outcome(name, solver.step, clock, passes, objective, objective <= target)
    raise AssertionError


def timed(problem: Problem, solver: Solver, n_steps: int) -> float:
    """Seconds of that many steps from the start, with nothing in between."""
    start = perf_counter()
    state = solver.init(problem, Start())
    for _ in range(n_steps):
        solver.advance(problem, state)
    return perf_counter() - start


def compare(problem: Problem, repeats: int = 5) -> list[Outcome]:
    """All methods to IHT's objective; the median over repetitions."""
    mu = max(problem.loss.mu, 0.25)
    scales = {"IHT": mu, "HTP": mu, "SVRGHT": mu, "DIHT": problem.lam / mu, "SDIHT": problem.lam / mu}
    rankings = {name: ranked(problem, solver, scales[name]) for name, solver in METHODS.items()}
    iht, target, seconds = iht_target(problem, rankings["IHT"])
    outcomes = []
    for name, ranking in rankings.items():
        solver = iht if name == "IHT" else ranking[0]
        n_steps, outcome = steps_to(problem, name, solver, target, limit=5 * seconds + 1)
        if outcome.reached:
            outcome = replace(outcome, seconds=median(timed(problem, solver, n_steps) for _ in range(repeats)))
        outcomes.append(outcome)
    return outcomes

"""What each stage of `auto` is for: objective, bound and time without it, over generated and real instances.

    python benchmarks/ablation.py --data FOLDER > ablation.md

FOLDER (or DIHT_DATA) holds the real data sets of the comparison; without it those are left out. An instance is solved without each
stage that applies to it, on one thread. Objectives and bounds are the same in every run; times are processor times. The first table
is of small and difficult problems, drawn at random and timed together, on which rare failures show; the second of one stage on
problems made for it; the third of the comparison's instances and their like, the least time of some repetitions each.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "comparison"))

from benchmark_utils.data import genes, svmlight

from diht import Problem, solve
from diht.constraints.groups import constrained
from diht.solvers.auto import STAGES, Auto
from diht.solvers.auto.profile import Profile
from diht.solvers.auto.stages import LargerRidge, Stage
from instances import autoregressive, hard, paper_design, reg, scaled_words, tall, zipf_logistic
from measure import machine

SAME = 1e-6  # relative difference of objectives that counts
TOL = 1e-4  # of the solves: a bound that differs by less is the same
_REPETITIONS, _LONG = 3, 2.0  # of a solve, unless it takes so many seconds

Named = tuple[str, Problem]


# ---------------------------------------------------------------------------------------------------------------------
# Instances


def instances(data: Path | None) -> Iterator[Named]:
    """The comparison's quick instances, text aside, and others of all losses, sizes and ridges."""
    yield from _quick(data)
    for n, d, k, rho, lam in _SQUARED:
        X, y, _ = autoregressive(n, d, k, rho, 2.0)
        yield f"squared, {n} x {d}, k = {k}, lam = {lam:g}", Problem(X, y / y.std(), "squared", k, lam, n_threads=1)
    for loss, n, d, k, lam in _OTHERS:
        X, y, _ = autoregressive(n, d, k, 0.6, 2.0, seed=1)
        targets = _targets(loss, y / y.std())
        name = f"{loss}, {n} x {d}, k = {k}, lam = {lam:g}"
        yield name, Problem(X, targets, loss, k, lam, fit_intercept=True, n_threads=1)
    X, y, _ = autoregressive(120, 90, 4, 0.6, 2.0, seed=2)
    groups = constrained(4, 90, groups=np.arange(90) // 3)
    yield "squared, groups, 120 x 90, k = 4", Problem(X, y / y.std(), "squared", groups, 0.1, n_threads=1)
    X, y, _ = zipf_logistic(3000, 4000, 5e-3, 30)
    yield "logistic, sparse 3000 x 4000, k = 30", Problem(X, y, "logistic", 30, 1e-3, n_threads=1)
    for n, d in ((200_000, 30), (100_000, 50)):
        X, _, labels = tall(n, d)
        yield f"logistic, {n} x {d}, k = 5", Problem(X, labels, "logistic", 5, 1e-3, fit_intercept=True, n_threads=1)


# N, d, k, correlation, lam: tall and wide, and from a negligible to a strong ridge
_SQUARED = (
    (100, 40, 5, 0.5, 1e-2),
    (300, 60, 8, 0.9, 1e-4),
    (400, 300, 10, 0.9, 0.05),
    (400, 300, 10, 0.9, 2.0),
    (2000, 500, 10, 0.5, 1e-3),
    (150, 60, 30, 0.3, 0.1),
    (60, 300, 5, 0.9, 1e-2),
    (60, 300, 5, 0.5, 1.0),
    (60, 300, 5, 0.9, 0.6),
    (100, 200, 6, 0.5, 1e-7),
    (80, 150, 10, 0.8, 1e-6),
    (200, 2500, 8, 0.7, 0.1),
    (500, 4500, 20, 0.3, 1e-3),
)
_OTHERS = (
    ("logistic", 80, 40, 5, 1e-2),
    ("logistic", 60, 200, 4, 1e-3),
    ("logistic", 500, 4100, 10, 1e-2),
    ("hinge", 100, 40, 4, 1e-2),
    ("hinge", 60, 200, 4, 0.1),
    ("smoothed_hinge", 100, 30, 4, 0.1),
    ("squared_hinge", 80, 200, 5, 1e-2),
    ("huber", 80, 40, 5, 1e-2),
    ("huber", 60, 200, 4, 0.1),
    ("poisson", 80, 40, 5, 1e-2),
    ("poisson", 100, 200, 4, 0.1),
)


def _targets(loss: str, y: np.ndarray) -> np.ndarray:
    if loss == "huber":
        return y
    if loss == "poisson":
        return np.random.default_rng(0).poisson(np.exp(np.clip(y, -3.0, 2.0))).astype(np.float64)
    return np.where(y > np.median(y), 1.0, -1.0)


def difficult(count: int) -> Iterator[Named]:
    """Few samples, many features of similar use, low ratios of signal to noise, weak ridges."""
    for number in range(count):
        rng = np.random.default_rng(number)
        loss = _LOSSES[number % len(_LOSSES)]
        n, d, k = int(rng.integers(10, 80)), int(rng.integers(24, 120)), int(rng.integers(3, 12))
        X, y, _ = autoregressive(n, d, k, rng.choice([0.0, 0.5, 0.9, 0.99]), rng.choice([0.5, 2.0, 10.0, 1e3]), number)
        lam = float(10.0 ** rng.uniform(-9.0 if loss == "squared" else -3.0, 0.5))
        targets = y / y.std() if loss == "squared" else _targets(loss, y / y.std())
        yield f"{number}", Problem(X, targets, loss, k, lam, fit_intercept=bool(number % 2), n_threads=1)


def nearly_exact(count: int) -> Iterator[Named]:
    """Models that come near to interpolation, correlated features, a negligible ridge: what `LargerRidge` is for."""
    for number in range(count):
        rng = np.random.default_rng(number)
        n, d, k = int(rng.integers(8, 60)), int(rng.integers(24, 120)), int(rng.integers(3, 12))
        X, y, _ = autoregressive(
            n, d, k, rng.choice([0.0, 0.9, 0.99, 0.999]), rng.choice([0.5, 2.0, 10.0, 1e4]), number
        )
        lam = float(rng.choice([1e-12, 1e-8, 1e-6, 1e-4]))
        yield f"{number}", Problem(X, y / y.std(), "squared", k, lam, fit_intercept=bool(number % 2), n_threads=1)


_LOSSES = "squared", "logistic", "squared", "huber", "squared", "poisson", "squared_hinge"


def _quick(data: Path | None) -> Iterator[Named]:
    X, y, _ = paper_design(500, 100, 100, seed=0)
    yield "paper, N = 100, k = 100, lam = 1", Problem(X, y, "squared", 100, 1.0, n_threads=1)
    for name, make, lam in (("reg", reg, 1.0), ("hard", hard, 0.01)):
        X, y, _ = make()
        yield f"{name}, k = 20, lam = {lam:g}", Problem(X, y, "squared", 20, lam, n_threads=1)
    if data is None:
        return
    for name, loss, lam in (("leukemia", "logistic", 0.01), ("riboflavin", "squared", 0.1)):
        (X, y), _ = genes(data / name)
        yield f"{name}, k = 10, lam = {lam:g}", Problem(X, y, loss, 10, lam, fit_intercept=True, n_threads=1)
    for name, file, change, k in _TEXT:
        (X, y), _ = svmlight(file, change=change)(data / name)
        labels = np.where(np.asarray(y) > 0.0, 1.0, -1.0)
        yield f"{name}, k = {k}, lam = 0.001", Problem(X, labels, "logistic", k, 1e-3, fit_intercept=True, n_threads=1)


_TEXT = (
    ("a9a", "adult.trn.bz2", None, 10),
    ("reuters-money-fx", "reuters.trn.bz2", scaled_words, 15),
    ("rcv1-vw-sample", "rcv1-vw-sample.bz2", scaled_words, 15),
)


# ---------------------------------------------------------------------------------------------------------------------
# With and without


@dataclass(frozen=True)
class Solved:
    """What a solve found, proved and took; the seconds at which it had which objective."""

    objective: float
    bound: float
    seconds: float
    history: Sequence[tuple[float, float]]

    def reached(self, objective: float) -> float:
        """Processor time until an objective was reached."""
        target = objective + SAME * abs(objective)
        return next((second for second, found in self.history if found <= target), float("inf"))


def without(dropped: Stage | None) -> Auto:
    """The default method without a stage."""
    stages = tuple(stage for stage in STAGES if type(stage) is not type(dropped))  # other processes have copies
    return type("Without", (Auto,), {"stages": stages})()


def repeated(problem: Problem, method: Auto, times: int) -> Solved:
    """Solve a few times, and keep the least time."""
    best = solved(problem, method)
    for _ in range(times - 1):
        if best.seconds < _LONG:
            best = min(best, solved(problem, method), key=lambda run: run.seconds)
    return best


def solved(problem: Problem, method: Auto) -> Solved:
    history: list[tuple[float, float]] = []
    start = process_time()
    result = solve(
        problem, method, tol=TOL, callback=lambda it: history.append((process_time() - start, it.model.objective))
    )
    seconds = process_time() - start
    return Solved(result.objective, result.lower_bound, seconds, [*history, (seconds, result.objective)])


@dataclass(frozen=True)
class Change:
    """One instance with all stages and without one."""

    full: Solved
    other: Solved

    @property
    def objective(self) -> float:
        """By how much the objective is higher without the stage, relative to it."""
        return (self.other.objective - self.full.objective) / abs(self.full.objective)

    @property
    def bound(self) -> float:
        """By how much the bound is lower, relative to the objective."""
        return (self.full.bound - self.other.bound) / abs(self.full.objective)

    @property
    def time(self) -> float:
        """Ratio of the times."""
        return self.other.seconds / self.full.seconds

    @property
    def to_objective(self) -> float:
        """Ratio of the times to the worse of both objectives."""
        target = max(self.full.objective, self.other.objective)
        return self.other.reached(target) / self.full.reached(target)


Changes = dict[Stage, list[Change]]


def changes(named: Iterable[Named], times: int, jobs: int, stages: Sequence[Stage] = STAGES[1:]) -> Changes:
    """Solve every instance with all stages, and without each of some that applies; the first one is needed."""
    instances = list(named)
    work = partial(_changed, instances, times, stages)
    if jobs == 1:
        rows = list(map(work, range(len(instances))))
    else:
        with get_context("fork").Pool(jobs) as pool:  # the instances are in the memory of each process
            rows = pool.map(work, range(len(instances)), chunksize=1)
    return {stage: [row[i] for row in rows if i in row] for i, stage in enumerate(stages)}


def _changed(instances: Sequence[Named], times: int, stages: Sequence[Stage], number: int) -> dict[int, Change]:
    """One instance without each stage that applies to it, by the number of the stage."""
    name, problem = instances[number]
    profile = Profile(problem)
    solved(problem, without(None))  # norms of columns and the like are computed once
    applied = [i for i, stage in enumerate(stages) if stage.applies(profile)]
    others = {i: repeated(problem, without(stages[i]), times) for i in applied}
    full = repeated(problem, without(None), times)
    print(name, f"{full.seconds:.2f} s", file=sys.stderr, flush=True)
    return {i: Change(full, other) for i, other in others.items()}


# ---------------------------------------------------------------------------------------------------------------------
# Tables

_FOUND = "| without | instances | objective worse, better | worst | bound lower | most |"


def large_table(found: Changes) -> Iterator[str]:
    """One line a stage, with the median, the least and the largest ratio of times."""
    yield _FOUND + " time | time to the objective |"
    yield "|---|---|---|---|---|---|---|---|"
    for stage, rows in found.items():
        if rows:
            times, to_objective = ([row.time for row in rows], [row.to_objective for row in rows])
            yield _line([*_cells(stage, rows), _spread(times), _spread(to_objective)])


def small_table(found: Changes) -> Iterator[str]:
    """One line a stage, with the ratio of the times of all problems together."""
    yield _FOUND + " time |"
    yield "|---|---|---|---|---|---|---|"
    for stage, rows in found.items():
        if rows:
            total = sum(row.other.seconds for row in rows) / sum(row.full.seconds for row in rows)
            yield _line([*_cells(stage, rows), f"{total:.2f}"])


def _cells(stage: Stage, rows: Sequence[Change]) -> Iterator[str]:
    yield f"`{type(stage).__name__}`"
    yield str(len(rows))
    yield f"{sum(row.objective > SAME for row in rows)}, {sum(row.objective < -SAME for row in rows)}"
    yield _percent(max(row.objective for row in rows), SAME)
    yield str(sum(row.bound > TOL for row in rows))
    yield _percent(max(row.bound for row in rows), TOL)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _spread(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _percent(x: float, least: float) -> str:
    return f"{float(f'{100 * x:.2g}'):g}%" if x > least else ""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given = os.environ.get("DIHT_DATA")
    parser.add_argument("--data", type=Path, default=Path(given) if given else None, help="folder of the data sets")
    parser.add_argument("--problems", type=int, default=140, help="small ones (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    arguments = parser.parse_args()
    jobs = arguments.jobs
    with threadpool_limits(1):
        small = changes(difficult(arguments.problems), 1, jobs)
        print(*small_table(small), "", sep="\n", flush=True)
        negligible = [stage for stage in STAGES if isinstance(stage, LargerRidge)]
        print(*small_table(changes(nearly_exact(arguments.problems), 1, jobs, negligible)), "", sep="\n", flush=True)
        large = changes(instances(arguments.data), _REPETITIONS, jobs)
        print(*large_table(large), "", sep="\n")
    print(f"{machine()}; {process_time():.0f} s of processor time.")


if __name__ == "__main__":
    main()

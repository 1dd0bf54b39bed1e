"""Has anything become slower? Each task's reads of X, and its time in units of one pair of products, beside those of a baseline.

    python benchmarks/regression.py              # exit status 1 where something got worse
    python benchmarks/regression.py --update     # make what is measured now the baseline

Reads of X are counted, and the same on every machine; they may not grow. Times are ratios to scipy's X @ w and X.T @ a on the same
matrix in the same run, which vary between machines and runs: what is half as long again is reported.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from diht import Problem, solve, sparse_path
from diht.datasets import atomic_write
from diht.losses import SmoothedHinge
from diht.result import Result
from diht.solvers import DIHT, SDIHT
from instances import hard, paper_design, reg, zipf_logistic
from kernels import epoch_of, text_like
from measure import median_ratio

BASELINE = Path(__file__).parent / "baseline.json"
_MORE_READS, _SLOWER = 1.02, 1.5  # times the baseline's that are reported
_REPEATS = 5


class Outcome(NamedTuple):
    """What a task's work gives: the reads of X, and the results by their k."""

    reads: float
    results: dict[int, Result]


Task = tuple[str, Any, Callable[[], Outcome]]  # a name, X, and work


def tasks() -> Iterator[Task]:
    """Yield what is measured."""
    generated = {"reg": (reg, 20, (1.0, 0.01)), "hard": (hard, 20, (0.01,))}
    for name, (make, k, lams) in generated.items():
        X, y, _ = make()
        for lam in lams:
            yield _solved(f"auto, {name}, lam = {lam:g}", X, y, "squared", k, lam)
    X, y, _ = paper_design(500, 100, 100, seed=0)
    yield _solved("auto, the paper's design, N = 100", X, y, "squared", 100, 1.0)
    X, y, _ = zipf_logistic()
    yield _solved("auto, sparse logistic, k = 200", X, y, "logistic", 200, 1e-4)
    X, y, _ = reg()
    yield "path of 10 values of k, reg", X, lambda X=X, y=y: _path(X, y)
    X, y = text_like(50_000)
    for solver in (DIHT(step=1e-2), SDIHT(step=1e-1)):
        problem = Problem(X, y, SmoothedHinge(), 600, 2e-4, n_threads=1)
        yield f"an epoch of {type(solver).__name__}, text-like", X, _counted(problem, epoch_of(solver, problem))


def _solved(name: str, X: Any, y: np.ndarray, loss: str, k: int, lam: float) -> Task:
    return name, X, lambda: _outcome({k: solve(Problem(X, y, loss, k, lam, n_threads=1))})


def _path(X: np.ndarray, y: np.ndarray) -> Outcome:
    path = sparse_path(
        X, y, ks=range(2, 21, 2), lams=1.0, loss="squared", fit_intercept=False, standardize=False, n_jobs=1
    )
    return _outcome({point.k: point.result for point in path})


def _outcome(results: dict[int, Result]) -> Outcome:
    return Outcome(float(sum(result.n_passes for result in results.values())), results)


def _counted(problem: Problem, work: Callable[[], None]) -> Callable[[], Outcome]:
    def run() -> Outcome:
        before = problem.design.passes
        work()
        return Outcome(problem.design.passes - before, {})

    return run


def measured() -> dict[str, dict[str, float]]:
    """Measure all tasks."""
    figures = {}
    for name, X, work in tasks():
        w, a = np.ones(X.shape[1]), np.ones(X.shape[0])
        work()  # compile
        reads = work().reads
        ratio = median_ratio(work, lambda X=X, w=w, a=a: (X @ w, X.T @ a), _REPEATS)[2]
        figures[name] = {"reads": round(reads, 2), "pairs": round(ratio, 2)}
        print(f"{name:45} {reads:8.1f} reads, time of {ratio:8.1f} pairs", file=sys.stderr, flush=True)
    return figures


def complaints(now: dict[str, dict[str, float]], before: dict[str, dict[str, float]]) -> list[str]:
    """Say what got worse, or is not there any more."""
    found = [f"{name}: not measured" for name in before if name not in now]
    for name in before.keys() & now.keys():
        for unit, limit in (("reads", _MORE_READS), ("pairs", _SLOWER)):
            if now[name][unit] > limit * before[name][unit]:
                found.append(f"{name}: {now[name][unit]:g} {unit}, {before[name][unit]:g} before")
    return sorted(found)


def main() -> int:
    """Measure and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="make what is measured now the baseline")
    now = measured() if parser.parse_args().update else None
    if now is not None:
        with atomic_write(BASELINE) as file:
            file.write((json.dumps(now, indent=2) + "\n").encode())
        return 0
    worse = complaints(measured(), json.loads(BASELINE.read_text()))
    print("\n".join(worse) or "nothing is slower")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())

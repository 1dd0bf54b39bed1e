"""Tables of 10 to 64 columns that come with scikit-learn: what the default proves, and how long a proof takes.

    python benchmarks/tables.py [--limit 60] [--store FILE] [--beside FILE] > tables.md

Columns are standardised, there is an intercept; wine is one class against the rest, digits 0 against 8 by their pixels. Processor
seconds, one thread, kernels warm. `--store` writes the seconds of the exact solves, `--beside` puts those of another version
next to them, or the gap where the limit ended one.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from diht import Problem, solve
from diht.result import Result
from measure import machine

SIZES = 3, 5, 10
RIDGES = 1e-3, 1e-2


def tables() -> Iterator[tuple[str, np.ndarray, np.ndarray, tuple[str, ...]]]:
    """Yield a name, columns, targets or labels, and losses."""
    both = "squared", "logistic"
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", X, 2.0 * y - 1.0, both
    X, y = load_diabetes(return_X_y=True)
    yield "diabetes", X, (y - y.mean()) / y.std(), ("squared",)
    X, y = load_wine(return_X_y=True)
    for kind in range(3):
        yield f"wine {kind}", X, np.where(y == kind, 1.0, -1.0), both
    X, y = load_digits(return_X_y=True)
    chosen = np.isin(y, (0, 8))
    yield "digits 0, 8", X[chosen], np.where(y[chosen] == 8, 1.0, -1.0), both


def problems() -> Iterator[tuple[str, Problem]]:
    """Yield what names a problem, and the problem."""
    for name, X, y, losses in tables():
        deviations = X.std(axis=0)
        Z = ((X - X.mean(axis=0)) / np.where(deviations > 0.0, deviations, 1.0))[:, deviations > 0.0]
        for loss in losses:
            for k in SIZES:
                for lam in RIDGES:
                    if k < Z.shape[1]:
                        label = f"{name} ({len(Z)} x {Z.shape[1]}) | {loss} | {k} | {lam:g}"
                        yield label, Problem(Z, y, loss, k, lam, fit_intercept=True, n_threads=1)


def timed(problem: Problem, solver: str, limit: float | None) -> tuple[float, Result]:
    """Return processor seconds, and the result."""
    before = process_time()
    result = solve(problem, solver, time_limit=limit)
    return process_time() - before, result


def shown(seconds: float, gap: float, tol: float = 1e-4) -> str:
    """Return the seconds of a proof, or what is left."""
    return f"{seconds:.2f}" if gap <= tol else f"{100.0 * gap:.2g}% left after {seconds:.0f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of an exact solve")
    parser.add_argument("--store", type=Path, help="where to write the seconds of exact solves")
    parser.add_argument("--beside", type=Path, help="what another version has stored")
    options = parser.parse_args()
    known = json.loads(options.beside.read_text(encoding="utf-8")) if options.beside else {}
    stored = {}
    first = next(problems())[1]
    for solver in ("auto", "branch"):  # compile
        timed(first, solver, None)
    print(f"{machine()}\n\n| data | loss | k | lam | exact{', before | exact' if known else ''} | auto | its gap |")
    print("|" + "---|" * (8 if known else 7))
    for label, problem in problems():
        exact, proof = timed(problem, "branch", options.limit)
        auto, found = timed(problem, "auto", None)
        stored[label] = exact, proof.relative_gap
        before = f" {shown(*known[label])} |" if label in known else " |" if known else ""
        gap = "proved" if found.relative_gap <= 1e-4 else f"{100.0 * found.relative_gap:.2g}%"
        print(f"| {label} |{before} {shown(exact, proof.relative_gap)} | {auto:.2f} | {gap} |", flush=True)
    if options.store:
        options.store.write_text(json.dumps(stored), encoding="utf-8")


if __name__ == "__main__":
    main()

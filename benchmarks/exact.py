"""Search trees that take more than a moment: seconds to the proof, nodes a second, or the gap that a limit leaves.

    python benchmarks/exact.py [--limit 60] > exact.md

Squared loss, k = 10. Diabetes with all squares and products (442 x 65), standardised; AR(.9), 100 x 200, SNR 10, unit coefficients.
Seconds on the wall with all threads, kernels warm.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from time import perf_counter

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from diht import Problem
from diht.numerics.threads import blas_threads
from diht.solvers import BranchAndBound, Start
from instances import autoregressive
from measure import machine

K = 10


def diabetes_products() -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's diabetes with all squares and products, columns and target standardised."""
    X, y = load_diabetes(return_X_y=True)
    X = PolynomialFeatures(2, include_bias=False).fit_transform(StandardScaler().fit_transform(X))
    return StandardScaler().fit_transform(X), (y - y.mean()) / y.std()


def problems() -> Iterator[tuple[str, Problem]]:
    """Yield what names a problem, and the problem."""
    X, y = diabetes_products()
    for lam in (1e-2, 1e-3):
        yield f"diabetes, products (442 x 65) | {lam:g}", Problem(X, y, "squared", K, lam)
    X, y, _ = autoregressive(100, 200, K, 0.9, 10.0)
    for lam in (0.1, 0.05):
        yield f"AR(.9) (100 x 200) | {lam:g}", Problem(X, y, "squared", K, lam)


def searched(problem: Problem, limit: float) -> tuple[float, int, float]:
    """Search to the end, or the limit: seconds, nodes, the relative gap that is left."""
    begin, solver = perf_counter(), BranchAndBound()
    with blas_threads(problem.design.long_products):  # as `solve` has it
        state = solver.init(problem, Start(stop=lambda: perf_counter() - begin >= limit))
        while not solver.finished(state) and perf_counter() - begin < limit:
            solver.advance(problem, state)
    auto, tree = state.auto, state.tree
    return perf_counter() - begin, 0 if tree is None else tree.solved, auto.gap / auto.objective


def main() -> None:
    """Search each tree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each search")
    limit = parser.parse_args().limit
    searched(next(problems())[1], 1.0)  # compiles
    print(f"{machine()}\n\n| data | lam | seconds | nodes | nodes a second | gap left |\n|---|---|---|---|---|---|")
    for name, problem in problems():
        seconds, nodes, gap = searched(problem, limit)
        left = "proved" if gap <= 1e-8 else f"{100 * gap:.2f}%"
        print(f"| {name} | {seconds:.1f} | {nodes:,} | {nodes / seconds:,.0f} | {left} |", flush=True)


if __name__ == "__main__":
    main()

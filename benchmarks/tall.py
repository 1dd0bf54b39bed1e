"""Tall tables: processor seconds of fits beside abess's, and numpy's own for standardising X and forming X'X.

    python benchmarks/tall.py [--repeats 5] [--sizes 1000000x30 200000x50] > tall.md

A feature is normal plus 0.6 of its left neighbour, 8 have normal coefficients, the noise has deviation 2; labels are drawn from the
logistic model without it. k = 5, lam = 0.001, standardised columns, one thread; medians of the repeats, kernels warm. The best
model is there when the final objective was first met to 1e-6 of it. abess, where it is installed, gets standardised columns.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy

import numpy as np

from diht import SparseClassifier, SparseRegressor
from instances import tall
from measure import machine


def timed(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median of the processor seconds, and what the work returned last."""
    seconds = []
    for _ in range(repeats):
        before = process_time()
        result = work()
        seconds.append(process_time() - before)
    return median(seconds), result


def rows(n: int, d: int, repeats: int) -> list[str]:
    """Return the lines of one size."""
    X, y, labels = tall(n, d)

    def plain() -> np.ndarray:
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        return Z.T @ Z

    base, _ = timed(plain, repeats)
    lines = [f"| {n:,} x {d} | numpy | {base:.2f} | 1.0 |  |  |  |"]
    fits = {
        "squared": (SparseRegressor(k=5), y),
        "squared, exact": (SparseRegressor(k=5, exact=True), y),
        "logistic": (SparseClassifier(k=5), labels),
        "squared hinge": (SparseClassifier(k=5, loss="squared_hinge"), labels),
        "smoothed hinge": (SparseClassifier(k=5, loss="smoothed_hinge"), labels),
        "hinge": (SparseClassifier(k=5, loss="hinge"), labels),
    }
    lines += peer(X, y, labels, base, repeats)
    for name, (model, target) in fits.items():
        model.fit(X[:5000], target[:5000])
        seconds, fitted = timed(lambda model=model, target=target: model.fit(X, target), repeats)
        result = fitted.result_
        wall = result.seconds
        met = next(it.seconds for it in result.trace if it.best_objective <= result.objective * (1.0 + 1e-6))
        lines.append(
            f"| {n:,} x {d} | {name} | {seconds:.2f} | {seconds / base:.1f} | {result.n_passes:.0f} "
            f"| {100 * result.relative_gap:.2g}% | {seconds * met / wall:.2f} |"
        )
    return lines


def peer(X: np.ndarray, y: np.ndarray, labels: np.ndarray, base: float, repeats: int) -> list[str]:
    """Return the lines of abess, whose alpha is our lam where columns are standardised; none where it is not installed."""
    try:
        import abess
    except ImportError:
        return []
    Z, lines = (X - X.mean(axis=0)) / X.std(axis=0), []
    fits = {"squared": (abess.LinearRegression, y), "logistic": (abess.LogisticRegression, (labels > 0).astype(int))}
    for name, (kind, target) in fits.items():
        model = kind(support_size=[5], alpha=[0.001], thread=1)
        seconds, _ = timed(lambda model=model, target=target: model.fit(Z, target), repeats)
        lines.append(f"| {len(X):,} x {X.shape[1]} | abess, {name} | {seconds:.2f} | {seconds / base:.1f} |  |  |  |")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sizes", nargs="+", default=["1000000x30", "200000x50"])
    arguments = parser.parse_args()
    print(machine(), end="\n\n")
    print(
        "| rows x columns | fit | s | beside numpy | reads of X | gap | best model after, s |\n|---|---|---|---|---|---|---|"
    )
    for size in arguments.sizes:
        print("\n".join(rows(*map(int, size.split("x")), arguments.repeats)), flush=True)


if __name__ == "__main__":
    main()

"""What a path over many k costs, beside the fit at the largest: processor seconds of one thread, medians of ratios in turn.

    python benchmarks/path.py --data FOLDER

Without the folder of the real data sets only the synthetic problem is run.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy
sys.path.insert(0, str(Path(__file__).parent / "comparison"))  # which knows the way to this folder, too

from benchmark_utils.data import genes

from diht import SparseClassifier, SparseRegressor, sparse_path
from diht.datasets import fetch_imdb
from instances import reg

Case = tuple[str, Any, Any, str, float, Sequence[int]]


def cases(data: Path | None) -> Iterator[Case]:
    """Name, X, y, loss, lam and 50 values of k."""
    X, y, _ = reg()
    yield "reg", X, y, "squared", 0.1, range(1, 51)
    if data is None:
        return
    for name, loss, lam in (("leukemia", "logistic", 0.01), ("riboflavin", "squared", 0.1)):
        (X, y), _ = genes(data / name)
        yield name, X, y, loss, lam, range(1, 51)
    X, y = fetch_imdb(data_home=str(data), return_X_y=True)
    yield "imdb", X, y, "logistic", 2e-4, range(4, 201, 4)
    yield "imdb", X, y, "logistic", 2e-4, range(20, 1001, 20)
    yield "imdb", X, y, "smoothed_hinge", 2e-4, range(4, 201, 4)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """How many processor seconds something takes, and what it returns."""
    start = process_time()
    result = work()
    return process_time() - start, result


def line(case: Case, repeats: int) -> str:
    """One row of the table."""
    name, X, y, loss, lam, ks = case
    estimator = SparseRegressor if loss == "squared" else SparseClassifier
    settings = {"loss": loss, "standardize": False, "n_jobs": 1}
    fitted = estimator(k=ks[-1], lam=lam, **settings)
    sparse_path(X, y, ks=ks[:2], lams=lam, **settings)  # compiles
    fitted.fit(X, y)
    follow = partial(sparse_path, X, y, ks=ks, lams=lam, **settings)
    runs = [(timed(partial(fitted.fit, X, y)), timed(follow)) for _ in range(repeats)]
    fit, whole = (median(seconds for seconds, _ in column) for column in zip(*runs, strict=True))
    ratio = median(path / fit for (fit, _), (path, _) in runs)
    gaps = [point.relative_gap for point in runs[0][1][1]]
    shape = f"{X.shape[0]:,} x {X.shape[1]:,}"
    return (
        f"| {name} | {shape} | {loss} | {ks[0]} to {ks[-1]} | {fit:.2f} | {whole:.1f} | {ratio:.1f} | "
        f"{100 * median(gaps):.2g}% |"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DIHT_DATA"), help="folder of the real data sets")
    parser.add_argument("--repeats", type=int, default=3, help="how often each is measured (default: %(default)s)")
    arguments = parser.parse_args()
    print("| data | size | loss | 50 values of k | fit at the largest, s | path, s | ratio | median gap |")
    print("|---|---|---|---|---|---|---|---|")
    for case in cases(None if arguments.data is None else Path(arguments.data)):
        print(line(case, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()

"""Do rows on disk give the answers of rows in memory? The 200 problems of pins.py, in 1, 3 and 17 blocks, and imdb.

    python benchmarks/equal.py [--first 0] [--count 200] [--imdb]

Prints each objective or lower bound that differs by more than 1e-8 of the objective, and the largest differences.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from diht import Problem, solve
from diht.datasets import convert, fetch_imdb
from pins import COUNT, Pin, draw, solved

BLOCKS = 1, 3, 17
_EQUAL = 1e-8  # of an objective


def on_disk(X: Any, folder: Path, n_blocks: int) -> Any:
    """Write a matrix as a data set of so many blocks; return its X."""
    arrays = {"X": X}
    if sp.issparse(X):
        X = sp.csr_array(X)
        arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    np.savez(folder / "X.npz", y=np.arange(float(X.shape[0])), **arrays)
    return convert(folder / "X.npz", folder / f"{n_blocks}", block_rows=-(-X.shape[0] // n_blocks)).X


def differences(number: int) -> Iterator[tuple[str, Pin, Pin]]:
    """Yield what a problem gives in memory and on disk."""
    case = draw(number)
    here = solved(case)
    for n_blocks in BLOCKS:
        with tempfile.TemporaryDirectory() as folder:
            there = solved(replace(case, X=on_disk(case.X, Path(folder), n_blocks)))
        for one, other in zip(here, there, strict=True):
            yield f"{one['name']}, {n_blocks} blocks", one, other


def imdb() -> Iterator[tuple[str, Pin, Pin]]:
    """Yield the same of imdb."""
    data = fetch_imdb()
    for n_blocks in BLOCKS:
        with tempfile.TemporaryDirectory() as folder:
            pair = []
            for X in (data.data, on_disk(data.data, Path(folder), n_blocks)):
                result = solve(Problem(X, data.target, "logistic", 50, 1e-3, fit_intercept=True), tol=1e-6)
                pair.append({"objective": result.objective, "bound": result.lower_bound, "k": len(result.support)})
            yield f"imdb, {n_blocks} blocks", *pair


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--imdb", action="store_true", help="imdb alone")
    arguments = parser.parse_args()
    numbers = range(arguments.first, min(arguments.first + arguments.count, COUNT))
    pairs = imdb() if arguments.imdb else (pair for number in numbers for pair in differences(number))
    apart, largest = 0, {"objective": 0.0, "bound": 0.0}
    for name, here, there in pairs:
        size = abs(here["objective"])
        for figure in largest:
            apart_by = abs(here[figure] - there[figure]) / size
            largest[figure] = max(largest[figure], apart_by)
            if not apart_by <= _EQUAL:
                apart += 1
                print(f"{name}: {figure} {there[figure]!r}, {here[figure]!r} in memory ({apart_by:.1e})")
    print(f"{apart} differ; at most {largest['objective']:.1e} in the objective, {largest['bound']:.1e} in the bound")
    return bool(apart)


if __name__ == "__main__":
    sys.exit(main())

"""Do rows on disk, on a cluster and on a device give the answers of rows in memory? 260 small problems of all losses, and imdb.

    python benchmarks/equal.py [--first 0] [--count 260] [--where disk dask] [--threads] [--imdb]
    python benchmarks/equal.py --where device [--device cuda] [--step 12]

The problems are those of pins.py, and 60 more of further losses. On disk they are in 1, 3 and 17 blocks, on Dask in 5 blocks on two
workers; on a device they are in float64, and solved twice, which must give the same bits. Prints each objective or lower bound
that differs by more than 1e-8 of the objective (on a device objectives by 1e-9), and the largest differences.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from diht import Problem, SparseClassifier, solve
from diht.datasets import convert, fetch_imdb
from pins import COUNT, Case, Pin, draw, solved

BLOCKS = 1, 3, 17  # on disk
SHARES = 5  # blocks on Dask
FURTHER = "quantile", "gamma", "tweedie", "negative_binomial"
ALL = COUNT + 60
_EQUAL, _EQUAL_THERE = 1e-8, 1e-9  # of an objective, and of one on a device
_TOL = 1e-10  # on Dask: there relaxations are solved by other methods, whose bounds agree where they are solved
# What has no door for Dask collections enters by another one.
_DOORS = {"solve": "auto", "certify": "auto", "branch": "exact"}


def problem(number: int) -> Case:
    """The problem of a number. The negative binomial loss takes no offset."""
    case = draw(number, FURTHER[number % len(FURTHER)] if number >= COUNT else None)
    if case.settings["loss"] == "negative_binomial":
        case.data.pop("offset", None)
    return case


def on_disk(X: Any, folder: Path, n_blocks: int) -> Any:
    """Write a matrix as a data set of so many blocks; return its X."""
    arrays = {"X": X}
    if sp.issparse(X):
        X = sp.csr_array(X)
        arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)}
    np.savez(folder / "X.npz", y=np.arange(float(X.shape[0])), **arrays)
    return convert(folder / "X.npz", folder / f"{n_blocks}", block_rows=-(-X.shape[0] // n_blocks)).X


def on_dask(values: Any) -> Any:
    """Return a matrix or vector as a Dask array."""
    import dask
    import dask.array as da

    values = sp.csr_array(values) if sp.issparse(values) else values
    cuts = np.linspace(0, values.shape[0], SHARES + 1).astype(int).tolist()
    parts = ((values[a:b], (b - a, *values.shape[1:])) for a, b in pairwise(cuts))
    return da.concatenate([da.from_delayed(dask.delayed(part), shape, values.dtype) for part, shape in parts])


def disk(number: int) -> Iterator[tuple[str, Pin, Pin]]:
    """Yield what a problem gives in memory and on disk."""
    case = problem(number)
    here = solved(case)
    for n_blocks in BLOCKS:
        with tempfile.TemporaryDirectory() as folder:
            there = solved(replace(case, X=on_disk(case.X, Path(folder), n_blocks)))
        for one, other in zip(here, there, strict=True):
            yield f"{one['name']}, {n_blocks} blocks", one, other


def dask(number: int) -> Iterator[tuple[str, Pin, Pin]]:
    """Yield what a problem gives in memory and on Dask."""
    case = problem(number)
    case = replace(case, door=_DOORS.get(case.door, case.door), settings=case.settings | {"tol": _TOL})
    data = {name: on_dask(values) for name, values in case.data.items()}
    there = solved(replace(case, X=on_dask(case.X), y=on_dask(case.y), data=data))
    for one, other in zip(solved(case), there, strict=True):
        yield f"{one['name']}, dask", one, other


def device(number: int, name: str = "cuda") -> Iterator[tuple[str, Pin, Pin]]:
    """Yield what a problem gives in memory and on a device, and what it gives there once more."""
    case = problem(number)
    case = replace(case, X=case.X.astype(np.float64), door=_DOORS.get(case.door, case.door))
    there = replace(case, settings=case.settings | {"device": name})
    here, first, again = solved(case), solved(there), solved(there)
    for one, other, same in zip(here, first, again, strict=True):
        yield f"{one['name']}, {name}", one, other
        if other != same:
            yield f"{one['name']}, {name}, other bits", {**same, "objective": np.nan}, other


def imdb(where: list[str]) -> Iterator[tuple[str, Pin, Pin]]:
    """Yield the same of imdb."""
    data = fetch_imdb()
    X, y = data.data, data.target
    for n_blocks in BLOCKS if "disk" in where else ():
        with tempfile.TemporaryDirectory() as folder:
            pair = []
            for given in (X, on_disk(X, Path(folder), n_blocks)):
                result = solve(Problem(given, y, "logistic", 50, 1e-3, fit_intercept=True), tol=1e-6)
                pair.append({"objective": result.objective, "bound": result.lower_bound})
            yield f"imdb, {n_blocks} blocks", *pair
    if "dask" in where:
        pair = []
        for given in ((X, y), (on_dask(X), on_dask(y))):
            model = SparseClassifier(50, 1e-3, solver="relaxed", standardize=False, tol=_TOL).fit(*given)
            pair.append({"objective": model.objective_, "bound": model.lower_bound_})
        yield "imdb, dask", *pair


def cluster(processes: bool) -> Any:
    """Return a client of two workers."""
    from distributed import Client, LocalCluster

    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    return Client(LocalCluster(processes=processes, **settings))


def shown(numbers: range) -> Iterator[int]:
    """Yield the numbers; print every tenth."""
    for i, number in enumerate(numbers):
        yield number
        if i % 10 == 9:
            print(f"{i + 1} problems", flush=True)


def main() -> int:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=ALL)
    parser.add_argument("--step", type=int, default=1, help="every so many problems")
    parser.add_argument("--where", nargs="+", choices=["disk", "dask", "device"], default=["disk", "dask"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--threads", action="store_true", help="Dask's workers are threads")
    parser.add_argument("--imdb", action="store_true", help="imdb alone")
    arguments = parser.parse_args()
    numbers = range(arguments.first, min(arguments.first + arguments.count, ALL), arguments.step)
    known = {"disk": disk, "dask": dask, "device": partial(device, name=arguments.device)}
    ways = [known[where] for where in arguments.where]
    tolerance = _EQUAL_THERE if arguments.where == ["device"] else _EQUAL
    each = (pair for number in shown(numbers) for way in ways for pair in way(number))
    apart, largest = 0, {"objective": 0.0, "bound": 0.0}
    with cluster(not arguments.threads) if "dask" in arguments.where else nullcontext():
        for name, here, there in imdb(arguments.where) if arguments.imdb else each:
            size = abs(here["objective"])
            for figure in largest:
                apart_by = abs(here[figure] - there[figure]) / size
                largest[figure] = max(largest[figure], apart_by)
                if not apart_by <= (tolerance if figure == "objective" else _EQUAL):
                    apart += 1
                    print(
                        f"{name}: {figure} {there[figure]!r}, {here[figure]!r} in memory ({apart_by:.1e})", flush=True
                    )
    print(f"{apart} differ; at most {largest['objective']:.1e} in the objective, {largest['bound']:.1e} in the bound")
    return bool(apart)


if __name__ == "__main__":
    sys.exit(main())

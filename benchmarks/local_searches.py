"""Do simple local searches end below the models of `auto`? Each is some lines and shares no code with it.

    python benchmarks/local_searches.py --data FOLDER --out searches.jsonl [--jobs 16] [reuters-money-fx blocks ...]
    python benchmarks/local_searches.py --out searches.jsonl --table     # what is in the file, as a table

Cases are those of `swap_audit.py`, and generated data of families that are in no data set: `genes`, `ar`, `blocks`, `heavy`,
`genotypes`, `rare`, each with fewer samples than features and (`-tall`) with more. The searches are

    forward    forward selection, then swaps
    backward   ridge regression, the smaller half of the coefficients left out again and again, then swaps
    random     forward selection with random choices among the best, then swaps, over and over
    kicks      features of the best model exchanged for random ones among the best, then swaps, over and over
    grow       features join the best model, the cheapest leave, then swaps, over and over

Each has the processor time that `auto` took, and at most --seconds. Exit status 1 if one ends lower by more than 1e-6 of the
objective.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import instances
from diht import SparseClassifier, SparseRegressor
from peers import ONE_THREAD
from swap_audit import FORMULAS, LOSSES, NAMES, NUMBERS, Case, Model, Oracle, load, recorded

Vector = np.ndarray

_LOWER = 1e-6  # of the objective
_FITTED, _GLANCED = 4, 60  # columns that are fitted where one leaves, and along which alone the objective is minimised
_AMONG = 8  # columns among which random choices are made


# ---------------------------------------------------------------------------------------------------------------------
# Generated data


def _genes(rng: np.random.Generator, n: int, d: int) -> Vector:
    """Columns that share ten factors, exponentiated as intensities are."""
    factors = rng.standard_normal((n, 10)) @ (rng.standard_normal((10, d)) * (rng.random((10, d)) < 0.3))
    return np.exp(0.5 * factors + 0.5 * rng.standard_normal((n, d)))


def _rare(rng: np.random.Generator, n: int, d: int) -> Vector:
    """Zeros and ones, most columns rare, each common one implied by its left neighbour now and then."""
    X = rng.random((n, d)) < 0.5 / (1.0 + rng.permutation(d) % 50)
    X[:, 1::2] |= X[:, ::2] & (rng.random((n, d // 2)) < 0.5)
    X[rng.integers(0, n, d), np.arange(d)] = True
    X = X.astype(float)
    return X[:, X.std(axis=0) > 0.0]


FAMILIES: dict[str, Callable[[np.random.Generator, int, int], Vector]] = {
    "genes": _genes,
    "ar": lambda rng, n, d: instances.autoregressive(n, d, 10, 0.9, 2.0, int(rng.integers(10**6)))[0],
    "blocks": lambda rng, n, d: instances.blocks(n, d, 20, 0.8, 10, int(rng.integers(10**6)))[0],
    "heavy": lambda rng, n, d: instances.heavy_tailed(n, d, 15, int(rng.integers(10**6)))[0],
    "genotypes": lambda rng, n, d: instances.genotypes(n, d, 20, int(rng.integers(10**6)))[0],
    "rare": _rare,
}
SHAPES = {"genes": (60, 4000), "": (120, 2000), "tall": (800, 300)}
GENERATED = (*FAMILIES, *(f"{name}-tall" for name in FAMILIES))


def generated(name: str, columns: str, task: str, seed: int = 0) -> tuple[Any, Vector]:
    """X of a family, and targets of twelve of its columns with as much noise, or their signs."""
    family, _, form = name.partition("-")
    rng = np.random.default_rng([seed, *name.encode()])
    X = FAMILIES[family](rng, *SHAPES[form or ("genes" if family == "genes" else "")])
    signal = (X / X.std(axis=0))[:, rng.choice(X.shape[1], 12, replace=False)] @ rng.standard_normal(12)
    y = signal + signal.std() * rng.standard_normal(len(X))
    y = (y - y.mean()) / y.std() if task == "regression" else np.where(y > np.median(y), 1.0, -1.0)
    return (X / X.std(axis=0) if columns == "scaled" else X), y


# ---------------------------------------------------------------------------------------------------------------------
# The searches


@dataclass
class Search:
    """What the searches share: steps of one feature, and the clock."""

    oracle: Oracle
    k: int
    seconds: float
    seed: int = 0
    begun: float = field(default_factory=process_time)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        X = self.oracle.X
        self.squares = X.multiply(X).tocsc() if sp.issparse(X) else X * X
        self.nothing = self.oracle.fit(np.empty(0, dtype=int))
        self.best = self.nothing

    def late(self) -> bool:
        """Whether the time is up."""
        return process_time() - self.begun > self.seconds

    def promising(self, model: Model, top: int) -> tuple[Vector, Vector]:
        """The columns that promise most, by the quadratic and then exactly along each alone, and their coefficients."""
        oracle, n = self.oracle, len(self.oracle.y)
        g = oracle.X.T @ oracle.loss.slope(model.u, oracle.y) / n
        h = self.squares.T @ oracle.loss.curvature(model.u, oracle.y) / n + oracle.lam
        promise = g * g / h
        promise[model.support] = -1.0
        order = np.argsort(-promise)[: min(_GLANCED, len(g) - len(model.support))]
        change, t = oracle.along(order, model.u)
        found = np.argsort(change)[:top]
        return order[found], t[found]

    def joined(self, model: Model, choices: int = 1) -> Model:
        """A model with one of the best columns more."""
        features, t = self.promising(model, max(choices, 1))
        at = int(self.rng.integers(len(features)))
        return self.oracle.fit(np.append(model.support, features[at]), np.append(model.w, t[at]), model.b)

    def left(self, model: Model, out: int) -> Model:
        """A model without a column."""
        kept = model.support != out
        return self.oracle.fit(model.support[kept], model.w[kept], model.b)

    def grown(self, model: Model, size: int, choices: int = 1) -> Model:
        """A model with so many columns."""
        while len(model.support) < size and not self.late():
            model = self.joined(model, choices)
        return model

    def shrunk(self, model: Model) -> Model:
        """A model without the columns that cost least, one by one."""
        while len(model.support) > self.k:
            model = min((self.left(model, out) for out in model.support), key=lambda m: m.objective)
        return model

    def swapped(self, model: Model) -> Model:
        """Swap until a round of the columns finds none that gains."""
        waiting = list(model.support[np.argsort(np.abs(model.w))])
        vain = 0
        while vain < len(waiting) and not self.late():
            less, target = self.left(model, waiting[0]), model.objective * (1.0 - 1e-7)
            vain, waiting = vain + 1, [*waiting[1:], waiting[0]]
            for new, t in zip(*self.promising(less, _FITTED), strict=True):
                other = self.oracle.fit(np.append(less.support, new), np.append(less.w, t), less.b, target)
                if other.objective < target:
                    model, vain, waiting = other, 0, [*waiting[:-1], new]
                    break
        self.keep(model)
        return model

    def keep(self, model: Model) -> None:
        """Note a model."""
        if len(model.support) <= self.k and model.objective < self.best.objective:
            self.best = model


def forward(search: Search) -> None:
    search.swapped(search.grown(search.nothing, search.k))


def backward(search: Search) -> None:
    oracle, kept = search.oracle, np.arange(search.oracle.X.shape[1])
    while len(kept) > search.k:
        Z = oracle.X[:, kept]
        n, target = len(oracle.y), oracle.y - oracle.y.mean()
        gram = np.asarray((Z @ Z.T).todense() if sp.issparse(Z) else Z @ Z.T)
        w = Z.T @ np.linalg.solve(gram + n * oracle.lam * np.eye(n), target)
        kept = kept[np.argsort(-np.abs(w))[: max(search.k, len(kept) // 2)]]
    search.swapped(oracle.fit(kept))


def random(search: Search) -> None:
    while not search.late():
        search.swapped(search.grown(search.nothing, search.k, _AMONG))


def kicks(search: Search) -> None:
    forward(search)
    while not search.late():
        model = search.best
        for out in search.rng.choice(model.support, min(int(search.rng.integers(2, 5)), search.k - 1), replace=False):
            model = search.left(model, out)
        search.swapped(search.grown(model, search.k, _AMONG))


def grow(search: Search) -> None:
    forward(search)
    while not search.late():
        more = int(search.rng.integers(1, 5))
        search.swapped(search.shrunk(search.grown(search.best, search.k + more, _AMONG // 2)))


SEARCHES = (forward, backward, random, kicks, grow)


# ---------------------------------------------------------------------------------------------------------------------
# Cases


def compared(case: Case, X: Any, y: Vector, seconds: float) -> dict[str, Any]:
    """Fit a model, and search beside it."""
    make = SparseRegressor if case.loss in LOSSES["regression"] else SparseClassifier
    start = process_time()
    model = make(case.k, case.lam, loss=case.loss, standardize=False, n_jobs=1).fit(X, y)
    fit_seconds = process_time() - start
    ours, oracle = float(model.result_.objective), Oracle.of(X, y, case.loss, case.lam)
    ends: dict[str, float] = {}
    for search in SEARCHES if model.result_.relative_gap > 1e-6 else ():
        if search is backward and len(y) > 5000:
            continue
        own = Search(oracle, case.k, min(seconds, fit_seconds))
        search(own)
        ends[search.__name__] = own.best.objective
    least = min(ends, key=ends.__getitem__, default=None)
    return {
        **case._asdict(),
        "objective": ours,
        "gap": float(model.result_.relative_gap),
        "swap_optimal": model.result_.swap_optimal,
        "fit_seconds": round(fit_seconds, 3),
        "ends": ends,
        "least": least,
        "lower": 0.0 if least is None else max(0.0, 1.0 - ends[least] / ours),
    }


def data_of(case: Case, folder: Path) -> tuple[Any, Vector]:
    """X and y of a case."""
    if case.name in GENERATED:
        task = "regression" if case.loss in LOSSES["regression"] else "classification"
        return _generated(case.name, case.columns, task)
    return _loaded(folder, case.name, case.columns)


_loaded, _generated = lru_cache(1)(load), lru_cache(1)(generated)


def run(case: Case, folder: Path, seconds: float) -> dict[str, Any]:
    """Compare one case."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    return compared(case, *data_of(case, folder), seconds)


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "| data | columns | loss | k | lam | auto | gap | s | best search | ends | lower by |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    lost = [row for row in rows if row["lower"] > _LOWER]
    for row in sorted(lost, key=lambda row: -row["lower"]):
        yield (
            f"| {row['name']} | {row['columns']} | {row['loss']} | {row['k']} | {row['lam']:g} | {row['objective']:.7g} "
            f"| {row['gap']:.1%} | {row['fit_seconds']} | {row['least']} | {row['ends'][row['least']]:.7g} | {row['lower']:.3%} |"
        )
    yield f"\n{len(rows)} cases; a search ends lower in {len(lost)}; {sum(row['fit_seconds'] for row in rows):.0f} s of auto."


def cases(args: argparse.Namespace) -> list[Case]:
    """The cases that are wanted."""
    found = []
    for name, columns in product(args.names, args.columns):
        losses = LOSSES["regression"] if name in NUMBERS else LOSSES["classification"]
        losses = tuple(FORMULAS) if name in GENERATED else losses
        wanted = [loss for loss in losses if loss in args.losses]
        found += [Case(name, columns, loss, k, lam) for loss, k, lam in product(wanted, args.ks, args.lams)]
    if args.shuffle:  # a run that is ended early has some of all
        np.random.default_rng(0).shuffle(found)
    return [Case(*case) for case in found]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=[*NAMES, *GENERATED], help="data sets and families")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="file of the results")
    parser.add_argument("--table", action="store_true", help="print what the file has")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--shuffle", action="store_true", help="take the cases in random order")
    parser.add_argument("--seconds", type=float, default=4.0, help="processor time of a search, at most")
    parser.add_argument("--columns", nargs="+", default=["raw", "scaled"], choices=["raw", "scaled"])
    parser.add_argument("--losses", nargs="+", default=list(FORMULAS), choices=list(FORMULAS))
    parser.add_argument("--ks", nargs="+", type=int, default=[5, 15, 40])
    parser.add_argument("--lams", nargs="+", type=float, default=[1e-2, 1e-3, 1e-4])
    args = parser.parse_args()
    if not args.table:
        done = recorded(args.out)
        with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool, args.out.open("a") as file:
            futures = [pool.submit(run, case, args.data, args.seconds) for case in cases(args) if case.key not in done]
            for future in as_completed(futures):
                print(json.dumps(future.result()), file=file, flush=True)
    rows = list(recorded(args.out).values())
    print(*table(rows), sep="\n")
    return int(any(row["lower"] > _LOWER for row in rows))


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    sys.exit(main())

"""Does any swap of two features improve the models of `auto`? An audit that shares no code with its search.

    python benchmarks/swap_audit.py --data FOLDER --out audit.jsonl [--jobs 16] [reuters-money-fx leukemia ...]
    python benchmarks/swap_audit.py --out audit.jsonl --table     # what is in the file, as a table

FOLDER holds a folder for each data set. A case is a data set, its columns (raw, or scaled to a standard deviation of one, those of
text after its entries have become 0 and 1), a loss, k and lam; --columns, --losses, --ks and --lams choose among them. The file has
a line for each case, written when it is done; cases that it has are left out, so that a run that was interrupted goes on; --again
repeats them, and the last line counts. --jobs processes with one thread each work side by side.

For a model each of its k features is left out in turn and the others are fitted. From there the objective is minimised along every
other column alone, exactly, and the --top best columns join in turn, all coefficients and the intercept fitted by Newton's method.
Columns that cannot pay, as the objective is lam-strongly convex along them, are not looked at. Exit status 1 if a swap improves a
model by more than 1e-8 of its objective.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from diht import SparseClassifier, SparseRegressor
from diht.datasets import read_table
from peers import ONE_THREAD

TEXT = {
    "reuters-money-fx": "reuters.trn.bz2",
    "rcv1-vw-sample": "rcv1-vw-sample.bz2",
    "a9a": "adult.trn.bz2",
    "imdb": "imdb.train.bz2",
    "news20.binary": "news20.binary.xz",
}
CLASSES = ("colon-cancer", "leukemia", "duke-breast", "arcene", "madelon")
NUMBERS = ("riboflavin", "communities-crime")
NAMES = (*NUMBERS, *CLASSES, *TEXT)
LOSSES = {"classification": ("logistic", "squared_hinge"), "regression": ("squared", "huber")}

_IMPROVES = 1e-8  # of the objective
_STEPS = 100  # of Newton's method
_LINE_STEPS = 60  # of a search along a column
_TOGETHER = 200_000  # entries of X that are looked at together

Vector = np.ndarray


# ---------------------------------------------------------------------------------------------------------------------
# Losses: value, slope, curvature


class Loss(NamedTuple):
    """Formulas of a loss, each of predictions and targets."""

    value: Callable[[Vector, Vector], Vector]
    slope: Callable[[Vector, Vector], Vector]
    curvature: Callable[[Vector, Vector], Vector]


def _sigmoid(z: Vector) -> Vector:
    small = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, small) / (1.0 + small)


FORMULAS = {
    "logistic": Loss(
        lambda u, y: np.logaddexp(0.0, -y * u),
        lambda u, y: -y * _sigmoid(-y * u),
        lambda u, y: _sigmoid(u) * _sigmoid(-u),
    ),
    "squared_hinge": Loss(
        lambda u, y: np.maximum(0.0, 1.0 - y * u) ** 2,
        lambda u, y: -2.0 * y * np.maximum(0.0, 1.0 - y * u),
        lambda u, y: np.where(y * u < 1.0, 2.0, 0.0),
    ),
    "squared": Loss(lambda u, y: (u - y) ** 2, lambda u, y: 2.0 * (u - y), lambda u, y: np.full_like(u, 2.0)),
    "huber": Loss(
        lambda u, y: np.where(np.abs(u - y) <= 1.0, 0.5 * (u - y) ** 2, np.abs(u - y) - 0.5),
        lambda u, y: np.clip(u - y, -1.0, 1.0),
        lambda u, y: np.where(np.abs(u - y) <= 1.0, 1.0, 0.0),
    ),
}


# ---------------------------------------------------------------------------------------------------------------------
# The oracle


@dataclass(frozen=True)
class Model:
    """Coefficients of some columns, the intercept, the objective and the predictions."""

    support: Vector
    w: Vector
    b: float
    objective: float
    u: Vector


@dataclass(frozen=True)
class Oracle:
    """min (1/N) sum_i l(x_i.w + b, y_i) + (lam/2) ||w||^2; a dense X is centred, which only moves b."""

    X: Any
    y: Vector
    loss: Loss
    lam: float

    @classmethod
    def of(cls, X: Any, y: Vector, loss: str, lam: float) -> Oracle:
        """Take X as it is given."""
        return cls(sp.csc_array(X) if sp.issparse(X) else X - X.mean(axis=0), y, FORMULAS[loss], lam)

    def columns(self, features: Vector) -> Vector:
        """Some columns, dense."""
        Z = self.X[:, features]
        return Z.toarray() if sp.issparse(Z) else Z

    def fit(self, support: Vector, w: Vector | None = None, b: float = 0.0, target: float = np.inf) -> Model:
        """Newton's method with backtracking; given up where ten times what it promises does not lead below the target."""
        y, n, lam = self.y, len(self.y), self.lam
        A = np.column_stack([self.columns(support), np.ones(n)])
        ridge = np.append(np.full(len(support), lam), 0.0)
        x = np.zeros(len(support) + 1) if w is None else np.append(w, b)

        def value(x: Vector) -> tuple[float, Vector]:
            u = A @ x
            return float(np.mean(self.loss.value(u, y)) + 0.5 * (ridge * x) @ x), u

        now, u = value(x)
        for step in range(_STEPS):
            gradient = A.T @ self.loss.slope(u, y) / n + ridge * x
            curvature = self.loss.curvature(u, y)
            H = (A.T * curvature) @ A / n + np.diag(ridge)
            H[-1, -1] += 1e-12 * max(1.0, float(np.trace(H)))  # all curvatures may be zero
            direction = -np.linalg.solve(H, gradient)
            promise = -float(gradient @ direction)
            if promise <= 1e-14 * abs(now) or (step > 0 and now - 5.0 * promise > target):
                break
            size = 1.0
            while size > 1e-12:
                new, v = value(x + size * direction)
                if new <= now - 1e-4 * size * promise:
                    break
                size *= 0.5
            else:
                break
            x, now, u = x + size * direction, new, v
        return Model(support, x[:-1], float(x[-1]), now, u)

    def best_along(self, u: Vector, least: float, taken: Vector, top: int) -> tuple[Vector, Vector]:
        """The columns along which alone the objective falls most, and their coefficients there.

        It falls by g^2 / (2 lam) at most, and by the losses of the column's samples, which are not negative. No column is looked at
        whose g^2 / (2 lam) is below `least`, or that cannot be among the best for these reasons.
        """
        n, losses = len(self.y), self.loss.value(u, self.y)
        most = (self.X.T @ self.loss.slope(u, self.y) / n) ** 2 / (2.0 * self.lam)
        most[taken] = 0.0
        most[most <= max(least, 0.0)] = 0.0
        if sp.issparse(self.X):
            filled = sp.csc_array((np.ones_like(self.X.data), self.X.indices, self.X.indptr), shape=self.X.shape)
            most = np.minimum(most, filled.T @ losses / n)
        order = np.argsort(-most, kind="stable")[: np.count_nonzero(most)]
        ends = np.searchsorted(np.cumsum(self._entries(order)), np.arange(1, 1 + 10**6) * _TOGETHER, side="right")
        found, gains, t, start = order[:0], np.zeros(0), np.zeros(0), 0
        while start < len(order) and (len(found) < top or gains[-1] < most[order[start]]):
            end = max(int(ends[np.argmax(ends > start)]), start + 1)
            fall, where = self.along(order[start:end], u)
            found, gains, t = np.append(found, order[start:end]), np.append(gains, -fall), np.append(t, where)
            best = np.argsort(-gains, kind="stable")[:top]
            found, gains, t, start = found[best], gains[best], t[best], end
        return found, t

    def _entries(self, features: Vector) -> Vector:
        return np.diff(self.X.indptr)[features] if sp.issparse(self.X) else np.full(len(features), len(self.y))

    def along(self, features: Vector, u: Vector) -> tuple[Vector, Vector]:
        """What the objective changes by at its least along each of some columns alone, and where.

        Newton's method on the slopes, all columns at once, with a bracket for each that is halved where a step leaves it.
        """
        if sp.issparse(self.X):
            part = self.X[:, features]
            entries, rows, counts = part.data, part.indices, np.diff(part.indptr)
        else:
            part = self.X[:, features]
            entries, rows = part.T.ravel(), np.tile(np.arange(len(u)), len(features))
            counts = np.full(len(features), len(u))
        owner, u, y, n = np.repeat(np.arange(len(features)), counts), u[rows], self.y[rows], len(self.y)

        def total(terms: Vector) -> Vector:
            return np.bincount(owner, terms, minlength=len(features)) / n

        slope = total(self.loss.slope(u, y) * entries)
        far = -slope / self.lam
        low, high = np.minimum(far, 0.0), np.maximum(far, 0.0)
        t = np.zeros(len(features))
        for _ in range(_LINE_STEPS):
            v = u + t[owner] * entries
            slope = total(self.loss.slope(v, y) * entries) + self.lam * t
            low, high = np.where(slope < 0.0, t, low), np.where(slope > 0.0, t, high)
            new = t - slope / (total(self.loss.curvature(v, y) * entries**2) + self.lam)
            new = np.where((new > low) & (new < high), new, 0.5 * (low + high))
            if np.all(np.abs(new - t) <= 1e-9 * np.abs(new)):
                break
            t = new
        change = self.loss.value(u + t[owner] * entries, y) - self.loss.value(u, y)
        return total(change) + 0.5 * self.lam * t**2, t

    def swaps(self, best: Model, top: int) -> Iterator[tuple[int, int, float]]:
        """What leaves, what joins and the objective, for all swaps that are fitted."""
        for out in best.support:
            kept = best.support != out
            less = self.fit(best.support[kept], best.w[kept], best.b)
            joining, t = self.best_along(less.u, less.objective - best.objective, best.support, top)
            target = best.objective * (1.0 - _IMPROVES)
            for new, alone in zip(joining.tolist(), t.tolist(), strict=True):
                swapped = self.fit(np.append(less.support, new), np.append(less.w, alone), less.b, target)
                yield int(out), new, swapped.objective


# ---------------------------------------------------------------------------------------------------------------------
# Cases


class Case(NamedTuple):
    """A problem."""

    name: str
    columns: str
    loss: str
    k: int
    lam: float

    @property
    def key(self) -> str:
        """Its name in the file."""
        return f"{self.name} {self.columns} {self.loss} k={self.k} lam={self.lam:g}"


def load(folder: Path, name: str, columns: str) -> tuple[Any, Vector]:
    """X and y, without columns that are constant or incomplete."""
    if name in TEXT:
        table = read_table(folder / name / TEXT[name])
        X, y = sp.csr_array(table.X, dtype=np.float64), np.where(np.asarray(table.y, dtype=float) > 0, 1.0, -1.0)
        return (_scaled_text(X) if columns == "scaled" else X), y
    with np.load(folder / name / f"{name}.npz", allow_pickle=True) as file:
        X, y = np.asarray(file["X"], dtype=np.float64), np.asarray(file["y"], dtype=np.float64)
    X = X[:, ~np.isnan(X).any(axis=0)]
    X = X[:, X.std(axis=0) > 0.0]
    return (X / X.std(axis=0) if columns == "scaled" else X), y


def _scaled_text(X: Any) -> Any:
    """Entries to 0 and 1, columns divided by their standard deviation, constant ones dropped."""
    X = sp.csc_array((X > 0).astype(np.float64))
    mean = np.asarray(X.mean(axis=0)).ravel()
    deviation = np.sqrt(mean - mean**2)
    used = deviation > 1e-7
    return sp.csr_array(X[:, used] @ sp.diags_array(1.0 / deviation[used]))


def audit(case: Case, X: Any, y: Vector, top: int) -> dict[str, Any]:
    """Fit a model, and look at its swaps."""
    make = SparseRegressor if case.name in NUMBERS else SparseClassifier
    start = process_time()
    model = make(case.k, case.lam, loss=case.loss, standardize=False, n_jobs=1).fit(X, y)
    fitted = process_time()
    oracle = Oracle.of(X, y, case.loss, case.lam)
    best = oracle.fit(model.support_)
    known = min(
        best.objective, float(model.result_.objective)
    )  # where rounding keeps the oracle from the optimum, the model's
    tried, improving, (out, new, least) = 0, 0, (-1, -1, known)
    for leaves, joins, objective in oracle.swaps(best, top):
        tried += 1
        improving += objective < known * (1.0 - _IMPROVES)
        if objective < least:
            out, new, least = leaves, joins, objective
    return {
        **case._asdict(),
        "objective": float(model.result_.objective),
        "refitted": best.objective,
        "gap": float(model.result_.relative_gap),
        "status": str(model.result_.status),
        "swap_optimal": model.result_.swap_optimal,
        "tried": tried,
        "improving": improving,
        "swap": [out, new] if improving else None,
        "swapped": least,
        "gain": (known - least) / known if improving else 0.0,
        "fit_seconds": round(fitted - start, 3),
        "audit_seconds": round(process_time() - fitted, 1),
    }


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "| data | columns | loss | k | lam | objective | gap | swap-optimal | tried | improving | best swap | gain | fit, s |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        swap = "" if row["swap"] is None else "{} for {}".format(*row["swap"])
        yield (
            f"| {row['name']} | {row['columns']} | {row['loss']} | {row['k']} | {row['lam']:g} | {row['objective']:.7g} "
            f"| {row['gap']:.1%} | {row['swap_optimal']} | {row['tried']} | {row['improving']} "
            f"| {swap} | {row['gain']:.2%} | {row['fit_seconds']} |"
        )
    bad = [row for row in rows if row["improving"]]
    yield f"\n{len(rows)} models; {len(bad)} that a swap improves, by up to {max((row['gain'] for row in bad), default=0.0):.2%}."


def chosen(args: argparse.Namespace, done: Iterable[str]) -> list[Case]:
    """The cases that are wanted and not done, those of a data set together, models of many features first."""
    found = []
    for name, columns in product(args.names, args.columns):
        losses = LOSSES["regression" if name in NUMBERS else "classification"]
        wanted = [loss for loss in losses if loss in args.losses]
        found += [
            Case(name, columns, loss, k, lam) for k, loss, lam in product(sorted(args.ks)[::-1], wanted, args.lams)
        ]
    return [case for case in found if args.again or case.key not in done]


def run(case: Case, folder: Path, top: int) -> dict[str, Any]:
    """Audit a case, with the data of the last one if they are the same."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    return audit(case, *_loaded(folder, case.name, case.columns), top)


_loaded = lru_cache(1)(load)


def recorded(file: Path) -> dict[str, dict[str, Any]]:
    """What a file has, by the names of cases."""
    lines = file.read_text().splitlines() if file.exists() else []
    rows = [json.loads(line) for line in lines]
    return {Case(*(row[field] for field in Case._fields)).key: row for row in rows}


def told(key: str, row: dict[str, Any]) -> str:
    """A case in a line."""
    swap = f", {row['swap']} to {row['swapped']:.7f}" if row["swap"] else ""
    found = f"{row['objective']:.7f}, {row['improving']} of {row['tried']} swaps improve{swap}"
    return f"{key}: {found}, {row['fit_seconds']} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES, help="data sets")
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help="file of the results")
    parser.add_argument("--table", action="store_true", help="print what the file has")
    parser.add_argument("--again", action="store_true", help="repeat cases that the file has")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--columns", nargs="+", default=["raw", "scaled"], choices=["raw", "scaled"])
    parser.add_argument("--losses", nargs="+", default=list(FORMULAS), choices=list(FORMULAS))
    parser.add_argument("--ks", nargs="+", type=int, default=[5, 15, 40])
    parser.add_argument("--lams", nargs="+", type=float, default=[1e-2, 1e-3, 1e-4])
    parser.add_argument("--top", type=int, default=100, help="columns that join for each that leaves")
    args = parser.parse_args()
    if not args.table:
        cases = chosen(args, recorded(args.out))
        with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool, args.out.open("a") as file:
            case_of = {pool.submit(run, case, args.data, args.top): case for case in cases}
            for future in as_completed(case_of):
                row = future.result()
                print(json.dumps(row), file=file, flush=True)
                print(told(case_of[future].key, row), flush=True)
    rows = recorded(args.out)
    print(*table(list(rows.values())), sep="\n")
    return int(any(row["improving"] for row in rows.values()))


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    sys.exit(main())

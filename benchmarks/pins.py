"""Has anything become worse? Objectives and lower bounds of 200 small problems, beside those in pins.json.

    python benchmarks/pins.py                # exit status 1 where something got worse
    python benchmarks/pins.py --benchmark    # the tasks of regression.py besides
    python benchmarks/pins.py --update       # make what is computed now the pins

A problem follows from its number. Worse is an objective that is higher by more than 1e-9 of it, a lower bound that is lower by more
than `tol` of the objective, a model with more than k features, another k chosen by cross-validation, and a proof of optimality
that is lost. Sums in another order change last digits only: what rounding decides is not among the problems.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from diht import (
    Problem,
    SparseClassifier,
    SparseClassifierCV,
    SparseRegressor,
    SparseRegressorCV,
    certify,
    solve,
    sparse_path,
)
from diht.constraints.groups import constrained
from diht.datasets import atomic_write
from diht.losses import ALL_LOSSES
from diht.result import Status
from instances import autoregressive
from regression import tasks

PINS = Path(__file__).parent / "pins.json"
COUNT, _SEVERAL = 200, 14  # problems; those at the end that have several classes
_WORSE = 1e-9  # of an objective
_STEPS = 100  # of methods that end at no optimum
_DEFAULT_TOL = 1e-4  # of the tasks of regression.py

REGRESSION = [name for name, kind in ALL_LOSSES.items() if kind().task == "regression"]
LOSSES = ("squared", "huber", "poisson", "logistic", "hinge", "smoothed_hinge", "squared_hinge")
CONSTRAINTS = "plain", "keep", "plain", "groups", "sign", "keep groups sign"
ITERATIVE = "diht", "sdiht", "iht", "htp", "svrght"
# The numbers of losses, constraints and doors have no common factor, so that any two meet within the first 91 problems.
DOORS = "auto", "exact", "relaxed", *ITERATIVE, "solve", "branch", "path", "cv", "certify"
STORAGE: tuple[Callable[[np.ndarray], Any], ...] = np.ascontiguousarray, np.asfortranarray, sp.csr_array, sp.csc_array
# Other seeds, where the number itself gives a problem that takes long.
_SEEDS = {14: 1014, 74: 1074, 197: 3197, 198: 1198, 199: 1199}

Pin = dict[str, Any]  # name, objective, bound, size, k, status, tol
Part = dict[str, Any]  # seconds, pins


@dataclass(frozen=True, eq=False)
class Case:
    """A problem as a user states it, and the door by which it enters."""

    name: str
    door: str
    X: Any
    y: np.ndarray
    k: int
    lam: float
    settings: dict[str, Any]  # loss, fit_intercept, standardize, tol
    constraint: dict[str, Any]  # keep, groups, sign
    data: dict[str, Any]  # sample_weight, offset

    @property
    def ks(self) -> list[int]:
        """Numbers of features of a path."""
        return sorted({1, (self.k + 1) // 2, self.k})

    @property
    def problem(self) -> Problem:
        """The problem without its scale."""
        constraint = constrained(self.k, self.X.shape[1], **self.constraint)
        loss, intercept = self.settings["loss"], self.settings["fit_intercept"]
        return Problem(self.X, self.y, loss, constraint, self.lam, fit_intercept=intercept, **self.data)

    def pin(self, support: np.ndarray, k: int, objective: float, bound: float, status: str, name: str = "") -> Pin:
        """What is written down; a model's size is the number of its features, or groups, besides those to keep."""
        unit = self.constraint.get("groups", np.arange(self.X.shape[1]))
        size = len(np.setdiff1d(unit[support], unit[self.constraint.get("keep", [])]))
        return pin(self.name + name, size, k, objective, bound, status, self.settings["tol"])


def pin(name: str, size: int, k: int, objective: float, bound: float, status: str, tol: float) -> Pin:
    numbers = {"objective": float(objective), "bound": float(bound), "size": int(size), "k": int(k)}
    return {"name": name, **numbers, "status": str(status), "tol": tol}


def figures(result: Any) -> tuple[float, float, str]:
    return result.objective, result.lower_bound, result.status


# ---------------------------------------------------------------------------------------------------------------------
# Problems


def draw(number: int, loss: str | None = None) -> Case:
    """The problem of a number; with that loss, where one is given."""
    seed = _SEEDS.get(number, number)
    rng = np.random.default_rng(seed)
    several = loss is None and number >= COUNT - _SEVERAL
    loss = loss or ("multinomial" if several else LOSSES[number % len(LOSSES)])
    kind = "plain" if several else CONSTRAINTS[number % len(CONSTRAINTS)]
    door = ("auto", "path", "cv")[number % 3] if several else DOORS[number % len(DOORS)]
    n, d = int(rng.integers(30, 151)), int(rng.integers(5, 61))
    X, y, _ = autoregressive(n, d, min(d, 6), rng.choice([0.0, 0.5, 0.9]), rng.choice([1.0, 5.0]), seed)
    store, dtype = rng.integers(len(STORAGE)), rng.choice([np.float64, np.float64, np.float32])
    X = X + rng.standard_normal(d) if store < 2 else X * (rng.random((n, d)) < 0.4)
    constraint = _constraint(rng, kind, d)
    n_units = len(np.unique(constraint.get("groups", np.arange(d)))) - len(constraint.get("keep", []))
    data = {"sample_weight": rng.uniform(0.1, 2.0, n)} if rng.random() < 0.4 else {}
    if loss in REGRESSION and rng.random() < 0.4:
        data["offset"] = 0.5 * rng.standard_normal(n)
    return Case(
        name=f"{number:03} {loss}, {kind}, {door}",
        door=door,
        X=STORAGE[store](X.astype(dtype)),
        y=_targets(rng, loss, y),
        k=min(int(rng.integers(1, 8)), n_units),
        lam=float(10.0 ** rng.uniform(-2.0, 1.0)),
        settings={
            "loss": loss,
            "fit_intercept": bool(rng.random() < 0.6),
            "standardize": bool(rng.random() < 0.4 and "groups" not in constraint),
            "tol": float(rng.choice([1e-3, 1e-4, 1e-6])),
        },
        constraint=constraint,
        data=data,
    )


def _constraint(rng: np.random.Generator, kind: str, d: int) -> dict[str, np.ndarray]:
    drawn = {
        "keep": rng.choice(d, 1 + (d > 20), replace=False),
        "groups": rng.permutation(np.arange(d) % (d // 2 + 1)),
        "sign": rng.choice([-1, 0, 1, 1], d),
    }
    return {name: value for name, value in drawn.items() if name in kind.split()}


def _targets(rng: np.random.Generator, loss: str, y: np.ndarray) -> np.ndarray:
    """Targets of a loss, from a signal with noise."""
    y = y / y.std()
    if loss in ("gamma", "tweedie"):
        return np.exp(np.clip(y, -3.0, 3.0)) * (rng.random(len(y)) < (0.8 if loss == "tweedie" else 1.0))
    if loss in ("poisson", "negative_binomial"):
        return rng.poisson(np.exp(np.clip(y, -3.0, 3.0))).astype(np.float64)
    if loss == "huber":
        return y + 5.0 * rng.standard_normal(len(y)) * (rng.random(len(y)) < 0.1)
    if loss == "multinomial":
        return np.digitize(y, np.quantile(y, [0.3, 0.6, 0.8][: rng.integers(2, 4)]))
    if loss in ("squared", "quantile"):
        return y
    return np.where(y > np.quantile(y, rng.choice([0.3, 0.5])), 1.0, -1.0)


# ---------------------------------------------------------------------------------------------------------------------
# Doors


def solved(case: Case) -> list[Pin]:
    """Solve a problem, and write down what it gave: one pin, of a path one for each k."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return list(_BY_DOOR.get(case.door, _fitted)(case))


def _fitted(case: Case) -> Iterator[Pin]:
    make = SparseRegressor if case.settings["loss"] in REGRESSION else SparseClassifier
    method = {"exact": True} if case.door == "exact" else {"solver": case.door}
    method |= {"max_iter": _STEPS} if case.door in ITERATIVE else {}
    model = make(case.k, case.lam, **case.settings, **case.constraint, **method).fit(case.X, case.y, **case.data)
    yield case.pin(model.support_, case.k, *figures(model.result_))


def _cross_validated(case: Case) -> Iterator[Pin]:
    make = SparseRegressorCV if case.settings["loss"] in REGRESSION else SparseClassifierCV
    model = make(case.ks, case.lam, criterion="score", cv=3, **case.settings, **case.constraint)
    model.fit(case.X, case.y, **case.data)
    yield case.pin(model.support_, model.best_k_, *figures(model.result_))


def _path(case: Case) -> Iterator[Pin]:
    settings = case.settings | case.constraint | case.data
    for point in sparse_path(case.X, case.y, ks=case.ks, lams=case.lam, **settings):
        yield case.pin(point.support, point.k, *figures(point.result), f", k = {point.k}")


def _solved(case: Case) -> Iterator[Pin]:
    result = solve(case.problem, "auto" if case.door == "solve" else case.door, tol=case.settings["tol"])
    yield case.pin(result.support, case.k, *figures(result))


def _certified(case: Case) -> Iterator[Pin]:
    """Certify the model of one step of IHT, by a tree where there is an intercept; a better model that is found is written down."""
    problem, tol = case.problem, case.settings["tol"]
    given = solve(problem, "iht", max_iter=1)
    certificate = certify(problem, given.w, given.intercept, tol=tol, exact=case.settings["fit_intercept"])
    model = certificate.better or certificate
    status = Status.OPTIMAL if certificate.closes(tol) else Status.STALLED
    yield case.pin(model.support, case.k, model.objective, certificate.lower_bound, status)


_BY_DOOR: dict[str, Callable[[Case], Iterator[Pin]]] = {
    "cv": _cross_validated,
    "path": _path,
    "solve": _solved,
    "branch": _solved,
    "certify": _certified,
}


def benchmark() -> Iterator[Pin]:
    """The results of regression.py's tasks."""
    for name, _, work in tasks():
        results = work().results
        for k, result in results.items():
            point = f", k = {k}" if len(results) > 1 else ""
            yield pin(name + point, len(result.support), k, *figures(result), _DEFAULT_TOL)


# ---------------------------------------------------------------------------------------------------------------------
# Then and now


def computed(pins: Iterable[Pin]) -> Part:
    """Compute pins, and the processor time that takes."""
    start = process_time()
    found = list(pins)
    return {"seconds": round(process_time() - start, 1), "pins": found}


def violations(now: Pin, before: Pin) -> list[str]:
    """Say what is worse."""
    found, objective = [], before["objective"]
    if now["k"] != before["k"]:
        return [f"k = {now['k']} chosen, {before['k']} before"]
    if not now["objective"] <= objective + _WORSE * abs(objective):
        found.append(f"objective {now['objective']!r}, {objective!r} before")
    if not now["bound"] >= before["bound"] - before["tol"] * abs(objective):
        found.append(f"lower bound {now['bound']!r}, {before['bound']!r} before")
    if now["size"] > before["k"]:
        found.append(f"{now['size']} features with k = {before['k']}")
    if before["status"] == Status.OPTIMAL != now["status"]:
        found.append(f"{now['status']}, {before['status']} before")
    return found


def compared(now: Part, before: Part) -> tuple[list[str], str]:
    """Return a line for each violation, and one that sums up; what is better now would be a violation before."""
    known, found = ({pin["name"]: pin for pin in part["pins"]} for part in (before, now))
    worse = [f"{name}: not computed" for name in known if name not in found]
    worse += [f"{name}: not among the pins" for name in found if name not in known]
    both = [(found[name], known[name]) for name in known if name in found]
    worse += [f"{new['name']}: {line}" for new, old in both for line in violations(new, old)]
    better = sum(bool(violations(old, new)) and not violations(new, old) for new, old in both)
    seconds = f"{now['seconds']} s of processor time, {before['seconds']} s before"
    return worse, f"{len(both)} pins: {len(worse)} worse, {better} better; {seconds}"


def write(parts: dict[str, Part]) -> None:
    """Write the file, one pin a line."""
    texts = []
    for name, part in parts.items():
        lines = ",\n".join(json.dumps(pin) for pin in part["pins"])
        texts.append(f'"{name}": {{"seconds": {part["seconds"]}, "pins": [\n{lines}\n]}}')
    with atomic_write(PINS) as file:
        file.write(("{\n" + ",\n".join(texts) + "\n}\n").encode())


def main() -> int:
    """Compute and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="make what is computed now the pins")
    parser.add_argument("--benchmark", action="store_true", help="the tasks of regression.py besides")
    args = parser.parse_args()
    now = {"problems": computed(pin for number in range(COUNT) for pin in solved(draw(number)))}
    if args.benchmark:
        now["benchmark"] = computed(benchmark())
    before = json.loads(PINS.read_text()) if PINS.exists() else {}
    if args.update:
        write(before | now)
        return 0
    worse = 0
    for name, part in now.items():
        lines, summary = compared(part, before[name])
        print(*lines, f"{name}: {summary}", sep="\n")
        worse += len(lines)
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main())

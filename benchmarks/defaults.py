"""The defaults of the estimators that choose k, beside other grids, rules and scales: scores on samples not seen, and sizes.

    python benchmarks/defaults.py --data FOLDER [breast-cancer diabetes a9a ...] > defaults.md

The samples for training of each fold are cross-validated over the largest grids. What a rule would choose from a part of a grid
follows from these scores; the models are those of the path of all samples for training, the gaps those of fits to these. Seconds
are those of the processor, for a fit with the settings of a row to the first fold. FOLDER holds `a9a/adult.trn.bz2` and
`NAME/NAME.npz` of the other data sets; breast-cancer and diabetes (with squares and products) come with scikit-learn.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from time import process_time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: seconds of the processor are then those of a fit

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import PolynomialFeatures

from diht import SparseClassifier, SparseClassifierCV, SparseRegressor, SparseRegressorCV
from diht.datasets import read_table
from diht.estimators.path import default_ks
from measure import machine

_NAMES = "breast-cancer", "diabetes", "communities-crime", "a9a", "colon-cancer", "leukemia", "riboflavin"
_LAMS = 1e-4, 1e-3, 1e-2, 1e-1, 1.0
_A9A = 3000  # samples drawn from its 32,561


@dataclass(frozen=True)
class Settings:
    """What an estimator that chooses k is told."""

    standardize: bool
    long: bool  # whether k goes to 50, whatever the number of samples
    lams: Sequence[float]
    criterion: str

    def ks(self, n: int, d: int) -> list[int]:
        """All k to try."""
        return sorted({round(k) for k in np.geomspace(1, min(d, 50), 20)}) if self.long else default_ks(min(d, n // 10))


_SHORT = _LAMS[1:4]
ROWS = {
    "k to 50, lam = 0.001, columns as they are, best score": Settings(False, True, [1e-3], "score"),
    "**defaults**": Settings(True, False, _SHORT, "1se"),
    "defaults, best score": Settings(True, False, _SHORT, "score"),
    "defaults, lam = 0.001": Settings(True, False, [1e-3], "1se"),
    "defaults, lam = 0.0001, 0.001, 0.01": Settings(True, False, _LAMS[:3], "1se"),
    "defaults, lam = 0.01, 0.1, 1": Settings(True, False, _LAMS[2:], "1se"),
    "defaults, five lam from 0.0001 to 1": Settings(True, False, _LAMS, "1se"),
}


def samples(name: str, folder: Path) -> tuple[Any, np.ndarray]:
    """Columns without gaps, and the targets."""
    if name == "breast-cancer":
        return load_breast_cancer(return_X_y=True)
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True, scaled=False)
        return PolynomialFeatures(2, include_bias=False).fit_transform(X), y
    if name == "a9a":
        table = read_table(folder / name / "adult.trn.bz2")
        drawn = np.random.default_rng(0).choice(table.X.shape[0], _A9A, replace=False)
        return table.X.tocsr()[drawn], np.asarray(table.y)[drawn]
    with np.load(folder / name / f"{name}.npz") as file:
        X, y = file["X"].astype(float), file["y"]
    return X[:, np.all(np.isfinite(X), axis=0)], y


@dataclass
class Validated:
    """Scores of the whole grid on the folds of the samples for training, and on those for testing."""

    grid: list[tuple[int, float]]
    scores: np.ndarray  # by fold and point of the grid
    test: np.ndarray
    sizes: np.ndarray
    gap: Callable[[int, float], float]  # of the last fit, for a k and lam

    def chosen(self, estimator: Any, lams: Sequence[float]) -> tuple[float, int, float]:
        """Score, number of features and gap of the model that the estimator's rule takes from a part of the grid."""
        part = [i for i, (_, lam) in enumerate(self.grid) if lam in lams]
        estimator._choose_by_score([self.grid[i] for i in part], self.scores[:, part])
        best = part[estimator.best_index_]
        return self.test[best], self.sizes[best], self.gap(*self.grid[best])


def validated(estimator: Any, X: Any, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> Validated:
    """Follow the paths of all folds, and that of all samples for training."""
    model = estimator.fit(X[train], y[train])
    scores = [model.cv_results_[f"split{i}_test_score"] for i in range(model.n_splits_)]
    points, truth = model.path_.points, y[test]
    predicted = [X[test] @ point.coef + point.intercept for point in points]
    if hasattr(model, "classes_"):
        values = [np.mean((u > 0) == (truth == model.classes_[1])) for u in predicted]
    else:
        values = [1.0 - np.sum((truth - u) ** 2) / np.sum((truth - truth.mean()) ** 2) for u in predicted]
    return Validated(
        [(point.k, point.lam) for point in points],
        np.array(scores),
        np.array(values),
        np.array([len(point.support) for point in points]),
        cache(partial(gap_of, estimator, X[train], y[train])),
    )


def gap_of(estimator: Any, X: Any, y: np.ndarray, k: int, lam: float) -> float:
    """Relative gap of the fit that an estimator makes for the k and lam that it has chosen."""
    make = SparseClassifier if hasattr(estimator, "classes_") else SparseRegressor
    return make(k=k, lam=lam, standardize=estimator.standardize).fit(X, y).result_.relative_gap


def seconds(estimator: Any, X: Any, y: np.ndarray) -> float:
    """Processor time of a fit."""
    start = process_time()
    estimator.fit(X, y)
    return process_time() - start


def table(name: str, folder: Path) -> None:
    """Print a data set's table."""
    X, y = samples(name, folder)
    classes = len(np.unique(y)) == 2
    splits = (StratifiedKFold if classes else KFold)(5, shuffle=True, random_state=0)
    make = SparseClassifierCV if classes else SparseRegressorCV
    folds = list(splits.split(X, y))
    n, d = len(folds[0][0]), X.shape[1]
    kinds = {label: (row.standardize, row.long) for label, row in ROWS.items()}
    whole = {}
    for kind in set(kinds.values()):
        rows = [row for label, row in ROWS.items() if kinds[label] == kind]
        lams = sorted({lam for row in rows for lam in row.lams})
        whole[kind] = make(ks=rows[0].ks(n, d), lams=lams, standardize=rows[0].standardize)
    found: dict[str, list[tuple[float, int, float]]] = {label: [] for label in ROWS}
    for i, (train, test) in enumerate(folds):
        points = {kind: validated(clone(model), X, y, train, test) for kind, model in whole.items()}
        for label, row in ROWS.items():
            rule = make(criterion=row.criterion)
            found[label].append(points[kinds[label]].chosen(rule, row.lams))
        print(f"{name}: fold {i + 1} of {len(folds)}", file=sys.stderr, flush=True)
    train = folds[0][0]
    print(f"## {name}: {X.shape[0]:,} samples, {d:,} features; {len(folds)} folds\n")
    print(
        f"| settings | test {'accuracy' if classes else 'R^2'} | features | median gap | seconds |\n|---|---|---|---|---|"
    )
    for label, row in ROWS.items():
        score, size, gap = (np.array(column) for column in zip(*found[label], strict=True))
        model = make(ks=row.ks(n, d), lams=row.lams, criterion=row.criterion, standardize=row.standardize)
        spent = seconds(model, X[train], y[train])
        print(
            f"| {label} | {score.mean():.3f} | {size.mean():.1f} | {100 * np.median(gap):.2g}% | {spent:.1f} |",
            flush=True,
        )
    print(flush=True)


def main() -> None:
    """Print a table for each data set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=_NAMES)
    parser.add_argument("--data", type=Path, default=os.environ.get("DIHT_DATA"), help="folder of the real data sets")
    arguments = parser.parse_args()
    print(machine(), end="\n\n")
    for name in arguments.names:
        table(name, Path(arguments.data or "."))


if __name__ == "__main__":
    main()

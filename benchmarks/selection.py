"""Features chosen by cross-validation, beside the L1 penalty with cross-validation: how many, and how good on samples not seen.

    python benchmarks/selection.py --data FOLDER [imdb leukemia riboflavin] > selection.md

FOLDER holds `imdb/imdb.train.bz2` and `imdb/imdb.test.bz2`, `leukemia/leukemia.npz` and `riboflavin/riboflavin.npz`.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LassoCV, LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold
from sklearn.preprocessing import StandardScaler

from diht import SparseClassifier, SparseClassifierCV, SparseRegressorCV
from diht.datasets import read_table
from measure import machine

_L1: dict[str, Any] = {"solver": "liblinear", "l1_ratio": 1.0}
_L1_CV: dict[str, Any] = {
    "solver": "liblinear",
    "l1_ratios": (1.0,),
    "scoring": "accuracy",
    "use_legacy_attributes": False,
}
_MANY = {"ks": (10, 20, 50, 100, 200, 500, 1000), "lams": (2e-4, 2e-5)}
_FEW = {"ks": (1, 2, 3, 5, 8, 12, 20), "lams": (0.01, 0.1, 1.0)}
_HALVINGS = 12  # of the interval for C


def main() -> None:
    """Print a table for each data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["imdb", "leukemia", "riboflavin"])
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    print(machine(), end="\n\n")
    for name in arguments.names:
        (_text if name == "imdb" else _genes)(arguments.data / name, name)


# ----------------------------------------------------------------------------------------------------------------- text


def _text(folder: Path, name: str) -> None:
    train, test = read_table(folder / f"{name}.train.bz2"), read_table(folder / f"{name}.test.bz2")
    d = max(train.X.shape[1], test.X.shape[1])
    for table in (train, test):
        table.X.resize((table.X.shape[0], d))
    (X, y), (Z, z) = (train.X, train.y > 0), (test.X, test.y > 0)
    print(f"## {name}: {X.shape[0]:,} + {Z.shape[0]:,} samples, {d:,} features\n")
    start = perf_counter()
    ours = SparseClassifierCV(**_MANY, cv=3, criterion="score", standardize=False, n_jobs=2).fit(X, y)
    seconds = perf_counter() - start
    start = perf_counter()
    theirs = LogisticRegressionCV(Cs=8, cv=3, n_jobs=2, **_L1_CV)
    theirs.fit(X, y)
    print("| chosen by 3-fold cross-validation | features | test accuracy | seconds |\n|---|---|---|---|")
    print(f"| diht | {len(ours.support_)} | {ours.score(Z, z):.4f} | {seconds:.0f} |")
    print(f"| L1 | {_size(theirs)} | {theirs.score(Z, z):.4f} | {perf_counter() - start:.0f} |\n")
    print("At the same number of features (lam of the best at each k by cross-validation; C by bisection):\n")
    print("| features | diht | L1 | L1, refitted with diht's ridge |\n|---|---|---|---|")
    for k in _MANY["ks"]:
        lam = _best_lam(ours, k)
        model = SparseClassifier(k=k, lam=lam, standardize=False).fit(X, y)
        lasso = _l1_with(X, y, k)
        chosen = np.flatnonzero(lasso.coef_[0])
        refitted = SparseClassifier(k=len(chosen), lam=lam, standardize=False).fit(X[:, chosen], y)
        scores = model.score(Z, z), lasso.score(Z, z), refitted.score(Z[:, chosen], z)
        print(f"| {k} ({len(chosen)}) | " + " | ".join(f"{score:.4f}" for score in scores) + " |", flush=True)
    print()


def _best_lam(model: SparseClassifierCV, k: int) -> float:
    """The ridge with the best score in cross-validation for this k."""
    scores = {
        lam: score
        for size, lam, score in zip(
            model.cv_results_["param_k"],
            model.cv_results_["param_lam"],
            model.cv_results_["mean_test_score"],
            strict=True,
        )
        if size == k
    }
    return float(max(scores, key=lambda lam: scores[lam]))


def _l1_with(X: Any, y: np.ndarray, k: int, classes: bool = True) -> Any:
    """The L1 model with the most features up to k, nearly; its penalty by bisection."""
    low, high, best = -4.0, 3.0, None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        model = LogisticRegression(C=10**middle, **_L1) if classes else Lasso(alpha=10**-middle)
        model.fit(X, y)
        if _size(model) <= k:
            low, best = middle, model
        else:
            high = middle
        if best is not None and _size(best) >= 0.98 * k:
            break
    assert best is not None
    return best


def _size(model: Any) -> int:
    return int(np.count_nonzero(model.coef_))


# ---------------------------------------------------------------------------------------------------------------- genes


def _genes(folder: Path, name: str) -> None:
    with np.load(folder / f"{name}.npz") as file:
        X, y = file["X"].astype(float), file["y"].astype(float)
    classes = len(np.unique(y)) == 2
    sparse = SparseClassifierCV if classes else SparseRegressorCV
    chosen = {
        "diht": sparse(**_FEW, cv=5, criterion="score", standardize=False),
        "diht, one standard error": sparse(**_FEW, cv=5, criterion="1se", standardize=False),
        "L1": LogisticRegressionCV(Cs=10, cv=5, **_L1_CV) if classes else LassoCV(cv=5),
    }
    outcomes: dict[str, list[tuple[int, np.ndarray, float]]] = {}
    splits = (RepeatedStratifiedKFold if classes else RepeatedKFold)(n_splits=5, n_repeats=3, random_state=0)
    truths = []
    for train, test in splits.split(X, y):
        scaler = StandardScaler().fit(X[train])
        A, B = scaler.transform(X[train]), scaler.transform(X[test])
        truths.append(y[test])
        for label, model in chosen.items():
            start = perf_counter()
            model.fit(A, y[train])
            outcomes.setdefault(label, []).append((_size(model), model.predict(B), perf_counter() - start))
        lasso = _l1_with(A, y[train], outcomes["diht"][-1][0], classes)
        outcomes.setdefault("L1, as many features as diht", []).append((_size(lasso), lasso.predict(B), np.nan))
    score = "test accuracy" if classes else "test R^2"
    print(
        f"## {name}: {X.shape[0]} samples, {X.shape[1]:,} features; 3 times 5 folds, each with 5 of its own to choose by\n"
    )
    print(f"| method | features, mean | range | {score} | seconds a fit |\n|---|---|---|---|---|")
    for label, rows in outcomes.items():
        sizes, predictions, seconds = zip(*rows, strict=True)
        value = _score(np.concatenate(predictions), np.concatenate(truths), classes)
        taken = "" if np.isnan(seconds).any() else f"{np.mean(seconds):.1f}"
        print(f"| {label} | {np.mean(sizes):.1f} | {min(sizes)} to {max(sizes)} | {value:.3f} | {taken} |")
    print(flush=True)


def _score(predicted: np.ndarray, true: np.ndarray, classes: bool) -> float:
    """Share of right answers, or the coefficient of determination, over all samples held out."""
    if classes:
        return float(np.mean(predicted == true))
    return 1.0 - float(np.sum((true - predicted) ** 2) / np.sum((true - true.mean()) ** 2))


if __name__ == "__main__":
    main()

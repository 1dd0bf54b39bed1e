"""Cross-validation beside abess's: processor seconds of a model, and scores on samples that had no part in the choice.

    python benchmarks/cv.py [--data FOLDER] [--repeats 3] > cv.md

Five folds, ten k from 1 to 30, two lam, one thread; medians of the repeats, kernels warm. "Folds" choose k and lam by the best
mean score (100 models), "fit" has the path of all samples and the last fit with its proof besides (121). abess fits 100 models in
its folds and 20 to all samples. Test scores (accuracy, R^2) are means over five other folds, each with five of its own to choose
by. Without the folder of the real data sets the texts are left out, without abess its columns.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import KFold, StratifiedKFold

from diht import SparseClassifierCV, SparseRegressorCV
from diht.datasets import read_table
from measure import machine

KS = [1, 2, 3, 4, 6, 9, 13, 18, 24, 30]


class Case(NamedTuple):
    """Samples and settings."""

    name: str
    X: Any
    y: np.ndarray
    classes: bool
    lams: list[float]
    standardize: bool


def blocks(n: int = 500, d: int = 1000, size: int = 10, rho: float = 0.7, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Draw columns in blocks, correlated by rho within each; ten of them matter, and the signal has twice the noise's variance."""
    rng = np.random.default_rng(seed)
    common = np.repeat(rng.standard_normal((n, d // size)), size, axis=1)
    X = np.sqrt(rho) * common + np.sqrt(1 - rho) * rng.standard_normal((n, d))
    w = np.zeros(d)
    w[:: d // 10] = rng.choice([-1.0, 1.0], 10)
    signal = X @ w
    return X, signal + signal.std() / np.sqrt(2.0) * rng.standard_normal(n)


def short_texts(folder: Path, n: int = 5000, longest: int = 15) -> tuple[Any, np.ndarray]:
    """Return some words, at most so many, of each document, and leave out words of fewer than three."""
    table = read_table(folder / "reuters-money-fx" / "reuters.trn.bz2")
    X, rng = sp.csr_array(table.X)[:n], np.random.default_rng(0)
    rows = [X.indices[a:b] for a, b in zip(X.indptr, X.indptr[1:], strict=False)]
    rows = [rng.choice(row, longest, replace=False) if len(row) > longest else row for row in rows]
    of = np.repeat(np.arange(n), list(map(len, rows)))
    words = sp.csc_array((np.ones(len(of)), (of, np.concatenate(rows))), shape=X.shape)
    return sp.csr_array(words[:, np.flatnonzero(np.diff(words.indptr) >= 3)]), table.y[:n]


def cases(data: Path | None) -> Iterator[Case]:
    """Return the samples, with the two lam and whether columns are standardised."""
    yield Case("breast cancer", *load_breast_cancer(return_X_y=True), True, [1e-3, 1e-2], True)
    yield Case("blocks", *blocks(), False, [1e-3, 1e-2], True)
    if data is not None:
        yield Case("short texts", *short_texts(data), True, [1e-4, 1e-3], False)


def timed(work: Callable[[], Any], repeats: int) -> float:
    """Return the median of the processor seconds."""
    seconds = []
    for _ in range(repeats):
        before = process_time()
        work()
        seconds.append(process_time() - before)
    return median(seconds)


def ours(case: Case, X: Any, y: np.ndarray, refit: bool = True) -> Any:
    """Choose and fit."""
    make = SparseClassifierCV if case.classes else SparseRegressorCV
    settings = {"cv": 5, "criterion": "score", "standardize": case.standardize, "n_jobs": 1}
    return make(ks=KS, lams=case.lams, refit=refit, **settings).fit(X, y)


def abess(case: Case, X: Any, y: np.ndarray) -> Any:
    """Do so by abess, which standardises by itself."""
    from abess import LinearRegression, LogisticRegression

    make = LogisticRegression if case.classes else LinearRegression
    y = (y == y.max()).astype(int) if case.classes else y
    return make(support_size=KS, alpha=case.lams, cv=5, cv_score="test_loss").fit(_plain(X), y)


def _plain(X: Any) -> Any:
    return sp.coo_matrix(X) if sp.issparse(X) else X


def tested(case: Case, fit: Callable[..., Any]) -> str:
    """Mean test score and number of features over five folds."""
    splits = (StratifiedKFold if case.classes else KFold)(5, shuffle=True, random_state=0)
    scores, sizes = [], []
    for train, test in splits.split(case.X, case.y):
        model = fit(case, case.X[train], case.y[train])
        u, y = case.X[test] @ np.ravel(model.coef_) + float(np.ravel(model.intercept_)[0]), case.y[test]
        if case.classes:
            scores.append(float(np.mean((u > 0) == (y == case.y.max()))))
        else:
            scores.append(1.0 - float(np.sum((y - u) ** 2) / np.sum((y - y.mean()) ** 2)))
        sizes.append(np.count_nonzero(model.coef_))
    return f"{np.mean(scores):.4f} with {np.mean(sizes):.1f}"


def has_abess() -> bool:
    """Whether it is installed."""
    try:
        import abess  # noqa: F401 - only asked for
    except ImportError:
        return False
    return True


def line(case: Case, repeats: int, beside: bool) -> str:
    """Return one row of the table."""
    X, y = case.X, case.y
    ours(case, X[:200], y[:200], refit=True)  # compiles
    folds, fit = (timed(partial(ours, case, X, y, refit), repeats) for refit in (False, True))
    cells = [case.name, f"{X.shape[0]:,} x {X.shape[1]:,}", f"{folds:.2f}, {10 * folds:.1f} ms", f"{fit:.2f}"]
    if beside:
        other = timed(partial(abess, case, X, y), repeats)
        ratios = f"{1.2 * folds / other:.1f}, {120 / 121 * fit / other:.1f}"
        cells += [f"{other:.2f}, {other / 0.12:.1f} ms", ratios, tested(case, ours), tested(case, abess)]
    else:
        cells += [tested(case, ours)]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("DIHT_DATA"), help="folder of the real data sets")
    parser.add_argument("--repeats", type=int, default=3, help="how often each is measured (default: %(default)s)")
    arguments = parser.parse_args()
    beside = has_abess()
    head = ["data", "size", "folds, s and a model", "fit, s"]
    if beside:
        head += ["abess, s and a model", "ratio a model: folds, fit", "test score, features", "abess's"]
    else:
        head += ["test score, features"]
    print(f"{machine()}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for case in cases(None if arguments.data is None else Path(arguments.data)):
        print(line(case, arguments.repeats, beside), flush=True)


if __name__ == "__main__":
    main()

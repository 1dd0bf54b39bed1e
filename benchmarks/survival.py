"""SparseCox beside abess's Cox, on data that ships in lifelines and scikit-survival: `python benchmarks/survival.py`.

abess (Breslow's ties) chooses k features without a ridge; its support is fitted again with ours, so that both are compared by one
objective. lifelines and scikit-survival fit our support with the same ridge: the differences of the coefficients are printed.

With --l1 an L1 model of scikit-survival (Coxnet) is made of 70% of the samples, its penalty chosen by the concordance of five folds
among those with at most 20 features; ours has as many features. Concordance of the other samples, mean of five splits; processor
seconds, those of L1 with its cross-validation.
"""

from __future__ import annotations

import argparse
import time
import warnings
from statistics import median
from typing import Any

import numpy as np

from diht import SparseCox

MOST = 20  # features


def tables() -> dict[str, tuple[Any, Any, Any]]:
    """The data, categories as columns of zeros and ones."""
    import pandas as pd
    from lifelines.datasets import load_rossi
    from sksurv.datasets import load_breast_cancer, load_gbsg2, load_whas500

    rossi = load_rossi()
    found = {"rossi": (rossi.drop(columns=["week", "arrest"]), rossi["week"].to_numpy(float), rossi["arrest"] == 1)}
    for name, load in (("gbsg2", load_gbsg2), ("whas500", load_whas500), ("breast cancer, genes", load_breast_cancer)):
        frame, y = load()
        event, when = y.dtype.names
        found[name] = (pd.get_dummies(frame, drop_first=True), y[when].astype(float), y[event])
    return {name: (X.to_numpy(float), t, np.asarray(e, dtype=bool)) for name, (X, t, e) in found.items()}


def scaled(X: np.ndarray) -> np.ndarray:
    """Columns of mean zero and deviation one, of N - 1 as lifelines has it, which scales columns before it penalises."""
    deviation = X.std(axis=0, ddof=1)
    return (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)


def of_abess(X: np.ndarray, t: np.ndarray, e: np.ndarray, k: int) -> np.ndarray:
    """The features that abess chooses."""
    from abess import CoxPHSurvivalAnalysis

    model = CoxPHSurvivalAnalysis(support_size=k).fit(X, np.column_stack([t, e]))
    return np.flatnonzero(model.coef_)


def of_lifelines(X: np.ndarray, t: np.ndarray, e: np.ndarray, lam: float) -> np.ndarray:
    """The coefficients of some columns with our ridge (and Efron's ties)."""
    import pandas as pd
    from lifelines import CoxPHFitter

    frame = pd.DataFrame(X).assign(time=t, event=e)
    fitter = CoxPHFitter(penalizer=lam, l1_ratio=0.0)
    options = {"precision": 1e-12, "r_precision": 1e-14, "max_steps": 500}
    return np.asarray(fitter.fit(frame, "time", "event", fit_options=options).params_)


def of_scikit_survival(X: np.ndarray, t: np.ndarray, e: np.ndarray, lam: float) -> np.ndarray:
    """The same by scikit-survival, whose penalty is not divided by the number of samples."""
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.util import Surv

    model = CoxPHSurvivalAnalysis(alpha=lam * len(t), ties="efron", tol=1e-14, n_iter=500)
    return np.asarray(model.fit(X, Surv.from_arrays(e, t)).coef_)


def timed(call: Any) -> tuple[Any, float]:
    """The result, and the median of three wall times."""
    seconds, found = [], None
    for _ in range(3):
        began = time.perf_counter()
        found = call()
        seconds.append(time.perf_counter() - began)
    return found, median(seconds)


def row(Z: np.ndarray, t: np.ndarray, e: np.ndarray, k: int, lam: float) -> str:
    """The cells of one problem."""
    theirs, first = timed(lambda: of_abess(Z, t, e, k))
    settings = {"lam": lam, "ties": "breslow", "standardize": False}
    again = SparseCox(k=max(len(theirs), 1), **settings).fit(Z[:, theirs], t, e)
    ours, second = timed(lambda: SparseCox(k=k, **settings).fit(Z, t, e))
    began = time.perf_counter()
    exact = SparseCox(k=k, **settings, exact=True, time_limit=20.0).fit(Z, t, e)
    third = time.perf_counter() - began
    efron = SparseCox(k=k, lam=lam, standardize=False, tol=1e-9).fit(Z, t, e)
    columns, own = Z[:, efron.support_], efron.coef_[efron.support_]
    off, other = (np.abs(fit(columns, t, e, lam) - own).max() for fit in (of_lifelines, of_scikit_survival))
    return (
        f"{again.objective_:.6f}, {first:.2f} | {ours.objective_:.6f}, {ours.lower_bound_:.6f}, {second:.2f} | "
        f"{exact.lower_bound_:.6f}, {third:.2f} | {off:.1e}, {other:.1e}"
    )


def l1_by_folds(Z: np.ndarray, t: np.ndarray, e: np.ndarray) -> np.ndarray:
    """The coefficients of the L1 model whose penalty has the best concordance of held-out folds, of those with few features."""
    from sklearn.model_selection import StratifiedKFold
    from sksurv.linear_model import CoxnetSurvivalAnalysis
    from sksurv.metrics import concordance_index_censored
    from sksurv.util import Surv

    def path(rows: np.ndarray, penalties: Any = None) -> Any:
        model = CoxnetSurvivalAnalysis(l1_ratio=1.0, alphas=penalties, n_alphas=50, alpha_min_ratio=0.01)
        return model.fit(Z[rows], Surv.from_arrays(e[rows], t[rows]))

    whole = path(np.arange(len(t)))
    number = np.count_nonzero(whole.coef_, axis=0)
    few = np.flatnonzero((number > 0) & (number <= MOST))
    scores = np.zeros(len(whole.alphas_))
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(Z, e):
        for i, coef in enumerate(path(train, whole.alphas_).coef_.T):
            scores[i] += concordance_index_censored(e[test], t[test], Z[test] @ coef)[0] / 5
    return np.asarray(whole.coef_[:, few[np.argmax(scores[few])]])


def beside_l1(name: str, X: np.ndarray, t: np.ndarray, e: np.ndarray) -> str:
    """The cells of one table: features, concordance and seconds, means over splits."""
    from sklearn.model_selection import train_test_split

    found = []
    for seed in range(5):
        train, test = train_test_split(np.arange(len(t)), test_size=0.3, random_state=seed, stratify=e)
        deviation = X[train].std(axis=0)
        Z = (X - X[train].mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
        began = time.process_time()
        coef = l1_by_folds(Z[train], t[train], e[train])
        between = time.process_time()
        support = np.flatnonzero(coef)
        ours = SparseCox(k=len(support), lam=1e-2, standardize=False).fit(Z[train], t[train], e[train])
        end = time.process_time()
        again = SparseCox(k=len(support), lam=1e-2, standardize=False).fit(Z[train][:, support], t[train], e[train])
        plain = SparseCox(k=1).fit(Z[train], t[train], e[train])
        plain.coef_ = coef
        scores = [
            plain.score(Z[test], t[test], e[test]),
            again.score(Z[test][:, support], t[test], e[test]),
            ours.score(Z[test], t[test], e[test]),
        ]
        gap = 1.0 - ours.lower_bound_ / ours.objective_
        found.append([len(support), *scores, between - began, end - between, 100.0 * gap])
    s, l1, again_, own, first, second, gap = np.mean(found, axis=0)
    cells = f"{s:.1f} | {l1:.4f} | {again_:.4f} | {own:.4f} | {first:.2f} | {second:.2f} | {gap:.1f}%"
    return f"| {name} ({X.shape[0]} x {X.shape[1]}) | {cells} |"


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--l1", action="store_true", help="beside an L1 model with as many features")
    if parser.parse_args().l1:
        print("| data | features | L1 | L1, fitted again | ours | seconds: L1 | ours | our gap |\n" + "|---" * 8 + "|")
        for name, table in tables().items():
            print(beside_l1(name, *table), flush=True)
        return
    others = "lifelines, scikit-survival: largest difference"
    print(f"| data | k | abess: objective, s | ours: objective, bound, s | exact: bound, s | {others} |")
    print("|---|---|---|---|---|---|")
    for name, (X, t, e) in tables().items():
        for k in (3, 5):
            print(f"| {name} ({X.shape[0]} x {X.shape[1]}) | {k} | {row(scaled(X), t, e, k, 1e-3)} |", flush=True)


if __name__ == "__main__":
    main()

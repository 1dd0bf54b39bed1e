"""SparseCox beside abess's Cox, on data that ships in lifelines and scikit-survival: `python benchmarks/survival.py`.

abess (Breslow's ties) chooses k features without a ridge; its support is fitted again with ours, so that both are compared by one
objective. lifelines fits our support with the same ridge: the difference of the coefficients is printed.
"""

from __future__ import annotations

import time
import warnings
from statistics import median
from typing import Any

import numpy as np

from diht import SparseCox


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
    off = np.abs(of_lifelines(Z[:, efron.support_], t, e, lam) - efron.coef_[efron.support_]).max()
    return (
        f"{again.objective_:.6f}, {first:.2f} | {ours.objective_:.6f}, {ours.lower_bound_:.6f}, {second:.2f} | "
        f"{exact.lower_bound_:.6f}, {third:.2f} | {off:.1e}"
    )


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    print(
        "| data | k | abess: objective, s | ours: objective, bound, s | exact: bound, s | lifelines: largest difference |"
    )
    print("|---|---|---|---|---|---|")
    for name, (X, t, e) in tables().items():
        for k in (3, 5):
            print(f"| {name} ({X.shape[0]} x {X.shape[1]}) | {k} | {row(scaled(X), t, e, k, 1e-3)} |", flush=True)


if __name__ == "__main__":
    main()

"""Quantiles and claims: our models beside L1 models with as many features, on samples that were held out.

    python benchmarks/losses.py [--data FOLDER] > losses.md

Quantiles of diabetes and, where the folder has communities-crime, of that, beside scikit-learn's `QuantileRegressor` (L1);
a generated portfolio of claims beside an L1 model of the Tweedie deviance, by accelerated proximal gradients. The L1 model
is the first on its path, from strong to weak penalties, with k features or more, less the smallest ones; "fitted again" has
its features without the penalty. Columns and targets of quantiles are standardised. Processor seconds, one thread, kernels
warm; those of L1 are of its path.

With --cv the penalty of the L1 model is chosen by the loss of five held-out folds, among those with at most 20 features, and ours
has as many features; the seconds of L1 are then with its folds.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import QuantileRegressor
from sklearn.model_selection import KFold, train_test_split

from diht import SparseRegressor
from diht.losses import Loss, Quantile, Tweedie
from measure import machine

K, LAM = 5, 1e-3
MOST = 20  # features of an L1 model chosen by folds
PENALTIES = np.geomspace(1.0, 1e-3, 14)


def data(folder: Path | None) -> Iterator[tuple[str, Loss, np.ndarray, np.ndarray]]:
    """Yield a name, a loss, columns and targets."""
    tables = [("diabetes", *load_diabetes(return_X_y=True))]
    if folder is not None and (folder / "communities-crime").exists():
        stored = np.load(folder / "communities-crime" / "communities-crime.npz", allow_pickle=False)
        complete = np.isfinite(stored["X"]).all(axis=0)
        tables.append(("communities-crime", stored["X"][:, complete], stored["y"]))
    for name, X, y in tables:
        for q in (0.1, 0.5, 0.9):
            yield name, Quantile(q), X, (y - y.mean()) / y.std()
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 60)) @ (np.eye(60) + 0.7 * np.eye(60, k=1))
    rate, size = (
        np.exp(0.3 * X[:, 3] - 0.3 * X[:, 17] + 0.2 * X[:, 30] - 1.5),
        np.exp(0.2 * X[:, 3] + 0.3 * X[:, 45] + 1.0),
    )
    claims = np.array([rng.gamma(2.0, scale, n).sum() for n, scale in zip(rng.poisson(rate), size, strict=True)])
    yield "claims, generated", Tweedie(1.5), X, claims


def tweedie_l1(loss: Loss, X: np.ndarray, y: np.ndarray, penalty: float, start: np.ndarray) -> np.ndarray:
    """Minimise the mean loss and an L1 penalty by accelerated proximal gradients; the last entry is the intercept."""
    A = np.column_stack([X, np.ones(len(X))])
    x, z, t, step = start.copy(), start.copy(), 1.0, 1.0

    def value(v: np.ndarray) -> float:
        return float(np.mean(loss.value(A @ v, y)))

    for _ in range(400):
        slope = A.T @ loss.derivative(A @ z, y) / len(y)
        while True:
            new = z - step * slope
            new[:-1] = np.sign(new[:-1]) * np.maximum(np.abs(new[:-1]) - step * penalty, 0.0)
            if value(new) <= value(z) + slope @ (new - z) + (new - z) @ (new - z) / (2.0 * step) + 1e-12:
                break
            step *= 0.5
        t, before = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t)), t
        z, x, moved = new + (before - 1.0) / t * (new - x), new, float(np.abs(new - x).max())
        if moved <= 1e-7:
            break
    return x


def models(loss: Loss, X: np.ndarray, y: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the L1 models from strong to weak penalties; the last entry is the intercept."""
    x = np.append(np.zeros(X.shape[1]), np.log(max(y.mean(), 1e-9)))
    for penalty in PENALTIES * (0.5 if isinstance(loss, Quantile) else 1.0):
        if isinstance(loss, Quantile):
            model = QuantileRegressor(quantile=loss.q, alpha=penalty, solver="highs").fit(X, y)
            x = np.append(model.coef_, model.intercept_)
        else:
            x = tweedie_l1(loss, X, y, penalty, x)
        yield np.where(np.abs(x) > 1e-9, x, 0.0)


def by_folds(loss: Loss, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The L1 model whose penalty has the least loss of held-out folds, of those with few features."""
    whole = list(takewhile(lambda x: np.count_nonzero(x[:-1]) <= MOST, models(loss, X, y)))
    losses = np.zeros(len(whole))
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        for i, x in zip(range(len(whole)), models(loss, X[train], y[train]), strict=False):
            losses[i] += float(np.mean(loss.value(X[test] @ x[:-1] + x[-1], y[test])))
    some = [i for i, x in enumerate(whole) if x[:-1].any()]
    return whole[min(some, key=lambda i: losses[i])]


def path(loss: Loss, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The first L1 model with K features or more, its smallest coefficients left out; the last entry is the intercept."""
    x = next((x for x in models(loss, X, y) if np.count_nonzero(x[:-1]) >= K), None)
    assert x is not None
    small = np.argsort(-np.abs(x[:-1]), kind="stable")[K:]
    x[small] = 0.0
    return x


def timed(work: Callable[[], object]) -> tuple[float, object]:
    """Return processor seconds, and the result."""
    before = process_time()
    result = work()
    return process_time() - before, result


def beside_abess() -> None:
    """Print our gamma models beside those of abess's features, fitted again with our loss: its own link is another one."""
    from abess.linear import GammaRegression

    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 60)) @ (np.eye(60) + 0.7 * np.eye(60, k=1))
    mean = np.exp(0.3 * X[:, 3] - 0.3 * X[:, 17] + 0.2 * X[:, 30] + 0.2 * X[:, 45] + 1.0)
    Z, y = (X - X.mean(axis=0)) / X.std(axis=0), rng.gamma(2.0, mean / 2.0)
    settings = {"lam": LAM, "loss": "gamma", "standardize": False}
    SparseRegressor(k=2, **settings).fit(Z[:200], y[:200])  # compile
    print("| k | abess's features: objective, s | ours: objective, bound, s |\n|---|---|---|")
    for k in (3, 5, 10):
        theirs, model = timed(lambda k=k: GammaRegression(support_size=k).fit(Z, y))
        support = np.flatnonzero(model.coef_)
        again = SparseRegressor(k=len(support), **settings).fit(Z[:, support], y)
        own, ours = timed(lambda k=k: SparseRegressor(k=k, **settings).fit(Z, y))
        figures = f"{ours.objective_:.5f}, {ours.lower_bound_:.5f}, {own:.2f}"
        print(f"| {k} | {again.objective_:.5f}, {theirs:.2f} | {figures} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--abess", action="store_true", help="the gamma loss beside abess's instead")
    parser.add_argument("--cv", action="store_true", help="penalties of L1 models by folds, ours with as many features")
    options = parser.parse_args()
    if options.abess:
        beside_abess()
        return
    bound = "our objective, and a bound for all models of so many features"
    print(f"{machine()}\n\n| data | loss | features | L1 | L1, fitted again | ours | {bound} | seconds: L1 | ours |")
    print("|" + "---|" * 9)
    l1_model = by_folds if options.cv else path
    for name, loss, X, y in data(options.data):
        train, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=0)
        Z = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
        settings = {"lam": LAM, "loss": loss, "standardize": False}
        SparseRegressor(k=2, **settings).fit(Z[train[:200]], y[train[:200]])  # compile
        l1, x = timed(lambda loss=loss, Z=Z, y=y, train=train: l1_model(loss, Z[train], y[train]))
        support = np.flatnonzero(x[:-1])
        ours = SparseRegressor(k=len(support), **settings)
        own, model = timed(lambda ours=ours, Z=Z, y=y, train=train: ours.fit(Z[train], y[train]))
        again = SparseRegressor(k=len(support), **settings).fit(Z[np.ix_(train, support)], y[train])

        def held_out(u: np.ndarray, loss: Loss = loss, y: np.ndarray = y, test: np.ndarray = test) -> str:
            return f"{float(np.mean(loss.value(u, y[test]))):.4f}"

        cells = [
            str(len(support)),
            held_out(Z[test] @ x[:-1] + x[-1]),
            held_out(Z[np.ix_(test, support)] @ again.coef_ + again.intercept_),
            held_out(Z[test] @ model.coef_ + model.intercept_),
            f"{model.objective_:.4f}, {model.lower_bound_:.4f}",
            f"{l1:.1f}",
            f"{own:.1f}",
        ]
        print(f"| {name} ({len(y)} x {X.shape[1]}) | {loss} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

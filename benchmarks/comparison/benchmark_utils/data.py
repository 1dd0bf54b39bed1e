"""What a data set hands to the objective: an instance and, where there are any, test samples; or why it is absent."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from diht.datasets import read_table
from peers import Instance

Samples = tuple[Any, np.ndarray]
Data = dict[str, Any]


def generated(X: Any, y: np.ndarray, k: int, lam: float, loss: str = "squared") -> Data:
    """An instance without test samples and without intercept."""
    return {"instance": Instance(X, y, k, lam, loss), "test": None, "absent": ""}


def real(
    name: str, load: Callable[[Path], tuple[Samples, Samples | None]], k: int, lam: float, loss: str, intercept: bool
) -> Data:
    """An instance of what `load` finds in the data set's folder, which is in the one that DIHT_DATA names."""
    if "DIHT_DATA" not in os.environ:
        return {"instance": None, "test": None, "absent": "the variable DIHT_DATA names no folder of data sets"}
    folder = Path(os.environ["DIHT_DATA"]) / name
    if not folder.is_dir():
        return {"instance": None, "test": None, "absent": f"there is no folder {name} where DIHT_DATA points to"}
    (X, y), test = load(folder)
    return {"instance": Instance(X, y, k, lam, loss, intercept), "test": test, "absent": ""}


def genes(folder: Path) -> tuple[Samples, Samples | None]:
    """Dense samples, columns standardised by those for training; for testing the ones that the file sets apart."""
    with np.load(folder / f"{folder.name}.npz") as file:
        X, y = file["X"].astype(float), file["y"].astype(float)
        train = file["is_train"].astype(bool) if "is_train" in file else np.ones(len(y), dtype=bool)
    spread = X[train].std(axis=0)
    X = (X - X[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return (X[train], y[train]), None if train.all() else (X[~train], y[~train])


def svmlight(
    train: str, test: str | None = None, change: Callable[[Any], Any] | None = None
) -> Callable[[Path], tuple[Samples, Samples | None]]:
    """Sparse samples from files in the LIBSVM format; without those for testing X may be changed."""

    def load(folder: Path) -> tuple[Samples, Samples | None]:
        first = read_table(folder / train)
        if test is None:
            return (first.X if change is None else change(first.X), first.y), None
        second = read_table(folder / test)
        return (first.X, first.y), (_as_wide(second.X, first.X.shape[1]), second.y)

    return load


def _as_wide(X: Any, d: int) -> Any:
    """The same samples with d columns: a file that lacks the last features, or has ones never seen in training."""
    X = X.tocsr()[:, :d]
    X.resize(X.shape[0], d)
    return X

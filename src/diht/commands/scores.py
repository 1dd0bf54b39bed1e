"""Scores on samples that a model has not seen: held out, or left out of one fold after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

from diht.datasets import Table
from diht.design import Design
from diht.report.page import Predictions
from diht.report.scores import scores

__all__ = ["Scores", "cross_validated", "predictions", "score_table", "split"]


@dataclass(frozen=True)
class Scores:
    """Figures by their names, and what they were measured on."""

    source: str
    n_samples: int
    figures: Mapping[str, float]

    @classmethod
    def of(cls, tested: Predictions, classes: Sequence[Any]) -> Scores:
        """Compute what suits the targets: accuracy, AUC, log loss and Brier score, or R2 and root mean squared error."""
        figures = scores(tested.y, tested.predicted, tested.probabilities, list(classes) or None)
        return cls(tested.source, len(tested.y), figures)


def split(table: Table, fraction: float | None, classes: bool, seed: int) -> tuple[Table, Table | None]:
    """Return the rows to fit, and those that are held out: of every class the same part."""
    if fraction is None:
        return table, None
    _in_memory(table, "--test-fraction")
    y = np.asarray(table.y)
    try:
        rows = train_test_split(
            np.arange(len(y)), test_size=fraction, random_state=seed, stratify=y if classes else None
        )
    except ValueError as error:
        raise ValueError(f"argument --test-fraction: {fraction:g} of {len(y)} rows: {error}") from None
    return table.rows(np.sort(rows[0])), table.rows(np.sort(rows[1]))


def predictions(estimator: Any, table: Table, source: str) -> Predictions:
    """Return what an estimator predicts for rows with known targets."""
    likely = getattr(estimator, "predict_proba", None)
    probabilities = None if likely is None else np.asarray(likely(table.X))
    return Predictions(np.asarray(table.y), np.asarray(estimator.predict(table.X)), probabilities, source)


def cross_validated(estimator: Any, table: Table, n_folds: int, seed: int) -> Predictions:
    """Return what models of the other folds predict for each sample; encoders are fitted to those folds, too."""
    _in_memory(table, "--cv")
    classes = hasattr(estimator, "classes_")
    parts = [(rows, _fold(estimator, table, train, rows)) for train, rows in _folds(table, n_folds, classes, seed)]
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    each = [part for _, part in parts]

    def together(values: Sequence[Any]) -> NDArray[Any]:
        return np.concatenate(values)[order]

    likely = None if each[0].probabilities is None else together([part.probabilities for part in each])
    whole = Predictions(together([part.y for part in each]), together([part.predicted for part in each]), likely, "")
    return replace(whole, source=f"{n_folds}-fold cross-validation")


def _fold(estimator: Any, table: Table, train: NDArray[np.int64], rows: NDArray[np.int64]) -> Predictions:
    part = table.rows(train)
    model = clone(estimator).fit(part.X, part.y, part.weights)
    return predictions(model, table.rows(rows), "")


def _folds(table: Table, n_folds: int, classes: bool, seed: int) -> Iterator[tuple[Any, Any]]:
    y = np.asarray(table.y)
    kind = StratifiedKFold if classes else KFold
    try:
        return iter(list(kind(n_folds, shuffle=True, random_state=seed).split(np.empty((len(y), 0)), y)))
    except ValueError as error:
        raise ValueError(f"argument --cv: {error}") from None


def _in_memory(table: Table, option: str) -> None:
    if isinstance(table.X, Design):
        raise ValueError(f"argument {option}: needs rows in memory, {table.path} is on disk")


def score_table(each_source: Sequence[Scores]) -> str:
    """Return the scores, one line a source."""
    names = list(dict.fromkeys(name for each in each_source for name in each.figures))
    sources = [f"{each.source} ({each.n_samples:,} samples)" for each in each_source]
    width = max(map(len, sources))
    header = f"  {'':<{width}}" + "".join(f"  {name:>9}" for name in names)
    rows = [
        f"  {source:<{width}}" + "".join(f"  {each.figures.get(name, float('nan')):>9.4g}" for name in names)
        for source, each in zip(sources, each_source, strict=True)
    ]
    return "\n".join(["How well does it predict?", header, *rows])

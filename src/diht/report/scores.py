"""Scores of predictions for samples with known targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from diht.numerics.arrays import Vector

__all__ = ["scores"]

_SURE = 1e-15  # least probability that counts in a log loss


def scores(
    y: NDArray[Any], predicted: NDArray[Any], probabilities: Vector | None, classes: Sequence[Any] | None
) -> dict[str, float]:
    """Return what suits the targets, by name: accuracy, AUC, log loss and Brier score, or R2 and root mean squared error.

    Of several targets the mean R2. With more than two classes AUC is the mean of those of each class against the rest, and the
    Brier score is summed over the classes. What is not defined is left out: AUC where a class has no sample, R2 of a constant.
    """
    if classes is None:
        errors = np.asarray(y, dtype=np.float64) - np.asarray(predicted, dtype=np.float64)
        spread = np.square(y - np.mean(y, axis=0)).sum(axis=0)
        found = {"RMSE": float(np.sqrt(np.square(errors).mean()))}
        return (
            {"R2": float(np.mean(1 - np.square(errors).sum(axis=0) / spread))} if np.all(spread > 0) else {}
        ) | found
    places = {label: i for i, label in enumerate(classes)}
    codes = np.array([places[label] for label in y.tolist()])
    found = {"accuracy": float(np.mean(np.asarray(y) == predicted))}
    if probabilities is None:
        return found
    right = codes[:, None] == np.arange(len(places))
    if np.all(right.any(axis=0)):
        found["AUC"] = float(np.mean([_auc(right[:, c], probabilities[:, c]) for c in range(len(places))]))
    own = np.take_along_axis(probabilities, codes[:, None], axis=1)
    found["log loss"] = float(-np.log(np.maximum(own, _SURE)).mean())
    found["Brier"] = float(np.square(probabilities - right).sum(axis=1).mean()) / (2 if len(places) == 2 else 1)
    return found


def _auc(right: NDArray[np.bool_], score: Vector) -> float:
    """How often a sample of the class has a higher score than one of the rest, ties counting one half."""
    n = int(right.sum())
    return float((rankdata(score)[right].sum() - n * (n + 1) / 2) / (n * (len(right) - n)))

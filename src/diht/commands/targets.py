"""Which loss suits a target, and which targets a model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from diht.datasets import Table
from diht.losses import ALL_LOSSES, Loss, as_loss
from diht.persistence.model import SavedModel, as_labels

__all__ = ["choose_loss", "targets_for"]

_FEW_CLASSES = 10  # whole numbers with at most so many different values are taken for classes
_MANY_CLASSES, _SMALL_CLASS = 20, 5  # more classes than that, with fewer samples each, are taken for measurements


def choose_loss(table: Table, name: str | None) -> tuple[Loss, str]:
    """Return the loss that was asked for, or one that suits the targets and why; raise where it does not suit."""
    y = np.asarray(table.y)
    if y.ndim == 2:
        return _loss_of_several(y, name)
    target = "target" if table.target_names is None else f"target {table.target_names[0]!r}"
    distinct = np.unique(y)
    texts = y.dtype.kind not in "biuf"
    if name is None:
        loss, why = _default_loss(distinct, texts)
    else:
        loss, why = as_loss(name), ""
    if loss.several > 1:
        raise ValueError(f"argument --loss: several {loss.name} losses of one target are for Python, give one")
    if loss.task == "regression" and texts:
        raise ValueError(
            f"argument --loss: {loss.name} needs numbers, but the {target} holds texts such as {str(distinct[0])!r}; "
            f"for classes use one of {_names('classification')}"
        )
    if loss.task == "classification":
        if not texts and _looks_measured(distinct, len(y)):
            raise ValueError(
                f"argument --loss: {loss.name} needs classes, but the {target} has {len(distinct)} different numbers in "
                f"{len(y)} samples; for regression use one of {_names('regression')}"
            )
        if texts and len(distinct) > max(_MANY_CLASSES, len(y) / 2):
            raise ValueError(
                f"{table.path}: the {target} has {len(distinct):,} different texts in {len(y):,} samples: names are no classes; "
                "--target NAME names another column"
            )
        if len(distinct) < 2:
            raise ValueError(f"{table.path}: the {target} has one class only: {str(as_labels(distinct)[0])!r}")
    return loss, why


def _loss_of_several(y: NDArray[Any], name: str | None) -> tuple[Loss, str]:
    """Return a loss of several targets, which are numbers."""
    loss = as_loss("squared" if name is None else name)
    if loss.task != "regression":
        raise ValueError(
            f"argument --loss: {loss.name} is for one target, but there are {y.shape[1]}; use one of {_names('regression')}"
        )
    return loss, f" (chosen: there are {y.shape[1]} targets)" if name is None else ""


def targets_for(model: SavedModel, table: Table) -> NDArray[Any]:
    """Return the targets of a table for a model: as many as it has, numbers unless it has classes."""
    y = np.asarray(table.y)
    several = 1 if model.classes is not None else len(model.equations)
    found = y.shape[1] if y.ndim == 2 else 1
    if found != several:
        raise ValueError(f"{table.path}: {found} target{'s' * (found != 1)}, where the model has {several}")
    if model.classes is None and y.dtype.kind not in "biuf":
        raise ValueError(f"{table.path}: the target holds texts such as {str(y[0])!r}, the model is for numbers")
    return y


def _names(task: str) -> str:
    return ", ".join(name for name, kind in ALL_LOSSES.items() if kind.task == task)


def _default_loss(distinct: NDArray[Any], texts: bool) -> tuple[Loss, str]:
    if texts:
        return as_loss("logistic"), f" (chosen: the target names {len(distinct)} classes)"
    few = len(distinct) <= 2 or (len(distinct) <= _FEW_CLASSES and bool(np.all(distinct == np.round(distinct))))
    if few:
        return as_loss("logistic"), f" (chosen: the target has {len(distinct)} values; --loss squared for regression)"
    return as_loss("squared"), f" (chosen: the target has {len(distinct):,} different numbers)"


def _looks_measured(distinct: NDArray[Any], n: int) -> bool:
    """Whether numbers are measurements rather than names of classes."""
    if len(distinct) <= 2:
        return False
    return bool(np.any(distinct != np.round(distinct))) or (
        len(distinct) > _MANY_CLASSES and n < _SMALL_CLASS * len(distinct)
    )

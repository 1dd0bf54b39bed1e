"""What estimators and paths make of rows that live elsewhere: scales, classes, targets with their offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from diht.constraints.base import Constraint
from diht.design import LARGEST
from diht.losses import Loss
from diht.numerics.arrays import Vector
from diht.numerics.exact import two_sum
from diht.problem import Problem, Targets
from diht.samples import Rows, Samples

if TYPE_CHECKING:
    from diht.dask.data import RemoteData
    from diht.estimators.base import SparseLinearModel
    from diht.gpu.data import DeviceData

__all__ = ["class_targets_there", "problems_there", "scales_of", "scales_there", "stated_there"]


def scales_of(mean: Vector, variance: Vector, n_samples: int, constraint: Constraint) -> Vector:
    """Return what `standardize` divides columns of these means and variances by: see `diht.estimators.base.column_scales`."""
    rounding = n_samples * np.finfo(np.float64).eps * np.abs(mean)
    scale = np.sqrt(constraint.pooled(np.where(np.sqrt(variance) <= rounding, 0.0, variance)))
    return np.where(scale > 0.0, scale, 1.0)


def scales_there(samples: Samples, constraint: Constraint) -> Vector:
    """Return what `standardize` divides every column by: see `column_scales`."""
    mean, variance = samples.moments(samples.full(1.0))
    return scales_of(mean, variance, samples.size, constraint)


def class_targets_there(samples: Samples, n_classes: int, loss: Loss) -> tuple[Targets, Loss]:
    """Return the targets of samples whose targets are the numbers of their classes, and the loss."""
    if n_classes == 2:
        return Targets(samples.map(lambda y, s: np.where(y == 1.0, 1.0, -1.0))), loss
    loss = loss.of_classes()
    low = 0.0 if loss.coupled else -1.0
    rows = samples.map(lambda y, s: np.where(y == np.arange(n_classes)[:, None], 1.0, low))
    return Targets(rows, n_classes), loss


def problems_there(
    model: SparseLinearModel, data: RemoteData | DeviceData, constraint: Constraint, lam: Any = None
) -> tuple[dict[str, Problem], Vector | None]:
    """State the problem of each target, by what to print before a line; return what columns are divided by, too.

    Without `lam` the ridge is the model's own, which depends on the number of classes that are found.
    """
    samples, targets = model._targets_there(data)
    loss, intercept = model._fitted_loss(), model.fit_intercept
    lam = model._ridge if lam is None else lam
    scale = scales_there(samples, constraint) if model.standardize else None
    stated = {label: stated_there(samples, loss, rows, data.offset()) for label, rows in targets.items()}
    return {
        label: Problem.of_samples(own, loss, constraint, lam, intercept, scale, rows)
        for label, (own, rows) in stated.items()
    }, scale


def stated_there(samples: Any, loss: Loss, targets: Targets, offset: Rows | None) -> tuple[Any, Targets]:
    """Check targets, and return the samples and targets that stand for them and their offset."""

    def wrong(y: Vector, s: Vector, given: Vector) -> str:
        try:
            loss.check_targets(given)
        except ValueError as error:
            return str(error)
        return _too_large("y", given)

    _raise_any(samples.each(wrong, targets.rows))
    if offset is None:
        return samples, targets
    if loss.coupled or (targets.number > 1 and not loss.of_differences):
        raise ValueError(f"offset of several targets needs a loss of differences, got the {loss.name} loss")
    loss.with_offset(np.zeros(1), np.zeros(1))  # raises where the loss knows of no offset

    def turned(y: Vector, s: Vector, given: Vector, known: Vector) -> Vector:
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            return np.stack([np.broadcast_to(part, given.shape) for part in loss.with_offset(given, known)])

    def unfit(y: Vector, s: Vector, known: Vector, both: Vector) -> str:
        bad = ~(np.all(np.isfinite(both), axis=0) & (both[1] > 0.0))
        if np.any(bad):
            return f"offset must not be so large for the {loss.name} loss, got {known[bad][0]}"
        return _too_large("offset", known) or _too_large("y", both[0])

    both = samples.map(turned, targets.rows, offset)
    _raise_any(samples.each(unfit, offset, both))
    rows = samples.map(lambda y, s, both: both[0], both)
    if not loss.of_differences:
        return samples.with_weights(samples.map(lambda y, s, both: s * both[1], both)), Targets(rows, targets.number)
    tail = samples.map(lambda y, s, given, known: two_sum(given, -known)[1], targets.rows, offset)
    return samples, Targets(rows, targets.number, tail)


def _too_large(name: str, values: Vector) -> str:
    largest = float(np.abs(values).max())
    return f"{name} must not hold numbers beyond {LARGEST:g} in size, got {largest:g}" if largest > LARGEST else ""


def _raise_any(messages: list[str]) -> None:
    found = [message for message in messages if message]
    if found:
        raise ValueError(found[0])

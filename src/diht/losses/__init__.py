"""Losses, their convex conjugates and the proximal maps of the conjugates.

One file a loss, and `LOSSES` is the one list of them. Five of the seven share one conjugate, l*(a) = y a + (mu/2) a^2 on an
interval; see `QuadraticConjugate`.
"""

from __future__ import annotations

from diht.losses.base import Declared, Loss, Pieces
from diht.losses.hinge import Hinge
from diht.losses.huber import Huber
from diht.losses.logistic import Logistic
from diht.losses.poisson import Poisson
from diht.losses.quadratic_conjugate import QuadraticConjugate
from diht.losses.smoothed_hinge import SmoothedHinge
from diht.losses.squared import Squared
from diht.losses.squared_hinge import SquaredHinge

__all__ = [
    "LOSSES",
    "Declared",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Pieces",
    "Poisson",
    "QuadraticConjugate",
    "SmoothedHinge",
    "Squared",
    "SquaredHinge",
    "as_loss",
]

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (Squared, SmoothedHinge, Hinge, Logistic, SquaredHinge, Huber, Poisson)
}


def as_loss(loss: str | Loss) -> Loss:
    """Return the loss of that name with its default parameters, or the loss itself."""
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str):
        raise TypeError(f"loss must be a name or a Loss object, got {loss!r}")
    if loss not in LOSSES:
        raise ValueError(f"unknown loss {loss!r}; choose one of {', '.join(LOSSES)}")
    return LOSSES[loss]()

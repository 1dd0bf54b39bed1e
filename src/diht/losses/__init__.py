"""Losses, their convex conjugates and the proximal maps of the conjugates.

One file a loss, and `LOSSES` is the one list of them. Five of the seven share one conjugate, l*(a) = y a + (mu/2) a^2 on an
interval; see `QuadraticConjugate`.
"""

from __future__ import annotations

from diht.losses.base import Declared, Loss, Pieces
from diht.losses.hinge import Hinge
from diht.losses.huber import Huber
from diht.losses.logistic import Logistic
from diht.losses.multinomial import Multinomial
from diht.losses.poisson import Poisson
from diht.losses.quadratic_conjugate import QuadraticConjugate
from diht.losses.smoothed_hinge import SmoothedHinge
from diht.losses.squared import Squared
from diht.losses.squared_hinge import SquaredHinge

__all__ = [
    "ALL_LOSSES",
    "LOSSES",
    "Declared",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Multinomial",
    "Pieces",
    "Poisson",
    "QuadraticConjugate",
    "SmoothedHinge",
    "Squared",
    "SquaredHinge",
    "as_loss",
    "losses_with_probabilities",
]

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss for loss in (Squared, SmoothedHinge, Hinge, Logistic, SquaredHinge, Huber, Poisson)
}

"""The losses of one prediction, by their names."""

ALL_LOSSES: dict[str, type[Loss]] = {**LOSSES, Multinomial.name: Multinomial}
"""Those, and the one of all classes."""


def losses_with_probabilities() -> list[str]:
    """Return the names of the losses that are the likelihoods of classes."""
    return [name for name, kind in ALL_LOSSES.items() if kind().has_probabilities]


def as_loss(loss: str | Loss) -> Loss:
    """Return the loss of that name with its default parameters, or the loss itself."""
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str):
        raise TypeError(f"loss must be a name or a Loss object, got {loss!r}")
    if loss not in ALL_LOSSES:
        raise ValueError(f"unknown loss {loss!r}; choose one of {', '.join(ALL_LOSSES)}")
    return ALL_LOSSES[loss]()

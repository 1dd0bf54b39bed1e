"""Losses, their convex conjugates and the proximal maps of the conjugates.

One file a loss, and `LOSSES` is the one list of them. Those of straight and quadratic pieces share one conjugate,
l*(a) = y a + (mu/2) a^2 on an interval; see `QuadraticConjugate`.
"""

from __future__ import annotations

import re

from diht.losses.base import Declared, Loss, Pieces
from diht.losses.gamma import Gamma
from diht.losses.hinge import Hinge
from diht.losses.huber import Huber
from diht.losses.logistic import Logistic
from diht.losses.multinomial import Multinomial
from diht.losses.negative_binomial import NegativeBinomial
from diht.losses.poisson import Poisson
from diht.losses.quadratic_conjugate import QuadraticConjugate
from diht.losses.quantile import Quantile
from diht.losses.smoothed_hinge import SmoothedHinge
from diht.losses.squared import Squared
from diht.losses.squared_hinge import SquaredHinge
from diht.losses.tweedie import Tweedie

__all__ = [
    "ALL_LOSSES",
    "LOSSES",
    "Declared",
    "Gamma",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Multinomial",
    "NegativeBinomial",
    "Pieces",
    "Poisson",
    "QuadraticConjugate",
    "Quantile",
    "SmoothedHinge",
    "Squared",
    "SquaredHinge",
    "Tweedie",
    "as_loss",
    "losses_with_probabilities",
]

LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (
        Squared,
        SmoothedHinge,
        Hinge,
        Logistic,
        SquaredHinge,
        Huber,
        Poisson,
        Quantile,
        Gamma,
        Tweedie,
        NegativeBinomial,
    )
}
"""The losses of one prediction, by their names."""

ALL_LOSSES: dict[str, type[Loss]] = {**LOSSES, Multinomial.name: Multinomial}
"""Those, and the one of all classes."""


def losses_with_probabilities() -> list[str]:
    """Return the names of the losses that are the likelihoods of classes."""
    return [name for name, kind in ALL_LOSSES.items() if kind().has_probabilities]


def as_loss(loss: str | Loss) -> Loss:
    """Return the loss of that name, or the loss itself; a name may have parameters, as in "quantile(q=0.9)"."""
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str):
        raise TypeError(f"loss must be a name or a Loss object, got {loss!r}")
    name, _, rest = loss.partition("(")
    if name not in ALL_LOSSES or (rest and not rest.endswith(")")):
        raise ValueError(f"unknown loss {loss!r}; choose one of {', '.join(ALL_LOSSES)}")
    given = re.split(r",(?![^\[]*\])", rest[:-1])  # at commas outside brackets
    return ALL_LOSSES[name](**_parameters(name, [text for text in given if text.strip()]))


def _parameters(name: str, given: list[str]) -> dict[str, float | tuple[float, ...]]:
    """Return the parameters of a loss by their names."""
    known: dict[str, float] = vars(ALL_LOSSES[name]())
    found: dict[str, float | tuple[float, ...]] = {}
    for text in given:
        key, _, value = map(str.strip, text.partition("="))
        if key not in known:
            has = f"has {', '.join(known)}" if known else "has none"
            raise ValueError(f"unknown parameter {key!r} of the {name} loss, which {has}")
        try:
            several = key == "q" and value.startswith("[") and value.endswith("]")
            found[key] = tuple(map(float, value[1:-1].split(","))) if several else float(value)
        except ValueError:
            raise ValueError(f"{key} of the {name} loss must be a number, got {value!r}") from None
    return found

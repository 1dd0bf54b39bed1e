"""Huber's loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diht.losses.base import require_positive
from diht.losses.quadratic_conjugate import QuadraticConjugate

__all__ = ["Huber"]


@dataclass(frozen=True)
class Huber(QuadraticConjugate):
    """Huber's loss for robust regression.

    l(u)   = r^2 / 2 if |r| <= delta else delta |r| - delta^2 / 2,  r = u - y
    l*(a)  = y a + a^2 / 2,  F: |a| <= delta
    l'(u)  = min(max(r, -delta), delta),  l''(u) = 1 if |r| <= delta else 0,  l*'(a) = y + a
    mu     = 1
    """

    delta: float = 1.0
    name: ClassVar[str] = "huber"
    task: ClassVar[str] = "regression"
    of_differences: ClassVar[bool] = True
    mu: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        require_positive("delta", self.delta)

    @property
    def low(self) -> float:
        """Lower end of F."""
        return -self.delta

    @property
    def high(self) -> float:
        """Upper end of F."""
        return self.delta

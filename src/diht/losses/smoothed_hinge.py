"""The smoothed hinge loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diht.losses.base import require_positive
from diht.losses.quadratic_conjugate import QuadraticConjugate

__all__ = ["SmoothedHinge"]


@dataclass(frozen=True)
class SmoothedHinge(QuadraticConjugate):
    """Smoothed hinge loss, which the paper calls the Huber loss (section 5.2.1).

    l(u)   = 0 if y u >= 1;  1 - y u - gamma/2 if y u < 1 - gamma;  (1 - y u)^2 / (2 gamma) between
    l*(a)  = y a + (gamma/2) a^2,  F: y a in [-1, 0]
    l'(u)  = -y min(max(0, 1 - y u) / gamma, 1),  l''(u) = 1/gamma between, else 0,  l*'(a) = y + gamma a
    mu     = gamma
    """

    gamma: float = 0.25
    name: ClassVar[str] = "smoothed_hinge"
    task: ClassVar[str] = "classification"
    low: ClassVar[float] = -1.0
    high: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        require_positive("gamma", self.gamma)

    @property
    def mu(self) -> float:
        """The width gamma of the curved part."""
        return self.gamma

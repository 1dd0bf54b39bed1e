"""The loss of a quantile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from diht.losses.quadratic_conjugate import QuadraticConjugate

__all__ = ["Quantile"]


@dataclass(frozen=True)
class Quantile(QuadraticConjugate):
    """Pinball loss, whose best constant is the q-quantile of the targets; with gamma > 0 its kink is rounded over that width.

    l(u)   = max over a in F of a r - (gamma/2) a^2,  r = u - y;  without gamma: (1 - q) r if r > 0 else -q r
    l*(a)  = y a + (gamma/2) a^2,  F: -q <= a <= 1 - q
    l'(u)  = min(max(r / gamma, -q), 1 - q),  l''(u) = 1/gamma between, else 0,  l*'(a) = y + gamma a
    mu     = gamma: not smooth without it

    The loss with gamma is below the pinball loss, by at most (gamma/2) max(q, 1 - q)^2. 1 - q is that of float64.
    """

    q: float = 0.5
    gamma: float = 0.0
    name: ClassVar[str] = "quantile"
    task: ClassVar[str] = "regression"
    of_differences: ClassVar[bool] = True
    score: ClassVar[str] = "d2"
    scoring: ClassVar[str] = "loss"

    def __post_init__(self) -> None:
        if not 0.0 < self.q < 1.0:
            raise ValueError(f"q must be between 0 and 1, got {self.q!r}")
        if not 0.0 <= self.gamma < math.inf:
            raise ValueError(f"gamma must not be negative, and finite, got {self.gamma!r}")

    @property
    def mu(self) -> float:
        """The width gamma of the curved part."""
        return self.gamma

    @property
    def low(self) -> float:
        """Lower end of F."""
        return -self.q

    @property
    def high(self) -> float:
        """Upper end of F."""
        return 1.0 - self.q

"""The squared hinge loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from diht.losses.quadratic_conjugate import QuadraticConjugate

__all__ = ["SquaredHinge"]


@dataclass(frozen=True)
class SquaredHinge(QuadraticConjugate):
    """Squared hinge loss.

    l(u)   = max(0, 1 - y u)^2
    l*(a)  = y a + a^2 / 4,  F: y a <= 0
    l'(u)  = -2 y max(0, 1 - y u),  l''(u) = 2 if y u <= 1 else 0,  l*'(a) = y + a / 2
    mu     = 1/2
    """

    name: ClassVar[str] = "squared_hinge"
    task: ClassVar[str] = "classification"
    mu: ClassVar[float] = 0.5
    low: ClassVar[float] = -math.inf
    high: ClassVar[float] = 0.0

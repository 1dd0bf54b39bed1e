"""The hinge loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from diht.losses.quadratic_conjugate import QuadraticConjugate

__all__ = ["Hinge"]


@dataclass(frozen=True)
class Hinge(QuadraticConjugate):
    """Hinge loss (section 5.2.2 of the paper).

    l(u)   = max(0, 1 - y u)
    l*(a)  = y a,  F: y a in [-1, 0]
    l'(u)  = -y if y u < 1 else 0,  l''(u) = 0,  l*'(a) = y
    mu     = 0: not smooth
    """

    name: ClassVar[str] = "hinge"
    task: ClassVar[str] = "classification"
    mu: ClassVar[float] = 0.0
    low: ClassVar[float] = -1.0
    high: ClassVar[float] = 0.0

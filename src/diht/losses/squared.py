"""The squared loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from diht.losses.quadratic_conjugate import QuadraticConjugate

__all__ = ["Squared"]


@dataclass(frozen=True)
class Squared(QuadraticConjugate):
    """Squared loss, the paper's for regression (section 5.1, without 1/2).

    l(u)   = (y - u)^2
    l*(a)  = y a + a^2 / 4,  F = R
    l'(u)  = 2 (u - y),  l''(u) = 2,  l*'(a) = y + a / 2
    mu     = 1/2
    """

    name: ClassVar[str] = "squared"
    task: ClassVar[str] = "regression"
    of_differences: ClassVar[bool] = True
    is_likelihood: ClassVar[bool] = True  # of normal errors
    mu: ClassVar[float] = 0.5
    low: ClassVar[float] = -math.inf
    high: ClassVar[float] = math.inf

    def deviance(self, mean: float, n: float) -> float:
        """Return n log(mean): the variance of the errors is that which makes them most likely."""
        return float(n * np.log(mean))

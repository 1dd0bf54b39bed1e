"""The loss of a quantile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from diht.losses.base import Array, Pieces, is_between
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

    Several q, as in ``Quantile(q=(0.1, 0.5, 0.9))``, are those of as many targets that share features. One target stands for all.
    """

    q: Any = 0.5
    gamma: float = 0.0
    name: ClassVar[str] = "quantile"
    task: ClassVar[str] = "regression"
    of_differences: ClassVar[bool] = True
    score: ClassVar[str] = "d2"
    scoring: ClassVar[str] = "loss"

    def __post_init__(self) -> None:
        if isinstance(self.q, (list, tuple, np.ndarray)):
            given = tuple(float(q) if isinstance(q, Real) else q for q in self.q)
            object.__setattr__(self, "q", given if len(given) > 1 else given[0] if given else math.nan)
        levels = self.q if isinstance(self.q, tuple) else (self.q,)
        if not all(is_between(q, 0.0, 1.0) for q in levels):
            raise ValueError(f"q must be between 0 and 1, got {self.q!r}")
        if list(levels) != sorted(set(levels)):
            raise ValueError(f"q must be ascending and distinct, got {self.q!r}")
        if self.gamma != 0.0 and not is_between(self.gamma, 0.0, math.inf):
            raise ValueError(f"gamma must not be negative, and finite, got {self.gamma!r}")

    @property
    def mu(self) -> float:
        """The width gamma of the curved part."""
        return self.gamma

    @property
    def several(self) -> int:
        """The number of quantiles."""
        return len(self.q) if isinstance(self.q, tuple) else 1

    @property
    def labels(self) -> list[str]:
        """The levels."""
        return [f"q={q:g}" for q in self.q] if self.several > 1 else []

    def of_target(self, c: int) -> Quantile:
        """Return the loss of one of the quantiles."""
        return self if self.several == 1 else Quantile(self.q[c], self.gamma)

    @property
    def pieces(self) -> Pieces | None:
        """None of several quantiles, which have an F each."""
        return super().pieces if self.several == 1 else None

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends of F."""
        return super().domain(y) if self.several == 1 else self.of_target(y.target).domain(y)

    @property
    def low(self) -> float:
        """Lower end of F."""
        return float(-self.q)

    @property
    def high(self) -> float:
        """Upper end of F."""
        return float(1.0 - self.q)

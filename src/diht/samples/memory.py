"""Samples in this process's memory: vectors are numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from diht.design import Design, Step
from diht.samples.base import Rows, Samples

__all__ = ["MemorySamples"]

T = TypeVar("T")
Vector = NDArray[np.float64]
Indices = NDArray[np.int64]


class MemorySamples(Samples):
    """A design with its targets and weights."""

    def __init__(self, design: Design, y: Vector, s: Vector) -> None:
        self.design, self.y, self.s = design, y, s

    def each(self, f: Callable[..., T], *rows: Rows) -> list[T]:
        """Return ``f(y, s, *rows)`` of the one block that there is."""
        return [f(self.y, self.s, *rows)]

    def map(self, f: Callable[..., Any], *rows: Rows) -> Rows:
        """Return ``f(y, s, *rows)``."""
        return np.asarray(f(self.y, self.s, *rows))

    def put(self, values: Vector) -> Rows:
        """Return the numbers as they are."""
        return values

    def fetch(self, rows: Rows) -> Vector:
        """Return the vector itself."""
        return np.asarray(rows)

    def columns(self, features: Indices) -> MemorySamples:
        """Return the samples of some features alone, on a compact copy of them."""
        return MemorySamples(self.design.columns(features), self.y, self.s)

    def margins(self, w: Vector, b: float = 0.0, support: Indices | None = None) -> Rows:
        """Compute ``X w + b``."""
        return self.design.matvec(w, support=support) + b

    def pull(self, alpha: Rows) -> Vector:
        """Compute ``X'(s alpha)``."""
        return self.design.rmatvec(self.s * alpha)

    def margins_and_pull(self, w: Vector, alpha: Rows) -> tuple[Rows, Vector]:
        """Compute ``X w`` and ``X'(s alpha)`` with one read of X."""
        return self.design.matvec_rmatvec(w, self.s * alpha)

    def step(
        self,
        step: Step,
        w: Vector,
        b: float,
        alpha: Rows,
        g: Vector,
        part: Rows | None = None,
        u: Rows | None = None,
        fresh: bool = False,
    ) -> float:
        """Update dual variables, and g with them; a part is an array of indices."""
        return self.design.block_step(step, w, b, alpha, self.y, self.s, g, part, u, fresh)

    def predictions(self, coef: Vector, *constants: float, less: tuple[Rows, ...] = ()) -> tuple[Rows, Rows]:
        """Compute X coef plus constants in twice the precision, and bounds on the errors."""
        return self.design.predictions(coef, *constants, less=less)

r"""The interface between solvers and rows.

Of three kinds of things the first stay where the rows live:

- what is as long as the samples, such as targets, weights, margins :math:`u = Xw + b` and dual variables: `Rows`, which nobody but
  the samples themselves looks into;
- what is as long as the features: coefficients, :math:`X^\top (s \odot \alpha)`;
- numbers.

A function of the samples goes to the rows (`map`, `each`, `total`), where it is called, block by block, with the targets, the
weights and the parts of the vectors that belong to them. It must treat each sample alone, or return a sum over them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from diht.design import Design, Step

__all__ = ["Rows", "Samples", "added"]

T = TypeVar("T")
Vector = NDArray[np.float64]
Indices = NDArray[np.int64]
Rows: TypeAlias = Any  # N numbers, where the rows live


def added(sums: Iterable[float]) -> float:
    """Add the sums of blocks, rounded once."""
    sums = list(sums)
    try:
        return math.fsum(sums)
    except (OverflowError, ValueError):  # some are infinite, or their sum is
        return float(sum(sums))


class Samples(ABC):
    """N samples with their targets and weights.

    Attributes
    ----------
    design : Design
        X, asked for nothing that is as long as the samples.
    y, s : Rows
        The targets and the weights.
    """

    design: Design
    y: Rows
    s: Rows

    @property
    def size(self) -> int:
        """The number of samples."""
        return self.design.shape[0]

    # Functions of the samples

    @abstractmethod
    def each(self, f: Callable[..., T], *rows: Rows) -> list[T]:
        """Return ``f(y, s, *rows)`` of every block; what it returns travels, and should be small."""

    @abstractmethod
    def map(self, f: Callable[..., Any], *rows: Rows) -> Rows:
        """Return the vector of ``f(y, s, *rows)``, which has a number for each sample."""

    def total(self, f: Callable[..., Any], *rows: Rows) -> float:
        """Return ``sum_i s_i f(y_i, rows_i)``."""
        return added(self.each(lambda y, s, *parts: float(s @ f(y, *parts)), *rows))

    def largest(self, f: Callable[..., Any], *rows: Rows) -> float:
        """Return ``max_i f(y_i, rows_i)``."""
        return max(self.each(lambda y, s, *parts: float(np.max(f(y, *parts))), *rows))

    def full(self, value: float) -> Rows:
        """Return the same number for every sample."""
        return self.map(lambda y, s: np.full_like(y, value))

    def copy(self, rows: Rows) -> Rows:
        """Return a vector that does not change when the other one does."""
        return self.map(lambda y, s, a: a.copy(), rows)

    @abstractmethod
    def put(self, values: Vector) -> Rows:
        """Bring N numbers to where the rows live."""

    @abstractmethod
    def fetch(self, rows: Rows) -> Vector:
        """Return all the numbers of a vector."""

    @abstractmethod
    def columns(self, features: Indices) -> Samples:
        """Return the samples of some features alone, on a compact copy of them."""

    # Products with X

    @abstractmethod
    def margins(self, w: Vector, b: float = 0.0, support: Indices | None = None) -> Rows:
        """Compute ``X w + b``; `support` holds all that is nonzero in w, a hint for speed."""

    @abstractmethod
    def pull(self, alpha: Rows) -> Vector:
        """Compute ``X'(s alpha)``."""

    @abstractmethod
    def margins_and_pull(self, w: Vector, alpha: Rows) -> tuple[Rows, Vector]:
        """Compute ``X w`` and ``X'(s alpha)`` with one read of X."""

    @abstractmethod
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
        """Update dual variables, all or those of a part of the samples, and g = X'(s alpha) with them: `Design.block_step`."""

    @abstractmethod
    def predictions(self, coef: Vector, *constants: float, less: tuple[Rows, ...] = ()) -> tuple[Rows, Rows]:
        """Compute X coef plus constants in twice the precision, and bounds on the errors: `Design.predictions`."""

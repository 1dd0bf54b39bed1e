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

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from diht.design import Design, Step
from diht.intercept import added, balanced, best_intercept
from diht.losses import Loss
from diht.samples.partition import Blocks

__all__ = ["Chosen", "Rows", "Samples", "added"]

T = TypeVar("T")
Vector = NDArray[np.float64]
Indices = NDArray[np.int64]
Rows: TypeAlias = Any  # N numbers, where the rows live


class Chosen(ABC):
    """A few samples, whose entries may be looked at and changed."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Their number."""

    @abstractmethod
    def values(self, rows: Rows) -> Vector:
        """Return their entries of a vector."""

    @abstractmethod
    def rows_of(self, samples: Any) -> Vector:
        """Return their rows of X, as these or other samples have them."""

    @abstractmethod
    def patched(self, rows: Rows, values: Vector) -> Rows:
        """Return a copy of a vector with other entries of theirs."""


class Samples(ABC):
    """N samples with their targets and weights.

    Attributes
    ----------
    design : Design
        X, asked for nothing that is as long as the samples.
    y, s : Rows
        The targets and the weights.
    whole : bool
        Whether there is one block: a search along the samples may then run where they are.
    """

    whole = False

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

    def any(self, rows: Rows) -> bool:
        """Tell whether a vector has an entry other than zero."""
        return any(self.each(lambda y, s, a: bool(np.any(a)), rows))

    @cached_property
    def heaviest(self) -> float:
        """The largest weight."""
        return max(self.each(lambda y, s: float(s.max())))

    @abstractmethod
    def holds(self, rows: Rows) -> bool:
        """Tell whether something is a vector of these samples, or of others that are as many."""

    @abstractmethod
    def chosen(self, f: Callable[..., Any], *rows: Rows) -> Chosen:
        """Choose the samples for which ``f(y, s, *rows)`` is true."""

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

    def empty(self) -> Rows:
        """Return a vector to be written to."""
        return self.map(lambda y, s: np.empty_like(y))

    # Parts of the samples

    @abstractmethod
    def partition(self, blocks: Blocks, rng: np.random.Generator) -> list[Rows]:
        """Cut the samples at random into a number of parts of (nearly) equal size, or as the user says."""

    @abstractmethod
    def weight(self, part: Rows) -> float:
        """Return the sum of the weights of a part."""

    @abstractmethod
    def columns(self, features: Indices) -> Samples:
        """Return the samples of some features alone, on a compact copy of them."""

    # The intercept

    def best_intercept(self, loss: Loss, u: Rows, start: float = 0.0, compiled: bool = False) -> float:
        """Return the minimiser over b of ``sum_i s_i l(u_i + b, y_i)``, searched from `start`."""
        return best_intercept(self, loss, u, start, compiled)

    def balanced(self, loss: Loss, alpha: Rows) -> Rows:
        """Project `alpha`, in the metric of the weights, on F and ``sum_i s_i alpha_i = 0``, to rounding."""
        return balanced(self, loss, alpha)

    # Products with X

    @abstractmethod
    def spectral_bound(self, part: Rows | None = None) -> float:
        """Return an upper bound on the largest eigenvalue of ``X' diag(s) X``, over a part of the samples or all."""

    @abstractmethod
    def square_sum(self, part: Rows) -> float:
        """Return ``sum_i s_i ||x_i||^2`` over a part of the samples."""

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

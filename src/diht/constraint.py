"""What "sparse" means: the set of supports that a model may have.

Solvers and duality speak to a `Constraint` only; the number k appears nowhere behind this module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from diht.selection import top_k

__all__ = ["Cardinality", "Constraint", "as_constraint"]

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]


class Constraint(ABC):
    r"""A family of supports, closed under taking subsets.

    With :math:`\mathcal{C}` the vectors whose support is in the family, everything the duality needs is the minimiser of
    :math:`\|w - v\|^2` over :math:`\mathcal{C}`, and the value

    .. math:: \nu(v)^2 = \max_{w \in \mathcal{C}} \; 2 w^\top v - \|w\|^2 = \max_{F} \sum_{j \in F} v_j^2 .

    :math:`\nu` is a norm: rounding bounds use its triangle inequality.
    """

    @abstractmethod
    def check(self, n_features: int) -> None:
        """Raise ValueError where the constraint makes no sense for `n_features` features."""

    @abstractmethod
    def select(self, v: Vector) -> Indices:
        """Support of the projection of `v`, ascending; ties are broken by the smaller index."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The largest number of features that a model may have."""

    def threshold(self, v: Vector) -> tuple[Vector, Indices]:
        """Projection of `v` on the constraint set (the paper's hard thresholding H_k), and its support."""
        support = self.select(v)
        w = np.zeros_like(v)
        w[support] = v[support]
        return w, support

    def rethreshold(self, v: Vector, w: Vector, support: Indices) -> Indices:
        """Overwrite `w`, zero outside `support`, by the projection of `v`; touches no more of it than the two supports."""
        new = self.select(v)
        w[support] = 0.0
        w[new] = v[new]
        return new

    def value(self, v: Vector) -> float:
        r""":math:`\nu(v)^2`, the squared norm of the projection (for a cardinality: the sum of the k largest v_j^2)."""
        kept = v[self.select(v)]
        return float(kept @ kept)

    def allows(self, w: Vector) -> bool:
        """Whether the support of `w` is in the family."""
        return bool(np.count_nonzero(w) <= self.size)


@dataclass(frozen=True)
class Cardinality(Constraint):
    """At most `k` nonzero coefficients: the paper's constraint ||w||_0 <= k."""

    k: int

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, Integral):
            raise ValueError(f"k must be a whole number, got {self.k!r}")
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")
        object.__setattr__(self, "k", int(self.k))

    def check(self, n_features: int) -> None:
        """Raise ValueError if k is more than the number of features."""
        if self.k > n_features:
            raise ValueError(f"k must be at most the number of features, got k={self.k} with {n_features} features")

    def select(self, v: Vector) -> Indices:
        """Indices of the k largest |v_j|, ascending."""
        return top_k(v, self.k)

    @property
    def size(self) -> int:
        """The number k itself."""
        return self.k


def as_constraint(k: int | Constraint) -> Constraint:
    """Return a constraint as it is, and a whole number as a `Cardinality`."""
    return k if isinstance(k, Constraint) else Cardinality(k)

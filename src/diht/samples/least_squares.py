"""Least squares on a design: ridge regression, and coordinates in which its columns are orthonormal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from diht.design.base import Design
from diht.numerics.arrays import Vector
from diht.numerics.definite import Definite

__all__ = ["Orthonormal", "orthonormal", "ridge"]


def ridge(design: Design, y: Vector, s: Vector, lam: float) -> Vector | None:
    """Minimise ``sum_i s_i (y_i - x_i.w)^2 + lam ||w||^2`` by the smaller of its two systems; None where that overflows."""
    X = design.toarray(copy=False)
    n, d = X.shape
    root = np.sqrt(s)
    with np.errstate(all="ignore"):
        K = root[:, None] * (X @ X.T) * root if n < d else (X.T * s) @ X
        K[np.diag_indices(len(K))] += lam
        system = Definite(K)
        w = X.T @ (root * system.solve(root * y)) if n < d else system.solve(X.T @ (s * y))
    return w if np.all(np.isfinite(w)) else None


@dataclass(frozen=True, eq=False)
class Orthonormal:
    r"""The columns of a design in coordinates in which they are orthonormal under the weights, :math:`X N^{-1} = Q \Sigma V^\top`.

    Attributes
    ----------
    Q : array of shape (N, rank)
    singular : array of shape (rank,)
        The diagonal of Sigma.
    Vt : array of shape (rank, d)
    norms : array of shape (d,)
        The diagonal of N, the norms of the columns.
    """

    Q: Vector
    singular: Vector
    Vt: Vector
    norms: Vector

    @property
    def independent(self) -> bool:
        """Whether the columns are linearly independent."""
        return len(self.singular) == len(self.norms)

    def coordinates(self, w: Vector) -> Vector:
        """Coordinates of the coefficients w."""
        return np.asarray(self.singular * (self.Vt @ (self.norms * w)))

    def coefficients(self, z: Vector) -> Vector:
        """Coefficients of least norm with the coordinates z."""
        return np.asarray(self.Vt.T @ (z / self.singular) / self.norms)


def orthonormal(design: Design, s: Vector) -> Orthonormal:
    """Decompose the columns of a design; for few features."""
    X = design.toarray()
    norms = np.sqrt(s @ np.square(X))
    norms[norms == 0.0] = 1.0
    X /= norms
    _, singular, Vt = np.linalg.svd(np.sqrt(s)[:, None] * X, full_matrices=False)
    rank = int(np.sum(singular > max(X.shape) * np.finfo(np.float64).eps * singular[0]))
    singular, Vt = singular[:rank], Vt[:rank]
    return Orthonormal(X @ Vt.T / singular, singular, Vt, norms)

r"""Sums of squares and products about the means, of all samples and of those that a fold leaves.

With weights s of sum S, means m and :math:`K = \sum_i s_i (z_i - m)(z_i - m)^\top`, z the columns and the targets, the samples
that are left when others are held out (S', m', K') have

.. math:: K'' = K - K' - \frac{S' S''}{S} (m' - m'')(m' - m'')^\top , \qquad S'' = S - S' , \quad m'' = (S m - S' m') / S'' .

Each is centred by its own means, so that no digits go but those of columns that vary among the samples held out alone; such
columns are computed anew. Nothing is proved from these sums: rounding is left as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from diht.design import affine, as_design
from diht.design.base import Design
from diht.design.gram import BLOCK, CHUNK, gram
from diht.design.sparse import SparseDesign
from diht.numerics.arrays import Indices, Matrix, Vector

__all__ = ["Scatter"]

_LOST = 1e-4  # share of a column's sum of squares below which a difference has too few digits


@dataclass(frozen=True, eq=False)
class Scatter:
    """Weight, means and sums of products of the columns and, last, of the targets.

    Attributes
    ----------
    weight : float
    mean : array of shape (d + 1,)
    matrix : array of shape (d + 1, d + 1)
    """

    weight: float
    mean: Vector
    matrix: Matrix

    @classmethod
    def of(cls, X: Any, y: Vector, s: Vector, n_threads: int | None = None) -> Scatter:
        """Compute the sums of samples with some weights."""
        design, total = as_design(X, n_threads), float(s.sum())
        if total == 0.0:
            return cls(0.0, np.zeros(X.shape[1] + 1), np.zeros((X.shape[1] + 1, X.shape[1] + 1)))
        mean = np.append(design.moments(s / total)[0], float(s @ y) / total)
        if isinstance(design, SparseDesign):
            centred = affine(design, mean[:-1], None, np.empty(0, dtype=np.int64))
            return cls.of_sums(total, mean, gram(centred, y, s, True, np.arange(X.shape[1])).matrix, len(y))
        return cls.of_sums(total, mean, _products(design, y, s, mean), len(y))

    @classmethod
    def of_sums(cls, weight: float, mean: Vector, matrix: Matrix, n_samples: int) -> Scatter:
        """Leave nothing of columns that are constant up to rounding."""
        rounding = n_samples * np.finfo(np.float64).eps * np.abs(mean)
        constant = np.flatnonzero(np.diag(matrix) <= weight * rounding**2)
        matrix[constant] = 0.0
        matrix[:, constant] = 0.0
        return cls(weight, mean, matrix)

    @classmethod
    def added(cls, parts: Sequence[Scatter], n_samples: int) -> Scatter:
        """Return the sums of all from those of parts, which must have some weight together."""
        parts = [part for part in parts if part.weight > 0.0]
        weights = np.array([part.weight for part in parts])
        weight = float(weights.sum())
        mean = weights @ np.stack([part.mean for part in parts]) / weight
        matrix = np.zeros_like(parts[0].matrix)
        for part in parts:
            apart = part.mean - mean
            matrix += part.matrix + part.weight * np.outer(apart, apart)
        return cls.of_sums(weight, mean, matrix, n_samples)

    def left(self, X: Any, y: Vector, s: Vector, held: Indices, n_threads: int | None = None) -> Scatter:
        """Return the sums of the samples that are left when some, which must have less than all of the weight, are held out."""
        if not np.any(s[held]):
            return self
        part = Scatter.of(X[held], y[held], s[held], n_threads)
        weight = self.weight - part.weight
        mean = (self.weight * self.mean - part.weight * part.mean) / weight
        apart = part.mean - mean
        matrix = np.subtract(self.matrix, part.matrix, out=part.matrix)
        matrix -= np.outer(apart * (part.weight * weight / self.weight), apart)
        rest = s.copy()
        rest[held] = 0.0
        lost = np.flatnonzero(np.diag(matrix) <= _LOST * np.diag(self.matrix))
        if len(lost):
            _compute_anew(lost, X, y, rest, mean, matrix)
        return Scatter.of_sums(weight, mean, matrix, len(y))


def _products(design: Design, y: Vector, s: Vector, mean: Vector) -> Matrix:
    """Return the sums of products of dense columns and the targets, less the means, a block of rows at a time."""
    matrix: Any = 0.0
    step = max(1, min(CHUNK // len(mean), BLOCK))
    for start in range(0, len(y), step):
        rows = np.arange(start, min(start + step, len(y)))
        Z = np.column_stack([design.toarray(rows), y[rows]])
        Z -= mean
        Z *= np.sqrt(s[rows])[:, None]
        matrix = Z.T @ Z if start == 0 else matrix + Z.T @ Z
    return np.asarray(matrix)


def _compute_anew(columns: Indices, X: Any, y: Vector, s: Vector, mean: Vector, matrix: Matrix) -> None:
    """Put means and products of some columns, the last of which are the targets, from the samples in place of what is there."""
    d, kept = X.shape[1], np.flatnonzero(s)
    Z = np.empty((len(kept), len(columns)))
    own = columns < d
    picked = X[kept][:, columns[own]]
    Z[:, own] = picked.toarray() if hasattr(picked, "toarray") else picked
    Z[:, ~own] = y[kept][:, None]
    c = s[kept] / s[kept].sum()
    # The mean of a constant column is its value to the last bit.
    mean[columns] = np.where(np.all(Z[0] == Z, axis=0), Z[0], c @ Z)
    Z -= mean[columns]
    Z *= s[kept][:, None]
    products = np.vstack([X[kept].T @ Z, (y[kept] - mean[d]) @ Z])
    # Columns of weighted sum zero: what their factors are centred by does not matter, but for rounding.
    products[:d] -= np.outer(mean[:d], Z.sum(axis=0))
    matrix[:, columns] = products
    matrix[columns] = products.T

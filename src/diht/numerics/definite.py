r"""Systems with a positive definite matrix, whatever the scales of its unknowns and however near to singular it is.

With D the roots of the diagonal, :math:`H = D C D` has a C of unit diagonal, whose condition is nearly the best that a diagonal
scaling can give (van der Sluis, 1969). Its Cholesky factor serves unless a pivot is of the size of its rounding, n u: then C has
eigenvalues that rounding hides, those of dependent columns whose ridge is small, and the eigenvectors of the others take over.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from diht.numerics.arrays import Matrix, Vector
from diht.numerics.threads import factorisation_threads

__all__ = ["Definite"]

_U = 2.0**-53  # unit roundoff


class Definite:
    """A symmetric matrix that is positive definite but for rounding, factorised; NaN comes of one that is not finite.

    Parameters
    ----------
    H : array of shape (n, n)
        The matrix; only read.
    """

    def __init__(self, H: Matrix) -> None:
        n, diagonal = len(H), H.diagonal()
        positive = diagonal > 0.0
        self.scale = np.where(positive, 1.0 / np.sqrt(np.where(positive, diagonal, 1.0)), 0.0)
        self.noise = n * _U
        with factorisation_threads(n):
            self._factorise(H, n)

    def _factorise(self, H: Matrix, n: int) -> None:
        self.factor, failed = dpotrf(self._scaled(H).T, lower=1, overwrite_a=1)
        self.hidden = n == 0 or bool(failed) or not float(self.factor.diagonal().min()) ** 2 > self.noise
        if self.hidden:
            self.values, self.vectors = np.full(n, np.nan), np.zeros((n, n))
            if np.all(np.isfinite(H)):
                self.values, self.vectors = np.linalg.eigh(self._scaled(H))
            self.noise *= float(self.values.max(initial=1.0))

    def _scaled(self, A: Matrix) -> Matrix:
        return np.asarray((A * self.scale[:, None]) * self.scale)

    def solve(self, right: Vector) -> Vector:
        """Return x with H x = `right`; of several that rounding cannot tell apart, the least D x."""
        right = self.scale * right
        if not self.hidden:
            return np.asarray(self.scale * dpotrs(self.factor, right, lower=1)[0])
        seen = ~(self.values <= self.noise)
        basis = self.vectors[:, seen]
        return np.asarray(self.scale * (basis @ ((right @ basis) / self.values[seen])))

    def inverse(self) -> Matrix:
        """Return the inverse, positive definite: an eigenvalue of C that rounding hides counts as large as it can be."""
        if self.hidden:
            inverse = (self.vectors / np.maximum(self.values, self.noise)) @ self.vectors.T
        else:
            lower = np.tril(dpotri(self.factor, lower=1)[0])
            inverse = lower + np.tril(lower, -1).T
        return self._scaled(inverse)

r"""The objective around a model, as a quadratic that knows what every exchange of two features is worth.

For a model fitted on its support S the objective without its intercept (which is eliminated) is, for a step p,

.. math:: \varphi(w + p) \approx \varphi(w) - r^\top p + \tfrac12 p^\top H p , \qquad H = X^\top C X + \lambda I ,

with r = 0 on S, C the diagonal of the curvatures :math:`s_i l''(u_i)` and X centred by them where there is an intercept (its Schur
complement). For the squared loss this is no approximation. With :math:`M = H_{SS}^{-1}`, :math:`B = M H_{S \cdot}` and
:math:`h_j = H_{jj} - H_{jS} B_{\cdot j}` the exchange of i in S for j outside lowers the quadratic by

.. math:: \frac{(r_j + B_{ij} w_i / M_{ii})^2}{2 (h_j + B_{ij}^2 / M_{ii})} - \frac{w_i^2}{2 M_{ii}} ,

what j gains once i has gone, less what leaving i out costs. So one matrix of k rows ranks all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diht.design import Design
from diht.numerics.arrays import Indices, Matrix, Vector
from diht.numerics.definite import Definite
from diht.numerics.threads import in_slices
from diht.problem import Problem
from diht.samples import Curvatures, Rows, Samples

__all__ = ["Exchanged", "Hessian", "Quadratic"]


_MOST_KEPT = 2e7  # entries of the rows of H that are kept
_PARTS, _FEWEST = 8, 256  # into which B is cut, and columns of one


@dataclass(frozen=True, eq=False)
class Hessian:
    """H = A'CA + lam I by its rows, which are kept; zero but for the columns that A stands for."""

    root: Curvatures | None  # gives rows of A'CA, C the diagonal of the curvatures; None where all are known
    columns: Indices
    lam: float
    diagonal: Vector
    known: dict[int, Vector] = field(default_factory=dict)
    n_threads: int = 1

    @classmethod
    def whole(cls, problem: Problem, h: Rows) -> Hessian:
        """Form all of H at once: on short rows that takes less than a few rows of a dense product."""
        H = problem.samples.hessian(h, problem.fit_intercept)
        H[np.diag_indices(len(H))] += problem.lam
        known = dict(enumerate(H))
        return cls(None, np.arange(len(H)), problem.lam, np.diag(H).copy(), known, problem.design.n_threads)

    @classmethod
    def weighted(cls, part: Samples, columns: Indices, h: Rows, problem: Problem) -> Hessian:
        """Take A = X of a part, dense, centred by the weights s h where there is an intercept."""
        root = part.curvature(h, problem.fit_intercept)
        diagonal = np.full(problem.shape[1], problem.lam)
        diagonal[columns] += root.gram_diagonal()
        return cls(root, columns, problem.lam, diagonal, n_threads=problem.design.n_threads)

    def count(self, design: Design) -> None:
        """Count what has been read of A."""
        if self.root is not None:
            self.root.charge(design)

    def rows(self, chosen: Indices) -> Matrix:
        """Return some rows of H; those not known yet come from one product."""
        if self.root is not None and (len(self.known) + len(chosen)) * len(self.diagonal) > _MOST_KEPT:
            self.known.clear()
        new = np.array([j for j in chosen.tolist() if j not in self.known], dtype=np.int64)
        if len(new):
            assert self.root is not None
            products = self.root.gram_rows(np.searchsorted(self.columns, new))
            for j, row in zip(new.tolist(), products, strict=True):
                self.known[j] = np.zeros(len(self.diagonal))
                self.known[j][self.columns] = row
                self.known[j][j] = self.diagonal[j]
        return np.array([self.known[j] for j in chosen.tolist()]).reshape(len(chosen), len(self.diagonal))


class Exchanged(NamedTuple):
    """The support, the coefficients and M after exchanges."""

    support: Indices
    w: Vector
    M: Matrix


@dataclass(eq=False)
class Quadratic:
    """The quadratic around the best model on a support, with what the module's formula needs; `support` is in no order."""

    support: Indices
    rest: Indices  # features of the model that are kept as they are
    w: Vector
    value: float
    r: Vector
    M: Matrix
    B: Matrix
    h: Vector
    hessian: Hessian
    taken: NDArray[np.bool_]  # features that cannot enter
    stays: NDArray[np.bool_]  # features that cannot leave

    @classmethod
    def around(
        cls,
        support: Indices,
        rest: Indices,
        w: Vector,
        value: float,
        r: Vector,
        hessian: Hessian,
        taken: NDArray[np.bool_],
        stays: NDArray[np.bool_],
    ) -> Quadratic:
        """Factorise H on the support."""
        rows = hessian.rows(support)
        M = Definite(rows[:, support]).inverse()
        B, h, r = np.empty_like(rows), hessian.diagonal.copy(), r.copy()

        def some(columns: slice) -> None:
            B[:, columns] = product = np.dot(M, rows[:, columns])
            h[columns] -= np.einsum("ij,ij->j", rows[:, columns], product)

        d = rows.shape[1]
        in_slices(some, d, hessian.n_threads, max(_FEWEST, -(-d // _PARTS)))
        B[:, support] = np.eye(len(support))
        h[support] = r[support] = 0.0
        return cls(support, rest, w.copy(), value, r, M, B, h, hessian, taken, stays)

    def gains(self) -> Matrix:
        """Return by how much each exchange of a row for a column lowers the quadratic; at most 0 for columns that are taken."""
        inverse = 1.0 / self._inverse_diagonal()
        costs = np.where(self.stays[self.support], np.inf, np.square(self.w) * inverse)
        gains = self.B * (self.w * inverse)[:, None]
        gains += self.r
        np.square(gains, out=gains)
        curvature = np.square(self.B)
        curvature *= inverse[:, None]
        curvature += self._curvatures()
        gains /= curvature
        gains -= costs[:, None]
        gains *= 0.5
        return gains

    def best_addition(self) -> int:
        """Return the feature that alone lowers the quadratic most."""
        return int(np.argmax(np.where(self.taken, -1.0, np.square(self.r) / self._curvatures())))

    def _inverse_diagonal(self) -> Vector:
        """Return the diagonal of M, which rounding must not take below 1 / H_jj, nor an H_jj that overflows to zero."""
        least = np.maximum(1.0 / self.hessian.diagonal[self.support], np.finfo(np.float64).tiny)
        return np.maximum(self.M.diagonal(), least)

    def _curvatures(self) -> Vector:
        """Return h, which rounding must not take below lam; infinite where a feature cannot enter."""
        return np.where(self.taken, np.inf, np.maximum(self.h, self.hessian.lam))

    def add(self, j: int) -> None:
        """Take a feature into the support."""
        k = len(self.support)
        self.support, self.w = np.append(self.support, j), np.append(self.w, 0.0)
        M, self.M = self.M, np.zeros((k + 1, k + 1))
        self.B, self.M[:k, :k] = np.concatenate((self.B, np.zeros((1, self.B.shape[1])))), M
        self._enter(k, j)

    def swap(self, row: int, j: int) -> None:
        """Exchange a feature of the support for another."""
        self._leave(row)
        self._enter(row, j)

    def copy(self) -> Quadratic:
        """Return a copy that exchanges may change."""
        support, taken = self.support.copy(), self.taken.copy()
        return replace(self, support=support, taken=taken, r=self.r.copy(), B=self.B.copy(), h=self.h.copy())

    def perturbed(self, rows: Indices) -> Quadratic:
        """Return a copy with the features of some rows exchanged for the best others, one after the other."""
        other = self.copy()
        for row in rows.tolist():
            other._leave(row)
        other.taken[self.support[rows]] = True  # or they would come back at once
        for row in rows.tolist():
            other._enter(row, other.best_addition())
        other.taken[self.support[rows]] = False
        return other

    def _leave(self, row: int) -> None:
        """Take a feature out of the support; its row is zero then."""
        m, beta = self._inverse_diagonal()[row], self.B[row].copy()
        self.value += 0.5 * self.w[row] ** 2 / m
        self.r += beta * (self.w[row] / m)
        self.h += np.square(beta) / m
        self.B -= np.outer(self.M[:, row] / m, beta)
        self.M, self.w = _without(self.M, self.w, row, m)
        self.taken[self.support[row]] = False

    def _enter(self, row: int, j: int) -> None:
        """Take a feature into the support, in a row that is zero."""
        h, beta = max(self.h[j], self.hessian.lam), self.B[:, j].copy()
        t = self.r[j] / h
        self.value -= 0.5 * h * t**2
        of_j = self.hessian.rows(np.array([j]))[0]
        new = of_j - of_j[self.support] @ self.B
        self.r -= new * t
        self.h -= np.square(new) / h
        self.r[j] = self.h[j] = 0.0
        new /= h
        new[j] = 1.0
        self.B -= np.outer(beta, new)
        self.B[row] = new
        self.M, self.w = _with(self.M, self.w, row, beta, h, t)
        self.support[row] = j
        self.taken[j] = True

    def after(self, row: int, j: int) -> Exchanged:
        """Return where an exchange leads."""
        m, beta = self._inverse_diagonal()[row], self.B[row, j]
        h = max(self.h[j] + beta**2 / m, self.hessian.lam)
        t = (self.r[j] + beta * self.w[row] / m) / h
        M, w = _without(self.M, self.w, row, m)
        M, w = _with(M, w, row, self.B[:, j] - self.M[:, row] * (beta / m), h, t)
        support = self.support.copy()
        support[row] = j
        return Exchanged(support, w, M)


def _without(M: Matrix, w: Vector, row: int, diagonal: float) -> tuple[Matrix, Vector]:
    """Return the inverse and the coefficients where a feature leaves, zero in its row; `diagonal` is its entry of M."""
    m = M[:, row] / diagonal
    M, w = M - np.outer(m, M[row]), w - m * w[row]
    M[row], M[:, row], w[row] = 0.0, 0.0, 0.0
    return M, w


def _with(M: Matrix, w: Vector, row: int, beta: Vector, h: float, t: float) -> tuple[Matrix, Vector]:
    """Return the inverse and the coefficients where a feature joins, in a row that is zero, with the coefficient t."""
    column = -beta
    column[row] = 1.0
    return M + np.outer(column, column / h), w + column * t

r"""Gram matrices of some columns and the targets, with a bound on the error of every entry.

With :math:`z_j` a column of the design or the targets y and :math:`C` the weights, :math:`C = S` or, with an intercept,
:math:`C = S - s s^\top / \sum_i s_i` (which centres exactly), the entries are :math:`K_{ij} = z_i^\top C z_j`. For any x, with
:math:`T = \sum_j |x_j| \, \mathrm{size}_j`,

.. math:: |\hat K_{ij} - K_{ij}| \le \mathrm{error} \cdot \mathrm{size}_i \, \mathrm{size}_j , \qquad
          |x^\top (\hat K - K) x| \le \mathrm{error} \cdot T^2 :

what is computed from the Gram matrix alone, without another look at the data, can be made to hold in exact arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from diht.design.base import MANY_COLUMNS, UNIT, Design, Index, gamma
from diht.design.sparse import SparseDesign
from diht.design.view import AffineView
from diht.numerics import exact
from diht.numerics.arrays import Vector
from diht.numerics.threads import blas_threads, run_parts

__all__ = ["Gram", "PreciseGram", "Products", "gram", "gram_of", "precise_gram", "products"]

FLOOR = 2.0**-500  # the least size of a column: covers the products that underflow
BLOCK = 8192  # rows whose products are added up first: the error of a sum grows with the number of its terms
CHUNK = 20_000_000  # entries of the rows that are weighted at a time
PRECISE = 4e6  # operations up to which a Gram matrix is computed in twice the precision: some tenths of a second
SPARSE = 0.1  # fraction of stored entries up to which a sparse product is faster than a dense one


@dataclass(frozen=True, eq=False)
class Gram:
    """The Gram matrix of the columns `features` and, last, of the targets.

    Attributes
    ----------
    features : array of int
    matrix : array of shape (len(features) + 1, len(features) + 1)
    size : array of shape (len(features) + 1,)
        At least the columns' norms.
    error : float
        Bound on the error of every entry, in units of the two sizes.
    """

    features: Index
    matrix: Vector
    size: Vector
    error: float

    @property
    def quadratic(self) -> Vector:
        """The features' own block, G."""
        return self.matrix[:-1, :-1]

    @property
    def linear(self) -> Vector:
        """The products of the features with the targets, h."""
        return self.matrix[:-1, -1]

    def among(self, features: Index) -> Gram:
        """The Gram matrix of some of its features."""
        order = np.argsort(self.features)
        at = np.append(order[self.features[order].searchsorted(features)], len(self.features))
        return Gram(np.asarray(features), self.matrix.take(at, 0).take(at, 1), self.size[at], self.error)

    @property
    def error_norm(self) -> float:
        """Bound on the spectral norm of the error of G."""
        return self.error * float(self.size[:-1] @ self.size[:-1]) * (1.0 + 1e-9)


def gram(design: Design, y: Vector, s: Vector, centred: bool, features: Index, known: Gram | None = None) -> Gram:
    """Compute the Gram matrix of some columns and the targets; `centred` by the weights where there is an intercept.

    `known` is that of the first few of the features: only the other columns are computed.
    """
    total = float(s.sum())
    new = 0 if known is None else len(known.features)
    sums = products(design, y, s, float(s @ y) / total if centred else 0.0, features, new)
    return gram_of(sums, features, getattr(design, "scale", None), total if centred else None, known)


@dataclass(frozen=True, eq=False)
class Products:
    r"""Sums over samples that a Gram matrix is made of; those of several blocks of samples add up.

    Attributes
    ----------
    columns : array of shape (d + 1, d - new)
        Products of all columns, and of the target, with the new columns; of sparse ones as they are stored.
    own, squares, left : arrays of shape (d + 1,)
        Products with the target, weighted squares, and weighted sums, of every column and the target.
    sparse : bool
        Whether columns are still to be centred and scaled.
    terms : int
        Roundings of a sum.
    """

    columns: Vector
    own: Vector
    squares: Vector
    left: Vector
    sparse: bool
    terms: int

    @staticmethod
    def added(parts: list[Products]) -> Products:
        """Return the sums over all samples."""
        columns, own, squares, left = (
            np.asarray(sum(getattr(part, name) for part in parts)) for name in ("columns", "own", "squares", "left")
        )
        sparse, terms = parts[0].sparse, [part.terms for part in parts]
        return Products(
            columns, own, squares, left, sparse, (sum(terms) if sparse else max(terms)) + len(parts)
        )  # fmt: skip


def products(
    design: Design, y: Vector, s: Vector, level: float, features: Index, new: int, sparse: bool | None = None
) -> Products:
    """Return the sums of some columns, those from `new` on with all, and the targets less a level.

    Any level is as good where the matrix is centred; the mean is the best conditioned. `sparse` says whether stored entries are
    paired, where blocks of samples have to agree.
    """
    everything = np.array_equal(features, np.arange(design.shape[1])) and not (sparse and len(design.parts()) > 1)
    part = design if everything else design.columns(features)
    base = part.base if isinstance(part, AffineView) else part
    if sparse is None:
        sparse = isinstance(base, SparseDesign) and base._stored <= SPARSE * base.shape[0] * base.shape[1]
    sums = (_sparse_products if sparse else _dense_products)(part, y - level if level else y, s, new)
    if not everything:
        design.count_reads_of(part)
    return sums


def gram_of(sums: Products, features: Index, scale: Vector | None, total: float | None, known: Gram | None) -> Gram:
    """Return the Gram matrix of sums; `total`, of the weights, where it is centred; `scale` is that of all columns."""
    n, new = len(features), 0 if known is None else len(known.features)
    scale = None if scale is None else scale[features]
    columns, own, size, error = (_sparse_matrix if sums.sparse else _dense_matrix)(sums, scale, total)
    square = columns[new:n]  # symmetric to the last bit
    columns[new:n] = np.triu(square) + np.triu(square, 1).T
    matrix = np.empty((n + 1, n + 1))
    if known is not None:
        matrix[:new, :new] = known.quadratic
        size[:new], error = np.maximum(size[:new], known.size[:-1]), max(error, known.error)
    matrix[:, new:n], matrix[new:n, :new] = columns, columns[:new].T
    matrix[:n, n] = matrix[n, :n] = own[:n]
    matrix[n, n] = own[n]
    return Gram(features, matrix, size, error)


@dataclass(frozen=True, eq=False)
class PreciseGram:
    r"""The Gram matrix of all columns, centred but not scaled, and of the targets, in twice the precision.

    Attributes
    ----------
    high, low : arrays of shape (d + 1, d + 1)
        Their sum is the matrix, up to `error` in units of the two sizes.
    size : array of shape (d + 1,)
        At least the columns' norms.
    error : float
    scale : array of shape (d,) or None
        The scales of the columns.
    """

    high: Vector
    low: Vector
    size: Vector
    error: float
    scale: Vector | None

    def rounded(self, features: Index) -> Gram:
        """The Gram matrix of some features in float64: each entry is off by the rounding of a sum and of two divisions."""
        on, scale = np.append(features, len(self.high) - 1), np.ones(len(features) + 1)
        if self.scale is not None:
            scale[:-1] = self.scale[features]
        matrix = (self.high[np.ix_(on, on)] + self.low[np.ix_(on, on)]) / scale[:, None] / scale
        matrix = np.triu(matrix) + np.triu(matrix, 1).T  # symmetric to the last bit
        size = self.size[on] / scale * (1.0 + 1e-9) + FLOOR
        return Gram(np.asarray(features), matrix, size, self.error + 8.0 * UNIT)

    def residual(self, p: Vector, features: Index) -> tuple[Vector, Vector, float, float]:
        r"""Return :math:`h - G p` on some features with bounds on its errors, and :math:`y^\top C y - p^\top G p` with one, too.

        p, which is zero elsewhere, is first rounded such that p divided by the scales is a float64.
        """
        on = np.append(features, len(self.high) - 1)
        x = p[features] if self.scale is None else p[features] / self.scale[features]
        v, at = np.append(-x, 1.0), np.ix_(on, on)
        high, low = exact.matmul(self.high[at], v[:, None])
        left = high[:, 0] + (low[:, 0] + self.low[at] @ v)
        size = self.size[on]
        off = (self.error + 8.0 * float(gamma(len(on) + 8)) ** 2) * float(
            np.abs(v) @ size
        ) * size + 2.0 * UNIT * np.abs(left)
        terms = np.append(left[-1], x * left[:-1])
        total = float(np.sum(terms))
        lost = float(np.abs(v) @ off) + 2.0 * float(gamma(len(on) + 4)) * float(np.abs(terms).sum())
        if self.scale is None:
            return left[:-1], off[:-1], total, lost
        q = self.scale[features]
        return left[:-1] / q, off[:-1] / q + 2.0 * UNIT * np.abs(left[:-1] / q), total, lost


def precise_gram(design: Design, y: Vector, s: Vector, centred: bool) -> PreciseGram | None:
    r"""Compute the Gram matrix in twice the precision; None where it is too large for that.

    The differences of the data and their centres are exact as sums of two numbers, and so are their products with the weights.
    What is left of the means after centring, t, takes :math:`t t^\top / \\sum s` off.
    """
    n, d = design.shape
    if float(n) * (d + 1) ** 2 > PRECISE:
        return None
    center, scale = getattr(design, "center", None), getattr(design, "scale", None)
    total = float(s.sum())
    means = np.append(np.zeros(d) if center is None else center, float(s @ y) / total if centred else 0.0)
    high, low = exact.two_sum(np.column_stack([design.stored.toarray(), y]), -means)
    weighted, rest = exact.two_product(s[:, None], high)
    rest = rest + s[:, None] * low
    matrix, small = exact.matmul(weighted.T, high)
    small += rest.T @ high + weighted.T @ low
    if centred:
        sums, tail = exact.matmul(np.ones((1, n)), weighted)
        left = (sums + (tail + rest.sum(axis=0)))[0]
        small -= np.outer(left, left) / total
    size = np.sqrt(np.square(high).T @ s) * (1.0 + 1e-9) + FLOOR
    return PreciseGram(matrix, small, size, 64.0 * float(gamma(n + 16)) ** 2, scale)


def _dense_products(part: Design, target: Vector, s: Vector, new: int) -> Products:
    """Products of all columns with those from `new` on, and with the target, of columns as they are centred and scaled."""
    n, d = part.shape
    root = np.sqrt(s)
    step = max(1, min(CHUNK // (d + 1), BLOCK))

    def sums(first: int, last: int) -> list[Vector]:
        columns, own, squares, left = np.empty((d, d - new)), np.zeros(d + 1), np.zeros(d + 1), np.zeros(d + 1)
        for start in range(first, last, step):
            rows = np.arange(start, min(start + step, last))
            Z, r = part.toarray(None if len(rows) == n else rows), root[rows] * target[rows]
            Z *= root[rows, None]
            # The same operand twice: BLAS then computes one triangle only.
            product = np.dot(Z.T, Z if new == 0 else Z[:, new:])
            columns[:] = product if start == first else columns + product
            own += np.append(np.dot(r, Z), np.dot(r, r))
            squares += np.append(np.einsum("ij,ij->j", Z, Z), np.dot(r, r))
            left += np.append(np.dot(root[rows], Z), np.dot(root[rows], r))
        return [columns, own, squares, left]

    many, n_blocks = d > MANY_COLUMNS, -(-n // step)
    n_parts = 1 if many else max(1, min(part.n_threads, n_blocks))
    with blas_threads(many):
        parts = run_parts(sums, list(pairwise(min(n, n_blocks * t // n_parts * step) for t in range(n_parts + 1))))
    columns, own, squares, left = (np.asarray(sum(each)) for each in zip(*parts, strict=True))
    terms = min(n, step) + n_blocks + n_parts + 32  # of a sum within a block, and of those of the blocks
    return Products(np.vstack([columns, own[new:d]]), own, squares, left, False, terms)


def _dense_matrix(sums: Products, scale: Vector | None, total: float | None) -> tuple[Vector, Vector, Vector, float]:
    r"""Entries, sizes and error, of dense columns.

    Every factor :math:`\sqrt{s_i} z_{ij}` has a relative error of a few units, a product of two of them one of
    :math:`\gamma_n` in units of the norms, n the rows of a block and the number of blocks. The design is centred up to the rounding
    of its means: what is left, :math:`t_j = z_j^\top s`, takes :math:`t_i t_j / \sum s` off the entries, and joins the error.
    """
    error = 2.0 * float(gamma(sums.terms))
    size = np.sqrt(sums.squares) * (1.0 + 1e-9 + error) + FLOOR
    if total is not None:
        left = np.abs(sums.left) / float(np.sqrt(total)) + error * size
        size = size + left * (1.0 + 1e-9) / np.sqrt(error)
    return sums.columns, sums.own, size, error * (1.0 + 1e-6)


def _sparse_products(part: Design, target: Vector, s: Vector, new: int) -> Products:
    """The same of stored entries, before they are centred and scaled."""
    import scipy.sparse as sp

    n, d = part.shape
    base: Any = part.base if isinstance(part, AffineView) else part
    X = sp.csr_array(base._by_rows(), shape=base.shape, copy=False).astype(np.float64)
    weighted = sp.csr_array(X.multiply(s[:, None]))
    columns: Any = np.empty((d + 1, d - new))
    columns[:d] = (X.T @ weighted[:, new:]).toarray()
    columns[d] = weighted[:, new:].T @ target
    own = np.append(weighted.T @ target, float(s @ target**2))
    squares = np.append(weighted.multiply(X).sum(axis=0), own[d])
    return Products(columns, own, squares, np.append(weighted.sum(axis=0), float(s @ target)), True, n + 32)


def _sparse_matrix(sums: Products, scale: Vector | None, total: float | None) -> tuple[Vector, Vector, Vector, float]:
    r"""Entries, sizes and error: :math:`X^\top S X - f f^\top / \sum s` with f = X's, divided by the scales.

    Sizes are those of the columns before centring, for so large are the errors.
    """
    columns, own, d = sums.columns, sums.own, len(sums.own) - 1
    new = d - columns.shape[1]
    size = np.sqrt(sums.squares) * (1.0 + 1e-9 + float(gamma(sums.terms))) + FLOOR
    if total is not None:
        f = sums.left
        columns = columns - np.outer(f, f[new:d] / total)
        own = own - f * (f[d] / total)
    if scale is not None:
        q = np.append(scale, 1.0)
        columns, own, size = columns / q[:, None] / scale[new:], own / q, size / q * (1.0 + 1e-12) + FLOOR
    return columns, own, size, 16.0 * float(gamma(sums.terms))

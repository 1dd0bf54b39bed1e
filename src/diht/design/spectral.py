"""Safe upper bounds on the largest singular value of a weighted design."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np

from diht.design.base import Design, Index, gamma
from diht.design.step import DualState, Step
from diht.design.view import AffineView
from diht.numerics.arrays import Vector

# Relative margin for the rounding of an eigenvalue that is computed.
MARGIN = 1e-10
# The exact eigenvalue is computed if the smaller side, the dense entries and the multiplications are at most these.
GRAM_SIDE, GRAM_ENTRIES, GRAM_FLOPS = 600, 4e6, 5e9
# Iterations of the nonnegative bound, and the ratio to a lower bound at which it is good enough.
POSITIVE_STEPS, GOOD_RATIO = 8, 1.02
# Steps of Lanczos' method, the probability that its bound fails, and the factor that it must promise to gain.
LANCZOS_STEPS, FAILURE, LANCZOS_GAIN = 25, 1e-10, 1.25

# The last bound over all rows of each design, with its weights: several methods ask for the same one.
_known: WeakKeyDictionary[Design, tuple[Vector, float]] = WeakKeyDictionary()


def spectral_bound(design: Design, s: Vector, rows: Index | None = None) -> float:
    r"""Bound :math:`\sigma_{\max}(\mathrm{diag}(\sqrt s) X)^2`, the largest eigenvalue of :math:`X^\top \mathrm{diag}(s) X`.

    The least of these is returned, the costly ones only where they may help:

    - small matrices: the eigenvalue itself, from the smaller Gram matrix, with a bound on its rounding error;
    - the Frobenius norm :math:`\sum_i s_i \|x_i\|^2`;
    - data without negative entries: the bound of Collatz and Wielandt. For a nonnegative matrix :math:`A` and any
      :math:`z > 0`, the spectral radius is at most :math:`\max_j (A z)_j / z_j`; a few power iterations bring that within some
      percent. Centring at the weighted mean is a projection, which only lowers the norm; another center :math:`m` than the
      mean :math:`\bar x` of these rows adds :math:`\sum_i s_i \|m - \bar x\|^2`, for the two parts are orthogonal;
    - Lanczos' method from a random start, whose value after q steps lies below :math:`(1 - \epsilon) \lambda_{\max}` with
      probability at most :math:`1.648 \sqrt d \exp(-\sqrt\epsilon (2 q - 1))` (Kuczynski and Wozniakowski, 1992).

    All but the last are rigorous; that one fails with a probability of at most 1e-10. The start is the same in each call.

    Parameters
    ----------
    design : Design
    s : (N,) array of nonnegative weights
    rows : array of int, optional
        Restrict X and s to these rows.

    Returns
    -------
    float
    """
    block = WeightedRows.of(design, s, rows)
    known = _known.get(design)
    if rows is None and known is not None and np.array_equal(known[0], block.s):
        return known[1]
    bound = bound_of(block) if block.weights.size else 0.0
    if rows is None:
        _known[design] = block.s.copy(), bound
    return bound


class Weighted(Protocol):
    """Rows with their weights, as far as a bound needs to know them."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and of the columns."""

    @property
    def center(self) -> Vector | None:
        """What is subtracted from the columns on the way."""

    @property
    def scale(self) -> Vector | None:
        """What the columns are divided by on the way."""

    @property
    def is_small(self) -> bool:
        """Whether the smaller Gram matrix costs next to nothing."""

    def total(self) -> float:
        """Return the sum of the weights."""

    def squares(self) -> float:
        """Return ``sum_i s_i ||x_i||^2``."""

    def is_nonnegative(self) -> bool:
        """Whether no stored entry is negative."""

    def sums(self) -> Vector:
        """Compute ``X's``, not centred."""

    def normal_product(self, z: Vector, centred: bool = True) -> Vector:
        """Compute ``X' diag(s) X z``."""

    def gram(self) -> Vector:
        """Compute the smaller Gram matrix."""


def bound_of(block: Weighted) -> float:
    """Return the least of the bounds that are worth their cost."""
    bound = _frobenius(block)
    if block.is_small:
        return min(bound, _gram_bound(block, bound))
    lower = 0.0
    if block.is_nonnegative():
        positive, lower = _positive_bound(block)
        bound = min(bound, positive)
    return min(bound, _lanczos_bound(block, bound, lower))


@dataclass(frozen=True)
class WeightedRows:
    """Some rows of a design with their weights."""

    design: Design
    s: Vector
    rows: Index | None
    weights: Vector  # s at these rows

    @staticmethod
    def of(design: Design, s: Vector, rows: Index | None) -> WeightedRows:
        """Take some rows of a design, or all."""
        s = np.asarray(s, dtype=np.float64)
        rows = None if rows is None else np.asarray(rows, dtype=np.int64)
        return WeightedRows(design, s, rows, s if rows is None else s[rows])

    @property
    def shape(self) -> tuple[int, int]:
        """The number of these rows, and of the columns."""
        return self.weights.size, self.design.shape[1]

    @property
    def center(self) -> Vector | None:
        """What is subtracted from the columns on the way."""
        return self.design.center if isinstance(self.design, AffineView) else None

    @property
    def scale(self) -> Vector | None:
        """What the columns are divided by on the way."""
        return self.design.scale if isinstance(self.design, AffineView) else None

    @property
    def is_small(self) -> bool:
        """Whether the smaller Gram matrix costs next to nothing."""
        n, d = self.shape
        if n <= d:
            return n <= GRAM_SIDE and n * d <= GRAM_ENTRIES and n * n * d <= GRAM_FLOPS
        return has_small_gram(n, d)

    def total(self) -> float:
        """Return the sum of the weights."""
        return float(self.weights.sum())

    def squares(self) -> float:
        """Return ``sum_i s_i ||x_i||^2``."""
        norms = self.design.row_norms_sq()
        return float(self.weights @ (norms if self.rows is None else norms[self.rows]))

    def is_nonnegative(self) -> bool:
        """Whether no stored entry is negative."""
        return self.design.is_nonnegative()

    def _uncentred(self) -> Design:
        view = self.design
        return AffineView(view.base, None, view.scale) if isinstance(view, AffineView) else view

    def sums(self) -> Vector:
        """Compute ``X's``, not centred."""
        return self._uncentred().rmatvec(self.weights, self.rows)

    def normal_product(self, z: Vector, centred: bool = True) -> Vector:
        """Compute ``X' diag(s) X z`` over the rows, with one read of them."""
        n, d = self.design.shape
        g, zero = np.zeros(d), np.zeros(n)
        step = Step(None, "margin", store=False)
        design = self.design if centred else self._uncentred()
        design.block_step(step, z, 0.0, DualState(zero, g), zero, self.s, self.rows)
        return g

    def gram(self) -> Vector:
        """Compute the smaller Gram matrix."""
        return self._gram_of_rows() if self.weights.size <= self.design.shape[1] else self.gram_of_columns()

    def _gram_of_rows(self) -> Vector:
        part = self._weighted(np.arange(self.weights.size))
        return np.asarray(part @ part.T)

    def gram_of_columns(self) -> Vector:
        """Compute ``X' diag(s) X``, some rows at a time."""
        n, d = self.shape
        gram, chunk = np.zeros((d, d)), max(1, int(GRAM_ENTRIES) // (4 * d))
        for start in range(0, n, chunk):
            part = self._weighted(np.arange(start, min(start + chunk, n)))
            gram += part.T @ part
        return gram

    def _weighted(self, at: Index) -> Vector:
        part = self.design.toarray(at if self.rows is None else self.rows[at])
        part *= np.sqrt(self.weights[at])[:, None]
        return part


def has_small_gram(n: int, d: int) -> bool:
    """Whether the Gram matrix of the columns costs next to nothing."""
    return d <= GRAM_SIDE and n * d * d <= GRAM_FLOPS


def _frobenius(block: Weighted) -> float:
    """Return the sum of the weighted squared row norms, rounded upwards."""
    total = block.squares()
    n, d = block.shape
    if block.center is not None:
        # The norm of the center is added and subtracted on the way, so its rounding is part of the error.
        center = block.center if block.scale is None else block.center / block.scale
        total += 4.0 * float(gamma(2 * d + 20)) * float(center @ center) * block.total()
    return total * (1.0 + MARGIN + float(gamma(n + 2 * d + 20)))


def _gram_bound(block: Weighted, frobenius: float) -> float:
    """Return the largest eigenvalue of the smaller Gram matrix plus a bound on its error, relative to the Frobenius norm."""
    largest = max(float(np.linalg.eigvalsh(block.gram())[-1]), 0.0)
    return largest * (1.0 + MARGIN) + float(gamma(max(block.shape) + 50)) * frobenius


def _positive_bound(block: Weighted) -> tuple[float, float]:
    """Return the bound of Collatz and Wielandt for nonnegative data, and a lower bound if there is no center."""
    center, scale = block.center, block.scale
    n, d = block.shape
    z, total = block.sums(), block.total()
    shift = 0.0
    if center is not None and total > 0.0:
        shift = total * float(np.sum((center / (1.0 if scale is None else scale) - z / total) ** 2))
    filled = z > 0.0  # the other columns are zero in all of these rows
    bound, lower = math.inf if filled.any() else 0.0, 0.0
    for _ in range(POSITIVE_STEPS if filled.any() else 0):
        # Any positive z will do: a floor keeps the quotients clear of underflow.
        z = np.where(filled, np.maximum(z / z.max(), 1e-100), 0.0)
        g = block.normal_product(z, centred=False)
        bound = min(bound, float(np.max(g[filled] / z[filled])))
        lower = max(lower, float(z @ g) / float(z @ z))
        if bound <= GOOD_RATIO * lower:
            break
        z = g
    bound = (bound + shift) * (1.0 + MARGIN + float(gamma(2 * (n + d) + 50)))
    return bound, lower if center is None else 0.0


def _lanczos_bound(block: Weighted, bound: float, lower: float) -> float:
    """Return a bound by Lanczos' method, or the given one as soon as it is clear that it cannot be beaten."""
    d = block.shape[1]
    log_failure = math.log(1.648 * math.sqrt(d) / FAILURE)
    slack = [min(1.0, (log_failure / (2 * q - 1)) ** 2) for q in range(1, LANCZOS_STEPS + 1)]
    worth = bound * (1.0 - slack[-1]) / LANCZOS_GAIN  # a larger value cannot lead to a bound that is much better
    if lower >= worth:
        return bound
    v = np.random.default_rng(0).standard_normal(d)
    v /= np.linalg.norm(v)
    previous, beta = np.zeros(d), 0.0
    tridiagonal = np.zeros((LANCZOS_STEPS + 1, LANCZOS_STEPS + 1))
    largest = 0.0
    for q in range(LANCZOS_STEPS):
        g = block.normal_product(v) - beta * previous
        tridiagonal[q, q] = v @ g
        g -= tridiagonal[q, q] * v
        largest = float(np.linalg.eigvalsh(tridiagonal[: q + 1, : q + 1])[-1])
        if slack[q] < 1.0:
            bound = min(bound, largest * (1.0 + 1e-6) / (1.0 - slack[q]))
        if largest >= worth:
            break
        beta = float(np.linalg.norm(g))
        if beta <= 1e-12 * largest:  # an invariant subspace, which from a random start holds the whole range
            break
        tridiagonal[q, q + 1] = tridiagonal[q + 1, q] = beta
        previous, v = v, g / beta
    return bound

r"""The squared loss's own bound: curvature of the data moved into the ridge.

Let G = X'CX be the Gram matrix of the features J in play (C the weights, which centre where there is an intercept) and
:math:`0 \le \sigma \le \lambda_{\min}(G)`. The objective is the same with :math:`A = G - \sigma I`, which is still positive
semidefinite, and the ridge :math:`\lambda' = \lambda + 2 \sigma`, but its relaxation is tighter. For any p

.. math::

    B(p) &= r^\top C r + 2 p^\top X^\top C r + \sigma \|p\|^2 - \tfrac{2}{\lambda'} \nu(c)^2, \\
    r &= y - X p, \qquad c = X^\top C r + \sigma p,

is a lower bound on every allowed model on J, for :math:`w^\top A w \ge 2 p^\top A w - p^\top A p`. With :math:`\sigma = 0` it is
the dual's value at :math:`\alpha = -2 r`; its maximum is the optimum of the relaxed problem.

Where J is not all features, each model that has a place for another one has an objective of at least the `ceiling` U: then
:math:`\min(U, B(p))` bounds them all. Columns that are zero may be left out of J all the same: a model that uses one is no better
than the same model without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from diht.bounds.duality import _ELEMENTWISE, _PAIRWISE, _TINY, _U, Bound, Indices, Screening, Vector, _norm, _raised
from diht.constraints.base import Constraint
from diht.design.base import gamma
from diht.design.gram import Gram, PreciseGram
from diht.numerics.exact import CLEAR
from diht.samples import Rows, added

if TYPE_CHECKING:
    from diht.problem import Problem

__all__ = [
    "ShiftedBound",
    "in_play",
    "is_proved",
    "others",
    "outside_play",
    "problem_gram",
    "shifted_bound",
    "smallest_eigenvalue",
]

_SMALL = 300  # features up to which all eigenvalues are computed
# Fractions of the estimated eigenvalue that are tried, one after the other: each costs a factorisation.
_TRIALS = (1.0 - 1e-6, 1.0 - 1e-4, 0.99, 0.9, 0.5, 0.1)


# ---------------------------------------------------------------------------------------------------------------------
# The shift


def problem_gram(problem: Problem, features: Indices | None = None, known: Gram | None = None) -> Gram:
    """Gram matrix of some features of a problem, all by default, and of its targets."""
    features = np.arange(problem.shape[1]) if features is None else np.asarray(features, dtype=np.int64)
    return problem.samples.gram(features, problem.fit_intercept, known)


def smallest_eigenvalue(problem: Problem, features: Indices | None = None, known: Gram | None = None) -> float:
    r"""Return a number below the smallest eigenvalue of the exact Gram matrix of some features; 0 if none is proved.

    It is estimated (by Lanczos' method on the inverse) and lowered until `is_proved` holds. `known` is the Gram matrix of these
    features, where it is at hand.
    """
    n_features = problem.shape[1] if features is None else len(features)
    if n_features == 0 or n_features + problem.fit_intercept > problem.samples.n_weighted:
        return 0.0
    known = problem_gram(problem, features) if known is None else known
    estimate = _estimate(known)
    for fraction in _TRIALS if estimate > 0.0 else ():
        sigma = fraction * estimate
        if is_proved(known, sigma):
            return sigma
    return 0.0


def is_proved(known: Gram, sigma: float) -> bool:
    r"""Whether a factorisation proves that :math:`G - \sigma I` is positive definite, G being the exact Gram matrix.

    Scaled to about unit columns by powers of two, D, it is to be shown of :math:`D^{-1} G D^{-1} - \sigma D^{-2}`. A Cholesky
    factorisation of n columns that succeeds on a matrix M is the exact one of :math:`M + E` with
    :math:`\|E\| \le \gamma_{n+1} \mathrm{tr}(M) / (1 - \gamma_{n+1})` (Rump, 2006), in any order of its sums. To it comes the
    error of the Gram matrix; twice their sum is subtracted from the diagonal beforehand.
    """
    from scipy.linalg.lapack import dpotrf

    if not sigma > 0.0:
        return sigma == 0.0
    scaled, scale = _scaled(known)
    n = len(scale)
    diagonal = np.diag(scaled).copy()
    shift = sigma / scale**2
    sizes = known.size[:-1] / scale
    margin = float(known.error * (sizes @ sizes) + gamma(2 * n + 16) * np.abs(diagonal).sum())
    margin += 8.0 * _U * float((diagonal + shift).max()) + n * 2.0**-1000
    if not np.isfinite(margin) or np.any(diagonal - shift - 2.0 * margin <= 0.0):
        return False
    scaled[np.diag_indices(n)] = diagonal - shift - 2.0 * margin
    factor, info = dpotrf(scaled.T, lower=1, clean=0, overwrite_a=1)
    return bool(info == 0 and np.all(np.isfinite(np.diag(factor))))


def _scaled(known: Gram) -> tuple[Vector, Vector]:
    """Return a copy of G with its columns scaled to norms of about 1, and the powers of two that did it."""
    G = known.quadratic
    norms = np.sqrt(np.maximum(np.diag(G), 2.0**-900))
    scale = np.asarray(2.0 ** np.round(np.log2(norms)), dtype=np.float64)
    return G / scale[:, None] / scale, scale


def _estimate(known: Gram) -> float:
    """About the smallest eigenvalue of G, or 0 where it cannot be told from 0."""
    from scipy.linalg.lapack import dpotrf, dpotrs
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    n = len(known.features)
    if n <= _SMALL and np.ptp(np.log2(known.size[:-1])) < 10.0:
        return float(np.linalg.eigvalsh(known.quadratic)[0])
    scaled, scale = _scaled(known)
    factor, info = dpotrf(scaled.T, lower=1, clean=0, overwrite_a=1)
    if info != 0:
        return 0.0
    smallest = float(scale.min())  # the units of the inverse
    unit = smallest / scale
    if n < 3:
        return smallest**2 / float(np.linalg.norm(unit[:, None] * dpotrs(factor, np.diag(unit), lower=1)[0], 2))
    inverse = LinearOperator(
        (n, n), matvec=lambda v: unit * dpotrs(factor, unit * v.ravel(), lower=1)[0].ravel(), dtype=float
    )
    try:
        start = np.random.default_rng(0).standard_normal(n)
        largest = float(eigsh(inverse, k=1, which="LA", tol=1e-3, v0=start, return_eigenvectors=False)[0])
    except ArpackError:
        return 0.0
    return smallest**2 / largest if largest > 0.0 else 0.0


# ---------------------------------------------------------------------------------------------------------------------
# The bound


@dataclass(frozen=True, eq=False)
class ShiftedBound(Bound):
    r"""The bound :math:`\min(U, B(p))` of a shift, and what proves it.

    Attributes
    ----------
    value, alpha, rounding
        As in `Bound`; alpha is :math:`-2 (y - Xp)`, centred where there is an intercept.
    p : array of shape (d,)
        Where the shifted loss is linearised; zero outside `features`.
    sigma : float
        The shift, at most the smallest eigenvalue of the Gram matrix of `features`.
    features : array of int
        The features J in play, ascending.
    ceiling : float
        A model with a place for a feature outside J has no objective below it.
    on_features : float
        B(p), safe: a bound on the models that use features of J only.
    origin : Bound or None
        The bound whose screening leaves only J below the ceiling; None where that is known otherwise, or J is everything.
    """

    p: Vector
    sigma: float
    features: Indices
    ceiling: float
    on_features: float
    origin: Bound | None

    def renewed(self, problem: Problem) -> Bound:
        """Compute the bound again: what features outside J cost, that sigma is a shift, and the value at p."""
        d = problem.shape[1]
        if not problem.loss.is_squared_error or self.p.shape != (d,):
            return super().renewed(problem)
        origin, ceiling = None if self.origin is None else self.origin.renewed(problem), np.inf
        if origin is not None:
            ceiling = outside_play(problem, origin.screening(problem), self.features)
        elif len(others(problem, self.features)):
            return super().renewed(problem)  # nothing here shows what the other features cost
        sigma = self.sigma if is_proved(problem_gram(problem, self.features), self.sigma) else 0.0
        bound = shifted_bound(problem, self.p, sigma, self.features, ceiling, origin)
        return bound if origin is None or bound.value >= origin.value else origin

    def screening(self, problem: Problem) -> Screening:
        """Bound the models without, and with, each feature: the falls of nu(c)^2 raise B(p), up to the ceiling."""
        evaluated = _evaluate(problem, self.p, self.sigma, self.features, problem.constraint)
        squares, quarter = np.square(evaluated.c), 0.25 * (problem.lam + 2.0 * self.sigma) * (1.0 + 8.0 * _U)
        without, within = (
            np.minimum(_raised(evaluated.safe, fall, squares, quarter), self.ceiling)
            for fall in problem.constraint.forcing(evaluated.c)
        )
        elsewhere = others(problem, self.features)
        without[elsewhere], within[elsewhere] = self.value, self.ceiling
        screening = Screening(without, within).above(self.value)
        return screening if self.origin is None else screening.merged(self.origin.screening(problem))


def in_play(problem: Problem, screening: Screening, objective: float) -> tuple[Indices, float]:
    """Features that a best model with an objective of at most this may use, and the ceiling: what any other costs at least."""
    left = np.flatnonzero(screening.within <= objective)
    held = np.setdiff1d(left, _removable(problem))
    features = held if len(held) else left  # where all are zeros, they stay
    return features, outside_play(problem, screening, features)


def outside_play(problem: Problem, screening: Screening, features: Indices) -> float:
    """Return what a model with a place for another feature than these costs at least, columns of zeros aside."""
    return float(screening.within[others(problem, features)].min(initial=np.inf))


def others(problem: Problem, features: Indices) -> Indices:
    """Return the features besides these, columns of zeros aside."""
    rest = np.ones(problem.shape[1], dtype=bool)
    rest[features] = rest[_removable(problem)] = False
    return np.flatnonzero(rest)


def _removable(problem: Problem) -> Indices:
    """Return the columns of zeros, but for those that are to be kept, and for groups, which stay whole."""
    if not problem.constraint.is_plain:
        return np.empty(0, dtype=np.int64)
    return np.setdiff1d(problem.null, problem.constraint.free(problem.shape[1])[1])


def shifted_bound(
    problem: Problem,
    p: Vector,
    sigma: float = 0.0,
    features: Indices | None = None,
    ceiling: float = np.inf,
    origin: Bound | None = None,
    constraint: Constraint | None = None,
) -> ShiftedBound:
    """B(p) less all that rounding can have added to it, for a `sigma` that `smallest_eigenvalue` returned (or 0).

    `constraint` may be a part of the problem's, such as a node of a search tree; the bound then speaks of that part only.
    """
    if not problem.loss.is_squared_error:
        raise ValueError(f"a shift needs the squared loss, got {problem.loss}")
    everything = np.arange(problem.shape[1])
    features = everything if features is None else np.unique(np.asarray(features, dtype=np.int64))
    if not len(others(problem, features)):
        ceiling = np.inf
    if np.any(p[np.setdiff1d(everything, features)]):
        raise ValueError("p must be zero outside the features")
    constraint = problem.constraint if constraint is None else constraint
    evaluated = _evaluate(problem, p, sigma, features, constraint)
    safe = float(max(evaluated.safe, 0.0))
    return ShiftedBound(
        value=float(min(ceiling, safe)),
        alpha=problem.samples.map(lambda y, s, r: -2.0 * r, evaluated.r),
        rounding=(evaluated.rounding if safe > 0.0 else 0.0) + (0.0 if origin is None else 2.0 * origin.rounding),
        p=p,
        sigma=sigma,
        features=features,
        ceiling=ceiling,
        on_features=safe,
        origin=origin,
    )


@dataclass(frozen=True, eq=False)
class _Evaluated:
    r: Rows  # y - Xp, centred where there is an intercept
    c: Vector  # zero outside the features
    value: float
    safe: float

    @property
    def rounding(self) -> float:
        """What was subtracted from the value."""
        return self.value - self.safe


def _evaluate(problem: Problem, p: Vector, sigma: float, features: Indices, constraint: Constraint) -> _Evaluated:
    """Compute B(p), and B(p) less what rounding can have added; in twice the precision where that counts."""
    rough = _from_data(problem, p, sigma, features, constraint)
    if rough.rounding <= CLEAR * abs(rough.value) or problem.precise_gram is None:
        return rough
    fine = _from_gram(problem, problem.precise_gram, rough.r, p, sigma, features, constraint)
    return fine if fine.safe > rough.safe else rough


def _from_data(problem: Problem, p: Vector, sigma: float, features: Indices, constraint: Constraint) -> _Evaluated:
    r"""Compute B(p) by two products with X.

    Let :math:`\hat r = r + e` up to a constant, which C does not see. The products with p are off by
    :math:`\|e\| \le \gamma_n (\sum_j |p_j| \|x_j\| + \|y\|)` (triangle inequality over the columns, so that their scales do not
    matter), c by the error of a product with X, by :math:`\|x_j\|_C \|e\|_C`, and by the imbalance
    :math:`\delta = \sum_i s_i \hat r_i` that is left after centring.
    """
    samples, design, n = problem.samples, problem.design, problem.shape[0]
    support = np.flatnonzero(p)
    with np.errstate(over="ignore", invalid="ignore"):
        r = samples.residuals(p, problem.fit_intercept)
        sums = _ResidualSums.of_all(samples.each(_ResidualSums.of, r))
        heaviest = samples.heaviest
        e = 2.0 * float(gamma(len(support) + 32)) * (float(np.abs(p) @ design.read_norms()) + sums.norm_y) * 1.01
        e += 4.0 * _U * sums.norm_r + (len(support) + 16.0) * np.sqrt(n) * _TINY
        delta = abs(sums.left) + _PAIRWISE * _U * sums.sizes if problem.fit_intercept else 0.0
        q = samples.pull(r)
        drift = 1.01 * (heaviest * e + np.sqrt(heaviest) * delta + np.sqrt(n) * _TINY)
        error = (
            2.0 * design.rmatvec_error(sums.norm)
            + design.column_norms() * drift
            + 8.0 * _U * (np.abs(q) + sigma * np.abs(p))
        )
        terms = np.concatenate([[sums.square], 2.0 * p * q, sigma * p * p])
        lost = 2.0 * (_ELEMENTWISE + _PAIRWISE) * _U * float(np.sum(np.abs(terms))) + 8.0 * (len(terms) + n) * _TINY
        lost += 1.01 * (delta**2 + 2.0 * np.sqrt(heaviest * sums.square) * e + 2.0 * float(np.abs(p) @ error))
        c, off = (q + sigma * p)[features], error[features]
        return _less_rounding(problem, sigma, features, constraint, r, c, off, float(np.sum(terms)), lost)


class _ResidualSums(NamedTuple):
    """Sums over the samples, or a block of them, of the residuals r with their weights."""

    norm: float  # of s r; norms are rounded up
    norm_r: float
    norm_y: float
    left: float  # sum of s r
    sizes: float  # of its terms
    square: float  # sum of s r^2, pairwise

    @classmethod
    def of(cls, y: Vector, s: Vector, r: Vector) -> _ResidualSums:
        weighted = s * r
        sums = float(weighted.sum()), float(np.abs(weighted).sum()), float(np.sum(weighted * r))
        return cls(_norm(weighted), _norm(r), _norm(y), *sums)

    @classmethod
    def of_all(cls, blocks: list[_ResidualSums]) -> _ResidualSums:
        """Add up those of the blocks."""
        columns = list(zip(*blocks, strict=True))
        return cls(*(_norm(np.array(norms)) for norms in columns[:3]), *map(added, columns[3:]))


def _from_gram(
    problem: Problem,
    known: PreciseGram,
    r: Rows,
    p: Vector,
    sigma: float,
    features: Indices,
    constraint: Constraint,
) -> _Evaluated:
    r"""Compute :math:`B(p) = y^\top C y - p^\top A p - \tfrac{2}{\lambda'} \nu(c)^2`, :math:`c = h - A p`, from a Gram matrix."""
    with np.errstate(over="ignore", invalid="ignore"):
        left, off, total, lost = known.residual(p, features)
        shift = sigma * p[features]
        square = float(shift @ p[features])
        c = left + shift
        off = off + 8.0 * _U * (np.abs(left) + np.abs(shift))
        lost += (_PAIRWISE + _ELEMENTWISE) * _U * (abs(total) + square) + 8.0 * len(p) * _TINY
        return _less_rounding(problem, sigma, features, constraint, r, c, off, total + square, lost)


def _less_rounding(
    problem: Problem,
    sigma: float,
    features: Indices,
    constraint: Constraint,
    r: Rows,
    on_features: Vector,
    off: Vector,
    total: float,
    lost: float,
) -> _Evaluated:
    """B(p) from c, off by `off`, and from the sum of its other terms, off by `lost`."""
    c, error = np.zeros(problem.shape[1]), np.zeros(problem.shape[1])
    c[features], error[features] = on_features, off + 4.0 * _TINY
    squares, ridge = constraint.value(c), problem.lam + 2.0 * sigma
    value = total - 2.0 * squares / ridge
    relative = (constraint.size + 16.0) * _U
    nu = np.sqrt(squares + constraint.size * _TINY) * (1.0 + relative) + _norm_of(constraint, error)
    lost += 2.0 * (nu**2 * (1.0 + relative) - squares) / ridge
    safe = value - lost - 8.0 * _U * (abs(value) + abs(lost))
    return _Evaluated(r, c, float(value), float(safe) if np.isfinite(safe) else -np.inf)


def _norm_of(constraint: Constraint, v: Vector) -> float:
    """Constraint norm, rounded up, of a vector whose squares may underflow."""
    largest = float(v.max(initial=0.0))
    return largest and largest * float(np.sqrt(constraint.value(v / largest))) * (1.0 + 1e-9)

r"""The squared loss's own bound: curvature of the data moved into the ridge, for each feature as much as it can spare.

Let G = X'CX be the Gram matrix of the features J in play (C the weights, which centre where there is an intercept),
:math:`M = G + \frac\lambda2 I` and :math:`\rho > 0` such that :math:`A = M - \mathrm{diag}(\rho)` is positive
semidefinite. With h = X'Cy the objective is

.. math:: P(w) = y^\top C y - 2 h^\top w + w^\top A w + \sum_j \rho_j w_j^2 ,

a problem with the ridges :math:`\rho_j` in place of :math:`\lambda / 2`, and the larger these the tighter its relaxation. For any
p, with :math:`\delta = \rho - \lambda/2`,

.. math::

    B(p) &= r^\top C r + 2 p^\top X^\top C r + \sum_j \delta_j p_j^2 - \nu(c / \sqrt\rho)^2 , \\
    r &= y - X p, \qquad c = X^\top C r + \delta \odot p,

is a lower bound on every allowed model on J, for :math:`w^\top A w \ge 2 p^\top A w - p^\top A p`; :math:`\nu` is that of the
constraint on :math:`\sqrt\rho \odot w`, whose limits are multiplied by the roots. With :math:`\delta = 0`
it is the dual's value at :math:`\alpha = -2 r`; its maximum is the optimum of the relaxed problem.

The ridges are :math:`\rho_j = t / (M^{-1})_{jj}`, with t the largest for which A stays positive semidefinite:
:math:`1 / (M^{-1})_{jj}` is what the data and the ridge know of feature j that the other features do not.

Where J is not all features, each model that has a place for another one has an objective of at least the `ceiling` U: then
:math:`\min(U, B(p))` bounds them all. Columns that are zero may be left out of J all the same: a model that uses one is no better
than the same model without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diht.bounds.duality import _ELEMENTWISE, _PAIRWISE, Bound, Screening, _norm, _raised
from diht.bounds.rule import SparseVector
from diht.constraints.base import Constraint
from diht.design.base import SMALLEST, UNIT, gamma
from diht.design.gram import Gram, PreciseGram
from diht.numerics.arrays import Indices, Vector
from diht.numerics.exact import CLEAR
from diht.numerics.threads import factorisation_threads
from diht.samples import Rows, added

if TYPE_CHECKING:
    from diht.problem import Problem

__all__ = [
    "FOUND",
    "ShiftedBound",
    "ShiftedPoint",
    "in_play",
    "is_proved",
    "is_shifted",
    "others",
    "outside_play",
    "own_ridges",
    "problem_gram",
    "proved_ridges",
    "shifted_bound",
    "shifted_ridges",
]

_SMALL = 300  # features up to which an eigenvalue is computed to rounding, not by Lanczos' method
_INSIDE = 1e-3  # share of a ridge that a feature inside keeps: what rounding leaves of its c is divided by it
# Margins for rounding with which ridges are proved again, and with which they are found: whoever checks has a Gram matrix and a
# factorisation that are off by up to one margin each, as they were here.
_AGAIN, FOUND = 2.0, 6.0
# Fractions of the estimated ridges that are tried, one after the other: each costs a factorisation.
_TRIALS = (1.0 - 1e-6, 1.0 - 1e-4, 0.99, 0.9, 0.5, 0.1)


# ---------------------------------------------------------------------------------------------------------------------
# The shift


def problem_gram(problem: Problem, features: Indices | None = None, known: Gram | None = None) -> Gram:
    """Gram matrix of some features of a problem, all by default, and of its targets."""
    features = np.arange(problem.shape[1]) if features is None else np.asarray(features, dtype=np.int64)
    return problem.samples.gram(features, problem.fit_intercept, known)


def own_ridges(problem: Problem, features: Indices) -> Vector:
    """Return the ridges of features from which nothing is shifted."""
    return np.full(len(features), 0.5 * problem.lam)


def is_shifted(problem: Problem, ridges: Vector) -> bool:
    """Whether any feature has a larger ridge than the problem's."""
    return bool(np.any(ridges > 0.5 * problem.lam))


def shifted_ridges(
    problem: Problem,
    features: Indices,
    known: Gram | None = None,
    inside: NDArray[np.bool_] | None = None,
    alike: bool = False,
) -> Vector:
    r"""Return ridges with which A is proved to be positive semidefinite; those of the problem where no larger ones are proved.

    They are estimated (t is an eigenvalue of a scaled :math:`M^{-1}`) and lowered until `is_proved` holds. `known` is the Gram
    matrix of the features, where it is at hand. Features `inside`, which every model of a node may use, need hardly any ridge,
    which leaves more for the others. `alike` asks for the same ridge for all, lam/2 plus the smallest eigenvalue of G.
    """
    own = own_ridges(problem, features)
    if len(own) == 0 or len(own) + problem.fit_intercept > problem.samples.n_weighted:
        return own
    known = problem_gram(problem, features) if known is None else known
    scaled = _Scaled.of(known, problem.lam)
    estimate = scaled.estimate(np.ones(len(own)) if inside is None else np.where(inside, _INSIDE, 1.0), alike)
    if estimate is None:
        return own
    free = slice(None) if inside is None else ~inside
    for fraction in _TRIALS:
        ridges = fraction * estimate
        if not np.any(ridges[free] > own[free]):
            break
        if scaled.proves(ridges, FOUND):
            return ridges
    return own


def is_proved(known: Gram, lam: float, ridges: Vector) -> bool:
    r"""Whether :math:`M - \mathrm{diag}(\rho)` is proved to be positive semidefinite, G being the exact Gram matrix.

    It is, without further ado, where no ridge exceeds lam/2.
    """
    if not (np.all(ridges > 0.0) and np.all(np.isfinite(ridges))):
        return False
    return bool(np.all(ridges <= 0.5 * lam)) or _Scaled.of(known, lam).proves(ridges)


@dataclass(frozen=True, eq=False)
class _Scaled:
    """M with its columns scaled to norms of about 1, the powers of two that did it, and the errors of the Gram matrix."""

    matrix: Vector
    scale: Vector
    error: float  # norm of the error, so scaled

    @classmethod
    def of(cls, known: Gram, lam: float) -> _Scaled:
        """Take a Gram matrix."""
        M = known.quadratic.copy()
        M.flat[:: len(M) + 1] += 0.5 * lam
        norms = np.sqrt(np.maximum(M.diagonal(), 2.0**-900))
        scale = np.exp2(np.round(np.log2(norms)))
        M /= scale[:, None]
        M /= scale
        sizes = known.size[:-1] / scale
        return cls(M, scale, float(known.error * (sizes @ sizes)))

    def proves(self, ridges: Vector, margins: float = _AGAIN) -> bool:
        r"""Whether a factorisation proves that :math:`M - \mathrm{diag}(\rho)` is positive definite.

        A Cholesky factorisation of n columns that succeeds on a matrix B is the exact one of :math:`B + E` with
        :math:`\|E\| \le \gamma_{n+1} \mathrm{tr}(B) / (1 - \gamma_{n+1})` (Rump, 2006), in any order of its sums. To it come the
        error of the Gram matrix and a few units of the diagonal's terms, so that ridges which differ by four units in their last
        place are proved as well: a margin, of which `margins` are subtracted beforehand.
        """
        from scipy.linalg.lapack import dpotrf

        B, n = self.matrix.copy(), len(self.scale)
        diagonal, shift = B.diagonal().copy(), ridges / self.scale**2
        margin = self.error + float(gamma(2 * n + 16)) * float(np.abs(diagonal).sum())
        margin += 16.0 * UNIT * float((diagonal + shift).max()) + n * 2.0**-1000
        left = diagonal - shift - margins * margin
        if not (np.isfinite(margin) and np.all(left > 0.0)):
            return False
        B.flat[:: n + 1] = left
        with factorisation_threads(n):
            factor, info = dpotrf(B.T, lower=1, clean=0, overwrite_a=1)
        return bool(info == 0 and np.all(np.isfinite(factor.diagonal())))

    def estimate(self, weights: Vector, alike: bool) -> Vector | None:
        r"""About the largest ridges in the proportions weights / diag(M^-1), or of the weights, or None where rounding hides them.

        With L the Cholesky factor of M and T = :math:`L^{-1}` with its columns scaled to norms :math:`\sqrt{weights}`, t is
        :math:`1 / \|T\|^2`.
        """
        from scipy.linalg.lapack import dpotrf, dsyevr, dtrtri
        from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

        with factorisation_threads(len(weights)):
            factor, info = dpotrf(self.matrix.T, lower=1, clean=1)
            if info != 0:
                return None
            T = dtrtri(factor, lower=1, overwrite_c=1)[0]
        base = weights / (self.scale**2 if alike else np.einsum("ij,ij->j", T, T))
        T *= np.sqrt(base)
        n = len(base)
        if n <= _SMALL:
            values, _, _, _, info = dsyevr(T.T @ T, compute_v=0, range="I", il=n, iu=n)
            largest = float(values[0]) if info == 0 else np.nan
        else:
            squared = LinearOperator((n, n), matvec=lambda v: T.T @ (T @ v), dtype=float)
            try:
                start = np.random.default_rng(0).standard_normal(n)
                largest = float(eigsh(squared, k=1, which="LA", tol=1e-3, v0=start, return_eigenvectors=False)[0])
            except ArpackError:
                return None
        ridges = base * self.scale**2 / largest
        return ridges if np.all(np.isfinite(ridges)) else None


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
    ridges : array of shape (len(features),)
        rho, of the features in play.
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
    ridges: Vector
    features: Indices
    ceiling: float
    on_features: float
    origin: Bound | None

    def renewed(self, problem: Problem) -> Bound:
        """Compute the bound again: what features outside J cost, that A is positive semidefinite, and the value at p."""
        fits = self.p.shape == (problem.shape[1],) and self.ridges.shape == self.features.shape
        if not problem.loss.is_squared_error or not fits:
            return super().renewed(problem)
        origin, ceiling = None if self.origin is None else self.origin.renewed(problem), np.inf
        if origin is not None:
            ceiling = outside_play(problem, origin.screening(problem), self.features)
        elif len(others(problem, self.features)):
            return super().renewed(problem)  # nothing here shows what the other features cost
        ridges = proved_ridges(problem, self.features, self.ridges)
        bound = shifted_bound(problem, self.p, ridges, self.features, ceiling, origin)
        return bound if origin is None or bound.value >= origin.value else origin

    def screening(self, problem: Problem) -> Screening:
        """Bound the models without, and with, each feature: the falls of nu^2 raise B(p), up to the ceiling."""
        constraint = problem.constraint
        evaluated = _evaluate(problem, self.p, self.ridges, self.features, constraint)
        constraint = constraint.times(roots_among(problem, self.ridges, self.features))
        squares, lost = np.square(constraint.magnitudes(evaluated.c)), 8.0 * UNIT * (constraint.unit_size + 1.0)
        without, within = (
            np.minimum(_raised(evaluated.safe, fall, squares, 0.5, lost), self.ceiling)
            for fall in constraint.forcing(evaluated.c)
        )
        elsewhere = others(problem, self.features)
        without[elsewhere], within[elsewhere] = self.value, self.ceiling
        screening = Screening(without, within).above(self.value)
        return screening if self.origin is None else screening.merged(self.origin.screening(problem))


@dataclass(frozen=True, eq=False)
class ShiftedPoint:
    """What proves the shifted bound of a part of a problem, such as a node of a search tree.

    Attributes
    ----------
    p : SparseVector
        Where the shifted loss is linearised.
    ridges : SparseVector or None
        rho of all features that the part leaves in play; None for those of the whole.
    """

    p: SparseVector
    ridges: SparseVector | None

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return self.p.nbytes + (0 if self.ridges is None else self.ridges.nbytes)


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


def proved_ridges(problem: Problem, features: Indices, ridges: Vector, known: Gram | None = None) -> Vector:
    """Return ridges if they are proved of a problem, else its own."""
    if np.all(ridges > 0.0) and not is_shifted(problem, ridges):
        return ridges
    known = problem_gram(problem, features) if known is None else known
    return ridges if is_proved(known, problem.lam, ridges) else own_ridges(problem, features)


def shifted_bound(
    problem: Problem,
    p: Vector,
    ridges: Vector | None = None,
    features: Indices | None = None,
    ceiling: float = np.inf,
    origin: Bound | None = None,
    constraint: Constraint | None = None,
) -> ShiftedBound:
    """B(p) less all that rounding can have added to it, for `ridges` that `shifted_ridges` returned; by default the problem's own.

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
    ridges = own_ridges(problem, features) if ridges is None else ridges
    evaluated = _evaluate(problem, p, ridges, features, constraint)
    safe = float(max(evaluated.safe, 0.0))
    return ShiftedBound(
        value=float(min(ceiling, safe)),
        alpha=problem.samples.map(lambda y, s, r: -2.0 * r, evaluated.r),
        rounding=max(evaluated.rounding if safe > 0.0 else 0.0, 0.0 if origin is None else origin.screened_rounding),
        p=p,
        ridges=ridges,
        features=features,
        ceiling=ceiling,
        on_features=safe,
        origin=origin,
    )


@dataclass(frozen=True, eq=False)
class _Evaluated:
    r: Rows  # y - Xp, centred where there is an intercept
    c: Vector  # in units of the roots of the ridges; zero outside the features
    value: float
    safe: float

    @property
    def rounding(self) -> float:
        """What was subtracted from the value."""
        return self.value - self.safe


def _evaluate(problem: Problem, p: Vector, ridges: Vector, features: Indices, constraint: Constraint) -> _Evaluated:
    """Compute B(p), and B(p) less what rounding can have added; in twice the precision where that counts."""
    rough = _from_data(problem, p, ridges, features, constraint)
    if rough.rounding <= CLEAR * abs(rough.value) or problem.precise_gram is None:
        return rough
    fine = _from_gram(problem, problem.precise_gram, rough.r, p, ridges, features, constraint)
    return fine if fine.safe > rough.safe else rough


def _from_data(problem: Problem, p: Vector, ridges: Vector, features: Indices, constraint: Constraint) -> _Evaluated:
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
        e += 4.0 * UNIT * sums.norm_r + (len(support) + 16.0) * np.sqrt(n) * SMALLEST
        imbalance = abs(sums.left) + _PAIRWISE * UNIT * sums.sizes if problem.fit_intercept else 0.0
        q = samples.pull(r)
        drift = 1.01 * (heaviest * e + np.sqrt(heaviest) * imbalance + np.sqrt(n) * SMALLEST)
        bent = np.zeros_like(p)
        bent[features] = (ridges - 0.5 * problem.lam) * p[features]
        error = (
            2.0 * design.rmatvec_error(sums.norm)
            + design.column_norms() * drift
            + 8.0 * UNIT * (np.abs(q) + np.abs(bent))
        )
        terms = np.concatenate([[sums.square], 2.0 * p * q, bent * p])
        lost = (
            2.0 * (_ELEMENTWISE + _PAIRWISE) * UNIT * float(np.sum(np.abs(terms))) + 8.0 * (len(terms) + n) * SMALLEST
        )
        lost += 1.01 * (
            imbalance * imbalance + 2.0 * np.sqrt(heaviest * sums.square) * e + 2.0 * float(np.abs(p) @ error)
        )
        c, off = (q + bent)[features], error[features]
        return _less_rounding(problem, ridges, features, constraint, r, c, off, float(np.sum(terms)), lost)


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
    ridges: Vector,
    features: Indices,
    constraint: Constraint,
) -> _Evaluated:
    r"""Compute :math:`B(p) = y^\top C y - p^\top A' p - \nu(c / \sqrt\rho)^2`, :math:`c = h - A' p`, from a Gram matrix.

    :math:`A' = G - \mathrm{diag}(\delta)` is A.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        left, off, total, lost = known.residual(p, features)
        bent = (ridges - 0.5 * problem.lam) * p[features]
        square, size = float(bent @ p[features]), float(np.abs(bent) @ np.abs(p[features]))
        c = left + bent
        off = off + 8.0 * UNIT * (np.abs(left) + np.abs(bent))
        lost += ((_PAIRWISE + _ELEMENTWISE) * UNIT + 2.0 * float(gamma(len(features) + 4))) * (abs(total) + size)
        lost += 8.0 * len(p) * SMALLEST
        return _less_rounding(problem, ridges, features, constraint, r, c, off, total + square, lost)


def _less_rounding(
    problem: Problem,
    ridges: Vector,
    features: Indices,
    constraint: Constraint,
    r: Rows,
    on_features: Vector,
    off: Vector,
    total: float,
    lost: float,
) -> _Evaluated:
    """B(p) from c, off by `off`, and from the sum of its other terms, off by `lost`."""
    c, error, roots = np.zeros(problem.shape[1]), np.zeros(problem.shape[1]), np.sqrt(ridges)
    constraint = constraint.times(roots_among(problem, ridges, features))
    c[features], error[features] = (
        on_features / roots,
        (off + 4.0 * SMALLEST) / roots * (1.0 + 8.0 * UNIT) + 4.0 * SMALLEST,
    )
    squares = constraint.value(c)
    value = total - squares
    relative = (constraint.size + 24.0) * UNIT
    nu = np.sqrt(squares + constraint.size * SMALLEST) * (1.0 + relative) + _norm_of(constraint.unlimited, error)
    lost += nu**2 * (1.0 + relative) - squares
    safe = value - lost - 8.0 * UNIT * (abs(value) + abs(lost))
    return _Evaluated(r, c, float(value), float(safe) if np.isfinite(safe) else -np.inf)


def roots_among(problem: Problem, ridges: Vector, features: Indices) -> Vector:
    """Return the roots of ridges in the places of their features, zero elsewhere."""
    roots = np.zeros(problem.shape[1])
    roots[features] = np.sqrt(ridges)
    return roots


def _norm_of(constraint: Constraint, v: Vector) -> float:
    """Constraint norm, rounded up, of a vector whose squares may underflow."""
    largest = float(v.max(initial=0.0))
    return largest and largest * float(np.sqrt(constraint.value(v / largest))) * (1.0 + 1e-9)

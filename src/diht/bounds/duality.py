r"""The sparse duality theory: primal, dual, their gap, and bounds that hold in exact arithmetic.

With :math:`g(\alpha) = X^\top (s \odot \alpha)` and :math:`v = -g / \lambda` the formulas of the paper read

.. math::

    L(w, \alpha) &= \sum_i s_i \left(\alpha_i x_i^\top w - l^*(\alpha_i)\right) + \tfrac{\lambda}{2} \|w\|^2 \\
    D(\alpha) &= \min_{\|w\|_0 \le k} L(w, \alpha)
               = -\sum_i s_i l^*(\alpha_i) - \tfrac{\lambda}{2} \|\mathrm{H}_k(v)\|^2   && \text{(Lemma 1)} \\
    D(\alpha) &\le P(w) \quad \text{for every k-sparse } w \text{ and every } \alpha \in F^N .

An intercept adds :math:`b \sum_i s_i \alpha_i` to L, so that a dual point must satisfy :math:`\sum_i s_i \alpha_i = 0`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from diht.design.base import SMALLEST, UNIT
from diht.losses import Loss
from diht.numerics.arrays import Indices, Vector
from diht.samples import Intercept, Rows, added

if TYPE_CHECKING:
    from diht.problem import Problem

__all__ = [
    "Bound",
    "BoundWithoutProof",
    "SaddlePoint",
    "Screening",
    "dual",
    "dual_from_primal",
    "feasible",
    "gap",
    "gap_bound",
    "lagrangian",
    "least_rounding",
    "lower_bound",
    "margin",
    "null_bound",
    "null_dual",
    "primal",
    "primal_from_dual",
    "rounded_objective",
    "saddle_point",
    "screen",
    "stability_radius",
    "upper_bound",
]


_HALVINGS = 60  # of a dual point: beyond, the bound is nothing but rounding
# Relative error of an elementwise formula and of numpy's pairwise sum over fewer than 2^40 terms, in units of u.
_ELEMENTWISE, _PAIRWISE = 16.0, 64.0
WITHOUT_PROOF = (
    "a stored estimator holds no dual point: store its certificate_ as well, or prove the bound anew with "
    "diht.certify(problem, w)"
)
_MAX_KINKS, _MAX_FEATURES = 500, 5000  # samples at kinks, and features, up to which subgradients are looked for


def primal(problem: Problem, w: Vector, b: Intercept = 0.0, u: Rows | None = None) -> float:
    """P(w, b), the objective of (1.1); `b` belongs to the problem's (centred) design, `u` is Xw + b where it is known."""
    samples, loss = problem.samples, problem.loss
    u = samples.margins(w, b) if u is None else u
    return samples.value(loss, u) + float(0.5 * problem.lam * (w @ w))


def dual(problem: Problem, alpha: Rows, g: Vector | None = None) -> float:
    """D(alpha) of Lemma 1, as float64 computes it; `lower_bound` is the one that is safe to publish.

    -inf outside F. With an intercept the constraint sum_i s_i alpha_i = 0 is taken for granted.
    """
    g = problem.samples.pull(alpha) if g is None else g
    conjugate = problem.samples.conjugate(problem.loss, alpha)
    return -conjugate - problem.pull_constraint.value(g) / (2.0 * problem.lam)


def lagrangian(problem: Problem, w: Vector, alpha: Rows, b: Intercept = 0.0) -> float:
    """L(w, alpha) of the paper's section 3, with the intercept's term b sum_i s_i alpha_i."""
    samples, loss = problem.samples, problem.loss
    terms = samples.total(lambda y, a, u: loss.paired(a, u) - loss.conjugate(a, y), alpha, samples.margins(w, b))
    return terms + float(0.5 * problem.lam * (w @ w))


def primal_from_dual(problem: Problem, alpha: Rows, g: Vector | None = None) -> tuple[Vector, float]:
    """w(alpha) = H_k(v(alpha)) of Lemma 1, and the best intercept for it."""
    samples = problem.samples
    g = samples.pull(alpha) if g is None else g
    w, support = problem.constraint.threshold(-g / problem.lam)
    if not problem.fit_intercept:
        return w, 0.0
    return w, samples.best_intercept(problem.loss, samples.margins(w, support=support))


def dual_from_primal(problem: Problem, w: Vector, b: Intercept = 0.0, u: Rows | None = None) -> Rows:
    r"""Return a feasible dual point from a model: alpha_i = l'(x_i.w + b), condition (b) of the sparse saddle point theorem.

    With an intercept l' is balanced, at the best b. Where the loss has kinks, the subgradients of the samples at them are
    chosen so as to meet condition (c) on the support of w.
    """
    samples, loss = problem.samples, problem.loss
    u = samples.margins(w, b) if u is None else u
    if problem.fit_intercept:
        shift = samples.best_intercept(loss, u)
        u = samples.shifted(u, shift)
    if not loss.differentiable:
        return feasible(problem, _settled(problem, w, u))
    return samples.map(lambda y, s, u: loss.project(loss.derivative(u, y), y), u)


def _settled(problem: Problem, w: Vector, u: Rows) -> Rows:
    """Return l'(u), at kinks (of width 1e-6) by least squares on lam w + X'(s alpha) = 0 over the support.

    A support that is not full asks it of all features: H_k(v) = w leaves nothing outside.
    """
    from scipy.optimize import lsq_linear

    samples, loss = problem.samples, problem.loss

    def slopes(shift: float) -> Rows:
        return samples.map(lambda y, s, u: loss.derivative(u + shift, y), u)

    alpha, width = slopes(0.0), 1e-6 * max(1.0, samples.largest(lambda y, u: np.abs(u), u))
    low, high = slopes(-width), slopes(width)
    kinked, support = samples.chosen(lambda y, s, a, c: (a < c) & (s > 0), low, high), np.flatnonzero(w)
    if len(support) < problem.constraint.size and len(w) <= _MAX_FEATURES and problem.constraint.is_plain:
        support = np.arange(len(w))
    if not 0 < kinked.size <= _MAX_KINKS or not len(support):
        return alpha
    part, others = samples.columns(support), kinked.patched(alpha, np.zeros(kinked.size))
    A, residual = kinked.rows_of(part).T, -problem.lam * w[support] - part.pull(others)
    if problem.fit_intercept:  # one more equation for each intercept, of the size of the others
        size = float(np.abs(A).max(initial=0.0)) or 1.0
        A, residual = np.vstack([A, size * kinked.shares()]), np.append(residual, -size * samples.sums(others))
    A = A * kinked.values(samples.s)
    scale = float(np.abs(A).max(initial=0.0)) or 1.0
    ends = kinked.values(low), kinked.values(high)
    return kinked.patched(alpha, lsq_linear(A / scale, residual / scale, ends, method="bvls").x)


def feasible(problem: Problem, alpha: Rows) -> Rows:
    """Nearest dual point in F (and, with an intercept, with sum_i s_i alpha_i = 0)."""
    if problem.fit_intercept:
        return problem.samples.balanced(problem.loss, alpha)
    loss = problem.loss
    return problem.samples.map(lambda y, s, a: loss.project(a, y), alpha)


def gap(problem: Problem, w: Vector, alpha: Rows, b: Intercept = 0.0) -> float:
    r"""P(w, b) - D(alpha) as a sum of terms that cannot be negative.

    .. math:: \sum_i s_i [l(u_i) + l^*(\alpha_i) - \alpha_i u_i] + \tfrac{\lambda}{2} [\|w\|^2 - 2 w^\top v + \|H_k(v)\|^2]

    The paper's gap lemma (Lemma 4) is the case w = H_k(v), where the second bracket vanishes. With an intercept `alpha` must be
    balanced. A sum that is negative beyond rounding is a mistake in the loss or in `alpha`, and raises.
    """
    point = saddle_point(problem, w, alpha, b)
    return point.fenchel + point.ridge


@dataclass(frozen=True)
class SaddlePoint:
    """How far a pair (w, alpha) is from a sparse saddle point (the paper's sparse saddle point theorem).

    Attributes
    ----------
    fenchel : float
        Condition (b), alpha_i in the subdifferential of l at x_i.w: sum_i s_i [l(u_i) + l*(alpha_i) - alpha_i u_i].
    ridge : float
        Condition (c), w = H_k(v(alpha)): (lam/2) [||w||^2 - 2 w.v + ||H_k(v)||^2].
    distance : float
        Condition (c) as a distance, ||w - H_k(v(alpha))||.

    Notes
    -----
    Condition (a), that w solves the primal, has the residual P(w) - min P, which is at most fenchel + ridge, the gap.
    """

    fenchel: float
    ridge: float
    distance: float


def saddle_point(
    problem: Problem, w: Vector, alpha: Rows, b: Intercept = 0.0, u: Rows | None = None, g: Vector | None = None
) -> SaddlePoint:
    """Residuals of the three saddle point conditions; `u` = Xw + b and `g` = X'(s alpha) where they are known."""
    samples, loss, lam = problem.samples, problem.loss, problem.lam
    u = samples.margins(w, b) if u is None else u
    v = -(samples.pull(alpha) if g is None else g) / lam

    def fenchel(y: Vector, a: Vector, u: Vector) -> Vector:
        value, conjugate = loss.value(u, y), loss.conjugate(a, y)
        size = np.abs(value) + loss.conjugate_terms(a, y, conjugate) + loss.paired(np.abs(a), np.abs(u))
        return _not_negative(value + conjugate - loss.paired(a, u), size)

    nearest, _ = problem.constraint.threshold(v)
    value = problem.constraint.value(v)
    terms = np.array([w @ w - 2.0 * (w @ v) + value])
    sizes = np.array([w @ w + 2.0 * np.abs(w) @ np.abs(v) + value])
    ridge = 0.5 * lam * float(_not_negative(terms, sizes)[0])
    return SaddlePoint(samples.total(fenchel, alpha, u), ridge, float(np.linalg.norm(w - nearest)))


def _not_negative(terms: Vector, size: Vector) -> Vector:
    """Clip what rounding can explain, given the sizes of what was added up; raise on what it cannot.

    Below the smallest normal number rounding is no longer relative to a size.
    """
    negative = terms < 0.0
    if np.any(negative & (terms < -1e-8 * (size + np.finfo(np.float64).tiny))):
        worst = int(np.argmin(terms))
        raise ArithmeticError(
            f"negative gap term {terms[worst]:g} at position {worst}: the loss and its conjugate disagree"
        )
    return np.where(negative, 0.0, terms)


def gap_bound(problem: Problem, alpha: Rows) -> float:
    """Upper bound of the paper's Lemma 5 on P(w) - D(alpha) at w = H_k(v(alpha)): <D'(alpha), beta - alpha>, beta = l'(Xw).

    The supergradient D'(alpha) of Lemma 1 has the entries s_i (x_i.w - l*'(alpha_i)).
    """
    if problem.fit_intercept:
        raise ValueError("the paper's gap bound is stated for a problem without an intercept")
    samples, loss = problem.samples, problem.loss
    u = samples.margins(*primal_from_dual(problem, alpha))

    def terms(y: Vector, a: Vector, u: Vector) -> Vector:
        found: Vector = loss.paired(u - loss.conjugate_derivative(a, y), loss.derivative(u, y) - a)
        return found

    return samples.total(terms, alpha, u)


def margin(
    problem: Problem, w: Vector, b: Intercept = 0.0, alpha: Rows | None = None, g: Vector | None = None
) -> float:
    r"""Return the paper's :math:`\bar\epsilon = \min_{j \in F} |w_j| - \|P'(w)\|_\infty / \lambda`, F the support of w.

    Where it is positive, F is the unique support of an optimal model. It needs a full support: with fewer nonzeros than
    allowed the smallest coefficient counts as zero. `alpha` and its `g`, if given, are taken as l'(Xw + b) and X'(s alpha).
    """
    if g is None:
        g = problem.samples.pull(dual_from_primal(problem, w, b) if alpha is None else alpha)
    support = np.flatnonzero(w)
    full = problem.constraint.is_plain and len(support) >= problem.constraint.size
    smallest = float(np.abs(w[support]).min()) if full else 0.0
    return smallest - float(np.abs(g + problem.lam * w).max()) / problem.lam


def stability_radius(problem: Problem, eps: float) -> float:
    r"""Radius of Lemma 2 around the dual optimum in which w(alpha) keeps its support.

    In the metric of the weights it is :math:`\|\alpha - \bar\alpha\|_S \le \lambda \bar\epsilon / (2 \sigma_{\max})` with
    :math:`\sigma_{\max}` the norm of :math:`S^{1/2} X`; for equal weights this is the paper's
    :math:`\lambda N \bar\epsilon / (2 \sigma_{\max}(X))`, which is returned: a radius for the euclidean norm. A safe
    upper bound stands for sigma_max.
    """
    sigma = np.sqrt(problem.samples.spectral_bound())
    if sigma == 0.0:
        return np.inf
    return float(problem.lam * max(eps, 0.0) / (2.0 * sigma * np.sqrt(problem.samples.heaviest)))


@dataclass(frozen=True, eq=False)
class Bound:
    """A lower bound on the objective of every model that the constraint allows, and what proves it.

    Attributes
    ----------
    value : float
        The bound. It holds in exact arithmetic: whatever float64 can have lost has been subtracted.
    alpha : Rows
        The dual point whose value it is: an array of shape (N,) where the samples are in memory.
    rounding : float
        What was subtracted for rounding (and, with an intercept, for the imbalance of alpha); where the bound rests on what another
        one says of single features, what was subtracted there, if that is more.
    """

    value: float
    alpha: Rows
    rounding: float

    @property
    def claimed(self) -> float:
        """What is published: less than the value by more than another order of the same sums can lose.

        Sums in another order differ by up to twice what rounding can do.
        """
        return self.value - 2.0 * self.rounding

    @property
    def screened_rounding(self) -> float:
        """What was subtracted for rounding from any figure of the screening: no more than from the bound itself."""
        return self.rounding

    def check(self, problem: Problem) -> float:
        """Compute the bound again from the problem and the proof alone."""
        return self.renewed(problem).value

    def renewed(self, problem: Problem) -> Bound:
        """What the same proof proves of a problem, this one or another: a true bound, whatever the figures in here say."""
        samples = problem.samples
        return lower_bound(problem, self.alpha if samples.holds(self.alpha) else samples.full(0.0))

    def screening(self, problem: Problem) -> Screening:
        """Bound the models without, and with, each feature, from the problem and the dual point alone."""
        g = problem.samples.pull(self.alpha)
        # Of this very g, which may differ from the bound's in its last digits.
        again = lower_bound(problem, self.alpha, g)
        return screen(problem, again, g).above(self.value)


@dataclass(frozen=True, eq=False)
class BoundWithoutProof(Bound):
    """The figures of a bound, as a stored estimator holds them: nothing can be computed again, and `alpha` is None in general."""

    @classmethod
    def of(cls, bound: Bound, alpha: Vector | None = None) -> BoundWithoutProof:
        """Take the figures of a bound."""
        return cls(bound.value, alpha, bound.rounding)

    def renewed(self, problem: Problem) -> Bound:
        """Refuse: there is no proof."""
        raise ValueError(WITHOUT_PROOF)

    def screening(self, problem: Problem) -> Screening:
        """Refuse: there is no dual point."""
        raise ValueError(WITHOUT_PROOF)


class _DualSums(NamedTuple):
    """Sums over the samples, or a block of them, at a dual point."""

    finite: bool
    norm: float  # of c = s alpha, rounded up
    conjugate: float  # sum of s l*(alpha)
    terms: float  # of the sizes of what is added up in s l*(alpha)
    positive: float  # sum of the positive entries of c
    negative: float
    above: float  # sum of s max(0, l*(0) - l*(alpha))

    @classmethod
    def of(cls, loss: Loss, balances: bool, y: Vector, s: Vector, alpha: Vector) -> _DualSums:
        if not np.all(np.isfinite(alpha)):
            return cls(False, *[np.nan] * 6)
        c, conjugate = s * alpha, loss.conjugate(alpha, y)
        # Summed pairwise: the error of a dot product grows with the number of samples.
        sums = float(np.sum(s * conjugate)), float(np.dot(s, loss.conjugate_terms(alpha, y, conjugate)))
        if loss.coupled or not balances:
            return cls(True, _norm(c), *sums, 0.0, 0.0, 0.0)
        above = float(np.dot(s, np.maximum(loss.conjugate(np.zeros_like(y), y) - conjugate, 0.0)))
        return cls(True, _norm(c), *sums, float(c[c > 0].sum()), -float(c[c < 0].sum()), above)

    @classmethod
    def of_all(cls, blocks: list[_DualSums]) -> _DualSums:
        """Add up those of the blocks."""
        if len(blocks) == 1:
            return blocks[0]
        finite, norms, *sums = zip(*blocks, strict=True)
        return cls(all(finite), _norm(np.array(norms)), *map(added, sums))


class _Repair(NamedTuple):
    """How far a dual point, feasible to rounding, is from one that is feasible, and what that one costs, each rounded up."""

    moved: float  # norm of the change of s alpha
    cost: float  # rise of the sum of s l*(alpha)

    @classmethod
    def of(cls, problem: Problem, alpha: Rows, parts: list[_DualSums], sums: _DualSums) -> _Repair:
        """Balance each target by its own intercept."""
        if problem.loss.coupled:
            return cls._of_classes(problem, alpha, sums)
        if not problem.fit_intercept:
            return cls(0.0, 0.0)
        shrink = max(_imbalance(part.positive, part.negative) for part in parts)
        return cls(shrink * sums.norm, 2.0 * shrink * sums.above)

    @classmethod
    def _of_classes(cls, problem: Problem, alpha: Rows, sums: _DualSums) -> _Repair:
        r"""Make rows of probabilities P = alpha + y of what is such only to rounding, and balance them.

        Divided by its sum, which is within :math:`\eta` of 1, a sample's P is one exactly; that moves it by at most
        :math:`2 \eta` and its entropy by :math:`2 \eta` of itself and :math:`2 \eta`. With an intercept,
        :math:`\delta = \sum_i s_i \alpha_i` is zero only to rounding: with :math:`t = \max_c |\delta_c| / \pi_c`, :math:`\pi`
        the weights of the classes, the mixture :math:`(1 - t) P_i + t q` with one q for all samples,
        :math:`q \propto t \pi - (1 - t) \delta \ge 0`, balances exactly. The conjugate is convex and negative, so that this costs
        at most t times the entropy, and a row moves by at most :math:`\sqrt 2 t`.
        """
        parts = problem.samples.each(_ClassSums.of, alpha)
        eta = max(part.eta for part in parts) + 4.0 * problem.n_targets * UNIT
        shares, left, sizes = np.sum([part.sums for part in parts], axis=0)
        total, norm = float(shares.sum()) * (1.0 + 1e-9), _norm(np.array([part.norm for part in parts]))
        shift = 0.0
        if problem.fit_intercept:
            delta = np.abs(left) + 2.0 * eta * total + (_PAIRWISE + 2.0) * UNIT * sizes
            shift = float(np.max(delta / shares)) * (1.0 + 1e-8)
        if not (shift < 1.0 and eta < 0.1):
            return cls(np.inf, np.inf)
        return cls((1.5 * shift + 2.0 * eta) * norm, (shift + 2.0 * eta) * (abs(sums.conjugate) + total))


class _ClassSums(NamedTuple):
    """Sums over the samples of a coupled loss, or a block of them, at a dual point."""

    eta: float  # largest distance of a sample's sum of dual variables from zero
    sums: Vector  # of the weights of each class, of s alpha, and of the sizes of its terms
    norm: float  # of the weights

    @classmethod
    def of(cls, y: Vector, s: Vector, alpha: Vector) -> _ClassSums:
        sums = np.stack([np.sum(s * y, axis=1), np.sum(s * alpha, axis=1), np.abs(alpha) @ s])
        return cls(float(np.abs(alpha.sum(axis=0)).max(initial=0.0)), sums, _norm(s))


def lower_bound(problem: Problem, alpha: Rows, g: Vector | None = None, value_of_g: float | None = None) -> Bound:
    r"""D(alpha) less all that rounding can have added to it: a true lower bound on the best objective.

    Let hats mark what was computed. Every entry of :math:`\hat g` is off by at most :math:`e_j` (the design's own bound)
    and :math:`\nu`, the root of the constraint's value, is a norm, so :math:`\nu(g) \le \nu(\hat g) + \nu(e)`. With limits of
    coefficients it is none, but changes no faster than the norm :math:`\nu_0` without them, which is what e is measured by; its
    terms grow no faster than the limits do, so that a limit that is off by a few units in its last place counts as they do. The
    conjugates are off by a few units in the last place of their terms.

    With an intercept, :math:`\hat\alpha` is balanced only to rounding: :math:`\delta = \sum_i s_i \alpha_i \ne 0`.
    Shrinking the entries of the sign of :math:`\delta` by the factor 1 - t, :math:`t = |\delta| / \sum_{\text{that sign}}
    s_i |\alpha_i|`, balances it exactly and stays in F, which is convex and contains 0. Convexity of the conjugate bounds
    what that costs by :math:`t \sum s_i \max(0, l^*(0) - l^*(\alpha_i))`, and g moves by at most
    :math:`t \|s \odot \alpha\| \|X_j\|`. So a feasible point exists whose value is at least the bound.

    Never less than the bound at alpha = 0 (zero for the losses of this library); used for every figure that is published.
    `g` = X'(s alpha), computed afresh, and the constraint's value of g are taken where they are known.
    """
    samples, lam, trivial = problem.samples, problem.lam, problem.trivial_bound
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = samples.each(partial(_DualSums.of, problem.loss, problem.fit_intercept), alpha)
        sums = _DualSums.of_all(blocks)
        if not sums.finite:
            return Bound(trivial, samples.full(0.0), 0.0)
        if value_of_g is None:
            value_of_g = problem.pull_constraint.value(samples.pull(alpha) if g is None else g)
        value = -sums.conjugate - value_of_g / (2.0 * lam)
        error = _gradient_error(problem, sums.norm)
        lost = (_ELEMENTWISE + _PAIRWISE) * UNIT * sums.terms
        repair = _Repair.of(problem, alpha, list(map(_DualSums.of_all, samples.per_intercept(blocks))), sums)
        error += repair.moved * problem.column_norm
        lost += repair.cost
        relative = (problem.constraint.size + 16.0) * UNIT
        norm = np.sqrt(value_of_g + problem.constraint.size * SMALLEST)
        lost += 4.0 * samples.size * SMALLEST
        lost += ((norm * (1.0 + relative) + error) ** 2 * (1.0 + relative) - value_of_g) / (2.0 * lam)
        safe = value - lost - 8.0 * UNIT * (abs(value) + abs(lost))
    bound = Bound(float(safe) + 0.0, alpha, float(value - safe)) if np.isfinite(safe) else None
    return bound if bound is not None and bound.claimed >= trivial else Bound(trivial, samples.full(0.0), 0.0)


def _gradient_error(problem: Problem, norm: float) -> float:
    """Constraint norm of the errors of X'c, for a c = s alpha of this norm: the product's own rounding, and as much again for c."""
    return 2.0 * (norm * problem.rounding_norm + problem.underflow_norm)


def least_rounding(problem: Problem, alpha: Rows) -> float:
    """What `lower_bound` subtracts, at least, for the rounding of X'(s alpha), whatever the value of the dual point."""
    with np.errstate(over="ignore"):
        norm = _norm(np.array(problem.samples.each(lambda y, s, a: _norm(s * a), alpha)))
        return _gradient_error(problem, norm) ** 2 / (2.0 * problem.lam)


def null_dual(problem: Problem, b: Intercept) -> Rows:
    """Return the dual point of the model without features and with the intercept b."""
    samples = problem.samples
    return feasible(problem, samples.slopes(problem.loss, samples.shifted(samples.full(0.0), b)))


def null_bound(problem: Problem, b: Intercept) -> Bound:
    r"""Return the best of the bounds of alpha, alpha/2, alpha/4, ..., with alpha the dual point of the model without features.

    F is convex and contains 0, and so does the set of balanced points: every multiple is feasible. D is concave along the ray and
    rises at its beginning, unless alpha = 0 is the optimum, so that the bound is better than the trivial one; for a quadratic
    conjugate it is at least 8/9 of the best on the ray. One product with X; scaling by powers of 2 is exact.
    """
    samples, alpha = problem.samples, null_dual(problem, b)
    g = samples.pull(alpha)
    best = trivial = lower_bound(problem, samples.full(0.0), np.zeros_like(g))
    for _ in range(_HALVINGS):
        bound = lower_bound(problem, alpha, g)
        if bound.value > best.value:
            best = bound
        elif best is not trivial:
            break
        alpha, g = samples.map(lambda y, s, a: 0.5 * a, alpha), 0.5 * g
    return best


def upper_bound(problem: Problem, w: Vector, b: Intercept = 0.0, u: Rows | None = None) -> float:
    r"""P(w, b) plus all that rounding can have taken from it: no less than the model's objective in exact arithmetic.

    With :math:`|\hat u_i - u_i| \le e` (the design's own bound) convexity gives
    :math:`l(u_i) \le \max(l(\hat u_i - e), l(\hat u_i + e))`, for any loss. Values of a loss are off by a few units in the last
    place; all terms are nonnegative or count with their size. `u` is Xw + b, computed afresh, where it is known.
    """
    loss = problem.loss
    u = problem.samples.margins(w, b) if u is None else u
    off = 2.0 * problem.design.matvec_error(w)

    def losses(y: Vector, u: Vector) -> Vector:
        # The sum with b is rounded once, and so are u - e and u + e, and each w_j that was a quotient.
        largest: Vector = loss.largest_near(u, off + 4.0 * UNIT * np.abs(u), y)
        return largest

    return rounded_objective(problem, w, losses, u)


def rounded_objective(problem: Problem, w: Vector, losses: Callable[..., Vector], *rows: Rows) -> float:
    """The objective of a model whose losses are at most ``losses(y, *rows)``, rounded up."""

    def sums(y: Vector, s: Vector, *parts: Vector) -> tuple[float, float]:
        value = losses(y, *parts)
        return float(np.sum(s * np.abs(value))), float(np.sum(s * value))

    with np.errstate(over="ignore", invalid="ignore"):
        sizes, values = zip(*problem.samples.each(sums, *rows), strict=True)
        ridge = 0.5 * problem.lam * float(w @ w) * (1.0 + (np.count_nonzero(w) + 16.0) * UNIT)
        total = added(values) + ridge + 2.0 * (_ELEMENTWISE + _PAIRWISE) * UNIT * (added(sizes) + ridge)
        total += (4.0 * problem.samples.size + problem.lam * problem.constraint.size) * SMALLEST
    return total if np.isfinite(total) else np.inf


@dataclass(frozen=True, eq=False)
class Screening:
    """What can be proved of each feature: lower bounds on the best objectives without it and with it.

    Attributes
    ----------
    without : array of shape (d,)
        No allowed model whose j-th coefficient is zero has an objective below ``without[j]``.
    within : array of shape (d,)
        No allowed model that keeps a place for feature j has an objective below ``within[j]``. Where the coefficient is zero
        all the same, the model does not use the feature, and counts as one without it, too.

    Notes
    -----
    Where features enter and leave in groups, "feature j" is its whole group: its coefficient is zero where all of the group's are.

    Against an upper bound U on the best objective, such as `upper_bound` of any model: a feature with ``without[j] > U`` is in
    every optimal model, one with ``within[j] > U`` in none. Both comparisons are strict: a feature that another can stand in for at
    the same cost is never required.
    """

    without: Vector
    within: Vector

    def merged(self, other: Screening) -> Screening:
        """All that either of two proves."""
        return Screening(np.maximum(self.without, other.without), np.maximum(self.within, other.within))

    def above(self, bound: float) -> Screening:
        """Add a lower bound on all models, which is one on those with and those without a feature."""
        return Screening(np.maximum(self.without, bound), np.maximum(self.within, bound))

    def completed(self, size: int) -> Screening:
        """Add what counting proves: a model with a place for j lacks one of any `size` other features, if so many are allowed."""
        if not 0 < size < len(self.without):
            return self
        order = np.argsort(-self.without, kind="stable")
        least = np.full(len(self.without), self.without[order[size - 1]])
        least[order[:size]] = self.without[order[size]]
        return Screening(self.without, np.maximum(self.within, least))

    def required(self, objective: float) -> Indices:
        """Features, ascending, that are in every model with an objective of at most this."""
        return np.flatnonzero(self.without > objective)

    def excluded(self, objective: float) -> Indices:
        """Features, ascending, that are in no model with an objective of at most this."""
        return np.flatnonzero(self.within > objective)

    def drop_cost(self, objective: float) -> Vector:
        """By how much more than this, at least, every model without the feature costs; zero where nothing is proved."""
        return _excess(self.without, objective)

    def add_cost(self, objective: float) -> Vector:
        """By how much more than this, at least, every model with the feature costs; zero where nothing is proved."""
        return _excess(self.within, objective)


def screen(problem: Problem, bound: Bound, g: Vector) -> Screening:
    r"""Bound the models without, and with, each feature; `g` = X'(s alpha) is the one that `bound` was computed from.

    The models without feature j (those with a place for it) are a family of supports of their own, a part of all that are
    allowed, with its own :math:`\nu_j \le \nu` and its own dual function. At the same dual point that differs from D by
    :math:`(\nu(g)^2 - \nu_j(g)^2) / 2\lambda`, the fall that the constraint's `forcing` gives: no more work is needed.

    Nor is more lost to rounding. With E the bound on :math:`\nu` of the errors of :math:`\hat g` that `lower_bound` uses,

    .. math:: \nu_j(g)^2 \le (\nu_j(\hat g) + E)^2 = \nu_j(\hat g)^2 + 2 \nu_j(\hat g) E + E^2
              \le (\nu(\hat g) + E)^2 - [\nu(\hat g)^2 - \nu_j(\hat g)^2] ,

    and `bound` has :math:`(\nu(\hat g) + E)^2` in it already; nothing else of a norm is used, so that it holds with limits as well.
    What is left are the roundings of the fall itself, a difference
    of two squares of which the smaller or the larger is :math:`\hat g_j^2`, and of adding it to the bound.
    """
    if not problem.samples.any(bound.alpha):  # the trivial bound, whatever g belongs to
        g = np.zeros_like(g)
    constraint = problem.pull_constraint
    # A term is a square, or with limits a product of three rounded numbers.
    squares, lost = np.square(constraint.magnitudes(g)), 4.0 * UNIT * (constraint.unit_size + 1.0)
    if constraint.limits is not None and not constraint.limits.is_cone:
        lost *= 2.0
    falls = (_raised(bound.value, fall, squares, problem.lam, lost) for fall in constraint.forcing(g))
    return Screening(*falls)


def _raised(value: float, fall: Vector, squares: Vector, lam: float, lost: float = 8.0 * UNIT) -> Vector:
    """Return value + fall / (2 lam), rounded down; a difference of two squares, one of them given, each off by `lost`."""
    fall = np.maximum((1.0 - lost) * fall - lost * squares - 8.0 * SMALLEST, 0.0)
    raised = value + ((1.0 - 16.0 * UNIT) * fall / (2.0 * lam) - 16.0 * UNIT * abs(value) - SMALLEST)
    return np.maximum(raised, value)


def _excess(bounds: Vector, objective: float) -> Vector:
    """Return what bounds exceed an objective by, rounded down but never to zero: that is for where nothing is proved."""
    return np.maximum(bounds - objective, 0.0) * (1.0 - 2.0 * UNIT) if np.isfinite(objective) else np.zeros_like(bounds)


def _norm(c: Vector) -> float:
    """Euclidean norm, rounded up, of a vector whose squares may underflow."""
    largest = float(np.abs(c).max(initial=0.0))
    return largest and largest * float(np.linalg.norm(c / largest)) * (1.0 + 1e-9)


def _imbalance(positive: float, negative: float) -> float:
    """Fraction t by which the entries of c of one sign must shrink for their sum to be zero, rounded up.

    The positive entries sum to `positive` and the others to ``-negative``, each up to rounding.
    """
    rounding = (_PAIRWISE + 2.0) * UNIT * (positive + negative)
    delta, side = abs(positive - negative) + rounding, max(positive, negative)
    return 0.0 if side == 0.0 else min(1.0, delta / (side * (1.0 - 1e-9)))

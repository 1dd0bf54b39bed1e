r"""Several classes with one support in common: the multinomial loss, whose coefficients of a feature form one group.

.. math:: \min_{W, b} \; P(W, b) = \sum_i s_i \left[\log \sum_c e^{u_{ic}} - u_{i y_i}\right] + \frac{\lambda}{2} \|W\|_F^2 , \qquad
          u_i = W^\top x_i + b ,

over the W (features x classes) with at most k nonzero rows. The conjugate of the loss is :math:`\sum_c p_c \log p_c` at
:math:`a = p - e_y`, p in the simplex. With :math:`G = X^\top S A`, whose row norms take the place of :math:`|g_j|` everywhere,

.. math:: D(A) = -\sum_i s_i \sum_c p_{ic} \log p_{ic} - \frac{1}{2 \lambda} \nu(\|G_1\|, \ldots, \|G_d\|)^2 \le P(W, b) ,

where an intercept asks for :math:`\sum_i s_i A_i = 0`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from diht.certificate import HandedOut, in_dtype
from diht.constraint import Constraint
from diht.design import Design, spectral_bound
from diht.design.definite import Definite
from diht.duality import _ELEMENTWISE, _PAIRWISE, _TINY, _U, Bound, Screening, _raised
from diht.exact import CLEAR
from diht.losses import LOSSES, Declared, Loss, Squared
from diht.problem import Problem
from diht.result import Certificate, Iterate, Model, Result, Status, Trace
from diht.selection import top_k
from diht.solvers import Auto

__all__ = [
    "ALL_LOSSES",
    "Multinomial",
    "MultinomialBound",
    "MultinomialProblem",
    "MultinomialResult",
    "losses_with_probabilities",
    "solve_multinomial",
    "solve_multinomial_path",
]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]  # features x classes, or samples x classes
Indices = NDArray[np.int64]

_CONTINUATION = 1.0, 10.0, 100.0, 1000.0  # multiples of lam from whose relaxations starts come
_FIRST, _AT_LEAST = 4, 300  # features of the first working set, as a multiple of k, and at least
_NEAR = 0.9  # a feature this near to entering the model enters the working set
_ROUNDS = 20  # of a working set
_CHECK, _MOST_STEPS = 20, 1000  # steps of the relaxation between two looks at its gap, and in all on a working set
_STALLED = 1e-9  # of the gap: a relaxation whose values move by less between two looks ends
_RELAXED, _ROUGHLY = 1e-5, 1e-3  # relative gap at which a relaxation ends, for the bound and for a start
_WORTHWHILE = 1e-7  # relative fall of the relaxation's objective that is worth another fit
_LEAST_PLACE = 1e-6
_REWEIGHTED, _CHEAP = (
    3,
    1e8,
)  # fits with the places for weights in a row, and operations of a Hessian up to which they are made
_DIRECT, _LARGEST = 2e9, 1500  # operations of a Hessian, and its size, up to which it is formed
_ORTHOGONAL = 32  # columns up to which they are made orthonormal, at less than the cost of a Hessian
_NEWTON, _HALVINGS, _ARMIJO = 800, 40, 1e-4  # a step divides the loss of separable classes by e: float64 ends after 710
_FARTHEST = 100.0  # times the largest score: curvature that vanishes at sure classes makes longer steps, which are cut
_TRUST = 3.0  # times what Newton's method promises: more than that is not hoped for
_EXACT, _FINE, _ROUGH = 1e-14, 1e-7, 1e-3  # relative decrement at which a fit ends
_NEARLY = 1e-3  # relative decrement from which each is far below the last, unless rounding makes it
_WORTH = 1e-9  # relative fall of the objective that is worth a swap
_CANDIDATES, _PARTNERS, _LEAVING = (
    100,
    4,
    30,
)  # features that may join, that are tried for one that leaves, and that may leave
_PROMISING = 0.01  # relative distance to the best objective at which a start is worth a search whatever its size
_SMALL = 3e6  # operations of a fit's Hessian up to which every start is worth a search, and kicks are
_KICKS, _AWAY = 12, 3  # attempts from the best support without a few of its features, and how many


@dataclass(frozen=True)
class Multinomial(Declared):
    """The loss by its name, where a model is spoken of: that of one sample is a function of the scores of all classes."""

    name: ClassVar[str] = "multinomial"
    task: ClassVar[str] = "classification"
    is_likelihood: ClassVar[bool] = True


ALL_LOSSES: dict[str, type[Loss] | type[Multinomial]] = {**LOSSES, Multinomial.name: Multinomial}
"""Every loss by its name: those of one target, and that of all classes."""


def losses_with_probabilities() -> list[str]:
    """Return their names."""
    return [name for name, kind in ALL_LOSSES.items() if kind().has_probabilities]


def check_multinomial(solver: Any, exact: bool = False, **others: Any) -> None:
    """Raise unless the other settings go with the multinomial loss."""
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"{name} cannot be used with loss='multinomial' and more than two classes")
    if exact or not (isinstance(solver, Auto) or (isinstance(solver, str) and solver == "auto")):
        given = "exact=True" if exact else f"solver={solver!r}"
        raise ValueError(f"loss='multinomial' with more than two classes needs solver='auto', got {given}")


def check_several(n_classes: int) -> None:
    """Raise unless there are more than two classes, where all estimators mean the same by lam."""
    if n_classes <= 2:
        raise ValueError(
            f"loss='multinomial' needs more than two classes here, got {n_classes}: two are those of loss='logistic' with "
            "half of each lam"
        )


@dataclass(frozen=True, eq=False)
class MultinomialProblem:
    """The problem, stated once.

    Attributes
    ----------
    linear : Problem
        X, weights, ridge and constraint; its targets are the codes.
    codes : array of shape (N,)
        The classes, by their numbers from 0; each has some weight.
    n_classes : int
        Three or more, or two.
    """

    linear: Problem
    codes: NDArray[np.intp]
    n_classes: int

    @classmethod
    def of(
        cls,
        X: Any,
        codes: ArrayLike,
        k: int | Constraint = 10,
        lam: float = 1e-3,
        sample_weight: ArrayLike | None = None,
        fit_intercept: bool = True,
        *,
        scale: ArrayLike | None = None,
    ) -> MultinomialProblem:
        """Check the data as `Problem` does."""
        classes = np.asarray(codes)
        linear = Problem(X, classes, Squared(), k, lam, sample_weight, fit_intercept, scale=scale)
        if not linear.constraint.is_plain:
            raise ValueError("groups and sign cannot be used with the multinomial loss")
        n_classes = int(classes.max()) + 1
        if classes.dtype.kind not in "iu" or classes.min() < 0 or n_classes < 2:
            raise ValueError("codes must be the numbers of two classes or more, from 0")
        if not np.all(np.bincount(classes, weights=linear.s, minlength=n_classes) > 0.0):
            raise ValueError("codes must hold every class with positive weight")
        return cls(linear, classes.astype(np.intp), n_classes)

    def replaced(self, *, lam: float, constraint: Constraint | None = None) -> MultinomialProblem:
        """The same with another ridge, and another constraint."""
        constraint = self.linear.constraint if constraint is None else constraint
        return MultinomialProblem(self.linear.replaced(lam=lam, constraint=constraint), self.codes, self.n_classes)

    @property
    def onehot(self) -> Matrix:
        """The classes as rows of the identity."""
        return np.eye(self.n_classes)[self.codes]


# ---------------------------------------------------------------------------------------------------------------------
# Duality


def probabilities(U: Matrix) -> Matrix:
    """Softmax of the rows."""
    e = np.exp(U - U.max(axis=1)[:, None])
    return np.asarray(e / e.sum(axis=1)[:, None])


def sizes(W: Matrix) -> Vector:
    """Norms of the rows."""
    return np.asarray(np.sqrt(np.square(W).sum(axis=1)))


def losses(problem: MultinomialProblem, U: Matrix) -> Vector:
    """Loss of each sample, log(1 + sum of exp(difference of a score and its class's own)), to all digits where it is small."""
    rows = np.arange(len(U))
    V = U - U[rows, problem.codes][:, None]
    top = V.max(axis=1)  # at least the 0 of the sample's own class
    V -= top[:, None]
    np.exp(V, out=V)
    V[rows, problem.codes] = 0.0
    return np.asarray(top + np.log1p(V.sum(axis=1) + np.expm1(-top)))


def primal(problem: MultinomialProblem, W: Matrix, U: Matrix) -> float:
    """P(W, b), where U holds the scores XW + b."""
    return float(problem.linear.s @ losses(problem, U) + 0.5 * problem.linear.lam * np.square(W).sum())


def scores(design: Design, W: Matrix) -> Matrix:
    """XW, class by class."""
    support = np.flatnonzero(W.any(axis=1))
    return np.stack([design.matvec(np.ascontiguousarray(w), support=support) for w in W.T], axis=1)


def dual_point(problem: MultinomialProblem, P: Matrix) -> Matrix:
    """A = P - E, the derivatives of the losses; that of a sample's own class to all digits, also where P rounds to 1."""
    A, rows = P.copy(), np.arange(len(P))
    A[rows, problem.codes] = 0.0
    A[rows, problem.codes] = -A.sum(axis=1)
    return A


def gradient(problem: MultinomialProblem, A: Matrix) -> Matrix:
    """G = X'SA, class by class."""
    linear = problem.linear
    return np.stack([linear.design.rmatvec(linear.s * a) for a in A.T], axis=1)


@dataclass(frozen=True, eq=False)
class MultinomialBound(Bound):
    """A lower bound; `alpha` is the dual point A, of shape (N, number of classes)."""

    def renewed(self, problem: Any) -> Bound:
        """What the same proof proves of a `MultinomialProblem`."""
        shape = problem.linear.shape[0], problem.n_classes
        return lower_bound(problem, self.alpha if self.alpha.shape == shape else np.zeros(shape))

    def screening(self, problem: Any) -> Screening:
        """Bound the models without, and with, each feature."""
        G = gradient(problem, self.alpha)
        return screen(problem, lower_bound(problem, self.alpha, G), G).above(self.value)


def lower_bound(problem: MultinomialProblem, A: Matrix, G: Matrix | None = None) -> MultinomialBound:
    r"""D(A) less all that rounding can have added to it: a true lower bound on the best objective. `G` = X'SA where it is known.

    As :func:`diht.duality.lower_bound`, with two more steps, since P = A + E is a row of probabilities only to rounding. Divided by
    its sum, which is within :math:`\eta` of 1, a row is one exactly; that moves it by at most :math:`2 \eta` and its entropy by
    :math:`2 \eta` of itself and :math:`2 \eta`. With an intercept, :math:`\delta = \sum_i s_i A_i` is zero only to rounding: with
    :math:`t = \max_c |\delta_c| / \pi_c`, :math:`\pi` the weights of the classes, the mixture :math:`(1 - t) P_i + t q` with one q
    for all samples, :math:`q \propto t \pi - (1 - t) \delta \ge 0`, balances exactly. The conjugate is convex and negative, so that
    this costs at most t times the entropy, and a row moves by at most :math:`\sqrt 2 t`.
    """
    linear, n_classes = problem.linear, problem.n_classes
    s, lam = linear.s, linear.lam
    nothing = MultinomialBound(0.0, np.zeros_like(A), 0.0)
    if not np.all(np.isfinite(A)):
        return nothing
    P = A + problem.onehot
    if P.min() < 0.0 or P.max() > 1.0:
        return nothing
    G = gradient(problem, A) if G is None else G
    eta = float(np.abs(A.sum(axis=1)).max()) + 4.0 * n_classes * _U
    entropy, total = -float(np.sum(s[:, None] * xlogy(P, P))), float(s.sum()) * (1.0 + 1e-9)
    shift = _imbalance(problem, A, eta) if linear.fit_intercept else 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        value_of_g = linear.constraint.value(sizes(G))
        value = entropy - value_of_g / (2.0 * lam)
        norm_c, norm_s = _norm(s[:, None] * A), _norm(s)
        error = 2.0 * (norm_c * linear.rounding_norm + np.sqrt(n_classes) * linear.underflow_norm)
        error += (1.5 * shift + 2.0 * eta) * norm_s * linear.column_norm
        lost = (shift + 2.0 * eta + (_ELEMENTWISE + _PAIRWISE + n_classes) * _U) * (abs(entropy) + total)
        relative = (linear.constraint.size + n_classes + 16.0) * _U
        norm = np.sqrt(value_of_g + linear.constraint.size * n_classes * _TINY)
        lost += 4.0 * A.size * _TINY
        lost += ((norm * (1.0 + relative) + error) ** 2 * (1.0 + relative) - value_of_g) / (2.0 * lam)
        safe = value - lost - 8.0 * _U * (abs(value) + abs(lost))
    if not (shift < 1.0 and eta < 0.1 and safe > 0.0):
        return nothing
    return MultinomialBound(float(safe), A, float(value - safe))


def _imbalance(problem: MultinomialProblem, A: Matrix, eta: float) -> float:
    """The share t of a common distribution that balances A, rounded up."""
    s = problem.linear.s
    weights = np.bincount(problem.codes, weights=s, minlength=problem.n_classes)
    delta = np.abs(np.sum(s[:, None] * A, axis=0)) + 2.0 * eta * s.sum() + (_PAIRWISE + 2.0) * _U * (s @ np.abs(A))
    return float(np.max(delta / weights)) * (1.0 + 1e-8)


def _norm(c: NDArray[np.float64]) -> float:
    """Euclidean norm, rounded up, of numbers whose squares may underflow."""
    largest = float(np.abs(c).max())
    return largest and largest * float(np.linalg.norm(c / largest)) * (1.0 + 1e-9)


def screen(problem: MultinomialProblem, bound: Bound, G: Matrix) -> Screening:
    """Bound the models without, and with, each feature; see :func:`diht.duality.screen`."""
    if not np.any(bound.alpha):
        G = np.zeros_like(G)
    size, lost = sizes(G), 4.0 * _U * (problem.n_classes + 1.0)
    falls = problem.linear.constraint.forcing(size)
    return Screening(*(_raised(bound.value, fall, np.square(size), problem.linear.lam, lost) for fall in falls))


def upper_bound(problem: MultinomialProblem, W: Matrix, U: Matrix, error: float | None = None) -> float:
    """P(W, b) plus all that rounding can have taken from it; the loss moves by at most twice what a score does.

    `error` bounds that of the scores, where it is known.
    """
    linear = problem.linear
    if error is None:
        error = 2.0 * max(linear.design.matvec_error(np.ascontiguousarray(w)) for w in W.T)
    e = error + 4.0 * _U * float(np.abs(U).max())
    ridge = 0.5 * linear.lam * float(np.square(W).sum()) * (1.0 + (np.count_nonzero(W) + 16.0) * _U)
    size = float(linear.s @ np.abs(U).max(axis=1)) + np.log(problem.n_classes)
    value = float(linear.s @ losses(problem, U))
    rounding = 2.0 * e + 2.0 * (_ELEMENTWISE + _PAIRWISE + problem.n_classes) * _U * (2.0 * size + ridge)
    return float(value + ridge + rounding * (1.0 + 1e-9) + W.size * _TINY)


# ---------------------------------------------------------------------------------------------------------------------
# Smooth fits


def best_intercept(problem: MultinomialProblem, U: Matrix, b: Vector) -> Vector:
    """The best intercepts, which sum to zero, for the scores U; by Newton's method from b.

    Where the rounding of the scores hides what a step promises to gain, it is taken if it halves the slope, or else the last.
    """
    s, blur = problem.linear.s, 1e-14 * max(1.0, float(np.abs(U).max()))

    def value(b: Vector) -> float:
        return float(s @ losses(problem, U + b))

    now, before, limit = value(b), b, np.inf
    for _ in range(_NEWTON):
        P = probabilities(U + b)
        slope = s @ dual_point(problem, P)
        size = float(np.abs(slope).max())
        if not size <= limit:
            b = before
            break
        H = -(P.T @ (s[:, None] * P))
        np.fill_diagonal(H, 0.0)
        np.fill_diagonal(H, -H.sum(axis=1))  # sum of s p_c (1 - p_c), without cancellation
        step = -Definite(_grounded(H)).solve(slope)
        decrease = -float(slope @ step)
        if not decrease > 1e-32 * abs(now):
            break
        for _ in range(_HALVINGS):
            new = value(b + step)
            if new <= now - _ARMIJO * decrease or decrease <= blur * abs(now):
                break
            step, decrease = 0.5 * step, 0.5 * decrease
        limit = 0.5 * size if decrease <= blur * abs(now) else np.inf
        before, b, now = b, b + step, new
    return np.asarray(b - b.mean())


def _grounded(H: Matrix) -> Matrix:
    """H of the intercepts, in place, with more curvature for the one that has most: all move together at no cost otherwise."""
    c = int(np.argmax(H.diagonal()))
    H[c, c] *= 2.0
    return H


@dataclass(frozen=True, eq=False)
class _Fit:
    """A model on some features: coefficients (features x classes), intercepts, scores and objective."""

    support: Indices
    W: Matrix
    b: Vector
    U: Matrix
    value: float


def _minimise(
    problem: MultinomialProblem, X: Matrix, ridge: Vector, W: Matrix, b: Vector, rtol: float, target: float = np.inf
) -> tuple[Matrix, Vector, Matrix, float]:
    """Minimise the loss plus half of sum_j ridge_j ||W_j||^2 over dense columns, by Newton's method: W, b, scores, value.

    It is given up once what its steps promise leaves no hope for a value below `target`.
    """
    s, intercept = problem.linear.s, problem.linear.fit_intercept
    Z = np.hstack([X, np.ones((len(X), 1))]) if intercept else X
    V = np.vstack([W, b]) if intercept else W
    ridge = np.append(ridge, 0.0) if intercept else ridge
    U = Z @ V

    def value(V: Matrix, U: Matrix) -> float:
        return float(s @ losses(problem, U) + 0.5 * ridge @ np.square(V).sum(axis=1))

    now = value(V, U)
    if not now <= float(s.sum()) * np.log(problem.n_classes):  # a start that is sure of wrong classes has no curvature
        V, U = np.zeros_like(V), np.zeros_like(U)
        now = value(V, U)
    newton, limit = _newton(problem, Z, ridge), np.inf
    for _ in range(_NEWTON if V.size else 0):
        step, decrease = newton(V, probabilities(U))
        if not decrease > rtol * abs(now) or now - _TRUST * decrease > target:
            break
        if decrease <= _NEARLY * abs(now) and decrease > limit:
            break
        change = Z @ step
        largest = float(np.abs(change).max())
        size = min(1.0, _FARTHEST * (1.0 + float(np.abs(U).max())) / largest) if largest > 0.0 else 1.0
        for _ in range(_HALVINGS):
            new = value(V + size * step, U + size * change)
            if new <= now - _ARMIJO * size * decrease:
                break
            size *= 0.5
        if not new < now:
            break
        limit = 0.5 * decrease if size == 1.0 else np.inf
        V, U, now = V + size * step, U + size * change, new
    U = Z @ V
    if not intercept:
        return V, np.zeros(problem.n_classes), U, value(V, U)
    return V[:-1], V[-1] - V[-1].mean(), U - V[-1].mean(), value(V, U)


def _newton(problem: MultinomialProblem, Z: Matrix, ridge: Vector) -> Callable[[Matrix, Matrix], tuple[Matrix, float]]:
    r"""Newton's step, and what it promises, as a function of V and the probabilities of its scores.

    With the factors of :math:`(\sqrt s Z; \sqrt{\mathrm{ridge}}) = QR`, the step of RV has equations whose condition is that of the
    probabilities alone, whatever the scales, the means and the dependence of the columns; of many columns, R = I.
    """
    s, intercept, (n, m) = problem.linear.s, problem.linear.fit_intercept, Z.shape
    size = m * problem.n_classes
    if float(n) * size**2 > _DIRECT or size > _LARGEST:

        def approximate(V: Matrix, P: Matrix) -> tuple[Matrix, float]:
            slope = Z.T @ (s[:, None] * dual_point(problem, P)) + ridge[:, None] * V
            step = _conjugate_gradients(Z, s, P, ridge, slope, intercept)
            return step, -float(np.sum(slope * step))

        return approximate

    root_s, root_ridge = np.sqrt(s)[:, None], np.sqrt(ridge)[:, None]
    Q, R = np.vstack([root_s * Z, np.diag(root_ridge[:, 0])]), np.eye(m)
    if m <= _ORTHOGONAL:
        Q, R = np.linalg.qr(Q)
        R[np.diag_indices(m)] = np.where(R.diagonal() == 0.0, np.inf, R.diagonal())

    def direct(V: Matrix, P: Matrix) -> tuple[Matrix, float]:
        slope = Q[:n].T @ (root_s * dual_point(problem, P)) + Q[n:].T @ (root_ridge * V)
        step = -Definite(_hessian(Q, P, intercept)).solve(slope.T.ravel()).reshape(P.shape[1], m).T
        decrease = -float(np.sum(slope * step))
        return np.asarray(np.linalg.solve(R, step) if m <= _ORTHOGONAL else step, dtype=np.float64), decrease

    return direct


def _hessian(Q: Matrix, P: Matrix, intercept: bool) -> Matrix:
    """The Hessian in RV, class by class; the blocks of a class sum to its ridge, so that p_c (1 - p_c) need not cancel."""
    (n, n_classes), m = P.shape, Q.shape[1]
    products = (P[:, :, None] * Q[:n, None, :]).reshape(n, n_classes * m)
    flat = -(products.T @ products)
    H, ridge = flat.reshape(n_classes, m, n_classes, m), Q[n:].T @ Q[n:]
    for c in range(n_classes):
        H[c, :, c] = 0.0
        H[c, :, c] = ridge - H[c].sum(axis=1)
    if intercept:
        _grounded(H[:, -1, :, -1])  # the last of RV is a multiple of the intercept
    return np.asarray(flat)


def _conjugate_gradients(Z: Matrix, s: Vector, P: Matrix, ridge: Vector, slope: Matrix, intercept: bool) -> Matrix:
    """The same for many features, to a hundredth of the slope."""

    def product(D: Matrix) -> Matrix:
        change = Z @ D
        curved = s[:, None] * P * (change - np.sum(P * change, axis=1)[:, None])
        turned = Z.T @ curved + ridge[:, None] * D
        if intercept:
            turned[-1] += D[-1].mean()
        return np.asarray(turned)

    curvature = np.square(Z).T @ (s[:, None] * P * (1.0 - P)) + ridge[:, None] + 1e-12
    x, r = np.zeros_like(slope), -slope
    z = r / curvature
    p, rz = z, float(np.sum(r * z))
    target = 1e-4 * rz
    for _ in range(300):
        if not rz > target:
            break
        turned = product(p)
        length = rz / float(np.sum(p * turned))
        x, r = x + length * p, r - length * turned
        z = r / curvature
        rz, before = float(np.sum(r * z)), rz
        p = z + rz / before * p
    return np.asarray(x)


# ---------------------------------------------------------------------------------------------------------------------
# The relaxation


@dataclass
class _Relaxed:
    """The relaxation's model on a working set, and the dual point of its scores."""

    features: Indices
    W: Matrix
    b: Vector
    A: Matrix
    value: float


class _Relaxation:
    """Accelerated proximal gradients on a working set, and fits with its places for weights in between."""

    def __init__(self, problem: MultinomialProblem, features: Indices, stop: Callable[[], bool]) -> None:
        self.problem, self.features, self.stop = problem, features, stop
        linear = problem.linear
        self.constraint = linear.constraint.within(features)
        part = linear.design.columns(features)
        self.X = part.toarray()
        linear.design.count_reads_of(part)
        self.curvature = max(0.5 * spectral_bound(part, linear.s), 1e-3 * linear.lam)
        self.onehot = problem.onehot

    def scored(self, W: Matrix, b: Vector) -> tuple[Vector, Matrix]:
        """The best intercepts, and the scores with them."""
        U = self.X @ W
        if self.problem.linear.fit_intercept:
            b = best_intercept(self.problem, U, b)
        return b, U + b

    def value(self, W: Matrix, U: Matrix) -> float:
        """The relaxation's objective."""
        linear = self.problem.linear
        return float(linear.s @ losses(self.problem, U)) + linear.lam * self.constraint.relaxation(sizes(W))

    def dual(self, A: Matrix) -> tuple[float, Matrix]:
        """D(A) on the working set, and G."""
        linear = self.problem.linear
        P, G = A + self.onehot, self.X.T @ (linear.s[:, None] * A)
        entropy = -float(np.sum(linear.s[:, None] * xlogy(P, P)))
        return entropy - self.constraint.value(sizes(G)) / (2.0 * linear.lam), G

    def prox(self, Q: Matrix, r: float) -> Matrix:
        """Shrink every row as its size is shrunk."""
        size = sizes(Q)
        return np.asarray(Q * (self.constraint.prox(size, r) / np.where(size > 0.0, size, 1.0))[:, None])

    def solve(self, W: Matrix, b: Vector, accuracy: float) -> _Relaxed:
        """Minimise from a model, until the gap on the working set is within `accuracy`."""
        s, lam = self.problem.linear.s, self.problem.linear.lam
        last, point, momentum = W, W, 1.0
        value, best, rtol = np.inf, -np.inf, _FINE
        for t in range(1, _MOST_STEPS + 1):
            b, U = self.scored(point, b)
            A = dual_point(self.problem, probabilities(U))
            slope = self.X.T @ (s[:, None] * A)
            W = self.prox(point - slope / self.curvature, lam / self.curvature)
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            if float(np.sum((point - W) * (W - last))) > 0.0:
                following = momentum = 1.0
            point = W + (momentum - 1.0) / following * (W - last)
            last, momentum = W, following
            if t % _CHECK == 0:
                W, b = self.reweighted(W, b, rtol)
                if W is not last:
                    last = point = W
                    momentum = 1.0
                b, U = self.scored(W, b)
                A = dual_point(self.problem, probabilities(U))
                before, value, best = (value, best), self.value(W, U), max(best, self.dual(A)[0])
                moved = abs(value - before[0]) + best - before[1]
                stalled = rtol == _EXACT and moved <= _STALLED * (value - best)
                if value - best <= accuracy * abs(value) or stalled or self.stop():
                    break
                if moved * _MOST_STEPS < _CHECK * (value - best):  # a slope that hardly shows in the value can lower D
                    rtol = _EXACT
        b, U = self.scored(W, b)
        return _Relaxed(self.features, W, b, dual_point(self.problem, probabilities(U)), self.value(W, U))

    def reweighted(self, W: Matrix, b: Vector, rtol: float) -> tuple[Matrix, Vector]:
        """Minimise with the places of W held fast, which lies above the relaxation and touches it at W; W if that is no better."""
        lam, (n, n_classes) = self.problem.linear.lam, (len(self.X), W.shape[1])
        for _ in range(_REWEIGHTED):
            places = self.constraint.places(sizes(W))
            used = np.flatnonzero((places > _LEAST_PLACE) & W.any(axis=1))
            if not len(used) or float(n) * (len(used) * n_classes) ** 2 > _CHEAP:
                break
            fitted, c, _, _ = _minimise(self.problem, self.X[:, used], lam / places[used], W[used], b, rtol)
            new = np.zeros_like(W)
            new[used] = fitted
            before, after = self.value(W, self.scored(W, b)[1]), self.value(new, self.X @ new + c)
            if not after < before - (_WORTHWHILE * abs(before) if rtol > _EXACT else 0.0):
                break
            W, b = new, c
        return W, b


def _relax(
    problem: MultinomialProblem, W: Matrix, b: Vector, accuracy: float, stop: Callable[[], bool]
) -> Iterator[tuple[_Relaxed, Matrix]]:
    """Solve the relaxation on growing working sets, from a model; after each, its model and G of all features."""
    constraint, d = problem.linear.constraint, problem.linear.shape[1]
    _, U = b, scores(problem.linear.design, W) + b
    if problem.linear.fit_intercept:
        b = best_intercept(problem, U - b, b)
        U = scores(problem.linear.design, W) + b
    size = sizes(gradient(problem, dual_point(problem, probabilities(U))))
    features = np.union1d(top_k(size, max(_FIRST * constraint.size, _AT_LEAST)), np.flatnonzero(W.any(axis=1)))
    for _ in range(_ROUNDS):
        relaxed = _Relaxation(problem, features, stop).solve(W[features], b, accuracy)
        G = gradient(problem, relaxed.A)
        yield relaxed, G
        size = sizes(G)
        last = size[features[constraint.within(features).select(size[features])]].min(initial=np.inf)
        size[features] = 0.0
        if not np.any(size > last) or stop():
            return
        near = np.flatnonzero(size > _NEAR * last)
        W, b = np.zeros((d, problem.n_classes)), relaxed.b
        W[features] = relaxed.W
        features = np.union1d(features, near[top_k(size[near], len(features))])


# ---------------------------------------------------------------------------------------------------------------------
# The search


@dataclass
class _Search:
    """The best models and the best bound so far, and the work that is left."""

    problem: MultinomialProblem
    random_state: int
    stop: Callable[[], bool]
    pool: dict[bytes, _Fit] = field(default_factory=dict)
    searched: set[bytes] = field(default_factory=set)
    bound: MultinomialBound | None = None
    best: _Fit | None = None

    def __post_init__(self) -> None:
        linear = self.problem.linear
        mean, variance = linear.design.moments(linear.s)
        self.spread = variance if linear.fit_intercept else variance + mean**2

    @property
    def gap(self) -> float:
        """What is still open."""
        assert self.best is not None
        return self.best.value - (0.0 if self.bound is None else self.bound.value)

    @property
    def is_open(self) -> bool:
        """Whether anything better could be found."""
        assert self.best is not None
        return self.gap > _WORTH * abs(self.best.value) and not self.stop()

    def prove(self, A: Matrix, G: Matrix | None = None) -> None:
        """Take the bound of a dual point, if it is better."""
        bound = lower_bound(self.problem, A, G)
        if self.bound is None or bound.value > self.bound.value:
            self.bound = bound

    def fit(self, support: Indices, start: _Fit | None = None, rtol: float = _FINE, target: float = np.inf) -> _Fit:
        """The best model on a support, from that of another; given up where it cannot be better than `target`."""
        problem, support = self.problem, np.sort(support)
        design = problem.linear.design
        part = design.columns(support)
        W, b = np.zeros((len(support), problem.n_classes)), np.zeros(problem.n_classes)
        if start is not None:
            _, here, there = np.intersect1d(support, start.support, return_indices=True)
            W[here], b = start.W[there], start.b
        fitted = _minimise(problem, part.toarray(), np.full(len(support), problem.linear.lam), W, b, rtol, target)
        design.count_reads_of(part)
        fit = _Fit(support, *fitted)
        key = support.tobytes()
        if key not in self.pool or fit.value < self.pool[key].value:
            self.pool[key] = fit
        if self.best is None or fit.value < self.best.value:
            self.best = fit
        return fit

    def promise(
        self, fit: _Fit, A: Matrix | None = None, X: Matrix | None = None, features: Indices | None = None
    ) -> Vector:
        """What each feature, alone, would lower the objective by, roughly; of some features where their columns are given."""
        problem = self.problem
        P = probabilities(fit.U)
        A = dual_point(problem, P) if A is None else A
        others = P @ (1.0 - np.eye(problem.n_classes))
        curvature = float(problem.linear.s @ (P * others).sum(axis=1)) / (problem.n_classes - 1.0)
        if X is None or features is None:
            size, spread = sizes(gradient(problem, A)), self.spread
        else:
            size, spread = sizes(X.T @ (problem.linear.s[:, None] * A)), self.spread[features]
        return np.asarray(np.square(size) / (problem.linear.lam + curvature * spread))

    def filled(self, fit: _Fit, outside: Indices) -> _Fit:
        """Add the features that promise most, one by one."""
        room = min(self.problem.linear.constraint.size, self.problem.linear.shape[1] - len(outside))
        while len(fit.support) < room and not self.stop():
            promise = self.promise(fit)
            promise[fit.support] = promise[outside] = -1.0
            n_new = max(1, (room - len(fit.support)) // 2)
            fit = self.fit(np.append(fit.support, top_k(np.maximum(promise, 0.0), n_new)), fit)
        return fit

    def swaps(self, fit: _Fit, outside: Indices | None = None) -> _Fit:
        """Exchange one feature for another while that lowers the objective."""
        outside = np.empty(0, dtype=np.int64) if outside is None else outside
        fit = self.filled(fit, outside)
        key = fit.support.tobytes()
        if key in self.searched and not len(outside):
            return fit
        while not self.stop():
            new = self.first_better(fit, outside)
            if new is None:
                break
            fit = new
        self.searched.add(fit.support.tobytes())
        return fit

    def first_better(self, fit: _Fit, outside: Indices) -> _Fit | None:
        """Try to do without each feature, those that seem to matter least first, with the best of the others in its place."""
        promise = self.promise(fit)
        promise[fit.support] = promise[outside] = 0.0
        candidates = top_k(promise, min(_CANDIDATES, int(np.count_nonzero(promise))))
        if not len(candidates):
            return None
        part = self.problem.linear.design.columns(candidates)
        X = part.toarray()
        self.problem.linear.design.count_reads_of(part)
        matter = sizes(fit.W) * np.sqrt(self.spread[fit.support])
        for i in np.argsort(matter, kind="stable")[:_LEAVING].tolist():
            rest = self.fit(np.delete(fit.support, i), fit, _ROUGH)
            hopes = self.promise(rest, X=X, features=candidates)
            for j in candidates[np.argsort(-hopes, kind="stable")[:_PARTNERS]]:
                if self.stop():
                    return None
                new = self.fit(np.append(rest.support, j), rest, target=fit.value)
                if new.value < fit.value - _WORTH * abs(fit.value):
                    return new
        return None

    def work(self, starts: Sequence[Indices]) -> Iterator[None]:
        """All there is to do, in pieces."""
        problem = self.problem
        constraint, d = problem.linear.constraint, problem.linear.shape[1]
        nothing = self.fit(np.empty(0, dtype=np.int64))
        self.prove(dual_point(problem, probabilities(nothing.U)))
        for start in starts:
            self.fit(start[: constraint.size], nothing)
        yield
        W, b = np.zeros((d, problem.n_classes)), nothing.b
        is_small = problem.linear.shape[0] * float(constraint.size * problem.n_classes) ** 2 <= _SMALL
        for factor in _CONTINUATION:
            if not self.is_open:
                return
            larger = problem if factor == 1.0 else problem.replaced(lam=factor * problem.linear.lam)
            accuracy = _RELAXED if factor == 1.0 else _ROUGHLY
            supports = []
            for relaxed, G in _relax(larger, W, b, accuracy, self.stop):
                if factor == 1.0:
                    self.prove(relaxed.A, G)
                supports = [relaxed.features[top_k(sizes(relaxed.W), constraint.size)], constraint.select(sizes(G))]
                fits = [self.fit(support, nothing) for support in supports]
                yield
            assert self.best is not None
            for fit in fits:
                if factor == 1.0 or is_small or fit.value <= (1.0 + _PROMISING) * self.best.value:
                    self.swaps(fit)
                    yield
        rng = np.random.default_rng(self.random_state)
        for t in range(_KICKS):
            assert self.best is not None
            if not self.is_open or not is_small or not len(self.best.support):
                return
            away = rng.choice(self.best.support, min(1 + t % _AWAY, len(self.best.support)), replace=False)
            self.swaps(self.swaps(self.fit(np.setdiff1d(self.best.support, away), self.best), away))
            yield

    def polish(self) -> _Fit:
        """Fit the best model as far as float64 goes; its own dual point may prove more."""
        assert self.best is not None
        fit = self.fit(self.best.support, self.best, _EXACT)
        self.prove(dual_point(self.problem, probabilities(fit.U)))
        return fit


# ---------------------------------------------------------------------------------------------------------------------
# The answer


class MultinomialResult(Result):
    """A `Result` whose `w` has one column a class, `intercept` one entry a class, and `alpha` the shape (N, classes)."""

    @property
    def support(self) -> Indices:
        """Indices of the rows of `w` that are not zero, ascending."""
        return np.flatnonzero(self.w.any(axis=1))


def predicted(problem: MultinomialProblem, coef: Matrix, intercept: Vector) -> tuple[Matrix, float, float]:
    """Scores of a model as it is handed out, its objective and an upper bound on that; precise ones where rounding counts."""
    linear = problem.linear
    W, intercept = linear.scaled_coefficients(coef), np.asarray(intercept, dtype=np.float64)
    b = [linear.centred_intercept(w, c) for w, c in zip(W.T, intercept, strict=True)] if linear.fit_intercept else 0.0
    U = scores(linear.design, W) + b
    objective, attained = primal(problem, W, U), upper_bound(problem, W, U)
    if attained - objective > CLEAR * abs(objective):
        columns = [linear.design.predictions(w, float(c)) for w, c in zip(coef.T, intercept, strict=True)]
        U, error = np.stack([u for u, _ in columns], axis=1), max(float(e.max()) for _, e in columns)
        objective, attained = primal(problem, W, U), upper_bound(problem, W, U, error)
    return U, objective, max(objective, attained)


def certificate(problem: MultinomialProblem, coef: Matrix, intercept: Vector, known: Bound | None) -> Certificate:
    """Everything about a model, in the user's units, and the dual point of a bound, computed afresh."""
    linear = problem.linear
    W = linear.scaled_coefficients(coef)
    A = np.zeros((linear.shape[0], problem.n_classes)) if known is None else known.alpha
    G = gradient(problem, A)
    U, objective, attained = predicted(problem, coef, intercept)
    bound = lower_bound(problem, A, G)
    G = G if bound.alpha is A else np.zeros_like(G)
    P, V = bound.alpha + problem.onehot, -G / linear.lam
    fenchel = float(
        linear.s @ (losses(problem, U) + xlogy(P, P).sum(axis=1) - np.sum(bound.alpha * (U - U.mean()), axis=1))
    )
    ridge = float(np.square(W).sum() - 2.0 * np.sum(W * V)) + linear.constraint.value(sizes(V))
    support = np.flatnonzero(W.any(axis=1))
    smallest = float(sizes(W)[support].min()) if len(support) >= linear.constraint.size else 0.0
    return Certificate(
        objective=objective,
        lower_bound=max(bound.claimed, 0.0),
        bound=bound,
        fenchel=max(fenchel, 0.0),
        ridge=max(0.5 * linear.lam * ridge, 0.0),
        margin=smallest - float(sizes(G + linear.lam * W).max()) / linear.lam,
        support=support,
        attained=attained,
        screening=screen(problem, bound, G).completed(linear.constraint.size),
    )


def solve_multinomial(
    problem: MultinomialProblem,
    starts: Sequence[Indices] = (),
    tol: float = 1e-4,
    max_iter: int | None = None,
    time_limit: float | None = None,
    callback: Callable[[Iterate], Any] | None = None,
    *,
    random_state: int = 0,
    stop: Callable[[], bool] | None = None,
) -> MultinomialResult:
    """Minimise a multinomial problem and bound its optimum from below, as `diht.solve` does for one target.

    The relaxations for several ridges are rounded, their supports improved by swaps of features, and the best is certified.

    Parameters
    ----------
    problem : MultinomialProblem
    starts : sequence of arrays of int
        Features of models to begin with.
    tol, max_iter, time_limit, callback, stop
        As in `diht.solve`; a step is one piece of the work.
    random_state : int
        Seed of the kicks.
    """
    begun, passes, trace = perf_counter(), problem.linear.design.passes, Trace()
    told = {"stop": False}

    def ending() -> bool:
        told["stop"] = told["stop"] or (stop is not None and bool(stop()))
        return told["stop"] or (time_limit is not None and perf_counter() - begun > time_limit)

    search, status = _Search(problem, random_state, ending), Status.STALLED
    for t, _ in enumerate(search.work(starts), start=1):
        fit, proved = search.best, 0.0 if search.bound is None else search.bound.value
        assert fit is not None
        seen, reads = perf_counter() - begun, problem.linear.design.passes - passes
        iterate = Iterate(t, reads, seen, fit.value, proved, fit.value, proved, len(fit.support))
        trace.append(iterate)
        if callback is not None and callback(_with_model(problem, iterate, fit)):
            told["stop"] = True
        if told["stop"] or iterate.relative_gap <= tol or ending() or (max_iter is not None and t >= max_iter):
            status = Status.MAX_ITER
            break
    fit = search.polish()
    dtype = problem.linear.dtype
    W, intercept = _in_full(problem, fit)
    coef, intercept = in_dtype(
        dtype,
        problem.linear.coefficients_of(W + 0.0),
        intercept,
        lambda coef, intercept: predicted(problem, coef, intercept)[1],
        None if search.bound is None else search.bound.value,
        tol,
    )
    if told["stop"]:
        status = Status.STOPPED
    elif ending():
        status = Status.TIME_LIMIT
    stored: Any = intercept
    w = coef if problem.linear.scale is None else problem.linear.scaled_coefficients(coef)
    pool = sorted(search.pool.values(), key=lambda fit: fit.value)[:20]
    return HandedOut(w, coef, stored, certificate(problem, coef, intercept, search.bound)).result(
        MultinomialResult,
        status,
        tol,
        pool=tuple(_model(problem, fit) for fit in pool),
        last=_model(problem, fit),
        last_alpha=None,
        n_iter=len(trace),
        n_passes=problem.linear.design.passes - passes,
        seconds=perf_counter() - begun,
        trace=trace,
        solver="multinomial",
    )


def solve_multinomial_path(
    problem: MultinomialProblem,
    ks: Sequence[int],
    lams: Sequence[float],
    tol: float = 1e-4,
    time_limit: float | None = None,
    random_state: int = 0,
    tell: Callable[[int, float, Result], Any] = lambda *_: None,
) -> dict[tuple[int, float], MultinomialResult]:
    """Solve for all k and lam, as `diht.sweep.solve_path` does for one target; by lam and then by k, both ascending.

    A point starts from the features of the next smaller k and of the next larger lam, so that objectives neither rise with k nor
    fall with lam; dual points are handed on the other way, so that bounds do not either. `tell` gets each point when it is first
    solved, and returns True to leave out those that are still to come.
    """
    deadline = None if time_limit is None else perf_counter() + time_limit
    grid = [(k, lam) for lam in reversed(lams) for k in ks]
    points: dict[tuple[int, float], MultinomialResult] = {}
    for i, (k, lam) in enumerate(grid):
        before = [(smaller, lam) for smaller in ks if smaller < k][-1:] + [
            (k, larger) for larger in lams if larger > lam
        ][:1]
        limit = None if deadline is None else max(deadline - perf_counter(), 1e-9) / (len(grid) - i)
        points[k, lam] = solve_multinomial(
            _at(problem, k, lam),
            [points[key].support for key in before],
            tol,
            None,
            limit,
            random_state=random_state,
        )
        if tell(k, lam, points[k, lam]):
            break
    done = sorted(points, key=lambda key: (key[1], -key[0]))
    for k, lam in done:
        after = [(larger, lam) for larger in ks if larger > k][:1] + [
            (k, smaller) for smaller in lams if smaller < lam
        ][-1:]
        for key in after:
            if key in points:
                points[k, lam] = _proved_by(_at(problem, k, lam), points[k, lam], points[key], tol)
    return {key: points[key] for key in sorted(points, key=lambda key: (key[1], key[0]))}


def _at(problem: MultinomialProblem, k: int, lam: float) -> MultinomialProblem:
    return problem.replaced(lam=lam, constraint=problem.linear.constraint.allowing(k))


def _proved_by(
    problem: MultinomialProblem, result: MultinomialResult, other: MultinomialResult, tol: float
) -> MultinomialResult:
    """A result with the bound of another one's dual point, if that is better."""
    bound = lower_bound(problem, other.alpha)
    if bound.value <= result.lower_bound:
        return result
    proof = certificate(problem, result.coef, np.asarray(result.intercept, dtype=np.float64), bound)
    status = Status.OPTIMAL if proof.closes(tol) else result.status
    return replace(result, alpha=proof.bound.alpha, certificate=proof, status=status)


def _in_full(problem: MultinomialProblem, fit: _Fit) -> tuple[Matrix, Vector]:
    """All coefficients, and the intercepts in the user's coordinates."""
    W = np.zeros((problem.linear.shape[1], problem.n_classes))
    W[fit.support] = fit.W
    center = problem.linear.center
    return W, fit.b if center is None else fit.b - center @ problem.linear.coefficients_of(W)


def _model(problem: MultinomialProblem, fit: _Fit) -> Model:
    W, intercept = _in_full(problem, fit)
    stored: Any = intercept
    return Model(W, problem.linear.coefficients_of(W), stored, fit.value)


def _with_model(problem: MultinomialProblem, iterate: Iterate, fit: _Fit) -> Iterate:
    return replace(iterate, model=_model(problem, fit))

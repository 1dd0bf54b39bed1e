r"""The multinomial loss of few features, minimised in coefficients and intercepts at once by Newton's method.

With the factors of :math:`(\sqrt s Z; \sqrt{\mathrm{ridge}}) = QR`, Z the columns and, where there are intercepts, one of ones, the
step of RV has equations whose condition is that of the probabilities alone, whatever the scales, the means and the dependence of
the columns; of many columns, R = I.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diht.losses import Loss
from diht.numerics.arrays import Mask, Vector
from diht.numerics.definite import Definite

__all__ = ["MOST_COEFFICIENTS", "Minimum", "minimise_softmax"]

MOST_COEFFICIENTS = 1500  # whose Hessian is formed

_ORTHOGONAL = 32  # columns up to which they are made orthonormal, at less than the cost of a Hessian
_NEWTON, _HALVINGS, _ARMIJO = 800, 40, 1e-4  # a step divides the loss of separable classes by e: float64 ends after 710
_FARTHEST = 100.0  # times the largest score: curvature that vanishes at sure classes makes longer steps, which are cut
_NOTHING = 2.0**-100  # share of the loss of no features that is not worth another step
_FASTER = 0.55  # share of Newton's decrement: a whole step that lowers the objective by more is doubled
_HIDDEN = 1e-13  # relative decrease that rounding may make, however much a step promises


class Minimum(NamedTuple):
    """Where Newton's method ended."""

    W: Vector  # one row a class
    b: Vector  # their sum is zero
    U: Vector  # scores
    value: float


def minimise_softmax(
    X: Vector,
    y: Vector,
    s: Vector,
    loss: Loss,
    lam: float,
    fit_intercept: bool,
    W: Vector,
    b: Vector,
    free: Mask,
    rtol: float,
) -> Minimum:
    """Minimise the loss plus half of lam ||W||^2 over dense columns, from a model, until a step promises no more than `rtol`.

    Of W, one row a class, what is not `free` is zero, and stays so.
    """
    n_classes, intercept = len(y), np.ones((len(X), int(fit_intercept)))
    Z, V = np.hstack([X, intercept]), np.hstack([W, b[:, None]]) if fit_intercept else W
    ridge = np.append(np.full(X.shape[1], lam), np.zeros(int(fit_intercept)))

    def value(V: Vector, U: Vector) -> float:
        return float(s @ loss.value(U, y) + 0.5 * np.square(V).sum(axis=0) @ ridge)

    U, unsure = V @ Z.T, float(s.sum()) * np.log(n_classes)
    now, nothing = value(V, U), _NOTHING * unsure
    if not now <= unsure:  # a start that is sure of wrong classes has no curvature
        V, U = np.zeros_like(V), np.zeros_like(U)
        now = value(V, U)
    free = np.hstack([free, np.ones((n_classes, int(fit_intercept)), dtype=bool)])
    equations = _Equations(Z, s, ridge, free, fit_intercept)
    for _ in range(_NEWTON if free.any() else 0):
        step, decrease = equations.step(V, loss.derivative(U, y), loss.second_derivative(U, y))
        if not decrease > rtol * now or now <= nothing:
            break
        change = step @ Z.T
        largest = float(np.abs(change).max())
        size = min(1.0, _FARTHEST * (1.0 + float(np.abs(U).max())) / largest) if largest > 0.0 else 1.0
        for _ in range(_HALVINGS):
            new = value(V + size * step, U + size * change)
            if new <= now - _ARMIJO * size * decrease:
                break
            size *= 0.5
        if not new < now:
            break
        if size == 1.0 and now - new > _FASTER * decrease:
            while (longer := value(V + 2.0 * size * step, U + 2.0 * size * change)) < 0.5 * new:
                size, new = 2.0 * size, longer
        V, U, before, now = V + size * step, U + size * change, now, new
        if before - now <= _HIDDEN * now:
            break
    U = V @ Z.T
    if not fit_intercept:
        return Minimum(V, np.zeros(n_classes), U, value(V, U))
    return Minimum(V[:, :-1], V[:, -1] - V[:, -1].mean(), U - V[:, -1].mean(), value(V, U))


class _Equations:
    """Newton's equations for columns that stay the same, of each class those that are free."""

    def __init__(self, Z: Vector, s: Vector, ridge: Vector, free: Mask, fit_intercept: bool) -> None:
        self.root_s, self.root_ridge, self.fit_intercept = np.sqrt(s), np.sqrt(ridge), fit_intercept
        factors: dict[bytes, _Factors] = {}  # of classes with the same columns one and the same
        for own in free:
            if own.tobytes() not in factors:
                factors[own.tobytes()] = _factorised(self.root_s[:, None] * Z, self.root_ridge, np.flatnonzero(own))
        self.factors = [factors[own.tobytes()] for own in free]
        self.ends = np.cumsum(free.sum(axis=1))

    def step(self, V: Vector, A: Vector, P: Vector) -> tuple[Vector, float]:
        """Return Newton's step, and what it promises, from the slopes and the probabilities of the samples."""
        ridge, classes = self.root_ridge * V, list(enumerate(self.factors))
        slope = np.concatenate([(self.root_s * A[c]) @ f.Q + ridge[c, f.columns] @ f.rest for c, f in classes])
        step = -Definite(self._hessian(P)).solve(slope)
        change = np.zeros_like(V)
        for (c, f), part in zip(classes, np.split(step, self.ends[:-1]), strict=True):
            change[c, f.columns] = part if f.R is None else np.linalg.solve(f.R, part)
        return change, -float(slope @ step)

    def _hessian(self, P: Vector) -> Vector:
        """Compute the Hessian in RV, class by class, with p (1 - p) as the sum of products: it need not cancel."""
        products = np.hstack([p[:, None] * f.Q for p, f in zip(P, self.factors, strict=True)])
        H, others = -(products.T @ products), (1.0 - np.eye(len(P))) @ P
        for c, (f, end) in enumerate(zip(self.factors, self.ends, strict=True)):
            own = slice(end - len(f.columns), end)
            H[own, own] = (f.Q.T * (P[c] * others[c])) @ f.Q + f.rest.T @ f.rest
        if self.fit_intercept:  # all intercepts move together at no cost; the last of RV is a multiple of one
            most = int(self.ends[np.argmax(H.diagonal()[self.ends - 1])]) - 1
            H[most, most] *= 2.0
        return np.asarray(H)


class _Factors(NamedTuple):
    """Some columns of (sqrt(s) Z; sqrt(ridge)) as QR."""

    columns: NDArray[np.int64]
    Q: Vector  # its rows of samples
    rest: Vector  # and of the ridge
    R: Vector | None  # None for the identity


def _factorised(Z: Vector, root_ridge: Vector, columns: NDArray[np.int64]) -> _Factors:
    Z, rest = Z[:, columns], np.diag(root_ridge[columns])
    if not 0 < len(columns) <= _ORTHOGONAL:
        return _Factors(columns, Z, rest, None)
    Q, R = np.linalg.qr(np.vstack([Z, rest]))
    R[np.diag_indices(len(R))] = np.where(R.diagonal() == 0.0, np.inf, R.diagonal())
    return _Factors(columns, Q[: len(Z)], Q[len(Z) :], R)

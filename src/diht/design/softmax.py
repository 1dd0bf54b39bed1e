r"""The multinomial loss of few features, minimised in coefficients and intercepts at once by Newton's method.

With the factors of :math:`(\sqrt s Z; \sqrt{\mathrm{ridge}}) = QR`, Z the columns and, where there are intercepts, one of ones, the
step of RV has equations whose condition is that of the probabilities alone, whatever the scales, the means and the dependence of
the columns; of many columns, R = I.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diht.design.definite import Definite
from diht.design.step import Vector
from diht.losses import Loss

__all__ = ["MOST_COEFFICIENTS", "Minimum", "minimise_softmax"]

MOST_COEFFICIENTS = 1500  # whose Hessian is formed

_ORTHOGONAL = 32  # columns up to which they are made orthonormal, at less than the cost of a Hessian
_NEWTON, _HALVINGS, _ARMIJO = 800, 40, 1e-4  # a step divides the loss of separable classes by e: float64 ends after 710
_FARTHEST = 100.0  # times the largest score: curvature that vanishes at sure classes makes longer steps, which are cut
_NOTHING = 2.0**-100  # share of the loss of no features that is not worth another step
_NEARLY = 1e-3  # relative decrement from which each is far below the last, unless rounding makes it


class Minimum(NamedTuple):
    """Where Newton's method ended."""

    W: Vector  # one row a class
    b: Vector  # their sum is zero
    U: Vector  # scores
    value: float


def minimise_softmax(
    X: Vector, y: Vector, s: Vector, loss: Loss, lam: float, fit_intercept: bool, W: Vector, b: Vector, rtol: float
) -> Minimum:
    """Minimise the loss plus half of lam ||W||^2 over dense columns, from a model, until a step promises no more than `rtol`."""
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
    equations, limit = _Equations(Z, s, ridge, fit_intercept), np.inf
    for _ in range(_NEWTON if V.size else 0):
        step, decrease = equations.step(V, loss.derivative(U, y), loss.second_derivative(U, y))
        if not decrease > rtol * abs(now) or (decrease <= _NEARLY * abs(now) and decrease > limit) or now <= nothing:
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
        limit = 0.5 * decrease if size == 1.0 else np.inf
        V, U, now = V + size * step, U + size * change, new
    U = V @ Z.T
    if not fit_intercept:
        return Minimum(V, np.zeros(n_classes), U, value(V, U))
    return Minimum(V[:, :-1], V[:, -1] - V[:, -1].mean(), U - V[:, -1].mean(), value(V, U))


class _Equations:
    """Newton's equations for columns that stay the same."""

    def __init__(self, Z: Vector, s: Vector, ridge: Vector, fit_intercept: bool) -> None:
        self.n, self.m = Z.shape
        self.root_s, self.root_ridge, self.fit_intercept = np.sqrt(s), np.sqrt(ridge), fit_intercept
        self.Q, self.R = np.vstack([self.root_s[:, None] * Z, np.diag(self.root_ridge)]), np.eye(self.m)
        if self.m <= _ORTHOGONAL:
            self.Q, self.R = np.linalg.qr(self.Q)
            self.R[np.diag_indices(self.m)] = np.where(self.R.diagonal() == 0.0, np.inf, self.R.diagonal())

    def step(self, V: Vector, A: Vector, P: Vector) -> tuple[Vector, float]:
        """Return Newton's step, and what it promises, from the slopes and the probabilities of the samples."""
        slope = (self.root_s * A) @ self.Q[: self.n] + (self.root_ridge * V) @ self.Q[self.n :]
        step = -Definite(self._hessian(P)).solve(slope.ravel()).reshape(slope.shape)
        decrease = -float(np.sum(slope * step))
        return np.asarray(np.linalg.solve(self.R, step.T).T if self.m <= _ORTHOGONAL else step), decrease

    def _hessian(self, P: Vector) -> Vector:
        """Compute the Hessian in RV, class by class; the blocks of a class sum to its ridge, so that p (1 - p) need not cancel."""
        n_classes, m = len(P), self.m
        products = (P[:, None, :] * self.Q[: self.n].T).reshape(n_classes * m, self.n)
        flat = -(products @ products.T)
        H, ridge = flat.reshape(n_classes, m, n_classes, m), self.Q[self.n :].T @ self.Q[self.n :]
        for c in range(n_classes):
            H[c, :, c] = 0.0
            H[c, :, c] = ridge - H[c].sum(axis=1)
        if self.fit_intercept:  # all intercepts move together at no cost; the last of RV is a multiple of one
            own = H[:, -1, :, -1]
            most = int(np.argmax(own.diagonal()))
            own[most, most] *= 2.0
        return np.asarray(flat)

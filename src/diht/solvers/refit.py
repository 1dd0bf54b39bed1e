r"""The best model on a given support: a convex problem, solved by Newton's method.

A loss without a derivative (mu = 0) is replaced by its Moreau envelopes

.. math:: l_\gamma(u) = \max_a \; a u - l^*(a) - \tfrac{\gamma}{2} a^2 , \qquad l_\gamma \le l \le l_\gamma + \tfrac{\gamma}{2} r^2

(r the bound of F), for a decreasing sequence of gamma; for the hinge these are the smoothed hinges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from diht.design import Design
from diht.intercept import best_intercept
from diht.losses import Loss
from diht.problem import Problem

__all__ = ["Moreau", "refit"]

Vector = NDArray[np.float64]
Direction = Callable[[Vector, Vector, float], tuple[Vector, float]]

_DIRECT = 2e9  # floating point operations up to which the Hessian is formed and factorised
_MAX_NEWTON = 60
_GAMMAS = tuple(10.0**-i for i in range(8))


@dataclass(frozen=True)
class Moreau(Loss):
    """The Moreau envelope of a loss: smooth, with the conjugate l*(a) + (gamma/2) a^2."""

    base: Loss
    gamma: float

    name = "moreau"

    @property
    def task(self) -> str:  # type: ignore[override]
        """The task of the loss itself."""
        return self.base.task

    @property
    def mu(self) -> float:
        """The envelope is 1 / (mu + gamma)-smooth."""
        return self.base.mu + self.gamma

    def derivative(self, u: Any, y: Any) -> Any:
        """argmax_a a u - l*(a) - (gamma/2) a^2, a proximal map of the conjugate."""
        return self.base.conjugate_prox(u / self.gamma, 1.0 / self.gamma, y)

    def value(self, u: Any, y: Any) -> Any:
        """a u - l*(a) - (gamma/2) a^2 at its maximiser."""
        a = self.derivative(u, y)
        return a * u - self.conjugate(a, y)

    def second_derivative(self, u: Any, y: Any) -> Any:
        """1/gamma where the maximiser is inside F and l* is linear, 0 where it is at an end."""
        a = self.derivative(u, y)
        low, high = self.base.domain(y)
        return np.where((a > low) & (a < high), 1.0 / self.mu, 0.0)

    def conjugate(self, a: Any, y: Any) -> Any:
        """l*(a) + (gamma/2) a^2."""
        return self.base.conjugate(a, y) + 0.5 * self.gamma * a * a

    def conjugate_derivative(self, a: Any, y: Any) -> Any:
        """l*'(a) + gamma a."""
        return self.base.conjugate_derivative(a, y) + self.gamma * a

    def domain(self, y: Any) -> Any:
        """F of the loss itself."""
        return self.base.domain(y)

    def check_targets(self, y: Any) -> None:
        """Check as the loss itself does."""
        self.base.check_targets(y)


def refit(
    problem: Problem, support: NDArray[np.int64], w: Vector | None = None, b: float = 0.0
) -> tuple[Vector, float, Vector]:
    """Minimise P over the models on `support`, starting from the given one: coefficients, intercept, predictions."""
    design = problem.design.columns(support)
    x = np.zeros(len(support)) if w is None else w[support]
    if problem.loss.mu > 0:
        x, b = _newton(problem, design, problem.loss, x, b)
    else:
        best = np.inf
        for gamma in _GAMMAS:
            x_new, b_new = _newton(problem, design, Moreau(problem.loss, gamma), x, b)
            value = _objective(problem, design, x_new, b_new)
            x, b = x_new, b_new
            if value > best * (1 - 1e-10) and gamma < 1e-4:
                break
            best = min(best, value)
    full = np.zeros(problem.shape[1])
    full[support] = x
    u = design.matvec(x)
    if problem.fit_intercept:
        b = best_intercept(problem.loss, u, problem.y, problem.s, b)
    return full, b, u + b


def _objective(problem: Problem, design: Design, x: Vector, b: float) -> float:
    return _smooth_objective(problem, problem.loss, x, design.matvec(x) + b)


def _newton(problem: Problem, design: Design, loss: Loss, x: Vector, b: float) -> tuple[Vector, float]:
    """Newton's method with backtracking on coefficients and intercept together."""
    direction = _direction(problem, design)
    u = design.matvec(x) + b
    value = _smooth_objective(problem, loss, x, u)
    for _ in range(_MAX_NEWTON):
        slopes = problem.s * loss.derivative(u, problem.y)
        gradient = design.rmatvec(slopes) + problem.lam * x
        slope_b = float(slopes.sum()) if problem.fit_intercept else 0.0
        curvature = problem.s * loss.second_derivative(u, problem.y)
        dx, db = direction(curvature, gradient, slope_b)
        decrease = -(float(gradient @ dx) + slope_b * db)
        if not decrease > 1e-15 * max(abs(value), np.finfo(float).tiny):
            break
        du = design.matvec(dx) + db
        accepted = False
        size = 1.0
        for _ in range(40):
            trial = _smooth_objective(problem, loss, x + size * dx, u + size * du)
            if trial <= value - 1e-4 * size * decrease:
                accepted = True
                break
            size /= 2
        if not accepted:
            break
        x, b, u = x + size * dx, b + size * db, u + size * du
        progress, value = value - trial, trial
        if progress <= 1e-14 * abs(value):
            break
    return x, b


def _smooth_objective(problem: Problem, loss: Loss, x: Vector, u: Vector) -> float:
    return float(problem.s @ loss.value(u, problem.y) + 0.5 * problem.lam * (x @ x))


def _direction(problem: Problem, design: Design) -> Direction:
    """Return a solver of (X'CX + lam I, with the intercept's row) d = -gradient: direct where cheap, else conjugate gradients."""
    n, k = design.shape
    if float(n) * k * k <= _DIRECT:
        return partial(_direct, problem, design.toarray())
    return partial(_conjugate_gradients, problem, design)


def _direct(problem: Problem, X: Vector, curvature: Vector, gradient: Vector, slope_b: float) -> tuple[Vector, float]:
    k = X.shape[1]
    weighted = curvature[:, None] * X
    hessian = X.T @ weighted
    hessian[np.diag_indices(k)] += problem.lam
    if problem.fit_intercept:
        cross, corner = weighted.sum(axis=0), float(curvature.sum())
        hessian = np.block([[hessian, cross[:, None]], [cross[None, :], np.array([[corner]])]])
    right = np.append(gradient, slope_b) if problem.fit_intercept else gradient
    scale = 1.0 / np.sqrt(np.maximum(np.diag(hessian), np.finfo(float).tiny))
    try:
        factor = scipy.linalg.cho_factor(hessian * np.outer(scale, scale), lower=True, check_finite=False)
        direction = -scale * scipy.linalg.cho_solve(factor, scale * right, check_finite=False)
    except scipy.linalg.LinAlgError:
        # The intercept's curvature can vanish (all samples on flat parts of the loss): a diagonal step instead.
        direction = -right / np.maximum(np.diag(hessian), problem.lam)
    return (direction[:-1], float(direction[-1])) if problem.fit_intercept else (direction, 0.0)


def _conjugate_gradients(
    problem: Problem, design: Design, curvature: Vector, gradient: Vector, slope_b: float
) -> tuple[Vector, float]:
    """Conjugate gradients with the intercept as one more variable, to a residual of 1e-3 of the gradient (inexact Newton)."""
    intercept = problem.fit_intercept
    r = -np.append(gradient, slope_b if intercept else 0.0)
    x, p = np.zeros_like(r), r.copy()
    rr = r @ r
    target = min(0.25, np.sqrt(np.sqrt(rr))) ** 2 * rr * 1e-4
    for _ in range(500):
        if rr <= target or rr == 0.0:
            break
        q = curvature * (design.matvec(p[:-1]) + p[-1])
        hp = np.append(design.rmatvec(q) + problem.lam * p[:-1], q.sum() if intercept else 0.0)
        denominator = float(p @ hp)
        if not denominator > 0.0:
            break
        step = rr / denominator
        x += step * p
        r -= step * hp
        rr, old = r @ r, rr
        p = r + (rr / old) * p
    return x[:-1], float(x[-1])

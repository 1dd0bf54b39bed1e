r"""Interior point method: the best model on some features for a loss with a quadratic conjugate.

Such a loss is :math:`l(u) = \max_a a (u - y) - (\mu/2) a^2` over an interval F. With a multiplier :math:`z_e \ge 0` for each finite
end e of F, at the distance :math:`r_e = \sigma_e (a - e)` from a (:math:`\sigma` is 1 for the lower and -1 for the upper end), the
optimum of :math:`\sum_i s_i l(x_i^\top w + b) + (\lambda/2) \|w\|^2` solves, with tau = 0,

.. math:: \lambda w + \sum_i s_i a_i x_i = 0 , \quad \sum_i s_i a_i = 0 , \quad
          y_i + \mu a_i - \sum_e \sigma_e z_{ei} = x_i^\top w + b , \quad z_{ei} r_{ei} = \tau .

Newton's method follows the solutions as tau falls, with Mehrotra's choice of tau and his correction of second order (On the
implementation of a primal-dual interior point method, 1992). With :math:`\delta_i = \mu + \sum_e z_{ei} / r_{ei}` everything but w
is eliminated, so that a step costs one Hessian :math:`\lambda I + \sum_i (s_i / \delta_i) (x_i - m)(x_i - m)^\top`, where m is the
mean of the samples under the weights :math:`s_i / \delta_i` if there is an intercept, else 0.

Ten to twenty steps suffice whatever the scale of the data: neither kinks nor flat parts of a loss matter to it. A loss without
ends (the squared one) takes a single step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from diht.losses import QuadraticConjugate

__all__ = ["Solution", "interior_point"]

Vector = NDArray[np.float64]

_MAX_STEPS = 80
_END = 1e-8  # sum of all z r, relative to the objective, below which the gap should fall at every step
_STALLED = 2  # steps in a row in which it does not: rounding has the last word
_BOUNDARY = 0.995  # share of the way to the nearest end that a step may go


@dataclass(frozen=True, eq=False)
class Solution:
    """The best model and the best dual point that were found, with their values."""

    w: Vector
    b: float
    alpha: Vector
    value: float
    bound: float


def interior_point(
    X: Vector, y: Vector, s: Vector, loss: QuadraticConjugate, lam: float, intercept: bool, rtol: float
) -> Solution:
    """Minimise P with positive weights s until the duality gap is within `rtol` of P, or as small as rounding allows."""
    path = _Path(X, y, s, loss, lam, intercept)
    best = path.solution()
    stalled = 0
    for _ in range(_MAX_STEPS):
        if not best.value - best.bound > rtol * abs(best.value) or stalled == _STALLED:
            break
        path.advance()
        new = path.solution()
        at_end = path.complementarity() <= _END * abs(new.value)
        stalled = stalled + 1 if at_end and not new.value - new.bound < best.value - best.bound else 0
        best = _better(best, new)
    return best


def _better(old: Solution, new: Solution) -> Solution:
    model = new if new.value <= old.value else old
    point = new if new.bound >= old.bound else old
    return model if model is point else Solution(model.w, model.b, point.alpha, model.value, point.bound)


class _Path:
    """A point near the central path. F is that of y > 0: samples with y < 0 count with the opposite signs of u and a."""

    def __init__(self, X: Vector, y: Vector, s: Vector, loss: QuadraticConjugate, lam: float, intercept: bool) -> None:
        self.X, self.s, self.lam, self.intercept, self.mu = X, s, lam, intercept, loss.mu
        self.turn = np.where(y < 0.0, -1.0, 1.0) if loss.low != -loss.high else np.ones_like(y)
        self.y, self.turned_s = self.turn * y, self.turn * s
        ends = [(end, sign) for end, sign in ((loss.low, 1.0), (loss.high, -1.0)) if np.isfinite(end)]
        self.low, self.high = loss.low, loss.high
        self.signs = np.array([[sign] for _, sign in ends]).reshape(-1, 1)
        self.w, self.b, self.u = np.zeros(X.shape[1]), 0.0, np.zeros_like(y)
        size = float(s @ np.abs(y)) or 1.0
        reach = 0.5 * (loss.high - loss.low) if len(ends) == 2 else size / max(loss.mu, 1.0)
        middle = ends[0][0] + ends[0][1] * reach if ends else 0.0
        # Balanced, if that takes no more than unlike steps from 0, which is in F, to the middle.
        self.a = middle * _balancing(self.turned_s) if intercept else np.full_like(y, middle)
        # Distances to the ends and their multipliers, positive all of them.
        self.inner = np.empty((2, len(ends), len(y)))
        for row, (end, sign) in enumerate(ends):
            self.inner[0, row] = sign * (self.a - end)
            self.inner[1, row] = np.maximum(sign * (self.y + self.mu * self.a), 0.0) + size
        self._measure()

    def _measure(self) -> None:
        """Residuals of the first two equations."""
        sa = self.turned_s * self.a
        self.pull = sa @ self.X
        self.balance = float(sa.sum()) if self.intercept else 0.0

    def solution(self) -> Solution:
        """The model and the dual point, with the violated balance at the model's b taken off the bound."""
        r = self.u - self.y
        a = np.clip(r / self.mu, self.low, self.high) if self.mu > 0.0 else np.where(r > 0.0, self.high, self.low)
        value = float(self.s @ (a * (r - 0.5 * self.mu * a))) + 0.5 * self.lam * float(self.w @ self.w)
        conjugate = float(self.s @ (self.a * (self.y + 0.5 * self.mu * self.a)))
        bound = -conjugate - float(self.pull @ self.pull) / (2.0 * self.lam) - abs(self.balance * self.b)
        return Solution(self.w, self.b, self.turn * self.a, value, bound)

    def complementarity(self) -> float:
        """The gap that is due to the distance from the end of the path, where z r = 0."""
        return float((self.inner[0] * self.inner[1]).sum(axis=0) @ self.s)

    def advance(self) -> None:
        """Make one step: a predictor with tau = 0, which tells the tau worth aiming at, and the step itself."""
        distance, multiplier = self.inner
        delta = self.mu + (multiplier / distance).sum(axis=0)
        system = _System(self.X, self.s / delta, self.lam, self.intercept)
        misfit = self.u - self.y - self.mu * self.a
        change = self._change(system, delta, misfit, np.zeros_like(distance))
        step = _longest(self.inner, change[3], 1.0)
        if len(distance):
            after = self.inner + step * change[3]
            now = self.complementarity()
            ratio = float((after[0] * after[1]).sum(axis=0) @ self.s) / now
            target = ratio**3 * now / len(distance)
            aim = (target - change[3][0] * change[3][1]) / distance
            change = self._change(system, delta, misfit, aim)
            step = _longest(self.inner, change[3], _BOUNDARY)
        dw, db, da, inner = change
        self.w = self.w + step * dw
        self.b += step * db
        self.inner += step * inner
        if len(distance) == 2:  # from the nearer end, where a is known best
            self.a = np.where(distance[0] < distance[1], self.low + distance[0], self.high - distance[1])
        elif len(distance):
            self.a = (self.high if np.isfinite(self.high) else self.low) + self.signs[0] * distance[0]
        else:
            self.a = self.a + step * da
        self.u = self.turn * (self.X @ self.w + self.b)
        self._measure()

    def _change(
        self, system: _System, delta: Vector, misfit: Vector, aim: Vector
    ) -> tuple[Vector, float, Vector, Vector]:
        """Solve Newton's equations: the changes of w, b, a, and of distances and multipliers."""
        t = misfit + (self.signs * aim).sum(axis=0)
        dw, db = system.solve(self.lam * self.w + self.pull, self.balance, self.turn * t)
        da = (self.turn * (self.X @ dw + db) + t) / delta
        inner = np.empty_like(self.inner)
        inner[0] = self.signs * da
        inner[1] = aim - self.inner[1] * (1.0 + inner[0] / self.inner[0])
        return dw, db, da, inner


def _balancing(c: Vector) -> Vector:
    """Factors up to 1 that make the sums of the positive and of the negative entries cancel; 1 where all have one sign."""
    positive, negative = float(c[c > 0.0].sum()), float(-c[c < 0.0].sum())
    if not positive or not negative:
        return np.ones_like(c)
    least = min(positive, negative)
    return np.where(c > 0.0, least / positive, least / negative)


class _System:
    """The equations that are left for w and b once all else is eliminated, with the weights c of the samples."""

    def __init__(self, X: Vector, c: Vector, lam: float, intercept: bool) -> None:
        self.X, self.c, self.intercept = X, c, intercept
        self.total = float(c.sum())
        self.mean = (c @ X) / self.total if intercept else np.zeros(X.shape[1])
        half = np.sqrt(c)[:, None] * (X - self.mean if intercept else X)
        H = half.T @ half
        diagonal = H.reshape(-1)[:: len(H) + 1]
        diagonal += lam
        self.factor, failed = dpotrf(H, lower=1)
        for more in 10.0 ** np.arange(-15, 0) if failed else ():  # definite, but not to rounding
            diagonal *= 1.0 + more
            self.factor, failed = dpotrf(H, lower=1)
            if not failed:
                break

    def solve(self, gradient: Vector, balance: float, t: Vector) -> tuple[Vector, float]:
        """The changes of w and b that make lam w + X's a and sum s a vanish, where a changes by (x.dw + db + t) / delta."""
        ct = self.c * t
        level = (float(ct.sum()) + balance) / self.total if self.intercept else 0.0
        dw = dpotrs(self.factor, -gradient - (ct - level * self.c) @ self.X, lower=1)[0]
        return dw, -level - float(self.mean @ dw) if self.intercept else 0.0


def _longest(inner: Vector, change: Vector, share: float) -> float:
    """The longest step up to 1 that goes no further than a share of the way to where something becomes zero."""
    fastest = -float((change / inner).min(initial=0.0))
    return min(1.0, share / fastest) if fastest > 0.0 else 1.0

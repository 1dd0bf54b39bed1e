"""Local searches of few samples in plain numpy, with nothing to compile: for first models.

What joins a model is looked for by the quadratic around it: of the features that promise most along each alone those whose joining
gains most where the others answer. Where one leaves the model is fitted before, for it may move far.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dposv

from diht.design import Design
from diht.losses import Loss
from diht.numerics.arrays import Indices, Mask, Matrix, Vector

__all__ = ["Greedy", "Grown"]

_NEAR, _FITTED = 20, 4  # features that promise most, and those of them that are fitted in the place of one that leaves
_STEPS, _SHORTEST = 8, 1e-8  # of Newton's method, and the length of one below which there is none
_ROUGH, _FINE = 1e-3, 1e-5  # of the objective: accuracy on the way, and of a model that takes the place of another
_GAIN = 1e-6  # of the objective: what a swap lowers it by at least
_FLAT = 1e-12  # curvature of the intercept, relative to all, where the loss has none
_ARMIJO = 1e-4  # share of the fall that Newton's step promises, for each unit of its length, that it must bring
_HOPE = 5.0  # times the fall that Newton's step promises: more than that is not hoped for


@dataclass(frozen=True, eq=False)
class Grown:
    """A model that is fitted to some accuracy: its features in the order in which they joined, coefficients, intercept, margins."""

    support: Indices
    values: Vector
    b: float
    objective: float
    u: Vector

    def model(self, n_features: int) -> tuple[Indices, Vector, float]:
        """Return the support, all coefficients and the intercept."""
        w = np.zeros(n_features)
        w[self.support] = self.values
        return self.support, w, self.b


@dataclass(frozen=True, eq=False)
class Greedy:
    """The samples of a problem whose loss has no kinks.

    Parameters
    ----------
    design : Design
        Centred where there is an intercept.
    y, s : array of shape (N,)
    loss : Loss
    lam : float
    fit_intercept : bool
    """

    design: Design
    y: Vector
    s: Vector
    loss: Loss
    lam: float
    fit_intercept: bool

    @cached_property
    def _entries(self) -> Matrix:
        return np.asarray(self.design.toarray(copy=False), dtype=np.float64)

    @cached_property
    def _squares(self) -> Matrix:
        return np.square(self._entries)

    def grown(self, model: Grown, size: int, closed: Mask) -> Grown:
        """Add features one by one, up to a size, but none that is closed."""
        while len(model.support) < size:
            found, values = self._joining(model, closed, 1)
            if not len(found):
                break
            model = self.fitted(np.append(model.support, found), np.append(model.values, values), model.b, _ROUGH)
        return model

    def swapped(self, model: Grown, n_fixed: int, closed: Mask, late: Callable[[], bool]) -> Grown:
        """Exchange features, but for the first ones, while that gains: whichever costs little for the best of all."""
        model = self.fitted(model.support, model.values, model.b, _FINE)
        free = model.support[n_fixed:][np.argsort(np.abs(model.values[n_fixed:]), kind="stable")].tolist()
        in_vain = 0
        while in_vain < len(free) and not late():
            out, in_vain = free.pop(0), in_vain + 1
            better = self._exchanged(model, out, closed)
            free.append(out if better is None else int(better.support[-1]))
            if better is not None:
                model, in_vain = better, 0
        return model

    def _exchanged(self, model: Grown, out: int, closed: Mask) -> Grown | None:
        """Return the first better model with another feature in the place of one."""
        kept, target = model.support != out, model.objective * (1.0 - _GAIN)
        less = self.fitted(model.support[kept], model.values[kept], model.b, _ROUGH)
        for feature, value in zip(*self._joining(less, closed, _FITTED), strict=True):
            if feature != out:
                start = np.append(less.support, feature), np.append(less.values, value), less.b
                other = self.fitted(*start, _FINE, target)
                if other.objective < target:
                    return other
        return None

    def _joining(self, model: Grown, closed: Mask, most: int) -> tuple[Indices, Vector]:
        """Return features that gain most by joining, and their coefficients, by the quadratic around the model."""
        m = len(model.support)
        slopes = self.s * self.loss.derivative(model.u, self.y)
        weights = self.s * self.loss.second_derivative(model.u, self.y)
        g, h = slopes @ self._entries, weights @ self._squares + self.lam
        self.design.count(2.0)
        gains = np.where(closed, -1.0, g * g / h)
        gains[model.support] = -1.0
        near = np.argpartition(-gains, min(_NEAR, len(g) - 1))[:_NEAR]
        near = np.sort(near[gains[near] >= 0.0])
        A, g, h = self._columns(model.support), g[near], h[near]
        if A.shape[1]:
            B = (A.T * weights) @ self._entries[:, near]
            h = np.maximum(h - (B * self._solved(A, weights, m, B)).sum(axis=0), self.lam)
        best = np.argsort(-(g * g / h), kind="stable")[:most]
        return near[best], -g[best] / h[best]

    def fitted(self, support: Indices, values: Vector, b: float, rtol: float, target: float = -np.inf) -> Grown:
        """Fit the features by Newton's method to some accuracy, or until it is clear that the target is out of reach."""
        m, A, x = len(support), self._columns(support), np.append(values, b) if self.fit_intercept else values
        ridges = np.where(np.arange(A.shape[1]) < m, self.lam, 0.0)
        u = A @ x
        now = self._objective(u, x[:m])
        for _ in range(_STEPS if len(x) else 0):
            gradient = (self.s * self.loss.derivative(u, self.y)) @ A + ridges * x
            step = -self._solved(A, self.s * self.loss.second_derivative(u, self.y), m, gradient)
            promise = -float(gradient @ step)
            if not promise > rtol * abs(now) or now - _HOPE * promise > target > -np.inf:
                break
            change, size = A @ step, 1.0
            while (
                not (new := self._objective(u + size * change, (x + size * step)[:m])) <= now - _ARMIJO * size * promise
            ):
                size *= 0.5
                if size < _SHORTEST:
                    return Grown(support, x[:m], float(x[m:].sum()), now, u)
            x, u, now = x + size * step, u + size * change, new
        return Grown(support, x[:m], float(x[m:].sum()), now, u)

    def _columns(self, support: Indices) -> Matrix:
        """Return the columns of some features, and that of the intercept."""
        A = np.ones((len(self.y), len(support) + self.fit_intercept))
        A[:, : len(support)] = self._entries[:, support]
        return A

    def _solved(self, A: Matrix, weights: Vector, m: int, right: Vector) -> Vector:
        """Solve a system with the Hessian of the first m columns and the intercept; zeros where rounding hides it."""
        H = (A.T * weights) @ A
        diagonal = H.reshape(-1)[:: len(H) + 1]
        diagonal[:m] += self.lam
        diagonal[m:] += _FLAT * max(self.lam, float(diagonal.max()))
        _, solution, failed = dposv(H, right)
        return np.zeros_like(right) if failed else np.asarray(solution)

    def _objective(self, u: Vector, values: Vector) -> float:
        return float(self.s @ self.loss.value(u, self.y)) + 0.5 * self.lam * float(values @ values)

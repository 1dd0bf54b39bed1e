r"""The relaxation of a quadratic under any constraint: accelerated proximal gradients, and least squares with weights.

.. math:: F(p) = \nabla^\top (p - w) + \tfrac12 (p - w)^\top H (p - w) + \lambda \Omega(p) , \qquad
          \Omega(p) = \min_z \sum_j \frac{p_j^2}{2 z_j} .

Proximal gradients find which features are used, and take long where H is badly conditioned. F lies below the quadratic with the
places z of p held fast, and touches it at p: to minimise that one, a linear system on the features in use, lowers F whatever the
condition of H, but the zeros of p stay. Where both take long, an interior point method ends the work. Where the constraint is a
plain one, `diht.relaxation.quadratic` has Newton steps in their place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from diht.constraints.base import Constraint
from diht.numerics.arrays import Vector
from diht.numerics.definite import Definite
from diht.relaxation.box import box_minimum
from diht.relaxation.perspective import MOST_FEATURES, central_point

__all__ = ["minimise_quadratic"]


_CHECK = 10  # steps between two looks at the gap
_MOST_STEPS = 300
_ROUNDS = 10  # of weighted least squares in a row
_LEAST_PLACE = 1e-9


def minimise_quadratic(
    H: Vector,
    gradient: Vector,
    constraint: Constraint,
    lam: float,
    w: Vector,
    curvature: float,
    tol: float,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Vector, float, float, bool]:
    r"""Minimise F from w: p, the fall F(w) - F(p), the curvature to step with, and whether F is within `tol` of its minimum.

    With c the negative gradient of the quadratic, F(p) is at most :math:`\lambda \Omega(p) - p^\top c + \nu(c)^2 / (2 \lambda)`
    from its minimum. `stop`, asked at each look at the gap, ends the work.
    """
    model = _Quadratic(H, gradient, constraint, lam, w, stop)
    if constraint.limits is not None and _all_in(constraint, len(w)):
        p = model.within_limits()
        return p, model.value(w) - model.value(p), curvature, True
    p, point, momentum, slope = w, w, 1.0, gradient
    for t in range(1, _MOST_STEPS + 1):
        new = constraint.prox(point - slope / curvature, lam / curvature)
        moved = new - point
        turned, square = H @ moved, float(moved @ moved)
        if square > 0.0 and moved @ turned > curvature * square * (1.0 + 1e-9):
            seen = float(moved @ turned) / square
            curvature = max(1.2 * curvature, min(1.02 * seen, 4.0 * curvature))
            continue
        own = slope + turned
        if t % _CHECK == 0 or not np.any(moved):
            if model.gap(new, own) <= tol or stop():
                p = new
                break
            better, stuck = model.reweighted(new, tol), not np.any(moved)
            slope = model.slope(better)
            if stuck or t >= len(w) or model.gap(better, slope) <= tol:
                p = better
                if model.gap(better, slope) > tol and constraint.is_count and len(w) <= MOST_FEATURES:
                    p = model.central(better, tol)
                break
            if better is not new:
                p = point = better
                momentum = 1.0
                continue
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        if (point - new) @ (new - p) > 0.0:
            following = momentum = 1.0
        step = (momentum - 1.0) / following * (new - p)
        p, point, momentum = new, new + step, following
        slope = own + H @ step if momentum > 1.0 else own
    return p, model.value(w) - model.value(p), curvature, model.gap(p, model.slope(p)) <= tol


def _all_in(constraint: Constraint, n_features: int) -> bool:
    """Whether each feature may have a place of its own."""
    m, _, outside = constraint.free(n_features)
    return not len(outside) and m >= constraint.choices(n_features)


class _Quadratic:
    def __init__(
        self, H: Vector, gradient: Vector, constraint: Constraint, lam: float, w: Vector, stop: Callable[[], bool]
    ) -> None:
        self.H, self.gradient, self.constraint, self.lam, self.w, self.stop = H, gradient, constraint, lam, w, stop
        self.pull = H @ w - gradient
        self.slope_constraint = constraint.times(-lam)

    def slope(self, p: Vector) -> Vector:
        """The gradient of the quadratic."""
        return np.asarray(self.gradient + self.H @ (p - self.w))

    def value(self, p: Vector) -> float:
        """F(p)."""
        change = p - self.w
        return float(self.gradient @ change + 0.5 * change @ (self.H @ change)) + self.lam * self.constraint.relaxation(
            p
        )

    def gap(self, p: Vector, slope: Vector) -> float:
        """A bound on F(p) - min F."""
        nu = self.slope_constraint.value(slope)
        return self.lam * self.constraint.relaxation(p) + float(p @ slope) + nu / (2.0 * self.lam)

    def within_limits(self) -> Vector:
        """The minimiser of F where nothing is left to choose."""
        assert self.constraint.limits is not None
        A = self.H.copy()
        A[np.diag_indices(len(A))] += self.lam
        return box_minimum(A, self.pull, self.constraint.limits, self.w)

    def central(self, p: Vector, tol: float) -> Vector:
        """Return what an interior point method leads to, or p if that is better.

        The gap of p may be far wider than its distance from the minimum, so that no value tells which of two gaps is narrower: the
        path is followed until its point is as low as p, too.
        """
        level = self.value(p)

        def gap(x: Vector) -> float:
            own = self.gap(x, self.slope(x))
            return own if self.value(x) <= level else max(own, 1.01 * tol)

        found = central_point(self.H, self.pull, self.constraint, self.lam, gap, tol)
        return found if gap(found) <= tol else min(found, p, key=self.value)

    def reweighted(self, p: Vector, tol: float) -> Vector:
        """Return a better point, by least squares with the places of p for weights; p itself if they do not help."""
        value = self.value(p)
        for _ in range(_ROUNDS):
            z = self.constraint.places(p)
            used = np.flatnonzero((p != 0.0) & (z > _LEAST_PLACE))
            if not len(used) or self.stop():
                break
            system = self.H[np.ix_(used, used)]
            system[np.diag_indices(len(used))] += self.lam / z[used]
            x = np.zeros_like(p)
            x[used] = Definite(system).solve(self.pull[used])
            x = self.constraint.times(z).clipped(x)
            new = self.value(x)
            if not new < value - 0.1 * tol:
                break
            p, value = x, new
        return p

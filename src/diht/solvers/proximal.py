r"""The relaxation of a quadratic under any constraint: accelerated proximal gradients.

Where the constraint is a plain one, `diht.design.gram_kernels` does the same, compiled and with Newton steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diht.constraint import Constraint

__all__ = ["minimise_quadratic"]

Vector = NDArray[np.float64]

_CHECK = 10  # steps between two looks at the gap
_MOST_STEPS = 20_000


def minimise_quadratic(
    H: Vector, gradient: Vector, constraint: Constraint, lam: float, w: Vector, curvature: float, tol: float
) -> tuple[Vector, float, float]:
    r"""Minimise :math:`F(p) = \nabla^\top (p - w) + \tfrac12 (p - w)^\top H (p - w) + \lambda \Omega(p)` from w.

    Returns p once F is within `tol` of its minimum, the fall F(w) - F(p), and the curvature that the steps had to respect. With
    :math:`c = -\nabla F_0(p)` the negative gradient of the quadratic, F(p) is at most
    :math:`\lambda \Omega(p) - p^\top c + \nu(c)^2 / (2 \lambda)` from its minimum.
    """
    p, point, momentum = w, w, 1.0
    slope = gradient
    for t in range(1, _MOST_STEPS + 1):
        new = constraint.prox(point - slope / curvature, lam / curvature)
        moved = new - point
        turned = H @ moved
        if moved @ turned > curvature * (moved @ moved) * (1.0 + 1e-9):
            seen = float(moved @ turned) / float(moved @ moved)
            curvature = max(1.2 * curvature, min(1.02 * seen, 4.0 * curvature))
            continue
        own = slope + turned
        if t % _CHECK == 0 or not np.any(moved):
            gap = lam * constraint.relaxation(new) + new @ own + constraint.opposite.value(own) / (2.0 * lam)
            if gap <= tol or not np.any(moved):
                p = new
                break
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        if (point - new) @ (new - p) > 0.0:
            following = momentum = 1.0
        step = (momentum - 1.0) / following * (new - p)
        p, point, momentum = new, new + step, following
        slope = own + H @ step if momentum > 1.0 else own
    change = p - w
    before, after = lam * constraint.relaxation(w), lam * constraint.relaxation(p)
    return p, float(before - after - gradient @ change - 0.5 * change @ (H @ change)), curvature

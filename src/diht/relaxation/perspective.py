r"""Interior point method for the relaxation of a quadratic whose features come in groups, or have limits.

With a place :math:`z_G` for each group, and limits i of features j with sides :math:`s_i = \pm 1` and sizes :math:`t_i \ge 0`, the
relaxation is

.. math:: \min_{p, z} \; \tfrac12 p^\top H p - h^\top p + \tfrac{\lambda}{2} \sum_G \|p_G\|^2 / z_G , \qquad
          0 \le z_G \le 1 , \quad \sum_G z_G = m , \quad r_i = s_i p_j + t_i z_G \ge 0 ,

jointly convex, for :math:`\|p_G\|^2 / z_G` is the perspective of a square. The optimum has multipliers nu, a, b and c with

.. math:: h - H p - \lambda p / z + \sum_i s_i c_i = 0 , \quad
          \lambda \|p_G\|^2 / (2 z_G^2) - \nu + a_G - b_G + \sum_i t_i c_i = 0 , \quad
          a_G z_G = b_G (1 - z_G) = c_i r_i = \tau , \quad \tau = 0 ,

and Newton's method follows the solutions as tau falls (Mehrotra, 1992). All but p and nu are eliminated, so that a step costs one
positive definite system, which is solved whatever the scales of the features (see `Definite`). Ten to thirty steps suffice, where
the number of proximal steps grows with the ratio of the largest curvature to the ridge.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from diht.constraints.base import Constraint
from diht.constraints.limits import Limits
from diht.numerics.arrays import Indices, Vector
from diht.numerics.definite import Definite

__all__ = ["MOST_FEATURES", "central_point"]


MOST_FEATURES = 100  # a step takes some milliseconds for the largest
_MOST_STEPS = 40
_BOUNDARY = 0.99  # share of the way to the nearest end that a step may go
_LEAST_CENTRING = 1e-4
_MOST_HALVINGS = 30
_SHORT = 0.1  # a step that is shorter than this share of what Newton's equations ask for
_PATIENCE = 12  # steps in a row without a smaller gap, a short one counting for three: rounding keeps it from falling
_APART = 0.1  # distance of a first p from a limit at zero, relative to the size of p in its unit of curvature


class _Path:
    """The point of the path: p, z and the multipliers; z of the groups that are always in is 1 and stays."""

    def __init__(
        self, H: Vector, h: Vector, unit: Indices, free: NDArray[np.bool_], m: int, limits: Limits, lam: float
    ):
        self.H, self.h, self.unit, self.free, self.m, self.lam = H, h, unit, free, m, lam
        self.same, n_free = unit[:, None] == unit, int(free.sum())
        below, above = np.flatnonzero(np.isfinite(limits.lower)), np.flatnonzero(np.isfinite(limits.upper))
        self.at = np.append(below, above)  # the feature of each limit
        self.side = np.append(np.ones(len(below)), -np.ones(len(above)))
        self.reach = np.append(-limits.lower[below], limits.upper[above])
        self.size = 1.0  # of the last step
        self.z = np.where(free, m / max(n_free, 1), 1.0)
        curvature = H.diagonal() + lam / self.z[unit]
        p = Definite(H + np.diag(lam / self.z[unit])).solve(h)
        energy = max(float(h @ p), np.finfo(float).tiny)
        apart = _APART * np.sqrt(energy / (len(p) * curvature))
        low, high = limits.lower * self.z[unit], limits.upper * self.z[unit]
        apart = np.minimum(apart, 0.25 * (high - low))
        self.p = np.clip(p, low + apart, high - apart)
        tau = energy / (2 * n_free + len(self.at) + 1)
        room = np.where(free, 1.0 - self.z, 1.0)
        self.a, self.b = np.where(free, tau / self.z, 0.0), np.where(free, tau / room, 0.0)
        self.c = tau / self.ahead(self.p, self.z)
        self.nu = float(np.mean(lam * self.squares()[free] / (2.0 * self.z[free] ** 2))) if n_free else 0.0

    def ahead(self, p: Vector, z: Vector) -> Vector:
        """How far p is from each limit; of changes of p and z, the change of that."""
        return np.asarray(self.side * p[self.at] + self.reach * z[self.unit[self.at]])

    def of_features(self, v: Vector) -> Vector:
        """Sums over the limits of each feature."""
        return np.bincount(self.at, v, minlength=len(self.p)).astype(np.float64, copy=False)

    def squares(self) -> Vector:
        """The squared norms of the groups."""
        return self.by_group(np.square(self.p))

    def by_group(self, v: Vector) -> Vector:
        """Sums over the groups."""
        return np.bincount(self.unit, v, minlength=len(self.z)).astype(np.float64, copy=False)

    def barrier(self, p: Vector, z: Vector, tau: float) -> float:
        """The objective with logarithmic barriers of strength tau; infinite beyond them."""
        ahead, inner = self.ahead(p, z), z[self.free]
        if min(ahead.min(initial=1.0), inner.min(initial=1.0), (1.0 - inner).min(initial=1.0)) <= 0.0:
            return np.inf
        logs = np.log(ahead).sum() + np.log(inner).sum() + np.log1p(-inner).sum()
        value = 0.5 * float(p @ (self.H @ p)) - float(self.h @ p) + 0.5 * self.lam * float(p @ (p / z[self.unit]))
        return value - tau * float(logs)

    def advance(self) -> None:
        """Make one step, as long as the barriers allow and their objective falls; a step with tau = 0 tells which tau to aim at."""
        z, a, b, c, free, unit, lam = self.z, self.a, self.b, self.c, self.free, self.unit, self.lam
        room, ahead = np.where(free, 1.0 - z, 1.0), self.ahead(self.p, z)
        held = c / ahead
        squares = self.squares()
        pull = lam * self.p / z[unit] ** 2 - self.of_features(self.side * self.reach * held)
        bent = self.by_group(self.of_features(self.reach**2 * held))
        share = np.where(free, 1.0 / (lam * squares / z**3 + a / z + b / room + bent), 0.0)
        M = self.H - self.same * np.outer(pull, pull * share[unit])
        M[np.diag_indices(len(M))] += lam / z[unit] + self.of_features(held)
        system = Definite(M)
        slope_p = self.H @ self.p - self.h + lam * self.p / z[unit]
        slope_z = np.where(free, -lam * squares / (2.0 * z**2), 0.0)
        level = system.solve(pull * share[unit])

        def along(v: Vector) -> Vector:
            return self.by_group(pull * v)

        fall = float(share @ (along(level) + free))

        def direction(tau: float) -> tuple[Vector, Vector, Vector, Vector, Vector, float]:
            """Changes of p, z, a, b, c and nu that lead to a z = b (1 - z) = c r = tau."""
            pushed = self.by_group(self.of_features(self.reach * tau / ahead))
            right = np.where(free, tau / z - tau / room - slope_z + pushed, 0.0)
            first = system.solve(self.of_features(self.side * tau / ahead) - slope_p + pull * (share * right)[unit])
            missing = self.m - float(z[free].sum())
            nu = (float(share @ (along(first) + right)) - missing) / fall if fall > 0.0 else 0.0
            dp = first - nu * level
            dz = share * (along(dp) + right - nu)
            da, db = (tau - a * dz) / z - a, (tau + b * dz) / room - b
            dc = (tau - c * self.ahead(dp, dz)) / ahead - c
            return dp, dz, np.where(free, da, 0.0), np.where(free, db, 0.0), dc, nu

        dp, dz, da, db, dc, _ = direction(0.0)
        nearer = self.ahead(dp, dz)
        now = float(a @ z + b[free] @ room[free] + c @ ahead)
        inner, outer = _longest((z, dz), (room, -dz), (ahead, nearer)), _longest((a, da), (b, db), (c, dc))
        then = float((a + outer * da) @ (z + inner * dz) + ((b + outer * db) @ (room - inner * dz)))
        then += float((c + outer * dc) @ (ahead + inner * nearer))
        tau = min(max((then / now) ** 3, _LEAST_CENTRING), 1.0) * now / (2 * int(free.sum()) + len(self.at))
        dp, dz, da, db, dc, self.nu = direction(tau)
        inner = _BOUNDARY * _longest((z, dz), (room, -dz), (ahead, self.ahead(dp, dz)))
        value = self.barrier(self.p, z, tau)
        for _ in range(_MOST_HALVINGS):
            if self.barrier(self.p + inner * dp, z + inner * dz, tau) <= value:
                break
            inner *= 0.5
        outer = _BOUNDARY * _longest((a, da), (b, db), (c, dc))
        self.size, self.p, self.z = inner, self.p + inner * dp, z + inner * dz
        self.a, self.b, self.c = a + outer * da, b + outer * db, c + outer * dc


def _longest(*ends: tuple[Vector, Vector]) -> float:
    """The longest step, up to 1, that leaves everything positive that is so."""
    return min(1.0, *(float(np.min(np.where(d < 0.0, x / -d, np.inf), initial=np.inf)) for x, d in ends))


def central_point(
    H: Vector, h: Vector, constraint: Constraint, lam: float, gap: Callable[[Vector], float], tol: float
) -> Vector:
    """Follow the path until the gap of a point is within `tol`, or no longer falls; return the point with the least gap."""
    m, inside, outside = constraint.free(len(h))
    none = np.full(len(h), np.inf)
    limits = Limits(-none, none) if constraint.limits is None else constraint.limits
    state, labels = np.zeros(len(h), dtype=np.int8), constraint.unit_of(len(h))
    state[inside], state[outside] = 1, -1
    if m <= 0:
        state[state == 0] = -1
    features = np.flatnonzero((state >= 0) & (limits.lower < limits.upper))
    best = np.zeros(len(h))
    if not len(features):
        return best
    _, first, unit = np.unique(labels[features], return_index=True, return_inverse=True)
    free = state[features[first]] == 0
    if m >= np.count_nonzero(free):  # a whole place for each
        free[:] = False
    limits = limits.of(features)
    least, since = np.inf, 0
    with np.errstate(all="ignore"):
        path = _Path(H[np.ix_(features, features)], h[features], unit, free, m, limits, lam)
        for _ in range(_MOST_STEPS):
            p = np.zeros(len(h))
            p[features] = path.p
            now, since = gap(p), since + (3 if path.size < _SHORT else 1)
            if now < least:
                best, least, since = p, now, 0
            if not now > tol or since >= _PATIENCE or not (np.any(free) or limits.binds):  # not for NaN
                break
            path.advance()
    return best

r"""Interior point method for the relaxed quadratic: a start for the exact steps of :mod:`diht.relaxation.quadratic`.

With a factor :math:`A = R^\top R`, :math:`h = R^\top y`, and a place :math:`z_j` for each free feature, the relaxation is

.. math:: \min_{0 \le z \le 1, \; \sum_j z_j = m} \; f(z) , \qquad
          f(z) = \min_p \tfrac12 \|R p - y\|^2 + \tfrac{\rho}{2} \sum_j p_j^2 / z_j
               = \tfrac12 y^\top M^{-1} y , \qquad M = I + R Z R^\top / \rho .

At :math:`\alpha = M^{-1} y` and :math:`c = R^\top \alpha` the gradient is :math:`-q_j = -c_j^2 / (2 \rho)`, the model
:math:`p_j = z_j c_j / \rho`, and alpha gives the bound :math:`\alpha^\top y - \|\alpha\|^2 / 2 - \sum_j q_j` over the m largest
:math:`q_j` and those of the features that are always in. The optimum has multipliers nu, s and v with

.. math:: \nu - q_j - s_j + v_j = 0 , \qquad s_j z_j = v_j (1 - z_j) = \tau , \qquad \tau = 0 ,

and Newton's method follows the solutions as tau falls (Mehrotra, 1992). The Hessian of f is
:math:`C R^\top M^{-1} R C / \rho^2`, so that by Woodbury's identity a step costs two matrices :math:`R E R^\top` with E
diagonal. Ten to twenty steps suffice whatever the ridge, where proximal steps need a number that grows as it falls.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lapack, solve_triangular

from diht.numerics.arrays import Vector

__all__ = ["barrier_operations", "barrier_point"]


MOST_STEPS = 40
USUAL_STEPS = 15
ACCURACY = 1e-7  # relative gap from which on the exact steps are sure of what is in and what is out
BOUNDARY = 0.99  # share of the way to the nearest end that a step may go
LEAST_CENTRING = 1e-4
PATIENCE = 5  # steps that may be worse than the best one: after them rounding prevents progress


def barrier_operations(n: int, rank: int) -> float:
    """About what the method costs with n features."""
    return USUAL_STEPS * (2.0 * rank * rank * n + rank**3) + 2.0 * rank * rank * n


def barrier_point(K: Vector, sigma: float, state: NDArray[np.int8], m: int, rho: float) -> Vector | None:
    """Return what nearly minimises the F of :mod:`diht.relaxation.quadratic`; None where there is nothing to choose or to go by."""
    n = len(state)
    inside, free = np.flatnonzero(state > 0), np.flatnonzero(state == 0)
    if not 0 < m < len(free):
        return None
    A = K[:n, :n].copy(order="F")
    A.flat[:: n + 1] -= sigma
    with np.errstate(all="ignore"):
        try:
            R, y = _factor(A, K[:n, n])
            barrier = _Barrier(R[:, free], y, R[:, inside], m, rho)
        except np.linalg.LinAlgError:
            return None
        beyond = 0.5 * max(float(K[n, n] - y @ y), 0.0)  # what no model explains
        z, alpha = barrier.nearest(ACCURACY, beyond)
        p = np.zeros(n)
        p[inside] = alpha @ R[:, inside] / rho
        p[free] = z * (alpha @ R[:, free]) / rho
    return p if np.isfinite(p).all() else None


def _factor(A: Vector, h: Vector) -> tuple[Vector, Vector]:
    """R and y with A = R'R and h = R'y, to rounding: of as many rows as A has rank."""
    factor, pivots, rank, _ = lapack.dpstrf(A, lower=0, overwrite_a=1)
    if rank == 0 or not np.isfinite(factor[0, 0]):
        raise np.linalg.LinAlgError
    order = pivots - 1
    R = np.empty((rank, len(h)))
    R[:, order] = np.triu(factor)[:rank]
    return R, solve_triangular(factor[:rank, :rank], h[order[:rank]], trans="T", check_finite=False)


class _Barrier:
    """The method's state: z of the free features, multipliers, and alpha, c, q and f(z).

    Parameters
    ----------
    R, y : array
        The factor's columns of the free features, and the target.
    kept : array
        Its columns of the features that are always in.
    m, rho : int, float
        Places, ridge.
    """

    def __init__(self, R: Vector, y: Vector, kept: Vector, m: int, rho: float) -> None:
        self.R, self.y, self.m, self.rho = R, y, m, rho
        self.base = kept @ (kept.T / rho)
        self.base.flat[:: len(y) + 1] += 1.0
        self.z = np.full(R.shape[1], m / R.shape[1])
        self.look()
        self.nu = float(self.top().min())
        mean = max(float(self.q.mean()), np.finfo(float).tiny)
        self.s, self.v = np.maximum(self.nu - self.q, 0.0) + mean, np.maximum(self.q - self.nu, 0.0) + mean

    def nearest(self, accuracy: float, beyond: float) -> tuple[Vector, Vector]:
        """Make steps until the gap is small relative to f plus a constant, or no longer falls; z and alpha of the smallest."""
        least, best, since = np.inf, (self.z, self.alpha), 0
        for _ in range(MOST_STEPS):
            gap = self.gap()
            if gap < least:
                least, best, since = gap, (self.z, self.alpha), 0
            if not gap > accuracy * (self.value + beyond) or since > PATIENCE:
                break
            since += 1
            try:
                self.advance()
            except np.linalg.LinAlgError:
                break
        return best

    def factored(self, places: Vector) -> tuple[Vector, bool]:
        """Factor of I + R E R' and the kept features' share, E the diagonal of so much of a place."""
        B = self.R * np.sqrt(places)
        factor: tuple[Vector, bool] = cho_factor(self.base + B @ B.T, lower=True, overwrite_a=True, check_finite=False)
        return factor

    def look(self) -> None:
        """Compute what follows from z."""
        self.alpha = cho_solve(self.factored(self.z / self.rho), self.y, check_finite=False)
        self.c = self.alpha @ self.R
        self.q = np.square(self.c) / (2.0 * self.rho)
        self.value = 0.5 * float(self.y @ self.alpha)

    def top(self) -> Vector:
        """The m largest q."""
        return np.partition(self.q, len(self.q) - self.m)[len(self.q) - self.m :]

    def gap(self) -> float:
        """f(z) less the bound of alpha."""
        return float(self.top().sum() - self.z @ self.q)

    def advance(self) -> None:
        """Make one step: as far as it goes without a barrier, and from that, with how much of one."""
        z, s, v = self.z, self.s, self.v
        weights = s / z + v / (1.0 - z)
        factor = self.factored((z + self.c**2 / (self.rho * weights)) / self.rho)
        inverse = self.inverse(factor, weights, np.ones_like(z))

        def direction(low: Vector, high: Vector) -> tuple[Vector, Vector, Vector, float]:
            """Changes of z, s, v and nu with which s z and v (1 - z) change by so much."""
            rest = self.q - v + s - self.nu
            along = self.inverse(factor, weights, rest + low / z - high / (1.0 - z))
            dnu = (along.sum() - (self.m - z.sum())) / inverse.sum()
            dz = along - dnu * inverse
            return dz, (low - s * dz) / z, (high + v * dz) / (1.0 - z), dnu

        dz, ds, dv, _ = direction(-s * z, -v * (1.0 - z))
        now, size = float(s @ z + v @ (1.0 - z)), self.longest(dz, ds, dv)
        then = float((s + size * ds) @ (z + size * dz) + (v + size * dv) @ (1.0 - z - size * dz))
        tau = max((then / now) ** 3, LEAST_CENTRING) * now / (2 * len(z))
        dz, ds, dv, dnu = direction(tau - s * z - ds * dz, tau - v * (1.0 - z) + dv * dz)
        size = BOUNDARY * self.longest(dz, ds, dv)
        self.z, self.s, self.v, self.nu = z + size * dz, s + size * ds, v + size * dv, self.nu + size * dnu
        self.look()

    def inverse(self, factor: tuple[Vector, bool], weights: Vector, x: Vector) -> Vector:
        """Solve the equations of z, the Hessian of f plus weights, for x."""
        share, x = self.c / (self.rho * weights), x / weights
        return np.asarray(
            x - share * (cho_solve(factor, self.R @ (self.c / self.rho * x), check_finite=False) @ self.R)
        )

    def longest(self, dz: Vector, ds: Vector, dv: Vector) -> float:
        """The longest step, up to 1, that leaves everything where it may be."""
        ends = [(self.z, dz), (1.0 - self.z, -dz), (self.s, ds), (self.v, dv)]
        return min(1.0, *(float(np.min(np.where(d < 0.0, x / -d, np.inf))) for x, d in ends))

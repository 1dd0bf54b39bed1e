r"""Interior point method for the relaxed quadratic: a start for the exact steps of :mod:`diht.relaxation.quadratic`.

With a factor :math:`A = R^\top R`, :math:`h = R^\top y`, and a place :math:`z_j` for each free feature, the relaxation is

.. math:: \min_{0 \le z \le 1, \; \sum_j z_j = m} \; f(z) , \qquad
          f(z) = \min_p \tfrac12 \|R p - y\|^2 + \tfrac{\rho}{2} \sum_j p_j^2 / z_j
               = \tfrac12 y^\top M^{-1} y , \qquad M = I + R Z R^\top / \rho .

With :math:`c = R^\top \alpha` and :math:`q_j = c_j^2 / (2 \rho)` any alpha gives the bound
:math:`\alpha^\top y - \|\alpha\|^2 / 2 - \sum_j q_j` over the m largest :math:`q_j` and those of the features that are always in;
at :math:`\alpha = M^{-1} y` the gradient of f is -q. The optimum has multipliers nu, s and v with

.. math:: M \alpha = y , \qquad \nu - q_j - s_j + v_j = 0 , \qquad s_j z_j = v_j (1 - z_j) = \tau , \qquad \tau = 0 ,

and Newton's method in all of them follows the solutions as tau falls (Mehrotra, 1992). Without z, s and v its equations for alpha
have the matrix M with :math:`E = Z + C^2 / (\rho W)` in place of Z, W the diagonal of :math:`s_j / z_j + v_j / (1 - z_j)`: a step
costs one matrix :math:`R E R^\top`, and one more where the residual :math:`y - M \alpha` becomes large, for alpha anew. Some ten
steps suffice whatever the ridge, where proximal steps need a number that grows as it falls. The model :math:`p_j = z_j c_j / \rho`
and the bound differ by :math:`\|y - M \alpha\|^2 / 2 - \sum_j z_j q_j` and the m largest :math:`q_j`: nothing cancels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lapack, solve_triangular

from diht.constraints.base import threshold_scale
from diht.numerics.arrays import Vector

__all__ = ["barrier_operations", "barrier_point"]


MOST_STEPS = 40
USUAL_STEPS = 10
BOUNDARY = 0.99  # share of the way to the nearest end that a step may go
CENTRED = 0.2  # share of the places that all features have alike at the start: with less the first steps are short
LEAST_CENTRING = 1e-4
PATIENCE = 5  # steps that may be worse than the best one: after them rounding prevents progress


def barrier_operations(n: int, rank: int) -> float:
    """About what the method costs with n features."""
    return USUAL_STEPS * (rank * rank * n + 0.5 * rank**3) + 2.0 * rank * rank * n


def barrier_point(
    K: Vector, sigma: float, state: NDArray[np.int8], m: int, rho: float, start: Vector, accuracy: float
) -> Vector | None:
    """Return what nearly minimises the F of :mod:`diht.relaxation.quadratic`; None where there is nothing to choose or to go by.

    Parameters
    ----------
    K, sigma, state, m, rho
        As there.
    start : array
        A model to begin near to, in the places that it takes; the result does not depend on it, but for the accuracy.
    accuracy : float
        Relative gap at which to end.

    Returns
    -------
    array or None
    """
    n = len(state)
    inside, free = np.flatnonzero(state > 0), np.flatnonzero(state == 0)
    if not 0 < m < len(free):
        return None
    A = K[:n, :n].copy(order="F")
    A.flat[:: n + 1] -= sigma
    with np.errstate(all="ignore"):
        try:
            R, y = _factor(A, K[:n, n])
            barrier = _Barrier(R[:, free], y, R[:, inside], m, rho, start[free])
            beyond = 0.5 * max(float(K[n, n] - y @ y), 0.0)  # what no model explains
            z = barrier.nearest(accuracy, beyond)
            alpha = barrier.best_alpha(z)  # with a residual the model would not have the bound of alpha
        except np.linalg.LinAlgError:
            return None
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
    """The method's state: z of the free features, alpha, multipliers, and c, q and the residual of alpha's equation.

    Parameters
    ----------
    R, y : array
        The factor's columns of the free features, and the target.
    kept : array
        Its columns of the features that are always in.
    m, rho : int, float
        Places, ridge.
    p : array
        A model of the free features to begin near to.
    """

    def __init__(self, R: Vector, y: Vector, kept: Vector, m: int, rho: float, p: Vector) -> None:
        self.R, self.y, self.m, self.rho = R, y, m, rho
        self.base = kept @ (kept.T / rho)
        self.base.flat[:: len(y) + 1] += 1.0
        self.z = (1.0 - CENTRED) * _places(np.abs(p), m) + CENTRED * m / len(p)
        self.alpha = self.best_alpha(self.z)
        self.look()
        self.nu = float(self.top().min())
        mean = max(self.gap() / len(p), np.finfo(float).tiny)
        self.s, self.v = np.maximum(self.nu - self.q, 0.0) + mean, np.maximum(self.q - self.nu, 0.0) + mean

    def nearest(self, accuracy: float, beyond: float) -> Vector:
        """Make steps until the gap is small relative to F plus a constant, or no longer falls; z of the smallest."""
        least, best, since = np.inf, self.z, 0
        for _ in range(MOST_STEPS):
            gap = self.gap()
            if gap < least:
                least, best, since = gap, self.z, 0
            if not gap > accuracy * (self.bound() + gap + beyond) or since > PATIENCE:
                break
            since += 1
            try:
                self.advance()
            except np.linalg.LinAlgError:
                break
        return best

    def best_alpha(self, z: Vector) -> Vector:
        """The alpha of f(z)."""
        return np.asarray(cho_solve(self.factored(z / self.rho), self.y, check_finite=False))

    def factored(self, places: Vector) -> tuple[Vector, bool]:
        """Factor of I + R E R' and the kept features' share, E the diagonal of so much of a place."""
        B = self.R * np.sqrt(places)
        factor: tuple[Vector, bool] = cho_factor(self.base + B @ B.T, lower=True, overwrite_a=True, check_finite=False)
        return factor

    def look(self) -> None:
        """Compute what follows from z and alpha."""
        self.c = self.alpha @ self.R
        self.q = np.square(self.c) / (2.0 * self.rho)
        self.residual = self.y - self.base @ self.alpha - self.R @ (self.z * self.c / self.rho)

    def top(self) -> Vector:
        """The m largest q."""
        return np.partition(self.q, len(self.q) - self.m)[len(self.q) - self.m :]

    def bound(self) -> float:
        """What alpha proves of F."""
        return float(self.alpha @ (self.y - 0.5 * (self.base @ self.alpha)) - self.top().sum())

    def gap(self) -> float:
        """F of the model less that bound."""
        return float(self.top().sum() - self.z @ self.q + 0.5 * self.residual @ self.residual)

    def advance(self) -> None:
        """Make one step: as far as it goes without a barrier, and from that, with how much of one."""
        z, s, v = self.z, self.s, self.v
        weights = s / z + v / (1.0 - z)
        share = self.c / (self.rho * weights)
        factor = self.factored((z + self.c * share) / self.rho)

        def solved(residual: Vector | float, right: Vector) -> tuple[Vector, Vector]:
            """Changes of z and alpha by the linear equations of alpha and of z."""
            dalpha = cho_solve(factor, residual - self.R @ (share * right), check_finite=False)
            return right / weights + share * (dalpha @ self.R), dalpha

        by_nu, alpha_by_nu = solved(0.0, np.ones_like(z))

        def direction(low: Vector, high: Vector) -> tuple[Vector, Vector, Vector, Vector, float]:
            """Changes of z, alpha, s, v and nu with which s z and v (1 - z) change by so much."""
            along, dalpha = solved(self.residual, self.q - v + s - self.nu + low / z - high / (1.0 - z))
            dnu = (along.sum() - (self.m - z.sum())) / by_nu.sum()
            dz = along - dnu * by_nu
            return dz, dalpha - dnu * alpha_by_nu, (low - s * dz) / z, (high + v * dz) / (1.0 - z), dnu

        dz, _, ds, dv, _ = direction(-s * z, -v * (1.0 - z))
        now, size = float(s @ z + v @ (1.0 - z)), self.longest(dz, ds, dv)
        then = float((s + size * ds) @ (z + size * dz) + (v + size * dv) @ (1.0 - z - size * dz))
        tau = max((then / now) ** 3, LEAST_CENTRING) * now / (2 * len(z))
        dz, dalpha, ds, dv, dnu = direction(tau - s * z - ds * dz, tau - v * (1.0 - z) + dv * dz)
        size = BOUNDARY * self.longest(dz, ds, dv)
        self.z, self.alpha, self.nu = z + size * dz, self.alpha + size * dalpha, self.nu + size * dnu
        self.s, self.v = s + size * ds, v + size * dv
        self.look()
        if self.residual @ self.residual > self.gap():  # half of the gap: the linear equations of alpha went astray
            self.alpha = self.best_alpha(self.z)
            self.look()

    def longest(self, dz: Vector, ds: Vector, dv: Vector) -> float:
        """The longest step, up to 1, that leaves everything where it may be."""
        ends = [(self.z, dz), (1.0 - self.z, -dz), (self.s, ds), (self.v, dv)]
        return min(1.0, *(float(np.min(np.where(d < 0.0, x / -d, np.inf))) for x, d in ends))


def _places(magnitudes: Vector, m: int) -> Vector:
    """z of a model, by the magnitudes of its features; all alike where it has no more of them than places."""
    theta = threshold_scale(magnitudes, m, 0.0, 0.0)
    return np.minimum(magnitudes / theta, 1.0) if theta > 0.0 else np.full(len(magnitudes), m / len(magnitudes))

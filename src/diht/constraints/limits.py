r"""Limits of single coefficients, :math:`l_j \le w_j \le u_j` with :math:`l_j \le 0 \le u_j`; a sign is a limit at zero.

With C the allowed supports and the limits together, the value of a vector is

.. math:: \nu(v)^2 = \max_{w \in C} 2 w^\top v - \|w\|^2 = \max_F \sum_{j \in F} e_j(v_j) , \qquad
          e_j(v) = \max_{l_j \le w \le u_j} 2 w v - w^2 ,

:math:`v^2` between the limits and :math:`M (2 |v| - M)` beyond the limit M of its side. The root of :math:`e_j` is no norm, but it
changes no faster than v does: :math:`\nu(v + \delta) \le \nu(v) + \nu_0(\delta)`, with :math:`\nu_0` the norm without limits.

The relaxation has places z and :math:`l_j z_j \le w_j \le u_j z_j`: :math:`\Omega(w) = \min_z \sum_j w_j^2 / (2 z_j)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diht.numerics.arrays import Indices, Vector

__all__ = ["Limits", "least_places", "limits_of", "shared_places", "shrunk_places", "sides_of"]

_LEAST = 2.0**-960  # limits next to zero are no nearer: products with them are normal numbers
_MOST_STEPS = 200
_EXACT = 1e-15


@dataclass(frozen=True, eq=False)
class Limits:
    """A lower limit, at most zero, and an upper one, at least zero, for each coefficient; infinite where there is none."""

    lower: Vector
    upper: Vector

    @cached_property
    def is_cone(self) -> bool:
        """Whether each limit is zero or infinite: signs."""
        return not np.any(np.isfinite(self.lower) & (self.lower != 0.0) | np.isfinite(self.upper) & (self.upper != 0.0))

    @property
    def binds(self) -> bool:
        """Whether there is any limit."""
        return bool(np.any(np.isfinite(self.lower)) or np.any(np.isfinite(self.upper)))

    def clipped(self, v: Vector) -> Vector:
        """The nearest vector within the limits."""
        return np.clip(v, self.lower, self.upper)

    def allows(self, w: Vector) -> bool:
        """Whether a vector is within the limits."""
        return bool(np.all((self.lower <= w) & (w <= self.upper)))

    def equals(self, other: Limits) -> bool:
        """Whether others are the same."""
        return np.array_equal(self.lower, other.lower) and np.array_equal(self.upper, other.upper)

    def energies(self, v: Vector) -> Vector:
        """Return e_j(v_j) of each coefficient."""
        w = self.clipped(v)
        return np.asarray(w * (2.0 * v - w))

    def sides(self, v: Vector) -> Vector:
        """The limits on the side of each entry, in size."""
        return np.where(v < 0.0, -self.lower, self.upper)

    def times(self, factor: float | Vector) -> Limits:
        """The limits of the coefficients multiplied by a factor, or one for each; a negative one exchanges the sides.

        Each is off by a rounding, and none becomes zero that is not.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            low, high = (_scaled(limit, np.abs(factor)) for limit in (self.lower, self.upper))
        negative = np.asarray(factor) < 0.0
        return Limits(np.where(negative, -high, low), np.where(negative, -low, high))

    def of(self, features: Indices) -> Limits:
        """Those of some coefficients."""
        return Limits(self.lower[features], self.upper[features])

    def repeated(self, n: int) -> Limits:
        """The same for each of several targets."""
        return Limits(np.tile(self.lower, n), np.tile(self.upper, n))

    def rounded(self, w: Vector, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return a vector within the limits in another type; what rounding takes beyond them is the next number within."""
        found = w.astype(dtype)
        beyond = (found < self.lower) | (found > self.upper)
        return np.where(beyond, np.nextafter(found, dtype.type(0)), found)


def _scaled(limit: Vector, factor: Vector | float) -> Vector:
    """Multiply limits; infinite ones stay, and none becomes zero."""
    product = np.where(np.isfinite(limit), limit * factor, limit)
    tiny = (limit != 0.0) & (np.abs(product) < _LEAST)
    return np.where(tiny, np.copysign(_LEAST, limit), product) + 0.0


def limits_of(bounds: Any, sign: NDArray[np.int8] | None, n_features: int) -> Limits | None:
    """Return what `bounds` and signs ask for together, of several targets one after the other; None where there is no limit."""
    lower, upper = sides_of(bounds, n_features)
    if sign is not None:
        lower, upper, sign = _with_rows(n_features, lower, upper, sign)
        lower, upper = np.where(sign > 0, 0.0, lower), np.where(sign < 0, 0.0, upper)
    limits = Limits(lower + 0.0, upper + 0.0)
    return limits if limits.binds else None


def sides_of(bounds: Any, n_features: int) -> tuple[Vector, Vector]:
    """Return the lower and the upper limits, each a row for all targets or one for each."""
    if bounds is None:
        return np.full(n_features, -np.inf), np.full(n_features, np.inf)
    pair = (bounds.lb, bounds.ub) if hasattr(bounds, "lb") and hasattr(bounds, "ub") else bounds
    if not isinstance(pair, tuple | list | np.ndarray) or len(pair) != 2:
        raise ValueError(
            f"bounds must be a pair (lower, upper) of numbers or of one for each of the {n_features} features"
        )
    lower, upper = pair
    lower, upper = (_side(side, missing, n_features) for side, missing in ((lower, -np.inf), (upper, np.inf)))
    lower, upper = _with_rows(n_features, lower, upper)
    for side, limits, wrong in (("lower", lower, lower > 0.0), ("upper", upper, upper < 0.0)):
        if np.any(wrong):
            at = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"bounds must hold zero, the coefficient of a feature that is not used: got {side} limit "
                f"{limits[at]:g} at position {at % n_features}"
            )
    return lower, upper


def _with_rows(n_features: int, *given: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return what is given for all targets as often as what is given for each."""
    size = max(map(len, given))
    if any(len(values) not in (n_features, size) for values in given):
        rows = " and ".join(str(len(values) // n_features) for values in given)
        raise ValueError(
            f"bounds must have one row, or the same number for lower limits, upper ones and signs, got {rows}"
        )
    return tuple(np.tile(values, size // len(values)) for values in given)


def _side(side: ArrayLike | None, missing: float, n_features: int) -> Vector:
    try:
        limits = np.asarray(missing if side is None else side, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"bounds must be numeric, got {side!r}") from None
    if limits.size == 1:  # as scipy keeps a number
        limits = np.full(n_features, limits)
    if limits.ndim > 2 or limits.shape[-1] != n_features:
        raise ValueError(
            f"bounds must hold one number, or one for each of the {n_features} features, got shape {limits.shape}"
        )
    if np.any(np.isnan(limits)):
        raise ValueError(
            f"bounds must not be NaN, got one at position {int(np.argmax(np.isnan(limits.ravel()))) % n_features}"
        )
    return limits.ravel()


# ---------------------------------------------------------------------------------------------------------------------
# Places in the relaxation


def least_places(w: Vector, limits: Limits, unit: Indices, n_units: int) -> Vector:
    """How much of a place each unit needs at least for its coefficients to be within their limits."""
    sides = limits.sides(w)
    shares = np.divide(np.abs(w), sides, out=np.where(w != 0.0, np.inf, 0.0), where=sides > 0.0)
    least = np.zeros(n_units)
    np.maximum.at(least, unit, shares)
    return least


def shared_places(roots: Vector, least: Vector, m: int) -> Vector:
    """Return the z that minimise the sum of roots^2 / z, where they are from `least` to 1 and add up to m at most."""
    used = roots > 0.0
    if np.count_nonzero(used) <= m:
        return used.astype(np.float64)

    def places(t: float) -> tuple[Vector, Vector]:
        z = np.maximum(roots * t, least)
        return np.minimum(z, 1.0), np.where((z < 1.0) & (z > least), roots, 0.0)

    if float(np.minimum(least, 1.0).sum()) >= m:
        return np.minimum(least, 1.0)
    return places(_level(places, m, 1.0 / float(roots.max())))[0]


def shrunk_places(q: Vector, limits: Limits, unit: Indices, n_units: int, r: float, m: int) -> Vector:
    r"""Return the z of the proximal map of r times the relaxation: of units that may all be chosen, m at most.

    Given z, :math:`w_j = q_j z / (z + r)` within its limits times z. What is left falls with z by

    .. math:: f_G(z) = \sum_{j \in G} \begin{cases} M_j |q_j| - M_j^2 (z + r/2) & z < |q_j| / M_j - r \\
              r q_j^2 / (2 (z + r)^2) & \text{otherwise} \end{cases}

    for a little more of a place; at the optimum that is :math:`\mu = r \theta^2 / 2` wherever z is neither 0 nor 1. For one
    feature alone :math:`z = |q| / \theta - r` where :math:`\theta \le M`, else :math:`|q| / M - (r/2) (1 + \theta^2 / M^2)`.
    """
    M = limits.sides(q)
    a = np.where(M > 0.0, np.abs(q), 0.0)
    largest = np.zeros(n_units)
    np.maximum.at(largest, unit, a)
    if np.count_nonzero(largest) <= m:
        return (largest > 0.0).astype(np.float64)
    if m <= 0:
        return np.zeros(n_units)
    alone = len(unit) == n_units
    order = np.argsort(unit) if alone else unit

    def places(t: float) -> tuple[Vector, Vector]:
        if not alone:
            return _group_places(a, M, unit, n_units, r, t)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            held = np.maximum(M * t, np.finfo(float).tiny)
            free = held > 1.0
            z = np.where(free, a * t - r, a / np.maximum(M, _LEAST) - 0.5 * r * (1.0 + 1.0 / held**2))
            slope = np.where(free, a, r / (held**2 * t))
        z, slope = z[order], slope[order]
        return np.clip(z, 0.0, 1.0), np.where((z > 0.0) & (z < 1.0), slope, 0.0)

    return places(_level(places, m, (1.0 + r) / float(a.max())))[0]


def _group_places(a: Vector, M: Vector, unit: Indices, n_units: int, r: float, t: float) -> tuple[Vector, Vector]:
    """The z at which f is mu = r / (2 t^2), by Newton's method kept in a bracket, and its derivative in t."""
    mu = 0.5 * r / t**2
    side = np.where(np.isfinite(M), M, 0.0)
    turn = np.divide(a, side, out=np.zeros_like(a), where=side > 0.0) - r  # up to where the limit holds

    def falls(z: Vector) -> tuple[Vector, Vector]:
        held, at = z[unit] < turn, z[unit] + r
        f = np.where(held, side * (a - side * (z[unit] + 0.5 * r)), 0.5 * r * (a / at) ** 2)
        slope = np.where(held, -(side**2), -r * a**2 / at**3)
        return _summed(f, unit, n_units), _summed(slope, unit, n_units)

    low, high = np.zeros(n_units), np.ones(n_units)
    none, whole = falls(low)[0] <= mu, falls(high)[0] >= mu
    z = np.where(whole, 1.0, np.where(none, 0.0, 0.5))
    for _ in range(_MOST_STEPS):
        f, slope = falls(z)
        low, high = np.where(f > mu, z, low), np.where(f > mu, high, z)
        # 1 / sqrt(f) is nearly a straight line.
        root = np.sqrt(np.maximum(f, np.finfo(float).tiny))
        new = z + np.divide(2.0 * f * (root / np.sqrt(mu) - 1.0), -slope, out=np.full(n_units, -1.0), where=slope < 0.0)
        new = np.where((new > low) & (new < high), new, 0.5 * (low + high))
        new = np.where(none | whole, z, new)
        if np.all(np.abs(new - z) <= _EXACT * (z + r)):
            break
        z = new
    _, slope = falls(z)
    moves = ~(none | whole) & (slope < 0.0)
    return z, np.where(moves, (r / t**3) / np.where(moves, -slope, 1.0), 0.0)


def _summed(v: Vector, unit: Indices, n_units: int) -> Vector:
    """Sums over the units."""
    return np.bincount(unit, v, minlength=n_units).astype(np.float64, copy=False)


def _level(places: Callable[[float], tuple[Vector, Vector]], m: int, t: float) -> float:
    """Return the t > 0 at which places, that grow with t, add up to m: Newton's method kept in a bracket."""
    low, high = 0.0, np.inf
    for _ in range(_MOST_STEPS):
        z, slope = places(t)
        total, rise = float(z.sum()), float(slope.sum())
        if abs(total - m) <= 1e-14 * m:
            break
        if total < m:
            low = t
        else:
            high = t
        new = t + (m - total) / rise if rise > 0.0 else -1.0
        if not low < new < high:
            new = 0.5 * (low + high) if high < np.inf else 2.0 * t
        if abs(new - t) <= _EXACT * t:
            break
        t = new
    return t

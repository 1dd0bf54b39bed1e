"""The one scalar root behind everything that an intercept needs.

An unpenalised intercept b puts the constraint sum_i s_i a_i = 0 on the dual. Three tasks are then the same: projecting a
dual vector on the constraint and on F, a dual step that stays feasible, and the best b for given coefficients. In each
a_i depends on a shift of its argument by b, without ever decreasing, and b is the root of h(b) = sum_i s_i a_i(b).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diht.design.step import Step
from diht.losses import Loss
from diht.numerics.arrays import Vector

if TYPE_CHECKING:
    from diht.samples import Rows, Samples

__all__ = [
    "SHORT",
    "Jumps",
    "added",
    "balanced",
    "best_intercept",
    "increasing_root",
    "root_in_batches",
    "root_of_jumps",
    "rounding",
]

_MAX_EVALUATIONS = 200
_MOST_BISECTIONS = 8  # in a row; if more, a root that secants would find costs as many
_SHARP = 1 / 16  # ratio of two values of h from which on a secant counts as converging, whatever the bracket
_BATCH_WIDTH, _MOST_BATCHES = 1e-3, 40  # first step outwards from the start, relative to it; batches of values
_RAYS = np.geomspace(1e-9, 1e9, 500)  # distances from the start, relative to it, at which jumps are counted
_U = 2.0**-53  # unit roundoff: a sum is off by at least about so much of the sum of its terms' sizes
_ROUNDED = 8.0  # multiple of the rounding error below which a derivative counts as zero
SHORT = 10_000  # terms up to which numpy computes a sum


def added(sums: Iterable[float]) -> float:
    """Add the sums of blocks of samples, rounded once."""
    sums = list(sums)
    try:
        return math.fsum(sums)
    except (OverflowError, ValueError):  # some are infinite, or their sum is
        return float(sum(sums))


def rounding(samples: Samples, alpha: Rows) -> float:
    """What rounding leaves of a sum_i s_i alpha_i that is zero."""
    return _ROUNDED * _U * samples.total(lambda y, a: np.abs(a), alpha)


def increasing_root(h: Callable[[float], float], start: float = 0.0, noise: float = 0.0) -> float:
    """Root of a nondecreasing function, to the last bit that its values can tell; those within `noise` count as zero.

    Brackets the root outwards from `start` by secant steps, then closes in by the Illinois method with bisection as its
    safeguard. A jump across zero counts as a root. Where h never changes sign, the point of least |h| seen.
    """
    left = right = start
    h_left = h_right = h(start)
    if abs(h_left) <= noise:
        return start
    width = 1e-3 * max(1.0, abs(start))
    evaluations = 1
    while (h_left > 0.0 or h_right < 0.0) and evaluations < _MAX_EVALUATIONS:
        if h_right < 0.0:
            left, h_left = right, h_right
            right = right + width
            h_right = h(right)
            slope = (h_right - h_left) / width
        else:
            right, h_right = left, h_left
            left = left - width
            h_left = h(left)
            slope = (h_right - h_left) / width
        evaluations += 1
        # Twice the secant's guess of what is missing, and never less than a doubling.
        missing = min(abs(h_left), abs(h_right)) / slope if slope > 0.0 else np.inf
        width = max(2.0 * width, min(2.0 * missing, 1e3 * width))
        if not np.isfinite(left) or not np.isfinite(right):
            break
    if h_left > 0.0 or h_right < 0.0:
        return left if abs(h_left) < abs(h_right) else right
    return _illinois(h, left, h_left, right, h_right, noise)


def _illinois(
    h: Callable[[float], float], left: float, h_left: float, right: float, h_right: float, noise: float
) -> float:
    side = 0
    best, h_best = (left, h_left) if abs(h_left) < abs(h_right) else (right, h_right)
    f_left, f_right = h_left, h_right  # the halved values of the Illinois method
    slow = 0  # secants in a row that neither halved the bracket nor came far closer to zero: at a jump of h none does
    due, run = 0, 1  # bisections that come next, and how many in a row when secants fail again
    for _ in range(_MAX_EVALUATIONS):
        if abs(h_best) <= noise:
            break
        width, middle = right - left, 0.5 * (left + right)
        guess = middle if due else right - f_right * width / (f_right - f_left)
        if not left < guess < right:
            guess = middle
            if not left < guess < right:
                break
        value = h(guess)
        sharp = abs(value) <= _SHARP * abs(h_best)
        if abs(value) <= abs(h_best):  # as good but later: nearer to where h jumps
            best, h_best = guess, value
        if value <= 0.0:
            left, f_left = guess, value
            f_right = f_right / 2 if side == -1 else f_right
            side = -1
        if value >= 0.0:
            right, f_right = guess, value
            f_left = f_left / 2 if side == 1 else f_left
            side = 1
        if due:
            due -= 1
        elif sharp or right - left <= 0.5 * width:
            slow, run = 0, 1
        elif slow:
            due, run = run, min(2 * run, _MOST_BISECTIONS)
        else:
            slow = 1
    return best


def best_intercept(samples: Samples, loss: Loss, u: Rows, start: float = 0.0, compiled: bool = False) -> float:
    """Minimiser over b of sum_i s_i l(u_i + b, y_i).

    Secants or Newton's steps are followed as long as each halves the slope, unless the loss is one of straight and quadratic
    pieces. `compiled` says that so many intercepts are wanted that compiled sums pay, where the loss has them, however short.
    """
    known = loss.intercept(lambda f: samples.each(f, u))
    if known is not None:
        return known
    smooth = loss.pieces is None and not (compiled and loss.slope_kernel() is not None)
    b, best, least, before, step = start, start, np.inf, 0.0, 0.0
    while True:
        slope, size, curvature = samples.slope_at(loss, u, b)
        noise = _ROUNDED * _U * size
        if abs(slope) <= noise:
            return b
        if not smooth or not abs(slope) <= 0.5 * least:
            break
        if curvature is None:
            curvature = (slope - before) / step if step else _curvature(samples, loss, u, b)
        if not curvature > 0.0:
            break
        best, least, before, step = b, abs(slope), slope, -slope / curvature
        b += step
    return best if least <= noise else _root(samples, loss, u, best, noise, compiled)


def _curvature(samples: Samples, loss: Loss, u: Rows, b: float) -> float:
    return samples.total(lambda y, u: loss.second_derivative(u + b, y), u)


def _root(samples: Samples, loss: Loss, u: Rows, start: float, noise: float, compiled: bool) -> float:
    """Return the root in b of sum_i s_i l'(u_i + b, y_i), compiled where the loss has a compiled formula and that pays."""
    known = loss.slope_kernel()
    if known is None or (samples.size <= SHORT and not compiled):
        return increasing_root(lambda b: samples.total(lambda y, u: loss.derivative(u + b, y), u), start, noise)
    if not samples.whole:
        slope = Step(loss, "derivative").total
        return increasing_root(lambda b: added(samples.each(lambda y, s, u: slope(u, u, y, s, b), u)), start, noise)
    from diht.samples.central_slopes import slope_root

    return float(slope_root(*known, u, samples.y, samples.s, start, noise))


def root_in_batches(h: Callable[[Vector], Vector], start: float, noise: float, n_points: int = 12) -> float:
    """Root of a nondecreasing function as `increasing_root` has it, from few batches of its values: each takes a round trip.

    `n_points` are taken at even distances, some more next to where a straight line has the root.
    """
    far, best, h_best = _BATCH_WIDTH * max(1.0, abs(start)), start, np.inf
    left, right, h_left, h_right = -np.inf, np.inf, -np.inf, np.inf
    for _ in range(_MOST_BATCHES):
        if np.isfinite(left) and np.isfinite(right):
            guess, width = right - h_right * (right - left) / (h_right - h_left), right - left
            near = guess + width * np.array([-1e-3, -1e-6, -1e-9, 0.0, 1e-9, 1e-6, 1e-3])
            points = np.append(np.linspace(left, right, n_points + 2)[1:-1], near)
        else:
            steps = far * 4.0 ** np.arange(9)
            points, far = np.concatenate([start - steps, [start], start + steps]), far * 4.0**9
        points = np.unique(points[(points > left) & (points < right)])
        if not points.size:
            break
        values = h(points)
        least = int(np.argmin(np.abs(values)))
        if abs(values[least]) <= abs(h_best):
            best, h_best = float(points[least]), float(values[least])
        if abs(h_best) <= noise or not np.all(np.isfinite(values)):
            break
        below, above = np.flatnonzero(values <= 0.0), np.flatnonzero(values >= 0.0)
        if below.size:
            left, h_left = float(points[below[-1]]), float(values[below[-1]])
        if above.size:
            right, h_right = float(points[above[0]]), float(values[above[0]])
    return best


class Jumps(NamedTuple):
    """A nondecreasing function that is constant but for jumps.

    Attributes
    ----------
    slopes : array
        Its values at some points.
    size : float
        The sum of the sizes of its terms.
    jumps : array of shape (2, n), or None
        Places and heights of the jumps of an interval, where they are few.
    """

    slopes: Vector
    size: float
    jumps: Vector | None


def root_of_jumps(h: Callable[[Vector, tuple[float, float] | None], Jumps], start: float) -> float:
    """Root of a function of jumps as `increasing_root` has it: few calls bracket it, then the jumps in the bracket tell."""
    far, best, least, left, right, h_left = max(1.0, abs(start)), start, np.inf, -np.inf, np.inf, 0.0
    for _ in range(_MOST_BATCHES):
        within = (left, right) if np.isfinite(left) and np.isfinite(right) else None
        points = np.concatenate([start - far * _RAYS, [start], start + far * _RAYS])
        points = points if within is None else np.linspace(left, right, len(points))
        points, far = np.unique(points[(points > left) & (points < right)]), far * _RAYS[-1] / _RAYS[0]
        if not (points.size and np.all(np.isfinite(points))):
            break
        values, size, jumps = h(points, within)
        if jumps is not None and jumps.size:
            places, heights = jumps[:, np.argsort(jumps[0])]
            after = h_left + np.cumsum(heights)
            return float(places[min(np.searchsorted(after, -_ROUNDED * _U * size), len(places) - 1)])
        i = int(np.argmin(np.abs(values)))
        if abs(values[i]) <= least:
            best, least = float(points[i]), abs(values[i])
        if least <= _ROUNDED * _U * size:
            break
        below, above = np.flatnonzero(values < 0.0), np.flatnonzero(values > 0.0)
        if below.size:
            left, h_left = float(points[below[-1]]), float(values[below[-1]])
        if above.size:
            right = float(points[above[0]])
    return best


def balanced(samples: Samples, loss: Loss, alpha: Rows) -> Rows:
    """Projection of `alpha`, in the metric of the weights, on F and sum_i s_i alpha_i = 0 (to rounding)."""
    noise = rounding(samples, alpha)

    def shifted(b: float) -> Callable[[Vector, Vector], Vector]:
        return lambda y, a: np.clip(a + b, *loss.domain(y))

    def inside(y: Vector, a: Vector) -> NDArray[np.bool_]:
        low, high = loss.domain(y)
        found: NDArray[np.bool_] = (a + b > low) & (a + b < high)
        return found

    def total(b: float) -> float:
        return samples.total(shifted(b), alpha)

    # h is piecewise linear: Newton's method ends on the right piece, unless the pieces are many.
    b, h, best, least = 0.0, total(0.0), 0.0, np.inf
    while noise < abs(h) <= 0.5 * least:
        best, least = b, abs(h)
        slope = samples.total(inside, alpha)
        if not slope > 0.0:
            break
        b -= h / slope
        h = total(b)
    if abs(h) > noise:
        b = increasing_root(total, best, noise)
    return samples.map(lambda y, s, a: shifted(b)(y, a), alpha)

r"""The best model on a few features of rows in other processes or on a device, in few round trips.

Coefficients and intercept move together: a look at a model brings the loss, its gradient and its Hessian in one round trip, and the
next step follows from them, so that Newton's method needs a round trip a step. Where a whole step does not descend, many shorter
ones are tried at once.

A loss of straight pieces is minimised here, on the samples next to its kinks, with the others put together: `near_kinks`. Where a
model is too far from the best one for that, smooth losses that come ever closer to it lead there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from diht.losses import Loss
from diht.numerics.arrays import Vector
from diht.numerics.definite import Definite

__all__ = ["Look", "Seen", "Smooth", "newton_minimum", "smoothed_minimum"]

Intercept = Any  # a float; where samples have several targets, an array
Step = tuple[Vector, Intercept]  # coefficients and intercept

_MOST_STEPS = 100
_ARMIJO = 1e-4
_SHORTER, _SHORTEST = np.split(0.5 ** np.arange(1.0, 33.0), [6])  # each is a sum over all samples
_LONGER = 2.0 ** np.arange(1.0, 13.0)
_FASTER = 0.5  # share of the objective: a whole step that takes so much away is made longer (separable classes)
_HIDDEN, _EXACT = 1e-12, 1e-16  # relative decreases that rounding of the objective hides, and that there is no point in
_ENOUGH = 1e-13  # relative gap at which a model counts as the best
_SHARE = 0.01  # of what a smooth loss may cost: no need to be nearer to its minimum


@dataclass(frozen=True, eq=False)
class Look:
    """The loss of a model, and its derivatives.

    Attributes
    ----------
    value : float
    slope : float or array
        The derivative of the loss in the intercept, or in that of each target.
    pull : array of shape (p,)
        Its gradient in the coefficients.
    own : float, array or None
        Newton's step of the intercepts alone; None where the loss is flat in them.
    mean, hessian : array
        By how much the best intercepts fall with each coefficient, which is the means of the columns under the curvatures, and the
        Hessian about them; without an intercept the means are zero.
    """

    value: float
    slope: Intercept
    pull: Vector
    own: Intercept | None
    mean: Vector
    hessian: Vector

    @classmethod
    def of(cls, value: float, slope: float, pull: Vector, weight: float, mean: Vector, hessian: Vector) -> Look:
        """Return that of one intercept, from the sum of the curvatures."""
        return cls(value, slope, pull, -slope / weight if weight > 0.0 else None, mean, hessian)


@dataclass(frozen=True, eq=False)
class Seen:
    """A model with what was seen of it.

    Attributes
    ----------
    x : array of shape (p,)
    b : float or array
    objective : float
    look : Look or None
    """

    x: Vector
    b: Intercept
    objective: float
    look: Look | None = None


@dataclass(frozen=True, eq=False)
class _Minimised:
    """The loss plus a ridge on the samples of a few features, with an intercept or without."""

    part: Any  # Samples
    loss: Loss
    lam: float
    intercept: bool

    def at(self, x: Vector, b: Intercept) -> Seen:
        """Look at a model."""
        look = self.part.look(self.loss, self.part.margins(x, b), self.intercept)
        return Seen(x, b, look.value + 0.5 * self.lam * float(x @ x), look)

    def gradient(self, seen: Seen) -> tuple[Vector, Intercept]:
        """Return the derivatives in the coefficients and in the intercept."""
        assert seen.look is not None
        return seen.look.pull + self.lam * seen.x, seen.look.slope if self.intercept else 0.0

    def direction(self, seen: Seen) -> Step | None:
        """Return Newton's step; None where rounding hides the Hessian, or the loss is flat in the intercept."""
        look, (g, slope) = seen.look, self.gradient(seen)
        assert look is not None
        if (self.intercept and look.own is None) or not np.all(np.isfinite(look.hessian)):
            return None
        H = look.hessian.copy()
        H[np.diag_indices(len(H))] += self.lam
        factorised = Definite(H)
        if factorised.hidden:
            return None
        dx = -factorised.solve(g - np.dot(slope, look.mean))
        return dx, look.own - np.dot(look.mean, dx) if self.intercept else 0.0

    def best_of(self, seen: Seen, step: Step, sizes: Vector, decrease: float) -> float | None:
        """Return the size with the least objective of those that gain a share of what they promise."""
        dx, db = step
        part = self.part
        losses = part.values_along(self.loss, part.margins(seen.x, seen.b), part.margins(dx, db), sizes)
        ridges = [0.5 * self.lam * float(np.square(seen.x + t * dx).sum()) for t in sizes.tolist()]
        values = np.where(np.isfinite(losses), losses, np.inf) + np.array(ridges)
        good = np.flatnonzero(values <= seen.objective - _ARMIJO * np.minimum(sizes, 1.0) * decrease)
        return float(sizes[good[np.argmin(values[good])]]) if good.size else None

    def descended(self, seen: Seen, step: Step, decrease: float, short: bool) -> tuple[Seen, bool] | None:
        """Look at the model of a whole step, or of a better size; return it, and whether it is a shorter one.

        After a `short` one sizes are compared before. None where no size gains.
        """
        whole = None if short else self.at(seen.x + step[0], seen.b + step[1])
        fall = -np.inf if whole is None else seen.objective - whole.objective
        size = 1.0
        if not fall >= _ARMIJO * decrease:
            sizes = (np.append(1.0, _SHORTER) if whole is None else _SHORTER), _SHORTEST
            size = next((best for some in sizes if (best := self.best_of(seen, step, some, decrease))), 0.0)
            if not size:
                return None
        elif fall > _FASTER * seen.objective:
            size = self.best_of(seen, step, _LONGER, decrease) or 1.0
        if whole is not None and size == 1.0:
            return whole, False
        other = self.at(seen.x + size * step[0], seen.b + size * step[1])
        better = other if whole is None or size < 1.0 or other.objective < whole.objective else whole
        return better, size < 1.0


def newton_minimum(
    part: Any,
    loss: Loss,
    lam: float,
    intercept: bool,
    start: Step,
    rtol: float,
    valued: bool = True,
) -> tuple[Seen, bool]:
    """Minimise a loss without kinks; return the model, and whether it is the best one but for `rtol` and rounding.

    The last step is taken without a look at it unless its objective is wanted: `valued`.
    """
    problem = _Minimised(part, loss, lam, intercept)
    seen = problem.at(*start)
    if not np.isfinite(seen.objective):
        seen = problem.at(np.zeros_like(start[0]), start[1])
    short = False
    for _ in range(_MOST_STEPS):
        step = problem.direction(seen)
        if step is None:
            return seen, False
        g, slope = problem.gradient(seen)
        decrease = -float(g @ step[0]) - float(np.dot(slope, step[1]))
        if not decrease > max(rtol, _EXACT) * abs(seen.objective):
            if not decrease > 0.0:
                return seen, True
            x, b = seen.x + step[0], seen.b + step[1]
            last = _valued(part, loss, lam, x, b) if valued else replace(seen, x=x, b=b)
            return min(last, seen, key=lambda seen: seen.objective), True
        if decrease <= _HIDDEN * abs(seen.objective):
            new = problem.at(seen.x + step[0], seen.b + step[1])
            if not np.linalg.norm(np.append(*problem.gradient(new))) < 0.5 * np.linalg.norm(np.append(g, slope)):
                return seen, True
            seen = new
            continue
        taken = problem.descended(seen, step, decrease, short)
        if taken is None:
            return seen, False
        new, short = taken
        if not new.objective < seen.objective:
            return seen, True
        seen = new
    return seen, False


class Smooth(NamedTuple):
    """A loss in the place of one with kinks.

    Attributes
    ----------
    loss : Loss
    cost : float
        By how much its least objective may be off.
    """

    loss: Loss
    cost: float


def smoothed_minimum(
    part: Any,
    loss: Loss,
    smooth: Sequence[Smooth],
    lam: float,
    intercept: bool,
    start: Step,
    rtol: float,
) -> tuple[Seen, bool]:
    """Minimise a loss of straight pieces near its kinks, from the start and, where that is too far, from smooth losses' models."""
    enough = max(rtol, _ENOUGH)
    best, done = part.near_kinks(loss.pieces, lam, intercept, start, enough)
    for near, cost in smooth:
        if done:
            break
        near_enough = max(rtol, _SHARE * cost / abs(best.objective))
        seen, _ = newton_minimum(part, near, lam, intercept, start, near_enough, valued=False)
        start = seen.x, seen.b
        found, done = part.near_kinks(loss.pieces, lam, intercept, start, enough)
        best = min(best, found, key=lambda seen: seen.objective)
    return best, done


def _valued(part: Any, loss: Loss, lam: float, x: Vector, b: Intercept) -> Seen:
    return Seen(x, b, part.value(loss, part.margins(x, b)) + 0.5 * lam * float(x @ x))

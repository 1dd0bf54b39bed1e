"""Features that have costs, and a budget for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diht.constraints.base import Constraint, Decided
from diht.design.base import UNIT
from diht.numerics.arrays import Indices, Vector

__all__ = ["Budget", "within_budget"]

_WITHIN = 1.0 + 1e-12  # what a sum of costs may be of the budget, for its rounding


@dataclass(frozen=True, eq=False)
class Budget(Decided):
    r"""Features whose costs add up to at most `budget`; those `inside` are paid for, none is `outside`.

    The largest sum of squares within a budget is a knapsack problem, which is hard. Its relaxation, in which one feature may be
    bought in part,

    .. math:: \nu(v)^2 = \max \sum_j z_j v_j^2 \quad \text{over} \quad 0 \le z \le 1, \; \sum_j c_j z_j \le B ,

    is a sum over the features in the order of :math:`v_j^2 / c_j`, and never less: a bound that is computed with it holds. Its root
    is a norm. `select` is a support that can be paid for, greedy in the same order.

    Attributes
    ----------
    budget : float
    costs : array of shape (d,)
        Positive.
    """

    budget: float
    costs: Vector

    level_name = "budget"

    def __str__(self) -> str:
        """What it asks for."""
        return f"features that cost at most {self.budget:g}"

    def check(self, n_features: int) -> None:
        """Raise ValueError where the costs are not those of the features, or no feature can be paid for."""
        if len(self.costs) != n_features:
            raise ValueError(f"costs must hold one for each of the {n_features} features, got {len(self.costs)}")
        if not float(self.costs.min(initial=np.inf)) <= self.budget * _WITHIN:
            raise ValueError(
                f"budget must pay for one feature, got {self.budget:g} and costs from {self.costs.min():g}"
            )

    @property
    def _left(self) -> float:
        """What is left of the budget."""
        return float(self.budget * _WITHIN - self.costs[self.inside].sum())

    def _free(self) -> NDArray[np.bool_]:
        """The features that are undecided, and can still be paid for."""
        free = self.costs <= self._left
        free[self.inside] = free[self.outside] = False
        return free

    @property
    def size(self) -> int:
        """The largest number of features that a model may have."""
        paid = np.cumsum(np.sort(self.costs[self._free()])) <= self._left
        return len(self.inside) + int(np.count_nonzero(paid))

    def allows(self, w: Vector) -> bool:
        """Whether the support of w and the features inside can be paid for."""
        used = np.union1d(np.flatnonzero(w), self.inside).astype(np.int64)
        paid = float(self.costs[used].sum()) <= self.budget * _WITHIN
        return paid and not np.any(np.isin(used, self.outside))

    def _order(self, squares: Vector) -> Indices:
        """The undecided features by what a unit of their cost buys, the most first."""
        free = np.flatnonzero(self._free())
        return free[np.argsort(-squares[free] / self.costs[free], kind="stable")]

    def select(self, v: Vector) -> Indices:
        """The features inside, and the others in that order as long as they can be paid for."""
        left, chosen = self._left, self.inside.tolist()
        order = self._order(np.square(v))
        for j, cost in zip(order.tolist(), self.costs[order].tolist(), strict=True):
            if cost <= left:
                chosen.append(j)
                left -= cost
        return np.sort(np.array(chosen, dtype=np.int64))

    def _bought(self, squares: Vector) -> tuple[Indices, Vector, Vector]:
        """The undecided features in their order, and what the first of them cost and are worth together."""
        order = self._order(squares)
        return order, np.append(0.0, np.cumsum(self.costs[order])), np.append(0.0, np.cumsum(squares[order]))

    def value(self, v: Vector) -> float:
        """What the budget buys: at least the squared norm of any projection."""
        return self.largest_sum(np.square(v))

    def largest_sum(self, squares: Vector) -> float:
        """What the budget buys, one feature in part; rounded up."""
        _, costs, worth = self._bought(squares)
        held = float(squares[self.inside].sum())
        bought = float(np.interp(max(self._left, 0.0), costs, worth))
        return (held + bought) * (1.0 + 4.0 * len(squares) * UNIT)

    def joining(self, support: Indices, n_features: int) -> Indices:
        """Those that can be paid for besides."""
        used = np.union1d(support, self.inside).astype(np.int64)
        room = self._free() & (self.costs <= self.budget * _WITHIN - self.costs[used].sum())
        room[used] = False
        return np.flatnonzero(room)

    def free(self, n_features: int) -> tuple[int, Indices, Indices]:
        """How many may still be in at most, which are, and which are out: those that cannot be paid for among them."""
        out = ~self._free()
        out[self.inside] = False
        m = -1 if self._left < 0.0 else self.size - len(self.inside)
        return m, self.inside, np.flatnonzero(out)

    def allowing(self, m: Any) -> Constraint:
        """Another budget."""
        return replace(self, budget=float(m))

    def level(self, n_features: int) -> float:
        """The budget."""
        return self.budget

    @property
    def least_level(self) -> float:
        """The cost of the cheapest feature."""
        return float(self.costs.min())

    def stated(self) -> dict[str, Any]:
        """The costs."""
        return {"kind": "budget", "costs": self.costs.tolist()}

    def within(self, features: Indices) -> Constraint:
        """The costs of some features, by the features' new numbers."""
        inside, outside = np.searchsorted(features, self.inside), np.flatnonzero(np.isin(features, self.outside))
        return replace(self, costs=self.costs[features], inside=inside, outside=outside)

    def forcing(self, v: Vector) -> tuple[Vector, Vector]:
        """By how much the relaxation falls: without j what follows is bought, with it the budget is smaller by its cost.

        These are differences of sums, less what rounding can have added to them.
        """
        order, costs, worth = self._bought(np.square(v))
        left, own, square = max(self._left, 0.0), self.costs[order], np.square(v[order])
        now = float(np.interp(left, costs, worth))
        reached = costs[:-1] < left
        drop, add = np.zeros(len(v)), np.full(len(v), np.inf)
        drop[order] = np.where(reached, now - (np.interp(left + own, costs, worth) - square), 0.0)
        bought = np.interp(np.maximum(left - own, 0.0), costs, worth) + square
        add[order] = np.where(left - own <= costs[:-1], now - bought, 0.0)
        lost = 8.0 * len(v) * UNIT * now
        drop, add = np.maximum(drop - lost, 0.0), np.maximum(add - lost, 0.0)
        drop[self.inside], add[self.inside] = np.inf, 0.0
        return drop, add

    # The relaxation: half of the minimum of sum_j w_j^2 / z_j over the same z

    def _places(self, magnitudes: Vector, free: Indices, r: float) -> Vector:
        """Return z_j = clip(t a_j - r, 0, 1), a_j = magnitude / root of cost, whose costs add up to what is left."""
        a, cost, left = magnitudes[free] / np.sqrt(self.costs[free]), self.costs[free], max(self._left, 0.0)
        z = np.zeros(len(magnitudes))
        z[self.inside] = 1.0
        used = a > 0.0
        if float(cost[used].sum()) <= left:
            z[free[used]] = 1.0
            return z
        a, cost, free = a[used], cost[used], free[used]
        ends = np.unique(np.concatenate([r / a, (1.0 + r) / a]))
        z[free] = np.clip(np.interp(left, self._paid(ends, a, cost, r), ends) * a - r, 0.0, 1.0)
        return z

    @staticmethod
    def _paid(ends: Vector, a: Vector, cost: Vector, r: float) -> Vector:
        """The costs of all places at some t, from sums over what begins and what ends before it."""
        begin, end = np.argsort(r / a, kind="stable"), np.argsort((1.0 + r) / a, kind="stable")
        slopes = np.append(0.0, np.cumsum((a * cost)[begin])), np.append(0.0, np.cumsum((a * cost)[end]))
        totals = np.append(0.0, np.cumsum(cost[begin])), np.append(0.0, np.cumsum(cost[end]))
        i, j = np.searchsorted((r / a)[begin], ends), np.searchsorted(((1.0 + r) / a)[end], ends)
        return np.asarray(ends * (slopes[0][i] - slopes[1][j]) - r * (totals[0][i] - totals[1][j]) + totals[1][j])

    def relaxation(self, w: Vector) -> float:
        """Half of the least sum of w_j^2 / z_j."""
        z, used = self.places(w), w != 0.0
        return 0.5 * float(np.sum(np.square(w[used]) / z[used])) if np.all(z[used] > 0.0) else np.inf

    def places(self, w: Vector) -> Vector:
        """How much of each feature is bought."""
        return self._places(np.abs(w), np.flatnonzero(self._free()), 0.0)

    def prox(self, q: Vector, r: float) -> Vector:
        """Proximal map of r times the relaxation: z_j q_j / (z_j + r)."""
        z = self._places(np.abs(q), np.flatnonzero(self._free()), r)
        return np.asarray(q * z / (z + r))


def within_budget(budget: float, costs: ArrayLike) -> Budget:
    """Features whose costs add up to at most a budget, in place of a number of features.

    Parameters
    ----------
    budget : float
        What the features of a model may cost together, positive.
    costs : array of shape (n_features,)
        What each feature costs, positive.

    Returns
    -------
    Budget
        For the parameter `k` of `SparseRegressor`, `SparseClassifier` and `Problem`.

    Examples
    --------
    >>> from diht import within_budget
    >>> print(within_budget(10.0, [1.0, 1.0, 8.0, 9.5]))
    features that cost at most 10
    """
    prices = np.asarray(costs, dtype=np.float64)
    if prices.ndim != 1 or not np.all((prices > 0.0) & (prices < np.inf)):
        raise ValueError(f"costs must be positive numbers, one for each feature, got {costs!r}")
    if not 0.0 < float(budget) < np.inf:
        raise ValueError(f"budget must be positive and finite, got {budget!r}")
    return Budget(float(budget), prices)

"""Interactions only with their main effects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import Any, Literal

import numpy as np

from diht.constraints.base import NONE, Cardinality, Constraint, Decided, threshold_scale
from diht.constraints.lineage import Lineage, read_parents
from diht.design.base import SMALLEST, UNIT
from diht.numerics.arrays import Indices, Mask, Vector

__all__ = ["Heredity", "heredity"]

_SWEEPS = 1000  # at most; 11 to 97 end it for 10 to 30 main effects and all their products
_EVEN = 1e-9  # of the largest square: what the last sweep may move
_PRICES = 10  # pairs of prices that are tried where one parent will do


@dataclass(frozen=True, eq=False)
class Heredity(Decided):
    r"""At most `k` terms are chosen, each of them with all of its parents (strong), or one (weak); coefficients of others are zero.

    A support T is allowed if some hereditary set S of at most k terms holds it: a parent counts, whatever its coefficient is. This
    family is closed under subsets. Its largest sum of squares is hard to find. With any amounts :math:`y \ge 0` that children pass
    on to their parents, :math:`u_j = v_j^2 - \text{passed on} + \text{received}`, every hereditary set has

    .. math:: \sum_{j \in S} v_j^2 \le \sum_{j \in S} u_j \le \text{the sum of the } k \text{ largest } u_j ,

    because a child of S has its parent there, which has what the child passed on. Where all parents are asked for, the least such
    sum is that of the isotonic regression u of the squares, for every k, and is the value of the linear program with
    :math:`0 \le z_{child} \le z_{parent} \le 1` and :math:`\sum z \le k`. Where one parent will do, a child passes on the same
    amount to each.

    Attributes
    ----------
    k : int
        How many terms may be chosen.
    lineage : Lineage
        Of all terms.
    term : array of shape (d,)
        The term of each column; others have no column, and count where they are parents.
    inside, outside : arrays of int
        Terms that are chosen, and those whose coefficients are zero; a term may be both.
    """

    k: int
    lineage: Lineage
    term: Indices

    def __str__(self) -> str:
        """What it asks for."""
        return f"at most {self.k} features, each with {'all' if self.lineage.strong else 'one'} of its parents"

    def check(self, n_features: int) -> None:
        """Raise ValueError where the lineage is not that of the features."""
        if len(self.term) != n_features:
            raise ValueError(f"parents must hold a list for each of the {n_features} features, got {len(self.term)}")

    # What is decided

    def _mask(self, terms: Indices) -> Mask:
        mask = np.zeros(self.lineage.size, dtype=bool)
        mask[terms] = True
        return mask

    @cached_property
    def _chosen(self) -> Mask:
        """The terms that are chosen for sure."""
        return self._mask(self.inside)

    @cached_property
    def _m(self) -> int:
        """How many more may be; -1 where those that are cannot all be."""
        feasible = self.lineage.completed(self._chosen, self.k) is not None
        return self.k - len(self.inside) if feasible else -1

    @cached_property
    def _usable(self) -> Mask:
        """The terms whose coefficients may differ from zero."""
        usable = self._mask(self.term)
        usable[self.outside] = False
        usable &= self.lineage.with_least(~self._chosen) <= max(self._m, 0)
        if not self.lineage.strong and not np.all(self.lineage.holds(self._chosen)[self.inside]):
            for j in np.flatnonzero(usable & ~self._chosen).tolist():
                usable[j] = self.lineage.completed(self._mask(np.append(self.inside, j)), self.k) is not None
        return usable

    @cached_property
    def _rows(self) -> tuple[Indices, Indices]:
        """Children and the parents that they may still need."""
        child, parent = self.lineage.pairs
        some = ~self._chosen[parent] if self.lineage.strong else ~self.lineage.holds(self._chosen)[child]
        return child[some], parent[some]

    def restricted(self, inside: Indices, outside: Indices) -> Constraint:
        """Decide more features; where all parents are asked for those of features inside are, too."""
        chosen, out = self._chosen.copy(), np.union1d(self.outside, self.term[outside]).astype(np.int64)
        chosen[self.term[inside]] = True
        if self.lineage.strong:
            chosen = np.asarray(self.lineage.needed.T @ chosen.astype(np.float64) > 0.0)
        return replace(self, inside=np.flatnonzero(chosen), outside=out)

    def within(self, features: Indices) -> Constraint:
        """Fewer columns; the terms stay."""
        return replace(self, term=self.term[features])

    def free(self, n_features: int) -> tuple[int, Indices, Indices]:
        """How many terms may still be chosen, the columns of those that are, and the columns that are zero."""
        usable, chosen = self._usable[self.term], self._chosen[self.term]
        return self._m, np.flatnonzero(chosen & usable), np.flatnonzero(~usable)

    @property
    def size(self) -> int:
        """The largest number of features that a model may have."""
        m, inside, outside = self.free(len(self.term))
        return min(len(inside) + max(m, 0), len(self.term) - len(outside))

    def allows(self, w: Vector) -> bool:
        """Whether the support of w and the terms inside are in a hereditary set of at most k, and none of w is outside."""
        used = self._mask(self.term[np.flatnonzero(w)])
        return not used[self.outside].any() and self.lineage.completed(used | self._chosen, self.k) is not None

    def joining(self, support: Indices, n_features: int) -> Indices:
        """Those that fit in with what they need."""
        lineage, used = self.lineage, self._chosen | self._mask(self.term[support])
        closed = lineage.completed(used, self.k) if lineage.strong else used
        if closed is None:
            return NONE
        may = self._usable & ~used & (lineage.with_least(~closed) <= self.k - np.count_nonzero(closed))
        if not np.all(lineage.holds(closed)[closed]):  # one parent will do, and some have none yet
            for j in np.flatnonzero(self._usable & ~used).tolist():
                closed[j] = True
                may[j] = lineage.completed(closed, self.k) is not None
                closed[j] = False
        return np.flatnonzero(may[self.term])

    def remaining(self, support: Indices, leaving: Indices) -> Indices:
        """All but these and those that lose the parents they need."""
        lineage, left, gone = (
            self.lineage,
            self._chosen | self._mask(self.term[support]),
            self._mask(self.term[leaving]),
        )
        if lineage.strong:
            return np.asarray(support[(lineage.needed @ gone)[self.term[support]] == 0.0])
        found, left = lineage.holds(left), left & ~gone
        while np.any(lost := left & found & ~lineage.holds(left)):
            left[lost] = False
        return support[left[self.term[support]]]

    def allowing(self, m: Any) -> Constraint:
        """Another k."""
        return replace(self, k=m + len(self.inside))

    def stated(self) -> dict[str, Any]:
        """The parents of each column, and of terms without one."""
        lineage = self.lineage.among(self.term)
        parents = [list(own) for own in lineage.parents]
        return {"kind": "heredity", "strong": lineage.strong, "parents": parents, "columns": len(self.term)}

    # Sums of squares

    def _worth(self, squares: Vector) -> Vector:
        """The squares of the terms; zero where a coefficient is."""
        worth = np.zeros(self.lineage.size)
        worth[self.term] = squares
        return np.where(self._usable, worth, 0.0)

    def select(self, v: Vector) -> Indices:
        """A hereditary set, greedy: again and again the term that is worth most with what it needs, for each place that takes."""
        lineage, worth = self.lineage, self._worth(np.square(v))
        chosen = lineage.completed(self._chosen, self.k)
        if chosen is None:
            return self.free(len(v))[1]
        while True:
            total, places, first = lineage.packs(worth, chosen)
            fits = self._usable & ~chosen & (places <= self.k - np.count_nonzero(chosen))
            if not fits.any():
                break
            each = np.divide(total, places, out=np.full(len(total), -1.0), where=fits)
            chosen = lineage.with_needed(int(np.argmax(each)), chosen, first)
        support = np.flatnonzero((chosen & self._usable)[self.term])
        while len(more := self.joining(support, len(v))):  # fewer parents without columns may do
            support = np.union1d(support, more[np.argmax(np.abs(v[more]))])
        return support

    def value(self, v: Vector) -> float:
        """At least the squared norm of any projection."""
        return self.largest_sum(np.square(v))

    def largest_sum(self, squares: Vector) -> float:
        """The sum of the largest u, rounded up."""
        level, lost = self._levels(self._worth(squares))
        return self._sum(level) + lost

    def _sum(self, level: Vector) -> float:
        """What is inside, and the m largest of the rest."""
        rest = np.maximum(level[~self._chosen], 0.0)
        most = min(max(self._m, 0), len(rest))
        largest = float(np.partition(rest, len(rest) - most)[len(rest) - most :].sum()) if most else 0.0
        return float(level[self._chosen].sum()) + largest

    def _levels(self, worth: Vector) -> tuple[Vector, float]:
        """Return u for some amounts passed on, and what rounding can have taken off sums of it."""
        gone, come = np.zeros_like(worth), np.zeros_like(worth)
        if len(self._rows[0]):
            gone, come = self._isotonic(worth) if self.lineage.strong else self._filled(worth)
        moved = float(worth.sum() + gone.sum() + come.sum())
        return worth - gone + come, 4.0 * (len(worth) + 8.0) * (UNIT * moved + SMALLEST * (moved > 0.0))

    def _isotonic(self, worth: Vector) -> tuple[Vector, Vector]:
        """Return what each term passes on and receives where all parents are asked for."""
        from diht.constraints.kernels import level_parents

        child, parent = self._rows
        passed = level_parents(worth, child, parent, _SWEEPS, _EVEN * float(worth.max()))
        gone, come = (np.bincount(terms, passed, minlength=len(worth)).astype(np.float64) for terms in (child, parent))
        return gone, come

    def _filled(self, worth: Vector) -> tuple[Vector, Vector]:
        """Return the same where one parent will do: for the price of a place that leaves the least sum, by golden sections."""
        from diht.constraints.kernels import fill_parents

        child, parent = self._rows
        start = np.flatnonzero(np.append(True, child[1:] != child[:-1]))
        own, ends = child[start], np.append(start, len(child))
        order, above = np.argsort(worth[own], kind="stable"), worth.copy()
        above[self._chosen] = np.inf  # whatever the price is, these have more

        def passing(price: float) -> tuple[float, Vector]:
            level = above.copy()
            passed = fill_parents(level, price, order, own, ends, parent)
            level[self._chosen] = worth[self._chosen] - np.bincount(own, passed, minlength=len(worth))[self._chosen]
            return self._sum(level), passed

        low, high, best = 0.0, float(worth.max()), (self._sum(worth), np.zeros(len(own)))
        for _ in range(_PRICES):
            third = (high - low) / 3.0
            left, right = passing(low + third), passing(high - third)
            best = min(best, left, right, key=itemgetter(0))
            low, high = (low, high - third) if left[0] <= right[0] else (low + third, high)
        passed = best[1]
        gone = np.bincount(own, passed, minlength=len(worth)).astype(np.float64)
        return gone, np.bincount(parent, np.repeat(passed, np.diff(ends)), minlength=len(worth)).astype(np.float64)

    def forcing(self, v: Vector) -> tuple[Vector, Vector]:
        """By how much the sum of the largest u falls: without j by its square, with j by what that and those it needs lack.

        With t the m-th largest u and s the next, m s + sum (u - s)_+ and m t + sum (u - t)_+ are that sum. These are
        differences, less what rounding can have added to them.
        """
        worth = self._worth(np.square(v))
        level, lost = self._levels(worth)
        rest, m = np.where(self._chosen, 0.0, np.maximum(level, 0.0)), max(self._m, 0)
        order = np.append(np.sort(rest)[::-1], np.zeros(m + 1))
        last, following = order[max(m - 1, 0)], order[m]
        drop = np.where(self._chosen, worth, np.minimum(worth, np.maximum(rest - following, 0.0)))
        short = np.where(self._chosen, 0.0, np.maximum(last - rest, 0.0))
        add = np.where(self._usable, self.lineage.with_least(short), np.inf)
        drop, add = np.maximum(drop - 2.0 * lost, 0.0), np.maximum(add - 2.0 * lost, 0.0)
        return drop[self.term], add[self.term]

    # The relaxation: half of the minimum of sum_j w_j^2 / z_j over z_child <= z_parent, sum z <= k

    def _places(self, w: Vector, r: float) -> Vector:
        """The places of the columns; where one parent will do, by the number of features alone."""
        worth = self._worth(np.square(w))
        level = self._levels(worth)[0] if self.lineage.strong else worth
        sizes = np.sqrt(np.where(self._chosen, 0.0, level))
        theta = threshold_scale(sizes[sizes > 0.0], max(self._m, 0), r, 0.0)
        z = np.clip(sizes / theta - r, 0.0, 1.0) if theta > 0.0 else (sizes > 0.0).astype(np.float64)
        return np.where(self._chosen, 1.0, z)[self.term]

    def places(self, w: Vector) -> Vector:
        """How much of a place each feature takes."""
        return self._places(w, 0.0)

    def relaxation(self, w: Vector) -> float:
        """Half of the least sum of w_j^2 / z_j."""
        z, used = self.places(w), w != 0.0
        return 0.5 * float(np.sum(np.square(w[used]) / z[used])) if np.all(z[used] > 0.0) else np.inf

    def prox(self, q: Vector, r: float) -> Vector:
        """Proximal map of r times the relaxation: z_j q_j / (z_j + r)."""
        q = np.where(self._usable[self.term], q, 0.0)
        z = self._places(q, r)
        return np.asarray(q * z / (z + r))


def heredity(k: int, parents: Any, kind: Literal["strong", "weak"] = "strong") -> Heredity:
    """At most k features, an interaction only with its main effects.

    Parameters
    ----------
    k : int
        How many features are chosen. A parent of a chosen feature counts, also where its coefficient is zero.
    parents : sequence of lists of int, one for each feature
        The places of the columns that a feature is made of, none for a main effect; `diht.parents_of` finds those of products.
    kind : {"strong", "weak"}
        Whether all parents of a chosen feature must be chosen, or one of them.

    Returns
    -------
    Heredity
        For the parameter `k` of `SparseRegressor`, `SparseClassifier` and `Problem`.

    Examples
    --------
    >>> from diht import heredity
    >>> print(heredity(5, [[], [], [], [0, 1], [0, 2], [1, 2]]))
    at most 5 features, each with all of its parents
    """
    if kind not in ("strong", "weak"):
        raise ValueError(f'kind must be "strong" or "weak", got {kind!r}')
    lineage = Lineage(read_parents(parents), kind == "strong")
    lineage.check()
    return Heredity(Cardinality(k).k, lineage, np.arange(lineage.size))

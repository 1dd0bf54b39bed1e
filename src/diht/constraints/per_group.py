"""At most so many features of each group, and k in all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diht.constraints.base import NONE, Cardinality, Constraint, Decided
from diht.constraints.groups import units_of_labels
from diht.numerics.arrays import Indices, Vector

__all__ = ["PerGroup", "per_group"]


@dataclass(frozen=True, eq=False)
class PerGroup(Decided):
    r"""At most `k` features, and of each group at most as many as `most` says; places are kept for those `inside`.

    Such supports are the independent sets of a matroid: the largest sum of squares is that of the features taken in the order of
    their magnitudes, each if it still fits, and where one must leave or join, the best exchange is with a single other one.

    Attributes
    ----------
    k : int
        Of all groups together, those inside among them.
    group : array of shape (d,)
        The group of each feature, from 0.
    most : array of shape (number of groups,)
        How many of each group a model may use.
    """

    k: int
    group: Indices
    most: Indices

    def __str__(self) -> str:
        """What it asks for."""
        return f"at most {self.k} features and {int(self.most.max(initial=0))} of each group"

    def check(self, n_features: int) -> None:
        """Raise ValueError where the groups are not those of the features."""
        if len(self.group) != n_features:
            raise ValueError(f"groups must hold a label for each of the {n_features} features, got {len(self.group)}")

    def _used(self, features: Indices) -> Indices:
        """How many of some features each group has."""
        return np.bincount(self.group[features], minlength=len(self.most)).astype(np.int64)

    def _free(self) -> NDArray[np.bool_]:
        """The features that are undecided."""
        free = np.ones(len(self.group), dtype=bool)
        free[self.inside] = free[self.outside] = False
        return free

    @property
    def size(self) -> int:
        """The largest number of features that a model may have."""
        sizes = self._used(np.setdiff1d(np.arange(len(self.group)), self.outside))
        return int(min(self.k, np.minimum(sizes, self.most).sum()))

    def allows(self, w: Vector) -> bool:
        """Whether the support of w and the features inside are few enough, in all and of each group."""
        used = np.union1d(np.flatnonzero(w), self.inside).astype(np.int64)
        few = len(used) <= self.k and bool(np.all(self._used(used) <= self.most))
        return few and not np.any(np.isin(used, self.outside))

    def select(self, v: Vector) -> Indices:
        """The features inside, and the largest of the others as long as they fit."""
        free = np.flatnonzero(self._free())
        order = free[np.argsort(-np.abs(v[free]), kind="stable")]
        group = self.group[order]
        by_group = np.argsort(group, kind="stable")
        sizes = np.bincount(group, minlength=len(self.most))
        rank = np.empty(len(order), dtype=np.int64)
        rank[by_group] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        room = self.most - self._used(self.inside)
        fits = order[rank < room[group]][: max(self.k - len(self.inside), 0)]
        return np.sort(np.append(self.inside, fits))

    def joining(self, support: Indices, n_features: int) -> Indices:
        """Those whose group has room, as long as there is room in all."""
        used = np.union1d(support, self.inside).astype(np.int64)
        room = self._free() & (self._used(used) < self.most)[self.group]
        room[used] = False
        return NONE if len(used) >= self.k else np.flatnonzero(room)

    def free(self, n_features: int) -> tuple[int, Indices, Indices]:
        """How many may still be in, which are, and which are out: those of full groups among them."""
        used = self._used(self.inside)
        full = (used >= self.most)[self.group]
        full[self.inside] = False
        m = -1 if np.any(used > self.most) else self.k - len(self.inside)
        return m, self.inside, np.union1d(self.outside, np.flatnonzero(full)).astype(np.int64)

    def allowing(self, m: Any) -> Constraint:
        """Another k."""
        return replace(self, k=m + len(self.inside))

    def stated(self) -> dict[str, Any]:
        """The groups and their limits."""
        return {"kind": "per_group", "group": self.group.tolist(), "most": self.most.tolist()}

    def within(self, features: Indices) -> Constraint:
        """The groups of some features, by the features' new numbers."""
        inside, outside = np.searchsorted(features, self.inside), np.flatnonzero(np.isin(features, self.outside))
        return replace(self, group=self.group[features], inside=inside, outside=outside)

    def forcing(self, v: Vector) -> tuple[Vector, Vector]:
        """Where j leaves, the largest that then fits takes its place; where it joins, the least that it has no room beside goes."""
        squares, free, d = np.square(v), self._free(), len(v)
        chosen = np.zeros(d, dtype=bool)
        chosen[self.select(v)] = True
        full = (self._used(np.flatnonzero(chosen)) >= self.most)[self.group]
        others, members = free & ~chosen, free & chosen
        best, least = np.zeros(len(self.most)), np.full(len(self.most), np.inf)
        np.maximum.at(best, self.group[others], squares[others])
        np.minimum.at(least, self.group[members], squares[members])
        anywhere = float(squares[others & ~full].max(initial=0.0))
        last = float(squares[members].min(initial=np.inf)) if np.count_nonzero(chosen) >= self.k else 0.0
        drop, add = np.zeros(d), np.zeros(d)
        drop[members] = squares[members] - np.maximum(best[self.group[members]], anywhere)
        goes = np.where(full, least[self.group], last)
        add[others] = np.maximum(goes[others] - squares[others], 0.0)
        drop[self.inside] = add[self.outside] = np.inf
        return drop, add


def per_group(k: int, groups: ArrayLike, most: int | ArrayLike = 1) -> PerGroup:
    """At most k features, and of each group at most so many.

    Parameters
    ----------
    k : int
        How many features a model may use in all.
    groups : array of shape (n_features,)
        A label for each feature.
    most : int, or array of int, one for each group in the order of the sorted labels
        How many features of a group a model may use.

    Returns
    -------
    PerGroup
        For the parameter `k` of `SparseRegressor`, `SparseClassifier` and `Problem`.

    Examples
    --------
    >>> from diht import per_group
    >>> print(per_group(5, ["lab", "lab", "lab", "age", "age"], most=2))
    at most 5 features and 2 of each group
    """
    group = units_of_labels(groups, len(np.atleast_1d(np.asarray(groups, dtype=object))))
    n_groups = int(group.max(initial=-1)) + 1
    limits = np.asarray(most)
    if limits.dtype.kind not in "iu" or limits.shape not in ((), (n_groups,)) or np.any(limits < 0):
        raise ValueError(f"most must be a whole number, or one for each of the {n_groups} groups, got {most!r}")
    return PerGroup(Cardinality(k).k, group, np.broadcast_to(limits, (n_groups,)).astype(np.int64))

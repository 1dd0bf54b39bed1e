"""Which features are made of which: an interaction has its main effects for parents."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from diht.numerics.arrays import Indices, Mask, Vector

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Lineage", "parents_of"]


@dataclass(frozen=True, eq=False)
class Lineage:
    """Terms and their parents. A set of terms is hereditary if each of them has all of its parents there, or one of them.

    Attributes
    ----------
    parents : tuple of tuples of int
        Those of each term; no term is among its own ancestors.
    strong : bool
        Whether all parents are asked for, or any one.
    """

    parents: tuple[tuple[int, ...], ...]
    strong: bool

    @property
    def size(self) -> int:
        """The number of terms."""
        return len(self.parents)

    @cached_property
    def generations(self) -> list[Indices]:
        """The terms without parents, those whose parents are all among them, and so on; where there is a circle not all terms."""
        found: list[Indices] = []
        known = np.zeros(self.size, dtype=bool)
        while True:
            new = np.array([not known[j] and all(known[list(p)]) for j, p in enumerate(self.parents)], dtype=bool)
            if not new.any():
                return found
            found.append(np.flatnonzero(new))
            known |= new

    @cached_property
    def pairs(self) -> tuple[Indices, Indices]:
        """All children and parents of theirs, later generations first: what a child passes on its parents pass on in turn."""
        each = [(j, p) for generation in self.generations[:0:-1] for j in generation.tolist() for p in self.parents[j]]
        child, parent = np.array(each, dtype=np.int64).reshape(-1, 2).T
        return np.ascontiguousarray(child), np.ascontiguousarray(parent)

    @cached_property
    def needed(self) -> csr_array:
        """A row for each term: itself, and all its ancestors."""
        from scipy.sparse import csr_array

        above: list[set[int]] = [set() for _ in self.parents]
        for generation in self.generations:
            for j in generation.tolist():
                above[j] = {j}.union(*(above[p] for p in self.parents[j]))
        ends = np.append(0, np.cumsum([len(terms) for terms in above]))
        columns = np.array([i for terms in above for i in sorted(terms)], dtype=np.int64)
        return csr_array((np.ones(len(columns)), columns, ends), shape=(self.size, self.size))

    @cached_property
    def _padded(self) -> Indices:
        """The parents of each term in a row, -1 where there are no more."""
        padded = np.full((self.size, max(map(len, self.parents), default=0)), -1, dtype=np.int64)
        for j, parents in enumerate(self.parents):
            padded[j, : len(parents)] = parents
        return padded

    def holds(self, chosen: Mask) -> Mask:
        """Whether each term would find the parents it needs, one or all, in a set; those without parents need none."""
        there = np.append(chosen, self.strong)[self._padded]
        if not self._padded.shape[1]:
            return np.ones(self.size, dtype=bool)
        return np.asarray(there.all(axis=1) if self.strong else there.any(axis=1) | (self._padded[:, 0] < 0))

    def completed(self, chosen: Mask, most: int) -> Mask | None:
        """A hereditary set of at most so many terms that holds some; None if there is none.

        Where all parents are asked for it is the smallest. Where one is, terms that lack one are given each of theirs in turn;
        at least as many are missing as terms that lack one have no parent in common.
        """
        if self.strong:
            closed = np.asarray(self.needed.T @ chosen.astype(np.float64) > 0.0)
            return closed if np.count_nonzero(closed) <= most else None
        lacking, room = np.flatnonzero(chosen & ~self.holds(chosen)), most - np.count_nonzero(chosen)
        if not len(lacking):
            return chosen if room >= 0 else None
        seen: set[int] = set()
        for j in lacking.tolist():
            if seen.isdisjoint(self.parents[j]):
                room -= 1
                seen.update(self.parents[j])
        if room < 0:
            return None
        for p in min((self.parents[j] for j in lacking.tolist()), key=len):
            more = chosen.copy()
            more[p] = True
            found = self.completed(more, most)
            if found is not None:
                return found
        return None

    def packs(self, worth: Vector, chosen: Mask) -> tuple[Vector, Vector, Indices]:
        """What each term adds to a hereditary set together with what it needs: worth, number, and a parent to take.

        That is for where one will do: one of the set, or the one that is worth most.
        """
        worth, places = np.where(chosen, 0.0, worth), (~chosen).astype(np.float64)
        first = np.full(self.size, -1, dtype=np.int64)
        if self.strong:
            return self.needed @ worth, self.needed @ places, first
        score = np.append(np.where(chosen, np.inf, worth), -np.inf)
        for generation in self.generations[1:]:
            own = self._padded[generation]
            best = own[np.arange(len(own)), np.argmax(score[own], axis=1)]
            first[generation] = best
            worth[generation] += worth[best]
            places[generation] += places[best]
        return worth, places, first

    def with_needed(self, j: int, chosen: Mask, first: Indices) -> Mask:
        """A hereditary set with one more term and what that needs."""
        chosen = chosen.copy()
        if self.strong:
            chosen[self.needed.indices[self.needed.indptr[j] : self.needed.indptr[j + 1]]] = True
        while not chosen[j]:
            chosen[j] = True
            j = int(first[j]) if first[j] >= 0 else j
        return chosen

    def with_least(self, costs: ArrayLike) -> Vector:
        """The costs of each term and what it needs; where one parent will do, of the cheapest."""
        total = np.array(costs, dtype=np.float64)
        if self.strong:
            return np.asarray(self.needed @ total)
        for generation in self.generations[1:]:
            total[generation] += np.append(total, np.inf)[self._padded[generation]].min(axis=1)
        return total

    def among(self, terms: Indices) -> Lineage:
        """The lineage of some terms, which come first and in this order, and of those that they descend from."""
        kept = np.zeros(self.size)
        kept[terms] = 1.0
        rest = np.setdiff1d(np.flatnonzero(self.needed.T @ kept), terms)
        place = np.full(self.size, -1)
        place[np.append(terms, rest)] = np.arange(len(terms) + len(rest))
        return Lineage(
            tuple(tuple(place[list(self.parents[j])].tolist()) for j in np.append(terms, rest).tolist()), self.strong
        )

    def check(self) -> None:
        """Raise ValueError where a term descends from itself."""
        if sum(map(len, self.generations)) < self.size:
            raise ValueError("parents must have no circle, got a feature that is among its own ancestors")


def read_parents(parents: Any) -> tuple[tuple[int, ...], ...]:
    """Return the parents of each feature, ascending; ValueError where they are no lists of features."""
    try:
        each = [np.asarray(own) for own in parents]
    except (TypeError, ValueError):
        each = []
    if not each or any(own.ndim != 1 or (own.size and own.dtype.kind not in "iu") for own in each):
        raise ValueError(
            "parents must hold a list of whole numbers, the places of its parents, for each feature, empty for a main effect"
        )
    for j, own in enumerate(each):
        if own.size and not 0 <= own.min() <= own.max() < len(each):
            raise ValueError(f"parents must be from 0 to {len(each) - 1}, got {own.tolist()} for feature {j}")
    return tuple(tuple(np.unique(own.astype(int)).tolist()) for own in each)


def parents_of(powers: ArrayLike) -> list[list[int]]:
    """The parents of products of variables: the same products with one factor less.

    Parameters
    ----------
    powers : array of int of shape (n_features, n_variables)
        The exponents of each variable in each feature, as `PolynomialFeatures.powers_` of scikit-learn has them.

    Returns
    -------
    list of lists of int
        For `heredity`; empty for the variables themselves and a constant.

    Examples
    --------
    >>> from diht import parents_of
    >>> parents_of([[1, 0], [0, 1], [2, 0], [1, 1]])
    [[], [], [0], [0, 1]]
    """
    exponents = np.asarray(powers)
    if exponents.ndim != 2 or exponents.dtype.kind not in "iu" or np.any(exponents < 0):
        raise ValueError("powers must hold the exponents, whole numbers from 0 on, of each variable in each feature")
    place = {tuple(row): j for j, row in enumerate(exponents.tolist())}
    found: list[list[int]] = []
    for j, row in enumerate(exponents.tolist()):
        less = [tuple(p - (i == v) for i, p in enumerate(row)) for v in range(len(row)) if row[v] and sum(row) > 1]
        if not all(product in place for product in less):
            raise ValueError(
                f"powers must have the products with one factor less, got {row} for feature {j} without them"
            )
        found.append(sorted(place[product] for product in less))
    return found

r"""All supports within a threshold of the best objective: a search tree that is pruned at the threshold.

A node whose bound exceeds the threshold holds none of them. Any other is split until one support of exactly k features (or groups)
is left, which is fitted. Bounds are safe, so that nothing within the threshold is overlooked, whatever rounding does.

Columns that are equal or opposite are copies: a model may have any of them in place of another at the same cost. Of a set of copies
the tree lets features in by their numbers, the smallest first, so that one support stands for all that exchanges of copies lead to.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappush
from math import comb, prod
from time import perf_counter

import numpy as np

from diht.bounds.duality import Bound, dual_from_primal, lower_bound
from diht.bounds.rule import SparseVector
from diht.fit import Fit
from diht.numerics.arrays import Indices
from diht.numerics.threads import blas_threads
from diht.problem import Problem
from diht.refit import refit
from diht.result import Result
from diht.search.pool import Pool
from diht.solvers.auto import Auto
from diht.solvers.loop import solve
from diht.solvers.nodes import Leaf, Part, Solved, workers_for
from diht.solvers.tree import CLOSED, Tree

__all__ = ["Enumeration", "copies_among", "enumerated"]


_NONE: Indices = np.empty(0, dtype=np.int64)
_MAX_MEMORY = 2e9  # bytes of open nodes after which the search ends
_ALIKE = 1e-13  # of the largest entry of two columns: what copies may differ by
_ALIKE_PULL = 1e-9  # of the largest product with a random vector: columns whose products differ by more are no copies


@dataclass
class Enumeration(Tree):
    """A tree whose nodes are open as long as they may hold a support within the threshold.

    Attributes
    ----------
    epsilon : float
        The threshold is the best objective and this share of its size.
    most : int
        How many models to list, the best ones.
    best : float
        The least objective known.
    found : list of Fit
        Models within the threshold, the best first; one more than are listed, where there are more.
    copies : tuple of arrays of int
        Features that are copies of each other, ascending; of several targets, their coefficients in the first one.
    unproved : float
        The least bound of a support whose model is above the threshold.
    """

    epsilon: float = 0.0
    most: int = 1000
    best: float = np.inf
    found: list[Fit] = field(default_factory=list)
    copies: tuple[Indices, ...] = ()
    unproved: float = np.inf
    known: set[bytes] = field(default_factory=set)

    @property
    def threshold(self) -> float:
        """What a model may cost."""
        return _within(self.best, self.epsilon)

    @property
    def limit(self) -> float:
        """The same with room for rounding."""
        return _within(self.best, self.epsilon + CLOSED)

    @property
    def is_full(self) -> bool:
        """Whether there are more models than are to be listed."""
        return len(self.found) > self.most

    @property
    def objective(self) -> float:
        """Where nodes are closed."""
        return min(self.limit, self.found[-1].objective) if self.is_full else self.limit

    @property
    def complete(self) -> bool:
        """Whether every support within the threshold has been found, or one that differs in copies only."""
        return not self.open and not self.is_full and self.unproved > self.threshold

    @property
    def exhausted_below(self) -> float:
        """Every support with an objective below this is listed."""
        least = min([self.threshold, self.unproved, *(leaf.bound for leaf in self.open)])
        return min(least, _within(self.found[-1].objective, -CLOSED)) if self.is_full else least

    @property
    def listed(self) -> list[Fit]:
        """The models to list."""
        return self.found[: self.most]

    def bound(self) -> Bound:
        """The bound of the root: closed leaves are forgotten, and those that are left prove nothing of all models."""
        return self.root

    def is_closed(self, leaf: Leaf) -> bool:
        """Whether a node holds nothing within the threshold, or nothing that would be listed."""
        return leaf.bound > self.limit or (self.is_full and leaf.bound >= self.found[-1].objective)

    def close(self, leaf: Leaf) -> None:
        """Forget a leaf."""
        self.nbytes -= self.bytes_of(leaf)

    def add(self, solved: Solved) -> None:
        """Take a new leaf."""
        self.solved += 1
        self.keep(solved.leaf)

    def keep(self, leaf: Leaf) -> None:
        """Put a leaf among the open ones, fit the support where it has only one, or forget it."""
        if self.is_closed(leaf) or (leaf.feature < 0 and self.fitted(leaf)):
            return
        self.nbytes += self.bytes_of(leaf)
        heappush(self.open, leaf)

    def split(self, leaf: Leaf) -> Sequence[Part]:
        """The parts with the feature, and without; of copies with the first that is left, and without all of them."""
        rest = self.alike(leaf.feature)
        rest = rest[~np.isin(rest, leaf.inside)]
        with_it, without = np.append(leaf.inside, rest[0]), np.append(leaf.outside, rest)
        return (leaf, np.sort(with_it), leaf.outside), (leaf, leaf.inside, np.sort(without))

    def alike(self, feature: int) -> Indices:
        """The copies of a feature, with itself."""
        return self._alike.get(int(self._first[feature]), np.array([feature]))

    @cached_property
    def _first(self) -> Indices:
        """The first coefficient of each one's unit."""
        unit = self.problem.constraint.unit_of(self.problem.shape[1])
        return np.asarray(np.unique(unit, return_index=True)[1][unit])

    @cached_property
    def _alike(self) -> dict[int, Indices]:
        return {int(feature): features for features in self.copies for feature in features}

    # Supports

    def fitted(self, leaf: Leaf) -> bool:
        """Fit the one support of a leaf, if it has so many features; whether there was time to."""
        constraint = self.problem.constraint.restricted(leaf.inside, leaf.outside)
        m, inside, outside = constraint.free(self.problem.shape[1])
        rest = np.setdiff1d(self.features, np.append(inside, outside))
        if m > constraint.count(rest):
            return True
        support = np.union1d(inside, rest) if m > 0 else inside
        fit = refit(self.problem, support, leaf.w.dense, stop=self.stop)
        if self.stop():
            return False
        if not fit.objective <= self.limit and leaf.bound <= self.threshold:
            self.unproved = min(self.unproved, max(leaf.bound, self.proved(fit)))
        self.offer(fit)
        return True

    def proved(self, fit: Fit) -> float:
        """Bound the objectives of all models on a support by the dual point of the best one."""
        node = self.problem.replaced(constraint=self.problem.constraint.restricted(fit.support, _NONE))
        return lower_bound(node, dual_from_primal(node, fit.w, fit.b)).value

    def offer(self, fit: Fit) -> None:
        """Take a model that is within the threshold, unless its support is known."""
        key = fit.support.tobytes()
        if not fit.objective <= self.limit or key in self.known:
            return
        self.known.add(key)
        self.best = min(self.best, fit.objective)
        insort(self.found, replace(fit, u=None), key=_rank)
        while self.found[-1].objective > self.limit:
            self.unproved = min(self.unproved, self.proved(self.found.pop()))
        del self.found[self.most + 1 :]

    def canonical(self, support: Indices) -> Indices:
        """The same support with the first of their copies in place of features."""
        chosen = np.zeros(self.problem.shape[1], dtype=bool)
        chosen[support] = True
        for features in self.copies:
            used = int(chosen[features].sum())
            chosen[features] = np.arange(len(features)) < used
        return np.flatnonzero(chosen[self._first])

    def multiplicity(self, support: Indices) -> int:
        """The number of supports that exchanges of copies make of one."""
        return prod(comb(len(features), int(np.isin(features, support).sum())) for features in self.copies)


def _within(best: float, epsilon: float) -> float:
    """An objective, and a share of its size."""
    return best + epsilon * abs(best)


def _rank(fit: Fit) -> tuple[float, list[int]]:
    return fit.objective, fit.support.tolist()


def enumerated(problem: Problem, epsilon: float, most: int, time_limit: float | None) -> Enumeration:
    """Find a good model first, then all that are within epsilon of the best one, until the time is up."""
    end = np.inf if time_limit is None else perf_counter() + time_limit
    constraint, d = problem.constraint, problem.shape[1]
    if not constraint.is_count or constraint.free(d)[0] > constraint.choices(d):
        raise ValueError(
            f"problem must have a k that counts features or groups, no more than there are, got {constraint}"
        )
    result = solve(problem, Auto(branching=False), time_limit=time_limit)
    with np.errstate(over="ignore", invalid="ignore"), blas_threads(False):
        tree = _planted(problem, result, epsilon, most, end)
        while tree.open and not tree.stop() and tree.nbytes <= _MAX_MEMORY:
            tree.step()
            if tree.nbytes > 0.5 * _MAX_MEMORY:
                tree.spare_memory()
    return tree


def _planted(problem: Problem, result: Result, epsilon: float, most: int, end: float) -> Enumeration:
    """Make a tree of the features that screening does not exclude at the threshold, and give it the models of a solve."""

    def stop() -> bool:
        return perf_counter() > end

    fits: list[Fit] = []
    for model in result.pool or (result.model,):
        if not (fits and stop()):
            w = np.asarray(model.w, dtype=np.float64).ravel()
            fits.append(refit(problem, _filled(problem, problem.constraint.select(w)), w))
    best, root = min(fits, key=_rank), result.certificate.bound
    limit = _within(best.objective, epsilon + CLOSED)
    features = np.flatnonzero(root.screening(problem).within <= limit)
    ridges, workers, proof = workers_for(problem, features, root)
    for worker in workers:
        worker.screening = False  # of copies all or none would have to be decided
    copies = copies_among(problem, features)
    tree = Enumeration(
        problem, root, features, np.inf, ridges, workers, Pool(), stop,
        epsilon=epsilon, most=most, best=best.objective, copies=copies,
    )  # fmt: skip
    for fit in fits:
        support = tree.canonical(fit.support)
        tree.offer(fit if np.array_equal(support, fit.support) else refit(problem, support, fit.w))
    first = Leaf(_NONE, _NONE, root.value, root.rounding, proof, SparseVector.of(best.w), feature=0)
    tree.add(next(workers[0].solve_all([(first, _NONE, _NONE)], tree.objective * (1.0 + 1e-12))))
    return tree


def _filled(problem: Problem, support: Indices) -> Indices:
    """A support with as many features as are allowed."""
    constraint, d = problem.constraint, problem.shape[1]
    while len(rest := constraint.joining(support, d)):
        support = np.union1d(support, constraint.closure(rest[:1]))
    return support


# ---------------------------------------------------------------------------------------------------------------------
# Copies


def copies_among(problem: Problem, features: Indices) -> tuple[Indices, ...]:
    """Return the sets of features, of two or more, whose columns are equal or opposite but for rounding.

    They are compared as the problem has them, centred and scaled. Features that are to be kept, or in a group with others, have no
    copies; one whose coefficient has limits has those with the same.
    """
    units, samples, rng = _single(problem, features), problem.samples, np.random.default_rng(0)
    pulls = np.abs(samples.pull(samples.put(rng.standard_normal(np.shape(samples.fetch(samples.full(0.0)))))))
    zeros, units = np.intersect1d(units, problem.null), np.setdiff1d(units, problem.null)
    units = units[np.argsort(pulls[units], kind="stable")]
    far = np.diff(pulls[units]) > _ALIKE_PULL * pulls.max(initial=0.0)
    sets = [zeros.tolist()] if len(zeros) > 1 else []
    for near in np.split(units, np.flatnonzero(far) + 1):
        own: list[list[int]] = []
        for feature in np.sort(near).tolist():
            copies = next((others for others in own if _are_copies(problem, others[0], feature)), None)
            if copies is None:
                own.append([feature])
            else:
                copies.append(feature)
        sets += [copies for copies in own if len(copies) > 1]
    return tuple(np.array(copies) for copies in sorted(sets))


def _single(problem: Problem, features: Indices) -> Indices:
    """The features that are units by themselves and undecided; of several targets, their first coefficients."""
    constraint, d = problem.constraint, problem.shape[1]
    _, inside, outside = constraint.free(d)
    _, first, sizes = np.unique(constraint.unit_of(d), return_index=True, return_counts=True)
    alone = first[sizes == problem.n_targets]
    return np.setdiff1d(alone[np.isin(alone, features)], np.append(inside, outside))


def _are_copies(problem: Problem, i: int, j: int) -> bool:
    """Whether two columns are equal or opposite but for rounding, and so are the limits of their coefficients."""
    limits, d = problem.constraint.limits, problem.shape[1]
    own, other = (np.arange(feature, d, d // problem.n_targets) for feature in (i, j))
    most = _ALIKE * min(_size(problem, {i: 1.0}), _size(problem, {j: 1.0}))
    return any(
        (limits is None or limits.of(own).equals(limits.of(other).times(relation)))
        and _size(problem, {i: 1.0, j: -relation}) <= most
        for relation in (1.0, -1.0)
    )


def _size(problem: Problem, entries: dict[int, float]) -> float:
    """The largest entry, in size, of a combination of columns."""
    w = np.zeros(problem.shape[1])
    w[list(entries)] = list(entries.values())
    u = problem.samples.margins(w, 0.0, np.sort(list(entries)))
    return problem.samples.largest(lambda y, u: np.abs(u), u)

"""A constraint of one's own, written here alone: at most k features, and at most s of each group."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from diht import Problem, solve
from diht.constraints.base import Constraint
from diht.losses import Hinge, Logistic, Loss, Squared
from diht.refit import refit
from diht.search.pool import Pool
from diht.search.swaps import swap_search

Indices = NDArray[np.int64]
NOTHING = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class AtMostOfEach(Constraint):
    """At most `k` features and at most `s` of each group; places are kept for those `inside`, none is `outside`."""

    k: int
    s: int
    group: Indices
    inside: Indices = field(default_factory=lambda: NOTHING)
    outside: Indices = field(default_factory=lambda: NOTHING)

    is_plain = False
    is_count = False

    def check(self, n_features: int) -> None:
        assert len(self.group) == n_features

    @property
    def size(self) -> int:
        return min(self.k, int(np.minimum(np.bincount(self.group), self.s).sum()))

    def allows(self, w: np.ndarray) -> bool:
        used = np.union1d(np.flatnonzero(w), self.inside)
        few = len(used) <= self.k and bool(np.all(np.bincount(self.group[used]) <= self.s))
        return few and not np.any(np.isin(used, self.outside))

    def select(self, v: np.ndarray) -> Indices:
        chosen = self.inside.tolist()
        for j in np.argsort(-np.abs(v), kind="stable").tolist():  # of a matroid the greedy choice is the best
            if j in self.joining(np.array(chosen, dtype=np.int64), len(v)):
                chosen.append(j)
        return np.sort(np.array(chosen, dtype=np.int64))

    def joining(self, support: Indices, n_features: int) -> Indices:
        used = np.union1d(support, self.inside).astype(np.int64)
        full = np.bincount(self.group[used], minlength=self.group.max() + 1) >= self.s
        barred = full[self.group] | np.isin(np.arange(n_features), np.union1d(used, self.outside))
        return NOTHING if len(used) >= self.k else np.flatnonzero(~barred)

    def free(self, n_features: int) -> tuple[int, Indices, Indices]:
        return self.k - len(self.inside), self.inside, self.outside

    def allowing(self, m: int) -> Constraint:
        return replace(self, k=m + len(self.inside))

    def restricted(self, inside: Indices, outside: Indices) -> Constraint:
        inside, outside = np.union1d(self.inside, inside), np.union1d(self.outside, outside)
        return replace(self, inside=inside.astype(np.int64), outside=outside.astype(np.int64))

    def within(self, features: Indices) -> Constraint:
        inside, outside = np.searchsorted(features, self.inside), np.flatnonzero(np.isin(features, self.outside))
        return replace(self, group=self.group[features], inside=inside, outside=outside)

    def forcing(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, d = self.value(v), len(v)
        drop, add = np.zeros(d), np.full(d, np.inf)
        for j in range(d):
            drop[j] = np.inf if j in self.inside else value - self.restricted(NOTHING, np.array([j])).value(v)
            with_it = self.restricted(np.array([j]), NOTHING)
            if with_it.allows(np.zeros(d)):
                add[j] = value - with_it.value(v)
        return drop, add


def problem_of(loss: Loss, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 9)) @ (np.eye(9) + 0.5 * np.eye(9, k=1))
    y = X[:, :3] @ [1.0, 1.0, 1.0] + 0.5 * X[:, 4] - 0.5 * X[:, 7] + 0.5 * rng.standard_normal(40)
    y = np.where(y > 0.0, 1.0, -1.0) if loss.task == "classification" else y
    return Problem(X, y, loss, AtMostOfEach(4, 2, np.arange(9) // 3), 0.1, fit_intercept=True)


def best(problem: Problem) -> float:
    """Try every support."""
    supports = (np.array(support) for support in combinations(range(9), 4))
    allowed = (support for support in supports if problem.constraint.allows(np.bincount(support, minlength=9)))
    return min(refit(problem, support).objective for support in allowed)


LOSSES = [Squared(), Logistic(), Hinge()]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_search_keeps_to_it(loss: Loss) -> None:
    for seed in range(2):
        problem, pool, start = problem_of(loss, seed), Pool(), np.arange(5)  # one too many of the first group
        rounded = refit(problem, problem.constraint.select(refit(problem, start).w))
        least = best(problem)
        for fit in (swap_search(problem, start, pool=pool), swap_search(problem, NOTHING, pool=pool)):
            assert problem.constraint.allows(fit.w)
            assert len(fit.support) == 4
            assert least * (1 - 1e-7) <= fit.objective <= rounded.objective * (1 + 1e-7)
        assert all(problem.constraint.allows(pooled.w) for pooled in pool)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_solve_keeps_to_it_and_bounds_it(loss: Loss) -> None:
    problem = problem_of(loss, 0)
    result, least = solve(problem), best(problem)
    assert problem.constraint.allows(result.w)
    assert result.objective == pytest.approx(least, rel=1e-7)
    assert 0.0 < result.lower_bound <= least * (1 + 1e-12)
    assert np.all(np.isin(result.certificate.required, result.support))


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=str)
def test_several_targets_keep_to_it(loss: Loss) -> None:
    problem = problem_of(Squared(), 1)
    X, y = problem.design.toarray(), problem.samples.fetch(problem.samples.y)
    Y = np.column_stack([y, -y + X[:, 5], X[:, 1] - X[:, 2]])
    Y = np.where(Y > 0.0, 1.0, -1.0) if loss.task == "classification" else Y
    several = Problem(X, Y, loss, AtMostOfEach(4, 2, np.arange(9) // 3), 0.1, fit_intercept=True)
    result = solve(several)
    assert AtMostOfEach(4, 2, np.arange(9) // 3).allows(np.abs(result.w).sum(axis=0))
    supports = (np.array(support) for support in combinations(range(9), 4))
    allowed = [support for support in supports if np.bincount(support // 3).max() <= 2]
    columns = [np.concatenate([support + 9 * target for target in range(3)]) for support in allowed]
    assert result.objective == pytest.approx(min(refit(several, at).objective for at in columns), rel=1e-7)
    assert result.lower_bound <= result.objective

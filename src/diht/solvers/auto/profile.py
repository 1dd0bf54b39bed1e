"""What of a problem decides which stages of `auto` it gets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from diht.problem import Problem
from diht.relaxation.engines import newton_pays
from diht.relaxation.gram import can_shift
from diht.samples import Descents, Greedy
from diht.search.joining import worth_compiling
from diht.search.swap_optimality import MOST_GLANCED

__all__ = ["MANY", "MOST_SHIFTED", "PROGRESS", "USEFUL", "Profile"]

USEFUL = 0.01  # fraction of the gap that is not worth more work on either end of it
PROGRESS = 0.9  # a step that leaves more than this share, of a gap or of the features in play, is none
MANY = 1000  # features of a model from which on a refit takes long: it is rough, and its dual point is worth a bound
MOST_SHIFTED = 6000  # features whose Gram matrix is formed for a shift: more take long, and gigabytes

_SMALL = 2e6  # entries of X up to which every start is searched; beyond, only those near to the incumbent
_SAMPLE, _SAMPLE_EACH = 20_000, 200  # rows that are solved first, at least, and for each column
_MANY_ENTRIES = 4e6  # entries of X from which on they are, where they are no more than half of all
# Under the squared loss auto branches up to so many features in play where the gap is wide (nodes of more are not compiled and take
# .1 to 1 s; those that a budget holds gain .1 to 1 point of gaps of 66 to 99%), and so many multiplications of their Gram matrix;
# under other losses up to so many multiplications of a Hessian, of which a node takes some ten.
_FEW_BRANCHED, _CHEAP_GRAM, _CHEAP_NODE = 300, 1e11, 1e7
_CHEAP_RIDGE = 1e8  # operations of a ridge regression up to which it comes first: milliseconds
_MOST_GREEDY = 50  # features up to which a model is grown one by one: more take long, and early choices mislead
_FEW = 10  # features of a model that is grown in less time than a relaxation for a larger ridge takes
_WEAK_RIDGE = 0.25  # lam / curvature below which the relaxation is loose and slow: greedy selection comes first
_NEGLIGIBLE_RIDGE = 1e-3  # lam / curvature below which the gain of a swap is lost in rounding


@dataclass(frozen=True, eq=False)
class Profile:
    """Size, loss, constraint and conditioning of a problem, each computed once.

    Parameters
    ----------
    problem : Problem
    """

    problem: Problem

    @property
    def is_small(self) -> bool:
        """Whether X is so small that every start is worth a search."""
        return self.problem.samples.design.entries() * self.problem.n_targets <= _SMALL

    @property
    def has_many_rows(self) -> bool:
        """Whether some of the rows, which must be here, tell nearly as much as all, at a small part of their cost."""
        n, d = self.problem.shape
        return self.problem.samples.here and n >= 2 * self.sample_size and float(n) * d >= _MANY_ENTRIES

    @property
    def sample_size(self) -> int:
        """How many rows tell so much."""
        return max(_SAMPLE, _SAMPLE_EACH * self.problem.shape[1])

    @property
    def has_many_rows_each(self) -> bool:
        """Whether there are so many samples for each feature that these seldom stand for each other."""
        n, d = self.problem.shape
        return n >= _SAMPLE_EACH * d

    @property
    def is_quadratic(self) -> bool:
        """Whether the objective of every support is known from a Gram matrix: the squared loss with a plain constraint."""
        return self.problem.loss.is_squared_error and self.problem.constraint.is_plain

    @property
    def is_shiftable(self) -> bool:
        """Whether curvature may be moved into the ridge: the squared loss, of few features where there are groups or signs."""
        return can_shift(self.problem)

    @property
    def is_tall(self) -> bool:
        """Whether there are more samples than features, so that a shift is likely to be positive without screening."""
        n, d = self.problem.shape
        return d < min(n, MOST_SHIFTED)

    def is_branchable(self, n_features: int, is_wide: bool) -> bool:
        """Whether nodes of so many features in play take so little that a budget may hold those that close the gap."""
        problem = self.problem
        if problem.design.is_far and not newton_pays(problem, n_features):  # nodes would read X
            return False
        cost = problem.design.dense_gram_cost(n_features)
        if self.is_quadratic:
            return n_features <= (_FEW_BRANCHED if is_wide else MOST_SHIFTED) and cost <= _CHEAP_GRAM
        return problem.constraint.is_count and newton_pays(problem, n_features) and cost <= _CHEAP_NODE

    @property
    def has_cheap_ridge(self) -> bool:
        """Whether a ridge regression on all features takes no time to speak of."""
        n, d = self.problem.shape
        return float(n) * d * min(n, d) <= _CHEAP_RIDGE

    @property
    def is_greedy(self) -> bool:
        """Whether forward selection is fast enough, and good enough, to be worth a try."""
        return self.problem.constraint.size <= _MOST_GREEDY

    @property
    def is_tiny_model(self) -> bool:
        """Whether forward selection takes less time than the relaxation for a larger ridge."""
        return self.problem.constraint.size <= _FEW

    @cached_property
    def descents(self) -> Descents | None:
        """Local searches in compiled code; None where X is not small, or the constraint or the loss not of the kind."""
        problem, size = self.problem, self.problem.constraint.size
        few = size <= MOST_GLANCED and problem.constraint.is_plain and problem.n_targets == 1
        if not few or not worth_compiling(problem, size):
            return None
        return problem.samples.descents(problem.loss, problem.lam, problem.fit_intercept)

    @property
    def searches_compiled(self) -> bool:
        """Whether local searches are made in compiled code."""
        return self.descents is not None

    @cached_property
    def curvature(self) -> float:
        """Curvature of the loss along a feature, on average: what the ridge competes with."""
        problem = self.problem
        return float(problem.samples.mean_weight * np.square(problem.design.column_norms()).mean()) / problem.loss.mu

    @property
    def has_weak_ridge(self) -> bool:
        """Whether lam is so far below the curvature of the squared loss that the relaxation is loose."""
        return self.problem.loss.is_squared_error and self.problem.lam < _WEAK_RIDGE * self.curvature

    @property
    def starts_greedily(self) -> bool:
        """Whether forward selection comes before the relaxation: where that is loose, and under other smooth losses."""
        if self.problem.loss.is_squared_error:
            return self.is_greedy and self.has_weak_ridge
        problem = self.problem
        plain = problem.constraint.is_plain and problem.n_targets == 1 and problem.loss.differentiable
        near = self.is_small or (problem.samples.here and not problem.design.is_far)
        return self.is_greedy and plain and near and not self.has_many_rows

    @cached_property
    def greedy(self) -> Greedy | None:
        """Local searches in plain numpy under plain constraints; None where samples are many, the loss is squared or has kinks."""
        problem = self.problem
        if not problem.constraint.is_plain:
            return None
        return problem.samples.greedy(problem.loss, problem.lam, problem.fit_intercept)

    @property
    def has_negligible_ridge(self) -> bool:
        """Whether lam is so far below the curvature of the squared loss that rounding hides what a swap gains."""
        return self.problem.loss.is_squared_error and self.problem.lam < _NEGLIGIBLE_RIDGE * self.curvature

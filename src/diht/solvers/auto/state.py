"""What `auto` has found so far, and the local searches that every stage may ask for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from diht.bounds.duality import Bound, Screening, dual_from_primal, lower_bound, upper_bound
from diht.bounds.shift import in_play
from diht.fit import Fit
from diht.numerics.arrays import Indices, Vector
from diht.numerics.memory import NotEnoughMemoryError
from diht.problem import Problem
from diht.refit import refit
from diht.samples import Intercept
from diht.search.joining import Breadth, Effort
from diht.search.pool import Pool
from diht.search.starts import Starts
from diht.search.steps import end_of
from diht.search.swap_optimality import better_swaps, restarted
from diht.search.swaps import swaps
from diht.solvers.auto.profile import MANY, Profile
from diht.solvers.auto.relaxation_run import RelaxationRun
from diht.solvers.base import Start
from diht.solvers.tree import CLOSED, Tree

__all__ = ["LOOSE", "PERTURBATIONS", "REFIT", "SEARCH_READS", "AutoState", "Budget"]


LOOSE = 1e-3  # relative gap above which further starts are tried, and models of many features are searched
PERTURBATIONS = 20  # perturbations in a row without a better model after which a search ends
SEARCH_READS = 50.0  # of X by one search, besides as many as all the work before it took
_DESCENT_READS = 20.0  # of X by a descent without perturbations
_CANDIDATES = 400  # features of a large X among which a model is grown
REFIT, _ROUGH_REFIT = 1e-9, 1e-6  # relative accuracy of refits, and of those of many features
# Limit of what is done in vain in the search for better swaps: about three seconds, and a part of the reads of X before; of a proof
# that none is better three seconds and as much as all the work before, that of swaps that gained included.
_PATIENCE, _IN_VAIN = 4e7, 0.25
_ALWAYS_SEARCHED = 300  # features of a model up to which it is searched however small the gap


@dataclass(frozen=True, eq=False)
class Budget:
    """Reads of X and, by way of `stop`, seconds."""

    problem: Problem
    stop: Callable[[], bool]
    begun: float  # reads of X when the work began

    @property
    def reads(self) -> float:
        """Reads of X since then."""
        return self.problem.samples.design.passes - self.begun

    def within(self, reads: float) -> Callable[[], bool]:
        """Return what says True where so many more reads have been made, or the time is up."""
        design, limit = self.problem.design, self.problem.design.passes + reads
        return lambda: self.stop() or design.passes > limit


@dataclass(frozen=True, eq=False)
class _Part:
    """A problem whose samples are far away, on those features that it leaves in play, which are near."""

    features: Indices
    problem: Problem
    n_features: int

    @classmethod
    def of(cls, problem: Problem, support: Indices) -> _Part | None:
        """Return the part of a problem that may have some features; None where reads are cheap, or it does not fit."""
        if not problem.design.is_far:
            return None
        d = problem.shape[1]
        undecided = np.setdiff1d(np.arange(d), problem.constraint.free(d)[2])
        features = problem.constraint.closure(np.union1d(undecided, support))
        if len(features) == d or not problem.design.keepable(features):
            return None
        return cls(features, problem.restricted(features), d)

    def entered(self, support: Indices) -> Indices:
        """Return a support in the numbering of the part."""
        return np.searchsorted(self.features, support)

    def left(self, fit: Fit) -> Fit:
        """Return a model in the numbering of the problem."""
        return replace(fit, n_features=self.n_features, support=self.features[fit.support])

    def leave(self, pool: Pool, into: Pool) -> None:
        """Hand over the models that were met."""
        for fit in pool:
            into.add(self.left(fit))


@dataclass(eq=False)
class AutoState:
    """The problem, its incumbent and bound, and the work that is left."""

    problem: Problem
    start: Start
    random_state: int = 0
    follows_path: bool = False  # whether the start comes from a path
    pool: Pool = field(default_factory=Pool)
    bound: Bound | None = None
    done: bool = False
    work: Iterator[None] = field(default_factory=lambda: iter(()))
    budget: Budget = field(init=False)
    first: Fit | None = None  # the model of the start
    relaxation: RelaxationRun | None = None
    fitted: dict[bytes, Fit] = field(default_factory=dict)  # supports and the best models on them
    searched: set[bytes] = field(default_factory=set)  # supports at either end of a search
    descended: set[bytes] = field(default_factory=set)  # those of descents
    sampled: bool = False  # whether some of the rows were solved first
    solve_part: Callable[[Problem], Iterator[AutoState]] | None = None  # stage by stage on another problem
    swap_optimal: bool | float = False  # of the incumbent, if its support is the one below; see `Result`
    effort: float = 0.0  # of searches, in the units of `Effort`
    glanced: set[bytes] = field(default_factory=set)  # supports whose features were all left out at a glance in vain
    settled: Indices | None = None  # the last support whose swaps were all looked at, as far as the effort allows
    tree: Tree | None = None  # of the nodes that the budget allows
    grown_at: float = np.inf  # the objective after its beginning
    larger_ridges: list[tuple[float, float]] = field(default_factory=list)  # (e, B): a bound B for a ridge larger by e
    screening: tuple[Bound, Screening] | None = None  # the last bound that features were screened by, and what it says
    refitted: Indices | None = None  # the last support of many features whose dual point gave a bound

    def __post_init__(self) -> None:
        self.budget = Budget(self.problem, self.start.stop, self.problem.design.passes)

    @cached_property
    def profile(self) -> Profile:
        """What decides which stages apply."""
        return Profile(self.problem)

    @cached_property
    def starts(self) -> Starts:
        """Searches in compiled code, where the profile has them."""
        descents = self.profile.descents
        assert descents is not None
        return Starts(self.problem, descents, self.random_state)

    @property
    def stop(self) -> Callable[[], bool]:
        """The loop's: whether the time is up."""
        return self.start.stop

    @property
    def first_b(self) -> Intercept:
        """Intercept of the start's model."""
        assert self.first is not None
        return self.first.b

    @property
    def start_stands(self) -> bool:
        """Whether the start is that of a path of the squared loss, which compares all exchanges, and nothing better is known."""
        first = self.first if self.follows_path and self.profile.is_quadratic else None
        return first is not None and np.array_equal(self.best.support, first.support)

    @property
    def best(self) -> Fit:
        """The incumbent."""
        assert self.pool.best is not None
        return self.pool.best

    @property
    def proved(self) -> Bound:
        """The best bound so far."""
        assert self.bound is not None
        return self.bound

    @property
    def objective(self) -> float:
        """The best objective so far."""
        return np.inf if self.pool.best is None else self.pool.best.objective

    @property
    def gap(self) -> float:
        """Difference of the best objective and the best bound."""
        return self.objective - (-np.inf if self.bound is None else self.bound.value)

    def exceeds(self, relative_gap: float) -> bool:
        """Whether there is no model yet, or the gap is wider than a fraction of the objective."""
        return self.pool.best is None or self.gap > relative_gap * abs(self.objective)

    @property
    def is_open(self) -> bool:
        """Whether anything better could still be found, or more be proved."""
        return self.exceeds(CLOSED)

    def prove(self, bound: Bound) -> None:
        """Keep the better bound."""
        if self.bound is None or bound.value > self.bound.value:
            self.bound = bound

    # Local searches

    def fit(self, support: Indices, w: Vector, b: Intercept) -> Fit:
        """Fit a support, once, and keep the model; where it has many features, the bound of its dual point as well."""
        many, key = len(support) > MANY, np.sort(support).tobytes()
        if key in self.fitted:
            return self.fitted[key]
        fit = refit(self.problem, support, w, b, rtol=_ROUGH_REFIT if many else REFIT, stop=self.stop)
        self.pool.add(fit)
        self.fitted[key] = replace(fit, u=None)
        if many:
            self.refitted = support
            self.prove_by(fit)
        return fit

    def prove_by(self, fit: Fit) -> None:
        """Keep the bound of a model's dual point."""
        self.prove(lower_bound(self.problem, dual_from_primal(self.problem, fit.w, fit.b, fit.u)))

    def search(self, support: Indices, w: Vector, b: Intercept) -> Iterator[None]:
        """Improve a support by swaps and perturbations, unless that was done before; yield at each better incumbent.

        What screening decides stays.
        """
        return self._search(support, w, b, PERTURBATIONS, SEARCH_READS + self.budget.reads, self.searched)

    def search_best(self) -> Iterator[None]:
        """Improve the incumbent so."""
        return self.search(self.best.support, self.best.w, self.best.b)

    def descend(self, support: Indices, w: Vector, b: Intercept) -> Iterator[None]:
        """Improve a support by swaps alone, in few reads of X."""
        return self._search(support, w, b, 0, _DESCENT_READS, self.descended)

    def _search(
        self, support: Indices, w: Vector, b: Intercept, perturbations: int, reads: float, known: set[bytes]
    ) -> Iterator[None]:
        key = np.sort(support).tobytes()
        costly = len(support) > _ALWAYS_SEARCHED or self.problem.design.is_far
        close_enough = costly and not self.exceeds(LOOSE)
        if key in known | self.searched or close_enough or self.stop():
            return
        known.add(key)
        undecided = self.screened()
        if undecided is None:
            return
        shown = self.objective
        for _ in self.swaps(undecided, support, w, b, perturbations, self.budget.within(reads)):
            if self.objective < shown:
                shown = self.objective
                yield
        known.add(self.best.support.tobytes())

    def swap(
        self, problem: Problem, support: Indices, w: Vector | None, b: Intercept, *how: Any, **settings: Any
    ) -> Fit:
        """Search from a support of this problem, or of one with another constraint or ridge; settings are those of `swaps`."""
        return end_of(self.swaps(problem, support, w, b, *how, **settings))

    def swaps(
        self,
        problem: Problem,
        support: Indices,
        w: Vector | None,
        b: Intercept,
        perturbations: int = PERTURBATIONS,
        stop: Callable[[], bool] | None = None,
        pool: Pool | None = None,
        **limits: int,
    ) -> Generator[None, None, Fit]:
        """Search so, and yield after each swap."""
        pool, stop, part = self.pool if pool is None else pool, stop or self.stop, _Part.of(problem, support)
        found = pool if part is None else Pool(pool.capacity)
        settings: dict[str, Any] = {"perturbations": perturbations, "random_state": self.random_state, "stop": stop}
        settings |= limits
        if part is None:
            try:
                return (yield from swaps(problem, support, w, b, pool=found, **settings))
            except NotEnoughMemoryError:  # for the candidates
                fit = refit(problem, support, w, b, REFIT, stop)
                pool.add(fit)
                return fit
        w = None if w is None else w[part.features]
        fit = yield from swaps(part.problem, part.entered(support), w, b, pool=found, **settings)
        part.leave(found, pool)
        return part.left(fit)

    def settle(self) -> Iterator[None]:
        """Make swaps until none improves the incumbent, yield after each, and keep what is proved at the end."""
        if self.settled is not None and np.array_equal(self.best.support, self.settled):
            return
        undecided = self.screened() if self.is_open else None
        if undecided is None:
            self.swap_optimal = True
        else:
            left = yield from self._swap_optimum(undecided)
            self.swap_optimal = left == 0.0 or (False if self.stop() else min(left, self.gap))
        self.settled = self.best.support
        self.searched.add(self.settled.tobytes())

    def _swap_optimum(self, undecided: Problem) -> Generator[None, None, float]:
        """Make swaps until none improves the incumbent; return what one can still gain at most."""
        part, best = _Part.of(undecided, self.best.support), self.best
        work = Effort.of_reads(self.problem.design, self.budget.reads)
        alone = 0.0 if self.sampled else _PATIENCE
        effort = Effort(patience=alone + _IN_VAIN * work, proof=alone + work + self.effort)
        if part is None:
            if undecided.design.is_far:  # each unit that is left out takes a read of X
                return np.inf
            found = yield from better_swaps(
                undecided, best, effort=effort, stop=self.stop, pool=self.pool, glanced=self.glanced
            )
        else:
            pool = Pool(self.pool.capacity)
            best = replace(best, n_features=len(part.features), support=part.entered(best.support))
            found = yield from better_swaps(part.problem, best, effort=effort, stop=self.stop, pool=pool)
            part.leave(pool, self.pool)
        self.effort += effort.spent
        return found.left

    def restart(self, rng: np.random.Generator, n_removed: int, glance: Breadth, effort: Effort) -> bool:
        """Exchange some features of the incumbent at once, and swap from there; tell whether that leads to a better one."""
        undecided, best = self.screened(), self.best
        if undecided is None:
            return False
        free = np.setdiff1d(best.support, undecided.constraint.free(self.problem.shape[1])[1])
        removed = rng.choice(free, min(n_removed, len(free)), replace=False)
        settings: dict[str, Any] = {"effort": effort, "stop": self.stop, "pool": self.pool, "glanced": self.glanced}
        restarted(undecided, best, removed, glance, **settings)
        return self.objective < best.objective

    def select_forward(self, b: Intercept) -> Iterator[None]:
        """Add features one by one, then swap, from an intercept; yield after each step of either."""
        problem, nothing, greedy = self.problem, np.empty(0, dtype=np.int64), self.profile.greedy
        if greedy is None:
            stop = self.budget.within(SEARCH_READS)
            fit = yield from self.swaps(problem, nothing, None, b, 0, stop, max_swaps=0, candidates=_CANDIDATES)
            yield from self.swaps(problem, fit.support, fit.w, fit.b, 0, stop, candidates=_CANDIDATES)
        else:
            d = problem.shape[1]
            m, inside, outside = problem.constraint.free(d)
            closed = np.isin(np.arange(d), outside)
            grown = greedy.fitted(inside, np.zeros(len(inside)), float(b), REFIT)
            grown = greedy.grown(grown, min(m + len(inside), d - len(outside)), closed)
            self.fit(*grown.model(d))
            yield
            self.fit(*greedy.swapped(grown, len(inside), closed, self.stop).model(d))
        self.descended.add(self.best.support.tobytes())
        yield

    def _screening(self) -> Screening:
        """Screen the features by the best bound, once."""
        if self.screening is None or self.screening[0] is not self.proved:
            self.screening = self.proved, self.proved.screening(self.problem)
        return self.screening[1]

    def in_play(self) -> tuple[Indices, float]:
        """Return the features that a better model may use, and what any other costs at least."""
        attained = upper_bound(self.problem, self.best.w, self.best.b)
        return in_play(self.problem, self._screening(), attained)

    def screened(self) -> Problem | None:
        """The problem with what screening decides taken as decided; None where that is everything."""
        problem, screening = self.problem, self._screening()
        attained = upper_bound(problem, self.best.w, self.best.b)
        required, excluded = screening.required(attained), screening.excluded(attained)
        constraint = problem.constraint.restricted(required, excluded)
        room, inside, outside = constraint.free(problem.shape[1])
        if room <= 0 or len(inside) + len(outside) >= problem.shape[1]:
            return None
        return problem.replaced(constraint=constraint)

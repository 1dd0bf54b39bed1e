"""The stages of `auto`: where each applies, and what it does to find a better model or to prove more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np

from diht.bounds.shift import is_shifted, others, problem_gram, shifted_ridges
from diht.design.gram import Gram
from diht.numerics.arrays import Indices, Vector
from diht.problem import Problem
from diht.refit import refit
from diht.relaxation.gram import GramRelaxation
from diht.search.joining import NARROW, Effort, worth_compiling
from diht.search.pool import Pool
from diht.search.swap_optimality import MOST_GLANCED
from diht.solvers.auto.profile import MOST_SHIFTED, PROGRESS, Profile
from diht.solvers.auto.relaxation_run import RelaxationRun
from diht.solvers.auto.state import LOOSE, PERTURBATIONS, REFIT, SEARCH_READS, AutoState
from diht.solvers.base import Start
from diht.solvers.relaxed import Relaxed
from diht.solvers.tree import CLOSED, Tree, plant

__all__ = [
    "Beginning",
    "Branching",
    "Continuation",
    "DualRounding",
    "EarlyShift",
    "ForwardSelection",
    "LargerRidge",
    "ManyStarts",
    "Perturbation",
    "RelaxationAgain",
    "RelaxationRounding",
    "RelaxationSolution",
    "Reselection",
    "Restarts",
    "RidgeRounding",
    "RowSample",
    "Shift",
    "ShortTree",
    "Stage",
    "SwapOptimality",
    "Swaps",
    "is_spent",
    "shifts",
]


_NONE: Indices = np.empty(0, dtype=np.int64)
_ROUGH = 1e-3  # relative accuracy of the refit of a first rounding, and of the relaxations for larger ridges
_FACTORS = 1000.0, 100.0, 10.0  # multiples of lam whose relaxations give further starts
_MOST_STEPS, _MOST_READS = 30, 30.0  # on each of them, and of an X that is not small
_PROMISING = 0.01  # relative distance to the best objective at which a start in a large X is searched
_SHIFT_ACCURACY = 1e-7
_FEW = 300  # features up to which a shift that is the same for all is tried as well: at times it proves a little more
_SAMPLED_MODELS = 3  # of theirs that are fitted to all rows
_BUDGET = 3e9  # operations of a search tree: about three seconds
# Looks at the progress come after this share of them and after each doubling. Unless so many of its nodes are closed, the tree will
# not end in time: at the first looks only where the relative gap is wide.
_FIRST_LOOK, _SURE_LOOK, _CLOSED_SHARE, _WIDE = 1.0 / 64.0, 1.0 / 16.0, 0.03, 0.2
_MOST_REMOVED = 3  # features that a perturbation forbids
_EXCHANGED = 15  # of so many features restarts exchange one to four
# Effort of restarts, some eight seconds, and of those in a row that lead to nothing, one or two.
_RESTARTS, _RESTARTS_IN_VAIN = 1e8, 2e7
_MOST_RESTARTED = 4  # restarts in a row without a better model after which they end
_TIGHT = 0.05  # relative gap below which less is done in vain: 1 of 9 models was improved there, 3 of 28 up to .2, 31 of 97 above
_LOOK = 1e6  # effort, some tenths of a second, after which the loop looks at the incumbent
_RETURNED = 5  # searches from starts of their own that end at the incumbent: a better one is unlikely then
_KICKED = 2.0  # reads of X by perturbations of single features, in units of those of all the work before


class Stage(ABC):
    """A part of the work.

    `run` yields where the loop may evaluate the state and end the solve. A stage begins only while there is a gap.

    Attributes
    ----------
    seeks_starts : bool
        Whether it is for starts alone, such as the models of a path are.
    """

    seeks_starts: ClassVar[bool] = False

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        return True

    @abstractmethod
    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""


# ---------------------------------------------------------------------------------------------------------------------
# First models


class Beginning(Stage):
    """Evaluate the start, and the bound of the relaxation's first dual point."""

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        state.relaxation = RelaxationRun.begun(state.problem, state.start, state.random_state)
        state.prove(state.relaxation.bound)
        state.first = state.start.primal(state.problem)
        state.pool.add(state.first)
        yield


class RowSample(Stage):
    """Solve the problem of some of the rows, where there are many, fit its best supports, and go on from its relaxation."""

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        return profile.has_many_rows

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        assert state.solve_part is not None
        assert state.relaxation is not None
        rng = np.random.default_rng(state.random_state)
        for part in state.solve_part(state.problem.sampled(state.profile.sample_size, rng)):
            yield from _fit_best(state, part, 1)
        state.sampled = True
        yield from _fit_best(state, part, _SAMPLED_MODELS)
        if part.relaxation is not None:
            state.relaxation.resume(part.relaxation.models()[0], part.relaxation.b)


def _fit_best(state: AutoState, part: AutoState, n_models: int) -> Iterator[None]:
    """Fit the best models of some of the rows to all, each once."""
    for fit in list(part.pool)[:n_models]:
        if fit.support.tobytes() not in state.fitted:
            state.fit(fit.support, fit.w, fit.b)
            yield


class RidgeRounding(Stage):
    """Round a ridge regression on all features, where that takes milliseconds."""

    seeks_starts = True

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        return profile.has_cheap_ridge

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        problem = state.problem
        w = problem.samples.ridge(0.5 * problem.lam, problem.fit_intercept)
        if w is not None:
            state.fit(problem.constraint.select(w), np.zeros(len(w)), state.first_b)
            yield


class DualRounding(Stage):
    """Round the model of the first dual point of a large X; if the ridge is weak, a step on the relaxation for a larger one."""

    seeks_starts = True

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        return not profile.has_cheap_ridge and not profile.is_small

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        assert state.relaxation is not None
        problem, profile = state.problem, state.profile
        larger = profile.has_weak_ridge and not profile.is_tiny_model
        v = _first_step(problem.replaced(lam=profile.curvature), state) if larger else -state.relaxation.inner.g
        state.pool.add(refit(problem, problem.constraint.select(v), None, state.first_b, _ROUGH, state.stop))
        yield


def _first_step(problem: Problem, state: AutoState) -> Vector:
    """Return the model after one step on a relaxation."""
    relaxed = Relaxed(random_state=state.random_state)
    inner = relaxed.init(problem, Start(stop=state.stop))
    relaxed.advance(problem, inner)
    inner.engine.rest()
    return relaxed.relaxed_model(problem, inner)


class ForwardSelection(Stage):
    """Add features one by one, swap, and perturb in a small X, before the relaxation, which takes longer; unless that is tight."""

    seeks_starts = True

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        return profile.starts_greedily

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        yield from state.select_forward(state.first_b)
        if state.profile.is_small and state.profile.is_quadratic:  # takes a part of the relaxation's time
            yield from state.search_best()
            yield


# ---------------------------------------------------------------------------------------------------------------------
# The relaxation


class EarlyShift(Stage):
    """Swap and shift after one step on the relaxation: with more samples than features that proves more, and sooner."""

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        return profile.is_shiftable and profile.is_tall

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        _advance(state)
        yield
        yield from state.search_best()
        yield from Shift().run(state)


class RelaxationSolution(Stage):
    """Solve the relaxation as far as that closes the gap; refit its roundings once their support no longer changes much."""

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        relaxation = state.relaxation
        assert relaxation is not None
        if relaxation.rounded is None:
            _advance(state)
        while not relaxation.suffices(state.gap):
            relaxation.left = relaxation.is_hopeless(state.objective) and not _tree_follows(state)
            if relaxation.left:
                break
            if relaxation.is_worth_a_refit(state.gap):
                yield from _refit(state, relaxation)
            yield
            if relaxation.solved:
                break
            _advance(state)
        relaxation.rest()


def _advance(state: AutoState) -> None:
    assert state.relaxation is not None
    rounded = state.relaxation.advance()
    state.prove(state.relaxation.bound)
    state.pool.add(rounded)


def _tree_follows(state: AutoState) -> bool:
    """Whether branching is for a problem of so many features and so wide a gap, whatever screening will leave of them."""
    return state.profile.is_branchable(state.problem.shape[1], state.exceeds(_WIDE))


def _refit(state: AutoState, relaxation: RelaxationRun) -> Iterator[None]:
    """Refit a rounding, and swap from there where the relaxation is far from its solution."""
    rounded, reads = relaxation.rounded, state.problem.design.passes
    assert rounded is not None
    fit = state.fit(relaxation.support, rounded.w, rounded.b)
    relaxation.note_refit(reads)
    if relaxation.is_worth_a_descent(state.gap):
        yield
        yield from state.descend(relaxation.support, fit.w, fit.b)


class RelaxationAgain(RelaxationSolution):
    """Go on with a relaxation that was hopeless beside a poorer incumbent."""

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        assert state.relaxation is not None
        if state.relaxation.left:
            yield from super().run(state)


class RelaxationRounding(Stage):
    """Refit the roundings of the relaxation's model and of its dual point's; search from them after forward selection."""

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        assert state.relaxation is not None
        for v in state.relaxation.models():
            fit = state.fit(state.problem.constraint.select(v), v, state.relaxation.b)
            yield
            if state.profile.starts_greedily and state.profile.is_small and not state.start_stands:
                yield from state.search(np.flatnonzero(fit.w), fit.w, fit.b)
                yield


class Swaps(Stage):
    """Improve the incumbent by swaps and, for the squared loss, perturbations."""

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        if state.sampled:  # searches were made on some of the rows, and swap optimality finds what is left
            return
        if state.profile.is_quadratic:  # perturbations take several times as long as the swaps before them
            yield from state.descend(state.best.support, state.best.w, state.best.b)
            yield
        yield from state.search_best()
        yield


class Shift(Stage):
    """Move curvature of the features in play into the ridge, screen, and again while features leave."""

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        return profile.is_shiftable

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        for p in shifts(state):
            yield from state.search(state.problem.constraint.select(p), p, state.best.b)
            yield


def shifts(state: AutoState, gram: Callable[[Problem, Indices], Gram] = problem_gram) -> Iterator[Vector]:
    """Prove bounds of shifted relaxations, each on the features that the last one leaves in play; yield their models."""
    problem, most = state.problem, float(min(MOST_SHIFTED, state.problem.shape[0]))
    while state.is_open:
        best, bound = state.best, state.proved
        features, ceiling = state.in_play()
        if not 0 < len(features) <= most or not problem.design.keepable(features):
            return
        most = PROGRESS * len(features)
        known = gram(problem, features)
        origin, solved = bound if len(others(problem, features)) else None, None
        for alike in (False, True) if len(features) <= _FEW else (False,):
            ridges = shifted_ridges(problem, features, known, alike=alike)
            if is_shifted(problem, ridges):
                relaxation = GramRelaxation(problem, features, ridges, known)
                solved = relaxation.solve(p0=best.w if solved is None else solved.p, tol=_SHIFT_ACCURACY)
                state.prove(relaxation.certified(solved.p, ceiling=ceiling, origin=origin))
        if solved is None:
            return
        yield solved.p


# ---------------------------------------------------------------------------------------------------------------------
# Further starts, while the gap is loose


class Continuation(Stage):
    """Start from the relaxations for larger ridges, whose supports are less divided between correlated features."""

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        if not state.exceeds(LOOSE) or state.sampled:
            return
        problem, alpha = state.problem, None
        searches_all = (state.profile.is_small or problem.loss.is_squared_error) and not state.start_stands
        for factor in _FACTORS:
            larger = problem.replaced(lam=factor * problem.lam)
            relaxed = Relaxed(accuracy=_ROUGH, random_state=state.random_state)
            inner = relaxed.init(larger, Start(alpha=alpha, stop=state.stop))
            spent = state.budget.within(np.inf if state.profile.is_small else _MOST_READS)
            for _ in range(_MOST_STEPS):
                if inner.settled or spent():
                    break
                relaxed.advance(larger, inner)
            inner.engine.rest()
            alpha = inner.engine.alpha
            state.larger_ridges.append((larger.lam - problem.lam, inner.bound.claimed))
            w = relaxed.relaxed_model(larger, inner)
            support = problem.constraint.select(w)
            fit = state.fit(support, w, inner.engine.b)
            if searches_all or fit.objective <= (1.0 + _PROMISING) * state.objective:
                yield from state.search(support, fit.w, fit.b)
            yield


class LargerRidge(Stage):
    """Swap for larger ridges, where gains are more than rounding, then for the problem's own."""

    seeks_starts = True

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        return profile.is_quadratic and profile.is_small and profile.has_negligible_ridge

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        if not state.exceeds(LOOSE):
            return
        for factor in _FACTORS:
            larger, best, pool = state.problem.replaced(lam=factor * state.problem.lam), state.best, Pool()
            fit = refit(larger, best.support, best.w, best.b, REFIT, state.stop)
            pool.add(fit)
            state.swap(larger, best.support, fit.w, fit.b, pool=pool)
            assert pool.best is not None
            state.fit(pool.best.support, pool.best.w, pool.best.b)
            yield from state.search_best()
            yield


class Reselection(Stage):
    """Forward selection for losses with kinks, and under groups and limits, then swaps."""

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        squared = profile.problem.loss.is_squared_error
        return profile.is_small and profile.is_greedy and not squared and not profile.starts_greedily

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        if state.exceeds(LOOSE):
            yield from state.select_forward(0.0)
            yield from state.search_best()
            yield


class Perturbation(Stage):
    """Forbid a few features of the incumbent, search, and search on with all allowed, where no search is compiled.

    The squared loss does so in every search.
    """

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        return profile.is_small and not profile.is_quadratic and not profile.searches_compiled

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        rng = np.random.default_rng(state.random_state)
        profile, plain = state.profile, state.problem.constraint.is_plain
        goes_on = plain and not _tree_follows(state) and not profile.has_many_rows_each
        further = _KICKED * state.budget.reads if goes_on else 0.0
        spent = state.budget.within(SEARCH_READS + further)
        for t in range(PERTURBATIONS):
            undecided = state.screened()
            if undecided is None or not state.exceeds(LOOSE) or spent():
                return
            best = state.best
            free = np.setdiff1d(best.support, undecided.constraint.free(state.problem.shape[1])[1])
            removed = rng.choice(free, min(1 + t % _MOST_REMOVED, len(free)), replace=False)
            other = undecided.replaced(constraint=undecided.constraint.restricted(_NONE, np.sort(removed)))
            fit = state.swap(other, np.setdiff1d(best.support, removed), best.w, best.b)
            yield from state.descend(np.flatnonzero(fit.w), fit.w, fit.b)
            yield


class ManyStarts(Stage):
    """Search from many starts in compiled code: of an X that is small enough to be formed."""

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        return profile.searches_compiled

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        d, starts, look = state.problem.shape[1], state.starts, _LOOK
        effort = Effort(_RESTARTS, _in_vain(state))
        starts.know(state.best.support, state.objective)
        while starts.returned < _RETURNED and state.exceeds(LOOSE) and not effort.is_spent and not state.stop():
            undecided, best = state.screened(), state.objective
            if undecided is None:
                return
            found = starts.search(undecided, min(effort.left, max(effort.patience, _in_vain(state))))
            effort.spend(found.effort)
            state.effort += found.effort
            if found.objective < best - REFIT * abs(best):
                state.fit(found.support, np.zeros(d), state.best.b)
            if state.objective < best:
                effort.pay()
                effort.patience = max(_in_vain(state), effort.spent)
            if state.objective < best or effort.spent >= look:
                look = effort.spent + _LOOK
                yield


def _in_vain(state: AutoState) -> float:
    """Effort of searches in a row that may lead to nothing: less where the gap leaves little to gain."""
    return _RESTARTS_IN_VAIN * min(1.0, state.gap / max(_TIGHT * abs(state.objective), np.finfo(float).tiny))


class SwapOptimality(Stage):
    """Swap until none improves the incumbent, with the proof that none does."""

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        yield from state.settle()
        yield


class Restarts(Stage):
    """Exchange several features of the swap-optimal incumbent of text at once and swap from there: words stand for each other."""

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        problem, size = profile.problem, profile.problem.constraint.size
        compiled = problem.samples.here and problem.loss.kernel() is not None and not problem.loss.is_quadratic
        few = size <= MOST_GLANCED and problem.constraint.is_plain and problem.n_targets == 1
        text = problem.design.has_short_rows and not profile.has_many_rows and (profile.is_small or size >= _EXCHANGED)
        return compiled and few and text and worth_compiling(problem, size) and not profile.searches_compiled

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        rng, size = np.random.default_rng(state.random_state), state.problem.constraint.size
        effort, in_vain = Effort(_RESTARTS, _RESTARTS_IN_VAIN), 0
        while in_vain < _MOST_RESTARTED and state.exceeds(LOOSE) and not effort.is_spent and not state.stop():
            better = state.restart(rng, max(size * (1 + in_vain) // _EXCHANGED, 1 + in_vain), NARROW, effort)
            in_vain = 0 if better else in_vain + 1
            if better:
                effort.pay()
            yield
        state.effort += effort.spent
        yield from state.settle()
        yield


# ---------------------------------------------------------------------------------------------------------------------
# The search tree


class ShortTree(Stage):
    """Branch and bound as far as the first look at a tree: what is proved by then needs no further starts."""

    def applies(self, profile: Profile) -> bool:
        """Whether a problem of this profile gets the stage."""
        return profile.is_branchable(1, False)

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        tree = _tree(state)
        if tree is None:
            return
        while tree.open and tree.operations < _FIRST_LOOK * _BUDGET and not state.stop():
            tree.step()
        state.grown_at = state.objective
        state.prove(tree.bound())
        yield


class Branching(ShortTree):
    """Branch and bound within a budget of operations, the same whatever the clock and the number of threads.

    Of a tree that can be closed some nodes are closed early, well before the least bound has risen much. Where hardly any are, the
    search ends after a small part of the budget.
    """

    def run(self, state: AutoState) -> Iterator[None]:
        """Improve the incumbent or the bound."""
        tree = _tree(state)
        if tree is None:
            return
        look = _FIRST_LOOK * _BUDGET
        while tree.open and not is_spent(tree) and not state.stop():
            state.prove(tree.bound())
            yield
            if tree.operations >= look:
                sure = tree.operations >= _SURE_LOOK * _BUDGET or state.exceeds(_WIDE)
                if sure and len(tree.closed) < _CLOSED_SHARE * tree.solved:
                    return
                look = 2.0 * tree.operations
            tree.step()
        state.prove(tree.bound())
        yield


def _tree(state: AutoState) -> Tree | None:
    """Return the tree so far, or a new one where the incumbent is better now; None where nodes cost too much, or memory."""
    if state.tree is not None and state.objective >= state.grown_at - CLOSED * abs(state.grown_at):
        return state.tree
    features = state.in_play()[0]
    branchable = state.profile.is_branchable(len(features), state.exceeds(_WIDE))
    if not (branchable and state.problem.design.keepable(features)):
        return None
    state.tree = plant(state.problem, state.pool, state.proved, state.stop)
    return state.tree


def is_spent(tree: Tree) -> bool:
    """Whether a tree has open nodes and no budget left."""
    return bool(tree.open) and tree.operations >= _BUDGET

"""Nodes of search trees: what solves them, one by one or many at a time.

A node is the part of the problem with some features inside and some outside (`constraint.Node`): its relaxation is of the same kind
as the root's, and starts from its parent's solution.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from diht.bounds.duality import Bound, feasible, least_rounding, lower_bound
from diht.bounds.rule import Rule, SparseVector
from diht.bounds.shift import FOUND, ShiftedPoint, own_ridges, problem_gram, shifted_ridges
from diht.constraints.base import Constraint
from diht.constraints.limits import Limits
from diht.design.base import SMALLEST
from diht.design.gram import Gram
from diht.numerics.arrays import Indices, Vector
from diht.problem import Problem
from diht.refit import never, refit
from diht.relaxation.engines import NewtonEngine, newton_pays
from diht.relaxation.gram import GramRelaxation, Proved, can_shift
from diht.relaxation.quadratic import Minimiser
from diht.samples import Rows
from diht.solvers.base import Start
from diht.solvers.relaxed import Relaxed

if TYPE_CHECKING:
    from diht.relaxation import logistic_nodes
    from diht.relaxation.node_kernels import Batch

__all__ = ["InPlay", "Leaf", "Nodes", "Part", "Proof", "Solved", "node_gram", "workers_for"]

Proof: TypeAlias = ShiftedPoint | Rule | Rows | None  # of a leaf: see `Leaf.proof`

_USEFUL = 0.05  # a node's relaxation is solved to this fraction of what separates its bound from the best objective
_ACCURACY = 1e-9  # and no further than this
_WHOLE_GRAM = 3000  # features up to which nodes work on the Gram matrix of all; beyond, on that of a working set
# Of the objective: how much a bound may lose where its rule takes the place of the dual point, and however near to it.
_TOLERABLE, _ROUNDED = 1e-4, 1e-12
_CLEAR, _NEGLIGIBLE = 2e-11, 1e-3  # share of a bound, or of its distance to the best objective, that rounding may take
_CLEAR_RULE = 1e-10  # the same of a bound whose dual point a rule has to give again
_FAR = 1e3  # sum of the sizes of a margin's terms beyond which compiled nodes are not trusted to have the dual point of a rule
_SHORT = 100  # samples up to which a compiled node's bound is measured once more, at the point that its rule gives
_RENEWED = 300  # features up to which a node finds ridges of its own: a few factorisations of their Gram matrix
_MOST_STEPS = 100
_READS = 4.0  # of X, about, by a node whose working set is not all of it
_WHOLE = 1e-9  # a share of a place that differs from 0 or 1 by less counts as none, or all of it
# Operations of a node, about as many as take a nanosecond each: of any, of a compiled one, of a proximal step by numpy besides its
# product, of a bound from the data, of a step of Newton's method besides its Hessian. How many times as much such a step takes
# where the loss is smoothed, and with groups or signs.
_EACH_NODE, _COMPILED_NODE, _NUMPY_STEP, _PRECISE, _NEWTON_STEP = 4e5, 5e4, 1e5, 4e6, 1e6
_SMOOTHED, _GROUPED = 5.0, 8.0
_FEW_LIMITED = 4  # nodes with limits of coefficients that are solved by numpy: tens of milliseconds each
_EXPONENTIALS = 100.0  # of a sample in a step of Newton's method, compiled
_LOGISTIC = 1  # as `Loss.kernel` has it
_COPIED = 4e6  # entries of the features in play up to which compiled nodes have a copy of their own
_THREADED = 20_000  # entries of X from which a second thread pays


@dataclass(frozen=True, eq=False, slots=True)
class Leaf:
    """A node that has not been split.

    Attributes
    ----------
    inside, outside : arrays of int
        What has been decided.
    bound : float
        No model of the node has an objective below it.
    rounding : float
        What was subtracted from it for rounding.
    proof : ShiftedPoint, Rule, Rows or None
        The dual point of the bound: that of a shift; the rule of alpha; alpha itself where coordinate ascent found it and no rule
        gives as good a bound; None for that of the root.
    w : SparseVector
        The relaxation's model, from which its children start.
    feature : int
        What to split on; -1 where nothing is undecided.
    exhausted : bool
        Whether more work on it would not help.
    screened : pair of arrays of int, or None
        Where the rest of the node is elsewhere in the tree: it holds the models that lack one of the first features, or have one
        of the second.
    """

    inside: Indices
    outside: Indices
    bound: float
    rounding: float
    proof: Proof = field(repr=False)
    w: SparseVector = field(repr=False)
    feature: int = -1
    exhausted: bool = False
    screened: tuple[Indices, Indices] | None = None

    def __lt__(self, other: Leaf) -> bool:
        return self.bound < other.bound

    def children(self) -> tuple[Part, ...]:
        """The two parts: with the feature, and without; where nothing is undecided, the node itself, to be solved further."""
        if self.feature < 0:
            return ((self, self.inside, self.outside),)
        with_it, without = np.append(self.inside, self.feature), np.append(self.outside, self.feature)
        return (self, np.sort(with_it), self.outside), (self, self.inside, np.sort(without))

    def nodes(self) -> list[tuple[Indices, Indices]]:
        """What is decided of the nodes that it is made of: itself, or one for each feature that was screened."""
        if self.screened is None:
            return [(self.inside, self.outside)]
        needed, barred = self.screened
        return [(self.inside, np.append(self.outside, j)) for j in needed] + [
            (np.append(self.inside, j), self.outside) for j in barred
        ]


Part: TypeAlias = tuple[Leaf, Indices, Indices]  # of a node: its parent, and what is decided of it


class Found(NamedTuple):
    """What is found of a node: a bound, its proof and the relaxation's model, and about how many operations that took."""

    proved: Proved
    proof: Proof
    w: SparseVector
    operations: float


class Solved(NamedTuple):
    """A node as it becomes part of the tree.

    Attributes
    ----------
    leaf : Leaf
    operations : float
        About how many it took.
    support : array of int
        That of the model which its relaxation rounds to.
    promise : float
        About what the best model on it costs; -inf where that is not known.
    screened : Leaf or None
        The models of the node that the leaf does not hold.
    """

    leaf: Leaf
    operations: float
    support: Indices
    promise: float
    screened: Leaf | None = None


class Nodes(ABC):
    """What solves the relaxations of nodes; each thread has its own."""

    stop: Callable[[], bool] = staticmethod(never)
    sparing = False  # whether memory is to be spared
    few = 64  # nodes of a tree after which the others are solved by compiled steps
    many = False  # whether so many nodes are to come that compiling pays
    long = False  # whether there are so many that compiling all steps of a node as one does
    screening = True  # whether features may be decided by screening

    def __init__(self, problem: Problem, features: Indices) -> None:
        self.problem, self.features = problem, features

    @abstractmethod
    def solve(self, constraint: Constraint, w: SparseVector, proof: Proof, objective: float) -> Found:
        """Solve a node, starting from its parent's model and proof.

        The relaxation need not be solved further than to a bound of `objective`.
        """

    def spared(self, constraint: Constraint, leaf: Leaf) -> Leaf:
        """Return a leaf as one that takes less memory, at the price of some of its bound."""
        return leaf

    def promise(self, support: Indices) -> float:
        """Return about what a model on a support costs, where that is cheaper than to fit it; else -inf."""
        return -np.inf

    def solve_all(self, parts: Sequence[Part], objective: float) -> Iterator[Solved]:
        """Solve nodes; those that there is no time for keep what is known of their parents.

        What is left to do after the call has to be done in one thread.
        """
        return iter([self._solved(part, objective) for part in parts])

    def _solved(self, part: Part, objective: float) -> Solved:
        """Solve one; where its parent proves more, it keeps that proof."""
        parent, inside, outside = part
        constraint = self.problem.constraint.restricted(inside, outside)
        proved, proof, w, exhausted = Proved(parent.bound, parent.rounding), parent.proof, parent.w, False
        operations = 0.0
        if not self.stop():
            exhausted = parent.feature < 0
            found, own, w, operations = self.solve(constraint, w, proof, objective)
            if found.value >= proved.value:
                proved, proof = found, own
        support = constraint.select(w.dense)
        leaf = replace(self.leaf(inside, outside, proved, proof, w), exhausted=exhausted)
        return Solved(leaf, operations, support, self.promise(support))

    def leaf(self, inside: Indices, outside: Indices, proved: Proved, proof: Proof, w: SparseVector) -> Leaf:
        """A leaf with what to split it on."""
        constraint = self.problem.constraint.restricted(inside, outside)
        free = np.zeros(w.size, dtype=bool)
        free[self.features] = True
        free[constraint.closure(inside)] = free[constraint.closure(outside)] = False
        roots = self.roots(proof)
        sizes, constraint = (w.dense, constraint) if roots is None else (w.dense * roots, constraint.times(roots))
        return Leaf(inside, outside, *proved, proof, w, _undecided(constraint, sizes, free, roots is not None))

    def roots(self, proof: Proof) -> Vector | None:
        """Return the roots of the ridges of a proof, in whose units places are shared; None where all are the same."""
        return None

    def _states(self, parts: Sequence[Part]) -> tuple[NDArray[np.int8], int]:
        """Which features in play are inside (1), free (0) and outside (-1) in some nodes, and how many may be inside."""
        m, inside, outside = self.problem.constraint.free(self.problem.shape[1])
        states = np.zeros((len(parts), self.problem.shape[1]), dtype=np.int8)
        states[:, inside], states[:, outside] = 1, -1
        for i, (_, included, excluded) in enumerate(parts):
            states[i, included], states[i, excluded] = 1, -1
        return states.take(self.features, 1), m + len(inside)


class GramNodes(Nodes):
    """Nodes of the squared loss, on a Gram matrix; each with ridges of its own, where few features are left."""

    def __init__(self, problem: Problem, features: Indices, ridges: Vector, known: Gram | None) -> None:
        super().__init__(problem, features)
        self.relaxation = GramRelaxation(problem, features, ridges, known)
        if not problem.constraint.is_plain:
            self.few = min(self.few, _FEW_LIMITED)

    def solve(self, constraint: Constraint, w: SparseVector, proof: Proof, objective: float) -> Found:
        """Minimise on the Gram matrix."""
        relaxation = self.relaxation.narrowed(constraint, _RENEWED)
        relaxation.begin(self.many)  # whatever was solved before
        own = None
        if relaxation is not self.relaxation:
            own = SparseVector(w.size, relaxation.features, relaxation.ridges)
        solved = relaxation.solve(constraint, w.dense, tol=_ACCURACY, cutoff=objective, stop=self.stop)
        p = SparseVector.of(solved.p)
        proved = Proved(solved.safe, solved.bound - solved.safe)
        n = float(len(relaxation.gram.features))
        operations = _EACH_NODE + solved.iterations * (n**2 + (0.0 if self.many else _NUMPY_STEP))
        operations += 0.0 if own is None else n**3
        operations += 0.0 if relaxation.is_full else _READS * relaxation.problem.design.entries()
        operations += 0.0 if constraint.is_plain else _GROUPED * _NEWTON_STEP
        if not _is_clear(proved, objective):
            proved, operations = relaxation.node_bound(solved.p, constraint), operations + _PRECISE
        return Found(proved, ShiftedPoint(p, own), p, operations)

    def promise(self, support: Indices) -> float:
        """Solve the normal equations; signs may cost more."""
        return self.relaxation.objective(support) * (1.0 - 1e-9)

    def roots(self, proof: Proof) -> Vector | None:
        """Return the roots of its own ridges, or of the whole."""
        assert isinstance(proof, ShiftedPoint)
        whole = SparseVector(self.problem.shape[1], self.features, self.relaxation.ridges)
        return np.sqrt((whole if proof.ridges is None else proof.ridges).dense)

    # Many at a time

    @cached_property
    def _gram(self) -> Gram:
        """The Gram matrix of the features in play, in their order."""
        return self.relaxation.gram.among(self.features)

    def solve_all(self, parts: Sequence[Part], objective: float) -> Iterator[Solved]:
        """Solve them together by compiled code where there are many, on few features."""
        constraint, relaxation, d = self.problem.constraint, self.relaxation, self.problem.shape[1]
        small = relaxation.is_full and len(self.features) <= _RENEWED
        if not (self.many and small and constraint.plain is not None) or self.stop():
            return super().solve_all(parts, objective)
        from diht.relaxation.node_kernels import Batch, Quadratic, solve_many_nodes, solve_nodes

        states, k = self._states(parts)
        p, ridges = np.zeros((2, len(parts), d))
        for i, (parent, _, _) in enumerate(parts):
            assert isinstance(parent.proof, ShiftedPoint)
            p[i, parent.w.support] = parent.w.values
            own = parent.proof.ridges or SparseVector(d, self.features, relaxation.ridges)
            ridges[i, own.support] = own.values
        gram, play = self._gram, self.features
        none = np.full(d, np.inf)
        within = Limits(-none, none) if constraint.limits is None else constraint.limits
        limits = constraint.limits is not None, within.lower[play], within.upper[play]
        rank = self.problem.samples.n_weighted - self.problem.fit_intercept
        quadratic = Quadratic(gram.matrix, gram.size, gram.error, self.problem.lam, k, rank, FOUND, *limits)
        batch = Batch.of(states, p.take(play, 1), ridges.take(play, 1))
        known = np.array([parent.bound for parent, _, _ in parts])
        kernel = solve_many_nodes if self.long else solve_nodes
        kernel(quadratic, batch, known, objective, objective if self.screening else np.inf)
        return (self._taken(part, batch, i, objective) for i, part in enumerate(parts))

    def _taken(self, part: Part, batch: Batch, i: int, objective: float) -> Solved:
        """Return a node of a batch; where its parent proves more, it keeps that proof."""
        (parent, inside, outside), d, play = part, self.problem.shape[1], self.features
        safe, rounding, feature, model, steps, excess, n = batch.found[i].tolist()
        used, left = np.flatnonzero(batch.p[i]), np.flatnonzero(batch.states[i] >= 0)
        p, own = (SparseVector(d, play[at], row[at]) for at, row in ((used, batch.p[i]), (left, batch.ridges[i])))
        proved = Proved(safe, rounding)
        proof: Proof = ShiftedPoint(p, own)
        operations = _COMPILED_NODE + steps * n**2 + (n**3 if np.any(own.values > 0.5 * self.problem.lam) else 0.0)
        if not _is_clear(proved, objective):
            constraint = self.problem.constraint.restricted(inside, outside)
            relaxation = GramRelaxation(self.problem, own.support, own.values, self.relaxation.gram.among(own.support))
            proved, operations = relaxation.node_bound(p.dense, constraint), operations + _PRECISE
        screened = None
        if np.isfinite(excess):
            needed, barred = play[batch.fixed[i] > 0], play[batch.fixed[i] < 0]
            screened = Leaf(inside, outside, excess, rounding, proof, p, -1, True, (needed, barred))
            inside, outside = (np.sort(np.append(*pair)) for pair in ((inside, needed), (outside, barred)))
        if proved.value < parent.bound:
            proved, proof = Proved(parent.bound, parent.rounding), parent.proof
        feature = int(play[int(feature)]) if feature >= 0.0 else -1
        leaf = Leaf(inside, outside, *proved, proof, p, feature, parent.feature < 0)
        return Solved(leaf, operations, play[batch.chosen[i] > 0], model * (1.0 - 1e-9), screened)


def _is_clear(proved: Proved, objective: float, share: float = _CLEAR) -> bool:
    """Whether rounding takes so little off a bound that there is no need to look at the data."""
    most = max(share * proved.value, _NEGLIGIBLE * abs(objective - proved.value))
    return proved.value > 0.0 and proved.rounding <= most


class NewtonNodes(Nodes):
    """Nodes of any loss, few features in play."""

    few = 16

    def __init__(self, problem: Problem, features: Indices, alpha: Rows) -> None:
        super().__init__(problem, features)
        self.in_play = InPlay(problem, features, alpha)
        begin = feasible(problem, alpha)
        self.engine = NewtonEngine(self.in_play.problem, None, begin, np.zeros(len(features)), 0.0)
        self.b = self.engine.b

    def solve(self, constraint: Constraint, w: SparseVector, proof: Proof, objective: float) -> Found:
        """Newton's method until the bound is good enough."""
        part, features = self.in_play.node(constraint), self.features
        best, model = self.in_play.bound(part, proof), SparseVector.of(w.dense[features])
        m, inside, outside = part.constraint.free(len(features))
        rest = np.setdiff1d(np.arange(len(features)), np.union1d(inside, outside))
        closed = False
        if m <= 0 or part.constraint.fits(rest, len(features)):  # one support is left: its refit and dual point say all
            fit = refit(part, inside if m <= 0 else np.union1d(inside, rest), model.dense)
            model = SparseVector.of(fit.w)
            rule = Rule(model, fit.b)
            own = lower_bound(part, rule.dual(part))
            if own.value > best.value:
                best, proof = own, rule.among(features, w.size)
            closed = fit.objective - best.value <= _ACCURACY * abs(objective) or best.value >= objective
        steps = 1
        if not closed and not self.engine.hides(objective - best.value):
            own, found, steps = self.improved(part, model.dense, best, objective)
            model = SparseVector.of(self.engine.w)
            if own.value > best.value:
                best, proof = own, found.among(features, w.size) if isinstance(found, Rule) else found
        operations = _NEWTON_STEP + part.samples.design.dense_gram_cost(len(features))
        operations *= steps * (_SMOOTHED if self.engine.strength else 1.0)
        operations *= 1.0 if part.constraint.is_plain else _GROUPED
        return Found(Proved(best.value, best.rounding), proof, model.among(features, w.size), operations)

    def improved(self, part: Problem, w: Vector, best: Bound, objective: float) -> tuple[Bound, Proof, int]:
        """Make steps from a model and a dual point; return the best bound, the proof of a better one, and how many they were."""
        engine, rule, proved, steps = self.engine, None, best, 0
        own: Proof = None
        proof: Proof = None
        engine.b, engine.largest = self.b, 0.0  # whatever was solved before
        engine.minimise, engine.many = Minimiser(part.shape[0], self.many), self.many
        engine.restart(part, w, best.alpha)
        while steps < _MOST_STEPS:
            engine.improve()
            steps += 1
            if engine.rule is not None and engine.rule is not rule:  # a better dual point than before
                rule = engine.rule
                proved, own = _by_rule(part, rule, engine.alpha, engine.dual, objective)
            if proved.value > best.value:
                best, proof = proved, own
            open_gap = max(objective - best.value, 0.0)
            left = engine.value - max(best.value, engine.dual)
            solved = best.value >= objective or left <= max(_USEFUL * open_gap, _ACCURACY * abs(objective))
            # To rounding, of which further steps gain nothing; a trivial bound tells nothing of it.
            trivial = proved.value <= part.trivial_bound
            lost = least_rounding(part, engine.alpha) if trivial else engine.dual - proved.value
            if solved or lost >= engine.value - best.value or engine.finished or self.stop():
                break
        return best, proof, steps

    # Many at a time

    @cached_property
    def _classified(self) -> logistic_nodes.Classified | None:
        """The problem as compiled code has it: of a logistic loss, not too large for a copy of its own."""
        part, own = self.in_play.problem, self.problem.constraint
        kernel, entries = part.loss.kernel(), part.shape[0] * part.shape[1]
        logistic = kernel is not None and kernel[0] == _LOGISTIC and part.n_targets == 1
        if not (logistic and part.samples.whole and own.is_plain and self.in_play.is_compact and entries <= _COPIED):
            return None
        from diht.relaxation.logistic_nodes import Classified

        design = part.samples.design
        error, lost = design.rmatvec_error(1.0), design.rmatvec_error(0.0)
        underflow = lost + SMALLEST * np.sqrt(part.shape[0]) * design.column_norms()
        columns = np.ascontiguousarray(part.design.toarray(copy=False).T)
        return Classified(
            columns,
            part.samples.y,
            part.samples.s,
            part.lam,
            0,
            part.fit_intercept,
            error,
            underflow,
            design.column_norms(),
        )

    def solve_all(self, parts: Sequence[Part], objective: float) -> Iterator[Solved]:
        """Solve them together by compiled code where there are many."""
        if not self.many or self._classified is None or self.stop():
            return super().solve_all(parts, objective)
        from diht.relaxation.logistic_nodes import BOUND, DRIFT, INTERCEPT, ROUNDING, Batch, solve_nodes

        states, k = self._states(parts)
        problem, w = self._classified._replace(k=k), np.zeros((len(parts), self.problem.shape[1]))
        for i, (parent, _, _) in enumerate(parts):
            w[i, parent.w.support] = parent.w.values
        batch = Batch.of(states, w.take(self.features, 1))
        batch.found[:, INTERCEPT] = [
            parent.proof.b if isinstance(parent.proof, Rule) else self.b for parent, _, _ in parts
        ]
        solve_nodes(problem, batch, np.array([parent.bound for parent, _, _ in parts]), objective)
        left = np.flatnonzero(batch.found[:, BOUND] < objective)  # whose models' supports are nodes of their own
        models = Batch.of(2 * batch.chosen[left] - 1, batch.w[left])
        models.found[:, INTERCEPT] = batch.found[left, INTERCEPT]
        solve_nodes(problem, models, np.zeros(len(left)), objective)
        promises = np.full(len(parts), np.inf)
        promises[left] = models.found[:, BOUND]
        # A dual point follows from its rule but for the rounding of margins, which may count for more than that of X'(s alpha); as
        # l'' <= |l'|, by the squared ratio of the terms of a margin to the samples. Where it is large, numpy solves the node.
        extent = (np.abs(batch.at) + np.abs(batch.step)) @ np.abs(problem.columns).max(axis=1, initial=0.0)
        extent += np.abs(batch.found[:, INTERCEPT]) + np.abs(batch.found[:, DRIFT])
        more = batch.found[:, ROUNDING] * ((1.0 + 4.0 * extent / len(problem.y)) ** 2 - 1.0)
        more[extent > _FAR] = np.inf
        batch.found[:, BOUND] -= more
        batch.found[:, ROUNDING] += more
        clear = [_is_clear(Proved(*found), objective, _CLEAR_RULE) for found in batch.found[:, : ROUNDING + 1].tolist()]
        return (
            self._taken(part, batch, i, promises[i]) if clear[i] else self._solved(part, objective)
            for i, part in enumerate(parts)
        )

    def _taken(self, part: Part, batch: logistic_nodes.Batch, i: int, promise: float) -> Solved:
        """Return a node of a batch; where its parent proves more, it keeps that proof."""
        (parent, inside, outside), d, play = part, self.problem.shape[1], self.features
        bound, rounding, feature, steps, n, b, drift = batch.found[i].tolist()
        w, at, step = (SparseVector.of(row[i]).among(play, d) for row in (batch.w, batch.at, batch.step))
        proved = Proved(bound, rounding)
        proof: Proof = Rule(at, b, self.problem.loss, step, drift)
        if self.problem.shape[0] <= _SHORT:
            node = self.in_play.node(self.problem.constraint.restricted(inside, outside))
            again = self.in_play.bound(node, proof)
            if again.value < bound:
                bound, proved = again.value, Proved(again.value, again.rounding)
        if not bound >= parent.bound:
            proved, proof = Proved(parent.bound, parent.rounding), parent.proof
        feature = int(play[int(feature)]) if feature >= 0.0 else -1
        leaf = Leaf(inside, outside, *proved, proof, w, feature, parent.feature < 0)
        operations = _COMPILED_NODE + steps * self.problem.shape[0] * (_EXPONENTIALS + 0.5 * n**2)
        return Solved(leaf, operations, play[batch.chosen[i] > 0], promise * (1.0 - 1e-9))


def _by_rule(
    node: Problem, rule: Rule, alpha: Rows, value: float, objective: float, sparing: bool = False
) -> tuple[Bound, Proof]:
    """Return the bound that a rule gives, and the rule; where its dual point is worth less than alpha, alpha's bound, and alpha.

    `value` is about what alpha is worth. Where memory is to be spared less will do, unless alpha closes the node.
    """
    proved = lower_bound(node, rule.dual(node))
    gap, size = objective - value, abs(objective)
    most = np.inf if sparing and gap > 0.0 else max(min(_USEFUL * gap, _TOLERABLE * size), _ROUNDED * size)
    if proved.value >= objective or value - proved.value <= most:
        return proved, rule
    own = lower_bound(node, alpha)
    return (proved, rule) if own.value - proved.value <= most else (own, alpha)


class RelaxedNodes(Nodes):
    """Nodes of any loss and any size."""

    def __init__(self, problem: Problem, features: Indices, alpha: Rows) -> None:
        super().__init__(problem, features)
        self.in_play = InPlay(problem, features, alpha)

    def solve(self, constraint: Constraint, w: SparseVector, proof: Proof, objective: float) -> Found:
        """Solve the relaxation from the parent's dual point."""
        node = self.in_play.node(constraint)
        relaxed = Relaxed(accuracy=_ACCURACY)
        state = relaxed.init(node, Start(alpha=self.in_play.dual(proof)))
        first = state.bound
        for _ in range(_MOST_STEPS):
            relaxed.advance(node, state)
            bound = state.bound.value
            own = state.engine.value - bound
            if bound >= objective or state.settled or own <= _USEFUL * (objective - bound) or self.stop():
                break
        model, best = SparseVector.of(relaxed.relaxed_model(node, state)), state.bound
        if best is not first:
            rule = Rule(model, state.engine.b) if state.rule is None else state.rule
            best, proof = _by_rule(node, rule, best.alpha, best.value, objective, self.sparing)
        return Found(Proved(best.value, best.rounding), proof, model, np.inf)

    def spared(self, constraint: Constraint, leaf: Leaf) -> Leaf:
        """Take the rule of the model in place of a dual point that has none."""
        if leaf.proof is None or isinstance(leaf.proof, Rule):
            return leaf
        node, rule = self.in_play.node(constraint), Rule(leaf.w, 0.0)
        bound = lower_bound(node, rule.dual(node))
        return replace(leaf, bound=bound.value, rounding=bound.rounding, proof=rule)


class InPlay:
    """The features in play, where nodes are solved and proved: on a compact copy of them where Newton's method is to work there.

    `alpha` is the dual point of the root.
    """

    def __init__(self, problem: Problem, features: Indices, alpha: Rows) -> None:
        self.features, self.alpha = features, alpha
        self.is_compact = newton_pays(problem, len(features))
        self.problem = problem.restricted(features) if self.is_compact else problem
        self.outside = np.setdiff1d(np.arange(problem.shape[1]), features)
        self._last: tuple[Proof, Rows] = None, alpha
        self._g: Vector | None = None  # X'(s alpha) of that one

    def node(self, constraint: Constraint) -> Problem:
        """The problem under the constraint of a node."""
        if self.is_compact:
            return self.problem.replaced(constraint=constraint.within(self.features))
        return self.problem.replaced(constraint=constraint.restricted(np.empty(0, dtype=np.int64), self.outside))

    def dual(self, proof: Proof) -> Rows:
        """Return the dual point of a proof; the last one is kept, for a node's children come one after the other."""
        if self._last[0] is not proof:
            self._last, self._g = (proof, self._dual(proof)), None
        return self._last[1]

    def bound(self, node: Problem, proof: Proof) -> Bound:
        """Return what a proof proves of a node."""
        alpha = self.dual(proof)
        if self._g is None:
            self._g = self.problem.samples.pull(alpha)
        return lower_bound(node, alpha, self._g)

    def _dual(self, proof: Proof) -> Rows:
        if proof is None:
            return self.alpha
        if not isinstance(proof, Rule):
            return proof
        return (proof.within(self.features) if self.is_compact else proof).dual(self.problem)


def node_gram(problem: Problem, features: Indices) -> Gram | None:
    """Return the Gram matrix that nodes work on, where it is not too large; of small problems computed in twice the precision."""
    if len(features) > _WHOLE_GRAM:
        return None
    precise = problem.precise_gram
    return problem_gram(problem, features) if precise is None else precise.rounded(features)


def _undecided(constraint: Constraint, w: Vector, undecided: NDArray[np.bool_], shifted: bool) -> int:
    """The feature to split on, one that shares a place; -1 where all that is left fits in.

    It is the one with the largest share where there is a shift, else the one whose share is nearest to 1/2. Measured, nodes of
    breast cancer with lam = 0.001 and k = 5, 10: squared loss 713, 1381 against 859, 1973; logistic 585, 1049 against 397, 711.
    """
    m, inside, outside = constraint.free(len(w))
    undecided[inside] = undecided[outside] = False  # those that every model keeps, or none, are not decided about
    free = np.flatnonzero(undecided)
    if m <= 0 or constraint.fits(free, len(w)):
        return -1
    z = constraint.places(w)[free]
    shared = np.where(z < 1.0 - _WHOLE, z, 0.0) if shifted else np.minimum(z, 1.0 - z)
    if shared.max() > _WHOLE:
        return int(free[np.argmax(shared)])
    return int(free[np.argmax(np.abs(w[free]))])


def workers_for(
    problem: Problem, features: Indices, root: Bound, ridges: Vector | None = None
) -> tuple[Vector, list[Nodes], Proof]:
    """One solver of nodes for each thread, the ridges that they use, and a first proof; known ridges are proved already."""
    n_entries = problem.shape[0] * len(features)
    n = problem.design.n_threads if n_entries >= _THREADED else 1
    own = own_ridges(problem, features)
    if can_shift(problem):
        known = node_gram(problem, features)
        if ridges is None:
            ridges = own if known is None else shifted_ridges(problem, features, known)
        gram_nodes: list[Nodes] = [GramNodes(problem, features, ridges, known) for _ in range(n)]
        return ridges, gram_nodes, ShiftedPoint(SparseVector.of(np.zeros(problem.shape[1])), None)
    if newton_pays(problem, len(features)):
        return own, [NewtonNodes(problem, features, root.alpha) for _ in range(n)], None
    return own, [RelaxedNodes(problem, features, root.alpha)], None

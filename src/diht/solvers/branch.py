r"""Branch and bound: the exact solution, by closing the gap feature by feature.

A node is the part of the problem with some features inside and some outside (`constraint.Node`): its relaxation is of the same kind
as the root's, and starts from its parent's solution. A node whose bound reaches the best objective known is closed, any other is
split on a feature that its relaxation is undecided about. The least bound of all nodes that are not split is a bound on everything.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from diht.bounds.duality import Bound, Screening, feasible, least_rounding, lower_bound, upper_bound
from diht.bounds.rule import Rule, SparseVector
from diht.bounds.shift import in_play, is_proved, others, outside_play, problem_gram, smallest_eigenvalue
from diht.constraints.base import Constraint
from diht.design.gram import Gram
from diht.fit import Fit
from diht.numerics.exact import CLEAR
from diht.numerics.threads import run_parts
from diht.problem import Problem
from diht.refit import never, refit
from diht.relaxation.engines import NewtonEngine, newton_pays
from diht.relaxation.gram import GramRelaxation, Proved
from diht.samples import Rows
from diht.search.pool import Pool
from diht.solvers.auto import Auto
from diht.solvers.auto.state import CLOSED, AutoState
from diht.solvers.base import Point, Solver, Start
from diht.solvers.relaxed import Relaxed

__all__ = ["BranchAndBound", "TreeBound"]

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]
Proof: TypeAlias = SparseVector | Rule | Rows | None  # of a leaf: see `Leaf.proof`

_USEFUL = 0.05  # a node's relaxation is solved to this fraction of what separates its bound from the best objective
_ACCURACY = 1e-9  # and no further than this
_WHOLE_GRAM = 3000  # features up to which nodes work on the Gram matrix of all; beyond, on that of a working set
# Of the objective: how much a bound may lose where its rule takes the place of the dual point, and however near to it.
_TOLERABLE, _ROUNDED = 1e-4, 1e-12
_MOST_STEPS = 100
_SAME = 1e-6  # relative loss of a tree's bound, computed again, up to which it is taken for one of the same problem
_BATCH = 8  # nodes of one step, for each thread
_THREADED = 20_000  # entries of X from which a second thread pays


@dataclass(frozen=True, eq=False)
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
    proof : SparseVector, Rule, Rows or None
        The dual point of the bound: p of a shift; the rule of alpha; alpha itself where coordinate ascent found it and no rule
        gives as good a bound; None for that of the root.
    w : SparseVector
        The relaxation's model, from which its children start.
    feature : int
        What to split on; -1 where nothing is undecided.
    exhausted : bool
        Whether more work on it would not help.
    """

    inside: Indices
    outside: Indices
    bound: float
    rounding: float
    proof: Proof = field(repr=False)
    w: SparseVector = field(repr=False)
    feature: int = -1
    exhausted: bool = False

    def __lt__(self, other: Leaf) -> bool:
        return self.bound < other.bound

    def children(self) -> tuple[tuple[Leaf, Indices, Indices], ...]:
        """The two parts: with the feature, and without; where nothing is undecided, the node itself, to be solved further."""
        if self.feature < 0:
            return ((self, self.inside, self.outside),)
        with_it, without = np.append(self.inside, self.feature), np.append(self.outside, self.feature)
        return (self, np.sort(with_it), self.outside), (self, self.inside, np.sort(without))


@dataclass(frozen=True, eq=False)
class TreeBound(Bound):
    """The least bound of a tree's leaves.

    Attributes
    ----------
    value, alpha, rounding
        As in `Bound`; alpha is that of the root.
    root : Bound
        The bound before any feature was decided; models with a feature outside `features` cost at least `ceiling` by its screening.
    features : array of int
        The features in play.
    ceiling : float
    sigma : float
        The shift of the leaves' bounds (see `diht.bounds.shift`).
    shifted : bool
        Whether the leaves are proved on Gram matrices: their proofs are then vectors p.
    leaves : tuple of Leaf
        Together they hold every model on the features in play.
    """

    root: Bound
    features: Indices
    ceiling: float
    sigma: float
    shifted: bool
    leaves: tuple[Leaf, ...]

    def renewed(self, problem: Problem) -> Bound:
        """Compute the bound again: what is outside the features, that the leaves leave nothing out, and what each one proves."""
        root = self.root.renewed(problem)
        if not _fits(problem, self) or not _covers(self.leaves, set(), set()):
            return root
        ceiling = outside_play(problem, root.screening(problem), self.features)
        sigma = self.sigma
        if sigma and not is_proved(problem_gram(problem, self.features), sigma):
            sigma = 0.0
        prove = _prover(problem, self.features, root, sigma, self.shifted)
        leaves = tuple(_renewed(leaf, prove(leaf), root) for leaf in self.leaves)
        return _of_leaves(root, self.features, ceiling, sigma, self.shifted, leaves)

    def screening(self, problem: Problem) -> Screening:
        """Bound the models without, and with, each feature by the leaves that hold them."""
        d = problem.shape[1]
        without, within = np.full(d, self.ceiling), np.full(d, self.ceiling)
        for leaf in self.leaves:
            lacking, holding = np.ones(d, dtype=bool), np.ones(d, dtype=bool)
            lacking[problem.constraint.closure(leaf.inside)] = holding[problem.constraint.closure(leaf.outside)] = False
            np.minimum(without, leaf.bound, out=without, where=lacking)
            np.minimum(within, leaf.bound, out=within, where=holding)
        within[others(problem, self.features)] = self.ceiling
        return Screening(without, within).merged(self.root.screening(problem)).above(self.value)


def _renewed(leaf: Leaf, proved: Proved, root: Bound) -> Leaf:
    """Return a leaf with a bound that was computed again, or that of the root if it is better."""
    if proved.value < root.value:
        proved = Proved(root.value, root.rounding)
    return replace(leaf, bound=proved.value, rounding=proved.rounding)


def _of_leaves(
    root: Bound, features: Indices, ceiling: float, sigma: float, shifted: bool, leaves: tuple[Leaf, ...]
) -> Bound:
    """Return the bound that a tree's leaves prove together, or the root's if that is better."""
    value = min([ceiling, *(leaf.bound for leaf in leaves)])
    if value <= root.value:
        return root
    rounding = 2.0 * root.rounding + max(leaf.rounding for leaf in leaves)
    return TreeBound(value, root.alpha, rounding, root, features, ceiling, sigma, shifted, leaves)


def _fits(problem: Problem, tree: TreeBound) -> bool:
    """Whether a tree can speak of a problem at all: its loss, its numbers of samples and features, and how many are allowed."""
    d = problem.shape[1]
    by_gram = problem.loss.is_squared_error and problem.constraint.is_plain
    if (tree.shifted and not by_gram) or tree.features.max(initial=-1) >= d:
        return False
    known = np.zeros(d, dtype=bool)
    known[tree.features] = True

    def held(vector: object) -> bool:
        if not isinstance(vector, SparseVector) or vector.size != d or vector.support.max(initial=-1) >= d:
            return False
        return bool(np.all(known[vector.support]))

    def fits(leaf: Leaf) -> bool:
        proof = leaf.proof
        if tree.shifted:
            proved = held(proof)
        elif isinstance(proof, Rule):
            proved = all(map(held, proof.vectors))
        else:
            proved = proof is None or problem.samples.holds(proof)
        if leaf.w.size != d or not proved or not np.all(known[np.append(leaf.inside, leaf.outside)]):
            return False
        return problem.constraint.restricted(leaf.inside, leaf.outside).free(d)[0] >= 0

    return all(fits(leaf) for leaf in tree.leaves)


def _prover(problem: Problem, features: Indices, root: Bound, sigma: float, shifted: bool) -> Callable[[Leaf], Proved]:
    """Return what computes the bound of a leaf from its proof, as it was computed when the leaf was solved."""
    if shifted:
        relaxation = GramRelaxation(problem, features, sigma, _node_gram(problem, features))

        def by_shift(leaf: Leaf) -> Proved:
            assert isinstance(leaf.proof, SparseVector)
            return relaxation.node_bound(leaf.proof.dense, problem.constraint.restricted(leaf.inside, leaf.outside))

        return by_shift
    place = InPlay(problem, features, root.alpha)

    def prove(leaf: Leaf) -> Proved:
        node = place.node(problem.constraint.restricted(leaf.inside, leaf.outside))
        bound = place.bound(node, leaf.proof)
        return Proved(bound.value, bound.rounding)

    return prove


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


def _node_gram(problem: Problem, features: Indices) -> Gram | None:
    """Return the Gram matrix that nodes work on, where it is not too large."""
    return problem_gram(problem, features) if len(features) <= _WHOLE_GRAM else None


def _covers(leaves: Sequence[Leaf], inside: set[int], outside: set[int]) -> bool:
    """Whether every choice of further features, after those decided, is in some leaf."""
    decisions = [set(leaf.inside.tolist()) - inside | set(leaf.outside.tolist()) - outside for leaf in leaves]
    if any(not decided for decided in decisions):
        return True
    if not leaves:
        return False
    common = set.intersection(*decisions)
    if not common:
        return False
    feature = min(common)
    with_it = [leaf for leaf in leaves if feature in leaf.inside]
    without = [leaf for leaf in leaves if feature in leaf.outside]
    return _covers(with_it, inside | {feature}, outside) and _covers(without, inside, outside | {feature})


# ---------------------------------------------------------------------------------------------------------------------
# Nodes


class Solved(NamedTuple):
    """What is found of a node: a bound, its proof and the relaxation's model."""

    proved: Proved
    proof: Proof
    w: SparseVector


class Nodes(ABC):
    """What solves the relaxations of nodes; each thread has its own."""

    stop: Callable[[], bool] = staticmethod(never)
    sparing = False  # whether memory is to be spared

    @abstractmethod
    def solve(self, constraint: Constraint, w: SparseVector, proof: Proof, objective: float) -> Solved:
        """Solve a node, starting from its parent's model and proof.

        The relaxation need not be solved further than to a bound of `objective`.
        """

    def spared(self, constraint: Constraint, leaf: Leaf) -> Leaf:
        """Return a leaf as one that takes less memory, at the price of some of its bound."""
        return leaf


class GramNodes(Nodes):
    """Nodes of the squared loss, on a Gram matrix."""

    def __init__(self, problem: Problem, features: Indices, sigma: float, known: Gram | None) -> None:
        self.relaxation = GramRelaxation(problem, features, sigma, known, many=True)

    def solve(self, constraint: Constraint, w: SparseVector, proof: Proof, objective: float) -> Solved:
        """Minimise on the Gram matrix."""
        solved = self.relaxation.solve(constraint, w.dense, tol=_ACCURACY, cutoff=objective)
        rounding, p = solved.bound - solved.safe, SparseVector.of(solved.p)
        if solved.safe > 0.0 and rounding <= CLEAR * abs(solved.safe):
            return Solved(Proved(solved.safe, rounding), p, p)
        return Solved(self.relaxation.node_bound(solved.p, constraint), p, p)


class NewtonNodes(Nodes):
    """Nodes of any loss, few features in play."""

    def __init__(self, problem: Problem, features: Indices, alpha: Rows) -> None:
        self.in_play, self.features = InPlay(problem, features, alpha), features
        begin = feasible(problem, alpha)
        self.engine = NewtonEngine(self.in_play.problem, None, begin, np.zeros(len(features)), 0.0, many=True)

    def solve(self, constraint: Constraint, w: SparseVector, proof: Proof, objective: float) -> Solved:
        """Newton's method until the bound is good enough."""
        part, features = self.in_play.node(constraint), self.features
        best, model = self.in_play.bound(part, proof), SparseVector.of(w.dense[features])
        m, inside, outside = part.constraint.free(len(features))
        rest = np.setdiff1d(np.arange(len(features)), np.union1d(inside, outside))
        closed = False
        if (
            m <= 0 or part.constraint.count(rest) <= m
        ):  # one support is left: its own refit and dual point say all there is to say
            fit = refit(part, inside if m <= 0 else np.union1d(inside, rest), model.dense)
            model = SparseVector.of(fit.w)
            rule = Rule(model, fit.b)
            own = lower_bound(part, rule.dual(part))
            if own.value > best.value:
                best, proof = own, rule.among(features, w.size)
            closed = fit.objective - best.value <= _ACCURACY * abs(objective) or best.value >= objective
        if not closed and not self.engine.hides(objective - best.value):
            own, found = self.improved(part, model.dense, best, objective)
            model = SparseVector.of(self.engine.w)
            if own.value > best.value:
                best, proof = own, found.among(features, w.size) if isinstance(found, Rule) else found
        return Solved(Proved(best.value, best.rounding), proof, model.among(features, w.size))

    def improved(self, part: Problem, w: Vector, best: Bound, objective: float) -> tuple[Bound, Proof]:
        """Make steps from a model and the dual point of a bound; return the best bound, and the proof of a better one."""
        engine, rule, proved = self.engine, None, best
        own: Proof = None
        proof: Proof = None
        engine.restart(part, w, best.alpha)
        for _ in range(_MOST_STEPS):
            engine.improve()
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
        return best, proof


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
        self.in_play = InPlay(problem, features, alpha)

    def solve(self, constraint: Constraint, w: SparseVector, proof: Proof, objective: float) -> Solved:
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
        return Solved(Proved(best.value, best.rounding), proof, model)

    def spared(self, constraint: Constraint, leaf: Leaf) -> Leaf:
        """Take the rule of the model in place of a dual point that has none."""
        if leaf.proof is None or isinstance(leaf.proof, Rule):
            return leaf
        node, rule = self.in_play.node(constraint), Rule(leaf.w, 0.0)
        bound = lower_bound(node, rule.dual(node))
        return replace(leaf, bound=bound.value, rounding=bound.rounding, proof=rule)


# ---------------------------------------------------------------------------------------------------------------------
# The tree


@dataclass
class _Tree:
    """Open nodes by their bounds, closed ones, and what all of them share."""

    problem: Problem
    root: Bound
    features: Indices
    ceiling: float
    sigma: float
    workers: list[Nodes]
    pool: Pool
    stop: Callable[[], bool] = never
    open: list[Leaf] = field(default_factory=list)
    closed: list[Leaf] = field(default_factory=list)
    solved: int = 0
    nbytes: int = 0  # memory that the leaves take
    rounded: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        for worker in self.workers:
            worker.stop = self.stop

    @property
    def shifted(self) -> bool:
        """Whether proofs are vectors p."""
        return isinstance(self.workers[0], GramNodes)

    def bytes_of(self, leaf: Leaf) -> int:
        """Memory that a leaf takes."""
        return int(leaf.inside.nbytes + leaf.outside.nbytes + leaf.w.nbytes + self._bytes_of(leaf.proof))

    def _bytes_of(self, proof: Proof) -> int:
        if proof is None:
            return 0
        return proof.nbytes if isinstance(proof, SparseVector | Rule) else self.problem.samples.bytes_of(proof)

    @property
    def objective(self) -> float:
        """The best objective known."""
        assert self.pool.best is not None
        return self.pool.best.objective

    def bound(self) -> Bound:
        """The bound that all leaves prove."""
        leaves = (*self.open, *self.closed)
        return _of_leaves(self.root, self.features, self.ceiling, self.sigma, self.shifted, leaves)

    def step(self) -> None:
        """Split the nodes with the least bounds, and solve their children."""
        batch: list[Leaf] = []
        while self.open and len(batch) < _BATCH * len(self.workers):
            leaf = heapq.heappop(self.open)
            if self.is_closed(leaf):
                self.closed.append(leaf)
            else:
                batch.append(leaf)
                self.nbytes -= self.bytes_of(leaf)
        children = [child for leaf in batch for child in leaf.children()]
        n = len(self.workers)
        dealt = [(worker, children[i::n]) for i, worker in enumerate(self.workers) if children[i::n]]
        if not dealt:
            return
        results = run_parts(self.solve_all, dealt)
        for i in range(len(children)):
            self.add(results[i % n][i // n])

    def spare_memory(self) -> None:
        """From now on keep rules in place of dual points that have none, but for those that close their leaves."""
        for worker in self.workers:
            worker.sparing = True
        held, self.open = self.open, []
        for leaf in held:
            self.nbytes -= self.bytes_of(leaf)
            self.keep(self.workers[0].spared(self.problem.constraint.restricted(leaf.inside, leaf.outside), leaf))

    def is_closed(self, leaf: Leaf) -> bool:
        """Whether a node holds nothing better than what is known, or all that it holds is known."""
        return leaf.exhausted or leaf.bound >= self.objective - CLOSED * abs(self.objective)

    def solve_all(self, worker: Nodes, children: Sequence[tuple[Leaf, Indices, Indices]]) -> list[Leaf]:
        """Solve some nodes, one after the other."""
        return [self.solve(worker, *child) for child in children]

    def solve(self, worker: Nodes, parent: Leaf, inside: Indices, outside: Indices) -> Leaf:
        """Solve a node; where its parent proves more of it, or there is no time left, it keeps the parent's proof."""
        constraint = self.problem.constraint.restricted(inside, outside)
        proved, proof, w, exhausted = Proved(parent.bound, parent.rounding), parent.proof, parent.w, False
        if not self.stop():
            exhausted = parent.feature < 0
            solved, own, w = worker.solve(constraint, w, proof, self.objective * (1.0 + 1e-12))
            if solved.value >= proved.value:
                proved, proof = solved, own
        return replace(self.leaf(inside, outside, proved, proof, w), exhausted=exhausted)

    def leaf(self, inside: Indices, outside: Indices, proved: Proved, proof: Proof, w: SparseVector) -> Leaf:
        """A leaf with what to split it on."""
        constraint = self.problem.constraint.restricted(inside, outside)
        free = np.setdiff1d(self.features, constraint.closure(np.union1d(inside, outside)))
        return Leaf(inside, outside, *proved, proof, w, _undecided(constraint, w.dense, free))

    def add(self, leaf: Leaf) -> None:
        """Take a new leaf, and the model that its relaxation rounds to."""
        self.solved += 1
        constraint = self.problem.constraint.restricted(leaf.inside, leaf.outside)
        w = leaf.w.dense
        support = constraint.select(w)
        if leaf.bound < self.objective and support.tobytes() not in self.rounded:
            self.rounded.add(support.tobytes())
            self.pool.add(refit(self.problem, support, w, 0.0))
        self.keep(leaf)

    def keep(self, leaf: Leaf) -> None:
        """Put a leaf among the open ones, or the closed."""
        self.nbytes += self.bytes_of(leaf)
        if self.is_closed(leaf):
            self.closed.append(leaf)
        else:
            heapq.heappush(self.open, leaf)


def _undecided(constraint: Constraint, w: Vector, free: Indices) -> int:
    """The feature about which a relaxation is least decided; -1 where all that is left fits in."""
    m, inside, _ = constraint.free(len(w))
    free = np.setdiff1d(free, inside)  # those that every model keeps are not decided about
    if m <= 0 or constraint.count(free) <= m:
        return -1
    z = constraint.places(w)[free]
    doubt = np.minimum(z, 1.0 - z)
    if doubt.max() > 1e-9:
        return int(free[np.argmax(doubt)])
    return int(free[np.argmax(np.abs(w[free]))])


@dataclass
class _State:
    auto: AutoState
    tree: _Tree | None = None
    full: bool = False  # whether a limit on nodes or memory ended the search


@dataclass(frozen=True)
class BranchAndBound(Solver):
    """Solve exactly: `Auto` first, then a tree of nodes, those with the least bounds first.

    Parameters
    ----------
    max_nodes : int, optional
        Nodes after which to stop, with the gap that is left.
    max_memory : float
        Bytes of the tree after which to stop; from half of it on, bounds of open nodes may be lower where that spares memory.
    random_state : int
        Seed of all that is random.
    """

    max_nodes: int | None = None
    max_memory: float = 2e9
    random_state: int = 0

    sums_suffice = True
    max_epochs = 10**9  # it ends by itself
    patience = np.inf  # bounds may wait long for the last of many equal nodes

    def init(self, problem: Problem, start: Start) -> _State:
        """Begin with the fast phase, or with the tree of an earlier solve."""
        known = start.bound.renewed(problem) if isinstance(start.bound, TreeBound) else None
        if isinstance(known, TreeBound) and known.value >= (1.0 - _SAME) * start.bound.value:  # type: ignore[union-attr]
            return _restored(problem, start, known)
        return _State(Auto(random_state=self.random_state).init(problem, start))

    def first(self, problem: Problem, state: _State, start: Start) -> Point:
        """Return the start, which has been evaluated."""
        return self.observe(problem, state)

    def advance(self, problem: Problem, state: _State) -> None:
        """Go on with the fast phase; then plant the tree; then split nodes."""
        auto = Auto(random_state=self.random_state)
        if not state.auto.done:
            auto.advance(problem, state.auto)
        elif state.tree is None:
            state.tree = _plant(problem, state.auto)
        else:
            state.tree.step()
            if state.tree.nbytes > 0.5 * self.max_memory:
                state.tree.spare_memory()
            too_many = self.max_nodes is not None and state.tree.solved >= self.max_nodes
            state.full = too_many or state.tree.nbytes > self.max_memory
        if state.tree is not None:
            state.auto.prove(state.tree.bound())

    def observe(self, problem: Problem, state: _State) -> Point:
        """Return the best model so far and the best bound."""
        point = Auto().observe(problem, state.auto)
        return point if state.tree is None else replace(point, n_open=len(state.tree.open))

    def finished(self, state: _State) -> bool:
        """Tell whether no node is left."""
        return state.tree is not None and not state.tree.open

    def at_limit(self, state: _State) -> bool:
        """Tell whether the limit on nodes or on memory was reached."""
        return state.full

    def pool(self, state: _State) -> Pool:
        """Return the models that came closest to the best."""
        return state.auto.pool

    def polish(self, problem: Problem, state: _State, best: Fit) -> Point | None:
        """Look for swaps that improve the best model."""
        return Auto(random_state=self.random_state).polish(problem, state.auto, best)


def _plant(problem: Problem, auto: AutoState) -> _Tree:
    """Make the root: the features that screening leaves in play, and what solves their relaxations."""
    best, root = auto.pool.best, auto.bound
    assert best is not None
    assert root is not None
    attained = upper_bound(problem, best.w, best.b)
    features, ceiling = in_play(problem, root.screening(problem), attained)
    sigma, workers, proof = _workers(problem, features, root)
    nothing = np.empty(0, dtype=np.int64)
    tree = _Tree(problem, root, features, ceiling, sigma, workers, auto.pool, auto.stop)
    first = Leaf(nothing, nothing, root.value, root.rounding, proof, SparseVector.of(best.w), feature=0)
    tree.add(tree.solve(workers[0], first, nothing, nothing))
    return tree


def _restored(problem: Problem, start: Start, known: TreeBound) -> _State:
    """Take up the tree of an earlier solve, whose bounds have been computed again."""
    auto = AutoState(problem, start, bound=known, done=True)
    auto.pool.add(start.primal(problem))
    _, workers, _ = _workers(problem, known.features, known.root, known.sigma)
    tree = _Tree(
        problem, known.root, known.features, known.ceiling, known.sigma, workers, auto.pool, auto.stop
    )  # fmt: skip
    for leaf in known.leaves:
        tree.keep(tree.leaf(leaf.inside, leaf.outside, Proved(leaf.bound, leaf.rounding), leaf.proof, leaf.w))
    return _State(auto, tree)


def _workers(
    problem: Problem, features: Indices, root: Bound, sigma: float | None = None
) -> tuple[float, list[Nodes], Proof]:
    """One solver of nodes for each thread, the shift that they use, and a first proof; a known shift is proved already."""
    n_entries = problem.shape[0] * len(features)
    n = problem.design.n_threads if n_entries >= _THREADED else 1
    if problem.loss.is_squared_error and problem.constraint.is_plain:
        known = _node_gram(problem, features)
        if sigma is None:
            sigma = 0.0 if known is None else smallest_eigenvalue(problem, features, known)
        gram_nodes: list[Nodes] = [GramNodes(problem, features, sigma, known) for _ in range(n)]
        return sigma, gram_nodes, SparseVector.of(np.zeros(problem.shape[1]))
    if newton_pays(problem, len(features)):
        return 0.0, [NewtonNodes(problem, features, root.alpha) for _ in range(n)], None
    return 0.0, [RelaxedNodes(problem, features, root.alpha)], None

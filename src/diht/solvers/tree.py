r"""Search trees: what branch and bound closes the gap with, feature by feature.

A node whose bound reaches the best objective known is closed, any other is split on a feature that its relaxation is undecided
about. The least bound of all nodes that are not split is a bound on everything.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from operator import attrgetter

import numpy as np

from diht.bounds.duality import Bound, Screening, upper_bound
from diht.bounds.rule import Rule, SparseVector
from diht.bounds.shift import ShiftedPoint, in_play, others, outside_play, problem_gram, proved_ridges
from diht.design.gram import Gram
from diht.numerics.arrays import Indices, Vector
from diht.numerics.threads import run_parts
from diht.problem import Problem
from diht.refit import never, refit
from diht.relaxation.gram import GramRelaxation, Proved, can_shift
from diht.search.pool import Pool
from diht.solvers.nodes import GramNodes, InPlay, Leaf, Nodes, Part, Proof, Solved, node_gram, workers_for

__all__ = ["CLOSED", "Tree", "TreeBound", "plant", "restored"]


CLOSED = 1e-9  # relative gap, of a solve or of a node, at which nothing better can be found, or more be proved
_BATCH = 32  # nodes that are split together, however many threads there are
_LONG = 4000  # nodes after which their steps are compiled as one: twice as much to compile, for 40 microseconds a node
_GROWTH = 0.05  # of the number of nodes in a step: each step's bound looks at all leaves


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
    ridges : array
        Those of the features in play (see `diht.bounds.shift`), for the leaves that have none of their own.
    shifted : bool
        Whether the leaves are proved on Gram matrices.
    leaves : tuple of Leaf
        Together they hold every model on the features in play.
    """

    root: Bound
    features: Indices
    ceiling: float
    ridges: Vector
    shifted: bool
    leaves: tuple[Leaf, ...]

    @property
    def screened_rounding(self) -> float:
        """What was subtracted for rounding from any figure of the screening: the most of all leaves."""
        return max(self.root.screened_rounding, *(leaf.rounding for leaf in self.leaves))

    def renewed(self, problem: Problem) -> Bound:
        """Compute the bound again: what is outside the features, that the leaves leave nothing out, and what each one proves."""
        root = self.root.renewed(problem)
        if not _fits(problem, self) or not _covers(self.leaves, set(), set()):
            return root
        ceiling = outside_play(problem, root.screening(problem), self.features)
        known = node_gram(problem, self.features) if self.shifted else None
        ridges = proved_ridges(problem, self.features, self.ridges, known)
        prove = _prover(problem, self.features, root, ridges, known, self.shifted)
        leaves = tuple(_renewed(leaf, prove(leaf), root) for leaf in self.leaves)
        return _of_leaves(root, self.features, ceiling, ridges, self.shifted, leaves)

    def screening(self, problem: Problem) -> Screening:
        """Bound the models without, and with, each feature by the leaves that hold them."""
        d, features, closure = problem.shape[1], self.features, problem.constraint.closure
        least = min(self.ceiling, *(leaf.bound for leaf in self.leaves))
        without, within = np.full(d, least), np.full(d, least)
        within[others(problem, features)] = self.ceiling
        lacked, held = np.full(len(features), self.ceiling), np.full(len(features), self.ceiling)
        unlacked, unheld = features, features  # by any leaf so far
        for leaf in sorted(self.leaves, key=attrgetter("bound")):
            lacking, holding = (
                ~np.isin(left, closure(decided)) for left, decided in ((unlacked, leaf.inside), (unheld, leaf.outside))
            )
            for bounds, left, found in ((lacked, unlacked, lacking), (held, unheld, holding)):
                bounds[np.searchsorted(features, left[found])] = min(leaf.bound, self.ceiling)
            unlacked, unheld = unlacked[~lacking], unheld[~holding]
            if not len(unlacked) + len(unheld):
                break
        without[features], within[features] = lacked, held
        return Screening(without, within).merged(self.root.screening(problem)).above(self.value)


def _renewed(leaf: Leaf, proved: Proved, root: Bound) -> Leaf:
    """Return a leaf with a bound that was computed again, or that of the root if it is better."""
    if proved.value < root.value:
        proved = Proved(root.value, root.rounding)
    return replace(leaf, bound=proved.value, rounding=proved.rounding)


def _of_leaves(
    root: Bound, features: Indices, ceiling: float, ridges: Vector, shifted: bool, leaves: tuple[Leaf, ...]
) -> Bound:
    """Return the bound that a tree's leaves prove together, or the root's if that is better."""
    value = min([ceiling, *(leaf.bound for leaf in leaves)])
    if value <= root.value:
        return root
    # What a leaf has above the least bound makes up for twice its rounding. The ceiling rests on the root's.
    rounding = max(root.screened_rounding, *(leaf.rounding - 0.5 * (leaf.bound - value) for leaf in leaves))
    return TreeBound(value, root.alpha, rounding, root, features, ceiling, ridges, shifted, leaves)


def _fits(problem: Problem, tree: TreeBound) -> bool:
    """Whether a tree can speak of a problem at all: its loss, its numbers of samples and features, and how many are allowed."""
    d = problem.shape[1]
    if (
        (tree.shifted and not can_shift(problem))
        or tree.features.max(initial=-1) >= d
        or len(tree.ridges) != len(tree.features)
    ):
        return False
    known = np.zeros(d, dtype=bool)
    known[tree.features] = True

    def held(vector: object) -> bool:
        if not isinstance(vector, SparseVector) or vector.size != d or vector.support.max(initial=-1) >= d:
            return False
        return bool(np.all(known[vector.support]))

    def ridged(leaf: Leaf, point: ShiftedPoint) -> bool:
        """Whether all features in play have ridges, but for those that are outside, or do not fit."""
        if point.ridges is None:
            return True
        rest = known.copy()
        rest[problem.constraint.restricted(leaf.inside, leaf.outside).free(d)[2]] = False
        rest[point.ridges.support] = False
        return held(point.ridges) and not rest.any() and bool(np.all(np.isin(point.p.support, point.ridges.support)))

    def fits(leaf: Leaf) -> bool:
        proof = leaf.proof
        if leaf.screened is not None and not tree.shifted:
            return False
        if tree.shifted:
            proved = isinstance(proof, ShiftedPoint) and held(proof.p) and ridged(leaf, proof)
        elif isinstance(proof, Rule):
            proved = all(map(held, proof.vectors))
        else:
            proved = proof is None or problem.samples.holds(proof)
        decided = np.concatenate([leaf.inside, leaf.outside, *(leaf.screened or ())])
        if leaf.w.size != d or not proved or not np.all(known[decided]):
            return False
        return problem.constraint.restricted(leaf.inside, leaf.outside).free(d)[0] >= 0

    return all(fits(leaf) for leaf in tree.leaves)


def _prover(
    problem: Problem, features: Indices, root: Bound, ridges: Vector, known: Gram | None, shifted: bool
) -> Callable[[Leaf], Proved]:
    """Return what computes the bound of a leaf from its proof, as it was computed when the leaf was solved."""
    if shifted:
        relaxation = GramRelaxation(problem, features, ridges, known)

        def by_shift(leaf: Leaf) -> Proved:
            assert isinstance(leaf.proof, ShiftedPoint)
            own, base = leaf.proof.ridges, relaxation
            if own is not None:
                part = problem_gram(problem, own.support) if known is None else known.among(own.support)
                base = GramRelaxation(problem, own.support, proved_ridges(problem, own.support, own.values, part), part)
            p, nodes = leaf.proof.p.dense, starmap(problem.constraint.restricted, leaf.nodes())
            return min((base.node_bound(p, node) for node in nodes), default=Proved(np.inf, 0.0))

        return by_shift
    place = InPlay(problem, features, root.alpha)

    def prove(leaf: Leaf) -> Proved:
        node = place.node(problem.constraint.restricted(leaf.inside, leaf.outside))
        bound = place.bound(node, leaf.proof)
        return Proved(bound.value, bound.rounding)

    return prove


def _covers(leaves: Sequence[Leaf], inside: set[int], outside: set[int]) -> bool:
    """Whether every choice of further features, after those decided, is in some leaf."""
    decisions = [set(leaf.inside.tolist()) - inside | set(leaf.outside.tolist()) - outside for leaf in leaves]
    if not leaves:
        return False
    for leaf, decided in zip(leaves, decisions, strict=True):
        if not decided:
            if leaf.screened is None:
                return True
            needed, barred = (set(features.tolist()) for features in leaf.screened)
            return _covers([other for other in leaves if other is not leaf], inside | needed, outside | barred)
    common = set.intersection(*decisions)
    if not common:
        return False
    feature = min(common)
    with_it = [leaf for leaf in leaves if feature in leaf.inside]
    without = [leaf for leaf in leaves if feature in leaf.outside]
    return _covers(with_it, inside | {feature}, outside) and _covers(without, inside, outside | {feature})


# ---------------------------------------------------------------------------------------------------------------------
# The tree


@dataclass
class Tree:
    """Open nodes by their bounds, closed ones, and what all of them share."""

    problem: Problem
    root: Bound
    features: Indices
    ceiling: float
    ridges: Vector
    workers: list[Nodes]
    pool: Pool
    stop: Callable[[], bool] = never
    open: list[Leaf] = field(default_factory=list)
    closed: list[Leaf] = field(default_factory=list)
    solved: int = 0
    operations: float = 0.0  # of all nodes, about
    nbytes: int = 0  # memory that the leaves take
    rounded: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        for worker in self.workers:
            worker.stop = self.stop

    @property
    def shifted(self) -> bool:
        """Whether proofs are those of shifts."""
        return isinstance(self.workers[0], GramNodes)

    def bytes_of(self, leaf: Leaf) -> int:
        """Memory that a leaf takes."""
        return int(leaf.inside.nbytes + leaf.outside.nbytes + leaf.w.nbytes + self._bytes_of(leaf.proof))

    def _bytes_of(self, proof: Proof) -> int:
        if proof is None:
            return 0
        return proof.nbytes if isinstance(proof, ShiftedPoint | Rule) else self.problem.samples.bytes_of(proof)

    @property
    def objective(self) -> float:
        """The best objective known."""
        assert self.pool.best is not None
        return self.pool.best.objective

    def bound(self) -> Bound:
        """The bound that all leaves prove."""
        leaves = (*self.open, *self.closed)
        return _of_leaves(self.root, self.features, self.ceiling, self.ridges, self.shifted, leaves)

    def step(self) -> None:
        """Split nodes with the least bounds, and solve their children, until there are some more."""
        enough = (1.0 + _GROWTH) * self.solved
        self.split_some()
        while self.open and self.solved < enough and not self.stop():
            self.split_some()

    def split_some(self) -> None:
        """Split as many nodes as are solved side by side."""
        batch: list[Leaf] = []
        while self.open and len(batch) < _BATCH:
            leaf = heapq.heappop(self.open)
            if self.is_closed(leaf):
                self.close(leaf)
            else:
                batch.append(leaf)
                self.nbytes -= self.bytes_of(leaf)
        children = [child for leaf in batch for child in self.split(leaf)]
        n, objective = len(self.workers), self.objective * (1.0 + 1e-12)
        for worker in self.workers:
            worker.many, worker.long = self.solved >= worker.few, self.solved >= _LONG
        dealt = [(worker, children[i::n], objective) for i, worker in enumerate(self.workers) if children[i::n]]
        results = run_parts(_solve_all, dealt) if dealt else []
        for i in range(len(children)):
            self.add(next(results[i % n]))

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

    def add(self, solved: Solved) -> None:
        """Take a node that was solved, and the model that its relaxation rounds to."""
        self.solved += 1
        self.operations += solved.operations
        leaf, support = solved.leaf, solved.support
        if leaf.bound < self.objective and solved.promise < self.pool.worst and support.tobytes() not in self.rounded:
            self.rounded.add(support.tobytes())
            self.pool.add(refit(self.problem, support, leaf.w.dense, 0.0))
        if solved.screened is not None:
            self.keep(solved.screened)
        self.keep(leaf)

    def keep(self, leaf: Leaf) -> None:
        """Put a leaf among the open ones, or the closed."""
        self.nbytes += self.bytes_of(leaf)
        if self.is_closed(leaf):
            self.close(leaf)
        else:
            heapq.heappush(self.open, leaf)

    def close(self, leaf: Leaf) -> None:
        """Keep a leaf that will not be split: the bound rests on it."""
        self.closed.append(leaf)

    def split(self, leaf: Leaf) -> Sequence[Part]:
        """The parts of a node."""
        return leaf.children()


def _solve_all(worker: Nodes, parts: Sequence[Part], objective: float) -> Iterator[Solved]:
    return worker.solve_all(parts, objective)


def plant(problem: Problem, pool: Pool, root: Bound, stop: Callable[[], bool] = never) -> Tree:
    """Make a tree of its root: the features that screening leaves in play, and what solves their relaxations."""
    best = pool.best
    assert best is not None
    attained = upper_bound(problem, best.w, best.b)
    features, ceiling = in_play(problem, root.screening(problem), attained)
    ridges, workers, proof = workers_for(problem, features, root)
    nothing = np.empty(0, dtype=np.int64)
    tree = Tree(problem, root, features, ceiling, ridges, workers, pool, stop)
    first = Leaf(nothing, nothing, root.value, root.rounding, proof, SparseVector.of(best.w), feature=0)
    tree.add(next(workers[0].solve_all([(first, nothing, nothing)], best.objective * (1.0 + 1e-12))))
    tree.operations = 0.0  # a budget is for what is split
    return tree


def restored(problem: Problem, pool: Pool, known: TreeBound, stop: Callable[[], bool] = never) -> Tree:
    """Take up the tree of an earlier solve, whose bounds have been computed again."""
    _, workers, _ = workers_for(problem, known.features, known.root, known.ridges)
    tree = Tree(problem, known.root, known.features, known.ceiling, known.ridges, workers, pool, stop)
    for leaf in known.leaves:
        if leaf.screened is not None:
            tree.close(leaf)
            continue
        tree.keep(workers[0].leaf(leaf.inside, leaf.outside, Proved(leaf.bound, leaf.rounding), leaf.proof, leaf.w))
    return tree

"""Branch and bound: the exact solution, by closing the gap feature by feature."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from diht.fit import Fit
from diht.problem import Problem
from diht.search.pool import Pool
from diht.solvers.auto import Auto
from diht.solvers.auto.state import AutoState
from diht.solvers.base import Point, Solver, Start
from diht.solvers.tree import Tree, TreeBound, plant, restored

__all__ = ["BranchAndBound"]

_SAME = 1e-6  # relative loss of a tree's bound, computed again, up to which it is taken for one of the same problem


@dataclass
class _State:
    auto: AutoState
    tree: Tree | None = None
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
            auto = AutoState(problem, start, bound=known, done=True)
            auto.pool.add(start.primal(problem))
            return _State(auto, restored(problem, auto.pool, known, auto.stop))
        return _State(Auto(self.random_state, branching=False).init(problem, start))

    def first(self, problem: Problem, state: _State, start: Start) -> Point:
        """Return the start, which has been evaluated."""
        return self.observe(problem, state)

    def advance(self, problem: Problem, state: _State) -> None:
        """Go on with the fast phase; then plant the tree; then split nodes."""
        auto = Auto(self.random_state, branching=False)
        if not state.auto.done:
            auto.advance(problem, state.auto)
        elif state.tree is None:
            state.tree = plant(problem, state.auto.pool, state.auto.proved, state.auto.stop)
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

    def swap_optimal(self, state: _State) -> bool | float:
        """Tell whether a swap could improve the best model, or by how much at most."""
        return Auto().swap_optimal(state.auto)

    def polish(self, problem: Problem, state: _State, best: Fit) -> Point | None:
        """Look for swaps that improve the best model."""
        return Auto(self.random_state, branching=False).polish(problem, state.auto, best)

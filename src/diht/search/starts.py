"""Local searches from many starts: where features outnumber samples there are thousands of swap optima."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from diht.numerics.arrays import Indices, Mask
from diht.problem import Problem
from diht.samples import Descents, Optimum

__all__ = ["Starts"]

# From the best model to features, and those among which they are filled up.
_Kind: TypeAlias = Callable[[Indices], tuple[Indices, Mask]]

_NONE: Indices = np.empty(0, dtype=np.int64)
_ACCURACY = 1e-7  # of an objective, relative: two that differ by no more are the same
_ELITE = 10  # models of which two are crossed
_KEPT = 0.8  # share of their common features that is kept
_REMOVED = 4  # of so many features one is exchanged, at most, and up to three of fewer
_LARGEST_RIDGE = 3.0  # powers of ten, times lam, for ridge regressions


class Starts:
    """Starts of four kinds in turn, each for as long as it leads to better models, but none that has taken most of the effort.

    A model is grown among a random half of all features, at first among all, or among the features of two good models; or the
    best model loses some features, which may not come back before others have joined; or of a ridge regression on a random half
    of all features, for a ridge of its own, the smaller half of the coefficients is left out again and again.

    Parameters
    ----------
    problem : Problem
        With a plain constraint.
    descents : Descents
        Its samples.
    random_state : int

    Attributes
    ----------
    returned : int
        Searches from starts of their own, among half of the features, that ended at the best model since it was found.
    """

    def __init__(self, problem: Problem, descents: Descents, random_state: int) -> None:
        self.problem, self.descents, self.returned = problem, descents, 0
        self._rng, self._known = np.random.default_rng(random_state), dict[bytes, tuple[float, Indices]]()
        self._share = 1.0  # of all features, among which the next model of its own is grown
        self._regressed = 0.0  # effort of ridge regressions for the last start
        kinds: tuple[_Kind, ...] = self._own, self._halved, self._crossed, self._kicked
        self._efforts = dict.fromkeys(kinds, 0.0)
        self._kind: _Kind = self._own

    @property
    def elite(self) -> list[Indices]:
        """The supports of the best models, the best first."""
        return [support for _, support in sorted(self._known.values(), key=lambda known: known[0])[:_ELITE]]

    def know(self, support: Indices, objective: float) -> None:
        """Take up a model that was found elsewhere."""
        self._known[support.tobytes()] = objective, support

    def search(self, problem: Problem, most: float = np.inf) -> Optimum:
        """Search from the next start, of the problem where more may be decided, with limited effort."""
        least, best = min(self._known.values(), key=lambda known: known[0], default=(np.inf, _NONE))
        self._regressed = 0.0
        found = self.descend(problem, *self._kind(best), most)
        found = found._replace(effort=found.effort + self._regressed)
        self._efforts[self._kind] += found.effort
        self._known[found.support.tobytes()] = found.objective, found.support
        self.returned += self._kind == self._own and np.array_equal(found.support, best)
        if found.objective < least - _ACCURACY * abs(least):
            self.returned = 0
        else:
            self._kind = self._next()
        return found

    def _next(self) -> _Kind:
        """Return the kind that follows, unless it has taken more effort than all others together."""
        kinds = list(self._efforts)
        after = kinds.index(self._kind) + 1
        total = sum(self._efforts.values())
        return next(kind for kind in kinds[after:] + kinds[:after] if self._efforts[kind] <= 0.5 * total)

    def descend(self, problem: Problem, support: Indices, among: Mask, most: float = np.inf) -> Optimum:
        """Fill a support up with features among some, where these suffice, then swap with all that the constraint allows."""
        m, inside, outside = problem.constraint.free(len(among))
        barred = ~self.descents.usable
        barred[outside] = True
        start = np.append(inside, np.setdiff1d(support[~barred[support]], inside)).astype(np.int64)
        barred[start] = True
        size = min(m + len(inside), len(start) + int(np.count_nonzero(~barred)))
        barred[start[size:]] = False
        start = start[:size]
        closed = barred | ~among
        if np.count_nonzero(~closed) < size - len(start):
            closed = barred.copy()
        return self.descents.descend(start, len(inside), size, (closed, barred), most)

    def _some(self, share: float = 0.5) -> Mask:
        return np.asarray(self._rng.random(self.problem.shape[1]) < share)

    def _own(self, best: Indices) -> tuple[Indices, Mask]:
        share, self._share = self._share, 0.5
        return best[:0], self._some(share)

    def _halved(self, best: Indices) -> tuple[Indices, Mask]:
        kept, size = np.flatnonzero(self._some()), len(best)
        lam = self.problem.lam * 10.0 ** self._rng.uniform(0.0, _LARGEST_RIDGE)
        while len(kept) > size:
            self._regressed += self.descents.ridge_effort(len(kept))
            order = np.argsort(-self.descents.ridge(kept, lam), kind="stable")
            kept = np.sort(kept[order[: max(size, len(kept) // 2)]])
        return kept, self._some(1.0)

    def _crossed(self, best: Indices) -> tuple[Indices, Mask]:
        elite, among = self.elite, self._some(0.0)
        one, two = (elite[at] for at in self._rng.choice(len(elite), 2, replace=len(elite) < 2))
        common = np.intersect1d(one, two)
        among[np.union1d(one, two)] = True
        return common[self._rng.random(len(common)) < _KEPT], among

    def _kicked(self, best: Indices) -> tuple[Indices, Mask]:
        removed = self._rng.permutation(best)[: self._rng.integers(1, max(3, len(best) // _REMOVED) + 1)]
        among = self._some(1.0)
        among[removed] = False
        return np.setdiff1d(best, removed), among

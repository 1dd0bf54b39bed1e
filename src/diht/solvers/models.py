"""Models for many k and lam without bounds: what cross-validation asks of a fold.

Each point starts from its neighbours: up in k, features join one by one; down in k, the cheapest leave; down in lam, the support
stays. Wherever that is better than what is known, swaps go on from there. No start comes from other samples: a search that began at
the support of samples held out might stay there, and the scores on those would be too good.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diht.constraints.base import Constraint
from diht.fit import Fit
from diht.numerics.arrays import Indices, Matrix, Vector
from diht.numerics.definite import Definite
from diht.numerics.threads import blas_threads
from diht.problem import Problem
from diht.refit import never, refit
from diht.search.exchange import Hessian, Quadratic
from diht.search.swaps import swap_search
from diht.solvers.neighbours import BETTER, shrunk

__all__ = ["GramPoints", "Points", "SamplePoints", "path_models", "sample_models"]


_SHORTLIST = 3  # swaps to try, where trying them takes a fit
_FRESH = 50  # swaps after which the quadratic is computed anew, for its updates drift
_MOST_ROUNDS = 20  # of so many swaps
_EXCHANGED = 2, 3  # features that a perturbation exchanges, in turn, where no swap gains
_NONE: Indices = np.empty(0, dtype=np.int64)


class Points(ABC):
    """The problems of all k and lam on the same samples, and how models of them are made."""

    @abstractmethod
    def shrunk(self, k: float, lam: float, fit: Fit, known: Fit) -> Fit:
        """Return a model with the features of one for a larger k, but for the cheapest; `known` where that is its support."""

    @abstractmethod
    def searched(self, k: float, lam: float, fit: Fit | None) -> Fit:
        """Add features while there is room, and swap while that gains, from a model for no larger k or from nothing."""


@dataclass(frozen=True, eq=False)
class SamplePoints(Points):
    """Models of any loss under any constraint, by swaps and fits on the samples.

    Parameters
    ----------
    problem : Problem
        The data, the loss, and all of the constraint but k.
    stop : callable
        Asked before every swap; True ends the search.
    """

    problem: Problem
    stop: Callable[[], bool] = never

    def at(self, k: float, lam: float) -> Problem:
        """Return the problem of a point."""
        return self.problem.replaced(constraint=self.problem.constraint.allowing(k), lam=lam)

    def shrunk(self, k: float, lam: float, fit: Fit, known: Fit) -> Fit:
        """Return a model with the features of one for a larger k, but for the cheapest; `known` where that is its support."""
        return shrunk(self.at(k, lam), fit, known)

    def searched(self, k: float, lam: float, fit: Fit | None) -> Fit:
        """Add features while there is room, and swap while that gains, from a model for no larger k or from nothing."""
        problem = self.at(k, lam)
        support, w, b = (_NONE, None, problem.null_intercept) if fit is None else (fit.support, fit.w, fit.b)
        if self.stop():
            return refit(problem, support, w, b)
        return swap_search(problem, support, w, b, shortlist=_SHORTLIST, perturbations=len(_EXCHANGED), stop=self.stop)


@dataclass(frozen=True, eq=False)
class _Ridged(Hessian):
    """A Gram matrix with a ridge: nothing is left to compute."""

    G: Matrix = field(kw_only=True)

    @classmethod
    def of(cls, G: Matrix, lam: float) -> _Ridged:
        """Add the ridge to the diagonal, as rows are asked for."""
        return cls(None, np.arange(len(G)), lam, np.diag(G) + lam, G=G)

    def rows(self, chosen: Indices) -> Matrix:
        """Return some rows of H."""
        rows = self.G[chosen]
        rows[np.arange(len(chosen)), chosen] += self.lam
        return rows


@dataclass(frozen=True, eq=False)
class GramPoints(Points):
    r"""Models of the squared loss under a plain constraint, from sums alone.

    Parameters
    ----------
    G : array of shape (d, d)
        Second derivatives of the loss, :math:`2 X^\top S X`, X centred where there is an intercept.
    h : array of shape (d,)
        Minus its first derivatives at w = 0.
    null : float
        The loss of w = 0.
    constraint : Constraint
        All of it but k.
    stop : callable
        Asked before every swap; True ends the search.
    """

    G: Matrix
    h: Vector
    null: float
    constraint: Constraint
    stop: Callable[[], bool] = never

    def shrunk(self, k: float, lam: float, fit: Fit, known: Fit) -> Fit:
        """Return a model with the features of one for a larger k, but for the cheapest; `known` where that is its support."""
        support, d = fit.support, len(self.h)
        roots = np.zeros(d)
        roots[support] = fit.values / np.sqrt(Definite(self._block(support, lam)).inverse().diagonal())
        chosen = self.constraint.allowing(k).select(roots)
        return known if np.array_equal(chosen, known.support) else self._fit(chosen, lam)

    def searched(self, k: float, lam: float, fit: Fit | None) -> Fit:
        """Add features while there is room, and swap while that gains, from a model for no larger k or from nothing."""
        d = len(self.h)
        m, inside, outside = self.constraint.allowing(k).free(d)
        room, stays, taken = min(m + len(inside), d - len(outside)), np.zeros(d, dtype=bool), np.zeros(d, dtype=bool)
        stays[inside] = taken[outside] = True
        best = self._fit(inside if fit is None else np.union1d(fit.support, inside), lam)
        hessian, rng = _Ridged.of(self.G, lam), np.random.default_rng(0)
        for _ in range(_MOST_ROUNDS):
            quadratic = self._around(best, hessian, taken, stays)
            better = quadratic
            if not self._descend(quadratic, room):
                known = fit is not None and np.array_equal(best.support, fit.support)
                found = None if known else self._perturbed(quadratic, rng)
                if found is None:
                    break
                better = found
            new = self._fit(np.sort(better.support), lam)
            if len(new.support) == len(best.support) and not _better(new, best):
                break
            best = new
        return best

    def _perturbed(self, quadratic: Quadratic, rng: np.random.Generator) -> Quadratic | None:
        """Exchange a few features, preferably cheap ones, and swap on; return the first that leads to a better model."""
        rows = np.flatnonzero(~quadratic.stays[quadratic.support])
        outside = len(self.h) - int(np.count_nonzero(quadratic.taken))
        costs = quadratic.w[rows] ** 2 / quadratic.M.diagonal()[rows]
        for size in _EXCHANGED:
            size = min(size, len(rows), outside)
            if size < 2 or self.stop():
                return None
            other = quadratic.perturbed(rows[np.argsort(costs * rng.exponential(size=len(rows)))[:size]])
            self._descend(other, len(other.support))
            if other.value < quadratic.value - BETTER * abs(quadratic.value):
                return other
        return None

    def _descend(self, quadratic: Quadratic, room: int) -> bool:
        """Fill the support, then make the best swap over and over; tell whether anything was done."""
        moved = False
        while len(quadratic.support) < room and not self.stop():
            quadratic.add(quadratic.best_addition())
            moved = True
        for _ in range(_FRESH):
            gains = quadratic.gains()
            if not gains.size or self.stop():
                break
            row, j = divmod(int(np.argmax(gains)), gains.shape[1])
            if not gains[row, j] > BETTER * abs(quadratic.value):
                break
            quadratic.swap(row, j)
            moved = True
        return moved

    def _around(self, fit: Fit, hessian: Hessian, barred: NDArray[np.bool_], stays: NDArray[np.bool_]) -> Quadratic:
        support, taken = fit.support, barred.copy()
        taken[support] = True
        r = self.h - fit.values @ self.G[support]
        return Quadratic.around(support, _NONE, fit.values, fit.objective, r, hessian, taken, stays)

    def _block(self, support: Indices, lam: float) -> Matrix:
        block = self.G[np.ix_(support, support)]
        block[np.diag_indices(len(support))] += lam
        return block

    def _fit(self, support: Indices, lam: float) -> Fit:
        """Return the best model on a support."""
        H, h = self._block(support, lam), self.h[support]
        x = Definite(H).solve(h) if len(support) else np.empty(0)
        return Fit(len(self.h), support, x, 0.0, self.null - float(h @ x) + 0.5 * float(x @ H @ x))


def path_models(points: Points, ks: Sequence[float], lams: Sequence[float]) -> dict[tuple[float, float], Fit]:
    """Return models for all of some k and lam, both ascending: down in lam, and for each lam up, down and up in k."""
    models: dict[tuple[float, float], Fit] = {}
    for lam, larger in zip(lams[::-1], [None, *lams[:0:-1]], strict=True):
        before = None
        for k in ks:
            fit = points.searched(k, lam, before if larger is None else models[k, larger])
            if before is not None and _better(before, fit):
                fit = points.searched(k, lam, before)
            before = models[k, lam] = fit
        improved = set()
        for k, more in zip(ks[-2::-1], ks[:0:-1], strict=True):
            tried = points.shrunk(k, lam, models[more, lam], models[k, lam])
            if _better(tried, models[k, lam]):
                models[k, lam] = points.searched(k, lam, tried)
                improved.add(k)
        for k, less in zip(ks[1:], ks, strict=False):
            if less in improved and _better(models[less, lam], models[k, lam]):
                models[k, lam] = points.searched(k, lam, models[less, lam])
                improved.add(k)
    return {(k, lam): models[k, lam] for lam in lams for k in ks}


def _better(one: Fit, other: Fit) -> bool:
    return one.objective < other.objective - BETTER * abs(other.objective)


def sample_models(
    problem: Problem, ks: Sequence[float], lams: Sequence[float], stop: Callable[[], bool] = never
) -> dict[tuple[float, float], Fit]:
    """Return models of a problem for all of some k and lam, whatever its own are; once `stop` says True, without swaps."""
    with np.errstate(over="ignore", invalid="ignore"), blas_threads(False):
        return path_models(SamplePoints(problem, stop), ks, lams)

"""Local search over supports: exchange one feature, or unit, of a model for another while that lowers the objective.

`diht.search.exchange` tells what every exchange is worth where the objective is quadratic. For the squared loss it is: the search
follows it. For others the most promising exchanges are tried, and so are those of groups and of coefficients with signs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diht.constraints.selection import top_k
from diht.fit import Fit
from diht.numerics.arrays import Indices, Matrix, Vector
from diht.problem import Problem
from diht.refit import Objective, refit
from diht.samples import Intercept, Rows, Samples
from diht.search.exchange import Exchanged, Hessian, Quadratic
from diht.search.pool import Pool
from diht.search.steps import end_of
from diht.search.units import swap_units

__all__ = ["swap_search", "swaps"]


_MOST_ENTRIES = 1e7  # of the dense matrices of a block: its samples times features, its support times features
_MOST_ROWS = 200  # features that may leave, where there are too many to look at all
_COPIED = 0.1  # share of the features that are out of play from which on the others are copied
_WEIGHTED = 40  # multiplications of a dense product that weighting an entry costs
_FEWEST = 10  # features to look at, however many samples there are
_FRESH = 50  # swaps after which the quadratic is computed anew, for its updates drift
_ROUGH = 1e-3  # accuracy of a first fit with a loss that has kinks
_EXCHANGED = 2, 3, 5  # features that a perturbation exchanges, in turn
_WORTHWHILE = 1e-3  # of the objective: the fall by the quadratic that is worth one of several swaps at once
_FEWEST_AT_ONCE = 2
_CHORD_STEPS = 4
_TRUST = 3.0  # times the fall that the quadratic promises: more than that is not hoped for


def swap_search(
    problem: Problem, support: Indices, w: Vector | None = None, b: Intercept = 0.0, **settings: Any
) -> Fit:
    """Improve a support by swaps until none of those looked at lowers the objective; the settings are those of `swaps`."""
    return end_of(swaps(problem, support, w, b, **settings))


def swaps(
    problem: Problem,
    support: Indices,
    w: Vector | None = None,
    b: Intercept = 0.0,
    *,
    rtol: float = 1e-9,
    max_swaps: int = 1000,
    candidates: int = 200,
    shortlist: int = 10,
    perturbations: int = 0,
    random_state: int = 0,
    stop: Callable[[], bool] | None = None,
    pool: Pool | None = None,
) -> Generator[None, None, Fit]:
    """Improve a support by swaps until none of those looked at lowers the objective, and yield after each.

    The support is first filled up to what the constraint allows. All pairs are looked at where X is small, or else those of the
    `candidates` features outside that promise most. For the squared loss their gains are exact; for other losses the `shortlist`
    best by the quadratic are tried.

    Where no single swap helps, several at once may (squared loss only): a perturbation takes a few features out, preferably
    cheap ones, puts the best others in their places, and swaps on from there.

    Under a constraint that is not about single features of either sign, units are exchanged (see `diht.search.units`), of which
    fewer are tried: `candidates`, `shortlist` and `perturbations` are for single features.

    Parameters
    ----------
    problem : Problem
    support : array of int
        Where to start; may be empty.
    w, b : array of shape (d,) and float
        A model to start the first fit from.
    rtol : float
        Relative fall of the objective that is worth a swap.
    max_swaps : int
    candidates, shortlist : int
    perturbations : int
        Perturbations in a row without a better model after which the search ends; their swaps count as well.
    random_state : int
        Seed of the perturbations.
    stop : callable, optional
        Asked before every swap; True ends the search.
    pool : Pool, optional
        Is given every model met.

    Returns
    -------
    Fit
        Its objective is never above that of the best model on the support given.
    """
    if not problem.constraint.is_plain:
        return swap_units(problem, support, w, b, rtol=rtol, max_swaps=max_swaps, stop=stop, pool=pool)
    rng = np.random.default_rng(random_state)
    search = _Search(problem, rtol, max_swaps, candidates, shortlist, perturbations, rng, stop or (lambda: False), pool)
    best = search.first(np.unique(np.asarray(support, dtype=np.int64)), w, b)
    descend = _swap_exactly if problem.loss.is_quadratic else _swap_by_trial
    while not search.stop():
        block = _Block.around(search, best)
        better = block.leave((yield from descend(block, block.enter(best))))
        if block.part is not problem:
            problem.design.count_reads_of(block.part.design)
        finished = block.is_whole or not search.improves(better, best)
        best = better
        if finished or search.swaps_left <= 0:
            break
    return best


@dataclass(eq=False)
class _Search:
    """What does not change during a search, and what is left of it."""

    problem: Problem
    rtol: float
    swaps_left: int
    candidates: int
    shortlist: int
    perturbations: int
    rng: np.random.Generator
    stop: Callable[[], bool]
    pool: Pool | None
    inside: Indices = field(init=False)
    outside: Indices = field(init=False)
    room: int = field(init=False)
    at_once: int = field(init=False)  # swaps that the quadratic is trusted with
    diagonal: Vector | None = field(init=False, default=None)  # of the Hessian, for all features; only for ranking them

    def __post_init__(self) -> None:
        d = self.problem.shape[1]
        m, self.inside, self.outside = self.problem.constraint.free(d)
        self.room = self.at_once = min(m + len(self.inside), d - len(self.outside))

    def ended(self) -> bool:
        """Whether there may be no more swaps."""
        return self.swaps_left <= 0 or self.stop()

    def improves(self, new: Fit, old: Fit) -> bool:
        """Whether a model is better by more than the tolerance, or no worse with more features."""
        longer = len(new.support) > len(old.support)
        margin = self.rtol * abs(old.objective)  # a feature more never costs anything, but for rounding
        return new.objective <= old.objective + margin if longer else new.objective < old.objective - margin

    def fit(self, problem: Problem, support: Indices, w: Vector | None, b: Intercept, rtol: float = 0.0) -> Fit:
        """Return the best model on a support, to `rtol` or well within the tolerance for swaps."""
        return refit(problem, support, w, b, rtol=max(rtol, 1e-2 * self.rtol))

    def first(self, support: Indices, w: Vector | None, b: Intercept) -> Fit:
        """Fit on the support given, less what the constraint forbids, with what it asks for."""
        support = np.setdiff1d(np.union1d(support, self.inside), self.outside)
        fit = self.fit(self.problem, support, w, b)
        if len(support) > self.room:
            size = np.abs(fit.w)
            size[self.inside] = np.inf
            fit = self.fit(self.problem, top_k(size, self.room), fit.w, fit.b)
        self.meet(fit)
        return fit

    def meet(self, fit: Fit) -> None:
        """Tell the pool of a model."""
        if self.pool is not None:
            self.pool.add(fit)


# ---------------------------------------------------------------------------------------------------------------------
# The features that a round looks at


@dataclass(frozen=True, eq=False)
class _Block:
    """The features, in whose numbering a round works: the support and the candidates to join it, a compact copy unless all."""

    search: _Search
    features: Indices
    part: Problem
    Z: Samples | None  # the part's samples, with a dense X, unless that is too large
    stays: NDArray[np.bool_]  # which features may not leave
    barred: NDArray[np.bool_]  # which may not join
    is_whole: bool

    @classmethod
    def around(cls, search: _Search, fit: Fit) -> _Block:
        n, d = search.problem.shape
        is_whole = max(n, search.room) * d <= _MOST_ENTRIES
        features = np.arange(d) if is_whole else np.union1d(fit.support, _candidates(search, fit))
        if not is_whole or len(search.outside) > _COPIED * d:
            features = np.setdiff1d(features, search.outside)
        part = search.problem if len(features) == d else search.problem.restricted(features)
        fits = max(n, search.room) * len(features) <= _MOST_ENTRIES
        Z = part.samples.formed() if fits and not _on_short_rows(part, search.room) else None
        stays, barred = np.isin(features, search.inside), np.isin(features, search.outside)
        return cls(search, features, part, Z, stays, barred, is_whole)

    def enter(self, fit: Fit) -> Fit:
        """Return a model in the numbering of the block."""
        return replace(fit, n_features=len(self.features), support=np.searchsorted(self.features, fit.support))

    def leave(self, fit: Fit) -> Fit:
        """Return a model in the numbering of the problem."""
        return replace(fit, n_features=self.search.problem.shape[1], support=self.features[fit.support])

    def fit(self, support: Indices, w: Vector, b: Intercept, rtol: float = 0.0) -> Fit:
        """Return the best model on a support."""
        return self.search.fit(self.part, support, w, b, rtol)

    def meet(self, fit: Fit) -> None:
        """Tell the pool of a model."""
        self.search.meet(self.leave(fit))

    def hessian(self, fit: Fit) -> Hessian:
        """Return the curvature around a model."""
        part = self.part
        c = _curvature(part, fit)
        if _on_short_rows(part, len(fit.support)):
            return Hessian.whole(part, c)
        if self.Z is not None:
            return Hessian.weighted(self.Z, np.arange(len(self.features)), c, part)
        columns = self._columns(fit)
        some = part.samples.columns(columns)
        part.design.count_reads_of(some.design)
        return Hessian.weighted(some.formed(), columns, c, part)

    def _columns(self, fit: Fit) -> Indices:
        """Return the features of a quadratic where not all fit: of the support those that cost least, each alone."""
        support = fit.support
        costs = np.abs(fit.values) * self.part.design.column_norms()[support]
        costs[self.stays[support]] = np.inf
        kept = support[np.argsort(costs, kind="stable")[_at_most(_MOST_ROWS, self.part.shape[0]) :]]
        return np.setdiff1d(np.arange(len(self.features)), kept)

    def quadratic(self, fit: Fit, hessian: Hessian) -> Quadratic:
        """Return the quadratic around a model; the features that it leaves out keep their coefficients."""
        part = self.part
        r = -part.samples.pull(part.samples.slopes(part.loss, fit.margins(part)))
        rows, rest = np.intersect1d(fit.support, hessian.columns), np.setdiff1d(fit.support, hessian.columns)
        taken = self.barred.copy()
        taken[fit.support] = True
        return Quadratic.around(rows, rest, fit.w[rows], fit.objective, r, hessian, taken, self.stays)


def _at_most(number: int, n_samples: int) -> int:
    """Return a number of features whose dense columns have a bounded number of entries, but for a few features."""
    return min(number, max(_FEWEST, int(0.5 * _MOST_ENTRIES / n_samples)))


def _on_short_rows(part: Problem, n_rows: int) -> bool:
    """Whether all of H is had from short rows in less time than so many rows of it from a dense matrix, weighted first."""
    n, width = part.shape
    return part.design.gram_cost() <= float(n) * (n_rows + _WEIGHTED) * width and width**2 <= _MOST_ENTRIES


def _candidates(search: _Search, fit: Fit) -> Indices:
    r"""Return the features outside the support that promise most, each alone: :math:`r_j^2 / H_{jj}`."""
    problem = search.problem
    r = problem.samples.pull(problem.samples.slopes(problem.loss, fit.margins(problem)))
    if search.diagonal is None:
        search.diagonal = _diagonal(problem, fit)
    promise = np.abs(r) / np.sqrt(search.diagonal)
    promise[fit.support] = promise[search.outside] = 0.0
    missing = search.room - len(fit.support)
    return top_k(promise, missing + _at_most(search.candidates, problem.shape[0]))


def _diagonal(problem: Problem, fit: Fit) -> Vector:
    """Return the diagonal of H, for all features."""
    h = _curvature(problem, fit)
    total = problem.samples.total(lambda y, h: h, h)
    if total == 0.0:
        return np.full(problem.shape[1], problem.lam)
    mean, variance = problem.samples.moments(h)
    return np.asarray(total * (variance if problem.fit_intercept else variance + mean**2) + problem.lam)


def _curvature(problem: Problem, fit: Fit) -> Rows:
    """Return the mean of l'' over [u - h, u + h], where h is what a feature contributes to the predictions on average.

    That is how far they move where one feature goes and another comes; from so far a loss with kinks or flat parts is curved.
    """
    samples, loss, u, b = problem.samples, problem.loss, fit.margins(problem), fit.b
    if loss.is_quadratic:
        return samples.curvatures(loss, u)
    square = samples.total(lambda y, u: (u - b) ** 2, u)
    h = float(np.sqrt(square / max(len(fit.support), 1))) or samples.target_size
    return samples.map(lambda y, s, u: loss.curvature_near(u, h, y), u)


# ---------------------------------------------------------------------------------------------------------------------
# The two ways to descend


def _swap_exactly(block: _Block, fit: Fit) -> Generator[None, None, Fit]:
    """Make the best swap over and over, for a quadratic objective; what the updates arrive at is confirmed by a new fit."""
    hessian = block.hessian(fit)
    end = yield from _swap_around(block, fit, hessian)
    hessian.count(block.part.design)
    return end


def _swap_around(block: _Block, fit: Fit, hessian: Hessian) -> Generator[None, None, Fit]:
    while True:
        quadratic = block.quadratic(fit, hessian)
        if not _walk(block, quadratic, fit):
            perturbed = _perturbed(block, quadratic, fit)
            if perturbed is None:
                return fit
            quadratic = perturbed
        new = block.fit(np.append(quadratic.rest, quadratic.support), _arrived(quadratic, fit), fit.b)
        block.meet(new)
        if not block.search.improves(new, fit):
            return new if new.objective < fit.objective else fit
        fit = new
        yield


def _walk(block: _Block, quadratic: Quadratic, fit: Fit) -> bool:
    """Fill the support, then swap while that lowers the quadratic; tell whether anything was done."""
    search, moved = block.search, False
    while len(quadratic.support) + len(quadratic.rest) < search.room and not search.stop():
        quadratic.add(quadratic.best_addition())
        moved = True
    for _ in range(_FRESH):
        gains = quadratic.gains()
        if not gains.size or search.ended():
            break
        row, j = divmod(int(np.argmax(gains)), gains.shape[1])
        if not gains[row, j] > search.rtol * abs(quadratic.value):
            break
        quadratic.swap(row, j)
        search.swaps_left -= 1
        moved = True
        if search.pool is not None:
            _tell(block, quadratic, fit)
    return moved


def _perturbed(block: _Block, quadratic: Quadratic, fit: Fit) -> Quadratic | None:
    """Return the first perturbation by a few features that leads below the model, if any does."""
    search = block.search
    rows = np.flatnonzero(~block.stays[quadratic.support])
    outside = len(block.features) - int(np.count_nonzero(quadratic.taken))
    for attempt in range(search.perturbations):
        size = min(_EXCHANGED[attempt % len(_EXCHANGED)], len(rows), outside)
        if size < 2 or search.ended():
            return None
        costs = quadratic.w[rows] ** 2 / quadratic.M.diagonal()[rows]
        other = quadratic.perturbed(rows[np.argsort(costs * search.rng.exponential(size=len(rows)))[:size]])
        _walk(block, other, fit)
        if other.value < fit.objective - search.rtol * abs(fit.objective):
            return other
    return None


def _tell(block: _Block, quadratic: Quadratic, fit: Fit) -> None:
    """Tell the pool of the model that the updates have arrived at, with its own objective."""
    support = np.sort(np.append(quadratic.rest, quadratic.support))
    block.meet(Fit.of(block.part, _arrived(quadratic, fit), fit.b, support=support))


def _arrived(quadratic: Quadratic, fit: Fit) -> Vector:
    """Return the coefficients that the updates have arrived at; the features that they leave out keep those of the fit."""
    kept, w = fit.w, np.zeros(fit.n_features)
    w[quadratic.rest], w[quadratic.support] = kept[quadratic.rest], quadratic.w
    return w


def _swap_by_trial(block: _Block, fit: Fit) -> Generator[None, None, Fit]:
    """Make the first swap that lowers the objective, of those that lower its quadratic model most, until none does."""
    while True:
        new = _step_by_trial(block, fit)
        if new is None or block.search.stop():
            return fit
        fit = new
        yield


def _step_by_trial(block: _Block, fit: Fit) -> Fit | None:
    """Return the model after one swap, or with more features, if that is better; its quadratic, as large as X, is not kept."""
    hessian = block.hessian(fit)
    quadratic = block.quadratic(fit, hessian)
    missing = block.search.room - len(fit.support)
    if missing:
        new = _filled(block, quadratic, fit, (missing + 1) // 2)
    else:
        several = None if block.is_whole else _several_at_once(block, quadratic, fit)
        new = several or _first_better(block, quadratic, fit)
    hessian.count(block.part.design)
    return new


def _filled(block: _Block, quadratic: Quadratic, fit: Fit, n_new: int) -> Fit | None:
    """Add the features that lower the quadratic most, one by one, and fit."""
    for _ in range(n_new):
        quadratic.add(quadratic.best_addition())
    new = block.fit(np.append(quadratic.rest, quadratic.support), fit.w, fit.b)
    block.meet(new)
    return new if block.search.improves(new, fit) else None


def _several_at_once(block: _Block, quadratic: Quadratic, fit: Fit) -> Fit | None:
    """Follow the quadratic over several swaps, half as many where that leads to no better model, next time up to twice as many."""
    search, after = block.search, _followed(block, quadratic)
    n = len(after)
    while n > 1 and not search.ended():
        new = _trial(block, after[n - 1], quadratic.rest, fit)
        if new is not None and search.improves(new, fit):
            search.swaps_left -= n
            search.at_once = 2 * n
            return new
        n //= 2
    search.at_once = _FEWEST_AT_ONCE
    return None


def _followed(block: _Block, quadratic: Quadratic) -> list[Exchanged]:
    """Return where the best swaps lead, one after the other."""
    search, other, after = block.search, quadratic.copy(), list[Exchanged]()
    while len(after) < min(search.at_once, search.swaps_left):
        gains = other.gains()
        if not gains.size:
            break
        row, j = divmod(int(np.argmax(gains)), gains.shape[1])
        if not gains[row, j] > _WORTHWHILE * abs(other.value):
            break
        other.swap(row, j)
        after.append(Exchanged(other.support.copy(), other.w, other.M))
    return after


def _first_better(block: _Block, quadratic: Quadratic, fit: Fit) -> Fit | None:
    """Try the best partner of each of the most promising features outside."""
    search, gains = block.search, quadratic.gains()
    if not gains.size:
        return None
    best = np.where(quadratic.taken, -np.inf, gains.max(axis=0))
    for j in np.argsort(-best, kind="stable")[: search.shortlist].tolist():
        if search.ended() or best[j] == -np.inf:
            return None
        new = _trial(block, quadratic.after(int(np.argmax(gains[:, j])), j), quadratic.rest, fit)
        if new is not None and search.improves(new, fit):
            search.swaps_left -= 1
            return new
    return None


def _trial(block: _Block, after: Exchanged, rest: Indices, fit: Fit) -> Fit | None:
    """Fit after swaps, unless a cheaper look shows that they do not pay; `rest` are features that keep their coefficients."""
    part, (support, x, M), kept, w = block.part, after, fit.w, np.zeros(fit.n_features)
    w[rest], w[support] = kept[rest], x
    everything = np.sort(np.append(support, rest))
    if part.loss.differentiable:
        rough, hopeless = _chord(part, everything, w, fit.b, support, M, fit.objective)
    else:
        rough = block.fit(everything, w, fit.b, _ROUGH)
        hopeless = rough.objective - 2.0 * _ROUGH * abs(rough.objective) > fit.objective
    block.meet(rough)
    if hopeless:
        return None
    new = block.fit(everything, rough.w, rough.b)
    block.meet(new)
    return new


@np.errstate(over="ignore", invalid="ignore")  # the quadratic model may be far off
def _chord(
    part: Problem, support: Indices, w: Vector, b: Intercept, moving: Indices, M: Matrix, target: float
) -> tuple[Fit, bool]:
    """Take Newton's steps with a fixed inverse M of the Hessian of some coefficients, until it is clear what can be had.

    Return the model, and whether to give up on it. No step is needed below `target`.
    """
    some, at = part.samples.columns(support), np.searchsorted(support, moving)
    objective = Objective(part, support, some, part.loss)
    fit = objective.model(w[support], b)
    hopeless = not np.isfinite(fit.objective)
    for _ in range(_CHORD_STEPS):
        if hopeless or fit.objective < target:
            break
        gradient = objective.gradient(fit)[at]
        step = -M @ gradient
        if fit.objective + 0.5 * _TRUST * float(gradient @ step) > target:
            hopeless = True
            break
        x = fit.values.copy()
        x[at] += step
        trial = objective.model(x, fit.b)
        if not trial.objective < fit.objective:
            break
        fit = trial
    part.design.count_reads_of(some.design)
    return fit, hopeless

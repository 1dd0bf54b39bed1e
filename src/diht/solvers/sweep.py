r"""Many k, and many lam, for less than the price of each alone: a point of a path starts from its neighbours.

Of the optima P(k, lam) two things are known beforehand. A model allowed for k is allowed for every larger k, and costs no more
with a smaller ridge:

.. math:: P(k + 1, \lambda) \le P(k, \lambda) , \qquad P(k, \lambda) \le P(k, \lambda') \quad \text{for } \lambda \le \lambda' .

So models are handed on to larger k and smaller lam, and lower bounds the other way, to smaller k and larger lam: neither objectives
nor bounds ever rise with k, whatever the solver did. Dual points are handed on as well: the dual function of k features differs
from that of k + 1 by one square only, so that the neighbour's best dual point is nearly the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

from diht.bounds.certificate import certificate_of, handed_out
from diht.bounds.duality import Bound, Screening, dual_from_primal, lower_bound
from diht.bounds.shift import ShiftedBound, problem_gram
from diht.constraints.selection import top_k
from diht.design.gram import Gram
from diht.fit import Fit
from diht.numerics.arrays import Indices, Vector
from diht.numerics.threads import blas_threads
from diht.problem import Problem
from diht.refit import never
from diht.relaxation.engines import NewtonEngine, engine_for, newton_pays
from diht.result import Model, Result, Status, Trace
from diht.samples import Intercept, Rows
from diht.search.swaps import swap_search
from diht.solvers import Auto, Relaxed, Solver, Start
from diht.solvers.auto.stages import shifts
from diht.solvers.auto.state import AutoState
from diht.solvers.loop import Limits, as_solver, drive, solve
from diht.solvers.neighbours import BETTER, grown, refitted, shrunk
from diht.solvers.relaxed import RelaxedState
from diht.solvers.sufficient import condensed

__all__ = ["WiderBound", "proved", "solve_path"]


_ENOUGH, _ENOUGH_OF_MUCH = (
    3e-4,
    0.3,
)  # a relaxation is solved to this fraction of the gap that it leaves, and of a large X
_MOST_LOOKS = 10  # at a relaxation
_FEATURES, _AT_LEAST = 2, 50  # of a working set, as a multiple of those that a model may have, and in any case
_FREE_SWAPS = 1e5  # entries of X up to which the swaps of a point may read it without limit
_SEARCH_PASSES = 10.0  # reads of a larger X that the swaps of a point may take
_DEAR = 2e7  # bytes of an X that is read no more often than needed: its relaxation is solved again only where the gap has grown
_DRIFT, _NEAR = 2.0, 10.0  # so much, and to so many times the tolerance; below that there is no search for swaps either
_LONGLIST, _SHORTLIST = 20, 5  # swaps to try, for a small and for a larger X
_SHARES = 1.0, 0.5, 0.25, 0.125  # of a dual point, which serves a smaller lam the better the smaller it is


# ---------------------------------------------------------------------------------------------------------------------
# Bounds that neighbours prove


@dataclass(frozen=True, eq=False)
class WiderBound(Bound):
    """What a bound proves of a problem that allows less, or has a larger ridge: every model costs at least as much there.

    Attributes
    ----------
    origin : Bound
        The bound on the other problem.
    k : int or float
        The level of its constraint: how many features (or groups) that allows, besides those to keep, or the budget; no less than
        here. It is the same otherwise.
    lam : float
        Its ridge, no larger than here.
    """

    origin: Bound
    k: float
    lam: float

    @classmethod
    def of(cls, problem: Problem, bound: Bound) -> WiderBound:
        """Take a bound on a problem."""
        if isinstance(bound, WiderBound):
            return bound
        return cls(bound.value, bound.alpha, bound.rounding, bound, _allowed(problem), problem.lam)

    def _wider(self, problem: Problem) -> Problem:
        return problem.replaced(constraint=problem.constraint.allowing(self.k), lam=self.lam)

    @property
    def screened_rounding(self) -> float:
        """That of the other problem."""
        return self.origin.screened_rounding

    def renewed(self, problem: Problem) -> Bound:
        """Compute the bound on the other problem again, if that is one on this."""
        constraint, d = problem.constraint, problem.shape[1]
        most = constraint.choices(d) if constraint.level_name == "k" else np.inf
        if not _allowed(problem) <= self.k <= most or problem.lam < self.lam:
            return super().renewed(problem)
        wider = self._wider(problem)
        return WiderBound.of(wider, self.origin.renewed(wider))

    def screening(self, problem: Problem) -> Screening:
        """All models here are among those there, at no less."""
        return self.origin.screening(self._wider(problem))


def _allowed(problem: Problem) -> float:
    """The k of a problem: how many features (or groups) a model may have besides those to keep, or the budget for them."""
    return problem.constraint.level(problem.shape[1])


# ---------------------------------------------------------------------------------------------------------------------
# One point


@dataclass
class _Shared:
    """What the points of a path hand on beside models and bounds: work on the same data that need not be done twice."""

    gram: Gram | None = None
    relaxed: RelaxedState | None = None  # the state of the last relaxation, whose dense working set serves again
    gap: float = 0.0  # relative gap that it left
    settled: set[bytes] = field(default_factory=set)  # supports of this point to which a relaxation led once more


@dataclass(frozen=True, repr=False)
class _Nearby(Auto):
    """`Auto` for a problem whose neighbour is solved: no starts but the neighbours', and a short search for swaps.

    It does no more than is needed to close the gap; a start has a model and a dual point.
    """

    shared: _Shared = field(default_factory=_Shared)
    tol: float = 1e-4

    def __repr__(self) -> str:
        return repr(Auto(self.random_state))

    def finished(self, state: AutoState) -> bool:
        """Tell whether all is done, and not left undone because the time was up."""
        return state.done and not state.stop()

    def polish(self, problem: Problem, state: AutoState, best: Fit) -> None:
        """Leave the best model as it is: its neighbours were polished."""

    def _work(self, state: AutoState) -> Iterator[None]:
        problem, start = state.problem, state.start
        assert start.w is not None
        assert start.alpha is not None
        self.shared.settled.clear()
        state.pool.add(Fit.of(problem, start.w, start.b))
        state.prove(lower_bound(problem, start.alpha))
        if start.bound is not None:
            state.prove(start.bound)
        for piece in (self._shift_on, self._relax_on, self._swap):
            yield
            if state.gap <= self.tol * abs(state.objective) or state.stop():
                return
            piece(problem, state)

    def _relax_on(self, problem: Problem, state: AutoState) -> None:
        """Solve the relaxation as far as that is useful, and keep what its solution rounds to; a shift proves more."""
        dear = problem.design.nbytes > _DEAR
        enough, accuracy = (
            (max(_DRIFT * self.shared.gap, _NEAR * self.tol), _ENOUGH_OF_MUCH) if dear else (0.0, _ENOUGH)
        )
        if isinstance(state.bound, ShiftedBound) or state.gap <= enough * abs(state.objective):
            return
        relaxed = Relaxed(random_state=self.random_state)
        inner = self._resumed(problem, state, relaxed)
        for _ in range(_MOST_LOOKS):
            relaxed.advance(problem, inner)
            state.prove(inner.bound)
            own = inner.engine.value - inner.bound.value
            if inner.settled or own <= accuracy * state.gap or state.stop():
                break
        self.shared.relaxed = inner
        self._try(problem, state, relaxed.relaxed_model(problem, inner), inner.engine.b)
        self.shared.gap = state.gap / max(abs(state.objective), np.finfo(float).tiny)

    def _resumed(self, problem: Problem, state: AutoState, relaxed: Relaxed) -> RelaxedState:
        """Go on from the relaxation of the point before: on its working set, as long as that is not much too large."""
        inner, bound, d = self.shared.relaxed, state.bound, problem.shape[1]
        assert bound is not None
        constraint = problem.constraint
        size = max(_FEATURES * constraint.size, _AT_LEAST)
        if size >= d or not newton_pays(problem, size):
            return relaxed.init(problem, Start(alpha=bound.alpha, stop=state.stop))
        if inner is not None and inner.features is not None and len(inner.features) <= 2 * size:
            engine = inner.engine
            if isinstance(engine, NewtonEngine):
                part = problem.replaced(constraint=constraint.within(inner.features))
                engine.restart(part, engine.w, engine.alpha)
                return replace(inner, bound=bound, stop=state.stop, settled=False)
        g = problem.samples.pull(bound.alpha)
        w = np.zeros(d) if inner is None else relaxed.relaxed_model(problem, inner)
        ranked = problem.pull_constraint.magnitudes(g)
        ranked[constraint.free(d)[1]] = np.inf
        best = state.pool.best
        assert best is not None
        features = constraint.closure(np.union1d(top_k(ranked, size), best.support))
        engine = engine_for(problem, features, bound.alpha, w, 0.0, self.random_state)
        return RelaxedState(g, bound, features, engine, state.stop)

    def _shift_on(self, problem: Problem, state: AutoState) -> None:
        """Move curvature of the features in play into the ridge, again while features leave; one Gram matrix serves the path."""
        if state.profile.is_shiftable:
            for p in shifts(state, self._gram):
                self._try(problem, state, p, state.best.b)

    def _gram(self, problem: Problem, features: Indices) -> Gram:
        known = self.shared.gram
        if known is None or not np.all(np.isin(features, known.features)):
            known = self.shared.gram = problem_gram(problem, features)
        return known.among(features)

    def _try(self, problem: Problem, state: AutoState, v: Vector, b: Intercept) -> None:
        """Round a relaxation's model; where that leads to the best support once more, there is no need to search around it."""
        support = problem.constraint.select(v)
        best = state.pool.best
        if best is not None and np.array_equal(support, best.support):
            self.shared.settled.add(support.tobytes())
        else:
            state.fit(support, v, b)

    def _swap(self, problem: Problem, state: AutoState) -> None:
        """Improve the best model by swaps, in few reads of X where that is large."""
        best, design = state.pool.best, problem.design
        assert best is not None
        small = float(problem.shape[0]) * problem.shape[1] <= _FREE_SWAPS
        near = design.nbytes > _DEAR and state.gap <= _NEAR * self.tol * abs(state.objective)
        settled = not small and (near or best.support.tobytes() in self.shared.settled)
        undecided = None if settled else state.screened()
        if undecided is None:
            return
        swap_search(
            undecided,
            best.support,
            best.w,
            best.b,
            shortlist=_LONGLIST if small else _SHORTLIST,
            pool=state.pool,
            stop=state.stop if small else state.budget.within(_SEARCH_PASSES),
        )


# ---------------------------------------------------------------------------------------------------------------------
# All points


def solve_path(
    problem: Problem,
    ks: Sequence[float],
    lams: Sequence[float],
    solver: str | Solver = "auto",
    tol: float = 1e-4,
    time_limit: float | None = None,
    random_state: int | None = None,
    tell: Callable[[float, float, Result], Any] | None = None,
    stop: Callable[[], bool] = never,
) -> dict[tuple[float, float], Result]:
    """Solve a problem for all of some k and lam, whatever its own are.

    Parameters
    ----------
    problem : Problem
        The data, the loss, and all of the constraint but k.
    ks, lams : sequences of int and of float
        Ascending, without repetition.
    solver, tol, random_state
        As in `solve`. "auto" is itself at the first point, the largest k and lam, and goes on from neighbour to neighbour with
        shorter searches, without branching; any other method runs at every point, starting from the neighbour.
    time_limit : float, optional
        Limit on the seconds of all, shared evenly among what is left to do.
    tell : callable, optional
        Gets k, lam and the result of each point when it is first solved, the largest k of the largest lam first; True leaves out
        those that have not had their turn.
    stop : callable
        Once it says True no point is worked on any longer; every point has a model and a bound all the same.

    Returns
    -------
    dict
        Results by (k, lam). Neither objectives nor lower bounds rise with k, nor fall with lam.
    """
    method, tell = as_solver(solver, random_state), tell or (lambda *_: False)
    if isinstance(method, Auto):
        method = replace(method, branching=False)
    least = problem.replaced(lam=lams[0])
    table = condensed(least, tol) if method.sums_suffice else None
    if table is None:
        sweep = _Sweep(problem, list(ks), list(lams), method, tol, time_limit, tell, stop)
        with blas_threads(False):
            return sweep.run()

    def answer(k: float, lam: float, result: Result) -> Result:
        return table.at(problem.replaced(constraint=problem.constraint.allowing(k), lam=lam)).result(result, tol)

    sweep = _Sweep(
        table.problem, list(ks), list(lams), method, tol, time_limit,
        lambda k, lam, result: tell(k, lam, answer(k, lam, result)), stop,
    )  # fmt: skip
    return {key: answer(*key, result) for key, result in sweep.run().items()}


@dataclass(eq=False)
class _Sweep:
    """The points solved so far, and how to solve the next."""

    problem: Problem
    ks: list[float]
    lams: list[float]
    method: Solver
    tol: float
    time_limit: float | None
    tell: Callable[[float, float, Result], Any]
    stop: Callable[[], bool] = never
    results: dict[tuple[float, float], Result] = field(default_factory=dict)
    shared: _Shared = field(default_factory=_Shared)
    began: float = field(default_factory=perf_counter)

    def run(self) -> dict[tuple[float, float], Result]:
        """Go down in lam, and for each lam down and up in k."""
        for lam, larger in zip(self.lams[::-1], [None, *self.lams[:0:-1]], strict=True):
            stopped = self.go_down(lam, larger)
            if not self.stop():
                self.go_up(lam)
            if stopped:
                break
        self.hand_on()
        return {key: self.results[key] for key in sorted(self.results, key=lambda key: key[::-1])}

    def at(self, k: float, lam: float) -> Problem:
        """The problem of a point."""
        return self.problem.replaced(constraint=self.problem.constraint.allowing(k), lam=lam)

    def go_down(self, lam: float, larger: float | None) -> bool:
        """Solve for each k, the largest first, from the models for the next larger k and lam; tell whether to stop."""
        above = None
        for k in self.ks[::-1]:
            problem = self.at(k, lam)
            starts = []
            if above is not None:
                starts.append(shrunk(problem, self.model(above, lam)))
            if larger is not None:
                starts.append(refitted(problem, self.model(k, larger)))
            known = (
                None
                if above is None
                else WiderBound.of(self.at(above, lam), self.results[above, lam].certificate.bound)
            )
            dual = known if known is not None or larger is None else self.results[k, larger].certificate.bound
            best = min(starts, key=lambda model: model.objective, default=None)
            start = None if best is None or dual is None else Start(best.w, best.b, dual.alpha, known)
            self.results[k, lam] = self.solve(problem, start)
            above = k
            if self.tell(k, lam, self.results[k, lam]):
                return True
        return False

    def go_up(self, lam: float) -> None:
        """Try for each k, the smallest first, the model for the next smaller k with more features; and what is new downwards."""
        ks = [k for k in self.ks if (k, lam) in self.results]
        improved = set()
        for k, other in [*zip(ks[1:], ks, strict=False), *zip(ks[-2::-1], ks[:0:-1], strict=True)]:
            problem, result = self.at(k, lam), self.results[k, lam]
            if result.status is Status.OPTIMAL or (other > k and other not in improved):
                continue
            if other < k and np.all(np.isin(self.results[other, lam].support, result.support)):
                continue  # the smaller model is a part of this one
            model = self.model(other, lam)
            tried = grown(problem, model) if other < k else shrunk(problem, model)
            if tried.objective < result.objective - BETTER * abs(result.objective):
                improved.add(k)
                again = self.solve(problem, Start(tried.w, tried.b, result.alpha, result.certificate.bound))
                cost = {
                    name: getattr(result, name) + getattr(again, name) for name in ("n_iter", "n_passes", "seconds")
                }
                self.results[k, lam] = replace(again, **cost)

    def hand_on(self) -> None:
        """Let larger k and smaller lam have the models, smaller k and larger lam the bounds, where they are better."""
        keys = sorted(self.results, key=lambda key: (key[0], -key[1]))
        ends = [(key, other) for key in keys for other in keys if self.follows(key, other)]
        for key, other in ends:
            if self.results[other].objective > self.results[key].objective:
                self.put(other, self.results[key], self.results[other].certificate.bound)
        for other, key in reversed(ends):
            if self.results[other].lower_bound < self.results[key].lower_bound:
                bound = WiderBound.of(self.at(*key), self.results[key].certificate.bound)
                self.put(other, self.results[other], bound)

    def follows(self, key: tuple[float, float], other: tuple[float, float]) -> bool:
        """Whether a point has the next larger k, or the next smaller lam."""
        ahead = self.ks.index(other[0]) - self.ks.index(key[0])
        below = self.lams.index(key[1]) - self.lams.index(other[1])
        return (ahead, below) in ((1, 0), (0, 1))

    def put(self, key: tuple[float, float], model: Result, bound: Bound) -> None:
        """Give a point a model and a bound."""
        problem, result = self.at(*key), self.results[key]
        certificate = certificate_of(problem, model.coef.ravel(), model.intercept, bound)
        closed = certificate.closes(self.tol) and result.status is not Status.STOPPED
        self.results[key] = replace(
            result,
            w=model.w,
            coef=model.coef,
            intercept=model.intercept,
            objective=certificate.objective,
            certificate=certificate,
            status=Status.OPTIMAL if closed else result.status,
        )

    def solve(self, problem: Problem, start: Start | None) -> Result:
        """Solve for a point; from scratch where it has no neighbour."""
        if type(self.method) is Auto and start is not None:
            nearby = _Nearby(self.method.random_state, self.shared, self.tol)
            result = drive(problem, nearby, start, Limits(self.tol, time_limit=self.share()), stop=self.stop)
        else:
            result = solve(problem, self.method, start, self.tol, time_limit=self.share(), stop=self.stop)
        # What else a result holds would take many times the memory of its model.
        return replace(result, pool=(), last=result.model, last_alpha=None)

    def share(self) -> float | None:
        """Seconds for the next point: an even part of those that are left."""
        if self.time_limit is None:
            return None
        left = self.time_limit - (perf_counter() - self.began)
        return max(left, 1e-3) / max(1, len(self.ks) * len(self.lams) - len(self.results))

    def model(self, k: float, lam: float) -> Fit:
        """The model of a point, in the coordinates of the solvers."""
        result = self.results[k, lam]
        w = self.problem.flat("w", result.w)
        support = np.flatnonzero(w)
        b = self.problem.centred_intercept(w, result.intercept)
        return Fit(len(w), support, w[support], b, result.objective)


# ---------------------------------------------------------------------------------------------------------------------
# Models from elsewhere


def proved(
    problem: Problem,
    models: Mapping[tuple[float, float], Model],
    solved: Mapping[tuple[float, float], Result],
    tol: float = 1e-4,
) -> dict[tuple[float, float], Result]:
    """Return models of a problem's path with bounds: those of their own dual points, and of those of the points that were solved.

    Models and bounds are handed on from point to point, so that neither objectives nor bounds rise with k, nor fall with lam.

    Parameters
    ----------
    problem : Problem
        The data, the loss, and all of the constraint but k.
    models : mapping from k and lam to Model
        Those of all points.
    solved : mapping from k and lam to Result
        Those of some of the points; they replace the models.
    tol : float
        As in `solve`.

    Returns
    -------
    dict
        Results by (k, lam), in the order of the models.
    """
    ks, lams = (sorted(set(column)) for column in zip(*models, strict=True))
    sweep = _Sweep(problem, ks, lams, Auto(), tol, None, lambda *_: False)
    known = [(result.alpha, problem.samples.pull(result.alpha)) for result in solved.values()]
    for key, model in models.items():
        if key in solved:
            sweep.results[key] = replace(solved[key], pool=(), last=solved[key].model, last_alpha=None)
        else:
            sweep.results[key] = _proved(sweep.at(*key), model, known, tol)
    sweep.hand_on()
    return {key: sweep.results[key] for key in models}


def _proved(problem: Problem, model: Model, known: Sequence[tuple[Rows, Vector]], tol: float) -> Result:
    """Return a model with the best bound of its own dual point and of shares of others, powers of 2 that cost no digit."""
    began, reads = perf_counter(), problem.design.passes
    w = problem.flat("w", model.w)
    b = problem.centred_intercept(w, model.intercept) if problem.fit_intercept else 0.0
    bound = lower_bound(problem, dual_from_primal(problem, w, b))
    for alpha, g in known:
        for share in _SHARES:
            part = problem.samples.map(lambda y, s, a, share=share: share * a, alpha)
            bound = max(bound, lower_bound(problem, part, share * g), key=lambda bound: bound.value)
    return handed_out(problem, w, b, bound, tol).result(
        Result,
        Status.STALLED,
        tol,
        pool=(),
        last=model,
        last_alpha=None,
        n_iter=0,
        n_passes=problem.design.passes - reads,
        seconds=perf_counter() - began,
        trace=Trace(),
        solver=repr(Auto()),
    )

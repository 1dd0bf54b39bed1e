r"""Many k, and many lam, for hardly more than the price of one: each point of a path starts from its neighbours.

Of the optima P(k, lam) two things are known beforehand. A model allowed for k is allowed for every larger k, and costs no more
with a smaller ridge:

.. math:: P(k + 1, \lambda) \le P(k, \lambda) , \qquad P(k, \lambda) \le P(k, \lambda') \quad \text{for } \lambda \le \lambda' .

So models are handed on to larger k and smaller lam, and lower bounds the other way, to smaller k and larger lam: neither objectives
nor bounds ever rise with k, whatever the solver did. Dual points are handed on as well: the dual function of k features differs
from that of k + 1 by one square only, so that the neighbour's best dual point is nearly the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln
from sklearn.utils import check_array

from diht.constraint import Cardinality, Constraint
from diht.design import Design, as_design
from diht.design.gram import Gram
from diht.duality import Bound, Screening, lower_bound, primal, upper_bound
from diht.estimators import _blas_threads, standard_deviations
from diht.loop import _certificate, as_solver, solve
from diht.losses import Loss, Squared, as_loss
from diht.problem import Problem, normalised_weights
from diht.result import Certificate, Model, Result, Status, Trace, rounded_down
from diht.selection import top_k
from diht.shift import ShiftedBound, in_play, problem_gram, smallest_eigenvalue
from diht.solvers import Auto, Relaxed, Solver, Start
from diht.solvers.auto import AutoState
from diht.solvers.engines import NewtonEngine, engine_for, newton_pays
from diht.solvers.gram import GramRelaxation
from diht.solvers.refit import refit
from diht.solvers.relaxed import _State
from diht.solvers.swaps import swap_search
from diht.solvers.units import swap_units
from diht.structure import constrained, indices_of, n_choices, signs_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = ["Path", "PathPoint", "solve_path", "sparse_path"]

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

_ENOUGH = 0.1  # a relaxation is solved to this fraction of the gap that it leaves
_MOST_LOOKS = 10  # at a relaxation
_FEATURES, _AT_LEAST = 2, 50  # of a working set, as a multiple of those that a model may have, and in any case
_MOST_GRAM = 6000  # features up to which a shift is looked for
_LEFT = 0.9  # fraction of the features up to which another shift is worth its while
_SHIFT_ACCURACY = 1e-5
_SMALL = 1e5  # entries of X up to which swaps cost next to nothing
_SEARCH_PASSES = 10.0  # reads of a larger X that the swaps of a point may take
_LONGLIST, _SHORTLIST = 20, 5  # swaps to try, for a small and for a larger X
_MOST_DIRECT = 1e9  # operations of a Hessian up to which the cheapest feature is found by it
_BETTER = 1e-9  # relative fall of the objective that is worth another look
CRITERIA = "aic", "bic", "ebic"
_LIKELIHOODS = "logistic", "poisson"  # losses that are negative logarithms of likelihoods


# ---------------------------------------------------------------------------------------------------------------------
# Bounds that neighbours prove


@dataclass(frozen=True, eq=False)
class WiderBound(Bound):
    """What a bound proves of a problem that allows less, or has a larger ridge: every model costs at least as much there.

    Attributes
    ----------
    origin : Bound
        The bound on the other problem.
    k : int
        How many features (or groups) its constraint allows, besides those to keep; no less than here. It is the same otherwise.
    lam : float
        Its ridge, no larger than here.
    """

    origin: Bound
    k: int
    lam: float

    @classmethod
    def of(cls, problem: Problem, bound: Bound) -> WiderBound:
        """Take a bound on a problem."""
        if isinstance(bound, WiderBound):
            return bound
        return cls(bound.value, bound.alpha, bound.rounding, bound, _allowed(problem), problem.lam)

    def _wider(self, problem: Problem) -> Problem:
        return problem.replaced(constraint=problem.constraint.allowing(self.k), lam=self.lam)

    def renewed(self, problem: Problem) -> Bound:
        """Compute the bound on the other problem again, if that is one on this."""
        most = problem.constraint.choices(problem.shape[1])
        if not _allowed(problem) <= self.k <= most or problem.lam < self.lam:
            return super().renewed(problem)
        wider = self._wider(problem)
        return WiderBound.of(wider, self.origin.renewed(wider))

    def screening(self, problem: Problem) -> Screening:
        """All models here are among those there, at no less."""
        return self.origin.screening(self._wider(problem))


def _allowed(problem: Problem) -> int:
    """The k of a problem: how many features (or groups) a model may have besides those to keep."""
    return problem.constraint.free(problem.shape[1])[0]


# ---------------------------------------------------------------------------------------------------------------------
# One point


@dataclass
class _Shared:
    """What the points of a path hand on beside models and bounds: work on the same data that need not be done twice."""

    gram: Gram | None = None
    relaxed: _State | None = None  # the state of the last relaxation, whose dense working set serves again
    settled: set[bytes] = field(default_factory=set)  # supports of this point to which a relaxation led once more


@dataclass(frozen=True)
class _Nearby(Auto):
    """`Auto` for a problem whose neighbour is solved: no starts but the neighbours', and a short search for swaps."""

    shared: _Shared = field(default_factory=_Shared, repr=False)
    tol: float = 1e-4

    def result(self, problem: Problem, start: Start) -> Result:
        """Do all the work, and no more than is needed to close the gap; `start` has a model and a dual point."""
        began, passes = perf_counter(), problem.design.passes
        state = AutoState(stop=start.stop, passes=passes)
        n_iter = sum(1 for _ in self._work(problem, start, state))
        best, dtype = state.pool.best, problem.design.dtype
        assert best is not None
        w = best.coefficients(problem.shape[1])
        intercept = float(dtype.type(problem.intercept_of(w, best.b)))
        w = (w + 0.0).astype(dtype)
        certificate = _certificate(problem, w, intercept, state.bound)
        closed = certificate.relative_gap <= self.tol
        ended = Status.TIME_LIMIT if state.stop() else Status.STALLED
        return Result(
            w=w,
            intercept=intercept,
            objective=certificate.objective,
            alpha=certificate.bound.alpha,
            certificate=certificate,
            pool=(),
            last=Model(w, intercept, certificate.objective),
            last_alpha=None,
            status=Status.OPTIMAL if closed else ended,
            n_iter=n_iter,
            n_passes=problem.design.passes - passes,
            seconds=perf_counter() - began,
            trace=Trace(),
            solver="Auto()",
        )

    def _work(self, problem: Problem, start: Start, state: AutoState) -> Iterator[None]:
        assert start.w is not None
        assert start.alpha is not None
        self.shared.settled.clear()
        state.pool.add(start.w, start.b, primal(problem, start.w, start.b))
        state.prove(lower_bound(problem, start.alpha))
        if start.bound is not None:
            state.prove(start.bound)
        for piece in (self._shift_on, self._relax_on, self._swap):
            if state.gap <= self.tol * abs(state.objective) or state.stop():
                return
            yield from piece(problem, state)

    def _relax_on(self, problem: Problem, state: AutoState) -> Iterator[None]:
        """Solve the relaxation as far as that is useful, and keep what its solution rounds to; a shift proves more."""
        if isinstance(state.bound, ShiftedBound):
            return
        relaxed = Relaxed(random_state=self.random_state)
        inner = self._resumed(problem, state, relaxed)
        for _ in range(_MOST_LOOKS):
            relaxed.advance(problem, inner)
            state.prove(inner.bound)
            own = inner.engine.value - inner.bound.value
            yield
            if inner.settled or own <= _ENOUGH * state.gap or state.stop():
                break
        self.shared.relaxed = inner
        self._try(problem, state, relaxed.relaxed_model(problem, inner), inner.engine.b)

    def _resumed(self, problem: Problem, state: AutoState, relaxed: Relaxed) -> _State:
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
        g = problem.design.rmatvec(problem.s * bound.alpha)
        w = np.zeros(d) if inner is None else relaxed.relaxed_model(problem, inner)
        ranked = constraint.opposite.magnitudes(g)
        ranked[constraint.free(d)[1]] = np.inf
        features = constraint.closure(np.union1d(top_k(ranked, size), state.pool.best.support))  # type: ignore[union-attr]
        engine = engine_for(problem, features, bound.alpha, w, 0.0, self.random_state)
        return _State(g, bound, features, engine, state.stop)

    def _shift_on(self, problem: Problem, state: AutoState) -> Iterator[None]:
        """Move curvature of the features in play into the ridge, again while features leave; one Gram matrix serves the path."""
        before = np.inf
        while isinstance(problem.loss, Squared) and problem.constraint.is_plain:
            best, bound = state.pool.best, state.bound
            assert best is not None
            assert bound is not None
            w = best.coefficients(problem.shape[1])
            features, ceiling = in_play(bound.screening(problem), upper_bound(problem, w, best.b))
            if not 0 < len(features) <= min(_LEFT * before, _MOST_GRAM, problem.shape[0]):
                return
            before = len(features)
            known = self.shared.gram
            if known is None or not np.all(np.isin(features, known.features)):
                known = self.shared.gram = problem_gram(problem, features)
            known = known.among(features)
            sigma = smallest_eigenvalue(problem, features, known)
            if sigma == 0.0:
                return
            relaxation = GramRelaxation(problem, features, sigma, known)
            solved = relaxation.solve(p0=w, tol=_SHIFT_ACCURACY)
            origin = bound if len(features) < problem.shape[1] else None
            state.prove(relaxation.certified(solved.p, ceiling=ceiling, origin=origin))
            self._try(problem, state, solved.p, best.b)
            yield

    def _try(self, problem: Problem, state: AutoState, v: Vector, b: float) -> None:
        """Round a relaxation's model; where that leads to the best support once more, there is no need to search around it."""
        support = problem.constraint.select(v)
        if np.array_equal(support, state.pool.best.support):  # type: ignore[union-attr]
            self.shared.settled.add(support.tobytes())
        else:
            self._fit(problem, state, support, v, b)

    def _swap(self, problem: Problem, state: AutoState) -> Iterator[None]:
        """Improve the best model by swaps, in few reads of X where that is large."""
        best, design = state.pool.best, problem.design
        assert best is not None
        small = float(problem.shape[0]) * problem.shape[1] <= _SMALL
        settled = not small and best.support.tobytes() in self.shared.settled
        undecided = None if settled else self._undecided(problem, state)
        if undecided is None:
            return
        limit = np.inf if small else design.passes + _SEARCH_PASSES
        plain = partial(swap_search, shortlist=_LONGLIST if small else _SHORTLIST)
        (plain if problem.constraint.is_plain else swap_units)(
            undecided,
            best.support,
            best.coefficients(problem.shape[1]),
            best.b,
            pool=state.pool,
            stop=lambda: state.stop() or design.passes > limit,
        )
        yield


# ---------------------------------------------------------------------------------------------------------------------
# All points


def solve_path(
    problem: Problem,
    ks: Sequence[int],
    lams: Sequence[float],
    solver: str | Solver = "auto",
    tol: float = 1e-4,
    time_limit: float | None = None,
    random_state: int | None = None,
    tell: Callable[[int, float, Result], Any] | None = None,
) -> dict[tuple[int, float], Result]:
    """Solve a problem for all of some k and lam, whatever its own are.

    Parameters
    ----------
    problem : Problem
        The data, the loss, and all of the constraint but k.
    ks, lams : sequences of int and of float
        Ascending, without repetition.
    solver, tol, random_state
        As in `solve`. "auto" is itself at the first point, the largest k and lam, and goes on from neighbour to neighbour with
        shorter searches; any other method runs at every point, starting from the neighbour.
    time_limit : float, optional
        Limit on the seconds of all, shared evenly among what is left to do.
    tell : callable, optional
        Gets k, lam and the result of each point when it is first solved, the largest k of the largest lam first; True leaves out
        those that have not had their turn.

    Returns
    -------
    dict
        Results by (k, lam). Neither objectives nor lower bounds rise with k, nor fall with lam.
    """
    sweep = _Sweep(problem, list(ks), list(lams), solver, tol, time_limit, random_state, tell or (lambda *_: False))
    return sweep.run()


@dataclass(eq=False)
class _Sweep:
    """The points solved so far, and how to solve the next."""

    problem: Problem
    ks: list[int]
    lams: list[float]
    solver: str | Solver
    tol: float
    time_limit: float | None
    random_state: int | None
    tell: Callable[[int, float, Result], Any]
    results: dict[tuple[int, float], Result] = field(default_factory=dict)
    shared: _Shared = field(default_factory=_Shared)
    began: float = field(default_factory=perf_counter)

    def run(self) -> dict[tuple[int, float], Result]:
        """Go down in lam, and for each lam down and up in k."""
        for lam, larger in zip(self.lams[::-1], [None, *self.lams[:0:-1]], strict=True):
            stopped = self.go_down(lam, larger)
            self.go_up(lam)
            if stopped:
                break
        self.hand_on()
        return {key: self.results[key] for key in sorted(self.results, key=lambda key: key[::-1])}

    def at(self, k: int, lam: float) -> Problem:
        """The problem of a point."""
        return self.problem.replaced(constraint=self.problem.constraint.allowing(k), lam=lam)

    def go_down(self, lam: float, larger: float | None) -> bool:
        """Solve for each k, the largest first, from the models for the next larger k and lam; tell whether to stop."""
        above = None
        for k in self.ks[::-1]:
            problem = self.at(k, lam)
            starts = []
            if above is not None:
                starts.append(_shrunk(problem, self.model(above, lam)))
            if larger is not None:
                starts.append(_refitted(problem, self.model(k, larger)))
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
            model = self.model(other, lam)
            tried = _grown(problem, model) if other < k else _shrunk(problem, model)
            if tried.objective < result.objective - _BETTER * abs(result.objective):
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

    def follows(self, key: tuple[int, float], other: tuple[int, float]) -> bool:
        """Whether a point has the next larger k, or the next smaller lam."""
        ahead = self.ks.index(other[0]) - self.ks.index(key[0])
        below = self.lams.index(key[1]) - self.lams.index(other[1])
        return (ahead, below) in ((1, 0), (0, 1))

    def put(self, key: tuple[int, float], model: Result, bound: Bound) -> None:
        """Give a point a model and a bound."""
        problem, result = self.at(*key), self.results[key]
        certificate = _certificate(problem, model.w, model.intercept, bound)
        closed = certificate.relative_gap <= self.tol and result.status is not Status.STOPPED
        self.results[key] = replace(
            result,
            w=model.w,
            intercept=model.intercept,
            objective=certificate.objective,
            alpha=certificate.bound.alpha,
            certificate=certificate,
            status=Status.OPTIMAL if closed else result.status,
        )

    def solve(self, problem: Problem, start: Start | None) -> Result:
        """Solve for a point; from scratch where it has no neighbour."""
        method, seconds = as_solver(self.solver, problem, self.random_state), self.share()
        if type(method) is Auto and start is not None:
            deadline = np.inf if seconds is None else perf_counter() + seconds
            start = replace(start, stop=lambda: perf_counter() > deadline)
            return _Nearby(random_state=method.random_state, shared=self.shared, tol=self.tol).result(problem, start)
        result = solve(problem, method, start, self.tol, time_limit=seconds)
        # What else a result holds would take many times the memory of its model.
        return replace(result, pool=(), last=Model(result.w, result.intercept, result.objective), last_alpha=None)

    def share(self) -> float | None:
        """Seconds for the next point: an even part of those that are left."""
        if self.time_limit is None:
            return None
        left = self.time_limit - (perf_counter() - self.began)
        return max(left, 1e-3) / max(1, len(self.ks) * len(self.lams) - len(self.results))

    def model(self, k: int, lam: float) -> _Model:
        """The model of a point, in the coordinates of the solvers."""
        result = self.results[k, lam]
        w = result.w.astype(np.float64)
        return _Model(w, self.problem.centred_intercept(w, result.intercept), result.objective)


@dataclass(frozen=True, eq=False)
class _Model:
    w: Vector
    b: float
    objective: float


def _refitted(problem: Problem, model: _Model, support: Indices | None = None) -> _Model:
    """The best model on a support, that of a given model by default."""
    if support is None:
        inside = problem.constraint.free(len(model.w))[1]
        support = problem.constraint.closure(np.union1d(np.flatnonzero(model.w), inside))
    w, b, u = refit(problem, support, model.w, model.b, rtol=_BETTER)
    return _Model(w, b, primal(problem, w, b, u))


def _shrunk(problem: Problem, model: _Model) -> _Model:
    """Leave out the features (or groups) that cost least, each alone, until the constraint is met, and fit again."""
    constraint, support = problem.constraint.unsigned, np.flatnonzero(model.w)
    if constraint.allows(model.w):
        return _refitted(problem, model)
    x, design, roots = model.w[support], problem.design.columns(support), np.zeros_like(model.w)
    if len(problem.y) * float(len(support)) ** 2 > _MOST_DIRECT:
        roots[support] = x * design.column_norms()
        return _refitted(problem, model, constraint.select(roots))
    # By the quadratic around the model, with M the inverse Hessian, leaving G out costs w_G' M_GG^-1 w_G / 2 and moves the others.
    M = np.asarray(np.linalg.inv(_hessian(problem, design, x, model.b)), dtype=np.float64)
    problem.design.count_reads_of(design)
    roots[support] = _roots_of_costs(constraint, support, x, M)
    chosen = constraint.select(roots)
    kept = np.isin(support, chosen)
    w = np.zeros_like(model.w)
    w[support[kept]] = x[kept] - M[np.ix_(kept, ~kept)] @ np.linalg.solve(M[np.ix_(~kept, ~kept)], x[~kept])
    return _refitted(problem, replace(model, w=w), chosen)


def _roots_of_costs(constraint: Constraint, support: Indices, x: Vector, M: Vector) -> Vector:
    """A vector whose squared norm over each feature, or group, is w_G' M_GG^-1 w_G."""
    if constraint.unit_size == 1:
        return np.asarray(x / np.sqrt(np.diag(M)))
    roots, left = np.empty_like(x), np.arange(len(support))
    while len(left):
        together = np.isin(support[left], constraint.closure(support[left[:1]]))
        G, left = left[together], left[~together]
        roots[G] = np.linalg.solve(np.linalg.cholesky(M[np.ix_(G, G)]), x[G])
    return roots


def _hessian(problem: Problem, design: Design, x: Vector, b: float) -> Vector:
    """Curvature of the objective around a model, in the coefficients of its features; the intercept is eliminated."""
    c = problem.s * problem.loss.second_derivative(design.matvec(x) + b, problem.y)
    Z = design.toarray()
    if problem.fit_intercept and c.sum() > 0.0:
        Z = Z - (c / c.sum()) @ Z
    H = Z.T @ (c[:, None] * Z)
    H[np.diag_indices(len(H))] += problem.lam
    return np.asarray(H)


def _grown(problem: Problem, model: _Model) -> _Model:
    """Add the features (or groups) that promise most, each alone, until the constraint is full, and fit again."""
    support, design = np.flatnonzero(model.w), problem.design
    u = design.matvec(model.w, support=support) + model.b
    slopes = problem.loss.derivative(u, problem.y)
    promise = design.rmatvec(problem.s * slopes) / np.sqrt(_diagonal(problem))
    with_these = problem.constraint.restricted(support, np.empty(0, dtype=np.int64))
    return _refitted(problem, model, with_these.opposite.select(promise))


def _diagonal(problem: Problem) -> Vector:
    """About the diagonal of the Hessian, up to a factor: for ranking features."""
    mean_square = np.square(problem.design.column_norms()) / problem.shape[0]
    return np.asarray(mean_square + problem.lam)


# ---------------------------------------------------------------------------------------------------------------------
# For users


@dataclass(frozen=True, eq=False)
class PathPoint:
    """The model for one k and lam.

    Attributes
    ----------
    k : int
    lam : float
    coef : array of shape (d,)
        Coefficients of the columns of X, at most k of them nonzero.
    intercept : float
    result : Result
        The model with its bound and certificate, in the units of the problem that was solved.
    """

    k: int
    lam: float
    coef: NDArray[Any] = field(repr=False)
    intercept: float
    result: Result = field(repr=False)

    @property
    def support(self) -> Indices:
        """Indices of the nonzero coefficients, ascending."""
        return np.flatnonzero(self.coef)

    @property
    def objective(self) -> float:
        """The model's objective."""
        return self.result.objective

    @property
    def lower_bound(self) -> float:
        """No model with at most k features has a smaller objective."""
        return self.result.lower_bound

    @property
    def relative_gap(self) -> float:
        """By which fraction of its objective the model is at most worse than the best one."""
        return self.result.relative_gap

    @property
    def certificate(self) -> Certificate:
        """These figures with their proof, and what is proved of each feature."""
        return self.result.certificate

    def __str__(self) -> str:
        return (
            f"k={self.k} lam={self.lam:g}: {len(self.support)} features, objective {self.objective:.7g}, "
            f"bound {rounded_down(self.lower_bound, 7)}, relative gap {self.relative_gap:.2e}"
        )


@dataclass(frozen=True, eq=False)
class Path(Sequence[PathPoint]):
    """The models of a path, by lam and then by k, both ascending.

    Attributes
    ----------
    points : tuple of PathPoint
    feature_names : tuple of str
        The names of X's columns, or x0, x1, ...
    loss : Loss
    n_samples : float
        The number of samples, or the sum of their weights: information criteria count these as repetitions.
    constraint : Constraint
        What the models obey, whatever its k.
    """

    points: tuple[PathPoint, ...]
    feature_names: tuple[str, ...] = field(repr=False)
    loss: Loss
    n_samples: float
    constraint: Constraint = field(default=Cardinality(1), repr=False)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: Any) -> Any:
        return self.points[index]

    @property
    def ks(self) -> list[int]:
        """All k, ascending."""
        return sorted({point.k for point in self.points})

    @property
    def lams(self) -> list[float]:
        """All lam, ascending."""
        return sorted({point.lam for point in self.points})

    def point(self, k: int, lam: float | None = None) -> PathPoint:
        """Return the point of a k and a lam, which may be left out where there is only one."""
        found = [point for point in self.at(lam) if point.k == k]
        if not found:
            raise ValueError(f"k must be one of {self.ks}, got {k!r}")
        return found[0]

    def at(self, lam: float | None = None) -> list[PathPoint]:
        """Return the points of one lam, which may be left out where there is only one."""
        lams = self.lams
        if lam is None and len(lams) > 1:
            raise ValueError(f"lam must be one of {lams}: the path has several")
        found = [point for point in self.points if lam is None or point.lam == lam]
        if not found:
            raise ValueError(f"lam must be one of {lams}, got {lam!r}")
        return found

    def coefficients(self) -> NDArray[Any]:
        """Return the coefficients, one row a point."""
        return np.stack([point.coef for point in self.points])

    def criterion(self, name: str) -> Vector:
        r"""Return an information criterion of every point; the smaller, the better.

        With n samples (or weights that sum to n), m coefficients (the intercept among them) and the log-likelihood L of the
        model, AIC is :math:`-2 L + 2 m`, BIC is :math:`-2 L + m \log n`, and EBIC adds :math:`2 \log \binom{d}{j}` to BIC for a
        choice of j among d features, or groups, besides those to keep (Chen and Chen, 2008). For the squared loss :math:`-2 L` is
        :math:`n \log(\mathrm{RSS} / n)`, up to a constant. A ridge makes coefficients count for less than one each: that is
        neglected.

        Parameters
        ----------
        name : {"aic", "bic", "ebic"}

        Returns
        -------
        array of shape (n_points,)
        """
        if name not in CRITERIA:
            raise ValueError(f"name must be one of {list(CRITERIA)}, got {name!r}")
        squared = isinstance(self.loss, Squared)
        if not squared and self.loss.name not in _LIKELIHOODS:
            raise ValueError(
                f"{name} needs a loss that is a likelihood (squared, logistic, poisson), got {self.loss.name}"
            )
        n, n_features = self.n_samples, len(self.feature_names)
        inside, d = self.constraint.free(n_features)[1], self.constraint.choices(n_features)
        weight = 2.0 if name == "aic" else np.log(n)
        values = []
        for point in self.points:
            result = point.result
            mean_loss = result.objective - 0.5 * point.lam * float(np.square(result.w, dtype=np.float64).sum())
            mean_loss = max(mean_loss, np.finfo(np.float64).tiny)
            value = n * np.log(mean_loss) if squared else 2.0 * n * mean_loss
            value += weight * (len(point.support) + (point.intercept != 0.0))
            if name == "ebic":
                j = self.constraint.count(np.setdiff1d(point.support, inside))
                value += 2.0 * (gammaln(d + 1) - gammaln(j + 1) - gammaln(d - j + 1))
            values.append(float(value))
        return np.array(values)

    def to_frame(self) -> DataFrame:
        """Return a table of the points, with information criteria where the loss is a likelihood; needs pandas."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install pandas") from None
        columns: dict[str, Any] = {
            "k": [point.k for point in self],
            "lam": [point.lam for point in self],
            "n_features": [len(point.support) for point in self],
            "objective": [point.objective for point in self],
            "lower_bound": [point.lower_bound for point in self],
            "relative_gap": [point.relative_gap for point in self],
            "required": [len(point.certificate.required) for point in self],
            "status": [str(point.result.status) for point in self],
            "n_passes": [point.result.n_passes for point in self],
        }
        if isinstance(self.loss, Squared) or self.loss.name in _LIKELIHOODS:
            columns |= {name: self.criterion(name) for name in CRITERIA}
        return DataFrame(columns)

    def plot(self, lam: float | None = None) -> Figure:
        """Draw objective and bound, the coefficients, and which features are proved to be in, against k; needs matplotlib.

        Parameters
        ----------
        lam : float, optional
            Which of several lam to show.
        """
        try:
            import matplotlib  # noqa: F401 - the drawing itself imports it late
        except ImportError:
            raise ImportError("plot needs matplotlib: pip install 'diht[app]'") from None
        from diht.report.plots import Steps, draw_path

        points = self.at(lam)
        used = np.unique(np.concatenate([point.support for point in points]))
        steps = Steps(
            ks=np.array([point.k for point in points]),
            objective=np.array([point.objective for point in points]),
            bound=np.array([point.lower_bound for point in points]),
            names=[self.feature_names[j] for j in used],
            coef=np.stack([point.result.w[used] for point in points]),
            axis="coefficient" + " of the standardised column" * points[0].certificate.scaled,
            required=np.stack([np.isin(used, point.certificate.required) for point in points]),
            counted="features" if self.constraint.unit_size == 1 else "groups",
        )
        return draw_path(steps, f"{self.loss.name} loss, lam={points[0].lam:g}")


def sparse_path(
    X: Any,
    y: ArrayLike,
    *,
    ks: Sequence[int] | None = None,
    lams: float | Sequence[float] = 1e-3,
    loss: str | Loss = "squared",
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    standardize: bool = False,
    solver: str | Solver = "auto",
    tol: float = 1e-4,
    time_limit: float | None = None,
    n_jobs: int | None = None,
    random_state: int | None = None,
    verbose: bool = False,
    callback: Callable[[PathPoint], Any] | None = None,
    keep: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    sign: Any = None,
) -> Path:
    """Fit models for many k, and many lam, each from its neighbours, and each with a bound of its own.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        The samples. A data frame's columns give the features their names.
    y : array-like of shape (n_samples,)
        The targets; for a classification loss two classes, of which the second in order counts as positive.
    ks : sequence of int, optional
        Numbers of features; with `groups` of groups, with `keep` besides those. By default some from 1 to 50, or to all.
    lams : float or sequence of float, default=1e-3
        Strengths of the ridge.
    loss, sample_weight, fit_intercept, standardize, random_state, n_jobs, keep, groups, sign
        As in `SparseRegressor` and `SparseClassifier`; a loss by its name, or as an object of `diht.losses`.
    solver : str or Solver, default="auto"
        "auto" does its full work at the first point, the largest k and lam, and goes on with less from neighbour to neighbour; any
        other method runs at every point.
    tol : float, default=1e-4
        Relative gap at which a model counts as optimal.
    time_limit : float, optional
        Limit on the seconds of all points together, shared among them. Every point has a model and a bound all the same.
    verbose : bool, default=False
        Whether to print a line for each point.
    callback : callable, optional
        Gets each `PathPoint` when it is first solved, the largest k and lam first; True leaves out those that are still to come.

    Returns
    -------
    Path
        The models: a sequence, with a table (`to_frame`), pictures (`plot`), coefficients and information criteria.

    See Also
    --------
    SparseRegressorCV, SparseClassifierCV : Choose k and lam by cross-validation.

    Notes
    -----
    Neither objectives nor bounds rise with k, nor fall with lam.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import sparse_path
    >>> X = np.random.default_rng(0).normal(size=(100, 30))
    >>> y = X[:, :3].sum(axis=1) + np.random.default_rng(1).normal(size=100)
    >>> path = sparse_path(X, y, ks=range(1, 7), lams=0.1)
    >>> path.point(3).support
    array([0, 1, 2])
    >>> [point.k for point in path if point.relative_gap < 1e-3][-1] >= 3
    True
    >>> path[int(np.argmin(path.criterion("ebic")))].k
    3
    """
    names = feature_names(X)
    X = check_array(X, accept_sparse=("csr", "csc"), dtype=(np.float64, np.float32), input_name="X")
    loss, (n, d) = as_loss(loss), X.shape
    ks = checked_ks(ks, *choices_among(d, names, keep, groups))
    constraint = constraint_of(ks[-1], d, names, keep, groups, sign)
    grid = checked_lams(lams)
    y = as_targets(y, loss)
    s = normalised_weights(sample_weight, n)
    with _blas_threads(n_jobs):
        design = as_design(X, n_jobs)
        scale = standard_deviations(design, s) if standardize else None
        problem = Problem(design, y, loss, constraint, grid[-1], s, fit_intercept, scale=scale)

        def tell(k: int, lam: float, result: Result) -> bool:
            point = path_point(k, lam, result, scale)
            if verbose:
                print(point)
            return callback is not None and bool(callback(point))

        results = solve_path(problem, ks, grid, solver, tol, time_limit, random_state, tell)
    points = tuple(path_point(k, lam, result, scale) for (k, lam), result in results.items())
    return Path(points, names or default_names(d), loss, counted(sample_weight, n), constraint)


def path_point(k: int, lam: float, result: Result, scale: Vector | None) -> PathPoint:
    """Return a result with its coefficients in the units of X."""
    result = replace(result, certificate=replace(result.certificate, scaled=scale is not None))
    coef = result.w if scale is None else (result.w / scale).astype(result.w.dtype)
    return PathPoint(k, lam, coef, result.intercept, result)


def counted(sample_weight: ArrayLike | None, n: int) -> float:
    """Return how many samples information criteria count."""
    return float(n if sample_weight is None else np.asarray(sample_weight, dtype=np.float64).sum())


def default_names(n_features: int) -> tuple[str, ...]:
    """Return x0, x1, ..., as scikit-learn calls features without names."""
    return tuple(f"x{j}" for j in range(n_features))


def feature_names(X: Any) -> tuple[str, ...] | None:
    """Return the names of a data frame's columns, where it is one."""
    columns = getattr(X, "columns", None)
    return None if columns is None else tuple(map(str, columns))


def choices_among(n_features: int, names: Any, keep: Any, groups: ArrayLike | None) -> tuple[int, str]:
    """Return how many features, or groups, there are to choose from, and what to call them."""
    count = n_choices(n_features, indices_of("keep", keep, names), groups)
    if not count:
        raise ValueError("keep must leave something to choose from, got all features")
    what = "features" if groups is None else "groups"
    return count, what if keep is None else f"{what} besides those to keep"


def constraint_of(k: int, n_features: int, names: Any, keep: Any, groups: ArrayLike | None, sign: Any) -> Constraint:
    """Return a constraint whose features may be given by name."""
    kept = indices_of("keep", keep, names)
    return constrained(k, n_features, kept, groups, signs_of(sign, names, n_features))


def checked_ks(ks: Sequence[int] | None, most: int, what: str = "features") -> list[int]:
    """Return numbers of features, or groups, ascending; by default about geometric ones up to 50."""
    if ks is None:
        return sorted({round(k) for k in np.geomspace(1, min(most, 50), 20)})
    try:
        chosen = sorted({Cardinality(k).k for k in ks})
    except TypeError:
        raise ValueError(f"ks must be a sequence of whole numbers, got {ks!r}") from None
    except ValueError as error:
        raise ValueError(f"ks must be whole numbers, one or more: {error}") from None
    if not chosen or chosen[-1] > most:
        raise ValueError(f"ks must be from 1 to the {most} {what}, got {list(ks)}")
    return chosen


def checked_lams(lams: float | Sequence[float]) -> list[float]:
    """Return strengths of the ridge, ascending."""
    values = np.unique(np.atleast_1d(np.asarray(lams, dtype=np.float64)))
    if not values.size or not np.all(np.isfinite(values) & (values > 0.0)):
        raise ValueError(f"lams must be positive and finite, got {lams!r}")
    return [float(lam) for lam in values]


def as_targets(y: ArrayLike, loss: Loss) -> Vector:
    """Return targets as a problem wants them: two classes as -1 and +1."""
    array = np.asarray(y)
    if loss.task != "classification":
        return array
    classes, codes = np.unique(array, return_inverse=True)
    if len(classes) != 2:
        raise ValueError(f"y must hold two classes for the {loss.name} loss, got {len(classes)}")
    return np.where(codes == 1, 1.0, -1.0)

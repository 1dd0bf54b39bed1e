"""The one loop: clock, trace, stopping, best so far; and `certify`, which asks the same of a model from anywhere."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from numbers import Real
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diht.bounds.certificate import certificate_of, handed_out
from diht.bounds.duality import Bound, lower_bound, null_bound, primal, upper_bound
from diht.constraints.groups import features_given
from diht.fit import Fit
from diht.numerics.arrays import Vector
from diht.numerics.interrupt import interruptible
from diht.numerics.threads import blas_threads
from diht.problem import Problem, finite_vector
from diht.refit import never, refit
from diht.result import Certificate, Iterate, Result, Status, Trace
from diht.samples import Intercept, Rows
from diht.search.pool import ROUNDING
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT, Auto, BranchAndBound, Point, Relaxed, Solver, Start
from diht.solvers.empty_columns import compact
from diht.solvers.sufficient import condensed

__all__ = [
    "SOLVERS",
    "Limits",
    "as_solver",
    "certificate_after",
    "certify",
    "drive",
    "model_to_certify",
    "require_problem",
    "solve",
]

Callback = Callable[[Iterate], Any]

SOLVERS: dict[str, type[Solver]] = {
    "auto": Auto,
    "diht": DIHT,
    "sdiht": SDIHT,
    "iht": IHT,
    "htp": HTP,
    "svrght": SVRGHT,
    "relaxed": Relaxed,
    "branch": BranchAndBound,
}

_FEW = 3  # evaluations without progress, at least, before a solve counts as stalled
_PROGRESS = 1e-8  # relative improvement of either bound that counts as progress
_SPACING = 1.25  # ratio of the epochs of two evaluations that cost a pass each
_HIDDEN = 1e-8  # share of the objective that rounding may hide: more, and it cannot be told what a swap gains


def require_problem(problem: object) -> None:
    """Raise ValueError where something else was given as a problem."""
    if not isinstance(problem, Problem):
        kind = type(problem).__name__
        raise ValueError(f"problem must be a Problem, such as Problem(X, y, k=5, lam=0.1), got {kind}")


def solve(
    problem: Problem,
    solver: str | Solver = "auto",
    start: Any = None,
    tol: float = 1e-4,
    max_iter: int | None = None,
    time_limit: float | None = None,
    callback: Callback | None = None,
    *,
    evaluate_every: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Minimise a problem and bound its optimum from below.

    Parameters
    ----------
    problem : Problem
        What to solve.
    solver : str or Solver
        "auto", the name of a method, or a method with its settings, such as ``SDIHT(blocks=20)``. "auto" solves the
        relaxation, rounds it, repairs the support by swaps, proves how good the result is, and branches within a budget of
        operations, the same everywhere; "branch" goes on to the end.
    start : Result, Start, array of coefficients, or None
        Where to begin: an earlier result, a model, a dual point. `BranchAndBound` goes on with the tree of an earlier result.
    tol : float
        Relative gap at which the model counts as optimal.
    max_iter : int, optional
        Limit on steps (one step of a stochastic method is one block).
    time_limit : float, optional
        Limit on seconds, without callbacks; compiling, once on a machine, counts. A kernel that is being compiled when the time is
        up is compiled to its end. What has been found by then is returned with a true bound.
    callback : callable, optional
        Gets an `Iterate` at each evaluation and returns True to stop.
    evaluate_every : int, optional
        Epochs between evaluations. By default each epoch where that costs nothing, else at epochs that grow by a quarter.
    stop : callable, optional
        Asked after every step, and within long ones; True ends the solve. So does Ctrl-C, with a warning, in the main thread of
        a program that has no handler of its own for it; a second one interrupts.

    Returns
    -------
    Result
        The best model and the best bound found, each kept apart from the other.
    """
    require_problem(problem)
    method = as_solver(solver)
    limits = Limits.checked(tol, max_iter, time_limit, evaluate_every)
    if problem.n_targets > 1 and not method.takes_targets:
        known = [name for name, kind in SOLVERS.items() if kind.takes_targets]
        raise ValueError(f"solver must be one of {known} for several targets, got {method!r}")
    with interruptible("the result is the best model found so far, with a true bound") as asked:
        either = asked if stop is None else lambda: asked() or bool(stop())
        return _solved(problem, method, as_start(problem, start), limits, callback, either)


def _solved(
    problem: Problem,
    method: Solver,
    start: Start,
    limits: Limits,
    callback: Callback | None,
    stop: Callable[[], bool],
) -> Result:
    """Solve on the columns that are not empty, or on sums over the samples, where either will do."""
    part = compact(problem)
    if part is not None:
        return part.result(drive(part.problem, method, part.start(start), limits, part.callback(callback), stop))
    table = condensed(problem, limits.tol) if method.sums_suffice else None
    if table is None:
        return drive(problem, method, start, limits, callback, stop)
    answer = drive(table.problem, method, table.start(start), limits, table.callback(callback), stop)
    return table.result(answer, limits.tol)


def drive(
    problem: Problem,
    method: Solver,
    start: Start,
    limits: Limits,
    callback: Callback | None = None,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Run a method on a problem as `solve` does; the problem, the start and the limits are taken as they are."""
    loop = _Loop(problem, method, limits, callback, stop)
    with np.errstate(over="ignore", invalid="ignore"), blas_threads(False):
        return loop.run(start)


def as_solver(solver: str | Solver, random_state: int | None = None) -> Solver:
    """Return a method by its name, with the seed if it takes one."""
    if isinstance(solver, str) and solver in SOLVERS:
        solver = SOLVERS[solver]()
    if not isinstance(solver, Solver):
        raise ValueError(f"solver must be one of {[*SOLVERS]} or a solver object, got {solver!r}")
    if random_state is None or not hasattr(solver, "random_state"):
        return solver
    return replace(solver, random_state=random_state)  # type: ignore[type-var]


def as_start(problem: Problem, start: Any) -> Start:
    """Turn what a user may give as a starting point into a `Start`."""
    if start is None:
        return Start()
    if isinstance(start, Start):
        w = None if start.w is None else problem.flat("start.w", start.w)
        alpha = None if start.alpha is None else _dual_point(problem, "start.alpha", start.alpha)
        return _bounded(problem, Start(w, start.b, alpha, start.bound))
    if not isinstance(start, Result):
        w = problem.flat("start", start)
        return _bounded(problem, Start(w, _intercept_for(problem, w, None)))
    w = problem.flat("start.w", start.w)
    b = problem.centred_intercept(w, start.intercept) if problem.fit_intercept else 0.0
    alpha = start.alpha if start.last_alpha is None else start.last_alpha
    # From another sample, or from a method that diverged, only the model carries over.
    usable = problem.samples.holds(alpha) and problem.samples.finite(alpha)
    return _bounded(problem, Start(w, b, alpha if usable else None, start.certificate.bound))


def _bounded(problem: Problem, start: Start) -> Start:
    """Return a start with its margins, or without its model where that is so large that its objective overflows."""
    if start.w is None:
        return start
    u = _margins(problem, start.w, start.b)
    return replace(start, u=u) if _is_finite(problem, start.w, start.b, u) else replace(start, w=None, b=0.0)


def _is_finite(problem: Problem, w: Vector, b: Intercept, u: Rows) -> bool:
    """Whether the objective is finite, and the margin of no sample that has weight beyond the reach of the loss."""
    loss = problem.loss
    with np.errstate(over="ignore", invalid="ignore"):
        reached = problem.samples.each(lambda y, s, u: bool(np.all(loss.within_reach(u, y) | (s <= 0.0))), u)
        return all(reached) and bool(np.isfinite(primal(problem, w, b, u)))


def _margins(problem: Problem, w: Vector, b: Intercept) -> Rows:
    """Return Xw + b, some of which may overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return problem.samples.margins(w, b, np.flatnonzero(w))


def _has_objective(problem: Problem, w: Vector, intercept: Intercept) -> bool:
    """Whether a model's objective is finite; where means are far larger than deviations only precise predictions tell."""
    with np.errstate(over="ignore", invalid="ignore"):
        coef, b = problem.coefficients_of(w), problem.centred_intercept(w, intercept)
        if not np.all(np.isfinite(coef)):
            return False
        if _is_finite(problem, w, b, _margins(problem, w, b)):
            return True
        return _is_finite(problem, w, b, problem.samples.predictions(coef, intercept, -problem.level)[0])


@dataclass(frozen=True)
class Limits:
    """When a solve ends, and how often it is evaluated; see `solve`."""

    tol: float
    max_iter: int | None = None
    time_limit: float | None = None
    evaluate_every: int | None = None

    @classmethod
    def checked(cls, tol: Any, max_iter: Any, time_limit: Any, evaluate_every: Any) -> Limits:
        """Return the limits that a user asks for; ValueError where they make no sense."""
        if not _is_number(tol) or not 0 <= tol < np.inf:
            raise ValueError(f"tol must be a number, zero or more, got {tol!r}")
        for name, count in (("max_iter", max_iter), ("evaluate_every", evaluate_every)):
            if count is not None and not (_is_number(count) and count >= 1 and count == count // 1):
                raise ValueError(f"{name} must be a whole number, one or more, got {count!r}")
        if time_limit is not None and not (_is_number(time_limit) and time_limit > 0):
            raise ValueError(f"time_limit must be positive, got {time_limit!r}")
        return cls(float(tol), max_iter, time_limit, evaluate_every)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass
class _Clock:
    """Seconds since the start, less those spent in pauses."""

    start: float = field(default_factory=perf_counter)

    def read(self) -> float:
        return perf_counter() - self.start

    def without(self, seconds: float) -> None:
        self.start += seconds


class _Loop:
    """One solve: its best model and bound so far, and when to look and to stop."""

    def __init__(
        self,
        problem: Problem,
        method: Solver,
        limits: Limits,
        callback: Callback | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self.problem, self.method, self.limits = problem, method, limits
        self.callback, self.stop = callback, stop or never
        self.interrupted, self.asking = False, Lock()  # several threads may ask
        self.clock, self.trace = _Clock(), Trace()
        self.passes_before = problem.design.passes
        self.best = Fit(problem.shape[1], np.empty(0, dtype=np.int64), np.empty(0), 0.0, np.inf)
        self.bound: Bound | None = None
        self.progress_at, self.since_progress = 0, 0  # the step, and how many evaluations ago

    def run(self, start: Start) -> Result:
        problem, method = self.problem, self.method
        state = method.init(problem, replace(start, stop=self.out_of_patience))
        epoch = method.epoch(state)
        max_iter = self.limits.max_iter or method.max_epochs * epoch
        t, look = 0, self.next_look(0, epoch)
        first = method.first(problem, state, start) if start.w is not None or start.alpha is not None else None
        status = None if first is None else self.evaluate(0, first)
        while status is None:
            method.advance(problem, state)
            t += 1
            ending, finished = self.out_of_patience(), method.finished(state)
            at_limit = t >= max_iter or method.at_limit(state)
            if t >= look or at_limit or ending or finished:
                status = self.evaluate(t, method.observe(problem, state))
                look = self.next_look(t, epoch)
            if status is None:
                stuck = self.since_progress >= _FEW and t - self.progress_at >= method.patience * epoch
                status = self.ended(at_limit, ending, finished or stuck)
                if finished and status is Status.STALLED:
                    status = method.ending(state)
        return self.result(status, t, state)

    def next_look(self, t: int, epoch: int) -> int:
        if self.limits.evaluate_every is not None:
            return t + self.limits.evaluate_every * epoch
        if self.method.free_evaluation:
            return t + epoch
        return max(t + epoch, epoch * round(_SPACING * t / epoch))

    def out_of_patience(self) -> bool:
        """Whether the user asked to stop, or the time is up; methods ask it in the middle of long pieces of work."""
        with self.asking:
            self.interrupted = self.interrupted or bool(self.stop())
        out_of_time = self.limits.time_limit is not None and self.clock.read() > self.limits.time_limit
        return self.interrupted or out_of_time

    def ended(self, at_limit: bool, ending: bool, finished: bool) -> Status | None:
        if self.interrupted:
            return Status.STOPPED
        if finished:
            return Status.STALLED
        if ending:
            return Status.TIME_LIMIT
        return Status.MAX_ITER if at_limit else None

    def evaluate(self, t: int, point: Point) -> Status | None:
        """Look at an iterate, keep what is best, tell the callback; say whether that ends the solve."""
        problem, objective = self.problem, point.fit.objective
        if not np.isfinite(objective):
            return Status.STALLED  # diverged: what was best before stays
        old_objective, old_bound = self.best.objective, self.best_bound
        self.keep(point.fit)
        bound = self.prove(point)
        size = _PROGRESS * abs(self.best.objective)
        progress = old_objective - self.best.objective > size or self.best_bound - old_bound > size
        self.progress_at, self.since_progress = (t, 0) if progress else (self.progress_at, self.since_progress + 1)
        iterate = Iterate(
            iteration=t,
            passes=problem.design.passes - self.passes_before,
            seconds=self.clock.read(),
            objective=objective,
            lower_bound=bound,
            best_objective=self.best.objective,
            best_bound=self.best_bound,
            n_features=problem.n_used(point.fit.support[point.fit.values != 0.0]),
            n_open=point.n_open,
            traffic=copy(problem.design.traffic),
        )
        self.trace.append(iterate)
        if self.told_to_stop(iterate):
            return Status.STOPPED
        return Status.OPTIMAL if iterate.relative_gap <= self.limits.tol else None

    def told_to_stop(self, iterate: Iterate) -> bool:
        if self.callback is None:
            return False
        before = perf_counter()
        answer = self.callback(replace(iterate, model=self.best.model(self.problem)))
        self.clock.without(perf_counter() - before)
        return bool(answer)

    def keep(self, fit: Fit, margin: float = 0.0) -> None:
        """Keep a model if it is better than the best so far, or less than `margin` worse."""
        if fit.objective < self.best.objective + margin:
            self.best = replace(fit, u=None)

    def prove(self, point: Point) -> float:
        """Return the bound of a dual point, and keep it if it is better than the best so far."""
        proved = point.bound
        if proved is None:
            if point.alpha is None:
                return -np.inf
            proved = lower_bound(self.problem, point.alpha, point.g, point.value)
        if proved.claimed > self.best_bound:  # methods go on changing their dual point
            self.bound = (
                proved if point.bound is not None else replace(proved, alpha=self.problem.samples.copy(proved.alpha))
            )
        return proved.claimed

    def prove_anything(self, b: Intercept) -> None:
        """Where a solve ended before it proved more than alpha = 0 does, take the bound of the model without features."""
        if self.bound is None or not self.problem.samples.any(self.bound.alpha):
            proved = null_bound(self.problem, b)
            if proved.claimed > self.best_bound:
                self.bound = proved

    @property
    def best_bound(self) -> float:
        """The best bound so far."""
        return -np.inf if self.bound is None else self.bound.claimed

    def improve(self, point: Point | None, margin: float = 0.0) -> None:
        """Look at a pair that is not part of the trace."""
        if point is not None:
            self.keep(point.fit, margin)
            self.prove(point)

    def left_to_swaps(self, state: Any, handed_out: Certificate) -> bool | float:
        """What a swap could gain: no more than the gap is known where rounding hides more than a swap would have to gain."""
        best, left = self.best, self.method.swap_optimal(state)
        if left is False:
            return left
        searched = upper_bound(self.problem, best.w, best.b, best.margins(self.problem))
        hidden = max(searched, handed_out.attained) - best.objective
        return (
            left if hidden <= _HIDDEN * abs(best.objective) else max(handed_out.attained - handed_out.lower_bound, 0.0)
        )

    def result(self, status: Status, n_iter: int, state: Any) -> Result:
        problem = self.problem
        last = self.method.last(problem, state)
        self.improve(last)
        polished = self.method.polish(problem, state, self.best)
        # Of two that rounding cannot tell apart, the finer fit.
        self.improve(polished, ROUNDING * abs(self.best.objective))
        nothing = Start().primal(problem)
        self.keep(nothing)  # a method that diverges is never worse than no features at all
        if status in (Status.TIME_LIMIT, Status.STOPPED):
            self.prove_anything(nothing.b)
        seconds = self.clock.read()
        n_passes = problem.design.passes - self.passes_before
        pool = self.method.pool(state)
        model = handed_out(problem, self.best.w, self.best.b, self.bound, self.limits.tol)
        model = model.beside(self.method.larger_ridges(state))
        return model.result(
            Result,
            status,
            self.limits.tol,
            pool=() if pool is None else pool.models(problem),
            swap_optimal=self.left_to_swaps(state, model.certificate),
            last=last.fit.model(problem),
            last_alpha=None if last.alpha is None else problem.samples.copy(last.alpha),
            n_iter=n_iter,
            n_passes=n_passes,
            seconds=seconds,
            trace=self.trace,
            solver=repr(self.method),
        )


def certify(
    problem: Problem,
    w: ArrayLike | None = None,
    intercept: Intercept | None = None,
    alpha: ArrayLike | None = None,
    tol: float = 1e-4,
    time_limit: float | None = None,
    *,
    support: ArrayLike | None = None,
    exact: bool = False,
) -> Certificate:
    """Bound how far a model, found by any means, is from the best that the constraint allows.

    Parameters
    ----------
    problem : Problem
        The problem that the model is meant to solve.
    w : array of shape (d,), optional
        Its coefficients, in the problem's units; the constraint must allow them. The model that is certified has the coefficients
        of the columns of X: these, or these divided by the problem's scale, as float64 rounds them.
    intercept : float, optional
        Its intercept; None takes the best one.
    alpha : array of shape (N,), optional
        A dual point to evaluate (projected on the feasible set). Without it the problem is solved, starting from the model
        and its own dual point, until the gap is within `tol` or improves no more.
    tol, time_limit
        As in `solve`.
    support : array of int, or of bool of shape (d,), optional
        The features of the model, in place of `w`: the best coefficients for them are computed.
    exact : bool
        Whether branch and bound goes on where the relaxation leaves a gap, until it is closed or `time_limit` ends it.

    Returns
    -------
    Certificate
        The model's objective, a lower bound on the best possible one, and the gap between them; what is proved of each feature;
        and, if the solve met a better model, that model.
    """
    require_problem(problem)
    model, intercept = model_to_certify(problem, w, intercept, support)
    if alpha is not None:
        dual_point = Start(alpha=_dual_point(problem, "alpha", alpha)).dual(problem)
        return certificate_of(problem, problem.coefficients_of(model), intercept, lower_bound(problem, dual_point))
    solver, start = "branch" if exact else "auto", Start(model, problem.centred_intercept(model, intercept))
    result = solve(problem, solver, start=start, tol=tol, time_limit=time_limit)
    return certificate_after(problem, model, intercept, result)


def model_to_certify(
    problem: Problem, w: ArrayLike | None, intercept: Intercept | None, support: ArrayLike | None
) -> tuple[Vector, Intercept]:
    """Return the model that a user gives by coefficients or by features, with its intercept in the user's coordinates."""
    if (w is None) == (support is None):
        raise ValueError("one of w and support must be given" + ", not both" * (w is not None))
    if support is not None:
        if intercept is not None:
            raise ValueError(f"intercept must be None where only a support is given, got {intercept!r}")
        fit = refit(problem, _support(problem, support))
        return fit.w, problem.intercept_of(fit.values, fit.b, fit.support)
    model = problem.flat("w", w)  # type: ignore[arg-type]
    if not problem.constraint.allows(model):
        got = f"{np.count_nonzero(model)} nonzero coefficients"
        if problem.constraint.unlimited.allows(model):
            beyond = int(np.flatnonzero(problem.constraint.clipped(model) != model)[0])
            got = f"{model[beyond]:g} at position {beyond}"
        raise ValueError(f"w must have {problem.constraint}, got {got}")
    b = _intercept_for(problem, model, intercept)
    if intercept is None:
        intercept = problem.intercept_of(model, b)
    if not _has_objective(problem, model, intercept):
        largest = float(np.abs(model).max())
        raise ValueError(
            f"w must have a finite objective, got one that overflows (its largest entry is {largest:g} in size)"
        )
    return model, intercept


def _support(problem: Problem, support: ArrayLike) -> NDArray[np.int64]:
    """Return features, given by a mask or by their indices, ascending."""
    d = problem.shape[1]
    chosen = features_given("support", support, d // problem.n_targets)
    if np.asarray(support).dtype.kind != "b" and len(chosen) < np.size(support):
        raise ValueError("support must hold no index twice")
    chosen = problem.coefficients_at(chosen)
    if not problem.constraint.unlimited.allows(np.bincount(chosen, minlength=d).astype(np.float64)):
        raise ValueError(f"support must have {problem.constraint}, got {len(chosen)} features")
    return chosen


def certificate_after(problem: Problem, w: Vector, intercept: Intercept, result: Result) -> Certificate:
    """Certify a model by a solve that started from it: its bound, and its model if that is better."""
    found = result.certificate
    certificate = certificate_of(problem, problem.coefficients_of(w), intercept, found.bound)
    better = certificate.objective - result.objective > _PROGRESS * abs(certificate.objective)
    return replace(
        certificate,
        lower_bound=found.lower_bound,
        bound=found.bound,
        screening=found.screening,
        attained=min(certificate.attained, found.attained),
        better=result.model if better else None,
    )


def _dual_point(problem: Problem, name: str, alpha: Any) -> Rows:
    """Return a dual point that a user gives, N numbers, or a row of them for each target; one that lives elsewhere as it is."""
    if not isinstance(alpha, np.ndarray | list | tuple) and problem.samples.holds(alpha):
        return alpha
    n = problem.shape[0] // problem.n_targets
    if problem.n_targets == 1:
        return finite_vector(name, alpha, n)
    if np.ndim(alpha) != 2 or len(alpha) != problem.n_targets:
        raise ValueError(f"{name} must have shape {(problem.n_targets, n)}, got shape {np.shape(alpha)}")
    return problem.samples.put(np.stack([finite_vector(name, row, n) for row in np.asarray(alpha)]))


def _checked_intercept(problem: Problem, intercept: Any) -> Intercept | None:
    """Return the intercept that a user gives, a number or one for each target."""
    if intercept is None:
        return None
    if problem.n_targets > 1:
        return finite_vector("intercept", intercept, problem.n_targets)
    if not (_is_number(intercept) and np.isfinite(intercept)):
        raise ValueError(f"intercept must be a finite number, got {intercept!r}")
    return float(intercept)


def _intercept_for(problem: Problem, w: Vector, intercept: Intercept | None) -> Intercept:
    intercept = _checked_intercept(problem, intercept)
    if not problem.fit_intercept:
        if intercept is not None and np.any(intercept):
            raise ValueError(f"intercept must be None or 0 for a problem without an intercept, got {intercept!r}")
        return 0.0
    if intercept is None:
        return problem.samples.best_intercept(problem.loss, problem.samples.margins(w))
    return problem.centred_intercept(w, intercept)

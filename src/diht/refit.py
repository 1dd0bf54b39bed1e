r"""The best model on a given support: a convex problem.

The losses made of straight and quadratic pieces have quadratic programmes: an interior point method where their Hessian can be
formed and factorised, dual coordinate ascent on larger supports. For the others, Newton's method.

There the intercept is eliminated: with :math:`b(x)` the best one for the coefficients x, :math:`\varphi(x) = \min_b P(x, b)` is
strongly convex with the gradient of P at (x, b(x)), while the curvature of P in b alone may vanish.

Any other loss without a derivative (mu = 0) is replaced by its Moreau envelopes

.. math:: l_\gamma(u) = \max_a \; a u - l^*(a) - \tfrac{\gamma}{2} a^2 , \qquad l_\gamma \le l \le l_\gamma + \tfrac{\gamma}{2} r^2

(r the bound of F), for a decreasing sequence of gamma; for the hinge these are the smoothed hinges. The envelope tells which
samples sit at a kink, and with these known the optimum of a piecewise linear loss solves linear equations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from diht.bounds.duality import dual, dual_from_primal, feasible
from diht.constraints.base import Cardinality
from diht.constraints.groups import Structured
from diht.constraints.limits import Limits
from diht.fit import Fit
from diht.losses import Loss, Pieces
from diht.numerics.arrays import Indices, Vector
from diht.numerics.definite import Definite
from diht.numerics.line_search import longest_step
from diht.problem import Problem
from diht.relaxation.box import minimum_within
from diht.relaxation.engines import NewtonEngine
from diht.relaxation.smoothing import Central, Moreau
from diht.samples import Intercept, Rows, Samples
from diht.samples.central_path import LONG, some_rows
from diht.samples.newton import Smooth, newton_minimum, smoothed_minimum

__all__ = ["Objective", "never", "refit"]

Equations = Callable[
    [Rows], Callable[[Vector], Vector]
]  # from the curvatures of the samples and a gradient to a direction
Method = Callable[["Objective", Vector, Intercept, float], Fit]  # from a start, to an accuracy

_DIRECT = 2e9  # floating point operations up to which the Hessian is formed and factorised
_SHORT, _SHORT_FAST = 2e8, 1e7  # and up to which this is not questioned, where ascent needs many epochs or few
_PER_ENTRY, _PER_ENTRY_FAST = 5e3, 300.0  # or so many for each stored entry: ascent reads just these
_LARGEST_HESSIAN = 3000  # features
_LARGEST_LOOK = 500  # whose Hessian travels with every look at a model of rows in other processes
_MAX_EPOCHS = 300
_EPOCHS_BETWEEN_GAPS = 5
_MAX_NEWTON = 100
_FEW_STEPS = 20  # from a model near by, to the optimum and for a look whether it is: one to seven were enough on text
_WORTH_FEW_STEPS = (
    2e4  # samples times coefficients from which on they take less than the interior point method from its own start
)
_FAR = 0.5  # share of the objective: a step that leaves less leads to where the Hessian is another one
_REUSED = 0.01  # a Hessian is used again where its next step promises less than this share of what the last one did
_MOST_CHANGES = 50  # of the set of coefficients that their signs hold at zero, beside some for each feature
_HALVINGS = tuple(
    0.5**i for i in range(120)
)  # on a flat part of the loss a step may be too long by its curvature over lam
_MAX_KINKS = 1000  # samples at kinks up to which their linear equations are solved
_GAMMAS = tuple(10.0**-i for i in range(8))
_TAUS = tuple(0.1**i for i in range(3, 15))  # barriers of a loss with kinks, in the same units
_EXACT = 1e-13  # relative gap beyond which there is nothing to gain
_ROUGH = 1e-3  # relative gap of a model of some of the samples, from which all are fitted
_EDGE = 1e-9  # share of the domain next to its ends that counts as an end
_SINGULAR = 1e-12  # share of a column that is independent of those before it, below which rounding may be all of it
_FASTER = 0.55  # share of Newton's decrement by which a whole step lowers what falls faster than a quadratic
_SOFTMAX = 1e-14  # relative decrement at which the multinomial loss is minimal but for rounding
_HIDDEN = 1e-12  # relative decrease of the objective that its rounding may hide


def never() -> bool:
    """Let work go on."""
    return False


def refit(
    problem: Problem,
    support: Indices,
    w: Vector | None = None,
    b: Intercept = 0.0,
    rtol: float = 0.0,
    stop: Callable[[], bool] = never,
) -> Fit:
    """Minimise P over the models on `support`, starting from the given one.

    `rtol` is the relative decrease of P that is not worth another step; 0 goes on as far as float64 can. Where a step takes long,
    `stop` is asked before it; True leaves the model as it is. Coefficients are within the limits of the constraint.
    """
    limits, support = problem.constraint.limits, np.sort(support)
    if limits is None or not limits.of(support).binds:
        return _refit(problem, support, w, b, rtol, stop)
    some = support[limits.lower[support] < limits.upper[support]]
    fit = _within_signs(problem, some, limits, w, b, rtol, stop)
    if not limits.of(some).allows(fit.values):
        fit = _within_limits(problem, fit, limits, rtol, stop)
    return replace(fit, support=support, values=fit.w[support])


def _refit(
    problem: Problem,
    support: Indices,
    w: Vector | None,
    b: Intercept,
    rtol: float,
    stop: Callable[[], bool],
) -> Fit:
    """Do so whatever the limits."""
    if problem.n_targets > 1 and not problem.loss.coupled:
        return _by_target(problem, support, w, b, rtol, stop)
    part = problem.samples.columns(support)
    x = np.zeros(len(support)) if w is None else w[support]
    objective = Objective(problem, support, part, problem.loss, stop)
    method = _from_near(objective, _method(objective)) if np.any(x) else _method(objective)
    best = method(objective, x, b, rtol) if len(support) else objective.nothing(b)
    problem.design.count_reads_of(part.design)
    return best


def _by_target(
    problem: Problem,
    support: Indices,
    w: Vector | None,
    b: Intercept,
    rtol: float,
    stop: Callable[[], bool],
) -> Fit:
    """Do so for each of several targets by itself: with the features given, their models have nothing in common."""
    samples, values, fits = problem.samples, np.empty(len(support)), []
    target, column = samples.target_of(support), samples.column_of(support)
    for c, start in enumerate(np.broadcast_to(b, (problem.n_targets,)).tolist()):
        alone, own = problem.alone(c), target == c
        first = None
        if w is not None:
            first = np.zeros(alone.shape[1])
            first[column[own]] = w[support[own]]
        fits.append(_refit(alone, column[own], first, start, rtol, stop))
        values[own] = fits[-1].values
    objective, intercepts = sum(fit.objective for fit in fits), np.array([fit.b for fit in fits])
    u = samples.stacked([fit.margins(problem.alone(c)) for c, fit in enumerate(fits)])
    return Fit(problem.shape[1], support, values, intercepts, objective, u)


def _within_signs(
    problem: Problem,
    support: Indices,
    limits: Limits,
    w: Vector | None,
    b: Intercept,
    rtol: float,
    stop: Callable[[], bool],
) -> Fit:
    r"""Find which coefficients limits at zero hold there, whatever the others (the active set method of Lawson and Hanson).

    A step leads towards the best model on the free features, up to where the first of them would change its sign; that one is held.
    Once none is in the way, the derivative of P in the coefficients held tells whether one of them should be free. As P is
    lam-strongly convex, derivatives :math:`\gamma_j < 0` into the allowed side promise at most
    :math:`\sum_j \gamma_j^2 / (2 \lambda)`.
    """
    sign = (limits.lower == 0.0).astype(np.float64) - (limits.upper == 0.0)
    if not np.any(sign[support]):
        return _refit(problem, support, w, b, rtol, stop)
    now = np.zeros(problem.shape[1])
    if w is not None:
        now[support] = np.where(sign[support] * w[support] < 0.0, 0.0, w[support])
    free, last, best = support, np.inf, Fit.of(problem, now, b, support=support)
    for _ in range(_MOST_CHANGES + 4 * len(support)):
        fit = _refit(problem, free, now, b, rtol, stop)
        target, b = fit.w, fit.b
        wrong = free[sign[free] * target[free] < 0.0]
        if len(wrong):
            reach = now[wrong] / (now[wrong] - target[wrong])
            now = now + float(reach.min()) * (target - now)
            stopped = wrong[reach <= reach.min()]
            now[stopped] = 0.0
            free = np.setdiff1d(free, stopped)
            continue
        now, best = target, fit
        held = np.setdiff1d(support, free)
        slopes = problem.samples.columns(held).pull(dual_from_primal(problem, target, b, fit.u))
        gains = np.maximum(-sign[held] * slopes, 0.0)
        enough = 2.0 * problem.lam * max(rtol, _EXACT) * abs(fit.objective)
        if float(gains @ gains) <= enough or fit.objective >= last or stop():
            break
        free, last = np.sort(np.append(free, held[np.argmax(gains)])), fit.objective
    return replace(best, support=support, values=best.w[support])


def _within_limits(problem: Problem, fit: Fit, limits: Limits, rtol: float, stop: Callable[[], bool]) -> Fit:
    """Minimise within limits that the best model without them is beyond: the relaxation of its features, all with places."""
    support, n = fit.support, len(fit.support)
    part, own = problem.restricted(support), limits.of(support)
    part = part.replaced(constraint=Structured(Cardinality(n), np.arange(n), own))
    pieces, x = problem.loss.pieces, own.clipped(fit.values)
    if pieces is not None and pieces.is_bounded and part.samples.whole:
        found = _held_at_limits(part, pieces, own, x, max(rtol, _EXACT))
        if found is not None:
            problem.design.count_reads_of(part.design)
            return replace(found, n_features=problem.shape[1], support=support)
    engine = NewtonEngine(part, None, dual_from_primal(part, x, fit.b), x, fit.b)
    while engine.gap > max(rtol, _EXACT) * abs(engine.value) and not engine.finished and not stop():
        engine.improve()
    problem.design.count_reads_of(part.design)
    return Objective(problem, support, part.samples, problem.loss).model(own.clipped(engine.w), engine.b)


def _held_at_limits(part: Problem, pieces: Pieces, limits: Limits, x: Vector, rtol: float) -> Fit | None:
    """Do so for a loss of straight and quadratic pieces by the interior point method on the coefficients between their limits.

    None where the model that it leads to is not the best one by its dual point.
    """
    samples, lam, intercept = part.samples, part.lam, part.fit_intercept
    alpha, b = samples.full(0.0), 0.0

    def minimum(x: Vector, at: Indices) -> Vector:
        nonlocal alpha, b
        held = x.copy()
        held[at] = 0.0
        end = samples.columns(at).central_path(pieces, lam, intercept, rtol, samples.margins(held))
        alpha, b, held[at] = end.alpha, end.b, end.x
        return held

    def gains(x: Vector) -> Vector:
        falls = -samples.pull(alpha) - lam * x
        return np.where(falls**2 <= 2.0 * lam * rtol * part.null_value, 0.0, falls)

    x = minimum_within(limits, x, minimum, gains)
    found = Objective(part, np.arange(len(x)), samples, part.loss).model(x, b)
    gap = found.objective - dual(part, feasible(part, alpha))
    return found if gap <= max(rtol, _HIDDEN) * abs(found.objective) else None


def _method(objective: Objective) -> Method:
    """Choose by the loss and the size of the support."""
    loss, design = objective.loss, objective.part.design
    straight = loss.pieces is not None and loss.pieces.is_bounded
    smooth = loss.differentiable and (objective.part.remote or loss.coupled)  # else a device gains nothing by few looks
    if objective.part.looks and design.shape[1] <= _LARGEST_LOOK and (smooth or straight):
        return _in_few_looks
    if objective.part.has_softmax_minimum and design.dense_gram_cost() <= _DIRECT:
        return _softmax
    if loss.pieces is not None and objective.part.whole:
        short, worth = (_SHORT_FAST, _PER_ENTRY_FAST) if _ascends_fast(objective) else (_SHORT, _PER_ENTRY)
        long = design.dense_gram_cost() > min(_DIRECT, max(short, worth * design.nbytes / 12))
        if long and loss.kernel() is not None:
            return _ascended
        if loss.pieces.is_bounded:  # without an end one step of Newton's method will do
            return _interior
    return _newton if loss.differentiable else _smoothed


def _from_near(objective: Objective, method: Method) -> Method:
    """Let Newton's method go before one that has no use for a model near by, where its steps take less."""
    loss, part = objective.loss, objective.part
    cheap = min(part.design.gram_cost(), part.design.dense_gram_cost()) <= _SHORT
    if method not in (_interior, _ascended) or not (loss.differentiable and cheap):
        return method
    if part.size * part.design.shape[1] < _WORTH_FEW_STEPS:
        return method

    def from_near(objective: Objective, x: Vector, b: Intercept, rtol: float) -> Fit:
        fit, found = _in_few_steps(objective, x, b, rtol)
        return fit if found else method(objective, x, b, rtol)

    return from_near


def _ascends_fast(objective: Objective) -> bool:
    """Tell whether dual ascent needs few epochs: the loss is smooth, or the ridge is strong for each sample."""
    problem = objective.problem
    if objective.loss.mu > 0.0:
        return True
    return objective.part.largest_square() <= 0.3 * problem.lam


@dataclass(frozen=True, eq=False)
class Objective:
    """The function phi of the coefficients, for the problem's loss or one in its place."""

    problem: Problem
    support: Indices
    part: Samples  # of its columns
    loss: Loss
    stop: Callable[[], bool] = never
    many: bool = False  # whether so many models are to come that compiled sums pay, however short

    def model(self, x: Vector, b: Intercept, product: Rows | None = None) -> Fit:
        """Return the model of x with its best intercept (searched from b); Xx is taken where it is known."""
        problem, part = self.problem, self.part
        u = part.margins(x) if product is None else product
        if problem.fit_intercept:
            b, u, value = part.at_best_intercept(self.loss, u, b, self.many)
        else:
            value = part.value(self.loss, u)
        return Fit(problem.shape[1], self.support, x, b, value + float(0.5 * problem.lam * (x @ x)), u)

    def nothing(self, b: Intercept) -> Fit:
        """Return the model without features."""
        return self.model(np.zeros(len(self.support)), b, self.part.full(0.0))

    def null(self) -> float:
        """Return phi(0), which is computed once for all supports, and all k and lam."""
        if self.loss is not self.problem.loss:
            return self.nothing(self.problem.null_intercept).objective
        return self.problem.null_value

    def gradient(self, model: Fit) -> Vector:
        """Return the gradient of phi."""
        pull = self.part.pull(self.part.slopes(self.loss, model.margins(self.problem)))
        return np.asarray(pull + self.problem.lam * model.values)


def _interior(objective: Objective, x: Vector, b: Intercept, rtol: float) -> Fit:
    """The interior point method; where rounding keeps it from the optimum, the pieces of the loss that it found lead there."""
    pieces, part, problem = objective.loss.pieces, objective.part, objective.problem
    assert pieces is not None
    if pieces.mu > 0.0 and part.size > LONG:  # few steps from the model of some samples
        some = part.taken(some_rows(part.size))
        end = some.central_path(pieces, problem.lam, problem.fit_intercept, _ROUGH)
        fit, found = _in_few_steps(objective, end.x, end.b, rtol)
        if found:
            return fit
    best, bound, alpha = _on_central_path(objective, pieces, max(rtol, _EXACT))
    if best.objective - bound <= max(rtol, _HIDDEN) * abs(best.objective):
        return best
    if pieces.mu > 0.0:
        polished = _newton(replace(objective, many=True), best.values, best.b, rtol)
    else:
        polished, _ = _at_kinks(objective, alpha, best.b)
    return min(best, polished, key=lambda model: model.objective)


def _in_few_steps(objective: Objective, x: Vector, b: Intercept, rtol: float) -> tuple[Fit, bool]:
    """Follow Newton's method from a model near by; tell whether few steps have led to the optimum."""
    steps = iter(range(_FEW_STEPS))
    few = replace(objective, many=True, stop=lambda: objective.stop() or next(steps, None) is None)
    fit = objective.model(x, b)
    for accuracy in (rtol, 0.0):
        fit = _newton(few, fit.values, fit.b, accuracy)
        left = np.square(objective.gradient(fit)).sum() / (2.0 * objective.problem.lam)  # as P is lam-strongly convex
        if left <= max(rtol, _HIDDEN) * abs(fit.objective):
            return fit, True
    return fit, False


def _on_central_path(objective: Objective, pieces: Pieces, rtol: float) -> tuple[Fit, float, Rows]:
    """Return the interior point method's model, a lower bound and the dual point behind it."""
    problem, part = objective.problem, objective.part
    end = part.central_path(pieces, problem.lam, problem.fit_intercept, rtol)
    model = objective.model(end.x, end.b)
    slopes = part.slopes(objective.loss, model.margins(problem))  # of samples without weight
    return model, end.bound, part.map(lambda y, s, a, own: np.where(s > 0.0, own, a), slopes, end.alpha)


def _ascended(objective: Objective, x: Vector, b: Intercept, rtol: float) -> Fit:
    """Dual coordinate ascent until the duality gap on the support, where strong duality holds, is within `rtol`.

    Where that takes too many epochs (a ridge that is weak for the data), Newton's method ends the work: under a smooth loss, where
    it is fast, as soon as the gap falls too slowly for those that are left.
    """
    problem, part, loss, rtol = objective.problem, objective.part, objective.problem.loss, max(rtol, 1e-10)
    best = objective.model(x, b)
    alpha = part.map(lambda y, s, u: loss.project(loss.derivative(u, y), y).copy(), best.margins(problem))
    ascent, last = part.ascent(loss, problem.lam, problem.fit_intercept, alpha), np.inf
    for epoch in range(1, _MAX_EPOCHS + 1):
        ascent.epoch()
        if epoch % _EPOCHS_BETWEEN_GAPS and not objective.stop():
            continue
        feasible = part.balanced(loss, alpha) if problem.fit_intercept else alpha
        x = -part.pull(feasible) / problem.lam
        bound = -part.conjugate(loss, feasible) - 0.5 * problem.lam * float(x @ x)
        best = min(best, objective.model(x, best.b), key=lambda model: model.objective)
        gap, enough = best.objective - bound, rtol * abs(best.objective)
        if gap <= enough or objective.stop():
            return best
        looks = (_MAX_EPOCHS - epoch) // _EPOCHS_BETWEEN_GAPS
        if loss.differentiable and (gap / last) ** looks > enough / gap:
            break
        last = gap
    return (_newton if loss.differentiable else _smoothed)(objective, best.values, best.b, rtol)


def _newton(objective: Objective, x: Vector, b: Intercept, rtol: float) -> Fit:
    """Newton's method with backtracking; where rounding hides the decrease of phi, that of its gradient decides.

    It begins at the model without features where that is better than the given one. A Hessian serves once more where little is left
    to do, if it changes smoothly and the last step did not lead far. A direction whose every step gains no more than rounding hides
    is one of rounding.
    """
    problem, part = objective.problem, objective.part
    equations = _direction(problem, part)
    model = objective.model(x, b)
    if np.any(x) and not model.objective <= objective.null():
        model = min(model, objective.nothing(b), key=lambda model: model.objective)
    gradient = objective.gradient(model)
    direction, before, decrease = np.zeros_like(gradient), 0.0, 0.0
    curvature: Rows = None
    solve = None
    for _ in range(_MAX_NEWTON):
        if objective.stop():
            break
        if solve is not None:
            direction, before = solve(gradient), decrease
            decrease = -float(gradient @ direction)
        again = objective.loss.smoothness >= 2 and decrease <= max(0.5 * rtol * abs(model.objective), _REUSED * before)
        if solve is None or not again:
            curvature = part.curvatures(objective.loss, model.margins(problem))
            solve = equations(curvature)
            direction = solve(gradient)
            decrease = -float(gradient @ direction)
        if not decrease > rtol * abs(model.objective):
            break
        along = _along(objective, model, direction, curvature)
        gains = partial(_gains, model, decrease)
        hidden = decrease <= _HIDDEN * abs(model.objective)
        taken = (1.0, along(1.0)) if hidden else longest_step(_HALVINGS, along, gains)
        if taken is None:
            break
        size, trial = taken
        if size == 1.0 and not hidden:
            trial = _expanded(model, decrease, trial, along)
        new = objective.gradient(trial)
        if not (np.linalg.norm(new) < 0.5 * np.linalg.norm(gradient) if hidden else trial.objective < model.objective):
            break
        if abs(trial.objective) < _FAR * abs(model.objective):
            solve = None
        whole = size == 1.0 and gains(trial, size)
        rounded = not whole and model.objective - trial.objective <= _HIDDEN * abs(model.objective)
        model, gradient = trial, new
        if rounded:
            break
    return objective.model(model.values, model.b)


def _in_few_looks(objective: Objective, x: Vector, b: Intercept, rtol: float) -> Fit:
    """Do so in few round trips where rows are elsewhere; where that ends short of the optimum, as ever from there."""
    problem, part, loss = objective.problem, objective.part, objective.loss
    dense = part.formed_if_shorter()
    given = problem.lam, problem.fit_intercept, (x, b), rtol
    if loss.differentiable:
        seen, done = newton_minimum(dense, loss, *given)
    else:
        seen, done = smoothed_minimum(dense, loss, _smooth(loss, problem.samples.target_size), *given)
    if not done:
        return (_newton if loss.differentiable else _smoothed)(objective, seen.x, seen.b, rtol)
    b = seen.b - np.mean(seen.b) if loss.coupled else seen.b
    return Fit(problem.shape[1], objective.support, seen.x, b, seen.objective, part.margins(seen.x, b))


def _smooth(loss: Loss, size: float) -> list[Smooth]:
    """Return what comes ever closer to a loss of straight pieces: with barriers at their ends."""
    return [Smooth(Central(loss, tau * size), 2.0 * tau * size) for tau in _TAUS]


def _softmax(objective: Objective, x: Vector, b: Intercept, rtol: float) -> Fit:
    """Newton's method in coefficients and intercepts at once: those of separable classes go far together."""
    problem, part = objective.problem, objective.part
    x, b, u = part.softmax_minimum(objective.loss, problem.lam, problem.fit_intercept, x, b, max(rtol, _SOFTMAX))
    value = part.value(objective.loss, u) + float(0.5 * problem.lam * (x @ x))
    return Fit(problem.shape[1], objective.support, x, b, value, u)


def _along(objective: Objective, model: Fit, direction: Vector, curvature: Rows) -> Callable[[float], Fit]:
    """Return the models on the line from one into a direction; their intercepts are searched from where the quadratic has them."""
    part = objective.part
    product, change = part.shifted(model.margins(objective.problem), -model.b), part.margins(direction)
    drift = part.drift(curvature, change) if objective.problem.fit_intercept else 0.0
    return lambda size: objective.model(
        model.values + size * direction, model.b + size * drift, part.moved(product, change, size)
    )


def _expanded(model: Fit, decrease: float, trial: Fit, along: Callable[[float], Fit]) -> Fit:
    """Double a whole step while that lowers phi, if it halved phi and gained more than a quadratic does, half of `decrease`.

    Where classes are separable the loss falls exponentially, and a whole step divides it by e whatever is left of it.
    """
    fall = model.objective - trial.objective
    if not fall > max(_FASTER * decrease, 0.5 * model.objective):
        return trial
    size = 2.0
    while (longer := along(size)).objective < trial.objective:
        trial, size = longer, 2.0 * size
    return trial


def _gains(model: Fit, decrease: float, trial: Fit, size: float) -> bool:
    """Whether a step from a model gains a share of what its size promises."""
    return trial.objective <= model.objective - 1e-4 * size * decrease


def _smoothed(objective: Objective, x: Vector, b: Intercept, rtol: float) -> Fit:
    """Minimise with a loss that has kinks, through its envelopes."""
    problem, part = objective.problem, objective.part
    best = objective.model(x, b)
    for gamma in _GAMMAS:
        envelope = Moreau(problem.loss, gamma * part.target_size)
        smooth = _newton(Objective(problem, objective.support, part, envelope, objective.stop), x, b, rtol)
        x, b, u = smooth.values, smooth.b, smooth.margins(problem)
        sharp, bound = _at_kinks(objective, part.slopes(envelope, u), b)
        best = min(best, objective.model(x, b, part.shifted(u, -b)), sharp, key=lambda model: model.objective)
        if best.objective - bound <= max(rtol, 1e-13) * abs(best.objective):
            break
    return best


def _at_kinks(objective: Objective, alpha: Rows, b: Intercept) -> tuple[Fit, float]:
    r"""Return the optimum if the samples with alpha inside F are those at kinks; and the value of its dual point.

    Where l* is linear around alpha_i, the kink is at :math:`u_i = l^{*\prime}(\alpha_i)`. With c = s alpha, E the samples at
    kinks and R the others, the conditions :math:`\lambda x = -X_E^\top c_E - X_R^\top c_R`, :math:`X_E x + b = u_E` and
    :math:`\sum c_E + \sum c_R = 0` are linear in c_E and b.
    """
    problem, part, loss = objective.problem, objective.part, objective.loss

    def nearest(y: Vector, s: Vector, a: Vector) -> Vector:
        low, high = loss.domain(y)
        end: Vector = np.where(a - low < high - a, 1.0 * low, 1.0 * high)
        return end

    def inside(y: Vector, s: Vector, a: Vector) -> NDArray[np.bool_]:
        low, high = loss.domain(y)
        found: NDArray[np.bool_] = (a > low + _EDGE * (high - low)) & (a < high - _EDGE * (high - low)) & (s > 0)
        return found

    def within(y: Vector, s: Vector, a: Vector) -> bool:
        low, high = loss.domain(y)
        return bool(np.all(np.abs(a - loss.project(a, y)) <= _EDGE * (high - low)))

    kinked, ends = part.chosen(inside, alpha).first(_MAX_KINKS), part.map(nearest, alpha)
    others = kinked.patched(ends, np.zeros(kinked.size))
    pull, X = part.pull(others), kinked.rows_of(part)
    kinks = kinked.values(part.map(lambda y, s, a: loss.conjugate_derivative(a, y), alpha))
    gram, right = X @ X.T, -X @ pull - problem.lam * kinks
    if problem.fit_intercept:
        # The row of an intercept has the size of the others, and its unknown a unit that makes the matrix symmetric.
        unit = float(np.sqrt(np.trace(gram) / max(kinked.size, 1))) or 1.0
        border = unit * kinked.shares()
        gram = np.block([[gram, border.T], [border, np.zeros((len(border), len(border)))]])
        right = np.append(right, -unit * part.sums(others))
    c = np.linalg.lstsq(gram, right)[0][: kinked.size]
    x = -(pull + X.T @ c) / problem.lam
    ends = kinked.patched(ends, c / kinked.values(part.s))
    feasible = part.map(lambda y, s, a: loss.project(a, y), ends)
    bound = -part.conjugate(loss, feasible) - 0.5 * problem.lam * float(x @ x)
    return objective.model(x, b), bound if all(part.each(within, ends)) else -np.inf


def _direction(problem: Problem, part: Samples) -> Equations:
    """Return a solver of Newton's equations for phi: direct where cheap, else conjugate gradients."""
    design = part.design
    if design.gram_cost() <= min(_DIRECT, 0.5 * design.dense_gram_cost()) and design.shape[1] <= _LARGEST_HESSIAN:
        return partial(_direct, problem, part)
    if design.dense_gram_cost() <= _DIRECT:
        return partial(_dense_direct, problem, part.formed())
    return lambda curvature: partial(_conjugate_gradients, problem, part, curvature)


def _dense_direct(problem: Problem, part: Samples, curvature: Rows) -> Callable[[Vector], Vector]:
    """Factorise the Hessian; where rounding makes it singular, its root: a condition number of 1e16 is one of 1e8 there."""
    hessian = part.hessian(curvature, problem.fit_intercept)
    hessian[np.diag_indices(len(hessian))] += problem.lam
    factorised = Definite(hessian)
    if factorised.hidden and np.all(np.isfinite(hessian)):
        R = part.hessian_root(curvature, problem.fit_intercept, problem.lam)
        if np.all(np.abs(R.diagonal()) > _SINGULAR * np.linalg.norm(R, axis=0)):
            return lambda gradient: -np.linalg.solve(R, np.linalg.solve(R.T, gradient))
    return lambda gradient: -factorised.solve(gradient)


def _direct(problem: Problem, part: Samples, curvature: Rows) -> Callable[[Vector], Vector]:
    """Factorise the Hessian with its ridge."""
    hessian = part.hessian(curvature, problem.fit_intercept)
    hessian[np.diag_indices(len(hessian))] += problem.lam
    factorised = Definite(hessian)
    return lambda gradient: -factorised.solve(gradient)


def _conjugate_gradients(problem: Problem, part: Samples, curvature: Rows, gradient: Vector) -> Vector:
    """Conjugate gradients, to a residual of 1e-3 of the gradient or less (inexact Newton)."""
    r = -gradient
    x, p = np.zeros_like(r), r.copy()
    rr = float(r @ r)
    target = min(0.25, np.sqrt(np.sqrt(rr))) ** 2 * rr * 1e-4
    for _ in range(500):
        if rr <= target or rr == 0.0:
            break
        change = part.margins(p)
        drift = part.drift(curvature, change) if problem.fit_intercept else 0.0
        hp = part.pull(part.bent(curvature, change, drift)) + problem.lam * p
        denominator = float(p @ hp)
        if not denominator > 0.0:
            break
        step = rr / denominator
        x += step * p
        r -= step * hp
        rr, old = float(r @ r), rr
        p = r + (rr / old) * p
    return x

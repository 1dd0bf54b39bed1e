r"""Engines that minimise the relaxation on a working set of features.

Each holds a model (w, b) with its value, a feasible dual point alpha and the gap between the two, all on its features, and knows
how to improve them. Which one is best depends on the size of the working set alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from diht.bounds.duality import feasible
from diht.bounds.rule import Rule, SparseVector
from diht.constraints.base import Constraint
from diht.losses import Loss
from diht.numerics.arrays import Indices, Vector
from diht.numerics.line_search import longest_step
from diht.problem import Problem
from diht.relaxation.proximal import minimise_quadratic
from diht.relaxation.quadratic import Minimiser
from diht.relaxation.smoothing import Central, Moreau
from diht.samples import Intercept, Rows

__all__ = ["Engine", "KnownHessian", "engine_for"]


_NEWTON = 5e8  # operations of a Hessian up to which Newton's method is preferred
_LARGEST = 2000  # features in groups, or of several targets, whose quadratic is solved by proximal steps
_NEWTON_ENTRIES = 2e7  # entries of the working set's dense copy
# Of an X that is dense itself (bytes for each entry): a Hessian of so many columns takes no longer than some epochs of ascent.
_DENSE, _NEWTON_DENSE, _NEWTON_EACH = 4.0, 1e8, 300.0
_WORK = 2e5  # entries that coordinate ascent reads between two looks at its gap
_FEWEST_EPOCHS, _MOST_EPOCHS = 2, 20
_STRENGTH = 0.3  # of the proximal term, as a multiple of lam, at least
_INNER = 0.1  # accuracy of a quadratic model's solution, relative to the gap
_SIZES = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6)  # of a step
_LONG = 0.1  # a size from which on a step is taken at once; where it must be shorter, its model of the loss is wrong
_MORE_SIZES = tuple(0.5**i for i in range(60))  # where the curvature of the loss has no bound
_AT_ONCE = 4  # sizes that are tried first where a trial is a round trip: those that are long enough
_ATTEMPTS, _FUTILE = 6, 2
_ARMIJO = 1e-4
_SMOOTHING = 0.1  # of a loss with flat parts or kinks, in units of the targets, at first
_LEAST_SMOOTHING = 1e-12
_SHARPER = 0.1  # by which it falls
_EXACT = 1e-12  # relative gap that rounding hides
_PROGRESS = 0.01  # share of the gap, or of the smoothing, that a step must gain
_IDLE = 15  # Newton steps in a row without any such gain after which there will be none: rounding keeps the gap open
_IN_VAIN = 30  # and without one of the gap
_ROUGH = 0.1  # share of the gap that a step by a rough Hessian may leave of it
_INEXACT = 8  # quadratic models in a row whose solutions rounding keeps from being as accurate as the gap asks for


class Engine(ABC):
    """A model of the relaxation on some features, and the means to improve it."""

    misled = False  # whether a step by a rough Hessian failed
    many = False  # whether so many models are to come that compiled sums pay, however short

    def __init__(self, problem: Problem, features: Indices | None, alpha: Rows) -> None:
        self.problem, self.samples = problem, problem.samples
        self.constraint: Constraint = problem.constraint if features is None else problem.constraint.within(features)
        self.pull_constraint = self.constraint.times(-problem.lam)
        self.alpha = alpha
        self.rule: Rule | None = None  # that alpha follows from, where it was measured and there is one
        self.w, self.b, self.u = np.zeros(self.constraint_size(features)), 0.0, self.samples.full(0.0)
        self.value, self.dual, self.gap, self.finished = np.inf, -np.inf, np.inf, False
        self.g = np.zeros_like(self.w)  # X'(s alpha) over its features

    def constraint_size(self, features: Indices | None) -> int:
        """Number of features."""
        return self.problem.shape[1] if features is None else len(features)

    @abstractmethod
    def improve(self) -> None:
        """Make some steps, and measure the gap."""

    def rest(self) -> None:  # noqa: B027
        """Let no work go on that has not been asked for."""

    def gradient(self) -> Vector | None:
        """Return X'(s alpha) over all features, as the problem's design computes it, where it is known."""
        return None

    def hides(self, gap: float) -> bool:
        """Whether a gap is so narrow that no dual point which the engine finds can close any of it."""
        return False

    def last_hessian(self) -> Vector | None:
        """Return the Hessian of its features in the last quadratic model, where samples want rough ones of larger working sets."""
        return None

    def take(self, w: Vector, product: Rows, b: Intercept) -> None:
        """Take a model, given Xw, with its best intercept (searched from b)."""
        problem, samples = self.problem, self.samples
        if problem.fit_intercept:
            b, u, value = samples.at_best_intercept(problem.loss, product, b, self.many)
        else:
            u = samples.shifted(product, b)
            value = samples.value(problem.loss, u)
        self.w, self.b, self.u = w, b, u
        self.value = value + problem.lam * self.constraint.relaxation(w)

    def measure(self, alpha: Rows, g: Vector, rule: Rule | None = None) -> None:
        """Keep a dual point, and its rule, if it is the best so far, given X'(s alpha), and measure the gap."""
        problem = self.problem
        dual = -self.samples.conjugate(problem.loss, alpha) - self.pull_constraint.value(g) / (2.0 * problem.lam)
        if dual >= self.dual:
            self.alpha, self.dual, self.g, self.rule = alpha, dual, g, rule
        self.gap = self.value - self.dual


class AscentEngine(Engine):
    """Coordinate ascent around a proximal point: for many features, or many samples."""

    def __init__(
        self, problem: Problem, features: Indices | None, alpha: Rows, w: Vector, b: Intercept, seed: int
    ) -> None:
        super().__init__(problem, features, alpha)
        m, inside, _ = self.constraint.free(len(self.w))
        held = np.zeros(len(self.w) if len(inside) else 0, dtype=bool)
        held[inside] = True
        self.ascent = self.samples.proximal_ascent(
            features, problem.loss, problem.lam, problem.fit_intercept, m, held, self.samples.copy(alpha), seed
        )
        kappa = max(self.ascent.strength, _STRENGTH * problem.lam)
        self.w, self.b = (w if features is None else w[features]).copy(), b
        self.ascent.restart(kappa, self.w, b)
        self.epochs = int(np.clip(_WORK / max(1, self.ascent.part.nbytes // 12), _FEWEST_EPOCHS, _MOST_EPOCHS))

    def improve(self) -> None:
        """Make some epochs, and look at what they have led to while the next ones are made, where there is a thread for them."""
        problem, ascent = self.problem, self.ascent
        w, b, alpha = ascent.run(self.epochs)
        ascent.go_on(self.epochs)
        alpha = feasible(problem, alpha)
        product, g = ascent.products(w, alpha)
        self.take(w, product, b)
        self.measure(alpha, g)

    def rest(self) -> None:
        """Let no work go on that has not been asked for."""
        self.ascent.rest()

    def gradient(self) -> Vector | None:
        """Return X'(s alpha) if it was computed on the problem's own design, all features, centred and scaled as they are."""
        return self.g if self.ascent.part is self.problem.design and self.dual > -np.inf else None


class NewtonEngine(Engine):
    r"""Proximal Newton method: the loss is replaced by its quadratic model, whose relaxation is solved on a Gram matrix.

    A loss whose conjugate has an end of its domain is smoothed by a barrier there, as in interior point methods: see `Central`. One
    with kinks but of unknown form is replaced by its Moreau envelopes. `many` says that it will be restarted so often that all is
    compiled.
    """

    def __init__(
        self,
        problem: Problem,
        features: Indices | None,
        alpha: Rows,
        w: Vector,
        b: Intercept,
        many: bool = False,
        known: KnownHessian | None = None,
    ) -> None:
        super().__init__(problem, features, alpha)
        self.stored = self.samples if features is None else self.samples.columns(features)
        if features is not None:
            problem.design.count_reads_of(self.stored.design)
        self.minimise, self.many = Minimiser(problem.shape[0], many), many
        self.rough = None if known is None else known.among(features)
        self.hessian: Vector | None = None  # of the last quadratic model, where a larger working set asks for it
        self.largest = 0.0  # eigenvalue of the Hessian, estimated
        self.predicted = alpha  # the dual point that the last step was to lead to
        self.predicted_by: Rule | None = None  # and its rule
        self.begin(w if features is None else w[features], b)

    @cached_property
    def part(self) -> Any:
        """Its features, dense, copied when the first step is made: a model of some of the rows comes before that."""
        return self.stored.formed()

    @property
    def curved(self) -> Any:
        """What Hessians are formed of."""
        return self.stored if self.stored.design.has_short_rows else self.part

    def restart(self, problem: Problem, w: Vector, alpha: Rows) -> None:
        """Take up another constraint on the same features, from a model and a dual point."""
        self.problem, self.samples = problem, problem.samples
        self.constraint, self.alpha, self.predicted = problem.constraint, alpha, alpha
        self.pull_constraint = problem.pull_constraint
        self.rule = self.predicted_by = None
        self.value, self.dual, self.gap, self.finished = np.inf, -np.inf, np.inf, False
        self.begin(w, self.b)

    def begin(self, w: Vector, b: Intercept, strength: float = _SMOOTHING) -> None:
        """Begin at a model, less what the constraint forbids, or at that without features if it is better."""
        self.least_gap, self.idle, self.in_vain, self.inexact = np.inf, 0, 0, 0
        self.m, inside, outside = self.constraint.free(len(w))
        self.state = np.zeros(len(w), dtype=np.int8)
        self.state[inside], self.state[outside] = 1, -1
        self.size = self.samples.target_size
        self.smooth(strength)
        w = w.copy()
        w[outside] = 0.0
        if self.m <= 0:
            w[self.state == 0] = 0.0
        nothing = self.smoothed(np.zeros_like(w), self.samples.full(0.0), b)
        given = self.smoothed(w, self.part.margins(w), b) if np.any(w) else nothing
        self.model = min(given, nothing, key=lambda model: model.value)
        self.take(self.model.w, self.model.product, self.model.b)

    def smooth(self, strength: float) -> None:
        """Take the loss with so much smoothing, in units of the targets' size."""
        loss = self.problem.loss
        self.strength = strength
        pieces = loss.of_target(0).pieces
        if pieces is not None and pieces.is_bounded:
            self.loss: Loss = Central(loss, strength * self.size)
        elif not loss.differentiable:
            self.loss = Moreau(loss, strength * self.size)
        else:
            self.loss, self.strength = loss, 0.0

    def smoothed(self, w: Vector, product: Rows, b: Intercept) -> _Model:
        """The model of w with its best intercept, for the smoothed loss."""
        problem = self.problem
        if problem.fit_intercept:
            b, _, value = self.samples.at_best_intercept(self.loss, product, b, self.many)
        else:
            value = self.samples.value(self.loss, self.samples.shifted(product, b))
        return _Model(w, product, b, value + problem.lam * self.constraint.relaxation(w))

    def improve(self) -> None:
        """Make one step, with less smoothing once that has done its work."""
        problem, model, strength = self.problem, self.model, self.strength
        if self.strength and self.smoothed_gap(model) <= self.strength * self.size:
            self.smooth(max(_SHARPER * self.strength, _LEAST_SMOOTHING))
            model = self.smoothed(model.w, model.product, model.b)
        new = self.step(model)
        self.finished = new is model and (not self.strength or self.strength <= _LEAST_SMOOTHING)
        if new is model and not self.finished:
            self.smooth(max(_SHARPER * self.strength, _LEAST_SMOOTHING))
            new = self.smoothed(model.w, model.product, model.b)
        self.model = new
        self.take(new.w, new.product, new.b)
        self.predicted = feasible(problem, self.predicted)
        own = feasible(problem, self.slopes(new))
        for alpha, rule in ((own, self.rule_of(new)), (self.predicted, self.predicted_by)):
            self.measure(alpha, self.part.pull(alpha), rule)
        if self.rough is not None and self.gap > _ROUGH * self.least_gap:
            self.rough, self.misled = None, True
        narrower = self.gap < (1.0 - _PROGRESS) * self.least_gap
        lower = model.value - new.value > _PROGRESS * self.strength * self.size > 0.0
        self.idle = 0 if narrower or lower or self.strength < strength else self.idle + 1
        self.in_vain = 0 if narrower else self.in_vain + 1
        self.least_gap = min(self.gap, self.least_gap)
        in_vain = self.idle >= _IDLE or self.in_vain >= _IN_VAIN or self.inexact >= _INEXACT
        self.finished = self.finished or in_vain
        problem.design.count(
            5.0 * self.part.design.nbytes / max(1, problem.design.nbytes)
        )  # a Hessian and four products

    def hides(self, gap: float) -> bool:
        """Whether it is far below what the least smoothing costs a dual point."""
        return self.strength > 0.0 and gap <= _PROGRESS * _LEAST_SMOOTHING * self.size

    def last_hessian(self) -> Vector | None:
        """Return the Hessian of the last quadratic model."""
        return self.hessian

    def slopes(self, model: _Model) -> Rows:
        """Derivatives of the smoothed loss, which are in F."""
        return self.samples.slopes(self.loss, self.samples.shifted(model.product, model.b))

    def rule_of(self, model: _Model) -> Rule:
        """The rule of these."""
        return Rule(SparseVector.of(model.w), model.b, self.loss)

    def smoothed_gap(self, model: _Model) -> float:
        """Gap of the smoothed relaxation."""
        return model.value - max(map(self.smoothed_dual, (self.slopes(model), self.predicted)))

    def smoothed_dual(self, alpha: Rows) -> float:
        """Dual value for the smoothed loss."""
        value = self.pull_constraint.value(self.part.pull(alpha))
        return -self.samples.conjugate(self.loss, alpha) - value / (2.0 * self.problem.lam)

    def step(self, model: _Model) -> _Model:
        """Return a better model, or the same if there is none.

        Where the curvature at the model is that of a small region only, a short step and one with the mean curvature of a longer
        step compete: either may gain a thousand times less than the other.
        """
        samples = self.samples
        margins, best = samples.shifted(model.product, model.b), model
        slopes = self.predicted = self.slopes(model)
        self.predicted_by = self.rule_of(model)
        gradient = self.part.pull(slopes)
        curvature = samples.curvatures(self.loss, margins)
        futile = 0  # attempts in a row of which no size will do
        for attempt in range(1 if self.loss.coupled else _ATTEMPTS):
            if attempt == _ATTEMPTS - 1 and self.loss.mu > 0.0:
                curvature = samples.full(1.0 / self.loss.mu)  # no less than the true one anywhere
            target, promised = self.minimiser(model, gradient, curvature)
            if not promised > _EXACT * abs(model.value):
                if self.rough is not None:
                    return self.exact_step(model)
                break
            direction = target - model.w
            change = self.part.margins(direction)
            if attempt == 0 or samples.remote:
                drift = samples.drift(curvature, change) if self.problem.fit_intercept else 0.0
            if attempt == 0:
                self.predicted = self.linear_slopes(slopes, curvature, change, drift)
                self.predicted_by = replace(self.predicted_by, step=SparseVector.of(direction), drift=drift)
            taken = self.descent(model, direction, change, drift, promised)
            if self.rough is not None and (taken is None or taken[0] < 1.0):
                return self.exact_step(model)
            if taken is None:
                futile += 1  # of a descent direction a short step will do, unless rounding hides what it gains
                if futile == _FUTILE:
                    break
            else:
                size, trial = taken
                best, futile = min(best, trial, key=lambda found: found.value), 0
                if size >= _LONG:
                    return best
            curvature = self.secant(margins, change)
        return best if model.value - best.value > _EXACT * abs(model.value) else model

    def exact_step(self, model: _Model) -> _Model:
        """Do so with the Hessian itself, after a rough one has failed."""
        self.rough, self.misled = None, True
        return self.step(model)

    def descent(
        self, model: _Model, direction: Vector, change: Rows, drift: Intercept, promised: float
    ) -> tuple[float, _Model] | None:
        """Return the longest step that gains a share of what its size promises, and the model that it leads to."""
        if self.samples.remote:
            return self.descent_at_once(model, direction, change, drift, promised)

        def trial(size: float) -> _Model:
            return self.smoothed(model.w + size * direction, self.samples.moved(model.product, change, size), model.b)

        def gains(trial: _Model, size: float) -> bool:
            return trial.value <= model.value - _ARMIJO * size * promised

        return longest_step(_SIZES if self.loss.mu > 0.0 else _MORE_SIZES, trial, gains)

    def descent_at_once(
        self, model: _Model, direction: Vector, change: Rows, drift: Intercept, promised: float
    ) -> tuple[float, _Model] | None:
        """Do so with the losses of many sizes in a round trip, the intercept on the line; it is searched for at the end alone."""
        samples: Any = self.samples
        margins, moves = samples.shifted(model.product, model.b), samples.shifted(change, drift)
        for sizes in np.split(np.array(_SIZES if self.loss.mu > 0.0 else _MORE_SIZES), [_AT_ONCE]):
            relaxed = [self.constraint.relaxation(model.w + size * direction) for size in sizes.tolist()]
            values = samples.values_along(self.loss, margins, moves, sizes) + self.problem.lam * np.array(relaxed)
            gaining = np.flatnonzero(values <= model.value - _ARMIJO * promised * sizes)
            if gaining.size:
                size = float(sizes[gaining[0]])
                product = samples.moved(model.product, change, size)
                return size, self.smoothed(model.w + size * direction, product, model.b + size * drift)
        return None

    def linear_slopes(self, slopes: Rows, curvature: Rows, change: Rows, drift: Intercept) -> Rows:
        """Slopes after a whole step, linear in the change of the margins, which includes that of the intercept.

        They are the dual point of the quadratic model: where the loss bends so sharply that rounding of the margins moves the
        slopes, these satisfy the optimality conditions and those of the new model do not.
        """
        bent = self.samples.bent(curvature, change, drift)
        return self.samples.map(lambda y, s, a, c: a + c, slopes, bent)

    def secant(self, margins: Rows, change: Rows) -> Rows:
        """Mean curvature of each sample's loss along a change of the margins that went too far."""
        loss = self.loss

        def mean(y: Vector, s: Vector, u: Vector, v: Vector) -> Vector:
            far = np.abs(v) > 1e-9 * (1.0 + np.abs(u))
            rise = loss.derivative(u + v, y) - loss.derivative(u, y)
            found: Vector = np.where(far, rise / np.where(far, v, 1.0), loss.second_derivative(u, y))
            return found

        return self.samples.map(mean, margins, change)

    def write_hessian(self, H: Vector, curvature: Rows) -> None:
        """Write the Hessian, or a rough one, and estimate its largest eigenvalue."""
        centred = self.problem.fit_intercept
        if self.rough is None:
            H[:] = self.curved.hessian(curvature, centred)
            size = float(np.abs(H).sum(axis=1).max(initial=0.0)) / max(1.0, np.sqrt(len(H)))
        else:
            diagonal = self.part.curvature(curvature, centred).gram_diagonal()
            self.rough.write(H, diagonal)
            size = float(diagonal.max())
        self.largest = max(self.largest, size)
        self.hessian = H if self.samples.rough_hessians else None

    def minimiser(self, model: _Model, gradient: Vector, curvature: Rows) -> tuple[Vector, float]:
        """Minimise the quadratic model of the loss plus the relaxation; and the fall that it promises."""
        n, lam = len(model.w), self.problem.lam
        K = np.empty((n + 1, n + 1))
        H = K[:n, :n]
        self.write_hessian(H, curvature)
        pull = H @ model.w
        K[n, :n] = K[:n, n] = pull - gradient
        # Twice the quadratic model, plus a constant that makes it twice the value at w.
        omega = self.constraint.relaxation(model.w)
        K[n, n] = 2.0 * (model.value - lam * omega) + float(model.w @ (pull - 2.0 * gradient))
        p, c = model.w.copy(), np.empty(n)
        gap = min(self.gap, abs(model.value))
        tol = max(_INNER * gap / max(abs(model.value), np.finfo(float).tiny), 1e-13)
        start, tol = max(self.largest, 1e-3 * lam), min(tol, 1e-3)
        if self.constraint.plain is not None:
            found = self.minimise(
                K, np.zeros(n + 1), 0.0, 0.0, self.state, self.m, self.constraint.size, 2.0 * lam, 0.0, start, p, c, tol
            )
            if self.constraint.keeps(p):
                self.largest = found.curvature
                return p, model.value - 0.5 * found.value
        p, fall, self.largest, solved = minimise_quadratic(
            H, gradient, self.constraint, lam, model.w, start, tol * abs(model.value)
        )
        self.inexact = 0 if solved else self.inexact + 1
        return p, fall


@dataclass(frozen=True, eq=False)
class KnownHessian:
    """A Hessian of some features: with the diagonal of others beside it a rough one of all, which costs no more than a product.

    Where columns are nearly orthogonal, as independent ones of many samples are, a step by it is nearly that of Newton.
    """

    features: Indices
    matrix: Vector

    def among(self, features: Indices | None) -> KnownHessian:
        """Return the same with places among more features, both ascending, or all, in place of their numbers."""
        return self if features is None else KnownHessian(np.searchsorted(features, self.features), self.matrix)

    def write(self, H: Vector, diagonal: Vector) -> None:
        """Write the Hessian of all features, which has this diagonal elsewhere."""
        H[:] = 0.0
        H[np.diag_indices(len(H))] = diagonal
        H[np.ix_(self.features, self.features)] = self.matrix


@dataclass(frozen=True, eq=False)
class _Model:
    w: Vector
    product: Rows  # Xw
    b: Intercept
    value: float


class GradientEngine(Engine):
    """Accelerated proximal gradients: for a loss without compiled steps on many features."""

    def __init__(self, problem: Problem, features: Indices | None, alpha: Rows, w: Vector, b: Intercept) -> None:
        super().__init__(problem, features, alpha)
        self.part = self.samples if features is None else self.samples.columns(features)
        size = self.samples.target_size
        self.loss = problem.loss if problem.loss.differentiable else Moreau(problem.loss, 0.01 * _SMOOTHING * size)
        self.bounded = self.loss.mu > 0.0 and not self.samples.rough_hessians
        self.curvature = self.first_curvature()
        self.point = (w if features is None else w[features]).copy()
        self.last, self.momentum, self.b = self.point.copy(), 1.0, b

    def first_curvature(self) -> float:
        """Return a bound on the curvature; where that is dear, fifty products, its largest diagonal entry: steps are checked."""
        if not self.samples.rough_hessians:
            return self.part.spectral_bound() / (self.loss.mu if self.bounded else 1.0)
        diagonal = self.part.curvature(self.samples.full(1.0), self.problem.fit_intercept).gram_diagonal()
        return float(diagonal.max(initial=0.0)) / (self.loss.mu or 1.0)

    def improve(self) -> None:
        """Make some steps."""
        problem = self.problem
        for _ in range(10):
            product = self.part.margins(self.point)
            b = self.samples.best_intercept(self.loss, product, self.b) if problem.fit_intercept else 0.0
            u = self.samples.shifted(product, b)
            w = self.proximal(self.part.pull(self.samples.slopes(self.loss, u)), u, b)
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * self.momentum**2))
            if (self.point - w) @ (w - self.last) > 0.0:
                following = self.momentum = 1.0
            self.point = w + (self.momentum - 1.0) / following * (w - self.last)
            self.last, self.momentum, self.b = w, following, b
        self.take(w, self.part.margins(w), self.b)
        alpha = feasible(problem, self.samples.slopes(self.loss, self.u))
        self.measure(alpha, self.part.pull(alpha), Rule(SparseVector.of(w), self.b, self.loss))

    def proximal(self, gradient: Vector, u: Rows, b: Intercept) -> Vector:
        """A proximal step from the point; where the curvature has no bound, one that the loss at its end agrees with."""
        problem = self.problem
        if not self.bounded:
            self.curvature *= 0.7  # the curvature may be smaller here than at the points before
        while True:
            step = 1.0 / max(self.curvature, 1e-3 * problem.lam)
            w = self.constraint.prox(self.point - step * gradient, step * problem.lam)
            if self.bounded:
                return w
            change = w - self.point
            rise = self.samples.total(partial(_rise, self.loss), self.part.margins(w, b), u)
            model = float(gradient @ change) + 0.5 * float(change @ change) / step
            size = self.samples.value(self.loss, u)
            if rise <= model + _EXACT * size or not np.any(change):
                return w
            self.curvature = 2.0 / step


def _rise(loss: Loss, y: Vector, u: Vector, before: Vector) -> Vector:
    """Return by how much the losses rise."""
    rise: Vector = loss.value(u, y) - loss.value(before, y)
    return rise


def engine_for(
    problem: Problem,
    features: Indices | None,
    alpha: Rows,
    w: Vector,
    b: Intercept,
    seed: int = 0,
    known: KnownHessian | None = None,
) -> Engine:
    """Choose an engine by the size of the working set, and start it at a model and a dual point of all features."""
    size = problem.shape[1] if features is None else len(features)
    compiled = problem.loss.kernel() is not None and problem.samples.whole
    far = problem.design.is_far and features is None  # nothing visits one sample after the other
    if newton_pays(problem, size) or (far and size <= _LARGEST):
        return NewtonEngine(problem, features, alpha, w, b, known=known)
    if compiled and problem.constraint.is_plain:
        return AscentEngine(problem, features, alpha, w, b, seed)
    return GradientEngine(problem, features, alpha, w, b)


def newton_pays(problem: Problem, n_features: int) -> bool:
    """Whether a Hessian of so many features is cheap enough."""
    design = problem.samples.design
    if not problem.constraint.is_plain and n_features > _LARGEST:
        return False
    if problem.samples.remote and not problem.loss.differentiable:
        return (
            n_features <= _LARGEST
        )  # rows in other processes: of a loss with kinks gradients would take thousands of trips
    limit, entries = _NEWTON if problem.loss.kernel() is not None else 10 * _NEWTON, design.entries(n_features)
    if design.nbytes >= _DENSE * design.entries():
        return entries <= _NEWTON_DENSE and design.dense_gram_cost(n_features) <= max(limit, _NEWTON_EACH * entries)
    return entries <= _NEWTON_ENTRIES and design.dense_gram_cost(n_features) <= limit

r"""What a model can gain at most by one more feature, for every feature: lower bounds from dual points.

Let w be the best model on a support S (with intercept b, margins u) and :math:`\alpha = l'(u)`. For any dual point, the models on
S and one feature j more have

.. math:: P \ge D_j(\alpha) = -\sum_i s_i l^*(\alpha_i) - \frac{\|g_S\|^2 + g_j^2}{2 \lambda} , \qquad g = X^\top (s \odot \alpha) .

At :math:`\alpha = l'(u)` this is :math:`P(w) - g_j^2 / 2 \lambda`, for all features from one read of X; it is weak where the ridge
is.

A dual point for j alone moves with it. For a coefficient t it moves at the entries of the column by
:math:`\Delta_i = l'(u_i + t x_{ij}) - l'(u_i)`, and everywhere by :math:`c_i \epsilon_i`, with c about :math:`l''(u)`,
:math:`\epsilon = Y q` and Y the columns of S and of the intercept. That is how the other coefficients answer by Newton's method:

.. math:: (Y^\top S C Y + \lambda E) q = -Y^\top (s \odot \Delta) ,

E the identity but for the intercept. Then :math:`g_S` changes by :math:`-\lambda q`, the point stays balanced, and off the entries

.. math:: l^*(\alpha_i + c_i \epsilon_i) \le l^*(\alpha_i) + u_i c_i \epsilon_i + \tfrac12 \kappa c_i \epsilon_i^2

adds up to a quadratic in q: no rows but those of the entries are looked at. Where conjugates are quadratic, :math:`\kappa = 1` as
long as c is so small that :math:`\alpha + c \epsilon` stays in F. Where the logarithm of l'' changes by at most 1 per unit of u,
the conjugate's curvature at :math:`\alpha + c \epsilon` is at most :math:`1 / (c (1 - |\epsilon|))`, and integrated twice that is
:math:`\kappa = 2 (\epsilon + (1 - \epsilon) \log(1 - \epsilon)) / \epsilon^2` at the largest :math:`|\epsilon_i|`.

The few features that are left then get steps of Newton's method with all rows, and the bounds of the dual points on its way. Where
there is compiled code, it fits the models with each of those that remain, whose objectives take the place of bounds: an order by
bounds says little of which model is better, and a fit by itself takes a hundred times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from diht.bounds.duality import dual_from_primal
from diht.design import Design
from diht.fit import Fit
from diht.losses import Loss
from diht.numerics.arrays import Indices, Matrix, Vector
from diht.numerics.definite import Definite
from diht.problem import Problem
from diht.samples import Along, Around, Found, Lines, Rows, Samples, Walks

__all__ = ["NARROW", "WIDE", "Breadth", "Effort", "Joining", "worth_compiling"]


_TOGETHER = 300_000  # entries of columns, times features of the support, looked at together: they stay in the cache
_REACH = 2.0  # margins that the other features may move in answer, in units of what a feature contributes on average
_ROUNDING = 1e-14  # share of the terms of a bound that rounding may have added
_BALANCED = 1e-13  # relative imbalance of a dual point that is rounding
_SUMMED = 1e-15  # relative error of an imbalance
_OUTSIDE = 1e-14  # relative distance to F that is rounding
_NEAR = 0.8  # share of the reach up to which a sum of bounds on the answer will do
_WIDE = 100  # columns whose answers are formed together
_FIRST, _FURTHER, _NEWTON = 2, 4, 20  # dual points that are tried for a feature: at first, then, on whole columns
_PIVOTS = 200  # changes of the free samples, at most
_GLANCE = 100  # features whose bounds are looked at where a better model is searched for and no code is compiled
_PRECISE, _STEPS = 1e-11, 100  # of the target: accuracy of fits in compiled code, and their steps
_MOST_FITTED = 100  # coefficients up to which they are made: more take long, one by one
_LEAST = 20  # steps of that, at most
_WORTH_COMPILING = 2e6  # entries of X, times features of the support, from which on the seconds of compiling pay
_AT_ONCE = 1e6  # entries of columns that compiled code looks at before the effort is looked at again
_COMPILED = 2.0  # units of effort that an entry takes in compiled code, which looks at it four times
_ALONE = 0.2  # and where a column is looked at alone
_MULTIPLIED = 0.015  # and a multiplication
_PER_COLUMN = 0.05  # and that each entry of a matrix as large as the support takes, for each column
_ANSWERED = 2.0  # times the gain along a feature alone: what it gains at most, at a glance, where the others answer
_FARTHEST = 4.0  # times the last coefficient: the next one at most
_PER_BYTE = 0.01  # units of effort that a stage takes for each byte of X that it reads, with all that it does besides


class Breadth(NamedTuple):
    """How much is looked at where a better model is searched for in compiled code."""

    entries: float  # of columns along which the objective is minimised
    nearer: int  # features, the best of these, whose models are fitted


NARROW, WIDE = Breadth(1e6, 30), Breadth(1e7, 100)


def worth_compiling(problem: Problem, size: int) -> bool:
    """Whether swaps of a model with so many features are searched in compiled code.

    Entries count for more where features outnumber the samples: there the quadratic by which numpy ranks candidates misleads.
    """
    n, d = problem.shape
    return bool(problem.design.entries() * size * max(1.0, d / n) >= _WORTH_COMPILING)


class Effort:
    """Work that is left to do, in entries of columns that numpy looks at once: a tenth of a microsecond each.

    What is done in vain ends at the patience or, for a proof whose cost is known, at `proof` if that is more.
    """

    def __init__(self, left: float = np.inf, patience: float = np.inf, proof: float = 0.0) -> None:
        self.left, self.patience, self.proof, self.idle, self.spent = left, patience, proof, 0.0, 0.0

    def spend(self, entries: float) -> None:
        """Do so much of it."""
        self.left -= entries
        self.idle += entries
        self.spent += entries

    @staticmethod
    def of_reads(design: Design, reads: float) -> float:
        """Return how much so many reads of X are."""
        return _PER_BYTE * design.nbytes * reads

    def pay(self) -> None:
        """Note that the work since the last time has led to something: a proof may take as much more."""
        self.proof += self.idle
        self.idle = 0.0

    def takes_on(self, entries: float) -> bool:
        """Whether a proof may take so much more; where it may, less patience than for proofs no longer ends the work."""
        most = max(self.patience, self.proof)
        if entries > min(self.left, most - self.idle):
            return False
        self.patience = most
        return True

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left, or too much was done in vain."""
        return self.left <= 0.0 or self.idle > self.patience


class Joining:
    """The models on the support of a fitted one and one unit more: lower bounds on their objectives.

    Parameters
    ----------
    problem : Problem
    fit : Fit
        The best model on its support.
    units : array of int
        The units that may join, ascending.
    target : float
        Bounds that reach it are not improved.
    effort : Effort

    Attributes
    ----------
    bounds : array, one for each unit
        No model on the support and the unit has an objective below it, but for the accuracy of a fit.
    t : array, one for each unit
        Where units are features: a guess of the coefficient.
    """

    def __init__(self, problem: Problem, fit: Fit, units: Indices, target: float, effort: Effort) -> None:
        self.problem, self.fit, self.units, self.target, self.effort = problem, fit, units, target, effort
        samples, constraint = problem.samples, problem.constraint
        self._u = fit.margins(problem)
        if problem.fit_intercept:  # alpha is l' at the best one
            self._u = samples.shifted(self._u, samples.best_intercept(problem.loss, self._u))
        self._alpha = dual_from_primal(problem, fit.w, fit.b, self._u)
        self._intercept, imbalance = 0.0, 0.0
        if problem.fit_intercept:
            self._alpha = _balanced(problem, self._u, self._alpha)
            left, sizes = (samples.sums(rows) for rows in (self._alpha, samples.map(_size, self._alpha)))
            imbalance = float(np.sum(np.abs(left) + _SUMMED * sizes))
            largest = samples.largest(lambda y, u: np.abs(u), self._u)
            self._intercept = 2.0 * (float(np.abs(fit.b).max()) + largest)
        self._g = samples.pull(self._alpha)
        squares = problem.pull_constraint.squares(self._g)
        held = squares[np.unique(constraint.unit_of(fit.n_features)[fit.support])]
        ridge = float(held.sum()) / (2.0 * problem.lam)
        loss = problem.loss
        terms = samples.total(lambda y, a: loss.conjugate_terms(a, y, loss.conjugate(a, y)), self._alpha)
        self._base = -samples.conjugate(problem.loss, self._alpha) - ridge - _ROUNDING * (terms + ridge)
        self._base -= imbalance * self._intercept
        self.bounds, self.t = self._base - squares[units] / (2.0 * problem.lam), np.zeros(len(units))

    @property
    def open(self) -> Indices:
        """Places of the units that are not ruled out, the lowest bound first."""
        some = np.flatnonzero(self.bounds < self.target)
        return np.asarray(some[np.argsort(self.bounds[some], kind="stable")])

    def stages(self) -> Iterator[None]:
        """Improve the bounds step by step, at growing cost for each unit that is not ruled out."""
        yield
        walk = self._walk
        if walk is None:
            return
        for better in [*walk.methods, *walk.fits]:
            self._improve(better, self.open)
            yield

    def curvatures(self) -> Vector | None:
        """Return the curvature of the objective along each feature alone; None where no better bounds are known, or needed."""
        return None if self._walk is None else self._walk.curvatures()

    def glance(self, curvatures: Callable[[], Vector | None], breadth: Breadth, bounded: bool = True) -> Indices:
        """Improve the bounds of the features that promise most, each alone; return those that are still open.

        Curvatures of a model near by will do. Where there is compiled code, the objective is minimised along many features first:
        far from the model a quadratic says little, of rare features and of separable classes least of all. Where bounds would
        rule out nothing, for any feature lowers the objective, that is all.
        """
        walk = self._walk
        if walk is None:
            return self.open
        bounded = bounded or not walk.is_compiled
        some = np.flatnonzero(self.bounds < self.target)
        if len(some) > _GLANCE:
            features, h = self.units[some], curvatures()
            assert h is not None
            order = np.argsort(-np.square(self._g[features]) / h[features], kind="stable")
            some = some[order[: walk.affordable(features[order], breadth.entries)]]
        if len(some) > _GLANCE or not bounded:
            change, self.t[some] = walk.least(self.units[some], self.effort)
            order = np.argsort(change, kind="stable")[: breadth.nearer]
            some = some[order[self.fit.objective + _ANSWERED * change[order] < self.target] if bounded else order]
        if not bounded:
            return some
        for better in [*walk.methods[:2], *walk.fits]:
            some = some[self.bounds[some] < self.target]
            self._improve(better, some)
        some = some[self.bounds[some] < self.target]
        return np.asarray(some[np.argsort(self.bounds[some], kind="stable")])

    @cached_property
    def _walk(self) -> _Walk | None:
        """What gives better bounds; None where no better ones are known, or needed."""
        if not self.problem.constraint.is_plain or not np.any(self.bounds < self.target):
            return None
        metric = _Metric.of(self.problem.loss, self.problem.samples, self._u, len(self.fit.support))
        if metric is None:
            return None
        return _Walk.around(self.problem, self.fit, self._alpha, self._u, self._g, self._base, self._intercept, metric)

    def _improve(self, method: _Method, some: Indices) -> None:
        """Improve some bounds, as far as there is effort left."""
        some = np.sort(some)
        for at in method.pieces(some, self.units[some]):
            if self.effort.is_spent:
                return
            self._take(at, *method.bounds(self.units[at], self.t[at], self.target, self.effort))

    def _take(self, at: Indices, bounds: Vector, t: Vector) -> None:
        better = bounds > self.bounds[at]
        self.bounds[at] = np.where(better, bounds, self.bounds[at])
        self.t[at] = np.where(better & np.isfinite(t), t, self.t[at])


class _Method(NamedTuple):
    """A way to improve bounds: for some features, with guesses of their coefficients, up to a target, within an effort."""

    bounds: Callable[[Indices, Vector, float, Effort], tuple[Vector, Vector]]
    design: Design
    together: float  # entries of columns, stored or all, that are looked at together
    whole: bool

    def pieces(self, places: Indices, features: Indices) -> Iterator[Indices]:
        """Cut the places of features into groups that are looked at together."""
        if not len(features):
            return
        if self.whole:
            groups = np.array_split(
                features, np.arange(0, len(features), max(int(self.together) // self.design.shape[0], 1))[1:]
            )
        else:
            groups = self.design.pieces(features, max(self.together, 1.0))
        done = 0
        for group in groups:
            yield places[done : done + len(group)]
            done += len(group)


@dataclass(frozen=True, eq=False)
class _Metric:
    """The weights c, and how large |epsilon| may be: as far as that all points stay in F."""

    loss: Loss
    c: Rows
    reach: float

    @classmethod
    def of(cls, loss: Loss, samples: Samples, u: Rows, k: int) -> _Metric | None:
        """Return that of a loss at some margins; None where no bound is known."""
        pieces = loss.pieces
        if loss.concordant:
            reach = 1.0
        elif pieces is None or pieces.mu == 0.0:
            return None
        elif pieces.is_bounded:
            centre = samples.mean(u)
            spread = samples.total(lambda y, u: (u - centre) ** 2, u) / samples.total(np.ones_like)
            reach = _REACH * float(np.sqrt(spread / max(k, 1))) or samples.target_size
        else:
            reach = np.inf
        c = samples.map(lambda y, s, u: _Metric(loss, None, reach).weights(u, y), u)
        return cls(loss, c, reach)

    def weights(self, u: Vector, y: Vector) -> Vector:
        """Return c for some margins."""
        curvature: Vector = self.loss.second_derivative(u, y)
        if self.loss.concordant or self.reach == np.inf:
            return curvature
        low, high = self.loss.domain(y)
        a = self.loss.derivative(u, y)
        least: Vector = np.minimum(curvature, np.minimum(a - low, high - a) / self.reach)
        return least

    def kappa(self, epsilon: Vector) -> Vector:
        """Return the factor for the largest |epsilon| of all rows; infinite beyond the reach."""
        if not self.loss.concordant:
            return np.where(epsilon <= self.reach, 1.0, np.inf)
        e = np.clip(epsilon, 1e-3, 1.0 - 1e-9)  # below, the difference of the terms would be rounding
        return np.where(epsilon < self.reach, 2.0 * (e + (1.0 - e) * np.log1p(-e)) / e**2, np.inf)


@dataclass(frozen=True, eq=False)
class _Walk:
    """A fitted model and its dual point, from which others set out."""

    problem: Problem
    fit: Fit
    alpha: Rows
    u: Rows
    g: Vector
    base: float
    intercept: float  # the size of one, which is what an imbalance costs
    metric: _Metric
    part: Samples
    K: Matrix  # Y'SCY
    ridge: Vector  # the diagonal of lam E
    inverse: Matrix  # of K + lam E
    weight: float  # sum_i s_i |alpha_i|
    pull: Vector  # Y'(s c u)
    size: Vector  # max_i |Y_il|

    @classmethod
    def around(
        cls,
        problem: Problem,
        fit: Fit,
        alpha: Rows,
        u: Rows,
        g: Vector,
        base: float,
        intercept: float,
        metric: _Metric,
    ) -> _Walk:
        """Form the equations for q."""
        samples, c = problem.samples, metric.c
        part = samples.columns(fit.support).formed()
        K, size = part.hessian(c, False), part.largest_entries()
        cu = samples.map(lambda y, s, c, u: c * u, c, u)
        pull, ridge = part.pull(cu), np.full(len(K), problem.lam)
        if problem.fit_intercept:
            edge, total = part.pull(c), samples.total(lambda y, c: c, c)
            K = np.block([[K, edge[:, None]], [edge[None, :], np.array([[total]])]])
            pull = np.append(pull, samples.total(lambda y, a: a, cu))
            size, ridge = np.append(size, 1.0), np.append(ridge, 0.0)
        inverse = Definite(K + np.diag(ridge)).inverse()
        weight = samples.total(lambda y, a: np.abs(a), alpha)
        return cls(problem, fit, alpha, u, g, base, intercept, metric, part, K, ridge, inverse, weight, pull, size)

    @cached_property
    def roots(self) -> Vector:
        """The root of the diagonal of K."""
        return np.asarray(np.sqrt(self.K.diagonal()))

    def curvatures(self) -> Vector:
        """Return the curvature of the objective along each feature alone."""
        samples, c = self.problem.samples, self.metric.c
        total = samples.total(lambda y, c: c, c)
        if total == 0.0:
            return np.full(self.fit.n_features, self.problem.lam)
        mean, variance = samples.moments(c)
        return np.asarray(total * (variance if self.problem.fit_intercept else variance + mean**2) + self.problem.lam)

    @property
    def is_compiled(self) -> bool:
        """Whether there is compiled code."""
        return self._compiled is not None

    def affordable(self, features: Indices, entries: float) -> int:
        """Return along how many of some features, in their order, the objective is minimised at a glance at so many entries."""
        if not self.is_compiled:
            return _GLANCE
        return max(_GLANCE, len(self.problem.design.pieces(features, entries)[0]))

    def least(self, features: Indices, effort: Effort) -> tuple[Vector, Vector]:
        """Minimise the objective along each feature alone; return how it changes, and where."""
        assert self._compiled is not None
        found = self._compiled.least(features, self.g[features], _LEAST)
        effort.spend(_ALONE * found.seen)
        return found.bounds, found.t

    @property
    def methods(self) -> list[_Method]:
        """What improves bounds, at growing cost."""
        design, compiled = self.problem.design, self._compiled
        if compiled is None:
            first, further = partial(self.bounds, rounds=_FIRST), partial(self.bounds, rounds=_FURTHER)
            together = _TOGETHER / max(len(self.K), 1)
            narrow = [_Method(rounds, design, together, False) for rounds in (first, further)]
            return [*narrow, _Method(self.newton_bounds, design, _TOGETHER, True)]
        whole = self._on_whole_columns
        if self._pivots:
            return [_Method(self._pivoted, design, _AT_ONCE, whole)]
        newton = partial(compiled.newton_bounds, rounds=_NEWTON)
        found: list[Callable[..., Found]] = [partial(compiled.bounds, rounds=_FIRST)]
        found += [partial(newton, everywhere=everywhere) for everywhere in (False, True)]
        works = [partial(self._counted, work) for work in found]
        return [_Method(work, design, _AT_ONCE, whole) for work in works]

    @property
    def _pivots(self) -> bool:
        """Whether pivots lead to the best dual points soon: few samples are inside of F where features can separate them."""
        n, d = self.problem.shape
        return self.problem.loss.pieces is not None and n < d and not self.problem.design.has_short_rows

    @property
    def fits(self) -> list[_Method]:
        """What fits the models with each feature in compiled code: their objectives are as good as bounds then."""
        if self._compiled is None or len(self.K) > _MOST_FITTED:
            return []
        return [_Method(self._fitted, self.problem.design, _AT_ONCE, True)]

    def _fitted(self, features: Indices, t: Vector, target: float, effort: Effort) -> tuple[Vector, Vector]:
        """Return the objectives of the models with each feature; NaN where they are not known as precisely as after a fit."""
        assert self._compiled is not None
        precise = _PRECISE * min(abs(target), abs(self.fit.objective))
        found = self._compiled.fitted(features, self.g[features], t, precise, _STEPS)
        steps = found.seen / self.problem.shape[0]
        effort.spend(_COMPILED * found.seen + _PER_COLUMN * steps * len(self.K) ** 2)
        # A feature more never raises the objective: what is above it is not the least.
        return np.where(found.bounds <= self.fit.objective, found.bounds, np.nan), found.t

    def _pivoted(self, features: Indices, t: Vector, target: float, effort: Effort) -> tuple[Vector, Vector]:
        """Return what pivots lead to."""
        assert self._compiled is not None
        found = self._compiled.pivot_bounds(features, self.g[features], t, target, _PIVOTS)
        effort.spend(_MULTIPLIED * found.seen)
        return found.bounds, found.t

    def _counted(
        self, work: Callable[..., Found], features: Indices, t: Vector, target: float, effort: Effort
    ) -> tuple[Vector, Vector]:
        """Return what compiled code finds."""
        found = work(features, self.g[features], t, target)
        effort.spend(_COMPILED * found.seen + _PER_COLUMN * len(features) * len(self.K) ** 2)
        return found.bounds, found.t

    # Rows of the entries alone

    @property
    def _on_whole_columns(self) -> bool:
        """Whether sparse columns that are centred are walked along with all of their rows: no intercept makes up for a centre."""
        return self.problem.design.is_centred and not self.problem.fit_intercept

    @cached_property
    def _compiled(self) -> Walks | None:
        """The same in compiled code, for a loss that has one and samples in memory; None where there is little to do."""
        problem, samples, kernel = self.problem, self.problem.samples, self.problem.loss.kernel()
        if kernel is None or not worth_compiling(problem, len(self.K)):
            return None
        k, n = len(self.fit.support), len(self.K)
        vectors, support = np.zeros((6, n)), self.fit.support
        vectors[0], vectors[1], vectors[5] = self.ridge, self.pull, self.roots
        vectors[3, :k], vectors[4, :k] = self.g[support], problem.lam * self.fit.w[support]
        scalars = np.array(
            [self.base, problem.lam, self.metric.reach, _BALANCED * self.weight, k, self.intercept], dtype=np.float64
        )
        around = Around(kernel, problem.fit_intercept, np.array([self.inverse, self.K]), vectors, scalars)
        loss = problem.loss
        conjugate = samples.map(lambda y, s, a: loss.conjugate(a, y), self.alpha)
        return samples.walks(around, self.part, self._on_whole_columns, self.u, self.alpha, self.metric.c, conjugate)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what is not finite proves nothing
    def bounds(self, features: Indices, t: Vector, target: float, effort: Effort, rounds: int) -> tuple[Vector, Vector]:
        """Try a few coefficients for each feature, each where the slope of the last ones leads, until the target is reached."""
        samples, now, lam, whole = (
            self.problem.samples,
            np.arange(len(features)),
            self.problem.lam,
            self._on_whole_columns,
        )
        lines = samples.lines(features, self.part, whole)
        h = lines.total(lambda y, c, x: c * x * x, lines.at(self.metric.c), lines.x)
        roots = _Roots.of(self.g[features], h + lam, t)
        best, kept = np.full(len(features), -np.inf), roots.t.copy()
        for _ in range(rounds):
            effort.spend(lines.size)
            value, slope = self._evaluated(lines, features[now], roots.t[now])
            better = value > best[now]
            best[now], kept[now] = np.where(better, value, best[now]), np.where(better, roots.t[now], kept[now])
            left = best[now] < target
            if not np.any(left):
                break
            roots.narrow(now, slope)
            now = now[left]
            lines = samples.lines(features[now], self.part, whole)
        return best, kept

    def _evaluated(self, lines: Lines, features: Indices, t: Vector) -> tuple[Vector, Vector]:
        """Return D at the dual points of some coefficients, and the slopes of P along the features there, as D has them."""
        loss, metric = self.problem.loss, self.metric
        u, alpha, c, x = lines.at(self.u), lines.at(self.alpha), lines.at(metric.c), lines.x
        v = lines.map(lambda y, s, u, x, t: u + t * x, u, x, lines.per(t))
        delta = lines.map(lambda y, s, v, a: loss.derivative(v, y) - a, v, alpha)
        # The rows of the entries answer by their curvature there.
        weights = replace(metric, c=None).weights
        change = lines.map(lambda y, s, v, c: weights(v, y) - c, v, c)
        first = self._margins(lines, self._answer(self._pulled(lines, delta)))
        reach = metric.reach
        delta = lines.map(lambda y, s, d, h, e: d + h * np.clip(e, -reach, reach), delta, change, first)
        r = self._pulled(lines, delta)
        q = self._answer(r)
        epsilon = self._margins(lines, q)
        step = lines.map(lambda y, s, d, c, e: d + c * e, delta, c, epsilon)
        share = self._share(lines, alpha, step)
        conjugate = self._rise(lines, share, alpha, step)
        if not lines.are_whole:
            conjugate += self._elsewhere(lines, share, u, c, epsilon, q * share)
        new = self.g[features] + share * lines.total(lambda y, x, d: x * d, x, step)
        value = self._value(conjugate, share * (r + self.K @ q), new)
        return value - self._rounding(share * q, share * (r + self.K @ q)), new + self.problem.lam * t

    def _elsewhere(self, lines: Lines, share: Vector, u: Along, c: Along, epsilon: Along, q: Matrix) -> Vector:
        """Return how much the conjugates of the rows without entries rise, at most."""
        kappa = self.metric.kappa(self._farthest(q))
        finite = np.where(np.isfinite(kappa), kappa, 0.0)
        at_entries = lines.total(
            lambda y, u, c, e, b, h: c * b * e * (u + 0.5 * h * b * e),
            u,
            c,
            epsilon,
            lines.per(share),
            lines.per(finite),
        )
        rise = self.pull @ q + 0.5 * finite * np.einsum("lj,lj->j", q, self.K @ q) - at_entries
        return np.where(np.isfinite(kappa), rise, np.inf)

    def _farthest(self, q: Matrix) -> Vector:
        """Return the largest |Y q| of all rows, or what it is at most where that is small."""
        found, k = self.size @ np.abs(q), len(self.fit.support)
        far = np.flatnonzero(found > _NEAR * self.metric.reach)
        for some in np.array_split(far, 1 + len(far) // _WIDE):
            found[some] = self.part.extent(q[:k, some], q[k:, some].sum(axis=0))
        return np.asarray(found)

    def _rounding(self, q: Matrix, left: Matrix) -> Vector:
        """Return what rounding may have added by way of an answer q, after which the pulls of the support change."""
        k = len(self.fit.support)
        pulls = np.abs(self.g[self.fit.support][:, None] + left[:k])
        answered, held = self.roots @ np.abs(q), self.roots[:k] @ pulls / self.problem.lam
        return np.asarray(_ROUNDING * (answered * (held + answered) + np.abs(self.pull) @ np.abs(q)))

    def _answer(self, r: Matrix) -> Matrix:
        """Return q, refined once."""
        q = -(self.inverse @ r)
        return np.asarray(q - self.inverse @ (r + self.K @ q + self.ridge[:, None] * q))

    # All rows

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def newton_bounds(self, features: Indices, t: Vector, target: float, effort: Effort) -> tuple[Vector, Vector]:
        """Follow Newton's method for all coefficients, one problem for each feature, until the target is reached.

        The dual point of a step is l' at its beginning plus what the curvature makes of the step: so it is balanced.
        """
        samples, now = self.problem.samples, np.arange(len(features))
        x = np.vstack(
            [np.zeros((len(self.K), len(features))), t]
        )  # changes of the coefficients, the last of them the feature's
        best = np.full(len(features), -np.inf)
        lines = samples.lines(features, self.part, whole=True)
        for _ in range(_NEWTON):
            effort.spend(lines.size * (1.0 + len(self.K) / _WIDE))
            value, step = self._newton_step(lines, features[now], x[:, now])
            best[now] = np.fmax(best[now], value)
            finite = np.all(np.isfinite(step), axis=0)
            x[:, now] += np.where(finite, step, 0.0)
            left = (best[now] < target) & finite
            if not np.any(left):
                break
            now = now[left]
            lines = samples.lines(features[now], self.part, whole=True)
        return best, x[-1]

    def _newton_step(self, lines: Lines, features: Indices, x: Matrix) -> tuple[Vector, Matrix]:
        """Return D at the dual points that steps lead to, and the steps."""
        loss, lam = self.problem.loss, self.problem.lam
        alpha, column = lines.at(self.alpha), lines.x
        v = self._moved(lines, lines.at(self.u), x)
        delta = lines.map(lambda y, s, v, a: loss.derivative(v, y) - a, v, alpha)
        c = lines.map(lambda y, s, v: loss.second_derivative(v, y), v)
        r, own = self._pulled(lines, delta), lines.total(lambda y, x, d: x * d, column, delta)
        ridge = np.append(self.ridge, lam)
        gradient = np.vstack([r, self.g[features] + own]) + ridge[:, None] * x
        H = self._hessians(lines, c) + np.diag(ridge)
        step = -_solved(H, gradient.T).T
        bend = self._moved(lines, lines.per(np.zeros(len(features))), step)
        rise = lines.map(lambda y, s, d, c, e: d + c * e, delta, c, bend)
        share = self._share(lines, alpha, rise)
        left, new = self._pulled(lines, rise), lines.total(lambda y, x, d: x * d, column, rise)
        conjugate = self._rise(lines, share, alpha, rise)
        value = self._value(conjugate, share * left, self.g[features] + share * new)
        return value - self._rounding(share * (x + step)[:-1], share * left), step

    def _moved(self, lines: Lines, u: Along, x: Matrix) -> Along:
        """Return margins after changes of the coefficients."""
        return lines.map(
            lambda y, s, u, e, a, t: u + e + t * a, u, self._margins(lines, x[:-1]), lines.x, lines.per(x[-1])
        )

    def _hessians(self, lines: Lines, c: Along) -> Matrix:
        """Return X'SCX of the support, the intercept and the feature, for each feature."""
        k, n = len(self.fit.support), len(self.K)
        cx = lines.map(lambda y, s, c, x: c * x, c, lines.x)
        H = np.zeros((len(lines), n + 1, n + 1))
        H[:, :k, :k] = lines.gram(c)
        H[:, :n, n] = H[:, n, :n] = self._pulled(lines, cx).T
        H[:, n, n] = lines.total(lambda y, a, x: a * x, cx, lines.x)
        if n > k:
            H[:, :k, k] = H[:, k, :k] = lines.pull(c).T
            H[:, k, k] = lines.total(lambda y, c: c, c)
        return H

    # Both

    def _pulled(self, lines: Lines, delta: Along) -> Matrix:
        """Return Y'(s delta)."""
        r = lines.pull(delta)
        return np.vstack([r, lines.total(lambda y, d: d, delta)]) if self.problem.fit_intercept else r

    def _margins(self, lines: Lines, q: Matrix) -> Along:
        """Return Y q."""
        k = len(self.fit.support)
        epsilon = lines.mixed(q[:k])
        return lines.map(lambda y, s, e, b: e + b, epsilon, lines.per(q[k])) if len(q) > k else epsilon

    def _share(self, lines: Lines, alpha: Along, step: Along) -> Vector:
        """Return how much of a step stays in F, all of it at most."""
        return 1.0 / np.maximum(1.0, lines.largest(lines.map(partial(_beyond, self.problem.loss), alpha, step)))

    def _rise(self, lines: Lines, share: Vector, alpha: Along, step: Along) -> Vector:
        """Return how much the conjugates of the rows with entries rise along a share of a step."""
        loss = self.problem.loss
        return lines.total(
            lambda y, a, d, b: _conjugate(loss, a + b * d, y) - loss.conjugate(a, y), alpha, step, lines.per(share)
        )

    def _value(self, conjugate: Vector, left: Matrix, new: Vector) -> Vector:
        """Return D where the conjugates rise, the pulls of the support and of the intercept change, and the feature's is new."""
        k, g = len(self.fit.support), self.g[self.fit.support][:, None]
        squares = np.square(g + left[:k]).sum(axis=0) - float(np.square(g).sum()) + np.square(new)
        imbalance = np.abs(left[k:]).sum(axis=0)
        value = self.base - conjugate - squares / (2.0 * self.problem.lam) - imbalance * self.intercept
        return np.where(np.isfinite(value) & (imbalance <= _BALANCED * self.weight), value, -np.inf)


def _size(y: Vector, s: Vector, a: Vector) -> Vector:
    return np.abs(a)


def _balanced(problem: Problem, u: Rows, alpha: Rows) -> Rows:
    """Take out what rounding of the margins u has left of an imbalance, as another intercept, the same to rounding, would."""
    samples, loss = problem.samples, problem.loss
    if loss.coupled or not loss.differentiable:
        return alpha
    own = enumerate(zip(samples.targets, samples.by_target(u), samples.by_target(alpha), strict=True))
    return samples.stacked([_without_drift(loss.of_target(c), *rows) for c, rows in own])


def _without_drift(loss: Loss, samples: Samples, u: Rows, alpha: Rows) -> Rows:
    bend = samples.total(lambda y, u: loss.second_derivative(u, y), u)
    if not bend > 0.0:
        return alpha
    shift = samples.total(lambda y, a: a, alpha) / bend
    return samples.map(lambda y, s, u, a: loss.project(a - shift * loss.second_derivative(u, y), y), u, alpha)


def _solved(H: Matrix, right: Matrix) -> Matrix:
    """Solve several systems; NaN for those that are singular."""
    try:
        return np.asarray(np.linalg.solve(H, right[:, :, None])[:, :, 0])
    except np.linalg.LinAlgError:
        return np.full_like(right, np.nan)


def _beyond(loss: Loss, y: Vector, s: Vector, a: Vector, step: Vector) -> Vector:
    """Return how many times the way from a point of F to its border a step is."""
    low, high = loss.domain(y)
    room = np.maximum(np.where(step > 0.0, high - a, a - low), 0.0)
    size = np.abs(step)
    return np.where(size <= _OUTSIDE * (1.0 + np.abs(a)), 0.0, size / room)


def _conjugate(loss: Loss, a: Vector, y: Vector) -> Vector:
    """Return l*(a), for an a in F but for rounding."""
    inside = loss.project(a, y)
    return np.where(np.abs(a - inside) <= _OUTSIDE * (1.0 + np.abs(a)), loss.conjugate(inside, y), np.inf)


@dataclass(eq=False)
class _Roots:
    """Roots of increasing functions, one for each feature, by secants within brackets as far as these are known."""

    t: Vector
    last: Vector
    slope: Vector  # at the last
    low: Vector
    high: Vector

    @classmethod
    def of(cls, g: Vector, h: Vector, t: Vector) -> _Roots:
        """Begin at guesses or, where these are zero, with a step from there, where values are g, by the derivatives h."""
        low, high = np.where(g < 0.0, 0.0, -np.inf), np.where(g > 0.0, 0.0, np.inf)
        return cls(np.where(t == 0.0, -g / h, t), np.zeros(len(g)), g.copy(), low, high)

    def narrow(self, at: Indices, slope: Vector) -> None:
        """Take the values of some functions at t, and move on."""
        t, last = self.t[at], self.last[at]
        self.low[at], self.high[at] = np.where(slope < 0.0, t, self.low[at]), np.where(slope > 0.0, t, self.high[at])
        new = t - slope * (t - last) / (slope - self.slope[at])
        low, high = np.maximum(self.low[at], -_FARTHEST * np.abs(t)), np.minimum(self.high[at], _FARTHEST * np.abs(t))
        self.last[at], self.slope[at] = t, slope
        self.t[at] = np.where((new > low) & (new < high), new, 0.5 * (low + high))

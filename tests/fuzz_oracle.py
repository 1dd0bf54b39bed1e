"""What is true of a small problem, computed without any code of the package.

The best model on every support that the constraint allows is computed by Newton's method, for all supports at once. Each of them is
a witness: its objective, known to 200 digits, is an upper bound on the optimum, whatever the quality of the fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, DivisionByZero, InvalidOperation, localcontext
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuzz_cases import LOG_LINK, Case

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]

DIGITS = Context(prec=200, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, DivisionByZero])
_STEPS, _HALVINGS = 60, 40
_DAMPING = 1e-13  # of the diagonal of a Hessian: what makes it invertible where columns depend on each other
_SIZES = 2.0 ** np.arange(7.0, -12.0, -1.0)  # of steps of one support
_SMOOTHINGS = (1.0, 0.1, 1e-2, 1e-3, 1e-4, 1e-5)  # gamma of the smoothed hinges that lead to the hinge
_NIL, _NIL_OF_LOGS, _TINY = Decimal("1e-30"), Decimal("1e-26"), Decimal("1e-290")
_BRANCH = Decimal("1e-25")  # argument below which log(1 + x) is x - x^2/2


# ---------------------------------------------------------------------------------------------------------------------
# Losses, and their exact values


def losses(name: str, parameter: float | None, u: Matrix, y: Vector) -> tuple[Matrix, Matrix, Matrix, Any]:
    """Values, first and second derivatives in u, and a bound on the second ones, where there is one."""
    if name == "squared":
        r = u - y
        return r * r, 2.0 * r, np.full_like(r, 2.0), 2.0
    if name == "huber":
        r, size = u - y, np.abs(u - y)
        inside = size <= parameter
        value = np.where(inside, 0.5 * r * r, parameter * size - 0.5 * parameter**2)
        return value, np.clip(r, -parameter, parameter), inside.astype(np.float64), 1.0
    if name == "poisson":
        mean = np.exp(u)
        return mean - y * u - y + np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0)), 0.0), mean - y, mean, mean
    if name in ("gamma", "tweedie", "negative_binomial"):
        return _of_means(name, parameter, u, y)
    if name == "quantile":
        r, high = u - y, 1.0 - parameter
        return np.where(r > 0, high * r, -parameter * r), np.where(r > 0, high, -parameter), np.zeros_like(r), 1.0
    if name == "smoothed_quantile":
        q, gamma = parameter
        r = u - y
        a = np.clip(r / gamma, -q, 1.0 - q)
        return a * (r - 0.5 * gamma * a), a, (a == r / gamma) / gamma, 1.0 / gamma
    if name == "logistic":
        t = y * u
        p = np.where(t > 0, np.exp(-np.abs(t)), 1.0) / (1.0 + np.exp(-np.abs(t)))
        return np.logaddexp(0.0, -t), -y * p, p * (1.0 - p), 0.25
    m = np.maximum(1.0 - y * u, 0.0)
    if name == "hinge":
        return m, -y * (m > 0), np.zeros_like(m), 1.0
    if name == "squared_hinge":
        return m * m, -2.0 * y * m, 2.0 * (m > 0), 2.0
    inside = m <= parameter
    value = np.where(inside, m * m / (2.0 * parameter), m - 0.5 * parameter)
    return value, -y * np.minimum(m / parameter, 1.0), (inside & (m > 0)) / parameter, 1.0 / parameter


def _of_means(name: str, parameter: float | None, u: Matrix, y: Vector) -> tuple[Matrix, Matrix, Matrix, Any]:
    """The same for losses of a mean exp(u); the second derivative stands for the bound."""
    log = np.log(np.where(y > 0, y, 1.0))
    if name == "gamma":
        e = np.exp(log - u)
        return np.expm1(log - u) + (u - log), 1.0 - e, e, e
    if name == "tweedie":
        A, B = 2.0 - parameter, parameter - 1.0
        up, down = np.exp(A * u), np.where(y > 0, np.exp(log - B * u), 0.0)
        value = up / A + down / B - np.where(y > 0, np.exp(A * log), 0.0) / (A * B)
        return value, up - down, A * up + B * down, A * up + B * down
    mean, rest = np.exp(np.minimum(u, 700.0)), 1.0 / parameter
    value = (y + rest) * (np.log1p(parameter * mean) - np.log1p(parameter * y)) - y * (u - log)
    curvature = mean / (1.0 + parameter * mean) * (1.0 + parameter * y) / (1.0 + parameter * mean)
    return value, (mean - y) / (1.0 + parameter * mean), curvature, curvature


def exact_loss(name: str, parameter: float | None, u: Decimal, y: Decimal) -> Decimal:
    """l(u, y) of one sample."""
    zero = Decimal(0)
    if name == "squared":
        return (y - u) ** 2
    if name == "huber":
        r, delta = abs(y - u), Decimal(parameter)
        return r * r / 2 if r <= delta else delta * r - delta * delta / 2
    if name == "poisson":
        return u.exp() - y * u - y + (y * y.ln() if y > 0 else zero)
    if name == "quantile":
        return max((u - y) * Decimal(1.0 - parameter), (y - u) * Decimal(parameter))
    if name == "gamma":
        return y * (-u).exp() + u - 1 - y.ln()
    if name == "tweedie":
        A, B = 2 - Decimal(parameter), Decimal(parameter) - 1
        return (A * u).exp() / A + (y * (-B * u).exp() / B - (A * y.ln()).exp() / (A * B) if y > 0 else zero)
    if name == "negative_binomial":
        c = Decimal(parameter)
        log = y.ln() if y > 0 else zero
        return (y + 1 / c) * (_log1p(c * u.exp()) - _log1p(c * y)) - y * (u - log)
    if name == "logistic":
        t = y * u
        return _log1p((-abs(t)).exp()) + max(-t, zero)
    m = max(1 - y * u, zero)
    if name == "hinge":
        return m
    if name == "squared_hinge":
        return m * m
    gamma = Decimal(parameter)
    return m * m / (2 * gamma) if m <= gamma else m - gamma / 2


def _log1p(x: Decimal) -> Decimal:
    return x - x * x / 2 + x * x * x / 3 if x < _BRANCH else (1 + x).ln()


def exact_multinomial(scores: list[Decimal], code: int) -> Decimal:
    """Log of the sum of exponentials, less the score of the class."""
    top = max(scores)
    if sum(score == top for score in scores) == 1 and scores[code] == top:
        return _log1p(sum((score - top).exp() for i, score in enumerate(scores) if i != code))
    return top + sum((score - top).exp() for score in scores).ln() - scores[code]


# ---------------------------------------------------------------------------------------------------------------------
# Models


@dataclass(frozen=True, eq=False)
class Model:
    """Coefficients of the columns of X less `reference`, and what is added to them; `w` has a row for each class of several.

    Any real numbers are a model: a reference other than zero says with float64 what an intercept in float64 could not.
    """

    w: Matrix
    b: Vector
    reference: Vector
    objective: float = np.nan  # as float64 computes it
    of_scaled: bool = True  # whether the coefficients are those of the columns divided by the scale


@dataclass(eq=False)
class Oracle:
    """The problem of a case with a number k of features: objectives, and the best model on every support."""

    case: Case
    k: int = 0

    def __post_init__(self) -> None:
        self.k = self.k or self.case.k

    # Objectives

    @cached_property
    def _exact(self) -> tuple[list[Decimal], list[list[Decimal]], list[Any], list[list[Decimal]], list[Decimal]]:
        """Weights that sum to one, rows of X, targets, offsets and scales."""
        case = self.case
        n, d = case.X.shape
        with localcontext(DIGITS):
            raw = [Decimal(1)] * n if case.weights is None else [Decimal(x) for x in case.weights.tolist()]
            total = sum(raw)
            rows = [[Decimal(x) for x in row] for row in case.X.astype(np.float64).tolist()]
            y = case.y.tolist() if case.loss == "multinomial" else _decimal_rows(case.y)
            offset = _decimal_rows(np.zeros((n, case.n_targets)) if case.offset is None else case.offset)
            scale = [Decimal(1)] * d if case.scale is None else [Decimal(x) for x in case.scale.tolist()]
            return [w / total for w in raw], rows, y, offset, scale

    def exact(self, model: Model) -> Decimal:
        """The objective, with 200 digits."""
        s, rows, y, offset, scale = self._exact
        with localcontext(DIGITS):
            w = [[Decimal(float(x)) for x in row] for row in np.atleast_2d(model.w)]
            b = [Decimal(float(x)) for x in np.atleast_1d(model.b)]
            used = [j for j in range(len(scale)) if any(row[j] for row in w)]
            scaled = [{j: row[j] if model.of_scaled else row[j] * scale[j] for j in used} for row in w]
            per_unit = [{j: row[j] / scale[j] if model.of_scaled else row[j] for j in used} for row in w]
            reference = {j: Decimal(float(model.reference[j])) for j in used}
            total = sum(x * x for row in scaled for x in row.values()) * Decimal(self.case.lam) / 2
            for si, xi, yi, oi in zip(s, rows, y, offset, strict=True):
                if si:
                    x = {j: xi[j] - reference[j] for j in used}
                    u = [
                        bc + oc + sum(x[j] * row[j] for j in used) for bc, oc, row in zip(b, oi, per_unit, strict=True)
                    ]
                    total += si * self._exact_loss(u, yi)
            return +total

    def _exact_loss(self, u: list[Decimal], y: Any) -> Decimal:
        if self.case.loss == "multinomial":
            return exact_multinomial(u, y)
        return sum(exact_loss(self.case.loss, self.case.parameter, uc, yc) for uc, yc in zip(u, y, strict=True))

    def handed_out(self, coef: Any, intercept: Any, of_scaled: bool) -> Decimal:
        """The objective of coefficients, one row for each class, of the columns as they are, or divided by the scale."""
        b = np.atleast_1d(np.asarray(intercept, np.float64))
        return self.exact(Model(np.asarray(coef, np.float64), b, self._zero, of_scaled=of_scaled))

    @property
    def _zero(self) -> Vector:
        return np.zeros(self.case.n_features)

    @cached_property
    def smallest(self) -> Decimal:
        """Objectives below it are zero: the square of float64's precision, of the objective without any features.

        Predictions of counts are logarithms, which are rounded relative to themselves.
        """
        n_targets = self.case.n_targets
        nothing = Model(np.zeros((n_targets, self.case.n_features)), np.zeros(n_targets), self._zero)
        return max(self.exact(nothing) * (_NIL_OF_LOGS if self.case.loss in LOG_LINK else _NIL), _TINY)

    # Supports

    @cached_property
    def units(self) -> list[tuple[int, ...]]:
        """Features that enter and leave together."""
        labels = range(self.case.n_features) if self.case.groups is None else self.case.groups
        return [tuple(j for j, label in enumerate(labels) if label == g) for g in sorted(set(labels))]

    @cached_property
    def kept(self) -> set[int]:
        """Units that are always in."""
        return {i for i, unit in enumerate(self.units) if set(unit) & set(self.case.keep or ())}

    @cached_property
    def supports(self) -> Mask:
        """Largest supports that the constraint allows, one row each; with signs of one target, or a rule, all of their subsets."""
        if self.case.rule is not None:
            every = (
                some for m in range(self.case.n_features + 1) for some in combinations(range(self.case.n_features), m)
            )
            return _masks((some for some in every if self._ruled(set(some))), self.case.n_features)
        free = [i for i in range(len(self.units)) if i not in self.kept]
        chosen = [self.kept | set(some) for some in combinations(free, self.k)]
        supports = _masks(([j for i in units for j in self.units[i]] for units in chosen), self.case.n_features)
        return supports if self.case.sign is None or self.case.n_targets > 1 else subsets(supports)

    def allows(self, w: Matrix) -> bool:
        """Whether the constraint allows coefficients."""
        used = np.any(np.atleast_2d(w) != 0.0, axis=0)
        signs = self.case.sign is None or bool(np.all(np.asarray(self.case.sign) * np.atleast_2d(w) >= 0.0))
        return self._few(used) and signs

    def _few(self, used: Mask) -> bool:
        """Whether the constraint allows some features."""
        if self.case.rule is not None:
            return self._ruled(set(np.flatnonzero(used).tolist()))
        counted = sum(bool(used[list(unit)].any()) for i, unit in enumerate(self.units) if i not in self.kept)
        return counted <= self.k

    def _ruled(self, used: set[int]) -> bool:
        """Whether a rule of one's own choice allows some features."""
        rule, level = self.case.rule, self.k
        if rule["kind"] == "budget":
            return sum(rule["costs"][j] for j in used) <= level * (1.0 + 1e-12)
        if rule["kind"] == "per_group":
            groups = [rule["group"][j] for j in used]
            return len(used) <= level and all(groups.count(g) <= most for g, most in enumerate(rule["most"]))
        return any(used <= chosen for chosen in self._hereditary)

    @cached_property
    def _hereditary(self) -> list[set[int]]:
        """All sets of at most k features of which each has all its parents, or one, among them."""
        d, parents, asked = (
            self.case.n_features,
            self.case.rule["parents"],
            all if self.case.rule["kind"] == "strong" else any,
        )
        every = (set(some) for m in range(min(self.k, d) + 1) for some in combinations(range(d), m))
        return [some for some in every if all(asked(p in some for p in parents[j]) for j in some if parents[j])]

    def unit_of(self, j: int) -> list[int]:
        """The features that enter and leave with one."""
        return list(next(unit for unit in self.units if j in unit))

    # Witnesses

    @cached_property
    def models(self) -> list[Model]:
        """The best model on each support, in the order of `supports`."""
        return _fits(self.case).all(self.supports)

    @cached_property
    def objectives(self) -> Vector:
        """Objectives of the models, as float64 computes them."""
        return np.array([model.objective for model in self.models])

    @cached_property
    def best(self) -> Decimal:
        """The least objective of a witness."""
        return self.least(range(len(self.models)))

    def least(self, among: Iterable[int]) -> Decimal:
        """The least objective of some witnesses: the exact one of the two that float64 takes for the best."""
        among = list(among)
        if not among:
            return Decimal("Infinity")
        objectives = self.objectives[among]
        finite = np.where(np.isnan(objectives), np.inf, objectives)
        order = np.argsort(finite, kind="stable")[:2]
        return min(self._exactly(among[i]) for i in order)

    def _exactly(self, i: int) -> Decimal:
        if i not in self._known:
            with np.errstate(all="ignore"):
                model = _fits(self.case).polished(self.models[i])
            self._known[i] = self.exact(model)
        return self._known[i]

    @cached_property
    def _known(self) -> dict[int, Decimal]:
        return {}

    def without(self, j: int) -> Decimal:
        """The least objective of a witness that does not use a feature, or any of its group."""
        unit = self.unit_of(j)
        among = [i for i, model in enumerate(self.models) if not model.w[:, unit].any()]
        if among or self.units.index(tuple(unit)) in self.kept:
            return self.least(among)
        fits, others = (
            _fits(self.case),
            ~np.isin(np.arange(self.case.n_features), unit),
        )  # there is a place for every unit
        with np.errstate(all="ignore"):
            return self.exact(fits.polished(fits.all(others[None])[0]))

    def within(self, j: int) -> Decimal:
        """The least objective of a witness with a place for a feature."""
        unit = self.unit_of(j)
        if self.case.sign is None:
            return self.least(np.flatnonzero(self.supports[:, unit].any(axis=1)))
        room = [self._has_room(support, unit) for support in self.supports]
        return self.least(np.flatnonzero(room))

    def swapped(self, used: Mask) -> Decimal:
        """The least objective of a witness with one unit less than some features, and another in its place."""
        units = np.array([used[list(unit)].any() for unit in self.units])
        others = np.array([[support[list(unit)].any() for unit in self.units] for support in self.supports])
        leave, join = (np.count_nonzero(differ, axis=1) for differ in (units & ~others, others & ~units))
        return self.least(np.flatnonzero((leave == 1) & (join == 1)))

    def _has_room(self, support: Mask, unit: list[int]) -> bool:
        wider = support.astype(np.float64)
        wider[unit] = 1.0
        return self._few(wider != 0.0)


def subsets(supports: Mask) -> Mask:
    """All subsets of supports."""
    sets = [np.flatnonzero(row).tolist() for row in supports]
    smaller = (
        [j for j, there in zip(s, kept, strict=True) if there] for s in sets for kept in product((0, 1), repeat=len(s))
    )
    return _masks(smaller, supports.shape[1])


def _masks(sets: Iterable[list[int]], n_features: int) -> Mask:
    """One row for each set of features, each set once."""
    each = sorted({tuple(sorted(features)) for features in sets})
    mask = np.zeros((len(each), n_features), dtype=bool)
    for row, features in zip(mask, each, strict=True):
        row[list(features)] = True
    return mask


def _decimal_rows(values: NDArray[Any]) -> list[list[Decimal]]:
    """The rows of a matrix, or the numbers of a vector as rows of one."""
    return [[Decimal(x) for x in row] for row in values.reshape(len(values), -1).tolist()]


# ---------------------------------------------------------------------------------------------------------------------
# Fits of all supports at once


def _fits(case: Case) -> _Fits | _FitsByTarget:
    return _Fits(case) if case.n_targets == 1 or case.loss == "multinomial" else _FitsByTarget(case)


class _FitsByTarget:
    """Several targets: on a given support each has a best model of its own."""

    def __init__(self, case: Case) -> None:
        signs = case.signs
        self.alone = [
            _Fits(
                replace(
                    case,
                    y=case.y[:, c],
                    offset=None if case.offset is None else case.offset[:, c],
                    sign=None if signs is None else tuple(signs[c].tolist()),
                    n_targets=1,
                )
            )
            for c in range(case.n_targets)
        ]

    def all(self, supports: Mask) -> list[Model]:
        """The best model on each support."""
        return [
            _side_by_side(models) for models in zip(*(self._best(fits, supports) for fits in self.alone), strict=True)
        ]

    def _best(self, fits: _Fits, supports: Mask) -> list[Model]:
        """Those of one target; with signs the best on any part of a support."""
        if fits.case.sign is None:
            return fits.all(supports)
        parts = subsets(supports)
        models = fits.all(parts)
        value = np.array([model.objective for model in models])
        value = np.where(np.isnan(value), np.inf, value)
        inside = ~np.any(parts[None] & ~supports[:, None], axis=2)
        return [models[i] for i in np.argmin(np.where(inside, value, np.inf), axis=1)]

    def polished(self, model: Model) -> Model:
        """The better of a model and of those that solve their equations, target by target."""
        rows = zip(self.alone, model.w, model.b, strict=True)
        return _side_by_side([fits.polished(fits.valued(w[None], b[None])) for fits, w, b in rows])


def _side_by_side(models: Iterable[Model]) -> Model:
    models = list(models)
    w, b = np.vstack([model.w for model in models]), np.concatenate([model.b for model in models])
    return Model(w, b, models[0].reference, sum(model.objective for model in models))


class _Fits:
    """The data, centred and with columns of size one, in float64; `ridge` is that of these columns' coefficients."""

    def __init__(self, case: Case) -> None:
        n, d = case.X.shape
        self.case, self.several = case, case.loss == "multinomial"
        weights = np.ones(n) if case.weights is None else case.weights / case.weights.max()
        self.s = weights / weights.sum()
        X = case.X.astype(np.longdouble)
        self.reference = np.asarray(self.s @ X, dtype=np.float64) if case.fit_intercept else np.zeros(d)
        scale = np.ones(d) if case.scale is None else case.scale
        A = ((X - self.reference) / scale).astype(np.float64)
        size = np.abs(A).max(axis=0)
        self.size = np.where(size > 0, size, 1.0)
        with np.errstate(over="ignore", under="ignore"):
            ridge = np.asarray(np.longdouble(case.lam) / self.size.astype(np.longdouble) ** 2, dtype=np.float64)
        self.ridge = np.append(np.clip(ridge, 1e-280, 1e280), np.zeros(1))
        self.Z = np.hstack([A / self.size, np.full((n, 1), float(case.fit_intercept))])
        self.y = case.y if self.several else case.y.astype(np.float64)
        self.offset = np.zeros(n) if case.offset is None else case.offset
        self.classes = case.n_targets
        signs = np.zeros((self.classes, d)) if case.signs is None else case.signs
        self.signs = np.vstack([signs.T, np.zeros(self.classes)]).ravel()
        self.signed = self.several and case.sign is not None

    def all(self, supports: Mask) -> list[Model]:
        """The best model on each support."""
        count, d = supports.shape
        mask = np.hstack([supports, np.full((count, 1), self.case.fit_intercept)])
        mask = np.repeat(mask[:, :, None], self.classes, axis=2).reshape(count, -1).astype(np.float64)
        theta = np.zeros((count, (d + 1) * self.classes))
        if self.case.fit_intercept and not self.several:
            theta[:, -1] = self._level()
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            if self.case.loss == "hinge":
                for gamma in _SMOOTHINGS:
                    theta = self._newton(theta, mask, "smoothed_hinge", gamma)
            elif self.case.loss == "quantile":
                for gamma in _SMOOTHINGS:
                    theta = self._newton(theta, mask, "smoothed_quantile", (self.case.parameter, gamma * self.spread))
            else:
                theta = self._newton(theta, mask, self.case.loss, self.case.parameter)
            theta = self._allowed(theta)
            value = self.value(theta, self.case.loss, self.case.parameter)
        return [self._model(t, v) for t, v in zip(theta, value, strict=True)]

    def _allowed(self, theta: Matrix) -> Matrix:
        """Coefficients of a forbidden sign set to zero: the best of a support is among those of its parts that need none."""
        return np.where(self.signs * theta < 0.0, 0.0, theta)

    @property
    def spread(self) -> float:
        """How far targets are from their mean."""
        target = self.y - self.offset
        return float(np.abs(target - self.s @ target).max()) or 1.0

    def _level(self) -> float:
        """An intercept to start from."""
        mean = float(self.s @ (self.y - self.offset))
        if self.case.loss == "poisson":
            return float(np.log(max(self.s @ self.y, 1e-30) / (self.s @ np.exp(self.offset))))
        if self.case.loss in LOG_LINK:
            return float(np.log(max(self.s @ (self.y * np.exp(-self.offset)), 1e-30)))
        return mean if self.case.loss in ("squared", "huber", "quantile") else 0.0

    def _model(self, theta: Vector, value: float) -> Model:
        rows = theta.reshape(-1, self.classes)
        with np.errstate(over="ignore", under="ignore"):
            w = rows[:-1].T / self.size
        w = np.where(np.isfinite(w), w, 0.0)
        return Model(w, rows[-1] * float(self.case.fit_intercept), self.reference, value)

    def valued(self, w: Matrix, b: Vector) -> Model:
        """A model with its objective."""
        theta = np.append(w.T * self.size[:, None], b)[None]
        return Model(w, b, self.reference, float(self.value(theta, self.case.loss, self.case.parameter)[0]))

    # Newton's method

    def scores(self, theta: Matrix) -> Matrix:
        """Predictions: supports x samples, x classes of several."""
        if self.several:
            return np.einsum("nd,sdc->snc", self.Z, theta.reshape(len(theta), -1, self.classes))
        return theta @ self.Z.T + self.offset

    def value(self, theta: Matrix, name: str, parameter: float | None) -> Vector:
        """Objectives of the supports."""
        u = self.scores(theta)
        ridge = 0.5 * np.square(theta) @ np.repeat(self.ridge, self.classes)
        if self.several:
            return self._of_classes(u)[0] @ self.s + ridge
        return losses(name, parameter, u, self.y)[0] @ self.s + ridge

    def _of_classes(self, u: Any) -> tuple[Matrix, Any, Any]:
        """Multinomial losses, probabilities and slopes, to all digits where a sample's own class is nearly sure."""
        own = np.eye(self.classes)[self.y]
        v = u - np.take_along_axis(u, np.broadcast_to(self.y[None, :, None], (len(u), len(self.y), 1)), 2)
        top = np.maximum(v.max(axis=2), 0.0)
        e = np.exp(v - top[:, :, None])
        rest = (e * (1.0 - own)).sum(axis=2)
        P = e / (np.exp(-top) + rest)[:, :, None]
        others = P * (1.0 - own)
        value = np.where(top > 0.0, top + np.log(np.exp(-top) + rest), np.log1p(rest))
        return value, P, others - own * others.sum(axis=2)[:, :, None]

    def _newton(self, theta: Matrix, mask: Matrix, name: str, parameter: float | None) -> Matrix:
        """Damped Newton steps for the supports that still gain by them; steps of a quadratic upper bound where they do not help.

        Several classes with signs are projected on them; where that does not help, steps end at the first sign.
        """
        theta, value = theta.copy(), self.value(theta, name, parameter)
        open_ = np.arange(len(theta))
        for _ in range(_STEPS):
            gained = np.zeros(len(open_), dtype=bool)
            for upper in (False, True):
                left = open_[~gained]
                if (
                    not len(left)
                    or (upper and name in ("squared", *LOG_LINK))
                    or (upper and self.several and not self.signed)
                ):
                    break
                new, new_value = self._step(theta[left], mask[left], value[left], name, parameter, upper)
                better = new_value < value[left] - 1e-16 * np.abs(value[left])
                theta[left[better]], value[left[better]] = new[better], new_value[better]
                gained[np.flatnonzero(~gained)[better]] = True
            open_ = open_[gained]
            if not len(open_):
                break
        return theta

    def _step(
        self, theta: Matrix, mask: Matrix, value: Vector, name: str, parameter: float | None, upper: bool
    ) -> tuple[Matrix, Vector]:
        gradient, hessian = self._derivatives(theta, name, parameter, upper)
        if self.signed:
            mask = np.where((self.signs != 0.0) & (theta == 0.0) & (self.signs * gradient > 0.0), 0.0, mask)
        step = -_solved(hessian, gradient, mask)
        length = np.ones(len(theta))
        if self.signed and upper:
            step = np.where((theta == 0.0) & (self.signs * step < 0.0), 0.0, step)
            crossed = self.signs * (theta + step) < 0.0
            length = np.where(crossed, theta / np.where(crossed, -step, 1.0), 1.0).min(axis=1)
        for _ in range(_HALVINGS):
            new = theta + length[:, None] * step
            new = self._allowed(new) if self.signed else new
            new_value = self.value(new, name, parameter)
            worse = ~(new_value < value)
            if not worse.any():
                break
            length = np.where(worse, 0.5 * length, length)
        return new, new_value

    def _derivatives(self, theta: Matrix, name: str, parameter: float | None, upper: bool) -> tuple[Matrix, Any]:
        u, Z, s = self.scores(theta), self.Z, self.s
        ridge = np.repeat(self.ridge, self.classes)
        D = len(self.ridge)
        if self.several:
            _, P, slope = self._of_classes(u)
            gradient = np.einsum("nd,snc->sdc", Z, s[:, None] * slope).reshape(len(theta), -1) + ridge * theta
            curvature = s[:, None, None] * (
                P[:, :, :, None] * np.eye(self.classes) - P[:, :, :, None] * P[:, :, None, :]
            )
            hessian = np.einsum("ni,nj,sncd->sicjd", Z, Z, curvature, optimize=True)
            return gradient, hessian.reshape(len(theta), D * self.classes, -1) + np.diag(ridge)
        _, slope, curvature, bound = losses(name, parameter, u, self.y)
        if upper:
            curvature = np.broadcast_to(bound, u.shape)
        products = (Z[:, :, None] * Z[:, None, :]).reshape(len(Z), -1)
        hessian = ((curvature * s) @ products).reshape(len(theta), D, D)
        return (slope * s) @ Z + ridge * theta, hessian + np.diag(ridge)

    # One support, as exactly as float64 can

    def polished(self, model: Model) -> Model:
        """The better of a model and of those on its features that solve their equations by orthogonal transformations."""
        columns = np.flatnonzero(np.append(model.w.T != 0.0, [self.case.fit_intercept] * self.classes))
        rivals = {"hinge": self._at_kinks, "quantile": self._on_targets, "multinomial": self._of_rows}.get(
            self.case.loss, self._refined
        )
        best = model
        for _ in range(_STEPS * bool(len(columns))):
            before, theta = best, np.append(best.w.T * self.size[:, None], best.b)
            for values in rivals(theta, columns):
                step = np.zeros_like(theta)
                step[columns] = values - theta[columns]
                best = self._farthest(best, theta, step)
            if not best.objective < before.objective * (1.0 - 1e-15):
                break
        return best

    def _farthest(self, best: Model, theta: Vector, step: Vector) -> Model:
        """The best model along a step, or the one before: steps of separable classes divide the loss by e, and may be longer."""
        tried = self._allowed(theta + _SIZES[:, None] * step)
        values = self.value(tried, self.case.loss, self.case.parameter)
        i = int(np.argmin(np.where(np.isnan(values), np.inf, values)))
        return self._model(tried[i], float(values[i])) if values[i] < best.objective else best

    def _of_rows(self, theta: Vector, columns: NDArray[np.int64]) -> Iterator[Vector]:
        """One Newton step: a sample's Hessian diag(p) - p p' is B'B with rows sqrt(p_c) (e_c - p) of B."""
        _, P, slope = (a[0] for a in self._of_classes(self.scores(theta[None])))
        root = np.sqrt(self.s[:, None] * P)
        B = root[:, :, None] * (np.eye(self.classes) - P[:, None, :])
        target = -np.divide(self.s[:, None] * slope, root, out=np.zeros_like(slope), where=root > 0.0)
        A = np.einsum("nec,nd->nedc", B, self.Z).reshape(B.shape[0] * self.classes, -1)
        penalty = np.sqrt(np.repeat(self.ridge, self.classes))
        A, target = np.vstack([A, np.diag(penalty)]), np.append(target, -penalty * theta)
        yield theta[columns] + _least_squares(A[:, columns], target)

    def _refined(self, theta: Vector, columns: NDArray[np.int64]) -> Iterator[Vector]:
        """One Newton step as a problem of least squares; where the loss is straight, its slope moves to the ridge's side."""
        Z, ridge, u = self.Z[:, columns], self.ridge[columns], self.scores(theta[None])[0]
        _, slope, curvature, _ = losses(self.case.loss, self.case.parameter, u, self.y)
        root, penalty = np.sqrt(self.s * curvature), np.sqrt(ridge)
        curved, penalised = root > 0, penalty > 0
        target = root * (u - self.offset) - np.divide(self.s * slope, root, out=np.zeros_like(u), where=curved)
        linear = np.where(curved, 0.0, self.s * slope) @ Z
        rest = -np.divide(linear, penalty, out=np.zeros_like(linear), where=penalised)
        yield _least_squares(np.vstack([root[:, None] * Z, np.diag(penalty)]), np.append(target, rest))

    def _at_kinks(self, theta: Vector, columns: NDArray[np.int64]) -> Iterator[Vector]:
        """Models for which the samples near the hinge's kink, by several measures of nearness, are on it."""
        Z, y, m = self.Z[:, columns], self.y, len(columns)
        margin = 1.0 - y * self.scores(theta[None])[0]
        for width in (2e-5, 2e-4, 2e-3, 1e-7):
            kink, below = np.abs(margin) <= width, margin > width
            if kink.sum() > 12:
                continue
            E = y[kink, None] * Z[kink]
            K = np.zeros((m + len(E), m + len(E)))
            K[:m, :m] = np.diag(self.ridge[columns])
            K[:m, m:], K[m:, :m] = E.T, E
            yield _least_squares(K, np.append((self.s * y * below) @ Z, np.ones(len(E))))[:m]

    def _on_targets(self, theta: Vector, columns: NDArray[np.int64]) -> Iterator[Vector]:
        """Models that meet the targets that are near, by several measures of nearness."""
        Z, m, q = self.Z[:, columns], len(columns), self.case.parameter
        r = self.scores(theta[None])[0] - self.y
        for width in (2e-5, 2e-4, 2e-3, 1e-7, 1e-10):
            kink = np.abs(r) <= width * self.spread
            if kink.sum() > 12:
                continue
            slope = np.where(kink, 0.0, np.where(r > 0, 1.0 - q, -q))
            E = Z[kink]
            K = np.zeros((m + len(E), m + len(E)))
            K[:m, :m] = np.diag(self.ridge[columns])
            K[:m, m:], K[m:, :m] = E.T, E
            yield _least_squares(K, np.append(-(self.s * slope) @ Z, (self.y - self.offset)[kink]))[:m]


def _least_squares(A: Matrix, rhs: Vector) -> Vector:
    """Least squares, with columns of norm one; zeros where there are no numbers."""
    norm = np.linalg.norm(A, axis=0)
    norm = np.where((norm > 0) & np.isfinite(norm), norm, 1.0)
    if not (np.isfinite(A).all() and np.isfinite(rhs).all()):
        return np.zeros(A.shape[1])
    return np.asarray(np.linalg.lstsq(A / norm, rhs)[0] / norm)


def _solved(H: Any, g: Matrix, mask: Matrix) -> Matrix:
    """Newton's equations of every support, each unknown scaled by its own curvature."""
    diagonal = np.einsum("sii->si", H)
    root = np.sqrt(np.where((diagonal > 0) & np.isfinite(diagonal), diagonal, 1.0))
    pair = mask[:, :, None] * mask[:, None, :]
    C = np.where(pair > 0, H / root[:, :, None] / root[:, None, :], 0.0)
    C = np.nan_to_num(C, nan=0.0, posinf=0.0, neginf=0.0)
    size = C.shape[1]
    C[:, np.arange(size), np.arange(size)] = 1.0 + _DAMPING
    rhs = np.nan_to_num(g * mask / root, nan=0.0, posinf=0.0, neginf=0.0)
    try:
        solution = np.linalg.solve(C, rhs[:, :, None])
    except np.linalg.LinAlgError:
        solution = np.linalg.pinv(C, hermitian=True) @ rhs[:, :, None]
    return np.asarray(solution[:, :, 0] / root * mask)

r"""Scorecards: models whose coefficients are small whole numbers of points, and what this roundness costs at most.

A card gives :math:`p_j` points, a whole number, for every unit :math:`h_j` of a feature. The sum of the points,
:math:`t(x) = \sum_j p_j x_j / h_j`, is calibrated by two numbers: the log-odds are :math:`\beta\, t(x) + b`. So a card is a linear
model with coefficients :math:`\beta p_j / h_j`, and all that is proved of linear models with at most k features holds for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd
from numbers import Integral, Real
from os import PathLike
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from diht.bounds.certificate import certificate_of
from diht.estimators.classifier import SparseClassifier
from diht.estimators.equations import Data, FittedEquation, equations_of
from diht.estimators.tabular import checked_array, encoded_names
from diht.losses import Loss
from diht.numerics.arrays import Array, Indices, Vector
from diht.result import relative

__all__ = ["Level", "Scorecard", "scorecard"]

Names: TypeAlias = tuple[str, ...]

_SAME = 1e-6  # relative: the objective on the data given is that of the fit, up to rounding
_TRIED = 40  # cards that are calibrated for each that is improved, the best by the quadratic model
_IMPROVED = 3  # cards that are improved by calibrated changes
_NEWTON, _HALVINGS = 50, 30  # steps of a calibration, halvings of one
_FLAT = 1e-12  # relative decrease at which a calibration ends
_BETTER = 1e-10  # relative decrease that counts as an improvement of a card
_ENTRIES = 4_000_000  # numbers at a time while cards are calibrated
_MOST_LEVELS = 20  # rows of the table of risks


@dataclass(frozen=True)
class Level:
    """A row of the table of risks: sums of points, the risk that the card gives them, and what was observed.

    Attributes
    ----------
    low, high : float
        The least and the largest sum of points.
    risk : float
        The mean of the card's probabilities of the second class.
    observed : float
        The share of the second class.
    n_samples : int
        Number of samples.
    """

    low: float
    high: float
    risk: float
    observed: float
    n_samples: int


@dataclass(frozen=True, eq=False)
class Scorecard:
    """A linear model in points.

    Attributes
    ----------
    features : array of int
        The features that have points, ascending.
    points : array of int
        Their points, for each unit.
    units : array
        Their units.
    slope, intercept : float
        The log-odds of the second class are slope times the sum of the points, plus the intercept.
    classes : array of shape (2,)
        The classes.
    objective : float
        The objective of the card, as the model's: the one that was minimised, with its ridge.
    model_objective : float
        That of the model that the card was made of.
    lower_bound : float
        No model with as many features as were asked for, whole numbers or not, has a smaller objective.
    levels : tuple of Level
        Risks and what was observed, by the sum of the points.
    """

    features: Indices
    points: Indices
    units: Vector
    slope: float
    intercept: float
    classes: Array
    objective: float
    model_objective: float
    lower_bound: float
    levels: tuple[Level, ...] = field(repr=False)
    feature_names: Names = field(repr=False)

    @property
    def names(self) -> Names:
        """The names of the features that have points."""
        return tuple(self.feature_names[j] for j in self.features)

    @property
    def coef(self) -> Vector:
        """The coefficients of all features, in the units of X."""
        coef = np.zeros(len(self.feature_names))
        coef[self.features] = self.slope * self.points / self.units
        return coef

    @property
    def price(self) -> float:
        """By how much, relative to the card's objective, any model with as many features can be better, at most."""
        return relative(self.objective - self.lower_bound, self.objective)

    def total(self, X: Any) -> Vector:
        """Return the sum of the points of every sample."""
        X = checked_array(X)
        if X.shape[1] != len(self.feature_names):
            raise ValueError(f"X has {X.shape[1]} features, the card was made for {len(self.feature_names)}")
        columns = X[:, self.features]
        return np.asarray(columns @ (self.points / self.units), dtype=np.float64)

    def predict_proba(self, X: Any) -> Vector:
        """Return the probabilities of the two classes."""
        second = _logistic(self.slope * self.total(X) + self.intercept)
        return np.column_stack([1.0 - second, second])

    def predict(self, X: Any) -> Array:
        """Return the more likely class."""
        labels: Array = self.classes[(self.slope * self.total(X) + self.intercept > 0).astype(np.intp)]
        return labels

    def __str__(self) -> str:
        from diht.report.card import card_in_words

        return card_in_words(self)

    def _repr_html_(self) -> str:
        from diht.report.card import card_in_html

        return card_in_html(self)

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write the card as a page to be printed; the file is there whole or as it was."""
        from diht.report.card import write_card

        write_card(self, path)


def scorecard(
    model: SparseClassifier,
    X: Any,
    y: ArrayLike,
    points: int = 5,
    *,
    units: Mapping[Any, float] | None = None,
    sample_weight: ArrayLike | None = None,
) -> Scorecard:
    r"""Turn a fitted classifier into a scorecard: whole numbers of points, at most `points` in size.

    Parameters
    ----------
    model : SparseClassifier or SparseClassifierCV
        A fitted classifier of two classes, with the logistic loss.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        The samples of the fit.
    y : array-like of shape (n_samples,)
        Their classes.
    points : int, default=5
        The largest number of points for a unit of a feature.
    units : dict, optional
        Units of some features, by name or index: `{"age": 10}` gives points for every ten years. Otherwise the unit is 1 for
        columns of zeros and ones, and for others 1, 2 or 5 times a power of ten, the one nearest to the standard deviation.
    sample_weight : array-like of shape (n_samples,), optional
        The weights of the fit.

    Returns
    -------
    Scorecard
        The card; `print` shows it, `to_html` writes a page for the printer.

    Notes
    -----
    The features are those of the model. Points are searched around its coefficients by a quadratic model of the objective, in which
    the best slope has a formula. The best cards are calibrated (slope and intercept minimise the objective) and changed while that
    improves them. At the end no change of the points of a single feature improves the card. Cards are not proved to be the
    best ones: what is proved is how much better any model with as many features can be (`price`), since a card is such a model.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import SparseClassifier, scorecard
    >>> X = np.random.default_rng(0).integers(0, 2, size=(400, 8)).astype(float)
    >>> y = X @ [2, -1, 0, 0, 1, 0, 0, 0] + np.random.default_rng(1).logistic(size=400) > 1
    >>> card = scorecard(SparseClassifier(k=3, lam=0.01).fit(X, y), X, y, points=3)
    >>> dict(zip(card.names, card.points.tolist()))
    {'x0': 2, 'x1': -1, 'x4': 1}
    >>> card.lower_bound <= card.objective
    True
    """
    if not isinstance(model, SparseClassifier):
        raise TypeError(f"model must be a SparseClassifier, got {type(model).__name__}")
    if not isinstance(points, Integral) or isinstance(points, bool) or points < 1:
        raise ValueError(f"points must be a whole number, 1 or more, got {points!r}")
    data = Data.of(model, X, y, sample_weight, None)
    if len(model.classes_) != 2 or model._fitted_loss().link != "logit":
        raise ValueError("model must have two classes and the logistic loss")
    if model.bounds is not None:
        raise ValueError("model must be fitted without bounds here: limits of coefficients are not those of points")
    if not hasattr(model, "objective_"):
        raise ValueError("model must be one that was fitted, with its certificate")
    (equation,) = equations_of(model, data)
    names = encoded_names(model, data.X.shape[1])
    if not len(equation.support):
        raise ValueError("model must use a feature: there is nothing to give points for")
    s = data.weights(model, np.ones(len(data.y)))
    rounding = _Rounding.of(equation, _units(units, equation, names), s, model.fit_intercept, int(points))
    return _card(model, equation, rounding, s, names)


def _units(given: Mapping[Any, float] | None, equation: FittedEquation, names: Names) -> Vector:
    """Return the units of the features of an equation."""
    units = np.array([_round_unit(column) for column in _dense(equation.columns).T])
    for feature, unit in (given or {}).items():
        j = names.index(feature) if feature in names else feature
        if not isinstance(j, Integral) or isinstance(j, bool) or not 0 <= int(j) < len(names):
            raise ValueError(f"units must name features of X, got {feature!r}")
        if not isinstance(unit, Real) or not 0.0 < unit < np.inf:
            raise ValueError(f"units must be positive numbers, got {unit!r} for {feature!r}")
        units[equation.support == j] = float(unit)
    return units


def _round_unit(column: Vector) -> float:
    """Return 1 for zeros and ones; otherwise 1, 2 or 5 times the power of ten that is nearest to the standard deviation."""
    if np.all((column == 0.0) | (column == 1.0)):
        return 1.0
    size = np.log10(column.std())
    steps = np.floor(size) + np.log10([1.0, 2.0, 5.0, 10.0])
    return float(f"{10.0 ** steps[np.argmin(np.abs(steps - size))]:.0e}")


@dataclass(frozen=True, eq=False)
class _Rounding:
    """The search for points: the columns by unit, and a quadratic model of the objective around the best coefficients.

    With the intercept eliminated, the objective of coefficients c near the best ones v is about
    P(v) + (c - v)'A(c - v)/2. Along a direction p it is least at the slope p'Av / p'Ap, and there lower than at zero by
    (p'Av)^2 / (2 p'Ap), which is the square of the cosine between p and v as A measures angles, times v'Av/2.
    """

    Z: Vector  # the columns, divided by their units
    units: Vector
    rows: Vector  # of Z that differ, with their classes and the sums of their weights
    y: Vector
    s: Vector
    loss: Loss
    ridge: Vector  # lam times the squares of the scales, by unit: the ridge of c is sum(ridge * c^2) / 2
    fit_intercept: bool
    v: Vector
    b: float
    A: Vector
    values: Indices  # that points may take: columns by feature, zero where the sign of the feature forbids the value

    @classmethod
    def of(cls, equation: FittedEquation, units: Vector, s: Vector, fit_intercept: bool, points: int) -> _Rounding:
        """Take the columns of an equation, and the curvature at its coefficients."""
        scales = np.ones(len(units)) if equation.scales is None else equation.scales(s)
        Z, y = _dense(equation.columns) / units, equation.y
        v, b, ridge = equation.x * units, equation.intercept, equation.lam * np.square(scales / units)
        h = s * equation.loss.second_derivative(Z @ v + b, y)
        across, total = Z.T @ h, float(h.sum())
        A = (Z.T * h) @ Z + np.diag(ridge)
        if fit_intercept and total > 0.0:
            A -= np.outer(across, across) / total
        values = np.repeat(np.arange(-points, points + 1)[:, None], len(v), axis=1)
        if equation.limits is not None:
            values[(values < 0) & (equation.limits.lower == 0.0) | (values > 0) & (equation.limits.upper == 0.0)] = 0
        return cls(Z, units, *_merged(Z, y, s), equation.loss, ridge, fit_intercept, v, b, A, values)

    def best(self) -> Indices:
        """Return the best points that are found."""
        seen: dict[tuple[int, ...], float] = {}
        for start in self._roundings():
            p = self._climbed(start)
            seen[_reduced(p)] = self._cosine(p)
        ranked = sorted(seen, key=lambda p: -seen[p])[:_TRIED]
        objectives = self.calibrated(np.array(ranked, dtype=np.int64))[0]
        starts = np.argsort(objectives, kind="stable")[:_IMPROVED]
        ends = [self._improved(np.array(ranked[i], dtype=np.int64), float(objectives[i])) for i in starts]
        return min(ends, key=lambda end: end[1])[0]

    def _roundings(self) -> list[Indices]:
        """Return what the coefficients are rounded to, at every multiple of them within the limits."""
        most = int(self.values.max()) if self.values.max() > 0 else int(-self.values.min())
        sizes = np.abs(self.v[self.v != 0.0])
        halves = np.arange(most) + 0.5
        multiples = np.unique(np.outer(halves, 1.0 / sizes)) * (1.0 + 1e-9)
        multiples = multiples[multiples * sizes.max() < most + 0.5]
        rounded = {tuple(np.rint(self.v * multiple).astype(np.int64)) for multiple in multiples}
        return [np.array(p, dtype=np.int64) for p in sorted(rounded)]

    def _cosine(self, p: Indices) -> float:
        """The square of the cosine between points and coefficients, times v'Av; 0 where the slope would be negative."""
        along, length = float(p @ (self.A @ self.v)), float(p @ (self.A @ p))
        return along * along / length if along > 0.0 and length > 0.0 else 0.0

    def _climbed(self, p: Indices) -> Indices:
        """Change the points of two features at a time while that turns the direction towards the coefficients."""
        current = self._cosine(p)
        while True:
            gains, changes = self._of_pairs(p)
            best = np.unravel_index(int(np.argmax(gains)), gains.shape)
            if not gains[best] > current * (1.0 + _BETTER):
                return p
            p, current = p + changes[best[0]] + (changes[best[1]] if best[0] != best[1] else 0), float(gains[best])

    def _of_pairs(self, p: Indices) -> tuple[Vector, Indices]:
        """Return the cosines after pairs of changes, and the changes: of one feature each, on the diagonal that one alone."""
        steps = self.values - p  # by value and feature
        n_values, m = steps.shape
        feature, size = np.tile(np.arange(m), n_values), steps.ravel().astype(np.float64)
        Av, Ap = self.A @ self.v, self.A @ p
        along = float(p @ Av) + np.add.outer(size * Av[feature], size * Av[feature])
        single = 2.0 * size * Ap[feature] + size**2 * self.A[feature, feature]
        length = float(p @ Ap) + np.add.outer(single, single)
        length += 2.0 * np.outer(size, size) * self.A[np.ix_(feature, feature)]
        same = feature[:, None] == feature[None, :]
        own = np.arange(len(size))
        along[own, own] -= size * Av[feature]
        length[own, own] = float(p @ Ap) + single
        same[own, own] = False
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.where((along > 0.0) & (length > 0.0) & ~same, along**2 / length, 0.0)
        changes = np.zeros((len(size), m), dtype=np.int64)
        changes[own, feature] = steps.ravel()
        return gains, changes

    def _improved(self, p: Indices, objective: float) -> tuple[Indices, float]:
        """Change the points of one feature, or of two where the quadratic model favours that, while the objective falls."""
        while True:
            gains, changes = self._of_pairs(p)
            singles = p + changes
            order = np.argsort(-gains, axis=None, kind="stable")[: 2 * _TRIED]
            first, second = np.unravel_index(order, gains.shape)
            pairs = p + changes[first] + np.where((first != second)[:, None], changes[second], 0)
            candidates = np.unique(np.concatenate([singles, pairs]), axis=0)
            candidates = candidates[candidates.any(axis=1)]
            objectives = self.calibrated(candidates)[0]
            best = int(np.argmin(objectives))
            if not objectives[best] < objective - _BETTER * abs(objective):
                return np.array(_reduced(p), dtype=np.int64), objective
            p, objective = candidates[best], float(objectives[best])

    def calibrated(self, cards: Indices) -> tuple[Vector, Vector, Vector]:
        """Return the objectives, slopes and intercepts of cards, one a row; infinite where the slope is not positive."""
        size = max(1, _ENTRIES // max(1, len(self.y)))
        parts = [self._calibrated(cards[i : i + size]) for i in range(0, len(cards), size)]
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]

    def _calibrated(self, cards: Indices) -> tuple[Vector, Vector, Vector]:
        """Minimise over slope and intercept by Newton's method, all cards at once."""
        T, q = self.rows @ cards.T, (self.ridge @ np.square(cards.T)).astype(np.float64)
        lengths = np.einsum("ij,jk,ik->i", cards, self.A, cards)
        slope = np.where(lengths > 0.0, (cards @ (self.A @ self.v)) / np.where(lengths > 0.0, lengths, 1.0), 0.0)
        level = float(self.s @ (self.rows @ self.v)) - slope * (self.s @ T)
        b = np.where(self.fit_intercept, self.b + level, 0.0)
        objective = self._objectives(T, q, slope, b)
        for _ in range(_NEWTON):
            steps, decrement = self._newton(T, q, slope, b)
            moving = decrement > _FLAT * np.maximum(np.abs(objective), 1e-300)
            if not moving.any():
                break
            slope, b, objective, moved = self._stepped(T, q, (slope, b, objective), steps, moving)
            if not moved.any():
                break
        return np.where(slope > 0.0, objective, np.inf), slope, b

    def _objectives(self, T: Vector, q: Vector, slope: Vector, b: Vector) -> Vector:
        losses = self.loss.value(T * slope + b, self.y[:, None])
        return np.asarray(self.s @ losses + 0.5 * q * slope**2)

    def _newton(self, T: Vector, q: Vector, slope: Vector, b: Vector) -> tuple[tuple[Vector, Vector], Vector]:
        """Return Newton's steps of slopes and intercepts, and the decrease that they promise."""
        u, y = T * slope + b, self.y[:, None]
        g, h = self.loss.derivative(u, y), self.loss.second_derivative(u, y)
        d0, d1 = self.s @ (g * T) + q * slope, self.s @ g
        h00, h01, h11 = self.s @ (h * T * T) + q, self.s @ (h * T), self.s @ h
        if not self.fit_intercept:
            step = -d0 / np.where(h00 > 0.0, h00, 1.0)
            return (step, np.zeros_like(step)), -d0 * step
        determinant = h00 * h11 - h01 * h01
        determinant = np.where(determinant > 0.0, determinant, np.inf)
        step0, step1 = -(h11 * d0 - h01 * d1) / determinant, -(h00 * d1 - h01 * d0) / determinant
        return (step0, step1), -(d0 * step0 + d1 * step1)

    def _stepped(
        self,
        T: Vector,
        q: Vector,
        at: tuple[Vector, Vector, Vector],
        steps: tuple[Vector, Vector],
        moving: NDArray[np.bool_],
    ) -> tuple[Vector, Vector, Vector, NDArray[np.bool_]]:
        """Halve the steps until the objectives fall; also tell which did."""
        slope, b, objective = at
        size, moved = moving.astype(np.float64), np.zeros(len(moving), dtype=bool)
        for _ in range(_HALVINGS):
            tried = self._objectives(T, q, slope + size * steps[0], b + size * steps[1])
            lower = moving & ~moved & (tried < objective)
            slope, b = np.where(lower, slope + size * steps[0], slope), np.where(lower, b + size * steps[1], b)
            objective, moved = np.where(lower, tried, objective), moved | lower
            size = np.where(moved, 0.0, 0.5 * size)
            if not np.any(moving & ~moved):
                break
        return slope, b, objective, moved


def _dense(columns: Any) -> Vector:
    return np.asarray(columns.toarray() if issparse(columns) else columns, dtype=np.float64)


def _merged(Z: Vector, y: Vector, s: Vector) -> tuple[Vector, Vector, Vector]:
    """Return samples of which equal ones are one with the sum of their weights, where columns hold few different numbers."""
    codes, n_patterns = (y > 0).astype(np.int64), 2
    for column in Z.T:
        found, code = np.unique(column, return_inverse=True)
        n_patterns *= len(found)
        if n_patterns > len(y):
            return Z, y, s
        codes = codes * len(found) + code
    _, first, code = np.unique(codes, return_index=True, return_inverse=True)
    return Z[first], y[first], np.asarray(np.bincount(code, s), dtype=np.float64)


def _reduced(p: Indices) -> tuple[int, ...]:
    """Return the smallest points with the same ratios."""
    divisor = gcd(*map(int, p)) or 1
    return tuple(int(value) // divisor for value in p)


def _card(model: SparseClassifier, equation: FittedEquation, rounding: _Rounding, s: Vector, names: Names) -> Scorecard:
    """Find the points, calibrate them, and put beside the objective what is proved."""
    problem, _ = equation.problem(model.fit_intercept, s)
    fitted = certificate_of(problem, equation.x, equation.intercept, None).objective
    known = float(model.objective_)
    if relative(abs(fitted - known), known) > _SAME:
        raise ValueError(
            f"X, y and sample_weight must be those of the fit: the objective is {known:.6g} there, {fitted:.6g} on these"
        )
    p = rounding.best()
    _, slope, intercept = (float(values[0]) for values in rounding.calibrated(p[None, :]))
    own = certificate_of(problem, slope * p / rounding.units, intercept, None)
    used = np.flatnonzero(p)
    return Scorecard(
        features=equation.support[used],
        points=p[used],
        units=rounding.units[used],
        slope=slope,
        intercept=intercept,
        classes=model.classes_,
        objective=own.attained,
        model_objective=known,
        lower_bound=float(model.lower_bound_),
        levels=_levels(rounding.Z @ p, slope, intercept, equation.y, s),
        feature_names=names,
    )


def _levels(totals: Vector, slope: float, intercept: float, y: Vector, s: Vector) -> tuple[Level, ...]:
    """Return a row for each sum of points; of neighbouring ones together, about equally many samples, where there are too many."""
    levels = np.unique(totals)
    if len(levels) > _MOST_LEVELS:
        levels = np.unique(np.quantile(totals, np.arange(_MOST_LEVELS // 2) / (_MOST_LEVELS // 2), method="lower"))
    code = np.searchsorted(levels, totals, side="right") - 1
    risk = _logistic(slope * totals + intercept)
    return tuple(
        Level(
            low=float(totals[own].min()),
            high=float(totals[own].max()),
            risk=float(np.average(risk[own], weights=s[own])),
            observed=float(np.average(y[own] > 0, weights=s[own])),
            n_samples=len(own),
        )
        for own in (np.flatnonzero((code == i) & (s > 0.0)) for i in range(len(levels)))
        if len(own)
    )


def _logistic(u: Vector) -> Vector:
    return np.asarray(np.exp(-np.logaddexp(0.0, -u)))

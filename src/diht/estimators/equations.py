"""A fitted estimator's equations, and data as it sees them: what is computed of a model after its fit begins here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from diht.constraints.base import Cardinality, Constraint
from diht.constraints.groups import Structured, constrained
from diht.constraints.limits import Limits
from diht.design import Design, as_design
from diht.estimators import SparseClassifier, SparseRegressor
from diht.estimators.base import class_weighted, column_scales, validated
from diht.estimators.tabular import wanted_of
from diht.losses import Loss
from diht.numerics.arrays import Array, Indices, Vector
from diht.problem import Problem, finite_vector, normalised_weights
from diht.refit import refit
from diht.samples import null_intercept
from diht.samples.least_squares import orthonormal
from diht.serving import Predictor

__all__ = ["Data", "Estimator", "FittedEquation", "NoMinimumError", "as_estimator", "equations_of"]

Estimator: TypeAlias = SparseRegressor | SparseClassifier

# Ridges for columns made orthonormal, where only the second is not next to nothing beside the curvature of the loss; where the two
# models differ by more than this, they have no limit.
_RIDGES, _LIMITED = (1e-8, 1e-10), 0.01
_MOST_DRAWS = 100  # of a resample that holds every class


def as_estimator(model: Any) -> Any:
    """Return a model that was read from a file as an estimator; anything else as it is."""
    return model.estimator_ if isinstance(model, Predictor) else model


class NoMinimumError(ValueError):
    """Without a ridge there are no best coefficients."""


@dataclass(frozen=True, eq=False)
class Data:
    """Data as an estimator sees it."""

    X: Any
    y: Array
    targets: dict[str, Vector]  # by what to call their equation
    codes: NDArray[np.intp] | None  # classes of the samples
    sample_weight: Vector | None
    offset: Vector | None

    @classmethod
    def of(
        cls, estimator: Estimator, X: Any, y: Any, sample_weight: ArrayLike | None, offset: ArrayLike | None
    ) -> Data:
        """Validate data for a fitted estimator."""
        if not isinstance(estimator, SparseRegressor | SparseClassifier):
            raise TypeError(f"estimator must be one of this package, got {estimator!r}")
        check_is_fitted(estimator)
        if not is_classifier(estimator) and len(estimator._rows()) > 1:
            raise ValueError("estimator must have one target here, got one with several")
        if isinstance(X, Design):
            raise ValueError("X must be in memory here, got rows on disk")
        numeric = {} if is_classifier(estimator) else {"y_numeric": True}
        X, y = validated(estimator, X, y, reset=False, **numeric)
        weights = None if sample_weight is None else normalised_weights(sample_weight, X.shape[0])
        if not is_classifier(estimator):
            known = None if offset is None else finite_vector("offset", offset, X.shape[0])
            return cls(X, y, {"": y}, None, weights, known)
        if offset is not None:
            raise ValueError("offset is for regression, got a classifier")
        found, codes = np.unique(y, return_inverse=True)
        if not np.array_equal(found, estimator.classes_):
            raise ValueError(
                f"y must hold the estimator's classes {estimator.classes_.tolist()}, got {found.tolist()[:10]}"
            )
        return cls(X, y, estimator._class_targets(found, codes), codes, weights, None)

    def weights(self, estimator: Estimator, counts: Vector) -> Vector:
        """Weights of a resample, which sum to one."""
        s = normalised_weights(self.multiplied(counts), len(self.y))
        if self.codes is None:
            return s
        return class_weighted(s, estimator.class_weight, estimator.classes_, self.codes)

    def multiplied(self, counts: Vector) -> Vector:
        """Weights of a resample, without those of the classes."""
        return counts if self.sample_weight is None else counts * self.sample_weight

    def fitted(self, estimator: Estimator, counts: Vector) -> Estimator:
        """Fit a copy of an estimator to a resample."""
        offset = {} if self.offset is None else {"offset": self.offset}
        model: Estimator = clone(estimator).fit(self.X, self.y, self.multiplied(counts), **offset)
        return model

    def drawn(self, seed: int, draw: Callable[[np.random.Generator, Indices], Sequence[Indices]]) -> list[Vector]:
        """Draw samples that have a weight, again where a class is missing: how often each was drawn."""
        rng, n = np.random.default_rng(seed), len(self.y)
        there = np.arange(n) if self.sample_weight is None else np.flatnonzero(self.sample_weight)
        for _ in range(_MOST_DRAWS):
            parts = draw(rng, there)
            if self.codes is None or all(self._has_all(part) for part in parts):
                return [np.bincount(part, minlength=n).astype(np.float64) for part in parts]
        raise ValueError("y must hold more samples of the smallest class: resamples are without any")

    def _has_all(self, part: Indices) -> bool:
        assert self.codes is not None
        return bool(np.all(np.bincount(self.codes[part], minlength=int(self.codes.max()) + 1)))


@dataclass(frozen=True, eq=False)
class FittedEquation:
    """One equation of a model, and the columns of its features."""

    label: str
    columns: Any
    scales: Callable[[Vector], Vector] | None  # of the columns, from weights; None without standardisation
    support: Indices
    y: Vector
    x: Vector
    intercept: float
    loss: Loss
    lam: float
    limits: Limits | None
    offset: Vector | None

    def with_ridge(self, estimator: Estimator, s: Vector) -> tuple[Vector, float]:
        """Fit coefficients, in the units of X, and the intercept."""
        if not len(self.support):
            return self.x, self._intercept(estimator, s)
        problem, scale = self.problem(estimator.fit_intercept, s)
        w = self.x * scale
        fit = refit(problem, np.arange(len(w)), w, problem.centred_intercept(w, self.intercept))
        return problem.coefficients_of(fit.values), problem.intercept_of(fit.values, fit.b)

    def without_ridge(self, estimator: Estimator, s: Vector) -> tuple[Vector, float, bool]:
        """Do so without the ridge, and tell whether that has one answer only."""
        if not len(self.support):
            return self.x, self._intercept(estimator, s), True
        problem, scale = self.problem(estimator.fit_intercept, s)
        w = self.x * scale
        try:
            w, b, unique = _without_ridge(problem, w, problem.centred_intercept(w, self.intercept))
        except NoMinimumError as error:
            raise NoMinimumError(f"{self.label}{error}") from None
        return problem.coefficients_of(w), problem.intercept_of(w, b), unique

    def _intercept(self, estimator: Estimator, s: Vector) -> float:
        if not estimator.fit_intercept:
            return 0.0
        y, factor = (self.y, 1.0) if self.offset is None else self.loss.with_offset(self.y, self.offset)
        return null_intercept(self.loss, y, s * factor)

    def problem(self, fit_intercept: bool, s: Vector) -> tuple[Problem, Vector]:
        """Return the problem of these features alone, and the scales of their columns."""
        design, m = as_design(self.columns, 1), len(self.support)
        scale = None if self.scales is None else self.scales(s)
        constraint = Cardinality(m) if self.limits is None else Structured(Cardinality(m), np.arange(m), self.limits)
        problem = Problem(
            design, self.y, self.loss, constraint, self.lam, s, fit_intercept, scale=scale, offset=self.offset
        )
        return problem, np.ones(m) if scale is None else scale


def equations_of(estimator: Estimator, data: Data) -> list[FittedEquation]:
    """Return the equations of a fitted estimator; ValueError where classes share features."""
    if len(data.targets) < len(estimator._rows()):
        raise ValueError(
            "estimator must have an equation of its own for each class here, got one whose classes share features: "
            "fit with multiclass='ovr'"
        )
    coef, intercepts = estimator._rows(), np.ravel(estimator.intercept_)
    d = data.X.shape[1]
    wanted = wanted_of(estimator, d)
    limits = constrained(1, d, None, None, wanted.sign, wanted.bounds).limits
    loss, lam = estimator._fitted_loss(), estimator._lam
    groups, rows = constrained(1, d, None, wanted.groups, None, None), []
    for j, (label, y) in enumerate(data.targets.items()):
        support = np.flatnonzero(coef[j])
        own = None if limits is None else limits.of(support)
        x, b = coef[j, support].astype(np.float64), float(intercepts[j])
        columns, y = data.X[:, support], y.astype(np.float64)
        scales = _scales(data.X, support, groups) if estimator.standardize else None
        rows.append(FittedEquation(label, columns, scales, support, y, x, b, loss, lam, own, data.offset))
    return rows


def _scales(X: Any, support: Indices, groups: Constraint) -> Callable[[Vector], Vector]:
    """Return how the scales of some columns follow from weights; those of a group need all of its columns."""
    features = groups.closure(support)
    columns, own = X[:, features], np.isin(features, support)
    return lambda s: column_scales(as_design(columns, 1), s, groups.within(features))[own]


def _without_ridge(problem: Problem, w: Vector, b: float) -> tuple[Vector, float, bool]:
    r"""Minimise the loss alone, from a model: coefficients, intercept, and whether they are the only ones.

    In coordinates in which the columns are orthonormal, :math:`X = Q \Sigma V^\top`, the limit of vanishing ridges is reached soon.
    A loss of straight and quadratic pieces has a minimum; another one may fall for ever, and its models then have no limit.
    """
    basis = orthonormal(problem.design, problem.s)
    if problem.loss.is_squared_error:
        b = float(problem.s @ problem.y) if problem.fit_intercept else 0.0
        z = basis.Q.T @ (problem.s * (problem.y - b))
    elif len(basis.singular):
        z, b = _limit(problem, basis.Q, basis.coordinates(w), b)
    else:
        z, b = np.zeros(0), null_intercept(problem.loss, problem.y, problem.s)
    x = basis.coefficients(z)
    limits = problem.constraint.limits
    if limits is not None and not limits.allows(x):
        slight = problem.replaced(lam=_RIDGES[-1] * float(np.square(basis.norms).min()))
        fit = refit(slight, np.arange(len(x)), w, b)
        x, b = fit.values, fit.b
    return x, b, basis.independent


def _limit(problem: Problem, Q: Vector, z: Vector, b: float) -> tuple[Vector, float]:
    """Return the limit, as the ridge vanishes, of the models on orthonormal columns."""
    models = []
    for ridge in _RIDGES:
        slight = Problem(Q, problem.y, problem.loss, Q.shape[1], ridge, problem.s, problem.fit_intercept)
        fit = refit(slight, np.arange(len(z)), z, slight.centred_intercept(z, b))
        z, b = fit.values, slight.intercept_of(fit.values, fit.b)
        models.append(z)
    moved, size = np.linalg.norm(models[1] - models[0]), np.linalg.norm(models[1])
    if moved > _LIMITED * size and problem.loss.pieces is None:
        what = (
            "separate the classes"
            if problem.loss.task == "classification"
            else "have a direction in which it falls for ever"
        )
        raise NoMinimumError(
            f"without a ridge no finite coefficients are the best for the {problem.loss.name} loss: the features {what}"
        )
    return z, b

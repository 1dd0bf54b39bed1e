"""The models of all k and lam: for the samples of a fold without bounds, for all samples with those that the last fit proves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from diht.constraints.base import Constraint
from diht.design import Design, as_design
from diht.design.scatter import Scatter
from diht.estimators import SparseClassifier, SparseRegressor
from diht.estimators.base import column_scales, scales_of
from diht.fit import Fit
from diht.numerics.arrays import Array, Indices, Vector
from diht.numerics.exact import dot
from diht.problem import Problem
from diht.refit import never
from diht.result import Model, Result
from diht.solvers import Auto
from diht.solvers.models import GramPoints, path_models, sample_models
from diht.solvers.sweep import solve_path

__all__ = ["Grid", "Models", "Plain", "Results", "Sums"]

Plain: TypeAlias = SparseRegressor | SparseClassifier
Models: TypeAlias = dict[tuple[float, float], Model]  # by k and lam
Results: TypeAlias = dict[tuple[float, float], Result]
Targets: TypeAlias = dict[str, Array]  # of each model, by what to call it

_MOST_FEATURES = 2000  # whose sums of products are formed


@dataclass(frozen=True, eq=False)
class Grid:
    """What is to be fitted: the settings of an estimator, the constraint but for k, and all k and lam, ascending."""

    plain: Plain
    constraint: Constraint
    ks: list[float]
    lams: list[float]
    asked: Callable[[], bool] = never  # whether to stop

    @property
    def keys(self) -> list[tuple[float, float]]:
        """All k and lam, in the order of a path."""
        return [(k, lam) for lam in self.lams for k in self.ks]

    @property
    def proves_nothing(self) -> bool:
        """Whether models are made without bounds: any method but the default runs as it is."""
        return type(self.plain._solver()) is Auto

    def problems(
        self, X: Any, targets: Targets, s: Vector, offset: Vector | None, n_threads: int | None
    ) -> list[Problem]:
        """Return the problem of each target, with the largest k and lam."""
        plain, design = self.plain, as_design(X, n_threads)
        scale = column_scales(design, s, self.constraint) if plain.standardize else None
        settings: dict[str, Any] = {"scale": scale, "offset": offset}
        return [
            Problem(design, y, plain._fitted_loss(), self.constraint, self.lams[-1], s, plain.fit_intercept, **settings)
            for y in targets.values()
        ]

    def models(self, problem: Problem) -> Models:
        """Return the models of a problem."""
        if not self.proves_nothing:
            return {key: result.model for key, result in self.results(problem).items()}
        found = sample_models(problem, self.ks, self.lams, self.stop())
        return {key: fit.model(problem) for key, fit in found.items()}

    def results(self, problem: Problem) -> Results:
        """Return the models of a problem with the bounds that the method proves at every point."""
        plain = self.plain
        return solve_path(problem, self.ks, self.lams, plain._solver(), plain.tol, plain.time_limit, stop=self.asked)

    def stop(self) -> Callable[[], bool]:
        """Return what tells whether the seconds for a path are over, or it is asked to stop."""
        seconds = self.plain.time_limit
        if seconds is None:
            return self.asked
        end = perf_counter() + seconds
        return lambda: perf_counter() > end or self.asked()

    def follows_from_sums(self, n_features: int) -> bool:
        """Whether the models of one target follow from sums of products, and these are not too many."""
        loss = self.plain._loss()
        quadratic = loss.is_squared_error and loss.task == "regression" and n_features <= _MOST_FEATURES
        return quadratic and self.constraint.is_plain and self.proves_nothing

    def models_from(self, scatter: Scatter, n_samples: int) -> Models:
        """Return the models of so many samples from their sums of products."""
        K, mean, plain = scatter.matrix / scatter.weight, scatter.mean, self.plain
        q = np.ones(len(mean))
        if plain.standardize:
            q[:-1] = scales_of(mean[:-1], np.diag(K)[:-1], n_samples, self.constraint)
        if not plain.fit_intercept:
            K += np.outer(mean, mean)
        K *= (2.0 / q)[:, None]
        K *= 1.0 / q
        points = GramPoints(K[:-1, :-1], K[:-1, -1], 0.5 * float(K[-1, -1]), self.constraint, self.stop())
        with np.errstate(over="ignore", invalid="ignore"):
            found = path_models(points, self.ks, self.lams)
        return {key: self._model(fit, mean, q[:-1]) for key, fit in found.items()}

    def _model(self, fit: Fit, mean: Vector, q: Vector) -> Model:
        """Return a model as a problem's would be."""
        w, on = fit.w, np.append(fit.support, len(q))
        intercept = 0.0
        if self.plain.fit_intercept:
            intercept = -dot(mean[on], np.append(fit.values / q[fit.support], -1.0))
        return Model(w, w / q, intercept, fit.objective)

    def sums(
        self, X: Any, y: Array, weights: Vector | None, offset: Vector | None, n_threads: int | None
    ) -> Sums | None:
        """Return sums over the samples that all models follow from; None where they do not, or are too many."""
        if y.ndim > 1 or not self.follows_from_sums(X.shape[1]):
            return None
        values = np.asarray(y, dtype=np.float64)
        values = values if offset is None else values - offset
        s = np.ones(len(y)) if weights is None else weights
        return Sums(self, X, values, s, Scatter.of(X, values, s, n_threads))


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over all samples, and what they say of the models of a fold."""

    grid: Grid
    X: Any
    y: Vector
    s: Vector
    whole: Scatter

    def of(self, train: Indices, n_threads: int | None = None) -> Scatter:
        """Return the sums of a fold's samples, by those of the others where these are fewer."""
        rows = np.bincount(np.arange(len(self.y))[train], minlength=len(self.y))
        if isinstance(self.X, Design):
            return Scatter.of(self.X, self.y, self.s * rows, n_threads)
        held = np.flatnonzero(rows == 0)
        if rows.max() > 1 or len(held) > len(self.y) // 2:
            return Scatter.of(self.X[train], self.y[train], self.s[train], n_threads)
        return self.whole.left(self.X, self.y, self.s, held, n_threads)

    def models(self, train: Indices | None = None, n_threads: int | None = None) -> Models:
        """Return the models of a fold, or of all samples."""
        if train is None:
            return self.grid.models_from(self.whole, len(self.y))
        return self.grid.models_from(self.of(train, n_threads), len(train))

"""What estimators share whose loss is no sum over samples: fits, paths over k, cross-validation, files, pages."""

from __future__ import annotations

import os
from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.utils.validation import check_is_fitted, validate_data

from diht.bounds.duality import BoundWithoutProof, Screening
from diht.constraints.base import Cardinality
from diht.constraints.groups import constrained, indices_of, n_choices
from diht.design import as_design
from diht.estimators.path import Path, PathPoint, checked_ks, choices_among, default_ks
from diht.estimators.tabular import check_kinds, check_switches, encoded_names, in_words, needs_encoder
from diht.joint.likelihood import Likelihood, Named
from diht.joint.solve import JointProblem, Solved, joint_models, solve_joint, solve_joint_path
from diht.losses import Loss
from diht.numerics.arrays import Indices, Vector
from diht.persistence.joint import JointFile, write_joint
from diht.problem import positive_number
from diht.refit import never
from diht.result import Certificate, Model, Result, Status, Trace
from diht.solvers.loop import Limits
from diht.tables.frame import check_unique, is_frame

__all__ = ["JointModel"]

_NODES = 30  # of the search tree, where it need not end


class JointModel(BaseEstimator):  # type: ignore[misc]
    """Validation, centred and scaled columns, solves, and what is made of their results."""

    _task: ClassVar[str]
    k: Any
    lam: Any
    exact: Any
    standardize: Any
    tol: Any
    time_limit: Any
    keep: Any

    # Fitting

    def _check_settings(self) -> None:
        check_switches(self)
        Limits.checked(self.tol, None, self.time_limit, None)

    def _validated(self, X: Any, reset: bool = True) -> Vector:
        """Return X as scikit-learn checks it; what is wrong with it names its columns."""
        if is_frame(X):
            check_unique(X)
        check_kinds(X)
        if reset and needs_encoder(self, X):
            raise ValueError("X must hold numbers: TableEncoder().fit_transform(X) makes some of texts and categories")
        try:
            return np.asarray(validate_data(self, X, reset=reset, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise in_words(error, X, X.columns if is_frame(X) else None) from None

    def _stated(self, X: Vector, weight: Vector, likelihood: Likelihood, k: int) -> tuple[JointProblem, Vector, Vector]:
        """Return the problem of the centred and scaled columns, the means and the scales."""
        lam, d = positive_number("lam", self.lam), X.shape[1]
        center = np.average(X, axis=0, weights=weight)
        columns = X - center
        scale = np.sqrt(np.average(np.square(columns), axis=0, weights=weight)) if self.standardize else np.ones(d)
        scale = np.where(scale > len(X) * np.finfo(np.float64).eps * np.abs(center), scale, 1.0)
        columns /= scale
        keep = indices_of("keep", self.keep, getattr(self, "feature_names_in_", None))
        constraint = constrained(min(k, n_choices(d, keep, None)), d, keep)
        return JointProblem(likelihood, as_design(columns, 1), columns, constraint, lam), center, scale

    def _limit(self) -> tuple[float, Callable[[], bool]]:
        """Return how many nodes a tree may have, and what tells whether the time is up."""
        began, seconds = perf_counter(), inf if self.time_limit is None else float(self.time_limit)
        return inf if self.exact else _NODES, lambda: perf_counter() - began > seconds

    def _solve(self, X: Vector, weight: Vector, likelihood: Likelihood) -> Vector:
        """Solve, keep the figures, and return the predictions of the samples, less their mean."""
        nodes, stop = self._limit()
        k = Cardinality(self.k).k
        began = perf_counter()
        problem, self.center_, scale = self._stated(X, weight, likelihood, k)
        solved = solve_joint(problem, self.tol, nodes, stop)
        self.result_ = self._result(scale, solved, perf_counter() - began, stop())
        self.certificate_ = self.result_.certificate
        self.coef_, self.support_ = self.result_.coef, solved.fit.support
        self.objective_, self.lower_bound_ = self.result_.objective, self.result_.lower_bound
        self.gap_ = self.objective_ - self.lower_bound_
        self.status_, self.n_nodes_, self.n_samples_fit_ = str(self.result_.status), solved.n_nodes, len(X)
        return np.asarray(problem.X @ solved.fit.w)

    def _result(self, scale: Vector, solved: Solved, seconds: float, late: bool) -> Result:
        """Return a solve's figures as those of other estimators have them; the proof is not kept."""
        fit, d = solved.fit, len(scale)
        nothing, bound = np.full(d, -inf), min(solved.bound, fit.value)
        certificate = Certificate(
            fit.value, bound, BoundWithoutProof(bound, cast(Any, None), 0.0), 0.0, 0.0, 0.0, bool(self.standardize),
            support=fit.support, attained=fit.value, screening=Screening(nothing, nothing),
        )  # fmt: skip
        closed = certificate.gap <= self.tol * abs(fit.value)
        status = Status.OPTIMAL if closed else Status.TIME_LIMIT if late else Status.NODE_LIMIT
        model, n = Model(fit.w, fit.w / scale, 0.0, fit.value), solved.n_nodes
        return Result(
            fit.w, model.coef, 0.0, fit.value, certificate, (), model, None, status, n, 0.0, seconds, Trace(), "branch"
        )

    # Many k

    def _ks(self, ks: Any, n_features: int, n_samples: int | None = None) -> list[int]:
        keep = indices_of("keep", self.keep, getattr(self, "feature_names_in_", None))
        most, what = choices_among(n_features, keep, None)
        chosen = default_ks(min(most, n_samples // 10)) if ks is None and n_samples else checked_ks(ks, most, what)
        return [int(k) for k in chosen]

    def _followed(self, X: Vector, weight: Vector, likelihood: Likelihood, ks: Any, named: Named) -> Path:
        """Return the models of many k, each with a bound."""
        counts, (nodes, stop) = self._ks(ks, X.shape[1]), self._limit()
        problem, _, scale = self._stated(X, weight, likelihood, counts[-1])
        solved = solve_joint_path(problem, counts, self.tol, nodes, stop)
        results = [self._result(scale, each, 0.0, stop()) for each in solved]
        lam = float(self.lam)
        points = tuple(PathPoint(k, lam, each.coef, 0.0, each) for k, each in zip(counts, results, strict=True))
        names = encoded_names(self, X.shape[1])
        return Path(points, names, cast(Loss, named), float(len(X)), problem.constraint)

    def _chosen(
        self,
        X: Vector,
        strata: Indices,
        likelihood_of: Callable[[Indices], tuple[Likelihood, Vector]],
        score: Callable[[Vector, Vector, Indices, Indices], float],
        ks: Any,
        cv: Any,
    ) -> Any:
        """Return a copy with the least k within one standard error of the best mean score over the folds.

        `score` gets the coefficients, the means of the columns, and the training and the other samples.
        """
        splitter = StratifiedKFold(cv or 5, shuffle=True, random_state=0) if cv is None or isinstance(cv, int) else cv
        folds = list(check_cv(splitter, strata, classifier=True).split(X, strata))
        counts, rows = self._ks(ks, X.shape[1], len(X)), []
        for train, test in folds:
            likelihood, weight = likelihood_of(train)
            problem, center, scale = self._stated(X[train], weight, likelihood, counts[-1])
            fits = joint_models(problem, counts, never)
            rows.append([score(fit.w / scale, center, train, test) for fit in fits])
        scores = np.array(rows)
        mean, error = scores.mean(axis=0), scores.std(axis=0, ddof=1) / np.sqrt(len(folds))
        best = int(np.argmax(mean))
        chosen = counts[int(np.argmax(mean >= mean[best] - error[best]))]
        model = clone(self).set_params(k=chosen)
        model.best_k_ = chosen
        model.cv_results_ = {"param_k": np.array(counts), "mean_test_score": mean, "std_test_score": scores.std(axis=0)}
        model.cv_results_ |= {f"split{i}_test_score": row for i, row in enumerate(scores)}
        return model

    # Predictions, files, pages

    def _centred(self, X: Any) -> Vector:
        """Return x.w, less its mean over the samples of the fit."""
        check_is_fitted(self)
        return np.asarray((self._validated(X, reset=False) - self.center_) @ self.coef_)

    def _extra(self) -> dict[str, Any]:
        """Return what a file has besides coefficients and figures."""
        raise NotImplementedError

    def _named(self) -> Named:
        raise NotImplementedError

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a JSON file, which `diht.load_model` reads back without running code.

        Parameters
        ----------
        path : path-like
            The file, replaced as a whole if it is there.
        """
        check_is_fitted(self)
        write_joint(self._file(), os.fspath(path))

    def _file(self) -> JointFile:
        names = getattr(self, "feature_names_in_", None)
        return JointFile(
            task=self._task,
            k=int(self.k),
            lam=float(self.lam),
            standardize=bool(self.standardize),
            keep=tuple(np.asarray(constrained_keep(self)).tolist()),
            n_features=int(self.n_features_in_),
            feature_names=None if names is None else tuple(map(str, names)),
            indices=tuple(self.support_.tolist()),
            values=tuple(self.coef_[self.support_].tolist()),
            means=tuple(self.center_[self.support_].tolist()),
            objective=float(self.objective_),
            lower_bound=float(self.lower_bound_),
            status=str(self.status_),
            n_samples=int(self.n_samples_fit_),
            extra=self._extra(),
        )

    def _taken(self, file: JointFile) -> None:
        """Become the model of a file."""
        self.n_features_in_ = d = file.n_features
        if file.feature_names is not None:
            self.feature_names_in_ = np.array(file.feature_names, dtype=object)
        self.support_ = np.array(file.indices, dtype=np.int64)
        self.coef_, self.center_ = np.zeros(d), np.zeros(d)
        self.coef_[self.support_], self.center_[self.support_] = file.values, file.means
        self.objective_, self.lower_bound_ = file.objective, file.lower_bound
        self.gap_, self.status_, self.n_samples_fit_ = file.objective - file.lower_bound, file.status, file.n_samples

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a report on the model: one HTML page with its features, coefficients and both bounds.

        Parameters
        ----------
        path : path-like
            The file, replaced as a whole if it is there.
        """
        check_is_fitted(self, "result_")
        point, names = (
            PathPoint(int(self.k), float(self.lam), self.coef_, 0.0, self.result_),
            encoded_names(self, len(self.coef_)),
        )
        whole = Path((point,), names, cast(Loss, self._named()), float(self.n_samples_fit_), Cardinality(int(self.k)))
        whole.report(path)


def constrained_keep(model: JointModel) -> Indices:
    """Return the features that are always in."""
    keep = indices_of("keep", model.keep, getattr(model, "feature_names_in_", None))
    found: Indices = (
        constrained(1, model.n_features_in_, keep).free(model.n_features_in_)[1]
        if keep is not None
        else np.empty(0, np.int64)
    )
    return found


def rows_of(values: ArrayLike | None, rows: Indices) -> Any:
    """Return some of what is given for each sample, if anything is."""
    return None if values is None else np.asarray(values)[rows]

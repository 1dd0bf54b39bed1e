"""What regressors and classifiers have in common."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_X_y, column_or_1d, validate_data
from threadpoolctl import threadpool_limits

from diht.bounds.duality import WITHOUT_PROOF
from diht.constraints.base import Cardinality, Constraint
from diht.constraints.groups import constrained, limited, n_choices
from diht.dask import is_dask
from diht.design import Design, as_design, effective_n_threads, refuse_dask
from diht.estimators.callbacks import CallbackSupportMixin, FitTasks, print_line
from diht.estimators.lazy import lazy_for_dask
from diht.estimators.namespaces import dispatches, fit_in_namespace
from diht.estimators.shipping import ShippingMixin
from diht.estimators.tabular import (
    Wanted,
    check_kinds,
    check_switches,
    checked_array,
    encoded,
    encoded_names,
    in_words,
    needs_encoder,
    refuse_with,
    set_groups,
    wanted_of,
)
from diht.estimators.there import problems_there, scales_of
from diht.gpu import array_like, is_array_of_others, is_on_device, on_host
from diht.losses import ALL_LOSSES, Loss, as_loss
from diht.numerics.arrays import Array, Vector
from diht.numerics.compiling import printed
from diht.numerics.interrupt import interruptible
from diht.problem import Problem, normalised_weights
from diht.result import Iterate, Result, Status
from diht.solvers import Auto, BranchAndBound, Solver
from diht.solvers.loop import as_solver, solve
from diht.tables import Frame
from diht.tables.frame import check_unique, is_frame, is_missing

if TYPE_CHECKING:
    from diht.dask.data import Collections, RemoteData
    from diht.gpu.data import DeviceData

__all__ = ["SparseLinearModel", "class_targets", "column_scales", "declared", "scales_of", "validated", "without_none"]

_FORMATS = {
    "accept_sparse": ("csr", "csc"),
    "dtype": (np.float64, np.float32),
}  # what X may be, for scikit-learn's checks
_FEW = 32  # a copy of the columns of the support pays where at most one feature in so many is in it
# The stack level of the caller of fit, for warnings: under them are fit's decorator (if any), fit, _solve, a method of it.
_CALLER = 4 + hasattr(CallbackSupportMixin, "set_callbacks")


class SparseLinearModel(ShippingMixin, CallbackSupportMixin, SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """What the regressor and the classifier share: sparse linear models of one target, or of several that share features."""

    _task: ClassVar[str]

    # Fitting

    def _solve(
        self,
        X: Any,
        targets: dict[str, Vector],
        s: Vector,
        previous: list[Result] | None,
        tasks: FitTasks | None,
        offset: ArrayLike | None = None,
    ) -> None:
        """Solve one problem after the other, and keep the figures.

        `targets` maps what to print before a line to the targets of a problem, `s` are weights that sum to one, `previous` is what
        a warm start begins from.
        """
        loss = self._fitted_loss()
        with blas_threads(self.n_jobs), printed(self.verbose):
            design = self._design(X)
            constraint = self._constraint(X.shape[1])
            scale = column_scales(design, s, constraint) if self.standardize else None

            def problem(y: Vector) -> Problem:
                return Problem(
                    design, y, loss, constraint, self._ridge, s, self.fit_intercept, scale=scale, offset=offset
                )

            results = self._results(targets, problem, scale, X.dtype, previous, tasks)
        self._keep(results, X.shape[0])

    def _design(self, X: Any) -> Design:
        """Return X as a design; the error of one with missing values names the columns."""
        try:
            return as_design(X, self.n_jobs)
        except ValueError as error:
            raise in_words(error, X, getattr(self, "feature_names_in_", None)) from None

    def _results(
        self,
        targets: dict[str, Any],
        problem_of: Callable[[Any], Problem],
        scale: Vector | None,
        dtype: Any,
        previous: list[Result] | None,
        tasks: FitTasks | None,
    ) -> list[Result]:
        """Solve the problem of each of the targets."""
        previous = None if previous is None or len(previous) != len(targets) else previous
        seconds: Any = self.time_limit
        if isinstance(seconds, Real):
            seconds = float(seconds) / len(targets)
        results = []
        with interruptible("the model is the best found so far", _CALLER + 2):
            for j, (label, y) in enumerate(targets.items()):
                problem = problem_of(y)
                start: Any = None if previous is None else self._start(problem, previous[j], j, scale)
                kept = getattr(self, "checkpoint_", {}).get(label)
                if kept is not None and kept.size == problem.shape[1]:
                    start = kept if scale is None else kept * scale
                callback = self._callback(label, tasks, scale, np.dtype(dtype))
                if tasks is not None:
                    tasks.begin_problem()
                method = self._solver()
                result = solve(problem, method, start, self.tol, self.max_iter, seconds, callback)
                if tasks is not None:
                    tasks.end_problem()
                results.append(replace(result, certificate=replace(result.certificate, scaled=self.standardize)))
        return results

    # Rows on the workers of a Dask cluster, or on a device

    def _fitted_elsewhere(self, X: Any, *others: Any) -> bool:
        """Fit where the rows are, unless they are to be in this process; tell whether that was done."""
        if dispatches(X):
            fit_in_namespace(self, X, *others)
        elif is_on_device(X, self.device):
            self._fit_on_device(X, *others)
        elif is_dask(X):
            self._fit_dask(X, *map(on_host, others))
        else:
            return False
        return True

    def _fit_dask(self, *data: Any) -> None:
        """Fit where the rows are; in this process where there is no client."""
        from diht.dask.data import Collections, active_client, loaded, loaded_here

        client, classes, given = active_client(), self._task == "classification", Collections(*data)
        if client is None:
            self.fit(**without_none(loaded_here(given, classes)))
            return
        with loaded(client, given, classes) as rows, printed(self.verbose):
            self._fit_there(rows, given)

    def _fit_on_device(self, *data: Any) -> None:
        """Fit on a device, where the rows are or to which they are moved."""
        from diht.dask.data import Collections

        given = Collections(*data)
        with printed(self.verbose):
            self._fit_there(self._on_device(given), given)

    def _on_device(self, given: Collections) -> DeviceData:
        """Bring data to the device."""
        from diht.gpu.data import loaded

        X = given.X
        if not is_array_of_others(X):
            X = validated(self, X, ensure_all_finite=False)
        names = getattr(self, "feature_names_in_", None) if hasattr(given.X, "columns") else None
        if isinstance(X, Design):
            raise ValueError(
                "X must be an array or a sparse matrix where device= is given, not rows in blocks or on disk"
            )
        names = None if names is None else tuple(names)
        return loaded(given._replace(X=X), self.device, self._task == "classification", names)

    def _fit_there(self, data: RemoteData | DeviceData, given: Collections) -> list[Result]:
        """Fit where the rows are, and return the results with their dual points, which stay there."""
        from diht.dask.tasks import WorkersLostError

        design = data.samples.design
        set_features(self, design.shape[1], data.names)
        set_groups(self, None)
        problems, scale = problems_there(self, data, self._constraint(design.shape[1]))
        previous = self._previous(design.shape[1])
        tasks = FitTasks.of(self, given.X, given.y, given.sample_weight, len(problems))
        self._best: dict[str, Array] = {}
        try:
            results = self._results(problems, lambda problem: problem, scale, design.dtype, previous, tasks)
        except WorkersLostError as error:
            if not self._best:
                raise
            self.checkpoint_ = self._best
            raise WorkersLostError(f"{error}; fit goes on from the best model so far when it is called again") from None
        finally:
            del self._best
        self.__dict__.pop("checkpoint_", None)
        # What is as long as the samples stays where they are, and goes with them, but for dual points that can be had.
        self._keep([result.without_proof(data.dual(result.alpha)) for result in results], design.shape[0])
        if tasks is not None:
            tasks.end()
        return results

    def _start(self, problem: Problem, result: Result, j: int, scale: Vector | None) -> Result | None:
        """Return an earlier result of as many targets, its coefficients for the columns as they are scaled now."""
        rows = self._rows()
        coef = rows[j] if problem.n_targets == 1 else rows
        if np.shape(result.w) != coef.shape or len(np.atleast_2d(coef)) != problem.n_targets:
            return None
        return replace(result, w=coef if scale is None else coef * scale)

    @property
    def _ridge(self) -> Any:
        """The ridge of the problems that are solved."""
        return self.lam

    def _loss(self) -> Loss:
        names = [name for name, loss in ALL_LOSSES.items() if loss.task == self._task]
        if isinstance(self.loss, Loss) and self.loss.task == self._task:
            return self.loss
        if isinstance(self.loss, str) and self.loss.partition("(")[0] in names:
            return as_loss(self.loss)
        raise ValueError(f"loss must be one of {names}, or a Loss object for {self._task}, got {self.loss!r}")

    def _targets_of(self, y: Array) -> Array:
        """Return targets that were checked; a single one stands for each of several quantiles."""
        one = y.ndim == 2 and y.shape[1] == 1
        return np.asarray(self._loss().columns_of(column_or_1d(y, warn=True) if one else y))

    def _fitted_loss(self) -> Loss:
        """Return the loss of the problems that are solved."""
        return self._loss()

    def _constraint(self, n_features: int) -> Constraint:
        """Return what `k`, `keep`, `groups`, `sign` and `bounds` ask for together."""
        keep, groups, signs, limits = self._wanted(n_features)
        if isinstance(self.k, Constraint):
            refuse_with("k", self)
            return limited(self.k, n_features, signs, limits)
        k = Cardinality(self.k).k
        choices = n_choices(n_features, keep, groups)
        if k > choices:
            counted = "features" if self.groups is None else "groups"
            what = f"{choices} {counted}{' besides those to keep' * (keep is not None)}"
            warnings.warn(
                f"k={self.k} is more than the {what}: all of them may be used", UserWarning, stacklevel=_CALLER
            )
        return constrained(min(k, choices), n_features, keep, groups, signs, limits)

    @property
    def _own_constraint(self) -> Constraint | None:
        """The constraint of one's own choice that a fitted model obeys, if there is one."""
        return self.k if isinstance(self.k, Constraint) else None

    def _wanted(self, n_features: int) -> Wanted:
        """Return what is asked of the columns of `coef_`."""
        return wanted_of(self, n_features)

    def _solver(self) -> Solver:
        """Return the method; a random state, where one is given, becomes its seed."""
        seed = self.random_state
        if isinstance(seed, Integral) and seed < 0:
            raise ValueError(f"random_state must not be negative, got {seed}")
        if isinstance(seed, str):
            raise ValueError(f"random_state must be a whole number, a generator or None, got {seed!r}")
        if seed is not None and not isinstance(seed, Integral):
            seed = check_random_state(seed).randint(2**31 - 1)
        return as_solver(self._method(), None if seed is None else int(seed))

    def _method(self) -> str | Solver:
        """Return what `solver` and `exact` ask for together."""
        solver: str | Solver = self.solver
        if not self.exact or solver == "branch" or isinstance(solver, BranchAndBound):
            return solver
        if isinstance(solver, Auto):
            return BranchAndBound(random_state=solver.random_state)
        if solver == "auto":
            return "branch"
        raise ValueError(f"exact=True needs solver='auto' or 'branch', got solver={solver!r}")

    def _callback(
        self, label: str, tasks: FitTasks | None, scale: Vector | None, dtype: np.dtype[Any]
    ) -> Callable[[Iterate], bool] | None:
        """Return what a solve calls at each evaluation; None where there is no callback, no `verbose` and nothing to keep."""
        kept: dict[str, Array] | None = getattr(self, "_best", None)
        if not self.verbose and tasks is None and kept is None:
            return None

        def attributes(iterate: Iterate) -> dict[str, Any]:
            assert iterate.model is not None
            coef = in_users_units(np.atleast_2d(iterate.model.w), scale, dtype)
            return self._model(coef, np.atleast_1d(iterate.model.intercept).astype(dtype))

        def tell(iterate: Iterate) -> bool:
            if kept is not None and iterate.model is not None:
                kept[label] = iterate.model.coef
            if self.verbose:
                print_line(iterate, label)
            return tasks is not None and tasks.evaluate(lambda: attributes(iterate))

        return tell

    def _model(self, coef: Array, intercept: Array) -> dict[str, Any]:
        """Return the attributes that predictions need; `coef` has one row a target."""
        return {"coef_": coef, "intercept_": intercept, "support_": np.flatnonzero(coef.any(axis=0))}

    def _keep(self, results: list[Result], n_samples: int) -> None:
        """Copy the figures; single ones where there is a single target."""
        several, coef = len(results) > 1, np.vstack([result.coef for result in results])
        intercepts = np.concatenate([np.atleast_1d(result.intercept) for result in results])
        self.__dict__ |= self._model(coef, intercepts.astype(coef.dtype))
        self.result_ = results if several else results[0]
        self.certificate_ = [result.certificate for result in results] if several else results[0].certificate
        self.n_samples_fit_ = n_samples
        for name in ("objective", "lower_bound", "gap"):
            figures = [float(getattr(result, name)) for result in results]
            setattr(self, f"{name}_", np.array(figures) if several else figures[0])
        self.n_iter_ = max(result.n_iter for result in results)
        open_gaps = [result.relative_gap for result in results if result.status is Status.MAX_ITER]
        if self.max_iter is not None and open_gaps:
            message = (
                f"max_iter={self.max_iter} was reached with a relative gap of {max(open_gaps):.2g} (tol={self.tol:g})"
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=_CALLER)

    @property
    def dual_coef_(self) -> Array:
        """The dual points behind the lower bounds, one row a target or class."""
        check_is_fitted(self)
        known = getattr(self, "result_", [])  # a model that was read from a JSON file has none
        results = known if isinstance(known, list) else [known]
        if not results or results[0].alpha is None:
            raise AttributeError(WITHOUT_PROOF)
        dual = np.stack([result.alpha for result in results]) if len(results) > 1 else np.asarray(results[0].alpha)
        return array_like(dual, self.coef_) if is_array_of_others(self.coef_) else dual

    def _previous(self, n_features: int) -> list[Result] | None:
        """Return the results of the last fit for a warm start, where that fit had as many features."""
        if not self.warm_start or not hasattr(self, "result_") or self.coef_.shape[-1] != n_features:
            return None
        return self.result_ if isinstance(self.result_, list) else [self.result_]

    # Prediction and selection

    def _scores(self, X: Any) -> Array:
        """Return x.w + b of every sample for every target, of shape (n, number of targets)."""
        check_is_fitted(self)
        if is_array_of_others(X):
            return self._scores_of_others(X)
        coef: Any = self.coef_ if issparse(self.coef_) else np.atleast_2d(self.coef_)
        own = self._own_columns(X)
        if own is None:
            X = validated(self, X, reset=False)
            if isinstance(X, Design):
                return self._scores_of_design(X)
            few = issparse(coef) or _FEW * len(self.support_) <= X.shape[1]
            own = X[:, self.support_] if few else X
        if own.shape[1] < coef.shape[1]:
            coef = coef[:, self.support_]
        scores: Array = own @ (coef.toarray() if issparse(coef) else coef).T + self.intercept_
        return scores

    def _scores_of_others(self, X: Any) -> Array:
        """Return the same of an array of torch, cupy or JAX: computed on its device where it is on one."""
        if not is_on_device(X, None):
            return self._scores(on_host(X))
        from diht.gpu.data import scores

        if X.shape[1] != self.n_features_in_:
            name = type(self).__name__
            raise ValueError(
                f"X has {X.shape[1]} features, but {name} is expecting {self.n_features_in_} features as input."
            )
        return scores(X, np.atleast_2d(self._rows()), np.atleast_1d(self.intercept_))

    def _own_columns(self, X: Any) -> Array | None:
        """Return the columns of the model's own features, encoded; None where X has to be looked at as a whole.

        That is so unless X is encoded, or is a data frame that lacks columns which the model does not use.
        """
        if hasattr(self, "encoder_"):
            return np.asarray(self.encoder_.encoding_.encode(X, self.support_))
        names = getattr(self, "feature_names_in_", None)
        if names is None or not is_frame(X) or len(X.columns) >= len(names):
            return None
        present = set(X.columns)
        left = [name for name in names if name in present]
        used = names[self.support_]
        if left != list(X.columns) or not present.issuperset(used) or not len(used):
            return None
        return np.asarray(checked_array(X[list(used)]))

    @property
    def coef_names_(self) -> NDArray[Any]:
        """The names of the columns of `coef_`: those of X, those that its encoder made, or x0, x1, ..."""
        check_is_fitted(self)
        return np.array(encoded_names(self, self.coef_.shape[-1]), dtype=object)

    def _scores_of_design(self, X: Design) -> Array:
        """Return x.w + b of every sample for every target, block by block where the samples are in blocks."""
        scores = [X.matvec(row.astype(np.float64), support=self.support_) for row in self._rows()]
        dtype = np.result_type(X.dtype, self.intercept_)
        return np.asarray((np.column_stack(scores) + self.intercept_).astype(dtype))

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        mask = np.zeros(self.n_features_in_, dtype=bool)
        encoded = hasattr(self, "encoder_")
        mask[self.encoder_.encoding_.origin[self.support_] if encoded else self.support_] = True
        return mask

    @lazy_for_dask
    def transform(self, X: Any) -> Any:
        """Keep the features of the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples.

        Returns
        -------
        array or sparse matrix of shape (n_samples, n_selected_features)
            Their columns of the features with a nonzero coefficient; of an encoded data frame a data frame.
        """
        if not hasattr(self, "encoder_"):
            return super().transform(X)
        check_is_fitted(self)
        names = self.get_feature_names_out().tolist()
        return X.only(names) if isinstance(X, Frame) else X[names]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def validated(estimator: Any, X: Any, *y: Any, **settings: Any) -> Any:
    """Return X, and y where it is given, as scikit-learn checks them; the columns of a data frame with texts become numbers."""
    reset = settings.get("reset", True)
    if reset:
        effective_n_threads(estimator.n_jobs)
        check_switches(estimator)
        estimator.__dict__.pop("encoder_", None)
    if y:
        y = (_plain_targets(y[0]),)
    if settings.get("y_numeric") and y:
        _check_numbers(y[0])
    checked = _validated(estimator, X, *y, **settings)
    if reset:
        set_groups(estimator, X)
    return checked


def _plain_targets(y: Any) -> Any:
    """Return true and false of pandas as numpy has them; raise where targets are missing among objects."""
    given = np.asarray(y) if isinstance(y, list | tuple) else y
    kind = getattr(getattr(given, "dtype", None), "kind", "")
    if kind != "O" and (kind != "b" or isinstance(given, np.ndarray)):
        return y
    labels = np.asarray(given, dtype=object)
    missing = sum(map(is_missing, labels.ravel()))
    if missing:
        raise ValueError(f"y contains missing values ({missing} of {labels.size}): leave out samples without a target")
    return labels.astype(bool) if kind == "b" else y


def _check_numbers(y: Any) -> None:
    """Raise where targets of a regression are texts."""
    labels = np.ravel(np.asarray(y)) if np.asarray(y).dtype.kind in "OUS" else ()
    texts = [label for label in labels if isinstance(label, str | bytes)]
    if texts:
        raise ValueError(f"y must be numeric, got {str(texts[0])!r}: class names are for SparseClassifier")


def _validated(estimator: Any, X: Any, *y: Any, **settings: Any) -> Any:
    for name, given in zip(("X", "y"), (X, *y), strict=False):
        refuse_dask(name, given)
    if isinstance(X, Design):
        return _validated_design(estimator, X, *y, **settings)
    reset = settings.pop("reset", True)
    if needs_encoder(estimator, X) if reset else hasattr(estimator, "encoder_"):
        return encoded(estimator, X, *y, reset=reset, **settings)
    if is_frame(X):
        check_unique(X)
    if not issparse(X):
        check_kinds(X)
    try:
        return validate_data(estimator, X, *y, reset=reset, **_FORMATS, **settings)
    except (TypeError, ValueError) as error:
        raise in_words(error, X, X.columns if is_frame(X) else None) from None


def _validated_design(
    estimator: Any, X: Design, *y: Any, reset: bool = True, ensure_all_finite: bool = True, **settings: Any
) -> Any:
    """Return a design, whose values were checked when it was made, and y as scikit-learn checks it."""
    name, names = type(estimator).__name__, X.feature_names
    if reset:
        set_features(estimator, X.shape[1], names)
    elif X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but {name} is expecting {estimator.n_features_in_} features as input."
        )
    elif names is not None and list(getattr(estimator, "feature_names_in_", names)) != list(names):
        raise ValueError("The feature names of X should match those that were passed during fit, in the same order.")
    if not y:
        return X
    rows = np.empty((X.shape[0], 0))  # only its length is looked at
    return X, check_X_y(rows, *y, ensure_min_features=0, estimator=estimator, **settings)[1]


def without_none(given: Collections) -> dict[str, Any]:
    """Return what was given, by its name."""
    return {name: values for name, values in given._asdict().items() if values is not None}


def set_features(estimator: Any, n_features: int, names: tuple[str, ...] | None) -> None:
    """Keep the number of the features, and their names where they have some."""
    estimator.n_features_in_ = n_features
    estimator.__dict__.pop("feature_names_in_", None)
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)


def classes_of(y: Array) -> tuple[Array, NDArray[np.intp]]:
    """Return the classes, sorted, and the places of the targets among them; ValueError where there are not two."""
    kinds = sorted({type(label).__name__ for label in y.ravel()}) if y.dtype == object else []
    if len(kinds) > 1 and "str" in kinds:
        raise ValueError(f"y must hold classes of one type, got {', '.join(kinds)}")
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y must hold at least two classes, got only one class: {classes.tolist()[0]!r}")
    return classes, codes


def class_weighted(s: Vector, class_weight: Any, classes: Array, codes: NDArray[np.intp]) -> Vector:
    """Multiply the weights by those of the classes; every class must keep some weight."""
    factors = class_factors(np.asarray(np.bincount(codes, weights=s), dtype=np.float64), class_weight, classes)
    return s if class_weight is None else normalised_weights(s * factors[codes], len(s))


def class_factors(totals: Vector, class_weight: Any, classes: Array) -> Vector:
    """Return what the weights of each class, which sum to `totals`, are multiplied by."""
    if class_weight is None:
        factors = np.ones(len(classes))
    elif isinstance(class_weight, str) and class_weight == "balanced":
        factors = 1.0 / np.where(totals > 0, totals, 1.0)
    else:
        factors = compute_class_weight(class_weight, classes=classes, y=classes)
        if not np.all(factors >= 0):
            raise ValueError(f"class_weight must not be negative, got {class_weight!r}")
    empty = np.flatnonzero(totals * factors == 0)
    if len(empty):
        name = classes.tolist()[empty[0]]
        raise ValueError(f"every class needs some weight, but class {name!r} has none, or none beside the others")
    return np.asarray(factors)


def class_targets(n_classes: int, codes: NDArray[Any], loss: Loss) -> tuple[NDArray[np.float64], Loss]:
    """Return the targets of classes that share features, and their loss: those of the second of two, or a column a class."""
    if n_classes == 2:
        return np.where(codes == 1, 1.0, -1.0), loss
    loss = loss.of_classes()
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, 0.0 if loss.coupled else -1.0), loss


def column_scales(design: Design, s: Vector, constraint: Constraint) -> Vector:
    """Return what `standardize` divides every column by: the root of the mean of the weighted variances of its group's columns.

    Without groups that is the column's own standard deviation. The mean is the trace of the group's covariance matrix divided by
    its size, which an orthogonal change of the group's columns leaves as it is. A column that is constant up to rounding has
    variance 0; a group of such columns has scale 1.
    """
    return scales_of(*design.moments(s), len(s), constraint)


def in_users_units(w: Array, scale: Vector | None, dtype: np.dtype[Any]) -> Array:
    """Return coefficients of the columns of X from those of the scaled columns."""
    return (w if scale is None else w / scale).astype(dtype)


def blas_threads(n_jobs: int | None) -> AbstractContextManager[Any]:
    """Limit the threads of linear algebra libraries as those of the kernels are, where the user asks for it."""
    if n_jobs is None:
        return nullcontext()
    limits: AbstractContextManager[Any] = threadpool_limits(effective_n_threads(n_jobs), user_api="blas")
    return limits


def declared(loss: Any) -> Any:
    """Return the loss of a name, with its default parameters; anything else as it is."""
    name = loss.partition("(")[0] if isinstance(loss, str) else None
    return ALL_LOSSES[name]() if name in ALL_LOSSES else loss

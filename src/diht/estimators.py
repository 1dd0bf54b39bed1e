"""The scikit-learn estimators: fit = validate, `Problem`, `solve`, copy the figures."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from threadpoolctl import threadpool_limits

from diht.callbacks import CallbackSupportMixin, FitTasks, ends_callbacks, print_line
from diht.compiling import printed
from diht.constraint import Cardinality, Constraint
from diht.design import Design, as_design, effective_n_threads
from diht.duality import WITHOUT_PROOF
from diht.loop import SOLVERS, as_solver, solve
from diht.losses import ALL_LOSSES, Loss, losses_with_probabilities
from diht.problem import Problem, finite_vector, normalised_weights
from diht.result import Iterate, Result, Status
from diht.samples import null_intercept
from diht.shipping import ShippingMixin
from diht.solvers import Auto, BranchAndBound, Solver
from diht.structure import constrained, indices_of, n_choices, signs_of

__all__ = ["SparseClassifier", "SparseRegressor", "class_targets", "column_scales"]

Array = NDArray[Any]
Vector = NDArray[np.float64]

_FORMATS = {
    "accept_sparse": ("csr", "csc"),
    "dtype": (np.float64, np.float32),
}  # what X may be, for scikit-learn's checks
_FEW = 32  # a copy of the columns of the support pays where at most one feature in so many is in it
# The stack level of whoever called fit, for warnings: under them are fit's decorator (if any), fit, _solve, a method of it.
_CALLER = 4 + hasattr(CallbackSupportMixin, "set_callbacks")


class _SparseLinearModel(ShippingMixin, CallbackSupportMixin, SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """What the regressor and the classifier share: sparse linear models of one target, or of several that share features."""

    _task: ClassVar[str]
    _stop: Callable[[], bool] | None = None  # asked after every step; the command line ends a solve with it

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
        previous = None if previous is None or len(previous) != len(targets) else previous
        seconds: Any = self.time_limit
        if isinstance(seconds, Real):
            seconds = float(seconds) / len(targets)
        results, coefs = [], []
        with _blas_threads(self.n_jobs), printed(self.verbose):
            design = as_design(X, self.n_jobs)
            constraint = self._constraint(X.shape[1])
            scale = column_scales(design, s, constraint) if self.standardize else None
            for j, (label, y) in enumerate(targets.items()):
                problem = Problem(
                    design, y, loss, constraint, self._ridge, s, self.fit_intercept, scale=scale, offset=offset
                )
                start = None if previous is None else self._start(problem, previous[j], j, scale)
                callback = self._callback(label, tasks, scale, X.dtype)
                if tasks is not None:
                    tasks.begin_problem()
                method = self._solver()
                result = solve(problem, method, start, self.tol, self.max_iter, seconds, callback, stop=self._stop)
                if tasks is not None:
                    tasks.end_problem()
                results.append(replace(result, certificate=replace(result.certificate, scaled=self.standardize)))
                coefs.append(result.coef)
        self._keep(results, np.vstack(coefs))

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
        if isinstance(self.loss, str) and self.loss in names:
            return ALL_LOSSES[self.loss]()
        raise ValueError(f"loss must be one of {names}, or a Loss object for {self._task}, got {self.loss!r}")

    def _fitted_loss(self) -> Loss:
        """Return the loss of the problems that are solved."""
        return self._loss()

    def _constraint(self, n_features: int) -> Constraint:
        """Return what `k`, `keep`, `groups` and `sign` ask for together."""
        k, names = Cardinality(self.k).k, getattr(self, "feature_names_in_", None)
        keep, groups = indices_of("keep", self.keep, names), self.groups
        choices = n_choices(n_features, keep, groups)
        if k > choices:
            what = (
                f"{choices} {'features' if groups is None else 'groups'}{' besides those to keep' * (keep is not None)}"
            )
            warnings.warn(
                f"k={self.k} is more than the {what}: all of them may be used", UserWarning, stacklevel=_CALLER
            )
        return constrained(min(k, choices), n_features, keep, groups, signs_of(self.sign, names, n_features))

    def _solver(self) -> Solver:
        """Return the method; a random state, where one is given, becomes its seed."""
        seed = self.random_state
        if isinstance(seed, Integral) and seed < 0:
            raise ValueError(f"random_state must not be negative, got {seed}")
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
        """Return what a solve calls at each evaluation; None where nobody wants to know."""
        if not self.verbose and tasks is None:
            return None

        def attributes(iterate: Iterate) -> dict[str, Any]:
            assert iterate.model is not None
            coef = _in_users_units(np.atleast_2d(iterate.model.w), scale, dtype)
            return self._model(coef, np.atleast_1d(iterate.model.intercept).astype(dtype))

        def tell(iterate: Iterate) -> bool:
            if self.verbose:
                print_line(iterate, label)
            return tasks is not None and tasks.evaluate(lambda: attributes(iterate))

        return tell

    def _model(self, coef: Array, intercept: Array) -> dict[str, Any]:
        """Return the attributes that predictions need; `coef` has one row a target."""
        return {"coef_": coef, "intercept_": intercept, "support_": np.flatnonzero(coef.any(axis=0))}

    def _keep(self, results: list[Result], coef: Array) -> None:
        """Copy the figures; single ones where there is a single target."""
        several = len(results) > 1
        intercepts = np.concatenate([np.atleast_1d(result.intercept) for result in results])
        self.__dict__ |= self._model(coef, intercepts.astype(coef.dtype))
        self.result_ = results if several else results[0]
        self.certificate_ = [result.certificate for result in results] if several else results[0].certificate
        self.n_samples_fit_ = int(results[0].alpha.shape[-1])
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
        return np.stack([result.alpha for result in results]) if len(results) > 1 else np.asarray(results[0].alpha)

    def _previous(self, n_features: int) -> list[Result] | None:
        """Return the results of the last fit for a warm start, where that fit had as many features."""
        if not self.warm_start or not hasattr(self, "result_") or self.coef_.shape[-1] != n_features:
            return None
        return self.result_ if isinstance(self.result_, list) else [self.result_]

    # Prediction and selection

    def _scores(self, X: Any) -> Array:
        """Return x.w + b of every sample for every target, of shape (n, number of targets)."""
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        coef: Any = self.coef_ if issparse(self.coef_) else np.atleast_2d(self.coef_)
        if issparse(coef) or _FEW * len(self.support_) <= X.shape[1]:
            X, coef = X[:, self.support_], coef[:, self.support_]
        scores: Array = X @ (coef.toarray() if issparse(coef) else coef).T + self.intercept_
        return scores

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        mask = np.zeros(self.n_features_in_, dtype=bool)
        mask[self.support_] = True
        return mask

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class SparseRegressor(RegressorMixin, _SparseLinearModel):  # type: ignore[misc]
    r"""Linear regression with at most k features, and a proof of how good it is.

    .. math:: \min_{w, b} \; \sum_i s_i\, l(x_i^\top w + b, y_i) + \frac{\lambda}{2} \|w\|^2
              \quad \text{subject to} \quad \|w\|_0 \le k

    with weights s that sum to one.

    Parameters
    ----------
    k : int, default=10
        The largest number of features used. More than there are: all of them, with a warning.
    lam : float, default=1e-3
        The ridge's strength, positive. The larger, the easier it is to prove a model optimal.
    loss : str or Loss, default="squared"
        The name of a loss of regression in `diht.losses.LOSSES`, such as "squared" for (y - u)^2, "huber" for Huber's loss and
        "poisson" for half the Poisson deviance of counts with mean exp(u); or an object of `diht.losses` or of your own.
    solver : str or Solver, default="auto"
        The method: a name in `diht.loop.SOLVERS`, such as "auto", "branch" and "relaxed", or an object of `diht.solvers`.
    exact : bool, default=False
        Whether, after the fast phase, to branch and bound until the gap is within `tol` or `time_limit` is reached; for the
        solvers "auto" and "branch".
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is neither penalised nor counted.
    standardize : bool, default=True
        Whether to divide each column by its weighted standard deviation (implicitly: X, dense or sparse, is neither copied nor
        changed). Coefficients are in the units of X all the same; objective, bound and gap are those of the scaled problem. The
        columns of a group have one scale, the root of the mean of their variances: it does not depend on which orthonormal basis
        the group is given in. False for columns whose units are comparable: rare words of a text, divided by their tiny
        deviations, get huge entries.
    tol : float, default=1e-4
        The relative gap at which the model counts as optimal.
    max_iter : int, optional
        Limit on steps; one step of a stochastic solver is one block of samples. If it is given and reached before `tol`,
        there is a `ConvergenceWarning`; by default each solver has its own limit and `result_.status` tells how it ended.
    time_limit : float, optional
        Limit on seconds.
    warm_start : bool, default=False
        Whether to begin from the model of the last fit (and, for as many samples, from its dual point).
    random_state : int, RandomState instance or None, default=None
        Seed of a stochastic solver; None leaves the solver its own, which is fixed.
    n_jobs : int or None, default=None
        Number of threads, -1 for all processors; None respects ``OMP_NUM_THREADS`` and the limits of threadpoolctl.
    verbose : bool, default=False
        Whether to print a line at each evaluation.
    keep : array of int, of bool or of names, optional
        Features that always have a place in the model, besides the k (and count as required); with `groups` their whole groups.
    groups : array of shape (n_features,), optional
        A label for each feature: those of one label enter and leave together, and k counts labels. What the certificate says of a
        feature is then said of its group: "without it" means without the whole group.
    sign : int, array of shape (n_features,) or (n_targets, n_features), or dict, optional
        1 for coefficients that may not be negative, -1 for those that may not be positive, 0 for those that may be both; one for
        all, one for each, or those of some features by name or index.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,) or (n_targets, n_features)
        Coefficients of at most k features.
    intercept_ : float or ndarray of shape (n_targets,)
        The intercept, 0 without one.
    support_ : ndarray of int
        Indices of the features with a nonzero coefficient for any target, ascending.
    dual_coef_ : ndarray of shape (n_samples,) or (n_targets, n_samples)
        The dual point behind the lower bound; not in an estimator that was stored and read.
    objective_ : float
        The model's objective.
    lower_bound_ : float
        No model with at most k features has a smaller objective.
    gap_ : float
        `objective_` - `lower_bound_`: the model is at most this far from the best one.
    certificate_ : Certificate
        These figures with their proof, and what is proved of each feature: `required` (indices of those in every optimal
        model), `excluded` (in none), `drop_cost` and `add_cost` (the least that a model without, or with, it costs more).
    result_ : Result
        All that the solver returned: status, passes over X, trace.
    n_iter_ : int
        Number of steps.
    n_samples_fit_ : int
        Number of samples seen during fit.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, where X has names that are all strings.
    target_names_in_ : ndarray of shape (n_targets,)
        The names of several targets, where y is a data frame with names that are all strings.

    See Also
    --------
    SparseClassifier : The same for classification.

    Notes
    -----
    The problem is NP-hard, and no solver promises its optimum. But every dual point bounds the optimum from below, so that
    `lower_bound_` holds whatever the solver did: it is not an estimate, rounding errors are accounted for. If `gap_` is
    (nearly) zero, no choice of k features does better; if not, the true distance may still be far smaller. Even then single
    features can be settled: see `certificate_.required` and `certificate_.excluded`.

    Fewer than k features are used where the solver found no more that lower the objective: other columns may be constant,
    say, or orthogonal to all that is left to explain.

    The estimator is also a selector: `get_support`, `transform` and `get_feature_names_out` speak of the features with
    a nonzero coefficient.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import SparseRegressor
    >>> X = np.random.default_rng(0).normal(size=(200, 50))
    >>> y = 3 * X[:, 7] - 2 * X[:, 30] + 1
    >>> model = SparseRegressor(k=2, lam=0.1).fit(X, y)
    >>> model.support_
    array([ 7, 30])
    >>> model.lower_bound_ <= model.objective_
    True
    >>> model.gap_ < 1e-3
    True
    """

    _task = "regression"

    def __init__(
        self,
        k: int = 10,
        lam: float = 1e-3,
        loss: str | Loss = "squared",
        solver: str | Solver = "auto",
        exact: bool = False,
        fit_intercept: bool = True,
        standardize: bool = True,
        tol: float = 1e-4,
        max_iter: int | None = None,
        time_limit: float | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        keep: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        sign: Any = None,
    ) -> None:
        self.k = k
        self.lam = lam
        self.loss = loss
        self.solver = solver
        self.exact = exact
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.keep = keep
        self.groups = groups
        self.sign = sign

    @ends_callbacks
    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None
    ) -> SparseRegressor:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples, float32 or float64 (other types become float64).
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            The targets; for the Poisson loss not negative. Several targets share the k features: the losses and ridges of their
            models add up.
        sample_weight : array-like of shape (n_samples,), optional
            Nonnegative weights; only their ratios matter.
        offset : array-like of the shape of y, optional
            Known parts of the predictions, added to x.w + b: for counts the logarithms of the exposures.

        Returns
        -------
        SparseRegressor
            The estimator itself.
        """
        data, targets = X, y
        # The design finds what is not finite.
        X, y = validated(self, X, y, y_numeric=True, multi_output=True, ensure_all_finite=False)
        y = column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y
        self._keep_target_names(targets)
        s = normalised_weights(sample_weight, X.shape[0])
        tasks = FitTasks.of(self, data, y, sample_weight, 1)
        self._solve(X, {"": y}, s, self._previous(X.shape[1]), tasks, offset)
        if tasks is not None:
            tasks.end()
        return self

    def _keep_target_names(self, y: Any) -> None:
        """Keep the names of several targets, where they are columns of a data frame and have names that are strings."""
        names = list(getattr(y, "columns", []))
        self.__dict__.pop("target_names_in_", None)
        if len(names) > 1 and all(isinstance(name, str) for name in names):
            self.target_names_in_ = np.array(names, dtype=object)

    def _model(self, coef: Array, intercept: Array) -> dict[str, Any]:
        attributes = super()._model(coef, intercept)
        return attributes if len(coef) > 1 else attributes | {"coef_": coef[0], "intercept_": intercept[0]}

    def predict(self, X: Any, offset: ArrayLike | None = None) -> Array:
        """Predict targets.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples.
        offset : array-like of shape (n_samples,), optional
            Known parts of the predictions, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions, of X's floating point type: x.w + b, or the mean that the loss takes it for (`Loss.mean`), such as
            exp(x.w + b) for the Poisson loss.
        """
        mean: Array = self._loss().mean(self._linear(X, offset))
        return mean

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None) -> float:
        """Compute the share of the targets' variation that the model explains.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples.
        y : array-like of shape (n_samples,)
            The targets.
        sample_weight : array-like of shape (n_samples,), optional
            Nonnegative weights.
        offset : array-like of shape (n_samples,), optional
            Known parts of the predictions, as in `fit`.

        Returns
        -------
        float
            R^2, or for losses whose `Loss.score` says so D^2, which has the loss in place of squares, as for the Poisson loss (and
            scikit-learn's `PoissonRegressor`).
        """
        loss = self._loss()
        if loss.score == "r2":
            return float(r2_score(y, self.predict(X, offset), sample_weight=sample_weight))
        u = np.atleast_2d(self._linear(X, offset).astype(np.float64).T)
        targets = np.atleast_2d(np.asarray(y).T)
        if len(targets) != len(u):
            raise ValueError(f"y must have {len(u)} targets, as in fit, got shape {np.shape(y)}")
        s = normalised_weights(sample_weight, u.shape[1])
        return float(np.mean([_explained(loss, *pair, s) for pair in zip(u, targets, strict=True)]))

    def _linear(self, X: Any, offset: ArrayLike | None) -> Array:
        """Return x.w + b, with the offset."""
        u: Array = self._scores(X)
        u = u[:, 0] if u.shape[1] == 1 else u
        if offset is None:
            return u
        given = np.asarray(offset)
        if u.ndim == 2 and given.shape != u.shape:
            raise ValueError(f"offset must have shape {u.shape}, got shape {given.shape}")
        total = u + finite_vector("offset", given.ravel() if u.ndim == 2 else given, u.size).reshape(u.shape)
        with np.errstate(over="ignore"):
            narrow: Array = total.astype(u.dtype)
        return narrow if np.all(np.isfinite(narrow)) else total

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = getattr(_declared(self.loss), "nonnegative_targets", False)
        method = SOLVERS.get(self.solver) if isinstance(self.solver, str) else self.solver
        tags.target_tags.multi_output = bool(getattr(method, "takes_targets", True))
        return tags


def _explained(loss: Loss, u: Vector, y: Array, s: Vector) -> float:
    """Return the share of a target's losses, beyond those of the best constant, that predictions explain."""
    y = finite_vector("y", y, len(u))
    loss.check_targets(y)
    deviance, level = float(s @ loss.value(u, y)), null_intercept(loss, y, s)
    null = float(s @ loss.value(np.full_like(y, level), y))
    return 1.0 - deviance / null if null > 0.0 else float(deviance == 0.0)


def _declared(loss: Any) -> Any:
    """Return the loss of a name; anything else as it is."""
    return ALL_LOSSES[loss]() if isinstance(loss, str) and loss in ALL_LOSSES else loss


def _has_probability(estimator: Any) -> bool:
    if getattr(_declared(estimator.loss), "has_probabilities", False):
        return True
    known = " or ".join(map(repr, losses_with_probabilities()))
    raise AttributeError(f"probabilities need loss={known}, got loss={estimator.loss!r}")


class SparseClassifier(ClassifierMixin, _SparseLinearModel):  # type: ignore[misc]
    r"""Linear classification with at most k features, and a proof of how good it is.

    .. math:: \min_{w, b} \; \sum_i s_i\, l(x_i^\top w + b, y_i) + \frac{\lambda}{2} \|w\|^2
              \quad \text{subject to} \quad \|w\|_0 \le k

    with weights s that sum to one and targets -1 and +1. More than two classes share the k features: for the logistic loss by the
    multinomial one, for others by the sum of the losses of each class against the rest.

    Parameters
    ----------
    k : int, default=10
        The largest number of features used (by each class of several where these have a choice of their own, see `multiclass`).
        More than there are: all of them, with a warning.
    lam : float, default=1e-3
        The ridge's strength, positive. The larger, the easier it is to prove a model optimal.
    loss : str or Loss, default="logistic"
        The name of a loss of classification in `diht.losses.LOSSES`, such as "logistic", "smoothed_hinge", "hinge" and
        "squared_hinge"; or "multinomial", or an object of `diht.losses` or of your own. Probabilities come with losses that are
        likelihoods, the logistic and the multinomial one. "multinomial" is the logistic loss of more than two classes; of two it
        is the logistic one with ridge lam / 2, since the classes share a coefficient w as w/2 and -w/2.
    multiclass : {"shared", "ovr"}, default="shared"
        How more than two classes are told apart: by one model, whose coefficients for a feature are zero for all classes or for
        none, so that it has at most k features; or one versus the rest, with k features for each class and a certificate for each.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply those of their samples; "balanced" gives each class the same total weight.
    solver : str or Solver, default="auto"
        The method: a name in `diht.loop.SOLVERS`, such as "auto", "branch" and "relaxed", or an object of `diht.solvers`.
    exact : bool, default=False
        Whether, after the fast phase, to branch and bound until the gap is within `tol` or `time_limit` is reached; for the
        solvers "auto" and "branch".
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is neither penalised nor counted.
    standardize : bool, default=True
        Whether to divide each column by its weighted standard deviation (implicitly: X, dense or sparse, is neither copied nor
        changed). Coefficients are in the units of X all the same; objective, bound and gap are those of the scaled problem. The
        columns of a group have one scale, the root of the mean of their variances: it does not depend on which orthonormal basis
        the group is given in. False for columns whose units are comparable: rare words of a text, divided by their tiny
        deviations, get huge entries.
    tol : float, default=1e-4
        The relative gap at which the model counts as optimal.
    max_iter : int, optional
        Limit on steps; one step of a stochastic solver is one block of samples. If it is given and reached before `tol`,
        there is a `ConvergenceWarning`; by default each solver has its own limit and `result_.status` tells how it ended.
    time_limit : float, optional
        Limit on seconds, shared evenly among the classes where there are more than two.
    warm_start : bool, default=False
        Whether to begin from the model of the last fit (and, for as many samples, from its dual point).
    random_state : int, RandomState instance or None, default=None
        Seed of a stochastic solver; None leaves the solver its own, which is fixed.
    n_jobs : int or None, default=None
        Number of threads, -1 for all processors; None respects ``OMP_NUM_THREADS`` and the limits of threadpoolctl.
    verbose : bool, default=False
        Whether to print a line at each evaluation.
    keep : array of int, of bool or of names, optional
        Features that always have a place in the model, besides the k (and count as required); with `groups` their whole groups.
    groups : array of shape (n_features,), optional
        A label for each feature: those of one label enter and leave together, and k counts labels. What the certificate says of a
        feature is then said of its group: "without it" means without the whole group.
    sign : int, array of shape (n_features,) or (n_classes, n_features), or dict, optional
        1 for coefficients that may not be negative, -1 for those that may not be positive, 0 for those that may be both; one for
        all, one for each, or those of some features by name or index. Coefficients of the multinomial loss sum to zero for every
        feature, so that it needs a row for each class.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients of at most k features, with ``multiclass="ovr"`` at most k in a row. Two classes have one row, which speaks for
        the second class.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The intercepts, 0 without.
    support_ : ndarray of int
        Indices of the features with a nonzero coefficient for any class, ascending.
    dual_coef_ : ndarray of shape (n_samples,) or (n_classes, n_samples)
        The dual points behind the lower bounds; not in an estimator that was stored and read.
    objective_ : float or ndarray of shape (n_classes,)
        The objective; with ``multiclass="ovr"`` that of each of more than two classes against the rest.
    lower_bound_ : float or ndarray of shape (n_classes,)
        No model with at most k features has a smaller objective.
    gap_ : float or ndarray of shape (n_classes,)
        `objective_` - `lower_bound_`: the model is at most this far from the best one.
    certificate_ : Certificate or list of Certificate
        These figures with their proof, and what is proved of each feature: `required` (indices of those in every optimal
        model), `excluded` (in none), `drop_cost` and `add_cost` (the least that a model without, or with, it costs more). With
        ``multiclass="ovr"`` one for each of more than two classes against the rest.
    result_ : Result or list of Result
        All that the solver returned: status, passes over X, trace.
    n_iter_ : int
        Number of steps, the largest of the classes.
    n_samples_fit_ : int
        Number of samples seen during fit.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, where X has names that are all strings.

    See Also
    --------
    SparseRegressor : The same for regression.

    Notes
    -----
    The problem is NP-hard, and no solver promises its optimum. But every dual point bounds the optimum from below, so that
    `lower_bound_` holds whatever the solver did: it is not an estimate, rounding errors are accounted for. If `gap_` is
    (nearly) zero, no choice of k features does better; if not, the true distance may still be far smaller. Even then single
    features can be settled: see `certificate_.required` and `certificate_.excluded`.

    Fewer than k features are used where the solver found no more that lower the objective: other columns may be constant,
    say, or orthogonal to all that is left to explain.

    Probabilities of more than two classes are the model's own; with ``multiclass="ovr"`` they are those of each class against the
    rest, divided by their sum. Weights of the classes shift probabilities: they are those of the weighted sample.

    The estimator is also a selector: `get_support`, `transform` and `get_feature_names_out` speak of the features with
    a nonzero coefficient.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import SparseClassifier
    >>> X = np.random.default_rng(0).normal(size=(300, 40))
    >>> y = np.where(X[:, 3] - X[:, 20] > 0, "yes", "no")
    >>> model = SparseClassifier(k=2, lam=0.1).fit(X, y)
    >>> model.support_
    array([ 3, 20])
    >>> model.lower_bound_ <= model.objective_
    True
    >>> model.predict(X[:3]).tolist() == y[:3].tolist()
    True
    """

    _task = "classification"

    def __init__(
        self,
        k: int = 10,
        lam: float = 1e-3,
        loss: str | Loss = "logistic",
        class_weight: Any = None,
        solver: str | Solver = "auto",
        exact: bool = False,
        fit_intercept: bool = True,
        standardize: bool = True,
        tol: float = 1e-4,
        max_iter: int | None = None,
        time_limit: float | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        keep: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        sign: Any = None,
        multiclass: str = "shared",
    ) -> None:
        self.k = k
        self.lam = lam
        self.loss = loss
        self.multiclass = multiclass
        self.class_weight = class_weight
        self.solver = solver
        self.exact = exact
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.keep = keep
        self.groups = groups
        self.sign = sign

    @ends_callbacks
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> SparseClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples, float32 or float64 (other types become float64).
        y : array-like of shape (n_samples,)
            The classes, of any type that can be sorted.
        sample_weight : array-like of shape (n_samples,), optional
            Nonnegative weights; only their ratios matter.

        Returns
        -------
        SparseClassifier
            The estimator itself.
        """
        data = X
        X, y = validated(self, X, y, ensure_all_finite=False)  # the design finds what is not finite
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y must hold at least two classes, got only one class: {classes.tolist()[0]!r}")
        s = _class_weighted(normalised_weights(sample_weight, X.shape[0]), self.class_weight, classes, codes)
        same_classes = np.array_equal(getattr(self, "classes_", ()), classes)
        previous = self._previous(X.shape[1]) if same_classes else None
        self.classes_ = classes
        targets = self._class_targets(classes, codes)
        tasks = FitTasks.of(self, data, y, sample_weight, len(targets))
        self._solve(X, targets, s, previous, tasks)
        if tasks is not None:
            tasks.end()
        return self

    def _class_targets(self, classes: Array, codes: NDArray[np.intp]) -> dict[str, Vector]:
        """Return the targets of each problem by what to print before a line."""
        if self.multiclass not in ("shared", "ovr"):
            raise ValueError(f"multiclass must be 'shared' or 'ovr', got {self.multiclass!r}")
        if self.multiclass == "shared" or len(classes) == 2:
            return {"": class_targets(len(classes), codes, self._loss())[0]}
        if self._loss().coupled:
            raise ValueError(f"multiclass='ovr' cannot be used with loss={self.loss!r}, which is one of all classes")
        return {f"class {label!r}: ": np.where(codes == j, 1.0, -1.0) for j, label in enumerate(classes.tolist())}

    @property
    def _n_classes(self) -> int:
        """The number of classes, two where none are known yet."""
        return len(getattr(self, "classes_", ())) or 2

    def _fitted_loss(self) -> Loss:
        """Return the loss of the problems that are solved."""
        if self._n_classes == 2:
            return self._loss().of_two_classes()[0]
        return self._loss().of_classes() if self.multiclass == "shared" else self._loss()

    @property
    def _ridge(self) -> Any:
        """The ridge of the problems that are solved."""
        halved = self._n_classes == 2 and isinstance(self.lam, Real)
        return self._loss().of_two_classes()[1] * self.lam if halved else self.lam

    @property
    def _lam(self) -> float:
        return super()._lam * (self._loss().of_two_classes()[1] if self._n_classes == 2 else 1.0)

    def decision_function(self, X: Any) -> Array:
        """Compute x.w + b.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores, of X's floating point type: with two classes those of the second one.
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Predict classes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples.

        Returns
        -------
        ndarray of shape (n_samples,)
            The class with the largest score.
        """
        scores = self._scores(X)
        codes = (scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)
        labels: Array = self.classes_[codes]
        return labels

    @available_if(_has_probability)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """Compute the probabilities of the classes; for losses that are likelihoods.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, which sum to one for each sample.
        """
        return np.asarray(np.exp(self.predict_log_proba(X)))

    @available_if(_has_probability)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """Compute the logarithms of the probabilities of the classes; for losses that are likelihoods.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Logarithms of probabilities.
        """
        log_p: Array = self._fitted_loss().log_likelihoods(self._scores(X))
        return np.asarray(log_p - logsumexp(log_p, axis=1, keepdims=True))


def validated(estimator: Any, X: Any, *y: Any, **settings: Any) -> Any:
    """Return X, and y where it is given, as scikit-learn checks them; a column without numbers is refused by its name."""
    kinds = getattr(X, "dtypes", None)
    if kinds is not None and hasattr(X, "columns"):
        for name, kind in zip(X.columns, kinds, strict=True):
            _check_kind(f"column {name!r} of X", X[name], kind)
    elif hasattr(X, "dtype") and not issparse(X):
        _check_dates("X", X.dtype)
    return validate_data(estimator, X, *y, **_FORMATS, **settings)


def _check_kind(what: str, column: Any, kind: Any) -> None:
    """Raise unless the cells of a data frame's column are numbers, or stand for some."""
    _check_dates(what, kind)
    if getattr(kind, "kind", "O") == "O":
        try:
            np.asarray(column, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{what} must hold numbers, got type {kind} ({error})") from None


def _check_dates(what: str, kind: Any) -> None:
    if getattr(kind, "kind", "") in "mM":
        raise ValueError(f"{what} must hold numbers, got dates or times of type {kind}")


def _class_weighted(s: Vector, class_weight: Any, classes: Array, codes: NDArray[np.intp]) -> Vector:
    """Multiply the weights by those of the classes; every class must keep some weight."""
    totals = np.bincount(codes, weights=s)
    if class_weight is None:
        factors = np.ones(len(classes))
    elif isinstance(class_weight, str) and class_weight == "balanced":
        factors = 1.0 / np.where(totals > 0, totals, 1.0)
    else:
        factors = compute_class_weight(class_weight, classes=classes, y=classes[codes])
        if not np.all(factors >= 0):
            raise ValueError(f"class_weight must not be negative, got {class_weight!r}")
    empty = np.flatnonzero(totals * factors == 0)
    if len(empty):
        name = classes.tolist()[empty[0]]
        raise ValueError(f"every class needs some weight, but class {name!r} has none, or none beside the others")
    return s if class_weight is None else normalised_weights(s * factors[codes], len(s))


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
    mean, variance = design.moments(s)
    rounding = len(s) * np.finfo(np.float64).eps * np.abs(mean)
    scale = np.sqrt(constraint.pooled(np.where(np.sqrt(variance) <= rounding, 0.0, variance)))
    return np.where(scale > 0.0, scale, 1.0)


def _in_users_units(w: Array, scale: Vector | None, dtype: np.dtype[Any]) -> Array:
    """Return coefficients of the columns of X from those of the scaled columns."""
    return (w if scale is None else w / scale).astype(dtype)


def _blas_threads(n_jobs: int | None) -> AbstractContextManager[Any]:
    """Limit the threads of linear algebra libraries as those of the kernels are, where the user asks for it."""
    if n_jobs is None:
        return nullcontext()
    limits: AbstractContextManager[Any] = threadpool_limits(effective_n_threads(n_jobs), user_api="blas")
    return limits

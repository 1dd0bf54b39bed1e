"""Regression with at most k features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from diht.constraints.base import Constraint
from diht.estimators.base import SparseLinearModel, declared, validated
from diht.estimators.callbacks import FitTasks, ends_callbacks
from diht.estimators.lazy import lazy_for_dask
from diht.estimators.namespaces import hosted
from diht.estimators.parameters import keep_parameters
from diht.estimators.table_encoder import TableEncoder
from diht.gpu import on_host
from diht.losses import Loss
from diht.numerics.arrays import Array, Vector
from diht.problem import Targets, finite_vector, normalised_weights
from diht.samples import null_intercept
from diht.solvers import Solver
from diht.solvers.loop import SOLVERS

if TYPE_CHECKING:
    from diht.dask.data import RemoteData
    from diht.samples.remote import RemoteSamples

__all__ = ["SparseRegressor"]


class SparseRegressor(RegressorMixin, SparseLinearModel):  # type: ignore[misc]
    r"""Linear regression with at most k features, and a proof of how good it is.

    .. math:: \min_{w, b} \; \sum_i s_i\, l(x_i^\top w + b, y_i) + \frac{\lambda}{2} \|w\|^2
              \quad \text{subject to} \quad \|w\|_0 \le k

    with weights s that sum to one.

    Parameters
    ----------
    k : int or Constraint, default=10
        The largest number of features used. More than there are: all of them, with a warning. Or what `diht.per_group` (at most so
        many of each group), `diht.within_budget` (features have costs) and `diht.heredity` (interactions only with their main
        effects) return; without `keep` and `groups` then.
    lam : float, default=1e-3
        The ridge's strength, positive. The larger, the easier it is to prove a model optimal.
    loss : str or Loss, default="squared"
        The name of a loss of regression in `diht.losses.LOSSES`, such as "squared" for (y - u)^2, "huber" for Huber's loss,
        "quantile(q=0.9)" for the pinball loss of a quantile (several, which share features: "quantile(q=[0.1, 0.9])"),
        "poisson" for half the Poisson deviance of counts with mean exp(u),
        "negative_binomial(dispersion=0.5)", "gamma" and "tweedie(power=1.5)"; or an object of `diht.losses` or of your own.
    solver : str or Solver, default="auto"
        The method: a name in `diht.solvers.loop.SOLVERS`, such as "auto", "branch" and "relaxed", or an object of `diht.solvers`.
    exact : bool, default=False
        Whether to branch and bound until the gap is within `tol` or `time_limit` is reached, and not only within the budget of
        the default; for the solvers "auto" and "branch".
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
    groups : array of shape (n_features,), "auto", or None, default=None
        A label for each feature: those of one label enter and leave together, and k counts labels; "auto" takes those of the
        `TableEncoder` before it in a pipeline. What the certificate says of a
        feature is then said of its group: "without it" means without the whole group.
    sign : int, array of shape (n_features,) or (n_targets, n_features), or dict, optional
        1 for coefficients that may not be negative, -1 for those that may not be positive, 0 for those that may be both; one for
        all, one for each, or those of some features by name or index.
    bounds : pair, scipy.optimize.Bounds or dict, optional
        Lower and upper limits of the coefficients, in the units of X: (lower, upper), each a number for all of them, an array of
        the shapes of `sign`, or None; or a dict of such pairs of numbers for some features by name or index. Lower limits are at
        most zero, upper ones at least; infinite ones are none. With `sign`, both hold.
    encoder : TableEncoder or None, default=None
        How a data frame becomes numbers. None takes a `TableEncoder` where a column holds texts or categories, and no encoder
        else. One that is given, such as ``TableEncoder(impute="median")``, is used for every data frame. `keep`, `groups`, `sign`
        and `bounds` then speak of the columns of the data frame; without `groups` a category is one group.
    device : str, optional
        Where to fit: "cuda", or "cuda:1" for one of several, moves the data there (needs the extra ``gpu``). By default large
        arrays of torch, cupy and JAX on a GPU are fitted where they are, and all others by the host. See :doc:`/gpu`.

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
    encoder_ : TableEncoder
        What turned a data frame into numbers, where that was needed. `coef_` and `support_` speak of the columns that it made,
        whose names are `coef_names_`; `get_support`, `get_feature_names_out` and `transform` of the columns of the data frame.
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
    a nonzero coefficient, so that it can be a step of a pipeline as it is. scikit-learn's `SelectFromModel` keeps coefficients of
    at least their mean size, fewer than the model has; ``SelectFromModel(model, threshold=1e-300)`` keeps all that are not zero. On
    a data frame with texts `coef_` has more entries than X has columns: `SelectFromModel` needs
    ``importance_getter=lambda model: model.get_support()`` and ``threshold=0.5`` there.

    Ctrl-C ends a fit in the main thread with the best model found so far and a warning; a second one interrupts.

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
        k: int | Constraint = 10,
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
        groups: ArrayLike | str | None = None,
        sign: Any = None,
        bounds: Any = None,
        encoder: TableEncoder | None = None,
        device: Any = None,
    ) -> None:
        keep_parameters(self, locals())

    @ends_callbacks
    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None
    ) -> SparseRegressor:
        """Fit the model.

        Parameters
        ----------
        X : data frame, array-like or sparse matrix of shape (n_samples, n_features)
            The samples, float32 or float64 (other types become float64). The columns of a data frame may be categories, too. Also a
            Dask collection, a tensor of torch (dense, CSR), or an array of cupy or JAX.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
            The targets; for losses of a mean exp(u) not negative, for the gamma loss positive. Several targets share the k
            features: the losses and ridges of their models add up.
        sample_weight : array-like of shape (n_samples,), optional
            Nonnegative weights; only their ratios matter.
        offset : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            Known parts of the predictions, added to x.w + b: for counts the logarithms of the exposures.

        Returns
        -------
        SparseRegressor
            The estimator itself.
        """
        if self._fitted_elsewhere(X, y, sample_weight, offset):
            return self
        X, y, sample_weight, offset = map(on_host, (X, y, sample_weight, offset))
        data, targets = X, y
        # The design finds what is not finite.
        X, y = validated(self, X, y, y_numeric=True, multi_output=True, ensure_all_finite=False)
        y = self._targets_of(y)
        self._keep_target_names(targets)
        s = normalised_weights(sample_weight, X.shape[0])
        tasks = FitTasks.of(self, data, y, sample_weight, 1)
        self._solve(X, {"": y}, s, self._previous(X.shape[1]), tasks, offset)
        if tasks is not None:
            tasks.end()
        return self

    def _targets_there(self, data: RemoteData) -> tuple[RemoteSamples, dict[str, Targets]]:
        """Return the samples, and their targets, of rows that live elsewhere."""
        samples = data.samples
        self.__dict__.pop("target_names_in_", None)
        return samples, {"": Targets(data.targets(), data.n_targets) if data.n_targets else Targets(samples.y)}

    def _keep_target_names(self, y: Any) -> None:
        """Keep the names of several targets, where they are columns of a data frame and have names that are strings."""
        names = list(getattr(y, "columns", []))
        self.__dict__.pop("target_names_in_", None)
        if len(names) > 1 and all(isinstance(name, str) for name in names):
            self.target_names_in_ = np.array(names, dtype=object)
        elif labels := self._loss().labels:
            self.target_names_in_ = np.array(labels, dtype=object)

    def _model(self, coef: Array, intercept: Array) -> dict[str, Any]:
        attributes = super()._model(coef, intercept)
        return attributes if len(coef) > 1 else attributes | {"coef_": coef[0], "intercept_": intercept[0]}

    @lazy_for_dask
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
            exp(x.w + b) for the Poisson, negative binomial, gamma and Tweedie losses.
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
        y, sample_weight = on_host(y), on_host(sample_weight)
        u = np.atleast_2d(hosted(self)._linear(X, on_host(offset)).astype(np.float64).T)
        targets = np.atleast_2d(self._targets_of(np.asarray(y)).T)
        if len(targets) != len(u):
            raise ValueError(f"y must have {len(u)} targets, as in fit, got shape {np.shape(y)}")
        s = normalised_weights(sample_weight, u.shape[1])
        return float(
            np.mean([_explained(loss.of_target(c), *pair, s) for c, pair in enumerate(zip(u, targets, strict=True))])
        )

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
        tags.target_tags.positive_only = getattr(declared(self.loss), "nonnegative_targets", False)
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

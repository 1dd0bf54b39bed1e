"""Classification with at most k features."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin

from diht.constraints.base import Constraint
from diht.dask import is_dask
from diht.estimators.base import (
    SparseLinearModel,
    class_factors,
    class_targets,
    class_weighted,
    classes_of,
    declared,
    validated,
)
from diht.estimators.callbacks import FitTasks, ends_callbacks
from diht.estimators.lazy import lazy_for_dask
from diht.estimators.namespaces import dispatches, fit_in_namespace
from diht.estimators.table_encoder import TableEncoder
from diht.gpu import is_on_device, on_host
from diht.losses import Loss, losses_with_probabilities
from diht.losses.base import log_probabilities
from diht.problem import Targets, normalised_weights
from diht.solvers import Solver

if TYPE_CHECKING:
    from diht.dask.data import RemoteData
    from diht.samples.remote import RemoteSamples

__all__ = ["SparseClassifier"]

Array = NDArray[Any]
Vector = NDArray[np.float64]


class _OfLikelihoods:
    """A method that only estimators have whose loss is a likelihood; unlike scikit-learn's `available_if` it says why."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method

    def __get__(self, estimator: Any, kind: Any = None) -> Callable[..., Any]:
        if estimator is None:
            return self.method
        _check_probabilities(estimator)
        return MethodType(self.method, estimator)


def _check_probabilities(estimator: Any) -> None:
    if getattr(declared(estimator.loss), "has_probabilities", False):
        return
    known = " or ".join(map(repr, losses_with_probabilities()))
    raise AttributeError(
        f"probabilities need loss={known}, got loss={estimator.loss!r}; with this loss, "
        "sklearn.calibration.CalibratedClassifierCV(model) estimates them on held-out samples"
    )


class SparseClassifier(ClassifierMixin, SparseLinearModel):  # type: ignore[misc]
    r"""Linear classification with at most k features, and a proof of how good it is.

    .. math:: \min_{w, b} \; \sum_i s_i\, l(x_i^\top w + b, y_i) + \frac{\lambda}{2} \|w\|^2
              \quad \text{subject to} \quad \|w\|_0 \le k

    with weights s that sum to one and targets -1 and +1. More than two classes share the k features: for the logistic loss by the
    multinomial one, for others by the sum of the losses of each class against the rest.

    Parameters
    ----------
    k : int or Constraint, default=10
        The largest number of features used (by each class of several where these have a choice of their own, see `multiclass`).
        More than there are: all of them, with a warning. Or what `diht.per_group` (at most so many of each group),
        `diht.within_budget` (features have costs) and `diht.heredity` (interactions only with their main effects) return; without
        `keep` and `groups` then.
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
    groups : array of shape (n_features,), "auto", or None, default=None
        A label for each feature: those of one label enter and leave together, and k counts labels; "auto" takes those of the
        `TableEncoder` before it in a pipeline. What the certificate says of a
        feature is then said of its group: "without it" means without the whole group.
    sign : int, array of shape (n_features,) or (n_classes, n_features), or dict, optional
        1 for coefficients that may not be negative, -1 for those that may not be positive, 0 for those that may be both; one for
        all, one for each, or those of some features by name or index. Coefficients of the multinomial loss sum to zero for every
        feature, so that it needs a row for each class.
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
    encoder_ : TableEncoder
        What turned a data frame into numbers, where that was needed. `coef_` and `support_` speak of the columns that it made,
        whose names are `coef_names_`; `get_support`, `get_feature_names_out` and `transform` of the columns of the data frame.

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
    a nonzero coefficient, so that it can be a step of a pipeline as it is. scikit-learn's `SelectFromModel` keeps coefficients of
    at least their mean size, fewer than the model has; ``SelectFromModel(model, threshold=1e-300)`` keeps all that are not zero. On
    a data frame with texts `coef_` has more entries than X has columns: `SelectFromModel` needs
    ``importance_getter=lambda model: model.get_support()`` and ``threshold=0.5`` there.

    Ctrl-C ends a fit in the main thread with the best model found so far and a warning; a second one interrupts.

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
        k: int | Constraint = 10,
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
        groups: ArrayLike | str | None = None,
        sign: Any = None,
        bounds: Any = None,
        multiclass: str = "shared",
        encoder: TableEncoder | None = None,
        device: Any = None,
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
        self.bounds = bounds
        self.encoder = encoder
        self.device = device

    @ends_callbacks
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> SparseClassifier:
        """Fit the model.

        Parameters
        ----------
        X : data frame, array-like or sparse matrix of shape (n_samples, n_features)
            The samples, float32 or float64 (other types become float64). The columns of a data frame may be categories, too. Also a
            Dask collection, a tensor of torch (dense, CSR), or an array of cupy or JAX.
        y : array-like of shape (n_samples,)
            The classes, of any type that can be sorted.
        sample_weight : array-like of shape (n_samples,), optional
            Nonnegative weights; only their ratios matter.

        Returns
        -------
        SparseClassifier
            The estimator itself.
        """
        if dispatches(X):
            moved: SparseClassifier = fit_in_namespace(self, X, y, sample_weight)
            return moved
        if is_on_device(X, self.device):
            found: SparseClassifier = self._fit_on_device(X, y, sample_weight)
            return found
        X, y, sample_weight = map(on_host, (X, y, sample_weight))
        if is_dask(X):
            fitted: SparseClassifier = self._fit_dask(X, y, sample_weight)
            return fitted
        data = X
        X, y = validated(self, X, y, ensure_all_finite=False)  # the design finds what is not finite
        classes, codes = classes_of(y)
        s = class_weighted(normalised_weights(sample_weight, X.shape[0]), self.class_weight, classes, codes)
        same_classes = np.array_equal(on_host(getattr(self, "classes_", ())), classes)
        previous = self._previous(X.shape[1]) if same_classes else None
        self.classes_ = classes
        targets = self._class_targets(classes, codes)
        tasks = FitTasks.of(self, data, y, sample_weight, len(targets))
        self._solve(X, targets, s, previous, tasks)
        if tasks is not None:
            tasks.end()
        return self

    def _targets_there(self, data: RemoteData) -> tuple[RemoteSamples, dict[str, Targets]]:
        """Return the samples, weighted, and the targets of each problem, of rows that live elsewhere."""
        from diht.estimators.there import class_targets_there

        assert data.classes is not None
        classes, samples, n = data.classes, data.samples, len(data.classes)
        self._check_multiclass(n)
        totals = np.sum(samples.each(lambda y, s: np.bincount(y.astype(np.int64), s, n)), axis=0)
        factors = class_factors(totals, self.class_weight, classes)
        if self.class_weight is not None:
            factors = factors / float(factors @ totals)
            samples = samples.with_weights(
                samples.map(lambda y, s: s * sum(f * (y == j) for j, f in enumerate(factors)))
            )
        if not np.array_equal(on_host(getattr(self, "classes_", ())), classes):
            self.__dict__.pop("result_", None)  # nothing to begin from
        self.classes_ = classes

        def against_rest(j: int) -> Targets:
            return Targets(samples.map(lambda y, s: np.where(y == j, 1.0, -1.0)))

        if self.multiclass == "ovr" and n > 2:
            labels = enumerate(classes.tolist())
            return samples, {f"class {label!r}: ": against_rest(j) for j, label in labels}
        return samples, {"": class_targets_there(samples, n, self._loss())[0]}

    def _check_multiclass(self, n_classes: int) -> None:
        if self.multiclass not in ("shared", "ovr"):
            raise ValueError(f"multiclass must be 'shared' or 'ovr', got {self.multiclass!r}")
        if self.multiclass == "ovr" and n_classes > 2 and self._loss().coupled:
            raise ValueError(f"multiclass='ovr' cannot be used with loss={self.loss!r}, which is one of all classes")

    def _class_targets(self, classes: Array, codes: NDArray[np.intp]) -> dict[str, Vector]:
        """Return the targets of each problem by what to print before a line."""
        self._check_multiclass(len(classes))
        if self.multiclass == "shared" or len(classes) == 2:
            return {"": class_targets(len(classes), codes, self._loss())[0]}
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

    @lazy_for_dask
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

    @lazy_for_dask
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

    @_OfLikelihoods
    @lazy_for_dask
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

    @_OfLikelihoods
    @lazy_for_dask
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
        return np.asarray(log_probabilities(log_p))

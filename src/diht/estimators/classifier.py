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
from diht.estimators.parameters import documented, keep_parameters
from diht.estimators.regressor import SparseRegressor
from diht.estimators.table_encoder import TableEncoder
from diht.estimators.there import class_targets_there
from diht.gpu import on_host
from diht.losses import Loss, losses_with_probabilities
from diht.losses.base import log_probabilities
from diht.numerics.arrays import Array, Vector
from diht.problem import Targets, normalised_weights
from diht.solvers import Solver

if TYPE_CHECKING:
    from diht.dask.data import RemoteData
    from diht.samples.remote import RemoteSamples

__all__ = ["SparseClassifier"]


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


@documented(SparseRegressor)
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
    lam
        As in `SparseRegressor`.
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
    solver, exact, fit_intercept, standardize, tol, max_iter
        As in `SparseRegressor`.
    time_limit : float, optional
        Limit on seconds, shared evenly among the classes where there are more than two.
    warm_start, random_state, n_jobs, verbose, keep, groups
        As in `SparseRegressor`.
    sign : int, array of shape (n_features,) or (n_classes, n_features), or dict, optional
        1 for coefficients that may not be negative, -1 for those that may not be positive, 0 for those that may be both; one for
        all, one for each, or those of some features by name or index. Coefficients of the multinomial loss sum to zero for every
        feature, so that it needs a row for each class.
    bounds, encoder, device
        As in `SparseRegressor`.

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
    n_samples_fit_, n_features_in_, feature_names_in_, encoder_
        As in `SparseRegressor`.

    See Also
    --------
    SparseRegressor : The same for regression.

    Notes
    -----
    As in `SparseRegressor`.

    Probabilities of more than two classes are the model's own; with ``multiclass="ovr"`` they are those of each class against the
    rest, divided by their sum. Weights of the classes shift probabilities: they are those of the weighted sample.

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
        keep_parameters(self, locals())

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
        if self._fitted_elsewhere(X, y, sample_weight):
            return self
        X, y, sample_weight = map(on_host, (X, y, sample_weight))
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

"""Ordered classes with at most k features: proportional odds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, column_or_1d

from diht.estimators.base import class_weighted
from diht.estimators.cox import SparseCox
from diht.estimators.joint import JointModel
from diht.estimators.parameters import documented, keep_parameters
from diht.estimators.path import Path
from diht.joint.likelihood import Named
from diht.joint.odds import ProportionalOdds
from diht.numerics.arrays import Array, Indices, Vector
from diht.persistence.joint import JointFile
from diht.problem import normalised_weights

__all__ = ["SparseOrdinalClassifier", "joint_model_of"]


@documented(SparseCox)
class SparseOrdinalClassifier(ClassifierMixin, JointModel):  # type: ignore[misc]
    r"""Ordered classes with at most k features, and a proved bound on how much better another choice of features could be.

    Proportional odds (the cumulative logit model): :math:`P(y \le c) = 1 / (1 + e^{x^\top w - t_c})`, with one w for all classes
    and ascending thresholds t that are neither penalised nor counted. Fitting minimises

    .. math:: - \sum_i s_i \log P(y_i \mid x_i) + \frac\lambda2 \|w\|^2 \quad \text{subject to} \quad \|w\|_0 \le k

    with weights s that sum to one.

    Parameters
    ----------
    k, lam
        As in `SparseCox`.
    classes : sequence, optional
        The classes in ascending order. By default those of y, sorted; of an ordered pandas categorical, its own order.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply those of their samples.
    exact, standardize, tol, time_limit, keep
        As in `SparseCox`.

    Attributes
    ----------
    classes_ : ndarray
        The classes, ascending.
    coef_ : ndarray of shape (n_features,)
        At most k are not zero; a positive one speaks for higher classes.
    thresholds_ : ndarray of shape (n_classes - 1,)
        Ascending; x.w is compared with them.
    support_, objective_, lower_bound_, gap_, status_, n_nodes_
        As in `SparseCox`.
    result_, certificate_
        These figures as `SparseClassifier` has them; the proof is not kept.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    With two classes this is `SparseClassifier` with the logistic loss. The likelihood is no sum of functions of single predictions,
    for all share the thresholds: `solve` and `certify` do not know it. Paths, cross-validation, files and reports are methods of
    the estimator. X is dense, in memory.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import SparseOrdinalClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 10))
    >>> y = np.digitize(X[:, 3] - X[:, 7] + 0.5 * rng.logistic(size=300), [-1, 0, 1])
    >>> model = SparseOrdinalClassifier(k=2, lam=0.01).fit(X, y)
    >>> model.support_
    array([3, 7])
    >>> model.gap_ <= 1e-4 * model.objective_
    True
    """

    _task: ClassVar[str] = "ordinal"

    def __init__(
        self,
        k: int = 10,
        lam: float = 1e-3,
        classes: Sequence[Any] | None = None,
        class_weight: Any = None,
        exact: bool = False,
        standardize: bool = True,
        tol: float = 1e-4,
        time_limit: float | None = None,
        keep: ArrayLike | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> SparseOrdinalClassifier:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            The classes.
        sample_weight : array-like of shape (n_samples,), optional
            Not negative; only their ratios matter.

        Returns
        -------
        SparseOrdinalClassifier
        """
        self._check_settings()
        X = self._validated(X)
        self.classes_, codes = self._codes(y, len(X))
        s = self._weights(codes, sample_weight)
        likelihood = ProportionalOdds(codes, s)
        u = self._solve(X, s, likelihood)
        self.thresholds_ = likelihood.thresholds(u) + float(self.center_ @ self.coef_)
        return self

    def _codes(self, y: Any, n: int) -> tuple[Array, Indices]:
        """Return the classes, ascending, and the place of each sample's among them."""
        ordered = getattr(y, "cat", getattr(y, "values", None))
        given = self.classes
        if given is None and getattr(ordered, "ordered", False):
            given = ordered.categories  # type: ignore[union-attr]
        labels = column_or_1d(np.asarray(y))
        if len(labels) != n:
            raise ValueError(f"y must have a class for each of the {n} samples, got {len(labels)}")
        found = np.unique(labels)
        if given is not None:
            classes = np.asarray(given)
            strangers = [label for label in found.tolist() if label not in classes.tolist()]
            if strangers or classes.ndim != 1 or len(np.unique(classes)) < len(classes):
                raise ValueError(f"classes must hold each class of y once, got {given!r}")
            found = classes[np.isin(classes, found)]
        if len(found) < 2:
            raise ValueError(f"y must hold at least two classes, got only one class: {found.tolist()[0]!r}")
        order = np.argsort(found, kind="stable")
        return found, order[np.searchsorted(found[order], labels)].astype(np.int64)

    def _weights(self, codes: Indices, sample_weight: ArrayLike | None) -> Vector:
        s = normalised_weights(sample_weight, len(codes))
        return class_weighted(s, self.class_weight, self.classes_, codes)

    def path(self, X: Any, y: Any, sample_weight: ArrayLike | None = None, *, ks: Sequence[int] | None = None) -> Path:
        """Fit models for many k, each from the one before and with a bound of its own; the estimator stays as it is.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        ks : sequence of int, optional
            Numbers of features; by default some from 1 to 50, or to all.

        Returns
        -------
        Path
            As `sparse_path` returns it.
        """
        self._check_settings()
        model = clone(self)
        X = model._validated(X)
        model.classes_, codes = model._codes(y, len(X))
        s = model._weights(codes, sample_weight)
        path: Path = model._followed(X, s, ProportionalOdds(codes, s), ks, model._named())
        return path

    def cross_validated(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        ks: Sequence[int] | None = None,
        cv: Any = None,
    ) -> SparseOrdinalClassifier:
        """Choose k by cross-validation, and fit: the least k whose mean log-likelihood is within a standard error of the best.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        ks : sequence of int, optional
            Numbers of features to try; by default about ten, up to 30 or a tenth of the samples.
        cv : int or cross-validation generator, optional
            The folds, five by default, with all classes in each as far as can be.

        Returns
        -------
        SparseOrdinalClassifier
            Another estimator, fitted, with `best_k_` and `cv_results_` as that of scikit-learn's `GridSearchCV`.
        """
        self._check_settings()
        model = clone(self)
        rows = model._validated(X)
        model.classes_, codes = model._codes(y, len(rows))
        s = model._weights(codes, sample_weight)
        fold = {}

        def likelihood_of(train: Indices) -> tuple[ProportionalOdds, Vector]:
            if len(np.unique(codes[train])) < len(model.classes_):
                raise ValueError("cv must leave samples of every class in each fold's training samples")
            part = s[train] / s[train].sum()
            fold["f"] = ProportionalOdds(codes[train], part)
            return fold["f"], part

        def score(coef: Vector, center: Vector, train: Indices, test: Indices) -> float:
            t = fold["f"].thresholds((rows[train] - center) @ coef)
            p = class_probabilities((rows[test] - center) @ coef, t)[np.arange(len(test)), codes[test]]
            return float(np.average(np.log(np.maximum(p, np.finfo(np.float64).tiny)), weights=s[test]))

        found = self._chosen(rows, codes, likelihood_of, score, ks, cv)
        fitted: SparseOrdinalClassifier = found.fit(X, y, sample_weight)
        return fitted

    def decision_function(self, X: Any) -> Vector:
        """Return x.w, which is compared with `thresholds_`."""
        return self._centred(X) + float(self.center_ @ self.coef_)

    def predict_proba(self, X: Any) -> Vector:
        """Return the probabilities of the classes, a row for each sample."""
        u = self._centred(X)
        return class_probabilities(u, self.thresholds_ - float(self.center_ @ self.coef_))

    def predict(self, X: Any) -> Array:
        """Return the most probable class of each sample."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])

    def _named(self) -> Named:
        return Named("proportional_odds", link="logit")

    def _extra(self) -> dict[str, Any]:
        return {"classes": self.classes_.tolist(), "thresholds": self.thresholds_.tolist()}

    def _taken(self, file: JointFile) -> None:
        super()._taken(file)
        self.classes_, self.thresholds_ = np.array(file.extra["classes"]), np.array(file.extra["thresholds"])
        self.classes = None if self.classes_.tolist() == sorted(self.classes_.tolist()) else self.classes_.tolist()


def class_probabilities(u: Vector, t: Vector) -> Vector:
    """Return the probabilities of the classes between thresholds: products, which keep their digits where they are small."""
    below, above = expit(t - u[:, None]), expit(u[:, None] - t)
    gaps = -np.expm1(-np.diff(t))
    between = below[:, 1:] * above[:, :-1] * gaps
    return np.hstack([below[:, :1], between, above[:, -1:]])


def joint_model_of(file: JointFile) -> JointModel:
    """Return a model that was read from a file as a fitted estimator."""
    kind: Any = SparseCox if file.task == "survival" else SparseOrdinalClassifier
    model: JointModel = kind(k=file.k, lam=file.lam, standardize=file.standardize, keep=list(file.keep) or None)
    model._taken(file)
    return model

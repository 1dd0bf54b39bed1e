"""A fitted model for others: a page to read, a file without code, a plain scikit-learn object, a small `coef_`."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import LabelBinarizer
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

from diht.estimators.table_encoder import TableEncoder
from diht.gpu import on_host
from diht.losses import ALL_LOSSES, Loss
from diht.numerics.arrays import Array
from diht.persistence.model import SavedModel
from diht.persistence.schema import write_model
from diht.solvers.loop import SOLVERS

if TYPE_CHECKING:
    from diht.estimators import SparseClassifier, SparseRegressor
    from diht.estimators.inference import Intervals
    from diht.report.summary import Summary
    from diht.serving import Predictor
    from diht.tables import Encoding

__all__ = ["SKOPS_TRUSTED", "ShippingMixin", "estimator_of"]

_MANY = 1_000_000  # features from which a model that is read has a sparse coef_

_TYPES = """
    estimators.regressor.SparseRegressor estimators.classifier.SparseClassifier
    estimators.cox.SparseCox estimators.ordinal.SparseOrdinalClassifier survival.partial.Censored
    estimators.cross_validation.SparseRegressorCV estimators.cross_validation.SparseClassifierCV
    result.Result result.Certificate result.Model result.Trace result.Iterate
    bounds.duality.Bound bounds.duality.BoundWithoutProof bounds.duality.Screening bounds.shift.ShiftedBound
    bounds.shift.ShiftedPoint
    bounds.rule.Rule bounds.rule.SparseVector relaxation.smoothing.Central relaxation.smoothing.Moreau
    solvers.sweep.WiderBound solvers.tree.TreeBound solvers.nodes.Leaf solvers.empty_columns.PaddedBound
    solvers.sufficient.CondensedBound
    estimators.path.Path estimators.path.PathPoint constraints.base.Cardinality constraints.base.Node constraints.groups.Structured
    constraints.per_group.PerGroup constraints.budget.Budget constraints.heredity.Heredity
    constraints.lineage.Lineage
    constraints.limits.Limits
    persistence.model.SavedModel persistence.model.Structure persistence.model.Equation persistence.model.Figures
    persistence.model.Data serving.Predictor
    estimators.table_encoder.TableEncoder tables.encoding.Encoding tables.encoding.Column
"""
SKOPS_TRUSTED: list[str] = sorted(
    [f"diht.{name}" for name in _TYPES.split()]
    + ["scipy.sparse._csr.csr_array"]
    + [f"{kind.__module__}.{kind.__qualname__}" for kind in (*ALL_LOSSES.values(), *SOLVERS.values())]
)
"""What ``skops.io.load(path, trusted=SKOPS_TRUSTED)`` needs: the classes that a fitted estimator, or its certificate, may hold.

All are plain records; none runs anything when it is read.
"""


class ShippingMixin:
    """What a fitted estimator offers to those who did not fit it."""

    _task: ClassVar[str]
    loss: Any
    lam: Any
    fit_intercept: Any
    coef_: Any
    intercept_: Any
    classes_: Any
    n_samples_fit_: int
    saved_: SavedModel
    _fitted_loss: Callable[[], Loss]

    def __getstate__(self) -> dict[str, Any]:
        """Return what pickle, joblib and skops store: all but the proofs of bounds, which are as long as the samples or longer."""
        state: dict[str, Any] = super().__getstate__()  # type: ignore[assignment]
        return {name: _without_proof(value) if name.endswith("_") else value for name, value in state.items()}

    def __copy__(self) -> Any:
        """Return a shallow copy, proofs included."""
        twin = type(self).__new__(type(self))
        vars(twin).update(vars(self))
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a deep copy, proofs included."""
        memo[id(self)] = twin = type(self).__new__(type(self))
        vars(twin).update(deepcopy(vars(self), memo))
        return twin

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a JSON file, which `diht.load_model` reads back without running code.

        It holds the names and coefficients of the features, intercept and classes, what was asked for, the figures of the
        certificate (not its proof, the dual point), the version of this package, and a checksum.

        Parameters
        ----------
        path : path-like
            The file, replaced as a whole if it is there.

        Raises
        ------
        ValueError
            In one line, if the model could not be read back: classes that are neither texts nor numbers, two features of
            one name, a loss of your own.
        """
        write_model(self._saved(), os.fspath(path))

    def report(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        y: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> None:
        """Write a report on the model: one HTML page that needs nothing else.

        It says what was fitted, what the certificate proves in plain words, which features the model uses with their
        coefficients and drop costs, how the bounds closed, and which other models are nearly as good; for the estimators that
        choose k, their path and validation scores.

        Parameters
        ----------
        path : path-like
            The file, replaced as a whole if it is there.
        X : array-like or sparse matrix of shape (n_samples, n_features), optional
            Samples to show predictions on, best such as were not used to fit: calibration and a confusion table, or residuals.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            Their targets; needed with X.
        offset : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            Known parts of their predictions, as in `predict` of a regressor.
        """
        from diht.report.page import Story, write_page  # what only some need is imported there

        if (X is None) != (y is None):
            raise ValueError("X and y must be given together, or neither of them")
        write_page(self._saved(), os.fspath(path), Story.of(self, X, y, offset))

    def summary(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        *,
        intervals: Intervals | None = None,
        offset: ArrayLike | None = None,
    ) -> Summary:
        """Return the model on one screen: a text when it is printed, tables in a notebook, a data frame by `to_frame`.

        It has the features with their coefficients in the units of the data and per standard deviation, odds ratios for the
        logistic loss (ratios of means for losses with a logarithmic link), drop costs, and the certificate in a sentence. A drop
        cost is what every model without the feature costs more, at least; it is there where it is proved.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), optional
            Samples to score the model on, best such as were not used to fit.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            Their targets; needed with X.
        intervals : Intervals, optional
            What `bootstrap` returns for this model. On fixed features these know nothing of the selection.
        offset : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            Known parts of the predictions, as in `predict` of a regressor.

        Returns
        -------
        Summary
        """
        from diht.report.summary import Summary

        if (X is None) != (y is None):
            raise ValueError("X and y must be given together, or neither of them")
        return Summary.of(self, self._saved(), X, y, offset, intervals)

    def _html_repr(self) -> str:
        """Return what a notebook shows: scikit-learn's diagram and, of a fitted model, the summary."""
        diagram: str = super()._html_repr()  # type: ignore[misc]
        try:
            return diagram + self.summary()._repr_html_()
        except (NotFittedError, ValueError):  # not fitted, or without a certificate
            return diagram

    def reduced(self) -> Predictor:
        """Return the model by itself: it needs the columns of its own features only, in any order, and numpy alone.

        Returns
        -------
        Predictor
            As `diht.load_model` returns them. Rows may be data frames, dicts of columns, lists of dicts, or arrays with the columns
            of `feature_names_in_`; a pickle of it, or the file that its `to_json` writes, knows nothing of other columns.
        """
        from diht.serving import Predictor

        return Predictor(self._saved().reduced())

    def to_sklearn(self) -> Any:
        """Return a plain scikit-learn estimator with the same predictions, for tools that know nothing else.

        Returns
        -------
        estimator
            A `LogisticRegression` for the logistic loss and for the multinomial one (with ``multiclass="ovr"`` a
            `OneVsRestClassifier` of them where there are more than two classes), a `LinearSVC` for other losses of
            classification, a `PoissonRegressor` where predictions are exp(x.w + b), else a `Ridge`; fitted, with a copy of the
            coefficients. The strength of its penalty is that of the problem that was solved, whose columns are standardised
            unless ``standardize=False``.
        """
        check_is_fitted(self)
        strength = self._lam * self._n_samples
        C = 1 / strength if strength else np.inf
        coef, intercept = self._rows().copy(), np.atleast_1d(self.intercept_).copy()
        common = {"fit_intercept": self.fit_intercept}
        loss = self._fitted_loss()
        if loss.coupled:
            softmax = LogisticRegression(C=C, **common)
            return self._as_fitted(softmax, coef_=coef, intercept_=intercept, classes_=self.classes_.copy())
        if loss.task == "regression":
            if loss.link == "log":
                poisson = PoissonRegressor(alpha=self._lam, **common)
                poisson._base_loss = poisson._get_loss()  # what its predictions ask for the inverse of the link
                if len(coef) > 1:
                    raise ValueError("no estimator of scikit-learn has several targets with predictions exp(x.w + b)")
                return self._as_fitted(poisson, coef_=coef[0], intercept_=intercept[0])
            ridge, single = Ridge(alpha=strength / 2, **common), len(coef) == 1
            return self._as_fitted(
                ridge, coef_=coef[0] if single else coef, intercept_=intercept[0] if single else intercept
            )
        classes = self.classes_
        if loss.link != "logit":
            machine = LinearSVC(C=C, **common)
            return self._as_fitted(machine, coef_=coef, intercept_=intercept, classes_=classes.copy())
        plain = LogisticRegression(C=C, **common)
        if len(classes) == 2:
            return self._as_fitted(plain, coef_=coef, intercept_=intercept, classes_=classes.copy())
        parts = [
            self._as_fitted(
                LogisticRegression(**plain.get_params()), coef_=w[None], intercept_=b[None], classes_=np.array([0, 1])
            )
            for w, b in zip(coef, intercept, strict=True)
        ]
        binarizer = LabelBinarizer(sparse_output=True).fit(classes)
        several = OneVsRestClassifier(plain)
        return self._as_fitted(several, estimators_=parts, label_binarizer_=binarizer, classes_=classes)

    def _as_fitted(self, estimator: Any, **attributes: Any) -> Any:
        for name in ("n_features_in_", "feature_names_in_", "n_iter_"):
            if hasattr(self, name):
                attributes[name] = getattr(self, name)
        if isinstance(estimator, OneVsRestClassifier):
            attributes.pop("n_iter_", None)
        elif isinstance(estimator, LogisticRegression):
            attributes["n_iter_"] = np.atleast_1d(attributes.get("n_iter_", 0)).astype(np.int32)
        vars(estimator).update(attributes)
        return estimator

    def sparsify(self) -> Any:
        """Turn `coef_` into a sparse array of shape (1, n_features), or with a row for each of several classes or targets.

        Of a million features such a model takes next to no memory for `coef_`. Everything but fitting again from a warm start
        costs what its few nonzero coefficients cost.

        Returns
        -------
        estimator
            The estimator itself.
        """
        check_is_fitted(self)
        if not sp.issparse(self.coef_):
            self.coef_ = sp.csr_array(np.atleast_2d(self.coef_))
        return self

    def densify(self) -> Any:
        """Turn `coef_` back into an ndarray, as `fit` leaves it.

        Returns
        -------
        estimator
            The estimator itself.
        """
        check_is_fitted(self)
        if sp.issparse(self.coef_):
            rows = self._rows()
            self.coef_ = rows[0] if self._task == "regression" and len(rows) == 1 else rows
        return self

    def _rows(self) -> Array:
        """Return the coefficients as a dense array with one row a target."""
        coef = on_host(self.coef_)
        return np.atleast_2d(coef.toarray() if sp.issparse(coef) else coef)

    def _saved(self) -> SavedModel:
        """Return the model as its file holds it; one that was read, and not fitted since, as it was."""
        check_is_fitted(self)
        if not hasattr(self, "result_") and not hasattr(self, "saved_"):
            raise ValueError(
                "a model without a certificate, such as `debiased` returns, can be pickled but not written so"
            )
        return SavedModel.of(self) if hasattr(self, "result_") else self.saved_

    @property
    def _lam(self) -> float:
        return float(getattr(self, "best_lam_", None) or self.lam)

    @property
    def _n_samples(self) -> int:
        if hasattr(self, "n_samples_fit_"):
            return self.n_samples_fit_
        return self.saved_.data.n_samples if hasattr(self, "saved_") else 0  # without a ridge they do not matter


def _without_proof(value: Any) -> Any:
    """Return an attribute of a fitted estimator as it is stored."""
    if isinstance(value, list):
        return [_without_proof(entry) for entry in value]
    return value.without_proof() if hasattr(value, "without_proof") else value


def estimator_of(saved: SavedModel) -> SparseRegressor | SparseClassifier:
    """Return a model that was read from a file as a fitted estimator; `saved_` is what else the file says."""
    from diht.estimators import SparseClassifier, SparseRegressor

    # As an estimator takes it.
    structure: dict[str, Any] = {name: list(value) if value else None for name, value in vars(saved.structure).items()}
    rule = structure.pop("rule")
    structure["bounds"] = structure.pop("limits") and tuple(side.tolist() for side in saved.structure.bounds or ())
    if saved.encoding is not None:
        structure = _of_table(structure, saved.encoding)
    loss: Any = saved.loss
    estimator: Any = (SparseRegressor if saved.classes is None else SparseClassifier)(
        k=int(saved.k) if rule is None else saved.structure.own_constraint(saved.k),
        lam=saved.lam,
        loss=loss.name if loss == type(loss)() else loss,
        fit_intercept=saved.fit_intercept,
        standardize=saved.standardize,
        **structure,
    )
    if saved.classes is not None and len(saved.classes) > 2 and not saved.shared:
        estimator.multiclass = "ovr"
    estimator.n_features_in_, estimator.saved_ = saved.n_features, saved
    names = saved.input_names
    if names is not None:
        estimator.n_features_in_, estimator.feature_names_in_ = len(names), np.array(names, dtype=object)
    estimator.groups_ = saved.structure.groups
    if saved.encoding is not None:
        estimator.encoder_ = TableEncoder.of(saved.encoding)
    if saved.classes is not None:
        estimator.classes_ = np.array(saved.classes)
    elif saved.shared:
        estimator.target_names_in_ = np.array(saved.targets, dtype=object)
    intercepts = np.array([equation.intercept for equation in saved.equations], dtype=saved.dtype)
    estimator.coef_, estimator.support_ = _sparse_rows(saved), saved.support
    estimator.intercept_ = intercepts[0] if saved.classes is None and len(intercepts) == 1 else intercepts
    for name in ("objective", "lower_bound", "gap"):
        figures = [getattr(each, name) for each in saved.certificates]
        setattr(estimator, f"{name}_", np.array(figures) if len(figures) > 1 else figures[0])
    if saved.n_features < _MANY:
        estimator.densify()
    fitted: SparseRegressor | SparseClassifier = estimator
    return fitted


def _of_table(structure: dict[str, Any], encoding: Encoding) -> dict[str, Any]:
    """Return what is asked of encoded columns as it is said of the columns of the table."""
    named = [column.name for column in encoding.columns]
    used, first = np.unique(encoding.origin, return_index=True)
    keep = structure["keep"] and [named[j] for j in np.unique(encoding.origin[structure["keep"]])]
    sign, bounds, groups = structure["sign"], structure["bounds"], structure["groups"]
    if groups == encoding.groups.tolist():
        groups = None
    elif groups is not None:
        groups = {named[j]: groups[i] for j, i in zip(used, first, strict=True)}
        groups = [groups.get(name, name) for name in named]

    def of_table(rows: Any, absent: float) -> Any:
        values = np.asarray(rows)
        whole = np.full((*values.shape[:-1], len(named)), absent, dtype=values.dtype)
        whole[..., used] = values[..., first]
        return whole.tolist()

    sign = sign and of_table(sign, 0)
    bounds = bounds and (of_table(bounds[0], -np.inf), of_table(bounds[1], np.inf))
    return {"keep": keep, "groups": groups, "sign": sign, "bounds": bounds}


def _sparse_rows(saved: SavedModel) -> Any:
    sizes = [len(equation.indices) for equation in saved.equations]
    parts = (
        np.concatenate([equation.values for equation in saved.equations]),
        np.concatenate([equation.indices for equation in saved.equations]),
        np.cumsum([0, *sizes]),
    )
    return sp.csr_array(parts, shape=(len(sizes), saved.n_features))

"""Models that were read from files: they predict with numpy alone; all else imports what it needs when it is asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from diht.numerics.arrays import Array
from diht.persistence.document import Node, parse
from diht.persistence.joint import TASKS, read_joint
from diht.persistence.model import SavedModel
from diht.persistence.schema import read_model, write_model
from diht.tables.frame import is_frame

if TYPE_CHECKING:
    from diht.estimators import SparseClassifier, SparseRegressor

__all__ = ["Predictor", "load_model"]


@dataclass(frozen=True, eq=False)
class Predictor:
    """A fitted model by itself: coefficients, encoders, figures, and predictions with numpy alone.

    Rows may be data frames, dicts of columns, lists of dicts, or arrays with all columns. With names only the columns of the
    model's own features are needed, in any order, and others are ignored.

    Whatever else a fitted estimator has, such as `coef_`, `report`, `to_sklearn` and `fit`, is that of `estimator_`, which imports
    scikit-learn when it is first asked for.

    Attributes
    ----------
    saved_ : SavedModel
        All that the file says.
    """

    saved_: SavedModel

    # What predictions need

    def predict(self, X: Any, offset: Any = None) -> Array:
        """Predict targets, or classes.

        Parameters
        ----------
        X : data frame, dict, list of dicts, array-like or sparse matrix
            The samples.
        offset : array-like of shape (n_samples,), optional
            Known parts of the predictions of a regression, as in `fit`.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_targets)
            Predictions.
        """
        if offset is not None:
            return np.asarray(self.estimator_.predict(X, offset))  # type: ignore[call-arg]
        classes = self.saved_.classes
        scores = self._scores(X)
        if classes is None:
            mean: Array = self.saved_.loss.mean(scores[:, 0] if scores.shape[1] == 1 else scores)
            return mean
        codes = (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)
        return np.asarray(np.array(classes)[codes])

    def predict_proba(self, X: Any) -> Array:
        """Compute the probabilities of the classes; for losses that are likelihoods.

        Parameters
        ----------
        X : data frame, dict, list of dicts, array-like or sparse matrix
            The samples.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities, which sum to one for each sample.
        """
        self._check_width(X)
        return self.saved_.probabilities(_rows(X))

    def decision_function(self, X: Any) -> Array:
        """Compute x.w + b; for classes.

        Parameters
        ----------
        X : data frame, dict, list of dicts, array-like or sparse matrix
            The samples.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores: with two classes those of the second one.
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def __getattribute__(self, name: str) -> Any:
        """Hide what the loss, or the task, does not have, as scikit-learn's estimators do."""
        if name in ("predict_proba", "decision_function"):
            saved = object.__getattribute__(self, "saved_")
            if saved.classes is None or (name == "predict_proba" and not saved.has_probabilities):
                raise AttributeError(f"a model with the {saved.loss.name} loss has no {name}")
        return object.__getattribute__(self, name)

    def _scores(self, X: Any) -> Array:
        self._check_width(X)
        return self.saved_.decision(_rows(X))

    def _check_width(self, X: Any) -> None:
        shape = getattr(X, "shape", None)
        if shape is None or is_frame(X) or self.saved_.encoding is not None:
            return
        if len(shape) != 2:
            raise ValueError(f"Expected 2D array, got shape {shape}. Reshape your data.")
        if shape[1] != self.saved_.n_features:
            kind = "SparseRegressor" if self.saved_.classes is None else "SparseClassifier"
            raise ValueError(
                f"X has {shape[1]} features, but {kind} is expecting {self.saved_.n_features} features as input."
            )

    # What is known of it

    @property
    def n_features_in_(self) -> int:
        """The number of columns of the table that it was fitted to."""
        names = self.saved_.input_names
        return self.saved_.n_features if names is None else len(names)

    @property
    def feature_names_in_(self) -> Array:
        """Their names, where there are any."""
        if self.saved_.input_names is None:
            raise AttributeError("feature_names_in_: the model was fitted to columns without names")
        return np.array(self.saved_.input_names, dtype=object)

    @property
    def needed_(self) -> tuple[str, ...] | None:
        """The names of the columns that predictions need; None where columns have no names."""
        return self.saved_.needed

    @property
    def classes_(self) -> Array:
        """The classes."""
        if self.saved_.classes is None:
            raise AttributeError("classes_: the model is one of regression")
        return np.array(self.saved_.classes)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a JSON file.

        Parameters
        ----------
        path : path-like
            The file, replaced as a whole if it is there.
        """
        write_model(self.saved_, os.fspath(path))

    def reduced(self) -> Predictor:
        """Return the model of the columns that it uses; the others are forgotten.

        Returns
        -------
        Predictor
            The smaller one.
        """
        return Predictor(self.saved_.reduced())

    # All else

    @cached_property
    def estimator_(self) -> SparseRegressor | SparseClassifier:
        """The model as a fitted estimator of scikit-learn."""
        from diht.estimators.shipping import estimator_of

        return estimator_of(self.saved_)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "saved_":
            raise AttributeError(name)
        return getattr(self.estimator_, name)

    def __sklearn_clone__(self) -> Any:
        from sklearn.base import clone

        return clone(self.estimator_)

    def __sklearn_tags__(self) -> Any:
        return self.estimator_.__sklearn_tags__()

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __getstate__(self) -> dict[str, Any]:
        return {"saved_": self.saved_}

    def __setstate__(self, state: dict[str, Any]) -> None:
        object.__setattr__(self, "saved_", state["saved_"])

    def __repr__(self) -> str:
        saved, needed = self.saved_, self.needed_
        shown = f"{len(saved.support)} features" if needed is None else ", ".join(needed[:8])
        return f"Predictor({saved.task}, {saved.loss.name} loss: {shown}{' ...' * (len(needed or ()) > 8)})"


def _rows(X: Any) -> Any:
    """Return lists of rows as an array; whatever has columns, or is one, as it is."""
    if hasattr(X, "shape") or isinstance(X, dict) or (isinstance(X, list | tuple) and X and isinstance(X[0], dict)):
        return X
    return np.asarray(X, dtype=np.float64)


def load_model(path: str | os.PathLike[str]) -> Any:
    """Read a model that `to_json` or ``diht fit`` wrote; no code of the file is run.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    Predictor, SparseCox or SparseOrdinalClassifier
        Fitted; the last two as they were, but for their training samples. A predictor needs numpy alone, and the columns of its own
        features. It selects, reports and converts as the original does, and has `objective_`, `lower_bound_` and `gap_`; as an
        estimator of scikit-learn it is in `estimator_`. What else the
        file says is in `saved_` (a `diht.report.SavedModel`). The proof of the bound is not in the file: there is no `certificate_`
        and no `result_`. From a million features on `coef_` is sparse (`densify` changes that).

    Raises
    ------
    ValueError
        In one line that names the file and the place, if it is damaged in any way.
    """
    file = os.fspath(path)
    content = parse(file)
    if isinstance(content, dict) and content.get("task") in TASKS:
        from diht.estimators.ordinal import joint_model_of

        return joint_model_of(read_joint(Node(content, "", file)))
    return Predictor(read_model(file))

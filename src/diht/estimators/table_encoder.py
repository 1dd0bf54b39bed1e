"""Tables of any kind for linear models: categories, booleans, missing values; dates and ids are told apart."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.validation import _check_feature_names_in, check_array, check_is_fitted, validate_data

from diht.estimators.parameters import keep_parameters
from diht.tables import Column, Encoding, Frame, kind_of, left_out
from diht.tables.encoding import BLANK, missing_in_words
from diht.tables.frame import (
    Values,
    as_booleans,
    as_numbers,
    as_texts,
    check_unique,
    count_missing,
    is_frame,
    is_number,
)

__all__ = ["Encoded", "TableEncoder", "groups_of"]

_IMPUTE = ("median", "mean", "indicator")
_GROUPS = "diht groups"  # where a data frame of encoded columns keeps their groups


class Encoded(np.ndarray[Any, Any]):
    """Columns of numbers that know their groups, as `TableEncoder.transform` returns them; what is made of them does not."""

    groups: NDArray[np.int64] | None = None


def groups_of(X: Any) -> NDArray[np.int64] | None:
    """Return the groups of the columns that a `TableEncoder` made; None of anything else."""
    found = X.groups if isinstance(X, Encoded) else getattr(X, "attrs", {}).get(_GROUPS)
    return None if found is None else np.asarray(found, dtype=np.int64)


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn a table of numbers, categories, booleans and blanks into columns of numbers, with the groups that belong together.

    Numbers stay as they are. Booleans become 0 and 1. A category becomes a column of zeros and ones for each of its levels, one
    group, so that a model takes it whole or not at all, k counts it once, and the estimators give it one scale. Rare levels are
    pooled. Dates are refused with advice, missing values too unless `impute` says what takes their place. Columns that look like
    ids or row numbers are left out, with a warning that names them.

    Parameters
    ----------
    impute : {"median", "mean", "indicator"} or None, default=None
        What takes the place of missing numbers: the median or the mean of the column; "indicator" is the median with a further
        column that is 1 where the value was missing, which k counts by itself. What is missing in a category is a level of its
        own then. None refuses missing values and names all columns that have some.
    min_frequency : int or float, default=5
        Levels with fewer rows, or with a smaller part of them, are pooled to one, "(other)".
    max_categories : int, default=30
        The most columns of a category; the levels with the most rows have one of their own.
    keep : list of str, optional
        Columns to use although they look like ids.
    drop : list of str, optional
        Columns not to use.
    only : list of str, optional
        The only columns to use.

    Attributes
    ----------
    groups_ : ndarray of int of shape (n_encoded,)
        The group of each column of numbers, from 0.
    encoding_ : Encoding
        What is done with each column, as plain tables.
    left_out_ : dict
        The columns that were left out for what they look like, and why.
    imputer_ : SimpleImputer or None
        What was fitted to numbers and booleans; None where there are none, or `impute` is None.
    one_hot_ : OneHotEncoder or None
        What was fitted to categories; None where there are none.
    n_features_in_ : int
        Number of columns seen during fit.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Their names, where X has names that are all strings.

    Notes
    -----
    At prediction time a level that was not seen counts as a rare one where rare levels were pooled, and else as none of the levels:
    0 in every column. What a certificate says of a model is said of the encoded columns, standardised, with their groups.

    Examples
    --------
    >>> import pandas as pd
    >>> from diht import TableEncoder
    >>> X = pd.DataFrame({"age": [31.0, None, 52.0, 47.0], "port": ["N", "S", "S", "N"], "paid": [True, False, True, True]})
    >>> encoder = TableEncoder(impute="median", min_frequency=1).fit(X)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'port=N', 'port=S', 'paid']
    >>> encoder.groups_.tolist()
    [0, 1, 1, 2]
    >>> encoder.transform(X)[1].tolist()
    [47.0, 0.0, 1.0, 0.0]
    """

    def __init__(
        self,
        impute: str | None = None,
        min_frequency: float = 5,
        max_categories: int | None = 30,
        keep: Sequence[str] | None = None,
        drop: Sequence[str] | None = None,
        only: Sequence[str] | None = None,
    ) -> None:
        keep_parameters(self, locals())

    @classmethod
    def of(cls, encoding: Encoding) -> TableEncoder:
        """Return a fitted encoder that does what plain tables say."""
        encoder = cls()
        encoder.encoding_, encoder.groups_, encoder.left_out_ = encoding, encoding.groups, {}
        names = [column.name for column in encoding.columns]
        encoder.n_features_in_, encoder.feature_names_in_ = len(names), np.array(names, dtype=object)
        return encoder

    def fit(self, X: Any, y: Any = None) -> TableEncoder:
        """Learn what becomes of each column.

        Parameters
        ----------
        X : data frame, or array-like of shape (n_samples, n_features)
            The samples. Columns may hold numbers, booleans and texts; None, NaN and NA are missing.
        y : Ignored
            There for scikit-learn's pipelines.

        Returns
        -------
        TableEncoder
            The encoder itself.
        """
        if self.impute not in (None, *_IMPUTE):
            raise ValueError(f"impute must be one of {list(_IMPUTE)} or None, got {self.impute!r}")
        frame = self._frame(X, reset=True)
        used, self.left_out_ = self.check(frame)
        if self.left_out_:
            said = "; ".join(f"{name!r} {reason}" for name, reason in self.left_out_.items())
            warnings.warn(f"columns left out: {said} (keep=[...] uses them)", UserWarning, stacklevel=2)
        numbers = {name: kind for name, kind in used.items() if kind != "category"}
        categories = [name for name, kind in used.items() if kind == "category"]
        columns = self._numbers(frame, numbers) | self._categories(frame, categories)
        self.encoding_ = Encoding(tuple(columns.get(name, Column(name, "unused")) for name in frame.names))
        _refuse_twins(self.encoding_.names)
        self.groups_ = self.encoding_.groups
        return self

    def check(self, frame: Frame) -> tuple[dict[str, str], dict[str, str]]:
        """Return the kinds of the columns to use, and why others are left out; raise where something is refused."""
        names = chosen_columns(frame.names, self.drop, self.only, self.keep)
        kinds = {name: kind_of(frame[name]) for name in names}
        reasons = left_out(names, [frame[name] for name in names], list(kinds.values()), self.keep)
        used = {name: kind for name, kind in kinds.items() if name not in reasons}
        _refuse_dates(frame, used)
        _refuse_mixed(frame, used)
        self._refuse_missing(frame, used)
        if not used:
            raise ValueError("X must have at least one column to use, got none besides those left out")
        return used, reasons

    def transform(self, X: Any) -> Any:
        """Return the columns of numbers.

        Parameters
        ----------
        X : data frame, or array-like of shape (n_samples, n_features)
            The samples, with the columns of `fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_encoded)
            The columns, which know their groups: an estimator with ``groups="auto"`` takes these.
        """
        check_is_fitted(self)
        encoded = self.encoding_.encode(self._frame(X, reset=False))
        if _get_output_config("transform", self)["dense"] == "pandas":
            import pandas as pd

            table = pd.DataFrame(encoded, columns=list(self.encoding_.names), index=getattr(X, "index", None))
            table.attrs[_GROUPS] = self.groups_.tolist()
            return table
        known = encoded.view(Encoded)
        known.groups = self.groups_
        return known

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns of numbers.

        Parameters
        ----------
        input_features : array-like of str, optional
            The names of the columns of `fit`, checked if they are given.

        Returns
        -------
        ndarray of str
            ``age``, ``port=N``, ``port=(other)``, ``age is missing``.
        """
        check_is_fitted(self)
        _check_feature_names_in(self, input_features)
        return np.array(self.encoding_.names, dtype=object)

    def _frame(self, X: Any, reset: bool) -> Frame:
        """Return X as a table, its names and width checked as scikit-learn does."""
        if isinstance(X, Frame):
            if reset:
                self.n_features_in_, self.feature_names_in_ = len(X.names), np.array(X.names, dtype=object)
            return X
        if not is_frame(X):
            X = validate_data(self, X, dtype=None, ensure_all_finite=False, reset=reset)
            return Frame.of(X)
        check_unique(X)
        check_array(np.broadcast_to(0.0, X.shape), estimator=self)  # only its shape is looked at
        validate_data(self, X, skip_check_array=True, reset=reset)
        return Frame.of(X)

    def _refuse_missing(self, frame: Frame, used: dict[str, str]) -> None:
        counts = {name: count for name in used if (count := count_missing(frame[name]))}
        if counts and self.impute is None:
            raise ValueError(missing_in_words(counts, len(frame)))
        for name, kind in used.items():
            if kind == "number" and np.any(np.isinf(_numbers_of(frame[name], kind))):
                raise ValueError(f"X contains infinity in column {name!r}")

    def _numbers(self, frame: Frame, kinds: dict[str, str]) -> dict[str, Column]:
        """Fit the imputer to numbers and booleans, and return what becomes of them."""
        self.imputer_ = None
        if self.impute is None or not kinds:
            return {name: Column(name, kind) for name, kind in kinds.items()}
        matrix = np.column_stack([_numbers_of(frame[name], kind) for name, kind in kinds.items()])
        indicator = self.impute == "indicator"
        self.imputer_ = SimpleImputer(strategy="median" if indicator else self.impute, add_indicator=indicator)
        self.imputer_.fit(matrix)
        flagged = set(self.imputer_.indicator_.features_.tolist()) if indicator else set()
        fills = self.imputer_.statistics_.tolist()
        return {name: Column(name, kind, fills[j], j in flagged) for j, (name, kind) in enumerate(kinds.items())}

    def _categories(self, frame: Frame, names: list[str]) -> dict[str, Column]:
        """Fit the one-hot encoder to categories, and return what becomes of them."""
        self.one_hot_ = None
        if not names:
            return {}
        blank = self.impute is not None
        texts = np.column_stack([as_texts(frame[name]) for name in names])
        if blank:
            texts[texts == None] = BLANK  # noqa: E711 - elementwise
        self.one_hot_ = OneHotEncoder(
            min_frequency=self.min_frequency,
            max_categories=self.max_categories,
            handle_unknown="infrequent_if_exist",
            sparse_output=False,
        ).fit(texts)
        columns = {}
        for name, levels, rare in zip(
            names, self.one_hot_.categories_, self.one_hot_.infrequent_categories_, strict=True
        ):
            pooled = set() if rare is None else set(rare.tolist())
            own = tuple(level for level in levels.tolist() if level not in pooled)
            columns[name] = Column(name, "category", levels=own, other=bool(pooled), blank=blank)
        return columns

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.impute is not None
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags


def chosen_columns(
    names: Sequence[str],
    drop: Sequence[str] | None,
    only: Sequence[str] | None,
    keep: Sequence[str] | None = None,
) -> list[str]:
    """Return the columns to use, in their order; raise where one is named that is not there."""
    for option, given in (("drop", drop), ("only", only), ("keep", keep)):
        if isinstance(given, str):
            raise ValueError(f"{option} must be a list of columns, got {given!r}")
        for name in given or ():
            if name not in names:
                close = get_close_matches(str(name), names, n=1)
                meant = f"; did you mean {close[0]!r}?" if close else ""
                raise ValueError(f"{option} names {name!r}, which is not among the columns{meant}")
    dropped = set(drop or ())
    return [name for name in names if name not in dropped and (only is None or name in only)]


def _numbers_of(values: Values, kind: str) -> NDArray[np.float64]:
    numbers = as_numbers(values) if kind == "number" else as_booleans(values)
    assert numbers is not None
    return numbers


def _refuse_dates(frame: Frame, kinds: dict[str, str]) -> None:
    dates = [name for name, kind in kinds.items() if kind == "date"]
    if dates:
        shown = ", ".join(map(repr, dates))
        cell = next((str(value) for value in frame[dates[0]] if str(value) not in ("None", "NaT")), "")
        raise ValueError(
            f"X holds dates in {shown}, such as {cell[:30]!r}: put numbers in their place, such as the days since a date, the "
            f"month or the weekday, or leave them out (drop={dates}, --drop {dates[0]})"
        )


def _refuse_mixed(frame: Frame, kinds: dict[str, str]) -> None:
    found = []
    for name in (name for name, kind in kinds.items() if kind == "mixed"):
        texts = [value for value in frame[name].tolist() if value is not None and not is_number(value)]
        found.append(f"{name!r} ({len(texts):,} of {len(frame):,}, such as {texts[0][:30]!r})")
    if found:
        raise ValueError(
            f"X holds texts among the numbers of {', '.join(found)}: correct them, leave them blank and impute them, or drop these "
            "columns"
        )


def _refuse_twins(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twin = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"two encoded columns would be named {twin!r}: rename the column")

"""Data frames inside estimators: which need an encoder, and what is asked of their columns, said of the encoded ones."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_X_y

from diht.constraints.groups import bounds_of, features_given, indices_of, signs_of
from diht.constraints.limits import sides_of
from diht.estimators.table_encoder import TableEncoder, groups_of
from diht.tables import Frame
from diht.tables.encoding import missing_in_words
from diht.tables.frame import is_frame

__all__ = [
    "Wanted",
    "check_kinds",
    "check_switches",
    "encoded",
    "encoded_names",
    "in_words",
    "needs_encoder",
    "refuse_dates",
    "refuse_with",
    "set_groups",
    "wanted_of",
]

_ADVICE = "put numbers in their place, such as the days since a date, the month or the weekday"


class Wanted(NamedTuple):
    """What is asked of a model besides k, of the columns of `coef_`, by their places."""

    keep: Any
    groups: Any
    sign: Any
    bounds: Any


def refuse_with(name: str, asked: Any) -> None:
    """Raise where `keep` or `groups` are asked for besides a constraint of one's own choice."""
    if asked.keep is not None or asked.groups is not None:
        raise ValueError(f"keep and groups cannot be used where {name} is a constraint")


def wanted_of(estimator: Any, n_features: int) -> Wanted:
    """Return what an estimator that has seen X asks of the columns of `coef_`."""
    names, encoder = getattr(estimator, "feature_names_in_", None), getattr(estimator, "encoder_", None)
    known = n_features if encoder is None else encoder.n_features_in_
    keep = indices_of("keep", estimator.keep, names)
    signs, bounds = signs_of(estimator.sign, names, known), bounds_of(estimator.bounds, names, known)
    groups = getattr(estimator, "groups_", estimator.groups)
    if encoder is None:
        return Wanted(keep, groups, signs, bounds)
    origin = encoder.encoding_.origin
    kept = None if keep is None else np.flatnonzero(np.isin(origin, features_given("keep", keep, known)))
    if bounds is not None:
        bounds = tuple(side.reshape(-1, known)[:, origin].squeeze() for side in sides_of(bounds, known))
    if np.ndim(signs):
        signs = _of_columns("sign", signs, known)[..., origin]
    return Wanted(kept, groups, signs, bounds)


def _of_columns(name: str, values: Any, n_columns: int) -> Any:
    array = np.asarray(values)
    if array.shape[-1:] != (n_columns,):
        raise ValueError(f"{name} must have one entry for each of the {n_columns} columns, got shape {array.shape}")
    return array


def encoded_names(estimator: Any, n_features: int) -> tuple[str, ...]:
    """Return the names of the columns of `coef_`, of an estimator that has seen X."""
    encoder = getattr(estimator, "encoder_", None)
    if encoder is not None:
        return tuple(encoder.encoding_.names)
    return tuple(map(str, getattr(estimator, "feature_names_in_", [f"x{j}" for j in range(n_features)])))


def set_groups(estimator: Any, X: Any) -> None:
    """Keep the groups of the columns of `coef_`: those given, those of the encoder, or those that X brings with it."""
    given, encoder = estimator.groups, getattr(estimator, "encoder_", None)
    by_itself = given is None or (isinstance(given, str) and given == "auto")
    if isinstance(given, str) and not by_itself:
        raise ValueError(f"groups must be a label for each feature, or 'auto', got {given!r}")
    if encoder is not None:
        encoding = encoder.encoding_
        own = encoding.groups if encoding.has_categories or given is not None else None
        labels = own if by_itself else _of_columns("groups", given, encoder.n_features_in_)[encoding.origin]
    else:
        labels = groups_of(X) if isinstance(given, str) else given
        if isinstance(given, str) and labels is None:
            raise ValueError(
                "groups='auto' needs X of a TableEncoder, as it comes out of transform, or a data frame with texts"
            )
    estimator.groups_ = labels


def needs_encoder(estimator: Any, X: Any) -> bool:
    """Tell whether the columns of X have to become numbers: a data frame with categories or texts, or one for an encoder given."""
    if getattr(estimator, "encoder", None) is not None:
        if not is_frame(X):
            raise ValueError(f"encoder needs a data frame, got X of type {type(X).__name__}")
        return True
    if isinstance(X, Frame):
        return True
    kinds = getattr(X, "dtypes", None) if is_frame(X) else None
    if kinds is None:
        return False
    return any(_holds_levels(X, j, kind) for j, kind in enumerate(kinds))


def _holds_levels(X: Any, j: int, kind: Any) -> bool:
    """Whether a column of a data frame holds names of levels, and not numbers."""
    if str(kind).lower().startswith(("category", "categorical", "enum")):
        return True
    if getattr(kind, "kind", "O") != "O":
        return False
    column = X.iloc[:, j] if hasattr(X, "iloc") else X[X.columns[j]]
    try:
        np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError):
        return True
    return False


def encoded(estimator: Any, X: Any, *y: Any, reset: bool, ensure_all_finite: bool = True, **settings: Any) -> Any:
    """Return a data frame as numbers, and y as scikit-learn checks it; with `reset` the encoder is fitted."""
    if reset:
        if estimator.encoder is not None and not isinstance(estimator.encoder, TableEncoder):
            raise ValueError(f"encoder must be a TableEncoder, got {estimator.encoder!r}")
        encoder = TableEncoder() if estimator.encoder is None else clone(estimator.encoder)
        estimator.encoder_ = encoder.fit(X)
        for name in ("n_features_in_", "feature_names_in_"):
            estimator.__dict__.pop(name, None)
            if hasattr(encoder, name):
                setattr(estimator, name, getattr(encoder, name))
    numbers = estimator.encoder_.encoding_.encode(X)
    if not y:
        return numbers
    rows = np.empty((len(numbers), 0))  # only its length is looked at
    return numbers, check_X_y(rows, *y, ensure_min_features=0, estimator=estimator, **settings)[1]


def check_kinds(X: Any) -> None:
    """Raise where a column of a data frame, or an array, holds dates."""
    kinds = getattr(X, "dtypes", None)
    if kinds is not None and is_frame(X):
        for name, kind in zip(X.columns, kinds, strict=True):
            refuse_dates(f"column {name!r} of X", kind)
    elif hasattr(X, "dtype"):
        refuse_dates("X", X.dtype)


def check_switches(estimator: Any) -> None:
    """Raise where an argument that is True or False is neither."""
    for name in ("fit_intercept", "standardize", "exact"):
        value = getattr(estimator, name, False)
        if not isinstance(value, bool | np.bool_ | int) or value not in (0, 1):
            raise ValueError(f"{name} must be True or False, got {value!r}")


def refuse_dates(what: str, kind: Any) -> None:
    """Raise where a type is one of dates or times."""
    if getattr(kind, "kind", None) in ("m", "M") or str(kind).startswith(
        ("Date", "Time", "Duration")
    ):  # polars has no kind
        raise ValueError(f"{what} must hold numbers, got dates or times of type {kind}: {_ADVICE}")


def in_words(error: Exception, X: Any, names: Any) -> Exception:
    """Return what is wrong with X in one line: with the columns that it is about, where they have names."""
    text = str(error)
    if names is not None and ("NaN" in text or "infinity" in text):
        return _not_finite(error, np.asarray(X, dtype=np.float64), names)
    if "could not convert" in text or "float() argument" in text or "inhomogeneous" in text:
        column = _first_text(X) if is_frame(X) else None
        advice = "" if column else "; a data frame may hold texts" * ("string to float" in text)
        return type(error)(f"{column or 'X'} must hold numbers: {text}{advice}")
    if text.startswith("Input X contains"):
        return ValueError(text.partition("\n")[0])
    if text.startswith("Expected 2D"):
        advice = "with array.reshape(-1, 1) for one feature, array.reshape(1, -1) for one sample"
        return ValueError(f"X must have rows and columns, got shape {np.shape(X)}. Reshape your data {advice}")
    if text.startswith("Complex data not supported"):
        return ValueError("X must hold real numbers: Complex data not supported")
    lengths = re.search(r"inconsistent numbers of samples: .*?(\d+)\D+(\d+)\)?\]", text)
    if lengths:
        return ValueError(f"y must have length {lengths[1]} to match X, got length {lengths[2]}")
    return error


def _not_finite(error: Exception, X: Any, names: Any) -> Exception:
    """Return an error that names all columns with missing values, or with infinite ones."""
    counts = np.count_nonzero(np.isnan(X), axis=0)
    found = {str(name): int(count) for name, count in zip(names, counts, strict=True) if count}
    if found:
        return ValueError(missing_in_words(found, len(X)))
    infinite = [str(name) for name, bad in zip(names, np.isinf(X).any(axis=0), strict=True) if bad]
    return ValueError(f"X contains infinity in {', '.join(map(repr, infinite))}") if infinite else error


def _first_text(X: Any) -> str | None:
    """Name the first column of a data frame that does not hold numbers."""
    for name in X.columns:
        try:
            np.asarray(X[name], dtype=np.float64)
        except (TypeError, ValueError):
            return f"column {name!r} of X"
    return None

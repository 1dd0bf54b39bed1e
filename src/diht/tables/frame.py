"""Columns with names, taken from whatever holds them: data frames, dicts, records, arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Frame",
    "Levels",
    "as_booleans",
    "as_numbers",
    "as_texts",
    "check_unique",
    "count_missing",
    "is_frame",
    "is_missing",
    "is_number",
]

Values: TypeAlias = NDArray[Any]

_TRUTH = {"true": 1.0, "false": 0.0}


class Levels(np.ndarray[Any, Any]):
    """Texts that are names of levels, also where they look like numbers."""


@dataclass(frozen=True, eq=False)
class Frame:
    """A table: one row a sample, one column a feature of any kind.

    Attributes
    ----------
    names : tuple of str
        Those of the columns.
    values : tuple of arrays of shape (n,)
        A column is bool, float64 with NaN for what is missing, datetime64 or timedelta64, or an array of objects: texts, and
        None for what is missing; `Levels` where the table says that they are names.
    n_rows : int
        The number of rows.
    named : bool
        Whether the names are those of the user.
    """

    names: tuple[str, ...]
    values: tuple[Values, ...]
    n_rows: int
    named: bool = True

    @classmethod
    def of(cls, X: Any) -> Frame:
        """Take a data frame, a dict of columns, a list of dicts or an array; columns without names are called x0, x1, ..."""
        if isinstance(X, Frame):
            return X
        if isinstance(X, Mapping):
            columns = {str(name): _as_column(values) for name, values in X.items()}
        elif is_frame(X):
            return cls._of_data_frame(X)
        elif isinstance(X, Sequence) and X and all(isinstance(row, Mapping) for row in X):
            names = dict.fromkeys(name for row in X for name in row)
            columns = {str(name): _as_column([row.get(name) for row in X]) for name in names}
        else:
            rows = np.asarray(X)
            if rows.ndim != 2:
                raise ValueError(f"X must have rows and columns, got shape {rows.shape}: reshape your data")
            columns = {f"x{j}": _as_column(rows[:, j]) for j in range(rows.shape[1])}
            return cls(tuple(columns), tuple(columns.values()), len(rows), named=False)
        lengths = {len(values) for values in columns.values()}
        if len(lengths) > 1:
            raise ValueError(f"X must have columns of one length, got lengths {sorted(lengths)}")
        return cls(tuple(columns), tuple(columns.values()), lengths.pop() if lengths else 0)

    @classmethod
    def _of_data_frame(cls, X: Any) -> Frame:
        """Take the columns of pandas' data frames by their places, since names may come twice, of others by their names."""
        names = tuple(map(str, X.columns))
        each = [X.iloc[:, j] for j in range(len(names))] if hasattr(X, "iloc") else [X[name] for name in X.columns]
        return cls(names, tuple(map(_named_column, names, each)), int(X.shape[0]))

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.n_rows, len(self.names)

    @property
    def columns(self) -> list[str]:
        """The names, as data frames have them."""
        return list(self.names)

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, name: str) -> Values:
        """Return the column of a name."""
        return self.values[self.names.index(name)]

    def rows(self, rows: Any) -> Frame:
        """Return some of the rows, by their numbers or by a mask."""
        values = tuple(column[rows] for column in self.values)
        return Frame(self.names, values, len(np.arange(self.n_rows)[rows]), self.named)

    def only(self, names: Iterable[str]) -> Frame:
        """Return some of the columns."""
        chosen = tuple(names)
        return Frame(chosen, tuple(self[name] for name in chosen), self.n_rows, self.named)


def is_frame(X: Any) -> bool:
    """Tell whether X has columns with names; a method of that name, as designs have, does not count."""
    named = hasattr(X, "shape") and hasattr(X, "columns") and not callable(X.columns)
    return isinstance(X, Frame) or (named and not hasattr(X, "dask"))


def _named_column(name: str, values: Any) -> Values:
    try:
        return _as_column(values)
    except TypeError:
        kind = getattr(values, "dtype", type(values))
        raise ValueError(f"column {name!r} of X must hold numbers, texts, true or false, got type {kind}") from None


def _as_column(values: Any) -> Values:
    """Return a column as a `Frame` has it."""
    kind = getattr(values, "dtype", None)
    if str(kind).lower().startswith(("category", "categorical", "enum")):  # levels are names, even if they are numbers
        return as_texts(_objects(np.asarray(values, dtype=object))).view(Levels)
    if kind is None and not isinstance(values, Sequence | np.ndarray):
        values = [values]  # one row
    if kind is None and isinstance(values, str):
        values = [values]
    array = values if isinstance(values, np.ndarray) else _array(values)
    if array.dtype.kind in "bmM":
        return array
    if array.dtype.kind in "iuf":
        return np.asarray(array, dtype=np.float64)
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported: X must hold real numbers or texts")
    return _objects(np.asarray(array, dtype=object))


def _array(values: Any) -> Values:
    """Return a series or a list as an array; what is missing in an array of objects stays what it is."""
    if hasattr(values, "to_numpy"):
        array: Values = values.to_numpy()
        return array
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(len(values), dtype=object)
        array[:] = values
    mixed = array.dtype.kind in "US" and not all(isinstance(value, str | bytes) for value in values)
    return np.array(values, dtype=object) if mixed else array


def _objects(array: Values) -> Values:
    """Return objects as booleans, numbers, dates or texts, whichever all that are not missing are."""
    missing = np.fromiter((is_missing(value) for value in array), dtype=bool, count=len(array))
    kinds = {type(value) for value in array[~missing]}
    if kinds and all(issubclass(kind, bool | np.bool_) for kind in kinds) and not missing.any():
        return array.astype(bool)
    if all(_is_number_type(kind) for kind in kinds):
        numbers = np.full(len(array), np.nan)
        numbers[~missing] = array[~missing].astype(np.float64)
        return numbers
    if all(hasattr(kind, "isoformat") for kind in kinds):
        dates = np.full(len(array), np.datetime64("NaT"), dtype="datetime64[s]")
        dates[~missing] = [np.datetime64(value.isoformat()[:19]) for value in array[~missing]]
        return dates
    for kind in kinds:
        if not (issubclass(kind, str | bytes) or _is_number_type(kind)):
            raise TypeError(f"an entry of X, as an argument, must be a string or a number, got {kind.__name__}")
    texts = array.copy()
    texts[missing] = None
    texts[~missing] = [_text(value) for value in array[~missing]]
    return texts


def is_missing(value: Any) -> bool:
    """Whether a value stands for none: None, NaN, pandas' NA and NaT."""
    not_a_number = isinstance(value, float | np.floating) and bool(value != value)
    return value is None or not_a_number or type(value).__name__ in ("NAType", "NaTType")


def _is_number_type(kind: type) -> bool:
    return issubclass(kind, int | float | np.number | np.bool_) or kind.__name__ in ("Decimal", "Fraction")


def _text(value: Any) -> str:
    """Return a level as a text; whole numbers without a point, so that 4, 4.0 and "4" are one level."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def as_texts(values: Values) -> Values:
    """Return a column as texts, None for what is missing."""
    if values.dtype == object:
        return values
    levels, codes = np.unique(values, return_inverse=True)
    texts = np.array([None if is_missing(level) else _text(level.item()) for level in levels], dtype=object)
    return np.asarray(texts[codes])


def as_numbers(values: Values) -> NDArray[np.float64] | None:
    """Return a column as numbers, NaN for what is missing; None where a cell holds none."""
    if values.dtype.kind in "mM":
        return None
    try:
        return values.astype(np.float64)  # None becomes NaN
    except (TypeError, ValueError):
        return None


def is_number(text: str) -> bool:
    """Tell whether a text is one of a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def as_booleans(values: Values) -> NDArray[np.float64] | None:
    """Return a column of true and false, in any case, as 1 and 0; None where a cell is neither."""
    if values.dtype != object:
        return as_numbers(values)
    levels = {level: _TRUTH.get(level.lower()) for level in set(values.tolist()) - {None}}
    if None in levels.values():
        return as_numbers(values)
    return np.array([math.nan if value is None else levels[value] for value in values], dtype=np.float64)


def count_missing(values: Values) -> int:
    """Return how many cells are missing."""
    if values.dtype == object:
        return sum(value is None for value in values)
    if values.dtype.kind in "mM":
        return int(np.count_nonzero(np.isnat(values)))
    return int(np.count_nonzero(np.isnan(values))) if values.dtype.kind == "f" else 0


def check_unique(X: Any) -> None:
    """Raise where two columns of a data frame have one name."""
    names = list(map(str, X.columns))
    if len(set(names)) < len(names):
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"X has two columns named {twin!r}: rename one of them")

"""How the columns of a table become numbers, as plain tables that numpy alone applies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from diht.numerics.arrays import Indices, Matrix
from diht.tables.frame import Frame, Values, as_booleans, as_numbers, as_texts, count_missing, is_number

__all__ = ["BLANK", "KINDS", "OTHER", "Column", "Encoding"]

KINDS = ("number", "boolean", "category", "unused")
BLANK, OTHER = "(blank)", "(other)"  # the levels of what is missing, and of rare levels together


@dataclass(frozen=True)
class Column:
    """How one column becomes columns of numbers.

    Attributes
    ----------
    name : str
        That of the column.
    kind : str
        "number"; "boolean", 0 and 1; "category", a column for each level; "unused", none.
    fill : float or None
        What takes the place of a missing number; None where missing ones are refused.
    indicator : bool
        Whether a further column tells what was missing, 1, from what was not, 0.
    levels : tuple of str
        The levels of a category that have a column of their own, in its order.
    other : bool
        Whether a last column stands for all other levels, rare ones and those that were never seen. Without it these are 0 in
        every column.
    blank : bool
        Whether what is missing in a category is a level, `BLANK`; otherwise it is refused.
    """

    name: str
    kind: str
    fill: float | None = None
    indicator: bool = False
    levels: tuple[str, ...] = ()
    other: bool = False
    blank: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the columns that it becomes."""
        if self.kind == "category":
            return [f"{self.name}={level}" for level in (*self.levels, *([OTHER] if self.other else []))]
        return [] if self.kind == "unused" else [self.name, *([f"{self.name} is missing"] if self.indicator else [])]

    @property
    def takes_missing(self) -> bool:
        """Whether cells may be missing."""
        return self.blank if self.kind == "category" else self.fill is not None

    def encode(self, values: Values) -> Matrix:
        """Return the columns of numbers, of shape (n, number of names); what is missing was checked before."""
        if self.kind == "category":
            return self._one_hot(as_texts(values))
        numbers = as_numbers(values) if self.kind == "number" else as_booleans(values)
        if numbers is None:
            cell = next(value for value in as_texts(values) if value is not None and not is_number(value))
            wanted = "a number" if self.kind == "number" else "true or false"
            raise ValueError(f"column {self.name!r} of X must hold {wanted}, as in fit, got {str(cell)[:40]!r}")
        missing = np.isnan(numbers)
        if np.any(np.isinf(numbers)):
            raise ValueError(f"column {self.name!r} of X contains infinity")
        filled = np.where(missing, np.nan if self.fill is None else self.fill, numbers) if missing.any() else numbers
        return np.column_stack([filled, missing]) if self.indicator else np.asarray(filled[:, None], dtype=np.float64)

    def _one_hot(self, texts: Values) -> Matrix:
        last = len(self.levels) if self.other else -1
        places = {level: j for j, level in enumerate(self.levels)}
        codes = np.array([places.get(BLANK if text is None else text, last) for text in texts], dtype=np.int64)
        columns = np.zeros((len(texts), len(self.levels) + self.other))
        known = np.flatnonzero(codes >= 0)
        columns[known, codes[known]] = 1.0
        return columns


@dataclass(frozen=True)
class Encoding:
    """How all columns of a table become numbers.

    Attributes
    ----------
    columns : tuple of Column
        In the order of the table.
    """

    columns: tuple[Column, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of numbers."""
        return tuple(name for column in self.columns for name in column.names)

    @cached_property
    def origin(self) -> Indices:
        """The place in `columns` that each column of numbers comes from."""
        sizes = [len(column.names) for column in self.columns]
        return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)

    @cached_property
    def groups(self) -> Indices:
        """The group of each column of numbers, from 0: the levels of a category are one, every other column is by itself."""
        starts = [j == 0 or column.kind != "category" for column in self.columns for j in range(len(column.names))]
        return np.cumsum(starts, dtype=np.int64) - 1

    @property
    def has_categories(self) -> bool:
        """Whether some columns belong together."""
        return any(len(column.names) > 1 and column.kind == "category" for column in self.columns)

    @property
    def is_learned(self) -> bool:
        """Whether what becomes of a column depends on the samples that were seen: levels, and what takes the place of blanks."""
        return any(column.kind == "category" or column.fill is not None for column in self.columns)

    def needed(self, features: Indices | Sequence[int] | None = None) -> tuple[Column, ...]:
        """Return the columns that some columns of numbers, by default all of them, come from."""
        used = np.unique(self.origin if features is None else self.origin[np.asarray(features, dtype=np.int64)])
        return tuple(self.columns[j] for j in used)

    def encode(self, X: Any, features: Indices | Sequence[int] | None = None) -> Matrix:
        """Return some columns of numbers, by default all of them; other columns of X need not be there.

        Columns are found by their names; an array has them in the order of `columns`.
        """
        frame, needed = self.frame(X), self.needed(features)
        self._check(frame, needed)
        names = [name for column in needed for name in column.names]
        blocks = [column.encode(frame[column.name]) for column in needed]
        if not blocks:
            return np.empty((len(frame), 0))
        whole = blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)
        if features is None or len(features) == len(names):
            return whole
        place = {name: j for j, name in enumerate(names)}
        return np.asarray(whole[:, [place[self.names[j]] for j in features]])

    def frame(self, X: Any) -> Frame:
        """Return X as a table, its columns named as these are where it has no names."""
        frame = Frame.of(X)
        if frame.named:
            return frame
        if len(frame.names) != len(self.columns):
            raise ValueError(f"X has {len(frame.names)} columns without names, where {len(self.columns)} are expected")
        return Frame(tuple(column.name for column in self.columns), frame.values, frame.n_rows)

    def _check(self, frame: Frame, needed: Sequence[Column]) -> None:
        """Raise where a column is not there, or has missing values that are refused: all of them in one line."""
        lacking = [column.name for column in needed if column.name not in frame.names]
        if lacking:
            more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
            raise ValueError(f"X has no column {', '.join(map(repr, lacking[:5]))}{more}, which the model needs")
        counts = {
            column.name: count
            for column in needed
            if not column.takes_missing and (count := count_missing(frame[column.name]))
        }
        if counts:
            raise ValueError(missing_in_words(counts, len(frame)))


def missing_in_words(counts: Mapping[str, int], n_rows: int) -> str:
    """Say in which columns values are missing, and what may be done."""
    each = ", ".join(f"{name!r} ({count:,} of {n_rows:,})" for name, count in counts.items())
    advice = (
        "fill them in, fit with TableEncoder(impute='median') or diht fit --impute median, or fit without these columns"
    )
    return f"X contains NaN or missing values in {each}: {advice}"

"""What a column looks like: numbers, true and false, levels of a category, dates, or an id."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from diht.tables.frame import Levels, Values, as_booleans, as_numbers, count_missing, is_number

__all__ = ["kind_of", "left_out", "looks_like_id"]

_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})( .*)?"
    rf"|\d{{1,2}}[-/. ]{_MONTH}[-/., ]+\d{{2,4}}( .*)?|{_MONTH} \d{{1,2}},? \d{{4}}( .*)?",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[-+]?\d+([.,]\d+)*")
_MEASURE = re.compile(r"\(?#\)?\s?[^\d\s#]{0,5}")  # 170 cm, (12): # stands for the number
_ID = re.compile(r"(.*[_\W])?(id|uuid|guid|index|idx|row|rownames|row_?number|unnamed: 0|key|nr|no)", re.IGNORECASE)
_CAMEL_ID = re.compile(r".*[a-z](Id|ID)")
_MOSTLY = 0.9  # of the cells that are numbers from which on others among them are mistakes
_MANY = 20  # distinct texts from which on a column may be one of names, tickets, remarks: below, it is a category


def kind_of(values: Values) -> str:
    """Return "number", "boolean", "category", "date", or "empty" where nothing but missing values is there.

    It is "mixed" where all but a few cells are numbers, too many for them to be names: such as a number with its unit among many.
    """
    if values.dtype.kind in "mM":
        return "date"
    if values.dtype.kind == "b":
        return "boolean"
    if len(values) and count_missing(values) == len(values):
        return "empty"
    if isinstance(values, Levels):
        return "category"
    if values.dtype != object:
        return "number"
    if as_numbers(values) is not None:
        return "number"
    if as_booleans(values) is not None:
        return "boolean"
    levels = set(values.tolist()) - {None}
    if _is_mixed(values, levels):
        return "mixed"
    return "date" if all(_DATE.fullmatch(level.strip()) for level in levels) else "category"


def _is_mixed(values: Values, levels: set[str]) -> bool:
    numbers = {level for level in levels if is_number(level)}
    forms = {_NUMBER.sub("#", level.strip()) for level in levels} if len(levels) > _MANY else set()
    if 0 < len(forms) <= 2 and all(map(_MEASURE.fullmatch, forms)):
        return True
    if len(numbers) <= _MANY:
        return False
    cells = [value for value in values.tolist() if value is not None]
    return sum(cell in numbers for cell in cells) > _MOSTLY * len(cells)


def looks_like_id(name: str, values: Values, kind: str) -> bool:
    """Whether a column tells rows apart and nothing else.

    A text does where more than half of its cells are different ones; a whole number where all cells differ and they are numbered
    from 0 or 1, or the name says so.
    """
    if kind == "category":
        present = values[values != None]  # noqa: E711 - elementwise
        distinct = len(set(present.tolist()))
        return distinct > max(_MANY, len(present) / 2)
    numbers = as_numbers(values) if kind == "number" else None
    if numbers is None or len(numbers) < 3 or not np.all(np.isfinite(numbers)) or np.any(numbers != np.round(numbers)):
        return False
    if len(np.unique(numbers)) < len(numbers):
        return False
    low, high = float(numbers.min()), float(numbers.max())
    named = _ID.fullmatch(name.strip()) or _CAMEL_ID.fullmatch(name.strip()) or not name.strip()
    return bool(named) or (low in (0.0, 1.0) and high - low == len(numbers) - 1 and len(numbers) >= _MANY)


def left_out(
    names: Sequence[str], values: Sequence[Values], kinds: Sequence[str], keep: Sequence[Any] | None = None
) -> dict[str, str]:
    """Return the columns that a model is better without, and why: ids, row numbers, and those with no value at all."""
    kept = set(map(str, keep or ()))
    reasons = {}
    for name, column, kind in zip(names, values, kinds, strict=True):
        if kind == "empty":
            reasons[name] = "has no value at all"
        elif name not in kept and looks_like_id(name, column, kind):
            reasons[name] = "looks like an id or a row number" if kind == "number" else "looks like an id or a remark"
    return reasons

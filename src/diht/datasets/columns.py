"""What tables with columns (CSV, Parquet) and arrays (npz) share: names, the target among them, finite numbers."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Target",
    "as_targets",
    "check_names",
    "check_width",
    "describe_missing",
    "find_targets",
    "first_not_finite",
    "position_in",
    "stacked",
]

Target: TypeAlias = str | int


def check_names(path: str, names: Sequence[str]) -> None:
    """Raise where two columns have one name."""
    seen: dict[str, int] = {}
    for position, name in enumerate(names):
        if name in seen:
            data = "; is it data, and a header missing?" if _is_number(name) else ": rename one of them"
            raise ValueError(f"{path}: the columns {seen[name]} and {position} are both named {name!r}{data}")
        seen[name] = position


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def check_width(path: str, found: int, n_features: int | None, max_features: int | None) -> None:
    """Raise unless a dense table has as many features as expected, and no more than are allowed."""
    if n_features is not None and found != n_features:
        raise ValueError(f"{path}: {found} features, where {n_features} are expected")
    if max_features is not None and found > max_features:
        raise ValueError(f"{path}: {found} features, where at most {max_features} are allowed")


def describe_missing(path: str, kind: str, name: str, names: Sequence[str]) -> str:
    """Say that there is no such column or array, and which one may have been meant."""
    close = get_close_matches(name, names, n=3)
    if close:
        return f"{path}: no {kind} {name!r}; did you mean {' or '.join(map(repr, close))}?"
    shown = ", ".join(map(repr, names[:6])) + (", ..." if len(names) > 6 else "")
    return f"{path}: no {kind} {name!r}; there are {shown}"


def position_in(width: int, target: str | int) -> int | None:
    """Return the column that a number, also one in a string, stands for, counted from 0 or, if negative, the end."""
    try:
        return range(width)[int(target)]
    except (ValueError, IndexError):
        return None


def as_targets(target: Target | Sequence[Target] | None) -> list[Target]:
    """Return the targets that are asked for, none where the format decides."""
    if target is None:
        return []
    return [target] if isinstance(target, str | int) else list(target)


def find_targets(
    path: str,
    names: Sequence[str],
    targets: Sequence[Target],
    *,
    has_header: bool,
    needs_target: bool,
    n_features: int | None,
) -> list[int]:
    """Return the positions of the targets among the columns, without those that the file lacks and that are not needed.

    A target is a name, or else a position counted from 0; by default the last column.  Where none is needed, a file
    as wide as `n_features` has none, unless a header names it, and the last column is one by default only where it
    is left over.
    """
    if not targets:
        return [len(names) - 1] if needs_target or n_features == len(names) - 1 else []
    lacks_it = not needs_target and n_features == len(names)
    found: list[int] = []
    for target in targets:
        name = str(target)
        if name in names and (has_header or not lacks_it):
            position: int | None = names.index(name)
        else:
            position = None if lacks_it else position_in(len(names), target)
        if position is None and needs_target:
            raise ValueError(describe_missing(path, "column", name, names))
        if position is None:
            continue
        if position in found:
            raise ValueError(f"{path}: the target {names[position]!r} comes twice")
        found.append(position)
    return found


def stacked(path: str, names: Sequence[str], targets: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Return a single target as it is, and several, which must be numbers, as the columns of an array."""
    if len(targets) == 1:
        return targets[0]
    for name, y in zip(names, targets, strict=True):
        if y.dtype.kind not in "biuf":
            raise ValueError(f"{path}: the target {name!r} holds texts such as {str(y[0])!r}; several must be numbers")
    return np.column_stack(targets)


def first_not_finite(X: NDArray[Any]) -> tuple[int, int] | None:
    """Return the row and column of the first entry that is NaN or infinite."""
    finite = np.isfinite(X)
    if finite.all():
        return None
    row, column = divmod(int(finite.argmin()), X.shape[1])
    return row, column

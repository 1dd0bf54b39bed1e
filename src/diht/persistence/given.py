"""Models of other tools: coefficients, or features alone, by name in a JSON or CSV file."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, replace

from diht.persistence.document import MAX_WHOLE, Node, parse, read_text

__all__ = ["GivenModel", "is_given_model", "read_given_model"]


@dataclass(frozen=True)
class GivenModel:
    """A model of another tool, by the names of its features.

    Attributes
    ----------
    names : tuple of str or int
        The features; a number is a place among the columns, from 0.
    rows : tuple of tuples of float, or None
        Their coefficients, a row for each class or target where there are several; None where only the features are given.
    intercepts : tuple of float, or None
        The constant of each row, if there are any.
    """

    names: tuple[str | int, ...]
    rows: tuple[tuple[float, ...], ...] | None
    intercepts: tuple[float, ...] | None = None


_INTERCEPTS = ("intercept", "(intercept)", "intercept_", "const")
_HEADERS = ("feature", "features", "name", "names", "variable", "variables", "term", "column", "support")
_VALUES, _SUPPORTS = ("coefficients", "coef", "coef_", "beta", "w"), ("support", "support_", "features", "names")


def read_given_model(path: str) -> GivenModel:
    """Read a model of another tool: a JSON file, or lines of ``name,coefficient`` or of names alone.

    In JSON it is an object of coefficients by name, or a list of features; or an object with the entry ``coefficients``
    (an object, or a list with one number for every column, or a list of such lists) or ``support`` (a list), and perhaps
    ``intercept``. Of several classes or targets a name, and the intercept, has a list with one number for each.
    """
    return _given_csv(path) if path.lower().endswith(_TABLES) else _given_json(Node(parse(path), "", path))


_TABLES = (".csv", ".tsv", ".txt")


def is_given_model(path: str) -> bool:
    """Tell whether a file is a model of another tool: a table of coefficients, or JSON that does not claim to be ours."""
    if path.lower().endswith(_TABLES):
        return True
    content = parse(path)
    return isinstance(content, list) or (isinstance(content, dict) and bool(content) and "format" not in content)


def _given_json(root: Node) -> GivenModel:
    if isinstance(root.value, list):
        return _only_features(root)
    if not isinstance(root.value, dict):
        raise root.wrong("an object of coefficients, or a list of features")
    content = root.entries(*root.value)
    intercept = next((content.pop(key) for key in list(content) if key.lower() in _INTERCEPTS), None)
    if len(content) == 1:
        ((key, node),) = content.items()
        if key in _SUPPORTS and isinstance(node.value, list):
            return replace(_only_features(node), intercepts=None if intercept is None else _numbers(intercept))
        if key in _VALUES and isinstance(node.value, dict):
            content = node.entries(*node.value)
        elif key in _VALUES and isinstance(node.value, list):
            rows = _every_column(node)
            return GivenModel(tuple(range(len(rows[0]))), rows, _constants(intercept, len(rows)))
    columns = {name: _numbers(node) for name, node in content.items()}
    if not columns:
        if intercept is None:
            raise root.fail("no coefficients")
        constants = _numbers(intercept)
        return GivenModel((), ((),) * len(constants), constants)
    count = len(next(iter(columns.values())))
    for name, values in columns.items():
        if len(values) != count:
            raise content[name].fail(f"{len(values)} numbers, where the first feature has {count}")
    return GivenModel(tuple(columns), tuple(zip(*columns.values(), strict=True)), _constants(intercept, count))


def _only_features(node: Node) -> GivenModel:
    """Read a list of names or of places."""
    names = tuple(item.whole(0, MAX_WHOLE) if isinstance(item.value, int) else item.text() for item in node.items())
    if not names:
        raise node.fail("no feature")
    if len(set(names)) < len(names):
        raise node.fail("a feature comes twice")
    return GivenModel(names, None)


def _every_column(node: Node) -> tuple[tuple[float, ...], ...]:
    """Read one coefficient for every column, as a list or as a list of lists (scikit-learn's classifiers)."""
    items = node.items()
    rows = items if items and all(isinstance(item.value, list) for item in items) else [node]
    values = tuple(tuple(item.number() for item in row.items()) for row in rows)
    if not values[0]:
        raise node.fail("no coefficients")
    if len({len(row) for row in values}) > 1:
        raise node.fail("rows of different lengths")
    return values


def _numbers(node: Node) -> tuple[float, ...]:
    """Read a number, or a list of them: one for each class or target."""
    items = node.items() if isinstance(node.value, list) else [node]
    if not items:
        raise node.wrong("a number")
    return tuple(item.number() for item in items)


def _constants(node: Node | None, count: int) -> tuple[float, ...] | None:
    """Read as many intercepts as there are rows of coefficients, where there are any."""
    if node is None:
        return None
    constants = _numbers(node)
    if len(constants) != count:
        raise node.wrong("one number" if count == 1 else f"{count} numbers")
    return constants


def _given_csv(path: str) -> GivenModel:
    """Read lines of ``name,coefficient``, the intercept in a line of that name, or of names alone.

    A first line whose second cell is no number, or whose first is empty, is a header; under an empty first cell of three the
    first column numbers the rows.
    """
    rows = _cells(path)
    widths = {len(cells) for _, cells in rows}
    if widths == {1}:
        if rows[0][1][0].lower() in _HEADERS:
            rows = rows[1:]
        return _named_alone(path, rows)
    if rows and len(rows[0][1]) == 3 and not rows[0][1][0]:
        rows = [(line, cells[1:] if len(cells) == 3 else cells) for line, cells in rows]
    coefficients: dict[str, float] = {}
    for i, (line, cells) in enumerate(rows):
        if len(cells) != 2:
            raise ValueError(f"{path}: line {line}: expected name,coefficient, got {len(cells)} cells")
        name, number = cells[0], _number(cells[1])
        if i == 0 and (number is None or not name):
            continue
        if number is None or not math.isfinite(number):
            raise ValueError(f"{path}: line {line}: {cells[1]!r} is not a finite number")
        if name in coefficients:
            raise ValueError(f"{path}: line {line}: {name!r} comes twice")
        coefficients[name] = number
    if not coefficients:
        raise ValueError(f"{path}: no line with name,coefficient")
    intercept = next((coefficients.pop(name) for name in list(coefficients) if name.lower() in _INTERCEPTS), None)
    return GivenModel(tuple(coefficients), (tuple(coefficients.values()),), None if intercept is None else (intercept,))


def _named_alone(path: str, rows: list[tuple[int, list[str]]]) -> GivenModel:
    names = [cells[0] for _, cells in rows]
    for i, (line, _) in enumerate(rows):
        if names[i] in names[:i]:
            raise ValueError(f"{path}: line {line}: {names[i]!r} comes twice")
    if not names:
        raise ValueError(f"{path}: no line with the name of a feature")
    return GivenModel(tuple(names), None)


def _cells(path: str) -> list[tuple[int, list[str]]]:
    """Return the lines of a table that are not empty, with their numbers; commas, semicolons or tabs separate the cells."""
    text = read_text(path, "utf-8-sig")
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = next((c for c in ",;\t" if c in first), ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except csv.Error as error:
        raise ValueError(f"{path}: line {reader.line_num}: {error}") from None
    return [(line, cells) for line, cells in rows if any(cells)]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None

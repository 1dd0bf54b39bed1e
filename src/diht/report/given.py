"""Models of other tools: coefficients, or features alone, by name in a JSON or CSV file."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, replace

from diht.report.document import MAX_WHOLE, Node, parse, read_text

__all__ = ["GivenModel", "is_given_model", "read_given_model"]


@dataclass(frozen=True)
class GivenModel:
    """A model of another tool, by the names of its features.

    Attributes
    ----------
    names : tuple of str or int
        The features; a number is a place among the columns, from 0.
    values : tuple of float, or None
        Their coefficients; None where only the features are given.
    intercept : float or None
        The constant, if there is one.
    """

    names: tuple[str | int, ...]
    values: tuple[float, ...] | None
    intercept: float | None = None

    @classmethod
    def by_name(cls, coefficients: dict[str, float], intercept: float | None = None) -> GivenModel:
        """Take coefficients by name, the intercept perhaps among them."""
        coefficients = dict(coefficients)
        named = next((name for name in coefficients if name.lower() in _INTERCEPTS), None)
        if named is not None:
            intercept = coefficients.pop(named)
        return cls(tuple(coefficients), tuple(coefficients.values()), intercept)


_INTERCEPTS = ("intercept", "(intercept)", "intercept_", "const")
_HEADERS = ("feature", "features", "name", "names", "variable", "variables", "term", "column", "support")
_VALUES, _SUPPORTS = ("coefficients", "coef", "coef_", "beta", "w"), ("support", "support_", "features", "names")


def read_given_model(path: str) -> GivenModel:
    """Read a model of another tool: a JSON file, or lines of ``name,coefficient`` or of names alone.

    In JSON it is an object of coefficients by name, or a list of features; or an object with the entry ``coefficients``
    (an object, or a list with one number for every column) or ``support`` (a list), and perhaps ``intercept``.
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
    constant = None if intercept is None else _single(intercept)
    if len(content) == 1:
        ((key, node),) = content.items()
        if key in _SUPPORTS and isinstance(node.value, list):
            return replace(_only_features(node), intercept=constant)
        if key in _VALUES and isinstance(node.value, dict):
            content = node.entries(*node.value)
        elif key in _VALUES and isinstance(node.value, list):
            return _every_column(node, constant)
    if not content and constant is None:
        raise root.fail("no coefficients")
    return GivenModel.by_name({name: node.number() for name, node in content.items()}, constant)


def _only_features(node: Node) -> GivenModel:
    """Read a list of names or of places."""
    names = tuple(item.whole(0, MAX_WHOLE) if isinstance(item.value, int) else item.text() for item in node.items())
    if not names:
        raise node.fail("no feature")
    if len(set(names)) < len(names):
        raise node.fail("a feature comes twice")
    return GivenModel(names, None)


def _every_column(node: Node, intercept: float | None) -> GivenModel:
    """Read one coefficient for every column, as a list or as the only one of a list of lists (scikit-learn's classifiers)."""
    items = node.items()
    if len(items) == 1 and isinstance(items[0].value, list):
        items = items[0].items()
    if not items:
        raise node.fail("no coefficients")
    return GivenModel(tuple(range(len(items))), tuple(item.number() for item in items), intercept)


def _single(node: Node) -> float:
    """Read a number, or a list of one."""
    items = node.items() if isinstance(node.value, list) else [node]
    if len(items) != 1:
        raise node.wrong("one number")
    return items[0].number()


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
    return GivenModel.by_name(coefficients)


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

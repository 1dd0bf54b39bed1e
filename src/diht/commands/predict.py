"""``diht predict``: one prediction a sample."""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from diht.datasets import Table, atomic_write, read_table
from diht.losses import losses_with_probabilities
from diht.numerics.arrays import Indices
from diht.persistence.model import SavedModel, stacked_columns
from diht.persistence.schema import read_model
from diht.tables import Frame

__all__ = ["as_numbers", "columns_of", "predict", "read_for", "rows_for"]


def predict(arguments: argparse.Namespace) -> None:
    """Write one prediction a sample."""
    model = read_model(arguments.model)
    if arguments.proba and not model.has_probabilities:
        known = " or ".join(losses_with_probabilities())
        raise ValueError(
            f"argument --proba: needs a model with the {known} loss, {arguments.model} has {model.loss.name}"
        )
    table = read_for(model, arguments.file, model.targets, needs_target=False)
    X, columns = rows_for(model, table)
    try:
        header, rows = _predictions(model, X, columns, arguments.proba)
    except ValueError as error:
        raise ValueError(f"{table.path}: {str(error).removeprefix('X ')}") from None
    if arguments.out == "-":
        csv.writer(sys.stdout, lineterminator="\n").writerows([header, *rows])
        return
    with atomic_write(arguments.out) as file:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        file.write(text.getvalue().encode())


def _predictions(model: SavedModel, X: Any, columns: Indices | None, proba: bool) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the answer."""
    several = model.classes is None and len(model.equations) > 1
    header = [f"prediction_{equation.label}" for equation in model.equations] if several else ["prediction"]
    rows = [[str(each) for each in (value if several else [value])] for value in model.predict(X, columns)]
    if proba:
        assert model.classes is not None
        header += [f"proba_{label}" for label in model.classes]
        probabilities = model.probabilities(X, columns)
        rows = [row + [str(p) for p in line] for row, line in zip(rows, probabilities, strict=True)]
    return header, rows


def read_for(
    model: SavedModel,
    path: str,
    targets: Sequence[str] | None,
    needs_target: bool,
    max_features: int | None = None,
) -> Table:
    """Read data for a model: with its columns by name, or as many of them as it knows."""
    names = model.input_names
    by_name = names is not None and not _are_numbered(names)
    expected = model.n_features if names is None else len(names)
    table = read_table(
        path,
        targets,
        n_features=None if by_name else expected,
        needs_target=needs_target,
        zero_based=model.data.zero_based,
        max_features=max_features,
        texts=True,
    )
    nameless = names is None or table.feature_names is None
    if nameless and table.X.shape[1] != expected:
        raise ValueError(f"{path}: {table.X.shape[1]} features, where the model has {expected}")
    return table


def rows_for(model: SavedModel, table: Table) -> tuple[Any, Indices | None]:
    """Return the rows of a table as a model predicts them, and where its features stand in them; raise if a column is missing."""
    if model.encoding is None and not isinstance(table.X, Frame):
        return table.X, columns_of(model, table, model.support)
    frame = table.frame
    _check_columns(table, model.needed or (), frame.names)
    return frame, None


def as_numbers(model: SavedModel, table: Table) -> Table:
    """Return a table whose columns are all features of a model, as numbers."""
    if model.encoding is not None:
        _check_columns(table, [column.name for column in model.encoding.needed()], table.frame.names)
        return replace(table, X=model.encoding.encode(table.frame), feature_names=list(model.encoding.names))
    if not isinstance(table.X, Frame) or model.feature_names is None:
        return table
    _check_columns(table, model.feature_names, table.X.names)
    return replace(table, X=stacked_columns(table.X, model.feature_names), feature_names=list(model.feature_names))


def _are_numbered(names: Sequence[str]) -> bool:
    """Whether columns have the names x0, x1, ... of a file without a header."""
    return all(re.fullmatch(r"x\d+", name) for name in names)


def columns_of(model: SavedModel, table: Table, needed: Indices) -> Indices | None:
    """Return where each feature of the model stands in the table, -1 for those missing; raise if one is needed."""
    if model.feature_names is None or table.feature_names is None or model.feature_names == tuple(table.feature_names):
        return None
    places = {name: j for j, name in enumerate(table.feature_names)}
    columns = np.array([places.get(name, -1) for name in model.feature_names], dtype=np.int64)
    _check_columns(table, [model.feature_names[j] for j in needed], table.feature_names)
    return columns


def _check_columns(table: Table, needed: Sequence[str], present: Sequence[str]) -> None:
    known = set(present)
    missing = [name for name in needed if name not in known]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        names = f"{', '.join(map(repr, missing[:5]))}{more}"
        header = "; the file has no header" if _are_numbered(present) else ""
        raise ValueError(f"{table.path}: no column {names}, which the model needs{header}")

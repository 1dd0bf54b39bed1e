"""``diht report``: a model on one page that needs nothing else."""

from __future__ import annotations

import argparse
import os

import numpy as np

from diht.commands.predict import read_for, rows_for
from diht.commands.targets import targets_for
from diht.persistence.model import SavedModel, as_labels
from diht.persistence.schema import read_model
from diht.report.page import Predictions, Story, write_page

__all__ = ["report"]


def report(arguments: argparse.Namespace) -> None:
    """Write the page of a model, with what it predicts for some data where that is given."""
    if arguments.target is not None and arguments.file is None:
        raise ValueError(f"argument --target: {arguments.target[0]!r} needs DATA to be found in")
    model = read_model(arguments.model)
    out = arguments.out or os.path.join(os.path.dirname(arguments.model), "report.html")
    tested = None if arguments.file is None else _tested(model, arguments.file, arguments.target)
    write_page(model, out, Story(tested=tested))
    print(f"Written: {out}")


def _tested(model: SavedModel, path: str, targets: list[str] | None) -> Predictions:
    table = read_for(model, path, targets or model.targets, needs_target=True)
    X, columns = rows_for(model, table)
    y = targets_for(model, table)
    likely = model.probabilities(X, columns) if model.has_probabilities else None
    if model.classes is not None:
        y = np.array(as_labels(y), dtype=object)
    predicted = np.array(model.predict(X, columns), dtype=y.dtype)
    try:
        return Predictions(y, predicted, likely, os.path.basename(path)).checked(model.classes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None

"""The results: one row a measurement, in a CSV file that is whole at every moment."""

from __future__ import annotations

import csv
import io
import os
import platform
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from datetime import date
from typing import Any

import numpy as np

from diht import __version__
from diht.datasets import atomic_write

__all__ = ["COLUMNS", "FILE", "Row", "append_rows", "environment", "read_rows"]

FILE = "results.csv"


@dataclass(frozen=True)
class Row:
    """One measurement, what it is a measurement of, and where and when it was made; None where a column does not apply.

    Attributes
    ----------
    figure : str
        fig1 to fig5, or theory.
    data, method, loss : str
        The data set, the method and the loss that it minimised.
    n, d, k : int
        Samples, features, and how many features a model may use.
    lam : float
        The ridge.
    seed : int
        The number of the random copy, or of the repetition of a clock.
    step : float
        The tuned step size.
    epoch : float
        Passes over the data (in the theory: iterations) at which the value was taken.
    measure : str
        What was measured; "seconds" is the only clock, all else is the same in every run.
    value : float
        The measurement.
    mode : str
        "quick" or "full".
    version, python, numpy, machine, date : str
        Of this package, of what it ran on, and when.
    """

    figure: str
    data: str
    method: str
    loss: str
    n: int | None
    d: int | None
    k: int | None
    lam: float | None
    seed: int | None
    step: float | None
    epoch: float | None
    measure: str
    value: float
    mode: str = ""
    version: str = ""
    python: str = ""
    numpy: str = ""
    machine: str = ""
    date: str = ""

    @property
    def problem(self) -> tuple[Any, ...]:
        """What was solved. All rows of a problem and a method are written at once."""
        return self.figure, self.data, self.loss, self.d, self.n, self.k, self.lam


COLUMNS = tuple(field.name for field in fields(Row))
_INTEGERS, _FLOATS = ("n", "d", "k", "seed"), ("lam", "step", "epoch", "value")


def environment() -> dict[str, Any]:
    """Return the columns that say what measured, and when."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "date": date.today().isoformat(),
    }


def read_rows(path: str | os.PathLike[str]) -> list[Row]:
    """Return the rows of a table, none if there is no file.

    Of a table that was cut off in the middle of a line, what may be incomplete is left out: all rows of the last line's problem.

    Raises
    ------
    ValueError
        For a file that is no such table, in one line that names it.
    """
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    lines = text.splitlines()
    torn = bool(text) and not text.endswith("\n")
    if torn:
        lines.pop()
    if not lines:
        return []
    reader = csv.reader(lines)
    if tuple(next(reader)) != COLUMNS:
        raise ValueError(f"{os.fspath(path)}: not a table of results: its first line must be {','.join(COLUMNS)}")
    rows = [_parsed(cells, path) for cells in reader]
    return [row for row in rows if row.problem != rows[-1].problem] if torn else rows


def _parsed(cells: list[str], path: str | os.PathLike[str]) -> Row:
    try:
        named: dict[str, Any] = dict(zip(COLUMNS, cells, strict=True))
        for kind, names in ((int, _INTEGERS), (float, _FLOATS)):
            named |= {name: kind(named[name]) if named[name] else None for name in names}
        if named["value"] is None:
            raise ValueError
    except ValueError:
        raise ValueError(f"{os.fspath(path)}: not a row of results: {','.join(cells)}") from None
    return Row(**named)


def append_rows(path: str | os.PathLike[str], rows: Iterable[Row]) -> None:
    """Add rows to a table, which stays in one fixed order whatever order the rows come in.

    The table is written aside and renamed, so it has all of the rows or none of them, whenever the process is killed.
    """
    table = sorted([*read_rows(path), *rows], key=_place)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(astuple(row) for row in table)  # None becomes an empty cell, a float its shortest exact form
    with atomic_write(path) as file:
        file.write(text.getvalue().encode())


def _place(row: Row) -> tuple[Any, ...]:
    """Problem by problem, method by method."""
    key = (*row.problem, row.method, row.seed, row.epoch, row.measure, row.step, row.value)
    return tuple((cell is not None, cell if cell is not None else 0) for cell in key)

"""Which columns of a file a fit uses: those asked for, without ids and row numbers."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field

import numpy as np

from diht.datasets import Table
from diht.estimators.table_encoder import TableEncoder, chosen_columns
from diht.report.text import printable
from diht.tables import Frame, kind_of, left_out

__all__ = ["Chosen", "choose_columns"]

_SHOWN = 6  # columns named in a line


@dataclass(frozen=True)
class Chosen:
    """The columns to use, those that were left out and why, and the encoder where some are no numbers."""

    table: Table
    left_out: dict[str, str] = field(default_factory=dict)
    encoder: TableEncoder | None = None

    def lines(self) -> list[str]:
        """Say what was left out, one line."""
        if not self.left_out:
            return []
        shown = [f'"{printable(name, 30)}" {reason}' for name, reason in list(self.left_out.items())[:_SHOWN]]
        more = f"; and {len(self.left_out) - _SHOWN} more" if len(self.left_out) > _SHOWN else ""
        useful = [name for name, reason in self.left_out.items() if "no value" not in reason]
        hint = f" (--keep {printable(useful[0], 30)} uses it)" if useful else ""
        return [f"Left out {'; '.join(shown)}{more}{hint}"]


def choose_columns(table: Table, arguments: argparse.Namespace) -> Chosen:
    """Take the columns that are asked for, but for those that look like ids; raise where a name is not among them."""
    asked = {name: getattr(arguments, name) for name in ("drop", "only", "keep")}
    if table.feature_names is None or not isinstance(table.X, Frame | np.ndarray):
        given = next((f"--{name}" for name, names in (asked | {"impute": arguments.impute}).items() if names), None)
        if given:
            raise ValueError(f"argument {given}: needs a CSV or Parquet file, whose columns have names")
        return Chosen(table)
    try:
        names = chosen_columns(table.feature_names, **asked)
    except ValueError as error:
        raise ValueError(f"{table.path}: --{error}") from None
    reasons = _reasons(table, names, asked["keep"])
    used = [name for name in names if name not in reasons]
    if not used:
        raise ValueError(f"{table.path}: no column to use besides the target; --keep NAME uses one that was left out")
    some = table if used == table.feature_names else table.only(used)
    if not isinstance(some.X, Frame):
        return Chosen(some, reasons)
    encoder = TableEncoder(impute=arguments.impute, keep=used)
    try:
        encoder.check(some.X)
    except ValueError as error:
        raise ValueError(f"{table.path}: {str(error).removeprefix('X ')}") from None
    return Chosen(some, reasons, encoder)


def _reasons(table: Table, names: list[str], keep: list[str] | None) -> dict[str, str]:
    """Return the columns that look like ids; of a file without a header they have no names to be told apart by later."""
    if all(re.fullmatch(r"x\d+", name) for name in names):
        return {}
    frame = table.frame
    values = [frame[name] for name in names]
    kinds = [kind_of(column) if isinstance(table.X, Frame) else "number" for column in values]
    return left_out(names, values, kinds, keep)

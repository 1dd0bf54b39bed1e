"""Read text with commas, semicolons, tabs or bars between cells."""

from __future__ import annotations

import csv
import math
import os
import re
from array import array
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO, StringIO
from itertools import chain, islice
from typing import Any, BinaryIO, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from diht.datasets.columns import (
    Target,
    as_targets,
    check_names,
    check_width,
    find_targets,
    first_not_finite,
    position_in,
    stacked,
)
from diht.datasets.opening import opened
from diht.datasets.table import Table
from diht.numerics.memory import free_memory, require_memory
from diht.tables import Frame
from diht.tables.frame import Values, as_numbers, count_missing

__all__ = ["delimited_pieces", "read_delimited"]

_MISSING = {"", "?", "-", ".", "na", "n/a", "#n/a", "nan", "null", "none"}

_CELLS = 2**24  # after so many more it is asked again how much memory is free
_PIECE = 2**18  # numbers of a piece: a few megabytes
_CELL_BYTES = 64.0  # of a short text
_LARGE = 2**21  # bytes of a file that pandas reads sooner, its import included
_GROWTH = 16.0  # bytes of memory for one of text, where pandas reads it
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})*(\.\d+)?|[-+]?\d+(\.\d+)?")
_DECIMAL = re.compile(r"[-+]?(\d+|(?=,\d))(,\d+)?([eE][-+]?\d+)?")
_DOTTED = re.compile(r"[-+]?\d{1,3}(\.\d{3})+(,\d+)?|[-+]?\d+(,\d+)?")  # 1.234.567,5
_SIGNED = re.compile(r"([-+]?)[$€£¥]?\s*([-+]?\d[\d.,\s]*?)\s*[%$€£¥]?")  # $1, 5 %; spaces between thousands

# How numbers may be written, and what dots and commas become.
_FORMS = ((_THOUSANDS, ".", ""), (_DECIMAL, ".", "."), (_DOTTED, "", "."))
_MARKS = re.compile(r"[,%$€£¥\s]|\..*\.")  # cells without any are numbers as Python has them, or texts

Row: TypeAlias = tuple[int, list[str]]  # the number of a line, and its cells


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in _MISSING


def _number(cell: str) -> float | None:
    """Return the number that a cell holds, None where it holds none."""
    try:
        return float(cell)
    except ValueError:
        return None


def _lines(path: str, stream: BinaryIO) -> Iterator[str]:
    mark = stream.read(2)
    stream.seek(0)
    if mark in (BOM_UTF16_LE, BOM_UTF16_BE):
        try:
            yield from StringIO(stream.read().decode("utf-16"), newline="")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not UTF-8 text, and damaged UTF-16 ({error.reason}): save it as UTF-8") from None
        return
    for number, raw in enumerate(stream, 1):
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: line {number}: not UTF-8 text ({error.reason}): save it as UTF-8") from None


def _rows(path: str, stream: BinaryIO, tabs: bool) -> tuple[str, Iterator[Row]]:
    """Return what separates cells, and the rows."""
    lines = _lines(path, stream)
    first = next(lines, "")
    delimiter = "\t" if tabs else _delimiter(first)
    return delimiter, _parsed(path, chain([first], lines), delimiter)


def _parsed(path: str, lines: Iterable[str], delimiter: str) -> Iterator[Row]:
    """Yield the rows, all equally long, without blank lines."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    width = 0
    try:
        for cells in reader:
            if not cells or (len(cells) == 1 and not cells[0].strip()):
                continue
            width = width or len(cells)
            if len(cells) == width + 1 and not cells[-1].strip():  # lines that end in what separates cells
                cells.pop()
            if len(cells) != width:
                raise ValueError(f"{path}: line {reader.line_num}: {len(cells)} cells, where the first has {width}")
            yield reader.line_num, cells
    except csv.Error as error:
        if "new-line character" in str(error):
            raise ValueError(
                f"{path}: its lines end in carriage returns alone: save it with ordinary line ends"
            ) from None
        raise ValueError(f"{path}: line {reader.line_num}: {error}") from None


def _delimiter(first: str) -> str:
    """Return what separates the cells of a line: commas, unless all of them are decimal ones beside semicolons or tabs."""
    bare = re.sub(r'"[^"]*"', "", first)
    undecided = re.sub(r"(?<=\d),(?=\d)", "", bare)
    for text in (undecided, bare) if any(mark in bare for mark in ";\t") else (bare,):
        for mark in ",;\t|":
            if mark in text:
                return mark
    return ","


def _is_header(cells: Sequence[str], targets: Sequence[Target]) -> bool:
    """Whether the first row holds names.

    It does where a cell other than the targets' is a text that does not stand for a missing value; where a target's is one
    and all others are empty; and where it counts 0, 1, 2, ..., as unnamed columns of a data frame do.
    """
    if len(cells) > 2 and list(cells) == [str(j) for j in range(len(cells))]:
        return True
    skip = {position_in(len(cells), _unnumbered(target)) for target in targets or [-1]}
    others = [cell for j, cell in enumerate(cells) if j not in skip or len(cells) == 1]
    return any(map(_is_text, cells if not any(others) else others))


def _is_text(cell: str) -> bool:
    return _number(cell) is None and not _is_missing(cell) and not _DECIMAL.fullmatch(cell.strip())


def _unnumbered(target: Target) -> Target:
    """Return the number of a target that has the name of a column without a header, such as x3; else the target."""
    match = re.fullmatch(r"x(\d+)", str(target))
    return int(match[1]) if match else target


def _numbered(width: int, targets: Sequence[Target] = ()) -> list[str]:
    """Name the columns of a file without a header x0, x1, ...; they are counted as if the targets that it lacks were there."""
    lacking = {position_in(width + len(targets), _unnumbered(target)) for target in targets} - {None}
    return [f"x{j}" for j in range(width + len(lacking)) if j not in lacking]


def _refuse_cell(path: str, line: int, name: str, cell: str, advice: str = "") -> NoReturn:
    what = "missing value" if _is_missing(cell) else "not a finite number:"
    shown = repr(cell if len(cell) <= 40 else cell[:40] + "...") if cell.strip() else "(empty cell)"
    raise _NotANumberError(f"{path}: line {line}, column {name!r}: {what} {shown}{advice}")


class _NotANumberError(ValueError):
    """A cell does not hold a finite number."""


def _collect(path: str, rows: Iterable[Row], names: Sequence[str], positions: Sequence[int]) -> tuple[Any, Any, Any]:
    """Return the features' values row after row, the cells of each target and the line numbers."""
    values, lines, asked = array("d"), array("q"), 0
    labels: list[list[str]] = [[] for _ in positions]
    last_first = sorted(positions, reverse=True)
    for line, cells in rows:
        if len(values) > asked:  # an array grows by a part of its size; it may be moved
            asked = len(values) + max(_CELLS, len(values) // 4)
            require_memory(8.0 * max(_CELLS, len(values) // 8), f"{path}: line {line}: {len(values):,} and more cells")
        for own, position in zip(labels, positions, strict=True):
            own.append(cells[position].strip())
        for position in last_first:
            del cells[position]
        try:
            values.extend(map(float, cells))
        except ValueError:
            name, cell = next((n, c) for n, c in zip(names, cells, strict=True) if _number(c) is None)
            _refuse_cell(path, line, name, cell)
        lines.append(line)
    return values, labels, lines


def _targets(
    path: str, name: str, cells: Iterable[str | None], lines: Sequence[int], needed: bool
) -> NDArray[Any] | None:
    """Return the targets as numbers if all of them are, as class names if none is."""
    if isinstance(cells, np.ndarray) and cells.dtype != object and np.all(np.isfinite(cells)):
        return cells
    labels = ["" if cell is None else str(cell) for cell in cells]
    missing = next((i for i, label in enumerate(labels) if _is_missing(label)), None)
    if missing is not None:
        if needed:
            _refuse_cell(path, lines[missing], name, labels[missing], "; leave out rows without a target")
        return None
    numbers = [_number(label) for label in labels]
    texts = [i for i, number in enumerate(numbers) if number is None]
    if len(texts) == len(labels):
        return np.array(labels, dtype=str)
    if texts:
        i, j = texts[0], next(i for i, number in enumerate(numbers) if number is not None)
        both = f"{labels[i]!r} (line {lines[i]}) and {labels[j]!r} (line {lines[j]})"
        raise ValueError(f"{path}: column {name!r}: targets are numbers or class names, not both: {both}")
    for line, label, number in zip(lines, labels, numbers, strict=True):
        if not math.isfinite(number or 0.0):
            _refuse_cell(path, line, name, label)
    return np.array(numbers, dtype=np.float64)


@dataclass(frozen=True)
class _Head:
    """What the first line of a file tells, and the rows with data, which are still to be read."""

    path: str
    rows: Iterator[Row]
    names: list[str]
    target_names: list[str]
    positions: list[int]
    n_targets: int  # that are needed for y
    delimiter: str
    has_header: bool

    @classmethod
    def of(
        cls,
        path: str,
        text: tuple[str, Iterator[Row]],
        target: Target | Sequence[Target] | None,
        n_features: int | None,
        needs_target: bool,
        max_features: int | None,
    ) -> _Head:
        """Read the first line."""
        targets, (delimiter, rows) = as_targets(target), text
        first = next(rows, None)
        if first is None:
            raise ValueError(f"{path}: empty: no line with data")
        cells = [cell.strip() for cell in first[1]]
        has_header = _is_header(cells, targets)
        names = [cell or f"x{j}" for j, cell in enumerate(cells)] if has_header else _numbered(len(cells))
        check_names(path, names)
        if has_header and not targets and needs_target and not cells[-1]:  # lines that end in what separates cells
            targets = [max(j for j, cell in enumerate(cells) if cell)]
        positions = find_targets(
            path, names, targets, has_header=has_header, needs_target=needs_target, n_features=n_features
        )
        if not has_header and not positions:
            names = _numbered(len(cells), targets)
        target_names = [names[position] for position in positions]
        names = [name for j, name in enumerate(names) if j not in positions]
        if not names:
            marks = "commas, semicolons, tabs or bars separate columns"
            raise ValueError(f"{path}: no column besides the target {target_names[0]!r}; {marks}")
        check_width(path, len(names), n_features, max_features)
        rest = rows if has_header else chain([first], rows)
        return cls(path, rest, names, target_names, positions, len(targets), delimiter, has_header)

    def table(self, rows: Iterable[Row], needs_target: bool) -> Table | None:
        """Return some rows as a table, None where there are none."""
        path, names, target_names = self.path, self.names, self.target_names
        values, labels, lines = _collect(path, rows, names, self.positions)
        if not lines:
            return None
        X = np.frombuffer(values, dtype=np.float64).reshape(len(lines), len(names))
        if at := first_not_finite(X):
            _refuse_cell(path, lines[at[0]], names[at[1]], str(X[at]))
        columns = [
            _targets(path, name, _column(cells, self.delimiter), lines, needs_target)
            for name, cells in zip(target_names, labels, strict=True)
        ]
        return self._with_targets(X, columns)

    def frame(self, needs_target: bool) -> Table | None:
        """Return all rows as a table whose columns are texts, or numbers where all of them hold finite ones."""
        width = len(self.names) + len(self.positions)
        columns: list[list[str | None]] = [[] for _ in range(width)]
        known, lines, held = [_Cells() for _ in range(width)], array("q"), 0
        while rows := list(islice(self.rows, max(1, _PIECE // width))):
            held += len(rows) * width
            require_memory(2 * _CELL_BYTES * len(rows) * width, f"{self.path}: {held:,} and more cells")
            lines.extend(line for line, _ in rows)
            for column, texts, cells in zip(
                columns, known, zip(*(cells for _, cells in rows), strict=True), strict=True
            ):
                column.extend(map(texts.__getitem__, cells))
        if not lines:
            return None
        return self._framed([np.array(_column(c, self.delimiter), dtype=object) for c in columns], lines, needs_target)

    def quick(self, stream: BinaryIO, texts: bool) -> Table | None:
        """Return all rows as pandas reads them; None, or ValueError, where they are to be looked at one by one."""
        if not self.has_header:
            stream.seek(0)
        free = free_memory() / _GROWTH
        content = stream.read(int(free) if math.isfinite(free) else -1)
        columns = [] if b"\0" in content or stream.read(1) else _columns_by_pandas(content, self.delimiter)
        # A row that is too short misses its last cell.
        if len(columns) != len(self.names) + len(self.positions) or count_missing(columns[-1]):
            return None
        if not texts and any(columns[j].dtype == object for j in range(len(columns)) if j not in self.positions):
            return None
        table = self._framed(columns, range(len(columns[-1])), True)
        return table if texts or isinstance(table.X, np.ndarray) else None

    def _framed(self, columns: Sequence[Values], lines: Sequence[int], needs_target: bool) -> Table:
        """Return a table of columns that hold texts and None, or numbers and NaN."""
        values = tuple(column for j, column in enumerate(columns) if j not in self.positions)
        found = [
            _targets(self.path, name, columns[position], lines, needs_target)
            for name, position in zip(self.target_names, self.positions, strict=True)
        ]
        numbers = [as_numbers(column) for column in values]
        if all(column is not None and np.all(np.isfinite(column)) for column in numbers):
            return self._with_targets(np.column_stack(numbers), found)  # type: ignore[arg-type]
        return self._with_targets(Frame(tuple(self.names), values, len(lines)), found)

    def _with_targets(self, X: Any, columns: Sequence[NDArray[Any] | None]) -> Table:
        """Return a table, without targets where some that are needed are missing."""
        known = [column for column in columns if column is not None]
        if not known or len(known) < max(self.n_targets, 1):
            return Table(X, None, self.names, None, self.path)
        return Table(X, stacked(self.path, self.target_names, known), self.names, self.target_names, self.path)


def _column(cells: Sequence[str | None], delimiter: str) -> Sequence[str | None]:
    """Return the cells of a column, numbers with decimal commas, commas between thousands, % or $ as Python has them.

    Where a comma may be either, as in 1,234, it is a decimal one beside semicolons and tabs, and between thousands beside commas.
    """
    present = [cell for cell in cells if cell]
    if not any(map(_MARKS.search, present)):
        return cells
    bare = {cell: _bare(cell) for cell in present}
    for pattern, dot, comma in _FORMS if delimiter == "," else (_FORMS[1], _FORMS[0], _FORMS[2]):
        if all(map(pattern.fullmatch, bare.values())):
            return [cell and bare[cell].replace(".", dot).replace(",", comma) for cell in cells]
    return cells


def _bare(cell: str) -> str:
    """Return a number without a sign of a currency or of percent, and without spaces between its thousands."""
    found = _SIGNED.fullmatch(cell)
    return cell if found is None else found[1] + re.sub(r"(?<=\d)\s(?=\d{3}(\D|$))", "", found[2])


def _columns_by_pandas(content: bytes, delimiter: str) -> list[Values]:
    """Return the columns of lines as numbers and NaN, or texts and None; raise ValueError where pandas finds none."""
    import pandas as pd

    if b'"' in re.sub(rb'"[^"]*+(?:""[^"]*+)*+"(?=[\r\n%b]|$)' % delimiter.encode(), b"", content):
        raise ValueError("a cell may go on after its quotes")
    signs = sorted({form(sign) for sign in _MISSING for form in (str.lower, str.upper, str.title)})
    settings: dict[str, Any] = {"sep": delimiter, "header": None, "skipinitialspace": True, "low_memory": False}
    settings |= {"keep_default_na": False, "na_values": signs}
    if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):  # later ones return the nearest numbers anyway
        settings["float_precision"] = "round_trip"
    frame = pd.read_csv(BytesIO(content), **settings)
    truth = [j for j in frame.columns if pd.api.types.infer_dtype(frame[j], skipna=True) == "boolean"]
    if truth:  # true or True: as it is written
        frame = pd.read_csv(BytesIO(content), dtype=dict.fromkeys(truth, str), **settings)
    return [_from_pandas(frame[j], delimiter) for j in frame.columns]


def _from_pandas(column: Any, delimiter: str) -> Values:
    if column.dtype.kind in "iuf":
        return np.asarray(column, dtype=np.float64)
    codes, levels = column.factorize()  # -1 for what is missing
    known = _Cells()
    texts = np.array([*_column([known[str(level)] for level in levels], delimiter), None], dtype=object)
    return np.asarray(texts[codes])


class _Cells(dict[str, str | None]):
    """The cells of a column without blanks around them, each text once; None for those that are missing."""

    def __missing__(self, cell: str) -> str | None:
        clean = None if _is_missing(cell) else cell.strip()
        self[cell] = clean
        return clean


def read_delimited(
    path: str,
    target: Target | Sequence[Target] | None = None,
    *,
    tabs: bool = False,
    n_features: int | None = None,
    needs_target: bool = True,
    max_features: int | None = None,
    texts: bool = False,
) -> Table:
    """Read a CSV file, or one with tabs, into a dense table; see `read_table` for the arguments."""

    def read(make: Callable[[_Head, BinaryIO], Table | None]) -> Table | None:
        with opened(path) as stream:
            head = _Head.of(path, _rows(path, stream, tabs), target, n_features, needs_target, max_features)
            return make(head, stream)

    table = None
    if os.path.getsize(path) >= _LARGE and find_spec("pandas"):
        with suppress(ValueError):  # what is wrong, and where, the rows tell
            table = read(lambda head, stream: head.quick(stream, texts))
    try:
        table = table or read(lambda head, _: head.table(head.rows, needs_target))
    except _NotANumberError:
        if not texts:
            raise
        table = read(lambda head, _: head.frame(needs_target))
    if table is None:
        raise ValueError(f"{path}: no data below the header")
    return table


def delimited_pieces(
    path: str,
    target: Target | Sequence[Target] | None = None,
    *,
    tabs: bool = False,
    skip: int = 0,
    max_features: int | None = None,
) -> Iterator[Table]:
    """Read a CSV file, or one with tabs, some rows at a time, without the first `skip` rows."""
    with opened(path) as stream:
        head = _Head.of(path, _rows(path, stream, tabs), target, None, True, max_features)
        read = sum(1 for _ in islice(head.rows, skip))
        size = max(1, _PIECE // len(head.names))
        while (table := head.table(islice(head.rows, size), True)) is not None:
            read += len(table.X)
            yield table
    if not read:
        raise ValueError(f"{path}: no data below the header")

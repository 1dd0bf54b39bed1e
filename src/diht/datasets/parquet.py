"""Read Parquet files, with pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from diht.datasets.columns import Target, as_targets, check_names, check_width, find_targets, first_not_finite, stacked
from diht.datasets.opening import one_line, opened
from diht.datasets.table import Table
from diht.numerics.memory import NotEnoughMemoryError, require_memory
from diht.tables import Frame

__all__ = ["parquet_groups", "parquet_pieces", "read_group", "read_parquet"]

T = TypeVar("T")


_COPIES = 2  # of all numbers that are held at once: as they are in the file, or column by column, and as a matrix
_PIECE = 2**20  # numbers of a piece: a few megabytes


def _guarded(path: str, f: Callable[..., T], *arguments: Any) -> T:
    """Call a function of pyarrow's; what is wrong with the bytes of the file becomes one line."""
    try:
        return f(*arguments)
    except NotEnoughMemoryError:
        raise
    except Exception as error:  # damaged bytes surface as any of a dozen types, and all mean the same
        raise ValueError(f"{path}: not a Parquet file, or a damaged one ({one_line(error)})") from None


def _file(path: str, stream: BinaryIO) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise ValueError(f"{path}: reading Parquet needs pyarrow: pip install 'diht[parquet]'") from None
    return _guarded(path, lambda: pq.ParquetFile(stream, page_checksum_verification=True))


def _load(path: str) -> Any:
    """Return the file as a pyarrow table without the index of a data frame."""
    with opened(path) as stream:
        file = _file(path, stream)

        def read() -> Any:
            rows, kinds = file.metadata.num_rows, file.schema_arrow.types
            width = 4.0 if all(kind == "float" for kind in kinds) else 8.0
            require_memory(_COPIES * width * rows * len(kinds), f"{path}: {rows:,} rows of {len(kinds):,} columns")
            return _without_index(file.read())

        return _guarded(path, read)


def _without_index(table: Any) -> Any:
    """Check the values of a pyarrow table, and drop the index of a data frame."""
    table.validate(full=True)
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    return table.drop_columns([name for name in table.column_names if name in index])


def _plain(column: Any) -> Any:
    """Undo a dictionary encoding."""
    import pyarrow as pa

    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _check_complete(path: str, name: str, column: Any, first: int) -> None:
    if column.null_count:
        row = first + int(np.argmax(column.is_null().to_numpy()))
        raise ValueError(f"{path}: row {row}, column {name!r}: missing value")


def _numbers(path: str, name: str, column: Any, first: int) -> NDArray[Any]:
    """Return a numeric column as an array of floats."""
    import pyarrow as pa

    column = _plain(column)
    kind = column.type
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    if not any(is_a(kind) for is_a in numeric):
        raise ValueError(f"{path}: column {name!r} has type {kind}, not numbers")
    _check_complete(path, name, column, first)
    single = kind == pa.float32()
    if not pa.types.is_float16(kind):  # numpy converts what pyarrow does not
        column = column.cast(pa.float32() if single else pa.float64(), safe=False)
    return np.asarray(column.to_numpy(), dtype=np.float32 if single else np.float64)


def _targets(path: str, name: str, column: Any, needed: bool, first: int) -> NDArray[Any] | None:
    """Return the targets, numbers or class names; None where some are missing and none is needed."""
    import pyarrow as pa

    column = _plain(column)
    if column.null_count and not needed:
        return None
    if any(is_a(column.type) for is_a in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)):
        _check_complete(path, name, column, first)
        return np.array(column.to_pylist(), dtype=str)
    y = _numbers(path, name, column, first).astype(np.float64)
    if at := first_not_finite(y[:, None]):
        raise ValueError(f"{path}: row {first + at[0]}, column {name!r}: not a finite number: {y[at[0]]}")
    return y


@dataclass(frozen=True)
class _Head:
    """The columns of a file."""

    path: str
    names: list[str]
    target_names: list[str]
    n_targets: int  # that are needed for y
    needs_target: bool

    @classmethod
    def of(
        cls,
        path: str,
        names: list[str],
        target: Target | Sequence[Target] | None,
        n_features: int | None,
        needs_target: bool,
        max_features: int | None,
    ) -> _Head:
        """Find the targets among the columns."""
        targets = as_targets(target)
        positions = find_targets(
            path, names, targets, has_header=True, needs_target=needs_target, n_features=n_features
        )
        target_names = [names[position] for position in positions]
        names = [name for j, name in enumerate(names) if j not in positions]
        if not names:
            raise ValueError(f"{path}: no column besides the target {target_names[0]!r}")
        check_width(path, len(names), n_features, max_features)
        return cls(path, names, target_names, len(targets), needs_target)

    def frame(self, rows: Any) -> Table:
        """Return all rows as a table whose columns may hold anything."""
        values = tuple(_plain(rows.column(name)).to_numpy() for name in self.names)
        try:
            frame = Frame.of(dict(zip(self.names, values, strict=True)))
        except TypeError as error:
            raise ValueError(f"{self.path}: {error}") from None
        return self._with_targets(frame, rows, 0)

    def table(self, rows: Any, first: int = 0) -> Table:
        """Return some rows, from `first` on, as a table."""
        path, names = self.path, self.names
        columns = [_numbers(path, name, rows.column(name), first) for name in names]
        X = np.empty((rows.num_rows, len(names)), np.result_type(*{column.dtype for column in columns}))
        for j, column in enumerate(columns):
            X[:, j] = column
        if at := first_not_finite(X):
            raise ValueError(f"{path}: row {first + at[0]}, column {names[at[1]]!r}: not a finite number: {X[at]}")
        return self._with_targets(X, rows, first)

    def _with_targets(self, X: Any, rows: Any, first: int) -> Table:
        path = self.path
        found = [_targets(path, name, rows.column(name), self.needs_target, first) for name in self.target_names]
        known = [y for y in found if y is not None]
        if not known or len(known) < max(self.n_targets, 1):
            return Table(X, None, self.names, None, path)
        return Table(X, stacked(path, self.target_names, known), self.names, self.target_names, path)

    def are_numbers(self, rows: Any) -> bool:
        """Whether all columns hold numbers, and miss none."""
        import pyarrow as pa

        numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
        columns = [rows.column(name) for name in self.names]
        return all(any(is_a(column.type) for is_a in numeric) and not column.null_count for column in columns)


def _check_not_empty(path: str, names: list[str], n_rows: int) -> None:
    check_names(path, names)
    if not names or not n_rows:
        raise ValueError(f"{path}: empty: no {'rows' if names else 'columns'}")


def read_parquet(
    path: str,
    target: Target | Sequence[Target] | None = None,
    *,
    n_features: int | None = None,
    needs_target: bool = True,
    max_features: int | None = None,
    texts: bool = False,
) -> Table:
    """Read a Parquet file into a dense table; see `read_table` for the arguments."""
    rows = _load(path)
    names = list(rows.column_names)
    _check_not_empty(path, names, rows.num_rows)
    head = _Head.of(path, names, target, n_features, needs_target, max_features)
    return head.frame(rows) if texts and not head.are_numbers(rows) else head.table(rows)


def parquet_pieces(
    path: str,
    target: Target | Sequence[Target] | None = None,
    *,
    skip: int = 0,
    max_features: int | None = None,
) -> Iterator[Table]:
    """Read a Parquet file some rows at a time, without the first `skip` rows."""
    with opened(path) as stream:
        file = _file(path, stream)
        names = list(_guarded(path, lambda: _without_index(file.schema_arrow.empty_table())).column_names)
        _check_not_empty(path, names, file.metadata.num_rows)
        head = _Head.of(path, names, target, None, True, max_features)
        sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
        ends = np.cumsum(sizes)
        group = int(np.searchsorted(ends, skip, side="right"))
        if group == len(sizes):
            return
        first = int(ends[group]) - sizes[group]
        batches = file.iter_batches(
            max(1, _PIECE // len(names)), row_groups=range(group, len(sizes)), use_threads=False
        )
        while (rows := _guarded(path, _next_rows, batches)) is not None:
            unread = max(0, min(skip - first, rows.num_rows))
            first += unread
            if unread < rows.num_rows:
                yield head.table(rows.slice(unread), first)
            first += rows.num_rows - unread


def parquet_groups(path: str) -> list[int]:
    """Return the rows of each row group."""
    with opened(path) as stream:
        found = _file(path, stream).metadata
        return [found.row_group(i).num_rows for i in range(found.num_row_groups)]


def read_group(
    path: str,
    group: int,
    first: int,
    target: Target | Sequence[Target] | None,
    n_features: int | None,
    needs_target: bool,
) -> Table:
    """Read a row group, whose first row has the number `first` in the file; see `read_table` for the other arguments."""
    with opened(path) as stream:
        file = _file(path, stream)
        rows = _guarded(path, lambda: _without_index(file.read_row_group(group, use_threads=False)))
        names = list(rows.column_names)
        _check_not_empty(path, names, rows.num_rows)
        return _Head.of(path, names, target, n_features, needs_target, None).table(rows, first)


def _next_rows(batches: Iterator[Any]) -> Any:
    """Return the next rows as a pyarrow table, None after the last."""
    import pyarrow as pa

    batch = next(batches, None)
    return None if batch is None else _without_index(pa.Table.from_batches([batch]))

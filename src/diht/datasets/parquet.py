"""Read Parquet files, with pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diht.datasets.columns import Target, as_targets, check_names, check_width, find_targets, first_not_finite, stacked
from diht.datasets.opening import one_line, opened
from diht.datasets.table import Table
from diht.numerics.memory import NotEnoughMemoryError, require_memory

__all__ = ["read_parquet"]


_COPIES = 2  # of all numbers that are held at once: as they are in the file, or column by column, and as a matrix


def _load(path: str) -> Any:
    """Return the file as a pyarrow table without the index of a data frame."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise ValueError(f"{path}: reading Parquet needs pyarrow: pip install 'diht[parquet]'") from None
    with opened(path) as stream:
        try:
            file = pq.ParquetFile(stream, page_checksum_verification=True)
            rows, kinds = file.metadata.num_rows, file.schema_arrow.types
            width = 4.0 if all(kind == "float" for kind in kinds) else 8.0
            require_memory(_COPIES * width * rows * len(kinds), f"{path}: {rows:,} rows of {len(kinds):,} columns")
            table = file.read()
            table.validate(full=True)
            index = (table.schema.pandas_metadata or {}).get("index_columns", [])
            return table.drop_columns([name for name in table.column_names if name in index])
        except NotEnoughMemoryError:
            raise
        except Exception as error:  # damaged bytes surface as any of a dozen types, and all mean the same
            raise ValueError(f"{path}: not a Parquet file, or a damaged one ({one_line(error)})") from None


def _plain(column: Any) -> Any:
    """Undo a dictionary encoding."""
    import pyarrow as pa

    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _check_complete(path: str, name: str, column: Any) -> None:
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise ValueError(f"{path}: row {row}, column {name!r}: missing value")


def _numbers(path: str, name: str, column: Any) -> NDArray[Any]:
    """Return a numeric column as an array of floats."""
    import pyarrow as pa

    column = _plain(column)
    kind = column.type
    numeric = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    if not any(is_a(kind) for is_a in numeric):
        raise ValueError(f"{path}: column {name!r} has type {kind}, not numbers")
    _check_complete(path, name, column)
    single = kind == pa.float32()
    if not pa.types.is_float16(kind):  # numpy converts what pyarrow does not
        column = column.cast(pa.float32() if single else pa.float64(), safe=False)
    return np.asarray(column.to_numpy(), dtype=np.float32 if single else np.float64)


def _targets(path: str, name: str, column: Any, needed: bool) -> NDArray[Any] | None:
    """Return the targets, numbers or class names; None where some are missing and none is needed."""
    import pyarrow as pa

    column = _plain(column)
    if column.null_count and not needed:
        return None
    if any(is_a(column.type) for is_a in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)):
        _check_complete(path, name, column)
        return np.array(column.to_pylist(), dtype=str)
    y = _numbers(path, name, column).astype(np.float64)
    if at := first_not_finite(y[:, None]):
        raise ValueError(f"{path}: row {at[0]}, column {name!r}: not a finite number: {y[at[0]]}")
    return y


def read_parquet(
    path: str,
    target: Target | Sequence[Target] | None = None,
    *,
    n_features: int | None = None,
    needs_target: bool = True,
    max_features: int | None = None,
) -> Table:
    """Read a Parquet file into a dense table; see `read_table` for the arguments."""
    table = _load(path)
    names = list(table.column_names)
    check_names(path, names)
    if not names or not table.num_rows:
        raise ValueError(f"{path}: empty: no {'rows' if names else 'columns'}")
    targets = as_targets(target)
    positions = find_targets(path, names, targets, has_header=True, needs_target=needs_target, n_features=n_features)
    target_names = [names[position] for position in positions]
    names = [name for j, name in enumerate(names) if j not in positions]
    if not names:
        raise ValueError(f"{path}: no column besides the target {target_names[0]!r}")
    check_width(path, len(names), n_features, max_features)
    columns = [_numbers(path, name, table.column(name)) for name in names]
    X = np.empty((table.num_rows, len(names)), np.result_type(*{column.dtype for column in columns}))
    for j, column in enumerate(columns):
        X[:, j] = column
    if at := first_not_finite(X):
        raise ValueError(f"{path}: row {at[0]}, column {names[at[1]]!r}: not a finite number: {X[at]}")
    found = [_targets(path, name, table.column(name), needs_target) for name in target_names]
    known = [y for y in found if y is not None]
    if not known or len(known) < max(len(targets), 1):
        return Table(X, None, names, None, path)
    return Table(X, stacked(path, target_names, known), names, target_names, path)

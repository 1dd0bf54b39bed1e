"""Read a data file, whatever its format."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from diht.datasets.archive import read_npz
from diht.datasets.columns import Target, check_width
from diht.datasets.delimited import delimited_pieces, read_delimited
from diht.datasets.folder import is_dataset, open_dataset, parquet_files
from diht.datasets.opening import COMPRESSIONS, check_exists
from diht.datasets.parquet import parquet_pieces, read_parquet
from diht.datasets.svmlight import read_svmlight, svmlight_pieces
from diht.datasets.table import Table
from diht.numerics.threads import effective_n_threads

__all__ = ["is_svmlight", "read_pieces", "read_table"]

# Many of these are how the files of the LIBSVM collection are named.
_SVMLIGHT = (
    ".svm",
    ".svmlight",
    ".libsvm",
    ".txt",
    "",
    ".trn",
    ".tst",
    ".t",
    ".tr",
    ".train",
    ".test",
    ".val",
    ".binary",
)
_DELIMITED = (".csv", ".tsv")
_PARQUET = (".parquet", ".pq")
_NPZ = (".npz",)


def _suffix(path: str) -> str:
    """Return the extension that tells the format, without that of a compression."""
    name = PurePath(path)
    if name.suffix.lower() in COMPRESSIONS:
        name = name.with_suffix("")
    suffix = name.suffix.lower()
    compressed = str(name) != str(PurePath(path))
    if suffix not in (*_SVMLIGHT, *_DELIMITED, *(() if compressed else (*_PARQUET, *_NPZ))):
        raise ValueError(
            f"{path}: unknown kind of file {PurePath(path).name!r}; supported are .csv and .tsv, svmlight "
            f"({', '.join(filter(None, _SVMLIGHT))} or no extension), these also with .gz, .bz2 or .xz, "
            ".parquet and .npz"
        )
    return suffix


def read_table(
    path: str | os.PathLike[str],
    target: Target | Sequence[Target] | None = None,
    *,
    n_features: int | None = None,
    needs_target: bool = True,
    zero_based: bool | None = None,
    max_features: int | None = None,
    texts: bool = False,
) -> Table:
    """Read a data file.

    The name tells the format: CSV (``.csv``, ``.tsv``), svmlight (``.svm``, ``.libsvm``, ``.txt``, no extension, and
    as LIBSVM's files are named), either plain or with ``.gz``, ``.bz2``, ``.xz``; Parquet (``.parquet``); numpy
    (``.npz``: ``X`` and ``y``, or a sparse array as `scipy.sparse.save_npz` writes it).  A folder that `convert` has written, or
    one of Parquet files, is opened, and its X not held.

    Parameters
    ----------
    path : str or path-like
    target : str, int or a sequence of these, optional
        The target column: its name, or its position counted from 0.  By default the last column; in an npz file it
        is the name of an array, by default ``"y"``, or of a column of one, such as ``"y0"``; an svmlight file has its
        targets in front.  Several targets must be numbers.
    n_features : int, optional
        How many features there must be.  A sparse table with fewer gets columns of zeros; anything else is an error.
    needs_target : bool
        False, for files to predict: the target may be absent or incomplete, and ``y`` is None then.  Without
        `target`, the last column of a CSV or Parquet file is taken for it only if `n_features` leaves one over.
    zero_based : bool, optional
        Whether svmlight indices start at 0; by default they do where an index 0 occurs in the file.
    max_features : int, optional
        The most features that there may be.  By default an svmlight or a sparse npz file may have as many as the free
        memory holds the vectors of in a fit: a wrong index is an error, not a wide table.
    texts : bool
        Whether columns of CSV and Parquet files may hold texts and miss values: ``X`` is a `Frame` then.

    Returns
    -------
    Table

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        In one line that names the file and the place in it: not readable as its name promises, values missing or
        not finite, no such target, another number of features than `n_features`, more than `max_features`; or
        more entries, or more features of a model, than the free memory holds.

    Notes
    -----
    The first line of a CSV file is a header if a cell in it is text (other than the target's cell and signs for
    missing values), or if it counts 0, 1, 2, ...; without one the columns are named x0, x1, ....  Class names may be
    strings; all other cells are finite numbers, unless `texts` allows others. Commas, semicolons, tabs or bars separate cells; with
    `texts` numbers may have decimal commas, marks between thousands, and signs of percent or a currency, which are ignored.
    """
    path = os.fspath(path)
    if is_dataset(path):
        return _dataset(path, target, n_features, needs_target, max_features)
    check_exists(path)
    suffix = _suffix(path)
    expected: dict[str, Any] = {"n_features": n_features, "needs_target": needs_target, "max_features": max_features}
    if suffix in _DELIMITED:
        tabs = suffix == ".tsv"
        return read_delimited(path, target, tabs=tabs, texts=texts, **expected)
    if suffix in _PARQUET:
        return read_parquet(path, target, texts=texts, **expected)
    if suffix in _NPZ:
        return read_npz(path, target, **expected)
    _check_no_target(path, target)
    return read_svmlight(path, zero_based=zero_based, **expected)


def _dataset(
    path: str,
    target: Target | Sequence[Target] | None,
    n_features: int | None,
    needs_target: bool,
    max_features: int | None,
) -> Table:
    """Open a data set on disk as a table."""
    if parquet_files(path):
        from diht.datasets.parquet_folder import Chosen, open_parquet

        chosen = Chosen(target, n_features=n_features, needs_target=needs_target)
        data = open_parquet(path, chosen, None, effective_n_threads())
    else:
        data = open_dataset(path, target)
    check_width(path, data.X.shape[1], n_features, max_features)
    return Table(
        data.X, data.y, data.feature_names, data.target_names, path, data.zero_based, data.weights, data.is_sparse
    )


def is_svmlight(path: str) -> bool:
    """Tell whether the name of a file says svmlight; raise where it says nothing that can be read."""
    return _suffix(path) in _SVMLIGHT


def read_pieces(
    path: str,
    target: Target | Sequence[Target] | None = None,
    *,
    zero_based: bool = False,
    skip: int = 0,
    max_features: int | None = None,
) -> Iterator[Table]:
    """Read a data file some rows at a time, without the first `skip` rows; an npz file is held as a whole.

    The arguments, and what is refused, are those of `read_table`.
    """
    suffix = _suffix(path)
    expected: dict[str, Any] = {"skip": skip, "max_features": max_features}
    if suffix in _DELIMITED:
        return delimited_pieces(path, target, tabs=suffix == ".tsv", **expected)
    if suffix in _PARQUET:
        return parquet_pieces(path, target, **expected)
    if suffix in _NPZ:
        table = read_npz(path, target, max_features=max_features)
        assert table.y is not None
        return iter([replace(table, X=table.X[skip:], y=table.y[skip:])] if skip < len(table.y) else [])
    _check_no_target(path, target)
    return svmlight_pieces(path, zero_based=zero_based, **expected)


def _check_no_target(path: str, target: Target | Sequence[Target] | None) -> None:
    if target is not None:
        raise ValueError(f"{path}: an svmlight file has no columns to choose a target {target!r} from")

"""Read a data file, whatever its format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from diht.datasets.columns import Target
from diht.datasets.opening import COMPRESSIONS, check_exists
from diht.datasets.table import Table

__all__ = ["read_table"]

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
) -> Table:
    """Read a data file.

    The name tells the format: CSV (``.csv``, ``.tsv``), svmlight (``.svm``, ``.libsvm``, ``.txt``, no extension, and
    as LIBSVM's files are named), either plain or with ``.gz``, ``.bz2``, ``.xz``; Parquet (``.parquet``); numpy
    (``.npz``: ``X`` and ``y``, or a sparse array as `scipy.sparse.save_npz` writes it).

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
    strings; all other cells are finite numbers.
    """
    path = os.fspath(path)
    check_exists(path)
    suffix = _suffix(path)
    expected: dict[str, Any] = {"n_features": n_features, "needs_target": needs_target, "max_features": max_features}
    if suffix in _DELIMITED:
        from diht.datasets.delimited import read_delimited

        tabs = suffix == ".tsv"
        return read_delimited(path, target, tabs=tabs, **expected)
    if suffix in _PARQUET:
        from diht.datasets.parquet import read_parquet

        return read_parquet(path, target, **expected)
    if suffix in _NPZ:
        from diht.datasets.archive import read_npz

        return read_npz(path, target, **expected)
    if target is not None:
        raise ValueError(f"{path}: an svmlight file has no columns to choose a target {target!r} from")
    from diht.datasets.svmlight import read_svmlight

    return read_svmlight(path, zero_based=zero_based, **expected)

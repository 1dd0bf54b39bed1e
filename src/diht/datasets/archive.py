"""Read ``.npz`` archives of numpy arrays, dense or sparse."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from diht.datasets.columns import (
    Target,
    as_targets,
    check_names,
    check_width,
    describe_missing,
    first_not_finite,
    stacked,
)
from diht.datasets.opening import one_line, opened
from diht.datasets.table import Table
from diht.numerics.memory import NotEnoughMemoryError, features_bytes, require_memory

__all__ = ["read_npz"]

Arrays: TypeAlias = Mapping[str, NDArray[Any]]

_PARTS = {"csr": ("data", "indices", "indptr"), "csc": ("data", "indices", "indptr"), "coo": ("data", "row", "col")}


def _load(path: str, targets: Sequence[str]) -> tuple[Arrays, list[str]]:
    """Return those arrays of the archive that make up a table, and the names of all."""
    wanted = {*targets, *(_place_of(target)[0] for target in targets)}
    wanted |= {"X", "feature_names", "names", "format", "shape", *_PARTS["csr"], *_PARTS["coo"]}
    with opened(path) as stream:
        if not stream.read(1):
            raise ValueError(f"{path}: empty file")
        if not zipfile.is_zipfile(stream):
            raise ValueError(f"{path}: not an npz file (it is no zip archive), or a truncated one")
        stream.seek(0)
        name = ""
        arrays = {}
        try:
            with np.load(stream, allow_pickle=False) as archive:
                files = list(archive.files)
                sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.zip.infolist()}
                for name in files:
                    if name in wanted:
                        require_memory(sizes[name], f"{path}: the numbers of the array {name!r}")
                        arrays[name] = archive[name]
        except NotEnoughMemoryError:
            raise
        except Exception as error:  # damaged bytes surface as any of a dozen types, and all mean the same
            if "allow_pickle" in str(error):
                raise ValueError(f"{path}: the array {name!r} holds Python objects; save numbers or strings") from None
            where = f", array {name!r}" if name else ""
            raise ValueError(f"{path}: a damaged npz file{where} ({one_line(error)})") from None
    return arrays, files


def _floats(path: str, name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return float32 as it is and every other real type as float64."""
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{path}: the array {name!r} has type {array.dtype}, not real numbers")
    dtype = np.dtype(np.float32 if array.dtype.kind == "f" and array.dtype.itemsize == 4 else np.float64)
    if array.dtype != dtype:
        require_memory(8.0 * array.size, f"{path}: the numbers of the array {name!r} as {dtype}")
    return np.asarray(array, dtype=dtype)


def _integers(path: str, name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise ValueError(f"{path}: the array {name!r} is not a list of integers")
    return array if array.dtype in (np.int32, np.int64) else array.astype(np.int64)


def _text(array: NDArray[Any]) -> list[str]:
    """Return an array of strings, or of bytes, as a list."""
    return [
        item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item) for item in array.ravel().tolist()
    ]


def _sparse(path: str, arrays: Arrays) -> Any:
    """Assemble the CSR array that `scipy.sparse.save_npz`, or a plain triplet of arrays, holds.

    Every index is checked before anything compiled walks along them.
    """
    import scipy.sparse as sp

    kind = _text(arrays["format"])[0] if "format" in arrays and arrays["format"].size else "csr"
    if kind not in _PARTS:
        raise ValueError(f"{path}: sparse format {kind!r}; supported are {', '.join(_PARTS)}")
    for name in ("shape", *_PARTS[kind]):
        if name not in arrays:
            raise ValueError(f"{path}: a sparse array without {name!r}")
    data, *where = (arrays[name] for name in _PARTS[kind])
    data = _floats(path, "data", data)
    where = [_integers(path, name, array) for name, array in zip(_PARTS[kind][1:], where, strict=True)]
    shape = tuple(_integers(path, "shape", arrays["shape"]).tolist())
    if len(shape) != 2 or data.ndim != 1:
        raise ValueError(f"{path}: a sparse array of shape {shape}, not (samples, features)")
    counts = f"{shape[0]:,} samples with {shape[1]:,} features"
    require_memory(8.0 * shape[0] + features_bytes(shape[1]), f"{path}: {counts}")
    try:
        if kind == "coo":
            X = sp.coo_array((data, tuple(where)), shape=shape)
        else:
            X = (sp.csr_array if kind == "csr" else sp.csc_array)((data, *where), shape=shape)
            X.check_format(full_check=True)
        X = X.tocsr()
        X.sum_duplicates()
    except (ValueError, IndexError, OverflowError, MemoryError) as error:
        raise ValueError(f"{path}: not a valid sparse array ({one_line(error)})") from None
    return X


def _check_finite(path: str, X: Any, names: list[str] | None) -> None:
    """Raise at the first entry that is NaN or infinite, with its row and column."""
    if isinstance(X, np.ndarray):
        at = first_not_finite(X)
        value = None if at is None else X[at]
    else:
        slot = first_not_finite(X.data[None, :])
        row = 0 if slot is None else int(np.searchsorted(X.indptr, slot[1], side="right")) - 1
        at = None if slot is None else (row, int(X.indices[slot[1]]))
        value = None if slot is None else X.data[slot[1]]
    if at is not None:
        column = repr(names[at[1]]) if names else at[1]
        raise ValueError(f"{path}: row {at[0]}, column {column}: not a finite number: {value}")


def _place_of(target: str) -> tuple[str, int]:
    """Return the array and the column that a name such as y2 stands for, where no array has that name."""
    match = re.fullmatch(r"(.*\D)(0|[1-9]\d{0,5})", target)
    return (match[1], int(match[2])) if match else (target, -1)


def _targets(path: str, arrays: Arrays, target: str, n_samples: int) -> dict[str, NDArray[Any]] | None:
    """Return the targets of an array by their names: its own, or y0, y1, ... of several; None where there is no such array."""
    if target in arrays:
        y = arrays[target]
        if y.ndim != 2 or y.shape[1] < 2:
            return {target: _target(path, target, y, n_samples)}
        return {f"{target}{j}": _target(path, target, y[:, j], n_samples) for j in range(y.shape[1])}
    name, column = _place_of(target)
    if name not in arrays or arrays[name].ndim != 2 or not 0 <= column < arrays[name].shape[1]:
        return None
    return {target: _target(path, name, arrays[name][:, column], n_samples)}


def _target(path: str, name: str, y: NDArray[Any], n_samples: int) -> NDArray[Any]:
    """Return a target as floats or strings."""
    if y.size != n_samples or y.shape not in {(n_samples,), (n_samples, 1)}:
        raise ValueError(f"{path}: the array {name!r} has shape {y.shape}, where X has {n_samples} rows")
    if y.dtype.kind in "SU":
        return np.array(_text(y), dtype=str)
    y = _floats(path, name, y).astype(np.float64).ravel()
    if at := first_not_finite(y[:, None]):
        raise ValueError(f"{path}: row {at[0]} of {name!r}: not a finite number: {y[at[0]]}")
    return y


def _matrix(path: str, arrays: Arrays, files: list[str]) -> Any:
    """Return X, dense or sparse."""
    if "X" in arrays:
        X: Any = _floats(path, "X", arrays["X"])
    elif "data" in arrays:
        X = _sparse(path, arrays)
    else:
        raise ValueError(describe_missing(path, "array", "X", files))
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"{path}: X has shape {X.shape}, not (samples, features)")
    return X


def _fit_width(path: str, X: Any, n_features: int | None, max_features: int | None, padded: bool) -> Any:
    """Check the number of features; a sparse array without names may lack the last ones."""
    if n_features is None or not padded or X.shape[1] > n_features:
        check_width(path, X.shape[1], n_features, max_features)
        return X
    return type(X)((X.data, X.indices, X.indptr), shape=(X.shape[0], n_features))


def read_npz(
    path: str,
    target: Target | Sequence[Target] | None = None,
    *,
    n_features: int | None = None,
    needs_target: bool = True,
    max_features: int | None = None,
) -> Table:
    """Read an npz archive; see `read_table` for the arguments.

    It holds ``X``, or the arrays of `scipy.sparse.save_npz`; the targets in ``y``, or in the arrays that `target`
    names; and perhaps the features' names in ``feature_names`` or ``names``.  The columns of an array ``y`` with
    several are called ``y0``, ``y1``, ....  Nothing is unpickled.
    """
    keys = [str(key) for key in as_targets(target)] or ["y"]
    arrays, files = _load(path, keys)
    X = _matrix(path, arrays, files)
    given = arrays.get("feature_names", arrays.get("names"))
    names = None if given is None else _text(given)
    if names is not None and len(names) != X.shape[1]:
        raise ValueError(f"{path}: {len(names)} names for {X.shape[1]} features")
    check_names(path, names or [])
    _check_finite(path, X, names)
    X = _fit_width(path, X, n_features, max_features, not isinstance(X, np.ndarray) and names is None)
    columns: dict[str, NDArray[Any]] = {}
    for key in keys:
        found = _targets(path, arrays, key, X.shape[0])
        if found is None:
            if needs_target:
                raise ValueError(describe_missing(path, "array", key, files))
            return Table(X, None, names, None, path)
        if found.keys() & columns.keys():
            raise ValueError(f"{path}: the target {key!r} comes twice")
        columns |= found
    return Table(X, stacked(path, list(columns), list(columns.values())), names, list(columns), path)

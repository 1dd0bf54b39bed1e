"""Data sets on disk: a folder of row blocks, which are read when they are needed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diht.datasets.buffers import Buffers, read_bytes
from diht.datasets.columns import Target, as_targets
from diht.datasets.opening import one_line
from diht.datasets.writing import atomic_write
from diht.design import (
    Block,
    Columns,
    DenseDesign,
    RowArrays,
    SparseDesign,
    StoredDesign,
    StreamedRows,
    effective_n_threads,
)

__all__ = [
    "MANIFEST",
    "Dataset",
    "block_file",
    "is_dataset",
    "open_dataset",
    "parquet_files",
    "write_array",
    "write_manifest",
]

MANIFEST = "manifest.json"
_FORMAT, _VERSION = "diht rows", 1
_CHUNK = 1 << 22  # bytes that are read at a time for a checksum
_HEADER = 1 << 10  # bytes that the header of an array has at most
# What numpy writes of an array of numbers in C order.
_ARRAY = re.compile(
    r"{'descr': '(?P<descr>[<>|][biuf]\d+)', 'fortran_order': False, 'shape': \((?P<shape>[\d, ]*)\), } *\n"
)
_NUMBERS = ("n_samples", "n_features", "nonzeros", "squares")
_KINDS: dict[str, Any] = {
    "sparse": bool,
    "dtype": str,
    "weights": bool,
    "zero_based": bool | None,
    "feature_names": list | None,
    "target_names": list | None,
    "classes": list | None,
    "columns": str,
    "files": dict,
    "blocks": list,
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set on disk, as :func:`open_dataset` returns it.

    Attributes
    ----------
    path : str
        The folder.
    X : Design
        The samples: blocks of rows that are read when they are needed. Estimators, `sparse_path`, `Problem` and so on take it as
        they take a matrix.
    feature_names, target_names : list of str, or None
        As in :class:`diht.datasets.Table`.
    classes : list of str, or None
        The class names, sorted, where the targets are such.
    columns : array of shape (6, n_features)
        What is known of the columns, a row each: number of entries that are not zero, mean, Euclidean norm, sum of the squared
        deviations from the mean, least and largest entry.
    is_sparse : bool
        Whether the blocks are sparse.
    zero_based : bool or None
        As in :class:`diht.datasets.Table`.
    """

    path: str
    X: StreamedRows
    feature_names: list[str] | None
    target_names: list[str] | None
    classes: list[str] | None
    columns: NDArray[np.float64]
    is_sparse: bool
    zero_based: bool | None
    _rows: Callable[[str], NDArray[Any] | None] = field(repr=False)

    @cached_property
    def y(self) -> NDArray[Any] | None:
        """The targets: float64, or strings where they are class names; read when they are first asked for."""
        return self._rows("y")

    @cached_property
    def weights(self) -> NDArray[np.float64] | None:
        """The weights of the samples; None where the data set has none."""
        return self._rows("weights")

    @property
    def target(self) -> str | None:
        """The name of the target, where there is one with a name."""
        return self.target_names[0] if self.target_names is not None and len(self.target_names) == 1 else None

    def __repr__(self) -> str:
        n, d = self.X.shape
        return f"Dataset({self.path!r}: {n:,} samples, {d:,} features, {self.X.n_blocks:,} blocks)"


def is_dataset(path: str) -> bool:
    """Tell whether a folder holds a data set, or Parquet files."""
    return os.path.isdir(path) and (os.path.exists(os.path.join(path, MANIFEST)) or bool(parquet_files(path)))


def open_dataset(
    folder: str | os.PathLike[str],
    target: Target | Sequence[Target] | None = None,
    weights: str | None = None,
    *,
    memory: float | None = None,
    verify: bool = False,
    n_threads: int | None = None,
) -> Dataset:
    """Open a data set that :func:`diht.datasets.convert` has written, or a folder of Parquet files.

    Of a data set nothing of X is read here, and a block is compared with its checksums when it is first read. Parquet files are
    read once here, to check them.

    Parameters
    ----------
    folder : str or path-like
    target : str, int or a sequence of these, optional
        Of Parquet files the target column, as in `read_table`; that of a data set is the one that it was converted with.
    weights : str, optional
        Of Parquet files the column with the weights of the samples.
    memory : float, optional
        Bytes for what is kept in memory: the columns that a fit works on, and as many blocks as there is room for beside them. By
        default half of what is free. Beside it, a fit takes two blocks and some vectors with an entry for each sample.
    verify : bool
        Whether to read all files of a data set and compare their checksums at once.
    n_threads : int, optional
        Threads of the products with X; by default as many as the machine allows.

    Returns
    -------
    Dataset

    Raises
    ------
    FileNotFoundError, ValueError
        In one line that names the file: one is missing, truncated or changed, or values are missing or not finite.
    """
    path = os.fspath(folder)
    if not os.path.isdir(path):
        raise (
            FileNotFoundError(f"{path}: no such folder")
            if not os.path.exists(path)
            else NotADirectoryError(f"{path}: is a file, not a folder")
        )
    if memory is not None and not (isinstance(memory, Real) and memory >= 0):
        raise ValueError(f"memory must be a number of bytes, got {memory!r}")
    threads = effective_n_threads() if n_threads is None else effective_n_threads(n_threads)
    if parquet_files(path):
        from diht.datasets.parquet_folder import Chosen, open_parquet

        return open_parquet(path, Chosen(target, weights), memory, threads)
    manifest = _read_manifest(path)
    _check_chosen(path, manifest, target, weights)
    for name, known in manifest["files"].items():
        _check_file(os.path.join(path, name), known, verify)
    columns = _array(path, manifest["columns"], manifest["files"])
    if columns.shape != (6, manifest["n_features"]):
        raise ValueError(
            f"{os.path.join(path, manifest['columns'])}: figures of shape {columns.shape}, where the manifest says "
            f"{manifest['n_features']:,} columns"
        )
    names, classes = manifest["feature_names"], manifest["classes"]
    return Dataset(
        path,
        _streamed(path, manifest, columns, threads, memory),
        names,
        manifest["target_names"],
        classes and sorted(classes),
        columns,
        manifest["sparse"],
        manifest["zero_based"],
        partial(_all_rows, path, manifest),
    )


def parquet_files(folder: str) -> list[str]:
    """Return the Parquet files of a folder that is no data set of :func:`convert`, by their names."""
    if not os.path.isdir(folder) or os.path.exists(os.path.join(folder, MANIFEST)):
        return []
    names = [name for name in sorted(os.listdir(folder)) if not name.startswith((".", "_"))]
    return [os.path.join(folder, name) for name in names if name.lower().endswith((".parquet", ".pq"))]


def _check_chosen(
    path: str, manifest: dict[str, Any], target: Target | Sequence[Target] | None, weights: str | None
) -> None:
    """Raise where another target, or weights, are asked for than those that a data set was converted with."""
    names = manifest["target_names"]
    asked = [str(name) for name in as_targets(target)]
    if asked and asked != (names or []):
        raise ValueError(f"{path}: the targets are {names}, got {asked}; they are chosen by convert")
    if weights is not None:
        raise ValueError(f"{path}: the weights are chosen by convert, got weights={weights!r}")


def _all_rows(path: str, manifest: dict[str, Any], kind: str) -> NDArray[Any] | None:
    """Return the targets or the weights of all blocks."""
    if kind == "weights" and not manifest["weights"]:
        return None
    names = [block_file(kind, i) for i in range(len(manifest["blocks"]))]
    rows = np.concatenate([_array(path, name, manifest["files"]) for name in names])
    if len(rows) != manifest["n_samples"]:
        raise ValueError(f"{path}: {len(rows):,} {kind}, where the manifest says {manifest['n_samples']:,} samples")
    return rows if kind != "y" or manifest["classes"] is None else np.array(manifest["classes"], dtype=str)[rows]


def _streamed(
    path: str, manifest: dict[str, Any], columns: NDArray[np.float64], n_threads: int, memory: float | None
) -> StreamedRows:
    counts, means, _, spreads, lows, highs = columns
    longest, norm = (max(block[name] for block in manifest["blocks"]) for name in ("longest", "norm"))
    known = Columns(counts, means, spreads, lows, highs, longest, manifest["squares"], norm)
    blocks, budget = _blocks(path, manifest), StreamedRows.budget(memory)
    direct = sum(block.nbytes for block in blocks) > budget
    blocks = [replace(block, direct=direct) for block in blocks]
    X = StreamedRows(blocks, known, manifest["dtype"], manifest["sparse"], n_threads, budget)
    X.feature_names = None if manifest["feature_names"] is None else tuple(manifest["feature_names"])
    return X


@dataclass
class _FolderBlock(Block):
    """A block of a folder: the files of its arrays."""

    path: str
    number: int
    shape: tuple[int, int]
    nonzeros: int
    dtype: str
    sparse: bool
    nonnegative: bool
    files: dict[str, dict[str, Any]]  # size and checksum, by the kind of array
    buffers: Buffers
    direct: bool = False
    verified: bool = False

    @property
    def nbytes(self) -> int:
        """Memory that its arrays take, and their headers."""
        return sum(known["bytes"] for known in self.files.values())

    def load(self, n_threads: int) -> StoredDesign:
        """Read the rows; the first time, compare them with their checksums."""
        arrays = [self._array(kind) for kind in self.files]
        self.verified = True
        if not self.sparse:
            return DenseDesign(arrays[0], n_threads)
        data, indices, indptr = arrays
        X = RowArrays(data, indices, indptr, self.shape)
        return SparseDesign(X, n_threads, self.nonnegative, brief=True)

    def _array(self, kind: str) -> NDArray[Any]:
        path, known = os.path.join(self.path, block_file(kind, self.number)), self.files[kind]
        content = read_bytes(path, known["bytes"], self.buffers, self.direct)
        if not self.verified and hashlib.sha256(content.data).hexdigest() != known["sha256"]:
            raise ValueError(f"{path}: changed since it was written: the checksum is another")
        array = _parsed(path, content)
        shape, types = self._expected(kind)
        if array.shape != shape or array.dtype.name not in types:
            raise ValueError(
                f"{path}: {array.dtype} of shape {array.shape}, where the manifest says {types[0]} of {shape}"
            )
        return array

    def _expected(self, kind: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the shape of an array, and the types that it may have."""
        if kind == "X":
            return self.shape, (self.dtype,)
        if kind == "data":
            return (self.nonzeros,), (self.dtype,)
        return (self.nonzeros if kind == "indices" else self.shape[0] + 1,), ("int32", "int64")


def _blocks(path: str, manifest: dict[str, Any]) -> list[_FolderBlock]:
    kinds, buffers, blocks = (("data", "indices", "indptr") if manifest["sparse"] else ("X",)), Buffers(), []
    for i, block in enumerate(manifest["blocks"]):
        files = {kind: manifest["files"].get(block_file(kind, i)) for kind in kinds}
        if None in files.values():
            raise ValueError(f"{os.path.join(path, MANIFEST)}: a damaged manifest: block {i} has no files")
        shape = block["rows"], manifest["n_features"]
        settings = block["nonzeros"], manifest["dtype"], manifest["sparse"], block["nonnegative"]
        blocks.append(_FolderBlock(path, i, shape, *settings, files, buffers))
    return blocks


def block_file(kind: str, block: int) -> str:
    """Return the name of the file of one of a block's arrays."""
    return f"{kind}-{block:06d}.npy"


def write_array(folder: str, name: str, array: NDArray[Any]) -> dict[str, Any]:
    """Write an array, whole or not at all; return the size of its file and the checksum."""
    array = np.ascontiguousarray(array)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    digest = hashlib.sha256()
    with atomic_write(os.path.join(folder, name)) as file:
        for part in (header.getvalue(), array.reshape(-1).view(np.uint8).data):
            digest.update(part)
            file.write(part)
    return {"bytes": header.tell() + array.nbytes, "sha256": digest.hexdigest()}


def write_manifest(folder: str, manifest: dict[str, Any]) -> None:
    """Write the manifest: with it the folder is a data set."""
    with atomic_write(os.path.join(folder, MANIFEST)) as file:
        file.write(json.dumps({"format": _FORMAT, "version": _VERSION} | manifest, indent=1).encode())


def _read_manifest(folder: str) -> dict[str, Any]:
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, "rb") as file:
            manifest = json.load(file)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file; is {folder} a data set that convert has finished?") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a manifest, or a damaged one ({one_line(error)})") from None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise ValueError(f"{path}: not the manifest of a data set")
    if manifest.get("version") != _VERSION:
        raise ValueError(f"{path}: version {manifest.get('version')!r} of the format, where {_VERSION} is known")
    for name, kind in (_KINDS | dict.fromkeys(_NUMBERS, int)).items():
        if not isinstance(manifest.get(name), kind) or (name in _NUMBERS and manifest[name] < 0):
            raise ValueError(f"{path}: a damaged manifest: {name!r} is missing or of the wrong kind")
    for i, block in enumerate(manifest["blocks"]):
        if not isinstance(block, dict) or not {"rows", "nonzeros", "nonnegative", "longest", "norm"} <= block.keys():
            raise ValueError(f"{path}: a damaged manifest: block {i} is not described")
    if not manifest["blocks"] or sum(block["rows"] for block in manifest["blocks"]) != manifest["n_samples"]:
        raise ValueError(f"{path}: a damaged manifest: the blocks do not have {manifest['n_samples']:,} rows in all")
    return manifest


def _check_file(path: str, known: dict[str, Any], verify: bool) -> None:
    """Raise unless a file is as long as it was when it was written, and, where that is asked for, has the same bytes."""
    try:
        size = os.stat(path).st_size
        if size != known["bytes"]:
            raise ValueError(f"{path}: truncated or changed: {size:,} bytes, where {known['bytes']:,} were written")
        if verify and _checksum(path) != known["sha256"]:
            raise ValueError(f"{path}: changed since it was written: the checksum is another")
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file, which the manifest names") from None


def _checksum(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while part := file.read(_CHUNK):
            digest.update(part)
    return digest.hexdigest()


def _array(folder: str, name: str, files: dict[str, dict[str, Any]]) -> NDArray[Any]:
    """Read an array, and compare it with its checksum."""
    path = os.path.join(folder, name)
    if name not in files:
        raise ValueError(f"{os.path.join(folder, MANIFEST)}: a damaged manifest: it has no {name}")
    content = read_bytes(path, files[name]["bytes"], Buffers(), direct=False)
    if hashlib.sha256(content.data).hexdigest() != files[name]["sha256"]:
        raise ValueError(f"{path}: changed since it was written: the checksum is another")
    return _parsed(path, content)


def _parsed(path: str, content: NDArray[np.uint8]) -> NDArray[Any]:
    """Return the array that the bytes of an npy file are, without a copy.

    numpy reads headers by Python's parser of literals, which in Python 3.11 may fail where two threads use it at a time.
    """
    header = io.BytesIO(content[:_HEADER].tobytes())
    try:
        if np.lib.format.read_magic(header) != (1, 0):
            raise ValueError("not version 1.0 of the format")
        text = header.read(int.from_bytes(header.read(2), "little")).decode("latin-1")
        known = _ARRAY.fullmatch(text)
        if known is None:
            raise ValueError("not an array of numbers in C order")
        shape = tuple(int(length) for length in known["shape"].split(",") if length.strip())
        return content[header.tell() :].view(known["descr"]).reshape(shape)
    except ValueError as error:
        raise ValueError(f"{path}: not an array, or a damaged one ({one_line(error)})") from None

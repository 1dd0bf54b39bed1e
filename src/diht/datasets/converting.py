"""Turn files into a data set on disk, some rows at a time."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diht.datasets.columns import Target, describe_missing
from diht.datasets.figures import arrays_figures, largest_row_norm, merged_figures
from diht.datasets.folder import MANIFEST, Dataset, block_file, open_dataset, write_array, write_manifest
from diht.datasets.opening import check_exists
from diht.datasets.reading import is_svmlight, read_pieces, read_table
from diht.datasets.svmlight import starts_at_zero
from diht.datasets.table import Table
from diht.datasets.writing import atomic_write
from diht.design import as_design

__all__ = ["Progress", "checked", "convert", "weighted"]

_PROGRESS, _COLUMNS = "progress.json", "columns.npy"
_BLOCK_BYTES = 2**27  # of X in a block: larger ones need more memory here, smaller ones more open files later
_LEFT_OVER = re.compile(r"\.[0-9a-f]{16}\.tmp")  # files that were being written when a process was killed
_INT32_MAX = np.iinfo(np.int32).max


def convert(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    target: Target | Sequence[Target] | None = None,
    weights: str | None = None,
    *,
    block_rows: int | None = None,
    dtype: Any = None,
    zero_based: bool | None = None,
    max_features: int | None = None,
) -> Dataset:
    """Write the rows of files, one after the other, as a data set on disk, which :func:`open_dataset` opens.

    No more than a block and a piece of a file are held at a time; but an npz file is read as a whole. Killed at any moment and
    called again with the same arguments, it goes on after the last block that is complete, and the folder will be the same.

    Parameters
    ----------
    sources : path, or sequence of paths
        Files as `read_table` takes them, with the same columns in the same order.
    out : path
        The folder: a new one, an empty one, or that of a call with the same arguments.
    target : str, int or a sequence of these, optional
        As in `read_table`.
    weights : str, optional
        The column (in npz files the array) that holds the weights of the samples.
    block_rows : int, optional
        Rows of a block; by default as many as make about 128 MB of X.
    dtype : float32 or float64, optional
        The type of the entries of X; by default that of the files, which must then be of one type.
    zero_based : bool, optional
        Whether svmlight indices start at 0; by default they do where an index 0 occurs in any of the files, all of which are read
        once more for that.
    max_features : int, optional
        As in `read_table`.

    Returns
    -------
    Dataset
        The data set, opened.

    Raises
    ------
    FileNotFoundError, ValueError
        As `read_table` does, and where files do not fit together, the folder holds something else, or X holds numbers that are too
        large for a fit.
    """
    paths = [os.fspath(source) for source in ([sources] if isinstance(sources, str | os.PathLike) else sources)]
    if not paths:
        raise ValueError("sources must name at least one file, got none")
    if block_rows is not None and block_rows < 1:
        raise ValueError(f"block_rows must be at least 1, got {block_rows}")
    if dtype is not None and np.dtype(dtype) not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype!r}")
    for path in paths:
        check_exists(path)
        if is_svmlight(path) and weights is not None:
            raise ValueError(f"{path}: an svmlight file has no columns to choose weights {weights!r} from")
    kind = None if dtype is None else np.dtype(dtype).name
    settings = (target, weights, block_rows, kind, zero_based, max_features)
    folder = os.fspath(out)
    progress = _begun(folder, _request(paths, settings))
    if progress is None:
        return open_dataset(folder)
    if progress.zero_based is None and any(map(is_svmlight, paths)):
        progress.zero_based = zero_based if zero_based is not None else any(map(starts_at_zero, _svmlight(paths)))
        progress.write(folder)
    block = _Block(block_rows)
    for source, first, table in _pieces(paths, progress, target, weights, kind, max_features):
        progress.check(table)
        taken = 0
        while taken < table.X.shape[0]:
            taken += block.take(table, taken)
            if block.is_full:
                _complete(folder, progress, block, source, first + taken)
    if block.rows:
        _complete(folder, progress, block, len(paths), 0)
    _finish(folder, progress, [os.path.basename(path) for path in paths])
    return open_dataset(folder)


def _svmlight(paths: Sequence[str]) -> list[str]:
    return [path for path in paths if is_svmlight(path)]


def _request(paths: Sequence[str], settings: Any) -> str:
    """Return a digest of the arguments and of the sizes and times of the files."""
    stats = [os.stat(path) for path in paths]
    files = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in zip(paths, stats, strict=True)]
    return hashlib.sha256(json.dumps([files, settings], default=str).encode()).hexdigest()


@dataclass
class Progress:
    """What is known after the last complete block; all of it is in the folder."""

    request: str
    zero_based: bool | None = None
    source: int = 0  # the file and the row in it that come next
    row: int = 0
    n_features: int = 0
    layout: dict[str, Any] | None = None  # what all files share
    classes: list[str] | None = None  # in the order of their first appearance
    blocks: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    sums: str | None = None  # the file with the sums over all rows so far

    @property
    def n_rows(self) -> int:
        """The rows of the complete blocks."""
        return sum(block["rows"] for block in self.blocks)

    def write(self, folder: str) -> None:
        """Replace the file that a later call goes on from."""
        with atomic_write(os.path.join(folder, _PROGRESS)) as file:
            file.write(json.dumps(asdict(self)).encode())

    def check(self, table: Table) -> None:
        """Raise where a piece does not go with those before it."""
        layout = _layout(table)
        if self.layout is None:
            self.layout = layout
            self.classes = [] if layout["texts"] else None
        for name, found in layout.items():
            if found != self.layout[name]:
                raise ValueError(f"{table.path}: {_difference(name, found, self.layout[name])}")
        if not table.is_sparse and self.n_features not in (0, table.X.shape[1]):
            raise ValueError(f"{table.path}: {table.X.shape[1]} features, where {self.n_features} are expected")
        self.n_features = max(self.n_features, table.X.shape[1])

    def codes(self, labels: NDArray[Any]) -> NDArray[np.int32]:
        """Return the numbers of class names; new ones get the next."""
        assert self.classes is not None
        known = {name: code for code, name in enumerate(self.classes)}
        found, first, at = np.unique(labels, return_index=True, return_inverse=True)
        for name in found[np.argsort(first)].tolist():
            known.setdefault(name, len(known))
        self.classes = list(known)
        return np.array([known[name] for name in found.tolist()], dtype=np.int32)[at]


def _layout(table: Table) -> dict[str, Any]:
    return {
        "sparse": table.is_sparse,
        "feature_names": table.feature_names,
        "target_names": table.target_names,
        "dtype": np.dtype(table.X.dtype).name,
        "texts": table.y is not None and table.y.dtype.kind not in "biuf",
        "weights": table.weights is not None,
    }


def _difference(name: str, found: Any, known: Any) -> str:
    """Say how a file differs from those before it."""
    if name in ("sparse", "texts"):
        kinds = ("sparse", "dense") if name == "sparse" else ("class names", "numbers")
        what = "the samples are" if name == "sparse" else "targets are numbers or class names, not both: these are"
        return f"{what} {kinds[not found]}, those before {kinds[not known]}"
    if name == "dtype":
        return f"X is of type {found}, that before of {known}; choose one by dtype"
    if found is None or known is None:
        return f"has {'no ' * (found is None)}{name.replace('_', ' ')}, what comes before has {'some' if found is None else 'none'}"
    if len(found) != len(known):
        return f"{len(found)} {name.replace('_', ' ')}, where {len(known)} are expected"
    at = next(j for j, pair in enumerate(zip(found, known, strict=True)) if pair[0] != pair[1])
    kind = name.removesuffix("_names")
    return f"{kind} {at} is {found[at]!r}, where the files before have {known[at]!r}"


class _Block:
    """The rows of the block that comes next."""

    def __init__(self, block_rows: int | None) -> None:
        self._most = block_rows
        self.clear()

    def clear(self) -> None:
        """Begin the next one."""
        self.rows, self._bytes = 0, 0
        self._parts: list[Any] = []
        self._y: list[NDArray[Any]] = []
        self._weights: list[NDArray[np.float64]] = []

    @property
    def is_full(self) -> bool:
        return self._bytes >= _BLOCK_BYTES if self._most is None else self.rows == self._most

    def take(self, table: Table, start: int) -> int:
        """Take as many rows of a piece, from `start` on, as belong to the block; return their number."""
        assert table.y is not None
        sizes = np.cumsum(_row_bytes(table)[start:])
        room = (
            int(np.searchsorted(sizes, _BLOCK_BYTES - self._bytes)) + 1
            if self._most is None
            else self._most - self.rows
        )
        end = min(start + room, len(table.y))
        self.rows += end - start
        self._bytes += int(sizes[end - start - 1])
        self._parts.append(table.X[start:end])
        self._y.append(table.y[start:end])
        if table.weights is not None:
            self._weights.append(table.weights[start:end])
        return end - start

    def arrays(self, progress: Progress) -> dict[str, NDArray[Any]]:
        """Return the arrays of the block by their kinds, in one piece each."""
        y = np.concatenate(self._y)
        rows = {"y": y if progress.classes is None else progress.codes(y)}
        if self._weights:
            rows["weights"] = np.concatenate(self._weights)
        assert progress.layout is not None
        if not progress.layout["sparse"]:
            return {"X": np.concatenate(self._parts)} | rows
        data, indices = (np.concatenate([getattr(X, name) for X in self._parts]) for name in ("data", "indices"))
        counts = np.concatenate([np.diff(X.indptr) for X in self._parts])
        wide = max(len(data), progress.n_features) > _INT32_MAX
        kind = np.dtype(np.int64 if wide else np.int32)
        indptr = np.append(0, np.cumsum(counts)).astype(kind)
        return {"data": data, "indices": indices.astype(kind, copy=False), "indptr": indptr} | rows


def _row_bytes(table: Table) -> NDArray[np.int64]:
    """Return the bytes of every row, those of indices counted as 32-bit numbers."""
    X: Any = table.X
    size: int = X.dtype.itemsize
    if table.is_sparse:
        return np.asarray(np.diff(X.indptr).astype(np.int64) * (size + 4) + 4)
    return np.full(X.shape[0], X.shape[1] * size)


def _pieces(
    paths: Sequence[str],
    progress: Progress,
    target: Target | Sequence[Target] | None,
    weights: str | None,
    dtype: str | None,
    max_features: int | None,
) -> Iterator[tuple[int, int, Table]]:
    """Yield what has not been written: the number of a file, a row in it, and a piece that begins there."""
    for source in range(progress.source, len(paths)):
        row = progress.row if source == progress.source else 0
        zero_based = bool(progress.zero_based)
        for piece in read_pieces(paths[source], target, zero_based=zero_based, skip=row, max_features=max_features):
            table = piece if weights is None else weighted(piece, weights, row)
            yield source, row, checked(table, dtype)
            row += table.X.shape[0]


def weighted(table: Table, name: str, row: int) -> Table:
    """Take the weights out of the features of a table; those of an npz file are an array of their own."""
    names = table.feature_names
    if table.path.endswith(".npz"):
        weights = np.asarray(read_table(table.path, name).y)[row:]
    elif names is None or name not in names:
        raise ValueError(describe_missing(table.path, "column", name, names or []))
    else:
        at = names.index(name)
        weights, X = table.X[:, at].astype(np.float64), np.delete(table.X, at, axis=1)
        table = replace(table, X=X, feature_names=[*names[:at], *names[at + 1 :]])
    if weights.dtype.kind not in "biuf" or weights.ndim != 1:
        raise ValueError(f"{table.path}: the weights {name!r} are not numbers, one a row")
    if np.any(weights < 0):
        raise ValueError(f"{table.path}: row {row + int(np.argmax(weights < 0))}: a negative weight {weights.min():g}")
    return replace(table, weights=weights)


def checked(table: Table, dtype: str | None) -> Table:
    """Return a table with X of the type that is asked for; raise where a fit would refuse it."""
    with np.errstate(over="ignore"):
        X = table.X if dtype is None else table.X.astype(dtype, copy=False)
    try:
        if min(X.shape) > 0:  # a sparse piece may be without any entry
            as_design(X, 1)
    except ValueError as error:
        raise ValueError(f"{table.path}: {error}{'' if dtype is None else f' (as {dtype})'}") from None
    return replace(table, X=X)


def _complete(folder: str, progress: Progress, block: _Block, source: int, row: int) -> None:
    """Write a block, and then that it is complete."""
    number, arrays = len(progress.blocks), block.arrays(progress)
    for kind, array in arrays.items():
        name = block_file(kind, number)
        progress.files[name] = write_array(folder, name, array)
    before = progress.sums
    known = None if before is None else np.load(os.path.join(folder, before))
    figures = merged_figures(known, progress.n_rows, arrays_figures(arrays, progress.n_features), block.rows)
    progress.blocks.append(_description(arrays, block.rows))
    progress.sums = f"sums-{number:06d}.npy"
    write_array(folder, progress.sums, figures)
    progress.source, progress.row = source, row
    progress.write(folder)
    if before is not None:
        os.unlink(os.path.join(folder, before))
    block.clear()


def _description(arrays: dict[str, NDArray[Any]], rows: int) -> dict[str, Any]:
    """Return what the manifest says of a block."""
    entries = arrays["X"] if "X" in arrays else arrays["data"]
    counts = np.full(rows, entries.shape[1]) if "X" in arrays else np.diff(arrays["indptr"])
    return {
        "rows": rows,
        "nonzeros": int(np.count_nonzero(entries)) if "X" in arrays else entries.size,
        "nonnegative": bool(np.all(entries >= 0)),
        "longest": int(counts.max(initial=0)),
        "norm": largest_row_norm(arrays),
        "squares": int(np.square(counts.astype(np.int64)).sum()),
    }


def _finish(folder: str, progress: Progress, sources: list[str]) -> None:
    """Write the manifest, which makes the folder a data set, and remove what is needed no more."""
    if progress.n_features == 0:
        raise ValueError(f"{sources[0]}: no index:value pair in any of the files")
    assert progress.layout is not None
    assert progress.sums is not None
    counts, means, spreads, lows, highs = np.load(os.path.join(folder, progress.sums))
    norms = np.sqrt(spreads + progress.n_rows * np.square(means))
    columns = np.stack([counts, means, norms, spreads, lows, highs])
    progress.files[_COLUMNS] = write_array(folder, _COLUMNS, columns)
    layout = {name: value for name, value in progress.layout.items() if name != "texts"}
    write_manifest(
        folder,
        {
            "request": progress.request,
            "sources": sources,
            "n_samples": progress.n_rows,
            "n_features": progress.n_features,
            "nonzeros": sum(block["nonzeros"] for block in progress.blocks),
            "squares": sum(block["squares"] for block in progress.blocks),
            **layout,
            "classes": progress.classes,
            "zero_based": progress.zero_based,
            "columns": _COLUMNS,
            "files": progress.files,
            "blocks": progress.blocks,
        },
    )
    _clean(folder)


def _begun(folder: str, request: str) -> Progress | None:
    """Return how far an earlier call came, or a beginning; None where all is done."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ValueError(f"{folder}: is a file, not a folder")
    os.makedirs(folder, exist_ok=True)
    names = set(os.listdir(folder))
    for name in (MANIFEST, _PROGRESS):
        if name in names:
            known = _read(os.path.join(folder, name))
            if known.get("request") != request:
                raise ValueError(
                    f"{folder}: holds a data set of other files or arguments; choose another folder, or remove it"
                )
            _clean(folder, keep=() if name == MANIFEST else (_PROGRESS, known["sums"]))
            return None if name == MANIFEST else Progress(**known)
    if any(not _LEFT_OVER.fullmatch(name) for name in names):
        raise ValueError(f"{folder}: is not empty, and holds no data set")
    progress = Progress(request)
    progress.write(folder)
    return progress


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            known = json.load(file)
    except ValueError:
        raise ValueError(f"{path}: damaged; remove the folder and convert again") from None
    if not isinstance(known, dict):
        raise ValueError(f"{path}: damaged; remove the folder and convert again")
    return known


def _clean(folder: str, keep: Sequence[str | None] = ()) -> None:
    """Remove what a call that was killed has left, and the files of the progress unless they are to be kept."""
    for name in os.listdir(folder):
        if (_LEFT_OVER.fullmatch(name) or name == _PROGRESS or name.startswith("sums-")) and name not in keep:
            os.unlink(os.path.join(folder, name))

"""One block of rows, checked where it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from diht.design import RowBlocks, StoredDesign, as_design
from diht.samples import MemorySamples

__all__ = ["Block", "BlockFacts", "Source", "checked_block", "facts_of", "offset_of", "targets_of"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Block:
    """Rows with their targets, weights and offsets.

    Attributes
    ----------
    X : array or sparse matrix
    y : array
    weights, offset : array, or None
    """

    X: Any
    y: Array
    weights: Array | None
    offset: Array | None = None


@dataclass(frozen=True)
class BlockFacts:
    """What the client needs to know of a block.

    Attributes
    ----------
    n_rows, n_columns : int
    nbytes : int
        Of X.
    dtype : str
    sparse : bool
    names : tuple of str, or None
    n_targets : int
        0 where there is a single one.
    classes : list, or None
        The different targets, sorted, where classes are meant.
    """

    n_rows: int
    n_columns: int
    nbytes: int
    dtype: str
    sparse: bool
    names: tuple[str, ...] | None
    n_targets: int
    classes: Array | None


def checked_block(number: int, classes: bool, X: Any, y: Any, weights: Any, offset: Any) -> tuple[Block, BlockFacts]:
    """Return a block whose numbers are finite, and what is known of it; ValueError names the block and the row."""
    where = f"in block {number}"
    names = tuple(X.columns) if hasattr(X, "columns") else None
    X = _matrix(X, where)
    y = np.asarray(y)
    if len(y) != X.shape[0]:
        raise ValueError(f"X and y must have the same rows, got {X.shape[0]} and {len(y)} {where}")
    y = _labels(y, where) if classes else _numbers("y", y, where)
    if weights is not None:
        weights = _numbers("sample_weight", np.asarray(weights), where)
        if weights.shape != (X.shape[0],):
            raise ValueError(f"sample_weight must have shape ({X.shape[0]},), got {weights.shape} {where}")
        if np.any(weights < 0.0):
            row = int(np.flatnonzero(weights < 0.0)[0])
            raise ValueError(f"sample_weight must not be negative, got {weights[row]} at row {row} {where}")
    if offset is not None:
        offset = _numbers("offset", np.asarray(offset), where)
        if offset.shape != y.shape:
            raise ValueError(f"offset must have the shape of y, {y.shape}, got {offset.shape} {where}")
    nbytes = X.data.nbytes + X.indices.nbytes if issparse(X) else X.nbytes
    known = BlockFacts(
        X.shape[0], X.shape[1], nbytes, X.dtype.name, issparse(X), names, y.shape[1] if y.ndim == 2 else 0,
        np.unique(y) if classes and len(y) else None,
    )  # fmt: skip
    return Block(X, y, weights, offset), known


def _matrix(X: Any, where: str) -> Any:
    if hasattr(X, "columns"):
        X = _frame(X, where)
    if not issparse(X):
        X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, got {X.ndim} {where}")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X must hold real numbers, got dtype {X.dtype} {where}")
    X = X.astype(np.float32 if X.dtype == np.float32 else np.float64, copy=False)
    X = X.tocsr() if issparse(X) else np.ascontiguousarray(X)
    values = X.data if issparse(X) else X
    if not np.all(np.isfinite(values)):
        bad = ~np.isfinite(values)
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[bad][0] if issparse(X) else np.argwhere(bad)[0, 0]
        kind = "NaN" if np.isnan(values[bad][0]) else "infinity"
        raise ValueError(f"X contains {kind} at row {int(row)} {where}")
    return X


def _frame(X: Any, where: str) -> Array:
    for name, kind in zip(X.columns, X.dtypes, strict=True):
        if getattr(kind, "kind", "O") not in "fiub":
            raise ValueError(f"column {name!r} of X must hold numbers, got type {kind} {where}")
    return np.asarray(X.to_numpy())


def _numbers(name: str, values: Array, where: str) -> Array:
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be numeric, got dtype {values.dtype} {where}")
    values = values.astype(np.float64)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise ValueError(f"{name} must be finite, got {values[tuple(bad[0])]} at row {int(bad[0][0])} {where}")
    return values


def _labels(y: Array, where: str) -> Array:
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        raise ValueError(f"y must be one-dimensional for classes, got shape {y.shape} {where}")
    bad = np.flatnonzero(~np.isfinite(y)) if y.dtype.kind == "f" else np.empty(0, dtype=np.int64)
    if len(bad):
        raise ValueError(f"y must be finite, got {y[bad[0]]} at row {int(bad[0])} {where}")
    return y


def facts_of(pair: tuple[Block, BlockFacts]) -> BlockFacts:
    """Return what is known of a block."""
    return pair[1]


class Source(MemorySamples):
    """All rows of a shard, as they were loaded.

    Attributes
    ----------
    several : array of shape (C, N), or None
        Several targets, one row each.
    offset : array of the shape of the targets, or None
    """

    def __init__(self, blocks: list[Block], classes: Array | None, n_threads: int) -> None:
        designs: list[StoredDesign] = [as_design(block.X, n_threads).stored for block in blocks]
        design = designs[0] if len(designs) == 1 else RowBlocks(designs, n_threads)
        y = np.concatenate([block.y for block in blocks])
        if classes is not None:
            y = np.searchsorted(classes, y).astype(np.float64)
        self.several = np.ascontiguousarray(y.T) if y.ndim == 2 else None
        offsets = [block.offset for block in blocks if block.offset is not None]
        self.offset = np.ascontiguousarray(np.concatenate(offsets).T) if offsets else None
        weights = [np.ones(len(block.y)) if block.weights is None else block.weights for block in blocks]
        super().__init__(design, y[:, 0].copy() if y.ndim == 2 else y, np.concatenate(weights))


def targets_of(source: Source) -> Any:
    """Return several targets, one row each."""
    return source.several


def offset_of(source: Source) -> Any:
    """Return what is known of the predictions."""
    return source.offset

"""What X is: dense, sparse, or a centred and scaled view of either; the only place that asks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from diht.design.base import LARGEST, Design, Features, StoredDesign
from diht.design.dense import Curvature, DenseDesign
from diht.design.row_blocks import RowBlocks
from diht.design.sparse import RowArrays, SparseDesign, compressed
from diht.design.spectral import spectral_bound
from diht.design.step import DualState, Step
from diht.design.streamed import Block, Columns, StreamedRows
from diht.design.targets import TargetFeatures
from diht.design.view import AffineView, affine, stacked
from diht.numerics.memory import features_bytes, require_memory
from diht.numerics.threads import effective_n_threads

__all__ = [
    "LARGEST",
    "AffineView",
    "Block",
    "Columns",
    "Curvature",
    "DenseDesign",
    "Design",
    "DualState",
    "Features",
    "RowArrays",
    "RowBlocks",
    "SparseDesign",
    "Step",
    "StoredDesign",
    "StreamedRows",
    "TargetFeatures",
    "affine",
    "as_design",
    "effective_n_threads",
    "not_finite",
    "refuse_dask",
    "row_blocks",
    "spectral_bound",
    "stacked",
]


def as_design(X: Any, n_threads: int | None = None) -> Design:
    """Take a matrix as a design, without a copy where that can be avoided.

    Parameters
    ----------
    X : Design, array-like or scipy sparse matrix or array, (N, d)
        Dense arrays in C or Fortran order and CSR or CSC matrices of float32 or float64 are used as they are; other real types
        become float64, other sparse formats CSR. A design is used as it is.
    n_threads : int, optional
        Number of threads; by default what :func:`effective_n_threads` allows.

    Returns
    -------
    Design

    Raises
    ------
    ValueError
        If X is not a matrix of finite real numbers with at least one row and one column, or has so many columns that the
        coefficients of a model do not fit into the memory.
    """
    if isinstance(X, Design):
        if n_threads is None or not isinstance(X, StoredDesign):
            return X
        return X.with_threads(effective_n_threads(n_threads))
    refuse_dask("X", X)
    threads = effective_n_threads() if n_threads is None else effective_n_threads(n_threads)
    scipy_sparse = sys.modules.get("scipy.sparse")  # a sparse matrix cannot come from a scipy that is not loaded
    if scipy_sparse is not None and scipy_sparse.issparse(X):
        return _sparse(X, threads)
    return _dense(X, threads)


def refuse_dask(name: str, given: Any) -> None:
    """Raise ValueError for a Dask collection, whose rows would all be brought here."""
    blocks = given if isinstance(given, list | tuple) else [given]
    if any(hasattr(block, "__dask_graph__") for block in blocks[:1]):
        raise ValueError(
            f"{name} must not be a Dask collection here: fit and predict of SparseRegressor and SparseClassifier take one, and "
            "sparse_path, where X and y are both such"
        )


def row_blocks(blocks: Sequence[Any], n_threads: int | None = None) -> Design:
    """Take blocks of rows as one design, without a copy where that can be avoided.

    Parameters
    ----------
    blocks : sequence of array-like, or of scipy sparse matrices or arrays
        With the same number of columns; all dense or all sparse, of one dtype. Blocks without rows are left out.
    n_threads : int, optional
        Number of threads; by default what :func:`effective_n_threads` allows.

    Returns
    -------
    Design

    Raises
    ------
    ValueError
        If the blocks are not matrices of finite real numbers that fit together.
    """
    threads = effective_n_threads() if n_threads is None else effective_n_threads(n_threads)
    designs = [as_design(block, threads) for block in blocks if np.shape(block)[0]]
    if not designs:
        raise ValueError("X must have at least one row, got only blocks without rows")
    kinds = {(type(design), design.dtype, design.shape[1]) for design in designs}
    if len(kinds) > 1:
        described = sorted(f"{kind.__name__} of {dtype} with {d} columns" for kind, dtype, d in kinds)
        raise ValueError(f"X must have blocks of one kind, dtype and number of columns, got {described}")
    return RowBlocks([design.stored for design in designs], threads)


_NAMED = 5  # columns that a message names, at most


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2:
        raise ValueError(f"X must have two dimensions, got {len(shape)}")
    if min(shape) == 0:
        raise ValueError(f"X must have at least one row and one column, got shape {shape}")


def _real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type X is kept in; ValueError if its entries are not real numbers."""
    if dtype.kind not in "fiub":
        raise ValueError(f"X must hold real numbers, got dtype {dtype}")
    return np.dtype(np.float32 if dtype == np.float32 else np.float64)


def _dense(X: Any, n_threads: int) -> DenseDesign:
    try:
        X = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"X is not a matrix: {error}") from None
    dtype = _real_dtype(X.dtype)
    _check_shape(X.shape)
    if X.dtype != dtype or not X.flags.aligned:
        X = X.astype(dtype)
    design = DenseDesign(X, n_threads)
    _check_largest(design.largest(), X)
    return design


def _check_largest(largest: float, X: Any) -> None:
    """Raise a ValueError, which names columns of X, unless all values are finite, and small enough for their squares to be."""
    if largest <= LARGEST:  # not so for NaN
        return
    if np.isfinite(largest):
        raise ValueError(f"X must not hold numbers beyond {LARGEST:g} in size, got {largest:g}")
    raise ValueError(not_finite(X))


def not_finite(X: Any) -> str:
    """Say which columns of a matrix, dense or sparse, contain NaN, or else infinity, and how often."""
    entries, places = (X, None) if isinstance(X, np.ndarray) else (X.data, X.tocoo().coords[1])
    wrong, kind = (np.isnan, "NaN") if np.isnan(entries).any() else (np.isinf, "infinity")
    bad = wrong(X if places is None else X.tocoo().data)
    counts = bad.sum(axis=0) if places is None else np.bincount(places[bad], minlength=X.shape[1])
    columns = np.flatnonzero(counts)
    each = ", ".join(f"{j} ({counts[j]:,} of {X.shape[0]:,})" for j in columns[:_NAMED])
    more = f" and {len(columns) - _NAMED:,} more" if len(columns) > _NAMED else ""
    advice = ": impute these values or drop the columns" if kind == "NaN" else ""
    return f"X contains {kind} in {'columns' if len(columns) > 1 else 'column'} {each}{more}{advice}"


def _sparse(X: Any, n_threads: int) -> SparseDesign:
    from diht.design import kernels

    _check_shape(X.shape)
    require_memory(features_bytes(X.shape[1]), f"X: the coefficients of {X.shape[1]:,} features")
    dtype = _real_dtype(X.dtype)
    if X.format not in ("csr", "csc"):
        X = X.tocsr()
    if X.dtype != dtype:
        X = X.astype(dtype)
    minor = X.shape[1] if X.format == "csr" else X.shape[0]
    arrays = compressed(X)
    valid, usable, ordered, nonnegative = kernels.csr_inspect(*arrays, minor)
    if not valid:
        raise ValueError("X is not a valid sparse matrix: an index is out of range")
    if not usable:
        _check_largest(float(np.abs(X.data).max()), X)
    if not ordered and kernels.csr_has_duplicates(arrays.indices, arrays.indptr, minor):
        X = X.copy()
        X.sum_duplicates()
        nonnegative = bool((X.data >= 0).all())
    return SparseDesign(X, n_threads, nonnegative)

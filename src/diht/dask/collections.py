"""Dask collections as lists of blocks of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Blocks", "blocks_of", "is_dask", "lazily"]


@dataclass(frozen=True, eq=False)
class Blocks:
    """The blocks of a collection.

    Attributes
    ----------
    parts : list of Delayed
    lengths : list of int, or None
        Their numbers of rows, where they are known.
    names : tuple of str, or None
        The names of the columns, where they have names that are all strings.
    """

    parts: list[Any]
    lengths: list[int] | None
    names: tuple[str, ...] | None


def is_dask(X: Any) -> bool:
    """Tell whether something is a Dask collection, or a list of delayed blocks of rows."""
    dask = sys.modules.get("dask")  # a collection cannot come from a dask that is not loaded
    if dask is None:
        return False
    if isinstance(X, list | tuple) and X:
        return all(_is_delayed(block) for block in X)
    return bool(dask.is_dask_collection(X))


def _is_delayed(X: Any) -> bool:
    return type(X).__module__.startswith("dask.delayed")


def blocks_of(name: str, X: Any, lengths: list[int] | None = None) -> Blocks:
    """Return the blocks of rows of a collection; of an array with known rows those of the given lengths.

    Parameters
    ----------
    name : str
        What to call it in a message.
    X : dask array, data frame or series, Delayed, or list of Delayed
    lengths : list of int, optional
    """
    if isinstance(X, list | tuple):
        return Blocks(list(X), None, None)
    if _is_delayed(X):
        return Blocks([X], None, None)
    if hasattr(X, "chunks") and hasattr(X, "rechunk"):
        return _of_array(name, X, lengths)
    if hasattr(X, "npartitions") and hasattr(X, "to_delayed"):
        return Blocks(list(X.to_delayed()), None, _names(X))
    raise ValueError(f"{name} must be a Dask array, data frame, series or list of delayed blocks, got {type(X)!r}")


def _of_array(name: str, X: Any, lengths: list[int] | None) -> Blocks:
    if X.ndim not in (1, 2):
        raise ValueError(f"{name} must have one or two dimensions, got {X.ndim}")
    if X.ndim == 2 and X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    known = not any(np.isnan(length) for length in X.chunks[0])
    if known and lengths is not None and tuple(lengths) != X.chunks[0] and sum(lengths) == sum(X.chunks[0]):
        X = X.rechunk({0: tuple(lengths)})
    return Blocks(list(X.to_delayed().ravel()), [int(n) for n in X.chunks[0]] if known else None, None)


def _names(X: Any) -> tuple[str, ...] | None:
    names = list(getattr(X, "columns", ()))
    return tuple(names) if names and all(isinstance(name, str) for name in names) else None


def lazily(f: Callable[..., Any], X: Any, like: Any, beside: Mapping[str, Any] | None = None) -> Any:
    """Return ``f`` of every block of rows as a Dask array; nothing is computed.

    Parameters
    ----------
    f : callable
        A function of a block that returns an array with a row for each of its rows.
    X : Dask collection
    like : array
        What `f` returns for a few rows.
    beside : mapping from names to Dask collections, optional
        Further arguments of `f`, with the blocks of X.
    """
    import dask
    import dask.array

    blocks, like = blocks_of("X", X), np.asarray(like)
    unknown: list[Any] = [np.nan] * len(blocks.parts)
    lengths = blocks.lengths or unknown
    others = [blocks_of(name, given, blocks.lengths).parts for name, given in (beside or {}).items()]
    if any(len(parts) != len(blocks.parts) for parts in others):
        raise ValueError(f"{', '.join(beside or ())} must have the {len(blocks.parts)} blocks of X")
    task = dask.delayed(f, pure=True)
    arrays = [
        dask.array.from_delayed(task(*parts), (length, *like.shape[1:]), like.dtype)
        for length, *parts in zip(lengths, blocks.parts, *others, strict=True)
    ]
    return dask.array.concatenate(arrays, allow_unknown_chunksizes=True)

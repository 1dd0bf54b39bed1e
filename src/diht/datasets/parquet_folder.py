"""A folder of Parquet files as it is: their row groups are the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diht.datasets.columns import Target
from diht.datasets.converting import Progress, checked, weighted
from diht.datasets.figures import arrays_figures, largest_row_norm, merged_figures
from diht.datasets.folder import Dataset, parquet_files
from diht.datasets.parquet import parquet_groups, read_group
from diht.datasets.table import Table
from diht.design import Block, Columns, DenseDesign, StoredDesign, StreamedRows

__all__ = ["Chosen", "open_parquet"]


@dataclass(frozen=True)
class Chosen:
    """Which columns are targets and weights; `n_features` and `needs_target` as in `read_table`."""

    target: Target | Sequence[Target] | None = None
    weights: str | None = None
    n_features: int | None = None
    needs_target: bool = True


@dataclass
class _RowGroup(Block):
    """A row group of a file."""

    path: str
    group: int
    first: int  # row of the file
    chosen: Chosen
    shape: tuple[int, int] = (0, 0)
    itemsize: int = 8

    @property
    def nbytes(self) -> int:
        """Memory that its rows take."""
        return self.shape[0] * self.shape[1] * self.itemsize

    def table(self) -> Table:
        """Read the rows, with their targets and weights."""
        chosen = self.chosen
        asked = chosen.target, chosen.n_features, chosen.needs_target
        table = read_group(self.path, self.group, self.first, *asked)
        return checked(table if chosen.weights is None else weighted(table, chosen.weights, self.first), None)

    def load(self, n_threads: int) -> StoredDesign:
        """Read the rows."""
        X = self.table().X
        if X.shape != self.shape or X.dtype.itemsize != self.itemsize:
            raise ValueError(
                f"{self.path}: changed since it was opened: row group {self.group} has shape {X.shape}, it had {self.shape}"
            )
        return DenseDesign(X, n_threads)


def open_parquet(folder: str, chosen: Chosen, memory: float | None, n_threads: int) -> Dataset:
    """Open a folder of Parquet files with the same columns, all of which are read once; see `open_dataset`."""
    blocks: list[_RowGroup] = []
    rows: dict[str, list[NDArray[Any]]] = {"y": [], "weights": []}
    progress, figures, n, norm = Progress(""), None, 0, 0.0
    for block in _row_groups(folder, chosen):
        table = block.table()
        progress.check(table)
        block.shape, block.itemsize = table.X.shape, table.X.dtype.itemsize
        figures = merged_figures(figures, n, arrays_figures({"X": table.X}, table.X.shape[1]), table.X.shape[0])
        norm = max(norm, largest_row_norm({"X": table.X}))
        n += table.X.shape[0]
        blocks.append(block)
        for kind, found in rows.items():
            values = getattr(table, kind)
            found.extend([] if values is None else [values])
    if figures is None or progress.layout is None:
        raise ValueError(f"{folder}: no rows in any of its Parquet files")
    counts, means, spreads, lows, highs = figures
    d, names = len(means), progress.layout["feature_names"]
    known = Columns(counts, means, spreads, lows, highs, d, float(n) * d * d, norm)
    X = StreamedRows(blocks, known, np.dtype(f"f{blocks[0].itemsize}"), False, n_threads, memory)
    X.feature_names = tuple(names)
    arrays = {kind: np.concatenate(found) if found else None for kind, found in rows.items()}
    classes = np.unique(np.asarray(arrays["y"])).tolist() if progress.layout["texts"] else None
    norms = np.sqrt(spreads + n * np.square(means))
    columns = np.stack([counts, means, norms, spreads, lows, highs])
    return Dataset(folder, X, names, progress.layout["target_names"], classes, columns, False, None, arrays.get)


def _row_groups(folder: str, chosen: Chosen) -> list[_RowGroup]:
    """Return the row groups of all files that have rows."""
    blocks = []
    for path in parquet_files(folder):
        first = 0
        for group, size in enumerate(parquet_groups(path)):
            if size:
                blocks.append(_RowGroup(path, group, first, chosen))
            first += size
    return blocks

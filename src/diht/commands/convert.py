"""``diht convert``: files into a data set on disk."""

from __future__ import annotations

import argparse

from diht.datasets import convert as converted
from diht.report.text import printable

__all__ = ["convert"]


def convert(arguments: argparse.Namespace) -> None:
    """Write the rows of files as a data set on disk."""
    data = converted(
        arguments.sources,
        arguments.out,
        arguments.target,
        arguments.weights,
        block_rows=arguments.block_rows,
        dtype=arguments.dtype,
        max_features=arguments.max_features,
    )
    n, d = data.X.shape
    blocks = data.X.n_blocks
    print(f"{printable(data.path)}: {n:,} samples, {d:,} features, {blocks:,} block{'s' * (blocks != 1)}")

"""Rows on the workers of a Dask cluster: what `fit` and `predict` do with Dask collections.

Dask itself is imported when it is used: ``pip install 'diht[dask]'``.
"""

from __future__ import annotations

from diht.dask.collections import is_dask, lazily

__all__ = ["is_dask", "lazily"]

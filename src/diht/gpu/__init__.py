"""Rows on a GPU: what `fit` does with torch tensors, cupy and JAX arrays, and with ``device=``.

torch itself is imported when it is used: ``pip install 'diht[gpu]'``.
"""

from __future__ import annotations

__all__: list[str] = []

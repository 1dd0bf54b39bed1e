"""Rows on a GPU: what `fit` and `predict` do with torch tensors, cupy and JAX arrays, and with ``device=``.

torch itself is imported when it is used: ``pip install 'diht[gpu]'``.
"""

from __future__ import annotations

from diht.gpu.interchange import is_array_of_others, is_on_device, on_host

__all__ = ["is_array_of_others", "is_on_device", "on_host"]

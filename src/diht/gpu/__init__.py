"""Rows on a GPU: what `fit` and `predict` do with torch tensors, cupy and JAX arrays, and with ``device=``.

torch itself is imported when it is used: ``pip install 'diht[gpu]'``.
"""

from __future__ import annotations

from typing import Any

from diht.gpu.interchange import array_like, is_array_of_others, is_on_device, on_host

__all__ = ["array_like", "is_array_of_others", "is_on_device", "on_host", "samples_on"]


def samples_on(X: Any, y: Any, sample_weight: Any = None, device: Any = None) -> Any:
    """Return samples on a device, by default the one that X is on, for `Problem.of_samples`, `solve` and `certify`.

    Parameters
    ----------
    X : array of torch, cupy or JAX, dense or CSR, or of numpy or scipy
    y, sample_weight : arrays of any of these
        Targets as the loss takes them, -1 and 1 for two classes; weights, of which only the ratios matter.
    device : str, optional
        As in `SparseRegressor`.
    """
    from diht.gpu import data

    return data.samples_on(X, y, sample_weight, device)

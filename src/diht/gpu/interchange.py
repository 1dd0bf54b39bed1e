"""Arrays of other libraries: where they are, and as tensors or numpy's arrays, by DLPack and without a copy where that can be."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

__all__ = ["SMALL", "array_like", "is_array_of_others", "is_on_device", "on_host", "tensor_of"]

Tensor: TypeAlias = Any  # torch.Tensor

# Entries of an X on a GPU up to which the host, where the data are sent, is as fast.
SMALL = 2_000_000


def _library(X: Any) -> str:
    return type(X).__module__.split(".")[0]


def is_array_of_others(X: Any) -> bool:
    """Tell whether something is an array of torch, cupy or JAX."""
    return _library(X) in ("torch", "cupy", "cupyx", "jax", "jaxlib")


def is_on_device(X: Any, device: Any) -> bool:
    """Tell whether to fit where torch has the rows: the user says so, or X is a large array on a GPU."""
    if device is not None:
        if find_spec("torch") is None:
            raise ValueError("device= needs torch: pip install 'diht[gpu]'")
        return True
    if not is_array_of_others(X) or _is_of_host(X):
        return False
    if find_spec("torch") is None:
        raise ValueError("X on a GPU needs torch: pip install 'diht[gpu]'")
    return int(np.prod(X.shape)) > SMALL


def _is_of_host(X: Any) -> bool:
    if _library(X) == "torch":
        return bool(X.device.type == "cpu")
    if _library(X) in ("cupy", "cupyx"):
        return False
    return {device.platform for device in getattr(X, "data", X).devices()} == {"cpu"}


def on_host(X: Any) -> Any:
    """Return an array of torch, cupy or JAX as one of numpy's or scipy's; anything else as it is."""
    if not is_array_of_others(X):
        return X
    if _library(X) == "torch":
        X = X.detach().cpu()
        if str(X.layout) == "torch.sparse_csr":
            parts = X.values().numpy(), X.col_indices().numpy(), X.crow_indices().numpy()
            return sp.csr_array(parts, shape=tuple(X.shape))
        return X.numpy()
    if hasattr(X, "indptr"):
        parts = on_host(X.data), on_host(X.indices), on_host(X.indptr)
        return sp.csr_array(parts, shape=tuple(X.shape))
    return X.get() if _library(X) == "cupy" else np.asarray(X)


def array_like(values: Any, X: Any) -> Any:
    """Return numbers of numpy's as an array of the library of X, on its device."""
    values = np.asarray(values)
    if _library(X) == "torch":
        import torch

        return torch.from_numpy(np.array(values)).to(X.device)
    if _library(X) in ("cupy", "cupyx"):
        import cupy

        with getattr(X, "data", X).device if _library(X) == "cupyx" else X.device:
            return cupy.asarray(values)
    import jax

    return jax.device_put(values, next(iter(getattr(X, "data", X).devices())))


def tensor_of(name: str, X: Any, device: Any) -> Tensor:
    """Return a dense array as a tensor on a device; where it is there already, the same memory."""
    import torch

    if _library(X) in ("cupy", "jax", "jaxlib"):
        X = torch.from_dlpack(X)
    if not isinstance(X, torch.Tensor):
        X = np.asarray(X)
        if X.dtype.kind not in "buif":
            raise ValueError(f"{name} must be numeric, got dtype {X.dtype}")
        X = torch.from_numpy(np.ascontiguousarray(X) if X.flags.writeable else X.copy())
    if X.is_complex():
        raise ValueError(f"{name} must hold real numbers, got dtype {X.dtype}")
    return X.detach().to(device)

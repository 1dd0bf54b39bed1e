"""Data as samples on a device: checked there, moved there block by block where they are elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from diht.dask.data import Collections
from diht.design import LARGEST
from diht.gpu.arrays import DeviceArray, pairwise_sum
from diht.gpu.interchange import is_array_of_others, on_host, tensor_of
from diht.gpu.matrix import Dense, Matrix, Sparse, as_numpy
from diht.gpu.samples import TorchSamples
from diht.gpu.streamed import Streamed, copied
from diht.samples.base import Rows

__all__ = ["DeviceData", "loaded", "samples_on", "scores"]

Array = NDArray[Any]
Tensor: TypeAlias = Any  # torch.Tensor

_BLOCK = 2**26  # bytes of rows that are moved at a time
_SHARE = 0.7  # of a device's free memory that X may take: working sets and vectors need the rest
_STREAMED, _BLOCKS = 2**29, 8  # bytes of a block that is copied at each read; how many fit into X's memory at least
_COMING = 3  # blocks that are on their way or in use


@dataclass(frozen=True, eq=False)
class DeviceData:
    """Rows on a device.

    Attributes
    ----------
    samples : TorchSamples
        With targets as they were given, or the numbers of their classes, and weights that sum to one.
    names : tuple of str, or None
    classes : array, or None
    n_targets : int
        0 where there is a single one.
    several : torch.Tensor or None
        Several targets, one row each.
    weight : float
        The sum of the weights as they were given, or the number of samples.
    known : torch.Tensor or None
        What is known of the predictions, of several targets one row each.
    """

    samples: TorchSamples
    names: tuple[str, ...] | None
    classes: Array | None
    n_targets: int
    several: Tensor | None
    weight: float
    known: Tensor | None

    def targets(self) -> Rows:
        """Return several targets, one row each."""
        return DeviceArray(self.several)

    def offset(self) -> Rows | None:
        """Return what is known of the predictions."""
        return None if self.known is None else DeviceArray(self.known)

    def dual(self, alpha: Rows) -> Array:
        """Return a dual point as numpy's array."""
        return self.samples.fetch(alpha)


def loaded(
    given: Collections, device: Any, classes: bool, names: tuple[str, ...] | None = None, memory: float | None = None
) -> DeviceData:
    """Check data and bring them to a device, by default the one that X is on.

    Parameters
    ----------
    given : Collections
        X, an array of torch, cupy or JAX, dense or CSR, or of numpy or scipy, and vectors, arrays of any of these.
    device : str, torch.device or None
    classes : bool
        Whether targets are classes.
    names : tuple of str, optional
        Of the columns.
    memory : float, optional
        Bytes of the device that X may take; by default a share of those that are free. Rows beyond that stay on the host.
    """
    where = _device_of(given.X, device)
    matrix = matrix_of(given.X, where, memory)
    n = matrix.shape[0]
    s, weight = _weights(given.sample_weight, n, where)
    if classes:
        found, codes = _classes(given.y, n, where)
        return DeviceData(TorchSamples.of(matrix, codes, s), names, found, 0, None, weight, None)
    rows = _rows("y", given.y, n, where)
    known = None if given.offset is None else _rows("offset", given.offset, n, where)
    if known is not None and known.shape != rows.shape:
        raise ValueError(f"offset must have the shape of y, {tuple(rows.T.shape)}, got {tuple(known.T.shape)}")
    if rows.ndim == 1:
        return DeviceData(TorchSamples.of(matrix, rows, s), names, None, 0, None, weight, known)
    return DeviceData(TorchSamples.of(matrix, rows[0].contiguous(), s), names, None, len(rows), rows, weight, known)


def samples_on(X: Any, y: Any, sample_weight: Any = None, device: Any = None) -> TorchSamples:
    """Return samples on a device, for `Problem.of_samples`; targets of classes are -1 and 1."""
    return loaded(Collections(X, y, sample_weight), device, False).samples


def _rows(name: str, values: Any, n: int, device: Any) -> Tensor:
    """Return a number for each sample, or several, one row for each of them."""
    rows = _checked(name, tensor_of(name, values, device)).to(torch.float64)
    if rows.ndim == 2 and rows.shape[1] == 1:
        rows = rows[:, 0]
    _check_length(name, rows, n)
    return rows if rows.ndim == 1 else rows.T.contiguous()


def _device_of(X: Any, device: Any) -> Any:
    if device is None:
        device = X.device if isinstance(X, torch.Tensor) else "cuda"
    try:
        where = torch.device(device)
        torch.empty(0, device=where)
    except (RuntimeError, AssertionError, TypeError) as error:
        what = "there is no GPU that torch can use" if not torch.cuda.is_available() else str(error).splitlines()[0]
        raise ValueError(f"device={device!r} cannot be used: {what}") from None
    if where.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be 'cuda', one of several as in 'cuda:1', or 'cpu', got {device!r}")
    return where


def matrix_of(X: Any, device: Any, memory: float | None = None) -> Matrix:
    """Return X on a device, checked; ValueError where it is no matrix of finite numbers, or does not fit."""
    if isinstance(X, torch.Tensor) and X.layout == torch.sparse_csr:
        parts: Any = X.crow_indices(), X.col_indices(), X.values()
    elif is_array_of_others(X) and hasattr(X, "indptr"):
        parts = X.indptr, X.indices, X.data
    elif sp.issparse(X):
        X = sp.csr_array(X)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        parts = X.indptr, X.indices, X.data
    else:
        return _dense(X, device, memory)
    size = sum(int(part.nbytes) for part in parts)
    where, budget = _place(X, 2 * size, device, memory)
    starts, index, values = (_moved(f"X's {i}", part, where) for i, part in zip("abc", parts, strict=True))
    starts = starts.to(torch.int64)
    _check_indices(starts, index, int(X.shape[1]))
    whole = Sparse(starts, index, _checked("X", _real(values)), int(X.shape[1]))
    return whole if budget is None else _streamed(whole, device, budget)


def _place(X: Any, n_bytes: int, device: Any, memory: float | None) -> tuple[Any, float | None]:
    """Return the device and None where X fits there or is there, else the host's memory and the bytes that X may take."""
    if memory is None:
        if device.type == "cpu" or _is_there(X, device):
            return device, None
        memory = _SHARE * torch.cuda.mem_get_info(device)[0]
    return (device, None) if n_bytes <= memory else (torch.device("cpu"), memory)


def _streamed(whole: Matrix, device: Any, memory: float) -> Streamed:
    """Cut an X of the host into blocks, of which as many as fit are moved to the device; the others wait where it can read them."""
    size = min(_STREAMED, memory / _BLOCKS)
    copies = 2 if whole.is_sparse else 1
    n = whole.shape[0]
    rows = max(1, int(size * n / max(1, copies * whole.nbytes)))
    resident, parts = memory - _COMING * size, []
    for first in range(0, n, rows):
        part = whole.part(first, min(first + rows, n))
        resident -= copies * part.nbytes
        if resident >= 0.0 or isinstance(part, Sparse):
            part = copied(part, lambda a: a.to(device))
        if isinstance(part, Sparse):
            part.by_columns  # noqa: B018 - made where the rows are
        parts.append(part if resident >= 0.0 else copied(part, _waiting(device)))
    return Streamed(parts, device, memory)


def _waiting(device: Any) -> Callable[[Tensor], Tensor]:
    """Return what brings an array to memory of the host that the device can read."""
    if device.type == "cpu":
        return lambda a: a
    return lambda a: torch.empty(a.shape, dtype=a.dtype, pin_memory=True).copy_(a)


def _check_indices(starts: Tensor, index: Tensor, d: int) -> None:
    """Raise ValueError unless the columns of every row ascend, each once: products by rows and by columns must agree."""
    if len(starts) < 2 or d < 1:
        raise ValueError(f"X must have at least one row and one column, got shape ({len(starts) - 1}, {d})")
    if len(index) and not (int(index.min()) >= 0 and int(index.max()) < d):
        raise ValueError(f"X must have column indices from 0 to {d - 1}, got {int(index.min())} to {int(index.max())}")
    falls = index[1:] <= index[:-1]
    begins = starts[1:-1]
    begins = begins[(begins > 0) & (begins < len(index))] - 1
    falls[begins] = False
    if bool(torch.any(falls)):
        raise ValueError("X must have ascending column indices in each row, each once, as coalesced tensors have")


def _dense(X: Any, device: Any, memory: float | None) -> Matrix:
    if not is_array_of_others(X):
        X = np.asarray(X)
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(f"X must be a matrix with at least one row and one column, got shape {tuple(X.shape)}")
    where, budget = _place(X, int(X.nbytes), device, memory)
    whole = Dense(_checked("X", _real(_moved("X", X, where))))
    return whole if budget is None else _streamed(whole, device, budget)


def _is_there(X: Any, device: Any) -> bool:
    return isinstance(X, torch.Tensor) and X.device == torch.empty(0, device=device).device


def _moved(name: str, X: Any, device: Any) -> Tensor:
    """Return an array on a device; rows of the host's are moved block by block, through memory that the device can read."""
    if is_array_of_others(X) or device.type == "cpu":
        return tensor_of(name, X, device)
    rows = max(1, _BLOCK // max(1, int(X.nbytes) // max(1, len(X))))
    kind = torch.from_numpy(np.empty(0, dtype=X.dtype)).dtype
    out = torch.empty(tuple(X.shape), dtype=kind, device=device)
    for first in range(0, len(X), rows):
        block = torch.from_numpy(np.array(X[first : first + rows], order="C"))
        out[first : first + rows].copy_(block.pin_memory(), non_blocking=True)
    torch.cuda.synchronize(device)
    return out


def _real(values: Tensor) -> Tensor:
    """Return the entries as float32 or float64."""
    return values if values.dtype in (torch.float32, torch.float64) else values.to(torch.float64)


def _checked(name: str, values: Tensor, largest: float = LARGEST) -> Tensor:
    """Raise ValueError unless all entries are finite, and none is so large that sums of squares overflow."""
    if not values.is_floating_point():
        return values
    for part in values.split(max(1, _BLOCK * values.shape[0] // max(1, values.numel())), 0):
        if not bool(torch.all(torch.isfinite(part))):
            kind = "NaN" if bool(torch.any(torch.isnan(part))) else "infinity"
            raise ValueError(f"{name} contains {kind}: it must hold finite numbers")
        if values.dtype == torch.float64 and part.numel() and float(part.abs().max()) > largest:
            raise ValueError(
                f"{name} must not hold numbers beyond {largest:g} in size, got {float(part.abs().max()):g}"
            )
    return values


def _check_length(name: str, rows: Tensor, n: int) -> None:
    if rows.ndim not in (1, 2) or len(rows) != n:
        raise ValueError(f"{name} must have length {n} to match X, got shape {tuple(rows.shape)}")


def _weights(weights: Any, n: int, device: Any) -> tuple[Tensor, float]:
    """Return the weights divided by their sum, and it."""
    if weights is None:
        return torch.full((n,), 1.0 / n, dtype=torch.float64, device=device), float(n)
    s = _checked("sample_weight", tensor_of("sample_weight", weights, device).to(torch.float64), math.inf)
    if s.ndim != 1 or len(s) != n:
        raise ValueError(f"sample_weight must have length {n} to match X, got shape {tuple(s.shape)}")
    if bool(torch.any(s < 0)):
        raise ValueError(f"sample_weight must not be negative, got {float(s.min())}")
    largest = float(s.max())
    if largest == 0.0:
        raise ValueError("sample_weight must not be all zero")
    s = s / largest
    total = pairwise_sum(s)
    return s / total, largest * float(total)


def _classes(y: Any, n: int, device: Any) -> tuple[Array, Tensor]:
    """Return the classes, sorted, and their numbers for the samples."""
    if is_array_of_others(y):
        labels, codes = torch.unique(_checked("y", tensor_of("y", y, device)), return_inverse=True)
        classes = as_numpy(labels)
    else:
        classes, numbers = np.unique(np.asarray(y), return_inverse=True)
        codes = tensor_of("y", numbers, device)
    if codes.ndim != 1 or len(codes) != n:
        raise ValueError(f"y must have length {n} to match X, got shape {tuple(codes.shape)}")
    if len(classes) < 2:
        raise ValueError(f"y must hold at least two classes, got only one class: {classes.tolist()[0]!r}")
    return classes, codes.to(torch.float64)


def scores(X: Any, coef: Array, intercept: Array) -> Array:
    """Return x.w + b of every sample for every row of coefficients, of X on a device; in float64, here."""
    matrix = matrix_of(X, _device_of(X, None))
    support = np.flatnonzero(coef.any(axis=0))
    part = matrix.columns(torch.from_numpy(support).to(matrix.device))
    rows = (torch.from_numpy(np.ascontiguousarray(row[support], dtype=np.float64)) for row in coef)
    found = [as_numpy(part.matvec(row.to(matrix.device))) for row in rows]
    return np.asarray(np.column_stack(found) + on_host(intercept))

"""Vectors on a device that speak numpy's protocols: formulas written in numpy run where the numbers are.

A `DeviceArray` holds a torch tensor. numpy's functions, its operators and its methods act on the tensor; what has no counterpart
here raises TypeError, as taking one for a numpy array does: nothing is copied to the host unless it is fetched. So a loss
has one formula, wherever the samples live.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.lib.mixins import NDArrayOperatorsMixin

from diht.gpu import kernels
from diht.gpu.matrix import on_device
from diht.losses import Pieces
from diht.relaxation.smoothing import central_slopes

__all__ = ["DeviceArray", "fetched", "pairwise_sum"]

Tensor: TypeAlias = Any  # torch.Tensor

_DTYPES: dict[Any, np.dtype[Any]] = {
    torch.float64: np.dtype(np.float64),
    torch.float32: np.dtype(np.float32),
    torch.int64: np.dtype(np.int64),
    torch.int32: np.dtype(np.int32),
    torch.bool: np.dtype(np.bool_),
}
_TORCH = {dtype: name for name, dtype in _DTYPES.items()}


class _Namespace:
    """numpy's functions; an array is left where it is."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def asarray(x: Any, dtype: Any = None) -> Any:
        """Return arrays of a device as they are, others as numpy has them."""
        if not isinstance(x, DeviceArray):
            return np.asarray(x, dtype=dtype)
        return x if dtype is None else x.astype(dtype)


_NAMESPACE = _Namespace()


class DeviceArray(NDArrayOperatorsMixin):
    """Numbers on a device, for numpy's functions and operators.

    Parameters
    ----------
    tensor : torch.Tensor
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __reduce__(self) -> Any:
        raise TypeError("a vector that lives on a device cannot be sent or stored")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a vector that lives on a device is not taken for an array of numpy's: fetch it")

    def __array_namespace__(self, **_: Any) -> Any:
        return _NAMESPACE

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        """Call the torch function of the same name."""
        function = _UFUNCS.get(ufunc.__name__)
        if function is None or method != "__call__" or set(kwargs) - {"where"} or kwargs.get("where", True) is not True:
            raise TypeError(f"numpy.{ufunc.__name__} ({method}) is not known to vectors on a device")
        device = next(x.tensor.device for x in (*inputs, *(out or ())) if isinstance(x, DeviceArray))
        found = function(*(_operand(x, device) for x in inputs))
        if out is None:
            return DeviceArray(found)
        [into] = out
        into.tensor.copy_(found)
        return into

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function of this module that stands for one of numpy's."""
        known = _FUNCTIONS.get(func)
        if known is None:
            raise TypeError(f"numpy.{func.__name__} is not known to vectors on a device")
        return known(*args, **kwargs)

    # What an array is

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of its axes."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return int(self.tensor.ndim)

    @property
    def size(self) -> int:
        """The number of its entries."""
        return int(self.tensor.numel())

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its entries."""
        return _DTYPES[self.tensor.dtype]

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return self.size * self.dtype.itemsize

    @property
    def T(self) -> DeviceArray:  # noqa: N802
        """The transposed matrix."""
        return DeviceArray(self.tensor.T)

    def __len__(self) -> int:
        return int(self.tensor.shape[0])

    def __iter__(self) -> Iterator[DeviceArray]:
        return (self[i] for i in range(len(self)))

    def __float__(self) -> float:
        return float(self.tensor.item())

    def __int__(self) -> int:
        return int(self.tensor.item())

    def __bool__(self) -> bool:
        return bool(self.tensor.item())

    def __getitem__(self, at: Any) -> DeviceArray:
        return DeviceArray(self.tensor[self._index(at)])

    def __setitem__(self, at: Any, values: Any) -> None:
        self.tensor[self._index(at)] = _operand(values, self.tensor.device)

    def _index(self, at: Any) -> Any:
        if isinstance(at, tuple):
            return tuple(map(self._index, at))
        return _operand(at, self.tensor.device) if isinstance(at, DeviceArray | np.ndarray) else at

    # Methods of arrays that formulas call

    def copy(self) -> DeviceArray:
        """Return a copy."""
        return DeviceArray(self.tensor.clone())

    def astype(self, dtype: Any, copy: bool = True) -> DeviceArray:
        """Return its entries as another type."""
        return DeviceArray(self.tensor.to(_TORCH[np.dtype(dtype)], copy=copy))

    def reshape(self, *shape: Any) -> DeviceArray:
        """Return its entries in another shape."""
        return DeviceArray(self.tensor.reshape(*shape))

    def ravel(self) -> DeviceArray:
        """Return its entries in one row."""
        return DeviceArray(self.tensor.reshape(-1))

    def sum(self, axis: int | None = None) -> DeviceArray:
        """Add up entries."""
        return _sum(self, axis)

    def max(self, axis: int | None = None, initial: float | None = None) -> Any:
        """Return the largest entry."""
        return _extreme(torch.amax, self, axis, initial)

    def min(self, axis: int | None = None, initial: float | None = None) -> Any:
        """Return the least entry."""
        return _extreme(torch.amin, self, axis, initial)

    def any(self, axis: int | None = None) -> DeviceArray:
        """Tell whether an entry is true."""
        return _any(self, axis)

    def all(self, axis: int | None = None) -> DeviceArray:
        """Tell whether all entries are true."""
        return _all(self, axis)

    def mean(self) -> DeviceArray:
        """Return the mean of the entries."""
        return DeviceArray(_sum(self).tensor / self.size)

    def central_slopes(self, y: DeviceArray, pieces: Pieces, tau: float) -> DeviceArray:
        """Return the derivatives of `diht.relaxation.smoothing.Central` at these margins."""
        u, targets = torch.broadcast_tensors(self.tensor, y.tensor)
        if not (kernels.take(u) or u.device.type == "cpu"):
            found: DeviceArray = central_slopes(self, y, pieces, tau)
            return found
        flat = kernels.central_slopes(u.reshape(-1).contiguous(), targets.reshape(-1).contiguous(), pieces, tau)
        return DeviceArray(flat.reshape(u.shape))


def fetched(found: Any) -> Any:
    """Return what a function of vectors returned, with numbers and numpy's arrays in place of those of a device.

    Single numbers are brought here together.
    """
    if isinstance(found, DeviceArray):
        values = found.tensor.cpu().numpy()
        return values if values.ndim else values[()]
    if isinstance(found, tuple):
        single = [
            x.tensor for x in found if isinstance(x, DeviceArray) and x.tensor.dtype == torch.float64 and not x.ndim
        ]
        numbers = iter(torch.stack(single).tolist() if len(single) > 1 else [])
        parts = [next(numbers) if _is_one_of(x, single) else fetched(x) for x in found]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    return [fetched(part) for part in found] if isinstance(found, list) else found


def _is_one_of(x: Any, single: list[Tensor]) -> bool:
    return len(single) > 1 and isinstance(x, DeviceArray) and any(x.tensor is tensor for tensor in single)


def pairwise_sum(t: Tensor) -> Tensor:
    """Add up along the last axis, such that each term is rounded fewer than 64 times for fewer than 2^40 terms."""
    if t.dtype != torch.float64:
        return t.sum(-1)
    if t.ndim == 1 and kernels.take(t):
        return kernels.block_sums(t)
    while (n := t.shape[-1]) > 1:
        half = n // 2
        added = t[..., :half] + t[..., half : 2 * half]
        if n % 2:
            added[..., 0] += t[..., -1]
        t = added
    return t[..., 0] if t.shape[-1] else t.sum(-1)


@lru_cache(maxsize=512)
def _number(value: float, device: Any) -> Tensor:
    """Return a number on a device; asked for again, it is there."""
    return torch.tensor(value, dtype=torch.float64, device=device)


def _operand(x: Any, device: Any) -> Any:
    """Return what torch's operators take: a tensor, or a plain number."""
    if isinstance(x, DeviceArray):
        return x.tensor
    if isinstance(x, np.ndarray):
        return on_device(x, device) if x.ndim else x.item()
    return x.item() if isinstance(x, np.generic) else x


def _tensor(x: Any, device: Any) -> Tensor:
    """Return a tensor also of a number."""
    x = _operand(x, device)
    return _number(float(x), device) if isinstance(x, int | float) else x


def _device(*given: Any) -> Any:
    return next(x.tensor.device for x in given if isinstance(x, DeviceArray))


def _both(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let a function of two tensors take a number."""

    def of(a: Any, b: Any) -> Tensor:
        device = (a if isinstance(a, torch.Tensor) else b).device
        return function(_tensor(a, device), _tensor(b, device))

    return of


def _arithmetic(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let whole numbers and truth values meet others in float64, as numpy does; torch takes float32."""

    def of(a: Any, b: Any) -> Tensor:
        if any(isinstance(x, float) or (isinstance(x, torch.Tensor) and x.is_floating_point()) for x in (a, b)):
            a, b = (x.to(torch.float64) if isinstance(x, torch.Tensor) else x for x in (a, b))
        return function(a, b)

    return of


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    a, b = a.to(torch.float64), b.to(torch.float64)
    return torch.dot(a, b) if a.ndim == b.ndim == 1 else a @ b


_UFUNCS: dict[str, Callable[..., Tensor]] = {
    "add": _arithmetic(operator.add),
    "subtract": _arithmetic(operator.sub),
    "multiply": _arithmetic(operator.mul),
    "divide": _arithmetic(operator.truediv),
    "power": _arithmetic(operator.pow),
    "negative": operator.neg,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "invert": operator.invert,
    "logical_and": operator.and_,
    "logical_or": operator.or_,
    "logical_not": torch.logical_not,
    "matmul": _matmul,
    "maximum": _both(torch.maximum),
    "minimum": _both(torch.minimum),
    "hypot": _both(torch.hypot),
    "nextafter": _both(torch.nextafter),
    "absolute": torch.abs,
    "floor": torch.floor,
    "sign": torch.sign,
    "square": torch.square,
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "tanh": torch.tanh,
    "isfinite": torch.isfinite,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "xlogy": _both(torch.xlogy),
}


def _where(condition: Any, x: Any, y: Any) -> DeviceArray:
    device = _device(condition, x, y)
    return DeviceArray(torch.where(_operand(condition, device), _tensor(x, device), _tensor(y, device)))


def _clip(a: Any, a_min: Any = None, a_max: Any = None) -> DeviceArray:
    device = _device(a, a_min, a_max)
    found, low, high = _tensor(a, device), _operand(a_min, device), _operand(a_max, device)
    if not isinstance(low, torch.Tensor) and not isinstance(high, torch.Tensor):
        return DeviceArray(found.clamp(low, high) if low is not None or high is not None else found)
    if low is not None:
        found = torch.maximum(found, _tensor(low, device))
    return DeviceArray(found if high is None else torch.minimum(found, _tensor(high, device)))


def _sum(a: DeviceArray, axis: int | None = None) -> DeviceArray:
    t = a.tensor
    if axis is None:
        return DeviceArray(pairwise_sum(t.reshape(-1)))
    return DeviceArray(pairwise_sum(t) if axis in (-1, t.ndim - 1) else t.sum(axis))


def _extreme(function: Callable[..., Tensor], a: DeviceArray, axis: int | None, initial: float | None) -> Any:
    if initial is not None and not a.size:
        return initial
    found = function(a.tensor) if axis is None else function(a.tensor, axis)
    if initial is None:
        return DeviceArray(found)
    return DeviceArray(found.clamp(min=initial) if function is torch.amax else found.clamp(max=initial))


def _any(a: DeviceArray, axis: int | None = None) -> DeviceArray:
    return DeviceArray(torch.any(a.tensor) if axis is None else torch.any(a.tensor, axis))


def _all(a: DeviceArray, axis: int | None = None) -> DeviceArray:
    return DeviceArray(torch.all(a.tensor) if axis is None else torch.all(a.tensor, axis))


def _norm(a: DeviceArray) -> DeviceArray:
    return DeviceArray(torch.linalg.vector_norm(a.tensor))


def _stack(arrays: Any, axis: int = 0) -> DeviceArray:
    arrays = list(arrays)
    device = _device(*arrays)
    return DeviceArray(torch.stack([_tensor(x, device) for x in arrays], axis))


def _concatenate(arrays: Any, axis: int = 0) -> DeviceArray:
    arrays = [_stack(x) if isinstance(x, list) else x for x in arrays]
    device = _device(*arrays)
    return DeviceArray(torch.cat([_tensor(x, device) for x in arrays], axis))


def _like(make: Callable[..., Tensor]) -> Callable[..., DeviceArray]:
    return lambda a, *value, dtype=None: DeviceArray(make(a.tensor, *map(float, value)))


def _take_along_axis(a: DeviceArray, indices: DeviceArray, axis: int) -> DeviceArray:
    return DeviceArray(torch.take_along_dim(a.tensor, indices.tensor, axis))


def _bincount(a: DeviceArray, weights: DeviceArray | None = None, minlength: int = 0) -> DeviceArray:
    """Add up the weights of each number, whose order is always the same."""
    codes = a.tensor
    size = max(minlength, int(codes.max()) + 1 if codes.numel() else 0)
    ones = torch.ones(len(codes), dtype=torch.float64, device=codes.device) if weights is None else weights.tensor
    return DeviceArray(torch.stack([pairwise_sum(torch.where(codes == j, ones, 0.0)) for j in range(size)]))


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.clip: _clip,
    np.sum: _sum,
    np.dot: lambda a, b: a @ b,  # of at most two dimensions
    np.max: lambda a, axis=None, initial=None: a.max(axis, initial),
    np.min: lambda a, axis=None, initial=None: a.min(axis, initial),
    np.any: _any,
    np.all: _all,
    np.argmin: lambda a: int(torch.argmin(a.tensor)),
    np.argmax: lambda a, axis=None: int(torch.argmax(a.tensor)) if axis is None else DeviceArray(a.tensor.argmax(axis)),
    np.atleast_2d: lambda a: DeviceArray(torch.atleast_2d(a.tensor)),
    np.count_nonzero: lambda a: int(torch.count_nonzero(a.tensor)),
    np.nonzero: lambda a: tuple(map(DeviceArray, torch.nonzero(a.tensor, as_tuple=True))),
    np.linalg.norm: _norm,
    np.stack: _stack,
    np.concatenate: _concatenate,
    np.hstack: lambda arrays: _concatenate(arrays, 1 if arrays[0].ndim > 1 else 0),
    np.zeros_like: _like(torch.zeros_like),
    np.ones_like: _like(torch.ones_like),
    np.empty_like: _like(torch.empty_like),
    np.full_like: _like(torch.full_like),
    np.broadcast_to: lambda a, shape: DeviceArray(a.tensor.broadcast_to(shape)),
    np.reshape: lambda a, shape: a.reshape(shape),
    np.sort: lambda a, axis=-1: DeviceArray(torch.sort(a.tensor, dim=axis, stable=True).values),
    np.cumsum: lambda a, axis: DeviceArray(torch.cumsum(a.tensor, axis)),
    np.take_along_axis: _take_along_axis,
    np.bincount: _bincount,
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
}

"""Some columns of X on a device, whole, for walks along each of them alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch

from diht.gpu.arrays import DeviceArray
from diht.gpu.matrix import as_numpy, on_device
from diht.numerics.arrays import Vector
from diht.samples.lines import Along, Lines

__all__ = ["DeviceLines"]

Tensor: TypeAlias = Any  # torch.Tensor


class DeviceLines(Lines):
    """All entries of m columns, (N, m), beside the samples Z of a few other features.

    Parameters
    ----------
    x : torch.Tensor of shape (N, m)
    Z : torch.Tensor of shape (N, p)
    y, s : DeviceArray
    """

    are_whole = True

    def __init__(self, x: Tensor, Z: Tensor, y: DeviceArray, s: DeviceArray) -> None:
        self._x, self._Z, self._y, self._s = x, Z, y[:, None], s[:, None]

    @property
    def size(self) -> int:
        """The number of entries."""
        return int(self._x.numel())

    def __len__(self) -> int:
        return int(self._x.shape[1])

    def _whole(self, along: Along) -> Tensor:
        return along.tensor.broadcast_to(self._x.shape)

    def gram(self, along: Along) -> Vector:
        """Return a matrix for each column."""
        e = self._whole(self._s * along)
        return as_numpy(torch.stack([(self._Z.T * e[:, j]) @ self._Z for j in range(len(self))]))

    @property
    def x(self) -> Along:
        """The entries."""
        return DeviceArray(self._x)

    def at(self, rows: Any) -> Along:
        """Return what a vector of the samples has for the row of each entry."""
        return rows[:, None]

    def per(self, t: Vector) -> Along:
        """Return the number of its column for each entry."""
        return DeviceArray(on_device(np.asarray(t, dtype=np.float64), self._x.device)[None, :])

    def mixed(self, Q: Vector) -> Along:
        """Return the entry of Z Q for each entry."""
        return DeviceArray(self._Z @ on_device(np.asarray(Q, dtype=np.float64), self._x.device))

    def map(self, f: Callable[..., Any], *along: Along) -> Along:
        """Return ``f(y, s, *along)`` for each entry."""
        return f(self._y, self._s, *along)

    def total(self, f: Callable[..., Any], *along: Along) -> Vector:
        """Return sums over the entries of each column."""
        return as_numpy(self._whole(self._s * f(self._y, *along)).sum(0))

    def largest(self, along: Along) -> Vector:
        """Return the largest number of each column, or 0."""
        return as_numpy(self._whole(along).amax(0).clamp(min=0.0))

    def pull(self, along: Along) -> Vector:
        """Return sums over the entries of each column."""
        return as_numpy(self._Z.T @ self._whole(self._s * along))

"""Which products go to kernels of our own: torch's add float32 entries up in float32, and sparse ones in no fixed order.

Without Triton, and on the CPU, torch computes the same from copies of the entries in float64.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch

from diht.losses import Pieces

__all__ = [
    "Segments",
    "block_sums",
    "central_slopes",
    "dense_matvec",
    "dense_matvec_of",
    "dense_rmatvec",
    "dense_rmatvec_and_squares",
    "dense_row_spread",
    "dense_spread",
    "take",
]

Tensor: TypeAlias = Any  # torch.Tensor

_CUT = 1024  # entries of a row of a sparse matrix that one program adds up
WINDOW = 1 << 21  # rows whose numbers, 16 MB, stay in the cache of a GPU while columns are added up


@cache
def _available() -> bool:
    """Whether Triton can be imported."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def take(tensor: Tensor) -> bool:
    """Whether kernels take a tensor: one on a GPU, or any in Triton's interpreter."""
    return (tensor.is_cuda or os.environ.get("TRITON_INTERPRET") == "1") and _available()


def block_sums(t: Tensor) -> Tensor:
    """Add up a vector of float64 such that each term is rounded few times."""
    from diht.gpu import triton_kernels

    return triton_kernels.block_sums(t)


def central_slopes(u: Tensor, y: Tensor, pieces: Pieces, tau: float) -> Tensor:
    """Return what `diht.samples.central_slopes` does of every entry of vectors in float64: by it, on the CPU."""
    out = torch.empty_like(u)
    if take(u):
        from diht.gpu import triton_kernels

        inside = np.nextafter(pieces.low, pieces.high), np.nextafter(pieces.high, pieces.low)
        numbers = torch.tensor([pieces.mu, pieces.low, pieces.high, tau, *inside], dtype=torch.float64, device=u.device)
        triton_kernels.central_slopes(u, y, numbers, pieces, out)
    else:
        from diht.samples import central_slopes as compiled

        compiled.central_slopes(u.numpy(), y.numpy(), pieces.numbers, tau, out.numpy())
    return out


def dense_matvec(X: Tensor, w: Tensor) -> Tensor:
    """Compute ``X w``."""
    from diht.gpu import triton_kernels

    return triton_kernels.matvec(X, w) if X.stride(1) == 1 else triton_kernels.rmatvec(X.T, w)


def dense_rmatvec(X: Tensor, c: Tensor) -> Tensor:
    """Compute ``X' c``."""
    from diht.gpu import triton_kernels

    return triton_kernels.rmatvec(X, c) if X.stride(1) == 1 else triton_kernels.matvec(X.T, c.contiguous())


def dense_matvec_of(X: Tensor, features: Tensor, w: Tensor) -> Tensor:
    """Compute the product of some columns with w, for an X whose rows are contiguous."""
    from diht.gpu import triton_kernels

    return triton_kernels.matvec(X, w, features=features)


def dense_rmatvec_and_squares(X: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``X' c`` and ``sum_i x_ij^2`` in one read, for an X whose rows are contiguous."""
    from diht.gpu import triton_kernels

    return triton_kernels.rmatvec_and_squares(X, c)


def dense_row_spread(X: Tensor, w: Tensor, center: Tensor, features: Tensor | None = None) -> Tensor:
    """Compute ``sum_j w_j (x_ij - center_j)^2``, over all columns or some, for an X whose rows are contiguous."""
    from diht.gpu import triton_kernels

    return triton_kernels.matvec(X, w, center, features)


def dense_spread(X: Tensor, c: Tensor, center: Tensor) -> Tensor:
    """Compute ``sum_i c_i (x_ij - center_j)^2`` for an X whose rows are contiguous."""
    from diht.gpu import triton_kernels

    return triton_kernels.spread(X, c, center)


class Segments:
    """Runs of the entries of a sparse matrix, long ones cut into pieces whose sums are added up afterwards.

    Parameters
    ----------
    firsts, ends : torch.Tensor of shape (m,)
        Where each run begins and ends.
    n_windows : int
        How many runs, m / n_windows apart, belong to one row or column: their sums are added up.
    """

    def __init__(self, firsts: Tensor, ends: Tensor, n_windows: int = 1) -> None:
        counts = ends - firsts
        self.firsts, self.ends, self.pieces, self.n_windows = firsts, ends, None, n_windows
        if len(counts) and int(counts.max()) > _CUT:
            pieces = torch.clamp((counts + (_CUT - 1)) // _CUT, min=1)
            own = torch.zeros(len(counts) + 1, dtype=torch.int64, device=firsts.device)
            torch.cumsum(pieces, 0, out=own[1:])
            row = torch.repeat_interleave(torch.arange(len(counts), device=firsts.device), pieces)
            number = torch.arange(len(row), device=firsts.device) - own[row]
            self.firsts = firsts[row] + number * _CUT
            self.ends = torch.minimum(self.firsts + _CUT, ends[row])
            self.pieces = own

    @classmethod
    def of_rows(cls, starts: Tensor) -> Segments:
        """Take the rows of a matrix, by where each begins."""
        return cls(starts[:-1], starts[1:])

    @classmethod
    def of_columns(cls, starts: Tensor, rows: Tensor, n_rows: int) -> Segments:
        """Take the columns, by where each begins and the rows of its entries, ascending.

        Those of a window of the rows are added up before those of the next: its part of a vector stays in the cache.
        """
        n_windows = -(-n_rows // WINDOW)
        if n_windows <= 1:
            return cls.of_rows(starts)
        n_columns = len(starts) - 1
        own = torch.repeat_interleave(torch.arange(n_columns, device=starts.device), torch.diff(starts))
        counts = torch.bincount(own.mul_(n_windows).add_(rows // WINDOW), minlength=n_columns * n_windows)
        ends = torch.cumsum(counts, 0)
        firsts, ends = ((part.view(n_columns, n_windows).T.reshape(-1)) for part in (ends - counts, ends))
        return cls(firsts, ends, n_windows)

    def dots(self, index: Tensor, values: Tensor, v: Tensor) -> Tensor:
        """Compute the products of the rows, or columns, with a vector."""
        from diht.gpu import triton_kernels

        sums = triton_kernels.segment_dots(self.firsts, self.ends, index, values, v.contiguous())
        if self.pieces is not None:
            sums = triton_kernels.segment_dots(self.pieces[:-1], self.pieces[1:], None, sums, None)
        return sums if self.n_windows == 1 else sums.view(self.n_windows, -1).sum(0)

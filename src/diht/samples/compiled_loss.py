"""Sums and vectors of a loss over many samples in memory: compiled, with one read of the margins, and in threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from diht.losses import Loss
from diht.numerics.arrays import Vector
from diht.numerics.threads import in_slices
from diht.samples.intercept import SHORT, added

__all__ = ["curvatures", "is_compiled", "slopes", "sums"]

_LOGISTIC = 1  # as `Loss.kernel` has it


def is_compiled(loss: Loss, n_samples: int) -> bool:
    """Whether a loss has compiled sums and the samples are so many that these pay."""
    return n_samples > SHORT and loss.slope_kernel() is not None


def sums(
    loss: Loss, u: Vector, b: float, y: Vector, s: Vector, n_threads: int, valued: bool = True
) -> tuple[float, float, float, float]:
    """Return the weighted sums of l, unless it is not wanted, of l', |l'| and l'' at the margins u + b."""
    numbers, tau = _kernel(loss)

    def work(some: slice) -> tuple[float, float, float, float]:
        if numbers[0] == _LOGISTIC:
            from diht.samples.logistic_kernels import logistic_sums

            return logistic_sums(u[some], b, y[some], s[some])
        from diht.samples.central_slopes import central_sums

        return central_sums(u[some], b, y[some], s[some], numbers, tau, valued)

    value, slope, size, curvature = map(added, zip(*in_slices(work, len(u), n_threads), strict=True))
    return value, slope, size, curvature


def slopes(loss: Loss, u: Vector, y: Vector, n_threads: int) -> Vector:
    """Return l'(u, y)."""
    numbers, tau = _kernel(loss)
    if numbers[0] == _LOGISTIC:
        from diht.samples.logistic_kernels import logistic_slopes

        return _vector(logistic_slopes, u, y, n_threads)
    from diht.samples.central_slopes import central_slopes

    return _vector(lambda u, y, out: central_slopes(u, y, numbers, tau, out), u, y, n_threads)


def curvatures(loss: Loss, u: Vector, y: Vector, n_threads: int) -> Vector:
    """Return l''(u, y)."""
    numbers, tau = _kernel(loss)
    if numbers[0] == _LOGISTIC:
        from diht.samples.logistic_kernels import logistic_curvatures

        return _vector(logistic_curvatures, u, y, n_threads)
    from diht.samples.central_slopes import central_curvatures

    return _vector(lambda u, y, out: central_curvatures(u, y, numbers, tau, out), u, y, n_threads)


def _kernel(loss: Loss) -> tuple[tuple[int, float, float, float], float]:
    known = loss.slope_kernel()
    assert known is not None
    return known


def _vector(kernel: Callable[[Vector, Vector, Vector], None], u: Vector, y: Vector, n_threads: int) -> Vector:
    out = np.empty(len(u))
    in_slices(lambda some: kernel(u[some], y[some], out[some]), len(u), n_threads)
    return out

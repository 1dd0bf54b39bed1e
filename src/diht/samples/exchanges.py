"""A quadratic objective over supports: the best model is filled up and its features exchanged in compiled code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from diht.numerics.arrays import Indices, Mask, Matrix, Vector

__all__ = ["Exchanged", "Exchanges"]

_GAIN = 1e-6  # of the objective: what an exchange lowers it by at least
_MOST_KEPT = 20_000_000  # entries of the rows of H that are kept


class Exchanged(NamedTuple):
    """Where exchanges have led: the objective, the features in no order but for those that stay, and the numbers multiplied."""

    objective: float
    members: Indices
    effort: float


@dataclass(frozen=True, eq=False)
class Exchanges:
    """The quadratic ``value - r'w + w'Hw / 2``.

    Parameters
    ----------
    data : tuple of arrays
        What :mod:`diht.samples.exchange_kernels` knows of H.
    r : array of shape (d,)
    value : float
    """

    data: tuple[Matrix, Vector, Vector, Matrix, Indices]
    r: Vector
    value: float

    @classmethod
    def fitting(cls, XT: Matrix, weights: Vector, z: Vector, ridges: Vector) -> Exchanges:
        """Return the objective of least squares with weights: a row for each column, the target z, both centred where need be."""
        root, kept = np.sqrt(weights), min(len(XT), _MOST_KEPT // max(len(XT), 1))
        A, z = XT * root, root * z
        diagonal = np.einsum("ij,ij->i", A, A) + ridges
        data = A, diagonal, ridges, np.empty((kept, len(XT))), np.full(kept, -1)
        return cls(data, A @ z, 0.5 * float(z @ z))

    def search(
        self,
        start: Indices,
        n_fixed: int,
        size: int,
        masks: tuple[Mask, Mask],
        most: float = np.inf,
        n_exchanges: float = np.inf,
    ) -> Exchanged:
        """Fill a support up to a size without features that are closed, then exchange with all that are not barred, with limits.

        The first features of the start stay. Both masks are changed.
        """
        from diht.samples.exchange_kernels import exchange

        d, members = len(self.r), np.empty(size, dtype=np.int64)
        model = members, np.zeros(size), np.zeros((size, size)), np.zeros((d, size)), self.r.copy(), self.data[1].copy()
        room = np.empty(d), *(np.zeros(size) for _ in range(4))
        limits = _GAIN, float(most), float(n_exchanges)
        objective, effort = exchange(start, n_fixed, self.value, limits, masks, self.data, model, room)
        return Exchanged(objective, members, effort)

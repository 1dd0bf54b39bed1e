"""Local searches over supports in compiled code, for a small X in memory.

A search takes milliseconds where that of `diht.search.swap_optimality`, which proves what it finds, takes a tenth of a second.
Where the loss is a parabola, `diht.samples.exchanges` makes it. Under other losses the features that gain most by the quadratic
along each alone are looked at more closely, and a few of these are fitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from diht.design import DenseDesign, Design
from diht.numerics.arrays import Indices, Mask, Matrix, Vector
from diht.samples.exchanges import Exchanges
from diht.samples.least_squares import ridge

__all__ = ["Descents", "Optimum"]

_NEAR, _FITTED = 60, 3  # features that are looked at more closely, and the best of them, in two ways, to fit
_ACCURACY, _GAIN = 1e-8, 1e-6  # of the objective: accuracy of a fit, and what a swap lowers it by at least
_CONSTANT = 1e-12  # norm of a column, relative to the largest, up to which it is one of zeros
# Units of effort of a multiplication, of one in a ridge regression, and of the calls of a search by exchanges.
_MULTIPLIED, _REGRESSED, _CALLS = 0.005, 0.00125, 3e3


class Optimum(NamedTuple):
    """A model that no swap of those looked at improves.

    Attributes
    ----------
    objective : float
        To the accuracy of a search.
    support : array of int
        Ascending.
    effort : float
        What the search took, in the units of `diht.search.joining.Effort`.
    """

    objective: float
    support: Indices
    effort: float


@dataclass(frozen=True, eq=False)
class Descents:
    """The samples of a problem as compiled code has them, once they are asked for.

    Parameters
    ----------
    design : Design
    targets : array of shape (2, N)
        The rows y and s.
    loss : tuple
        Its numbers for compiled code.
    lam : float
    fit_intercept : bool
    """

    design: Design
    targets: Vector
    loss: tuple[int, float, float, float]
    lam: float
    fit_intercept: bool

    @cached_property
    def _columns(self) -> tuple[Matrix, Vector, Mask]:
        """A row for each column of X, centred where there is an intercept, of norm one unless constant; the norms; which vary."""
        s = self.targets[1]
        XT = np.array(self.design.toarray(copy=False).T, dtype=np.float64, order="C")
        if self.fit_intercept:
            XT -= (XT @ (s / s.sum()))[:, np.newaxis]
        norms = np.sqrt(np.einsum("ij,ij,j->i", XT, XT, s))
        usable = norms > _CONSTANT * norms.max(initial=0.0)
        XT /= np.where(usable, norms, 1.0)[:, np.newaxis]
        return XT, norms, usable

    @property
    def norms(self) -> Vector:
        """The norm of every column, centred."""
        return self._columns[1]

    @property
    def usable(self) -> Mask:
        """Which columns are not constant."""
        return self._columns[2]

    @cached_property
    def _target(self) -> Vector:
        """The targets, less their mean where there is an intercept."""
        y, s = self.targets
        return np.asarray(y - (s @ y) / s.sum() if self.fit_intercept else y)

    @cached_property
    def _data(self) -> tuple[Vector, ...]:
        XT, norms, usable = self._columns
        scalars = np.array([float(self.fit_intercept), _ACCURACY, _GAIN])
        ridges = self.lam / np.square(np.where(usable, norms, 1.0))
        return XT, self.targets, scalars, np.array(self.loss, dtype=np.float64), ridges

    @property
    def is_quadratic(self) -> bool:
        """Whether the loss is a parabola."""
        return bool(np.isinf(self.loss[2:]).all())

    @cached_property
    def _quadratic(self) -> Exchanges:
        """The objective, where the loss is a parabola."""
        return Exchanges.fitting(self._data[0], self.targets[1] / self.loss[1], self._target, self._data[4])

    def ridge_effort(self, n_features: int) -> float:
        """Return the effort of a ridge regression on so many features."""
        n = len(self.targets[0])
        return _REGRESSED * n * n_features * min(n, n_features)

    def ridge(self, features: Indices, lam: float) -> Vector:
        """Return how much each of some features contributes to the ridge regression of the targets on them."""
        columns = self._data[0][features] * self.norms[features, np.newaxis]
        w = ridge(DenseDesign(columns.T), self._target, self.targets[1], 0.5 * lam)
        return np.zeros(len(features)) if w is None else np.abs(w) * self.norms[features]

    def descend(self, start: Indices, n_fixed: int, size: int, masks: tuple[Mask, Mask], most: float) -> Optimum:
        """Grow a model up to a size without features that are closed, then swap with all that are not barred, with limited effort.

        It begins with some features, the first of which stay. Both masks are changed.
        """
        if self.is_quadratic:
            objective, members, effort = self._quadratic.search(start, n_fixed, size, masks, most / _MULTIPLIED)
            return Optimum(objective, np.sort(members), _CALLS + _MULTIPLIED * effort)
        from diht.samples.descent_kernels import descend

        XT, ridges, m = self._data[0], self._data[4], len(start)
        d, n = XT.shape
        members, Z, own = np.empty(size, dtype=np.int64), np.empty((size, n)), np.empty(size)
        members[:m], Z[:m], own[:m] = start, XT[start], ridges[start]
        near, features = np.empty(min(_NEAR, d), dtype=np.int64), np.empty((2, _FITTED), dtype=np.int64)
        found = near, np.empty(len(near)), features, np.empty((2, _FITTED)), np.empty(d)
        vectors = (np.empty(size + 1) for _ in range(3))
        room = np.empty((size + 1, size + 1)), *vectors, *(np.empty(n) for _ in range(4))
        model = members, Z, own, np.zeros(size + 1), np.empty(n)
        objective, effort = descend(m, n_fixed, most / _MULTIPLIED, masks, self._data, model, found, room)
        return Optimum(objective, np.sort(members), _MULTIPLIED * effort)

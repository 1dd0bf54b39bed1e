"""The models that came closest to the best one, each on a support of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from numpy.typing import NDArray

from diht.problem import Problem
from diht.result import Model

__all__ = ["ROUNDING", "Pool", "Pooled"]

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

ROUNDING = 1e-14  # relative difference of two objectives that says nothing


@dataclass(frozen=True, eq=False)
class Pooled:
    """A model by its nonzero coefficients; `b` belongs to the problem's (centred) design."""

    support: Indices
    values: Vector
    b: float
    objective: float

    def coefficients(self, n_features: int) -> Vector:
        """Return w with its zeros."""
        w = np.zeros(n_features)
        w[self.support] = self.values
        return w

    @property
    def order(self) -> tuple[float, list[int]]:
        """What the pool is sorted by: the objective, then the support."""
        return self.objective, self.support.tolist()


class Pool:
    """At most `capacity` models with distinct supports, those with the smallest objectives, in ascending order.

    The support of a model is where its coefficients are not zero. Of two models on one support the better stays, and of two that
    only rounding tells apart the later one: it comes from a finer fit.

    Parameters
    ----------
    capacity : int
    """

    def __init__(self, capacity: int = 20) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self._models: list[Pooled] = []

    def add(self, w: Vector, b: float, objective: float, support: Indices | None = None) -> bool:
        """Take a model if it is good enough; tell whether it is the new best.

        `support`, where it is known, holds all that is nonzero in w. A model whose objective is not finite is refused.
        """
        support = np.flatnonzero(w) if support is None else np.sort(support)
        return self.insert(support, w[support], b, objective)

    def insert(self, support: Indices, values: Vector, b: float, objective: float) -> bool:
        """Do as :meth:`add` for a model given by its coefficients on an ascending support."""
        if not isfinite(objective) or (len(self) == self.capacity and objective > self._models[-1].objective):
            return False
        used = values != 0.0
        new = Pooled(np.array(support[used], dtype=np.int64), np.array(values[used]), float(b), float(objective))
        best = self._models[0].objective if self._models else inf
        twin = next((old for old in self._models if np.array_equal(old.support, new.support)), None)
        if twin is not None:
            if objective > twin.objective + ROUNDING * abs(twin.objective):
                return False
            self._models.remove(twin)
        self._models = sorted([*self._models, new], key=lambda model: model.order)[: self.capacity]
        return objective < best

    @property
    def best(self) -> Pooled | None:
        """The best model so far, if there is any."""
        return self._models[0] if self._models else None

    def models(self, problem: Problem) -> tuple[Model, ...]:
        """Return the models as a result shows them: all coefficients, the intercept in the user's coordinates, in float64."""

        def shown(pooled: Pooled) -> Model:
            intercept = problem.intercept_of(pooled.values, pooled.b, pooled.support)
            w = pooled.coefficients(problem.shape[1])
            return Model(w, problem.coefficients_of(w), intercept, pooled.objective)

        return tuple(shown(pooled) for pooled in self)

    def __len__(self) -> int:
        return len(self._models)

    def __iter__(self) -> Iterator[Pooled]:
        return iter(self._models)

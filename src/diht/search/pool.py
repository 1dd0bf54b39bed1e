"""The models that came closest to the best one, each on a support of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf, isfinite

import numpy as np

from diht.fit import Fit
from diht.problem import Problem
from diht.result import Model

__all__ = ["ROUNDING", "Pool"]

ROUNDING = 1e-14  # relative difference of two objectives that rounding explains


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
        self._models: list[Fit] = []

    def add(self, fit: Fit) -> bool:
        """Take a model if it is good enough; tell whether it is the new best. One whose objective is not finite is refused.

        Of the margins those of the best model are kept.
        """
        objective = fit.objective
        if not isfinite(objective) or objective > self.worst:
            return False
        used = fit.values != 0.0
        new = replace(fit, support=fit.support[used], values=fit.values[used])
        best = self._models[0].objective if self._models else inf
        twin = next((old for old in self._models if np.array_equal(old.support, new.support)), None)
        if twin is not None:
            if objective > twin.objective + ROUNDING * abs(twin.objective):
                return False
            self._models.remove(twin)
        place = sum(_precedes(old, new) for old in self._models)
        ranked = [*self._models[:place], new, *self._models[place:]][: self.capacity]
        self._models = [ranked[0], *(fit if fit.u is None else replace(fit, u=None) for fit in ranked[1:])]
        return objective < best

    @property
    def worst(self) -> float:
        """The objective that a further model must not exceed: that of the last one, if there is no room for more."""
        return self._models[-1].objective if len(self) == self.capacity else inf

    @property
    def best(self) -> Fit | None:
        """The best model so far, if there is any."""
        return self._models[0] if self._models else None

    def models(self, problem: Problem) -> tuple[Model, ...]:
        """Return the models as a result shows them."""
        return tuple(fit.model(problem) for fit in self)

    def __len__(self) -> int:
        return len(self._models)

    def __iter__(self) -> Iterator[Fit]:
        return iter(self._models)


def _precedes(one: Fit, other: Fit) -> bool:
    """Whether a model comes before another: by its objective, then by its support."""
    if one.objective != other.objective:
        return one.objective < other.objective
    return bool(one.support.tolist() <= other.support.tolist())

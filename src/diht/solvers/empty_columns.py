r"""Columns of zeros leave a problem before it is solved.

Of text and of hashed features most columns of a sample may hold nothing. Such a column changes no prediction, so that a coefficient
there only adds to the ridge: to every model belongs one without these coefficients whose objective is no larger. The problem
without the columns therefore has the same optimum, and every lower bound on one is a lower bound on the other.

One of them stays and stands for all. They are alike: what is proved of models with, or without, a place for that one is proved of
models with, or without, a place for any other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diht.bounds.duality import Bound, Screening
from diht.constraints.base import Cardinality
from diht.numerics.arrays import Indices
from diht.problem import Problem
from diht.result import Iterate, Model, Result
from diht.solvers.base import Start

__all__ = ["Compact", "PaddedBound", "compact"]

Callback = Callable[[Iterate], Any]

_MANY = 100_000  # empty columns, at least, and half of all: fewer cost less than a copy of X without them


@dataclass(frozen=True, eq=False)
class PaddedBound(Bound):
    """A bound on a problem without its empty columns but one, which is a bound on the problem itself.

    Attributes
    ----------
    value, alpha, rounding
        As in `Bound`.
    origin : Bound
        The bound on the problem of `features` alone.
    features : array of int
        The columns that hold something, and the one that does not, ascending.
    empty : int
        That one.
    """

    origin: Bound
    features: Indices
    empty: int

    @classmethod
    def of(cls, origin: Bound, features: Indices, empty: int) -> PaddedBound:
        """Take a bound on the problem of some features."""
        return cls(origin.value, origin.alpha, origin.rounding, origin, features, empty)

    @property
    def screened_rounding(self) -> float:
        """That of the other problem."""
        return self.origin.screened_rounding

    def renewed(self, problem: Problem) -> Bound:
        """Compute the bound on the smaller problem again, if all columns outside of it are empty here."""
        if not _holds_all(problem, self.features, self.empty):
            return super().renewed(problem)
        return PaddedBound.of(self.origin.renewed(problem.restricted(self.features)), self.features, self.empty)

    def screening(self, problem: Problem) -> Screening:
        """Bound the models without, and with, each feature: for all empty columns what is proved of the one."""
        if not _holds_all(problem, self.features, self.empty):
            return super().screening(problem)
        part = self.origin.screening(problem.restricted(self.features))
        return _padded(part, self.features, self.empty, problem.shape[1])


def _holds_all(problem: Problem, features: Indices, empty: int) -> bool:
    """Whether some features are all that hold anything in a problem that counts single features, but for the empty one."""
    held = np.zeros(problem.shape[1], dtype=bool)
    if not isinstance(problem.constraint, Cardinality) or features[-1] >= len(held):
        return False
    held[features] = True
    held[empty] = False
    return bool(np.all(held[problem.design.occupied()]))


def _padded(part: Screening, features: Indices, empty: int, d: int) -> Screening:
    at = int(np.searchsorted(features, empty))
    without, within = np.full(d, part.without[at]), np.full(d, part.within[at])
    without[features], within[features] = part.without, part.within
    return Screening(without, within)


@dataclass(frozen=True, eq=False)
class Compact:
    """A problem without its empty columns but one, and how answers to it become answers to the whole one.

    Attributes
    ----------
    problem : Problem
        Of `features` alone.
    features, empty
        As in `PaddedBound`.
    d : int
        The number of columns of the whole problem.
    """

    problem: Problem
    features: Indices
    empty: int
    d: int

    def start(self, start: Start) -> Start:
        """Leave the coefficients of empty columns out of a starting point."""
        bound = start.bound
        if isinstance(bound, PaddedBound) and np.array_equal(bound.features, self.features):
            bound = bound.origin
        return replace(start, w=None if start.w is None else start.w[self.features], bound=bound)

    def model(self, model: Model) -> Model:
        """Give a model all its coefficients."""
        return replace(model, w=self.padded(model.w))

    def padded(self, w: NDArray[Any]) -> NDArray[Any]:
        """Return all coefficients; only the few that are not zero are written."""
        used = np.flatnonzero(w)
        full = np.zeros(self.d, dtype=w.dtype)
        full[self.features[used]] = w[used]
        return full

    def callback(self, callback: Callback | None) -> Callback | None:
        """Show a callback the models of the whole problem."""
        if callback is None:
            return None

        def tell(iterate: Iterate) -> Any:
            return callback(replace(iterate, model=None if iterate.model is None else self.model(iterate.model)))

        return tell

    def result(self, result: Result) -> Result:
        """Turn the answer into one to the whole problem."""
        found = result.certificate
        certificate = replace(
            found,
            bound=PaddedBound.of(found.bound, self.features, self.empty),
            support=self.features[found.support],
            screening=_padded(found.screening, self.features, self.empty, self.d),
        )
        return replace(
            result,
            w=self.padded(result.w),
            coef=self.padded(result.coef),
            certificate=certificate,
            pool=tuple(map(self.model, result.pool)),
            last=self.model(result.last),
        )


def compact(problem: Problem) -> Compact | None:
    """Return the problem without its empty columns but one, where they are many and k counts single features."""
    d = problem.shape[1]
    if d < _MANY or not isinstance(problem.constraint, Cardinality) or problem.design.is_far:
        return None
    features = problem.design.occupied()
    if d - len(features) < max(_MANY, d // 2):
        return None
    empty = int(np.argmax(np.append(features, -1) != np.arange(len(features) + 1)))  # the first number that is missing
    features = np.insert(features, empty, empty)
    return Compact(problem.restricted(features), features, empty, d)

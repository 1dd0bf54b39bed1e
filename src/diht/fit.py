"""The one record of a fitted model, which refits return, searches exchange, pools keep and the loop evaluates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from diht.bounds.duality import primal
from diht.numerics.arrays import Indices, Vector
from diht.result import Model
from diht.samples import Intercept, Rows

if TYPE_CHECKING:
    from diht.problem import Problem

__all__ = ["Fit"]


@dataclass(frozen=True, eq=False)
class Fit:
    """A model in the problem's (centred and scaled) coordinates, by its coefficients on a support, with its objective.

    Attributes
    ----------
    n_features : int
        Of the problem.
    support : array of int
        Ascending; holds every feature whose coefficient is not zero.
    values : array
        The coefficients of the support, some of which may be zero.
    b : float or array
        The intercept, or those of several targets.
    objective : float
        P(w, b).
    u : Rows or None
        The margins Xw + b, where they are known; not those that `duality.upper_bound` asks for, as the product may have been
        updated.
    """

    n_features: int
    support: Indices
    values: Vector
    b: Intercept
    objective: float
    u: Rows | None = None

    @classmethod
    def of(
        cls, problem: Problem, w: Vector, b: Intercept, u: Rows | None = None, support: Indices | None = None
    ) -> Fit:
        """Evaluate a model; `u` is Xw + b and `support` holds all that is nonzero in w, ascending, where they are known."""
        support = np.flatnonzero(w) if support is None else support
        if u is None:
            samples = problem.samples
            u = samples.margins(w, b, support) if len(support) else samples.shifted(samples.full(0.0), b)
        values = w[support]
        return cls(len(w), support, values, b, primal(problem, values, b, u), u)

    @property
    def w(self) -> Vector:
        """All coefficients, in a new array."""
        w = np.zeros(self.n_features)
        w[self.support] = self.values
        return w

    def added_to(self, v: Vector, factor: float = 1.0) -> Vector:
        """Add a multiple of w to a vector, in place."""
        v[self.support] += factor * self.values
        return v

    def margins(self, problem: Problem) -> Rows:
        """Return Xw + b, computed where it is not known."""
        return problem.samples.margins(self.w, self.b, self.support) if self.u is None else self.u

    def model(self, problem: Problem) -> Model:
        """Return the model as a result shows it: all coefficients, and those of the columns of X with their intercept."""
        w, intercept = self.w, problem.intercept_of(self.values, self.b, self.support)
        return Model(problem.shaped(w), problem.shaped(problem.coefficients_of(w)), intercept, self.objective)

"""Rules of dual points: the few numbers of a model from which one read of X makes the point again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from diht.bounds.duality import dual_from_primal, feasible
from diht.losses import Loss
from diht.numerics.arrays import Indices, Vector
from diht.samples import Intercept, Rows, Samples

if TYPE_CHECKING:
    from diht.problem import Problem

__all__ = ["Rule", "SparseVector"]


@dataclass(frozen=True, eq=False)
class SparseVector:
    """A vector by the entries that are not zero.

    Attributes
    ----------
    size : int
        How many entries it has in all.
    support : array of int
        Those that are not zero, ascending.
    values : array
        Their values.
    """

    size: int
    support: Indices
    values: Vector

    @classmethod
    def of(cls, v: Vector) -> SparseVector:
        """Take a vector."""
        support = np.flatnonzero(v)
        return cls(len(v), support, v[support])

    @property
    def dense(self) -> Vector:
        """All entries, in a new array."""
        v = np.zeros(self.size)
        v[self.support] = self.values
        return v

    def among(self, features: Indices, size: int) -> SparseVector:
        """Return it as a vector of more features, of which these, ascending, are its own."""
        return SparseVector(size, features[self.support], self.values)

    def within(self, features: Indices) -> SparseVector:
        """Return the entries of some features, ascending, which hold its support."""
        return SparseVector(len(features), np.searchsorted(features, self.support), self.values)

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return self.support.nbytes + self.values.nbytes


@dataclass(frozen=True, eq=False)
class Rule:
    r"""A dual point as a function of a model: nothing in it is as long as the samples.

    .. math:: \alpha_i = \ell'(u_i) + \ell''(u_i) (x_i^\top \delta + c) , \qquad u_i = x_i^\top w + b ,

    projected on the feasible points, with :math:`\ell` the loss or one that stands in for it (`diht.relaxation.smoothing`). The
    second term is there after a Newton step :math:`(\delta, c)`, of which alpha is the dual point of the quadratic model.

    Attributes
    ----------
    w : SparseVector
    b : float, or array with one for each of several targets
    loss : Loss or None
        The loss whose derivatives are taken; None for `duality.dual_from_primal`, which takes those of the problem's own loss, and
        subgradients at its kinks.
    step : SparseVector or None
    drift : float or array
        c, the change of the intercept.
    """

    w: SparseVector
    b: Intercept
    loss: Loss | None = None
    step: SparseVector | None = None
    drift: Intercept = 0.0

    def dual(self, problem: Problem) -> Rows:
        """Return the dual point, with as many products with X as the rule has vectors."""
        with np.errstate(over="ignore", invalid="ignore"):
            u = problem.samples.margins(self.w.dense, self.b, self.w.support)
            if self.loss is None:
                return dual_from_primal(problem, self.w.dense, self.b, u)
            return feasible(problem, self._slopes(problem.samples, self.loss, u))

    def _slopes(self, samples: Samples, loss: Loss, u: Rows) -> Rows:
        slopes = samples.slopes(loss, u)
        if self.step is None:
            return slopes
        change = samples.margins(self.step.dense, support=self.step.support)
        bent = samples.bent(samples.curvatures(loss, u), change, self.drift)
        return samples.map(lambda y, s, a, c: a + c, slopes, bent)

    def among(self, features: Indices, size: int) -> Rule:
        """Return it as a rule of more features, of which these, ascending, are its own."""
        return replace(
            self, w=self.w.among(features, size), step=None if self.step is None else self.step.among(features, size)
        )

    def within(self, features: Indices) -> Rule:
        """Return the rule for a problem of some features, ascending, which hold its support."""
        return replace(self, w=self.w.within(features), step=None if self.step is None else self.step.within(features))

    @property
    def vectors(self) -> tuple[SparseVector, ...]:
        """All that is not a number."""
        return (self.w,) if self.step is None else (self.w, self.step)

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return sum(vector.nbytes for vector in self.vectors)

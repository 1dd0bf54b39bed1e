r"""Sufficient statistics of the squared loss: a tall table is replaced by one of about as many rows as it has columns.

With z the columns and the targets, centred where there is an intercept, the objective of w is :math:`x^\top K x + \frac\lambda2
\|w\|^2` at :math:`x = (w, -1)`, K the Gram matrix of z. Any R with :math:`R^\top R = K` is a table with the same objectives. What a
solver finds for it is a model of the whole table; what it proves is proved but for the errors of K and of R: with
:math:`T = \sum_j |x_j| \, \mathrm{size}_j` (see `diht.design.gram`)

.. math:: |x^\top (K - R^\top R) x| \le \varepsilon T^2 .

A model whose objective is below U has :math:`\|w\|^2 \le 2 U / \lambda`, so that with :math:`\nu` the constraint's norm of the
sizes of the columns :math:`T \le \mathrm{size}_y + \nu \sqrt{2 U / \lambda}`; every other one costs U at least. So a bound B of
the small table makes :math:`\min(U, B - \varepsilon T^2)` one of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from diht.bounds.certificate import handed_out
from diht.bounds.duality import Bound, Screening
from diht.design.base import gamma
from diht.design.gram import Gram
from diht.losses import Squared
from diht.numerics.arrays import Vector
from diht.numerics.definite import Definite
from diht.problem import Problem
from diht.result import Iterate, Model, Result, Trace
from diht.samples import Rows
from diht.solvers.base import Start

__all__ = ["Condensed", "CondensedBound", "condensed"]

Callback = Callable[[Iterate], Any]

_TALL = 4  # rows for each column, at least
_LEAST_ENTRIES = 2e5  # of X: smaller ones are read in no time
_MOST_FEATURES = 2000  # whose Gram matrix is formed
_MOST_BESIDE_READS = 300  # the same where reads of X are so fast that factorising a table takes longer
_NEGLIGIBLE, _OF_TOLERANCE = 1e-6, 0.1  # share of the objective, and of `tol`, that the errors may take from a bound


@dataclass(frozen=True, eq=False)
class _Table:
    """The Gram matrix of a problem's data as a table of few rows."""

    rows: Vector  # R, with the targets last
    size: Vector
    error: float  # epsilon
    level: float  # mean of the targets, where they are centred

    @classmethod
    def of(cls, gram: Gram, level: float) -> _Table:
        """Take a root by the eigenvalues of the matrix scaled to a unit diagonal, and measure how far it is off."""
        size, n = gram.size, len(gram.size)
        values, vectors = np.linalg.eigh(gram.matrix / size[:, None] / size)
        rows = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T * size
        off = np.abs(rows.T @ rows - gram.matrix) / size[:, None] / size
        norms = np.linalg.norm(rows / size, axis=0)
        rounding = 2.0 * float(gamma(n + 8)) * (float(norms.max()) ** 2 + 1.0)
        return cls(rows, size, (gram.error + float(off.max()) + rounding) * (1.0 + 1e-6), level)

    def lost(self, problem: Problem, ceiling: float) -> float:
        """What the errors can do to the objective of a model that costs less than a ceiling."""
        columns = self.size[:-1]
        largest = float(columns.max())
        norm = largest * np.sqrt(problem.constraint.unlimited.value(columns / largest))
        reach = float(self.size[-1]) + norm * np.sqrt(2.0 * ceiling / problem.lam)
        return self.error * float(reach) ** 2 * (1.0 + 1e-6)

    def problem(self, whole: Problem) -> Problem:
        """The problem of the small table; rows of zeros make their number a power of 4, so that weights and roots are exact."""
        n = len(self.rows)
        m = 4 ** int(np.ceil(np.log2(n) / 2.0))
        table = np.zeros((m, n))
        table[:n] = np.sqrt(m) * self.rows
        return Problem(table[:, :-1], table[:, -1], Squared(), whole.constraint, whole.lam)

    def dual_point(self, whole: Problem, alpha: Vector) -> Rows:
        """The dual point of the whole table with the same sums: a combination of its columns and targets."""
        n = len(self.rows)
        z = np.linalg.lstsq(self.rows, alpha[:n] / np.sqrt(len(alpha)), rcond=None)[0]
        u, own, level = whole.samples.margins(z[:-1]), float(z[-1]), self.level
        return whole.samples.map(lambda y, s, u: u + own * (y - level), u)


def _table(problem: Problem) -> _Table:
    """The table of a problem's data, made once."""
    if "table" not in problem._memo:
        samples, d = problem.samples, problem.shape[1]
        level = float(samples.mean(samples.y)) if problem.fit_intercept else 0.0
        problem._memo["table"] = _Table.of(samples.gram(np.arange(d), problem.fit_intercept), level)
    found: _Table = problem._memo["table"]
    return found


@dataclass(frozen=True, eq=False)
class CondensedBound(Bound):
    r"""The bound :math:`\min(U, B - \varepsilon T^2)`.

    Attributes
    ----------
    value, alpha, rounding
        As in `Bound`.
    origin : Bound
        B, of the small table.
    ceiling : float
        U.
    """

    origin: Bound
    ceiling: float

    @classmethod
    def of(cls, problem: Problem, origin: Bound, ceiling: float, alpha: Rows | None = None) -> CondensedBound:
        """Take a bound of the small table."""
        table = _table(problem)
        lost = table.lost(problem, ceiling)
        if alpha is None:
            alpha = table.dual_point(problem, np.asarray(origin.alpha))
        return cls(min(ceiling, origin.value - lost), alpha, origin.rounding + lost, origin, ceiling)

    def renewed(self, problem: Problem) -> Bound:
        """Make the table again, and compute the bound on it."""
        if not _is_condensable(problem):
            return super().renewed(problem)
        return CondensedBound.of(
            problem, self.origin.renewed(_table(problem).problem(problem)), self.ceiling, self.alpha
        )

    def screening(self, problem: Problem) -> Screening:
        """Bound the models without, and with, each feature."""
        table = _table(problem)
        found, lost = self.origin.screening(table.problem(problem)), table.lost(problem, self.ceiling)
        return Screening(*(np.minimum(bounds - lost, self.ceiling) for bounds in (found.without, found.within)))


@dataclass(frozen=True, eq=False)
class Condensed:
    """A problem on a small table, and how answers to it become answers to the whole one.

    Attributes
    ----------
    problem : Problem
        Of the small table.
    whole : Problem
    begun, reads, made
        When the table was begun, the reads of X up to then, and the seconds that it took.
    """

    problem: Problem
    whole: Problem
    begun: float
    reads: float
    made: float

    def at(self, whole: Problem) -> Condensed:
        """The same table with another constraint or ridge."""
        return replace(self, problem=self.problem.replaced(constraint=whole.constraint, lam=whole.lam), whole=whole)

    def start(self, start: Start) -> Start:
        """Take the model of a start, and the proof of an earlier answer."""
        bound = start.bound.origin if isinstance(start.bound, CondensedBound) else None
        return Start(start.w, 0.0, bound=bound)

    @property
    def b(self) -> float:
        """The intercept of every model, in the coordinates of the centred columns."""
        return _table(self.whole).level if self.whole.fit_intercept else 0.0

    def model(self, model: Model) -> Model:
        """Return a model in the user's coordinates."""
        whole, w = self.whole, model.w
        return replace(model, coef=whole.coefficients_of(w), intercept=whole.intercept_of(w, self.b))

    def iterate(self, iterate: Iterate) -> Iterate:
        """Return an evaluation whose bounds are those of the whole table."""
        lost = 3.0 * _table(self.whole).lost(self.whole, _ceiling(self.whole, iterate.best_objective))
        return replace(
            iterate,
            seconds=iterate.seconds + self.made,
            lower_bound=iterate.lower_bound - lost,
            best_bound=iterate.best_bound - lost,
            model=None if iterate.model is None else self.model(iterate.model),
        )

    def callback(self, callback: Callback | None) -> Callback | None:
        """Show a callback the models of the whole table."""
        return None if callback is None else lambda iterate: callback(self.iterate(iterate))

    def _whole(self, value: float, e: float, ceiling: float) -> float:
        """A bound of the small table with a ridge larger by e as one of the whole table."""
        larger = self.whole.replaced(lam=self.whole.lam + e)
        return min(ceiling, value - _table(self.whole).lost(larger, ceiling))

    def result(self, result: Result, tol: float) -> Result:
        """Turn the answer into one to the whole table, whose objective is computed from all its rows."""
        whole = self.whole
        ceiling = _ceiling(whole, result.objective)
        bound = CondensedBound.of(whole, result.certificate.bound, ceiling)
        model = handed_out(whole, result.w, self.b, bound, tol).beside(
            tuple((e, self._whole(B, e, ceiling)) for e, B in result.certificate.larger_ridges)
        )
        return model.result(
            Result,
            result.status,
            tol,
            pool=tuple(map(self.model, result.pool)),
            last=self.model(result.last),
            last_alpha=None,
            n_iter=result.n_iter,
            n_passes=whole.design.passes - self.reads,
            seconds=perf_counter() - self.begun,
            trace=Trace(list(map(self.iterate, result.trace))),
            solver=result.solver,
            swap_optimal=result.swap_optimal,
        )


def _ceiling(problem: Problem, objective: float) -> float:
    """U: the objective of no features, or twice that of a model."""
    rows = _table(problem).rows
    return (1.0 + 1e-6) * max(float(rows[:, -1] @ rows[:, -1]), 2.0 * objective)


def _is_condensable(problem: Problem) -> bool:
    """Whether a problem has the squared loss, one target, and far more rows than columns."""
    n, d = problem.shape
    most = _MOST_BESIDE_READS if problem.design.is_fast else _MOST_FEATURES
    tall = n >= _TALL * (d + 1) and float(n) * d >= _LEAST_ENTRIES and d <= most
    return problem.loss.is_squared_error and problem.n_targets == 1 and problem.tail is None and tall


def condensed(problem: Problem, tol: float) -> Condensed | None:
    """Return the problem on a small table, where it has one and rounding takes no more from its bounds than a share of `tol`."""
    begun, reads = perf_counter(), problem.design.passes
    if not _is_condensable(problem):
        return None
    table = _table(problem)
    G, h = table.rows[:, :-1], table.rows[:, -1]
    gram = G.T @ G
    gram[np.diag_indices(len(gram))] += 0.5 * problem.lam
    least = float(h @ h) - float((G.T @ h) @ Definite(gram).solve(G.T @ h))  # the objective with all features
    if not table.lost(problem, _ceiling(problem, 0.0)) <= min(_NEGLIGIBLE, _OF_TOLERANCE * tol) * least:
        return None
    small = table.problem(problem)
    return Condensed(small, problem, begun, reads, perf_counter() - begun)

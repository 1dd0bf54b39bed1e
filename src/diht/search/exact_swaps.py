r"""All swaps of a model at once, where the objective is quadratic.

`diht.search.exchange` has a formula for what a swap of i for j gains, and k rows of X'CX hold all that it needs. Rounding changes
the gain :math:`a_{ij} - c_i` by a small share of both terms: that of the curvature left of j once the support explains it,
:math:`h_{ij}`, is :math:`u H_{jj} / h_{ij}`, that of what leaving i out costs :math:`u H_{ii} M_{ii}`. Swaps that gain nothing by
more than that are ruled out.
"""

from __future__ import annotations

import numpy as np

from diht.fit import Fit
from diht.numerics.arrays import Indices
from diht.problem import Problem
from diht.search.exchange import Hessian, Quadratic

__all__ = ["ExactSwaps"]


_MOST_PAIRS = 2e7  # entries of the matrix of gains
_MOST_ENTRIES = 1e7  # of X, up to which a dense copy gives the rows of H in one product
_ROUNDING = 1e-13  # u, with what sums of many terms add to it
_UNRELIABLE = 0.1  # share of a gain's terms from which on rounding leaves nothing of it


class ExactSwaps:
    """What swaps gain under a plain constraint with a quadratic loss; rows of H are kept from one model to the next.

    Parameters
    ----------
    problem : Problem
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        d = problem.shape[1]
        _, inside, outside = problem.constraint.free(d)
        self._stays, self._barred = np.isin(np.arange(d), inside), np.isin(np.arange(d), outside)
        samples = problem.samples
        if max(problem.shape[0], problem.constraint.size) * float(d) <= _MOST_ENTRIES:
            curvature = samples.full(1.0 / problem.loss.mu)
            self._hessian = Hessian.weighted(samples.formed(), np.arange(d), curvature, problem)
        else:
            scale = samples.total(np.ones_like) / problem.loss.mu
            diagonal = samples.spread(problem.fit_intercept) * scale + problem.lam
            self._hessian = Hessian(None, np.arange(d), problem.lam, diagonal)

    @staticmethod
    def apply(problem: Problem) -> bool:
        """Whether the formula holds and its matrix is not too large."""
        plain = problem.loss.is_quadratic and problem.constraint.is_plain and problem.n_targets == 1
        return plain and float(problem.constraint.size) * problem.shape[1] <= _MOST_PAIRS

    def promising(self, fit: Fit, least: float) -> list[tuple[int, int]] | None:
        """Return the swaps that may gain more than `least`, the best first; None where rounding hides too much."""
        quadratic = self._around(fit)
        if not len(quadratic.support):
            return []
        M, h, diagonal = quadratic.M.diagonal(), np.maximum(quadratic.h, self.problem.lam), self._hessian.diagonal
        share = _ROUNDING * diagonal[quadratic.support] * M
        if not np.all(share < _UNRELIABLE):
            return None
        costs = 0.5 * np.square(quadratic.w) / M
        gains = quadratic.gains()
        curvature = h + np.square(quadratic.B) / M[:, None]
        unsure = share[:, None] + _ROUNDING * diagonal / curvature
        gains += unsure * (gains + 2.0 * costs[:, None])
        gains[quadratic.stays[quadratic.support]] = -np.inf
        gains[:, quadratic.taken] = -np.inf
        rows, columns = np.nonzero(gains > least)
        order = np.argsort(-gains[rows, columns], kind="stable")
        return list(zip(quadratic.support[rows[order]].tolist(), columns[order].tolist(), strict=True))

    def _around(self, fit: Fit) -> Quadratic:
        """Return the quadratic around a model."""
        problem, samples = self.problem, self.problem.samples
        if self._hessian.root is None:
            self._learn(np.array([j for j in fit.support.tolist() if j not in self._hessian.known], dtype=np.int64))
        r = -samples.pull(samples.slopes(problem.loss, fit.margins(problem)))
        taken = self._barred.copy()
        taken[fit.support] = True
        none = np.empty(0, dtype=np.int64)
        w = fit.w[fit.support]
        return Quadratic.around(fit.support, none, w, fit.objective, r, self._hessian, taken, self._stays)

    def count(self) -> None:
        """Count what has been read of a dense copy of X."""
        self._hessian.count(self.problem.design)

    def _learn(self, features: Indices) -> None:
        """Compute rows of H, with a read of X for each."""
        problem, samples, hessian = self.problem, self.problem.samples, self._hessian
        part = samples.columns(features)
        for place, j in enumerate(features.tolist()):
            unit = np.zeros(len(features))
            unit[place] = 1.0
            column = part.margins(unit)
            if problem.fit_intercept:
                column = samples.shifted(column, -samples.mean(column))
            hessian.known[j] = samples.pull(column) / problem.loss.mu
            hessian.known[j][j] = hessian.diagonal[j]
        problem.design.count_reads_of(part.design)

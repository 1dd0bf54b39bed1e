"""Models made of those for another k or lam: refitted, with fewer features, with more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from diht.constraints.base import Constraint
from diht.fit import Fit
from diht.numerics.arrays import Indices, Vector
from diht.numerics.definite import Definite
from diht.problem import Problem
from diht.refit import refit
from diht.samples import Intercept, Samples

__all__ = ["BETTER", "grown", "refitted", "shrunk"]


BETTER = 1e-9  # relative fall of the objective that is worth another look
_MOST_DIRECT = 1e9  # operations of a Hessian up to which the cheapest feature is found by it


def refitted(problem: Problem, fit: Fit, support: Indices | None = None) -> Fit:
    """The best model on a support, that of a given model by default."""
    if support is None:
        inside = problem.constraint.free(fit.n_features)[1]
        support = problem.constraint.closure(np.union1d(fit.support, inside))
    return refit(problem, support, fit.w, fit.b, rtol=BETTER)


def shrunk(problem: Problem, fit: Fit, known: Fit | None = None) -> Fit:
    """Leave out the features (or groups) that cost least, each alone, until the constraint is met, and fit again.

    Where that leads to the support of a `known` model, this is returned as it is.
    """
    constraint, support, x = problem.constraint.unlimited, fit.support, fit.values
    if constraint.allows(fit.w):
        return refitted(problem, fit)
    part, roots = problem.samples.columns(support), np.zeros(fit.n_features)
    if problem.samples.size * float(len(support)) ** 2 > _MOST_DIRECT:
        roots[support] = x * part.design.column_norms()
        return refitted(problem, fit, constraint.select(roots))
    # By the quadratic around the model, with M the inverse Hessian, leaving G out costs w_G' M_GG^-1 w_G / 2 and moves the others.
    M = Definite(_hessian(problem, part, x, fit.b)).inverse()
    problem.design.count_reads_of(part.design)
    roots[support] = _roots_of_costs(constraint, support, x, M)
    chosen = constraint.select(roots)
    if known is not None and np.array_equal(chosen, known.support):
        return known
    kept = np.isin(support, chosen)
    moved = x[kept] - M[np.ix_(kept, ~kept)] @ Definite(M[np.ix_(~kept, ~kept)]).solve(x[~kept])
    return refitted(problem, replace(fit, support=support[kept], values=moved), chosen)


def _roots_of_costs(constraint: Constraint, support: Indices, x: Vector, M: Vector) -> Vector:
    """A vector whose squared norm over each feature, or group, is w_G' M_GG^-1 w_G."""
    if constraint.unit_size == 1:
        return np.asarray(x / np.sqrt(np.diag(M)))
    roots, left = np.empty_like(x), np.arange(len(support))
    while len(left):
        together = np.isin(support[left], constraint.closure(support[left[:1]]))
        G, left = left[together], left[~together]
        roots[G] = np.sqrt(max(float(x[G] @ Definite(M[np.ix_(G, G)]).solve(x[G])), 0.0) / len(G))
    return roots


def _hessian(problem: Problem, part: Samples, x: Vector, b: Intercept) -> Vector:
    """Curvature of the objective around a model, in the coefficients of its features; the intercept is eliminated."""
    H = part.hessian(part.curvatures(problem.loss, part.margins(x, b)), problem.fit_intercept)
    H[np.diag_indices(len(H))] += problem.lam
    return np.asarray(H)


def grown(problem: Problem, fit: Fit) -> Fit:
    """Add the features (or groups) that promise most, each alone, until the constraint is full, and fit again."""
    slopes = problem.samples.slopes(problem.loss, fit.margins(problem))
    roots = np.sqrt(_diagonal(problem))
    with_these = problem.constraint.restricted(fit.support, np.empty(0, dtype=np.int64)).times(-roots)
    return refitted(problem, fit, with_these.select(problem.samples.pull(slopes) / roots))


def _diagonal(problem: Problem) -> Vector:
    """About the diagonal of the Hessian, up to a factor: for ranking features."""
    mean_square = np.square(problem.design.column_norms()) / problem.shape[0]
    return np.asarray(mean_square + problem.lam)

r"""Certificates for models of bounded norm: the same problem, solved with larger ridges.

A bound B for the ridge lam + e is one of :math:`B - (e/2) R^2` for all models with :math:`\|w\| \le R`. As a function of e that
rises as long as the relaxation's model is larger than R, and then falls: few ridges are tried around the best one.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np

from diht.numerics.interrupt import not_interruptible
from diht.problem import Problem
from diht.result import Certificate, Result
from diht.solvers.loop import solve

__all__ = ["norm_certificate"]

_MULTIPLES = 3.0, 10.0, 30.0, 100.0  # of lam, tried first
_REFINEMENTS = 4  # ridges between the best one and its neighbours


@not_interruptible()
def norm_certificate(
    problem: Problem, result: Result, factor: float = 1.0, *, exact: bool = False, time_limit: float | None = None
) -> Certificate:
    """Prove more of the models that are no larger than a multiple of a found one.

    Parameters
    ----------
    problem : Problem
    result : Result
        An answer to it.
    factor : float
        The multiple of the norm of its penalised coefficients, one or more, for which the ridges are chosen.
    exact : bool
        Whether the ridges next to the best one are solved by branch and bound to the end, or as far as the time goes.
    time_limit : float, optional
        Seconds.

    Returns
    -------
    Certificate
        That of the result; its `for_norm` knows what was proved, of this factor and of others.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import Problem, norm_certificate, solve
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((40, 100))
    >>> problem = Problem(X, X[:, 0] - X[:, 1] + rng.standard_normal(40), "squared", k=2, lam=0.01)
    >>> result = solve(problem)
    >>> bool(norm_certificate(problem, result).for_norm(1.0).gap <= result.certificate.for_norm(1.0).gap)
    True
    """
    certificate = result.certificate
    radius, begun = certificate.for_norm(factor).radius, perf_counter()
    tried = {problem.lam: certificate.lower_bound}  # for each ridge, the bound of the models within the radius
    for trial in range(len(_MULTIPLES) + _REFINEMENTS):
        refined = trial >= len(_MULTIPLES)
        left = None if time_limit is None else time_limit - (perf_counter() - begun)
        if left is not None and left <= 0.0:
            break
        if left is not None and refined:
            left /= len(_MULTIPLES) + _REFINEMENTS - trial  # a tree may take all it gets
        lam, method = _next(problem.lam, tried), "branch" if exact and refined else "auto"
        proved = solve(problem.replaced(lam=lam), method, start=result, time_limit=left).lower_bound
        e = lam - problem.lam
        tried[lam] = proved - 0.5 * e * radius**2
        certificate = replace(certificate, larger_ridges=(*certificate.larger_ridges, (e, proved)))
    return certificate


def _next(lam: float, tried: dict[float, float]) -> float:
    """The next of the multiples, then the middle between the best ridge and the better of its neighbours."""
    if len(tried) <= len(_MULTIPLES):
        return _MULTIPLES[len(tried) - 1] * lam
    ridges = sorted(tried)
    best = max(range(len(ridges)), key=lambda i: tried[ridges[i]])
    beside = max((i for i in (best - 1, best + 1) if 0 <= i < len(ridges)), key=lambda i: tried[ridges[i]])
    return float(np.sqrt(ridges[best] * ridges[beside]))

"""The model that is handed out, and its certificate: everything computed afresh from the problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from diht.bounds.duality import (
    Bound,
    Screening,
    lower_bound,
    margin,
    primal,
    rounded_objective,
    saddle_point,
    screen,
    upper_bound,
)
from diht.constraints.limits import Limits
from diht.design.base import UNIT
from diht.numerics.arrays import Vector
from diht.numerics.exact import CLEAR
from diht.problem import Problem
from diht.result import Certificate, Result, Status, relative, used
from diht.samples import Intercept, Rows

__all__ = ["HandedOut", "certificate_of", "handed_out", "in_dtype"]

R = TypeVar("R", bound=Result)

_ROUNDED = 1e-7  # of the objective: what rounding a model to float32 may cost, whatever the tolerance


@dataclass(frozen=True, eq=False)
class HandedOut:
    """A model as the user gets it, with its certificate.

    Attributes
    ----------
    w : array
        Coefficients of the problem's columns; those of several targets one row each.
    coef : array
        Coefficients of the columns of X, in X's dtype or in float64.
    intercept : float or array
        In the user's coordinates, a number of the same dtype, or one for each of several targets.
    certificate : Certificate
        Its figures.
    """

    w: NDArray[Any]
    coef: NDArray[Any]
    intercept: Intercept
    certificate: Certificate

    def beside(self, larger_ridges: tuple[tuple[float, float], ...]) -> HandedOut:
        """Return the same with bounds that were proved for larger ridges; see `Certificate.for_norm`."""
        return replace(self, certificate=replace(self.certificate, larger_ridges=larger_ridges))

    def result(self, kind: type[R], status: Status, tol: float, **figures: Any) -> R:
        """Assemble the result of a solve that ended with a status; the certificate decides whether the gap is closed."""
        # What came after the last step may have closed it; rounding may have opened it.
        if not self.certificate.closes(tol):
            status = Status.STALLED if status is Status.OPTIMAL else status
        elif status is not Status.STOPPED:
            status = Status.OPTIMAL
        return kind(
            w=self.w,
            coef=self.coef,
            intercept=self.intercept,
            objective=self.certificate.objective,
            certificate=self.certificate,
            status=status,
            **figures,
        )


def handed_out(problem: Problem, w: Vector, b: Intercept, bound: Bound | None, tol: float) -> HandedOut:
    """Round a model, given in the problem's coordinates, to X's dtype where that costs nothing that counts, and certify it."""
    proved = None if bound is None else bound.claimed

    def objective(coef: NDArray[Any], intercept: Any) -> float:
        return _Predicted.of(problem, coef, _in_float64(intercept)).objective

    w = w + 0.0  # no minus zeros
    coef, intercept = in_dtype(
        problem.dtype, problem.coefficients_of(w), problem.intercept_of(w, b), objective, proved, tol, problem.limits
    )
    intercept = _in_float64(intercept)
    certificate = certificate_of(problem, coef, intercept, bound)
    kept = coef if problem.scale is None else problem.scaled_coefficients(coef)
    return HandedOut(problem.shaped(kept), problem.shaped(coef), intercept, certificate)


def _in_float64(intercept: Any) -> Intercept:
    return np.asarray(intercept, dtype=np.float64) if np.ndim(intercept) else float(intercept)


def in_dtype(
    dtype: np.dtype[Any],
    coef: NDArray[Any],
    intercept: Any,
    objective: Callable[[NDArray[Any], Any], float],
    bound: float | None,
    tol: float,
    limits: Limits | None = None,
) -> tuple[NDArray[Any], Any]:
    """Return a model in X's dtype, unless that costs more than 1e-7, or `tol`, of its objective or opens a gap that is closed."""
    if dtype == np.float64:
        return coef, intercept
    with np.errstate(over="ignore", under="ignore"):
        rounded = coef.astype(dtype) if limits is None else limits.rounded(coef, dtype)
        offset = np.asarray(intercept).astype(dtype)
    if not (np.all(np.isfinite(rounded)) and np.all(np.isfinite(offset))):
        return coef, intercept
    fine, rough = objective(coef, intercept), objective(rounded, offset)
    opens = bound is not None and relative(fine - bound, fine) <= tol < relative(rough - bound, rough)
    return (coef, intercept) if opens or not rough - fine <= min(tol, _ROUNDED) * abs(fine) else (rounded, offset)


@dataclass(frozen=True, eq=False)
class _Predicted:
    """A model's predictions, its objective and an upper bound on that."""

    u: Rows
    objective: float
    attained: float

    @classmethod
    def of(cls, problem: Problem, coef: NDArray[Any], intercept: Intercept, product: Rows | None = None) -> _Predicted:
        """Take the predictions as float64 computes them, from Xw where it is known; more precise ones where rounding counts."""
        w = problem.scaled_coefficients(coef)
        b = problem.centred_intercept(w, intercept) if problem.fit_intercept else 0.0
        samples = problem.samples
        product = samples.margins(w, support=np.flatnonzero(w)) if product is None else product
        u = samples.shifted(product, b)
        rough = cls(u, primal(problem, w, b, u), upper_bound(problem, w, b, u))
        if problem.tail is None and rough.attained - rough.objective <= CLEAR * abs(rough.objective):
            return rough
        return cls._precise(problem, w, np.asarray(coef, dtype=np.float64), intercept)

    @classmethod
    def _precise(cls, problem: Problem, w: Vector, coef: Vector, intercept: Intercept) -> _Predicted:
        """Take the losses from predictions in twice the precision, or from their differences to the targets where these will do."""
        loss, samples = problem.loss, problem.samples
        of_residuals = loss.of_target(0).residual_value(np.zeros(1), np.ones(1)) is not None
        value: Callable[[Vector, Vector], Any] = loss.residual_value if of_residuals else loss.value
        targets = tuple(t for t in (samples.y, problem.tail) if t is not None) if of_residuals else ()
        at, error = samples.predictions(coef, intercept, -problem.level, less=targets)
        u = samples.map(lambda y, s, r: r + y, at) if targets else at

        def losses(y: Vector, at: Vector, error: Vector) -> Vector:
            e = error + 4.0 * UNIT * np.abs(at)
            near = np.maximum(value(at - e, y), value(at + e, y)) if of_residuals else loss.largest_near(at, e, y)
            found: Vector = near
            return found

        with np.errstate(over="ignore", invalid="ignore"):
            objective = samples.total(lambda y, at: value(at, y), at) + float(0.5 * problem.lam * (w @ w))
            return cls(u, objective, rounded_objective(problem, w, losses, at, error))


def certificate_of(problem: Problem, coef: NDArray[Any], intercept: Intercept, known: Bound | None) -> Certificate:
    """Everything about a model and the dual point of a bound; and what else the bound proves.

    `coef` and `intercept` are in the user's coordinates, as they are handed out.
    """
    w, samples = problem.scaled_coefficients(coef), problem.samples
    alpha = samples.full(0.0) if known is None else known.alpha
    product, g = samples.margins_and_pull(w, alpha)
    bound: Bound = lower_bound(problem, alpha, g)
    if bound.alpha is not alpha:
        g = np.zeros_like(g)
    predicted = _Predicted.of(problem, coef, intercept, product)
    point = saddle_point(problem, w, bound.alpha, 0.0, predicted.u, g)
    screening = screen(problem, bound, g)
    if known is not None and type(known) is not Bound and known.value >= bound.value:
        bound, screening = known, screening.merged(known.screening(problem)).above(known.value)
    return Certificate(
        objective=predicted.objective,
        lower_bound=max(bound.claimed, problem.trivial_bound),
        bound=bound,
        fenchel=point.fenchel,
        ridge=point.ridge,
        margin=margin(problem, w, g=g),
        support=used(problem.shaped(w)),
        attained=max(predicted.objective, predicted.attained),
        screening=_of_features(problem, screening),
        norm=float(np.linalg.norm(w)) * (1.0 + (2.0 * np.count_nonzero(w) + 8.0) * UNIT),
    )


def _of_features(problem: Problem, screening: Screening) -> Screening:
    """Return what is proved of features, each the same for all targets, with what counting proves where k counts single ones."""
    n_features = len(screening.without) // problem.n_targets
    screening = Screening(screening.without[:n_features], screening.within[:n_features])
    most = problem.constraint.counted(n_features)
    return screening if most is None else screening.completed(most)

"""What a solve gives back: its status, its trace, the certificate, the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diht.bounds.duality import Bound, BoundWithoutProof, Screening
from diht.design.base import UNIT
from diht.numerics.arrays import Indices, Vector
from diht.numerics.digits import percent, rounded_down, shown
from diht.numerics.traffic import Traffic, Trips
from diht.status import Bounded, Status, relative

__all__ = [
    "Certificate",
    "Iterate",
    "Model",
    "NormBound",
    "Result",
    "Status",
    "Times",
    "Trace",
    "differing",
    "relative",
    "used",
]

_NAMED = 20  # features of a result in a notebook


@dataclass(frozen=True)
class Iterate:
    """The figures of one evaluation: what the trace keeps and the callback sees.

    `objective` and `lower_bound` belong to the iterate itself, `best_objective` and `best_bound` to the best so far.
    `n_open` counts the open nodes of a branch and bound. `traffic` says how many blocks have been read, and how fast, where the
    samples are on disk. `model` is the best model so far; only the callback sees it (the trace
    would keep one for every evaluation).
    """

    iteration: int
    passes: float
    seconds: float
    objective: float
    lower_bound: float
    best_objective: float
    best_bound: float
    n_features: int
    n_open: int | None = None
    traffic: Traffic | Trips | None = None
    model: Model | None = field(default=None, repr=False, compare=False)

    @property
    def gap(self) -> float:
        """The best objective less the best bound."""
        return max(self.best_objective - self.best_bound, 0.0)

    @property
    def relative_gap(self) -> float:
        """The gap divided by the best objective."""
        return relative(self.gap, self.best_objective)


class Times(NamedTuple):
    """Seconds after which a solve had its first model, a model as good as its last, and a bound as good as its last."""

    first: float
    best: float
    bound: float


@dataclass
class Trace:
    """The evaluations of a solve, in order."""

    iterates: list[Iterate] = field(default_factory=list)

    def append(self, iterate: Iterate) -> None:
        """Add one evaluation."""
        self.iterates.append(iterate)

    def __len__(self) -> int:
        return len(self.iterates)

    def __iter__(self) -> Iterator[Iterate]:
        return iter(self.iterates)

    def __getitem__(self, index: int) -> Iterate:
        return self.iterates[index]

    def column(self, name: str) -> Vector:
        """One figure over all evaluations, by its name in `Iterate`."""
        return np.array([getattr(iterate, name) for iterate in self.iterates], dtype=np.float64)

    def times(self, rtol: float = 1e-6) -> Times:
        """When the first answer was there, the best one, and its proof.

        Parameters
        ----------
        rtol : float
            How far, as a part of the last objective, a model or a bound may be from the last one to count as good as that.

        Returns
        -------
        Times
            Of nothing, where there was no evaluation.
        """
        if not self.iterates:
            return Times(np.nan, np.nan, np.nan)
        seconds, last = self.column("seconds"), self.iterates[-1]
        near = rtol * abs(last.best_objective)
        best = self.column("best_objective") <= last.best_objective + near
        bound = self.column("best_bound") >= last.best_bound - near
        return Times(float(seconds[0]), float(seconds[best.argmax()]), float(seconds[bound.argmax()]))


@dataclass(frozen=True, eq=False)
class Model:
    """Coefficients of the problem's columns (w) and of the columns of X (coef), with their intercept and objective."""

    w: NDArray[Any]
    coef: NDArray[Any]
    intercept: float
    objective: float

    @property
    def support(self) -> Indices:
        """Indices of the nonzero coefficients, ascending; of several classes, of the features that any of them uses."""
        return used(self.w)


def used(w: NDArray[Any]) -> Indices:
    """Return the features, ascending, with a coefficient other than zero; of several targets, for any of them."""
    return np.flatnonzero(w if w.ndim == 1 else w.any(axis=0))


_NOTHING = Screening(np.empty(0), np.empty(0))


@dataclass(frozen=True, eq=False)
class Certificate(Bounded):
    """How good a model is, with the proof.

    Attributes
    ----------
    objective : float
        The model's objective P(w, b).
    lower_bound : float
        No model that the constraint allows has a smaller objective.
    gap, relative_gap : float
        objective - lower_bound, and that divided by the objective.
    bound : Bound
        The dual point behind the bound; `bound.check(problem)` computes it again. That of a stored estimator is left out.
    fenchel, ridge : float
        Residuals of the saddle point conditions (b) and (c) for the model and the dual point (see `duality.SaddlePoint`).
    margin : float
        The paper's eps, taken at the bound's dual point (at a saddle point that is l'(Xw)): where it is positive and the
        gap is zero, the support is the unique optimal one.
    scaled : bool
        Whether the columns were standardised: objective and bound then speak of the scaled problem.
    support : array of int
        The model's features, ascending.
    attained : float
        An upper bound on the best objective: that of the best model known (this one, or `better`), rounded up.
    screening : Screening
        Lower bounds on the best objectives without, and with, each feature.
    required, excluded : arrays of int
        The features, ascending, that are proved to be in every optimal model, and in none.
    drop_cost, add_cost : arrays of shape (d,)
        By how much more than the best model known, at least, every model without the feature costs, and every model with it.
        Positive for the features required, and for those excluded; zero where nothing is proved.
    better : Model, optional
        A better model, if one was met while a given one was certified.
    norm : float
        The Euclidean norm of the penalised coefficients (those of the scaled columns), rounded up.
    larger_ridges : tuple of pairs of numbers
        Pairs (e, B): no model allowed has an objective below B with a ridge that is larger by e; see `for_norm`.
    """

    objective: float
    lower_bound: float
    bound: Bound = field(repr=False)
    fenchel: float
    ridge: float
    margin: float
    scaled: bool = False
    support: Indices = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)
    attained: float = field(default=np.inf, repr=False)
    screening: Screening = field(default=_NOTHING, repr=False)
    better: Model | None = field(default=None, repr=False)
    norm: float = field(default=np.inf, repr=False)
    larger_ridges: tuple[tuple[float, float], ...] = field(default=(), repr=False)

    def for_norm(self, factor: float = 1.0) -> NormBound:
        r"""Bound the objectives of the models that are no larger than this one, or than a multiple of it.

        With a ridge larger by e an objective is larger by :math:`(e/2) \|w\|^2`: a bound B for that ridge is one of
        :math:`B - (e/2) R^2` for the models with :math:`\|w\| \le R`. Where lam is small this proves far more than the bound for
        all models does, of those whose coefficients are no larger than such a multiple of the found ones.

        Parameters
        ----------
        factor : float
            R divided by the norm of this model's penalised coefficients, one or more.

        Returns
        -------
        NormBound
        """
        return NormBound.proved(factor, self.objective, self.lower_bound, self.norm, self.larger_ridges)

    def without_proof(self, alpha: Vector | None = None) -> Certificate:
        """Return the figures alone, as a stored estimator holds them, or with a dual point to look at."""
        return replace(self, bound=BoundWithoutProof.of(self.bound, alpha))

    def closes(self, tol: float) -> bool:
        """Whether the gap is within `tol` of the objective, whatever rounding did to that."""
        return relative(self.attained - self.lower_bound, self.attained) <= tol

    @cached_property
    def required(self) -> Indices:
        """Features in every optimal model, ascending."""
        return self.screening.required(self.attained)

    @cached_property
    def excluded(self) -> Indices:
        """Features in no optimal model, ascending."""
        return self.screening.excluded(self.attained)

    @property
    def drop_cost(self) -> Vector:
        """The least that every model without the feature costs more than the best one known."""
        return self.screening.drop_cost(self.attained)

    @property
    def add_cost(self) -> Vector:
        """The least that every model with the feature costs more than the best one known."""
        return self.screening.add_cost(self.attained)

    def __str__(self) -> str:
        return "\n".join(f"{word:<12} {figure:<14} {meaning}".rstrip() for word, figure, meaning in self._lines())

    def _repr_html_(self) -> str:
        return html_table(self._lines())

    def _lines(self) -> list[tuple[str, str, str]]:
        """Return each figure by its name, and what it means."""
        figure = shown(self.objective, self.lower_bound, 7)
        lines = [
            ("objective", figure.objective, "of the problem with standardised columns" if self.scaled else ""),
            ("lower bound", figure.lower_bound, "no model allowed has an objective below this"),
            ("gap", figure.gap, f"{percent(self.relative_gap)} of the objective"),
        ]
        if figure.closed:
            lines[1] = "lower bound", figure.lower_bound, "no model allowed is better by more than the gap"
        if len(self.required):
            lines.append(("required", f"{len(self.required):,} features", "proved to be in every best model"))
        if len(self.excluded):
            lines.append(("excluded", f"{len(self.excluded):,} features", "proved to be in no best model"))
        if self.better is not None:
            count = differing(self.support, self.better.support)
            changes = f"{count} feature{'s differ' if count != 1 else ' differs'}" if count else "the same features"
            lines.append(("better model", f"{self.better.objective:.7g}", f"was found: {changes}"))
        return lines


@dataclass(frozen=True)
class NormBound(Bounded):
    """What is proved of models whose coefficients are bounded; it says nothing of others.

    Attributes
    ----------
    factor, radius : float
        The bound on the Euclidean norm of the penalised coefficients, as a multiple of the found model's, and itself.
    objective : float
        That of the found model.
    lower_bound : float
        No model allowed with a norm of at most `radius` has an objective below it.
    of_all : float
        No model allowed, of whatever norm, has one below this.
    """

    factor: float
    radius: float
    objective: float
    lower_bound: float
    of_all: float

    @classmethod
    def proved(
        cls, factor: float, objective: float, of_all: float, norm: float, larger_ridges: Sequence[tuple[float, float]]
    ) -> NormBound:
        """Take the best of the bounds of larger ridges, and that of all models; see `Certificate.for_norm`."""
        if isinstance(factor, bool) or not isinstance(factor, Real) or not 1.0 <= factor < np.inf:
            raise ValueError(f"factor must be a number, 1 or more, got {factor!r}")
        radius = float(float(factor) * norm * (1.0 + 4.0 * UNIT))
        bounds = [(B, 0.5 * e * radius * radius) for e, B in larger_ridges if radius < np.inf]
        lowered = [B - less - 8.0 * UNIT * (abs(B) + less) for B, less in bounds]
        return cls(float(factor), radius, objective, float(max([of_all, *lowered])), of_all)

    def __str__(self) -> str:
        figure = shown(self.objective, self.lower_bound, 7)
        lines = [
            ("objective", figure.objective, ""),
            ("lower bound", figure.lower_bound, f"of models with coefficients of norm {self.radius:.4g} at most"),
            ("", "", f"({self.factor:g} times this one's)"),
            ("gap", figure.gap, f"{percent(self.relative_gap)} of the objective"),
            ("of all models", rounded_down(self.of_all, 7), "no model allowed has an objective below this"),
        ]
        return "\n".join(f"{word:<13} {value:<14} {meaning}".rstrip() for word, value, meaning in lines)


def differing(support: Indices, other: Indices) -> int:
    """Return how many features must be exchanged, added or dropped to come from one support to the other."""
    return max(len(np.setdiff1d(support, other)), len(np.setdiff1d(other, support)))


@dataclass(frozen=True, eq=False)
class Result:
    """The answer of `solve`: the best model found, the best bound proved, and how it went.

    Attributes
    ----------
    w, intercept, support, objective
        The best model found, and its objective. With C targets w has the shape (C, d), and there are C intercepts.
    coef : array of shape (d,) or (C, d)
        The coefficients in the units of X: `w`, or `w` divided by the problem's scale. They and the intercept are numbers of X's
        dtype, unless rounding to float32 would cost more than 1e-7, or `tol`, of the objective, which is that of them as stored.
    lower_bound, gap, relative_gap : float
        No model that the constraint allows has an objective below `lower_bound`.
    pool : tuple of Model
        The models with the smallest objectives met, each on a support of its own, the best first; empty where a method keeps none.
    last : Model
        The last iterate, which is what the paper's algorithms output.
    last_alpha : array of shape (N,) or None
        The last dual iterate of a dual method, from which another solve can go on.
    status : Status
        Why the solve ended.
    n_iter, n_passes, seconds
        Steps made; reads of the whole of X (a restriction counts as its fraction); time without callbacks.
    trace : Trace
        Every evaluation.
    certificate : Certificate
        The figures with their proof.
    solver : str
        The method that ran, as it would be typed.
    swap_optimal : bool or float
        True if no exchange of one feature (or group) of the model for another, all coefficients fitted anew, lowers the objective
        by more than 1e-9 of it: each is ruled out by a bound, or was fitted. A number where that would take too long, or
        rounding hides 1e-8 of the objective: none lowers the objective by more. False where a limit on time came first, and
        for methods that do not look at exchanges.
    """

    w: NDArray[Any]
    coef: NDArray[Any] = field(repr=False)
    intercept: float
    objective: float
    certificate: Certificate
    pool: tuple[Model, ...] = field(repr=False)
    last: Model = field(repr=False)
    last_alpha: Vector | None = field(repr=False)
    status: Status
    n_iter: int
    n_passes: float
    seconds: float
    trace: Trace = field(repr=False)
    solver: str
    swap_optimal: bool | float = False

    @property
    def model(self) -> Model:
        """The model that is handed out."""
        return Model(self.w, self.coef, self.intercept, self.objective)

    @property
    def support(self) -> Indices:
        """Indices of the nonzero coefficients, ascending; of several targets, of the features that any of them uses."""
        return used(self.w)

    @property
    def alpha(self) -> Any:
        """The dual point behind the lower bound, where the rows live: of shape (N,), or (C, N); None in a stored estimator."""
        return self.certificate.bound.alpha

    @property
    def lower_bound(self) -> float:
        """No model that the constraint allows has an objective below this."""
        return self.certificate.lower_bound

    @property
    def gap(self) -> float:
        """The objective less the lower bound."""
        return self.certificate.gap

    @property
    def relative_gap(self) -> float:
        """The gap divided by the objective."""
        return self.certificate.relative_gap

    def without_proof(self, alpha: Vector | None = None) -> Result:
        """Return the result as a stored estimator holds it: nothing is as long as the samples but a dual point to look at."""
        return replace(self, certificate=self.certificate.without_proof(alpha), last_alpha=None)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take back what was stored; a format that knows texts only has kept the status as one."""
        self.__dict__.update(state | {"status": Status(state["status"])})

    def __str__(self) -> str:
        return f"{self.solver}: {self._size()}\n{self.certificate}\n{self._ending()}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        names = ", ".join(map(str, self.support[:_NAMED].tolist())) + ", ..." * (len(self.support) > _NAMED)
        lines = [("features", str(len(self.support)), names), *self.certificate._lines()]
        return html_table([*lines, ("solve", str(self.status), f"{self.solver}: {self._ending()}")])

    def _size(self) -> str:
        return f"{len(self.support):,} feature{'s' * (len(self.support) != 1)}"

    def _ending(self) -> str:
        return (
            f"{self.status} ({self.status.meaning}) after {self.n_iter} steps, "
            f"{self.n_passes:.1f} passes over X, {self.seconds:.3g} s"
        )


def html_table(lines: Sequence[tuple[str, str, str]]) -> str:
    """Return names, figures and what they mean as a table for a notebook, whose style it takes."""
    cells = (
        f'<tr><th scope="row" style="text-align:left">{escape(word)}</th><td style="text-align:right">{escape(figure)}</td>'
        f'<td style="text-align:left">{escape(meaning)}</td></tr>'
        for word, figure, meaning in lines
    )
    return f"<table>{''.join(cells)}</table>"

"""Figure 1: sparse ridge regression on the paper's synthetic design, as the number of samples grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import ceil
from typing import Any

import numpy as np

from diht.design import spectral_bound
from diht.experiments.runner import Cell
from diht.experiments.table import Row
from diht.losses import Squared
from diht.numerics.arrays import Vector
from diht.problem import Problem
from diht.refit import refit
from diht.solvers import DIHT, HTP, IHT, Auto, Solver
from diht.solvers.loop import solve

__all__ = ["FULL", "QUICK", "Estimation", "Plan", "cells", "paper_design"]

Setting = tuple[float, float | None]  # lam and step

_LOOK_EVERY = 10  # iterations; a look costs more than an iteration on problems as small as these
_AUTO_STEPS = 2  # a guess, the relaxation, refits, a search for swaps: more found nothing better, in ten times the time


@dataclass(frozen=True)
class Plan:
    """What is run: d and N, the planted features, the grids of lam and of the step, copies to choose on and to measure.

    Around the best lam of the grid its spacing is halved so many times as `refinements` says.
    """

    dims: tuple[int, ...] = (500, 300)
    sizes: tuple[int, ...] = (40, 60, 80, 100, 120, 150, 200, 300)
    n_true: int = 100
    lams: tuple[float, ...] = tuple(10.0 ** (i / 2) for i in range(-12, 5))
    steps: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)
    refinements: int = 3
    n_tuning: int = 50
    n_evaluation: int = 100


FULL = Plan()
QUICK = Plan(
    sizes=(60, 100, 200), lams=(0.1, 1.0, 10.0), steps=(1.0, 10.0, 100.0), refinements=1, n_tuning=4, n_evaluation=8
)


def paper_design(d: int, n_true: int, n: int, seed: int | Sequence[int]) -> tuple[Vector, Vector, Vector]:
    """Return X, y and the planted w of the paper's section 5.1.

    The first `n_true` features have correlations of 1/4, the others none; all means are drawn from N(0, 1), the coefficients
    are 1 on the first features and 0 on the others, and the noise is N(0, 1).
    """
    rng = np.random.default_rng(seed)
    mean_true, mean_rest = rng.standard_normal(n_true), rng.standard_normal(d - n_true)
    root = np.linalg.cholesky(0.25 + 0.75 * np.eye(n_true))
    correlated = rng.standard_normal((n, n_true)) @ root.T + mean_true
    X = np.hstack([correlated, rng.standard_normal((n, d - n_true)) + mean_rest])
    w = (np.arange(d) < n_true).astype(float)
    return X, X @ w + rng.standard_normal(n), w


def cells(plan: Plan = FULL) -> list[Cell]:
    """Return a cell for each d, N and method; abess takes part where it is installed, and the oracle is told the features."""
    methods = ("DIHT", "IHT", "HTP", "auto", "oracle") + (("abess",) if find_spec("abess") is not None else ())
    return [Estimation(plan, d, n, method) for d in plan.dims for n in plan.sizes for method in methods]


@dataclass(frozen=True)
class Estimation(Cell):
    """One method at one d and N: lam and step chosen on some copies, error and recovery measured on others.

    They are chosen by how often the support is found, ties by the mean error: all settings on a fifth of the copies to choose
    on, the best third of them on all, then those between the best lam and its neighbours. The step of the methods that have
    one is a multiple of the reciprocal of the curvature: the longest that is sure never to diverge, which is far from the best.
    """

    plan: Plan
    d: int
    n: int
    method: str

    timed = False

    @property
    def key(self) -> dict[str, Any]:
        """Return the columns that tell it from others."""
        return {"figure": "fig1", "d": self.d, "n": self.n, "method": self.method}

    @property
    def cost(self) -> float:
        """Return seconds, about."""
        plan = self.plan
        if self.method == "oracle":
            return 1e-3 * plan.n_tuning * len(plan.lams)
        if self.method in ("auto", "abess"):  # which are slow where lam is small
            tuning = sum(0.1 + 0.03 * float(lam**-0.37) for lam in plan.lams)
            return 0.3 * plan.n_tuning * tuning + 0.15 * plan.n_evaluation
        each = 0.02 if self.method == "HTP" else 0.15
        long = sum(step <= 3 for step in plan.steps)
        return each * (0.5 * plan.n_tuning * len(plan.lams) * long + plan.n_evaluation)

    def measure(self) -> Iterator[Row]:
        """Choose lam and step, then measure."""
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):  # several threads of a BLAS would add in another order
            lam, step = self._chosen()
            for copy in range(self.plan.n_tuning, self.plan.n_tuning + self.plan.n_evaluation):
                error, recovered = self._figures(lam, step, copy)
                yield self._row(lam, step, copy, "estimation_error", error)
                yield self._row(lam, step, copy, "recovered", recovered)

    def _row(self, lam: float, step: float | None, copy: int, measure: str, value: float) -> Row:
        k = self.plan.n_true
        return Row(
            "fig1", "synthetic", self.method, "squared", self.n, self.d, k, lam, copy, step, None, measure, value
        )

    def _chosen(self) -> Setting:
        steps = self.plan.steps if self.method in _METHODS else (None,)
        settings = [(lam, step) for lam in self.plan.lams for step in steps]
        race = _Race(self._figures)
        finalists = race.ranked(settings, ceil(self.plan.n_tuning / 5))[: ceil(len(settings) / 3)]
        return self._refined(race, race.ranked(finalists, self.plan.n_tuning)[0])

    def _refined(self, race: _Race, best: Setting) -> Setting:
        """Look for a better lam between the best one and its neighbours on the grid: the error has its minimum in between."""
        lams = self.plan.lams
        ratio = (max(lams) / min(lams)) ** (1.0 / max(1, len(lams) - 1))
        for _ in range(self.plan.refinements):
            ratio **= 0.5
            lam, step = best
            around = (lam, lam / ratio, lam * ratio)
            best = race.ranked([(x, step) for x in around if min(lams) <= x <= max(lams)], self.plan.n_tuning)[0]
        return best

    def _figures(self, lam: float, step: float | None, copy: int) -> tuple[float, float]:
        """Return the relative error of a fit to a copy, and whether its support is the planted one."""
        X, y, planted = paper_design(self.d, self.plan.n_true, self.n, (1, self.d, self.n, copy))
        problem = Problem(X, y, loss=Squared(), k=self.plan.n_true, lam=lam, n_threads=1)
        w = self._fitted(problem, X, step)
        recovered = np.array_equal(np.flatnonzero(w), np.flatnonzero(planted))
        return float(np.linalg.norm(w - planted) / np.linalg.norm(planted)), float(recovered)

    def _fitted(self, problem: Problem, X: Vector, step: float | None) -> Vector:
        if self.method == "oracle":
            return refit(problem, np.arange(self.plan.n_true)).w
        return _abess(problem, X) if self.method == "abess" else _estimate(problem, self.method, step)


class _Race:
    """Settings tried on more and more copies, each copy once."""

    def __init__(self, figures: Callable[[float, float | None, int], tuple[float, float]]) -> None:
        self.figures = figures
        self.tried: dict[Setting, list[tuple[float, float]]] = {}

    def ranked(self, settings: Sequence[Setting], n_copies: int) -> list[Setting]:
        """Return the settings, the best on so many copies first."""
        for setting in settings:
            tried = self.tried.setdefault(setting, [])
            tried += [self.figures(*setting, copy) for copy in range(len(tried), n_copies)]
        return sorted(settings, key=lambda setting: _rank(self.tried[setting]))


def _rank(figures: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return what is least for the best setting, of its errors and recoveries."""
    error, recovered = np.mean(figures, axis=0)
    return -float(recovered), float(error)


_METHODS: dict[str, type[DIHT] | type[IHT] | type[HTP]] = {"DIHT": DIHT, "IHT": IHT, "HTP": HTP}


def _estimate(problem: Problem, method: str, step: float | None) -> Vector:
    if step is None:
        return solve(problem, Auto(), max_iter=_AUTO_STEPS).w
    sigma_sq, mu = spectral_bound(problem.design, problem.s), problem.loss.mu
    curvature = mu + sigma_sq / problem.lam if method == "DIHT" else sigma_sq / mu + problem.lam
    solver: Solver = _METHODS[method](step=step / curvature)
    return solve(problem, solver, evaluate_every=1 if method == "HTP" else _LOOK_EVERY).w


def _abess(problem: Problem, X: Vector) -> Vector:
    """Return the refit on the support that abess finds; our ridge enters as d more samples, which is exact."""
    from abess import LinearRegression

    n, d = X.shape
    ridge = np.sqrt(n * problem.lam / 2) * np.eye(d)
    model = LinearRegression(support_size=problem.constraint.size, fit_intercept=False, max_iter=100)
    model.fit(np.vstack([X, ridge]), np.concatenate([problem.y, np.zeros(d)]))
    support = np.sort(np.argsort(-np.abs(model.coef_.ravel()), kind="stable")[: problem.constraint.size])
    return refit(problem, support).w

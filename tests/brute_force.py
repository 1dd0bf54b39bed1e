"""Claims against brute force on random problems: `python tests/brute_force.py --problems 2000 [--seed 0] [--solvers auto,diht]`.

Every problem follows from one integer. It is small enough that the best model on every support can be computed, so that a
bound, a proof about a feature or a model called optimal is either true or shown to be false, by a model. The objective of
that model is computed with sixty digits wherever float64 could not tell. A false claim makes the exit status 1.

With --compare the problems are too large for brute force: the methods are held against each other.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from time import perf_counter
from typing import Any

import mpmath
import numpy as np
import scipy.optimize
import scipy.sparse as sp
from mpmath import mpf
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))

from diht import Problem, certify, solve
from diht.duality import primal
from diht.loop import SOLVERS
from diht.losses import Hinge, Huber, Logistic, Loss, Poisson, SmoothedHinge, Squared, SquaredHinge
from diht.result import Certificate, Result
from diht.solvers.refit import refit
from oracle import exact_columns

Vector = NDArray[np.float64]
Support = tuple[int, ...]

EQUAL = 1e-7  # relative difference up to which a method has found the optimum
EXACTLY = 1e-14  # relative difference of two exact objectives that the fits' own errors explain
TIED = 1e-9  # relative difference up to which a support counts as optimal
FLOAT64 = 1e-9  # relative difference from which float64 tells two objectives apart


# ---------------------------------------------------------------------------------------------------------------------
# Problems


@dataclass(frozen=True, eq=False)
class Case:
    """A problem, the dense float64 matrix that it stores, and the integer that it follows from."""

    seed: int
    problem: Problem
    X: Vector
    storage: str

    def __str__(self) -> str:
        n, d = self.problem.shape
        intercept = "intercept" if self.problem.fit_intercept else "no intercept"
        return (
            f"seed {self.seed}: {self.problem.loss!r}, N={n}, d={d}, k={self.problem.constraint.size}, "
            f"lam={self.problem.lam:.3g}, {intercept}, {self.storage}"
        )


def small_case(seed: int) -> Case:
    """At most twelve features."""
    rng = np.random.default_rng([seed, 0])
    loss, n, d = _loss(rng, seed), int(rng.integers(5, 61)), int(rng.integers(2, 13))
    k = int(rng.integers(1, min(6, d) + 1))
    if not loss.differentiable:  # refits at kinks take their time
        n, d, k = min(n, 25), min(d, 8), min(k, 3, d)
    return _case(seed, rng, loss, n, d, k)


def large_case(seed: int) -> Case:
    """Thirty features and more: beyond brute force, within branch and bound."""
    rng = np.random.default_rng([seed, 1])
    return _case(
        seed, rng, _loss(rng, seed), int(rng.integers(40, 201)), int(rng.integers(30, 41)), int(rng.integers(3, 7))
    )


def _case(seed: int, rng: np.random.Generator, loss: Loss, n: int, d: int, k: int) -> Case:
    X = _matrix(rng, n, d)
    y = _targets(rng, loss, X, k)
    dtype = np.float32 if rng.random() < 0.25 else np.float64
    name, convert = _STORAGE[rng.integers(len(_STORAGE))]
    problem = Problem(
        convert(X.astype(dtype)),
        y,
        loss,
        k,
        lam=10.0 ** rng.uniform(-6.0, 2.0),
        sample_weight=_weights(rng, y) if rng.random() < 0.4 else None,
        fit_intercept=bool(rng.random() < 0.5),
        scale=10.0 ** rng.uniform(-1.0, 1.0, d) if rng.random() < 0.15 else None,
        n_threads=1,
    )
    return Case(seed, problem, X.astype(dtype).astype(np.float64), f"{name} {np.dtype(dtype)}")


_STORAGE: list[tuple[str, Callable[[np.ndarray], Any]]] = [
    ("C", np.ascontiguousarray),
    ("F", np.asfortranarray),
    ("CSR", sp.csr_array),
    ("CSC", sp.csc_array),
]


def _loss(rng: np.random.Generator, seed: int) -> Loss:
    losses = [
        Squared(),
        Hinge(),
        Logistic(),
        SquaredHinge(),
        SmoothedHinge(float(10.0 ** rng.uniform(-1.5, 0.5))),
        Huber(float(10.0 ** rng.uniform(-1.0, 0.5))),
    ]
    drawn = losses[rng.integers(len(losses))]
    return Poisson() if seed % 7 == 3 else drawn


def _matrix(rng: np.random.Generator, n: int, d: int) -> Vector:
    """Of several kinds, with what makes supports hard to tell apart: equal, nearly equal, opposite and constant columns."""
    kind = rng.integers(4)
    X = rng.standard_normal((n, d))
    if kind == 1:  # correlated
        rho = rng.uniform(0.3, 0.99)
        for j in range(1, d):
            X[:, j] = rho * X[:, j - 1] + np.sqrt(1.0 - rho**2) * X[:, j]
    elif kind == 2:  # many zeros, some rows empty
        X[rng.random((n, d)) < rng.uniform(0.3, 0.9)] = 0.0
    elif kind == 3:  # few values: ties
        X = np.round(2.0 * X) / 2.0
    if rng.random() < 0.3:
        X += rng.standard_normal(d) * rng.choice([1.0, 10.0])
    i, j, m = rng.choice(d, 3, replace=d < 3)
    if rng.random() < 0.3:
        X[:, i] = rng.choice([1.0, -1.0, 2.0]) * X[:, j]
    if rng.random() < 0.3:
        X[:, m] = X[:, j] + 10.0 ** rng.uniform(-9.0, -2.0) * rng.standard_normal(n)
    if rng.random() < 0.2:
        X[:, rng.integers(d)] = rng.choice([0.0, 1.0, -3.0])
    if rng.random() < 0.2:
        X *= 10.0 ** rng.uniform(-2.0, 2.0, d)
    if rng.random() < 0.2:
        X *= 10.0 ** rng.uniform(-3.0, 3.0)
    return X


def _targets(rng: np.random.Generator, loss: Loss, X: Vector, k: int) -> Vector:
    """Planted on about k features, or noise alone."""
    n, d = X.shape
    w = np.zeros(d)
    w[rng.choice(d, min(d, int(rng.integers(1, k + 2))), replace=False)] = 1.0
    w *= rng.standard_normal(d)
    signal = X @ w + rng.standard_normal()
    spread = float(signal.std())
    noise = (spread if spread > 0 else 1.0) * rng.choice([0.0, 0.1, 0.5, 2.0]) * rng.standard_normal(n)
    y = rng.standard_normal(n) if rng.random() < 0.2 else signal + noise
    if loss.name == "poisson":  # of all sizes, and sometimes no counts at all but rates
        mean = np.exp(np.clip(y / (spread if spread > 0 else 1.0), -8.0, 8.0)) * 10.0 ** rng.uniform(-2.0, 4.0)
        return rng.poisson(mean).astype(np.float64) if rng.random() < 0.8 else mean
    if loss.task == "regression":
        size = float(np.abs(y).max()) or 1.0
        return y if rng.random() < 0.3 else 10.0 ** rng.uniform(-1.0, 1.0) * y / size
    labels = np.where(y > np.quantile(y, rng.choice([0.2, 0.5])), 1.0, -1.0)
    labels[0], labels[1] = 1.0, -1.0  # whose weights are positive
    return labels


def _weights(rng: np.random.Generator, y: Vector) -> Vector:
    weights = rng.random(len(y)) ** 2
    weights[rng.random(len(y)) < 0.2] = 0.0
    weights[:2] = rng.uniform(0.5, 1.0, 2)
    return weights


# ---------------------------------------------------------------------------------------------------------------------
# Optima


@dataclass(frozen=True, eq=False)
class Witness:
    """A model with its objective in float64: whatever claims that there is none as good is refuted by it."""

    w: Vector
    b: float
    objective: float

    def refutes(self, case: Case, bound: float) -> bool:
        """Whether the model is better than a lower bound says; exact where float64 cannot tell."""
        if not np.isfinite(bound) or abs(bound - self.objective) > FLOAT64 * abs(self.objective):
            return bool(bound > self.objective)
        return bool(mpf(bound) > exact_primal(case, self.w, self.b))

    def is_as_good(self, case: Case, other: Witness) -> bool:
        """Whether the model is no worse than another; exact where float64 cannot tell."""
        if abs(self.objective - other.objective) > FLOAT64 * abs(other.objective):
            return self.objective < other.objective
        return bool(exact_primal(case, self.w, self.b) <= exact_primal(case, other.w, other.b) * (1 + mpf(EXACTLY)))


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best model of all, without each feature, and with a place for it; and the supports of all models as good."""

    best: Witness
    without: list[Witness]
    within: list[Witness]
    supports: list[Support]


def fitted(problem: Problem, support: Iterable[int]) -> Witness:
    """The best model on a support, by the library's refit."""
    w, b, u = refit(problem, np.array(sorted(support), dtype=np.int64))
    return Witness(w, b, primal(problem, w, b, u))


def best_on(problem: Problem, support: Iterable[int]) -> Witness:
    """The best model on a support; where the loss has kinks, the better of two that were found in different ways."""
    model = fitted(problem, support)
    if problem.loss.differentiable:
        return model
    return min(model, independent(problem, tuple(support)), key=lambda model: model.objective)


def optimum(problem: Problem) -> Optimum:
    """Try every support of the largest size."""
    d, k = problem.shape[1], problem.constraint.size
    models = {support: best_on(problem, support) for support in combinations(range(d), k)}

    def least(supports: Iterable[Support]) -> Witness:
        return min((models[support] for support in supports), key=lambda model: model.objective)

    best = least(models)
    if k < d:
        without = [least(support for support in models if j not in support) for j in range(d)]
    else:
        without = [best_on(problem, set(range(d)) - {j}) for j in range(d)]
    within = [least(support for support in models if j in support) for j in range(d)]
    ties = best.objective + TIED * abs(best.objective)
    return Optimum(best, without, within, [support for support, model in models.items() if model.objective <= ties])


def exact_primal(case: Case, w: Vector, b: float) -> mpf:
    """P(w, b) with sixty digits, the numbers that the problem stores taken as they are."""
    problem = case.problem
    columns = exact_columns(problem, case.X)
    support = np.flatnonzero(w)
    u = [
        mpf(b) + mpmath.fdot([columns[j][i] for j in support], [mpf(w[j]) for j in support])
        for i in range(len(problem.y))
    ]
    losses = [mpf(s) * exact_loss(problem.loss, ui, mpf(y)) for s, ui, y in zip(problem.s, u, problem.y, strict=True)]
    return mpmath.fsum(losses) + mpf(problem.lam) / 2 * mpmath.fsum(mpf(x) ** 2 for x in w)


def exact_loss(loss: Loss, u: mpf, y: mpf) -> mpf:
    """l(u, y) of the table of losses, written anew."""
    if loss.name == "squared":
        return (y - u) ** 2
    if loss.name == "huber":
        r, delta = abs(y - u), mpf(loss.delta)
        return r * r / 2 if r <= delta else delta * r - delta * delta / 2
    if loss.name == "poisson":
        return mpmath.exp(u) - y * u - y + (y * mpmath.log(y) if y > 0 else mpf(0))
    if loss.name == "logistic":
        return mpmath.log1p(mpmath.exp(-y * u))
    m = max(1 - y * u, mpf(0))
    if loss.name == "hinge":
        return m
    if loss.name == "squared_hinge":
        return m * m
    gamma = mpf(loss.gamma)
    return m * m / (2 * gamma) if m <= gamma else m - gamma / 2


def independent(problem: Problem, support: Support) -> Witness:
    """The best model on a support by scipy's general methods, columns scaled to norm one."""
    X = problem.design.columns(np.array(support)).toarray()
    norms = np.sqrt(problem.s @ np.square(X))
    Z = np.hstack([X / np.where(norms > 0, norms, 1.0), np.full((len(X), int(problem.fit_intercept)), 1.0)])
    ridge = np.append(problem.lam / np.where(norms > 0, norms, 1.0) ** 2, [0.0] * int(problem.fit_intercept))
    if problem.loss.name == "squared":
        root = np.sqrt(problem.s)
        A = np.vstack([root[:, None] * Z, np.diag(np.sqrt(0.5 * ridge))])
        z = np.linalg.lstsq(A, np.append(root * problem.y, np.zeros(Z.shape[1])))[0]
    elif problem.loss.name == "hinge":
        z = _hinge(problem, Z, ridge)
    else:
        z = _quasi_newton(problem, Z, ridge)
    w = np.zeros(problem.shape[1])
    w[list(support)] = z[: len(support)] / np.where(norms > 0, norms, 1.0)
    b = float(z[-1]) if problem.fit_intercept else 0.0
    return Witness(w, b, primal(problem, w, b))


def _quasi_newton(problem: Problem, Z: Vector, ridge: Vector) -> Vector:
    def value_and_slope(z: Vector) -> tuple[float, Vector]:
        u = Z @ z
        value = float(problem.s @ problem.loss.value(u, problem.y) + 0.5 * ridge @ np.square(z))
        return value, Z.T @ (problem.s * problem.loss.derivative(u, problem.y)) + ridge * z

    options = {"ftol": 1e-16, "gtol": 1e-13, "maxiter": 5000, "maxfun": 20_000}
    return np.asarray(
        scipy.optimize.minimize(value_and_slope, np.zeros(Z.shape[1]), jac=True, method="L-BFGS-B", options=options).x
    )


def _hinge(problem: Problem, Z: Vector, ridge: Vector) -> Vector:
    """A quadratic program: slack variables above zero and above 1 - y u."""
    n, m = Z.shape
    s, y = problem.s, problem.y
    forms = np.hstack([y[:, None] * Z, np.eye(n)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = scipy.optimize.minimize(
            lambda x: (0.5 * ridge @ np.square(x[:m]) + s @ x[m:], np.append(ridge * x[:m], s)),
            np.append(np.zeros(m), np.ones(n)),
            jac=True,
            method="SLSQP",
            bounds=[(None, None)] * m + [(0.0, None)] * n,
            constraints={"type": "ineq", "fun": lambda x: forms @ x - 1.0, "jac": lambda x: forms},
            options={"maxiter": 300, "ftol": 1e-14},
        )
    return np.asarray(result.x[:m])


# ---------------------------------------------------------------------------------------------------------------------
# Claims


@dataclass(frozen=True)
class Outcome:
    """What a method said of a problem, held against the truth."""

    solver: str
    seed: int
    description: str
    excess: float  # objective / best objective - 1
    found: bool
    proved: bool
    seconds: float
    claims: int  # about single features
    false_bounds: tuple[str, ...] = ()
    false_features: tuple[str, ...] = ()


Run = Callable[[Case], tuple[Witness, Certificate]]


def methods(names: Iterable[str] | None = None) -> dict[str, Run]:
    """Methods by name: those of the library, and "certify", which is given a model on features at random."""
    known = ["auto", *SOLVERS, "certify"]
    unknown = set(names or ()) - set(known)
    if unknown:
        raise SystemExit(f"unknown method {', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    return {name: _certify if name == "certify" else _solve(name) for name in names or known}


def _solve(name: str) -> Run:
    def run(case: Case) -> tuple[Witness, Certificate]:
        result = solve(case.problem, name, time_limit=60.0)
        return _witness(case.problem, result), result.certificate

    return run


def _witness(problem: Problem, result: Result) -> Witness:
    """The model of a result, for the problem's (centred) design."""
    w = np.asarray(result.w, dtype=np.float64)
    b = problem.centred_intercept(w, result.intercept) if problem.fit_intercept else 0.0
    return Witness(w, b, result.objective)


def _certify(case: Case) -> tuple[Witness, Certificate]:
    d, k = case.problem.shape[1], case.problem.constraint.size
    support = np.random.default_rng(case.seed).choice(d, k, replace=False)
    model = fitted(case.problem, support.tolist())
    certificate = certify(case.problem, model.w, case.problem.intercept_of(model.w, model.b))
    return replace(model, objective=certificate.objective), certificate


def judge(case: Case, truth: Optimum, name: str, run: Run) -> Outcome:
    """Run a method, and look for a model that refutes what it says."""
    start = perf_counter()
    model, certificate = run(case)
    seconds = perf_counter() - start
    false_bounds, best = [], truth.best
    if best.refutes(case, certificate.lower_bound) or model.refutes(case, certificate.lower_bound):
        false_bounds.append(f"bound {certificate.lower_bound!r} above the optimum {best.objective!r}")
    claims, false_features = _about_features(case, truth, certificate)
    size = abs(best.objective) + 1e-9 * abs(primal(case.problem, np.zeros(case.problem.shape[1])))
    excess = (model.objective - best.objective) / size if size else model.objective
    if excess < -EQUAL and exact_primal(case, model.w, model.b) > mpf(model.objective) + EQUAL * size:
        false_bounds.append(
            f"objective {model.objective!r} below the optimum {best.objective!r}, and not the model's own"
        )
    tolerance = EQUAL + (_rounding(case.problem, best) / size if case.problem.design.dtype == np.float32 else 0.0)
    return Outcome(
        name,
        case.seed,
        str(case),
        excess,
        excess <= tolerance,
        certificate.relative_gap <= 1e-4,
        seconds,
        claims,
        tuple(false_bounds),
        tuple(false_features),
    )


def _rounding(problem: Problem, model: Witness) -> float:
    """How much a model's objective may rise where its coefficients and its intercept are rounded to float32."""
    reach = np.abs(problem.design.toarray()) @ np.abs(model.w) + abs(problem.intercept_of(model.w, model.b))
    e = 2.0**-24 * reach
    u, loss = problem.design.matvec(model.w) + model.b, problem.loss
    rise = np.maximum(loss.value(u - e, problem.y), loss.value(u + e, problem.y)) - loss.value(u, problem.y)
    return float(problem.s @ rise) + 2.0**-23 * problem.lam * float(model.w @ model.w)


def _about_features(case: Case, truth: Optimum, certificate: Certificate) -> tuple[int, list[str]]:
    """How many features a certificate decides, and what is false of it; bounds for single features are looked at too."""
    false = []
    for what, models in (("required", truth.without), ("excluded", truth.within)):
        for j in getattr(certificate, what, ()):
            if models[j].is_as_good(case, truth.best):
                false.append(f"feature {j} {what}, but {models[j].objective!r} is optimal")  # noqa: PERF401
    screening = getattr(certificate, "screening", None)
    for what, models in (("without", truth.without), ("within", truth.within)):
        for j, bound in enumerate(getattr(screening, what, ())):
            if models[j].refutes(case, float(bound)):
                false.append(f"bound {bound!r} {what} feature {j}, but {models[j].objective!r} is had")
    return sum(len(getattr(certificate, what, ())) for what in ("required", "excluded")), false


def check(seed: int, names: tuple[str, ...] | None = None, cache: Path | None = None) -> list[Outcome]:
    """All methods on one problem."""
    case = small_case(seed)
    truth = optimum(case.problem) if cache is None else _remembered(case, cache)
    return [judge(case, truth, name, run) for name, run in methods(names).items()] + [_refit_checked(case)]


def _remembered(case: Case, cache: Path) -> Optimum:
    """The optimum from a file that carries the problem's name, so that one of another generator is not taken for it."""
    path = cache / f"{case.seed}-{zlib.crc32(case.X.tobytes() + str(case).encode()):08x}.pickle"
    if path.exists():
        return pickle.loads(path.read_bytes())
    truth = optimum(case.problem)
    cache.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(truth))
    return truth


def _refit_checked(case: Case) -> Outcome:
    """The refit that the optima rest on, on one support, held against another solver; "found" where that is no better."""
    supports = list(combinations(range(case.problem.shape[1]), case.problem.constraint.size))
    support = supports[np.random.default_rng(case.seed).integers(len(supports))]
    start = perf_counter()
    ours = fitted(case.problem, support).objective
    seconds = perf_counter() - start
    excess = (ours - independent(case.problem, support).objective) / max(abs(ours), 1e-300)
    return Outcome("refit", case.seed, f"{case}, support {support}", excess, excess <= EQUAL, False, seconds, 0)


def compare(seed: int, names: tuple[str, ...] | None = None) -> list[Outcome]:
    """Methods against each other, where the best model of all stands for the optimum."""
    case = large_case(seed)
    answers = {}
    for name in names or [name for name in ("auto", "branch") if name in ("auto", *SOLVERS)]:
        start = perf_counter()
        answers[name] = solve(case.problem, name, time_limit=60.0), perf_counter() - start
    results = [result for result, _ in answers.values()]
    best = min(results, key=lambda result: result.objective)
    witness = _witness(case.problem, best)
    outcomes = []
    for name, (result, seconds) in answers.items():
        excess = result.objective / best.objective - 1.0
        false = witness.refutes(case, result.lower_bound)
        text = f"bound {result.lower_bound!r} above the objective {best.objective!r} of another method"
        outcomes.append(
            Outcome(
                name,
                seed,
                str(case),
                excess,
                excess <= EQUAL,
                result.relative_gap <= 1e-4,
                seconds,
                sum(len(getattr(result.certificate, what, ())) for what in ("required", "excluded")),
                (text,) if false else (),
            )
        )
    return outcomes


# ---------------------------------------------------------------------------------------------------------------------
# The run


@dataclass
class Tally:
    """The outcomes of a run, method by method."""

    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)

    def add(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self.outcomes.setdefault(outcome.solver, []).append(outcome)

    @property
    def false(self) -> list[Outcome]:
        return [o for all_of in self.outcomes.values() for o in all_of if o.false_bounds or o.false_features]

    def table(self) -> Iterator[str]:
        yield "| method | problems | false bounds | optimum found | gap < 1e-4 | features decided | falsely | seconds (most) |"
        yield "|---|---|---|---|---|---|---|---|"
        for name, outcomes in self.outcomes.items():
            n = len(outcomes)
            seconds = [o.seconds for o in outcomes]
            yield (
                f"| {name} | {n} | {sum(bool(o.false_bounds) for o in outcomes)} "
                f"| {sum(o.found for o in outcomes)} ({100 * sum(o.found for o in outcomes) / n:.1f}%) "
                f"| {sum(o.proved for o in outcomes)} | {sum(o.claims for o in outcomes)} "
                f"| {sum(len(o.false_features) for o in outcomes)} | {np.median(seconds):.3f} ({max(seconds):.2f}) |"
            )

    def worst(self, name: str, count: int) -> Iterator[str]:
        missed = sorted((o for o in self.outcomes.get(name, []) if not o.found), key=lambda o: -o.excess)
        if missed:
            yield f"\nFarthest from the optimum, {name}:"
        for outcome in missed[:count]:
            yield f"- {100 * outcome.excess:+.3g}%: {outcome.description}"

    def lies(self) -> Iterator[str]:
        for outcome in self.false:
            for text in (*outcome.false_bounds, *outcome.false_features):
                yield f"- FALSE ({outcome.solver}): {text}; {outcome.description}"


def run(seeds: range, work: Callable[[int], list[Outcome]], jobs: int = 1) -> Tally:
    """All problems, in one process or in several; false claims are printed as they are found."""
    tally = Tally()
    if jobs == 1:
        rounds: Iterable[list[Outcome]] = map(work, seeds)
    else:
        pool = ProcessPoolExecutor(jobs)
        rounds = pool.map(work, seeds, chunksize=4)
    for i, outcomes in enumerate(rounds, start=1):
        tally.add(outcomes)
        for outcome in outcomes:
            for text in (*outcome.false_bounds, *outcome.false_features):
                print(f"FALSE ({outcome.solver}): {text}; {outcome.description}", flush=True)
        if i % 100 == 0:
            print(f"{i} of {len(seeds)} problems", file=sys.stderr, flush=True)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=2000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="the first problem; the others follow")
    parser.add_argument("--solvers", help="methods, separated by commas (default: all)")
    parser.add_argument(
        "--compare", action="store_true", help="problems beyond brute force: methods against each other"
    )
    parser.add_argument("--cache", type=Path, help="folder that keeps the optima, which do not depend on the methods")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--worst", type=int, default=5, help="how many of the worst cases to name")
    arguments = parser.parse_args()
    names = tuple(arguments.solvers.split(",")) if arguments.solvers else None
    methods(names)
    seeds = range(arguments.seed, arguments.seed + arguments.problems)
    work = partial(compare, names=names) if arguments.compare else partial(check, names=names, cache=arguments.cache)
    tally = run(seeds, work, arguments.jobs)
    print("\n".join(tally.table()))
    for name in tally.outcomes:
        print("\n".join(tally.worst(name, arguments.worst)))
    print("\n".join(tally.lies()))
    return 1 if tally.false else 0


if __name__ == "__main__":
    sys.exit(main())

"""Bounds of proportional odds and Cox models against brute force: `python tests/fuzz_joint.py --seeds 0:2000 [--jobs 2]`.

Every problem follows from one integer. The best model on each support is found by scipy, for likelihoods written down from their
definitions; its objective in extended precision is one that a bound must not exceed. A false bound, a model with more than k
features or an exception makes the exit status 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from diht import SparseCox, SparseOrdinalClassifier

Vector = NDArray[Any]
Objective = Callable[[Vector, Vector], tuple[Any, Vector]]

ROUNDED = 1e-12  # relative error of an objective in extended precision, with room
EQUAL = 1e-6  # relative difference up to which a model is the optimum


def matrix(rng: np.random.Generator, n: int, d: int) -> Vector:
    """Columns, half of the time with some hostile ones: of other sizes, copies, rounded, constant, far from zero."""
    X = rng.standard_normal((n, d))
    for j in range(d):
        kind = rng.integers(12)
        if kind == 0:
            X[:, j] *= 10.0 ** rng.uniform(-4, 4)
        elif kind == 1 and j:
            X[:, j] = X[:, j - 1] + rng.choice([0.0, 1e-6]) * X[:, j]
        elif kind == 2:
            X[:, j] = np.round(X[:, j])
        elif kind == 3:
            X[:, j] = X[0, j]
        elif kind == 4:
            X[:, j] += 10.0 ** rng.uniform(0, 4)
    return X


def log_density(a: Vector) -> Vector:
    """log F(a) (1 - F(a)) of the logistic distribution."""
    return -np.abs(a) - 2.0 * np.log1p(np.exp(-np.abs(a)))


class Odds:
    """Ordered classes; parameters are w, the first threshold and the logarithms of the steps to the next ones."""

    def __init__(self, rng: np.random.Generator, X: Vector) -> None:
        n = len(X)
        C = int(rng.integers(2, min(6, n) + 1))
        Z = (X - X.mean(0)) / np.where(X.std(0) > 1e-9 * np.abs(X).max(0), X.std(0), 1.0)
        u = Z @ rng.standard_normal(X.shape[1]) * rng.choice([0.0, 1.0, 5.0]) + rng.logistic(size=n)
        self.codes = np.argsort(np.argsort(u)) * C // n
        self.weights = rng.integers(0, 4, n).astype(float) if rng.random() < 0.4 else np.ones(n)
        self.weights[[np.flatnonzero(self.codes == c)[0] for c in range(C)]] = 1.0
        self.C, self.n_more = C, C - 1

    def fit(self, X: Vector, k: int, lam: float, exact: bool) -> Any:
        """The model of the package."""
        model = SparseOrdinalClassifier(k, lam, exact=exact, standardize=False, time_limit=20.0)
        return model.fit(X, self.codes, sample_weight=self.weights)

    def start(self, k: int) -> Vector:
        """No features, thresholds one apart."""
        return np.concatenate([np.zeros(k), [-1.0], np.zeros(self.n_more - 1)])

    def loss(self, x: Vector, columns: Vector) -> tuple[Any, Vector]:
        """Minus the mean log-likelihood, and its gradient."""
        k = columns.shape[1]
        steps = np.exp(x[k + 1 :])
        t, u, s = np.cumsum(np.append(x[k], steps)), columns @ x[:k], self.weights / self.weights.sum()
        ends = np.concatenate([[-np.inf], t, [np.inf]])
        high, low = ends[self.codes + 1] - u, ends[self.codes] - u
        a, b = np.minimum(high, 1e300), np.maximum(low, -1e300)
        with np.errstate(all="ignore"):
            # F(a) - F(b) = F(a) F(-b) (1 - e^(b - a))
            logs = -np.logaddexp(0.0, -a) - np.logaddexp(0.0, b) + np.log(-np.expm1(b - a))
            up = np.where(np.isfinite(high), np.exp(log_density(a) - logs), 0.0)
            down = np.where(np.isfinite(low), np.exp(log_density(b) - logs), 0.0)
        of_ends = np.zeros(self.C + 1, dtype=np.asarray(x).dtype)
        np.add.at(of_ends, self.codes + 1, -s * up)
        np.add.at(of_ends, self.codes, s * down)
        of_t = np.cumsum(of_ends[1:-1][::-1])[::-1]
        slope = np.concatenate([columns.T @ (s * (up - down)), of_t[:1], of_t[1:] * steps])
        return -(s @ logs), slope


class Survival:
    """Times with ties and censoring; sometimes strata, entries and weights."""

    n_more = 0

    def __init__(self, rng: np.random.Generator, X: Vector) -> None:
        n = len(X)
        Z = (X - X.mean(0)) / np.where(X.std(0) > 1e-9 * np.abs(X).max(0), X.std(0), 1.0)
        hazard = np.exp(np.clip(Z @ rng.standard_normal(X.shape[1]) * rng.choice([0.0, 0.5, 3.0]), -8, 8))
        self.time = np.ceil(rng.choice([1.0, 4.0, 1e6]) * rng.exponential(1.0 / hazard) + 1e-9)
        self.event = rng.random(n) < rng.choice([0.3, 0.8, 1.0])
        self.event[0] = True
        self.weights = rng.integers(0, 4, n).astype(float) if rng.random() < 0.4 else np.ones(n)
        self.weights[0] = 1.0
        self.strata = rng.integers(0, 2, n) if rng.random() < 0.3 else np.zeros(n, dtype=int)
        self.entry = np.where(rng.random(n) < 0.3, 0.5 * self.time, -1.0) if rng.random() < 0.3 else np.full(n, -1.0)
        self.ties = str(rng.choice(["efron", "breslow"]))
        self.terms, self.pull = self._terms()

    def _terms(self) -> tuple[list[tuple[float, Vector]], Vector]:
        """Factors of the logarithms, and what the exponentials in each are multiplied by; the linear part."""
        s = self.weights / self.weights.mean()
        found = []
        for g in np.unique(self.strata):
            for t in np.unique(self.time[self.event & (self.strata == g) & (s > 0)]):
                risk = (self.strata == g) & (self.entry < t) & (self.time >= t) & (s > 0)
                dead = risk & (self.time == t) & self.event
                m = int(dead.sum())
                if self.ties == "breslow":
                    found.append((float(s[dead].sum()), np.where(risk, s, 0.0)))
                else:
                    found += [
                        (float(s[dead].mean()), np.where(risk, s, 0.0) - np.where(dead, s * i / m, 0.0))
                        for i in range(m)
                    ]
        return found, np.where(self.event, s, 0.0)

    def fit(self, X: Vector, k: int, lam: float, exact: bool) -> Any:
        """The model of the package."""
        model = SparseCox(k, lam, self.ties, exact=exact, standardize=False, time_limit=20.0)
        return model.fit(X, self.time, self.event, self.weights, self.entry, self.strata)

    def start(self, k: int) -> Vector:
        """No features."""
        return np.zeros(k)

    def loss(self, x: Vector, columns: Vector) -> tuple[Any, Vector]:
        """Minus the partial log-likelihood, and its gradient."""
        u = columns @ x
        value, slope = -(self.pull @ u), -self.pull.astype(u.dtype)
        for c, a in self.terms:
            top = u[a > 0].max()
            weighted = np.where(a > 0, a * np.exp(np.minimum(u - top, 0.0)), 0.0)
            value += c * (np.log(weighted.sum()) + top)
            slope += c * weighted / weighted.sum()
        return value / len(u), columns.T @ slope / len(u)


def attained(problem: Any, X: Vector, support: tuple[int, ...], lam: float) -> float:
    """The objective, rounded up, of the best model that scipy finds on a support."""
    columns, k = X[:, support], len(support)
    scale = np.maximum(np.abs(columns).max(axis=0, initial=0.0), 1e-300)  # of the steps alone

    def objective(x: Vector, columns: Vector = columns / scale) -> tuple[float, Vector]:
        value, slope = problem.loss(x, columns)
        slope[:k] += lam * x[:k] / scale**2
        value += 0.5 * lam * np.sum((x[:k] / scale) ** 2)
        return (float(value), slope) if np.isfinite(value) else (1e300, np.zeros_like(slope))

    found = problem.start(k)
    for method in ("L-BFGS-B", "BFGS"):
        options = {"ftol": 1e-17, "gtol": 1e-12, "maxiter": 2000} if method == "L-BFGS-B" else {"gtol": 1e-10}
        found = minimize(objective, found, jac=True, method=method, options=options).x if len(found) else found
    x = found.astype(np.longdouble)
    x[:k] /= scale
    value = problem.loss(x, columns.astype(np.longdouble))[0] + lam * np.sum(x[:k] ** 2) / 2
    return float(value) + ROUNDED * abs(float(value))


def check(seed: int) -> tuple[str, Counter[str], list[str]]:
    """What came of the problem of a seed."""
    rng = np.random.default_rng([seed, 47])
    n, d = int(rng.integers(4, 41)), int(rng.integers(1, 7))
    X = matrix(rng, n, d)
    problem = (Odds if seed % 2 else Survival)(rng, X)
    k, lam, exact = int(rng.integers(1, d + 1)), float(10.0 ** rng.uniform(-5.0, 1.0)), bool(rng.random() < 0.4)
    name = type(problem).__name__
    where = f"seed {seed}, {name} {n} x {d}, k={k}, lam={lam:.3g}, exact={exact}"
    began = time.process_time()
    try:
        model = problem.fit(X, k, lam, exact)
    except Exception as error:  # whatever is raised on valid input is a finding
        return name, Counter(problems=1, exceptions=1), [f"EXCEPTION {where}: {type(error).__name__}: {error}"]
    seconds = time.process_time() - began
    with np.errstate(all="ignore"):
        best = float(np.nanmin([attained(problem, X, support, lam) for support in combinations(range(d), k)]))
    bound, objective = float(model.lower_bound_), float(model.objective_)
    counts = Counter(problems=1, milliseconds=round(1000 * seconds), proved=int(model.gap_ <= 1e-4 * abs(objective)))
    counts["found"] = int(objective <= best + EQUAL * abs(best) + 1e-12)
    counts["exact"], counts["exact found"] = int(exact), int(exact and counts["found"])
    findings = []
    if not bound <= min(best, objective + ROUNDED * abs(objective)):
        findings.append(f"FALSE BOUND {where}: bound {bound!r}, but {best!r} is attained, objective {objective!r}")
    if np.count_nonzero(model.coef_) > k:
        findings.append(f"INFEASIBLE {where}: {model.coef_.tolist()}")
    if objective < best - 1e-7 * abs(best) - 1e-9:
        findings.append(f"WITNESS {where}: objective {objective!r} below {best!r}, which scipy found")
    if exact and not counts["found"]:
        findings.append(f"MISSED {where}: objective {objective!r}, but {best!r} is attained ({model.status_})")
    counts.update(finding.split(" ")[0] for finding in findings)
    return name, counts, findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seeds", default="0:2000", help="a range first:end; even seeds are Cox models, odd ones ordinal"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    first, end = map(int, arguments.seeds.split(":"))
    total: dict[str, Counter[str]] = {}
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for name, counts, findings in pool.map(check, range(first, end), chunksize=8):
            total.setdefault(name, Counter()).update(counts)
            print("\n".join(findings), end="\n" * bool(findings), flush=True)
    for name, counts in sorted(total.items()):
        print(name, dict(counts))
    return int(any(counts[what] for counts in total.values() for what in ("FALSE", "INFEASIBLE", "exceptions")))


if __name__ == "__main__":
    sys.exit(main())

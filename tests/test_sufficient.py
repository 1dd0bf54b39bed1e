"""Tall tables by their Gram matrices: the same models, bounds that are true of all rows, few reads."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from diht import Problem, certify, solve
from diht.bounds.duality import lower_bound
from diht.constraints.groups import constrained
from diht.solvers import Auto, Start, sufficient
from diht.solvers.loop import Limits, as_solver, drive
from diht.solvers.sufficient import CondensedBound, _table, condensed
from diht.solvers.sweep import solve_path


def tall(
    seed: int = 0, n: int = 30_000, d: int = 7, k: Any = 2, lam: float = 0.01, noise: float = 1.0, **settings: Any
) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ (np.eye(d) + 0.5 * rng.normal(size=(d, d))) + rng.normal(size=d)
    y = X @ rng.normal(size=d) + noise * rng.normal(size=n) + 3.0
    convert = settings.pop("convert", np.asarray)
    settings.setdefault("fit_intercept", True)
    return Problem(convert(X), y, k=k, lam=lam, **settings)


def whole(problem: Problem, solver: str, tol: float = 1e-4) -> Any:
    """What the method finds on all rows."""
    return drive(problem, as_solver(solver), Start(), Limits(tol))


@pytest.mark.parametrize("settings", [
    {}, {"fit_intercept": False}, {"convert": sp.csr_array}, {"convert": lambda X: X.astype(np.float32)},
    {"sample_weight": np.random.default_rng(5).random(3000)}, {"scale": np.arange(1.0, 8.0)},
    {"k": constrained(2, 7, keep=[3])}, {"k": constrained(2, 7, groups=[0, 0, 1, 1, 2, 2, 3])}, {"k": constrained(3, 7, sign=1)},
], ids=["plain", "no intercept", "sparse", "float32", "weights", "scaled", "keep", "groups", "sign"])  # fmt: skip
def test_models_are_those_of_all_rows(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sufficient, "_LEAST_ENTRIES", 2e4)
    settings = {"n": 3000} | settings
    problem = tall(**settings)
    assert condensed(problem, 1e-4) is not None
    result, other = solve(problem, "branch"), whole(tall(**settings), "branch")
    assert_array_equal(result.support, other.support)
    assert result.objective == pytest.approx(other.objective, rel=1e-9)
    assert_allclose(result.coef, other.coef, rtol=1e-5, atol=1e-7)
    assert result.intercept == pytest.approx(other.intercept, rel=1e-5, abs=1e-7)
    assert result.lower_bound <= other.objective
    assert result.relative_gap <= 1e-4
    bound = result.certificate.bound
    assert result.lower_bound <= bound.check(tall(**settings)) == pytest.approx(bound.value, rel=1e-6)
    assert result.n_passes <= 8.0


@pytest.mark.parametrize("branching", [False, True])
def test_claims_about_features_are_true(branching: bool) -> None:
    problem, d = tall(3), 7
    result = solve(problem, Auto(branching=branching))
    X, y = problem.design.toarray(), problem.y - problem.s @ problem.y
    optima = {}
    for support in combinations(range(d), 2):
        Z = X[:, support]
        G, h = (Z.T * problem.s) @ Z + 0.5 * problem.lam * np.eye(2), (Z.T * problem.s) @ y
        optima[support] = float(problem.s @ y**2 - h @ np.linalg.solve(G, h))
    best, screening = min(optima.values()), result.certificate.screening
    assert result.objective == pytest.approx(best, rel=1e-9)
    assert result.lower_bound <= best
    for j in range(d):
        assert screening.without[j] <= min(v for s, v in optima.items() if j not in s) * (1 + 1e-12)
        assert screening.within[j] <= min(v for s, v in optima.items() if j in s) * (1 + 1e-12)
    small, origin = _table(problem).problem(problem), result.certificate.bound.origin
    assert lower_bound(problem, result.alpha).value == pytest.approx(lower_bound(small, origin.alpha).value, rel=1e-9)


def test_the_error_of_the_table_is_bounded() -> None:
    """In 80 bits the sums of 40,001 rows are off by far less than in 64, which the bound has to cover."""
    problem = tall(1, n=40_001, d=5)
    table, rng = _table(problem), np.random.default_rng(2)
    X, y, s = (np.asarray(a, dtype=np.longdouble) for a in (problem.design.toarray(), problem.y, problem.s))
    for _ in range(20):
        w = rng.normal(size=5)
        r = y - X @ w
        r -= s @ r / s.sum()
        x = np.append(-w, 1.0)
        found = np.square(np.asarray(table.rows, dtype=np.longdouble) @ x).sum()
        assert abs(float(found - s @ r**2)) <= table.error * float(np.abs(x) @ table.size) ** 2
    assert table.error < 1e-11


def test_where_rounding_counts_all_rows_are_read() -> None:
    assert condensed(tall(noise=1e-9), 1e-4) is None
    assert condensed(tall(), 1e-12) is None
    assert condensed(tall(n=100), 1e-4) is None
    result = solve(tall(noise=1e-9, k=7), "branch")
    assert result.lower_bound <= result.objective


def test_other_methods_read_all_rows() -> None:
    problem = tall(n=30_000)
    assert solve(problem, "htp").n_passes > 3.0
    assert not isinstance(solve(problem, "relaxed").certificate.bound, CondensedBound)


def test_a_start_is_used() -> None:
    problem = tall(4)
    first = solve(problem, "branch")
    again = solve(problem, "branch", start=first)
    assert again.n_iter <= first.n_iter
    assert again.objective == pytest.approx(first.objective, rel=1e-12)
    certificate = certify(problem, first.w, first.intercept, exact=True)
    assert certificate.relative_gap <= 1e-4
    seen: list[Any] = []
    solve(problem, callback=seen.append)
    assert seen[-1].model.intercept == pytest.approx(first.intercept, rel=1e-3)
    assert all(iterate.best_bound <= first.objective for iterate in seen)


def test_paths_are_monotone_and_true() -> None:
    problem, other = tall(6), tall(6)
    points = solve_path(problem, [1, 2, 3], [0.01, 0.1])
    reads = problem.design.passes
    for (k, lam), result in points.items():
        alone = whole(other.replaced(constraint=other.constraint.allowing(k), lam=lam), "branch")
        assert result.objective == pytest.approx(alone.objective, rel=1e-9)
        assert result.lower_bound <= alone.objective
        for more, sign in (((k + 1, lam), -1), ((k, 0.1), 1)):
            if more in points:
                assert sign * (points[more].objective - result.objective) >= -1e-12
                assert sign * (points[more].lower_bound - result.lower_bound) >= -1e-12
    assert reads <= 40.0

"""Bounds of the models whose coefficients are bounded, against every support and the best model of that norm on each."""

from __future__ import annotations

import json
import pickle
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from cases import LOSSES
from diht import Problem, SparseClassifier, SparseRegressor, norm_certificate, solve
from diht.bounds.duality import primal
from diht.losses import Loss, Squared
from diht.persistence.schema import read_model
from diht.solvers.auto import Auto, stages
from oracle import small_data, some_weights, targets

Vector = NDArray[np.float64]
SMOOTH = [loss for loss in LOSSES if loss.mu > 0.0 or loss.name == "poisson"]


def wide(loss: Loss, seed: int) -> tuple[Vector, Vector]:
    """Few samples, so that a small ridge leaves a wide gap."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((12, 8))
    return X, targets(loss, X[:, :3] @ [1.0, -1.0, 0.5] + 0.3 * rng.standard_normal(12), rng)


def least_within(problem: Problem, radius: float, k: int) -> float:
    """The least objective of a model of k features with a norm of at most `radius`, by SLSQP on every support."""
    d, best = problem.shape[1], np.inf
    for support in combinations(range(d), k):
        columns = list(support)

        def value(x: Vector, columns: list[int] = columns) -> float:
            w = np.zeros(d)
            w[columns] = x[:k]
            return float(primal(problem, w, x[k] if problem.fit_intercept else 0.0))

        ball = {"type": "ineq", "fun": lambda x: radius**2 - x[:k] @ x[:k]}
        found = minimize(value, np.zeros(k + 1), method="SLSQP", constraints=[ball], options={"maxiter": 200})
        inside = found.x.copy()
        norm = np.linalg.norm(inside[:k])
        inside[:k] *= min(1.0, radius / norm) if norm > 0.0 else 1.0
        best = min(best, value(inside))
    return best


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", SMOOTH, ids=str)
def test_no_model_of_that_norm_is_below_the_bound(loss: Loss, fit_intercept: bool) -> None:
    X, y = wide(loss, 3)
    problem = Problem(X, y, loss, 2, 1e-3, some_weights(12) if fit_intercept else None, fit_intercept)
    result = solve(problem, Auto(branching=False))  # a proof would leave nothing to bound
    certificate = result.certificate
    assert certificate.larger_ridges
    assert certificate.norm == pytest.approx(np.linalg.norm(result.w), rel=1e-12)
    for factor in (1.3 if fit_intercept else 1.0,):
        bound = certificate.for_norm(factor)
        assert bound.of_all == certificate.lower_bound
        assert certificate.lower_bound <= bound.lower_bound <= least_within(problem, bound.radius, 2) * (1 + 1e-9)


def test_it_proves_more_where_the_ridge_is_small() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 200))
    y = X[:, :5].sum(axis=1) + 0.5 * rng.standard_normal(60)
    problem = Problem(X, y / y.std(), Squared(), 5, 0.01)
    result = solve(problem)
    assert result.certificate.for_norm().relative_gap < 0.6 * result.certificate.relative_gap
    certificate = norm_certificate(problem, result)
    gaps = [certificate.for_norm(factor).relative_gap for factor in (1.0, 1.05, 1.5, 10.0)]
    assert gaps == sorted(gaps)
    assert gaps[0] < 0.4 * certificate.relative_gap
    assert gaps[-1] == certificate.relative_gap
    assert "(1.05 times this one's)" in str(certificate.for_norm(1.05))


@pytest.mark.parametrize("loss", SMOOTH[:3], ids=str)
def test_more_ridges_prove_more_and_nothing_false(loss: Loss) -> None:
    X, y = wide(loss, 5)
    problem = Problem(X, y, loss, 2, 1e-3, fit_intercept=True)
    result = solve(problem, Auto(branching=False))
    for factor, exact in ((1.0, True), (1.2, False)):
        before = result.certificate.for_norm(factor)
        after = norm_certificate(problem, result, factor, exact=exact).for_norm(factor)
        assert before.lower_bound <= after.lower_bound <= least_within(problem, after.radius, 2) * (1 + 1e-9)


def test_branching_for_larger_ridges_proves_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "_BUDGET", 0.0)  # of trees within auto
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 120))
    y = X[:, :5].sum(axis=1) + 0.5 * rng.standard_normal(60)
    problem = Problem(X, y / y.std(), Squared(), 5, 0.01, n_threads=1)
    result = solve(problem)
    quick, exact = norm_certificate(problem, result, 1.05), norm_certificate(problem, result, 1.05, exact=True)
    assert exact.for_norm(1.05).relative_gap < quick.for_norm(1.05).relative_gap


@pytest.mark.parametrize("factor", [0.99, -1.0, np.nan, np.inf, "1", True, None])
def test_a_factor_below_one_is_refused(factor: object) -> None:
    X, y = small_data(Squared())
    certificate = solve(Problem(X, y, Squared(), 2, 0.1)).certificate
    with pytest.raises(ValueError, match=r"^factor must be a number, 1 or more, got "):
        certificate.for_norm(factor)


def test_estimators_have_it_and_keep_it_in_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = 10.0 ** rng.uniform(-3, 3, 40) * rng.standard_normal((30, 40))
    y = X[:, 0] / np.abs(X[:, 0]).mean() + rng.standard_normal(30)
    for model in (SparseRegressor(k=3, lam=1e-3), SparseClassifier(k=3, lam=1e-3)):
        model.fit(X, y if isinstance(model, SparseRegressor) else y > 0)
        certificate = model.certificate_
        scaled = model.coef_.ravel() * X.std(axis=0)
        assert certificate.norm == pytest.approx(np.linalg.norm(scaled), rel=1e-9)
        back = pickle.loads(pickle.dumps(model)).certificate_
        assert back.for_norm(1.1).lower_bound == certificate.for_norm(1.1).lower_bound
        model.to_json(tmp_path / "model.json")
        (figures,) = read_model(str(tmp_path / "model.json")).certificates
        assert figures.for_norm(1.1) == certificate.for_norm(1.1)


def wide_table() -> SparseRegressor:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 200))
    return SparseRegressor(k=5, lam=0.01).fit(X, X[:, :5].sum(axis=1) + 0.5 * rng.standard_normal(60))


def test_a_report_shows_it_beside_the_bound_of_all_models(tmp_path: Path) -> None:
    model = wide_table()
    assert model.certificate_.for_norm().relative_gap < model.certificate_.relative_gap - 0.01
    model.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Gap and size of coefficients" in page
    assert "Of larger ones it says nothing." in page
    model.set_params(lam=10.0).fit(np.eye(200)[:60], np.arange(60.0))
    assert model.certificate_.relative_gap < 1e-4
    model.report(tmp_path / "page.html")
    assert "Gap and size" not in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("more", [-1.0, "1", None, 1e400])
def test_a_damaged_file_is_named(tmp_path: Path, more: object) -> None:
    path = tmp_path / "model.json"
    wide_table().to_json(path)
    content = json.loads(path.read_text())
    content["certificates"][0]["given"]["larger_ridges"][0]["more"] = more
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"^\S*model.json: [^\n]*$"):
        read_model(str(path))


def test_of_a_tall_table_it_is_that_of_all_its_rows() -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((20_000, 12)) @ (np.eye(12) + 0.9 * np.ones((12, 12)))
    problem = Problem(X, X @ rng.standard_normal(12) + rng.standard_normal(20_000), Squared(), 3, 1e-4)
    certificate = solve(problem, tol=1e-12).certificate
    best = solve(problem, "branch", tol=1e-9)
    bound = certificate.for_norm(1.0)
    assert bound.lower_bound <= best.objective * (1 + 1e-12)

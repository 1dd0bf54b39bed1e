"""Several quantiles of one target whose models share features."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.metrics import mean_pinball_loss

from cases import crossed
from diht import Problem, SparseRegressor, SparseRegressorCV, certify, load_model, solve, sparse_path
from diht.bounds.duality import dual_from_primal, lower_bound, primal
from diht.losses import Quantile, as_loss
from diht.refit import refit

LEVELS = (0.1, 0.5, 0.9)
NAME = "quantile(q=[0.1, 0.5, 0.9])"


def data(n: int = 40, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, 2.0 * X[:, 1] - X[:, 4] + rng.standard_t(3, n) * (0.5 + np.abs(X[:, 0]))


def weights(n: int) -> np.ndarray:
    return 0.5 + np.arange(n) % 3


def smooth_optimum(X: np.ndarray, y: np.ndarray, q: float, gamma: float, lam: float, s: np.ndarray) -> float:
    """The best objective of one rounded quantile with an intercept, by scipy from formulas of its own."""

    def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
        r = X @ v[:-1] + v[-1] - y
        a = np.minimum(np.maximum(r / gamma, -q), 1.0 - q)
        slope = np.append(X.T @ (s * a) + lam * v[:-1], s @ a)
        return float(s @ (a * r - 0.5 * gamma * a * a) + 0.5 * lam * v[:-1] @ v[:-1]), slope

    options = {"ftol": 1e-16, "gtol": 1e-10, "maxiter": 5000, "maxfun": 10000}
    return float(minimize(objective, np.zeros(X.shape[1] + 1), jac=True, method="L-BFGS-B", options=options).fun)


@pytest.mark.parametrize("seed", range(3))
def test_against_every_support_with_rounded_kinks(seed: int) -> None:
    X, y = data(seed=seed)
    s = weights(len(y)) / weights(len(y)).sum()
    loss, lam = Quantile(LEVELS, 0.4), 0.05
    best = min(
        sum(smooth_optimum(X[:, support], y, q, 0.4, lam, s) for q in LEVELS) for support in combinations(range(6), 2)
    )
    result = solve(Problem(X, y, loss, 2, lam, s, True), "branch", tol=1e-8)
    assert result.objective == pytest.approx(best, rel=1e-8)
    assert result.lower_bound == pytest.approx(best, rel=1e-7)


@pytest.mark.parametrize("fit_intercept", crossed([False, True]))
def test_against_every_support(fit_intercept: bool) -> None:
    """The best model of a support is that of each quantile alone, of which other tests have the proof."""
    X, y = data(n=24, seed=3)
    s, lam = weights(len(y)) if fit_intercept else None, 0.05
    alone = [Problem(X, y, Quantile(q), 2, lam, s, fit_intercept) for q in LEVELS]
    best = min(sum(refit(each, np.array(S)).objective for each in alone) for S in combinations(range(6), 2))
    problem = Problem(X, y, Quantile(LEVELS), 2, lam, s, fit_intercept)
    for solver in ("auto", "branch", "relaxed", "iht", "htp"):
        result = solve(problem, solver, tol=1e-8, max_iter=30 if solver in ("iht", "htp") else None)
        assert result.objective >= best * (1 - 1e-9)
        assert np.all(result.trace.column("lower_bound") <= best)
        assert np.count_nonzero(result.w.any(axis=0)) <= 2
        if solver in ("auto", "branch"):
            assert result.objective == pytest.approx(best, rel=1e-8)
        if solver == "branch":
            assert result.lower_bound == pytest.approx(best, rel=1e-7)
    certificate = certify(problem, result.w, result.intercept)
    assert certificate.lower_bound <= best


def test_value_and_bound_are_those_of_the_quantiles_alone() -> None:
    """With every feature allowed nothing is shared, and sums are sums."""
    X, y = data(seed=4)
    w, b = np.random.default_rng(0).standard_normal((3, 6)), np.array([-1.0, 0.0, 1.0])
    joint = Problem(X, y, Quantile(LEVELS), 6, 0.1)
    alone = [Problem(X, y, Quantile(q), 6, 0.1) for q in LEVELS]
    own = [primal(each, row, float(shift)) for each, row, shift in zip(alone, w, b, strict=True)]
    assert primal(joint, w.ravel(), b) == pytest.approx(sum(own), rel=1e-14)
    bounds = [lower_bound(each, dual_from_primal(each, row)).value for each, row in zip(alone, 0.3 * w, strict=True)]
    assert min(bounds) > 0.0
    found = lower_bound(joint, dual_from_primal(joint, 0.3 * w.ravel())).value
    assert found == pytest.approx(sum(bounds), rel=1e-9)


def test_every_door(tmp_path: Path) -> None:
    X, y = data(n=90, seed=5)
    model = SparseRegressor(k=2, lam=0.01, loss=NAME).fit(X, y)
    predicted = model.predict(X)
    assert model.coef_.shape == (3, 6)
    assert predicted.shape == (90, 3)
    assert len(model.support_) == 2
    losses = [mean_pinball_loss(y, predicted[:, c], alpha=q) for c, q in enumerate(LEVELS)]
    ridge = 0.005 * np.square(model.coef_ * X.std(axis=0)).sum()
    assert model.objective_ == pytest.approx(sum(losses) + ridge, rel=1e-12)
    assert model.score(X, y) == pytest.approx(model.score(X, np.column_stack([y, y, y])), rel=1e-15)
    model.to_json(tmp_path / "model.json")
    read = load_model(tmp_path / "model.json")
    assert np.allclose(read.predict(X), predicted, rtol=1e-12)
    model.report(tmp_path / "page.html", X, y)
    assert "q=0.9" in (tmp_path / "page.html").read_text()
    assert 'target "q=0.5"' in str(model.summary(X, y))
    path = sparse_path(X, y, loss=NAME, ks=[1, 2], lams=0.01)
    assert path.points[1].objective == pytest.approx(model.objective_, rel=1e-6)
    path.report(tmp_path / "path.html", X, y)
    chosen = SparseRegressorCV(ks=[1, 2], lams=[0.01], loss=NAME, cv=3).fit(X, y)
    assert chosen.predict(X).shape == (90, 3)
    sparse = SparseRegressor(k=2, lam=0.01, loss=NAME).fit(sp.csr_array(X), y)
    assert sparse.objective_ == pytest.approx(model.objective_, rel=1e-9)
    moved = SparseRegressor(k=2, lam=0.01, loss=NAME).fit(X, y + 3.0, offset=np.full(90, 3.0))
    assert moved.objective_ == pytest.approx(model.objective_, rel=1e-9)


def test_names_and_bad_levels() -> None:
    assert as_loss("quantile(q=[0.1,0.9], gamma=2)") == Quantile((0.1, 0.9), 2.0)
    assert Quantile([0.25]) == Quantile(0.25)
    X, y = data()
    for bad, message in (
        ("[0.5, 0.1]", "q must be ascending and distinct"),
        ("[0.1, 2]", "q must be between 0 and 1"),
        ("[]", "q of the quantile loss must be a number"),
    ):
        with pytest.raises(ValueError, match=message):
            SparseRegressor(k=2, loss=f"quantile(q={bad})").fit(X, y)
    with pytest.raises(ValueError, match="y must have one column, or 3"):
        SparseRegressor(k=2, loss=NAME).fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="for several targets"):
        SparseRegressor(k=2, loss=NAME, solver="diht").fit(X, y)

"""Every loss of means and quantiles through every door: paths, cross-validation, files, pages, `certify`, exact solves."""

from __future__ import annotations

from pathlib import Path as FilePath

import numpy as np
import pytest

from cases import crossed
from diht import Problem, SparseRegressor, SparseRegressorCV, certify, load_model, sparse_path
from diht.losses import as_loss

LOSSES = [
    "quantile(q=0.9)",
    "quantile(q=0.3, gamma=0.2)",
    "quantile(q=[0.2, 0.8])",
    "poisson",
    "negative_binomial(dispersion=0.5)",
    "gamma",
    "tweedie(power=1.4)",
]
N, D, K, LAM = 60, 6, 2, 0.05


def data(loss: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    u = 0.8 * X[:, 1] - 0.6 * X[:, 4]
    if loss.startswith("quantile"):
        return X, u + 0.5 * rng.standard_normal(N)
    amounts = rng.gamma(2.0, np.exp(u) / 2.0)
    if loss.startswith("tweedie"):
        amounts[rng.random(N) < 0.3] = 0.0
    return X, amounts if loss.startswith(("gamma", "tweedie")) else rng.poisson(np.exp(u)).astype(float)


@pytest.mark.parametrize("loss", crossed(LOSSES))
def test_every_loss_through_every_door(loss: str, tmp_path: FilePath) -> None:
    X, y = data(loss)
    model = SparseRegressor(k=K, lam=LAM, loss=loss, exact=True, standardize=False).fit(X, y)
    assert model.support_.tolist() == [1, 4]
    assert model.gap_ <= 1e-4 * model.objective_ * (1 + 1e-9)
    problem = Problem(X, model._targets_of(y), as_loss(loss), K, LAM, None, True)
    proved = certify(problem, np.asarray(model.coef_), model.intercept_)
    assert proved.lower_bound <= model.objective_ * (1 + 1e-12)
    assert proved.objective == pytest.approx(model.objective_, rel=1e-9)
    path = sparse_path(X, y, ks=[1, K, 4], lams=LAM, loss=loss, standardize=False)
    assert path.point(K).objective == pytest.approx(model.objective_, rel=1e-3)
    assert all(point.lower_bound <= point.objective for point in path)
    assert path.point(K).lower_bound <= model.objective_
    path.report(tmp_path / "path.html", X, y)
    chosen = SparseRegressorCV(ks=[1, K, 4], lams=LAM, loss=loss, cv=3).fit(X, y)
    assert chosen.best_k_ in (1, K, 4)
    assert np.all(np.isfinite(chosen.cv_results_["mean_test_score"]))
    for fitted in (model, chosen):
        fitted.to_json(tmp_path / "model.json")
        np.testing.assert_allclose(load_model(tmp_path / "model.json").predict(X), fitted.predict(X), rtol=1e-12)
        fitted.report(tmp_path / "page.html", X, y)
        assert "feature 1" in str(fitted.summary(X, y))
    assert (tmp_path / "path.html").stat().st_size > 1000

"""Scorecards: against all cards that there are, and against the data they were made of."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.sparse import csr_array
from sklearn.datasets import load_breast_cancer

from browser import CHROMIUM, Browser
from diht import SparseClassifier, SparseClassifierCV, SparseRegressor, scorecard


def made(seed, binary=False, n=120, d=6):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, size=(n, d)).astype(float) if binary else rng.normal(size=(n, d)) * [1, 3, 30, 0.2, 1, 1]
    w = rng.normal(size=d) / X.std(axis=0)
    return X, X @ w + rng.logistic(size=n) > np.median(X @ w), rng.uniform(0.1, 1.0, n)


def objective(model, X, y, weights, coef):
    """The least objective of a slope times these coefficients, and the slope; by formulas of its own."""
    s = weights / weights.sum()
    deviation = np.sqrt(s @ (X - s @ X) ** 2) if model.standardize else np.ones(X.shape[1])
    t, q, side = X @ coef, float(np.sum((coef * deviation) ** 2)), np.where(y == model.classes_[1], 1.0, -1.0)

    def value(z):
        u = z[0] * t + (z[1] if model.fit_intercept else 0.0)
        slope = -s * side / (1.0 + np.exp(side * u))
        gradient = [slope @ t + model.lam * q * z[0], slope.sum() if model.fit_intercept else 0.0]
        return s @ np.logaddexp(0.0, -side * u) + 0.5 * model.lam * q * z[0] ** 2, np.array(gradient)

    found = minimize(value, [0.0, 0.0], jac=True, method="BFGS", options={"gtol": 1e-9})
    return found.fun, found.x[0]


@pytest.mark.parametrize(
    ("seed", "binary", "fit_intercept", "standardize"),
    [(0, False, True, True), (1, True, True, False), (2, False, False, True)],
)
def test_no_card_is_better(seed, binary, fit_intercept, standardize):
    X, y, weights = made(seed, binary)
    model = SparseClassifier(k=3, lam=0.02, fit_intercept=fit_intercept, standardize=standardize).fit(X, y, weights)
    card = scorecard(model, X, y, points=2, sample_weight=weights)
    units = np.ones(X.shape[1])
    units[card.features] = card.units
    assert len(card.features) == 3
    least = np.inf
    for points in product(range(-2, 3), repeat=3):
        coef = np.zeros(X.shape[1])
        coef[model.support_] = np.array(points) / units[model.support_]
        value, slope = objective(model, X, y, weights, coef)
        least = value if any(points) and slope > 0 and value < least else least
    assert card.objective == pytest.approx(least, rel=1e-8)
    assert_allclose(card.objective, objective(model, X, y, weights, card.coef)[0], rtol=1e-8)
    assert model.objective_ <= card.objective * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_figures_and_predictions_are_those_of_the_coefficients(seed):
    X, y, weights = made(seed, n=300)
    model = SparseClassifier(k=4, lam=0.01).fit(X, y, weights)
    card = scorecard(model, X, y, sample_weight=weights)
    u = X @ card.coef + card.intercept
    assert_allclose(card.predict_proba(X)[:, 1], 1 / (1 + np.exp(-u)), rtol=1e-12)
    assert_array_equal(card.predict(X), u > 0)
    assert np.abs(card.points).max() <= 5
    assert card.lower_bound == model.lower_bound_ <= card.objective
    assert card.price == pytest.approx((card.objective - model.lower_bound_) / card.objective)
    assert sum(level.n_samples for level in card.levels) == 300
    risk = np.average([level.risk for level in card.levels], weights=[level.n_samples for level in card.levels])
    assert 0.0 < risk < 1.0


def test_calibration_makes_the_mean_risk_that_of_the_samples():
    X, y, _ = made(5, binary=True, n=400)
    card = scorecard(SparseClassifier(k=3, lam=0.01).fit(X, y), X, y)
    assert card.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), abs=1e-7)
    assert len(card.levels) == len(np.unique(card.total(X)))
    for level in card.levels:
        own = card.total(X) == level.low
        assert level.low == level.high
        assert level.observed == pytest.approx(y[own].mean())
        assert level.n_samples == own.sum()


def test_dense_sparse_and_weights_of_classes_agree():
    X, y, _ = made(3, binary=True, n=200)
    model = SparseClassifier(k=3, lam=0.01, class_weight="balanced").fit(X, y)
    dense, sparse = scorecard(model, X, y), scorecard(model, csr_array(X), y)
    assert_array_equal(dense.points, sparse.points)
    assert dense.objective == pytest.approx(sparse.objective, rel=1e-12)
    assert_allclose(dense.total(X), sparse.total(csr_array(X)))


def test_signs_hold():
    X, y, _ = made(4, n=200)
    model = SparseClassifier(k=4, lam=0.01, sign=1).fit(X, y)
    assert np.all(scorecard(model, X, y).points > 0)


def test_units_and_names():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    model = SparseClassifierCV(ks=[3], lams=0.05, cv=2).fit(X, y)
    card = scorecard(model, X, y, units={"worst radius": 2.5})
    assert dict(zip(card.names, card.units, strict=True))["worst radius"] == 2.5
    assert set(card.names) <= set(model.get_feature_names_out())
    text = str(card)
    assert "for each 2.5" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "better than this card by at most" in text


def test_a_page_holds_the_points(tmp_path):
    X, y, _ = made(1, binary=True)
    card = scorecard(SparseClassifier(k=2, lam=0.05).fit(X, y), X, y)
    card.to_html(tmp_path / "card.html")
    text = (tmp_path / "card.html").read_text()
    assert card._repr_html_() in text
    for name, points in zip(card.names, card.points, strict=True):
        assert f"<td>{name}</td><td>{points:+d}</td>" in text


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
def test_its_page_fits_every_window(tmp_path):
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    scorecard(SparseClassifier(k=6, lam=0.01).fit(X, y), X, y).to_html(tmp_path / "card.html")
    with Browser() as browser:
        for width, dark in ((390, False), (1300, False), (390, True), (1300, True)):
            browser.open(tmp_path / "card.html", width=width, dark=dark)
            found = browser.layout()
            browser.keep("scorecard", width, "dark" if dark else "light")
            assert found["n_texts"] > 20
            assert found["wide"] <= 1
            assert found["overlaps"] == browser.complaints == []


def refused(message, model, X, y, **settings):
    with pytest.raises((TypeError, ValueError), match=message):
        scorecard(model, X, y, **settings)


def test_bad_input_is_named():
    X, y, weights = made(0)
    model = SparseClassifier(k=2, lam=0.05).fit(X, y)
    refused("model must be a SparseClassifier", SparseRegressor(k=2).fit(X, y.astype(float)), X, y)
    refused("points must be a whole number", model, X, y, points=0)
    refused("points must be a whole number", model, X, y, points=2.5)
    refused("must be those of the fit", model, X, y, sample_weight=weights)
    refused("units must name features", model, X, y, units={"age": 1.0})
    refused("units must be positive", model, X, y, units={0: -1.0})
    refused("two classes", SparseClassifier(k=2, loss="hinge").fit(X, y), X, y)
    refused("two classes", SparseClassifier(k=2).fit(X, np.arange(len(y)) % 3), X, np.arange(len(y)) % 3)
    refused("without bounds", SparseClassifier(k=2, bounds=(-1, 1)).fit(X, y), X, y)
    card = scorecard(model, X, y)
    with pytest.raises(ValueError, match="the card was made for 6"):
        card.total(X[:, :3])

import builtins
import doctest
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from matplotlib.backends.backend_agg import FigureCanvasAgg
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, PoissonRegressor

import diht.estimators.inference
from diht import (
    SparseClassifier,
    SparseClassifierCV,
    SparseRegressor,
    SparseRegressorCV,
    bootstrap,
    debiased,
    load_model,
    stability_selection,
)
from diht.estimators.inference import Stability
from diht.losses import LOSSES
from diht.solvers.auto.stages import Branching
from oracle import some_weights


def regression(n=120, d=9, seed=0, noise=1.0):
    """Three of the features matter, in columns of several scales."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.linspace(0.3, 5.0, d) + np.linspace(-1.0, 2.0, d)
    return X, X[:, [1, 4, 6]] @ [2.0, -1.0, 0.7] + 3.0 + noise * rng.normal(size=n)


def classification(n=200, seed=0):
    X, u = regression(n, seed=seed, noise=3.0)
    return X, np.where(u > np.median(u), "yes", "no")


def iris_like(n=210):
    X, u = regression(n, noise=3.0)
    return X, np.array(["a", "b", "c"])[np.digitize(u, np.quantile(u, [0.3, 0.7]))]


def test_examples_of_the_docstrings():
    assert doctest.testmod(diht.estimators.inference).failed == 0


# ---------------------------------------------------------------------------------------------------------------------
# Without the ridge


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
def test_without_a_ridge_least_squares_are_those_of_numpy(weighted, standardize, fit_intercept):
    X, y = regression()
    weights = some_weights(len(y)) if weighted else None
    model = SparseRegressor(k=3, lam=1.0, standardize=standardize, fit_intercept=fit_intercept).fit(X, y, weights)
    free = debiased(model, X, y, weights)
    root = np.sqrt(np.ones(len(y)) if weights is None else weights)
    A = np.column_stack([X[:, model.support_], np.ones((len(y), int(fit_intercept)))]) * root[:, None]
    expected = np.linalg.lstsq(A, root * y)[0]
    assert_allclose(free.coef_[model.support_], expected[:3], rtol=1e-9)
    assert free.intercept_ == pytest.approx(expected[3] if fit_intercept else 0.0, rel=1e-9)
    assert_array_equal(free.support_, model.support_)
    assert_allclose(free.predict(X), X @ free.coef_ + free.intercept_)
    assert not np.allclose(free.coef_, model.coef_, rtol=1e-3)
    # What was proved of the other model is not said of this one, and that one is as it was.
    assert not hasattr(free, "certificate_")
    assert not hasattr(free, "objective_")
    assert model.gap_ >= 0.0
    assert_array_equal(free.fit(X, y, weights).coef_, model.coef_)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, sp.csc_array])
def test_without_a_ridge_the_logistic_loss_gives_maximum_likelihood(convert):
    X, y = classification()
    X[np.abs(X) < 0.3] = 0.0
    weights = 1.0 + some_weights(len(y))
    model = SparseClassifier(k=3, lam=0.1, standardize=True).fit(convert(X), y, weights)
    free = debiased(model, convert(X), y, weights)
    other = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000, solver="newton-cholesky")
    other.fit(X[:, model.support_], y, weights)
    assert_allclose(free.coef_[:, model.support_], other.coef_, rtol=1e-6)
    single = debiased(model, convert(X.astype(np.float32)), y, weights).coef_
    assert single.dtype == np.float32
    assert_allclose(single, free.coef_, rtol=1e-4)
    assert_allclose(free.intercept_, other.intercept_, rtol=1e-6)
    assert_allclose(free.predict_proba(convert(X)), other.predict_proba(X[:, model.support_]), atol=1e-6)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if LOSSES[loss].link != "log"])
def test_no_step_from_the_model_without_a_ridge_lowers_the_loss(loss):
    make, (X, y) = (
        (SparseRegressor, regression()) if LOSSES[loss].task == "regression" else (SparseClassifier, classification())
    )
    model = make(k=3, lam=0.3, loss=loss).fit(X, y)
    free, rng = debiased(model, X, y), np.random.default_rng(0)
    targets = y if make is SparseRegressor else np.where(y == "yes", 1.0, -1.0)
    A = np.column_stack([X[:, model.support_], np.ones(len(y))])
    value = lambda x: LOSSES[loss]().value(A @ x, targets).mean()  # noqa: E731
    x = np.append(np.ravel(free.coef_)[model.support_], free.intercept_)
    assert value(x) < value(np.append(np.ravel(model.coef_)[model.support_], model.intercept_))
    for size in (0.1, 1e-3, 1e-5):
        for step in rng.normal(size=(50, 4)):
            assert value(x + size * step) >= value(x) - 1e-9


def test_counts_with_exposures():
    rng = np.random.default_rng(0)
    X, offset = rng.normal(size=(150, 5)), np.log(rng.uniform(1.0, 9.0, size=150))
    y = rng.poisson(np.exp(0.5 * X[:, 1] - 0.4 * X[:, 3] + offset)).astype(float)
    model = SparseRegressor(k=2, lam=0.3, loss="poisson").fit(X, y, offset=offset)
    free = debiased(model, X, y, offset=offset)
    other = PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=1000, solver="newton-cholesky")
    other.fit(X[:, model.support_], y / np.exp(offset), np.exp(offset))
    assert_allclose(free.coef_[model.support_], other.coef_, rtol=1e-6)
    assert free.intercept_ == pytest.approx(other.intercept_, rel=1e-6)
    found = bootstrap(model, X, y, n_resamples=20, offset=offset, reselect=True, debias=True, random_state=0)
    assert_allclose(found.coef[np.isin(found.feature, model.support_)], other.coef_, rtol=1e-6)
    assert stability_selection(model, X, y, n_resamples=4, offset=offset, random_state=0).n_selected == 2.0
    there = (X[:, [1]] > 0).astype(float)  # where it is zero, so is the count
    model = SparseRegressor(k=1, lam=0.3, loss="poisson").fit(there, y * there[:, 0])
    with pytest.raises(ValueError, match=r"no finite coefficients .* for the poisson loss"):
        debiased(model, there, y * there[:, 0])
    nothing = SparseRegressor(k=1, lam=0.3, loss="poisson", sign=1).fit(-there, y)
    assert debiased(nothing, -there, y, offset=offset).intercept_ == pytest.approx(
        np.log(y.sum() / np.exp(offset).sum())
    )
    X, y = classification()
    with pytest.raises(ValueError, match="offset is for regression"):
        debiased(SparseClassifier(k=1, lam=0.1).fit(X, y), X, y, offset=np.ones(len(y)))


def test_the_model_without_a_ridge_is_a_plain_one_elsewhere_and_has_no_certificate_to_write(tmp_path):
    for make, (X, y) in ((SparseRegressor, regression()), (SparseClassifier, classification())):
        model = make(k=2, lam=0.1).fit(X, y)
        free = debiased(model, X, y)
        assert_array_equal(free.to_sklearn().predict(X), free.predict(X))
        assert_array_equal(pickle.loads(pickle.dumps(free)).coef_, free.coef_)
        with pytest.raises(ValueError, match="a model without a certificate"):
            free.to_json(tmp_path / "model.json")
        model.to_json(tmp_path / "model.json")
        read = load_model(tmp_path / "model.json")
        assert_allclose(debiased(read, X, y).coef_, free.coef_, rtol=1e-6)
        with pytest.raises(ValueError, match="a model without a certificate"):
            debiased(read, X, y).to_json(tmp_path / "other.json")


def test_several_classes_and_class_weights_have_an_equation_each():
    X, y = iris_like()
    model = SparseClassifier(k=2, lam=0.1, class_weight="balanced", multiclass="ovr").fit(X, y)
    free = debiased(model, X, y)
    for j, label in enumerate("abc"):
        support = np.flatnonzero(model.coef_[j])
        other = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000, solver="newton-cholesky")
        counts = {known: np.sum(y == known) for known in "abc"}
        other.fit(X[:, support], y == label, [1 / counts[known] for known in y])
        assert_allclose(free.coef_[j, support], other.coef_[0], rtol=1e-5)
    assert free.predict(X).shape == y.shape


def test_dependent_columns_give_the_least_norm_and_say_so():
    X, y = regression()
    X[:, 6] = X[:, 4]
    model = SparseRegressor(k=1, lam=0.1, keep=[4, 6, 8]).fit(X, y)
    with pytest.warns(UserWarning, match="linearly dependent: their coefficients are those of least norm"):
        free = debiased(model, X, y)
    assert free.coef_[4] == pytest.approx(free.coef_[6])
    A = np.column_stack([X[:, model.support_], np.ones(len(y))])
    assert_allclose(free.predict(X), A @ np.linalg.lstsq(A, y)[0])
    X[:, 8] = 7.0  # a constant column among those to keep has no coefficient
    y = np.where(y > np.median(y), 1, 0)
    model = SparseClassifier(k=1, lam=0.1, groups=[0, 1, 2, 3, 4, 5, 4, 6, 4], keep=[4]).fit(X, y)
    with pytest.warns(UserWarning, match="linearly dependent"):
        assert np.all(np.isfinite(debiased(model, X, y).coef_))


def test_separable_classes_have_one_clear_error():
    X, _ = regression()
    for loss in ("logistic", "squared_hinge", "hinge"):
        y = np.where(X[:, 2] > 0.2, "yes", "no")
        model = SparseClassifier(k=1, lam=0.1, loss=loss).fit(X, y)
        if loss == "logistic":
            with pytest.raises(ValueError, match=r"no finite coefficients .* the features separate the classes"):
                debiased(model, X, y)
        else:  # these have a minimum: zero
            assert debiased(model, X, y).score(X, y) == 1.0
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 2], [-1.0, 1.0])]
    with pytest.raises(ValueError, match="class 'a': without a ridge"):
        debiased(SparseClassifier(k=1, lam=0.1, multiclass="ovr").fit(X, y), X, y)


def test_signs_are_kept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    X[:, 1] += 3.0 * X[:, 0]
    y = 4.0 * X[:, 0] - X[:, 1] + rng.normal(size=50)
    model = SparseRegressor(k=3, lam=3.0, sign=1).fit(X, y)
    model.coef_, model.support_ = np.array([0.5, 0.1, 0.0]), np.array([0, 1])
    free = debiased(model, X, y)
    A = X[:, [0]] - X[:, 0].mean()
    assert free.coef_ == pytest.approx([np.linalg.lstsq(A, y - y.mean())[0][0], 0.0, 0.0], rel=1e-6)


def test_an_empty_support_leaves_the_intercept():
    X, y = regression()
    model = SparseRegressor(k=1, sign=1, lam=0.1).fit(X, -X.sum(axis=1))
    assert len(model.support_) == 0
    assert debiased(model, X, y).intercept_ == pytest.approx(y.mean())
    assert bootstrap(model, X, y, n_resamples=5).names == ("intercept",)


# ---------------------------------------------------------------------------------------------------------------------
# Intervals


@pytest.mark.slow
def test_intervals_hold_the_coefficients_about_as_often_as_they_say():
    """On features that the data did not choose; 120 intervals of nominal 90%, whose mean has a standard deviation of 0.027."""
    w, held = np.array([1.0, -0.5, 0.25]), []
    model = SparseRegressor(k=3, lam=1e-9).fit(np.random.default_rng(0).normal(size=(50, 3)), np.arange(50.0))
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(80, 3))
        y = X @ w + 1.0 + rng.standard_t(5, size=80)
        drawn = {"n_resamples": 60, "confidence_level": 0.9, "random_state": seed}
        found = bootstrap(model, X, y, **drawn)
        reflected = 2.0 * found.coef - found.high, 2.0 * found.coef - found.low
        held.append([(low[:3] <= w) & (w <= high[:3]) for low, high in ((found.low, found.high), reflected)])
    for coverage in np.mean(held, axis=(0, 2)):
        assert 0.82 <= coverage <= 0.96
    basic = bootstrap(model, X, y, method="basic", **drawn)
    assert_allclose((basic.low, basic.high), reflected, rtol=1e-12)


def test_standard_errors_are_those_of_the_sandwich():
    X, y = regression(n=400)
    model = SparseRegressor(k=3, lam=0.5).fit(X, y)
    found = bootstrap(model, X, y, n_resamples=800, debias=True, random_state=0)
    A = np.column_stack([X[:, model.support_], np.ones(400)])
    x = np.linalg.lstsq(A, y)[0]
    inverse = np.linalg.inv(A.T @ A)
    variance = inverse @ (A.T * (y - A @ x) ** 2) @ A @ inverse
    assert_allclose(found.coef, x, rtol=1e-9)
    assert_allclose(found.standard_error, np.sqrt(np.diag(variance)), rtol=0.1)
    assert_allclose(found.high - found.low, 3.92 * found.standard_error, rtol=0.15)
    with_ridge = bootstrap(model, X, y, n_resamples=50, random_state=0)
    assert_allclose(with_ridge.coef[:3], model.coef_[model.support_], rtol=1e-6)


def test_a_resample_is_a_fit_to_drawn_samples():
    X, y = classification()
    model = SparseClassifier(k=2, lam=0.1).fit(X, y)
    found = bootstrap(model, X, y, n_resamples=2, random_state=5)
    seed = np.random.RandomState(5).randint(2**31 - 1, size=2)[0]
    drawn = np.random.default_rng(seed).choice(np.arange(len(y)), len(y))
    features = model.support_
    again = SparseClassifier(k=2, lam=0.1).fit(X[np.ix_(drawn, features)], y[drawn])
    assert_allclose(found.samples[0], np.append(again.coef_, again.intercept_), rtol=1e-5)


@pytest.mark.parametrize("reselect", [False, True])
def test_seeds_and_threads(reselect):
    X, y = regression(n=60)
    model = SparseRegressor(k=2, lam=0.5).fit(X, y)
    arguments = {"n_resamples": 8, "reselect": reselect, "random_state": 3}
    one = bootstrap(model, X, y, **arguments)
    two = bootstrap(model, sp.csr_array(X), y, n_jobs=2, **arguments)
    assert_array_equal(one.feature, two.feature)
    assert_allclose(one.samples, two.samples, rtol=1e-5, atol=1e-7)
    other = bootstrap(model, X, y, **arguments | {"random_state": 4})
    assert other.samples.shape != one.samples.shape or not np.allclose(other.samples, one.samples)


def test_resamples_are_not_branched_on(monkeypatch):
    X, y = regression(n=60)
    model = SparseRegressor(k=2, lam=0.5).fit(X, y)
    monkeypatch.setattr(Branching, "run", lambda stage, state: pytest.fail("a search tree"))
    bootstrap(model, X, y, n_resamples=3, reselect=True, random_state=0)
    assert stability_selection(model, X, y, n_resamples=4, random_state=0).n_selected == 2.0


def test_selection_anew_shows_what_is_a_matter_of_chance():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 8)), columns=list("abcdefgh"))
    X["h"] = X["g"] + 0.02 * rng.normal(size=60)
    y = 2 * X["a"] + X["g"] + rng.normal(size=60)
    model = SparseRegressor(k=2, lam=0.1, keep=["c"], sign={"a": 1}).fit(X, y)
    found = bootstrap(model, X, y, n_resamples=30, reselect=True, debias=True, random_state=0)
    frame = found.to_frame().set_index("feature")
    assert frame.loc["a", "frequency"] == frame.loc["c", "frequency"] == 1.0
    assert 0.0 < frame.loc["g", "frequency"] < 1.0
    assert frame.loc["g", "frequency"] + frame.loc["h", "frequency"] >= 1.0
    assert frame.loc["g", "low"] == frame.loc["h", "low"] == 0.0
    fixed = bootstrap(model, X, y, n_resamples=30, random_state=0).to_frame()
    assert set(fixed["feature"]) == {*model.get_feature_names_out(), "intercept"}


def test_intervals_of_several_classes_and_of_those_that_choose_k():
    X, y = iris_like()
    weights = some_weights(len(y))
    model = SparseClassifierCV(ks=[1, 2], lams=0.1, cv=3, class_weight="balanced", multiclass="ovr").fit(X, y, weights)
    found = bootstrap(model, X, y, n_resamples=10, sample_weight=weights, random_state=0)
    assert_array_equal(found.equation, np.repeat([0, 1, 2], np.count_nonzero(model.coef_, axis=1) + 1))
    assert found.classes == ("a", "b", "c")
    assert list(found.to_frame()) == ["class", "feature", "coef", "low", "high", "standard_error", "frequency"]
    inside = found.feature >= 0
    assert_allclose(found.coef[inside], model.coef_[model.coef_ != 0.0], rtol=1e-5)
    assert_allclose(found.coef[~inside], model.intercept_, rtol=1e-5)
    assert debiased(model, X, y, weights).coef_.shape == (3, 9)


def test_resamples_without_a_best_model_are_counted():
    rng = np.random.default_rng(1)
    x = np.sort(rng.normal(size=14))
    y = (x > 0).astype(int)
    y[[4, 9]] = 1 - y[[4, 9]]
    model = SparseClassifier(k=1, lam=0.1).fit(x[:, None], y)
    with pytest.warns(UserWarning, match="resamples have no single best model without a ridge: they are left out"):
        found = bootstrap(model, x[:, None], y, n_resamples=60, debias=True, random_state=0)
    assert 0 < found.n_failed < 30
    assert len(found.samples) == 60 - found.n_failed
    assert np.all(np.isfinite(found.samples))
    twins = SparseRegressor(k=2, lam=0.1).fit(np.column_stack([x, x]), x + y)
    with pytest.raises(ValueError, match="linearly dependent"):
        bootstrap(twins, np.column_stack([x, x]), x + y, debias=True)


# ---------------------------------------------------------------------------------------------------------------------
# Stability


def test_frequencies_are_those_of_a_loop_over_halves():
    X, y = regression(n=61)
    weights = some_weights(61)
    model = SparseRegressor(k=2, lam=0.3).fit(X, y, weights)
    found = stability_selection(model, X, y, n_resamples=6, sample_weight=weights, random_state=1)
    there, counts = np.flatnonzero(weights), np.zeros(9)
    for seed in np.random.RandomState(1).randint(2**31 - 1, size=3):
        order = np.random.default_rng(seed).permutation(there)
        m = len(there) // 2
        for rows in (order[:m], order[m : 2 * m]):
            counts[SparseRegressor(k=2, lam=0.3).fit(X[rows], y[rows], weights[rows]).support_] += 1
    assert_allclose(found.frequency, counts / 6)
    assert (found.n_selected, found.n_choices) == (2.0, 9)
    assert found.error_bound == pytest.approx(4 / (0.5 * 9))
    assert replace(found, threshold=1.0).error_bound == pytest.approx(4 / 9)
    same = stability_selection(
        model, sp.csc_array(X), y, n_resamples=6, sample_weight=weights, random_state=1, n_jobs=2
    )
    assert_array_equal(same.frequency, found.frequency)


def test_few_features_are_stable_where_all_is_noise():
    """The mean number of false features over 12 data sets keeps to the bound, which is 0.67 here."""
    false, bounds = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(40, 24)), rng.normal(size=40)
        model = SparseRegressor(k=2, lam=1.0, solver="iht").fit(X, y)
        found = stability_selection(model, X, y, n_resamples=10, threshold=0.625, random_state=seed)
        false.append(len(found.selected))
        bounds.append(found.error_bound)
    assert np.mean(bounds) == pytest.approx(4 / (0.25 * 24))
    assert np.mean(false) <= np.mean(bounds)


def test_planted_features_are_stable_and_groups_are_counted_as_groups():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(100, 20)), columns=[f"gene {j}" for j in range(20)])
    y = X["gene 0"] + X["gene 1"] - X["gene 7"] + rng.normal(size=100)
    groups = np.arange(20) // 2
    model = SparseRegressor(k=2, lam=0.3, groups=groups, keep=["gene 18"]).fit(X, y)
    found = stability_selection(model, X, y, n_resamples=10, random_state=0)
    assert_array_equal(found.selected, [0, 1, 6, 7, 18, 19])
    assert found.get_feature_names_out().tolist() == [f"gene {j}" for j in (0, 1, 6, 7, 18, 19)]
    assert (found.n_selected, found.n_choices) == (2.0, 9)
    assert_array_equal(found.frequency[::2], found.frequency[1::2])
    frame = found.to_frame()
    assert frame["stable"].sum() == 6
    assert frame["frequency"].is_monotonic_decreasing


def test_halves_that_lack_a_class_are_drawn_again():
    X, _ = regression(n=30)
    y = np.array([1] * 3 + [0] * 27)
    model = SparseClassifier(k=1, lam=0.1).fit(X, y)
    found = stability_selection(model, X, y, n_resamples=10, random_state=0)
    assert found.frequency.sum() == pytest.approx(1.0)
    y = np.array([1] + [0] * 29)
    with pytest.raises(ValueError, match="y must hold more samples of the smallest class"):
        stability_selection(SparseClassifier(k=1, lam=0.1).fit(X, y), X, y, n_resamples=2)


def test_stability_of_several_classes_and_of_those_that_choose_k():
    X, y = iris_like()
    model = SparseClassifier(k=1, lam=0.1, solver="iht").fit(X, y)
    found = stability_selection(model, X, y, n_resamples=4, complementary=False, random_state=0)
    assert 1.0 <= found.n_selected <= 3.0
    X, y = regression()
    chooses = SparseRegressorCV(ks=[1, 2], lams=0.1, criterion="bic").fit(X, y)
    assert stability_selection(chooses, X, y, n_resamples=2, random_state=0).n_selected == 2.0
    again = bootstrap(chooses, X, y, n_resamples=2, reselect=True, random_state=0)
    assert again.reselected
    assert_array_equal(np.count_nonzero(again.samples, axis=1), [3, 3])


# ---------------------------------------------------------------------------------------------------------------------
# Arguments and pictures


@pytest.mark.parametrize(
    ("function", "bad", "message"),
    [
        (bootstrap, {"n_resamples": 1}, "n_resamples must be a whole number, at least 2, got 1"),
        (bootstrap, {"n_resamples": 2.5}, "n_resamples must be a whole number"),
        (bootstrap, {"confidence_level": 1.0}, "confidence_level must be above 0 and below 1, got 1.0"),
        (bootstrap, {"confidence_level": "high"}, "confidence_level must be above 0 and below 1"),
        (bootstrap, {"method": "bca"}, "method must be one of"),
        (bootstrap, {"sample_weight": -np.ones(120)}, "sample_weight must not be negative"),
        (stability_selection, {"threshold": 0.5}, "threshold must be above 0.5 and at most 1, got 0.5"),
        (stability_selection, {"n_resamples": 7}, "n_resamples must be even for complementary pairs, got 7"),
        (debiased, {"sample_weight": np.zeros(120)}, "sample_weight must not be all zero"),
        (debiased, {"X": np.ones((120, 4))}, "X has 4 features"),
        (debiased, {"y": np.ones(7)}, "y must have length 120 to match X, got length 7"),
    ],
)
def test_bad_input_is_named(function, bad, message):
    X, y = regression()
    model = SparseRegressor(k=2, lam=0.1).fit(X, y)
    arguments = {"X": X, "y": y} | bad
    with pytest.raises(ValueError, match=message):
        function(model, **arguments)


def test_other_classes_and_no_fit():
    X, y = classification()
    model = SparseClassifier(k=2, lam=0.1).fit(X, y)
    for other in (np.where(y == "yes", "yes", "maybe"), np.full(len(y), "yes")):
        with pytest.raises(ValueError, match=r"y must hold the estimator's classes \['no', 'yes'\], got"):
            debiased(model, X, other)
    for function in (debiased, bootstrap, stability_selection):
        with pytest.raises(NotFittedError):
            function(SparseClassifier(), X, y)
    with pytest.raises(TypeError, match=r"estimator must be one of this package, got LogisticRegression\(\)"):
        debiased(LogisticRegression(), X, y)
    X, y = regression()
    everything = SparseRegressor(k=1, keep=range(9), lam=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        everything.fit(X, y)
    with pytest.raises(ValueError, match="keep must leave something to choose from"):
        stability_selection(everything, X, y)


def test_frequencies_have_bars_and_the_rest_is_counted():
    frequency = np.array([1.0, 0.8, 0.5, 0.1, *[0.02] * 27, 0.0])
    names = tuple(f"gene {j}" for j in range(32))
    figure = Stability(frequency, 0.75, 3.0, 32, names).plot()
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [100, 80, 50, 10]
    assert len({bar.get_facecolor() for bar in axes.patches[:2]}) == 1 != axes.patches[2].get_facecolor()
    assert axes.get_xlabel().endswith("\n27 others, each in at most 2%")
    threshold = axes.lines[0].get_window_extent()
    assert not any(threshold.overlaps(text.get_window_extent()) for text in axes.texts if text.get_text()[0].isdigit())


def test_pictures_and_tables(monkeypatch):
    X, y = iris_like()
    model = SparseClassifier(k=2, lam=0.1, multiclass="ovr").fit(X, y)
    intervals = bootstrap(model, X, y, n_resamples=5, random_state=0)
    stability = stability_selection(model, X, y, n_resamples=4, random_state=0)
    for figure in (intervals.plot(), stability.plot()):
        FigureCanvasAgg(figure).draw()
    labels = {label.get_text() for label in intervals.plot().axes[0].get_yticklabels()}
    assert labels == {f"{'abc'[j]}: x{i}" for j, i in zip(*np.nonzero(model.coef_), strict=True)}
    assert len(stability.plot().axes[0].patches) == np.count_nonzero(stability.frequency >= 0.1)
    there = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.split(".")[0] in ("pandas", "matplotlib"):
            raise ImportError(name)
        return there(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    for found in (intervals, stability):
        with pytest.raises(ImportError, match="pip install pandas"):
            found.to_frame()
        with pytest.raises(ImportError, match="pip install 'diht"):
            found.plot()

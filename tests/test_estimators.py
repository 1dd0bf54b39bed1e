import doctest
import multiprocessing
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar
from unittest import SkipTest

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from joblib import Parallel, delayed
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LogisticRegression, PoissonRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info, threadpool_limits

from diht import Problem, SparseClassifier, SparseRegressor, solve
from diht.estimators import base, classifier, regressor
from diht.losses import LOSSES, Hinge, Huber, Logistic, Loss, Squared
from diht.result import Status
from diht.solvers import DIHT, SDIHT, Auto, BranchAndBound
from oracle import best_subset, some_weights

K_IS_CUT = "ignore:k=:UserWarning"
UNFINISHED = "ignore:max_iter=:sklearn.exceptions.ConvergenceWarning"


def regression(n=60, d=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.linspace(0.5, 3.0, d) + np.linspace(-1.0, 2.0, d)
    return X, X[:, [1, 4, 6]] @ [2.0, -1.0, 0.7] + 3.0 + rng.normal(size=n)


def classification(n=60, d=8, seed=0):
    X, u = regression(n, d, seed)
    return X, np.where(u > np.median(u), "yes", "no")


def data_for(estimator, **kwargs):
    return (regression if isinstance(estimator, SparseRegressor) else classification)(**kwargs)


BOTH = pytest.mark.parametrize("make", [SparseRegressor, SparseClassifier])


# ---------------------------------------------------------------------------------------------------------------------
# scikit-learn's own checks. Few steps, for speed: "auto" refits its best model all the same. The weights' check wants
# repeated samples to give the same model to 1e-7, which blocks drawn at random can only do where they converge.


def passes(check, estimator):
    try:
        check(estimator)
    except SkipTest as reason:
        pytest.fail(f"skipped: {reason}")


def negative_counts(estimator):
    """The check of several targets draws some that are negative, whatever the tags say; tests/test_targets.py has counts."""
    return {"check_regressor_multioutput": "targets are negative"} if estimator.loss == "poisson" else {}


@pytest.mark.filterwarnings(K_IS_CUT, UNFINISHED)
@parametrize_with_checks(
    [
        SparseRegressor(max_iter=20),
        SparseRegressor(max_iter=20, loss="poisson", standardize=True),
        SparseRegressor(solver="htp"),
        SparseClassifier(max_iter=20),
        SparseClassifier(max_iter=5, loss="multinomial", lam=0.1),
    ],
    expected_failed_checks=negative_counts,
)
def test_scikit_learn_checks(estimator, check):
    passes(check, estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings(K_IS_CUT, UNFINISHED)
@parametrize_with_checks(
    [
        SparseRegressor(max_iter=20, standardize=True),
        SparseRegressor(max_iter=20, loss="huber"),
        SparseRegressor(max_iter=20, loss="poisson"),
        SparseRegressor(solver="sdiht", k=30, lam=1.0, tol=0.0, max_iter=300, standardize=False),
        SparseClassifier(max_iter=20, standardize=True),
        SparseClassifier(max_iter=20, loss="smoothed_hinge", lam=1.0),
        SparseClassifier(solver="diht", loss="hinge", lam=1.0, max_iter=50, multiclass="ovr"),
        SparseClassifier(solver="sdiht", k=30, lam=2.0, tol=0.0, max_iter=400, standardize=False, multiclass="ovr"),
    ],
    expected_failed_checks=negative_counts,
)
def test_scikit_learn_checks_of_other_settings(estimator, check):
    passes(check, estimator)


def test_examples_of_the_docstrings():
    for module in (regressor, classifier):
        examples = doctest.testmod(module)
        assert examples.attempted > 0
        assert examples.failed == 0


# ---------------------------------------------------------------------------------------------------------------------
# The figures


@pytest.mark.parametrize("loss", ["squared", "huber", Huber(delta=0.3)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_regressor_is_problem_and_solve(loss, fit_intercept):
    X, y = regression()
    model = SparseRegressor(k=3, lam=1.0, loss=loss, fit_intercept=fit_intercept, standardize=False).fit(X, y)
    result = solve(Problem(X, y, loss, 3, 1.0, None, fit_intercept))
    assert_array_equal(model.coef_, result.w)
    assert model.intercept_ == result.intercept
    assert_array_equal(model.support_, result.support)
    assert_array_equal(model.dual_coef_, result.alpha)
    assert (model.objective_, model.lower_bound_, model.gap_) == (result.objective, result.lower_bound, result.gap)
    assert model.certificate_ is model.result_.certificate
    assert model.n_iter_ == result.n_iter
    assert isinstance(model.n_iter_, int)
    assert isinstance(model.objective_, float)
    assert model.coef_.shape == (8,)
    assert np.ndim(model.intercept_) == 0
    assert_allclose(model.predict(X), X @ model.coef_ + model.intercept_)


@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge", "hinge", "squared_hinge", Hinge()])
def test_binary_classifier_is_problem_and_solve(loss):
    X, y = classification()
    model = SparseClassifier(k=3, lam=1.0, loss=loss, standardize=False).fit(X, y)
    result = solve(Problem(X, np.where(y == "yes", 1.0, -1.0), loss, 3, 1.0, None, True))
    assert_array_equal(model.classes_, ["no", "yes"])
    assert_array_equal(model.coef_, result.w[None])
    assert_array_equal(model.intercept_, [result.intercept])
    assert_array_equal(model.dual_coef_, result.alpha)
    assert (model.objective_, model.lower_bound_, model.gap_) == (result.objective, result.lower_bound, result.gap)
    assert_allclose(model.decision_function(X), X @ model.coef_[0] + model.intercept_[0])
    assert_array_equal(model.predict(X), np.where(model.decision_function(X) > 0, "yes", "no"))
    assert model.score(X, y) > 0.8


def test_several_classes_are_one_against_the_rest_where_asked():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = SparseClassifier(k=2, lam=0.1, multiclass="ovr").fit(X, names)
    assert_array_equal(model.classes_, ["setosa", "versicolor", "virginica"])
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == model.objective_.shape == model.lower_bound_.shape == model.gap_.shape == (3,)
    assert model.dual_coef_.shape == (3, 150)
    for j, name in enumerate(model.classes_):
        one = SparseClassifier(k=2, lam=0.1).fit(X, names == name)
        assert_array_equal(model.coef_[j], one.coef_[0])
        assert (model.objective_[j], model.lower_bound_[j], model.gap_[j]) == (
            one.objective_,
            one.lower_bound_,
            one.gap_,
        )
        assert model.certificate_[j].objective == model.result_[j].objective == one.objective_
    assert np.count_nonzero(model.coef_, axis=1).max() <= 2
    assert_array_equal(model.support_, np.flatnonzero(np.any(model.coef_ != 0, axis=0)))
    assert model.n_iter_ == max(result.n_iter for result in model.result_)
    assert model.decision_function(X).shape == (150, 3)
    assert_array_equal(model.predict(X), model.classes_[model.decision_function(X).argmax(axis=1)])


@BOTH
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_bound_is_below_the_optimum_of_brute_force(make, fit_intercept, standardize, weighted):
    model = make(k=2, lam=0.05, fit_intercept=fit_intercept, standardize=standardize)
    X, y = data_for(model, n=40, d=7)
    weights = some_weights(40) if weighted else None
    model.fit(X, y, weights)
    scale = np.sqrt(np.cov(X.T, ddof=0, aweights=weights).diagonal()) if standardize else None
    targets = y if make is SparseRegressor else np.where(y == "yes", 1.0, -1.0)
    loss = "squared" if make is SparseRegressor else "logistic"
    best = best_subset(Problem(X, targets, loss, 2, 0.05, weights, fit_intercept, scale=scale)).objective
    assert 0 < model.lower_bound_ <= best * (1 + 1e-12)
    assert best * (1 - 1e-9) <= model.objective_
    assert model.gap_ == model.objective_ - model.lower_bound_
    assert model.certificate_.scaled is standardize
    assert model.result_.certificate is model.certificate_


@BOTH
@pytest.mark.parametrize("solver", ["auto", "diht", "sdiht", "iht", "htp", "svrght"])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.filterwarnings(UNFINISHED)
def test_never_more_than_k_features(make, solver, k):
    model = make(k=k, solver=solver, max_iter=30)
    X, y = data_for(model, d=30)
    X[:, 15:] = X[:, :15]  # twins: ties at the k-th place
    model.fit(X, y)
    assert np.count_nonzero(model.coef_) <= k
    assert len(model.support_) <= k
    assert model.lower_bound_ <= model.objective_


# ---------------------------------------------------------------------------------------------------------------------
# Weights, scaling


@BOTH
@pytest.mark.parametrize("standardize", [True, False])
def test_weights_count_like_repetitions(make, standardize):
    model = make(k=3, lam=1.0, standardize=standardize)
    X, y = data_for(model)
    weights = some_weights(60).astype(int)
    weighted = clone(model).fit(X, y, sample_weight=(2.5 * weights).tolist())
    repeated = clone(model).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-7)
    assert_allclose(weighted.intercept_, repeated.intercept_, rtol=1e-7)
    assert_allclose(weighted.objective_, repeated.objective_, rtol=1e-9)


@pytest.mark.parametrize("weights", [None, some_weights(60)])
@pytest.mark.parametrize("labels", [("a", "b", "b"), ("a", "b", "c")])
def test_class_weight_multiplies_sample_weight(weights, labels):
    X, u = regression()
    y = np.array(labels)[np.digitize(u, np.quantile(u, [0.2, 0.6]))]
    s = np.ones(60) if weights is None else weights
    totals = {c: s[y == c].sum() for c in np.unique(y)}
    by_hand = {c: s.sum() / (len(totals) * total) for c, total in totals.items()}
    balanced = SparseClassifier(k=3, lam=1.0, class_weight="balanced").fit(X, y, weights)
    named = SparseClassifier(k=3, lam=1.0, class_weight=by_hand).fit(X, y, weights)
    multiplied = SparseClassifier(k=3, lam=1.0).fit(X, y, s * np.array([by_hand[c] for c in y]))
    assert_allclose(balanced.coef_, named.coef_, rtol=1e-8)
    assert_allclose(named.coef_, multiplied.coef_, rtol=1e-8)
    assert_allclose(balanced.objective_, multiplied.objective_, rtol=1e-9)


@BOTH
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("weighted", [True, False])
def test_standardize_is_the_problem_of_the_scaled_columns(make, convert, weighted):
    model = make(k=3, lam=1.0, standardize=True)
    X, y = data_for(model)
    X[:, 2] = 0.1  # constant, but not to the last bit once it is averaged
    weights = some_weights(60) if weighted else None
    scaler = StandardScaler().fit(X, sample_weight=weights)
    explicit = make(k=3, lam=1.0, standardize=False).fit(scaler.transform(X), y, weights)
    model.fit(convert(X), y, weights)
    assert_allclose(model.objective_, explicit.objective_, rtol=1e-9)
    assert_allclose(model.lower_bound_, explicit.lower_bound_, rtol=1e-6)
    assert_allclose(model.coef_, explicit.coef_ / scaler.scale_, rtol=1e-6)
    assert_allclose(model.predict(X) == y, explicit.predict(scaler.transform(X)) == y)
    assert model.certificate_.scaled
    assert "standardised" in str(model.certificate_)
    assert not explicit.certificate_.scaled


def test_standardized_model_does_not_depend_on_the_units():
    X, y = regression()
    units = 10.0 ** np.arange(-4, 4)
    one, other = (SparseRegressor(k=3, lam=1.0, standardize=True).fit(A, y) for A in (X, X * units))
    assert_allclose(other.coef_ * units, one.coef_, rtol=1e-7)
    assert_allclose(other.predict(X * units), one.predict(X), rtol=1e-7)


# ---------------------------------------------------------------------------------------------------------------------
# Kinds of input


def _int64(X):
    A = sp.csr_array(X)
    A.indices, A.indptr = A.indices.astype(np.int64), A.indptr.astype(np.int64)
    return A


@BOTH
@pytest.mark.parametrize(
    "convert", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array, sp.lil_matrix, _int64, np.asfortranarray]
)
def test_sparse_and_dense_agree(make, convert):
    model = make(k=3, lam=1.0)
    X, y = data_for(model)
    X[np.abs(X) < 1.0] = 0.0
    dense, other = clone(model).fit(X, y), clone(model).fit(convert(X), y)
    assert_allclose(other.coef_, dense.coef_, rtol=1e-8)
    assert_allclose(other.objective_, dense.objective_, rtol=1e-10)
    scores = other.predict if make is SparseRegressor else other.decision_function
    assert_allclose(scores(convert(X)), dense._scores(X)[:, 0], rtol=1e-7)
    assert_allclose(other.transform(convert(X)).sum(), X[:, dense.support_].sum())


@BOTH
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
def test_float32_stays_float32(make, standardize, convert):
    model = make(k=3, lam=1.0, standardize=standardize)
    X, y = data_for(model)
    X = convert(X.astype(np.float32))
    model.fit(X, y)
    double = clone(model).fit(X.astype(np.float64), y)
    assert model.coef_.dtype == model.intercept_.dtype == np.float32
    scores = model.predict if make is SparseRegressor else model.decision_function
    assert scores(X).dtype == np.float32
    assert_allclose(model.coef_, double.coef_, rtol=1e-4)
    assert model.lower_bound_ <= double.objective_
    if make is SparseClassifier:
        assert model.predict_proba(X).dtype == model.predict_log_proba(X).dtype == np.float32


@BOTH
@pytest.mark.parametrize("convert", [np.ascontiguousarray, np.asfortranarray, sp.csr_array, sp.csc_matrix])
def test_prediction_through_the_columns_of_the_support(make, convert):
    model = make(k=2, lam=0.5)
    X, y = data_for(model, d=200)
    model.fit(X, y)
    assert base._FEW * len(model.support_) <= 200
    expected = X @ np.ravel(model.coef_) + model.intercept_
    scores = model.predict if make is SparseRegressor else model.decision_function
    assert_allclose(scores(convert(X)), expected, rtol=1e-12)


@BOTH
def test_read_only_input_is_left_alone(make):
    model = make(k=3, lam=1.0, standardize=True)
    X, y = data_for(model)
    weights = some_weights(60)
    kept = X.copy(), y.copy(), weights.copy()
    for array in (X, y, weights):
        array.flags.writeable = False
    model.fit(X, y, weights).predict(X)
    assert all(np.array_equal(a, b) for a, b in zip(kept, (X, y, weights), strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Parameters


def test_warm_start_goes_on_where_the_last_fit_ended():
    X, y = regression()
    model = SparseRegressor(k=3, lam=1.0, warm_start=True, solver="diht").fit(X, y)
    steps, objective, bound = model.n_iter_, model.objective_, model.lower_bound_
    model.fit(X, y)
    assert model.n_iter_ < steps / 2
    assert model.objective_ <= objective
    assert model.lower_bound_ >= bound * (1 - 1e-9)


@BOTH
@pytest.mark.parametrize("standardize", [True, False])
def test_warm_start_with_other_data(make, standardize):
    """The model carries over, in its own units, where only the samples change; where the features do, nothing does."""
    model = make(k=3, lam=1.0, warm_start=True, solver="diht", standardize=standardize)
    X, y = data_for(model)
    model.fit(X, y)
    cold = clone(model).fit(X[:-1], y[:-1])
    model.fit(X[:-1], y[:-1])
    assert model.n_iter_ < cold.n_iter_
    assert model.result_.trace[0].iteration == 0
    assert model.result_.trace[0].best_objective < 1.01 * cold.objective_
    fewer = model.fit(X[:, :5], y)
    assert_array_equal(fewer.coef_, clone(model).fit(X[:, :5], y).coef_)


def test_warm_start_forgets_other_classes():
    X, y = load_iris(return_X_y=True)
    model = SparseClassifier(k=2, lam=0.1, warm_start=True)
    n_cold = model.fit(X, y).n_iter_
    assert model.fit(X, y).n_iter_ < n_cold
    assert_array_equal(model.fit(X, y == 1).coef_, clone(model).fit(X, y == 1).coef_)
    assert model.fit(X, y).n_iter_ == n_cold


def test_random_state_is_the_seed_of_the_solver():
    X, y = regression()
    problem = Problem(X, y, "squared", 3, 1.0, None, True)

    def coef(random_state, solver="sdiht", max_iter=7):
        model = SparseRegressor(3, 1.0, solver=solver, max_iter=max_iter, random_state=random_state, standardize=False)
        with pytest.warns(ConvergenceWarning):
            return model.fit(X, y).coef_

    assert_array_equal(coef(5), solve(problem, SDIHT(random_state=5), max_iter=7).w)
    assert_array_equal(coef(None), solve(problem, SDIHT(), max_iter=7).w)
    assert_array_equal(coef(None, SDIHT(blocks=5, random_state=3)), coef(3, SDIHT(blocks=5)))
    assert_array_equal(coef(np.random.RandomState(1)), coef(np.random.RandomState(1)))
    assert not np.array_equal(coef(np.random.RandomState(1)), coef(np.random.RandomState(2)))


@pytest.mark.parametrize("solver", ["sdiht", "svrght"])
def test_named_solvers_cut_few_samples_in_fewer_blocks(solver):
    model = SparseRegressor(1, 1.0, solver=solver).fit(np.eye(3), [1.0, 2.0, 6.0])
    assert_array_equal(model.support_, [2])


@pytest.mark.parametrize(("n_jobs", "threads"), [(1, 1), (2, 2)])
def test_n_jobs_limits_kernels_and_blas(monkeypatch, n_jobs, threads):
    seen = []

    def spy(problem, *args, **kwargs):
        blas = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
        seen.append((problem.design.n_threads, *blas))
        return solve(problem, *args, **kwargs)

    monkeypatch.setattr(base, "solve", spy)
    X, y = regression()
    with threadpool_limits(3, "blas"):
        model = SparseRegressor(3, 1.0, n_jobs=n_jobs).fit(X, y)
    assert seen[0][0] == threads
    assert all(blas <= threads for blas in seen[0][1:])
    assert_allclose(model.coef_, SparseRegressor(3, 1.0).fit(X, y).coef_, rtol=1e-9)


def test_verbose_prints_a_line_an_evaluation(capsys):
    X, y = regression()
    model = SparseRegressor(3, 1.0, verbose=True).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(model.result_.trace)
    assert all("objective" in line and "bound" in line and "relative gap" in line for line in lines)
    X, y = load_iris(return_X_y=True)
    shared = SparseClassifier(2, 1.0, verbose=True).fit(X, y)
    assert len(capsys.readouterr().out.splitlines()) == len(shared.result_.trace)
    SparseClassifier(2, 1.0, verbose=True, multiclass="ovr").fit(X, np.array(["x", "y", "z"])[y])
    assert {line.split(":")[0] for line in capsys.readouterr().out.splitlines()} == {
        "class 'x'",
        "class 'y'",
        "class 'z'",
    }
    SparseClassifier(2, 1.0).fit(X, y)
    assert capsys.readouterr().out == ""


def test_too_few_steps_warn_only_where_they_were_asked_for():
    X, y = regression()
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 was reached with a relative gap of") as warned:
        model = SparseRegressor(3, 1e-3, max_iter=2, solver="diht").fit(X, y)
    assert warned[0].filename == __file__
    assert model.n_iter_ == 2
    assert model.result_.status is Status.MAX_ITER
    model = SparseRegressor(3, 1e-6, solver="diht").fit(X, y)  # warnings are errors here
    assert model.result_.status is not Status.OPTIMAL


def test_time_limit_is_shared_by_the_classes():
    X, y = load_iris(return_X_y=True)
    model = SparseClassifier(2, 1e-4, solver="diht", time_limit=1e-6, multiclass="ovr").fit(X, y)
    assert [result.status for result in model.result_] == [Status.TIME_LIMIT] * 3


@BOTH
def test_k_beyond_the_features_becomes_their_number(make):
    model = make(k=100, lam=1.0)
    X, y = data_for(model)
    with pytest.warns(UserWarning, match=r"k=100 is more than the 8 features") as warned:
        model.fit(X, y)
    assert warned[0].filename == __file__
    assert_array_equal(model.coef_, make(k=8, lam=1.0).fit(X, y).coef_)
    assert model.k == 100


@dataclass(frozen=True)
class HalfSquared(Loss):
    """(u - y)^2 / 2, written with no more than a loss must have."""

    name: ClassVar[str] = "half squared"
    mu: ClassVar[float] = 1.0

    def value(self, u, y):
        return 0.5 * (u - y) ** 2

    def derivative(self, u, y):
        return u - y

    def conjugate(self, a, y):
        return 0.5 * a**2 + a * y

    def conjugate_derivative(self, a, y):
        return a + y

    def domain(self, y):
        return -np.inf, np.inf


def test_loss_of_ones_own():
    X, y = regression()
    own = SparseRegressor(3, 1.0, loss=HalfSquared(), tol=1e-8).fit(X, y)
    built_in = SparseRegressor(3, 2.0, loss=Squared(), tol=1e-8).fit(X, y)
    assert_allclose(own.coef_, built_in.coef_, rtol=1e-6)
    assert_allclose(2 * own.objective_, built_in.objective_, rtol=1e-7)
    assert_allclose(2 * own.lower_bound_, built_in.lower_bound_, rtol=1e-7)


# ---------------------------------------------------------------------------------------------------------------------
# Probabilities


def test_probabilities_of_two_classes():
    X, y = classification()
    model = SparseClassifier(3, 0.01).fit(X, y)
    u = model.decision_function(X)
    assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-u)), rtol=1e-12)
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-14)
    assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))


def test_probabilities_of_several_classes_survive_underflow():
    X, y = load_iris(return_X_y=True)
    for multiclass, odds in (("ovr", lambda u: 1 / (1 + np.exp(-u))), ("shared", np.exp)):
        model = SparseClassifier(2, 0.1, multiclass=multiclass).fit(X, y)
        p = odds(model.decision_function(X))
        assert_allclose(model.predict_proba(X), p / p.sum(axis=1, keepdims=True), rtol=1e-12)
        model.intercept_ -= 1e4  # every class is all but impossible
        assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
        assert np.all(np.isfinite(model.predict_log_proba(X)))


def test_only_the_logistic_loss_has_probabilities():
    X, y = classification()
    assert hasattr(SparseClassifier(3, loss=Logistic()).fit(X, y), "predict_proba")
    model = SparseClassifier(3, 0.1, loss="hinge").fit(X, y)
    assert not hasattr(model, "predict_proba")
    assert not hasattr(model, "predict_log_proba")
    with pytest.raises(AttributeError) as error:
        model.predict_proba(X)
    assert "probabilities need loss='logistic' or 'multinomial', got loss='hinge'" in str(error.value)


# ---------------------------------------------------------------------------------------------------------------------
# Among scikit-learn's tools


@BOTH
def test_selector(make):
    model = make(k=3, lam=1.0)
    X, y = data_for(model)
    model.fit(X, y)
    support = np.flatnonzero(model.coef_)
    assert_array_equal(model.get_support(indices=True), support)
    assert_array_equal(model.transform(X), X[:, support])
    kept = np.zeros_like(X)
    kept[:, support] = X[:, support]
    assert_array_equal(model.inverse_transform(model.transform(X)), kept)
    assert list(model.get_feature_names_out()) == [f"x{j}" for j in support]


@BOTH
def test_names_of_features(make):
    model = make(k=3, lam=1.0)
    X, y = data_for(model)
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    model.fit(frame, y)
    assert list(model.feature_names_in_) == list("abcdefgh")
    names = [f"{frame.columns[j]}" for j in model.support_]
    assert list(model.get_feature_names_out()) == names
    assert list(model.set_output(transform="pandas").transform(frame).columns) == names
    assert_allclose(model.predict(frame) == y, clone(model).fit(X, y).predict(X) == y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("hgfedcba")])


def test_pipelines_and_searches():
    X, y = classification(n=90)
    chain = make_pipeline(SparseClassifier(k=3, lam=1.0), LogisticRegression()).fit(X, y)
    assert chain[-1].coef_.shape == (1, 3)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), SparseClassifier(lam=0.1)), {"sparseclassifier__k": [1, 3]}, cv=3, n_jobs=1
    )
    assert search.fit(X, y).best_params_ == {"sparseclassifier__k": 3}
    assert search.score(X, y) > 0.8


@BOTH
def test_clones_and_pickles(make):
    model = make(k=3, lam=1.0, loss=Huber(2.0) if make is SparseRegressor else Logistic(), solver=SDIHT(blocks=4))
    X, y = data_for(model, n=100, d=1000)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    model.fit(X, y)
    assert not hasattr(clone(model), "coef_")
    data = pickle.dumps(model)
    assert len(data) < X.nbytes / 4  # the data stay behind
    restored = pickle.loads(data)
    assert_array_equal(restored.predict(X), model.predict(X))
    assert str(restored.certificate_) == str(model.certificate_)


def test_column_of_targets_warns():
    X, y = regression()
    with pytest.warns(DataConversionWarning):
        model = SparseRegressor(3, 1.0).fit(X, y[:, None])
    assert_array_equal(model.coef_, SparseRegressor(3, 1.0).fit(X, y).coef_)


# ---------------------------------------------------------------------------------------------------------------------
# Callbacks

needs_callbacks = pytest.mark.skipif(not hasattr(SparseRegressor, "set_callbacks"), reason="scikit-learn before 1.9")


class Recorder:
    """A callback that keeps what it hears and stops after some evaluations."""

    def __init__(self, stop_after=np.inf):
        self.stop_after, self.events, self.scores = stop_after, [], []

    def setup(self, estimator, context):
        self.events.append("setup")

    def teardown(self, estimator, context):
        self.events.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.events.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        self.events.append(f"end {context.task_name}")
        if fitted_estimator is not None:
            self.scores.append(fitted_estimator.score(X, y))
        return self.events.count("end evaluation") >= self.stop_after


@needs_callbacks
@BOTH
@pytest.mark.parametrize("standardize", [True, False])
def test_callback_hears_every_evaluation(make, standardize):
    model = make(k=3, lam=1.0, standardize=standardize)
    X, y = data_for(model)
    recorder = Recorder()
    model.set_callbacks(recorder).fit(pd.DataFrame(X, columns=list("abcdefgh")), y)
    n = len(model.result_.trace)
    assert recorder.events == ["setup", "begin fit", *["begin evaluation", "end evaluation"] * n, "end fit", "teardown"]
    assert len(recorder.scores) == n + 1
    assert_allclose(recorder.scores[-1], model.score(pd.DataFrame(X, columns=list("abcdefgh")), y))
    assert_allclose(recorder.scores[-2], recorder.scores[-1], atol=0.05)


@needs_callbacks
def test_callback_stops_a_fit():
    X, y = regression()
    model = SparseRegressor(3, 1e-3, solver="diht").set_callbacks(Recorder(stop_after=4)).fit(X, y)
    assert model.result_.status is Status.STOPPED
    assert len(model.result_.trace) == 4


@needs_callbacks
def test_callback_of_several_classes():
    X, y = load_iris(return_X_y=True)
    recorder = Recorder()
    model = SparseClassifier(2, 0.1, multiclass="ovr").set_callbacks(recorder).fit(X, y)
    assert recorder.events.count("begin class") == recorder.events.count("end class") == 3
    assert recorder.events.count("end evaluation") == sum(len(result.trace) for result in model.result_)
    assert recorder.scores == [model.score(X, y)]


@needs_callbacks
def test_callback_is_torn_down_after_an_error():
    X, y = regression()
    recorder = Recorder()
    with pytest.raises(ValueError, match="lam"):
        SparseRegressor(k=3, lam=-1.0).set_callbacks(recorder).fit(X, y)
    assert recorder.events[-1] == "teardown"


@needs_callbacks
def test_scoring_monitor_and_progress_bar():
    from sklearn.callback import ProgressBar, ScoringMonitor

    X, y = regression()
    monitor = ScoringMonitor(scoring="r2")
    model = SparseRegressor(3, 0.1).set_callbacks(monitor, ProgressBar()).fit(X, y, sample_weight=some_weights(60))
    scores = [row["r2"] for row in monitor.get_logs().data]
    assert len(scores) == len(model.result_.trace) + 1
    assert max(scores) > 0.8
    search = GridSearchCV(SparseRegressor(lam=1.0), {"k": [1, 3]}, cv=3).set_callbacks(ProgressBar())
    assert search.fit(X, y).best_params_ == {"k": 3}


@needs_callbacks
def test_no_context_is_made_without_callbacks(monkeypatch):
    def fail(*args, **kwargs):
        raise AssertionError("a context was made")

    monkeypatch.setattr(SparseRegressor, "_init_callback_context", fail)
    SparseRegressor(3, 1.0).fit(*regression())


def test_without_scikit_learns_callbacks():
    program = """
import sys
import numpy as np
import sklearn.feature_selection, sklearn.linear_model
sys.modules["sklearn.callback"] = None
from diht import SparseRegressor
X = np.random.default_rng(0).normal(size=(30, 5))
model = SparseRegressor(k=1, lam=0.1, verbose=True).fit(X, X[:, 3])
assert model.support_.tolist() == [3]
assert not hasattr(model, "set_callbacks")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "relative gap" in done.stdout


# ---------------------------------------------------------------------------------------------------------------------
# Mistakes


@BOTH
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"k": -3}, "k must be at least 1, got -3"),
        ({"k": 2.5}, "k must be a whole number, got 2.5"),
        ({"k": "all"}, "k must be a whole number, got 'all'"),
        ({"lam": 0}, "lam must be positive and finite, got 0"),
        ({"lam": -1.0}, "lam must be positive and finite, got -1.0"),
        ({"lam": np.nan}, "lam must be positive and finite, got nan"),
        ({"lam": "small"}, "lam must be a positive number, got 'small'"),
        ({"solver": "magic"}, "solver must be one of ['auto', 'diht'"),
        ({"solver": 3}, "solver must be one of ['auto', 'diht'"),
        ({"tol": -1.0}, "tol must be a number, zero or more, got -1.0"),
        ({"tol": "tight"}, "tol must be a number, zero or more, got 'tight'"),
        ({"max_iter": 0}, "max_iter must be a whole number, one or more, got 0"),
        ({"max_iter": "few"}, "max_iter must be a whole number, one or more, got 'few'"),
        ({"time_limit": 0}, "time_limit must be positive"),
        ({"time_limit": "short"}, "time_limit must be positive, got 'short'"),
        ({"n_jobs": 0}, "n_jobs must be None or an integer other than 0, got 0"),
        ({"exact": True, "solver": "iht"}, "exact=True needs solver='auto' or 'branch', got solver='iht'"),
        ({"exact": True, "solver": DIHT()}, "exact=True needs solver='auto' or 'branch', got solver=DIHT("),
    ],
)
def test_bad_parameters(make, parameters, message):
    model = make(**parameters)
    with pytest.raises(ValueError) as error:
        model.fit(*data_for(model, d=20))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("loss", ["logistic", "nonsense", Logistic(), None, Squared])
def test_regressor_wants_a_loss_for_regression(loss):
    known = [kind.name for kind in LOSSES.values() if kind.task == "regression"]
    with pytest.raises(ValueError, match=re.escape(f"loss must be one of {known}, or a Loss object for regression")):
        SparseRegressor(loss=loss).fit(*regression(d=20))


@pytest.mark.parametrize("loss", ["squared", "nonsense", Huber(), None])
def test_classifier_wants_a_loss_for_classification(loss):
    with pytest.raises(
        ValueError, match=r"loss must be one of \[.*'logistic'.*\], or a Loss object for classification"
    ):
        SparseClassifier(loss=loss).fit(*classification(d=20))


def _with(array, value):
    array = array.copy()
    array[3] = value
    return array


@BOTH
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(60), "sample_weight must not be all zero"),
        (_with(np.ones(60), -1.0), "sample_weight must not be negative, got -1.0 at position 3"),
        (_with(np.ones(60), np.nan), "sample_weight must be finite, got nan at position 3"),
        (np.ones(59), "sample_weight must have length 60 to match X, got length 59"),
        (np.ones((60, 2)), "sample_weight must be one-dimensional, got shape (60, 2)"),
        (np.full(60, "heavy"), "sample_weight must be numeric"),
    ],
)
def test_bad_weights(make, weights, message):
    model = make(k=3)
    with pytest.raises(ValueError) as error:
        model.fit(*data_for(model), sample_weight=weights)
    assert message in str(error.value)


@BOTH
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (_with(X, np.nan), y), "X contains NaN"),
        (lambda X, y: (_with(X, np.inf), y), "X contains infinity"),
        (lambda X, y: (sp.csr_array(_with(X, np.nan)), y), "X contains NaN"),
        (lambda X, y: (X.astype(complex), y), "Complex data not supported"),
        (lambda X, y: (np.full(X.shape, "text"), y), "could not convert string to float"),
        (lambda X, y: (np.full(X.shape, {}, dtype=object), y), "must be a string or a real number, not 'dict'"),
        (lambda X, y: (X[:, 0], y), "X must have rows and columns"),
        (lambda X, y: (X[:0], y[:0]), "0 sample"),
        (lambda X, y: (X[:-1], y), "y must have length 59 to match X, got length 60"),
        (lambda X, y: (X, None), "requires y to be passed"),
        (lambda X, y: (X, np.full(60, np.nan)), "y contains NaN"),
    ],
)
def test_bad_data(make, change, message):
    model = make(k=3)
    with pytest.raises((ValueError, TypeError)) as error:
        model.fit(*change(*data_for(model)))
    assert message in str(error.value)


@pytest.mark.parametrize("standardize", [False, True])
def test_values_too_large(standardize):
    X, y = regression()
    X[0, 5] = 1e200
    with pytest.raises(ValueError, match="X must not hold numbers beyond"):
        SparseRegressor(3, standardize=standardize).fit(X, y)


def test_text_is_no_target_of_a_regression():
    with pytest.raises(ValueError, match="y must be numeric"):
        SparseRegressor(3).fit(*classification())


@pytest.mark.parametrize(
    ("y", "weights", "class_weight", "message"),
    [
        (["a"] * 60, None, None, "y must hold at least two classes, got only one class: 'a'"),
        (np.repeat([1, 2], 30), np.repeat([1, 0], 30), None, "every class needs some weight, but class 2 has none"),
        (
            np.repeat([1, 2], 30),
            np.repeat([0, 1], 30),
            "balanced",
            "every class needs some weight, but class 1 has none",
        ),
        (np.repeat([1, 2], 30), None, {1: 0}, "every class needs some weight, but class 1 has none"),
        (np.repeat([1, 2], 30), None, {1: -2.0}, "class_weight must not be negative, got {1: -2.0}"),
        (np.repeat([1, 2], 30), None, "heavy", "class_weight"),
        (np.linspace(0, 1, 60), None, None, "Unknown label type: continuous"),
    ],
)
def test_bad_classes(y, weights, class_weight, message):
    X, _ = classification()
    with pytest.raises(ValueError) as error:
        SparseClassifier(3, class_weight=class_weight).fit(X, y, weights)
    assert message in str(error.value)


# exact


@pytest.mark.parametrize("solver", ["auto", "branch", Auto(random_state=3), BranchAndBound(random_state=3)])
def test_exact_branches(solver):
    X, y = noisy_regression()
    fast = SparseRegressor(k=4, lam=1e-4, tol=1e-8, solver=Auto(branching=False)).fit(X, y)
    model = SparseRegressor(k=4, lam=1e-4, tol=1e-8, exact=True, solver=solver).fit(X, y)
    assert fast.gap_ > 1e-3 * fast.objective_
    assert model.result_.status is Status.OPTIMAL
    assert model.objective_ <= fast.objective_ * (1 + 1e-12)
    assert fast.lower_bound_ <= model.lower_bound_ * (1 + 1e-12)
    seed = getattr(solver, "random_state", 0)
    assert model.result_.solver == repr(BranchAndBound(random_state=seed))


def test_auto_branches_under_its_own_name():
    model = SparseRegressor(k=4, lam=1e-4).fit(*noisy_regression())
    assert "BranchAndBound" not in model.result_.solver
    assert model.result_.status is Status.OPTIMAL


def test_a_warm_start_goes_on_with_the_tree():
    X, y = noisy_regression()
    model = SparseRegressor(k=4, lam=1e-4, tol=1e-8, solver=BranchAndBound(max_nodes=2), warm_start=True).fit(X, y)
    assert model.result_.status is not Status.OPTIMAL
    bounds = [model.lower_bound_]
    for _ in range(50):
        bounds.append(model.fit(X, y).lower_bound_)
        if model.result_.status is Status.OPTIMAL:
            break
    assert model.result_.status is Status.OPTIMAL
    assert np.all(np.diff(bounds) >= -1e-12)
    exact = SparseRegressor(k=4, lam=1e-4, tol=1e-8, exact=True).fit(X, y)
    assert model.objective_ == pytest.approx(exact.objective_, rel=1e-8)


def noisy_regression():
    """Correlated columns, hardly more samples than features: no gap closes without branching."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((16, 14)) + rng.standard_normal((16, 1))
    return X, X[:, :4].sum(axis=1) + 2.0 * rng.standard_normal(16)


# ---------------------------------------------------------------------------------------------------------------------
# Counts and offsets


def counts(n: int = 200, d: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples, counts with exposures, and the logarithms of these."""
    rng = np.random.default_rng(3)
    X, offset = rng.normal(size=(n, d)), rng.normal(size=n)
    return X, rng.poisson(np.exp(0.6 * X[:, 0] - 0.4 * X[:, 3] + offset)).astype(float), offset


def test_with_all_features_counts_are_fitted_as_by_scikit_learn() -> None:
    X, y, _ = counts()
    weights = np.random.default_rng(0).random(len(y))
    ours = SparseRegressor(k=6, lam=0.1, loss="poisson", standardize=False).fit(X, y, weights)
    theirs = PoissonRegressor(alpha=0.1, tol=1e-10, max_iter=1000).fit(X, y, weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-7)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-7)
    assert ours.score(X, y, weights) == pytest.approx(theirs.score(X, y, weights), rel=1e-9)
    assert ours.result_.status is Status.OPTIMAL


def test_the_score_of_counts_that_are_all_equal() -> None:
    X, y, _ = counts()
    model = SparseRegressor(k=2, lam=0.1, loss="poisson").fit(X, y)
    assert model.score(X, np.full_like(y, 2.0)) == 0.0
    nothing = SparseRegressor(k=2, lam=0.1, loss="poisson").fit(X, 0.0 * y)
    assert nothing.score(X, 0.0 * y) == 1.0
    assert nothing.objective_ == 0.0


@pytest.mark.parametrize("loss", ["squared", "huber", "poisson"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_an_offset_is_part_of_the_prediction(loss: str, fit_intercept: bool, convert) -> None:
    X, y, offset = counts(60)
    weights, lam = np.random.default_rng(1).random(60), 0.05
    s, kind = weights / weights.sum(), LOSSES[loss]()
    model = SparseRegressor(
        k=2, lam=lam, loss=loss, exact=True, tol=1e-7, fit_intercept=fit_intercept, standardize=True
    )
    model.fit(convert(X), y, weights, offset=offset)
    scale = np.sqrt(s @ X**2 - (s @ X) ** 2)

    def objective(x: np.ndarray, support: tuple[int, ...]) -> float:
        columns = list(support)
        u = X[:, columns] / scale[columns] @ x[:-1] + x[-1] * fit_intercept + offset
        return float(s @ kind.value(u, y) + lam / 2 * x[:-1] @ x[:-1])

    best = min(
        minimize(objective, np.zeros(3), (pair,), options={"gtol": 1e-8}).fun for pair in combinations(range(6), 2)
    )
    assert model.lower_bound_ <= best * (1 + 1e-9)
    assert model.objective_ == pytest.approx(best, rel=1e-6)
    x = np.append((model.coef_ * scale)[model.support_], model.intercept_)
    assert objective(x, tuple(model.support_)) == pytest.approx(model.objective_, rel=1e-12)
    u = X @ model.coef_ + model.intercept_ + offset
    np.testing.assert_allclose(model.predict(X, offset=offset), np.exp(u) if loss == "poisson" else u, rtol=1e-12)
    assert model.score(X, y, offset=offset) > model.score(X, y)


def test_offsets_and_counts_that_are_refused() -> None:
    X, y, offset = counts(20)
    model = SparseRegressor(k=2, loss="poisson")
    with pytest.raises(ValueError, match=r"^y must not be negative for the poisson loss, got -1.0 at position 0$"):
        model.fit(X, y - y[0] - 1.0)
    with pytest.raises(ValueError, match=r"^offset must have length 20 to match X, got length 19$"):
        model.fit(X, y, offset=offset[1:])
    with pytest.raises(
        ValueError, match=r"^offset must not be so large for the poisson loss, got 800.0 at position 3$"
    ):
        model.fit(X, y, offset=np.where(np.arange(20) == 3, 800.0, 0.0))
    with pytest.raises(ValueError, match=r"^offset cannot be used with the logistic loss"):
        Problem(X, np.where(y > 1, 1.0, -1.0), Logistic(), 2, offset=offset)
    fitted = model.fit(X, y, offset=offset)
    with pytest.raises(ValueError, match=r"^offset must have length 5 to match X"):
        fitted.predict(X[:5], offset=offset)


# ---------------------------------------------------------------------------------------------------------------------
# Side by side


def _fitted(seed):
    X, y = classification(n=150, d=20, seed=seed)
    model = SparseClassifier(k=4, lam=0.01, n_jobs=2).fit(sp.csr_array(X), y)
    return model.coef_, model.intercept_, model.lower_bound_


@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(
    "backend", ["threads", pytest.param("fork", marks=pytest.mark.linux), pytest.param("loky", marks=pytest.mark.slow)]
)
def test_fits_side_by_side_are_the_same(backend):
    expected = [_fitted(seed) for seed in range(4)]
    if backend == "fork":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found = pool.map(_fitted, range(4))
    else:
        found = Parallel(n_jobs=2, backend={"threads": "threading"}.get(backend, backend))(
            delayed(_fitted)(seed) for seed in range(4)
        )
    for (coef, intercept, bound), (w, b, other) in zip(expected, found, strict=True):
        assert_allclose(w, coef, rtol=1e-9)
        assert_allclose(b, intercept, rtol=1e-9)
        assert other == pytest.approx(bound, rel=1e-9)


# Beside scikit-learn's own tools


def test_a_loss_without_probabilities_says_where_to_get_some():
    X, y = classification()
    model = SparseClassifier(3, loss="hinge").fit(X, y)
    with pytest.raises(AttributeError, match=r"need loss='logistic'.*got loss='hinge'.*CalibratedClassifierCV"):
        _ = model.predict_proba
    p = CalibratedClassifierCV(SparseClassifier(3, loss="hinge"), cv=3).fit(X, y).predict_proba(X)
    assert p.shape == (len(y), 2)
    assert np.mean(np.asarray(np.unique(y))[p.argmax(axis=1)] == y) > 0.5


@pytest.mark.parametrize("n_classes", [2, 3])
def test_select_from_model_keeps_what_the_model_has(n_classes):
    X, u = regression()
    y = np.digitize(u, np.quantile(u, np.arange(1, n_classes) / n_classes))
    X = X * np.geomspace(1e-6, 1e6, X.shape[1])  # sizes of coefficients tell nothing
    model = SparseClassifier(3).fit(X, y)
    selector = SelectFromModel(SparseClassifier(3), threshold=1e-300).fit(X, y)
    np.testing.assert_array_equal(selector.get_support(), model.get_support())
    np.testing.assert_array_equal(selector.transform(X), model.transform(X))
    assert model.get_support().sum() == 3
    piped = make_pipeline(SparseClassifier(3), SparseClassifier(3)).fit(X, y)
    assert piped[-1].n_features_in_ == 3

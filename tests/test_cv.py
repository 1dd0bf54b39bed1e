import doctest
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils.estimator_checks import parametrize_with_checks

import diht.estimators.cross_validation
from diht import SparseClassifier, SparseClassifierCV, SparseRegressor, SparseRegressorCV, sparse_path
from oracle import some_weights
from test_estimators import classification, passes, regression

BOTH = pytest.mark.parametrize("make", [SparseRegressorCV, SparseClassifierCV])


def data_for(make, **kwargs):
    return (regression if make is SparseRegressorCV else classification)(**kwargs)


CUT_OR_UNEVEN = "ignore:ks up to:UserWarning", "ignore:The least populated class:UserWarning"


@pytest.mark.filterwarnings(*CUT_OR_UNEVEN)
@parametrize_with_checks([SparseRegressorCV(ks=[1, 2], lams=1.0, cv=2)])
def test_scikit_learn_checks(estimator, check):
    passes(check, estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings(*CUT_OR_UNEVEN)
@parametrize_with_checks(
    [
        SparseRegressorCV(ks=[1, 2], cv=3),
        SparseRegressorCV(criterion="bic", ks=[1, 2, 3, 5, 7, 10]),
        SparseClassifierCV(ks=[1, 2], lams=1.0, cv=2),
        SparseClassifierCV(ks=[1, 2], cv=3),
        SparseClassifierCV(ks=[2], cv=2, criterion="1se", loss="smoothed_hinge", lams=[1.0, 2.0]),
    ]
)
def test_scikit_learn_checks_of_other_settings(estimator, check):
    passes(check, estimator)


def test_examples_of_the_docstrings():
    assert doctest.testmod(diht.estimators.cross_validation).failed == 0


# ---------------------------------------------------------------------------------------------------------------------
# Scores


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
def test_scores_are_those_of_a_loop_over_folds(weighted, standardize):
    X, y = regression()
    weights = some_weights(60) if weighted else None
    ks, lams, cv = [1, 2, 4], [0.01, 1.0], KFold(4)
    model = SparseRegressorCV(ks=ks, lams=lams, cv=cv, standardize=standardize).fit(X, y, weights)
    expected = []
    for train, test in cv.split(X):
        s = None if weights is None else weights[train]
        path = sparse_path(X[train], y[train], ks=ks, lams=lams, sample_weight=s, standardize=standardize)
        t = None if weights is None else weights[test]
        errors = [mean_squared_error(y[test], X[test] @ p.coef + p.intercept, sample_weight=t) for p in path]
        expected.append(-np.array(errors))
    results = model.cv_results_
    for i, row in enumerate(expected):
        assert_allclose(results[f"split{i}_test_score"], row)
    assert_allclose(results["mean_test_score"], np.mean(expected, axis=0))
    assert_allclose(results["std_test_score"], np.std(expected, axis=0))
    assert results["params"] == [{"k": k, "lam": lam} for lam in lams for k in ks]
    best = int(np.argmax(np.mean(expected, axis=0)))
    assert results["rank_test_score"][best] == 1
    assert {"k": model.best_k_, "lam": model.best_lam_} == results["params"][best]
    assert (model.best_index_, model.n_splits_) == (best, 4)
    assert model.best_score_ == results["mean_test_score"][best]


@pytest.mark.parametrize("multiclass", ["shared", "ovr"])
def test_scores_of_a_classifier_with_three_classes(multiclass):
    X, _ = regression(n=90)
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 1] + X[:, 4], [-1.0, 2.0])]
    cv = StratifiedKFold(3)
    settings = {"class_weight": "balanced", "multiclass": multiclass}
    model = SparseClassifierCV(ks=[1, 3], lams=0.1, cv=cv, scoring="neg_log_loss", **settings).fit(X, y)
    for i, (train, test) in enumerate(cv.split(X, y)):
        for j, k in enumerate([1, 3]):
            plain = SparseClassifier(k=k, lam=0.1, **settings).fit(X[train], y[train])
            score = -log_loss(y[test], plain.predict_proba(X[test]))
            assert model.cv_results_[f"split{i}_test_score"][j] == pytest.approx(score, rel=1e-3)
    assert model.coef_.shape == (3, 8)
    if multiclass == "ovr":
        assert len(model.path_) == len(model.certificate_) == 3
    else:
        assert [point.k for point in model.path_] == [1, 3]
        assert len(model.support_) <= model.best_k_
    assert_array_equal(model.classes_, ["a", "b", "c"])


@BOTH
def test_the_final_model_is_that_of_the_plain_estimator(make):
    X, y = data_for(make)
    model = make(ks=[2, 3, 5], lams=[0.1, 1.0], cv=3).fit(X, y)
    plain = (SparseRegressor if make is SparseRegressorCV else SparseClassifier)(k=model.best_k_, lam=model.best_lam_)
    plain.fit(X, y)
    assert model.objective_ <= plain.objective_ * (1 + 1e-6)
    assert model.lower_bound_ <= plain.objective_
    assert_array_equal(model.support_, plain.support_)
    assert_allclose(model.coef_, plain.coef_, rtol=1e-4)
    assert_array_equal(model.predict(X), plain.predict(X)) if make is SparseClassifierCV else None
    assert model.transform(X).shape == (60, len(model.support_))
    assert model.score(X, y) == pytest.approx(plain.score(X, y), abs=1e-4)
    assert model.certificate_.bound.alpha.shape == (60,)
    assert model.path_.point(model.best_k_, model.best_lam_).objective >= model.objective_ * (1 - 1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# Rules


def test_one_standard_error_rule():
    X, y = regression(n=80, seed=2)
    best = SparseRegressorCV(ks=range(1, 9), lams=[0.01, 0.1], cv=5).fit(X, y)
    model = SparseRegressorCV(ks=range(1, 9), lams=[0.01, 0.1], cv=5, criterion="1se", refit=False).fit(X, y)
    results = best.cv_results_
    scores = np.array([results[f"split{i}_test_score"][best.best_index_] for i in range(5)])
    enough = results["mean_test_score"] >= best.best_score_ - scores.std(ddof=1) / np.sqrt(5)
    assert model.best_k_ == results["param_k"][enough].min()
    assert model.best_k_ <= best.best_k_
    same_k = enough & (results["param_k"] == model.best_k_)
    assert model.best_score_ == results["mean_test_score"][same_k].max()


def test_of_equal_scores_the_smallest_model_and_the_largest_ridge_are_taken():
    X, y = regression()
    model = SparseRegressorCV(ks=[3, 2], lams=[0.1, 1.0], scoring=lambda *_: 1.0, cv=2).fit(X, y)
    assert (model.best_k_, model.best_lam_) == (2, 1.0)


@pytest.mark.parametrize("criterion", ["aic", "bic", "ebic"])
def test_information_criteria(criterion):
    X, y = regression()
    model = SparseRegressorCV(ks=range(1, 8), lams=[1e-3, 1e-2], criterion=criterion, cv="not needed").fit(X, y)
    path = sparse_path(X, y, ks=range(1, 8), lams=[1e-3, 1e-2])
    assert_allclose(model.cv_results_[criterion], path.criterion(criterion))
    chosen = path[int(np.argmin(path.criterion(criterion)))]
    assert (model.best_k_, model.best_lam_) == (chosen.k, chosen.lam)
    assert model.cv_results_[f"rank_{criterion}"][model.best_index_] == 1
    with pytest.raises(ValueError, match="likelihood"):
        SparseRegressorCV(criterion=criterion, loss="huber").fit(X, y)


# ---------------------------------------------------------------------------------------------------------------------
# Settings


def test_without_a_refit_there_is_no_model():
    X, y = regression()
    model = SparseRegressorCV(ks=[1, 2], refit=False).fit(X, y)
    assert not hasattr(model, "path_")
    assert model.best_k_ in (1, 2)
    with pytest.raises(NotFittedError):
        model.predict(X)


@BOTH
def test_threads_and_storage_change_nothing(make):
    X, y = data_for(make)
    X[np.abs(X) < 0.5] = 0.0
    one = make(ks=[1, 3], lams=0.1, cv=3).fit(X, y)
    two = make(ks=[1, 3], lams=0.1, cv=3, n_jobs=2).fit(sp.csr_array(X), y)
    assert_allclose(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"], rtol=1e-6)
    assert_allclose(one.coef_, two.coef_, rtol=1e-6)


def test_progress_names_and_settings(capsys):
    X, y = regression()
    X = pd.DataFrame(X, columns=list("abcdefgh"))
    model = SparseRegressorCV(ks=[1, 3], lams=0.1, cv=3, verbose=True, exact=True).fit(X, y)
    out = capsys.readouterr().out
    assert out.count("fold ") == 3
    assert "% of the objective" in out
    assert model.gap_ <= 1e-4 * model.objective_
    assert model.path_.feature_names == tuple("abcdefgh")
    assert set(model.get_feature_names_out()) <= set("abcdefgh")
    assert clone(model).get_params()["ks"] == [1, 3]
    assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    with pytest.warns(UserWarning, match="more than the 8 features"):
        model = SparseRegressorCV(ks=[1, 99], lams=0.1, cv=3).fit(X, y)
    assert_array_equal(model.cv_results_["param_k"], [1, 8])


def test_weights_reach_only_scores_that_take_them():
    X, y = regression()
    weights = some_weights(60)
    SparseRegressorCV(ks=[1], lams=0.1, cv=3, scoring=lambda model, X, y: 0.0).fit(X, y, weights)
    seen = []

    def score(model, X, y, sample_weight=None):
        seen.append(sample_weight)
        return 0.0

    SparseRegressorCV(ks=[1], lams=0.1, cv=KFold(3), scoring=score).fit(X, y, weights)
    assert_allclose(np.concatenate(seen), weights / weights.sum())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"criterion": "best"}, "criterion must be one of"),
        ({"ks": [0]}, "ks must be whole numbers"),
        ({"lams": [-1.0]}, "lams must be positive"),
        ({"loss": "logistic"}, "loss must be one of"),
        ({"solver": "nothing"}, "solver must be one of"),
        ({"scoring": lambda *_: np.nan}, "no finite number"),
    ],
)
def test_bad_settings_are_named(bad, message):
    X, y = regression()
    with pytest.raises(ValueError, match=message):
        SparseRegressorCV(**{"ks": [1, 2], "cv": 2} | bad).fit(X, y)


def counts_with_exposure():
    rng = np.random.default_rng(4)
    X, exposure = rng.standard_normal((120, 8)), rng.uniform(0.2, 5.0, 120)
    return X, rng.poisson(exposure * np.exp(0.3 + 0.7 * X[:, 1] - 0.5 * X[:, 6])), np.log(exposure)


def test_offsets_are_in_the_fits_and_in_the_scores():
    X, y, offset = counts_with_exposure()
    folds = list(KFold(3).split(X))
    model = SparseRegressorCV(ks=[1, 2, 3], lams=[0.01, 0.1], loss="poisson", cv=folds).fit(X, y, offset=offset)
    for params, score in zip(model.cv_results_["params"], model.cv_results_["mean_test_score"], strict=True):
        deviances = []
        for train, test in folds:
            plain = SparseRegressor(**params, loss="poisson").fit(X[train], y[train], offset=offset[train])
            deviances.append(mean_poisson_deviance(y[test], plain.predict(X[test], offset=offset[test])))
        assert score == pytest.approx(-np.mean(deviances), rel=1e-5)
    plain = SparseRegressor(k=model.best_k_, lam=model.best_lam_, loss="poisson").fit(X, y, offset=offset)
    assert np.allclose(model.coef_, plain.coef_, rtol=1e-6, atol=1e-9)
    assert model.support_.tolist() == [1, 6]


def test_an_offset_of_the_squared_loss_is_another_target():
    X, y, offset = counts_with_exposure()
    with_offset = sparse_path(X, y, ks=[1, 3], lams=0.1, offset=offset)
    shifted = sparse_path(X, y - offset, ks=[1, 3], lams=0.1)
    assert [point.objective for point in with_offset] == pytest.approx(
        [point.objective for point in shifted], rel=1e-12
    )
    with pytest.raises(ValueError, match="offset cannot be used with the logistic loss"):
        sparse_path(X, np.sign(X[:, 0]), ks=[1], loss="logistic", offset=offset)


def test_a_class_that_no_fold_could_train_on_is_named():
    X = np.random.default_rng(0).standard_normal((30, 3))
    with pytest.raises(ValueError, match=r"y has 1 of 30 samples in class 'c', and none to train on"):
        SparseClassifierCV(cv=3).fit(X, ["a", "b"] * 14 + ["a", "c"])
    with pytest.raises(ValueError, match=r"y has 10 of 30 samples in class 0, and none to train on"):
        SparseClassifierCV(cv=KFold(3)).fit(X, np.repeat([0, 1, 2], 10))
    with pytest.raises(ValueError, match=r"cv must be at most one fold for each of the 30 samples, got 31"):
        SparseRegressorCV(cv=31).fit(X, X[:, 0])


@pytest.mark.parametrize("kind", ["string", "boolean", "category"])
def test_missing_targets_and_booleans_of_pandas(kind):
    X = np.random.default_rng(0).standard_normal((30, 3))
    y = pd.Series(X[:, 0] > 0).astype(kind)
    classes = SparseClassifier(k=1).fit(X, y).classes_.tolist()
    assert classes == (["False", "True"] if kind == "string" else [False, True])
    y[3] = None
    with pytest.raises(ValueError, match=r"^y contains missing values \(1 of 30\)"):
        SparseClassifier(k=1).fit(X, y)

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import KFold, StratifiedKFold, TimeSeriesSplit

from diht import SparseClassifier, SparseClassifierCV, SparseRegressor, SparseRegressorCV
from diht.bounds.duality import Bound
from diht.constraints.base import Cardinality
from diht.design.scatter import Scatter
from diht.problem import Problem
from diht.result import Certificate
from diht.solvers.models import GramPoints, SamplePoints, path_models, sample_models
from oracle import best_subset, some_weights
from test_estimators import classification, regression

STORED = pytest.mark.parametrize("store", [np.asarray, sp.csr_array, sp.csc_array, np.float32])


def counted(monkeypatch, kind):
    """How often objects of a class, or of one that extends it, are made."""
    made = []
    for cls in (kind, *kind.__subclasses__()):

        def init(self, *args, own=cls.__init__, **kwargs):
            made.append(type(self))
            own(self, *args, **kwargs)

        monkeypatch.setattr(cls, "__init__", init)
    return made


@pytest.mark.parametrize(
    "model",
    [
        SparseRegressorCV(ks=[1, 3]),
        SparseRegressorCV(ks=[1, 3], loss="huber", sign=1),
        SparseRegressorCV(ks=[1, 2], groups=np.arange(8) // 2, keep=[0]),
        SparseClassifierCV(ks=[1, 3]),
        SparseClassifierCV(ks=[1, 3], loss="hinge"),
    ],
)
def test_folds_prove_nothing_and_the_last_fit_does(monkeypatch, model):
    X, y = classification() if isinstance(model, SparseClassifierCV) else regression()
    bounds, certificates = counted(monkeypatch, Bound), counted(monkeypatch, Certificate)
    model.set_params(lams=[0.01, 0.1], cv=3, refit=False).fit(X, y)
    assert not bounds
    assert not certificates
    model.set_params(refit=True).fit(X, y)
    assert bounds
    assert certificates


def test_any_method_but_the_default_runs_as_it_is_in_every_fold(monkeypatch):
    X, y = regression()
    bounds = counted(monkeypatch, Bound)
    SparseRegressorCV(ks=[1, 3], lams=0.1, cv=3, refit=False, solver="branch").fit(X, y)
    assert len(bounds) > 6


# ---------------------------------------------------------------------------------------------------------------------
# Sums of folds


def table(n=40, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, d)) + 3.0, rng.standard_normal(n) + 100.0
    X[:, 0] = np.where(np.arange(n) < 5, X[:, 0], 0.0)  # constant in the first fold
    X[:, 1] = 1e6
    X[:, 2] *= 1e-8
    X[:, 3] = X[:, 3] * 1e5 + 1e7
    return X, y


def assert_same_sums(one, other):
    size = np.sqrt(np.diag(other.matrix))
    size[size == 0.0] = 1.0
    assert one.weight == pytest.approx(other.weight, rel=1e-14)
    assert_allclose(one.mean, other.mean, rtol=1e-13)
    assert_allclose(one.matrix / size / size[:, None], other.matrix / size / size[:, None], atol=1e-10)


@STORED
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_a_fold_are_those_of_its_samples(store, weighted):
    X, y = table()
    X, s = store(X), some_weights(40) if weighted else np.ones(40)
    whole = Scatter.of(X, y, s)
    for train, held in KFold(8).split(y):
        assert_same_sums(whole.left(X, y, s, held), Scatter.of(X[train], y[train], s[train]))


@STORED
def test_sums_are_those_of_numpy(store):
    X, y = table()
    s, z = some_weights(40), np.column_stack([store(X).toarray() if sp.issparse(store(X)) else store(X), y])
    found = Scatter.of(store(X), y, s)
    assert_allclose(found.mean, np.average(z, axis=0, weights=s), rtol=1e-13)
    size = z.std(axis=0) + 1e-3
    assert_allclose(
        found.matrix / size / size[:, None], s.sum() * np.cov(z.T, aweights=s, ddof=0) / size / size[:, None], atol=1e-9
    )


def test_a_column_that_varies_only_among_the_samples_held_out_is_constant_to_the_last_bit():
    X, y = table()
    left = Scatter.of(X, y, np.ones(40)).left(X, y, np.ones(40), np.arange(5))
    assert left.mean[0] == 0.0
    assert not np.any(left.matrix[0])
    assert not np.any(left.matrix[:, 0])


def test_samples_held_out_without_weight_change_nothing():
    X, y = table()
    s = np.ones(40)
    s[:5] = 0.0
    whole = Scatter.of(X, y, s)
    assert whole.left(X, y, s, np.arange(5)) is whole


@pytest.mark.parametrize(
    "splits",
    [
        TimeSeriesSplit(3),
        [(np.arange(30), np.arange(30, 60)), (np.arange(10, 60), np.arange(10))],
        [(np.repeat(np.arange(40), 2), np.arange(40, 60)), (np.arange(20), np.arange(20, 60))],
        [(np.arange(60) < 40, np.arange(60) >= 40), (np.arange(-40, 0), np.arange(20))],
    ],
)
def test_any_split_has_the_scores_of_separate_fits(splits):
    X, y = regression()
    folds = list(splits.split(X)) if isinstance(splits, TimeSeriesSplit) else splits
    model = SparseRegressorCV(ks=[1, 3], lams=0.1, cv=splits, refit=False).fit(X, y)
    for i, (train, test) in enumerate(folds):
        for k, score in zip([1, 3], model.cv_results_[f"split{i}_test_score"], strict=True):
            plain = SparseRegressor(k=k, lam=0.1).fit(X[train], y[train])
            assert score == pytest.approx(-mean_squared_error(y[test], plain.predict(X[test])), rel=1e-8)


@pytest.mark.parametrize(
    ("store", "settings"),
    [
        (np.asarray, {}),
        (np.asarray, {"keep": [6]}),
        (sp.csr_array, {"standardize": False}),
        (sp.csr_array, {"fit_intercept": False}),
        (sp.csc_array, {}),
        (np.float32, {"fit_intercept": False}),
    ],
)
def test_scores_of_regression_are_those_of_separate_fits(store, settings):
    X, y = regression()
    X, weights = store(X + 1.0), some_weights(60)
    model = SparseRegressorCV(ks=[1, 2], lams=[0.1, 1.0], cv=KFold(3), refit=False, **settings).fit(X, y, weights)
    for i, (train, test) in enumerate(KFold(3).split(y)):
        for params, score in zip(model.cv_results_["params"], model.cv_results_[f"split{i}_test_score"], strict=True):
            plain = SparseRegressor(**params, **settings).fit(X[train], y[train], weights[train])
            expected = -mean_squared_error(y[test], plain.predict(X[test]), sample_weight=weights[test])
            assert score == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "smoothed_hinge"])
def test_scores_of_classification_are_those_of_separate_fits(loss):
    X, y = classification(n=90)
    cv = StratifiedKFold(3)
    scoring = "neg_log_loss" if loss == "logistic" else "accuracy"
    model = SparseClassifierCV(ks=[1, 3], lams=[0.01], loss=loss, cv=cv, scoring=scoring, refit=False).fit(X, y)
    for i, (train, test) in enumerate(cv.split(X, y)):
        for params, score in zip(model.cv_results_["params"], model.cv_results_[f"split{i}_test_score"], strict=True):
            plain = SparseClassifier(**params, loss=loss).fit(X[train], y[train])
            if loss == "logistic":
                assert score == pytest.approx(-log_loss(y[test], plain.predict_proba(X[test])), rel=1e-5)
            else:
                assert score == plain.score(X[test], y[test])


# ---------------------------------------------------------------------------------------------------------------------
# Models


def correlated(n=60, d=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
    return X, X[:, ::3].sum(axis=1) - X[:, 1] + rng.standard_normal(n)


@pytest.mark.parametrize("seed", range(3))
def test_models_from_sums_are_those_from_the_samples_and_the_best(seed):
    X, y = correlated(d=9, seed=seed)
    ks, lams = [1, 2, 3, 4, 6, 9], [0.01, 0.1]
    problem = Problem(X, y, "squared", Cardinality(9), 0.1, fit_intercept=True)
    scatter = Scatter.of(X, y, np.full(60, 1.0 / 60))
    G, h, null = 2.0 * scatter.matrix[:-1, :-1], 2.0 * scatter.matrix[:-1, -1], scatter.matrix[-1, -1]
    sums, samples = path_models(GramPoints(G, h, null, Cardinality(9)), ks, lams), sample_models(problem, ks, lams)
    assert list(sums) == list(samples) == [(k, lam) for lam in lams for k in ks]
    for k, lam in sums:
        at = problem.replaced(constraint=Cardinality(k), lam=lam)
        best = best_subset(at).objective
        assert sums[k, lam].objective == pytest.approx(best, rel=1e-9)
        assert samples[k, lam].objective == pytest.approx(best, rel=1e-9)
        assert_array_equal(sums[k, lam].support, samples[k, lam].support)
        assert_allclose(sums[k, lam].values, samples[k, lam].values, rtol=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "huber", "squared"])
def test_models_of_a_fold_know_nothing_of_the_samples_held_out(loss):
    X, y = correlated()
    y = np.sign(y - np.median(y) + 1e-9) if loss == "logistic" else y
    train, held = np.arange(45), np.arange(45, 60)
    scores = []

    def seen(model, X, y):
        scores.append(model.coef_.copy())
        return 0.0

    for other in (False, True):
        if other:
            X[held], y[held] = X[held][:, ::-1] * 10.0, y[held][::-1]
        make = SparseClassifierCV if loss == "logistic" else SparseRegressorCV
        model = make(ks=[1, 2, 4], lams=0.1, loss=loss, cv=[(train, held)], scoring=seen, refit=False)
        model.fit(X, y)
    for one, two in zip(scores[:3], scores[3:], strict=True):
        assert_allclose(one, two, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("points", ["sums", "samples"])
def test_without_time_every_point_has_a_model(points):
    X, y = correlated()
    problem = Problem(X, y, "squared", Cardinality(12), 0.1, fit_intercept=True)
    scatter = Scatter.of(X, y, np.full(60, 1.0 / 60))
    G, h, null = 2.0 * scatter.matrix[:-1, :-1], 2.0 * scatter.matrix[:-1, -1], scatter.matrix[-1, -1]
    given = (
        GramPoints(G, h, null, Cardinality(12), lambda: True)
        if points == "sums"
        else SamplePoints(problem, lambda: True)
    )
    models = path_models(given, [1, 3], [0.1, 1.0])
    assert all(np.isfinite(model.objective) and len(model.support) <= k for (k, _), model in models.items())


# ---------------------------------------------------------------------------------------------------------------------
# The path of all samples


@pytest.mark.parametrize(
    ("loss", "criterion"),
    [("squared", "1se"), ("squared", "bic"), ("huber", "1se"), ("logistic", "1se"), ("logistic", "ebic")],
)
def test_the_path_has_true_bounds_and_the_last_fit_at_its_point(loss, criterion):
    X, y = correlated(d=8)
    y = np.sign(y - np.median(y) + 1e-9) if loss == "logistic" else y
    make = SparseClassifierCV if loss == "logistic" else SparseRegressorCV
    model = make(ks=[1, 2, 3, 5], lams=[0.01, 0.1], loss=loss, criterion=criterion, standardize=False).fit(X, y)
    path = model.path_
    assert [(point.k, point.lam) for point in path] == [(k, lam) for lam in (0.01, 0.1) for k in (1, 2, 3, 5)]
    for point in path:
        problem = Problem(X, y, loss, Cardinality(point.k), point.lam, fit_intercept=True)
        best = best_subset(problem).objective
        assert point.lower_bound <= best
        assert point.objective >= best * (1 - 1e-9)
    for lam in (0.01, 0.1):
        assert np.all(np.diff([point.objective for point in path.at(lam)]) <= 0.0)
        assert np.all(np.diff([point.lower_bound for point in path.at(lam)]) <= 0.0)
    chosen = path.point(model.best_k_, model.best_lam_)
    assert_array_equal(chosen.coef, np.ravel(model.coef_))
    assert chosen.lower_bound == model.lower_bound_

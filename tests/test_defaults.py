"""What the estimators do unless they are told otherwise: scales of columns, grids of k and lam, and the rule that chooses."""

import inspect
import re

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from command import run
from diht import (
    Problem,
    SparseClassifier,
    SparseClassifierCV,
    SparseRegressor,
    SparseRegressorCV,
    bootstrap,
    debiased,
    solve,
    sparse_path,
)
from diht.constraints.base import Cardinality
from diht.constraints.groups import constrained
from diht.design import as_design
from diht.estimators.base import column_scales
from diht.estimators.equations import Data, equations_of
from diht.estimators.path import default_ks
from diht.problem import normalised_weights
from oracle import some_weights

UNITS = np.array([1e-3, 1.0, 50.0, 1e4, 0.2, 7.0, 1e2, 1e-2])
GROUPS = np.array([0, 0, 0, 1, 1, 2, 3, 3])
ESTIMATORS = {
    "regressor": (SparseRegressor(k=2, lam=0.1), "numbers"),
    "huber": (SparseRegressor(k=2, lam=0.1, loss="huber"), "numbers"),
    "poisson": (SparseRegressor(k=2, lam=0.1, loss="poisson"), "counts"),
    "classifier": (SparseClassifier(k=2, lam=0.1), "two"),
    "hinge": (SparseClassifier(k=2, lam=0.1, loss="smoothed_hinge"), "two"),
    "one against the rest": (SparseClassifier(k=2, lam=0.1), "three"),
    "multinomial": (SparseClassifier(k=2, lam=0.1, loss="multinomial"), "three"),
    "regressor, CV": (SparseRegressorCV(ks=[1, 2], lams=0.1, cv=3), "numbers"),
    "poisson, CV": (SparseRegressorCV(ks=[1, 2], lams=0.1, cv=3, loss="poisson"), "counts"),
    "classifier, CV": (SparseClassifierCV(ks=[1, 2], lams=0.1, cv=3), "two"),
}


def samples(kind="numbers", n=60):
    """Columns in very different units, some entries zero."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 8)) * UNITS
    X[rng.random((n, 8)) < 0.3] = 0.0
    u = X[:, 2] / UNITS[2] - X[:, 5] / UNITS[5] + 0.5 * rng.standard_normal(n)
    y = {
        "numbers": u,
        "counts": rng.poisson(np.exp(0.5 * u)),
        "two": u > 0,
        "three": np.digitize(u, [-0.7, 0.7]),
    }[kind]
    return X, y


# ---------------------------------------------------------------------------------------------------------------------
# Scales


def test_every_entrance_but_the_mathematical_one_standardises():
    for make in (SparseRegressor, SparseClassifier, SparseRegressorCV, SparseClassifierCV):
        assert make().standardize is True
    assert inspect.signature(sparse_path).parameters["standardize"].default is True
    X, y = samples()
    assert Problem(X, y, "squared", 2, 0.1).scale is None


@pytest.mark.parametrize("name", ESTIMATORS)
def test_units_and_storage_do_not_matter(name):
    estimator, kind = ESTIMATORS[name]
    X, y = samples(kind)
    model = estimator.fit(X, y)
    coef, objective = model.coef_.copy(), np.copy(model.objective_)
    assert all(certificate.scaled for certificate in np.atleast_1d(model.certificate_))
    for other, units in ((X / UNITS, UNITS), (sp.csr_array(X / UNITS), UNITS)):
        again = estimator.fit(other, y)
        assert_allclose(again.coef_ / units, coef, rtol=1e-5, atol=1e-12)
        assert_allclose(again.objective_, objective, rtol=1e-8)


def test_a_path_does_not_depend_on_units_and_storage():
    X, y = samples()
    path = sparse_path(X, y, ks=[1, 3], lams=0.1)
    for other, units in ((X / UNITS, UNITS), (sp.csr_array(X), 1.0)):
        again = sparse_path(other, y, ks=[1, 3], lams=0.1)
        assert_allclose(again.coefficients() / units, path.coefficients(), rtol=1e-5, atol=1e-12)
    assert all(point.certificate.scaled for point in path)


# ---------------------------------------------------------------------------------------------------------------------
# Groups


def rotation(rng, groups):
    """An orthogonal matrix that mixes the columns of each group."""
    Q = np.zeros((len(groups), len(groups)))
    for group in np.unique(groups):
        inside = np.flatnonzero(groups == group)
        Q[np.ix_(inside, inside)] = np.linalg.qr(rng.standard_normal((len(inside), len(inside))))[0]
    return Q


def test_the_scale_of_a_group():
    X, _ = samples()
    s = normalised_weights(some_weights(60), 60)
    variance = np.cov(X.T, ddof=0, aweights=s).diagonal()
    plain = column_scales(as_design(X), s, Cardinality(2))
    assert_allclose(plain, np.sqrt(variance), rtol=1e-12)
    assert_array_equal(column_scales(as_design(X), s, constrained(2, 8, sign=1)), plain)
    expected = np.sqrt([variance[group == GROUPS].mean() for group in GROUPS])
    for kept in (None, [3]):
        grouped = column_scales(as_design(X), s, constrained(2, 8, keep=kept, groups=GROUPS))
        assert_allclose(grouped, expected, rtol=1e-12)
    turned = X @ rotation(np.random.default_rng(1), GROUPS)
    assert_allclose(column_scales(as_design(turned), s, constrained(2, 8, groups=GROUPS)), expected, rtol=1e-10)


def test_constant_columns_and_large_ones_in_groups():
    X, _ = samples()
    X[:, [1, 6, 7]] = 0.1  # one of three, and a whole group
    X[:, 3:5] *= 1e70
    s = normalised_weights(None, 60)
    scale = column_scales(as_design(X), s, constrained(2, 8, groups=GROUPS))
    variance = X.var(axis=0)
    assert_allclose(scale[:3], np.sqrt((variance[0] + variance[2]) / 3), rtol=1e-12)
    assert_array_equal(scale[6:], 1.0)
    assert np.all(np.isfinite(scale))


@pytest.mark.parametrize("make", [SparseRegressor, SparseClassifier])
def test_a_rotation_within_groups_changes_nothing_but_the_coefficients(make):
    X, y = samples("numbers" if make is SparseRegressor else "two")
    Q = rotation(np.random.default_rng(2), GROUPS)
    model, turned = (make(k=2, lam=0.1, groups=GROUPS, exact=True, tol=1e-8).fit(A, y) for A in (X, X @ Q))
    assert turned.objective_ == pytest.approx(model.objective_, rel=1e-8)
    assert turned.lower_bound_ == pytest.approx(model.lower_bound_, rel=1e-6)
    assert_array_equal(np.unique(GROUPS[turned.support_]), np.unique(GROUPS[model.support_]))
    assert_allclose(turned.coef_ @ Q.T * UNITS, model.coef_ * UNITS, rtol=1e-4, atol=1e-7)


def test_the_units_of_a_whole_group_do_not_matter():
    X, y = samples()
    units = np.array([1e3, 1.0, 1e-4, 10.0])[GROUPS]
    one, other = (SparseRegressor(k=2, lam=0.1, groups=GROUPS).fit(A, y) for A in (X, X * units))
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-9)
    assert_allclose(other.coef_ * units, one.coef_, rtol=1e-6)


def test_a_path_and_cross_validation_scale_groups_as_a_fit_does():
    X, y = samples()
    model = SparseRegressor(k=2, lam=0.1, groups=GROUPS).fit(X, y)
    chosen = SparseRegressorCV(ks=[2], lams=0.1, cv=2, groups=GROUPS).fit(X, y)
    point = sparse_path(X, y, ks=[2], lams=0.1, groups=GROUPS)[0]
    for objective in (chosen.objective_, chosen.path_[0].objective, point.objective):
        assert objective == pytest.approx(model.objective_, rel=1e-6)


def test_a_refit_on_a_part_of_a_group_has_the_scale_of_the_whole():
    """The sign leaves some of a group's coefficients at zero."""
    X, y = samples()
    X = X / UNITS * np.array([1.0, 9.0, 3.0, 1.0, 1.0, 2.0, 1.0, 1.0])
    sign = np.array([0, 1, 1, 0, 0, 0, 0, 0])
    y = y - X[:, 1] / 9.0
    model = SparseRegressor(k=2, lam=1.0, groups=GROUPS, sign=sign, exact=True, tol=1e-9).fit(X, y)
    assert set(GROUPS[model.support_]) == {0, 2}
    assert 1 not in model.support_
    data = Data.of(model, X, y, None, None)
    coef, intercept = equations_of(model, data)[0].with_ridge(model, normalised_weights(None, 60))
    assert_allclose(coef, model.coef_[model.support_], rtol=1e-5)
    assert intercept == pytest.approx(model.intercept_, abs=1e-6)
    assert np.all(np.isfinite(bootstrap(model, X, y, n_resamples=5, random_state=0).samples))
    unscaled = debiased(SparseRegressor(k=2, lam=1.0, groups=GROUPS, standardize=False).fit(X, y), X, y)
    grouped = debiased(SparseRegressor(k=2, lam=1.0, groups=GROUPS).fit(X, y), X, y)
    assert_allclose(grouped.coef_, unscaled.coef_, rtol=1e-6)  # without a ridge scales do not matter


def test_the_page_names_the_deviation_of_a_group(tmp_path):
    X, y = samples()
    for groups, words in ((None, "per std. dev.<"), (GROUPS, "per std. dev. of the group<")):
        SparseRegressor(k=2, lam=0.1, groups=groups).fit(X, y).report(tmp_path / "page.html")
        assert words in (tmp_path / "page.html").read_text()


# ---------------------------------------------------------------------------------------------------------------------
# Certificates of given models


def objective_said(text):
    return float(re.search(r"objective +([0-9.e+-]+)", text)[1])


@pytest.mark.parametrize("groups", [None, GROUPS])
def test_certify_scales_a_stored_model_as_the_fit_did(groups, tmp_path, capsys):
    X, y = samples()
    np.savetxt(tmp_path / "data.csv", np.column_stack([X, y]), delimiter=",", fmt="%.17g")
    header = ",".join([f"x{j}" for j in range(8)] + ["y"])
    (tmp_path / "data.csv").write_text(header + "\n" + (tmp_path / "data.csv").read_text())
    model = SparseRegressor(k=2, lam=0.1, groups=groups).fit(X, y)
    model.to_json(tmp_path / "model.json")
    assert run("certify", tmp_path / "model.json", tmp_path / "data.csv", "--quiet") == 0
    assert objective_said(capsys.readouterr().out) == pytest.approx(model.objective_, rel=1e-5)


@pytest.mark.parametrize("storage", ["csv", "svm"])
def test_certify_scales_given_coefficients_for_every_kind_of_file(storage, tmp_path, capsys):
    X, y = samples()
    path, model = tmp_path / f"data.{storage}", tmp_path / "mine.csv"
    if storage == "csv":
        lines = [
            ",".join([*(f"x{j}" for j in range(8)), "y"]),
            *(",".join(map(repr, row)) for row in np.c_[X, y].tolist()),
        ]
    else:
        lines = [
            " ".join([repr(float(y[i])), *(f"{j + 1}:{float(X[i, j])!r}" for j in range(8))]) for i in range(len(y))
        ]
    path.write_text("\n".join(lines) + "\n")
    names = ("x2", "x5") if storage == "csv" else ("3", "6")
    model.write_text(
        "".join(f"{name},{value!r}\n" for name, value in zip((*names, "intercept"), (0.02, -0.1, 0.3), strict=True))
    )
    assert run("certify", model, path, "--lam", "0.1", "--quiet") == 0
    out = capsys.readouterr().out
    assert "standardised columns" in out
    w, scale = np.zeros(8), X.std(axis=0)
    w[[2, 5]] = 0.02, -0.1
    expected = np.mean((X @ w + 0.3 - y) ** 2) + 0.05 * np.sum((w * scale) ** 2)
    assert objective_said(out) == pytest.approx(expected, rel=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Grids and rules


@pytest.mark.parametrize(
    ("most", "ks"),
    [
        (0, [1]),
        (1, [1]),
        (2, [1, 2]),
        (7, [1, 2, 3, 4, 5, 6, 7]),
        (30, [1, 2, 3, 5, 7, 10, 14, 21, 30]),
        (10_000, [1, 2, 3, 5, 7, 10, 14, 21, 30]),
    ],
)
def test_numbers_of_features_that_are_tried(most, ks):
    found = default_ks(most)
    assert found == ks
    assert all(isinstance(k, int) for k in found)


@pytest.mark.parametrize(
    ("n", "settings", "most"),
    [
        (60, {}, 6),  # a tenth of the samples
        (900, {}, 8),  # all features
        (900, {"groups": GROUPS}, 4),
        (900, {"groups": GROUPS, "keep": [0]}, 3),
        (900, {"keep": [0, 1]}, 6),
        (9, {}, 1),
    ],
)
@pytest.mark.parametrize("make", [SparseRegressorCV, SparseClassifierCV])
def test_the_largest_number_of_features_that_is_tried(make, n, settings, most):
    model, free = make(**settings), make(ks=[1, 8], **{**settings, "keep": None, "groups": None})
    assert model._ks(n, 8, model._wanted(8)) == default_ks(most)
    assert free._ks(n, 8, free._wanted(8)) == [1, 8]


@pytest.mark.parametrize("make", [SparseRegressorCV, SparseClassifierCV])
def test_the_grid_and_the_rule_of_cross_validation(make):
    X, y = samples("numbers" if make is SparseRegressorCV else "two")
    default = make(cv=2, solver="iht", tol=0.1, refit=False).fit(X, y)
    results, lams = default.cv_results_, make().lams
    assert results["params"] == [{"k": k, "lam": lam} for lam in lams for k in default_ks(6)]
    assert len(lams) == 3
    assert SparseRegressor().lam in lams
    assert default.criterion == "1se"
    best = int(np.argmax(results["mean_test_score"]))
    error = np.std([results[f"split{i}_test_score"][best] for i in range(2)], ddof=1) / np.sqrt(2)
    enough = results["mean_test_score"] >= results["mean_test_score"][best] - error
    assert default.best_k_ == results["param_k"][enough].min()


def test_solve_has_no_scales():
    X, y = samples()
    one, other = (solve(Problem(A, y, "squared", 2, 0.1)) for A in (X, X / UNITS))
    assert one.objective != pytest.approx(other.objective, rel=1e-3)

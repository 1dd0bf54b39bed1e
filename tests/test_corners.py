"""What is reported is true of the model that is handed out, where float64 itself is at its limits.

Objectives are compared with those of rational arithmetic, which share no code with the package.
"""

from fractions import Fraction
from itertools import combinations

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal
from sklearn.datasets import load_diabetes

from diht import Problem, SparseClassifier, SparseRegressor, certify, solve, sparse_path
from diht.constraints.base import Cardinality
from diht.constraints.groups import constrained
from diht.design import as_design
from diht.estimators.base import column_scales
from diht.losses import Huber, Logistic, Multinomial, Squared
from diht.numerics import exact
from diht.problem import normalised_weights
from diht.result import Status
from diht.solvers import Start


def true_objective(X, y, coef, intercept, lam, scale=None) -> float:
    """The squared loss's objective of a model, every number taken as it is stored; columns have equal weights."""
    coef, b = [Fraction(float(c)) for c in np.ravel(coef)], Fraction(float(np.ravel(intercept)[0]))
    residuals = [
        Fraction(float(target)) - b - sum(Fraction(float(x)) * c for x, c in zip(row, coef, strict=True) if c)
        for row, target in zip(np.asarray(X), np.asarray(y), strict=True)
    ]
    scales = [1] * len(coef) if scale is None else [Fraction(float(q)) for q in scale]
    ridge = Fraction(lam) / 2 * sum((c * q) ** 2 for c, q in zip(coef, scales, strict=True))
    return float(sum(r * r for r in residuals) / len(residuals) + ridge)


# ---------------------------------------------------------------------------------------------------------------------
# Sums in twice the precision


def test_errors_of_sums_and_products_are_exact() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(200) * 10.0 ** rng.uniform(-20, 20, 200) for _ in range(2))
    for operation, transformed in (
        (Fraction.__add__, exact.two_sum(a, b)),
        (Fraction.__mul__, exact.two_product(a, b)),
    ):
        for x, y, total, error in zip(a, b, *transformed, strict=True):
            assert operation(Fraction(x), Fraction(y)) == Fraction(total) + Fraction(error)


def test_products_that_cancel() -> None:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((6, 9)) + 1e12
    B = rng.standard_normal((9, 4))
    B[-1] = -B[:-1].sum(axis=0)
    high, low = exact.matmul(A, B)
    for i, j in np.ndindex(6, 4):
        true = sum(Fraction(x) * Fraction(y) for x, y in zip(A[i], B[:, j], strict=True))
        assert abs(Fraction(high[i, j]) + Fraction(low[i, j]) - true) <= Fraction(1e-16)
        assert exact.dot(A[i], B[:, j]) == float(true)
    assert exact.dot(np.array([1e200, 1.0]), np.array([1e200, 1.0])) == np.inf
    assert exact.dot(np.array([1e16, 1.0, -1e16]), np.ones(3), 2.0) == 3.0


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_predictions_in_twice_the_precision(make) -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((40, 5)) + 1e9
    coef = np.array([1.0, 0.0, -1.0, 0.5, -0.5])
    u, error = as_design(make(X)).predictions(coef, 3e9, -3e9)
    for row, prediction, bound in zip(X, u, error, strict=True):
        true = sum(Fraction(x) * Fraction(c) for x, c in zip(row, coef, strict=True))
        assert abs(Fraction(prediction) - true) <= Fraction(bound)
        assert bound <= 1e-14


# ---------------------------------------------------------------------------------------------------------------------
# The model that is handed out


def far_from_zero(seed: int = 0):
    """Features, float32, whose spacing there is as large as their deviations."""
    rng = np.random.default_rng(seed)
    X = (1e8 + 8 * rng.integers(-20, 20, (50, 3))).astype(np.float32)
    return X, X[:, 0].astype(float) - 1e8 + rng.standard_normal(50)


def test_float32_does_not_open_a_gap_that_is_closed() -> None:
    X, y = far_from_zero()
    model = SparseRegressor(k=1, lam=1e-9, exact=True, standardize=False).fit(X, y)
    objective = true_objective(X, y, model.coef_, model.intercept_, 1e-9)
    assert model.objective_ == pytest.approx(objective, rel=1e-9)
    assert model.result_.status is Status.OPTIMAL
    assert objective - model.lower_bound_ <= 1e-4 * objective
    assert model.coef_.dtype == np.float64


def test_targets_far_from_zero() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 5)).astype(np.float32)
    y = 1e6 + X[:, 0] + 0.01 * rng.standard_normal(100)
    model = SparseRegressor(k=1, lam=1e-6, standardize=False).fit(X, y)
    assert model.objective_ == pytest.approx(true_objective(X, y, model.coef_, model.intercept_, 1e-6), rel=1e-12)
    assert model.result_.status is Status.OPTIMAL
    assert model.coef_.dtype == np.float64


def test_targets_keep_all_their_digits() -> None:
    """Their mean is taken off only where the differences are exact; a model speaks of them as they were given."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 4))
    signal = X[:, 1] + 0.1 * rng.standard_normal(40)
    for loss in (Squared(), Huber()):
        near, far = (Problem(X, signal + level, loss, k=2, lam=0.1, fit_intercept=True) for level in (0.1, 1e9))
        assert near.level == 0.0
        assert_array_equal(near.y, signal + 0.1)
        assert [Fraction(t) + Fraction(far.level) for t in far.y] == [Fraction(t) for t in signal + 1e9]
        assert far.level != 0.0
        assert solve(far).intercept == pytest.approx(1e9, rel=1e-9)
    assert Problem(X, signal + 1e9, k=2, lam=0.1).level == 0.0  # without an intercept nothing can stand in for it


@pytest.mark.parametrize("seed", [32, 33])
def test_objective_of_standardised_float32_columns(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((50, 3)) * 10 + 1e6).astype(np.float32)
    y = (X[:, 0].astype(float) - 1e6) / 10 + 0.05 * rng.standard_normal(50)
    model = SparseRegressor(k=1, lam=1e-6, standardize=True).fit(X, y)
    scale = X.astype(float).std(axis=0)
    assert model.objective_ == pytest.approx(true_objective(X, y, model.coef_, model.intercept_, 1e-6, scale), rel=1e-9)
    point = sparse_path(X, y, ks=[1], lams=1e-6, standardize=True)[0]
    assert point.objective == pytest.approx(true_objective(X, y, point.coef, point.intercept, 1e-6, scale), rel=1e-9)


def test_float32_stays_float32_where_it_costs_nothing() -> None:
    rng = np.random.default_rng(4)
    X = rng.standard_normal((60, 5)).astype(np.float32)
    y = X[:, 0] - X[:, 1]
    for standardize in (False, True):
        model = SparseRegressor(k=2, lam=0.1, standardize=standardize).fit(X, y)
        scale = X.astype(float).std(axis=0) if standardize else None
        assert model.coef_.dtype == model.predict(X).dtype == np.float32
        assert model.objective_ == pytest.approx(
            true_objective(X, y, model.coef_, model.intercept_, 0.1, scale), rel=1e-12
        )
    classifier = SparseClassifier(k=2, lam=0.1, loss="multinomial").fit(X, np.arange(60) % 3)
    assert classifier.coef_.dtype == np.float32


def test_multinomial_objective_is_that_of_the_coefficients() -> None:
    rng = np.random.default_rng(5)
    X = (rng.standard_normal((60, 3)) + 1e6).astype(np.float32)
    y = np.argmax(rng.standard_normal((60, 3)) + 2.0 * (X - 1e6), axis=1)
    model = SparseClassifier(k=2, lam=1e-3, loss="multinomial", standardize=True).fit(X, y)
    scores = X.astype(np.longdouble) @ model.coef_.T.astype(np.longdouble) + model.intercept_
    losses = np.log(np.exp(scores - scores.max(axis=1, keepdims=True)).sum(axis=1)) + scores.max(axis=1)
    losses -= scores[np.arange(60), y]
    ridge = np.square(model.coef_.astype(float) * X.astype(float).std(axis=0)).sum()
    assert model.objective_ == pytest.approx(float(losses.mean()) + 0.5e-3 * ridge, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_means_far_larger_than_deviations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 4)) + 1e8
    y = X[:, 0] - 1e8 + 0.5 * rng.standard_normal(30)
    model = SparseRegressor(k=1, lam=1e-6, exact=True, tol=1e-9, standardize=False).fit(X, y)
    assert model.objective_ == pytest.approx(true_objective(X, y, model.coef_, model.intercept_, 1e-6), rel=1e-12)
    assert model.lower_bound_ <= model.objective_
    assert model.result_.status is Status.OPTIMAL


def test_one_objective_formed_or_not() -> None:
    """Columns that are centred in a copy, and those that are not, give the same figures."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((300, 120)) + 10.0 * rng.standard_normal(120)
    y = X[:, 0] - X[:, 1] + rng.standard_normal(300)
    dense, sparse = (
        solve(Problem(make(X), y, k=3, lam=0.1, fit_intercept=True, scale=X.std(axis=0)))
        for make in (np.asarray, sp.csr_array)
    )
    assert type(dense).__name__ == "Result"
    assert dense.objective == pytest.approx(sparse.objective, rel=1e-10)
    assert dense.lower_bound == pytest.approx(sparse.lower_bound, rel=1e-6)


# ---------------------------------------------------------------------------------------------------------------------
# Objectives that overflow


def test_a_model_whose_objective_overflows() -> None:
    problem = Problem(np.eye(3), np.array([1.0, 2.0, 3.0]), k=1, lam=0.1)
    for w in ([1e160, 0, 0], [0, 1e300, 0]):
        with pytest.raises(ValueError, match="w must have a finite objective"):
            certify(problem, w)
    best = solve(problem)
    for start in (
        [1e160, 0, 0],
        Start(np.array([1e160, 0.0, 0.0])),
        Start(np.array([1e300, 0.0, 0.0]), alpha=np.ones(3)),
    ):
        assert solve(problem, start=start).objective == best.objective


# ---------------------------------------------------------------------------------------------------------------------
# Proofs


# Scales, weights and an intercept: the quick half has all pairs of them.
@pytest.mark.parametrize("seed", [0, 3, 5, 6, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 4, 7))])
def test_whoever_checks_gets_what_was_claimed(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 12)) * 10.0 ** (rng.uniform(-4, 4, 12) if seed % 2 else np.zeros(12))
    y = X @ (rng.standard_normal(12) / np.abs(X).max(axis=0)) + 0.3 * rng.standard_normal(40)
    weights = rng.random(40) if seed % 4 > 1 else None
    for loss in (Squared(), Huber(), Logistic()):
        targets = np.where(y > np.median(y), 1.0, -1.0) if loss.task == "classification" else y
        problem = Problem(X, targets, loss, k=4, lam=1e-3, sample_weight=weights, fit_intercept=seed > 3)
        for solver in ("branch", "auto", "diht") if isinstance(loss, Squared) else ("auto",):
            certificate = solve(problem, solver, max_iter=200).certificate
            assert certificate.bound.check(problem) >= certificate.lower_bound
            assert (
                certificate.bound.value - certificate.lower_bound
                <= (1e-7 if seed % 2 else 1e-10) * certificate.objective
            )


@pytest.mark.parametrize("seed", range(4))
def test_an_exact_solve_far_from_zero_closes(seed: int) -> None:
    """Without an intercept nothing is centred, and what is left of products is some 1e-12 of their terms."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 6)) + 1e6
    y = X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(30)
    model = SparseRegressor(k=2, lam=1e-3, exact=True, fit_intercept=False, standardize=False).fit(X, y)
    assert model.result_.status is Status.OPTIMAL
    best = min(true_ridge(X[:, support], y, 1e-3) for support in combinations(range(6), 2))
    assert model.lower_bound_ <= best
    assert model.objective_ == pytest.approx(best, rel=1e-4)
    assert model.objective_ == pytest.approx(true_objective(X, y, model.coef_, 0.0, 1e-3), rel=1e-11)


def true_ridge(X, y, lam: float) -> float:
    """Least of (1/N) ||y - X w||^2 + (lam/2) ||w||^2 for two columns, by Cramer's rule in rational numbers."""
    n = len(y)
    a, b = ([Fraction(float(x)) for x in column] for column in X.T)
    t = [Fraction(float(value)) for value in y]

    def product(u, v):
        return sum(p * q for p, q in zip(u, v, strict=True)) / n

    half = Fraction(lam) / 2
    aa, ab, bb, at, bt = product(a, a) + half, product(a, b), product(b, b) + half, product(a, t), product(b, t)
    determinant = aa * bb - ab * ab
    return float(product(t, t) - (at * (at * bb - bt * ab) + bt * (bt * aa - at * ab)) / determinant)


@pytest.mark.parametrize("intercept", [False, True])
def test_shifted_bound_in_twice_the_precision(intercept: bool) -> None:
    """B(p) less rounding is below the true B(p), by little, where float64 alone would lose all of it."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((20, 4)) + (0.0 if intercept else 1e7)
    scale = np.array([0.5, 3.0, 1.0, 7.0])
    problem = Problem(X, rng.standard_normal(20) + 5.0, k=2, lam=1e-3, fit_intercept=intercept, scale=scale)
    known = problem.precise_gram
    assert known is not None
    x = np.array([1.0, -1.0, 0.25, 0.0])
    left, off, total, lost = known.residual(x * scale, np.arange(4))
    columns = [[Fraction(float(v)) for v in column] for column in X.T]
    targets = [Fraction(float(v)) for v in problem.y]
    r = [t - sum(Fraction(c) * column[i] for c, column in zip(x, columns, strict=True)) for i, t in enumerate(targets)]
    if intercept:
        columns, r, targets = (
            [[v - sum(u) / 20 for v in u] for u in (*columns, r, targets)][a] for a in (slice(4), 4, 5)
        )
    weight = Fraction(float(problem.s[0]))
    for j in range(4):
        true = weight * sum(v * w for v, w in zip(columns[j], r, strict=True)) / Fraction(float(scale[j]))
        assert abs(Fraction(float(left[j])) - true) <= Fraction(float(off[j]))
        assert off[j] <= 1e-14 * max(abs(left[j]), 1.0)
    gram = weight * sum((t - e) ** 2 for t, e in zip(targets, r, strict=True))
    true = weight * sum(t * t for t in targets) - gram
    assert abs(Fraction(total) - true) <= Fraction(lost)
    assert lost <= 1e-12 * abs(total)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
def test_a_constant_column_does_not_loosen_the_bound(value: float) -> None:
    X, y = load_diabetes(return_X_y=True)
    wider = np.column_stack([X[:, :4], np.full(len(X), value), X[:, 4:]])
    plain, constant = (SparseRegressor(k=3, lam=1e-3, standardize=True).fit(data, y) for data in (X, wider))
    assert constant.lower_bound_ == pytest.approx(plain.lower_bound_, rel=1e-6)
    assert constant.certificate_.bound.check(
        Problem(wider, y, k=3, lam=1e-3, fit_intercept=True, scale=np.where(wider.std(0) < 1e-9, 1.0, wider.std(0)))
    ) >= plain.lower_bound_ * (1 - 1e-6)
    assert 4 not in constant.support_
    screening = constant.certificate_.screening
    two = SparseRegressor(k=2, lam=1e-3, standardize=True).fit(X, y)
    assert screening.within[4] <= two.objective_  # a place for it costs no more than the best model of two features


def test_columns_of_zeros() -> None:
    X = np.zeros((10, 5))
    X[:, 1] = np.arange(10.0)
    X[:, 3] = 1e-200 * np.arange(10.0)  # whose squares underflow
    X[:, 4] = 2.5
    y = X[:, 1] + np.cos(np.arange(10))
    assert_array_equal(Problem(X, y, k=2, lam=0.1).null, [0, 2])
    assert_array_equal(Problem(X, y, k=2, lam=0.1, fit_intercept=True).null, [0, 2, 4])
    assert_array_equal(Problem(sp.csr_array(X), y, k=2, lam=0.1).null, [0, 2])
    assert solve(Problem(X, y, k=2, lam=0.1, fit_intercept=True), "branch").status is Status.OPTIMAL


def test_copies_of_a_column_do_not_leave() -> None:
    """The ridge shares a coefficient between copies: with two of them the optimum takes both."""
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((2, 40))
    X, y = np.column_stack([a, a, b]), 3.0 * a + 0.1 * b
    problem = Problem(X, y, k=2, lam=1.0)
    result = solve(problem, "branch")
    assert_array_equal(result.support, [0, 1])
    assert result.lower_bound <= result.objective < solve(Problem(X[:, 1:], y, k=2, lam=1.0), "branch").objective


def test_multinomial_losses_keep_their_digits() -> None:
    """Those of samples that are classified beyond doubt, and those of samples that are not."""
    codes = np.array([0, 1, 2, 1])
    U = np.array([[40.0, 3.0, 1.0], [-5.0, 60.0, 2.0], [700.0, -3.0, 1.0], [0.5, 0.25, 0.75]])
    for u, code, loss in zip(U, codes, Multinomial().value(U.T, np.eye(3)[codes].T), strict=True):
        true = mpmath.log1p(mpmath.fsum(mpmath.exp(mpmath.mpf(v) - u[code]) for j, v in enumerate(u) if j != code))
        assert loss == pytest.approx(float(true), rel=1e-14)


def test_weights_are_normalised_once() -> None:
    weights = np.random.default_rng(9).random(50)
    s = normalised_weights(weights, 50)
    assert_array_equal(normalised_weights(s, 50), s)
    X, y = np.random.default_rng(10).standard_normal((2, 50, 3))
    model = SparseRegressor(k=1, lam=0.1, standardize=False).fit(X, y[:, 0], sample_weight=weights)
    problem = Problem(X, y[:, 0], k=1, lam=0.1, sample_weight=weights, fit_intercept=True)
    assert model.certificate_.bound.check(problem) == model.certificate_.bound.value


def test_objective_of_large_counts() -> None:
    """Predictions are logarithms, far smaller than the counts, and columns far from zero make them cancel."""
    rng = np.random.default_rng(11)
    X = rng.standard_normal((30, 3)) + 1e7
    y = np.round(np.exp(12.0 + 0.3 * (X[:, 0] - 1e7)))
    model = SparseRegressor(k=1, lam=1e-6, loss="poisson", standardize=False).fit(X, y)
    with mpmath.workdps(50):
        coef, b = mpmath.mpf(float(model.coef_[0])), mpmath.mpf(float(model.intercept_))
        u = [mpmath.mpf(float(x)) * coef + b for x in X[:, 0]]
        losses = [mpmath.exp(v) - t * v - t + t * mpmath.log(t) for v, t in zip(u, map(mpmath.mpf, y), strict=True)]
        true = float(mpmath.fsum(losses) / 30 + 0.5e-6 * coef**2)
    assert model.objective_ == pytest.approx(true, rel=1e-11)


# ---------------------------------------------------------------------------------------------------------------------
# Offsets, weights, scales


@pytest.mark.parametrize("loss", [Squared(), Huber()])
def test_targets_less_offsets_keep_all_their_digits(loss) -> None:
    """An offset takes digits off the targets, and what is left of them decides where the model fits exactly."""
    X, y, offset = np.array([[3.0]]), np.array([0.1]), np.array([1e9])
    problem = Problem(X, y, loss, k=1, lam=1e-20, offset=offset)
    result = solve(problem)
    r = Fraction(3.0) * Fraction(float(result.coef[0])) + Fraction(1e9) - Fraction(0.1)
    true = (
        r * r * (1 if loss.name == "squared" else Fraction(1, 2)) + Fraction(1e-20) / 2 * Fraction(result.coef[0]) ** 2
    )
    assert result.objective == pytest.approx(float(true), rel=1e-12)
    with pytest.raises(ValueError, match="offset must not hold numbers beyond"):
        Problem(X, y, loss, k=1, offset=[1e76])


def test_deviations_of_sparse_columns_under_a_weight_that_is_nearly_all() -> None:
    """The weight of the entries that are not stored is what the stored ones leave."""
    X = np.array([[0.0, 0.0], [0.0, 0.8], [0.0, 0.9], [2.25, 1.25]])
    s = normalised_weights(np.array([2.0, 0.4, 1.3, 1e6]), 4)
    dense, sparse = (column_scales(as_design(make(X)), s, Cardinality(1)) for make in (np.asarray, sp.csr_array))
    np.testing.assert_allclose(sparse, dense, rtol=1e-15)
    high, low = exact.total(np.array([1e16, 1.0, -1e16, 3.0, 1e-20]))
    assert Fraction(high) + Fraction(low) == 4 + Fraction(1e-20)


def test_a_column_of_zeros_that_is_kept() -> None:
    rng = np.random.default_rng(12)
    X = rng.standard_normal((8, 5))
    X[:, [1, 4]] = 0.0
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(8) > 0, 1.0, -1.0)
    for loss in ("squared", "squared_hinge"):
        result = solve(Problem(X, y, loss, constrained(1, 5, keep=[4]), 0.01, fit_intercept=True), "branch")
        assert result.status is Status.OPTIMAL
        assert result.certificate.bound.check(
            Problem(X, y, loss, constrained(1, 5, keep=[4]), 0.01, fit_intercept=True)
        )


def test_coefficients_that_overflow_in_the_units_of_x() -> None:
    problem = Problem(np.eye(3) * 1e-20, np.arange(3.0), k=1, lam=0.1, scale=np.full(3, 1e-20), fit_intercept=True)
    with pytest.raises(ValueError, match="w must have a finite objective"):
        certify(problem, [1e300, 0.0, 0.0])

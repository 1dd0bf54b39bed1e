"""What is proved of single features, against brute force over all supports and against exact arithmetic."""

import pickle
from functools import lru_cache
from itertools import combinations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from cases import LOSSES
from diht import Problem, SparseClassifier, SparseRegressor, certify, solve
from diht.bounds.duality import Screening, dual_from_primal, feasible, lower_bound, primal, upper_bound
from diht.losses import Hinge, Logistic, Loss, Squared
from diht.refit import refit
from diht.solvers import DIHT, Auto
from diht.solvers.auto import stages
from oracle import (
    clear_data,
    exact_columns,
    exact_conjugate,
    exactly_balanced,
    small_data,
    some_weights,
    targets,
    textbook,
)

NAMES = [loss.name for loss in LOSSES]


@lru_cache(maxsize=1)  # asked several times of one problem
def restricted_optima(problem: Problem) -> tuple[float, np.ndarray, np.ndarray]:
    """The best objective, and for each feature the best without it and with a place for it: every support is tried."""
    d = problem.shape[1]
    best, without, within = np.inf, np.full(d, np.inf), np.full(d, np.inf)
    for size in {problem.constraint.size, min(problem.constraint.size, d - 1)}:
        for chosen in combinations(range(d), size):
            fit = refit(problem, np.array(chosen, dtype=np.int64))
            w, b, u = fit.w, fit.b, fit.u
            objective, mask = primal(problem, w, b, u), np.isin(np.arange(d), chosen)
            best = min(best, objective)
            without[~mask] = np.minimum(without[~mask], objective)
            if size == problem.constraint.size:
                within[mask] = np.minimum(within[mask], objective)
    return best, without, within


def random_problem(loss: Loss, seed: int) -> Problem:
    """A few features, some of them equal or nearly so, with or without weights and intercept, lam from 1e-4 to 1e2."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(8, 40)), int(rng.integers(2, 8))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-0.5, 0.5, d)
    twin = rng.integers(0, d, 2)
    if rng.random() < 0.5:
        X[:, twin[0]] = X[:, twin[1]] * (1 + 1e-9 * rng.integers(0, 2) * rng.standard_normal(n))
    k = int(rng.integers(1, d + 1))
    w = np.where(rng.random(d) < 0.5, 2.0 * rng.standard_normal(d), 0.0)
    weights = rng.integers(1, 5, n).astype(float) if rng.random() < 0.5 else None
    y = targets(loss, X @ w + rng.standard_normal(), rng)
    return Problem(X, y, loss, k, 10.0 ** rng.uniform(-4, 2), weights, bool(rng.random() < 0.5), n_threads=1)


def agrees(problem: Problem, screening: Screening, attained: float) -> tuple[int, int]:
    """Compare with brute force; return how many features are required and excluded."""
    best, without, within = restricted_optima(problem)
    slack = 1e-11 * (1.0 + best)  # the oracle's own error
    assert attained >= best - slack
    assert np.all(screening.without <= without + slack)
    assert np.all(screening.within <= within + slack)
    required, excluded = screening.required(attained), screening.excluded(attained)
    # A feature is in every optimal model if the best without it is worse, in none if the best with it is.
    assert np.all(without[required] > best)
    assert np.all(within[excluded] > best)
    return len(required), len(excluded)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_brute_force_contradicts_nothing(loss: Loss) -> None:
    found = np.zeros(2, dtype=int)
    for seed in range(8):
        problem = random_problem(loss, seed)
        tree = solve(problem, tol=1e-9, max_iter=300).certificate
        for screening in (tree.screening, tree.bound.screening(problem)):
            agrees(problem, screening, tree.attained)
        certificate = solve(problem, Auto(branching=False), tol=1e-9, max_iter=300).certificate
        found += agrees(problem, certificate.screening, certificate.attained)
        again = certificate.bound.screening(problem)
        np.testing.assert_allclose(again.without, certificate.screening.without, rtol=1e-9)
        np.testing.assert_allclose(again.within, certificate.screening.within, rtol=1e-9)
        assert min(again.without.min(), again.within.min()) >= certificate.lower_bound
    assert np.all(found >= 4)  # else little was tested


@settings(max_examples=25)
@given(st.sampled_from(LOSSES), st.integers(0, 2**32))
def test_any_dual_point_screens_safely(loss: Loss, seed: int) -> None:
    problem = random_problem(loss, seed)
    rng = np.random.default_rng(seed)
    fit = refit(problem, rng.choice(problem.shape[1], problem.constraint.size, replace=False))
    w, b, u = fit.w, fit.b, fit.u
    for alpha in (dual_from_primal(problem, w, b), feasible(problem, rng.standard_normal(problem.shape[0]))):
        agrees(problem, lower_bound(problem, alpha).screening(problem), upper_bound(problem, w, b, u))


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_a_column_that_its_twin_can_stand_in_for_is_neither_required_nor_excluded(
    loss: Loss, fit_intercept: bool
) -> None:
    X, y = clear_data(loss)
    twins = np.c_[X, X[:, 0]]
    for k in (1, 2):
        for lam in (0.01, 1.0):
            problem = Problem(twins, y, loss, k, lam, fit_intercept=fit_intercept)
            certificate = solve(problem, tol=1e-12, max_iter=500).certificate
            best, without, within = restricted_optima(problem)
            agrees(problem, certificate.screening, certificate.attained)
            if k == 1 and within[0] == best:
                assert not {0, 6} & {*certificate.required, *certificate.excluded}
            for j in (0, 6):
                assert within[j] > best * (1 + 1e-10) or j not in certificate.excluded
                assert without[j] > best * (1 + 1e-10) or j not in certificate.required


def test_where_the_gap_closes_everything_is_proved() -> None:
    for loss in LOSSES:
        problem = Problem(*clear_data(loss), loss, 2, 1.0, some_weights(40), fit_intercept=True)
        certificate = solve(problem, DIHT(), tol=1e-10, max_iter=20_000).certificate
        assert certificate.required.tolist() == [0, 1]
        assert certificate.excluded.tolist() == [2, 3, 4, 5]
        best, without, within = restricted_optima(problem)
        assert np.all(certificate.drop_cost <= np.maximum(without - best, 0.0) + 1e-9)
        assert np.all(certificate.add_cost <= np.maximum(within - best, 0.0) + 1e-9)
        assert "required     2 features     proved to be in every best model\n" in str(certificate)
        assert str(certificate).endswith("excluded     4 features     proved to be in no best model")


# ---------------------------------------------------------------------------------------------------------------------
# Exact arithmetic


def exact_screening(problem: Problem, X: np.ndarray, alpha: list[mpf]) -> tuple[list[mpf], list[mpf]]:
    """The dual function of the models without, and of those with, each feature: without rounding."""
    s, y = ([mpf(x) for x in values.tolist()] for values in (problem.s, problem.y))
    c = [si * ai for si, ai in zip(s, alpha, strict=True)]
    squares = [mpmath.fdot(column, c) ** 2 for column in exact_columns(problem, X)]
    conjugate = mpmath.fsum(
        si * exact_conjugate(problem.loss, ai, yi) for si, ai, yi in zip(s, alpha, y, strict=True) if si
    )
    k, d = problem.constraint.size, len(squares)
    without, within = [], []
    for j in range(d):
        others = sorted((squares[i] for i in range(d) if i != j), reverse=True)
        without.append(-conjugate - mpmath.fsum(others[:k]) / (2 * mpf(problem.lam)))
        within.append(-conjugate - (squares[j] + mpmath.fsum(others[: k - 1])) / (2 * mpf(problem.lam)))
    return without, within


@settings(max_examples=60)
@given(st.sampled_from(LOSSES), st.integers(0, 2**32), st.floats(-6, 6), st.sampled_from(["none", "offset", "cancel"]))
def test_no_screening_is_false_in_exact_arithmetic(loss: Loss, seed: int, size: float, spoil: str) -> None:
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 20)), int(rng.integers(1, 6))
    X = rng.standard_normal((n, d)) * 10.0**size
    if spoil == "offset":
        X += 1e6 * np.abs(X).max()
    elif spoil == "cancel":
        X[n // 2 :] = -X[: n - n // 2] * (1 + 1e-13 * rng.standard_normal((n - n // 2, 1)))
    y = targets(loss, X[:, 0] - X[:, 0].mean() + 1e-3 * 10.0**size * rng.standard_normal(n), rng)
    k, lam = int(rng.integers(1, d + 1)), 10.0 ** (2 * size + rng.uniform(-3, 3))
    problem = Problem(X, y, loss, k, lam, fit_intercept=bool(rng.integers(2)), n_threads=1)
    fit = refit(problem, np.arange(k))
    w, b, u = fit.w, fit.b, fit.u
    bound = lower_bound(problem, dual_from_primal(problem, w, b))
    screening = bound.screening(problem)
    alpha = [mpf(a) for a in bound.alpha.tolist()]
    without, within = exact_screening(problem, X, exactly_balanced(problem, alpha) if problem.fit_intercept else alpha)
    for j in range(d):
        assert max(without[j], mpf(bound.value)) >= mpf(screening.without[j])
        assert max(within[j], mpf(bound.value)) >= mpf(screening.within[j])
    assert mpf(upper_bound(problem, w, b, u)) >= exact_primal(problem, X, w, b)


def exact_primal(problem: Problem, X: np.ndarray, w: np.ndarray, b: float) -> mpf:
    """P(w, b) without rounding, by the table of losses."""
    columns, total = exact_columns(problem, X), mpf(problem.lam) / 2 * mpmath.fsum(mpf(x) ** 2 for x in w.tolist())
    for i, (s, y) in enumerate(zip(problem.s.tolist(), problem.y.tolist(), strict=True)):
        u = mpf(b) + mpmath.fsum(column[i] * mpf(x) for column, x in zip(columns, w.tolist(), strict=True))
        total += mpf(s) * textbook(problem.loss).value(u, mpf(y))
    return total


def test_the_upper_bound_is_tight() -> None:
    for loss in LOSSES:
        problem = Problem(*small_data(loss), loss, 3, 0.1, some_weights(24), fit_intercept=True)
        fit = refit(problem, np.array([0, 2, 3]))
        w, b, u = fit.w, fit.b, fit.u
        objective = primal(problem, w, b, u)
        assert 0.0 <= upper_bound(problem, w, b) - objective <= 1e-12 * objective


# ---------------------------------------------------------------------------------------------------------------------
# Screenings and certificates as objects


def test_merging_keeps_the_better_of_two() -> None:
    a, b = Screening(np.array([1.0, 3.0]), np.array([2.0, 0.0])), Screening(np.array([2.0, 1.0]), np.array([1.0, 1.0]))
    merged = a.merged(b)
    assert merged.without.tolist() == [2.0, 3.0]
    assert merged.within.tolist() == [2.0, 1.0]
    assert a.above(2.5).without.tolist() == [2.5, 3.0]
    assert merged.required(2.0).tolist() == [1]  # strictly
    assert merged.excluded(1.5).tolist() == [0]
    assert merged.drop_cost(2.0) == pytest.approx([0.0, 1.0])
    assert merged.drop_cost(np.inf).tolist() == [0.0, 0.0]
    assert np.all(merged.add_cost(np.nextafter(2.0, 0)) >= 0.0)
    assert merged.add_cost(np.nextafter(2.0, 0))[0] > 0.0


def test_a_trivial_bound_proves_nothing_of_a_feature() -> None:
    problem = Problem(*small_data(Squared()), Squared(), 3, 0.1)
    for alpha in (np.full(24, np.nan), np.full(24, 1e200), np.zeros(24)):
        screening = lower_bound(problem, alpha).screening(problem)
        assert not np.any(screening.without)
        assert not np.any(screening.within)


def test_certificates_of_the_estimators_speak_of_the_users_features() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 12)) * 10.0 ** rng.uniform(-2, 2, 12)
    y = 3 * X[:, 7] / X[:, 7].std() - 2 * X[:, 2] / X[:, 2].std()
    model = SparseRegressor(k=2, lam=0.1, standardize=True).fit(X, y)
    certificate = pickle.loads(pickle.dumps(model.certificate_))
    assert certificate.required.tolist() == [2, 7] == model.support_.tolist()
    assert len(certificate.excluded) == 10
    assert certificate.drop_cost.shape == certificate.add_cost.shape == (12,)
    assert certificate.scaled
    assert len(repr(certificate)) < 300
    classes = np.digitize(X[:, 5] / X[:, 5].std(), [-0.5, 0.5])
    several = SparseClassifier(k=1, lam=0.1, standardize=True).fit(X, classes)
    assert several.certificate_.drop_cost.shape == (12,)
    assert several.certificate_.required.tolist() == [5]
    several.set_params(multiclass="ovr").fit(X, classes)
    assert [c.drop_cost.shape for c in several.certificate_] == [(12,)] * 3
    assert several.certificate_[0].required.tolist() == [5]


# ---------------------------------------------------------------------------------------------------------------------
# Models of others


def test_certify_a_support_is_to_certify_its_best_model() -> None:
    for loss in (Squared(), Logistic(), Hinge()):
        problem = Problem(*small_data(loss), loss, 3, 0.1, some_weights(24), fit_intercept=True)
        fit = refit(problem, np.array([1, 4]))
        w, b = fit.w, fit.b
        for support in ([4, 1], np.array([1, 4], dtype=np.uint8), np.isin(np.arange(7), [1, 4]).tolist()):
            certificate = certify(problem, support=support)
            assert certificate.objective == pytest.approx(primal(problem, w, b), rel=1e-9)
            assert certificate.support.tolist() == [1, 4]
    assert certify(problem, support=[]).support.tolist() == []


def test_certify_hands_over_a_better_model() -> None:
    problem = Problem(*clear_data(Squared()), Squared(), 2, 1.0, fit_intercept=True)
    certificate = certify(problem, support=[0, 4])
    best, _, _ = restricted_optima(problem)
    assert certificate.better is not None
    assert certificate.better.support.tolist() == [0, 1]
    assert certificate.better.objective == pytest.approx(best, rel=1e-6)
    assert certificate.lower_bound <= best < certificate.objective
    assert certificate.required.tolist() == [0, 1]
    assert 4 in certificate.excluded
    assert str(certificate).endswith(f"better model {certificate.better.objective:<14.7g} was found: 1 feature differs")
    w = np.zeros(6)
    w[:2] = 1.0
    assert "was found: the same features" in str(certify(problem, w))
    optimal = certify(problem, certificate.better.w, certificate.better.intercept)
    assert optimal.better is None
    assert "better model" not in str(optimal)


def test_certify_exactly_closes_a_gap_that_the_relaxation_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "_BUDGET", 0.0)
    problem = Problem(*small_data(Logistic()), Logistic(), 2, 1e-3, fit_intercept=True)
    best, _, _ = restricted_optima(problem)
    open_gap, closed = (certify(problem, support=[1, 4], exact=exact) for exact in (False, True))
    assert open_gap.lower_bound < best * (1 - 1e-3)
    assert best * (1 - 1e-4) <= closed.lower_bound <= best * (1 + 1e-9)


@pytest.mark.parametrize(("arguments", "message"), [
    ({}, "one of w and support must be given$"),
    ({"w": np.zeros(7), "support": [1]}, "one of w and support must be given, not both"),
    ({"support": [1], "intercept": 1.0}, "intercept must be None where only a support is given, got 1.0"),
    ({"support": [0, 1, 2]}, r"support must have at most 2 features, got 3 features"),
    ({"support": [7]}, "support must hold indices from 0 to 6, got 7"),
    ({"support": [-1]}, "support must hold indices from 0 to 6, got -1"),
    ({"support": [1, 1]}, "support must hold no index twice"),
    ({"support": [True, False]}, "support must have length 7 to match X if it is a mask, got length 2"),
    ({"support": [0.5]}, "support must be a list of indices or a mask, got float64"),
    ({"support": ["age"]}, "support must be a list of indices or a mask"),
    ({"support": [[1]]}, "support must be a list of indices or a mask"),
])  # fmt: skip
def test_certify_refuses_what_is_no_support(arguments: dict, message: str) -> None:
    problem = Problem(*small_data(Squared()), Squared(), 2, 0.1)
    with pytest.raises(ValueError, match="^" + message):
        certify(problem, **arguments)

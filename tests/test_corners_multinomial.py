"""The multinomial loss where samples are classified so well that probabilities round to 1, and where scores are huge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from diht import Problem, solve
from diht.bounds.duality import dual_from_primal, lower_bound
from diht.constraints.groups import constrained
from diht.losses import Multinomial
from diht.refit import refit


def separable(scale: float, lam: float, n: int = 9, k: int = 2, seed: int = 0) -> Problem:
    """Three classes around three corners."""
    rng = np.random.default_rng(seed)
    codes = np.arange(n) % 3
    X = np.array([[4.0, 0.0], [0.0, 4.0], [-4.0, -4.0]])[codes] + rng.standard_normal((n, 2))
    return Problem(scale * X, codes, "multinomial", k, lam, fit_intercept=True)


def overlapping(scale: float, lam: float, k: int) -> Problem:
    """Three classes that have little to do with the features: with all of them separable, not with fewer."""
    rng = np.random.default_rng(0)
    X, codes = scale * rng.standard_normal((13, 5)), rng.permutation(13) % 3
    return Problem(X, codes, "multinomial", k, lam, fit_intercept=True)


@pytest.mark.parametrize("score", [1.0, 30.0, 40.0, 300.0, 700.0])
def test_derivatives_have_all_their_digits(score: float) -> None:
    A = Multinomial().derivative(score * np.eye(3), np.eye(3))
    small = np.exp(-score) / (1.0 + 2.0 * np.exp(-score))
    np.testing.assert_allclose(A, small * (1.0 - 3.0 * np.eye(3)), rtol=1e-14)


@pytest.mark.parametrize("shift", [1.0, 1e20, 1e300])
def test_the_nearest_probabilities_are_the_same_for_shifted_points(shift: float) -> None:
    loss, y = Multinomial(), np.eye(3)
    spread = shift * np.array([[0.0, -0.5, -1.0], [0.0, 0.0, -0.5], [0.0, 0.0, 0.0]]).T
    np.testing.assert_allclose(loss.project(shift + spread - y, y), loss.project(spread - y, y), rtol=1e-12)
    np.testing.assert_allclose(loss.project(np.full((3, 3), shift), y).sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_array_equal(loss.project(1.7e308 * (2.0 * y - 1.0), y), 0.0)


@pytest.mark.parametrize("codes", [[0, 1, 3], [0, 1, 10**9], [1, 2, 3], [0, 2, 2]])
def test_a_class_without_samples_is_named(codes: list[int]) -> None:
    first = min(set(range(4)) - set(codes))
    with pytest.raises(ValueError, match=rf"^y must hold every number from 0 to {max(codes)} .*, got no {first}$"):
        Problem(np.eye(3), codes, "multinomial", 1)


@pytest.mark.parametrize("scale", [1e6, 1e8, 1e10])
def test_a_model_of_separable_classes_is_stationary(scale: float) -> None:
    problem = separable(scale, 1e-6)
    result, codes, onehot = solve(problem), problem.y.argmax(axis=0), problem.y.T
    X, coef = problem.samples.one.design.toarray(), result.coef.T
    U = X @ coef + problem.center[:2] @ coef + result.intercept
    V = np.exp(U - U[np.arange(9), codes][:, None])
    V[np.arange(9), codes] = 0.0
    A = (V - onehot * V.sum(axis=1)[:, None]) / (1.0 + V.sum(axis=1))[:, None]
    slope = X.T @ (A / 9.0)
    assert np.linalg.norm(slope + 1e-6 * coef) <= 1e-5 * np.linalg.norm(slope)


def test_objective_depends_on_scale_and_ridge_through_their_ratio_alone() -> None:
    objectives = [solve(separable(2.0**e, 4.0**e * 2.0**-40)).objective for e in (0, 20, 40)]
    np.testing.assert_allclose(objectives, objectives[0], rtol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e6, 1e12])
def test_intercepts_end_where_rounding_hides_their_gain(offset: float, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = overlapping(1.0, 0.1, 5)
    U = offset * np.random.default_rng(1).standard_normal((3, 13))
    assert _evaluations(monkeypatch, lambda: problem.samples.best_intercept(Multinomial(), U)) <= 100


def test_intercepts_that_are_far_from_the_best_ones_are_found_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores are such that the loss has nearly straight pieces in the intercepts."""
    problem, far = overlapping(1.0, 0.1, 5), np.array([4e3, 4001.0, -8e3])
    U = np.outer([1.0, 0.99, -20.0], 3e3 * np.random.default_rng(2).standard_normal(13))
    found: list[Any] = []
    count = _evaluations(monkeypatch, lambda: found.append(problem.samples.best_intercept(Multinomial(), U, far)))
    assert count <= 300
    slopes = problem.samples.sums(Multinomial().derivative(U + found[0][:, None], problem.y))
    assert np.abs(slopes).max() <= 1e-10


@pytest.mark.parametrize("light", [1e-20, 1e-102, 1e-290])
@pytest.mark.parametrize("score", [0.0, 1.0, 300.0])
def test_intercepts_of_a_class_of_little_weight(light: float, score: float) -> None:
    weights = np.where(np.arange(9) % 3 == 2, light, 1.0)
    problem = Problem(np.eye(9)[:, :2], np.arange(9) % 3, "multinomial", 1, 0.1, weights, True)
    U = score * np.array([[1.0], [-1.0], [-2.0]]) * np.ones(9)
    b = problem.samples.best_intercept(Multinomial(), U)
    best = np.log(problem.samples.sums(problem.y)) - U[:, 0]
    np.testing.assert_allclose((b - b[0])[:2], (best - best[0])[:2], atol=1e-12)
    slopes = problem.samples.sums(Multinomial().derivative(U + b[:, None], problem.y))
    assert np.abs(slopes).max() <= 2e-13


@pytest.mark.parametrize(("scale", "lam"), [(1.0, 1e-3), (1e6, 1e-6)])
def test_classes_with_signs_are_fitted_like_those_without(
    scale: float, lam: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, fits = separable(scale, lam), []
    sign = np.array([[1, 1], [1, 1], [1, -1]], dtype=np.int8)
    signed = plain.replaced(constraint=constrained(2, 2, sign=sign))
    assert _evaluations(monkeypatch, lambda: fits.append(refit(signed, np.arange(6)))) <= 110
    [fit] = fits
    assert fit.objective <= refit(plain, np.flatnonzero(fit.w)).objective * (1.0 + 1e-9)
    slopes = signed.samples.pull(
        dual_from_primal(signed, fit.w, fit.b, fit.u)
    )  # held ones would not go the allowed way
    assert np.all((fit.w != 0.0) | (sign.ravel() * slopes >= -1e-3 * np.abs(slopes).max()))


@pytest.mark.parametrize("scale", [1e11, 1e15])
@pytest.mark.parametrize("k", [1, 4])
def test_huge_columns_take_no_more_work_than_others(scale: float, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = overlapping(scale, 0.035, k)
    assert _evaluations(monkeypatch, lambda: solve(problem)) <= 10_000


@pytest.mark.parametrize("mean", [1e6, 1e7, 1e8])
def test_nearly_equal_columns_are_fitted_as_well_as_the_same_ones_turned(mean: float) -> None:
    rng = np.random.default_rng(0)
    codes = np.arange(12) % 3
    X = np.array([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]])[codes] + rng.standard_normal((12, 3))
    turn = np.linalg.qr(np.column_stack([np.ones(3), rng.standard_normal((3, 2))]))[0]  # the mean becomes one column
    turned = X @ turn + mean * np.array([np.ones(3) @ turn[:, 0], 0.0, 0.0])
    objectives = [solve(Problem(Z, codes, "multinomial", 3, 1e-5)).objective for Z in (mean + X, turned)]
    assert objectives[0] <= objectives[1] * (1.0 + 1e-6)


@pytest.mark.parametrize("seed", [85, 118])
def test_light_samples_are_fitted_after_the_others(seed: int) -> None:
    """Decrements do not fall from step to step while some of the light samples become sure, and others do not yet."""
    rng = np.random.default_rng(seed)
    X, codes, weights = rng.standard_normal((12, 2)), rng.permutation(12) % 4, 10.0 ** -rng.choice([0, 0, 5, 6], 12)
    problem = Problem(X, codes, "multinomial", 2, 1e-9, weights, True)
    fit = refit(problem, np.arange(8))
    bound = lower_bound(problem, dual_from_primal(problem, fit.w, fit.b, fit.u))
    assert fit.objective - bound.value <= 1e-5 * fit.objective


def test_samples_that_hold_nearly_all_weight_are_fitted_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = overlapping(1.0, 1e-3, 3)
    codes = problem.y.argmax(axis=0)
    X = problem.samples.one.design.toarray()
    heavy = Problem(X, codes, "multinomial", 3, 1e-3, np.where(codes == 0, 1e119, 1.0), True)
    assert solve(heavy).objective <= 1e-110
    assert _evaluations(monkeypatch, lambda: solve(heavy)) <= 10_000


def test_separable_classes_take_few_hessians(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = separable(1e10, 1e-6)
    assert _evaluations(monkeypatch, lambda: refit(problem, np.arange(6)), "second_derivative") <= 60


def _evaluations(monkeypatch: pytest.MonkeyPatch, work: Any, what: str = "value") -> int:
    """How often the losses are evaluated, or their derivatives."""
    count, value = [0], getattr(Multinomial, what)

    def counted(self: Multinomial, u: Any, y: Any) -> Any:
        count[0] += 1
        return value(self, u, y)

    with monkeypatch.context() as patch:
        patch.setattr(Multinomial, what, counted)
        work()
    return count[0]


def test_a_bound_whose_rounding_overflows_is_none() -> None:
    """Columns of 1e71, and a class next to no weight: what rounding can do to the bound is beyond float64."""
    weights = np.array([1.0, 7e123, 0.5, 1.8, 8e-9, 1.7])
    X, codes = 1e71 * np.random.default_rng(0).standard_normal((6, 3)), [1, 2, 0, 2, 0, 1]
    problem = Problem(X, codes, "multinomial", 1, 1e-3, weights, True)
    with np.errstate(over="raise", invalid="raise"):
        assert lower_bound(problem, np.full((3, 6), 1.0 / 3.0) - problem.y).value == 0.0

"""Lists of near-optimal models: complete where they say so, and nothing in them that is not within the threshold."""

from __future__ import annotations

import doctest
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pytest

import diht
import diht.estimators.near
import diht.solvers.enumeration
from cases import LOSSES
from diht import Problem, near_optimal, solve
from diht.constraints.base import Node
from diht.constraints.groups import constrained
from diht.design import row_blocks
from diht.losses import Loss
from diht.refit import refit
from fuzz_cases import LOSSES as NAMES
from fuzz_cases import draw, draw_shared
from fuzz_near import wrong
from test_third_constraint import AtMostOfEach

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 7))
SIGNAL = X[:, 0] + 0.8 * X[:, 1] + 0.5 * X[:, 2] + 0.5 * RNG.standard_normal(40)


def problem(k: Any = 3, table: np.ndarray = X, loss: str = "squared", **options: Any) -> Problem:
    y = SIGNAL if loss == "squared" else np.where(SIGNAL > 0.0, 1.0, -1.0)
    return Problem(table, y, loss, k=k, lam=0.01, **options)


def enumerated(stated: Problem, k: int) -> dict[tuple[int, ...], float]:
    """The best objective on each support of k features."""
    d = stated.shape[1]
    return {support: refit(stated, np.array(support)).objective for support in combinations(range(d), k)}


@pytest.mark.parametrize("constraint", ["plain", "keep", "groups", "sign"])
@pytest.mark.parametrize("loss", NAMES)
def test_lists_agree_with_enumeration(loss: str, constraint: str) -> None:
    seed = 1000 + 10 * NAMES.index(loss) + len(constraint)
    near, findings = wrong(draw(seed, loss, constraint), (0.0, 0.1, 0.5)[seed % 3])
    assert not findings
    assert len(near) >= 1


@pytest.mark.parametrize("seed", range(8))
def test_lists_of_several_targets_agree_with_enumeration(seed: int) -> None:
    assert not wrong(draw_shared(seed), 0.2)[1]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_everything_is_listed_where_the_threshold_is_high(loss: Loss) -> None:
    y = np.round(np.exp(0.3 * SIGNAL)) if loss.nonnegative_targets else SIGNAL
    y = np.where(SIGNAL > 0.0, 1.0, -1.0) if loss.task == "classification" else y
    stated = Problem(X, y, loss, k=2, lam=0.1, fit_intercept=True)
    near, known = near_optimal(stated, 1e3), enumerated(stated, 2)
    assert near.complete
    assert {tuple(support.tolist()) for support in near.supports} == set(known)
    np.testing.assert_allclose(near.objectives, sorted(known.values()), rtol=1e-9)
    np.testing.assert_allclose(near.frequency, 2 / 7)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_list_that_is_cut_holds_the_best(loss: str) -> None:
    stated = problem(loss=loss)
    objectives = np.sort(list(enumerated(stated, 3).values()))
    epsilon = objectives[9] / objectives[0] * (1.0 + 1e-6) - 1.0  # ten models
    cut, exact = near_optimal(stated, epsilon, max_models=4), near_optimal(stated, epsilon, max_models=10)
    np.testing.assert_allclose(cut.objectives, objectives[:4], rtol=1e-9)
    assert not cut.complete
    assert cut.exhausted_below == pytest.approx(objectives[4], rel=1e-8)
    assert exact.complete
    assert len(exact) == 10
    assert exact.threshold == pytest.approx((1.0 + epsilon) * objectives[0], rel=1e-12)


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_the_threshold_follows_the_best_model_that_is_found(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a bad model and a trivial bound the same list comes out."""
    stated = problem(loss=loss)
    expected = near_optimal(stated, 0.3)
    worst = np.zeros(7)
    worst[list(max(enumerated(stated, 3).items(), key=lambda item: item[1])[0])] = 1e-3

    def bad(stated: Problem, *_: Any, **__: Any) -> Any:
        return solve(stated, "iht", start=worst, max_iter=1)

    monkeypatch.setattr(diht.solvers.enumeration, "solve", bad)
    near = near_optimal(stated, 0.3)
    assert near.complete
    assert [s.tolist() for s in near.supports] == [s.tolist() for s in expected.supports]
    assert near.threshold == pytest.approx(expected.threshold, rel=1e-12)


def test_time_that_is_up_leaves_a_model_and_a_true_claim() -> None:
    stated = problem()
    near = near_optimal(stated, 0.5, time_limit=1e-9)
    known = enumerated(stated, 3)
    assert not near.complete
    assert len(near) >= 1
    listed = {tuple(support.tolist()) for support in near.supports}
    assert all(value >= near.exhausted_below for support, value in known.items() if support not in listed)
    assert "perhaps others" in str(near)


def test_copies_are_one_class() -> None:
    """Equal, opposite, and with an intercept complementary columns; a support may hold two of them."""
    half = (X[:, [0]] > 0.0).astype(float)
    table = np.hstack([half, X[:, 1:4], -X[:, [1]], 1.0 - half, X[:, [1]]])
    stated = problem(3, table, fit_intercept=True)
    near, known = near_optimal(stated, 10.0), enumerated(stated, 3)
    assert near.complete
    assert [features.tolist() for features in near.classes] == [[0, 5], [1, 4, 6]]
    assert near.n_supports == comb(7, 3) == len(known)
    assert len(near) == 11  # of {0, 5} none, one or both; of {1, 4, 6} up to three; the rest of 2 and 3
    for support, objective, number in zip(near.supports, near.objectives, near.multiplicity, strict=True):
        alike = sum(value == pytest.approx(objective, rel=1e-11) for value in known.values())
        assert alike == number
        assert known[tuple(support.tolist())] == pytest.approx(objective, rel=1e-11)
    np.testing.assert_allclose(near.frequency, 3 / 7)
    assert "copies of each other: x0 = x5; x1 = x4 = x6" in str(near)


def test_models_count_once_for_their_copies() -> None:
    doubled = np.hstack([X, X])
    single, double = (
        near_optimal(problem(2), 0.3),
        near_optimal(problem(2, doubled), 0.3, max_models=len(enumerated(problem(2), 2))),
    )
    assert double.complete
    assert {tuple(s.tolist()) for s in single.supports} <= {tuple(s.tolist()) for s in double.supports}
    assert set(double.multiplicity) <= {1, 4}
    np.testing.assert_allclose(double.frequency[:7], double.frequency[7:])


@pytest.mark.parametrize(("sign", "classes"), [([1, 0, 0, 1], [[0, 3]]), ([1, 0, 0, 0], []), ([1, 0, 0, -1], [])])
def test_copies_have_the_same_signs(sign: list[int], classes: list[list[int]]) -> None:
    table = np.hstack([X[:, :3], X[:, [0]]])
    near = near_optimal(problem(constrained(2, 4, sign=sign), table), 100.0)
    assert [features.tolist() for features in near.classes] == classes
    assert near.n_supports == comb(4, 2)


def test_a_column_that_is_kept_has_no_copies() -> None:
    near = near_optimal(problem(constrained(1, 4, keep=[0]), np.hstack([X[:, :3], X[:, [0]]])), 100.0)
    assert near.classes == ()
    assert [0, 3] in [support.tolist() for support in near.supports]
    assert near.n_supports == 3


def test_columns_of_zeros_are_features_too() -> None:
    near = near_optimal(problem(2, np.hstack([X[:, :2], np.zeros((40, 3))])), 100.0)
    assert near.complete
    assert near.n_supports == comb(5, 2)
    assert [features.tolist() for features in near.classes] == [[2, 3, 4]]


def test_an_objective_of_zero_lists_all_supports() -> None:
    near = near_optimal(Problem(X, np.zeros(40), "squared", k=2, lam=0.1), 0.5)
    assert near.complete
    assert len(near) == comb(7, 2)
    assert near.threshold == 0.0
    assert "best" in str(near)


@dataclass(frozen=True)
class Lowered(Loss):
    """The squared error less a constant, so that objectives are negative."""

    name = "lowered"
    task = "regression"
    mu = 0.5

    def domain(self, y: Any) -> tuple[float, float]:
        return -np.inf, np.inf

    def value(self, u: Any, y: Any) -> Any:
        return (u - y) ** 2 - 10.0

    def derivative(self, u: Any, y: Any) -> Any:
        return 2.0 * (u - y)

    def second_derivative(self, u: Any, y: Any) -> Any:
        return np.full_like(u, 2.0)

    def conjugate(self, a: Any, y: Any) -> Any:
        return a * (y + 0.25 * a) + 10.0

    def conjugate_derivative(self, a: Any, y: Any) -> Any:
        return y + 0.5 * a


def test_a_negative_objective_has_a_threshold_above_it() -> None:
    stated = Problem(X, SIGNAL, Lowered(), k=2, lam=0.01)
    near, known = near_optimal(stated, 0.05), enumerated(stated, 2)
    best = min(known.values())
    assert best < 0.0
    assert near.complete
    assert near.threshold == pytest.approx(0.95 * best, rel=1e-9)
    assert {tuple(s.tolist()) for s in near.supports} == {s for s, value in known.items() if value <= 0.95 * best}
    assert 1 < len(near) < len(known)


def test_a_threshold_that_rounding_hides_is_not_called_complete() -> None:
    """The best objective is some 1e-23, and no bound tells it from zero."""
    near, findings = wrong(draw(152), 0.0)
    assert not findings
    assert not near.complete
    assert near.exhausted_below <= near.threshold


def test_rows_in_blocks() -> None:
    design = row_blocks([X[:15], X[15:]])
    whole, blocks = near_optimal(problem(), 0.2), near_optimal(problem(table=design), 0.2)
    assert blocks.complete
    assert [s.tolist() for s in blocks.supports] == [s.tolist() for s in whole.supports]


def test_features_that_are_out_are_in_no_support() -> None:
    near = near_optimal(problem(Node(3, np.array([4]), np.array([0, 1, 2]))), 100.0)
    assert sorted(s.tolist() for s in near.supports) == [[3, 4, 5], [3, 4, 6], [4, 5, 6]]


def test_models_have_their_coefficients() -> None:
    near = near_optimal(problem(scale=X.std(axis=0), fit_intercept=True), 0.2)
    for model, support, objective in zip(near.models, near.supports, near.objectives, strict=True):
        np.testing.assert_array_equal(model.support, support)
        prediction = X @ model.coef + model.intercept
        value = np.mean((SIGNAL - prediction) ** 2) + 0.005 * np.sum((model.coef * X.std(axis=0)) ** 2)
        assert value == pytest.approx(objective, rel=1e-9)


def test_text_and_picture() -> None:
    near = near_optimal(problem(), 1.5, feature_names=[f"column {j}" for j in range(7)])
    assert str(near).startswith(f"{len(near)} models within 150% of the best, all there are")
    assert "column 0" in repr(near)
    axes = near.plot().axes[0]
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels[0].startswith("column")
    assert len(labels) == np.count_nonzero(near.frequency >= 0.1)
    assert (
        sum(bar.get_facecolor() == axes.patches[labels.index("column 0")].get_facecolor() for bar in axes.patches) == 3
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": -0.1}, "epsilon must be a number, zero or more, got -0.1"),
        ({"epsilon": np.nan}, "epsilon must be a number, zero or more, got nan"),
        ({"epsilon": "1"}, "epsilon must be a number, zero or more, got '1'"),
        ({"max_models": 0}, "max_models must be a whole number, one or more, got 0"),
        ({"max_models": 2.5}, "max_models must be a whole number, one or more, got 2.5"),
        ({"time_limit": 0}, "time_limit must be positive, got 0"),
        ({"feature_names": ["a"]}, "feature_names must be 7 to match X, got 1"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        near_optimal(problem(), **arguments)


@pytest.mark.parametrize(
    "k", [AtMostOfEach(3, 1, np.array([0, 0, 1, 1, 2, 2, 2])), Node(4, np.array([4]), np.arange(4))]
)
def test_constraints_that_count_nothing(k: Any) -> None:
    with pytest.raises(
        ValueError, match=r"^problem must have a k that counts features or groups, no more than there are, got"
    ):
        near_optimal(problem(k))


def test_the_example_of_the_documentation() -> None:
    assert doctest.testmod(diht.estimators.near).failed == 0


def test_what_is_no_problem_is_refused():
    for ask in (near_optimal, diht.certify, diht.solve):
        with pytest.raises(ValueError, match=r"^problem must be a Problem, .* got SparseRegressor$"):
            ask(diht.SparseRegressor())

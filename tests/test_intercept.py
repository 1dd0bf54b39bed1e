"""The scalar root behind the intercept, and the projection on F and sum_i s_i alpha_i = 0."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from cases import LOSSES, without_features
from diht.losses import Hinge, Loss
from diht.samples.intercept import increasing_root
from oracle import targets

NAMES = [loss.name for loss in LOSSES]
SCALES = [1e-12, 1e-6, 1.0, 1e6, 1e12]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("start", [0.0, 1.0, -1e6])
def test_smooth_functions(scale: float, start: float) -> None:
    for root in (-3.7 * scale, scale, 0.25 * scale):
        for function in (
            lambda t, r=root: (t - r) / scale,
            lambda t, r=root: math.atan((t - r) / scale),
            lambda t, r=root: ((t - r) / scale) ** 3,
            lambda t, r=root: math.expm1(min((t - r) / scale, 700.0)),
        ):
            found = increasing_root(function, start)
            # The sign of the function must change within a few units in the last place, or its value be zero.
            step = 4 * np.spacing(abs(found)) + 1e-300
            assert (
                function(found) == 0.0
                or function(found - step) <= 0.0 <= function(found + step)
                or (
                    abs(function(found)) < 1e-30  # a triple root is as flat as that
                )
            )


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-1.0, 0.01), (-1e-9, 1.0), (-3.0, 1e-12)])
def test_a_jump_is_found_not_a_point_of_the_flat_part_beside_it(scale: float, low: float, high: float) -> None:
    jump = 0.7316 * scale
    found = increasing_root(lambda t: low if t < jump else high)
    assert abs(found - jump) <= 1e-9 * scale


def test_flat_parts() -> None:
    # Zero on [1, 2]: any point of it will do.
    assert 1.0 <= increasing_root(lambda t: min(t - 1.0, 0.0) + max(t - 2.0, 0.0)) <= 2.0
    # Flat, then steep: nothing of the flat part tells where the root is.
    assert increasing_root(lambda t: -1e-9 if t < 5.0 else 1e9 * (t - 5.0) - 1e-9) == pytest.approx(5.0, abs=1e-9)


def test_values_whose_product_underflows_still_have_a_sign() -> None:
    assert increasing_root(lambda t: 1e-200 * (t - 3.0)) == pytest.approx(3.0, rel=1e-12)
    assert increasing_root(lambda t: 1e-310 * (t - 3.0)) == pytest.approx(3.0, rel=1e-4)


def test_no_change_of_sign_gives_the_least_value_seen() -> None:
    assert abs(increasing_root(lambda t: 1.0 + math.atan(t) / 2)) > 1e3
    assert increasing_root(lambda t: 2.0) <= 0.0
    assert math.isfinite(increasing_root(lambda t: math.nan))


def test_few_evaluations() -> None:
    calls = []

    def h(t: float) -> float:
        calls.append(t)
        return math.tanh(t - 12.3)

    assert increasing_root(h) == pytest.approx(12.3, rel=1e-14)
    assert len(calls) < 60


@pytest.mark.parametrize("start", [-3.0, 0.0, 1.0])
def test_secants_that_come_closer_from_one_side_are_followed(start: float) -> None:
    """Where h is convex all of them lie to the left of the root; the other end of the bracket does not matter."""
    calls = []

    def h(t: float) -> float:
        calls.append(t)
        return math.log1p(math.exp(t)) - 3.0

    assert increasing_root(h, start, 1e-14) == pytest.approx(math.log(math.expm1(3.0)), rel=1e-13)
    assert len(calls) <= 15


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e6), st.floats(-1e9, 1e9))
def test_piecewise_linear_functions(root: float, slope: float, start: float) -> None:
    def h(t: float) -> float:
        return max(-1.0, min(1.0, slope * (t - root)))

    found = increasing_root(h, start)
    assert abs(found - root) <= 4 * np.spacing(abs(root)) + 1e-290 or abs(h(found)) <= 1e-15


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
@given(st.integers(0, 2**32), st.sampled_from([1e-6, 1.0, 1e6]), st.booleans(), st.integers(0, 5))
def test_no_intercept_is_better_than_the_best(loss: Loss, seed: int, scale: float, ties: bool, cut: int) -> None:
    rng = np.random.default_rng(seed)
    n = rng.integers(2, 30)
    u = rng.integers(-2, 3, n).astype(float) if ties else scale * rng.standard_normal(n)
    y = targets(loss, rng.standard_normal(n), rng) * (scale if loss.task == "regression" and not ties else 1.0)
    s = rng.random(n) * (rng.random(n) < 0.7)
    s[0] = s[-1] = 0.5
    s /= s.sum()
    samples = without_features(y, s, cut)
    b = samples.best_intercept(loss, samples.put(u), start=float(rng.standard_normal()))

    def total(t: float) -> float:
        return float(s @ loss.value(u + t, y))

    rivals = [*(y - u), *(b + np.logspace(-12, 3, 31)), *(b - np.logspace(-12, 3, 31))]
    # An optimum of zero is missed by the square of a few roundings of u + b.
    assert total(b) <= min(map(total, rivals)) * (1 + 1e-13) + 1e-28


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_balanced_is_the_projection(loss: Loss) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        n, cut = 8, 2 * seed
        y = targets(loss, rng.standard_normal(n), rng)
        s = rng.random(n)
        s /= s.sum()
        alpha = 2 * rng.standard_normal(n)
        samples = without_features(y, s, cut)
        projected = samples.fetch(samples.balanced(loss, samples.put(alpha)))
        assert abs(s @ projected) <= 1e-15
        assert np.all(np.isfinite(loss.conjugate(projected, y)))
        low, high = (np.broadcast_to(end, n) for end in loss.domain(y))
        rival = minimize(
            lambda a: s @ (a - alpha) ** 2,  # noqa: B023 - called at once
            np.zeros(n),
            jac=lambda a: 2 * s * (a - alpha),  # noqa: B023
            bounds=list(zip(low, high, strict=True)),
            constraints={"type": "eq", "fun": lambda a: s @ a, "jac": lambda a: s},  # noqa: B023
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        ).x
        np.testing.assert_allclose(projected, rival, atol=1e-6)
        assert s @ (projected - alpha) ** 2 <= s @ (rival - alpha) ** 2 + 1e-9


def test_balanced_keeps_what_is_balanced() -> None:
    y = np.array([1.0, 1.0, -1.0])
    alpha = np.array([-0.25, -0.5, 0.75])
    samples = without_features(y, np.full(3, 1 / 3))
    np.testing.assert_allclose(samples.balanced(Hinge(), alpha), alpha, atol=1e-15)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
@given(st.integers(0, 2**32), st.sampled_from([1e-8, 1.0, 1e8]))
def test_balanced_is_feasible_whatever_the_scale(loss: Loss, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    n = rng.integers(2, 20)
    y = targets(loss, rng.standard_normal(n), rng)
    s = rng.random(n)
    s /= s.sum()
    alpha = scale * rng.standard_normal(n)
    projected = without_features(y, s).balanced(loss, alpha)
    assert np.all(np.isfinite(loss.conjugate(projected, y)))
    assert abs(s @ projected) <= 1e-15 * (1.0 + np.abs(alpha).max())  # the shift is added to numbers of that size

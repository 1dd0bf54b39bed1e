"""Every loss against its table, its conjugate, high precision, and brute force; each sample by itself."""

import ast
import copy
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from sklearn.metrics import get_scorer_names

import diht
from cases import LOSSES as CORE_LOSSES
from cases import MORE_LOSSES
from diht.losses import (
    LOSSES,
    Hinge,
    Huber,
    Logistic,
    Loss,
    NegativeBinomial,
    Poisson,
    QuadraticConjugate,
    Quantile,
    SmoothedHinge,
    Squared,
    Tweedie,
    as_loss,
)
from oracle import TEXTBOOK, textbook


@dataclass(frozen=True)
class LogCosh(Loss):
    """log cosh(u - y), with the required methods only; its l*' is infinite at the ends of F."""

    name = "log_cosh"
    task = "regression"
    mu = 1.0
    explicit = False

    def value(self, u, y):
        r = abs(u - y)
        return r + np.log1p(np.exp(-2 * r)) - math.log(2)

    def derivative(self, u, y):
        return np.tanh(u - y)

    def conjugate(self, a, y):
        x = np.clip(a, -1, 1)
        above, below = 1 + x, 1 - x
        entropy = above * np.log(np.where(above > 0, above, 1)) + below * np.log(np.where(below > 0, below, 1))
        return np.where(abs(a) > 1, np.inf, x * y + entropy / 2)

    def conjugate_derivative(self, a, y):
        end = abs(a) >= 1
        return np.where(end, np.inf * np.sign(a), y + np.arctanh(np.where(end, 0, a)))

    def domain(self, y):
        return -1.0, 1.0


OTHERS: list[Loss] = [SmoothedHinge(gamma=0.7), Huber(delta=0.3), Quantile(0.3, 0.2), Tweedie(1.9), LogCosh()]
LOSS_INSTANCES: list[Loss] = [*CORE_LOSSES, *MORE_LOSSES, *OTHERS]
FAMILY = [loss for loss in LOSS_INSTANCES if loss.pieces is not None]
BUILT_IN = [loss for loss in LOSS_INSTANCES if not isinstance(loss, LogCosh)]
CLASSIFICATION = [loss for loss in LOSS_INSTANCES if loss.task == "classification"]
REGRESSION = [loss for loss in LOSS_INSTANCES if loss.task == "regression"]
SMOOTH = [loss for loss in LOSS_INSTANCES if loss.mu > 0]
EPS = np.finfo(np.float64).eps

every_loss = pytest.mark.parametrize("loss", LOSS_INSTANCES, ids=repr)


def targets(loss: Loss, n: int, rng: np.random.Generator) -> np.ndarray:
    if loss.positive_targets:
        return rng.gamma(2.0, size=n)
    if loss.nonnegative_targets:
        return rng.poisson(2.0, size=n).astype(np.float64)
    return rng.choice([-1.0, 1.0], size=n) if loss.task == "classification" else rng.normal(scale=2.0, size=n)


def points_of_domain(loss: Loss, y: np.ndarray, rng: np.random.Generator, ends: bool = True) -> np.ndarray:
    """Points of F: interior ones, and both ends where they exist."""
    low, high = (np.broadcast_to(end, y.shape) for end in loss.domain(y))
    low, high = np.maximum(low, -20.0), np.minimum(high, 20.0)
    share = rng.uniform(size=y.shape)
    if ends:
        share[::5], share[1::5] = 0.0, 1.0
    return np.clip(low + share * (high - low), low, high)


def gap(loss: Loss, u: Any, a: Any, y: Any) -> Any:
    return loss.value(u, y) + loss.conjugate(a, y) - a * u


def kinks(loss: Loss, y: np.ndarray) -> np.ndarray:
    """The u, one row a kink, at which l' or l'' jumps."""
    if loss.pieces is None:
        return np.empty((0, len(y)))
    ends = np.array([np.broadcast_to(end, y.shape) for end in loss.domain(y)])
    return y + loss.mu * np.where(np.isinf(ends), np.nan, ends)


# ---------------------------------------------------------------------------------------------------------------------
# The table, at 50 digits
# ---------------------------------------------------------------------------------------------------------------------

mp = mpmath.MPContext()  # its own, so that no other test changes its precision
mp.dps = 50


def exact(formula: Callable[..., Any], x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Evaluate at 50 digits, then round to float64."""
    return np.array([float(formula(mp.mpf(float(xi)), mp.mpf(float(yi)))) for xi, yi in zip(x, y, strict=True)])


def extreme_margins() -> np.ndarray:
    near_one = [1 - 2**-53, 1.0, 1 + 2**-52, 0.75, 0.75 - 2**-53, 0.3, 0.3 + 2**-54]
    small = [0.0, 5e-324, 1e-300, 1e-16, 1e-8]
    large = [2.0, 10.0, 36.7, 37.0, 100.0, 700.0, 710.0, 1e4, 1e8]
    u = np.array(near_one + small + large)
    return np.concatenate([u, -u])


def extreme_duals() -> np.ndarray:
    """Dual variables that p = |a| sends next to 0, 1/2 and 1, and outside."""
    p = [0.0, 5e-324, 1e-300, 1e-16, 1e-8, 0.25 - 2**-54, 0.25, 0.3, 0.3 + 2**-54, 0.5 - 2**-54, 0.5, 0.5 + 2**-53]
    p += [0.7, 0.75, 0.75 + 2**-53, 1 - 1e-8, 1 - 2**-53, 1.0, 1 + 2**-52, 1.5, 1e8, 1e150]
    a = np.array(p)
    return np.concatenate([a, -a])


def extreme_targets(loss: Loss) -> list[float]:
    return [-1.0, 1.0] if loss.task == "classification" else [-1e8, -1.0, 0.0, 0.3, 1e8]


tabulated = pytest.mark.parametrize(
    "loss", [loss for loss in BUILT_IN if type(loss) in TEXTBOOK and loss.link != "log"], ids=repr
)


@tabulated
def test_value_and_derivative_at_extremes(loss: Loss) -> None:
    row, u = textbook(loss, mp), extreme_margins()
    for target in extreme_targets(loss):
        y = np.full_like(u, target)
        np.testing.assert_allclose(loss.value(u, y), exact(row.value, u, y), rtol=4 * EPS, atol=1e-320)
        np.testing.assert_allclose(loss.derivative(u, y), exact(row.derivative, u, y), rtol=4 * EPS, atol=1e-320)


@tabulated
def test_conjugate_at_extremes(loss: Loss) -> None:
    row, duals = textbook(loss, mp), extreme_duals()
    for target in extreme_targets(loss):
        inside = np.array([bool(row.contains(mp.mpf(float(a)), mp.mpf(target))) for a in duals])
        np.testing.assert_array_equal(np.isposinf(loss.conjugate(duals, np.full_like(duals, target))), ~inside)
        a, y = duals[inside], np.full(inside.sum(), target)
        # y a and (mu/2) a^2 may cancel: then the error is small beside them, not beside their sum.
        terms = 0.0 if isinstance(loss, Logistic) else abs(y * a) + loss.mu / 2 * a * a
        error = abs(loss.conjugate(a, y) - exact(row.conjugate, a, y))
        assert np.all(error <= 2 * EPS * np.maximum(terms, abs(loss.conjugate(a, y))) + 1e-320)


@tabulated
def test_conjugate_derivative_at_extremes(loss: Loss) -> None:
    row, duals = textbook(loss, mp), extreme_duals()
    for target in extreme_targets(loss):
        a = np.array([a for a in duals if row.contains(mp.mpf(float(a)), mp.mpf(target))])
        y = np.full_like(a, target)
        terms = 0.0 if isinstance(loss, Logistic) else abs(y) + loss.mu * abs(a)
        computed, wanted = loss.conjugate_derivative(a, y), exact(row.conjugate_derivative, a, y)
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(computed[~finite], wanted[~finite])
        error = abs(computed[finite] - wanted[finite])
        assert np.all(error <= 2 * EPS * np.maximum(terms, abs(wanted))[finite])


@pytest.mark.parametrize("target", [0.0, 5e-324, 1e-30, 0.3, 1.0, 7.0, 1e8, 1e75])
def test_poisson_at_extremes(target: float) -> None:
    """Errors are small beside the terms that `conjugate_terms` names, those of l beside what a rounding of u moves."""
    loss, row = Poisson(), textbook(Poisson(), mp)
    center = np.log(target) if target else 0.0
    offsets = np.concatenate([[0.0], 10.0 ** np.arange(-12, 3), -(10.0 ** np.arange(-12, 9))])
    u = np.minimum(center + offsets, 290.0)
    y = np.full_like(u, target)
    exactly = exact(row.value, u, y)
    moved = EPS * (abs(u) + abs(center)) * abs(exact(row.derivative, u, y))
    assert np.all(abs(loss.value(u, y) - exactly) <= 4 * EPS * exactly + 2 * moved + 1e-320)
    np.testing.assert_allclose(loss.second_derivative(u, y), np.exp(u), rtol=4 * EPS)
    a = np.concatenate(
        [-target * np.array([1.0, 1 - 2**-53, 0.9, 0.5, 1e-9]), (target or 1.0) * 10.0 ** np.arange(-12, 40)]
    )
    y = np.full_like(a, target)
    error = abs(loss.conjugate(a, y) - exact(row.conjugate, a, y))
    assert np.all(error <= 4 * EPS * loss.conjugate_terms(a, y, loss.conjugate(a, y)) + 1e-320)
    inside = a[a + target > 0]
    computed, wanted = (
        loss.conjugate_derivative(inside, target),
        exact(row.conjugate_derivative, inside, y[: len(inside)]),
    )
    np.testing.assert_allclose(computed, wanted, rtol=4 * EPS, atol=4 * EPS)


def test_poisson_where_there_are_no_such_counts() -> None:
    loss, y = Poisson(), np.array([0.0, 3.0])
    assert np.all(np.isposinf(loss.conjugate(np.nextafter(-y, -np.inf), y)))
    np.testing.assert_allclose(loss.conjugate(-y, y), [0.0, 3.0 - 3.0 * np.log(3.0)], rtol=1e-14)
    np.testing.assert_array_equal(loss.conjugate_derivative(-y, y), [-np.inf, -np.inf])
    far = np.array([1e8, 1e8])
    a = loss.derivative(far, y)
    assert np.all(np.isfinite(loss.conjugate(a, y)))
    np.testing.assert_allclose(gap(loss, far, a, y), 0.0, atol=1e-12 * a.max() * far.max())
    with pytest.raises(ValueError, match=r"^y must not be negative for the poisson loss, got -2.0 at position 1$"):
        loss.check_targets([0.0, -2.0, -3.0])


@pytest.mark.parametrize("tau", [1e-12, 1e-4, 0.25, 1.0, 30.0, 1e4, 1e12])
def test_poisson_prox_at_extremes(tau: float) -> None:
    z = np.array([0.0, 1e-12, 0.1, 0.5, 1.0, 2.0, 30.0, 1e4, 1e8])
    z = np.concatenate([z, -z])
    for target in (0.0, 1e-6, 1.0, 50.0, 1e8):
        y = np.full_like(z, target)
        a = Poisson().conjugate_prox(z, tau, y)
        for ai, zi in zip(a, z, strict=True):
            c, t = mp.mpf(float(zi)) + mp.mpf(target), mp.mpf(tau)
            low, high = mp.mpf(-1e12), mp.mpf(1000)
            high = min(high, c / t) if c < 0 else high
            low = min(low, c / t - 1)
            for _ in range(230):
                middle = (low + high) / 2
                low, high = (middle, high) if mp.exp(middle) + t * middle < c else (low, middle)
            wanted = mp.exp(low) - mp.mpf(target)
            assert abs(mp.mpf(float(ai)) - wanted) <= 64 * EPS * (abs(wanted) + abs(zi) + min(tau, 1.0) * target + EPS)


@pytest.mark.parametrize("tau", [1e-300, 1e-12, 1e-9, 1e-3, 1.0])
def test_poisson_prox_of_a_count_of_zero_has_its_digits(tau: float) -> None:
    """a = exp(t) = -tau t, whose root is that of W: an ulp of t moves exp(t) by |t| of them."""
    a = Poisson().conjugate_prox(np.zeros(1), tau, np.zeros(1))[0]
    wanted = mp.mpf(tau) * mp.lambertw(1 / mp.mpf(tau)).real
    assert abs(mp.mpf(float(a)) - wanted) <= 4 * EPS * wanted


@pytest.mark.parametrize(
    "loss", [loss for loss in REGRESSION if not isinstance(loss, LogCosh | NegativeBinomial)], ids=repr
)
def test_an_offset_is_a_change_of_target_and_weight(loss: Loss) -> None:
    rng = np.random.default_rng(3)
    y, u, offset = targets(loss, 200, rng), rng.normal(size=200), rng.normal(size=200)
    z, factor = loss.with_offset(y, offset)
    np.testing.assert_allclose(factor * loss.value(u, z), loss.value(u + offset, y), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("loss", [*CLASSIFICATION, NegativeBinomial()], ids=repr)
def test_an_offset_cannot_be_used_where_it_is_no_change_of_targets(loss: Loss) -> None:
    with pytest.raises(ValueError, match=f"offset cannot be used with the {loss.name} loss"):
        loss.with_offset(np.ones(2), np.zeros(2))


def test_logistic_conjugate_is_zero_at_both_ends() -> None:
    a, y = np.array([0.0, -1.0, 0.0, 1.0]), np.array([1.0, 1.0, -1.0, -1.0])
    np.testing.assert_array_equal(Logistic().conjugate(a, y), np.zeros(4))
    np.testing.assert_array_equal(Logistic().conjugate_derivative(a, y), [np.inf, -np.inf, -np.inf, np.inf])


# ---------------------------------------------------------------------------------------------------------------------
# Fenchel-Young, the domain, the conjugate
# ---------------------------------------------------------------------------------------------------------------------


@every_loss
def test_fenchel_young_inequality(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    y = targets(loss, 4000, rng)
    u = rng.normal(size=4000) * 10 ** rng.uniform(-3, 3, size=4000)
    a = points_of_domain(loss, y, rng)
    size = abs(loss.value(u, y)) + abs(loss.conjugate(a, y)) + abs(a * u)
    assert np.all(np.isfinite(loss.conjugate(a, y)))
    assert np.all(gap(loss, u, a, y) >= -4 * EPS * size)
    # Away from equality the gap is that of strong convexity: at least (mu/2) (a - l'(u))^2.
    assert np.all(gap(loss, u, a, y) >= loss.mu / 2 * (a - loss.derivative(u, y)) ** 2 - 8 * EPS * size)


@every_loss
def test_fenchel_young_equality(loss: Loss) -> None:
    rng = np.random.default_rng(1)
    y = targets(loss, 4000, rng)
    u = rng.normal(size=4000) * 10 ** rng.uniform(-8, 8, size=4000)
    u[:500] = y[:500]  # the kink of the hinge
    a = loss.derivative(u, y)
    size = abs(loss.value(u, y)) + abs(a * u) + loss.conjugate_terms(a, y, loss.conjugate(a, y))
    assert np.all(abs(gap(loss, u, a, y)) <= 4 * EPS * np.maximum(size, 1.0))


@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
def test_derivative_inverts_conjugate_derivative(loss: Loss) -> None:
    rng = np.random.default_rng(2)
    y = targets(loss, 1000, rng)
    a = points_of_domain(loss, y, rng, ends=False)
    np.testing.assert_allclose(loss.derivative(loss.conjugate_derivative(a, y), y), a, rtol=0, atol=1e-13)


@every_loss
def test_conjugate_is_infinite_outside_the_domain_for_each_sample(loss: Loss) -> None:
    rng = np.random.default_rng(3)
    y = targets(loss, 200, rng)
    low, high = (np.broadcast_to(end, y.shape) for end in loss.domain(y))
    assert np.all(low < high)
    for end, away in ((low, -np.inf), (high, np.inf)):
        finite = np.isfinite(end)
        assert np.all(np.isfinite(loss.conjugate(end, y)) == finite)
        beyond = np.where(finite, np.nextafter(end, away), 0.0)
        np.testing.assert_array_equal(np.isposinf(loss.conjugate(beyond, y)), finite)
        far = np.where(finite, np.sign(away) * 1e300, 0.0)
        np.testing.assert_array_equal(np.isposinf(loss.conjugate(far, y)), finite)
        for i in np.flatnonzero(finite)[:5]:  # one bad sample among good ones
            a = loss.start(y)
            a[i] = beyond[i]
            np.testing.assert_array_equal(np.isinf(loss.conjugate(a, y)), np.arange(200) == i)


@every_loss
def test_conjugate_is_the_supremum(loss: Loss) -> None:
    rng = np.random.default_rng(4)
    grid = np.arange(-60_000, 60_001) / 1000.0
    y = np.round(targets(loss, 12, rng), 3)
    a = points_of_domain(loss, y, rng, ends=False)
    brute = np.array(
        [np.max(ai * grid - loss.value(grid, np.full_like(grid, yi))) for ai, yi in zip(a, y, strict=True)]
    )
    # A grid of width h misses the maximum of a function with curvature 1/mu by at most (h/2)^2 / (2 mu); the kinks of
    # others are grid points.
    missed = 0.0 if not loss.differentiable else 0.0005**2 / (2 * (loss.mu or 1 / 30))
    assert np.all(loss.conjugate(a, y) >= brute - 1e-12)
    assert np.all(loss.conjugate(a, y) <= brute + missed + 1e-12)


@every_loss
def test_domain_is_where_the_supremum_is_finite(loss: Loss) -> None:
    rng = np.random.default_rng(5)
    y = targets(loss, 20, rng)
    for end, away in zip(loss.domain(y), (-1.0, 1.0), strict=True):
        end = np.broadcast_to(end, y.shape)
        finite = abs(end) < 1e10  # others are far away, where nothing overflows yet
        a = end[finite] + away * 0.01
        inner, outer = (a * u - loss.value(u, y[finite]) for u in (away * 1e6, away * 2e6))
        assert np.all(outer - inner >= 0.0099e6)  # grows for ever at the rate of the excess


@every_loss
@pytest.mark.parametrize("shift", [-3.0, 0.5, 40.0])
def test_derivatives_against_finite_differences(loss: Loss, shift: float) -> None:
    rng = np.random.default_rng(6)
    y = targets(loss, 500, rng)
    u = shift + rng.uniform(-3, 3, size=500)
    h = 1e-5
    smooth = np.all(~(abs(u - kinks(loss, y)) < 2 * h), axis=0)
    assert smooth.sum() > 490
    u, y = u[smooth], y[smooth]
    slope = (loss.value(u + h, y) - loss.value(u - h, y)) / (2 * h)
    curvature = (loss.derivative(u + h, y) - loss.derivative(u - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.derivative(u, y), slope, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(loss.second_derivative(u, y), curvature, rtol=1e-8, atol=1e-8)


@every_loss
def test_conjugate_derivative_against_finite_differences(loss: Loss) -> None:
    rng = np.random.default_rng(7)
    y = targets(loss, 500, rng)
    low, high = (np.broadcast_to(end, y.shape) for end in loss.domain(y))
    room = np.minimum(high, 20.0) - np.maximum(low, -20.0)
    a = np.maximum(low, -20.0) + room * rng.uniform(0.05, 0.95, size=500)
    h = 1e-5 * room
    slope = (loss.conjugate(a + h, y) - loss.conjugate(a - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.conjugate_derivative(a, y), slope, rtol=1e-7, atol=1e-7)


def test_hinge_at_its_kink_takes_the_subgradient_nearest_zero() -> None:
    y = np.array([1.0, -1.0])
    np.testing.assert_array_equal(Hinge().derivative(y, y), [0.0, 0.0])
    np.testing.assert_array_equal(Hinge().derivative(y * (1 - EPS), y), -y)
    np.testing.assert_array_equal(Hinge().derivative(y * (1 + EPS), y), [0.0, 0.0])


@every_loss
def test_second_derivative_at_a_kink_is_a_generalised_one(loss: Loss) -> None:
    rng = np.random.default_rng(8)
    y = targets(loss, 50, rng)
    for u in kinks(loss, y):
        u = np.where(np.isnan(u), 0.0, u)
        second = loss.second_derivative(u, y)
        assert np.all((second >= 0) & (second <= (1 / loss.mu if loss.mu else 0)))


# ---------------------------------------------------------------------------------------------------------------------
# Smoothness and strong convexity
# ---------------------------------------------------------------------------------------------------------------------


@every_loss
def test_derivative_is_monotone_and_lipschitz(loss: Loss) -> None:
    rng = np.random.default_rng(9)
    y = targets(loss, 5000, rng)
    u, v = np.sort(y + rng.normal(size=(2, 5000)) * 10 ** rng.uniform(-3, 1, size=5000), axis=0)
    rise = loss.derivative(v, y) - loss.derivative(u, y)
    assert np.all(rise >= 0)
    if loss.mu > 0:
        assert np.all(rise <= (v - u) / loss.mu + 1e-14 * np.maximum(abs(loss.derivative(v, y)), 1))


@every_loss
def test_mu_is_the_best_constant(loss: Loss) -> None:
    y = np.ones(20_001)
    u = np.linspace(-1, 3, 20_001)
    steepest = np.max(np.diff(loss.derivative(u, y)) / np.diff(u))
    if loss.mu > 0:
        assert steepest == pytest.approx(1 / loss.mu, rel=1e-6)
    else:
        far, y = np.array([-200.0, 50.0, 0.7]), np.array([1.0, 1.0, 1e25])
        assert steepest > 1000 or loss.second_derivative(far, y).max() > 1e20


@every_loss
def test_conjugate_is_strongly_convex(loss: Loss) -> None:
    rng = np.random.default_rng(10)
    y = targets(loss, 5000, rng)
    a, b = points_of_domain(loss, y, rng), rng.permutation(points_of_domain(loss, y, rng))
    b = loss.project(b, y)
    t = rng.uniform(size=5000)
    chord = t * loss.conjugate(a, y) + (1 - t) * loss.conjugate(b, y)
    bend = loss.mu / 2 * t * (1 - t) * (a - b) ** 2
    middle = loss.project(t * a + (1 - t) * b, y)
    size = 1 + abs(loss.conjugate(a, y)) + abs(loss.conjugate(b, y)) + 20 * abs(y)
    assert np.all(loss.conjugate(middle, y) <= chord - bend + 1e-14 * size)


# ---------------------------------------------------------------------------------------------------------------------
# Projection and proximal map
# ---------------------------------------------------------------------------------------------------------------------


@every_loss
def test_project_is_the_nearest_point_of_the_domain(loss: Loss) -> None:
    rng = np.random.default_rng(11)
    y = targets(loss, 2000, rng)
    a = rng.normal(size=2000) * 10 ** rng.uniform(-2, 8, size=2000)
    nearest = loss.project(a, y)
    assert np.all(np.isfinite(loss.conjugate(nearest, y)))
    np.testing.assert_array_equal(loss.project(nearest, y), nearest)
    inside = np.isfinite(loss.conjugate(a, y))
    np.testing.assert_array_equal(nearest[inside], a[inside])
    for _ in range(20):
        assert np.all(abs(a - nearest) <= abs(a - points_of_domain(loss, y, rng)))


numbers = st.floats(-1e8, 1e8) | st.floats(-2, 2) | st.sampled_from([-1.0, 0.0, 1.0, 0.5, -0.5, 1 + 1e-15])
step_sizes = st.floats(-12, 12).map(lambda exponent: 10.0**exponent)


@st.composite
def losses_with_targets(draw: st.DrawFn, losses: list[Loss] = LOSS_INSTANCES) -> tuple[Loss, float]:
    loss = draw(st.sampled_from(losses))
    least = 1e-4 if loss.positive_targets else 0.0 if loss.nonnegative_targets else -1e4
    regression = st.floats(least, 1e4, allow_subnormal=False)
    return loss, draw(st.sampled_from([-1.0, 1.0]) if loss.task == "classification" else regression)


@settings(deadline=None)
@given(losses_with_targets(), numbers, step_sizes)
def test_prox_is_optimal(case: tuple[Loss, float], z: float, tau: float) -> None:
    """By Moreau u = (z - a) / tau has a in dl(u), which is Fenchel-Young's equality."""
    loss, y = case
    a = loss.conjugate_prox(np.array([z]), tau, np.array([y]))[0]
    assert np.isfinite(loss.conjugate(a, y))
    u = (z - a) / tau
    # u is known to the rounding of z - a, and the gap grows by at most |a - l'(u)| <= |F| for each unit of u.
    slope = loss.derivative(u, y)
    fuzz = EPS * (abs(z) + abs(a)) / tau + EPS * (abs(u) + abs(y))
    size = abs(loss.value(u, y)) + abs(a * u) + loss.conjugate_terms(a, y, loss.conjugate(a, y)) + 1
    assert abs(gap(loss, u, a, y)) <= 4 * EPS * size + 4 * fuzz * (abs(a - slope) + fuzz / max(loss.mu, 1e-3))


@every_loss
@pytest.mark.parametrize("tau", [0.05, 1.0, 30.0])
def test_prox_beats_scalar_minimisation(loss: Loss, tau: float) -> None:
    rng = np.random.default_rng(12)
    y = targets(loss, 25, rng)
    z = rng.normal(scale=2.0, size=25) + tau * y
    prox = loss.conjugate_prox(z, tau, y)
    lows, highs = (np.clip(np.broadcast_to(end, y.shape), -200, 200) for end in loss.domain(y))
    for i in range(25):

        def objective(a: float, i: int = i) -> float:
            return float(tau * loss.conjugate(a, y[i]) + (a - z[i]) ** 2 / 2)

        found = minimize_scalar(objective, bounds=(lows[i], highs[i]), method="bounded", options={"xatol": 1e-10})
        assert objective(prox[i]) <= found.fun + 4 * EPS * (abs(found.fun) + z[i] ** 2 + 1)
        assert prox[i] == pytest.approx(found.x, abs=1e-5)


@settings(deadline=None)
@given(losses_with_targets(BUILT_IN), numbers, step_sizes)
def test_generic_prox_equals_the_closed_form(case: tuple[Loss, float], z: float, tau: float) -> None:
    loss, y = case
    closed = loss.conjugate_prox(np.array([z]), tau, np.array([y]))
    generic = Loss.conjugate_prox(loss, np.array([z]), tau, np.array([y]))
    terms = 1.0 if isinstance(loss, Logistic) else abs(closed[0]) + (abs(z) + tau * abs(y)) / (1 + tau * loss.mu)
    np.testing.assert_allclose(generic, closed, rtol=0, atol=4 * EPS * terms + np.finfo(float).tiny)


def logistic_prox_exact(z: float, tau: float, y: float) -> Any:
    """Bisection at 50 digits on p + tau log(p / (1 - p)) = -y z, in the variable t = log(p / (1 - p))."""
    c, tau = -mp.mpf(y) * mp.mpf(z), mp.mpf(tau)
    low, high = (c - 1) / tau, c / tau
    for _ in range(260):
        t = (low + high) / 2
        low, high = (t, high) if 1 / (1 + mp.exp(-t)) + tau * t < c else (low, t)
    return -y / (1 + mp.exp(-(low + high) / 2))


@pytest.mark.parametrize("tau", [1e-12, 1e-8, 1e-4, 0.1, 0.25, 1.0, 30.0, 1e4, 1e12])
def test_logistic_prox_at_extremes(tau: float) -> None:
    z = np.array([0.0, 1e-12, 0.1, 0.5, 0.5 + 2**-53, 0.9, 1 - 1e-12, 1.0, 1 + 1e-12, 2.0, 30.0, 1e4, 1e8])
    z = np.concatenate([z, -z])
    for target in (-1.0, 1.0):
        y = np.full_like(z, target)
        a = Logistic().conjugate_prox(z, tau, y)
        assert np.all((-y * a >= 0) & (-y * a <= 1))
        wanted = [logistic_prox_exact(zi, tau, target) for zi in z]
        assert max(abs(mp.mpf(float(ai)) - wi) for ai, wi in zip(a, wanted, strict=True)) <= EPS


@settings(deadline=None)
@given(losses_with_targets(FAMILY), st.floats(-100, 100), st.floats(-10, 10), st.floats(1e-6, 1e6))
def test_explicit_step_is_an_implicit_step_of_another_length(
    case: tuple[Loss, float], u: float, a: float, tau: float
) -> None:
    loss, y = case
    a = loss.project(a, y)
    implicit = loss.dual_step(a, u, tau, y, implicit=True)
    explicit = loss.dual_step(a, u, tau / (1 + tau * loss.mu), y, implicit=False)
    terms = (abs(a) + tau * (abs(u) + abs(y))) / (1 + tau * loss.mu)
    assert explicit == pytest.approx(implicit, rel=0, abs=16 * EPS * max(terms, 1.0))


@every_loss
def test_steps_stay_where_the_dual_variable_is_optimal(loss: Loss) -> None:
    """At a = l'(u) both steps stand still; elsewhere the implicit step moves towards l'(u) and does not pass it."""
    rng = np.random.default_rng(13)
    y = targets(loss, 500, rng)
    u = rng.normal(scale=2.0, size=500)
    best = loss.derivative(u, y)
    for tau in (1e-3, 1.0, 1e3):
        for implicit in {True, not loss.explicit}:
            step = loss.dual_step(best, u, tau, y, implicit=implicit)
            np.testing.assert_allclose(step, best, rtol=0, atol=1e-13 * (1 + tau))
        a = points_of_domain(loss, y, rng)
        step = loss.dual_step(a, u, tau, y, implicit=True)
        assert np.all((step - a) * (best - a) >= -1e-13 * (1 + tau))
        if loss.mu > 0:
            assert np.all(abs(step - best) <= abs(a - best) / (1 + tau * loss.mu) + 1e-13 * (1 + tau))


def test_explicit_logistic_step_flips_between_the_ends() -> None:
    """Why `explicit` is False: from 0 the paper's step never meets the interior of F."""
    loss, a, y = Logistic(), np.zeros(1), np.ones(1)
    for wanted in (-1.0, 0.0, -1.0, 0.0):
        a = loss.dual_step(a, np.array([0.3]), 0.1, y, implicit=False)
        assert a == wanted
    assert not loss.explicit
    a = loss.start(y)
    for _ in range(200):
        a = loss.dual_step(a, np.array([0.3]), 0.1, y, implicit=True)
    np.testing.assert_allclose(a, loss.derivative(0.3, y), rtol=1e-14)


@pytest.mark.parametrize("loss", FAMILY, ids=repr)
def test_family_prox_survives_a_huge_step(loss: Loss) -> None:
    y = np.array([-1.0, 1.0, 1.0]) if loss.task == "classification" else np.array([-1e8, 0.3, 1e8])
    limit = loss.project(-y / loss.mu, y) if loss.mu else loss.project(-1e300 * y, y)
    np.testing.assert_allclose(loss.conjugate_prox(np.array([1e8, -1.0, 3.0]), 1e300, y), limit, rtol=4 * EPS)


@every_loss
def test_prox_takes_a_step_size_for_each_sample(loss: Loss) -> None:
    rng = np.random.default_rng(14)
    y, z, tau = targets(loss, 50, rng), rng.normal(size=50), 10 ** rng.uniform(-3, 3, size=50)
    one_by_one = [loss.conjugate_prox(z[i : i + 1], tau[i], y[i : i + 1])[0] for i in range(50)]
    np.testing.assert_allclose(loss.conjugate_prox(z, tau, y), one_by_one, rtol=0, atol=4 * EPS * abs(z).max() * 1e1)


# ---------------------------------------------------------------------------------------------------------------------
# Arrays: shapes, types, memory, namespaces
# ---------------------------------------------------------------------------------------------------------------------


def every_method(loss: Loss, u: Any, a: Any, y: Any) -> dict[str, Any]:
    return {
        "value": loss.value(u, y),
        "derivative": loss.derivative(u, y),
        "second_derivative": loss.second_derivative(u, y),
        "conjugate": loss.conjugate(a, y),
        "conjugate_derivative": loss.conjugate_derivative(a, y),
        "project": loss.project(u, y),
        "conjugate_prox": loss.conjugate_prox(u, 0.5, y),
        "generic_prox": Loss.conjugate_prox(loss, u, 0.5, y),
        "explicit_step": loss.dual_step(a, u, 0.5, y, implicit=False),
        "implicit_step": loss.dual_step(a, u, 0.5, y, implicit=True),
        "start": loss.start(y),
    }


def sample_arrays(loss: Loss, dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(15)
    y = targets(loss, 64, rng).astype(dtype)
    u = rng.normal(scale=2.0, size=64).astype(dtype)
    low, high = loss.domain(y)
    low = low + dtype(0.05) if loss.nonnegative_targets else low  # where an explicit step is infinite
    a = np.clip(loss.start(y) / dtype(2) + rng.uniform(-0.1, 0.1, size=64).astype(dtype), low, high)
    return u, a, y


@every_loss
def test_float32_in_float32_out(loss: Loss) -> None:
    u, a, y = sample_arrays(loss, np.float32)
    wide = every_method(loss, *(x.astype(np.float64) for x in (u, a, y)))
    for method, result in every_method(loss, u, a, y).items():
        assert result.dtype == np.float32, method
        if method == "second_derivative" and isinstance(loss, LogCosh):
            continue  # a difference of float32 values is good to a third of the digits
        np.testing.assert_allclose(result, wide[method], rtol=1e-5, atol=1e-5, err_msg=method)
    assert loss.value(np.float32(1e8) * np.sign(u), y).dtype == np.float32


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_overflows_at_extreme_predictions(loss: Loss, dtype: type) -> None:
    u = np.array([1e8, -1e8, 0, 1e-30, 1e8, -1e8, 0, 1e-30], dtype=dtype)
    y = np.array([1, 1, 1, 1, -1, -1, -1, -1], dtype=dtype)
    y = np.maximum(y, 0) + loss.positive_targets if loss.nonnegative_targets else y
    y = y.astype(dtype)
    for method, result in every_method(loss, u, loss.derivative(u, y), y).items():
        if method != "conjugate_derivative":  # infinite at the ends, for two losses
            assert np.all(np.isfinite(result)), method


@every_loss
def test_zero_dimensional_input(loss: Loss) -> None:
    u, a, y = sample_arrays(loss)
    whole = every_method(loss, u, a, y)
    for single in (every_method(loss, *(np.asarray(x[3]) for x in (u, a, y))), every_method(loss, u[3], a[3], y[3])):
        for method, result in single.items():
            assert np.shape(result) == (), method
            np.testing.assert_allclose(result, whole[method][3], rtol=4 * EPS, atol=4 * EPS, err_msg=method)


@every_loss
def test_empty_input(loss: Loss) -> None:
    empty = np.empty(0)
    for method, result in every_method(loss, empty, empty, empty).items():
        assert result.shape == (0,), method
    loss.check_targets(empty)


@every_loss
def test_read_only_and_mapped_memory(loss: Loss, tmp_path: Path) -> None:
    arrays = sample_arrays(loss)
    mapped = []
    for i, array in enumerate(arrays):
        np.save(tmp_path / f"{i}.npy", array)
        mapped.append(np.load(tmp_path / f"{i}.npy", mmap_mode="r"))
        array.setflags(write=False)
    expected = every_method(loss, *(array.copy() for array in arrays))
    for results in (every_method(loss, *arrays), every_method(loss, *mapped)):
        for method, result in results.items():
            np.testing.assert_array_equal(result, expected[method], err_msg=method)


@every_loss
def test_not_a_number_stays_one(loss: Loss) -> None:
    """A NaN must not turn into a finite bound."""
    nan, y = np.array([np.nan]), np.ones(1)
    for method in (loss.value, loss.derivative, loss.conjugate, loss.project):
        assert np.isnan(method(nan, y)[0])
    assert np.isnan(loss.conjugate_prox(nan, 0.5, y)[0])


class Tracked(np.ndarray):
    """An array of another namespace, which has only some functions of the array API standard and keeps to its own type."""

    def __array_namespace__(self, api_version: str | None = None) -> SimpleNamespace:
        return TRACKED_NAMESPACE


def tracked(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        assert any(isinstance(arg, Tracked) for arg in args), f"{name} got no array of its own"
        return np.asarray(function(*args, **kwargs)).view(Tracked)

    return call


STANDARD = [
    "abs",
    "all",
    "any",
    "asarray",
    "atanh",
    "clip",
    "cosh",
    "exp",
    "expm1",
    "hypot",
    "isfinite",
    "log",
    "log1p",
]
STANDARD += [
    "maximum",
    "minimum",
    "ones_like",
    "reshape",
    "sign",
    "sinh",
    "sqrt",
    "square",
    "tanh",
    "where",
    "zeros_like",
]
TRACKED_NAMESPACE = SimpleNamespace(**{name: tracked(name) for name in STANDARD}, finfo=np.finfo)


@pytest.mark.parametrize("loss", BUILT_IN, ids=repr)
def test_functions_come_from_the_namespace_of_the_arrays(loss: Loss) -> None:
    arrays = sample_arrays(loss)
    expected = every_method(loss, *arrays)
    u, a, y = (array.view(Tracked) for array in arrays)
    tau = np.full_like(y, 0.5).view(Tracked)
    loss.check_targets(y)
    for method, result in {
        "value": loss.value(u, y),
        "derivative": loss.derivative(u, y),
        "second_derivative": loss.second_derivative(u, y),
        "conjugate": loss.conjugate(a, y),
        "conjugate_derivative": loss.conjugate_derivative(a, y),
        "project": loss.project(u, y),
        "conjugate_prox": loss.conjugate_prox(u, tau, y),
        "generic_prox": Loss.conjugate_prox(loss, u, tau, y),
        "explicit_step": loss.dual_step(a, u, tau, y, implicit=False),
        "implicit_step": loss.dual_step(a, u, tau, y, implicit=True),
        "start": loss.start(y),
    }.items():
        assert type(result) is Tracked, method
        np.testing.assert_array_equal(np.asarray(result), expected[method], err_msg=method)


# ---------------------------------------------------------------------------------------------------------------------
# The objects
# ---------------------------------------------------------------------------------------------------------------------


@every_loss
def test_objects_are_values(loss: Loss) -> None:
    for twin in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):
        assert twin == loss
        assert hash(twin) == hash(loss)
        assert repr(twin) == repr(loss)
    with pytest.raises(FrozenInstanceError):
        loss.gamma = 3.0


def test_parameters_distinguish_losses() -> None:
    assert SmoothedHinge(0.25) == SmoothedHinge()
    assert SmoothedHinge(0.25) != SmoothedHinge(0.5)
    assert len(set(LOSS_INSTANCES)) == len(LOSS_INSTANCES)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.inf, np.nan, "1", None, [], (1.0,), 1j])
def test_bad_parameters(bad: Any) -> None:
    with pytest.raises(ValueError, match=r"^gamma must be positive and finite, got "):
        SmoothedHinge(gamma=bad)
    with pytest.raises(ValueError, match=r"^delta must be positive and finite, got "):
        Huber(delta=bad)


@pytest.mark.parametrize("loss", [loss for loss in BUILT_IN if loss.kernel() is not None], ids=repr)
def test_kernel_describes_the_loss(loss: Loss) -> None:
    code, mu, low, high = loss.kernel()
    assert code == (1 if isinstance(loss, Logistic) else 0 if loss.task == "classification" else 2)
    assert mu == loss.mu
    for y in (np.array([1.0]), np.array([-1.0])):
        ends = [-high, -low] if y[0] < 0 and code != 2 else [low, high]
        np.testing.assert_array_equal([np.max(end) for end in loss.domain(y)], ends)


def test_an_interval_of_ones_own_turns_with_the_target() -> None:
    """A member of the family with F = [-2, 1/2] for y = 1: everything follows from low, high and mu."""

    class Lopsided(QuadraticConjugate):
        task, mu, low, high = "classification", 0.3, -2.0, 0.5

    loss, y = Lopsided(), np.array([1.0, -1.0])
    np.testing.assert_array_equal(loss.domain(y), [[-2.0, -0.5], [0.5, 2.0]])
    np.testing.assert_array_equal(loss.project(np.array([-9.0, -9.0]), y), [-2.0, -0.5])
    np.testing.assert_array_equal(loss.project(np.array([9.0, 9.0]), y), [0.5, 2.0])
    u = np.array([0.9, -0.9])
    np.testing.assert_allclose(loss.derivative(u, y), [-1 / 3, 1 / 3])
    np.testing.assert_allclose(gap(loss, u, loss.derivative(u, y), y), 0.0, atol=1e-15)
    assert loss.kernel() == (0, 0.3, -2.0, 0.5)


def test_a_users_loss_has_no_kernel() -> None:
    assert LogCosh().kernel() is None


def test_registry() -> None:
    for name, kind in LOSSES.items():
        assert as_loss(name) == kind()
        assert kind.name == name
    mine = SmoothedHinge(gamma=3.0)
    assert as_loss(mine) is mine
    assert [type(loss) for loss in [*CORE_LOSSES, *MORE_LOSSES]] == list(LOSSES.values())


def test_names_with_parameters() -> None:
    assert as_loss("quantile(q=0.9)") == Quantile(0.9)
    assert as_loss("quantile(gamma = 0.5, q = 0.1)") == Quantile(0.1, 0.5)
    assert as_loss("huber()") == Huber()
    for text, message in (
        ("quantile(0.9)", "unknown parameter '0.9' of the quantile loss, which has q, gamma"),
        ("squared(q=1)", "unknown parameter 'q' of the squared loss, which has none"),
        ("quantile(q=x)", "q of the quantile loss must be a number, got 'x'"),
        ("quantile(q=2)", "q must be between 0 and 1, got 2.0"),
        ("quantile(q=0.9", "unknown loss 'quantile(q=0.9'; choose one of squared"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            as_loss(text)


def test_unknown_losses() -> None:
    with pytest.raises(ValueError, match=r"unknown loss 'huberr'; .*smoothed_hinge.*logistic"):
        as_loss("huberr")
    for wrong in (3, None, Squared):
        with pytest.raises(TypeError, match="loss must be a name or a Loss object, got"):
            as_loss(wrong)


@pytest.mark.parametrize("loss", CLASSIFICATION, ids=repr)
def test_classification_targets(loss: Loss) -> None:
    for good in ([1, -1, 1], [1.0, -1.0], np.array([-1], dtype=np.int8), np.float32([1, 1])):
        loss.check_targets(good)
    for bad, message in (
        ([1.0, 0.0], f"y must be -1 or +1 for the {loss.name} loss, got 0.0 at position 1"),
        ([1, -1, 2], f"y must be -1 or +1 for the {loss.name} loss, got 2.0 at position 2"),
        ([1 + EPS], f"y must be -1 or +1 for the {loss.name} loss, got {1 + EPS} at position 0"),
        ([1.0, np.nan], "y must be finite, got nan at position 1"),
        ([True, False], f"y must be -1 or +1 for the {loss.name} loss, got 0.0 at position 1"),
    ):
        with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
            loss.check_targets(bad)


@pytest.mark.parametrize("loss", REGRESSION, ids=repr)
def test_regression_targets(loss: Loss) -> None:
    for good in ([0, 3, -8], [1e300, -2.5], np.float32([0.5])):
        loss.check_targets(np.abs(good) + loss.positive_targets if loss.nonnegative_targets else good)
    for bad, message in (
        ([0.0, 1.0, -np.inf], "y must be finite, got -inf at position 2"),
        ([np.nan, np.inf], "y must be finite, got nan at position 0"),
        (["a", "b"], "y must hold real numbers, got <U1 (first value: np.str_('a'))"),
        ([1j], "y must hold real numbers, got complex128 (first value: np.complex128(1j))"),
        ([None, 1.0], "y must hold real numbers, got object (first value: None)"),
    ):
        with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
            loss.check_targets(bad)


# ---------------------------------------------------------------------------------------------------------------------
# What a loss declares is so
# ---------------------------------------------------------------------------------------------------------------------


@every_loss
def test_declared_pieces_are_the_conjugate(loss: Loss) -> None:
    rng = np.random.default_rng(20)
    y = targets(loss, 500, rng)
    if loss.pieces is None:
        assert not loss.is_quadratic
        return
    mu, low, high, turned = loss.pieces
    ends = np.where((y < 0) & turned, [[-high], [-low]], [[low], [high]])
    np.testing.assert_array_equal(np.broadcast_arrays(*loss.domain(y), y)[:2], ends)
    a = points_of_domain(loss, y, rng)
    np.testing.assert_allclose(loss.conjugate(a, y), y * a + mu / 2 * a * a, rtol=1e-12, atol=1e-13)
    u = rng.normal(scale=3.0, size=500)
    if loss.is_quadratic:
        np.testing.assert_allclose(loss.value(u, y), (u - y) ** 2 / (2 * mu), rtol=1e-14)
    assert loss.is_squared_error == bool(np.allclose(loss.value(u, y), (u - y) ** 2))


@every_loss
def test_declared_smoothness(loss: Loss) -> None:
    """Over an interval of width h a derivative that does not jump changes by O(h)."""
    rng = np.random.default_rng(21)
    y, h = targets(loss, 200, rng), 1e-6
    u = np.vstack([np.linspace(-4.0, 4.0, 401)[:, None] + 0.0 * y, kinks(loss, y)])
    u = np.where(np.isnan(u), 0.0, u)
    for order, derivative in enumerate((loss.derivative, loss.second_derivative)):
        jump = float(np.max(np.abs(derivative(u + h, y) - derivative(u - h, y))))
        if loss.smoothness > order:
            assert jump <= 1e-3
        elif loss.smoothness == order and kinks(loss, y).size:
            assert jump >= 0.1
    assert loss.differentiable == (loss.smoothness >= 1)
    assert loss.mu == 0.0 or loss.differentiable


@every_loss
def test_declared_differences_and_residuals(loss: Loss) -> None:
    rng = np.random.default_rng(22)
    y, u = np.round(targets(loss, 300, rng), 3), np.round(rng.normal(size=300), 3)
    if loss.of_differences:
        np.testing.assert_allclose(loss.value(u + 0.5, y + 0.5), loss.value(u, y), rtol=1e-12, atol=1e-14)
    r = loss.residual_value(u - y, y)
    if r is not None:
        np.testing.assert_allclose(r, loss.value(u, y), rtol=1e-12, atol=1e-14)


@every_loss
def test_an_explicit_step_has_no_infinite_derivative(loss: Loss) -> None:
    y = targets(loss, 100, np.random.default_rng(23))
    for end in loss.domain(y):
        end = np.broadcast_to(end, y.shape)
        inside = np.isfinite(end)
        slopes = loss.conjugate_derivative(np.where(inside, end, 0.0), y)[inside]
        assert np.all(np.isfinite(slopes)) or not loss.explicit


@every_loss
def test_declared_likelihoods(loss: Loss) -> None:
    u = np.linspace(-30.0, 30.0, 301)
    assert loss.has_probabilities == (loss.is_likelihood and loss.task == "classification")
    if loss.has_probabilities:
        log_p = loss.log_likelihoods(u[:, None])
        np.testing.assert_allclose(np.exp(log_p).sum(axis=1), 1.0, rtol=1e-14)
        assert np.all(np.diff(log_p[:, 1]) > 0)
        several = loss.log_likelihoods(np.stack([u, u], axis=1))
        np.testing.assert_array_equal(several, np.stack([log_p[:, 1]] * 2, axis=1))
    if loss.is_likelihood:
        assert loss.deviance(2.0, 10.0) > loss.deviance(1.0, 10.0)


@every_loss
def test_declared_links_and_scores(loss: Loss) -> None:
    u = np.linspace(-5.0, 5.0, 11)
    inverse = {"identity": u, "log": np.exp(u), "logit": u}[
        loss.link
    ]  # of classes the prediction is that of the larger score
    np.testing.assert_array_equal(loss.mean(u), inverse)
    assert loss.score in ("r2", "d2")
    assert loss.scoring in (*get_scorer_names(), "loss")
    if loss.nonnegative_targets:
        with pytest.raises(ValueError, match=f"^y must not be negative for the {loss.name} loss"):
            loss.check_targets([1.0, -1.0])
    if loss.positive_targets:
        with pytest.raises(ValueError, match=f"^y must be positive for the {loss.name} loss, got 0.0 at position 1"):
            loss.check_targets([1.0, 0.0])


def test_no_other_module_asks_which_loss_it_has() -> None:
    """What a loss can do is declared in its file: there is no check of its class or name outside the package of losses."""
    root = Path(diht.__file__).parent
    kinds = {kind.__name__ for kind in LOSSES.values()} | {"QuadraticConjugate"}
    found = []
    for path in root.rglob("*.py"):
        if root / "losses" in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
                asked = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node.args[1])} & kinds
            elif isinstance(node, ast.Compare):
                asked = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)} & set(LOSSES)
            else:
                continue
            found += [f"{path.relative_to(root)}:{node.lineno}: {name}" for name in asked]
    assert not found


# ---------------------------------------------------------------------------------------------------------------------
# A loss of one's own
# ---------------------------------------------------------------------------------------------------------------------


def test_second_derivative_of_a_users_loss() -> None:
    u = np.linspace(-8, 8, 201)
    np.testing.assert_allclose(LogCosh().second_derivative(u, 0.3 + 0 * u), np.cosh(u - 0.3) ** -2, rtol=0, atol=1e-10)


def test_an_incomplete_loss_says_what_is_missing() -> None:
    class Half(Loss):
        def value(self, u, y):
            return (u - y) ** 2 / 2

    with pytest.raises(TypeError, match="conjugate"):
        Half()


def test_prox_of_a_users_loss_with_two_kinks() -> None:
    """The epsilon-insensitive loss: l' jumps at y - 1 and y + 1; l* = y a + |a| on [-1, 1] has a closed-form prox."""

    class Insensitive(Loss):
        def value(self, u, y):
            return np.maximum(abs(u - y) - 1, 0)

        def derivative(self, u, y):
            return np.where(abs(u - y) > 1, np.sign(u - y), 0.0)

        def conjugate(self, a, y):
            return np.where(abs(a) > 1, np.inf, y * a + abs(a))

        def conjugate_derivative(self, a, y):
            return y + np.sign(a)

        def domain(self, y):
            return -1.0, 1.0

    loss, rng = Insensitive(), np.random.default_rng(16)
    y = rng.normal(size=3000)
    for tau in (1e-9, 1e-3, 0.3, 1.0, 1e3):
        z = tau * y + rng.normal(size=3000) * (1 + tau)
        inner = z - tau * y
        closed = np.clip(np.sign(inner) * np.maximum(abs(inner) - tau, 0), -1, 1)
        np.testing.assert_allclose(loss.conjugate_prox(z, tau, y), closed, rtol=0, atol=32 * EPS * (1 + tau))


def test_the_page_on_losses_runs() -> None:
    page = Path(__file__).parents[1] / "docs" / "your-own-loss.md"
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    head, solving = code.split("from diht import Problem, solve")
    scope: dict[str, Any] = {"__name__": "page"}
    exec(head, scope)
    loss, rng = scope["Quantile"](), np.random.default_rng(17)
    y, u = rng.normal(size=(2, 300))
    assert np.all(abs(gap(loss, u, loss.derivative(u, y), y)) <= 1e-15)
    assert np.all(gap(loss, u, points_of_domain(loss, y, rng), y) >= -1e-15)
    if hasattr(diht, "solve"):
        exec("from diht import Problem, solve" + solving, scope)
        result = scope["result"]
        assert result.support.tolist() == [0, 1, 2]
        assert 0 < result.lower_bound <= result.objective
        assert np.mean(scope["y"] <= scope["X"] @ result.w) > 0.6

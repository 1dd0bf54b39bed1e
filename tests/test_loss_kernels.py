"""Compiled losses of samples beside the formulas of the losses."""

from __future__ import annotations

import numpy as np
import pytest

from diht.losses import Huber, Logistic, Loss, SmoothedHinge, Squared, SquaredHinge
from diht.samples.loss_kernels import slopes_and_curvatures, sum_of_losses, sums_along, weigh
from oracle import targets

COMPILED: list[Loss] = [Squared(), SmoothedHinge(gamma=0.3), Logistic(), SquaredHinge(), Huber(delta=0.7)]


def numbers(loss: Loss) -> np.ndarray:
    kernel = loss.kernel()
    assert kernel is not None
    return np.array(kernel, dtype=np.float64)


def margins(loss: Loss, largest: float) -> tuple[np.ndarray, np.ndarray]:
    """Margins of all sizes, and targets, at no kink of a slope."""
    rng = np.random.default_rng(0)
    u = np.concatenate([rng.standard_normal(61), [0.0], largest * rng.uniform(-1.0, 1.0, 40)])
    return u, targets(loss, rng.standard_normal(len(u)), rng)


@pytest.mark.parametrize("largest", [1.0, 50.0, 1e3, 1e8])
@pytest.mark.parametrize("loss", COMPILED, ids=str)
def test_values_slopes_and_curvatures_are_those_of_the_loss(loss: Loss, largest: float) -> None:
    u, y = margins(loss, largest)
    s, (slopes, curvatures) = np.random.default_rng(1).random(len(u)), np.empty((2, len(u)))
    total = weigh(u, y, s, numbers(loss), slopes, curvatures)
    assert total == pytest.approx(float(s @ loss.value(u, y)), rel=1e-12)
    assert sum_of_losses(u, y, s, numbers(loss)) == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(slopes, s * loss.derivative(u, y), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(curvatures, s * loss.second_derivative(u, y), rtol=1e-12, atol=1e-300)
    slopes_and_curvatures(u, y, numbers(loss), slopes, curvatures)
    np.testing.assert_allclose(slopes, loss.derivative(u, y), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(curvatures, loss.second_derivative(u, y), rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("loss", COMPILED, ids=str)
def test_sums_along_a_column(loss: Loss) -> None:
    u, y = margins(loss, 5.0)
    x, s = np.random.default_rng(1).standard_normal((2, len(u)))
    s, t = np.abs(s), -0.8
    v = u + t * x
    expected = s @ loss.value(v, y), (s * x) @ loss.derivative(v, y), (s * x**2) @ loss.second_derivative(v, y)
    assert sums_along(t, x, u, y, s, numbers(loss)) == pytest.approx(expected, rel=1e-12)

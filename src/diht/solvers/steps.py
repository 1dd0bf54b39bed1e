"""Step sizes: the theorem's, the user's, the default that knows the curvature; and how long a step of descent may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from diht.design import Step
from diht.problem import Problem
from diht.samples import Rows

__all__ = ["StepSize", "check_step", "dual_step", "is_safe", "primal_step", "sample_curvature"]


StepSize = str | float | Callable[[int], float]

_SHORTEST, _LONGEST = 1e-300, 1e12  # stand for no step and for an infinite one, where the curvature has no inverse


def check_step(step: Any) -> None:
    """Raise ValueError unless `step` is "auto", "theory", a positive number or a callable t -> tau_t."""
    if isinstance(step, str):
        if step not in ("auto", "theory"):
            raise ValueError(f"step must be 'auto', 'theory', a positive number or a callable, got {step!r}")
    elif not callable(step):
        _positive(step)


def _positive(step: Any) -> float:
    try:
        tau = float(step)
    except (TypeError, ValueError):
        raise ValueError(f"step must be 'auto', 'theory', a positive number or a callable, got {step!r}") from None
    if not np.isfinite(tau) or tau <= 0:
        raise ValueError(f"step must be positive and finite, got {step!r}")
    return tau


def dual_step(problem: Problem, step: StepSize, t: int, curvature: float, n_blocks: int = 1) -> Step:
    r"""Step t of a dual method on a block whose quadratic part has the given `curvature` sigma^2 / lam.

    - ``"auto"``: the implicit step of length 1 / curvature, ``prox(a + tau u)``. For the losses whose conjugate is
      quadratic on F it is the paper's explicit step of length 1 / (mu + curvature), so it never overshoots.
    - ``"theory"``: the theorems' tau_t = m / (mu (t + 1)), m the number of blocks (sigma_min is zero wherever k < N).
    - a number or a callable: the paper's explicit step of that length.

    Where the conjugate's derivative is infinite at the ends of F (logistic), every step is implicit.
    """
    loss = problem.loss
    if step == "auto":
        tau = 1.0 / curvature if curvature > 0 else np.inf
        return Step(loss, "implicit", min(max(tau, _SHORTEST), _LONGEST))
    if step == "theory":
        if loss.mu == 0:
            raise ValueError(f"step='theory' is undefined for the {loss.name} loss (mu = 0): use 'auto' or a number")
        tau = n_blocks / (loss.mu * (t + 1))
    else:
        tau = _positive(step(t) if callable(step) else step)
    return Step(loss, "explicit" if loss.explicit else "implicit", tau)


def is_safe(problem: Problem, step: StepSize) -> bool:
    """Tell whether a primal step is taken as it is: the user's, or a default of which a bound on the curvature is known."""
    return step != "auto" or problem.loss.mu > 0 or not problem.loss.differentiable


def sample_curvature(problem: Problem, u: Rows) -> float:
    """Largest curvature of a sample's loss: 1 / mu, and where that has no bound what it is at the predictions u."""
    loss = problem.loss
    if loss.mu > 0:
        return 1.0 / loss.mu
    return max(problem.samples.largest(lambda y, u: loss.second_derivative(u, y), u), _SHORTEST)


def primal_step(problem: Problem, step: StepSize, t: int, sigma_sq: float, u: Rows) -> float:
    """Step t of a primal gradient method on P at the predictions u, where sigma_sq bounds the spectrum of X'SX.

    ``"auto"`` is 1/L with L = sigma_sq / mu + lam; where the curvature has no bound (Poisson), with the one at u for 1 / mu: such
    a step may be too long, and is shortened until P does not rise. Where the loss has kinks it is the subgradient method's
    1 / (lam (t + 1) + sigma_sq), which starts at the scale of the data and decays as 1 / (lam t).
    """
    if step == "auto":
        if problem.loss.differentiable:
            curvature = sigma_sq * sample_curvature(problem, u) + problem.lam
        else:
            curvature = sigma_sq + problem.lam * (t + 1)
        return 1.0 / curvature
    if step == "theory":
        raise ValueError("step='theory' belongs to the dual methods: use 'auto' or a number")
    return _positive(step(t) if callable(step) else step)

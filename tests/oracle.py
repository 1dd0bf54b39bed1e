"""Answers that owe nothing to the solvers: brute force, closed forms, exact arithmetic, and data to ask about."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import scipy.sparse as sp
from mpmath import mp, mpf
from numpy.typing import NDArray

from diht import Problem
from diht.bounds.duality import primal
from diht.losses import (
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Loss,
    NegativeBinomial,
    Poisson,
    Quantile,
    SmoothedHinge,
    Squared,
    SquaredHinge,
    Tweedie,
)
from diht.refit import refit

Vector = NDArray[np.float64]

mp.dps = 60


# ---------------------------------------------------------------------------------------------------------------------
# Data


def targets(loss: Loss, u: Vector, rng: np.random.Generator) -> Vector:
    """Noisy targets for the predictions u that suit a loss; both classes occur."""
    noisy = u + 0.5 * np.abs(u).mean() * rng.standard_normal(len(u))
    if loss.positive_targets:
        return rng.gamma(2.0, 0.5 * np.exp(np.clip(u, -3.0, 3.0))) + 2.0**-6
    if loss.nonnegative_targets:
        return rng.poisson(np.exp(np.clip(u, -3.0, 3.0))).astype(np.float64)
    if loss.task == "regression":
        return noisy
    y = np.where(noisy >= np.median(noisy), 1.0, -1.0)
    y[0], y[-1] = 1.0, -1.0
    return y


def small_data(loss: Loss, n: int = 24, d: int = 7, seed: int = 0) -> tuple[Vector, Vector]:
    """A matrix on a grid of eighths (exact in float32), with zeros, an empty row and twin columns; and its targets."""
    rng = np.random.default_rng(seed)
    X = np.round(8 * rng.standard_normal((n, d))) / 8
    X[rng.random((n, d)) < 0.3] = 0.0
    X[n // 2] = 0.0
    X[:, d - 1] = X[:, 0]
    w = np.zeros(d)
    w[[0, 2, 3]] = 2.0, -1.5, 1.0
    return X, np.round(64 * targets(loss, X @ w + 0.5, rng)) / 64 if loss.task == "regression" else targets(
        loss, X @ w + 0.5, rng
    )


def clear_data(loss: Loss) -> tuple[Vector, Vector]:
    """Two of six features stand out: with k = 2 and a ridge of about 1 the duality gap closes."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((40, 6))
    return X, targets(loss, X @ np.array([3.0, -3.0, 0.0, 0.0, 0.0, 0.0]), rng)


def some_weights(n: int) -> Vector:
    """Unequal weights, a fifth of them zero."""
    weights = np.random.default_rng(5).integers(1, 5, n).astype(float)
    weights[2::5] = 0.0
    return weights


def paper_design(d: int, n_true: int, n: int, seed: int) -> tuple[Vector, Vector, Vector]:
    """The paper's synthetic regression (section 5.1): X, y and the planted coefficients.

    The first `n_true` features carry a unit coefficient each and have unit variances and pairwise covariances 1/4; the
    others are independent. All features have means drawn from N(0, 1), the noise is N(0, 1).
    """
    rng = np.random.default_rng(seed)
    mean = np.concatenate([rng.standard_normal(n_true), rng.standard_normal(d - n_true)])
    covariance = 0.25 + 0.75 * np.eye(n_true)
    correlated = rng.standard_normal((n, n_true)) @ np.linalg.cholesky(covariance).T
    X = np.hstack([correlated, rng.standard_normal((n, d - n_true))]) + mean
    w = (np.arange(d) < n_true).astype(float)
    return X, X @ w + rng.standard_normal(n), w


# ---------------------------------------------------------------------------------------------------------------------
# Optima


@dataclass(frozen=True)
class Best:
    """The best model over all supports."""

    objective: float
    w: Vector
    b: float


def best_subset(problem: Problem) -> Best:
    """Try every support of the largest size: at most some hundreds of refits."""
    n_features = problem.shape[1]
    best = Best(np.inf, np.zeros(n_features), 0.0)
    for support in combinations(range(n_features), problem.constraint.size):
        fit = refit(problem, np.array(support))
        w, b, u = fit.w, fit.b, fit.u
        objective = primal(problem, w, b, u)
        if objective < best.objective:
            best = Best(objective, w, b)
    return best


def ridge(X: Vector, y: Vector, s: Vector, lam: float, fit_intercept: bool) -> tuple[Vector, float, float]:
    """Minimise sum_i s_i (y_i - x_i.w - b)^2 + (lam/2) ||w||^2 by its normal equations: w, b, objective."""
    mean_x = s @ X / s.sum() if fit_intercept else np.zeros(X.shape[1])
    mean_y = float(s @ y / s.sum()) if fit_intercept else 0.0
    Z, r = X - mean_x, y - mean_y
    w = np.linalg.solve(Z.T @ (s[:, None] * Z) + 0.5 * lam * np.eye(X.shape[1]), Z.T @ (s * r))
    residual = r - Z @ w
    return w, mean_y - float(mean_x @ w), float(s @ residual**2 + 0.5 * lam * w @ w)


# ---------------------------------------------------------------------------------------------------------------------
# Exact arithmetic: sixty digits, the numbers that the problem stores taken as they are


TEXTBOOK = (
    Squared,
    SmoothedHinge,
    Hinge,
    Logistic,
    SquaredHinge,
    Huber,
    Poisson,
    Quantile,
    Gamma,
    Tweedie,
    NegativeBinomial,
)


def textbook(loss: Loss, mp: Any = mp) -> SimpleNamespace:
    """The row of a loss, from its textbook formulas written anew: value, derivative, conjugate and its derivative on F.

    For a loss without a row, its own formulas in so many digits.
    """
    zero = mp.mpf(0)

    def x_log_x(p: Any) -> Any:
        return p * mp.log(p) if p > 0 else zero

    match loss:
        case Poisson():
            return SimpleNamespace(
                value=lambda u, y: mp.exp(u) - y * u - y + x_log_x(y),
                derivative=lambda u, y: mp.exp(u) - y,
                conjugate=lambda a, y: x_log_x(a + y) - x_log_x(y) - a,
                conjugate_derivative=lambda a, y: mp.log(a + y) if a + y > 0 else -mp.inf,
                contains=lambda a, y: a + y >= 0,
            )
        case Gamma():
            return SimpleNamespace(
                value=lambda u, y: y * mp.exp(-u) + u - 1 - mp.log(y),
                derivative=lambda u, y: 1 - y * mp.exp(-u),
                conjugate=lambda a, y: x_log_x(1 - a) + a + a * mp.log(y),
                conjugate_derivative=lambda a, y: mp.log(y / (1 - a)) if a < 1 else mp.inf,
                contains=lambda a, y: a <= 1,
            )
        case Tweedie(power=power):
            return _tweedie(mp.mpf(power), mp)
        case NegativeBinomial(dispersion=c):
            c, r = mp.mpf(c), 1 / mp.mpf(c)
            log = lambda y: mp.log(y) if y > 0 else zero  # noqa: E731
            return SimpleNamespace(
                value=lambda u, y: (y + 1 / c) * mp.log((1 + c * mp.exp(u)) / (1 + c * y)) - y * (u - log(y)),
                derivative=lambda u, y: (mp.exp(u) - y) / (1 + c * mp.exp(u)),
                conjugate=lambda a, y: x_log_x(y + a) - y * log(y) + x_log_x(r - a) - (r - a) * mp.log(r),
                conjugate_derivative=lambda a, y: (
                    mp.log((y + a) / (1 - c * a)) if y + a > 0 and a < r else mp.inf * (1 if a >= r else -1)
                ),
                contains=lambda a, y: -y <= a <= r,
            )
        case Squared():
            return SimpleNamespace(
                value=lambda u, y: (y - u) ** 2,
                derivative=lambda u, y: 2 * (u - y),
                conjugate=lambda a, y: a**2 / 4 + y * a,
                conjugate_derivative=lambda a, y: a / 2 + y,
                contains=lambda a, y: True,
            )
        case SmoothedHinge(gamma=g):
            g = mp.mpf(g)
            return SimpleNamespace(
                value=lambda u, y: (
                    zero if y * u >= 1 else 1 - y * u - g / 2 if y * u < 1 - g else (1 - y * u) ** 2 / (2 * g)
                ),
                derivative=lambda u, y: zero if y * u >= 1 else -y if y * u < 1 - g else -y * (1 - y * u) / g,
                conjugate=lambda a, y: y * a + g / 2 * a**2,
                conjugate_derivative=lambda a, y: y + g * a,
                contains=lambda a, y: -1 <= y * a <= 0,
            )
        case Hinge():
            return SimpleNamespace(
                value=lambda u, y: max(zero, 1 - y * u),
                derivative=lambda u, y: -y if y * u < 1 else zero,
                conjugate=lambda a, y: y * a,
                conjugate_derivative=lambda a, y: y,
                contains=lambda a, y: -1 <= y * a <= 0,
            )
        case Logistic():
            return SimpleNamespace(
                value=lambda u, y: mp.log1p(mp.exp(-y * u)),
                derivative=lambda u, y: -y / (1 + mp.exp(y * u)),
                conjugate=lambda a, y: x_log_x(-y * a) + ((1 + y * a) * mp.log1p(y * a) if y * a > -1 else zero),
                conjugate_derivative=lambda a, y: (
                    -y * mp.log(-y * a / (1 + y * a)) if 0 < -y * a < 1 else -y * mp.inf * (1 if y * a < 0 else -1)
                ),
                contains=lambda a, y: 0 <= -y * a <= 1,
            )
        case SquaredHinge():
            return SimpleNamespace(
                value=lambda u, y: max(zero, 1 - y * u) ** 2,
                derivative=lambda u, y: -2 * y * max(zero, 1 - y * u),
                conjugate=lambda a, y: y * a + a**2 / 4,
                conjugate_derivative=lambda a, y: y + a / 2,
                contains=lambda a, y: y * a <= 0,
            )
        case Quantile(q=q, gamma=g):
            low, high, g = -mp.mpf(q), mp.mpf(1.0 - q), mp.mpf(g)  # 1 - q as float64 has it

            def slope(r: Any) -> Any:
                return min(max(r / g, low), high) if g else high if r > 0 else low if r < 0 else zero

            return SimpleNamespace(
                value=lambda u, y: slope(u - y) * (u - y) - g / 2 * slope(u - y) ** 2,
                derivative=lambda u, y: slope(u - y),
                conjugate=lambda a, y: y * a + g / 2 * a**2,
                conjugate_derivative=lambda a, y: y + g * a,
                contains=lambda a, y: low <= a <= high,
            )
        case Huber(delta=d):
            d = mp.mpf(d)
            return SimpleNamespace(
                value=lambda u, y: (u - y) ** 2 / 2 if abs(u - y) <= d else d * abs(u - y) - d**2 / 2,
                derivative=lambda u, y: min(max(u - y, -d), d),
                conjugate=lambda a, y: y * a + a**2 / 2,
                conjugate_derivative=lambda a, y: y + a,
                contains=lambda a, y: abs(a) <= d,
            )
    return _own_formulas(loss, mp)


def _tweedie(power: Any, mp: Any) -> SimpleNamespace:
    """Tweedie's loss from its deviance; its conjugate at the maximiser, which bisection finds."""
    A, B = 2 - power, power - 1

    def value(u: Any, y: Any) -> Any:
        return mp.exp(A * u) / A + (y * mp.exp(-B * u) / B - y**A / (A * B) if y > 0 else 0)

    def derivative(u: Any, y: Any) -> Any:
        return mp.exp(A * u) - y * mp.exp(-B * u)

    def inverse(a: Any, y: Any) -> Any:
        if y == 0:
            return mp.log(a) / A if a > 0 else -mp.inf
        low, high = mp.log(y) - 1, mp.log(y) + 1
        while derivative(low, y) > a:
            low -= high - low
        while derivative(high, y) < a:
            high += high - low
        for _ in range(int(3.4 * mp.dps) + 20):
            u = (low + high) / 2
            low, high = (u, high) if derivative(u, y) < a else (low, u)
        return (low + high) / 2

    def conjugate(a: Any, y: Any) -> Any:
        u = inverse(a, y)
        return a * u - value(u, y) if u > -mp.inf else mp.mpf(0)

    return SimpleNamespace(
        value=value,
        derivative=derivative,
        conjugate=conjugate,
        conjugate_derivative=inverse,
        contains=lambda a, y: y > 0 or a >= 0,
    )


class Digits(np.ndarray):
    """Numbers of many digits, in which a loss evaluates its formulas as they are written."""

    def __array_namespace__(self, api_version: str | None = None) -> SimpleNamespace:
        return DIGITS


def _elementwise(function: Callable[..., Any], n_arguments: int) -> Callable[..., Any]:
    each = np.frompyfunc(function, n_arguments, 1)
    return lambda *arrays: np.asarray(each(*arrays), dtype=object).view(Digits)


DIGITS = SimpleNamespace(
    **{
        name: _elementwise(getattr(mpmath, name), 1)
        for name in ("exp", "expm1", "log", "log1p", "sqrt", "sign", "cosh")
    },
    **{name: _elementwise(getattr(mpmath, name), 1) for name in ("sinh", "tanh", "atanh")},
    abs=_elementwise(abs, 1),
    square=_elementwise(lambda x: x * x, 1),
    hypot=_elementwise(mpmath.hypot, 2),
    maximum=_elementwise(max, 2),
    minimum=_elementwise(min, 2),
    where=_elementwise(lambda holds, x, y: x if holds else y, 3),
    clip=_elementwise(
        lambda x, low, high: max(x, low) if high is None else min(x if low is None else max(x, low), high), 3
    ),
)


def _own_formulas(loss: Loss, mp: Any) -> SimpleNamespace:
    def evaluated(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, y: mp.mpf(method(np.array([x]).view(Digits), np.array([y]).view(Digits))[0])

    def contains(a: Any, y: Any) -> bool:
        low, high = (np.broadcast_to(end, 1)[0] for end in loss.domain(np.array([y]).view(Digits)))
        return low <= a <= high

    names = "value", "derivative", "conjugate", "conjugate_derivative"
    return SimpleNamespace(**{name: evaluated(getattr(loss, name)) for name in names}, contains=contains)


def exact_conjugate(loss: Loss, a: mpf, y: mpf) -> mpf:
    """l*(a, y), infinite outside F."""
    row = textbook(loss)
    return row.conjugate(a, y) if row.contains(a, y) else mp.inf


def exact_columns(problem: Problem, X: Vector) -> list[list[mpf]]:
    """The columns of the problem's design: X less the centre that the problem stores, divided by its scale."""
    center, scale = getattr(problem.design, "center", None), getattr(problem.design, "scale", None)
    columns = []
    for j, column in enumerate(np.asarray(X, dtype=float).T):
        m, q = (mpf(0) if center is None else mpf(center[j])), (mpf(1) if scale is None else mpf(scale[j]))
        columns.append([(mpf(x) - m) / q for x in column.tolist()])
    return columns


def exact_dual(problem: Problem, X: Vector, alpha: list[mpf]) -> mpf:
    """D(alpha) without rounding; -inf outside F."""
    s = [mpf(x) for x in problem.s.tolist()]
    y = [mpf(x) for x in problem.y.tolist()]
    c = [si * ai for si, ai in zip(s, alpha, strict=True)]
    squares = sorted(mpmath.fdot(column, c) ** 2 for column in exact_columns(problem, X))
    conjugate = mpmath.fsum(
        si * exact_conjugate(problem.loss, ai, yi) for si, ai, yi in zip(s, alpha, y, strict=True) if si
    )
    return -conjugate - mpmath.fsum(squares[-problem.constraint.size :]) / (2 * mpf(problem.lam))


def exactly_balanced(problem: Problem, alpha: list[mpf]) -> list[mpf]:
    """Shrink the entries of the heavier sign until sum_i s_i alpha_i is zero; stays in F, which is convex and holds 0."""
    c = [mpf(si) * ai for si, ai in zip(problem.s.tolist(), alpha, strict=True)]
    positive, negative = mpmath.fsum(x for x in c if x > 0), -mpmath.fsum(x for x in c if x < 0)
    if positive == negative:
        return alpha
    sign, factor = (1, negative / positive) if positive > negative else (-1, positive / negative)
    return [factor * ai if sign * ai > 0 else ai for ai in alpha]


def scaled_words(seed: int = 9, n: int = 100, d: int = 60) -> tuple[sp.csr_array, np.ndarray]:
    """Words of a few documents each, divided by their standard deviations."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n, d)) < 0.4 / (1.0 + np.arange(d) / 4.0)).astype(np.float64)
    X = X[:, X.std(axis=0) > 0.0]
    signal = X @ (rng.standard_normal(X.shape[1]) * (rng.random(X.shape[1]) < 0.4) * 2.0)
    y = np.where(signal - signal.mean() + rng.logistic(size=n) > 0, 1.0, -1.0)
    return sp.csr_array(X / X.std(axis=0)), y

"""What every loss has: its formulas, and what it declares of itself.

A loss l(u, y) is convex in the prediction u = x.w + b. Everything that a method needs of it is elementwise:

    l*(a, y) = max_u  a u - l(u, y),       F = {a : l*(a, y) < inf}   (an interval that may depend on y),

and Fenchel-Young, l(u) + l*(a) >= a u with equality exactly at a = l'(u), turns any a in F into a bound.

No loss sees X, w or the number of samples, and none keeps a target: a loss is a small frozen object. The formulas use
only functions of the array API standard (and torch, which has the same names), taken from the arrays themselves.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

__all__ = ["Array", "Declared", "Loss", "OfTarget", "Pieces", "is_between", "namespace", "oriented", "require_positive"]

# An array of any namespace that follows the array API standard, or a number; there is no common type to name.
Array: TypeAlias = Any

# `Loss.conjugate_prox` needs about 20 steps where l is smooth. At a kink only the bisections, each third step, count:
# 80 of them reach the 53 bits of float64 from a bracket 1e8 times as wide.
_MAX_BRACKETING_STEPS = 240


def namespace(*arrays: Array) -> Any:
    """Return the array namespace of the first array that has one; numpy for plain numbers and sequences."""
    for array in arrays:
        if hasattr(array, "__array_namespace__"):
            return array.__array_namespace__()
        if type(array).__module__ == "torch":
            return sys.modules["torch"]
    return np


class OfTarget(np.ndarray):
    """The numbers of one of several targets, which tell whose they are; what follows from them is a plain array."""

    target = 0

    @classmethod
    def of(cls, y: np.ndarray[Any, Any], target: int) -> OfTarget:
        """Return a view."""
        own = y.view(cls)
        own.target = target
        return own

    def __array_finalize__(self, whole: Any) -> None:
        self.target = getattr(whole, "target", 0)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        plain = (np.asarray(given) if isinstance(given, OfTarget) else given for given in inputs)
        return getattr(ufunc, method)(*plain, **settings)


def log_probabilities(log_p: Array) -> Array:
    """Return rows of logarithms less what makes their exponentials sum to one."""
    largest = log_p.max(axis=1, keepdims=True)
    return log_p - largest - np.log(np.exp(log_p - largest).sum(axis=1, keepdims=True))


def oriented(low: float, high: float, y: Array) -> tuple[Array, Array]:
    """Return the interval [low, high] where y >= 0 and [-high, -low] where y < 0."""
    if low == -high:
        return low, high
    if isinstance(y, np.ndarray):  # processors cannot foresee the branches of `where`, which takes nine times as long
        turned, dtype = (y < 0).view(np.int8), y.dtype if y.dtype.kind == "f" else np.float64
        return np.array([low, 0.0 - high], dtype).take(turned), np.array([high, 0.0 - low], dtype).take(turned)
    xp = namespace(y)
    one = xp.ones_like(y)
    return xp.where(y < 0, (0.0 - high) * one, low * one), xp.where(y < 0, (0.0 - low) * one, high * one)


class Pieces(NamedTuple):
    """A loss of straight and quadratic pieces, by its conjugate: y a + (mu/2) a^2 on [low, high].

    Where it is `turned`, as losses of classes are, the interval is [-high, -low] for y < 0.
    """

    mu: float
    low: float
    high: float
    turned: bool = True

    @property
    def is_bounded(self) -> bool:
        """Whether F has an end, so that l has a straight piece."""
        return self.low > -math.inf or self.high < math.inf

    @property
    def numbers(self) -> tuple[int, float, float, float]:
        """What compiled kernels know of it; see `Loss.kernel`."""
        return 0 if self.turned else 2, self.mu, self.low, self.high


class Declared:
    """What is declared of every loss, be it of one prediction or of one for each class.

    Attributes
    ----------
    name : str
        What the loss is called in messages and tables.
    task : str
        "regression" (any finite target) or "classification" (targets -1 and +1).
    is_likelihood : bool
        Whether l is minus the logarithm of the likelihood of y given u, up to terms of y alone; of classes exactly that.
    """

    name: ClassVar[str] = "custom"
    task: ClassVar[str] = "regression"
    is_likelihood: ClassVar[bool] = False

    @property
    def has_probabilities(self) -> bool:
        """Whether exp(-l(u, y)) is the probability of the class y."""
        return self.is_likelihood and self.task == "classification"

    def deviance(self, mean: float, n: float) -> float:
        """Return minus twice the log-likelihood, up to a constant, of n samples with this mean loss; of a likelihood only."""
        return 2.0 * n * mean

    def log_likelihoods(self, scores: Array) -> Array:
        """Return log-likelihoods of the classes, one column each, up to a term of each sample; where there are probabilities.

        There is a score for each class, or one for the second of two.
        """
        return scores


class Loss(Declared, ABC):
    """A convex loss of one prediction, elementwise and stateless.

    A loss of one's own needs `value`, `derivative`, `conjugate`, `conjugate_derivative` and `domain`, and `mu` where it
    is smooth. Everything else is derived from these, or declared where the default is not what holds.

    Attributes
    ----------
    name : str
        What the loss is called in messages and tables.
    task : str
        "regression" (any finite target) or "classification" (targets -1 and +1).
    nonnegative_targets : bool
        Whether targets must not be negative.
    positive_targets : bool
        Whether they must not be zero either.
    mu : float
        l is 1/mu-smooth, which is to say that l* is mu-strongly convex; 0 where the curvature has no bound.
    smoothness : float
        How many continuous derivatives l has: 0 with kinks, 1 where the curvature jumps, infinity for analytic losses. By default 1
        where mu > 0, else 0.
    pieces : Pieces or None
        The conjugate, where l is made of straight and quadratic pieces and interior point methods and dual ascent are exact.
    coupled : bool
        Whether l is a function of several predictions, one for each class, and not of each alone: arrays have a row a class, the
        value is one number for a column, and `second_derivative` returns a p that stands for diag(p) - p p'.
    explicit : bool
        Whether l*' is finite on all of F, without which the explicit dual step is of no use.
    of_differences : bool
        Whether l(u, y) depends on y - u alone.
    concordant : bool
        Whether the logarithm of l'' changes by at most 1 per unit of u. Bounds on what a further feature can gain need it.
    reach : float
        The prediction in float64 beyond which l would overflow, and goes on as a straight line instead.
    is_likelihood : bool
        Whether l is minus the logarithm of the likelihood of y given u, up to terms of y alone; of classes exactly that.
        Information criteria and, for classes, probabilities come with it.
    link : str
        What u is of the mean of y: "identity", "log" or "logit"; `mean` is its inverse.
    score : str
        Of a regressor's predictions: "r2", or "d2" with the loss in place of squares.
    scoring : str
        scikit-learn's name of the score by which cross-validation chooses a regressor, or "loss" for minus the mean loss.
    """

    coupled: ClassVar[bool] = False
    explicit: ClassVar[bool] = True
    of_differences: ClassVar[bool] = False
    nonnegative_targets: ClassVar[bool] = False
    positive_targets: ClassVar[bool] = False
    concordant: ClassVar[bool] = False
    reach: ClassVar[float] = math.inf
    link: ClassVar[str] = "identity"
    score: ClassVar[str] = "r2"
    scoring: ClassVar[str] = "neg_mean_squared_error"

    @property
    def mu(self) -> float:
        """Modulus of strong convexity of the conjugate."""
        return 0.0

    @property
    def smoothness(self) -> float:
        """Number of continuous derivatives of l."""
        return 1.0 if self.mu > 0 else 0.0

    @property
    def differentiable(self) -> bool:
        """Whether l has no kinks, and Newton's method may be used as it is; also without a bound on the curvature (mu = 0)."""
        return self.smoothness >= 1

    @property
    def pieces(self) -> Pieces | None:
        """The conjugate of a loss of straight and quadratic pieces."""
        return None

    @property
    def is_quadratic(self) -> bool:
        """Whether l(u, y) = (u - y)^2 / (2 mu), with the same curvature everywhere."""
        return self.pieces is not None and not self.pieces.is_bounded

    @property
    def is_squared_error(self) -> bool:
        """Whether l(u, y) = (u - y)^2, of which the Gram matrix X'SX, X'Sy and y'Sy say all."""
        return self.is_quadratic and self.mu == 0.5

    @abstractmethod
    def value(self, u: Array, y: Array) -> Array:
        """Return l(u, y)."""

    def residual_value(self, r: Array, y: Array) -> Array | None:
        """Return l(y + r, y) from r itself, which may be far smaller than y; None where there is no such formula."""
        return None

    @abstractmethod
    def derivative(self, u: Array, y: Array) -> Array:
        """Return l'(u, y), at a kink the subgradient nearest 0."""

    @abstractmethod
    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y), infinite outside F."""

    @abstractmethod
    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return l*'(a, y) for a in F."""

    @abstractmethod
    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends (low, high) of F, as arrays like y or as two numbers."""

    def second_derivative(self, u: Array, y: Array) -> Array:
        """Return a generalised l''(u, y), here a central difference of `derivative`."""
        xp = namespace(u, y)
        u = xp.asarray(u)
        h = float(xp.finfo(u.dtype).eps) ** (1 / 3) * xp.clip(xp.abs(u), 1.0, None)
        above, below = u + h, u - h
        return (self.derivative(above, y) - self.derivative(below, y)) / (above - below)

    def project(self, a: Array, y: Array) -> Array:
        """Return the point of F nearest to a."""
        low, high = self.domain(y)
        return namespace(a, y).clip(a, low, high)

    def conjugate_prox(self, z: Array, tau: Array, y: Array) -> Array:
        """Return argmin_a  tau l*(a, y) + (a - z)^2 / 2, a point of F, for 0 < tau < inf.

        By Moreau, a = z - tau u for the u with z - tau u in dl(u). The function g(u) = l'(u) + tau u - z increases, and
        because l' is monotone its root lies between 0 and (z - l'(0)) / tau. This bracket [p, q] is narrowed by regula
        falsi (Illinois), with a bisection every third step, until z - tau u is known to rounding or [l'(p), l'(q)],
        which contains a, is: the second is the sharp one where l is smooth, the first at a kink.
        """
        xp = namespace(z, y)
        z = xp.asarray(z)
        tau = xp.asarray(tau, dtype=z.dtype)
        tol = 2.0 * float(xp.finfo(z.dtype).eps)
        far = (z - self.derivative(xp.zeros_like(z), y)) / tau
        p, q = xp.clip(far, None, 0.0), xp.clip(far, 0.0, None)
        slope_p, slope_q = self.derivative(p, y), self.derivative(q, y)
        g_p, g_q = slope_p + tau * p - z, slope_q + tau * q - z
        was_left = was_right = far != far  # all False
        for step in range(_MAX_BRACKETING_STEPS):
            known = _is_narrow(slope_p, slope_q, tol) | _is_narrow(z - tau * q, z - tau * p, tol)
            if bool(xp.all(known | _is_narrow(p, q, tol))):
                break
            rise = g_q - g_p
            share = 0.5 if step % 3 == 2 else xp.where(rise > 0, -g_p / xp.where(rise > 0, rise, 1.0), 0.5)
            # An end that has met the root is crossed by a hair, so that the other end can follow.
            hair = xp.minimum(0.5 * tol * xp.maximum(xp.abs(p), xp.abs(q)), 0.5 * (q - p))
            u = xp.minimum(xp.maximum(p + share * (q - p), p + hair), q - hair)
            slope = self.derivative(u, y)
            g = slope + tau * u - z
            found = xp.abs(g) <= 0.5 * tol * xp.maximum(xp.abs(slope), xp.abs(z))  # the rounding of g itself
            left, right = (g < 0) | found, (g >= 0) | found
            # Illinois: an end that stays twice running counts half, so that both ends close in on the root.
            g_p = xp.where(left, g, xp.where(was_right, 0.5 * g_p, g_p))
            g_q = xp.where(right, g, xp.where(was_left, 0.5 * g_q, g_q))
            p, slope_p = xp.where(left, u, p), xp.where(left, slope, slope_p)
            q, slope_q = xp.where(right, u, q), xp.where(right, slope, slope_q)
            was_left, was_right = left, right
        a = z - tau * (p + 0.5 * (q - p))
        return self.project(xp.minimum(xp.maximum(a, slope_p), slope_q), y)

    def within_reach(self, u: Array, y: Array) -> Array:
        """Tell where l is what it says, and not the straight line that keeps it from overflowing."""
        return u <= self.reach

    def paired(self, a: Array, u: Array) -> Array:
        """Return the products of dual variables and predictions, as the Fenchel-Young inequality has them."""
        return a * u

    def largest_near(self, u: Array, e: Array, y: Array) -> Array:
        """Return the largest l(v, y) for v from u - e to u + e: by convexity that of an end."""
        return namespace(u, y).maximum(self.value(u - e, y), self.value(u + e, y))

    def curvature_near(self, u: Array, h: float, y: Array) -> Array:
        """Return the mean of l'' over [u - h, u + h]."""
        return (self.derivative(u + h, y) - self.derivative(u - h, y)) / (2.0 * h)

    def conjugate_terms(self, a: Array, y: Array, conjugate: Array) -> Array:
        """Return the sizes of the terms of l*(a, y), which is given: a few units in their last place bound its rounding error."""
        xp = namespace(a, y)
        return xp.abs(conjugate) + 2.0 * xp.abs(y * a)

    def intercept(self, each: Callable[[Callable[[Array, Array, Array], float]], list[float]]) -> float | None:
        """Return the minimiser over b of sum_i s_i l(u_i + b, y_i) where there is a formula for it.

        ``each(f)`` is the list of ``f(y, s, u)`` of every block of samples.
        """
        return None

    @property
    def several(self) -> int:
        """How many targets, of which each has a loss of its own, or 1: the same loss for however many there are."""
        return 1

    @property
    def labels(self) -> list[str]:
        """What each of several losses is called; none of one."""
        return []

    def columns_of(self, y: Any) -> Any:
        """Return targets; one target alone in a column for each of several losses."""
        one = self.several > 1 and np.ndim(y) == 1
        return np.broadcast_to(np.asarray(y)[:, None], (len(y), self.several)) if one else y

    def of_target(self, c: int) -> Loss:
        """Return the loss of one of several targets."""
        return self

    def of_two_classes(self) -> tuple[Loss, float]:
        """Return the loss of one prediction that two classes have in common, and the factor of its ridge."""
        return self, 1.0

    def of_classes(self) -> Loss:
        """Return the loss of more than two classes that share features: this one of each against the others, or one of all."""
        return self

    def log_likelihoods(self, scores: Array) -> Array:
        """Return -l(u, +1) for each class, which is one against the others; of two classes -l(u, -1) and -l(u, +1)."""
        ones = np.ones_like(scores)
        own = -self.value(scores, ones)
        return own if scores.shape[1] > 1 else np.hstack([-self.value(scores, -ones), own])

    def mean(self, u: Array) -> Array:
        """Return the target that a prediction u stands for."""
        return u

    def with_offset(self, y: Array, offset: Array) -> tuple[Array, Array]:
        """Return targets z and factors f for which l(u + offset, y) = f l(u, z) for all u; ValueError if there are none."""
        if not self.of_differences:
            raise ValueError(
                f"offset cannot be used with the {self.name} loss: it changes more than targets and weights"
            )
        return y - offset, namespace(y).ones_like(y)

    def dual_step(self, a: Array, u: Array, tau: Array, y: Array, implicit: bool) -> Array:
        """Return the dual variable after an ascent step of length tau at the prediction u.

        Explicit (the paper's, Algorithm 1): P_F(a + tau (u - l*'(a))). Implicit: argmin_b of
        tau (l*(b) - b u) + (b - a)^2 / 2, the proximal map of the conjugate at a + tau u.
        """
        if implicit:
            return self.conjugate_prox(a + tau * u, tau, y)
        return self.project(a + tau * (u - self.conjugate_derivative(a, y)), y)

    def start(self, y: Array) -> Array:
        """Return a first dual point: l'(0, y), where the explicit and the implicit step are both defined."""
        return self.derivative(namespace(y).zeros_like(y), y)

    def kernel(self) -> tuple[int, float, float, float] | None:
        """Return (code, mu, low, high) for the compiled dual steps, or None: the step then runs through this object.

        Code 0: the loss of these `pieces`, turned for y < 0; code 2: not turned. Code 1: the logistic loss.
        """
        return None if self.pieces is None else self.pieces.numbers

    def slope_kernel(self) -> tuple[tuple[int, float, float, float], float] | None:
        """Return the numbers of `kernel` and the strength of barriers, for compiled sums of derivatives; None as there."""
        kernel = self.kernel()
        return None if kernel is None else (kernel, 0.0)

    def check_targets(self, y: Array) -> None:
        """Raise ValueError where a target is not one that the loss is made for."""
        xp = namespace(y)
        y = xp.reshape(xp.asarray(y), (-1,))
        if getattr(y.dtype, "kind", "f") not in "biuf":
            raise ValueError(f"y must hold real numbers, got {y.dtype} (first value: {y[0] if len(y) else None!r})")
        _refuse(xp, y, ~xp.isfinite(y), "y must be finite")
        if self.task == "classification":
            _refuse(xp, y, (y != 1) & (y != -1), f"y must be -1 or +1 for the {self.name} loss")
        if self.nonnegative_targets:
            _refuse(xp, y, y < 0, f"y must not be negative for the {self.name} loss")
        if self.positive_targets:
            _refuse(xp, y, y <= 0, f"y must be positive for the {self.name} loss")


def _is_narrow(low: Array, high: Array, tol: float) -> Array:
    """Tell where the interval [low, high] is a point but for a relative tol."""
    xp = namespace(low)
    return high - low <= tol * xp.maximum(xp.abs(low), xp.abs(high))


def _refuse(xp: Any, y: Array, bad: Array, requirement: str) -> None:
    """Raise ValueError with the first target that is bad, if there is one."""
    if bool(xp.any(bad)):
        first = int(xp.nonzero(bad)[0][0])
        raise ValueError(f"{requirement}, got {float(y[first])} at position {first}")


def is_between(value: Any, low: float, high: float) -> bool:
    """Whether a parameter of a loss is a number between two others."""
    return isinstance(value, Real) and low < float(value) < high


def require_positive(name: str, value: Any) -> None:
    """Raise ValueError unless a parameter of a loss is a positive number."""
    if not is_between(value, 0.0, math.inf):
        raise ValueError(f"{name} must be positive and finite, got {value!r}")

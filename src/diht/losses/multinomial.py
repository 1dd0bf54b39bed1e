"""The multinomial loss: of one sample a function of the scores of all classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from diht.losses.base import Array, Loss

__all__ = ["Multinomial"]

_SUMS_TO_ZERO = 16.0 * 2.0**-53  # rounding of the sum of a dual point's entries, for each class


@dataclass(frozen=True)
class Multinomial(Loss):
    """Multinomial loss. u, y and a have one row a class; y has a single 1 in each column, that of the sample's class.

    l(u)   = log(sum_c exp(u_c)) - u.y
    l*(a)  = sum_c p_c log p_c,  p = a + y,  F: p in the simplex,  0 log 0 = 0
    l'(u)  = p - y at p = softmax(u),  l''(u) = diag(p) - p p', which p stands for
    mu     = 2
    """

    name: ClassVar[str] = "multinomial"
    task: ClassVar[str] = "classification"
    is_likelihood: ClassVar[bool] = True
    coupled: ClassVar[bool] = True
    link: ClassVar[str] = "logit"
    mu: ClassVar[float] = 2.0
    smoothness: ClassVar[float] = math.inf
    explicit: ClassVar[bool] = False  # l*' is infinite at the ends of F

    def value(self, u: Array, y: Array) -> Array:
        """Return log(1 + sum of exp(difference of a score and its class's own)), to all digits where it is small."""
        v = u - np.sum(u * y, axis=0)
        top = v.max(axis=0)  # at least the 0 of the sample's own class
        others = np.exp(v - top) * (1.0 - y)
        return top + np.log1p(others.sum(axis=0) + np.expm1(-top))

    def derivative(self, u: Array, y: Array) -> Array:
        """Return p - y; that of a sample's own class to all digits, also where p rounds to 1."""
        others = self.second_derivative(u, y) * (1.0 - y)
        return others - y * others.sum(axis=0)

    def second_derivative(self, u: Array, y: Array) -> Array:
        """Return p = softmax(u), which stands for the Hessian diag(p) - p p' of a sample."""
        e = np.exp(u - u.max(axis=0))
        return e / e.sum(axis=0)

    def conjugate(self, a: Array, y: Array) -> Array:
        """Return l*(a, y), infinite outside [0, 1]; that a row of p sums to 1 is taken for granted."""
        p = a + y
        outside = (p < 0.0) | (p > 1.0)
        terms = p * np.log(np.where(p > 0.0, p, 1.0))
        return np.sum(np.where(outside, math.inf, terms), axis=0)

    def conjugate_derivative(self, a: Array, y: Array) -> Array:
        """Return 1 + log p."""
        with np.errstate(divide="ignore"):
            return 1.0 + np.log(a + y)

    def conjugate_terms(self, a: Array, y: Array, conjugate: Array) -> Array:
        """Return the sizes of what is added up: each p_c is rounded once, and moves its term by 1 - log p_c of that."""
        return (1.0 + len(y) / 16.0) * (np.abs(conjugate) + 1.0)

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the ends of the smallest box around F."""
        return -y, 1.0 - y

    def project(self, a: Array, y: Array) -> Array:
        """Return the point of F nearest to a; a itself where it is one up to the rounding of its sum."""
        p = a + y
        with np.errstate(over="ignore", invalid="ignore"):
            fits = np.all((p >= 0.0) & (p <= 1.0), axis=0) & (np.abs(np.sum(a, axis=0)) <= len(y) * _SUMS_TO_ZERO)
            if np.all(fits):
                return a
            p = np.maximum(
                p - p.max(axis=0), -1.0
            )  # a shift changes nothing, and what is 1 below the largest becomes 0
        falling = -np.sort(-p, axis=0)
        excess = np.cumsum(falling, axis=0) - 1.0
        number = np.arange(1.0, len(p) + 1.0)[:, None]
        last = np.sum(falling * number > excess, axis=0) - 1  # the last of the largest that stay positive
        level = np.take_along_axis(excess, last[None], axis=0)[0] / (last + 1.0)
        return np.where(fits, a, np.clip(p - level, 0.0, 1.0) - y)

    def conjugate_prox(self, z: Array, tau: Array, y: Array) -> Array:
        """Refuse: dual steps are for losses of one prediction."""
        raise ValueError(
            "the multinomial loss has no dual steps: choose solver='auto', 'relaxed', 'branch', 'iht' or 'htp'"
        )

    def paired(self, a: Array, u: Array) -> Array:
        """Return the products of scores and dual variables, summed over the classes."""
        return np.sum(a * u, axis=0)

    def largest_near(self, u: Array, e: Array, y: Array) -> Array:
        """Return a bound on l within e of u: the loss moves by at most twice what a score does."""
        return self.value(u, y) + 2.0 * np.max(e, axis=0)

    def curvature_near(self, u: Array, h: float, y: Array) -> Array:
        """Return the curvature at u itself."""
        return self.second_derivative(u, y)

    def of_two_classes(self) -> tuple[Loss, float]:
        """Return the loss of two classes, which share a coefficient w as w/2 and -w/2, and the factor of its ridge."""
        from diht.losses.logistic import Logistic

        return Logistic(), 0.5

    def log_likelihoods(self, scores: Array) -> Array:
        """Return the scores."""
        return scores

    def check_targets(self, y: Any) -> None:
        """Raise ValueError unless each sample has one class."""
        if np.ndim(y) != 2 or not np.all((y == 0.0) | (y == 1.0)) or not np.all(np.sum(y, axis=0) == 1.0):
            raise ValueError(
                "y must hold the classes by their numbers from 0, or a column for each class with a single 1 a sample"
            )

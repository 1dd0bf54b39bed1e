"""What a solve asks of a likelihood that is a convex function of all predictions together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from diht.numerics.arrays import Vector

__all__ = ["Likelihood", "Linear", "Named"]


class Linear(NamedTuple):
    """A function that is nowhere above f, and touches it at a point up to rounding: constant + gradient . v.

    Attributes
    ----------
    gradient, gradient_error : arrays of shape (N,)
        Some gradient within the error of this one goes with the constant.
    constant : float
        Less all that rounding can have added to it; not finite where nothing can be said.
    """

    gradient: Vector
    gradient_error: Vector
    constant: float


@dataclass(frozen=True)
class Named:
    """What paths and pages say of a likelihood, as `diht.losses.Loss` does of itself."""

    name: str
    is_likelihood: bool = True
    coupled: bool = False
    task: str = "regression"
    link: str = "log"

    def deviance(self, mean: float, n: float) -> float:
        """Return minus twice the log-likelihood, n times minus whose mean is minimised."""
        return 2.0 * n * mean


class Likelihood(Protocol):
    """f(u), minus the logarithm of a likelihood, convex in the vector u of all predictions."""

    def levelled(self, u: Vector) -> Vector:
        """Return u moved along directions in which f is constant, so that it is computed well."""
        ...

    def value(self, u: Vector) -> float:
        """Return f at u."""
        ...

    def linear(self, u: Vector) -> Linear:
        """Return a linear function below f that touches it at u."""
        ...

    def hessian(self, u: Vector, X: Vector, diagonal: bool = False) -> Vector:
        """Return X' f''(u) X, or its diagonal."""
        ...

"""What happens to the dual variables in one pass over some rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from diht.numerics.arrays import Vector
from diht.numerics.compiling import Kernels

if TYPE_CHECKING:
    from diht.design import kernels as kernels
    from diht.losses import Loss
else:
    kernels = Kernels("diht.design.kernels")

Mode: TypeAlias = Literal["identity", "explicit", "implicit", "derivative", "margin"]

# The numbers by which the compiled kernels know the modes.
MODES: dict[str, int] = {"identity": 0, "explicit": 1, "implicit": 2, "derivative": 3, "margin": 4}


class Codes(NamedTuple):
    """A step as the compiled kernels take it: numbers only."""

    mode: int
    tau: float
    code: int
    mu: float
    low: float
    high: float
    store: bool
    fresh: bool


@dataclass(eq=False)
class DualState:
    r"""Dual variables, and what follows them through a pass; each is changed in place.

    Attributes
    ----------
    alpha : Rows
        One for each sample.
    g : (d,) float64 array
        :math:`X^\top (s \odot \alpha)`.
    u : Rows, optional
        Where it is given, the margins of the rows that were visited are written to it.
    """

    alpha: Any
    g: Vector
    u: Any = None


@dataclass(frozen=True)
class Step:
    r"""The new value of a dual variable :math:`a` whose sample has the margin :math:`u = x \cdot w + b`.

    ========== =====================================================================================
    mode       new value
    ========== =====================================================================================
    explicit   :math:`P_F(a + \tau (u - l^{*\prime}(a)))`, the step of the paper's Algorithm 1
    implicit   :math:`\arg\min_z \tau l^*(z) + (z - a - \tau u)^2 / 2`
    derivative :math:`l'(u)`
    identity   :math:`a`
    margin     :math:`u` (no loss involved: with it a pass computes :math:`X^\top \mathrm{diag}(s) X w`)
    ========== =====================================================================================

    Parameters
    ----------
    loss : Loss or None
        The loss; the modes "identity" and "margin" need none.
    mode : str
        A row of the table. A loss without a usable explicit step takes the implicit one in its place.
    tau : float
        The step size of the first two modes.
    store : bool
        Whether the new value replaces the old one. False leaves the dual vector as it is, so that the pass only adds
        :math:`s_i (\mathrm{new}_i - a_i) x_i` to the accumulated sum.
    fresh : bool
        Whether the sum is overwritten by :math:`X^\top (s \odot \mathrm{new})`, so that no rounding errors pile up; only for a
        pass over all rows.
    """

    loss: Loss | None
    mode: Mode
    tau: float = float("nan")
    store: bool = True
    fresh: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if self.mode in ("explicit", "implicit") and not self.tau > 0:
            raise ValueError(f"tau must be positive, got {self.tau!r}")

    def __call__(self, alpha: Vector, u: Vector, y: Vector) -> Vector:
        """Compute the new values of an array of dual variables."""
        if self.mode == "identity":
            return alpha
        if self.mode == "margin":
            return u
        assert self.loss is not None
        if self.mode == "derivative":
            new: Vector = self.loss.derivative(u, y)
        else:
            implicit = self.mode == "implicit" or not self.loss.explicit
            new = self.loss.dual_step(alpha, u, self.tau, y, implicit=implicit)
        return new

    def of_target(self, c: int) -> Step:
        """Return the step with the loss of one of several targets."""
        return self if self.loss is None or self.loss.several == 1 else replace(self, loss=self.loss.of_target(c))

    def codes(self) -> Codes | None:
        """Return the step as numbers, or None if the loss has no compiled formula."""
        if self.mode in ("identity", "margin"):
            return Codes(MODES[self.mode], 0.0, 0, 1.0, -np.inf, np.inf, self.store, self.fresh)
        assert self.loss is not None
        kernel = self.loss.kernel()
        if kernel is None:
            return None
        code, mu, low, high = kernel
        numbers = float(self.tau), int(code), float(mu), float(low), float(high)
        return Codes(MODES[self.mode], *numbers, self.store, self.fresh)

    def at(self, alpha: Vector, u: Vector, y: Vector, b: float = 0.0) -> Vector:
        """Compute the new values at the margins u + b, compiled where the loss has a compiled formula."""
        codes = self.codes()
        if codes is None or not isinstance(u, np.ndarray):
            return self(alpha, u + b, y)
        new = np.empty_like(alpha)
        kernels.elementwise_step(codes, alpha, u, b, y, new)
        return new

    def total(self, alpha: Vector, u: Vector, y: Vector, s: Vector, b: float = 0.0) -> float:
        """Compute the weighted sum of the new values at the margins u + b: it never falls as b grows."""
        codes = self.codes()
        if codes is None or not isinstance(u, np.ndarray):
            return float(s @ self(alpha, u + b, y))
        return kernels.weighted_step(codes, alpha, u, b, y, s)

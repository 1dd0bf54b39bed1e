"""Stochastic dual coordinate ascent on all features of a (compact) design: one sample after the other, w following each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diht.design.base import Design, StoredDesign
from diht.design.dense import DenseDesign
from diht.design.sparse import SparseDesign
from diht.design.view import AffineView
from diht.losses import Loss

__all__ = ["CoordinateAscent"]

Vector = NDArray[np.float64]


@dataclass
class CoordinateAscent:
    r"""Exact maximisation of the ridge problem's dual over one alpha_i at a time (Shalev-Shwartz and Zhang, 2013).

    .. math:: \alpha_i \leftarrow \mathrm{prox}_{l^* / q_i}\left(\alpha_i + u_i / q_i\right), \qquad
              q_i = s_i \left(\|x_i\|^2 / \lambda + 1/\kappa\right)

    There is no sparsity here: it is for the features of one support. An intercept has the proximal term
    (kappa/2)(b - c)^2, whose centre c moves to b after each epoch; centring is left out, as the intercept takes it up.
    """

    design: Design
    loss: Loss
    y: Vector
    s: Vector
    lam: float
    fit_intercept: bool
    alpha: Vector
    rng: np.random.Generator
    anchor: float = 0.0
    w: Vector = field(init=False)  # in raw units: the coefficients divided by the scale

    def __post_init__(self) -> None:
        view = self.design if isinstance(self.design, AffineView) else None
        base = self.design if view is None else view.base
        assert isinstance(base, StoredDesign)
        self.base, scale = base, None if view is None else view.scale
        self.stretch = np.ones(self.base.shape[1]) if scale is None else 1.0 / np.square(scale)
        self.norms = self.base._affine_row_norms_sq(None, scale)
        self.kappa = self.lam / max(float(self.s @ self.norms), np.finfo(float).tiny) if self.fit_intercept else np.inf

    def epoch(self) -> None:
        """Visit every sample once, in a new order."""
        from diht.design import kernels

        codes = self.loss.kernel()
        assert codes is not None
        self.w = -self.stretch * self.base.rmatvec(self.s * self.alpha) / self.lam
        b = self.anchor - float(self.s @ self.alpha) / self.kappa
        order = self.rng.permutation(len(self.alpha))
        loss: Any = np.array(codes)
        arguments: tuple[Any, ...] = (
            order, self.w, b, self.kappa, self.alpha, self.y, self.s, self.norms, self.stretch, self.lam, loss
        )  # fmt: skip
        if isinstance(self.base, SparseDesign):
            self.anchor = kernels.csr_ascend(*self.base._by_rows(), *arguments)
        else:
            assert isinstance(self.base, DenseDesign)
            self.anchor = kernels.dense_ascend(self.base._X, *arguments)
        self.base._passes += 1.0

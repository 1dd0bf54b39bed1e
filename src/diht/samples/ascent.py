"""Stochastic dual coordinate ascent: one sample after the other, the model following each.

`CoordinateAscent` is for a ridge problem on the features of one support, `ProximalAscent` for the relaxation of a sparse one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from diht.design.base import Design
from diht.losses import Loss
from diht.numerics.arrays import Vector
from diht.numerics.threads import Ahead

__all__ = ["CoordinateAscent", "ProximalAscent"]


@dataclass
class CoordinateAscent:
    r"""Exact maximisation of the ridge problem's dual over one alpha_i at a time (Shalev-Shwartz and Zhang, 2013).

    .. math:: \alpha_i \leftarrow \mathrm{prox}_{l^* / q_i}\left(\alpha_i + u_i / q_i\right), \qquad
              q_i = s_i \left(\|x_i\|^2 / \lambda + 1/\kappa\right)

    There is no sparsity here: it is for the features of one support. Nothing else may change `alpha`, which is changed in place. An
    intercept has the proximal term (kappa/2)(b - c)^2, whose centre c moves to b after each epoch; centring is left out, as the
    intercept takes it up.
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
    epochs: int = 0
    w: Vector = field(init=False)  # in raw units: the coefficients divided by the scale

    def __post_init__(self) -> None:
        self.base, scale = self.design.raw()
        self.stretch = np.ones(self.base.shape[1]) if scale is None else 1.0 / np.square(scale)
        self.norms = self.base._affine_row_norms_sq(None, scale)
        self.kappa = self.lam / max(float(self.s @ self.norms), np.finfo(float).tiny) if self.fit_intercept else np.inf

    def epoch(self) -> None:
        """Visit every sample once, in a new order."""
        codes = self.loss.kernel()
        assert codes is not None
        if self.epochs % _FRESH == 0:  # increments drift
            self.w = -self.stretch * self.base.rmatvec(self.s * self.alpha) / self.lam
        self.epochs += 1
        b = self.anchor - float(self.s @ self.alpha) / self.kappa
        order = _in_runs(len(self.alpha), self.rng)
        loss: Any = np.array(codes)
        self.anchor = self.base.ascend(
            order, self.w, b, self.kappa, self.alpha, self.y, self.s, self.norms, self.stretch, self.lam, loss
        )


class ProximalAscent:
    r"""The relaxation's dual, maximised by an accelerated proximal point method with coordinate ascent inside.

    Around a center c the relaxation :math:`\sum_i s_i l(x_i^\top w + b) + \lambda \Omega(w)` gains the terms
    :math:`\frac{\kappa}{2} \|w - c\|^2 + \frac{\kappa_b}{2} (b - c_b)^2`. Its dual is then smooth: with
    :math:`q = c - X^\top (s \odot \alpha) / \kappa` the model is :math:`w = \mathrm{prox}_{(\lambda/\kappa) \Omega}(q)`, and

    .. math:: \alpha_i \leftarrow \mathrm{prox}_{l^* / q_i}\left(\alpha_i + u_i / q_i\right), \qquad
              q_i = s_i \left(\|x_i\|^2 / \kappa + 1/\kappa_b\right)

    maximises a lower model of it over one :math:`\alpha_i`. After each epoch c moves to w, with Nesterov's momentum, which starts
    again where it points uphill. Centring is left to the intercept where X is sparse.

    Parameters
    ----------
    design : Design
        All the features.
    features : array of int or None
        The working set; None for all.
    m, inside : int, array of bool
        As `Constraint.free` gives them, within the working set: so many features may be chosen besides those inside.
    alpha : (N,) array
        Where to begin; changed in place.
    """

    def __init__(
        self,
        design: Design,
        features: NDArray[np.int64] | None,
        loss: Loss,
        y: Vector,
        s: Vector,
        lam: float,
        fit_intercept: bool,
        m: int,
        inside: NDArray[np.bool_],
        alpha: Vector,
        seed: int = 0,
    ) -> None:
        self.base, _ = design.raw()
        self.strength = design.square_sum(np.square(s))  # of a proximal term as curved as a sample's loss
        self.part, self.matrix, self.norms = design.visits(features)
        self.copied = self.part is not self.base and self.part is not design
        codes = loss.kernel()
        assert codes is not None
        self.loss, self.y, self.s, self.lam = np.array(codes, dtype=np.float64), y, s, lam
        self.m, self.inside, self.alpha, self.fit_intercept = m, inside, alpha, fit_intercept
        d = self.part.shape[1]
        self.w, self.q, self.previous, self.center = np.zeros(d), np.empty(d), np.zeros(d), np.zeros(d)
        self.at, self.magnitudes = np.empty(d + 1, dtype=np.int64), np.empty(d + 1)
        self.order, self.run_length = np.arange(len(y)), _run_length(len(y))
        self.seed = np.array([(seed + 1) * 0x9E3779B97F4A7C15 % 2**64], dtype=np.uint64)
        self.scalars = np.zeros(8)
        self.visited = self.made = self.taken = 0  # epochs of the current run; runs that were made, and asked for
        self.ahead: Ahead | None = None
        self.resting = False
        self.refreshes = int(np.clip(self.matrix[0].size // (_EACH * max(1, d)), *_REFRESHES))

    def restart(self, kappa: float, w: Vector | None = None, b: float = 0.0) -> None:
        """Begin again around a model, from the dual point as it is."""
        from diht.samples import ascent_kernels

        self.center[:] = 0.0 if w is None else w
        self.previous[:] = self.center
        size = float(self.s @ self.norms)
        kappa_b = kappa / max(size, np.finfo(float).tiny) if self.fit_intercept else np.inf
        self.q[:] = self.center - self.rmatvec(self.s * self.alpha) / kappa
        self.w[:] = 0.0
        r = self.lam / kappa
        theta, count = ascent_kernels.refresh(self.q, self.w, self.inside, self.m, r, 0.0, self.at, 0, self.magnitudes)
        start = b - float(self.s @ self.alpha) / kappa_b
        self.scalars[:] = theta, count, start, b, b, 1.0, kappa, kappa_b

    def rmatvec(self, c: Vector) -> Vector:
        """X'c over the working set, in the coordinates of the visits (not centred where X is sparse)."""
        self._count(1)
        return self.part.rmatvec(c)

    def products(self, w: Vector, alpha: Vector) -> tuple[Vector, Vector]:
        """Xw and X'(s alpha) over the working set, in the coordinates of the visits."""
        self._count(1)
        return self.part.matvec_rmatvec(w, self.s * alpha)

    def _count(self, passes: float) -> None:
        """Count reads of a working copy as their fraction of X; X itself counts its own products."""
        if self.copied:
            self.base.count(passes * self.part.nbytes / max(1, self.base.nbytes))

    def run(self, epochs: int) -> Iterate:
        """Make some epochs, the same number every time, and return where they have led: at once where `go_on` has made them."""
        found = None
        if self.ahead is not None:
            found, self.ahead = self.ahead.result()
        self.taken += 1
        if found is None:
            self.resting = False
            found = self._visit(epochs)
        assert found is not None
        self.base.count(epochs * self.part.nbytes / max(1, self.base.nbytes))
        return found

    def go_on(self, epochs: int) -> None:
        """Make what the next runs ask for in another thread, if there is one, until enough is made or `rest` ends that."""
        if self.ahead is None and self.base.n_threads > 1:
            self.ahead = Ahead(partial(self._visit_ahead, epochs), self.base.n_threads)

    def rest(self) -> None:
        """Let no epochs begin before they are asked for."""
        self.resting = True

    def _visit_ahead(self, epochs: int) -> tuple[Iterate | None, Ahead | None]:
        """Make a run, and begin the one after it unless enough are waiting."""
        found = self._visit(epochs)
        more = found is not None and self.made - self.taken < _MOST_WAITING
        return found, Ahead(partial(self._visit_ahead, epochs), self.base.n_threads) if more else None

    def _visit(self, epochs: int) -> Iterate | None:
        """Make what is left of a run; None if there is to be a rest before its end."""
        from diht.samples import ascent_kernels

        while self.visited < epochs:
            if self.resting:
                return None
            ascent_kernels.proximal_epochs(
                *self.matrix, 1, self.refreshes, self.order, self.run_length, self.seed, self.q, self.w, self.center,
                self.previous, self.inside, self.m, self.at, self.magnitudes, self.scalars, self.lam, self.alpha, self.y,
                self.s, self.norms, self.loss,
            )  # fmt: skip
            self.visited += 1
        self.visited, self.made = 0, self.made + 1
        return Iterate(self.previous.copy(), float(self.scalars[4]), self.alpha.copy())


class Iterate(NamedTuple):
    """The relaxation's model after some epochs, its intercept in the coordinates of the visits, and the dual point."""

    w: Vector
    b: float
    alpha: Vector


_FRESH = 5  # epochs that w follows by increments
_MOST_WAITING = 4  # iterates that are made before they are asked for
# Times an epoch that theta is found anew, which takes as long as visiting an entry or two for each feature: at most half the time.
_EACH, _REFRESHES = 2, (3, 10)
_MANY, _RUN = 10_000, 16  # samples from which on so many neighbours are visited one after the other


def _run_length(n: int) -> int:
    """Neighbours of a sample that are visited after it: memory is fast where it is read in order, and runs are as random."""
    return _RUN if n >= _MANY else 1


def _in_runs(n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return a random order of n samples, in runs; those left over come last."""
    run = _run_length(n)
    starts = run * rng.permutation(n // run)
    return np.concatenate([(starts[:, None] + np.arange(run)).ravel(), np.arange(n - n % run, n)])

r"""The constants and iteration bounds of the paper's Theorems 4 and 5.

They assume equal weights, no intercept, samples of norm at most one, and a loss for which r and rho are finite (of this
library's: smoothed hinge and Huber). :math:`\sigma_{\min}(X, k)` is zero wherever k < N and is taken as zero;
:math:`\sigma_{\max}(X, k)` is itself hard to compute and is bounded by :math:`\sigma_{\max}(X)`.

Two of the paper's statements are kept as they stand although their proofs have a gap: the bound on
:math:`\|\beta - \bar\alpha\|` lacks a factor :math:`\sqrt N`, so c2, t1 and t3 are stated, not proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, inf, log, sqrt

import numpy as np

from diht.design import spectral_bound
from diht.problem import Problem

__all__ = ["Constants", "constants", "error_bound", "iterations"]


@dataclass(frozen=True)
class Constants:
    """Quantities of the paper's section 4.2.

    Attributes
    ----------
    n_samples : int
        N.
    lam : float
        The ridge's strength.
    r : float
        max over F of |a|.
    rho : float
        max over i and F of |l*'(a)|.
    mu : float
        The loss is 1/mu-smooth.
    sigma : float
        A safe upper bound on sigma_max(X).
    c0, c1, c2 : float
        c0 = (r + lam rho) / (lam sqrt(N)) bounds the super-gradient; c1 and c2 are those of Theorem 4.
    """

    n_samples: int
    lam: float
    r: float
    rho: float
    mu: float
    sigma: float

    @property
    def c0(self) -> float:
        """(r + lam rho) / (lam sqrt(N))."""
        return (self.r + self.lam * self.rho) / (self.lam * sqrt(self.n_samples))

    @property
    def c1(self) -> float:
        """N^3 (r + lam rho)^2 / (lam N mu)^2."""
        return self.n_samples**3 * (self.r + self.lam * self.rho) ** 2 / (self.lam * self.n_samples * self.mu) ** 2

    @property
    def c2(self) -> float:
        """(r + lam rho)^2 (1 + sigma_max / (mu lam N))^2."""
        return (self.r + self.lam * self.rho) ** 2 * (1 + self.sigma / (self.mu * self.lam * self.n_samples)) ** 2


def constants(problem: Problem) -> Constants:
    """Constants of a problem; ValueError, with the reason, where the paper does not define them."""
    n = problem.shape[0]
    if problem.fit_intercept:
        raise ValueError("the paper's bounds are stated for a problem without an intercept")
    if not np.allclose(problem.s, 1.0 / n, rtol=1e-12, atol=0.0):
        raise ValueError("the paper's bounds are stated for equal sample weights")
    if problem.loss.mu <= 0:
        raise ValueError(f"the paper's bounds need a smooth loss (mu > 0), not {problem.loss.name}")
    largest = float(np.sqrt(problem.design.row_norms_sq().max()))
    if largest > 1.0 + 1e-9:
        raise ValueError(f"the paper's bounds assume samples of norm at most 1, got {largest:g}")
    low, high = (np.broadcast_to(end, problem.y.shape) for end in problem.loss.domain(problem.y))
    if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high))):
        raise ValueError(f"the paper's bounds need a bounded dual domain F, which the {problem.loss.name} loss lacks")
    with np.errstate(divide="ignore"):
        # l*' is monotone, so its extremes are at the ends of F.
        slopes = [problem.loss.conjugate_derivative(end, problem.y) for end in (low, high)]
    rho = float(np.max(np.abs(slopes)))
    if not np.isfinite(rho):
        raise ValueError(f"the paper's bounds need a bounded l*', which the {problem.loss.name} loss lacks")
    r = float(max(np.abs(low).max(), np.abs(high).max()))
    sigma = sqrt(n * spectral_bound(problem.design, problem.s))
    return Constants(n, problem.lam, r, rho, problem.loss.mu, sigma)


def error_bound(c: Constants, t: int, n_blocks: int = 1) -> float:
    """Theorems 4(a) and 5(a): ||alpha_t - alpha||^2 (5: its expectation) is at most m c1 (1 + ln t) / t."""
    if t < 1:
        raise ValueError(f"t must be at least 1, got {t}")
    return n_blocks * c.c1 * (1 + log(t)) / t


def iterations(
    c: Constants, margin: float, gap: float | None = None, n_blocks: int = 1, delta: float | None = None
) -> float:
    """Steps after which the paper promises the optimal support, or with `gap` given a gap of at most that.

    Without `delta`: t0, and with `gap` max(t0, t1), of Theorem 4 for DIHT. With `delta`, for SDIHT with `n_blocks` blocks,
    with probability at least 1 - delta: t2, and with `gap` max(4 t2, t3), of Theorem 5. Infinite where the margin is not
    positive.
    """
    if margin <= 0:
        return inf
    if delta is not None and not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1, got {delta!r}")
    if gap is not None and not gap > 0:
        raise ValueError(f"gap must be positive, got {gap!r}")
    scale = 1.0 if delta is None else n_blocks / delta**2
    support = _t_ln_t(12 * scale * c.c1, c.sigma / (c.lam * c.n_samples * margin))
    if gap is None:
        return support
    factor = 3.0 if delta is None else 12.0 * scale
    closing = _t_ln_t(factor * c.c1 * c.c2 / c.n_samples, 1 / (c.lam * gap))
    return max(support if delta is None else 4 * support, closing)


def _t_ln_t(factor: float, root: float) -> float:
    """ceil(x ln x) for x = factor root^2, at least 1 (Lemma 6: enough for (1 + ln t) / t to be below 3 / x)."""
    x = factor * root * root
    if x <= exp(1):
        return 1.0
    return float(ceil(x * log(x))) if x < 1e300 else inf

r"""Minus the logarithm of the likelihood of proportional odds, as a function of the predictions.

Classes 0, ..., C - 1 are ordered, :math:`P(y \le c) = \sigma(t_c - u)` with thresholds :math:`t_0 < \dots < t_{C-2}` that are the
same for all samples and are not penalised. As :math:`\sigma(a) - \sigma(b) = \sigma(a) \sigma(-b) (1 - e^{b - a})`,

.. math:: -\log P(y = c) = \log(1 + e^{u - t_c}) + \log(1 + e^{t_{c-1} - u}) - \log(1 - e^{t_{c-1} - t_c}) ,

the first term for all classes but the last, the second for all but the first, the third, in which there is no prediction, for those
between. With s the weights and :math:`S_c` their sum over a class,

.. math:: f(u) = \min_t \sum_{c_i < C-1} s_i \log(1 + e^{u_i - t_{c_i}}) + \sum_{c_i > 0} s_i \log(1 + e^{t_{c_i - 1} - u_i})
          - \sum_{0 < c < C-1} S_c \log(1 - e^{t_{c-1} - t_c}) .

All is convex in u and t together, and f in u. Each logistic term has a dual variable, p_i in [0, 1] for the first and q_i for the
second. Where :math:`\sum_i s_i p_i = \sum_i s_i q_i`, with :math:`A_c` the sum of :math:`s_i p_i` over the classes below c less
that of :math:`s_i q_i` over those up to c (but the first), all of them not negative, h the entropy of a probability, and any v,

.. math:: f(v) \ge \sum_i s_i (p_i - q_i) v_i + \sum_i s_i (h(p_i) + h(q_i)) + \sum_{0 < c < C-1} G(A_c, S_c) , \qquad
          G(A, S) = A \log\tfrac{A + S}{A} + S \log\tfrac{A + S}{S} ,

for :math:`\min_{\delta > 0} A \delta - S \log(1 - e^{-\delta}) = G(A, S)`.
"""

from __future__ import annotations

from math import fsum

import numpy as np
from scipy.special import expit

from diht.design.base import UNIT
from diht.joint.likelihood import Linear
from diht.numerics.arrays import Indices, Vector
from diht.numerics.definite import Definite

__all__ = ["ProportionalOdds"]

_STEPS, _HALVINGS, _ARMIJO = 100, 60, 1e-4
_LAST = 1e-14  # of the value: a Newton step that promises less is the last
_LEAST = 1e-280  # sums beside which an underflow is nothing


class ProportionalOdds:
    """f for given classes and weights.

    Parameters
    ----------
    codes : array of int of shape (N,)
        The classes, from 0; each has some weight.
    s : array of shape (N,)
        The weights, which sum to about one.
    """

    def __init__(self, codes: Indices, s: Vector) -> None:
        self.s, self.n_thresholds = s, int(codes.max())
        self.below, self.above = np.flatnonzero(codes < self.n_thresholds), np.flatnonzero(codes > 0)
        self.at_below, self.at_above = (
            codes[self.below],
            codes[self.above] - 1,
        )  # the thresholds above and below a sample
        totals = np.bincount(codes, weights=s)
        self.between = totals[1:-1]
        shares = np.cumsum(totals)[:-1] / totals.sum()
        self.shares, self.null = shares, -float(totals @ np.log(totals / totals.sum()))  # f of equal predictions
        self.known: Vector = np.log(shares / (1.0 - shares))  # where the next search for thresholds begins

    def levelled(self, u: Vector) -> Vector:
        """Return u less its mean, which moves the thresholds alone."""
        return np.asarray(u - float(self.s @ u) / float(self.s.sum()))

    def _margins(self, u: Vector, t: Vector) -> tuple[Vector, Vector]:
        """Return u - t for the thresholds above, and t - u for those below, of the samples that have one."""
        return u[self.below] - t[self.at_below], t[self.at_above] - u[self.above]

    def _by_threshold(self, below: Vector, above: Vector) -> Vector:
        """Return the weighted sums, for each threshold, of numbers of both kinds of terms."""
        n, s = self.n_thresholds, self.s
        sums = np.bincount(self.at_below, s[self.below] * below, minlength=n)
        return np.asarray(sums + np.bincount(self.at_above, s[self.above] * above, minlength=n))

    def value_at(self, u: Vector, t: Vector) -> float:
        """Return minus the log-likelihood at given thresholds; infinite where they are not ascending."""
        if np.any(np.diff(t) <= 0.0):
            return np.inf
        first, second = (np.logaddexp(0.0, z) for z in self._margins(u, t))
        gaps = float(self.between @ np.log(-np.expm1(-np.diff(t))))
        return float(self.s[self.below] @ first + self.s[self.above] @ second) - gaps

    def _slopes(self, u: Vector, t: Vector) -> tuple[Vector, Vector]:
        """Return gradient and Hessian in the thresholds."""
        p, q = (expit(z) for z in self._margins(u, t))
        gap = np.diff(t)
        pull, bend = self.between / np.expm1(gap), self.between / (4.0 * np.sinh(0.5 * gap) ** 2)
        g, M = self._by_threshold(-p, q), np.diag(self._by_threshold(p * (1.0 - p), q * (1.0 - q)))
        g[1:] -= pull
        g[:-1] += pull
        i = np.arange(len(gap))
        M[i, i] += bend
        M[i + 1, i + 1] += bend
        M[i, i + 1] -= bend
        M[i + 1, i] -= bend
        return g, M

    def thresholds(self, u: Vector) -> Vector:
        """Return the best thresholds, by Newton's method from those found last, or from quantiles where these are better."""
        t: Vector = self.known
        value = self.value_at(u, t)
        if not value <= self.null:
            spread = 1e-6 * (1.0 + float(np.abs(u).max())) * np.arange(self.n_thresholds)
            quantiles = np.quantile(u, self.shares) + spread
            if self.value_at(u, quantiles) < value:
                t, value = quantiles, self.value_at(u, quantiles)
        for _ in range(_STEPS):
            g, M = self._slopes(u, t)
            step = -Definite(M).solve(g)
            fall = -float(g @ step)
            if not fall > _LAST * value:  # the next step would be as small as rounding
                t = t + step if self.value_at(u, t + step) < np.inf else t
                break
            size, new = 1.0, self.value_at(u, t + step)
            for _ in range(_HALVINGS):
                if new <= value - _ARMIJO * size * fall:
                    break
                size *= 0.5
                new = self.value_at(u, t + size * step)
            if not new < value:
                break
            t, value = t + size * step, new
        self.known = t
        return t

    def value(self, u: Vector) -> float:
        """Return f at u."""
        return self.value_at(u, self.thresholds(u))

    def linear(self, u: Vector) -> Linear:
        r"""Return the gradient at u, and the constant that goes with it.

        p and q are numbers of float64, whatever they were computed from, so that entropies are off by a few units in their last
        place. What must sum to zero is off by a little: p, or q, times 1 - e would. That moves an entropy by no more than
        :math:`h(e) \le e (1 + \log(1/e))`, and the sums :math:`A_c` by no more than e times the sum of p, or q; G rises with both
        of its arguments, and is taken at smaller ones.
        """
        p, q = (expit(z) for z in self._margins(u, self.thresholds(u)))
        sp, sq = self.s[self.below] * p, self.s[self.above] * q
        total, other, n = fsum(sp.tolist()), fsum(sq.tolist()), len(self.s)
        if not min(total, other) > _LEAST:
            return Linear(self._pull(p, q), np.zeros(n), -np.inf)
        p, q = p * min(other / total, 1.0), q * min(total / other, 1.0)
        sp, sq = self.s[self.below] * p, self.s[self.above] * q
        total, other = fsum(sp.tolist()), fsum(sq.tolist())
        larger = max(total, other)
        off = (abs(total - other) + 8.0 * UNIT * larger) / larger
        sums = np.bincount(self.at_below, sp, minlength=self.n_thresholds)
        sums -= np.bincount(self.at_above, sq, minlength=self.n_thresholds)
        A = np.cumsum(sums)[:-1] - (4.0 * off + 2.0 * (n + self.n_thresholds) * UNIT) * larger
        S = self.between * (1.0 - 2.0 * n * UNIT)
        entropies = float(self.s[self.below] @ _entropy(p) + self.s[self.above] @ _entropy(q))
        if not (np.all(A > 0.0) and off < 0.1):
            return Linear(self._pull(p, q), np.zeros(n), -np.inf)
        gaps = float(np.sum(A * np.log1p(S / A) + S * np.log1p(A / S)))
        constant = (entropies + gaps) * (1.0 - (2.0 * n + 64.0) * UNIT) - 2.0 * off * (1.0 + np.log(1.0 / off))
        error = self._pull(p, -q) * (off + 8.0 * UNIT)
        return Linear(self._pull(p, q), error, float(constant))

    def _pull(self, p: Vector, q: Vector) -> Vector:
        """Return s (p - q) of each sample."""
        gradient = np.zeros(len(self.s))
        gradient[self.below] = p
        gradient[self.above] -= q
        return np.asarray(gradient * self.s)

    def hessian(self, u: Vector, X: Vector, diagonal: bool = False) -> Vector:
        """Return X' f''(u) X, or its diagonal: the curvature at fixed thresholds less what their moves take off it."""
        t = self.thresholds(u)
        p, q = (expit(z) for z in self._margins(u, t))
        E = np.zeros((len(u), self.n_thresholds))
        E[self.below, self.at_below] = self.s[self.below] * p * (1.0 - p)
        E[self.above, self.at_above] += self.s[self.above] * q * (1.0 - q)
        own, moved = E.sum(axis=1), X.T @ E
        taken = Definite(self._slopes(u, t)[1]).inverse() @ moved.T
        if diagonal:
            return np.asarray(own @ np.square(X) - np.einsum("jc,cj->j", moved, taken))
        return np.asarray((X * own[:, None]).T @ X - moved @ taken)


def _entropy(p: Vector) -> Vector:
    """Return -p log p - (1 - p) log(1 - p)."""
    inside = (p > 0.0) & (p < 1.0)
    r = np.where(inside, p, 0.5)
    return np.where(inside, -r * np.log(r) - (1.0 - r) * np.log1p(-r), 0.0)

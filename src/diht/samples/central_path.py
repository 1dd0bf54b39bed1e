"""The interior point method on a design: samples without weight are left out, signs of the targets turned as the kernel wants.

Of many samples most are on the same straight piece of the loss all the way. The mean of several has no more loss than they have on
average, and as much where all of them are on one piece: with samples put together the minimum is a lower bound, and those next to a
kink are the only ones that the method has to see one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diht.design.base import Design
from diht.design.step import Vector
from diht.losses import Pieces

__all__ = ["LONG", "EndOfPath", "central_path", "some_rows"]

Indices = NDArray[np.int64]

LONG = 10_000  # samples from which on a part of them is solved first
_PART, _NEAR = 5.0, 5.0  # rows of that part, in units of N^(2/3); samples near a kink, in those of N sqrt(k / part)
_ROUGH = 1e-3  # relative gap to which the part is solved: it is no nearer to all samples
_ROUNDED = 1e-12  # relative gap that rounding may leave
_MOST_ROUNDS = 5


class EndOfPath(NamedTuple):
    """The best model found, a lower bound on all models on the features, and the dual point behind it.

    Attributes
    ----------
    x, b : array, float
        Coefficients and intercept.
    bound : float
    alpha : (N,) array
        The dual variables; zero of samples without weight.
    """

    x: Vector
    b: float
    bound: float
    alpha: Vector


class _Turned(NamedTuple):
    """Features, one a row, beside targets, weights and signs, all turned so that F is one interval; and what is minimised."""

    X: Vector
    S: Vector  # of shape (3, N)
    pieces: Pieces
    lam: float
    fit_intercept: bool

    def solved(self, rtol: float) -> EndOfPath:
        """Follow the central path; the dual point is turned back."""
        from diht.samples.interior_point import SAMPLE_ROWS, interior_point

        S, x, alpha = np.empty((SAMPLE_ROWS, self.S.shape[1])), np.empty(len(self.X)), np.empty(self.S.shape[1])
        S[:3], (mu, low, high, _) = self.S, self.pieces
        X = np.ascontiguousarray(self.X)
        b, bound = interior_point(X, S, mu, low, high, self.lam, self.fit_intercept, rtol, x, alpha)
        return EndOfPath(x, b, bound, alpha)

    def some(self, rows: Indices) -> _Turned:
        """Return the problem of some samples, with all the weight."""
        S = self.S[:, rows]
        S[1] *= self.S[1].sum() / S[1].sum()
        return self._replace(X=self.X[:, rows], S=S)

    def residuals(self, x: Vector, b: float) -> Vector:
        """Return the turned predictions less the targets: zero at the kink."""
        y, _, turn = self.S
        return np.asarray(turn * (x @ self.X + b) - y)

    def value(self, x: Vector, r: Vector) -> float:
        """Return the objective, given the residuals; for a loss of straight pieces."""
        losses = np.where(r > 0.0, self.pieces.high * r, self.pieces.low * r)
        return float(self.S[1] @ losses) + 0.5 * self.lam * float(x @ x)

    def together(self, near: NDArray[np.bool_], above: NDArray[np.bool_]) -> tuple[_Turned, Indices]:
        """Put those together that are not near, one mean for each turn and each piece; return which sample is in which."""
        y, s, turn = self.S
        kind = 2 * (turn > 0.0) + above
        member = np.full(len(s), -1)
        columns, samples, n_near = [self.X[:, near]], [self.S[:, near]], int(np.count_nonzero(near))
        member[near] = np.arange(n_near)
        for each in range(4):
            weights = np.where(~near & (kind == each), s, 0.0)
            total = float(weights.sum())
            if total > 0.0:
                member[weights > 0.0] = n_near + len(columns) - 1
                columns.append((self.X @ weights / total)[:, np.newaxis])
                samples.append(np.array([[weights @ y / total], [total], [1.0 if each >= 2 else -1.0]]))
        return self._replace(X=np.hstack(columns), S=np.hstack(samples)), member

    def solved_near_kinks(self, rtol: float) -> EndOfPath | None:
        """Solve a part, then with the samples near kinks alone and the others together, until that is the solution of all.

        None where too many are near, rounding keeps the gap open, or it takes too many rounds.
        """
        k, n = self.X.shape
        rows = some_rows(n)
        n_near = int(_NEAR * n * np.sqrt(k / len(rows)))
        if n_near > 0.5 * n:
            return None
        x, b, *_ = self.some(rows).solved(_ROUGH)
        r, crossed = self.residuals(x, b), np.zeros(n, dtype=bool)
        for _ in range(_MOST_ROUNDS):
            size, above = np.abs(r), r > 0.0
            near = (size <= np.partition(size, n_near)[n_near]) | crossed
            fewer, member = self.together(near, above)
            x, b, bound, alpha = fewer.solved(0.5 * rtol)
            r = self.residuals(x, b)
            value, crossed = self.value(x, r), ~near & ((r > 0.0) != above)
            if value - bound <= max(rtol, _ROUNDED) * abs(value):
                return EndOfPath(x, b, bound, alpha[member])
            if not np.any(crossed):
                return None
        return None


def some_rows(n: int) -> Indices:
    """Return evenly spaced samples, as many as tell which pieces of the loss most of all n are on."""
    return np.linspace(0, n - 1, min(n, int(_PART * n ** (2.0 / 3.0)))).astype(np.int64)


def central_path(
    design: Design,
    pieces: Pieces,
    y: Vector,
    s: Vector,
    lam: float,
    fit_intercept: bool,
    rtol: float,
    offset: Vector | None = None,
) -> EndOfPath:
    """Minimise ``sum_i s_i l(x_i.w + b + o_i, y_i) + (lam/2) ||w||^2`` to a relative gap; for few features, l of these pieces."""
    X, seen = np.ascontiguousarray(design.toarray().T), np.flatnonzero(s)
    S = np.array([y[seen], s[seen], np.ones(len(seen))])
    if pieces.turned:
        S[2, S[0] < 0.0] = -1.0
        S[0] *= S[2]
    if offset is not None:  # the conjugate of l(u + o) is (y - o) a + (mu/2) a^2 on the same interval
        S[0] -= S[2] * offset[seen]
    problem = _Turned(X if len(seen) == len(y) else X[:, seen], S, pieces, lam, fit_intercept)
    end = problem.solved_near_kinks(rtol) if pieces.mu == 0.0 and len(seen) > LONG else None
    end = problem.solved(rtol) if end is None else end
    alpha = np.zeros(len(y))
    alpha[seen] = end.alpha
    return end._replace(alpha=alpha)

"""The interior point method on a design: samples without weight are left out, signs of the targets turned as the kernel wants.

Of many samples most are on the same straight piece of the loss all the way. The mean of several has no more loss than they have on
average, and as much where all of them are on one piece: with samples put together the minimum is a lower bound, and those next to a
kink are the only ones that the method has to see one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diht.design.base import Design
from diht.losses import Pieces
from diht.numerics.arrays import Indices, Vector

__all__ = [
    "KINDS",
    "LONG",
    "Condense",
    "EndOfPath",
    "Fewer",
    "Sides",
    "Turned",
    "central_path",
    "condensed",
    "near_kinks",
    "some_rows",
]

LONG = 10_000  # samples from which on a part of them is solved first
_PART, _NEAR = 5.0, 5.0  # rows of that part, in units of N^(2/3); samples near a kink, in those of N sqrt(k / part)
_ROUGH = 1e-3  # relative gap to which the part is solved: it is no nearer to all samples
_ROUNDED = 1e-12  # relative gap that rounding may leave
_MOST_ROUNDS = 5
KINDS = 4  # of samples that are put together: of either turn, on either piece


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


class Fewer(NamedTuple):
    """Samples of which many stand for few.

    Attributes
    ----------
    loss : float
        That of all of them at a model.
    new : int
        How many are near a kink for the first time.
    X, S : array
        Features, targets, weights and turns, as in `Turned`, of these, unless they are too many.
    means, weights : array
        The same of those put together.
    """

    loss: float
    new: int
    X: Vector
    S: Vector
    means: Vector
    weights: Vector


Condense = Callable[[Vector, float], list[Fewer]]  # what stands for the samples of each block around a model


class Sides(NamedTuple):
    """Which samples have been near a kink, in the order in which they came, -1 for the others; and the sides of these, at first."""

    order: Indices
    kind: Indices

    def spread(self, alpha: Vector) -> Vector:
        """Return the dual variables of all samples from those of the few."""
        far = self.order < 0
        place = np.cumsum(np.bincount(self.kind[far], minlength=KINDS) > 0) - 1
        return np.asarray(alpha[np.where(far, int(self.order.max(initial=-1)) + 1 + place[self.kind], self.order)])


class Turned(NamedTuple):
    """Features, one a row, beside targets, weights and signs, all turned so that F is one interval; and what is minimised."""

    X: Vector
    S: Vector  # of shape (3, N)
    pieces: Pieces
    lam: float
    fit_intercept: bool

    @classmethod
    def of(
        cls, design: Design, y: Vector, s: Vector, pieces: Pieces, lam: float = 0.0, fit_intercept: bool = False
    ) -> tuple[Turned, Indices]:
        """Return the samples that have a weight, and which they are."""
        X, seen = np.ascontiguousarray(design.toarray().T), np.flatnonzero(s)
        S = np.array([y[seen], s[seen], np.ones(len(seen))])
        if pieces.turned:
            S[2, S[0] < 0.0] = -1.0
            S[0] *= S[2]
        return cls(X if len(seen) == len(y) else X[:, seen], S, pieces, lam, fit_intercept), seen

    def solved(self, rtol: float) -> EndOfPath:
        """Follow the central path; the dual point is turned back."""
        from diht.samples.interior_point import SAMPLE_ROWS, interior_point

        S, x, alpha = np.empty((SAMPLE_ROWS, self.S.shape[1])), np.empty(len(self.X)), np.empty(self.S.shape[1])
        S[:3], (mu, low, high, _) = self.S, self.pieces
        X = np.ascontiguousarray(self.X)
        b, bound = interior_point(X, S, mu, low, high, self.lam, self.fit_intercept, rtol, x, alpha)
        return EndOfPath(x, b, bound, alpha)

    def some(self, rows: Indices) -> Turned:
        """Return the problem of some samples, with all the weight."""
        S = self.S[:, rows]
        S[1] *= self.S[1].sum() / S[1].sum()
        return self._replace(X=self.X[:, rows], S=S)

    def residuals(self, x: Vector, b: float) -> Vector:
        """Return the turned predictions less the targets: zero at the kink."""
        y, _, turn = self.S
        return np.asarray(turn * (x @ self.X + b) - y)

    def loss(self, r: Vector) -> float:
        """Return that of straight pieces, given the residuals."""
        return float(self.S[1] @ np.where(r > 0.0, self.pieces.high * r, self.pieces.low * r))

    def together(self, far: NDArray[np.bool_], kind: Indices) -> tuple[Vector, Vector]:
        """Return the means of some samples, one for each turn and each piece, and what is as long as the samples of these."""
        (y, s, _), columns, samples = self.S, [np.empty((len(self.X), 0))], [np.empty((3, 0))]
        for each in range(KINDS):
            weights = np.where(far & (kind == each), s, 0.0)
            total = float(weights.sum())
            if total > 0.0:
                columns.append((self.X @ weights / total)[:, np.newaxis])
                samples.append(np.array([[weights @ y / total], [total], [1.0 if each >= 2 else -1.0]]))
        return np.hstack(columns), np.hstack(samples)

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
        sides: list[Sides] = []

        def condense(x: Vector, b: float) -> list[Fewer]:
            found, fewer = condensed(self, sides[-1] if sides else None, x, b, n_near, n)
            sides.append(found)
            return [fewer]

        end, _, solved = near_kinks(condense, self.pieces, (self.lam, self.fit_intercept), (x, b), rtol, n)
        return end._replace(alpha=sides[-2].spread(end.alpha)) if solved else None


def condensed(turned: Turned, sides: Sides | None, x: Vector, b: float, n_near: int, most: int) -> tuple[Sides, Fewer]:
    """Put the samples together that have not been near a kink: at first that is near which is nearest, then what crosses one.

    Of more than `most` new ones none is returned.
    """
    r = turned.residuals(x, b)
    above = r > 0.0
    if sides is None:
        n_near, n = min(n_near, len(r)), len(r)
        new = np.sort(np.argpartition(np.abs(r), n_near - 1)[:n_near]) if 0 < n_near < n else np.arange(n_near)
        sides = Sides(np.full(n, -1), 2 * (turned.S[2] > 0.0) + above)
    else:
        new = np.flatnonzero((sides.order < 0) & (above != sides.kind % 2))
    n_new, new = len(new), new[: len(new) if len(new) <= most else 0]
    order = sides.order.copy()
    order[new] = int(order.max(initial=-1)) + 1 + np.arange(len(new))
    means = turned.together(order < 0, sides.kind)
    return Sides(order, sides.kind), Fewer(turned.loss(r), n_new, turned.X[:, new], turned.S[:, new], *means)


def near_kinks(
    condense: Condense,
    pieces: Pieces,
    penalty: tuple[float, bool],
    start: tuple[Vector, float],
    rtol: float,
    most: int,
) -> tuple[EndOfPath, float, bool]:
    """Solve the problem of few samples for many until none of those put together leaves its piece of the loss.

    Parameters
    ----------
    condense : callable
        Returns, for the blocks of samples, what stands for them around a model.
    pieces : Pieces
        Of the loss, straight ones.
    penalty : tuple
        lam, and whether there is an intercept.
    start : tuple
        A model.
    rtol : float
        Relative gap.
    most : int
        Samples near kinks: where there are more, this is not the way.

    Returns
    -------
    tuple
        The best model, with the last bound and the dual point of the few behind it; its objective; and whether that is within
        `rtol` of the least.
    """
    lam, (x, b) = penalty[0], start
    parts: list[list[Fewer]] = []  # of each round
    now, value = EndOfPath(x, b, -np.inf, np.empty(0)), np.inf
    for _ in range(_MOST_ROUNDS + 1):
        parts.append(condense(now.x, now.b))
        own = sum(part.loss for part in parts[-1]) + 0.5 * lam * float(now.x @ now.x)
        if own < value:
            x, b, value = now.x, now.b, own
        if value - now.bound <= max(rtol, _ROUNDED) * abs(value):
            return now._replace(x=x, b=b), value, True
        if not sum(part.new for part in parts[-1]) or sum(part.new for some in parts for part in some) > most:
            break
        X = np.hstack([part.X for some in parts for part in some] + [part.means for part in parts[-1]])
        S = np.hstack([part.S for some in parts for part in some] + [part.weights for part in parts[-1]])
        now = Turned(X, S, pieces, *penalty).solved(0.5 * rtol)
    return now._replace(x=x, b=b), value, False


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
    problem, seen = Turned.of(design, y, s, pieces, lam, fit_intercept)
    if offset is not None:  # the conjugate of l(u + o) is (y - o) a + (mu/2) a^2 on the same interval
        problem.S[0] -= problem.S[2] * offset[seen]
    end = problem.solved_near_kinks(rtol) if pieces.mu == 0.0 and len(seen) > LONG else None
    end = problem.solved(rtol) if end is None else end
    alpha = np.zeros(len(y))
    alpha[seen] = end.alpha
    return end._replace(alpha=alpha)

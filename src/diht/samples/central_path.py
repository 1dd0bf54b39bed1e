"""The interior point method on a design: samples without weight are left out, signs of the targets turned as the kernel wants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diht.design.base import Design
from diht.design.step import Vector
from diht.losses import Pieces

__all__ = ["EndOfPath", "central_path"]


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
    from diht.samples.interior_point import SAMPLE_ROWS, interior_point

    X, seen = design.toarray().T, np.flatnonzero(s)
    S = np.empty((SAMPLE_ROWS, len(seen)))
    S[0], S[1], S[2] = y[seen], s[seen], 1.0
    if pieces.turned:
        S[2, S[0] < 0.0] = -1.0
        S[0] *= S[2]
    if offset is not None:  # the conjugate of l(u + o) is (y - o) a + (mu/2) a^2 on the same interval
        S[0] -= S[2] * offset[seen]
    x, alpha = np.empty(len(X)), np.empty(len(seen))
    X = np.ascontiguousarray(X if len(seen) == len(y) else X[:, seen])
    b, bound = interior_point(X, S, pieces.mu, pieces.low, pieces.high, lam, fit_intercept, rtol, x, alpha)
    point = np.zeros(len(y))
    point[seen] = alpha
    return EndOfPath(x, b, bound, point)

"""Safe upper bounds on the largest singular value."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from diht.design.base import Design, Index
from diht.design.step import Step, Vector
from diht.design.view import AffineView

# Relative margin for the rounding of the computed bounds.
MARGIN = 1e-10


def spectral_bound(design: Design, s: ArrayLike, rows: Index | None = None) -> float:
    r"""Bound :math:`\sigma_{\max}(\mathrm{diag}(\sqrt s) X)^2`, the largest eigenvalue of :math:`X^\top \mathrm{diag}(s) X`."""
    s = np.asarray(s, dtype=np.float64)
    chosen = s if rows is None else s[rows]
    norms = design.row_norms_sq() if rows is None else design.row_norms_sq()[rows]
    return float(chosen @ norms) * (1.0 + MARGIN)

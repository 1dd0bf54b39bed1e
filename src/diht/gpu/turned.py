"""Samples on a device around the kinks of a loss of straight pieces: few of them come to the host, and means of the others."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch

from diht.gpu.matrix import as_numpy
from diht.losses import Pieces
from diht.numerics.arrays import Vector
from diht.samples.central_path import KINDS, Fewer

__all__ = ["TurnedThere"]

Tensor: TypeAlias = Any  # torch.Tensor


class TurnedThere:
    """What `diht.samples.central_path` has as `Turned`, `Sides` and `condensed`, of a dense X on a device.

    Parameters
    ----------
    X : Tensor of shape (N, k)
    y, s : Tensor of shape (N,)
        Targets and weights; samples without weight are left out.
    pieces : Pieces
    n_near, most : int
        How many samples are near a kink at first; where more become so at once, none is returned.
    """

    def __init__(self, X: Tensor, y: Tensor, s: Tensor, pieces: Pieces, n_near: int, most: int) -> None:
        seen = torch.nonzero(s)[:, 0]
        if len(seen) < len(s):
            X, y, s = X[seen], y[seen], s[seen]
        turn = torch.where((y < 0.0) & pieces.turned, -1.0, 1.0).to(y.dtype)
        self.X, self.S, self._pieces = X, torch.stack([turn * y, s, turn]), pieces
        self._n_near, self._most = min(n_near, len(y)), most
        self._far: Tensor = None  # whether a sample has never been near a kink
        self._kind: Tensor = None  # twice its turn, and its side, at first

    def __call__(self, x: Vector, b: float) -> list[Fewer]:
        """Put the samples together that have not been near a kink: at first the nearest are near, then those that cross one."""
        y, s, turn = self.S
        r = turn * (self.X @ torch.from_numpy(x).to(self.X.device) + float(b)) - y
        above = r > 0.0
        loss = s @ torch.where(above, self._pieces.high * r, self._pieces.low * r)
        if self._kind is None:
            self._kind, self._far = 2 * (turn > 0.0) + above.to(torch.int64), torch.ones_like(above)
            new = torch.argsort(r.abs(), stable=True)[: self._n_near].sort().values
        else:
            new = torch.nonzero(self._far & (above != self._kind % 2))[:, 0]
        n_new, new = len(new), new[: len(new) if len(new) <= self._most else 0]
        self._far[new] = False
        kinds = torch.arange(KINDS, device=s.device)[:, None]
        shares = torch.where(self._far & (self._kind == kinds), s, 0.0)
        totals = shares.sum(1)
        full = totals > 0.0
        shares, totals = shares[full] / totals[full, None], totals[full]
        sides = torch.where(kinds[full, 0] >= 2, 1.0, -1.0).to(s.dtype)
        weights = torch.stack([shares @ y, totals, sides])
        found = self.X[new].T, self.S[:, new], (shares @ self.X).T, weights
        return [Fewer(float(loss), n_new, *map(as_numpy, found))]

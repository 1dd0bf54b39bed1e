"""Samples on a device: vectors are tensors there, and solvers see handles, numbers of the features and small matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch

from diht.design import DenseDesign, DualState, Step
from diht.design.base import SMALLEST, UNIT, gamma
from diht.design.gram import Gram, PreciseGram, Products, gram_of
from diht.design.scatter import Scatter
from diht.design.spectral import bound_of
from diht.gpu.arrays import DeviceArray, fetched, pairwise_sum
from diht.gpu.columns import DeviceColumns, DeviceView
from diht.gpu.lines import DeviceLines
from diht.gpu.matrix import Dense, Matrix, as_numpy, on_device
from diht.gpu.turned import TurnedThere
from diht.losses import Loss, Pieces
from diht.numerics import exact
from diht.numerics.arrays import Indices, Vector
from diht.numerics.definite import Definite
from diht.samples.base import Chosen, Rows, Samples
from diht.samples.central_path import Condense
from diht.samples.distant import Distant, WeightedThere
from diht.samples.memory import MemorySamples
from diht.samples.newton import Look
from diht.samples.partition import Blocks, make_blocks
from diht.samples.remote import labelled, ranks_of

__all__ = ["TorchSamples"]

T = TypeVar("T")
Tensor: TypeAlias = Any  # torch.Tensor

_RIDGE = 2_000  # features up to which a system of all of them is solved
_BLOCK = 65_536  # rows whose products are added up first: the error of a sum grows with the number of its terms
_FEW = 0.1  # share of the columns up to which they alone are read: eight entries of a row are loaded together
_REMEMBERED = 3  # vectors whose product with X' is kept: bounds, screening and certificates ask for it again
_NO_INDEX: Indices = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ChosenOnDevice(Chosen):
    """Samples by their indices, ascending."""

    indices: Tensor

    @property
    def size(self) -> int:
        """Their number."""
        return len(self.indices)

    def values(self, rows: Rows) -> Vector:
        """Return their entries of a vector."""
        return as_numpy(rows.tensor[self.indices])

    def rows_of(self, samples: TorchSamples) -> Vector:
        """Return their rows of X."""
        return as_numpy(samples.dense_rows(self.indices))

    def first(self, most: int) -> ChosenOnDevice:
        """Return the first of them."""
        return ChosenOnDevice(self.indices[:most])

    def patched(self, rows: Rows, values: Vector) -> Rows:
        """Return a copy of a vector with other entries of theirs."""
        rows = rows.copy()
        rows.tensor[self.indices] = on_device(np.asarray(values, dtype=np.float64), rows.tensor.device)
        return rows


@dataclass(frozen=True, eq=False)
class DeviceCurvatures:
    """A Hessian row by row."""

    samples: TorchSamples
    c: Tensor
    center: Vector | None

    def gram_rows(self, chosen: Indices) -> Vector:
        """Return some rows."""
        return self.samples.products(self.c, self.center, chosen)

    def gram_diagonal(self) -> Vector:
        """Return the diagonal."""
        return self.samples.spread_about(self.c, self.center)

    def charge(self, design: Any) -> None:
        """Count a read of the columns."""
        design.count(1.0)


@dataclass(frozen=True, eq=False)
class _Weighted(WeightedThere):
    """Those on a device."""

    samples: TorchSamples
    rows: Tensor | None

    @property
    def shape(self) -> tuple[int, int]:
        """The number of the rows, and of the columns."""
        return self.samples.size if self.rows is None else len(self.rows), self.samples.design.shape[1]

    @property
    def _s(self) -> Tensor:
        s = self.samples.s.tensor
        return s if self.rows is None else s[self.rows]

    def total(self) -> float:
        """Return the sum of the weights."""
        return float(self._s.sum())

    def squares(self) -> float:
        """Return ``sum_i s_i ||x_i||^2``."""
        norms = self.samples.row_norms_sq.tensor
        return float(self._s @ (norms if self.rows is None else norms[self.rows]))

    def is_nonnegative(self) -> bool:
        """Whether no stored entry is negative."""
        return self.samples.matrix.is_nonnegative()

    def sums(self) -> Vector:
        """Compute ``X's``, not centred."""
        g = as_numpy(self.samples.matrix.rmatvec(self._s, self.rows))
        return g if self.scale is None else g / self.scale

    def normal_product(self, z: Vector, centred: bool = True) -> Vector:
        """Compute ``X' diag(s) X z``."""
        samples = self.samples
        samples.design.count(1.0)
        raw, shift = samples.raw(z)
        u = samples.matrix.matvec(on_device(raw, samples.device), self.rows)
        c = self._s * (u - shift if centred else u)
        g, total = samples.matrix.rmatvec(c, self.rows), float(c.sum())
        return samples.back(as_numpy(g), total, centred)

    def gram(self) -> Vector:
        """Compute ``X' diag(s) X``."""
        if self.rows is None:
            return self.samples.products(self._s, None)
        Z = self.samples.dense_rows(self.rows)
        return as_numpy((Z * self._s[:, None]).T @ Z)


class TorchSamples(Distant):
    """A matrix on a device with its targets and weights.

    Parameters
    ----------
    design : DeviceColumns or DeviceView
        What is known of the columns; its base has the matrix.
    y, s : DeviceArray
        The targets and the weights, in float64.
    """

    here = False

    def __init__(self, design: DeviceColumns | DeviceView, y: Rows, s: Rows) -> None:
        self.design: Any = design
        self.y, self.s = y, s
        self.matrix: Matrix = design.base.matrix
        self.device = self.matrix.device
        self._pulls: list[tuple[Tensor, int, Vector]] = []  # vectors, how often they were changed, and what they gave

    @classmethod
    def of(cls, matrix: Matrix, y: Tensor, s: Tensor) -> TorchSamples:
        """Take a matrix with its targets and weights."""
        return cls(DeviceColumns(matrix), DeviceArray(y), DeviceArray(s))

    def __reduce__(self) -> Any:
        raise TypeError("samples that live on a device cannot be sent or stored")

    @property
    def rough_hessians(self) -> bool:  # type: ignore[override]
        """Whether they are not few, and on a GPU."""
        return bool(self.design.is_fast)

    # The view of the matrix

    @property
    def center_of(self) -> Vector | None:
        """What is subtracted from the columns on the way."""
        return getattr(self.design, "center", None)

    @property
    def scale_of(self) -> Vector | None:
        """What the columns are divided by on the way."""
        return getattr(self.design, "scale", None)

    @property
    def zeros_of(self) -> Indices:
        """Columns that are constant and equal to their center."""
        return getattr(self.design, "zeros", _NO_INDEX)

    def raw(self, w: Vector) -> tuple[Vector, float]:
        """Return coefficients of the columns as they are stored, and their product with the centres."""
        w = np.asarray(w, dtype=np.float64)
        if self.scale_of is not None:
            w = w / self.scale_of
        return w, 0.0 if self.center_of is None else float(self.center_of @ w)

    def back(self, g: Vector, total: float, centred: bool = True) -> Vector:
        """Turn products with the columns as they are stored, in place, into those with the columns; `total` is of the factors."""
        if self.center_of is not None and centred:
            g -= self.center_of * total
            g[self.zeros_of] = 0.0  # exactly: a constant column must never be selected
        if self.scale_of is not None:
            g /= self.scale_of
        return g

    def _on_device(self, values: Vector | None) -> Tensor | None:
        return None if values is None else on_device(values, self.device)

    def dense_rows(self, rows: Any) -> Tensor:
        """Return some rows, dense, in float64, centred and scaled."""
        Z = self.matrix.dense_rows(rows)
        if self.center_of is not None:
            Z -= self._on_device(self.center_of)
            Z[:, on_device(self.zeros_of, self.device)] = 0.0
        if self.scale_of is not None:
            Z /= self._on_device(self.scale_of)
        return Z

    @cached_property
    def row_norms_sq(self) -> DeviceArray:
        """Squared Euclidean norms of the rows."""
        self.design.count(1.0)
        return DeviceArray(self.matrix.row_spread(self._on_device(self.center_of), self._on_device(self.scale_of)))

    # Functions of the samples

    def each(self, f: Callable[..., T], *rows: Rows) -> list[T]:
        """Return ``f(y, s, *rows)`` of the one block that there is, brought here."""
        return [fetched(f(self.y, self.s, *rows))]

    def map(self, f: Callable[..., Any], *rows: Rows) -> Rows:
        """Return ``f(y, s, *rows)``."""
        found = f(self.y, self.s, *rows)
        return found if isinstance(found, DeviceArray) else np.full_like(self.y, found)

    def map_in_memory(self, f: Callable[..., Any], *rows: Rows) -> Rows:
        """Do so on the host."""
        return self.put(f(*map(self.fetch, (self.y, self.s, *rows))))

    def ranks(self, labels: Rows, n_labels: int) -> tuple[Rows, Indices, Indices]:
        """Return the number of each sample among those with its label, from 0; how many have each, and the first of them."""
        values, runs = self.fetch(labels), [(0, self.size)]
        counts, firsts = labelled(self, values, n_labels, runs)
        return self.put(ranks_of(self, values, runs, np.zeros_like(counts))), counts[0], firsts[0]

    def scatter(self, s: Rows) -> Scatter:
        """Return the sums of products of the columns and the targets, with these weights."""
        c, d = s.tensor, self.design.shape[1]
        total = float(pairwise_sum(c))
        if total == 0.0:
            return Scatter(0.0, np.zeros(d + 1), np.zeros((d + 1, d + 1)))
        self.design.count(2.0)
        mean = torch.cat([self.matrix.rmatvec(c), (c @ self.y.tensor)[None]]) / total
        matrix = torch.zeros((d + 1, d + 1), dtype=torch.float64, device=self.device)
        for rows in self.matrix.chunks(d + 1, most=_BLOCK):
            Z = torch.cat([self.matrix.dense_rows(rows), self.y.tensor[rows, None]], 1)
            Z -= mean
            Z *= c[rows, None].sqrt()
            matrix.addmm_(Z.T, Z)
        return Scatter.of_sums(total, as_numpy(mean), as_numpy(matrix), self.size)

    def asked(self, f: Callable[..., Any], loss: Loss, rows: Rows, at: Any) -> list[Any]:
        """Return ``f(samples, loss, rows, at)``, brought here."""
        return [fetched(f(self, loss, rows, at))]

    def with_targets(self, y: Rows) -> TorchSamples:
        """Return the same samples with other targets."""
        return TorchSamples(self.design, y, self.s)

    def with_weights(self, s: Rows) -> TorchSamples:
        """Return the same samples with other weights."""
        return TorchSamples(self.design, self.y, s)

    def affine(self, center: Vector | None, scale: Vector | None, zeros: Indices) -> TorchSamples:
        """Return the same samples with their columns centred and scaled on the way."""
        return TorchSamples(DeviceView(self.design.base, center, scale, zeros), self.y, self.s)

    def put(self, values: Vector) -> Rows:
        """Bring N numbers to the device."""
        return DeviceArray(on_device(np.asarray(values, dtype=np.float64), self.device))

    def fetch(self, rows: Rows) -> Vector:
        """Return all the numbers of a vector."""
        return as_numpy(rows.tensor)

    def holds(self, rows: Rows) -> bool:
        """Tell whether something is a vector of these samples, or of others that are as many on the same device."""
        return isinstance(rows, DeviceArray) and rows.shape == self.y.shape and rows.tensor.device == self.device

    def chosen(self, f: Callable[..., Any], *rows: Rows) -> ChosenOnDevice:
        """Choose the samples for which ``f(y, s, *rows)`` is true."""
        return ChosenOnDevice(torch.nonzero(f(self.y, self.s, *rows).tensor)[:, 0])

    # Newton's method on few features

    def look(self, loss: Loss, u: Rows, centred: bool) -> Look:
        """Return the loss of some margins with its derivatives."""
        a, h = loss.derivative(u, self.y), loss.second_derivative(u, self.y)
        value, slope, weight = fetched((self.s @ loss.value(u, self.y), self.s @ a, self.s @ h))
        mean = self.pull(h) / weight if centred and weight > 0.0 else np.zeros(self.design.shape[1])
        hessian = self.products(self.s.tensor * h.tensor, mean if centred else None)
        return Look.of(value, slope, self.pull(a), weight, mean, hessian)

    def _condensing(self, pieces: Pieces, n_near: int, most: int) -> Condense:
        """Return what condenses the samples around models, there."""
        return TurnedThere(self.dense_rows(slice(None)), self.y.tensor, self.s.tensor, pieces, n_near, most)

    # Parts of the samples

    def partition(self, blocks: Blocks, rng: np.random.Generator) -> list[Rows]:
        """Return the indices of each part, on the device."""
        return [on_device(part, self.device) for part in make_blocks(blocks, self.size, rng)]

    def weight(self, part: Rows) -> float:
        """Return the sum of the weights of a part."""
        return float(pairwise_sum(self.s.tensor[part]))

    def taken(self, part: Rows) -> MemorySamples:
        """Return the samples of a part, in the host's memory, with X dense."""
        s = as_numpy(self.s.tensor[part])
        return MemorySamples(DenseDesign(as_numpy(self.dense_rows(part))), as_numpy(self.y.tensor[part]), s / s.sum())

    def columns(self, features: Indices) -> TorchSamples:
        """Return the samples of some features alone, on a compact copy of them."""
        features = np.asarray(features, dtype=np.int64)
        self.design.count(self.design.fraction(features))
        own = self.design.base
        base = DeviceColumns(self.matrix.columns(on_device(features, self.device)), own.roundings, own.is_fast)
        if not isinstance(self.design, DeviceView):
            return TorchSamples(base, self.y, self.s)
        center, scale = (None if v is None else v[features] for v in (self.design.center, self.design.scale))
        view = DeviceView(base, center, scale, np.flatnonzero(np.isin(features, self.design.zeros)))
        return TorchSamples(view, self.y, self.s)

    def lines(self, features: Indices, beside: Samples, whole: bool = False) -> DeviceLines:
        """Return the whole columns of some features, dense."""
        assert isinstance(beside, TorchSamples)
        own, other = self.columns(features).dense_rows(slice(None)), beside.dense_rows(slice(None))
        return DeviceLines(own, other, self.y, self.s)

    def formed(self) -> TorchSamples:
        """Return the samples with X dense, in float64, centred and scaled; sparse columns as they are."""
        if self.matrix.is_sparse:
            return self
        dense = Dense(self.dense_rows(slice(None)))
        return TorchSamples(DeviceColumns(dense, 2, self.design.is_fast), self.y, self.s)

    # Products with X

    def margins(self, w: Vector, b: float = 0.0, support: Indices | None = None) -> Rows:
        """Compute ``X w + b``."""
        raw, shift = self.raw(w)
        support = np.flatnonzero(raw) if support is None else np.asarray(support, dtype=np.int64)
        share = self.design.fraction(support)
        few = share <= _FEW and not (self.matrix.is_sparse or self.matrix.is_far)
        self.design.count(share if few else 1.0)
        if not len(support):
            u = torch.zeros_like(self.s.tensor)
        elif few:
            u = self.matrix.matvec_of(on_device(support, self.device), on_device(raw[support], self.device))
        else:
            u = self.matrix.matvec(on_device(raw, self.device))
        return DeviceArray(u.add_(float(b) - shift))

    def pull(self, alpha: Rows) -> Vector:
        """Compute ``X'(s alpha)``; that of the last vectors is known."""
        for known, version, g in self._pulls:
            if known is alpha.tensor and version == known._version:
                return g.copy()
        g = self._pull(alpha.tensor)
        self._pulls = [(alpha.tensor, alpha.tensor._version, g), *self._pulls[: _REMEMBERED - 1]]
        return g.copy()

    def _pull(self, alpha: Tensor) -> Vector:
        c = self.s.tensor * alpha
        g = self.design.base.first_product(c)
        if g is None:
            self.design.count(1.0)
            g = self.matrix.rmatvec(c)
        if self.center_of is None:
            return self.back(as_numpy(g), 0.0)
        both = as_numpy(torch.cat([g, pairwise_sum(c)[None]]))
        return self.back(both[:-1], float(both[-1]))

    def copy(self, rows: Rows) -> Rows:
        """Return a vector that does not change when the other one does; what its product with X' is remains known."""
        new = super().copy(rows)
        known = [g for tensor, version, g in self._pulls if tensor is rows.tensor and version == tensor._version]
        if known:
            self._pulls = [(new.tensor, new.tensor._version, known[0]), *self._pulls[: _REMEMBERED - 1]]
        return new

    def margins_and_pull(self, w: Vector, alpha: Rows) -> tuple[Rows, Vector]:
        """Compute ``X w`` and ``X'(s alpha)``."""
        return self.margins(w), self.pull(alpha)

    def step(self, step: Step, w: Vector, b: float, dual: DualState, part: Rows | None = None) -> float:
        """Update dual variables, and g with them; a part is a tensor of indices."""
        at = slice(None) if part is None else part
        raw, shift = self.raw(w)
        self.design.count(1.0 if part is None else len(part) / self.size)
        if part is None:
            margins = self.margins(w, b, np.flatnonzero(w)).tensor
            self.design.count(1.0 - self.design.fraction(np.flatnonzero(w)))
        else:
            margins = self.matrix.matvec(on_device(raw, self.device), part) + (float(b) - shift)
        old = dual.alpha.tensor[at]
        given: tuple[Any, ...] = DeviceArray(old), DeviceArray(margins), DeviceArray(self.y.tensor[at])
        found: Any = step(*given)
        new = found.tensor
        c = self.s.tensor[at] * (new if step.fresh else new - old)
        total = float(pairwise_sum(c))
        change = self.back(as_numpy(self.matrix.rmatvec(c, part)), total)
        if step.store:
            dual.alpha.tensor[at] = new
        if dual.u is not None:
            dual.u.tensor[at] = margins
        dual.g[:] = change if step.fresh else dual.g + change
        return total

    def spectral_bound(self, part: Rows | None = None) -> float:
        """Return an upper bound on the largest eigenvalue of ``X' diag(s) X``, over a part of the samples or all."""
        return bound_of(_Weighted(self, part)) if part is None or len(part) else 0.0

    def largest_square(self) -> float:
        """Return ``max_i s_i ||x_i||^2``."""
        return float((self.s * self.row_norms_sq).max())

    def square_sum(self, part: Rows) -> float:
        """Return ``sum_i s_i ||x_i||^2`` over a part of the samples."""
        return float((self.s.tensor[part] * self.row_norms_sq.tensor[part]).sum())

    def extent(self, W: Vector, b: Vector) -> Vector:
        """Return the largest margin, in size, of each of several models."""
        models, shifts, found = self._on_device(W), self._on_device(b), np.zeros(W.shape[1])
        for rows in self.matrix.chunks():
            found = np.maximum(found, as_numpy((self.dense_rows(rows) @ models + shifts).abs().amax(0)))
        return found

    def largest_entries(self) -> Vector:
        """Return the largest entry, in size, of every column."""
        found = np.zeros(self.design.shape[1])
        for rows in self.matrix.chunks():
            found = np.maximum(found, as_numpy(self.dense_rows(rows).abs().amax(0)))
        return found

    def gram(self, features: Indices, centred: bool, known: Gram | None = None) -> Gram:
        """Compute the Gram matrix of some columns and the targets."""
        total = float(pairwise_sum(self.s.tensor))
        level = float(self.s @ self.y) / total if centred else 0.0
        new = 0 if known is None else len(known.features)
        everything = np.array_equal(features, np.arange(self.design.shape[1]))
        part = self if everything else self.columns(features)
        self.design.count(self.design.fraction(features))
        return gram_of(part._sums(self.y.tensor - level, new), features, None, total if centred else None, known)

    def _sums(self, target: Tensor, new: int) -> Products:
        """Products of all columns with those from `new` on, and with the target, of columns as they are centred and scaled."""
        d = self.design.shape[1]
        columns = torch.zeros((d + 1, d + 1 - new), dtype=torch.float64, device=self.device)
        own, left = (torch.zeros(d + 1, dtype=torch.float64, device=self.device) for _ in range(2))
        root, blocks, longest = self.s.tensor.sqrt(), 0, 1
        for rows in self.matrix.chunks(most=_BLOCK):
            Z = torch.cat([self.dense_rows(rows), target[rows, None]], 1)
            Z *= root[rows, None]
            columns += Z.T @ Z[:, new:]
            own += Z.square().sum(0)
            left += root[rows] @ Z
            blocks, longest = blocks + 1, max(longest, rows.stop - rows.start)
        K, squares = as_numpy(columns), as_numpy(own)
        return Products(K[:, :-1], K[:, -1].copy(), squares, as_numpy(left), False, longest + blocks + 32)

    def precise_gram(self, centred: bool) -> PreciseGram | None:
        """Return None: sums on a device are not in twice the precision."""
        return None

    def ridge(self, lam: float, centred: bool) -> Vector | None:
        """Minimise the squared error plus a ridge by the system of the features; None where they are many."""
        if self.design.shape[1] > _RIDGE:
            return None
        r = self.shifted(self.y, -self.mean(self.y)) if centred else self.y
        K = self.products(self.s.tensor, None)
        K[np.diag_indices(len(K))] += lam
        with np.errstate(all="ignore"):
            w = Definite(K).solve(self.pull(r))
        return w if np.all(np.isfinite(w)) else None

    def moments(self, h: Rows) -> tuple[Vector, Vector]:
        """Mean and variance of every column under the weights ``s_i h_i``, divided by their sum."""
        c, d = self.s.tensor * h.tensor, self.design.shape[1]
        total = float(pairwise_sum(c))
        if not total > 0.0:
            return np.zeros(d), np.zeros(d)
        c = c / total
        self.design.count(2.0)
        center = self.matrix.rmatvec(c)
        mean, variance = as_numpy(center), np.maximum(as_numpy(self.matrix.column_spread(c, center)), 0.0)
        if self.center_of is not None:
            mean = mean - self.center_of
        if self.scale_of is not None:
            mean, variance = mean / self.scale_of, variance / self.scale_of**2
        return mean, variance

    def spread_about(self, c: Tensor, center: Vector | None) -> Vector:
        """Compute ``sum_i c_i (x_ij - center_j)^2``, or that of the squares, for every column j."""
        raw = self.center_of
        if center is not None:
            own = center if self.scale_of is None else center * self.scale_of
            raw = own if raw is None else own + raw
        spread = as_numpy(self.matrix.column_spread(c, self._on_device(raw)))
        spread[self.zeros_of] = 0.0
        return spread if self.scale_of is None else spread / self.scale_of**2

    def curvature(self, h: Rows, centred: bool) -> DeviceCurvatures:
        """Return what gives ``X' diag(s h) X`` row by row."""
        return DeviceCurvatures(self, self.s.tensor * h.tensor, self.center(h) if centred else None)

    def hessian(self, h: Rows, centred: bool) -> Vector:
        """Compute ``X' diag(s h) X``, X centred by these weights where an intercept is eliminated."""
        return self.products(self.s.tensor * h.tensor, self.center(h) if centred else None)

    def products(self, c: Tensor, center: Vector | None, chosen: Indices | None = None) -> Vector:
        """Compute ``(X - 1 m')' diag(c) (X - 1 m')`` for a center m, or without one; all rows of it or some."""
        self.design.count(1.0)
        d, about = self.design.shape[1], self._on_device(center)
        half = d // 2
        at = slice(None) if chosen is None else on_device(np.asarray(chosen, dtype=np.int64), self.device)
        total = torch.zeros((d if chosen is None else len(chosen), d), dtype=torch.float64, device=self.device)
        plain = self.center_of is None and self.scale_of is None and isinstance(self.matrix, Dense)
        for rows in self.matrix.chunks():
            Z = self.matrix.X[rows].to(torch.float64) if plain else self.dense_rows(rows)  # type: ignore[attr-defined]
            Z = Z if about is None else Z - about
            weighted = (Z[:, at] * c[rows, None]).T
            if chosen is None:  # what is above the diagonal is below it, too
                total[:half].addmm_(weighted[:half], Z)
                total[half:, half:].addmm_(weighted[half:], Z[:, half:])
            else:
                total.addmm_(weighted, Z)
        if chosen is None:
            total[half:, :half] = total[:half, half:].T
        return as_numpy(total)

    def hessian_root(self, h: Rows, centred: bool, lam: float) -> Vector:
        """Return R, upper triangular, with R'R the Hessian plus lam I: the root of those of parts, one below the other."""
        self.design.count(1.0)
        d, about = self.design.shape[1], self._on_device(self.center(h) if centred else None)
        root = torch.eye(d, dtype=torch.float64, device=self.device) * float(np.sqrt(lam))
        weights = (self.s.tensor * h.tensor).sqrt()
        for rows in self.matrix.chunks():
            Z = self.dense_rows(rows)
            Z = Z if about is None else Z - about
            root = torch.linalg.qr(torch.cat([root, Z * weights[rows, None]]), mode="r").R
        return as_numpy(root)

    def predictions(self, coef: Vector, *constants: float, less: tuple[Rows, ...] = ()) -> tuple[Rows, Rows]:
        """Compute X coef plus constants, of the data as they are stored, in twice the precision, and bounds on the errors."""
        support = np.flatnonzero(coef)
        part = self.matrix.columns(on_device(support, self.device))
        values = np.asarray(coef, dtype=np.float64)[support].tolist()
        u, error = torch.empty_like(self.s.tensor), torch.empty_like(self.s.tensor)
        n_terms = len(values) + len(constants) + len(less)
        square = 4.0 * float(gamma(n_terms + 4)) ** 2
        for rows in part.chunks(len(values) + 1):
            A = part.dense_rows(rows)
            high, low, size = (torch.zeros_like(u[rows]) for _ in range(3))
            terms = [(A[:, j], value) for j, value in enumerate(values)]
            terms += [(vector.tensor[rows], -1.0) for vector in less]
            for column, value in terms:
                term, rest = exact.two_product(column, value)
                high, lost = exact.two_sum(high, term)
                low += rest + lost
                size += column.abs() * abs(value)
            for value in constants:
                high, lost = exact.two_sum(high, float(value))
                low += lost
                size += abs(float(value))
            found = torch.where(torch.isfinite(low), high + low, high)
            u[rows] = found
            error[rows] = square * size + 2.0 * UNIT * found.abs() + 8.0 * (len(values) + 1) * SMALLEST
        return DeviceArray(u), DeviceArray(error)

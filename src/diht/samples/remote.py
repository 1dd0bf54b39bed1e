"""Samples whose rows live in other processes: vectors are values of a group of shards, sums are those of the shards added up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from diht.design import AffineView, Features, StoredDesign
from diht.design.base import RowErrors, cut_at
from diht.design.gram import SPARSE as SPARSE_PRODUCTS
from diht.design.gram import Gram, PreciseGram, Products, gram_of, products
from diht.design.scatter import Scatter
from diht.design.spectral import WeightedRows, bound_of
from diht.design.step import DualState, Step
from diht.design.view import DistantView
from diht.losses import Loss, Pieces
from diht.numerics.arrays import Indices, Vector
from diht.numerics.definite import Definite
from diht.numerics.traffic import Trips
from diht.samples.base import Chosen, Rows, Samples, added
from diht.samples.central_path import Condense, Fewer, Turned, condensed
from diht.samples.distant import Distant, WeightedThere, slopes_at
from diht.samples.intercept import Jumps, root_of_jumps
from diht.samples.lines import Along, Lines
from diht.samples.memory import ChosenInMemory, MemorySamples
from diht.samples.newton import Look
from diht.samples.partition import Blocks, make_blocks, shuffled_runs
from diht.samples.program import Group, Method, Own, Value

__all__ = ["RemoteSamples", "labelled", "ranks_of"]

T = TypeVar("T")

Runs: TypeAlias = list[tuple[int, int]]  # samples that are held together: the first one and the end of each run
Ranges: TypeAlias = list[Runs]

_RIDGE = 2_000  # features up to which a system of all of them is solved
_NEAR = 2.0**-52 * np.array([-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0])  # steps to the sides of a jump
_MANY_JUMPS = 1_000  # of the slope in the intercept that travel
_HERE = "the rows are in other processes"


class RemoteRows:
    """A number for each sample, or for each entry of some columns, where the rows live; steps put others in its place."""

    def __init__(self, value: Value) -> None:
        self.value = value

    def __reduce__(self) -> Any:
        raise TypeError("a vector that lives with the rows of other processes cannot be sent or stored")


@dataclass(frozen=True, eq=False)
class _Known:
    """What is known of rows and columns together: sums over the shards, largest numbers of them."""

    squares: Vector  # of the columns as they are stored
    centred_squares: Vector
    occupied: NDArray[np.bool_]
    longest: int
    largest_norm: float
    roundings: int


def _known(samples: MemorySamples) -> _Known:
    """Return what is known of the rows of a shard."""
    design = samples.design
    base = design.raw()[0]
    occupied = np.zeros(base.shape[1], dtype=bool)
    occupied[base.occupied()] = True
    return _Known(
        np.square(base.column_norms()),
        np.square(design.column_norms()),
        occupied,
        base._max_row_count(),
        base.largest_row_norm(),
        base.roundings + base.n_threads,
    )


def _all_known(parts: list[_Known]) -> _Known:
    """Return what is known of all shards; one rounding more for each."""
    return _Known(
        _added([part.squares for part in parts]) * (1.0 + len(parts) * 2.0**-52),
        _added([part.centred_squares for part in parts]) * (1.0 + len(parts) * 2.0**-52),
        np.logical_or.reduce([part.occupied for part in parts]),
        max(part.longest for part in parts),
        max(part.largest_norm for part in parts),
        max(part.roundings for part in parts) + len(parts),
    )


class RemoteColumns(RowErrors):
    """Columns of rows that live in other processes, as they are stored.

    Parameters
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    n_threads : int
    sparse : bool
        Whether only entries other than zero are stored.
    samples : Value
        The samples of each shard, with these columns.
    of : tuple of RemoteColumns and array of int, optional
        Other columns with as many entries, and which of them these are.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: Any,
        n_threads: int,
        sparse: bool,
        samples: Value,
        of: tuple[RemoteColumns, Any] | None = None,
    ) -> None:
        self.shape, self.dtype, self.n_threads, self.sparse = shape, np.dtype(dtype), n_threads, sparse
        self._samples, self._of, self._passes = samples, of, 0.0

    @cached_property
    def known(self) -> _Known:
        """What is asked for once."""
        return _all_known(self._samples.group.ask(_known, self._samples))

    @property
    def roundings(self) -> int:  # type: ignore[override]
        """How often a sum is rounded beside those of its terms."""
        return self.known.roundings

    @property
    def nbytes(self) -> int:
        """Bytes of the matrix."""
        if not self.sparse:
            return self.shape[0] * self.shape[1] * self.dtype.itemsize
        return int(self._counts.sum()) * (self.dtype.itemsize + 4) + 4 * self.shape[0]

    @cached_property
    def _counts(self) -> Vector:
        """The number of stored entries of every column, and a rounding more for each block: their sums are added up."""
        if self._of is not None:
            columns, features = self._of
            counts: Vector = columns._counts[features]
            return counts
        return _added(self._samples.group.ask(_counts, self._samples)) + self._samples.group.size

    @property
    def data_dtype(self) -> np.dtype[Any]:
        """The type of the data."""
        return self.dtype

    @property
    def passes(self) -> float:
        """Reads of the whole of X so far."""
        return self._passes

    @property
    def traffic(self) -> Trips:
        """What has been asked of the shards so far."""
        group = self._samples.group
        return Trips(group.trips, group.shards.bytes_out, group.shards.bytes_in)

    def count(self, passes: float) -> None:
        """Count reads."""
        self._passes += passes

    def count_reads_of(self, part: Features) -> None:
        """Count what has been read of a compact copy as its fraction of X."""
        if part.passes:
            self._passes += part.passes * part.nbytes / max(1, self.nbytes)

    def occupied(self) -> Indices:
        """Return the columns, ascending, that may hold anything but zeros."""
        return np.flatnonzero(self.known.occupied)

    def fraction(self, support: Indices) -> float:
        """Fraction of the stored entries that some features hold."""
        if not self.sparse:
            return len(support) / max(1, self.shape[1])
        return float(self._counts[support].sum()) / max(1.0, float(self._counts.sum()))

    @cached_property
    def _stored_gram_cost(self) -> float:
        return float(sum(self._samples.group.ask(_gram_cost, self._samples)))

    def gram_cost(self) -> float:
        """Return the number of multiplications of a Hessian that is formed from the stored entries."""
        return self._stored_gram_cost if self.sparse else self.dense_gram_cost()

    def column_norms(self) -> Vector:
        """Euclidean norms of the columns."""
        return np.sqrt(self.known.squares)

    def constants(self, features: Indices) -> Vector:
        """Return the value of each of some columns that is constant, NaN for the others."""
        found = np.stack(self._samples.group.ask(_constants, self._samples, features))
        return np.where(np.all(found == found[0], axis=0), found[0], np.nan)

    def pieces(self, features: Indices, most: float) -> list[Indices]:
        """Cut features into groups whose columns have at most so many stored entries, but for single ones."""
        return cut_at(features, self._counts[features], most)

    def _column_counts(self) -> Vector:
        return self._counts.copy()

    def _max_row_count(self) -> int:
        return self.known.longest

    def largest_row_norm(self) -> float:
        return self.known.largest_norm


def _gram_cost(samples: MemorySamples) -> float:
    return samples.design.gram_cost()


def _counts(samples: MemorySamples) -> Vector:
    return samples.design.raw()[0]._column_counts()


def _constants(samples: MemorySamples, features: Indices) -> Vector:
    return samples.design.constants(features)


class RemoteView(DistantView):
    """Such columns, centred and scaled on the way."""

    base: RemoteColumns

    @property
    def traffic(self) -> Trips:
        """That of the base."""
        return self.base.traffic

    def gram_cost(self) -> float:
        """Return the number of multiplications of a Hessian that is formed from the stored entries."""
        return self.base.gram_cost()

    def column_norms(self) -> Vector:
        """Euclidean norms of the columns."""
        return np.sqrt(self.base.known.centred_squares)

    def constants(self, features: Indices) -> Vector:
        """Return the value of each of some columns that is constant, NaN for the others."""
        return self.base.constants(features)


def _base(design: Any) -> RemoteColumns:
    base: RemoteColumns = design.base if isinstance(design, RemoteView) else design
    return base


@dataclass(frozen=True, eq=False)
class ChosenRemotely(Chosen):
    """Those of each shard."""

    value: Value
    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        """Their number."""
        return sum(self.sizes)

    def values(self, rows: Rows) -> Vector:
        """Return their entries of a vector."""
        return np.concatenate(self.value.group.ask(Method("values"), self.value, rows.value))

    def rows_of(self, samples: RemoteSamples) -> Vector:
        """Return their rows of X."""
        return np.concatenate(self.value.group.ask(Method("rows_of"), self.value, samples.held))

    def first(self, most: int) -> ChosenRemotely:
        """Return the first of them, in the order of the shards."""
        before = np.cumsum([0, *self.sizes])[:-1].tolist()
        sizes = tuple(min(size, max(most - n, 0)) for size, n in zip(self.sizes, before, strict=True))
        return ChosenRemotely(self.value.group.value(Method("first"), self.value, Own(sizes)), sizes)

    def patched(self, rows: Rows, values: Vector) -> Rows:
        """Return a copy of a vector with other entries of theirs."""
        parts = np.split(np.asarray(values, dtype=np.float64), np.cumsum(self.sizes)[:-1])
        return RemoteRows(self.value.group.value(Method("patched"), self.value, rows.value, Own(parts)))


@dataclass(frozen=True, eq=False)
class RemoteCurvatures:
    """The sum of the shards' own."""

    value: Value

    def gram_rows(self, chosen: Indices) -> Vector:
        """Return some rows."""
        return _added(self.value.group.ask(Method("gram_rows"), self.value, chosen))

    def gram_diagonal(self) -> Vector:
        """Return the diagonal."""
        return _added(self.value.group.ask(Method("gram_diagonal"), self.value))

    def charge(self, design: Any) -> None:
        """Count a read of the columns."""
        design.count(1.0)


class RemoteLines(Lines):
    """Columns entry by entry, of samples in other processes."""

    def __init__(self, value: Value, n_columns: int) -> None:
        self._value, self._n_columns, self._group = value, n_columns, value.group
        sizes, whole = zip(*self._group.ask(_extents, value), strict=True)
        self._size, self.are_whole = int(sum(sizes)), all(whole)

    @property
    def size(self) -> int:
        """The number of entries."""
        return self._size

    def __len__(self) -> int:
        return self._n_columns

    def _rows(self, f: Callable[..., Any], *args: Any) -> Along:
        return RemoteRows(self._group.value(f, self._value, *args))

    def gram(self, along: Along) -> Vector:
        """Return a matrix for each column."""
        return _added(self._group.ask(Method("gram"), self._value, along.value))

    @property
    def x(self) -> Along:
        """The entries."""
        return self._rows(_entries)

    def at(self, rows: Any) -> Along:
        """Return what a vector of the samples has for the row of each entry."""
        return self._rows(Method("at"), rows.value)

    def per(self, t: Vector) -> Along:
        """Return the number of its column for each entry."""
        return self._rows(Method("per"), t)

    def mixed(self, Q: Vector) -> Along:
        """Return the entry of Z Q for each entry."""
        return self._rows(Method("mixed"), Q)

    def map(self, f: Callable[..., Any], *along: Along) -> Along:
        """Return ``f(y, s, *along)`` for each entry."""
        return self._rows(Method("map"), f, *_values(along))

    def total(self, f: Callable[..., Any], *along: Along) -> Vector:
        """Return sums over the entries of each column."""
        return _added(self._group.ask(Method("total"), self._value, f, *_values(along)))

    def largest(self, along: Along) -> Vector:
        """Return the largest number of each column, or 0."""
        return _largest(self._group.ask(Method("largest"), self._value, along.value))

    def pull(self, along: Along) -> Vector:
        """Return sums over the entries of each column."""
        return _added(self._group.ask(Method("pull"), self._value, along.value))


def _extents(lines: Lines) -> tuple[int, bool]:
    return lines.size, lines.are_whole


def _entries(lines: Lines) -> Any:
    return lines.x


@dataclass(frozen=True, eq=False)
class _Weighted(WeightedThere):
    """Those in other processes."""

    samples: RemoteSamples
    value: Value
    shape: tuple[int, int]

    def _ask(self, name: str, *args: Any) -> list[Any]:
        return self.value.group.ask(Method(name), self.value, *args)

    def total(self) -> float:
        """Return the sum of the weights."""
        return added(self._ask("total"))

    def squares(self) -> float:
        """Return ``sum_i s_i ||x_i||^2``."""
        return added(self._ask("squares"))

    def is_nonnegative(self) -> bool:
        """Whether no stored entry is negative."""
        return all(self._ask("is_nonnegative"))

    def sums(self) -> Vector:
        """Compute ``X's``, not centred."""
        return _added(self._ask("sums"))

    def normal_product(self, z: Vector, centred: bool = True) -> Vector:
        """Compute ``X' diag(s) X z``."""
        self.samples.design.count(1.0)
        return _added(self._ask("normal_product", z, centred))

    def gram(self) -> Vector:
        """Compute ``X' diag(s) X``."""
        return _added(self._ask("gram_of_columns"))


class RemoteSamples(Distant):
    """Samples of all shards of a group.

    Parameters
    ----------
    held : Value
        A `MemorySamples` in each shard.
    design : RemoteColumns or RemoteView
        What is known of the columns.
    ranges : list
        For each shard, the runs of its samples among all, as pairs of the first one and the end.
    """

    here = False
    remote = True

    def __init__(self, held: Value, design: Any, ranges: Ranges) -> None:
        self.held, self.group, self.design, self._ranges = held, held.group, design, ranges

    @classmethod
    def of(
        cls, group: Group, n_features: int, dtype: Any, sparse: bool, n_threads: int, ranges: Ranges
    ) -> RemoteSamples:
        """Take the sources of a group's shards, each a `MemorySamples`, as one."""
        size = sum(end - first for runs in ranges for first, end in runs)
        return cls(group.source, RemoteColumns((size, n_features), dtype, n_threads, sparse, group.source), ranges)

    def __reduce__(self) -> Any:
        raise TypeError("samples that live in other processes cannot be sent or stored")

    @cached_property
    def y(self) -> Rows:
        """The targets."""
        return self._rows(_targets)

    @cached_property
    def s(self) -> Rows:
        """The weights."""
        return self._rows(_weights)

    def _rows(self, f: Callable[..., Any], *args: Any) -> RemoteRows:
        return RemoteRows(self.group.value(f, self.held, *args))

    def _ask(self, f: Callable[..., Any], *args: Any) -> list[Any]:
        return self.group.ask(f, self.held, *args)

    def _with(self, held: Value, design: Any) -> RemoteSamples:
        return RemoteSamples(held, design, self._ranges)

    # Functions of the samples

    def each(self, f: Callable[..., T], *rows: Rows) -> list[T]:
        """Return ``f(y, s, *rows)`` of every shard."""
        return [found for [found] in self._ask(Method("each"), f, *_values(rows))]

    def map(self, f: Callable[..., Any], *rows: Rows) -> Rows:
        """Return the vector of ``f(y, s, *rows)``."""
        return self._rows(Method("map"), f, *_values(rows))

    def copy(self, rows: Rows) -> Rows:
        """Return a vector that does not change when the other one does."""
        return RemoteRows(rows.value)

    def with_targets(self, y: Rows) -> RemoteSamples:
        """Return the same samples with other targets."""
        return self._with(self.group.value(Method("with_targets"), self.held, y.value), self.design)

    def with_weights(self, s: Rows) -> RemoteSamples:
        """Return the same samples with other weights."""
        return self._with(self.group.value(_with_weights, self.held, s.value), self.design)

    def affine(self, center: Vector | None, scale: Vector | None, zeros: Indices) -> RemoteSamples:
        """Return the same samples with their columns centred and scaled on the way."""
        value, base = self.group.value(_affine, self.held, center, scale, zeros), _base(self.design)
        columns = RemoteColumns(base.shape, base.dtype, base.n_threads, base.sparse, value, (base, slice(None)))
        return self._with(value, RemoteView(columns, center, scale, zeros))

    def put(self, values: Vector) -> Rows:
        """Bring N numbers to where the rows live."""
        values = np.asarray(values)
        parts = [np.concatenate([values[first:end] for first, end in runs]) for runs in self._ranges]
        return self._rows(_second, Own(parts))

    def fetch(self, rows: Rows) -> Vector:
        """Return all the numbers of a vector: what takes the memory of N numbers here."""
        parts = self._ask(_second, rows.value)
        found = np.empty((*parts[0].shape[:-1], self.size))
        for part, runs in zip(parts, self._ranges, strict=True):
            found[..., _indices(runs)] = part
        return found

    def holds(self, rows: Rows) -> bool:
        """Tell whether something is a vector of these shards."""
        return isinstance(rows, RemoteRows) and rows.value.group is self.group

    def chosen(self, f: Callable[..., Any], *rows: Rows) -> ChosenRemotely:
        """Choose the samples for which ``f(y, s, *rows)`` is true."""
        value = self.group.value(Method("chosen"), self.held, f, *_values(rows))
        return ChosenRemotely(value, tuple(self.group.ask(_chosen_size, value)))

    def ranks(self, labels: Rows, n_labels: int) -> tuple[Rows, Indices, Indices]:
        """Return the number of each sample among those with its label, from 0; how many have each, and the first of them."""
        runs = Own(self._ranges)
        found = self._ask(labelled, labels.value, n_labels, runs)
        order = np.argsort([first for own in self._ranges for first, _ in own])
        counts, firsts = (np.concatenate(parts) for parts in zip(*found, strict=True))
        before = np.empty_like(counts)
        before[order] = np.cumsum(counts[order], axis=0) - counts[order]
        own = np.split(before, np.cumsum([len(part) for part, _ in found])[:-1])
        return self._rows(ranks_of, labels.value, runs, Own(own)), counts.sum(axis=0), firsts.min(axis=0)

    def scatter(self, s: Rows) -> Scatter:
        """Return the sums of products of the columns and the targets, with these weights."""
        self.design.count(1.0)
        return Scatter.added(self._ask(_scatter, s.value), self.size)

    def asked(self, f: Callable[..., Any], loss: Loss, rows: Rows, at: Any) -> list[Any]:
        """Return ``f(samples, loss, rows, at)`` of every shard."""
        return self._ask(f, loss, rows.value, at)

    def _by_jumps(self, loss: Loss, u: Rows, start: float) -> float:
        """Search for the intercept; where l' is constant but for a jump, among the jumps themselves.

        Of the two sides of the jump at the root that with the smaller slope is taken, as in memory.
        """
        if loss.pieces is None:
            return super()._by_jumps(loss, u, start)

        def slopes(points: Vector, within: tuple[float, float] | None) -> Jumps:
            parts = self.asked(_jumps, loss, u, (points, within))
            jumps = [part.jumps for part in parts]
            known = None if any(part is None for part in jumps) else np.concatenate(jumps, axis=1)
            return Jumps(_added([part.slopes for part in parts]), added(part.size for part in parts), known)

        root = root_of_jumps(slopes, start)
        near = root + _NEAR * max(1.0, abs(root))
        return float(near[np.argmin(np.abs(sum(self.asked(slopes_at, loss, u, near))))])

    # Newton's method on few features

    def look(self, loss: Loss, u: Rows, centred: bool) -> Look:
        """Return the loss of some margins with its derivatives: one round trip."""
        self.design.count(1.0)
        values, slopes, pulls, *about = zip(*self._ask(_look, loss, u.value, centred), strict=True)
        weight, mean, hessian = _about_all(*about)
        return Look.of(added(values), added(slopes), _added(pulls), weight, mean, hessian)

    def _condensing(self, pieces: Pieces, n_near: int, most: int) -> Condense:
        """Return what condenses the samples around models: a round trip for each."""
        turned, sides = self.group.value(_turned, self.held, pieces), None
        share = -(-n_near // self.group.size)

        def condense(x: Vector, b: float) -> list[Fewer]:
            nonlocal sides
            both = self.group.value(condensed, turned, sides, x, float(b), share, most)
            sides = self.group.value(_item, both, 0)
            self.design.count(1.0)
            return self.group.ask(_item, both, 1)

        return condense

    # Parts of the samples

    def partition(self, blocks: Blocks, rng: np.random.Generator) -> list[Rows]:
        """Cut the samples as if they were in one piece: each shard finds its own share of every part."""
        if not isinstance(blocks, int | np.integer):
            raise ValueError(f"blocks must be a number of blocks where {_HERE}")
        cut = self._rows(_partition, int(blocks), self.size, rng.bit_generator.state, Own(self._ranges))
        [n_blocks] = set(self.group.ask(len, cut.value))
        shuffled_runs(self.size, n_blocks, rng)  # moves the generator on, as it does for rows in one piece
        return [RemoteRows(self.group.value(_item, cut.value, i)) for i in range(n_blocks)]

    def weight(self, part: Rows) -> float:
        """Return the sum of the weights of a part."""
        return added(self._ask(Method("weight"), part.value))

    def taken(self, part: Rows) -> MemorySamples:
        """Refuse: rows do not travel."""
        raise TypeError(f"{_HERE}, and stay there")

    def columns(self, features: Indices) -> RemoteSamples:
        """Return the samples of some features alone, on compact copies of them."""
        self.design.count(self.design.fraction(features))
        value = self.group.value(Method("columns"), self.held, features)
        base, shape = _base(self.design), (self.size, len(features))
        columns = RemoteColumns(shape, base.dtype, base.n_threads, base.sparse, value, (base, features))
        if not isinstance(self.design, RemoteView):
            return self._with(value, columns)
        center, scale = (None if v is None else v[features] for v in (self.design.center, self.design.scale))
        zeros = np.flatnonzero(np.isin(features, self.design.zeros))
        return self._with(value, RemoteView(columns, center, scale, zeros))

    def lines(self, features: Indices, beside: Samples, whole: bool = False) -> RemoteLines:
        """Return the columns of some features, entry by entry."""
        assert isinstance(beside, RemoteSamples)
        return RemoteLines(self.group.value(Method("lines"), self.held, features, beside.held, whole), len(features))

    # Products with X

    def spectral_bound(self, part: Rows | None = None) -> float:
        """Return an upper bound on the largest eigenvalue of ``X' diag(s) X``, over a part of the samples or all."""
        value = self.group.value(_weighted, self.held, None if part is None else part.value)
        shape = sum(self.group.ask(_n_rows, value)), self.design.shape[1]
        return bound_of(_Weighted(self, value, shape)) if shape[0] else 0.0

    def largest_square(self) -> float:
        """Return ``max_i s_i ||x_i||^2``."""
        return float(max(self._ask(Method("largest_square"))))

    def square_sum(self, part: Rows) -> float:
        """Return ``sum_i s_i ||x_i||^2`` over a part of the samples."""
        return added(self._ask(Method("square_sum"), part.value))

    def extent(self, W: Vector, b: Vector) -> Vector:
        """Return the largest of the shards' own."""
        return _largest(self._ask(Method("extent"), W, b))

    def largest_entries(self) -> Vector:
        """Return the largest of the shards' own."""
        return _largest(self._ask(Method("largest_entries")))

    def formed(self, method: str = "formed") -> RemoteSamples:
        """Return the samples with X dense, in float64."""
        value = self.group.value(Method(method), self.held)
        return self._with(value, RemoteColumns(self.design.shape, np.float64, self.design.n_threads, False, value))

    def formed_if_shorter(self) -> RemoteSamples:
        """Do so in the shards where Hessians are cheaper then."""
        return self.formed("formed_if_shorter")

    def gram(self, features: Indices, centred: bool, known: Gram | None = None) -> Gram:
        """Compute the Gram matrix of some columns and the targets: sums over the shards."""
        total = self.total(np.ones_like)
        level = self.total(lambda y: y) / total if centred else 0.0
        base = _base(self.design)
        n_entries = float(self.size) * len(features)
        sparse = base.sparse and float(base._counts[features].sum()) <= SPARSE_PRODUCTS * n_entries
        self.design.count(self.design.fraction(features))
        parts = self._ask(_products, level, features, 0 if known is None else len(known.features), sparse)
        scale = getattr(self.design, "scale", None)
        return gram_of(Products.added(parts), features, scale, total if centred else None, known)

    def precise_gram(self, centred: bool) -> PreciseGram | None:
        """Return None: sums of shards are in single precision."""
        return None

    def ridge(self, lam: float, centred: bool) -> Vector | None:
        """Minimise the squared error plus a ridge by the system of the features; None where they are many."""
        if self.design.shape[1] > _RIDGE:
            return None
        ones = self.full(1.0)
        r = self.shifted(self.y, -self.mean(self.y)) if centred else self.y
        K = self.hessian(ones, False)
        K[np.diag_indices(len(K))] += lam
        with np.errstate(all="ignore"):
            w = Definite(K).solve(self.pull(r))
        return w if np.all(np.isfinite(w)) else None

    def moments(self, h: Rows) -> tuple[Vector, Vector]:
        """Mean and variance of every column under the weights ``s_i h_i``, divided by their sum."""
        total, mean = self.total(lambda y, h: h, h), self.center(h)
        if mean is None:
            return np.zeros(self.design.shape[1]), np.zeros(self.design.shape[1])
        self.design.count(1.0)
        spreads, left = zip(*self._ask(_spread, h.value, mean), strict=True)
        return mean, np.maximum(_added(spreads) / total - np.square(_added(left) / total), 0.0)

    def curvature(self, h: Rows, centred: bool) -> RemoteCurvatures:
        """Return what gives ``X' diag(s h) X`` row by row."""
        return RemoteCurvatures(self.group.value(_curvature, self.held, h.value, self._center(h, centred)))

    def _center(self, h: Rows, centred: bool) -> Vector | None:
        return self.center(h) if centred else None

    def center(self, h: Rows) -> Vector | None:
        """Return the means of the columns under the weights ``s_i h_i``; None where these are all zero."""
        self.design.count(1.0)
        totals, pulls = zip(*self._ask(_total_and_pull, h.value), strict=True)
        total = added(totals)
        return _added(pulls) / total if total > 0.0 else None

    def hessian(self, h: Rows, centred: bool) -> Vector:
        """Compute ``X' diag(s h) X``, X centred by these weights where an intercept is eliminated.

        Each shard takes its own means off; how far these are from those of all is added.
        """
        self.design.count(1.0)
        if not centred:
            return _added(self._ask(_hessian, h.value))
        return _about_all(*zip(*self._ask(_centred_hessian, h.value), strict=True))[2]

    def hessian_root(self, h: Rows, centred: bool, lam: float) -> Vector:
        """Return R, upper triangular, with R'R the Hessian plus lam I: the root of the shards' own, one below the other."""
        center = self._center(h, centred)
        self.design.count(1.0)
        roots = self._ask(_hessian_root, h.value, center, lam / self.group.size)
        return np.asarray(np.linalg.qr(np.vstack(roots), mode="r"))

    def margins(self, w: Vector, b: float = 0.0, support: Indices | None = None) -> Rows:
        """Compute ``X w + b``."""
        self.design.count(1.0 if support is None else self.design.fraction(support))
        return self._rows(Method("margins"), w, float(b), support)

    def pull(self, alpha: Rows) -> Vector:
        """Compute ``X'(s alpha)``."""
        self.design.count(1.0)
        return _added(self._ask(Method("pull"), alpha.value))

    def pulls(self, several: Sequence[Rows]) -> Vector:
        """Do so for several vectors: one round trip."""
        self.design.count(float(len(several)))
        return _added(self._ask(_each_of, Method("pull"), _values(several)))

    def pulls_and_hessians(self, several: Sequence[Rows], curvatures: Sequence[Rows]) -> tuple[Vector, Vector]:
        """Compute ``X'(s alpha)`` and ``X' diag(s h) X`` for several vectors each: one round trip."""
        self.design.count(float(len(several) + len(curvatures)))
        pulls, hessians = zip(*self._ask(_pulls_and_hessians, _values(several), _values(curvatures)), strict=True)
        return _added(pulls), _added(hessians)

    def margins_and_pull(self, w: Vector, alpha: Rows) -> tuple[Rows, Vector]:
        """Compute ``X w`` and ``X'(s alpha)`` with one read of X."""
        self.design.count(1.0)
        both = self._rows(Method("margins_and_pull"), w, alpha.value).value
        return RemoteRows(self.group.value(_item, both, 0)), _added(self.group.ask(_item, both, 1))

    def step(self, step: Step, w: Vector, b: float, dual: DualState, part: Rows | None = None) -> float:
        """Put updated dual variables in the place of the old ones, and g with them."""
        rows, margins = (None if given is None else given.value for given in (part, dual.u))
        self.design.count(1.0 if part is None else self.weight(part))
        done = self._rows(_step, step, w, float(b), dual.alpha.value, rows, margins).value
        if step.store:
            dual.alpha.value = self.group.value(_item, done, 2)
        if dual.u is not None:
            dual.u.value = self.group.value(_item, done, 3)
        totals, changes = zip(*self.group.ask(_first_two, done), strict=True)
        dual.g[:] = _added(changes) if step.fresh else dual.g + _added(changes)
        return added(totals)

    def predictions(self, coef: Vector, *constants: float, less: tuple[Rows, ...] = ()) -> tuple[Rows, Rows]:
        """Compute X coef plus constants in twice the precision, and bounds on the errors."""
        both = self._rows(_predictions, coef, tuple(map(float, constants)), _values(less)).value
        return RemoteRows(self.group.value(_item, both, 0)), RemoteRows(self.group.value(_item, both, 1))


def _values(rows: Iterable[Rows]) -> tuple[Value, ...]:
    return tuple(row.value for row in rows)


def _added(parts: Iterable[Any]) -> Vector:
    """Add vectors or matrices in the order of the shards."""
    total: Vector = reduce(np.add, parts)
    return total


def _largest(parts: list[Vector]) -> Vector:
    largest: Vector = reduce(np.maximum, parts)
    return largest


def _about_all(
    totals: Sequence[float], means: Sequence[Vector], parts: Sequence[Vector]
) -> tuple[float, Vector, Vector]:
    """Return weight, means and Hessian about them of all shards, each of which has taken its own means off."""
    H, weights, M = _added(parts), np.array(totals), np.stack(means)
    total = float(weights.sum())
    if not total > 0.0:
        return total, np.zeros(M.shape[1]), H
    mean = weights @ M / total
    apart = M - mean
    return total, mean, H + (apart.T * weights) @ apart


def _indices(runs: Runs) -> Indices:
    return np.concatenate([np.arange(first, end) for first, end in runs])


# What runs where the rows are


def _size(samples: MemorySamples) -> int:
    return samples.size


def _targets(samples: MemorySamples) -> Rows:
    return samples.y


def _weights(samples: MemorySamples) -> Rows:
    return samples.s


def _second(_: Any, given: Any) -> Any:
    return given


def _turned(samples: MemorySamples, pieces: Pieces) -> Turned:
    return Turned.of(samples.design, samples.y, samples.s, pieces)[0]


def _item(several: Any, i: int) -> Any:
    return several[i]


def _first_two(several: Any) -> Any:
    return several[:2]


def labelled(_: Samples, labels: Vector, n_labels: int, runs: Runs) -> tuple[Indices, Vector]:
    """Return, for each run, the number of samples with each label, and the first of them."""
    own = np.split(labels.astype(np.int64), np.cumsum([end - first for first, end in runs])[:-1])
    counts = np.stack([np.bincount(run, minlength=n_labels) for run in own])
    firsts = np.full(counts.shape, np.inf)
    for i, (run, (first, _end)) in enumerate(zip(own, runs, strict=True)):
        present, at = np.unique(run, return_index=True)
        firsts[i, present] = first + at
    return counts, firsts


def ranks_of(_: Samples, labels: Vector, runs: Runs, before: Indices) -> Vector:
    """Return the number of each sample among those with its label; `before` is how many come before each run."""
    own, ranks = np.split(labels.astype(np.int64), np.cumsum([end - first for first, end in runs])[:-1]), []
    for run, start in zip(own, before, strict=True):
        order, counts = np.argsort(run, kind="stable"), np.bincount(run, minlength=len(start))
        rank = np.empty(len(run))
        rank[order] = np.arange(len(run)) - np.repeat(np.cumsum(counts) - counts - start, counts)
        ranks.append(rank)
    return np.concatenate(ranks)


def _scatter(samples: MemorySamples, s: Vector) -> Scatter:
    return Scatter.of(samples.design, samples.y, s)


def _with_weights(samples: MemorySamples, s: Vector) -> MemorySamples:
    return MemorySamples(samples.design, samples.y, s)


def _affine(samples: MemorySamples, center: Vector | None, scale: Vector | None, zeros: Indices) -> MemorySamples:
    base = samples.design.raw()[0]
    return MemorySamples(AffineView(base, center, scale, zeros), samples.y, samples.s)


def _chosen_size(chosen: ChosenInMemory) -> int:
    return chosen.size


def _partition(_: MemorySamples, blocks: int, n_samples: int, state: Any, runs: Runs) -> list[Indices]:
    """Return the indices of each part within a shard."""
    rng = np.random.Generator(getattr(np.random, state["bit_generator"])())
    rng.bit_generator.state = state
    place = np.full(n_samples, -1)
    share = _indices(runs)
    place[share] = np.arange(len(share))
    parts = (place[part] for part in make_blocks(blocks, n_samples, rng))
    return [part[part >= 0] for part in parts]


def _weighted(samples: MemorySamples, part: Indices | None) -> WeightedRows:
    return WeightedRows.of(samples.design, samples.s, part)


def _n_rows(block: WeightedRows) -> int:
    return block.shape[0]


def _products(samples: MemorySamples, level: float, features: Indices, new: int, sparse: bool) -> Products:
    return products(samples.design, samples.y, samples.s, level, features, new, sparse)


def _spread(samples: MemorySamples, h: Vector, mean: Vector) -> tuple[Vector, Vector]:
    """Return sums of squared differences from the means, and of the differences."""
    c, design = samples.s * h, samples.design
    left = design._left(c, mean) if isinstance(design, StoredDesign) else np.zeros(len(mean))
    return design.spread(c, mean), left


def _curvature(samples: MemorySamples, h: Vector, center: Vector | None) -> Any:
    return samples.design.curvature(samples.s * h, center)


def _total_and_pull(samples: MemorySamples, h: Vector) -> tuple[float, Vector]:
    return float(samples.s @ h), samples.pull(h)


def _each_of(samples: MemorySamples, f: Callable[..., Vector], several: tuple[Vector, ...]) -> Vector:
    return np.array([f(samples, rows) for rows in several])


def _pulls_and_hessians(
    samples: MemorySamples, several: tuple[Vector, ...], curvatures: tuple[Vector, ...]
) -> tuple[Vector, Vector]:
    return _each_of(samples, Method("pull"), several), _each_of(samples, _hessian, curvatures)


def _hessian(samples: MemorySamples, h: Vector) -> Vector:
    return samples.design.hessian(samples.s * h)


def _centred_hessian(samples: MemorySamples, h: Vector) -> tuple[float, Vector, Vector]:
    """Return the sum of the weights, the means of the columns, and the Hessian about them."""
    total, mean = float(samples.s @ h), samples.center(h)
    mean = np.zeros(samples.design.shape[1]) if mean is None else mean
    return total, mean, samples.design.hessian(samples.s * h, mean)


def _look(samples: MemorySamples, loss: Loss, u: Vector, centred: bool) -> tuple[Any, ...]:
    """Return the loss, its slope in the intercept, its gradient, and weight, means and Hessian of its curvatures."""
    s, y = samples.s, samples.y
    a, h = np.asarray(loss.derivative(u, y)), np.asarray(loss.second_derivative(u, y))
    zeros = np.zeros(samples.design.shape[1])
    about = _centred_hessian(samples, h) if centred else (float(s @ h), zeros, _hessian(samples, h))
    return float(s @ loss.value(u, y)), float(s @ a), samples.pull(a), *about


def _jumps(samples: MemorySamples, loss: Loss, u: Vector, at: tuple[Vector, tuple[float, float] | None]) -> Jumps:
    """Return the derivatives at some intercepts of a loss whose l' jumps, at u = y, from one end of F to the other."""
    (points, within), (low, high), s = at, loss.domain(samples.y), samples.s
    order = np.argsort(samples.y - u)
    places, heights = (samples.y - u)[order], (s * (high - low))[order]
    before = np.concatenate([[0.0], np.cumsum(heights)])
    slopes = float(np.sum(s * low)) + before[np.searchsorted(places, points)]
    size = float(np.sum(s * np.maximum(np.abs(low), np.abs(high))))
    first, end = (0, len(places)) if within is None else np.searchsorted(places, within)
    few = within is not None and end - first <= _MANY_JUMPS
    return Jumps(slopes, size, np.stack([places[first:end], heights[first:end]]) if few else None)


def _hessian_root(samples: MemorySamples, h: Vector, center: Vector | None, lam: float) -> Vector:
    return samples.design.hessian_root(samples.s * h, center, lam)


def _step(
    samples: MemorySamples,
    step: Step,
    w: Vector,
    b: float,
    alpha: Vector,
    part: Indices | None,
    u: Vector | None,
) -> tuple[float, Vector, Vector, Vector | None]:
    """Return the total, the change of g, and copies of the dual variables and of the margins, updated."""
    dual = DualState(alpha.copy(), np.zeros(samples.design.shape[1]), None if u is None else u.copy())
    return samples.step(step, w, b, dual, part), dual.g, dual.alpha, dual.u


def _predictions(
    samples: MemorySamples, coef: Vector, constants: tuple[float, ...], less: tuple[Vector, ...]
) -> tuple[Vector, Vector]:
    return samples.predictions(coef, *constants, less=less)

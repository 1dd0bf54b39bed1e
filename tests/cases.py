"""The cases that the property tests of every module run over."""

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from diht.datasets.figures import arrays_figures, largest_row_norm, merged_figures
from diht.design import AffineView, Block, Columns, Design, StoredDesign, StreamedRows, as_design, row_blocks
from diht.losses import (
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Loss,
    NegativeBinomial,
    Poisson,
    Quantile,
    SmoothedHinge,
    Squared,
    SquaredHinge,
    Tweedie,
)
from diht.samples import BlockSamples, MemorySamples, Samples
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT, Auto, Relaxed, Solver

LOSSES: list[Loss] = [Squared(), SmoothedHinge(), Hinge(), Logistic(), SquaredHinge(), Huber(), Poisson()]
# The other losses, of which tests/test_more_losses.py has the tests of all methods.
MORE_LOSSES: list[Loss] = [Quantile(0.8), Gamma(), Tweedie(1.4), NegativeBinomial(0.5)]


def crossed(*axes: Iterable[Any], every: int = 2) -> list[Any]:
    """All combinations of the cases of several axes for `parametrize`, one of `every` quick, the others slow.

    Each case of an axis is in quick ones, if another axis is long enough. An axis that is a mapping names its cases.
    """
    named = [
        list(axis.items()) if isinstance(axis, Mapping) else [(getattr(case, "name", str(case)), case) for case in axis]
        for axis in axes
    ]
    found = []
    for at in product(*(range(len(axis)) for axis in named)):
        names, cases = zip(*(axis[i] for axis, i in zip(named, at, strict=True)), strict=True)
        found.append(pytest.param(*cases, id="-".join(names), marks=pytest.mark.slow if sum(at) % every else ()))
    return found


# Kinds of X: from a dense float64 array, a design of that kind and the dense float64 array that it stands for.
Maker = Callable[[np.ndarray], tuple[Design, np.ndarray]]


def _stored(convert: Callable[[np.ndarray], object], dtype: type = np.float64) -> Maker:
    return lambda A: (as_design(convert(A.astype(dtype)), n_threads=2), A.astype(dtype).astype(np.float64))


def _memmap(A: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryFile() as file:
        A.tofile(file)
        file.flush()
        return np.memmap(file, dtype=A.dtype, mode="r", shape=A.shape)


def _int64_indices(A: np.ndarray) -> sp.csr_array:
    X = sp.csr_array(A)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def _read_only(A: np.ndarray) -> sp.csr_array:
    X = sp.csr_array(A)
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    return X


def _untidy(A: np.ndarray) -> sp.csr_array:
    """Every entry stored twice, as a third and two thirds of itself, explicit zeros too, and the columns descending."""
    n, d = A.shape
    columns = np.tile(np.repeat(np.arange(d)[::-1], 2), n)
    data = np.stack([A[:, ::-1] / 4, 3 * A[:, ::-1] / 4], axis=2).ravel()
    return sp.csr_array((data, columns, 2 * d * np.arange(n + 1)), shape=(n, d))


def _unsorted(A: np.ndarray) -> sp.csr_array:
    X = sp.csr_array(A[:, ::-1])
    return sp.csr_array((X.data, A.shape[1] - 1 - X.indices, X.indptr), shape=A.shape)


def _with_gaps(A: np.ndarray) -> tuple[Design, np.ndarray]:
    A = A.copy()
    A[::3], A[-1], A[:, ::4], A[:, -1] = 0.0, 0.0, 0.0, 0.0
    return as_design(sp.csr_array(A), n_threads=2), A


def _blocks(convert: Callable[[np.ndarray], object], dtype: type = np.float64) -> Maker:
    """Blocks cut at random places, some of them empty."""

    def make(A: np.ndarray) -> tuple[Design, np.ndarray]:
        A = A.astype(dtype)
        rng = np.random.default_rng(len(A))
        cuts = np.sort(rng.integers(0, len(A) + 1, 5))
        blocks = np.split(A, np.sort(np.append(cuts, cuts[2])))
        return row_blocks([convert(block) for block in blocks], n_threads=2), A.astype(np.float64)

    return make


class StoredBlock(Block):
    """A block that counts how often it is loaded, and where."""

    def __init__(self, X: object) -> None:
        self.X, self.shape = X, X.shape
        self.threads: list[str] = []

    @property
    def nbytes(self) -> int:
        """Memory that they take."""
        return as_design(self.X).nbytes

    def load(self, n_threads: int) -> StoredDesign:
        """Return the rows."""
        self.threads.append(threading.current_thread().name)
        return as_design(self.X, n_threads).stored


def streamed(blocks: list[object], memory: float | None = None) -> StreamedRows:
    """Rows that are brought into memory block by block."""
    sparse, n, figures, norm = sp.issparse(blocks[0]), 0, None, 0.0
    for X in blocks:
        arrays = {name: getattr(X, name) for name in ("data", "indices", "indptr")} if sparse else {"X": X}
        figures = merged_figures(figures, n, arrays_figures(arrays, X.shape[1]), X.shape[0])
        n, norm = n + X.shape[0], max(norm, largest_row_norm(arrays))
    counts = np.concatenate([np.diff(X.indptr) if sparse else np.full(len(X), X.shape[1]) for X in blocks])
    known = Columns(*figures, int(counts.max()), float(np.square(counts).sum()), norm)
    return StreamedRows([StoredBlock(X) for X in blocks], known, blocks[0].dtype, sparse, 2, memory)


def _streamed(convert: Callable[[np.ndarray], object], dtype: type = np.float64, memory: float = 0.0) -> Maker:
    def make(A: np.ndarray) -> tuple[Design, np.ndarray]:
        A = A.astype(dtype)
        cuts = np.sort(np.random.default_rng(len(A)).integers(0, len(A) + 1, 3))
        blocks = [convert(block) for block in np.split(A, cuts) if len(block)]
        return streamed(blocks, memory), A.astype(np.float64)

    return make


def without_features(y: np.ndarray, s: np.ndarray, cut: int = 0) -> Samples:
    """Targets and weights, in one piece or cut into two."""
    X = np.zeros((len(y), 1))
    if not 0 < cut < len(y):
        return MemorySamples(as_design(X), y, s)
    return BlockSamples.of(row_blocks([X[:cut], X[cut:]]), y, s)


def _affine(make: Maker, center: bool, scale: bool) -> Maker:
    def make_view(A: np.ndarray) -> tuple[Design, np.ndarray]:
        base, twin = make(A)
        m = np.linspace(-1.0, 2.0, A.shape[1]) if center else np.zeros(A.shape[1])
        q = np.linspace(0.5, 3.0, A.shape[1]) if scale else np.ones(A.shape[1])
        return AffineView(base, m if center else None, q if scale else None), (twin - m) / q

    return make_view


DESIGNS: list[tuple[str, Maker]] = [
    ("dense C", _stored(np.ascontiguousarray)),
    ("dense F", _stored(np.asfortranarray)),
    ("dense C float32", _stored(np.ascontiguousarray, np.float32)),
    ("dense F float32", _stored(np.asfortranarray, np.float32)),
    ("dense memory map", _stored(_memmap)),
    ("dense strided", _stored(lambda A: np.repeat(A, 2, axis=1)[:, ::2])),
    ("CSR array", _stored(sp.csr_array)),
    ("CSR matrix", _stored(sp.csr_matrix)),
    ("CSR float32", _stored(sp.csr_array, np.float32)),
    ("CSR int64 indices", _stored(_int64_indices)),
    ("CSR read-only", _stored(_read_only)),
    ("CSR duplicates, zeros", _stored(_untidy)),
    ("CSR unsorted", _stored(_unsorted)),
    ("CSR empty rows and columns", _with_gaps),
    ("CSC array", _stored(sp.csc_array)),
    ("COO array", _stored(sp.coo_array)),
    ("centred dense", _affine(_stored(np.ascontiguousarray), True, False)),
    ("centred and scaled dense F", _affine(_stored(np.asfortranarray), True, True)),
    ("scaled CSR", _affine(_stored(sp.csr_array), False, True)),
    ("centred and scaled CSR", _affine(_stored(sp.csr_array), True, True)),
    ("row blocks dense C", _blocks(np.ascontiguousarray)),
    ("row blocks dense F float32", _blocks(np.asfortranarray, np.float32)),
    ("row blocks CSR", _blocks(sp.csr_array)),
    ("row blocks CSC float32", _blocks(sp.csc_array, np.float32)),
    ("centred and scaled row blocks dense", _affine(_blocks(np.ascontiguousarray), True, True)),
    ("centred and scaled row blocks CSR", _affine(_blocks(sp.csr_array), True, True)),
    ("streamed dense", _streamed(np.ascontiguousarray)),
    ("streamed CSR float32, some in memory", _streamed(sp.csr_array, np.float32, 2000.0)),
    ("centred and scaled streamed dense", _affine(_streamed(np.ascontiguousarray, memory=2000.0), True, True)),
    ("centred and scaled streamed CSR", _affine(_streamed(sp.csr_array), True, True)),
]


def _thirds(n: int) -> list[np.ndarray]:
    """A partition of one's own: unequal blocks, out of order."""
    return [np.arange(n // 3, n), np.arange(0, n // 3, 2)[::-1], np.arange(1, n // 3, 2)]


def refusal(loss: Loss, name: str) -> str | None:
    """What a method of the list below says of a loss for which its step is undefined, if it is."""
    if loss.mu == 0 and "theory" in name:
        return f"step='theory' is undefined for the {loss.name} loss"
    return None


# Methods with their settings, for a number of samples.
SOLVERS: list[tuple[str, Callable[[int], Solver]]] = [
    ("DIHT", lambda n: DIHT()),
    ("DIHT theory", lambda n: DIHT(step="theory")),
    ("DIHT constant", lambda n: DIHT(step=0.1)),
    ("DIHT decaying", lambda n: DIHT(step=lambda t: 1.0 / (t + 2))),
    ("SDIHT", lambda n: SDIHT(blocks=4)),
    ("SDIHT one block", lambda n: SDIHT(blocks=1)),
    ("SDIHT one sample a block", lambda n: SDIHT(blocks=n, random_state=3)),
    ("SDIHT theory with replacement", lambda n: SDIHT(blocks=5, step="theory", order="replacement")),
    ("SDIHT own partition", lambda n: SDIHT(blocks=_thirds(n), step=0.2)),
    ("IHT", lambda n: IHT()),
    ("IHT constant", lambda n: IHT(step=0.05)),
    ("HTP", lambda n: HTP()),
    ("HTP decaying", lambda n: HTP(step=lambda t: 1.0 / (t + 1))),
    ("SVRGHT", lambda n: SVRGHT(blocks=4)),
    ("SVRGHT own partition", lambda n: SVRGHT(blocks=_thirds(n))),
    ("SVRGHT constant with replacement", lambda n: SVRGHT(blocks=6, step=0.02, order="replacement")),
    ("relaxed", lambda n: Relaxed()),
    ("auto", lambda n: Auto()),
]

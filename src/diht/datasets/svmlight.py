"""Read svmlight (LIBSVM) text: ``target index:value index:value ... # comment``, one sample a line."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from diht.datasets.opening import line_blocks, opened
from diht.datasets.table import Table
from diht.numerics.memory import features_bytes, require_memory

__all__ = ["read_svmlight", "starts_at_zero", "svmlight_pieces"]

_TOKEN = re.compile(rb"[^\s#]*")
_BOM = b"\xef\xbb\xbf"
_INT32_MAX = np.iinfo(np.int32).max


class _Growing:
    """An array that grows in place, so that no second copy of it ever exists where the allocator can extend."""

    def __init__(self, dtype: type[np.generic], path: str) -> None:
        self._path = path
        self._array: NDArray[Any] = np.empty(0, dtype)
        self._size = 0

    def extend(self, part: NDArray[Any]) -> None:
        size = self._size + part.size
        if size > self._array.size:  # refcheck: the array is private, nothing else refers to it
            room = max(size, self._array.size * 5 // 4)
            require_memory((room - self._array.size) * self._array.itemsize, f"{self._path}: {size:,} and more entries")
            self._array.resize(room, refcheck=False)
        self._array[self._size : size] = part
        self._size = size

    def widen(self) -> None:
        """Go from int32 to int64."""
        if self._array.dtype == np.int32:
            self._array = self._array.astype(np.int64)

    def finish(self) -> NDArray[Any]:
        """Give the array up, cut to its size."""
        self._array.resize(self._size, refcheck=False)
        return self._array


@dataclass(frozen=True)
class _Block:
    """Some lines of the file, parsed; `first_line` is the number of the first of them."""

    path: str
    text: bytes
    first_line: int
    target: NDArray[np.float64]
    row_at: NDArray[np.int64]
    row_end: NDArray[np.int64]
    index: NDArray[np.int64]
    value: NDArray[np.float64]

    def place(self, at: int) -> str:
        """Name the file and the line that holds byte `at`."""
        line = self.first_line + self.text.count(b"\n", 0, at)
        return f"{self.path}: line {line}"

    def fail(self, at: int, message: str) -> NoReturn:
        """Raise with the number of the line that holds byte `at`."""
        raise ValueError(f"{self.place(at)}: {message}")

    def token(self, at: int) -> bytes:
        match = _TOKEN.match(self.text, at)
        return match.group() if match else b""

    def row_of(self, slot: int) -> int:
        """Return where the row that holds a pair begins in the text."""
        return int(self.row_at[np.searchsorted(self.row_end, slot, side="right")])


def _shown(token: bytes) -> str:
    """Return a token as it can be printed, not too long."""
    return ascii(token[:40].decode("latin-1")) + ("..." if len(token) > 40 else "")


def _finite(token: bytes) -> float | None:
    try:
        number = float(token)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


class _Parser:
    """Parse the file block by block, into arrays that are used again for every block."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._line = 1
        self._room = 0

    def _make_room(self, size: int) -> None:
        if size > self._room:
            self._room = size
            rows, pairs = size // 2, size // 3  # most that so many bytes can hold; see the kernel
            self._target, self._row_at, self._row_end = np.empty(rows), *np.empty((2, rows), np.int64)
            self._index, self._value = np.empty(pairs, np.int64), np.empty(pairs)
            self._hard_at, self._hard_slot = np.empty((2, rows), np.int64)

    def __call__(self, text: bytes) -> _Block:
        """Parse whole lines; numbers that the kernel leaves open are read by Python's ``float``."""
        from diht.datasets.svmlight_kernel import parse

        self._make_room(len(text))
        lines, rows, pairs, hard, ordered, stop = parse(
            np.frombuffer(text, np.uint8),
            *(self._target, self._row_at, self._row_end),
            *(self._index, self._value),
            *(self._hard_at, self._hard_slot),
        )
        block = _Block(
            *(self._path, text, self._line),
            *(self._target[:rows], self._row_at[:rows], self._row_end[:rows]),
            *(self._index[:pairs], self._value[:pairs]),
        )
        self._line += lines
        _read_hard(block, self._hard_at[:hard].tolist(), self._hard_slot[:hard].tolist())
        if stop < len(text):
            _refuse(block, stop)
        if not ordered:
            _sort_rows(block)
        return block


def _read_hard(block: _Block, at: list[int], slot: list[int]) -> None:
    """Read the numbers that the kernel left open, with Python's ``float``."""
    for a, j in zip(at, slot, strict=True):
        token = block.token(a)
        number = _finite(token.split(b":", 1)[1] if j >= 0 else token)
        if number is None and j >= 0:
            block.fail(a, f"{_shown(token)}: the value is not a finite number")
        elif number is None:
            block.fail(a, f"the target {_shown(token)} is not a finite number{_advice(block, a)}")
        elif j >= 0:
            block.value[j] = number
        elif -1 - j < block.target.size:  # not that of a line that breaks off
            block.target[-1 - j] = number


def _refuse(block: _Block, at: int) -> NoReturn:
    """Say what is wrong with a token that is no index:value pair."""
    token = block.token(at)
    index, colon, _ = token.partition(b":")
    if colon and re.fullmatch(rb"-\d+", index):
        block.fail(at, f"{_shown(token)}: the index is negative")
    if colon and index.isdigit():
        block.fail(at, f"{_shown(token)}: the index is too large")
    block.fail(at, f"{_shown(token)} is not an index:value pair{_advice(block, at)}")


def _advice(block: _Block, at: int) -> str:
    """Say how a table is named where the line that holds byte `at` looks like one's."""
    start, end = block.text.rfind(b"\n", 0, at) + 1, block.text.find(b"\n", at)
    line = block.text[start : end if end >= 0 else None]
    return "; a table is named .csv or .tsv" if b":" not in line and re.search(rb"[,;|\t]", line) else ""


def _sort_rows(block: _Block) -> None:
    """Sort the pairs of every row by index, in place; an index that comes twice in a row is an error."""
    row = np.repeat(np.arange(block.row_end.size), np.diff(block.row_end, prepend=0))
    order = np.lexsort((block.index, row))
    block.index[:] = block.index[order]
    block.value[:] = block.value[order]
    twice = np.flatnonzero((np.diff(block.index) == 0) & (np.diff(row) == 0))
    if twice.size:
        slot = int(twice[0])
        block.fail(block.row_of(slot), f"the index {block.index[slot]} appears twice")


def _check_targets(block: _Block, unlabelled: bool) -> None:
    """Raise unless every line has a target, or, where they are `unlabelled`, none has."""
    wrong = np.isnan(block.target) != unlabelled
    if wrong.any():
        at = int(block.row_at[wrong.argmax()])
        token = _shown(block.token(at))
        block.fail(at, f"a target {token}, where other lines have none" if unlabelled else f"no target before {token}")


class _Samples:
    """All blocks so far, as the arrays of a CSR matrix whose indices are still those of the file."""

    def __init__(self, path: str, needs_target: bool, zero_based: bool | None, max_features: int | None) -> None:
        self.rows, self.pairs, self.smallest, self.largest = 0, 0, 1, -1
        self._needs_target, self._zero_based, self._max_features = needs_target, zero_based, max_features
        self._unlabelled = False
        self._targets, self._values = _Growing(np.float64, path), _Growing(np.float64, path)
        self._indices, self._row_ends = _Growing(np.int32, path), _Growing(np.int64, path)
        self._row_ends.extend(np.zeros(1, np.int64))

    def check(self, block: _Block) -> None:
        """Raise where a block does not go with those before it."""
        if self.rows == 0 and block.target.size:
            self._unlabelled = not self._needs_target and bool(np.isnan(block.target[0]))
        _check_targets(block, self._unlabelled)
        if block.index.size:
            self._check_pairs(block)

    def add(self, block: _Block) -> None:
        self.check(block)
        if self.largest > _INT32_MAX:
            self._indices.widen()
        self._indices.extend(block.index)
        self._values.extend(block.value)
        self._targets.extend(block.target)
        self._row_ends.extend(block.row_end + self.pairs)
        self.rows += block.target.size
        self.pairs += block.index.size

    def _check_pairs(self, block: _Block) -> None:
        self.smallest = min(self.smallest, int(block.index.min()))
        if int(block.index.max()) > self.largest:
            self.largest = int(block.index.max())
            self._check_largest(block)
        if self.smallest == 0 and self._zero_based is False:
            block.fail(block.row_of(int(block.index.argmin())), "index 0, where indices must start at 1")

    def _check_largest(self, block: _Block) -> None:
        """Raise where the largest index means more features than are allowed, or than the memory has room for."""
        at = block.row_of(int(block.index.argmax()))
        if self._max_features is None:
            coefficients = f"index {self.largest}: so many coefficients of a model"
            require_memory(features_bytes(self.largest), f"{block.place(at)}: {coefficients}")
        elif self.largest > self._max_features:
            block.fail(at, f"index {self.largest}, where at most {self._max_features} features are allowed")

    @property
    def zero_based(self) -> bool:
        return self.smallest == 0 if self._zero_based is None else self._zero_based

    @property
    def width(self) -> int:
        """The number of columns up to the largest index."""
        return self.largest + 1 if self.zero_based else max(self.largest, 0)

    def y(self) -> NDArray[np.float64] | None:
        return None if self._unlabelled else self._targets.finish()

    def X(self, width: int) -> Any:  # noqa: N802 (the mathematics' own name)
        """Assemble the CSR array without a copy, 32-bit where everything fits."""
        from scipy.sparse import csr_array

        indices, indptr = self._indices.finish(), self._row_ends.finish()
        if not self.zero_based:
            indices -= 1
        if max(self.pairs, self.rows, width) <= _INT32_MAX and indices.dtype == np.int32:
            indptr = indptr.astype(np.int32)
        X = csr_array((self._values.finish(), indices, indptr), shape=(self.rows, width), copy=False)
        X.has_canonical_format = True  # sorted and without duplicates: need not be checked again
        return X


def read_svmlight(
    path: str,
    *,
    n_features: int | None = None,
    needs_target: bool = True,
    zero_based: bool | None = None,
    max_features: int | None = None,
) -> Table:
    """Read an svmlight file into a CSR table.

    Parameters
    ----------
    path : str
        Plain, or compressed as its name says.
    n_features : int, optional
        The number of columns; more than the file has means columns of zeros, fewer is an error.
    needs_target : bool
        False: lines may begin with a pair, if all of them do.
    zero_based : bool, optional
        Whether indices start at 0; by default they do where an index 0 occurs.
    max_features : int, optional
        The most columns that there may be; by default as many as there is memory for in a fit.

    Notes
    -----
    Numbers are rounded correctly, as Python's ``float`` does.  ``qid:n`` and comments are skipped, unsorted rows
    sorted.  The text is parsed a few megabytes at a time; what is held is the table.
    """
    most = sys.maxsize if max_features is None and n_features is not None else max_features
    samples = _Samples(path, needs_target, zero_based, most)
    for block in _blocks(path):
        samples.add(block)
    if samples.rows == 0:
        raise ValueError(f"{path}: empty: no line with data")
    if samples.pairs == 0 and n_features is None:
        raise ValueError(f"{path}: no index:value pair in the whole file")
    if n_features is not None and samples.width > n_features:
        raise ValueError(f"{path}: the largest index {samples.largest} is beyond the {n_features} features expected")
    if max_features is not None and samples.width > max_features:
        raise ValueError(f"{path}: {samples.width} features, where at most {max_features} are allowed")
    zero_based, y = samples.zero_based, samples.y()
    return Table(samples.X(max(samples.width, n_features or 0)), y, None, None, path, zero_based)


def svmlight_pieces(path: str, *, zero_based: bool, skip: int = 0, max_features: int | None = None) -> Iterator[Table]:
    """Read an svmlight file some rows at a time, without the first `skip` rows; each piece is as wide as what has been read."""
    from scipy.sparse import csr_array

    read, samples = 0, _Samples(path, True, zero_based, max_features)
    for block in _blocks(path):
        samples.check(block)
        own = min(max(skip - read, 0), block.target.size)
        read += block.target.size
        if own == block.target.size:
            continue
        begin = int(block.row_end[own - 1]) if own else 0
        indices = (block.index[begin:] - (not zero_based)).astype(
            np.int32 if samples.largest <= _INT32_MAX else np.int64
        )
        indptr = np.append(0, block.row_end[own:] - begin).astype(indices.dtype)
        shape = (block.target.size - own, samples.width)
        X = csr_array((block.value[begin:].copy(), indices, indptr), shape=shape, copy=False)
        yield Table(X, block.target[own:].copy(), None, None, path, zero_based)
    if not read:
        raise ValueError(f"{path}: empty: no line with data")


def starts_at_zero(path: str) -> bool:
    """Tell whether an index 0 occurs in an svmlight file."""
    return any(block.index.size > 0 and int(block.index.min()) == 0 for block in _blocks(path))


def _blocks(path: str) -> Iterator[_Block]:
    """Yield the file as blocks of lines; each is overwritten by the next."""
    parse, rows = _Parser(path), 0
    with opened(path) as stream:
        for text in line_blocks(stream):
            block = parse(text if rows else text.removeprefix(_BOM))
            rows += block.target.size
            yield block

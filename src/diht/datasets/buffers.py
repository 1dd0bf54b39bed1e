"""Read whole files into memory that is used again, past the page cache where that would only push out what others need."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from errno import EINVAL
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Buffers", "read_bytes"]

_UNIT = 1 << 21  # sizes of buffers are multiples of it
_PIECE = 1 << 24  # bytes of one request
_MOST_SPARE = 8


class Buffers:
    """Memory that was taken before, for those who ask next: fresh pages take about as long as reading them from a disk."""

    def __init__(self) -> None:
        self._spare: list[mmap.mmap] = []
        self._lock = threading.Lock()

    def take(self, size: int) -> NDArray[np.uint8]:
        """Return so many bytes, at the beginning of a page; once no array refers to them any more, they are used again."""
        capacity = -(-max(size, 1) // _UNIT) * _UNIT
        with self._lock:
            fitting = [raw for raw in self._spare if capacity <= len(raw) <= 2 * capacity]
            if fitting:
                self._spare.remove(fitting[0])
        raw = fitting[0] if fitting else mmap.mmap(-1, capacity)
        array = np.frombuffer(raw, dtype=np.uint8)
        weakref.finalize(array, self._give_back, raw).atexit = False
        return array[:size]

    def _give_back(self, raw: mmap.mmap) -> None:
        with self._lock:
            if len(self._spare) < _MOST_SPARE:
                self._spare.append(raw)

    def __reduce__(self) -> tuple[Any, ...]:
        return Buffers, ()


def read_bytes(path: str, size: int, buffers: Buffers, direct: bool) -> NDArray[np.uint8]:
    """Read a file of a known size; ValueError or OSError, in one line that names it, where there is none such.

    With `direct` the page cache is left alone, where the file system allows that.
    """
    into = buffers.take(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
    try:
        found = _read(path, into, direct and hasattr(os, "O_DIRECT"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file, which the manifest names") from None
    except OSError as error:
        raise type(error)(f"{path}: {error.strerror}") from None
    if found != size:
        raise ValueError(f"{path}: truncated or changed: {found:,} bytes, where {size:,} were written")
    return into[:size]


def _read(path: str, into: NDArray[np.uint8], direct: bool) -> int:
    try:
        file = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    except OSError as error:
        if error.errno == EINVAL and direct:  # not on this file system
            return _read(path, into, False)
        raise
    try:
        at = 0
        while at < len(into):
            try:
                count = os.preadv(file, [into[at : at + _PIECE].data], at)
            except OSError as error:
                if error.errno == EINVAL and direct:
                    return _read(path, into, False)
                raise
            if count == 0:
                break
            at += count
        return at if at < len(into) else os.fstat(file).st_size
    finally:
        os.close(file)

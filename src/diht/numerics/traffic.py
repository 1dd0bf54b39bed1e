"""What is read from disk, or comes from other processes, while a fit runs, and who is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

__all__ = ["Traffic", "Trips", "watched"]

_watchers: list[Callable[[Traffic], None]] = []
_lock = threading.Lock()


@dataclass
class Traffic:
    """What has been read of the blocks of a matrix so far.

    Attributes
    ----------
    n_blocks : int
        Blocks of the matrix.
    blocks, bytes : int
        Blocks that were read, each as often as it was, and their bytes.
    seconds : float
        During which a block was being read, or several were.
    """

    n_blocks: int
    blocks: int = 0
    bytes: int = 0
    seconds: float = 0.0
    _readers: int = field(default=0, repr=False)
    _begun: float = field(default=0.0, repr=False)

    @property
    def bandwidth(self) -> float:
        """Bytes a second while reading."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @contextmanager
    def reading(self, size: int) -> Iterator[None]:
        """Within this context a block is read; then it is counted, and all who watch are told."""
        with _lock:
            self._begun = self._begun if self._readers else perf_counter()
            self._readers += 1
        try:
            yield
        finally:
            with _lock:
                now = perf_counter()
                self.seconds += now - self._begun
                self._begun, self._readers = now, self._readers - 1
        with _lock:
            self.blocks, self.bytes = self.blocks + 1, self.bytes + size
        for tell in tuple(_watchers):
            tell(self)

    def __str__(self) -> str:
        times = self.blocks / max(1, self.n_blocks)
        return f"{self.blocks:,} blocks read, X {times:.1f} times, at {self.bandwidth / 1e9:.2f} GB/s"


@dataclass(frozen=True)
class Trips:
    """What has been asked of rows in other processes so far.

    Attributes
    ----------
    trips : int
        Round trips.
    sent, received : int
        Bytes to all shards, and from them.
    """

    trips: int
    sent: int
    received: int

    def __str__(self) -> str:
        return f"{self.trips:,} round trips, {self.sent / 1e6:.1f} MB sent, {self.received / 1e6:.1f} MB received"


@contextmanager
def watched(tell: Callable[[Traffic], None]) -> Iterator[None]:
    """Within this context call `tell` whenever a block has been read, in the thread that read it."""
    _watchers.append(tell)
    try:
        yield
    finally:
        _watchers.remove(tell)

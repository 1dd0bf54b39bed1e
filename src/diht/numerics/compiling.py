"""Tell that kernels are being compiled, which happens once on a machine: the machine code is kept on disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["MESSAGE", "announced", "begins", "printed"]

MESSAGE = "compiling kernels, once"

logger = logging.getLogger(__name__)

_listeners: list[Callable[[], None]] = []


@contextmanager
def announced(tell: Callable[[], None]) -> Iterator[None]:
    """Within this context call `tell` whenever a kernel begins to be compiled; one whose machine code is on disk is not."""
    _listeners.append(tell)
    try:
        yield
    finally:
        _listeners.remove(tell)


def begins(name: str) -> None:
    """Tell all who listen that a kernel begins to be compiled; `diht.design.kernels` calls this when numba's compiler starts."""
    logger.info("%s: %s", MESSAGE, name)
    for tell in tuple(_listeners):
        tell()


@contextmanager
def printed(wanted: bool) -> Iterator[None]:
    """Within this context print the message when the first kernel begins to be compiled, if that is wanted."""
    left = [MESSAGE] if wanted else []

    def tell() -> None:
        if left:
            print(left.pop(), flush=True)

    with announced(tell):
        yield

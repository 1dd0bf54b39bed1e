"""Compiled kernels: numba is imported when the first is called; compiling, once on a machine, is told of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any

__all__ = ["MESSAGE", "Kernels", "announced", "begins", "printed"]

MESSAGE = "compiling kernels, once"

logger = logging.getLogger(__name__)

_listeners: list[Callable[[], None]] = []


class Kernels:
    """A module of kernels that is imported when something of it is first used: with numba that takes some tenths of a second."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _module(self) -> ModuleType:
        return import_module(self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


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

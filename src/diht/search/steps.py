"""Searches that pause after each step, so that whoever has asked for one may look at what it has found."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

__all__ = ["end_of"]

T = TypeVar("T")


def end_of(steps: Generator[None, None, T]) -> T:
    """Go through all steps of a search; return what it ends with."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found

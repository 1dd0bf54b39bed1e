"""JSON files that may be damaged or hostile: read without running code, and every complaint names the place."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["MAX_WHOLE", "Node", "parse", "parse_text", "read_text"]

MAX_BYTES = 1 << 28  # a model of a million named features takes a fifth of this
MAX_WHOLE = 1 << 53  # what any JSON reader holds exactly


@dataclass(frozen=True)
class Node:
    """A value of the file with the place where it stands, so that every complaint names it."""

    value: Any
    where: str
    path: str

    def fail(self, complaint: str) -> ValueError:
        """Return the error that says where and what."""
        place = f"{self.where}: " if self.where else ""
        return ValueError(f"{self.path}: {place}{complaint}")

    def wrong(self, expected: str) -> ValueError:
        """Return the error that says what was expected here."""
        shown = repr(self.value)
        return self.fail(f"expected {expected}, got {shown if len(shown) <= 40 else shown[:40] + '...'}")

    def entries(self, *keys: str, optional: Iterable[str] = ()) -> dict[str, Node]:
        """Return the entries of an object that has exactly these keys."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        for key in keys:
            if key not in self.value:
                raise self.fail(f"no entry {key!r}")
        for key in self.value:
            if key not in keys and key not in optional:
                raise self.fail(f"unknown entry {key[:40]!r}")
        prefix = f"{self.where}." if self.where else ""
        return {key: Node(value, prefix + key, self.path) for key, value in self.value.items()}

    def items(self) -> list[Node]:
        """Return the entries of a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [Node(value, f"{self.where}[{i}]", self.path) for i, value in enumerate(self.value)]

    def text(self) -> str:
        """Return a text."""
        if not isinstance(self.value, str):
            raise self.wrong("a text")
        return self.value

    def flag(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def whole(self, low: int, high: int) -> int:
        """Return a whole number within limits."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not low <= self.value <= high:
            raise self.wrong(f"a whole number from {low} to {high}")
        return self.value

    def number(self, dtype: str = "float64") -> float:
        """Return a finite number that the dtype holds exactly."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.wrong("a number")
        if isinstance(self.value, int) and abs(self.value) > MAX_WHOLE:
            raise self.wrong("a finite number")
        value = float(self.value)
        with np.errstate(over="ignore", under="ignore"):
            exact = math.isfinite(value) and float(np.dtype(dtype).type(value)) == value
        if not exact:
            raise self.wrong(f"a finite {dtype} number")
        return value

    def null(self) -> None:
        """Raise unless this is null: the place is there for what this version does not know."""
        if self.value is not None:
            raise self.wrong("null")

    def one_of(self, choices: Iterable[str]) -> str:
        """Return one of some texts."""
        choices = list(choices)
        if not isinstance(self.value, str) or self.value not in choices:
            raise self.wrong(f"one of {', '.join(choices)}")
        return self.value

    def optional(self, read: Callable[[Node], Any]) -> Any:
        """Return None for null, and else what `read` makes of it."""
        return None if self.value is None else read(self)


def parse(path: str) -> Any:
    """Return a file as JSON objects; ValueError, one line that names it, for any damage."""
    text = read_text(path)
    if not text:
        raise ValueError(f"{path}: empty file")
    return parse_text(text, path)


def read_text(path: str, encoding: str = "utf-8") -> str:
    """Return what a file holds, line ends as they are; an error of one line that names it if it cannot be read, or is too large."""
    try:
        size = os.path.getsize(path)
        if size > MAX_BYTES:
            raise ValueError(f"{path}: {size} bytes are too many for a model")
        with open(path, encoding=encoding, newline="") as stream:
            return stream.read()
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise type(error)(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not a model file: not UTF-8 text") from None


def parse_text(text: str, path: str) -> Any:
    """Return a text as JSON objects; numbers that JSON does not know and repeated keys are refused."""
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"{path}: not a model file: nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not a model file, or a damaged one: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: damaged model file: {error}") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("an entry comes twice")
    return content


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number that a model may hold")

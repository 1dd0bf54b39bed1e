"""Parameters of estimators: kept as they are given, and described in one place."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import cleandoc
from typing import Any, TypeVar

__all__ = ["documented", "keep_parameters"]

Class = TypeVar("Class", bound=type)

_ENTRY = re.compile(r"^(\w.*)\n((?:    .*\n|\n(?=    ))+)", re.MULTILINE)
_NOTES = re.compile(r"^Notes\n-----\n(.*?)\n\n(?=\w+\n---)", re.MULTILINE | re.DOTALL)


def keep_parameters(estimator: Any, given: dict[str, Any]) -> None:
    """Keep the arguments of `__init__`, its `locals()`, as attributes of their names: scikit-learn asks for that and no more."""
    estimator.__dict__ |= {name: value for name, value in given.items() if name != "self"}


def documented(*others: type) -> Callable[[Class], Class]:
    """Decorate a class whose docstring says of parameters, attributes or in its notes "As in `Other`.", a class given here.

    What the other one says comes in the place of that. Names that it does not describe are a KeyError.
    """

    def decorate(cls: Class) -> Class:
        for other in others:
            if cls.__doc__ and other.__doc__:  # python -OO has none
                cls.__doc__ = _completed(_lines(cls.__doc__), _lines(other.__doc__), f"As in `{other.__name__}`.")
        return cls

    return decorate


def _lines(docstring: str) -> str:
    return cleandoc(docstring) + "\n"


def _completed(text: str, other: str, reference: str) -> str:
    """Return a docstring with what another says in the place of references to it."""
    entries = {name: match[0] for match in _ENTRY.finditer(other) for name in match[1].split(" : ")[0].split(", ")}

    def described(match: re.Match[str]) -> str:
        if match[2].strip() != reference:
            return match[0]
        return "".join(dict.fromkeys(entries[name] for name in match[1].split(", ")))

    text = _ENTRY.sub(described, text)
    return text.replace(f"\n{reference}\n", f"\n{notes[1]}\n") if (notes := _NOTES.search(other)) else text

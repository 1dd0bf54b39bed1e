"""Values that live with the rows of other processes, and how they are made: a program that grows as a solve goes on.

Rows are held by shards, each in a process of its own. The client names what shards compute: `Group.value` says how a value
follows from others and returns at once, `Group.ask` brings back what a function of values returns, one result from each shard. What
was said before is sent with the next question, so that a question is one round trip.

Nothing is ever changed where it lives: every value is a function of others, which the client remembers as long as a value that is
in use follows from it. A shard that is lost is made again from its source, and its values from what is remembered.
"""

from __future__ import annotations

import pickle
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Group", "Here", "Method", "Own", "Program", "Shard", "Shards", "Value"]

_LONG = 256  # numbers from which on a vector that is mostly zero travels without its zeros
SOURCE = 0  # the name of what a shard was made with


@dataclass(frozen=True)
class Method:
    """Calls a method of its first argument."""

    name: str

    def __call__(self, owner: Any, *args: Any) -> Any:
        """Call it."""
        return getattr(owner, self.name)(*args)


@dataclass(frozen=True)
class Own:
    """An argument that is another one for each shard."""

    parts: Sequence[Any]


class _Sparse(NamedTuple):
    """A vector that is mostly zero."""

    size: int
    indices: NDArray[np.int64]
    values: NDArray[np.float64]


class _Function(NamedTuple):
    """A function as it was when it was given: what it refers to may change before it is called."""

    pickled: bytes


class _Name(NamedTuple):
    """A value, where it lives."""

    number: int


class _Node:
    """How a value follows from others."""

    __slots__ = ("args", "f", "number")

    def __init__(self, number: int, f: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.number, self.f, self.args = number, f, args


class Value:
    """Something that lives in all shards, as long as this object does here."""

    def __init__(self, group: Group, node: _Node) -> None:
        self.group, self.node = group, node
        group.live[node.number] = node
        if node.number != SOURCE:
            weakref.finalize(self, group.release, node.number).atexit = False

    def __reduce__(self) -> Any:
        raise TypeError("a value that lives with the rows of other processes cannot be sent or stored")


class Program(NamedTuple):
    """What a shard is to do: name values, forget some, and answer a question.

    Attributes
    ----------
    lines : list of tuple
        ``(number, f, args)`` for a value, ``(number,)`` for one to forget, in their order.
    question : tuple, or None
        ``(f, args)``.
    """

    lines: list[tuple[Any, ...]]
    question: tuple[Callable[..., Any], tuple[Any, ...]] | None


class Shard:
    """Some of the rows, and the values that follow from them; lives where they do.

    Parameters
    ----------
    source : Any
        What the values follow from.
    """

    def __init__(self, source: Any) -> None:
        self._values: dict[int, Any] = {SOURCE: source}

    def run(self, program: Program) -> Any:
        """Do what a program says, and answer its question."""
        with np.errstate(all="ignore"):  # as where the functions come from
            for number, *made in program.lines:
                if made:
                    f, args = made
                    self._values[number] = f(*self._resolved(args))
                else:
                    self._values.pop(number, None)
            if program.question is None:
                return None
            f, args = program.question
            return f(*self._resolved(args))

    def _resolved(self, args: Iterable[Any]) -> list[Any]:
        return [self._one(arg) for arg in args]

    def _one(self, arg: Any) -> Any:
        if isinstance(arg, _Name):
            return self._values[arg.number]
        if isinstance(arg, _Function):
            return pickle.loads(arg.pickled)
        if isinstance(arg, _Sparse):
            dense = np.zeros(arg.size)
            dense[arg.indices] = arg.values
            return dense
        return tuple(self._resolved(arg)) if type(arg) is tuple else arg


class Shards(ABC):
    """Where shards are, and how they are reached."""

    size: int
    bytes_out = bytes_in = 0  # that were sent to shards, and that they answered

    @abstractmethod
    def run(self, programs: list[Program], rebuilding: Callable[[int], Program]) -> list[Any]:
        """Send each shard its program, and return the answers in the order of the shards.

        All programs are one object unless they differ. A shard that is lost is made again, and runs what `rebuilding` returns for
        it: the same question, after all that its values follow from.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of all shards."""


class Here(Shards):
    """Shards in this process."""

    def __init__(self, sources: Sequence[Any]) -> None:
        self._shards, self.size = [Shard(source) for source in sources], len(sources)

    def run(self, programs: list[Program], rebuilding: Callable[[int], Program]) -> list[Any]:
        """Run one after the other."""
        return [shard.run(program) for shard, program in zip(self._shards, programs, strict=True)]

    def close(self) -> None:
        """Let go of all shards."""
        self._shards = []


class Group:
    """All shards together, as the client speaks to them.

    Attributes
    ----------
    trips : int
        Round trips so far.
    source : Value
        What each shard was made with.
    """

    def __init__(self, shards: Shards) -> None:
        self.shards, self.trips = shards, 0
        self.live: dict[int, _Node] = {}
        self._pending: list[_Node | int] = []  # values to make, and numbers of those to forget, in their order
        self._count, self._lock = SOURCE, Lock()
        self.source = Value(self, _Node(SOURCE, _nothing, ()))

    @property
    def size(self) -> int:
        """The number of shards."""
        return self.shards.size

    def value(self, f: Callable[..., Any], *args: Any) -> Value:
        """Name the value ``f(*args)``; nothing is sent yet."""
        with self._lock:
            self._count += 1
            node = _Node(self._count, f, tuple(map(_kept, args)))
            self._pending.append(node)
            return Value(self, node)

    def ask(self, f: Callable[..., Any], *args: Any) -> list[Any]:
        """Return ``f(*args)`` of each shard: one round trip."""
        with self._lock:
            self.trips += 1
            pending, self._pending = self._pending, []
            live, question = list(self.live.values()), (f, tuple(map(_kept, args)))

            def program(i: int) -> Program:
                return _program(pending, question, i)

            def rebuilding(i: int) -> Program:
                return _program(_lineage(live), question, i)

            common = not any(_differs(line) for line in (*pending, question))
            programs = [program(0)] * self.size if common else [program(i) for i in range(self.size)]
            return self.shards.run(programs, rebuilding)

    def release(self, number: int) -> None:
        """Forget a value, with the next question."""
        self.live.pop(number, None)
        self._pending.append(number)

    def close(self) -> None:
        """Let go of all rows and values."""
        self.shards.close()


def _nothing() -> None:
    """Stand for the source, which is not computed."""


def _kept(arg: Any) -> Any:
    """Return an argument as it is remembered: nodes for values, vectors without their zeros."""
    if isinstance(arg, Value):
        return arg.node
    if isinstance(arg, np.ndarray) and arg.ndim == 1 and arg.dtype == np.float64 and arg.size >= _LONG:
        indices = np.flatnonzero(arg)
        few = 4 * len(indices) <= arg.size
        return _Sparse(arg.size, indices, arg[indices]) if few else arg.copy()
    if isinstance(arg, np.ndarray):
        return arg.copy()  # the caller may change it
    if callable(arg):
        import cloudpickle

        return _Function(cloudpickle.dumps(arg))
    if isinstance(arg, Own):
        return Own([_kept(part) for part in arg.parts])
    return tuple(map(_kept, arg)) if type(arg) is tuple else arg


def _differs(line: Any) -> bool:
    """Tell whether a line is another one for each shard."""
    args = line.args if isinstance(line, _Node) else line[1] if isinstance(line, tuple) else ()
    return any(isinstance(arg, Own) or (type(arg) is tuple and _differs((None, arg))) for arg in args)


def _program(lines: Iterable[_Node | int], question: tuple[Callable[..., Any], tuple[Any, ...]], shard: int) -> Program:
    """Return the program of a shard."""
    sent = [(line,) if isinstance(line, int) else (line.number, line.f, _sent(line.args, shard)) for line in lines]
    return Program(sent, (question[0], _sent(question[1], shard)))


def _sent(args: tuple[Any, ...], shard: int) -> tuple[Any, ...]:
    """Return arguments as they travel to a shard."""

    def one(arg: Any) -> Any:
        if isinstance(arg, _Node):
            return _Name(arg.number)
        if isinstance(arg, Own):
            return one(arg.parts[shard])
        return _sent(arg, shard) if type(arg) is tuple else arg

    return tuple(map(one, args))


def _nodes_in(args: Iterable[Any]) -> Iterator[_Node]:
    """Yield the values that arguments name."""
    for arg in args:
        if isinstance(arg, _Node):
            yield arg
        elif type(arg) is tuple:
            yield from _nodes_in(arg)


def _lineage(live: list[_Node]) -> list[_Node | int]:
    """Return all that values follow from, in the order in which it was named; what is not among them is forgotten after its use."""
    found: dict[int, _Node] = {}
    waiting = list(live)
    while waiting:
        node = waiting.pop()
        if node.number not in found:
            found[node.number] = node
            waiting += _nodes_in(node.args)
    found.pop(SOURCE, None)
    kept = {SOURCE, *(node.number for node in live)}
    last: dict[int, int] = {}  # use of each value
    for number in sorted(found):
        last |= {used.number: number for used in _nodes_in(found[number].args)}
    forgotten: dict[int, list[int]] = {}
    for number, at in last.items():
        if number not in kept:
            forgotten.setdefault(at, []).append(number)
    return [line for number in sorted(found) for line in (found[number], *forgotten.get(number, ()))]

"""Shards on the workers of a cluster, as actors; one that is lost with its worker is made again on another."""

from __future__ import annotations

import asyncio
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple
from uuid import uuid4

from diht.dask.block import Block, BlockFacts, Source
from diht.dask.tasks import LOOK, MOST_LOSSES, Task, WorkersLostError, alive, settled
from diht.samples.program import Program, Shard, Shards

__all__ = ["Cluster", "Holder", "Load", "even_runs"]

_LOOK_AROUND = 5.0  # seconds after which workers are looked for that have joined

Load = Callable[[Sequence[int], str], list[Any]]  # futures of blocks, under new names, on the worker with an address


class Holder(Shard):
    """A shard as an actor: programs and answers travel as bytes.

    Parameters
    ----------
    blocks : list of (Block, BlockFacts)
    classes : array or None
        All classes, where targets are classes: they become their numbers.
    n_threads : int
    """

    def __init__(self, blocks: list[tuple[Block, BlockFacts]], classes: Any, n_threads: int) -> None:
        super().__init__(Source([block for block, known in blocks if known.n_rows], classes, n_threads))

    def answer(self, program: bytes) -> bytes:
        """Run a program."""
        return pickle.dumps(self.run(pickle.loads(program)), protocol=pickle.HIGHEST_PROTOCOL)


class _Place(NamedTuple):
    """Where a shard is."""

    future: Any
    address: str


class _LostError(Exception):
    """A shard does not exist any more."""


class Cluster(Shards):
    """Shards on the workers of a client.

    Parameters
    ----------
    client : distributed.Client
    load : callable
    numbers : sequence of sequences of int
        The blocks of each shard.
    homes : sequence of str
        The addresses of their workers.
    held : mapping from int to Future
        The blocks as they are already on the workers.
    classes : array, or None

    Attributes
    ----------
    bytes_out, bytes_in : int
        Bytes that were sent to shards, and that they answered.
    losses, moves : int
        Shards that were lost so far, and that have moved to workers that joined.
    """

    def __init__(
        self,
        client: Any,
        load: Load,
        numbers: Sequence[Sequence[int]],
        homes: Sequence[str],
        held: dict[int, Any],
        classes: Any,
    ) -> None:
        self._client, self._load, self._numbers, self._classes = client, load, numbers, classes
        self.size = len(numbers)
        self.bytes_out = self.bytes_in = self.losses = self.moves = 0
        self._places: dict[int, _Place] = {}
        self._make(dict(enumerate(homes)), held)
        self._looked = monotonic()

    def run(self, programs: list[Program], rebuilding: Callable[[int], Program]) -> list[Any]:
        """Send each shard its program, and return the answers."""
        import cloudpickle

        known = {id(program): program for program in programs}
        pickled = {number: cloudpickle.dumps(program) for number, program in known.items()}
        sent = {i: pickled[id(program)] for i, program in enumerate(programs)}
        sent |= {i: cloudpickle.dumps(rebuilding(i)) for i in self._spread()}
        answers: dict[int, bytes] = {}
        for _ in range(MOST_LOSSES):
            answers |= self._client.sync(self._all, sent)
            lost = [i for i in range(self.size) if i not in answers]
            if not lost:
                return [pickle.loads(answers[i]) for i in range(self.size)]
            self.losses += len(lost)
            self._make({i: self._places[i].address for i in lost})
            sent = {i: cloudpickle.dumps(rebuilding(i)) for i in lost}
        raise WorkersLostError(f"some rows were lost with their Dask workers {MOST_LOSSES} times in a row")

    def _spread(self) -> list[int]:
        """Move shards from workers that hold several to those that have joined and hold none; return which were moved."""
        if monotonic() - self._looked < _LOOK_AROUND:
            return []
        crowd, moved = Counter(place.address for place in self._places.values()), {}
        for address in self._client.ncores():
            [(fullest, held)] = crowd.most_common(1)
            if held < 2:
                break
            if address in crowd:
                continue
            i = max(i for i, place in self._places.items() if place.address == fullest and i not in moved)
            moved[i] = address
            crowd.update({fullest: -1, address: 1})
        if moved:
            self._make(moved)
        self.moves += len(moved)
        self._looked = monotonic()
        return list(moved)

    async def _all(self, programs: dict[int, bytes]) -> dict[int, bytes]:
        """Return the answers of shards, without those that are lost."""
        answers = await asyncio.gather(*(self._one(i, program) for i, program in programs.items()))
        return {i: answer for i, answer in zip(programs, answers, strict=True) if answer is not None}

    async def _one(self, i: int, program: bytes) -> bytes | None:
        place = self._places[i]
        asked = asyncio.ensure_future(self._asked(place, program))
        while True:
            done, _ = await asyncio.wait([asked], timeout=LOOK)
            if done:
                break
            if place.address not in await self._client.scheduler.ncores():
                asked.cancel()
                return None
        try:
            answer = asked.result()
        except _LostError:
            return None
        self.bytes_out += len(program)
        self.bytes_in += len(answer)
        return answer

    async def _asked(self, place: _Place, program: bytes) -> bytes:
        from distributed.protocol import to_serialize

        try:
            reply = await self._client.rpc(place.address).actor_execute(
                function="answer", actor=place.future.key, args=[to_serialize(program)], kwargs={}
            )
        except (OSError, KeyError) as error:  # no connection, or a worker that began again without the shard
            raise _LostError from error
        if reply["status"] != "OK":
            raised = reply["exception"]
            if isinstance(raised, RuntimeError) and "after shutdown" in str(
                raised
            ):  # a worker that closes has no threads left
                raise _LostError from raised
            raise raised
        answer: bytes = reply["result"]
        return answer

    def _make(self, homes: dict[int, str], held: dict[int, Any] | None = None) -> None:
        """Load the blocks of shards on workers, and hold them there; elsewhere where a worker is lost meanwhile.

        Parameters
        ----------
        homes : dict from int to str
            The workers of the shards.
        held : dict from int to Future, optional
            Blocks that are there already, for the first attempt.
        """
        self._client.cancel([self._places.pop(i).future for i in homes if i in self._places])
        shards = list(homes)

        def ask(wanted: dict[int, str]) -> dict[int, Task]:
            nonlocal held
            known, held = held, None
            threads = alive(self._client)
            return {j: self._asked_for(shards[j], home, threads.get(home, 1), known) for j, home in wanted.items()}

        others = [place.address for place in self._places.values()]
        tasks, found, _ = settled(self._client, ask, list(homes.values()), others)
        for i, task, home in zip(shards, tasks, found, strict=True):
            for need in task.needs:
                need.release()
            self._places[i] = _Place(task.future, home)

    def _asked_for(self, i: int, home: str, threads: int, held: dict[int, Any] | None) -> Task:
        """Ask for a shard on a worker, and on no other."""
        numbers = self._numbers[i]
        blocks = self._load(numbers, home) if held is None else [held[number] for number in numbers]
        key = f"diht-rows-{i}-{uuid4().hex}"
        future = self._client.submit(
            Holder, blocks, self._classes, threads, actor=True, workers=[home], key=key, pure=False
        )
        return Task(future, blocks)

    def close(self) -> None:
        """Let go of all shards."""
        for place in self._places.values():
            place.future.release()


def even_runs(sizes: Sequence[int], n_runs: int) -> list[list[int]]:
    """Cut the numbers of blocks into runs of about equal size, none of them empty."""
    total, before, runs = max(1, sum(sizes)), 0, [[] for _ in range(n_runs)]  # type: ignore[var-annotated]
    for number, size in enumerate(sizes):
        runs[min(n_runs - 1, (2 * before + size) * n_runs // (2 * total))].append(number)
        before += size
    return [run for run in runs if run]

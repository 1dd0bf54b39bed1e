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
from diht.samples.program import Program, Shard, Shards

__all__ = ["Cluster", "Holder", "WorkersLostError", "even_runs"]

_LOOK = 2.0  # seconds after which a shard that does not answer is looked for among the workers
_PATIENCE = 30.0  # seconds to wait for a worker where none is left
_MOST_LOSSES = 20  # of one shard, in one question
_LOOK_AROUND = 5.0  # seconds after which workers are looked for that have joined


class WorkersLostError(RuntimeError):
    """No worker is left, or rows are lost over and over."""


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

    Attributes
    ----------
    bytes_out, bytes_in : int
        Bytes that were sent to shards, and that they answered.
    losses, moves : int
        Shards that were lost so far, and that have moved to workers that joined.
    """

    def __init__(self, client: Any, blocks: Sequence[list[Any]], addresses: Sequence[str], classes: Any) -> None:
        self._client, self._blocks, self._classes, self.size = client, blocks, classes, len(blocks)
        self.bytes_out = self.bytes_in = self.losses = self.moves = 0
        self._places = [self._made(i, address) for i, address in enumerate(addresses)]
        self._looked = monotonic()

    def run(self, programs: list[Program], rebuilding: Callable[[int], Program]) -> list[Any]:
        """Send each shard its program, and return the answers."""
        import cloudpickle

        known = {id(program): program for program in programs}
        pickled = {number: cloudpickle.dumps(program) for number, program in known.items()}
        sent = [pickled[id(program)] for program in programs]
        for i in self._spread():
            sent[i] = cloudpickle.dumps(rebuilding(i))
        answers = self._client.sync(self._all, sent)
        for i, answer in enumerate(answers):
            if answer is None:
                answers[i] = self._again(i, cloudpickle.dumps(rebuilding(i)))
        return [pickle.loads(answer) for answer in answers]

    def _spread(self) -> list[int]:
        """Move shards from workers that hold several to those that have joined and hold none; return which were moved."""
        if monotonic() - self._looked < _LOOK_AROUND:
            return []
        crowd = Counter(place.address for place in self._places)
        idle, moved = [address for address in self._client.ncores() if address not in crowd], []
        for address in idle:
            [(fullest, held)] = crowd.most_common(1)
            if held < 2:
                break
            i = max(i for i, place in enumerate(self._places) if place.address == fullest)
            self._places[i].future.release()
            self._places[i] = self._made(i, address)
            crowd.update({fullest: -1, self._places[i].address: 1})
            moved.append(i)
        self.moves += len(moved)
        self._looked = monotonic()
        return moved

    async def _all(self, programs: list[bytes]) -> list[bytes | None]:
        """Return the answers of all shards, None of those that are lost."""
        return await asyncio.gather(*(self._one(i, program) for i, program in enumerate(programs)))

    async def _one(self, i: int, program: bytes) -> bytes | None:
        place = self._places[i]
        asked = asyncio.ensure_future(self._asked(place, program))
        while True:
            done, _ = await asyncio.wait([asked], timeout=_LOOK)
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
            raise reply["exception"]
        answer: bytes = reply["result"]
        return answer

    def _again(self, i: int, program: bytes) -> bytes:
        """Make a lost shard again on another worker, as often as need be, and return its answer."""
        for _ in range(_MOST_LOSSES):
            self.losses += 1
            self._places[i].future.release()
            crowd = Counter(dict.fromkeys(self._workers(), 0))
            crowd.update(place.address for j, place in enumerate(self._places) if j != i and place.address in crowd)
            self._places[i] = self._made(i, min(crowd, key=lambda address: crowd[address]))
            answer: bytes | None = self._client.sync(self._one, i, program)
            if answer is not None:
                return answer
        raise WorkersLostError(f"some rows were lost with their Dask workers {_MOST_LOSSES} times in a row")

    def _workers(self) -> dict[str, int]:
        """Return the workers with their threads, once there are any."""
        end = monotonic() + _PATIENCE
        while not (found := self._client.ncores()):
            left = end - monotonic()
            if left <= 0.0:
                raise WorkersLostError(f"all Dask workers are lost, and none came back within {_PATIENCE:g} s")
            try:
                self._client.wait_for_workers(1, timeout=left)
            except TimeoutError:
                continue
        return dict(found)

    def _made(self, i: int, address: str) -> _Place:
        """Load the blocks of a shard on a worker, and hold them there; elsewhere where that worker is lost meanwhile."""
        from distributed import wait

        patience = 5.0 * _LOOK
        while True:
            future, end = self._submitted(i, address), monotonic() + patience
            while monotonic() < end:
                try:
                    wait(future, timeout=_LOOK)
                except TimeoutError:
                    if address not in self._workers():
                        break
                    continue
                future.result()
                [found] = self._client.who_has([future]).values()
                return _Place(future, found[0] if found else address)
            future.release()  # the scheduler may have lost sight of it with a worker
            patience *= 2.0
            workers = list(self._workers())
            address = workers[i % len(workers)]

    def _submitted(self, i: int, address: str) -> Any:
        """Ask for a shard on a worker."""
        threads = self._workers().get(address, 1)
        blocks = self._client.compute(self._blocks[i], workers=[address], allow_other_workers=True)
        return self._client.submit(
            Holder, blocks, self._classes, threads,
            actor=True, workers=[address], allow_other_workers=True, key=f"diht-rows-{i}-{uuid4().hex}",
        )  # fmt: skip

    def close(self) -> None:
        """Let go of all shards."""
        for place in self._places:
            place.future.release()


def even_runs(sizes: Sequence[int], n_runs: int) -> list[list[int]]:
    """Cut the numbers of blocks into runs of about equal size, none of them empty."""
    total, before, runs = max(1, sum(sizes)), 0, [[] for _ in range(n_runs)]  # type: ignore[var-annotated]
    for number, size in enumerate(sizes):
        runs[min(n_runs - 1, (2 * before + size) * n_runs // (2 * total))].append(number)
        before += size
    return [run for run in runs if run]

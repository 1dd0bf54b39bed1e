"""Dask collections as samples: blocks are checked where they are, held there, and spoken to by the solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from diht.dask.block import Block, BlockFacts, checked_block, facts_of, offset_of, targets_of
from diht.dask.cluster import Cluster, Load, even_runs
from diht.dask.collections import Blocks, blocks_of, is_dask
from diht.dask.tasks import Task, alive, settled
from diht.design import effective_n_threads, row_blocks
from diht.samples.base import Rows
from diht.samples.program import Group
from diht.samples.remote import RemoteRows, RemoteSamples

__all__ = ["Collections", "RemoteData", "active_client", "loaded", "loaded_here"]

Array = NDArray[Any]

_CALLED = {"n_columns": "number of columns", "n_targets": "number of targets", "sparse": "storage (sparse: True)"}
_LARGE, _MOST_SHARDS = 2**28, 4  # bytes of a worker's X in a shard; how many shards it may have


class Collections(NamedTuple):
    """What a fit is given: Dask collections with the same blocks of rows."""

    X: Any
    y: Any
    sample_weight: Any = None
    offset: Any = None


@dataclass(frozen=True, eq=False)
class RemoteData:
    """Rows on workers.

    Attributes
    ----------
    samples : RemoteSamples
        With targets as they were given, or the numbers of their classes, and weights that sum to one.
    names : tuple of str, or None
    classes : array, or None
    n_targets : int
        0 where there is a single one.
    weight : float
        The sum of the weights as they were given, or the number of samples.
    cluster : Cluster
    weighted, has_offset : bool
        Whether there are weights and offsets.
    """

    samples: RemoteSamples
    names: tuple[str, ...] | None
    classes: Array | None
    n_targets: int
    weight: float
    cluster: Cluster
    weighted: bool
    has_offset: bool

    def targets(self) -> Rows:
        """Return several targets, one row each."""
        return RemoteRows(self.samples.group.value(targets_of, self.samples.group.source))

    def dual(self, alpha: Rows) -> None:
        """Return None: a dual point stays with the rows, and goes with them."""

    def offset(self) -> Rows | None:
        """Return what is known of the predictions, of several targets one row each."""
        return RemoteRows(self.samples.group.value(offset_of, self.samples.group.source)) if self.has_offset else None


def active_client() -> Any | None:
    """Return the client that is active, None where there is none."""
    try:
        import distributed
    except ImportError:
        return None
    try:
        client = distributed.get_client()
    except ValueError:
        return None
    if client.asynchronous:
        raise ValueError("the Dask client must not be asynchronous")
    return client


def _checked_tasks(given: Collections, classes: bool) -> tuple[Callable[[int], Any], Blocks]:
    """Return what makes the task that checks a block, each time under another name, and the blocks of X."""
    import dask

    of_x = blocks_of("X", given.X)
    parts: list[list[Any]] = [of_x.parts]
    for name, values in list(given._asdict().items())[1:]:
        if values is not None and not is_dask(values):
            raise ValueError(f"{name} must be a Dask collection with the blocks of X, got {type(values)!r}")
        own = [None] * len(of_x.parts) if values is None else blocks_of(name, values, of_x.lengths).parts
        if len(own) != len(of_x.parts):
            raise ValueError(f"{name} must have the blocks of X, got {len(own)} blocks beside {len(of_x.parts)} of X")
        parts.append(own)
    check = dask.delayed(checked_block)

    def block(i: int) -> Any:
        return check(i, classes, *(own[i] for own in parts), dask_key_name=f"diht-block-{i}-{uuid4().hex}")

    return block, of_x


def _facts(client: Any, load: Load, homes: dict[int, str]) -> dict[int, Task]:
    """Ask for what is known of blocks, which are loaded for it."""
    asked: dict[int, Task] = {}
    for home in dict.fromkeys(homes.values()):
        numbers = [i for i, own in homes.items() if own == home]
        blocks = load(numbers, home)
        facts = client.map(facts_of, blocks, key=[f"diht-facts-{i}-{uuid4().hex}" for i in numbers])
        asked |= {i: Task(*own) for i, *own in zip(numbers, facts, ([block] for block in blocks), strict=True)}
    return asked


@contextmanager
def loaded(client: Any, given: Collections, classes: bool = False) -> Iterator[RemoteData]:
    """Check all blocks, hold them on the workers and, at the end, let them go.

    Parameters
    ----------
    client : distributed.Client
    given : Collections
    classes : bool
        Whether targets are classes.
    """
    from distributed import futures_of

    block, of_x = _checked_tasks(given, classes)
    held = futures_of(given.X)
    located = {str(key): list(at) for key, at in client.who_has(held).items()} if held else {}
    homes = _homes(of_x, located, list(alive(client)))

    def load(numbers: Sequence[int], home: str) -> list[Any]:
        futures: list[Any] = client.compute([block(i) for i in numbers], workers=[home], allow_other_workers=True)
        return futures

    tasks, homes, known = settled(client, partial(_facts, client, load), homes)
    names = _agreed(known, of_x)
    filled = [i for i, facts in enumerate(known) if facts.n_rows]
    shards = _shards(filled, [homes[i] for i in filled], [known[i].nbytes for i in filled])
    all_classes = _classes([known[i] for i in filled]) if classes else None
    addresses, numbers_of = zip(*shards, strict=True)
    blocks = {i: task.needs[0] for i, task in enumerate(tasks)}
    for task in tasks:
        task.future.release()
    cluster = Cluster(client, load, numbers_of, addresses, blocks, all_classes)
    del tasks, blocks
    try:
        starts = np.cumsum([0, *(facts.n_rows for facts in known)]).tolist()
        ranges = [[(starts[i], starts[i + 1]) for i in own] for own in numbers_of]
        first = known[filled[0]]
        samples = RemoteSamples.of(
            Group(cluster), first.n_columns, first.dtype, first.sparse, effective_n_threads(), ranges
        )
        samples, weight = _normalised(samples)
        known_besides = given.sample_weight is not None, given.offset is not None
        yield RemoteData(samples, names, all_classes, first.n_targets, weight, cluster, *known_besides)
    finally:
        cluster.close()


def _shards(blocks: list[int], addresses: list[str], sizes: list[int]) -> list[tuple[str, list[int]]]:
    """Return the blocks of each shard, with its worker: one for each worker, several of large ones, which may move later."""
    shards = []
    for address in dict.fromkeys(addresses):
        own = [at for at, there in enumerate(addresses) if there == address]
        n_runs = int(np.clip(sum(sizes[at] for at in own) // _LARGE, 1, _MOST_SHARDS))
        runs = even_runs([sizes[at] for at in own], n_runs)
        shards += [(address, [blocks[own[j]] for j in run]) for run in runs]
    return shards


def _homes(blocks: Blocks, located: dict[str, list[str]], workers: list[str]) -> list[str]:
    """Return the worker of each block: where it is, or else such that each has a run of them."""
    sizes = blocks.lengths or [1] * len(blocks.parts)
    even = {i: workers[j] for j, run in enumerate(even_runs(sizes, len(workers))) for i in run}
    found = (located.get(str(part.key)) for part in blocks.parts)
    return [at[0] if at else even[i] for i, at in enumerate(found)]


def _agreed(known: list[BlockFacts], blocks: Blocks) -> tuple[str, ...] | None:
    """Check that all blocks have the same columns and types, and that there are rows; return the names of the columns."""
    filled = [(i, facts) for i, facts in enumerate(known) if facts.n_rows]
    if not filled or filled[0][1].n_columns == 0:
        raise ValueError("X must have at least one row and one column")
    first, *others = filled
    for i, facts in others:
        for what in ("n_columns", "dtype", "sparse", "names", "n_targets"):
            one, other = getattr(first[1], what), getattr(facts, what)
            if one != other:
                called = _CALLED.get(what, what)
                raise ValueError(
                    f"all blocks must have the same {called}, got {one} in block {first[0]} and {other} in block {i}"
                )
    names = blocks.names or first[1].names
    return names if names is not None and all(isinstance(name, str) for name in names) else None


def _classes(known: list[BlockFacts]) -> Array:
    """Return the classes of all blocks."""
    classes = np.unique(np.concatenate([facts.classes for facts in known if facts.classes is not None]))
    if len(classes) < 2:
        raise ValueError(f"y must hold at least two classes, got only one class: {classes.tolist()[0]!r}")
    return classes


def _normalised(samples: RemoteSamples) -> tuple[RemoteSamples, float]:
    """Divide the weights by their sum, and return it."""
    largest = samples.heaviest
    if largest == 0.0:
        raise ValueError("sample_weight must not be all zero")
    total = sum(samples.each(lambda y, s: float((s / largest).sum())))
    return samples.with_weights(samples.map(lambda y, s: s / largest / total)), largest * total


def loaded_here(given: Collections, classes: bool = False) -> Collections:
    """Compute all blocks in this process, where there is no client: X as a design, the others as arrays."""
    import dask

    block, of_x = _checked_tasks(given, classes)
    found: list[tuple[Block, BlockFacts]] = list(dask.compute(*map(block, range(len(of_x.parts)))))
    names = _agreed([facts for _, facts in found], of_x)
    blocks = [block for block, facts in found if facts.n_rows]
    design = row_blocks([block.X for block in blocks])
    design.feature_names = names
    weights = None if given.sample_weight is None else np.concatenate([block.weights for block in blocks])
    offset = None if given.offset is None else np.concatenate([block.offset for block in blocks])
    return Collections(design, np.concatenate([block.y for block in blocks]), weights, offset)

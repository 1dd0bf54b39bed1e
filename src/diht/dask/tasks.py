"""Tasks on workers of a client's choice: what is lost with a worker is asked for again elsewhere, under a new name.

The scheduler gives the tasks of a lost worker to others, but for those that find no worker at all at that moment: they wait for the
one that they were meant for, also when others have joined, and so does all that is later found to need them, under whatever name.
So nothing is left to the scheduler after a loss: what is not there yet is cancelled, with which it forgets what that needed, and is
asked for again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any, NamedTuple

__all__ = ["LOOK", "MOST_LOSSES", "Task", "WorkersLostError", "alive", "settled"]

LOOK = 2.0  # seconds after which workers are looked for that are lost
MOST_LOSSES = 20  # of the same rows in a row
# How long to wait for a worker where none is left, unless Dask's configuration has "diht.lost-workers-timeout".
_PATIENCE = "30 s"


class WorkersLostError(RuntimeError):
    """No worker is left, or rows are lost over and over."""


class Task(NamedTuple):
    """What a worker was asked for.

    Attributes
    ----------
    future : Future
    needs : list of Future
        What it follows from, held for it alone.
    """

    future: Any
    needs: list[Any]


def alive(client: Any) -> dict[str, int]:
    """Return the workers with their threads, once there are any."""
    import dask
    from dask.utils import parse_timedelta

    patience = parse_timedelta(dask.config.get("diht.lost-workers-timeout", _PATIENCE))
    end = monotonic() + patience
    while not (found := client.ncores()):
        left = end - monotonic()
        if left <= 0.0:
            raise WorkersLostError(f"all Dask workers are lost, and none came back within {patience:g} s")
        try:
            client.wait_for_workers(1, timeout=left)
        except TimeoutError:
            continue
    return dict(found)


def settled(
    client: Any, ask: Callable[[dict[int, str]], Mapping[int, Task]], homes: Sequence[str], others: Iterable[str] = ()
) -> tuple[list[Task], list[str], list[Any]]:
    """Ask for tasks on the workers that are their homes, until all are done; return them, their homes and their results.

    Parameters
    ----------
    client : distributed.Client
    ask : callable
        Submits tasks, under new names, given the home of each number.
    homes : sequence of str
        An address for each task; of those that are lost another one is taken.
    others : iterable of str
        The homes of other tasks: the worker with the fewest is taken.
    """
    homes, tasks, others = list(homes), {}, list(others)  # type: ignore[var-annotated]
    for _ in range(MOST_LOSSES):
        homes = _rehomed(homes, others, alive(client))
        tasks |= ask({i: home for i, home in enumerate(homes) if i not in tasks})
        futures = [tasks[i].future for i in range(len(homes))]
        results = _results(client, futures, homes)
        if results is not None:
            return [tasks[i] for i in range(len(homes))], homes, results
        there = client.ncores()
        lost = [i for i, future in enumerate(futures) if homes[i] not in there or future.status != "finished"]
        _cancel(client, [tasks.pop(i) for i in lost])
    raise WorkersLostError(f"some rows were lost with their Dask workers {MOST_LOSSES} times in a row")


def _results(client: Any, futures: list[Any], homes: list[str]) -> list[Any] | None:
    """Return what futures come to, None where a worker is lost before."""
    from distributed import KilledWorker, wait

    while True:
        error = None
        try:
            wait(futures, timeout=LOOK)
            return list(client.sync(_gathered, client, futures, callback_timeout=10.0 * LOOK))
        except TimeoutError:
            pass
        except Exception as raised:
            error = raised
        if isinstance(error, KilledWorker) or not client.ncores().keys() >= set(homes):
            return None
        if error is not None:
            raise error


async def _gathered(client: Any, futures: list[Any]) -> Any:
    return await client.gather(futures, asynchronous=True)


def _rehomed(homes: list[str], others: list[str], workers: dict[str, int]) -> list[str]:
    """Return homes that are alive: for each that is not the worker with the fewest tasks."""
    crowd, found = Counter(dict.fromkeys(workers, 0)), []
    crowd.update(home for home in (*homes, *others) if home in workers)
    for home in homes:
        if home not in workers:
            home = min(crowd, key=lambda address: crowd[address])
            crowd[home] += 1
        found.append(home)
    return found


def _cancel(client: Any, tasks: list[Task]) -> None:
    """Make the scheduler forget tasks; what follows from others is to go first."""
    client.cancel([task.future for task in tasks])
    client.cancel([need for task in tasks for need in task.needs])

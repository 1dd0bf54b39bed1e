"""Run the cells of a figure, each once: what the table has already is not measured again."""

from __future__ import annotations

import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread
from time import perf_counter
from types import TracebackType
from typing import Any, ClassVar

from diht.experiments.table import FILE, Row, append_rows, environment, read_rows

__all__ = ["Cell", "Progress", "Runner", "opened"]


class Cell(ABC):
    """A piece of a figure that is measured and written as a whole: a small frozen object whose fields say all of it."""

    timed: ClassVar[bool] = True  # whether it measures a clock, and has to have the machine for itself

    @property
    @abstractmethod
    def key(self) -> dict[str, Any]:
        """Return the columns, with their values, that all rows of the cell have and no others."""

    @property
    @abstractmethod
    def cost(self) -> float:
        """Return about how long it takes, in a unit that all cells of a figure share."""

    @abstractmethod
    def measure(self) -> Iterable[Row]:
        """Do the work; all that is random follows from the fields."""

    def owns(self, row: Row) -> bool:
        """Tell whether a row is the cell's."""
        return all(getattr(row, name) == value for name, value in self.key.items())

    def __str__(self) -> str:
        """Say in a few words which one it is."""
        return ", ".join(value if isinstance(value, str) else f"{name} = {value}" for name, value in self.key.items())


@contextmanager
def opened(folder: Path) -> Iterator[Path]:
    """Make a folder for results, for this process alone, and return the path of the table in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"argument --out: {folder} cannot be made: {error.strerror}") from None
    with open(folder / ".lock", "w") as lock:
        if not _locked(lock.fileno()):
            raise ValueError(f"argument --out: another run is writing to {folder}")
        for left in folder.glob(".*.tmp"):  # by a run that was killed
            left.unlink()
        yield folder / FILE


def _locked(file: int) -> bool:
    """Lock an open file until the process ends, however it does; True where there are no such locks."""
    if find_spec("fcntl") is None:
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@dataclass
class Runner:
    """Run cells and keep their rows in one table.

    Parameters
    ----------
    path : Path
        The table.
    mode : str
        "quick" or "full".
    jobs : int
        How many cells without a clock run side by side.
    """

    path: Path
    mode: str
    jobs: int = 1
    rows: list[Row] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = read_rows(self.path)
        own = (self.mode, environment()["version"])
        other = next((row for row in self.rows if (row.mode, row.version) != own), None)
        if other is not None:
            raise ValueError(
                f"argument --out: {self.path} has results of a --{other.mode} run of version {other.version}, not of a "
                f"--{own[0]} run of version {own[1]}: choose another folder"
            )

    def run(self, cells: Sequence[Cell], progress: Progress) -> None:
        """Measure the cells that are not in the table, and add each to it as soon as it is done."""
        pending = [cell for cell in cells if not any(map(cell.owns, self.rows))]
        progress.begin(cells, pending, self.jobs)
        for cell, rows in self._measured(pending):
            stamp = environment()
            append_rows(self.path, [replace(row, mode=self.mode, **stamp) for row in rows])
            self.rows = read_rows(self.path)
            progress.advance(cell)

    def _measured(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, list[Row]]]:
        side_by_side = [cell for cell in cells if not cell.timed] if self.jobs > 1 else []
        if len(side_by_side) > 1:
            yield from _in_processes(side_by_side, self.jobs)
        else:
            side_by_side = []
        for cell in cells:
            if cell not in side_by_side:
                yield cell, list(cell.measure())


def _in_processes(cells: Sequence[Cell], jobs: int) -> Iterator[tuple[Cell, list[Row]]]:
    """Measure cells in processes of their own, the longest first, and give each back when it is done."""
    # A forked child would share the parent's threads' locks, but not its threads.
    with ProcessPoolExecutor(min(jobs, len(cells)), get_context("spawn"), initializer=_follow_parent) as pool:
        try:
            longest_first = sorted(cells, key=lambda cell: -cell.cost)
            running: dict[Future[list[Row]], Cell] = {pool.submit(_measure, cell): cell for cell in longest_first}
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                child.terminate()
            raise


def _measure(cell: Cell) -> list[Row]:
    return list(cell.measure())


def _follow_parent() -> None:
    """End with the parent, even if that is killed, and at once on Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


# ----------------------------------------------------------------------------------------------------- progress


class Progress:
    """Tell how far a figure is and about how long the rest takes: a bar at a terminal with rich, else a line a cell."""

    def __init__(self, figure: str, shown: bool = True) -> None:
        self.figure, self.shown = figure, shown
        self._bar: Any = None
        self._start, self._done, self._cost, self._left, self._count, self._total = 0.0, 0.0, 0.0, 0.0, 0, 0

    def __enter__(self) -> Progress:
        if self.shown and sys.stderr.isatty() and find_spec("rich") is not None:
            from rich.console import Console
            from rich.live import Live

            self._bar = Live(console=Console(stderr=True, highlight=False), transient=True, refresh_per_second=4)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, cells: Sequence[Cell], pending: Sequence[Cell], jobs: int) -> None:
        """Learn what there is to do."""
        self._start = perf_counter()
        self._left = sum(cell.cost for cell in pending)
        self._count, self._total = len(cells) - len(pending), len(cells)
        found = f"{self._count} of them found in the table" if self._count else ""
        self._show(", ".join(filter(None, [f"{len(cells)} cells", found])), "")

    def advance(self, cell: Cell) -> None:
        """Count a cell as done."""
        self._count += 1
        self._done, self._left = self._done + cell.cost, self._left - cell.cost
        seconds = perf_counter() - self._start
        left = seconds * max(self._left, 0.0) / self._done if self._done else 0.0
        rest = f"about {spoken_time(left)} left" if self._count < self._total else f"done in {spoken_time(seconds)}"
        self._show(f"{self._count}/{self._total}  {str(cell).removeprefix(self.figure + ', ')}", rest)

    def _show(self, what: str, rest: str) -> None:
        line = "  ".join(filter(None, [f"{self.figure:<6}", what, rest]))
        if self._bar is not None:
            self._bar.update(_bar(line, self._count / max(self._total, 1)))
        elif self.shown:
            print(line, file=sys.stderr, flush=True)


def _bar(line: str, fraction: float) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    return Group(ProgressBar(total=1.0, completed=fraction, width=60), Text(line, no_wrap=True, overflow="ellipsis"))


def spoken_time(seconds: float) -> str:
    """Return a duration in words, no finer than it is worth."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"

"""A line at the terminal that shows the two bounds closing in while a solve runs."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any

from diht.numerics.compiling import MESSAGE, announced
from diht.numerics.digits import percent, shown
from diht.numerics.traffic import Traffic, watched
from diht.report.text import printable

if TYPE_CHECKING:
    from diht.result import Iterate

__all__ = ["LiveLine"]


class LiveLine:
    """A context in which each evaluation replaces the line of the one before; it leaves nothing behind.

    Silent where it is not wanted, where standard output or standard error is no terminal, and without rich.
    """

    def __init__(self, wanted: bool = True) -> None:
        terminal = sys.stdout.isatty() and sys.stderr.isatty()
        self._shown = wanted and terminal and find_spec("rich") is not None
        self._live: Any = None
        self._last: Any = None
        self._listening = ExitStack()

    def __enter__(self) -> LiveLine:
        if self._shown:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._live = Live(
                console=console, transient=True, refresh_per_second=8, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
            self._listening.enter_context(announced(self.compiling))
            self._listening.enter_context(watched(self.reading))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        if self._live is not None:
            self._live.stop()

    def compiling(self) -> None:
        """Show that kernels are being compiled, until the next evaluation."""
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text(MESSAGE, style="dim"), refresh=True)

    def reading(self, traffic: Traffic) -> None:
        """Show how much has been read from disk beside the figures of the last evaluation."""
        if self._live is not None:
            from rich.text import Text

            self._live.update(Text.assemble(self._last or "", (f"  {traffic}", "dim")))

    def __call__(self, iterate: Iterate, label: str = "") -> bool:
        """Show the figures of an evaluation; False, for this is no reason to stop."""
        if self._live is None:
            return False
        from rich.text import Text

        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{printable(label, 20)}  " if label else "", style="bold")
        line.append(f"step {iterate.iteration:,}  ")
        figure = shown(iterate.best_objective, iterate.best_bound)
        line.append(f"objective {figure.objective}  ", style="blue")
        line.append(f"bound {figure.lower_bound}  ", style="yellow")
        line.append(f"gap {percent(iterate.relative_gap)}  ", style="bold")
        line.append("" if iterate.n_open is None else f"{iterate.n_open:,} open nodes  ")
        line.append(f"{iterate.seconds:.0f} s  (Ctrl-C: stop and report)", style="dim")
        self._last = line
        self._live.update(line)
        return False

"""Ctrl-C: once to stop and report, twice to quit."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupt"]


class Interrupt:
    """A context in which the first Ctrl-C only asks to stop; calling it tells whether that happened."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __call__(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self.asked

    def __enter__(self) -> Interrupt:
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # in the background of a shell
        if threading.current_thread() is threading.main_thread() and not ignored:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

"""Ctrl-C: once to stop and keep what was found, twice to quit."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType, TracebackType
from typing import Any, ClassVar

__all__ = ["Interrupt", "interruptible", "not_interruptible"]

_SOON = 3.0  # seconds after one Ctrl-C in which another counts as the second, though it meets the next of many fits


class Interrupt:
    """A context in which the first Ctrl-C only asks to stop; calling it tells whether that happened.

    It changes nothing in threads other than the main one, and where the signal is ignored (in the background of a shell) or has a
    handler of the program's own. Within another such context, or one of `not_interruptible`, it changes nothing either.
    """

    _outer: ClassVar[Interrupt | None] = None  # of the main thread; a class attribute, since there is one such thread
    _last: ClassVar[float] = -_SOON  # when a Ctrl-C was last taken for a wish to stop

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __call__(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return self.asked

    def __enter__(self) -> Interrupt:
        if _in_main_thread() and Interrupt._outer is None:
            Interrupt._outer = self
            if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = monotonic()
        if self.asked or now - Interrupt._last < _SOON:
            raise KeyboardInterrupt
        self.asked, Interrupt._last = True, now

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if Interrupt._outer is self:
            Interrupt._outer = None
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def interruptible(kept: str, stacklevel: int = 4) -> Iterator[Callable[[], bool]]:
    """Give what tells whether Ctrl-C was pressed; where nobody around it listens, end with a warning that says what is kept.

    The default `stacklevel` is that of the caller of the function with this context.
    """
    outer = Interrupt._outer if _in_main_thread() else None
    if outer is not None:
        yield outer
        return
    with Interrupt() as interrupt:
        yield interrupt
    if interrupt.asked:
        warnings.warn(f"stopped by Ctrl-C: {kept}; a second Ctrl-C interrupts", UserWarning, stacklevel=stacklevel)


@contextmanager
def not_interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt at once what would go on with the next of many fits."""
    if not _in_main_thread() or Interrupt._outer is not None:
        yield
        return
    Interrupt._outer = Interrupt()  # installs no handler
    try:
        yield
    finally:
        Interrupt._outer = None

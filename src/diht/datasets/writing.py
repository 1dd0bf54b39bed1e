"""Write files whole or not at all."""

from __future__ import annotations

import io
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["atomic_write", "write_files"]


def write_files(files: Mapping[str, bytes]) -> None:
    """Write several files, by their paths; none takes its place before all of them are on the disk."""
    with ExitStack() as stack:
        for path, content in files.items():
            file = stack.enter_context(atomic_write(path))
            file.write(content)
            _flush(file, path)


class _Named(io.FileIO):
    """A file whose errors name the path that was asked for, whichever call it is that empties a buffer into it."""

    def __init__(self, written: str, mode: str, asked: str) -> None:
        super().__init__(written, mode)
        self._asked = asked

    def write(self, data: ReadableBuffer, /) -> int:
        with _naming(self._asked):
            return super().write(data)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing bytes that takes its place at `path` only when all of it is written.

    A temporary file in the same folder is flushed to the disk and then renamed, so a reader finds the old file or
    the new one, never a part.  If the block raises, the temporary file is removed and `path` is as it was.  Links are
    followed, the permissions of a file that is replaced are kept, and what is no plain file (``/dev/stdout``) is
    written directly.

    Raises
    ------
    OSError
        In one line that names `path`.

    Examples
    --------
    >>> with atomic_write("model.json") as file:  # doctest: +SKIP
    ...     file.write(b"{}")
    """
    name = os.fspath(path)
    real = os.path.realpath(name)
    if os.path.isdir(real):
        raise IsADirectoryError(f"{name}: is a directory")
    special = os.path.exists(real) and not os.path.isfile(real)
    written = real if special else os.path.join(os.path.dirname(real), f".{secrets.token_hex(8)}.tmp")
    with _naming(name):
        file = io.BufferedWriter(_Named(written, "wb" if special else "xb", name))
    try:
        with file:
            yield file
            if not special:
                _flush(file, name)
        if not special:
            _replace(written, real, name)
    except BaseException:
        if not special:
            with suppress(OSError):
                os.unlink(written)
        raise


def _flush(file: BinaryIO, name: str) -> None:
    with _naming(name):
        file.flush()
        os.fsync(file.fileno())


def _replace(written: str, real: str, name: str) -> None:
    with _naming(name):
        if os.path.exists(real):
            os.chmod(written, stat.S_IMODE(os.stat(real).st_mode))
        os.replace(written, real)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the file that was asked for, not the temporary one."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:  # named already
            raise
        raise type(error)(f"{name}: cannot be written: {error.strerror}") from None

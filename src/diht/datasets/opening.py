"""Open plain and compressed files as streams of bytes, with errors that name the file."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

__all__ = ["COMPRESSIONS", "check_exists", "line_blocks", "one_line", "opened"]

COMPRESSIONS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz"}
_OPENERS: dict[str, Callable[[str], object]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def check_exists(path: str) -> None:
    """Raise unless `path` is something that can be read as a file."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: no such file")
    if os.path.isdir(path):
        raise ValueError(f"{path}: is a directory, neither a file nor a data set that convert has finished")


def one_line(error: BaseException) -> str:
    """Return what an error says in one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed as its name says.

    Damage to the compressed stream shows only while it is read, inside the ``with`` block; it is turned into a
    ValueError here all the same.
    """
    suffix = os.path.splitext(path)[1].lower()
    kind = COMPRESSIONS.get(suffix)
    try:
        with cast(BinaryIO, _OPENERS[suffix](path) if kind else open(path, "rb")) as stream:
            yield stream
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{path}: truncated or damaged {kind} stream ({error})") from None
    except OSError as error:
        if error.errno is None:  # not the operating system: the decompressor says what it found
            raise ValueError(f"{path}: not a {kind} file, or a damaged one ({error})") from None
        raise type(error)(f"{path}: {error.strerror}") from None


def line_blocks(stream: BinaryIO, size: int = 1 << 21) -> Iterator[bytes]:
    r"""Yield the stream in blocks of about `size` bytes, each of whole lines and ending in ``\n``."""
    pieces: list[bytes] = []
    while block := stream.read(size):
        cut = block.rfind(b"\n") + 1
        pieces.append(block[:cut] if cut else block)
        if cut:
            yield b"".join(pieces)
            pieces = [block[cut:]]
    if last := b"".join(pieces):
        yield last + b"\n"

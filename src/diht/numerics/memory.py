"""How much memory is free, asked before much of it is taken."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

__all__ = ["NotEnoughMemoryError", "features_bytes", "free_memory", "require_memory"]

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")
_MUCH = 2**26  # bytes from which on it is asked what is free
_VECTORS = 10  # with an entry for each feature that a fit holds at once, at least: means, norms, coefficients, costs


class NotEnoughMemoryError(ValueError):
    """What was asked for does not fit into the free memory; nothing has been allocated for it."""


def features_bytes(n_features: int) -> float:
    """Return what a fit with so many features takes at least, besides the samples."""
    return 8.0 * _VECTORS * n_features


def require_memory(needed: float, what: str) -> None:
    """Raise `NotEnoughMemoryError` where so many bytes are more than what is free; `what` is the line up to the figures."""
    if needed > _MUCH and needed > (free := free_memory()):
        raise NotEnoughMemoryError(f"{what} need about {_in_words(needed)} of memory, where {_in_words(free)} are free")


def free_memory() -> float:
    """Return the bytes that this process can still take without being stopped; infinity where no limit is known.

    On Linux what the kernel calls available, with what is left to swap, or less where a control group (a container, a job) has a
    limit; elsewhere the free or, failing that, all physical pages.
    """
    return min(_available(), *_left_in_groups(), math.inf)


def _available() -> float:
    with suppress(OSError, ValueError, KeyError):
        sizes = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        return sum(1024.0 * int(sizes[name].split()[0]) for name in ("MemAvailable", "SwapFree"))
    for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES"):
        with suppress(OSError, ValueError, AttributeError):  # no such figure, or no sysconf at all
            pages, size = os.sysconf(name), os.sysconf("SC_PAGE_SIZE")
            if pages > 0 and size > 0:
                return float(pages) * size
    return math.inf


def _left_in_groups() -> Iterator[float]:
    """Yield what the limits of the process's control groups, version 2 and 1, and of those around them leave."""
    with suppress(OSError, ValueError):
        for line in _CGROUP.read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                yield from _left(_CGROUPS, path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
                yield from _left(_CGROUPS / "memory", path, *files)


def _left(root: Path, path: str, limit: str, usage: str, reclaimable: str) -> Iterator[float]:
    group = PurePosixPath(path)
    for inner in (group, *group.parents):
        folder = root / inner.relative_to("/")
        with suppress(OSError, ValueError):  # not there, or "max"
            most, used = int((folder / limit).read_text()), int((folder / usage).read_text())
            cached = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            yield max(0.0, float(most - used + int(cached.get(reclaimable, 0))))


def _in_words(size: float) -> str:
    """Return a number of bytes as people write it."""
    return f"{size / 1e9:,.3g} GB" if size >= 1e8 else f"{size / 1e6:,.3g} MB"

"""Ratios of times, measured side by side in one run: the median over interleaved repetitions."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from statistics import median
from time import perf_counter

import numba
import numpy as np
import scipy


@dataclass(frozen=True)
class Row:
    """One line of a table: what was timed, its seconds, the yardstick's seconds, their ratio with its quartiles."""

    name: str
    seconds: float
    yardstick: float
    ratio: float
    low: float
    high: float


def seconds(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _warm_seconds(work: Callable[[], object]) -> float:
    work()
    return seconds(work)


def median_ratio(
    work: Callable[[], object], yardstick: Callable[[], object], repeats: int
) -> tuple[float, float, float, float, float]:
    """Time both in turn, so that what else the machine does hits both alike; each finds its data in the caches."""
    pairs = [(_warm_seconds(work), _warm_seconds(yardstick)) for _ in range(repeats)]
    ratios = [a / b for a, b in pairs]
    low, high = np.quantile(ratios, [0.25, 0.75])
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(ratios), float(low), float(high)


def machine() -> str:
    """The machine in words, without its name."""
    import os

    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}, numba {numba.__version__}, {date.today().isoformat()}"
    )

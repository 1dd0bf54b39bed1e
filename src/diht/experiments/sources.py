"""The text data sets of figures 2 to 5."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from diht.datasets import fetch_imdb, fetch_news20, fetch_rcv1, rcv1_standin

__all__ = ["STANDIN", "Source", "found"]

STANDIN = "rcv1 stand-in"

_FETCH: dict[str, Callable[..., Any]] = {"news20": fetch_news20, "rcv1": fetch_rcv1, "imdb": fetch_imdb}


@dataclass(frozen=True)
class Source:
    """A data set, how many of its rows are used (None: all), and the folder where it is looked for."""

    name: str
    n: int | None = None
    home: str | None = None

    def load(self) -> tuple[Any, Any]:
        """Return X and y; the last data set is kept, for cells of one data set come one after the other."""
        return _load(self)


@lru_cache(maxsize=1)
def _load(source: Source) -> tuple[Any, Any]:
    if source.name == STANDIN:
        bunch = rcv1_standin() if source.n is None else rcv1_standin(n=source.n)
        return bunch.data, bunch.target
    X, y = _FETCH[source.name](data_home=source.home, return_X_y=True)
    if source.n is None or source.n >= len(y):
        return X, y
    rows = np.sort(np.random.default_rng(0).permutation(len(y))[: source.n])
    return X[rows], y[rows]


def found(name: str, n: int | None, home: str | None, download: bool) -> tuple[Source | None, str]:
    """Return a data set that can be loaded, and a remark: the stand-in in the place of RCV1, None in that of another."""
    try:
        _FETCH[name](data_home=home, download_if_missing=download)
    except OSError as error:
        if name == "rcv1":
            return Source(STANDIN, n), f"a generated stand-in takes the place of RCV1: {error}"
        return None, f"{name} is left out: {error}"
    return Source(name, n, home), ""

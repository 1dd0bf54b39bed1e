"""``diht reproduce``: the paper's figures, measured again."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from diht.commands import warn
from diht.experiments import estimation, gaps, theorem, timing
from diht.experiments.page import write_page
from diht.experiments.runner import Cell, Progress, Runner, opened
from diht.experiments.sources import Source, found
from diht.numerics.interrupt import not_interruptible

__all__ = ["FIGURES", "cells_of", "reproduce"]

FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5", "theory")
PAGE = "index.html"

_DATA = ("rcv1", "news20", "imdb")
_QUICK_ROWS = {"rcv1": 15_000, "news20": 3_000, "imdb": 15_000}
_RCV1_ROWS = 500_000  # of the paper


@not_interruptible()
def reproduce(arguments: argparse.Namespace) -> None:
    """Measure the figures that were asked for and are not in the table yet; write the page after each."""
    unknown = [figure for figure in arguments.figures if figure not in FIGURES]
    if unknown:
        raise ValueError(f"argument FIGURE: must be one of {', '.join(FIGURES)}, got {unknown[0]!r}")
    figures = [figure for figure in FIGURES if figure in (arguments.figures or FIGURES)]
    mode = "full" if arguments.full else "quick"
    folder = Path(arguments.out)
    with opened(folder) as table:
        runner = Runner(table, mode, arguments.jobs or os.cpu_count() or 1)
        sources = _sources(figures, mode, arguments.data)
        for figure in figures:
            with Progress(figure, not arguments.quiet) as progress:
                runner.run(cells_of(figure, mode, sources), progress)
            write_page(runner.rows, folder / PAGE)
    print(f"Written: {table}, {folder / PAGE}")


def cells_of(figure: str, mode: str, sources: Sequence[Source]) -> list[Cell]:
    """Return the cells of a figure."""
    full = mode == "full"
    if figure == "fig1":
        return estimation.cells(estimation.FULL if full else estimation.QUICK)
    if figure == "theory":
        return theorem.cells(theorem.FULL if full else theorem.QUICK)
    if figure in ("fig2", "fig4"):
        return timing.cells(figure, sources, timing.FULL if full else timing.QUICK)
    return gaps.cells(figure, sources, gaps.FULL if full else gaps.QUICK)


def _sources(figures: Sequence[str], mode: str, home: str | None) -> list[Source]:
    """Return the data sets that there are; a full run may download, a quick one takes what is there."""
    if not set(figures) - {"fig1", "theory"}:
        return []
    if home is not None and not os.path.isdir(home):
        raise ValueError(f"argument --data: {home} is no folder")
    full = mode == "full"
    rows = {"rcv1": _RCV1_ROWS} if full else _QUICK_ROWS
    found_or_not = [found(name, rows.get(name), home, download=full) for name in _DATA]
    for _, remark in found_or_not:
        if remark:
            warn(remark)
    return [source for source, _ in found_or_not if source is not None]

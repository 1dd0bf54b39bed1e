"""The library beside other packages: `python benchmarks/compare.py [--quick]`.

Runs the benchopt benchmark in `comparison` and writes what came out, `peers.md` with `figures/peers.svg`, to the folder --out.
Real data come from the folder that DIHT_DATA names, other packages from the interpreter that DIHT_PEERS names (this one without
it); what is absent is left out. --results FILE ... writes the page of earlier runs.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "comparison"))  # which knows the way to this folder, too

import pandas as pd
from benchmark_utils.judge import SAME

from diht.datasets import atomic_write
from diht.experiments.charts import METHODS, Chart, Series, sheet
from measure import machine
from peers import LEEWAY, MEMORY, ONE_THREAD, PEERS

COMPARISON = Path(__file__).resolve().parent / "comparison"
OURS = {
    "auto": "auto",
    "diht": "DIHT",
    "sdiht": "SDIHT",
    "iht": "IHT",
    "htp": "HTP",
    "svrght": "SVR-GHT",
    "branch": "branch and bound",
}
SHOWN = 5  # peers in a panel, the best ones
SHORTEST = 1e-3  # seconds that can be measured
PALETTE = ("#0072b2", "#d55e00", "#a07800", "#00805d", "#a83f95", "#767676", "#8c4a2f", "#4b5fd1")
SHAPES = ("diamond", "triangle", "square", "cross", "plus")
INTRO = """\
# Beside other packages

`python benchmarks/compare.py` measures this again; `--quick` takes one instance of most data sets.
Instances here: {instances}{several}.

Every solver gets the same data, k and lam. What is compared is the objective after the same accurate refit on the support that it
found, so that nobody wins or loses by a tolerance. "Above the best" is the relative distance to the best objective that any solver
found; {same:g} or less counts as the same.

- One thread each; all seconds are those of the processor. A solver has {limit} of them for an instance: a package starts no new
  setting after that, is killed after {leeway:g} times that, and may take {memory:.0f} GiB of memory.
- Other packages get the ridge as exactly as they can take it and several settings each (`benchmarks/peers.py`). The best support
  counts, with the seconds of the setting that found it alone, without imports, reading of data and, for those that compile once,
  compiling. skscope compiles for every problem: that is part of its time. Packages that penalise features instead of counting
  them run along a path, or bisect, to k features; skglm has the MCP for the squared loss and the lasso for the logistic one.
- Our seconds include the making of the problem, without compiling; the clock stops while an iterate is judged.
- `pip install '.[bench]'` brings benchopt, abess, skscope, fastsparsegams (L0Learn) and skglm. adelie and okridge ask for numpy 1:
  `pip install --no-deps` takes them nevertheless, or DIHT_PEERS names an interpreter that has them; l0bnb and el0ps likewise.
  DIHT_DATA names the folder of the real data.

Measured on {machine}.
"""


# ---------------------------------------------------------------------------------------------------------------------
# Running


def run(quick: bool) -> Path:
    """Run the benchmark and return the file of its results."""
    name = f"{'quick' if quick else 'full'}-{datetime.now():%Y-%m-%d-%H-%M-%S}"
    config = COMPARISON / ("quick.yml" if quick else "full.yml")
    command = [sys.executable, "-m", "benchopt", "run", str(COMPARISON), "-l", "--no-display", "--no-cache"]
    command += ["--config", str(config), "--output", name]
    subprocess.run(command, check=True, env={**os.environ, **ONE_THREAD})
    return COMPARISON / "outputs" / f"{name}.parquet"


# ---------------------------------------------------------------------------------------------------------------------
# Reading


@dataclass(frozen=True)
class Run:
    """One solver on one instance: seconds and objectives in order, and the rest of its last judgement."""

    name: str
    ours: bool
    seconds: tuple[float, ...]
    values: tuple[float, ...]
    gap: float
    test: float
    failure: str

    @property
    def value(self) -> float:
        """The best objective; infinite where nothing was found."""
        return min(self.values, default=math.inf)

    def to(self, value: float) -> float:
        """Seconds to an objective that is the same as, or better than, the given one; infinite where it was not reached."""
        good = (t for t, v in zip(self.seconds, self.values, strict=True) if v <= value + SAME * abs(value))
        return min(good, default=math.inf)


@dataclass(frozen=True)
class Panel:
    """All runs on one instance."""

    name: str
    runs: tuple[Run, ...]

    @property
    def best(self) -> float:
        """The best objective of all."""
        return min(run.value for run in self.runs)

    @property
    def auto(self) -> Run:
        """The run that the others are compared with: our default's."""
        return next(run for run in self.runs if run.ours and run.name == OURS["auto"])

    @property
    def peers(self) -> list[Run]:
        """Those of others that found something, the best first, of equally good ones the fastest."""
        found = [run for run in self.runs if not run.ours and math.isfinite(run.value)]
        same = min((run.value for run in found), default=math.inf) * (1 + SAME)
        return sorted(found, key=lambda run: (max(run.value, same), run.seconds[-1]))

    def above(self, run: Run) -> float:
        """Relative distance to the best objective."""
        return (run.value - self.best) / max(abs(self.best), 1e-300)


def merged(runs: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """All runs as one: where a later run repeats a solver on an instance, only what the later one says counts."""
    names = ["dataset_name", "solver_name"]
    table = runs[0]
    for later in runs[1:]:
        again = table.set_index(names).index.isin(later.set_index(names).index)
        table = pd.concat([table[~again], later])
    return table


def panels(table: pd.DataFrame) -> list[Panel]:
    """The instances in the order in which they were run."""
    found = []
    for _, rows in table.groupby("dataset_name", sort=False):
        runs = tuple(_run(of_solver) for _, of_solver in rows.groupby("solver_name", sort=False))
        found.append(Panel(_instance(rows.iloc[0]), runs))
    return found


def _instance(row: pd.Series) -> str:
    settings = {name: row[f"p_dataset_{name}"] for name in ("n", "k", "lam") if f"p_dataset_{name}" in row.index}
    named = ", ".join(f"{'N' if name == 'n' else name} = {x:g}" for name, x in settings.items() if not pd.isna(x))
    return f"{row['dataset_name'].split('[')[0]}, {named}"


def _run(rows: pd.DataFrame) -> Run:
    last = rows.iloc[-1]
    ours = last["solver_name"].startswith("diht")
    kept = rows[rows["objective_value"].notna()]
    return Run(
        OURS[last["p_solver_method"]] if ours else last["p_solver_package"],
        ours,
        tuple(kept["objective_seconds"].clip(lower=SHORTEST)),
        tuple(kept["objective_value"].cummin()),
        last["objective_relative_gap"],
        last["objective_test_score"],
        last["objective_failure"],
    )


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def page(found: Sequence[Panel], limit: float, runs: int) -> Iterator[str]:
    """Lines of the page."""
    facts = {"same": SAME, "limit": f"{limit:g}", "leeway": LEEWAY, "memory": MEMORY / 2**30}
    several = f"; {runs} runs, of which the later ones repeated some solvers" if runs > 1 else ""
    yield INTRO.format(instances=len(found), several=several, machine=machine(), **facts)
    yield from verdict(found)
    yield "\n![Objective against time, one panel an instance](figures/peers.svg)\n"
    yield "## Who is best\n"
    yield from best_table(found)
    yield "\n## Everyone: above the best; seconds\n"
    yield "An empty cell: the package does not take such data or such a loss, or is not installed.\n"
    yield from full_table(found)
    tests = [panel for panel in found if not math.isnan(panel.auto.test)]
    if tests:
        yield "\n## Test scores (share of right answers)\n"
        yield from test_table(tests)
    yield "\n## Who failed, and how\n"
    yield from failures(found)


def verdict(found: Sequence[Panel]) -> Iterator[str]:
    """What the tables say, in a few lines."""
    with_peers = [panel for panel in found if panel.peers]
    behind = [panel.name for panel in with_peers if panel.auto.value > panel.peers[0].value * (1 + SAME)]
    slower = [panel for panel in with_peers if panel.auto.to(panel.peers[0].value) > panel.peers[0].seconds[-1]]
    alone = [panel.name for panel in with_peers if panel.peers[0].value > panel.auto.value * (1 + SAME)]
    yield f"- A package has a lower objective than `auto`: {_listed(behind)}."
    yield f"- `auto` has a lower objective than every package: {_listed(alone)}."
    yield f"- The best package is faster than `auto` to its own objective: {_listed([panel.name for panel in slower])}."


def _listed(names: Sequence[str]) -> str:
    return "; ".join(names) or "nowhere"


def best_table(found: Iterable[Panel]) -> Iterator[str]:
    """The default beside the best of the others."""
    head = ("instance", "auto", "proved gap", "seconds", "best package", "its objective / ours - 1", "its seconds")
    rows = []
    for panel in found:
        auto = panel.auto
        row = [panel.name, f"{auto.value:.8g}", percent(auto.gap), figure(auto.seconds[-1])]
        if panel.peers:
            peer = panel.peers[0]
            reached = auto.to(peer.value)
            row += [peer.name, f"{peer.value / auto.value - 1:.1e}", figure(peer.seconds[-1]), figure(reached)]
            row.append(f"**{reached / peer.seconds[-1]:.2g}**" if math.isfinite(reached) else "")
        rows.append(row + [""] * (9 - len(row)))
    return markdown((*head, "ours to its objective, s", "ratio"), rows)


def full_table(found: Sequence[Panel]) -> Iterator[str]:
    """One line a solver, one column an instance."""
    return markdown(("solver", *(panel.name for panel in found)), _lines(found, _cell))


def test_table(found: Sequence[Panel]) -> Iterator[str]:
    """The same for test scores."""

    def cell(panel: Panel, run: Run) -> str:
        return "" if math.isnan(run.test) else f"{run.test:.4f}"

    return markdown(("solver", *(panel.name for panel in found)), _lines(found, cell))


def _lines(found: Sequence[Panel], cell: Any) -> list[list[str]]:
    names = [*OURS.values(), *PEERS]
    by_name = [{run.name: run for run in panel.runs} for panel in found]
    return [
        [name, *(cell(panel, runs[name]) if name in runs else "" for panel, runs in zip(found, by_name, strict=True))]
        for name in names
        if any(name in runs for runs in by_name)
    ]


def _cell(panel: Panel, run: Run) -> str:
    if not math.isfinite(run.value):
        return "failed"
    above = panel.above(run)
    return f"{'**0**' if above <= SAME else f'{above:.1e}'}; {figure(run.to(run.value))}"


def failures(found: Iterable[Panel]) -> Iterator[str]:
    """Every failure, with what was found before it."""
    rows = [
        [run.name, panel.name, run.failure, "something" if math.isfinite(run.value) else "nothing"]
        for panel in found
        for run in panel.runs
        if run.failure
    ]
    return markdown(("package", "instance", "why", "found before"), sorted(rows)) if rows else iter(["Nobody."])


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def figure(seconds: float) -> str:
    return f"{seconds:.3g}" if math.isfinite(seconds) else "not reached"


def percent(x: float) -> str:
    return "" if math.isnan(x) else f"{100 * x:.2g}%"


def drawing(found: Sequence[Panel]) -> str:
    """One panel an instance: what each solver had at which time."""
    styles = {
        name: (PALETTE[i % len(PALETTE)],) * 2 + (SHAPES[i % len(SHAPES)],)
        for i, name in enumerate(name for name in (*OURS.values(), *PEERS) if name not in METHODS)
    }
    METHODS.update(styles)
    colours = "".join(f".m-{name.lower()}{{color:{style[0]}}}" for name, style in styles.items())
    return sheet([_chart(panel) for panel in found], columns=2).replace("</style>", f"{colours}</style>", 1)


def _chart(panel: Panel) -> Chart:
    ours = [run for run in panel.runs if run.ours and run.name != OURS["branch"]]
    series = []
    for run in [*ours, *panel.peers[:SHOWN]]:
        heights = [max((value - panel.best) / max(abs(panel.best), 1e-300), SAME) for value in run.values]
        series.append(Series(run.name, run.seconds, heights))
    return Chart(
        panel.name, f"objective above the best, relative; {SAME:g}: the same", "seconds", series, x_log=True, y_log=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one instance a data set, five seconds a solver")
    parser.add_argument(
        "--out", type=Path, default=Path("peers-report"), help="folder of the page (default: %(default)s)"
    )
    parser.add_argument("--results", type=Path, nargs="+", metavar="FILE", help="parquet files of earlier runs")
    arguments = parser.parse_args()
    table = merged([pd.read_parquet(path) for path in arguments.results or [run(arguments.quick)]])
    found = panels(table)
    (arguments.out / "figures").mkdir(parents=True, exist_ok=True)
    text = "\n".join(page(found, table["p_obj_time_limit"].iloc[0], table["run_date"].nunique())) + "\n"
    for name, content in (("peers.md", text), ("figures/peers.svg", drawing(found))):
        with atomic_write(arguments.out / name) as file:
            file.write(content.encode())
    print(f"{arguments.out / 'peers.md'} is written.")


if __name__ == "__main__":
    main()

"""The library beside other packages: `python benchmarks/compare.py [--quick]`.

Runs the benchopt benchmark in `comparison` and writes what came out, `peers.md` with `peers.csv` and `figures/peers.svg`, to the
folder --out. Real data come from the folder that DIHT_DATA names, other packages from the interpreter that DIHT_PEERS names (this
one without it); what is absent is left out. Without --quick the data sets are run one after the other, and one that has its file
in `comparison/outputs` is not run again. --results FILE ... writes the page of earlier runs, or of a peers.csv.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from unittest.mock import patch

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
DATASETS = (
    "paper", "reg", "hard", "clf", "leukemia", "colon-cancer", "riboflavin", "a9a", "imdb", "news20.binary",
    "decaying", "blocks", "heavy-tailed", "genotypes", "tall", "tall-classes",
    "scaled-reuters-money-fx", "scaled-rcv1-vw-sample", "scaled-imdb",
)  # fmt: skip
COLUMNS = ("dataset_name", "solver_name", "p_obj_time_limit", "p_dataset_n", "p_dataset_k", "p_dataset_lam", "p_solver_method",
    "p_solver_package", "objective_seconds", "objective_value", "objective_relative_gap", "objective_test_score",
    "objective_failure", "run_date",
)  # fmt: skip
SHOWN = 5  # peers in a panel, the best ones
WIDE = 8  # instances that fit side by side
SHORTEST = 1e-3  # seconds that can be measured
PALETTE = ("#0072b2", "#d55e00", "#a07800", "#00805d", "#a83f95", "#767676", "#8c4a2f", "#4b5fd1")
SHOWN_PANELS = "Of each data set the instance on which `auto` takes longest beside the best package."
SHARED = (
    f"A solver is as good as the best where its objective is within {SAME:g} of the least that any solver found, our own methods "
    "among them; where it is not, by how much it is above, at the median and at most. Each in the seconds that it had."
)
SHAPES = ("diamond", "triangle", "square", "cross", "plus")
INTRO = """\
# Beside other packages

`python benchmarks/compare.py` measures this again; `--quick` takes one instance of most data sets.
Instances here: {instances}{several}. Every measurement is in <a href="peers.csv">peers.csv</a>.

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


def run(quick: bool, datasets: Sequence[str] = DATASETS) -> list[Path]:
    """Run the benchmark and return the files of its results: of the whole grid one a data set, so that little is lost."""
    if quick:
        return [_run_benchopt("quick.yml", f"quick-{datetime.now():%Y-%m-%d-%H-%M-%S}")]
    return [
        path if path.exists() else _run_benchopt("full.yml", path.stem, "--dataset", dataset)
        for dataset in datasets
        for path in [COMPARISON / "outputs" / f"full-{dataset.replace('.', '-')}.parquet"]
    ]


def _run_benchopt(config: str, name: str, *options: str) -> Path:
    command = [sys.executable, "-m", "benchopt", "run", str(COMPARISON), "-l", "--no-plot", "--no-cache"]
    command += ["--config", str(COMPARISON / config), "--output", name, *options]
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

    dataset: str
    settings: str
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        """What the instance is called."""
        return f"{self.dataset}, {self.settings}"

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

    @property
    def ratio(self) -> float:
        """Our time to the best package's objective, in units of its own time."""
        return self.auto.to(self.peers[0].value) / self.peers[0].seconds[-1]

    def is_behind(self) -> bool:
        """Whether a package has a lower objective."""
        return self.auto.value > self.peers[0].value * (1 + SAME)

    def is_alone(self) -> bool:
        """Whether no package is as good as we are."""
        return self.peers[0].value > self.auto.value * (1 + SAME)

    def is_slower(self) -> bool:
        """Whether the best package is sooner at its objective."""
        return self.ratio > 1.0

    def above(self, run: Run) -> float:
        """Relative distance to the best objective."""
        return (run.value - self.best) / max(abs(self.best), 1e-300)


def read(path: Path) -> pd.DataFrame:
    """Read benchopt's results, or a table that this script wrote."""
    if path.suffix != ".csv":
        return pd.read_parquet(path)
    return pd.read_csv(path, keep_default_na=False, na_values={name: [""] for name in COLUMNS if name != COLUMNS[-2]})


def merged(runs: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, bool]:
    """All runs as one, and whether any was repeated: of a solver on an instance only what the last run says counts."""
    names = ["dataset_name", "solver_name"]
    table, repeated = runs[0], False
    for later in runs[1:]:
        again = table.set_index(names).index.isin(later.set_index(names).index)
        table, repeated = pd.concat([table[~again], later]), repeated or bool(again.any())
    return table, repeated


def essential(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that say something: those that are better than all before them, and the last one of each run."""
    runs = table.groupby(["dataset_name", "solver_name"], sort=False)
    value = table["objective_value"].fillna(math.inf)
    before = value.groupby([table["dataset_name"], table["solver_name"]], sort=False).transform(
        lambda v: v.cummin().shift()
    )
    return table[(value < before.fillna(math.inf)) | (runs.cumcount(ascending=False) == 0)]


def panels(table: pd.DataFrame) -> list[Panel]:
    """The instances in the order in which they were run."""
    found = []
    for _, rows in table.groupby("dataset_name", sort=False):
        runs = tuple(_run(of_solver) for _, of_solver in rows.groupby("solver_name", sort=False))
        found.append(Panel(str(rows["dataset_name"].iloc[0]).split("[")[0], _settings(rows.iloc[0]), runs))
    return found


def _settings(row: pd.Series) -> str:
    settings = {name: row[f"p_dataset_{name}"] for name in ("n", "k", "lam") if f"p_dataset_{name}" in row.index}
    return ", ".join(f"{'N' if name == 'n' else name} = {x:g}" for name, x in settings.items() if not pd.isna(x))


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
        last["objective_failure"] or ("" if len(kept) else "nothing found in its time"),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def page(found: Sequence[Panel], limit: float, repeated: bool = False) -> Iterator[str]:
    """Lines of the page."""
    facts = {"same": SAME, "limit": f"{limit:g}", "leeway": LEEWAY, "memory": MEMORY / 2**30}
    several = "; some solvers were run again later" if repeated else ""
    yield INTRO.format(instances=len(found), several=several, machine=machine(), **facts)
    yield from verdict(found)
    if len(found) > len(families(found)):
        yield ""
        yield from summary(found)
    yield "\n## Who is as good as the best\n"
    yield f"{SHARED}\n"
    yield from standings(found)
    yield "\n![Objective against time, one panel a data set](figures/peers.svg)\n"
    yield f"{SHOWN_PANELS}\n"
    yield "## The best package on each instance\n"
    yield from best_table(found)
    yield "\n## Everyone: above the best; seconds\n"
    yield "An empty cell: the package does not take such data or such a loss, or is not installed.\n"
    yield from wide_table(found, _cell)
    tests = [panel for panel in found if not math.isnan(panel.auto.test)]
    if tests:
        yield "\n## Test scores (share of right answers)\n"
        yield from wide_table(tests, _score)
    yield "\n## Who failed, and how\n"
    yield from failures(found)


def verdict(found: Sequence[Panel]) -> Iterator[str]:
    """What the tables say, in a few lines."""
    with_peers = [panel for panel in found if panel.peers]
    yield f"- A package has a lower objective than `auto`: {_listed(with_peers, Panel.is_behind)}."
    yield f"- `auto` has a lower objective than every package: {_listed(with_peers, Panel.is_alone)}."
    yield f"- The best package is faster than `auto` to its own objective: {_listed(with_peers, Panel.is_slower)}."


def _listed(found: Sequence[Panel], such: Callable[[Panel], bool]) -> str:
    """Name the instances, by data set; where these are many, count them."""
    those = [panel for panel in found if such(panel)]
    if len(those) <= WIDE:
        named = [f"{name}, {' and '.join(panel.settings for panel in own)}" for name, own in families(those).items()]
        return "; ".join(named) or "nowhere"
    everywhere = families(found)
    counts = [f"{name} {len(own)} of {len(everywhere[name])}" for name, own in families(those).items()]
    return f"in {len(those)} of {len(found)} instances ({', '.join(counts)})"


def families(found: Iterable[Panel]) -> dict[str, list[Panel]]:
    """The instances of each data set."""
    groups: dict[str, list[Panel]] = {}
    for panel in found:
        groups.setdefault(panel.dataset, []).append(panel)
    return groups


def summary(found: Sequence[Panel]) -> Iterator[str]:
    """A line a data set."""
    head = ("data set", "instances", "`auto` as good as the best", "better than every package")
    rows = []
    for name, own in families(found).items():
        ratios = sorted(panel.ratio for panel in own if panel.peers)
        good = sum(panel.above(panel.auto) <= SAME for panel in own)
        alone = sum(bool(panel.peers) and panel.is_alone() for panel in own)
        spread = f"{median(ratios):.2g} ({ratios[0]:.2g} to {ratios[-1]:.2g})" if ratios else ""
        rows.append([name, str(len(own)), str(good), str(alone), spread])
    return markdown((*head, "our time to the best package's objective / its time: median (range)"), rows)


def standings(found: Sequence[Panel]) -> Iterator[str]:
    """A line a solver, the one that is most often as good as the best first."""
    rows = []
    for name in (*OURS.values(), *PEERS):
        own = [(panel, run) for panel in found for run in panel.runs if run.name == name]
        above = sorted(panel.above(run) for panel, run in own if math.isfinite(run.value))
        worse = [x for x in above if x > SAME]
        if own:
            spread = f"{median(worse):.1e}; {worse[-1]:.1e}" if worse else ""
            rows.append([name, len(own), len(above) - len(worse), len(worse), len(own) - len(above), spread])
    rows.sort(key=lambda row: -row[2] / row[1])
    head = ("solver", "instances", "as good as the best", "above it", "found nothing", "above by: median; most")
    return markdown(head, [[str(cell) for cell in row] for row in rows])


def best_table(found: Iterable[Panel]) -> Iterator[str]:
    """The default beside the best of the others."""
    head = ("instance", "auto", "proved gap", "seconds", "best package", "its objective / ours - 1", "its seconds")
    rows = []
    for panel in found:
        auto = panel.auto
        row = [panel.name, f"{auto.value:.8g}", percent(auto.gap), figure(auto.seconds[-1])]
        if panel.peers:
            peer = panel.peers[0]
            row += [
                peer.name,
                f"{peer.value / auto.value - 1:.1e}",
                figure(peer.seconds[-1]),
                figure(auto.to(peer.value)),
            ]
            row.append(f"**{panel.ratio:.2g}**" if math.isfinite(panel.ratio) else "")
        rows.append(row + [""] * (9 - len(row)))
    return markdown((*head, "ours to its objective, s", "ratio"), rows)


def wide_table(found: Sequence[Panel], cell: Callable[[Panel, Run], str]) -> Iterator[str]:
    """One line a solver, one column an instance; where these are many, a table a data set."""
    if len(found) <= WIDE:
        yield from markdown(("solver", *(panel.name for panel in found)), _lines(found, cell))
        return
    for name, own in families(found).items():
        yield f"\n### {name}\n"
        yield from markdown(("solver", *(panel.settings for panel in own)), _lines(own, cell))


def _score(panel: Panel, run: Run) -> str:
    return "" if math.isnan(run.test) else f"{run.test:.4f}"


def _lines(found: Sequence[Panel], cell: Callable[[Panel, Run], str]) -> list[list[str]]:
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


def failures(found: Sequence[Panel]) -> Iterator[str]:
    """Every failure, by data set, with what was found before it."""
    where: dict[tuple[str, str, str, str], list[str]] = {}
    for panel in found:
        for run in panel.runs:
            if run.failure:
                before = "something" if math.isfinite(run.value) else "nothing"
                where.setdefault((run.name, panel.dataset, run.failure, before), []).append(panel.settings)
    of = families(found)
    rows = [
        [name, dataset, f"all {len(own)}" if len(own) == len(of[dataset]) > 1 else "; ".join(own), why, before]
        for (name, dataset, why, before), own in sorted(where.items())
    ]
    return markdown(("package", "data set", "instances", "why", "found before"), rows) if rows else iter(["Nobody."])


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
    """One panel a data set: what each solver had at which time."""
    styles = {
        name: (PALETTE[i % len(PALETTE)],) * 2 + (SHAPES[i % len(SHAPES)],)
        for i, name in enumerate(name for name in (*OURS.values(), *PEERS) if name not in METHODS)
    }
    colours = "".join(f".m-{name.lower()}{{color:{style[0]}}}" for name, style in styles.items())
    shown = [max(own, key=lambda panel: panel.ratio if panel.peers else 0.0) for own in families(found).values()]
    with patch.dict(METHODS, styles):
        return sheet([_chart(panel) for panel in shown], columns=2).replace("</style>", f"{colours}</style>", 1)


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
        "--datasets",
        nargs="+",
        choices=DATASETS,
        default=DATASETS,
        metavar="NAME",
        help="only these, of the whole grid",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("peers-report"), help="folder of the page (default: %(default)s)"
    )
    parser.add_argument("--results", type=Path, nargs="+", metavar="FILE", help="parquet files of earlier runs")
    arguments = parser.parse_args()
    if arguments.quick and tuple(arguments.datasets) != DATASETS:
        parser.error("--datasets names parts of the whole grid: leave out --quick")
    table, repeated = merged([read(path) for path in arguments.results or run(arguments.quick, arguments.datasets)])
    found = panels(table)
    (arguments.out / "figures").mkdir(parents=True, exist_ok=True)
    text = "\n".join(page(found, table["p_obj_time_limit"].iloc[0], repeated)) + "\n"
    csv = essential(table).reindex(columns=list(COLUMNS)).to_csv(index=False)
    for name, content in (("peers.md", text), ("peers.csv", csv), ("figures/peers.svg", drawing(found))):
        with atomic_write(arguments.out / name) as file:
            file.write(content.encode())
    print(f"{arguments.out / 'peers.md'} is written.")


if __name__ == "__main__":
    main()

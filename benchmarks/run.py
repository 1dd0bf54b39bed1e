"""Measure what docs/benchmarks.md reports: `python benchmarks/run.py [kernels] [selection] [memory] [convergence] [certified]`.

Everything is a ratio of times taken in one run, or a count. The tables go to standard output and, with --out FILE, to a file.
Convergence needs the data sets news20.binary and imdb: --data (or the variable DIHT_DATA) names the folder that holds them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

from certified import PARTS as CERTIFIED
from certified import Bench, Peers
from diht import Problem
from diht.datasets import read_table
from diht.experiments.timing import Plan, compare
from diht.losses import Hinge, SmoothedHinge
from kernels import iteration_costs, selection_costs
from measure import Row, machine
from memory import fit_peak

PARTS = ("kernels", "selection", "memory", "convergence", "certified")
DATA = {"imdb": ("imdb/imdb.train.bz2", 600), "news20": ("news20.binary/news20.binary.xz", 60_000)}


def ratio_table(rows: list[Row], yardstick: str) -> Iterator[str]:
    yield f"| what | ms | {yardstick}, ms | ratio | quartiles |"
    yield "|---|---|---|---|---|"
    for row in rows:
        yield (
            f"| {row.name} | {1e3 * row.seconds:.2f} | {1e3 * row.yardstick:.2f} | **{row.ratio:.2f}** "
            f"| {row.low:.2f} to {row.high:.2f} |"
        )


def kernels() -> Iterator[str]:
    yield "## One iteration, against one scipy `X @ w`\n"
    yield "CSR 200,000 x 47,236 with about 75 nonzeros a row, float64, smoothed hinge, k = 600; 2 threads (scipy uses one).\n"
    yield from ratio_table(iteration_costs(), "scipy `X @ w`")


def selection() -> Iterator[str]:
    yield "## Exact top-k, against `np.argpartition` on the magnitudes\n"
    yield "d = 1,355,191, k = 60,000.\n"
    yield from ratio_table(selection_costs(), "numpy")


def memory() -> Iterator[str]:
    yield "## Peak memory of a fit on CSR data\n"
    yield "200,000 x 47,236, 75 nonzeros a row; ratio = (data + growth at the peak - ten vectors of length N and d) / data.\n"
    yield "| fit | data, MB | growth, MB | ten vectors, MB | ratio |"
    yield "|---|---|---|---|---|"
    methods = ("diht", "sdiht", "iht", "htp", "svrght")
    fits = [(solver, intercept, 20) for solver in (*methods, "auto") for intercept in (False, True)]
    for fit in (*fits, ("iht", True, 200), ("diht", True, 200)):  # long enough for a copy by columns
        peak = fit_peak(*fit)
        figures = f"{peak.data / 1e6:.0f} | {peak.extra / 1e6:.0f} | {peak.vectors / 1e6:.0f} | {peak.ratio:.2f}"
        yield f"| {peak.name} | {figures} |"


def convergence(folder: Path) -> Iterator[str]:
    yield "## Time to the objective at which IHT stops\n"
    yield "Step sizes tuned for each method on the same grid; IHT stops at a relative change of 1e-4; median of 5 runs.\n"
    yield "| data | k | loss | lam | method | step | passes | seconds | times faster than IHT | objective |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, (path, k) in DATA.items():
        table = read_table(folder / path)
        for loss in (SmoothedHinge(0.25), Hinge()):
            for lam in (0.002, 0.0002):
                problem = Problem(table.X, table.y, loss=loss, k=k, lam=lam, n_threads=2)
                outcomes = compare(problem, Plan(repeats=5))
                iht = next(median(outcome.seconds) for outcome in outcomes if outcome.method == "IHT")
                for o in outcomes:
                    seconds, step = median(o.seconds), "" if o.step is None else f"{o.step:.3g}"
                    faster = f"{iht / seconds:.1f}" if seconds < inf else "not reached"
                    yield (
                        f"| {name} | {k} | {loss.name} | {lam} | {o.method} | {step} | {o.passes:.1f} | {seconds:.3f} "
                        f"| {faster} | {o.objective:.6f} |"
                    )


def certified(folder: Path | None) -> Iterator[str]:
    """All parts of `certified.py`, without other packages: these have an interpreter of their own."""
    bench = Bench(Peers(None, None, 0.0), data=folder)
    for part in CERTIFIED.values():
        yield from part(bench)
        yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--data", type=Path, default=os.environ.get("DIHT_DATA"), help="folder of the real data sets")
    parser.add_argument("--out", type=Path, help="write the tables to this file too")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    lines = [f"Measured on {machine()}.", ""]
    for part in arguments.parts or PARTS:
        if part == "convergence" and arguments.data is None:
            print("convergence left out: --data names the folder of the data sets")
            continue
        folder = None if arguments.data is None else Path(arguments.data)
        tables = globals()[part](folder) if part in ("convergence", "certified") else globals()[part]()
        for line in tables:
            print(line, flush=True)
            lines.append(line)
        lines.append("")
    if arguments.out is not None:
        arguments.out.write_text("\n".join(lines))


if __name__ == "__main__":
    main()

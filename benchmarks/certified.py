"""Objectives, proofs and times, beside other packages: `python benchmarks/certified.py [PART ...]`.

Parts: paper, instances, okridge, genes, text, first, scaling. Objectives of all are this library's own, after an accurate
refit on the support found. The tables go to standard output and, with --out FILE, to a file.

Other packages run in the interpreter that --peers-python names (see `peers.py`); without it, or where one is missing, its
column stays empty. Their answers do not depend on this library: --cache FILE keeps them, so that they are computed once;
--peers-only computes them and nothing else. genes and text need real data: --data (or DIHT_DATA) names its folder.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from diht import Problem, solve
from diht.result import Result
from instances import paper_design
from measure import machine
from peers import PEERS, Answer, Instance, ask, judged, missing, refitted

Verdict = tuple[float, str, float]  # objective, the setting that found it, seconds


# ---------------------------------------------------------------------------------------------------------------------
# Asking


@dataclass
class Peers:
    """Other packages in their interpreter, and what they answered before."""

    python: str | None
    cache: Path | None
    limit: float
    known: dict[str, list[Any]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.cache is not None and self.cache.exists():
            self.known = json.loads(self.cache.read_text())
        self.absent = dict.fromkeys(PEERS, "no interpreter given") if self.python is None else missing(self.python)

    def verdicts(self, peer: str, instances: dict[str, Instance]) -> dict[str, Verdict]:
        """Answers for some instances by their names; those that are not known are asked in one process."""
        new = {name: x for name, x in instances.items() if f"{name} {peer}" not in self.known and PEERS[peer].takes(x)}
        if new and peer not in self.absent:
            assert self.python is not None
            for (name, instance), answer in zip(
                new.items(), ask(self.python, peer, list(new.values()), self.limit), strict=True
            ):
                self.keep(f"{name} {peer}", judged(instance, answer), answer)
        found = {name: self.known.get(f"{name} {peer}") for name in instances}
        return {name: (x[0], x[1], x[2]) for name, x in found.items() if x is not None}

    def keep(self, key: str, verdict: Verdict, answer: Answer) -> None:
        """Remember a verdict, with what the peer says of itself."""
        self.known[key] = [*verdict, answer.claims]
        if self.cache is not None:
            partial = self.cache.with_suffix(".partial")
            partial.write_text(json.dumps(self.known, indent=0))
            partial.replace(self.cache)

    def claims(self, peer: str, name: str) -> dict[str, float]:
        """What a peer said about its own answer."""
        return dict(self.known.get(f"{name} {peer}", [0, "", 0, {}])[3])


@dataclass
class Bench:
    """What the parts need: the peers, the data, limits."""

    peers: Peers
    peers_only: bool = False
    data: Path | None = None
    time_limit: float = 60.0
    threads: int = 2
    seeds: int = 10

    def problem(self, instance: Instance) -> Problem:
        """The instance as this library's problem."""
        x = instance
        return Problem(x.X, x.y, x.loss, x.k, x.lam, fit_intercept=x.intercept, n_threads=self.threads)

    def solved(self, instance: Instance, solver: str = "auto") -> tuple[Result, float]:
        """Return the result of a method, and its seconds with the making of the problem."""
        start = perf_counter()
        result = solve(self.problem(instance), solver, time_limit=self.time_limit)
        return result, perf_counter() - start

    def supported(self, instance: Instance, solver: str) -> float:
        """Objective of a method's support after an accurate refit."""
        problem = self.problem(instance)
        return refitted(problem, solve(problem, solver, time_limit=self.time_limit).support)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Rows of a markdown table, as they come."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"


def percent(x: float) -> str:
    return "" if not np.isfinite(x) else f"{100 * x:.3g}%"


# ---------------------------------------------------------------------------------------------------------------------
# The paper's synthetic regression

PAPER_PEERS = ("abess", "scope", "l0learn-cd", "l0learn-swaps", "omp", "ridge-top-k")
PAPER_OURS = ("iht", "htp", "diht")
PAPER_N = (60, 100, 150, 200, 300)
PAPER_LAM = (0.01, 0.1, 1.0, 10.0, 100.0)


def paper_instances(n: int, seed: int) -> dict[str, Instance]:
    """One design with all values of lam, by name."""
    X, y, _ = paper_design(500, 100, n, seed)
    return {f"paper N={n} seed={seed} lam={lam:g}": Instance(X, y, 100, lam) for lam in PAPER_LAM}


def paper(bench: Bench) -> Iterator[str]:
    yield "## The paper's synthetic regression: d = 500, k = 100\n"
    yield (
        f"{bench.seeds} seeds a row. Ratio: objective of auto / best objective of all others, worst and median over seeds; "
        "gap and seconds: medians. The other columns: median of objective / best objective of all, auto included.\n"
    )
    answers: dict[str, dict[str, Verdict]] = {}
    for seed in range(bench.seeds):  # all settings of one seed first: a cache that is not complete serves all rows
        for n in PAPER_N:
            batch = paper_instances(n, seed)
            for peer in PAPER_PEERS:
                for name, verdict in bench.peers.verdicts(peer, batch).items():
                    answers.setdefault(name, {})[peer] = verdict
    if bench.peers_only:
        yield f"{sum(map(len, answers.values()))} answers of other packages are known."
        return
    head = ("N", "lam", "ratio, worst", "median", "gap", "proved", "seconds", *PAPER_OURS, *PAPER_PEERS)
    rows: list[list[Any]] = []
    worst = 0.0
    for n in PAPER_N:
        runs = [paper_runs(bench, n, seed, answers) for seed in range(bench.seeds)]
        for lam in PAPER_LAM:
            row, ratio = paper_row([run[lam] for run in runs])
            rows.append([n, f"{lam:g}", *row])
            worst = max(worst, ratio)
    yield from table(head, rows)
    yield f"\nWorst ratio of all: **{worst:.8f}**."


def paper_runs(
    bench: Bench, n: int, seed: int, answers: dict[str, dict[str, Verdict]]
) -> dict[float, tuple[Result, float, dict[str, float]]]:
    """Result and seconds of auto on one design, and the objectives of all others, for every lam."""
    runs = {}
    for name, instance in paper_instances(n, seed).items():
        result, seconds = bench.solved(instance)
        others = {method: bench.supported(instance, method) for method in PAPER_OURS}
        others |= {peer: verdict[0] for peer, verdict in answers.get(name, {}).items()}
        runs[instance.lam] = result, seconds, others
    return runs


def paper_row(runs: list[tuple[Result, float, dict[str, float]]]) -> tuple[list[str], float]:
    """Cells for one N and lam, and the worst ratio of auto's objective to the best other."""
    ratios = [result.objective / min(others.values()) for result, _, others in runs]
    cells = [f"{max(ratios):.6f}", f"{np.median(ratios):.6f}"]
    cells.append(percent(float(np.median([result.relative_gap for result, _, _ in runs]))))
    cells.append(f"{sum(result.status == 'optimal' for result, _, _ in runs)}/{len(runs)}")
    cells.append(f"{np.median([seconds for _, seconds, _ in runs]):.3f}")
    for method in (*PAPER_OURS, *PAPER_PEERS):
        shares = [o[method] / min(*o.values(), result.objective) for result, _, o in runs if method in o]
        cells.append(f"{np.median(shares):.4f}" if shares else "")
    return cells, max(ratios)


# ---------------------------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Bench], Iterator[str]]] = {"paper": paper}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"any of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--data", type=Path, default=os.environ.get("DIHT_DATA"), help="folder of the real data sets")
    parser.add_argument("--out", type=Path, help="write the tables to this file too")
    parser.add_argument("--peers-python", help="interpreter that has the other packages")
    parser.add_argument("--peers-limit", type=float, default=120.0, help="seconds for a package on an instance")
    parser.add_argument("--peers-only", action="store_true", help="run the other packages and nothing else")
    parser.add_argument("--cache", type=Path, help="file that keeps the answers of other packages")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for a solve of ours")
    parser.add_argument("--threads", type=int, default=2, help="threads of ours")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of the paper's design")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    peers = Peers(arguments.peers_python, arguments.cache, arguments.peers_limit)
    bench = Bench(
        peers,
        arguments.peers_only,
        None if arguments.data is None else Path(arguments.data),
        arguments.time_limit,
        arguments.threads,
        arguments.seeds,
    )
    lines: list[str] = []
    for line in report(arguments.parts or list(PARTS), bench):
        print(line, flush=True)
        lines.append(line)
    if arguments.out is not None:
        arguments.out.write_text("\n".join(lines) + "\n")


def report(parts: list[str], bench: Bench) -> Iterator[str]:
    """All tables, with the machine and the packages that are missing."""
    yield f"Measured on {machine()}.\n"
    for peer, reason in bench.peers.absent.items():
        yield f"- {peer} left out: {reason}"
    for part in parts:
        yield ""
        yield from PARTS[part](bench)


if __name__ == "__main__":
    main()

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
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from diht import Problem, solve
from diht.datasets import read_table
from diht.result import Result
from instances import autoregressive, hard, okridge_family, paper_design, reg, zipf_logistic
from measure import machine, seconds
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

    def solved(self, instance: Instance, solver: str = "auto", tol: float = 1e-4) -> tuple[Result, float]:
        """Return the result of a method, and its seconds with the making of the problem."""
        start = perf_counter()
        result = solve(self.problem(instance), solver, tol=tol, time_limit=self.time_limit)
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
# Single instances, beside other packages


def compared(bench: Bench, instances: dict[str, Instance], peers: Sequence[str]) -> Iterator[str]:
    """A row for each instance: our objective, proof and time; then each peer's objective, as a ratio to ours, and its time."""
    answers = {peer: bench.peers.verdicts(peer, instances) for peer in peers}
    if bench.peers_only:
        yield f"{sum(map(len, answers.values()))} answers of other packages are known."
        return
    head = ("instance", "auto", "gap", "status", "seconds", "best / auto", *peers)
    yield from table(head, (compared_row(bench, name, instances[name], answers) for name in instances))


def compared_row(bench: Bench, name: str, instance: Instance, answers: dict[str, dict[str, Verdict]]) -> list[str]:
    result, seconds = bench.solved(instance)
    others = {peer: verdicts[name] for peer, verdicts in answers.items() if name in verdicts}
    best = min((objective for objective, _, _ in others.values()), default=np.nan)
    row = [name, f"{result.objective:.8g}", percent(result.relative_gap), result.status, f"{seconds:.3f}"]
    row.append("" if np.isnan(best) else f"**{best / result.objective:.6f}**")
    for peer in answers:
        objective, note, spent = others.get(peer, (np.nan, "", 0.0))
        told = f"{objective / result.objective:.6f}; {spent:.1f} s" if np.isfinite(objective) else note
        row.append(told)
    return row


ALL_PEERS = ("abess", "scope", "l0learn-cd", "l0learn-swaps", "omp", "ridge-top-k", "skglm")


def instances(bench: Bench) -> Iterator[str]:
    yield "## Generated instances\n"
    yield (
        "reg: N = 1000, d = 5000, k = 20, rho = .5, SNR 5. hard: N = 500, rho = .9, SNR 2. clf: CSR 20,000 x 50,000 with "
        "0.1% nonzeros, k = 200, logistic. Other packages: objective / objective of auto; seconds of all their settings.\n"
    )
    X, y, _ = reg()
    problems = {f"reg lam={lam:g}": Instance(X, y, 20, lam) for lam in (0.01, 0.1, 1.0)}
    X, y, _ = hard()
    problems["hard lam=0.01"] = Instance(X, y, 20, 0.01)
    yield from compared(bench, problems, ALL_PEERS)
    X, y, planted = zipf_logistic()
    problem = Instance(X, y, 200, 1e-4, "logistic")
    yield ""
    yield from compared(bench, {"clf lam=0.0001": problem}, ("ridge-top-k", "skglm", "l0learn-cd"))
    yield f"\nThe planted support of clf has the objective {refitted(bench.problem(problem), np.flatnonzero(planted)):.6f}."


def okridge(bench: Bench) -> Iterator[str]:
    yield "## okridge's own family: N = 6000, d = 3000, k = 10, rho = .5, SNR 5\n"
    X, y, _ = okridge_family()
    n = len(y)
    problems = {f"okridge lam2={lam2:g}": Instance(X, y, 10, 2 * lam2 / n) for lam2 in (0.1, 10.0)}
    yield from compared(bench, problems, ("okridge", "abess", "l0learn-cd", "l0learn-swaps", "omp"))
    for name in problems:
        claims = bench.peers.claims("okridge", name)
        if claims:
            left = percent(1.0 - claims["lower_bound"] / claims["objective"])
            spent = f"{claims.get('seconds', np.nan):.0f} s"
            yield f"\n{name}: okridge says {claims['objective']:.8g}, and its bound leaves {left} of it after {spent}."


def genes(bench: Bench) -> Iterator[str]:
    yield "## Gene expression: far more features than samples\n"
    if bench.data is None:
        yield "Left out: --data names the folder of the data sets."
        return
    yield "Columns standardised, with an intercept; logistic loss (riboflavin: squared).\n"
    peers = ("abess", "scope", "l0learn-cd", "l0learn-swaps", "ridge-top-k", "omp")
    problems = {}
    for name in ("leukemia", "colon-cancer", "duke-breast", "riboflavin"):
        with np.load(bench.data / name / f"{name}.npz") as file:
            X, y = file["X"].astype(float), file["y"].astype(float)
        spread = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        loss, lams = ("squared", (0.01, 0.1, 1.0)) if name == "riboflavin" else ("logistic", (0.001, 0.01, 0.1))
        for k in (5, 10, 20):
            for lam in lams:
                problems[f"{name} k={k} lam={lam:g}"] = Instance(X, y, k, lam, loss, intercept=True)
    yield from compared(bench, problems, peers)


# ---------------------------------------------------------------------------------------------------------------------
# Text: times in units of one pair of products by scipy

TEXT = (  # data, file, loss, values of k, pairs of lam and of a gap whose time is taken
    ("imdb", "imdb/imdb.train.bz2", "logistic", (100, 600, 2000), ((2e-4, 7e-4),)),
    ("news20", "news20.binary/news20.binary.xz", "smoothed_hinge", (6000, 60_000), ((0.002, 1e-5), (0.0002, 1e-3))),
    ("news20", "news20.binary/news20.binary.xz", "hinge", (6000,), ((0.002, 1e-4), (0.0002, 2e-3))),
)


def text(bench: Bench) -> Iterator[str]:
    yield "## Text\n"
    if bench.data is None or bench.peers_only:
        yield (
            "Left out: --data names the folder of the data sets."
            if bench.data is None
            else "No other package is asked."
        )
        return
    yield f"Time in units of one `X @ w` and one `X.T @ a` of scipy, taken beside it; ours has {bench.threads} threads.\n"
    head = (
        "data",
        "loss",
        "k",
        "lam",
        "objective",
        "gap",
        "status",
        "seconds",
        "pair of products, s",
        "pairs",
        "passes",
        "gap wanted",
        "pairs to it",
    )
    yield from table(head, text_rows(bench))


def text_rows(bench: Bench) -> Iterator[list[Any]]:
    assert bench.data is not None
    for name, path, loss, sizes, lams in TEXT:
        data = read_table(bench.data / path)
        w, a = np.ones(data.X.shape[1]), np.ones(data.X.shape[0])
        warm = Instance(data.X, data.y, sizes[0], lams[0][0], loss)
        solve(bench.problem(warm), max_iter=2)  # compiled, or loaded from the cache
        for k in sizes:
            for lam, wanted in lams:
                pair = pair_seconds(data.X, w, a)
                result, seconds = bench.solved(Instance(data.X, data.y, k, lam, loss), tol=min(wanted, 1e-4))
                pair = min(pair, pair_seconds(data.X, w, a))
                figures = [f"{result.objective:.7g}", percent(result.relative_gap), result.status, f"{seconds:.2f}"]
                yield [
                    name,
                    loss,
                    k,
                    lam,
                    *figures,
                    f"{pair:.4f}",
                    f"{seconds / pair:.0f}",
                    f"{result.n_passes:.0f}",
                    percent(wanted),
                    f"**{seconds_to(result, wanted, seconds) / pair:.0f}**"
                    if result.relative_gap <= wanted
                    else "never",
                ]


def seconds_to(result: Result, gap: float, total: float) -> float:
    """Seconds until the best model and the best bound were this close; the last improvements have only the total."""
    reached = (it.seconds for it in result.trace if it.best_objective - it.best_bound <= gap * abs(it.best_objective))
    return next(reached, total)


def pair_seconds(X: Any, w: np.ndarray, a: np.ndarray) -> float:
    """The median over five pairs of products."""
    return median(seconds(lambda: (X @ w, X.T @ a)) for _ in range(5))


# ---------------------------------------------------------------------------------------------------------------------
# The first fit of a process

_FIRST = """
from time import perf_counter
start = perf_counter()
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler
X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
data = perf_counter()
from diht import SparseClassifier
imported = perf_counter()
SparseClassifier(k=5, standardize=False).fit(X, y)
first = perf_counter()
SparseClassifier(k=5, standardize=False).fit(X, y)
print(imported - data, first - imported, perf_counter() - first)
"""


def first(bench: Bench) -> Iterator[str]:
    yield "## The first fit in a fresh process: breast cancer, 569 x 30, k = 5\n"
    if bench.peers_only:
        return
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold: nothing compiled", "warm", "warm", "warm"):
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            done = subprocess.run(
                [sys.executable, "-c", _FIRST], env=environment, capture_output=True, text=True, check=True
            )
            rows.append([name, *(f"{float(x):.3f}" for x in done.stdout.split())])
    yield from table(("cache of compiled kernels", "import, s", "first fit, s", "second fit, s"), rows)


# ---------------------------------------------------------------------------------------------------------------------
# Growth

SCALING: dict[str, tuple[int, ...]] = {
    "N": (200, 632, 2000, 6320, 20_000),
    "d": (200, 632, 2000, 6320, 20_000),
    "k": (2, 6, 20, 63, 200),
    "nonzeros": (100_000, 316_000, 1_000_000, 3_160_000, 10_000_000),
}


def scaling(bench: Bench) -> Iterator[str]:
    yield "## How time grows\n"
    if bench.peers_only:
        return
    yield (
        "One size at a time over two decades: dense regression with N = 1000, d = 1000, k = 20, rho = .5, SNR 5, lam = .1; "
        "nonzeros: CSR with N = d = nonzeros / 50, logistic, k = 50, lam = .001. Slope of log time against log size, by least "
        "squares, and over the upper decade.\n"
    )
    solve(bench.problem(sized("N", 200)), time_limit=5.0)
    solve(bench.problem(sized("nonzeros", 10_000)), time_limit=5.0)
    head = ("size", *(f"point {i + 1}, s" for i in range(5)), "slope", "upper decade", "gaps")
    yield from table(head, (scaling_row(bench, what, sizes) for what, sizes in SCALING.items()))


def sized(what: str, size: int) -> Instance:
    """The instance with one of its sizes set."""
    if what == "nonzeros":
        X, y, _ = zipf_logistic(size // 50, max(size // 50, 2000), size / (size // 50) / max(size // 50, 2000), 50)
        return Instance(X, y, 50, 1e-3, "logistic")
    sizes = {"N": 1000, "d": 1000, "k": 20} | {what: size}
    X, y, _ = autoregressive(sizes["N"], sizes["d"], sizes["k"], 0.5, 5.0)
    return Instance(X, y, sizes["k"], 0.1)


def scaling_row(bench: Bench, what: str, sizes: tuple[int, ...]) -> list[Any]:
    times, gaps = [], []
    for size in sizes:
        result, spent = bench.solved(sized(what, size))
        times.append(spent)
        gaps.append(percent(result.relative_gap))
    logs, x = np.log(times), np.log(sizes)
    slope = np.polyfit(x, logs, 1)[0]
    upper = np.polyfit(x[2:], logs[2:], 1)[0]
    return [
        what,
        *(f"{size}: {t:.3f}" for size, t in zip(sizes, times, strict=True)),
        f"**{slope:.2f}**",
        f"{upper:.2f}",
        ", ".join(gaps),
    ]


# ---------------------------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Bench], Iterator[str]]] = {
    "paper": paper,
    "instances": instances,
    "okridge": okridge,
    "genes": genes,
    "text": text,
    "first": first,
    "scaling": scaling,
}


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

"""From one thread to two: how many times faster, on real text.

python benchmarks/threads.py --data FOLDER > threads.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

from threadpoolctl import threadpool_limits

from diht import Problem, solve
from diht.datasets import read_table
from diht.losses import SmoothedHinge
from diht.solvers import DIHT, SDIHT
from kernels import epoch_of
from measure import machine, median_ratio

_DATA = {"imdb": ("imdb/imdb.train.bz2", 600), "news20": ("news20.binary/news20.binary.xz", 60_000)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    print(machine(), end="\n\n")
    print("| data | what | one thread, ms | two, ms | times faster | quartiles |\n|---|---|---|---|---|---|")
    for name, (file, k) in _DATA.items():
        table = read_table(arguments.data / file)
        one, two = (Problem(table.X, table.y, SmoothedHinge(), k, 2e-4, n_threads=threads) for threads in (1, 2))
        for label, solver in (("one DIHT iteration", DIHT(step=1e-2)), ("one SDIHT epoch", SDIHT(step=1e-1))):
            _show(name, label, median_ratio(epoch_of(solver, one), epoch_of(solver, two), 9))

        def whole(problem: Problem) -> None:
            with threadpool_limits(problem.design.n_threads, user_api="blas"):
                solve(problem, time_limit=60)

        _show(name, "auto, whole", median_ratio(lambda p=one: whole(p), lambda p=two: whole(p), 2))


def _show(name: str, label: str, figures: tuple[float, float, float, float, float]) -> None:
    one, two, ratio, low, high = figures
    print(
        f"| {name} | {label} | {1e3 * one:.1f} | {1e3 * two:.1f} | **{ratio:.2f}** | {low:.2f} to {high:.2f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()

"""Claims against brute force on random problems: `python tests/brute_force.py --seeds 0:2000 [--jobs 2] [--table FILE.csv]`.

Every problem follows from one integer (`fuzz_cases.py`). It is small enough that the best model on every support can be computed
(`fuzz_oracle.py`, which shares no code with the package), so that a bound, a proof about a feature, a status or an objective is
either true or shown to be false, by a model whose objective is known to 200 digits. The counts go into a table that is kept
over many runs; seeds that are in it already are left out. A false claim or an exception makes the exit status 1.

With --more the losses are quantile, gamma, Tweedie's and negative binomial. With --ruled k is a constraint of one's own choice:
so many of each group, costs and a budget, heredity. With --shared the problems have several targets, or
classes, that share features; a table of its own keeps their counts. With --show one problem is printed in full. With --compare the
problems are too large for brute force: `auto` and `branch` are held against each other. With --device estimators fit there (cuda,
or cpu for tensors of the host).
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_cases import Case, draw, draw_large, draw_more, draw_ruled, draw_shared, on_device, warm_up
from fuzz_judge import COUNTS, FATAL, Finding, Tally, check, compare, program
from fuzz_oracle import Oracle

BLOCK = 1000  # seeds of one row of the table
HUNG = 10.0  # seconds of processor time after which a call is ended

# ---------------------------------------------------------------------------------------------------------------------
# The run and its table


Tallies = dict[str, Tally]


def check_seed(seed: int, drawn: Callable[[int], Case] = draw, device: str | None = None) -> Tallies:
    """What came of the problem of a seed, by its loss, and the number of its targets where these share features."""
    case = drawn(seed) if device is None else on_device(drawn(seed), device)
    name = f"{case.loss} x{case.n_targets}" if drawn is draw_shared else case.loss
    name = name if case.rule is None else f"{case.rule['kind']} {name}"
    return {name: check(case, HUNG)}


def compare_seed(seed: int) -> Tallies:
    """What came of a large problem, by method."""
    return compare(draw_large(seed))


@contextmanager
def mapping(jobs: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """A `map` in this process, or one over several whose kernels are compiled."""
    if jobs == 1:
        yield map
        return
    with ProcessPoolExecutor(jobs, initializer=_one_thread) as pool:
        list(pool.map(check, warm_up()))
        yield partial(pool.map, chunksize=8)


def _one_thread() -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def _gathered(outcomes: Iterable[Tallies]) -> Tallies:
    tallies: Tallies = {}
    for outcome in outcomes:
        for name, tally in outcome.items():
            into = tallies.setdefault(name, Tally())
            into.counts.update(tally.counts)
            into.findings += tally.findings
            for finding in tally.findings:
                print(finding, flush=True)
    return tallies


Row = dict[str, Any]


def read_table(path: Path | None) -> list[Row]:
    """The rows of earlier runs."""
    if path is None or not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            {name: value if name == "loss" else int(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        ]


def write_table(path: Path, rows: list[Row]) -> None:
    """Write aside, and rename."""
    aside = path.with_name(path.name + ".part")
    with aside.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["first", "end", "loss", *COUNTS])
        writer.writeheader()
        writer.writerows(rows)
    aside.replace(path)


def missing(first: int, end: int, rows: list[Row]) -> list[tuple[int, int]]:
    """The parts of a range of seeds that are in no row, in blocks."""
    covered = sorted({(row["first"], row["end"]) for row in rows})
    parts, at = [], first
    for low, high in [*covered, (end, end)]:
        if low > at:
            parts.append((at, min(low, end)))
        at = max(at, high)
        if at >= end:
            break
    return [(low, min(low + BLOCK, high)) for a, high in parts for low in range(a, high, BLOCK)]


def summary(rows: list[Row]) -> Iterator[str]:
    """Totals by loss, as a table in Markdown."""
    totals: dict[str, Counter[str]] = {}
    for row in rows:
        for loss in (row["loss"], "all"):
            totals.setdefault(loss, Counter()).update({name: row[name] for name in COUNTS})
    shown = [name for name in COUNTS if name not in ("sought", "found", "exact sought", "exact found", "milliseconds")]
    yield "| loss | " + " | ".join(shown) + " | optimum found | by exact | ms a solve |"
    yield "|---" * (len(shown) + 4) + "|"
    for loss in sorted(totals, key=lambda loss: (loss == "all", loss)):
        c = totals[loss]
        cells = [f"{c[name]:,}" for name in shown]
        for kind in ("", "exact "):
            share = 100 * c[f"{kind}found"] / max(c[f"{kind}sought"], 1)
            cells.append(f"{c[f'{kind}found']:,} of {c[f'{kind}sought']:,} ({share:.2f}%)")
        yield f"| {loss} | " + " | ".join(cells) + f" | {c['milliseconds'] / max(c['solves'], 1):.0f} |"


def campaign(
    work: Callable[[int], Tallies], ranges: list[tuple[int, int]], table: Path | None, over: Callable[..., Any] = map
) -> tuple[list[Row], list[Finding]]:
    """Check ranges of seeds, less those in the table, and add the counts to it block by block; findings are printed."""
    rows, findings = read_table(table), []
    for first, end in ranges:
        for low, high in missing(first, end, rows):
            for name, tally in _gathered(over(work, range(low, high))).items():
                rows.append({"first": low, "end": high, "loss": name} | {what: tally.counts[what] for what in COUNTS})
                findings += tally.findings
            if table is not None:
                write_table(table, rows)
            print(f"seeds {low}:{high} done", file=sys.stderr, flush=True)
    return rows, findings


def show(case: Case) -> Iterator[str]:
    """A problem as programs, one for each call, and what is wrong with the answers."""
    yield f"# seed {case.seed}: {case}"
    yield f"# best objective of a witness: {Oracle(case).best:.20g}"
    for call in case.calls:
        yield f"\n# {call}"
        yield from program(case, call)
    yield from (f"# {finding}" for finding in check(case, HUNG).findings)


def seeds_given(text: str) -> tuple[int, int]:
    """A range "first:end", or one seed."""
    first, _, end = text.partition(":")
    return int(first), int(end) if end else int(first) + 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=seeds_given, default=[(0, 2000)], help="ranges first:end")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--table", type=Path, help="CSV file that keeps the counts of many runs")
    parser.add_argument("--show", type=int, metavar="SEED", help="print one problem in full")
    parser.add_argument(
        "--compare", action="store_true", help="problems beyond brute force: methods against each other"
    )
    parser.add_argument("--shared", action="store_true", help="problems of several targets that share features")
    parser.add_argument("--ruled", action="store_true", help="so many of each group, costs, or heredity")
    parser.add_argument("--more", action="store_true", help="the losses that the others have not")
    parser.add_argument("--device", help="where estimators fit: cuda, or cpu for tensors of the host")
    arguments = parser.parse_args()
    drawn = (
        draw_shared if arguments.shared else draw_more if arguments.more else draw_ruled if arguments.ruled else draw
    )
    if arguments.compare and arguments.table:
        parser.error("--table is for problems within brute force")
    if arguments.show is not None:
        print("\n".join(show(drawn(arguments.show))))
        return 0
    work = compare_seed if arguments.compare else partial(check_seed, drawn=drawn, device=arguments.device)
    with mapping(arguments.jobs) as over:
        rows, findings = campaign(work, arguments.seeds, arguments.table, over)
    print("\n".join(summary(rows)))
    return int(any(finding.what in FATAL for finding in findings))


if __name__ == "__main__":
    sys.exit(main())

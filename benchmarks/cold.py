"""The first fit: what it costs where no kernel has been compiled yet, by loss and storage.

    python benchmarks/cold.py                                # every loss and storage, with exact=True as well
    python benchmarks/cold.py --loss hinge --storage csr     # some of them
    python benchmarks/cold.py --loss hinge --kernels         # and which kernels take how long to compile

Each row is a process of its own with an empty kernel cache: the seconds of its first fit (import of numba included), the processor
time of that, and of it the part spent compiling; the number of compiled functions, and of their combinations of types; the seconds
of a second, identical fit. Processor time is what to compare where the machine has other work. --out takes a .json or .csv file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
import scipy.sparse as sp

LOSSES = ("squared", "huber", "poisson", "logistic", "smoothed_hinge", "squared_hinge", "hinge")
REGRESSION = ("squared", "huber", "poisson")
STORAGES = ("dense", "dense_f", "dense_32", "csr", "csr_32", "csc")
AIM = 5.0  # seconds of a first fit

N, D, K, LAM, DENSITY = 500, 300, 10, 1e-2, 0.1


@dataclass(frozen=True)
class Kernel:
    """A compiled function, the types it was compiled for, and the seconds that took, without those of functions it calls."""

    name: str
    types: str
    seconds: float


@dataclass(frozen=True)
class Cold:
    """What a first fit took: seconds, seconds of processor time, those of compiling; and a second fit's seconds."""

    loss: str
    storage: str
    exact: bool
    wall: float
    cpu: float
    compiling: float
    functions: int
    specialisations: int
    again: float
    status: str
    kernels: tuple[Kernel, ...] = ()


def problem(loss: str, storage: str) -> tuple[Any, np.ndarray]:
    """A small problem: 10 of 300 features matter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    if storage.startswith("cs"):
        X *= rng.random((N, D)) < DENSITY
    margin = X[:, :K] @ np.linspace(1.0, 0.5, K)
    if loss == "poisson":
        y = rng.poisson(np.exp(np.minimum(0.5 * margin, 3.0))).astype(float)
    elif loss in REGRESSION:
        y = margin + rng.standard_normal(N)
    else:
        y = np.where(margin + rng.standard_normal(N) > 0.0, 1.0, -1.0)
    X = X.astype(np.float32) if storage.endswith("32") else X
    if storage.startswith("cs"):
        return (sp.csc_array if storage == "csc" else sp.csr_array)(X), y
    return np.asarray(X, order="F" if storage == "dense_f" else "C"), y


class Recorder:
    """Listens to numba's compiler; the time of a function that another one calls is not counted twice."""

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []
        self.open: list[float] = []  # seconds within, for each compilation under way
        self.total = 0.0

    def listen(self) -> None:
        """Begin."""
        from numba.core import event

        recorder = self

        class Listener(event.Listener):
            def on_start(self, event: Any) -> None:
                recorder.begin(event.data)

            def on_end(self, event: Any) -> None:
                recorder.end(event.data)

        event.register("numba:compile", Listener())

    def begin(self, data: dict[str, Any]) -> None:
        """Note a compilation that begins."""
        self.open.append(0.0)
        data["began"] = process_time()

    def end(self, data: dict[str, Any]) -> None:
        """Note a compilation that has ended."""
        seconds = process_time() - data["began"]
        own = seconds - self.open.pop()
        if self.open:
            self.open[-1] += seconds
        else:
            self.total += seconds
        function = data["dispatcher"].py_func
        name = f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"
        self.kernels.append(Kernel(name, ", ".join(map(str, data["args"])), own))


def first_fit(loss: str, storage: str, exact: bool) -> Cold:
    """Fit twice, in this process; its kernel cache must be empty."""
    from diht import SparseClassifier, SparseRegressor

    X, y = problem(loss, storage)
    recorder = Recorder()
    kind = SparseRegressor if loss in REGRESSION else SparseClassifier
    model = kind(k=K, lam=LAM, loss=loss, exact=exact, standardize=False, time_limit=60.0)
    wall, cpu = perf_counter(), process_time()
    recorder.listen()
    model.fit(X, y)
    wall, cpu = perf_counter() - wall, process_time() - cpu
    compiling, kernels = recorder.total, tuple(recorder.kernels)
    again = perf_counter()
    model.fit(X, y)
    again = perf_counter() - again
    return Cold(
        loss, storage, exact, wall, cpu, compiling, len({kernel.name for kernel in kernels}), len(kernels), again,
        str(model.result_.status), kernels,
    )  # fmt: skip


def measured(loss: str, storage: str, exact: bool) -> Cold:
    """Measure a first fit in a process of its own."""
    with TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, __file__, "--child", loss, storage, str(int(exact))],
            env=os.environ | {"NUMBA_CACHE_DIR": cache},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    row = json.loads(done.stdout.splitlines()[-1])
    return Cold(**row | {"kernels": tuple(Kernel(**kernel) for kernel in row["kernels"])})


def table(rows: Iterator[Cold], kernels: bool) -> Iterator[str]:
    """Lay rows out as they come."""
    yield "| loss | storage | exact | wall, s | processor, s | compiling, s | functions | with types | second fit, s | within 5 s |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in rows:
        yield (
            f"| {row.loss} | {row.storage} | {'yes' if row.exact else 'no'} | {row.wall:.1f} | **{row.cpu:.1f}** "
            f"| {row.compiling:.1f} | {row.functions} | {row.specialisations} | {row.again:.2f} "
            f"| {'yes' if row.cpu <= AIM else 'no'} |"
        )
        if kernels:
            for kernel in sorted(row.kernels, key=lambda kernel: -kernel.seconds):
                yield f"  {kernel.seconds:6.2f}  {kernel.name}({kernel.types})"


def write(rows: list[Cold], path: Path) -> None:
    """Write rows to a file, by its ending."""
    if path.suffix == ".json":
        path.write_text(json.dumps([asdict(row) for row in rows], indent=1))
        return
    names = [name for name in asdict(rows[0]) if name != "kernels"]
    lines = [",".join(names), *(",".join(str(getattr(row, name)) for name in names) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def first_fits(losses: list[str], storages: list[str], exact: list[bool], keep: list[Cold]) -> Iterator[Cold]:
    """Measure all combinations, and keep the rows."""
    for loss, storage, searched in product(losses, storages, exact):
        keep.append(measured(loss, storage, searched))
        yield keep[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loss", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--storage", nargs="+", choices=STORAGES, default=list(STORAGES))
    parser.add_argument("--exact", choices=("no", "yes", "both"), default="both")
    parser.add_argument("--kernels", action="store_true", help="list what was compiled, longest first")
    parser.add_argument("--out", type=Path, help="write the rows to this .json or .csv file too")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        loss, storage, exact = arguments.child
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            print(json.dumps(asdict(first_fit(loss, storage, exact == "1"))))
        return
    searched = {"no": [False], "yes": [True], "both": [False, True]}[arguments.exact]
    rows: list[Cold] = []
    for line in table(first_fits(arguments.loss, arguments.storage, searched, rows), arguments.kernels):
        print(line, flush=True)
    if arguments.out is not None:
        write(rows, arguments.out)


if __name__ == "__main__":
    main()

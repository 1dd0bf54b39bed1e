"""Fit a data set that is larger than the memory: reads of X, bandwidth beside the disk's own, peak memory.

    python benchmarks/disk.py FOLDER [--gb 12.4] [--limit-gb 3] [--lam 1e-4] [--keep]

Generates CSR shards of 2,000 nonzeros a row in FOLDER, converts them, and fits a logistic model with k = 100 in a process of its
own, whose memory, page cache included, a control group limits where one can be made (Linux, as root). `dd` reads the same files
directly before and after. Last the same fit of the first shards alone, on disk and in memory. FOLDER needs twice the space; what
--keep leaves there is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

N_FEATURES, PER_ROW, K = 100_000, 2_000, 100
SHARD_ROWS = 10_000
BYTES_PER_ROW = 12 * PER_ROW
DD_BYTES = 4e9  # that dd reads, before and after the fit


def planted(rng: np.random.Generator) -> np.ndarray:
    """Return a model of K features, the frequent ones among them more often than not."""
    w = np.zeros(N_FEATURES)
    support = rng.choice(N_FEATURES // 10, K, replace=False)
    w[support] = rng.choice([-1.0, 1.0], K) * rng.uniform(1.0, 2.0, K)
    return w


def shard(number: int, rows: int, w: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
    """Return rows of norm one, whose columns follow a power law, and their labels."""
    rng = np.random.default_rng([7, number])
    indices = (N_FEATURES * rng.random((rows, PER_ROW), dtype=np.float32) ** 1.5).astype(np.int32)
    np.minimum(indices, N_FEATURES - 1, out=indices)
    indices.sort(axis=1)
    first = np.ones(indices.shape, dtype=bool)
    first[:, 1:] = indices[:, 1:] != indices[:, :-1]
    counts = first.sum(axis=1)
    values = 0.5 + rng.random(int(counts.sum()))
    indptr = np.append(0, np.cumsum(counts)).astype(np.int32)
    X = sp.csr_array((values, indices[first], indptr), shape=(rows, N_FEATURES))
    X.data /= np.repeat(np.sqrt(np.add.reduceat(np.square(X.data), indptr[:-1])), counts)
    u = 60.0 * (X @ w)
    return X, np.where(rng.random(rows) < 1.0 / (1.0 + np.exp(-u)), 1.0, -1.0)


def write_shards(folder: Path, n_rows: int) -> list[Path]:
    """Write npz files with so many rows in all."""
    w, paths = planted(np.random.default_rng(7)), []
    for number, first in enumerate(range(0, n_rows, SHARD_ROWS)):
        X, y = shard(number, min(SHARD_ROWS, n_rows - first), w)
        paths.append(folder / f"shard-{number:04d}.npz")
        np.savez(paths[-1], data=X.data, indices=X.indices, indptr=X.indptr, shape=np.array(X.shape), y=y)
    return paths


class Group:
    """A control group that limits the memory of a process, page cache included; `path` is None where none can be made."""

    def __init__(self, limit: float) -> None:
        self.path: Path | None = None
        for root, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            path = Path(root) / f"diht-disk-{os.getpid()}"
            with suppress(OSError):
                path.mkdir()
                try:
                    (path / name).write_text(str(int(limit)))
                except OSError:
                    path.rmdir()
                    raise
                self.path = path
                return

    def enter(self) -> None:
        """Move this process into it; called in the child."""
        if self.path is not None:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def peak(self) -> float:
        """Return the most memory that was in use, in bytes; NaN where that is not told."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            with suppress(OSError, AttributeError, TypeError, ValueError):
                return float((self.path / name).read_text())
        return float("nan")

    def remove(self) -> None:
        """Remove it, once its processes have ended."""
        if self.path is not None:
            with suppress(OSError):
                self.path.rmdir()


def dd(paths: list[Path]) -> float:
    """Return the bandwidth of direct reads, in bytes a second."""
    total, seconds = 0, 0.0
    for path in paths:
        begin = time.perf_counter()
        command = ["dd", f"if={path}", "of=/dev/null", "bs=16M", "iflag=direct"]
        subprocess.run(command, check=True, capture_output=True)
        seconds += time.perf_counter() - begin
        total += path.stat().st_size
        if total > DD_BYTES:
            break
    return total / seconds


def fit(rows: Path, lam: float, in_memory: bool) -> dict[str, Any]:
    """Fit a model to a data set, on disk or as a matrix in memory."""
    from diht import Problem, open_dataset, solve

    data = open_dataset(rows)
    X, y = data.X, data.y
    if in_memory:
        blocks = [sp.csr_array(tuple(block._by_rows()), shape=block.shape) for block in X.blocks]
        X = sp.csr_array(sp.vstack(blocks, format="csr"))
    traffic = data.X.traffic
    traffic.blocks, traffic.bytes, traffic.seconds = 0, 0, 0.0
    small = Problem(np.eye(40), np.tile([1.0, -1.0], 20), "logistic", 2, 0.1, fit_intercept=True)
    solve(small)  # compiles
    begin, cpu, steps = time.perf_counter(), time.process_time(), []

    def note(iterate: Any) -> bool:
        reads = traffic.bytes / data.X.nbytes
        steps.append((reads, iterate.best_objective, iterate.best_bound, time.perf_counter() - begin))
        return False

    result = solve(Problem(X, y, "logistic", K, lam, fit_intercept=True), tol=1e-3, callback=note)
    seconds = time.perf_counter() - begin
    return {
        "gb": data.X.nbytes / 1e9,
        "budget_gb": data.X.memory / 1e9,
        "gap": result.relative_gap,
        "objective": result.objective,
        "bound": result.lower_bound,
        "seconds": seconds,
        "cpu": time.process_time() - cpu,
        "reads": traffic.bytes / data.X.nbytes,
        "read_seconds": traffic.seconds,
        "bandwidth": traffic.bytes / max(traffic.seconds, 1e-9),
        "overall": traffic.bytes / seconds,
        "steps": steps,
    }


def child(rows: Path, lam: float, limit: float | None, in_memory: bool = False) -> dict[str, Any]:
    """Fit in a process of its own, within a limit on its memory."""
    group = Group(limit) if limit is not None else None
    command = [sys.executable, __file__, "--fit", str(rows), "--lam", str(lam), *["--in-memory"] * in_memory]
    try:
        enter = None if group is None else group.enter
        done = subprocess.run(command, preexec_fn=enter, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the fit ended with {done.returncode}: {done.stderr[-2000:]}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if group is not None:
            found |= {"limited": group.path is not None, "peak_gb": group.peak() / 1e9}
        return found
    finally:
        if group is not None:
            group.remove()


def converted(folder: Path, name: str, shards: list[Path]) -> float:
    """Convert shards; return the seconds that took."""
    from diht.datasets import convert

    begin = time.perf_counter()
    convert(shards, folder / name)
    return time.perf_counter() - begin


def generate(folder: Path, gb: float, small_gb: float) -> dict[str, Any]:
    """Write the shards, convert all and the first of them, and remove them; return the seconds and those of the processors."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = write_shards(folder, int(gb * 1e9 / BYTES_PER_ROW))
    converted(folder, "small", shards[: max(1, int(small_gb * 1e9 / BYTES_PER_ROW / SHARD_ROWS))])
    cpu = time.process_time()
    seconds = converted(folder, "rows", shards)
    for path in shards:
        path.unlink()
    return {"convert_seconds": seconds, "convert_cpu": time.process_time() - cpu}


def measure(folder: Path, gb: float, limit: float, lam: float, small_gb: float) -> dict[str, Any]:
    """Generate and convert, unless that was done before, fit, and fit a part in memory."""
    rows, small = folder / "rows", folder / "small"
    found: dict[str, Any] = {}
    if not (rows / "manifest.json").exists():
        found |= generate(folder, gb, small_gb)
    files = sorted(rows.glob("data-*.npy"))
    before = dd(files)
    found |= {"large": child(rows, lam, limit)}
    found |= {"dd": [before, dd(files[::-1])]}
    found |= {"small on disk": child(small, lam, None), "small in memory": child(small, lam, None, in_memory=True)}
    return found


def main() -> None:
    """Read the arguments and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--gb", type=float, default=12.4)
    parser.add_argument("--small-gb", type=float, default=1.0)
    parser.add_argument("--limit-gb", type=float, default=3.0)
    parser.add_argument("--lam", type=float, default=1e-4)
    parser.add_argument("--keep", action="store_true", help="leave the data set in FOLDER")
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--in-memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit is not None:
        print(json.dumps(fit(arguments.fit, arguments.lam, arguments.in_memory)))
        return
    found = measure(arguments.folder, arguments.gb, 1e9 * arguments.limit_gb, arguments.lam, arguments.small_gb)
    print(json.dumps(found, indent=1))
    if not arguments.keep:
        for name in ("rows", "small"):
            shutil.rmtree(arguments.folder / name)


if __name__ == "__main__":
    main()

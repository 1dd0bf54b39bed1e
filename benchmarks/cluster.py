"""A fit on a Dask cluster of two workers against the same fit in memory with two threads; and fits whose workers are killed.

    python benchmarks/cluster.py imdb --loss logistic hinge
    python benchmarks/cluster.py standin --k 100 --lam 1e-4
    python benchmarks/cluster.py --kill 10

Blocks are written to a folder and loaded by the workers, so that the client holds no row.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import scipy.sparse as sp

N_BLOCKS = 8


def saved(name: str, folder: Path) -> None:
    """Write a data set as blocks, in a process of its own: `--save`."""
    from diht.datasets import fetch_imdb, rcv1_standin

    data = fetch_imdb() if name == "imdb" else rcv1_standin()
    X, y = sp.csr_matrix(data.data), np.asarray(data.target)
    cuts = np.linspace(0, len(y), N_BLOCKS + 1).astype(int).tolist()
    for i, (a, b) in enumerate(pairwise(cuts)):
        sp.save_npz(folder / f"X{i}.npz", X[a:b], compressed=False)
        np.save(folder / f"y{i}.npy", y[a:b])


def in_memory(folder: Path, settings: dict[str, Any]) -> None:
    """Fit twice in memory with two threads, the first time to compile: `--memory`."""
    from diht import SparseClassifier

    X = sp.vstack([sp.load_npz(folder / f"X{i}.npz") for i in range(N_BLOCKS)], format="csr")
    y = np.concatenate([np.load(folder / f"y{i}.npy") for i in range(N_BLOCKS)])
    for _ in range(2):
        began, used = perf_counter(), process_time()
        model = SparseClassifier(**settings, n_jobs=2).fit(X, y)
    seconds, used = perf_counter() - began, process_time() - used
    reads = model.result_.n_passes
    print(
        f"memory: {seconds:.1f} s, {used:.1f} s of processors, {reads:.0f} reads, {model.objective_!r} {model.lower_bound_!r}"
    )


def on_cluster(folder: Path, settings: dict[str, Any]) -> None:
    """Fit twice on two workers."""
    import dask
    from distributed import Client, LocalCluster

    import diht.dask.cluster
    from diht import SparseClassifier

    kept: list[Any] = []
    make = diht.dask.cluster.Cluster.__init__
    diht.dask.cluster.Cluster.__init__ = lambda self, *args: kept.append(self) or make(self, *args)
    trips = count_trips()
    load_x, load_y = dask.delayed(sp.load_npz), dask.delayed(np.load)
    X = [load_x(folder / f"X{i}.npz") for i in range(N_BLOCKS)]
    y = [load_y(folder / f"y{i}.npy") for i in range(N_BLOCKS)]
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for _ in range(2):
            trips[0] = 0
            before = sum(client.run(process_time).values()) + process_time()
            began = perf_counter()
            model = SparseClassifier(**settings).fit(X, y)
            seconds = perf_counter() - began
            used = sum(client.run(process_time).values()) + process_time() - before
    shards, n, reads = kept[-1], trips[0], model.result_.n_passes
    out, back = (count / n / shards.size for count in (shards.bytes_out, shards.bytes_in))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"2 workers: {seconds:.1f} s, {used:.1f} s of processors, {reads:.0f} reads, {model.objective_!r} {model.lower_bound_!r}"
    )
    print(
        f"  {n} round trips, {out:,.0f} bytes to and {back:,.0f} from each shard a trip, client at most {peak:.0f} MB"
    )


def count_trips() -> list[int]:
    """Count the questions of all groups from now on."""
    from diht.samples.program import Group

    trips, ask = [0], Group.ask

    def counted(self: Group, *args: Any) -> Any:
        trips[0] += 1
        return ask(self, *args)

    Group.ask = counted  # type: ignore[method-assign]
    return trips


def kill(cluster: Any, random_state: random.Random, moments: list[float]) -> None:
    """Kill one of the workers that have begun, for one that has not is not begun again; add the moment."""
    begun = [nanny.pid for nanny in cluster.workers.values() if nanny.worker_address in cluster.scheduler.workers]
    if begun:
        os.kill(random_state.choice(begun), signal.SIGKILL)
        moments.append(perf_counter())


def killed(times: int) -> int:
    """Kill a worker at so many random moments of fits on one cluster; return how many answers are not those of one process."""
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    from diht import SparseClassifier

    rng, wrong, hit, random_state = np.random.default_rng(0), 0, 0, random.Random(0)
    X = rng.normal(size=(3000, 60))
    y = np.where(X[:, :5].sum(axis=1) + rng.normal(size=3000) > 0, "yes", "no")
    here = SparseClassifier(k=5, lam=0.01).fit(X, y)
    given = da.from_array(X, chunks=(500, 60)), da.from_array(y, chunks=500)
    warnings.simplefilter("ignore")
    settings = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    patience = {"distributed.deploy.lost-worker-timeout": "5 minutes", "diht.lost-workers-timeout": "5 minutes"}
    with dask.config.set(patience), LocalCluster(n_workers=2, **settings) as cluster, Client(cluster) as client:
        for _ in range(2):  # the first compiles
            began = perf_counter()
            SparseClassifier(k=5, lam=0.01).fit(*given)
            seconds = perf_counter() - began
        while hit < times:
            client.wait_for_workers(2)
            moments: list[float] = []
            timer = threading.Timer(random_state.uniform(0.0, seconds), kill, (cluster, random_state, moments))
            began = perf_counter()
            timer.start()
            there = SparseClassifier(k=5, lam=0.01).fit(*given)
            ended = perf_counter()
            timer.join()
            if not moments or moments[0] > ended:
                continue  # too late
            hit += 1
            apart = abs(there.objective_ - here.objective_), abs(there.lower_bound_ - here.lower_bound_)
            wrong += there.support_.tolist() != here.support_.tolist() or max(apart) > 1e-8
            figures = f"objective differs by {apart[0]:.1e}, bound by {apart[1]:.1e}"
            print(f"killed after {moments[0] - began:.1f} of {ended - began:.1f} s: {figures}", flush=True)
    print(f"{wrong} of {times} differ; a fit without losses takes {seconds:.1f} s")
    return wrong


def main() -> int:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", choices=["imdb", "standin"])
    parser.add_argument("--loss", nargs="+", default=["logistic"])
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--lam", type=float, default=1e-3)
    parser.add_argument("--kill", type=int, default=0, metavar="TIMES")
    parser.add_argument("--save", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.kill:
        return int(killed(arguments.kill) > 0)
    settings = {"k": arguments.k, "lam": arguments.lam, "standardize": False, "loss": arguments.loss[0]}
    if arguments.save or arguments.memory:
        (saved(arguments.data, arguments.save) if arguments.save else in_memory(arguments.memory, settings))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        again = [sys.executable, __file__, *sys.argv[1:2]]
        subprocess.run([*again, "--save", folder], check=True)
        for loss in arguments.loss:
            print(f"{arguments.data}, {loss}, k = {arguments.k}, lam = {arguments.lam:g}", flush=True)
            own = ["--loss", loss, "--k", str(arguments.k), "--lam", str(arguments.lam)]
            subprocess.run([*again, *own, "--memory", folder], check=True)
            on_cluster(Path(folder), settings | {"loss": loss})
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Rows on a GPU: times of whole fits, shares of the memory's bandwidth, and the host beside it.

    python benchmarks/gpu.py                  # all, on a GPU of 80 GB or more
    python benchmarks/gpu.py --parts dense --rows 100000 --columns 2000

Data are drawn on the device. Each time is that of a fit of data that lie there, the median of several after a first one, which
compiles the kernels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

from diht import Problem, solve
from diht.gpu.data import matrix_of
from diht.gpu.matrix import Dense, Matrix, Sparse
from diht.gpu.samples import TorchSamples
from diht.losses import as_loss
from diht.solvers import Relaxed

PARTS = ("dense", "sparse", "streamed", "beside")


def dense_matrix(n: int, d: int, device: str) -> Dense:
    """Features N(0, 1) in float32."""
    X = torch.empty((n, d), dtype=torch.float32, device=device)
    for part in X.split(max(1, 2**28 // d)):
        part.normal_()
    return Dense(X)


def sparse_matrix(n: int, d: int, each: int, device: str) -> Sparse:
    """Rows with about so many entries N(0, 1), whose columns are drawn as floor(d u^3); float32."""
    columns, values, counts = [], [], []
    for first in range(0, n, 10**6):
        rows = min(10**6, n - first)
        drawn = torch.sort(
            (torch.rand((rows, each), device=device, dtype=torch.float64) ** 3 * d).to(torch.int32)
        ).values
        kept = torch.ones_like(drawn, dtype=torch.bool)
        kept[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
        columns.append(drawn[kept])
        counts.append(kept.sum(1))
        values.append(torch.randn(len(columns[-1]), device=device))
    starts = torch.zeros(n + 1, dtype=torch.int64, device=device)
    torch.cumsum(torch.cat(counts), 0, out=starts[1:])
    return Sparse(starts, torch.cat(columns), torch.cat(values), d)


def targets(matrix: Matrix, k: int, size: float, loss: str, among: int) -> torch.Tensor:
    """Of k coefficients of a size, with random signs, among the first columns."""
    w = torch.zeros(matrix.shape[1], dtype=torch.float64, device=matrix.device)
    w[torch.randperm(among, device=matrix.device)[:k]] = size
    w *= torch.where(torch.rand(len(w), device=matrix.device) < 0.5, -1.0, 1.0)
    u = matrix.matvec(w)
    noise = torch.rand(len(u), dtype=torch.float64, device=matrix.device)
    if loss == "squared":
        return u + torch.randn(len(u), dtype=torch.float64, device=matrix.device)
    return torch.where(noise < torch.sigmoid(u), 1.0, -1.0).to(torch.float64)


def problem_of(matrix: Matrix, y: torch.Tensor, loss: str, k: int, lam: float) -> Problem:
    s = torch.full((len(y),), 1.0 / len(y), dtype=torch.float64, device=y.device)
    return Problem.of_samples(TorchSamples.of(matrix, y, s), as_loss(loss), k, lam)


def seconds(work: Callable[[], Any], times: int) -> tuple[float, Any]:
    """The median time of some calls, after a first one, and what the last returned."""
    taken, found = [], None
    for _ in range(times + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        found = work()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return median(taken[1:] if times else taken), found


def bandwidth(matrix: Matrix, copied: float) -> None:
    """Products with X as shares of what a copy moves."""
    n, d = matrix.shape
    w, c = (torch.randn(m, dtype=torch.float64, device=matrix.device) for m in (d, n))
    for name, work in (("Xw", lambda: matrix.matvec(w)), ("X'c", lambda: matrix.rmatvec(c))):
        taken, _ = seconds(work, 5)
        moved = matrix.nbytes / taken
        print(f"  {name}: {1e3 * taken:.2f} ms, {moved / 1e12:.2f} TB/s, {moved / copied:.0%} of a copy", flush=True)


def copy_rate(device: str) -> float:
    """Bytes read and written in a second by a copy."""
    a = torch.empty(2**31, dtype=torch.int8, device=device)
    b = torch.empty_like(a)
    taken, _ = seconds(lambda: b.copy_(a), 5)
    return 2.0 * a.numel() / taken


def report(name: str, matrix: Matrix, y: torch.Tensor, loss: str, k: int, lam: float, times: int, limit: float) -> None:
    relaxed, best = Relaxed(accuracy=1e-4), []

    def whole() -> Any:
        found = solve(problem_of(matrix, y, loss, k, lam), time_limit=limit)
        best.append(found.trace.times().best)
        return found

    solved, _ = seconds(lambda: solve(problem_of(matrix, y, loss, k, lam), relaxed, tol=0.0, time_limit=limit), times)
    taken, result = seconds(whole, times)
    print(
        f"  {name}, {loss}, lam = {lam:g}: relaxation {solved:.3f} s, best model {median(best[1:] or best):.3f} s; all stages "
        f"{taken:.3f} s, objective {result.objective:.8f}, gap {result.relative_gap:.1e}, {result.n_passes:.1f} reads, "
        f"{result.status}",
        flush=True,
    )


def streamed(n: int, d: int, budget: float) -> None:
    """Rows that do not fit: what products read in a second, beside copies from the same memory."""
    X = np.empty((n, d), dtype=np.float32)
    for first in range(0, n, 50_000):
        X[first : first + 50_000] = torch.randn((min(50_000, n - first), d), device="cuda").cpu().numpy()
    start = time.perf_counter()
    matrix = matrix_of(X, torch.device("cuda"), budget)
    made = time.perf_counter() - start
    far = [part for part in matrix.parts if part.device.type == "cpu"]
    host = far[0].X
    there = torch.empty_like(host, device="cuda")
    taken, _ = seconds(lambda: there.copy_(host, non_blocking=True), 5)
    rate, moved = host.nbytes / taken, sum(part.nbytes for part in far)
    print(
        f"streamed {matrix.shape}, {matrix.nbytes / 1e9:.1f} GB, budget {budget / 1e9:.1f} GB: {len(matrix.parts)} blocks, "
        f"{moved / 1e9:.1f} GB on the host, made in {made:.1f} s; copies {rate / 1e9:.1f} GB/s"
    )
    w, c = (torch.randn(m, dtype=torch.float64, device="cuda") for m in (d, n))
    for name, work in (("Xw", lambda: matrix.matvec(w)), ("X'c", lambda: matrix.rmatvec(c))):
        taken, _ = seconds(work, 3)
        print(
            f"  {name}: {taken:.3f} s, {moved / taken / 1e9:.1f} GB/s, {moved / taken / rate:.0%} of a copy", flush=True
        )
    y = targets(matrix, 20, 0.3, "logistic", d)
    report("streamed", matrix, y, "logistic", 20, 1e-2, 1, 60.0)


def beside(n: int, d: int, times: int) -> None:
    """The same data on the device and on the cores of the host; scikit-learn's L1 logistic regression there."""
    from sklearn.linear_model import LogisticRegression

    matrix = dense_matrix(n, d, "cuda")
    y = targets(matrix, 20, 0.3, "logistic", d)
    print(f"dense {matrix.shape}, logistic, k = 20, lam = 0.01")
    report("device", matrix, y, "logistic", 20, 1e-2, times, 60.0)
    X, labels = matrix.X.cpu().numpy(), y.cpu().numpy()
    taken, result = seconds(lambda: solve(Problem(X, labels, "logistic", 20, 1e-2)), 3)
    print(f"  host: {taken:.3f} s, objective {result.objective:.8f}, gap {result.relative_gap:.1e}", flush=True)
    largest = float(np.abs(X.T @ labels.astype(np.float32)).max()) / (2.0 * n)
    model = LogisticRegression(C=1.0 / (0.5 * largest * n), l1_ratio=1.0, solver="liblinear", tol=1e-2)
    start = time.perf_counter()
    model.fit(X, labels)
    used = int(np.count_nonzero(model.coef_))
    print(f"  scikit-learn, L1, liblinear: {time.perf_counter() - start:.1f} s, {used} features", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--rows", type=int, default=10**6)
    parser.add_argument("--columns", type=int, default=10**4)
    parser.add_argument("--sparse-rows", type=int, default=10**7)
    parser.add_argument("--sparse-columns", type=int, default=10**6)
    parser.add_argument("--budget", type=float, default=2e9, help="bytes of the device that streamed rows may take")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of a fit at most")
    args = parser.parse_args()
    torch.manual_seed(0)
    copied = copy_rate("cuda")
    print(f"{torch.cuda.get_device_name()}, copy {copied / 1e12:.2f} TB/s, torch {torch.__version__}", flush=True)
    if "dense" in args.parts:
        matrix: Matrix = dense_matrix(args.rows, args.columns, "cuda")
        print(f"dense {matrix.shape}, {matrix.nbytes / 1e9:.1f} GB")
        bandwidth(matrix, copied)
        for loss, lam in (("logistic", 1e-2), ("squared", 1e-2), ("logistic", 1e-3)):
            y = targets(matrix, 50, 0.3, loss, args.columns)
            report("dense", matrix, y, loss, 50, lam, args.times, args.limit)
        del matrix
        torch.cuda.empty_cache()
    if "sparse" in args.parts:
        matrix = sparse_matrix(args.sparse_rows, args.sparse_columns, 50, "cuda")
        print(f"CSR {matrix.shape}, {len(matrix.values)} entries, {matrix.nbytes / 1e9:.1f} GB")
        bandwidth(matrix, copied)
        for loss, lam in (("logistic", 1e-3), ("smoothed_hinge", 1e-3)):
            y = targets(matrix, 100, 1.0, loss, 1000)
            report("CSR", matrix, y, loss, 100, lam, args.times, args.limit)
        del matrix
        torch.cuda.empty_cache()
    if "streamed" in args.parts:
        streamed(args.rows, args.columns // 5, args.budget)
    if "beside" in args.parts:
        beside(args.rows // 5, args.columns // 5, args.times)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()

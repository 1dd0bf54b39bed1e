"""How near the kernels are to what the machine can do: beside the same loops in C++, MKL where it is installed, and plain reading.

    python benchmarks/bandwidth.py [--threads 2] > bandwidth.md

The C++ loops are compiled here for this machine (g++ -O3 -march=native -fopenmp); without a compiler they are left out.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from diht import Problem
from diht.design import DualState, Step, as_design
from diht.losses import SmoothedHinge
from kernels import text_like
from measure import machine, median_ratio

_SOURCE = r"""
#include <omp.h>
#include <cstdint>
#include <vector>
extern "C" {
double read_all(const double* x, int64_t n, int threads) {
  double total = 0;
  #pragma omp parallel num_threads(threads) reduction(+:total)
  {
    double sums[64] = {0};  // so many that no addition waits for another
    #pragma omp for schedule(static)
    for (int64_t block = 0; block < n / 64; ++block)
      for (int j = 0; j < 64; ++j) sums[j] += x[64 * block + j];
    for (int j = 0; j < 64; ++j) total += sums[j];
  }
  return total;
}
void csr_dot(const double* data, const int32_t* indices, const int32_t* indptr, int64_t n, const double* w, double* u,
             int threads) {
  #pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int32_t e = indptr[i]; e < indptr[i + 1]; ++e) sum += data[e] * w[indices[e]];
    u[i] = sum;
  }
}
// One DIHT iteration with the smoothed hinge: margin, dual step, and the new X'Sa, with one read of every row.
void fused(const double* data, const int32_t* indices, const int32_t* indptr, int64_t n, int64_t d, const double* w,
           const double* y, double s, double tau, double gamma, double* alpha, double* g, int threads) {
  std::vector<std::vector<double>> part(threads);
  #pragma omp parallel num_threads(threads)
  {
    std::vector<double>& own = part[omp_get_thread_num()];
    own.assign(d, 0.0);
    #pragma omp for schedule(static)
    for (int64_t i = 0; i < n; ++i) {
      double u = 0;
      for (int32_t e = indptr[i]; e < indptr[i + 1]; ++e) u += data[e] * w[indices[e]];
      double b = y[i] * (alpha[i] + tau * (u - y[i] - gamma * alpha[i]));
      b = b < -1 ? -1 : (b > 0 ? 0 : b);
      alpha[i] = y[i] * b;
      double c = s * alpha[i];
      for (int32_t e = indptr[i]; e < indptr[i + 1]; ++e) own[indices[e]] += c * data[e];
    }
    #pragma omp for schedule(static)
    for (int64_t j = 0; j < d; ++j) {
      double sum = 0;
      for (int t = 0; t < threads; ++t) sum += part[t][j];
      g[j] = sum;
    }
  }
}
}
"""


def compiled() -> Any:
    """Return the C++ loops, None without a compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        return None
    folder = Path(tempfile.mkdtemp())
    source, library = folder / "loops.cpp", folder / "loops.so"
    source.write_text(_SOURCE)
    subprocess.run(
        [compiler, "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", str(source), "-o", str(library)], check=True
    )
    loaded = ctypes.CDLL(str(library))
    loaded.read_all.restype = ctypes.c_double
    return loaded


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _show(name: str, work: Callable[[], object], best: Callable[[], object], megabytes: float, repeats: int) -> None:
    ours, theirs, ratio, low, high = median_ratio(work, best, repeats)
    rate = megabytes / 1e3 / ours
    print(
        f"| {name} | {1e3 * ours:.2f} | {1e3 * theirs:.2f} | {rate:.1f} | **{1 / ratio:.0%}** | {1 / high:.0%} to {1 / low:.0%} |",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    threads, repeats = arguments.threads, arguments.repeats
    loops = compiled()
    print(machine(), end=f"; {threads} threads\n\n")
    print("| kernel | ms | best, ms | GB/s | share of the best's speed | quartiles |\n|---|---|---|---|---|---|")
    if loops is None:
        print("\nThere is no g++ here.")
        return
    _sparse(loops, threads, repeats)
    _dense(loops, threads, repeats)


def _sparse(loops: Any, threads: int, repeats: int) -> None:
    X, y = text_like()
    n, d = X.shape
    data, indices, indptr = X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
    csr = tuple(map(_pointer, (data, indices, indptr)))
    megabytes = (data.nbytes + indices.nbytes + indptr.nbytes) / 1e6
    problem = Problem(X, y, loss=SmoothedHinge(), k=600, lam=2e-4, n_threads=threads)
    design = problem.design
    w, u, g = np.zeros(d), np.empty(n), np.zeros(d)
    w[:600] = 1.0
    rows = ctypes.c_int64(n), ctypes.c_int64(d)

    def cpp_dot() -> None:
        loops.csr_dot(*csr, rows[0], _pointer(w), _pointer(u), threads)

    _show("CSR, u = Xw, beside C++", lambda: design.matvec(w), cpp_dot, megabytes, repeats)
    product = _mkl(X, w)
    if product is not None:
        _show("CSR, u = Xw, beside MKL", lambda: design.matvec(w), product, megabytes, repeats)
    alpha, theirs, tau = np.zeros(n), np.zeros(n), 1e-2
    step = Step(SmoothedHinge(), "explicit", tau, fresh=True)

    def fused_pass() -> None:
        design.block_step(step, w, 0.0, DualState(alpha, g), problem.y, problem.s)

    def cpp_fused() -> None:
        numbers = (ctypes.c_double(value) for value in (1.0 / n, tau, 0.25))
        loops.fused(*csr, *rows, _pointer(w), _pointer(problem.y), *numbers, _pointer(theirs), _pointer(g), threads)

    fused_pass()
    ours = g.copy()
    cpp_fused()
    np.testing.assert_allclose(ours, g, rtol=1e-9, atol=1e-12)
    _show("CSR, one DIHT iteration's pass, beside C++", fused_pass, cpp_fused, megabytes, repeats)


def _mkl(X: sp.csr_array, w: np.ndarray) -> Callable[[], object] | None:
    """Return MKL's product, None where sparse_dot_mkl is not installed."""
    try:
        from sparse_dot_mkl import dot_product_mkl
    except ImportError:
        return None
    matrix = sp.csr_matrix(X)
    return lambda: dot_product_mkl(matrix, w)


def _dense(loops: Any, threads: int, repeats: int) -> None:
    rng = np.random.default_rng(0)
    for n, d in ((4000, 10_000), (20_000, 2000)):
        X = rng.standard_normal((n, d))
        design, w, c = as_design(X, threads), rng.standard_normal(d), rng.standard_normal(n)

        def read(X: np.ndarray = X) -> None:
            loops.read_all(_pointer(X), ctypes.c_int64(X.size), threads)

        for name, work in (("Xw", lambda D=design, w=w: D.matvec(w)), ("X'c", lambda D=design, c=c: D.rmatvec(c))):
            _show(f"dense {n:,} x {d:,}, {name}, beside reading X", work, read, X.nbytes / 1e6, repeats)


if __name__ == "__main__":
    main()

"""Peak memory of a fit on CSR data, in units of the data's own bytes, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

_CHILD = """
import json, resource, sys
import numpy as np
sys.path.insert(0, {folder!r})
from kernels import text_like
from diht import SparseClassifier
small, labels = text_like(2000, 500, 20)
settings = dict(loss="smoothed_hinge", standardize=False, fit_intercept={intercept}, solver={solver!r})
SparseClassifier(k=10, max_iter=20, **settings).fit(small, labels)
X, y = text_like({n}, {d}, 75)

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()

import threading, time
peak, running = [0], [True]
def watch():
    while running[0]:
        peak[0] = max(peak[0], resident())
        time.sleep(0.002)
before = resident()
watcher = threading.Thread(target=watch)
watcher.start()
model = SparseClassifier(k=600, lam=2e-4, max_iter={steps}, **settings)
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    model.fit(X, y)
running[0] = False
watcher.join()
data = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
vectors = 10 * 8 * (X.shape[0] + X.shape[1])
print(json.dumps([data, peak[0] - before, vectors]))
"""


@dataclass(frozen=True)
class Peak:
    """Bytes of the data, bytes on top of it at the peak, and the allowance of ten vectors of length N and d."""

    name: str
    data: int
    extra: int
    vectors: int

    @property
    def ratio(self) -> float:
        """Data and what the fit added to it, less the allowance, in units of the data."""
        return (self.data + self.extra - self.vectors) / self.data


def fit_peak(solver: str, intercept: bool, steps: int = 20, n: int = 200_000, d: int = 47_236) -> Peak:
    """Fit in a child process and watch its resident memory."""
    folder = __file__.rsplit("/", 1)[0]
    code = _CHILD.format(folder=folder, intercept=intercept, solver=solver, steps=steps, n=n, d=d)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    data, extra, vectors = json.loads(done.stdout.splitlines()[-1])
    return Peak(f"{solver}, {'with' if intercept else 'without'} intercept, {steps} steps", data, extra, vectors)

"""Other exact solvers on the same problems: seconds to a proof, or the gap that they say is left.

    python benchmarks/exact_peers.py PYTHON [--limit 60] [--families --data FOLDER] > exact_peers.md

PYTHON is an interpreter with el0ps, l0bnb and okridge (`pip install "numpy<2" el0ps l0bnb okridge mpich`). The problems are those
of `exact.py`, without limits of coefficients (l0bnb has to have some: 1000), or the families that the others were made for, in a
box of 1.5 times the largest coefficient of the best model known, the same for all (okridge has none); FOLDER holds
`riboflavin/riboflavin.npz`, standardised. okridge solves the same problem, lam2 = N lam / 2.
el0ps and l0bnb have a penalty for each feature in place of k: it is put in the middle of those for which the best model of k
features is theirs; l2 = N lam / 4. Seconds on the wall, after a first call that compiles; relative gaps of 1e-4 count as proved.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from diht import Problem

PEERS = {
    "el0ps": """
from el0ps.datafit import Leastsquares
from el0ps.penalty import BigmL2norm, L2norm
from el0ps.solver import BnbSolver
def run(X, y, limit):
    penalty = BigmL2norm(box, n * lam / 4) if box < 1000.0 else L2norm(n * lam / 4)
    r = BnbSolver(time_limit=limit, relative_gap=1e-4).solve(Leastsquares(y), penalty, X, l0)
    return 0.0 if 'optimal' in str(r.status).lower() else np.nan, np.count_nonzero(r.x)
""",
    "l0bnb": """
from l0bnb import BNBTree
def run(X, y, limit):
    r = BNBTree(X, y).solve(l0, n * lam / 4, box, gap_tol=1e-4, time_limit=limit)
    return r.gap, np.count_nonzero(r.beta)
""",
    "okridge": """
from okridge.tree import BNBTree
def run(X, y, limit):
    _, beta, gap, *_ = BNBTree(X=X, y=y, lambda2=n * lam / 2).solve(k=k, gap_tol=1e-4, time_limit=limit)
    return gap, np.count_nonzero(beta)
""",
}
DRIVER = """
import sys, time
import numpy as np
f = np.load(sys.argv[1]); X, y, k = f["X"], f["y"], int(f["k"])
lam, l0, box, limit = (float(f[name]) for name in ("lam", "l0", "box", "limit"))
n = len(y)
{code}
run(X[:40, :12].copy(), y[:40].copy(), 5.0)
begin = time.perf_counter()
gap, used = run(X, y, limit)
print("RESULT", time.perf_counter() - begin, float(gap), int(used))
"""


def penalty(X: np.ndarray, y: np.ndarray, lam: float, k: int) -> float:
    """Return a penalty per feature, for half the sum of squares, with which the best model of k features is the best of all."""
    from diht import Problem, solve

    values = [solve(Problem(X, y, "squared", size, lam)).objective for size in (k - 1, k, k + 1)]
    return float(len(y) / 2 * np.sqrt((values[0] - values[1]) * (values[1] - values[2])))


def cosines(n: int = 500, d: int = 1000, k: int = 5, snr: float = 10.0) -> tuple[np.ndarray, np.ndarray]:
    """Return a dictionary of cosines of d frequencies, twice as many as samples, and a noisy sum of k of them."""
    rng = np.random.default_rng(0)
    X = np.cos(np.pi * np.outer(np.arange(n) + 0.5, np.arange(1, d + 1)) / d)
    signal, noise = X[:, rng.choice(d, k, replace=False)] @ rng.choice([-1.0, 1.0], k), rng.standard_normal(n)
    return X, signal + noise * (np.linalg.norm(signal) / np.sqrt(snr) / np.linalg.norm(noise))


def families(data: Path) -> Iterator[tuple[str, Problem]]:
    """Yield the problems that the others were made for, each within a box."""
    from diht import Problem, solve
    from diht.constraints.groups import constrained
    from instances import autoregressive, okridge_family

    stored = np.load(data / "riboflavin" / "riboflavin.npz")
    genes = tuple((column - column.mean(axis=0)) / column.std(axis=0) for column in (stored["X"], stored["y"]))
    ar, wide = autoregressive(100, 200, 10, 0.9, 10.0)[:2], okridge_family()[:2]
    for name, (X, y), k, lam in (
        ("riboflavin (71 x 4088)", genes, 5, 0.1),
        ("AR(.9) (100 x 200)", ar, 10, 0.1),
        ("cosines (500 x 1000)", cosines(), 5, 0.01),
        ("okridge's (6000 x 3000)", wide, 10, 2.0 * 0.1 / 6000),
    ):
        box = 1.5 * float(np.abs(solve(Problem(X, y, "squared", k, lam)).w).max())
        limits = constrained(k, X.shape[1], bounds=(np.full(X.shape[1], -box), np.full(X.shape[1], box)))
        yield f"{name}, k = {k} | {lam:.3g}", Problem(X, y, "squared", limits, lam)


def timed(code: str, python: str, limit: float, problem: Problem) -> str:
    """Run a peer in a process of its own."""
    X, y, k = problem.design.toarray(), np.asarray(problem.y), problem.constraint.size
    limits = problem.constraint.limits
    box, l0 = 1000.0 if limits is None else limits.upper[0], penalty(X, y, problem.lam, k)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "problem.npz")
        np.savez(data, X=X, y=y, lam=problem.lam, k=k, l0=l0, box=box, limit=limit)
        command = [python, "-c", DRIVER.format(code=code), str(data)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=3 * limit + 120, check=False)
        except subprocess.TimeoutExpired:
            return f"does not end in {3 * limit + 120:.0f} s"
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("RESULT")]
    if not lines:
        print(done.stderr, file=sys.stderr)
    return shown(*map(float, lines[0]), k) if lines else "failed"


def main() -> None:
    """Run every peer on every problem."""
    from exact import problems, searched

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="an interpreter that has the peers")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each")
    parser.add_argument("--only", type=int, nargs="*", default=range(4), help="which of the problems, from 0")
    parser.add_argument("--families", action="store_true", help="the families that the others were made for")
    parser.add_argument("--data", type=Path, help="folder of their data")
    arguments = parser.parse_args()
    searched(next(problems())[1], 1.0)  # compiles
    print(f"| data | lam | diht | {' | '.join(PEERS)} |\n|---|---|---|{'---|' * len(PEERS)}", flush=True)
    for i, (name, problem) in enumerate(families(arguments.data) if arguments.families else problems()):
        if i in arguments.only:
            seconds, _, gap = searched(problem, arguments.limit)
            k = problem.constraint.size
            cells = [shown(seconds, gap, k, k)]
            cells += [timed(code, arguments.python, arguments.limit, problem) for code in PEERS.values()]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def shown(seconds: float, gap: float, used: float, k: int) -> str:
    """Seconds to the proof, or the gap; and the size of the model where it is not k."""
    left = f"not in {seconds:.0f} s" if np.isnan(gap) else f"{100 * gap:.1f}% left after {seconds:.0f} s"
    text = f"{seconds:.1f} s" if gap <= 1e-4 * 1.01 else left
    return text if used == k else f"{text} ({used:.0f} features)"


if __name__ == "__main__":
    main()

"""Other exact solvers on the same problems: seconds to a proof, or the gap that they say is left.

    python benchmarks/exact_peers.py PYTHON [--limit 60] > exact_peers.md

PYTHON is an interpreter with el0ps, l0bnb and okridge (`pip install "numpy<2" el0ps l0bnb okridge mpich`). The problems are those
of `exact.py`, without limits of coefficients (l0bnb has to have some: 1000). okridge solves the same problem, lam2 = N lam / 2.
el0ps and l0bnb have a penalty for each feature in place of k: it is put in the middle of those for which the best model of k
features is theirs; l2 = N lam / 4. Seconds on the wall, after a first call that compiles; relative gaps of 1e-4 count as proved.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

PEERS = {
    "el0ps": """
from el0ps.datafit import Leastsquares
from el0ps.penalty import L2norm
from el0ps.solver import BnbSolver
def run(X, y, limit):
    r = BnbSolver(time_limit=limit, relative_gap=1e-4).solve(Leastsquares(y), L2norm(n * lam / 4), X, l0)
    return 0.0 if 'optimal' in str(r.status).lower() else np.nan, np.count_nonzero(r.x)
""",
    "l0bnb": """
from l0bnb import BNBTree
def run(X, y, limit):
    r = BNBTree(X, y).solve(l0, n * lam / 4, 1000.0, gap_tol=1e-4, time_limit=limit)
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
f = np.load(sys.argv[1]); X, y, lam, k, l0, limit = f["X"], f["y"], float(f["lam"]), int(f["k"]), float(f["l0"]), float(f["limit"])
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


def main() -> None:
    """Run every peer on every problem."""
    from exact import K, problems, searched

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="an interpreter that has the peers")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each")
    parser.add_argument("--only", type=int, nargs="*", default=range(4), help="which of the problems, from 0")
    arguments = parser.parse_args()
    searched(next(problems())[1], 1.0)  # compiles
    print(f"| data | lam | diht | {' | '.join(PEERS)} |\n|---|---|---|{'---|' * len(PEERS)}", flush=True)
    for name, problem in [each for i, each in enumerate(problems()) if i in arguments.only]:
        X, y, cells = problem.design.toarray(), np.asarray(problem.y), []
        seconds, _, gap = searched(problem, arguments.limit)
        cells.append(shown(seconds, gap, K))
        for code in PEERS.values():
            with tempfile.TemporaryDirectory() as folder:
                data = Path(folder, "problem.npz")
                np.savez(data, X=X, y=y, lam=problem.lam, k=K, l0=penalty(X, y, problem.lam, K), limit=arguments.limit)
                command = [arguments.python, "-c", DRIVER.format(code=code), str(data)]
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=10 * arguments.limit, check=False
                )
            lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("RESULT")]
            if not lines:
                print(done.stderr, file=sys.stderr)
            cells.append(shown(*map(float, lines[0])) if lines else "failed")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def shown(seconds: float, gap: float, used: float) -> str:
    """Seconds to the proof, or the gap; and the size of the model where it is not k."""
    left = f"not in {seconds:.0f} s" if np.isnan(gap) else f"{100 * gap:.1f}% left after {seconds:.0f} s"
    text = f"{seconds:.1f} s" if gap <= 1e-4 * 1.01 else left
    return text if used == 10 else f"{text} ({used:.0f} features)"


if __name__ == "__main__":
    main()

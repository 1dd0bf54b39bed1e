"""What one iteration costs, as a ratio to one scipy `X @ w` on the same matrix, and top-k against numpy."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from diht import Problem
from diht.constraints.selection import top_k
from diht.design import DualState, Step
from diht.losses import SmoothedHinge
from diht.solvers import DIHT, IHT, SDIHT, Solver, Start
from measure import Row, median_ratio


def text_like(n: int = 200_000, d: int = 47_236, per_row: int = 75, seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """CSR rows of norm one with Zipf-like columns, and labels from a planted sparse separator."""
    rng = np.random.default_rng(seed)
    popularity = 1.0 / (np.arange(d) + 50.0)
    indices = rng.choice(d, size=n * per_row, p=popularity / popularity.sum()).astype(np.int32)
    data = rng.random(n * per_row) / np.sqrt(per_row / 3.0)
    X = sp.csr_array((data, indices, np.arange(0, n * per_row + 1, per_row, dtype=np.int32)), shape=(n, d))
    X.sum_duplicates()
    w = np.zeros(d)
    w[rng.choice(min(2000, d), 300, replace=False)] = rng.standard_normal(300)
    margin = X @ w
    y = np.where(margin + 0.1 * margin.std() * rng.standard_normal(n) > np.median(margin), 1.0, -1.0)
    return X, y


def iteration_costs(k: int = 600, lam: float = 2e-4, repeats: int = 9) -> list[Row]:
    """One DIHT iteration, one SDIHT epoch of 10 blocks and the fused pass alone, each against scipy's X @ w."""
    X, y = text_like()
    problem = Problem(X, y, loss=SmoothedHinge(), k=k, lam=lam, n_threads=2)
    w = np.zeros(X.shape[1])
    w[:k] = 1.0

    def scipy_product() -> None:
        X @ w

    rows = []
    for name, solver in (
        ("one DIHT iteration", DIHT(step=1e-2)),
        ("one SDIHT epoch, 10 blocks", SDIHT(step=1e-1)),
        ("one IHT iteration", IHT(step=1.0)),
    ):
        rows.append(Row(name, *median_ratio(epoch_of(solver, problem), scipy_product, repeats)))
    alpha, g = np.zeros(X.shape[0]), np.zeros(X.shape[1])
    step = Step(SmoothedHinge(), "explicit", 1e-2, fresh=True)

    def fused_pass() -> None:
        problem.design.block_step(step, w, 0.0, DualState(alpha, g), problem.y, problem.s)

    rows.append(Row("the fused pass alone", *median_ratio(fused_pass, scipy_product, repeats)))
    return rows


def epoch_of(solver: Solver, problem: Problem):  # type: ignore[no-untyped-def]
    """A function that advances a solver by one epoch from wherever it is."""
    state = solver.init(problem, Start())

    def one_epoch() -> None:
        for _ in range(solver.epoch(state)):
            solver.advance(problem, state)

    for _ in range(3):
        one_epoch()
    return one_epoch


def selection_costs(d: int = 1_355_191, k: int = 60_000, repeats: int = 15) -> list[Row]:
    """Exact top-k against np.argpartition on the magnitudes."""
    rng = np.random.default_rng(0)
    vectors = {
        "gaussian": rng.standard_normal(d),
        "heavy tail": rng.standard_normal(d) * np.exp(3 * rng.standard_normal(d)),
        "mostly zeros": rng.standard_normal(d) * (rng.random(d) < 0.1),
        "many ties": np.round(rng.standard_normal(d), 2),
    }
    rows = []
    for name, v in vectors.items():
        rows.append(
            Row(
                f"top-k, {name}",
                *median_ratio(lambda v=v: top_k(v, k), lambda v=v: np.argpartition(np.abs(v), d - k), repeats),
            )
        )
    return rows

"""The paper's constants and iteration bounds against an evaluation of their own; and its Theorem 4 on a tiny problem."""

import math
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp

from diht import Problem
from diht.bounds.duality import dual
from diht.losses import Hinge, Huber, Logistic, SmoothedHinge, Squared, SquaredHinge
from diht.solvers import DIHT, Start
from diht.theory import Constants, constants, error_bound, iterations
from oracle import targets


def unit_rows(n: int = 12, d: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, targets(SmoothedHinge(), X @ np.array([3.0, -2.0, 0.0, 0.0, 0.0]), rng)


@pytest.mark.parametrize(("loss", "r", "rho"), [
    (SmoothedHinge(0.25), 1.0, 1.0),  # |y + gamma a| is largest at a = 0
    (SmoothedHinge(3.0), 1.0, 2.0),  # and here at the other end
    (Huber(0.5), 0.5, 1.5),
])  # fmt: skip
def test_constants(loss, r: float, rho: float) -> None:
    X, y = unit_rows()
    lam, n = 0.3, len(y)
    c = constants(Problem(X, y, loss, 2, lam))
    assert (c.n_samples, c.lam, c.mu) == (n, lam, loss.mu)
    assert c.r == pytest.approx(r)
    assert c.rho == pytest.approx(rho)
    sigma = np.linalg.norm(X, 2)
    assert sigma * (1 - 1e-12) <= c.sigma <= np.linalg.norm(X, "fro") * (1 + 1e-9)
    assert c.c0 == pytest.approx((r + lam * rho) / (lam * math.sqrt(n)))
    assert c.c1 == pytest.approx(n**3 * (r + lam * rho) ** 2 / (lam * n * loss.mu) ** 2)
    assert c.c2 == pytest.approx((r + lam * rho) ** 2 * (1 + c.sigma / (loss.mu * lam * n)) ** 2)
    # The proof writes the same c1 as lam^2 N^4 c0^2 / (lam N mu)^2.
    assert c.c1 == pytest.approx(lam**2 * n**4 * c.c0**2 / (lam * n * loss.mu) ** 2)


def test_where_the_paper_defines_nothing() -> None:
    X, y = unit_rows()
    for loss, reason in (
        (Hinge(), "smooth loss .*not hinge"),
        (Squared(), "bounded dual domain F, which the squared loss lacks"),
        (SquaredHinge(), "bounded dual domain F, which the squared_hinge loss lacks"),
        (Logistic(), "bounded l.*', which the logistic loss lacks"),
    ):
        with pytest.raises(ValueError, match=reason):
            constants(Problem(X, y, loss, 2, 0.1))
    loss = SmoothedHinge()
    with pytest.raises(ValueError, match="samples of norm at most 1, got 2"):
        constants(Problem(2 * X, y, loss, 2, 0.1))
    with pytest.raises(ValueError, match="equal sample weights"):
        constants(Problem(X, y, loss, 2, 0.1, sample_weight=np.arange(1.0, 13.0)))
    with pytest.raises(ValueError, match="without an intercept"):
        constants(Problem(X, y, loss, 2, 0.1, fit_intercept=True))
    assert constants(Problem(sp.csr_array(X), y, loss, 2, 0.1, sample_weight=np.full(12, 7.0))).n_samples == 12


def test_error_bound() -> None:
    c = Constants(n_samples=10, lam=0.5, r=1.0, rho=2.0, mu=0.25, sigma=1.5)
    assert error_bound(c, 1) == pytest.approx(c.c1)
    assert error_bound(c, 100) == pytest.approx(c.c1 * (1 / 100 + math.log(100) / 100))
    assert error_bound(c, 100, n_blocks=7) == pytest.approx(7 * error_bound(c, 100))
    with pytest.raises(ValueError, match="t must be at least 1, got 0"):
        error_bound(c, 0)


def test_iterations() -> None:
    c = Constants(n_samples=10, lam=0.5, r=1.0, rho=2.0, mu=0.25, sigma=1.5)

    def t_ln_t(x: float) -> int:
        return math.ceil(x * math.log(x))

    margin, gap, m, delta = 0.4, 0.01, 5, 0.1
    t0 = t_ln_t(12 * c.c1 * c.sigma**2 / (c.lam**2 * 10**2 * margin**2))
    t1 = t_ln_t(3 * c.c1 * c.c2 / (c.lam**2 * 10 * gap**2))
    t2 = t_ln_t(12 * m * c.c1 * c.sigma**2 / (c.lam**2 * delta**2 * 10**2 * margin**2))
    t3 = t_ln_t(12 * m * c.c1 * c.c2 / (c.lam**2 * delta**2 * 10 * gap**2))
    assert iterations(c, margin) == t0
    assert iterations(c, margin, gap) == max(t0, t1)
    assert iterations(c, margin, n_blocks=m, delta=delta) == t2
    assert iterations(c, margin, gap, n_blocks=m, delta=delta) == max(4 * t2, t3)
    assert iterations(c, 1e-9, 1e3, n_blocks=m, delta=delta) == pytest.approx(
        4 * iterations(c, 1e-9, n_blocks=m, delta=delta)
    )
    assert iterations(c, 0.0) == iterations(c, -1.0, gap) == math.inf
    for bad in (0.0, 1.0, -0.5, 2.0):
        with pytest.raises(ValueError, match="delta must be between 0 and 1"):
            iterations(c, margin, delta=bad)
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="gap must be positive"):
            iterations(c, margin, bad)
    assert iterations(c, 1e-200) == iterations(c, margin, 1e-200) == math.inf  # more than a float can count
    assert iterations(Constants(10, 1e6, 1e-3, 1e-6, 1.0, 1.0), 1.0) == 1.0  # nothing to wait for


@pytest.mark.parametrize("loss", [SmoothedHinge(), SmoothedHinge(1.0), Huber(0.5)], ids=repr)
def test_theorem_4_holds_for_the_theorems_step(loss) -> None:
    X, y = unit_rows(seed=1)
    problem = Problem(X, y, loss, 2, 0.5)
    c = constants(problem)
    best = dual_optimum(problem)
    state = DIHT("theory").init(problem, Start())
    for t in range(1, 2001):
        DIHT("theory").advance(problem, state)
        if t in (1, 2, 5, 10, 50, 200, 1000, 2000):
            assert np.sum((state.alpha - best) ** 2) <= error_bound(c, t)
    assert np.sum((state.alpha - best) ** 2) <= 1e-4  # far below the bound: the bound is not what makes this true


def dual_optimum(problem: Problem) -> np.ndarray:
    """Maximise the strongly concave dual by restricting it to the support of its maximiser, which is then smooth.

    On each support F the restricted dual -sum s l*(a) - |X_F'(s a)|^2 / (2 lam) is maximised by a projected gradient
    method; where its maximiser's own top k are F, it maximises D too.
    """
    loss, s, y, lam = problem.loss, problem.s, problem.y, problem.lam
    X = problem.design.toarray()
    for support in combinations(range(X.shape[1]), problem.constraint.size):
        A = X[:, support]
        step = 1.0 / (loss.mu + np.linalg.norm(A * np.sqrt(s)[:, None], 2) ** 2 / lam)
        alpha = np.zeros(len(y))
        for _ in range(500):
            slope = -A @ (A.T @ (s * alpha)) / lam - loss.conjugate_derivative(alpha, y)
            alpha = np.asarray(loss.project(alpha + step * slope, y))
        if tuple(problem.constraint.select(X.T @ (s * alpha))) == support:
            rng = np.random.default_rng(0)
            for size in (1e-4, 1e-2, 1.0):
                rival = loss.project(alpha + size * rng.standard_normal(len(y)), y)
                assert dual(problem, rival) <= dual(problem, alpha)
            return alpha
    raise AssertionError("no support is its own maximiser's: choose a larger lam")

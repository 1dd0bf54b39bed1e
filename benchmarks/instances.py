"""Generated problems: X, y and the planted coefficients, the same for the same seed."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from diht.experiments.estimation import paper_design

__all__ = ["autoregressive", "hard", "okridge_family", "paper_design", "reg", "zipf_logistic"]

Generated = tuple[np.ndarray, np.ndarray, np.ndarray]


def autoregressive(n: int, d: int, k: int, rho: float, snr: float, seed: int = 0) -> Generated:
    """Columns with correlation rho^|i-j|, k equispaced unit coefficients, ||Xw||^2 = snr ||noise||^2."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    fresh = np.sqrt(1.0 - rho**2)
    for j in range(1, d):
        X[:, j] = rho * X[:, j - 1] + fresh * X[:, j]
    w = np.zeros(d)
    w[np.arange(k) * (d // k) + d // k // 2] = 1.0
    signal, noise = X @ w, rng.standard_normal(n)
    return X, signal + noise * (np.linalg.norm(signal) / np.sqrt(snr) / np.linalg.norm(noise)), w


def reg() -> Generated:
    """N = 1000, d = 5000, k = 20, rho = .5, SNR 5."""
    return autoregressive(1000, 5000, 20, 0.5, 5.0)


def hard() -> Generated:
    """N = 500, d = 5000, k = 20, rho = .9, SNR 2."""
    return autoregressive(500, 5000, 20, 0.9, 2.0)


def okridge_family(seed: int = 0) -> Generated:
    """N = 6000, d = 3000, k = 10, rho = .5, SNR 5: the family that okridge was made for; its lam2 is our N lam / 2."""
    return autoregressive(6000, 3000, 10, 0.5, 5.0, seed)


def zipf_logistic(
    n: int = 20_000, d: int = 50_000, density: float = 1e-3, k: int = 200, amplitude: float = 3.0, seed: int = 0
) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    """CSR with Zipf columns, k planted coefficients among the 2000 commonest features, logistic labels."""
    rng = np.random.default_rng(seed)
    n_draws = round(n * d * density)
    popularity = 1.0 / (np.arange(d) + 50.0)
    columns = rng.choice(d, size=n_draws, p=popularity / popularity.sum())
    rows = rng.integers(0, n, n_draws)
    X = sp.coo_matrix((rng.standard_normal(n_draws), (rows, columns)), shape=(n, d)).tocsr()
    X.sum_duplicates()
    X.sort_indices()
    w = np.zeros(d)
    planted = rng.choice(2000, k, replace=False)
    w[planted] = amplitude * rng.choice([-1.0, 1.0], k)
    y = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-(X @ w))), 1.0, -1.0)
    return X, y, w

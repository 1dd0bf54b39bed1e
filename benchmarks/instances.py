"""Generated problems: X, y and the planted coefficients, the same for the same seed."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from diht.experiments.estimation import paper_design

__all__ = [
    "autoregressive",
    "blocks",
    "decaying",
    "genotypes",
    "hard",
    "heavy_tailed",
    "okridge_family",
    "paper_design",
    "reg",
    "scaled_words",
    "tall",
    "zipf_logistic",
]

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


def _with_noise(X: np.ndarray, w: np.ndarray, snr: float, noise: np.ndarray) -> Generated:
    """Targets whose signal has snr times the square of the noise's norm."""
    signal = X @ w
    return X, signal + noise * (np.linalg.norm(signal) / np.sqrt(snr) / np.linalg.norm(noise)), w


def decaying(n: int = 2000, d: int = 20_000, seed: int = 0) -> Generated:
    """Independent columns, 40 coefficients that fall by a fifth each, SNR 1: where to stop is not clear."""
    rng = np.random.default_rng(seed)
    X, w = rng.standard_normal((n, d)), np.zeros(d)
    w[rng.choice(d, 40, replace=False)] = 0.8 ** np.arange(40)
    return _with_noise(X, w, 1.0, rng.standard_normal(n))


def blocks(n: int = 500, d: int = 1000, size: int = 20, rho: float = 0.8, k: int = 10, seed: int = 0) -> Generated:
    """Blocks of columns with one correlation within each, k unit coefficients of either sign in different blocks, SNR 3."""
    rng = np.random.default_rng(seed)
    common = np.repeat(rng.standard_normal((n, d // size)), size, axis=1)
    X, w = np.sqrt(rho) * common + np.sqrt(1.0 - rho) * rng.standard_normal((n, d)), np.zeros(d)
    chosen = size * rng.choice(d // size, k, replace=False) + rng.integers(0, size, k)
    w[chosen] = rng.choice([-1.0, 1.0], k)
    return _with_noise(X, w, 3.0, rng.standard_normal(n))


def heavy_tailed(n: int = 500, d: int = 2000, k: int = 15, seed: int = 0) -> Generated:
    """Columns and noise with Student's t of 3 degrees of freedom, standardised columns, k unit coefficients, SNR 3."""
    rng = np.random.default_rng(seed)
    X, w = rng.standard_t(3, (n, d)), np.zeros(d)
    w[rng.choice(d, k, replace=False)] = 1.0
    return _with_noise((X - X.mean(axis=0)) / X.std(axis=0), w, 3.0, rng.standard_t(3, n))


def genotypes(n: int = 1000, d: int = 5000, k: int = 20, seed: int = 0) -> Generated:
    """Counts 0, 1, 2 of an allele on two chromosomes, each a copy of its left neighbour nine times in ten; standardised; SNR 1."""
    rng = np.random.default_rng(seed)
    frequency = rng.uniform(0.05, 0.5, d)
    chromosomes = rng.random((2, n, d)) < frequency
    copied = rng.random((2, n, d)) < 0.9
    for j in range(1, d):
        chromosomes[:, :, j] = np.where(copied[:, :, j], chromosomes[:, :, j - 1], chromosomes[:, :, j])
    X, w = chromosomes.sum(axis=0).astype(float), np.zeros(d)
    w[rng.choice(d, k, replace=False)] = rng.standard_normal(k)
    spread = X.std(axis=0)
    return _with_noise((X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0), w, 1.0, rng.standard_normal(n))


def tall(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X whose columns are normal plus 0.6 of their left neighbour, targets of 8 features with noise of deviation 2, labels."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, d))
    X = Z.copy()
    X[:, 1:] += 0.6 * Z[:, :-1]
    w = np.where(rng.permutation(d) < 8, rng.standard_normal(d), 0.0)
    u = X @ w
    return X, u + 2.0 * rng.standard_normal(n), np.where(rng.logistic(size=n) < u, 1.0, -1.0)


def scaled_words(X: sp.csr_matrix) -> sp.csr_matrix:
    """Which words occur, columns divided by their standard deviation, constant ones left out: rare words get large entries."""
    occurs = sp.csc_matrix((X > 0).astype(float))
    mean = np.asarray(occurs.mean(axis=0)).ravel()
    deviation = np.sqrt(mean * (1.0 - mean))
    kept = np.flatnonzero(deviation > 1e-7)
    return (occurs[:, kept] @ sp.diags(1.0 / deviation[kept])).tocsr()

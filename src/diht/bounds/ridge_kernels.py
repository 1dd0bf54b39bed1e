"""Ridges of :mod:`diht.bounds.shift`, estimated and proved by compiled code: for the many small parts of a search tree."""

from __future__ import annotations

import numpy as np

from diht.design.base import UNIT
from diht.design.kernels import Array, Integer, dot, jit, jit_inlined

MOST_STEPS = 24  # of Lanczos' method
ACCURATE = 1e-4  # relative error of the eigenvalue at which it ends
TRIALS = (1.0, 0.999, 0.99, 0.9, 0.5)  # fractions of the estimate that are tried, one after the other


@jit
def factorised(H: Array, n: Integer, upto: Integer) -> bool:
    """Overwrite the first columns of the lower triangle of H by its Cholesky factor's; False where a pivot is not positive."""
    for j in range(upto):
        pivot = H[j, j] - dot(H[j], H[j], j)
        if not (pivot > 0.0 and pivot < np.inf):
            return False
        root = np.sqrt(pivot)
        H[j, j] = root
        for i in range(j + 1, n):
            H[i, j] = (H[i, j] - dot(H[i], H[j], j)) / root
    return True


@jit
def inverted(L: Array, n: Integer, T: Array) -> None:
    """Write the inverse of the lower triangle L to T, with zeros above its diagonal."""
    for i in range(n):
        for j in range(n):
            T[i, j] = 0.0
        T[i, i] = 1.0
        for q in range(i):
            factor = L[i, q]
            for j in range(q + 1):
                T[i, j] -= factor * T[q, j]
        scale = 1.0 / L[i, i]
        for j in range(i + 1):
            T[i, j] *= scale


@jit_inlined
def last_of_tridiagonal(diagonal: Array, beside: Array, n: Integer, low: float) -> float:
    """The largest eigenvalue, at least `low`, of a symmetric tridiagonal matrix, rounded up, by bisection."""
    high = low
    for i in range(n):
        row = diagonal[i] + (beside[i] if i > 0 else 0.0) + (beside[i + 1] if i < n - 1 else 0.0)
        high = max(high, row)
    for _ in range(60):
        if high - low <= 1e-12 * high:
            break
        middle = 0.5 * (low + high)
        pivot = diagonal[0] - middle
        above = pivot > 0.0
        for i in range(1, n):
            pivot = diagonal[i] - middle - beside[i] * beside[i] / (pivot if pivot != 0.0 else 1e-300)
            above |= pivot > 0.0
        if above:
            low = middle
        else:
            high = middle
    return float(high)


@jit
def squared_norm_of(T: Array, n: Integer) -> float:
    """About the largest eigenvalue of T'T, T being a lower triangle, by Lanczos' method: no less, as a rule."""
    Q, w, u = np.empty((MOST_STEPS + 1, n)), np.empty(n), np.empty(n)
    diagonal, beside = np.empty(MOST_STEPS), np.zeros(MOST_STEPS + 1)
    for i in range(n):
        Q[0, i] = 1.0 / np.sqrt(n)
    largest = error = 0.0
    for step in range(min(n, MOST_STEPS)):
        q = Q[step]
        for i in range(n):
            u[i] = dot(T[i], q, i + 1)
            w[i] = 0.0
        for i in range(n):
            for j in range(i + 1):
                w[j] += u[i] * T[i, j]
        diagonal[step] = dot(w, q, n)
        for _ in range(2):
            for a in range(step + 1):
                along = dot(w, Q[a], n)
                for i in range(n):
                    w[i] -= along * Q[a, i]
        left = np.sqrt(dot(w, w, n))
        beside[step + 1] = left
        largest = last_of_tridiagonal(diagonal, beside, step + 1, largest)
        # the residual of the pair is the last entry of the tridiagonal matrix's eigenvector times what is left
        before, entry, squares = 0.0, 1.0, 1.0
        for i in range(step):
            before, entry = entry, ((largest - diagonal[i]) * entry - beside[i] * before) / beside[i + 1]
            squares += entry * entry
        error = left * abs(entry) / np.sqrt(squares)
        if error <= ACCURATE * largest or left <= 1e-12 * largest:
            break
        for i in range(n):
            Q[step + 1, i] = w[i] / left
    return float(largest + error)


@jit
def proved(M: Array, shift: Array, error: float, margins: float, n: Integer, B: Array) -> bool:
    """Whether a factorisation proves that M less a diagonal is positive definite; `diht.bounds.shift` says why, and how far.

    M is scaled to columns of norms of about 1, and `error` is the norm of its error, so scaled. B is room for the factor.
    """
    trace = largest = 0.0
    for i in range(n):
        trace += abs(M[i, i])
        largest = max(largest, M[i, i] + shift[i])
    roundings = (2.0 * n + 16.0) * UNIT
    margin = error + roundings / (1.0 - roundings) * trace + 16.0 * UNIT * largest + n * 2.0**-1000
    for i in range(n):
        for j in range(i):
            B[i, j] = M[i, j]
        B[i, i] = M[i, i] - shift[i] - margins * margin
        if not B[i, i] > 0.0:
            return False
    return factorised(B, n, n)


@jit_inlined
def find_ridges(M: Array, scale: Array, error: float, weights: Array, margins: float, ridges: Array) -> bool:
    r"""Write the largest ridges in the proportions weights / diag(M^-1) that are proved; False where there are none.

    M is scaled by `scale`, and `error` is the norm of its error. With L its Cholesky factor and T = :math:`L^{-1}` with columns
    scaled to norms of the roots of the weights, the factor is :math:`1 / \|T\|^2`.
    """
    n = weights.size
    L, T, shift = np.empty((n, n)), np.empty((n, n)), np.empty(n)
    for i in range(n):
        for j in range(i + 1):
            L[i, j] = M[i, j]
    if not factorised(L, n, n):
        return False
    inverted(L, n, T)
    base = np.zeros(n)
    for i in range(n):
        for j in range(i + 1):
            base[j] += T[i, j] * T[i, j]
    for j in range(n):
        base[j] = weights[j] / base[j]
        root = np.sqrt(base[j])
        for i in range(j, n):
            T[i, j] *= root
    largest = squared_norm_of(T, n)
    for fraction in TRIALS:
        for j in range(n):
            shift[j] = fraction * base[j] / largest
        if proved(M, shift, error, margins, n, L):
            for j in range(n):
                ridges[j] = shift[j] * scale[j] * scale[j]
            return True
    return False

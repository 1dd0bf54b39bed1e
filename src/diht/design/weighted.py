"""Compiled kernel of the weighted Gram matrix of a sparse matrix: the Hessian of a refit."""

from __future__ import annotations

import numpy as np

from diht.design.kernels import Array, Integer, jit


@jit
def csr_gram(data: Array, indices: Array, indptr: Array, start: Integer, stop: Integer, c: Array, gram: Array) -> None:
    """Add what makes ``c_i x_i x_i'`` of some rows, together with its transpose, to ``gram``; few entries are touched."""
    one = np.uint64(1)
    for i in range(np.uint64(start), np.uint64(stop)):
        if c[i] == 0.0:
            continue
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + one])
        for p in range(begin, end):
            x = c[i] * data[p]
            row = gram[np.uint64(indices[p])]
            row[np.uint64(indices[p])] += 0.5 * x * data[p]
            for q in range(p + one, end):
                row[np.uint64(indices[q])] += x * data[q]

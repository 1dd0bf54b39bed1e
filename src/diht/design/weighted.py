"""Compiled kernel of the weighted Gram matrix of a sparse matrix: the Hessian of a refit."""

from __future__ import annotations

import numpy as np

from diht.design.kernels import Array, jit


@jit
def csr_gram(data: Array, indices: Array, indptr: Array, c: Array, gram: Array) -> None:
    """Add ``c_i x_i x_i'`` of every row to the entries ``gram[j, l]``; rows are short, so that few entries are touched."""
    one = np.uint64(1)
    for i in range(np.uint64(0), np.uint64(c.size)):
        if c[i] == 0.0:
            continue
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + one])
        for p in range(begin, end):
            x = c[i] * data[p]
            row = gram[np.uint64(indices[p])]
            for q in range(begin, end):
                row[np.uint64(indices[q])] += x * data[q]

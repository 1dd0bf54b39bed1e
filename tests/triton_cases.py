"""What `tests/test_gpu_kernels.py` runs in a process of its own: every Triton kernel beside float64 sums of numpy's."""

from math import fsum

import numpy as np
import scipy.sparse as sp
import torch

from diht.gpu import kernels
from diht.gpu.arrays import pairwise_sum
from diht.gpu.matrix import Dense, Sparse
from diht.losses import Pieces
from diht.samples import central_slopes as compiled

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RNG = np.random.default_rng(0)


def there(a: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(a)).to(DEVICE)


def close(work, exact: np.ndarray, size: np.ndarray) -> None:
    """Up to some roundings of the sum of its terms in size; twice the same bits."""
    found = work()
    assert kernels.take(found)
    assert found.dtype == torch.float64
    assert torch.equal(found, work())
    assert np.all(np.abs(found.cpu().numpy() - exact) <= 64 * 2.0**-53 * size)


def dense(n: int, d: int, order: str) -> None:
    X = RNG.normal(size=(n, d)).astype(np.float32)
    A, held = X.astype(np.float64), there(X) if order == "C" else there(X.T).T
    M, w, c, m = Dense(held), RNG.normal(size=d), RNG.normal(size=n), RNG.normal(size=d)
    close(lambda: M.matvec(there(w)), A @ w, np.abs(A) @ np.abs(w))
    some = RNG.permutation(d)[: d // 2 + 1]
    close(lambda: M.matvec_of(there(some), there(w[some])), A[:, some] @ w[some], np.abs(A[:, some]) @ np.abs(w[some]))
    close(lambda: M.row_squares_of(there(some)), (A[:, some] ** 2).sum(axis=1), (A[:, some] ** 2).sum(axis=1))
    close(lambda: M.rmatvec(there(c)), A.T @ c, np.abs(A).T @ np.abs(c))
    if order == "C":
        sums = np.array([fsum(column) for column in (A**2).T.tolist()])
        close(lambda: M.rmatvec_and_squares(there(c))[0], A.T @ c, np.abs(A).T @ np.abs(c))
        close(lambda: M.rmatvec_and_squares(there(c))[1], sums, sums)
    squares = (A - m) ** 2
    close(lambda: M.column_spread(there(c**2), there(m)), c**2 @ squares, c**2 @ squares)
    close(lambda: M.row_spread(there(m), None), squares.sum(axis=1), squares.sum(axis=1))


def sparse(n: int, d: int, window: int, cut: int) -> None:
    kernels.WINDOW, kernels._CUT = window, cut
    A = RNG.normal(size=(n, d)) * (RNG.random((n, d)) < 0.1)
    A[3] = RNG.normal(size=d)  # a long row, a long column, and empty ones
    A[:, 2] = RNG.normal(size=n)
    A[5], A[:, 4] = 0.0, 0.0
    X = sp.csr_array(A.astype(np.float32))
    A = X.toarray().astype(np.float64)
    M = Sparse(there(X.indptr.astype(np.int64)), there(X.indices), there(X.data), d)
    w, c = RNG.normal(size=d), RNG.normal(size=n)
    close(lambda: M.matvec(there(w)), A @ w, np.abs(A) @ np.abs(w))
    close(lambda: M.rmatvec(there(c)), A.T @ c, np.abs(A).T @ np.abs(c))
    close(lambda: M.column_spread(there(c**2), None), c**2 @ A**2, c**2 @ A**2)


def slopes(pieces: Pieces, tau: float) -> None:
    u = np.concatenate([RNG.normal(size=200) * 10.0 ** RNG.integers(-6, 6, 200), [0.0, 1.0, -1.0, 1e8, -1e8]])
    y = RNG.choice([-1.0, 1.0], len(u)) if pieces.turned else RNG.normal(size=len(u))
    exact = np.empty_like(u)
    compiled.central_slopes(u, y, pieces.numbers, tau, exact)
    found = kernels.central_slopes(there(u), there(y), pieces, tau).cpu().numpy()
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-13)


def mend_interpreter() -> None:
    """Let Triton's interpreter (3.6) take the end of a loop from numpy 2.4 and later, which makes no number of an array of one."""
    from triton.runtime import interpreter

    given = interpreter._patch_lang_tensor

    def patched(tensor, scope) -> None:
        given(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def main() -> None:
    if DEVICE == "cpu":
        mend_interpreter()
    for n, d, order in ((5000, 7, "C"), (70, 300, "C"), (70, 300, "F"), (1, 1, "C")):
        dense(n, d, order)
    for n, d, window, cut in ((300, 40, 2**21, 1024), (300, 40, 64, 16)):
        sparse(n, d, window, cut)
    for pieces in (
        Pieces(0.5, -1.0, 0.0),
        Pieces(0.0, -1.0, 0.0),
        Pieces(1.0, -np.inf, 0.0),
        Pieces(0.3, -1.0, 1.0, False),
        Pieces(0.0, -0.2, 0.8, False),
    ):
        for tau in (1e-1, 1e-6, 1e-12):
            slopes(pieces, tau)
    values = RNG.normal(size=3000)
    close(lambda: pairwise_sum(there(values)), np.asarray(values.sum()), np.abs(values).sum())
    print("all kernels agree")


if __name__ == "__main__":
    main()

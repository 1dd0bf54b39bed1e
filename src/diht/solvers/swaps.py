r"""Local search over supports: exchange one feature of a model for another while that lowers the objective.

Around a model fitted on its support S, the objective without its intercept (which is eliminated) is, for a step p,

.. math:: \varphi(w + p) \approx \varphi(w) - r^\top p + \tfrac12 p^\top H p , \qquad H = X^\top C X + \lambda I ,

with r = 0 on S, C the diagonal of the curvatures :math:`s_i l''(u_i)` and X centred by them where there is an intercept (its Schur
complement). For the squared loss this is no approximation. With :math:`M = H_{SS}^{-1}`, :math:`B = M H_{S \cdot}` and
:math:`h_j = H_{jj} - H_{jS} B_{\cdot j}` the exchange of i in S for j outside lowers the quadratic by

.. math:: \frac{(r_j + B_{ij} w_i / M_{ii})^2}{2 (h_j + B_{ij}^2 / M_{ii})} - \frac{w_i^2}{2 M_{ii}} ,

what j gains once i has gone, less what leaving i out costs. So one matrix of k rows ranks all pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from diht.design import DenseDesign, Design
from diht.duality import primal
from diht.intercept import best_intercept
from diht.losses import Loss, QuadraticConjugate
from diht.problem import Problem
from diht.selection import top_k
from diht.solvers.pool import Pool
from diht.solvers.refit import refit

__all__ = ["swap_search"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Indices = NDArray[np.int64]

_MOST_ENTRIES = 1e7  # of the dense matrices of a block: its samples times features, its support times features
_MOST_KEPT = 2e7  # entries of the rows of H that are kept
_MOST_ROWS = 200  # features that may leave, where there are too many to look at all
_FEWEST = 10  # features to look at, however many samples there are
_FRESH = 50  # swaps after which the quadratic is computed anew, for its updates drift
_ROUGH = 1e-3  # accuracy of a first fit with a loss that has kinks
_KICKS = 2, 3, 5  # features that a kick exchanges, in turn
_CHORD_STEPS = 4
_TRUST = 3.0  # times the fall that the quadratic promises: more than that is not hoped for


def swap_search(
    problem: Problem,
    support: Indices,
    w: Vector | None = None,
    b: float = 0.0,
    *,
    rtol: float = 1e-9,
    max_swaps: int = 1000,
    candidates: int = 200,
    shortlist: int = 10,
    kicks: int = 0,
    random_state: int = 0,
    stop: Callable[[], bool] | None = None,
    pool: Pool | None = None,
) -> tuple[Vector, float, Vector, float]:
    """Improve a support by swaps until none of those looked at lowers the objective.

    The support is first filled up to what the constraint allows. All pairs are looked at where X is small, or else those of the
    `candidates` features outside that promise most. For the squared loss their gains are exact; for other losses the `shortlist`
    best by the quadratic are tried.

    Where no single swap helps, several at once may (squared loss only): a kick takes a few features out, preferably cheap ones,
    puts the best others in their places, and swaps on from there.

    Parameters
    ----------
    problem : Problem
    support : array of int
        Where to start; may be empty.
    w, b : array of shape (d,) and float
        A model to start the first fit from.
    rtol : float
        Relative fall of the objective that is worth a swap.
    max_swaps : int
    candidates, shortlist : int
    kicks : int
        Fruitless kicks in a row after which the search ends; their swaps count as well.
    random_state : int
        Seed of the kicks.
    stop : callable, optional
        Asked before every swap; True ends the search.
    pool : Pool, optional
        Is given every model met.

    Returns
    -------
    w, b, u, objective
        The model, its predictions Xw + b, and its objective: never above that of the best fit on the support given.
    """
    rng = np.random.default_rng(random_state)
    search = _Search(problem, rtol, max_swaps, candidates, shortlist, kicks, rng, stop or (lambda: False), pool)
    best = search.first(np.unique(np.asarray(support, dtype=np.int64)), w, b)
    descend = _swap_exactly if _is_quadratic(problem.loss) else _swap_by_trial
    while not search.stop():
        block = _Block.around(search, best)
        better = block.leave(descend(block, block.enter(best)))
        problem.design.count_reads_of(block.part.design)
        finished = block.is_whole or not search.improves(better, best)
        best = better
        if finished or search.swaps_left <= 0:
            break
    return best.w, best.b, best.u, primal(problem, best.w, best.b, best.u)


@dataclass(frozen=True, eq=False)
class _Fit:
    """The best model on a support (some of its coefficients may be zero)."""

    support: Indices
    w: Vector
    b: float
    u: Vector
    value: float


@dataclass(eq=False)
class _Search:
    """What does not change during a search, and what is left of it."""

    problem: Problem
    rtol: float
    swaps_left: int
    candidates: int
    shortlist: int
    kicks: int
    rng: np.random.Generator
    stop: Callable[[], bool]
    pool: Pool | None
    inside: Indices = field(init=False)
    outside: Indices = field(init=False)
    room: int = field(init=False)
    diagonal: Vector | None = field(init=False, default=None)  # of the Hessian, for all features; only for ranking them

    def __post_init__(self) -> None:
        d = self.problem.shape[1]
        m, self.inside, self.outside = self.problem.constraint.free(d)
        self.room = min(m + len(self.inside), d - len(self.outside))

    def ended(self) -> bool:
        """Whether there may be no more swaps."""
        return self.swaps_left <= 0 or self.stop()

    def improves(self, new: _Fit, old: _Fit) -> bool:
        """Whether a model is better by more than the tolerance, or no worse with more features."""
        longer = len(new.support) > len(old.support)
        margin = self.rtol * abs(old.value)  # a feature more never costs anything, but for rounding
        return new.value <= old.value + margin if longer else new.value < old.value - margin

    def fit(self, problem: Problem, support: Indices, w: Vector | None, b: float, rtol: float = 0.0) -> _Fit:
        """Return the best model on a support, to `rtol` or well within the tolerance for swaps."""
        w, b, u = refit(problem, support, w, b, rtol=max(rtol, 1e-2 * self.rtol))
        return _Fit(support, w, b, u, primal(problem, w, b, u))

    def first(self, support: Indices, w: Vector | None, b: float) -> _Fit:
        """Fit on the support given, less what the constraint forbids, with what it asks for."""
        support = np.setdiff1d(np.union1d(support, self.inside), self.outside)
        fit = self.fit(self.problem, support, w, b)
        if len(support) > self.room:
            size = np.abs(fit.w)
            size[self.inside] = np.inf
            fit = self.fit(self.problem, top_k(size, self.room), fit.w, fit.b)
        self.meet(fit.support, fit.w[fit.support], fit.b, fit.value)
        return fit

    def meet(self, support: Indices, values: Vector, b: float, value: float) -> None:
        """Tell the pool of a model."""
        if self.pool is not None:
            order = np.argsort(support)
            self.pool.insert(support[order], values[order], b, value)


# ---------------------------------------------------------------------------------------------------------------------
# The features that a round looks at


@dataclass(frozen=True, eq=False)
class _Block:
    """A compact copy of some features, in whose numbering a round works: the support and the candidates to join it."""

    search: _Search
    features: Indices
    part: Problem
    Z: Matrix | None  # the part's design, dense, unless it is too large
    stays: NDArray[np.bool_]  # which features may not leave
    is_whole: bool

    @classmethod
    def around(cls, search: _Search, fit: _Fit) -> _Block:
        n, d = search.problem.shape
        is_whole = max(n, search.room) * d <= _MOST_ENTRIES
        chosen = np.arange(d) if is_whole else np.union1d(fit.support, _candidates(search, fit))
        features = np.setdiff1d(chosen, search.outside)
        part = search.problem.restricted(features)
        fits = max(n, search.room) * len(features) <= _MOST_ENTRIES
        cheap = (
            part.design.gram_cost() <= n * float(search.room) * len(features) and len(features) ** 2 <= _MOST_ENTRIES
        )
        Z = part.design.toarray() if fits and not cheap else None
        return cls(search, features, part, Z, np.isin(features, search.inside), is_whole)

    def enter(self, fit: _Fit) -> _Fit:
        """Return a model in the numbering of the block."""
        return _Fit(np.searchsorted(self.features, fit.support), fit.w[self.features], fit.b, fit.u, fit.value)

    def leave(self, fit: _Fit) -> _Fit:
        """Return a model in the numbering of the problem."""
        w = np.zeros(self.search.problem.shape[1])
        w[self.features] = fit.w
        return _Fit(self.features[fit.support], w, fit.b, fit.u, fit.value)

    def fit(self, support: Indices, w: Vector, b: float, rtol: float = 0.0) -> _Fit:
        """Return the best model on a support."""
        return self.search.fit(self.part, np.sort(support), w, b, rtol)

    def meet(self, support: Indices, values: Vector, b: float, value: float) -> None:
        """Tell the pool of a model."""
        self.search.meet(self.features[support], values, b, value)

    def hessian(self, fit: _Fit) -> _Hessian:
        """Return the curvature around a model."""
        part = self.part
        c = part.s * _curvature(part, fit)
        n, width = part.shape
        if part.design.gram_cost() <= n * float(len(fit.support)) * width and width**2 <= _MOST_ENTRIES:
            return _Hessian.whole(part, c)
        if self.Z is not None:
            return _Hessian.weighted(self.Z, np.arange(len(self.features)), c, part)
        columns = self._columns(fit)
        design = part.design.columns(columns)
        part.design.count_reads_of(design)
        return _Hessian.weighted(design.toarray(), columns, c, part)

    def _columns(self, fit: _Fit) -> Indices:
        """Return the features of a quadratic where not all fit: of the support those that cost least, each alone."""
        support = fit.support
        costs = np.abs(fit.w[support]) * self.part.design.column_norms()[support]
        costs[self.stays[support]] = np.inf
        kept = support[np.argsort(costs, kind="stable")[_at_most(_MOST_ROWS, len(fit.u)) :]]
        return np.setdiff1d(np.arange(len(self.features)), kept)

    def quadratic(self, fit: _Fit, hessian: _Hessian) -> _Quadratic:
        """Return the quadratic around a model; the features that it leaves out keep their coefficients."""
        part = self.part
        r = -part.design.rmatvec(part.s * part.loss.derivative(fit.u, part.y))
        rows, rest = np.intersect1d(fit.support, hessian.columns), np.setdiff1d(fit.support, hessian.columns)
        taken = np.zeros(len(self.features), dtype=bool)
        taken[fit.support] = True
        return _Quadratic.around(rows, rest, fit.w[rows], fit.value, r, hessian, taken, self.stays)


def _at_most(number: int, n_samples: int) -> int:
    """Return a number of features whose dense columns have a bounded number of entries, but for a few features."""
    return min(number, max(_FEWEST, int(0.5 * _MOST_ENTRIES / n_samples)))


def _is_quadratic(loss: Loss) -> bool:
    return isinstance(loss, QuadraticConjugate) and loss.low == -np.inf and loss.high == np.inf


def _candidates(search: _Search, fit: _Fit) -> Indices:
    r"""Return the features outside the support that promise most, each alone: :math:`r_j^2 / H_{jj}`."""
    problem = search.problem
    r = problem.design.rmatvec(problem.s * problem.loss.derivative(fit.u, problem.y))
    if search.diagonal is None:
        search.diagonal = _diagonal(problem, fit)
    promise = np.abs(r) / np.sqrt(search.diagonal)
    promise[fit.support] = promise[search.outside] = 0.0
    missing = search.room - len(fit.support)
    return top_k(promise, missing + _at_most(search.candidates, problem.shape[0]))


def _diagonal(problem: Problem, fit: _Fit) -> Vector:
    """Return the diagonal of H, for all features."""
    c = problem.s * _curvature(problem, fit)
    total = float(c.sum())
    if total == 0.0:
        return np.full(problem.shape[1], problem.lam)
    mean, variance = problem.design.moments(c / total)
    return np.asarray(total * (variance if problem.fit_intercept else variance + mean**2) + problem.lam)


def _curvature(problem: Problem, fit: _Fit) -> Vector:
    """Return the mean of l'' over [u - h, u + h], where h is what a feature contributes to the predictions on average.

    That is how far they move where one feature goes and another comes; from so far a loss with kinks or flat parts is curved.
    """
    loss, u, y, s = problem.loss, fit.u, problem.y, problem.s
    if _is_quadratic(loss):
        return np.asarray(loss.second_derivative(u, y))
    h = float(np.sqrt(s @ (u - fit.b) ** 2 / max(len(fit.support), 1))) or float(s @ np.abs(y)) or 1.0
    return np.asarray((loss.derivative(u + h, y) - loss.derivative(u - h, y)) / (2.0 * h))


# ---------------------------------------------------------------------------------------------------------------------
# The quadratic


class _Root(DenseDesign):
    """A matrix A of which rows of A'A are wanted."""

    def gram_rows(self, chosen: Indices) -> Matrix:
        """Return some rows of A'A, with one read of A."""
        self._passes += 1.0
        return np.asarray(self._X[:, chosen].T @ self._X)


@dataclass(frozen=True, eq=False)
class _Hessian:
    """H = A'A + lam I by its rows, which are kept; zero but for the columns that A stands for."""

    root: _Root | None
    columns: Indices
    lam: float
    diagonal: Vector
    known: dict[int, Vector] = field(default_factory=dict)

    @classmethod
    def whole(cls, problem: Problem, c: Vector) -> _Hessian:
        """Form all of H at once: on short rows that takes less than a few rows of a dense product."""
        H = problem.design.weighted_gram(c)
        total = float(c.sum())
        if problem.fit_intercept and total > 0.0:
            pull = problem.design.rmatvec(c)
            H -= np.outer(pull, pull) / total
        H[np.diag_indices(len(H))] += problem.lam
        return cls(None, np.arange(len(H)), problem.lam, np.diag(H).copy(), dict(enumerate(H)))

    @classmethod
    def weighted(cls, Z: Matrix, columns: Indices, c: Vector, problem: Problem) -> _Hessian:
        """Take A = C^(1/2) Z, Z centred by the weights c where there is an intercept."""
        total = float(c.sum())
        A = Z - (c / total) @ Z if problem.fit_intercept and total > 0.0 else Z
        A = np.sqrt(c)[:, None] * A
        diagonal = np.full(problem.shape[1], problem.lam)
        diagonal[columns] += np.einsum("ij,ij->j", A, A)
        return cls(_Root(A), columns, problem.lam, diagonal)

    def count(self, design: Design) -> None:
        """Count what has been read of A."""
        if self.root is not None:
            design.count_reads_of(self.root)

    def rows(self, chosen: Indices) -> Matrix:
        """Return some rows of H; those not known yet come from one product."""
        if self.root is not None and (len(self.known) + len(chosen)) * len(self.diagonal) > _MOST_KEPT:
            self.known.clear()
        new = np.array([j for j in chosen.tolist() if j not in self.known], dtype=np.int64)
        if len(new):
            assert self.root is not None
            products = self.root.gram_rows(np.searchsorted(self.columns, new))
            for j, row in zip(new.tolist(), products, strict=True):
                self.known[j] = np.zeros(len(self.diagonal))
                self.known[j][self.columns] = row
                self.known[j][j] = self.diagonal[j]
        return np.array([self.known[j] for j in chosen.tolist()]).reshape(len(chosen), len(self.diagonal))


@dataclass(eq=False)
class _Quadratic:
    """The quadratic around the best model on a support, with what the module's formula needs; `support` is in no order."""

    support: Indices
    rest: Indices  # features of the model that are kept as they are
    w: Vector
    value: float
    r: Vector
    M: Matrix
    B: Matrix
    h: Vector
    hessian: _Hessian
    taken: NDArray[np.bool_]  # features that cannot enter
    stays: NDArray[np.bool_]  # features that cannot leave

    @classmethod
    def around(
        cls,
        support: Indices,
        rest: Indices,
        w: Vector,
        value: float,
        r: Vector,
        hessian: _Hessian,
        taken: NDArray[np.bool_],
        stays: NDArray[np.bool_],
    ) -> _Quadratic:
        """Factorise H on the support."""
        rows = hessian.rows(support)
        M = _inverse(rows[:, support])
        B = M @ rows
        B[:, support] = np.eye(len(support))
        h, r = hessian.diagonal - np.einsum("ij,ij->j", rows, B), r.copy()
        h[support] = r[support] = 0.0
        return cls(support, rest, w.copy(), value, r, M, B, h, hessian, taken, stays)

    def gains(self) -> Matrix:
        """Return by how much each exchange of a row for a column lowers the quadratic; at most 0 for columns that are taken."""
        inverse = 1.0 / self.M.diagonal()
        costs = np.where(self.stays[self.support], np.inf, np.square(self.w) * inverse)
        gains = self.B * (self.w * inverse)[:, None]
        gains += self.r
        np.square(gains, out=gains)
        curvature = np.square(self.B)
        curvature *= inverse[:, None]
        curvature += self._curvatures()
        gains /= curvature
        gains -= costs[:, None]
        gains *= 0.5
        return gains

    def best_addition(self) -> int:
        """Return the feature that alone lowers the quadratic most."""
        return int(np.argmax(np.where(self.taken, -1.0, np.square(self.r) / self._curvatures())))

    def _curvatures(self) -> Vector:
        """Return h, which rounding must not take below lam; infinite where a feature cannot enter."""
        return np.where(self.taken, np.inf, np.maximum(self.h, self.hessian.lam))

    def add(self, j: int) -> None:
        """Take a feature into the support."""
        k = len(self.support)
        self.support, self.w = np.append(self.support, j), np.append(self.w, 0.0)
        self.B, self.M = np.pad(self.B, ((0, 1), (0, 0))), np.pad(self.M, (0, 1))
        self._enter(k, j)

    def swap(self, row: int, j: int) -> None:
        """Exchange a feature of the support for another."""
        self._leave(row)
        self._enter(row, j)

    def kicked(self, rows: Indices) -> _Quadratic:
        """Return a copy with the features of some rows exchanged for the best others, one after the other."""
        other = replace(self, support=self.support.copy(), r=self.r.copy(), B=self.B.copy(), h=self.h.copy())
        other.taken = self.taken.copy()
        for row in rows.tolist():
            other._leave(row)
        other.taken[self.support[rows]] = True  # or they would come back at once
        for row in rows.tolist():
            other._enter(row, other.best_addition())
        other.taken[self.support[rows]] = False
        return other

    def _leave(self, row: int) -> None:
        """Take a feature out of the support; its row is zero then."""
        m, beta = self.M[row, row], self.B[row].copy()
        self.value += 0.5 * self.w[row] ** 2 / m
        self.r += beta * (self.w[row] / m)
        self.h += np.square(beta) / m
        self.B -= np.outer(self.M[:, row] / m, beta)
        self.M, self.w = _without(self.M, self.w, row)
        self.taken[self.support[row]] = False

    def _enter(self, row: int, j: int) -> None:
        """Take a feature into the support, in a row that is zero."""
        h, beta = max(self.h[j], self.hessian.lam), self.B[:, j].copy()
        t = self.r[j] / h
        self.value -= 0.5 * h * t**2
        of_j = self.hessian.rows(np.array([j]))[0]
        new = of_j - of_j[self.support] @ self.B
        self.r -= new * t
        self.h -= np.square(new) / h
        self.r[j] = self.h[j] = 0.0
        new /= h
        new[j] = 1.0
        self.B -= np.outer(beta, new)
        self.B[row] = new
        self.M, self.w = _with(self.M, self.w, row, beta, h, t)
        self.support[row] = j
        self.taken[j] = True

    def after(self, row: int, j: int) -> tuple[Indices, Vector, Matrix]:
        """Return the support, the coefficients and M after an exchange."""
        m, beta = self.M[row, row], self.B[row, j]
        h = max(self.h[j] + beta**2 / m, self.hessian.lam)
        t = (self.r[j] + beta * self.w[row] / m) / h
        M, w = _without(self.M, self.w, row)
        M, w = _with(M, w, row, self.B[:, j] - self.M[:, row] * (beta / m), h, t)
        support = self.support.copy()
        support[row] = j
        return support, w, M


def _inverse(H: Matrix) -> Matrix:
    """Invert a positive definite matrix."""
    try:
        factor = scipy.linalg.cho_factor(H, check_finite=False)
    except scipy.linalg.LinAlgError:  # definite, but not to rounding
        return np.asarray(np.linalg.pinv(H, hermitian=True))
    return np.asarray(scipy.linalg.cho_solve(factor, np.eye(len(H)), check_finite=False))


def _without(M: Matrix, w: Vector, row: int) -> tuple[Matrix, Vector]:
    """Return the inverse and the coefficients where a feature leaves, zero in its row."""
    m = M[:, row] / M[row, row]
    M, w = M - np.outer(m, M[row]), w - m * w[row]
    M[row], M[:, row], w[row] = 0.0, 0.0, 0.0
    return M, w


def _with(M: Matrix, w: Vector, row: int, beta: Vector, h: float, t: float) -> tuple[Matrix, Vector]:
    """Return the inverse and the coefficients where a feature joins, in a row that is zero, with the coefficient t."""
    column = -beta
    column[row] = 1.0
    return M + np.outer(column, column / h), w + column * t


# ---------------------------------------------------------------------------------------------------------------------
# The two ways to descend


def _swap_exactly(block: _Block, fit: _Fit) -> _Fit:
    """Make the best swap over and over, for a quadratic objective; what the updates arrive at is confirmed by a new fit."""
    hessian = block.hessian(fit)
    end = _swap_around(block, fit, hessian)
    hessian.count(block.part.design)
    return end


def _swap_around(block: _Block, fit: _Fit, hessian: _Hessian) -> _Fit:
    while True:
        quadratic = block.quadratic(fit, hessian)
        if not _walk(block, quadratic, fit):
            kicked = _kick(block, quadratic, fit)
            if kicked is None:
                return fit
            quadratic = kicked
        w = np.zeros_like(fit.w)
        w[quadratic.rest], w[quadratic.support] = fit.w[quadratic.rest], quadratic.w
        new = block.fit(np.append(quadratic.rest, quadratic.support), w, fit.b)
        block.meet(new.support, new.w[new.support], new.b, new.value)
        if not block.search.improves(new, fit):
            return new if new.value < fit.value else fit
        fit = new


def _walk(block: _Block, quadratic: _Quadratic, fit: _Fit) -> bool:
    """Fill the support, then swap while that lowers the quadratic; tell whether anything was done."""
    search, moved = block.search, False
    while len(quadratic.support) + len(quadratic.rest) < search.room and not search.stop():
        quadratic.add(quadratic.best_addition())
        moved = True
    for _ in range(_FRESH):
        gains = quadratic.gains()
        if not gains.size or search.ended():
            break
        row, j = divmod(int(np.argmax(gains)), gains.shape[1])
        if not gains[row, j] > search.rtol * abs(quadratic.value):
            break
        quadratic.swap(row, j)
        search.swaps_left -= 1
        moved = True
        if search.pool is not None:
            _tell(block, quadratic, fit)
    return moved


def _kick(block: _Block, quadratic: _Quadratic, fit: _Fit) -> _Quadratic | None:
    """Try kicks of a few features until one leads below the model, within rounding."""
    search = block.search
    rows = np.flatnonzero(~block.stays[quadratic.support])
    outside = len(block.features) - int(np.count_nonzero(quadratic.taken))
    for attempt in range(search.kicks):
        size = min(_KICKS[attempt % len(_KICKS)], len(rows), outside)
        if size < 2 or search.ended():
            return None
        costs = quadratic.w[rows] ** 2 / quadratic.M.diagonal()[rows]
        other = quadratic.kicked(rows[np.argsort(costs * search.rng.exponential(size=len(rows)))[:size]])
        _walk(block, other, fit)
        if other.value < fit.value - search.rtol * abs(fit.value):
            return other
    return None


def _tell(block: _Block, quadratic: _Quadratic, fit: _Fit) -> None:
    """Tell the pool of the model that the updates have arrived at, with its own objective."""
    w = np.zeros_like(fit.w)
    w[quadratic.rest], w[quadratic.support] = fit.w[quadratic.rest], quadratic.w
    support = np.sort(np.append(quadratic.rest, quadratic.support))
    u = block.part.design.matvec(w, support=support) + fit.b
    block.meet(support, w[support], fit.b, primal(block.part, w, fit.b, u))


def _swap_by_trial(block: _Block, fit: _Fit) -> _Fit:
    """Make the first swap that lowers the objective, of those that lower its quadratic model most, until none does."""
    while True:
        hessian = block.hessian(fit)
        quadratic = block.quadratic(fit, hessian)
        missing = block.search.room - len(fit.support)
        new = _filled(block, quadratic, fit, (missing + 1) // 2) if missing else _first_better(block, quadratic, fit)
        hessian.count(block.part.design)
        if new is None or block.search.stop():
            return fit
        fit = new


def _filled(block: _Block, quadratic: _Quadratic, fit: _Fit, n_new: int) -> _Fit | None:
    """Add the features that lower the quadratic most, one by one, and fit."""
    for _ in range(n_new):
        quadratic.add(quadratic.best_addition())
    new = block.fit(np.append(quadratic.rest, quadratic.support), fit.w, fit.b)
    block.meet(new.support, new.w[new.support], new.b, new.value)
    return new if block.search.improves(new, fit) else None


def _first_better(block: _Block, quadratic: _Quadratic, fit: _Fit) -> _Fit | None:
    """Try the best partner of each of the most promising features outside."""
    search, gains = block.search, quadratic.gains()
    if not gains.size:
        return None
    best = np.where(quadratic.taken, -np.inf, gains.max(axis=0))
    for j in np.argsort(-best, kind="stable")[: search.shortlist].tolist():
        if search.ended() or best[j] == -np.inf:
            return None
        new = _trial(block, quadratic, fit, int(np.argmax(gains[:, j])), j)
        if new is not None and search.improves(new, fit):
            search.swaps_left -= 1
            return new
    return None


def _trial(block: _Block, quadratic: _Quadratic, fit: _Fit, row: int, j: int) -> _Fit | None:
    """Fit after a swap, unless a cheaper look shows that it does not pay."""
    part, (support, x, M) = block.part, quadratic.after(row, j)
    w = fit.w.copy()
    w[quadratic.support[row]] = 0.0
    w[support] = x
    everything, b = np.append(support, quadratic.rest), fit.b
    if part.loss.mu > 0:
        design = part.design.columns(everything)
        w[everything], b, value, hopeless = _chord(part, design, w[everything], b, M, fit.value)
        part.design.count_reads_of(design)
    else:
        rough = block.fit(everything, w, b, _ROUGH)
        w, b, value = rough.w, rough.b, rough.value
        hopeless = value - 2.0 * _ROUGH * abs(value) > fit.value
    block.meet(everything, w[everything], b, value)
    if hopeless:
        return None
    new = block.fit(everything, w, b)
    block.meet(new.support, new.w[new.support], new.b, new.value)
    return new


def _chord(
    part: Problem, design: Design, x: Vector, b: float, M: Matrix, target: float
) -> tuple[Vector, float, float, bool]:
    """Take Newton's steps with a fixed inverse M of the Hessian of the first coefficients, until it is clear what can be had.

    Return the model with its value, and whether to give up on it. No step is needed below `target`.
    """
    m = len(M)

    def model(x: Vector) -> tuple[float, Vector, float]:
        u = design.matvec(x)
        best = best_intercept(part.loss, u, part.y, part.s, b) if part.fit_intercept else 0.0
        return best, u + best, float(part.s @ part.loss.value(u + best, part.y) + 0.5 * part.lam * (x @ x))

    b, u, value = model(x)
    for _ in range(_CHORD_STEPS):
        if value < target:
            return x, b, value, False
        gradient = design.rmatvec(part.s * part.loss.derivative(u, part.y))[:m] + part.lam * x[:m]
        step = -M @ gradient
        if value + 0.5 * _TRUST * float(gradient @ step) > target:
            return x, b, value, True
        trial = np.append(x[:m] + step, x[m:])
        new_b, new_u, new_value = model(trial)
        if not new_value < value:
            break
        x, b, u, value = trial, new_b, new_u, new_value
    return x, b, value, False

r"""The relaxed problem of the squared loss, solved through Gram matrices on a working set of features.

With M, h, the ridges :math:`\rho` and :math:`A = M - \mathrm{diag}(\rho)` as in :mod:`diht.bounds.shift` and :math:`\Omega` the
relaxation of the constraint, the best bound :math:`\max_p B(p)` is the optimum of

.. math:: \min_p \; p^\top A p - 2 h^\top p + y^\top C y + 2 \Omega(\sqrt\rho \odot p) .

In the coordinates :math:`x = \sqrt\rho \odot p` all ridges are 1: with the columns of M and h divided by :math:`\sqrt\rho` it is a
problem of one ridge and a shift of 1, which the solver of one ridge minimises.

Without a shift, features outside a working set W enter through c only: those whose :math:`|c_j|` exceeds the threshold join W, and
once there are none the solution on W is the one on all. Each round costs two products with X and some columns of G.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from diht.bounds.duality import Bound, lower_bound
from diht.bounds.shift import is_shifted, own_ridges, problem_gram, shifted_bound, shifted_ridges
from diht.constraints.base import Constraint
from diht.constraints.selection import top_k
from diht.design.base import UNIT
from diht.design.gram import FLOOR, Gram
from diht.numerics.arrays import Indices, Vector
from diht.numerics.definite import Definite
from diht.numerics.exact import CLEAR
from diht.problem import Problem
from diht.relaxation.proximal import minimise_quadratic
from diht.relaxation.quadratic import Minimiser, States, evaluate, places

__all__ = ["GramRelaxation", "Proved", "Relaxation", "can_shift"]

_FULL = 500  # features up to which the whole Gram matrix is formed at once
_FIRST = 100  # size of the first working set, at least
_ROUNDS = 50
_MAX_ITER = 20_000
_MOST_GROUPED = 1000  # features in groups, or with signs, whose relaxation is solved by proximal steps


def can_shift(problem: Problem) -> bool:
    """Whether a problem has a Gram relaxation that may be shifted: the squared loss of one target, few features unless plain."""
    constraint = problem.constraint
    simple = constraint.is_plain or problem.shape[1] <= _MOST_GROUPED
    return problem.loss.is_squared_error and problem.n_targets == 1 and simple


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A solution of the relaxed problem.

    Attributes
    ----------
    p : array of shape (d,)
        The solution.
    c : array of shape (d,)
        h - A p on the features in play, zero elsewhere; its largest entries are the features that a model would take.
    value : float
        The relaxed objective of p.
    bound : float
        B(p), to rounding: value less the gap.
    safe : float
        B(p) less all that the Gram matrix and its products can be off by: a true bound, as long as every feature in play is in
        the Gram matrix; -inf otherwise, and `GramRelaxation.certified` is there to look at the data.
    theta : float
        The threshold: features whose |p_j|, times the root of their ridge where there is a shift, is larger have z_j = 1.
    z : array of shape (d,)
        How much of a place each feature takes.
    iterations : int
        Steps that were made.
    """

    p: Vector
    c: Vector
    value: float
    bound: float
    safe: float
    theta: float
    z: Vector
    iterations: int = 0


class Proved(NamedTuple):
    """A lower bound, and what was subtracted from it for rounding."""

    value: float
    rounding: float


class GramRelaxation:
    """The relaxed problem over some features, ready to be solved for many constraints.

    Parameters
    ----------
    problem : Problem
        With the squared loss.
    features : array of int, optional
        The features in play, all by default.
    ridges : array, optional
        Those that `diht.bounds.shift.shifted_ridges` proved for these features, ascending; by default the problem's own.
    known : Gram, optional
        Their Gram matrix, where it is at hand.
    full : bool, optional
        Whether to form the whole Gram matrix at once: by default for few features, or with a shift.

    Attributes
    ----------
    gram : Gram
        That of the working set.
    """

    def __init__(
        self,
        problem: Problem,
        features: Indices | None = None,
        ridges: Vector | None = None,
        known: Gram | None = None,
        full: bool | None = None,
    ) -> None:
        if not problem.loss.is_squared_error:
            raise ValueError(f"the loss must be the squared one, got {problem.loss}")
        d = problem.shape[1]
        self.problem = problem
        self.features = np.arange(d) if features is None else np.unique(np.asarray(features, dtype=np.int64))
        own = own_ridges(problem, self.features)
        self.ridges = own if ridges is None else ridges
        self._roots = None if np.array_equal(self.ridges, own) else np.sqrt(self.ridges)
        self._in_play = np.zeros(d, dtype=bool)
        self._in_play[self.features] = True
        self.begin()
        self._norms: dict[int, float] = {}
        shifted = self._roots is not None
        full = known is not None or shifted or len(self.features) <= _FULL if full is None else full
        if known is None:
            known = problem_gram(problem, self.features if full else self._first())
        elif not np.array_equal(np.sort(known.features), self.features):
            raise ValueError("known must be the Gram matrix of the features")
        elif shifted and not np.array_equal(known.features, self.features):
            known = known.among(self.features)
        self._take(known)

    def begin(self, many: bool = False) -> None:
        """Forget how many steps have been made; `many` says that there is so much to solve that everything is compiled."""
        self._minimise = Minimiser(self.problem.shape[0], many)

    def objective(self, support: Indices) -> float:
        """The least objective of a model on a support, from the Gram matrix alone; -inf where that does not hold all of it."""
        if not (self.is_full and np.all(self._in_play[support])):
            return -np.inf
        part = self.gram.among(support)
        M = part.quadratic.copy()
        M.flat[:: len(M) + 1] += 0.5 * self.problem.lam
        return float(part.matrix[-1, -1] - part.linear @ Definite(M).solve(part.linear))

    def narrowed(self, constraint: Constraint, most: int) -> GramRelaxation:
        """Return the relaxation of the features that a constraint leaves, with ridges of their own; itself where that does not pay.

        Without the features outside, and with hardly any for those inside, the others have larger ridges. `most` features may be
        left, for they are found by factorisations of a Gram matrix; and all of it must be known.
        """
        problem = self.problem
        m, inside, outside = constraint.free(problem.shape[1])
        mask = self._in_play.copy()
        mask[outside] = False
        left = np.flatnonzero(mask)
        if m <= 0 or not len(inside) + len(outside) or len(left) > most or not self.is_full:
            return self
        known = self.gram.among(left)
        mask[:] = False
        mask[inside] = True
        ridges = shifted_ridges(problem, left, known, mask[left])
        if not is_shifted(problem, ridges):
            return self
        part = copy(self)
        part.features, part.ridges, part._roots, part._norms = left, ridges, np.sqrt(ridges), {}
        part._take(known)
        return part

    @property
    def is_full(self) -> bool:
        """Whether the working set is everything."""
        return len(self.gram.features) == len(self.features)

    def solve(
        self,
        constraint: Constraint | None = None,
        p0: Vector | None = None,
        tol: float = 1e-9,
        cutoff: float = np.inf,
        max_iter: int = _MAX_ITER,
        stop: Callable[[], bool] = lambda: False,
    ) -> Relaxation:
        """Solve until the gap is within `tol` of the value, or the safe bound has reached `cutoff`; or `stop` says so, at times.

        `constraint` is the problem's by default; a node of a search tree is a constraint of its own. `p0`, the solution of a
        similar one, is a good start.
        """
        constraint = self.problem.constraint if constraint is None else constraint
        if not constraint.is_plain:
            if constraint.plain is not None and self.is_full:
                solved = self.solve(constraint.plain, p0, tol, cutoff, max_iter)
                if solved.safe >= cutoff or self._keeps(constraint, solved.p):
                    return solved
            return self._by_proximal_steps(constraint, p0, tol, stop)
        m, state = self._state(constraint)
        p = np.zeros(self.problem.shape[1]) if p0 is None else np.asarray(p0, dtype=np.float64)
        if not self.is_full:
            self._join(np.flatnonzero(self._in_play & ((state > 0) | (p != 0.0) & (state == 0))))
        inner = tol if self.is_full else max(tol, 1e-3)  # on a set that will grow, a rough solution is enough
        for _ in range(_ROUNDS):
            solved = self._on_working_set(constraint.size, m, state, p, inner, cutoff, max_iter)
            if self.is_full:
                break
            solved, violating = self._on_all(solved, constraint, state)
            gap = solved.value - solved.bound
            if gap <= tol * abs(solved.value) or (not len(violating) and inner == tol):
                break
            inner = max(tol, 0.03 * gap / max(abs(solved.value), 1e-300)) if len(violating) else tol
            self._join(violating)
            p = solved.p
        return solved

    def bound(self, p: Vector, constraint: Constraint | None = None) -> Proved:
        """B(p) from the Gram matrix alone, less all that it can be off by; the working set must be full, and features no groups.

        With limits of coefficients it is the bound without them, which is no larger.
        """
        plain = (self.problem.constraint if constraint is None else constraint).plain
        if plain is None or not self.is_full:
            return Proved(-np.inf, 0.0)
        constraint = plain
        m, state = self._state(constraint)
        k, scaled = constraint.size, self._scaled
        value, safe = evaluate(
            scaled.matrix, scaled.size, scaled.error, self._norm(k), state[scaled.features], m, k,
            *self._ridge(), self._inward(p),
        )  # fmt: skip
        return Proved(safe, value - safe) if safe > 0.0 else Proved(0.0, 0.0)

    def node_bound(self, p: Vector, constraint: Constraint) -> Proved:
        """The safe bound at p on a node: from the Gram matrix, or from the data where that is missing or too coarse."""
        proved = self.bound(p, constraint)
        clear = proved.rounding <= CLEAR * abs(proved.value) and proved.value > 0.0
        if clear and constraint.is_plain:
            return proved
        fine = shifted_bound(self.problem, p, self.ridges, self.features, constraint=constraint)
        return Proved(fine.on_features, fine.rounding) if fine.on_features > proved.value else proved

    def certified(
        self, p: Vector, constraint: Constraint | None = None, ceiling: float = np.inf, origin: Bound | None = None
    ) -> Bound:
        """The safe bound at p, computed from the data; `ceiling` and `origin` are those of `diht.bounds.shift.ShiftedBound`."""
        problem = self.problem
        whole = len(self.features) == problem.shape[1]
        if self._roots is None and whole and (constraint is None or constraint is problem.constraint):
            r = problem.samples.residuals(p, problem.fit_intercept)
            return lower_bound(problem, problem.samples.map(lambda y, s, r: -2.0 * r, r))
        return shifted_bound(problem, p, self.ridges, self.features, ceiling, origin, constraint)

    # The working set

    def _first(self) -> Indices:
        """The features that go with the targets best, per unit of p."""
        problem = self.problem
        h = problem.samples.pull(problem.samples.residuals(np.zeros(problem.shape[1]), problem.fit_intercept))
        best = top_k(h[self.features], min(len(self.features), max(_FIRST, 4 * problem.constraint.size)))
        return self.features[best]

    def _take(self, known: Gram) -> None:
        """Make a Gram matrix the working set's, and guess its largest eigenvalue, from below as a rule: steps correct it."""
        self.gram = known
        self._scaled = known if self._roots is None else _divided(known, self.problem.lam, self._roots)
        self._norms.clear()
        sums = np.abs(self._scaled.quadratic).sum(axis=1)
        self._curvature = (float(sums.max(initial=0.0)) or 1.0) / max(1.0, np.sqrt(len(sums)))

    def _join(self, features: Indices) -> None:
        """Let more features into the working set."""
        new = np.setdiff1d(features, self.gram.features)
        if len(new):
            self._take(problem_gram(self.problem, np.append(self.gram.features, new), self.gram))

    def _norm(self, k: int) -> float:
        """Upper bound on the constraint norm of the sizes of the columns."""
        if k not in self._norms:
            sizes = self._scaled.size[:-1]
            self._norms[k] = float(np.linalg.norm(sizes[top_k(sizes, min(k, len(sizes)))])) * (1.0 + 1e-9)
        return self._norms[k]

    def _state(self, constraint: Constraint) -> tuple[int, States]:
        """How many free features are allowed, and which are inside (1), free (0) or outside (-1)."""
        d = self.problem.shape[1]
        m, inside, outside = constraint.free(d)
        state = np.zeros(d, dtype=np.int8)
        state[inside] = 1
        state[outside] = -1
        return m, state

    def _ridge(self) -> tuple[float, float]:
        """The ridge and the shift of the scaled problem."""
        return (self.problem.lam, 0.0) if self._roots is None else (0.0, 1.0)

    def _inward(self, p: Vector) -> Vector:
        """The entries of the working set, scaled."""
        x = p[self.gram.features]
        return x if self._roots is None else x * self._roots

    def _outward(self, x: Vector, power: int = -1) -> Vector:
        """Scaled entries of the working set, times this power of the scales, in their places among all features."""
        return self._spread(x if self._roots is None else x * self._roots**power)

    def _on_working_set(
        self, k: int, m: int, state: States, p: Vector, tol: float, cutoff: float, max_iter: int
    ) -> Relaxation:
        """Solve on the working set."""
        scaled, (lam, shift) = self._scaled, self._ridge()
        x, c, own = self._inward(p), np.empty(len(scaled.features)), state[scaled.features]
        rho = 0.5 * lam + shift
        curvature = max(self._curvature, 1e-3 * rho)
        found = self._minimise(
            scaled.matrix, scaled.size, scaled.error, self._norm(k), own, m, k,
            lam, shift, curvature, x, c, tol, cutoff, max_iter,
        )  # fmt: skip
        theta, z = places(x, c, own, m, rho)
        safe = max(0.0, found.safe) if self.is_full and np.isfinite(found.safe) else -np.inf
        p, c = self._outward(x), self._outward(c, 1)
        return Relaxation(p, c, found.value, found.bound, safe, theta, self._spread(z), found.iterations)

    def _keeps(self, constraint: Constraint, p: Vector) -> bool:
        """Whether a solution without the limits is one with them."""
        own = constraint.within(self.features)
        return (own if self._roots is None else own.times(self._roots)).keeps(self._inward(p))

    def _by_proximal_steps(
        self, constraint: Constraint, p0: Vector | None, tol: float, stop: Callable[[], bool]
    ) -> Relaxation:
        """Solve under a constraint on groups or with limits, all features in the working set."""
        scaled, (lam, shift) = self._scaled, self._ridge()
        A, rho, constraint = scaled.quadratic.copy(), 0.5 * lam + shift, constraint.within(self.features)
        constraint = constraint if self._roots is None else constraint.times(self._roots)
        A.flat[:: len(A) + 1] -= shift
        h, total = scaled.linear, float(scaled.matrix[-1, -1])
        x = np.zeros(len(A)) if p0 is None else constraint.clipped(self._inward(p0))
        curvature = max(self._curvature, 1e-3 * rho)
        x = minimise_quadratic(A, A @ x - h, constraint, rho, x, curvature, 0.5 * tol * total, stop)[0]
        c = h - A @ x
        value = total - float(x @ (h + c)) + 2.0 * rho * constraint.relaxation(x)
        bound = total - float(x @ (h - c)) - constraint.times(rho).value(c) / rho
        z = constraint.places(x)
        return Relaxation(self._outward(x), self._outward(c, 1), value, bound, -np.inf, 0.0, self._spread(z))

    def _spread(self, v: Vector) -> Vector:
        """Put entries of the working set in their places among all features."""
        full = np.zeros(self.problem.shape[1])
        full[self.gram.features] = v
        return full

    def _on_all(self, solved: Relaxation, constraint: Constraint, state: States) -> tuple[Relaxation, Indices]:
        """Look at all features in play: the bound on them, and the ones outside the working set that ought to be in it."""
        problem, p = self.problem, solved.p
        c = problem.samples.pull(problem.samples.residuals(p, problem.fit_intercept))
        c[~self._in_play] = 0.0
        rho = 0.5 * problem.lam
        missing = (constraint.value(c) - constraint.value(solved.c)) / rho
        candidates = np.abs(c) * (self._in_play & (state == 0))
        candidates[self.gram.features] = 0.0
        violating = np.flatnonzero(candidates > rho * solved.theta * (1.0 + 1e-9))
        most = max(len(self.gram.features), _FIRST)
        if len(violating) > most:
            violating = violating[top_k(candidates[violating], most)]
        bound = solved.bound - missing
        return replace(solved, c=c, bound=bound, safe=-np.inf), violating


def _divided(known: Gram, lam: float, roots: Vector) -> Gram:
    r"""The matrix :math:`M_{ij} / \sqrt{\rho_i \rho_j}`, and h alike, with sizes and an error that hold for it.

    An entry is added to and divided twice: three roundings, of what is at most the product of the sizes.
    """
    matrix, divisors = known.matrix.copy(), np.append(roots, 1.0)
    matrix.flat[: -len(matrix) : len(matrix) + 1] += 0.5 * lam
    matrix /= divisors[:, None]
    matrix /= divisors
    size = known.size.copy()
    size[:-1] = np.sqrt(size[:-1] ** 2 + 0.5 * lam) / roots
    return Gram(known.features, matrix, size * (1.0 + 1e-9) + FLOOR, known.error + 8.0 * UNIT)

r"""The relaxed problem of the squared loss, solved through Gram matrices on a working set of features.

With G, h, :math:`\sigma`, :math:`\lambda'` and :math:`A = G - \sigma I` as in :mod:`diht.bounds.shift` and :math:`\Omega` the
relaxation of the constraint, the best bound :math:`\max_p B(p)` is the optimum of

.. math:: \min_p \; p^\top A p - 2 h^\top p + y^\top C y + \lambda' \Omega(p) .

The features outside a working set W enter through c only: those whose :math:`|c_j|` exceeds the threshold join W, and once there
are none the solution on W is the one on all. Each round costs two products with X and some columns of G.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from diht.bounds.duality import Bound, Indices, Vector, lower_bound
from diht.bounds.shift import problem_gram, shifted_bound
from diht.constraints.base import Constraint
from diht.constraints.selection import top_k
from diht.design.gram import Gram
from diht.numerics.exact import CLEAR
from diht.problem import Problem
from diht.relaxation.quadratic import Minimiser, States, evaluate, places

__all__ = ["GramRelaxation", "Proved", "Relaxation"]

_FULL = 500  # features up to which the whole Gram matrix is formed at once
_FIRST = 100  # size of the first working set, at least
_ROUNDS = 50
_MAX_ITER = 20_000


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
        The threshold: features with a larger |p_j| have z_j = 1.
    z : array of shape (d,)
        How much of a place each feature takes.
    """

    p: Vector
    c: Vector
    value: float
    bound: float
    safe: float
    theta: float
    z: Vector


class Proved(NamedTuple):
    """A lower bound, and what was subtracted from it for rounding."""

    value: float
    rounding: float


class GramRelaxation:
    """The relaxed problem over some features, ready to be solved for many constraints and ridges.

    Parameters
    ----------
    problem : Problem
        With the squared loss.
    features : array of int, optional
        The features in play, all by default.
    sigma : float
        A shift that `diht.bounds.shift.smallest_eigenvalue` proved for these features.
    known : Gram, optional
        Their Gram matrix, where it is at hand.
    full : bool, optional
        Whether to form the whole Gram matrix at once: by default for few features, or with a shift.
    many : bool
        Whether there is so much to solve that everything is compiled.

    Attributes
    ----------
    gram : Gram
        That of the working set.
    """

    def __init__(
        self,
        problem: Problem,
        features: Indices | None = None,
        sigma: float = 0.0,
        known: Gram | None = None,
        full: bool | None = None,
        many: bool = False,
    ) -> None:
        if not problem.loss.is_squared_error:
            raise ValueError(f"the loss must be the squared one, got {problem.loss}")
        d = problem.shape[1]
        self.problem = problem
        self.features = np.arange(d) if features is None else np.unique(np.asarray(features, dtype=np.int64))
        self.sigma = float(sigma)
        self._in_play = np.zeros(d, dtype=bool)
        self._in_play[self.features] = True
        self._minimise = Minimiser(problem.shape[0], many)
        self._curvature = 0.0
        self._norms: dict[int, float] = {}
        full = known is not None or sigma > 0.0 or len(self.features) <= _FULL if full is None else full
        if known is None:
            known = problem_gram(problem, self.features if full else self._first())
        elif not np.array_equal(np.sort(known.features), self.features):
            raise ValueError("known must be the Gram matrix of the features")
        self._take(known)

    @property
    def is_full(self) -> bool:
        """Whether the working set is everything."""
        return len(self.gram.features) == len(self.features)

    def solve(
        self,
        constraint: Constraint | None = None,
        p0: Vector | None = None,
        tol: float = 1e-9,
        lam: float | None = None,
        cutoff: float = np.inf,
        max_iter: int = _MAX_ITER,
    ) -> Relaxation:
        """Solve until the gap is within `tol` of the value, or the safe bound has reached `cutoff`.

        `constraint` and `lam` are the problem's by default; a node of a search tree is a constraint of its own. `p0`, the solution
        of a similar one, is a good start.
        """
        constraint = self.problem.constraint if constraint is None else constraint
        lam = self.problem.lam if lam is None else lam
        m, state = self._state(constraint)
        p = np.zeros(self.problem.shape[1]) if p0 is None else np.asarray(p0, dtype=np.float64)
        if not self.is_full:
            self._join(np.flatnonzero(self._in_play & ((state > 0) | (p != 0.0) & (state == 0))))
        inner = tol if self.is_full else max(tol, 1e-3)  # on a set that will grow, a rough solution is enough
        for _ in range(_ROUNDS):
            solved = self._on_working_set(constraint.size, m, state, p, lam, inner, cutoff, max_iter)
            if self.is_full:
                break
            solved, violating = self._on_all(solved, constraint, m, state, lam)
            gap = solved.value - solved.bound
            if gap <= tol * abs(solved.value) or (not len(violating) and inner == tol):
                break
            inner = max(tol, 0.03 * gap / max(abs(solved.value), 1e-300)) if len(violating) else tol
            self._join(violating)
            p = solved.p
        return solved

    def bound(self, p: Vector, constraint: Constraint | None = None, lam: float | None = None) -> Proved:
        """B(p) from the Gram matrix alone, less all that it can be off by; the working set must be full."""
        if not self.is_full:
            return Proved(-np.inf, 0.0)
        constraint = self.problem.constraint if constraint is None else constraint
        m, state = self._state(constraint)
        on = self.gram.features
        k = constraint.size
        value, safe = evaluate(
            self.gram.matrix, self.gram.size, self.gram.error, self._norm(k), state[on], m, k,
            self.problem.lam if lam is None else lam, self.sigma, p[on],
        )  # fmt: skip
        return Proved(safe, value - safe) if safe > 0.0 else Proved(0.0, 0.0)

    def node_bound(self, p: Vector, constraint: Constraint) -> Proved:
        """The safe bound at p on a node: from the Gram matrix, or from the data where that is missing or too coarse."""
        proved = self.bound(p, constraint)
        if proved.rounding <= CLEAR * abs(proved.value) and proved.value > 0.0:
            return proved
        fine = shifted_bound(self.problem, p, self.sigma, self.features, constraint=constraint)
        return Proved(fine.on_features, fine.rounding) if fine.on_features > proved.value else proved

    def certified(
        self, p: Vector, constraint: Constraint | None = None, ceiling: float = np.inf, origin: Bound | None = None
    ) -> Bound:
        """The safe bound at p, computed from the data; `ceiling` and `origin` are those of `diht.bounds.shift.ShiftedBound`."""
        problem = self.problem
        whole = len(self.features) == problem.shape[1]
        if self.sigma == 0.0 and whole and (constraint is None or constraint is problem.constraint):
            r = problem.samples.residuals(p, problem.fit_intercept)
            return lower_bound(problem, problem.samples.map(lambda y, s, r: -2.0 * r, r))
        return shifted_bound(problem, p, self.sigma, self.features, ceiling, origin, constraint)

    # The working set

    def _first(self) -> Indices:
        """The features that go with the targets best, per unit of p."""
        problem = self.problem
        h = problem.samples.pull(problem.samples.residuals(np.zeros(problem.shape[1]), problem.fit_intercept))
        best = top_k(h[self.features], min(len(self.features), max(_FIRST, 4 * problem.constraint.size)))
        return self.features[best]

    def _take(self, known: Gram) -> None:
        """Make a Gram matrix the working set's, and estimate its largest eigenvalue."""
        self.gram = known
        self._norms.clear()
        G = known.quadratic
        v = np.random.default_rng(0).standard_normal(len(G))
        for _ in range(6):
            v = G @ v
            size = float(np.linalg.norm(v))
            if not 0.0 < size < np.inf:
                size = float(np.abs(np.diag(G)).max(initial=0.0)) or 1.0
                break
            v /= size
        self._curvature = max(self._curvature, size)

    def _join(self, features: Indices) -> None:
        """Let more features into the working set."""
        new = np.setdiff1d(features, self.gram.features)
        if len(new):
            self._take(problem_gram(self.problem, np.append(self.gram.features, new), self.gram))

    def _norm(self, k: int) -> float:
        """Upper bound on the constraint norm of the sizes of the columns."""
        if k not in self._norms:
            sizes = self.gram.size[:-1]
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

    def _on_working_set(
        self, k: int, m: int, state: States, p: Vector, lam: float, tol: float, cutoff: float, max_iter: int
    ) -> Relaxation:
        """Solve on the working set."""
        on = self.gram.features
        x, c, own = p[on], np.empty(len(on)), state[on]
        rho = 0.5 * lam + self.sigma
        curvature = max(self._curvature, 1e-3 * rho)
        found = self._minimise(
            self.gram.matrix, self.gram.size, self.gram.error, self._norm(k), own, m, k,
            lam, self.sigma, curvature, x, c, tol, cutoff, max_iter,
        )  # fmt: skip
        self._curvature = found.curvature
        theta, z = places(x, c, own, m, rho)
        safe = max(0.0, found.safe) if self.is_full and np.isfinite(found.safe) else -np.inf
        return Relaxation(self._spread(x), self._spread(c), found.value, found.bound, safe, theta, self._spread(z))

    def _spread(self, v: Vector) -> Vector:
        """Put entries of the working set in their places among all features."""
        full = np.zeros(self.problem.shape[1])
        full[self.gram.features] = v
        return full

    def _on_all(
        self, solved: Relaxation, constraint: Constraint, m: int, state: States, lam: float
    ) -> tuple[Relaxation, Indices]:
        """Look at all features in play: the bound on them, and the ones outside the working set that ought to be in it."""
        problem, p = self.problem, solved.p
        c = problem.samples.pull(problem.samples.residuals(p, problem.fit_intercept)) + self.sigma * p
        c[~self._in_play] = 0.0
        rho = 0.5 * lam + self.sigma
        missing = (constraint.value(c) - constraint.value(solved.c)) / rho
        candidates = np.abs(c) * (self._in_play & (state == 0))
        candidates[self.gram.features] = 0.0
        violating = np.flatnonzero(candidates > rho * solved.theta * (1.0 + 1e-9))
        most = max(len(self.gram.features), _FIRST)
        if len(violating) > most:
            violating = violating[top_k(candidates[violating], most)]
        bound = solved.bound - missing
        return Relaxation(p, c, solved.value, bound, -np.inf, solved.theta, solved.z), violating

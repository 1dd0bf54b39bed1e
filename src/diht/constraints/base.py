"""What "sparse" means: the set of supports that a model may have.

Solvers and duality speak to a `Constraint` only; the number k appears nowhere behind this module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from diht.constraints.limits import Limits
from diht.constraints.selection import top_k
from diht.numerics.arrays import Indices, Vector

__all__ = ["NONE", "Cardinality", "Constraint", "Decided", "as_constraint"]

NONE: Indices = np.empty(0, dtype=np.int64)


class Constraint(ABC):
    r"""A family of supports, closed under taking subsets.

    With :math:`\mathcal{C}` the vectors whose support is in the family, everything the duality needs is the minimiser of
    :math:`\|w - v\|^2` over :math:`\mathcal{C}`, and the value

    .. math:: \nu(v)^2 = \max_{w \in \mathcal{C}} \; 2 w^\top v - \|w\|^2 = \max_{F} \sum_{j \in F} v_j^2 .

    :math:`\nu` is a norm, and where coefficients have limits no larger, and changes no faster, than that of `unlimited`: rounding
    bounds use :math:`\nu(v + \delta) \le \nu(v) + \nu_0(\delta)`.

    Attributes
    ----------
    is_plain : bool
        Whether it is about single features whose coefficients may be any; see `diht.constraints.groups` for others.
    level_name : str
        What the points of a path differ in (see `level`): "k", or "budget".
    limits : Limits or None
        Those of single coefficients.
    """

    is_plain: ClassVar[bool] = True
    level_name: ClassVar[str] = "k"
    limits: Limits | None = None

    def __str__(self) -> str:
        """What it asks for, in the words of a message."""
        return f"at most {self.size} features, as {type(self).__name__} allows them"

    @property
    def is_count(self) -> bool:
        """Whether a support is allowed for how many features (or units) it has, besides those decided: what `free` tells is all."""
        return True

    @property
    def unit_size(self) -> int:
        """The largest number of features that enter and leave together."""
        return 1

    @property
    def unlimited(self) -> Constraint:
        """The constraint on supports alone."""
        return self

    @property
    def plain(self) -> Constraint | None:
        """The constraint without its limits, where that is about single features: valid for all that it allows."""
        return self if self.is_plain else None

    def keeps(self, w: Vector) -> bool:
        """Whether a relaxation's model under `plain` is within the limits times its places, and so is this one's, too."""
        return self.is_plain

    def times(self, factor: float | Vector) -> Constraint:
        """The constraint on the coefficients multiplied by a factor, or one for each."""
        return self

    def unit_of(self, n_features: int) -> Indices:
        """The unit of each feature, from 0: features of one unit enter and leave together."""
        return np.arange(n_features)

    def counted(self, n_features: int) -> int | None:
        """How many of the first so many features a model may have, where each of them is a unit; None where some are not."""
        return self.size if self.is_plain else None

    def clipped(self, v: Vector) -> Vector:
        """The nearest vector within the limits."""
        return v if self.limits is None else self.limits.clipped(v)

    def squares(self, v: Vector) -> Vector:
        """By how much each unit alone brings a vector nearer: the square of its norm, less what the limits leave of it."""
        return np.square(v)

    def joining(self, support: Indices, n_features: int) -> Indices:
        """The features that a model on a support may take up besides, each alone or with those of its unit; ascending."""
        m, inside, outside = self.free(n_features)
        if self.count(np.union1d(support, inside)) >= m + self.count(inside):
            return NONE
        others = np.ones(n_features, dtype=bool)
        others[support] = others[outside] = False
        return np.flatnonzero(others)

    def remaining(self, support: Indices, leaving: Indices) -> Indices:
        """What a model keeps of its support where some features leave; all but these, unless others are of no use without them."""
        return np.setdiff1d(support, leaving)

    def magnitudes(self, v: Vector) -> Vector:
        """By what features are chosen, the largest first."""
        return np.abs(v)

    def pooled(self, v: Vector) -> Vector:
        """The mean of `v` over each feature's unit."""
        return v

    def closure(self, features: Indices) -> Indices:
        """Some features, with all those that enter and leave with them."""
        return features

    def count(self, features: Indices) -> int:
        """As how many some features count."""
        return len(features)

    def fits(self, features: Indices, n_features: int) -> bool:
        """Whether some undecided features may all be in, besides those that are."""
        return self.count(features) <= self.free(n_features)[0]

    @abstractmethod
    def check(self, n_features: int) -> None:
        """Raise ValueError where the constraint makes no sense for `n_features` features."""

    @abstractmethod
    def select(self, v: Vector) -> Indices:
        """Support of the projection of `v`, ascending; ties are broken by the smaller index."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The largest number of features that a model may have."""

    def threshold(self, v: Vector) -> tuple[Vector, Indices]:
        """Projection of `v` on the constraint set (the paper's hard thresholding H_k), and its support."""
        support = self.select(v)
        w = np.zeros_like(v)
        w[support] = v[support]
        return w, support

    def rethreshold(self, v: Vector, w: Vector, support: Indices) -> Indices:
        """Overwrite `w`, zero outside `support`, by the projection of `v`; touches no more of it than the two supports."""
        new = self.select(v)
        w[support] = 0.0
        w[new] = v[new]
        return new

    def value(self, v: Vector) -> float:
        r""":math:`\nu(v)^2`, the squared norm of the projection (for a cardinality: the sum of the k largest v_j^2)."""
        kept = v[self.select(v)]
        return float(kept @ kept)

    def largest_sum(self, squares: Vector) -> float:
        """Return the largest sum of squares on a support of the family, or an upper bound on it: what `value` is of their roots."""
        return float(squares[self.select(np.sqrt(squares))].sum())

    def allows(self, w: Vector) -> bool:
        """Whether the support of `w` is in the family."""
        return bool(np.count_nonzero(w) <= self.size)

    @abstractmethod
    def free(self, n_features: int) -> tuple[int, Indices, Indices]:
        """Describe the family as a branch and bound does: how many of the undecided features may be in, which are in, which out."""

    @abstractmethod
    def allowing(self, m: Any) -> Constraint:
        """The same constraint with another `level`; a larger one allows all that a smaller one does."""

    def level(self, n_features: int) -> float:
        """What `allowing` takes: how many undecided features (or units) may be in, the first that `free` returns; or a budget."""
        return self.free(n_features)[0]

    @property
    def least_level(self) -> float:
        """The least level that allows a feature."""
        return 1

    def stated(self) -> dict[str, Any] | None:
        """All but the level in plain numbers and lists, as a file has it; None where it has none. See `diht.constraints.stated`."""
        return None

    def choices(self, n_features: int) -> int:
        """The number of features (or units) that are undecided."""
        _, inside, outside = self.free(n_features)
        return self.count(np.arange(n_features)) - self.count(inside) - self.count(outside)

    @abstractmethod
    def restricted(self, inside: Indices, outside: Indices) -> Constraint:
        """The members of the family that leave room for the features `inside`, and use none of those `outside`."""

    @abstractmethod
    def forcing(self, v: Vector) -> tuple[Vector, Vector]:
        r"""By how much :math:`\nu(v)^2` falls, feature by feature, where the feature may not be used, and where it has to be."""

    @abstractmethod
    def within(self, features: Indices) -> Constraint:
        """The same constraint for a design that holds only some of the features, all those inside among them."""

    def relaxation(self, w: Vector) -> float:
        r""":math:`\Omega(w)`, the relaxation of half the squared norm; see `prox`."""
        m, inside, _ = self.free(len(w))
        magnitudes = np.abs(w)
        magnitudes[inside] = 0.0
        held = float(np.square(w[inside]).sum())
        magnitudes = magnitudes[magnitudes > 0.0]
        theta = threshold_scale(magnitudes, m, 0.0, 0.0)
        # z = 1 where the magnitude exceeds theta, |w| / theta where it does not
        return 0.5 * (held + float(np.sum(magnitudes * np.maximum(magnitudes, theta))))

    def places(self, w: Vector) -> Vector:
        """How much of a place, z_j, each feature of a relaxation's model takes; see `prox`."""
        m, inside, outside = self.free(len(w))
        magnitudes = np.abs(w)
        magnitudes[inside] = magnitudes[outside] = 0.0
        theta = threshold_scale(magnitudes, m, 0.0, 0.0)
        z = np.minimum(magnitudes / theta, 1.0) if theta > 0.0 else (magnitudes > 0.0).astype(np.float64)
        z[inside] = 1.0
        return z

    def prox(self, q: Vector, r: float) -> Vector:
        r"""Proximal map of :math:`r` times the relaxation :math:`\Omega(w) = \max_v w^\top v - \nu(v)^2/2`.

        With `m` of the undecided features allowed, :math:`\Omega(w) = \min \sum_j w_j^2 / (2 z_j)` over :math:`0 \le z \le 1` with
        z one inside and adding up to at most m elsewhere (for a cardinality: half the squared k-support norm), so that

        .. math:: \mathrm{prox}(q)_j = \frac{z_j q_j}{z_j + r}, \qquad z_j = \mathrm{clip}(|q_j| / \theta - r, 0, 1), \quad
                  \sum_j z_j = m .
        """
        m, inside, outside = self.free(len(q))
        q = q.copy()
        q[outside] = 0.0
        magnitudes = np.abs(q)
        magnitudes[inside] = 0.0
        theta = threshold_scale(magnitudes[magnitudes > 0.0], m, r, 0.0)
        magnitudes = np.maximum(np.minimum(magnitudes - r * theta, magnitudes / (1.0 + r)), 0.0)
        magnitudes[inside] = np.abs(q[inside]) / (1.0 + r)
        return np.copysign(magnitudes, q)


@dataclass(frozen=True)
class Cardinality(Constraint):
    """At most `k` nonzero coefficients: the paper's constraint ||w||_0 <= k."""

    k: int

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, Integral):
            raise ValueError(f"k must be a whole number, got {self.k!r}")
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")
        object.__setattr__(self, "k", int(self.k))

    def __str__(self) -> str:
        """What it asks for."""
        return f"at most {self.k} features"

    def check(self, n_features: int) -> None:
        """Raise ValueError if k is more than the number of features."""
        if self.k > n_features:
            raise ValueError(f"k must be at most the number of features, got k={self.k} with {n_features} features")

    def select(self, v: Vector) -> Indices:
        """Indices of the k largest entries in size, ascending."""
        return top_k(v, self.k)

    @property
    def size(self) -> int:
        """The number k itself."""
        return self.k

    def free(self, n_features: int) -> tuple[int, Indices, Indices]:
        """Nothing is decided."""
        return self.k, NONE, NONE

    def allowing(self, m: int) -> Constraint:
        """Another k."""
        return Cardinality(m)

    def restricted(self, inside: Indices, outside: Indices) -> Constraint:
        """A node of a branch and bound tree."""
        return Node(self.k, inside, outside) if len(inside) or len(outside) else self

    def within(self, features: Indices) -> Constraint:
        """No more than there are."""
        return Cardinality(min(self.k, len(features)))

    def forcing(self, v: Vector) -> tuple[Vector, Vector]:
        """Where j leaves the k largest the next takes its place, where it joins them the last goes."""
        return _forcing(v, self.k)


@dataclass(frozen=True, eq=False)
class Node(Constraint):
    """At most `k` nonzero coefficients, places for those `inside` kept, none of them `outside`: a node of a search tree.

    The rest is free: of it k less the number of features inside may be chosen.
    """

    k: int
    inside: Indices
    outside: Indices

    def __str__(self) -> str:
        """What it asks for."""
        m, decided = self.k - len(self.inside), {"in": len(self.inside), "out": len(self.outside)}
        return f"at most {m} features besides " + " and ".join(f"{n} that are {how}" for how, n in decided.items() if n)

    def check(self, n_features: int) -> None:
        """Raise ValueError if more is inside than k."""
        if len(self.inside) > self.k:
            raise ValueError(
                f"k must be at least the number of features inside, got k={self.k} with {len(self.inside)}"
            )

    def select(self, v: Vector) -> Indices:
        """The features inside, and the largest of the free ones."""
        masked = v.copy()
        masked[self.outside] = 0.0
        masked[self.inside] = np.inf
        chosen = top_k(masked, self.k)
        return np.asarray(chosen[masked[chosen] != 0.0]) if len(self.outside) else chosen

    @property
    def size(self) -> int:
        """The number k."""
        return self.k

    def allows(self, w: Vector) -> bool:
        """Whether w has room for the features inside, and nothing outside."""
        used = np.count_nonzero(w) + len(self.inside) - np.count_nonzero(w[self.inside])
        return bool(used <= self.k and not np.any(w[self.outside]))

    def free(self, n_features: int) -> tuple[int, Indices, Indices]:
        """What is left to decide."""
        return self.k - len(self.inside), self.inside, self.outside

    def allowing(self, m: int) -> Constraint:
        """Another number of free features."""
        return Node(m + len(self.inside), self.inside, self.outside)

    def restricted(self, inside: Indices, outside: Indices) -> Constraint:
        """Decide more features."""
        return Node(self.k, np.union1d(self.inside, inside), np.union1d(self.outside, outside))

    def within(self, features: Indices) -> Constraint:
        """The features inside, by their new numbers."""
        return Node(self.k, np.searchsorted(features, self.inside), np.flatnonzero(np.isin(features, self.outside)))

    def forcing(self, v: Vector) -> tuple[Vector, Vector]:
        """As for a cardinality, among the free features; what is inside cannot be left out, nor what is outside used."""
        free = np.ones(len(v), dtype=bool)
        free[self.inside] = free[self.outside] = False
        drop, add = np.zeros_like(v), np.zeros_like(v)
        drop[free], add[free] = _forcing(v[free], self.k - len(self.inside))
        drop[self.inside] = add[self.outside] = np.inf
        return drop, add


@dataclass(frozen=True, eq=False, kw_only=True)
class Decided(Constraint):
    """What constraints have in common that do more than count features.

    Attributes
    ----------
    inside, outside : arrays of int
        Features that have a place, and those that have none.
    """

    inside: Indices = field(default_factory=lambda: NONE)
    outside: Indices = field(default_factory=lambda: NONE)

    is_plain = False
    is_count = False

    def fits(self, features: Indices, n_features: int) -> bool:
        """Whether a model with all of them is allowed."""
        w = np.zeros(n_features)
        w[features] = 1.0
        return self.allows(w)

    def restricted(self, inside: Indices, outside: Indices) -> Constraint:
        """Decide more features."""
        inside, outside = np.union1d(self.inside, inside), np.union1d(self.outside, outside)
        return replace(self, inside=inside.astype(np.int64), outside=outside.astype(np.int64))


def _forcing(v: Vector, k: int) -> tuple[Vector, Vector]:
    """Falls of the sum of the k largest v_j^2 where j may not be, or has to be, among them."""
    squares = np.square(v)
    drop, add = np.zeros_like(v), np.full_like(v, np.inf)
    if k >= len(v):
        return squares, np.zeros_like(v)
    if k > 0:
        chosen = top_k(v, min(k + 1, len(v)))
        order = chosen[np.argsort(-squares[chosen], kind="stable")]
        last, following = squares[order[k - 1]], squares[order[k]]
        drop[order[:k]] = squares[order[:k]] - following
        add = np.maximum(last - squares, 0.0)
        add[order[:k]] = 0.0
    return drop, add


def threshold_scale(magnitudes: Vector, m: int, r: float, theta: float) -> float:
    """Return the theta for which ``clip(magnitudes / theta - r, 0, 1)`` adds up to m; 0 if no more than m of them are positive.

    Infinite where more are and one of them is. The sum grows piecewise linearly with t = 1/theta; Newton's method, kept in a
    bracket, ends on the right piece. `theta`, if positive, is where the search begins.
    :func:`diht.constraints.kernels.threshold_scale` is the same, compiled.
    """
    if np.count_nonzero(magnitudes) <= m:
        return 0.0
    a, n = np.sort(magnitudes), len(magnitudes)
    if m <= 0 or not a[-1] < np.inf:
        return np.inf
    t = 1.0 / theta if theta > 0.0 else (1.0 + r) / float(a[-1])
    low, high = 0.0, np.inf
    for _ in range(300):
        start, stop = int(a.searchsorted(r / t)), int(a.searchsorted((1.0 + r) / t))
        inner, whole, middle = float(a[start:stop].sum()), n - stop, stop - start
        total = t * inner - r * middle + whole
        if abs(total - m) <= 1e-13 * m:
            break
        if total < m:
            low = t
        else:
            high = t
        new = (m - whole + r * middle) / inner if inner > 0.0 else -1.0
        if not low < new < high:
            new = 0.5 * (low + high) if high < np.inf else 2.0 * t
        if abs(new - t) <= 1e-15 * t:
            break
        t = new
    return 1.0 / t


def as_constraint(k: int | Constraint) -> Constraint:
    """Return a constraint as it is, and a whole number as a `Cardinality`."""
    return k if isinstance(k, Constraint) else Cardinality(k)

"""Groups of features and limits of coefficients: a constraint on units, each of one or several features.

Hard thresholding, the k-support map, screening and the nodes of a search tree all ask one question of a feature: how large is it? A
unit has an answer, too, the norm of what its features may take up, and with it the constraint on units is one on single features.
Limits of coefficients change that answer (`diht.constraints.limits`), signs are limits at zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diht.constraints.base import Cardinality, Constraint, Node
from diht.constraints.limits import Limits, least_places, limits_of, shared_places, shrunk_places, sides_of
from diht.numerics.arrays import Indices, Vector

__all__ = [
    "Structured",
    "bounds_of",
    "constrained",
    "features_given",
    "indices_of",
    "n_choices",
    "over_targets",
    "signs_of",
    "units_of_labels",
]

Signs = NDArray[np.int8]

_HIDDEN = 1e-9  # by which sums of places may be beyond their limits for rounding


@dataclass(frozen=True, eq=False)
class Structured(Constraint):
    r"""What a constraint allows of units, for features that belong to units and whose coefficients may have limits.

    The projection of v on the constraint set is the nearest vector within the limits on the units that `base` chooses: those with
    the largest :math:`\sum_{j \in G} e_j(v_j)`, by which each alone brings v nearer.

    Attributes
    ----------
    base : Constraint
        On units.
    unit : array of shape (d,)
        The unit of each feature, from 0.
    limits : Limits or None
        Those of the coefficients.
    """

    base: Constraint
    unit: Indices
    limits: Limits | None = None

    is_plain = False

    def __str__(self) -> str:
        """What it asks for."""
        units = str(self.base) if self.unit_size == 1 else str(self.base).replace("features", "groups of features")
        if self.limits is None:
            return units
        return f"{units}, {'with the signs' if self.limits.is_cone else 'within the limits'} given"

    @property
    def is_count(self) -> bool:
        """Whether units are allowed for how many they are."""
        return self.base.is_count

    def check(self, n_features: int) -> None:
        """Raise ValueError where the units are not those of the features, or `base` does not fit them."""
        if len(self.unit) != n_features:
            raise ValueError(f"k must be for {n_features} features, got a constraint for {len(self.unit)}")
        self.base.check(self.n_units)

    @cached_property
    def n_units(self) -> int:
        """How many units there are."""
        return int(self.unit.max(initial=-1)) + 1

    @cached_property
    def unit_size(self) -> int:
        """The largest number of features of a unit."""
        return int(np.bincount(self.unit).max(initial=1))

    @cached_property
    def size(self) -> int:
        """The largest number of features that a model may have."""
        m, inside, outside = self.base.free(self.n_units)
        sizes = np.bincount(self.unit, minlength=self.n_units)
        held = int(sizes[inside].sum())
        sizes[inside] = sizes[outside] = 0
        return held + int(np.sort(sizes)[::-1][: max(m, 0)].sum())

    @cached_property
    def unlimited(self) -> Structured:
        """The constraint without its limits."""
        return self if self.limits is None else replace(self, limits=None)

    @cached_property
    def plain(self) -> Constraint | None:
        """The constraint on single features, where each is a unit."""
        return self.base if self.base.is_plain and np.array_equal(self.unit, np.arange(len(self.unit))) else None

    def keeps(self, w: Vector) -> bool:
        """Whether the limits times the places under `plain` allow a relaxation's model."""
        if self.plain is None or self.limits is None:
            return self.plain is not None
        return self.limits.times(self.plain.places(w) * (1.0 + _HIDDEN)).allows(w)

    def times(self, factor: float | Vector) -> Structured:
        """The constraint on the coefficients multiplied by a factor, or one for each."""
        return self if self.limits is None else replace(self, limits=self.limits.times(factor))

    def counted(self, n_features: int) -> int | None:
        """How many of the first so many features a model may have, where each of them is a unit; None where some are not."""
        return self.base.counted(n_features) if self.n_units == n_features and self.limits is None else None

    def unit_of(self, n_features: int) -> Indices:
        """The unit of each feature."""
        return self.unit

    def squares(self, v: Vector) -> Vector:
        """The squared norm of each unit, less what the limits leave of it."""
        energies = np.square(v) if self.limits is None else self.limits.energies(v)
        return np.bincount(self.unit, energies, minlength=self.n_units).astype(np.float64, copy=False)

    def magnitudes(self, v: Vector) -> Vector:
        """The norm of each feature's unit."""
        return np.asarray(np.sqrt(self.squares(v))[self.unit])

    def pooled(self, v: Vector) -> Vector:
        """The mean of the features of each unit."""
        unit = self.unit[: len(v)]  # of several targets, those of the first one
        return np.asarray((np.bincount(unit, v) / np.bincount(unit))[unit])

    def select(self, v: Vector) -> Indices:
        """The features of the units with the largest norms."""
        return self.features_of(self.base.select(np.sqrt(self.squares(v))))

    def features_of(self, units: Indices) -> Indices:
        """The features of some units, ascending."""
        chosen = np.zeros(self.n_units, dtype=bool)
        chosen[units] = True
        return np.flatnonzero(chosen[self.unit])

    def units_of(self, features: Indices) -> Indices:
        """The units of some features, ascending."""
        return np.unique(self.unit[features])

    def threshold(self, v: Vector) -> tuple[Vector, Indices]:
        """Projection of `v` on the constraint set, and its support."""
        support = self.select(v)
        w = np.zeros_like(v)
        w[support] = self.clipped(v)[support]
        return w, support

    def rethreshold(self, v: Vector, w: Vector, support: Indices) -> Indices:
        """Overwrite `w`, zero outside `support`, by the projection of `v`."""
        new = self.select(v)
        w[support] = 0.0
        w[new] = self.clipped(v)[new]
        return new

    def value(self, v: Vector) -> float:
        """The squared norm of the projection: no root is taken and squared again."""
        return self.base.largest_sum(self.squares(v))

    def largest_sum(self, squares: Vector) -> float:
        """The same of squares of the features."""
        return self.base.largest_sum(np.bincount(self.unit, squares, minlength=self.n_units).astype(np.float64))

    def allows(self, w: Vector) -> bool:
        """Whether the units are allowed, and the coefficients within their limits."""
        used = np.bincount(self.unit, w != 0.0, minlength=self.n_units).astype(np.float64)
        return self.base.allows(used) and (self.limits is None or self.limits.allows(w))

    def joining(self, support: Indices, n_features: int) -> Indices:
        """The features of the units that may join those of a support."""
        units = self.units_of(support)
        return np.setdiff1d(self.features_of(self.base.joining(units, self.n_units)), support)

    def remaining(self, support: Indices, leaving: Indices) -> Indices:
        """The features of the units that remain."""
        units = self.base.remaining(self.units_of(support), self.units_of(leaving))
        return support[np.isin(self.unit[support], units)]

    def free(self, n_features: int) -> tuple[int, Indices, Indices]:
        """How many units may still be chosen, the features of those that are in, and of those that are out."""
        m, inside, outside = self.base.free(self.n_units)
        return m, self.features_of(inside), self.features_of(outside)

    @property
    def level_name(self) -> str:  # type: ignore[override]
        """That of the units."""
        return self.base.level_name

    def allowing(self, m: Any) -> Constraint:
        """Another number of units."""
        return replace(self, base=self.base.allowing(m))

    def level(self, n_features: int) -> float:
        """That of the units."""
        return self.base.level(self.n_units)

    @property
    def least_level(self) -> float:
        """That of the units."""
        return self.base.least_level

    def stated(self) -> dict[str, Any] | None:
        """That of the units, where each is a feature."""
        return self.base.stated() if self.unit_size == 1 else None

    def restricted(self, inside: Indices, outside: Indices) -> Constraint:
        """Decide units, each by one of its features or more."""
        return replace(self, base=self.base.restricted(self.units_of(inside), self.units_of(outside)))

    def within(self, features: Indices) -> Constraint:
        """The units that some features belong to."""
        units, unit = np.unique(self.unit[features], return_inverse=True)
        return Structured(self.base.within(units), unit, None if self.limits is None else self.limits.of(features))

    def closure(self, features: Indices) -> Indices:
        """All features of the units that some features belong to."""
        return self.features_of(self.units_of(features))

    def count(self, features: Indices) -> int:
        """The number of their units."""
        return len(self.units_of(features))

    def fits(self, features: Indices, n_features: int) -> bool:
        """Whether their units may all be in."""
        return self.base.fits(self.units_of(features), self.n_units)

    def forcing(self, v: Vector) -> tuple[Vector, Vector]:
        """As `base` does for units."""
        drop, add = self.base.forcing(np.sqrt(self.squares(v)))
        return drop[self.unit], add[self.unit]

    def relaxation(self, w: Vector) -> float:
        """The relaxation on the norms of units; infinite where the limits are met by no places."""
        norms = self.norms(w)
        if self.limits is None or self.limits.is_cone:
            forbidden = self.limits is not None and not self.limits.allows(w)
            return np.inf if forbidden else self.base.relaxation(norms)
        z, least = self.unit_places(w)
        if np.any(least > 1.0 + _HIDDEN) or float(z[self.base_free].sum()) > max(self.base_m, 0) + _HIDDEN * self.size:
            return np.inf
        used = norms > 0.0
        return 0.5 * float(np.sum(norms[used] ** 2 / z[used])) if np.all(z[used] > 0.0) else np.inf

    def norms(self, w: Vector) -> Vector:
        """The norm of each unit, whatever the limits."""
        return np.sqrt(np.bincount(self.unit, np.square(w), minlength=self.n_units)).astype(np.float64, copy=False)

    @cached_property
    def base_m(self) -> int:
        """How many undecided units may be chosen."""
        return self.base.free(self.n_units)[0]

    @cached_property
    def base_free(self) -> Indices:
        """The undecided units."""
        _, inside, outside = self.base.free(self.n_units)
        return np.setdiff1d(np.arange(self.n_units), np.union1d(inside, outside))

    def unit_places(self, w: Vector) -> tuple[Vector, Vector]:
        """How much of a place each unit takes, and how much its limits ask for at least."""
        assert self.limits is not None
        least = least_places(w, self.limits, self.unit, self.n_units)
        z, free = np.zeros(self.n_units), self.base_free
        z[self.base.free(self.n_units)[1]] = 1.0
        z[free] = shared_places(self.norms(w)[free], least[free], max(self.base_m, 0))
        return z, least

    def places(self, w: Vector) -> Vector:
        """How much of a place each feature's unit takes."""
        plain = self.limits is None or self.limits.is_cone
        return np.asarray((self.base.places(self.norms(w)) if plain else self.unit_places(w)[0])[self.unit])

    def prox(self, q: Vector, r: float) -> Vector:
        """Every unit is shrunk as its norm is; with limits, as `diht.constraints.limits` says."""
        if self.limits is not None and not self.limits.is_cone:
            return self.limited_prox(q, r)
        norms = np.sqrt(self.squares(q))
        shrunk = self.base.prox(norms, r)
        return np.asarray(
            self.clipped(q) * np.divide(shrunk, norms, out=np.zeros_like(norms), where=norms > 0.0)[self.unit]
        )

    def limited_prox(self, q: Vector, r: float) -> Vector:
        """The proximal map within limits."""
        assert self.limits is not None
        z, free = np.zeros(self.n_units), self.base_free
        z[self.base.free(self.n_units)[1]] = 1.0
        place = np.full(self.n_units, -1)
        place[free] = np.arange(len(free))
        some = np.flatnonzero(place[self.unit] >= 0)
        z[free] = shrunk_places(q[some], self.limits.of(some), place[self.unit[some]], len(free), r, self.base_m)
        share = z[self.unit]
        return self.limits.times(share).clipped(q * share / (share + r))


def constrained(
    k: int,
    n_features: int,
    keep: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    sign: ArrayLike | int | None = None,
    bounds: Any = None,
) -> Constraint:
    """At most k features, or groups of features, with more said about them.

    Parameters
    ----------
    k : int
        How many features a model may use, besides those of `keep`; with `groups` how many groups.
    n_features : int
        The number of columns of X.
    keep : array of int, or of bool of shape (n_features,), optional
        Features that are always in the model, and not counted; with `groups` their whole groups.
    groups : array of shape (n_features,), optional
        A label for each feature: those of one label enter and leave together.
    sign : int or array of shape (n_features,) or (n_targets, n_features), optional
        1 for coefficients that may not be negative, -1 for those that may not be positive, 0 for those that may be both.
    bounds : pair of numbers or arrays, or scipy's Bounds, optional
        A lower limit of the coefficients, at most zero, and an upper one, at least zero: a number for all, or an array as `sign`.

    Returns
    -------
    Constraint
        For `Problem(..., k=...)`.
    """
    kept = features_given("keep", keep, n_features)
    if groups is not None:
        kept = np.unique(units_of_labels(groups, n_features)[kept])
    choices = n_choices(n_features, keep, groups)
    if k > choices or (k < 1 and choices):
        what, beside = "features" if groups is None else "groups", " besides those to keep" * bool(len(kept))
        raise ValueError(f"k must be from 1 to the number of {what}{beside}, got k={k} with {choices} {what}")
    base = Node(int(k) + len(kept), kept, np.empty(0, dtype=np.int64)) if len(kept) else Cardinality(k)
    limits = limits_of(bounds, _signs(sign, n_features), n_features)
    if groups is None and limits is None:
        return base
    n_targets = 1 if limits is None else len(limits.lower) // n_features
    return Structured(base, np.tile(units_of_labels(groups, n_features), n_targets), limits)


def over_targets(constraint: Constraint, n_targets: int, n_features: int, coupled: bool = False) -> Constraint:
    """The constraint on the coefficients of several targets, one target after the other: a feature's enter and leave together."""
    size = len(constraint.unit) if isinstance(constraint, Structured) else n_features
    if size == n_targets * n_features:
        return constraint
    limits = constraint.limits
    what = "sign" if limits is None or limits.is_cone else "bounds"
    if limits is not None and size > n_features and size % n_features == 0:
        raise ValueError(f"{what} must have one row, or {n_targets} for as many targets, got {size // n_features} rows")
    constraint.check(n_features)
    if not isinstance(constraint, Structured):
        return Structured(constraint, np.tile(np.arange(n_features), n_targets))
    if limits is not None and coupled and np.any((limits.lower == 0.0) | (limits.upper == 0.0)):
        raise ValueError(
            f"{what} must have a row for each of the {n_targets} classes: coefficients of a feature sum to zero"
        )
    repeated = None if limits is None else limits.repeated(n_targets)
    return Structured(constraint.base, np.tile(constraint.unit, n_targets), repeated)


def limited(constraint: Constraint, n_features: int, sign: Any = None, bounds: Any = None) -> Constraint:
    """Return a constraint of one's own choice, with signs and limits of coefficients."""
    constraint.check(n_features)
    free = constrained(n_features, n_features, sign=sign, bounds=bounds)
    return constraint if free.limits is None else Structured(constraint, free.unit_of(n_features), free.limits)


def n_choices(n_features: int, keep: ArrayLike | None, groups: ArrayLike | None) -> int:
    """The number of features, or of groups, besides those to keep."""
    kept = features_given("keep", keep, n_features)
    if groups is None:
        return n_features - len(kept)
    unit = units_of_labels(groups, n_features)
    return int(unit.max(initial=-1)) + 1 - len(np.unique(unit[kept]))


def indices_of(name: str, features: Any, names: Any) -> Any:
    """Return features as they are, or names of them as indices."""
    if isinstance(features, str):
        raise ValueError(f"{name} must be a list of features, got {features!r}")
    if features is None or np.asarray(features).dtype.kind not in "UO":
        return features
    if names is None:
        raise ValueError(f"{name} holds names, but X has none")
    places = {known: j for j, known in enumerate(names)}
    unknown = [feature for feature in features if feature not in places]
    if unknown:
        raise ValueError(f"{name} holds {unknown[0]!r}, which is not among the features")
    return np.array([places[feature] for feature in features], dtype=np.int64)


def signs_of(sign: Any, names: Any, n_features: int) -> Any:
    """Return signs as they are, or those of a dict as an array."""
    if not isinstance(sign, dict):
        return sign
    signs = np.zeros(n_features)
    for feature, value in sign.items():
        signs[features_given("sign", indices_of("sign", [feature], names), n_features)] = value
    return signs


def bounds_of(bounds: Any, names: Any, n_features: int) -> Any:
    """Return bounds as they are, or those of a dict from features to pairs as two arrays."""
    if not isinstance(bounds, dict):
        return bounds
    lower, upper = np.full(n_features, -np.inf), np.full(n_features, np.inf)
    for feature, pair in bounds.items():
        at = features_given("bounds", indices_of("bounds", [feature], names), n_features)
        (lower[at],), (upper[at],) = sides_of(pair, 1)
    return lower, upper


def units_of_labels(groups: ArrayLike | None, n_features: int) -> Indices:
    """Number the groups in the order of their labels; without groups every feature is one."""
    if groups is None:
        return np.arange(n_features)
    labels: Any = np.asarray(groups)
    if labels.shape != (n_features,):
        raise ValueError(f"groups must hold a label for each of the {n_features} features, got shape {labels.shape}")
    if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
        raise ValueError("groups must hold no NaN or infinite label")
    if labels.dtype.kind == "O":
        labels = np.array([str(label) for label in labels])
    return np.asarray(np.unique(labels, return_inverse=True)[1], dtype=np.int64)


def features_given(name: str, features: ArrayLike | None, n_features: int) -> Indices:
    """Return features that are given by a mask or by their indices, ascending."""
    if features is None:
        return np.empty(0, dtype=np.int64)
    array = np.asarray(features)
    if array.ndim != 1 or (array.dtype.kind not in "biu" and array.size):
        raise ValueError(f"{name} must be a list of indices or a mask, got {array.dtype} of shape {array.shape}")
    if array.dtype.kind == "b":
        if len(array) != n_features:
            raise ValueError(
                f"{name} must have length {n_features} to match X if it is a mask, got length {len(array)}"
            )
        return np.flatnonzero(array)
    outside = array[(array < 0) | (array >= n_features)]
    if len(outside):
        raise ValueError(f"{name} must hold indices from 0 to {n_features - 1}, got {outside[0]}")
    return np.unique(array).astype(np.int64)


def _signs(sign: ArrayLike | int | None, n_features: int) -> Signs | None:
    """Return the signs of all coefficients, those of several targets one after the other; None where there are none."""
    if sign is None:
        return None
    signs = np.asarray(sign)
    if signs.ndim == 0:
        signs = np.full(n_features, signs)
    if signs.ndim > 2 or signs.shape[-1] != n_features:
        raise ValueError(
            f"sign must be one number, or one for each of the {n_features} features, got shape {signs.shape}"
        )
    signs = signs.ravel()
    if signs.dtype.kind not in "iuf" or not np.all(np.isin(signs, (-1, 0, 1))):
        raise ValueError(
            f"sign must hold -1, 0 and 1 only, got {sign!r}" if signs.size < 20 else "sign must hold -1, 0 and 1 only"
        )
    return None if not np.any(signs) else signs.astype(np.int8)

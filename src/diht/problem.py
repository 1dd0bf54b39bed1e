"""The problem, stated once and validated once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diht.constraints.base import Cardinality, Constraint, as_constraint
from diht.constraints.groups import over_targets
from diht.constraints.limits import Limits
from diht.design import LARGEST, Design, Features, affine, as_design
from diht.design.base import SMALLEST, UNIT
from diht.design.gram import PreciseGram
from diht.losses import Loss, Squared, as_loss
from diht.numerics.arrays import Vector
from diht.numerics.exact import dot, two_sum
from diht.samples import MemorySamples, Rows, Samples, TargetSamples, added

__all__ = ["Problem", "Targets", "finite_vector", "normalised_weights", "positive_number"]

_PAIRWISE = 64.0 * UNIT  # relative error of numpy's pairwise sum over fewer than 2^40 terms


class Targets(NamedTuple):
    """The targets of samples that live elsewhere.

    Attributes
    ----------
    rows : Rows
        A number for each sample; of several models a row for each.
    number : int
        How many models.
    tail : Rows or None
        As in `Problem`.
    """

    rows: Rows
    number: int = 1
    tail: Rows | None = None


@dataclass(frozen=True, eq=False, init=False)
class Problem:
    r"""A sparsity-constrained, l2-regularised linear model.

    .. math:: \min_{w, b} \; P(w, b) = \sum_i s_i\, l(x_i^\top w + b, y_i) + \frac{\lambda}{2} \|w\|^2
              \quad \text{subject to} \quad \|w\|_0 \le k

    with weights s that sum to one (1/N by default). The intercept b is neither penalised nor counted; without
    `fit_intercept` it is zero. This is the paper's problem (1.1), with weights and an intercept.

    Parameters
    ----------
    X : array, scipy sparse array or matrix, or Design, of shape (N, d)
        The samples. Never copied where that can be avoided.
    y : array of shape (N,) or (N, C)
        The targets: real numbers for regression losses, -1 and +1 for classification losses. Several for each sample share the
        features: a feature counts once, however many of the C models use it, and losses and ridges add up. For the multinomial
        loss, the classes by their numbers from 0, or a column for each with a single 1 a sample.
    loss : Loss or str
        One of `diht.losses`, by name or as an object, or one of your own.
    k : int or Constraint
        The largest number of nonzero coefficients, at most d.
    lam : float
        The ridge's strength, positive.
    sample_weight : array of shape (N,), optional
        Nonnegative weights; only their ratios matter.
    fit_intercept : bool
        Whether the model has an intercept.
    scale : array of shape (d,), optional
        The columns of X are divided by it (implicitly); the coefficients then belong to the scaled columns. Limits of coefficients
        are those of the columns of X.
    n_threads : int, optional
        Threads of the compiled kernels; None takes what the machine allows.
    offset : array of the shape of y, optional
        Known parts of the predictions: the loss of a sample is l(x_i.w + b + offset_i, y_i). For losses that turn
        it into other targets (and weights), l(u + offset, y) = f l(u, z), as squared, Huber and Poisson do; see `Loss.with_offset`.

    Attributes
    ----------
    samples : Samples
        The rows, with all that is as long as they are many.
    constraint : Constraint
        What a model may be, in terms of the scaled columns.
    limits : Limits or None
        Those of the coefficients of the columns of X.
    tail : array of shape (N,) or None
        What rounding has taken off the targets where an offset was subtracted from them.
    """

    samples: Samples
    loss: Loss
    constraint: Constraint
    lam: float
    fit_intercept: bool
    center: Vector | None = field(repr=False)
    scale: Vector | None = field(repr=False)
    limits: Limits | None = field(repr=False)
    level: Any = field(repr=False)
    tail: Rows | None = field(repr=False)
    _memo: dict[str, Any] = field(repr=False)  # shared by all problems of the same data

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        loss: Loss | str = Squared(),  # noqa: B008 - a loss is frozen and stateless
        k: int | Constraint = 10,
        lam: float = 1e-3,
        sample_weight: ArrayLike | None = None,
        fit_intercept: bool = False,
        *,
        scale: ArrayLike | None = None,
        n_threads: int | None = None,
        offset: ArrayLike | None = None,
    ) -> None:
        loss, constraint = as_loss(loss), as_constraint(k)
        lam = positive_number("lam", lam)
        design = X if isinstance(X, Design) else as_design(X, n_threads=n_threads)
        n, d = design.shape
        if n == 0 or d == 0:
            raise ValueError(f"X must have at least one row and one column, got shape {design.shape}")
        y, n_targets = _targets(y, n, loss)
        constraint = over_targets(constraint, n_targets, d, loss.coupled)
        constraint.check(n_targets * d)
        loss.check_targets(y)
        s = normalised_weights(sample_weight, n)
        y, s, tail = (y, s, None) if offset is None else _less_offset(loss, y, s, offset)
        _check_size("y", y)
        if loss.task == "classification":
            _check_classes(y, s, loss.coupled)
        q = None if scale is None else finite_vector("scale", scale, d)
        if q is not None and not np.all(q > 0):
            raise ValueError(f"scale must be positive, got {q[~(q > 0)][0]}")
        level: Any = 0.0
        if fit_intercept and loss.of_differences:
            y, level = _levelled(y, s) if n_targets == 1 else _all_levelled(y, s)
        center, zeros = _center(design, s if offset is None else s / s.sum()) if fit_intercept else (None, None)
        if center is not None or q is not None:
            design = affine(design, center, q, zeros)
        limits = constraint.limits
        if q is not None:
            constraint = constraint.times(np.tile(q, n_targets))
        samples: Samples = MemorySamples(design, y if n_targets == 1 else y[0], s)
        if n_targets > 1:
            samples = TargetSamples(samples, y, n_targets, loss)
            center, q = (None if values is None else np.tile(values, n_targets) for values in (center, q))
        self._set(samples, loss, constraint, lam, bool(fit_intercept), center, q, limits, level, tail)

    def _set(self, *values: Any) -> None:
        names = "samples", "loss", "constraint", "lam", "fit_intercept", "center", "scale", "limits", "level", "tail"
        for name, value in zip((*names, "_memo"), (*values, {}), strict=True):
            object.__setattr__(self, name, value)

    @classmethod
    def of_samples(
        cls,
        samples: Any,
        loss: Loss,
        k: int | Constraint,
        lam: float,
        fit_intercept: bool = False,
        scale: Vector | None = None,
        targets: Targets | None = None,
    ) -> Problem:
        """State the problem of samples that live elsewhere, whose targets were checked and whose weights sum to one.

        `targets` stand in the place of those that the samples have; with an offset also the weights are what it makes of them.
        """
        if loss.several > 1:
            raise ValueError(f"several {loss.name} losses need X in memory or on disk")
        y, n_targets, tail = Targets(samples.y) if targets is None else targets
        if targets is not None and n_targets == 1:
            samples = samples.with_targets(y)
        d = samples.design.shape[1]
        constraint = over_targets(as_constraint(k), n_targets, d, loss.coupled)
        constraint.check(n_targets * d)
        level = 0.0
        if fit_intercept and loss.of_differences and n_targets == 1:
            samples, level = _levelled_there(samples)
        center = zeros = None
        if fit_intercept:
            center, zeros = _centre_of(samples.design, *samples.moments(samples.full(1.0)))
        if center is not None or scale is not None:
            samples = samples.affine(center, scale, np.empty(0, dtype=np.int64) if zeros is None else zeros)
        limits = constraint.limits
        if scale is not None:
            constraint = constraint.times(np.tile(scale, n_targets))
        if n_targets > 1:
            samples = TargetSamples(samples, y, n_targets, loss)
            center, scale = (None if values is None else np.tile(values, n_targets) for values in (center, scale))
        problem = object.__new__(cls)
        ridge = positive_number("lam", lam)
        problem._set(samples, loss, constraint, ridge, fit_intercept, center, scale, limits, level, tail)
        return problem

    @property
    def precise_gram(self) -> PreciseGram | None:
        """The Gram matrix of the columns and the targets in twice the precision, of small problems; made once."""
        if "precise" not in self._memo:
            self._memo["precise"] = self.samples.precise_gram(self.fit_intercept)
        found: PreciseGram | None = self._memo["precise"]
        return found

    @property
    def null_intercept(self) -> Any:
        """The best intercept of the model without features; searched for once."""
        if "null" not in self._memo:
            samples = self.samples
            self._memo["null"] = samples.best_intercept(self.loss, samples.full(0.0)) if self.fit_intercept else 0.0
        return self._memo["null"]

    @property
    def null_value(self) -> float:
        """The objective of the model without features, with its best intercept; computed once."""
        if "null value" not in self._memo:
            samples = self.samples
            u = samples.shifted(samples.full(0.0), self.null_intercept)
            self._memo["null value"] = samples.value(self.loss, u)
        return float(self._memo["null value"])

    def replaced(self, *, constraint: Constraint | None = None, lam: float | None = None) -> Problem:
        """The same data under another constraint or ridge; nothing is checked or copied."""
        other = object.__new__(Problem)
        for name in ("samples", "loss", "fit_intercept", "center", "scale", "limits", "level", "tail", "_memo"):
            object.__setattr__(other, name, getattr(self, name))
        object.__setattr__(other, "constraint", self.constraint if constraint is None else constraint)
        object.__setattr__(other, "lam", self.lam if lam is None else lam)
        return other

    def alone(self, target: int) -> Problem:
        """The problem of one target by itself, whatever features it may have."""
        n_features = self.samples.targets[target].design.shape[1]
        other = self.replaced(constraint=Cardinality(n_features))
        object.__setattr__(other, "samples", self.samples.targets[target])
        object.__setattr__(other, "loss", self.loss.of_target(target))
        object.__setattr__(other, "_memo", {})
        return other

    def sampled(self, n: int, rng: np.random.Generator) -> Problem:
        """The problem of about n of the samples, chosen at random, on a copy of them."""
        other = self.replaced()
        part = self.samples.partition(max(1, self.samples.size // (n * self.n_targets)), rng)[0]
        object.__setattr__(other, "samples", self.samples.taken(part))
        object.__setattr__(other, "_memo", {})
        return other

    def restricted(self, features: NDArray[np.int64]) -> Problem:
        """The problem of some features alone, on a compact copy of them."""
        other = self.replaced(constraint=self.constraint.within(features))
        object.__setattr__(other, "samples", self.samples.columns(features))
        without = {name: known for name, known in self._memo.items() if name in ("null", "null value")}
        object.__setattr__(other, "_memo", without)  # the model without features is the same
        for name in ("center", "scale"):
            values = getattr(self, name)
            object.__setattr__(other, name, None if values is None else values[features])
        object.__setattr__(other, "limits", None if self.limits is None else self.limits.of(features))
        return other

    @property
    def n_targets(self) -> int:
        """How many targets a sample has."""
        return self.samples.n_targets

    def shaped(self, w: NDArray[Any]) -> NDArray[Any]:
        """Coefficients as users see them: those of several targets one row each."""
        return w if self.n_targets == 1 else w.reshape(self.n_targets, -1)

    def flat(self, name: str, w: ArrayLike) -> Vector:
        """Coefficients as solvers see them, one target after the other; ValueError where they are not so many numbers."""
        if self.n_targets == 1:
            return finite_vector(name, w, self.shape[1])
        rows, shape = np.asarray(w), (self.n_targets, self.shape[1] // self.n_targets)
        if rows.shape not in (shape, (self.shape[1],)):
            raise ValueError(f"{name} must have shape {shape}, a row for each target, got shape {rows.shape}")
        return finite_vector(name, rows.ravel(), self.shape[1])

    def n_used(self, support: NDArray[np.int64]) -> int:
        """Return how many features some coefficients belong to."""
        return len(support) if self.n_targets == 1 else len(np.unique(self.samples.column_of(support)))

    def coefficients_at(self, features: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return all coefficients of some features, ascending."""
        starts = np.arange(self.n_targets)[:, None] * (self.shape[1] // self.n_targets)
        return np.asarray((starts + features).ravel())

    @property
    def design(self) -> Any:
        """X as the solvers see it.

        With an intercept it is centred by the weighted column means, which changes nothing but the meaning of b (see `intercept_of`
        and `centred_intercept`) and conditions the problem far better.
        """
        return self.samples.design

    @property
    def y(self) -> Any:
        """The targets; less their mean, `level`, where there is an intercept and that takes no digit of them."""
        return self.samples.y

    @property
    def s(self) -> Any:
        """The weights divided by their sum; with an offset times f."""
        return self.samples.s

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of samples and of features; several targets count as samples, and coefficients, of their own."""
        return self.samples.design.shape

    @cached_property
    def trivial_bound(self) -> float:
        """The bound of the dual point zero: no objective is below it."""
        loss = self.loss

        def sums(y: Vector, s: Vector) -> tuple[float, float]:
            at_zero = loss.conjugate(np.zeros_like(y), y)
            return float(np.sum(s * at_zero)), float(s @ np.abs(at_zero))

        total, size = map(added, zip(*self.samples.each(sums), strict=True))
        return 0.0 - total - _PAIRWISE * size

    @cached_property
    def rounding_norm(self) -> float:
        """Constraint norm of the rounding errors of X'c, for a c of norm one: what `duality.lower_bound` subtracts."""
        return self._norm(self.design.rmatvec_error(1.0))

    @cached_property
    def underflow_norm(self) -> float:
        """Constraint norm of what X'c can lose by underflow, whatever the size of c."""
        lost = self.design.rmatvec_error(0.0) + SMALLEST * np.sqrt(self.shape[0]) * self.design.column_norms()
        return self._norm(lost)

    @cached_property
    def column_norm(self) -> float:
        """Constraint norm of the columns' norms: how far X'c can move with a c of norm one."""
        return self._norm(self.design.column_norms())

    @cached_property
    def null(self) -> NDArray[np.int64]:
        """The columns that are zero, ascending: constant ones where there is an intercept.

        A coefficient of theirs costs its ridge and changes no prediction, so that no best model uses them.
        """
        held = np.zeros(self.shape[1], dtype=bool)
        held[self.design.occupied()] = True
        # A norm of zero says so as well, unless squares underflow.
        suspects = np.flatnonzero(held & (self.design.column_norms() == 0.0))
        held[suspects] = self.design.constants(suspects) != 0.0
        return np.flatnonzero(~held)

    @cached_property
    def pull_constraint(self) -> Constraint:
        """The constraint on X'(s alpha) = -lam w: what a dual point's model follows from."""
        return self.constraint.times(-self.lam)

    def _norm(self, v: Vector) -> float:
        largest = float(v.max())  # divided by it, no square underflows
        return largest and largest * float(np.sqrt(self.constraint.unlimited.value(v / largest))) * (1.0 + 1e-9)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the data."""
        return self.samples.design.data_dtype

    def coefficients_of(self, w: NDArray[Any]) -> NDArray[Any]:
        """Coefficients of the columns of X, from those of the scaled columns; never beyond their limits by rounding."""
        if self.scale is None:
            return w
        return np.asarray(w / self.scale if self.limits is None else self.limits.clipped(w / self.scale))

    def scaled_coefficients(self, coef: NDArray[Any]) -> NDArray[Any]:
        """Coefficients of the scaled columns, from those of the columns of X."""
        coef = np.asarray(coef, dtype=np.float64)
        return coef if self.scale is None else np.asarray(coef * self.scale)

    def intercept_of(self, w: Vector, b: Any, support: NDArray[np.int64] | None = None) -> Any:
        """Intercept in the user's coordinates, from `b` of the centred design; `w` may be the coefficients of a support alone."""
        if self.center is None:
            return b if self.n_targets == 1 else b + np.zeros(self.n_targets)
        return -self._at_center(w, -b, support)

    def centred_intercept(self, w: Vector, intercept: Any) -> Any:
        """Turn an intercept in the user's coordinates into `b` of the centred design."""
        return intercept if self.center is None else self._at_center(w, intercept)

    def _at_center(self, w: Vector, start: Any, support: NDArray[np.int64] | None = None) -> Any:
        """Return start + center.coefficients - level, rounded once: terms as large as the means may cancel."""
        assert self.center is not None
        if support is None:
            support = np.flatnonzero(w)
            w = w[support]
        with np.errstate(over="ignore"):
            coef = w if self.scale is None else w / self.scale[support]
        if self.n_targets == 1:
            return dot(np.append(self.center[support], -1.0), np.append(coef, self.level), start)
        levels, starts = (np.broadcast_to(value, (self.n_targets,)) for value in (self.level, start))
        target, sums = self.samples.target_of(support), []
        for c in range(self.n_targets):
            own = target == c
            means, terms = np.append(self.center[support[own]], -1.0), np.append(coef[own], levels[c])
            sums.append(dot(means, terms, float(starts[c])))
        return np.array(sums)

    def __repr__(self) -> str:
        n, d = self.shape
        return f"Problem({n} x {d}, loss={self.loss}, {self.constraint!r}, lam={self.lam:g}, fit_intercept={self.fit_intercept})"


def _center(design: Design, s: Vector) -> tuple[Vector, NDArray[np.int64]]:
    """Weighted means of the columns, and the constant columns, whose mean is their value to the last bit."""
    return _centre_of(design, *design.moments(s))


def _centre_of(design: Features, mean: Vector, variance: Vector) -> tuple[Vector, NDArray[np.int64]]:
    suspects = np.flatnonzero((mean != 0.0) & (variance <= 1e-24 * mean**2))
    if not suspects.size:
        return mean, suspects
    values = design.constants(suspects)
    constant = ~np.isnan(values)
    mean = mean.copy()
    mean[suspects[constant]] = values[constant]
    return mean, suspects[constant]


def _targets(y: ArrayLike, n: int, loss: Loss | None) -> tuple[Vector, int]:
    """Return the targets, those of several one row each, and how many there are."""
    values = np.asarray(y)
    if loss is not None and loss.coupled and values.ndim == 1:
        codes = finite_vector("y", values, n)
        if np.any(codes != np.floor(codes)) or codes.min() < 0 or codes.max() < 1:
            raise ValueError(f"y must hold the numbers of two classes or more, from 0, for the {loss.name} loss")
        missing = np.setdiff1d(np.arange(min(codes.max() + 1.0, n + 1.0)), codes)  # of n + 1 numbers one at least
        if missing.size:
            raise ValueError(
                f"y must hold every number from 0 to {codes.max():.0f} for the {loss.name} loss, got no {missing[0]:.0f}"
            )
        values = np.eye(int(codes.max()) + 1)[codes.astype(np.int64)]
    if loss is not None and loss.several > 1:
        values = loss.columns_of(values)
        if values.ndim != 2 or values.shape[1] != loss.several:
            raise ValueError(f"y must have one column, or {loss.several} for as many losses, got shape {values.shape}")
    if values.ndim != 2 or values.shape[1] < 2:
        return finite_vector("y", values, n), 1
    return np.stack([finite_vector("y", column, n) for column in values.T]), values.shape[1]


def _all_levelled(y: Vector, s: Vector) -> tuple[Vector, Vector]:
    """Do so for each of several targets."""
    rows, levels = zip(*(_levelled(row, s) for row in y), strict=True)
    return np.stack(rows), np.array(levels)


def _levelled(y: Vector, s: Vector) -> tuple[Vector, float]:
    """Return the targets less their mean, and the mean, where the mean is so large that the differences are exact; else 0."""
    mean = float(s @ y) / float(s.sum())
    differences, lost = two_sum(y, -mean)
    return (y, 0.0) if np.any(lost) or 2.0 * np.abs(differences).max() > abs(mean) else (differences, mean)


def _levelled_there(samples: Samples) -> tuple[Samples, float]:
    """Do so where the samples are."""
    mean = float(samples.mean(samples.y))

    def exact(y: Vector, s: Vector) -> bool:
        differences, lost = two_sum(y, -mean)
        return not np.any(lost) and bool(2.0 * np.abs(differences).max() <= abs(mean))

    if not all(samples.each(exact)):
        return samples, 0.0
    return samples.with_targets(samples.map(lambda y, s: y - mean)), mean


def positive_number(name: str, value: Any) -> float:
    """Return `value` as a float; ValueError, naming the argument, where it is not positive and finite."""
    no_number = f"{name} must be a positive number, got {value!r}"
    if isinstance(value, str | bytes):  # also those that can be read as one
        raise ValueError(no_number)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(no_number) from None
    if not np.isfinite(number) or number <= 0:
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return number


def finite_vector(name: str, values: ArrayLike, length: int) -> Vector:
    """Return `values` as float64; ValueError, naming the argument, where they are not so many finite numbers."""
    array = np.asarray(values)
    if array.dtype.kind not in "buif":
        raise ValueError(f"{name} must be numeric, got dtype {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {array.shape}")
    if array.shape[0] != length:
        raise ValueError(f"{name} must have length {length} to match X, got length {array.shape[0]}")
    vector = array.astype(np.float64)
    if not np.all(np.isfinite(vector)):
        bad = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise ValueError(f"{name} must be finite, got {vector[bad]} at position {bad}")
    return vector


def normalised_weights(sample_weight: ArrayLike | None, n: int) -> Vector:
    """Return the weights of n samples divided by their sum, equal ones for None; ValueError where they are no weights.

    Those that sum to one already, up to rounding, are returned as they are.
    """
    if sample_weight is None:
        return np.full(n, 1.0 / n)
    weights = finite_vector("sample_weight", sample_weight, n)
    if np.any(weights < 0):
        bad = int(np.flatnonzero(weights < 0)[0])
        raise ValueError(f"sample_weight must not be negative, got {weights[bad]} at position {bad}")
    largest = float(weights.max())
    if largest == 0:
        raise ValueError("sample_weight must not be all zero")
    if largest <= 1.0 and abs(float(weights.sum()) - 1.0) <= n * np.finfo(np.float64).eps:
        return weights
    weights /= largest
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _less_offset(loss: Loss, y: Vector, s: Vector, offset: ArrayLike) -> tuple[Vector, Vector, Vector | None]:
    """Return targets and weights that stand for known parts of the predictions, and what rounding took off the targets."""
    several = y.ndim > 1
    known = _targets(offset, y.shape[-1], loss)[0] if several else finite_vector("offset", offset, len(y))
    if known.shape != y.shape or loss.coupled or (several and not loss.of_differences):
        raise ValueError(
            f"offset must have the shape of y, and a loss of differences where there are several targets, "
            f"got shape {np.shape(offset)} for the {loss.name} loss"
        )
    _check_size("offset", known)
    tail = two_sum(y, -known)[1] if loss.of_differences else None
    y, factor = _with_offset(loss, y, known)
    return y, s if several else s * factor, tail


def _with_offset(loss: Loss, y: Vector, offset: Vector) -> tuple[Vector, Vector]:
    """Return the targets and the factors of the weights that stand for an offset; they must be numbers, none of them zero."""
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        targets, factor = loss.with_offset(y, offset)
    bad = ~(np.isfinite(targets) & np.isfinite(factor) & (factor > 0.0))
    if np.any(bad):
        worst = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"offset must not be so large for the {loss.name} loss, got {offset[worst]} at position {worst}"
        )
    return np.asarray(targets), np.asarray(factor)


def _check_size(name: str, values: Vector) -> None:
    values = values.ravel()
    worst = int(np.argmax(np.abs(values)))
    if abs(values[worst]) > LARGEST:
        raise ValueError(
            f"{name} must not hold numbers beyond {LARGEST:g} in size, got {values[worst]:g} at position {worst}"
        )


def _check_classes(y: Vector, s: Vector, coupled: bool) -> None:
    """Raise unless every target has both classes with some weight."""
    for row in np.atleast_2d(y):
        present = np.unique(row[s > 0])
        if len(present) < 2:
            what = "every class, and others," if coupled else "both classes, -1 and +1,"
            raise ValueError(f"y must hold {what} with positive weight, got only {present[0]:+g}")

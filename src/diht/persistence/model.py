"""A fitted model by itself: what `model.json` says of it, and its predictions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from diht.losses import Loss, losses_with_probabilities
from diht.losses.base import log_probabilities
from diht.numerics.arrays import Indices
from diht.status import Bounded, Status
from diht.tables import Encoding, Frame
from diht.tables.encoding import missing_in_words
from diht.tables.frame import as_numbers, count_missing, is_frame

# Reading a model and predicting with it needs numpy alone: what is used to make one is imported there.
if TYPE_CHECKING:
    from diht.constraints.base import Constraint
    from diht.constraints.limits import Limits
    from diht.datasets import Table
    from diht.result import Certificate, NormBound, Result

__all__ = [
    "Data",
    "Equation",
    "Figures",
    "Label",
    "SavedModel",
    "Structure",
    "as_labels",
    "equation_labels",
    "feature_name",
    "stacked_columns",
]

Label: TypeAlias = str | int | float


@dataclass(frozen=True)
class Figures(Bounded):
    """A certificate without its proof: what was attained and what was proved.

    Attributes
    ----------
    objective, lower_bound : float
        Of the equation, or of all of them together where they share features.
    scaled : bool
        Whether columns were standardised: objective and bound then speak of the scaled problem.
    status : Status
        Why the solve ended.
    excluded : int
        How many features are proved to be in no optimal model.
    required : tuple of int
        The features, ascending, that are proved to be in every optimal model.
    drop_cost : tuple of float
        For each of these, by how much more every model without it costs at least; infinite for those that must be kept.
    norm : float
        The Euclidean norm of the penalised coefficients, rounded up.
    larger_ridges : tuple of pairs of numbers
        What bounds the objectives of models of bounded norm; see `diht.Certificate.for_norm`.
    """

    objective: float
    lower_bound: float
    scaled: bool
    status: Status
    excluded: int = 0
    required: tuple[int, ...] = ()
    drop_cost: tuple[float, ...] = ()
    norm: float = inf
    larger_ridges: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, certificate: Certificate, status: Status) -> Figures:
        """Take the figures of a certificate."""
        required = certificate.required
        return cls(
            objective=certificate.objective,
            lower_bound=certificate.lower_bound,
            scaled=certificate.scaled,
            status=status,
            excluded=len(certificate.excluded),
            required=tuple(required.tolist()),
            drop_cost=tuple(certificate.drop_cost[required].tolist()),
            norm=certificate.norm,
            larger_ridges=tuple((e, B) for e, B in certificate.larger_ridges if isfinite(B)),
        )

    def for_norm(self, factor: float = 1.0) -> NormBound:
        """Bound the objectives of the models that are no larger than this one, or than a multiple of it."""
        from diht.result import NormBound

        return NormBound.proved(factor, self.objective, self.lower_bound, self.norm, self.larger_ridges)

    def within(self, place: Mapping[int, int]) -> Figures:
        """Return what is said of some features, by their places among them."""
        pairs = [(place[j], cost) for j, cost in zip(self.required, self.drop_cost, strict=True) if j in place]
        required, costs = tuple(j for j, _ in pairs), tuple(cost for _, cost in pairs)
        return replace(self, excluded=0, required=required, drop_cost=costs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take back what was stored; a format that knows texts only has kept the status as one."""
        self.__dict__.update(state | {"status": Status(state["status"])})


@dataclass(frozen=True, eq=False)
class Equation:
    """One linear function x -> x.w + b: its nonzero coefficients in the user's units.

    Attributes
    ----------
    label : str, number or None
        The class that a large value speaks for, or the one of several targets that it predicts; None for a single target.
    indices, values : arrays
        The nonzero coefficients, indices ascending.
    intercept : float
        The constant b.
    figures : Figures
        How good it is; equations that share features have these in common.
    """

    label: Label | None
    indices: Indices
    values: NDArray[Any]
    intercept: float
    figures: Figures

    @cached_property
    def drop_cost(self) -> NDArray[np.float64]:
        """For each of its features, by how much more every model without it costs at least; zero where nothing is proved."""
        costs = dict(zip(self.figures.required, self.figures.drop_cost, strict=True))
        return np.array([costs.get(j, 0.0) for j in self.indices.tolist()], dtype=np.float64)

    @cached_property
    def required(self) -> Indices:
        """Indices of its features that are proved to be in every optimal model."""
        return np.intersect1d(self.indices, np.array(self.figures.required, dtype=np.int64))

    def __call__(self, X: Any, places: Indices | None = None) -> NDArray[Any]:
        """Return X w + b; `places` tells where its features stand in X, if not in their own."""
        places = self.indices if places is None else places
        if hasattr(X, "matvec"):  # a design
            w = np.zeros(X.shape[1])
            w[places] = self.values
            u = X.matvec(w, support=np.sort(places)).astype(np.result_type(X.dtype, self.values.dtype))
            return np.asarray(u + u.dtype.type(self.intercept))
        X = X[:, places]
        u = np.asarray(X @ self.values.astype(np.result_type(X.dtype, self.values.dtype)))
        return np.asarray(u + u.dtype.type(self.intercept))


@dataclass(frozen=True)
class Data:
    """What the model was fitted to; the file's name without its directory. None where it is not known."""

    file: str | None
    n_samples: int
    sparse: bool | None
    zero_based: bool | None

    @classmethod
    def of(cls, table: Table) -> Data:
        """Describe a table."""
        file = os.path.basename(table.path) or None
        return cls(file, int(table.X.shape[0]), table.is_sparse, table.zero_based)


@dataclass(frozen=True)
class Structure:
    """What is asked of a model besides k, as in :func:`diht.constraints.groups.constrained`, with labels that are numbers.

    Attributes
    ----------
    keep : tuple of int
        The features, ascending, that are always in and not counted: with groups, all of their groups.
    groups : tuple of int, or None
        The group of each feature, from 0, where k counts groups.
    sign : tuple of int, tuple of tuples of int, or None
        1 where a coefficient may not be negative, -1 where not positive, 0 where it may be both: one for each feature, or a row of
        them for each equation.
    limits : tuple of two such tuples of float or None, or None
        The lower and the upper limits of the coefficients; None for one that has none.
    rule : dict, or None
        A constraint of one's own choice but for its k, or budget, as `Constraint.stated` states it.
    """

    keep: tuple[int, ...] = ()
    groups: tuple[int, ...] | None = None
    sign: tuple[int, ...] | tuple[tuple[int, ...], ...] | None = None
    limits: tuple[tuple[Any, ...], tuple[Any, ...]] | None = None
    rule: dict[str, Any] | None = None

    @classmethod
    def of(cls, estimator: Any, n_features: int) -> Structure:
        """Take what an estimator was given, if it takes such things."""
        from diht.constraints.groups import _signs, features_given, units_of_labels
        from diht.constraints.limits import limits_of

        keep, groups, sign, bounds = estimator._wanted(n_features)
        own = estimator._own_constraint
        if keep is None and groups is None and sign is None and bounds is None and own is None:
            return cls()
        groups = groups if own is None else None
        kept = features_given("keep", keep, n_features)
        units = units_of_labels(groups, n_features)
        signs = _signs(sign, n_features)
        return cls(
            tuple(np.flatnonzero(np.isin(units, units[kept])).tolist()),
            None if groups is None else tuple(units.tolist()),
            None if signs is None else _as_tuples(signs.reshape(-1, n_features)),
            cls._limits(limits_of(bounds, None, n_features), n_features),
            None if own is None else own.stated(),
        )

    @staticmethod
    def _limits(limits: Limits | None, n_features: int) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
        if limits is None:
            return None
        lower, upper = (side.reshape(-1, n_features).astype(object) for side in (limits.lower, limits.upper))
        lower[lower == -np.inf], upper[upper == np.inf] = None, None
        return _as_tuples(lower), _as_tuples(upper)

    @property
    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """The limits as `constrained` takes them."""
        if self.limits is None:
            return None
        lower, upper = (np.array(side, dtype=np.float64) for side in self.limits)
        return np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)

    def constraint(self, k: float, n_features: int) -> Constraint:
        """Return the constraint on a model; a larger k than there are choices is all of them."""
        from diht.constraints.groups import constrained, limited, n_choices

        if self.rule is not None:
            return limited(self.own_constraint(k), n_features, self.sign, self.bounds)
        k = int(k)
        choices = n_choices(n_features, self.keep, self.groups)
        return constrained(min(k, choices), n_features, self.keep, self.groups, self.sign, self.bounds)

    def own_constraint(self, level: float) -> Constraint:
        """Return the constraint of one's own choice, with its k, or budget."""
        from diht.constraints.stated import constraint_of

        assert self.rule is not None
        return constraint_of(self.rule, level)

    def refusal(self, indices: Sequence[int], k: float, n_features: int) -> str | None:
        """Say why a model with some features is not allowed; None where it is."""
        if self.rule is None:
            count, what = self.counted(indices), "features" if self.groups is None else "groups"
            return f"{count} {what}, where k = {k} are allowed" if count > k else None
        constraint, w = self.own_constraint(k), np.zeros(n_features)
        w[list(indices)] = 1.0
        return None if constraint.allows(w) else f"features that are not allowed, where they are {constraint}"

    def counted(self, indices: Sequence[int]) -> int:
        """Return how many of some features, or of their groups, count."""
        kept = set(self.keep)
        free = [j for j in indices if j not in kept]
        return len(free) if self.groups is None else len({self.groups[j] for j in free})

    def within(self, place: Mapping[int, int]) -> Structure:
        """Return the same for some of the features, by their places among them."""
        some = list(place)

        def each(values: Any) -> Any:
            return None if values is None else _as_tuples(np.asarray(values)[..., some])

        groups = None
        if self.groups is not None:
            groups = tuple(np.unique(np.asarray(self.groups)[some], return_inverse=True)[1].tolist())
        limits = None if self.limits is None else (each(self.limits[0]), each(self.limits[1]))
        kept, rule = tuple(place[j] for j in self.keep if j in place), self._rule_of(np.array(some, dtype=np.int64))
        return Structure(kept, groups, each(self.sign), limits, rule)

    def _rule_of(self, features: Indices) -> dict[str, Any] | None:
        """Return the rule for some of the features, or for all of them in another order."""
        return None if self.rule is None else self.own_constraint(1).within(features).stated()

    def moved(self, columns: Indices) -> Structure:
        """Return the same for features that stand in other places, as many as before."""
        places = np.argsort(columns)

        def each(values: Any) -> Any:
            return None if values is None else _as_tuples(np.asarray(values)[..., places])

        kept = np.sort(columns[np.array(self.keep, dtype=np.int64)])
        limits = None if self.limits is None else (each(self.limits[0]), each(self.limits[1]))
        return Structure(tuple(kept.tolist()), each(self.groups), each(self.sign), limits, self._rule_of(places))

    def allows(self, equation: int, index: int, value: float) -> bool:
        """Whether a coefficient of a feature may have this value."""
        lower, upper = (None, None) if self.limits is None else (_row(side, equation)[index] for side in self.limits)
        within = (lower is None or value >= lower) and (upper is None or value <= upper)
        return within and self.allows_sign(equation, index, value)

    def allows_sign(self, equation: int, index: int, value: float) -> bool:
        """Whether it may have this sign."""
        sign = _row(self.sign, equation)
        return sign is None or bool(sign[index] * value >= 0)


def _row(values: Any, equation: int) -> Any:
    """Return what is said of an equation, by itself or with the others."""
    return values[equation] if values is not None and isinstance(values[0], tuple) else values


def _as_tuples(rows: NDArray[Any]) -> tuple[Any, ...]:
    """Return numbers as a tuple, or as a tuple of tuples where there is more than one row of them."""
    rows = rows[0] if rows.ndim == 2 and len(rows) == 1 else rows
    return tuple(rows.tolist()) if rows.ndim == 1 else tuple(map(tuple, rows.tolist()))


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A fitted model with everything that `model.json` says about it.

    Attributes
    ----------
    loss : Loss
        With its parameters.
    k, lam, fit_intercept, standardize
        The problem that was posed; k is a budget where `structure` has the rule of one.
    dtype : str
        "float32" or "float64": the type of the coefficients.
    n_features : int
        The number of columns of the data, of an encoded table of the encoded ones.
    feature_names : tuple of str, or None
        All of their names, selected or not; None where the data has no names.
    classes : tuple of str or of numbers, or None
        Sorted; None for regression. With two classes there is one equation, which speaks for the second.
    targets : tuple of str, or None
        The names of the columns that hold the targets, or the classes; None where a single one has no name.
    equations : tuple of Equation
        One, or one a class where there are more than two, or one for each of several targets.
    data : Data
        What it was fitted to.
    structure : Structure
        What was asked for besides k.
    date : str
        When it was fitted, ISO 8601.
    shared : bool
        Whether several equations have their features, and one certificate, in common.
    encoding : Encoding, or None
        How the columns of a table become the features, where these are not the same.
    """

    loss: Loss
    k: float
    lam: float
    fit_intercept: bool
    standardize: bool
    dtype: str
    n_features: int
    feature_names: tuple[str, ...] | None
    classes: tuple[Label, ...] | None
    targets: tuple[str, ...] | None
    equations: tuple[Equation, ...]
    data: Data
    structure: Structure = Structure()
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    shared: bool = False
    encoding: Encoding | None = None

    @classmethod
    def of(cls, estimator: Any, table: Table | None = None) -> SavedModel:
        """Take a fitted estimator apart; `table` is what it was fitted to, if that was a table."""
        own = estimator._own_constraint
        if own is not None and own.stated() is None:
            raise ValueError(f"a model with {own} can be pickled, but not written to JSON or reported")
        loss, rows = estimator._fitted_loss(), _nonzero_rows(estimator.coef_)
        results: list[Result] = estimator.result_ if isinstance(estimator.result_, list) else [estimator.result_]
        classes = None
        if loss.task == "classification":
            classes = as_labels(estimator.classes_) if table is not None else tuple(_plain(estimator.classes_))
        encoding = estimator.encoder_.encoding_ if hasattr(estimator, "encoder_") else None
        names = getattr(estimator, "feature_names_in_", None) if table is None else table.feature_names
        names = names if encoding is None else encoding.names
        of_table = table is not None and loss.several == 1
        targets = table.target_names if of_table else _target_names(estimator, len(rows))  # type: ignore[union-attr]
        targets = None if targets is None else tuple(map(str, targets))
        figures = [Figures.of(result.certificate, result.status) for result in results]
        shared, d = len(results) < len(rows), int(estimator.coef_.shape[-1])
        parts = zip(
            equation_labels(classes, targets),
            rows,
            np.atleast_1d(estimator.intercept_).tolist(),
            figures * len(rows) if shared else figures,
            strict=True,
        )
        k = min(int(getattr(estimator, "best_k_", None) or estimator.k), d) if own is None else own.level(d)
        return cls(
            loss=loss,
            k=k,
            lam=estimator._lam,
            fit_intercept=bool(estimator.fit_intercept),
            standardize=bool(estimator.standardize),
            dtype=str(estimator.coef_.dtype),
            n_features=d,
            feature_names=None if names is None else tuple(map(str, names)),
            classes=classes,
            targets=targets,
            equations=tuple(Equation(label, *row, intercept, each) for label, row, intercept, each in parts),
            data=Data(None, estimator._n_samples, None, None) if table is None else Data.of(table),
            structure=Structure.of(estimator, d),
            shared=shared,
            encoding=encoding,
        )

    @property
    def task(self) -> str:
        """Either "regression" or "classification"."""
        return self.loss.task

    @property
    def certificates(self) -> tuple[Figures, ...]:
        """The figures of each equation, or those of all of them together."""
        return tuple(equation.figures for equation in (self.equations[:1] if self.shared else self.equations))

    @property
    def supports(self) -> tuple[Indices, ...]:
        """The features, ascending, that each certificate speaks of."""
        return (self.support,) if self.shared else tuple(equation.indices for equation in self.equations)

    @property
    def worst(self) -> Figures:
        """The certificate with the widest gap."""
        return max(self.certificates, key=lambda figures: figures.relative_gap)

    def effects(self, results: Sequence[Result]) -> list[NDArray[np.float64] | None]:
        """Return the coefficients of the standardised columns for each equation: what one standard deviation does.

        They can be compared with each other. There are none where columns were not standardised, or no result is known.
        """
        if not self.standardize or not results:
            return [None] * len(self.equations)
        rows = [w for result in results for w in np.atleast_2d(result.w)]
        return [w[equation.indices].astype(np.float64) for equation, w in zip(self.equations, rows, strict=True)]

    @property
    def has_probabilities(self) -> bool:
        """Whether the loss gives any."""
        return self.loss.has_probabilities

    @property
    def support(self) -> Indices:
        """Indices of the features that any equation uses, ascending."""
        return np.unique(np.concatenate([equation.indices for equation in self.equations]))

    def name(self, index: int) -> str:
        """Return the name of a feature, or its number where it has none."""
        return feature_name(index, self.feature_names, self.data.zero_based)

    @property
    def counts(self) -> tuple[int, int]:
        """How many features it uses, and of how many: columns of a table that was encoded, each once."""
        if self.encoding is None:
            return len(self.support), self.n_features
        return len(self.encoding.needed(self.support)), len(self.encoding.needed())

    @property
    def columns_in_words(self) -> str:
        """What to call the columns of X."""
        return "features" if self.encoding is None else "encoded columns"

    @property
    def counts_columns(self) -> bool:
        """Whether k counts the columns of the table that was encoded."""
        return self.encoding is not None and self.structure.groups == tuple(self.encoding.groups.tolist())

    @property
    def input_names(self) -> tuple[str, ...] | None:
        """The names of the columns of the table that it was fitted to, encoded or not."""
        return self.feature_names if self.encoding is None else tuple(column.name for column in self.encoding.columns)

    @property
    def needed(self) -> tuple[str, ...] | None:
        """The names of the columns that predictions need; None where columns have no names."""
        if self.encoding is not None:
            return tuple(column.name for column in self.encoding.needed(self.support))
        return None if self.feature_names is None else tuple(self.feature_names[j] for j in self.support)

    def decision(self, X: Any, columns: Indices | None = None) -> NDArray[Any]:
        """Return the equations' values, of shape (N, number of equations).

        A table needs no columns but the model's own, in any order; `columns` tells where the features stand in an array, if not in
        their own places.

        Raises
        ------
        ValueError
            Where a value is not finite.
        """
        if columns is not None:
            places = [columns[equation.indices] for equation in self.equations]
        elif (own := self._own_columns(X)) is not None:
            X, places = own, [np.searchsorted(self.support, equation.indices) for equation in self.equations]
        else:
            places = [equation.indices for equation in self.equations]
        values = np.column_stack([equation(X, at) for equation, at in zip(self.equations, places, strict=True)])
        rows = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(rows):
            more = f" and {len(rows) - 1:,} more" * (len(rows) > 1)
            raise ValueError(f"X contains NaN or infinity in features that the model uses: row {rows[0]}{more}")
        return values

    def _own_columns(self, X: Any) -> NDArray[Any] | None:
        """Return the columns of the features that any equation uses; None where X is an array that has all of them."""
        if self.encoding is not None:
            return self.encoding.encode(X, self.support)
        if not (is_frame(X) or isinstance(X, Mapping) or _are_records(X)):
            return None
        frame = Frame.of(X)
        if self.feature_names is None:
            return stacked_columns(frame, list(frame.names))[:, self.support]
        names = [self.feature_names[j] for j in self.support]
        lacking = [name for name in names if name not in frame.names]
        if lacking:
            raise ValueError(f"X has no column {', '.join(map(repr, lacking[:5]))}, which the model needs")
        return stacked_columns(frame, names)

    def predict(self, X: Any, columns: Indices | None = None) -> list[Any]:
        """Return one prediction a row: a number, a row of numbers where there are several targets, or one of the classes."""
        u = self.decision(X, columns)
        if self.classes is None:
            return list(self.loss.mean(u[:, 0] if u.shape[1] == 1 else u))
        winners = (u[:, 0] > 0).astype(np.int64) if u.shape[1] == 1 else u.argmax(axis=1)
        return [self.classes[c] for c in winners]

    def probabilities(self, X: Any, columns: Indices | None = None) -> NDArray[Any]:
        """Return each class's probability, of shape (N, number of classes), where the loss gives any."""
        if not self.has_probabilities or self.classes is None:
            known = " or ".join(losses_with_probabilities())
            raise ValueError(
                f"probabilities need a model with the {known} loss, this one has the {self.loss.name} loss"
            )
        log_p = self.loss.log_likelihoods(self.decision(X, columns))
        return np.asarray(np.exp(log_probabilities(log_p)))

    def reduced(self) -> SavedModel:
        """Return the same model of the columns that it uses: the others, and what is known of them, are forgotten."""
        used = self.support
        if self.encoding is not None:
            used = np.flatnonzero(np.isin(self.encoding.origin, self.encoding.origin[used]))
        used = used if len(used) else np.arange(1)
        place = {j: i for i, j in enumerate(used.tolist())}
        encoding = None if self.encoding is None else Encoding(self.encoding.needed(used))
        figures = [equation.figures.within(place) for equation in self.equations]
        equations = tuple(
            replace(equation, indices=np.searchsorted(used, equation.indices), figures=figures[0 if self.shared else i])
            for i, equation in enumerate(self.equations)
        )
        return replace(
            self,
            k=self.k if self.structure.rule is not None else min(self.k, len(used)),
            n_features=len(used),
            feature_names=None if self.feature_names is None else tuple(self.feature_names[j] for j in used),
            equations=equations,
            structure=self.structure.within(place),
            encoding=encoding,
        )


def _are_records(X: Any) -> bool:
    return isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], Mapping)


def stacked_columns(frame: Frame, names: Sequence[str]) -> NDArray[np.float64]:
    """Return columns of numbers side by side; raise where one has none, or misses some."""
    counts = {name: count for name in names if (count := count_missing(frame[name]))}
    if counts:
        raise ValueError(missing_in_words(counts, len(frame)))
    columns = [as_numbers(frame[name]) for name in names]
    for name, column in zip(names, columns, strict=True):
        if column is None:
            raise ValueError(f"column {name!r} of X must hold numbers, as in fit")
    return np.column_stack(columns) if columns else np.empty((len(frame), 0))  # type: ignore[arg-type]


def _nonzero_rows(coef: Any) -> list[tuple[Indices, NDArray[Any]]]:
    """Return the nonzero coefficients of each row, dense or sparse, and where they stand."""
    import scipy.sparse as sp

    rows = sp.csr_array(np.atleast_2d(coef)) if isinstance(coef, np.ndarray) else sp.csr_array(coef)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    cuts = rows.indptr[1:-1]
    return list(zip(np.split(rows.indices.astype(np.int64), cuts), np.split(rows.data, cuts), strict=True))


def _target_names(estimator: Any, n_equations: int) -> Sequence[str] | None:
    """Return the names of several targets, y0, y1, ... where they have none."""
    if estimator._task == "classification" or n_equations == 1:
        return None
    return getattr(estimator, "target_names_in_", [f"y{j}" for j in range(n_equations)])


def _plain(labels: Iterable[Any]) -> list[Any]:
    return [label.item() if isinstance(label, np.generic) else label for label in labels]


def as_labels(classes: Iterable[Any]) -> tuple[Label, ...]:
    """Return the classes of a file as JSON knows them: texts, whole numbers, other numbers."""
    return tuple(int(label) if isinstance(label, float) and label.is_integer() else label for label in _plain(classes))


def feature_name(index: int, names: Sequence[str] | None, zero_based: bool | None = None) -> str:
    """Return the name of a feature; without names, its number as the file counts (svmlight mostly from 1)."""
    return names[index] if names is not None else f"feature {index + (zero_based is False)}"


def equation_labels(classes: Sequence[Label] | None, targets: Sequence[str] | None) -> Sequence[Label | None]:
    """Return what each equation speaks for: a class of more than two, the second of two, one of several targets."""
    if classes is None:
        return targets if targets is not None and len(targets) > 1 else [None]
    return classes if len(classes) > 2 else classes[1:]

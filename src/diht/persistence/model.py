"""Models on disk: `model.json` written and read back without running code."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from math import inf, isfinite, isinf
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import logsumexp

from diht import __version__
from diht.constraints.base import Constraint
from diht.constraints.groups import (
    _signs,
    bounds_of,
    constrained,
    features_given,
    indices_of,
    n_choices,
    signs_of,
    units_of_labels,
)
from diht.constraints.limits import Limits, limits_of
from diht.datasets import atomic_write
from diht.design import Design
from diht.losses import ALL_LOSSES, Loss, losses_with_probabilities
from diht.persistence.document import MAX_WHOLE, Node, parse, parse_text
from diht.result import NormBound, Status, relative

if TYPE_CHECKING:
    from diht.datasets import Table
    from diht.result import Certificate, Result

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
    "read_model",
    "to_json",
    "write_model",
]

FORMAT, FORMAT_VERSION = "diht-model", 3

_DTYPES = ("float32", "float64")

Label: TypeAlias = str | int | float
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Figures:
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
        return NormBound.proved(factor, self.objective, self.lower_bound, self.norm, self.larger_ridges)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take back what was stored; a format that knows texts only has kept the status as one."""
        self.__dict__.update(state | {"status": Status(state["status"])})

    @property
    def gap(self) -> float:
        """The objective less the lower bound, never negative."""
        return max(self.objective - self.lower_bound, 0.0)

    @property
    def relative_gap(self) -> float:
        """The gap divided by the objective."""
        return relative(self.gap, self.objective)


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

    def __call__(self, X: Any, columns: Indices | None = None) -> NDArray[Any]:
        """Return X w + b; `columns` tells where the features stand in X, if not in their own places."""
        places = self.indices if columns is None else columns[self.indices]
        if isinstance(X, Design):
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
    """

    keep: tuple[int, ...] = ()
    groups: tuple[int, ...] | None = None
    sign: tuple[int, ...] | tuple[tuple[int, ...], ...] | None = None
    limits: tuple[tuple[Any, ...], tuple[Any, ...]] | None = None

    @classmethod
    def of(cls, estimator: Any, n_features: int) -> Structure:
        """Take what an estimator was given, if it takes such things."""
        names = getattr(estimator, "feature_names_in_", None)
        keep, groups, sign, bounds = (getattr(estimator, name, None) for name in ("keep", "groups", "sign", "bounds"))
        if keep is None and groups is None and sign is None and bounds is None:
            return cls()
        kept = features_given("keep", indices_of("keep", keep, names), n_features)
        units = units_of_labels(groups, n_features)
        signs = _signs(signs_of(sign, names, n_features), n_features)
        return cls(
            tuple(np.flatnonzero(np.isin(units, units[kept])).tolist()),
            None if groups is None else tuple(units.tolist()),
            None if signs is None else _as_tuples(signs.reshape(-1, n_features)),
            cls._limits(limits_of(bounds_of(bounds, names, n_features), None, n_features), n_features),
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

    def constraint(self, k: int, n_features: int) -> Constraint:
        """Return the constraint on a model; a larger k than there are choices is all of them."""
        choices = n_choices(n_features, self.keep, self.groups)
        return constrained(min(k, choices), n_features, self.keep, self.groups, self.sign, self.bounds)

    def counted(self, indices: Sequence[int]) -> int:
        """Return how many of some features, or of their groups, count."""
        kept = set(self.keep)
        free = [j for j in indices if j not in kept]
        return len(free) if self.groups is None else len({self.groups[j] for j in free})

    def moved(self, columns: Indices) -> Structure:
        """Return the same for features that stand in other places, as many as before."""
        places = np.argsort(columns)

        def each(values: Any) -> Any:
            return None if values is None else _as_tuples(np.asarray(values)[..., places])

        kept = np.sort(columns[np.array(self.keep, dtype=np.int64)])
        limits = None if self.limits is None else (each(self.limits[0]), each(self.limits[1]))
        return Structure(tuple(kept.tolist()), each(self.groups), each(self.sign), limits)

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
        The problem that was posed.
    dtype : str
        "float32" or "float64": the type of the coefficients.
    n_features : int
        The number of columns of the data.
    feature_names : tuple of str, or None
        All of them, selected or not; None where the data has no names.
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
    """

    loss: Loss
    k: int
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

    @classmethod
    def of(cls, estimator: Any, table: Table | None = None) -> SavedModel:
        """Take a fitted estimator apart; `table` is what it was fitted to, if that was a table."""
        if isinstance(estimator.k, Constraint):
            raise ValueError(f"a model with {estimator.k} can be pickled, but not written to JSON or reported")
        loss, rows = estimator._fitted_loss(), _nonzero_rows(estimator.coef_)
        results: list[Result] = estimator.result_ if isinstance(estimator.result_, list) else [estimator.result_]
        classes = None
        if loss.task == "classification":
            classes = as_labels(estimator.classes_) if table is not None else tuple(_plain(estimator.classes_))
        names = getattr(estimator, "feature_names_in_", None) if table is None else table.feature_names
        targets = _target_names(estimator, len(rows)) if table is None else table.target_names
        targets = None if targets is None else tuple(map(str, targets))
        figures = [Figures.of(result.certificate, result.status) for result in results]
        shared, d = len(results) < len(rows), estimator.n_features_in_
        parts = zip(
            equation_labels(classes, targets),
            rows,
            np.atleast_1d(estimator.intercept_).tolist(),
            figures * len(rows) if shared else figures,
            strict=True,
        )
        return cls(
            loss=loss,
            k=min(int(getattr(estimator, "best_k_", None) or estimator.k), d),
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

    def decision(self, X: Any, columns: Indices | None = None) -> NDArray[Any]:
        """Return the equations' values, of shape (N, number of equations)."""
        return np.column_stack([equation(X, columns) for equation in self.equations])

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
        return np.asarray(np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True)))


def _nonzero_rows(coef: Any) -> list[tuple[Indices, NDArray[Any]]]:
    """Return the nonzero coefficients of each row, dense or sparse, and where they stand."""
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


# ----------------------------------------------------------------------------------------------------- writing


def to_json(model: SavedModel) -> str:
    """Return the text of `model.json`."""
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "diht_version": __version__,
        "date": model.date,
        "task": model.task,
        "loss": {"name": model.loss.name, **_parameters(model.loss)},
        "k": model.k,
        "lam": model.lam,
        "fit_intercept": model.fit_intercept,
        "standardize": model.standardize,
        "dtype": model.dtype,
        "n_features": model.n_features,
        "classes": None if model.classes is None else list(model.classes),
        "targets": None if model.targets is None else list(model.targets),
        "structure": asdict(model.structure),
        "encoders": None,
        "equations": [
            _equation_entry(model, equation, 0 if model.shared else i) for i, equation in enumerate(model.equations)
        ],
        "certificates": [_certificate_entry(model, figures) for figures in model.certificates],
        "data": asdict(model.data),
        "feature_names": None if model.feature_names is None else list(model.feature_names),
    }
    content["checksum"] = _checksum(content)
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _equation_entry(model: SavedModel, equation: Equation, certificate: int) -> dict[str, Any]:
    rows = zip(equation.indices.tolist(), equation.values.tolist(), strict=True)
    return {
        "class": None if model.classes is None else equation.label,
        "target": equation.label if model.classes is None else None,
        "certificate": certificate,
        "intercept": equation.intercept,
        "coefficients": [{"index": j, "name": model.name(j), "value": value} for j, value in rows],
    }


def _certificate_entry(model: SavedModel, figures: Figures) -> dict[str, Any]:
    rows = zip(figures.required, figures.drop_cost, strict=True)
    return {
        "objective": figures.objective,
        "lower_bound": figures.lower_bound,
        "gap": figures.gap,
        "relative_gap": figures.relative_gap,
        "scaled": figures.scaled,
        "status": str(figures.status),
        "required": [
            {"index": j, "name": model.name(j), "drop_cost": None if isinf(cost) else cost} for j, cost in rows
        ],
        "excluded": figures.excluded,
        "given": _given_entry(figures),
    }


def _given_entry(figures: Figures) -> dict[str, Any] | None:
    """What is proved of models of bounded norm, if anything is."""
    if not figures.larger_ridges or isinf(figures.norm):
        return None
    ridges = [{"more": e, "lower_bound": B} for e, B in figures.larger_ridges]
    return {"norm": figures.norm, "larger_ridges": ridges}


def _parameters(loss: Loss) -> dict[str, Any]:
    """Return the settings of a built-in loss, such as gamma and delta."""
    if ALL_LOSSES.get(loss.name) is not type(loss):
        raise ValueError(f"loss must be one of {list(ALL_LOSSES)} to be saved, got {loss!r}")
    return dict(vars(loss))


def _checksum(content: dict[str, Any]) -> str:
    """Digest of everything else in the file, whatever its layout."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


# ----------------------------------------------------------------------------------------------------- reading


_KEYS = (
    "format",
    "format_version",
    "diht_version",
    "date",
    "task",
    "loss",
    "k",
    "lam",
    "fit_intercept",
    "standardize",
    "dtype",
    "n_features",
    "classes",
    "targets",
    "structure",
    "encoders",
    "equations",
    "certificates",
    "data",
    "feature_names",
)


def read_model(path: str) -> SavedModel:
    """Read a `model.json`; ValueError, one line that names the file and the place, for any damage.

    The file carries a checksum, so that a changed digit is noticed too. To edit a model by hand, delete that entry.
    """
    return _checked(Node(parse(path), "", path))


def write_model(model: SavedModel, path: str) -> None:
    """Write a `model.json`, if it can be read back: ValueError, one line that says why, if not."""
    text = to_json(model)
    _checked(Node(parse_text(text, path), "", path))
    with atomic_write(path) as file:
        file.write(text.encode())


def _checked(root: Node) -> SavedModel:
    _check_format(root)
    top = root.entries(*_KEYS, optional=["checksum"])
    if "checksum" in top:
        content = {key: value for key, value in root.value.items() if key != "checksum"}
        if top["checksum"].text() != _checksum(content):
            raise root.fail(
                "damaged: the content does not match its checksum (delete the checksum after editing by hand)"
            )
    loss = _loss(top["loss"])
    top["task"].one_of([loss.task])
    top["diht_version"].text()
    n_features = top["n_features"].whole(1, MAX_WHOLE)
    lam = top["lam"].number()
    if lam <= 0:
        raise top["lam"].wrong("a positive number")
    top["encoders"].null()
    classes = _classes(top["classes"], loss)
    targets = top["targets"].optional(lambda node: _targets(node, classes))
    labels = equation_labels(classes, targets)
    shared = len(labels) > 1 and len(top["certificates"].items()) == 1
    model = SavedModel(
        loss=loss,
        k=top["k"].whole(1, n_features),
        lam=lam,
        fit_intercept=top["fit_intercept"].flag(),
        standardize=top["standardize"].flag(),
        dtype=top["dtype"].one_of(_DTYPES),
        n_features=n_features,
        feature_names=top["feature_names"].optional(lambda node: _names(node, n_features)),
        classes=classes,
        targets=targets,
        equations=(),
        data=_data(top["data"]),
        structure=_structure(top["structure"], n_features, len(labels) if shared else 1),
        date=_date(top["date"]),
        shared=shared,
    )
    figures = _certificates(top["certificates"], model, len(labels))
    equations = _equations(top["equations"], labels, figures * len(labels) if model.shared else figures, model)
    object.__setattr__(model, "equations", equations)
    if model.shared:
        _check_size(top["equations"], model.support.tolist(), model)
    return model


def _check_format(root: Node) -> None:
    if not isinstance(root.value, dict) or root.value.get("format") != FORMAT:
        raise root.fail(f"not a model file of diht: no entry 'format' with the value {FORMAT!r}")
    version = root.value.get("format_version")
    if isinstance(version, bool) or version != FORMAT_VERSION:
        wrote = root.value.get("diht_version")
        raise root.fail(
            f"model format version {version!r} (written by diht {str(wrote)[:20]}); "
            f"diht {__version__} reads version {FORMAT_VERSION}"
        )


def _loss(node: Node) -> Loss:
    if not isinstance(node.value, dict):
        raise node.wrong("an object")
    name = Node(node.value.get("name"), f"{node.where}.name", node.path).one_of(ALL_LOSSES)
    standard: Any = ALL_LOSSES[name]()
    entries = node.entries("name", *vars(standard))
    try:
        loss: Loss = ALL_LOSSES[name](**{key: entries[key].number() for key in vars(standard)})
    except ValueError as error:
        raise error if str(error).startswith(node.path) else node.fail(str(error)) from None
    return loss


def _names(node: Node, n_features: int) -> tuple[str, ...]:
    names = tuple(item.text() for item in node.items())
    if len(names) != n_features:
        raise node.fail(f"{len(names)} names for {n_features} features")
    if len(set(names)) < len(names):
        raise node.fail("a name comes twice")
    return names


def _classes(node: Node, loss: Loss) -> tuple[Label, ...] | None:
    if loss.task == "regression":
        if node.value is not None:
            raise node.wrong("null for a regression loss")
        return None
    classes = tuple(item.value for item in node.items())
    least = 3 if loss.coupled else 2  # two classes differ by a logistic model
    if len(classes) < least:
        raise node.wrong(f"at least {('two', 'three')[least - 2]} classes")
    if not any(all(isinstance(label, kind) for label in classes) for kind in (str, bool)):
        for item in node.items():
            item.number()
    if list(classes) != sorted(set(classes)):
        raise node.fail("classes must be ascending and distinct")
    return classes


def _data(node: Node) -> Data:
    entries = node.entries("file", "n_samples", "sparse", "zero_based")
    return Data(
        file=entries["file"].optional(Node.text),
        n_samples=entries["n_samples"].whole(1, MAX_WHOLE),
        sparse=entries["sparse"].optional(Node.flag),
        zero_based=entries["zero_based"].optional(Node.flag),
    )


def _structure(node: Node, n_features: int, n_rows: int) -> Structure:
    entries = node.entries("keep", "groups", "sign", "limits")
    keep = tuple(item.whole(0, n_features - 1) for item in entries["keep"].items())
    if any(j <= i for i, j in pairwise(keep)):
        raise entries["keep"].fail("features must be ascending and distinct")
    groups = entries["groups"].optional(lambda node: _each(node, 0, n_features - 1, n_features))
    if groups is not None:
        kept = {groups[j] for j in keep}
        if keep != tuple(j for j, group in enumerate(groups) if group in kept):
            raise entries["keep"].fail("a group is kept in part")
    sign = entries["sign"].optional(lambda node: _sign(node, n_features, n_rows))
    return Structure(keep, groups, sign, entries["limits"].optional(lambda node: _limits(node, n_features, n_rows)))


def _each(node: Node, low: int, high: int, n_features: int) -> tuple[int, ...]:
    values = tuple(item.whole(low, high) for item in node.items())
    if len(values) != n_features:
        raise node.fail(f"{len(values)} numbers for {n_features} features")
    return values


def _sign(node: Node, n_features: int, n_rows: int) -> tuple[Any, ...]:
    """Read one sign for each feature, or a row of them for each of several equations that share features."""
    rows = node.items()
    if n_rows == 1 or not rows or not isinstance(rows[0].value, list):
        return _each(node, -1, 1, n_features)
    if len(rows) != n_rows:
        raise node.fail(f"{len(rows)} rows of signs, where there are {n_rows} equations")
    return tuple(_each(row, -1, 1, n_features) for row in rows)


def _limits(node: Node, n_features: int, n_rows: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Read the lower and the upper limits, each as the signs are."""
    sides = node.items()
    if len(sides) != 2:
        raise node.fail(f"{len(sides)} lists of limits, where there are lower and upper ones")
    lower, upper = (_side(side, low, n_features, n_rows) for side, low in zip(sides, (True, False), strict=True))
    return lower, upper


def _side(node: Node, low: bool, n_features: int, n_rows: int) -> tuple[Any, ...]:
    rows = node.items()
    if n_rows > 1 and rows and isinstance(rows[0].value, list):
        if len(rows) != n_rows:
            raise node.fail(f"{len(rows)} rows of limits, where there are {n_rows} equations")
        return tuple(_side(row, low, n_features, 1) for row in rows)
    if len(rows) != n_features:
        raise node.fail(f"{len(rows)} limits for {n_features} features")
    values = tuple(item.optional(Node.number) for item in rows)
    for item, value in zip(rows, values, strict=True):
        if value is not None and (value > 0.0 if low else value < 0.0):
            raise item.wrong(f"a number that is not {'positive' if low else 'negative'}")
    return values


def _date(node: Node) -> str:
    try:
        datetime.fromisoformat(node.text())
    except ValueError:
        raise node.wrong("a date") from None
    return node.text()


def _targets(node: Node, classes: tuple[Label, ...] | None) -> tuple[str, ...]:
    names = tuple(item.text() for item in node.items())
    if not names or (len(names) > 1 and classes is not None):
        raise node.fail(f"{len(names)} targets, where there is {'one' if classes else 'at least one'}")
    if len(set(names)) < len(names):
        raise node.fail("a name comes twice")
    return names


def equation_labels(classes: Sequence[Label] | None, targets: Sequence[str] | None) -> Sequence[Label | None]:
    """Return what each equation speaks for: a class of more than two, the second of two, one of several targets."""
    if classes is None:
        return targets if targets is not None and len(targets) > 1 else [None]
    return classes if len(classes) > 2 else classes[1:]


def _certificates(node: Node, model: SavedModel, n_equations: int) -> tuple[Figures, ...]:
    """Read one certificate for each equation, or one for all of them, as the loss has it."""
    items = node.items()
    shares = model.classes is None or model.loss.of_classes() == model.loss
    allowed = {1} if model.classes is None or model.loss.coupled else {1, n_equations} if shares else {n_equations}
    if len(items) not in allowed:
        counts = " or ".join(map(str, sorted(allowed)))
        raise node.fail(f"{len(items)} certificates, where {counts} are expected for the {model.loss.name} loss")
    return tuple(_figures(item, model) for item in items)


def _equations(
    node: Node, labels: Sequence[Label | None], figures: Sequence[Figures], model: SavedModel
) -> tuple[Equation, ...]:
    items = node.items()
    if len(items) != len(labels):
        raise node.fail(f"{len(items)} equations, where {len(labels)} are expected")
    return tuple(_equation(item, i, labels[i], figures[i], model) for i, item in enumerate(items))


def _equation(node: Node, place: int, label: Label | None, figures: Figures, model: SavedModel) -> Equation:
    entries = node.entries("class", "target", "certificate", "intercept", "coefficients")
    said, other = ("target", "class") if model.classes is None else ("class", "target")
    if entries[said].value != label or type(entries[said].value) is not type(label):
        raise entries[said].wrong("null" if label is None else repr(label))
    entries[other].null()
    if entries["certificate"].whole(0, MAX_WHOLE) != (0 if model.shared else place):
        raise entries["certificate"].wrong(f"{0 if model.shared else place}, the number of its certificate")
    rows = [_coefficient(item, place, model) for item in entries["coefficients"].items()]
    indices = [j for j, _ in rows]
    if any(j <= i for i, j in pairwise(indices)):
        raise entries["coefficients"].fail("indices must be ascending and distinct")
    _check_size(entries["coefficients"], indices, model)
    intercept = entries["intercept"].number(model.dtype)
    if intercept != 0 and not model.fit_intercept:
        raise entries["intercept"].wrong("0 for a model without an intercept")
    return Equation(
        label=label,
        indices=np.array(indices, dtype=np.int64),
        values=np.array([value for _, value in rows], dtype=model.dtype),
        intercept=intercept,
        figures=figures,
    )


def _check_size(node: Node, features: Sequence[int], model: SavedModel) -> None:
    """Raise unless so many features, or their groups, are allowed."""
    if (count := model.structure.counted(features)) > model.k:
        what = "features" if model.structure.groups is None else "groups"
        raise node.fail(f"{count} {what}, where k = {model.k} are allowed")


def _coefficient(node: Node, equation: int, model: SavedModel) -> tuple[int, float]:
    entries = node.entries("index", "name", "value")
    index = _index(entries, model)
    value = entries["value"].number(model.dtype)
    if value == 0:
        raise entries["value"].wrong("a number other than zero")
    if not model.structure.allows_sign(equation, index, value):
        raise entries["value"].wrong("a number of the sign that is allowed")
    if not model.structure.allows(equation, index, value):
        raise entries["value"].wrong("a number within the limits that are allowed")
    return index, value


def _index(entries: Mapping[str, Node], model: SavedModel) -> int:
    """Read the number of a feature, whose name stands beside it."""
    index = entries["index"].whole(0, model.n_features - 1)
    entries["name"].one_of([model.name(index)])
    return index


def _figures(node: Node, model: SavedModel) -> Figures:
    entries = node.entries(
        "objective", "lower_bound", "gap", "relative_gap", "scaled", "status", "required", "excluded", "given"
    )
    norm, ridges = entries["given"].optional(_given) or (inf, ())
    kept = set(model.structure.keep)
    rows = [_required(item, model, kept) for item in entries["required"].items()]
    if any(j <= i for (i, _), (j, _) in pairwise(rows)):
        raise entries["required"].fail("indices must be ascending and distinct")
    figures = Figures(
        objective=entries["objective"].number(),
        lower_bound=entries["lower_bound"].number(),
        scaled=entries["scaled"].flag(),
        status=Status(entries["status"].one_of(map(str, Status))),
        excluded=entries["excluded"].whole(0, model.n_features),
        required=tuple(j for j, _ in rows),
        drop_cost=tuple(cost for _, cost in rows),
        norm=norm,
        larger_ridges=ridges,
    )
    for name in ("gap", "relative_gap"):
        if entries[name].number() != getattr(figures, name):
            raise entries[name].wrong(f"{getattr(figures, name)!r}, which follows from objective and lower_bound")
    return figures


def _given(node: Node) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Read the norm of the coefficients, and by how much larger ridges are with what is proved for them."""
    entries = node.entries("norm", "larger_ridges")
    pairs = [item.entries("more", "lower_bound") for item in entries["larger_ridges"].items()]
    for number in (entries["norm"], *(pair["more"] for pair in pairs)):
        if number.number() < 0.0:
            raise number.wrong("a number that is not negative")
    return entries["norm"].number(), tuple((pair["more"].number(), pair["lower_bound"].number()) for pair in pairs)


def _required(node: Node, model: SavedModel, kept: Container[int]) -> tuple[int, float]:
    """Read a feature that is proved to be in every optimal model, and its drop cost: null for one to keep."""
    entries = node.entries("index", "name", "drop_cost")
    index = _index(entries, model)
    if entries["drop_cost"].value is None and index in kept:
        return index, np.inf
    cost = entries["drop_cost"].number()
    if cost <= 0:
        raise entries["drop_cost"].wrong("a positive number")
    return index, cost

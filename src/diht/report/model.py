"""Models on disk: `model.json` written and read back without running code."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_expit, logsumexp

from diht import __version__
from diht.losses import LOSSES, Loss, as_loss
from diht.report.document import MAX_WHOLE, Node, parse
from diht.result import Status, relative

if TYPE_CHECKING:
    from diht.datasets import Table
    from diht.result import Result

__all__ = [
    "Data",
    "Equation",
    "Figures",
    "Label",
    "SavedModel",
    "as_labels",
    "equation_labels",
    "feature_name",
    "read_model",
    "to_json",
]

FORMAT, FORMAT_VERSION = "diht-model", 2

_DTYPES = ("float32", "float64")

Label: TypeAlias = str | int | float
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Figures:
    """The certificate of one equation, without its proof: what was attained and what was proved."""

    objective: float
    lower_bound: float
    scaled: bool
    status: Status
    excluded: int = 0  # how many features are proved to be in no optimal model

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
        The class that a large value speaks for; None for regression.
    indices, values : arrays
        The nonzero coefficients, indices ascending.
    intercept : float
        The constant b.
    figures : Figures
        How good it is.
    drop_cost : array
        For each of these features, by how much more every model without it costs at least; zero where nothing is proved.
    """

    label: Label | None
    indices: Indices
    values: NDArray[Any]
    intercept: float
    figures: Figures
    drop_cost: NDArray[np.float64] = field(default=None)  # type: ignore[arg-type]  # by default zeros

    def __post_init__(self) -> None:
        if self.drop_cost is None:
            object.__setattr__(self, "drop_cost", np.zeros(len(self.indices)))

    @property
    def required(self) -> Indices:
        """Indices of the features that are proved to be in every optimal model."""
        return self.indices[self.drop_cost > 0]

    @classmethod
    def of(cls, label: Label | None, w: NDArray[Any], intercept: float, result: Result) -> Equation:
        """Keep the nonzero coefficients of w and the figures of the solve that found it."""
        support = np.flatnonzero(w)
        certificate = result.certificate
        figures = Figures(
            objective=certificate.objective,
            lower_bound=certificate.lower_bound,
            scaled=certificate.scaled,
            status=result.status,
            excluded=len(certificate.excluded),
        )
        return cls(label, support, w[support], float(intercept), figures, certificate.drop_cost[support])

    def __call__(self, X: Any, columns: Indices | None = None) -> NDArray[Any]:
        """Return X w + b; `columns` tells where the features stand in X, if not in their own places."""
        X = X[:, self.indices if columns is None else columns[self.indices]]
        u = np.asarray(X @ self.values.astype(np.result_type(X.dtype, self.values.dtype)))
        return np.asarray(u + u.dtype.type(self.intercept))


@dataclass(frozen=True)
class Data:
    """What the model was fitted to; the file's name without its directory."""

    file: str | None
    n_samples: int
    sparse: bool
    target: str | None
    zero_based: bool | None

    @classmethod
    def of(cls, table: Table) -> Data:
        """Describe a table."""
        file = os.path.basename(table.path) or None
        return cls(file, int(table.X.shape[0]), table.is_sparse, table.target_name, table.zero_based)


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
    equations : tuple of Equation
        One, or one a class where there are more than two.
    data : Data
        What it was fitted to.
    date : str
        When it was fitted, ISO 8601.
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
    equations: tuple[Equation, ...]
    data: Data
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @classmethod
    def of(cls, estimator: Any, table: Table) -> SavedModel:
        """Take a fitted estimator apart; `table` is what it was fitted to."""
        loss, coef = as_loss(estimator.loss), np.atleast_2d(estimator.coef_)
        results = estimator.result_ if isinstance(estimator.result_, list) else [estimator.result_]
        classes = as_labels(estimator.classes_) if loss.task == "classification" else None
        intercepts = np.atleast_1d(estimator.intercept_).tolist()
        equations = [
            Equation.of(label, w, intercept, result)
            for label, w, intercept, result in zip(equation_labels(classes), coef, intercepts, results, strict=True)
        ]
        return cls(
            loss=loss,
            k=int(estimator.k),
            lam=float(estimator.lam),
            fit_intercept=bool(estimator.fit_intercept),
            standardize=bool(estimator.standardize),
            dtype=str(coef.dtype),
            n_features=coef.shape[1],
            feature_names=None if table.feature_names is None else tuple(table.feature_names),
            classes=classes,
            equations=tuple(equations),
            data=Data.of(table),
        )

    @property
    def task(self) -> str:
        """Either "regression" or "classification"."""
        return self.loss.task

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
        """Return one prediction a row: a number, or one of the classes."""
        u = self.decision(X, columns)
        if self.classes is None:
            return list(u[:, 0])
        winners = (u[:, 0] > 0).astype(np.int64) if u.shape[1] == 1 else u.argmax(axis=1)
        return [self.classes[c] for c in winners]

    def probabilities(self, X: Any, columns: Indices | None = None) -> NDArray[Any]:
        """Return each class's probability, of shape (N, number of classes); only the logistic loss gives any."""
        if self.loss.name != "logistic" or self.classes is None:
            raise ValueError(
                f"probabilities need a model with the logistic loss, this one has the {self.loss.name} loss"
            )
        u = self.decision(X, columns)
        if u.shape[1] == 1:
            u = np.column_stack([-u[:, 0], u[:, 0]])
        log_p = log_expit(u)
        return np.asarray(np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True)))


def as_labels(classes: Iterable[Any]) -> tuple[Label, ...]:
    """Return classes as JSON knows them: texts, whole numbers, other numbers."""
    plain = (label.item() if isinstance(label, np.generic) else label for label in classes)
    return tuple(int(label) if isinstance(label, float) and label.is_integer() else label for label in plain)


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
        "equations": [_equation_entry(model, equation) for equation in model.equations],
        "data": asdict(model.data),
        "feature_names": None if model.feature_names is None else list(model.feature_names),
    }
    content["checksum"] = _checksum(content)
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _equation_entry(model: SavedModel, equation: Equation) -> dict[str, Any]:
    figures = equation.figures
    rows = zip(equation.indices.tolist(), equation.values.tolist(), equation.drop_cost.tolist(), strict=True)
    return {
        "class": equation.label,
        "intercept": equation.intercept,
        "coefficients": [
            {"index": j, "name": model.name(j), "value": value, "drop_cost": cost} for j, value, cost in rows
        ],
        "certificate": {
            "objective": figures.objective,
            "lower_bound": figures.lower_bound,
            "gap": figures.gap,
            "relative_gap": figures.relative_gap,
            "scaled": figures.scaled,
            "status": str(figures.status),
            "required": equation.required.tolist(),
            "excluded": figures.excluded,
        },
    }


def _parameters(loss: Loss) -> dict[str, Any]:
    """Return the settings of a built-in loss, such as gamma and delta."""
    if LOSSES.get(loss.name) is not type(loss):
        raise ValueError(f"loss must be one of {list(LOSSES)} to be saved, got {loss!r}")
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
    "equations",
    "data",
    "feature_names",
)


def read_model(path: str) -> SavedModel:
    """Read a `model.json`; ValueError, one line that names the file and the place, for any damage.

    The file carries a checksum, so that a changed digit is noticed too. To edit a model by hand, delete that entry.
    """
    root = Node(parse(path), "", path)
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
    model = SavedModel(
        loss=loss,
        k=top["k"].whole(1, n_features),
        lam=lam,
        fit_intercept=top["fit_intercept"].flag(),
        standardize=top["standardize"].flag(),
        dtype=top["dtype"].one_of(_DTYPES),
        n_features=n_features,
        feature_names=top["feature_names"].optional(lambda node: _names(node, n_features)),
        classes=_classes(top["classes"], loss),
        equations=(),
        data=_data(top["data"]),
        date=_date(top["date"]),
    )
    object.__setattr__(model, "equations", _equations(top["equations"], model))
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
    name = Node(node.value.get("name"), f"{node.where}.name", node.path).one_of(LOSSES)
    standard: Any = LOSSES[name]()
    entries = node.entries("name", *vars(standard))
    try:
        loss: Loss = LOSSES[name](**{key: entries[key].number() for key in vars(standard)})
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
    if len(classes) < 2:
        raise node.wrong("at least two classes")
    if not all(isinstance(label, str) for label in classes):
        for item in node.items():
            item.number()
    if list(classes) != sorted(set(classes)):
        raise node.fail("classes must be ascending and distinct")
    return classes


def _data(node: Node) -> Data:
    entries = node.entries("file", "n_samples", "sparse", "target", "zero_based")
    return Data(
        file=entries["file"].optional(Node.text),
        n_samples=entries["n_samples"].whole(1, MAX_WHOLE),
        sparse=entries["sparse"].flag(),
        target=entries["target"].optional(Node.text),
        zero_based=entries["zero_based"].optional(Node.flag),
    )


def _date(node: Node) -> str:
    try:
        datetime.fromisoformat(node.text())
    except ValueError:
        raise node.wrong("a date") from None
    return node.text()


def _equations(node: Node, model: SavedModel) -> tuple[Equation, ...]:
    labels = equation_labels(model.classes)
    items = node.items()
    if len(items) != len(labels):
        raise node.fail(f"{len(items)} equations, where {len(labels)} are expected")
    return tuple(_equation(item, label, model) for item, label in zip(items, labels, strict=True))


def equation_labels(classes: Sequence[Label] | None) -> Sequence[Label | None]:
    """Return the class that each equation speaks for."""
    if classes is None:
        return [None]
    return classes if len(classes) > 2 else classes[1:]


def _equation(node: Node, label: Label | None, model: SavedModel) -> Equation:
    entries = node.entries("class", "intercept", "coefficients", "certificate")
    if entries["class"].value != label or type(entries["class"].value) is not type(label):
        raise entries["class"].wrong(repr(label))
    coefficients = entries["coefficients"].items()
    if len(coefficients) > model.k:
        raise entries["coefficients"].fail(f"{len(coefficients)} coefficients, where k = {model.k} are allowed")
    rows = [_coefficient(item, model) for item in coefficients]
    indices = [j for j, _, _ in rows]
    if any(j <= i for i, j in pairwise(indices)):
        raise entries["coefficients"].fail("indices must be ascending and distinct")
    intercept = entries["intercept"].number(model.dtype)
    if intercept != 0 and not model.fit_intercept:
        raise entries["intercept"].wrong("0 for a model without an intercept")
    return Equation(
        label=label,
        indices=np.array(indices, dtype=np.int64),
        values=np.array([value for _, value, _ in rows], dtype=model.dtype),
        intercept=intercept,
        figures=_figures(entries["certificate"], [j for j, _, cost in rows if cost > 0], model),
        drop_cost=np.array([cost for _, _, cost in rows], dtype=np.float64),
    )


def _coefficient(node: Node, model: SavedModel) -> tuple[int, float, float]:
    entries = node.entries("index", "name", "value", "drop_cost")
    index = entries["index"].whole(0, model.n_features - 1)
    entries["name"].one_of([model.name(index)])
    value = entries["value"].number(model.dtype)
    if value == 0:
        raise entries["value"].wrong("a number other than zero")
    cost = entries["drop_cost"].number()
    if cost < 0:
        raise entries["drop_cost"].wrong("a number, zero or more")
    return index, value, cost


def _figures(node: Node, required: list[int], model: SavedModel) -> Figures:
    entries = node.entries(
        "objective", "lower_bound", "gap", "relative_gap", "scaled", "status", "required", "excluded"
    )
    figures = Figures(
        objective=entries["objective"].number(),
        lower_bound=entries["lower_bound"].number(),
        scaled=entries["scaled"].flag(),
        status=Status(entries["status"].one_of(map(str, Status))),
        excluded=entries["excluded"].whole(0, model.n_features),
    )
    if [item.whole(0, model.n_features - 1) for item in entries["required"].items()] != required:
        raise entries["required"].wrong(f"{required}, the features with a positive drop_cost")
    for name in ("gap", "relative_gap"):
        if entries[name].number() != getattr(figures, name):
            raise entries[name].wrong(f"{getattr(figures, name)!r}, which follows from objective and lower_bound")
    return figures

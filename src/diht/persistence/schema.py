"""`model.json`: its schema, written and read back without running code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import pairwise
from math import inf, isinf
from typing import Any

import numpy as np

from diht import __version__
from diht.constraints.lineage import Lineage
from diht.losses import ALL_LOSSES, Loss
from diht.persistence.document import MAX_WHOLE, Node, parse, parse_text
from diht.persistence.model import Data, Equation, Figures, Label, SavedModel, Structure, equation_labels
from diht.status import Status
from diht.tables.encoding import KINDS, Column, Encoding

__all__ = ["FORMAT", "FORMAT_VERSION", "checked_content", "checksum", "read_model", "to_json", "write_model"]

FORMAT, FORMAT_VERSION = "diht-model", 3

_DTYPES = ("float32", "float64")


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
        "structure": {name: value for name, value in asdict(model.structure).items() if name != "rule" or value},
        "encoders": None if model.encoding is None else [_encoder_entry(column) for column in model.encoding.columns],
        "equations": [
            _equation_entry(model, equation, 0 if model.shared else i) for i, equation in enumerate(model.equations)
        ],
        "certificates": [_certificate_entry(model, figures) for figures in model.certificates],
        "data": asdict(model.data),
        "feature_names": None if model.feature_names is None else list(model.feature_names),
    }
    content["checksum"] = checksum(content)
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


def _encoder_entry(column: Column) -> dict[str, Any]:
    content = asdict(column)
    return {"column": content.pop("name"), **content, "levels": list(column.levels)}


def _parameters(loss: Loss) -> dict[str, Any]:
    """Return the settings of a built-in loss, such as gamma and delta."""
    if ALL_LOSSES.get(loss.name) is not type(loss):
        raise ValueError(f"loss must be one of {list(ALL_LOSSES)} to be saved, got {loss!r}")
    return dict(vars(loss))


def checksum(content: dict[str, Any]) -> str:
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
    from diht.datasets import atomic_write  # reading needs numpy alone

    with atomic_write(path) as file:
        file.write(text.encode())


def _checked(root: Node) -> SavedModel:
    top = checked_content(root, _KEYS)
    loss = _loss(top["loss"])
    top["task"].one_of([loss.task])
    top["diht_version"].text()
    n_features = top["n_features"].whole(1, MAX_WHOLE)
    lam = top["lam"].number()
    if lam <= 0:
        raise top["lam"].wrong("a positive number")
    encoding = top["encoders"].optional(_encoding)
    classes = _classes(top["classes"], loss)
    targets = top["targets"].optional(lambda node: _targets(node, classes))
    labels = equation_labels(classes, targets)
    shared = len(labels) > 1 and len(top["certificates"].items()) == 1
    structure = _structure(top["structure"], n_features, len(labels) if shared else 1)
    model = SavedModel(
        loss=loss,
        k=_level(top["k"], structure, n_features),
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
        structure=structure,
        date=_date(top["date"]),
        shared=shared,
        encoding=encoding,
    )
    if encoding is not None and encoding.names != model.feature_names:
        raise top["feature_names"].fail("not the names of the columns that the encoders make")
    figures = _certificates(top["certificates"], model, len(labels))
    equations = _equations(top["equations"], labels, figures * len(labels) if model.shared else figures, model)
    object.__setattr__(model, "equations", equations)
    if model.shared:
        _check_size(top["equations"], model.support.tolist(), model)
    return model


def checked_content(root: Node, keys: Sequence[str]) -> dict[str, Node]:
    """Return the entries of a model file, of this format and undamaged."""
    _check_format(root)
    top = root.entries(*keys, optional=["checksum"])
    if "checksum" in top:
        content = {key: value for key, value in root.value.items() if key != "checksum"}
        if top["checksum"].text() != checksum(content):
            raise root.fail(
                "damaged: the content does not match its checksum (delete the checksum after editing by hand)"
            )
    return top


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
        loss: Loss = ALL_LOSSES[name](**{key: _parameter(entries[key]) for key in vars(standard)})
    except ValueError as error:
        raise error if str(error).startswith(node.path) else node.fail(str(error)) from None
    return loss


def _parameter(node: Node) -> Any:
    """Return a number, or several, as quantiles may be."""
    return tuple(item.number() for item in node.items()) if isinstance(node.value, list) else node.number()


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


def _encoding(node: Node) -> Encoding:
    columns = tuple(map(_encoder, node.items()))
    if len({column.name for column in columns}) < len(columns):
        raise node.fail("a column comes twice")
    return Encoding(columns)


def _encoder(node: Node) -> Column:
    """Read what becomes of a column; what its kind does not have is empty."""
    entries = node.entries("column", "kind", "fill", "indicator", "levels", "other", "blank")
    column = Column(
        entries["column"].text(),
        entries["kind"].one_of(KINDS),
        entries["fill"].optional(Node.number),
        entries["indicator"].flag(),
        tuple(item.text() for item in entries["levels"].items()),
        entries["other"].flag(),
        entries["blank"].flag(),
    )
    numbers, levels = column.fill is not None or column.indicator, column.levels or column.other or column.blank
    if (numbers and column.kind not in ("number", "boolean")) or (levels and column.kind != "category"):
        raise node.fail(f"more is said than a column of kind {column.kind!r} has")
    if column.kind == "category" and not (column.levels or column.other):
        raise entries["levels"].fail("no level")
    if column.indicator and column.fill is None:
        raise entries["fill"].wrong("a number")
    if len(set(column.levels)) < len(column.levels):
        raise entries["levels"].fail("a level comes twice")
    return column


def _structure(node: Node, n_features: int, n_rows: int) -> Structure:
    entries = node.entries("keep", "groups", "sign", "limits", optional=["rule"])
    keep = tuple(item.whole(0, n_features - 1) for item in entries["keep"].items())
    if any(j <= i for i, j in pairwise(keep)):
        raise entries["keep"].fail("features must be ascending and distinct")
    groups = entries["groups"].optional(lambda node: _each(node, 0, n_features - 1, n_features))
    if groups is not None:
        kept = {groups[j] for j in keep}
        if keep != tuple(j for j, group in enumerate(groups) if group in kept):
            raise entries["keep"].fail("a group is kept in part")
    sign = entries["sign"].optional(lambda node: _sign(node, n_features, n_rows))
    limits = entries["limits"].optional(lambda node: _limits(node, n_features, n_rows))
    rule = entries["rule"].optional(lambda node: _rule(node, n_features)) if "rule" in entries else None
    return Structure(keep, groups, sign, limits, rule)


def _rule(node: Node, n_features: int) -> dict[str, Any]:
    """Read a constraint of one's own choice, but for its k or budget."""
    if not isinstance(node.value, dict):
        raise node.wrong("an object")
    kind = Node(node.value.get("kind"), f"{node.where}.kind", node.path).one_of(("per_group", "budget", "heredity"))
    if kind == "heredity":
        return _lineage(node, n_features)
    if kind == "budget":
        costs = node.entries("kind", "costs")["costs"]
        prices = [item.number() for item in costs.items()]
        if len(prices) != n_features or min(prices) <= 0.0:
            raise costs.wrong(f"{n_features} positive numbers")
        return {"kind": "budget", "costs": prices}
    entries = node.entries("kind", "group", "most")
    most = [item.whole(0, MAX_WHOLE) for item in entries["most"].items()]
    group = _each(entries["group"], 0, len(most) - 1, n_features)
    return {"kind": "per_group", "group": list(group), "most": most}


def _lineage(node: Node, n_features: int) -> dict[str, Any]:
    """Read the parents of features, and of terms that are none."""
    entries = node.entries("kind", "strong", "parents", "columns")
    each = entries["parents"].items()
    parents = [[item.whole(0, len(each) - 1) for item in own.items()] for own in each]
    entries["columns"].whole(n_features, min(n_features, len(each)))
    strong = entries["strong"].flag()
    try:
        Lineage(tuple(map(tuple, parents)), strong).check()
    except ValueError as error:
        raise entries["parents"].fail(str(error)) from None
    return {"kind": "heredity", "strong": strong, "parents": parents, "columns": n_features}


def _level(node: Node, structure: Structure, n_features: int) -> float:
    """Read k, or the budget."""
    if structure.rule is None or structure.rule["kind"] != "budget":
        return node.whole(1, MAX_WHOLE if structure.rule else n_features)
    if node.number() <= 0.0:
        raise node.wrong("a positive number")
    return node.number()


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
    if refusal := model.structure.refusal(features, model.k, model.n_features):
        raise node.fail(refusal)


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

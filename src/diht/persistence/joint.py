"""Files of models whose loss is no sum over samples: `model.json` with another list of entries, checked as strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from diht import __version__
from diht.persistence.document import MAX_WHOLE, Node, parse_text
from diht.persistence.schema import FORMAT, FORMAT_VERSION, checked_content, checksum
from diht.status import Status

__all__ = ["TASKS", "JointFile", "read_joint", "write_joint"]

TASKS = "survival", "ordinal"


@dataclass(frozen=True)
class JointFile:
    """What such a file says.

    Attributes
    ----------
    task : {"survival", "ordinal"}
    k, lam, standardize, keep
        The problem that was posed.
    n_features, feature_names
        The columns of the data.
    indices, values, means : tuples
        The features of the model, ascending, their coefficients, and the means of their columns.
    objective, lower_bound, status, n_samples
        How good it is, and of how many samples.
    extra : dict
        Ties and baseline hazards, or classes and thresholds.
    """

    task: str
    k: int
    lam: float
    standardize: bool
    keep: tuple[int, ...]
    n_features: int
    feature_names: tuple[str, ...] | None
    indices: tuple[int, ...]
    values: tuple[float, ...]
    means: tuple[float, ...]
    objective: float
    lower_bound: float
    status: str
    n_samples: int
    extra: dict[str, Any] = field(default_factory=dict)


def write_joint(model: JointFile, path: str) -> None:
    """Write the file, if it can be read back."""
    from diht.datasets import atomic_write

    content: dict[str, Any] = {"format": FORMAT, "format_version": FORMAT_VERSION, "diht_version": __version__}
    content |= asdict(model)
    content["checksum"] = checksum(content)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    read_joint(Node(parse_text(text, path), "", path))
    with atomic_write(path) as file:
        file.write(text.encode())


def read_joint(root: Node) -> JointFile:
    """Return what a file says; ValueError, one line that names the file and the place, for any damage."""
    names = [name for name in JointFile.__dataclass_fields__ if name != "extra"]
    top = checked_content(root, ("format", "format_version", "diht_version", *names, "extra"))
    d = top["n_features"].whole(1, MAX_WHOLE)
    task = top["task"].one_of(TASKS)
    indices = _ascending(top["indices"], d)
    numbers = {name: tuple(item.number() for item in top[name].items()) for name in ("values", "means")}
    for name, found in numbers.items():
        if len(found) != len(indices):
            raise top[name].fail(f"{len(found)} numbers for {len(indices)} features")
    keep, k = _ascending(top["keep"], d), top["k"].whole(1, MAX_WHOLE)
    if len(set(indices) - set(keep)) > k:
        raise top["indices"].fail(f"{len(set(indices) - set(keep))} features, where k = {k} are allowed")
    feature_names = top["feature_names"].optional(lambda node: tuple(item.text() for item in node.items()))
    if feature_names is not None and len(set(feature_names)) != d:
        raise top["feature_names"].wrong(f"{d} different names")
    lam, objective, bound = (top[name].number() for name in ("lam", "objective", "lower_bound"))
    if lam <= 0.0 or bound > objective:
        raise top["lam" if lam <= 0.0 else "lower_bound"].wrong(
            "a positive number" if lam <= 0.0 else "no more than the objective"
        )
    extra = _survival(top["extra"]) if task == "survival" else _ordinal(top["extra"])
    return JointFile(
        task, k, lam, top["standardize"].flag(), keep, d, feature_names, indices, numbers["values"], numbers["means"],
        objective, bound, top["status"].one_of(map(str, Status)), top["n_samples"].whole(1, MAX_WHOLE), extra,
    )  # fmt: skip


def _ascending(node: Node, n_features: int) -> tuple[int, ...]:
    found = tuple(item.whole(0, n_features - 1) for item in node.items())
    if any(j <= i for i, j in pairwise(found)):
        raise node.fail("features must be ascending and distinct")
    return found


def _survival(node: Node) -> dict[str, Any]:
    """Read how ties are counted, and the baseline hazard of each stratum."""
    entries = node.entries("ties", "stratified", "baseline")
    strata = [_stratum(item) for item in entries["baseline"].items()]
    if not strata:
        raise entries["baseline"].fail("no stratum")
    return {
        "ties": entries["ties"].one_of(("efron", "breslow")),
        "stratified": entries["stratified"].flag(),
        "baseline": strata,
    }


def _stratum(node: Node) -> Mapping[str, Any]:
    entries = node.entries("label", "times", "hazard")
    times, hazard = ([item.number() for item in entries[name].items()] for name in ("times", "hazard"))
    if len(times) != len(hazard) or any(b <= a for a, b in pairwise(times)):
        raise entries["times"].fail("times must be ascending, one for each hazard")
    if any(b < a for a, b in pairwise([0.0, *hazard])):
        raise entries["hazard"].fail("a cumulative hazard never falls")
    label = entries["label"].value
    if label is not None and not isinstance(label, str | int | float):
        raise entries["label"].wrong("a text or a number")
    return {"label": label, "times": times, "hazard": hazard}


def _ordinal(node: Node) -> dict[str, Any]:
    """Read the classes and the thresholds between them."""
    entries = node.entries("classes", "thresholds")
    classes, thresholds = [item.value for item in entries["classes"].items()], _numbers(entries["thresholds"])
    kinds = {type(label) for label in classes}
    if len(classes) < 2 or len(set(classes)) < len(classes) or not kinds <= {str, int, float, bool}:
        raise entries["classes"].wrong("at least two different texts or numbers")
    if len(thresholds) != len(classes) - 1 or any(b <= a for a, b in pairwise(thresholds)):
        raise entries["thresholds"].wrong(f"{len(classes) - 1} ascending numbers")
    return {"classes": classes, "thresholds": thresholds}


def _numbers(node: Node) -> list[float]:
    return [item.number() for item in node.items()]

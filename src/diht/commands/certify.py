"""``diht certify``: how far a model, of whatever tool, is from the best possible on some data."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from diht.commands import warn
from diht.commands.predict import as_numbers, columns_of, read_for
from diht.commands.targets import choose_loss, targets_for
from diht.datasets import Table, read_table
from diht.design import as_design
from diht.estimators.base import class_targets, column_scales
from diht.losses import Loss, as_loss
from diht.numerics.interrupt import Interrupt
from diht.persistence.given import GivenModel, is_given_model, read_given_model
from diht.persistence.model import Data, Equation, Figures, Label, SavedModel, as_labels, equation_labels, feature_name
from diht.persistence.schema import read_model
from diht.problem import Problem, normalised_weights
from diht.report.live import LiveLine
from diht.report.text import Context, Finding, allowed, certificate_in_words, printable, quoted, spoken
from diht.result import Certificate, Status
from diht.samples import Intercept
from diht.solvers import Start
from diht.solvers.loop import certificate_after, model_to_certify, solve

__all__ = ["certify"]

_UNKNOWN = Figures(math.inf, 0.0, False, Status.STOPPED)  # of a model that nothing has been computed for


def certify(arguments: argparse.Namespace) -> None:
    """Say how far a given model can be from the best possible on some data."""
    given = is_given_model(arguments.model)
    model, table = _foreign_model(arguments) if given else _own_model(arguments)
    targets = _targets(model, table)
    with Interrupt() as interrupt, LiveLine(not arguments.quiet) as live:
        print(_certify_opening(model, table, arguments.model), end="\n\n", flush=True)
        equations, findings = _bounds(model, table, targets, arguments, live)
    if interrupt.asked:
        print("Stopped by Ctrl-C: this is the best bound found so far.\n")
    model = replace(model, equations=tuple(equations))
    context = Context(arguments.tol, model.n_features, interrupt.asked, fitted=False, exact=arguments.exact)
    print(certificate_in_words(model, context, findings))


def _own_model(arguments: argparse.Namespace) -> tuple[SavedModel, Table]:
    """Read a model of ours and its data; the model's features in the order of the table, options in place of its own."""
    model = read_model(arguments.model)
    table = read_for(
        model,
        arguments.file,
        arguments.target or model.targets,
        needs_target=True,
        max_features=arguments.max_features,
    )
    targets_for(model, table)  # a target too few would count as a feature
    table = as_numbers(model, table)
    columns = columns_of(model, table, np.arange(model.n_features))
    if table.X.shape[1] != model.n_features:
        raise ValueError(f"{table.path}: {table.X.shape[1]} features, where the model has {model.n_features}")
    if columns is not None:
        assert table.feature_names is not None
        moved = tuple(replace(equation, indices=columns[equation.indices]) for equation in model.equations)
        structure = model.structure.moved(columns)
        model = replace(model, equations=moved, feature_names=tuple(table.feature_names), structure=structure)
    loss: Loss = model.loss if arguments.loss is None else as_loss(arguments.loss)
    if loss.task != model.task:
        raise ValueError(
            f"argument --loss: {loss.name} is for {loss.task}, the model of {arguments.model} for {model.task}"
        )
    return replace(
        model,
        loss=loss.of_classes() if model.shared and model.classes is not None else loss,
        k=_level_for(arguments, model),
        lam=arguments.lam or model.lam,
        standardize=model.standardize if arguments.standardize is None else arguments.standardize,
    ), table


def _foreign_model(arguments: argparse.Namespace) -> tuple[SavedModel, Table]:
    """Read coefficients, or only features, by name and the data that they belong to.

    A model of which only the features are given has coefficients that are not numbers yet.
    """
    given = read_given_model(arguments.model)
    table = read_table(arguments.file, arguments.target, max_features=arguments.max_features)
    loss, _ = choose_loss(table, arguments.loss)
    d = table.X.shape[1]
    places = _places(given, table, arguments.model)
    classes = as_labels(np.unique(np.asarray(table.y))) if loss.task == "classification" else None
    labels = equation_labels(classes, table.target_names)
    shared = len(labels) > 1
    rows = given.rows or ((math.nan,) * len(places),) * len(labels)
    if len(rows) != len(labels):
        count = f"{len(rows)} set{'s' * (len(rows) != 1)} of coefficients"
        each = f"{len(labels)} are needed, one for each {'target' if classes is None else 'class'}"
        raise ValueError(f"{arguments.model}: {count}, where {each if shared else '1 is needed'}")
    intercepts = given.intercepts if given.rows is not None and given.intercepts else (0.0,) * len(labels)
    equations = tuple(
        _equation(label, places, row, intercept) for label, row, intercept in zip(labels, rows, intercepts, strict=True)
    )
    used = len(np.unique(np.concatenate([equation.indices for equation in equations])))
    model = SavedModel(
        loss=loss.of_classes() if shared and classes is not None else loss,
        k=_k_for(arguments, max(used, 1), d, used),
        lam=arguments.lam or 1e-3,
        fit_intercept=given.intercepts is not None or given.rows is None,
        standardize=arguments.standardize is not False,
        dtype="float64",
        n_features=d,
        feature_names=None if table.feature_names is None else tuple(table.feature_names),
        classes=classes,
        targets=None if table.target_names is None else tuple(table.target_names),
        equations=equations,
        data=Data.of(table),
        shared=shared,
    )
    return model, table


def _equation(label: Label | None, places: Sequence[int], row: Sequence[float], intercept: float) -> Equation:
    """Return the nonzero coefficients of a row, those of columns in these places."""
    used = sorted((j, value) for j, value in zip(places, row, strict=True) if value != 0)
    indices, values = ([pair[i] for pair in used] for i in range(2))
    return Equation(label, np.array(indices, dtype=np.int64), np.array(values, dtype=np.float64), intercept, _UNKNOWN)


def _places(given: GivenModel, table: Table, path: str) -> list[int]:
    """Return the columns of features that are given by name, by number as the file counts, or by place from 0."""
    d, names = table.X.shape[1], table.feature_names
    by_place = given.rows is not None and given.names == tuple(range(len(given.names)))
    if by_place and len(given.names) not in (0, d):  # none at all: an intercept alone
        raise ValueError(f"{path}: {len(given.names)} coefficients, where {table.path} has {d} features")
    named = {name: j for j, name in enumerate(names or ())}
    places = [_place(name, named, d, table.zero_based) for name in given.names]
    if -1 in places:
        unknown, example = given.names[places.index(-1)], feature_name(0, names, table.zero_based)
        raise ValueError(f"{path}: {table.path} has no feature {unknown!r} (its first one is {example!r})")
    if len(set(places)) < len(places):
        raise ValueError(f"{path}: a feature comes twice, by its name and by its number")
    return places


def _place(name: str | int, named: dict[str, int], d: int, zero_based: bool | None) -> int:
    """Return the column of a feature, -1 where there is none; a name, even "1", comes before a number."""
    if isinstance(name, str) and name in named:
        return named[name]
    if isinstance(name, str):
        number = name if named else name.removeprefix("feature ")
        name = int(number) - (zero_based is False) if re.fullmatch(r"0|[1-9][0-9]{0,17}", number) else -1
    return name if 0 <= name < d else -1


def _level_for(arguments: argparse.Namespace, model: SavedModel) -> float:
    """Return the number of features allowed, or the budget, for a model that was read."""
    used = [support.tolist() for support in model.supports]
    if model.structure.rule is None:
        most = max(map(model.structure.counted, used))
        return _k_for(arguments, int(model.k), model.n_features, most)
    level = arguments.k or model.k
    for features in used:
        if refusal := model.structure.refusal(features, level, model.n_features):
            raise ValueError(f"argument --k: the model of {arguments.model} has {refusal}")
    return float(level) if model.structure.rule["kind"] == "budget" else int(level)


def _k_for(arguments: argparse.Namespace, default: int, n_features: int, used: int) -> int:
    """Return the number of features allowed, for a model that uses so many."""
    k: int = arguments.k or default
    if k < used:
        raise ValueError(
            f"argument --k: {k} feature{'s' * (k != 1)} allowed, but the model of {arguments.model} uses {used}"
        )
    if k > n_features:
        warn(f"--k {k} is more than the {n_features} features of the data: all of them may be used")
    return min(k, n_features)


def _targets(model: SavedModel, table: Table) -> list[NDArray[np.float64]]:
    """Return the targets of every problem: of each equation, or of all of them together where they share features."""
    y = targets_for(model, table)
    if model.classes is None:
        return [y.astype(np.float64)]
    labels, codes = np.unique(y, return_inverse=True)
    found = as_labels(labels)
    strangers = sorted(set(found) - set(model.classes), key=str)
    if strangers:
        raise ValueError(f"{table.path}: the target holds {strangers[0]!r}, which is not among the model's classes")
    if len(found) < 2:
        raise ValueError(f"{table.path}: the target has one class only: {str(y[0])!r}")
    if absent := [label for label in model.classes if label not in found]:
        raise ValueError(f"{table.path}: the target never holds {absent[0]!r}, which is among the model's classes")
    if model.shared:
        return [class_targets(len(found), codes, model.loss)[0]]
    return [np.where(codes == found.index(equation.label), 1.0, -1.0) for equation in model.equations]


def _certify_opening(model: SavedModel, table: Table, path: str) -> str:
    n, d = table.X.shape
    used = len(model.support)
    columns = ", standardised columns" if model.standardize else ""
    return (
        f"Model    {printable(path)}: {used:,} feature{'s' * (used != 1)}\n"
        f"Data     {printable(table.path)}: {n:,} samples, {d:,} features\n"
        f"{_sides(model)}"
        f"Problem  {spoken(model.loss)} loss, {allowed(model)}, "
        f"lam = {model.lam:g}{columns}"
    )


def _sides(model: SavedModel) -> str:
    """Say which of two classes a positive score stands for: a model of another tool may see it the other way round."""
    if model.classes is None or len(model.classes) > 2:
        return ""
    low, high = map(quoted, model.classes)
    return f"Classes  a positive score means {high}, a negative one {low}\n"


def _bounds(
    model: SavedModel,
    table: Table,
    targets: Sequence[NDArray[np.float64]],
    arguments: argparse.Namespace,
    live: LiveLine,
) -> tuple[list[Equation], list[Finding]]:
    """Return the equations with figures for this data, and what was found about each of them, or about all together."""
    design = as_design(table.X, arguments.threads)
    s = normalised_weights(table.weights, design.shape[0])
    constraint = model.structure.constraint(model.k, model.n_features)
    scale = column_scales(design, s, constraint) if model.standardize else None
    limit = None if arguments.time_limit is None else arguments.time_limit / len(targets)
    parts = [model.equations] if model.shared else [(equation,) for equation in model.equations]
    certified: list[Equation] = []
    findings = []
    for equations, y in zip(parts, targets, strict=True):
        problem = Problem(design, y, model.loss, constraint, model.lam, s, model.fit_intercept, scale=scale)
        w, intercept = _model(problem, equations)
        result = solve(
            problem,
            "branch" if arguments.exact else "auto",
            start=Start(w, problem.centred_intercept(w, intercept)),
            tol=arguments.tol,
            time_limit=limit,
            callback=partial(live, label=str(equations[0].label) if len(targets) > 1 else ""),
        )
        certificate = replace(certificate_after(problem, w, intercept, result), scaled=model.standardize)
        figures = Figures.of(certificate, result.status)
        certified += [replace(equation, figures=figures) for equation in equations]
        findings.append(_finding(equations, certificate, figures))
    return certified, findings


def _model(problem: Problem, equations: Sequence[Equation]) -> tuple[NDArray[np.float64], Intercept]:
    """Return equations for the problem's columns; with the best coefficients where only their features are given."""
    if any(np.any(np.isnan(equation.values)) for equation in equations):
        return model_to_certify(problem, None, None, support=equations[0].indices)
    coef = np.zeros((len(equations), problem.shape[1] // len(equations)))
    for row, equation in zip(coef, equations, strict=True):
        row[equation.indices] = equation.values
    intercepts: Any = [equation.intercept for equation in equations]
    intercept = intercepts if problem.n_targets > 1 else intercepts[0]
    w = problem.scaled_coefficients(coef.ravel())
    return model_to_certify(problem, w, intercept if problem.fit_intercept else None, support=None)


def _finding(equations: Sequence[Equation], certificate: Certificate, figures: Figures) -> Finding:
    """Return what is proved of features, and the better model, in the user's units."""
    better = certificate.better
    if better is None:
        return Finding(certificate.required, certificate.excluded)
    found = replace(figures, objective=better.objective)
    rows = zip(equations, np.atleast_2d(better.coef), np.atleast_1d(better.intercept), strict=True)
    return Finding(
        certificate.required,
        certificate.excluded,
        tuple(
            Equation(equation.label, np.flatnonzero(row), row[np.flatnonzero(row)], float(b), found)
            for equation, row, b in rows
        ),
    )

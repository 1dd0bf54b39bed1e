"""``diht certify``: how far a model, of whatever tool, is from the best possible on some data."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from diht.commands import warn
from diht.commands.interrupt import Interrupt
from diht.commands.predict import columns_of, read_for
from diht.commands.targets import choose_loss
from diht.datasets import Table, read_table
from diht.design import as_design
from diht.estimators import column_scales
from diht.loop import certificate_after, model_to_certify, solve
from diht.losses import Loss, as_loss
from diht.problem import Problem, normalised_weights
from diht.report.given import GivenModel, is_given_model, read_given_model
from diht.report.live import LiveLine
from diht.report.model import (
    Data,
    Equation,
    Figures,
    SavedModel,
    as_labels,
    equation_labels,
    feature_name,
    read_model,
)
from diht.report.text import Context, Finding, certificate_in_words, printable, quoted, spoken
from diht.result import Certificate, Status
from diht.solvers import Start

__all__ = ["certify"]

_UNKNOWN = Figures(math.inf, 0.0, False, Status.STOPPED)  # of a model that nothing has been computed for


def certify(arguments: argparse.Namespace) -> None:
    """Say how far a given model can be from the best possible on some data."""
    given = is_given_model(arguments.model)
    model, table = _foreign_model(arguments) if given else _own_model(arguments)
    targets = _targets(model, table)
    with Interrupt() as interrupt, LiveLine(not arguments.quiet) as live:
        print(_certify_opening(model, table, arguments.model), end="\n\n", flush=True)
        equations, findings = _bounds(model, table, targets, arguments, live, interrupt)
    if interrupt.asked:
        print("Stopped by Ctrl-C: this is the best bound found so far.\n")
    model = replace(model, equations=tuple(equations))
    context = Context(arguments.tol, model.n_features, interrupt.asked, fitted=False, exact=arguments.exact)
    print(certificate_in_words(model, context, findings))


def _own_model(arguments: argparse.Namespace) -> tuple[SavedModel, Table]:
    """Read a model of ours and its data; the model's features in the order of the table, options in place of its own."""
    model = read_model(arguments.model)
    own = model.loss
    if model.shared:
        raise ValueError(f"{arguments.model}: certify knows no model of several classes yet; fit carries a certificate")
    table = read_for(
        model,
        arguments.file,
        arguments.target or model.data.target,
        needs_target=True,
        max_features=arguments.max_features,
    )
    columns = columns_of(model, table, np.arange(model.n_features))
    if table.X.shape[1] != model.n_features:
        raise ValueError(f"{table.path}: {table.X.shape[1]} features, where the model has {model.n_features}")
    if columns is not None:
        assert table.feature_names is not None
        moved = tuple(replace(equation, indices=columns[equation.indices]) for equation in model.equations)
        structure = model.structure.moved(columns)
        model = replace(model, equations=moved, feature_names=tuple(table.feature_names), structure=structure)
    loss: Loss = own if arguments.loss is None else as_loss(arguments.loss)
    if loss.task != model.task:
        raise ValueError(
            f"argument --loss: {loss.name} is for {loss.task}, the model of {arguments.model} for {model.task}"
        )
    most = max(model.structure.counted(equation.indices.tolist()) for equation in model.equations)
    return replace(
        model,
        loss=loss,
        k=_k_for(arguments, model.k, model.n_features, most),
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
    values = (math.nan,) * len(given.names) if given.values is None else given.values
    places = _places(given, table, arguments.model)
    used = sorted((j, value) for j, value in zip(places, values, strict=True) if value != 0)
    classes = as_labels(np.unique(np.asarray(table.y))) if loss.task == "classification" else None
    if classes is not None and len(classes) > 2:
        raise ValueError(
            f"{arguments.model}: one set of coefficients for {len(classes)} classes; models of other tools have two"
        )
    equation = Equation(
        label=equation_labels(classes)[0],
        indices=np.array([j for j, _ in used], dtype=np.int64),
        values=np.array([value for _, value in used], dtype=np.float64),
        intercept=given.intercept or 0.0,
        figures=_UNKNOWN,
    )
    model = SavedModel(
        loss=loss,
        k=_k_for(arguments, max(len(used), 1), d, len(used)),
        lam=arguments.lam or 1e-3,
        fit_intercept=given.intercept is not None or given.values is None,
        standardize=arguments.standardize is not False,
        dtype="float64",
        n_features=d,
        feature_names=None if table.feature_names is None else tuple(table.feature_names),
        classes=classes,
        equations=(equation,),
        data=Data.of(table),
    )
    return model, table


def _places(given: GivenModel, table: Table, path: str) -> list[int]:
    """Return the columns of features that are given by name, by number as the file counts, or by place from 0."""
    d, names = table.X.shape[1], table.feature_names
    by_place = given.values is not None and given.names == tuple(range(len(given.names)))
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
    """Return the targets of every equation: numbers, or +1 for its class and -1 for the others."""
    y = np.asarray(table.y)
    if model.classes is None:
        if y.dtype.kind not in "biuf":
            raise ValueError(f"{table.path}: the target holds texts such as {str(y[0])!r}, the model is for numbers")
        return [y.astype(np.float64)]
    strangers = sorted(set(as_labels(np.unique(y))) - set(model.classes), key=str)
    if strangers:
        raise ValueError(f"{table.path}: the target holds {strangers[0]!r}, which is not among the model's classes")
    if len(np.unique(y)) < 2:
        raise ValueError(f"{table.path}: the target has one class only: {str(y[0])!r}")
    return [np.where(y == equation.label, 1.0, -1.0) for equation in model.equations]


def _certify_opening(model: SavedModel, table: Table, path: str) -> str:
    n, d = table.X.shape
    used, each = len(model.support), " a class" * (len(model.equations) > 1)
    columns = ", standardised columns" if model.standardize else ""
    return (
        f"Model    {printable(path)}: {used:,} feature{'s' * (used != 1)}\n"
        f"Data     {printable(table.path)}: {n:,} samples, {d:,} features\n"
        f"{_sides(model)}"
        f"Problem  {spoken(model.loss)} loss, at most {model.k:,} feature{'s' * (model.k != 1)}{each}, "
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
    interrupt: Interrupt,
) -> tuple[list[Equation], list[Finding]]:
    """Return the equations with figures for this data, and what was found about each."""
    design = as_design(table.X, arguments.threads)
    s = normalised_weights(None, design.shape[0])
    constraint = model.structure.constraint(model.k, model.n_features)
    scale = column_scales(design, s, constraint) if model.standardize else None
    limit = None if arguments.time_limit is None else arguments.time_limit / len(targets)
    equations, findings = [], []
    for equation, y in zip(model.equations, targets, strict=True):
        problem = Problem(design, y, model.loss, constraint, model.lam, s, model.fit_intercept, scale=scale)
        w, intercept = _model(problem, equation, scale)
        result = solve(
            problem,
            "branch" if arguments.exact else "auto",
            start=Start(w, problem.centred_intercept(w, intercept)),
            tol=arguments.tol,
            time_limit=limit,
            callback=partial(live, label=str(equation.label) if len(targets) > 1 else ""),
            stop=interrupt,
        )
        certificate = certificate_after(problem, w, intercept, result)
        figures = Figures(certificate.objective, certificate.lower_bound, model.standardize, result.status)
        equations.append(replace(equation, figures=figures))
        findings.append(_finding(equations[-1], certificate))
    return equations, findings


def _model(
    problem: Problem, equation: Equation, scale: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], float]:
    """Return the equation for the problem's columns; with the best coefficients where only its features are given."""
    if np.any(np.isnan(equation.values)):
        return model_to_certify(problem, None, None, support=equation.indices)
    w = np.zeros(problem.shape[1])
    w[equation.indices] = equation.values if scale is None else equation.values * scale[equation.indices]
    return model_to_certify(problem, w, equation.intercept if problem.fit_intercept else None, support=None)


def _finding(equation: Equation, certificate: Certificate) -> Finding:
    """Return what is proved of features, and the better model, in the user's units."""
    better = certificate.better
    if better is None:
        return Finding(certificate.required, certificate.excluded)
    support = better.support
    figures = replace(equation.figures, objective=better.objective)
    return Finding(
        certificate.required,
        certificate.excluded,
        Equation(
            label=equation.label,
            indices=support,
            values=better.coef[support],
            intercept=better.intercept,
            figures=figures,
            drop_cost=certificate.drop_cost[support],
        ),
    )

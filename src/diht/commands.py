"""What the commands of ``diht`` do; `diht.cli` has their arguments."""

from __future__ import annotations

import argparse
import csv
import io
import math
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from diht.datasets import Table, atomic_write, load_breast_cancer, read_table
from diht.design import as_design
from diht.estimators import SparseClassifier, SparseRegressor, standard_deviations
from diht.losses import LOSSES, Loss, as_loss
from diht.problem import Problem, normalised_weights
from diht.report.live import LiveLine
from diht.report.model import (
    Data,
    Equation,
    Figures,
    SavedModel,
    as_labels,
    equation_labels,
    feature_name,
    read_coefficients,
    read_model,
    to_json,
)
from diht.report.text import Context, certificate_in_words, fit_report, printable, quoted, significant
from diht.result import Status
from diht.solve import certify as library_certify
from diht.solve import solve
from diht.solvers import Start

if TYPE_CHECKING:
    from diht.result import Iterate, Result

__all__ = ["certify", "fit", "predict"]

_FEW_CLASSES = 10  # whole numbers with at most so many different values are taken for classes
_MANY_CLASSES, _SMALL_CLASS = 20, 5  # more classes than that, with fewer samples each, are taken for measurements
_UNKNOWN = Figures(math.inf, 0.0, False, Status.STOPPED)  # of a model that nothing has been computed for

Indices = NDArray[np.int64]


def _warn(message: str) -> None:
    print(f"diht: warning: {printable(message)}", file=sys.stderr)


# ---------------------------------------------------------------------------------------------------------- Ctrl-C


class _Interrupt:
    """A context in which the first Ctrl-C only asks to stop; calling it tells whether that happened."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __call__(self) -> bool:
        return self.asked

    def __enter__(self) -> _Interrupt:
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # in the background of a shell
        if threading.current_thread() is threading.main_thread() and not ignored:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)


# ------------------------------------------------------------------------------------------------------------- fit


def fit(arguments: argparse.Namespace) -> None:
    """Fit a model, explain it, write it with its plots."""
    if find_spec("rich") is None or find_spec("matplotlib") is None:
        raise ValueError("diht fit needs rich and matplotlib: pip install 'diht[app]'")
    _check_folder(arguments.out)
    if arguments.file is None and arguments.target is not None:
        raise ValueError(f"argument --target: {arguments.target!r} needs a FILE to be found in")
    table = load_breast_cancer() if arguments.file is None else read_table(arguments.file, arguments.target)
    loss, why = _choose_loss(table, arguments.loss)
    estimator = _estimator(arguments, table, loss)
    with _Interrupt() as interrupt:
        print(_opening(table, estimator, loss, why), end="\n\n", flush=True)
        _run(estimator, table, LiveLine(not arguments.quiet), interrupt)
    model = SavedModel.of(estimator, table)
    results: list[Result] = estimator.result_ if isinstance(estimator.result_, list) else [estimator.result_]
    effects = _effects(model, results)
    context = Context(arguments.tol, _varying_columns(model, table), interrupt.asked)
    print(fit_report(model, effects, context), end="\n\n")
    print(_closing(results), flush=True)
    print(f"Written: {', '.join(_write_report(arguments.out, model, results, effects))}")


def _run(estimator: Any, table: Table, live: LiveLine, interrupt: _Interrupt) -> None:
    """Fit the estimator; what it warns of becomes a line, unless the report says it anyway."""
    estimator.live, estimator._stop = live, interrupt
    with live, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(table.X, table.y)
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        _warn(message)


class _Watched:
    """An estimator that shows each evaluation on a live line."""

    live: LiveLine

    def _callback(self, label: str, tasks: Any, scale: Any, dtype: Any) -> Callable[[Iterate], bool]:
        return partial(self.live, label=label)


class _WatchedRegressor(_Watched, SparseRegressor):
    pass


class _WatchedClassifier(_Watched, SparseClassifier):
    pass


def _check_folder(path: str) -> None:
    """Raise unless a folder can be made, or is there, and can be written; change nothing yet."""
    there = os.path.abspath(path)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        which = "" if there == os.path.abspath(path) else f" {there}"
        raise ValueError(f"argument --out: {path}:{which} is a file, not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"argument --out: {path} cannot be written: no permission for {there}")


def _estimator(arguments: argparse.Namespace, table: Table, loss: Loss) -> Any:
    d = table.X.shape[1]
    if arguments.k > d:
        _warn(f"--k {arguments.k} is more than the {d} features of the data: all of them may be used")
    kind = _WatchedClassifier if loss.task == "classification" else _WatchedRegressor
    return kind(
        k=min(arguments.k, d),
        lam=arguments.lam,
        loss=loss,
        solver=arguments.solver,
        fit_intercept=not arguments.no_intercept,
        standardize=not table.is_sparse if arguments.standardize is None else arguments.standardize,
        tol=arguments.tol,
        max_iter=arguments.max_iter,
        time_limit=arguments.time_limit,
        random_state=arguments.seed,
        n_jobs=arguments.threads,
    )


def _opening(table: Table, estimator: Any, loss: Loss, why: str) -> str:
    """Say what the data is and which problem will be solved."""
    n, d = table.X.shape
    target = "" if table.target_name is None else f', target "{printable(table.target_name, 40)}"'
    lines = [f"Data     {printable(table.path)}: {n:,} samples, {d:,} features{target}"]
    if loss.task == "classification":
        labels, counts = np.unique(np.asarray(table.y), return_counts=True)
        shown = [f"{printable(str(a), 30)} ({b:,})" for a, b in zip(as_labels(labels), counts, strict=True)]
        lines.append(f"Classes  {', '.join(shown[:8])}{f' and {len(shown) - 8} more' if len(shown) > 8 else ''}")
    columns = ", standardised columns" if estimator.standardize else ""
    each = " a class" if loss.task == "classification" and len(labels) > 2 else ""
    features = f"at most {estimator.k:,} feature{'s' * (estimator.k != 1)}{each}"
    lines.append(f"Model    {loss.name.replace('_', ' ')} loss{why}; {features}, lam = {estimator.lam:g}{columns}")
    return "\n".join(lines)


def _effects(model: SavedModel, results: Sequence[Result]) -> list[NDArray[np.float64] | None]:
    """Return the coefficients of the standardised columns: the effects of one standard deviation."""
    if not model.standardize:
        return [None] * len(results)
    pairs = zip(model.equations, results, strict=True)
    return [result.w[equation.indices].astype(np.float64) for equation, result in pairs]


def _varying_columns(model: SavedModel, table: Table) -> int:
    """Count the columns that are not constant, where the words need it."""
    if all(len(equation.indices) == model.k for equation in model.equations):
        return model.n_features
    high, low = table.X.max(axis=0), table.X.min(axis=0)
    return int(np.count_nonzero((high - low).toarray() if table.is_sparse else high - low))


def _closing(results: Sequence[Result]) -> str:
    seconds, steps = sum(result.seconds for result in results), sum(result.n_iter for result in results)
    return f"Solved with {results[0].solver}: {steps:,} steps in {significant(seconds, 3)} s."


def _write_report(
    folder: str, model: SavedModel, results: Sequence[Result], effects: Sequence[NDArray[np.float64] | None]
) -> list[str]:
    """Write the three files and return their paths."""
    from diht.report.plots import Bars, Curve, draw_coefficients, draw_convergence, to_png

    labels = ["" if equation.label is None else str(equation.label) for equation in model.equations]
    curves = [Curve.of(result, label) for result, label in zip(results, labels, strict=True)]
    bars = [
        Bars(label, [model.name(j) for j in equation.indices], equation.values if effect is None else effect)
        for label, equation, effect in zip(labels, model.equations, effects, strict=True)
    ]
    count = f"{len(model.support)} of {model.n_features:,} features"
    convergence = draw_convergence(curves, f"How far from the best possible? {_spoken(model)} loss, {count}")
    axis = "coefficient for one standard deviation of the feature" if model.standardize else "coefficient"
    coefficients = draw_coefficients(bars, f"Coefficients: {count}", axis + _direction(model))
    os.makedirs(folder, exist_ok=True)
    files = {
        "model.json": to_json(model).encode(),
        "convergence.png": to_png(convergence),
        "coefficients.png": to_png(coefficients),
    }
    for name, content in files.items():
        with atomic_write(os.path.join(folder, name)) as file:
            file.write(content)
    return [os.path.join(folder, name) for name in files]


def _spoken(model: SavedModel) -> str:
    return model.loss.name.replace("_", " ")


def _direction(model: SavedModel) -> str:
    if model.classes is None or len(model.classes) > 2:
        return ""
    low, high = map(quoted, model.classes)
    return f"\nnegative: {low}, positive: {high}"


# --------------------------------------------------------------------------------------------- the target and the loss


def _choose_loss(table: Table, name: str | None) -> tuple[Loss, str]:
    """Return the loss that was asked for, or one that suits the target and why; raise where it does not suit."""
    y = np.asarray(table.y)
    target = "target" if table.target_name is None else f"target {table.target_name!r}"
    distinct = np.unique(y)
    texts = y.dtype.kind not in "biuf"
    if name is None:
        loss, why = _default_loss(distinct, texts)
    else:
        loss, why = as_loss(name), ""
    if loss.task == "regression" and texts:
        classes = [name for name, kind in LOSSES.items() if kind.task == "classification"]
        raise ValueError(
            f"argument --loss: {loss.name} needs numbers, but the {target} holds texts such as {str(distinct[0])!r}; "
            f"for classes use one of {', '.join(classes)}"
        )
    if loss.task == "classification":
        if not texts and _looks_measured(distinct, len(y)):
            raise ValueError(
                f"argument --loss: {loss.name} needs classes, but the {target} has {len(distinct)} different numbers in "
                f"{len(y)} samples; for regression use squared or huber"
            )
        if len(distinct) < 2:
            raise ValueError(f"the {target} has one class only: {str(as_labels(distinct)[0])!r}")
    return loss, why


def _default_loss(distinct: NDArray[Any], texts: bool) -> tuple[Loss, str]:
    if texts:
        return as_loss("logistic"), f" (chosen: the target names {len(distinct)} classes)"
    few = len(distinct) <= 2 or (len(distinct) <= _FEW_CLASSES and bool(np.all(distinct == np.round(distinct))))
    if few:
        return as_loss("logistic"), f" (chosen: the target has {len(distinct)} values; --loss squared for regression)"
    return as_loss("squared"), f" (chosen: the target has {len(distinct):,} different numbers)"


def _looks_measured(distinct: NDArray[Any], n: int) -> bool:
    """Whether numbers are measurements rather than names of classes."""
    if len(distinct) <= 2:
        return False
    return bool(np.any(distinct != np.round(distinct))) or (
        len(distinct) > _MANY_CLASSES and n < _SMALL_CLASS * len(distinct)
    )


# --------------------------------------------------------------------------------------------------------- predict


def predict(arguments: argparse.Namespace) -> None:
    """Write one prediction a sample."""
    model = read_model(arguments.model)
    if arguments.proba and model.loss.name != "logistic":
        raise ValueError(
            f"argument --proba: needs a model with the logistic loss, {arguments.model} has {model.loss.name}"
        )
    table = _read_for(model, arguments.file, model.data.target, needs_target=False)
    columns = _columns(model, table, model.support)
    header, rows = ["prediction"], [[str(value)] for value in model.predict(table.X, columns)]
    if arguments.proba:
        assert model.classes is not None
        header += [f"proba_{label}" for label in model.classes]
        probabilities = model.probabilities(table.X, columns)
        rows = [row + [str(p) for p in line] for row, line in zip(rows, probabilities, strict=True)]
    if arguments.out == "-":
        csv.writer(sys.stdout, lineterminator="\n").writerows([header, *rows])
        return
    with atomic_write(arguments.out) as file:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([header, *rows])
        file.write(text.getvalue().encode())


def _read_for(model: SavedModel, path: str, target: str | None, needs_target: bool) -> Table:
    """Read data for a model: with its columns by name, or as many of them as it knows."""
    names = model.feature_names
    by_name = names is not None and not all(re.fullmatch(r"x\d+", name) for name in names)
    table = read_table(
        path,
        target,
        n_features=None if by_name else model.n_features,
        needs_target=needs_target,
        zero_based=model.data.zero_based,
    )
    nameless = names is None or table.feature_names is None
    if nameless and table.X.shape[1] != model.n_features:
        raise ValueError(f"{path}: {table.X.shape[1]} features, where the model has {model.n_features}")
    return table


def _columns(model: SavedModel, table: Table, needed: Indices) -> Indices | None:
    """Return where each feature of the model stands in the table, -1 for those missing; raise if one is needed."""
    if model.feature_names is None or table.feature_names is None or model.feature_names == tuple(table.feature_names):
        return None
    places = {name: j for j, name in enumerate(table.feature_names)}
    columns = np.array([places.get(name, -1) for name in model.feature_names], dtype=np.int64)
    missing = [model.feature_names[j] for j in needed if columns[j] < 0]
    if missing:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise ValueError(f"{table.path}: no column {', '.join(map(repr, missing[:5]))}{more}, which the model needs")
    return columns


# --------------------------------------------------------------------------------------------------------- certify


def certify(arguments: argparse.Namespace) -> None:
    """Say how far a given model can be from the best possible on some data."""
    foreign = arguments.model.lower().endswith(".csv")
    model, table = _foreign_model(arguments) if foreign else _own_model(arguments)
    targets = _targets(model, table)
    with _Interrupt() as interrupt, LiveLine(not arguments.quiet) as live:
        print(_certify_opening(model, table, arguments.model), end="\n\n", flush=True)
        found = _bounds(model, table, targets, arguments, live, interrupt)
    if interrupt.asked:
        print("Stopped by Ctrl-C: this is the best bound found so far.\n")
    model = replace(model, equations=tuple(found))
    print(certificate_in_words(model, Context(arguments.tol, model.n_features, interrupt.asked, fitted=False)))


def _own_model(arguments: argparse.Namespace) -> tuple[SavedModel, Table]:
    """Read a model of ours and its data; the model's features in the order of the table, options in place of its own."""
    model = read_model(arguments.model)
    table = _read_for(model, arguments.file, arguments.target or model.data.target, needs_target=True)
    columns = _columns(model, table, np.arange(model.n_features))
    if table.X.shape[1] != model.n_features:
        raise ValueError(f"{table.path}: {table.X.shape[1]} features, where the model has {model.n_features}")
    if columns is not None:
        assert table.feature_names is not None
        moved = tuple(replace(equation, indices=columns[equation.indices]) for equation in model.equations)
        model = replace(model, equations=moved, feature_names=tuple(table.feature_names))
    loss = model.loss if arguments.loss is None else as_loss(arguments.loss)
    if loss.task != model.task:
        raise ValueError(
            f"argument --loss: {loss.name} is for {loss.task}, the model of {arguments.model} for {model.task}"
        )
    most = max(len(equation.indices) for equation in model.equations)
    return replace(
        model,
        loss=loss,
        k=_k_for(arguments, model.k, model.n_features, most),
        lam=arguments.lam or model.lam,
        standardize=model.standardize if arguments.standardize is None else arguments.standardize,
    ), table


def _foreign_model(arguments: argparse.Namespace) -> tuple[SavedModel, Table]:
    """Read coefficients by name and the data that they belong to."""
    coefficients, intercept = read_coefficients(arguments.model)
    table = read_table(arguments.file, arguments.target)
    loss, _ = _choose_loss(table, arguments.loss)
    d = table.X.shape[1]
    places = {feature_name(j, table.feature_names, table.zero_based): j for j in range(d)}
    unknown = [name for name in coefficients if name not in places]
    if unknown:
        example = feature_name(0, table.feature_names, table.zero_based)
        raise ValueError(
            f"{arguments.model}: {arguments.file} has no feature {unknown[0]!r} (its first one is {example!r})"
        )
    used = sorted((places[name], value) for name, value in coefficients.items() if value != 0)
    classes = as_labels(np.unique(np.asarray(table.y))) if loss.task == "classification" else None
    if classes is not None and len(classes) > 2:
        raise ValueError(
            f"{arguments.model}: one set of coefficients for {len(classes)} classes; CSV models have two classes"
        )
    equation = Equation(
        label=equation_labels(classes)[0],
        indices=np.array([j for j, _ in used], dtype=np.int64),
        values=np.array([value for _, value in used], dtype=np.float64),
        intercept=intercept or 0.0,
        figures=_UNKNOWN,
    )
    model = SavedModel(
        loss=loss,
        k=_k_for(arguments, max(len(used), 1), d, len(used)),
        lam=arguments.lam or 1e-3,
        fit_intercept=intercept is not None,
        standardize=not table.is_sparse if arguments.standardize is None else arguments.standardize,
        dtype="float64",
        n_features=d,
        feature_names=None if table.feature_names is None else tuple(table.feature_names),
        classes=classes,
        equations=(equation,),
        data=Data.of(table),
    )
    return model, table


def _k_for(arguments: argparse.Namespace, default: int, n_features: int, used: int) -> int:
    """Return the number of features allowed, for a model that uses so many."""
    k: int = arguments.k or default
    if k < used:
        raise ValueError(f"argument --k: {k} features allowed, but the model of {arguments.model} uses {used}")
    if k > n_features:
        _warn(f"--k {k} is more than the {n_features} features of the data: all of them may be used")
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
        f"Problem  {_spoken(model)} loss, at most {model.k:,} feature{'s' * (model.k != 1)}{each}, "
        f"lam = {model.lam:g}{columns}"
    )


def _bounds(
    model: SavedModel,
    table: Table,
    targets: Sequence[NDArray[np.float64]],
    arguments: argparse.Namespace,
    live: LiveLine,
    interrupt: _Interrupt,
) -> list[Equation]:
    """Return the equations with figures for this data."""
    design = as_design(table.X, arguments.threads)
    s = normalised_weights(None, design.shape[0])
    scale = standard_deviations(design, s) if model.standardize else None
    limit = None if arguments.time_limit is None else arguments.time_limit / len(targets)
    equations = []
    for equation, y in zip(model.equations, targets, strict=True):
        problem = Problem(design, y, model.loss, model.k, model.lam, s, model.fit_intercept, scale=scale)
        w = np.zeros(model.n_features)
        w[equation.indices] = equation.values
        w = w if scale is None else w * scale
        b = equation.intercept if model.fit_intercept else 0.0
        result = solve(
            problem,
            start=Start(w, problem.centred_intercept(w, b)),
            tol=arguments.tol,
            time_limit=limit,
            callback=partial(live, label=str(equation.label) if len(targets) > 1 else ""),
            stop=interrupt,
        )
        certificate = library_certify(problem, w, b, alpha=result.alpha)
        bound = max(certificate.lower_bound, result.lower_bound)
        figures = Figures(certificate.objective, bound, model.standardize, result.status)
        equations.append(replace(equation, figures=figures))
    return equations

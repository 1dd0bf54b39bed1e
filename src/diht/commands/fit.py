"""``diht fit``: a model with its proof, in words, figures and pictures."""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from diht.commands import warn
from diht.commands.targets import choose_loss
from diht.datasets import Table, load_breast_cancer, read_table, write_files
from diht.design import as_design
from diht.estimators import SparseClassifier, SparseRegressor
from diht.losses import Loss
from diht.numerics.interrupt import Interrupt
from diht.persistence.model import Equation, Label, SavedModel, as_labels, to_json
from diht.report.live import LiveLine
from diht.report.text import Context, fit_report, printable, quoted, significant, spoken
from diht.solvers.loop import SOLVERS

if TYPE_CHECKING:
    from diht.report.plots import Bars
    from diht.result import Iterate, Result

__all__ = ["fit"]


def fit(arguments: argparse.Namespace) -> None:
    """Fit a model, explain it, write it with its plots."""
    if find_spec("rich") is None or find_spec("matplotlib") is None:
        raise ValueError("diht fit needs rich and matplotlib: pip install 'diht[app]'")
    _check_folder(arguments.out)
    if arguments.exact and arguments.solver not in ("auto", "branch"):
        raise ValueError(f"argument --exact: needs --solver auto or branch, got --solver {arguments.solver}")
    table = _table(arguments)
    loss, why = choose_loss(table, arguments.loss)
    classes = _classes(table, loss)
    _check_method(arguments, table, loss, len(classes))
    estimator = _estimator(arguments, table, loss)
    with Interrupt() as interrupt:
        gone = _print(f"{_opening(table, estimator, loss, why, classes)}\n")
        _run(estimator, table, LiveLine(not arguments.quiet))
    model = SavedModel.of(estimator, table)
    results: list[Result] = estimator.result_ if isinstance(estimator.result_, list) else [estimator.result_]
    effects = model.effects(results)
    context = Context(
        arguments.tol,
        _varying_columns(model, table),
        interrupt.asked,
        exact=arguments.exact or arguments.solver == "branch",
    )
    report = f"{fit_report(model, effects, context)}\n\n{_closing(results)}"
    try:
        written = _write_report(arguments.out, model, results, effects)
    except OSError:
        print(report, flush=True)
        raise
    if gone is not None:
        raise gone
    print(f"{report}\nWritten: {', '.join(written)}")


def _print(text: str) -> BrokenPipeError | None:
    """Print a text; return the error where the reader of the output has closed it: the files are written all the same."""
    try:
        print(text, flush=True)
    except BrokenPipeError as error:
        return error
    return None


def _table(arguments: argparse.Namespace) -> Table:
    if arguments.file is not None:
        return read_table(arguments.file, arguments.target, max_features=arguments.max_features)
    if arguments.target is not None:
        raise ValueError(f"argument --target: {arguments.target[0]!r} needs a FILE to be found in")
    return load_breast_cancer()


def _classes(table: Table, loss: Loss) -> dict[Label, int]:
    """Return the classes and how many samples each has; none where the target is a number."""
    if loss.task != "classification":
        return {}
    labels, counts = np.unique(np.asarray(table.y), return_counts=True)
    return dict(zip(as_labels(labels), counts.tolist(), strict=True))


def _check_method(arguments: argparse.Namespace, table: Table, loss: Loss, n_classes: int) -> None:
    """Raise where several classes cannot be told apart so, or a method does not know several targets."""
    several, apart = n_classes > 2, arguments.multiclass == "ovr"
    if several and apart and loss.coupled:
        raise ValueError(
            f"argument --multiclass: ovr cannot be used with --loss {loss.name}, which is one of all classes"
        )
    shared = (several and not apart) or np.asarray(table.y).ndim == 2
    if shared and not SOLVERS[arguments.solver].takes_targets:
        known = ", ".join(name for name, kind in SOLVERS.items() if kind.takes_targets)
        what, other = ("classes", ", or --multiclass ovr") if several else ("targets", "")
        raise ValueError(
            f"argument --solver: {arguments.solver} does not know several {what} that share features; use {known}{other}"
        )


def _run(estimator: Any, table: Table, live: LiveLine) -> None:
    """Fit the estimator; what it warns of becomes a line, unless the report says it anyway."""
    estimator.live = live
    with live, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(table.X, table.y, table.weights)
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        warn(message)


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
        warn(f"--k {arguments.k} is more than the {d} features of the data: all of them may be used")
    classes = loss.task == "classification"
    kind = partial(_WatchedClassifier, multiclass=arguments.multiclass) if classes else _WatchedRegressor
    return kind(
        k=min(arguments.k, d),
        lam=arguments.lam,
        loss=loss,
        solver=arguments.solver,
        exact=arguments.exact,
        fit_intercept=not arguments.no_intercept,
        standardize=arguments.standardize,
        tol=arguments.tol,
        max_iter=arguments.max_iter,
        time_limit=arguments.time_limit,
        random_state=arguments.seed,
        n_jobs=arguments.threads,
        device=arguments.device,
    )


def _opening(table: Table, estimator: Any, loss: Loss, why: str, classes: Mapping[Label, int]) -> str:
    """Say what the data is and which problem will be solved."""
    n, d = table.X.shape
    lines = [f"Data     {printable(table.path)}: {n:,} samples, {d:,} features{_targets_in_words(table)}"]
    if classes:
        shown = [f"{printable(str(label), 30)} ({count:,})" for label, count in classes.items()]
        lines.append(f"Classes  {', '.join(shown[:8])}{f' and {len(shown) - 8} more' if len(shown) > 8 else ''}")
    columns = ", standardised columns" if estimator.standardize else ""
    several = len(classes) > 2
    apart = several and estimator.multiclass == "ovr"
    features = f"at most {estimator.k:,} feature{'s' * (estimator.k != 1)}{' a class' * apart}"
    fitted = loss.of_classes() if several and not apart else loss
    lines.append(f"Model    {spoken(fitted)} loss{why}; {features}, lam = {estimator.lam:g}{columns}")
    return "\n".join(lines)


def _targets_in_words(table: Table) -> str:
    if table.target_names is None:
        return ""
    shown = ", ".join(f'"{printable(name, 40)}"' for name in table.target_names[:8])
    more = f" and {len(table.target_names) - 8} more" if len(table.target_names) > 8 else ""
    return f", target{'s' * (len(table.target_names) > 1)} {shown}{more}"


def _varying_columns(model: SavedModel, table: Table) -> int:
    """Count the columns that are not constant, where the words need it."""
    if all(len(support) == model.k for support in model.supports):
        return model.n_features
    return int(np.count_nonzero(np.isnan(as_design(table.X).constants(np.arange(model.n_features)))))


def _closing(results: Sequence[Result]) -> str:
    seconds, steps = sum(result.seconds for result in results), sum(result.n_iter for result in results)
    return f"Solved with {results[0].solver}: {steps:,} steps in {significant(seconds, 3)} s."


def _write_report(
    folder: str, model: SavedModel, results: Sequence[Result], effects: Sequence[NDArray[np.float64] | None]
) -> list[str]:
    """Write the three files and return their paths."""
    from diht.report.plots import Curve, draw_coefficients, draw_convergence, to_png

    labels = ["" if equation.label is None else str(equation.label) for equation in model.equations]
    curves = [Curve.of(result, "" if model.shared else label) for result, label in zip(results, labels, strict=False)]
    bars = [
        _bars(model, equation, label, effect)
        for label, equation, effect in zip(labels, model.equations, effects, strict=True)
    ]
    count = f"{len(model.support)} of {model.n_features:,} features"
    convergence = draw_convergence(curves, f"How far from the best possible? {spoken(model.loss)} loss, {count}")
    axis = "coefficient for one standard deviation of the feature" if model.standardize else "coefficient"
    coefficients = draw_coefficients(bars, f"Coefficients: {count}", axis + _direction(model) + _legend(model))
    os.makedirs(folder, exist_ok=True)
    files = {
        os.path.join(folder, "model.json"): to_json(model).encode(),
        os.path.join(folder, "convergence.png"): to_png(convergence),
        os.path.join(folder, "coefficients.png"): to_png(coefficients),
    }
    write_files(files)
    return list(files)


def _bars(model: SavedModel, equation: Equation, label: str, effect: NDArray[np.float64] | None) -> Bars:
    """Return what to draw of an equation; the features that are required get a mark."""
    from diht.report.plots import Bars

    names = [model.name(j) for j in equation.indices]
    marked = frozenset(model.name(j) for j in equation.required)
    return Bars(label, names, equation.values if effect is None else effect, marked)


def _legend(model: SavedModel) -> str:
    marked = any(len(equation.required) for equation in model.equations)
    return "\n* required: in every best possible model" if marked else ""


def _direction(model: SavedModel) -> str:
    if model.classes is None or len(model.classes) > 2:
        return ""
    low, high = map(quoted, model.classes)
    return f"\nnegative: {low}, positive: {high}"

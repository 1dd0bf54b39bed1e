"""``diht fit``: a model with its proof, in words, figures and pictures."""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from diht.commands import warn
from diht.commands.columns import Chosen, choose_columns
from diht.commands.path import check_path_options, fit_path, write_path
from diht.commands.scores import Scores, cross_validated, predictions, score_table, split
from diht.commands.targets import choose_loss
from diht.datasets import Table, load_breast_cancer, read_table, write_files
from diht.design import as_design
from diht.estimators import SparseClassifier, SparseRegressor
from diht.estimators.cross_validation import SparseClassifierCV, SparseRegressorCV
from diht.estimators.table_encoder import TableEncoder
from diht.losses import Loss
from diht.numerics.interrupt import Interrupt
from diht.persistence.model import Equation, Label, SavedModel, as_labels
from diht.persistence.schema import to_json
from diht.report.live import LiveLine
from diht.report.page import Predictions, Story, page
from diht.report.plots import Bars, Curve, draw_coefficients, draw_convergence, to_png
from diht.report.text import Context, fit_report, printable, quoted, significant, spoken, wrapped
from diht.solvers.loop import SOLVERS

if TYPE_CHECKING:
    from diht.result import Iterate, Result

__all__ = ["fit"]

_FOLDS, _LAM = 5, 1e-3  # where nothing is said


def fit(arguments: argparse.Namespace) -> None:
    """Fit a model, explain it, write it with its plots and its page."""
    if find_spec("rich") is None or find_spec("matplotlib") is None:
        raise ValueError("diht fit needs rich and matplotlib: pip install 'diht[app]'")
    _check_folder(arguments.out)
    _check_options(arguments)
    chosen = choose_columns(_table(arguments), arguments)
    loss, why = choose_loss(chosen.table, arguments.loss)
    classes = _classes(chosen.table, loss)
    _check_method(arguments, chosen.table, loss, len(classes))
    if isinstance(arguments.k, range):
        _fit_path(arguments, chosen, loss, why, classes)
        return
    table, held_out = split(chosen.table, arguments.test_fraction, bool(classes), arguments.seed)
    estimator = _estimator(arguments, table, loss, chosen.encoder)
    with Interrupt() as interrupt:
        opening = _opening(chosen.table, estimator, loss, why, classes)
        gone = _print("\n".join([opening, *chosen.lines()]) + "\n")
        _run(estimator, table, LiveLine(not arguments.quiet))
    model = SavedModel.of(estimator, table)
    tested, scores = _scored(arguments, estimator, table, held_out, list(classes))
    results: list[Result] = estimator.result_ if isinstance(estimator.result_, list) else [estimator.result_]
    effects = model.effects(results)
    context = Context(
        arguments.tol,
        _varying_columns(model, table),
        interrupt.asked,
        exact=arguments.exact or arguments.solver == "branch",
    )
    parts = [_choice(estimator), fit_report(model, effects, context), scores, _closing(results)]
    report = "\n\n".join(filter(None, parts))
    story = replace(Story.of(estimator), tested=tested)
    try:
        *written, last = _write_report(arguments.out, model, results, effects, story)
    except OSError:
        print(report, flush=True)
        raise
    if gone is not None:
        raise gone
    print(f"{report}\nWritten: {', '.join(written)}\nReport:  {last}")


def _check_options(arguments: argparse.Namespace) -> None:
    if arguments.exact and arguments.solver not in ("auto", "branch"):
        raise ValueError(f"argument --exact: needs --solver auto or branch, got --solver {arguments.solver}")
    if arguments.k == "cv" and arguments.max_iter is not None:
        raise ValueError("argument --max-iter: cannot be used with --k cv; --time-limit can")


def _scored(
    arguments: argparse.Namespace, estimator: Any, table: Table, held_out: Table | None, classes: list[Label]
) -> tuple[Predictions | None, str]:
    """Return predictions for rows that the model has not seen, if there are any, and the scores in words."""
    scores, tested = [], None
    if arguments.cv is not None or arguments.k == "cv":
        plain = estimator.chosen() if arguments.k == "cv" else estimator
        tested = cross_validated(plain, table, arguments.cv or _FOLDS, arguments.seed)
        scores.append(Scores.of(tested, classes))
    if held_out is not None:
        tested = predictions(estimator, held_out, "held out")
        scores.append(Scores.of(tested, classes))
    if not scores:
        return None, ""
    seen = Scores.of(predictions(estimator, table, "the samples that were fitted"), classes)
    note = "" if arguments.k != "cv" else "\n  (K was chosen on the same samples as those of cross-validation"
    note += " ; --test-fraction 0.2 scores on others)" if note and held_out is None else ")" * bool(note)
    return tested, score_table([seen, *scores]) + note.replace(" ;", ";")


def _choice(estimator: Any) -> str:
    """Say which k and lam cross-validation chose."""
    if not hasattr(estimator, "best_k_"):
        return ""
    results, best = estimator.cv_results_, estimator.best_index_
    mean = results["mean_test_score"]
    top = int(np.argmax(mean))
    return (
        f"Chosen by {estimator.n_splits_}-fold cross-validation: K = {estimator.best_k_}, lam = {estimator.best_lam_:g}, the "
        f"smallest K within one standard error\nof the best mean score ({significant(mean[best], 4)}; the best, "
        f"{significant(mean[top], 4)}, is that of K = {results['param_k'][top]}, lam = {results['param_lam'][top]:g})"
    )


def _fit_path(
    arguments: argparse.Namespace, chosen: Chosen, loss: Loss, why: str, classes: Mapping[Label, int]
) -> None:
    """Fit a model for each k, and write the page of the path."""
    check_path_options(arguments, len(classes))
    table, held_out = split(chosen.table, arguments.test_fraction, bool(classes), arguments.seed)
    plain = _WatchedClassifier if classes else _WatchedRegressor
    asked = plain(k=arguments.k, lam=arguments.lam or _LAM, standardize=arguments.standardize)
    opening = _opening(chosen.table, asked, loss, why, classes)
    gone = _print("\n".join([opening, *chosen.lines()]) + "\n")
    fitted = fit_path(arguments, table, loss, asked.lam, chosen.encoder)
    write_path(arguments, fitted, held_out, gone)


def _print(text: str) -> BrokenPipeError | None:
    """Print a text; return the error where the reader of the output has closed it: the files are written all the same."""
    try:
        print(text, flush=True)
    except BrokenPipeError as error:
        return error
    return None


def _table(arguments: argparse.Namespace) -> Table:
    if arguments.file is not None:
        return read_table(arguments.file, arguments.target, max_features=arguments.max_features, texts=True)
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
    """An estimator that shows each evaluation on a live line, where it has one."""

    live: LiveLine | None = None

    def _callback(self, label: str, tasks: Any, scale: Any, dtype: Any) -> Callable[[Iterate], bool] | None:
        return None if self.live is None else partial(self.live, label=label)


class _WatchedRegressor(_Watched, SparseRegressor):
    pass


class _WatchedClassifier(_Watched, SparseClassifier):
    pass


class _WatchedCV:
    """An estimator that chooses k and lam, and shows each evaluation of the last fit on a live line."""

    live: LiveLine

    def _estimator(self, **params: Any) -> Any:
        plain = super()._estimator(**params)  # type: ignore[misc]
        plain.live = self.live
        return plain

    def chosen(self) -> Any:
        """Return the plain estimator with the k and lam chosen."""
        return self._estimator(k=self.best_k_, lam=self.best_lam_)  # type: ignore[attr-defined]


class _WatchedRegressorCV(_WatchedCV, SparseRegressorCV):
    _plain = _WatchedRegressor


class _WatchedClassifierCV(_WatchedCV, SparseClassifierCV):
    _plain = _WatchedClassifier


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


def _estimator(arguments: argparse.Namespace, table: Table, loss: Loss, encoder: TableEncoder | None) -> Any:
    d, classes, chooses = table.X.shape[1], loss.task == "classification", arguments.k == "cv"
    settings: dict[str, Any] = {
        "loss": loss,
        "solver": arguments.solver,
        "exact": arguments.exact,
        "fit_intercept": not arguments.no_intercept,
        "standardize": arguments.standardize,
        "tol": arguments.tol,
        "time_limit": arguments.time_limit,
        "random_state": arguments.seed,
        "n_jobs": arguments.threads,
        "encoder": encoder,
        "device": arguments.device,
    } | ({"multiclass": arguments.multiclass} if classes else {})
    if chooses:
        kind = _WatchedClassifierCV if classes else _WatchedRegressorCV
        grid = {} if arguments.lam is None else {"lams": arguments.lam}
        return kind(cv=arguments.cv or _FOLDS, **grid, **settings)
    if arguments.k > d:
        warn(f"--k {arguments.k} is more than the {d} features of the data: all of them may be used")
    plain = _WatchedClassifier if classes else _WatchedRegressor
    return plain(
        k=min(arguments.k, d),
        lam=arguments.lam or _LAM,
        max_iter=arguments.max_iter,
        **settings,
    )


def _opening(table: Table, estimator: Any, loss: Loss, why: str, classes: Mapping[Label, int]) -> str:
    """Say what the data is and which problem will be solved."""
    n, d = table.X.shape
    count = f"{n:,} samples, {d:,} feature{'s' * (d != 1)}"
    lines = [f"Data     {printable(table.path)}: {count}{_targets_in_words(table)}"]
    if classes:
        shown = [f"{printable(str(label), 30)} ({count:,})" for label, count in classes.items()]
        lines.append(f"Classes  {', '.join(shown[:8])}{f' and {len(shown) - 8} more' if len(shown) > 8 else ''}")
    columns = ", standardised columns" if estimator.standardize else ""
    several = len(classes) > 2
    apart = several and estimator.multiclass == "ovr"
    fitted = loss.of_classes() if several and not apart else loss
    if hasattr(estimator, "ks"):
        features = f"the number of features{' a class' * apart} chosen by cross-validation"
    else:
        features = f"{_allowed(estimator.k)}{' a class' * apart}, lam = {estimator.lam:g}"
    lines.append(wrapped(f"Model    {spoken(fitted)} loss{why}; {features}{columns}", indent=" " * 9))
    return "\n".join(lines)


def _allowed(k: int | range) -> str:
    if isinstance(k, range):
        return f"at most {k[0]:,} to {k[-1]:,} features"
    return f"at most {k:,} feature{'s' * (k != 1)}"


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
    X = table.X if model.encoding is None else model.encoding.encode(table.X)
    return int(np.count_nonzero(np.isnan(as_design(X).constants(np.arange(model.n_features)))))


def _closing(results: Sequence[Result]) -> str:
    seconds, steps = sum(result.seconds for result in results), sum(result.n_iter for result in results)
    return f"Solved with {results[0].solver}: {steps:,} steps in {significant(seconds, 3)} s."


def _write_report(
    folder: str,
    model: SavedModel,
    results: Sequence[Result],
    effects: Sequence[NDArray[np.float64] | None],
    story: Story,
) -> list[str]:
    """Write the four files and return their paths, the page last."""
    labels = ["" if equation.label is None else str(equation.label) for equation in model.equations]
    curves = [Curve.of(result, "" if model.shared else label) for result, label in zip(results, labels, strict=False)]
    bars = [
        _bars(model, equation, label, effect)
        for label, equation, effect in zip(labels, model.equations, effects, strict=True)
    ]
    count = "{} of {:,} features".format(*model.counts)
    convergence = draw_convergence(curves, f"How far from the best possible? {spoken(model.loss)} loss, {count}")
    axis = "coefficient for one standard deviation of the feature" if model.standardize else "coefficient"
    coefficients = draw_coefficients(bars, f"Coefficients: {count}", axis + _direction(model) + _legend(model))
    os.makedirs(folder, exist_ok=True)
    files = {
        os.path.join(folder, "model.json"): to_json(model).encode(),
        os.path.join(folder, "convergence.png"): to_png(convergence),
        os.path.join(folder, "coefficients.png"): to_png(coefficients),
        os.path.join(folder, "report.html"): page(model, story).encode("utf-8", "replace"),
    }
    write_files(files)
    return list(files)


def _bars(model: SavedModel, equation: Equation, label: str, effect: NDArray[np.float64] | None) -> Bars:
    """Return what to draw of an equation; the features that are required get a mark."""
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

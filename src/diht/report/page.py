"""A report on a model as one HTML file that needs nothing else: no network, no script, no other file."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diht import __version__
from diht.datasets import atomic_write
from diht.numerics.arrays import Vector
from diht.numerics.digits import percent, rounded_down, short_percent, shown
from diht.persistence.model import Equation, Figures, Label, SavedModel
from diht.report.charts import INKS, Chart, Series, number, style
from diht.report.html import document, table
from diht.report.plots import Curve
from diht.report.text import (
    WIDE,
    allowed,
    certificate_sentences,
    direction,
    named,
    printable,
    quoted,
    significant,
    spoken,
)
from diht.result import Status

if TYPE_CHECKING:
    from diht.estimators.path import Path
    from diht.result import Model, Result

__all__ = [
    "PAGE_CSS",
    "Predictions",
    "Story",
    "charts_of",
    "feature_tables",
    "figure_tiles",
    "opening",
    "paragraphs",
    "path_bounds",
    "path_coefficients",
    "section",
    "text_of",
    "tile_row",
    "verdict",
    "write_page",
]

_TOL = 1e-4  # a relative gap that counts as none, by default
_SHOWN = 30  # features of a table; the others unfold
_CHARTS = 12  # of one kind: a chart a class
_NAMED = 7  # features whose coefficients are drawn along a path
_BINS = 10  # of probabilities
_POINTS = 1500  # of a scatter plot
_CELLS = 15  # classes of a confusion table
_MODELS = 10  # nearly as good
_LARGEST = 2.0  # multiple of the model's norm to which gaps are drawn
_NARROWER = 0.01  # by how much at least, in relative gap, for the chart to be drawn
_NEAR = 0.1  # by how much more, relative to the objective, they cost at most

PAGE_CSS = """
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:12px}
.tile b{display:block;font-size:1.35rem;font-weight:600;line-height:1.3;font-variant-numeric:tabular-nums}
@media(max-width:480px){.tile b{font-size:1.05rem}}
.tile span{font-size:.85rem;color:var(--faint)}
.features{width:100%;max-width:760px}
.features td{vertical-align:top;padding-bottom:7px}.features th,.features td{padding-right:8px}
.features td:first-child,.ties td{white-space:normal;overflow-wrap:anywhere;min-width:90px}
.features .badge{font-size:.7rem;padding:0 7px;margin-left:6px}
.bar{display:block;position:relative;height:6px;min-width:64px;margin-top:2px;background:var(--edge);border-radius:3px}
.bar i{position:absolute;top:0;height:6px;border-radius:3px;background:currentColor}
.confusion td{text-align:center;padding:4px 10px}.confusion th{overflow-wrap:anywhere}
.confusion td.right{font-weight:700}
.ties td,.ties th{text-align:left;vertical-align:top}
th{white-space:normal;vertical-align:bottom}
@media (max-width:480px){table{font-size:.8rem}th,td{padding-right:8px}.confusion td,.confusion th{padding:4px 5px}
.features td:first-child{min-width:70px}.features .badge{display:block;width:max-content;margin:2px 0 0}.bar{min-width:44px}}
.classes{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:8px 32px}
"""


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model predicts for samples whose targets are known.

    Attributes
    ----------
    y, predicted : arrays of shape (n,) or (n, number of targets)
        Targets and predictions: numbers, or classes.
    probabilities : array of shape (n, number of classes), or None
        Where the loss gives any.
    source : str
        Where the samples come from, in words.
    """

    y: NDArray[Any]
    predicted: NDArray[Any]
    probabilities: Vector | None
    source: str

    @classmethod
    def of(cls, estimator: Any, X: Any, y: ArrayLike, offset: ArrayLike | None = None) -> Predictions:
        """Ask an estimator."""
        known = {} if offset is None else {"offset": offset}
        targets = np.asarray(estimator._loss().columns_of(np.asarray(y)))
        predicted = np.asarray(estimator.predict(X, **known))
        if targets.shape != predicted.shape:
            each = "one target" if predicted.ndim == 1 else f"{predicted.shape[1]} targets"
            raise ValueError(f"y must hold {each} for each of the {len(predicted)} samples of X")
        likely = getattr(estimator, "predict_proba", None)
        tested = cls(targets, predicted, None if likely is None else np.asarray(likely(X)), "given to the report")
        return tested.checked(getattr(estimator, "classes_", np.empty(0)).tolist() or None)

    def checked(self, classes: Collection[Any] | None) -> Predictions:
        """Return itself; raise unless the targets are finite numbers, or among the classes."""
        if classes is None:
            if self.y.dtype.kind not in "biuf" or not np.all(np.isfinite(self.y)):
                raise ValueError("y must hold finite numbers")
        elif strangers := [label for label in self.y.tolist() if label not in classes]:
            raise ValueError(f"y holds {strangers[0]!r}, which is not among the model's classes")
        if not len(self.y):
            raise ValueError("y must hold at least one target")
        return self


@dataclass(frozen=True, eq=False)
class Story:
    """What is known of a model beyond what its file says, as far as it is.

    Attributes
    ----------
    tol : float
        The relative gap that counts as none.
    results : sequence of Result
        One a certificate: how the bounds closed, and which models are nearly as good.
    paths : sequence of Path
        One a certificate, of an estimator that chose k and lam.
    scores : mapping
        Its `cv_results_`.
    criterion : str
        What it chose by: "score", "1se" or the name of an information criterion.
    tested : Predictions, optional
        Predictions for known targets.
    """

    tol: float = _TOL
    results: Sequence[Result] = ()
    paths: Sequence[Path] = ()
    scores: Mapping[str, Any] | None = None
    criterion: str = "score"
    tested: Predictions | None = None

    @classmethod
    def of(cls, estimator: Any, X: Any = None, y: ArrayLike | None = None, offset: ArrayLike | None = None) -> Story:
        """Take what an estimator has learned, and its predictions where samples are given."""
        return cls(
            tol=float(estimator.tol),
            results=_as_list(getattr(estimator, "result_", [])),
            paths=_as_list(getattr(estimator, "path_", [])),
            scores=getattr(estimator, "cv_results_", None),
            criterion=getattr(estimator, "criterion", "score"),
            tested=None if X is None or y is None else Predictions.of(estimator, X, y, offset),
        )


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def write_page(model: SavedModel, path: str, story: Story) -> None:
    """Write the report; the file is there whole or as it was."""
    text = page(model, story)
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "replace"))


def page(model: SavedModel, story: Story) -> str:
    """Return the text of the report."""
    sections = [
        section("How good is it?", _certificate(model, story)),
        section("Features", feature_tables(model, story.results)),
        section("How the proof came about", _convergence(model, story)),
        section("How many features?", _choice(model, story)),
        section("What it predicts", "" if story.tested is None else _tested(model, story.tested)),
        section("Nearly as good", _ties(model, story)),
    ]
    title = f"A model with {_of_all(model)}"
    return document(title, PAGE_CSS + style(), _head(model, title), "".join(sections), _foot(model))


def section(heading: str, content: str) -> str:
    """Return a section of the page, if it has any content."""
    return f"<section><h2>{escape(heading)}</h2>{content}</section>\n" if content else ""


def text_of(words: str, width: int | None = None) -> str:
    """Return any text as HTML, without control characters."""
    return escape(printable(words, width))


def paragraphs(*sentences: str) -> str:
    """Return texts as paragraphs."""
    return "".join(f"<p>{text_of(sentence)}</p>" for sentence in sentences if sentence)


def _of_all(model: SavedModel) -> str:
    used, known = model.counts
    return f"{used:,} of {known:,} feature{'s' * (known != 1)}"


def _labels(model: SavedModel) -> list[str]:
    """What to call each certificate; nothing where there is one only."""
    return [""] if model.shared else [named(model, equation) for equation in model.equations]


def _listed(labels: Sequence[Label]) -> str:
    """Return the first of some labels, and how many more there are."""
    return ", ".join(map(quoted, labels[:12])) + (f" and {len(labels) - 12} more" if len(labels) > 12 else "")


# ------------------------------------------------------------------------------------------------------- what it is


def _head(model: SavedModel, title: str) -> str:
    data = model.data
    targets = model.targets or ()
    facts = {
        "data": f"{'' if data.file is None else data.file + ': '}{data.n_samples:,} samples, {model.counts[1]:,} features",
        "targets" if len(targets) > 1 else "target": _listed(targets),
        "classes": _listed(model.classes or ()),
        "allowed": allowed(model),
        "loss": f"{spoken(model.loss)}{_parameters(model)}",
        "ridge": f"lam = {model.lam:g}{', on standardised columns' if model.standardize else ''}",
        "intercept": "yes" if model.fit_intercept else "no",
        "date": datetime.fromisoformat(model.date).strftime("%Y-%m-%d %H:%M %Z").strip(),
    }
    return opening(title, facts)


def opening(title: str, facts: Mapping[str, str]) -> str:
    """Return the title of a page, and what it is about."""
    lines = "".join(
        f'<tr><th scope="row">{name}</th><td>{text_of(said)}</td></tr>' for name, said in facts.items() if said
    )
    return f'<h1>{text_of(title)}</h1><div class="scroll"><table class="about">{lines}</table></div>'


def _parameters(model: SavedModel) -> str:
    settings = ", ".join(f"{name} = {value:g}" for name, value in vars(model.loss).items() if isinstance(value, float))
    return f" ({settings})" if settings else ""


def _foot(model: SavedModel) -> str:
    return (
        f'<p class="faint" style="margin-top:48px">Written by diht {escape(__version__)}. A certificate is a proof, not an '
        "estimate: the lower bound holds for every model allowed, rounding errors included. It speaks of the objective on the "
        "samples that were fitted, not of samples to come.</p>"
    )


# -------------------------------------------------------------------------------------------------- the certificate


def _certificate(model: SavedModel, story: Story) -> str:
    worst = model.worst
    tol = max(story.tol, worst.relative_gap if worst.status is Status.OPTIMAL else 0.0)
    meaning, definition = certificate_sentences(model, tol)
    figures = _class_figures(model) if len(model.certificates) > 1 else figure_tiles(model)
    faint = f'<p class="faint">{text_of(definition)}</p>'
    card = f'<div class="card"><div>{verdict(worst.relative_gap, tol)}{paragraphs(meaning)}</div>{figures}<div>{faint}</div></div>'
    return card + ("" if worst.relative_gap <= tol else _bounded(model))


def verdict(gap: float, tol: float) -> str:
    """Return in two words how good a model with a relative gap is."""
    kind, word = ("yes", "✓ best possible") if gap <= tol else ("part", f"within {percent(gap)}")
    if gap > max(tol, WIDE):
        kind, word = "none", "wide gap"
    return f'<p><span class="badge {kind}">{word}</span></p>'


def figure_tiles(model: SavedModel) -> str:
    """Return objective, lower bound and gap."""
    figures = model.worst
    figure = shown(figures.objective, figures.lower_bound)
    tiles = {
        "objective, the smaller the better": figure.objective,
        "lower bound: no model allowed is below": figure.lower_bound,
        f"gap, {percent(figures.relative_gap)} of the objective": figure.gap,
    }
    return tile_row(tiles)


def tile_row(tiles: Mapping[str, str]) -> str:
    """Return figures, each by what it means, as tiles."""
    parts = "".join(
        f'<div class="tile"><b>{text_of(value)}</b><span>{text_of(word)}</span></div>' for word, value in tiles.items()
    )
    return f'<div class="tiles">{parts}</div>'


def _bounded(model: SavedModel) -> str:
    """Draw what is proved of models whose coefficients are bounded, where that is visibly more than what is proved of all."""
    pairs = zip(_labels(model), model.certificates, strict=True)
    charts = [_gap_by_norm(figures, label) for label, figures in pairs if _narrowing(figures) >= _NARROWER]
    note = (
        "The orange line is the gap to all models allowed. The blue one is narrower since it speaks of fewer models: only of those "
        "whose coefficients, together, are at most so many times as large as this model's (in Euclidean norm"
        f"{', on standardised columns' if model.standardize else ''}; the intercept apart). Of larger ones it says nothing."
    )
    return charts_of(charts, "norm", note)


def _narrowing(figures: Figures) -> float:
    """How much narrower the relative gap is for the models that are no larger than the found one."""
    return figures.relative_gap - figures.for_norm().relative_gap


def _gap_by_norm(figures: Figures, label: str) -> Chart:
    factors = _floats(np.linspace(1.0, _LARGEST, 41))
    gaps = [100.0 * figures.for_norm(factor).relative_gap for factor in factors]
    end = 1 + sum(gap < 100.0 * figures.relative_gap for gap in gaps)  # they rise until they meet the gap to all models
    bounded = Series("models of bounded size", factors[:end], gaps[:end])
    of_all = Series("all models", [1.0, bounded.x[-1]], [100.0 * figures.relative_gap] * 2, bound=True, ink="orange")
    title = f"Gap and size of coefficients{f', {label}' if label else ''}"
    return Chart(
        printable(title, 44), "gap, % of the objective", "size, in multiples of this model's", [bounded, of_all]
    )


def _class_figures(model: SavedModel) -> str:
    lines = [
        [
            printable(str(equation.label), 40),
            *shown(equation.figures.objective, equation.figures.lower_bound, 5)[:2],
            short_percent(equation.figures.relative_gap),
        ]
        for equation in model.equations
    ]
    return table("one model for each class against the rest", ["class", "objective", "lower bound", "gap"], lines)


# ---------------------------------------------------------------------------------------------------------- features


def feature_tables(model: SavedModel, results: Sequence[Result]) -> str:
    """Return the features of each equation, and what the columns mean; `results` know the effects of standard deviations."""
    effects = model.effects(results)
    tables = "".join(
        f"<div>{_heading(named(model, equation))}{_feature_table(model, equation, effect)}</div>"
        for equation, effect in zip(model.equations, effects, strict=True)
    )
    return (
        f'<div class="classes">{tables}</div>{paragraphs(direction(model), _required(model, effects[0] is not None))}'
    )


def _heading(label: str) -> str:
    return f"<h3>{text_of(label)}</h3>" if label else ""


def _of_group(model: SavedModel) -> str:
    """Say whose standard deviation it is, where the features of a group share one: the root of the mean of their variances."""
    if model.structure.groups is None:
        return ""
    return " of the column" if model.counts_columns else " of the group"


def _feature_table(model: SavedModel, equation: Equation, effects: Vector | None) -> str:
    if not len(equation.indices):
        return '<p class="faint">No feature has a coefficient.</p>' + _intercept(model, equation)
    size = np.asarray(equation.values if effects is None else effects, dtype=np.float64)
    order = np.argsort(-np.abs(size), kind="stable")
    heads = ["feature", "coefficient", *([f"per std. dev.{_of_group(model)}"] * (effects is not None))]
    heads += ["drop cost"] * bool(len(equation.required))
    rows = [_feature_row(model, equation, j, size, effects is not None) for j in order]
    head = "".join(f'<th scope="col">{word}</th>' for word in heads)
    parts = [
        f'<div class="scroll" tabindex="0"><table class="features"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(part)}</tbody></table></div>"
        for part in (rows[:_SHOWN], rows[_SHOWN:])
        if part
    ]
    rest = f"<details><summary>{len(rows) - _SHOWN:,} more</summary>{parts[1]}</details>" if len(parts) > 1 else ""
    return parts[0] + rest + _intercept(model, equation)


def _feature_row(model: SavedModel, equation: Equation, j: int, size: Vector, has_effects: bool) -> str:
    cost = float(equation.drop_cost[j])
    badge = '<span class="badge yes">required</span>' if 0 < cost < math.inf else ""
    badge = '<span class="badge none">kept</span>' if cost == math.inf else badge
    share = 50 * abs(size[j]) / np.abs(size).max()
    ink, side = ("blue", "left") if size[j] > 0 else ("orange", "right")
    bar = f'<span class="bar m-{ink}"><i style="{side}:50%;width:{share:.1f}%"></i></span>'
    cells = [f"<td>{text_of(model.name(equation.indices[j]))}{badge}</td>"]
    cells.append(f"<td>{significant(equation.values[j], 5)}{'' if has_effects else bar}</td>")
    if has_effects:
        cells.append(f"<td>{significant(size[j], 4)}{bar}</td>")
    if len(equation.required):
        cells.append(f"<td>{rounded_down(cost, 3) if 0 < cost < math.inf else ''}</td>")
    return f"<tr>{''.join(cells)}</tr>"


def _intercept(model: SavedModel, equation: Equation) -> str:
    return f"<p>Intercept: {significant(equation.intercept)}</p>" if model.fit_intercept else ""


def _required(model: SavedModel, has_effects: bool) -> str:
    """Say what the columns and marks mean."""
    sentences = []
    if has_effects:
        per = f"that per standard deviation{_of_group(model)}"
        sentences.append(f"A coefficient is in the units of the data; {per} can be compared.")
    costs = np.concatenate([equation.drop_cost for equation in model.equations])
    if np.any((costs > 0) & np.isfinite(costs)):
        sentences.append(
            "Required features are proved to be in every best possible model. Without one of them the objective is higher "
            "by its drop cost at least, whatever takes its place."
        )
    if np.any(np.isinf(costs)):
        sentences.append("Kept features were asked for.")
    excluded = model.worst.excluded
    if len(model.certificates) == 1 and excluded:
        sentences.append(
            f"Of the {model.n_features:,} {model.columns_in_words} {excluded:,} are proved to be in no best possible model."
        )
    return " ".join(sentences)


# ------------------------------------------------------------------------------------------------------------ charts


def charts_of(
    charts: Sequence[Chart], name: str, note: str = "", attributes: Callable[[Chart], str] = lambda chart: ""
) -> str:
    """Return charts side by side, with a note under them; `name` makes their ids unique in the page."""
    if not charts:
        return ""
    drawn = "".join(chart.svg(f"{name}-{i}", attributes(chart)) for i, chart in enumerate(charts[:_CHARTS]))
    more = f" The first {_CHARTS} of {len(charts)} are shown." if len(charts) > _CHARTS else ""
    said = f'<p class="faint">{text_of(note + more)}</p>' if note + more else ""
    return f'<div class="card"><div class="charts">{drawn}</div>{said}</div>'


def _floats(values: Any) -> list[float]:
    return [float(value) for value in values]


def _convergence(model: SavedModel, story: Story) -> str:
    pairs = zip(_labels(model), story.results, strict=False)
    charts = [_closing(Curve.of(result), label or "The two bounds") for label, result in pairs]
    charts = [chart for chart in charts if chart.series[0].x[0] < chart.series[0].x[-1]]  # a single step shows nothing
    steps = sum(result.n_iter for result in story.results)
    seconds = sum(result.seconds for result in story.results)
    note = f"Solved with {story.results[0].solver}: {steps:,} steps in {significant(seconds, 3)} s." if charts else ""
    return charts_of(charts, "trace", note)


def _closing(curve: Curve, title: str) -> Chart:
    """Best objective and best bound, from where both are near to where they end."""
    span = max(3.0 * (curve.objective[-1] - curve.bound[-1]), 0.8 * abs(curve.objective[-1]), 1e-12)
    near = (curve.objective <= curve.objective[-1] + span) & (curve.bound >= curve.bound[-1] - span)
    first = min(int(np.argmax(near)), len(near) - 1)
    t, P, D = (_stairs(values[first:]) for values in (curve.iterations, curve.objective, curve.bound))
    t = t[1:] + t[-1:]  # each value holds until the next step
    objective = Series("objective of the best model", t, P, D, P)
    bound = Series("lower bound", t, D, ink="orange")
    subtitle = f"gap {percent(curve.relative_gap)} in the end"
    return Chart(
        printable(title, 44),
        subtitle,
        "steps",
        [objective, bound],
        x_log=t[0] > 0 and t[-1] > 30 * t[0],
        x_whole=True,
        from_zero=False,
    )


def _stairs(values: Vector) -> list[float]:
    return [float(value) for value in values for _ in range(2)]


def _choice(model: SavedModel, story: Story) -> str:
    """Draw the scores, and the path of the lam that was chosen."""
    charts = [] if story.scores is None else [_scores(model, story)]
    for label, path in zip(_labels(model), story.paths, strict=False):
        charts.append(path_bounds(model, path, label))
        charts.append(path_coefficients(model, path, label))
    said = {
        "score": "k and lam have the best mean score of the folds; the band is one standard deviation of the folds' scores.",
        "1se": "k is the smallest within one standard error of the best mean score of the folds; the band is one standard "
        "deviation of the folds' scores.",
    }
    by_criterion = f"k and lam have the least {story.criterion.upper()} of the path of all samples."
    return charts_of([chart for chart in charts if chart.series], "path", said.get(story.criterion, by_criterion))


def _scores(model: SavedModel, story: Story) -> Chart:
    scores = story.scores or {}
    ks, lams = np.asarray(scores["param_k"]), np.asarray(scores["param_lam"])
    by_fold = "mean_test_score" in scores
    mean = np.asarray(scores["mean_test_score" if by_fold else story.criterion], dtype=np.float64)
    spread = np.asarray(scores["std_test_score"]) if by_fold else np.zeros(len(mean))
    series = []
    # The lam that was chosen comes first, and those nearest to it.
    for ink, lam in zip(INKS, sorted(set(lams), key=lambda lam: abs(math.log(lam / model.lam))), strict=False):
        own = (lams == lam) & np.isfinite(mean)
        x, y, error = _floats(ks[own]), mean[own], spread[own]
        curve = Series(f"lam = {lam:g}", x, _floats(y), ink=ink)
        if by_fold and lam == model.lam:
            curve = replace(curve, low=_floats(y - error), high=_floats(y + error))
        series.extend([curve] * bool(x))
    title = "Scores of samples left out" if by_fold else story.criterion.upper()
    subtitle = "mean over the folds: higher is better" if by_fold else "lower is better"
    return Chart(title, subtitle, "k", series, rules=_chosen(model), x_whole=True, from_zero=False)


def path_bounds(model: SavedModel, path: Path, label: str) -> Chart:
    """Draw objectives and lower bounds of the model's lam against k."""
    points = path.at(model.lam)
    ks, P, D = (_floats(getattr(point, name) for point in points) for name in ("k", "objective", "lower_bound"))
    series = [Series("objective", ks, P, D, P), Series("lower bound", ks, D, ink="orange")]
    title = f"Path{f', {label}' if label else ''}, lam = {model.lam:g}"
    subtitle = "objective and what is proved of it"
    name = path.constraint.level_name
    return Chart(printable(title, 44), subtitle, name, series, rules=_chosen(model), x_whole=name == "k")


def _chosen(model: SavedModel) -> list[tuple[float, str]]:
    return [(float(model.k), f"k = {model.k:g}")]


def path_coefficients(model: SavedModel, path: Path, label: str) -> Chart:
    """Draw the largest coefficients of the model's lam against k."""
    points = path.at(model.lam)
    used = np.unique(np.concatenate([point.support for point in points]))
    W = np.stack(
        [point.sizes[used] if model.standardize or point.coef.ndim > 1 else point.coef[used] for point in points]
    )
    largest = np.argsort(-np.abs(W).max(axis=0), kind="stable")[:_NAMED]
    ks = _floats(point.k for point in points)
    series = [
        Series(printable(model.name(used[j]), 22), ks, _floats(W[:, j]), ink=ink)
        for ink, j in zip(INKS, largest, strict=False)
    ]
    what = "norms of coefficients" if points[0].coef.ndim > 1 else "coefficients"
    what += f" per std. dev.{_of_group(model)}" if model.standardize else ""
    title = f"Coefficients{f', {label}' if label else ''}"
    subtitle, name = f"{what}, the largest {len(series)}", path.constraint.level_name
    return Chart(printable(title, 44), subtitle, name, series, x_whole=name == "k", from_zero=False)


# -------------------------------------------------------------------------------------------------------- predictions


def _tested(model: SavedModel, tested: Predictions) -> str:
    note = (
        f"<p>{len(tested.y):,} samples ({text_of(tested.source)}). If these are the samples that were fitted, figures for new "
        "samples will be worse.</p>"
    )
    return note + (_regressions(model, tested) if model.classes is None else _classification(model, tested))


def _regressions(model: SavedModel, tested: Predictions) -> str:
    """Show the errors of each target, those of the first few where there are many."""
    pairs = [np.atleast_2d(np.asarray(values, dtype=np.float64).T)[:_CHARTS] for values in (tested.y, tested.predicted)]
    parts = [
        _heading(named(model, equation)) + _regression(y, u, f"residuals-{i}")
        for i, (equation, y, u) in enumerate(zip(model.equations, *pairs, strict=False))
    ]
    more = len(model.equations) - len(parts)
    return "".join(parts) + (f'<p class="faint">{more} more targets are not shown.</p>' if more else "")


def _regression(y: Vector, u: Vector, name: str) -> str:
    """Show the errors of predictions u of targets y."""
    residual = y - u
    spread = float(np.square(y - y.mean()).sum())
    r2 = f"{1 - float(np.square(residual).sum()) / spread:.4g}" if spread > 0 else "not defined"
    tiles = {
        "R², the share of the variance explained": r2,
        "root of the mean squared error": significant(math.sqrt(float(np.square(residual).mean())), 4),
        "median of the absolute errors": significant(float(np.median(np.abs(residual))), 4),
    }
    shown = np.unique(np.linspace(0, len(y) - 1, min(len(y), _POINTS)).round().astype(np.int64))
    ends, low, high = [float(u.min()), float(u.max())], float(u.min()), float(u.max())
    zero = Series("no error", ends, [0.0, 0.0], bound=True, ink="grey")
    same = Series("no error", ends, [low, high], bound=True, ink="grey")
    errors = Series("a sample", _floats(u[shown]), _floats(residual[shown]), joined=False)
    values = Series("a sample", _floats(u[shown]), _floats(y[shown]), joined=False)
    charts = [
        Chart("Residuals", "target less prediction", "prediction", [errors, zero], from_zero=False),
        Chart("Targets", "target", "prediction", [values, same], from_zero=False),
    ]
    return f'<div class="card">{tile_row(tiles)}</div>{charts_of(charts, name)}'


def _classification(model: SavedModel, tested: Predictions) -> str:
    assert model.classes is not None
    codes = {label: i for i, label in enumerate(model.classes)}
    y, u = (np.array([codes[label] for label in labels.tolist()]) for labels in (tested.y, tested.predicted))
    tiles = {"of the samples are told right": f"{100 * float(np.mean(y == u)):.4g}%"}
    most = int(np.bincount(y).max())
    tiles["would be by always saying the most frequent class"] = f"{100 * most / len(y):.4g}%"
    charts = [] if tested.probabilities is None else [_calibration(model, tested.probabilities, y)]
    note = "Where the model says 30%, the class should be the right one 30% of the time: near the dashed line is good."
    note += " The band shows where the true frequency is in 95 of 100 cases (Wilson's interval)." * (
        len(model.classes) == 2
    )
    card = f'<div class="card">{tile_row(tiles)}{_confusion(model, y, u)}</div>'
    return card + charts_of(charts, "calibration", note)


def _confusion(model: SavedModel, y: NDArray[np.int64], u: NDArray[np.int64]) -> str:
    assert model.classes is not None
    if len(model.classes) > _CELLS:
        return ""
    counts = np.zeros((len(model.classes),) * 2, dtype=np.int64)
    np.add.at(counts, (y, u), 1)
    names = [text_of(str(label), 24) for label in model.classes]
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(
        f'<tr><th scope="row">{names[i]}</th>'
        + "".join(f"<td{' class=right' * (i == j)}>{count:,}</td>" for j, count in enumerate(row))
        + "</tr>"
        for i, row in enumerate(counts)
    )
    return (
        '<div><p class="faint">Samples by true class (rows) and predicted class (columns)</p><div class="scroll" tabindex="0">'
        f'<table class="confusion"><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table></div></div>'
    )


def _calibration(model: SavedModel, probabilities: Vector, y: NDArray[np.int64]) -> Chart:
    """Observed frequency against predicted probability, in equal bins; of two classes for the second one."""
    assert model.classes is not None
    several = len(model.classes) > 2
    chosen = range(len(model.classes)) if several else [1]
    perfect = Series("as predicted", [0.0, 100.0], [0.0, 100.0], bound=True, ink="grey")
    series = [
        _bins(printable(str(model.classes[c]), 18), probabilities[:, c], y == c, ink, not several)
        for ink, c in zip(list(INKS)[:6], chosen, strict=False)
    ]
    whose = "of each class" if several else f"of {quoted(model.classes[1])}"
    x_label = f"predicted probability {printable(whose, 30)}, %"
    return Chart("Calibration", "observed frequency", x_label, [*series, perfect], percent=True)


def _bins(name: str, p: Vector, right: NDArray[np.bool_], ink: str, banded: bool) -> Series:
    """Frequencies of bins that hold samples, with Wilson's intervals: those of few samples are wide, even at 0 and 100%."""
    places = np.minimum((_BINS * p).astype(np.int64), _BINS - 1)
    own = [places == place for place in np.unique(places)]
    n = np.array([bin_.sum() for bin_ in own])
    x, f = (np.array([values[bin_].mean() for bin_ in own]) for values in (p, right))
    middle = (f + 2 / n) / (1 + 4 / n)
    half = 2 * np.sqrt(f * (1 - f) / n + 1 / n**2) / (1 + 4 / n)
    curve = Series(name, _floats(100 * x), _floats(100 * f), ink=ink)
    return replace(curve, low=_floats(100 * (middle - half)), high=_floats(100 * (middle + half))) if banded else curve


# ------------------------------------------------------------------------------------------------------- near-ties


def _ties(model: SavedModel, story: Story) -> str:
    parts = []
    for label, support, result in zip(_labels(model), model.supports, story.results, strict=False):
        own = set(support.tolist())
        most = result.objective + _NEAR * abs(result.objective)
        near = (other for other in result.pool if other.objective <= most and set(other.support.tolist()) != own)
        others = list(islice(near, _MODELS))
        if others:
            parts.append(_heading(label) + _tie_table(model, result, own, others))
    if not parts:
        return ""
    note = "Other choices of features that the search met, the best first. There may be more; none is below the lower bound."
    return paragraphs(note) + "".join(parts)


def _tie_table(model: SavedModel, result: Result, own: set[int], others: Sequence[Model]) -> str:
    rows = []
    for other in others:
        support = set(other.support.tolist())
        more = max(other.objective - result.objective, 0.0) / max(abs(result.objective), np.finfo(float).tiny)
        cells = [f"+{number(100 * more)}%", _names(model, own - support), _names(model, support - own)]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f'<th scope="col">{word}</th>' for word in ("objective", "without", "but with"))
    return (
        f'<div class="scroll" tabindex="0"><table class="ties"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _names(model: SavedModel, features: set[int]) -> str:
    names = [text_of(model.name(j), 40) for j in sorted(features)]
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "") or "–"

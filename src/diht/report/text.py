"""A fit in words: the coefficients by name, the figures of the certificate, and what they mean."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diht.losses import Loss
from diht.numerics.digits import percent, rounded_down, short_percent, shown
from diht.persistence.model import Equation, Figures, Label, SavedModel, Structure
from diht.result import Status

__all__ = [
    "Context",
    "Finding",
    "allowed",
    "certificate_in_words",
    "certificate_sentences",
    "direction",
    "findings_in_words",
    "fit_report",
    "named",
    "percent",
    "printable",
    "quoted",
    "significant",
    "spoken",
    "wrapped",
]

WIDTH = 100
MAX_ROWS, MAX_CLASSES = 50, 20  # everything is in model.json
MAX_NAMES = 20  # in a sentence

WIDE = 0.1  # a relative gap above which the bound alone does not say much


@dataclass(frozen=True)
class Context:
    """What the words need beyond the model.

    Attributes
    ----------
    tol : float
        The relative gap that was asked for.
    n_varying : int
        How many columns of the data are not constant.
    interrupted : bool
        Whether Ctrl-C ended the solve.
    fitted : bool
        Whether the model was fitted just now, rather than given.
    exact : bool
        Whether branch and bound was at work.
    """

    tol: float
    n_varying: int
    interrupted: bool = False
    fitted: bool = True
    exact: bool = False


@dataclass(frozen=True, eq=False)
class Finding:
    """What a solve proved of the features of given equations that have a certificate, and the better ones that it met, if any."""

    required: NDArray[np.int64]
    excluded: NDArray[np.int64]
    better: tuple[Equation, ...] = ()


# ------------------------------------------------------------------------------------------------ words and figures


def printable(text: str, width: int | None = None) -> str:
    """Return a name without control characters, cut to a width."""
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return clean if width is None or len(clean) <= width else clean[: width - 3] + "..."


def significant(value: float, digits: int = 6) -> str:
    """Return a number with so many significant digits, trailing zeros kept out of the way."""
    return f"{float(value):.{digits}g}"


def quoted(label: Label | None) -> str:
    """Return a class, or the name of a target, as it is shown in a sentence."""
    return f'"{printable(label, 40)}"' if isinstance(label, str) else str(label)


def spoken(loss: Loss) -> str:
    """Return the name of a loss as it is shown in a sentence."""
    return loss.name.replace("_", " ")


def named(model: SavedModel, equation: Equation) -> str:
    """Say which of several equations it is, such as "class 3"; nothing where there is one only."""
    if len(model.equations) == 1:
        return ""
    return f"{'target' if model.classes is None else 'class'} {quoted(equation.label)}"


def _summed(model: SavedModel) -> str:
    """Say what losses are added up over, where equations share features and the loss is not one of all of them."""
    if not model.shared or model.loss.coupled:
        return ""
    return f", summed over the {len(model.equations)} {'targets' if model.classes is None else 'classes'},"


def wrapped(*sentences: str, indent: str = "") -> str:
    """Return sentences as lines of a text; all but the first begin with `indent`."""
    text = " ".join(filter(None, sentences))
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def allowed(model: SavedModel) -> str:
    """Say what a model may use, such as "at most 5 features"."""
    asked = model.structure
    counted = "group" if asked.groups is not None and not model.counts_columns else "feature"
    words = f"at most {_count(int(model.k), counted)}" if asked.rule is None else str(asked.own_constraint(model.k))
    words += " a class" if len(model.certificates) > 1 else ""
    words += f" besides the {_count(len(asked.keep), 'feature')} to keep" if asked.keep else ""
    words += " and with the signs asked for" if asked.sign is not None else ""
    return words + (" and within the limits asked for" if asked.limits is not None else "")


# ----------------------------------------------------------------------------------------------------- coefficients


def coefficient_table(model: SavedModel, equation: Equation, effects: NDArray[np.float64] | None) -> str:
    """Return the selected features, the strongest first.

    Where the columns were standardised, a second column shows `effects`, the change for one standard deviation of
    the feature. These can be compared with each other, so they give the order. Features that are proved to be required are
    marked and have their drop cost beside them.
    """
    size = np.abs(equation.values if effects is None else effects)
    order = np.argsort(-size, kind="stable")
    names = [printable(model.name(j), 48) for j in equation.indices[order[:MAX_ROWS]]]
    width = max([len(name) for name in (*names, "(intercept)", "feature")])
    header = f"  {'feature':<{width}}  {'coefficient':>13}"
    rows = [f"  {name:<{width}}  {significant(equation.values[j]):>13}" for name, j in zip(names, order, strict=False)]
    if effects is not None:
        header += f"  {'per std. dev.':>13}"
        rows = [f"{row}  {significant(effects[j], 4):>13}" for row, j in zip(rows, order, strict=False)]
    if len(equation.required):
        header += f"  {'drop cost':>11}"
        rows = [f"{row}  {_cost(equation.drop_cost[j])}".rstrip() for row, j in zip(rows, order, strict=False)]
    if len(order) > MAX_ROWS:
        rows.append(f"  ... and {len(order) - MAX_ROWS} more, all of them in model.json")
    if model.fit_intercept:
        rows.append(f"  {'(intercept)':<{width}}  {significant(equation.intercept):>13}")
    return "\n".join([header, *rows])


def _cost(cost: float) -> str:
    """Return a drop cost, rounded down, and the mark of a required feature; nothing where nothing is proved."""
    return f"{rounded_down(cost, 3):>11} *" if cost > 0 else ""


def _required(model: SavedModel) -> str:
    """Say what the mark means, where there is one, and how many features are out."""
    sentences = []
    if any(len(equation.required) for equation in model.equations):
        each = " for the class" if len(model.certificates) > 1 else ""
        sentences.append(
            f"Features with a * are required: proved to be in every best possible model{each} with {allowed(model)}. "
            "Without one of them the objective is higher by its drop cost at least, whatever takes its place."
        )
    if len(model.certificates) == 1 and (out := model.worst.excluded):
        sentences.append(
            f"{out:,} of the {model.n_features:,} {model.columns_in_words} {_are(out)} proved to be in no best possible model."
        )
    return " ".join(sentences)


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _heading(model: SavedModel, equation: Equation) -> str:
    who = f" for {name}" if (name := named(model, equation)) else ""
    if not len(equation.indices):
        return f"Selected features{who}: none"
    if model.encoding is not None:
        used, known = model.encoding.needed(equation.indices), model.encoding.needed()
        return f"Selected features{who}: {len(used)} of {len(known):,}, strongest first"
    return f"Selected features{who}: {len(equation.indices)} of {model.n_features:,}, strongest first"


def direction(model: SavedModel) -> str:
    """Say what the sign of a coefficient means."""
    if model.classes is None:
        return ""
    if len(model.classes) == 2:
        low, high = map(quoted, model.classes)
        return f"A positive coefficient speaks for {high}, a negative one for {low}."
    return (
        "A positive coefficient speaks for the class, a negative one against it; the class with the largest sum wins."
    )


def _fewer(model: SavedModel, context: Context) -> str:
    """Explain a model with fewer features than allowed."""
    each = len(model.certificates) > 1
    sizes = [len(support) for support in model.supports]
    lacking = [figures for figures, size in zip(model.certificates, sizes, strict=True) if size < model.k]
    if not lacking or model.structure != Structure():
        return ""
    most = min(sizes)
    who = "Some classes use" if each else "The model uses"
    start = f"{who} {'only ' + str(most) if each else most} of the {model.k} features allowed:"
    if context.n_varying < model.k:
        return f"{start} only {_count(context.n_varying, 'column')} of the data vary at all."
    if any(figures.relative_gap > context.tol for figures in lacking):
        return f"{start} all other coefficients came out as exactly zero in the best model found."
    return f"{start} no further feature lowers the objective, so all other coefficients are exactly zero."


# ------------------------------------------------------------------------------------------------------ certificate


def _figure_lines(model: SavedModel, figures: Figures) -> str:
    total, figure = _summed(model), shown(figures.objective, figures.lower_bound)
    rows = [
        (
            "objective",
            figure.objective,
            f"average {spoken(model.loss)} loss{total} plus ridge{'' if total else ', the figure to minimise'}",
        ),
        (
            "lower bound",
            figure.lower_bound,
            f"no model with {allowed(model)} is better by more than the gap"
            if figure.closed
            else f"proved: no model with {allowed(model)} is below this",
        ),
        ("gap", figure.gap, f"{percent(figures.relative_gap)} of the objective"),
    ]
    return "\n".join(f"  {name:<12} {value:>14}   {meaning}" for name, value, meaning in rows)


def _figure_table(model: SavedModel) -> str:
    """One line a class."""
    first = model.equations[:MAX_CLASSES]
    labels = [printable(str(equation.label), 30) for equation in first]
    width = max(len("class"), *map(len, labels))
    header = f"  {'class':<{width}}  {'features':>8}  {'objective':>12}  {'lower bound':>14}  {'gap':>9}"
    figures = [equation.figures for equation in first]
    rows = [
        f"  {label:<{width}}  {len(equation.indices):>8}  {figure.objective:>12}  {figure.lower_bound:>14}  "
        f"{short_percent(equation.figures.relative_gap):>9}"
        for label, equation, figure in zip(
            labels, first, (shown(each.objective, each.lower_bound) for each in figures), strict=True
        )
    ]
    return "\n".join([header, *rows, *_more_classes(model)])


def _more_classes(model: SavedModel) -> list[str]:
    more, what = len(model.equations) - MAX_CLASSES, "targets" if model.classes is None else "classes"
    return [f"  ... and {more} more {what}, all of them in model.json"] if more > 0 else []


def _meaning(model: SavedModel, context: Context) -> str:
    """Say what the gap proves, in a sentence that can be quoted with the model."""
    gap, limit = model.worst.relative_gap, allowed(model)
    who = "This" if context.fitted else "Your"
    each = " (for the worst of the classes)" if len(model.certificates) > 1 else ""
    if gap <= context.tol:
        figure = shown(model.worst.objective, model.worst.lower_bound)
        optimal = figure.closed
        up_to = "" if optimal else f", up to {percent(gap)} of its objective"
        return (
            f"{who} model is the best possible with {limit}{up_to}{each}: no other choice of features, with whatever "
            f"coefficients, can be better by more than {figure.gap if optimal else 'that'}."
        )
    return (
        f"{who} model is within {percent(gap)} of the best possible with {limit}{each}: whichever features are chosen "
        "and whatever their coefficients, no objective can be lower than this one by more than that."
    )


def _definition(model: SavedModel) -> str:
    scaled = " of the standardised columns" if model.standardize else ""
    return (
        f"The objective is the average {spoken(model.loss)} loss over the data{_summed(model)} plus "
        f"{significant(model.lam / 2)} times the sum of the squared coefficients{scaled}; the lower bound comes from the dual "
        "problem and holds for every choice of features."
    )


def _advice(model: SavedModel, context: Context) -> str:
    """Say why the gap is open, and what would close it."""
    figures = model.worst
    gap = figures.relative_gap
    if gap <= context.tol:
        return ""
    sentences = [_open_gap(figures)]
    sentences.append(f"To narrow the gap: {_remedies(model, figures.status, context.exact)}.")
    if context.fitted:
        sentences.append(f"To accept it: --tol {_round_up(gap):g}.")
    return " ".join(sentences)


def _open_gap(figures: Figures) -> str:
    wide = "That is a wide gap: the model may well be the best one all the same, but this has not been proved. "
    return f"{wide if figures.relative_gap > WIDE else ''}The solve ended because {_reason(figures.status)}."


def certificate_sentences(model: SavedModel, tol: float) -> list[str]:
    """Return what the certificate of a fitted model means, and how its figures are defined."""
    meaning = _meaning(model, Context(tol, model.n_features))
    figures = model.worst
    if figures.relative_gap > tol:
        meaning += f" {_open_gap(figures)}"
    return [meaning, _definition(model)]


def _reason(status: Status) -> str:
    return {Status.STOPPED: "it was asked to stop", Status.STALLED: "neither figure improved any more"}.get(
        status, status.meaning
    )


def _remedies(model: SavedModel, status: Status, exact: bool) -> str:
    ridge = f"fit with a larger ridge (--lam {10 * model.lam:g}), for which the bound is tighter"
    if status is Status.TIME_LIMIT:
        return f"give more time (--time-limit), or {ridge}"
    if status is Status.MAX_ITER:
        return f"allow more iterations (--max-iter), or {ridge}"
    if status is Status.STOPPED:
        return f"let it run longer, or {ridge}"
    return ridge if exact else f"search on with --exact (and a --time-limit, for it may take long), or {ridge}"


def _round_up(gap: float) -> float:
    """Return the gap rounded up to one significant digit."""
    exponent = math.floor(math.log10(gap)) if 0 < gap < math.inf else 0
    return math.ceil(gap / 10.0**exponent) * 10.0**exponent


def certificate_in_words(model: SavedModel, context: Context, findings: Sequence[Finding] = ()) -> str:
    """Return the figures of the certificate and what they mean; and what was found about a given model."""
    several = len(model.certificates) > 1
    figures = _figure_table(model) if several else _figure_lines(model, model.worst)
    return "\n\n".join(
        filter(
            None,
            [
                f"How good is it?\n{figures}",
                wrapped(_meaning(model, context), _definition(model)),
                "" if any(finding.better for finding in findings) else wrapped(_advice(model, context)),
                findings_in_words(model, findings) if findings else "",
            ],
        )
    )


# ----------------------------------------------------------------------------------------------------- given models


def findings_in_words(model: SavedModel, findings: Sequence[Finding]) -> str:
    """Say which features of a given model are proved required or excluded, and which model is better."""
    parts = [model.equations] if model.shared else [(equation,) for equation in model.equations]
    return "\n\n".join(
        _finding(model, *part) for part in list(zip(parts, model.supports, findings, strict=True))[:MAX_CLASSES]
    )


def _finding(model: SavedModel, equations: Sequence[Equation], own: NDArray[np.int64], finding: Finding) -> str:
    name = named(model, equations[0]) if len(equations) == 1 else ""
    who = f"{name[0].upper()}{name[1:]}: w" if name else "W"
    kept, missing = np.intersect1d(own, finding.required), np.setdiff1d(finding.required, own)
    wrong, others = np.intersect1d(own, finding.excluded), np.setdiff1d(finding.excluded, own)
    lines = [
        _proved(model, kept, "required", "in every best possible model"),
        _proved(model, missing, "missing", "in every best possible model, but not in yours"),
        _proved(model, wrong, "excluded", "in no best possible model"),
    ]
    if len(others):
        unused = model.n_features - len(own)
        lines.append(
            f"  Of the {_count(unused, 'feature')} not in your model {len(others):,} {_are(len(others))} excluded."
        )
    if not any(lines):
        lines = ["  Nothing: the gap is too wide for that."]
    parts = ["\n".join([f"{who}hat is proved of single features?", *filter(None, lines)])]
    if finding.better:
        parts.append(_better(model, own, equations[0].figures.objective, finding.better))
    return "\n\n".join(parts)


def _proved(model: SavedModel, features: NDArray[np.int64], word: str, meaning: str) -> str:
    if not len(features):
        return ""
    names = ", ".join(printable(model.name(j), 48) for j in features[:MAX_NAMES])
    more = f" and {len(features) - MAX_NAMES:,} more" if len(features) > MAX_NAMES else ""
    text = f"{names}{more} ({meaning})"
    return textwrap.fill(
        text, WIDTH, initial_indent=f"  {word:<9} ", subsequent_indent=" " * 12, break_long_words=False
    )


def _better(model: SavedModel, own: NDArray[np.int64], objective: float, better: Sequence[Equation]) -> str:
    """Show a model that is better than the given one, and how it differs."""
    found, value = np.unique(np.concatenate([equation.indices for equation in better])), better[0].figures.objective
    changes = [
        _proved(model, np.setdiff1d(found, own), "new", "not in your model"),
        _proved(model, np.setdiff1d(own, found), "gone", "in yours only"),
    ]
    saved = 1.0 - value / objective
    with_what = "" if any(changes) else " with the same features"
    lower = f", {significant(100 * saved, 2)}% lower" if saved > 0 else ""
    tables = [
        line
        for equation in better[:MAX_CLASSES]
        for line in (
            [f"For {named(model, equation)}:"] * (len(better) > 1) + [coefficient_table(model, equation, None)]
        )
    ]
    note = f"A better model was found{with_what}: objective {significant(value)}{lower}"
    return "\n".join([note, *filter(None, changes), *tables, *(_more_classes(model) if len(better) > 1 else [])])


# ------------------------------------------------------------------------------------------------------------ a fit


def fit_report(model: SavedModel, effects: Sequence[NDArray[np.float64] | None], context: Context) -> str:
    """Return everything that `diht fit` says about the model."""
    tables = [
        f"{_heading(model, equation)}\n{coefficient_table(model, equation, effect)}"
        for equation, effect in zip(model.equations[:MAX_CLASSES], effects, strict=False)
    ] + _more_classes(model)
    note = "Stopped by Ctrl-C: this is the best model found so far." if context.interrupted else ""
    units = "The coefficients are in the units of the data." if model.standardize else ""
    words = wrapped(direction(model), units, _fewer(model, context))
    proved = wrapped(_required(model))
    return "\n\n".join(filter(None, [note, *tables, words, proved, certificate_in_words(model, context)]))

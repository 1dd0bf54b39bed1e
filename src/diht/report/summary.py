"""A fitted model on one screen: features, what they do, how good the model is, and how well it predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from diht.numerics.arrays import Vector
from diht.numerics.digits import rounded_down, shown
from diht.persistence.model import Equation, SavedModel
from diht.report.page import Story
from diht.report.scores import scores
from diht.report.text import (
    MAX_CLASSES,
    MAX_ROWS,
    allowed,
    certificate_sentences,
    direction,
    named,
    printable,
    significant,
    spoken,
    wrapped,
)

if TYPE_CHECKING:
    from pandas import DataFrame

    from diht.estimators.inference import Intervals

__all__ = ["Summary"]

_NAME = 28  # characters of a feature's name in text

_FIXED = (
    "They are those of someone who had these features in mind before seeing the data: if the same data chose the features, the "
    "intervals are too short."
)
_RESELECTED = "The features were chosen anew in every resample: the intervals show how much the whole procedure varies."
_HTML = {"td": 'style="text-align:right"', "th": 'style="text-align:right"'}


@dataclass(frozen=True, eq=False)
class Summary:
    """What `model.summary()` returns: a text when it is printed, tables in a notebook, and a data frame.

    Attributes
    ----------
    model : SavedModel
        The model.
    kind : str
        What it is, such as "SparseClassifier".
    effects : sequence of arrays, or of None
        For each equation the coefficients of the standardised columns.
    tol : float
        The relative gap that counts as none.
    scores : mapping from str to float
        Of predictions for `n_scored` samples, where some were given.
    intervals : Intervals, optional
        Of the coefficients.
    """

    model: SavedModel
    kind: str
    effects: Sequence[Vector | None]
    tol: float
    scores: Mapping[str, float] = field(default_factory=dict)
    n_scored: int = 0
    intervals: Intervals | None = None

    @classmethod
    def of(
        cls,
        estimator: Any,
        model: SavedModel,
        X: Any = None,
        y: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        intervals: Intervals | None = None,
    ) -> Summary:
        """Take a fitted estimator, and what it predicts for samples where some are given."""
        story = Story.of(estimator, X, y, offset)
        tested, found, n = story.tested, {}, 0
        if tested is not None:
            found = scores(tested.y, tested.predicted, tested.probabilities, _classes(estimator))
            n = len(tested.y)
        effects = model.effects(story.results)
        return cls(model, type(estimator).__name__, effects, story.tol, found, n, intervals)

    def columns(self, i: int) -> dict[str, Vector]:
        """Return the columns of the table of an equation, features in the order of the equation, the intercept last.

        "coefficient" is in the units of the data, "per s.d." for one standard deviation of the feature. "odds ratio" is what one
        unit more multiplies the odds by ("mean ratio" the mean, of losses with a logarithmic link), "ratio per s.d." what one
        standard deviation does. "drop cost" is what the objective of every model without the feature is higher by at least,
        infinite for features to keep; "low" and "high" are the ends of an interval. NaN stands for what is not known.
        """
        equation, effects = self.model.equations[i], self.effects[i]
        last = [equation.intercept] if self.model.fit_intercept else []
        none = [np.nan] * len(last)
        columns = {"coefficient": np.append(equation.values.astype(np.float64), last)}
        if effects is not None:
            columns["per s.d."] = np.append(effects, none)
        ratio = _ratio(self.model)
        if ratio:
            with np.errstate(over="ignore"):
                columns[ratio] = np.append(np.exp(equation.values.astype(np.float64)), none)
                if effects is not None:
                    columns["ratio per s.d."] = np.append(np.exp(effects), none)
        if len(equation.required):
            columns["drop cost"] = np.append(np.where(equation.drop_cost > 0, equation.drop_cost, np.nan), none)
        if self.intervals is not None:
            columns |= _ends(self.intervals, equation, i, len(last))
        return columns

    def _features(self, equation: Equation) -> list[str]:
        return [self.model.name(j) for j in equation.indices] + ["(intercept)"] * bool(self.model.fit_intercept)

    def _order(self, i: int) -> NDArray[np.intp]:
        """The strongest first, the intercept last."""
        columns, n = self.columns(i), len(self.model.equations[i].indices)
        size = np.abs(columns.get("per s.d.", columns["coefficient"])[:n])
        return np.append(np.argsort(-size, kind="stable"), np.arange(n, len(columns["coefficient"])))

    def _rows(self, i: int) -> list[list[str]]:
        """The cells of an equation's table, its heads first."""
        columns, equation = self.columns(i), self.model.equations[i]
        features = self._features(equation)
        heads = [head for head in columns if head not in ("low", "high")]
        rows = [["feature", *heads, *(["interval"] if "low" in columns else [])]]
        order, n = self._order(i), len(equation.indices)
        for j in [*order[: min(n, MAX_ROWS)], *order[n:]]:
            cells = [_cell(head, float(columns[head][j])) for head in heads]
            if "low" in columns:
                low, high = columns["low"][j], columns["high"][j]
                cells.append("" if np.isnan(low) else f"[{significant(low, 4)}, {significant(high, 4)}]")
            rows.append([features[j], *cells])
        if n > MAX_ROWS:
            rows.insert(MAX_ROWS + 1, [f"... and {n - MAX_ROWS} more", *[""] * (len(rows[0]) - 1)])
        return rows

    # Words

    def _title(self) -> str:
        model = self.model
        used, among = model.counts
        size = f"{used:,} of {among:,} features"
        return f"{self.kind}: {size}, {spoken(model.loss)} loss, lam = {model.lam:g}"

    def _certificate(self) -> list[str]:
        """What is proved, in a sentence, and the figures."""
        figures = self.model.worst
        figure = shown(figures.objective, figures.lower_bound)
        bound = figure.lower_bound if figure.closed else f"lower bound {figure.lower_bound}"
        line = f"objective {figure.objective}, {bound}, gap {figure.gap}"
        worst = " (the widest gap of the classes)" if len(self.model.certificates) > 1 else ""
        return [certificate_sentences(self.model, self.tol)[0], f"{line.capitalize()}{worst}."]

    def _remarks(self) -> list[str]:
        model = self.model
        said = [direction(model)]
        if any(len(equation.required) for equation in model.equations):
            said.append(
                f"Features with a * are proved to be in every best possible model with {allowed(model)}; without one of them the "
                "objective is higher by its drop cost at least, whatever takes its place."
            )
        return [sentence for sentence in said if sentence]

    def _scored(self) -> list[str]:
        if not self.scores:
            return []
        figures = ", ".join(f"{name} {significant(value, 4)}" for name, value in self.scores.items())
        note = "If these are the samples that were fitted, figures for new samples will be worse."
        return [f"On {self.n_scored:,} samples: {figures}. {note}"]

    def _interval_words(self) -> list[str]:
        if self.intervals is None:
            return []
        level = f"Intervals are bootstrap intervals of {100 * self.intervals.confidence_level:g}%."
        return [f"{level} {_RESELECTED if self.intervals.reselected else _FIXED}"]

    def __str__(self) -> str:
        tables = []
        for i, equation in enumerate(self.model.equations[:MAX_CLASSES]):
            name = named(self.model, equation)
            tables.append((f"For {name}:\n" if name else "") + _aligned(self._rows(i)))
        words = [self._certificate(), self._remarks(), self._scored(), self._interval_words()]
        return "\n\n".join([self._title(), *tables, *(wrapped(*part) for part in words if part)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(self._title())}</b></p>"]
        for i, equation in enumerate(self.model.equations[:MAX_CLASSES]):
            name = named(self.model, equation)
            parts.append(f"<p>{escape(printable(name))}</p>" if name else "")
            parts.append(_html_rows(self._rows(i)))
        words = [self._certificate(), self._remarks(), self._scored(), self._interval_words()]
        parts += [f"<p>{escape(printable(' '.join(part)))}</p>" for part in words if part]
        return f'<div class="diht-summary">{"".join(parts)}</div>'

    def to_frame(self) -> DataFrame:
        """Return the table as a data frame; needs pandas."""
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install pandas") from None
        frames = []
        for i, equation in enumerate(self.model.equations):
            order, features = self._order(i), self._features(equation)
            columns: dict[str, Any] = {name: values[order] for name, values in self.columns(i).items()}
            label = {} if len(self.model.equations) == 1 else {"equation": equation.label}
            frames.append(pd.DataFrame(label | {"feature": [features[j] for j in order]} | columns))
        return pd.concat(frames, ignore_index=True)


def _classes(estimator: Any) -> list[Any] | None:
    return estimator.classes_.tolist() if hasattr(estimator, "classes_") else None


def _ratio(model: SavedModel) -> str:
    """What exp of a coefficient is called, where it has a name: not with a softmax, whose coefficients are not those of odds."""
    if model.loss.link == "log":
        return "mean ratio"
    return "odds ratio" if model.loss.link == "logit" and not model.loss.coupled else ""


def _ends(intervals: Intervals, equation: Equation, i: int, n_last: int) -> dict[str, Vector]:
    """The ends of intervals for the terms of an equation; NaN for a term that they do not know."""
    own = np.flatnonzero(intervals.equation == i)
    place = dict(zip(intervals.feature[own].tolist(), own.tolist(), strict=True))
    terms = [*equation.indices.tolist(), *[-1] * n_last]
    found = [place.get(j) for j in terms]
    low, high = (
        np.array([np.nan if p is None else float(ends[p]) for p in found]) for ends in (intervals.low, intervals.high)
    )
    return {"low": low, "high": high}


def _cell(head: str, value: float) -> str:
    if np.isnan(value):
        return ""
    if head != "drop cost":
        return significant(value, 5 if head == "coefficient" else 4)
    return "kept" if np.isinf(value) else f"{rounded_down(value, 3)} *"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return cells as a text, names at the left and figures at the right."""
    names = [printable(row[0], _NAME) for row in rows]
    widths = [max(map(len, names)), *(max(len(row[j]) for row in rows) for j in range(1, len(rows[0])))]
    return "\n".join(
        f"  {name:<{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for name, row in zip(names, rows, strict=True)
    )


def _html_rows(rows: Sequence[Sequence[str]]) -> str:
    """Return cells as a table in the style of a notebook."""

    def line(row: Sequence[str], tag: str) -> str:
        first = f'<th style="text-align:left">{escape(printable(row[0]))}</th>'
        return f"<tr>{first}{''.join(f'<{tag} {_HTML[tag]}>{escape(cell)}</{tag}>' for cell in row[1:])}</tr>"

    body = "".join(line(row, "td") for row in rows[1:])
    return (
        f'<div style="overflow-x:auto"><table><thead>{line(rows[0], "th")}</thead><tbody>{body}</tbody></table></div>'
    )

"""A path for people: a table of its points, and a page with a slider over k and lam."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diht import __version__
from diht.datasets import atomic_write
from diht.numerics.digits import short_percent, shown
from diht.persistence.model import Data, Equation, Figures, SavedModel, Structure, equation_labels
from diht.report.charts import Chart, Drawing, style
from diht.report.html import document, table
from diht.report.page import (
    PAGE_CSS,
    Predictions,
    charts_of,
    feature_tables,
    figure_tiles,
    opening,
    paragraphs,
    path_bounds,
    path_coefficients,
    section,
    text_of,
    tile_row,
    verdict,
)
from diht.report.scores import scores
from diht.report.text import certificate_sentences, printable, significant, spoken
from diht.result import Status

if TYPE_CHECKING:
    from diht.estimators.path import Path, PathPoint

__all__ = ["path_heads_and_rows", "path_html", "path_text", "point_scores", "write_path_page"]

_MOST_ROWS = 40  # of a table in a terminal or a notebook; the first and the last half of them
_OPEN = 30  # rows of the table of the page that do not unfold
_NAMED = 24  # features in a sentence
_CRITERIA = "aic", "bic", "ebic"
_TOL = 1e-4  # a relative gap that counts as none, whatever the path was asked for

_CSS = """
.controls{position:sticky;top:0;z-index:1;background:var(--paper);border-bottom:1px solid var(--edge);padding:8px 0 12px;
display:grid;
gap:4px 28px;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr))}
.controls label{display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 12px}
.controls output{font-weight:600;font-variant-numeric:tabular-nums}
.controls input{width:100%;min-width:0;height:32px;margin:0;accent-color:var(--link)}
.controls input:focus-visible{outline:2px solid var(--link);outline-offset:2px;border-radius:6px}
.step{display:grid;grid-template-columns:44px 1fr 44px;gap:0 8px;align-items:center}
.step button{height:36px;border:1px solid var(--edge);border-radius:8px;background:var(--card);color:inherit;font:inherit}
.step button:disabled{opacity:.4}
.cursor{stroke:currentColor;stroke-width:1.4;stroke-dasharray:2 3}
.point h3{margin-top:16px}
[hidden]{display:none!important}
@media print{.controls{position:static}}
"""

# Panels and charts are whole without it; it shows one at a time.
_SCRIPT = """
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const K = document.getElementById("k"), L = document.getElementById("lam");
  const panels = [...document.querySelectorAll("[data-point]")], groups = [...document.querySelectorAll("[data-lam]")];
  function show() {
    const i = +K.value, j = L ? +L.value : 0;
    for (const panel of panels) panel.hidden = panel.dataset.point !== i + "," + j;
    for (const group of groups) group.hidden = +group.dataset.lam !== j;
    for (const [input, words] of [[K, data.k[i]], [L, data.lam[j]]]) {
      if (!input) continue;
      input.setAttribute("aria-valuetext", words);
      document.getElementById(input.id + "-now").textContent = words;
      const [less, more] = input.parentElement.querySelectorAll("button");
      less.disabled = +input.value <= 0;
      more.disabled = +input.value >= +input.max;
    }
    for (const chart of document.querySelectorAll("svg[data-x]")) {
      let line = chart.querySelector(".cursor");
      if (!line) {
        line = document.createElementNS("http://www.w3.org/2000/svg", "line");
        line.setAttribute("class", "cursor");
        line.setAttribute("y1", chart.dataset.top);
        line.setAttribute("y2", chart.dataset.bottom);
        chart.append(line);
      }
      const x = JSON.parse(chart.dataset.x)[data.ks[i]];
      line.setAttribute("visibility", x === undefined ? "hidden" : "visible");
      if (x !== undefined) for (const end of ["x1", "x2"]) line.setAttribute(end, x);
    }
  }
  for (const input of [K, L]) {
    if (!input) continue;
    input.addEventListener("input", show);
    input.parentElement.querySelectorAll("button").forEach((button, side) => button.addEventListener("click", () => {
      input.value = +input.value + (side ? 1 : -1);
      show();
    }));
  }
  document.querySelector(".controls").hidden = false;
  show();
})();
"""


# ----------------------------------------------------------------------------------------------------------- a table


def path_heads_and_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the table of a path: one row a point; lam where there are several, BIC where the loss is a likelihood."""
    several, likely = len(path.lams) > 1, path.loss.is_likelihood
    heads = ["k", *["lam"] * several, "features", "objective", "lower bound", "gap", "required", *["BIC"] * likely]
    bic = path.criterion("bic") if likely else np.zeros(len(path))
    rows = []
    for point, criterion in zip(path, bic, strict=True):
        figure = shown(point.objective, point.lower_bound)
        used, required = (len(path.columns(features)) for features in (point.support, point.certificate.required))
        cells = [f"{point.k:g}", *[f"{point.lam:g}"] * several, f"{used:,}", figure.objective]
        cells += [figure.lower_bound, short_percent(point.relative_gap), f"{required:,}"]
        rows.append(cells + [significant(criterion, 6)] * likely)
    return heads, rows


def _title(path: Path) -> str:
    lam = f", lam = {path.lams[0]:g}" if len(path.lams) == 1 else ""
    return f"Path of {len(path)} model{'s' * (len(path) != 1)}: {spoken(path.loss)} loss{lam}, {_data(path)}"


def _data(path: Path) -> str:
    d = len(path.feature_names) if path.encoding is None else len(path.encoding.needed())
    return f"{path.n_samples:,g} samples, {d:,} feature{'s' * (d != 1)}"


def _shortened(rows: list[list[str]]) -> list[list[str]]:
    half = _MOST_ROWS // 2
    return rows if len(rows) <= _MOST_ROWS else [*rows[:half], ["..."] * len(rows[0]), *rows[-half:]]


def path_text(path: Path) -> str:
    """Return the table as a text."""
    heads, rows = path_heads_and_rows(path)
    rows = [heads, *_shortened(rows)]
    widths = [max(len(row[j]) for row in rows) for j in range(len(heads))]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([_title(path), *lines])


def path_html(path: Path) -> str:
    """Return the table for a notebook."""
    heads, rows = path_heads_and_rows(path)
    return table(_title(path), heads, _shortened(rows))


# ---------------------------------------------------------------------------------------------------------- one point


def point_model(path: Path, point: PathPoint, fit_intercept: bool) -> SavedModel:
    """Return a point as the model that its page shows."""
    rows, classes = np.atleast_2d(point.coef), path.classes or None
    d, constraint = rows.shape[1], path.constraint
    targets = tuple(f"y{i}" for i in range(len(rows))) if classes is None and len(rows) > 1 else None
    figures = Figures.of(point.certificate, point.result.status)
    parts = zip(equation_labels(classes, targets), rows, np.atleast_1d(point.intercept), strict=True)
    groups = () if path.encoding is None or path.counted == "groups" else tuple(path.encoding.groups.tolist())
    asked = Structure(
        keep=tuple(constraint.free(d)[1].tolist()),
        groups=None if constraint.unit_size == 1 else groups,
        limits=None if constraint.limits is None else ((), ()),
        rule=constraint.stated(),
    )
    return SavedModel(
        loss=path.loss,
        k=point.k,
        lam=point.lam,
        fit_intercept=fit_intercept,
        standardize=point.certificate.scaled,
        dtype=str(rows.dtype),
        n_features=d,
        feature_names=path.feature_names,
        classes=classes,
        targets=targets,
        equations=tuple(
            Equation(label, np.flatnonzero(row), row[np.flatnonzero(row)], float(b), figures) for label, row, b in parts
        ),
        data=Data(None, round(path.n_samples), None, None),
        structure=asked,
        shared=len(rows) > 1,
        encoding=path.encoding,
    )


@dataclass(frozen=True, eq=False)
class Known:
    """Samples with known targets, to score every model of a path on."""

    X: Any
    y: NDArray[Any]

    def checked(self, path: Path) -> Known:
        """Return itself; raise unless X has the columns of the path, and y targets of its kind for each row."""
        n, d = self.X.shape
        if d != len(path.feature_names):
            raise ValueError(f"X must have the {len(path.feature_names)} columns of the path, got {d}")
        targets = (n, *np.shape(path[0].coef)[:-1]) if not path.classes else (n,)
        if self.y.shape != targets:
            raise ValueError(f"y must have shape {targets}, got shape {self.y.shape}")
        Predictions(self.y, self.y, None, "").checked(path.classes or None)
        return self


def point_scores(path: Path, point: PathPoint, tested: Known) -> dict[str, float]:
    """Return the scores of a point's model."""
    u = np.asarray(tested.X @ point.coef.T.astype(np.float64)) + point.intercept
    loss = path.loss
    if not path.classes:
        return scores(tested.y, np.exp(u) if loss.link == "log" else u, None, None)
    classes = np.array(path.classes)
    likely = None
    if loss.has_probabilities:
        margins = u if u.ndim == 2 else np.column_stack([np.zeros_like(u), u])
        margins = margins - margins.max(axis=1, keepdims=True)
        likely = np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
    chosen = u.argmax(axis=1) if u.ndim == 2 else (u > 0).astype(np.int64)
    return scores(tested.y, classes[chosen], likely, path.classes)


# ------------------------------------------------------------------------------------------------------------ the page


def write_path_page(path: Path, file: str, tested: Known | None = None) -> None:
    """Write the page; the file is there whole or as it was."""
    text = path_page(path, tested)
    with atomic_write(file) as out:
        out.write(text.encode("utf-8", "replace"))


def path_page(path: Path, tested: Known | None = None) -> str:
    """Return the text of the page."""
    ks, lams = path.ks, path.lams
    scored = [] if tested is None else [point_scores(path, point, tested) for point in path]
    panels = _Panels(path, scored, tested)
    title = f"Models with {f'{ks[0]:,} to ' * (len(ks) > 1)}{ks[-1]:,} {panels.units}"
    if panels.units == "budget":
        title = f"Models with budgets {f'from {ks[0]:g} ' * (len(ks) > 1)}to {ks[-1]:g}"
    body = [
        _controls(path, panels.units),
        *(panels.at(i, j) for j, i in product(range(len(lams)), range(len(ks)))),
        section("All of them", _all_charts(path, panels)),
        section("In figures", _all_points(path, scored)),
    ]
    data = {
        "ks": list(map(repr, ks)),
        "k": [f"at most {k:,}" for k in ks],
        "lam": [f"{lam:g}" for lam in lams],
    }
    script = f'<script type="application/json" id="data">{json.dumps(data)}</script><script>{_SCRIPT}</script>'
    return document(title, PAGE_CSS + _CSS + style(), _head(path, title, tested), "".join(body) + script, _foot())


def _head(path: Path, title: str, tested: Known | None) -> str:
    scaled = path[0].certificate.scaled
    facts = {
        "data": _data(path),
        "classes": ", ".join(printable(str(label), 24) for label in path.classes[:12]),
        "loss": spoken(path.loss),
        "ridge": f"lam = {', '.join(f'{lam:g}' for lam in path.lams)}{', on standardised columns' if scaled else ''}",
        "scores": "" if tested is None else f"on {len(tested.y):,} samples given to the report",
    }
    return opening(title, facts)


def _controls(path: Path, units: str) -> str:
    """Return the sliders; without a script there are none, and all models are shown."""
    start = len(path.ks) // 2
    parts = [_slider("k", units if units == "budget" else f"{units} allowed", len(path.ks), start)]
    if len(path.lams) > 1:
        parts.append(_slider("lam", "ridge, lam", len(path.lams), len(path.lams) // 2))
    return f'<div class="controls" hidden>{"".join(parts)}</div>'


def _slider(name: str, words: str, n: int, start: int) -> str:
    return (
        f'<div><label for="{name}"><span>{words}</span><output id="{name}-now" for="{name}" aria-live="polite"></output></label>'
        f'<div class="step"><button type="button" aria-label="less">−</button>'
        f'<input type="range" id="{name}" min="0" max="{n - 1}" step="1" value="{start}">'
        '<button type="button" aria-label="more">+</button></div></div>'
    )


class _Panels:
    """What is said of each point."""

    def __init__(self, path: Path, scored: Sequence[dict[str, float]], tested: Known | None) -> None:
        self.path, self.tested = path, tested
        self.units = path.counted
        self.intercept = any(np.any(point.intercept) for point in path)
        self.places = {(point.k, point.lam): n for n, point in enumerate(path)}
        self.scored = scored
        likely = path.loss.is_likelihood
        self.criteria = {name.upper(): path.criterion(name) for name in _CRITERIA} if likely else {}

    def model(self, point: PathPoint) -> SavedModel:
        return point_model(self.path, point, self.intercept)

    def at(self, i: int, j: int) -> str:
        """Return the panel of the i-th k and the j-th lam."""
        k, lam = self.path.ks[i], self.path.lams[j]
        heading = f"At most {k:,} {self.units if k != 1 else self.units[:-1]}"
        heading = f"A budget of {k:g}" if self.units == "budget" else heading
        heading += f", lam = {lam:g}" if len(self.path.lams) > 1 else ""
        place = self.places.get((k, lam))
        inside = '<p class="faint">This one was not solved.</p>' if place is None else self._inside(place)
        return f'<section class="point" data-point="{i},{j}"><h2>{text_of(heading)}</h2>{inside}</section>\n'

    def _inside(self, place: int) -> str:
        point = self.path[place]
        model = self.model(point)
        tol = max(_TOL, point.relative_gap if point.result.status is Status.OPTIMAL else 0.0)
        meaning = certificate_sentences(model, tol)[0]
        said = f"{verdict(point.relative_gap, tol)}{paragraphs(meaning)}"
        card = f'<div class="card"><div>{said}</div>{figure_tiles(model)}</div>'
        return card + feature_tables(model, [point.result]) + self._proved(point) + self._tiles(place)

    def _proved(self, point: PathPoint) -> str:
        """Name what is proved to be in every best model."""
        required = self.path.columns(point.certificate.required)
        names = [printable(name, 40) for name in required[:_NAMED]]
        more = len(required) - len(names)
        return paragraphs(f"Provably in: {', '.join(names) or 'none'}{f' and {more:,} more' if more else ''}.")

    def _tiles(self, place: int) -> str:
        tiles = {}
        for name, values in self.criteria.items():
            least = place == int(np.argmin(values))
            tiles[f"{name}, {'the least of the path' if least else 'the smaller the better'}"] = significant(
                values[place], 6
            )
        if self.tested is not None:
            n = len(self.tested.y)
            tiles |= {f"{name} on {n:,} samples": f"{value:.4g}" for name, value in self.scored[place].items()}
        return f'<div class="card">{tile_row(tiles)}</div>' if tiles else ""


def _all_charts(path: Path, panels: _Panels) -> str:
    """Draw bounds and coefficients against k, for each lam."""
    parts = []
    for j, lam in enumerate(path.lams):
        model = panels.model(path.at(lam)[-1])
        charts = [replace(path_bounds(model, path, ""), rules=()), path_coefficients(model, path, "")]
        ks = [point.k for point in path.at(lam)]
        drawn = charts_of([chart for chart in charts if chart.series], f"path-{j}", attributes=partial(_places, ks))
        parts.append(f'<div data-lam="{j}">{drawn}</div>')
    return "".join(parts)


def _places(ks: Sequence[float], chart: Chart) -> str:
    """Return where each k stands in a chart, for the line that marks the one shown."""
    drawing = Drawing(chart)
    x = json.dumps({repr(k): round(drawing.x(float(k)), 1) for k in ks})
    return f' data-x="{escape(x)}" data-top="{drawing.top}" data-bottom="{drawing.bottom}"'


def _all_points(path: Path, scored: Sequence[dict[str, float]]) -> str:
    heads, rows = path_heads_and_rows(path)
    names = list(dict.fromkeys(name for each in scored for name in each))
    rows = [
        row + [f"{each[name]:.4g}" if name in each else "" for name in names]
        for row, each in zip(rows, scored or [{}] * len(rows), strict=True)
    ]
    whole = table("one line a model", [*heads, *names], rows)
    return whole if len(rows) <= _OPEN else f"<details><summary>{len(rows)} models</summary>{whole}</details>"


def _foot() -> str:
    return (
        f'<p class="faint" style="margin-top:48px">Written by diht {escape(__version__)}. A lower bound is a proof, not an '
        "estimate: it holds for every model allowed, rounding errors included. It speaks of the objective on the samples that "
        "were fitted.</p>"
    )

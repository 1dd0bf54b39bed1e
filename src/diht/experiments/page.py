"""The results as one HTML file that needs nothing else: each figure beside the paper's claim and what became of it."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from diht.datasets import atomic_write
from diht.experiments.charts import METHODS, STYLE, charts_of
from diht.experiments.claims import (
    FIGURES,
    HOLDS,
    IN_PART,
    NOT,
    NOT_RUN,
    RULES,
    Claim,
    Spread,
    by,
    chosen,
    judge,
    median,
    number,
    parts_of,
    speedups,
)
from diht.experiments.findings import Finding, findings, sentences
from diht.experiments.table import Row
from diht.report.html import document, table

__all__ = ["page", "write_page"]

_BADGES = {HOLDS: ("yes", "✓"), IN_PART: ("part", "◐"), NOT: ("no", "✗"), NOT_RUN: ("none", "–")}
_MAX_LINES = 14  # of a table of medians: of more, some are left out evenly

_NOTES = {
    "fig1": "Sparse ridge regression; λ chosen for each method on other copies. The oracle is told the planted features. Shaded: "
    "two standard errors on either side.",
    "fig2": "Step sizes tuned by the objective after equal numbers of passes. Medians; shaded from the least to the greatest.",
    "fig3": "Step sizes tuned by the gap after equal numbers of epochs. auto is shown with its best model and best bound so far.",
    "theory": "DIHT with the theorem’s own step, on a problem small enough to know the optimum. Dashed: what the theorem promises.",
}
_NOTES |= {"fig4": _NOTES["fig2"], "fig5": _NOTES["fig3"]}

_CSS = """
h2 .no{color:var(--faint);font-weight:400}
.claim+.claim{margin-top:14px;padding-top:14px;border-top:1px solid var(--edge)}
dl{margin:4px 0 0;font-size:.94rem}
dt{color:var(--faint);font-size:.8rem;margin-top:4px}dd{margin:0}
.summary{width:100%;max-width:900px}
.summary td,.summary th{text-align:left;white-space:normal;vertical-align:top;padding:5px 10px 5px 0}
.summary th{padding-top:14px}.summary td:last-child{text-align:right;padding-right:0}
.summary .badge{white-space:nowrap}.summary div+div{margin-top:6px}
@media (max-width:700px){.summary td{display:block}.summary td:last-child{text-align:left;padding-top:0}
.summary td+td div{display:inline-block;margin:0 6px 6px 0}}
.why{margin:4px 0 0;font-size:.88rem;color:var(--faint)}
.found{padding-left:1.2em;font-size:1.05rem}.found li+li{margin-top:8px}
@media (min-width:1000px){.wide .charts,.wide .claims{grid-template-columns:repeat(2,minmax(0,1fr))}
.wide .claims{display:grid;gap:16px 24px}.wide .claim+.claim{margin:0;padding:0;border:0}
.card:not(.wide){grid-template-columns:minmax(0,2fr) minmax(280px,1fr)}.card>details{grid-column:1/-1}}
"""


def write_page(rows: Iterable[Row], path: str | os.PathLike[str]) -> None:
    """Write the page of these rows; figures without rows say so. The file is there whole or as it was."""
    text = page(rows)
    with atomic_write(path) as file:
        file.write(text.encode())


def page(rows: Iterable[Row]) -> str:
    """Return the text of the page."""
    rows = list(rows)
    claims = judge(rows)
    sections = "".join(_section(figure, claims, chosen(rows, figure=figure)) for figure in FIGURES)
    title = "Dual iterative hard thresholding, redone"
    return document(title, _CSS + STYLE, _head(rows, claims), sections, _foot(rows))


# ---------------------------------------------------------------------------------------------------------- parts


def _head(rows: Sequence[Row], claims: Sequence[Claim]) -> str:
    said = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences(rows, claims))
    return (
        "<h1>Dual iterative hard thresholding: the paper’s figures, redone</h1>"
        f'<ul class="found">{said}</ul>'
        "<p>The paper: Liu, Yuan, Wang, Liu and Metaxas, <cite>Dual Iterative Hard Thresholding: From Non-convex Sparse "
        "Minimization to Non-smooth Concave Maximization</cite>. Each chart is drawn and each verdict computed from one table of "
        f"measurements.</p>{_notices(rows)}{_summary(claims)}"
    )


def _summary(claims: Sequence[Claim]) -> str:
    """Statement by statement: in how many parts it holds, and why not in the others."""
    bodies = []
    for figure, title in FIGURES.items():
        lines = "".join(_finding(finding) for finding in findings(claims) if finding.figure == figure)
        heading = f'<a href="#{figure}">{_number(figure)}. {_text(title)}</a>'
        bodies.append(f'<tbody><tr><th colspan="2" scope="rowgroup">{heading}</th></tr>{lines}</tbody>')
    return f'<table class="summary">{"".join(bodies)}</table>'


def _finding(finding: Finding) -> str:
    several = len(finding.claims) > 1
    badges = "".join(
        f"<div>{_badge(verdict, finding.count(verdict) if several else 0)}</div>"
        for verdict in _BADGES
        if finding.count(verdict)
    )
    names = len(finding.reasons) > 1 or (several and finding.count(HOLDS) > 0)
    reasons = "".join(
        f'<p class="why">{f"{_text(named)}: " if names else ""}{_text(reason)}</p>' for named, reason in finding.reasons
    )
    return f"<tr><td>{_text(finding.paper)}{reasons}</td><td>{badges}</td></tr>"


def _text(words: str) -> str:
    """Escape, and keep "N = 40" on one line."""
    return escape(words).replace(" = ", "\u00a0=\u00a0")


def _notices(rows: Sequence[Row]) -> str:
    notices = []
    if "quick" in {row.mode for row in rows}:
        notices.append(
            "This is a <b>quick run</b>: the same experiments in miniature, with fewer sizes and coarser grids"
            f"{_few_copies(rows)}. Its verdicts are of the miniature; those of the paper’s sizes need "
            "<code>diht reproduce --full</code>."
        )
    if any("stand-in" in row.data for row in rows):
        notices.append(
            "A data set named <b>stand-in</b> is generated: it has the shape of the real one, which was not at hand, and shows "
            "times and gaps of problems of that size. It says nothing about the real data."
        )
    return "".join(f'<p class="notice">{notice}</p>' for notice in notices)


def _few_copies(rows: Sequence[Row]) -> str:
    copies = {row.seed for row in chosen(rows, figure="fig1")}
    return f", figure 1 on {len(copies)} copies of its data" if copies else ""


def _section(figure: str, claims: Sequence[Claim], rows: Sequence[Row]) -> str:
    cards = "".join(
        _card(figure, part, [claim for claim in claims if (claim.figure, claim.part) == (figure, part)], of_part)
        for part, of_part in parts_of(rows)
    )
    heading = f'<span class="no">{_number(figure)}</span> {escape(FIGURES[figure])}'
    return f'<section id="{figure}"><h2>{heading}</h2><p class="faint">{_NOTES[figure]}</p>{cards}</section>\n'


def _card(figure: str, part: tuple[Any, ...], claims: Sequence[Claim], rows: Sequence[Row]) -> str:
    name = _anchor(figure, part)
    drawn = "".join(chart.svg(f"{name}-{i}") for i, chart in enumerate(charts_of(figure, rows)))
    charts = drawn or '<p class="faint">Not run: there are no measurements to draw.</p>'
    tables = _tables(figure, rows)
    shown = f"<details><summary>Table</summary>{tables}</details>" if tables else ""
    anchor = f' id="{name}"' if part else ""
    beside = rows and (figure == "fig1" or len(claims) == 1)  # where there are as many claims as charts they come below
    wide = "" if beside else " wide"
    said = "".join(_claim(claim) for claim in claims)
    return (
        f'<article class="card{wide}"{anchor}><div class="charts">{charts}</div><div class="claims">{said}</div>{shown}'
        "</article>"
    )


def _claim(claim: Claim) -> str:
    measured = _text(claim.measured) or '<span class="faint">Not run.</span>'
    why = f"<dt>Why not</dt><dd>{_text(claim.reason)}</dd>" if claim.reason else ""
    return (
        f'<div class="claim"><div class="head"><h3>{_text(claim.title)}</h3>{_badge(claim.verdict)}</div>'
        f"<dl><dt>Claim</dt><dd>{_text(claim.paper)}</dd><dt>Measured</dt><dd>{measured}</dd>{why}</dl></div>"
    )


def _badge(verdict: str, count: int = 0) -> str:
    kind, sign = _BADGES[verdict]
    return f'<span class="badge {"no-badge" if kind == "no" else kind}">{sign} {verdict}{f": {count}" if count else ""}</span>'


def _number(figure: str) -> str:
    return figure.replace("fig", "Figure ") if figure.startswith("fig") else figure.capitalize()


def _anchor(figure: str, part: tuple[Any, ...]) -> str:
    words = "-".join([figure, *(str(cell) for cell in part)])
    return "".join(letter if letter.isalnum() else "-" for letter in words)


# --------------------------------------------------------------------------------------------------------- tables

_TABLES = {
    "fig1": (
        "n",
        {"estimation_error": "error of the coefficients, median", "recovered": "support found, % of the copies"},
    ),
    "fig2": ("k", {"seconds": "seconds to IHT's objective, median", "passes": "passes, median"}),
    "fig3": ("epoch", {"relative_gap": "gap / objective, median", "seconds": "seconds, median"}),
    "theory": ("epoch", {"dual_error": "squared distance to the dual optimum", "gap": "gap"}),
}
_HEADS = {"fig1": "N", "fig2": "k", "fig3": "epoch", "fig4": "k", "fig5": "epoch", "theory": "t"}
_TABLES |= {"fig4": _TABLES["fig2"], "fig5": _TABLES["fig3"]}


def _tables(figure: str, rows: Sequence[Row]) -> str:
    x, measures = _TABLES[figure]
    parts = [
        _medians(of_d, measure, x, f"{said}{f', d = {d:,}' if figure == 'fig1' else ''}")
        for d, of_d in by(rows, "d").items()
        for measure, said in measures.items()
    ]
    if figure in ("fig2", "fig4"):
        parts.append(_ratios(rows))
    return "".join(parts)


def _medians(rows: Sequence[Row], measure: str, x: str, caption: str) -> str:
    """One line an x, one column a method (and its bound, where there is one)."""
    columns: dict[str, dict[float, str]] = {}
    for name in METHODS:
        for kind, heading in ((measure, name), (f"{measure}_bound", f"{name}'s bound")):
            own = [row for row in chosen(rows, method=name, measure=kind) if getattr(row, x) is not None]
            if own:
                columns[heading] = {at: _cell(group) for at, group in by(own, x).items()}
    places = _places(list(columns.values()))
    lines = [[number(at), *(_at(column, at, x == "epoch") for column in columns.values())] for at in places]
    return table(caption, [_HEADS[rows[0].figure], *columns], lines) if lines else ""


def _places(columns: Sequence[Collection[float]]) -> list[float]:
    """Return where two methods or more were looked at (or one, if there are no such places): not too many."""
    often = Counter(at for column in columns for at in column)
    places = sorted(at for at, times in often.items() if times > 1) or sorted(often)
    kept = np.linspace(0, len(places) - 1, min(len(places), _MAX_LINES))
    return [places[i] for i in sorted({round(i) for i in kept})]


def _at(column: Mapping[float, str], place: float, carried: bool) -> str:
    """Return the value at a place; with `carried` the last one before it, for what is looked at now and then."""
    earlier = [at for at in column if at <= place] if carried else []
    return column[max(earlier)] if earlier else column.get(place, "")


def _cell(rows: Sequence[Row]) -> str:
    values = [row.value for row in rows]
    if rows[0].measure == "recovered" and rows[0].figure == "fig1":
        return number(100 * float(np.mean(values)))
    return "never" if math.isinf(median(values)) else number(median(values))


def _ratios(rows: Sequence[Row]) -> str:
    """How many times less each method needs than each primal one."""
    spreads: dict[str, dict[tuple[str, str], Spread]] = {
        measure: speedups(rows, measure) for measure in ("seconds", "passes")
    }
    pairs = list(spreads["seconds"])
    lines = [
        [method, "the fastest" if other == "fastest" else other]
        + [str(spreads[measure][method, other]) if (method, other) in spreads[measure] else "" for measure in spreads]
        for method, other in pairs
    ]
    caption = "how many times less than a primal method: median (least to greatest) over k and repeats"
    return table(caption, ["", "against", "seconds", "passes"], lines) if lines else ""


# ----------------------------------------------------------------------------------------------------------- foot


def _foot(rows: Sequence[Row]) -> str:
    rules = "".join(f"<li>{escape(rule)}</li>" for rule in RULES)
    return f"<h2>How the verdicts come about</h2><ul>{rules}</ul><h2>What measured this, and when</h2>{_about(rows)}"


def _about(rows: Sequence[Row]) -> str:
    seeds = [
        f"{figure}: {_range([row.seed for row in own if row.seed is not None])}"
        for figure, own in by(rows, "figure").items()
    ]
    facts = {
        "measurements": f"{len(rows):,}",
        "run": _values(rows, "mode"),
        "diht": _values(rows, "version"),
        "Python": _values(rows, "python"),
        "numpy": _values(rows, "numpy"),
        "machine": _values(rows, "machine"),
        "date": _values(rows, "date"),
        "seeds": "; ".join(seeds) or "none",
    }
    lines = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(said)}</td></tr>' for name, said in facts.items()
    )
    return f'<div class="scroll"><table class="about">{lines}</table></div>'


def _values(rows: Sequence[Row], name: str) -> str:
    return ", ".join(sorted({str(getattr(row, name)) for row in rows} - {""})) or "none"


def _range(seeds: Sequence[int]) -> str:
    low, high = min(seeds, default=None), max(seeds, default=None)
    return "none" if low is None else f"{low} to {high}" if low != high else f"{low}"

"""Scorecards as text and as a page for the printer."""

from __future__ import annotations

from html import escape
from os import PathLike
from typing import TYPE_CHECKING

from diht.datasets.writing import atomic_write
from diht.numerics.digits import percent, rounded_down, rounded_up
from diht.report.html import document, table
from diht.report.text import printable, quoted

if TYPE_CHECKING:
    from diht.estimators.scorecard import Level, Scorecard

__all__ = ["card_in_html", "card_in_words", "write_card"]

_WIDTH = 40  # of a feature's name
_CSS = """
.points{width:100%;max-width:640px}.points td:nth-child(2){font-weight:700;font-size:1.1rem}
.points td{padding-top:7px;padding-bottom:7px}.points .box{display:inline-block;width:56px;height:26px;border:1px solid var(--ink);
border-radius:4px;vertical-align:middle}
.sum td{border-bottom:none;font-weight:700}
@media (max-width:480px){.points td,.points th{white-space:normal;padding-left:6px;padding-right:0}
.points td:first-child,.points th:first-child{padding-left:0}
.points .box{width:40px}}
"""


def card_in_words(card: Scorecard) -> str:
    """Return the card as text of 80 columns."""
    names = [printable(name, _WIDTH) for name in card.names]
    width = max(map(len, [*names, "feature"]))
    lines = [f"{'feature':<{width}}  points", *_point_lines(card, names, width), "", *_risk_lines(card), ""]
    return "\n".join([*lines, *_sentences(card)])


def _point_lines(card: Scorecard, names: list[str], width: int) -> list[str]:
    pairs = zip(names, card.points.tolist(), card.units.tolist(), strict=True)
    return [f"{name:<{width}}  {points:+6d}{_for_each(unit)}" for name, points, unit in pairs]


def _for_each(unit: float) -> str:
    return "" if unit == 1.0 else f"  for each {unit:g}"


def _risk_lines(card: Scorecard) -> list[str]:
    head = f"{'sum of points':>15}  {'risk':>6}  {'observed':>8}  {'samples':>9}"
    return [
        head,
        *(
            f"{_range(level):>15}  {level.risk:6.1%}  {level.observed:8.1%}  {level.n_samples:9,d}"
            for level in card.levels
        ),
    ]


def _range(level: Level) -> str:
    low, high = f"{level.low:.3g}", f"{level.high:.3g}"
    return low if low == high else f"{low} to {high}"


def _sentences(card: Scorecard) -> list[str]:
    """What the risk is of, and what the card costs."""
    line = f"{card.slope:.4g} sum {'-' if card.intercept < 0 else '+'} {abs(card.intercept):.4g}"
    return [
        f"risk: of the class {quoted(card.classes.tolist()[1])}, 1 / (1 + exp(-({line})))",
        f"objective: {rounded_up(card.objective, 6)}; of the model without rounding: {card.model_objective:.6g}",
        f"no model with as many features has one below {rounded_down(card.lower_bound, 6)}:",
        f"the best of them is better than this card by at most {percent(max(card.price, 0.0))}",
    ]


def card_in_html(card: Scorecard) -> str:
    """Return the card as a part of a page."""
    rows = "".join(
        f"<tr><td>{escape(printable(name))}</td><td>{points:+d}</td><td>{escape(_for_each(unit).strip())}</td>"
        '<td><span class="box"></span></td></tr>'
        for name, points, unit in zip(card.names, card.points.tolist(), card.units.tolist(), strict=True)
    )
    points = (
        '<table class="points"><thead><tr><th scope="col">feature</th><th scope="col">points</th><th scope="col"></th>'
        f'<th scope="col">yours</th></tr></thead><tbody>{rows}'
        '<tr class="sum"><td>sum</td><td></td><td></td><td><span class="box"></span></td></tr></tbody></table>'
    )
    heads = ("sum of points", "risk", "observed", "samples")
    lines = [(_range(x), f"{x.risk:.1%}", f"{x.observed:.1%}", f"{x.n_samples:,}") for x in card.levels]
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in _sentences(card))
    return f'<style>{_CSS}</style>{points}{table("What a sum means", heads, lines)}<div class="faint">{said}</div>'


def write_card(card: Scorecard, path: str | PathLike[str]) -> None:
    """Write the page; the file is there whole or as it was."""
    title = f"A scorecard of {len(card.points)} feature{'s' * (len(card.points) != 1)}"
    text = document(title, "", f"<h1>{title}</h1>", card_in_html(card), "")
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "replace"))

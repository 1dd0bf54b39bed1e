"""Charts as SVG that follows a page's colours, light and dark, and needs no library to draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

__all__ = ["INKS", "WIDTH", "Chart", "Drawing", "Series", "number", "style"]

# Colours that the colour-blind can tell apart, for light and dark pages, and a mark.
INKS = {
    "blue": ("#0072b2", "#56b4e9", "circle"),
    "orange": ("#d55e00", "#ff9e4a", "square"),
    "black": ("#111111", "#ffffff", "star"),
    "gold": ("#a07800", "#e6c84a", "triangle"),
    "green": ("#00805d", "#3fcf9f", "diamond"),
    "purple": ("#a83f95", "#e08fd0", "cross"),
    "grey": ("#767676", "#9aa4af", "plus"),
}

_SHAPES = {
    "circle": '<circle r="3.4"/>',
    "square": '<path d="M-3-3H3V3H-3Z"/>',
    "star": '<path d="M0-4.6 1.3-1.3 4.6 0 1.3 1.3 0 4.6-1.3 1.3-4.6 0-1.3-1.3Z"/>',
    "triangle": '<path d="M0-4 3.7 2.8H-3.7Z"/>',
    "diamond": '<path d="M0-4.2 4.2 0 0 4.2-4.2 0Z"/>',
    "cross": '<path d="M-3-3 3 3M-3 3 3-3" stroke-width="1.8"/>',
    "plus": '<path d="M0-4V4M-4 0H4" stroke-width="1.8"/>',
    "dot": '<circle r="2" opacity=".55"/>',
    "never": '<path d="M0-5 4.6 3H-4.6Z" fill="none" stroke-width="1.8"/>',
    "zero": '<path d="M0 5 4.6-3H-4.6Z" fill="none" stroke-width="1.8"/>',
}

WIDTH, PLOT_HEIGHT, LEFT, RIGHT, BOTTOM = 360, 190, 50, 14, 40
STRIP = 22  # above the plot, for what was never reached


def _colours(inks: Mapping[str, tuple[str, str, str]], side: int) -> str:
    series = "".join(f".m-{name.lower()}{{color:{colours[side]}}}" for name, colours in inks.items())
    paper, ink, faint, grid = (
        ("#ffffff", "#1b1f24", "#57606a", "#d8dee4"),
        ("#0d1117", "#e6edf3", "#9aa4af", "#343d47"),
    )[side]
    return f".paper{{fill:{paper}}}.chart{{color:{ink}}}.faint{{color:{faint}}}.grid{{color:{grid}}}{series}"


def style(inks: Mapping[str, tuple[str, str, str]] = INKS) -> str:
    """Return the style sheet of charts whose series have these names."""
    return (
        _colours(inks, 0) + "@media (prefers-color-scheme:dark){" + _colours(inks, 1) + "}"
        ".chart{display:block;width:100%;height:auto}"
        ".chart text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:currentColor}"
        ".chart .title{font-weight:600;font-size:13.5px}.chart .small{font-size:11px}"
        ".chart .mark{fill:currentColor;stroke:currentColor;stroke-width:.5}"
        ".chart .line{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}"
        ".chart .rule{fill:none;stroke:currentColor;stroke-width:1}"
        ".chart .band{fill:currentColor;opacity:.12}"
    )


@dataclass(frozen=True)
class Series:
    """One curve, or a bound on one (dashed, without marks), or single points. Infinite values were never reached."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    bound: bool = False
    ink: str = "blue"
    joined: bool = True

    @property
    def label(self) -> str:
        """What the legend says."""
        return self.name

    @property
    def css(self) -> str:
        """The class of its colour."""
        return f"m-{self.ink}"

    @property
    def shape(self) -> str:
        """Its mark."""
        return INKS[self.ink][2] if self.joined else "dot"


@dataclass(frozen=True)
class Chart:
    """A chart with one pair of axes.

    Attributes
    ----------
    title, subtitle : str
        What is drawn, and what the vertical axis means.
    x_label : str
        What the horizontal axis means.
    series : sequence of Series
        The curves.
    x_log, y_log : bool
        Whether an axis is logarithmic; values that are not positive are then marked at the bottom.
    percent : bool
        Whether the vertical axis goes from 0 to 100%.
    rules : sequence of (float, str)
        Vertical lines with a word beside each.
    never : str
        What an infinite value means.
    x_whole : bool
        Whether the horizontal axis counts something.
    from_zero : bool
        Whether the vertical axis begins at zero, if it is not logarithmic.
    """

    title: str
    subtitle: str
    x_label: str
    series: Sequence[Series]
    x_log: bool = False
    y_log: bool = False
    percent: bool = False
    rules: Sequence[tuple[float, str]] = ()
    never: str = "never"
    x_whole: bool = False
    from_zero: bool = True

    def svg(self, name: str, attributes: str = "") -> str:
        """Return the `svg` element; `name` makes its ids unique in the page."""
        return Drawing(self).element(name, attributes)

    @property
    def description(self) -> str:
        """The chart in a sentence, for those who cannot see it."""
        ends = [
            f"{series.label}: {number(series.y[0])} at {number(series.x[0])}, {number(series.y[-1])} at {number(series.x[-1])}"
            for series in self.series
            if len(series.x)
        ]
        return f"{self.subtitle} against {self.x_label}. {'; '.join(ends)}."


# ------------------------------------------------------------------------------------------------------- drawing


@dataclass(frozen=True)
class _Axis:
    """Where values go between two ends."""

    low: float
    high: float
    log: bool
    start: float
    end: float

    def __call__(self, value: float) -> float:
        low, high, at = (self._scaled(v) for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / (high - low)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value

    @classmethod
    def around(cls, values: Sequence[float], log: bool, start: float, end: float, from_zero: bool = False) -> _Axis:
        """Leave a little room on both sides of the values that can be shown."""
        shown = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0]
        low, high = min(shown), max(shown)
        if log:
            room = max((high / low) ** 0.04, 1.06)
            return cls(low / room, high * room, log, start, end)
        room = 0.05 * (high - low) or 0.5 * abs(high) or 0.5
        return cls(0.0 if from_zero else low - room, high + room, log, start, end)

    def widened(self) -> _Axis:
        """Return an axis at least a fiftieth as long as its values are large: closer ones would need long labels."""
        lack = max(0.02 * max(abs(self.low), abs(self.high)) - (self.high - self.low), 0.0) / 2
        return replace(self, low=self.low - lack, high=self.high + lack)

    def ticks(self) -> list[float]:
        """Return round values within the ends: at most seven or so."""
        if not self.log:
            step = _round_step((self.high - self.low) / 5)
            first = math.ceil(self.low / step - 1e-9)
            return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        span = math.log10(self.high / self.low)
        leads = (
            (1,)
            if span > 2
            else (1, 3)
            if span > 1.2
            else (1, 2, 5)
            if span > 0.6
            else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
        )
        marks = [lead * 10.0**decade for decade in decades for lead in leads]
        return [mark for mark in marks if self.low <= mark <= self.high][:: max(1, math.ceil(span / 6))]


def _round_step(step: float) -> float:
    decade = 10.0 ** math.floor(math.log10(step))
    return decade * next(lead for lead in (1, 2, 2.5, 5, 10) if lead * decade >= step * (1 - 1e-9))


class Drawing:
    """One chart being drawn."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.rows = _legend_rows([series.label for series in chart.series])
        values = [y for series in chart.series for y in (*series.y, *(series.low or ()), *(series.high or ()))]
        self.strip = STRIP * any(math.isinf(y) for y in values)
        self.top = 44 + 17 * len(self.rows) + self.strip + 14 * len(chart.rules)
        self.bottom = self.top + PLOT_HEIGHT
        self.height = self.bottom + BOTTOM
        x = [x for series in chart.series for x in series.x] + [at for at, _ in chart.rules if math.isfinite(at)]
        self.x = _Axis.around(x, chart.x_log, LEFT, WIDTH - RIGHT)
        if chart.percent:
            self.y = _Axis(-2.0, 102.0, False, self.bottom, self.top)
        else:
            self.y = _Axis.around(values, chart.y_log, self.bottom, self.top, chart.from_zero and not chart.y_log)
            if not (chart.y_log or chart.from_zero):
                self.y = self.y.widened()

    def element(self, name: str, attributes: str) -> str:
        """Return the `svg` element."""
        chart = self.chart
        return (
            f'<svg class="chart" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" height="{self.height}" role="img" '
            f'aria-labelledby="{name}-title {name}-desc" xmlns="http://www.w3.org/2000/svg"{attributes}>'
            f'<title id="{name}-title">{escape(chart.title)}: {escape(chart.subtitle)}</title>'
            f'<desc id="{name}-desc">{escape(chart.description)}</desc>'
            f'<text class="title" x="4" y="16">{escape(chart.title)}</text>'
            f'<g class="faint"><text x="4" y="33">{escape(chart.subtitle)}</text></g>'
            f"{self._legend()}{self._axes()}{self._rules()}{self._curves()}</svg>\n"
        )

    def _legend(self) -> str:
        named = {series.label: series for series in self.chart.series}
        parts = []
        for i, row in enumerate(self.rows):
            at, y = 4.0, 49 + 17 * i
            for label in row:
                series = named[label]
                key = f'<path class="line" d="M{at:g} {y}h16"{_dashes(series)}/>' if series.joined else ""
                key += _mark(series, at + 8, y, series.shape)
                parts.append(f'<g class="{series.css}">{key}</g>')
                parts.append(f'<text class="small" x="{at + 20:g}" y="{y + 4}">{escape(label)}</text>')
                at += _legend_width(label)
        return "".join(parts)

    def _axes(self) -> str:
        right = WIDTH - RIGHT
        y_ticks, x_ticks = self.y.ticks(), self.x.ticks()
        if self.chart.x_whole:
            x_ticks = [tick for tick in x_ticks if tick == round(tick)]
        lines = "".join(f"M{LEFT} {self.y(v):.1f}H{right}" for v in y_ticks)
        lines += "".join(f"M{self.x(v):.1f} {self.bottom}v4" for v in x_ticks) + f"M{LEFT} {self.bottom}H{right}"
        tick = (lambda v: f"{v:g}%") if self.chart.percent else _tick
        labels = "".join(
            f'<text class="small" x="{LEFT - 6}" y="{self.y(v) + 4:.1f}" text-anchor="end">{tick(v)}</text>'
            for v in y_ticks
        ) + "".join(
            f'<text class="small" x="{self.x(v):.1f}" y="{self.bottom + 16}" text-anchor="middle">{_tick(v)}</text>'
            for v in _apart(x_ticks, self.x)
        )
        if self.strip:
            lines += f"M{LEFT} {self.top - 4}H{right}"
            labels += (
                f'<text class="small" x="{LEFT - 6}" y="{self.top - 9}" text-anchor="end">{self.chart.never}</text>'
            )
        middle = (LEFT + right) / 2
        return (
            f'<g class="grid"><path class="rule" d="{lines}"/></g><g class="faint">{labels}'
            f'<text x="{middle}" y="{self.bottom + 33}" text-anchor="middle">{escape(self.chart.x_label)}</text></g>'
        )

    def _rules(self) -> str:
        parts = []
        for i, (at, word) in enumerate(rule for rule in self.chart.rules if math.isfinite(rule[0])):
            x, y = self.x(at), self.top - 4 - 14 * i
            beside = f'x="{x - 4:.1f}" text-anchor="end"' if x > (LEFT + WIDTH) / 2 else f'x="{x + 4:.1f}"'
            parts.append(f'<path class="rule" stroke-dasharray="2 3" d="M{x:.1f} {y - 8}V{self.bottom}"/>')
            parts.append(f'<text class="small" {beside} y="{y}">{escape(word)}</text>')
        return f'<g class="faint">{"".join(parts)}</g>' if parts else ""

    def _curves(self) -> str:
        return "".join(
            f'<g class="{series.css} series" data-method="{escape(series.label)}">{self._band(series)}'
            f'<path class="line" d="{self._line(series)}"{_dashes(series)}/>{"" if series.bound else self._marks(series)}</g>'
            for series in self.chart.series
        )

    def _place(self, y: float) -> float:
        """Height of a value: above the plot where it is infinite, at its foot where a logarithmic axis cannot show it."""
        if math.isinf(y):
            return self.top - 13
        return self.bottom if self.chart.y_log and y <= 0 else self.y(y)

    def _line(self, series: Series) -> str:
        """Only finite neighbours are joined."""
        if not series.joined:
            return ""
        path, pen = [], False
        for x, y in zip(series.x, series.y, strict=True):
            shown = math.isfinite(y)
            if shown:
                path.append(f"{'L' if pen else 'M'}{self.x(x):.1f} {self._place(y):.1f}")
            pen = shown
        return "".join(path)

    def _band(self, series: Series) -> str:
        if series.low is None or series.high is None:
            return ""
        corners = [
            (x, low, high)
            for x, low, high in zip(series.x, series.low, series.high, strict=True)
            if math.isfinite(high)
        ]
        if len(corners) < 2:
            return ""
        there = [f"{self.x(x):.1f} {self._place(high):.1f}" for x, _, high in corners]
        back = [f"{self.x(x):.1f} {self._place(low):.1f}" for x, low, _ in reversed(corners)]
        return f'<path class="band" d="M{"L".join(there + back)}Z"/>'

    def _marks(self, series: Series) -> str:
        parts = []
        for i in _thinned(series.x, self.x) if series.joined else range(len(series.x)):
            x, y = series.x[i], series.y[i]
            shape = "never" if math.isinf(y) else "zero" if self.chart.y_log and y <= 0 else series.shape
            said = self.chart.never if math.isinf(y) else f"{number(y)}{'%' * self.chart.percent}"
            tip = f"<title>{escape(series.label)}, {escape(self.chart.x_label)} {number(x)}: {said}</title>"
            parts.append(_mark(series, self.x(x), self._place(y), shape, tip))
        return "".join(parts)


def _dashes(series: Series) -> str:
    return ' stroke-dasharray="5 4"' if series.bound else ""


def _mark(series: Series, x: float, y: float, shape: str, tip: str = "") -> str:
    if series.bound:
        return ""
    return f'<g class="mark" transform="translate({x:.1f} {y:.1f})">{_SHAPES[shape]}{tip}</g>'


def number(value: float) -> str:
    """Return a number with three digits."""
    if math.isinf(value):
        return "∞"
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _thinned(x: Sequence[float], axis: _Axis) -> list[int]:
    """Return indices of points far enough apart to be told apart, the last one always."""
    kept: list[int] = []
    for i in range(len(x)):
        if not kept or i == len(x) - 1 or axis(x[i]) - axis(x[kept[-1]]) >= 9:
            kept.append(i)
    return kept


def _tick(value: float) -> str:
    if value and (abs(value) <= 1e-3 or abs(value) >= 1e6):
        mantissa, exponent = f"{value:.0e}".split("e")
        power = f"10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
        return power if mantissa == "1" else f"{mantissa}·{power}"
    return f"{value:,.10g}"


def _apart(ticks: Sequence[float], axis: _Axis) -> list[float]:
    """Return the ticks whose labels do not run into each other."""
    kept: list[float] = []
    for value in ticks:
        need = 3.5 * (len(_tick(value)) + (len(_tick(kept[-1])) if kept else 0)) + 6
        if not kept or axis(value) - axis(kept[-1]) >= need:
            kept.append(value)
    return kept


def _legend_width(label: str) -> float:
    return 29 + 6.4 * len(label)


def _legend_rows(labels: Sequence[str]) -> list[list[str]]:
    rows: list[list[str]] = [[]]
    used = 0.0
    for label in labels:
        if used + _legend_width(label) > WIDTH and rows[-1]:
            rows.append([])
            used = 0.0
        rows[-1].append(label)
        used += _legend_width(label)
    return rows

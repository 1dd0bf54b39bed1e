"""Charts of the results as SVG that follows the page's colours, light and dark, and needs no library to draw.

A chart gets figures to show; what it shows of a row set is decided in :func:`charts_of`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from diht.experiments.claims import by, chosen, median, number
from diht.experiments.table import Row

__all__ = ["METHODS", "STYLE", "Chart", "Series", "charts_of", "sheet"]

# Colours that the colour-blind can tell apart, for light and dark pages, and a mark: the same for a method everywhere.
METHODS = {
    "DIHT": ("#0072b2", "#56b4e9", "circle"),
    "SDIHT": ("#d55e00", "#ff9e4a", "square"),
    "auto": ("#111111", "#ffffff", "star"),
    "IHT": ("#a07800", "#e6c84a", "triangle"),
    "HTP": ("#00805d", "#3fcf9f", "diamond"),
    "SVR-GHT": ("#a83f95", "#e08fd0", "cross"),
    "abess": ("#767676", "#9aa4af", "plus"),
}

_SHAPES = {
    "circle": '<circle r="3.4"/>',
    "square": '<path d="M-3-3H3V3H-3Z"/>',
    "star": '<path d="M0-4.6 1.3-1.3 4.6 0 1.3 1.3 0 4.6-1.3 1.3-4.6 0-1.3-1.3Z"/>',
    "triangle": '<path d="M0-4 3.7 2.8H-3.7Z"/>',
    "diamond": '<path d="M0-4.2 4.2 0 0 4.2-4.2 0Z"/>',
    "cross": '<path d="M-3-3 3 3M-3 3 3-3" stroke-width="1.8"/>',
    "plus": '<path d="M0-4V4M-4 0H4" stroke-width="1.8"/>',
    "never": '<path d="M0-5 4.6 3H-4.6Z" fill="none" stroke-width="1.8"/>',
    "zero": '<path d="M0 5 4.6-3H-4.6Z" fill="none" stroke-width="1.8"/>',
}

WIDTH, PLOT_HEIGHT, LEFT, RIGHT, BOTTOM = 360, 190, 50, 14, 40
STRIP = 22  # above the plot, for what was never reached


def _colours(side: int) -> str:
    methods = "".join(f".m-{name.lower()}{{color:{colours[side]}}}" for name, colours in METHODS.items())
    paper, ink, faint, grid = (
        ("#ffffff", "#1b1f24", "#57606a", "#d8dee4"),
        ("#0d1117", "#e6edf3", "#9aa4af", "#343d47"),
    )[side]
    return f".paper{{fill:{paper}}}.chart{{color:{ink}}}.faint{{color:{faint}}}.grid{{color:{grid}}}{methods}"


STYLE = (
    _colours(0) + "@media (prefers-color-scheme:dark){" + _colours(1) + "}"
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
    """One curve: a method's, or a bound on it (dashed, without marks). Infinite values were never reached."""

    method: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    bound: bool = False

    @property
    def label(self) -> str:
        """What the legend says."""
        return f"{self.method}'s bound" if self.bound else self.method


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

    def svg(self, name: str, attributes: str = "") -> str:
        """Return the `svg` element; `name` makes its ids unique in the page."""
        return _Drawing(self).element(name, attributes)

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


class _Drawing:
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
            self.y = _Axis.around(values, chart.y_log, self.bottom, self.top, from_zero=not chart.y_log)

    def element(self, name: str, attributes: str) -> str:
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
                key = f'<path class="line" d="M{at:g} {y}h16"{_dashes(series)}/>'
                key += _mark(series, at + 8, y, _shape(series))
                parts.append(f'<g class="{_css(series)}">{key}</g>')
                parts.append(f'<text class="small" x="{at + 20:g}" y="{y + 4}">{escape(label)}</text>')
                at += _legend_width(label)
        return "".join(parts)

    def _axes(self) -> str:
        right = WIDTH - RIGHT
        y_ticks, x_ticks = self.y.ticks(), self.x.ticks()
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
            f'<g class="{_css(series)} series" data-method="{escape(series.label)}">{self._band(series)}'
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
        for i in _thinned(series.x, self.x):
            x, y = series.x[i], series.y[i]
            shape = "never" if math.isinf(y) else "zero" if self.chart.y_log and y <= 0 else _shape(series)
            said = self.chart.never if math.isinf(y) else f"{number(y)}{'%' * self.chart.percent}"
            tip = f"<title>{escape(series.label)}, {escape(self.chart.x_label)} {number(x)}: {said}</title>"
            parts.append(_mark(series, self.x(x), self._place(y), shape, tip))
        return "".join(parts)


def _css(series: Series) -> str:
    return f"m-{series.method.lower()}"


def _dashes(series: Series) -> str:
    return ' stroke-dasharray="5 4"' if series.bound else ""


def _shape(series: Series) -> str:
    return METHODS[series.method][2] if series.method in METHODS else "circle"


def _mark(series: Series, x: float, y: float, shape: str, tip: str = "") -> str:
    if series.bound:
        return ""
    return f'<g class="mark" transform="translate({x:.1f} {y:.1f})">{_SHAPES[shape]}{tip}</g>'


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


def sheet(charts: Sequence[Chart], columns: int = 2) -> str:
    """Return one SVG file with all of the charts, for pages that cannot hold more than an image."""
    drawings = [_Drawing(chart) for chart in charts]
    heights = [max(d.height for d in drawings[i : i + columns]) + 12 for i in range(0, len(drawings), columns)]
    parts = []
    for i, chart in enumerate(charts):
        place = f' x="{(WIDTH + 16) * (i % columns)}" y="{sum(heights[: i // columns])}"'
        parts.append(chart.svg(f"c{i}", place))
    width = (WIDTH + 16) * min(columns, len(charts)) - 16
    fixed = STYLE.replace(".chart{display:block;width:100%;height:auto}", "")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {sum(heights)}" width="{width}" height="{sum(heights)}">'
        f'<style>{fixed}</style><rect class="paper" width="100%" height="100%"/>\n{"".join(parts)}</svg>\n'
    )


# ------------------------------------------------------------------------------------------- what is drawn of the rows


def charts_of(figure: str, rows: Sequence[Row]) -> list[Chart]:
    """Return the charts of a part of a figure (see :func:`diht.experiments.claims.parts_of`)."""
    charts = _CHARTS[figure](rows) if rows else []
    return [chart for chart in charts if chart.series]


def _methods(rows: Iterable[Row]) -> list[str]:
    present = {row.method for row in rows}
    return [name for name in METHODS if name in present] + sorted(present - METHODS.keys())


def _summarised(
    rows: Sequence[Row], measure: str, x: str, summary: Callable[[list[float]], tuple[float, float, float]]
) -> list[Series]:
    """One curve a method: at each x a middle, a low and a high value of all rows there."""
    found = []
    for method in _methods(rows):
        own = [row for row in chosen(rows, method=method, measure=measure) if getattr(row, x) is not None]
        groups = by(own, x)
        if groups:
            values = [[math.inf if math.isnan(row.value) else row.value for row in group] for group in groups.values()]
            middle, low, high = zip(*map(summary, values), strict=True)
            found.append(Series(method, list(groups), middle, low, high))
    return found


def _mean(values: list[float]) -> tuple[float, float, float]:
    """Mean and two standard errors on either side."""
    mean = float(np.mean(values))
    if math.isinf(mean):
        return mean, mean, mean
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return mean, max(mean - 2 * error, 0.0), mean + 2 * error


def _share(values: list[float]) -> tuple[float, float, float]:
    """Percentage and two standard errors on either side."""
    mean, low, high = _mean(values)
    return 100 * mean, 100 * low, min(100 * high, 100.0)


def _median(values: list[float]) -> tuple[float, float, float]:
    """Median, least and greatest."""
    return median(values), min(values), max(values)


def _estimation_charts(rows: Sequence[Row]) -> list[Chart]:
    charts = []
    for d, group in by(rows, "d").items():
        title, samples = f"{group[0].data}, d = {d:,}", "number of samples N"
        error = _summarised(group, "estimation_error", "n", _mean)
        share = _summarised(group, "recovered", "n", _share)
        charts.append(Chart(title, "error of the coefficients ‖w − w̄‖ / ‖w̄‖, mean", samples, error))
        charts.append(Chart(title, "copies in which the support is found", samples, share, percent=True))
    return charts


def _part_title(rows: Sequence[Row]) -> str:
    row = rows[0]
    return f"{row.data}, λ = {row.lam:g}" if row.lam is not None else row.data


def _time_charts(rows: Sequence[Row]) -> list[Chart]:
    units = {"seconds": "seconds to IHT's objective", "passes": "passes over the data to IHT's objective"}
    return [
        Chart(_part_title(rows), unit, "sparsity level k", _summarised(rows, measure, "k", _median), y_log=True)
        for measure, unit in units.items()
    ]


def _gap_charts(rows: Sequence[Row]) -> list[Chart]:
    title = _part_title(rows) + (f", k = {rows[0].k:,}" if rows[0].k is not None else "")
    gaps = _without_bands(_summarised(rows, "relative_gap", "epoch", _median))
    subtitle = "primal-dual gap / objective"
    return [
        Chart(title, subtitle, "epochs (passes over the data)", gaps, y_log=True),
        Chart(title, subtitle, "seconds", _against_clock(rows, gaps), x_log=True, y_log=True),
    ]


def _without_bands(curves: Sequence[Series]) -> list[Series]:
    return [Series(curve.method, curve.x, curve.y, bound=curve.bound) for curve in curves]


def _against_clock(rows: Sequence[Row], gaps: Sequence[Series]) -> list[Series]:
    """The same curves over the median time at which their epochs ended; the start has no place on a logarithmic axis."""
    clocks = {
        clock.method: dict(zip(clock.x, clock.y, strict=True))
        for clock in _summarised(rows, "seconds", "epoch", _median)
    }
    found = []
    for curve in gaps:
        clock = clocks.get(curve.method, {})
        points = [(clock[x], y) for x, y in zip(curve.x, curve.y, strict=True) if clock.get(x, 0.0) > 0]
        if points:
            seconds, values = zip(*points, strict=True)
            found.append(Series(curve.method, seconds, values))
    return found


def _theory_charts(rows: Sequence[Row]) -> list[Chart]:
    row = rows[0]
    iterations = f"iteration t (N = {row.n}, d = {row.d}, k = {row.k})"
    words = {"dual_error": "squared distance to the dual optimum", "gap": "primal-dual gap"}
    said = {"t0_measured": "support found", "t0": "t₀"}
    rules = [(found[0].value, word) for name, word in said.items() if (found := chosen(rows, measure=name))]
    rows = [row for row in rows if row.epoch is None or row.epoch > 0]  # t = 0 has no place on a logarithmic axis
    charts = []
    for measure, meaning in words.items():
        curves = _without_bands(_summarised(rows, measure, "epoch", _mean))
        bounds = [
            Series(bound.method, bound.x, bound.y, bound=True)
            for bound in _summarised(rows, f"{measure}_bound", "epoch", _mean)
        ]
        charts.append(
            Chart(_part_title(rows), meaning, iterations, [*curves, *bounds], x_log=True, y_log=True, rules=rules)
        )
    return charts


_CHARTS: dict[str, Callable[[Sequence[Row]], list[Chart]]] = {
    "fig1": _estimation_charts,
    "fig2": _time_charts,
    "fig3": _gap_charts,
    "fig4": _time_charts,
    "fig5": _gap_charts,
    "theory": _theory_charts,
}

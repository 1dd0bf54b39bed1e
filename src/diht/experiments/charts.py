"""The charts of the results: what they show of a row set, and one colour and mark a method everywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from diht.experiments.claims import by, chosen, median
from diht.experiments.table import Row
from diht.report.charts import INKS, WIDTH, Chart, Drawing, style
from diht.report.charts import Series as AnySeries

__all__ = ["METHODS", "STYLE", "Chart", "Series", "charts_of", "sheet"]

METHODS = dict(zip(("DIHT", "SDIHT", "auto", "IHT", "HTP", "SVR-GHT", "abess"), INKS.values(), strict=True))
METHODS["oracle"] = ("#8c4a2f", "#d39a7d", "plus")
STYLE = style(METHODS)


@dataclass(frozen=True)
class Series(AnySeries):
    """One curve: a method's, or a bound on it."""

    @property
    def method(self) -> str:
        """Whose curve it is."""
        return self.name

    @property
    def label(self) -> str:
        """What the legend says."""
        return f"{self.method}'s bound" if self.bound else self.method

    @property
    def css(self) -> str:
        """The class of its colour."""
        return f"m-{self.method.lower()}"

    @property
    def shape(self) -> str:
        """Its mark."""
        return METHODS[self.method][2] if self.method in METHODS else "circle"


def sheet(charts: Sequence[Chart], columns: int = 2) -> str:
    """Return one SVG file with all of the charts, for pages that cannot hold more than an image."""
    drawings = [Drawing(chart) for chart in charts]
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
        share = _summarised([row for row in group if row.method != "oracle"], "recovered", "n", _share)
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

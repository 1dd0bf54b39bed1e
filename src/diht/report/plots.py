"""Pictures of a fit: the two bounds closing in on each other, and the coefficients.

Figures are drawn on their own canvas, without pyplot, so that nothing global is touched; they get figures to show and
never compute any.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from diht.numerics.arrays import Vector
from diht.numerics.digits import percent
from diht.report.text import printable, significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from diht.result import Result

__all__ = [
    "Bars",
    "Curve",
    "Frequencies",
    "Ranges",
    "Steps",
    "draw_coefficients",
    "draw_convergence",
    "draw_frequencies",
    "draw_path",
    "draw_ranges",
    "to_png",
]

OBJECTIVE, BOUND, GAP = "#1f4e79", "#c05a00", "#dfe7ef"
POSITIVE, NEGATIVE = "#1f4e79", "#c05a00"
INK, FAINT = "#222222", "#8a8a8a"
# One for each feature that is named; those of Okabe and Ito, and others that differ from them in lightness.
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8860b",
    "#6a4c9c", "#8c4a2f", "#5f7d1a", "#c03060", "#3d3d3d", "#00858a",
)  # fmt: skip
MAX_BARS, MAX_BARS_EACH, MAX_PANELS = 40, 12, 12
SELDOM = 0.1  # a feature of fewer models than this share is counted and has no bar


@dataclass(frozen=True, eq=False)
class Curve:
    """Best objective and best bound after each evaluation; `label` tells one equation from another."""

    label: str
    iterations: Vector
    objective: Vector
    bound: Vector
    relative_gap: float
    seconds: float

    @classmethod
    def of(cls, result: Result, label: str = "") -> Curve:
        """Take the trace of a solve, and its final figures as the last point."""
        trace = result.trace
        last = max(result.n_iter, 1)
        return cls(
            label=label,
            iterations=np.append(np.maximum(trace.column("iteration"), 1.0), last),
            objective=np.append(trace.column("best_objective"), result.objective),
            bound=np.append(trace.column("best_bound"), result.lower_bound),
            relative_gap=result.relative_gap,
            seconds=result.seconds,
        )


@dataclass(frozen=True, eq=False)
class Bars:
    """Coefficients with their names; `label` tells one equation from another, `marked` are the names that get a star."""

    label: str
    names: Sequence[str]
    values: Vector
    marked: frozenset[str] = frozenset()

    def largest(self, count: int) -> Bars:
        """Return the largest ones, in descending order of magnitude."""
        order = np.argsort(-np.abs(self.values), kind="stable")[:count]
        return Bars(self.label, [self.names[j] for j in order], self.values[order], self.marked)


@dataclass(frozen=True, eq=False)
class Steps:
    """A path over k: objective and bound, and of every feature used its coefficients and where it is proved to be in."""

    ks: NDArray[np.int64]
    objective: Vector
    bound: Vector
    names: Sequence[str]
    coef: NDArray[Any]  # one row a step
    axis: str  # what they are
    required: NDArray[np.bool_]
    counted: str = "features"  # what k counts


@dataclass(frozen=True, eq=False)
class Ranges:
    """Coefficients with the ends of their intervals."""

    names: Sequence[str]
    values: Vector
    low: Vector
    high: Vector

    def largest(self, count: int) -> Ranges:
        """Return the largest ones, in descending order of magnitude."""
        order = np.argsort(-np.abs(self.values), kind="stable")[:count]
        return Ranges([self.names[j] for j in order], self.values[order], self.low[order], self.high[order])


@dataclass(frozen=True, eq=False)
class Frequencies:
    """In which share of some models features are, descending; `strong` are those that count, by a `threshold` or otherwise."""

    names: Sequence[str]
    values: Vector
    strong: NDArray[np.bool_]
    threshold: float | None = None


def to_png(figure: Figure) -> bytes:
    """Return the figure as the bytes of a PNG file."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a name in a script that the font lacks shows as boxes
        figure.savefig(buffer, format="png")
    return buffer.getvalue()


# ------------------------------------------------------------------------------------------------- convergence


def draw_convergence(curves: Sequence[Curve], title: str) -> Figure:
    """Draw how the best objective and the best bound approach each other, one panel a certificate.

    One curve gets a second panel with the relative gap on a logarithmic axis.
    """
    if len(curves) > 1:
        return _convergence_panels(curves, title)
    (curve,) = curves
    figure = _figure(8.0, 6.4)
    figure.suptitle(title, fontsize=13, color=INK, x=0.02, ha="left", parse_math=False)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[2.2, 1.0])
    _draw_bounds(top, curve)
    top.set_ylabel("objective")
    top.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, frameon=False, fontsize=9.5, borderaxespad=0.2)
    _draw_gap(bottom, curve)
    bottom.set_xlabel(f"iterations ({significant(curve.seconds, 3)} s in all)")
    return figure


def _convergence_panels(curves: Sequence[Curve], title: str) -> Figure:
    shown = sorted(curves, key=lambda curve: -curve.relative_gap)[:MAX_PANELS]
    note = f" (the {len(shown)} widest gaps of {len(curves)})" if len(shown) < len(curves) else ""
    shown = [curve for curve in curves if curve in shown]
    figure, panels = _grid(len(shown), 4.0, 2.9, title + note)
    for panel, curve in zip(panels, shown, strict=True):
        _draw_bounds(panel, curve)
        panel.set_title(printable(curve.label, 30), loc="left", fontsize=10, color=INK, parse_math=False)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    for panel in panels:
        panel.set_xlabel("iterations", fontsize=9)
    figure.supylabel("objective", fontsize=10)
    return figure


def _draw_bounds(axes: Axes, curve: Curve) -> None:
    """Both bounds with the gap between them, cut to where they meet: the first objective may be a thousand times larger."""
    t, P, D = curve.iterations, curve.objective, curve.bound
    low, high = _visible(P, D)
    axes.fill_between(t, np.clip(D, low, None), P, step="post", color=GAP, linewidth=0, label="gap")
    axes.step(t, P, where="post", color=OBJECTIVE, linewidth=1.8, label="objective of the best model")
    axes.step(t, D, where="post", color=BOUND, linewidth=1.8, label="lower bound: no model is below")
    axes.plot(t[-1], P[-1], "o", color=OBJECTIVE, markersize=4.5, clip_on=False)
    axes.plot(t[-1], D[-1], "o", color=BOUND, markersize=4.5, clip_on=False)
    axes.set_ylim(low, high)
    _iteration_axis(axes, curve)
    _plain_axes(axes)
    axes.annotate(
        f"gap {percent(curve.relative_gap)}",
        xy=(0.985, 0.03),
        xycoords="axes fraction",
        ha="right",
        va="bottom",
        fontsize=10,
        fontweight="bold",
        color=INK,
        bbox={"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
    )


def _visible(P: Vector, D: Vector) -> tuple[float, float]:
    """Range of the objective axis: all of both curves, but not much more than a few gaps around where they end."""
    end, proved = float(P[-1]), float(D[-1])
    span = max(2.0 * (end - proved), 0.8 * abs(end), 1e-12)
    finite = D[np.isfinite(D)]
    high = min(float(P.max()), end + span)
    low = max(float(finite.min()) if finite.size else proved, proved - span)
    room = 0.06 * max(high - low, 0.02 * span)
    return low - room, high + room


def _draw_gap(axes: Axes, curve: Curve) -> None:
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = (curve.objective - curve.bound) / np.abs(curve.objective)
    shown = np.isfinite(gap) & (gap > 0)
    axes.step(curve.iterations[shown], 100 * gap[shown], where="post", color=INK, linewidth=1.5)
    if shown.any():
        _percent_axis(axes, 100 * gap[shown])
    else:
        axes.text(0.5, 0.5, "the gap is zero", transform=axes.transAxes, ha="center", va="center", color=FAINT)
        axes.set_yticks([])
    axes.set_ylabel("relative gap")
    _iteration_axis(axes, curve)
    _plain_axes(axes)


def _percent_axis(axes: Axes, gap: Vector) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = float(gap.min()), float(gap.max())
    axes.set_ylim(low / 1.3, high * 1.3)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 30 * low else (1.0, 2.0, 5.0), numticks=8))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _iteration_axis(axes: Axes, curve: Curve) -> None:
    """Logarithmic where the gap halves within the first tenth of many iterations: most happens there."""
    t = curve.iterations
    with np.errstate(invalid="ignore", divide="ignore"):
        halved = t[curve.objective - curve.bound <= 0.5 * np.abs(curve.objective)]
    first, last = float(t.min()), float(t.max())
    if last > 30 and halved.size and halved[0] < 0.1 * last:
        axes.set_xscale("log")
    else:
        from matplotlib.ticker import MaxNLocator

        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlim(*((first, last) if first < last else (0.0, last + 1.0)))


# ------------------------------------------------------------------------------------------------ coefficients


def draw_coefficients(equations: Sequence[Bars], title: str, axis: str) -> Figure:
    """Draw the coefficients as horizontal bars, the largest on top, one panel a class or target."""
    if len(equations) > 1:
        return _coefficient_panels(equations, title, axis)
    (bars,) = equations
    shown = bars.largest(MAX_BARS)
    note = f" (the {MAX_BARS} largest)" if len(bars.names) > MAX_BARS else ""
    figure = _figure(8.0, 1.5 + 0.27 * max(len(shown.names), 3))
    figure.suptitle(title + note, fontsize=13, color=INK, x=0.02, ha="left", parse_math=False)
    axes = figure.subplots()
    _draw_bars(axes, shown, width=40, fontsize=9.5)
    axes.set_xlabel(axis, parse_math=False)
    return figure


def _coefficient_panels(equations: Sequence[Bars], title: str, axis: str) -> Figure:
    shown = [bars.largest(MAX_BARS_EACH) for bars in equations[:MAX_PANELS]]
    parts = []
    if len(equations) > MAX_PANELS:
        parts.append(f"the first {MAX_PANELS} of {len(equations)} shown")
    if any(len(bars.names) > MAX_BARS_EACH for bars in equations):
        parts.append(f"the {MAX_BARS_EACH} largest coefficients of each")
    most = max(len(bars.names) for bars in shown)
    note = f" ({', '.join(parts)})" if parts else ""
    figure, panels = _grid(len(shown), 4.6, 1.1 + 0.22 * max(most, 3), title + note)
    for panel, bars in zip(panels, shown, strict=True):
        _draw_bars(panel, bars, width=22, fontsize=8)
        panel.set_title(printable(bars.label, 30), loc="left", fontsize=10, color=INK, parse_math=False)
    figure.supxlabel(axis, fontsize=10, parse_math=False)
    return figure


def _draw_bars(axes: Axes, bars: Bars, width: int, fontsize: float) -> None:
    values = np.asarray(bars.values, dtype=np.float64)
    at = np.arange(len(values))
    colors = [POSITIVE if value > 0 else NEGATIVE for value in values]
    axes.barh(at, values, height=0.68, color=colors)
    labels = [printable(name, width) + " *" * (name in bars.marked) for name in bars.names]
    axes.set_yticks(at, labels=labels, fontsize=fontsize, parse_math=False)
    axes.set_ylim(max(len(values), 1) - 0.4, -0.6)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    _plain_axes(axes)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if not len(values):
        axes.text(0.5, 0.5, "no feature has a coefficient", transform=axes.transAxes, ha="center", color=FAINT)
        return
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    room = 0.16 * (high - low)  # for the figures at the bars' ends
    axes.set_xlim(low - room * (low < 0), high + room * (high > 0))
    for position, value in zip(at, values, strict=True):
        axes.annotate(
            significant(value, 3),
            xy=(value, position),
            xytext=(4 if value > 0 else -4, 0),
            textcoords="offset points",
            ha="left" if value > 0 else "right",
            va="center",
            fontsize=fontsize - 1.0,
            color=INK,
        )


def draw_ranges(ranges: Ranges, title: str, axis: str) -> Figure:
    """Draw coefficients with their intervals, the largest on top; those whose interval holds zero are faint."""
    shown = ranges.largest(MAX_BARS)
    note = f" (the {MAX_BARS} largest)" if len(ranges.names) > MAX_BARS else ""
    figure = _figure(8.0, 1.5 + 0.27 * max(len(shown.names), 3))
    figure.suptitle(title + note, fontsize=13, color=INK, x=0.02, ha="left", parse_math=False)
    axes = figure.subplots()
    for place, (value, low, high) in enumerate(zip(shown.values, shown.low, shown.high, strict=True)):
        color = FAINT if low <= 0.0 <= high else POSITIVE if value > 0 else NEGATIVE
        axes.plot([low, high], [place, place], color=color, linewidth=1.8)
        axes.plot(value, place, "o", color=color, markersize=4.5)
    labels = [printable(name, 40) for name in shown.names]
    axes.set_yticks(np.arange(len(labels)), labels=labels, fontsize=9.5, parse_math=False)
    axes.set_ylim(max(len(labels), 1) - 0.4, -0.6)
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.set_xlabel(axis, parse_math=False)
    _plain_axes(axes)
    return figure


# ------------------------------------------------------------------------------------------------------- path


def draw_path(steps: Steps, title: str) -> Figure:
    """Draw objective and bound, the coefficients, and which features are in and proved to be in, against k."""
    rows = _longest_in(steps)
    heights = [2.2, 3.0, 0.5 + 0.2 * len(rows)]
    figure = _figure(8.0, sum(heights) + 1.6)
    figure.suptitle(title, fontsize=13, color=INK, x=0.02, ha="left", parse_math=False)
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=heights)
    colours = _feature_colours(steps)
    _draw_path_bounds(top, steps)
    _draw_path_coefficients(middle, steps, colours)
    _name_curves(middle, steps, colours, heights[1])
    _draw_members(bottom, steps, rows, colours)
    bottom.set_xlabel(f"k, the number of {steps.counted} allowed")
    return figure


def _longest_in(steps: Steps) -> NDArray[np.int64]:
    """Return the features that are in at most steps, in the order in which they enter."""
    inside = steps.coef != 0.0
    most = np.argsort(-inside.sum(axis=0), kind="stable")[:MAX_BARS]
    return np.asarray(most[np.argsort(inside[:, most].argmax(axis=0), kind="stable")])


def _feature_colours(steps: Steps) -> dict[int, str]:
    """Return a colour for each of the features that are largest in the end, in the order in which they enter."""
    largest = np.argsort(-np.abs(steps.coef[-1]), kind="stable")[: len(COLOURS)].tolist()
    shown = [j for j in largest if steps.coef[-1, j] != 0.0]
    entered = (steps.coef != 0.0).argmax(axis=0)
    return dict(zip(sorted(shown, key=lambda j: (entered[j], j)), COLOURS, strict=False))


def _draw_path_bounds(axes: Axes, steps: Steps) -> None:
    axes.fill_between(steps.ks, steps.bound, steps.objective, color=GAP, linewidth=0, label="gap")
    axes.plot(steps.ks, steps.objective, "o-", color=OBJECTIVE, linewidth=1.6, markersize=3.5, label="objective")
    label = "lower bound: no model is below"
    axes.plot(steps.ks, steps.bound, "o-", color=BOUND, linewidth=1.6, markersize=3.5, label=label)
    axes.set_ylabel("objective")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=3, frameon=False, fontsize=9.5, borderaxespad=0.2)
    _plain_axes(axes)


def _draw_path_coefficients(axes: Axes, steps: Steps, colours: dict[int, str]) -> None:
    """One line a feature; those without a colour are faint. A full mark where it is proved to be in every best model."""
    for j in range(len(steps.names)):
        out = np.pad(steps.coef[:, j] == 0.0, 1, mode="edge")
        curve = np.where(out[:-2] & out[1:-1] & out[2:], np.nan, steps.coef[:, j])  # no line along zero
        if j in colours:
            axes.plot(steps.ks, curve, color=colours[j], linewidth=1.5)
            _mark(axes, steps, j, steps.coef[:, j], colours[j])
        else:
            axes.plot(steps.ks, curve, color=FAINT, linewidth=0.6, alpha=0.5)
    low, high = min(float(steps.coef.min()), 0.0), max(float(steps.coef.max()), 0.0)
    room = 0.05 * (high - low) or 1.0
    axes.set_ylim(low - room, high + room)
    axes.axhline(0.0, color=INK, linewidth=0.8)
    axes.set_ylabel(steps.axis)
    _plain_axes(axes)


def _name_curves(axes: Axes, steps: Steps, colours: dict[int, str], inches: float) -> None:
    """Write names beside the ends of their curves, moved apart where they would overlap, each with a line to its curve."""
    low, high = axes.get_ylim()
    ends = sorted(colours, key=lambda j: float(steps.coef[-1, j]))
    wanted = np.array([(steps.coef[-1, j] - low) / (high - low) for j in ends])
    line = {"arrowstyle": "-", "linewidth": 0.6, "relpos": (0.0, 0.5), "shrinkA": 0, "shrinkB": 0}
    places = _apart(
        wanted, 12.5 / (72.0 * inches)
    )  # points: a line of 8 takes 11, and axes are a little lower than planned
    for j, end, place in zip(ends, wanted, places, strict=True):
        axes.annotate(
            printable(steps.names[j], 30),
            xy=(1.0, float(end)),
            xycoords="axes fraction",
            xytext=(1.04, float(place)),
            va="center",
            fontsize=8,
            color=colours[j],
            parse_math=False,
            annotation_clip=False,
            arrowprops=line | {"color": colours[j]},
        )


def _apart(wanted: Vector, distance: float) -> Vector:
    """Return places near to ascending ones, in the sense of least squares, that have this distance; within [0, 1] if they fit."""
    shift = distance * np.arange(len(wanted))
    blocks: list[list[float]] = []  # sum and number of places that became neighbours
    for value in wanted - shift:
        blocks.append([float(value), 1.0])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    means = [total / count for total, count in blocks for _ in range(int(count))]
    room = max(1.0 - distance * (len(wanted) - 1), 0.0)
    places: Vector = shift + np.clip(means, 0.0, room)
    return places


def _mark(axes: Axes, steps: Steps, j: int, heights: Vector, colour: str) -> None:
    """A mark where feature j is in the model, a full one where it is proved to be in every best model."""
    inside, proved = steps.coef[:, j] != 0.0, steps.required[:, j]
    for chosen, fill in ((inside & ~proved, "white"), (proved, colour)):
        axes.plot(
            steps.ks[chosen],
            heights[chosen],
            "o",
            color=colour,
            markerfacecolor=fill,
            markersize=4.0,
            markeredgewidth=1.0,
        )


def _draw_members(axes: Axes, steps: Steps, rows: NDArray[np.int64], colours: dict[int, str]) -> None:
    """One line a feature, with a mark at every k at which it is in the model."""
    from matplotlib.ticker import MaxNLocator

    for place, j in enumerate(rows.tolist()):
        _mark(axes, steps, j, np.full(len(steps.ks), float(place)), colours.get(j, FAINT))
    labels = [printable(steps.names[j], 30) for j in rows]
    axes.set_yticks(np.arange(len(rows)), labels=labels, fontsize=8, parse_math=False)
    for label, j in zip(axes.get_yticklabels(), rows.tolist(), strict=True):
        label.set_color(colours.get(j, FAINT))
    axes.set_ylim(max(len(rows), 1) - 0.4, -0.6)
    axes.set_title("in the model (filled: proved to be in every best one)", loc="left", fontsize=9.5, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
    _plain_axes(axes, ticks=False)


# ------------------------------------------------------------------------------------------------- frequencies


def draw_frequencies(frequencies: Frequencies, title: str, axis: str) -> Figure:
    """Draw in which share of some models features are; those of few models are counted in one line below."""
    values = np.asarray(frequencies.values, dtype=np.float64)
    count = min(int((values >= SELDOM).sum()), MAX_BARS)
    figure = _figure(8.0, 1.7 + 0.27 * max(count, 3))
    figure.suptitle(title, fontsize=13, color=INK, x=0.02, ha="left", parse_math=False)
    axes = figure.subplots()
    at, shown = np.arange(count), 100.0 * values[:count]
    colours = [POSITIVE if strong else FAINT for strong in frequencies.strong[:count]]
    axes.barh(at, shown, height=0.68, color=colours)
    axes.set_yticks(
        at, labels=[printable(name, 40) for name in frequencies.names[:count]], fontsize=9.5, parse_math=False
    )
    axes.set_ylim(max(count, 1) - 0.4, -0.6)
    axes.set_xlim(0.0, 100.0)
    axes.xaxis.set_major_formatter("{x:g}%")
    others = len(values) - count
    below = f"\n{others:,} other{'s' * (others != 1)}, each in at most {percent(values[count])}" if others else ""
    axes.set_xlabel(axis + below, parse_math=False)
    _plain_axes(axes)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    beside = axes.get_yaxis_transform()  # figures in a column right of the bars
    for place, share in zip(at, shown, strict=True):
        axes.text(1.01, float(place), f"{share:.0f}%", transform=beside, va="center", fontsize=8.5, color=INK)
    if frequencies.threshold is not None:
        _draw_threshold(axes, 100.0 * frequencies.threshold)
    return figure


def _draw_threshold(axes: Axes, threshold: float) -> None:
    axes.axvline(threshold, color=BOUND, linewidth=1.5, linestyle="--")
    axes.text(
        threshold, 1.01, f"stable from {threshold:g}% on", transform=axes.get_xaxis_transform(),
        ha="center", va="bottom", fontsize=9, color=BOUND,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------- common


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, layout="constrained", facecolor="white")


def _grid(count: int, width: float, height: float, title: str) -> tuple[Figure, list[Any]]:
    """Return a figure with `count` equal panels in at most three columns."""
    columns = 2 if count in (2, 4) else min(3, count)
    rows = math.ceil(count / columns)
    figure = _figure(width * columns, height * rows + 0.9)
    figure.suptitle(title, fontsize=13, color=INK, x=0.02, ha="left", parse_math=False)
    panels = list(figure.subplots(rows, columns, squeeze=False).ravel())
    for panel in panels[count:]:
        panel.remove()
    return figure, panels[:count]


def _plain_axes(axes: Axes, ticks: bool = True) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    if ticks:
        axes.tick_params(colors=INK, labelsize=9)
    axes.grid(visible=True, color="#ececec", linewidth=0.8)
    axes.set_axisbelow(True)

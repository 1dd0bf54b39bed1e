"""Verdicts of rows whose verdict is known, charts, and the page in a real browser."""

import math
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from browser import CHROMIUM, Browser
from diht.experiments.charts import METHODS, Chart, Series, charts_of, sheet
from diht.experiments.claims import (
    FIGURES,
    HOLDS,
    IN_PART,
    NOT,
    NOT_RUN,
    Spread,
    chosen,
    judge,
    number,
    parts_of,
    speedups,
)
from diht.experiments.findings import findings, sentences
from diht.experiments.page import page, write_page
from diht.experiments.table import FILE, Row, read_rows

WHERE = {
    "mode": "full", "version": "0.1.0", "python": "3.11.7", "numpy": "2.4.6", "machine": "x86_64, 2 cores", "date": "2026-11-15",
}  # fmt: skip
SIZES = (40, 70, 100, 150, 200)
ERRORS = {"DIHT": 0.8, "IHT": 1.0, "HTP": 1.1, "auto": 0.5, "abess": 0.9, "oracle": 0.4}
SECONDS = {"DIHT": 1.0, "SDIHT": 0.3, "IHT": 5.0, "HTP": 20.0, "SVR-GHT": 4.0, "auto": 0.2}
RATES = {"DIHT": 0.5, "SDIHT": 1.5, "auto": 2.5}


def row(figure, measure, value, **cells):
    empty = dict.fromkeys(("n", "d", "k", "lam", "seed", "step", "epoch"))
    named = {"data": "synthetic", "method": "DIHT", "loss": "squared"} | empty | WHERE | cells
    return Row(figure=figure, measure=measure, value=float(value), **named)


def estimation(errors=ERRORS, copies=30, sizes=SIZES, noise=0.02, peak=100):
    """Errors that shrink with N, the advantage over IHT largest at `peak`; the same noise for every method, and some of its own."""
    rng = np.random.default_rng(0)
    rows = []
    for d in (500, 300):
        for n in sizes:
            spread = math.exp(-((n - peak) ** 2) / 4000)
            shared = rng.normal(0, noise, copies)
            for method, factor in errors.items():
                error = 20 / n + 0.3 + (factor - 1) * (0.1 + 0.4 * spread) + shared + rng.normal(0, noise / 4, copies)
                found = rng.random(copies) < np.clip((n / 120) ** 3 * (1.6 - factor), 0, 1)
                for seed in range(copies):
                    cells = {"d": d, "n": n, "k": 100, "method": method, "seed": seed, "lam": 1.0}
                    rows.append(row("fig1", "estimation_error", abs(error[seed]), **cells))
                    rows.append(row("fig1", "recovered", found[seed], **cells))
    return rows


def times(figure="fig2", seconds=SECONDS, data="news20", lams=(0.002, 0.0002), ks=(200, 400, 600, 800, 1000)):
    rng = np.random.default_rng(1)
    loss = {"fig2": "smoothed_hinge", "fig4": "hinge"}[figure]
    rows = []
    for lam in lams:
        for k in ks:
            for method, value in seconds.items():
                for seed in range(3):
                    cells = {"data": data, "loss": loss, "n": 19996, "d": 1355191, "k": k, "lam": lam, "method": method}
                    taken = value * (1 + k / 1000) * rng.uniform(0.9, 1.1)
                    rows.append(row(figure, "seconds", taken, seed=seed, **cells))
                rows.append(row(figure, "passes", 10 * value, **cells))
    return rows


def gaps(figure="fig3", rates=RATES, data="news20", epochs=30, floor=0.0, lams=(0.002, 0.0002)):
    loss = {"fig3": "smoothed_hinge", "fig5": "hinge"}[figure]
    rows = []
    for lam in lams:
        for method, rate in rates.items():
            for epoch in np.linspace(0.7, epochs, 9) if method == "auto" else range(1, epochs + 1):
                cells = {
                    "data": data,
                    "loss": loss,
                    "k": 60000,
                    "lam": lam,
                    "method": method,
                    "epoch": float(epoch),
                    "seed": 0,
                }
                gap = floor + 0.9 * math.exp(-rate * epoch)
                for measure, value in (("gap", 0.6 * gap), ("relative_gap", gap), ("seconds", 0.1 * epoch)):
                    rows.append(row(figure, measure, value, **cells))
    return rows


def theory(error=0.01, gap=0.01, t0=4e5, t0_measured=40, last=2000):
    cells = {"data": "synthetic-small", "loss": "smoothed_hinge", "n": 30, "d": 12, "k": 3, "lam": 0.1}
    rows = [row("theory", "t0", t0, **cells), row("theory", "t0_measured", t0_measured, **cells)]
    for t in np.unique(np.geomspace(1, last, 60).astype(int)):
        bound = (1 + math.log(t)) / t
        values = {
            "dual_error": error * 100 * bound,
            "dual_error_bound": 100 * bound,
            "recovered": float(t >= t0_measured),
        }
        values |= {"gap": gap * math.sqrt(bound), "gap_bound": math.sqrt(bound)}
        rows += [row("theory", measure, value, epoch=float(t), **cells) for measure, value in values.items()]
    return rows


def everything():
    never = replace_method(times("fig4", data="rcv1 stand-in"), "HTP", lambda r: r.k >= 800, math.inf)
    return [
        *estimation(), *times(), *times(data="rcv1 stand-in"), *gaps(), *gaps(data="imdb", floor=1e-2), *never,
        *gaps("fig5", data="rcv1 stand-in"), *theory(),
    ]  # fmt: skip


def replace_method(rows, method, where, value):
    return [
        replace(r, value=value) if r.method == method and where(r) and r.measure != "objective" else r for r in rows
    ]


def verdicts(rows, figure):
    return [claim.verdict for claim in judge(rows) if claim.figure == figure]


# claims


def test_nothing_run():
    claims = judge([])
    assert {claim.figure for claim in claims} == set(FIGURES)
    assert {claim.verdict for claim in claims} == {NOT_RUN}


def test_estimation_holds():
    claims = judge(estimation())[:3]
    assert [claim.verdict for claim in claims] == [HOLDS, HOLDS, HOLDS]
    assert "30 copies" in claims[0].measured
    assert "where N is at most k" in claims[2].measured


def test_the_oracle_is_told_where_the_features_are_found():
    """Its error is compared in the cells in which `auto` always recovers, and it takes no part in the contests."""
    rows = [r for r in estimation() if r.method != "oracle"]
    sure = min((r.d, r.n) for r in rows)
    rows = [
        replace(r, value=float((r.d, r.n) == sure)) if r.method == "auto" and r.measure == "recovered" else r
        for r in rows
    ]
    oracles = [
        replace(
            r,
            method="oracle",
            value=1.0 if r.measure == "recovered" else r.value / (2.0 if (r.d, r.n) == sure else 8.0),
        )
        for r in rows
        if r.method == "auto"
    ]
    before, after = judge(rows)[2], judge([*rows, *oracles])[2]
    assert "oracle" not in before.measured
    assert "in the 1 case in which auto always finds the planted features, its error is 2 times" in after.measured
    assert after.measured.startswith(before.measured[:-1])


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ({"DIHT": 1.2, "IHT": 1.0, "HTP": 1.0, "auto": 1.4}, [NOT, NOT, NOT]),  # worse everywhere
        ({"DIHT": 0.8, "IHT": 1.0, "HTP": 1.1, "auto": 1.4}, [HOLDS, HOLDS, NOT]),
        ({"DIHT": 1.2, "IHT": 1.0, "HTP": 1.0, "auto": 0.5}, [NOT, NOT, HOLDS]),
    ],
)
def test_estimation_falsified(errors, expected):
    assert verdicts(estimation(errors), "fig1") == expected


def test_level_everywhere_is_not_better():
    """Two methods that differ by chance alone: nobody is worse, nobody is better."""
    rows = estimation({"DIHT": 1.0, "IHT": 1.0, "HTP": 1.0})
    assert verdicts(rows, "fig1")[0] == IN_PART


def test_worse_at_one_size_only():
    rows = [
        replace(r, value=r.value + 0.2)
        if (r.d, r.n, r.method, r.measure) == (500, 200, "DIHT", "estimation_error")
        else r
        for r in estimation()
    ]
    claim = judge(rows)[0]
    assert claim.verdict == IN_PART
    assert re.search(
        r"worse in 2 of 20 comparisons \(at worst by [\d.]+, against IHT at d = 500, N = 200\)", claim.measured
    )


def test_chance_is_not_worse():
    """A deficit that 100 copies cannot tell from zero does not count; one that they can does."""
    rng = np.random.default_rng(3)

    def rows(shift):
        noise = rng.normal(0, 0.1, 100)
        noise -= noise.mean()
        return [
            row("fig1", measure, value, d=500, n=100, k=100, method=method, seed=seed)
            for seed in range(100)
            for method, error in (("DIHT", 0.5 + shift + noise[seed]), ("IHT", 0.5), ("HTP", 0.9))
            for measure, value in (("estimation_error", error), ("recovered", method == "DIHT"))
        ]

    assert verdicts(rows(0.01), "fig1")[0] == HOLDS  # one standard error
    assert verdicts(rows(0.05), "fig1")[0] == IN_PART  # five


def test_pairing_matters():
    """A difference far below the spread over the copies is seen, for each copy is compared with itself."""
    rng = np.random.default_rng(4)
    level = rng.uniform(0, 1, 100)
    rows = [
        row("fig1", measure, value, d=500, n=100, k=100, method=method, seed=seed)
        for seed in range(100)
        for method, more in (("DIHT", 0.0), ("IHT", 0.02), ("HTP", 0.02))
        for measure, value in (("estimation_error", level[seed] + more), ("recovered", 1.0))
    ]
    assert verdicts(rows, "fig1")[0] == HOLDS
    worse = [replace(r, method={"DIHT": "IHT", "IHT": "DIHT", "HTP": "HTP"}[r.method]) for r in rows]
    assert verdicts(worse, "fig1")[0] == NOT


def test_time_holds_with_known_ratios():
    claim = next(claim for claim in judge(times(lams=(0.002,))) if claim.figure == "fig2")
    assert claim.verdict == HOLDS
    assert "DIHT is" in claim.measured
    assert "4 times in passes" in claim.measured
    assert "news20, λ = 0.002" in claim.title


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"DIHT": 50.0, "SDIHT": 50.0}, NOT),
        ({"DIHT": 50.0}, IN_PART),  # SDIHT alone
        ({"DIHT": 3.0, "SDIHT": 3.0}, IN_PART),  # less, but not much less
        ({"DIHT": math.inf, "SDIHT": math.inf}, NOT),
        ({"IHT": math.inf, "HTP": math.inf, "SVR-GHT": math.inf}, HOLDS),
        (dict.fromkeys(SECONDS, math.inf), NOT),
    ],
)
@pytest.mark.parametrize("figure", ["fig2", "fig4"])
def test_time_falsified(figure, changed, expected):
    assert set(verdicts(times(figure, SECONDS | changed), figure)) == {expected}


def test_time_judges_each_part_and_says_who_never_arrived():
    rows = times() + replace_method(times(data="imdb"), "DIHT", lambda r: r.lam == 0.002 and r.k == 200, math.inf)
    found = {claim.part: claim for claim in judge(rows) if claim.figure == "fig2"}
    assert [found["imdb", "smoothed_hinge", lam].verdict for lam in (0.002, 0.0002)] == [IN_PART, HOLDS]
    assert "never there within the limit: DIHT in 3 of 15 runs" in found["imdb", "smoothed_hinge", 0.002].measured
    assert len(found) == 4


def test_speedups_by_hand():
    rows = [
        row("fig2", "seconds", value, data="imdb", k=k, lam=0.1, method=method, seed=0)
        for k, taken in ((10, {"DIHT": 2, "IHT": 8, "HTP": 4}), (20, {"DIHT": 1, "IHT": 8, "HTP": math.inf}))
        for method, value in taken.items()
    ]
    spread = speedups(rows, "seconds")
    assert (spread["DIHT", "IHT"].least, spread["DIHT", "IHT"].greatest) == (4, 8)
    assert (spread["DIHT", "HTP"].least, spread["DIHT", "HTP"].greatest) == (2, math.inf)
    assert spread["DIHT", "fastest"].median == 5
    assert str(spread["DIHT", "HTP"]) == "2 (2 to ∞)"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [HOLDS, HOLDS]),
        ({"rates": {"DIHT": 0.0, "SDIHT": 0.0}}, [NOT, NOT]),
        ({"rates": {"DIHT": 1.5, "SDIHT": 0.5}}, [HOLDS, NOT]),
        ({"floor": 0.01}, [IN_PART, HOLDS]),  # tenfold lower, but not zero
        ({"floor": 0.5}, [NOT, HOLDS]),
        ({"rates": {"DIHT": 0.5}}, [NOT_RUN, NOT_RUN]),
    ],
)
@pytest.mark.parametrize("figure", ["fig3", "fig5"])
def test_gaps(figure, changes, expected):
    assert verdicts(gaps(figure, lams=(0.002,), epochs=14, **changes), figure) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [HOLDS, HOLDS, HOLDS]),
        ({"error": 1.01}, [NOT, HOLDS, HOLDS]),
        ({"gap": 1.01}, [HOLDS, NOT, HOLDS]),
        ({"t0": 39.0}, [HOLDS, HOLDS, NOT]),
        ({"t0": 39.0, "t0_measured": math.inf}, [HOLDS, HOLDS, NOT]),
        ({"t0_measured": math.inf}, [HOLDS, HOLDS, NOT_RUN]),  # the run ended before t0
    ],
)
def test_theory(changes, expected):
    assert verdicts(theory(**changes), "theory") == expected


def test_one_violation_falsifies_a_theorem():
    rows = theory()
    at = next(i for i, r in enumerate(rows) if r.measure == "dual_error" and r.epoch > 100)
    rows[at] = replace(rows[at], value=1e6)
    claim = next(claim for claim in judge(rows) if claim.figure == "theory")
    assert claim.verdict == NOT
    assert "above its bound at 1 of" in claim.measured


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (1e-9, "1.0e-9"), (0.12345, "0.123"), (1234.5, "1,234"), (math.inf, "∞")]
)
def test_number(value, text):
    assert number(value) == text


# charts


def drawn(chart):
    return ElementTree.fromstring(chart.svg("c"))


SVG = "{http://www.w3.org/2000/svg}"


def marks_of(chart, method):
    """Positions of a method's marks."""
    group = next(g for g in drawn(chart).iter(f"{SVG}g") if g.get("data-method") == method)
    found = [g.get("transform") for g in group.iter(f"{SVG}g") if g.get("class") == "mark"]
    return [tuple(map(float, re.findall(r"-?[\d.]+", text))) for text in found]


def test_marks_are_where_the_values_are():
    chart = Chart("t", "s", "x", [Series("DIHT", [0, 1, 2], [1.0, 10.0, 100.0])], y_log=True)
    (x0, y0), (x1, y1), (x2, y2) = marks_of(chart, "DIHT")
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.2)
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.2)
    assert y0 > y1


def test_never_is_marked_above_the_plot_and_not_joined():
    chart = Chart(
        "t",
        "s",
        "x",
        [Series("DIHT", [1, 2, 3], [1.0, math.inf, 2.0]), Series("IHT", [1, 2, 3], [9.0, 9.0, 9.0])],
        y_log=True,
    )
    marks = marks_of(chart, "DIHT")
    assert len(marks) == 3
    assert marks[1][1] < min(y for _, y in marks_of(chart, "IHT")) - 10
    assert "never</text>" in chart.svg("c")
    assert "never</text>" not in replace(chart, series=chart.series[1:]).svg("c")
    line = next(
        p.get("d")
        for g in drawn(chart).iter(f"{SVG}g")
        if g.get("data-method") == "DIHT"
        for p in g.iter(f"{SVG}path")
        if p.get("class") == "line"
    )
    assert line.count("M") == 2
    assert "L" not in line


@pytest.mark.parametrize("values", [[0.0, 0.0], [math.inf, math.inf], [1e-100, 1e100], [5.0, 5.0]])
@pytest.mark.parametrize("log", [False, True])
def test_odd_values_are_drawn(values, log):
    chart = Chart("<a & b>", "s", "x", [Series("DIHT", [1, 2], values)], x_log=log, y_log=log)
    assert len(marks_of(chart, "DIHT")) == 2
    assert "nan" not in chart.svg("c")


def test_every_chart_says_what_it_is():
    for figure in FIGURES:
        for _, part in parts_of([r for r in everything() if r.figure == figure]):
            for chart in charts_of(figure, part):
                root = drawn(chart)
                assert root.find(f"{SVG}title").text
                assert root.find(f"{SVG}desc").text
                assert ("stand-in" in chart.title) == ("stand-in" in part[0].data)
                assert {series.method for series in chart.series} <= METHODS.keys()


def test_committed_results_are_those_of_the_committed_table():
    """What docs/reproduction.md says is what its table says."""
    docs = Path(__file__).parents[1] / "docs"
    rows = read_rows(docs / "reproduction" / FILE)
    if not rows:
        pytest.skip("no results are committed")
    text = (docs / "reproduction.md").read_text(encoding="utf-8")
    for claim in judge(rows):
        assert f"- {claim.title}: **{claim.verdict}**. {claim.measured}".rstrip() in text
    for figure in {row.figure for row in rows}:
        charts = [chart for _, part in parts_of(chosen(rows, figure=figure)) for chart in charts_of(figure, part)]
        assert (docs / "reproduction" / f"{figure}.svg").read_text(encoding="utf-8") == sheet(charts)


def test_sheet_is_one_svg_with_all_charts():
    root = ElementTree.fromstring(sheet(charts_of("fig1", estimation(copies=3))))
    assert len(root.findall(f"{SVG}svg")) == 4


# page


def test_page_without_rows_says_so():
    assert page([]).count("Not run: there are no measurements to draw.") == len(FIGURES)


def test_page_is_self_contained_and_says_where_it_comes_from(tmp_path):
    path = tmp_path / "page.html"
    write_page(everything(), path)
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"(?:src|href)=\"(?!#)|@import|url\(", text)
    for cell in WHERE.values():
        assert cell in text
    assert "fig1: 0 to 29" in text
    assert list(tmp_path.iterdir()) == [path]


def test_tables_hold_the_medians():
    text = page(times(lams=(0.002,)) + gaps(lams=(0.002,)))
    tables = re.findall(r"<caption>(.*?)</caption>.*?<tbody>(.*?)</tbody>", text)
    cells = {
        caption: [re.findall("<td>(.*?)</td>", line) for line in body.split("</tr>")[:-1]] for caption, body in tables
    }
    assert cells["passes, median"] == [
        [k, "10", "3", "2", "50", "200", "40"] for k in ("200", "400", "600", "800", "1,000")
    ]
    gap_lines = cells["gap / objective, median"]
    assert [line[0] for line in gap_lines][::13] == ["1", "30"]
    assert all("" not in line for line in gap_lines)  # auto's own epochs are others: its last look before counts
    ratios = {
        (method, other): passes for method, other, _, passes in cells[next(c for c in cells if "times less" in c)]
    }
    assert ratios["SDIHT", "HTP"] == "66.7"


def test_page_names_the_quick_run():
    assert "quick run" not in page(estimation(copies=2))
    assert "quick run" in page([replace(r, mode="quick") for r in estimation(copies=2)])


def test_page_escapes_what_it_is_given():
    assert "<b>evil" not in page([replace(r, data="<b>evil", machine="<b>evil") for r in times()])


# the page in a browser

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")

ROW_SETS = {"all": everything, "part": lambda: estimation(copies=2)[:7] + times()[:20] + theory()[:3], "none": list}


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(360, False), (1280, True)], ids=["360-light", "1280-dark"])
@pytest.mark.parametrize("name", ROW_SETS)
def test_in_a_browser(browser, tmp_path, name, width, dark):
    rows = ROW_SETS[name]()
    write_page(rows, tmp_path / "page.html")
    browser.open(tmp_path / "page.html", width=width, dark=dark)
    assert browser.evaluate("document.scrollingElement.scrollWidth") <= width
    assert browser.overlaps() == []
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("document.scrollingElement.scrollWidth") <= width
    assert browser.evaluate(
        "[...document.querySelectorAll('.chart')].every(c => c.getBoundingClientRect().right <= innerWidth)"
    )
    expected = sum(
        len(charts_of(figure, part))
        for figure in FIGURES
        for _, part in parts_of([r for r in rows if r.figure == figure])
    )
    boxes = browser.evaluate(
        "[...document.querySelectorAll('svg.chart')].map(s => [s.getBBox().width, s.getBBox().height, "
        "s.querySelectorAll('.series .mark').length, s.querySelectorAll('text').length])"
    )
    assert len(boxes) == expected
    assert all(min(box) > 0 for box in boxes)
    assert [url for url in browser.requests if not url.startswith("file:")] == []
    assert browser.overlaps() == []
    browser.keep("reproduction", name, width, "dark" if dark else "light")
    assert browser.complaints == []


@needs_browser
def test_text_stays_inside_its_chart(browser, tmp_path):
    write_page(everything(), tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    assert (
        browser.evaluate(
            "[...document.querySelectorAll('svg.chart text')].filter(t => { const a = t.getBoundingClientRect(), "
            "b = t.closest('svg').getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1 })"
            ".map(t => t.textContent)"
        )
        == []
    )


@needs_browser
def test_colours_follow_the_scheme(browser, tmp_path):
    """Every method has two colours, each far enough from the page's own."""
    write_page(everything(), tmp_path / "page.html")
    seen = []
    for dark in (False, True):
        browser.open(tmp_path / "page.html", dark=dark)
        paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        inks = browser.evaluate(
            "Object.fromEntries([...document.querySelectorAll('.series')]"
            ".map(g => [g.className.baseVal, getComputedStyle(g).color]))"
        )
        assert len(set(inks.values())) == len(inks) >= len(METHODS)
        assert min(contrast(ink, paper) for ink in inks.values()) >= 3.0
        seen.append(inks)
    assert all(seen[0][name] != seen[1][name] for name in seen[0])


def contrast(one, other):
    """WCAG's contrast ratio of two colours."""

    def luminance(colour):
        levels = [int(v) / 255 for v in re.findall(r"\d+", colour)[:3]]
        r, g, b = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in levels)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@needs_browser
def test_the_browser_check_can_fail(browser, tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        '<meta name="viewport" content="width=device-width"><div style="width:900px">x</div><script>console.error(1)</script>'
    )
    browser.open(bad, width=360)
    assert browser.evaluate("document.scrollingElement.scrollWidth") > 360
    assert browser.complaints


def test_what_was_found_in_three_sentences():
    rows = everything()
    estimated, timed, closed = sentences(rows, judge(rows))
    assert "here that holds: over 30 copies" in estimated
    spread = Spread.of(
        [speedups(of, "seconds")["SDIHT", "IHT"].median for _, of in parts_of(chosen(rows, figure="fig2"))]
    )
    assert f"SDIHT is {spread.median:.3g}"[:12] in timed
    assert re.search(r"“much less” holds in 6 of 6 cases\.$", timed)
    assert re.search(
        r"here that \(to below 0\.001 of the objective\) holds in 4, holds in part in 2 of 6 cases", closed
    )
    assert closed.endswith("3 of 3 hold.")
    for sentence in sentences([], judge([])):
        assert "not run" in sentence or "was not run" in sentence


def test_what_does_not_hold_has_its_reason():
    slow = times(seconds=SECONDS | {"HTP": 0.1})
    found = judge([*slow, *gaps(floor=1e-2), *gaps("fig5", rates=RATES | {"SDIHT": 0.5})])
    assert all(bool(claim.reason) == (claim.verdict in (IN_PART, NOT)) for claim in found)
    assert "the same compiled kernels" in next(claim.reason for claim in found if claim.figure == "fig2")
    assert "fell 1 times in the second half" in next(claim.reason for claim in found if claim.figure == "fig3")
    grouped = findings(found)
    assert len(grouped) < len(found)
    assert sum(len(finding.claims) for finding in grouped) == len(found)
    text = page(slow)
    assert text.count("the same compiled kernels") >= 2  # beside the statement, and beside each part

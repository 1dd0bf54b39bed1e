"""Write the figures, the page and the results part of reproduction.md from the table of a run.

First ``diht reproduce --full --out docs/reproduction``, which writes the table there, then ``python docs/make_reproduction.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from diht import Problem, solve
from diht.experiments.charts import charts_of, sheet
from diht.experiments.claims import FIGURES, HOLDS, IN_PART, NOT, NOT_RUN, Claim, chosen, judge, parts_of
from diht.experiments.estimation import FULL, paper_design
from diht.experiments.findings import Finding, findings, sentences
from diht.experiments.page import write_page
from diht.experiments.table import FILE, Row, read_rows
from diht.losses import Squared
from diht.solvers import DIHT

DOCS = Path(__file__).parent
FOLDER, TEXT = DOCS / "reproduction", DOCS / "reproduction.md"
_MARKS = "<!-- {}: written by make_reproduction.py -->\n", "<!-- end of {} -->\n"


def results(rows: Sequence[Row]) -> str:
    """The results in Markdown: figure by figure the charts, then a line a claim."""
    claims = judge(rows)
    parts = [f"{_about(rows)}\n"]
    for figure, title in FIGURES.items():
        own = [claim for claim in claims if claim.figure == figure]
        name = figure.replace("fig", "Figure ").capitalize()
        parts.append(f"### {name}. {title}\n")
        if chosen(rows, figure=figure):
            parts.append(f"![{title}](reproduction/{figure}.svg)\n")
        parts += [_statement(finding) for finding in findings(own)]
        if figure == "fig1":
            parts.append(f"{theorem_step()}\n")
    return "\n".join(parts)


def _about(rows: Sequence[Row]) -> str:
    said = {
        name: ", ".join(sorted({getattr(row, name) for row in rows})) for name in ("mode", "version", "python", "numpy")
    }
    where, when = (", ".join(sorted({getattr(row, name) for row in rows})) for name in ("machine", "date"))
    return (
        f"{len(rows):,} measurements of a {said['mode']} run with diht {said['version']}, Python {said['python']}, "
        f"numpy {said['numpy']} on {where}, {when}."
    )


def _statement(finding: Finding) -> str:
    """What the paper says, how often that holds, why not, and under a click what was measured in each part."""
    counts = {verdict: finding.count(verdict) for verdict in (HOLDS, IN_PART, NOT, NOT_RUN)}
    several = len(finding.claims) > 1
    verdicts = ", ".join(f"**{verdict}**{f' in {count}' * several}" for verdict, count in counts.items() if count)
    names = len(finding.reasons) > 1 or (several and counts[HOLDS] > 0)
    reasons = [f"{f'{named}: ' if names else ''}{reason}" for named, reason in finding.reasons]
    verdicts += f" of {len(finding.claims)} cases" * several
    text = f"*{finding.paper}* {verdicts[:2]}{verdicts[2:3].upper()}{verdicts[3:]}.\n\n"
    text += "".join(f"- {reason}\n" for reason in reasons) + "\n" * bool(reasons)
    lines = "\n".join(_line(claim) for claim in finding.claims)
    return f"{text}<details><summary>measured</summary>\n\n{lines}\n\n</details>\n"


def _line(claim: Claim) -> str:
    return f"- {claim.title}: **{claim.verdict}**. {claim.measured}".rstrip()


def theorem_step() -> str:
    """Say at which lam of figure 1 the theorem's step gets nowhere: no iterate is better than the zero that it starts from."""
    worked: set[float] = set()
    for d, n in product(FULL.dims, FULL.sizes):
        X, y, _ = paper_design(d, FULL.n_true, n, (1, d, n, 0))
        for lam in FULL.lams:
            problem = Problem(X, y, loss=Squared(), k=FULL.n_true, lam=lam)
            result = solve(problem, DIHT(step="theory"), max_iter=100)
            if result.objective < (1 - 1e-9) * float((y**2).mean()):
                worked.add(lam)
    failed = ", ".join(f"{lam:g}" for lam in FULL.lams if lam not in worked) or "none"
    return (
        f"With the theorem's step (see below) no iterate of DIHT is better than the zero that it starts from at λ = {failed}, of "
        f"the grid from {min(FULL.lams):g} to {max(FULL.lams):g}, whatever d and N (on the first copy)."
    )


def figures(rows: Sequence[Row]) -> dict[str, str]:
    """Each figure's charts on one SVG sheet."""
    drawn = {}
    for figure in FIGURES:
        charts = [chart for _, part in parts_of(chosen(rows, figure=figure)) for chart in charts_of(figure, part)]
        if charts:
            drawn[figure] = sheet(charts)
    return drawn


def opening(rows: Sequence[Row]) -> str:
    """What the paper claimed and what was found."""
    return "\n".join(f"- {sentence}" for sentence in sentences(rows, judge(rows))) + "\n"


def filled(text: str, rows: Sequence[Row]) -> str:
    """The page's text with its opening and its results replaced."""
    for name, written in (("opening", opening), ("results", results)):
        start, end = (mark.format(name) for mark in _MARKS)
        head, rest = text.split(start)
        text = head + start + written(rows) + end + rest.split(end)[1]
    return text


def main() -> None:
    """Write everything."""
    rows = read_rows(FOLDER / FILE)
    if not rows:
        raise SystemExit(f"{FOLDER / FILE}: no results; first run: diht reproduce --full --out {FOLDER}")
    for figure, svg in figures(rows).items():
        (FOLDER / f"{figure}.svg").write_text(svg, encoding="utf-8")
    write_page(rows, FOLDER / "page.html")
    TEXT.write_text(filled(TEXT.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main()

"""What the paper claimed and what was found, in three sentences, and claim by claim how often it holds and why not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diht.experiments.claims import (
    CLOSED,
    HOLDS,
    IN_PART,
    NOT,
    NOT_RUN,
    Claim,
    Spread,
    chosen,
    number,
    parts_of,
    speedups,
)
from diht.experiments.table import Row

__all__ = ["Finding", "findings", "sentences"]


@dataclass(frozen=True)
class Finding:
    """A statement of the paper on a figure, its verdicts over the parts, and the reasons of those that are not "holds"."""

    figure: str
    paper: str
    claims: tuple[Claim, ...]

    def count(self, verdict: str) -> int:
        """Return in how many parts this is the verdict."""
        return sum(claim.verdict == verdict for claim in self.claims)

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """Return reasons, each with the names of the parts that have it."""
        names: dict[str, list[str]] = {}
        for claim in self.claims:
            if claim.reason:
                names.setdefault(claim.reason, []).append(claim.title.split(": ")[0])
        return [("; ".join(named), reason) for reason, named in names.items()]


def findings(claims: Sequence[Claim]) -> list[Finding]:
    """Put the parts of a statement together."""
    groups: dict[tuple[str, str], list[Claim]] = {}
    for claim in claims:
        groups.setdefault((claim.figure, claim.paper), []).append(claim)
    return [Finding(figure, paper, tuple(group)) for (figure, paper), group in groups.items()]


def sentences(rows: Sequence[Row], claims: Sequence[Claim]) -> list[str]:
    """Say what the paper claimed and what was found: of estimation, of time, of the gap."""
    return [_estimation(claims), _time(rows, claims), _gap(claims)]


def _estimation(claims: Sequence[Claim]) -> str:
    first = next(claim for claim in claims if claim.figure == "fig1")
    found = "not run" if first.verdict == NOT_RUN else f"that {first.verdict}: {_lowered(first.measured)}"
    return (
        "Figure 1, estimation: the paper says that DIHT has a lower error than IHT and HTP and finds the whole support more "
        f"often; here {found.rstrip('.')}."
    )


def _time(rows: Sequence[Row], claims: Sequence[Claim]) -> str:
    own = [claim for claim in claims if claim.figure in ("fig2", "fig4")]
    medians = [
        spread.median
        for figure in ("fig2", "fig4")
        for part, of_part in parts_of(chosen(rows, figure=figure))
        if part and (spread := speedups(of_part, "seconds").get(("SDIHT", "IHT")))
    ]
    said = (
        "Figures 2 and 4, time: the paper says that DIHT and SDIHT need much less time than IHT, HTP and SVR-GHT; here "
    )
    if not medians:
        return said + "not run."
    return (
        f"{said}SDIHT is {Spread.of(medians)} times as fast as IHT, but against the fastest of the three, every method tuned and "
        f"on the same compiled kernels, “much less” {_tally(own)}."
    )


def _gap(claims: Sequence[Claim]) -> str:
    closing = [claim for claim in claims if claim.figure in ("fig3", "fig5") and claim.paper.startswith("The gap")]
    theory = [claim for claim in claims if claim.figure == "theory"]
    return (
        "Figures 3 and 5 and the theorem, the gap: the paper says that the gap between primal and dual falls to zero; here that "
        f"(to below {number(CLOSED)} of the objective) {_tally(closing)}, and of the theorem’s bounds, where the optimum is known, "
        f"{sum(claim.verdict == HOLDS for claim in theory)} of {len(theory)} hold."
    )


def _tally(claims: Sequence[Claim]) -> str:
    run = [claim for claim in claims if claim.verdict != NOT_RUN]
    if not run:
        return "was not run"
    counts = {verdict: sum(claim.verdict == verdict for claim in run) for verdict in (HOLDS, IN_PART, NOT)}
    words = [f"{verdict} in {count}" for verdict, count in counts.items() if count]
    return f"{', '.join(words)} of {len(run)} cases"


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]

"""What the paper says of each figure, what was measured, and whether the two agree: computed from the rows, never typed.

The rules are the same for every figure and are printed on the page (:data:`RULES`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from diht.experiments.table import Row
from diht.report.charts import number

__all__ = [
    "FIGURES", "HOLDS", "IN_PART", "NOT", "NOT_RUN", "RULES", "Claim", "Spread", "by", "chosen", "judge", "median",
    "number", "parts_of", "speedups",
]  # fmt: skip

HOLDS, IN_PART, NOT, NOT_RUN = "holds", "holds in part", "does not hold", "not run"

FIGURES = {
    "fig1": "Estimation error and support recovery",
    "fig2": "Time to IHT's objective, smoothed hinge loss",
    "fig3": "Primal-dual gap, smoothed hinge loss",
    "fig4": "Time to IHT's objective, hinge loss",
    "fig5": "Primal-dual gap, hinge loss",
    "theory": "The theorem's bounds, where the optimum is known",
}

DUAL, PRIMAL = ("DIHT", "SDIHT"), ("IHT", "HTP", "SVR-GHT")
LEVEL = 0.05  # of all comparisons of a claim together
TIE = 1e-3  # relative differences below this are the solvers' tolerance
MUCH = 2.0  # "much less time" is half the time
NEAR = (0.5, 1.2)  # "comparable to k or slightly smaller"
CLOSED = 1e-3  # a relative gap that counts as zero

RULES = (
    f"Figure 1 compares two methods copy by copy: one is worse where the mean of the differences is so by a one-sided t-test "
    f"(for recovery, an exact sign test) at a level of {LEVEL:g} divided by the number of comparisons, and differs by more "
    f"than {TIE:g} of the value. “Holds” means worse nowhere and better somewhere; level everywhere is in part. N is comparable "
    f"to k or slightly smaller from {NEAR[0]:g} k to {NEAR[1]:g} k.",
    f"Figures 2 and 4: “much less time” means in every run less than the fastest of the primal methods, and at the median "
    f"{MUCH:g} times less.",
    f"Figures 3 and 5: a gap is zero where it is below {CLOSED:g} of the objective, in part where only one of the two is or both "
    f"fell tenfold; one curve falls faster than another where it "
    f"is lower at nine of ten epochs at which they differ by more than {TIE:g} of their value.",
    "Otherwise a claim holds in part where it is true of at least half of what was compared. A theorem holds or does not.",
)


@dataclass(frozen=True)
class Claim:
    """One statement of the paper beside what was measured.

    Attributes
    ----------
    figure : str
        fig1 to fig5, or theory.
    title : str
        A few words; they name the data.
    paper : str
        What the paper says, in our words.
    measured : str
        One sentence computed from the rows.
    verdict : str
        "holds", "holds in part", "does not hold" or "not run".
    part : tuple
        Data set, loss and lam of the part of the figure that it speaks of; empty for all of it.
    reason : str
        Why it does not hold, or holds in part only.
    """

    figure: str
    title: str
    paper: str
    measured: str
    verdict: str
    part: tuple[Any, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of some ratios, and how many of them are above 1."""

    median: float
    least: float
    greatest: float
    above: int
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise ratios; one that is no number (never by never) counts as zero."""
        ratios = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0, posinf=np.inf)
        return cls(
            median(ratios.tolist()), float(ratios.min()), float(ratios.max()), int((ratios > 1).sum()), len(ratios)
        )

    def __str__(self) -> str:
        """Median and range."""
        low, middle, high = map(number, (self.least, self.median, self.greatest))
        return f"{middle} ({low} to {high})" if low != high else middle


def judge(rows: Iterable[Row]) -> list[Claim]:
    """Return the claims of every figure with their verdicts; a figure without rows is "not run"."""
    rows = [replace(row, value=math.inf) if math.isnan(row.value) else row for row in rows]  # what diverged has no end
    return [
        claim
        for figure in FIGURES
        for part, of_part in parts_of(chosen(rows, figure=figure))
        for claim in _JUDGES[figure](figure, part, of_part)
    ]


# ------------------------------------------------------------------------------------------------------- rows


def chosen(rows: Iterable[Row], **cells: Any) -> list[Row]:
    """Return the rows with these cells."""
    cells_of = attrgetter(*cells)
    wanted = tuple(cells.values()) if len(cells) > 1 else next(iter(cells.values()))
    return [row for row in rows if cells_of(row) == wanted]


def by(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    """Group rows by one column or several, in ascending order."""
    groups: dict[Any, list[Row]] = {}
    key_of = attrgetter(*names)
    for row in rows:
        groups.setdefault(key_of(row), []).append(row)
    return dict(sorted(groups.items(), key=lambda item: _orderable(item[0])))


def _orderable(key: Any) -> tuple[Any, ...]:
    cells = key if isinstance(key, tuple) else (key,)
    return tuple((cell is not None, cell if cell is not None else 0) for cell in cells)


def parts_of(rows: Sequence[Row]) -> list[tuple[tuple[Any, ...], list[Row]]]:
    """Cut the rows of a figure into what is judged together: a data set, loss and lam (the largest first); all of figure 1."""
    if not rows or rows[0].figure == "fig1":
        return [((), list(rows))]
    parts = by(rows, "data", "loss", "lam")
    return [(part, parts[part]) for part in sorted(parts, key=lambda part: (part[0], part[1], -(part[2] or 0.0)))]


def median(values: Sequence[float]) -> float:
    """Return the median; where some values are infinite and two share the middle, the lower of them."""
    return float(statistics.median(values) if all(map(math.isfinite, values)) else statistics.median_low(values))


def _verdict(good: int, total: int) -> str:
    if good == total:
        return HOLDS
    return IN_PART if 2 * good >= total else NOT


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _count(number_: int, noun: str) -> str:
    return f"{number_:,} {noun}" + "s" * (number_ != 1)


def _name(part: tuple[Any, ...]) -> str:
    data, _, lam = part
    return f"{data}, λ = {lam:g}" if lam is not None else str(data)


# ------------------------------------------------------------------------------------------- figure 1: estimation


_SHORT_OF_THE_END = (
    "DIHT stops short of the minimum, which shrinks its coefficients a second time, by a number of steps that was tuned; what "
    "minimises the objective, the oracle too, has λ alone to shrink them."
)


@dataclass(frozen=True)
class _Contest:
    """Two methods at one (d, N): by how much the first is worse in one measure, and whether that is more than chance."""

    d: int
    n: int
    other: str
    deficit: float  # mean over the copies; negative where the first is better
    outcome: int  # 1: worse, -1: better, 0: cannot be told apart


_SIGNS = {"estimation_error": 1.0, "recovered": -1.0}  # a larger error is worse, more recoveries are better


def _contests(rows: Sequence[Row], method: str, others: Sequence[str], measure: str, level: float) -> list[_Contest]:
    found = []
    for (d, n), cell in by(chosen(rows, measure=measure), "d", "n").items():
        own = {row.seed: row.value for row in chosen(cell, method=method)}
        for other in others:
            theirs = {row.seed: row.value for row in chosen(cell, method=other)}
            shared = sorted(own.keys() & theirs.keys(), key=lambda seed: -1 if seed is None else seed)
            if shared:
                difference = _SIGNS[measure] * np.array([_less(own[seed], theirs[seed]) for seed in shared])
                tie = TIE * float(np.mean([theirs[seed] for seed in shared]))
                outcome = _outcome(difference, tie, level, measure == "recovered")
                found.append(_Contest(d, n, other, float(difference.mean()), outcome))
    return found


def _less(value: float, other: float) -> float:
    return value - other if value != other else 0.0  # two infinities are level


def _outcome(difference: NDArray[np.float64], tie: float, level: float, binary: bool) -> int:
    """Return the sign of the mean difference where it is no tie and beyond chance, else 0."""
    mean = float(difference.mean())
    if math.isinf(mean):
        return int(math.copysign(1, mean))
    if abs(mean) <= tie:
        return 0
    if binary:
        wins, losses = int((difference * mean > 0).sum()), int((difference * mean < 0).sum())
        p = float(stats.binomtest(wins, wins + losses, alternative="greater").pvalue)
    else:
        error = float(difference.std(ddof=1)) / math.sqrt(len(difference)) if len(difference) > 1 else 0.0
        p = float(stats.t.sf(abs(mean) / error, len(difference) - 1)) if error > 0 else 0.0
    return int(math.copysign(1, mean)) if p < level else 0


def _contested(rows: Sequence[Row], method: str, others: Sequence[str]) -> dict[str, list[_Contest]]:
    """Compare in both measures, at a level that all comparisons share."""
    present = [other for other in others if chosen(rows, method=other)]
    n_comparisons = len(_SIGNS) * len(present) * len(by(rows, "d", "n"))
    level = LEVEL / max(n_comparisons, 1)
    return {measure: _contests(rows, method, present, measure, level) for measure in _SIGNS}


def _no_worse(contests: Mapping[str, Sequence[_Contest]]) -> str:
    everything = [contest for group in contests.values() for contest in group]
    worse = sum(contest.outcome > 0 for contest in everything)
    better = sum(contest.outcome < 0 for contest in everything)
    if not everything:
        return NOT_RUN
    if not better:
        return NOT if worse else IN_PART
    return _verdict(len(everything) - worse, len(everything))


def _tally(name: str, contests: Sequence[_Contest], unit: Callable[[float], str]) -> str:
    better, worse = (sum(contest.outcome == sign for contest in contests) for sign in (-1, 1))
    level = len(contests) - better - worse
    text = (
        f"{name} is better in {better}, level in {level} and worse in {worse} of {_count(len(contests), 'comparison')}"
    )
    last = max(contests, key=lambda contest: contest.deficit)
    if last.deficit > 0:
        chance = "" if last.outcome else ", within chance"
        text += f" (at worst by {unit(last.deficit)}, against {last.other} at d = {last.d}, N = {last.n}{chance})"
    return text


def _points(share: float) -> str:
    return f"{number(100 * share)} points"


def _copies(rows: Sequence[Row]) -> str:
    sizes = [len({row.seed for row in cell}) for cell in by(rows, "d", "n", "method").values()]
    return _count(min(sizes), "copy").replace("copys", "copies")


def _judge_estimation(figure: str, part: tuple[Any, ...], rows: Sequence[Row]) -> list[Claim]:
    return [
        _estimation_claim(
            rows, "DIHT", ("IHT", "HTP"), "DIHT against IHT and HTP",
            "At every number of samples N, DIHT estimates the coefficients with a lower error and finds the whole support more "
            "often than IHT and HTP do.",
        ),
        _where_it_matters(rows),
        _estimation_claim(
            rows, "auto", ("DIHT", "IHT", "HTP", "abess"), "auto against all of them",
            "Not in the paper: the full solver, which starts from the same dual, should be worse than none of them at any N.",
        ),
    ]  # fmt: skip


def _estimation_claim(rows: Sequence[Row], method: str, others: Sequence[str], title: str, paper: str) -> Claim:
    contests = _contested(rows, method, others)
    if not all(contests.values()):
        return Claim("fig1", title, paper, "", NOT_RUN)
    error = _tally("the error", contests["estimation_error"], number)
    recovery = _tally("recovery", contests["recovered"], _points)
    sentence = f"Over {_copies(rows)}, {error}; {recovery}"
    if method == "auto":
        sentence += _small_n(rows, method, others) + _beside_the_oracle(rows, method)
    verdict = _no_worse(contests)
    why = method == "auto" and verdict in (IN_PART, NOT)
    return Claim("fig1", title, paper, sentence + ".", verdict, reason=_SHORT_OF_THE_END if why else "")


def _means(rows: Sequence[Row], measure: str) -> dict[tuple[int, int], dict[str, float]]:
    """Mean over the copies, method by method, at each (d, N)."""
    return {
        cell: {method: float(np.mean([row.value for row in own])) for method, own in by(group, "method").items()}
        for cell, group in by(chosen(rows, measure=measure), "d", "n").items()
    }


def _small_n(rows: Sequence[Row], method: str, others: Sequence[str]) -> str:
    """Say how much better a method is than the best of the others where there are no more samples than features to find."""
    few = [row for row in rows if row.n is not None and row.k is not None and row.n <= row.k]
    errors, recovered = _means(few, "estimation_error"), _means(few, "recovered")
    ratios = [
        min(means[other] for other in others if other in means) / means[method]
        for means in errors.values()
        if method in means and means.keys() & set(others)
    ]
    gains = [
        means[method] - max(means[other] for other in others if other in means)
        for means in recovered.values()
        if method in means and means.keys() & set(others)
    ]
    if not ratios or not gains:
        return ""
    return (
        f"; where N is at most k, the error of the best of the others is {Spread.of(ratios)} times that of {method}, and "
        f"{method} recovers the support in {number(100 * min(gains))} to {number(100 * max(gains))} points more of the copies"
    )


def _beside_the_oracle(rows: Sequence[Row], method: str) -> str:
    """Say how near a method is to ridge regression on the planted features, where it finds these every time."""
    found = [cell for cell, means in _means(rows, "recovered").items() if means.get(method) == 1.0]
    errors = _means(rows, "estimation_error")
    ratios = [errors[cell][method] / errors[cell]["oracle"] for cell in found if "oracle" in errors[cell]]
    if not ratios:
        return ""
    times = "" if max(abs(ratio - 1.0) for ratio in ratios) <= TIE else f"{Spread.of(ratios)} times "
    return (
        f"; in the {_count(len(ratios), 'case')} in which {method} always finds the planted features, its error is {times}that "
        "of a ridge regression that is told them, the oracle"
    )


def _where_it_matters(rows: Sequence[Row]) -> Claim:
    """The largest advantage should be at N comparable to k or slightly smaller."""
    title = "Where DIHT gains most"
    paper = "The advantage is largest where N is comparable to the number of features to find, or slightly smaller."
    peaks: list[tuple[int, int, float]] = []
    k = max((row.k for row in rows if row.k is not None), default=0)
    means = _means(rows, "estimation_error")
    for d in sorted({cell[0] for cell in means}):
        gains = {
            n: min(at["IHT"], at["HTP"]) - at["DIHT"]
            for (d_, n), at in means.items()
            if d_ == d and at.keys() >= {"DIHT", "IHT", "HTP"}
        }
        if gains:
            n = max(gains, key=lambda n: gains[n])
            peaks.append((d, n, gains[n]))
    if not peaks or not k:
        return Claim("fig1", title, paper, "", NOT_RUN)
    good = sum(gain > 0 and NEAR[0] * k <= n <= NEAR[1] * k for _, n, gain in peaks)
    told = [
        f"at d = {d} DIHT's mean error is lowest against the better of IHT and HTP at N = {n} = {n / k:.2g} k, by {number(gain)}"
        if gain > 0
        else f"at d = {d} DIHT's mean error is nowhere lower than that of the better of IHT and HTP"
        for d, n, gain in peaks
    ]
    sentence = f"{_listed(told)}."
    return Claim("fig1", title, paper, sentence[0].upper() + sentence[1:], _verdict(good, len(peaks)))


# -------------------------------------------------------------------------------------------- figures 2 and 4: time


def speedups(rows: Sequence[Row], measure: str) -> dict[tuple[str, str], Spread]:
    """How many times less a method needs than another one, and than the fastest of the primal ones ("fastest").

    The ratios are taken for each k and repeat.
    """
    ratios: dict[tuple[str, str], list[float]] = {}
    for cell in by(chosen(rows, measure=measure), "k", "seed").values():
        taken = {row.method: row.value for row in cell}
        primal = {name: taken[name] for name in PRIMAL if name in taken}
        if primal:
            primal["fastest"] = min(primal.values())
        for method in (*DUAL, "auto"):
            if method in taken:
                for other, theirs in primal.items():
                    ratios.setdefault((method, other), []).append(_ratio(theirs, taken[method]))
    return {pair: Spread.of(values) for pair, values in ratios.items()}


def _ratio(above: float, below: float) -> float:
    if math.isinf(below):
        return math.nan if math.isinf(above) else 0.0
    return above / below if below > 0 else math.inf


_ALL_TUNED = (
    "Every method, the primal ones too, has its step tuned on the same grid and runs on the same compiled kernels, and the "
    "fastest of the three primal ones is what counts; the paper does not say how its own were implemented."
)


def _judge_time(figure: str, part: tuple[Any, ...], rows: Sequence[Row]) -> list[Claim]:
    paper = (
        "At every sparsity level k, DIHT and SDIHT need much less time than IHT, HTP and SVR-GHT to bring the objective to where "
        "IHT stops" + (", even though the loss is not smooth." if figure == "fig4" else ".")
    )
    if not part:
        return [Claim(figure, "All data sets", paper, "", NOT_RUN)]
    title = _name(part)
    seconds, passes = speedups(rows, "seconds"), speedups(rows, "passes")
    spreads = {method: seconds.get((method, "fastest")) for method in DUAL}
    if not all(spreads.values()):
        return [Claim(figure, title, paper, "", NOT_RUN, part)]
    primal = [name for name in PRIMAL if chosen(rows, method=name, measure="seconds")]
    told = [_times(method, seconds, passes) for method in (*DUAL, "auto") if (method, "fastest") in seconds]
    clocks = chosen(rows, measure="seconds")
    sizes = [_count(len(by(clocks, name)), noun) for name, noun in (("k", "value"), ("seed", "repeat"))]
    alone = [f"{method} {seconds[method, 'IHT']}" for method in (*DUAL, "auto") if (method, "IHT") in seconds]
    sentence = f"Over {sizes[0]} of k and {sizes[1]}, against the fastest of {_listed(primal)}, {'; '.join(told)}"
    sentence += f"; against IHT alone {_listed(alone)} times as fast in seconds" if alone else ""
    sentence += f"{_never(rows)}."
    verdict = _time_verdict([s for s in spreads.values() if s])
    return [Claim(figure, title, paper, sentence, verdict, part, "" if verdict == HOLDS else _ALL_TUNED)]


def _times(method: str, seconds: Mapping[Any, Spread], passes: Mapping[Any, Spread]) -> str:
    pair = (method, "fastest")
    text = f"{method} is {seconds[pair]} times as fast"
    return text + (f" in seconds, {passes[pair]} times in passes" if pair in passes else "")


def _never(rows: Sequence[Row]) -> str:
    """Name the methods that did not always reach the objective."""
    told = []
    for method, runs in by(chosen(rows, measure="seconds"), "method").items():
        if missed := sum(math.isinf(row.value) for row in runs):
            told.append(f"{method} in {missed} of {_count(len(runs), 'run')}")
    return f"; never there within the limit: {_listed(told)}" if told else ""


def _time_verdict(spreads: Sequence[Spread]) -> str:
    above, count = (sum(getattr(spread, name) for spread in spreads) for name in ("above", "count"))
    if above == count:
        return HOLDS if all(spread.median >= MUCH for spread in spreads) else IN_PART
    return IN_PART if 2 * above >= count else NOT


# --------------------------------------------------------------------------------------------- figures 3 and 5: gaps


def _judge_gaps(figure: str, part: tuple[Any, ...], rows: Sequence[Row]) -> list[Claim]:
    closing = (
        "The gap between the primal and the dual objective of DIHT and of SDIHT falls to zero as the epochs go on."
    )
    faster = "Not said in words, but the reason for SDIHT: per pass over the data its gap falls faster than DIHT's."
    if not part:
        return [
            Claim(figure, "The gap closes", closing, "", NOT_RUN),
            Claim(figure, "SDIHT is faster per epoch", faster, "", NOT_RUN),
        ]
    curves = {method: _curve(rows, method, "relative_gap") for method in DUAL}
    return [
        _explained(Claim(figure, f"{_name(part)}: the gap closes", closing, *_closes(curves), part), _too_few(curves)),
        _explained(
            Claim(figure, f"{_name(part)}: SDIHT is faster per epoch", faster, *_falls_faster(curves), part),
            _both_closed(curves),
        ),
    ]


def _explained(claim: Claim, reason: str) -> Claim:
    return replace(claim, reason=reason) if claim.verdict in (IN_PART, NOT) else claim


def _too_few(curves: Mapping[str, Mapping[float, float]]) -> str:
    """Say of the gaps that did not close how fast they still fall."""
    told = []
    for method, curve in curves.items():
        epochs = sorted(curve)
        if epochs and curve[epochs[-1]] > CLOSED:
            factor = _ratio(curve[epochs[len(epochs) // 2]], curve[epochs[-1]])
            told.append(f"{method}'s fell {number(factor)} times in the second half of the epochs")
    return f"The smaller λ, the more epochs a gap takes: {_listed(told)}." if told else ""


def _both_closed(curves: Mapping[str, Mapping[float, float]]) -> str:
    """Say from when on both gaps are what counts as zero."""
    first = [next((epoch for epoch in sorted(curve) if curve[epoch] <= CLOSED), math.inf) for curve in curves.values()]
    if not all(map(math.isfinite, first)):
        return ""
    since = number(max(first))
    return (
        f"Both gaps are below {CLOSED:g} of the objective from epoch {since} on; later ones differ by less than that."
    )


def _curve(rows: Sequence[Row], method: str, measure: str) -> dict[float, float]:
    """Median over the repeats at each epoch."""
    own = [row for row in chosen(rows, method=method, measure=measure) if row.epoch is not None]
    return {epoch: median([row.value for row in at]) for epoch, at in by(own, "epoch").items()}


def _closes(curves: Mapping[str, Mapping[float, float]]) -> tuple[str, str]:
    if not all(curves.values()):
        return "", NOT_RUN
    told, closed, fell = [], 0, 0
    for method, curve in curves.items():
        first, last = (curve[end] for end in (min(curve), max(curve)))
        closed += last <= CLOSED
        fell += last <= 0.1 * first
        told.append(
            f"{method}'s gap went from {number(first)} to {number(last)} of the objective in {number(max(curve))} epochs"
        )
    verdict = HOLDS if closed == len(curves) else IN_PART if closed or fell == len(curves) else NOT
    return f"{' and '.join(told)}.", verdict


def _falls_faster(curves: Mapping[str, Mapping[float, float]]) -> tuple[str, str]:
    slow, fast = (curves[method] for method in DUAL)
    shared = [epoch for epoch in sorted(slow.keys() & fast.keys()) if epoch > 0]
    if not shared:
        return "", NOT_RUN
    ratios = [_ratio(slow[epoch], fast[epoch]) for epoch in shared]
    lower, higher = sum(ratio > 1 + TIE for ratio in ratios), sum(not ratio >= 1 - TIE for ratio in ratios)
    share = lower / max(lower + higher, 1)
    return (
        f"DIHT's gap is {Spread.of(ratios)} times SDIHT's over {_count(len(ratios), 'epoch')}, and {number(ratios[-1])} times "
        f"after the last; SDIHT's is lower at {lower} of them and higher at {higher}.",
        HOLDS if share >= 0.9 else IN_PART if share >= 0.5 else NOT,
    )


# --------------------------------------------------------------------------------------------------------- theory


def _judge_theory(figure: str, part: tuple[Any, ...], rows: Sequence[Row]) -> list[Claim]:
    name = f"{_name(part)}: " if part else ""
    error = "The squared distance of the dual vector to the optimum is at most c₁ (1 + ln t) / t after t iterations."
    gap = "From t₀ on the primal-dual gap stays below a bound that falls like √(ln t / t)."
    support = "From iteration t₀ on, which the theorem gives in closed form, the model has the optimal support."
    return [
        Claim(figure, f"{name}error bound", error, *_below(rows, "dual_error"), part),
        Claim(figure, f"{name}gap bound", gap, *_below(rows, "gap"), part),
        Claim(figure, f"{name}support recovery", support, *_support_in_time(rows), part),
    ]


def _below(rows: Sequence[Row], measure: str) -> tuple[str, str]:
    """Whether the mean over the repeats is at most the bound, for every method at every iteration."""
    told, above = [], 0
    for method in by(rows, "method"):
        measured, bound = (_mean_curve(rows, method, name) for name in (measure, f"{measure}_bound"))
        shared = sorted(measured.keys() & bound.keys())
        if shared:
            ratios = [_ratio(measured[t], bound[t]) for t in shared]
            above += (violations := sum(ratio > 1 for ratio in ratios))
            told.append(
                f"{method} is above its bound at {violations} of {_count(len(shared), 'iteration')}, at most {number(max(ratios))} "
                f"of it and {number(ratios[-1])} at t = {number(shared[-1])}"
            )
    return ("; ".join(told) + ".", NOT if above else HOLDS) if told else ("", NOT_RUN)


def _mean_curve(rows: Sequence[Row], method: str, measure: str) -> dict[float, float]:
    own = [row for row in chosen(rows, method=method, measure=measure) if row.epoch is not None]
    return {epoch: float(np.mean([row.value for row in at])) for epoch, at in by(own, "epoch").items()}


def _support_in_time(rows: Sequence[Row]) -> tuple[str, str]:
    """Whether the support was found by t0; a run that ended before t0 without it counts for neither."""
    told, verdicts = [], set()
    for method, own in by(rows, "method").items():
        promised, found = (chosen(own, measure=name) for name in ("t0", "t0_measured"))
        if promised and found:
            t0, t = promised[0].value, max(row.value for row in found)
            end = max((row.epoch for row in own if row.epoch is not None), default=0.0)
            verdicts.add(HOLDS if t <= t0 < math.inf else NOT if end >= t0 else NOT_RUN)
            when = f"from t = {number(t)} on" if math.isfinite(t) else f"not by t = {number(end)}, where the run ended"
            told.append(f"{method} has the optimal support {when}; it is promised from t₀ = {number(t0)}")
    if not told:
        return "", NOT_RUN
    return "; ".join(told) + ".", next(verdict for verdict in (NOT, HOLDS, NOT_RUN) if verdict in verdicts)


_JUDGES: dict[str, Callable[[str, tuple[Any, ...], Sequence[Row]], list[Claim]]] = {
    "fig1": _judge_estimation,
    "fig2": _judge_time,
    "fig3": _judge_gaps,
    "fig4": _judge_time,
    "fig5": _judge_gaps,
    "theory": _judge_theory,
}

"""Claims against brute force on random problems: `python tests/brute_force.py --seeds 0:2000 [--jobs 2] [--table FILE.csv]`.

Every problem follows from one integer (`fuzz_cases.py`). It is small enough that the best model on every support can be computed
(`fuzz_oracle.py`, which shares no code with the package), so that a bound, a proof about a feature, a status or an objective is
either true or shown to be false, by a model whose objective is known to sixty digits. The counts go into a table that is kept
over many runs; seeds that are in it already are left out. A false claim or an exception makes the exit status 1.

With --show one problem is printed in full. With --compare the problems are too large for brute force: `auto` and `branch` are
held against each other.
"""

from __future__ import annotations

import argparse
import csv
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from diht import Problem, SparseClassifier, SparseRegressor, certify, solve, sparse_path
from diht.losses import LOSSES, Loss
from diht.solvers import SDIHT, SVRGHT, Auto
from diht.structure import constrained
from fuzz_cases import REGRESSION, Call, Case, draw
from fuzz_oracle import DIGITS, Model, Oracle

WRONG, OFF = Decimal("1e-6"), Decimal("1e-9")  # relative errors of an objective
EQUAL = Decimal("1e-6")  # relative difference up to which a model is the optimum
SLOW, HUNG = 5.0, 30.0  # seconds of processor time
SMALLEST = Decimal("1e-290")  # objectives below it are zero
BLOCK = 1000  # seeds of one row of the table

COUNTS = (
    "problems",
    "solves",
    "bounds",
    "claims",
    "false bounds",
    "false claims",
    "exceptions",
    "slow",
    "status untrue",
    "objective wrong",
    "objective off",
    "objective below bound",
    "check below claim",
    "infeasible",
    "warnings",
    "sought",
    "found",
    "exact sought",
    "exact found",
    "milliseconds",
)
FATAL = ("false bounds", "false claims", "exceptions", "infeasible")
REPORTED = (*FATAL, "slow", "status untrue", "objective wrong", "objective below bound", "check below claim", "warnings")


@dataclass(frozen=True)
class Finding:
    """What is wrong with an answer."""

    what: str  # one of REPORTED
    text: str
    seed: int
    call: str
    case: str

    def __str__(self) -> str:
        return f"{self.what.upper()} seed {self.seed}, {self.call}: {self.text}; {self.case}"


@dataclass
class Tally:
    """Counts and findings of one loss."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


# ---------------------------------------------------------------------------------------------------------------------
# Calls


@dataclass(frozen=True, eq=False)
class Answer:
    """What was said of a model, of the problem with `k` features, and the model as it was handed out."""

    k: int
    coef: Any  # one row for each class of several
    intercept: Any
    users_units: bool  # whether the coefficients are those of the columns as they are, not divided by the scale
    objective: float
    certificate: Any
    status: str | None = None
    problem: Any = None


def _loss(case: Case) -> Loss:
    known = LOSSES[case.loss]
    return known() if case.parameter is None else known(case.parameter)


def _problem(case: Case, k: int) -> Problem:
    constraint = constrained(k, case.n_features, case.keep, case.groups, case.sign)
    return Problem(
        case.stored,
        case.y,
        _loss(case),
        constraint,
        case.lam,
        case.weights,
        case.fit_intercept,
        scale=case.scale,
        n_threads=1,
        offset=case.offset,
    )


def _solver(name: str) -> Any:
    return {"Auto()": Auto, "SDIHT()": SDIHT, "SVRGHT()": SVRGHT}.get(name, lambda: name)()


def _solve(case: Case, call: Call) -> list[Answer]:
    problem = _problem(case, case.k)
    result = solve(problem, _solver(call.solver), tol=call.tol, max_iter=call.max_iter)
    return [_of_result(case.k, result, problem)]


def _of_result(k: int, result: Any, problem: Any) -> Answer:
    return Answer(
        k, result.w, result.intercept, False, result.objective, result.certificate, str(result.status), problem
    )


def _fit(case: Case, call: Call) -> list[Answer]:
    several = case.loss == "multinomial"
    estimator = (SparseRegressor if case.loss in REGRESSION else SparseClassifier)(
        k=case.k,
        lam=case.lam,
        loss="multinomial" if several else _loss(case),
        solver=_solver(call.solver),
        exact=call.exact,
        fit_intercept=case.fit_intercept,
        standardize=case.standardize,
        tol=call.tol,
        max_iter=call.max_iter,
        n_jobs=1,
        keep=case.keep,
        groups=case.groups,
        sign=case.sign,
    )
    offset = {} if case.offset is None else {"offset": case.offset}
    X = case.stored
    estimator.fit(X, case.y, case.weights, **offset)
    predicted = np.asarray(estimator.predict(X, **offset))
    assert predicted.shape == (len(case.y),)
    assert np.all(np.isfinite(predicted)), "predictions that are no numbers"
    problem = None if several or case.standardize else _problem(case, case.k)
    result = estimator.result_
    return [
        Answer(
            case.k,
            estimator.coef_,
            estimator.intercept_,
            True,
            estimator.objective_,
            estimator.certificate_,
            str(result.status),
            problem,
        )
    ]


def _path(case: Case, call: Call) -> list[Answer]:
    ks = sorted({1, case.k, max(1, case.k - 1)})
    several = case.loss == "multinomial"
    path = sparse_path(
        case.stored,
        case.y,
        ks=ks,
        lams=case.lam,
        loss="multinomial" if several else _loss(case),
        sample_weight=case.weights,
        fit_intercept=case.fit_intercept,
        standardize=case.standardize,
        tol=call.tol,
        n_jobs=1,
        keep=case.keep,
        groups=case.groups,
        sign=case.sign,
        offset=case.offset,
    )
    return [
        Answer(p.k, p.coef, p.intercept, True, p.objective, p.certificate, str(p.result.status)) for p in path.points
    ]


def _certify(case: Case, call: Call) -> list[Answer]:
    problem = _problem(case, case.k)
    rng = np.random.default_rng([case.seed, 15])
    oracle = Oracle(case)
    support = oracle.supports[rng.integers(len(oracle.supports))]
    if call.given == "support":
        certificate = certify(problem, support=support, tol=call.tol, exact=call.exact)
        return [Answer(case.k, None, None, False, certificate.objective, certificate, None, problem)]
    w = np.where(support, rng.standard_normal(case.n_features), 0.0)
    if case.sign is not None:
        w = np.where(np.asarray(case.sign) == 0, w, np.asarray(case.sign) * np.abs(w))
    if call.given == "huge":
        w *= 10.0 ** rng.choice([20.0, 100.0, 160.0, 300.0])
    intercept = float(rng.standard_normal()) if case.fit_intercept else None
    alpha = rng.standard_normal(len(case.y)) if call.given == "dual" else None
    certificate = certify(problem, w, intercept, alpha, call.tol, exact=call.exact)
    return [Answer(case.k, w, intercept or 0.0, False, certificate.objective, certificate, None, problem)]


CALLS: dict[str, Callable[[Case, Call], list[Answer]]] = {
    "solve": _solve,
    "fit": _fit,
    "path": _path,
    "certify": _certify,
}


class Hung(BaseException):
    """A call used up its processor time."""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise `Hung` after so many seconds of processor time, where the system can measure them."""
    if not hasattr(signal, "SIGPROF"):
        yield
        return

    def ring(*_: Any) -> None:
        raise Hung

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


# ---------------------------------------------------------------------------------------------------------------------
# Judgement


def check(case: Case) -> Tally:
    """Make the calls of a case, and hold the answers against the oracle."""
    tally = Tally()
    tally.counts["problems"] += 1
    oracles: dict[int, Oracle] = {}
    for call in case.calls:
        for answer in _answers(case, call, tally):
            oracle = oracles.setdefault(answer.k, Oracle(case, answer.k))
            for what, text in judge(oracle, call, answer, tally.counts):
                _found(tally, case, call, what, text)
    return tally


def _found(tally: Tally, case: Case, call: Call, what: str, text: str) -> None:
    tally.counts[what] += 1
    settings = {"tol": call.tol, "max_iter": call.max_iter, "exact": call.exact}
    said = ", ".join(f"{k}={v}" for k, v in settings.items() if v)
    tally.findings.append(Finding(what, text, case.seed, f"{call.kind} {call.solver} ({said})", str(case)))


def _answers(case: Case, call: Call, tally: Tally) -> list[Answer]:
    """Call, with a clock; what is slow is tried once more, for kernels may have been compiled."""
    tally.counts["solves"] += 1
    seconds = np.inf
    for _ in range(2):
        start = time.process_time()
        try:
            with warnings.catch_warnings(record=True) as caught, _at_most(HUNG):
                warnings.simplefilter("always")
                answers = CALLS[call.kind](case, call)
        except Hung:
            answers = []
        except Exception as error:  # noqa: BLE001 - whatever is raised on valid input is a finding
            _found(tally, case, call, "exceptions", f"{type(error).__name__}: {error} {_raised_in(error)}")
            return []
        seconds = min(seconds, time.process_time() - start)
        if seconds <= SLOW:
            break
    tally.counts["milliseconds"] += round(1000 * seconds)
    if seconds > SLOW:
        _found(tally, case, call, "slow", f"{seconds:.1f} s of processor time" + " at least" * (seconds >= HUNG))
    for text in sorted({f"{w.category.__name__}: {w.message}" for w in caught if call.max_iter is None}):
        _found(tally, case, call, "warnings", text)
    return answers


def _raised_in(error: BaseException) -> str:
    """Where in the package an exception came from."""
    trace, places = error.__traceback__, []
    while trace is not None:
        code = trace.tb_frame.f_code
        if f"{os.sep}diht{os.sep}" in code.co_filename:
            places.append(f"{Path(code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f"({places[-1]})" if places else ""


def judge(oracle: Oracle, call: Call, answer: Answer, counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an answer; what was looked at is counted."""
    certificate, bound = answer.certificate, float(answer.certificate.lower_bound)
    exact = None
    if answer.coef is not None:
        if not (np.all(np.isfinite(answer.coef)) and np.all(np.isfinite(answer.intercept))):
            yield "infeasible", f"coefficients {answer.coef} and intercept {answer.intercept}"
            return
        if not oracle.allows(answer.coef):
            yield "infeasible", f"coefficients {answer.coef.tolist()} are not allowed"
        exact = handed_out(oracle, answer)
    best = oracle.best if exact is None else min(oracle.best, exact)
    counts["bounds"] += 1
    if np.isnan(bound) or (bound > 0.0 and Decimal(bound) > best):
        yield "false bounds", f"bound {bound!r}, but {best:.20g} is attained, {_relative(bound, best):.3g} less"
    yield from _objective(answer, exact, bound, counts)
    if exact is not None and answer.status == "optimal":
        true_gap = _relative(exact, Decimal(bound)) if exact > SMALLEST else Decimal(0)
        if true_gap > Decimal(call.tol) + OFF:
            yield "status untrue", f"optimal, but the gap is {true_gap:.3g} where tol={call.tol:g}"
    yield from _about_features(oracle, certificate, best, counts)
    if answer.problem is not None and float(answer.certificate.bound.check(answer.problem)) < bound:
        again = float(certificate.bound.check(answer.problem))
        yield "check below claim", f"checked {again!r}, claimed {bound!r} ({type(certificate.bound).__name__})"
    if call.seeks_the_optimum and exact is not None:
        found = int(exact <= best + EQUAL * max(abs(best), SMALLEST))
        kinds = ("exact ", "") if call.is_exact else ("",)
        for kind in kinds:
            counts[f"{kind}sought"] += 1
            counts[f"{kind}found"] += found


def handed_out(oracle: Oracle, answer: Answer) -> Decimal:
    """The objective of the model that was handed out, with sixty digits."""
    coef = np.atleast_2d(answer.coef)
    if coef.shape[-1] != oracle.case.n_features:
        coef = coef.T
    if answer.users_units:
        return oracle.exact_in_users_units(coef, answer.intercept)
    model = Model(coef.astype(np.float64), np.atleast_1d(answer.intercept).astype(np.float64), np.zeros(coef.shape[1]))
    return oracle.exact(model)


def _relative(value: Any, reference: Decimal) -> Decimal:
    """(value - reference) / |value|, or how far a value is from one that it should be."""
    with localcontext(DIGITS):
        value = Decimal(value)
        return (value - reference) / max(abs(value), abs(reference), SMALLEST)


def _objective(answer: Answer, exact: Decimal | None, bound: float, counts: Counter[str]) -> Iterator[tuple[str, str]]:
    """Whether the objective is that of the model."""
    if answer.objective < bound:
        yield "objective below bound", f"objective {answer.objective!r}, bound {bound!r}"
    if exact is None or exact > Decimal("1e300"):
        return
    if not np.isfinite(answer.objective):
        yield "objective wrong", f"objective {answer.objective!r}, that of the model is {exact:.17g}"
        return
    off = abs(_relative(answer.objective, exact)) if max(exact, Decimal(answer.objective)) > SMALLEST else Decimal(0)
    counts["objective off"] += off > OFF
    if off > WRONG:
        yield "objective wrong", f"objective {answer.objective!r}, that of the model is {exact:.17g} ({off:.2g} off)"


def _about_features(
    oracle: Oracle, certificate: Any, best: Decimal, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Whether bounds on the models with, and without, a feature hold, and what follows from them."""
    d, kept = oracle.case.n_features, {j for i in oracle.kept for j in oracle.units[i]}
    screening, attained = certificate.screening, Decimal(float(certificate.attained))
    for what, claimed, bounds, witness in (
        ("without", certificate.required, screening.without, oracle.without),
        ("within", certificate.excluded, screening.within, oracle.within),
    ):
        claimed = set(np.asarray(claimed).tolist())
        for j in range(d):
            if j in kept and what == "without":
                continue
            value = float(bounds[j]) if len(bounds) else -np.inf
            if value <= 0.0 and j not in claimed:
                continue
            counts["claims"] += 1
            least = witness(j)
            if not least.is_finite():
                continue
            if value > 0.0 and (value == np.inf or Decimal(value) > least):
                yield "false claims", f"bound {value!r} {what} feature {j}, but {least:.20g} is attained"
            elif j in claimed and (least <= best or least <= attained):
                word = "required" if what == "without" else "excluded"
                yield "false claims", f"feature {j} {word}, but a model {what} it has {least:.20g} (attained {attained:.20g})"


# ---------------------------------------------------------------------------------------------------------------------
# The run and its table


Tallies = dict[str, Tally]


def check_seed(seed: int) -> tuple[str, Tally]:
    """The loss of a seed, and what came of it."""
    case = draw(seed)
    return case.loss, check(case)


def run(seeds: Iterable[int], jobs: int, tell: Callable[[Finding], Any]) -> Tallies:
    """Check seeds, in one process or in several."""
    tallies: Tallies = {}
    if jobs == 1:
        outcomes: Iterable[tuple[str, Tally]] = map(check_seed, seeds)
        _gather(outcomes, tallies, tell)
    else:
        with ProcessPoolExecutor(jobs, initializer=_one_thread) as pool:
            _gather(pool.map(check_seed, seeds, chunksize=8), tallies, tell)
    return tallies


def _one_thread() -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def _gather(outcomes: Iterable[tuple[str, Tally]], tallies: Tallies, tell: Callable[[Finding], Any]) -> None:
    for loss, tally in outcomes:
        into = tallies.setdefault(loss, Tally())
        into.counts.update(tally.counts)
        into.findings += tally.findings
        for finding in tally.findings:
            tell(finding)


Row = dict[str, Any]


def read_table(path: Path | None) -> list[Row]:
    """The rows of earlier runs."""
    if path is None or not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            {name: value if name == "loss" else int(value) for name, value in row.items()}
            for row in csv.DictReader(file)
        ]


def write_table(path: Path, rows: list[Row]) -> None:
    """Write aside, and rename."""
    aside = path.with_name(path.name + ".part")
    with aside.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["first", "end", "loss", *COUNTS])
        writer.writeheader()
        writer.writerows(rows)
    aside.replace(path)


def missing(first: int, end: int, rows: list[Row]) -> list[tuple[int, int]]:
    """The parts of a range of seeds that are in no row, in blocks."""
    covered = sorted({(row["first"], row["end"]) for row in rows})
    parts, at = [], first
    for low, high in [*covered, (end, end)]:
        if low > at:
            parts.append((at, min(low, end)))
        at = max(at, high)
        if at >= end:
            break
    return [(low, min(low + BLOCK, high)) for a, high in parts for low in range(a, high, BLOCK)]


def summary(rows: list[Row]) -> Iterator[str]:
    """Totals by loss, as a table in Markdown."""
    totals: dict[str, Counter[str]] = {}
    for row in rows:
        for loss in (row["loss"], "all"):
            totals.setdefault(loss, Counter()).update({name: row[name] for name in COUNTS})
    shown = [name for name in COUNTS if name not in ("sought", "found", "exact sought", "exact found", "milliseconds")]
    yield "| loss | " + " | ".join(shown) + " | optimum found | by exact | ms a solve |"
    yield "|---" * (len(shown) + 4) + "|"
    for loss in sorted(totals, key=lambda loss: (loss == "all", loss)):
        c = totals[loss]
        cells = [f"{c[name]:,}" for name in shown]
        for kind in ("", "exact "):
            share = 100 * c[f"{kind}found"] / max(c[f"{kind}sought"], 1)
            cells.append(f"{c[f'{kind}found']:,} of {c[f'{kind}sought']:,} ({share:.2f}%)")
        yield f"| {loss} | " + " | ".join(cells) + f" | {c['milliseconds'] / max(c['solves'], 1):.0f} |"


def campaign(ranges: list[tuple[int, int]], jobs: int, table: Path | None) -> tuple[list[Row], list[Finding]]:
    """Check ranges of seeds, less those in the table, and add the counts to it block by block."""
    rows, findings = read_table(table), []
    for first, end in ranges:
        for low, high in missing(first, end, rows):
            for loss, tally in run(range(low, high), jobs, print).items():
                rows.append({"first": low, "end": high, "loss": loss} | {name: tally.counts[name] for name in COUNTS})
                findings += tally.findings
            if table is not None:
                write_table(table, rows)
            print(f"seeds {low}:{high} done", file=sys.stderr, flush=True)
    return rows, findings


def show(seed: int) -> Iterator[str]:
    """A problem in full, and what is said of it."""
    case = draw(seed)
    yield f"seed {seed}: {case}"
    with np.printoptions(precision=17, threshold=100_000, floatmode="unique"):
        for name in ("X", "y", "weights", "offset", "scale"):
            value = getattr(case, name)
            if value is not None:
                yield f"{name} = np.{value!r}"
    yield f"lam = {case.lam!r}, parameter = {case.parameter!r}"
    yield from map(str, case.calls)
    yield f"best objective of a witness: {Oracle(case).best:.20g}"
    yield from map(str, check(case).findings)


def seeds_given(text: str) -> tuple[int, int]:
    """A range "first:end", or one seed."""
    first, _, end = text.partition(":")
    return int(first), int(end) if end else int(first) + 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=seeds_given, default=[(0, 2000)], help="ranges first:end")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--table", type=Path, help="CSV file that keeps the counts of many runs")
    parser.add_argument("--show", type=int, metavar="SEED", help="print one problem in full")
    arguments = parser.parse_args()
    if arguments.show is not None:
        print("\n".join(show(arguments.show)))
        return 0
    rows, findings = campaign(arguments.seeds, arguments.jobs, arguments.table)
    print("\n".join(summary(rows)))
    return int(any(finding.what in FATAL for finding in findings))


if __name__ == "__main__":
    sys.exit(main())

"""What is asked of the package, and whether the answers are true: every claim is held against `fuzz_oracle`."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np

from diht import (
    Problem,
    SparseClassifier,
    SparseRegressor,
    certify,
    heredity,
    per_group,
    solve,
    sparse_path,
    within_budget,
)
from diht.constraints.groups import constrained, limited
from diht.losses import ALL_LOSSES, Loss
from diht.solvers import SDIHT, SVRGHT, Auto
from fuzz_cases import LOG_LINK, REGRESSION, Call, Case, draw
from fuzz_oracle import DIGITS, Oracle

WRONG, OFF = Decimal("1e-6"), Decimal("1e-9")  # relative errors of an objective
EQUAL = Decimal("1e-6")  # relative difference up to which a model is the optimum
SLOW = 5.0  # seconds of processor time
TRIES = (1.0, 3.0, 1.0)  # of a slow call, in units of its limit: kernels compile in the second, at the latest
ROUNDED = Decimal("1e-11")  # relative error of an objective whose columns are divided by rounded deviations
SWAPPED = Decimal("1e-8")  # of an objective: what a swap may gain from a model that is called swap-optimal
HUGE = Decimal("1e300")  # objectives beyond it may overflow, and be refused
HUGE_COUNT = Decimal("1e125")  # those of counts, which are exponentials

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
REPORTED = (
    *FATAL,
    "slow",
    "status untrue",
    "objective wrong",
    "objective below bound",
    "check below claim",
    "warnings",
    "exact missed",
)


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
    swap_optimal: Any = False


def assert_true_bounds(seeds: Iterable[int], stated: Callable[[Case, Any], Problem]) -> None:
    """Compare bounds with the best of all models: `stated` makes a problem of a case and its constraint, rows elsewhere."""
    for seed in seeds:
        case = replace(draw(seed), offset=None)
        if case.n_targets == 1:
            constraint = constrained(case.k, case.n_features, keep=case.keep, groups=case.groups, sign=case.sign)
            result = solve(stated(case, constraint), "auto" if seed % 2 else "relaxed", max_iter=30)
            assert result.lower_bound <= Oracle(case).best, case


def loss_of(case: Case) -> Loss:
    known = ALL_LOSSES[case.loss]
    return known() if case.parameter is None else known(case.parameter)


def _own(case: Case, level: Any) -> Any:
    """The constraint of a case's rule."""
    rule = case.rule
    if rule["kind"] == "budget":
        return within_budget(level, rule["costs"])
    return (
        per_group(level, rule["group"], rule["most"])
        if rule["kind"] == "per_group"
        else heredity(level, rule["parents"], rule["kind"])
    )


def _constraint(case: Case, k: Any) -> Any:
    if case.rule is not None:
        return limited(_own(case, k), case.n_features, case.sign)
    return constrained(k, case.n_features, case.keep, case.groups, case.sign)


def _problem(case: Case, k: Any) -> Problem:
    constraint = _constraint(case, k)
    return Problem(
        case.stored,
        case.y,
        loss_of(case),
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
    result = solve(problem, _solver(call.solver), tol=call.tol, max_iter=call.max_iter, time_limit=call.time_limit)
    return [_of_result(case.k, result, problem)]


def _of_result(k: int, result: Any, problem: Any) -> Answer:
    return Answer(
        k,
        result.coef,
        result.intercept,
        True,
        result.objective,
        result.certificate,
        str(result.status),
        problem,
        result.swap_optimal,
    )


def _fit(case: Case, call: Call) -> list[Answer]:
    estimator = (SparseRegressor if case.loss in REGRESSION else SparseClassifier)(
        k=case.k if case.rule is None else _own(case, case.k),
        lam=case.lam,
        loss=loss_of(case),
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
        device=case.device,
    )
    offset = {} if case.offset is None else {"offset": case.offset}
    X = case.stored
    y = case.y if case.codes is None else case.codes
    estimator.fit(X, y, case.weights, **offset)
    predicted = np.asarray(estimator.predict(X, **offset))
    assert predicted.shape == y.shape
    assert np.all(np.isfinite(predicted)), "predictions that are no numbers"
    problem = None if case.standardize or case.device is not None else _problem(case, case.k)
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
            result.swap_optimal,
        )
    ]


def _ks(case: Case) -> list[Any]:
    if case.rule is not None and case.rule["kind"] == "budget":
        return sorted({0.5 * (min(case.rule["costs"]) + case.k), case.k})
    return sorted({1, case.k, max(1, case.k - 1)})


def _path(case: Case, call: Call) -> list[Answer]:
    path = sparse_path(
        case.stored,
        case.y if case.codes is None else case.codes,
        ks=_ks(case),
        lams=case.lam,
        loss=loss_of(case),
        sample_weight=case.weights,
        fit_intercept=case.fit_intercept,
        standardize=case.standardize,
        tol=call.tol,
        n_jobs=1,
        keep=case.keep,
        groups=case.groups,
        sign=case.sign,
        offset=case.offset,
        device=case.device,
        constraint=None if case.rule is None else _own(case, case.k),
    )
    return [
        Answer(p.k, p.coef, p.intercept, True, p.objective, p.certificate, str(p.result.status)) for p in path.points
    ]


def _given(case: Case, call: Call) -> dict[str, Any]:
    """A model, or features, at random, and sometimes a dual point."""
    rng = np.random.default_rng([case.seed, 15])
    supports = Oracle(case).supports
    support = supports[rng.integers(len(supports))]
    if call.given == "support":
        return {"support": support}
    shape = () if case.n_targets == 1 else (case.n_targets,)
    w = np.where(support, rng.standard_normal((*shape, case.n_features)), 0.0)
    if case.sign is not None:
        w = np.where(np.asarray(case.sign) == 0, w, np.asarray(case.sign) * np.abs(w))
    if call.given == "huge":
        w *= 10.0 ** rng.choice([20.0, 100.0, 160.0, 300.0])
    b = rng.standard_normal(shape) if case.fit_intercept else None
    model = {"w": w, "intercept": float(b) if b is not None and not shape else b}
    return model | ({"alpha": rng.standard_normal((*shape, len(case.y)))} if call.given == "dual" else {})


def _overflows(case: Case, w: Any, b: Any) -> bool:
    """Whether a model's objective is beyond float64, or a count that it predicts."""
    with np.errstate(over="ignore", invalid="ignore"):
        u = case.X.astype(np.float64) @ (w if case.scale is None else w / case.scale).T + b
    seen = slice(None) if case.weights is None else case.weights > 0.0
    u = (u + (0.0 if case.offset is None else case.offset))[seen]
    counts = case.loss in LOG_LINK and bool(np.max(np.abs(u)) > 280.0)
    return counts or Oracle(case).handed_out(w, b, True) > _huge(case)


def _huge(case: Case) -> Decimal:
    return HUGE_COUNT if case.loss in LOG_LINK else HUGE


def _certify(case: Case, call: Call) -> list[Answer]:
    problem, given = _problem(case, case.k), _given(case, call)
    w, b = given.get("w"), given.get("intercept")
    b = np.zeros(case.n_targets) if b is None else b
    try:
        certificate = certify(problem, **given, tol=call.tol, exact=call.exact)
    except ValueError as refusal:
        if w is not None and str(refusal).startswith("w must") and _overflows(case, np.asarray(w), b):
            return []
        raise
    with np.errstate(over="ignore"):
        coef = w if w is None or case.scale is None else np.asarray(w) / case.scale  # as the certificate takes it
    return [Answer(case.k, coef, b, True, certificate.objective, certificate, None, problem)]


CALLS: dict[str, Callable[[Case, Call], list[Answer]]] = {
    "solve": _solve,
    "fit": _fit,
    "path": _path,
    "certify": _certify,
}


class Hung(BaseException):
    """A call used up its processor time."""


@contextmanager
def _at_most(seconds: float | None) -> Iterator[None]:
    """Raise `Hung` after so many seconds of processor time."""
    if seconds is None:
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


def check(case: Case, limit: float | None = None) -> Tally:
    """Make the calls of a case, and hold the answers against the oracle; a call ends after `limit` seconds of processor time."""
    tally = Tally()
    tally.counts["problems"] += 1
    oracles: dict[int, Oracle] = {}
    for call in case.calls:
        for answer in _answers(case, call, tally, limit):
            oracle = oracles.setdefault(answer.k, Oracle(case, answer.k))
            for what, text in judge(oracle, call, answer, tally.counts):
                _found(tally, case, call, what, text)
    return tally


def _found(tally: Tally, case: Case, call: Call, what: str, text: str) -> None:
    tally.counts[what] += 1
    tally.findings.append(Finding(what, text, case.seed, str(call), str(case)))


def _answers(case: Case, call: Call, tally: Tally, limit: float | None) -> list[Answer]:
    """Call, with a clock; what is slow is tried once more where that counts, for kernels may have been compiled."""
    tally.counts["solves"] += 1
    seconds, answers = np.inf, []
    for factor in TRIES:
        start = time.process_time()
        try:
            with warnings.catch_warnings(record=True) as caught, _at_most(limit and factor * limit):
                warnings.simplefilter("always")
                answers = CALLS[call.kind](case, call)
        except Hung:
            pass
        except Exception as error:  # whatever is raised on valid input is a finding
            _found(tally, case, call, "exceptions", f"{type(error).__name__}: {error} {_raised_in(error)}")
            return []
        seconds = min(seconds, time.process_time() - start)
        if seconds <= SLOW or limit is None:
            break
    tally.counts["milliseconds"] += round(1000 * seconds)
    if seconds > SLOW:
        _found(tally, case, call, "slow", f"{seconds:.1f} s of processor time")
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
    # Deviations by which an estimator divides are rounded: its problem is the exact one only up to that.
    slack = 1 + (ROUNDED if call.kind in ("fit", "path") and oracle.case.scale is not None else 0)
    if np.isnan(bound) or (bound > 0.0 and Decimal(bound) > best * slack):
        yield "false bounds", f"bound {bound!r}, but {best:.20g} is attained"
    if not np.isfinite(bound):
        return
    yield from _objective(oracle, answer, exact, bound, counts)
    if exact is not None and answer.status == "optimal":
        true_gap = _relative(exact, Decimal(bound)) if exact > oracle.smallest else Decimal(0)
        if true_gap > Decimal(call.tol) + OFF:
            yield "status untrue", f"optimal, but the gap is {true_gap:.3g} where tol={call.tol:g}"
    better = _better_objective(oracle, certificate)
    known = min((value for value in (exact, better) if value is not None), default=None)
    # A search that `certify` makes may attain a little less than the model that it was given, and not call it better.
    attained = Decimal(float(certificate.attained)) * slack
    if known is not None and known > oracle.smallest and call.kind != "certify" and attained < known:
        yield "false claims", f"{certificate.attained!r} is called attained, but the model has {known:.20g}"
    yield from _about_features(oracle, certificate, slack, counts)
    yield from _about_swaps(oracle, answer, exact, counts)
    yield from _better(oracle, certificate, better)
    again = bound if answer.problem is None else float(certificate.bound.check(answer.problem))
    if again < bound:
        yield "check below claim", f"checked {again!r}, claimed {bound!r} ({type(certificate.bound).__name__})"
    if call.seeks_the_optimum and exact is not None:
        found = int(exact <= max(best + EQUAL * abs(best), oracle.smallest))
        kinds = ("exact ", "") if call.is_exact else ("",)
        for kind in kinds:
            counts[f"{kind}sought"] += 1
            counts[f"{kind}found"] += found
        if call.is_exact and not found:
            yield "exact missed", f"{answer.status} at {exact:.17g}, but {best:.17g} is attained"


def handed_out(oracle: Oracle, answer: Answer) -> Decimal:
    """The objective of the model that was handed out, with 200 digits."""
    coef = np.atleast_2d(answer.coef)
    return oracle.handed_out(coef, answer.intercept, not answer.users_units)


def _relative(value: Any, reference: Decimal) -> Decimal:
    """(value - reference) / |value|, or how far a value is from one that it should be."""
    with localcontext(DIGITS):
        value = Decimal(value)
        return (value - reference) / max(abs(value), abs(reference), Decimal("1e-320"))


def _objective(
    oracle: Oracle, answer: Answer, exact: Decimal | None, bound: float, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Whether the objective is that of the model."""
    if min(answer.objective, answer.certificate.attained) < bound:
        yield (
            "objective below bound",
            f"objective {answer.objective!r}, attained {answer.certificate.attained!r}, bound {bound!r}",
        )
    if exact is None or exact > _huge(oracle.case):
        return
    if not np.isfinite(answer.objective):
        yield "objective wrong", f"objective {answer.objective!r}, that of the model is {exact:.17g}"
        return
    largest = max(exact, Decimal(answer.objective))
    off = abs(_relative(answer.objective, exact)) if largest > oracle.smallest else Decimal(0)
    counts["objective off"] += off > OFF
    # Where rounding of the model's own predictions decides, the certificate says how much: `attained`.
    stated = Decimal(float(answer.certificate.attained)) - Decimal(answer.objective)
    if off > WRONG and abs(exact - Decimal(answer.objective)) > stated:
        yield "objective wrong", f"objective {answer.objective!r}, that of the model is {exact:.17g} ({off:.2g} off)"


def compare(case: Case) -> dict[str, Tally]:
    """Make the calls of a case beyond brute force: the best model of all stands for the optimum."""
    tallies = {call.solver: Tally() for call in case.calls}
    oracle, answers = Oracle(case), {}
    for call in case.calls:
        tallies[call.solver].counts["problems"] += 1
        for answer in _answers(case, call, tallies[call.solver], None):
            answers[call] = answer, handed_out(oracle, answer)
    best = min((exact for _, exact in answers.values()), default=Decimal("Infinity"))
    for call, (answer, exact) in answers.items():
        counts, bound = tallies[call.solver].counts, float(answer.certificate.lower_bound)
        counts["bounds"] += 1
        counts["sought"] += 1
        counts["found"] += exact <= best * (1 + EQUAL)
        if Decimal(bound) > best:
            _found(tallies[call.solver], case, call, "false bounds", f"bound {bound!r}, but {best:.20g} is attained")
    return tallies


def _better_objective(oracle: Oracle, certificate: Any) -> Decimal | None:
    better = certificate.better
    return None if better is None else oracle.handed_out(np.atleast_2d(better.coef), better.intercept, False)


def _better(oracle: Oracle, certificate: Any, exact: Decimal | None) -> Iterator[tuple[str, str]]:
    """Whether a better model that was met is one."""
    better = certificate.better
    if exact is None:
        return
    if not oracle.allows(better.w):
        yield "infeasible", f"a better model has coefficients {better.w.tolist()}"
    if exact > oracle.smallest and abs(_relative(better.objective, exact)) > WRONG:
        yield "objective wrong", f"objective {better.objective!r} of a better model, its own is {exact:.17g}"


def _about_features(
    oracle: Oracle, certificate: Any, slack: Decimal, counts: Counter[str]
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
            if value > 0.0 and (value == np.inf or Decimal(value) > least * slack):
                yield "false claims", f"bound {value!r} {what} feature {j}, but {least:.20g} is attained"
            elif j in claimed and least * slack <= attained:
                word = "required" if what == "without" else "excluded"
                yield (
                    "false claims",
                    f"feature {j} {word}, but a model {what} it has {least:.20g} (attained {attained:.20g})",
                )


# ---------------------------------------------------------------------------------------------------------------------
# A case as a program


def _about_swaps(
    oracle: Oracle, answer: Answer, exact: Decimal | None, counts: Counter[str]
) -> Iterator[tuple[str, str]]:
    """Whether a swap gains more than is said: nothing where the model is called swap-optimal, but for the accuracy of fits."""
    left, case = answer.swap_optimal, oracle.case
    known = exact is not None and exact > oracle.smallest and case.rule is None and case.sign is None
    if left is False or not known or exact is None:
        return
    counts["claims"] += 1
    best = oracle.swapped(np.any(np.atleast_2d(answer.coef) != 0.0, axis=0))
    if exact - best > Decimal(0.0 if left is True else float(left)) + SWAPPED * abs(exact):
        yield "false claims", f"swaps gain at most {left}, but from {exact:.17g} one leads to {best:.17g}"


def program(case: Case, call: Call) -> Iterator[str]:
    """Lines of Python that make a call, with nothing but the package and numpy."""
    yield "import numpy as np, scipy.sparse as sp"
    if case.rule is not None:
        yield f"# k={case.k} stands for the level of the rule {case.rule}"
    yield "from diht import *; from diht.losses import *; from diht.solvers import *"
    yield "from diht.constraints.groups import constrained"
    for name in ("X", "y", "weights", "offset", "scale"):
        value = getattr(case, name)
        data = "None" if value is None else f"np.array({value.tolist()!r}, dtype=np.{value.dtype})"
        yield f"{name} = {data}"
    convert = {"C": "np.ascontiguousarray", "F": "np.asfortranarray", "CSR": "sp.csr_array", "CSC": "sp.csc_array"}
    yield f"X = {convert[case.storage]}(X)"
    loss = repr(loss_of(case))
    structure = f"keep={case.keep}, groups={case.groups}, sign={case.sign}"
    common = f"fit_intercept={case.fit_intercept}, standardize={case.standardize}, tol={call.tol!r}, {structure}"
    solver = call.solver if call.solver.endswith("()") else repr(call.solver)
    limit = f", max_iter={call.max_iter}" if call.max_iter else ""
    if call.kind in ("fit", "path") and case.codes is not None:
        yield f"y = np.array({case.codes.tolist()})"
    if call.kind == "fit":
        name = "SparseRegressor" if case.loss in REGRESSION else "SparseClassifier"
        offset = ", offset=offset" if case.loss in REGRESSION else ""
        yield f"model = {name}(k={case.k}, lam={case.lam!r}, loss={loss}, solver={solver}, exact={call.exact}, {common}{limit})"
        yield f"model.fit(X, y, weights{offset}); print(model.result_, model.coef_, model.intercept_)"
        return
    if call.kind == "path":
        data = "X, y, sample_weight=weights, offset=offset"
        yield f"path = sparse_path({data}, ks={_ks(case)}, lams={case.lam!r}, loss={loss}, {common})"
        yield "print(*[point.result for point in path])"
        return
    yield f"k = constrained({case.k}, {case.n_features}, {structure})"
    yield f"problem = Problem(X, y, {loss}, k, {case.lam!r}, weights, {case.fit_intercept}, scale=scale, offset=offset)"
    if call.kind == "solve":
        yield f"result = solve(problem, {solver}, tol={call.tol!r}{limit}); print(result, result.w, result.intercept)"
    else:
        given = ", ".join(f"{name}={_literal(value)}" for name, value in _given(case, call).items())
        yield f"print(certify(problem, {given}, tol={call.tol!r}, exact={call.exact}))"


def _literal(value: Any) -> str:
    return f"np.array({value.tolist()!r})" if isinstance(value, np.ndarray) else repr(value)

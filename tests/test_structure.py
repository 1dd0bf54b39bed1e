"""Groups, signs and features to keep: every claim against the enumeration of all supports."""

from functools import cache
from itertools import chain, combinations

import numpy as np
import pytest

from diht import Problem, solve
from diht.constraint import Cardinality, Node
from diht.duality import dual, lower_bound, primal
from diht.losses import Hinge, Huber, Logistic, Loss, SmoothedHinge, Squared, SquaredHinge
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT, BranchAndBound, Relaxed
from diht.solvers.refit import refit
from diht.structure import Structured, constrained
from oracle import small_data, some_weights

D = 7
GROUPS = np.array([0, 1, 0, 2, 3, 3, 4])
SIGN = np.array([1, -1, 0, 1, -1, 0, 1])
LOSSES = [Squared(), Huber(), Logistic(), SmoothedHinge(), Hinge(), SquaredHinge()]
KINDS = {
    "keep": {"keep": [2, 5]},
    "groups": {"groups": GROUPS},
    "sign": {"sign": SIGN},
    "nonnegative": {"sign": 1},
    "all": {"keep": [6], "groups": GROUPS, "sign": SIGN},
}


@cache
def fits(
    loss: Loss, lam: float, fit_intercept: bool, weighted: bool
) -> dict[tuple[int, ...], tuple[np.ndarray, float]]:
    """The best model on every support, whatever its signs: coefficients and objective."""
    problem = plain(loss, lam, fit_intercept, weighted)
    found = {}
    for support in chain.from_iterable(combinations(range(D), n) for n in range(D + 1)):
        w, b, u = refit(problem, np.array(support, dtype=np.int64))
        found[support] = w, primal(problem, w, b, u)
    return found


def plain(loss: Loss, lam: float, fit_intercept: bool, weighted: bool) -> Problem:
    return Problem(*small_data(loss), loss, D, lam, some_weights(24) if weighted else None, fit_intercept=fit_intercept)


def structured(kind: str, k: int, loss: Loss, lam: float, fit_intercept: bool, weighted: bool) -> Problem:
    return plain(loss, lam, fit_intercept, weighted).replaced(constraint=constrained(k, D, **KINDS[kind]))


def optima(kind: str, k: int, *case: object) -> tuple[float, np.ndarray, np.ndarray]:
    """The best objective, and the best of the models without and with each unit, by its features.

    At the best model some coefficients are zero, and on the others it is the best whatever the signs: so that all supports with
    the right signs have it among them.
    """
    arguments = KINDS[kind]
    unit = np.asarray(arguments.get("groups", np.arange(D)))
    sign = np.broadcast_to(arguments.get("sign", 0), D)
    kept = {int(unit[j]) for j in arguments.get("keep", [])}
    best, without, within = np.inf, np.full(D, np.inf), np.full(D, np.inf)
    for support, (w, value) in fits(*case).items():
        used = {int(unit[j]) for j in support} | kept
        if len(used - kept) > k or np.any(sign * w < 0):
            continue
        best = min(best, value)
        chosen = np.isin(unit, list(used))
        without[~chosen] = np.minimum(without[~chosen], value)
        room = len(used - kept) < k
        within[chosen | room] = np.minimum(within[chosen | room], value)
    return best, without, within


CASES = [
    (kind, k, loss, lam, fit_intercept, weighted)
    for kind in KINDS
    for loss in LOSSES
    for k, lam, fit_intercept, weighted in ((1, 0.3, True, False), (2, 0.01, False, True), (3, 1e-3, True, True))
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bounds_hold_and_the_exact_solver_finds_the_optimum(case: tuple) -> None:
    best, without, within = optima(*case)
    problem = structured(*case)
    for solver in ("auto", BranchAndBound()):
        result = solve(problem, solver, tol=1e-9)
        assert problem.constraint.allows(result.w)
        assert result.objective >= best * (1 - 1e-9)
        assert result.lower_bound <= best * (1 + 1e-9)
        certificate = result.certificate
        assert np.all(without[certificate.required] > best * (1 - 1e-9))
        assert not np.any(within[certificate.excluded] <= best * (1 + 1e-12))
        assert np.all(certificate.screening.without <= without * (1 + 1e-9) + 1e-12)
        assert np.all(certificate.screening.within <= within * (1 + 1e-9) + 1e-12)
    assert result.objective == pytest.approx(best, rel=1e-7)
    assert result.lower_bound == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("case", CASES[::2], ids=str)
def test_auto_finds_what_is_best(case: tuple) -> None:
    best, _, _ = optima(*case)
    assert solve(structured(*case)).objective == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize(
    "solver", [DIHT(), SDIHT(), IHT(), HTP(), SVRGHT(), Relaxed()], ids=lambda solver: type(solver).__name__
)
@pytest.mark.parametrize("kind", KINDS)
def test_every_method_keeps_to_the_constraint(kind: str, solver: object) -> None:
    for loss in (Squared(), SmoothedHinge(), Hinge()):
        case = kind, 2, loss, 0.1, True, True
        best, _, _ = optima(*case)
        problem = structured(*case)
        result = solve(problem, solver, max_iter=200)
        assert problem.constraint.allows(result.w)
        assert result.lower_bound <= best * (1 + 1e-9)
        assert result.objective >= best * (1 - 1e-9)

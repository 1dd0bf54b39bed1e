"""Cox's proportional hazards: against formulas written once more from their definitions, and every support of small problems."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from mpmath import exp as mp_exp
from mpmath import log as mp_log
from mpmath import mp, mpf
from scipy.optimize import check_grad, minimize
from sklearn.base import clone

from diht import SparseCox
from diht.constraints.base import Cardinality
from diht.design import as_design
from diht.estimators.cox import censored
from diht.joint.solve import JointProblem, solve_joint
from diht.survival.partial import PartialLikelihood
from fuzz_joint import check

TIES = ["efron", "breslow"]
both = pytest.mark.parametrize("ties", TIES)


def data(seed: int, n: int = 40, d: int = 6, everything: bool = True) -> tuple[np.ndarray, dict[str, Any]]:
    """Tied times, censored ones; with everything strata, entries and weights, of which one is zero."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    time = np.ceil(4.0 * rng.exponential(np.exp(0.8 * X[:, 1] - 0.6 * X[:, d - 2]))) / 4.0
    given: dict[str, Any] = {"time": time, "event": rng.random(n) < 0.7}
    if everything:
        weight = rng.integers(1, 4, n).astype(float)
        weight[3] = 0.0
        entry = np.where(rng.random(n) < 0.4, 0.5 * time - 0.1, -1.0)
        given |= {"sample_weight": weight, "entry": entry, "strata": np.array(["a", "b"])[rng.integers(0, 2, n)]}
    return X, given


def terms(given: dict[str, Any], ties: str) -> tuple[list[tuple[float, np.ndarray]], np.ndarray]:
    """The weights c and the coefficients of the exponentials of each logarithm, and the linear part, from the definitions."""
    time, event = given["time"], np.asarray(given["event"])
    n = len(time)
    s = np.asarray(given.get("sample_weight", np.ones(n)), dtype=float)
    s = s / s.mean()
    entry, strata = given.get("entry", np.full(n, -np.inf)), given.get("strata", np.zeros(n))
    found = []
    for g in np.unique(strata):
        for t in np.unique(time[event & (strata == g) & (s > 0)]):
            risk = (strata == g) & (entry < t) & (time >= t) & (s > 0)
            dead = risk & (time == t) & event
            m = int(dead.sum())
            if ties == "breslow":
                found.append((float(s[dead].sum()), np.where(risk, s, 0.0)))
                continue
            found += [
                (float(s[dead].mean()), np.where(risk, s, 0.0) - np.where(dead, s * ell / m, 0.0)) for ell in range(m)
            ]
    return found, np.where(event, s, 0.0)


def plain(given: dict[str, Any], ties: str, u: np.ndarray) -> tuple[float, np.ndarray]:
    """f and its gradient, term by term."""
    logs, pull = terms(given, ties)
    value, slope = -float(pull @ u), -pull.copy()
    for c, a in logs:
        weighted = a * np.exp(u - u.max())
        value += c * (np.log(weighted.sum()) + u.max())
        slope += c * weighted / weighted.sum()
    return value / len(u), slope / len(u)


def likelihood(given: dict[str, Any], ties: str) -> PartialLikelihood:
    order = ("time", "event", "sample_weight", "entry", "strata")
    return PartialLikelihood(censored(len(given["time"]), *(given.get(name) for name in order))[1], ties)


def best(X: np.ndarray, given: dict[str, Any], ties: str, k: int, lam: float) -> tuple[float, tuple[int, ...]]:
    """The least objective of all supports, by scipy."""

    def on(support: tuple[int, ...]) -> float:
        columns = X[:, support]

        def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = plain(given, ties, columns @ x)
            return value + 0.5 * lam * float(x @ x), columns.T @ slope + lam * x

        options = {"ftol": 1e-16, "gtol": 1e-11, "maxiter": 2000}
        return float(minimize(objective, np.zeros(k), jac=True, method="L-BFGS-B", options=options).fun)

    return min((on(support), support) for support in combinations(range(X.shape[1]), k))


@pytest.mark.parametrize("everything", [False, True])
@both
def test_value_slopes_and_curvature(ties: str, everything: bool) -> None:
    X, given = data(0, everything=everything)
    f = likelihood(given, ties)
    for size in (0.0, 1.0, 8.0):
        u = size * np.random.default_rng(1).standard_normal(len(X))
        value, slope = plain(given, ties, u)
        at = f.linear(f.levelled(u))
        level = f.levelled(u)
        touching = at.constant + float(at.gradient @ level)  # less what rounding can have added
        assert value - 1e-7 <= touching <= value
        assert f.value(f.levelled(u)) == pytest.approx(value, rel=1e-12, abs=1e-12)
        assert np.allclose(at.gradient, slope, rtol=1e-9, atol=1e-13)
        assert np.all(np.abs(at.gradient - slope) <= at.gradient_error + 1e-15)
        assert abs(float(at.gradient.sum())) <= float(at.gradient_error.sum()) + 1e-15
        assert float(at.gradient_error.max()) <= 1e-8
        H = f.hessian(f.levelled(u), X)
        step = 1e-5
        for j in range(X.shape[1]):
            rise = plain(given, ties, u + step * X[:, j])[1] - plain(given, ties, u - step * X[:, j])[1]
            assert np.allclose(H[:, j], X.T @ rise / (2 * step), atol=1e-6)
        assert np.allclose(f.hessian(f.levelled(u), X, True), np.diag(H), atol=1e-12)
    assert check_grad(lambda v: plain(given, ties, v)[0], lambda v: plain(given, ties, v)[1], u / 8.0) < 1e-5


@both
def test_curvature_where_hazards_differ_by_many_orders(ties: str) -> None:
    """Covariances over the risk sets, each from its definition; sums over those at risk are far smaller than over all."""
    X, given = data(7)
    X += 1e4 * (given["strata"] == "a")[:, None]  # f does not depend on what a stratum has in common
    u = 40.0 * np.random.default_rng(2).standard_normal(len(X))
    expected = np.zeros((X.shape[1], X.shape[1]))
    for c, a in terms(given, ties)[0]:
        p = np.where(a > 0.0, a * np.exp(np.minimum(u - u[a > 0.0].max(), 0.0)), 0.0)
        Z = X - np.average(X, axis=0, weights=p)
        expected += c * (Z * (p / p.sum())[:, None]).T @ Z / len(X)
    f = likelihood(given, ties)
    assert np.allclose(f.hessian(f.levelled(u), X), expected, rtol=1e-6, atol=1e-9)


@both
def test_refits_of_strata_far_apart_and_of_samples_never_at_risk(ties: str) -> None:
    """What does not change f changes no fit: means of strata, samples that leave before the first event or weigh nothing."""
    X, given = data(8)
    given["event"] &= given["time"] > 0.25
    never = ~np.any([a > 0.0 for _, a in terms(given, ties)[0]], axis=0)
    assert np.count_nonzero(never) > 1
    moved = X + 1e4 * (given["strata"] == "a")[:, None] + 1e6 * never[:, None]
    support, f = np.arange(3), likelihood(given, ties)
    expected, found = (JointProblem(f, as_design(A, 1), A, Cardinality(3), 1e-3).refit(support) for A in (X, moved))
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    # from a model that is worse than none
    far = np.array([1e3, -1e3, 1e3, 0.0, 0.0, 0.0])
    again = JointProblem(f, as_design(X, 1), X, Cardinality(3), 1e-3).refit(support, far)
    assert again.value == pytest.approx(expected.value, rel=1e-9)


@pytest.mark.parametrize("everything", [False, True])
@both
def test_bounds_are_true_in_exact_arithmetic(ties: str, everything: bool) -> None:
    """What is claimed is at most the value, in fifty digits, of the dual point of the same u; and little less."""
    X, given = data(2, n=14, d=4, everything=everything)
    problem = JointProblem(likelihood(given, ties), as_design(X, 1), X, Cardinality(2), 0.1)
    logs, pull = terms(given, ties)
    rng, n = np.random.default_rng(0), len(X)
    with mp.workdps(50):
        for size in (0.0, 0.5, 5.0, 30.0):
            w = size * rng.standard_normal(4)
            u = [mpf(x) for x in problem.likelihood.levelled(X @ w).tolist()]
            value, slope = -sum(mpf(p) * x for p, x in zip(pull, u, strict=True)), [-mpf(p) for p in pull]
            for c, a in logs:
                weighted = [mpf(x) * mp_exp(v) for x, v in zip(a, u, strict=True)]
                total = sum(weighted)
                value += mpf(c) * mp_log(total)
                slope = [old + mpf(c) * x / total for old, x in zip(slope, weighted, strict=True)]
            g = [sum(mpf(X[i, j]) * slope[i] for i in range(n)) / n for j in range(4)]
            largest = sum(sorted((x * x for x in g), reverse=True)[:2])
            exact = (value - sum(x * v for x, v in zip(slope, u, strict=True))) / n - largest / mpf("0.2")
            found, _ = problem.lower_bound(w)
            # the weights and shares of this test are rounded to float64, too
            assert found <= exact + mpf("1e-15") * (abs(exact) + abs(value))
            # with entries, hazards that differ by factors of e^30 and more cancel, and more is subtracted
            if size < 30.0 or not everything:
                assert found >= exact - mpf("1e-10") * (1 + abs(value) + abs(exact))


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize(("seed", "k", "lam"), [(3, 2, 0.02), (4, 3, 0.2)])
@both
def test_against_every_support(ties: str, seed: int, k: int, lam: float, everything: bool) -> None:
    X, given = data(seed, everything=everything)
    least, support = best(X, given, ties, k, lam)
    problem = JointProblem(likelihood(given, ties), as_design(X, 1), X, Cardinality(k), lam)
    for nodes in (1, np.inf):
        fit, bound, _ = solve_joint(problem, 1e-7, nodes, lambda: False)
        assert fit.value >= least - 1e-10
        assert bound <= least + 1e-10
        assert len(fit.support) <= k
    assert fit.value == pytest.approx(least, rel=1e-8)
    assert tuple(fit.support) == support
    assert bound >= least - 1e-6 * abs(least)


@both
def test_the_estimator(ties: str) -> None:
    X, given = data(5, n=80)
    model = SparseCox(k=2, lam=0.01, ties=ties, exact=True, standardize=False).fit(X, **given)
    least, support = best(X, given, ties, 2, 0.01)
    assert model.status_ == "optimal"
    assert model.objective_ == pytest.approx(least, rel=1e-8)
    assert tuple(model.support_) == support
    assert model.lower_bound_ <= least + 1e-10
    scaled = SparseCox(k=2, lam=0.01, ties=ties).fit(1000.0 * X + 5.0, **given)
    again = clone(scaled).fit(X, **given)
    assert np.allclose(1000.0 * scaled.coef_, again.coef_, rtol=1e-7)
    assert scaled.objective_ == pytest.approx(again.objective_, rel=1e-10)
    kept = SparseCox(k=1, lam=0.01, ties=ties, keep=[0]).fit(X, **given)
    assert set(kept.support_) <= {0, *kept.support_}
    assert len(np.setdiff1d(kept.support_, [0])) <= 1


def test_structured_targets_survival_and_scores() -> None:
    X, given = data(6, n=60, everything=False)
    time, event = given["time"], given["event"]
    y = np.array(list(zip(event, time, strict=True)), dtype=[("status", bool), ("days", float)])
    model, other = (SparseCox(k=2, lam=0.01, ties="breslow") for _ in range(2))
    model.fit(X, time, event)
    assert np.array_equal(other.fit(X, y).coef_, model.coef_)
    u, times = model.predict(X), np.array([0.25, 1.0, 3.0])
    # Breslow's estimate from its definition
    hazard = [sum(1.0 / np.exp(u[time >= t]).sum() for t in time[event] if t <= at) for at in times.tolist()]
    survival = model.predict_survival(X, times)
    assert np.allclose(survival, np.exp(-np.outer(np.exp(u), hazard)), rtol=1e-10)
    pairs = [
        (u[i] > u[j]) + 0.5 * (u[i] == u[j])
        for i in np.flatnonzero(event)
        for j in range(60)
        if time[j] > time[i] or (time[j] == time[i] and not event[j])
    ]
    assert model.score(X, y) == pytest.approx(np.mean(pairs), rel=1e-12)
    whole = SparseCox(k=2, lam=0.01).fit(X, time, np.ones(60, dtype=bool))
    survived = whole.predict_survival(X, times)
    expected = np.mean((survived - (time[:, None] > times)) ** 2, axis=0)  # nothing is censored
    assert np.allclose(whole.brier_score(X, time, np.ones(60, dtype=bool), times), expected, rtol=1e-12)
    censoring = model.brier_score(X, time, event, times)
    assert np.all((censoring > 0.0) & (censoring < 0.5))
    labels = np.where(X[:, 0] > 0, "old", "young")
    strata = SparseCox(k=1).fit(X, time, event, strata=labels)
    assert strata.predict_survival(X, [1.0], labels).shape == (60, 1)


def test_extreme_data_and_bad_input() -> None:
    X, given = data(7, n=30, d=3, everything=False)
    time, event = given["time"], given["event"]
    for factor in (1e-150, 1e60):
        model = SparseCox(k=1, lam=1e-6, standardize=False).fit(factor * X, time, event)
        assert np.isfinite(model.objective_)
        assert model.lower_bound_ <= model.objective_
    ordered = SparseCox(k=1, lam=1e-9, time_limit=5.0).fit(-time[:, None], time, np.ones(30, dtype=bool))
    assert ordered.lower_bound_ <= ordered.objective_
    assert ordered.score(-time[:, None], time, np.ones(30)) == 1.0
    for change, message in (
        ({"event": None}, "event must be given"),
        ({"event": np.full(30, 2)}, "event must be True or False"),
        ({"event": np.zeros(30)}, "event must hold an event"),
        ({"time": np.full(30, np.nan)}, "time must be finite"),
        ({"entry": time}, "entry must be before time"),
        ({"sample_weight": -np.ones(30)}, "sample_weight must not be negative"),
        ({"strata": np.ones(3)}, "strata must hold a label for each of the 30"),
    ):
        with pytest.raises(ValueError, match=message):
            SparseCox(k=1).fit(X, **({"time": time, "event": event} | change))
    with pytest.raises(ValueError, match="ties must be one of"):
        SparseCox(ties="exact").fit(X, time, event)
    with pytest.raises(ValueError, match="lam must be positive"):
        SparseCox(lam=0.0).fit(X, time, event)
    with pytest.raises(ValueError, match="k must be at least 1"):
        SparseCox(k=0).fit(X, time, event)
    with pytest.raises(ValueError, match="strata must be given where"):
        SparseCox(k=1).fit(X, time, event).predict_survival(X, [1.0], np.ones(30))


@both
def test_coefficients_are_exact_and_not_the_objective_alone(ties: str) -> None:
    """The slope of the objective on the support, from the definitions, is that of rounding: a fit once ended at 1e-9."""
    X, given = data(1, n=120)
    model = SparseCox(k=3, lam=1e-3, standardize=False, ties=ties).fit(X, **given)
    _, slope = plain(given, ties, X @ model.coef_)
    left = X.T @ slope + 1e-3 * model.coef_
    assert float(np.abs(left[model.support_]).max()) <= 1e-14


@pytest.mark.parametrize(
    "seed", [61000008, 61000034, pytest.param(61001346, marks=pytest.mark.slow), 61002234, 64001242]
)
@pytest.mark.filterwarnings("error")
def test_objectives_where_sums_over_risk_sets_cancel(seed: int) -> None:
    """Entries, and hazards that differ by e^30 and more: objectives, bounds and curvatures were wrong (`fuzz_joint.py`)."""
    _, counts, findings = check(seed)
    assert not findings
    assert counts["found"]

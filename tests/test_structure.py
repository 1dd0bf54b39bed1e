"""Groups, signs and features to keep: every claim against the enumeration of all supports."""

from functools import cache
from itertools import chain, combinations

import numpy as np
import pandas as pd
import pytest

from cases import crossed
from diht import (
    Problem,
    SparseClassifier,
    SparseClassifierCV,
    SparseRegressor,
    SparseRegressorCV,
    certify,
    solve,
    sparse_path,
)
from diht.bounds.duality import dual, lower_bound, primal
from diht.constraints.base import Cardinality, Node
from diht.constraints.groups import Structured, constrained
from diht.losses import Hinge, Huber, Logistic, Loss, SmoothedHinge, Squared, SquaredHinge
from diht.refit import refit
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT, BranchAndBound, Relaxed
from diht.solvers.sweep import WiderBound, solve_path
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
        fit = refit(problem, np.array(support, dtype=np.int64))
        w, b, u = fit.w, fit.b, fit.u
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


SETTINGS = ((1, 0.3, True, False), (2, 0.01, False, True), (3, 0.003, True, True))  # k, lam, intercept, weights
CASES = [
    (kind, SETTINGS[(i + j) % 3][0], loss, *SETTINGS[(i + j) % 3][1:])
    for i, kind in enumerate(KINDS)
    for j, loss in enumerate(LOSSES)
]
# Every kind and every loss in half of them.
HALF = [
    case if (i + i // len(LOSSES)) % 2 == 0 else pytest.param(case, marks=pytest.mark.slow)
    for i, case in enumerate(CASES)
]


@pytest.mark.parametrize("case", HALF, ids=str)
def test_bounds_hold_and_the_exact_solver_finds_the_optimum(case: tuple) -> None:
    best, without, within = optima(*case)
    problem = structured(*case)
    for solver in ("auto", BranchAndBound()):
        result = solve(problem, solver, tol=1e-9)
        assert problem.constraint.allows(result.w)
        assert result.objective >= best * (1 - 1e-9)
        assert result.lower_bound <= best * (1 + 1e-9)
        certificate = result.certificate
        assert np.all(without[certificate.required] > best)
        assert np.all(within[certificate.excluded] > best)
        assert np.all(certificate.screening.without <= without * (1 + 1e-9) + 1e-12)
        assert np.all(certificate.screening.within <= within * (1 + 1e-9) + 1e-12)
    assert result.objective == pytest.approx(best, rel=1e-7)
    assert result.lower_bound == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("case", HALF, ids=str)
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
        result = solve(problem, solver, max_iter=200 if loss.mu > 0 else 20)
        assert problem.constraint.allows(result.w)
        assert result.lower_bound <= best * (1 + 1e-9)
        assert result.objective >= best * (1 - 1e-9)


def test_what_screening_requires_is_no_reason_for_more_features_than_are_allowed() -> None:
    """A twin makes starts without a required feature likely; the search then begins with one feature too many."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    X[:, 7] = X[:, 6] + 0.1 * rng.normal(size=60)
    y = 2 * X[:, 0] + X[:, 6] + rng.normal(size=60)
    constraint = constrained(2, 8, keep=[2], sign=[1, 0, 0, 0, 0, 0, 0, 0])
    for seed in (0, 4, 9, 11):
        drawn = np.bincount(np.random.default_rng(seed).choice(60, 60), minlength=60)
        result = solve(Problem(X, y, "squared", constraint, 0.1, drawn, True))
        assert constraint.allows(result.w)
        assert all(constraint.allows(model.w) for model in result.pool)


# Paths

KS, LAMS = (1, 2, 3), (0.003, 0.3)


@pytest.mark.parametrize(("kind", "loss"), crossed(list(KINDS), LOSSES))
def test_every_point_of_a_path_keeps_to_the_constraint_and_to_its_bound(kind: str, loss: Loss) -> None:
    results = solve_path(structured(kind, 3, loss, 1.0, True, True), KS, LAMS)
    for (k, lam), result in results.items():
        case = kind, k, loss, lam, True, True
        best, without, within = optima(*case)
        problem, certificate = structured(*case), result.certificate
        assert problem.constraint.allows(result.w)
        assert result.objective >= best * (1 - 1e-9)
        assert result.lower_bound <= best * (1 + 1e-9)
        assert result.lower_bound <= certificate.bound.check(problem)
        assert certificate.bound.check(problem) == pytest.approx(result.lower_bound, rel=1e-9, abs=1e-12)
        assert np.all(certificate.screening.without <= without * (1 + 1e-9) + 1e-12)
        assert np.all(certificate.screening.within <= within * (1 + 1e-9) + 1e-12)
    for lam in LAMS:
        assert np.all(np.diff([results[k, lam].objective for k in KS]) <= 0.0)
        assert np.all(np.diff([results[k, lam].lower_bound for k in KS]) <= 0.0)
    found = [
        result.objective <= optima(kind, k, loss, lam, True, True)[0] * (1 + 1e-6)
        for (k, lam), result in results.items()
    ]
    assert np.mean(found) >= 5 / 6


@pytest.mark.parametrize(("loss", "solver"), crossed(["squared", "logistic"], ["auto", "iht"]))
def test_a_path_of_many_features_is_monotone(loss: str, solver: str) -> None:
    """Large enough for working sets; every fourth column is a copy of another, with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 300))
    X[:, 3::4] = X[:, 2::4] + 0.1 * rng.normal(size=(80, 75))
    y = X[:, :12].sum(axis=1) + rng.normal(size=80)
    y = y if loss == "squared" else np.where(y > 0, 1, -1)
    groups, ks = np.arange(300) // 2, [1, 4, 5]
    for arguments in ({"groups": groups, "keep": [17]}, {"sign": 1, "keep": [30, 31]}, {"groups": groups, "sign": 1}):
        path = sparse_path(X, y, ks=ks, lams=0.3, loss=loss, solver=solver, standardize=False, **arguments)
        for name in ("objective", "lower_bound"):
            assert np.all(np.diff([getattr(point, name) for point in path]) <= 0.0)
        for point in path:
            assert constrained(point.k, 300, **arguments).allows(point.coef)
        fit = solve(Problem(X, y, loss, constrained(4, 300, **arguments), 0.3, None, True))
        assert path.point(4).lower_bound <= fit.objective
        assert fit.lower_bound <= path.point(4).objective
        assert path.point(4).objective <= fit.objective * (1 + 1e-3) or solver == "iht"


def test_a_bound_of_more_groups_holds_for_fewer_only() -> None:
    case = Squared(), 0.1, True, True
    bound = WiderBound.of(structured("all", 3, *case), solve(structured("all", 3, *case)).certificate.bound)
    for k in (1, 2, 3):
        assert bound.check(structured("all", k, *case)) == pytest.approx(bound.value, rel=1e-9)
        assert bound.value <= optima("all", k, *case)[0]
    two_groups = plain(*case).replaced(constraint=constrained(1, D, groups=[0, 0, 0, 1, 1, 1, 1]))
    assert not isinstance(bound.renewed(two_groups), WiderBound)  # three groups are more than there are


# The constraint itself


@pytest.mark.parametrize("kind", KINDS)
def test_the_value_is_that_of_the_nearest_model(kind: str) -> None:
    rng = np.random.default_rng(0)
    constraint = constrained(2, D, **KINDS[kind])
    for _ in range(20):
        v, w = rng.normal(size=D), rng.normal(size=D)
        nearest, support = constraint.threshold(v)
        assert constraint.allows(nearest)
        assert constraint.value(v) == pytest.approx(2 * nearest @ v - nearest @ nearest)
        assert constraint.value(v) == pytest.approx(constraint.times(-1.0).value(-v))
        other, _ = constraint.threshold(w)
        assert 2 * other @ v - other @ other <= constraint.value(v) + 1e-12
        again = nearest.copy()
        assert np.array_equal(constraint.rethreshold(w, again, support), constraint.select(w))
        assert np.array_equal(again, other)
        assert constraint.value(v + w) ** 0.5 <= constraint.value(v) ** 0.5 + constraint.value(w) ** 0.5 + 1e-12
        assert constraint.value(v) <= constraint.unlimited.value(v) + 1e-12
        assert np.count_nonzero(nearest) <= constraint.size


@pytest.mark.parametrize("kind", KINDS)
def test_the_relaxation_and_its_proximal_map(kind: str) -> None:
    """Omega is the conjugate of nu^2 / 2: Fenchel's inequality, with equality where the proximal map leads."""
    rng = np.random.default_rng(1)
    constraint = constrained(2, D, **KINDS[kind])
    for r in (0.1, 1.0, 10.0):
        for _ in range(20):
            q, v = rng.normal(size=D), rng.normal(size=D)
            p = constraint.prox(q, r)
            slope = (q - p) / r  # a subgradient of Omega at p
            assert constraint.relaxation(p) + constraint.value(slope) / 2 == pytest.approx(
                p @ slope, rel=1e-9, abs=1e-12
            )
            assert constraint.relaxation(p) + constraint.value(v) / 2 >= p @ v - 1e-12
            w, _ = constraint.threshold(v)
            assert constraint.relaxation(w) <= w @ w / 2 + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_forcing_is_the_fall_of_the_value(kind: str) -> None:
    constraint = constrained(2, D, **KINDS[kind])
    v = np.random.default_rng(2).normal(size=D)
    drop, add = constraint.forcing(v)
    nothing = np.empty(0, dtype=np.int64)
    _, inside, _ = constraint.free(D)
    for j in range(D):
        with_it = constraint.restricted(np.array([j]), nothing)
        assert constraint.value(v) - with_it.value(v) == pytest.approx(add[j], abs=1e-12)
        if j in inside:
            assert drop[j] == np.inf
        else:
            assert constraint.value(v) - constraint.restricted(nothing, np.array([j])).value(v) == pytest.approx(
                drop[j], abs=1e-12
            )


def test_a_refit_keeps_to_the_signs() -> None:
    for loss in LOSSES:
        for sign in (np.ones(D), SIGN, -SIGN):
            problem = plain(loss, 0.01, True, True).replaced(constraint=constrained(D, D, sign=sign))
            fit = refit(problem, np.arange(D))
            w, b, u = fit.w, fit.b, fit.u
            best = min(value for x, value in fits(loss, 0.01, True, True).values() if not np.any(sign * x < 0))
            assert not np.any(sign * w < 0)
            assert primal(problem, w, b) == pytest.approx(best, rel=1e-9)
            np.testing.assert_allclose(u, problem.design.matvec(w) + b, rtol=1e-9, atol=1e-12)


def test_a_bound_is_that_of_its_dual_point() -> None:
    for kind in KINDS:
        problem = structured(kind, 2, Squared(), 0.1, True, True)
        alpha = solve(problem).alpha
        assert lower_bound(problem, alpha).value == pytest.approx(dual(problem, alpha), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_constraint_with_another_k(kind: str) -> None:
    for k in (1, 3):
        constraint, other = constrained(2, D, **KINDS[kind]).allowing(k), constrained(k, D, **KINDS[kind])
        assert (constraint.size, constraint.free(D)[0]) == (other.size, k)
        for v in np.random.default_rng(0).normal(size=(10, D)):
            assert np.array_equal(constraint.select(v), other.select(v))
    assert other.choices(D) == {"keep": 5, "groups": 5, "all": 4}.get(kind, D)


def test_what_is_asked_for() -> None:
    assert constrained(3, D) == Cardinality(3)
    assert isinstance(constrained(3, D, keep=[1]), Node)
    assert constrained(2, D, groups=GROUPS).size == 4
    assert isinstance(constrained(2, D, sign=0), Cardinality)
    assert isinstance(constrained(2, D, groups=list("abacdde")), Structured)


@pytest.mark.parametrize(("arguments", "message"), [
    ({"keep": [7]}, "keep must hold indices from 0 to 6, got 7"),
    ({"keep": [True]}, "keep must have length 7 to match X if it is a mask, got length 1"),
    ({"keep": [0.5]}, "keep must be a list of indices or a mask, got float64"),
    ({"groups": [1, 2]}, r"groups must hold a label for each of the 7 features, got shape \(2,\)"),
    ({"groups": [np.nan] * 7}, "groups must hold no NaN or infinite label"),
    ({"sign": 2}, "sign must hold -1, 0 and 1 only, got 2"),
    ({"sign": [1, 1]}, r"sign must be one number, or one for each of the 7 features, got shape \(2,\)"),
    ({"sign": "up"}, "sign must hold -1, 0 and 1 only"),
    ({"groups": GROUPS, "k": 6}, "k must be from 1 to the number of groups, got k=6 with 5 groups"),
    ({"keep": [1], "k": 7}, "k must be from 1 to the number of features besides those to keep, got k=7 with 6 features"),
    ({"k": 0}, "k must be from 1 to the number of features, got k=0 with 7 features"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        constrained(**({"k": 2, "n_features": D} | arguments))


# The estimators


def test_estimators_take_names() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 6)), columns=list("abcdef"))
    y = X["a"] - 2 * X["b"] + rng.normal(size=80)
    kept = SparseRegressor(k=1, lam=0.1, keep=["e", "f"]).fit(X, y)
    assert kept.get_feature_names_out().tolist() == ["b", "e", "f"]
    assert {4, 5} <= set(kept.certificate_.required.tolist())
    assert SparseRegressor(k=1, lam=0.1, sign={"b": 1}).fit(X, y).get_feature_names_out().tolist() == ["a"]
    grouped = SparseClassifier(k=1, lam=0.1, groups=list("xyxyzz")).fit(X, y > 0)
    assert grouped.get_feature_names_out().tolist() == ["b", "d"]
    assert np.all(SparseRegressor(k=6, lam=0.1, sign=1).fit(X, y).coef_ >= 0)
    with pytest.warns(UserWarning, match="k=6 is more than the 3 groups: all of them may be used"):
        SparseRegressor(k=6, lam=0.1, groups=list("xyxyzz")).fit(X, y)
    with pytest.raises(ValueError, match="keep holds 'q', which is not among the features"):
        SparseRegressor(keep=["q"], k=2).fit(X, y)
    with pytest.raises(ValueError, match="keep holds names, but X has none"):
        SparseRegressor(keep=["a"], k=2).fit(X.to_numpy(), y)


def test_paths_and_cross_validation_take_names() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 6)), columns=list("abcdef"))
    y = X["a"] - 2 * X["b"] + rng.normal(size=80)
    arguments = {"keep": ["e"], "groups": list("xyxyzz"), "sign": {"b": -1, "d": 1}}
    path = sparse_path(X, y, lams=0.1, **arguments)
    assert path.ks == [1, 2]
    assert path.point(1).support.tolist() == [1, 4, 5]  # d would need the other sign
    assert path.plot().axes[2].get_xlabel() == "k, the number of groups allowed"
    # Of two groups besides z, one or two: the binomials are 2 and 1.
    assert path.criterion("ebic") - path.criterion("bic") == pytest.approx([2 * np.log(2), 0.0])
    for make, z in ((SparseRegressorCV, y), (SparseClassifierCV, y > 0)):
        model = make(ks=[1, 2], lams=0.1, cv=3, **arguments).fit(X, z)
        coef = np.ravel(model.coef_)
        assert {4, 5} <= set(model.support_.tolist())
        assert coef[1] <= 0.0 <= coef[3]
        plain_one = (SparseRegressor if make is SparseRegressorCV else SparseClassifier)(
            k=model.best_k_, lam=0.1, **arguments
        )
        assert np.ravel(plain_one.fit(X, z).coef_) == pytest.approx(coef, rel=1e-4, abs=1e-6)
        assert model.path_.point(1).support.tolist() == np.flatnonzero(model.path_.point(1).coef).tolist()
    with pytest.warns(UserWarning, match="ks up to 3 are more than the 2 groups besides those to keep"):
        SparseRegressorCV(ks=[1, 3], lams=0.1, cv=3, **arguments).fit(X, y)
    with pytest.raises(ValueError, match=r"ks must be from 1 to the 2 groups besides those to keep, got \[3\]"):
        sparse_path(X, y, ks=[3], **arguments)
    with pytest.raises(ValueError, match="keep must leave something to choose from"):
        SparseRegressorCV(keep=list(range(6))).fit(X, y)
    with pytest.raises(ValueError, match="keep holds 'q', which is not among the features"):
        sparse_path(X, y, keep=["q"])
    with pytest.raises(ValueError, match="sign must hold -1, 0 and 1 only"):
        SparseRegressorCV(sign=7).fit(X, y)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "at most 2 features"),
        ({"keep": [0]}, "at most 2 features besides 1 that are in"),
        ({"groups": [0, 0, 1, 1, 2, 2]}, "at most 2 groups of features"),
        ({"sign": 1}, "at most 2 features, with the signs given"),
    ],
)
def test_messages_say_in_words_what_is_asked(settings, words):
    constraint = constrained(2, 6, **settings)
    X = np.random.default_rng(0).standard_normal((20, 6))
    with pytest.raises(ValueError, match=f"^w must have {words}, got 6 nonzero coefficients$"):
        certify(Problem(X, X[:, 0], "squared", constraint, 0.1), -np.ones(6))

"""At most so many features of each group, and features that have costs: against enumeration."""

from itertools import combinations

import numpy as np
import pytest

from diht import Problem, SparseClassifier, SparseRegressor, certify, per_group, solve, within_budget
from diht.constraints.base import Constraint
from diht.constraints.groups import Structured, constrained
from diht.losses import Hinge, Logistic, Loss, Poisson, Squared
from diht.refit import refit

D = 8
GROUPS = np.array([0, 1, 0, 1, 2, 2, 0, 1])
COSTS = np.array([1.0, 2.5, 0.7, 3.0, 1.9, 0.4, 2.2, 1.0])
NOTHING = np.empty(0, dtype=np.int64)
CONSTRAINTS = [per_group(4, GROUPS, 2), per_group(3, GROUPS, [1, 2, 0]), within_budget(4.0, COSTS)]
both = pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)


def supports(constraint: Constraint, d: int = D) -> list[np.ndarray]:
    """All that are allowed, with the features inside."""
    every = (np.isin(np.arange(d), chosen) for m in range(d + 1) for chosen in combinations(range(d), m))
    return [np.flatnonzero(mask) for mask in every if constraint.allows(mask.astype(float))]


def largest_supports(constraint: Constraint) -> list[np.ndarray]:
    """Those that no other one contains: the best model on any support is no better than that on one that contains it."""
    every = [set(support.tolist()) for support in supports(constraint)]
    return [
        np.array(sorted(support), dtype=np.int64) for support in every if not any(support < other for other in every)
    ]


def nodes(constraint: Constraint, rng: np.random.Generator) -> list[Constraint]:
    """The constraint, and some nodes of a search tree that are feasible."""
    found = [constraint]
    for _ in range(12):
        drawn = rng.permutation(D)
        node = constraint.restricted(drawn[: rng.integers(3)], drawn[5 : 5 + rng.integers(3)])
        if node.allows(np.zeros(D)):
            found.append(node)
    return found


def best_square(constraint: Constraint, v: np.ndarray) -> float:
    """The largest sum of squares on an allowed support, with the features inside."""
    inside = constraint.free(len(v))[1]
    return max(float(np.square(v[np.union1d(s, inside).astype(int)]).sum()) for s in supports(constraint, len(v)))


@both
def test_values_are_those_of_enumeration_or_above(constraint: Constraint) -> None:
    rng = np.random.default_rng(0)
    exact = "group" in str(constraint)
    for node in nodes(constraint, rng):
        for _ in range(5):
            v = np.round(rng.standard_normal(D), 1)
            chosen, best = node.select(v), best_square(node, v)
            mask = np.isin(np.arange(D), chosen).astype(float)
            assert node.allows(mask)
            assert not len(node.joining(chosen, D))
            assert node.value(v) >= best * (1 - 1e-14)
            if exact:
                assert float(np.square(v[chosen]).sum()) == pytest.approx(best, abs=1e-12)
                assert node.value(v) == pytest.approx(best, abs=1e-12)
            assert len(chosen) <= node.size == max(map(len, supports(node)))


@both
def test_what_a_feature_is_worth_is_never_too_much(constraint: Constraint) -> None:
    """The value without a feature, and with it, is at least the best sum of squares of the supports that are left."""
    rng = np.random.default_rng(1)
    for node in nodes(constraint, rng):
        v = rng.standard_normal(D)
        drop, add = node.forcing(v)
        for j in range(D):
            without, within = node.restricted(NOTHING, np.array([j])), node.restricted(np.array([j]), NOTHING)
            for falls, other in ((drop[j], without), (add[j], within)):
                if not other.allows(np.zeros(D)) or j in node.free(D)[1]:
                    continue
                assert node.value(v) - falls >= best_square(other, v) * (1 - 1e-12)
                if "group" in str(node):
                    assert node.value(v) - falls == pytest.approx(other.value(v), abs=1e-12)


def test_the_relaxation_of_a_budget_is_half_the_dual_of_the_value() -> None:
    """Omega(w) >= w.v - nu(v)^2 / 2 for all v, with equality for some; and its proximal map is optimal."""
    rng = np.random.default_rng(2)
    constraint = within_budget(4.0, COSTS)
    for _ in range(20):
        w = rng.standard_normal(D) * (rng.random(D) < 0.7)
        z = constraint.places(w)
        assert np.all((z >= 0.0) & (z <= 1.0))
        assert COSTS @ z <= 4.0 * (1 + 1e-9)
        omega = constraint.relaxation(w)
        best = np.where(z > 0.0, w / np.where(z > 0.0, z, 1.0), 0.0)
        assert omega == pytest.approx(float(w @ best) - 0.5 * constraint.value(best), rel=1e-9)
        for v in rng.standard_normal((20, D)):
            assert omega >= float(w @ v) - 0.5 * constraint.value(v) - 1e-9
        q, r = rng.standard_normal(D), 0.3
        p = constraint.prox(q, r)
        least = r * constraint.relaxation(p) + 0.5 * float((p - q) @ (p - q))
        for step in 0.01 * rng.standard_normal((20, D)):
            assert r * constraint.relaxation(p + step) + 0.5 * float((p + step - q) @ (p + step - q)) >= least - 1e-12


def data(loss: Loss, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, D)) @ (np.eye(D) + 0.5 * np.eye(D, k=1))
    u = X[:, [0, 2, 6]] @ [1.0, 1.0, 1.0] + 0.5 * X[:, 4] - 0.5 * X[:, 7] + 0.5 * rng.standard_normal(40)
    if loss.nonnegative_targets:
        return X, np.round(np.exp(np.clip(u, -2.0, 2.0)))
    return X, np.where(u > 0.0, 1.0, -1.0) if loss.task == "classification" else u


@pytest.mark.parametrize("limits", [None, 1], ids=["free", "signs"])
@pytest.mark.parametrize("loss", [Squared(), Logistic(), Hinge(), Poisson()], ids=str)
@both
def test_solves_keep_to_it_find_the_best_and_bound_it(constraint: Constraint, loss: Loss, limits: int | None) -> None:
    X, y = data(loss, 3)
    if limits is not None:
        free = constrained(D, D, sign=limits)
        constraint = Structured(constraint, np.arange(D), free.limits)
    problem = Problem(X, y, loss, constraint, 0.1, None, True)
    best = min(refit(problem, support).objective for support in largest_supports(constraint.unlimited))
    for solver in ("auto", "branch", "relaxed", "diht"):
        result = solve(problem, solver, max_iter=None if solver in ("auto", "branch") else 40)
        assert constraint.allows(result.w)
        assert result.lower_bound <= best * (1 + 1e-12)
        assert np.all(result.trace.column("lower_bound") <= best * (1 + 1e-12))
        if solver == "branch":
            assert result.objective == pytest.approx(best, rel=1e-6)
            assert result.lower_bound >= best * (1 - 1e-3)
    assert certify(problem, result.w, result.intercept).lower_bound <= best


@both
def test_estimators_and_classes(constraint: Constraint) -> None:
    X, y = data(Squared(), 5)
    model = SparseRegressor(k=constraint, lam=0.1, sign={0: 1}, standardize=False).fit(X, y)
    assert constraint.allows(model.coef_)
    assert model.coef_[0] >= 0.0
    limits = constrained(D, D, sign=np.eye(D, dtype=int)[0]).limits
    problem = Problem(X, y, Squared(), Structured(constraint, np.arange(D), limits), 0.1, None, True)
    best = min(refit(problem, support).objective for support in largest_supports(constraint))
    assert model.lower_bound_ <= best * (1 + 1e-12)
    assert model.objective_ == pytest.approx(best, rel=1e-3)
    classes = np.digitize(y, np.quantile(y, [0.3, 0.7]))
    shared = SparseClassifier(k=constraint, lam=0.1).fit(X, classes)
    assert constraint.allows(np.abs(shared.coef_).sum(axis=0))
    with pytest.raises(ValueError, match=r"^keep and groups cannot be used where k is a constraint"):
        SparseRegressor(k=constraint, keep=[0]).fit(X, y)
    with pytest.raises(ValueError, match="can be pickled, but not written to JSON or reported"):
        model.to_json("nowhere.json")


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"^most must be a whole number, or one for each of the 3 groups"):
        per_group(3, GROUPS, 1.5)
    with pytest.raises(ValueError, match=r"^k must be at least 1"):
        per_group(0, GROUPS)
    for costs in ([1.0, 0.0], [1.0, np.nan], [[1.0]]):
        with pytest.raises(ValueError, match=r"^costs must be positive numbers"):
            within_budget(1.0, costs)
    with pytest.raises(ValueError, match=r"^budget must be positive and finite, got -1"):
        within_budget(-1, COSTS)
    X, y = data(Squared(), 0)
    with pytest.raises(ValueError, match=r"^budget must pay for one feature"):
        SparseRegressor(k=within_budget(0.1, COSTS)).fit(X, y)
    with pytest.raises(ValueError, match=r"^costs must hold one for each of the 8 features, got 2"):
        SparseRegressor(k=within_budget(3.0, [1.0, 2.0])).fit(X, y)
    with pytest.raises(ValueError, match=r"^groups must hold a label for each of the 8 features, got 3"):
        SparseRegressor(k=per_group(2, [0, 1, 1])).fit(X, y)

"""At most so many features of each group, and features that have costs: against enumeration."""

import json
from itertools import product
from pathlib import Path as FilePath

import numpy as np
import pandas as pd
import pytest
from skops.io import dumps, loads

from cases import crossed
from diht import (
    Problem,
    SparseClassifier,
    SparseClassifierCV,
    SparseRegressor,
    SparseRegressorCV,
    certify,
    heredity,
    load_model,
    per_group,
    solve,
    sparse_path,
    within_budget,
)
from diht.cli import main
from diht.constraints.base import Constraint
from diht.constraints.groups import Structured, constrained
from diht.constraints.heredity import Heredity
from diht.estimators.shipping import SKOPS_TRUSTED
from diht.losses import Hinge, Huber, Logistic, Loss, Poisson, SmoothedHinge, Squared, SquaredHinge
from diht.refit import refit

D = 8
GROUPS = np.array([0, 1, 0, 1, 2, 2, 0, 1])
COSTS = np.array([1.0, 2.5, 0.7, 3.0, 1.9, 0.4, 2.2, 1.0])
NOTHING = np.empty(0, dtype=np.int64)
PARENTS = [[], [], [], [], [0, 1], [0, 2], [1, 3], [0, 3]]
CONSTRAINTS = [
    per_group(4, GROUPS, 2),
    per_group(3, GROUPS, [1, 2, 0]),
    within_budget(4.0, COSTS),
    heredity(4, PARENTS),
    heredity(3, PARENTS, "weak"),
]
NAMED = {str(constraint): constraint for constraint in CONSTRAINTS}
both = pytest.mark.parametrize("constraint", CONSTRAINTS, ids=str)


EVERY = np.array(list(product([0.0, 1.0], repeat=D)))


def supports(constraint: Constraint) -> list[np.ndarray]:
    """All that are allowed, with the features inside."""
    return [np.flatnonzero(mask) for mask in EVERY if constraint.allows(mask)]


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


def best_square(constraint: Constraint, allowed: list[np.ndarray], v: np.ndarray) -> float:
    """The largest sum of squares on an allowed support, with the features inside."""
    inside = constraint.free(D)[1]
    return max(float(np.square(v[np.union1d(s, inside).astype(int)]).sum()) for s in allowed)


@both
def test_values_are_those_of_enumeration_or_above(constraint: Constraint) -> None:
    rng = np.random.default_rng(0)
    exact = "group" in str(constraint)
    for node in nodes(constraint, rng):
        allowed = supports(node)
        for _ in range(5):
            v = np.round(rng.standard_normal(D), 1)
            chosen, best = node.select(v), best_square(node, allowed, v)
            mask = np.isin(np.arange(D), chosen).astype(float)
            assert node.allows(mask)
            assert not len(node.joining(chosen, D))
            assert node.value(v) >= best * (1 - 1e-14)
            if exact:
                assert float(np.square(v[chosen]).sum()) == pytest.approx(best, abs=1e-12)
                assert node.value(v) == pytest.approx(best, abs=1e-12)
            most = max(map(len, allowed))
            assert len(chosen) <= most <= node.size
            assert most == node.size or (isinstance(node, Heredity) and len(node.outside))


@both
def test_what_a_feature_is_worth_is_never_too_much(constraint: Constraint) -> None:
    """The value without a feature, and with it, is at least the best sum of squares of the supports that are left."""
    rng = np.random.default_rng(1)
    for node in nodes(constraint, rng):
        v = rng.standard_normal(D)
        drop, add = node.forcing(v)
        for j in np.setdiff1d(np.arange(D), np.union1d(*node.free(D)[1:])).tolist():
            without, within = node.restricted(NOTHING, np.array([j])), node.restricted(np.array([j]), NOTHING)
            for falls, other in ((drop[j], without), (add[j], within)):
                if not other.allows(np.zeros(D)):
                    continue
                assert node.value(v) - falls >= best_square(other, supports(other), v) * (1 - 1e-12)
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


@pytest.mark.parametrize(
    ("constraint", "loss", "limits"),
    crossed(NAMED, (Squared(), Logistic(), Hinge(), Poisson()), {"free": None, "signs": 1}),
)
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


@pytest.mark.parametrize(
    ("constraint", "loss"), crossed(NAMED, (Logistic(), SmoothedHinge(), Huber(delta=0.5), SquaredHinge()))
)
def test_fewer_samples_than_features(constraint: Constraint, loss: Loss) -> None:
    """Where models of plain cardinality are grown in plain numpy, which knows no other constraint."""
    X, y = data(loss, 11)
    problem = Problem(X[:6], y[:6], loss, constraint, 0.01, None, True)
    best = min(refit(problem, support).objective for support in largest_supports(constraint))
    result = solve(problem)
    assert constraint.allows(result.w)
    assert result.lower_bound <= best * (1 + 1e-12)
    assert result.objective == pytest.approx(best, rel=1e-3)


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


LEVELS = {"k": [1, 2, 3], "budget": [0.4, 1.5, 2.9, 4.0]}


@pytest.mark.parametrize(("constraint", "loss"), crossed(NAMED, ("squared", "logistic")))
def test_paths_bound_every_point(constraint: Constraint, loss: str) -> None:
    X, y = data(Squared(), 6)
    y = y if loss == "squared" else np.where(y > 0.0, 1.0, -1.0)
    path = sparse_path(X, y, ks=LEVELS[constraint.level_name], lams=[0.01, 0.1], loss=loss, constraint=constraint)
    assert len(path) == 2 * len(LEVELS[constraint.level_name])
    for point in path:
        own = constraint.allowing(point.k)
        problem = Problem(
            X, y, Squared() if loss == "squared" else Logistic(), own, point.lam, None, True, scale=X.std(axis=0)
        )
        best = min(refit(problem, support).objective for support in largest_supports(own))
        assert own.allows(point.coef)
        assert point.lower_bound <= best * (1 + 1e-12)
        assert best * (1 - 1e-12) <= point.objective <= best * 1.02
    objectives = [[point.objective for point in path.at(lam)] for lam in path.lams]
    assert all(np.all(np.diff(row) <= 0.0) for row in objectives)
    assert sparse_path(X, y, loss=loss, constraint=constraint).ks[-1] == constraint.level(D)
    assert path.counted == ("features" if constraint.level_name == "k" else "budget")


@both
def test_files_reports_and_cross_validation(constraint: Constraint, tmp_path: FilePath) -> None:
    X, y = data(Squared(), 7)
    file, page = tmp_path / "model.json", tmp_path / "page.html"
    levels = LEVELS[constraint.level_name]
    chosen = SparseRegressorCV(levels, 0.1, cv=3, constraint=constraint, sign={0: 1}).fit(X, y)
    assert chosen.best_k_ in levels
    assert constraint.allowing(chosen.best_k_).allows(chosen.coef_)
    by_hand = SparseRegressor(k=constraint.allowing(chosen.best_k_), lam=0.1, sign={0: 1}).fit(X, y)
    assert by_hand.objective_ == pytest.approx(chosen.objective_, rel=1e-6)
    for model in (chosen, by_hand, SparseClassifierCV(None, 0.1, criterion="bic", constraint=constraint).fit(X, y > 0)):
        model.to_json(file)
        read = load_model(file)
        np.testing.assert_allclose(read.predict(X), model.predict(X), rtol=1e-12)
        again = read.estimator_.k
        assert str(again) == str(model._own_constraint)
        assert again.stated() == constraint.stated()
        reduced = read.reduced()
        assert (
            reduced.saved_.structure.refusal(reduced.saved_.support.tolist(), read.saved_.k, len(model.support_))
            is None
        )
        for each in (model, read, reduced):
            each.report(page)
            assert str(again) in page.read_text()
        trusted = loads(dumps(model), trusted=SKOPS_TRUSTED)
        np.testing.assert_array_equal(trusted.predict(X), model.predict(X))
    chosen.path_.report(page, X, y)
    assert "budget" in page.read_text() or constraint.level_name == "k"


def test_a_file_that_breaks_its_own_rule_is_refused(tmp_path: FilePath) -> None:
    X, y = data(Squared(), 7)
    for constraint, key, other, words in (
        (CONSTRAINTS[0], "most", [0, 0, 0], "not allowed, where they are at most 4 features and 0 of each group"),
        (CONSTRAINTS[2], "costs", [9.0] * D, "not allowed, where they are features that cost at most 4"),
        (CONSTRAINTS[2], "costs", [-1.0] * D, "structure.rule.costs: expected 8 positive numbers"),
        (CONSTRAINTS[0], "kind", "nothing", "structure.rule.kind"),
    ):
        SparseRegressor(k=constraint, lam=0.1).fit(X, y).to_json(tmp_path / "model.json")
        content = json.loads((tmp_path / "model.json").read_text())
        content["structure"]["rule"][key] = other
        del content["checksum"]
        (tmp_path / "model.json").write_text(json.dumps(content))
        with pytest.raises(ValueError, match=words):
            load_model(tmp_path / "model.json")


def test_the_command_certifies_such_a_model(tmp_path: FilePath, capsys: pytest.CaptureFixture[str]) -> None:
    X, y = data(Squared(), 8)
    names = [f"c{j}" for j in range(D)]
    pd.DataFrame(X[:, ::-1], columns=names[::-1]).assign(y=y).to_csv(tmp_path / "data.csv", index=False)
    SparseRegressor(k=CONSTRAINTS[2], lam=0.1).fit(pd.DataFrame(X, columns=names), y).to_json(tmp_path / "model.json")
    command = ["certify", str(tmp_path / "model.json"), str(tmp_path / "data.csv"), "--target", "y"]
    assert main(command) == 0
    assert "features that cost at most 4" in capsys.readouterr().out
    assert main([*command, "--k", "1"]) == 2
    assert "argument --k: the model" in capsys.readouterr().err


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
    with pytest.raises(ValueError, match=r"^keep and groups cannot be used where constraint is a constraint"):
        sparse_path(X, y, constraint=CONSTRAINTS[0], keep=[0])
    with pytest.raises(ValueError, match=r"^ks must be budgets, positive and finite"):
        sparse_path(X, y, constraint=CONSTRAINTS[2], ks=[-1.0])
    with pytest.raises(ValueError, match=r"^budget must pay for one feature"):
        SparseRegressorCV(constraint=CONSTRAINTS[2], ks=[0.1, 2.0]).fit(X, y)

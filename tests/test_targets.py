"""Several targets that share features: regressions, and classes against the rest, against enumeration of all supports."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.datasets import load_linnerud, load_wine
from sklearn.exceptions import DataConversionWarning

from cases import crossed
from diht import (
    Problem,
    SparseClassifier,
    SparseRegressor,
    SparseRegressorCV,
    certify,
    debiased,
    load_model,
    solve,
    sparse_path,
)
from diht.bounds.duality import dual_from_primal, lower_bound, primal
from diht.constraints.groups import constrained
from diht.design import DenseDesign
from diht.losses import LOSSES, Huber, Loss, Squared
from diht.samples import BlockSamples, MemorySamples, TargetSamples
from diht.solvers import DIHT

SMOOTH = ["squared", "huber", "poisson", "logistic", "squared_hinge"]


def value_and_slope(loss: str, u: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The losses and their derivatives, written once more."""
    if loss == "squared":
        return (u - y) ** 2, 2.0 * (u - y)
    if loss == "huber":
        r = u - y
        return np.where(np.abs(r) <= 1.0, 0.5 * r**2, np.abs(r) - 0.5), np.clip(r, -1.0, 1.0)
    if loss == "poisson":
        return np.exp(u) - y * u - y + np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0)), 0.0), np.exp(u) - y
    if loss == "logistic":
        return np.logaddexp(0.0, -y * u), -y / (1.0 + np.exp(y * u))
    return np.maximum(0.0, 1.0 - y * u) ** 2, -2.0 * y * np.maximum(0.0, 1.0 - y * u)


@dataclass(frozen=True, eq=False)
class Case:
    """A problem as plain arrays."""

    loss: str
    X: np.ndarray
    Y: np.ndarray
    k: int
    lam: float
    s: np.ndarray
    fit_intercept: bool
    settings: dict[str, Any] = field(default_factory=dict)

    def problem(self, convert: Any = np.asarray) -> Problem:
        loss: str | Loss = Huber(1.0) if self.loss == "huber" else self.loss
        constraint = constrained(self.k, self.X.shape[1], **self.settings)
        return Problem(convert(self.X), self.Y, loss, constraint, self.lam, self.s, self.fit_intercept)

    def best_on(self, support: tuple[int, ...]) -> float:
        """The best objective on a support, target by target, by scipy."""
        columns, total, m = self.X[:, support], 0.0, len(support)
        sign = self.settings.get("sign")
        for c, y in enumerate(self.Y.T):

            def objective(v: np.ndarray, y: np.ndarray = y) -> tuple[float, np.ndarray]:
                values, slopes = value_and_slope(self.loss, columns @ v[:m] + v[m], y)
                slope = np.append(columns.T @ (self.s * slopes) + self.lam * v[:m], self.s @ slopes)
                slope[m] *= self.fit_intercept
                return float(self.s @ values + 0.5 * self.lam * v[:m] @ v[:m]), slope

            signs = np.zeros(m) if sign is None else np.broadcast_to(sign, (len(self.Y.T), self.X.shape[1]))[c, support]
            ends = [(0.0 if z > 0 else None, 0.0 if z < 0 else None) for z in signs]
            options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 3000, "maxfun": 6000}
            start = np.zeros(m + 1)
            found = minimize(
                objective, start, jac=True, method="L-BFGS-B", bounds=[*ends, (None, None)], options=options
            )
            total += found.fun
        return float(total)

    def supports(self) -> list[tuple[int, ...]]:
        """All supports that are allowed."""
        d, keep = self.X.shape[1], list(self.settings.get("keep", ()))
        groups = np.asarray(self.settings.get("groups", np.arange(d)))
        free = [g for g in np.unique(groups) if g not in groups[keep]]
        chosen = [{*groups[keep].tolist(), *more} for more in combinations(free, min(self.k, len(free)))]
        return [tuple(np.flatnonzero(np.isin(groups, list(labels))).tolist()) for labels in chosen]


def draw(loss: str, seed: int, n_targets: int = 3, constraint: str = "plain") -> Case:
    rng = np.random.default_rng(seed)
    n, d, k = 40, 6, int(rng.integers(1, 4))
    X = rng.normal(size=(n, d)) + (3.0 * rng.normal(size=d) if seed % 2 else 0.0)
    if seed % 3 == 0:
        X[:, 0] = X[:, 1]
    U = (X - X.mean(axis=0)) @ (rng.normal(size=(d, n_targets)) * (rng.random(d) < 0.5)[:, None])
    if loss == "poisson":
        Y = rng.poisson(np.exp(np.clip(U, -2.0, 2.0))).astype(float)
    elif loss in ("logistic", "squared_hinge"):
        Y = np.where(U + rng.logistic(size=U.shape) > 0.0, 1.0, -1.0)
        Y[0], Y[1] = 1.0, -1.0
    else:
        Y = U + rng.normal(size=U.shape) + 2.0
    s = rng.random(n) + 0.1 if rng.random() < 0.5 else np.ones(n)
    settings = {
        "plain": {},
        "keep": {"keep": [2]},
        "groups": {"groups": [0, 1, 0, 2, 2, 3]},
        "sign": {"sign": rng.integers(-1, 2, size=(n_targets, d))},
    }[constraint]
    return Case(loss, X, Y, k, 10.0 ** rng.uniform(-3.0, 0.0), s / s.sum(), bool(seed % 4), settings)


@pytest.mark.parametrize(("loss", "constraint"), crossed(SMOOTH, ["plain", "keep", "groups", "sign"]))
def test_exact_solutions_are_those_of_enumeration(loss: str, constraint: str) -> None:
    case = draw(loss, SMOOTH.index(loss) + 10 * len(constraint), 3, constraint)
    optima = {support: case.best_on(support) for support in case.supports()}
    best, problem = min(optima.values()), case.problem()
    result = solve(problem, "branch", tol=1e-7)
    assert result.objective <= best * (1 + 1e-6)
    assert best * (1 - 1e-6) <= result.lower_bound <= best * (1 + 1e-7)
    assert result.lower_bound <= result.certificate.bound.check(problem)
    given = result.intercept if case.fit_intercept else None
    for certificate in (solve(problem).certificate, certify(problem, result.w, given)):
        without, within = certificate.screening.without, certificate.screening.within
        assert certificate.lower_bound <= best * (1 + 1e-7)
        assert len(without) == len(within) == 6
        for j in range(6):
            assert without[j] <= min((v for s, v in optima.items() if j not in s), default=np.inf) * (1 + 1e-7)
            assert within[j] <= min((v for s, v in optima.items() if j in s), default=np.inf) * (1 + 1e-7)


@pytest.mark.parametrize("loss", SMOOTH)
def test_five_targets(loss: str) -> None:
    case = draw(loss, 7, 5)
    best = min(map(case.best_on, case.supports()))
    result = solve(case.problem(sp.csr_array), "branch", tol=1e-7)
    assert result.w.shape == (5, 6)
    assert len(result.support) <= case.k
    assert result.objective == pytest.approx(best, rel=1e-6)
    assert result.lower_bound == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize(
    "loss", [name for name in LOSSES if name not in SMOOTH and not LOSSES[name].nonnegative_targets]
)
def test_losses_with_kinks_on_a_support_are_fitted_target_by_target(loss: str) -> None:
    case = draw("logistic", 5)
    problem = Problem(case.X, case.Y, loss, 6, 0.01, fit_intercept=True)
    alone = [solve(Problem(case.X, y, loss, 6, 0.01, fit_intercept=True), tol=1e-9) for y in case.Y.T]
    result = solve(problem, tol=1e-9)
    assert result.objective == pytest.approx(sum(each.objective for each in alone), rel=1e-8)
    few = solve(problem.replaced(constraint=problem.constraint.allowing(2)), "branch", tol=1e-6)
    assert few.lower_bound <= few.objective * (1 + 1e-9)
    assert few.lower_bound >= few.objective * (1 - 2e-6)


@pytest.mark.parametrize("loss", [pytest.param(name, marks=pytest.mark.slow) for name in SMOOTH] + ["multinomial"])
def test_rows_in_blocks_give_the_same(loss: str) -> None:
    case = draw("logistic" if loss == "multinomial" else loss, 9)
    Y = np.arange(40) % 3 if loss == "multinomial" else case.Y
    problem = Problem(case.X, Y, loss, 2, 0.1, case.s, True)
    one, parts = problem.samples.one, np.split(np.arange(40), [7, 19, 30])
    X = one.design.toarray()
    in_blocks = BlockSamples([MemorySamples(DenseDesign(X[rows]), one.y[rows], one.s[rows]) for rows in parts])
    y = tuple(problem.samples.y[:, rows] for rows in parts)
    other = problem.replaced()
    object.__setattr__(other, "samples", TargetSamples(in_blocks, y, 3, problem.loss))
    object.__setattr__(other, "_memo", {})
    expected, got = solve(problem, "branch"), solve(other, "branch")
    assert_array_equal(got.support, expected.support)
    assert got.objective == pytest.approx(expected.objective, rel=1e-7)
    assert got.lower_bound == pytest.approx(expected.lower_bound, rel=1e-3)


def test_what_a_dual_point_proves_of_each_target_adds_up() -> None:
    """Imbalances of two targets that cancel in their sum do not cancel in the bound."""
    case = draw("squared", 3)
    problem = Problem(case.X, case.Y[:, :2], Squared(), 1, 1.0, fit_intercept=True)
    model = solve(problem, "branch")
    alpha = dual_from_primal(
        problem, problem.flat("w", model.w), problem.centred_intercept(model.w.ravel(), model.intercept)
    )
    honest = lower_bound(problem, alpha).value
    assert honest > 0.0
    skewed = alpha + np.array([[1e-3], [-1e-3]])
    assert lower_bound(problem, skewed).value < honest
    assert lower_bound(problem, skewed).rounding > 1e-4


def test_objectives_are_sums() -> None:
    case = draw("huber", 11)
    problem, rng = case.problem(), np.random.default_rng(0)
    W, b = rng.normal(size=(3, 6)), rng.normal(size=3) * problem.fit_intercept
    values, _ = value_and_slope("huber", case.X @ W.T + b, case.Y)
    true = case.s @ values.sum(axis=1) + 0.5 * case.lam * np.square(W).sum()
    assert primal(problem, W.ravel(), problem.centred_intercept(W.ravel(), b)) == pytest.approx(true, rel=1e-12)


def test_the_regressor_takes_a_matrix(tmp_path: Any) -> None:
    X, Y = load_linnerud(return_X_y=True)
    model = SparseRegressor(k=1, exact=True).fit(X, Y)
    assert model.coef_.shape == (3, 3)
    assert model.intercept_.shape == (3,)
    assert np.count_nonzero(model.coef_.any(axis=0)) == len(model.support_) == 1
    assert model.predict(X).shape == Y.shape
    assert_allclose(model.predict(X), X @ model.coef_.T + model.intercept_)
    assert model.dual_coef_.shape == (3, 20)
    assert isinstance(model.objective_, float)
    alone = [SparseRegressor(k=1, exact=True).fit(X, y).objective_ for y in Y.T]
    assert model.objective_ >= sum(alone) * (1 - 1e-9)
    best = min(sum(SparseRegressor(k=1).fit(X[:, [j]], y).objective_ for y in Y.T) for j in range(3))
    assert model.objective_ == pytest.approx(best, rel=1e-9)
    with pytest.warns(DataConversionWarning):
        column = SparseRegressor(k=1).fit(X, Y[:, :1])
    assert column.coef_.shape == (3,)
    counts = SparseRegressor(k=2, loss="poisson").fit(X, Y)
    assert counts.score(X, Y) > 0.0
    assert_allclose(counts.predict(X), np.exp(X @ counts.coef_.T + counts.intercept_))


def test_paths_and_cross_validation_take_a_matrix() -> None:
    X, Y = load_linnerud(return_X_y=True)
    path = sparse_path(X, Y, ks=[1, 2, 3], lams=0.1)
    assert [point.coef.shape for point in path] == [(3, 3)] * 3
    assert np.all(np.diff([point.objective for point in path]) <= 0.0)
    model = SparseRegressorCV(ks=[1, 2], lams=[0.1], cv=3).fit(X, Y)
    assert model.coef_.shape == (3, 3)
    with pytest.raises(ValueError, match=r"^estimator must have one target here"):
        debiased(model, X, Y)


def test_offsets_of_several_targets() -> None:
    X, Y = load_linnerud(return_X_y=True)
    offset = np.arange(60.0).reshape(20, 3)
    shifted = SparseRegressor(k=1, lam=0.1).fit(X, Y + offset, offset=offset)
    plain = SparseRegressor(k=1, lam=0.1).fit(X, Y)
    assert_allclose(shifted.coef_, plain.coef_, rtol=1e-6, atol=1e-9)
    assert_allclose(shifted.predict(X, offset=offset), plain.predict(X) + offset, rtol=1e-9)
    with pytest.raises(ValueError, match=r"^offset must have the shape of y"):
        SparseRegressor(k=1).fit(X, Y, offset=offset[:, 0])
    for wrong in (offset[:, 0], offset.ravel(), offset[:5]):
        with pytest.raises(ValueError, match=r"^offset must have shape \(20, 3\)"):
            plain.predict(X, offset=wrong)
    with pytest.raises(ValueError, match=r"^offset must have the shape of y"):
        SparseRegressor(k=1, loss="poisson").fit(X, Y, offset=offset)


def test_classes_share_features_unless_asked() -> None:
    X, y = load_wine(return_X_y=True)
    for loss in ("logistic", "hinge"):
        shared = SparseClassifier(k=2, lam=0.1, loss=loss).fit(X, y)
        apart = SparseClassifier(k=2, lam=0.1, loss=loss, multiclass="ovr").fit(X, y)
        assert len(shared.support_) == 2
        assert len(apart.support_) > 2
        assert isinstance(shared.objective_, float)
        assert apart.objective_.shape == (3,)
    with pytest.raises(ValueError, match=r"^multiclass must be 'shared' or 'ovr', got 'one'"):
        SparseClassifier(multiclass="one").fit(X, y)
    with pytest.raises(ValueError, match=r"^multiclass='ovr' cannot be used with loss='multinomial'"):
        SparseClassifier(loss="multinomial", multiclass="ovr").fit(X, y)


def test_a_model_of_classes_is_read_back(tmp_path: Any) -> None:
    X, y = load_wine(return_X_y=True)
    for multiclass in ("shared", "ovr"):
        model = SparseClassifier(k=2, lam=0.1, loss="hinge", multiclass=multiclass).fit(X, y)
        model.to_json(tmp_path / "model.json")
        again = load_model(tmp_path / "model.json")
        assert again.multiclass == multiclass
        assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("kind", ["targets", "shared", "ovr"])
def test_what_a_file_says_of_several_equations(kind: str) -> None:
    X, Y = load_linnerud(return_X_y=True)
    if kind != "targets":
        X, Y = load_wine(return_X_y=True)
    model: Any = SparseRegressor(k=2) if kind == "targets" else SparseClassifier(k=2, lam=0.1, multiclass=kind)
    saved = model.fit(X, Y)._saved()
    results = model.result_ if kind == "ovr" else [model.result_]
    assert saved.data.n_samples == len(X)
    assert len(saved.equations) == 3
    assert len(saved.certificates) == len(saved.supports) == len(results)
    rows = np.vstack([result.w for result in results])
    for equation, effects, w, coef in zip(saved.equations, saved.effects(results), rows, model.coef_, strict=True):
        assert_array_equal(effects, w[equation.indices])
        assert_allclose(effects, coef[equation.indices] * X[:, equation.indices].std(axis=0))
    assert saved.effects([]) == [None] * 3


def test_the_tag_of_several_targets_is_that_of_the_method() -> None:
    for solver, takes in (("auto", True), ("diht", False), (DIHT(), False), ("unknown", True)):
        assert SparseRegressor(solver=solver).__sklearn_tags__().target_tags.multi_output is takes


def test_what_is_refused() -> None:
    X, Y = load_linnerud(return_X_y=True)
    with pytest.raises(ValueError, match=r"^solver must be one of .* for several targets, got DIHT"):
        solve(Problem(X, Y, k=1), "diht")
    with pytest.raises(ValueError, match=r"^w must have shape \(3, 3\), a row for each target"):
        certify(Problem(X, Y, k=1), np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"^intercept must have length 3"):
        certify(Problem(X, Y, k=1, fit_intercept=True), np.zeros((3, 3)), [0.0, 1.0])
    for n_targets, rows in ((1, 3), (3, 2)):
        with pytest.raises(ValueError, match=rf"^sign must have one row, or {n_targets} for .*, got {rows} rows"):
            Problem(X, Y[:, 0] if n_targets == 1 else Y, k=constrained(1, 3, sign=np.ones((rows, 3))))
    with pytest.raises(ValueError, match=r"^alpha must have shape \(3, 20\)"):
        certify(Problem(X, Y, k=1), np.zeros((3, 3)), alpha=np.zeros(20))

"""Proportional odds: against the likelihood from its definition, other packages' fits, and every support of small problems."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mpmath import exp as mp_exp
from mpmath import log as mp_log
from mpmath import mp, mpf
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from skops.io import dumps, loads

from diht import SKOPS_TRUSTED, SparseClassifier, SparseCox, SparseOrdinalClassifier, load_model
from diht.constraints.base import Cardinality
from diht.design import as_design
from diht.joint.odds import ProportionalOdds
from diht.joint.solve import JointProblem, solve_joint


def data(seed: int, n: int = 50, d: int = 6, C: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ordered classes, each with some weight; some samples have none."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    u = 1.5 * X[:, 1] - X[:, d - 2] + rng.logistic(size=n)
    codes = np.searchsorted(np.quantile(u, np.linspace(0, 1, C + 1)[1:-1]), u).astype(np.int64)
    s = rng.integers(0, 4, n).astype(float)
    s[[np.flatnonzero(codes == c)[0] for c in range(C)]] = 1.0
    return X, codes, s / s.sum()


def plain(u: np.ndarray, t: np.ndarray, codes: np.ndarray, s: np.ndarray) -> float:
    """Minus the log-likelihood, from the definition."""
    ends = np.concatenate([[-np.inf], t, [np.inf]]).astype(np.longdouble)  # differences near one and zero lose digits
    F = 1.0 / (1.0 + np.exp(-(ends[:, None] - u)))
    own = np.arange(len(u))
    return -float(s @ np.log(F[codes + 1, own] - F[codes, own]))


def least(X: np.ndarray, codes: np.ndarray, s: np.ndarray, lam: float, k: int) -> float:
    """The least objective of all supports, each by another method in other parameters."""

    def objective(x: np.ndarray, columns: np.ndarray) -> float:
        w, t = x[:k], np.cumsum(np.append(x[k], np.exp(x[k + 1 :])))
        return plain(columns @ w, t, codes, s) + 0.5 * lam * float(w @ w)

    def on(support: tuple[int, ...]) -> float:
        start = np.concatenate([np.zeros(k), [-1.0], np.zeros(codes.max() - 1)])
        return float(minimize(objective, start, X[:, support], method="BFGS", options={"gtol": 1e-7}).fun)

    return min(map(on, combinations(range(X.shape[1]), k)))


@pytest.mark.parametrize("C", [2, 3, 5])
def test_value_slopes_and_curvature(C: int) -> None:
    X, codes, s = data(0, C=C)
    f = ProportionalOdds(codes, s)
    for size in (0.0, 1.0, 6.0):
        u = size * np.random.default_rng(1).standard_normal(len(X))
        t = f.thresholds(u)
        value = plain(u, t, codes, s)
        assert f.value(u) == pytest.approx(value, rel=1e-12)
        for c in range(C - 1):  # no other thresholds are better
            for h in (-1e-4, 1e-4):
                assert plain(u, t + h * np.eye(C - 1)[c], codes, s) > value
        at = f.linear(u)
        touching = at.constant + float(at.gradient @ u)
        assert value - 1e-10 <= touching <= value
        for v in u + np.random.default_rng(2).standard_normal((20, len(u))):
            assert at.constant + float(at.gradient @ v) <= f.value(v)
        step, e = 1e-5, np.random.default_rng(3).standard_normal(len(u))
        assert (f.value(u + step * e) - f.value(u - step * e)) / (2 * step) == pytest.approx(at.gradient @ e, abs=1e-8)
        H = f.hessian(u, X)
        slopes = [(f.linear(u + step * x).gradient - f.linear(u - step * x).gradient) / (2 * step) for x in X.T]
        np.testing.assert_allclose(H, X.T @ np.array(slopes).T, atol=1e-7)
        np.testing.assert_allclose(f.hessian(u, X, diagonal=True), np.diag(H), atol=1e-12)


def test_the_constant_is_below_that_of_fifty_digits() -> None:
    """The dual function of the exact point next to the one computed, from its definition; and f is nowhere below the line."""
    mp.dps = 50
    for seed in range(6):
        rng = np.random.default_rng(seed)
        _, codes, s = data(seed, n=30, C=2 + seed % 4)
        f = ProportionalOdds(codes, s)
        u = 10.0 ** rng.integers(-3, 2) * rng.standard_normal(30)
        at = f.linear(u)
        if not np.isfinite(at.constant):
            continue
        t = [mpf(float(x)) for x in f.thresholds(u)]

        def exact(v: Any, t: list[Any] = t, codes: np.ndarray = codes, s: np.ndarray = s) -> Any:
            def below(j: int, x: Any) -> Any:
                return mpf(0) if j < 0 else mpf(1) if j == len(t) else 1 / (1 + mp_exp(x - t[j]))

            parts = zip(codes.tolist(), s.tolist(), v, strict=True)
            return sum((-mpf(w) * mp_log(below(c, x) - below(c - 1, x)) for c, w, x in parts), mpf(0))

        value = exact([mpf(x) for x in u.tolist()])
        line = mpf(at.constant) + sum((mpf(a) * mpf(x) for a, x in zip(at.gradient, u, strict=True)), mpf(0))
        spread = sum(abs(float(x)) * float(e) for x, e in zip(u, at.gradient_error, strict=True))
        assert line - spread <= value
        assert float(value - line) <= 1e-9 * max(1.0, float(value))


@pytest.mark.parametrize("C", [2, 3, 4])
@pytest.mark.parametrize("lam", [1e-4, 1e-2, 0.3])
def test_bounds_and_models_of_small_problems(C: int, lam: float) -> None:
    X, codes, s = data(C, C=C)
    best = least(X, codes, s, lam, 2)
    problem = JointProblem(ProportionalOdds(codes, s), as_design(X, 1), X, Cardinality(2), lam)
    fit, bound, _ = solve_joint(problem, 1e-6, np.inf, lambda: False)
    assert fit.value == pytest.approx(best, rel=1e-8)
    assert bound <= best * (1 + 1e-9)
    assert bound <= fit.value
    assert bound >= best * (1 - 2e-6)
    for w in np.random.default_rng(0).standard_normal((20, X.shape[1])):  # any point proves something true
        assert problem.lower_bound(w)[0] <= best * (1 + 1e-9)


def test_the_estimator_is_the_model_of_statsmodels_on_the_same_support() -> None:
    """Without a ridge to speak of; and of two classes the logistic model."""
    miscmodels = pytest.importorskip("statsmodels.miscmodels.ordinal_model")
    X, codes, _ = data(7, n=300, C=4)
    model = SparseOrdinalClassifier(k=3, lam=1e-12, standardize=False).fit(X, codes)
    other = miscmodels.OrderedModel(codes, X[:, model.support_], distr="logit").fit(
        method="bfgs", disp=False, gtol=1e-10
    )
    assert model.objective_ == pytest.approx(-other.llf / len(X), rel=1e-8)
    np.testing.assert_allclose(model.coef_[model.support_], other.params[:3], rtol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), other.predict(), atol=1e-6)
    two = SparseOrdinalClassifier(k=2, lam=0.01).fit(X, codes > 1)
    logistic = SparseClassifier(k=2, lam=0.01).fit(X, codes > 1)
    assert two.objective_ == pytest.approx(logistic.objective_, rel=1e-8)
    np.testing.assert_allclose(two.predict_proba(X), logistic.predict_proba(X), atol=1e-5)


def test_weights_order_and_predictions() -> None:
    X, codes, s = data(3, n=120, C=3)
    counts = np.round(s / s[s > 0].min()).astype(int)
    weighted = SparseOrdinalClassifier(k=2, lam=0.01, standardize=False).fit(X, codes, counts)
    rows = np.repeat(np.arange(120), counts)
    repeated = SparseOrdinalClassifier(k=2, lam=0.01, standardize=False).fit(X[rows], codes[rows])
    assert weighted.objective_ == pytest.approx(repeated.objective_, rel=1e-10)
    np.testing.assert_allclose(weighted.thresholds_, repeated.thresholds_, rtol=1e-5)
    names = np.array(["low", "middle", "high"])
    named = SparseOrdinalClassifier(k=2, lam=0.01, classes=["low", "middle", "high"]).fit(X, names[codes])
    ordered = pd.Series(pd.Categorical(names[codes], categories=names, ordered=True))
    again = SparseOrdinalClassifier(k=2, lam=0.01).fit(X, ordered)
    assert named.classes_.tolist() == again.classes_.tolist() == names.tolist()
    assert named.objective_ == again.objective_
    P = named.predict_proba(X + 3.0)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-14)
    below = 1.0 / (1.0 + np.exp(named.decision_function(X + 3.0)[:, None] - named.thresholds_))
    np.testing.assert_allclose(np.cumsum(P, axis=1)[:, :-1], below, atol=1e-12)
    assert named.predict(X).tolist() == names[named.predict_proba(X).argmax(axis=1)].tolist()
    assert named.score(X, names[codes]) > 0.5


@pytest.mark.parametrize("kind", [SparseOrdinalClassifier, SparseCox])
def test_paths_cross_validation_files_and_pages(kind: Any, tmp_path: FilePath) -> None:
    X, codes, _ = data(5, n=150, d=7, C=3)
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(7)])
    given: tuple[Any, ...] = (codes,)
    if kind is SparseCox:
        rng = np.random.default_rng(0)
        given = rng.exponential(np.exp(X[:, 1] - X[:, 5])), rng.random(150) < 0.7
    model = kind(k=2, lam=0.01).fit(frame, *given)
    path = model.path(frame, *given, ks=[1, 2, 4])
    assert path.ks == [1, 2, 4]
    assert np.all(np.diff([point.objective for point in path]) < 0.0)
    assert np.all(np.diff([point.lower_bound for point in path]) <= 0.0)
    for point in path:
        alone = kind(k=point.k, lam=0.01, exact=True, tol=1e-6).fit(frame, *given)
        assert point.lower_bound <= alone.objective_
        assert point.objective == pytest.approx(alone.objective_, rel=1e-4)
    assert len(path.to_frame()) == 3
    path.report(tmp_path / "path.html")
    model.report(tmp_path / "page.html")
    for page in ("path.html", "page.html"):
        assert "c1" in (tmp_path / page).read_text()
    chosen = model.cross_validated(frame, *given, ks=[1, 2, 4], cv=4)
    assert chosen.best_k_ in (1, 2)
    assert chosen.k == chosen.best_k_
    assert chosen.cv_results_["split3_test_score"].shape == (3,)
    model.to_json(tmp_path / "model.json")
    for read in (load_model(tmp_path / "model.json"), loads(dumps(model), trusted=SKOPS_TRUSTED), clone(model)):
        if hasattr(read, "coef_"):
            np.testing.assert_array_equal(read.predict(frame), model.predict(frame))
            assert (read.objective_, read.lower_bound_, read.gap_) == (model.objective_, model.lower_bound_, model.gap_)
    content = json.loads((tmp_path / "model.json").read_text())
    for key, other in (
        ("k", 1),
        ("lower_bound", 1e9),
        ("values", []),
        ("extra", {}),
        ("indices", [5, 1]),
        ("lam", 0.0),
    ):
        broken = content | {key: other}
        (tmp_path / "broken.json").write_text(json.dumps(broken))
        with pytest.raises(ValueError, match=r"broken.json.*damaged"):
            load_model(tmp_path / "broken.json")
        (tmp_path / "broken.json").write_text(json.dumps({k: v for k, v in broken.items() if k != "checksum"}))
        with pytest.raises(ValueError, match=r"broken.json: "):
            load_model(tmp_path / "broken.json")


def test_scikit_learns_searches_and_strata_in_files(tmp_path: FilePath) -> None:
    X, codes, _ = data(6, n=90)
    search = GridSearchCV(SparseOrdinalClassifier(lam=0.01), {"k": [1, 2]}, cv=3).fit(X, codes)
    assert search.best_estimator_.k in (1, 2)
    time = np.random.default_rng(0).exponential(np.exp(X[:, 1]))
    y = np.array(list(zip(np.ones(90, dtype=bool), time, strict=True)), dtype=[("event", bool), ("time", float)])
    assert GridSearchCV(SparseCox(lam=0.01), {"k": [1, 2]}, cv=3).fit(X, y).best_estimator_.k in (1, 2)
    strata = np.array(["a", "b"])[codes % 2]
    model = SparseCox(k=2, lam=0.01, ties="breslow").fit(X, y, strata=strata)
    model.to_json(tmp_path / "cox.json")
    read = load_model(tmp_path / "cox.json")
    times = [0.1, 1.0]
    np.testing.assert_array_equal(read.predict_survival(X, times, strata), model.predict_survival(X, times, strata))
    with pytest.raises(ValueError, match="brier_score needs the times of the fit"):
        read.brier_score(X, time, np.ones(90), times, strata)


def test_bad_input() -> None:
    X, codes, _ = data(0)
    with pytest.raises(ValueError, match=r"^y must hold at least two classes"):
        SparseOrdinalClassifier(k=1).fit(X, np.zeros(50))
    with pytest.raises(ValueError, match=r"^classes must hold each class of y once"):
        SparseOrdinalClassifier(k=1, classes=[0, 1]).fit(X, codes)
    with pytest.raises(ValueError, match=r"^y must have a class for each of the 50 samples"):
        SparseOrdinalClassifier(k=1).fit(X, codes[:-1])
    with pytest.raises(ValueError, match=r"^every class needs some weight"):
        SparseOrdinalClassifier(k=1).fit(X, codes, (codes != 1).astype(float))
    with pytest.raises(ValueError, match=r"^ks must be from 1 to the 6 features"):
        SparseOrdinalClassifier().path(X, codes, ks=[9])


def test_separable_and_tiny_data_give_true_bounds() -> None:
    """Where the ridge alone keeps coefficients finite, and where columns are constant or huge."""
    rng = np.random.default_rng(0)
    for scale, n in ((1.0, 8), (1e6, 12), (1e-6, 12)):
        X = scale * rng.standard_normal((n, 3))
        X[:, 2] = 1.0
        codes = np.searchsorted(np.quantile(X[:, 0], [0.3, 0.6]), X[:, 0])
        model = SparseOrdinalClassifier(k=1, lam=1e-6, standardize=False).fit(X, codes)
        assert model.lower_bound_ <= model.objective_
        best = min(
            SparseOrdinalClassifier(k=1, lam=1e-6, standardize=False).fit(X[:, [j]], codes).objective_ for j in range(3)
        )
        assert model.lower_bound_ <= best
        assert model.objective_ == pytest.approx(best, rel=1e-6)

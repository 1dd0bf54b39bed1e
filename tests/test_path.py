import builtins
import doctest
import pickle
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import comb

import diht.estimators.path
from diht import Cardinality, Problem, solve, sparse_path
from diht.bounds.duality import Bound, primal
from diht.losses import Huber, Logistic, SmoothedHinge, Squared
from diht.refit import refit
from diht.result import Status
from diht.solvers import Auto
from diht.solvers.loop import as_solver
from diht.solvers.sweep import WiderBound, solve_path
from oracle import some_weights

LOSSES = [Squared(), Logistic(), Huber(0.5), SmoothedHinge(0.25)]


def problem_of(loss, seed, weighted, fit_intercept, n=25, d=7):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + rng.standard_normal(d)
    X[:, 1] = X[:, 0] + 0.3 * rng.standard_normal(n)
    y = X[:, :3] @ [1.0, -1.0, 0.5] + rng.standard_normal(n)
    if loss.task == "classification":
        y = np.where(y > np.median(y), 1.0, -1.0)
    weights = some_weights(n) if weighted else None
    return Problem(X, y, loss, d, 1.0, weights, fit_intercept)


def exact(problem):
    """The best objective, by trying every support."""
    d, k = problem.shape[1], problem.constraint.size
    return min(refit(problem, np.array(support)).objective for support in combinations(range(d), k))


# ---------------------------------------------------------------------------------------------------------------------
# Against brute force


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize(
    ("weighted", "fit_intercept"),
    [(True, False), (False, True), *(pytest.param(a, a, marks=pytest.mark.slow) for a in (False, True))],
)
def test_brute_force_confirms_every_point(loss, weighted, fit_intercept):
    problem = problem_of(loss, 3 + 2 * weighted + fit_intercept, weighted, fit_intercept)
    ks, lams = [1, 2, 3, 5, 6], [1e-3, 0.1, 1.0]
    results = solve_path(problem, ks, lams)
    assert list(results) == [(k, lam) for lam in lams for k in ks]
    for (k, lam), result in results.items():
        point = problem.replaced(constraint=Cardinality(k), lam=lam)
        best = exact(point)
        assert result.lower_bound <= best * (1 + 1e-12)
        assert best * (1 - 1e-9) <= result.objective <= best * (1 + 1e-2)  # nothing promises the best model
        assert np.count_nonzero(result.w) <= k
        w = result.w.astype(float)
        assert_allclose(primal(point, w, point.centred_intercept(w, result.intercept)), result.objective, rtol=1e-12)
        assert result.lower_bound <= result.certificate.bound.check(point)
        assert_allclose(result.certificate.bound.check(point), result.lower_bound, rtol=1e-9, atol=1e-12)
        for j in result.certificate.required:
            without = problem.restricted(np.delete(np.arange(7), j)).replaced(
                constraint=Cardinality(min(k, 6)), lam=lam
            )
            assert exact(without) > best


def test_models_are_nearly_always_the_best():
    """On small problems the path misses few optima."""
    found = []
    for seed in range(8):
        problem = problem_of(Squared(), seed, False, True)
        results = solve_path(problem, [1, 2, 3, 4], [0.01])
        for (k, lam), result in results.items():
            best = exact(problem.replaced(constraint=Cardinality(k), lam=lam))
            found.append(result.objective <= best * (1 + 1e-7))
    assert np.mean(found) > 0.9


# ---------------------------------------------------------------------------------------------------------------------
# Monotone, whatever the solver does


def wide(n=60, d=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, :6].sum(axis=1) + rng.standard_normal(n)


@pytest.mark.parametrize("solver", ["auto", "iht", "relaxed"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_objectives_and_bounds_are_monotone(solver, dtype):
    X, y = wide()
    ks, lams = [1, 2, 4, 5, 9, 12], [0.01, 0.3, 2.0]
    path = sparse_path(X.astype(dtype), y, ks=ks, lams=lams, solver=solver)
    for name in ("objective", "lower_bound"):
        table = np.array([getattr(point, name) for point in path]).reshape(len(lams), len(ks))
        assert np.all(np.diff(table, axis=1) <= 0.0), name
        assert np.all(np.diff(table, axis=0) >= 0.0), name
    assert all(point.lower_bound <= point.objective for point in path)
    assert all(point.coef.dtype == dtype for point in path)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("shape", [(100, 200), (350, 300)])  # below and above the size from which searches are short
def test_a_path_is_about_as_good_as_a_fit_at_every_point(loss, shape):
    X, y = wide(*shape)
    if loss == "logistic":
        y = np.where(y > 0, 1.0, -1.0)
    path = sparse_path(X, y, ks=[1, 5, 11], lams=0.3, loss=loss, standardize=False)
    for point in path:
        result = solve(Problem(X, y, loss, point.k, point.lam, None, True), Auto(branching=False))
        assert point.objective <= result.objective * (1 + 1e-3)
        assert point.relative_gap <= 1.3 * result.relative_gap + 2e-4


def test_a_single_point_is_a_fit_without_branching():
    X, y = wide()
    (point,) = sparse_path(X, y, ks=[3], lams=0.1, standardize=False)
    problem = Problem(X, y, "squared", 3, 0.1, None, True)
    result = solve(problem, Auto(branching=False))
    assert_array_equal(point.coef, result.w)
    assert (point.objective, point.lower_bound) == (result.objective, result.lower_bound)
    assert isinstance(point.k, int)
    branched = solve(problem)
    assert branched.lower_bound > point.lower_bound * (1 + 1e-3)
    assert branched.objective == pytest.approx(point.objective, rel=1e-12)
    (exact,) = sparse_path(X, y, ks=[3], lams=0.1, standardize=False, solver="branch")
    assert exact.relative_gap <= 1e-4


# ---------------------------------------------------------------------------------------------------------------------
# Bounds that neighbours prove


def test_a_bound_holds_for_fewer_features_and_larger_ridges_only():
    problem = problem_of(Squared(), 0, False, True)
    of_four = problem.replaced(constraint=Cardinality(4), lam=0.1)
    bound = WiderBound.of(of_four, solve(of_four).certificate.bound)
    assert WiderBound.of(problem, bound) is bound
    for k, lam in [(4, 0.1), (3, 0.1), (2, 1.0)]:
        narrower = problem.replaced(constraint=Cardinality(k), lam=lam)
        assert bound.check(narrower) == pytest.approx(bound.value, rel=1e-9)
        assert bound.value <= exact(narrower)
        screening = bound.screening(narrower)
        for j in range(7):
            rest = problem.restricted(np.delete(np.arange(7), j)).replaced(constraint=Cardinality(k), lam=lam)
            assert screening.without[j] <= exact(rest)
    for k, lam in [(5, 0.1), (4, 0.01)]:  # nothing but its dual point carries over
        wider = problem.replaced(constraint=Cardinality(k), lam=lam)
        assert bound.check(wider) <= exact(wider)
        assert type(bound.renewed(wider)) is Bound


# ---------------------------------------------------------------------------------------------------------------------
# What users see


def test_path_object():
    X, y = wide()
    path = sparse_path(X, y, ks=[1, 3, 2], lams=[1.0, 0.1])
    assert (path.ks, path.lams, len(path)) == ([1, 2, 3], [0.1, 1.0], 6)
    assert [(point.k, point.lam) for point in path] == [(k, lam) for lam in (0.1, 1.0) for k in (1, 2, 3)]
    assert path.point(2, 1.0).k == 2
    with pytest.raises(ValueError, match="several"):
        path.point(2)
    with pytest.raises(ValueError, match="k must be one of"):
        path.point(7, 1.0)
    with pytest.raises(ValueError, match="lam must be one of"):
        path.point(2, 0.5)
    assert_array_equal(path.coefficients()[4], path.point(2, 1.0).coef)
    frame = path.to_frame()
    assert_array_equal(frame["objective"], [point.objective for point in path])
    assert {"k", "lam", "n_features", "lower_bound", "relative_gap", "aic", "bic", "ebic"} <= set(frame)
    again = pickle.loads(pickle.dumps(path))
    assert_array_equal(again.coefficients(), path.coefficients())


def test_names_units_and_storage():
    X, y = wide(80, 30)
    X = X * np.linspace(0.1, 30.0, 30) + 2.0
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(30)])
    path = sparse_path(frame, y, ks=[2, 4], lams=0.1, standardize=True)
    assert path.feature_names[3] == "gene 3"
    point = path.point(4)
    w, scale = point.result.w, X.std(axis=0)
    assert_allclose(point.coef, w / scale)
    assert point.certificate.scaled
    residual = y - X @ point.coef - point.intercept
    assert_allclose(point.objective, np.mean(residual**2) + 0.05 * np.sum(w**2))
    stored = sparse_path(sp.csr_array(X), y, ks=[2, 4], lams=0.1, standardize=True)
    assert_allclose(stored.coefficients(), path.coefficients(), atol=1e-6)


def test_information_criteria_are_those_of_the_textbook():
    X, y = wide(80, 12)
    path = sparse_path(X, y, ks=[1, 3], lams=1e-6)
    for i, point in enumerate(path):
        A = np.column_stack([X[:, point.support], np.ones(80)])
        rss = np.linalg.lstsq(A, y)[1][0]
        assert path.criterion("aic")[i] == pytest.approx(80 * np.log(rss / 80) + 2 * (point.k + 1), rel=1e-4)
        bic = 80 * np.log(rss / 80) + np.log(80) * (point.k + 1)
        assert path.criterion("bic")[i] == pytest.approx(bic, rel=1e-4)
        assert path.criterion("ebic")[i] == pytest.approx(bic + 2 * np.log(comb(12, point.k)), rel=1e-4)
    labels = np.where(y > 0, "b", "a")
    logistic = sparse_path(X, labels, ks=[2], lams=0.1, loss="logistic")
    u = X @ logistic[0].coef + logistic[0].intercept
    deviance = 2 * np.log1p(np.exp(-np.where(labels == "b", 1, -1) * u)).sum()
    assert logistic.criterion("aic")[0] == pytest.approx(deviance + 6)
    huber = sparse_path(X, y, ks=[2], lams=0.1, loss="huber")
    assert "aic" not in huber.to_frame()
    with pytest.raises(ValueError, match="likelihood"):
        huber.criterion("bic")
    with pytest.raises(ValueError, match="name must be one of"):
        path.criterion("cp")


def test_progress_and_limits(capsys):
    X, y = wide()
    seen = []
    path = sparse_path(X, y, ks=[1, 2, 3, 4], verbose=True, callback=lambda point: seen.append(point.k) or point.k == 3)
    assert seen == [4, 3]
    assert path.ks == [3, 4]
    assert capsys.readouterr().out.count("relative gap") == 2
    short = sparse_path(X, y, ks=range(1, 21), lams=[1e-3, 0.1], time_limit=1e-3)
    assert len(short) == 40
    assert all(0 <= point.lower_bound <= point.objective for point in short)


def test_default_ks_and_repeated_ones():
    X, y = wide(60, 30)
    path = sparse_path(X, y, lams=1.0)
    assert path.ks[0] == 1
    assert path.ks[-1] == 30
    assert sparse_path(X, y, ks=[2, 2, 1], lams=1.0).ks == [1, 2]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"ks": []}, "ks must hold at least one number"),
        ({"ks": [0]}, "ks must be whole numbers"),
        ({"ks": [1.5]}, "ks must be whole numbers"),
        ({"ks": 3}, "ks must be a sequence"),
        ({"ks": [151]}, "150 features"),
        ({"lams": []}, "lams must be positive"),
        ({"lams": [0.1, -1.0]}, "lams must be positive"),
        ({"loss": "logistic"}, "Unknown label type: continuous"),
        ({"loss": "none"}, "loss"),
        ({"sample_weight": -np.ones(60)}, "sample_weight"),
        ({"solver": "nothing"}, "solver must be one of"),
    ],
)
def test_bad_input_is_named(bad, message):
    X, y = wide()
    with pytest.raises(ValueError, match=message):
        sparse_path(X, y, **bad)


def test_a_missing_library_is_named(monkeypatch):
    X, y = wide()
    path = sparse_path(X, y, ks=[1], lams=1.0)
    there = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.split(".")[0] in ("pandas", "matplotlib"):
            raise ImportError(name)
        return there(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match="pip install pandas"):
        path.to_frame()
    with pytest.raises(ImportError, match="pip install 'diht"):
        path.plot()


@pytest.mark.parametrize("ks", [[1], range(1, 8)])
def test_plot(ks):
    X, y = wide()
    path = sparse_path(X, y, ks=ks, lams=[0.1, 1.0])
    figure = path.plot(1.0)
    top, middle, bottom = figure.axes
    assert_allclose(top.lines[0].get_ydata(), [point.objective for point in path.at(1.0)])
    assert_allclose(top.lines[1].get_ydata(), [point.lower_bound for point in path.at(1.0)])
    used = np.flatnonzero(np.any([point.coef for point in path.at(1.0)], axis=0))
    shown = [line for line in middle.lines if line.get_linestyle() == "-"]
    assert len(shown) == len(used) + 1  # and the line at zero
    assert {label.get_text() for label in bottom.get_yticklabels()} == {f"x{j}" for j in used}
    full = [line for line in bottom.lines if line.get_markerfacecolor() != "white"]
    required = {(point.k, f"x{j}") for point in path.at(1.0) for j in point.certificate.required}
    names = [label.get_text() for label in bottom.get_yticklabels()]
    assert {(k, names[int(y)]) for line in full for k, y in zip(*line.get_data(), strict=True)} == required
    FigureCanvasAgg(figure).draw()
    with pytest.raises(ValueError, match="several"):
        path.plot()


def boxes(axes, renderer):
    """The boxes of all that is written beside and in some axes, without the lines of annotations."""
    for text in axes.texts:
        text.update_positions(renderer)
    texts = [*axes.texts, *axes.get_yticklabels()]
    return [Text.get_window_extent(text) for text in texts if text.get_text()]


@pytest.mark.parametrize("equal", [False, True])
def test_names_beside_the_curves_do_not_overlap(equal):
    """Coefficients that end together, and the most that have names, of the longest names."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.standard_normal((200, 14)), columns=[f"a name of the longest kind {j}" for j in range(14)])
    size = np.ones(14) if equal else np.arange(1.0, 15.0)
    path = sparse_path(X, X.to_numpy() @ size + 0.1 * rng.standard_normal(200), ks=[6, 10, 14], lams=0.1)
    figure = path.plot()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    _, middle, bottom = figure.axes
    assert len(middle.texts) == 12
    assert len({text.get_color() for text in middle.texts}) == 12
    for axes in (middle, bottom):
        found = boxes(axes, canvas.get_renderer())
        assert not any(a.overlaps(b) for i, a in enumerate(found) for b in found[:i])
        assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in found)


def test_examples_of_the_docstrings():
    assert doctest.testmod(diht.estimators.path).failed == 0


@pytest.mark.parametrize("solver", ["auto", "iht"])
def test_the_loop_solves_every_point(solver):
    """Each has its trace, whose figures are those of the result, and says which method found it."""
    problem = problem_of(Logistic(), 2, False, True)
    for result in solve_path(problem, [1, 3, 5], [0.01, 0.1], solver).values():
        best = result.trace[-1]
        assert best.best_objective >= result.objective * (1 - 1e-12)
        assert best.best_bound <= result.lower_bound + 1e-12
        assert best.passes <= result.n_passes
        assert result.solver == repr(as_solver(solver))


def test_a_path_without_time_says_so():
    problem = problem_of(Logistic(), 2, False, True)
    results = solve_path(problem, [1, 3, 5], [1e-4, 1e-3], tol=0.0, time_limit=1e-9)
    assert {result.status for result in results.values()} <= {Status.TIME_LIMIT, Status.OPTIMAL}
    assert any(result.status is Status.TIME_LIMIT for result in results.values())

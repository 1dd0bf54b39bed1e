"""Rows on the workers of a Dask cluster: equal answers, whatever happens to the workers."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import warnings
from itertools import pairwise
from time import sleep

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import KFold, StratifiedKFold

from cases import crossed
from diht import (
    Problem,
    SparseClassifier,
    SparseClassifierCV,
    SparseRegressor,
    SparseRegressorCV,
    refit,
    solve,
    sparse_path,
)
from diht.dask.cluster import Cluster
from diht.dask.data import RemoteData
from diht.design import row_blocks
from diht.estimators.folds_there import FoldRule
from diht.losses import LOSSES
from diht.problem import Targets
from diht.samples.memory import MemorySamples
from diht.samples.program import Group, Here, Shard
from diht.samples.remote import RemoteSamples
from diht.solvers.auto import STAGES
from diht.solvers.auto.profile import Profile
from fuzz_judge import assert_true_bounds, loss_of

pytest.importorskip("distributed", reason="rows on a cluster need the extra 'dask'")

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd
from distributed import Client, LocalCluster


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def data(task="classification", n=240, d=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.5
    u = X[:, 0] - 2.0 * X[:, 3] + 0.5 * rng.normal(size=n)
    return X, np.where(u > np.median(u), "yes", "no") if task == "classification" else u


def agree(there, here, tol=1e-8):
    assert there.support_.tolist() == here.support_.tolist()
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=0, atol=1e-6)
    np.testing.assert_allclose(there.intercept_, here.intercept_, rtol=0, atol=1e-6)
    np.testing.assert_allclose(there.objective_, here.objective_, rtol=tol, atol=tol)
    np.testing.assert_allclose(there.lower_bound_, here.lower_bound_, rtol=tol, atol=tol)


def chunked(*arrays, rows=70):
    return [da.from_array(a, chunks=(rows, *a.shape[1:])) for a in arrays]


# Shards in this process, all that travels pickled


class Lossy(Here):
    """Shards that are lost now and then."""

    def __init__(self, sources, every=0):
        super().__init__(sources)
        self.every, self.calls, self.longest = every, 0, 0

    def run(self, programs, rebuilding):
        self.calls += 1
        answers = []
        for i, shard in enumerate(self._shards):
            program = programs[i]
            if self.every and (self.calls + i) % self.every == 0:
                shard = self._shards[i] = Shard(shard._values[0])
                program = rebuilding(i)
            answers.append(cloudpickle.dumps(shard.run(pickle.loads(cloudpickle.dumps(program)))))
            self.longest = max(self.longest, len(answers[-1]))
        return [pickle.loads(answer) for answer in answers]


def remote(X, y, s, every=0):
    """Samples in two shards of two blocks each, not in the order of the rows."""
    cuts = np.linspace(0, len(y), 5).astype(int).tolist()
    ranges = [[(cuts[0], cuts[1]), (cuts[3], cuts[4])], [(cuts[1], cuts[2]), (cuts[2], cuts[3])]]
    sources = [
        MemorySamples(
            row_blocks([X[a:b] for a, b in runs], 1), *(np.concatenate([v[a:b] for a, b in runs]) for v in (y, s))
        )
        for runs in ranges
    ]
    group = Group(Lossy(sources, every))
    return RemoteSamples.of(group, X.shape[1], X.dtype, sp.issparse(X), 1, ranges)


def problem_data(loss, n=90, d=6, sparse=False, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.5
    if sparse:
        X = sp.csr_array(np.where(rng.random((n, d)) < 0.5, X, 0.0))
    u = X @ np.array([1.0, -1.0, *np.zeros(d - 2)])
    noisy = u - u.mean() + rng.normal(size=n)
    y = np.sign(noisy) if loss.task == "classification" else noisy
    if loss.nonnegative_targets:
        y = rng.poisson(np.exp(np.clip(0.5 * noisy, -3, 3))).astype(float) + loss.positive_targets
    s = rng.uniform(0.5, 2.0, size=n)
    return X, y, s / s.sum()


@pytest.mark.parametrize(("name", "sparse"), crossed([*LOSSES], [False, True]))
def test_every_loss_agrees_with_memory(name, sparse):
    """Dense with an intercept, sparse without; benchmarks/equal.py has 200 problems."""
    loss = LOSSES[name]()
    X, y, s = problem_data(loss, n=60, d=5, sparse=sparse)
    here = solve(Problem(X, y, loss, 2, 0.1, s, not sparse), tol=1e-10)
    there = solve(Problem.of_samples(remote(X, y, s), loss, 2, 0.1, not sparse), tol=1e-10)
    assert there.support.tolist() == here.support.tolist()
    assert abs(there.objective - here.objective) <= 1e-8 * abs(here.objective)
    assert abs(there.lower_bound - here.lower_bound) <= 1e-8 * abs(here.objective)


def stated(case, constraint):
    X, s = case.stored, np.ones(len(case.X)) if case.weights is None else case.weights
    samples = remote(sp.csr_array(X) if sp.issparse(X) else X, case.y.ravel().astype(float), s / s.sum())
    return Problem.of_samples(samples, loss_of(case), constraint, case.lam, case.fit_intercept, case.scale)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_small_problems_get_the_stages_that_they_get_in_memory(loss):
    X, y, s = problem_data(LOSSES[loss]())
    here = Problem(X, y, loss, 2, 0.1, s, True)
    there = Problem.of_samples(remote(X, y, s), LOSSES[loss](), 2, 0.1, True)
    memory, other = ([stage for stage in STAGES if stage.applies(Profile(problem))] for problem in (here, there))
    assert other == memory


@pytest.mark.parametrize("start", [np.zeros(3), np.array([1.0, -1.0, 0.0])])
def test_hinge_of_few_features_in_few_round_trips(start):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 3))
    y, s = np.where(X @ [1.0, -1.0, 0.3] + rng.normal(size=20_000) > 0.2, 1.0, -1.0), np.full(20_000, 1 / 20_000)
    samples, hinge = remote(X, y, s), LOSSES["hinge"]()
    here = refit.refit(Problem(X, y, hinge, 3, 0.01, s, True), np.arange(3))
    problem = Problem.of_samples(samples, hinge, 3, 0.01, True)
    before = samples.group.trips
    there = refit.refit(problem, np.arange(3), start)
    np.testing.assert_allclose(there.objective, here.objective, rtol=1e-12)
    np.testing.assert_allclose(there.values, here.values, rtol=0, atol=1e-6)
    assert samples.group.trips - before <= 40
    assert samples.group.shards.longest <= 20_000  # bytes that a shard answers: no term in the samples


@pytest.mark.parametrize("seeds", [[1, *range(9, 14)], pytest.param(range(14, 40), marks=pytest.mark.slow)])
def test_bounds_are_true_against_brute_force(seeds):
    """Problems of the fuzzer; the best of all models, with 200 digits, is from code that shares nothing with the package."""
    assert_true_bounds(seeds, stated)


@pytest.mark.parametrize("intercept", np.linspace(-3.0, 3.0, 7).tolist())
def test_the_intercept_of_a_loss_that_jumps(intercept):
    """Its slope changes sign there: by the subgradient of numpy's sums over all samples, in few round trips."""
    X, y, s = problem_data(LOSSES["hinge"](), n=200)
    samples, u = remote(X, y, s), X @ np.arange(6.0)
    before = samples.group.trips
    b = samples.best_intercept(LOSSES["hinge"](), samples.put(u), intercept)
    assert samples.group.trips - before <= 4
    below, above = (float(s @ np.where(y * (u + at) < 1.0, -y, 0.0)) for at in (b - 1e-9, b + 1e-9))
    assert below <= 0.0 <= above


@pytest.mark.parametrize("solver", ["auto", "diht", "sdiht", "iht", "htp", "svrght", "relaxed"])
def test_every_method_ends_the_same_after_losses(solver):
    """Also bit by bit: lost shards are made again, and sums are added in the same order."""
    loss = LOSSES["logistic"]()
    X, y, s = problem_data(loss)
    limit = None if solver == "auto" else 30
    here = solve(Problem(X, y, loss, 2, 0.1, s, True), solver, max_iter=limit)
    there, lossy = (
        solve(Problem.of_samples(remote(X, y, s, every), loss, 2, 0.1, True), solver, max_iter=limit)
        for every in (0, 7)
    )
    assert lossy.objective == there.objective
    assert lossy.lower_bound == there.lower_bound
    assert abs(there.objective - here.objective) <= 1e-8 * abs(here.objective)
    assert abs(there.lower_bound - here.lower_bound) <= 1e-8 * abs(here.objective)


def test_nothing_that_travels_is_as_long_as_the_samples():
    loss = LOSSES["logistic"]()
    longest = []
    for n in (400, 4000):
        X, y, s = problem_data(loss, n=n)
        samples = remote(X, y, s)
        solve(Problem.of_samples(samples, loss, 2, 0.1, True), max_iter=3)
        longest.append(samples.group.shards.longest)
    assert longest[1] <= longest[0] + 200  # bytes: N numbers would be 14400 more


def test_vectors_go_and_come_in_the_order_of_the_rows():
    X, y, s = problem_data(LOSSES["squared"]())
    samples = remote(X, y, s)
    assert samples.fetch(samples.y).tolist() == y.tolist()
    assert samples.fetch(samples.put(np.arange(90.0))).tolist() == list(range(90))
    np.testing.assert_allclose(samples.fetch(samples.margins(np.ones(6))), X @ np.ones(6), rtol=1e-14)


def test_values_are_forgotten():
    X, y, s = problem_data(LOSSES["squared"]())
    samples = remote(X, y, s)
    for _ in range(20):
        samples.value(LOSSES["squared"](), samples.margins(np.ones(6)))
    samples.total(np.ones_like)
    assert all(len(shard._values) <= 3 for shard in samples.group.shards._shards)


@pytest.mark.parametrize("sparse", [False, True])
def test_error_bounds_allow_for_the_shards(sparse):
    """What is taken off a bound is no less than in memory, and holds against products in more digits."""
    loss = LOSSES["logistic"]()
    X, y, s = problem_data(loss, sparse=sparse)
    scale = np.linspace(1.0, 2.0, 6)
    here = Problem(X, y, loss, 2, 0.1, s, True, scale=scale)
    there = Problem.of_samples(remote(X, y, s), loss, 2, 0.1, True, scale)
    a = np.random.default_rng(3).normal(size=len(y))
    c, w = s * a, np.arange(6.0)
    error = there.design.rmatvec_error(float(np.linalg.norm(c)) * (1 + 1e-15))
    dense = X.toarray() if sparse else X
    Z = (dense.astype(np.longdouble) - there.center) / scale
    assert np.all(np.abs(there.samples.pull(there.samples.put(a)) - Z.T @ c) <= error)
    assert np.all(there.design.rmatvec_error(1.0) >= here.design.stored.rmatvec_error(1.0) / scale)
    margins = there.samples.fetch(there.samples.margins(w))
    assert np.all(np.abs(margins - Z @ w) <= there.design.matvec_error(w))
    np.testing.assert_allclose(there.design.column_norms(), here.design.column_norms(), rtol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_gram_matrices_are_within_their_error(sparse):
    X, y, s = problem_data(LOSSES["squared"](), d=6)
    if sparse:
        X = sp.csr_array(np.where(np.random.default_rng(5).random(X.shape) < 0.08, X, 0.0))
    problem = Problem.of_samples(remote(X, y, s), LOSSES["squared"](), 2, 0.1, True)
    features = np.array([1, 2, 4, 5])
    first = problem.samples.gram(features[:2], True)
    for found in (problem.samples.gram(features, True), problem.samples.gram(features, True, first)):
        columns = [(X.toarray() if sparse else X)[:, features], problem.samples.fetch(problem.y)[:, None]]
        Z, weights = np.hstack(columns).astype(np.longdouble), s.astype(np.longdouble)
        Z = Z - weights @ Z / weights.sum()
        exact = (Z.T * weights) @ Z
        assert np.all(np.abs(found.matrix - exact) <= found.error * np.outer(found.size, found.size))
        assert found.error < 1e-12


def test_a_long_chain_of_values():
    """Vectors of a method that makes many steps; none of them is computed by recursion."""
    X, y, s = problem_data(LOSSES["squared"]())
    samples = remote(X, y, s)
    u = samples.full(0.0)
    for _ in range(2_000):
        u = samples.shifted(u, 1.0)
    assert samples.largest(lambda y, u: u, u) == 2_000.0
    samples.group.shards.every = 1  # all are lost
    assert samples.largest(lambda y, u: u, u) == 2_000.0


def test_roots_of_hessians_of_several_classes():
    loss = LOSSES["logistic"]().of_classes()
    X, y, s = problem_data(LOSSES["squared"]())
    targets = np.eye(3)[np.digitize(y, [-0.5, 0.5])]
    here = Problem(X, targets, loss, 2, 0.1, s, True).samples
    one = remote(X, y, s)
    rows = one.map(lambda y, s: np.where(np.digitize(y, [-0.5, 0.5]) == np.arange(3)[:, None], 1.0, 0.0))
    there = Problem.of_samples(one, loss, 2, 0.1, True, targets=Targets(rows, 3)).samples
    R, Q = (
        samples.hessian_root(samples.curvatures(loss, samples.margins(np.arange(18.0) / 9)), True, 0.1)
        for samples in (there, here)
    )
    np.testing.assert_allclose(R.T @ R, Q.T @ Q, atol=1e-12)


@pytest.mark.parametrize("splitter", [KFold(4), KFold(7), StratifiedKFold(4), StratifiedKFold(7)], ids=repr)
def test_folds_are_those_of_scikit_learn(splitter):
    """Though shards hold the samples in another order; shuffled ones have as many samples of each class to within one."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        y = rng.permutation(np.repeat([2.0, 0.0, 1.0], [23, 41, 9]))
        samples = remote(rng.normal(size=(73, 2)), y, np.ones(73) / 73)
        data = RemoteData(samples, None, np.arange(3), 0, 73.0, None, False, False)
        found = samples.fetch(FoldRule.of(splitter, True).numbers(data))
        expected = np.empty(73)
        for i, (_, test) in enumerate(splitter.split(y, y)):
            expected[test] = i
        assert found.tolist() == expected.tolist()
        shuffled = type(splitter)(splitter.n_splits, shuffle=True, random_state=3)
        dealt = samples.fetch(FoldRule.of(shuffled, True).numbers(data))
        assert np.ptp(np.bincount(dealt.astype(int))) <= (3 if isinstance(splitter, StratifiedKFold) else 1)
        if isinstance(splitter, StratifiedKFold):
            counts = np.histogram2d(y, dealt, [3, splitter.n_splits])[0]
            assert np.ptp(counts, axis=1).max() <= 1
        assert not np.array_equal(dealt, found)


@pytest.mark.parametrize("name", [*LOSSES])
@pytest.mark.parametrize("intercept", [False, True])
def test_models_of_few_looks(name, intercept):
    """The best model on given features is that of rows in memory, from near and from far, after fewer round trips."""
    loss = LOSSES[name]()
    for seed in range(3):
        X, y, s = problem_data(loss, n=120, seed=seed)
        features = np.array([0, 1, 4])
        here = refit.refit(Problem(X, y, loss, 3, 0.01, s, intercept), features)
        there = Problem.of_samples(remote(X, y, s), loss, 3, 0.01, intercept)
        for start in (None, 30.0 * np.random.default_rng(seed).normal(size=6)):
            before = there.samples.group.trips
            found = refit.refit(there, features, start)
            assert abs(found.objective - here.objective) <= 1e-11 * abs(here.objective)
            np.testing.assert_allclose(found.values, here.values, atol=1e-5)
            assert there.samples.group.trips - before <= 120


# On a cluster


def test_classes_intercept_weights_and_scales(client):
    X, y = data()
    s = np.random.default_rng(1).uniform(0.5, 2.0, size=len(y))
    settings = {"k": 2, "lam": 0.05, "class_weight": "balanced"}
    here = SparseClassifier(**settings).fit(X, y, s)
    there = SparseClassifier(**settings).fit(*chunked(X, y, s))
    agree(there, here)
    assert there.classes_.tolist() == ["no", "yes"]
    assert there.n_samples_fit_ == len(y)
    assert pickle.loads(pickle.dumps(there)).predict(X).tolist() == here.predict(X).tolist()
    with pytest.raises(AttributeError):
        there.dual_coef_  # noqa: B018


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_regression(client, loss):
    X, y = data("regression")
    settings = {"k": 2, "lam": 0.05, "loss": loss}
    agree(SparseRegressor(**settings).fit(*chunked(X, y)), SparseRegressor(**settings).fit(X, y))


def test_delayed_sparse_blocks_with_an_empty_one(client):
    X, y = data()
    X = sp.csr_matrix(np.where(X > 0.8, X, 0.0))
    cuts = [0, 100, 100, 240]
    blocks = [[dask.delayed(v[a:b]) for a, b in pairwise(cuts)] for v in (X, y)]
    settings = {"k": 2, "lam": 0.05, "standardize": False}
    there = SparseClassifier(**settings).fit(*blocks)
    agree(there, SparseClassifier(**settings).fit(X, y))
    lazy = there.predict(blocks[0])
    assert isinstance(lazy, da.Array)
    assert lazy.compute().tolist() == there.predict(X).tolist()


def test_data_frames(client):
    X, y = data()
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(8)])
    dX, dy = (dd.from_pandas(v, npartitions=3) for v in (frame, pd.Series(y)))
    here = SparseClassifier(k=2, lam=0.05).fit(frame, y)
    there = SparseClassifier(k=2, lam=0.05).fit(dX, dy)
    agree(there, here)
    assert there.feature_names_in_.tolist() == here.feature_names_in_.tolist()
    assert there.predict(dX).compute().tolist() == here.predict(frame).tolist()
    np.testing.assert_allclose(there.predict_proba(dX).compute(), here.predict_proba(frame), atol=1e-6)


def test_columns_in_chunks_and_rows_of_unknown_number(client):
    X, y = data()
    there = SparseClassifier(k=2, lam=0.05).fit(da.from_array(X, chunks=(70, 3)), da.from_array(y, chunks=50))
    agree(there, SparseClassifier(k=2, lam=0.05).fit(X, y))
    dX, dy = chunked(X, y)
    kept = dX[:, 1] > 0.0
    there = SparseClassifier(k=2, lam=0.05).fit(dX[kept], dy[kept])
    agree(there, SparseClassifier(k=2, lam=0.05).fit(X[X[:, 1] > 0.0], y[X[:, 1] > 0.0]))


@pytest.mark.parametrize("loss", ["squared", "huber", "poisson"])
def test_offsets(client, loss):
    X, u = data("regression", n=60, d=4)
    rng = np.random.default_rng(2)
    offset, s = rng.normal(size=60), rng.uniform(0.5, 2.0, size=60)
    y = u + offset if loss != "poisson" else rng.poisson(np.exp(np.clip(0.3 * u + offset, -3, 3))).astype(float)
    settings = {"k": 2, "lam": 0.05, "loss": loss}
    here = SparseRegressor(**settings).fit(X, y, s, offset=offset)
    dX, dy, ds, known = chunked(X, y, s, offset)
    there = SparseRegressor(**settings).fit(dX, dy, ds, offset=known)
    agree(there, here)
    np.testing.assert_allclose(there.predict(dX, known).compute(), here.predict(X, offset), rtol=1e-6)
    with pytest.raises(ValueError, match="offset must be a Dask collection"):
        there.predict(dX, offset=offset)
    path = sparse_path(dX, dy, ks=[1, 2], lams=0.05, loss=loss, sample_weight=ds, offset=known)
    assert abs(path.point(2).objective - here.objective_) <= 1e-8 * here.objective_


def test_offsets_that_are_refused(client):
    X, u = data("regression", n=60, d=4)
    with pytest.raises(ValueError, match="offset must be finite, got nan at row 5 in block 0"):
        SparseRegressor(k=1).fit(*chunked(X, u), offset=da.from_array(np.where(np.arange(60) == 5, np.nan, 0.0)))
    with pytest.raises(ValueError, match="offset must not be so large for the poisson loss"):
        SparseRegressor(k=1, loss="poisson").fit(*chunked(X, np.abs(u)), offset=chunked(1e3 * u)[0])


def agree_in_folds(there, here):
    assert (there.best_k_, there.best_lam_) == (here.best_k_, here.best_lam_)
    for name in here.cv_results_:
        if name.startswith("split"):
            np.testing.assert_allclose(there.cv_results_[name], here.cv_results_[name], rtol=1e-5)
    agree(there, here)
    for one, other in zip(there.path_, here.path_, strict=True):
        assert abs(one.objective - other.objective) <= 1e-8 * other.objective
        assert one.lower_bound <= other.objective
    pickle.dumps(there)


def agree_in_paths(there, here):
    for one, other in zip(there, here, strict=True):
        assert one.support.tolist() == other.support.tolist()
        assert -1e-8 * other.objective <= one.objective - other.objective <= 1e-12 * other.objective
        assert abs(one.lower_bound - other.lower_bound) <= 1e-4 * other.objective
        assert one.lower_bound <= other.objective


def test_regression_by_cross_validation(client):
    X, u = data("regression", n=60, d=4)
    rng = np.random.default_rng(3)
    s, offset = rng.uniform(0.5, 2.0, size=60), rng.normal(size=60)
    settings = {"ks": [1, 2], "lams": [0.01, 0.1], "cv": 3}
    dX, dy, ds, known = chunked(X, u + offset, s, offset)
    for scoring in (None, "r2"):
        here = SparseRegressorCV(**settings, scoring=scoring).fit(X, u + offset, s, offset=offset)
        agree_in_folds(SparseRegressorCV(**settings, scoring=scoring).fit(dX, dy, ds, offset=known), here)


@pytest.mark.parametrize("settings", [pytest.param({}, marks=pytest.mark.slow), {"criterion": "bic"}], ids=str)
def test_counts_by_cross_validation(client, settings):
    X, u = data("regression", n=60, d=4)
    counts = np.random.default_rng(3).poisson(np.exp(np.clip(0.3 * u, -3, 3))).astype(float)
    settings = {"ks": [1, 2], "lams": 0.1, "cv": 2, "loss": "poisson", **settings}
    here = SparseRegressorCV(**settings).fit(X, counts)
    agree_in_folds(SparseRegressorCV(**settings).fit(*chunked(X, counts)), here)


@pytest.mark.parametrize("scoring", [None, "neg_log_loss", "balanced_accuracy"])
def test_classes_by_cross_validation(client, scoring):
    X, y = data(n=60, d=4)
    s = np.random.default_rng(3).uniform(0.5, 2.0, size=60)
    settings = {"ks": [1, 2], "lams": 0.1, "cv": 2, "class_weight": "balanced", "scoring": scoring}
    here = SparseClassifierCV(**settings).fit(X, y, s)
    agree_in_folds(SparseClassifierCV(**settings).fit(*chunked(X, y, s)), here)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cv": [([0], [1])]}, "cv must be a number of folds, a KFold or a StratifiedKFold"),
        ({"cv": 200}, "cv=200 needs as many samples of each class, got 60"),
        ({"scoring": "roc_auc"}, "scoring must be one of .* got 'roc_auc'"),
        ({"criterion": "best"}, "criterion must be one of"),
    ],
)
def test_what_cross_validation_refuses(client, settings, message):
    X, y = data(n=120, d=4)
    with pytest.raises(ValueError, match=message) as caught:
        SparseClassifierCV(ks=[1], **settings).fit(*chunked(X, y))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("settings", [{}, {"multiclass": "ovr"}, {"loss": "multinomial"}], ids=repr)
def test_three_classes(client, settings):
    X, _ = data(n=120, d=5)
    y = np.digitize(X[:, 0] - X[:, 3], [-0.5, 0.5])
    settings = {"k": 2, "lam": 0.1, **settings}
    agree(SparseClassifier(**settings).fit(*chunked(X, y, rows=50)), SparseClassifier(**settings).fit(X, y), 1e-7)


def test_three_classes_on_paths(client):
    X, _ = data(n=60, d=4)
    y = np.digitize(X[:, 0] - X[:, 3], [-0.5, 0.5])
    settings = {"ks": [1, 2], "lams": [0.1], "loss": "multinomial"}
    agree_in_paths(*(sparse_path(*given, **settings) for given in (chunked(X, y, rows=50), (X, y))))


@pytest.mark.slow
def test_three_classes_in_folds(client):
    X, _ = data(n=60, d=4)
    y = np.digitize(X[:, 0] - X[:, 3], [-0.5, 0.5])
    settings = {"ks": [1, 2], "lams": [0.1], "loss": "multinomial"}
    here = SparseClassifierCV(**settings, cv=2).fit(X, y)
    agree_in_folds(SparseClassifierCV(**settings, cv=2).fit(*chunked(X, y, rows=50)), here)


def test_two_targets(client):
    X, u = data("regression", n=60, d=4)
    y = np.column_stack([u, X[:, 1] - u])
    agree(SparseRegressor(k=2, lam=0.1).fit(*chunked(X, y)), SparseRegressor(k=2, lam=0.1).fit(X, y))


@pytest.mark.parametrize(
    "settings",
    [{"groups": [0, 0, 1, 1, 2, 2, 3, 3]}, {"keep": [5]}, {"sign": 1}, {"bounds": (-0.3, 0.4)}],
    ids=["groups", "keep", "sign", "bounds"],
)
def test_constraints(client, settings):
    X, y = data(n=120)
    settings |= {"k": 2, "lam": 0.1, "tol": 1e-10}
    agree(SparseClassifier(**settings).fit(*chunked(X, y)), SparseClassifier(**settings).fit(X, y))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_paths(client, loss):
    X, y = data("regression" if loss == "squared" else "classification", n=120)
    here, there = (sparse_path(*given, ks=[1, 3], lams=[0.1, 1.0], loss=loss) for given in ((X, y), chunked(X, y)))
    agree_in_paths(there, here)
    # On a cluster Newton's method takes its last step, which the tolerance of a path saves in memory.
    np.testing.assert_allclose(there.criterion("ebic"), here.criterion("ebic"), rtol=1e-6)


def test_rows_stay_where_they_are(client):
    X, y = data()
    dX, dy = client.persist(chunked(X, y, rows=30))
    agree(SparseClassifier(k=2, lam=0.05).fit(dX, dy), SparseClassifier(k=2, lam=0.05).fit(X, y))


def test_without_a_client():
    X, y = data()
    agree(SparseClassifier(k=2, lam=0.05).fit(*chunked(X, y)), SparseClassifier(k=2, lam=0.05).fit(X, y))


def test_predictions_are_lazy(client):
    X, y = data("regression")
    model = SparseRegressor(k=2, lam=0.05).fit(X, y)
    touched = []
    dX = da.from_array(X, chunks=(70, 8)).map_blocks(lambda block: touched.append(1) or block, dtype=float)
    touched.clear()
    lazy, selected = model.predict(dX), model.transform(dX)
    assert not touched
    assert lazy.shape == (240,)
    np.testing.assert_allclose(lazy.compute(), model.predict(X))
    assert selected.compute().tolist() == X[:, model.support_].tolist()


def broken(what):
    X, y = data()
    if what == "nan":
        X[101, 2] = np.nan
    if what == "target":
        y = y.astype(object)
        y[3:] = 1.0
    if what == "class":
        y[:] = "yes"
    weights = np.ones(len(y))
    if what == "weight":
        weights[80] = -1.0
    dX, dy, ds = chunked(X, y, weights)
    if what == "blocks":
        dX, dy = dX.to_delayed().ravel().tolist(), dy.to_delayed().ravel().tolist()[:-1]
    if what == "rows":
        dX, dy = dX.to_delayed().ravel().tolist(), dy[1:].to_delayed().ravel().tolist()
    if what == "columns":
        dX = [dask.delayed(X[:70]), dask.delayed(X[70:140, :5]), dask.delayed(X[140:])]
        dy = [dask.delayed(part) for part in (y[:70], y[70:140], y[140:])]
        ds = None
    return dX, dy, ds


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("nan", "NaN at row 31 in block 1"),
        ("class", "at least two classes"),
        ("weight", "negative, got -1.0 at row 10 in block 1"),
        ("blocks", "y must have the blocks of X, got 3 blocks beside 4"),
        ("rows", "same rows, got 70 and 69 in block 0"),
        ("columns", "same number of columns, got 8 in block 0 and 5 in block 1"),
    ],
)
def test_what_is_refused(client, what, message):
    with pytest.raises(ValueError, match=message) as caught:
        SparseClassifier(k=2).fit(*broken(what))
    assert "\n" not in str(caught.value)


def test_nothing_else_gathers_the_rows(client):
    X, y = data("regression")
    dX, dy = chunked(X, y)
    with pytest.raises(ValueError, match="Dask"):
        Problem(dX, y, "squared", 2)
    with pytest.raises(ValueError, match="Dask"):
        sparse_path(X, dy)
    with pytest.raises(ValueError, match="y must be a Dask"):
        SparseRegressorCV(ks=[1, 2]).fit(dX, y)
    with pytest.raises(ValueError, match="offset must be a Dask"):
        SparseRegressor(k=2).fit(dX, dy, offset=y)
    with pytest.raises(ValueError, match="Dask"):
        SparseRegressor(k=2).fit(X, dy)
    with pytest.raises(ValueError, match="Dask"):
        SparseRegressor(k=2).fit(dX, y)


@pytest.fixture
def mortals(monkeypatch):
    """Two workers in processes of their own, which begin again when they are killed; however slow the machine is."""
    patience = {"distributed.deploy.lost-worker-timeout": "5 minutes", "diht.lost-workers-timeout": "5 minutes"}
    with warnings.catch_warnings(), dask.config.set(patience):
        warnings.simplefilter("ignore")
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
            Client(cluster),
        ):
            yield cluster


def kill(cluster, at_least=1, most=2):
    """Kill workers, so many or all, once there are enough, and wait until the scheduler has noticed."""
    known = cluster.scheduler.workers
    while len(known) < at_least:
        sleep(0.01)
    gone = list(known)[:most]
    for nanny in list(cluster.workers.values()):
        if nanny.worker_address in gone:
            os.kill(nanny.pid, signal.SIGKILL)
    while set(gone) & set(known):
        sleep(0.01)


@pytest.mark.slow
@pytest.mark.linux
def test_a_worker_that_is_killed(mortals, monkeypatch):
    """The other one takes over its rows, and the answer is the same."""
    X, y = data("regression", n=60, d=4)
    here, clusters = SparseRegressor(k=2, lam=0.01).fit(X, y), watched_clusters(monkeypatch)
    within_a_fit(monkeypatch, lambda: kill(mortals, 2, most=1))
    agree(SparseRegressor(k=2, lam=0.01).fit(*chunked(X, y, rows=20)), here)
    assert clusters[0].losses >= 1


@pytest.mark.slow
@pytest.mark.linux
def test_workers_that_are_killed_three_times(mortals, monkeypatch):
    """Others take over their rows, also where for a moment there is no worker at all, and the answers are the same."""
    X, y = data(n=120, d=8)
    settings, given = {"k": 2, "lam": 0.01}, chunked(X, y, rows=40)
    here, clusters = SparseClassifier(**settings).fit(X, y), watched_clusters(monkeypatch)
    within_a_fit(monkeypatch, lambda: kill(mortals, 2), lambda: kill(mortals))
    agree(SparseClassifier(**settings).fit(*given), here)
    within_a_fit(monkeypatch, lambda: kill(mortals))
    agree(SparseClassifier(**settings).fit(*given), here)
    assert clusters[0].losses >= 3
    assert clusters[1].losses >= 1


@pytest.mark.slow
@pytest.mark.linux
def test_workers_that_are_killed_while_they_load(mortals):
    """Blocks that no worker could be found for are loaded by those that join."""
    X, y = data(n=120, d=8)
    timer = threading.Timer(0.3, kill, [mortals])
    slow = [[dask.delayed(slowly)(part) for part in np.split(given, 4)] for given in (X, y)]
    timer.start()
    agree(SparseClassifier(k=2, lam=0.01).fit(*slow), SparseClassifier(k=2, lam=0.01).fit(X, y))
    timer.join()


def slowly(part):
    sleep(0.5)
    return part


@pytest.mark.linux
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("times", [1, 2])
def test_interrupts(client, monkeypatch, times):
    """The first Ctrl-C keeps the best model so far, with a warning; the second interrupts. The cluster can be used after each."""
    X, y = data("regression", n=60, d=6)
    settings, given = {"k": 2, "lam": 0.01}, chunked(X, y)
    within_a_fit(monkeypatch, lambda: [signal.raise_signal(signal.SIGINT) for _ in range(times)])
    if times == 2:
        with pytest.raises(KeyboardInterrupt):
            SparseRegressor(**settings).fit(*given)
    else:
        with pytest.warns(UserWarning, match="stopped by Ctrl-C: the model is the best found so far"):
            model = SparseRegressor(**settings).fit(*given)
        assert model.result_.status == "stopped"
        assert len(model.support_) <= 2
        assert model.lower_bound_ <= SparseRegressor(**settings, exact=True).fit(X, y).objective_
    monkeypatch.undo()
    agree(SparseRegressor(**settings).fit(*given), SparseRegressor(**settings).fit(X, y))


class InTurn:
    """Does one thing after the other, each time it is asked whether to stop."""

    def __init__(self, what):
        self.what = list(what)

    def __call__(self):
        if self.what:
            self.what.pop(0)()
        return False


def within_a_fit(monkeypatch, *what):
    """Do something after each of the first steps of the next fit."""
    stop = InTurn(what)
    monkeypatch.setattr("diht.estimators.base.solve", lambda *args: solve(*args, stop=stop))


def watched_clusters(monkeypatch):
    clusters, make = [], Cluster.__init__
    monkeypatch.setattr(Cluster, "__init__", lambda self, *args: clusters.append(self) or make(self, *args))
    return clusters


def test_a_worker_that_joins(monkeypatch):
    """It takes over rows of one that holds several shards, and the answer is the same."""
    monkeypatch.setattr("diht.dask.data._LARGE", 1)
    monkeypatch.setattr("diht.dask.cluster._LOOK_AROUND", 0.0)
    clusters = watched_clusters(monkeypatch)
    X, y = data(n=200, d=5)
    settings = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with LocalCluster(**settings) as cluster, Client(cluster) as client:
        within_a_fit(monkeypatch, lambda: cluster.scale(2) or client.wait_for_workers(2))
        there = SparseClassifier(k=2, lam=0.01).fit(*chunked(X, y))
        monkeypatch.undo()
    assert (clusters[0].moves, clusters[0].losses) == (1, 0)
    agree(there, SparseClassifier(k=2, lam=0.01).fit(X, y))


def test_all_workers_lost(monkeypatch):
    """One line says so, and the next call begins at the best model so far."""
    monkeypatch.setattr("diht.dask.cluster.LOOK", 0.2)
    X, y = data(n=200, d=5)
    settings = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with (
        dask.config.set({"diht.lost-workers-timeout": "200 ms"}),
        LocalCluster(**settings, processes=False) as cluster,
        Client(cluster) as client,
    ):
        model = SparseClassifier(k=2, lam=0.01, tol=1e-10)
        given = chunked(X, y)

        def lose():
            cluster.scale(0)
            while client.ncores():
                sleep(0.01)

        within_a_fit(monkeypatch, lose)
        with pytest.raises(RuntimeError, match=r"all Dask workers are lost.* goes on from the best model") as caught:
            model.fit(*given)
        assert "\n" not in str(caught.value)
        [kept] = pickle.loads(pickle.dumps(model)).checkpoint_.values()
        assert 0 < np.count_nonzero(kept) <= 2
        cluster.scale(1)
        client.wait_for_workers(1)
        starts = []
        monkeypatch.setattr(
            "diht.estimators.base.solve", lambda *args, **named: starts.append(args[2]) or solve(*args, **named)
        )
        agree(model.fit(*given), SparseClassifier(k=2, lam=0.01, tol=1e-10).fit(X, y))
        assert np.flatnonzero(starts[0]).tolist() == np.flatnonzero(kept).tolist()
        assert not hasattr(model, "checkpoint_")

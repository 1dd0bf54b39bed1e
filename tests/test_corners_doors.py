"""What comes in and goes out: sizes beyond memory, defaults for any data, files that survive, messages of one clear line."""

from importlib import import_module
from itertools import combinations
from pkgutil import walk_packages

import numpy as np
import pytest
import scipy.sparse as sp

import diht
from diht import Problem, SparseClassifier, SparseRegressor, certify, solve
from diht.constraint import Constraint
from diht.design import AffineView, as_design
from diht.duality import Bound, primal
from diht.empty_columns import PaddedBound
from diht.loop import SOLVERS, as_solver
from diht.losses import LOSSES
from diht.solvers import SDIHT, SVRGHT, Solver

RNG = np.random.default_rng(11)
X = RNG.normal(size=(40, 5))
Y = X[:, 1] - 2 * X[:, 3] + 0.1 * RNG.normal(size=40)


# Defaults


def through_skops(model):
    sio = pytest.importorskip("skops.io")
    return sio.loads(sio.dumps(model), trusted=diht.SKOPS_TRUSTED)


@pytest.mark.parametrize("name", SOLVERS)
def test_an_estimator_with_any_solver_goes_through_skops(name):
    model = SparseRegressor(k=2, lam=1.0, solver=SOLVERS[name]()).fit(X, Y)
    back = through_skops(model)
    assert back.solver == model.solver
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


@pytest.mark.parametrize("name", LOSSES)
def test_an_estimator_with_any_loss_goes_through_skops(name):
    loss = LOSSES[name]()
    kind, y = (SparseRegressor, np.abs(Y)) if loss.task == "regression" else (SparseClassifier, Y > 0)
    model = kind(k=2, lam=1.0, loss=loss).fit(X, y)
    back = through_skops(model)
    assert back.loss == loss
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def test_a_multinomial_model_that_was_read_goes_through_skops(tmp_path):
    model = SparseClassifier(k=2, lam=1.0, loss="multinomial").fit(X, np.arange(40) % 3)
    model.to_json(tmp_path / "model.json")
    back = through_skops(diht.load_model(tmp_path / "model.json"))
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def subclasses(kind):
    return {kind}.union(*map(subclasses, kind.__subclasses__()))


@pytest.mark.parametrize("base", [Solver, Bound, Constraint])
def test_every_public_solver_bound_and_constraint_is_trusted(base):
    for module in walk_packages(diht.__path__, "diht."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    public = [
        f"{kind.__module__}.{kind.__name__}"
        for kind in subclasses(base)
        if kind.__module__.startswith("diht.")
        and not kind.__name__.startswith("_")
        and kind not in (Solver, Constraint)
    ]
    assert public
    assert set(public) <= set(diht.SKOPS_TRUSTED)


def test_the_solvers_by_name_are_all_there_are():
    assert next(iter(SOLVERS)) == "auto"
    assert {type(as_solver(name)) for name in SOLVERS} == set(SOLVERS.values())
    public = {kind for kind in subclasses(Solver) if kind.__module__.startswith("diht.solvers.")} - {Solver}
    assert public == set(SOLVERS.values())
    with pytest.raises(ValueError, match=r"^solver must be one of \['auto', 'diht', .* got 'autos'"):
        as_solver("autos")


@pytest.mark.parametrize("method", [SDIHT, SVRGHT])
@pytest.mark.parametrize("n", [1, 2, 9, 10, 11])
def test_the_default_blocks_fit_any_number_of_samples(method, n):
    problem = Problem(X[:n], Y[:n], "squared", 2, 1.0)
    result = solve(problem, method())
    assert result.lower_bound <= result.objective
    assert len(method().init(problem, diht.solvers.Start()).blocks) == min(n, 10)


# Columns that hold nothing


OCCUPIED = np.array([0, 1, 2, 5, 9, 17, 28, 30])


def wide(loss="squared", k=3, intercept=True, n=25, d=31, columns=OCCUPIED, sparse=sp.csr_array):
    """A sparse problem most of whose columns are empty."""
    rng = np.random.default_rng(5)
    Z = rng.normal(size=(n, len(columns))) * (rng.random((n, len(columns))) < 0.7)
    y = Z[:, 1] - 2 * Z[:, 4] + Z[:, 6] + 0.5 * rng.normal(size=n)
    row, column = np.nonzero(Z)
    Z_wide = sp.coo_array((Z[row, column], (row, np.asarray(columns)[column])), shape=(n, d))
    return Problem(sparse(Z_wide), y if loss == "squared" else np.sign(y), loss, k, 0.1, None, intercept)


@pytest.fixture
def compacted(monkeypatch):
    monkeypatch.setattr("diht.empty_columns._MANY", 1)


def with_and_without(problem, solver, monkeypatch, **settings):
    """The result of a solve that leaves the empty columns out, and of one that does not."""
    compacted = solve(problem, solver, **settings)
    assert isinstance(compacted.certificate.bound, PaddedBound)
    assert len(compacted.certificate.bound.features) == len(OCCUPIED) + 1
    monkeypatch.setattr("diht.empty_columns._MANY", 10**9)
    plain = solve(problem, solver, **settings)
    assert not isinstance(plain.certificate.bound, PaddedBound)
    return compacted, plain


@pytest.mark.usefixtures("compacted")
@pytest.mark.parametrize("solver", ["diht", "sdiht", "iht", "htp"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("intercept", [True, False])
def test_first_order_methods_do_the_same_without_empty_columns(solver, loss, intercept, monkeypatch):
    problem = wide(loss, intercept=intercept)
    result, plain = with_and_without(problem, solver, monkeypatch, max_iter=50)
    found, known = result.certificate, plain.certificate
    for model, other in [(result, plain), (result.last, plain.last), *zip(result.pool, plain.pool, strict=True)]:
        np.testing.assert_allclose(model.w, other.w, rtol=1e-9, atol=1e-12)
        assert model.intercept == pytest.approx(other.intercept, abs=1e-9)
    for name in ("objective", "lower_bound", "margin", "fenchel", "ridge", "attained"):
        assert getattr(found, name) == pytest.approx(getattr(known, name), rel=1e-9, abs=1e-12)
    assert (result.status, result.n_iter) == (plain.status, plain.n_iter)
    assert found.bound.check(problem) == pytest.approx(result.lower_bound, rel=1e-12)
    for name in ("support", "excluded", "required"):
        np.testing.assert_array_equal(getattr(found, name), getattr(known, name))
    for screening in (found.screening, found.bound.screening(problem).completed(3)):
        np.testing.assert_allclose(screening.without, known.screening.without, rtol=1e-9)
        np.testing.assert_allclose(screening.within, known.screening.within, rtol=1e-9)


@pytest.mark.usefixtures("compacted")
@pytest.mark.parametrize("solver", ["auto", "relaxed", "branch", "svrght"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("intercept", [True, False])
def test_what_is_claimed_without_empty_columns_is_true(solver, loss, intercept, monkeypatch):
    problem = wide(loss, intercept=intercept)
    result, plain = with_and_without(problem, solver, monkeypatch)
    best = solve(problem, "branch", tol=1e-10)
    assert result.lower_bound <= best.objective <= result.objective * (1 + 1e-12)
    assert result.relative_gap <= plain.relative_gap + 1e-6  # ten times the accuracy of Relaxed
    assert result.certificate.bound.check(problem) == pytest.approx(result.lower_bound, rel=1e-9)
    assert set(result.certificate.required) <= set(best.support)
    assert not set(result.certificate.excluded) & set(best.support)
    assert len(result.w) == len(result.certificate.drop_cost) == len(result.certificate.add_cost) == 31


@pytest.mark.usefixtures("compacted")
@pytest.mark.parametrize("sparse", [sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("k", [1, 8, 9, 20, 31])
def test_any_k_and_storage_without_empty_columns(k, sparse):
    problem = wide(k=k, sparse=sparse)
    result = solve(problem, "branch")
    every = [support for size in range(min(k, 8) + 1) for support in combinations(OCCUPIED, size)]
    best = min(certify(problem, support=list(support), alpha=np.zeros(25)).objective for support in every[-60:])
    assert result.status == "optimal"
    assert result.objective <= best * (1 + 1e-9)
    assert np.isin(result.support, OCCUPIED).all()
    assert result.certificate.bound.check(problem) == pytest.approx(result.lower_bound, rel=1e-9)


@pytest.mark.usefixtures("compacted")
def test_what_comes_and_goes_has_all_coefficients():
    problem, seen = wide(), []
    first = solve(problem, "branch", tol=1e-12, callback=lambda iterate: seen.append(iterate.model))
    assert {len(model.w) for model in seen} == {31}
    again = solve(problem, "branch", start=first, tol=1e-12)
    assert again.n_iter <= first.n_iter
    np.testing.assert_allclose(again.w, first.w)
    w = np.zeros(31)
    w[[3, 9]] = 1.0, -2.0  # column 3 is empty
    certificate = certify(problem, w, intercept=0.0)
    u = problem.design.matvec(w)
    assert certificate.objective == pytest.approx(
        primal(problem, w, problem.centred_intercept(w, 0.0), u + problem.centred_intercept(w, 0.0))
    )
    assert certificate.lower_bound <= first.objective
    assert len(certificate.drop_cost) == len(certificate.better.w) == 31


@pytest.mark.usefixtures("compacted")
def test_a_padded_bound_proves_nothing_false_of_another_problem():
    bound = solve(wide(), "branch", tol=1e-12).certificate.bound
    fuller = wide(columns=np.arange(20, 28))
    optimum = solve(fuller, "branch", tol=1e-12).objective
    assert bound.check(fuller) <= optimum
    assert bound.screening(fuller).without.min() <= optimum
    narrower = wide(d=29, columns=np.array([0, 1, 2, 5, 9, 17, 27, 28]))
    assert bound.check(narrower) <= solve(narrower, "branch", tol=1e-12).objective


def test_a_column_that_is_shifted_is_not_empty():
    base = as_design(sp.csr_array((4, 6)))
    center = np.array([0.0, 1.0, 0.0, 0.0, -2.0, 0.0])
    np.testing.assert_array_equal(AffineView(base, center).occupied(), [1, 4])
    np.testing.assert_array_equal(AffineView(base).occupied(), [])
    np.testing.assert_array_equal(as_design(np.zeros((2, 3))).occupied(), [0, 1, 2])


def test_empty_columns_of_a_wide_sparse_matrix_leave():
    result = solve(wide(d=10**6, columns=np.arange(8) * 100_000, k=2))
    assert len(result.w) == len(result.certificate.screening.within) == 10**6
    assert len(result.certificate.bound.features) == 9

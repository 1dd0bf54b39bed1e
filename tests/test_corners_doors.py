"""What comes in and goes out: sizes beyond memory, defaults for any data, files that survive, messages of one clear line."""

from importlib import import_module
from pkgutil import walk_packages

import numpy as np
import pytest

import diht
from diht import Problem, SparseClassifier, SparseRegressor, solve
from diht.constraint import Constraint
from diht.duality import Bound
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
    assert public and set(public) <= set(diht.SKOPS_TRUSTED)


def test_the_solvers_by_name_are_all_there_are():
    assert [*SOLVERS][0] == "auto"
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

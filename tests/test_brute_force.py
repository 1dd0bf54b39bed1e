"""A sample of the large run in `brute_force.py`: nothing that any method claims is refuted by the best model on a support."""

import numpy as np
import pytest

from brute_force import check, exact_primal, fitted, methods, optimum, small_case
from diht.duality import primal
from diht.loop import SOLVERS

SEEDS = [5, 7, 11, 12, 13, 15, 16, 21, 22, 23, 27, 39, 10, 45]  # small ones, two of every loss


@pytest.mark.parametrize("seed", SEEDS)
def test_no_claim_is_false(seed: int) -> None:
    outcomes = check(seed)
    assert {outcome.solver for outcome in outcomes} == {"auto", *SOLVERS, "certify", "refit"}
    assert [(o.solver, o.false_bounds, o.false_features) for o in outcomes if o.false_bounds or o.false_features] == []


def test_a_problem_follows_from_its_seed() -> None:
    one, two = small_case(3), small_case(3)
    assert np.array_equal(one.X, two.X)
    assert str(one) == str(two)
    assert primal(one.problem, np.zeros(one.X.shape[1])) == primal(two.problem, np.zeros(one.X.shape[1]))


@pytest.mark.parametrize("seed", SEEDS)
def test_witnesses_are_models(seed: int) -> None:
    """They obey what they stand for, and sixty digits agree with their objectives."""
    case = small_case(seed)
    truth = optimum(case.problem)
    for j, (without, within) in enumerate(zip(truth.without, truth.within, strict=True)):
        assert without.w[j] == 0.0
        assert min(without.objective, within.objective) == truth.best.objective
        assert np.count_nonzero(within.w) + (within.w[j] == 0.0) <= case.problem.constraint.size
    assert float(exact_primal(case, truth.best.w, truth.best.b)) == pytest.approx(truth.best.objective, rel=1e-12)
    assert truth.supports
    assert fitted(case.problem, truth.supports[0]).objective == pytest.approx(truth.best.objective, rel=1e-9)


def test_a_false_bound_is_seen() -> None:
    case = small_case(12)
    best = optimum(case.problem).best
    assert best.refutes(case, best.objective * (1.0 + 1e-14))
    assert not best.refutes(case, best.objective * (1.0 - 1e-14))
    assert best.refutes(case, np.inf)


def test_unknown_method() -> None:
    with pytest.raises(SystemExit, match="unknown method"):
        methods(["nonsense"])

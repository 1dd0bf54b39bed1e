"""Rows in blocks: the same answers as in one piece, wherever the blocks are cut."""

import numpy as np
import pytest
import scipy.sparse as sp

from cases import LOSSES, crossed
from diht import Problem, solve
from diht.bounds.certificate import certificate_of
from diht.bounds.duality import (
    dual,
    dual_from_primal,
    gap,
    lower_bound,
    margin,
    null_bound,
    primal,
    primal_from_dual,
    upper_bound,
)
from diht.bounds.shift import is_shifted, shifted_bound, shifted_ridges
from diht.constraints.groups import constrained
from diht.design import RowBlocks, row_blocks
from diht.losses import Loss, as_loss
from diht.samples import BlockSamples
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT, Auto, BranchAndBound, Relaxed, Solver

SOLVERS = [DIHT(), SDIHT(blocks=4), IHT(), HTP(), SVRGHT(), Relaxed(), Auto(), BranchAndBound()]
# Those of kinks and flat parts take long in blocks, where there is no interior point method.
QUICK = ("squared", "logistic", "poisson")
SOME_LOSSES = [
    pytest.param(loss, id=loss.name, marks=[] if loss.name in QUICK else pytest.mark.slow) for loss in LOSSES
]
CONSTRAINTS = [{"groups": [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]}, {"sign": 1}, {"keep": [2]}]


def data(loss: Loss, seed: int, n: int = 90, d: int = 12) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples with means of their own, targets and weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.exponential(size=d) + rng.normal(size=d)
    X[rng.random(X.shape) < 0.3] = 0.0
    u = X @ (rng.normal(size=d) * (rng.random(d) < 0.4)) + 0.3 * rng.normal(size=n)
    if loss.task == "classification":
        y = np.where(u > np.median(u), 1.0, -1.0)
    elif loss.name == "poisson":
        y = rng.poisson(np.exp(np.clip(u / 3.0, -3.0, 3.0))).astype(np.float64)
    else:
        y = u
    return X, y, rng.exponential(size=n)


def cut(X: np.ndarray, seed: int, convert=np.ascontiguousarray) -> RowBlocks:
    """Cut the rows at random places, one of them twice."""
    cuts = np.sort(np.random.default_rng(seed).integers(0, len(X) + 1, 4))
    return row_blocks([convert(block) for block in np.split(X, np.sort(np.append(cuts, cuts[0])))], n_threads=2)


STORED = crossed(LOSSES, {"dense": np.asfortranarray, "CSR": sp.csr_array})


@pytest.mark.parametrize(("loss", "convert"), STORED)
def test_auto_has_the_same_objective_and_bound(loss: Loss, convert) -> None:
    X, y, weights = data(loss, 3)
    scale = X.std(axis=0)
    whole = solve(Problem(convert(X), y, loss, 4, 0.01, weights, True, scale=scale))
    parts = solve(Problem(cut(X, 5, convert), y, loss, 4, 0.01, weights, True, scale=scale))
    assert parts.objective == pytest.approx(whole.objective, rel=1e-6)
    assert parts.lower_bound == pytest.approx(whole.lower_bound, abs=1e-4 * whole.objective)
    assert parts.certificate.bound.check(Problem(X, y, loss, 4, 0.01, weights, True, scale=scale)) <= whole.objective


@pytest.mark.parametrize("large", [False, True], ids=["formed", "a view"])
@pytest.mark.parametrize(
    "solver",
    SOLVERS,
    ids=lambda solver: type(solver).__name__,
)
def test_every_method_has_the_same_objective_and_bound(solver: Solver, large: bool, monkeypatch) -> None:
    if large:  # nothing is centred in a copy
        monkeypatch.setattr("diht.design.view.FORMED", 0)
    X, y, weights = data(LOSSES[0], 7)
    whole = solve(Problem(X, y, LOSSES[0], 3, 0.1, weights, True), solver, max_iter=300)
    parts = solve(Problem(cut(X, 8), y, LOSSES[0], 3, 0.1, weights, True), solver, max_iter=300)
    assert parts.objective == pytest.approx(whole.objective, rel=1e-6)
    assert parts.lower_bound == pytest.approx(whole.lower_bound, abs=1e-4 * whole.objective)


@pytest.mark.parametrize("given", CONSTRAINTS, ids=str)
def test_every_constraint_has_the_same_objective_and_bound(given: dict) -> None:
    X, y, _ = data(LOSSES[3], 9)
    whole = solve(Problem(X, y, "logistic", constrained(2, 12, **given), 0.05, None, True))
    parts = solve(Problem(cut(X, 10), y, "logistic", constrained(2, 12, **given), 0.05, None, True))
    assert parts.objective == pytest.approx(whole.objective, rel=1e-6)
    assert parts.lower_bound == pytest.approx(whole.lower_bound, abs=1e-4 * whole.objective)


def test_samples_far_from_zero_close_the_gap_in_blocks_too() -> None:
    """Blocks are centred in copies where they are small."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)) + 1e8
    y = X[:, 0] - 1e8 + 0.1 * rng.normal(size=60)
    result = solve(Problem(cut(X, 1), y, "squared", 1, 1e-3, None, True))
    assert result.relative_gap <= 1e-4


def test_reads_are_counted_over_all_blocks() -> None:
    X = np.random.default_rng(0).normal(size=(40, 6))
    design = cut(X, 2)
    design.rmatvec(np.ones(40))
    design.matvec(np.ones(6))
    assert design.passes == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([np.ones((2, 3)), np.ones((2, 4))], "X must have blocks of one kind"),
        ([np.ones((2, 3)), sp.csr_array(np.ones((2, 3)))], "X must have blocks of one kind"),
        ([np.ones((2, 3)), np.ones((2, 3), dtype=np.float32)], "X must have blocks of one kind"),
        ([np.ones((2, 3)), np.full((1, 3), np.nan)], "X contains NaN"),
        ([np.ones((0, 3))], "X must have at least one row"),
        ([], "X must have at least one row"),
    ],
)
def test_blocks_that_do_not_fit_are_refused_in_one_line(blocks: list, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as refused:
        row_blocks(blocks)
    assert "\n" not in str(refused.value)


# Samples that nobody but their blocks looks into


def opaque(problem: Problem) -> Problem:
    """The same problem on samples whose vectors are tuples: whoever takes them for arrays fails."""
    other = problem.replaced()
    samples = BlockSamples.of(problem.design, problem.y, problem.s)
    object.__setattr__(other, "samples", samples)
    if problem.tail is not None:
        object.__setattr__(other, "tail", samples.put(problem.tail))
    return other


@pytest.mark.parametrize("convert", [np.asfortranarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_certificate_is_the_same_wherever_the_rows_are(loss: Loss, fit_intercept: bool, convert) -> None:
    X, y, weights = data(loss, 4)
    problem = Problem(cut(X, 6, convert), y, loss, 3, 0.05, weights, fit_intercept)
    apart, w = opaque(problem), np.zeros(12)
    w[[1, 4, 7]] = 0.3, -0.2, 0.1
    alpha = dual_from_primal(problem, w)
    there = dual_from_primal(apart, w)
    np.testing.assert_allclose(apart.samples.fetch(there), alpha, atol=1e-7)
    there = apart.samples.put(alpha)
    for here, elsewhere in [
        (primal(problem, w, 0.1), primal(apart, w, 0.1)),
        (upper_bound(problem, w, 0.1), upper_bound(apart, w, 0.1)),
        (dual(problem, alpha), dual(apart, there)),
        (lower_bound(problem, alpha).value, lower_bound(apart, there).value),
        (gap(problem, w, alpha), gap(apart, w, there)),
        (margin(problem, w, alpha=alpha), margin(apart, w, alpha=there)),
        (primal(problem, *primal_from_dual(problem, alpha)), primal(problem, *primal_from_dual(apart, there))),
        (null_bound(problem, 0.1).value, null_bound(apart, 0.1).value),
    ]:
        assert elsewhere == pytest.approx(here, rel=1e-7, abs=1e-9)
    exact = certificate_of(problem, w, 0.1 * fit_intercept, lower_bound(problem, alpha))
    again = certificate_of(apart, w, 0.1 * fit_intercept, lower_bound(apart, there))
    assert again.objective == pytest.approx(exact.objective, rel=1e-12)
    assert again.lower_bound == pytest.approx(exact.lower_bound, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(again.screening.without, exact.screening.without, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("fit_intercept", [pytest.param(False, marks=pytest.mark.slow, id=""), True])
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
@pytest.mark.parametrize("loss", SOME_LOSSES)
def test_methods_never_see_a_row(loss: Loss, solver: Solver, fit_intercept: bool) -> None:
    X, y, weights = data(loss, 5, n=40, d=7)
    problem = Problem(cut(X, 7), y, loss, 3, 0.1, weights, fit_intercept)
    most = None if isinstance(solver, BranchAndBound) else 60  # a tree has an end
    here, apart = (solve(one, solver, max_iter=most) for one in (problem, opaque(problem)))
    assert apart.objective == pytest.approx(here.objective, rel=1e-6)
    assert apart.lower_bound == pytest.approx(here.lower_bound, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("given", CONSTRAINTS, ids=str)
@pytest.mark.parametrize(
    ("name", "max_iter"),
    [("squared", None), ("logistic", None), ("hinge", 3), pytest.param("hinge", None, marks=pytest.mark.slow)],
)
def test_searches_under_constraints_never_see_a_row(name: str, max_iter: int | None, given: dict) -> None:
    X, y, _ = data(as_loss(name), 9)
    problem = Problem(cut(X, 10, sp.csr_array), y, name, constrained(2, 12, **given), 0.05, None, True)
    here, apart = (solve(one, max_iter=max_iter) for one in (problem, opaque(problem)))
    assert apart.objective == pytest.approx(here.objective, rel=1e-6)
    assert apart.lower_bound == pytest.approx(here.lower_bound, abs=1e-4 * here.objective)


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
def test_a_shifted_bound_is_the_same_wherever_the_rows_are(fit_intercept: bool) -> None:
    X, y, weights = data(LOSSES[0], 6)
    problem = Problem(cut(X, 9), y, LOSSES[0], 3, 0.1, weights, fit_intercept)
    ridges, p = shifted_ridges(problem, np.arange(12)), np.linspace(-0.1, 0.2, 12)
    here, apart = shifted_bound(problem, p, ridges), shifted_bound(opaque(problem), p, ridges)
    assert is_shifted(problem, ridges)
    assert apart.value == pytest.approx(here.value, rel=1e-10)

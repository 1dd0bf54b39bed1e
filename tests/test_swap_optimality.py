"""Swap optimality: bounds on models with one feature more against their fits, and the verdict against all swaps."""

from itertools import pairwise, product

import numpy as np
import pytest
import scipy.sparse as sp

from cases import DESIGNS, LOSSES
from diht import Problem, solve
from diht.bounds.duality import primal
from diht.constraints.groups import constrained
from diht.design import row_blocks
from diht.losses import Huber, Loss, SmoothedHinge, SquaredHinge
from diht.refit import never, refit
from diht.samples import BlockSamples
from diht.search import exact_swaps
from diht.search import joining as joining_module
from diht.search.exact_swaps import ExactSwaps
from diht.search.joining import NARROW, Effort, Joining
from diht.search.pool import Pool
from diht.search.swap_optimality import better_swaps, restarted, swap_optimum
from diht.solvers import Auto
from diht.solvers.auto import state
from oracle import scaled_words, some_weights, targets

NAMES = [loss.name for loss in LOSSES]
CONSTRAINTS = [
    {},
    {"keep": [7]},
    {"groups": np.arange(12) // 2},
    {"sign": 1},
    {"groups": np.arange(12) // 3, "sign": -1},
]


@pytest.fixture(autouse=True, params=[0.0, np.inf], ids=["compiled", "numpy"])
def worth_compiling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Walk along columns in compiled code, and in numpy."""
    monkeypatch.setattr(joining_module, "_WORTH_COMPILING", request.param)
    return float(request.param)


def rare_columns(loss: Loss, n: int = 60, d: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Columns of few, large entries beside dense ones, and targets that go with some of either."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((n, 1))
    rare = np.arange(d) % 2 == 0
    X[:, rare] = (rng.random((n, int(rare.sum()))) < 0.15) * 3.0
    signal = X @ np.where(np.arange(d) < 6, rng.standard_normal(d), 0.0)
    return X, targets(loss, signal / signal.std(), rng)


def bounds_and_fits(problem: Problem, support: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Bounds after every stage, and the objectives of the models that they are about."""
    fit = refit(problem, support)
    others = np.setdiff1d(np.arange(problem.shape[1]), support)
    joining = Joining(problem, fit, others, np.inf, Effort())
    bounds = [joining.bounds.copy() for _ in joining.stages()]
    fits = [refit(problem, np.sort(np.append(support, j)), fit.w, fit.b).objective for j in others]
    return bounds, np.array(fits)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_bounds_are_below_the_fits_and_rise_to_them(loss: Loss, convert, fit_intercept: bool) -> None:
    for seed, lam in product(range(2), (1e-3, 1e-1)):
        X, y = rare_columns(loss, seed=seed)
        weights = some_weights(len(y)) if seed else None
        problem = Problem(convert(X), y, loss, 4, lam, weights, fit_intercept)
        bounds, fits = bounds_and_fits(problem, np.array([1, 6, 9]))
        for before, after in pairwise(bounds):
            assert np.all(after >= before)
        assert np.all(bounds[-1] <= fits * (1 + 1e-9))
        if loss.concordant or loss.is_quadratic:
            np.testing.assert_allclose(bounds[-1], fits, rtol=1e-5)
        if loss.concordant or (loss.pieces is not None and loss.pieces.mu > 0):
            assert len(bounds) > 1


@pytest.mark.parametrize("name", [name for name, _ in DESIGNS])
def test_every_kind_of_design_gives_the_bounds_of_its_dense_twin(name: str) -> None:
    X, y = rare_columns(LOSSES[3], n=30)
    design, twin = dict(DESIGNS)[name](X)
    found, expected = (bounds_and_fits(Problem(A, y, "logistic", 4, 0.01), np.array([1, 6, 9])) for A in (design, twin))
    np.testing.assert_allclose(found[0][0], expected[0][0], rtol=1e-7)
    assert np.all(found[0][1] <= expected[1] * (1 + 1e-9))
    np.testing.assert_allclose(found[0][-1], expected[0][-1], rtol=1e-6)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
def test_bounds_never_see_a_row(convert, worth_compiling: float) -> None:
    """Rows that are apart are walked along in numpy; compiled code has another method in the place of the second walk, and fits."""
    X, y = rare_columns(LOSSES[3])
    problem = Problem(row_blocks([convert(X[:25]), convert(X[25:])]), y, "logistic", 4, 0.01, None, True)
    apart = problem.replaced()
    object.__setattr__(apart, "samples", BlockSamples.of(problem.design, problem.y, problem.s))
    (here, fits), (there, _) = (bounds_and_fits(one, np.array([1, 6, 9])) for one in (problem, apart))
    assert len(there) == 4
    if worth_compiling == 0.0:
        np.testing.assert_allclose(here.pop(), fits, rtol=1e-9)
    assert len(here) == 4
    for stage in (0, 1, 3) if worth_compiling == 0.0 else range(4):
        np.testing.assert_allclose(here[stage], there[stage], rtol=1e-8)


PIECES = [loss for loss in LOSSES if loss.pieces is not None and loss.pieces.mu > 0.0 and loss.kernel() is not None]


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("lam", [1e-6, 1e-1])
@pytest.mark.parametrize("loss", PIECES, ids=[loss.name for loss in PIECES])
def test_pivots_lead_to_the_fits_where_features_outnumber_samples(
    loss: Loss, lam: float, fit_intercept: bool, worth_compiling: float
) -> None:
    """At the smaller ridge three features nearly separate the classes, and most samples are at the border of F."""
    if worth_compiling > 0.0:
        return
    X, y = rare_columns(loss, n=14, d=20)
    problem, support = Problem(X, y, loss, 4, lam, some_weights(len(y)), fit_intercept), np.array([1, 6, 9])
    bounds, fits = bounds_and_fits(problem, support)
    assert len(bounds) == 3  # first bounds, pivots, fits
    np.testing.assert_allclose(bounds[1], fits, rtol=1e-7)
    assert np.all(bounds[1] <= fits * (1 + 1e-9))
    target = float(np.median(fits))
    joining = Joining(problem, refit(problem, support), np.setdiff1d(np.arange(20), support), target, Effort())
    next(stages := joining.stages())
    next(stages)
    np.testing.assert_array_equal(joining.bounds >= target, bounds[1] >= target)
    assert np.all(joining.bounds <= fits * (1 + 1e-9))


def unit_swaps(problem: Problem, support: np.ndarray) -> list[float]:
    """Objectives of the best models that one unit less and another more gives."""
    d = problem.shape[1]
    unit = problem.constraint.unit_of(d)
    _, inside, _ = problem.constraint.free(d)
    pairs = product(np.setdiff1d(unit[support], unit[inside]), np.setdiff1d(unit, unit[support]))
    swapped = (np.append(support[unit[support] != i], np.flatnonzero(unit == j)) for i, j in pairs)
    return [refit(problem, np.sort(new)).objective for new in swapped]


@pytest.mark.parametrize("given", CONSTRAINTS, ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_what_is_called_swap_optimal_is(loss: Loss, given: dict) -> None:
    X, y = rare_columns(loss, n=40)
    problem = Problem(X, y, loss, constrained(2, 12, **given), 0.01, None, True)
    pool = Pool()
    start = problem.constraint.select(np.ones(12))
    found = swap_optimum(problem, refit(problem, start), pool=pool)
    assert found.left == 0.0
    assert problem.constraint.allows(found.fit.w)
    assert found.fit.objective <= refit(problem, start).objective * (1 + 1e-12)
    assert found.fit.objective <= pool.best.objective * (1 + 1e-12)
    assert min(unit_swaps(problem, found.fit.support)) >= found.fit.objective * (1 - 2e-9)


@pytest.mark.parametrize("seed", [102, 187, 266, 526])
def test_a_slope_that_a_fit_has_left_hides_no_swap(seed: int) -> None:
    """Each column has a copy but for little; without one feature the loss is a thousand times as large, and fitted as precisely."""
    rng = np.random.default_rng([seed, 9])
    n, d, k = int(rng.integers(20, 50)), 24, int(rng.integers(2, 4))
    X = rng.standard_normal((n, d // 2))
    X = np.hstack([X, X + 10.0 ** rng.uniform(-7, -2) * rng.standard_normal((n, d // 2))])
    y = np.where(X[:, :k].sum(axis=1) + 0.3 * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    problem = Problem(X, y, "logistic", k, 10.0 ** rng.uniform(-7, -3), None, True)
    start = np.sort(rng.choice(d // 2, k, replace=False))
    found = swap_optimum(problem, refit(problem, start, np.zeros(d), 0.0, 1e-9))
    assert found.left == 0.0
    assert min(unit_swaps(problem, found.fit.support)) >= found.fit.objective * (1 - 2e-9)


@pytest.mark.parametrize(("n", "d", "lam", "seed"), [(24, 20, 1e-6, 27), (20, 12, 1e-6, 35), (18, 16, 1e-7, 4)])
def test_a_start_that_leads_astray_hides_no_swap(n: int, d: int, lam: float, seed: int) -> None:
    """Classes that four columns separate: steps of Newton's method without end."""
    X = np.random.default_rng(seed).standard_normal((n, d))
    problem = Problem(X, np.where(X[:, :4].sum(axis=1) > 0.0, 1.0, -1.0), "logistic", 4, lam, None, True)
    result = solve(problem, Auto(branching=False))
    assert result.swap_optimal is True
    assert min(unit_swaps(problem, result.support)) >= result.objective * (1 - 2e-9)


def test_bounds_know_what_an_imbalance_of_the_dual_point_costs() -> None:
    """Residuals a millionth of the margins: rounding of these is an imbalance, and the intercept of other models goes with it."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((30, 4))
        y = X[:, 0] + X[:, 1] + 0.5 + 1e-6 * rng.standard_normal(30)
        bounds, fits = bounds_and_fits(Problem(X, y, Huber(delta=0.1), 3, 1e-11, None, True), np.array([0, 1]))
        for after in bounds:
            assert np.all(after <= fits * (1 + 1e-9))


def test_bounds_of_several_targets_know_it_too() -> None:
    rises = []
    for seed in range(80):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((int(rng.integers(10, 40)), 5)) * np.array([1.0, 1.0, 1e-6, 1e-6, 1e-6])
        Y = np.where(X[:, :2] @ rng.standard_normal((2, 2)) + 0.3 > 0.0, 1.0, -1.0)
        if np.all(np.abs(Y.mean(axis=0)) < 1.0):
            problem = Problem(X, Y, SquaredHinge(), 3, 10.0 ** rng.uniform(-12, -8), None, True)
            unit = problem.constraint.unit_of(problem.shape[1])
            fit = refit(problem, np.flatnonzero(unit < 2), np.zeros(problem.shape[1]), 0.0, 1e-11)
            joining = Joining(problem, fit, np.arange(2, 5), np.inf, Effort())
            rises.append(joining.bounds.max() / fit.objective - 1.0)  # of a model that has less
    assert len(rises) > 20
    assert max(rises) <= 1e-9


def test_a_fit_ends_where_no_sample_leaves_its_piece() -> None:
    """A step of Newton's method that promises next to nothing may still lead past a kink, to a far lower objective."""
    for seed in range(300, 500):
        rng = np.random.default_rng(seed)
        X, lam = rng.standard_normal((11, 6)), 10.0 ** rng.uniform(-12, -8)
        problem = Problem(X, np.where(X[:, :3].sum(axis=1) > -0.5, 1.0, -1.0), SmoothedHinge(0.013), 4, lam, None, True)
        if len(np.unique(problem.y)) == 2:
            bounds, fits = bounds_and_fits(problem, np.arange(3))
            assert np.all(bounds[-1] <= fits * (1 + 1e-9))


def test_where_rounding_hides_what_a_swap_gains_no_more_than_the_gap_is_said() -> None:
    """Means of 3e7 deviations and a model that separates: its intercept, in the user's units, is rounded to 7e-9."""
    X = np.array([[1.0, 29532552.06256545, 4815461.951923815], [1.0, 29532553.150315996, 4815461.559656372]])
    weights = np.array([895.0238345098613, 1.0])
    result = solve(Problem(X, np.array([1.0, -1.0]), "hinge", 2, 1.3183775891875993e-10, weights, True))
    assert result.swap_optimal is not True
    assert result.swap_optimal >= result.objective - 2.3e-10  # what a swap attains


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("loss", [Huber(delta=0.2), SquaredHinge()], ids=str)
def test_bounds_know_what_rounding_adds_where_coefficients_cancel(loss: Loss, convert) -> None:
    """Columns far from zero, without an intercept, and an objective that is small beside what each of them contributes."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((47, 5)) + 3e4 * rng.standard_normal(5)
        y = 2e-4 + 1e-5 * rng.standard_normal(47) if loss.task == "regression" else np.sign(rng.standard_normal(47))
        problem = Problem(convert(X), y, loss, 3, 2e-6, None, False)
        bounds, fits = bounds_and_fits(problem, np.array([0]))
        for after in bounds:
            assert np.all(after <= fits * (1 + 1e-9))


def test_no_swap_of_rare_words_improves_the_model_of_auto() -> None:
    """A quadratic model of the objective misleads on columns with few, large entries."""
    X, y = scaled_words()
    problem = Problem(X, y, "logistic", 4, 1e-3, None, True)
    result = solve(problem, Auto(branching=False))
    assert result.swap_optimal is True
    assert min(unit_swaps(problem, result.support)) >= result.objective * (1 - 1e-8)


@pytest.mark.parametrize("effort", [0.0, 1e5, 1e6])
def test_where_the_work_is_limited_the_gain_of_every_swap_is_bounded(effort: float, monkeypatch) -> None:
    X, y = scaled_words(3)
    monkeypatch.setattr(state, "_PATIENCE", effort)
    monkeypatch.setattr(state, "_IN_VAIN", 0.0)
    problem = Problem(X, y, "logistic", 5, 1e-3, None, True)
    result = solve(problem)
    if result.swap_optimal is not True:
        assert 0.0 < result.swap_optimal <= result.gap * (1 + 1e-9)
        assert min(unit_swaps(problem, result.support)) >= result.objective - result.swap_optimal * (1 + 1e-9)
    else:
        assert effort > 0.0


def test_a_limit_on_time_and_other_methods_say_false() -> None:
    X, y = scaled_words()
    problem = Problem(X, y, "logistic", 4, 1e-3, None, True)
    assert solve(problem, stop=lambda: True).swap_optimal is False
    assert solve(problem, "iht", max_iter=5).swap_optimal is False


@pytest.mark.parametrize("solver", ["auto", "branch"])
def test_a_closed_gap_is_swap_optimal(solver: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 10))
    result = solve(Problem(X, X[:, :3].sum(axis=1), "squared", 3, 1e-3), solver, tol=1e-9)
    assert result.swap_optimal is True


def test_a_tree_that_ends_at_its_tolerance_is_swap_optimal() -> None:
    X, y = rare_columns(LOSSES[3])
    problem = Problem(X, y, "logistic", 3, 0.01, None, True)
    result = solve(problem, "branch", tol=0.05)
    assert result.swap_optimal is True
    assert min(unit_swaps(problem, result.support)) >= result.objective * (1 - 1e-9)
    assert solve(problem, "branch", stop=lambda: True).swap_optimal is False


def test_a_model_with_room_is_filled() -> None:
    X, y = rare_columns(LOSSES[3])
    problem = Problem(X, y, "logistic", 4, 0.01, None, True)
    found = swap_optimum(problem, refit(problem, np.array([3])), stop=never)
    assert len(found.fit.support) == 4
    assert found.left == 0.0


def test_a_group_that_is_in_the_model_in_part_joins_once() -> None:
    """A coefficient that its sign holds at zero is not in the support of a model, the others of its group are."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    problem = Problem(X, X[:, 0] - X[:, 2], k=constrained(2, 4, groups=[0, 0, 1, 1], sign=[1, 1, 0, 0]), lam=0.01)
    pool = Pool()
    found = swap_optimum(problem, refit(problem, np.array([0, 2])), pool=pool)
    for fit in (found.fit, *pool):
        assert len(np.unique(fit.support)) == len(fit.support)
        assert fit.objective == pytest.approx(primal(problem, fit.w, fit.b), rel=1e-12)


@pytest.mark.parametrize("most", [1e7, 0.0], ids=["one product", "row by row"])
@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_swaps_that_gain_by_the_formula_are_those_that_gain(
    fit_intercept: bool, convert, most: float, monkeypatch
) -> None:
    monkeypatch.setattr(exact_swaps, "_MOST_ENTRIES", most)
    X, y = rare_columns(LOSSES[0])
    problem = Problem(convert(X), y, "squared", 4, 0.01, some_weights(len(y)), fit_intercept)
    fit = refit(problem, np.array([1, 6, 9, 10]))
    gains = {
        (i, j): fit.objective - refit(problem, np.sort(np.append(fit.support[fit.support != i], j))).objective
        for i, j in product(fit.support.tolist(), np.setdiff1d(np.arange(12), fit.support).tolist())
    }
    least = 1e-6 * fit.objective
    found = ExactSwaps(problem).promising(fit, least)
    assert found
    assert found == sorted((pair for pair in gains if gains[pair] > least), key=lambda pair: -gains[pair])


def test_where_rounding_hides_what_a_feature_costs_the_formula_says_nothing() -> None:
    X, y = rare_columns(LOSSES[0])
    X[:, 1] = X[:, 0] * (1.0 + 1e-9 * np.arange(len(y)))
    problem = Problem(X, y, "squared", 3, 1e-16)
    assert ExactSwaps(problem).promising(refit(problem, np.array([0, 1, 2])), 0.0) is None


def test_every_better_model_is_handed_over():
    """Swaps yield after each that improves the model, whose objective is then the least so far."""
    loss = next(loss for loss in LOSSES if loss.name == "logistic")
    X, y = rare_columns(loss)
    problem, pool, seen = Problem(X, y, loss, 3, 1e-3), Pool(), []
    start = refit(problem, np.array([9, 10, 11]))
    for _ in better_swaps(problem, start, pool=pool):
        assert pool.best is not None
        seen.append(pool.best.objective)
    assert len(seen) > 1
    assert start.objective > seen[0]
    assert all(later < earlier for earlier, later in pairwise(seen))
    assert seen[-1] == swap_optimum(problem, start).fit.objective


def test_a_proof_whose_cost_is_known_may_take_longer_than_what_is_done_in_vain() -> None:
    X, y = scaled_words(3)
    problem = Problem(X, y, "logistic", 5, 1e-3, None, True)
    first = solve(problem, Auto(branching=False))
    fit, whole = refit(problem, first.support), Effort()
    assert swap_optimum(problem, fit, effort=whole).left == 0.0
    patience = 0.4 * whole.idle
    assert swap_optimum(problem, fit, effort=Effort(patience=patience)).left > 0.0
    proof = Effort(patience=patience, proof=2.0 * whole.idle)
    assert swap_optimum(problem, fit, effort=proof).left == 0.0
    assert proof.spent <= 2.0 * whole.idle


def test_a_model_that_was_glanced_at_in_vain_is_not_glanced_at_again() -> None:
    X, y = scaled_words(3)
    problem, glanced = Problem(X, y, "logistic", 6, 1e-3, None, True), set[bytes]()
    start = refit(problem, np.arange(6))
    first = swap_optimum(problem, start, effort=(whole := Effort()), glanced=glanced)
    assert first.left == 0.0
    assert first.fit.support.tobytes() in glanced
    again, anew = Effort(), Effort()
    for effort, known in ((again, glanced), (anew, set[bytes]())):
        end = swap_optimum(problem, first.fit, effort=effort, glanced=known)
        assert end.left == 0.0
        np.testing.assert_array_equal(end.fit.support, first.fit.support)
    assert again.spent < anew.spent < whole.spent


def test_a_restart_ends_at_a_model_that_was_glanced_at_in_vain() -> None:
    X, y = scaled_words(3)
    problem, glanced = Problem(X, y, "logistic", 6, 1e-3, None, True), set[bytes]()
    best = swap_optimum(problem, refit(problem, np.arange(6)), glanced=glanced).fit
    returned = 0
    for removed in best.support.tolist():
        ends, efforts = [], (Effort(), Effort())
        for known, effort in zip((set[bytes](), set(glanced)), efforts, strict=True):
            ends.append(
                restarted(problem, best, np.array([removed]), NARROW, effort=effort, pool=Pool(), glanced=known)
            )
            assert ends[-1].support.tobytes() in known
        np.testing.assert_array_equal(ends[0].support, ends[1].support)
        if np.array_equal(ends[1].support, best.support):
            returned += 1
            assert efforts[1].spent < efforts[0].spent
    assert returned >= 1

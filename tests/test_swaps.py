"""The swap search against the enumeration of all swaps, and what it promises for every loss."""

from itertools import pairwise, product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from cases import DESIGNS, LOSSES
from diht import Problem
from diht.bounds.duality import primal
from diht.constraints.base import Cardinality
from diht.losses import Loss, Squared
from diht.refit import refit
from diht.search import exchange, swaps
from diht.search.pool import Pool
from diht.search.swaps import swap_search
from oracle import best_subset, paper_design, ridge, small_data, some_weights, targets

NAMES = [loss.name for loss in LOSSES]
NOTHING = np.empty(0, dtype=np.int64)


def fitted(problem: Problem, support: np.ndarray) -> float:
    fit = refit(problem, support)
    w, b, u = fit.w, fit.b, fit.u
    return primal(problem, w, b, u)


def all_swaps(problem: Problem, support: np.ndarray) -> list[float]:
    """Objectives of the best models one swap away that the constraint allows."""
    d = problem.shape[1]
    _, inside, outside = problem.constraint.free(d)
    leaving = np.setdiff1d(support, inside)
    joining = np.setdiff1d(np.arange(d), np.union1d(support, outside))
    return [fitted(problem, np.sort(np.append(support[support != i], j))) for i, j in product(leaving, joining)]


def random_problem(
    loss: Loss, n: int = 30, d: int = 12, k: int = 4, lam: float = 0.01, seed: int = 0, **options: object
) -> Problem:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 0.7 * rng.standard_normal((n, 1)) + rng.standard_normal(d)
    w = np.where(np.arange(d) < k + 2, rng.standard_normal(d), 0.0)
    return Problem(X, targets(loss, X @ w + 1.0, rng), loss, k, lam, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", [1e-6, 1e-2, 1.0, 1e2])
def test_no_swap_improves_the_end(lam: float, weighted: bool, fit_intercept: bool) -> None:
    for seed in range(4):
        weights = some_weights(30) if weighted else None
        problem = random_problem(Squared(), lam=lam, seed=seed, sample_weight=weights, fit_intercept=fit_intercept)
        start = np.random.default_rng(seed).choice(12, 4, replace=False)
        fit = swap_search(problem, start)
        w, b, u, objective = fit.w, fit.b, fit.u, fit.objective
        support = np.flatnonzero(w)
        assert len(support) == 4
        assert objective <= fitted(problem, start)
        assert objective == pytest.approx(primal(problem, w, b), rel=1e-12)
        assert objective == pytest.approx(fitted(problem, support), rel=1e-10)
        np.testing.assert_allclose(u, problem.design.matvec(w) + b, rtol=1e-12, atol=1e-12)
        assert min(all_swaps(problem, support)) >= objective * (1 - 2e-9)


def test_swaps_of_the_paper_design_lead_far() -> None:
    """Many swaps in a row, from nothing: the updates of the quadratic lead where new fits say that they do."""
    X, y, _ = paper_design(120, 25, 40, 0)
    problem = Problem(X, y, Squared(), 25, 0.01)
    greedy = swap_search(problem, NOTHING, max_swaps=0).objective
    fit = swap_search(problem, NOTHING)
    w, objective = fit.w, fit.objective
    support = np.flatnonzero(w)
    assert objective < 0.95 * greedy
    assert objective == pytest.approx(ridge(X[:, support], y, problem.s, 0.01, False)[2], rel=1e-11)
    assert min(all_swaps(problem, support)) >= objective * (1 - 2e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_never_worse_than_the_start_and_all_told_to_the_pool(loss: Loss, fit_intercept: bool) -> None:
    for lam in (1e-6, 1e-3, 1.0, 1e2) if loss.mu > 0 else (1e-3, 1e2):
        problem = random_problem(loss, lam=lam, sample_weight=some_weights(30), fit_intercept=fit_intercept)
        start, pool = np.array([3, 7, 9, 11]), Pool()
        before = fitted(problem, start)
        fit = swap_search(problem, start, pool=pool)
        w, b, objective = fit.w, fit.b, fit.objective
        assert np.count_nonzero(w) <= 4
        assert objective <= before * (1 + 1e-9)
        assert objective == pytest.approx(primal(problem, w, b), rel=1e-12)
        assert pool.best is not None
        assert pool.best.objective == pytest.approx(objective, rel=1e-8)
        for pooled in pool:
            assert len(pooled.support) <= 4
            assert pooled.objective == pytest.approx(primal(problem, pooled.w, pooled.b), rel=1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_few_swaps_are_left_that_improve(loss: Loss, fit_intercept: bool) -> None:
    """With all features shortlisted the end is swap-optimal up to the choice of a partner by the quadratic."""
    left = 0
    for seed in range(5 if loss.mu > 0 else 2):
        problem = random_problem(loss, d=9, k=3, seed=seed, fit_intercept=fit_intercept)
        fit = swap_search(problem, np.array([6, 7, 8]), shortlist=9)
        w, objective = fit.w, fit.objective
        left += min(all_swaps(problem, np.flatnonzero(w))) < objective * (1 - 1e-6)
    assert left <= 1


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_finds_the_best_subset_of_easy_problems(loss: Loss) -> None:
    X, y = small_data(loss)
    for fit_intercept in (False, True):
        problem = Problem(X, y, loss, 2, 0.1, some_weights(len(y)), fit_intercept)
        for start in (NOTHING, np.array([1, 4])) if loss.mu > 0 else (NOTHING,):
            objective = swap_search(problem, start).objective
            assert objective == pytest.approx(best_subset(problem).objective, rel=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
@pytest.mark.parametrize("start", [[], [2], [1, 4, 5]])
def test_a_short_support_is_filled(loss: Loss, start: list[int]) -> None:
    problem = random_problem(loss, k=4)
    w = swap_search(problem, np.array(start, dtype=np.int64)).w
    assert np.count_nonzero(w) == 4


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_one_feature_and_all_features(loss: Loss) -> None:
    one = random_problem(loss, d=6, k=1)
    expected = min(fitted(one, np.array([j])) for j in range(6))
    assert swap_search(one, NOTHING).objective == pytest.approx(expected, rel=1e-8)
    everything = random_problem(loss, d=6, k=6)
    for start in (NOTHING, np.arange(6), np.array([5])):
        expected = fitted(everything, np.arange(6))
        assert swap_search(everything, start).objective == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
@pytest.mark.parametrize("lam", [1e-6, 1e-2, 1e2])
def test_duplicate_and_constant_columns(loss: Loss, lam: float) -> None:
    rng = np.random.default_rng(3)
    half = rng.standard_normal((25, 4))
    X = np.hstack([half, half, np.ones((25, 1)), np.zeros((25, 1))])
    y = targets(loss, half @ np.array([2.0, -1.0, 0.5, 0.0]), rng)
    for fit_intercept in (False, True):
        problem = Problem(X, y, loss, 3, lam, None, fit_intercept)
        for start in (NOTHING, np.array([0, 4, 9]), np.array([1, 5, 8]))[: 3 if loss.mu > 0 else 1 + fit_intercept]:
            fit = swap_search(problem, start)
            w, objective = fit.w, fit.objective
            assert np.count_nonzero(w) <= 3
            assert objective <= (fitted(problem, start) if len(start) else np.inf) * (1 + 1e-9)


@pytest.mark.parametrize("name", [name for name, _ in DESIGNS])
@pytest.mark.parametrize("loss", [Squared(), LOSSES[3]], ids=["squared", "logistic"])
def test_every_kind_of_design_agrees_with_its_dense_twin(name: str, loss: Loss) -> None:
    X, y = small_data(loss, n=30, d=9)
    design, twin = dict(DESIGNS)[name](X)
    problem, dense = Problem(design, y, loss, 3, 0.05), Problem(twin, y, loss, 3, 0.05)
    start = np.array([5, 6, 7])
    before = design.passes
    objective, expected = (swap_search(p, start).objective for p in (problem, dense))  # on one of twin columns
    assert objective == pytest.approx(expected, rel=1e-9)
    assert design.passes > before


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_nodes_of_a_search_tree(loss: Loss) -> None:
    inside, outside = np.array([8, 10]), np.array([0, 1, 5])
    rng = np.random.default_rng(1)
    base = random_problem(loss, k=5)
    node = Cardinality(5).restricted(inside, outside)
    problem = Problem(base.design, base.y, loss, node, 0.01)
    for start in (NOTHING, np.array([2, 8, 9]), rng.permutation(12)[:7], np.arange(12)):
        pool = Pool()
        fit = swap_search(problem, start, pool=pool)
        w, objective = fit.w, fit.objective
        assert problem.constraint.allows(w)
        assert np.all(w[inside] != 0.0)
        assert all(problem.constraint.allows(pooled.w) for pooled in pool)
        if loss == Squared():
            assert min(all_swaps(problem, np.flatnonzero(w))) >= objective * (1 - 2e-9)


def test_a_node_without_choice() -> None:
    base = random_problem(Squared(), k=3)
    for inside, outside in (([1, 2, 3], []), ([], list(range(3, 12))), ([4], [j for j in range(12) if j != 4])):
        node = Cardinality(3).restricted(np.array(inside, dtype=np.int64), np.array(outside, dtype=np.int64))
        problem = Problem(base.design, base.y, Squared(), node, 0.01)
        w = swap_search(problem, NOTHING).w
        expected = inside if len(inside) == 3 else np.setdiff1d(np.arange(12), outside)
        np.testing.assert_array_equal(np.flatnonzero(w), expected)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_a_shortlist_of_candidates_on_large_designs(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is for large data, on small: candidates are chosen in rounds, and only some features may leave."""
    rng = np.random.default_rng(2)
    X = sp.random_array((60, 40), density=0.3, format="csr", rng=rng)
    w = np.where(np.arange(40) < 6, 2.0, 0.0)
    y = targets(loss, X @ w, rng)
    for fit_intercept in (False, True)[: 2 if loss.mu > 0 else 1]:
        problem = Problem(X, y, loss, 6, 1e-3, None, fit_intercept)
        with monkeypatch.context() as patch:
            patch.setattr(swaps, "_MOST_ENTRIES", 10)
            patch.setattr(swaps, "_MOST_ROWS", 3)
            patch.setattr(swaps, "_FEWEST", 5)
            start = np.arange(20, 26)
            fit = swap_search(problem, start, candidates=5)
            w, b, objective = fit.w, fit.b, fit.objective
            filled = swap_search(problem, NOTHING, candidates=5).w
        assert np.count_nonzero(filled) == 6
        assert objective < fitted(problem, start)
        assert objective == pytest.approx(primal(problem, w, b), rel=1e-12)
        assert objective == pytest.approx(fitted(problem, np.flatnonzero(w)), rel=1e-8)


def test_stop_and_the_limit_on_swaps() -> None:
    X, y, _ = paper_design(80, 15, 30, 0)
    problem, start = Problem(X, y, Squared(), 15, 0.01), np.arange(60, 75)
    w = swap_search(problem, start, stop=lambda: True).w
    np.testing.assert_array_equal(np.flatnonzero(w), start)
    for limit in range(4):
        w = swap_search(problem, start, max_swaps=limit).w
        assert len(np.setdiff1d(start, np.flatnonzero(w))) <= limit
    one, two = (swap_search(problem, start, max_swaps=limit).objective for limit in (1, 2))
    assert two < one < fitted(problem, start)


def test_several_swaps_are_made_at_once_where_the_quadratic_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted by fits, one of them the first: several times fewer than features that are exchanged."""
    X, y, _ = paper_design(400, 15, 60, 0)
    problem, start, fits = Problem(X, np.where(y > 0.0, 1.0, -1.0), "logistic", 15, 0.01), np.arange(45, 60), []
    monkeypatch.setattr(swaps, "refit", lambda *a, **k: fits.append(refit(*a, **k)) or fits[-1])
    monkeypatch.setattr(swaps, "_MOST_ENTRIES", 400 * 59)  # as if X were large
    fit = swap_search(problem, start)
    exchanged = len(np.setdiff1d(start, fit.support))
    assert exchanged >= 10
    assert len(fits) - 1 <= exchanged / 2
    assert fit.objective == pytest.approx(fitted(problem, fit.support), rel=1e-8)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_a_search_pauses_at_ever_better_models_of_its_size(loss: Loss) -> None:
    problem, pool = random_problem(loss, n=60, d=20, k=5, seed=3), Pool()
    search, seen = swaps.swaps(problem, np.arange(15, 20), pool=pool), []
    for _ in search:
        assert pool.best is not None
        seen.append(pool.best.objective)
        assert len(pool.best.support) <= 5
    assert len(seen) >= 1
    assert all(later < earlier for earlier, later in pairwise(seen))
    assert seen[-1] == pytest.approx(swap_search(problem, np.arange(15, 20)).objective, rel=1e-8)


@given(st.integers(0, 10_000), st.sampled_from([1e-4, 1e-2, 1.0]), st.booleans(), st.integers(1, 6))
def test_random_problems_end_swap_optimal(seed: int, lam: float, fit_intercept: bool, k: int) -> None:
    problem = random_problem(Squared(), n=10, d=8, k=k, lam=lam, seed=seed, fit_intercept=fit_intercept)
    fit = swap_search(problem, NOTHING)
    w, objective = fit.w, fit.objective
    assert min(all_swaps(problem, np.flatnonzero(w)), default=np.inf) >= objective * (1 - 1e-8)


def test_perturbations_lead_on_where_no_swap_does() -> None:
    gained = 0
    for seed in range(4):
        X, y, _ = paper_design(120, 25, 38, seed)
        problem, pool = Problem(X, y, Squared(), 25, 0.01, fit_intercept=seed % 2 == 0), Pool()
        without = swap_search(problem, NOTHING).objective
        fit = swap_search(problem, NOTHING, perturbations=20, pool=pool)
        w, objective = fit.w, fit.objective
        if seed == 0:
            np.testing.assert_array_equal(w, swap_search(problem, NOTHING, perturbations=20).w)
        assert objective <= without
        assert objective == pytest.approx(fitted(problem, np.flatnonzero(w)), rel=1e-10)
        assert pool.best is not None
        assert pool.best.objective == pytest.approx(objective, rel=1e-10)
        gained += objective < without * (1 - 1e-6)
    assert gained >= 2


@pytest.mark.parametrize("k", [1, 2, 5, 7, 8])
def test_perturbations_where_there_is_little_to_exchange(k: int) -> None:
    base = random_problem(Squared(), d=8, k=k)
    inside = np.arange(k)[: k - 1]
    for constraint in (Cardinality(k), Cardinality(k).restricted(inside, NOTHING)):
        problem = Problem(base.design, base.y, Squared(), constraint, 0.01)
        fit = swap_search(problem, NOTHING, perturbations=10)
        w, objective = fit.w, fit.objective
        assert problem.constraint.allows(w)
        assert min(all_swaps(problem, np.flatnonzero(w)), default=np.inf) >= objective * (1 - 2e-9)


def test_rows_of_the_hessian_that_no_longer_fit_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = paper_design(60, 12, 24, 0)
    problem = Problem(X, y, Squared(), 12, 0.01)
    expected = swap_search(problem, NOTHING, perturbations=10).w
    before = problem.design.passes
    swap_search(problem, NOTHING, perturbations=10)
    middle = problem.design.passes
    monkeypatch.setattr(exchange, "_MOST_KEPT", 60 * 24)
    np.testing.assert_allclose(swap_search(problem, NOTHING, perturbations=10).w, expected, rtol=1e-8)
    assert problem.design.passes - middle > middle - before > 12


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
@pytest.mark.parametrize("copied", [0.0, 1.0])
def test_what_is_out_of_play_stays_out_with_and_without_a_copy(
    loss: Loss, copied: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few features that may not join cost no copy of the others; either way the search ends where none of the others helps."""
    monkeypatch.setattr(swaps, "_COPIED", copied)
    problem = random_problem(loss, fit_intercept=True)
    free = swap_search(problem, NOTHING)
    barred = np.flatnonzero(free.w)[:2]
    node = problem.replaced(constraint=problem.constraint.restricted(NOTHING, barred))
    passes = problem.design.passes
    fit = swap_search(node, NOTHING)
    w, objective = fit.w, fit.objective
    assert not np.any(w[barred])
    assert objective >= free.objective * (1 - 1e-9)
    assert objective <= min(all_swaps(node, np.flatnonzero(w))) * (1 + 1e-6) or loss.mu == 0.0
    assert problem.design.passes > passes

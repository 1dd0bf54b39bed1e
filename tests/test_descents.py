"""Compiled local searches from many starts: their fits, what they may and may not do, and where they are not made."""

import numpy as np
import pytest
import scipy.sparse as sp

from diht import Problem
from diht.losses import Hinge, Huber, Logistic, Loss, Poisson, SmoothedHinge, Squared, SquaredHinge
from diht.refit import refit
from diht.samples import BlockSamples, Descents, exchanges
from diht.search.exchange import Hessian, Quadratic
from diht.search.starts import Starts
from oracle import best_subset, some_weights, targets

COMPILED: list[Loss] = [Squared(), SmoothedHinge(), Logistic(), SquaredHinge(), Huber()]
NONE = np.empty(0, dtype=np.int64)


def drawn(
    loss: Loss, shape: tuple[int, int] = (30, 12), k: int = 3, lam: float = 1e-3, intercept: bool = True
) -> Problem:
    """Correlated columns of different sizes and means, one of them constant, with weights."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal(shape) + rng.standard_normal((shape[0], 1))) * 10.0 ** rng.uniform(-1, 1, shape[1])
    X[:, 1:] += 2.0
    X[:, 4] = 3.0
    y = targets(loss, X[:, [0, 2]] @ [1.0, 1.0], rng)
    return Problem(X, y, loss, k, lam, some_weights(shape[0]), intercept)


def descents_of(problem: Problem) -> Descents:
    descents = problem.samples.descents(problem.loss, problem.lam, problem.fit_intercept)
    assert descents is not None
    return descents


def starts_of(problem: Problem, seed: int = 0) -> Starts:
    fit = refit(problem, np.array([3, 5]))
    starts = Starts(problem, descents_of(problem), seed)
    starts.know(fit.support, fit.objective)
    return starts


def everything(problem: Problem) -> np.ndarray:
    return np.ones(problem.shape[1], dtype=bool)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", COMPILED, ids=str)
def test_the_objective_is_that_of_a_fit(loss: Loss, intercept: bool) -> None:
    problem = drawn(loss, intercept=intercept)
    for lam in (1e-1, 1e-4):
        weak = problem.replaced(lam=lam)
        found = starts_of(weak).descend(weak, NONE, everything(weak))
        assert found.objective == pytest.approx(refit(weak, found.support).objective, rel=1e-6)


@pytest.mark.parametrize("loss", COMPILED, ids=str)
def test_some_start_leads_to_the_optimum(loss: Loss) -> None:
    problem = drawn(loss)
    starts = starts_of(problem)
    found = min(starts.search(problem).objective for _ in range(12))
    assert found == pytest.approx(best_subset(problem).objective, rel=1e-6)


@pytest.mark.parametrize("loss", [Squared(), Logistic()], ids=str)
def test_it_ends_where_no_swap_helps(loss: Loss) -> None:
    """All features are near and fitted where there are so few."""
    problem = drawn(loss, (25, 6), 2)
    found = starts_of(problem).descend(problem, NONE, everything(problem))
    for out in found.support:
        for new in set(range(6)) - set(found.support.tolist()):
            support = np.sort(np.append(found.support[found.support != out], new))
            assert refit(problem, support).objective > found.objective * (1 - 1e-5)


@pytest.mark.parametrize("intercept", [True, False])
def test_exchanges_are_those_of_the_formula(intercept: bool) -> None:
    """The compiled exchanges of a quadratic objective, one by one, beside their twin in numpy."""
    problem = drawn(Squared(), (30, 40), 5, intercept=intercept)
    descents, start, d = descents_of(problem), np.array([0, 3, 5, 7, 9]), 40
    hessian = Hessian.whole(problem, problem.samples.curvatures(problem.loss, problem.y))

    def found(n_exchanges: int) -> tuple[float, np.ndarray]:
        barred = ~descents.usable
        barred[start] = True
        end = descents._quadratic.search(start, 2, 5, (barred, barred), n_exchanges=n_exchanges)
        return end.objective, end.members

    for n in range(4):
        objective, support = found(n)
        fit = refit(problem, np.sort(support))
        assert objective == pytest.approx(fit.objective, rel=1e-9)
        r = -problem.samples.pull(problem.samples.slopes(problem.loss, fit.margins(problem)))
        taken, stays = ~descents.usable, np.isin(np.arange(d), start[:2])
        taken[support] = True
        none = np.empty(0, dtype=np.int64)
        gains = Quadratic.around(fit.support, none, fit.w[fit.support], objective, r, hessian, taken, stays).gains()
        row, new = divmod(int(np.argmax(gains)), d)
        if not gains[row, new] > 1e-6 * objective:
            break
        assert objective - found(n + 1)[0] == pytest.approx(gains[row, new], rel=1e-6)
        assert set(found(n + 1)[1]) == {*support, new} - {fit.support[row]}
    assert n > 0


@pytest.mark.parametrize("most", [0, 100, 10_000])
def test_rows_that_are_kept_change_nothing(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, two of forty, all: the same models, searched again with what the first searches have left."""
    problem = drawn(Squared(), (30, 40), 5)
    expected = [starts_of(problem, seed).search(problem) for seed in range(3)]
    monkeypatch.setattr(exchanges, "_MOST_KEPT", most)
    starts = starts_of(problem)
    for seed in [0, 1, 2, 0]:
        again = Starts(problem, starts.descents, seed)
        objective, support = next(iter(starts._known.values()))
        again.know(support, objective)
        found = again.search(problem)
        assert found.support.tolist() == expected[seed].support.tolist()
        assert found.objective == pytest.approx(expected[seed].objective, rel=1e-12)
    kept = starts.descents._quadratic.data[4]
    assert len(kept) == min(40, most // 40)
    known = kept[kept >= 0].tolist()
    assert len(set(known)) == len(known) >= min(2, len(kept))


def test_kinds_of_starts_take_turns_but_for_one_that_takes_most_of_the_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = drawn(Logistic(), (30, 200), 3)

    def turns() -> list[int]:
        starts = starts_of(problem)
        kinds, taken = list(starts._efforts), []
        for _ in range(60):
            taken.append(kinds.index(starts._kind))
            starts.search(problem)
        assert sum(starts._efforts.values()) > 0.0
        return [taken.count(kind) for kind in range(len(kinds))]

    assert min(turns()) >= 10
    monkeypatch.setattr(Descents, "ridge_effort", lambda self, n_features: 1e12)
    assert turns()[1] == 1


def test_what_is_decided_stays() -> None:
    problem = drawn(Logistic(), k=4)
    node = problem.replaced(constraint=problem.constraint.restricted(np.array([7, 9]), np.array([0, 2])))
    starts = starts_of(node)
    for _ in range(8):
        support = starts.search(node).support.tolist()
        assert {7, 9} <= set(support)
        assert not {0, 2, 4} & set(support)  # nor is a constant column of use
        assert len(support) == len(set(support)) == 4


def test_more_places_than_features_that_vary() -> None:
    problem = drawn(Squared(), (25, 6), 6)
    found = starts_of(problem).descend(problem, np.array([4]), everything(problem))
    assert found.support.tolist() == [0, 1, 2, 3, 5]


def test_an_effort_ends_the_swaps() -> None:
    problem = drawn(SquaredHinge(), (40, 300), 8)
    starts = starts_of(problem)
    short, long = (starts.descend(problem, NONE, everything(problem), most) for most in (0.0, np.inf))
    assert short.effort < long.effort
    assert short.objective > long.objective
    assert len(short.support) == 8


def test_returns_to_the_best_model_are_counted() -> None:
    problem = drawn(Squared())
    best = best_subset(problem)
    starts = Starts(problem, descents_of(problem), 0)
    starts.know(np.flatnonzero(best.w), best.objective)
    for _ in range(16):
        starts.search(problem)
    assert starts.returned > 0
    np.testing.assert_array_equal(starts.elite[0], np.flatnonzero(best.w))


def test_the_same_seed_gives_the_same_searches() -> None:
    problem = drawn(Logistic(), (30, 60), 5)
    one, two = ([starts.search(problem) for _ in range(6)] for starts in (starts_of(problem, 1), starts_of(problem, 1)))
    for first, second in zip(one, two, strict=True):
        np.testing.assert_array_equal(first.support, second.support)
        assert (first.objective, first.effort) == (second.objective, second.effort)


def test_a_sparse_x_is_formed() -> None:
    problem = drawn(Logistic())
    X = sp.csr_array(problem.design.toarray())
    sparse = Problem(X, problem.y, Logistic(), 3, problem.lam, problem.s, True)
    one, two = (starts_of(p).descend(p, NONE, everything(p)) for p in (problem, sparse))
    np.testing.assert_array_equal(one.support, two.support)
    assert one.objective == pytest.approx(two.objective, rel=1e-9)


def test_there_are_none_for_kinks_and_rows_apart() -> None:
    for loss in (Hinge(), Poisson()):
        problem = drawn(loss)
        assert problem.samples.descents(loss, 0.1, True) is None
    samples = drawn(Logistic()).samples
    apart = BlockSamples([samples.taken(np.arange(15)), samples.taken(np.arange(15, 30))])
    assert apart.descents(Logistic(), 0.1, True) is None

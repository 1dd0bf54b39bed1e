"""Rules of dual points: what a tree stores of its proofs, that it proves what it says, and how much memory it takes."""

import pickle
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

from cases import LOSSES, crossed
from diht import Problem, solve
from diht.bounds.duality import dual_from_primal, lower_bound
from diht.bounds.rule import Rule, SparseVector
from diht.bounds.shift import ShiftedPoint
from diht.losses import Hinge, Logistic, Loss, SquaredHinge
from diht.relaxation import engines
from diht.relaxation.smoothing import Central, Moreau
from diht.solvers import BranchAndBound, nodes, relaxed
from diht.solvers.tree import TreeBound
from oracle import targets


def noisy(loss: Loss, n: int = 20, store: Callable = np.asarray, intercept: bool = True, lam: float = 1e-2) -> Problem:
    """Correlated columns, all of which count: a tree is needed."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, 8)) + rng.standard_normal((n, 1))
    y = targets(loss, X.sum(axis=1), rng)
    return Problem(store(X), y, loss, 3, lam, fit_intercept=intercept, n_threads=1)


def tree(problem: Problem, **settings: float) -> TreeBound:
    bound = solve(problem, BranchAndBound(**settings), tol=1e-9).certificate.bound
    assert isinstance(bound, TreeBound)
    return bound


def without_newton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few steps of ascent, or of gradients, solve a node, as where Newton's method does not pay."""
    monkeypatch.setattr(nodes, "_MOST_STEPS", 4)
    for module in (nodes, engines, relaxed):
        monkeypatch.setattr(module, "newton_pays", lambda *sizes: False)


@pytest.fixture(params=["newton", "ascent"])
def method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How nodes are solved."""
    if request.param == "ascent":
        without_newton(monkeypatch)
    return request.param


@pytest.mark.parametrize(("loss", "intercept"), crossed(LOSSES, [False, True]))
def test_a_stored_tree_proves_what_it_claims(loss: Loss, intercept: bool, method: str) -> None:
    """On the same problem, and on the same data stored in other ways, where last digits differ."""
    problem = noisy(loss, intercept=intercept)
    bound = pickle.loads(pickle.dumps(tree(problem, max_nodes=12)))
    assert bound.check(problem) >= bound.claimed
    assert bound.check(problem) == pytest.approx(bound.value, rel=1e-12)
    for store in (np.asfortranarray, sp.csr_array, sp.csc_array):
        assert bound.check(noisy(loss, store=store, intercept=intercept)) >= bound.claimed


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_leaves_hold_nothing_as_long_as_the_samples(loss: Loss) -> None:
    for n in (20, 400):
        for leaf in tree(noisy(loss, n), max_nodes=6).leaves:
            assert leaf.proof is None or isinstance(leaf.proof, ShiftedPoint | Rule)
            assert len(pickle.dumps(leaf)) < 2000


@pytest.mark.parametrize("n", [30, 3000])
def test_memory_of_a_tree(n: int, method: str) -> None:
    """What a tree takes besides its root does not depend on the number of samples; ascent may hold one leaf's dual point."""
    bound = tree(noisy(Logistic(), n), max_nodes=20)
    leaves = [leaf for leaf in bound.leaves if not isinstance(leaf.proof, np.ndarray)]
    assert len(leaves) >= len(bound.leaves) - (method == "ascent")
    assert len(pickle.dumps(leaves)) < 1000 * len(leaves)


def test_ascent_keeps_dual_points_until_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hinge's have no rule that is as good; open leaves then go over to rules, and the bound stays true."""
    problem = noisy(Hinge(), 60, lam=0.1)
    best = tree(problem).value
    without_newton(monkeypatch)
    some, few = tree(problem, max_nodes=12), tree(problem, max_nodes=12, max_memory=4000.0)
    held = [sum(isinstance(leaf.proof, np.ndarray) for leaf in bound.leaves) for bound in (some, few)]
    assert held[0] > held[1]
    for bound in (some, few):
        assert bound.claimed <= bound.check(problem) <= best * (1 + 1e-9)


@pytest.mark.parametrize("loss", [Hinge(), SquaredHinge()], ids=str)
@pytest.mark.parametrize("intercept", [False, True])
def test_a_rule_is_the_dual_point_of_its_formula(loss: Loss, intercept: bool) -> None:
    problem = noisy(loss, intercept=intercept)
    X, y, w, step = problem.design.toarray(), problem.y, np.zeros(8), np.zeros(8)
    w[[1, 4]], step[[4, 6]] = (0.3, -0.2), (0.01, 0.02)
    plain = Rule(SparseVector.of(w), 0.1)
    np.testing.assert_allclose(plain.dual(problem), dual_from_primal(problem, w, 0.1), atol=1e-14)
    for smooth in (Central(loss, 0.1), Moreau(loss, 0.1)):
        rule = Rule(SparseVector.of(w), 0.1, smooth, SparseVector.of(step), 0.05)
        u = X @ w + 0.1
        alpha = smooth.derivative(u, y) + smooth.second_derivative(u, y) * (X @ step + 0.05)
        if intercept:
            alpha = problem.samples.balanced(loss, alpha)
        np.testing.assert_allclose(rule.dual(problem), np.clip(alpha, *loss.domain(y)), atol=1e-12)
        features = np.array([1, 2, 4, 6])
        inside = rule.within(features)
        np.testing.assert_allclose(inside.dual(problem.restricted(features)), rule.dual(problem), atol=1e-12)
        again = inside.among(features, 8)
        assert lower_bound(problem, again.dual(problem)).value == lower_bound(problem, rule.dual(problem)).value
        assert again.nbytes == 4 * 16

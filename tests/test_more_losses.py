"""The losses of quantiles, claims and overdispersed counts: brute force, bounds, other packages, and every door."""

from itertools import combinations

import numpy as np
import pytest
from mpmath import mpf
from scipy.optimize import minimize
from scipy.stats import nbinom
from sklearn.linear_model import GammaRegressor, QuantileRegressor, TweedieRegressor
from sklearn.metrics import d2_pinball_score, d2_tweedie_score, mean_pinball_loss

from cases import MORE_LOSSES
from diht import Problem, SparseRegressor, SparseRegressorCV, certify, load_model, near_optimal, solve, sparse_path
from diht.bounds.duality import dual_from_primal, lower_bound
from diht.constraints.groups import constrained
from diht.design import row_blocks
from diht.losses import Gamma, Loss, NegativeBinomial, Quantile, Tweedie
from diht.refit import refit
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT
from oracle import best_subset, exact_dual, exactly_balanced, some_weights, targets, textbook

LOSSES = [*MORE_LOSSES, Quantile(0.2, gamma=0.5)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def data(loss: Loss, n: int = 30, d: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.round(8 * rng.standard_normal((n, d))) / 8 + 0.5
    return X, targets(loss, X[:, 1] - 0.8 * X[:, d - 3], rng)


def exact_objective(problem: Problem, X: np.ndarray, w: np.ndarray, b: float) -> mpf:
    """P in sixty digits."""
    row, y, s = textbook(problem.loss), problem.y + problem.level, problem.s
    total = mpf(problem.lam) / 2 * sum(mpf(x) ** 2 for x in w.tolist())
    for xi, yi, si in zip(X.tolist(), y.tolist(), s.tolist(), strict=True):
        total += mpf(si) * row.value(
            sum(mpf(a) * mpf(c) for a, c in zip(xi, w.tolist(), strict=True)) + mpf(b), mpf(yi)
        )
    return total


# ---------------------------------------------------------------------------------------------------------------------
# Brute force, and bounds


@pytest.mark.parametrize("fit_intercept", [False, True])
@every_loss
def test_methods_keep_between_the_optimum_and_their_bounds(loss: Loss, fit_intercept: bool) -> None:
    X, y = data(loss, seed=fit_intercept)
    weights = some_weights(len(y)) if fit_intercept else None
    problem = Problem(X, y, loss, 2, 0.1, weights, fit_intercept)
    best, step = best_subset(problem), "auto" if loss.mu or loss.link == "log" else 0.05
    for solver in ("auto", "branch", "relaxed", DIHT(), SDIHT(blocks=3), IHT(step), HTP(step), SVRGHT(3, step)):
        result = solve(problem, solver, tol=1e-8, max_iter=None if isinstance(solver, str) else 20)
        assert result.objective >= best.objective * (1 - 1e-9)
        assert np.all(result.trace.column("lower_bound") <= best.objective)
        assert result.lower_bound <= result.objective
        if solver in ("auto", "branch"):
            assert result.objective == pytest.approx(best.objective, rel=1e-8)
            assert result.lower_bound >= best.objective * (1 - 1e-4)


@every_loss
def test_the_best_model_of_a_support_is_one_in_sixty_digits(loss: Loss) -> None:
    """No step from it lowers the exact objective, and that is what is said."""
    X, y = data(loss, n=16, d=3)
    problem = Problem(X, y, loss, 3, 0.05)
    fit, rng = refit(problem, np.arange(3)), np.random.default_rng(0)
    least = exact_objective(problem, X, fit.w, 0.0)
    assert float(least) == pytest.approx(fit.objective, rel=1e-13)
    for size in (1e-1, 1e-3, 1e-5):
        for _ in range(5):
            assert exact_objective(problem, X, fit.w + size * rng.standard_normal(3), 0.0) > least


@pytest.mark.parametrize("fit_intercept", [False, True])
@every_loss
def test_bounds_are_true_in_exact_arithmetic(loss: Loss, fit_intercept: bool) -> None:
    """What is claimed is at most the value, in sixty digits, of a dual point that is balanced exactly."""
    X, y = data(loss, n=12, d=4)
    problem = Problem(X, y, loss, 2, 0.1, some_weights(12), fit_intercept)
    rng = np.random.default_rng(1)
    for size in (0.0, 0.3, 3.0):
        w = size * rng.standard_normal(4)
        bound = lower_bound(problem, dual_from_primal(problem, w))
        alpha = [mpf(a) for a in np.asarray(bound.alpha).tolist()]
        if fit_intercept:
            alpha = exactly_balanced(problem, alpha)
        exact = exact_dual(problem, X, alpha)
        assert bound.value <= exact + mpf(10) ** -40
        assert bound.value >= min(exact, 0) - 1e-9 * (abs(exact) + 1)


@pytest.mark.parametrize("power", [1.01, 1.3, 1.5, 1.8, 1.99])
def test_the_conjugate_of_tweedies_loss_is_never_too_small(power: float) -> None:
    """Beyond the rounding of its terms, which the bound subtracts."""
    loss, row = Tweedie(power), textbook(Tweedie(power))
    eps = np.finfo(np.float64).eps
    for target in (1e-6, 0.7, 3.0, 1e5):
        h = np.concatenate([[0.0], 10.0 ** np.arange(-9.0, 12.0, 2.0)])
        a = np.concatenate([h, -h[1:]]) * target ** (2.0 - power)
        low, high = loss.domain(np.array(target))
        a = a[(a > low) & (a < high)]
        y = np.full_like(a, target)
        conjugate = loss.conjugate(a, y)
        terms = loss.conjugate_terms(a, y, conjugate)
        for ai, ci, ti in zip(a.tolist(), conjugate.tolist(), terms.tolist(), strict=True):
            error = mpf(ci) - row.conjugate(mpf(ai), mpf(target))
            assert -4 * eps * ti - mpf(10) ** -45 <= error <= 4 * eps * ti + mpf(10) ** -45


@every_loss
def test_extreme_targets_and_predictions(loss: Loss) -> None:
    """Errors of the values are small beside what a rounding of u moves; nothing is lost near the target."""
    row, eps = textbook(loss), np.finfo(np.float64).eps
    sizes = np.concatenate([[0.0], 10.0 ** np.arange(-10.0, 2.0)])
    for target in (1e-8, 0.3, 7.0, 1e6):
        center = np.log(target) if loss.link == "log" else target
        u = center + np.concatenate([sizes, -sizes])
        y = np.full_like(u, target)
        for ui, value, slope in zip(u.tolist(), loss.value(u, y).tolist(), loss.derivative(u, y).tolist(), strict=True):
            exact = row.value(mpf(ui), mpf(target))
            moved = eps * (abs(ui) + abs(center)) * abs(row.derivative(mpf(ui), mpf(target)))
            assert abs(mpf(value) - exact) <= 8 * eps * exact + 2 * moved + mpf(10) ** -300
            bend = float(loss.second_derivative(np.array([ui]), np.array([target]))[0])
            rounding = 4 * eps * (abs(ui) + abs(center)) * max(bend, 1.0)
            assert slope == pytest.approx(float(row.derivative(mpf(ui), mpf(target))), rel=1e-14, abs=rounding)


@pytest.mark.parametrize("loss", [Quantile(0.3), Gamma(), Tweedie(1.6)], ids=repr)
def test_offsets(loss: Loss) -> None:
    """An offset is a column with the coefficient 1."""
    X, y = data(loss, seed=3)
    offset = np.linspace(-1.0, 1.0, len(y))
    problem = Problem(X, y, loss, 2, 0.1, None, True, offset=offset)
    result, best = solve(problem, "branch", tol=1e-9), best_subset(problem)
    value = loss.value(X @ result.coef + result.intercept + offset, y).mean() + 0.05 * result.w @ result.w
    assert result.objective == pytest.approx(value, rel=1e-12)
    assert result.lower_bound <= best.objective <= result.objective * (1 + 1e-9)


def test_the_negative_binomial_loss_refuses_offsets() -> None:
    X, y = data(NegativeBinomial())
    with pytest.raises(ValueError, match="offset cannot be used with the negative_binomial loss"):
        SparseRegressor(k=2, loss="negative_binomial").fit(X, y, offset=np.ones(len(y)))


# ---------------------------------------------------------------------------------------------------------------------
# Other packages, on the same features


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
def test_quantiles_are_those_of_scikit_learn(q: float) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = X @ [1.0, -1.0, 0.5] + rng.gumbel(size=200) * np.exp(0.3 * X[:, 0])
    ours = SparseRegressor(k=3, lam=1e-12, loss=Quantile(q), standardize=False, tol=1e-10).fit(X, y)
    theirs = QuantileRegressor(quantile=q, alpha=0.0, solver="highs").fit(X, y)
    expected = mean_pinball_loss(y, theirs.predict(X), alpha=q)
    assert mean_pinball_loss(y, ours.predict(X), alpha=q) == pytest.approx(expected, rel=1e-8)
    assert ours.score(X, y) == pytest.approx(d2_pinball_score(y, theirs.predict(X), alpha=q), rel=1e-8)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)


@pytest.mark.parametrize(
    ("loss", "theirs"),
    [
        (Gamma(), GammaRegressor()),
        (Tweedie(1.2), TweedieRegressor(power=1.2)),
        (Tweedie(1.7), TweedieRegressor(power=1.7)),
    ],
    ids=["gamma", "tweedie 1.2", "tweedie 1.7"],
)
def test_means_are_those_of_scikit_learn(loss: Loss, theirs: GammaRegressor | TweedieRegressor) -> None:
    rng = np.random.default_rng(1)
    X, weights = rng.standard_normal((300, 4)), rng.uniform(0.5, 2.0, 300)
    y = rng.gamma(2.0, 0.5 * np.exp(X @ [0.4, -0.3, 0.0, 0.2]))
    y = y if loss.positive_targets else np.where(rng.random(300) < 0.3, 0.0, y)
    ours = SparseRegressor(k=4, lam=0.1, loss=loss, standardize=False).fit(X, y, weights)
    theirs.set_params(alpha=0.1, tol=1e-12, max_iter=1000, solver="newton-cholesky")
    theirs.fit(X, y, weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-8)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-8)
    power = 2.0 if loss.positive_targets else loss.power
    explained = d2_tweedie_score(y, theirs.predict(X), sample_weight=weights, power=power)
    assert ours.score(X, y, weights) == pytest.approx(explained, rel=1e-8)


@pytest.mark.parametrize("dispersion", [0.1, 2.0])
def test_the_negative_binomial_loss_is_the_likelihood(dispersion: float) -> None:
    """Minimised by scipy with scipy's probabilities."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 3))
    y = rng.poisson(np.exp(X @ [0.5, -0.3, 0.0]) * rng.gamma(1.0 / dispersion, dispersion, 200)).astype(float)
    r = 1.0 / dispersion

    def objective(x: np.ndarray) -> float:
        mean = np.exp(X @ x[:3] + x[3])
        return float(-nbinom.logpmf(y, r, r / (r + mean)).mean() + 0.05 * x[:3] @ x[:3])

    ours = SparseRegressor(k=3, lam=0.1, loss=NegativeBinomial(dispersion), standardize=False).fit(X, y)
    found = minimize(objective, np.zeros(4), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(np.append(ours.coef_, ours.intercept_), found.x, atol=1e-5)
    assert objective(np.append(ours.coef_, ours.intercept_)) <= found.fun * (1 + 1e-13)


# ---------------------------------------------------------------------------------------------------------------------
# Doors


@every_loss
def test_every_door(loss: Loss, tmp_path) -> None:
    X, y = data(loss, n=60)
    model = SparseRegressor(k=2, lam=0.05, loss=loss, exact=True).fit(X, y)
    path = sparse_path(X, y, ks=[1, 2, 3], lams=0.05, loss=loss)
    assert path.points[1].objective == pytest.approx(model.objective_, rel=1e-4)
    chosen = SparseRegressorCV(ks=[1, 2, 3], lams=0.05, loss=loss, cv=3).fit(X, y)
    assert chosen.lower_bound_ <= chosen.objective_
    scores = chosen.cv_results_["mean_test_score"]
    assert np.all(scores < 0.0)
    model.to_json(tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert again._loss() == loss
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-13)  # files sum in another order
    assert again.score(X, y) == pytest.approx(model.score(X, y), rel=1e-13)
    model.report(tmp_path / "report.html", X, y)
    assert loss.name.replace("_", " ") in (tmp_path / "report.html").read_text()
    np.testing.assert_allclose(model.to_sklearn().predict(X), model.predict(X), rtol=1e-12)
    certificate = certify(Problem(X, y, loss, 2, 0.05, fit_intercept=True), support=model.support_)
    assert certificate.lower_bound <= certificate.objective
    assert len(near_optimal(Problem(X, y, loss, 2, 0.05, fit_intercept=True), 0.05).supports) >= 1


@every_loss
def test_rows_in_blocks_and_constraints(loss: Loss) -> None:
    X, y = data(loss, seed=5)
    for given in ({"sign": 1}, {"groups": [0, 0, 1, 1, 2, 2]}, {"keep": [5]}):
        whole = Problem(X, y, loss, constrained(2, 6, **given), 0.1, None, True)
        blocks = Problem(row_blocks([X[:11], X[11:]]), y, loss, constrained(2, 6, **given), 0.1, None, True)
        here, there = solve(whole), solve(blocks)
        assert there.objective == pytest.approx(here.objective, rel=1e-6)
        supports = (np.array(s, dtype=np.int64) for m in range(2, 5) for s in combinations(range(6), m))
        allowed = [s for s in supports if whole.constraint.allows(np.isin(np.arange(6), s).astype(float))]
        best = min(refit(whole, s).objective for s in allowed)
        assert max(here.lower_bound, there.lower_bound) <= best * (1 + 1e-12)
        assert here.objective == pytest.approx(best, rel=1e-6)


@every_loss
def test_several_targets(loss: Loss) -> None:
    X, y = data(loss)
    Y = np.column_stack([y, y[::-1], np.roll(y, 7)])
    problem = Problem(X, Y, loss, 2, 0.1, None, True)
    result = solve(problem)
    best = min(refit(problem, problem.coefficients_at(np.array(s))).objective for s in combinations(range(6), 2))
    assert result.objective == pytest.approx(best, rel=1e-6)
    assert result.lower_bound <= best


def test_parameters_are_checked() -> None:
    for bad in (0.0, 1.0, -0.1, np.nan, "0.5", None, [], ["0.5", 0.6], [None, 0.6]):
        with pytest.raises(ValueError, match=r"^q must be between 0 and 1"):
            Quantile(bad)
    for bad in (-1.0, "0", []):
        with pytest.raises(ValueError, match=r"^gamma must not be negative"):
            Quantile(0.5, bad)
    for bad in (1.0, 2.0, 0.0, np.nan, "1.5", []):
        with pytest.raises(ValueError, match=r"^power must be between 1 and 2"):
            Tweedie(bad)
    with pytest.raises(ValueError, match=r"^dispersion must be positive"):
        NegativeBinomial(0.0)
    with pytest.raises(ValueError, match=r"^y must be positive for the gamma loss, got 0.0 at position 1"):
        SparseRegressor(k=1, loss="gamma").fit(np.ones((3, 1)), [1.0, 0.0, 2.0])


def test_names_with_parameters_in_estimators() -> None:
    X, y = data(Quantile())
    named, given = (SparseRegressor(k=2, loss=loss).fit(X, y) for loss in ("quantile(q=0.9)", Quantile(0.9)))
    np.testing.assert_array_equal(named.coef_, given.coef_)
    with pytest.raises(ValueError, match=r"^loss must be one of \['squared'"):
        SparseRegressor(loss="hinge()").fit(X, y)

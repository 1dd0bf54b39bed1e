"""Rows on a device, here as tensors of the CPU: the code is that of a GPU but for the kernels."""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from mpmath import mpf
from sklearn import clone, config_context
from sklearn.linear_model import Ridge

import test_limits
from cases import LOSSES
from diht import (
    Problem,
    SparseClassifier,
    SparseClassifierCV,
    SparseRegressor,
    SparseRegressorCV,
    certify,
    per_group,
    solve,
    sparse_path,
    within_budget,
)
from diht.bounds.certificate import certificate_of
from diht.bounds.duality import (
    dual,
    dual_from_primal,
    feasible,
    gap,
    lower_bound,
    margin,
    null_bound,
    primal,
    primal_from_dual,
    upper_bound,
)
from diht.constraints.base import Constraint
from diht.constraints.groups import constrained
from diht.design import as_design
from diht.losses import Loss, as_loss
from diht.relaxation.engines import KnownHessian
from diht.relaxation.smoothing import Central, central_slopes
from diht.samples.central_path import Turned, condensed
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT, Auto, BranchAndBound, Relaxed, Solver
from oracle import best_subset, exact_dual, exactly_balanced, small_data, some_weights
from test_row_blocks import CONSTRAINTS, data

torch = pytest.importorskip("torch", reason="rows on a device need torch: pip install 'diht[gpu]'")

from diht.gpu import samples_on  # noqa: E402
from diht.gpu.arrays import DeviceArray, fetched, pairwise_sum  # noqa: E402
from diht.gpu.columns import DeviceColumns  # noqa: E402
from diht.gpu.data import matrix_of  # noqa: E402
from diht.gpu.matrix import Dense, Matrix, Sparse  # noqa: E402
from diht.gpu.samples import TorchSamples  # noqa: E402
from diht.gpu.streamed import Streamed  # noqa: E402
from diht.gpu.turned import TurnedThere  # noqa: E402

SOLVERS = [DIHT(), SDIHT(blocks=4), IHT(), HTP(), SVRGHT(), Relaxed(), Auto(), BranchAndBound()]
QUICK = ("squared", "logistic")
# Those of kinks and flat parts take long, one small tensor after the other.
SOME_LOSSES = [loss for loss in LOSSES if loss.name in QUICK]
KINDS = [np.ascontiguousarray, np.asfortranarray, sp.csr_array]
NAMES = ["C", "F", "CSR"]


class InBlocks(NamedTuple):
    """A matrix that does not fit on the device."""

    X: object


def in_blocks(convert):
    return lambda X: InBlocks(convert(X))


def matrix(X: object) -> Matrix:
    """The same matrix as tensors."""
    if isinstance(X, InBlocks):
        size = X.X.data.nbytes + X.X.indices.nbytes + X.X.indptr.nbytes if sp.issparse(X.X) else X.X.nbytes
        found = matrix_of(X.X, torch.device("cpu"), 0.7 * size)
        assert isinstance(found, Streamed)
        assert len(found.parts) > 4
        return found
    if not sp.issparse(X):
        return Dense(torch.from_numpy(X))
    arrays = X.indptr.astype(np.int64), X.indices, X.data
    return Sparse(*map(torch.from_numpy, arrays), X.shape[1])


def samples_of(X: object, y: np.ndarray, weights: np.ndarray | None) -> TorchSamples:
    weights = np.ones(len(y)) if weights is None else weights
    return TorchSamples.of(matrix(X), torch.from_numpy(y), torch.from_numpy(weights / weights.sum()))


def there(X: object, y: np.ndarray, loss: object, k: object, lam: float, weights: object, intercept: bool, scale=None):
    """The problem on tensors."""
    return Problem.of_samples(samples_of(X, y, weights), as_loss(loss), k, lam, intercept, scale)


# ---------------------------------------------------------------------------------------------------------------------
# Functions of numpy on vectors of a device

A = np.random.default_rng(0).normal(size=(3, 7))
B = np.random.default_rng(1).normal(size=7)
C = np.array([[0.5], [-0.25], [2.0]])
FUNCTIONS = {
    "operators": lambda a, b: 2.0 * a - b / (1.0 + a * a) + (-b) ** 2,
    "numbers of numpy": lambda a, b: np.float64(2.0) * a + np.float64(1.0) - np.int64(3) * b,
    "truth values": lambda a, b: (
        0.1 * (a > b) + (b > 0.0),
        (b > 0.0).astype(np.int64) + 0.1,
        2 * (b > 0).astype(np.int64),
    ),
    "columns": lambda a, b: (a + C) * (C - a),
    "comparisons": lambda a, b: ((a > b) & ~(a <= 0.0)) | (b == B),
    "elementwise": lambda a, b: np.log1p(np.exp(-np.abs(a))) + np.expm1(b) + np.sqrt(np.square(a)) + np.hypot(a, b),
    "where": lambda a, b: np.where(a > 0.0, a, 1.0 / 3.0) + np.where(b > 0.0, 0.1, -0.1),
    "clip": lambda a, b: np.clip(a, -0.5, None) + np.clip(a, None, b) + np.clip(a, -np.abs(b), 0.7),
    "maximum": lambda a, b: np.maximum(a, 0.1) + np.minimum(b, a),
    "sums": lambda a, b: (a.sum(), np.sum(a, axis=0), np.sum(a, axis=1), b @ b, a @ b, (a * b) @ a.T),
    "extremes": lambda a, b: (np.max(a), a.max(axis=0), b.min(), np.abs(b).max(initial=9.0), b[:0].max(initial=0.0)),
    "all and any": lambda a, b: (np.all(a > 0), np.any(a > 0, axis=0), np.all(np.isfinite(a)), np.count_nonzero(a > 0)),
    "parts": lambda a, b: (
        a[1],
        b[b > 0],
        b[:, None] * b[None, :],
        np.stack([b, 2.0 * b]),
        np.concatenate([[b @ b], b]),
    ),
    "like": lambda a, b: (np.zeros_like(a), np.ones_like(b), np.full_like(b, 0.1), np.broadcast_to(b, (2, 7))),
    "sorted": lambda a, b: (np.sort(a, axis=0), np.cumsum(a, axis=0), np.linalg.norm(b)),
    "counts": lambda a, b: np.bincount((b > 0).astype(np.int64), np.abs(b), 3),
}


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_of_numpy_run_where_the_numbers_are(f) -> None:
    here, apart = f(A, B), fetched(f(DeviceArray(torch.from_numpy(A)), DeviceArray(torch.from_numpy(B))))
    pairs = zip(here, apart, strict=True) if isinstance(here, tuple) else [(here, apart)]
    for one, other in pairs:
        assert np.asarray(other).dtype == np.asarray(one).dtype
        np.testing.assert_allclose(other, one, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("f", [np.asarray, np.arctan, np.median, lambda a: np.add.reduce(a)])
def test_what_a_device_does_not_know_is_refused(f) -> None:
    with pytest.raises(TypeError, match="device"):
        f(DeviceArray(torch.from_numpy(B)))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 1000, 4097])
def test_sums_are_pairwise(n: int) -> None:
    """The sum of many equal terms has no error beyond some roundings, whatever their number."""
    values = torch.full((2, n), 0.1, dtype=torch.float64)
    assert np.allclose(pairwise_sum(values).numpy(), 0.1 * n, rtol=16 * 2.0**-53)


@pytest.mark.parametrize("tau", [1e-1, 1e-6, 1e-12])
@pytest.mark.parametrize(
    "loss", [loss for loss in LOSSES if loss.pieces is not None and loss.pieces.is_bounded], ids=str
)
def test_slopes_of_the_central_path_are_the_compiled_ones(loss: Loss, tau: float) -> None:
    rng = np.random.default_rng(4)
    u = np.concatenate([rng.normal(size=500) * 10.0 ** rng.integers(-6, 6, 500), [0.0, 1.0, -1.0, 1e8, -1e8]])
    y = rng.choice([-1.0, 1.0], len(u)) if loss.task == "classification" else rng.normal(size=len(u))
    with np.errstate(all="ignore"):
        found = central_slopes(u, y, loss.pieces, tau)
    np.testing.assert_allclose(found, Central(loss, tau).derivative(u, y), rtol=1e-9, atol=1e-13)


# ---------------------------------------------------------------------------------------------------------------------
# Products


@pytest.mark.parametrize("name", ["hinge", "quantile"])
def test_samples_near_kinks_are_those_of_the_host(name: str) -> None:
    """The nearest at first, then those that cross a kink; the means of the others."""
    loss = as_loss(name)
    X, y, weights = data(loss, 5)
    weights[:3] = 0.0
    rng, pieces = np.random.default_rng(3), loss.pieces
    assert pieces is not None
    turned, sides = Turned.of(as_design(X), y, weights, pieces)[0], None
    apart = TurnedThere(*map(torch.from_numpy, (X, y, weights)), pieces, 7, 28)
    for _ in range(4):
        x, b = rng.normal(size=X.shape[1]) / 4, float(rng.normal()) / 4
        sides, here = condensed(turned, sides, x, b, 7, 28)
        (there,) = apart(x, b)
        assert there.new == here.new
        for one, other in zip(there, here, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "convert",
    [*KINDS, in_blocks(np.ascontiguousarray), in_blocks(sp.csr_array)],
    ids=[*NAMES, "C in blocks", "CSR in blocks"],
)
def test_products_are_those_of_the_matrix(convert, dtype) -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 9)).astype(dtype)
    X[rng.random(X.shape) < 0.5] = 0.0
    X[:, 4] = 2.5
    X[:, 6] = 0.0
    A, M = X.astype(np.float64), matrix(convert(X))
    w, c, m, q = rng.normal(size=9), rng.normal(size=40), rng.normal(size=9), rng.exponential(size=9)
    rows, some = np.array([3, 0, 17]), np.array([7, 1, 4, 6])
    tensor = torch.from_numpy
    for found, exact in [
        (M.matvec(tensor(w)), A @ w),
        (M.matvec(tensor(w), tensor(rows)), A[rows] @ w),
        (M.rmatvec(tensor(c)), A.T @ c),
        (M.rmatvec(tensor(c[:3]), tensor(rows)), A[rows].T @ c[:3]),
        (M.columns(tensor(some)).dense_rows(slice(None)), A[:, some]),
        (M.columns(tensor(some)).matvec(tensor(w[:4])), A[:, some] @ w[:4]),
        (M.columns(tensor(some)).rmatvec(tensor(c)), A[:, some].T @ c),
        (M.dense_rows(slice(5, 9)), A[5:9]),
        (M.dense_rows(tensor(rows)), A[rows]),
        (M.column_spread(tensor(c**2), tensor(m)), c**2 @ (A - m) ** 2),
        (M.column_spread(tensor(c**2), None), c**2 @ A**2),
        (M.row_spread(tensor(m), tensor(q)), (((A - m) / q) ** 2).sum(axis=1)),
        (M.row_spread(None, None), (A**2).sum(axis=1)),
        (M.constants(tensor(np.array([4, 6, 1]))), [2.5, 0.0, np.nan]),
    ]:
        assert found.dtype == torch.float64
        np.testing.assert_allclose(found.numpy(), exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("convert", [np.ascontiguousarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_rows_that_do_not_fit_have_the_same_answer(name: str, convert) -> None:
    """And the bound of the relaxation; a tree would need columns that do not fit here."""
    X, y, weights = data(as_loss(name), 3)
    given = y, name, 3, 0.05, weights, True, X.std(axis=0)
    kinds = convert(X), InBlocks(convert(X))
    one, two = (solve(there(rows, *given)) for rows in kinds)
    assert two.objective == pytest.approx(one.objective, rel=1e-9)
    assert two.lower_bound <= one.objective
    one, two = (solve(there(rows, *given), "relaxed", max_iter=20) for rows in kinds)
    assert two.lower_bound == pytest.approx(one.lower_bound, rel=1e-4)


def test_data_are_not_changed() -> None:
    X, y, weights = data(LOSSES[0], 3)
    before = X.copy()
    solve(there(X, y, "squared", 3, 0.1, weights, True, X.std(axis=0)))
    assert np.array_equal(X, before)


# ---------------------------------------------------------------------------------------------------------------------
# Bounds and methods


@pytest.mark.parametrize("convert", [np.asfortranarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_certificate_is_the_same_on_a_device(loss: Loss, fit_intercept: bool, convert) -> None:
    X, y, weights = data(loss, 4)
    given = convert(X), y, loss, 3, 0.05, weights, fit_intercept
    problem, apart, w = Problem(*given), there(*given), np.zeros(12)
    w[[1, 4, 7]] = 0.3, -0.2, 0.1
    alpha = dual_from_primal(problem, w)
    point = dual_from_primal(apart, w)
    np.testing.assert_allclose(apart.samples.fetch(point), alpha, atol=1e-7)
    point = apart.samples.put(alpha)
    for here, elsewhere in [
        (primal(problem, w, 0.1), primal(apart, w, 0.1)),
        (upper_bound(problem, w, 0.1), upper_bound(apart, w, 0.1)),
        (dual(problem, alpha), dual(apart, point)),
        (lower_bound(problem, alpha).value, lower_bound(apart, point).value),
        (gap(problem, w, alpha), gap(apart, w, point)),
        (margin(problem, w, alpha=alpha), margin(apart, w, alpha=point)),
        (primal(problem, *primal_from_dual(problem, alpha)), primal(problem, *primal_from_dual(apart, point))),
        (null_bound(problem, 0.1).value, null_bound(apart, 0.1).value),
        (problem.samples.spectral_bound(), apart.samples.spectral_bound()),
    ]:
        assert elsewhere == pytest.approx(here, rel=1e-7, abs=1e-9)
    exact = certificate_of(problem, w, 0.1 * fit_intercept, lower_bound(problem, alpha))
    again = certificate_of(apart, w, 0.1 * fit_intercept, lower_bound(apart, point))
    assert again.objective == pytest.approx(exact.objective, rel=1e-12)
    assert again.lower_bound == pytest.approx(exact.lower_bound, rel=1e-9, abs=1e-12)
    np.testing.assert_allclose(again.screening.without, exact.screening.without, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("convert", [np.ascontiguousarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_bound_is_true_in_exact_arithmetic(loss: Loss, fit_intercept: bool, convert, dtype) -> None:
    """Against sixty digits, with means far larger than deviations, on a feasible point near the one that was computed."""
    X, y = small_data(loss)
    X = (X + 1e3 * fit_intercept).astype(dtype)
    problem = there(convert(X), y, loss, 2, 1e-3, some_weights(len(y)), fit_intercept)
    samples, w = problem.samples, np.linspace(-0.1, 0.1, X.shape[1])
    alpha = feasible(problem, samples.slopes(loss, samples.margins(w, 0.2)))
    bound = lower_bound(problem, alpha)
    own = SimpleNamespace(
        design=problem.design, s=samples.fetch(samples.s), y=samples.fetch(samples.y), loss=loss, lam=problem.lam,
        constraint=problem.constraint,
    )  # fmt: skip
    point = [mpf(a) for a in samples.fetch(bound.alpha).tolist()]
    point = exactly_balanced(own, point) if fit_intercept else point
    assert exact_dual(own, X.astype(np.float64), point) >= mpf(bound.value)
    assert bound.rounding < 1e-6


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("loss", SOME_LOSSES, ids=lambda loss: loss.name)
def test_bounds_are_below_the_best_of_all_supports(loss: Loss, fit_intercept: bool) -> None:
    X, y = small_data(loss)
    given = X, y, loss, 2, 1e-2, some_weights(len(y)), fit_intercept
    best, result = best_subset(Problem(*given)).objective, solve(there(*given), "relaxed", max_iter=10)
    assert result.lower_bound <= best * (1.0 + 1e-12)
    assert result.objective >= best * (1.0 - 1e-9)
    assert result.lower_bound >= 0.4 * best


@pytest.mark.parametrize("fit_intercept", [False, True], ids=["", "intercept"])
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda solver: type(solver).__name__)
@pytest.mark.parametrize("loss", SOME_LOSSES, ids=lambda loss: loss.name)
def test_every_method_has_the_same_objective_and_bound(loss: Loss, solver: Solver, fit_intercept: bool) -> None:
    X, y, weights = data(loss, 5, n=40, d=7)
    given = X, y, loss, 3, 0.1, weights, fit_intercept
    here, apart = (solve(one, solver, max_iter=30) for one in (Problem(*given), there(*given)))
    assert apart.objective == pytest.approx(here.objective, rel=1e-9)
    assert apart.lower_bound == pytest.approx(here.lower_bound, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("name", ["squared", "logistic"])
@pytest.mark.parametrize(
    "solver", [DIHT(), SDIHT(blocks=4), IHT(), HTP(), Relaxed(), Auto()], ids=lambda s: type(s).__name__
)
def test_nothing_as_long_as_the_samples_is_copied_to_the_host(solver: Solver, name: str, monkeypatch) -> None:
    X, y, weights = data(as_loss(name), 5, n=400, d=7)
    problem, copied, cpu = there(X, y, name, 3, 0.1, weights, True), [], torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: copied.append(tensor.numel()) or cpu(tensor))
    solve(problem, solver, max_iter=20)
    assert 0 < max(copied) < 400


@pytest.mark.parametrize("given", CONSTRAINTS, ids=str)
@pytest.mark.parametrize("name", ["squared", "logistic"])
def test_constraints_hold_on_a_device(name: str, given: dict) -> None:
    X, y, _ = data(as_loss(name), 9)
    stated = sp.csr_array(X), y, name, constrained(2, 12, **given), 0.05, None, True
    here, apart = (solve(one) for one in (Problem(*stated), there(*stated)))
    assert apart.objective == pytest.approx(here.objective, rel=1e-9)
    assert apart.lower_bound == pytest.approx(here.lower_bound, abs=1e-4 * here.objective)


@pytest.mark.parametrize("name", ["squared", "logistic"])
@pytest.mark.parametrize(
    "constraint", [per_group(3, np.arange(12) % 4, 1), within_budget(4.0, 1.0 + np.arange(12) % 3)]
)
def test_further_constraints_hold_on_a_device(name: str, constraint: Constraint) -> None:
    X, y, weights = data(as_loss(name), 9)
    stated = X, y, name, constraint, 0.05, weights, True
    here, apart = (solve(one) for one in (Problem(*stated), there(*stated)))
    assert constraint.allows(apart.w)
    assert apart.objective == pytest.approx(here.objective, rel=1e-9)
    assert apart.lower_bound == pytest.approx(here.lower_bound, abs=1e-4 * here.objective)


@pytest.mark.parametrize("setting", test_limits.SETTINGS[:2], ids=str)
@pytest.mark.parametrize(
    "name",
    ["squared", "logistic", *(pytest.param(n, marks=pytest.mark.slow) for n in ("huber", "squared_hinge", "poisson"))],
)
def test_limits_of_coefficients_hold_on_a_device_against_brute_force(name: str, setting: tuple) -> None:
    k, lam, fit_intercept = setting
    best, without, within = test_limits.optima(name, *setting)
    limits = test_limits.LOWER, test_limits.UPPER
    limited = constrained(k, test_limits.D, bounds=limits)
    stated = *test_limits.data(name), name, limited, lam, test_limits.WEIGHTS, fit_intercept
    here, result = (solve(one) for one in (Problem(*stated), there(*stated)))
    assert np.all((result.w >= limits[0]) & (result.w <= limits[1]))
    assert np.count_nonzero(result.w) <= k
    assert result.objective >= best * (1 - 1e-7)
    assert result.objective == pytest.approx(here.objective, rel=1e-9)
    assert result.lower_bound <= best * (1 + 1e-9)
    assert result.lower_bound == pytest.approx(here.lower_bound, abs=1e-4 * best)
    assert np.all(result.certificate.screening.without <= without * (1 + 1e-9))
    assert np.all(result.certificate.screening.within <= within * (1 + 1e-9))


def test_searches_of_few_samples_are_those_of_the_host() -> None:
    """Without all the host's starts this model was .16% worse."""
    rng = np.random.default_rng(97)
    X = rng.standard_normal((30, 6))
    X[:, 4] = X[:, 0] + 0.1 * X[:, 4]
    noisy = X[:, :4] @ [1.0, 0.9, -0.8, 0.5] + 0.3 + 0.5 * rng.standard_normal(30)
    y = np.where(noisy > np.median(noisy), 1.0, -1.0)
    weights = rng.integers(1, 5, 30).astype(float)
    stated = X, y, "logistic", per_group(3, [0, 0, 1, 1, 2, 2], 1), 0.01, weights, True
    assert solve(there(*stated)).objective == pytest.approx(solve(Problem(*stated)).objective, rel=1e-9)


def large(X: np.ndarray, y: np.ndarray, loss: str, k: int, lam: float) -> Problem:
    """The problem on tensors whose costs are those of many samples on a GPU."""
    columns, s = DeviceColumns(Dense(torch.from_numpy(X)), is_fast=True), np.full(len(y), 1.0 / len(y))
    samples = TorchSamples(columns, *(DeviceArray(torch.from_numpy(a)) for a in (y, s)))
    return Problem.of_samples(samples, as_loss(loss), k, lam, True)


@pytest.mark.parametrize("correlated", [False, True], ids=["independent", "correlated"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_rough_hessians_lead_to_the_same_relaxation(loss: str, correlated: bool, monkeypatch) -> None:
    """Larger working sets begin with them; where columns are correlated, steps by them fail, and the Hessian itself follows."""
    taken = []
    write = KnownHessian.write
    monkeypatch.setattr(KnownHessian, "write", lambda *given: taken.append(len(given[1])) or write(*given))
    rng = np.random.default_rng(3)
    X = rng.standard_normal((1500, 400))
    if correlated:
        X = 0.3 * X + rng.standard_normal((1500, 1)) + 0.5 * np.roll(X, 1, axis=1)
    u = X[:, :20].sum(axis=1) * 0.3
    y = u + rng.standard_normal(1500) if loss == "squared" else np.where(u + rng.logistic(size=1500) > 0.0, 1.0, -1.0)
    exact = solve(Problem(X, y, loss, 20, 0.02, None, True), Relaxed())
    found = solve(large(X, y, loss, 20, 0.02), Relaxed())
    assert taken
    assert found.lower_bound == pytest.approx(exact.lower_bound, rel=1e-6)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_gradient_steps_need_no_bound_on_the_curvature(loss: str, monkeypatch) -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((1500, 300))
    u = X[:, :5].sum(axis=1)
    y = u if loss == "squared" else np.where(u > 0.0, 1.0, -1.0)
    exact = solve(Problem(X, y, loss, 5, 0.1, None, True), Relaxed())
    monkeypatch.setattr("diht.relaxation.engines.newton_pays", lambda *_: False)
    monkeypatch.setattr(TorchSamples, "spectral_bound", None)
    found = solve(large(X, y, loss, 5, 0.1), Relaxed(), time_limit=20.0)
    assert found.lower_bound == pytest.approx(exact.lower_bound, rel=1e-6)


def test_the_same_seeds_give_the_same_bits() -> None:
    X, y, weights = data(LOSSES[3], 6)
    one, two = (solve(there(sp.csr_array(X), y, "logistic", 3, 0.01, weights, True)) for _ in range(2))
    assert np.array_equal(one.w, two.w)
    assert (one.objective, one.lower_bound, one.n_passes) == (two.objective, two.lower_bound, two.n_passes)


@pytest.mark.parametrize("thing", ["samples", "vector"])
def test_what_lives_on_a_device_is_not_stored(thing: str) -> None:
    import pickle

    samples = samples_of(A, A[:, 0].copy(), None)
    with pytest.raises(TypeError, match="cannot be sent or stored"):
        pickle.dumps(samples if thing == "samples" else samples.y)


# ---------------------------------------------------------------------------------------------------------------------
# Estimators


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_a_regressor_on_a_device_is_that_of_the_host() -> None:
    X, y, weights = data(LOSSES[0], 3)
    here = SparseRegressor(3, 0.01).fit(X, y, weights)
    for given in (X, torch.from_numpy(X), sp.csr_array(X), torch.from_numpy(X).to_sparse_csr()):
        apart = SparseRegressor(3, 0.01, device="cpu").fit(given, torch.from_numpy(y), weights)
        assert apart.objective_ == pytest.approx(here.objective_, rel=1e-9)
        assert apart.lower_bound_ <= here.objective_
        assert isinstance(apart.coef_, np.ndarray)
        np.testing.assert_allclose(apart.predict(given), here.predict(X), rtol=1e-9)


def test_a_classifier_on_a_device_is_that_of_the_host() -> None:
    X, y, _ = data(LOSSES[3], 3)
    labels = np.where(y > 0, "yes", "no")
    here, apart = (
        SparseClassifier(2, 0.1, class_weight="balanced", device=device).fit(X, labels) for device in (None, "cpu")
    )
    assert apart.objective_ == pytest.approx(here.objective_, rel=1e-9)
    assert apart.classes_.tolist() == ["no", "yes"]
    assert np.array_equal(apart.predict(X), here.predict(X))


def test_tensors_of_the_host_are_fitted_by_the_host() -> None:
    X, y, _ = data(LOSSES[0], 3)
    one, two = SparseRegressor(2, 0.1).fit(X, y), SparseRegressor(2, 0.1).fit(torch.from_numpy(X), torch.from_numpy(y))
    assert np.array_equal(one.coef_, two.coef_)
    assert len(two.dual_coef_) == len(y)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"X": np.full((90, 12), np.nan)}, "X contains NaN"),
        ({"X": torch.full((90, 12), 1e300, dtype=torch.float64)}, "X must not hold numbers beyond"),
        ({"y": np.ones(3)}, "y must have length 90 to match X"),
        ({"y": np.full(90, np.inf)}, "y contains infinity"),
        ({"sample_weight": -np.ones(90)}, "sample_weight must not be negative"),
        ({"sample_weight": np.zeros(90)}, "sample_weight must not be all zero"),
        ({"offset": np.zeros(3)}, "offset must have length 90 to match X"),
        ({"device": "meta"}, "device must be 'cuda'"),
        ({"device": "nowhere"}, "device='nowhere' cannot be used"),
    ],
)
def test_bad_data_are_refused_in_one_line(changed: dict, message: str) -> None:
    X, y, _ = data(LOSSES[0], 3)
    given = {"X": X, "y": y} | changed
    with pytest.raises(ValueError, match=f"^{message}") as refused:
        SparseRegressor(2, device=given.pop("device", "cpu")).fit(**given)
    assert "\n" not in str(refused.value)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state", "ignore:Sparse invariant checks")
@pytest.mark.parametrize("columns", [[1, 0, 2], [0, 0, 2], [0, 7, 2]], ids=["falling", "twice", "beyond"])
def test_rows_whose_columns_do_not_ascend_are_refused(columns: list) -> None:
    starts, values = torch.tensor([0, 2, 2, 3]), torch.ones(3, dtype=torch.float64)
    X = torch.sparse_csr_tensor(starts, torch.tensor(columns), values, (3, 4), check_invariants=False)
    with pytest.raises(ValueError, match=r"^X must have (ascending )?column indices"):
        SparseRegressor(1, device="cpu").fit(X, np.arange(3.0))


def test_only_the_ratios_of_weights_count() -> None:
    X, y, weights = data(as_loss("logistic"), 5)
    one, other = (SparseClassifier(3, 0.1, device="cpu").fit(X, y, c * weights) for c in (1.0, 2.0**380))
    assert other.objective_ == one.objective_
    np.testing.assert_array_equal(other.coef_, one.coef_)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"^device='cuda' cannot be used: there is no GPU that torch can use$"):
        SparseRegressor(2, device="cuda").fit(A, A[:, 0])


# ---------------------------------------------------------------------------------------------------------------------
# Offsets, dual points, paths, cross-validation, certificates


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_offsets_are_those_of_the_host(loss: str) -> None:
    X, y, weights = data(as_loss(loss), 5)
    known = np.random.default_rng(2).normal(size=len(y))
    here, apart = (SparseRegressor(3, 0.1, loss, device=device).fit(X, y, weights, known) for device in (None, "cpu"))
    assert apart.objective_ == pytest.approx(here.objective_, rel=1e-9)
    np.testing.assert_allclose(apart.predict(X, offset=known), here.predict(X, offset=known), rtol=1e-7)


def test_a_dual_point_is_had_and_proves_the_bound() -> None:
    X, y, weights = data(LOSSES[3], 3)
    model = SparseClassifier(2, 0.1, standardize=False, device="cpu").fit(X, y, weights)
    assert model.dual_coef_.shape == y.shape
    found = lower_bound(Problem(X, y, "logistic", 2, 0.1, weights, True), model.dual_coef_)
    assert found.value == pytest.approx(model.lower_bound_, rel=1e-9)
    again = (
        SparseClassifier(2, 0.1, standardize=False, device="cpu", warm_start=True).fit(X, y, weights).fit(X, y, weights)
    )
    assert again.objective_ == pytest.approx(model.objective_, rel=1e-9)


def test_certify_takes_samples_on_a_device() -> None:
    X, y, weights = data(LOSSES[3], 3)
    w = np.zeros(12)
    w[[1, 4]] = 0.3, -0.2
    here, apart = Problem(X, y, "logistic", 2, 0.1, weights, True), samples_on(X, y, weights, "cpu")
    there = Problem.of_samples(apart, as_loss("logistic"), 2, 0.1, True)
    one, two = certify(here, w), certify(there, w)
    assert two.objective == pytest.approx(one.objective, rel=1e-12)
    assert two.lower_bound == pytest.approx(one.lower_bound, rel=1e-6)
    dual_point = dual_from_primal(here, w)
    again = certify(there, w, alpha=dual_point)
    assert again.lower_bound == pytest.approx(certify(here, w, alpha=dual_point).lower_bound, rel=1e-9)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_path_is_that_of_the_host(loss: str) -> None:
    X, y, weights = data(as_loss(loss), 7)
    given = {"ks": [1, 2, 4], "lams": [0.01, 0.1], "loss": loss, "sample_weight": weights}
    here, apart = (sparse_path(X, y, device=device, **given) for device in (None, "cpu"))
    for one, two in zip(here, apart, strict=True):
        assert two.objective == pytest.approx(one.objective, rel=1e-9)
        assert two.lower_bound <= one.objective
    np.testing.assert_allclose(apart.criterion("bic"), here.criterion("bic"), rtol=1e-6)


@pytest.mark.parametrize("scoring", [None, "r2"])
def test_cross_validation_of_a_regressor_is_that_of_the_host(scoring: str | None) -> None:
    X, y, weights = data(LOSSES[0], 7)
    known = np.random.default_rng(2).normal(size=len(y))
    settings = {"ks": [1, 2, 4], "lams": [0.01, 0.1], "scoring": scoring}
    here, apart = (
        SparseRegressorCV(device=device, **settings).fit(X, y, weights, offset=known) for device in (None, "cpu")
    )
    np.testing.assert_allclose(
        apart.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"], rtol=1e-5, atol=1e-9
    )
    assert (apart.best_k_, apart.best_lam_) == (here.best_k_, here.best_lam_)
    assert apart.objective_ == pytest.approx(here.objective_, rel=1e-9)
    assert isinstance(apart.coef_, np.ndarray)


@pytest.mark.parametrize(
    ("loss", "scoring"), [("logistic", "neg_log_loss"), ("logistic", "balanced_accuracy"), ("poisson", None)]
)
def test_cross_validation_is_that_of_the_host(loss: str, scoring: str | None) -> None:
    X, y, _ = data(as_loss(loss), 7)
    kind = SparseRegressorCV if loss == "poisson" else SparseClassifierCV
    settings = {"ks": [1, 3], "lams": [0.01, 0.1], "scoring": scoring, "loss": loss, "cv": 3}
    here, apart = (kind(device=device, **settings).fit(X, y) for device in (None, "cpu"))
    np.testing.assert_allclose(
        apart.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"], rtol=1e-5, atol=1e-9
    )
    assert (apart.best_k_, apart.best_lam_) == (here.best_k_, here.best_lam_)
    assert apart.objective_ == pytest.approx(here.objective_, rel=1e-9)


@pytest.mark.parametrize("loss", ["gamma", "negative_binomial", "quantile", "tweedie"])
def test_default_scores_of_further_losses_are_those_of_the_host(loss: str) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 5))
    y = np.round(np.exp(X[:, 1])) + 1.0
    here, on_device = (
        SparseRegressorCV([1, 2], 0.1, loss=loss, cv=2, criterion="score", solver="iht", device=device).fit(X, y)
        for device in (None, "cpu")
    )
    np.testing.assert_allclose(on_device.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"], rtol=1e-4)


# ---------------------------------------------------------------------------------------------------------------------
# scikit-learn's array_api_dispatch


@pytest.fixture
def dispatch(monkeypatch):
    """With it, as scikit-learn asks for."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with config_context(array_api_dispatch=True):
        yield


def dispatched_data(dtype=np.float64) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(3).normal(size=(120, 6)).astype(dtype)
    return X, (X[:, 2] - X[:, 4] + 0.2 * X[:, 0]).astype(dtype)


@pytest.mark.parametrize("device", [None, "cpu"], ids=["host", "device"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_regressor_is_in_the_namespace_of_its_data(dtype, device: str | None, dispatch) -> None:
    X, y = dispatched_data(dtype)
    plain = SparseRegressor(k=2, lam=0.1).fit(X, y)
    model = SparseRegressor(k=2, lam=0.1, device=device).fit(torch.from_numpy(X), torch.from_numpy(y))
    assert isinstance(plain.coef_, np.ndarray)
    ridge = Ridge(solver="svd").fit(torch.from_numpy(X), torch.from_numpy(y))
    for name in ("coef_", "intercept_", "support_", "dual_coef_"):
        found = getattr(model, name)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found.numpy(), getattr(plain, name), rtol=1e-4, atol=1e-4)
        known = getattr(ridge, name, found)
        assert (type(known), known.dtype, known.shape) == (type(found), found.dtype, found.shape)
    predicted = model.predict(torch.from_numpy(X))
    assert isinstance(predicted, torch.Tensor)
    np.testing.assert_allclose(predicted.numpy(), plain.predict(X), rtol=1e-4, atol=1e-4)
    assert float(model.score(torch.from_numpy(X), torch.from_numpy(y))) == pytest.approx(plain.score(X, y), rel=1e-4)
    assert isinstance(model.transform(torch.from_numpy(X)), torch.Tensor)
    with pytest.raises(ValueError, match="X must be an array of numpy, as in fit of this SparseRegressor"):
        plain.predict(torch.from_numpy(X))


@pytest.mark.parametrize("make", [SparseClassifier(k=2, lam=0.1), SparseClassifierCV([1, 2], 0.1, cv=3)], ids=str)
def test_a_classifier_is_in_the_namespace_of_its_data(make, dispatch) -> None:
    X, y = dispatched_data()
    labels = (y > 0).astype(np.int64)
    plain = clone(make).fit(X, labels)
    model = clone(make).fit(torch.from_numpy(X), torch.from_numpy(labels))
    assert all(isinstance(a, torch.Tensor) for a in (model.coef_, model.intercept_, model.classes_))
    for name in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        found = getattr(model, name)(torch.from_numpy(X))
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found.numpy(), getattr(plain, name)(X), rtol=1e-9)
    assert float(model.score(torch.from_numpy(X), torch.from_numpy(labels))) == pytest.approx(plain.score(X, labels))
    words = np.where(labels, "yes", "no")
    named = clone(make).fit(torch.from_numpy(X), words)  # texts have no place in torch
    assert named.predict(torch.from_numpy(X)).tolist() == clone(make).fit(X, words).predict(X).tolist()


def test_without_dispatch_a_moved_model_answers_in_numpy(monkeypatch, tmp_path) -> None:
    X, y = dispatched_data()
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    model = SparseRegressor(k=2, lam=0.1, warm_start=True)
    with config_context(array_api_dispatch=True):
        model.fit(torch.from_numpy(X), torch.from_numpy(y))
        again = model.fit(torch.from_numpy(X), torch.from_numpy(y))
        assert isinstance(again.coef_, torch.Tensor)
    assert isinstance(model.predict(X), np.ndarray)
    assert isinstance(model.predict(torch.from_numpy(X)), np.ndarray)
    assert isinstance(model.fit(torch.from_numpy(X), torch.from_numpy(y)).coef_, np.ndarray)


def test_cross_validation_on_a_device_takes_folds_by_a_rule() -> None:
    with pytest.raises(ValueError, match=r"^cv must be a number of folds, .* on a device, got list$"):
        SparseRegressorCV(ks=[1], cv=[([0], [1])], device="cpu").fit(A, A[:, 0])

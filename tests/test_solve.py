"""The loop: why it ends, what it records, how it starts, what it refuses; and certificates for any model."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest

import diht.solvers.loop
from cases import LOSSES, SOLVERS, crossed, refusal
from diht import Problem, certify, solve
from diht.bounds.duality import dual_from_primal, gap, lower_bound, primal
from diht.losses import Hinge, Huber, Logistic, Loss, Squared
from diht.numerics.digits import rounded_down, rounded_up, shown
from diht.result import Certificate, Status
from diht.solvers import DIHT, HTP, IHT, SDIHT, SVRGHT, Start
from oracle import best_subset, clear_data, small_data, some_weights

K = 3
NAMES = [loss.name for loss in LOSSES]


def easy(loss: Loss = Squared(), lam: float = 5.0, fit_intercept: bool = False, dtype: type = np.float64) -> Problem:  # noqa: B008
    """A problem whose gap closes: a strong ridge."""
    X, y = small_data(loss)
    return Problem(X.astype(dtype), y, loss, K, lam, fit_intercept=fit_intercept)


def clear(loss: Loss, lam: float = 1.0, fit_intercept: bool = False) -> Problem:
    """A problem whose two features stand out, so that its gap closes too."""
    return Problem(*clear_data(loss), loss, 2, lam, fit_intercept=fit_intercept)


def hard(loss: Loss = Squared(), fit_intercept: bool = False) -> Problem:  # noqa: B008
    """A problem whose gap does not: hardly any ridge."""
    X, y = small_data(loss)
    return Problem(X, y, loss, 2, 1e-3, fit_intercept=fit_intercept)


# ---------------------------------------------------------------------------------------------------------------------
# Why a solve ends


@pytest.mark.parametrize("solver", ["auto", "diht", "sdiht", SDIHT(blocks=3)], ids=str)
def test_optimal(solver) -> None:
    result = solve(easy(), solver, tol=1e-6)
    assert result.status == Status.OPTIMAL == "optimal"
    assert result.relative_gap <= 1e-6
    assert result.objective == pytest.approx(best_subset(easy()).objective, rel=1e-6)


@pytest.mark.parametrize(
    "solver", [DIHT(), IHT(), HTP(), SDIHT(blocks=3), SVRGHT(blocks=3)], ids=lambda s: type(s).__name__
)
def test_stalled(solver) -> None:
    result = solve(easy(), solver, tol=0.0)
    assert result.status == Status.STALLED
    assert result.gap > 0


@pytest.mark.parametrize(("name", "make"), SOLVERS, ids=[name for name, _ in SOLVERS])
def test_max_iter(name: str, make) -> None:
    for max_iter in (1, 3):
        result = solve(hard(), make(24), tol=0.0, max_iter=max_iter)
        early = name.startswith(("HTP", "relaxed")) and result.status == Status.STALLED  # it had finished by then
        assert result.status == Status.MAX_ITER or early
        assert result.n_iter == result.trace[-1].iteration
        assert result.n_iter == max_iter or early


def test_time_limit() -> None:
    result = solve(hard(), DIHT(), tol=0.0, time_limit=1e-9)
    assert result.status == Status.TIME_LIMIT
    assert result.n_iter == 1


@pytest.mark.parametrize("solver", [DIHT(), SDIHT(blocks=4), IHT()], ids=lambda s: type(s).__name__)
def test_stopped_by_the_callback_or_by_stop(solver) -> None:
    seen = []

    def callback(iterate):
        seen.append(iterate)
        return len(seen) == 3

    result = solve(hard(), solver, tol=0.0, callback=callback)
    assert result.status == Status.STOPPED
    assert len(seen) == len(result.trace) == 3
    assert [iterate.iteration for iterate in seen] == [iterate.iteration for iterate in result.trace]
    calls = iter([False, False, False, True])
    result = solve(hard(), solver, tol=0.0, stop=lambda: next(calls))
    assert result.status == Status.STOPPED
    assert result.n_iter == 4
    assert len(result.trace) > 0  # what was done is looked at before leaving


def test_a_callback_may_stop_a_solve_at_its_start() -> None:
    result = solve(hard(), DIHT(), start=np.zeros(7), tol=0.0, callback=lambda iterate: iterate.iteration == 0)
    assert result.status == Status.STOPPED
    assert result.n_iter == 0


def test_what_a_callback_returns_counts_only_if_true() -> None:
    for answer in (None, False, 0):
        assert solve(hard(), DIHT(), tol=0.0, max_iter=5, callback=lambda iterate, a=answer: a).n_iter == 5


def test_the_callback_sees_the_best_model_and_cannot_spoil_it() -> None:
    problem = hard(fit_intercept=True)

    def callback(iterate):
        model = iterate.model
        b = problem.centred_intercept(model.w, model.intercept)
        assert primal(problem, model.w, b) == pytest.approx(iterate.best_objective, rel=1e-12)
        assert len(model.support) <= 2
        model.w[:] = np.nan

    result = solve(problem, DIHT(), tol=0.0, max_iter=20, callback=callback)
    assert np.all(np.isfinite(result.w))


def test_the_callbacks_time_is_not_counted(monkeypatch) -> None:
    @dataclass
    class Clock:
        now: float = 0.0

        def __call__(self) -> float:
            self.now += 1.0  # a second between any two looks at the clock
            return self.now

    clock = Clock()
    monkeypatch.setattr(diht.solvers.loop, "perf_counter", clock)
    quiet = solve(hard(), DIHT(), tol=0.0, max_iter=10)
    clock.now = 0.0

    def slow(iterate) -> None:
        clock.now += 1000.0

    watched = solve(hard(), DIHT(), tol=0.0, max_iter=10, callback=slow, time_limit=500.0)
    assert watched.status == Status.MAX_ITER
    assert watched.seconds < quiet.seconds + 100.0
    assert np.all(np.diff(watched.trace.column("seconds")) < 50.0)


# ---------------------------------------------------------------------------------------------------------------------
# What a solve records


@pytest.mark.parametrize(("name", "make"), SOLVERS, ids=[name for name, _ in SOLVERS])
def test_the_trace_is_consistent(name: str, make) -> None:
    for fit_intercept in (False, True):
        result = solve(hard(Logistic(), fit_intercept), make(24), tol=0.0, max_iter=40)
        trace = result.trace
        assert np.all(np.diff(trace.column("iteration")) > 0)
        assert np.all(np.diff(trace.column("passes")) >= 0)
        assert np.all(np.diff(trace.column("seconds")) >= 0)
        np.testing.assert_array_equal(trace.column("best_objective"), np.minimum.accumulate(trace.column("objective")))
        np.testing.assert_array_equal(trace.column("best_bound"), np.maximum.accumulate(trace.column("lower_bound")))
        np.testing.assert_array_equal(
            trace.column("gap"), np.maximum(trace.column("best_objective") - trace.column("best_bound"), 0.0)
        )
        assert result.objective <= trace[-1].best_objective * (1 + 1e-14)
        assert result.lower_bound == pytest.approx(trace[-1].best_bound, rel=1e-13)
        assert result.n_passes >= trace[-1].passes
        assert result.seconds >= trace[-1].seconds
        assert all(iterate.model is None for iterate in trace)
        first, best, bound = trace.times(rtol=0.0)
        assert first == trace[0].seconds
        objectives = [iterate.best_objective for iterate in trace if iterate.seconds < best]
        assert all(objective > trace[-1].best_objective for objective in objectives)
        assert any(it.seconds == best and it.best_objective == trace[-1].best_objective for it in trace)
        assert all(iterate.best_bound < trace[-1].best_bound for iterate in trace if iterate.seconds < bound)
        assert any(it.seconds == bound and it.best_bound == trace[-1].best_bound for it in trace)


def test_evaluate_every() -> None:
    for solver, epoch in ((DIHT(), 1), (SDIHT(blocks=4), 4), (SVRGHT(blocks=4), 4)):
        for every in (1, 3):
            result = solve(hard(), solver, tol=0.0, max_iter=26, evaluate_every=every)
            expected = [*range(every * epoch, 26, every * epoch), 26]
            assert [iterate.iteration for iterate in result.trace] == expected


def test_evaluations_that_cost_a_pass_are_spaced_out() -> None:
    result = solve(hard(), SDIHT(blocks=4), tol=0.0, max_iter=400)
    iterations = result.trace.column("iteration")
    assert len(iterations) < 30
    assert np.all(np.diff(iterations) <= np.maximum(4, 0.3 * iterations[:-1] + 4))


def test_passes_are_counted() -> None:
    problem = hard()
    assert problem.design.passes == 0.0
    runs = [solve(problem, DIHT(), tol=0.0, max_iter=n) for n in (10, 20)]
    # One read a step, whatever was read before: the norms behind step and bound are read once for all.
    assert runs[0].trace[-1].passes - runs[0].trace[0].passes == pytest.approx(9.0)
    assert runs[1].trace[-1].passes - runs[1].trace[0].passes == pytest.approx(19.0)
    assert runs[1].trace[0].passes == pytest.approx(1.0)
    assert runs[1].n_passes == pytest.approx(21.0)  # and one for the last model's predictions
    again = solve(problem, IHT(), tol=0.0, max_iter=10)
    assert again.trace[-1].passes == pytest.approx(2 * 10)  # two reads a step; the start has no features to read


def test_a_block_counts_as_its_fraction() -> None:
    problem = hard()
    solve(problem, SDIHT(blocks=4), max_iter=1)
    result = solve(problem, SDIHT(blocks=4), tol=0.0, max_iter=16, evaluate_every=4)
    assert result.trace[-1].passes == pytest.approx(4 + 1)  # four epochs, and one look at their end


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_float32_in_float32_out_and_the_objective_is_that_of_what_is_stored(loss: Loss, fit_intercept: bool) -> None:
    problem = easy(loss, 0.1, fit_intercept, np.float32)
    result = solve(problem, DIHT(), max_iter=100)
    assert result.w.dtype == np.float32
    assert result.intercept == np.float32(result.intercept)
    assert result.alpha.dtype == np.float64
    X, y = small_data(loss)
    u = X @ result.w.astype(float) + result.intercept
    stored = float(np.mean(loss.value(u, y)) + 0.05 * np.sum(result.w.astype(float) ** 2))
    assert result.objective == pytest.approx(stored, rel=1e-13)
    assert solve(easy(loss, 0.1, fit_intercept), DIHT(), max_iter=100).w.dtype == np.float64


def test_rounding_to_float32_costs_next_to_nothing_whatever_the_tolerance() -> None:
    """Two samples at the kinks of the hinge: w (x_1 - x_2) = 2 is the optimum, and float32 coefficients miss both kinks."""
    X = np.array([[51.3], [50.7]], dtype=np.float32)
    problem = Problem(X, [1.0, -1.0], Hinge(), 1, 1e-4, fit_intercept=True)
    best = 0.5e-4 * (2.0 / (float(X[0, 0]) - float(X[1, 0]))) ** 2
    result = solve(problem, "branch", tol=1e-2)
    assert best * (1.0 - 1e-9) <= result.objective <= best * (1.0 + 1e-7)


def test_a_result_and_a_certificate_can_be_read_and_pickled() -> None:
    result = solve(easy(), SDIHT(blocks=3), tol=1e-6)
    text = str(result)
    assert text.startswith("SDIHT(blocks=3, step='auto', order='shuffled', random_state=0): 3 features\nobjective ")
    assert "no model allowed has an objective below" in text
    assert "optimal (the gap is within the tolerance) after" in text
    assert repr(result) == text
    assert f"{result.objective:.7g}" in str(result.certificate)
    again = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(again.w, result.w)
    assert str(again) == text
    assert again.certificate.bound.check(easy()) == pytest.approx(result.certificate.bound.value, rel=1e-14)
    assert pickle.loads(pickle.dumps(result.certificate)).gap == result.gap
    for status in Status:
        assert status.meaning


@pytest.mark.parametrize("value", [0.0, 0.12345678, 1.99999999e-5, 41759066.92, 1e-300, 12345.0, -0.123456789, 7.0])
def test_a_bound_stays_one_in_print(value: float) -> None:
    for digits in (2, 3, 6, 7):
        low, high = float(rounded_down(value, digits)), float(rounded_up(value, digits))
        assert low <= value <= high
        assert high - low <= 10.0 ** (1 - digits) * abs(value) * 10
        assert rounded_down(low, digits) == rounded_down(value, digits)
    bound = lower_bound(hard(), np.zeros(24))
    text = str(Certificate(objective=0.2, lower_bound=0.12345678, bound=bound, fenchel=0.0, ridge=0.0, margin=0.0))
    assert text.splitlines() == [
        "objective    0.2",
        "lower bound  0.1234567      no model allowed has an objective below this",
        "gap          0.0766         39% of the objective",
    ]


@pytest.mark.parametrize("objective", [3013.31, 0.0683124567, 41759066.92, 1e-7, -2.5, 9.9999999])
@pytest.mark.parametrize("share", [0.9, 0.03, 1e-4, 5.1e-6, 9.99e-8, 1.1e-8, 2e-12, 0.0])
def test_digits_show_the_gap(objective: float, share: float) -> None:
    """What is printed of objective and bound differs by the gap that is printed, or they are said to be one."""
    bound = objective - share * abs(objective)
    figure = shown(objective, bound)
    gap = objective - bound
    assert float(figure.gap) >= gap
    if share < 1e-8:
        assert figure.lower_bound == "proved optimal"
        assert float(figure.objective) == pytest.approx(objective, rel=1e-5)
    else:
        assert float(figure.lower_bound) <= bound
        assert float(figure.objective) - float(figure.lower_bound) == pytest.approx(gap, rel=0.2)


@pytest.mark.parametrize(("objective", "bound"), [(0.0, 0.0), (1.0, -np.inf), (0.0, -1.0), (0.5, 0.6)])
def test_digits_of_odd_figures(objective: float, bound: float) -> None:
    assert shown(objective, bound).lower_bound in ("proved optimal", "-inf", "-1")


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_a_result_can_prove_itself(loss: Loss, fit_intercept: bool) -> None:
    problem = hard(loss, fit_intercept)
    result = solve(problem, DIHT(), max_iter=200)
    bound = result.certificate.bound
    assert result.lower_bound <= bound.check(problem) == pytest.approx(bound.value, rel=1e-14)
    np.testing.assert_array_equal(bound.alpha, result.alpha)
    b = problem.centred_intercept(result.w, result.intercept)
    assert primal(problem, result.w, b) == pytest.approx(result.objective, rel=1e-13)
    total = result.certificate.fenchel + result.certificate.ridge
    assert total == pytest.approx(result.gap, rel=1e-6, abs=1e-12)
    assert gap(problem, result.w, result.alpha, b) == pytest.approx(total, rel=1e-9)
    np.testing.assert_array_equal(result.support, np.flatnonzero(result.w))


# ---------------------------------------------------------------------------------------------------------------------
# Where a solve starts


@pytest.mark.parametrize("solver", [DIHT(), SDIHT(blocks=3)], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_warm_start_goes_on_where_the_last_solve_ended(solver, fit_intercept: bool) -> None:
    problem = clear(Huber(), 1.0, fit_intercept)
    cold = solve(problem, solver, tol=1e-7)
    assert cold.status == Status.OPTIMAL
    warm = solve(problem, solver, start=cold, tol=1e-7)
    assert warm.n_iter <= 1 < cold.n_iter
    assert warm.objective <= cold.objective * (1 + 1e-14)
    near = clear(Huber(), 0.99, fit_intercept)
    assert solve(near, solver, start=cold, tol=1e-7).n_iter < solve(near, solver, tol=1e-7).n_iter


@pytest.mark.parametrize(("number", "loss"), [*enumerate(LOSSES)], ids=NAMES)
def test_every_form_of_start(number: int, loss: Loss) -> None:
    problem = hard(loss, fit_intercept=bool(number % 2))
    best = best_subset(problem)
    w = best.w
    for start in (
        w,
        w.tolist(),
        w.astype(np.float32),
        Start(w, best.b),
        Start(w),
        Start(alpha=dual_from_primal(problem, w)),
    ):
        step = 0.01 if refusal(loss, "IHT") else "auto"
        for solver in (DIHT(), SDIHT(blocks=2), IHT(step), HTP(step), SVRGHT(blocks=2, step=step), "auto"):
            result = solve(problem, solver, start=start, tol=0.0, max_iter=3)
            assert result.trace[0].iteration == 0
            assert result.lower_bound <= best.objective * (1 + 1e-12) <= result.objective * (1 + 2e-12)
    kept = solve(problem, IHT(step), start=w, tol=0.0, max_iter=3)
    assert kept.objective == pytest.approx(best.objective, rel=1e-12)


def test_a_start_with_too_many_features_is_cut() -> None:
    for solver in (DIHT(), IHT(), HTP(), SVRGHT(blocks=2)):
        result = solve(hard(), solver, start=np.arange(1.0, 8.0), tol=0.0, max_iter=2)
        assert all(iterate.n_features <= 2 for iterate in result.trace)


def test_a_result_of_other_samples_starts_with_its_model_only() -> None:
    first = solve(easy(), DIHT())
    X, y = small_data(Squared())
    part = Problem(X[:15], y[:15], Squared(), K, 5.0)
    again = solve(part, DIHT(), start=first, tol=0.0, max_iter=5)
    assert again.lower_bound <= best_subset(part).objective <= again.objective
    assert again.objective <= primal(part, first.w)


def test_a_result_of_a_solve_that_diverged_is_a_start_too() -> None:
    A, y = small_data(Squared())
    problem = Problem(100 * A, y, Squared(), K, 1e-3)
    diverged = solve(problem, DIHT("theory"), tol=0.0, max_iter=3000)
    assert not diverged.last.objective < np.inf
    assert np.isfinite(solve(problem, DIHT(), start=diverged, max_iter=10).objective)


# ---------------------------------------------------------------------------------------------------------------------
# What a solve refuses


@pytest.mark.parametrize(("name", "values"), [
    ("tol", [-1e-3, np.nan, np.inf, "small", None, True]),
    ("max_iter", [0, -1, 2.5, np.nan, np.inf, "many", [3], True]),
    ("time_limit", [0, -1.0, np.nan, "long", [1.0], True]),
    ("evaluate_every", [0, -1, 0.5, "often", True]),
])  # fmt: skip
def test_bad_limits(name: str, values: list) -> None:
    for value in values:
        with pytest.raises(ValueError, match=rf"^{name} must be ") as error:
            solve(easy(), DIHT(), **{name: value})
        assert repr(value) in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("solver", ["newton", "", None, 3, DIHT])
def test_an_unknown_solver(solver) -> None:
    with pytest.raises(
        ValueError, match=r"^solver must be one of .*'auto', 'diht', .* or a solver object, got "
    ) as error:
        solve(easy(), solver)
    assert repr(solver) in str(error.value)


@pytest.mark.parametrize(("start", "message"), [
    (np.zeros(6), "start must have length 7 .*got length 6"),
    (np.zeros((7, 1)), "start must be one-dimensional"),
    (np.full(7, np.nan), "start must be finite, got nan at position 0"),
    ("warm", "start must be numeric"),
    (Start(np.zeros(3)), "start.w must have length 7"),
    (Start(alpha=np.zeros(7)), "start.alpha must have length 24"),
    (Start(alpha=np.full(24, np.inf)), "start.alpha must be finite"),
])  # fmt: skip
def test_a_bad_start(start, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solve(easy(), DIHT(), start=start)


# ---------------------------------------------------------------------------------------------------------------------
# Certificates


@pytest.mark.parametrize(("loss", "fit_intercept", "weighted"), crossed(LOSSES, [False, True], [False, True], every=3))
def test_certify_any_model(loss: Loss, fit_intercept: bool, weighted: bool) -> None:
    X, y = small_data(loss)
    weights = some_weights(24) if weighted else np.ones(24)
    problem = Problem(X, y, loss, K, 0.5, weights, fit_intercept)
    best = best_subset(problem).objective
    rng = np.random.default_rng(0)
    alphas = [None, rng.standard_normal(24), solve(problem, DIHT()).alpha]
    for size, alpha in zip((0.1, 1.0, 0.0), alphas, strict=True):
        w, _ = problem.constraint.threshold(size * rng.standard_normal(7))
        for intercept in (None, 0.7) if fit_intercept else (None, 0, 0.0):
            certificate = certify(problem, w.tolist(), intercept, alpha)
            assert certificate.lower_bound <= best * (1 + 1e-12)
            assert certificate.objective >= best * (1 - 1e-12)
            checked = certificate.bound.check(problem)
            assert certificate.lower_bound <= checked == pytest.approx(certificate.bound.value, rel=1e-14)
            if intercept is not None:
                loss_of_w = float(weights @ loss.value(X @ w + intercept, y)) / weights.sum()
                assert certificate.objective == pytest.approx(loss_of_w + 0.25 * w @ w, rel=1e-13)
            else:
                assert certificate.objective <= certify(problem, w, 0.0, alpha).objective * (1 + 1e-14)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_certify_proves_an_optimum(loss: Loss) -> None:
    problem = clear(loss)
    best = best_subset(problem)
    certificate = certify(problem, best.w, tol=1e-6)
    assert certificate.relative_gap <= 1e-6
    assert certificate.margin > 0
    assert "of the objective" in str(certificate)


def test_certify_spends_no_more_time_than_it_may(monkeypatch) -> None:
    seen = {}
    original = diht.solvers.loop.solve

    def spy(*args, **kwargs):
        seen.update(kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(diht.solvers.loop, "solve", spy)
    certificate = certify(hard(), np.zeros(7), tol=1e-3, time_limit=1e-9)
    assert seen["time_limit"] == 1e-9
    assert seen["tol"] == 1e-3
    assert 0.0 <= certificate.lower_bound <= best_subset(hard()).objective


@pytest.mark.parametrize(("arguments", "message"), [
    ({"w": np.ones(7)}, r"w must have at most 2 features, got 7 nonzero coefficients"),
    ({"w": np.zeros(6)}, "w must have length 7 .*got length 6"),
    ({"w": np.full(7, np.nan)}, "w must be finite, got nan"),
    ({"w": "model"}, "w must be numeric"),
    ({"w": np.zeros((1, 7))}, "w must be one-dimensional"),
    ({"w": np.zeros(7), "intercept": 1.0}, "intercept must be None or 0 for a problem without an intercept, got 1.0"),
    ({"w": np.zeros(7), "intercept": np.nan}, "intercept must be a finite number, got nan"),
    ({"w": np.zeros(7), "intercept": "b"}, "intercept must be a finite number, got 'b'"),
    ({"w": np.zeros(7), "alpha": np.zeros(7)}, "alpha must have length 24 .*got length 7"),
    ({"w": np.zeros(7), "alpha": np.full(24, np.inf)}, "alpha must be finite, got inf"),
    ({"w": np.zeros(7), "tol": -1.0}, "tol must be"),
    ({"w": np.zeros(7), "time_limit": 0}, "time_limit must be"),
])  # fmt: skip
def test_certify_refuses_what_is_no_model(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message):
        certify(hard(), **arguments)


def test_a_certificate_speaks_of_the_users_own_columns_when_scaled() -> None:
    X, y = small_data(Squared())
    scale = np.linspace(0.5, 2.0, 7)
    problem = Problem(X, y, Squared(), K, 0.5, fit_intercept=True, scale=scale)
    twin = Problem(X / scale, y, Squared(), K, 0.5, fit_intercept=True)
    result = solve(problem, DIHT(), tol=1e-8)
    certificate = certify(twin, result.w, result.intercept)
    assert certificate.objective == pytest.approx(result.objective, rel=1e-12)
    assert result.lower_bound <= best_subset(twin).objective


# ---------------------------------------------------------------------------------------------------------------------
# A loss of one's own, and odd problems


@dataclass(frozen=True)
class Insensitive(Loss):
    """Squared epsilon-insensitive loss: max(0, |u - y| - eps)^2, with the required methods only."""

    eps: float = 0.3
    name = "insensitive"
    mu = 0.5

    def value(self, u, y):
        return np.maximum(np.abs(u - y) - self.eps, 0.0) ** 2

    def derivative(self, u, y):
        return 2.0 * np.sign(u - y) * np.maximum(np.abs(u - y) - self.eps, 0.0)

    def conjugate(self, a, y):
        return y * a + self.eps * np.abs(a) + a * a / 4

    def conjugate_derivative(self, a, y):
        return y + self.eps * np.sign(a) + a / 2

    def domain(self, y):
        return -np.inf, np.inf


@dataclass(frozen=True)
class Absolute(Loss):
    """|u - y|: not smooth, its kinks elsewhere than the hinge's, with a proximal map of its own."""

    name = "absolute"

    def value(self, u, y):
        return np.abs(u - y)

    def derivative(self, u, y):
        return np.sign(u - y)

    def conjugate(self, a, y):
        return np.where(np.abs(a) > 1, np.inf, y * a)

    def conjugate_derivative(self, a, y):
        return y + 0.0 * a

    def conjugate_prox(self, z, tau, y):
        return np.clip(z - tau * y, -1.0, 1.0)

    def domain(self, y):
        return -1.0, 1.0


@pytest.mark.parametrize(("name", "make"), SOLVERS, ids=[name for name, _ in SOLVERS])
@pytest.mark.parametrize("loss", [Insensitive(), Absolute()], ids=lambda loss: loss.name)
def test_a_loss_of_ones_own_runs_through_every_method(loss: Loss, name: str, make) -> None:
    X, y = small_data(Squared())
    for fit_intercept in (False, True):
        problem = Problem(X, y, loss, K, 0.2, some_weights(24), fit_intercept)
        if loss.mu == 0 and "theory" in name:
            with pytest.raises(ValueError, match="step='theory' is undefined for the absolute loss"):
                solve(problem, make(24))
            continue
        best = user_optimum(loss, fit_intercept)
        result = solve(problem, make(24), tol=0.0, max_iter=40)
        for iterate in result.trace:
            assert iterate.lower_bound <= best * (1 + 1e-12) <= iterate.objective * (1 + 2e-12)
            assert iterate.n_features <= K
        assert result.lower_bound <= best * (1 + 1e-12) <= result.objective * (1 + 2e-12)


OPTIMA: dict[tuple[Loss, bool], float] = {}


def user_optimum(loss: Loss, fit_intercept: bool) -> float:
    if (loss, fit_intercept) not in OPTIMA:
        problem = Problem(*small_data(Squared()), loss, K, 0.2, some_weights(24), fit_intercept)
        OPTIMA[loss, fit_intercept] = best_subset(problem).objective
    return OPTIMA[loss, fit_intercept]


POOR = {"zeros": np.zeros((6, 3)), "constant": np.ones((6, 3)), "disjoint": np.eye(6)[:, :3]}


@pytest.mark.parametrize(("X", "loss", "fit_intercept"), crossed(POOR, LOSSES, [False, True]))
def test_matrices_with_nothing_to_learn_from(X: np.ndarray, loss: Loss, fit_intercept: bool) -> None:
    y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0])
    y = y + 1.0 if loss.name == "poisson" else y
    problem = Problem(X, y, loss, 2, 0.1, fit_intercept=fit_intercept)
    best = best_subset(problem).objective
    step = 0.01 if refusal(loss, "IHT") else "auto"
    for solver in ("auto", "diht", SDIHT(blocks=2), IHT(step), HTP(step), SVRGHT(blocks=2, step=step)):
        result = solve(problem, solver, tol=1e-9, max_iter=300)
        assert result.lower_bound <= best * (1 + 1e-12) <= result.objective * (1 + 2e-12)
        assert len(result.support) <= 2


def test_targets_that_a_zero_model_fits_exactly() -> None:
    problem = Problem(np.random.default_rng(0).standard_normal((5, 3)), np.zeros(5), Squared(), 2, 1.0)
    result = solve(problem)
    assert result.objective == result.lower_bound == result.gap == result.relative_gap == 0.0
    assert result.status == Status.OPTIMAL
    assert len(result.support) == 0


def test_one_sample_and_all_features() -> None:
    result = solve(Problem([[1.0, 2.0]], [3.0], Squared(), 2, 1.0), tol=1e-10)
    np.testing.assert_allclose(result.w, [6 / 11, 12 / 11], rtol=1e-9)
    assert result.status == Status.OPTIMAL
    alone = solve(Problem([[1.0, 2.0]], [3.0], Squared(), 1, 1.0, fit_intercept=True), tol=1e-10)
    assert alone.objective == pytest.approx(0.0, abs=1e-15)
    assert alone.intercept == pytest.approx(3.0)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_auto_proves_a_refit_that_uses_every_feature(loss: Loss, fit_intercept: bool) -> None:
    # With k = d the problem is convex; the steps are far too short for so weak a ridge, the refit is not.
    X, y = small_data(loss)
    problem = Problem(X[:, :6], y, loss, 6, 1e-5, fit_intercept=fit_intercept)
    result = solve(problem, max_iter=3)
    assert result.status == Status.OPTIMAL
    assert result.objective == pytest.approx(best_subset(problem).objective, rel=1e-9)
    assert solve(problem, "diht", max_iter=3).status == Status.MAX_ITER


def test_the_hinge_with_an_intercept_closes_its_gap() -> None:
    problem = easy(Hinge(), 5.0, fit_intercept=True)
    result = solve(problem, DIHT(), tol=1e-6, max_iter=20_000)
    assert result.status == Status.OPTIMAL
    assert abs(problem.s @ result.alpha) <= 1e-12
    assert lower_bound(problem, result.alpha).value == pytest.approx(result.lower_bound, rel=1e-14)

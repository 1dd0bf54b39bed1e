"""A sample of the fuzzer in `brute_force.py`, and what its own judgement rests on."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, localcontext
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.optimize import minimize

from brute_force import campaign, missing, read_table, seeds_given, summary, write_table
from fuzz_cases import CLASSIFICATION, LOG_LINK, LOSSES, MORE, Call, Case, draw, draw_large, draw_more, draw_shared
from fuzz_judge import CALLS, COUNTS, FATAL, Answer, Finding, Tally, check, compare, judge, program
from fuzz_oracle import DIGITS, Model, Oracle, _Fits, exact_loss, losses

CONSTRAINTS = ["plain", "keep", "groups", "sign"]
PRESCRIBED = [(loss, constraint) for loss, constraint in product(LOSSES[:-1], CONSTRAINTS)] + [("multinomial", "plain")]
SHARED = [(loss, CONSTRAINTS[i % 4]) for i, loss in enumerate(LOSSES[:-1])] + [("multinomial", c) for c in CONSTRAINTS]


def false(findings: list[Finding]) -> list[str]:
    """All that is wrong, but for the time it took, and for an optimum that was missed by less than the tolerance."""
    return [str(finding) for finding in findings if finding.what not in ("slow", "exact missed")]


# ---------------------------------------------------------------------------------------------------------------------
# The sample


@pytest.mark.parametrize(("loss", "constraint"), PRESCRIBED, ids=lambda name: name)
def test_nothing_said_is_false(loss: str, constraint: str) -> None:
    tally = check(draw(7, loss, constraint))
    assert tally.counts["bounds"] >= 1
    assert false(tally.findings) == []


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_nothing_said_of_hostile_problems_is_false(first: int) -> None:
    findings = [finding for seed in range(first, first + 10) for finding in check(draw(seed)).findings]
    assert false(findings) == []


@pytest.mark.parametrize(("loss", "constraint"), SHARED, ids=lambda name: name)
def test_nothing_said_of_several_targets_is_false(loss: str, constraint: str) -> None:
    tally = check(draw_shared(5, loss, constraint))
    assert tally.counts["bounds"] >= 1
    assert false(tally.findings) == []


def test_nothing_said_of_hostile_problems_of_several_targets_is_false() -> None:
    findings = [finding for seed in range(10) for finding in check(draw_shared(seed)).findings]
    assert false(findings) == []


def test_methods_against_each_other() -> None:
    tallies = compare(draw_large(5))
    assert set(tallies) == {"auto", "branch"}
    assert [finding for tally in tallies.values() for finding in tally.findings if finding.what in FATAL] == []


# ---------------------------------------------------------------------------------------------------------------------
# Cases


def test_a_case_follows_from_its_seed() -> None:
    one, two = draw(3), draw(3)
    assert np.array_equal(one.X, two.X)
    assert str(one) == str(two)
    assert one.calls == two.calls


def test_cases_are_of_every_kind() -> None:
    cases = [draw(seed) for seed in range(400)]
    assert {case.loss for case in cases} == set(LOSSES)
    assert {case.storage for case in cases} == {"C", "F", "CSR", "CSC"}
    assert {str(case.X.dtype) for case in cases} == {"float32", "float64"}
    assert sum(not case.ingredients for case in cases) > 180
    assert {call.kind for case in cases for call in case.calls} == {"solve", "fit", "path", "certify"}
    sizes = [np.abs(case.X[case.X != 0]) for case in cases]
    assert min(size.min(initial=1.0) for size in sizes) < 1e-100
    assert max(size.max(initial=1.0) for size in sizes) > 1e40
    assert {len(case.y) for case in cases} >= {1, 2, 3}
    assert all(0 < len(Oracle(case).supports) <= 300 for case in cases)


def test_cases_of_several_targets_are_of_every_kind() -> None:
    cases = [draw_shared(seed) for seed in range(400)]
    assert {(case.loss, case.n_targets) for case in cases} == set(product(LOSSES, (2, 3))) | {
        ("multinomial", 4),
        ("multinomial", 5),
    }
    assert {call.kind for case in cases for call in case.calls} == {"solve", "fit", "path", "certify"}
    assert {np.ndim(case.sign) for case in cases if case.sign is not None} == {1, 2}
    assert {case.loss for case in cases if case.offset is not None} == {"squared", "huber"}
    assert {case.loss for case in cases if case.codes is not None} == {"multinomial", *CLASSIFICATION} - {"logistic"}
    assert {len(case.y) for case in cases} >= {1, 2, 3}
    assert all(case.y.shape == (len(case.X), case.n_targets) for case in cases if case.loss != "multinomial")
    assert all(case.sign is None or np.all(case.signs == case.sign) for case in cases)


def test_a_program_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"solve": "result.objective", "fit": "model.objective_", "path": "path[-1].objective", "certify": "0.0"}
    for (kind, objective), drawn in product(asked.items(), (draw, draw_shared)):
        case = next(case for case in map(drawn, range(300)) if case.calls[0].kind == kind and case.loss == "squared")
        call = replace(case.calls[0], given="model")
        names: dict[str, float] = {}
        exec("\n".join([*program(case, call), f"objective = {objective}"]), names)
        said = CALLS[kind](case, call)[-1].objective
        assert "objective" in capsys.readouterr().out
        assert names["objective"] in (said, 0.0)


# ---------------------------------------------------------------------------------------------------------------------
# The oracle


@pytest.mark.parametrize("loss", [*LOSSES[:-1], *MORE])
def test_values_of_the_losses_agree_with_sixty_digits(loss: str) -> None:
    parameter = {"huber": 0.7, "smoothed_hinge": 0.3, "quantile": 0.3, "tweedie": 1.6, "negative_binomial": 0.4}.get(
        loss
    )
    u = np.array([-30.0, -1.3, -0.2, 0.0, 0.4, 0.9, 2.5, 40.0])
    for target in (-1.0, 1.0) if loss not in LOG_LINK else (0.2, 3.0) if loss == "gamma" else (0.0, 3.0):
        y = np.full_like(u, target)
        value, slope, curvature, _ = losses(loss, parameter, u, y)
        with localcontext(DIGITS):
            exact = [float(exact_loss(loss, parameter, Decimal(x), Decimal(target))) for x in u.tolist()]
        np.testing.assert_allclose(value, exact, rtol=1e-12, atol=1e-300)
        h = 1e-6
        above, below = losses(loss, parameter, u + h, y), losses(loss, parameter, u - h, y)
        smooth = ~(((loss == "hinge") & (np.abs(1 - target * u) < 1e-3)) | ((loss == "quantile") & (u == target)))
        np.testing.assert_allclose(slope[smooth], ((above[0] - below[0]) / (2 * h))[smooth], rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(curvature[smooth], ((above[1] - below[1]) / (2 * h))[smooth], rtol=1e-5, atol=1e-8)


def test_exact_losses_far_from_zero() -> None:
    mp.dps = 60
    for t in (-1e6, -200.0, -1.0, 1e-20, 3.0, 80.0, 2000.0):
        expected = mp.log1p(mp.exp(-mpf(t)))
        with localcontext(DIGITS):
            value = exact_loss("logistic", None, Decimal(t), Decimal(1))
        assert abs(mpf(str(value)) / expected - 1) < mpf("1e-45")


@pytest.mark.parametrize(
    ("drawn", "loss", "constraint"),
    [(draw_more, loss, "plain") for loss in MORE]
    + [(draw, *prescribed) for prescribed in PRESCRIBED]
    + [(draw_shared, *prescribed) for prescribed in SHARED],
    ids=lambda name: name if isinstance(name, str) else name.__name__,
)
def test_witnesses_are_models(drawn: Callable[..., Case], loss: str, constraint: str) -> None:
    """They obey the constraint, they lack or have room for what they should, and float64 knows their objectives."""
    case = replace(drawn(11, loss, constraint), lam=0.1)
    oracle = Oracle(case)
    assert all(oracle.allows(model.w) for model in oracle.models)
    assert float(oracle.best) == pytest.approx(oracle.objectives.min(), rel=1e-4, abs=1e-12)
    for j in range(case.n_features):
        assert min(oracle.without(j), oracle.within(j)) == oracle.best
    best = oracle.models[int(np.argmin(oracle.objectives))]
    rng = np.random.default_rng(0)
    for step in (1e-2, 1e-4, 1e-6):  # no model nearby is better
        nearby = Model(
            np.where(best.w != 0.0, best.w * (1.0 + step * rng.standard_normal(best.w.shape)), 0.0),
            best.b,
            best.reference,
        )
        assert oracle.exact(nearby) >= oracle.best * (1 - Decimal("1e-9"))


def test_the_squared_loss_has_a_closed_form() -> None:
    case = replace(draw(4, "squared", "plain"), lam=0.3, weights=None, offset=None, fit_intercept=False, scale=None)
    oracle = Oracle(case)
    X, y, n = case.X.astype(np.float64), case.y, len(case.y)
    for model, support in zip(oracle.models, oracle.supports, strict=True):
        A = X[:, support]
        w = np.linalg.solve(A.T @ A / n + 0.15 * np.eye(A.shape[1]), A.T @ y / n)
        np.testing.assert_allclose(model.w[0, support], w, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_several_targets_add_up(loss: str) -> None:
    case = replace(draw_shared(3, loss, "sign"), lam=0.1)
    oracle, total = Oracle(case), 0.0
    model = oracle.models[-1]
    for c, (w, b) in enumerate(zip(model.w, model.b, strict=True)):
        offset, sign = None if case.offset is None else case.offset[:, c], tuple(case.signs[c].tolist())
        alone = Oracle(replace(case, y=case.y[:, c], offset=offset, sign=sign, n_targets=1))
        total += float(alone.exact(Model(w[None], b[None], model.reference)))
        inside = [
            m.objective for m, s in zip(alone.models, alone.supports, strict=True) if not s[~oracle.supports[-1]].any()
        ]
        assert float(alone.exact(Model(w[None], b[None], model.reference))) <= min(inside) * (1 + 1e-9)
    assert float(oracle.exact(model)) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_classes_with_signs_are_fitted(seed: int) -> None:
    case = replace(draw_shared(seed, "multinomial", "sign"), lam=0.03)
    fits, C, d = _Fits(case), case.n_targets, case.n_features
    signs = np.vstack([case.signs.T, np.full(C, 0.0 if case.fit_intercept else 2.0)]).ravel()
    ends = [(0.0 if z > 0 else None, 0.0 if z in (-1, 2) else None) for z in signs]

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        gradient, _ = fits._derivatives(theta[None], "multinomial", None, False)
        return float(fits.value(theta[None], "multinomial", None)[0]), gradient[0]

    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000, "maxfun": 10000}
    start = np.zeros((d + 1) * C)
    other = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=ends, options=options)
    [model] = fits.all(np.ones((1, d), dtype=bool))
    assert model.objective <= other.fun * (1 + 1e-7)


def test_a_unit_that_has_a_place_can_be_left_out() -> None:
    case = replace(draw(4, "squared", "plain"), k=draw(4, "squared", "plain").n_features)
    oracle = Oracle(case)
    fewer = Oracle(case, case.k - 1)
    for j in range(case.k):
        assert oracle.without(j) == pytest.approx(fewer.without(j), rel=Decimal("1e-20"))


def test_scaled_coefficients_have_the_same_objective() -> None:
    case = next(case for case in map(draw, range(100)) if case.scale is not None and case.loss == "logistic")
    oracle = Oracle(case)
    w, scale = np.arange(1.0, case.n_features + 1.0)[None], np.round(case.scale)
    oracle = Oracle(replace(case, scale=np.where(scale > 0, scale, 1.0)))
    exact = oracle.handed_out(w, 0.5, True)
    assert float(oracle.handed_out(w / oracle.case.scale, 0.5, False)) == pytest.approx(float(exact), rel=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# Judgement


def certificate(**said: float) -> SimpleNamespace:
    d = 3
    nothing = {"without": np.full(d, -np.inf), "within": np.full(d, -np.inf)}
    bounds = SimpleNamespace(**{name: np.asarray(said.pop(name, value)) for name, value in nothing.items()})
    said = {"attained": np.inf, "required": [], "excluded": [], "better": None} | said
    return SimpleNamespace(screening=bounds, **said)


@pytest.fixture
def oracle() -> Oracle:
    """One feature of three, the first the best by far."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3))
    base = draw(4, "squared", "plain")
    plain = {"weights": None, "offset": None, "scale": None, "standardize": False, "fit_intercept": False}
    return Oracle(replace(base, X=X, y=2.0 * X[:, 0] + 0.1 * rng.standard_normal(20), k=1, lam=0.1, **plain))


def said_of(oracle: Oracle, bound: float, tol: float = 1e-4, factor: float = 1.0, **more: object) -> list[str]:
    model = oracle.models[int(np.argmin(oracle.objectives))]
    objective = float(oracle.exact(model)) * factor
    more = {"attained": max(objective, float(oracle.exact(model))) * (1.0 + 1e-12)} | more
    answer = Answer(1, model.w, 0.0, True, objective, certificate(lower_bound=bound, **more), "optimal")
    return [what for what, _ in judge(oracle, Call("solve", tol=tol), answer, Counter())]


def test_a_false_bound_is_seen(oracle: Oracle) -> None:
    best = float(oracle.best)
    assert said_of(oracle, np.nextafter(best, 0.0)) == []
    assert "false bounds" in said_of(oracle, np.nextafter(np.nextafter(best, 1e9), 1e9))
    assert "false bounds" in said_of(oracle, np.inf)
    assert "false bounds" in said_of(oracle, np.nan)


def test_an_untrue_status_and_a_wrong_objective_are_seen(oracle: Oracle) -> None:
    best = float(oracle.best)
    assert said_of(oracle, best * (1.0 - 1e-3)) == ["status untrue"]
    assert said_of(oracle, best * (1.0 - 1e-3), tol=1e-2) == []
    assert said_of(oracle, best * (1.0 - 1e-12), factor=1.0 + 1e-5) == ["objective wrong"]
    assert said_of(oracle, best * (1.0 - 1e-12), factor=1.0 + 1e-5, attained=best * (1.0 + 3e-5)) == []
    assert "false claims" in said_of(oracle, best * (1.0 - 1e-12), attained=best * (1.0 - 1e-9))
    assert "objective below bound" in said_of(oracle, best * (1.0 - 1e-12), factor=1.0 - 1e-11)


def test_false_claims_about_features_are_seen(oracle: Oracle) -> None:
    below, without = float(oracle.best) * (1.0 - 1e-12), float(oracle.without(0))
    true = {"without": [without * 0.999, below, below], "within": [below, without * 0.99, without * 0.99]}
    assert said_of(oracle, below, **true, attained=float(oracle.best) * 1.01, required=[0], excluded=[1, 2]) == []
    assert "false claims" in said_of(oracle, below, without=[without * 1.001, below, below])
    assert "false claims" in said_of(oracle, below, within=[without, below, below])
    assert "false claims" in said_of(oracle, below, required=[1])
    assert "false claims" in said_of(oracle, below, excluded=[0])


def test_a_false_claim_of_swap_optimality_is_seen(oracle: Oracle) -> None:
    """From the worst model of one feature a swap leads to the best."""
    model, best = oracle.models[int(np.argmax(oracle.objectives))], float(oracle.best)
    objective = float(oracle.exact(model))
    said = certificate(lower_bound=best * (1.0 - 1e-12), attained=objective * (1.0 + 1e-12))

    def seen(swap_optimal: bool | float) -> bool:
        answer = Answer(1, model.w, 0.0, True, objective, said, "stalled", None, swap_optimal)
        return "false claims" in [what for what, _ in judge(oracle, Call("solve"), answer, Counter())]

    gain = objective - best
    assert gain > 1e-6 * objective
    assert seen(True)
    assert seen(0.99 * gain)
    assert not seen(1.01 * gain)
    assert not seen(False)


def test_a_model_that_is_not_allowed_is_seen(oracle: Oracle) -> None:
    for w in (np.array([1.0, 1.0, 0.0]), np.array([np.nan, 0.0, 0.0])):
        answer = Answer(1, w, 0.0, True, 1.0, certificate(lower_bound=0.0))
        assert "infeasible" in [what for what, _ in judge(oracle, Call("solve"), answer, Counter())]


def test_signs_groups_and_features_to_keep(oracle: Oracle) -> None:
    def allows(w: list[float], **constraint: object) -> bool:
        return Oracle(replace(oracle.case, **constraint)).allows(np.array(w))

    assert allows([0.0, 1.0, 0.0])
    assert not allows([1.0, 1.0, 0.0])
    assert allows([1.0, 1.0, 0.0], keep=(0,))
    assert allows([1.0, 1.0, 0.0], groups=(5, 5, 2))
    assert not allows([1.0, 0.0, 1.0], groups=(5, 5, 2))
    assert allows([1.0, 0.0, 1.0], groups=(5, 5, 2), keep=(2,))
    assert not allows([-1.0, 0.0, 0.0], sign=(1, 0, 0))
    assert allows([-1.0, 0.0, 0.0], sign=(-1, 0, 0))


# ---------------------------------------------------------------------------------------------------------------------
# The table


def test_seeds_are_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, asked = tmp_path / "table.csv", []

    def work(seed: int) -> dict[str, Tally]:
        asked.append(seed)
        finding = Finding("exceptions", "text", seed, "solve", "case")
        return {"hinge": Tally(Counter(problems=1, exceptions=1), [finding])}

    campaign(work, [(0, 4)], table)
    rows, findings = campaign(work, [(2, 6), (5, 8)], table)
    assert asked == list(range(8))
    assert len(findings) == 4
    assert rows == read_table(table)
    assert sum(row["problems"] for row in rows) == 8
    assert "| all | 8 |" in "\n".join(summary(rows))
    assert "EXCEPTIONS seed 7" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.part"))


def test_missing_ranges(tmp_path: Path) -> None:
    rows = [{"first": 10, "end": 20, "loss": "hinge"} | dict.fromkeys(COUNTS, 0), {"first": 30, "end": 40}]
    assert missing(0, 50, rows) == [(0, 10), (20, 30), (40, 50)]
    assert missing(12, 18, rows) == []
    assert missing(0, 2500, []) == [(0, 1000), (1000, 2000), (2000, 2500)]
    write_table(tmp_path / "table.csv", rows[:1])
    assert read_table(tmp_path / "table.csv") == rows[:1]
    assert seeds_given("3:9") == (3, 9)
    assert seeds_given("3") == (3, 4)

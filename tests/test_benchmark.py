"""The comparison with other packages: how supports are judged, how packages are asked, what the page says."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
sys.path.append(str(Path(__file__).parent.parent / "benchmarks" / "comparison"))

from benchmark_utils.judge import Found, Judge

import ablation
import compare
import regression
from diht.solvers.auto import STAGES
from instances import autoregressive
from peers import Answer, Instance, Worker


@pytest.fixture(scope="module")
def instance():
    X, y, _ = autoregressive(80, 40, 4, 0.5, 20.0)
    return Instance(X, y, 4, 0.1)


def ridge_objective(instance, support):
    X, y, n = instance.X[:, support], instance.y, len(instance.y)
    w = np.linalg.solve(2 * X.T @ X / n + instance.lam * np.eye(len(support)), 2 * X.T @ y / n)
    return np.mean((y - X @ w) ** 2) + 0.5 * instance.lam * w @ w


PLANTED = np.array([5, 15, 25, 35])


def test_a_support_is_judged_by_its_ridge_regression(instance):
    row = Judge(instance)(Found([PLANTED], [""], [1.0]))
    assert row["value"] == pytest.approx(ridge_objective(instance, PLANTED), rel=1e-12)
    assert row["support_size"] == 4
    assert np.isnan(row["test_score"])


def test_the_best_support_counts_and_of_equal_ones_the_fastest(instance):
    found = Found([np.arange(4), PLANTED, PLANTED[::-1]], ["poor", "slow", "fast"], [0.1, 3.0, 2.0])
    row = Judge(instance)(found)
    assert row["setting"] == "fast"
    assert row["seconds"] == 2.0
    assert row["value"] == pytest.approx(ridge_objective(instance, PLANTED), rel=1e-12)


def test_a_short_support_is_completed(instance):
    row = Judge(instance)(Found([PLANTED[:3]], [""], [1.0]))
    assert row["value"] == pytest.approx(ridge_objective(instance, PLANTED), rel=1e-12)


def test_a_failure_is_a_row_too(instance):
    row = Judge(instance)(Found([], [], [], failure="SIGSEGV"))
    assert np.isnan(row["value"])
    assert row["failure"] == "SIGSEGV"


def test_the_test_score_is_that_of_the_refitted_model(instance):
    X, y, _ = autoregressive(80, 40, 4, 0.5, 20.0, seed=1)
    score = Judge(instance, (X, y))(Found([PLANTED], [""], [1.0]))["test_score"]
    assert 0.9 < score < 1.0
    labels = Instance(instance.X, np.sign(instance.y), 4, 0.01, "logistic", intercept=True)
    accuracy = Judge(labels, (X, np.sign(y)))(Found([PLANTED], [""], [1.0]))["test_score"]
    assert 0.85 < accuracy <= 1.0


def test_rows_for_the_ridge_make_the_sum_of_squares_the_objective(instance):
    X, y = instance.with_ridge_rows()
    w = np.linspace(-1, 1, 40)
    n, lam = len(instance.y), instance.lam
    objective = np.mean((instance.y - instance.X @ w) ** 2) + 0.5 * lam * w @ w
    assert np.sum((y - X @ w) ** 2) == pytest.approx(n * objective)


def test_seconds_of_a_support_are_those_of_its_own_setting():
    nothing = np.arange(2)
    answer = Answer("x", [("a: 1", 1.0, nothing), ("b", 5.0, nothing), ("a: 2", 2.0, nothing)])
    assert answer.spent() == [1.0, 5.0, 3.0]
    assert answer.seconds == 8.0


@pytest.mark.parametrize(
    "peer", ["omp", *(pytest.param(p, marks=pytest.mark.slow) for p in ("l1-bisection", "ridge-top-k"))]
)
def test_a_package_in_its_process_finds_the_planted_support(instance, peer):
    labels = Instance(instance.X, np.sign(instance.y), 4, 0.01, "logistic", intercept=True)
    with Worker(sys.executable, peer, 30.0) as worker:
        answer = worker.ask(instance)
        assert answer.failure == ""
        assert any(np.array_equal(support, PLANTED) for _, _, support in answer.supports)
        if peer != "omp":
            assert all(len(support) <= 4 for _, _, support in worker.ask(labels).supports)


def test_a_package_that_breaks_or_does_not_end_says_so_and_can_be_asked_again(instance):
    broken = Instance(instance.X, np.full_like(instance.y, np.nan), 4, 0.1)
    with Worker(sys.executable, "omp", 30.0) as worker:
        assert "NaN" in worker.ask(broken).failure
        assert worker.ask(instance).failure == ""
    X, y, _ = autoregressive(1000, 2000, 100, 0.5, 5.0)
    with Worker(sys.executable, "omp", 0.001) as worker:
        assert worker.ask(Instance(X, y, 100, 0.1)).failure.startswith("stopped after")
        assert worker.ask(Instance(X, y, 100, 0.1)).failure.startswith("stopped after")


def rows(solver, times, values, failure="", dataset="reg", k=20):
    ours = solver in compare.OURS
    return [
        {
            "dataset_name": f"{dataset}[k={k},lam=0.1]",
            "solver_name": f"{'diht' if ours else 'peer'}[{solver}]",
            "p_dataset_k": k,
            "p_dataset_lam": 0.1,
            "p_solver_method": solver,
            "p_solver_package": solver,
            "objective_seconds": time,
            "objective_value": value,
            "objective_relative_gap": 0.01,
            "objective_test_score": np.nan,
            "objective_failure": failure,
        }
        for time, value in zip(times, values, strict=True)
    ]


def page(*solvers):
    found = compare.panels(pd.DataFrame([row for of_solver in solvers for row in of_solver]))
    return found[0], "\n".join(compare.page(found, 60)), compare.drawing(found)


def test_the_page_says_who_is_better_and_who_failed():
    auto = rows("auto", [0.1, 0.2, 0.4], [3.0, 2.0, 1.0])
    panel, text, drawing = page(
        auto, rows("omp", [0.3], [2.0]), rows("abess", [0.1], [2.0 + 1e-7]), rows("scope", [9.0], [np.nan], "SIGABRT")
    )
    assert [run.name for run in panel.peers] == ["abess", "omp"]  # the same objective, in less time
    assert "| reg, k = 20, lam = 0.1 | 1 | 1% | 0.4 | abess | 1.0e+00 | 0.1 | 0.2 | **2** |" in text
    assert "lower objective than `auto`: nowhere" in text
    assert "lower objective than every package: reg" in text
    assert "| scope | reg | k = 20, lam = 0.1 | SIGABRT | nothing |" in text
    assert ".m-omp{color:" in drawing


def test_the_page_says_where_we_are_behind():
    _, text, _ = page(rows("auto", [0.1], [1.0]), rows("omp", [0.3], [0.9]))
    assert "lower objective than `auto`: reg, k = 20, lam = 0.1" in text
    assert "not reached" in text


def test_many_instances_are_told_by_data_set(tmp_path, monkeypatch):
    """In a table each, with a line each in a summary, and one panel each; and the page can be written again from its own table."""
    solvers = [
        row
        for dataset in ("reg", "hard")
        for k in range(1, 8)
        for of_solver in (
            rows("auto", [0.05, 0.06, 0.1 * k, 0.2 * k], [1.5, 1.5, 1.0, 1.0], dataset=dataset, k=k),
            rows("omp", [0.2], [1.0 if k < 7 else 1.1], dataset=dataset, k=k),
            rows("scope", [0.2], [np.nan], dataset=dataset, k=k),
            rows("abess", [0.2], [9.0], "stopped" if k in (2, 5) else "", dataset=dataset, k=k),
        )
        for row in of_solver
    ]
    table = pd.DataFrame(solvers).assign(p_obj_time_limit=60)
    table.to_parquet(tmp_path / "results.parquet")
    for out, results in (("first", tmp_path / "results.parquet"), ("second", tmp_path / "first" / "peers.csv")):
        monkeypatch.setattr(sys, "argv", ["compare.py", "--out", str(tmp_path / out), "--results", str(results)])
        compare.main()
    text = (tmp_path / "first" / "peers.md").read_text()
    assert (tmp_path / "second" / "peers.md").read_text() == text
    assert len(pd.read_csv(tmp_path / "first" / "peers.csv")) == 2 * 7 * (3 + 1 + 1 + 1)  # none that says nothing new
    assert "| reg | 7 | 7 | 1 | 2 (0.5 to 3.5) |" in text
    assert "faster than `auto` to its own objective: in 10 of 14 instances (reg 5 of 7, hard 5 of 7)." in text
    assert "### hard" in text
    assert text.count("| omp | **0**; 0.2 |") == 2
    assert "| abess | hard | k = 2, lam = 0.1; k = 5, lam = 0.1 | stopped | something |" in text
    assert "| scope | reg | all 7 | nothing found in its time | nothing |" in text
    drawing = (tmp_path / "first" / "figures" / "peers.svg").read_text()
    assert "reg, k = 7, lam = 0.1" in drawing
    assert "reg, k = 6, lam = 0.1" not in drawing


def test_the_whole_grid_goes_on_where_it_was(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(compare, "COMPARISON", tmp_path)
    monkeypatch.setattr(
        compare.subprocess, "run", lambda command, **_: asked.append(command[command.index("--dataset") + 1])
    )
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "full-news20-binary.parquet").touch()
    (tmp_path / "outputs" / "full-reg.parquet").touch()
    assert len(compare.run(quick=False)) == len(compare.DATASETS)
    assert asked == [name for name in compare.DATASETS if name not in ("news20.binary", "reg")]


@pytest.mark.slow
def test_benchopt_runs_the_comparison(tmp_path, monkeypatch):
    pytest.importorskip("benchopt")
    from benchopt import run_benchmark

    monkeypatch.chdir(tmp_path)
    solvers = ["diht[method=[auto,diht]]", "peer[package=[omp,okridge]]"]
    dataset = ["paper[n=20,k=5,lam=10.0]"]
    output = tmp_path / "out.parquet"
    options = {"max_runs": 1000, "plot_result": False, "no_cache": True, "show_progress": False}
    run_benchmark(str(compare.COMPARISON), solvers, dataset_names=dataset, output_file=str(output), **options)
    (panel,) = compare.panels(pd.read_parquet(output))
    assert {"auto", "DIHT", "omp"} <= {run.name for run in panel.runs}
    assert panel.auto.value <= panel.best * (1 + 1e-9)


def test_what_got_slower_is_told():
    before = {
        "a": {"reads": 10.0, "pairs": 5.0},
        "b": {"reads": 3.0, "pairs": 1.0},
        "gone": {"reads": 1.0, "pairs": 1.0},
    }
    now = {"a": {"reads": 10.1, "pairs": 9.0}, "b": {"reads": 4.0, "pairs": 0.5}, "new": {"reads": 9.0, "pairs": 9.0}}
    assert regression.complaints(now, before) == [
        "a: 9 pairs, 5 before",
        "b: 4 reads, 3 before",
        "gone: not measured",
    ]
    assert regression.complaints(before, before) == []


def test_a_later_run_takes_the_place_of_an_earlier_one():
    first = pd.DataFrame({"dataset_name": ["a", "a", "a"], "solver_name": ["x", "x", "y"], "seconds": [1.0, 2.0, 3.0]})
    second = pd.DataFrame({"dataset_name": ["a", "b"], "solver_name": ["x", "y"], "seconds": [0.5, 4.0]})
    table, repeated = compare.merged([first, second])
    assert repeated
    assert sorted(table["seconds"]) == [0.5, 3.0, 4.0]
    assert not compare.merged([first, second[1:]])[1]


def test_an_ablation_leaves_one_stage_out_and_times_both_to_the_same_objective():
    assert ablation.without(None).stages == STAGES
    assert ablation.without(STAGES[2]).stages == STAGES[:2] + STAGES[3:]
    full = ablation.Solved(2.0, 1.5, 4.0, [(1.0, 3.0), (2.0, 2.5), (4.0, 2.0)])
    other = ablation.Solved(2.5, 1.0, 6.0, [(3.0, 2.5), (6.0, 2.5)])
    change = ablation.Change(full, other)
    assert (change.objective, change.bound, change.time, change.to_objective) == (0.25, 0.25, 1.5, 1.5)
    (line,) = list(ablation.small_table({STAGES[2]: [change]}))[2:]
    assert line == f"| `{type(STAGES[2]).__name__}` | 1 | 1, 0 | 25% | 1 | 25% | 1.50 |"

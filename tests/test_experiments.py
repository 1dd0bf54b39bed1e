"""The paper's figures in miniature, end to end; and runs that are killed."""

import math
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest

from diht.bounds.duality import gap, margin, primal
from diht.cli import main
from diht.commands import reproduce
from diht.experiments import estimation, gaps, theorem, timing
from diht.experiments.runner import Cell, Progress, Runner, opened, spoken_time
from diht.experiments.sources import STANDIN, Source, found
from diht.experiments.table import COLUMNS, Row, append_rows, environment, read_rows
from diht.theory import constants, iterations

SOURCE = Source(STANDIN, 300)
MINI_ESTIMATION = estimation.Plan((30, 20), (15, 60), 4, (0.1, 10.0), (1.0, 3.0), 0, n_tuning=1, n_evaluation=2)
MINI_TIMING = timing.Plan(few=(20,), lams=(0.001,), grid=(4.0, 16.0, 64.0), tuning_passes=5.0, repeats=2)
MINI_GAPS = gaps.Plan(few=20, lams=(0.001,), grid=(4.0, 64.0), tuning_epochs=3, epochs=5)
MINI_THEOREM = theorem.Plan(n=20, d=6, k=2, lam=1.0, beyond=1.2)


def miniature(figure: str) -> list[Cell]:
    if figure == "fig1":
        return estimation.cells(MINI_ESTIMATION)
    if figure == "theory":
        return theorem.cells(MINI_THEOREM)
    if figure in ("fig2", "fig4"):
        return timing.cells(figure, [SOURCE], MINI_TIMING)
    return gaps.cells(figure, [SOURCE], MINI_GAPS)


def run(folder: Path, *figures: str, jobs: int = 1, mode: str = "quick") -> list[Row]:
    with opened(folder) as path:
        runner = Runner(path, mode, jobs)
        for figure in figures:
            runner.run(miniature(figure), Progress(figure, shown=False))
    return runner.rows


def but_for_the_clock(rows: list[Row]) -> list[Row]:
    return [replace(row, date="", value=0.0 if row.measure == "seconds" else row.value) for row in rows]


def values(rows: list[Row], **columns: object) -> list[float]:
    return [row.value for row in rows if all(getattr(row, name) == value for name, value in columns.items())]


# ----------------------------------------------------------------------------------------------- figures


def test_estimation(tmp_path: Path) -> None:
    rows = run(tmp_path, "fig1")
    methods = {row.method for row in rows}
    assert methods >= {"DIHT", "IHT", "HTP", "auto", "oracle"}
    assert Counter(row.measure for row in rows) == dict.fromkeys(
        ("estimation_error", "recovered"), 4 * 2 * len(methods)
    )
    assert {row.seed for row in rows} == {1, 2}  # none of the copies that lam was chosen on
    assert {row.lam for row in rows} <= {0.1, 10.0}
    assert all(row.step in ((None,) if row.method in ("auto", "abess", "oracle") else (1.0, 3.0)) for row in rows)
    for d in (30, 20):
        assert np.mean(values(rows, method="auto", d=d, n=60, measure="recovered")) == 1.0
        assert np.mean(values(rows, method="auto", d=d, n=60, measure="estimation_error")) < 0.3
        assert set(values(rows, method="oracle", d=d, measure="recovered")) == {1.0}


def test_lam_and_step_are_chosen_by_recovery_then_by_error(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {
        (0.1, 1.0): (0.1, 0.0),
        (0.1, 3.0): (0.5, 1.0),
        (10.0, 1.0): (0.4, 1.0),
        (10.0, 3.0): (0.0, 0.0),
    }
    monkeypatch.setattr(estimation.Estimation, "_figures", lambda self, lam, step, copy: figures[lam, step])
    rows = list(estimation.Estimation(MINI_ESTIMATION, 30, 15, "DIHT").measure())
    assert {(row.lam, row.step) for row in rows} == {(10.0, 1.0)}


def test_lam_is_refined_between_its_neighbours_on_the_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    def figures(self: object, lam: float, step: float, copy: int) -> tuple[float, float]:
        assert 0.1 <= lam <= 10.0
        return abs(math.log10(lam) - wanted), 1.0

    monkeypatch.setattr(estimation.Estimation, "_figures", figures)
    plan = replace(MINI_ESTIMATION, lams=(0.1, 1.0, 10.0), refinements=3)
    for wanted in (-1.5, -0.9, 0.0, 0.3, 0.62, 1.0):
        (lam,) = {row.lam for row in estimation.Estimation(plan, 30, 15, "DIHT").measure()}
        assert abs(math.log10(lam) - max(wanted, -1.0)) <= 1 / 16 + 1e-12


def test_the_design_of_the_paper() -> None:
    X, y, w = estimation.paper_design(30, 10, 20_000, 0)
    covariance = np.cov(X, rowvar=False)
    assert np.allclose(covariance[:10, :10], 0.25 + 0.75 * np.eye(10), atol=0.05)
    assert np.allclose(covariance[10:, 10:], np.eye(20), atol=0.05)
    assert 0.3 < X.mean(axis=0).std() < 2.0
    assert w.tolist() == [1.0] * 10 + [0.0] * 20
    assert np.std(y - X @ w) == pytest.approx(1.0, abs=0.03)
    again = estimation.paper_design(30, 10, 20, (1, 2))
    assert np.array_equal(again[0], estimation.paper_design(30, 10, 20, (1, 2))[0])
    assert not np.array_equal(again[0], estimation.paper_design(30, 10, 20, (1, 3))[0])


@pytest.mark.parametrize("figure", ["fig2", "fig4"])
def test_timing(tmp_path: Path, figure: str) -> None:
    rows = run(tmp_path, figure)
    methods = {"DIHT", "SDIHT", "IHT", "HTP", "SVR-GHT", "auto"}
    assert {row.method for row in rows} == methods
    assert {row.data for row in rows} == {"rcv1 stand-in"}
    assert {row.loss for row in rows} == {"smoothed_hinge" if figure == "fig2" else "hinge"}
    (target,) = set(values(rows, measure="target"))
    assert values(rows, method="IHT", measure="objective") == [target]
    for method in methods:
        (objective,), (passes,) = (values(rows, method=method, measure=name) for name in ("objective", "passes"))
        seconds = values(rows, method=method, measure="seconds")
        assert len(seconds) == 2
        reached = objective <= target
        assert (passes < math.inf) == reached
        assert all((0 < second < math.inf) if reached else second == math.inf for second in seconds)
    assert max(values(rows, method="auto", measure="objective")) <= target


def test_steps_are_ranked_by_the_objective_after_equal_passes() -> None:
    problem = timing.text_problem(SOURCE, "fig2", 20, 0.001)
    ranking = timing._ranked(problem, timing.METHODS["DIHT"], "DIHT", MINI_TIMING)
    scale = timing.step_scale(problem, "DIHT")
    assert sorted(solver.step / scale for solver in ranking) == pytest.approx([4.0, 16.0, 64.0])
    objectives = []
    for solver in ranking:
        passes, objective = next(pair for pair in timing._run(problem, solver) if pair[0] >= 5.0)
        assert passes == pytest.approx(5.0)
        objectives.append(objective)
    assert objectives == sorted(objectives)


@pytest.mark.parametrize("figure", ["fig3", "fig5"])
def test_gaps(tmp_path: Path, figure: str) -> None:
    rows = run(tmp_path, figure)
    for method in ("DIHT", "SDIHT"):
        assert [row.epoch for row in rows if row.method == method and row.measure == "gap"] == [1, 2, 3, 4, 5]
    for method in ("DIHT", "SDIHT", "auto"):
        found, relative = (values(rows, method=method, measure=name) for name in ("gap", "relative_gap"))
        assert min(found) >= 0
        if method == "auto":  # of the best model and the best bound so far
            assert found == sorted(found, reverse=True)
        else:
            assert found[-1] < found[0]
        assert all(0 <= share <= 1.5 for share in relative[1:])
        seconds = values(rows, method=method, measure="seconds")
        assert seconds == sorted(seconds)
    assert values(rows, method="auto", measure="relative_gap")[-1] < 0.1


def test_theorem(tmp_path: Path) -> None:
    rows = run(tmp_path, "theory")
    (t0,) = values(rows, measure="t0")
    (measured,) = values(rows, measure="t0_measured")
    assert 1 <= measured <= t0
    for row in rows:
        bound = {"dual_error": "dual_error_bound", "gap": "gap_bound"}.get(row.measure)
        if bound is not None and (bound == "dual_error_bound" or row.epoch >= t0):
            (promised,) = values(rows, measure=bound, epoch=row.epoch)
            assert row.value <= promised
        if row.measure == "recovered" and row.epoch >= measured:
            assert row.value == 1.0


def test_the_optimum_and_the_promise_of_the_theorem() -> None:
    for plan in (MINI_THEOREM, theorem.FULL):
        problem = theorem.small_problem(plan)
        w, alpha = theorem.optimum(problem)
        assert np.count_nonzero(w) == plan.k
        assert gap(problem, w, alpha) <= 1e-12 * primal(problem, w)
        c, eps = constants(problem), margin(problem, w)
        assert eps > 0
        t = int(3 * iterations(c, eps))
        promised = theorem.promised_gap(c, eps, t)
        assert iterations(c, eps, gap=promised) <= t < iterations(c, eps, gap=0.99 * promised)


# ------------------------------------------------------------------------------------------------- the table


ROW = Row("fig1", "synthetic", "DIHT", "squared", 60, 500, 100, 0.1, 3, None, None, "recovered", 0.1 + 0.2)


def test_rows_come_back_as_they_were_in_one_order(tmp_path: Path) -> None:
    rows = [replace(ROW, seed=seed, lam=lam, mode="full", **environment()) for lam in (10.0, 1e-6) for seed in (10, 9)]
    rows.append(replace(rows[0], figure="fig2", seed=None, step=2.0**-9, measure="seconds", value=math.inf))
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    append_rows(one, rows)
    for row in reversed(rows):
        append_rows(other, [row])
    assert one.read_bytes() == other.read_bytes()
    assert read_rows(one) == [rows[3], rows[2], rows[1], rows[0], rows[4]]
    assert one.read_text().splitlines()[0] == ",".join(COLUMNS)
    assert read_rows(tmp_path / "none.csv") == []


def test_a_torn_table_loses_the_cell_that_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    append_rows(path, [replace(ROW, n=n, seed=seed) for n in (40, 60) for seed in range(3)])
    text = path.read_text()
    for cut in (1, 5, len(text.splitlines()[-1])):
        path.write_text(text[:-cut])
        assert {row.n for row in read_rows(path)} == {40}
    path.write_text(text[:20])
    assert read_rows(path) == []
    append_rows(path, [ROW])
    assert read_rows(path) == [ROW]


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"results\.csv: not a table of results"):
        read_rows(path)
    append_rows(tmp_path / "own.csv", [ROW])
    path.write_text((tmp_path / "own.csv").read_text().replace("0.1,3", "0.1,x"))
    with pytest.raises(ValueError, match=r"results\.csv: not a row of results: fig1,synthetic"):
        read_rows(path)


# ----------------------------------------------------------------------------------------------- the runner


KILLED = """
import sys
from pathlib import Path
from test_experiments import FIGURES, run
if __name__ == "__main__":
    run(Path(sys.argv[1]), *FIGURES, jobs=int(sys.argv[2]))
"""
FIGURES = ("fig1", "fig3")


def start(script: Path, folder: Path, jobs: int) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    return subprocess.Popen([sys.executable, str(script), str(folder), str(jobs)], env=environment)


def kill_when(process: subprocess.Popen, path: Path, more_than: int) -> None:
    """Kill a run, once the table is longer than that, at whatever it is doing."""
    end = monotonic() + 120
    while process.poll() is None and monotonic() < end:
        if path.exists() and path.read_bytes().count(b"\n") > more_than:
            break
        sleep(0.005)
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on(tmp_path: Path) -> None:
    script, folder = tmp_path / "killed.py", tmp_path / "killed"
    script.write_text(KILLED)
    sizes = []
    for more_than, jobs in ((0, 2), (20, 1)):
        process = start(script, folder, jobs)
        kill_when(process, folder / "results.csv", more_than)
        assert process.returncode == -signal.SIGKILL
        sizes.append(len(read_rows(folder / "results.csv")))
    whole = run(tmp_path / "whole", *FIGURES)
    assert 0 < sizes[0] < sizes[1] < len(whole)
    (folder / ".0123456789abcdef.tmp").write_text("half a table")
    assert but_for_the_clock(run(folder, *FIGURES)) == but_for_the_clock(whole)
    assert not list(folder.glob("*.tmp"))


def test_another_mode_or_version_needs_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_rows(tmp_path / "results.csv", [replace(ROW, mode="quick", **environment())])
    with pytest.raises(ValueError, match=r"--out: .*results\.csv has results of a --quick run .*choose another folder"):
        run(tmp_path, "theory", mode="full")
    monkeypatch.setattr("diht.experiments.table.__version__", "99")
    with pytest.raises(ValueError, match="not of a --quick run of version 99"):
        run(tmp_path, "theory")


def test_one_run_a_folder(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(ValueError, match="another run is writing to"), opened(tmp_path):
        pass
    with opened(tmp_path):
        pass


def test_what_is_there_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    with opened(tmp_path) as path:
        runner = Runner(path, "quick")
        with Progress("fig3") as progress:
            runner.run(miniature("fig3"), progress)
        monkeypatch.setattr(gaps.Gaps, "measure", lambda self: pytest.fail("measured again"))
        again = Runner(path, "quick")
        with Progress("fig3") as progress:
            again.run(miniature("fig3"), progress)
    assert again.rows == runner.rows
    first, *lines, last = capsys.readouterr().err.splitlines()
    assert first == "fig3    3 cells"
    assert [line.split()[1] for line in lines] == ["1/3", "2/3", "3/3"]
    assert "rcv1 stand-in, lam = 0.001, DIHT" in lines[0]
    assert lines[0].split("  ")[-1].startswith("about ")
    assert lines[-1].split("  ")[-1].startswith("done in ")
    assert last == "fig3    3 cells, 3 of them found in the table"
    assert [spoken_time(seconds) for seconds in (3.2, 200, 9000)] == ["3 s", "3 min", "2.5 h"]


# ----------------------------------------------------------------------------------------------- the command


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(theorem, "QUICK", MINI_THEOREM)
    monkeypatch.setattr(gaps, "QUICK", MINI_GAPS)
    monkeypatch.setattr(reproduce, "_QUICK_ROWS", dict.fromkeys(("rcv1", "news20", "imdb"), 300))
    out, data = tmp_path / "out", tmp_path / "data"
    data.mkdir()
    assert main(["reproduce", "theory", "fig3", "--out", str(out), "--data", str(data)]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"Written: {out / 'results.csv'}, {out / 'index.html'}")
    for remark in ("stand-in takes the place of RCV1", "news20 is left out", "imdb is left out"):
        assert remark in printed.err
    rows = read_rows(out / "results.csv")
    assert {row.figure for row in rows} == {"fig3", "theory"}
    assert {(row.mode, row.version) for row in rows} == {("quick", environment()["version"])}
    assert "stand-in" in (out / "index.html").read_text()
    assert main(["reproduce", "theory", "--full", "--out", str(out)]) == 2
    assert "choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "complaint"), [
    (["fig7"], "must be one of fig1, fig2, fig3, fig4, fig5, theory, got 'fig7'"),
    (["fig1", "--quick", "--full"], "not allowed with"),
    (["theory", "--jobs", "0"], "--jobs: must be a whole number"),
    (["fig3", "--data", "{}/nowhere"], "--data: {}/nowhere is no folder"),
    (["theory", "--out", "{}/file"], "--out: {}/file cannot be made"),
])  # fmt: skip
def test_refused_arguments(
    arguments: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    words = ["reproduce", *(word.format(tmp_path) for word in arguments)]
    try:
        status = main(words)
    except SystemExit as end:
        status = end.code
    assert status == 2
    error = capsys.readouterr().err
    assert complaint.format(tmp_path) in error
    assert error.startswith("diht: error: ")
    assert error.count("\n") == 1


def test_both_modes_have_the_same_shape() -> None:
    sources = [Source(STANDIN), Source("news20"), Source("imdb")]
    for figure in reproduce.FIGURES:
        quick, full = (reproduce.cells_of(figure, mode, sources) for mode in ("quick", "full"))
        names = [{tuple(str(cell).split(", ")[:2]) for cell in cells} for cells in (quick, full)]
        assert names[0] == names[1] or figure == "fig1"
        assert len(quick) <= len(full)
        assert all(cell.cost > 0 for cell in quick + full)
        assert len({str(cell) for cell in full}) == len(full)


def test_sources(tmp_path: Path) -> None:
    X, y = SOURCE.load()
    assert X.shape == (300, 47_236)
    assert SOURCE.load()[0] is X
    assert set(y) == {-1.0, 1.0}
    source, remark = found("rcv1", 10, str(tmp_path), download=False)
    assert source == Source(STANDIN, 10)
    assert "rcv1_train.binary" in remark
    assert found("news20", 10, str(tmp_path), download=False)[0] is None

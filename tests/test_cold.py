"""The first fit: what is compiled, who is told of it, and what a limit that ends before it leaves."""

import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from diht import Problem, SparseRegressor, solve
from diht.bounds.duality import lower_bound, null_bound
from diht.constraints import selection
from diht.constraints.selection import top_k, top_k_numpy
from diht.design import DenseDesign, as_design
from diht.losses import LOSSES
from diht.numerics import compiling
from diht.numerics.compiling import MESSAGE, announced, begins, printed
from diht.refit import refit
from diht.report.live import LiveLine
from diht.solvers import IHT

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import cold


def fresh_process(code, cache):
    """Run code in a process of its own whose kernel cache is the given folder; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


COUNTED = """
import numpy as np
from diht.numerics.compiling import announced
told = []
with announced(lambda: told.append(1)):
    from diht.design import kernels
    kernels.csr_column_squares(np.ones(2), np.zeros(2, dtype=np.int32), 2, np.zeros(1), np.zeros(1))
    kernels.csr_column_squares(np.ones(2), np.zeros(2, dtype=np.int32), 2, np.zeros(1), np.zeros(1))
print(len(told))
"""


def test_compiling_is_told_once_and_machine_code_on_disk_is_not(tmp_path):
    assert fresh_process(COUNTED, tmp_path) == ["1"]
    assert fresh_process(COUNTED, tmp_path) == ["0"]


def test_listeners_hear_it_within_their_context_only():
    told = []
    with announced(lambda: told.append("a")):
        begins("kernel")
        with announced(lambda: told.append("b")):
            begins("kernel")
    begins("kernel")
    assert told == ["a", "a", "b"]
    assert not compiling._listeners


def test_the_message_is_printed_once_where_it_is_wanted(capsys):
    for wanted in (True, False):
        with printed(wanted):
            begins("one")
            begins("another")
        assert capsys.readouterr().out.splitlines() == [MESSAGE] * wanted


@pytest.mark.parametrize("verbose", [True, False])
def test_a_verbose_fit_says_so_and_a_quiet_one_does_not(verbose, capsys, monkeypatch):
    def compiled_design(X, n_threads=None):
        begins("kernel")
        return as_design(X, n_threads)

    monkeypatch.setattr("diht.estimators.base.as_design", compiled_design)
    X = np.random.default_rng(0).standard_normal((20, 3))
    SparseRegressor(k=1, verbose=verbose).fit(X, X[:, 0])
    assert (MESSAGE in capsys.readouterr().out) == verbose


def test_the_progress_line_shows_it(capsys, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with LiveLine():
        begins("kernel")
    assert MESSAGE in capsys.readouterr().err
    with LiveLine(wanted=False):
        begins("kernel")
    assert MESSAGE not in capsys.readouterr().err


LIMITED = """
import numpy as np
import scipy.sparse as sp
from diht import Problem, solve
rng = np.random.default_rng(0)
X = rng.standard_normal((100, 200)) * (rng.random((100, 200)) < 0.2)
y = np.where(X[:, :5].sum(axis=1) > 0.0, 1.0, -1.0)
result = solve(Problem(sp.csr_array(X), y, "logistic", k=5, lam=0.01), time_limit=0.01)
print(result.status.name, result.lower_bound > 0.0, result.lower_bound <= result.objective)
"""


def test_a_limit_shorter_than_compiling_leaves_a_bound(tmp_path):
    assert fresh_process(LIMITED, tmp_path) == ["TIME_LIMIT", "True", "True"]


def problem_of(loss, sparse=False, intercept=False, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 8)) * (rng.random((30, 8)) < (0.5 if sparse else 1.0))
    margin = X[:, :2].sum(axis=1) + rng.standard_normal(30)
    task = LOSSES[loss].task
    y = (
        np.sign(margin)
        if task == "classification"
        else np.exp(margin).round() + 1.0
        if LOSSES[loss].nonnegative_targets
        else margin
    )
    return Problem(sp.csr_array(X) if sparse else X, y, loss=loss, k=2, lam=0.1, fit_intercept=intercept)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_but_a_first_look_proves_something(loss, sparse, intercept):
    problem = problem_of(loss, sparse, intercept)
    trivial = lower_bound(problem, np.zeros_like(problem.y)).value
    best = min(refit(problem, np.array(pair)).objective for pair in combinations(range(8), 2))
    for solver in ("auto", IHT()):
        result = solve(problem, solver, time_limit=1e-9, max_iter=1)
        assert trivial < result.lower_bound <= best * (1.0 + 1e-12)
        bound = result.certificate.bound
        assert bound.check(problem) == bound.value >= result.lower_bound == bound.claimed


def test_the_bound_of_the_model_without_features_is_nearly_the_best_on_its_ray():
    problem = problem_of("squared", seed=3)
    alpha = -2.0 * problem.y
    g = problem.design.rmatvec(problem.s * alpha)
    # D(t alpha) = rise t - fall t^2
    rise = float(problem.s @ (2.0 * problem.y**2))
    fall = float(problem.s @ problem.y**2) + problem.constraint.value(g) / (2.0 * problem.lam)
    best = rise**2 / (4.0 * fall)
    assert 8.0 / 9.0 * best * (1.0 - 1e-9) <= null_bound(problem, 0.0).value <= best * (1.0 + 1e-9)


@pytest.mark.parametrize("spent", [0, selection.FIRST])
def test_the_first_selections_equal_the_later_ones(spent, monkeypatch):
    monkeypatch.setattr(selection, "_selected_from", spent)
    rng = np.random.default_rng(0)
    ties = rng.integers(-3, 4, 7000).astype(float)
    special = np.where(rng.random(300) < 0.1, [[np.inf], [0.0], [-0.0]], rng.standard_normal(300))
    for v in (rng.standard_normal(150), ties, *special):
        for k in (1, 10, len(v) - 1):
            np.testing.assert_array_equal(top_k(v, k), top_k_numpy(v, k))


def test_many_selections_end_the_patience_with_numpy(monkeypatch):
    monkeypatch.setattr(selection, "_selected_from", 0)
    monkeypatch.setattr(selection, "FIRST", 1000)
    by_numpy = []
    partition = selection.top_k_by_partition
    monkeypatch.setattr(selection, "top_k_by_partition", lambda v, k: by_numpy.append(len(v)) or partition(v, k))
    v = np.arange(400.0)
    for _ in range(6):
        np.testing.assert_array_equal(top_k(v, 2), [398, 399])
    assert by_numpy == [400, 400, 400]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(700, 300), (300, 700), (2, 30_000), (30_000, 2)])
def test_both_products_of_a_dense_matrix_with_one_read(shape, order, threads):
    rng = np.random.default_rng(0)
    X = np.asarray(rng.standard_normal(shape), order=order)
    w, c = rng.standard_normal(shape[1]), rng.standard_normal(shape[0])
    design = DenseDesign(X, threads)
    u, g = design.matvec_rmatvec(w, c)
    np.testing.assert_allclose(u, X @ w, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(g, X.T @ c, rtol=1e-12, atol=1e-9)
    assert design.passes == 1.0
    w[3:] = 0.0
    np.testing.assert_allclose(design.matvec(w, support=np.arange(min(3, shape[1]))), X @ w, rtol=1e-12, atol=1e-9)
    with pytest.raises(ValueError, match="w must have shape"):
        design.matvec_rmatvec(w[:-1], c)


def test_a_dense_logistic_first_fit_compiles_nothing():
    row = cold.measured("logistic", "dense", exact=False)
    assert (row.functions, row.specialisations, row.kernels) == (0, 0, ())


def test_the_table_of_first_fits(tmp_path):
    kernel = cold.Kernel("kernels.clip", "float64", 0.25)
    row = cold.Cold("hinge", "csr", True, 9.0, 6.0, 5.0, 1, 1, 0.5, "stalled", (kernel,))
    lines = list(cold.table(iter([row]), kernels=True))
    assert lines[2] == "| hinge | csr | yes | 9.0 | **6.0** | 5.0 | 1 | 1 | 0.50 | no |"
    assert lines[3].split() == ["0.25", "kernels.clip(float64)"]
    cold.write([row], tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text().splitlines()[1].startswith("hinge,csr,True,9.0,6.0")
    cold.write([row], tmp_path / "rows.json")
    assert '"kernels.clip"' in (tmp_path / "rows.json").read_text()

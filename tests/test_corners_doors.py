"""What comes in and goes out: sizes beyond memory, defaults for any data, files that survive, messages of one clear line."""

import math
import os
import subprocess
import sys
from fractions import Fraction
from importlib import import_module
from inspect import isabstract
from itertools import combinations
from operator import mul
from pkgutil import walk_packages

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import diht
from command import refused, run
from diht import Problem, SparseClassifier, SparseRegressor, certify, solve
from diht.bounds.duality import Bound, primal
from diht.constraints.base import Constraint
from diht.constraints.groups import constrained
from diht.datasets import atomic_write, read_table
from diht.design import AffineView, as_design
from diht.estimators.tabular import refuse_dates
from diht.losses import LOSSES, Hinge
from diht.numerics.memory import free_memory
from diht.solvers import SDIHT, SVRGHT, Solver
from diht.solvers.empty_columns import PaddedBound
from diht.solvers.loop import SOLVERS, as_solver

RNG = np.random.default_rng(11)
X = RNG.normal(size=(40, 5))
Y = X[:, 1] - 2 * X[:, 3] + 0.1 * RNG.normal(size=40)


# Defaults


def through_skops(model):
    sio = pytest.importorskip("skops.io")
    return sio.loads(sio.dumps(model), trusted=diht.SKOPS_TRUSTED)


@pytest.mark.parametrize("name", SOLVERS)
def test_an_estimator_with_any_solver_goes_through_skops(name):
    model = SparseRegressor(k=2, lam=1.0, solver=SOLVERS[name]()).fit(X, Y)
    back = through_skops(model)
    assert back.solver == model.solver
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


@pytest.mark.parametrize("name", LOSSES)
def test_an_estimator_with_any_loss_goes_through_skops(name):
    loss = LOSSES[name]()
    kind, y = (SparseRegressor, np.abs(Y)) if loss.task == "regression" else (SparseClassifier, Y > 0)
    model = kind(k=2, lam=1.0, loss=loss).fit(X, y)
    back = through_skops(model)
    assert back.loss == loss
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def test_a_multinomial_model_that_was_read_goes_through_skops(tmp_path):
    model = SparseClassifier(k=2, lam=1.0, loss="multinomial").fit(X, np.arange(40) % 3)
    model.to_json(tmp_path / "model.json")
    back = through_skops(diht.load_model(tmp_path / "model.json"))
    np.testing.assert_array_equal(back.predict(X), model.predict(X))


def subclasses(kind):
    return {kind}.union(*map(subclasses, kind.__subclasses__()))


@pytest.mark.parametrize("base", [Solver, Bound, Constraint])
def test_every_public_solver_bound_and_constraint_is_trusted(base):
    for module in walk_packages(diht.__path__, "diht."):
        if not module.name.endswith("__main__") and not module.name.startswith("diht.gpu."):  # those need torch
            import_module(module.name)
    public = [
        f"{kind.__module__}.{kind.__name__}"
        for kind in subclasses(base)
        if kind.__module__.startswith("diht.") and not kind.__name__.startswith("_") and not isabstract(kind)
    ]
    assert public
    assert set(public) <= set(diht.SKOPS_TRUSTED)


def test_the_solvers_by_name_are_all_there_are():
    assert next(iter(SOLVERS)) == "auto"
    assert {type(as_solver(name)) for name in SOLVERS} == set(SOLVERS.values())
    public = {
        kind for kind in subclasses(Solver) if kind.__module__.startswith("diht.") and not kind.__name__.startswith("_")
    }
    public -= {Solver}
    assert public == set(SOLVERS.values())
    with pytest.raises(ValueError, match=r"^solver must be one of \['auto', 'diht', .* got 'autos'"):
        as_solver("autos")


@pytest.mark.parametrize("method", [SDIHT, SVRGHT])
@pytest.mark.parametrize("n", [1, 2, 9, 10, 11])
def test_the_default_blocks_fit_any_number_of_samples(method, n):
    problem = Problem(X[:n], Y[:n], "squared", 2, 1.0)
    result = solve(problem, method())
    assert result.lower_bound <= result.objective
    assert len(method().init(problem, diht.solvers.Start()).blocks) == min(n, 10)


# Columns that hold nothing


OCCUPIED = np.array([0, 1, 2, 5, 9, 17, 28, 30])


def wide(loss="squared", k=3, intercept=True, n=25, d=31, columns=OCCUPIED, sparse=sp.csr_array):
    """A sparse problem most of whose columns are empty."""
    rng = np.random.default_rng(5)
    Z = rng.normal(size=(n, len(columns))) * (rng.random((n, len(columns))) < 0.7)
    y = Z[:, 1] - 2 * Z[:, 4] + Z[:, 6] + 0.5 * rng.normal(size=n)
    row, column = np.nonzero(Z)
    Z_wide = sp.coo_array((Z[row, column], (row, np.asarray(columns)[column])), shape=(n, d))
    return Problem(sparse(Z_wide), y if loss == "squared" else np.sign(y), loss, k, 0.1, None, intercept)


@pytest.fixture
def compacted(monkeypatch):
    monkeypatch.setattr("diht.solvers.empty_columns._MANY", 1)


def with_and_without(problem, solver, monkeypatch, **settings):
    """The result of a solve that leaves the empty columns out, and of one that does not."""
    compacted = solve(problem, solver, **settings)
    assert isinstance(compacted.certificate.bound, PaddedBound)
    assert len(compacted.certificate.bound.features) == len(OCCUPIED) + 1
    monkeypatch.setattr("diht.solvers.empty_columns._MANY", 10**9)
    plain = solve(problem, solver, **settings)
    assert not isinstance(plain.certificate.bound, PaddedBound)
    return compacted, plain


@pytest.mark.usefixtures("compacted")
@pytest.mark.parametrize("solver", ["diht", "sdiht", "iht", "htp"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("intercept", [True, False])
def test_first_order_methods_do_the_same_without_empty_columns(solver, loss, intercept, monkeypatch):
    problem = wide(loss, intercept=intercept)
    # After more steps rounding decides which of the last models is the best one.
    result, plain = with_and_without(problem, solver, monkeypatch, max_iter=15)
    found, known = result.certificate, plain.certificate
    for model, other in [(result, plain), (result.last, plain.last), *zip(result.pool, plain.pool, strict=True)]:
        np.testing.assert_allclose(model.w, other.w, rtol=1e-9, atol=1e-12)
        assert model.intercept == pytest.approx(other.intercept, abs=1e-9)
    for name in ("objective", "lower_bound", "margin", "fenchel", "ridge", "attained"):
        assert getattr(found, name) == pytest.approx(getattr(known, name), rel=1e-9, abs=1e-12)
    assert (result.status, result.n_iter) == (plain.status, plain.n_iter)
    assert found.bound.check(problem) == pytest.approx(result.lower_bound, rel=1e-12)
    for name in ("support", "excluded", "required"):
        np.testing.assert_array_equal(getattr(found, name), getattr(known, name))
    for screening in (found.screening, found.bound.screening(problem).completed(3)):
        np.testing.assert_allclose(screening.without, known.screening.without, rtol=1e-9)
        np.testing.assert_allclose(screening.within, known.screening.within, rtol=1e-9)


@pytest.mark.usefixtures("compacted")
@pytest.mark.parametrize("solver", ["auto", "relaxed", "branch", "svrght"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("intercept", [True, False])
def test_what_is_claimed_without_empty_columns_is_true(solver, loss, intercept, monkeypatch):
    problem = wide(loss, intercept=intercept)
    result, plain = with_and_without(problem, solver, monkeypatch)
    best = solve(problem, "branch", tol=1e-10)
    assert result.lower_bound <= best.objective <= result.objective * (1 + 1e-12)
    assert result.relative_gap <= plain.relative_gap + 1e-6  # ten times the accuracy of Relaxed
    assert result.certificate.bound.check(problem) == pytest.approx(result.lower_bound, rel=1e-9)
    assert set(result.certificate.required) <= set(best.support)
    assert not set(result.certificate.excluded) & set(best.support)
    assert len(result.w) == len(result.certificate.drop_cost) == len(result.certificate.add_cost) == 31


@pytest.mark.usefixtures("compacted")
@pytest.mark.parametrize("sparse", [sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("k", [1, 8, 9, 20, 31])
def test_any_k_and_storage_without_empty_columns(k, sparse):
    problem = wide(k=k, sparse=sparse)
    result = solve(problem, "branch")
    every = [support for size in range(min(k, 8) + 1) for support in combinations(OCCUPIED, size)]
    best = min(certify(problem, support=list(support), alpha=np.zeros(25)).objective for support in every[-60:])
    assert result.status == "optimal"
    assert result.objective <= best * (1 + 1e-9)
    assert np.isin(result.support, OCCUPIED).all()
    assert result.certificate.bound.check(problem) == pytest.approx(result.lower_bound, rel=1e-9)


@pytest.mark.usefixtures("compacted")
def test_what_comes_and_goes_has_all_coefficients():
    problem, seen = wide(), []
    first = solve(problem, "branch", tol=1e-12, callback=lambda iterate: seen.append(iterate.model))
    assert {len(model.w) for model in seen} == {31}
    again = solve(problem, "branch", start=first, tol=1e-12)
    assert again.n_iter <= first.n_iter
    np.testing.assert_allclose(again.w, first.w)
    w = np.zeros(31)
    w[[3, 9]] = 1.0, -2.0  # column 3 is empty
    certificate = certify(problem, w, intercept=0.0)
    u = problem.design.matvec(w)
    assert certificate.objective == pytest.approx(
        primal(problem, w, problem.centred_intercept(w, 0.0), u + problem.centred_intercept(w, 0.0))
    )
    assert certificate.lower_bound <= first.objective
    assert len(certificate.drop_cost) == len(certificate.better.w) == 31


@pytest.mark.usefixtures("compacted")
def test_a_padded_bound_proves_nothing_false_of_another_problem():
    bound = solve(wide(), "branch", tol=1e-12).certificate.bound
    fuller = wide(columns=np.arange(20, 28))
    optimum = solve(fuller, "branch", tol=1e-12).objective
    assert bound.check(fuller) <= optimum
    assert bound.screening(fuller).without.min() <= optimum
    narrower = wide(d=29, columns=np.array([0, 1, 2, 5, 9, 17, 27, 28]))
    assert bound.check(narrower) <= solve(narrower, "branch", tol=1e-12).objective


def test_a_column_that_is_shifted_is_not_empty():
    base = as_design(sp.csr_array((4, 6)))
    center = np.array([0.0, 1.0, 0.0, 0.0, -2.0, 0.0])
    np.testing.assert_array_equal(AffineView(base, center).occupied(), [1, 4])
    np.testing.assert_array_equal(AffineView(base).occupied(), [])
    np.testing.assert_array_equal(as_design(np.zeros((2, 3))).occupied(), [0, 1, 2])


def test_empty_columns_of_a_wide_sparse_matrix_leave():
    result = solve(wide(d=10**6, columns=np.arange(8) * 100_000, k=2))
    assert len(result.w) == len(result.certificate.screening.within) == 10**6
    assert len(result.certificate.bound.features) == 9


# Memory


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def complaint(call, *arguments, **settings):
    """The ValueError of a call, which must be one line."""
    with pytest.raises(ValueError) as caught:
        call(*arguments, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def free(monkeypatch, size):
    monkeypatch.setattr("diht.numerics.memory.free_memory", lambda: size)


def test_an_index_beyond_the_memory_is_refused_with_its_line(tmp_path, monkeypatch):
    free(monkeypatch, 20e9)
    path = write(tmp_path, "a.svm", "1 1:1\n-1 3:1 2147483648:1\n")
    said = complaint(read_table, path)
    assert said == (
        f"{path}: line 2: index 2147483648: so many coefficients of a model need about 172 GB of memory, where 20 GB are free"
    )
    assert read_table(path, max_features=2**31).X.shape == (2, 2**31)
    assert read_table(path, n_features=2**31).X.shape == (2, 2**31)
    free(monkeypatch, 2e12)
    assert read_table(path).X.shape == (2, 2**31)


def test_max_features(tmp_path):
    path = write(tmp_path, "a.svm", "1 1:1\n-1 4:1\n")
    assert (
        complaint(read_table, path, max_features=3) == f"{path}: line 2: index 4, where at most 3 features are allowed"
    )
    assert read_table(path, max_features=4).X.shape == (2, 4)
    assert complaint(read_table, path, max_features=4, zero_based=True) == (
        f"{path}: 5 features, where at most 4 are allowed"
    )
    np.savez(tmp_path / "a.npz", X=np.eye(5), y=np.arange(5))
    sp.save_npz(tmp_path / "b.npz", sp.csr_array(np.eye(5)))
    table = pa.table({name: [1.0, 2.0] for name in "abcdef"})
    pq.write_table(table, tmp_path / "c.parquet")
    write(tmp_path, "d.csv", "a,b,c,d,e,y\n1,2,3,4,5,6\n")
    for name in ("a.npz", "b.npz", "c.parquet", "d.csv"):
        settings = {"needs_target": name != "b.npz"}
        path = tmp_path / name
        assert read_table(path, max_features=5, **settings).X.shape[1] == 5
        assert complaint(read_table, path, max_features=4, **settings) == (
            f"{path}: 5 features, where at most 4 are allowed"
        )


@pytest.mark.parametrize("command", ["fit", "certify"])
def test_max_features_on_the_command_line(command, tmp_path, capsys):
    path = write(tmp_path, "a.svm", "1 1:1\n-1 4:1\n1 2:1\n")
    model = [] if command == "fit" else [write(tmp_path, "m.csv", "1,2\n")]
    assert refused(capsys, command, *model, path, "--max-features", 3) == (
        f"diht: error: {path}: line 2: index 4, where at most 3 features are allowed\n"
    )
    assert "--max-features" in refused(capsys, command, *model, path, "--max-features", 0)


def test_tables_beyond_the_memory_are_refused_before_they_are_read(tmp_path, monkeypatch):
    n, d = 2000, 2500
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((n, d), np.int64), y=np.zeros(n))
    pq.write_table(pa.table({f"x{j}": np.zeros(50_000) for j in range(100)}), tmp_path / "b.parquet")
    coordinates = {"data": np.ones(1), "row": np.zeros(1, int), "col": np.zeros(1, int), "format": "coo"}
    np.savez(tmp_path / "c.npz", shape=np.array([3, 2**31]), **coordinates)
    np.savez(tmp_path / "d.npz", shape=np.array([2**40, 3]), **coordinates)
    free(monkeypatch, 39e6)
    monkeypatch.setattr("diht.numerics.memory._MUCH", 0)
    where = "of memory, where 39 MB are free"
    assert complaint(read_table, tmp_path / "a.npz") == (
        f"{tmp_path / 'a.npz'}: the numbers of the array 'X' need about 40 MB {where}"
    )
    assert complaint(read_table, tmp_path / "b.parquet") == (
        f"{tmp_path / 'b.parquet'}: 50,000 rows of 100 columns need about 80 MB {where}"
    )
    assert complaint(read_table, tmp_path / "c.npz", needs_target=False) == (
        f"{tmp_path / 'c.npz'}: 3 samples with 2,147,483,648 features need about 172 GB {where}"
    )
    assert "1,099,511,627,776 samples with 3 features need about 8.8e+03 GB" in complaint(
        read_table, tmp_path / "d.npz", needs_target=False
    )


def test_growing_tables_are_refused_before_the_memory_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr("diht.numerics.memory._MUCH", 0)
    monkeypatch.setattr("diht.datasets.delimited._CELLS", 100)
    path = write(tmp_path, "a.csv", "a,b,y\n" + "1,2,3\n" * 200)
    free(monkeypatch, 900)
    assert read_table(path).X.shape == (200, 2)
    sizes = iter([1e6, 10])
    monkeypatch.setattr("diht.numerics.memory.free_memory", lambda: next(sizes))
    assert complaint(read_table, path) == (
        f"{path}: line 54: 104 and more cells need about 0.0008 MB of memory, where 1e-05 MB are free"
    )
    path = write(tmp_path, "a.svm", "1 1:1\n" * 200)
    free(monkeypatch, 1000)
    assert complaint(read_table, path) == (
        f"{path}: 200 and more entries need about 0.0016 MB of memory, where 0.001 MB are free"
    )


@pytest.mark.parametrize("kind", [SparseRegressor, SparseClassifier])
def test_a_fit_with_more_features_than_the_memory_holds_is_refused(kind, monkeypatch):
    free(monkeypatch, 20e9)
    wide_X = sp.csr_array((np.ones(2), np.array([0, 2**31 - 1]), np.array([0, 1, 2])), shape=(2, 2**31))
    said = "X: the coefficients of 2,147,483,648 features need about 172 GB of memory, where 20 GB are free"
    assert complaint(kind().fit, wide_X, [0, 1]) == said
    assert complaint(Problem, wide_X, [0.0, 1.0]) == said


def test_free_memory_is_that_of_the_machine_and_of_its_control_groups(tmp_path, monkeypatch):
    proc, groups = tmp_path / "meminfo", tmp_path / "groups"
    monkeypatch.setattr("diht.numerics.memory._MEMINFO", proc)
    monkeypatch.setattr("diht.numerics.memory._CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr("diht.numerics.memory._CGROUPS", groups)
    pages = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert free_memory() == pytest.approx(pages, rel=0.5)  # no such files: another system
    proc.write_text("MemTotal: 9 kB\nMemAvailable:     4000 kB\nSwapFree: 1000 kB\n")
    assert free_memory() == 5000 * 1024
    (tmp_path / "cgroup").write_text("4:cpu,memory:/job\n0::/jobs/one\n")
    assert free_memory() == 5000 * 1024
    inner = groups / "jobs" / "one"
    inner.mkdir(parents=True)
    for name, text in {"memory.max": "max", "memory.current": "70000", "memory.stat": "inactive_file 5\n"}.items():
        (inner / name).write_text(text)
        (inner.parent / name).write_text(text.replace("max", "100000"))
    assert free_memory() == 30005
    old = groups / "memory"
    old.mkdir()
    (old / "memory.limit_in_bytes").write_text("20000\n")
    (old / "memory.usage_in_bytes").write_text("19000\n")
    (old / "memory.stat").write_text("cache 3\ntotal_inactive_file 7\n")
    assert free_memory() == 1007
    monkeypatch.delattr("os.sysconf")
    proc.unlink()
    (tmp_path / "cgroup").unlink()
    assert free_memory() == math.inf


# Files that survive


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Small files of a regression and of three classes, with and without a header."""
    folder = tmp_path_factory.mktemp("files")
    rows = [",".join(map(str, row)) for row in X[:, :3].round(3).tolist()]
    numbers = [f"{row},{y:.3f}" for row, y in zip(rows, Y, strict=True)]
    classes = [f"{row},{'uvw'[i % 3]}" for i, row in enumerate(rows)]
    write(folder, "numbers.csv", "\n".join(["a,b,c,y", *numbers]))
    write(folder, "classes.csv", "\n".join(["a,b,c,y", *classes]))
    write(folder, "bare.csv", "\n".join(classes))
    write(folder, "zeros.csv", "\n".join("0,0,1,u" for _ in rows))
    write(folder, "blank.csv", "\n".join([",,,y", *numbers]))
    return folder


@pytest.fixture
def no_pictures(monkeypatch):
    monkeypatch.setattr("diht.commands.fit.to_png", lambda figure: b"PNG" * 100_000)


@pytest.fixture
def model(files, tmp_path, capsys, no_pictures):
    """A model of the file without a header."""
    assert run("fit", files / "bare.csv", "--k", 2, "--lam", 0.1, "--quiet", "--out", tmp_path / "bare") == 0
    capsys.readouterr()
    return tmp_path / "bare" / "model.json"


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.linux
def test_a_full_disk_names_the_file_and_leaves_the_old_ones(files, tmp_path, capsys, monkeypatch):
    import resource

    out = tmp_path / "out"
    out.mkdir()
    before = {name: write(out, name, f"old {name}").read_bytes() for name in ("model.json", "convergence.png")}
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))  # no file may be larger, as on a disk that is full
    try:
        assert run("fit", files / "numbers.csv", "--k", 2, "--lam", 0.1, "--quiet", "--out", out) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    said = capsys.readouterr()
    assert said.err == f"diht: error: {out / 'convergence.png'}: cannot be written: File too large\n"
    assert "How good is it?" in said.out
    assert "Written" not in said.out
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.linux
def test_a_small_file_on_a_full_disk_is_named_once():
    with pytest.raises(OSError, match=r"^/dev/full: cannot be written: No space left on device$"):  # noqa: SIM117
        with atomic_write("/dev/full") as file:
            file.write(b"{}")


@pytest.mark.parametrize("command", [["predict", "MODEL", "DATA"], ["certify", "MODEL", "DATA", "--quiet"]])
@pytest.mark.linux
def test_a_full_disk_under_standard_output_is_named(command, model, files):
    words = [str({"MODEL": model, "DATA": files / "bare.csv"}.get(word, word)) for word in command]
    with open("/dev/full", "w") as full:
        child = subprocess.run([sys.executable, "-m", "diht", *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (child.returncode, child.stderr) == (2, "diht: error: standard output: No space left on device\n")


@pytest.mark.parametrize("lines", [pytest.param(0, marks=pytest.mark.slow), 1])
@pytest.mark.linux
def test_a_reader_that_leaves_does_not_lose_the_model(lines, files, tmp_path):
    out = tmp_path / "out"
    words = ["fit", files / "numbers.csv", "--k", 2, "--lam", 0.1, "--quiet", "--out", out]
    child = subprocess.Popen(
        [sys.executable, "-m", "diht", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    for _ in range(lines):
        child.stdout.readline()
    child.stdout.close()
    said = child.stderr.read()
    child.stderr.close()
    assert (child.wait(timeout=60), said) == (141, b"")
    assert sorted(path.name for path in out.iterdir()) == [
        "coefficients.png",
        "convergence.png",
        "model.json",
        "report.html",
    ]
    assert diht.load_model(out / "model.json").coef_.shape == (3,)


# Messages


def test_a_file_without_a_header_is_read_for_its_model(model, files, capsys):
    assert run("predict", model, files / "bare.csv") == 0
    assert capsys.readouterr().out.count("\n") == 41
    assert run("predict", model, files / "zeros.csv") == 0
    capsys.readouterr()
    said = complaint(read_table, files / "zeros.csv", "y")
    assert said == (f"{files / 'zeros.csv'}: the columns 0 and 1 are both named '0'; is it data, and a header missing?")


@pytest.mark.usefixtures("no_pictures")
def test_a_missing_header_is_named_where_names_are_needed(files, tmp_path, capsys):
    assert run("fit", files / "numbers.csv", "--k", 3, "--lam", 0.1, "--quiet", "--out", tmp_path) == 0
    capsys.readouterr()
    bare = write(tmp_path, "bare.csv", "1,2,3\n4,5,6\n")
    assert refused(capsys, "predict", tmp_path / "model.json", bare) == (
        f"diht: error: {bare}: no column 'a', 'b', 'c', which the model needs; the file has no header\n"
    )


def test_a_header_that_names_the_target_alone(files):
    table = read_table(files / "blank.csv")
    assert (table.feature_names, table.target_names, table.X.shape) == (["x0", "x1", "x2"], ["y"], (40, 3))


@pytest.mark.parametrize(
    ("first", "says"), [(",,,3", "missing value"), ("NA,NA,NA,u", "missing value"), (",,,", "missing")]
)
def test_a_first_line_of_missing_values_is_no_header(first, says, tmp_path):
    path = write(tmp_path, "a.csv", f"{first}\n1,2,3,4\n")
    assert says in complaint(read_table, path)
    assert "line 1" in complaint(read_table, path)


@pytest.mark.parametrize("text", ["intercept,0.3\n", '{"intercept": 0.3}', '{"coefficients": {}, "intercept": 0.3}'])
def test_an_intercept_alone_is_a_model(text, files, tmp_path, capsys):
    mine = write(tmp_path, "mine.json" if text.startswith("{") else "mine.csv", text)
    assert run("certify", mine, files / "numbers.csv", "--quiet", "--lam", 0.1) == 0
    said = capsys.readouterr().out
    assert "mine" in said
    assert ": 0 features\n" in said


def test_features_of_a_model_by_name_and_by_number(files, tmp_path, capsys):
    data = write(tmp_path, "a.svm", "1 1:1 3:2\n2 2:1\n0.5 3:1\n")
    for text in ("feature 3,1\n", "3,1\n"):
        assert (
            run("certify", write(tmp_path, "mine.csv", text), data, "--quiet", "--lam", 0.1, "--loss", "squared") == 0
        )
    capsys.readouterr()
    for name in ("0", "4", "03", "feature 0", "b"):
        mine = write(tmp_path, "mine.csv", f"{name},1\n")
        assert refused(capsys, "certify", mine, data, "--loss", "squared") == (
            f"diht: error: {mine}: {data} has no feature {name!r} (its first one is 'feature 1')\n"
        )


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("words", [["--exact"], ["--solver", "htp"], ["--solver", "diht", "--multiclass", "ovr"]])
def test_methods_of_several_classes_on_the_command_line(words, files, tmp_path, capsys):
    assert run("fit", files / "classes.csv", "--k", 2, "--lam", 0.1, *words, "--quiet", "--out", tmp_path) == 0
    assert "lower bound" in capsys.readouterr().out
    assert refused(capsys, "fit", files / "classes.csv", "--solver", "diht", "--out", tmp_path) == (
        "diht: error: argument --solver: diht does not know several classes that share features; "
        "use auto, iht, htp, relaxed, branch, or --multiclass ovr\n"
    )


def test_weights_that_vanish_beside_others():
    said = complaint(SparseClassifier(k=1).fit, [[1.0], [2.0], [3.0]], [0, 1, 1], sample_weight=[1e-300, 1e300, 1])
    assert said == "every class needs some weight, but class 0 has none, or none beside the others"


DATES = pd.date_range("2020-01-01", periods=40)


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (DATES, "got dates or times of type datetime64"),
        (DATES.tz_localize("UTC"), "got dates or times of type datetime64"),
        (DATES - DATES[0], "got dates or times of type timedelta64"),
        (DATES.to_period("M"), "got type period"),
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_a_column_without_numbers_is_named(column, says, alone):
    frame = pd.DataFrame({"when": column} if alone else {"a": X[:, 0], "when": column, "b": X[:, 1]})
    for kind, y in ((SparseRegressor, Y), (SparseClassifier, Y > 0), (diht.SparseRegressorCV, Y)):
        said = complaint(kind().fit, frame, y)
        assert said.startswith("column 'when' of X must hold numbers, ")
        assert says in said


def test_what_stands_for_numbers_is_taken():
    frame = pd.DataFrame({"a": X[:, 0].astype(object), "b": ["1", "2"] * 20, "c": X[:, 1] > 0}).astype({"b": object})
    model = SparseRegressor(k=2, lam=0.1).fit(frame, Y)
    np.testing.assert_array_equal(model.predict(frame), model.predict(frame.astype(float)))
    assert complaint(SparseRegressor().fit, DATES.to_numpy()[:, None], Y).startswith("X must hold numbers, got dates")


def frame(**others):
    """X with names, and some columns replaced."""
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(**others)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: SparseRegressor(k=1, random_state=-1).fit(X, Y), "random_state must not be negative, got -1"),
        (lambda: SparseRegressor(keep="age").fit(X, Y), "keep must be a list of features, got 'age'"),
        (lambda: diht.SparseRegressorCV(ks=[]).fit(X, Y), "ks must hold at least one number, got none"),
        (lambda: diht.SparseRegressorCV(ks=[1], cv=1).fit(X, Y), "cv must be at least 2 folds, got 1"),
        (lambda: SparseRegressor(standardize="no").fit(X, Y), "standardize must be True or False, got 'no'"),
        (lambda: SparseRegressor(exact="no").fit(X, Y), "exact must be True or False, got 'no'"),
        (lambda: SparseRegressor(n_jobs="a").fit(X, Y), "n_jobs must be None or an integer other than 0, got 'a'"),
        (
            lambda: SparseRegressor(k=1, random_state="a").fit(X, Y),
            "random_state must be a whole number, a generator or None, got 'a'",
        ),
        (lambda: SparseRegressor(encoder="a").fit(frame(), Y), "encoder must be a TableEncoder, got 'a'"),
        (lambda: SparseRegressor().fit(X, Y[:-1]), f"y must have length {len(X)} to match X, got length {len(X) - 1}"),
        (
            lambda: SparseRegressor().fit(X, ["a"] * len(X)),
            "y must be numeric, got 'a': class names are for SparseClassifier",
        ),
        (
            lambda: SparseClassifier(k=5).fit(X, np.array([1, "a"] * 20, dtype=object)),
            "y must hold classes of one type, got int, str",
        ),
        (
            lambda: SparseRegressor().fit(X[:, 0], Y),
            f"X must have rows and columns, got shape ({len(X)},). Reshape your data with array.reshape(-1, 1) for one "
            "feature, array.reshape(1, -1) for one sample",
        ),
        (lambda: SparseRegressor().fit(X + 1j, Y), "X must hold real numbers: Complex data not supported"),
        (
            lambda: SparseRegressor().fit(np.full(X.shape, "u"), Y),
            "X must hold numbers: could not convert string to float: np.str_('u'); a data frame may hold texts",
        ),
        (lambda: SparseRegressor().fit(frame(x1=np.inf), Y), "X contains infinity in 'x1'"),
        (
            lambda: SparseRegressor().fit(frame().rename(columns={"x1": "x0"}), Y),
            "X has two columns named 'x0': rename one of them",
        ),
        (
            lambda: SparseRegressor(k=5).fit(frame(), Y).predict(frame(x1="u")),
            "column 'x1' of X must hold numbers: could not convert string to float: 'u'",
        ),
        (
            lambda: SparseRegressor(k=5).fit(X, Y).predict(np.where(np.arange(X.shape[1]) == 1, np.nan, X)),
            f"X contains NaN in column 1 ({len(X)} of {len(X)}): impute these values or drop the columns",
        ),
        (
            lambda: diht.sparse_path(np.where(np.arange(X.shape[1]) == 1, np.nan, X), Y, ks=[1]),
            f"X contains NaN in column 1 ({len(X)} of {len(X)}): impute these values or drop the columns",
        ),
        (lambda: SparseRegressor(k=5, lam="0.1").fit(X, Y), "lam must be a positive number, got '0.1'"),
        (lambda: SparseRegressor().fit(frame()[[]], Y), "X must have at least one column, got none"),
        (
            lambda: diht.solve(X),
            "problem must be a Problem, such as Problem(X, y, k=5, lam=0.1), got ndarray",
        ),
        (lambda: diht.SparseCox(k="a").fit(X, abs(Y), Y > 0), "k must be a whole number, got 'a'"),
        (lambda: diht.SparseCox(lam=None).fit(X, abs(Y), Y > 0), "lam must be a positive number, got None"),
        (lambda: diht.SparseCox(time_limit=-1).fit(X, abs(Y), Y > 0), "time_limit must be positive, got -1"),
        (
            lambda: diht.SparseCox(keep=["z"]).fit(frame(), abs(Y), Y > 0),
            "keep holds 'z', which is not among the features",
        ),
        (
            lambda: diht.SparseCox().fit(frame(x1="u"), abs(Y), Y > 0),
            "X must hold numbers: TableEncoder().fit_transform(X) makes some of texts and categories",
        ),
    ],
)
def test_the_argument_is_named(call, says):
    assert complaint(call) == says


def test_dates_of_polars_are_told_from_its_numbers():
    """Its types have no `kind`."""
    for name in ("Float64", "Int8", "Boolean", "Decimal(precision=38, scale=2)"):
        refuse_dates("X", name)
    for name in ("Date", "Time", "Datetime(time_unit='us', time_zone=None)", "Duration(time_unit='us')"):
        assert "got dates or times" in complaint(refuse_dates, "X", name)


def test_spaces_do_not_separate(tmp_path):
    path = write(tmp_path, "a.csv", "a b y\n1 2 3\n")
    assert complaint(read_table, path) == (
        f"{path}: no column besides the target 'a b y'; commas, semicolons, tabs or bars separate columns"
    )


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_what_separates(mark, tmp_path):
    table = read_table(write(tmp_path, "a.csv", f"a{mark}b{mark}y\n1{mark}2{mark}3\n4{mark}5.5{mark}6\n"))
    assert (table.feature_names, table.target_names) == (["a", "b"], ["y"])
    assert (table.X.tolist(), table.y.tolist()) == ([[1, 2], [4, 5.5]], [3, 6])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\tb\ty\n1\t2\t3\n", "the target 'a' is not a finite number"),
        ("a,b,y\n1,2,3\n", "the target 'a,b,y' is not a finite number"),
        ("1\t2\t3\n4\t5\t6", "'2' is not an index:value pair"),
    ],
)
def test_a_table_that_is_named_txt(text, says, tmp_path):
    path = write(tmp_path, "a.txt", text)
    assert complaint(read_table, path) == f"{path}: line 1: {says}; a table is named .csv or .tsv"


def test_a_target_of_one_class_is_named_with_its_file(tmp_path, capsys):
    path = write(tmp_path, "a.csv", "a,b,y\n1,2,u\n3,4,u\n")
    assert refused(capsys, "fit", path, "--out", tmp_path) == (
        f"diht: error: {path}: the target 'y' has one class only: 'u'\n"
    )


def test_a_better_model_has_the_objective_that_is_said_of_it() -> None:
    """Of its coefficients in X's units: products of scaled coefficients with means of 1e7 deviations are rounded."""
    rows = [
        [-0.0020937819442714916, 185795219.25931454],
        [-0.002093782300985268, 185795272.87911147],
        [-0.00209378260438907, 185795201.1536592],
    ]
    y, scale, lam = np.array([-1.0, -1.0, 1.0]), np.array([2.697846471061621e-10, 30.4547713508609]), 3.69e-10
    problem = Problem(
        sp.csr_array(np.array(rows)),
        y,
        Hinge(),
        constrained(1, 2, groups=(1, 0), keep=(1,)),
        lam,
        None,
        False,
        scale=scale,
    )
    better = certify(problem, [-0.6534656764528717, -0.0007288362326839854]).better
    assert better is not None
    losses = [
        max(0.0, float(1 - Fraction(t) * sum(map(mul, map(Fraction, x), map(Fraction, better.coef)))))
        for x, t in zip(rows, y, strict=True)
    ]
    ridge = 0.5 * lam * float(((better.coef * scale) ** 2).sum())
    assert better.objective == pytest.approx(sum(losses) / 3 + ridge, rel=1e-9)

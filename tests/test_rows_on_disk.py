"""Data sets on disk: what convert writes, what open_dataset reads, and fits on it."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

import diht
from cases import LOSSES, streamed
from command import refused, run
from diht import Problem, solve
from diht.constraints.groups import constrained
from diht.datasets import convert, open_dataset, read_table
from diht.datasets.buffers import Buffers
from diht.datasets.folder import _parsed
from diht.losses import Loss
from diht.numerics.memory import NotEnoughMemoryError
from diht.numerics.traffic import watched
from diht.result import Iterate, Status
from fuzz_judge import assert_true_bounds, loss_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 6))
Y = X[:, 1] - 0.5 * X[:, 4] + 0.1 * RNG.normal(size=90)
NAMES = [f"c{j}" for j in range(6)]


def write_csv(path: Path, X, y, names=NAMES) -> Path:
    lines = [",".join([*names, "t"])]
    lines += [",".join([*map(repr, row), str(label)]) for row, label in zip(X.tolist(), y.tolist(), strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_figures(columns: np.ndarray, X: np.ndarray) -> None:
    """Count, mean, norm, spread, least and largest entry of every column."""
    means = X.mean(axis=0)
    expected = [np.count_nonzero(X, axis=0), means, np.linalg.norm(X, axis=0), ((X - means) ** 2).sum(axis=0)]
    np.testing.assert_allclose(columns, [*expected, X.min(axis=0), X.max(axis=0)], atol=1e-15)


# What is written, and read again


@pytest.mark.parametrize("block_rows", [11, 90, 1000, None])
def test_shards_of_csv_become_blocks_of_the_same_rows(tmp_path: Path, block_rows: int | None) -> None:
    labels = np.where(Y > 0.0, "yes", np.where(Y > -1.0, "no", "hardly"))
    shards = [
        write_csv(tmp_path / f"{i}.csv", X[rows], labels[rows]) for i, rows in enumerate(np.split(range(90), [50]))
    ]
    data = convert(shards, tmp_path / "out", block_rows=block_rows)
    np.testing.assert_array_equal(data.X.toarray(), X)
    np.testing.assert_array_equal(data.y, labels)
    assert (data.feature_names, data.target, data.classes) == (NAMES, "t", ["hardly", "no", "yes"])
    assert data.weights is None
    assert len(data.X.parts()) == -(-90 // (block_rows or 90))
    assert_figures(data.columns, X)
    assert "90 samples, 6 features" in repr(data)


@pytest.mark.parametrize("zero_based", [True, False])
def test_shards_of_svmlight_become_sparse_blocks(tmp_path: Path, zero_based: bool) -> None:
    S = sp.random_array((60, 20), density=0.2, rng=np.random.default_rng(1), format="csr")
    S.data[0] = -1.0
    y = np.where(np.arange(60) % 3 == 0, 1.0, -1.0)
    plain, packed = tmp_path / "a.svm", tmp_path / "b.svm.gz"
    dump_svmlight_file(S[:25], y[:25], str(plain), zero_based=zero_based)
    dump_svmlight_file(S[25:], y[25:], str(tmp_path / "b.svm"), zero_based=zero_based)
    packed.write_bytes(gzip.compress((tmp_path / "b.svm").read_bytes()))
    data = convert([plain, packed], tmp_path / "out", block_rows=8)
    assert data.zero_based is zero_based
    assert data.is_sparse
    np.testing.assert_allclose(data.X.toarray(), S.toarray(), rtol=1e-12)
    np.testing.assert_array_equal(data.y, y)
    assert [part.is_nonnegative() for part in data.X.parts()] == [
        (S[i : i + 8].data >= 0).all() for i in range(0, 60, 8)
    ]
    assert_figures(data.columns, S.toarray())


def test_parquet_with_weights_and_several_targets(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(X.astype(np.float32), columns=NAMES)
    frame["w"], frame["t"], frame["u"] = np.arange(90, dtype=np.float32), Y.astype(np.float32), 1.0
    frame.astype(np.float32).to_parquet(tmp_path / "a.parquet", row_group_size=32)
    data = convert(tmp_path / "a.parquet", tmp_path / "out", ["t", "u"], "w", block_rows=40)
    assert (data.feature_names, data.target_names, data.target) == (NAMES, ["t", "u"], None)
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(data.X.toarray(), X.astype(np.float32))
    np.testing.assert_array_equal(data.y, np.column_stack([Y.astype(np.float32), np.ones(90)]))
    np.testing.assert_array_equal(data.weights, np.arange(90.0))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_npz_with_weights_as_float32(tmp_path: Path, form) -> None:
    matrix = form(np.where(np.abs(X) > 1.0, X, 0.0))
    arrays = {"X": matrix} if form is np.asarray else {
        "data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": np.array(matrix.shape)
    }  # fmt: skip
    np.savez(tmp_path / "a.npz", y=Y, w=np.arange(90), **arrays)
    data = convert([tmp_path / "a.npz"] * 2, tmp_path / "out", weights="w", dtype="float32", block_rows=50)
    expected = np.vstack([(matrix if form is np.asarray else matrix.toarray()).astype(np.float32)] * 2)
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(data.X.toarray(), expected)
    np.testing.assert_array_equal(data.weights, np.tile(np.arange(90.0), 2))
    np.testing.assert_array_equal(data.y, np.tile(Y, 2))


def test_a_changed_byte_is_named_when_its_block_is_first_read(tmp_path: Path) -> None:
    convert(write_csv(tmp_path / "a.csv", X, Y), tmp_path / "out", block_rows=40)
    path = tmp_path / "out" / "X-000001.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    data = open_dataset(tmp_path / "out")  # reads nothing of X
    message = r"X-000001\.npy: changed since it was written: the checksum is another"
    for read in (lambda: diht.SparseRegressor(k=2).fit(data.X, data.y), lambda: open_dataset(data.path, verify=True)):
        with pytest.raises(ValueError, match=message) as refused:
            read()
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.unlink, r"X-000002\.npy: no such file"),
        (
            lambda path: os.truncate(path, 200),
            r"X-000002\.npy: truncated or changed: 200 bytes, where 608 were written",
        ),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), r"X-000002\.npy: truncated or changed: 609 bytes"),
        (lambda path: path.write_bytes(bytes(608)), r"X-000002\.npy: changed since it was written"),
    ],
)
@pytest.mark.parametrize("direct", [False, True])
def test_what_happens_to_a_file_during_a_fit_is_named(tmp_path: Path, damage, message: str, direct: bool) -> None:
    convert(write_csv(tmp_path / "a.csv", X, Y), tmp_path / "out", block_rows=40)
    data = open_dataset(tmp_path / "out", memory=0 if direct else None)
    y = data.y
    damage(tmp_path / "out" / "X-000002.npy")
    with pytest.raises((ValueError, OSError), match=message) as refused:
        diht.SparseRegressor(k=2).fit(data.X, y)
    assert "\n" not in str(refused.value)


# Memory


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("memory", [0, 3000, None])
def test_what_is_kept_stays_within_the_budget(sparse: bool, memory: float | None) -> None:
    rng = np.random.default_rng(5)
    A = rng.normal(size=(90, 6)) * (rng.random((90, 6)) < 0.4 if sparse else 1.0)
    rows = streamed([sp.csr_array(part) if sparse else part for part in np.split(A, 5)], memory)
    w, c = rng.normal(size=6), rng.normal(size=90)
    for _ in range(2):
        np.testing.assert_allclose(rows.matvec(w), A @ w)
        np.testing.assert_allclose(rows.rmatvec(c), A.T @ c)
        np.testing.assert_array_equal(rows.columns(np.array([4, 1])).toarray(), A[:, [4, 1]])
        store = rows._store
        held = sum(block.nbytes for block in store.pinned.values())
        assert held + (0 if store.kept is None else 2 * store.kept.nbytes) <= rows.memory
    assert rows.traffic.blocks == (5 if memory is None else rows.traffic.blocks)
    assert rows.passes > 4.0


def test_columns_in_memory_are_not_read_again() -> None:
    rows = streamed([sp.csr_array(part) for part in np.split(X, 5)], memory=10_000)
    rows._store.pinned.clear()
    rows.columns(np.array([1, 4]))
    rows._store.pinned.clear()
    rows._store.budget = 2 * rows._store.kept.nbytes  # no room for blocks
    before = rows.traffic.blocks
    w = np.array([0.0, 2.0, 0.0, 0.0, -1.0, 0.0])
    np.testing.assert_allclose(rows.matvec(w), X @ w)
    np.testing.assert_array_equal(rows.columns(np.array([4])).toarray(), X[:, [4]])
    assert rows.traffic.blocks == before
    rows._store.budget = 10_000
    np.testing.assert_array_equal(rows.columns(np.array([4, 0, 1])).toarray(), X[:, [4, 0, 1]])
    assert before < rows.traffic.blocks <= before + 5
    np.testing.assert_allclose(rows.matvec(w + np.eye(6)[0]), X @ (w + np.eye(6)[0]))


def test_blocks_are_read_ahead_in_other_threads() -> None:
    rows = streamed(list(np.split(X, 6)), memory=0)
    for i, _ in enumerate(rows._each()):
        assert not any(block.threads for block in rows._store.blocks[i + 3 :])
    assert [block.threads for block in rows._store.blocks] == 6 * [["diht_read_ahead"]]
    assert rows.traffic.blocks == 6


def test_errors_of_the_second_thread_reach_the_first(monkeypatch) -> None:
    rows = streamed(list(np.split(X, 5)), memory=0)
    monkeypatch.setattr(rows._store.blocks[3], "load", lambda n_threads: (_ for _ in ()).throw(ValueError("block 3")))
    with pytest.raises(ValueError, match="block 3"):
        rows.rmatvec(np.ones(90))


def test_buffers_are_used_again_once_no_array_refers_to_them() -> None:
    buffers = Buffers()
    first = buffers.take(1000)
    first[:] = 7
    view, address = first[10:20], first.ctypes.data
    del first
    assert buffers.take(1000).ctypes.data != address
    assert view.tolist() == 10 * [7]
    del view
    assert address in [raw.ctypes.data for raw in [buffers.take(1000) for _ in range(3)]]


def test_weighted_moments_take_one_read() -> None:
    A = np.column_stack([X, np.full(90, 0.1), np.arange(90) > 20])
    s = np.arange(90.0) / np.arange(90.0).sum()
    for convert_part in (np.asarray, sp.csr_array):
        rows = streamed([convert_part(part) for part in np.split(A.astype(float), [20, 21, 60])], memory=0)
        mean, variance = rows.moments(s)
        np.testing.assert_allclose(mean, s @ A)
        np.testing.assert_allclose(variance, s @ (A - s @ A) ** 2, atol=1e-15)
        assert rows.passes == 1.0
        np.testing.assert_array_equal(rows.constants(np.arange(8)), [*6 * [np.nan], 0.1, np.nan])
        assert (mean[6], variance[6]) == (0.1, 0.0)
        np.testing.assert_allclose(rows.moments(np.full(90, 1 / 90))[1], A.var(axis=0), atol=1e-15)
        assert rows.passes == 1.0


def test_a_data_set_can_be_pickled(tmp_path: Path) -> None:
    data = convert(write_csv(tmp_path / "a.csv", X, Y), tmp_path / "out", block_rows=40)
    data.X.columns(np.arange(3))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(data.X)).toarray(), X)


# A folder of Parquet files


def write_parquet(folder: Path, **changes) -> Path:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    folder.mkdir()
    for i, rows in enumerate(np.split(np.arange(90), [50])):
        frame = pandas.DataFrame(X[rows], columns=NAMES).assign(w=1.0 + rows, t=np.where(Y[rows] > 0, "yes", "no"))
        for name, value in changes.items() if i else ():
            frame[name] = value
        frame.to_parquet(folder / f"part-{i}.parquet", row_group_size=20)
    return folder


def test_a_folder_of_parquet_files_is_read_as_it_is(tmp_path: Path, capsys) -> None:
    folder = write_parquet(tmp_path / "rows")
    data = open_dataset(folder, "t", "w", memory=0)
    assert (data.X.n_blocks, data.feature_names, data.target, data.classes) == (5, NAMES, "t", ["no", "yes"])
    np.testing.assert_array_equal(data.X.toarray(), X)
    np.testing.assert_array_equal(data.weights, np.arange(1, 91))
    assert_figures(data.columns, X)
    model = diht.SparseClassifier(k=2, lam=0.1).fit(data.X, data.y, data.weights)
    memory = diht.SparseClassifier(k=2, lam=0.1).fit(X, np.where(Y > 0, "yes", "no"), np.arange(1, 91))
    assert model.objective_ == pytest.approx(memory.objective_, rel=1e-12)
    assert run("fit", folder, "--target", "t", "--k", 2, "--lam", 0.1, "--out", tmp_path / "report", "--quiet") == 0
    assert "90 samples, 7 features" in capsys.readouterr().out
    assert run("predict", tmp_path / "report" / "model.json", folder) == 0
    assert len(capsys.readouterr().out.split()) == 91


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"c3": np.where(np.arange(40) == 23, np.inf, 1.0)},
            "part-1.parquet: row 23, column 'c3': not a finite number: inf",
        ),
        ({"extra": 1.0}, "part-1.parquet: no column|part-1.parquet: 8 feature names, where 7 are expected"),
        ({"t": 1.0}, "part-1.parquet: targets are numbers or class names, not both: these are numbers"),
    ],
)
def test_parquet_files_that_do_not_fit_are_named(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        open_dataset(write_parquet(tmp_path / "rows", **changes), "t")
    assert "\n" not in str(refused.value)


def test_a_parquet_file_that_changes_is_named(tmp_path: Path) -> None:
    data = open_dataset(write_parquet(tmp_path / "rows"), "t", "w", memory=0)
    shutil.copy(tmp_path / "rows" / "part-1.parquet", tmp_path / "rows" / "part-0.parquet")
    with pytest.raises(ValueError, match=r"part-0\.parquet: (changed since it was opened|not a Parquet file)"):
        data.X.toarray()


def damaged_manifest(folder: Path, **changes) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda out: (out / "X-000001.npy").unlink(), r"X-000001\.npy: no such file"),
        (lambda out: os.truncate(out / "y-000000.npy", 200), r"y-000000\.npy: truncated or changed: 200 bytes"),
        (lambda out: (out / "manifest.json").unlink(), r"manifest\.json: no such file"),
        (lambda out: (out / "manifest.json").write_text("{"), r"manifest\.json: not a manifest, or a damaged one"),
        (lambda out: (out / "manifest.json").write_text("[]"), r"manifest\.json: not the manifest of a data set"),
        (lambda out: damaged_manifest(out, version=99), r"manifest\.json: version 99 of the format"),
        (lambda out: damaged_manifest(out, blocks=[]), r"manifest\.json: a damaged manifest: the blocks do not have"),
        (lambda out: damaged_manifest(out, n_features=7), r"columns\.npy: figures of shape \(6, 6\)"),
        (lambda out: damaged_manifest(out, dtype="float32"), r"X-000000\.npy: float64 of shape \(40, 6\)"),
        (lambda out: damaged_manifest(out, files=None), r"manifest\.json: a damaged manifest: 'files'"),
    ],
)
def test_a_bad_folder_gets_one_line_that_names_the_file(tmp_path: Path, damage, message: str) -> None:
    out = tmp_path / "out"
    convert(write_csv(tmp_path / "a.csv", X, Y), out, block_rows=40)
    damage(out)
    with pytest.raises((ValueError, OSError), match=message) as refused:
        open_dataset(out).X.toarray()
    assert "\n" not in str(refused.value)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder"):
        open_dataset(tmp_path / "nothing")
    with pytest.raises(NotADirectoryError, match="is a file"):
        open_dataset(write_csv(tmp_path / "a.csv", X, Y))


# What convert refuses


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("c0,c1,t\n1,2\n", "line 2: 2 cells, where the first has 3"),
        ("c0,c1,t\n1,2,3\n1,x,3\n", "line 3, column 'c1': not a finite number: 'x'"),
        ("c0,c1,t\n1,,3\n", "line 2, column 'c1': missing value"),
        ("c0,c1,t\n", "no data below the header"),
        ("c0,c2,t\n1,2,3\n", "feature 1 is 'c2', where the files before have 'c1'"),
        ("c0,c1,c2,t\n1,2,3,4\n", "3 feature names, where 2 are expected"),
        ("c0,c1,u\n1,2,3\n", "target 0 is 'u', where the files before have 't'"),
        ("c0,c1,t\n1,2,yes\n", "targets are numbers or class names, not both"),
        ("c0,c1,t\n1,1e200,3\n", "X must not hold numbers beyond"),
    ],
)
def test_shards_that_do_not_fit_are_refused_in_one_line(tmp_path: Path, second: str, message: str) -> None:
    (tmp_path / "a.csv").write_text("c0,c1,t\n1,2,3\n4,5,6\n")
    (tmp_path / "b.csv").write_text(second)
    with pytest.raises(ValueError, match=message) as refused:
        convert([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "out")
    assert str(refused.value).startswith(str(tmp_path / "b.csv"))
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target": "nothing"}, "no column 'nothing'"),
        ({"weights": "nothing"}, "no column 'nothing'"),
        ({"weights": "c1"}, "a negative weight"),
        ({"block_rows": 0}, "block_rows must be at least 1, got 0"),
        ({"dtype": "int32"}, "dtype must be float32 or float64"),
        ({"max_features": 3}, "6 features, where at most 3 are allowed"),
    ],
)
def test_bad_arguments_are_refused(tmp_path: Path, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        convert(write_csv(tmp_path / "a.csv", X, Y), tmp_path / "out", **settings)


def test_sparse_and_dense_files_do_not_mix(tmp_path: Path) -> None:
    (tmp_path / "b.svm").write_text("1 1:2\n")
    with pytest.raises(ValueError, match=r"b\.svm: the samples are sparse, those before dense"):
        convert([write_csv(tmp_path / "a.csv", X, Y), tmp_path / "b.svm"], tmp_path / "out")
    with pytest.raises(ValueError, match=r"b\.svm: an svmlight file has no columns to choose weights"):
        convert(tmp_path / "b.svm", tmp_path / "out2", weights="w")
    with pytest.raises(ValueError, match="sources must name at least one file"):
        convert([], tmp_path / "out2")


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "a.csv", X, Y)
    full = tmp_path / "full"
    full.mkdir()
    (full / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match="full: is not empty, and holds no data set"):
        convert(source, full)
    convert(source, tmp_path / "out", block_rows=20)
    before = contents(tmp_path / "out")
    convert(source, tmp_path / "out", block_rows=20)
    assert contents(tmp_path / "out") == before
    with pytest.raises(ValueError, match="out: holds a data set of other files or arguments"):
        convert(source, tmp_path / "out", block_rows=21)
    assert contents(tmp_path / "out") == before
    with pytest.raises(ValueError, match="is a file, not a folder"):
        convert(source, source)


# Killed, and called again

KILLED = """
import os, signal, sys
from diht.datasets import convert

out, *sources = sys.argv[1:]
n = 0
replace = os.replace

def counted(*names):
    global n
    n -= 1
    if n < 0 and late:
        replace(*names)
    if n < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(*names)

os.replace = counted
deaths = 0
for late in (False, True):
    for moment in range(40):
        folder = f"{out}-{moment}-{late}"
        pid = os.fork()
        if not pid:
            n = moment
            convert(sources, folder, block_rows=50)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        deaths += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status):
            break
        n = 10**9
        convert(sources, folder, block_rows=50)
print(deaths)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes that kill themselves need fork")
def test_killed_at_every_write_and_called_again_it_gives_the_same_folder(tmp_path: Path) -> None:
    labels = np.array(["a", "b", "c"])[np.arange(90) // 40]
    sources = [write_csv(tmp_path / f"{i}.csv", X[i::2], labels[i::2]) for i in range(2)]
    convert(sources, tmp_path / "whole", block_rows=50)
    command = [sys.executable, "-c", KILLED, str(tmp_path / "out"), *map(str, sources)]
    environment = os.environ | {"PYTHONPATH": str(Path(diht.__file__).parent.parent)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    writes = 1 + 2 * 4 + 2  # a beginning; X, y, sums and progress of each block; columns and manifest
    assert int(ended.stdout) == 2 * writes
    folders = list(tmp_path.glob("out-*"))
    assert len(folders) > 20
    for folder in folders:
        assert contents(folder) == contents(tmp_path / "whole")


def test_a_conversion_that_was_interrupted_in_sparse_files_goes_on(tmp_path: Path, monkeypatch) -> None:
    S = sp.random_array((60, 20), density=0.2, rng=np.random.default_rng(1), format="csr")
    for i, rows in enumerate(np.split(np.arange(60), [7, 31])):
        dump_svmlight_file(S[rows], np.ones(len(rows)), str(tmp_path / f"{i}.svm"), zero_based=False)
    sources = [tmp_path / f"{i}.svm" for i in range(3)]
    convert(sources, tmp_path / "whole", block_rows=11)
    from diht.datasets import converting

    write, written = converting.write_array, []

    def full(folder, name, array):
        written.append(name)
        if len(written) == 13:
            raise OSError(f"{folder}/{name}: cannot be written: No space left on device")
        return write(folder, name, array)

    monkeypatch.setattr(converting, "write_array", full)
    with pytest.raises(OSError, match="No space left"):
        convert(sources, tmp_path / "out", block_rows=11)
    with pytest.raises(FileNotFoundError, match=r"is .* a data set that convert has finished"):
        open_dataset(tmp_path / "out")
    done = len(written)
    convert(sources, tmp_path / "out", block_rows=11)
    assert "data-000001.npy" not in written[done:]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_unfinished_with_other_arguments_is_refused(tmp_path: Path, monkeypatch) -> None:
    from diht.datasets import converting

    source = write_csv(tmp_path / "a.csv", X, Y)
    with monkeypatch.context() as patched:
        patched.setattr(converting, "_finish", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            convert(source, tmp_path / "out")
    with pytest.raises(ValueError, match="out: holds a data set of other files or arguments"):
        convert(source, tmp_path / "out", dtype="float32")
    np.testing.assert_array_equal(convert(source, tmp_path / "out").y, read_table(source).y)


# Fits


@pytest.mark.parametrize("loss", ["squared", "huber", "logistic", "squared_hinge"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_fit_of_rows_on_disk_is_that_of_the_same_rows_in_memory(tmp_path: Path, loss: str, sparse: bool) -> None:
    classes = loss in ("logistic", "squared_hinge")
    y = np.where(Y > 0.0, "yes", "no") if classes else Y
    matrix = np.where(np.abs(X) > 0.5, X, 0.0) if sparse else X
    arrays = {"X": matrix}
    if sparse:
        S = sp.csr_array(matrix)
        arrays = {"data": S.data, "indices": S.indices, "indptr": S.indptr, "shape": np.array(S.shape)}
    np.savez(tmp_path / "a.npz", y=y, w=np.arange(1, 91), feature_names=NAMES, **arrays)
    data = convert(tmp_path / "a.npz", tmp_path / "out", weights="w", block_rows=23)
    kind = diht.SparseClassifier if classes else diht.SparseRegressor
    disk = kind(k=2, lam=0.1, loss=loss).fit(data.X, data.y, data.weights)
    memory = kind(k=2, lam=0.1, loss=loss).fit(sp.csr_array(matrix) if sparse else matrix, y, np.arange(1, 91))
    np.testing.assert_array_equal(disk.support_, memory.support_)
    assert disk.objective_ == pytest.approx(memory.objective_, rel=1e-8)
    assert disk.lower_bound_ == pytest.approx(memory.lower_bound_, abs=1e-8 * memory.objective_)
    np.testing.assert_array_equal(disk.feature_names_in_, NAMES)
    assert disk.n_features_in_ == 6
    if classes:
        np.testing.assert_array_equal(disk.predict(data.X), memory.predict(matrix))
    else:
        np.testing.assert_allclose(disk.predict(data.X), memory.predict(matrix), rtol=1e-5, atol=1e-6)


CONSTRAINTS = [{}, {"keep": [2]}, {"groups": [0, 0, 1, 1, 2, 2]}, {"sign": [1, 1, 0, 0, -1, 1]}]


@pytest.mark.parametrize(("number", "loss"), [*enumerate(LOSSES)], ids=[loss.name for loss in LOSSES])
@pytest.mark.parametrize("n_blocks", [1, 17])
def test_objective_and_bound_are_those_of_memory(number: int, loss: Loss, n_blocks: int) -> None:
    """All losses, constraints, intercept and weights; benchmarks/equal.py has 200 problems and the other methods."""
    y = {"classification": np.where(Y > 0.0, 1.0, -1.0)}.get(
        loss.task, np.round(np.abs(Y)) if loss.name == "poisson" else Y
    )
    A = sp.csr_array(np.where(np.abs(X) > 0.5, X, 0.0)) if number % 2 else X
    constraint, weights = constrained(2, 6, **CONSTRAINTS[number % 4]), np.arange(1.0, 91.0) if number % 3 else None
    parts = [A[rows] for rows in np.array_split(np.arange(90), n_blocks)]
    here, there = (
        solve(Problem(rows, y, loss, constraint, 0.1, weights, fit_intercept=number % 4 != 1), tol=1e-6)
        for rows in (A, streamed(parts))
    )
    for figure in ("objective", "lower_bound"):
        assert getattr(there, figure) == pytest.approx(getattr(here, figure), abs=1e-8 * abs(here.objective))


@pytest.mark.parametrize("seeds", [range(6), pytest.param([*range(6, 12), *range(20, 40)], marks=pytest.mark.slow)])
def test_bounds_are_true_against_brute_force(seeds) -> None:
    """Problems of the fuzzer, in up to three blocks of which none is kept in memory."""

    def stated(case, constraint):
        X = sp.csr_array(case.stored) if sp.issparse(case.stored) else case.stored
        rows = streamed([X[part] for part in np.array_split(np.arange(len(case.X)), min(3, len(case.X)))], memory=0)
        y, b, scale = case.y.ravel().astype(float), case.fit_intercept, case.scale
        return Problem(rows, y, loss_of(case), constraint, case.lam, case.weights, b, scale=scale)

    assert_true_bounds(seeds, stated)


def test_paths_criteria_and_certify_take_rows_on_disk(tmp_path: Path) -> None:
    data = convert(write_csv(tmp_path / "a.csv", X, Y), tmp_path / "out", block_rows=23)
    here, there = (diht.sparse_path(each, Y, ks=[1, 2], lams=0.1) for each in (X, data.X))
    assert there.feature_names == tuple(NAMES)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(other.coef, one.coef, rtol=1e-5, atol=1e-7)
    chosen = diht.SparseRegressorCV(ks=[1, 2, 3], lams=0.1, criterion="bic").fit(data.X, data.y)
    assert chosen.best_k_ == diht.SparseRegressorCV(ks=[1, 2, 3], lams=0.1, criterion="bic").fit(X, Y).best_k_
    certificate = diht.certify(diht.Problem(data.X, data.y, "squared", 2, 0.1), support=[1, 4])
    assert certificate.objective == pytest.approx(
        diht.certify(diht.Problem(X, Y, "squared", 2, 0.1), support=[1, 4]).objective
    )
    model = diht.SparseRegressor(k=2).fit(data.X, data.y)
    with pytest.raises(ValueError, match="X must be in memory here"):
        diht.bootstrap(model, data.X, data.y)


@pytest.mark.parametrize(("loss", "weighted"), [("squared", False), ("huber", True), ("logistic", False)])
def test_folds_of_rows_on_disk_have_the_scores_of_memory(tmp_path: Path, loss: str, weighted: bool) -> None:
    y, kind = (Y, diht.SparseRegressorCV) if loss != "logistic" else (np.where(Y > 0, 1, 0), diht.SparseClassifierCV)
    data = convert(write_csv(tmp_path / "a.csv", X, Y), tmp_path / "out", block_rows=23)
    s = np.arange(1.0, 91.0) if weighted else None
    here, there = (kind(ks=[1, 2], lams=[0.01, 0.1], loss=loss, cv=3).fit(each, y, s) for each in (X, data.X))
    np.testing.assert_allclose(
        there.cv_results_["mean_test_score"], here.cv_results_["mean_test_score"], rtol=1e-6, atol=1e-8
    )
    assert (there.best_k_, there.best_lam_) == (here.best_k_, here.best_lam_)
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-8)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_matrix_that_does_not_fit_into_memory_is_read_a_few_times(sparse: bool) -> None:
    """The features in play are near, so that swaps need no reads; what is proved stays true."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(400, 60)) * (rng.random((400, 60)) < 0.3 if sparse else 1.0)
    y = np.where(A[:, :4] @ [3.0, -2.0, 2.0, 1.5] + rng.normal(size=400) > 0.0, 1.0, -1.0)
    far = streamed([sp.csr_array(part) if sparse else part for part in np.split(A, 8)], 0.6 * A.nbytes)
    far._store.pinned = _Nothing()
    here, there = (solve(Problem(X, y, "logistic", 4, 0.2, fit_intercept=True)) for X in (A, far))
    assert far.is_far or sparse
    np.testing.assert_array_equal(there.support, here.support)
    assert there.objective == pytest.approx(here.objective, rel=1e-8)
    assert there.lower_bound <= here.objective
    assert there.relative_gap <= 1e-4 >= here.relative_gap
    assert far.traffic.blocks <= 15 * 8


@pytest.mark.parametrize("intercept", [False, True])
def test_a_tall_matrix_is_never_copied(monkeypatch, intercept: bool) -> None:
    """Newton's method on all features, with Hessians summed over the blocks."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(40_000, 60)) + 1.0
    u = A[:, :4] @ [3.0, -2.0, 2.0, 1.5] + rng.normal(size=40_000)
    y = np.where(u > np.median(u), 1.0, -1.0)
    far = streamed(list(np.split(A, 8)), 0.5 * A.nbytes)

    def refuse(needed: float, what: str) -> None:
        if needed > 1.1 * A.nbytes:
            raise NotEnoughMemoryError(what)

    monkeypatch.setattr("diht.design.streamed.require_memory", refuse)
    here, there = (solve(Problem(X, y, "logistic", 4, 0.5, fit_intercept=intercept)) for X in (A, far))
    np.testing.assert_array_equal(there.support, here.support)
    assert there.objective == pytest.approx(here.objective, rel=1e-8)
    assert there.lower_bound <= here.objective
    assert there.relative_gap <= max(1e-4, 1.5 * here.relative_gap)


class _Nothing(dict):
    """Blocks that are never kept."""

    def __setitem__(self, number: int, block: object) -> None:
        """Forget it."""


def test_progress_tells_of_blocks_and_bandwidth(tmp_path: Path, capsys) -> None:
    data = convert(write_csv(tmp_path / "a.csv", X, Y > 0), tmp_path / "out", block_rows=40)
    seen: list[int] = []
    with watched(lambda traffic: seen.append(traffic.blocks)):
        diht.SparseClassifier(2, 0.1, fit_intercept=False, standardize=False, verbose=True).fit(data.X, data.y)
    assert seen == [1, 2, 3]
    assert "3 blocks read, X 1.0 times, at " in capsys.readouterr().out
    iterates: list[Iterate] = []
    for rows in (data.X, X):
        problem = Problem(rows, np.where(Y > 0, 1.0, -1.0), "logistic", 2, 0.1)
        solve(problem, callback=lambda iterate: iterates.append(iterate) or False)
        assert rows is X or all(each.traffic.blocks == 3 and each.traffic.bandwidth > 0.0 for each in iterates)
    assert iterates[-1].traffic is None


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("often", [False, True], ids=["once", "often"])
def test_after_an_interrupt_while_a_block_is_read_the_rows_can_be_used(monkeypatch, often: bool) -> None:
    """The first Ctrl-C keeps the best so far, the second interrupts."""
    rows = streamed(list(np.split(X, 5)), memory=0)
    loads: list[int] = []

    def load(n_threads: int, load=rows._store.blocks[3].load):
        loads.append(n_threads)
        if len(loads) == 2 or (often and len(loads) > 2):
            signal.raise_signal(signal.SIGINT)
        return load(n_threads)

    problem = Problem(rows, np.where(Y > 0, 1.0, -1.0), "logistic", 2, 0.1)
    with monkeypatch.context() as patched:
        patched.setattr(rows._store.blocks[3], "load", load)
        if often:
            with pytest.raises(KeyboardInterrupt):
                solve(problem)
        else:
            with pytest.warns(UserWarning, match="stopped by Ctrl-C: the result is the best model found so far"):
                result = solve(problem)
            assert result.status is Status.STOPPED
            assert len(result.support) <= 2
            assert result.lower_bound <= result.objective
    assert solve(problem).relative_gap <= 1e-4


def test_y_and_columns_are_checked_as_for_a_matrix(tmp_path: Path) -> None:
    data = convert(write_csv(tmp_path / "a.csv", X, Y), tmp_path / "out", block_rows=23)
    for bad, message in [(Y[:-1], "inconsistent numbers of samples"), (np.full(90, np.nan), "NaN")]:
        with pytest.raises(ValueError, match=message):
            diht.SparseRegressor(k=2).fit(data.X, bad)
    with pytest.raises(ValueError, match="X has 6 features, but SparseRegressor is expecting 5"):
        diht.SparseRegressor(k=2).fit(X[:, :5], Y).predict(data.X)
    other = convert(write_csv(tmp_path / "b.csv", X, Y, list("abcdef")), tmp_path / "other")
    with pytest.raises(ValueError, match="feature names"):
        diht.SparseRegressor(k=2).fit(other.X, Y).predict(data.X)


def test_commands_take_a_folder(tmp_path: Path, capsys) -> None:
    source, out, report = write_csv(tmp_path / "a.csv", X, Y), tmp_path / "rows", tmp_path / "report"
    assert run("convert", source, "--out", out, "--target", "t", "--block-rows", 40) == 0
    assert "90 samples, 6 features, 3 blocks" in capsys.readouterr().out
    assert run("fit", out, "--k", 2, "--lam", 0.1, "--out", report, "--quiet") == 0
    assert '90 samples, 6 features, target "t"' in capsys.readouterr().out
    predictions = []
    for data in (out, source):
        assert run("predict", report / "model.json", data) == 0
        predictions.append(np.array(capsys.readouterr().out.split()[1:], dtype=float))
    np.testing.assert_allclose(*predictions, rtol=1e-12)
    assert run("certify", report / "model.json", out, "--quiet") == 0
    assert "rows: 90 samples" in capsys.readouterr().out
    assert "rows: the targets are ['t'], got ['c0']" in refused(capsys, "fit", out, "--target", "c0")
    (out / "X-000001.npy").unlink()
    assert "X-000001.npy: no such file" in refused(capsys, "fit", out)


@pytest.mark.parametrize("array", [np.ones((3, 4)), np.ones((0, 4), "f4"), np.arange(5, dtype="i4"), np.ones((7, 1))])
def test_headers_are_read_without_pythons_parser(array, monkeypatch):
    """It may fail where two threads use it at a time (Python 3.11)."""
    file = io.BytesIO()
    np.save(file, array)
    monkeypatch.setattr("ast.literal_eval", None)
    found = _parsed("file.npy", np.frombuffer(file.getvalue(), dtype=np.uint8))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("array", [np.asfortranarray(np.ones((3, 4))), np.array(["a"]), np.ones(3, complex)])
def test_other_arrays_are_refused(array):
    file = io.BytesIO()
    np.save(file, array)
    with pytest.raises(ValueError, match=r"^file\.npy: not an array, or a damaged one \(not an array of numbers"):
        _parsed("file.npy", np.frombuffer(file.getvalue(), dtype=np.uint8))

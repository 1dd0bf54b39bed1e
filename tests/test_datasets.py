"""The readers: exact on good files, one clear line on bad ones, never a crash."""

import bz2
import gzip
import io
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from diht.datasets import Table, atomic_write, load_breast_cancer, read_table
from diht.tables.frame import as_numbers

DATA = Path(os.environ.get("DIHT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}

finite = st.floats(-1e300, 1e300)
matrices = st.tuples(st.integers(1, 6), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=finite)
)
quick = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def existing(*names):
    """Those of the real files that are here."""
    return [pytest.param(DATA / name, id=Path(name).name) for name in names if (DATA / name).exists()]


def same_sparse(X, Z):
    return (
        X.shape == Z.shape
        and np.array_equal(X.indptr, Z.indptr)
        and np.array_equal(X.indices, Z.indices)
        and np.array_equal(X.data, Z.data)
    )


def message(path, **options):
    """The error of reading a file: one line that begins with its name."""
    with pytest.raises(ValueError) as info:
        read_table(path, **options)
    text = str(info.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


# ---------------------------------------------------------------------------------------------------------------------
# svmlight


def plain_svmlight(text):
    """What an svmlight text means, as shortly as Python can say it: targets, and a dictionary for each row."""
    lines = [line.partition("#")[0].split() for line in text.splitlines()]
    rows = [line for line in lines if line]
    pairs = [[token.split(":") for token in row[1:] if not token.startswith("qid:")] for row in rows]
    return [float(row[0]) for row in rows], [{int(i): float(v) for i, v in row} for row in pairs]


@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize(
    "name", ["a.svm", "a.svmlight", "a.LIBSVM", "a.txt", "a", "a.trn", "a.tst", "a.binary", "a.t", "a.b.train"]
)
def test_svmlight_names(tmp_path, name, compression):
    table = read_table(write(tmp_path, name + compression, COMPRESS[compression](b"+1 1:0.5 3:-2\n-1 2:1e-3\n")))
    assert np.array_equal(table.X.toarray(), [[0.5, 0, -2], [0, 1e-3, 0]])
    assert table.y.tolist() == [1.0, -1.0]
    assert table.is_sparse
    assert (table.feature_names, table.target_names, table.zero_based) == (None, None, False)
    assert table.X.indices.dtype == table.X.indptr.dtype == np.int32


def test_svmlight_dialect(tmp_path):
    text = "\ufeff# a comment: 1:2\n\n1.5 qid:7 3:1 1:2 # 9:9\r\n \t -2e0\t2:.5  4:5.#x\n3\n  # 1:1\n0 2:-0"
    path = write(tmp_path, "a.svm", text)
    table = read_table(path)
    targets, rows = plain_svmlight(text.removeprefix("\ufeff"))
    assert table.y.tolist() == targets
    dense = np.zeros((4, 4))
    for i, row in enumerate(rows):
        for j, v in row.items():
            dense[i, j - 1] = v
    assert np.array_equal(table.X.toarray(), dense)
    assert table.X.nnz == 5  # an explicit zero stays
    assert table.X.has_sorted_indices


def test_svmlight_first_index(tmp_path):
    one, zero = write(tmp_path, "one", "1 1:5 2:6\n"), write(tmp_path, "zero", "1 1:5 2:6\n1 0:1\n")
    assert read_table(one).X.shape == (1, 2)
    assert read_table(zero).X.shape == (2, 3)
    assert read_table(zero).zero_based
    assert read_table(one, zero_based=True).X.toarray().tolist() == [[0, 5, 6]]
    assert message(zero, zero_based=False) == "line 2: index 0, where indices must start at 1"


def test_svmlight_width(tmp_path):
    path = write(tmp_path, "a", "1 3:1\n")
    assert read_table(path, n_features=3).X.shape == (1, 3)
    assert read_table(path, n_features=9).X.shape == (1, 9)
    assert message(path, n_features=2) == "the largest index 3 is beyond the 2 features expected"
    assert read_table(write(tmp_path, "b", "1\n-1\n"), n_features=4).X.shape == (2, 4)
    assert message(write(tmp_path, "c", "1\n-1\n")) == "no index:value pair in the whole file"


def test_svmlight_without_targets(tmp_path):
    path = write(tmp_path, "a", "1:2 2:3\n2:1\n")
    assert message(path) == "line 1: no target before '1:2'"
    table = read_table(path, needs_target=False)
    assert table.y is None
    assert table.X.toarray().tolist() == [[2, 3], [0, 1]]
    assert read_table(write(tmp_path, "b", "5 2:3\n"), needs_target=False).y.tolist() == [5]
    assert message(write(tmp_path, "c", "1:2\n3 2:1\n"), needs_target=False).startswith("line 2")
    assert message(write(tmp_path, "d", "3 2:1\n\n1:2\n"), needs_target=False).startswith("line 3")


def test_svmlight_large_indices(tmp_path):
    X = read_table(write(tmp_path, "a", f"1 1:1\n1 {2**31 + 5}:2 {2**40}:3\n"), max_features=2**40).X
    assert X.shape == (2, 2**40)
    assert X.indices.tolist() == [0, 2**31 + 4, 2**40 - 1]
    assert X.indices.dtype == np.int64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty: no line with data"),
        ("# only\n\n", "empty: no line with data"),
        ("1 1:2\nspam 1:2\n", "line 2: the target 'spam' is not a finite number"),
        ("1 1:2\nnan 1:2\n", "line 2: the target 'nan' is not a finite number"),
        ("1,2 1:2\n", "line 1: the target '1,2' is not a finite number"),
        ("1 1:2\n\n1 1:2 x\n", "line 3: 'x' is not an index:value pair"),
        ("1 1:2 3\n", "line 1: '3' is not an index:value pair"),
        ("1 :2\n", "line 1: ':2' is not an index:value pair"),
        ("1 1.5:2\n", "line 1: '1.5:2' is not an index:value pair"),
        ("1 -3:2\n", "line 1: '-3:2': the index is negative"),
        ("1 1:2\n1 123456789012345678901:2", "line 2: '123456789012345678901:2': the index is too large"),
        ("1 1:\n", "line 1: '1:': the value is not a finite number"),
        ("1 1:2:3\n", "line 1: '1:2:3': the value is not a finite number"),
        ("1 1:nan\n", "line 1: '1:nan': the value is not a finite number"),
        ("1 1:1e999\n", "line 1: '1:1e999': the value is not a finite number"),
        ("1 1:1e\n", "line 1: '1:1e': the value is not a finite number"),
        ("1 1:--1\n", "line 1: '1:--1': the value is not a finite number"),
        ("1 1:2\n1 7:1 3:2 7:3\n", "line 2: the index 7 appears twice"),
        ("1 1:2\n1 3:2 3:3\n", "line 2: the index 3 appears twice"),
        (b"1 1:2\n\xff\x00 1:1\n", r"line 2: the target '\xff\x00' is not a finite number"),
        ("1 1:" + "9" * 60 + "x\n", "line 1: '1:" + "9" * 38 + "'...: the value is not a finite number"),
    ],
)
def test_svmlight_errors(tmp_path, text, expected):
    assert message(write(tmp_path, "a.svm", text)) == expected


def test_svmlight_names_the_line_beyond_the_first_block(tmp_path):
    lines = [b"1 1:2 17:0.25 # padding of the line\n"] * 200_000
    lines[150_000] = b"1 5:1 x:2\n"
    assert message(write(tmp_path, "a.svm", b"".join(lines))) == "line 150001: 'x:2' is not an index:value pair"


def test_svmlight_line_longer_than_a_block(tmp_path):
    n = 400_000
    row = " ".join(f"{j}:{j / 8}" for j in range(1, n + 1))
    table = read_table(write(tmp_path, "a.svm", f"1 1:1\n-1 {row}\n1 2:3"))
    assert table.X.shape == (3, n)
    assert np.array_equal(table.X.data, [1.0, *(np.arange(1, n + 1) / 8), 3.0])


number_texts = st.one_of(
    finite.map(repr),
    finite.map("{:.16g}".format),
    finite.map("{:.18e}".format),
    st.floats(-1e25, 1e25).map("{:f}".format),
    st.from_regex(r"\A[+-]?([0-9]{1,22}(\.[0-9]{0,22})?|\.[0-9]{1,22})([eE][+-]?[0-9]{1,3})?\Z"),
    st.tuples(st.integers(0, 2**64), st.integers(-340, 310)).map("{0[0]}e{0[1]}".format),
    # halfway between two doubles, and next to it: the hard cases of rounding
    st.tuples(st.integers(2**52, 2**53), st.sampled_from([-1, 0, 1])).map(lambda h: str(2 * h[0] + 1 + h[1]) + "e0"),
)


@settings(quick, max_examples=200)
@given(st.lists(number_texts, min_size=1, max_size=20))
@example(["9007199254740993", "9007199254740993.0000000000000000000001", "1e22", "1e23", "8.5e-250", "4.9e-324"])
def test_svmlight_numbers_are_those_of_float(tmp_path, texts):
    texts = [text for text in texts if np.isfinite(float(text))]
    assume(texts)
    path = write(tmp_path, "a.svm", "".join(f"{text} 1:{text}\n" for text in texts))
    table = read_table(path)
    exact = np.array([float(text) for text in texts])
    assert table.y.tobytes() == exact.tobytes()
    assert table.X.data.tobytes() == exact.tobytes()


@quick
@given(matrices, st.booleans(), st.data())
def test_svmlight_round_trip(tmp_path, X, zero_based, data):
    y = data.draw(arrays(np.float64, len(X), elements=finite))
    X[0, 0] = 1.0  # so that an index 0 tells where counting starts
    path = tmp_path / "a.svm"
    dump_svmlight_file(X, y, str(path), zero_based=zero_based)
    table = read_table(path, n_features=X.shape[1])
    theirs, targets = load_svmlight_file(str(path), n_features=X.shape[1], zero_based=zero_based)
    assert same_sparse(table.X, theirs)
    assert table.y.tobytes() == targets.tobytes()


# ---------------------------------------------------------------------------------------------------------------------
# CSV


@pytest.fixture(params=["rows", "pandas"])
def reader(request, monkeypatch):
    """Row by row, as small files are read, and by pandas, as large ones are."""
    if request.param == "pandas":
        monkeypatch.setattr("diht.datasets.delimited._LARGE", 0)


@pytest.mark.usefixtures("reader")
def test_csv_header_and_targets(tmp_path):
    path = write(tmp_path, "a.csv", 'age,"height, cm",label\n1,2.5,yes\n\n3,-4e1,no\n')
    table = read_table(path)
    assert table.X.tolist() == [[1, 2.5], [3, -40]]
    assert table.y.tolist() == ["yes", "no"]
    assert (table.feature_names, table.target_names) == (["age", "height, cm"], ["label"])
    assert not table.is_sparse
    by_name, by_position = (
        read_table(write(tmp_path, "b.csv", "y,a,b\n1,2,3\n4,5,6\n"), target) for target in ("y", "0")
    )
    for table in (by_name, by_position):
        assert table.y.tolist() == [1, 4]
        assert table.X.tolist() == [[2, 3], [5, 6]]
        assert (table.feature_names, table.target_names) == (["a", "b"], ["y"])


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("compression", COMPRESS)
@pytest.mark.parametrize(("suffix", "mark"), [(".csv", ","), (".csv", ";"), (".csv", "\t"), (".tsv", "\t")])
def test_csv_marks_and_compression(tmp_path, suffix, mark, compression):
    content = COMPRESS[compression](f"a{mark}b{mark}y\r\n1{mark} 2{mark}3\r\n".encode("utf-8-sig"))
    table = read_table(write(tmp_path, "a" + suffix + compression, content))
    assert table.X.tolist() == [[1, 2]]
    assert table.feature_names == ["a", "b"]


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("1,2,3\n4,5,6\n", ["x0", "x1"], 2),
        ("1,2,spam\n4,5,ham\n", ["x0", "x1"], 2),
        ("id,2019,y\n4,5,6\n", ["id", "2019"], 1),
        ("0,1,2,3\n4,5,6,7\n", ["0", "1", "2"], 1),  # a data frame without names
        (",a,y\n1,5,6\n", ["x0", "a"], 1),
    ],
)
def test_csv_header_detection(tmp_path, text, names, rows):
    table = read_table(write(tmp_path, "a.csv", text))
    assert table.feature_names == names
    assert len(table.X) == len(table.y) == rows


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize(
    ("text", "target", "expected"),
    [
        ("", None, "empty: no line with data"),
        ("\n\n", None, "empty: no line with data"),
        ("a,b,y\n", None, "no data below the header"),
        ("a,b,y\n1,2,3\n\n1,2\n", None, "line 4: 2 cells, where the first has 3"),
        ("a,b,y\n1,2,3\n1,red,3\n", None, "line 3, column 'b': not a finite number: 'red'"),
        ("a,b,y\n1,,3\n", None, "line 2, column 'b': missing value (empty cell)"),
        ("a,b,y\n1,NA,3\n", None, "line 2, column 'b': missing value 'NA'"),
        ("a,b,y\n1,nan,3\n", None, "line 2, column 'b': missing value 'nan'"),
        ("a,b,y\n1,2,3\n-inf,1,3\n", None, "line 3, column 'a': not a finite number: '-inf'"),
        ("1,?,3\n1,2,3\n", None, "line 1, column 'x1': missing value '?'"),
        (
            "a,b,y\n1,2,3\n1,2,\n",
            None,
            "line 3, column 'y': missing value (empty cell); leave out rows without a target",
        ),
        ("a,b,y\n1,2,inf\n1,2,3\n", None, "line 2, column 'y': not a finite number: 'inf'"),
        (
            "a,y\n1,2\n1,x\n",
            None,
            "column 'y': targets are numbers or class names, not both: 'x' (line 3) and '2' (line 2)",
        ),
        ("a,b,a\n1,2,3\n", None, "the columns 0 and 2 are both named 'a': rename one of them"),
        ("price,size,y\n1,2,3\n", "prise", "no column 'prise'; did you mean 'price'?"),
        ("a,b,y\n1,2,3\n", "target", "no column 'target'; there are 'a', 'b', 'y'"),
        ("a,b,y\n1,2,3\n", 3, "no column '3'; there are 'a', 'b', 'y'"),
        ("y\n1\n", None, "no column besides the target 'y'; commas, semicolons, tabs or bars separate columns"),
        ('a,b,y\n1,"2,3\n', None, "line 2: unexpected end of data"),
        ('a,b,y\n1,"2"3,4\n', None, "line 2: ',' expected after '\"'"),
        (b"a,b,y\n1,2,3\n1,\xff,3\n", None, "line 3: not UTF-8 text (invalid start byte): save it as UTF-8"),
    ],
)
def test_csv_errors(tmp_path, text, target, expected):
    assert message(write(tmp_path, "a.csv", text), target=target) == expected


@pytest.mark.usefixtures("reader")
def test_csv_to_predict(tmp_path):
    with_target, without = write(tmp_path, "a.csv", "a,y,b\n1,2,3\n"), write(tmp_path, "b.csv", "a,b\n1,3\n")
    for path, y in ((with_target, [2]), (without, None)):
        table = read_table(path, "y", needs_target=False)
        assert table.feature_names == ["a", "b"]
        assert table.X.tolist() == [[1, 3]]
        assert (table.y if y is None else table.y.tolist()) == y
    assert read_table(without, needs_target=False).X.shape == (1, 2)
    assert read_table(without, needs_target=False, n_features=2).y is None
    assert read_table(without, needs_target=False, n_features=1).y.tolist() == [3]
    assert read_table(without, 0, needs_target=False, n_features=2).y is None
    assert read_table(write(tmp_path, "c.csv", "a,y\n1,\n"), "y", needs_target=False).y is None
    assert message(without, needs_target=False, n_features=5) == "2 features, where 5 are expected"
    assert message(without, needs_target=False, n_features=5, target="y") == "2 features, where 5 are expected"


@pytest.mark.usefixtures("reader")
def test_csv_without_header_keeps_its_names_without_the_target(tmp_path):
    fitted = read_table(write(tmp_path, "a.csv", "1,2,3\n4,5,6\n"), 0)
    assert (fitted.target_names, fitted.feature_names) == (["x0"], ["x1", "x2"])
    path = write(tmp_path, "b.csv", "2,3\n5,6\n")
    for target in (0, "x0"):
        assert read_table(path, target, needs_target=False, n_features=2).feature_names == ["x1", "x2"]


@pytest.mark.usefixtures("reader")
@quick
@given(matrices, st.booleans(), st.data())
def test_csv_round_trip(tmp_path, X, header, data):
    y = data.draw(arrays(np.float64, len(X), elements=finite))
    assume(header or X.shape[1] < 2 or (X[0] != np.arange(X.shape[1])).any())
    names = ",".join(f"n{j}" for j in range(X.shape[1] + 1)) if header else ""
    buffer = io.BytesIO()
    np.savetxt(buffer, np.column_stack([X, y]), fmt="%.17g", delimiter=",", header=names, comments="")
    table = read_table(write(tmp_path, "a.csv", buffer.getvalue().lstrip(b"\n")))
    assert np.array_equal(
        table.X, X
    )  # to the last bit, but for the sign of zero, which pandas drops from a whole number
    assert np.array_equal(table.y, y)


CELLS = [
    "1",
    "-3e4",
    " 4 ",
    "",
    "NA",
    "nA",
    "?",
    "True",
    "FALSE",
    "x",
    '"a, b"',
    '"q""q"',
    '"a"b',
    '5"',
    "1,5",
    '"1,234"',
    "inf",
]
CELLS += ["2024-01-01", "1_000", "0x1f", "1e400", "9" * 23, '""', '"two\nlines"', "0012", ".30000000000000004"]


@quick
@given(st.data())
def test_pandas_and_rows_read_the_same(tmp_path, monkeypatch, data):
    """Columns of a few kinds of cells, now and then with a row that is too short or too long: equal, or refused in equal words."""
    columns = data.draw(st.lists(st.lists(st.sampled_from(CELLS), min_size=1, max_size=3), min_size=2, max_size=4))
    row = st.tuples(*map(st.sampled_from, columns), st.sampled_from([None, None, None, None, -1, 1]))
    mark, end = data.draw(st.sampled_from([",", ";"])), data.draw(st.sampled_from(["\n", "\r\n"]))
    header = [] if data.draw(st.booleans()) else [mark.join("abcd"[: len(columns)])]
    rows = [
        mark.join([*cells, ""] if odd == 1 else cells[:odd]) for *cells, odd in data.draw(st.lists(row, max_size=5))
    ]
    path = write(tmp_path, "a.csv", end.join([*header, *rows, ""]))
    settings = {"target": data.draw(st.sampled_from([None, 0])), "texts": data.draw(st.booleans())}
    found = []
    for size in (2**60, 0):
        monkeypatch.setattr("diht.datasets.delimited._LARGE", size)
        try:
            table = read_table(path, **settings)
        except ValueError as error:
            found.append(str(error))
        else:
            numbers = [column if as_numbers(column) is None else as_numbers(column) for column in table.frame.values]
            found.append(
                repr([table.y.tolist(), table.feature_names, table.target_names, *(c.tolist() for c in numbers)])
            )
    assert found[0] == found[1]


# ---------------------------------------------------------------------------------------------------------------------
# Parquet


def parquet(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


@quick
@given(matrices, st.data())
def test_parquet_round_trip(tmp_path, X, data):
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.int32]))
    with np.errstate(all="ignore"):
        X = np.clip(X, -1e9, 1e9).astype(dtype)
    y = data.draw(arrays(np.float64, len(X), elements=finite))
    path = parquet(tmp_path / "a.parquet", **{f"n{j}": x for j, x in enumerate(X.T)}, y=y)
    table = read_table(path)
    assert np.array_equal(table.X, X)
    assert table.X.dtype == (np.float32 if dtype == np.float32 else np.float64)
    assert table.y.tobytes() == y.tobytes()
    assert table.feature_names == [f"n{j}" for j in range(X.shape[1])]


def test_parquet_types_and_targets(tmp_path):
    path = parquet(
        tmp_path / "a.parquet",
        flag=[True, False],
        label=pa.array(["yes", "no"]).dictionary_encode(),
        half=np.array([0.5, 2], np.float16),
        big=pa.array([1, 2**40], pa.uint64()),
    )
    table = read_table(path, ["label"])
    assert table.X.tolist() == [[1, 0.5, 1], [0, 2, 2.0**40]]
    assert table.y.tolist() == ["yes", "no"]
    assert message(path) == "column 'label' has type string, not numbers"
    assert message(path, target="lable") == "no column 'lable'; did you mean 'label'?"
    assert read_table(parquet(tmp_path / "b.pq", a=[1]), "y", needs_target=False).y is None
    assert (
        read_table(
            parquet(tmp_path / "b.pq", a=[1], y=pa.array([None], pa.float64())), needs_target=False, n_features=1
        ).y
        is None
    )


def test_parquet_errors(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    assert message(parquet(path, a=[1.0, None], y=[1, 2])) == "row 1, column 'a': missing value"
    assert message(parquet(path, a=[1.0, 2.0], y=["u", None])) == "row 1, column 'y': missing value"
    assert message(parquet(path, a=[1.0, np.nan], y=[1, 2])) == "row 1, column 'a': not a finite number: nan"
    assert message(parquet(path, a=[1.0, 2.0], y=[1, np.inf])) == "row 1, column 'y': not a finite number: inf"
    assert message(parquet(path, a=[[1.0], [2.0]], y=[1, 2])).startswith("column 'a' has type list<")
    assert message(parquet(path, a=pa.array([], pa.float64()), y=pa.array([], pa.float64()))) == "empty: no rows"
    assert message(parquet(path, y=[1])) == "no column besides the target 'y'"
    assert message(write(tmp_path, "b.parquet", "no")).startswith("not a Parquet file, or a damaged one (")
    assert message(write(tmp_path, "b.parquet", "")).startswith("not a Parquet file, or a damaged one (")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert message(parquet(path, a=[1], y=[1])) == "reading Parquet needs pyarrow: pip install 'diht[parquet]'"


def test_parquet_leaves_out_the_index_of_a_data_frame(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0], "y": [3, 4]}, index=pd.Index(["u", "v"], name="id"))
    frame.to_parquet(tmp_path / "a.parquet")
    table = read_table(tmp_path / "a.parquet")
    assert (table.feature_names, table.target_names) == (["a"], ["y"])


# ---------------------------------------------------------------------------------------------------------------------
# npz


def npz(path, **content):
    np.savez_compressed(path, **content)
    return path


def test_npz_dense(tmp_path):
    path = npz(tmp_path / "a.npz", X=np.eye(2, dtype=np.int8), y=["u", "v"], names=["p", "q"], other=np.ones(7))
    table = read_table(path)
    assert table.X.dtype == np.float64
    assert table.X.tolist() == [[1, 0], [0, 1]]
    assert table.y.tolist() == ["u", "v"]
    assert (table.feature_names, table.target_names) == (["p", "q"], ["y"])
    assert read_table(npz(path, X=np.eye(2, dtype=np.float32), z=[1, 2]), "z").X.dtype == np.float32
    assert read_table(npz(path, X=np.eye(2), y=[[1], [0]])).y.tolist() == [1, 0]
    assert read_table(npz(path, X=np.eye(2), y=np.array([b"u", b"v"]))).y.tolist() == ["u", "v"]
    assert read_table(npz(path, X=np.eye(2)), needs_target=False).y is None


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_npz_sparse(tmp_path, kind):
    X = sp.random_array((20, 7), density=0.3, rng=np.random.default_rng(0), format=kind)
    path = tmp_path / "a.npz"
    sp.save_npz(path, X)
    table = read_table(path, needs_target=False, n_features=9)
    assert table.is_sparse
    assert table.y is None
    assert np.array_equal(table.X.toarray(), np.pad(X.toarray(), ((0, 0), (0, 2))))
    assert message(path).startswith("no array 'y'")
    assert message(path, needs_target=False, n_features=6) == "7 features, where 6 are expected"


def test_npz_triplet(tmp_path):
    X = sp.random_array((20, 7), density=0.3, rng=np.random.default_rng(0), format="csr")
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    table = read_table(npz(tmp_path / "a.npz", **parts, y=np.arange(20), feature_names=list("abcdefg")))
    assert same_sparse(table.X, X)
    assert table.y.tolist() == list(range(20))
    assert table.feature_names == list("abcdefg")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"X": np.eye(2)}, "no array 'y'; there are 'X'"),
        ({"x": np.eye(2), "y": [1, 2]}, "no array 'X'; there are 'x', 'y'"),
        ({"X": np.eye(2), "y": [1, 2, 3]}, "the array 'y' has shape (3,), where X has 2 rows"),
        ({"X": np.ones(2), "y": [1, 2]}, "X has shape (2,), not (samples, features)"),
        ({"X": np.ones((0, 2)), "y": []}, "X has shape (0, 2), not (samples, features)"),
        ({"X": [["a"]], "y": [1]}, "the array 'X' has type <U1, not real numbers"),
        ({"X": [[1j]], "y": [1]}, "the array 'X' has type complex128, not real numbers"),
        ({"X": np.array([[{}]]), "y": [1]}, "the array 'X' holds Python objects; save numbers or strings"),
        ({"X": [[1, np.nan]], "y": [1]}, "row 0, column 1: not a finite number: nan"),
        ({"X": [[1, np.inf]], "y": [1], "names": ["a", "b"]}, "row 0, column 'b': not a finite number: inf"),
        ({"X": [[1, 2]], "y": [np.nan]}, "row 0 of 'y': not a finite number: nan"),
        ({"X": [[1, 2]], "y": [1], "names": ["a"]}, "1 names for 2 features"),
        ({"data": [1.0], "indices": [0]}, "a sparse array without 'shape'"),
        (
            {"data": [1.0], "indices": [0], "indptr": [0, 1], "shape": [1, 1], "format": "dia"},
            "sparse format 'dia'; supported are csr, csc, coo",
        ),
        (
            {"data": [1.0], "indices": [0.0], "indptr": [0, 1], "shape": [1, 1]},
            "the array 'indices' is not a list of integers",
        ),
        (
            {"data": [1.0, np.nan], "indices": [0, 1], "indptr": [0, 1, 2], "shape": [2, 2]},
            "row 1, column 1: not a finite number: nan",
        ),
    ],
)
def test_npz_errors(tmp_path, content, expected):
    assert message(npz(tmp_path / "a.npz", **content)) == expected


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize(
    ("indices", "indptr"),
    [([9, 0], [0, 1, 2]), ([-1, 0], [0, 1, 2]), ([0, 0], [0, 9, 2]), ([0, 0], [0, 2]), ([0, 0], [1, 1, 2])],
)
def test_npz_checks_every_index(tmp_path, kind, indices, indptr):
    path = npz(tmp_path / "a.npz", data=[1.0, 2.0], indices=indices, indptr=indptr, shape=[2, 2], format=kind)
    assert message(path, needs_target=False).startswith("not a valid sparse array (")


# ---------------------------------------------------------------------------------------------------------------------
# Any file


def test_missing_directory_and_unknown(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(str(tmp_path))}/none.csv: no such file$"):
        read_table(tmp_path / "none.csv")
    assert message(tmp_path) == "is a directory, not a file"
    for name in ("a.xlsx", "a.npz.gz", "a.parquet.xz"):
        text = message(write(tmp_path, name, "1 1:1\n"))
        assert text.startswith(f"unknown kind of file '{name}'; supported are .csv")
    assert "no columns to choose" in message(write(tmp_path, "a.svm", "1 1:1\n"), target="y")


@pytest.mark.parametrize("name", ["a.svm", "a.csv"])
@pytest.mark.parametrize(("compression", "kind"), [(".gz", "gzip"), (".bz2", "bzip2"), (".xz", "xz")])
def test_damaged_compression(tmp_path, name, compression, kind):
    rng = np.random.default_rng(0)
    text = {
        "a.svm": "".join(f"1 1:{v}\n" for v in rng.random(500)),
        "a.csv": "".join(f"{v},1\n" for v in rng.random(500)),
    }
    packed = COMPRESS[compression](text[name].encode())
    path = tmp_path / (name + compression)
    assert kind in message(write(tmp_path, path.name, packed[: len(packed) // 2]))
    assert kind in message(write(tmp_path, path.name, text[name]))
    assert message(write(tmp_path, path.name, ""))


@pytest.mark.parametrize("name", ["a.svm", "a.csv", "a.npz", "a.parquet"])
def test_unreadable(tmp_path, monkeypatch, name):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path, name, "1,2\n")
    monkeypatch.setattr("diht.datasets.opening.open", refuse, raising=False)
    with pytest.raises(PermissionError, match=f"^{re.escape(str(path))}: Permission denied$"):
        read_table(path)


def sample_files():
    """A small good file of every format."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 3)).round(3), rng.integers(0, 2, 12)
    svmlight, table, arrays_, sparse = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
    dump_svmlight_file(X, y, svmlight, zero_based=False)
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": [str(v) for v in y]}), table)
    np.savez(arrays_, X=X, y=y, names=["a", "b", "c"])
    sp.save_npz(sparse, sp.csr_array(X * (X > 0)), compressed=False)
    csv = "a,b,c,y\n" + "".join(",".join(map(str, row)) + f",{v}\n" for row, v in zip(X, y, strict=True))
    return {
        "a.svm": svmlight.getvalue(),
        "a.csv": csv.encode(),
        "a.parquet": table.getvalue(),
        "dense.npz": arrays_.getvalue(),
        "sparse.npz": sparse.getvalue(),
        "a.svm.gz": gzip.compress(svmlight.getvalue()),
        "a.svm.bz2": bz2.compress(svmlight.getvalue()),
        "a.csv.xz": lzma.compress(csv.encode()),
    }


SAMPLES = sample_files()


def read_or_refuse(path):
    """Bad bytes give a table or a ValueError in one line, nothing else."""
    for needs_target in (True, False):
        text = ""
        try:
            table = read_table(path, needs_target=needs_target)
        except ValueError as error:
            text = str(error)
        if text:
            assert text.startswith(f"{path}: ")
            assert len(text.splitlines()) == 1
        else:
            values = table.X.data if table.is_sparse else table.X
            assert np.isfinite(values).all()
            assert table.y is None or len(table.y) == table.X.shape[0]


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_good(tmp_path, name):
    table = read_table(write(tmp_path, name, SAMPLES[name]), needs_target=name != "sparse.npz")
    assert isinstance(table, Table)
    assert table.X.shape[0] == 12


@pytest.mark.parametrize("name", SAMPLES)
@quick
@given(data=st.data())
def test_fuzz_damage(tmp_path, name, data):
    """Cut the file, flip bits, overwrite, insert and delete bytes."""
    content = bytearray(SAMPLES[name])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(len(content) - 1, 0)))
        change = data.draw(st.sampled_from(["flip", "cut", "write", "insert", "delete"]))
        if change == "flip" and content:
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        elif change == "cut":
            del content[at:]
        elif change == "delete":
            del content[at : at + data.draw(st.integers(1, 20))]
        else:
            piece = data.draw(
                st.one_of(st.binary(max_size=6), st.sampled_from([b"\n", b":", b",", b"nan", b"-1:2", b'"']))
            )
            content[at : at + (len(piece) if change == "write" else 0)] = piece
    read_or_refuse(write(tmp_path, name, bytes(content)))


@pytest.mark.parametrize("name", ["a.svm", "a.csv", "a.parquet", "a.npz", "a.svm.gz", "a.svm.bz2", "a.csv.xz"])
@quick
@given(content=st.one_of(st.binary(max_size=200), st.text("01259+-.eE:#qid \n\r\t,;", max_size=200).map(str.encode)))
def test_fuzz_random(tmp_path, name, content):
    read_or_refuse(write(tmp_path, name, content))


@quick
@given(st.text("0159+-.e:# \n", max_size=120))
def test_fuzz_svmlight_agrees_with_plain_python(tmp_path, text):
    """What is accepted means what the plain reading says."""
    path = write(tmp_path, "a.svm", text)
    try:
        table = read_table(path, zero_based=True, n_features=10**18)
    except ValueError:
        return
    targets, rows = plain_svmlight(text)
    assert table.y.tolist() == targets
    for i, row in enumerate(rows):
        start, stop = table.X.indptr[i : i + 2]
        assert dict(zip(table.X.indices[start:stop].tolist(), table.X.data[start:stop].tolist(), strict=True)) == row


def test_importing_loads_no_numba():
    code = "import sys, diht.datasets; assert not {'numba', 'pyarrow', 'sklearn'} & set(sys.modules), 'loaded'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_breast_cancer():
    table = load_breast_cancer()
    assert table.X.shape == (569, 30)
    assert set(table.y.tolist()) == {"malignant", "benign"}
    assert (table.y == "malignant").sum() == 212
    assert all(type(name) is str for name in table.feature_names)


# ---------------------------------------------------------------------------------------------------------------------
# Real files, those that are here


@pytest.mark.parametrize(
    "path", existing("rcv1-vw-sample/rcv1-vw-sample.bz2", "a9a/adult.trn.bz2", "a9a/adult.tst.bz2")
)
def test_real_svmlight_as_scikit_learn_reads_it(path):
    table = read_table(path)
    X, y = load_svmlight_file(str(path))
    assert same_sparse(table.X, X)
    assert np.array_equal(table.y, y)


@pytest.mark.slow
@pytest.mark.parametrize("path", existing("imdb/imdb.train.bz2"))
def test_real_imdb(path):
    table = read_table(path)
    assert table.X.shape == (25_000, 44_208)
    assert np.bincount(table.y > 0).tolist() == [12_500, 12_500]
    assert np.allclose(sp.linalg.norm(table.X, axis=1), 1, atol=1e-3)


@pytest.mark.parametrize(
    "path", existing("leukemia/leukemia.npz", "riboflavin/riboflavin.npz", "colon-cancer/colon-cancer.npz")
)
def test_real_npz(path):
    table = read_table(path)
    with np.load(path) as archive:
        assert np.array_equal(table.X, archive["X"])
        assert np.array_equal(table.y, archive["y"])


@pytest.mark.parametrize("path", existing("communities-crime/communities-crime.npz"))
def test_real_missing_values(path):
    assert re.fullmatch(r"row \d+, column '\w+': not a finite number: nan", message(path))


# ---------------------------------------------------------------------------------------------------------------------
# Writing


def test_atomic_write(tmp_path):
    path = tmp_path / "a.bin"
    for content in (b"first", b"second"):
        with atomic_write(path) as file:
            file.write(content)
            assert len(list(tmp_path.iterdir())) == 1 + path.exists()
        assert path.read_bytes() == content
        assert list(tmp_path.iterdir()) == [path]


def fail_after(content, error):
    yield content
    raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_atomic_write_that_fails_leaves_nothing(tmp_path, error):
    path = write(tmp_path, "a.bin", "old")
    with pytest.raises(error), atomic_write(path) as file:
        file.writelines(fail_after(b"new", error))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_atomic_write_says_what_is_wrong(tmp_path):
    path = tmp_path / "no" / "a.bin"
    with pytest.raises(
        FileNotFoundError, match=f"^{re.escape(str(path))}: cannot be written: No such file or directory$"
    ):
        atomic_write(path).__enter__()
    with pytest.raises(IsADirectoryError, match=f"^{re.escape(str(tmp_path))}: is a directory$"):
        atomic_write(tmp_path).__enter__()


@pytest.mark.skipif(os.name != "posix", reason="permissions and links of POSIX")
def test_atomic_write_keeps_permissions_and_follows_links(tmp_path):
    path = write(tmp_path, "a.bin", "old")
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    with atomic_write(tmp_path / "link") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    with atomic_write(os.devnull) as file:
        file.write(b"gone")
    assert not Path(os.devnull).is_file()


# several targets


@pytest.fixture
def several(tmp_path):
    rng = np.random.default_rng(5)
    Z = rng.normal(size=(6, 5))
    header = "a,y,b,z,c\n"
    text = "\n".join(",".join(map(repr, row)) for row in Z.tolist())
    (tmp_path / "named.csv").write_text(header + text)
    (tmp_path / "bare.csv").write_text(text)
    np.savez(tmp_path / "array.npz", X=Z[:, [0, 2, 4]], y=Z[:, [3, 1]])
    np.savez(tmp_path / "arrays.npz", X=Z[:, [0, 2, 4]], y=Z[:, 1], z=Z[:, 3])
    return tmp_path, Z


@pytest.mark.parametrize(
    ("file", "targets", "names", "order"),
    [
        ("named.csv", ["z", "y"], ["z", "y"], [3, 1]),
        ("named.csv", [3, "y"], ["z", "y"], [3, 1]),
        ("bare.csv", [3, 1], ["x3", "x1"], [3, 1]),
        ("bare.csv", ["x1", "x3"], ["x1", "x3"], [1, 3]),
        ("array.npz", None, ["y0", "y1"], [3, 1]),
        ("array.npz", ["y1", "y0"], ["y1", "y0"], [1, 3]),
        ("arrays.npz", ["z", "y"], ["z", "y"], [3, 1]),
    ],
)
def test_several_targets(several, file, targets, names, order):
    folder, Z = several
    table = read_table(folder / file, targets)
    assert table.target_names == names
    np.testing.assert_array_equal(table.y, Z[:, order])
    np.testing.assert_array_equal(table.X, Z[:, [0, 2, 4]])
    assert table.feature_names == {"named.csv": ["a", "b", "c"], "bare.csv": ["x0", "x2", "x4"]}.get(file)


def test_several_targets_of_parquet(several):
    pd, folder = pytest.importorskip("pandas"), several[0]
    pytest.importorskip("pyarrow")
    pd.DataFrame(several[1], columns=["a", "y", "b", "z", "c"]).to_parquet(folder / "named.parquet")
    table = read_table(folder / "named.parquet", ["z", "y"])
    assert (table.target_names, table.feature_names) == (["z", "y"], ["a", "b", "c"])
    np.testing.assert_array_equal(table.y, several[1][:, [3, 1]])


def test_files_to_predict_may_lack_targets(several):
    folder, Z = several
    expected = {"n_features": 3, "needs_target": False}
    text = "\n".join(",".join(map(repr, row)) for row in Z[:, [0, 2, 4]].tolist())
    (folder / "new.csv").write_text(text)
    table = read_table(folder / "new.csv", ["x3", "x1"], **expected)
    assert (table.y, table.target_names, table.feature_names) == (None, None, ["x0", "x2", "x4"])
    (folder / "some.csv").write_text("a,y,b,c\n1,2,3,4\n")
    table = read_table(folder / "some.csv", ["y", "z"], **expected)
    assert (table.y, table.feature_names) == (None, ["a", "b", "c"])
    np.savez(folder / "new.npz", X=Z[:, :3])
    assert read_table(folder / "new.npz", ["y0", "y1"], **expected).y is None


@pytest.mark.parametrize(
    ("file", "targets", "message"),
    [
        ("named.csv", ["z", "z"], "the target 'z' comes twice"),
        ("named.csv", ["z", 3], "the target 'z' comes twice"),
        ("named.csv", ["z", "w"], "no column 'w'"),
        ("array.npz", ["y", "y0"], "the target 'y0' comes twice"),
        ("array.npz", ["y2"], "no array 'y2'"),
        ("array.npz", ["w0"], "no array 'w0'"),
        ("arrays.npz", ["y0"], "no array 'y0'"),
        ("words.csv", ["y", "z"], "the target 'z' holds texts such as 'u'; several must be numbers"),
        ("words.csv", ["a", "y", "z"], "no column besides the target 'a'"),
    ],
)
def test_bad_targets(several, file, targets, message):
    folder, _ = several
    (folder / "words.csv").write_text("a,y,z\n1,2,u\n3,4,v\n")
    with pytest.raises(ValueError, match=message) as caught:
        read_table(folder / file, targets)
    assert str(caught.value).startswith(str(folder / file))

"""The data sets: found in any of their names, downloaded whole or not at all, cached and never trusted blindly."""

import bz2
import gzip
import hashlib
import lzma
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from diht.datasets import fetch_imdb, fetch_news20, fetch_rcv1, fetching, get_data_home, rcv1_standin

DATA = Path(os.environ.get("DIHT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}

NEWS20 = b"-1 1:0.5 3:0.25\n+1 2:1\n-1\n"
TRAIN, TEST = b"1 1:1 4:2\n-1 2:1\n", b"-1 1:3\n1 3:1\n-1 3:2\n"
FILES = {"news20.binary": NEWS20, "rcv1_train.binary": TRAIN, "rcv1_test.binary": TEST, "rcv1.binary": TRAIN + TEST}


class Site:
    """A web site on this machine: `pages` by name, and `faults`, each of which spoils one answer."""

    def __init__(self):
        self.pages = {name + ".bz2": bz2.compress(text) for name, text in FILES.items() if name != "rcv1.binary"}
        self.faults, self.asked = [], []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.rpartition("/")[2]
                site.asked.append(name)
                fault = site.faults.pop(0) if site.faults else None
                if fault == "busy" or name not in site.pages:
                    self.send_error(503 if fault else 404)
                    return
                page = site.pages[name]
                self.send_response(200)
                if fault != "torn":
                    self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page[: len(page) // 2] if fault else page)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/binary/"


@pytest.fixture
def site(monkeypatch, tmp_path):
    """Small data sets on a server, and a user whose home folder is empty."""
    site = Site()
    known = {"news20.binary": (3, 3, 3), "rcv1_train.binary": (2, 4, 3), "rcv1_test.binary": (3, 4, None)}
    known |= {"rcv1.binary": (5, 4, None), "imdb.train": (2, None, None), "imdb.test": (3, None, None)}

    def small(file):
        samples, features, nonzeros = known[file.name]
        url = None if file.url is None else site.url + file.download
        return replace(file, samples=samples, features=features, nonzeros=nonzeros, url=url)

    for name, subsets in fetching._FILES.items():
        mine = {subset: tuple(tuple(map(small, files)) for files in options) for subset, options in subsets.items()}
        monkeypatch.setitem(fetching._FILES, name, mine)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "user"))
    monkeypatch.delenv("DIHT_DATA", raising=False)
    (tmp_path / "user").mkdir()
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    site.server.shutdown()
    thread.join()
    site.server.server_close()


@pytest.fixture
def home(site, tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def change(monkeypatch, **changes):
    """Change what is known of news20."""
    ((file,),) = fetching._FILES["news20"]["all"]
    monkeypatch.setitem(fetching._FILES, "news20", {"all": ((replace(file, **changes),),)})


def files_in(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def is_news20(bunch):
    dense = [[0.5, 0, 0.25], [0, 1, 0], [0, 0, 0]]
    return np.array_equal(bunch.data.toarray(), dense) and bunch.target.tolist() == [-1, 1, -1]


def fail(error=OSError, fetch=fetch_news20, **options):
    """The error of a fetch: one line."""
    with pytest.raises(error) as info:
        fetch(**({"delay": 0.0} | options))
    assert "\n" not in str(info.value)
    return str(info.value)


# ---------------------------------------------------------------------------------------------------------------------
# The home


def test_home_is_the_argument_else_the_variable_else_the_default(site, monkeypatch, tmp_path):
    assert get_data_home() == tmp_path / "user" / "diht_data"
    assert get_data_home("~/mine") == tmp_path / "user" / "mine"
    monkeypatch.setenv("DIHT_DATA", str(tmp_path / "named"))
    assert get_data_home() == tmp_path / "named"
    assert get_data_home(tmp_path / "given") == tmp_path / "given"
    assert all((tmp_path / name).is_dir() for name in ("user/diht_data", "user/mine", "named", "given"))
    monkeypatch.setenv("DIHT_DATA", "")
    assert get_data_home() == tmp_path / "user" / "diht_data"


def test_home_that_is_a_file(home):
    (home / "file").touch()
    assert fail(NotADirectoryError, data_home=home / "file").startswith("data_home: ")


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("folder", ["", "news20.binary"])
def test_local_file_in_any_place_and_compression(site, home, folder, suffix):
    (home / folder).mkdir(exist_ok=True)
    (home / folder / f"news20.binary{suffix}").write_bytes(COMPRESS[suffix](NEWS20))
    bunch = fetch_news20(data_home=home)
    assert is_news20(bunch)
    assert bunch.name == "news20"
    assert bunch.data.format == "csr"
    assert bunch.data.dtype == bunch.target.dtype == np.float64
    assert site.asked == []


def test_variable_names_the_folder(site, home, monkeypatch):
    (home / "news20.binary").write_bytes(NEWS20)
    monkeypatch.setenv("DIHT_DATA", str(home))
    X, y = fetch_news20(return_X_y=True, download_if_missing=False)
    assert X.shape == (3, 3)
    assert y.tolist() == [-1, 1, -1]


@pytest.mark.parametrize(
    "paths",
    [
        ["rcv1_train.binary.xz", "rcv1_test.binary.xz"],
        ["rcv1.binary/rcv1_train.binary.xz", "rcv1.binary/rcv1_test.binary.xz"],
        ["rcv1_train.binary/rcv1_train.binary.xz", "rcv1_test.binary/rcv1_test.binary.xz"],
        ["rcv1.binary.xz"],
        ["rcv1.binary/rcv1.binary.xz"],
    ],
)
def test_rcv1_in_one_file_or_two(site, home, paths):
    for path in map(Path, paths):
        (home / path).parent.mkdir(exist_ok=True)
        (home / path).write_bytes(lzma.compress(FILES[path.stem]))
    X, y = fetch_rcv1(data_home=home, return_X_y=True)
    assert np.array_equal(X.toarray(), [[1, 0, 0, 2], [0, 1, 0, 0], [3, 0, 0, 0], [0, 0, 1, 0], [0, 0, 2, 0]])
    assert y.tolist() == [1, -1, -1, 1, -1]
    assert site.asked == []


def test_rcv1_subsets(home):
    train, test, both = (fetch_rcv1(data_home=home, subset=subset).data for subset in ("train", "test", "all"))
    assert train.shape == (2, 4)
    assert test.shape == (3, 4)
    assert (both != sp.vstack([train, test])).nnz == 0
    assert fail(ValueError, fetch_rcv1, subset="half").startswith("subset must be one of train, test, all")


def test_imdb_is_local(site, home):
    (home / "imdb").mkdir()
    (home / "imdb" / "imdb.train.bz2").write_bytes(bz2.compress(b"-1 1:1\n1 3:1\n"))
    assert fetch_imdb(data_home=home).data.shape == (2, 3)
    text = fail(FileNotFoundError, fetch_imdb, data_home=home, subset="all")
    assert text == (
        f"imdb.test not found in {home}, and there is no svmlight file of it to download; "
        f"put imdb.test into {home}, or set DIHT_DATA to its folder"
    )
    (home / "imdb.test").write_bytes(b"1 5:2\n-1 1:3\n-1\n")
    assert fetch_imdb(data_home=home, subset="test").data.shape == (3, 5)
    bunch = fetch_imdb(data_home=home, subset="all")
    assert bunch.target.tolist() == [-1, 1, 1, -1, -1]
    assert bunch.data.shape == (5, 5)
    assert bunch.data[[0, 2]].toarray().tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 2]]
    assert site.asked == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (NEWS20[:-3], "2 samples, where news20.binary has 3: truncated or another file"),
        (NEWS20.replace(b" 2:1", b""), "2 nonzeros, where news20.binary has 3: truncated or another file"),
        (NEWS20.replace(b"+1", b"2"), "the targets are -1.0, 2.0, where news20.binary has -1 and 1"),
        (NEWS20.replace(b"3:", b"4:"), "the largest index 4 is beyond the 3 features expected"),
        (NEWS20.replace(b"1:", b"0:"), "line 1: index 0, where indices must start at 1"),
    ],
    ids=["samples", "nonzeros", "targets", "features", "zero-based"],
)
def test_local_file_that_is_another(home, text, complaint):
    (home / "news20.binary").write_bytes(text)
    assert fail(ValueError, data_home=home) == f"{home / 'news20.binary'}: {complaint}"
    assert files_in(home) == ["news20.binary"]


# ---------------------------------------------------------------------------------------------------------------------
# The download


def test_download_once(site, home):
    assert is_news20(fetch_news20(data_home=home))
    assert is_news20(fetch_news20(data_home=home))
    assert site.asked == ["news20.binary.bz2"]
    assert (home / "news20.binary" / "news20.binary.bz2").read_bytes() == site.pages["news20.binary.bz2"]
    assert len(files_in(home)) == 2  # the download and the cache, nothing left aside


@pytest.mark.parametrize("fault", ["busy", "short"])
def test_download_is_tried_again(site, home, monkeypatch, fault):
    waited = []
    monkeypatch.setattr(fetching.time, "sleep", waited.append)
    site.faults = [fault, fault]
    assert is_news20(fetch_news20(data_home=home, n_retries=2, delay=0.25))
    assert len(site.asked) == 3
    assert waited == [0.25, 0.25]


@pytest.mark.parametrize(("fault", "reason"), [("busy", "503"), ("short", "broke off after ")])
def test_download_that_never_succeeds(site, home, fault, reason):
    site.faults = [fault] * 3
    text = fail(data_home=home, n_retries=2)
    assert f"{site.url}news20.binary.bz2 could not be downloaded (" in text
    assert reason in text
    assert len(site.asked) == 3
    assert files_in(home) == []


def test_half_a_file_from_a_server_that_promised_no_length(site, home):
    site.faults = ["torn"]
    assert "truncated or damaged bzip2 stream" in fail(data_home=home)
    assert files_in(home) == []
    assert is_news20(fetch_news20(data_home=home))


def test_error_names_what_is_still_missing(site, home):
    del site.pages["rcv1_test.binary.bz2"]
    text = fail(fetch=fetch_rcv1, data_home=home, n_retries=0)
    assert text.startswith(f"rcv1_test.binary not found in {home}, and {site.url}rcv1_test.binary.bz2 could not be")
    assert text.endswith(f"put rcv1_test.binary.bz2 into {home}, or set DIHT_DATA to its folder")


def test_offline(site, home, monkeypatch):
    change(monkeypatch, url="http://127.0.0.1:9/news20.binary.bz2")  # nothing listens to the discard port
    text = fail(data_home=home, n_retries=1)
    assert text.startswith(f"news20.binary not found in {home}, and http://127.0.0.1:9/news20.binary.bz2 could not be ")
    assert text.endswith(f"put news20.binary.bz2 into {home}, or set DIHT_DATA to its folder")
    assert files_in(home) == []


def test_no_download_if_not_wanted(site, home):
    text = fail(FileNotFoundError, fetch_rcv1, data_home=home, download_if_missing=False)
    assert text == (
        f"rcv1_train.binary and rcv1_test.binary not found in {home}, and download_if_missing is False; "
        f"put rcv1_train.binary.bz2 and rcv1_test.binary.bz2 into {home}, or set DIHT_DATA to its folder"
    )
    assert site.asked == []


def test_checksum(site, home, monkeypatch):
    change(monkeypatch, sha256=hashlib.sha256(b"another file").hexdigest())
    assert "SHA256 checksum" in fail(data_home=home)
    assert len(site.asked) == 1
    assert files_in(home) == []
    change(monkeypatch, sha256=hashlib.sha256(site.pages["news20.binary.bz2"]).hexdigest())
    assert is_news20(fetch_news20(data_home=home))


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        (bz2.compress(NEWS20 + b"1 1:1\n"), "4 samples, where news20.binary has 3"),
        (b"<html>log in to this network</html>", "not a bzip2 file"),
        (bz2.compress(NEWS20)[:-5], "truncated or damaged bzip2 stream"),
        (b"", "truncated or damaged bzip2 stream"),
    ],
    ids=["samples", "html", "truncated", "empty"],
)
def test_download_of_something_else_is_not_kept(site, home, page, complaint):
    site.pages["news20.binary.bz2"] = page
    assert complaint in fail(data_home=home)
    assert files_in(home) == []


def test_interrupted_download_leaves_nothing(site, home, monkeypatch):
    class Interrupted:
        def update(self, block):
            raise KeyboardInterrupt

    monkeypatch.setattr(fetching.hashlib, "sha256", lambda *_: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        fetch_news20(data_home=home)
    assert files_in(home) == []


def test_fetches_at_the_same_time(site, home):
    with ThreadPoolExecutor(8) as pool:
        bunches = list(pool.map(lambda _: fetch_news20(data_home=home), range(16)))
    assert all(map(is_news20, bunches))
    assert len(files_in(home)) == 2


@pytest.mark.parametrize("options", [{"n_retries": -1}, {"delay": -1.0}, {"delay": float("nan")}])
def test_bad_options(home, options):
    assert "must not be negative" in fail(ValueError, data_home=home, **options)


# ---------------------------------------------------------------------------------------------------------------------
# The cache


@pytest.fixture
def parsed(home, monkeypatch):
    """A home with a cached file, and the list of the files parsed since."""
    (home / "news20.binary").write_bytes(NEWS20)
    fetch_news20(data_home=home)
    paths, read = [], fetching.read_table
    monkeypatch.setattr(fetching, "read_table", lambda path, **options: paths.append(path) or read(path, **options))
    return paths


def cache_of(home):
    (path,) = (home / "cache").iterdir()
    return path


def test_second_load_comes_from_the_cache(home, parsed):
    bunch = fetch_news20(data_home=home)
    assert is_news20(bunch)
    assert bunch.data.has_canonical_format
    assert bunch.data.indices.dtype == np.int32
    assert parsed == []


def test_cache_follows_the_file(home, parsed):
    (home / "news20.binary").write_bytes(NEWS20.replace(b"0.5", b"0.7"))
    os.utime(home / "news20.binary", ns=(0, 1))
    assert fetch_news20(data_home=home).data[0, 0] == 0.7
    assert len(parsed) == 1


def spoiled(path, change):
    """Write the arrays of a cache again after a change."""
    with np.load(path) as archive:
        arrays = dict(archive)
    change(arrays)
    np.savez(path, **arrays)


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"not an archive"),
        lambda path: path.write_bytes(path.read_bytes()[:-40]),
        lambda path: flip(path, path.read_bytes().index(np.float64(0.25).tobytes())),
        lambda path: path.unlink() or path.mkdir(),
        lambda path: np.savez(path, X=np.eye(3), y=np.ones(3)),
        lambda path: spoiled(path, lambda a: a.pop("key")),
        lambda path: spoiled(path, lambda a: a.update(key=np.array("diht 0"))),
        lambda path: spoiled(path, lambda a: a.update(key=np.array([{}], dtype=object))),
        lambda path: spoiled(path, lambda a: a.update(data=a["data"].astype(object))),
        lambda path: spoiled(path, lambda a: a["indices"].fill(1000)),
        lambda path: spoiled(path, lambda a: a["indptr"].fill(-1)),
        lambda path: spoiled(path, lambda a: a["y"].fill(1.0)),
        lambda path: spoiled(path, lambda a: a["data"].fill(np.nan)),
        lambda path: spoiled(path, lambda a: a.update(data=a["data"][:1], indices=a["indices"][:1])),
    ],
)
def test_bad_cache_is_made_again(home, parsed, spoil):
    cache = cache_of(home)
    spoil(cache)
    assert is_news20(fetch_news20(data_home=home))
    assert len(parsed) == 1
    if cache.is_file():
        assert is_news20(fetch_news20(data_home=home))
        assert len(parsed) == 1


def test_interrupted_cache_leaves_nothing(home, monkeypatch):
    def interrupted(file, **_):
        file.write(b"half")
        raise KeyboardInterrupt

    (home / "news20.binary").write_bytes(NEWS20)
    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch_news20(data_home=home)
    assert files_in(home) == ["news20.binary"]


def test_full_disk_means_no_cache(home, monkeypatch, caplog):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    (home / "news20.binary").write_bytes(NEWS20)
    monkeypatch.setattr(np, "savez", full)
    assert is_news20(fetch_news20(data_home=home))
    assert "No space left" in caplog.text
    assert files_in(home) == ["news20.binary"]


@pytest.mark.linux
def test_read_only_home_is_left_alone(site, home, tmp_path, parsed):
    shutil.rmtree(home / "cache")
    home.chmod(0o555)
    try:
        assert is_news20(fetch_news20(data_home=home))
        assert is_news20(fetch_news20(data_home=home))
        assert len(parsed) == 1
        fetch_rcv1(data_home=home)
        fetch_rcv1(data_home=home)
        assert len(site.asked) == 2
        assert files_in(home) == ["news20.binary"]
        assert len(files_in(tmp_path / "user" / "diht_data")) == 5
    finally:
        home.chmod(0o755)


@pytest.mark.linux
def test_nothing_can_be_written(site, home, tmp_path):
    (home / "news20.binary").write_bytes(NEWS20)
    (tmp_path / "user" / "diht_data").touch()  # a file where the folder should be
    home.chmod(0o555)
    try:
        assert is_news20(fetch_news20(data_home=home))
    finally:
        home.chmod(0o755)


# ---------------------------------------------------------------------------------------------------------------------
# Real files, those that are here


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "imdb" / "imdb.train.bz2").exists(), reason="no imdb in the data folder")
def test_real_imdb(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "imdb").symlink_to(DATA / "imdb")
    first, second = (fetch_imdb(data_home=tmp_path) for _ in range(2))
    assert first.data.shape == (25_000, 44_208)
    assert np.bincount(first.target > 0).tolist() == [12_500, 12_500]
    assert (first.data != second.data).nnz == 0
    assert np.array_equal(first.target, second.target)


@pytest.mark.skipif(not (DATA / "news20.binary" / "news20.binary.xz").exists(), reason="no news20 in the data folder")
def test_real_news20(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "news20.binary").symlink_to(DATA / "news20.binary")
    first, second = (fetch_news20(data_home=tmp_path) for _ in range(2))
    assert first.data.shape == (19_996, 1_355_191)
    assert first.data.nnz == 9_097_916
    assert np.sum(np.diff(first.data.indptr) == 0) == 42
    assert (first.data != second.data).nnz == 0


# ---------------------------------------------------------------------------------------------------------------------
# The stand-in


@pytest.fixture(scope="module")
def standin():
    return rcv1_standin(45_000, 47_236)


def test_standin_is_as_it_says(standin):
    X, y = standin.data, standin.target
    assert standin.name == "rcv1 stand-in"
    assert "stand-in" in standin.DESCR
    assert X.shape == (45_000, 47_236)
    assert X.indices.dtype == X.indptr.dtype == np.int32
    assert abs(X.nnz / X.shape[0] - 75) < 1
    assert np.allclose(sp.linalg.norm(X, axis=1), 1)
    assert X.data.min() > 0
    assert np.count_nonzero(standin.coef) == 500
    assert set(y.tolist()) == {-1.0, 1.0}
    assert 0.45 < np.mean(y > 0) < 0.55
    assert abs(np.mean(np.sign(X @ standin.coef) == y) - 0.95) < 0.005


def test_standin_rows_are_sorted_and_distinct(standin):
    X = standin.data
    bare = sp.csr_array((X.data, X.indices, X.indptr), shape=X.shape)
    bare.check_format(full_check=True)
    assert bare.has_canonical_format  # computed anew, not as the generator set it


def test_standin_columns_follow_a_power_law(standin):
    """Behind the most frequent words, the frequency falls as one over the rank."""
    X = standin.data
    frequency = np.bincount(X.indices, minlength=X.shape[1])
    edges = np.geomspace(500, X.shape[1], 12).astype(int)
    mean = [frequency[a:b].mean() for a, b in pairwise(edges)]
    slope = np.polyfit(np.log(np.sqrt(edges[:-1] * edges[1:])), np.log(mean), 1)[0]
    assert -1.05 < slope < -0.85
    assert 0.1 < frequency.max() / X.shape[0] < 0.3


@pytest.mark.parametrize(("n", "d"), [(1, 2), (30, 3), (50, 20), (300, 100), (2_000, 750)])
def test_small_standin(n, d):
    bunch = rcv1_standin(n, d)
    assert bunch.data.shape == (n, d)
    bunch.data.check_format(full_check=True)
    assert np.allclose(sp.linalg.norm(bunch.data, axis=1), 1)
    assert set(bunch.target.tolist()) <= {-1.0, 1.0}


def test_standin_depends_on_the_seed_alone():
    first, again, other = rcv1_standin(500, 900, seed=3), rcv1_standin(500, 900, seed=3), rcv1_standin(500, 900, seed=4)
    for name in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(first.data, name), getattr(again.data, name))
    assert np.array_equal(first.target, again.target)
    assert first.data.shape == other.data.shape
    assert (first.data != other.data).nnz > 0


@pytest.mark.parametrize("shape", [(0, 10), (10, 1)])
def test_standin_of_nothing(shape):
    with pytest.raises(ValueError, match="n must be at least 1 and d at least 2"):
        rcv1_standin(*shape)


def test_fetching_needs_the_network_only_when_it_downloads(tmp_path):
    (tmp_path / "imdb.train").write_bytes(b"1 1:1\n-1 1:2\n" * 12_500)
    code = (
        "import sys; from diht.datasets import fetch_imdb; "
        "assert 'urllib.request' not in sys.modules, 'loaded'; "
        "assert fetch_imdb(data_home=sys.argv[1]).data.shape == (25000, 1)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True)

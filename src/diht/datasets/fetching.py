"""The text data sets of the paper: found in a local folder, else downloaded; parsed once, then read from a cache."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from diht.datasets.archive import read_npz
from diht.datasets.home import ENVIRONMENT, find_file, get_data_home, storage
from diht.datasets.opening import one_line
from diht.datasets.reading import read_table
from diht.datasets.table import Table
from diht.datasets.writing import atomic_write

__all__ = ["fetch_imdb", "fetch_news20", "fetch_rcv1"]

logger = logging.getLogger(__name__)

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
_TIMEOUT = 30.0  # seconds without a byte, after which the server is taken for dead
_READER = 1  # part of a cache's key: raise it when the reader or the layout of the cache changes


@dataclass(frozen=True)
class _File:
    """An svmlight file with indices from 1 and targets -1 and +1, and what is known of it (None: anything goes).

    LIBSVM publishes no checksums, so a download is held to its shape, nonzeros and targets (and bzip2 has sums of its
    own); `sha256` is for a file of which one is known.
    """

    name: str
    folder: str
    samples: int
    features: int | None = None
    nonzeros: int | None = None
    url: str | None = None
    sha256: str | None = None

    @property
    def download(self) -> str:
        """The name of the downloaded file."""
        return self.name if self.url is None else self.url.rpartition("/")[2]


_NEWS20 = _File("news20.binary", "news20.binary", 19_996, 1_355_191, 9_097_916, _LIBSVM + "news20.binary.bz2")
_RCV1_TRAIN = _File("rcv1_train.binary", "rcv1.binary", 20_242, 47_236, url=_LIBSVM + "rcv1_train.binary.bz2")
_RCV1_TEST = _File("rcv1_test.binary", "rcv1.binary", 677_399, 47_236, url=_LIBSVM + "rcv1_test.binary.bz2")
_RCV1 = _File("rcv1.binary", "rcv1.binary", 697_641, 47_236)
_IMDB_TRAIN = _File("imdb.train", "imdb", 25_000)
_IMDB_TEST = _File("imdb.test", "imdb", 25_000)

# For each data set and subset: the files that make it up, or others that do; the first are those to download.
_FILES: dict[str, dict[str, tuple[tuple[_File, ...], ...]]] = {
    "news20": {"all": ((_NEWS20,),)},
    "rcv1": {"train": ((_RCV1_TRAIN,),), "test": ((_RCV1_TEST,),), "all": ((_RCV1_TRAIN, _RCV1_TEST), (_RCV1,))},
    "imdb": {"train": ((_IMDB_TRAIN,),), "test": ((_IMDB_TEST,),), "all": ((_IMDB_TRAIN, _IMDB_TEST),)},
}

_DESCR = {
    "news20": "news20.binary of the LIBSVM collection: 19,996 postings to 20 newsgroups in two classes of ten, "
    "1,355,191 features, unit rows (S. S. Keerthi and D. DeCoste, JMLR 6, 2005).",
    "rcv1": "rcv1.binary of the LIBSVM collection: newswire stories, CCAT and ECAT against GCAT and MCAT, 47,236 "
    "features, log tf-idf, unit rows (D. D. Lewis et al., JMLR 5, 2004).",
    "imdb": "Film reviews, positive or negative, 25,000 to train and 25,000 to test (A. L. Maas et al., ACL 2011).",
}


def fetch_news20(
    *,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    n_retries: int = 3,
    delay: float = 1.0,
    return_X_y: bool = False,
) -> Any:
    """Load news20.binary: 19,996 x 1,355,191 with 9,097,916 nonzeros, two classes.

    Parameters
    ----------
    data_home : str or path-like, optional
        The folder with the data sets; by default the environment variable DIHT_DATA names it, else it is
        ~/diht_data.  The file may be there or in a folder of the data set's name, plain or with ``.gz``, ``.bz2`` or
        ``.xz``.  What is downloaded goes there too, and the parsed matrix, into ``cache``; if the folder is
        read-only, into ~/diht_data.
    download_if_missing : bool
        False: an error if there is no local file.
    n_retries : int
        How often a download that fails is tried again.
    delay : float
        Seconds between two tries.
    return_X_y : bool
        True: return ``(data, target)`` only.

    Returns
    -------
    sklearn.utils.Bunch
        ``data`` (CSR array, float64), ``target`` (-1.0 and 1.0), ``DESCR`` and ``name``.

    Raises
    ------
    OSError
        If there is no local file and none can be downloaded; the message says what to do.
    ValueError
        If a local file is not the one its name promises.
    """
    return _fetch("news20", "all", data_home, download_if_missing, n_retries, delay, return_X_y)


def fetch_rcv1(
    *,
    data_home: str | os.PathLike[str] | None = None,
    subset: str = "all",
    download_if_missing: bool = True,
    n_retries: int = 3,
    delay: float = 1.0,
    return_X_y: bool = False,
) -> Any:
    """Load rcv1.binary: 20,242 samples to train and 677,399 to test, 47,236 features, two classes.

    Parameters
    ----------
    data_home : str or path-like, optional
        See `fetch_news20`.  The files are rcv1_train.binary and rcv1_test.binary, or rcv1.binary with the samples of
        both.
    subset : {"all", "train", "test"}
        "all" has the samples to train first.
    download_if_missing, n_retries, delay, return_X_y
        See `fetch_news20`.

    Returns
    -------
    sklearn.utils.Bunch
        See `fetch_news20`.

    Raises
    ------
    OSError, ValueError
        See `fetch_news20`.
    """
    return _fetch("rcv1", subset, data_home, download_if_missing, n_retries, delay, return_X_y)


def fetch_imdb(
    *,
    data_home: str | os.PathLike[str] | None = None,
    subset: str = "train",
    download_if_missing: bool = True,
    n_retries: int = 3,
    delay: float = 1.0,
    return_X_y: bool = False,
) -> Any:
    """Load the film reviews of IMDB from a local folder: 25,000 to train and 25,000 to test, two classes.

    There is no svmlight file of it to download: vectorise the reviews, and put imdb.train and imdb.test, with indices
    from 1 and targets -1 and +1, into the folder.

    Parameters
    ----------
    data_home : str or path-like, optional
        See `fetch_news20`.
    subset : {"train", "test", "all"}
        "all" has the samples to train first.  Each has as many features as the largest index in its files.
    download_if_missing, n_retries, delay, return_X_y
        As in `fetch_news20`; only the last has an effect.

    Returns
    -------
    sklearn.utils.Bunch
        See `fetch_news20`.

    Raises
    ------
    OSError, ValueError
        See `fetch_news20`.
    """
    return _fetch("imdb", subset, data_home, download_if_missing, n_retries, delay, return_X_y)


def _fetch(
    name: str,
    subset: str,
    data_home: str | os.PathLike[str] | None,
    download_if_missing: bool,
    n_retries: int,
    delay: float,
    return_X_y: bool,
) -> Any:
    """Find or download the files of a data set, and stack them."""
    from sklearn.utils import Bunch

    if subset not in _FILES[name]:
        raise ValueError(f"subset must be one of {', '.join(_FILES[name])}, not {subset!r}")
    if n_retries < 0 or not 0 <= delay < float("inf"):
        raise ValueError(f"n_retries and delay must not be negative, not {n_retries!r} and {delay!r}")
    home = get_data_home(data_home)
    store = storage(home)
    files = _chosen(_FILES[name][subset], (home, store))
    paths = [find_file(file.name, (home, store), file.folder) for file in files]
    missing = [file for file, path in zip(files, paths, strict=True) if path is None]
    if any(file.url is None for file in missing):
        raise FileNotFoundError(_absent(missing, home, store, "there is no svmlight file of it to download"))
    if missing and not download_if_missing:
        raise FileNotFoundError(_absent(missing, home, store, "download_if_missing is False"))
    tables = []
    for file, path in zip(files, paths, strict=True):
        if path is not None:
            tables.append(_load(path, file, store))
            continue
        try:
            tables.append(_download(file, store, n_retries, delay))
        except OSError as error:
            raise OSError(_absent(missing[missing.index(file) :], home, store, str(error))) from None
    X, y = _stacked(tables)
    return (X, y) if return_X_y else Bunch(data=X, target=y, DESCR=_DESCR[name], name=name)


def _chosen(options: Sequence[tuple[_File, ...]], homes: Sequence[Path]) -> tuple[_File, ...]:
    """Return the first of the options that is there as a whole, else the first."""
    there = (files for files in options if all(find_file(file.name, homes, file.folder) for file in files))
    return next(there, options[0])


def _absent(missing: Sequence[_File], home: Path, store: Path, why: str) -> str:
    """Say which files are missing, why there is no download, and what to do."""
    names, downloads = (" and ".join(words) for words in zip(*((f.name, f.download) for f in missing), strict=True))
    return f"{names} not found in {home}, and {why}; put {downloads} into {store}, or set {ENVIRONMENT} to its folder"


def _stacked(tables: Sequence[Table]) -> tuple[Any, Any]:
    """Return the samples of all tables, those with fewer features padded with zeros."""
    from scipy.sparse import csr_array, vstack

    if len(tables) == 1:
        return tables[0].X, tables[0].y
    width = max(table.X.shape[1] for table in tables)
    parts: list[Any] = [table.X for table in tables]
    padded = [csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], width)) for X in parts]
    return vstack(padded, format="csr"), np.concatenate([table.y for table in tables if table.y is not None])


def _download(file: _File, store: Path, n_retries: int, delay: float) -> Table:
    """Download a file into its folder and read it; what turns out to be something else is not kept."""
    path = store / file.folder / file.download
    try:
        _retrieve_patiently(file, path, n_retries, delay)
        return _load(path, file, store)
    except ValueError as error:
        path.unlink(missing_ok=True)
        raise OSError(f"{file.url} is not what it should be ({error})") from None


def _retrieve_patiently(file: _File, path: Path, n_retries: int, delay: float) -> None:
    from http.client import HTTPException
    from urllib.error import HTTPError

    for left in range(n_retries, -1, -1):
        try:
            _retrieve(file, path)
            return
        except (OSError, HTTPException) as error:
            if isinstance(error, HTTPError):
                error.close()  # it holds the connection
            if left == 0:
                raise OSError(f"{file.url} could not be downloaded ({one_line(error)})") from None
            logger.info("%s: %s; trying again in %g seconds", file.url, one_line(error), delay)
            time.sleep(delay)


def _made(path: Path) -> AbstractContextManager[BinaryIO]:
    """Return `atomic_write` to a file whose folder may not exist yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return atomic_write(path)


def _retrieve(file: _File, path: Path) -> None:
    """Download a file once; it appears at `path` only when all of it is there."""
    from urllib.request import urlopen  # takes as long to import as the rest of this package's readers

    logger.info("downloading %s to %s", file.url, path)
    digest, size = hashlib.sha256(), 0
    with urlopen(str(file.url), timeout=_TIMEOUT) as response, _made(path) as target:
        while block := response.read(1 << 20):
            digest.update(block)
            size += target.write(block)
        promised = response.headers.get("Content-Length")
        if promised is not None and size != int(promised):
            raise OSError(f"broke off after {size} of {promised} bytes")
        if file.sha256 not in (None, digest.hexdigest()):
            raise ValueError(f"SHA256 checksum {digest.hexdigest()}, where {file.sha256} is expected")


def _load(path: Path, file: _File, store: Path) -> Table:
    """Read a file, from the cache if it has been read before."""
    status = path.stat()
    key = f"diht {_READER} {path} {status.st_size} {status.st_mtime_ns}"
    place = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]  # files of one name from several homes share a store
    cache = store / "cache" / f"{path.name}-{place}.npz"
    table = _cached(cache, key, file)
    if table is None:
        table = read_table(path, n_features=file.features, zero_based=False)
        _check(path, table, file)
        _keep(cache, key, table)
    return table


def _check(path: Path, table: Table, file: _File) -> None:
    """Raise unless the table is what is known of the file."""
    X: Any = table.X
    for what, found, expected in (
        ("samples", X.shape[0], file.samples),
        ("features", X.shape[1], file.features),
        ("nonzeros", X.nnz, file.nonzeros),
    ):
        if expected is not None and found != expected:
            raise ValueError(f"{path}: {found:,} {what}, where {file.name} has {expected:,}: truncated or another file")
    targets = set(np.unique(table.y).tolist()) if table.y is not None else set()
    if targets != {-1.0, 1.0}:
        shown = ", ".join(f"{target!s:.20}" for target in sorted(targets)[:4])
        raise ValueError(f"{path}: the targets are {shown}, where {file.name} has -1 and 1")


def _cached(cache: Path, key: str, file: _File) -> Table | None:
    """Read a parsed table, unless it was made from another file, by another reader, or is damaged."""
    try:
        with open(cache, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            if str(archive["key"]) != key:
                return None
        table = read_npz(os.fspath(cache))
        _check(cache, table, file)
    except Exception as error:  # damaged bytes surface as any of a dozen types, and all mean: parse again
        if not isinstance(error, FileNotFoundError):
            logger.info("%s is not used: %s", cache, one_line(error))
        return None
    return table


def _keep(cache: Path, key: str, table: Table) -> None:
    """Write the cache, uncompressed: it is read several times faster."""
    X: Any = table.X
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape), "y": table.y}
    try:
        with _made(cache) as target:
            np.savez(target, key=np.array(key), **arrays)
    except OSError as error:  # a full or a read-only disk: slower the next time, nothing worse
        logger.warning("no cache: %s", one_line(error))

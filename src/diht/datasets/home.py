"""The folder of the data sets, and the files in it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from diht.datasets.opening import COMPRESSIONS

__all__ = ["ENVIRONMENT", "find_file", "get_data_home", "storage"]

ENVIRONMENT = "DIHT_DATA"
_DEFAULT = Path("~", "diht_data")


def get_data_home(data_home: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of the data sets: the argument, else the environment variable DIHT_DATA, else ~/diht_data.

    It is made if it does not exist and can be made.  ``~`` stands for the user's home folder.

    Parameters
    ----------
    data_home : str or path-like, optional

    Returns
    -------
    pathlib.Path

    Raises
    ------
    NotADirectoryError
        If it is a file.
    """
    home = _expanded(Path(data_home or os.environ.get(ENVIRONMENT) or _DEFAULT))
    with suppress(OSError):  # a folder that cannot be made is one without data
        home.mkdir(parents=True, exist_ok=True)
    if home.exists() and not home.is_dir():
        raise NotADirectoryError(f"data_home: {home} is a file, not a folder")
    return home


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise OSError(f"data_home: {path}: the user has no home folder; set {ENVIRONMENT} to a folder") from None


def storage(home: Path) -> Path:
    """Return where downloads and caches go: into `home`, or into ~/diht_data if `home` is read-only."""
    with suppress(OSError):
        # The permission bits too: a folder that is marked read-only is left alone, even by root, who may write to it.
        if os.access(home, os.W_OK) and home.stat().st_mode & 0o222:
            return home
        return get_data_home(_DEFAULT)
    return home


def find_file(name: str, homes: Iterable[Path], folder: str) -> Path | None:
    """Return the file `name`, plain or compressed, from a home, or from `folder` or a folder `name` in it."""
    places = (home / inner for home in homes for inner in ("", folder, name))
    candidates = (place / (name + suffix) for place in places for suffix in ("", *COMPRESSIONS))
    return next((path for path in candidates if path.is_file()), None)

"""Predictions for Dask collections stay lazy: a method of blocks of rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from diht.dask import is_dask, lazily

__all__ = ["lazy_for_dask"]

Method = TypeVar("Method", bound=Callable[..., Any])


def lazy_for_dask(method: Method) -> Method:
    """Decorate a method of X, so that for a Dask collection it returns a Dask array, block by block."""

    @wraps(method)
    def call(self: Any, X: Any, *others: Any, **named: Any) -> Any:
        if not is_dask(X):
            return method(self, X, *others, **named)
        check_is_fitted(self)
        if any(given is not None for given in (*others, *named.values())):
            raise ValueError(f"{method.__name__} takes nothing beside X where X is a Dask collection")
        kind = getattr(X, "dtype", np.dtype(np.float64))
        row = np.zeros((1, self.n_features_in_), dtype=kind if kind == np.float32 else np.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the row has no names
            like = method(self, row)
        return lazily(partial(_of_block, method.__name__, self, np.shape(like)[1:], like.dtype), X, like)

    return cast(Method, call)


def _of_block(name: str, estimator: Any, shape: tuple[int, ...], dtype: Any, X: Any) -> Any:
    return getattr(estimator, name)(X) if np.shape(X)[0] else np.empty((0, *shape), dtype)

"""Predictions for Dask collections stay lazy, a method of blocks of rows; those of other libraries are in these."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from diht.dask import is_dask, lazily
from diht.estimators.namespaces import in_namespace

__all__ = ["lazy_for_dask"]

Method = TypeVar("Method", bound=Callable[..., Any])


def lazy_for_dask(method: Method) -> Method:
    """Decorate a method of X, so that for a Dask collection it returns a Dask array; of other libraries see `in_namespace`."""

    @wraps(method)
    def call(self: Any, X: Any, *others: Any, **named: Any) -> Any:
        if not is_dask(X):
            return in_namespace(method, self, X, *others, **named)
        check_is_fitted(self)
        names = list(signature(method).parameters)[2:]
        given = {name: v for name, v in (dict(zip(names, others, strict=False)) | named).items() if v is not None}
        for name, values in given.items():
            if not is_dask(values):
                raise ValueError(f"{name} must be a Dask collection with the blocks of X, got {type(values)!r}")
        kind = getattr(X, "dtype", np.dtype(np.float64))
        row = np.zeros((1, self.n_features_in_), dtype=kind if kind == np.float32 else np.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the row has no names
            like = method(self, row)
        of_block = partial(_of_block, method.__name__, self, np.shape(like)[1:], like.dtype, tuple(given))
        return lazily(of_block, X, like, given)

    return cast(Method, call)


def _of_block(name: str, estimator: Any, shape: tuple[int, ...], dtype: Any, names: Any, X: Any, *others: Any) -> Any:
    if not np.shape(X)[0]:
        return np.empty((0, *shape), dtype)
    return getattr(estimator, name)(X, **dict(zip(names, map(np.asarray, others), strict=True)))

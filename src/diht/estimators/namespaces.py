"""scikit-learn's ``array_api_dispatch``: attributes and predictions are arrays of the library, and on the device, of the data."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from sklearn import config_context, get_config
from sklearn.utils.validation import check_is_fitted

from diht.gpu import array_like, is_array_of_others, on_host

__all__ = ["dispatches", "fit_in_namespace", "hosted", "in_namespace"]

_MOVED = ("coef_", "intercept_", "support_")


def dispatches(X: Any) -> bool:
    """Tell whether answers are to be arrays of another library than numpy."""
    return is_array_of_others(X) and bool(get_config()["array_api_dispatch"])


def hosted(estimator: Any) -> Any:
    """Return the estimator, or a copy whose attributes are numpy's where they are not."""
    moved = {name: values for name, values in vars(estimator).items() if is_array_of_others(values)}
    if not moved:
        return estimator
    own = copy(estimator)
    own.__dict__ |= {name: on_host(values) for name, values in moved.items()}
    return own


def fit_in_namespace(estimator: Any, X: Any, y: Any, *others: Any) -> Any:
    """Fit, without dispatch; coefficients are then of X's library, on its device, classes of y's."""
    estimator.__dict__ |= vars(hosted(estimator))  # what a warm start begins from
    with config_context(array_api_dispatch=False):
        estimator.fit(X, y, *others)
    estimator.__dict__ |= {name: array_like(getattr(estimator, name), X) for name in _MOVED if hasattr(estimator, name)}
    if hasattr(estimator, "classes_") and is_array_of_others(y):
        estimator.classes_ = array_like(estimator.classes_, y)
    return estimator


def in_namespace(method: Callable[..., Any], estimator: Any, X: Any, *others: Any, **named: Any) -> Any:
    """Call a method of X; its answer is an array of X's library where the estimator was fitted to such, and dispatch is on."""
    own = hosted(estimator)
    if not dispatches(X):
        return method(own, X, *others, **named)
    check_is_fitted(estimator)
    kind, known = type(X).__module__.split(".")[0], type(estimator.coef_).__module__.split(".")[0]
    if kind != known and {kind, known} != {"jax", "jaxlib"}:
        name = type(estimator).__name__
        raise ValueError(f"X must be an array of {known}, as in fit of this {name}, got one of {kind}")
    with config_context(array_api_dispatch=False):
        found = method(own, X, *map(on_host, others), **{name: on_host(values) for name, values in named.items()})
    return found if getattr(found, "dtype", None) is None or found.dtype.kind in "OUS" else array_like(found, X)

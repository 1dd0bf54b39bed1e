"""Cox's proportional hazards with at most k features."""

from __future__ import annotations

from math import inf
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from diht.constraints.base import Cardinality
from diht.constraints.groups import constrained, indices_of, n_choices
from diht.design import as_design
from diht.estimators.tabular import check_kinds, check_switches, in_words, needs_encoder
from diht.problem import finite_vector, positive_number
from diht.solvers.loop import Limits
from diht.survival.partial import TIES, Censored, PartialLikelihood
from diht.survival.scores import baseline_hazard, brier_scores, concordance
from diht.survival.solve import CoxProblem, solve_cox
from diht.tables.frame import check_unique, is_frame

__all__ = ["SparseCox"]

Vector = NDArray[np.float64]


class SparseCox(BaseEstimator):  # type: ignore[misc]
    r"""Proportional hazards with at most k features, and a proved bound on how much better another choice of features could be.

    The hazard of a sample is that of its stratum times exp(x.w). Fitting minimises

    .. math:: \frac1N \Big( \sum_t c_t \log S_t(Xw) - \sum_{i \text{ an event}} s_i x_i^\top w \Big) + \frac\lambda2 \|w\|^2
              \quad \text{subject to} \quad \|w\|_0 \le k ,

    minus the logarithm of the partial likelihood of all N samples, divided by N, with the weights s of mean one (1 by default).

    Parameters
    ----------
    k : int, default=10
        The largest number of features used.
    lam : float, default=1e-3
        The ridge's strength, positive.
    ties : {"efron", "breslow"}, default="efron"
        What stands for the likelihood of events at the same time.
    exact : bool, default=False
        Whether to branch until the gap is within `tol` or `time_limit` is reached, and not 30 nodes at most.
    standardize : bool, default=True
        Whether columns are divided by their standard deviations, so that the ridge treats them alike. Objective and bound are then
        those of the scaled columns; `coef_` belongs to the columns of X.
    tol : float, default=1e-4
        The relative gap at which a model counts as optimal.
    time_limit : float, optional
        Seconds after which the best model so far is taken.
    keep : array of int or of bool, optional
        Features that every model may use, besides k others.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        At most k are not zero.
    support_ : ndarray of int
        The features of the model, ascending.
    objective_, lower_bound_, gap_ : float
        The model's objective, what no model with k features can be below, in exact arithmetic, and their difference.
    status_ : str
        "optimal" where the gap is within `tol`, else "time_limit" or "node_limit".
    n_nodes_ : int
        Nodes of the search tree.
    baseline_ : dict
        For each stratum, by its label, the times of its events and the cumulative hazard of a sample at `center_`.
    center_ : ndarray of shape (n_features,)
        The weighted means of the columns.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    The partial likelihood is no sum over samples: `solve` and its methods, paths, cross-validation, files and reports of the other
    estimators do not know it. X is dense, in memory.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import SparseCox
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 10))
    >>> time = rng.exponential(np.exp(-X[:, 3] + X[:, 7]))
    >>> model = SparseCox(k=2, lam=0.01).fit(X, time, np.ones(200, dtype=bool))
    >>> model.support_
    array([3, 7])
    >>> model.gap_ <= 1e-4 * model.objective_
    True
    """

    def __init__(
        self,
        k: int = 10,
        lam: float = 1e-3,
        ties: str = "efron",
        exact: bool = False,
        standardize: bool = True,
        tol: float = 1e-4,
        time_limit: float | None = None,
        keep: ArrayLike | None = None,
    ) -> None:
        self.k = k
        self.lam = lam
        self.ties = ties
        self.exact = exact
        self.standardize = standardize
        self.tol = tol
        self.time_limit = time_limit
        self.keep = keep

    def fit(
        self,
        X: Any,
        time: Any,
        event: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        entry: ArrayLike | None = None,
        strata: ArrayLike | None = None,
    ) -> SparseCox:
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        time : array-like of shape (n_samples,)
            When a sample had its event, or was last seen. Or an array with two fields, whether it is an event and the time, as
            scikit-survival has it; without `event` then.
        event : array-like of bool of shape (n_samples,)
            Whether `time` is that of the event.
        sample_weight : array-like of shape (n_samples,), optional
            Not negative; only their ratios matter.
        entry : array-like of shape (n_samples,), optional
            Samples are at risk after these times only (left truncation).
        strata : array-like of shape (n_samples,), optional
            Labels; each stratum has a baseline hazard of its own.

        Returns
        -------
        SparseCox
        """
        began = perf_counter()
        check_switches(self)
        Limits.checked(self.tol, None, self.time_limit, None)
        X = self._validated(X)
        labels, data = censored(len(X), time, event, sample_weight, entry, strata)
        if self.ties not in TIES:
            raise ValueError(f"ties must be one of {list(TIES)}, got {self.ties!r}")
        likelihood = PartialLikelihood(data, self.ties)
        if not likelihood.strata:
            raise ValueError("event must hold an event of positive weight")
        problem, scale = self._problem(X, data, likelihood)
        limit = inf if self.time_limit is None else float(self.time_limit)
        nodes = inf if self.exact else _NODES
        fit, bound, self.n_nodes_ = solve_cox(problem, self.tol, nodes, lambda: perf_counter() - began > limit)
        self.coef_ = fit.w / scale
        self.support_ = fit.support
        self.objective_, self.lower_bound_ = fit.value, min(bound, fit.value)
        self.gap_ = self.objective_ - self.lower_bound_
        closed, late = self.gap_ <= self.tol * abs(self.objective_), perf_counter() - began > limit
        self.status_ = "optimal" if closed else "time_limit" if late else "node_limit"
        self._strata, self._given = labels, strata is not None
        self._train = data
        hazards = baseline_hazard(likelihood, problem.X @ fit.w)
        self.baseline_ = {labels[g]: hazards[g] for g in hazards}
        return self

    def _validated(self, X: Any, reset: bool = True) -> Vector:
        """Return X as scikit-learn checks it; what is wrong with it names its columns."""
        if is_frame(X):
            check_unique(X)
        check_kinds(X)
        if reset and needs_encoder(self, X):
            raise ValueError("X must hold numbers: TableEncoder().fit_transform(X) makes some of texts and categories")
        try:
            return np.asarray(validate_data(self, X, reset=reset, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise in_words(error, X, X.columns if is_frame(X) else None) from None

    def _problem(self, X: Vector, data: Censored, likelihood: PartialLikelihood) -> tuple[CoxProblem, Vector]:
        """Return the problem of the centred and scaled columns, and the scales."""
        lam = positive_number("lam", self.lam)
        d = X.shape[1]
        self.center_ = np.average(X, axis=0, weights=data.weight)
        centred = X - self.center_
        scale = np.sqrt(np.average(np.square(centred), axis=0, weights=data.weight)) if self.standardize else np.ones(d)
        scale = np.where(scale > len(X) * np.finfo(np.float64).eps * np.abs(self.center_), scale, 1.0)
        columns = np.ascontiguousarray(centred / scale)
        keep = indices_of("keep", self.keep, getattr(self, "feature_names_in_", None))
        constraint = constrained(min(Cardinality(self.k).k, n_choices(d, keep, None)), d, keep)
        return CoxProblem(likelihood, as_design(columns, 1), columns, constraint, lam), scale

    def predict(self, X: Any) -> Vector:
        """Return x.w, less its mean over the samples of the fit: the logarithm of the hazard beside that of the baseline."""
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        return np.asarray((X - self.center_) @ self.coef_)

    def predict_survival(self, X: Any, times: ArrayLike, strata: ArrayLike | None = None) -> Vector:
        """Return the probabilities of no event up to some times, a row for each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        times : array-like of shape (n_times,)
        strata : array-like of shape (n_samples,), optional
            The stratum of each sample, where the model was fitted with some.
        """
        u = self.predict(X)
        times = finite_vector("times", np.atleast_1d(times), np.size(times))
        if (strata is not None) != self._given:
            raise ValueError("strata must be given where they were in fit, and only there")
        own = np.full(len(u), self._strata[0], dtype=object) if strata is None else np.asarray(strata, dtype=object)
        survival = np.empty((len(u), len(times)))
        for i, label in enumerate(own.tolist()):
            if label not in self.baseline_:
                raise ValueError(f"strata must be among those of the fit that have events, got {label!r}")
            at, hazard = self.baseline_[label]
            survival[i] = np.append(0.0, hazard)[np.searchsorted(at, times, side="right")]
        with np.errstate(over="ignore"):
            return np.exp(-survival * np.exp(u)[:, None])

    def score(self, X: Any, time: Any, event: ArrayLike | None = None) -> float:
        """Return Harrell's concordance of the predictions: .5 where they know nothing, 1 where they order all events."""
        u = self.predict(X)
        data = censored(len(u), time, event, None, None, None)[1]
        return concordance(data.time, data.event, u)

    def brier_score(
        self, X: Any, time: Any, event: ArrayLike | None, times: ArrayLike, strata: ArrayLike | None = None
    ) -> Vector:
        """Return the mean squared error of predicted survival at some times, with weights for what is censored: 0 is best."""
        survival = self.predict_survival(X, times, strata)
        data = censored(len(survival), time, event, None, None, None)[1]
        return brier_scores(self._train, data, np.atleast_1d(np.asarray(times, dtype=np.float64)), survival)


_NODES = 30  # of the search tree, where it need not end


def censored(n: int, time: Any, event: Any, sample_weight: Any, entry: Any, strata: Any) -> tuple[list[Any], Censored]:
    """Return the labels of the strata, and what is known of n samples, checked."""
    given = np.asarray(time)
    if given.dtype.names is not None:
        if event is not None or len(given.dtype.names) != 2:
            raise ValueError("time must have two fields, event and time, and event must not be given besides")
        first, second = given.dtype.names
        event, given = given[first], given[second]
    if event is None:
        raise ValueError("event must be given, or time must have two fields, event and time")
    times, events = finite_vector("time", given, n), finite_vector("event", np.asarray(event), n)
    if not np.all((events == 0.0) | (events == 1.0)):
        raise ValueError("event must be True or False, or 1 or 0, for each sample")
    entries = np.full(n, -np.inf) if entry is None else finite_vector("entry", entry, n)
    if np.any(entries >= times):
        bad = int(np.flatnonzero(entries >= times)[0])
        raise ValueError(f"entry must be before time, got {entries[bad]:g} and {times[bad]:g} at position {bad}")
    weight = np.ones(n) if sample_weight is None else finite_vector("sample_weight", sample_weight, n)
    if np.any(weight < 0.0) or not np.any(weight > 0.0):
        raise ValueError("sample_weight must not be negative, and not all zero")
    labels, stratum = [None], np.zeros(n, dtype=np.int64)
    if strata is not None:
        values = np.asarray(strata)
        if values.shape != (n,):
            raise ValueError(f"strata must hold a label for each of the {n} samples, got shape {values.shape}")
        found, stratum = np.unique(values, return_inverse=True)
        labels = found.tolist()
    return labels, Censored(times, entries, events == 1.0, stratum, weight / weight.mean())

"""Cox's proportional hazards with at most k features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from diht.estimators.joint import JointModel
from diht.estimators.parameters import keep_parameters
from diht.estimators.path import Path
from diht.joint.likelihood import Named
from diht.numerics.arrays import Indices, Vector
from diht.persistence.joint import JointFile
from diht.problem import finite_vector
from diht.survival.partial import TIES, Censored, PartialLikelihood
from diht.survival.scores import baseline_hazard, brier_scores, concordance

__all__ = ["SparseCox"]


class SparseCox(JointModel):
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
    result_, certificate_
        These figures as `SparseRegressor` has them; the proof is not kept.
    baseline_ : dict
        For each stratum, by its label, the times of its events and the cumulative hazard of a sample at `center_`.
    center_ : ndarray of shape (n_features,)
        The weighted means of the columns.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Notes
    -----
    The partial likelihood is no sum over samples: `solve` and `certify` do not know it. Paths, cross-validation, files and
    reports are methods of the estimator. X is dense, in memory.

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

    _task: ClassVar[str] = "survival"

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
        keep_parameters(self, locals())

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
        self._check_settings()
        X = self._validated(X)
        labels, data = censored(len(X), time, event, sample_weight, entry, strata)
        likelihood = self._likelihood(data)
        u = self._solve(X, data.weight, likelihood)
        self._strata, self._given = labels, strata is not None
        self._train: Censored | None = data
        hazards = baseline_hazard(likelihood, u)
        self.baseline_ = {labels[g]: hazards[g] for g in hazards}
        return self

    def _likelihood(self, data: Censored) -> PartialLikelihood:
        if self.ties not in TIES:
            raise ValueError(f"ties must be one of {list(TIES)}, got {self.ties!r}")
        likelihood = PartialLikelihood(data, self.ties)
        if not likelihood.strata:
            raise ValueError("event must hold an event of positive weight")
        return likelihood

    def path(
        self,
        X: Any,
        time: Any,
        event: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        entry: ArrayLike | None = None,
        strata: ArrayLike | None = None,
        *,
        ks: Sequence[int] | None = None,
    ) -> Path:
        """Fit models for many k, each from the one before and with a bound of its own; the estimator stays as it is.

        Parameters
        ----------
        X, time, event, sample_weight, entry, strata
            As in `fit`.
        ks : sequence of int, optional
            Numbers of features; by default some from 1 to 50, or to all.

        Returns
        -------
        Path
            As `sparse_path` returns it. Its criteria count the samples, not the events.
        """
        self._check_settings()
        model = clone(self)
        X = model._validated(X)
        data = censored(len(X), time, event, sample_weight, entry, strata)[1]
        path: Path = model._followed(X, data.weight, model._likelihood(data), ks, self._named())
        return path

    def cross_validated(
        self,
        X: Any,
        time: Any,
        event: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        entry: ArrayLike | None = None,
        strata: ArrayLike | None = None,
        *,
        ks: Sequence[int] | None = None,
        cv: Any = None,
    ) -> SparseCox:
        """Choose k by cross-validation, and fit: the least k whose mean concordance is within one standard error of the best.

        Parameters
        ----------
        X, time, event, sample_weight, entry, strata
            As in `fit`.
        ks : sequence of int, optional
            Numbers of features to try; by default about ten, up to 30 or a tenth of the samples.
        cv : int or cross-validation generator, optional
            The folds, five by default, with as many events in each as can be.

        Returns
        -------
        SparseCox
            Another estimator, fitted, with `best_k_` and `cv_results_` as that of scikit-learn's `GridSearchCV`.
        """
        self._check_settings()
        rows = clone(self)._validated(X)
        data = censored(len(rows), time, event, sample_weight, entry, strata)[1]

        def likelihood_of(train: Indices) -> tuple[PartialLikelihood, Vector]:
            part = data.taken(train)
            part = part._replace(weight=part.weight / part.weight.mean())
            return self._likelihood(part), part.weight

        def score(coef: Vector, center: Vector, train: Indices, test: Indices) -> float:
            held = data.taken(test)
            return concordance(held.time, held.event, (rows[test] - center) @ coef)

        found = self._chosen(rows, data.event.astype(np.int64), likelihood_of, score, ks, cv)
        fitted: SparseCox = found.fit(X, time, event, sample_weight, entry, strata)
        return fitted

    def _named(self) -> Named:
        return Named(f"partial_likelihood_({self.ties})")

    def _extra(self) -> dict[str, Any]:
        strata = [
            {"label": label, "times": times.tolist(), "hazard": hazard.tolist()}
            for label, (times, hazard) in self.baseline_.items()
        ]
        return {"ties": self.ties, "stratified": self._given, "baseline": strata}

    def _taken(self, file: JointFile) -> None:
        super()._taken(file)
        self.ties, self._given, self._train = file.extra["ties"], file.extra["stratified"], None
        self.baseline_ = {
            part["label"]: (np.array(part["times"]), np.array(part["hazard"])) for part in file.extra["baseline"]
        }
        self._strata = list(self.baseline_)

    def predict(self, X: Any) -> Vector:
        """Return x.w, less its mean over the samples of the fit: the logarithm of the hazard beside that of the baseline."""
        return self._centred(X)

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
        train = self._train
        if train is None:
            raise ValueError(
                "brier_score needs the times of the fit, which a model that was read from a file does not have"
            )
        survival = self.predict_survival(X, times, strata)
        data = censored(len(survival), time, event, None, None, None)[1]
        return brier_scores(train, data, np.atleast_1d(np.asarray(times, dtype=np.float64)), survival)


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
    labels, stratum = [""], np.zeros(n, dtype=np.int64)
    if strata is not None:
        values = np.asarray(strata)
        if values.shape != (n,):
            raise ValueError(f"strata must hold a label for each of the {n} samples, got shape {values.shape}")
        found, stratum = np.unique(values, return_inverse=True)
        labels = found.tolist()
    return labels, Censored(times, entries, events == 1.0, stratum, weight / weight.mean())

r"""After the selection: coefficients without the ridge, bootstrap intervals, and how stable the choice of features is.

All are functions of a fitted estimator and of data, which may be the data of the fit or other data. A resample is a vector of
weights: how often a sample was drawn, or whether it is in the half that is looked at. X is neither copied nor changed; where the
features are fixed, only their columns are read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.parallel import Parallel, delayed

from diht.constraints.groups import constrained
from diht.estimators.base import blas_threads
from diht.estimators.equations import Data, Estimator, FittedEquation, NoMinimumError, as_estimator, equations_of
from diht.estimators.path import choices_among
from diht.estimators.tabular import encoded_names, wanted_of
from diht.numerics.arrays import Array, Indices, Vector
from diht.numerics.interrupt import not_interruptible
from diht.report.plots import Frequencies, Ranges, draw_frequencies, draw_ranges
from diht.solvers.auto import Auto
from diht.solvers.loop import as_solver

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

__all__ = ["Intervals", "Stability", "bootstrap", "debiased", "stability_selection"]

Equation: TypeAlias = tuple[Indices, Vector, float]  # features, their coefficients, the intercept

_SPEAK_OF_THE_RIDGE = (
    *("result_", "certificate_", "objective_", "lower_bound_", "gap_", "n_iter_", "n_samples_fit_"),
    *("path_", "saved_"),
)
_INTERCEPT = -1  # in place of a feature
_METHODS = "percentile", "basic"

# ---------------------------------------------------------------------------------------------------------------------
# Without the ridge


def debiased(
    estimator: Estimator,
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    offset: ArrayLike | None = None,
) -> Estimator:
    """Fit the features of a fitted estimator once more, without the ridge that shrinks their coefficients.

    Parameters
    ----------
    estimator : SparseRegressor, SparseClassifier, or one of those that choose k
        A fitted estimator.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        The samples.
    y : array-like of shape (n_samples,)
        The targets, or the classes.
    sample_weight : array-like of shape (n_samples,), optional
        Nonnegative weights; only their ratios matter.
    offset : array-like of shape (n_samples,), optional
        Known parts of the predictions, as in `SparseRegressor.fit`.

    Returns
    -------
    estimator
        A copy with other `coef_` and `intercept_`: least squares, maximum likelihood, or whatever the loss is, on `support_`. What
        speaks of the model with its ridge (`certificate_`, `objective_`, `result_` and so on) is left out. The signs that the
        estimator asks for are kept, and the classes' weights.

    Raises
    ------
    ValueError
        Where no finite coefficients are the best: the logistic loss falls for ever where the features separate the classes.

    Warns
    -----
    UserWarning
        Where the columns are linearly dependent. Of all best coefficients those of least norm are then taken, in units in which the
        columns have norm one.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import SparseRegressor, debiased
    >>> X = np.random.default_rng(0).normal(size=(100, 20))
    >>> y = X[:, 3] - 2 * X[:, 8]
    >>> model = SparseRegressor(k=2, lam=1.0).fit(X, y)
    >>> debiased(model, X, y).coef_[[3, 8]].round(6)
    array([ 1., -2.])
    """
    estimator = as_estimator(estimator)
    data = Data.of(estimator, X, y, sample_weight, offset)
    s = data.weights(estimator, np.ones(len(data.y)))
    coef, intercepts, dependent = np.zeros((len(data.targets), data.X.shape[1])), [], []
    for j, row in enumerate(equations_of(estimator, data)):
        x, intercept, unique = row.without_ridge(estimator, s)
        coef[j, row.support] = x
        intercepts.append(intercept)
        dependent += [] if unique else [row.label]
    if dependent:
        message = f"{dependent[0]}the columns of the support are linearly dependent: their coefficients are those of least norm"
        warnings.warn(message, UserWarning, stacklevel=2)
    model = copy(estimator)
    for name in _SPEAK_OF_THE_RIDGE:
        model.__dict__.pop(name, None)
    dtype = data.X.dtype
    model.__dict__ |= model._model(coef.astype(dtype), np.array(intercepts, dtype=dtype))
    return model


def _names(estimator: Estimator, n_features: int) -> tuple[str, ...]:
    return encoded_names(estimator, n_features)


def _unfitted(estimator: Estimator, n_features: int, n_threads: int | None) -> Estimator:
    """Return the estimator to be fitted to resamples.

    Each fit starts from nothing: from the model of all samples a method may not get away, and choices on resamples would agree with
    it, and with one another, more than their samples do. As in cross-validation, the default method makes no search tree: a proof
    would be of a resample.
    """
    given: dict[str, Any] = wanted_of(estimator, n_features)._asdict()
    given["encoder"] = None  # of columns that are encoded already
    method = as_solver(estimator._method())
    if isinstance(method, Auto):
        given["solver"] = replace(method, branching=False)
    model: Estimator = clone(estimator).set_params(n_jobs=n_threads, verbose=False, **given)
    return model


def _each(job: Callable[[int], Any], n: int, n_jobs: int | None) -> list[Any]:
    """Do a job for each number below n, in threads."""
    threads = effective_n_jobs(n_jobs)
    with blas_threads(1 if threads > 1 else n_jobs):
        done: list[Any] = Parallel(n_jobs=threads, prefer="threads")(delayed(job)(i) for i in range(n))
    return done


# ---------------------------------------------------------------------------------------------------------------------
# Intervals


@dataclass(frozen=True, eq=False)
class Intervals:
    """Coefficients with confidence intervals; the intercept, where there is one, comes last (last of its class).

    Attributes
    ----------
    feature : array of int of shape (n_terms,)
        The feature of each coefficient; -1 for an intercept.
    equation : array of int of shape (n_terms,)
        Which class it speaks for, where there are more than two; else 0.
    coef, low, high, standard_error : arrays of shape (n_terms,)
        Coefficients, the ends of their intervals, and the standard deviations over the resamples.
    frequency : array of shape (n_terms,)
        The fraction of resamples in which the coefficient is not zero.
    samples : array of shape (n_resamples, n_terms)
        The coefficients of every resample.
    confidence_level : float
    n_failed : int
        Resamples that had no (single) best model without a ridge and were left out.
    names : tuple of str
        What the coefficients belong to.
    classes : tuple of str
        The classes, where there are more than two.
    reselected : bool
        Whether the features were chosen anew in every resample. If not, the intervals know nothing of the choice.
    """

    feature: Indices
    equation: Indices
    coef: Vector
    low: Vector
    high: Vector
    standard_error: Vector = field(repr=False)
    frequency: Vector = field(repr=False)
    samples: Vector = field(repr=False)
    confidence_level: float
    n_failed: int
    names: tuple[str, ...] = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)
    reselected: bool

    def to_frame(self) -> DataFrame:
        """Return a table of the coefficients; needs pandas."""
        columns: dict[str, Any] = {"class": [self.classes[j] for j in self.equation]} if self.classes else {}
        columns |= {"feature": list(self.names)}
        for name in ("coef", "low", "high", "standard_error", "frequency"):
            columns[name] = getattr(self, name)
        return _frame(columns)

    def plot(self) -> Figure:
        """Draw the coefficients with their intervals, the largest on top and without intercepts; needs matplotlib."""
        _need_matplotlib()
        shown = np.flatnonzero(self.feature != _INTERCEPT)
        prefix = [f"{self.classes[j]}: " if self.classes else "" for j in self.equation]
        ranges = Ranges([prefix[i] + self.names[i] for i in shown], self.coef[shown], self.low[shown], self.high[shown])
        how = "chosen anew" if self.reselected else "fixed"
        return draw_ranges(ranges, f"{100 * self.confidence_level:g}% intervals, features {how}", "coefficient")


@not_interruptible()
def bootstrap(
    estimator: Estimator,
    X: Any,
    y: ArrayLike,
    *,
    n_resamples: int = 1000,
    confidence_level: float = 0.95,
    method: str = "percentile",
    reselect: bool = False,
    debias: bool = False,
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    offset: ArrayLike | None = None,
) -> Intervals:
    """Confidence intervals for the coefficients of a fitted estimator, by drawing samples with replacement.

    Parameters
    ----------
    estimator : SparseRegressor, SparseClassifier, or one of those that choose k
        A fitted estimator.
    X, y, sample_weight, offset
        The data, as in `debiased`. A sample is drawn as one, whatever its weight.
    n_resamples : int, default=1000
        Number of resamples.
    confidence_level : float, default=0.95
        How often an interval is meant to hold the coefficient.
    method : {"percentile", "basic"}, default="percentile"
        Quantiles of the resamples' coefficients, or these reflected at the coefficient.
    reselect : bool, default=False
        Whether the estimator chooses its features anew in every resample (and one of those with `CV` its k and lam, too): a
        coefficient is zero where its feature was not chosen. By default the features are those of the estimator.
    debias : bool, default=False
        Whether fits end without a ridge, as in `debiased`: a ridge shrinks coefficients, and intervals with them.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.
    n_jobs : int or None, default=None
        Resamples at a time, each in a thread of its own; -1 for all processors.

    Returns
    -------
    Intervals
        Coefficients with intervals, a table (`to_frame`) and a picture (`plot`).

    Notes
    -----
    On fixed features the intervals are those of someone who had these features in mind before seeing the data. If the same data
    chose them the intervals are too short, and coefficients too far from zero. Honest are: data that had no part in the selection,
    given here as X and y; or `reselect=True` for how much the whole procedure varies, which is no interval for a coefficient of
    the true model either, but shows when a selection is a matter of chance.

    Where a resample of a classification lacks a class, it is drawn again.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import SparseRegressor, bootstrap
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> y = X[:, 3] - 2 * X[:, 8] + np.random.default_rng(1).normal(size=200)
    >>> model = SparseRegressor(k=2).fit(X[:100], y[:100])
    >>> intervals = bootstrap(model, X[100:], y[100:], n_resamples=200, random_state=0)
    >>> intervals.names
    ('x3', 'x8', 'intercept')
    >>> bool(intervals.low[1] < -2 < intervals.high[1])
    True
    """
    _check_whole("n_resamples", n_resamples, 2)
    _check_between("confidence_level", confidence_level, 0.0, 1.0)
    if method not in _METHODS:
        raise ValueError(f"method must be one of {list(_METHODS)}, got {method!r}")
    estimator = as_estimator(estimator)
    data = Data.of(estimator, X, y, sample_weight, offset)
    fit = _choosing if reselect else _fixed
    equations: Callable[[Vector], list[Equation]] = fit(
        estimator, data, debias, 1 if effective_n_jobs(n_jobs) > 1 else estimator.n_jobs
    )
    seeds = check_random_state(random_state).randint(2**31 - 1, size=n_resamples)

    def job(i: int) -> list[Equation] | None:
        (counts,) = data.drawn(int(seeds[i]), lambda rng, rows: [rng.choice(rows, len(rows))])
        try:
            return equations(counts)
        except NoMinimumError:
            return None

    found = equations(np.ones(len(data.y)))
    resampled = [one for one in _each(job, n_resamples, n_jobs) if one is not None]
    n_failed = n_resamples - len(resampled)
    if n_failed:
        message = f"{n_failed} of the {n_resamples} resamples have no single best model without a ridge"
        if n_failed > n_resamples // 2:
            raise ValueError(message)
        warnings.warn(f"{message}: they are left out", UserWarning, stacklevel=3)
    return _intervals(estimator, found, resampled, n_failed, float(confidence_level), method, reselect)


def _fixed(estimator: Estimator, data: Data, debias: bool, n_threads: int | None) -> Any:
    """Return what fits the estimator's features to a resample."""
    rows = equations_of(estimator, data)

    def equations(counts: Vector) -> list[Equation]:
        s = data.weights(estimator, counts)
        return [(row.support, *_coefficients_of(row, estimator, s, debias)) for row in rows]

    return equations


def _choosing(estimator: Estimator, data: Data, debias: bool, n_threads: int | None) -> Any:
    """Return what chooses features and fits them to a resample."""
    unfitted = _unfitted(estimator, data.X.shape[1], n_threads)

    def equations(counts: Vector) -> list[Equation]:
        model = data.fitted(unfitted, counts)
        rows = equations_of(model, data)
        if not debias:
            return [(row.support, row.x, row.intercept) for row in rows]
        s = data.weights(model, counts)
        return [(row.support, *_coefficients_of(row, model, s, debias)) for row in rows]

    return equations


def _coefficients_of(row: FittedEquation, estimator: Estimator, s: Vector, debias: bool) -> tuple[Vector, float]:
    if not debias:
        return row.with_ridge(estimator, s)
    x, intercept, unique = row.without_ridge(estimator, s)
    if not unique:
        raise NoMinimumError(
            f"{row.label}the columns of the support are linearly dependent: no coefficients are the only best"
        )
    return x, intercept


def _intervals(
    estimator: Estimator, found: list[Equation], resampled: list[list[Equation]], n_failed: int, level: float,
    method: str, reselected: bool,
) -> Intervals:  # fmt: skip
    """Line up the coefficients of all resamples, and take quantiles."""
    terms = [
        (j, int(feature))
        for j in range(len(found))
        for feature in [*_ever(j, [found, *resampled]), *[_INTERCEPT] * bool(estimator.fit_intercept)]
    ]
    places = {term: i for i, term in enumerate(terms)}
    samples = np.zeros((len(resampled) + 1, len(terms)))
    for row, equations in zip(samples, [found, *resampled], strict=True):
        for j, (support, x, intercept) in enumerate(equations):
            row[[places[j, feature] for feature in support.tolist()]] = x
            if estimator.fit_intercept:
                row[places[j, _INTERCEPT]] = intercept
    coef, samples = samples[0], samples[1:]
    low, high = np.quantile(samples, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    if method == "basic":
        low, high = 2.0 * coef - high, 2.0 * coef - low
    names = _names(estimator, estimator._rows().shape[1])
    return Intervals(
        feature=np.array([feature for _, feature in terms], dtype=np.int64),
        equation=np.array([j for j, _ in terms], dtype=np.int64),
        coef=coef,
        low=low,
        high=high,
        standard_error=samples.std(axis=0, ddof=1),
        frequency=np.mean(samples != 0.0, axis=0),
        samples=samples,
        confidence_level=level,
        n_failed=n_failed,
        names=tuple("intercept" if feature == _INTERCEPT else names[feature] for _, feature in terms),
        classes=tuple(map(str, estimator.classes_)) if len(found) > 1 else (),
        reselected=reselected,
    )


def _ever(j: int, models: list[list[Equation]]) -> Iterator[int]:
    """Features that any model has in its equation j, ascending."""
    return iter(np.unique(np.concatenate([model[j][0] for model in models])).tolist())


# ---------------------------------------------------------------------------------------------------------------------
# Stability


@dataclass(frozen=True, eq=False)
class Stability:
    r"""How often each feature was chosen on halves of the samples.

    Attributes
    ----------
    frequency : array of shape (n_features,)
        The fraction of the halves on which a feature was chosen (with groups: its group; with several classes: for any of them).
    threshold : float
        The frequency from which a feature counts as stable. `dataclasses.replace(stability, threshold=...)` has another.
    n_selected : float
        The mean number of features (or groups) chosen on a half, besides those to keep.
    n_choices : int
        Of how many.
    feature_names : tuple of str
    """

    frequency: Vector = field(repr=False)
    threshold: float
    n_selected: float
    n_choices: int
    feature_names: tuple[str, ...] = field(repr=False)

    def __post_init__(self) -> None:
        _check_between("threshold", self.threshold, 0.5, 1.0, closed=True)

    @property
    def selected(self) -> Indices:
        """The stable features, ascending."""
        return np.flatnonzero(self.frequency >= self.threshold * (1.0 - 1e-12))

    @property
    def error_bound(self) -> float:
        r"""At most so many of the stable features (or groups) are expected to be false; see `stability_selection`."""
        return self.n_selected**2 / ((2.0 * self.threshold - 1.0) * self.n_choices)

    def get_feature_names_out(self) -> Array:
        """Return the names of the stable features."""
        return np.array([self.feature_names[j] for j in self.selected], dtype=object)

    def to_frame(self) -> DataFrame:
        """Return a table of the features that were ever chosen, the most frequent first; needs pandas."""
        order = self._order()
        return _frame({
            "feature": [self.feature_names[j] for j in order],
            "frequency": self.frequency[order],
            "stable": np.isin(order, self.selected),
        })  # fmt: skip

    def plot(self) -> Figure:
        """Draw how often the features were chosen, the most frequent on top, and the threshold; needs matplotlib."""
        _need_matplotlib()
        order = self._order()
        names = [self.feature_names[j] for j in order]
        shares = Frequencies(names, self.frequency[order], np.isin(order, self.selected), self.threshold)
        return draw_frequencies(shares, "how often a feature was chosen", "share of the half samples")

    def _order(self) -> Indices:
        ever = np.flatnonzero(self.frequency)
        return np.asarray(ever[np.argsort(-self.frequency[ever], kind="stable")])


@not_interruptible()
def stability_selection(
    estimator: Estimator,
    X: Any,
    y: ArrayLike,
    *,
    n_resamples: int = 100,
    threshold: float = 0.75,
    complementary: bool = True,
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    offset: ArrayLike | None = None,
) -> Stability:
    r"""Count how often each feature is chosen on random halves of the samples.

    Parameters
    ----------
    estimator : SparseRegressor, SparseClassifier, or one of those that choose k
        A fitted estimator, which is fitted anew to every half; one of those with `CV` chooses k and lam anew, too. For a fixed k
        take ``SparseRegressor(k=model.best_k_, lam=model.best_lam_)``.
    X, y, sample_weight, offset
        The data, as in `debiased`.
    n_resamples : int, default=100
        Number of halves.
    threshold : float, default=0.75
        The frequency from which a feature counts as stable, above 1/2.
    complementary : bool, default=True
        Whether halves come in pairs without a common sample (Shah and Samworth, 2013), so that `n_resamples` is even. The bound
        below then holds for any number of halves, not only for all that there are.
    random_state : int, RandomState instance or None, default=None
        Seed of the draws.
    n_jobs : int or None, default=None
        Halves at a time, each in a thread of its own; -1 for all processors.

    Returns
    -------
    Stability
        The frequencies, the stable features (`selected`), the bound (`error_bound`), a table (`to_frame`) and a picture (`plot`).

    Notes
    -----
    With q the mean number of features chosen on a half, :math:`\pi` the threshold and d features, the expected number V of false
    ones among the stable ones is bounded (Meinshausen and Buehlmann, 2010, Theorem 1):

    .. math:: E(V) \le \frac{q^2}{(2 \pi - 1) d} .

    It is assumed that the false features are exchangeable, as likely to be chosen as one another, and that true ones are chosen no
    less often than by guessing at random. Correlated features make the first doubtful; two copies of a true feature share its
    frequency, and neither may be stable. q is the mean over the halves drawn here, an estimate. The bound is of use where q is
    small beside :math:`\sqrt{d}`: choose k by it rather than by prediction. With groups all this speaks of groups; features to
    keep are no choices and do not count.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import SparseRegressor, stability_selection
    >>> X = np.random.default_rng(0).normal(size=(200, 100))
    >>> y = X[:, 3] - 2 * X[:, 8] + np.random.default_rng(1).normal(size=200)
    >>> model = SparseRegressor(k=4, lam=0.1).fit(X, y)
    >>> stability = stability_selection(model, X, y, n_resamples=10, random_state=0)
    >>> stability.selected
    array([3, 8])
    >>> round(stability.error_bound, 2)
    0.32
    """
    _check_whole("n_resamples", n_resamples, 2)
    _check_between("threshold", threshold, 0.5, 1.0, closed=True)
    if complementary and n_resamples % 2:
        raise ValueError(f"n_resamples must be even for complementary pairs, got {n_resamples}")
    estimator = as_estimator(estimator)
    data = Data.of(estimator, X, y, sample_weight, offset)
    d, pairs = data.X.shape[1], 1 + bool(complementary)
    unfitted = _unfitted(estimator, d, 1 if effective_n_jobs(n_jobs) > 1 else estimator.n_jobs)
    choices_among(d, unfitted.keep, unfitted.groups)  # there have to be some
    constraint = constrained(1, d, unfitted.keep, unfitted.groups, None, None)
    inside = constraint.free(d)[1]
    seeds = check_random_state(random_state).randint(2**31 - 1, size=n_resamples // pairs)

    def halves(rng: np.random.Generator, rows: Indices) -> list[Indices]:
        half, order = len(rows) // 2, rng.permutation(rows)
        return [order[:half], order[half : 2 * half]][:pairs]

    def job(i: int) -> Indices:
        counts = data.drawn(int(seeds[i // pairs]), halves)[i % pairs]
        return constraint.closure(np.union1d(data.fitted(unfitted, counts).support_, inside))

    chosen = _each(job, n_resamples, n_jobs)
    return Stability(
        frequency=np.bincount(np.concatenate(chosen), minlength=d) / n_resamples,
        threshold=float(threshold),
        n_selected=float(np.mean([constraint.count(np.setdiff1d(features, inside)) for features in chosen])),
        n_choices=constraint.choices(d),
        feature_names=_names(estimator, d),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Arguments and tables


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number, at least {least}, got {value!r}")


def _check_between(name: str, value: Any, low: float, high: float, closed: bool = False) -> None:
    inside = isinstance(value, Real) and (low < float(value) < high or (closed and float(value) == high))
    if not inside:
        raise ValueError(f"{name} must be above {low:g} and {'at most' if closed else 'below'} {high:g}, got {value!r}")


def _frame(columns: dict[str, Any]) -> DataFrame:
    try:
        from pandas import DataFrame
    except ImportError:
        raise ImportError("to_frame needs pandas: pip install pandas") from None
    return DataFrame(columns)


def _need_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401 - the drawing itself imports it late
    except ImportError:
        raise ImportError("plot needs matplotlib: pip install 'diht[app]'") from None

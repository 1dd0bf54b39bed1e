"""Many k, and many lam: what the points of a path say, together and one by one; `diht.solvers.sweep` computes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from diht.constraints.base import Cardinality, Constraint
from diht.constraints.groups import constrained, limited, n_choices
from diht.dask import is_dask
from diht.design import Design, as_design, refuse_dask
from diht.estimators.base import blas_threads, class_targets, classes_of, column_scales
from diht.estimators.table_encoder import TableEncoder
from diht.estimators.tabular import (
    checked_array,
    encoded,
    encoded_names,
    needs_encoder,
    refuse_with,
    set_groups,
    wanted_of,
)
from diht.estimators.there import class_targets_there, scales_there, stated_there
from diht.gpu import is_on_device, on_host
from diht.losses import ALL_LOSSES, Loss, as_loss
from diht.numerics.arrays import Indices, Vector
from diht.numerics.compiling import printed
from diht.numerics.digits import shown
from diht.numerics.interrupt import interruptible
from diht.problem import Problem, Targets, normalised_weights
from diht.report.plots import Steps, draw_path
from diht.result import Certificate, Result, used
from diht.solvers import Solver
from diht.solvers.sweep import solve_path
from diht.tables import Encoding

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from diht.dask.data import RemoteData
    from diht.gpu.data import DeviceData

__all__ = ["Path", "PathPoint", "sparse_path"]

CRITERIA = "aic", "bic", "ebic"


@dataclass(frozen=True, eq=False)
class PathPoint:
    """The model for one k and lam.

    Attributes
    ----------
    k : int, or float
        How many features, or groups, it may have; under a budget that.
    lam : float
    coef : array of shape (d,), or (n_classes, d)
        Coefficients of the columns of X, at most k of them nonzero; of several classes, or targets, one row each.
    intercept : float, or array of shape (n_classes,)
    result : Result
        The model with its bound and certificate, in the units of the problem that was solved.
    """

    k: float
    lam: float
    coef: NDArray[Any] = field(repr=False)
    intercept: float
    result: Result = field(repr=False)

    @property
    def support(self) -> Indices:
        """Indices of the features with nonzero coefficients, ascending."""
        return used(self.coef)

    @property
    def sizes(self) -> Vector:
        """The coefficients as the problem that was solved has them; of several targets, their norm for each feature."""
        w = self.result.w
        return w if w.ndim == 1 else np.asarray(np.sqrt(np.square(w).sum(axis=0)))

    @property
    def n_coefficients(self) -> int:
        """How many numbers the model has."""
        return (len(self.support) + bool(np.any(self.intercept))) * len(np.atleast_2d(self.coef))

    @property
    def objective(self) -> float:
        """The model's objective."""
        return self.result.objective

    @property
    def lower_bound(self) -> float:
        """No model with at most k features has a smaller objective."""
        return self.result.lower_bound

    @property
    def relative_gap(self) -> float:
        """By which fraction of its objective the model is at most worse than the best one."""
        return self.result.relative_gap

    @property
    def certificate(self) -> Certificate:
        """These figures with their proof, and what is proved of each feature."""
        return self.result.certificate

    def without_proof(self) -> PathPoint:
        """Return the point as a stored estimator holds it: nothing is as long as the samples."""
        return replace(self, result=self.result.without_proof())

    def __str__(self) -> str:
        figure = shown(self.objective, self.lower_bound, 7)
        return (
            f"k={self.k:g} lam={self.lam:g}: {len(self.support)} features, objective {figure.objective}, "
            f"bound {figure.lower_bound}, relative gap {self.relative_gap:.2e}"
        )


@dataclass(frozen=True, eq=False)
class Path(Sequence[PathPoint]):
    """The models of a path, by lam and then by k, both ascending.

    Attributes
    ----------
    points : tuple of PathPoint
    feature_names : tuple of str
        The names of X's columns, or x0, x1, ...
    loss : Loss
    n_samples : float
        The number of samples, or the sum of their weights: information criteria count these as repetitions.
    constraint : Constraint
        What the models obey, whatever its k.
    classes : tuple
        The classes, sorted, where these are the targets: of two the second is the positive one.
    encoding : Encoding, or None
        How the columns of a table became the features, where they did.
    """

    points: tuple[PathPoint, ...]
    feature_names: tuple[str, ...] = field(repr=False)
    loss: Loss
    n_samples: float
    constraint: Constraint = field(default=Cardinality(1), repr=False)
    classes: tuple[Any, ...] = field(default=(), repr=False)
    encoding: Encoding | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        from diht.report.path import path_text  # what only some need is imported there

        return path_text(self)

    def _repr_html_(self) -> str:
        from diht.report.path import path_html

        return path_html(self)

    def without_proof(self) -> Path:
        """Return the path as a stored estimator holds it: nothing is as long as the samples."""
        return replace(self, points=tuple(point.without_proof() for point in self.points))

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: Any) -> Any:
        return self.points[index]

    @property
    def ks(self) -> list[float]:
        """All k, or budgets, ascending."""
        return sorted({point.k for point in self.points})

    @property
    def lams(self) -> list[float]:
        """All lam, ascending."""
        return sorted({point.lam for point in self.points})

    def point(self, k: float, lam: float | None = None) -> PathPoint:
        """Return the point of a k and a lam, which may be left out where there is only one."""
        found = [point for point in self.at(lam) if point.k == k]
        if not found:
            raise ValueError(f"k must be one of {self.ks}, got {k!r}")
        return found[0]

    def at(self, lam: float | None = None) -> list[PathPoint]:
        """Return the points of one lam, which may be left out where there is only one."""
        lams = self.lams
        if lam is None and len(lams) > 1:
            raise ValueError(f"lam must be one of {lams}: the path has several")
        found = [point for point in self.points if lam is None or point.lam == lam]
        if not found:
            raise ValueError(f"lam must be one of {lams}, got {lam!r}")
        return found

    @property
    def counted(self) -> str:
        """What k counts: "features", those of a table its columns, or "groups"; or "budget", where it is one."""
        if self.constraint.level_name != "k":
            return self.constraint.level_name
        units = getattr(self.constraint, "unit", ())
        own = self.encoding is not None and np.array_equal(units, self.encoding.groups)
        return "features" if own or self.constraint.unit_size == 1 else "groups"

    def columns(self, features: Indices) -> list[str]:
        """Return the names of some features; of a table those of the columns that they come from, each once."""
        if self.encoding is None:
            return [self.feature_names[j] for j in features]
        return [column.name for column in self.encoding.needed(features)]

    def coefficients(self) -> NDArray[Any]:
        """Return the coefficients, one row a point."""
        return np.stack([point.coef for point in self.points])

    def criterion(self, name: str) -> Vector:
        r"""Return an information criterion of every point; the smaller, the better.

        With n samples (or weights that sum to n), m coefficients (the intercept among them) and the log-likelihood L of the
        model, AIC is :math:`-2 L + 2 m`, BIC is :math:`-2 L + m \log n`, and EBIC adds :math:`2 \log \binom{d}{j}` to BIC for a
        choice of j among d features, or groups, besides those to keep (Chen and Chen, 2008). For the squared loss :math:`-2 L` is
        :math:`n \log(\mathrm{RSS} / n)`, up to a constant. A ridge makes coefficients count for less than one each: that is
        neglected.

        Parameters
        ----------
        name : {"aic", "bic", "ebic"}

        Returns
        -------
        array of shape (n_points,)
        """
        if name not in CRITERIA:
            raise ValueError(f"name must be one of {list(CRITERIA)}, got {name!r}")
        if not self.loss.is_likelihood:
            known = ", ".join(name for name, loss in ALL_LOSSES.items() if loss.is_likelihood)
            raise ValueError(f"{name} needs a loss that is a likelihood ({known}), got {self.loss.name}")
        n, n_features = self.n_samples, len(self.feature_names)
        inside, d = self.constraint.free(n_features)[1], self.constraint.choices(n_features)
        weight = 2.0 if name == "aic" else np.log(n)
        values = []
        for point in self.points:
            result = point.result
            mean_loss = result.objective - 0.5 * point.lam * float(np.square(result.w, dtype=np.float64).sum())
            mean_loss = max(mean_loss, np.finfo(np.float64).tiny)
            numbers, n_targets = point.n_coefficients, len(np.atleast_2d(point.coef))
            if self.loss.coupled:  # those of a feature sum to zero
                numbers, n_targets = numbers - numbers // n_targets, 1
            value = self.loss.deviance(mean_loss / n_targets, n * n_targets) + weight * numbers
            if name == "ebic":
                j = self.constraint.count(np.setdiff1d(point.support, inside))
                value += 2.0 * (gammaln(d + 1) - gammaln(j + 1) - gammaln(d - j + 1))
            values.append(float(value))
        return np.array(values)

    def to_frame(self) -> DataFrame:
        """Return a table of the points, with information criteria where the loss is a likelihood; needs pandas."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise ImportError("to_frame needs pandas: pip install pandas") from None
        columns: dict[str, Any] = {
            "k": [point.k for point in self],
            "lam": [point.lam for point in self],
            "n_features": [len(self.columns(point.support)) for point in self],
            "objective": [point.objective for point in self],
            "lower_bound": [point.lower_bound for point in self],
            "relative_gap": [point.relative_gap for point in self],
            "required": [len(self.columns(point.certificate.required)) for point in self],
            "status": [str(point.result.status) for point in self],
            "n_passes": [point.result.n_passes for point in self],
        }
        if self.loss.is_likelihood:
            columns |= {name: self.criterion(name) for name in CRITERIA}
        return DataFrame(columns)

    def report(self, path: str | os.PathLike[str], X: Any = None, y: ArrayLike | None = None) -> None:
        """Write a page on the path: one HTML file that needs nothing else, with sliders over k and lam.

        For each k and lam it shows the features with their coefficients, both bounds, what is proved of single features,
        information criteria where the loss is a likelihood, and scores where samples are given.

        Parameters
        ----------
        path : path-like
            The file, replaced as a whole if it is there.
        X : data frame, array-like or sparse matrix of shape (n_samples, n_features), optional
            Samples to score every model on, best such as were not used to fit.
        y : array-like of shape (n_samples,) or (n_samples, n_targets), optional
            Their targets; needed with X.
        """
        from diht.report.path import Known, write_path_page

        if (X is None) != (y is None):
            raise ValueError("X and y must be given together, or neither of them")
        tested = None
        if X is not None:
            if self.encoding is not None:
                X = self.encoding.encode(X)
            rows = checked_array(X)
            tested = Known(rows, np.asarray(self.loss.columns_of(np.asarray(y)))).checked(self)
        write_path_page(self, os.fspath(path), tested)

    def plot(self, lam: float | None = None) -> Figure:
        """Draw objective and bound, the coefficients, and which features are proved to be in, against k; needs matplotlib.

        Parameters
        ----------
        lam : float, optional
            Which of several lam to show.
        """
        try:
            import matplotlib  # noqa: F401 - the drawing itself imports it late
        except ImportError:
            raise ImportError("plot needs matplotlib: pip install 'diht[app]'") from None
        points = self.at(lam)
        used = np.unique(np.concatenate([point.support for point in points]))
        what = "norm of the coefficients" if points[0].coef.ndim == 2 else "coefficient"
        steps = Steps(
            ks=np.array([point.k for point in points]),
            objective=np.array([point.objective for point in points]),
            bound=np.array([point.lower_bound for point in points]),
            names=[self.feature_names[j] for j in used],
            coef=np.stack([point.sizes[used] for point in points]),
            axis=what + "\nof the standardised column" * points[0].certificate.scaled,
            required=np.stack([np.isin(used, point.certificate.required) for point in points]),
            counted=self.counted,
        )
        return draw_path(steps, f"{self.loss.name} loss, lam={points[0].lam:g}")


def sparse_path(
    X: Any,
    y: ArrayLike,
    *,
    ks: Sequence[float] | None = None,
    lams: float | Sequence[float] = 1e-3,
    loss: str | Loss = "squared",
    sample_weight: ArrayLike | None = None,
    fit_intercept: bool = True,
    standardize: bool = True,
    solver: str | Solver = "auto",
    tol: float = 1e-4,
    time_limit: float | None = None,
    n_jobs: int | None = None,
    random_state: int | None = None,
    verbose: bool = False,
    callback: Callable[[PathPoint], Any] | None = None,
    keep: ArrayLike | None = None,
    groups: ArrayLike | str | None = None,
    sign: Any = None,
    bounds: Any = None,
    offset: ArrayLike | None = None,
    encoder: TableEncoder | None = None,
    device: Any = None,
    constraint: Constraint | None = None,
) -> Path:
    """Fit models for many k, and many lam, each from its neighbours, and each with a bound of its own.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        The samples. A data frame's columns give the features their names.
    y : array-like of shape (n_samples,) or (n_samples, n_targets)
        The targets, or several that share features; for a classification loss the classes, of which the second of two counts as
        positive, and more than two share features as in `SparseClassifier`.
    ks : sequence of int, optional
        Numbers of features; with `groups` of groups, with `keep` besides those; with `within_budget` budgets. By default some from
        1 to 50, or to all.
    lams : float or sequence of float, default=1e-3
        Strengths of the ridge.
    loss : str or Loss, default="squared"
        One of `SparseRegressor` or `SparseClassifier`, by its name or as an object of `diht.losses`.
    sample_weight, fit_intercept, standardize, random_state, n_jobs, keep, groups, sign, bounds, offset, encoder, device
        As in `SparseRegressor` and `SparseClassifier`.
    solver : str or Solver, default="auto"
        "auto" does its full work but branching at the first point, the largest k and lam, and goes on with less from neighbour to
        neighbour; any other method runs at every point. A fit for a single k and lam, or "branch" here, proves more.
    tol : float, default=1e-4
        Relative gap at which a model counts as optimal.
    time_limit : float, optional
        Limit on the seconds of all points together, shared among them. Every point has a model and a bound all the same.
    verbose : bool, default=False
        Whether to print a line for each point.
    callback : callable, optional
        Gets each `PathPoint` when it is first solved, the largest k and lam first; True leaves out those that are still to come,
        as Ctrl-C does.
    constraint : Constraint, optional
        What `diht.per_group`, `diht.within_budget` or `diht.heredity` return: `ks` come in the place of its own k, or budget, which
        is the largest by default. Without `keep` and `groups`.

    Returns
    -------
    Path
        The models: a sequence, with a table (`to_frame`), pictures (`plot`), coefficients and information criteria.

    See Also
    --------
    SparseRegressorCV, SparseClassifierCV : Choose k and lam by cross-validation.

    Notes
    -----
    Neither objectives nor bounds rise with k, nor fall with lam.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import sparse_path
    >>> X = np.random.default_rng(0).normal(size=(100, 30))
    >>> y = X[:, :3].sum(axis=1) + np.random.default_rng(1).normal(size=100)
    >>> path = sparse_path(X, y, ks=range(1, 7), lams=0.1)
    >>> path.point(3).support
    array([0, 1, 2])
    >>> [point.k for point in path if point.relative_gap < 1e-3][-1] >= 3
    True
    >>> path[int(np.argmin(path.criterion("ebic")))].k
    3
    """
    named = as_loss(loss)
    given = SimpleNamespace(keep=keep, groups=groups, sign=sign, bounds=bounds, encoder=encoder)
    if constraint is not None:
        refuse_with("constraint", given)

    def solved(data: _Data) -> Path:
        d, names, wanted = data.n_features, data.names, wanted_of(given, data.n_features)
        if constraint is None:
            counts = checked_ks(ks, *choices_among(d, wanted.keep, wanted.groups))
            obeyed = constrained(int(counts[-1]), d, *wanted)
        else:
            counts = checked_levels(ks, constraint, d, 20)
            obeyed = limited(constraint.allowing(counts[-1]), d, wanted.sign, wanted.bounds)
        grid = checked_lams(lams)

        def tell(k: float, lam: float, result: Result) -> bool:
            point = path_point(k, lam, result, standardize)
            if verbose:
                print(point)
            return (callback is not None and bool(callback(point))) or asked()

        problem = data.problem(obeyed, grid[-1], fit_intercept, standardize)
        results = solve_path(problem, counts, grid, solver, tol, time_limit, random_state, tell, asked)
        points = tuple(path_point(k, lam, result, standardize) for (k, lam), result in results.items())
        encoding = given.encoder_.encoding_ if hasattr(given, "encoder_") else None
        return Path(points, names or default_names(d), data.loss, data.n_samples, obeyed, data.classes, encoding)

    kept = "the path has the points that were solved so far"
    with (
        blas_threads(n_jobs),
        printed(verbose),
        interruptible(kept) as asked,
        _placed(given, (X, y, sample_weight, offset), named, device, n_jobs) as data,
    ):
        return solved(data) if isinstance(data, _Here) else solved(data).without_proof()


@contextmanager
def _placed(given: Any, data: tuple[Any, ...], loss: Loss, device: Any, n_jobs: int | None) -> Iterator[_Here | _There]:
    """Find out where X, y, weights and offset are to be: on a device, on the workers of a cluster, or here."""
    classes = loss.task == "classification"
    if is_on_device(data[0], device):
        from diht.dask.data import Collections
        from diht.gpu.data import loaded as on_device

        there = on_device(Collections(*data), device, classes, feature_names(data[0]))
        set_seen(given, None, there.names)
        yield _There(there, loss)
        return
    X, y, sample_weight, offset = map(on_host, data)
    if is_dask(X):
        from diht.dask.data import Collections, active_client, loaded, loaded_here

        client, collections = active_client(), Collections(X, y, sample_weight, offset)
        if client is not None:
            with loaded(client, collections, classes) as remote:
                set_seen(given, None, remote.names)
                yield _There(remote, loss)
            return
        X, y, sample_weight, offset = loaded_here(collections, classes)
    yield _Here(given, X, y, loss, sample_weight, offset, n_jobs)


class _Data(Protocol):
    """Where the rows of a path are."""

    n_features: int
    names: tuple[str, ...] | None
    n_samples: float
    loss: Loss
    classes: tuple[Any, ...]

    def problem(self, constraint: Constraint, lam: float, fit_intercept: bool, standardize: bool) -> Problem:
        """State the problem."""
        ...


class _Here:
    """Rows in this process."""

    def __init__(
        self, given: Any, X: Any, y: Any, loss: Loss, sample_weight: Any, offset: Any, n_jobs: int | None
    ) -> None:
        refuse_dask("y", y)
        data, self.names = X, feature_names(X)
        if not isinstance(X, Design) and needs_encoder(given, X):
            X = encoded(given, X, reset=True)
            self.names = encoded_names(given, X.shape[1])
        elif not isinstance(X, Design):
            X = checked_array(X)
        set_seen(given, data, self.names)
        n, self.n_features = X.shape
        self._y, self.loss, self.classes = as_targets(y, loss)
        self._s, self._offset, self._design = normalised_weights(sample_weight, n), offset, as_design(X, n_jobs)
        self.n_samples = counted(sample_weight, n)

    def problem(self, constraint: Constraint, lam: float, fit_intercept: bool, standardize: bool) -> Problem:
        """State the problem."""
        design, s = self._design, self._s
        scale = column_scales(design, s, constraint) if standardize else None
        return Problem(design, self._y, self.loss, constraint, lam, s, fit_intercept, scale=scale, offset=self._offset)


class _There:
    """Rows on the workers of a cluster, or on a device."""

    def __init__(self, data: RemoteData | DeviceData, loss: Loss) -> None:
        self._data, self.names, self.n_features = data, data.names, data.samples.design.shape[1]
        self.n_samples, self.loss = data.weight, loss
        targets = Targets(data.samples.y)
        self.classes = () if data.classes is None else tuple(data.classes.tolist())
        if data.classes is not None:
            _check_coupled(len(data.classes), loss)
            targets, self.loss = class_targets_there(data.samples, len(data.classes), loss)
        elif data.n_targets:
            targets = Targets(data.targets(), data.n_targets)
        self._stated = stated_there(data.samples, self.loss, targets, data.offset())

    def problem(self, constraint: Constraint, lam: float, fit_intercept: bool, standardize: bool) -> Problem:
        """State the problem."""
        scale = scales_there(self._data.samples, constraint) if standardize else None
        samples, targets = self._stated
        return Problem.of_samples(samples, self.loss, constraint, lam, fit_intercept, scale, targets)


def set_seen(given: Any, X: Any, names: tuple[str, ...] | None) -> None:
    """Keep, beside what is asked for, the names of the features and their groups, as an estimator does."""
    if not hasattr(given, "encoder_") and names is not None:
        given.feature_names_in_ = names
    set_groups(given, X)


def path_point(k: float, lam: float, result: Result, scaled: bool) -> PathPoint:
    """Return a result as a point of a path; `scaled` says that columns were standardised."""
    result = replace(result, certificate=replace(result.certificate, scaled=scaled))
    return PathPoint(k, lam, result.coef, result.intercept, result)


def counted(sample_weight: ArrayLike | None, n: int) -> float:
    """Return how many samples information criteria count."""
    return float(n if sample_weight is None else np.asarray(sample_weight, dtype=np.float64).sum())


def default_names(n_features: int) -> tuple[str, ...]:
    """Return x0, x1, ..., as scikit-learn calls features without names."""
    return tuple(f"x{j}" for j in range(n_features))


def feature_names(X: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a data frame, or of a design that has them."""
    if isinstance(X, Design):
        return X.feature_names
    columns = getattr(X, "columns", None)
    return None if columns is None else tuple(map(str, columns))


def choices_among(n_features: int, keep: Any, groups: ArrayLike | None) -> tuple[int, str]:
    """Return how many features, or groups, there are to choose from, and what to call them."""
    count = n_choices(n_features, keep, groups)
    if not count:
        raise ValueError("keep must leave something to choose from, got all features")
    what = "features" if groups is None else "groups"
    return count, what if keep is None else f"{what} besides those to keep"


def default_ks(most: float) -> list[float]:
    """Return what cross-validation tries: about ten numbers, evenly spaced on a logarithmic scale, the last at most 30."""
    return sorted({round(k) for k in np.geomspace(1, max(1, min(most, 30)), 10)})


def checked_ks(ks: Sequence[Any] | None, most: int, what: str = "features") -> list[float]:
    """Return numbers of features, or groups, ascending; by default about geometric ones up to 50."""
    if ks is None:
        return sorted({round(k) for k in np.geomspace(1, min(most, 50), 20)})
    try:
        chosen: list[float] = sorted({Cardinality(k).k for k in ks})
    except TypeError:
        raise ValueError(f"ks must be a sequence of whole numbers, got {ks!r}") from None
    except ValueError as error:
        raise ValueError(f"ks must be whole numbers, one or more: {error}") from None
    if not chosen:
        raise ValueError("ks must hold at least one number, got none")
    if chosen[-1] > most:
        raise ValueError(f"ks must be from 1 to the {most} {what}, got {list(ks)}")
    return chosen


def checked_levels(ks: Sequence[float] | None, constraint: Constraint, n_features: int, n_points: int) -> list[float]:
    """Return what comes in the place of a constraint's own k, or budget, ascending; by default so many up to that."""
    constraint.check(n_features)
    own = constraint.level(n_features)
    if constraint.level_name == "k":
        if ks is not None:
            return checked_ks(ks, n_features)
        return sorted({round(k) for k in np.geomspace(1, min(own, n_features), n_points)})
    least = constraint.least_level
    levels = np.geomspace(min(least, own), own, n_points) if ks is None else np.asarray(ks, dtype=np.float64)
    if levels.ndim != 1 or not levels.size or not np.all(np.isfinite(levels) & (levels > 0.0)):
        raise ValueError(f"ks must be budgets, positive and finite, got {ks!r}")
    constraint.allowing(float(levels.min())).check(n_features)
    return [float(level) for level in np.unique(levels)]


def checked_lams(lams: float | Sequence[float]) -> list[float]:
    """Return strengths of the ridge, ascending."""
    values = np.unique(np.atleast_1d(np.asarray(lams, dtype=np.float64)))
    if not values.size or not np.all(np.isfinite(values) & (values > 0.0)):
        raise ValueError(f"lams must be positive and finite, got {lams!r}")
    return [float(lam) for lam in values]


def as_targets(y: ArrayLike, loss: Loss) -> tuple[NDArray[Any], Loss, tuple[Any, ...]]:
    """Return targets as a problem wants them, the loss of so many classes, if they are any, and these."""
    array = np.asarray(y)
    if loss.task != "classification":
        return array, loss, ()
    classes, codes = classes_of(array)
    _check_coupled(len(classes), loss)
    return *class_targets(len(classes), codes, loss), tuple(classes.tolist())


def _check_coupled(n_classes: int, loss: Loss) -> None:
    if n_classes == 2 and loss.coupled:
        raise ValueError(
            f"loss={loss.name!r} needs more than two classes here: two are those of loss={loss.of_two_classes()[0].name!r} "
            "with half of each lam"
        )

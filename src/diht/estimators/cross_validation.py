"""Estimators that choose k and lam themselves: models in every fold, and one of all samples with its certificate."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from numbers import Integral
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.stats import rankdata
from sklearn import config_context
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.parallel import Parallel, delayed

from diht.constraints.base import Constraint
from diht.constraints.groups import constrained, limited
from diht.dask import is_dask
from diht.design import Design
from diht.estimators import SparseClassifier, SparseRegressor
from diht.estimators.base import blas_threads, class_weighted, classes_of, set_features, validated
from diht.estimators.folds import Grid, Models, Plain, Results, Sums
from diht.estimators.namespaces import dispatches, fit_in_namespace
from diht.estimators.parameters import documented, keep_parameters
from diht.estimators.path import (
    CRITERIA,
    Path,
    checked_ks,
    checked_lams,
    checked_levels,
    choices_among,
    counted,
    default_ks,
    path_point,
)
from diht.estimators.table_encoder import TableEncoder
from diht.estimators.tabular import Wanted, encoded, encoded_names, refuse_with, set_groups, wanted_of
from diht.gpu import is_on_device, on_host
from diht.losses import Loss
from diht.numerics.arrays import Array, Vector
from diht.numerics.interrupt import interruptible
from diht.problem import Problem, finite_vector, normalised_weights
from diht.result import Result
from diht.solvers import Auto, Solver
from diht.solvers.loop import Limits, as_solver
from diht.solvers.sweep import proved
from diht.tables import Encoding, Frame

if TYPE_CHECKING:
    from diht.dask.data import Collections, RemoteData
    from diht.gpu.data import DeviceData

__all__ = ["SparseClassifierCV", "SparseRegressorCV"]

_RULES = "1se", "score"
_LAMS = 1e-3, 1e-2, 1e-1  # for columns of unit variance


class _Given(Protocol):
    """Samples, wherever they are.

    Attributes
    ----------
    shape : tuple of int
    n_counted : float
        How many samples information criteria count.
    here : bool
        Whether they are in this process, and folds may be looked at in threads of their own.
    folds : list
    """

    here: ClassVar[bool]

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def n_counted(self) -> float: ...
    @property
    def folds(self) -> list[Any]: ...

    def sums(self, grid: Grid, n_threads: int | None) -> Any:
        """Return sums that all models follow from, or None."""

    def scores(
        self, estimator: Any, grid: Grid, sums: Any, fold: Any, n_threads: int | None
    ) -> tuple[list[float], bool]:
        """Make the models of a fold's training samples, and score each on the others; tell whether nothing was stopped."""

    def problems(self, model: Plain, grid: Grid) -> list[Problem]:
        """Return the problem of each target, of all samples."""

    def fitted(self, plain: Plain) -> list[Result]:
        """Fit an estimator to all samples, and return its results."""


@dataclass(frozen=True, eq=False)
class _Samples:
    """Some samples."""

    X: Any
    y: Array
    weights: Vector | None
    offset: Vector | None

    def part(self, rows: Any) -> _Samples:
        """Return some of the samples; of rows on disk all, where those that are left out have no weight."""
        if isinstance(self.X, Design):
            times = np.bincount(np.arange(len(self.y))[rows], minlength=len(self.y)).astype(np.float64)
            return replace(self, weights=times if self.weights is None else times * self.weights)
        some = [None if values is None else values[rows] for values in (self.weights, self.offset)]
        return _Samples(self.X[rows], self.y[rows], *some)

    def held_out(self, rows: Any, paths: Sequence[Models]) -> _Samples:
        """Return samples that models are to predict; of rows on disk the features that a model uses, zeros for the others."""
        if not isinstance(self.X, Design):
            return self.part(rows)
        used = np.unique(np.concatenate([model.support for models in paths for model in models.values()]))
        found = csr_array(self.X.columns(used).toarray(np.arange(len(self.y))[rows]).astype(self.X.dtype))
        X = csr_array((found.data, used[found.indices], found.indptr), shape=(found.shape[0], self.X.shape[1]))
        some = [None if values is None else values[rows] for values in (self.weights, self.offset)]
        return _Samples(X, self.y[rows], *some)


@dataclass(frozen=True, eq=False)
class _Here:
    """Samples in this process, as they were checked; a fold is the indices of its training samples and of the others."""

    estimator: _CrossValidated
    data: Any  # X as it was given
    all: _Samples
    n_counted: float
    folds: list[tuple[Any, Any]]

    here: ClassVar[bool] = True

    @cached_property
    def table(self) -> Frame | None:
        """The columns as they were given, where what becomes of them is learned from samples."""
        encoder = getattr(self.estimator, "encoder_", None)
        return Frame.of(self.data) if encoder is not None and encoder.encoding_.is_learned else None

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of samples and of features."""
        n, d = self.all.X.shape
        return n, d

    def sums(self, grid: Grid, n_threads: int | None) -> Sums | None:
        """Return sums over the samples that all models follow from; None where they do not, or are too many."""
        given = self.all
        return grid.sums(given.X, given.y, given.weights, given.offset, n_threads)

    def scores(
        self, estimator: _CrossValidated, grid: Grid, sums: Sums | None, fold: tuple[Any, Any], n_threads: int | None
    ) -> tuple[list[float], bool]:
        """Make the models of a fold's training samples, and score each on the others."""
        (train, test), asked = fold, grid.keys
        part, encoding = self.all.part(train), None
        if self.table is not None:
            grid, encoding = self._encoded(grid, train)
            part, sums = replace(part, X=encoding.encode(self.table.rows(train))), None
        targets, s, classes = estimator._targets(part.y, part.weights)
        model = clone(grid.plain)
        model.n_features_in_ = part.X.shape[1]
        if classes is not None:
            model.classes_ = classes
        if sums is None:
            own = replace(grid, plain=model)
            paths = list(map(own.models, own.problems(part.X, targets, s, part.offset, n_threads)))
        else:
            paths = [sums.models(train, n_threads)]
        whole = not grid.asked()
        rest = self.all.held_out(test, paths)
        if self.table is not None and encoding is not None:
            rest = replace(rest, X=encoding.encode(self.table.rows(test)))
        if rest.offset is not None:
            model.predict = partial(model.predict, offset=rest.offset)  # no scorer knows of offsets
        scorer = check_scoring(model, estimator._scoring() if estimator.scoring is None else estimator.scoring)
        weighted = {} if rest.weights is None or not _takes_weights(scorer) else {"sample_weight": rest.weights}
        scores = []
        with _without_checks(estimator.scoring):
            for k, lam in asked:
                model.__dict__ |= _attributes(model, paths, (min(k, grid.ks[-1]), lam))
                scores.append(float(scorer(model, rest.X, rest.y, **weighted)))
        return scores, whole

    def _encoded(self, grid: Grid, train: Any) -> tuple[Grid, Encoding]:
        """Learn from training samples how columns become numbers; return the grid of these columns as well."""
        assert self.table is not None
        estimator, encoder = self.estimator, self.estimator.encoder_
        if estimator.constraint is not None:
            raise ValueError("constraint speaks of columns of numbers: TableEncoder().fit_transform(X) makes them of X")
        used = [column.name for column in encoder.encoding_.columns if column.kind != "unused"]
        own = SimpleNamespace(**{name: getattr(estimator, name) for name in Wanted._fields})
        own.encoder = clone(encoder).set_params(keep=used, only=used, drop=None)
        d = encoded(own, self.table.rows(train), reset=True).shape[1]
        set_groups(own, None)
        wanted = wanted_of(own, d)
        most = choices_among(d, wanted.keep, wanted.groups)[0]
        ks = sorted({min(k, most) for k in grid.ks})
        return replace(grid, constraint=constrained(int(ks[-1]), d, *wanted), ks=ks), own.encoder_.encoding_

    def problems(self, model: Plain, grid: Grid) -> list[Problem]:
        """Return the problem of each target, of all samples."""
        given = self.all
        targets, s, classes = self.estimator._targets(given.y, given.weights)
        if classes is not None:
            model.classes_ = classes
        return grid.problems(given.X, targets, s, given.offset, model.n_jobs)

    def fitted(self, plain: Plain) -> list[Result]:
        """Fit an estimator to all samples, and return its results."""
        given = self.all
        X = given.X if hasattr(self.estimator, "encoder_") else self.data  # columns are encoded once
        plain.fit(X, given.y, given.weights, **({} if given.offset is None else {"offset": given.offset}))
        return plain.result_ if isinstance(plain.result_, list) else [plain.result_]


class _Scored(NamedTuple):
    """The scores of a fold's models, by k and lam, and whether these were made without being stopped."""

    scores: list[float]
    whole: bool


class _CrossValidated(BaseEstimator):  # type: ignore[misc]
    """What the two estimators share: `fit`. All else is that of the plain ones."""

    _plain: type[Plain]

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Any:
        """Choose k and lam, and fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples, float32 or float64 (other types become float64).
        y : array-like of shape (n_samples,)
            The targets, or the classes.
        sample_weight : array-like of shape (n_samples,), optional
            Nonnegative weights, of which only the ratios matter: for the fits, and for those scores that take weights.

        Returns
        -------
        estimator
            The estimator itself.
        """
        if dispatches(X):
            return fit_in_namespace(self, X, y, sample_weight)
        self._fit(X, y, sample_weight, None)
        return self

    def _fit(self, X: Any, y: Any, sample_weight: ArrayLike | None, offset: ArrayLike | None) -> None:
        kept = "k and lam are chosen by what was done so far, and the model is the best found so far"
        with interruptible(kept, 5) as asked:
            self._fit_until(asked, X, y, sample_weight, offset)

    def _fit_until(self, asked: Callable[[], bool], X: Any, y: Any, sample_weight: Any, offset: Any) -> None:
        if self.criterion not in (*_RULES, *CRITERIA):
            raise ValueError(f"criterion must be one of {[*_RULES, *CRITERIA]}, got {self.criterion!r}")
        if is_on_device(X, self.device):
            from diht.dask.data import Collections

            given = Collections(X, y, sample_weight, offset)
            self._fit_remote(asked, self._on_device(given), given)
            return
        X, y, sample_weight, offset = map(on_host, (X, y, sample_weight, offset))
        if is_dask(X):
            from diht.dask.data import Collections, active_client, loaded, loaded_here

            given, client = Collections(X, y, sample_weight, offset), active_client()
            if client is not None:
                with loaded(client, given, is_classifier(self)) as data:
                    self._fit_remote(asked, data, given)
                return
            X, y, sample_weight, offset = loaded_here(given, is_classifier(self))
        data, targets = X, y
        numeric = {} if is_classifier(self) else {"y_numeric": True, "multi_output": True}
        X, y = validated(self, X, y, **numeric)
        y = self._targets_of(y)
        weights = None if sample_weight is None else normalised_weights(sample_weight, X.shape[0])
        known = None if offset is None else finite_vector("offset", np.ravel(offset), y.size).reshape(y.shape)
        self._check_classes(self._targets(y, weights)[2])  # what is wrong with the targets shows before the first fold
        rows = np.empty((X.shape[0], 0)) if isinstance(X, Design) else X  # only its length matters
        folds = self._folds(rows, y) if self.criterion in _RULES else []
        samples = _Samples(X, y, weights, known)
        self._fit_given(asked, _Here(self, data, samples, counted(sample_weight, X.shape[0]), folds))
        if not is_classifier(self):
            self._keep_target_names(targets)

    def _folds(self, rows: Any, y: Array) -> list[tuple[Array, Array]]:
        """Return the folds: training samples and the others; each class must be among the former."""
        n, cv = len(y), 5 if self.cv is None else self.cv
        if isinstance(cv, Integral) and int(cv) < 2:
            raise ValueError(f"cv must be at least 2 folds, got {cv}")
        if isinstance(cv, Integral) and int(cv) > n:
            raise ValueError(f"cv must be at most one fold for each of the {n} samples, got {cv}")
        if not is_classifier(self):
            return list(check_cv(cv).split(rows, y))
        classes, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        _check_trained(classes, counts, counts > 1)
        folds = list(check_cv(cv, y, classifier=True).split(rows, y))
        for train, _ in folds:
            _check_trained(classes, counts, np.bincount(codes[train], minlength=len(classes)) > 0)
        return folds

    def _fit_remote(self, asked: Callable[[], bool], data: RemoteData | DeviceData, given: Collections) -> None:
        """Do so where the rows are."""
        from diht.estimators.folds_there import FoldRule, There

        set_features(self, data.samples.design.shape[1], data.names)
        set_groups(self, None)
        self._check_classes(data.classes)
        rule = FoldRule.of(self.cv, is_classifier(self)) if self.criterion in _RULES else None
        self._fit_given(asked, There(data, given, rule))

    def _fit_given(self, asked: Callable[[], bool], given: _Given) -> None:
        """Choose k and lam, and fit the model."""
        lams, (n, d) = checked_lams(self.lams), given.shape
        wanted = wanted_of(self, d)
        ks = self._ks(n, d, wanted)
        if self.constraint is None:
            constraint = constrained(int(ks[-1]), d, *wanted)
        else:
            constraint = limited(self.constraint.allowing(ks[-1]), d, wanted.sign, wanted.bounds)
        Limits.checked(self.tol, None, self.time_limit, None)
        grid, folds = Grid(self._estimator(), constraint, ks, lams, asked), given.folds
        n_jobs = effective_n_jobs(self.n_jobs) if folds and given.here else 1
        with blas_threads(self.n_jobs if n_jobs == 1 else 1):
            sums = given.sums(grid, self.n_jobs) if folds or self.refit else None
            if folds:
                score, n_threads = delayed(self._score_fold), 1 if n_jobs > 1 else self.n_jobs
                scored = Parallel(n_jobs=self.n_jobs if n_jobs > 1 else 1, prefer="threads")(
                    score(grid, given, sums, fold, i, n_threads) for i, fold in enumerate(folds)
                )
                # Of folds that were stopped, the first to have scores counts where no other was done.
                whole = [fold.scores for fold in scored if fold.whole] or [f.scores for f in scored if f.scores][:1]
                self._choose_by_score(grid.keys, np.array(whole))
            if self.refit or not folds:
                self._follow_path(grid, given, sums)

    def _estimator(self, **params: Any) -> Plain:
        """Return the plain estimator with the parameters that both have."""
        names = self._plain._get_param_names()
        return self._plain(
            **{name: getattr(self, name) for name in names if hasattr(self, name)} | {"exact": False} | params
        )

    @property
    def _own_constraint(self) -> Constraint | None:
        """The constraint given, with what was chosen in the place of its k, or budget."""
        return None if self.constraint is None else self.constraint.allowing(self.best_k_)

    def _ks(self, n_samples: int, n_features: int, wanted: Wanted) -> list[float]:
        """Return all k, or budgets, to try; more than there are features, or groups, become all of them, with a warning."""
        if self.constraint is not None:
            refuse_with("constraint", self)
            return checked_levels(self.ks, self.constraint, n_features, 10)
        most, what = choices_among(n_features, wanted.keep, wanted.groups)
        if self.ks is None:
            return default_ks(min(most, n_samples // 10))
        ks = checked_ks(self.ks, np.iinfo(np.int64).max)
        if ks[-1] > most:
            message = f"ks up to {ks[-1]} are more than the {most} {what}: all of them may be used"
            warnings.warn(message, UserWarning, stacklevel=5)
        return sorted({min(k, most) for k in ks})

    def _scoring(self) -> str | Callable[..., float] | None:
        """Return what models are scored by where nothing is said."""
        return None

    def _targets(self, y: Array, weights: Vector | None) -> tuple[dict[str, Array], Vector, Array | None]:
        """Return the targets of each model by what to call it, the weights, and the classes if these are any."""
        raise NotImplementedError

    def _check_classes(self, classes: Array | None) -> None:
        """Raise unless the settings suit the classes, if these are any."""

    # Scores

    def _score_fold(
        self, grid: Grid, given: _Given, sums: Any, fold: Any, number: int, n_threads: int | None
    ) -> _Scored:
        """Score the models of a fold."""
        if grid.asked() and number:
            return _Scored([], False)
        scores, whole = given.scores(self, grid, sums, fold, n_threads)
        if self.verbose:
            best = grid.keys[int(np.argmax(scores))]
            print(f"fold {number + 1}: best score {max(scores):.6g} with k={best[0]}, lam={best[1]:g}")
        return _Scored(scores, whole)

    def _choose_by_score(self, grid: list[tuple[float, float]], scores: Vector) -> None:
        """Keep the scores as a grid search does, and choose the best mean, or the smallest k within its standard error."""
        mean = scores.mean(axis=0)
        if not np.any(np.isfinite(mean)):
            raise ValueError("scoring gave no finite number for any k and lam")
        mean = np.where(np.isfinite(mean), mean, -np.inf)
        ks, lams = (np.array(column) for column in zip(*grid, strict=True))
        best = np.lexsort((-lams, ks, -mean))[0]
        if self.criterion == "1se":
            error = scores[:, best].std(ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else 0.0
            best = np.lexsort((-lams, -mean, np.where(mean >= mean[best] - error, ks, np.inf)))[0]
        self.best_k_, self.best_lam_ = ks[best].item(), float(lams[best])
        self.best_index_, self.best_score_ = int(best), float(mean[best])
        self.cv_results_ = _grid_columns(grid) | {
            **{f"split{i}_test_score": row for i, row in enumerate(scores)},
            "mean_test_score": mean,
            "std_test_score": scores.std(axis=0),
            "rank_test_score": rankdata(-mean, method="min").astype(np.int32),
        }
        self.n_splits_ = len(scores)

    # The path of all samples

    def _follow_path(self, grid: Grid, given: _Given, sums: Any) -> None:
        """Make the models of all samples; choose by an information criterion if that is asked for; fit the model chosen."""
        problems = given.problems(grid.plain, grid)
        names, encoder = encoded_names(self, given.shape[1]), getattr(self, "encoder_", None)
        paths = _Paths.of(grid, problems, sums, names, given.n_counted)
        paths = paths if encoder is None else replace(paths, encoding=encoder.encoding_)
        if self.criterion in CRITERIA:
            self._choose_by_criterion(grid.keys, paths.with_bounds())
        best = self.best_k_, self.best_lam_
        if self.refit:
            solved = self._refit(given, grid.plain, paths.chosen(best))
            paths = paths.knowing([{best: result} for result in solved])
        kept = [path if given.here else path.without_proof() for path in paths.with_bounds()]
        self.path_ = kept if len(kept) > 1 else kept[0]

    def _choose_by_criterion(self, grid: list[tuple[float, float]], paths: list[Path]) -> None:
        """Choose the least information criterion."""
        values = np.sum([path.criterion(self.criterion) for path in paths], axis=0)
        self.best_index_ = int(np.argmin(values))
        self.best_k_, self.best_lam_ = grid[self.best_index_]
        self.best_score_ = float(values[self.best_index_])
        self.cv_results_ = _grid_columns(grid) | {
            self.criterion: values,
            f"rank_{self.criterion}": rankdata(values, method="min").astype(np.int32),
        }

    def _refit(self, given: _Given, known: Plain, first: list[Result]) -> list[Result]:
        """Fit the plain estimator for the k and lam chosen, from the path's model, and take over all that it has learned."""
        wanted, seen = {}, {}
        if hasattr(self, "encoder_"):  # the columns are encoded already
            wanted = wanted_of(self, given.shape[1])._asdict() | {"encoder": None}
            seen = {
                name: getattr(self, name) for name in ("n_features_in_", "feature_names_in_", "encoder_", "groups_")
            }
        method = as_solver(self.solver)
        plain = self._estimator(
            k=self._own_constraint or self.best_k_,
            solver=replace(method, follows_path=True) if type(method) is Auto else self.solver,
            lam=self.best_lam_,
            exact=self.exact,
            warm_start=True,
            verbose=False,
            **wanted,
        )
        plain.coef_, plain.result_ = np.vstack([result.coef for result in first]), first
        plain.support_ = np.flatnonzero(plain.coef_.any(axis=0))
        if is_classifier(self):
            plain.classes_ = known.classes_
        if getattr(self, "_skl_callbacks", None):
            plain.set_callbacks(*self._skl_callbacks)
        solved = given.fitted(plain)
        self.__dict__ |= {name: value for name, value in vars(plain).items() if name.endswith("_")} | seen
        if self.verbose:
            print(f"k={self.best_k_}, lam={self.best_lam_:g}:\n{plain.certificate_}")
        return solved

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")


@dataclass(frozen=True, eq=False)
class _Paths:
    """The models of all samples, by target; where they have no bounds, how to prove some."""

    grid: Grid
    problems: list[Problem]
    models: list[Models]
    solved: list[Results]  # all points, where the method proves bounds; else those whose proof is known
    names: tuple[str, ...]
    n: float
    encoding: Encoding | None = None

    @classmethod
    def of(cls, grid: Grid, problems: list[Problem], sums: Any, names: tuple[str, ...], n: float) -> _Paths:
        """Make the models."""
        solved: list[Results] = [{} if grid.proves_nothing else grid.results(problem) for problem in problems]
        if not grid.proves_nothing:
            models = [{key: result.model for key, result in results.items()} for results in solved]
        elif sums is None:
            models = list(map(grid.models, problems))
        else:
            models = [sums.models()]
        return cls(grid, problems, models, solved, names, n)

    def knowing(self, solved: list[Results]) -> _Paths:
        """Return the same with what was proved of single points, where nothing was proved of all."""
        return replace(self, solved=solved) if self.grid.proves_nothing else self

    def with_bounds(self) -> list[Path]:
        """Return the paths."""
        grid, each = self.grid, zip(self.problems, self.models, self.solved, strict=True)
        return [self._path(proved(*path, grid.plain.tol) if grid.proves_nothing else path[-1]) for path in each]

    def _path(self, results: Results) -> Path:
        plain = self.grid.plain
        points = tuple(path_point(*key, result, plain.standardize) for key, result in results.items())
        classes = tuple(plain.classes_.tolist()) if len(self.problems) == 1 and is_classifier(plain) else ()
        return Path(points, self.names, plain._fitted_loss(), self.n, self.grid.constraint, classes, self.encoding)

    def chosen(self, key: tuple[float, float]) -> list[Result]:
        """Return the model of a point, with a bound."""
        if not self.grid.proves_nothing:
            return [results[key] for results in self.solved]
        each = zip(self.problems, self.models, strict=True)
        return [proved(problem, {key: models[key]}, {}, self.grid.plain.tol)[key] for problem, models in each]


def _check_trained(classes: Array, counts: NDArray[np.intp], trained: NDArray[np.bool_]) -> None:
    """Raise where a class is not among the training samples of a fold."""
    for label, count in zip(classes[~trained].tolist(), counts[~trained].tolist(), strict=True):
        raise ValueError(
            f"y has {count} of {counts.sum()} samples in class {label!r}, and none to train on where its fold is left out: "
            "pool it with another class, leave its samples out, or choose other folds (cv)"
        )


def _attributes(model: Plain, paths: Sequence[Models], key: tuple[float, float]) -> dict[str, Any]:
    """Return the fitted attributes of a point, one result a target."""
    results = [results[key] for results in paths]
    coef = np.vstack([result.coef for result in results])
    return model._model(coef, np.hstack([result.intercept for result in results]).astype(coef.dtype))


def _grid_columns(grid: Sequence[tuple[float, float]]) -> dict[str, Any]:
    ks, lams = (np.array(column) for column in zip(*grid, strict=True))
    return {"params": [{"k": k, "lam": lam} for k, lam in grid], "param_k": ks, "param_lam": lams}


def _without_checks(scoring: Any) -> AbstractContextManager[Any]:
    """Leave out scikit-learn's checks of samples that were checked before, unless the score is the user's own."""
    if scoring is None or isinstance(scoring, str):
        checked: AbstractContextManager[Any] = config_context(assume_finite=True, skip_parameter_validation=True)
        return checked
    return nullcontext()


def _takes_weights(scorer: Callable[..., Any]) -> bool:
    """Whether a scorer takes sample weights: those of scikit-learn do, a function of the user's may."""
    parameters = inspect.signature(scorer).parameters.values()
    return any(parameter.name in ("sample_weight", "kwargs") for parameter in parameters)


def _minus_loss(loss: Loss, model: Plain, X: Any, y: Array, sample_weight: Vector | None = None) -> float:
    """Return minus the mean loss of a regressor's predictions."""
    means = np.asarray(model.predict(X), dtype=np.float64)
    u = np.log(means) if loss.link == "log" else means
    pairs = zip(np.atleast_2d(u.T), np.atleast_2d(np.asarray(y, dtype=np.float64).T), strict=True)
    each = [loss.of_target(c).value(*pair) for c, pair in enumerate(pairs)]
    return -float(np.average(each, axis=1, weights=sample_weight).mean())


@documented(SparseRegressor)
class SparseRegressorCV(_CrossValidated, SparseRegressor):
    r"""Linear regression with at most k features, k and lam chosen by cross-validation or an information criterion.

    In each fold a model is made for every k and lam from the training samples alone, without bounds, and scored on the others. Then
    the same is done for all samples, and the model for the k and lam chosen is fitted as `SparseRegressor` does, starting from
    theirs: that one has the certificate.

    Parameters
    ----------
    ks : sequence of int or None, default=None
        Numbers of features to try; with `groups` of groups, with `keep` besides those. None takes about ten, evenly spaced on a
        logarithmic scale, from 1 to 30, to all, or to a tenth of the number of samples, whichever is least.
    lams : float or sequence of float, default=(0.001, 0.01, 0.1)
        Strengths of the ridge to try.
    loss
        As in `SparseRegressor`.
    criterion : {"1se", "score", "aic", "bic", "ebic"}, default="1se"
        How k and lam are chosen: the smallest k whose mean score is within one standard error of the best (the standard deviation
        of the best one's scores, divided by the root of the number of folds); the best mean score; or the least information
        criterion of the path of all samples, without folds (see `Path.criterion`; for losses that are likelihoods).
    cv : int, cross-validation generator or iterable, default=None
        The folds, as in scikit-learn; None makes five.
    scoring : str, callable or None, default=None
        The score, the larger the better; None takes minus the mean squared error, minus the mean deviance, or
        minus the mean loss, as `Loss.scoring` says.
    refit : bool, default=True
        Whether to fit the model. Without it only `cv_results_` and what was chosen are there.
    solver : str or Solver, default="auto"
        The method of the last fit. Any but "auto" makes the models of the folds as well, with bounds, as in `sparse_path`.
    exact : bool, default=False
        Whether the last fit, which branches within the budget of the default, is to do so to the end.
    fit_intercept : bool, default=True
        Whether to fit an intercept, which is neither penalised nor counted.
    standardize : bool, default=True
        Whether to divide each column by its weighted standard deviation, that of the training samples of a fold; a group has one
        scale. False for columns whose units are comparable, such as words of texts.
    tol : float, default=1e-4
        The relative gap at which a model counts as optimal.
    time_limit : float, optional
        Limit on the seconds of each path, and of the last fit.
    random_state : int, RandomState instance or None, default=None
        Seed of a stochastic solver.
    n_jobs : int or None, default=None
        Folds at a time, each in a thread of its own; -1 for all processors. None means one fold at a time, with as many threads
        as the plain estimator has.
    verbose : bool, default=False
        Whether to print a line for each fold.
    keep, groups, sign, bounds
        As in `SparseRegressor`.
    encoder : TableEncoder or None, default=None
        How a data frame becomes numbers, as in `SparseRegressor`; in a fold from its training samples alone.
    device : str, optional
        Where to fit, as in `SparseRegressor`; `cv` is then a number of folds, a KFold or a StratifiedKFold.
    constraint : Constraint or None, default=None
        What `diht.per_group`, `diht.within_budget` or `diht.heredity` return; `ks` come in the place of its own k, or budget. None
        takes ten of them up to that. Without `keep` and `groups`.

    Attributes
    ----------
    best_k_, best_lam_ : int (for a budget float) and float
        What was chosen.
    best_index_, best_score_ : int and float
        Its place in `cv_results_`, and its mean score or criterion.
    cv_results_ : dict
        As that of scikit-learn's `GridSearchCV`: `params`, `param_k`, `param_lam`, `split0_test_score` and so on,
        `mean_test_score`, `std_test_score`, `rank_test_score`. For an information criterion its values, by its name.
    path_ : Path
        The models of all samples. Bounds are those of the dual points of these models and of the last fit: `sparse_path` proves
        more of the other points.
    n_splits_ : int
        Number of folds.
    coef_, intercept_, support_, dual_coef_, objective_, lower_bound_, gap_, certificate_, result_, n_iter_, n_samples_fit_
        As in `SparseRegressor`.
    n_features_in_, feature_names_in_, encoder_, target_names_in_
        As in `SparseRegressor`.

    See Also
    --------
    SparseRegressor : The same for a given k and lam.
    sparse_path : The models of all k and lam.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import SparseRegressorCV
    >>> X = np.random.default_rng(0).normal(size=(120, 20))
    >>> y = 3 * X[:, 7] - 2 * X[:, 11] + np.random.default_rng(1).normal(size=120)
    >>> model = SparseRegressorCV(ks=range(1, 6), lams=[0.01, 0.1], criterion="1se").fit(X, y)
    >>> model.best_k_
    2
    >>> model.support_
    array([ 7, 11])
    >>> len(model.cv_results_["params"])
    10
    """

    _plain = SparseRegressor

    def __init__(
        self,
        ks: Sequence[float] | None = None,
        lams: float | Sequence[float] = _LAMS,
        loss: str | Loss = "squared",
        criterion: str = "1se",
        cv: Any = None,
        scoring: Any = None,
        refit: bool = True,
        solver: str | Solver = "auto",
        exact: bool = False,
        fit_intercept: bool = True,
        standardize: bool = True,
        tol: float = 1e-4,
        time_limit: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        keep: ArrayLike | None = None,
        groups: ArrayLike | str | None = None,
        sign: Any = None,
        bounds: Any = None,
        encoder: TableEncoder | None = None,
        device: Any = None,
        constraint: Constraint | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None
    ) -> SparseRegressorCV:
        """Choose k and lam, and fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The samples, float32 or float64 (other types become float64).
        y : array-like of shape (n_samples,)
            The targets.
        sample_weight : array-like of shape (n_samples,), optional
            Nonnegative weights, of which only the ratios matter: for the fits, and for those scores that take weights.
        offset : array-like of shape (n_samples,), optional
            Known parts of x.w + b, such as the logarithms of exposures for counts; predictions that are scored have theirs.

        Returns
        -------
        SparseRegressorCV
            The estimator itself.
        """
        if dispatches(X):
            moved: SparseRegressorCV = fit_in_namespace(self, X, y, sample_weight, offset)
            return moved
        self._fit(X, y, sample_weight, offset)
        return self

    def _scoring(self) -> str | Callable[..., float] | None:
        loss = self._loss()
        return partial(_minus_loss, loss) if loss.scoring == "loss" else loss.scoring

    def _targets(self, y: Array, weights: Vector | None) -> tuple[dict[str, Array], Vector, Array | None]:
        return {"": y}, normalised_weights(weights, len(y)), None


@documented(SparseClassifier, SparseRegressorCV)
class SparseClassifierCV(_CrossValidated, SparseClassifier):
    r"""Linear classification with at most k features, k and lam chosen by cross-validation or an information criterion.

    In each fold a model is made for every k and lam from the training samples alone, without bounds, and scored on the others. Then
    the same is done for all samples, and the model for the k and lam chosen is fitted as `SparseClassifier` does, starting from
    theirs: that one has the certificate.

    Parameters
    ----------
    ks, lams
        As in `SparseRegressorCV`.
    loss, multiclass
        As in `SparseClassifier`.
    criterion, cv
        As in `SparseRegressorCV`.
    scoring : str, callable or None, default=None
        The score, the larger the better; None takes the accuracy.
    refit
        As in `SparseRegressorCV`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which multiply those of their samples in the fits; scores know nothing of them.
    solver, exact, fit_intercept, standardize, tol, time_limit, random_state, n_jobs, verbose
        As in `SparseRegressorCV`.
    keep, groups, sign, bounds
        As in `SparseClassifier`.
    encoder : TableEncoder or None, default=None
        How a data frame becomes numbers, as in `SparseClassifier`; in a fold from its training samples alone.
    device : str, optional
        Where to fit, as in `SparseClassifier`; `cv` is then a number of folds, a KFold or a StratifiedKFold.
    constraint
        As in `SparseRegressorCV`.

    Attributes
    ----------
    best_k_, best_lam_, best_index_, best_score_, cv_results_
        As in `SparseRegressorCV`.
    path_ : Path or list of Path
        The models of all samples; with ``multiclass="ovr"`` one path for each of more than two classes against the rest. Bounds
        are those of the dual points of these models and of the last fit: `sparse_path` proves more of the other points.
    n_splits_
        As in `SparseRegressorCV`.
    coef_, intercept_, support_, dual_coef_, objective_, lower_bound_, gap_, certificate_, result_, n_iter_, n_samples_fit_
        As in `SparseClassifier`.
    n_features_in_, feature_names_in_, encoder_
        As in `SparseClassifier`.

    See Also
    --------
    SparseClassifier : The same for a given k and lam.
    sparse_path : The models of all k and lam.

    Examples
    --------
    >>> import numpy as np
    >>> from diht import SparseClassifierCV
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> y = np.where(X[:, 3] - X[:, 11] > 0, "yes", "no")
    >>> model = SparseClassifierCV(ks=[1, 2, 3], lams=0.1, criterion="bic").fit(X, y)
    >>> model.best_k_
    2
    >>> model.predict(X[:3]).tolist() == y[:3].tolist()
    True
    """

    _plain = SparseClassifier

    def __init__(
        self,
        ks: Sequence[float] | None = None,
        lams: float | Sequence[float] = _LAMS,
        loss: str | Loss = "logistic",
        criterion: str = "1se",
        cv: Any = None,
        scoring: Any = None,
        refit: bool = True,
        class_weight: Any = None,
        solver: str | Solver = "auto",
        exact: bool = False,
        fit_intercept: bool = True,
        standardize: bool = True,
        tol: float = 1e-4,
        time_limit: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool = False,
        keep: ArrayLike | None = None,
        groups: ArrayLike | str | None = None,
        sign: Any = None,
        bounds: Any = None,
        multiclass: str = "shared",
        encoder: TableEncoder | None = None,
        device: Any = None,
        constraint: Constraint | None = None,
    ) -> None:
        keep_parameters(self, locals())

    def _targets(self, y: Array, weights: Vector | None) -> tuple[dict[str, Array], Vector, Array | None]:
        classes, codes = classes_of(y)
        s = class_weighted(normalised_weights(weights, len(y)), self.class_weight, classes, codes)
        return dict(self._class_targets(classes, codes)), s, classes

    def _check_classes(self, classes: Array | None) -> None:
        loss = self._loss()
        if loss.coupled and classes is not None and len(classes) == 2:
            raise ValueError(
                f"loss={self.loss!r} needs more than two classes here: two are those of "
                f"loss={loss.of_two_classes()[0].name!r} with half of each lam"
            )

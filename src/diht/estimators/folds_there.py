"""Cross-validation where the rows are elsewhere, on workers or a device: folds by a rule, weights of zero, scores that are sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy
from sklearn.base import clone, is_classifier
from sklearn.model_selection import KFold, StratifiedKFold, check_cv
from sklearn.utils import check_random_state

from diht.dask.data import Collections, RemoteData
from diht.design.scatter import Scatter
from diht.estimators.folds import Grid, Models, Plain
from diht.estimators.there import problems_there
from diht.losses import Loss
from diht.numerics.arrays import Array, Indices, Vector
from diht.problem import Problem
from diht.result import Result
from diht.samples import Rows

if TYPE_CHECKING:
    from diht.gpu.data import DeviceData

__all__ = ["FoldRule", "There", "score_of"]

_AT_ONCE = 8  # models whose predictions are in memory at a time
_MIXING = [np.uint64(m) for m in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)]  # of SplitMix64
_LEAST = float(np.finfo(np.float64).eps)  # probability, as scikit-learn's log loss has it


class FoldRule(NamedTuple):
    """Which fold a sample is held out in, by its number among all samples, or among those of its class.

    Attributes
    ----------
    n_folds : int
    stratified : bool
        Whether samples are counted by class.
    seed : int or None
        None for folds of neighbours, as scikit-learn makes them. Else each run of so many samples as there are folds is dealt to
        them in an order of its own.
    """

    n_folds: int
    stratified: bool
    seed: int | None

    @classmethod
    def of(cls, cv: Any, classifier: bool) -> FoldRule:
        """Return the rule of what scikit-learn takes for `cv`; ValueError where there is none."""
        splitter = cv
        if cv is None or isinstance(cv, int | np.integer):
            splitter = check_cv(cv, y=[0, 1] if classifier else None, classifier=classifier)
        if type(splitter) not in (KFold, StratifiedKFold):
            kinds = "a number of folds, a KFold or a StratifiedKFold"
            raise ValueError(f"cv must be {kinds} where X is a Dask collection or on a device, got {type(cv).__name__}")
        stratified = isinstance(splitter, StratifiedKFold)
        if stratified and not classifier:
            raise ValueError("cv must not be a StratifiedKFold where targets are no classes")
        seed = None
        if splitter.shuffle:
            given = splitter.random_state
            seed = int(given) if isinstance(given, int | np.integer) else check_random_state(given).randint(2**31 - 1)
        return cls(splitter.get_n_splits(), stratified, seed)

    def numbers(self, data: RemoteData | DeviceData) -> Rows:
        """Return the number of its fold for each sample."""
        samples = data.samples
        n_labels = len(data.classes) if self.stratified and data.classes is not None else 1
        labels = samples.y if self.stratified else samples.full(0.0)
        ranks, totals, firsts = samples.ranks(labels, n_labels)
        fewest = int(totals.min())
        if fewest < self.n_folds:
            what = "samples of each class" if self.stratified else "samples"
            raise ValueError(f"cv={self.n_folds} needs as many {what}, got {fewest}")
        ends = None if self.seed is not None else self._ends(totals, np.argsort(firsts))

        def fold(y: Vector, s: Vector, label: Vector, rank: Vector) -> Vector:
            found = np.empty(len(y))
            for c in range(n_labels):
                own = label == c
                ranks = rank[own].astype(np.int64)
                found[own] = self._dealt(ranks, c) if ends is None else np.searchsorted(ends[c], ranks, "right")
            return found

        return samples.map_in_memory(fold, labels, ranks)

    def _ends(self, totals: Indices, order: Indices) -> dict[int, Indices]:
        """Return, for each class, how many of its samples come before the end of each fold of neighbours.

        scikit-learn deals the samples, sorted by class in the order in which classes appear, to the folds in turn: that says how
        many of each class a fold has. Without classes the first folds are larger by one.
        """
        n, ends, first = self.n_folds, {}, 0
        for c in order.tolist():
            end = first + int(totals[c])
            ends[c] = np.cumsum([(end - 1 - i) // n - (first - 1 - i) // n for i in range(n)])
            first = end
        return ends

    def _dealt(self, ranks: Indices, c: int) -> Indices:
        """Return the folds of samples of a class by their numbers: their places in the order of their runs."""
        assert self.seed is not None
        mixed = partial(_mixed, seed=self.seed + (c << 32))
        first, own = ranks // self.n_folds * self.n_folds, mixed(ranks)
        return np.asarray(np.sum([mixed(first + i) < own for i in range(self.n_folds)], axis=0), dtype=np.int64)


def _mixed(numbers: Indices, seed: int) -> NDArray[np.uint64]:
    """Return a number for each that looks random."""
    a, b, c = _MIXING
    with np.errstate(over="ignore"):
        x = numbers.astype(np.uint64) * a + np.uint64(seed) * b + c
        x = (x ^ (x >> np.uint64(30))) * b
        x = (x ^ (x >> np.uint64(27))) * c
    return np.asarray(x ^ (x >> np.uint64(31)))


class Score(NamedTuple):
    """A score that follows from sums over the samples.

    Attributes
    ----------
    terms : callable
        From targets, predictions x.w + b of every target or class, and weights, to sums.
    value : callable
        From the sums of all samples to the score.
    """

    terms: Callable[[Vector, Vector, Vector], Any]
    value: Callable[[Vector], float]


def _errors(loss: Loss, error: Callable[[Vector, Vector], Vector], of_mean: Callable[[Any], Any] = np.asarray) -> Score:
    """Return minus a mean of errors of the targets and their predicted means, averaged over the targets."""
    return Score(
        lambda y, u, s: np.concatenate([error(np.atleast_2d(y), loss.mean(u)) @ s, [s.sum()]]),
        lambda sums: -float(np.mean(of_mean(sums[:-1] / sums[-1]))),
    )


def _losses(loss: Loss) -> Score:
    """Return minus the mean loss, averaged over the targets."""
    return Score(
        lambda y, u, s: np.concatenate([loss.value(u, np.atleast_2d(y)) @ s, [s.sum()]]),
        lambda sums: -float(np.mean(sums[:-1] / sums[-1])),
    )


def _explained(loss: Loss) -> Score:
    """Return the share of the variation that predictions explain, averaged over the targets."""

    def terms(y: Vector, u: Vector, s: Vector) -> Vector:
        y = np.atleast_2d(y)
        return np.concatenate([np.square(y - loss.mean(u)) @ s, np.square(y) @ s, y @ s, [s.sum()]])

    def value(sums: Vector) -> float:
        errors, squares, means = np.split(sums[:-1], 3)
        return float(np.mean(1.0 - errors / (squares - means**2 / sums[-1])))

    return Score(terms, value)


def _deviance(y: Vector, mean: Vector) -> Vector:
    deviance: Vector = 2.0 * (xlogy(y, y / mean) - y + mean)
    return deviance


def _gamma_deviance(y: Vector, mean: Vector) -> Vector:
    deviance: Vector = 2.0 * (np.log(mean / y) + y / mean - 1.0)
    return deviance


def _hits(y: Vector, u: Vector) -> Array:
    codes: Any = u[0] > 0.0 if len(u) == 1 else np.argmax(u, axis=0)
    return codes == y  # type: ignore[no-any-return]


def _of_classes(loss: Loss, n_classes: int) -> dict[str, Score]:
    """Return the scores of classes by their name."""

    def recalls(y: Vector, u: Vector, s: Vector) -> Vector:
        codes = y.astype(np.int64)
        return np.concatenate([np.bincount(codes, s * _hits(y, u), n_classes), np.bincount(codes, s, n_classes)])

    def mean_recall(sums: Vector) -> float:
        hits, totals = np.split(sums, 2)
        return float(np.mean(hits[totals > 0.0] / totals[totals > 0.0]))

    def log_losses(y: Vector, u: Vector, s: Vector) -> Vector:
        logs = loss.log_likelihoods(u.T)
        logs = logs - np.max(logs, axis=1)[:, None]
        own = logs[np.arange(len(y)), y.astype(np.int64)] - np.log(np.sum(np.exp(logs), axis=1))
        return np.stack([s @ np.maximum(own, np.log(_LEAST)), s.sum()])

    def ratio(sums: Vector) -> float:
        return float(sums[0] / sums[1])

    known = {
        "accuracy": Score(lambda y, u, s: np.stack([s @ _hits(y, u), s.sum()]), ratio),
        "balanced_accuracy": Score(recalls, mean_recall),
    }
    return known | ({"neg_log_loss": Score(log_losses, ratio)} if loss.has_probabilities else {})


def score_of(name: Any, loss: Loss, n_classes: int) -> Score:
    """Return the score of a name of scikit-learn's; `n_classes` is 0 for regression."""
    known = _of_classes(loss, n_classes) if n_classes else {
        "neg_mean_squared_error": _errors(loss, lambda y, p: np.square(y - p)),
        "neg_root_mean_squared_error": _errors(loss, lambda y, p: np.square(y - p), np.sqrt),
        "neg_mean_absolute_error": _errors(loss, lambda y, p: np.abs(y - p)),
        "neg_mean_poisson_deviance": _errors(loss, _deviance),
        "neg_mean_gamma_deviance": _errors(loss, _gamma_deviance),
        "r2": _explained(loss),
    }  # fmt: skip
    if not isinstance(name, str) or name not in known:
        raise ValueError(f"scoring must be one of {[*known]} where X is a Dask collection or on a device, got {name!r}")
    return known[name]


@dataclass(frozen=True, eq=False)
class There:
    """Rows on workers or on a device, as cross-validation asks for them; a fold is the number of what is held out."""

    data: RemoteData | DeviceData
    given: Collections
    rule: FoldRule | None

    here: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of samples and of features."""
        return self.data.samples.design.shape

    @property
    def n_counted(self) -> float:
        """How many samples information criteria count."""
        return self.data.weight

    @cached_property
    def folds(self) -> list[int]:
        """The numbers of the folds."""
        return [] if self.rule is None else list(range(self.rule.n_folds))

    @cached_property
    def numbers(self) -> Rows:
        """The fold of each sample."""
        assert self.rule is not None
        return self.rule.numbers(self.data)

    def _weighted(self, keep: Callable[[Vector], Any]) -> Any:
        """Return the samples of some folds: the others have no weight."""
        samples: Any = self.data.samples
        s = samples.map(lambda y, s, fold: np.where(keep(fold), s, 0.0), self.numbers)
        total = samples.with_weights(s).total(np.ones_like)
        if not total > 0.0:
            raise ValueError("every fold needs samples with some weight, in it and beside it")
        return samples.with_weights(samples.map(lambda y, s, own: own / total, s))

    def problems(self, model: Plain, grid: Grid, fold: int | None = None) -> list[Problem]:
        """Return the problem of each target of a fold's training samples, or of all, with the largest k and lam."""
        data = self.data
        if fold is not None:
            data = replace(data, samples=self._weighted(lambda numbers: numbers != fold))
        return list(problems_there(model, data, grid.constraint, grid.lams[-1])[0].values())

    def sums(self, grid: Grid, n_threads: int | None = None) -> SumsThere | None:
        """Return sums over the samples that all models follow from; None where they do not, or are too many."""
        several = self.data.n_targets > 0 or self.data.classes is not None
        return None if several or not grid.follows_from_sums(self.shape[1]) else SumsThere(grid, self)

    def scores(
        self, estimator: Any, grid: Grid, sums: SumsThere | None, fold: int, _: int | None
    ) -> tuple[list[float], bool]:
        """Make the models of a fold's training samples, and score each on the others; tell whether nothing was stopped."""
        model = clone(grid.plain)
        paths = [sums.models(fold)] if sums is not None else None
        if paths is None:
            paths = list(map(replace(grid, plain=model).models, self.problems(model, grid, fold)))
        whole = not grid.asked()
        n_classes = 0 if self.data.classes is None else len(self.data.classes)
        loss = model._fitted_loss()
        name = estimator.scoring or ("accuracy" if is_classifier(model) else loss.scoring)
        score = _losses(loss) if estimator.scoring is None and name == "loss" else score_of(name, loss, n_classes)
        found = [[path[key] for path in paths] for key in grid.keys]
        batches = [found[i : i + _AT_ONCE] for i in range(0, len(found), _AT_ONCE)]
        return [value for batch in batches for value in self._scored(score, batch, fold)], whole

    def _scored(self, score: Score, models: list[list[Any]], fold: int) -> list[float]:
        """Score some models, each a list by target, on what is held out: one round trip."""
        data, samples = self.data, self.data.samples
        offset, terms = data.offset(), score.terms
        targets = data.targets() if data.n_targets else samples.y
        coef = [np.vstack([np.atleast_2d(part.coef) for part in model]).astype(np.float64) for model in models]
        b = [np.hstack([part.intercept for part in model]).astype(np.float64) for model in models]
        n_rows = len(coef[0])
        margins = [
            samples.margins(row, float(b[i][c]), np.flatnonzero(row))
            for i, rows in enumerate(coef)
            for c, row in enumerate(rows)
        ]

        def sums(y: Vector, s: Vector, numbers: Vector, targets: Vector, *rows: Vector) -> Array:
            held = numbers == fold
            known = rows[0][..., held] if offset_is_given else 0.0
            u = [row[held] for row in rows[offset_is_given:]]
            each = [np.stack(u[i : i + n_rows]) + known for i in range(0, len(u), n_rows)]
            return np.stack([terms(targets[..., held], one, s[held]) for one in each])

        offset_is_given = offset is not None
        beside = (offset,) if offset_is_given else ()
        totals = np.sum(samples.each(sums, self.numbers, targets, *beside, *margins), axis=0)
        return [score.value(row) for row in totals]

    def fitted(self, plain: Plain) -> list[Result]:
        """Fit an estimator to all samples, and return its results with their dual points."""
        return plain._fit_there(self.data, self.given)


@dataclass(frozen=True, eq=False)
class SumsThere:
    """Sums over the samples of each fold, and what they say of the models of the others."""

    grid: Grid
    there: There

    @cached_property
    def _parts(self) -> list[Scatter]:
        """The sums of each fold, or of all samples where there are none: a round trip each."""
        there, data = self.there, self.there.data
        offset, samples = data.offset(), data.samples
        if offset is not None:
            samples = samples.with_targets(samples.map(lambda y, s, known: y - known, offset))
        if there.rule is None:
            return [samples.scatter(samples.s)]
        numbers = there.numbers
        return [
            samples.scatter(samples.map(lambda y, s, own, i=i: np.where(own == i, s, 0.0), numbers))
            for i in there.folds
        ]

    def models(self, fold: int | None = None, n_threads: int | None = None) -> Models:
        """Return the models of a fold's training samples, or of all."""
        parts = [part for i, part in enumerate(self._parts) if i != fold]
        return self.grid.models_from(Scatter.added(parts, self.there.shape[0]), self.there.shape[0])

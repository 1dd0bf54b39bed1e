"""All models that are nearly as good as the best one, and how often each feature is in them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from diht.estimators.path import default_names
from diht.fit import Fit
from diht.numerics.arrays import Indices, Vector
from diht.numerics.digits import rounded_down, rounded_up
from diht.numerics.interrupt import not_interruptible
from diht.problem import Problem
from diht.report.plots import Frequencies, draw_frequencies
from diht.result import Model
from diht.solvers.enumeration import Enumeration, enumerated
from diht.solvers.loop import require_problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["NearOptimal", "near_optimal"]

_SHOWN, _NAMED = 10, 8  # models, and features of the frequencies, in the text


@dataclass(frozen=True, eq=False)
class NearOptimal:
    """The supports of exactly k features (or groups, or besides those to keep) that are within a threshold of the best objective.

    Attributes
    ----------
    supports : tuple of arrays of int
        The features of each model, ascending, by its objective, the best first. Those of a set of copies are the first of them.
    objectives : array
        The least objective of a model with these features.
    epsilon, threshold : float
        The best objective plus epsilon times its size. What is above by less than 1e-9 of the best objective counts as within.
    complete : bool
        Whether every support within the threshold is proved to be here, exchanges of copies included. False where `max_models`,
        `time_limit` or memory ended the search, or rounding hides on which side of the threshold a support is.
    exhausted_below : float
        Every support whose objective is below this is here, complete or not.
    classes : tuple of arrays of int
        Sets of features that are copies of each other, equal or opposite as the problem has them (centred, and scaled).
    multiplicity : tuple of int
        For each model the number of supports that exchanges of copies make of it, itself included: they cost the same.
    n_nodes : int
        Parts of the problem that were looked at.
    seconds : float
    feature_names : tuple of str
    """

    supports: tuple[Indices, ...] = field(repr=False)
    objectives: Vector = field(repr=False)
    epsilon: float
    threshold: float
    complete: bool
    exhausted_below: float
    classes: tuple[Indices, ...] = field(repr=False)
    multiplicity: tuple[int, ...] = field(repr=False)
    n_nodes: int
    seconds: float
    feature_names: tuple[str, ...] = field(repr=False)
    problem: Problem = field(repr=False)
    fits: tuple[Fit, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.supports)

    @property
    def models(self) -> tuple[Model, ...]:
        """The models with their coefficients, the best first."""
        return tuple(fit.model(self.problem) for fit in self.fits)

    @property
    def n_supports(self) -> int:
        """The number of supports, exchanges of copies included."""
        return sum(self.multiplicity)

    @property
    def frequency(self) -> Vector:
        """The fraction of the supports, exchanges of copies included, that hold each feature."""
        counts = np.zeros(len(self.feature_names))
        for support, number in zip(self.supports, self.multiplicity, strict=True):
            share = np.zeros(len(counts))
            share[support] = 1.0
            for features in self.classes:
                share[features] = share[features].mean()
            counts += number / self.n_supports * share
        return counts

    def plot(self) -> Figure:
        """Draw how often the features are in the models, the most frequent on top; needs matplotlib."""
        try:
            import matplotlib  # noqa: F401 - the drawing itself imports it late
        except ImportError:
            raise ImportError("plot needs matplotlib: pip install 'diht[app]'") from None
        order = self._order()
        names, best = [self.feature_names[j] for j in order], np.isin(order, self.supports[0])
        shares = Frequencies(names, self.frequency[order], best)
        return draw_frequencies(shares, self._heading(), "share of the models with the feature (dark: in the best one)")

    def _order(self) -> Indices:
        """The features of any model, the most frequent first."""
        frequency = self.frequency
        ever = np.flatnonzero(frequency)
        return np.asarray(ever[np.argsort(-frequency[ever], kind="stable")])

    def _heading(self) -> str:
        """How many there are, and whether these are all."""
        count = f"{len(self):,} model{'s' * (len(self) != 1)} within {100 * self.epsilon:g}% of the best"
        return count + (", all there are" if self.complete else ", and perhaps others")

    def _rows(self) -> Iterator[str]:
        best = self.objectives[0]
        for support, objective, number in list(zip(self.supports, self.objectives, self.multiplicity, strict=True))[
            :_SHOWN
        ]:
            above = f"+{rounded_up(100 * (objective - best) / abs(best), 3)}%" if objective > best else "best"
            names = ", ".join(self.feature_names[j] for j in support)
            yield f"  {objective:<11.7g}  {above:>8}  {names}" + (f"  ({number:,} supports)" if number > 1 else "")

    def __str__(self) -> str:
        lines = [f"{self._heading()}: objectives up to {self.threshold:.7g}", *self._rows()]
        if len(self) > _SHOWN:
            lines.append(f"  ... and {len(self) - _SHOWN:,} more")
        if not self.complete:
            lines.append(f"no other has an objective below {rounded_down(self.exhausted_below, 7)}")
        frequency, order = self.frequency, self._order()
        shown = ", ".join(f"{self.feature_names[j]} {100 * frequency[j]:.0f}%" for j in order[:_NAMED])
        more = f" and {len(order) - _NAMED:,} more" if len(order) > _NAMED else ""
        lines += textwrap.wrap(f"features: {shown}{more}", 100, subsequent_indent="  ")
        if self.classes:
            copies = "; ".join(" = ".join(self.feature_names[j] for j in features) for features in self.classes)
            lines.append(f"copies of each other: {copies}")
        return "\n".join(lines)

    __repr__ = __str__


@not_interruptible()
def near_optimal(
    problem: Problem,
    epsilon: float = 0.05,
    max_models: int = 1000,
    time_limit: float | None = None,
    *,
    feature_names: Sequence[str] | None = None,
) -> NearOptimal:
    """List every support of exactly k features whose best objective is within epsilon of the best of all.

    A search tree is pruned where a lower bound is above the threshold. Nothing within the threshold is overlooked: `complete` is a
    proof. Of the models with fewer features none is better than one with k that holds its features.

    Parameters
    ----------
    problem : Problem
        With any loss and constraint that counts features or groups; supports hold the features to keep besides the k.
    epsilon : float
        Zero or more; the threshold is ``P + epsilon |P|``, P the best objective.
    max_models : int
        How many to list at most; the best ones where there are more.
    time_limit : float, optional
        Seconds.
    feature_names : sequence of str, optional
        For texts and pictures; x0, x1, ... by default.

    Returns
    -------
    NearOptimal

    Examples
    --------
    >>> import numpy as np
    >>> from diht import Problem, near_optimal
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((50, 6))
    >>> y = X[:, 0] + X[:, 1] + 0.1 * rng.standard_normal(50)
    >>> problem = Problem(np.c_[X, X[:, 1]], y, "squared", k=2, lam=0.01)
    >>> near = near_optimal(problem, 0.1)
    >>> near.complete, [support.tolist() for support in near.supports], near.multiplicity
    (True, [[0, 1]], (2,))
    """
    require_problem(problem)
    d = problem.shape[1] // problem.n_targets
    _check(epsilon, max_models, time_limit)
    if feature_names is not None and len(feature_names) != d:
        raise ValueError(f"feature_names must be {d} to match X, got {len(feature_names)}")
    begun = perf_counter()
    tree = enumerated(problem, float(epsilon), int(max_models), time_limit)
    names = default_names(d) if feature_names is None else tuple(map(str, feature_names))
    return _listed(tree, names, perf_counter() - begun)


def _check(epsilon: float, max_models: int, time_limit: float | None) -> None:
    """Raise ValueError where a limit makes no sense."""

    def is_number(value: object) -> bool:
        return isinstance(value, Real) and not isinstance(value, bool)

    if not is_number(epsilon) or not 0.0 <= epsilon < np.inf:
        raise ValueError(f"epsilon must be a number, zero or more, got {epsilon!r}")
    if not is_number(max_models) or not isinstance(max_models, Integral) or max_models < 1:
        raise ValueError(f"max_models must be a whole number, one or more, got {max_models!r}")
    if time_limit is not None and not (is_number(time_limit) and time_limit > 0.0):
        raise ValueError(f"time_limit must be positive, got {time_limit!r}")


def _listed(tree: Enumeration, names: tuple[str, ...], seconds: float) -> NearOptimal:
    """Return what a search has found."""
    column_of, fits = tree.problem.samples.column_of, tuple(tree.listed)
    used = np.unique(np.concatenate([fit.support for fit in fits]))
    return NearOptimal(
        supports=tuple(np.unique(column_of(fit.support)) for fit in fits),
        objectives=np.array([fit.objective for fit in fits]),
        epsilon=tree.epsilon,
        threshold=tree.threshold,
        complete=tree.complete,
        exhausted_below=tree.exhausted_below,
        classes=tuple(column_of(features) for features in tree.copies if np.any(np.isin(features, used))),
        multiplicity=tuple(tree.multiplicity(fit.support) for fit in fits),
        n_nodes=tree.solved,
        seconds=seconds,
        feature_names=names,
        problem=tree.problem,
        fits=fits,
    )

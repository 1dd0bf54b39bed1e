"""Problems for the fuzzer: each follows from one integer, half of them ordinary, the others hostile in one way or in several.

A case is data and what is asked about it, and nothing of the package: the oracle reads the same numbers as the methods under test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Vector = NDArray[np.float64]

MORE = ("quantile", "gamma", "tweedie", "negative_binomial")  # those of `draw_more`
LOG_LINK = ("poisson", "gamma", "tweedie", "negative_binomial")
REGRESSION = ("squared", "huber", "poisson", *MORE)
CLASSIFICATION = ("logistic", "hinge", "smoothed_hinge", "squared_hinge")
LOSSES = (*REGRESSION[:3], *CLASSIFICATION, "multinomial")
METHODS = ("diht", "sdiht", "iht", "htp", "svrght", "relaxed")
SHARED_METHODS = ("iht", "htp", "relaxed")  # those that take several targets
STORAGE: dict[str, Callable[[np.ndarray], Any]] = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "CSR": sp.csr_array,
    "CSC": sp.csc_array,
}
LARGEST = 9e74  # of what a problem may hold; float32 ends sooner
INGREDIENTS = (
    "columns",
    "whole",
    "means",
    "target",
    "weights",
    "separable",
    "dependent",
    "tiny",
    "lam",
    "float32",
    "offset",
    "ties",
    "empty",
    "tol",
)


@dataclass(frozen=True)
class Call:
    """One question: `solve` or `certify` of a problem, a fit of an estimator, or a path."""

    kind: str
    solver: str = "auto"  # a name, or "Auto()", "SDIHT()", "SVRGHT()" for an object
    tol: float = 1e-4
    max_iter: int | None = None
    exact: bool = False
    given: str = "model"  # to certify: a model, a huge one, a support, or a dual point besides
    time_limit: float | None = None

    def __str__(self) -> str:
        asked = {"tol": self.tol, "max_iter": self.max_iter, "exact": self.exact}
        if self.kind == "certify":
            asked["given"] = self.given
        return f"{self.kind} {self.solver} ({', '.join(f'{name}={value}' for name, value in asked.items() if value)})"

    @property
    def seeks_the_optimum(self) -> bool:
        """Whether the answer is meant to be the best model of all."""
        return (
            self.kind in ("solve", "fit", "path")
            and self.max_iter is None
            and self.solver in ("auto", "Auto()", "branch")
        )

    @property
    def is_exact(self) -> bool:
        """Whether the search goes on until the gap is closed."""
        return self.seeks_the_optimum and (self.solver == "branch" or self.exact)


@dataclass(frozen=True, eq=False)
class Case:
    """A problem as a user states it, and the calls to make."""

    seed: int
    loss: str
    parameter: float | None  # of the Huber loss, the smoothed hinge, and those of `MORE`
    X: NDArray[Any]
    y: NDArray[Any]  # one column a target; classes of the multinomial loss by their numbers
    k: Any  # a whole number, or a budget
    lam: float
    weights: Vector | None
    offset: Vector | None
    fit_intercept: bool
    standardize: bool
    storage: str
    keep: tuple[int, ...] | None
    groups: tuple[int, ...] | None
    sign: tuple[Any, ...] | None  # one for each feature, or such a row for each target
    ingredients: tuple[str, ...]
    calls: tuple[Call, ...]
    scale: Vector | None = field(
        repr=False, default=None
    )  # deviations of the columns, or of their groups, with standardize
    n_targets: int = 1  # of the multinomial loss, its classes
    device: str | None = None  # where estimators fit
    rule: dict[str, Any] | None = (
        None  # of one's own choice: groups of which some, costs, or parents; k is then its level
    )

    @property
    def n_features(self) -> int:
        return self.X.shape[1]

    @property
    def signs(self) -> NDArray[np.int64] | None:
        """The signs of all coefficients, one row a target."""
        return None if self.sign is None else np.broadcast_to(self.sign, (self.n_targets, self.n_features))

    @property
    def codes(self) -> NDArray[Any] | None:
        """The classes of samples that have one each, of three or more."""
        if self.n_targets < 3 or self.loss in (*REGRESSION, "logistic"):
            return None
        if self.loss == "multinomial":
            return self.y
        return np.argmax(self.y, axis=1) if np.all((self.y > 0).sum(axis=1) == 1) else None

    @property
    def stored(self) -> Any:
        """X as it is handed over."""
        return STORAGE[self.storage](self.X)

    def __str__(self) -> str:
        n, d = self.X.shape
        constraint = "".join(
            f", {name}={value}"
            for name, value in (("keep", self.keep), ("groups", self.groups), ("sign", self.sign), ("rule", self.rule))
            if value is not None
        )
        extras = "".join(
            f", {name}"
            for name, there in (
                ("intercept", self.fit_intercept),
                ("standardized", self.standardize),
                ("weights", self.weights is not None),
                ("offset", self.offset is not None),
            )
            if there
        )
        loss = self.loss if self.parameter is None else f"{self.loss}({self.parameter:.3g})"
        loss += f" x{self.n_targets}" * (self.n_targets > 1)
        hostile = " [" + " ".join(self.ingredients) + "]" if self.ingredients else ""
        return f"{loss} {n} x {d}, k={self.k}{constraint}, lam={self.lam:.3g}{extras}, {self.storage} {self.X.dtype}{hostile}"


def draw(seed: int, loss: str | None = None, constraint: str | None = None) -> Case:
    """The case of a seed; a loss, and one kind of constraint ("plain", "keep", "groups", "sign"), may be prescribed."""
    rng = np.random.default_rng([seed, 14])
    drawn = LOSSES[rng.choice(len(LOSSES), p=[0.15, *[0.13] * 6, 0.07])]
    loss = drawn if loss is None else loss
    several = loss == "multinomial"
    ingredients = _ingredients(rng, loss)
    d = int(rng.choice(10, p=_SIZES)) + 1
    keep, groups, sign = (None, None, None) if several else _structure(rng, d, constraint)
    if several or sign is not None or loss in ("hinge", "quantile"):
        d = min(d, 6 - several)
        keep, groups, sign = (None if a is None else a[:d] for a in (keep, groups, sign))
    keep = _kept(keep, groups)
    n = int(np.ceil(3 + 37 * rng.random() ** 2.5))
    if "tiny" in ingredients:
        n = int(rng.integers(1, 4))
    n = max(n, {"multinomial": 3, **dict.fromkeys(CLASSIFICATION, 2)}.get(loss, 1))
    X = _matrix(rng, n, d, ingredients)
    planted = np.where(rng.random(d) < 0.6, rng.standard_normal(d), 0.0)
    signal = X @ planted + rng.standard_normal()
    X = _scaled(rng, X, ingredients)
    y = _targets(rng, loss, signal, ingredients)
    weights = (
        _weights(rng, loss, y, "weights" in ingredients) if rng.random() < 0.25 or "weights" in ingredients else None
    )
    standardize = bool(rng.random() < 0.25)
    scale = deviations(X, weights, groups) if standardize else None
    if scale is not None and _is_ambiguous(X, weights):
        standardize, scale = False, None
    k = int(rng.integers(1, _choices(d, keep, groups) + 1))
    return Case(
        seed=seed,
        loss=loss,
        parameter=_parameter(rng, loss),
        X=X,
        y=y,
        k=k,
        lam=float(10.0 ** (rng.uniform(-10.0, 3.0) if "lam" in ingredients else rng.uniform(-4.0, 1.0))),
        weights=weights,
        offset=_offset(rng, loss, n, y) if "offset" in ingredients and loss in REGRESSION[:-1] else None,
        fit_intercept=bool(rng.random() < 0.6),
        standardize=standardize,
        storage=str(rng.choice(list(STORAGE))),
        keep=keep,
        groups=groups,
        sign=sign,
        ingredients=ingredients,
        calls=_calls(rng, several, "tol" in ingredients),
        scale=scale,
        n_targets=3 if several else 1,
    )


def draw_more(seed: int, loss: str | None = None, constraint: str | None = None) -> Case:
    """A case of one of the other losses."""
    drawn = MORE[np.random.default_rng([seed, 21]).integers(len(MORE))]
    return draw(seed, drawn if loss is None else loss, constraint)


def draw_ruled(seed: int, loss: str | None = None, constraint: str | None = None) -> Case:
    """A case of any loss under a constraint of one's own choice."""
    rng = np.random.default_rng([seed, 33])
    case = (draw_more if rng.random() < 0.4 else draw)(
        seed, loss, constraint or ("sign" if rng.random() < 0.2 else "plain")
    )
    d = min(case.n_features, 7)
    case = replace(
        case,
        X=case.X[:, :d],
        sign=None if case.sign is None else case.sign[:d],
        scale=None if case.scale is None else case.scale[:d],
    )
    kind = ("per_group", "budget", "strong", "weak")[rng.integers(4)]
    if kind == "budget":
        costs = 10.0 ** rng.uniform(-1.0, 1.0, d)
        budget = float(rng.uniform(costs.min(), costs.sum()))
        return replace(case, k=budget, rule={"kind": kind, "costs": tuple(costs.tolist())})
    k = int(rng.integers(1, d + 1))
    if kind == "per_group":
        labels = np.unique(rng.integers(0, d // 2 + 1, d), return_inverse=True)[1]
        most = rng.integers(0, 3, labels.max() + 1)
        most[rng.integers(len(most))] = 1
        return replace(case, k=k, rule={"kind": kind, "group": tuple(labels.tolist()), "most": tuple(most.tolist())})
    order, parents = rng.permutation(d), [()] * d
    for i in range(int(rng.integers(1, d + 1)), d):
        parents[order[i]] = tuple(sorted(order[rng.choice(i, min(i, int(rng.integers(1, 4))), replace=False)].tolist()))
    return replace(case, k=k, rule={"kind": kind, "parents": tuple(parents)})


def _parameter(rng: np.random.Generator, loss: str) -> float | None:
    """The parameter of a loss that has one."""
    low, high = {
        "huber": (-1.5, 0.5),
        "smoothed_hinge": (-1.5, 0.5),
        "quantile": (0.03, 0.97),
        "tweedie": (1.03, 1.97),
        "negative_binomial": (-2.0, 1.0),
    }.get(loss, (0.0, 0.0))
    if low == high:
        return None
    value = float(rng.uniform(low, high))
    return value if loss in ("quantile", "tweedie") else float(10.0**value)


def draw_shared(seed: int, loss: str | None = None, constraint: str | None = None) -> Case:
    """A case of several targets that share features; the first of them is that of an ordinary case."""
    rng = np.random.default_rng([seed, 16])
    drawn = LOSSES[rng.choice(len(LOSSES), p=[0.1] * 7 + [0.3])]
    loss = drawn if loss is None else loss
    coupled = loss == "multinomial"
    base = draw(int(rng.integers(2**40)), "logistic" if coupled else loss, constraint)
    n = len(base.y)
    n_targets = min(int(rng.integers(2, 6)), n) if coupled else int(rng.integers(2, 4))
    d = min(base.n_features, max(24 // n_targets - 1, 1) if coupled else 8)
    X, groups = base.X[:, :d], None if base.groups is None else base.groups[:d]
    keep = None if base.keep is None else _kept(np.isin(np.arange(d), base.keep), groups)
    sign = base.sign
    if sign is not None:
        rows = rng.choice([-1, 0, 1, 1], (n_targets, d))
        sign = tuple(map(tuple, rows.tolist())) if coupled or rng.random() < 0.6 else sign[:d]
    y = _shared_targets(rng, loss, base, n_targets)
    weights = None if base.weights is None else _with_every_class(base.weights, loss, y)
    standardize = base.standardize and not _is_ambiguous(X, weights)
    offset = None
    if base.offset is not None and loss in ("squared", "huber"):
        offset = np.column_stack([base.offset, *(_offset(rng, loss, n, y[:, c]) for c in range(1, n_targets))])
    case = replace(
        base,
        seed=seed,
        loss=loss,
        X=X,
        y=y,
        k=(base.k - 1) % _choices(d, keep, groups) + 1,
        weights=weights,
        offset=offset,
        standardize=standardize,
        keep=keep,
        groups=groups,
        sign=sign,
        scale=deviations(X, weights, groups) if standardize else None,
        n_targets=n_targets,
    )
    fits = loss in REGRESSION or case.codes is not None
    calls = tuple(_shared_call(rng, fits, "tol" in base.ingredients) for _ in range(1 + (rng.random() < 0.2)))
    return replace(case, calls=calls)


def on_device(case: Case, name: str) -> Case:
    """The case on a device, where estimators are fitted and paths made; without calls where there is no estimator for it."""
    fits = case.loss in REGRESSION or case.n_targets == 1 or case.codes is not None
    calls = tuple(replace(call, kind="fit" if call.kind != "path" else "path") for call in case.calls if fits)
    return replace(case, device=name, calls=calls)


def draw_large(seed: int) -> Case:
    """An ordinary case of thirty features and more: beyond brute force, within branch and bound."""
    rng = np.random.default_rng([seed, 1])
    case = draw(seed, LOSSES[rng.integers(len(LOSSES) - 1)])
    n, d, k = int(rng.integers(40, 201)), int(rng.integers(30, 41)), int(rng.integers(3, 7))
    X = _matrix(rng, n, d, ())
    planted = np.where(rng.random(d) < 2.0 * k / d, rng.standard_normal(d), 0.0)
    return replace(
        case,
        X=X,
        y=_targets(rng, case.loss, X @ planted, ()),
        k=k,
        lam=float(10.0 ** rng.uniform(-6.0, 2.0)),
        weights=rng.uniform(0.1, 2.0, n) if rng.random() < 0.4 else None,
        offset=None,
        standardize=False,
        scale=None,
        keep=None,
        groups=None,
        sign=None,
        ingredients=(),
        calls=(Call("solve"), Call("solve", "branch", time_limit=60.0)),
    )


def warm_up() -> list[Case]:
    """Small cases that use what is compiled: every loss, storage and dtype."""
    cases = []
    for loss in LOSSES:
        whole = replace(draw(8, loss, "plain"), scale=None, standardize=False)
        case = replace(whole, X=whole.X[:8, :4], y=whole.y[:8], k=2, lam=0.1, weights=None, offset=None)
        solves = () if loss == "multinomial" else (Call("solve", "branch"),)
        methods = () if loss == "multinomial" else tuple(Call("solve", name, max_iter=2) for name in METHODS)
        for storage in STORAGE:
            for dtype in (np.float64, np.float32):
                calls = (Call("fit"), *solves, *(methods if dtype is np.float64 else ()))
                cases.append(replace(case, X=case.X.astype(dtype), storage=storage, calls=calls))
    return cases


_SIZES = np.array([4, 8, 12, 14, 10, 8, 5, 3, 2, 1]) / 67.0  # shares of 1, 2, ... features


def _ingredients(rng: np.random.Generator, loss: str) -> tuple[str, ...]:
    """None half of the time, then one to five."""
    if rng.random() < 0.5:
        return ()
    count = int(rng.choice([1, 2, 3, 5], p=[0.4, 0.25, 0.2, 0.15]))
    chosen = rng.choice(len(INGREDIENTS), count, replace=False)
    only = {"separable": loss not in REGRESSION, "target": loss in REGRESSION, "offset": loss in REGRESSION}
    return tuple(INGREDIENTS[i] for i in sorted(chosen) if only.get(INGREDIENTS[i], True))


def _structure(rng: np.random.Generator, d: int, constraint: str | None) -> tuple[Any, Any, Any]:
    """A mask of features to keep, labels of groups, and signs; each seldom, and sometimes together."""
    wanted = [name for name in ("keep", "groups", "sign") if rng.random() < 0.16]
    if constraint is not None:
        wanted = [constraint]
    keep = tuple(rng.random(d) < 0.3) if "keep" in wanted else None
    groups = tuple(int(g) for g in rng.integers(0, max(1, d // 2 + 1), d)) if "groups" in wanted else None
    sign = tuple(int(g) for g in rng.choice([-1, 0, 1, 1], d)) if "sign" in wanted else None
    return keep, groups, sign


def _kept(mask: Any, groups: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Features to keep, where there are any, and something to choose besides."""
    if mask is None or not any(mask):
        return None
    keep = tuple(int(j) for j in np.flatnonzero(mask))
    labels = tuple(range(len(mask))) if groups is None else groups
    return keep if {labels[j] for j in keep} < set(labels) else None


def _choices(d: int, keep: tuple[int, ...] | None, groups: tuple[int, ...] | None) -> int:
    """How many features, or groups, there are besides those to keep."""
    labels = tuple(range(d)) if groups is None else groups
    return len(set(labels) - {labels[j] for j in keep or ()})


def _matrix(rng: np.random.Generator, n: int, d: int, ingredients: tuple[str, ...]) -> Vector:
    X = rng.standard_normal((n, d))
    kind = rng.integers(4)
    if kind == 1:
        rho = rng.uniform(0.3, 0.99)
        for j in range(1, d):
            X[:, j] = rho * X[:, j - 1] + np.sqrt(1.0 - rho**2) * X[:, j]
    elif kind == 2:
        X[rng.random((n, d)) < rng.uniform(0.2, 0.8)] = 0.0
    elif kind == 3:
        X += rng.standard_normal(d) * rng.choice([1.0, 10.0])
    if "ties" in ingredients:
        X = np.round(2.0 * X) / 2.0
    if "empty" in ingredients:
        X[rng.random(n) < 0.3] = 0.0
        X[:, rng.integers(d)] = rng.choice([0.0, 1.0, 0.1, -3.0])
    if "dependent" in ingredients:
        i, j, m = rng.choice(d, 3, replace=d < 3)
        X[:, i] = rng.choice([1.0, -1.0, 2.0, 1e3]) * X[:, j]
        if rng.random() < 0.5:
            X[:, m] = X[:, j] + 10.0 ** rng.uniform(-12.0, -2.0) * rng.standard_normal(n)
        elif rng.random() < 0.5:
            X[:, m] = X.sum(axis=1)
    return X


def _scaled(rng: np.random.Generator, X: Vector, ingredients: tuple[str, ...]) -> NDArray[Any]:
    """In other units, far from zero, and of the dtype that it is stored with."""
    d = X.shape[1]
    if "means" in ingredients:
        chosen = rng.random(d) < 0.7
        X = X + np.where(chosen, rng.choice([-1.0, 1.0], d) * 10.0 ** rng.uniform(6.0, 8.0, d), 0.0)
    if "columns" in ingredients:
        X = X * 10.0 ** rng.uniform(-12.0, 12.0, d)
    if "whole" in ingredients:
        low, high = [(-160.0, 74.0), (-20.0, 20.0)][rng.integers(2)]
        if "float32" in ingredients:
            low, high = max(low, -42.0), min(high, 37.0)
        X = X * 10.0 ** rng.uniform(low, high)
    limit = 1e37 if "float32" in ingredients else LARGEST
    X = np.clip(X, -limit, limit)
    return X.astype(np.float32) if "float32" in ingredients else X


def _targets(rng: np.random.Generator, loss: str, signal: Vector, ingredients: tuple[str, ...]) -> NDArray[Any]:
    n = len(signal)
    spread = float(signal.std()) or 1.0
    y = signal + spread * rng.choice([0.0, 0.1, 0.5, 2.0]) * rng.standard_normal(n)
    if "separable" in ingredients:
        y = signal
    if loss == "poisson":
        level = 10.0 ** (rng.uniform(-2.0, 8.0) if "target" in ingredients else rng.uniform(-1.0, 1.0))
        mean = level * np.exp(np.clip((y - y.mean()) / spread, -4.0, 4.0))
        return rng.poisson(mean).astype(np.float64) if rng.random() < 0.8 else mean
    if loss in LOG_LINK:
        level = 10.0 ** (rng.uniform(-8.0, 8.0) if "target" in ingredients else rng.uniform(-1.0, 1.0))
        mean = level * np.exp(np.clip((y - y.mean()) / spread, -4.0, 4.0)) * rng.gamma(2.0, 0.5, n) + 1e-9 * level
        if loss == "negative_binomial":
            return rng.poisson(mean).astype(np.float64)
        return mean if loss == "gamma" else np.where(rng.random(n) < 0.3, 0.0, mean)
    if loss in REGRESSION:
        if "target" in ingredients:
            y = y * 10.0 ** rng.choice([rng.uniform(-8.0, 8.0), rng.uniform(-100.0, 70.0)], p=[0.7, 0.3])
            y = y + float(np.abs(y).max()) * rng.choice([0.0, 1.0]) * 10.0 ** rng.uniform(3.0, 8.0)
        return np.clip(y, -LARGEST, LARGEST)
    if loss == "multinomial":
        codes = np.digitize(y, np.quantile(y, [0.33, 0.67])) if n > 3 else np.arange(n)
        codes[:3] = rng.permutation(3)
        return codes
    labels = np.where(y > np.quantile(y, rng.choice([0.2, 0.5, 0.5])), 1.0, -1.0)
    if len(np.unique(labels)) < 2:
        labels[0] = -labels[0]
    return labels


def _shared_targets(rng: np.random.Generator, loss: str, base: Case, n_targets: int) -> NDArray[Any]:
    """The target of a case, with others that columns of size one explain as well; or classes instead."""
    n, X = len(base.y), base.X.astype(np.float64)
    Z = X - X.mean(axis=0)
    size = np.abs(Z).max(axis=0)
    Z = Z / np.where(size > 0.0, size, 1.0)

    def signal() -> Vector:
        return np.asarray(Z @ np.where(rng.random(Z.shape[1]) < 0.6, rng.standard_normal(Z.shape[1]), 0.0))

    of_classes = loss in CLASSIFICATION and n_targets == 3 and n >= 3 and rng.random() < 0.6
    if of_classes or loss == "multinomial":
        noise = 0.0 if "separable" in base.ingredients else rng.choice([0.0, 0.1, 0.5, 2.0])
        scores = np.column_stack([signal() for _ in range(n_targets)])
        codes = np.argmax(scores + noise * rng.standard_normal(scores.shape), axis=1)
        codes[:n_targets] = rng.permutation(n_targets)
        return codes if loss == "multinomial" else np.where(codes[:, None] == np.arange(n_targets), 1.0, -1.0)
    more = [_targets(rng, loss, signal(), base.ingredients) for _ in range(1, n_targets)]
    return np.column_stack([base.y, *more])


def _with_every_class(weights: Vector, loss: str, y: NDArray[Any]) -> Vector:
    """Weights of which every class of every target has some."""
    weights = weights.copy()
    for column in np.atleast_2d(y.T) if loss not in REGRESSION else []:
        for first in np.unique(column, return_index=True)[1]:
            weights[first] = weights[first] or 1.0
    return weights


def _weights(rng: np.random.Generator, loss: str, y: NDArray[Any], hostile: bool) -> Vector:
    """Positive, or with zeros and of very different sizes; one sample of each class stays positive."""
    n = len(y)
    weights = rng.uniform(0.1, 2.0, n)
    if hostile:
        weights *= 10.0 ** rng.choice(
            [0.0, rng.uniform(-12.0, 12.0), rng.uniform(-145.0, 145.0)], n, p=[0.6, 0.25, 0.15]
        )
        weights[rng.random(n) < 0.2] = 0.0
        for first in np.unique(y, return_index=True)[1] if loss not in REGRESSION else [0]:
            weights[first] = weights[first] or 1.0
    return weights


def _offset(rng: np.random.Generator, loss: str, n: int, y: Vector) -> Vector:
    if loss in LOG_LINK:
        return rng.uniform(-5.0, 5.0, n)
    offset = rng.standard_normal(n) * (float(np.abs(y).max()) or 1.0) * 10.0 ** rng.choice([-1.0, 0.0, 3.0])
    return np.clip(offset, -5e74, 5e74)  # beyond 1e75 it is refused, and so is a difference of target and offset


def _calls(rng: np.random.Generator, several: bool, hostile: bool) -> tuple[Call, ...]:
    """One question mostly, sometimes two."""
    first = _call(rng, several, hostile)
    return (first,) if rng.random() < 0.8 else (first, _call(rng, several, hostile))


def _call(rng: np.random.Generator, several: bool, hostile: bool) -> Call:
    tol = float(rng.choice([1e-2, 1e-6, 1e-9])) if hostile else 1e-4
    kind = str(
        rng.choice(["solve", "branch", "fit", "method", "certify", "path"], p=[0.3, 0.15, 0.25, 0.15, 0.1, 0.05])
    )
    if several:
        return Call("path" if kind == "path" else "fit", tol=tol)
    if kind == "branch":
        return Call("solve", "branch", tol)
    if kind == "fit":
        return Call("fit", str(rng.choice(["auto", "auto", "Auto()", "branch"])), tol, exact=bool(rng.random() < 0.3))
    if kind == "method":
        name = str(rng.choice([*METHODS, "SDIHT()", "SVRGHT()"]))
        where = str(rng.choice(["solve", "fit"]))
        return Call(where, name, tol, [None, 1, 30, 30, 30][rng.integers(5)])
    if kind == "certify":
        return Call(
            "certify",
            tol=tol,
            exact=bool(rng.random() < 0.3),
            given=str(rng.choice(["model", "support", "dual", "huge"])),
        )
    return Call(kind, tol=tol)


def _shared_call(rng: np.random.Generator, fits: bool, hostile: bool) -> Call:
    """A question that several targets allow; an estimator takes them only where they are numbers, or classes."""
    tol = float(rng.choice([1e-2, 1e-6, 1e-9])) if hostile else 1e-4
    kind = str(rng.choice(["solve", "branch", "fit", "method", "certify", "path"], p=[0.25, 0.2, 0.25, 0.1, 0.1, 0.1]))
    if kind == "method":
        name, where = str(rng.choice(SHARED_METHODS)), str(rng.choice(["solve", "fit"])) if fits else "solve"
        return Call(where, name, tol, [None, 1, 30, 30, 30][rng.integers(5)])
    if kind == "certify":
        given = str(rng.choice(["model", "support", "dual", "huge"]))
        return Call("certify", tol=tol, exact=bool(rng.random() < 0.3), given=given)
    if kind == "fit" and fits:
        return Call("fit", str(rng.choice(["auto", "auto", "Auto()", "branch"])), tol, exact=bool(rng.random() < 0.3))
    if kind == "path" and fits:
        return Call("path", tol=tol)
    return Call("solve", "branch" if kind == "branch" else "auto", tol)


# ---------------------------------------------------------------------------------------------------------------------
# Standard deviations


def deviations(X: NDArray[Any], weights: Vector | None, groups: tuple[int, ...] | None) -> Vector:
    """Weighted standard deviations of the columns, for a group the root of their mean square; 1 for constant ones."""
    deviation, _ = _moments(X, weights)
    if groups is not None:
        labels = np.array(groups)
        deviation = np.array([np.sqrt(np.mean(np.square(deviation[labels == label]))) for label in groups])
    return np.where(deviation > 0.0, deviation, 1.0)


def _is_ambiguous(X: NDArray[Any], weights: Vector | None) -> bool:
    """Whether a column is so nearly constant that rounding decides whether it is, or has a variance that is no number."""
    deviation, mean = _moments(X, weights)
    rounding = len(X) * np.finfo(np.float64).eps * np.abs(mean)
    return bool(np.any((deviation > 0.0) & ((deviation < 1e3 * rounding) | (deviation < 1e-150))))


def _moments(X: NDArray[Any], weights: Vector | None) -> tuple[Vector, Vector]:
    """Deviations and means of the columns, with sixty digits."""
    with localcontext(prec=60):
        s = [Decimal(1)] * len(X) if weights is None else [Decimal(float(w)) for w in weights]
        total = sum(s)
        moments = []
        for column in np.asarray(X, dtype=np.float64).T:
            values = [Decimal(x) for x in column.tolist()]
            mean = sum(w * x for w, x in zip(s, values, strict=True)) / total
            variance = sum(w * (x - mean) ** 2 for w, x in zip(s, values, strict=True)) / total
            moments.append((float(variance.sqrt()), float(mean)))
    deviation, mean = np.array(moments).T
    return deviation, mean

"""Everybody's support, judged by the same accurate refit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from diht import Problem
from peers import Instance, best_model

SAME = 1e-6  # relative difference of objectives that counts as none
_SHOWN = 1000  # features up to which a support is kept with the results


@dataclass(frozen=True, eq=False)
class Found:
    """What a solver found: for each support its setting and seconds; a proved gap; why there is no more."""

    supports: list[np.ndarray]
    settings: list[str]
    seconds: list[float]
    relative_gap: float = np.nan
    failure: str = ""


@dataclass(eq=False)
class Judge:
    """Judge supports for one instance; a support that it has seen costs nothing."""

    instance: Instance
    test: tuple[Any, np.ndarray] | None = None
    known: dict[bytes, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        x = self.instance
        self.problem = Problem(x.X, x.y, x.loss, x.k, x.lam, fit_intercept=x.intercept, n_threads=1)

    def __call__(self, found: Found) -> dict[str, Any]:
        """Figures of the best support: of several equally good ones, that which took the least time."""
        if not found.supports:
            return self._row(np.nan, np.nan, np.array([], dtype=int), found, np.nan, found.failure or "nothing found")
        scores = [self._score(support) for support in found.supports]
        best = min(value for value, _ in scores)
        good = [i for i, (value, _) in enumerate(scores) if value <= best + SAME * abs(best)]
        i = min(good, key=lambda i: found.seconds[i])
        return self._row(best, scores[i][1], found.supports[i], found, found.seconds[i], found.settings[i])

    def _row(
        self, value: float, test: float, support: np.ndarray, found: Found, seconds: float, setting: str
    ) -> dict[str, Any]:
        shown = " ".join(map(str, support)) if len(support) <= _SHOWN else ""
        return {
            "value": value,
            "support_size": len(support),
            "relative_gap": found.relative_gap,
            "test_score": test,
            "seconds": seconds,
            "setting": setting,
            "failure": found.failure,
            "support": shown,
        }

    def _score(self, support: np.ndarray) -> tuple[float, float]:
        """Objective after the refit, and the test score."""
        key = np.sort(support).tobytes()
        if key not in self.known:
            value, w, b = best_model(self.problem, support)
            self.known[key] = value, self._test_score(w, b)
        return self.known[key]

    def _test_score(self, w: np.ndarray, b: float) -> float:
        """Accuracy, or the coefficient of determination."""
        if self.test is None:
            return np.nan
        X, y = self.test
        u = X @ w + b
        if self.instance.loss == "squared":
            return 1.0 - float(np.mean((y - u) ** 2) / np.var(y))
        return float(np.mean((u > 0) == (y > 0)))

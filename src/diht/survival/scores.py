"""Scores of predicted risks and survival, and the baseline hazard."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diht.numerics.arrays import Vector
from diht.survival.partial import Censored, PartialLikelihood

__all__ = ["baseline_hazard", "brier_scores", "concordance"]


def baseline_hazard(likelihood: PartialLikelihood, u: Vector) -> dict[int, tuple[Vector, Vector]]:
    """Return, for each stratum, the times of its events and the cumulative hazard of a sample with u = 0.

    Its steps are the sums of c / S over the terms of a time: Breslow's estimate, or Efron's.
    """
    found = {}
    for part in likelihood.strata:
        times = np.unique(likelihood.data.time[part.rows[part.dead >= 0]])
        shift = float(u[part.rows].max())
        steps = part.c / part.sums(u[part.rows] - shift).terms
        hazard = np.cumsum(np.bincount(part.at, weights=steps, minlength=len(times))) * np.exp(-shift)
        found[int(likelihood.data.stratum[part.rows[0]])] = times, np.asarray(hazard)
    return found


def concordance(time: Vector, event: NDArray[np.bool_], risk: Vector) -> float:
    """Return Harrell's: the share of comparable pairs in which the earlier event has the higher risk, ties counted half.

    A pair is comparable where the earlier time is an event's; of equal times an event comes before a censored one.
    """
    order = np.lexsort((~event, time))
    time, event, risk = time[order], event[order], risk[order]
    good = tied = pairs = 0.0
    for i in np.flatnonzero(event).tolist():
        later = (time > time[i]) | ((time == time[i]) & ~event)
        others = risk[later]
        pairs += len(others)
        good += float(np.count_nonzero(others < risk[i]))
        tied += float(np.count_nonzero(others == risk[i]))
    if pairs == 0.0:
        raise ValueError("time and event must hold a pair of which one is known to come first")
    return (good + 0.5 * tied) / pairs


def _censoring(data: Censored) -> tuple[Vector, Vector]:
    """Return the times at which samples are censored, and the Kaplan-Meier estimate of still being observed after each."""
    times = np.unique(data.time[~data.event])
    at_risk = np.array(
        [np.count_nonzero(data.time >= t) - np.count_nonzero((data.time == t) & data.event) for t in times]
    )
    lost = np.array([np.count_nonzero((data.time == t) & ~data.event) for t in times])
    return times, np.cumprod(1.0 - lost / np.maximum(at_risk, 1))


def brier_scores(train: Censored, test: Censored, times: Vector, survival: Vector) -> Vector:
    """Return the mean squared errors of predicted survival at some times, weighted for censoring (Graf and others, 1999).

    `survival` has a row for each sample of the test and a column for each time. An event up to t has the weight 1/G just before
    its own time, a sample still observed after t the weight 1/G(t), with G that of the training samples.
    """
    known, G = _censoring(train)

    def observed(t: Vector, side: str) -> Vector:
        return np.append(1.0, G)[np.searchsorted(known, t, side=side)]  # type: ignore[call-overload]

    before, scores = observed(test.time, "left"), np.empty(len(times))
    for c, t in enumerate(times.tolist()):
        dead, alive = (test.time <= t) & test.event, test.time > t
        now = float(observed(np.array([t]), "right")[0])
        if (np.any(alive) and now == 0.0) or np.any(before[dead] == 0.0):
            raise ValueError(f"times must be before the last censored one of the fit, got {t:g}")
        parts = np.where(dead, np.square(survival[:, c]) / np.where(dead, before, 1.0), 0.0)
        parts += np.where(alive, np.square(1.0 - survival[:, c]) / (now or 1.0), 0.0)
        scores[c] = float(np.average(parts, weights=test.weight))
    return scores

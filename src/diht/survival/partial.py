r"""Minus the logarithm of Cox's partial likelihood as a function of the predictions.

With :math:`s_i` the weights, divided by their mean, and N samples,

.. math:: f(u) = \frac1N \Big( \sum_t c_t \log S_t(u) - \sum_{i \text{ an event}} s_i u_i \Big) , \qquad
          S_t(u) = \sum_{j \in R_t} s_j e^{u_j} - \rho_t \sum_{j \in D_t} s_j e^{u_j} .

The risk set :math:`R_t` of a time holds the samples of its stratum that have entered before it and have not left before it,
:math:`D_t` the events at it. Breslow's ties have one term a time, with :math:`\rho = 0` and c the weight of the events; Efron's
have one for each event, with :math:`\rho = l / m` for l = 0, ..., m - 1 and c their mean weight.

Each term is a logarithm of a sum of exponentials: f is convex. Sums over risk sets are differences of running sums, one in the
order of the times and one in that of the entries, so that all takes time in proportion to the samples once they are sorted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diht.design.base import UNIT
from diht.joint.likelihood import Linear
from diht.numerics.arrays import Indices, Vector

__all__ = ["TIES", "Censored", "PartialLikelihood"]

TIES = ("efron", "breslow")
_EXP = 8.0 * UNIT  # relative error of an exponential
_CANCELLED = 1e3  # ratio of what is added up to a difference, from which on it is summed by itself
_TINY, _LEAST = 2.0**-1074, 1e-280  # what an underflow may lose, and the least sum beside which that is nothing


class Censored(NamedTuple):
    """What is known of the samples' times, checked.

    Attributes
    ----------
    time, entry : arrays of shape (N,)
        A sample is at risk after its entry, until its time.
    event : array of bool
        Whether its time is that of the event.
    stratum : array of int
        Numbers from 0; risk sets are those of a stratum.
    weight : array of shape (N,)
        Not negative, of mean one.
    """

    time: Vector
    entry: Vector
    event: NDArray[np.bool_]
    stratum: Indices
    weight: Vector

    def taken(self, rows: Indices) -> Censored:
        """Return those of some samples."""
        time, entry, event, stratum, weight = self
        return Censored(time[rows], entry[rows], event[rows], stratum[rows], weight[rows])


class _Sums(NamedTuple):
    """Sums over the risk sets of a stratum at a point."""

    terms: Vector  # S_t
    alone: Indices  # the terms that are not differences of running sums
    error: Vector  # relative error of each
    hazard: Vector  # of each sample: sum over the terms that it is at risk for of c / S, an event's share of it counted
    hazard_error: Vector
    weighted: Vector  # s exp(u)


@dataclass(frozen=True, eq=False)
class _Stratum:
    """A stratum, sorted once.

    Attributes
    ----------
    rows : array of int
        Its samples that are at risk at the time of some event.
    by_time, by_entry : arrays of int
        The order of descending times, and of descending entries, among them.
    left, late : arrays of int, one for each time of an event, ascending
        How many have times no less, and entries no less.
    at, share, c : arrays, one for each term
        The number of its time, rho, and c.
    first, last : arrays of int, one for each sample
        The times of events after its entry and up to its time are those from first to last.
    dead : array of int, for each sample
        The number of its own time where it is an event, else -1.
    """

    rows: Indices
    weight: Vector
    by_time: Indices
    by_entry: Indices
    left: Indices
    late: Indices
    at: Indices
    share: Vector
    c: Vector
    first: Indices
    last: Indices
    dead: Indices

    @classmethod
    def of(cls, rows: Indices, data: Censored, ties: str) -> _Stratum:
        """Sort the samples of a stratum; those without a weight are in no risk set."""
        rows = rows[data.weight[rows] > 0.0]
        times = np.unique(data.time[rows][data.event[rows]])
        first, last = (np.searchsorted(times, each[rows], side="right") for each in (data.entry, data.time))
        rows, first, last = rows[first < last], first[first < last], last[first < last]
        time, entry, event, _, weight = data.taken(rows)
        number = last[event] - 1
        dead = np.full(len(rows), -1, dtype=np.int64)
        dead[event] = number
        deaths = np.bincount(number, minlength=len(times))
        total = np.bincount(number, weights=weight[event], minlength=len(times))
        at, share, c = np.arange(len(times)), np.zeros(len(times)), np.asarray(total, dtype=np.float64)
        if ties == "efron":
            at = np.repeat(at, deaths)
            share = (np.arange(len(at)) - np.repeat(np.cumsum(deaths) - deaths, deaths)) / deaths[at]
            c = (total / np.maximum(deaths, 1))[at]
        ascending = np.sort(time), np.sort(entry)
        left, late = (len(rows) - np.searchsorted(each, times, side="left") for each in ascending)
        orders = np.argsort(-time, kind="stable"), np.argsort(-entry, kind="stable")
        return cls(rows, weight, *orders, left, late, at, share, c, first, last, dead)

    def deaths(self, values: Vector) -> Vector:
        """Return the sums over the events of each time."""
        some = self.dead >= 0
        found = np.zeros((len(self.left), *values.shape[1:]))
        np.add.at(found, self.dead[some], values[some])
        return found

    def at_risk(self, values: Vector) -> tuple[Vector, Vector]:
        """Return the sums over all that have not left before each time, and over those of them that have not entered."""
        zero = np.zeros((1, *values.shape[1:]))
        left = np.concatenate([zero, np.cumsum(values[self.by_time], axis=0)])[self.left]
        late = np.concatenate([zero, np.cumsum(values[self.by_entry], axis=0)])[self.late]
        return left, late

    def added(self, values: Vector, i: int) -> Vector:
        """Return the sum over those at risk for a term, added up by themselves."""
        t = self.at[i]
        others, died = (self.first <= t) & (t < self.last) & (self.dead != t), self.dead == t
        return np.asarray(values[others].sum(axis=0) + (1.0 - self.share[i]) * values[died].sum(axis=0))

    @np.errstate(over="ignore", invalid="ignore")
    def sums(self, u: Vector) -> _Sums:
        """Return the sums at a point, with bounds on their errors: a sum of n numbers is off by n u of the sum of their sizes.

        Where most of a difference cancels, those at risk are added up by themselves.
        """
        weighted, n = self.weight * np.exp(u), len(u)
        (left, late), died = self.at_risk(weighted), self.deaths(weighted)[self.at] * self.share
        terms = left[self.at] - late[self.at] - died
        size = left[self.at] + late[self.at] + died
        alone = np.flatnonzero(~(size <= _CANCELLED * terms))
        for i in alone.tolist():
            terms[i] = size[i] = self.added(weighted, i)
        error = (2.0 * n * UNIT + _EXP) * size / terms
        q = self.c / terms
        (hazard, size), (spread, _) = (self._hazards(each) for each in (q, q * (error + 8.0 * UNIT)))
        return _Sums(terms, alone, error, hazard, np.abs(spread) + 4.0 * (len(q) + 8.0) * UNIT * size, weighted)

    def _hazards(self, q: Vector) -> tuple[Vector, Vector]:
        """Return, for each sample, the sum of q over the terms that it is at risk for, and that of what was added up for it."""
        each = np.bincount(self.at, weights=q, minlength=len(self.left))
        running = np.append(0.0, np.cumsum(each))
        hazard = running[self.last] - running[self.first]
        size = running[self.last]
        for i in np.flatnonzero(size > _CANCELLED * np.abs(hazard)).tolist():
            hazard[i] = size[i] = each[self.first[i] : self.last[i]].sum()
        some = self.dead >= 0
        own = np.bincount(self.at, weights=q * self.share, minlength=len(self.left))
        hazard[some] -= own[self.dead[some]]
        return np.asarray(hazard), size


class PartialLikelihood:
    """f for given times; strata without an event add nothing."""

    def __init__(self, data: Censored, ties: str) -> None:
        self.data, self.ties, self.size = data, ties, len(data.time)
        numbers = [np.flatnonzero(data.stratum == g) for g in np.unique(data.stratum)]
        parts = (_Stratum.of(rows, data, ties) for rows in numbers)
        self.strata = [part for part in parts if len(part.c)]
        self.pull = np.where(data.event, data.weight, 0.0)  # minus the slope of the linear part

    def levelled(self, u: Vector) -> Vector:
        """Return u less its largest entry in each stratum, and zero for samples that are in no risk set."""
        moved = np.zeros(len(u))
        for part in self.strata:
            moved[part.rows] = u[part.rows] - u[part.rows].max()
        return moved

    def linear(self, u: Vector) -> Linear:
        """Return the gradient at u, as it is, and f(u) less its product with u.

        Off are f(u) and the gradient, by the errors of sums over risk sets, and their product.
        """
        value, size, gradient, error = 0.0, 0.0, -self.pull, 2.0 * UNIT * self.pull
        for part in self.strata:
            found = part.sums(u[part.rows])
            logs = part.c * np.log(found.terms)
            value += float(np.sum(logs))
            size += float(part.c @ (2.0 * found.error + 4.0 * UNIT)) + 64.0 * UNIT * float(np.abs(logs).sum())
            gradient[part.rows] += found.weighted * found.hazard
            off = found.hazard_error + (_EXP + 8.0 * UNIT) * np.abs(found.hazard)
            error[part.rows] += found.weighted * off + _TINY * (np.abs(found.hazard) + off)
            if not float(found.terms.min()) > _LEAST:  # exponentials have underflowed
                value = np.nan
        pulled = self.pull * u
        value -= float(np.sum(pulled))
        size += 64.0 * UNIT * (float(np.abs(pulled).sum()) + abs(value)) + len(self.strata) * UNIT * abs(value)
        error = 2.0 * (error + 4.0 * UNIT * np.abs(gradient)) / self.size
        f, f_error, alpha = value / self.size, 2.0 * size / self.size, gradient / self.size
        products = alpha * u
        constant = f - float(np.sum(products))
        lost = f_error + float(error @ np.abs(u)) + 80.0 * UNIT * float(np.abs(products).sum())
        return Linear(alpha, error, constant - lost - 8.0 * UNIT * (abs(constant) + lost + abs(f)))

    def value(self, u: Vector) -> float:
        """Return f at u."""
        logs = sum(float(part.c @ np.log(part.sums(u[part.rows]).terms)) for part in self.strata)
        return (logs - float(self.pull @ u)) / self.size

    @np.errstate(over="ignore", invalid="ignore")
    def hessian(self, u: Vector, X: Vector, diagonal: bool = False) -> Vector:
        """Return X' f''(u) X, or its diagonal: second moments over the risk sets less squares of the means.

        f is constant where all predictions of a stratum move together, so that its columns may be centred.
        """
        d = X.shape[1]
        H = np.zeros(d if diagonal else (d, d))
        for part in self.strata:
            found, own = part.sums(u[part.rows]), X[part.rows] - X[part.rows].mean(axis=0)
            h, xs = found.weighted * found.hazard, own * found.weighted[:, None]
            left, late = part.at_risk(xs)
            means = left[part.at] - late[part.at] - part.share[:, None] * part.deaths(xs)[part.at]
            for i in found.alone.tolist():
                means[i] = part.added(xs, i)
            means *= (np.sqrt(part.c) / found.terms)[:, None]
            if diagonal:
                H += h @ np.square(own) - np.square(means).sum(axis=0)
            else:
                H += (own * h[:, None]).T @ own - means.T @ means
        return H / self.size

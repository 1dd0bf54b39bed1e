"""Why a solve ended, and how wide its gap is: what needs no proof to be said."""

from __future__ import annotations

import sys
from enum import StrEnum

__all__ = ["Bounded", "Status", "relative"]


class Status(StrEnum):
    """Why a solve ended."""

    OPTIMAL = "optimal"
    STALLED = "stalled"
    MAX_ITER = "max_iter"
    NODE_LIMIT = "node_limit"
    TIME_LIMIT = "time_limit"
    STOPPED = "stopped"

    @property
    def meaning(self) -> str:
        """The status in a sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Status.OPTIMAL: "the gap is within the tolerance",
    Status.STALLED: "the iterates no longer improve",
    Status.MAX_ITER: "a limit on iterations, nodes or memory was reached",
    Status.NODE_LIMIT: "the nodes that the default's search tree may have were used up",
    Status.TIME_LIMIT: "the limit on time was reached",
    Status.STOPPED: "it was asked to stop",
}


def relative(gap: float, objective: float) -> float:
    """Gap divided by the objective's size; the smallest normal number stands for an objective of zero."""
    return gap / max(abs(objective), sys.float_info.min)


class Bounded:
    """What has an objective and a lower bound."""

    objective: float
    lower_bound: float

    @property
    def gap(self) -> float:
        """The objective less the lower bound, never negative."""
        return max(self.objective - self.lower_bound, 0.0)

    @property
    def relative_gap(self) -> float:
        """The gap divided by the objective."""
        return relative(self.gap, self.objective)

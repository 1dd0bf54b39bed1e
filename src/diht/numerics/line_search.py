"""Which of some steps along a line is the longest that descends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["longest_step"]

Model = TypeVar("Model")

# Sizes from one trial to the next; if more, those that rounding leaves between too long and too short are missed.
_MOST_LEFT_OUT = 8


def longest_step(
    sizes: Sequence[float], trial: Callable[[float], Model], accepts: Callable[[Model, float], bool]
) -> tuple[float, Model] | None:
    """Return the longest of some descending sizes whose model is accepted, with that model; None where none is.

    The models lie on a line, and one is accepted where a convex function is below its value at the beginning of the line by a share
    of the size: whatever is shorter than an accepted step is accepted, too. So not every size is tried, but one in 2, 4, 8, and
    then the longest one is found by bisection.
    """
    refused, at, stride = -1, 0, 1
    while not accepts(model := trial(sizes[at]), sizes[at]):
        if at == len(sizes) - 1:
            return None
        stride = min(2 * stride, _MOST_LEFT_OUT)
        refused, at = at, min(at + stride, len(sizes) - 1)
    while at - refused > 1:
        middle = (refused + at) // 2
        shorter = trial(sizes[middle])
        if accepts(shorter, sizes[middle]):
            at, model = middle, shorter
        else:
            refused = middle
    return sizes[at], model

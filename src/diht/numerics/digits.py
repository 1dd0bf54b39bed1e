"""Numbers in print: bounds that stay bounds when they are rounded, and digits enough to tell two figures apart."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import NamedTuple

__all__ = ["Shown", "percent", "rounded_down", "rounded_up", "short_percent", "shown"]

_CLOSED = "proved optimal"
_MOST = 10  # digits of an objective; a gap that needs more is below 1e-8 of it


class Shown(NamedTuple):
    """An objective, a lower bound and their gap as they are printed."""

    objective: str
    lower_bound: str
    gap: str

    @property
    def closed(self) -> bool:
        """Whether words stand in place of the bound."""
        return self.lower_bound == _CLOSED


def shown(objective: float, lower_bound: float, least: int = 6) -> Shown:
    """Return both figures with so many digits that their difference is the gap, to a fifth of it, but with `least` at least.

    The bound is rounded down, the gap up. Where ten digits do not tell objective and bound apart, the bound is "proved optimal".
    """
    gap = max(objective - lower_bound, 0.0)
    digits = least
    if 0.0 < gap < math.inf and objective:
        digits = max(least, 2 + math.ceil(-math.log10(gap / abs(objective))))
    if gap == 0.0 or digits > _MOST:
        return Shown(f"{objective:.{least}g}", _CLOSED, rounded_up(gap, 2))
    return Shown(f"{objective:.{digits}g}", rounded_down(lower_bound, digits), rounded_up(gap, 3))


def rounded_down(value: float, digits: int) -> str:
    """Return a number with so many significant digits, never more than it is: a lower bound stays one in print."""
    return _rounded(value, digits, ROUND_FLOOR)


def rounded_up(value: float, digits: int) -> str:
    """Return a number with so many significant digits, never less than it is."""
    return _rounded(value, digits, ROUND_CEILING)


def _rounded(value: float, digits: int, rounding: str) -> str:
    return f"{float(Context(prec=digits, rounding=rounding).create_decimal(repr(float(value)))):.{digits}g}"


def percent(fraction: float) -> str:
    """Return a fraction as a percentage with two significant digits; rounded up, so that what it bounds stays bounded."""
    if not math.isfinite(fraction):
        return "100% or more"
    if 0 < fraction < 1e-5:
        return "less than 0.001%"
    value = Decimal(f"{100 * fraction:.10g}")
    step = Decimal(1).scaleb(min(value.adjusted() - 1, 0))
    return f"{value.quantize(step, ROUND_CEILING).normalize():f}%"


def short_percent(fraction: float) -> str:
    """Return the same for a narrow column."""
    return percent(fraction).replace("less than ", "<")

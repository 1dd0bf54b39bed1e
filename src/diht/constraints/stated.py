"""Constraints of one's own choice as files have them: plain numbers and lists, and the level by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from diht.constraints.base import Constraint
from diht.constraints.budget import Budget
from diht.constraints.heredity import Heredity
from diht.constraints.lineage import Lineage
from diht.constraints.per_group import PerGroup

__all__ = ["constraint_of"]


def constraint_of(rule: Mapping[str, Any], level: float) -> Constraint:
    """Return the constraint that `Constraint.stated` stated."""
    if rule["kind"] == "budget":
        return Budget(float(level), np.array(rule["costs"], dtype=np.float64))
    if rule["kind"] == "heredity":
        lineage = Lineage(tuple(map(tuple, rule["parents"])), rule["strong"])
        return Heredity(int(level), lineage, np.arange(rule["columns"]))
    group, most = (np.array(rule[name], dtype=np.int64) for name in ("group", "most"))
    return PerGroup(int(level), group, most)

"""Other packages, each with the settings of `benchmarks/peers.py`, in a process that is killed when its time is up.

The interpreter that DIHT_PEERS names has them; without it this one does. Their seconds are their own, without imports, reading
and the transfer of data: `objective_seconds` in the results counts, not benchopt's clock.
"""

import os
import sys
from functools import cache

import numpy as np
from benchmark_utils.judge import Found
from benchopt import BaseSolver

from peers import PEERS, Worker, missing

PYTHON = os.environ.get("DIHT_PEERS", sys.executable)
absent = cache(missing)  # by interpreter
worker = cache(Worker)  # by interpreter, peer and limit: imports and compiling are paid once


class Solver(BaseSolver):
    """A package by its name in the table of peers."""

    name = "peer"
    parameters = {"package": list(PEERS)}  # noqa: RUF012
    sampling_strategy = "run_once"

    def skip(self, instance, time_limit):
        """Packages that are not installed, or do not know such problems, say so."""
        reason = absent(PYTHON).get(self.package) or PEERS[self.package].refuses(instance)
        return bool(reason), reason or None

    def set_objective(self, instance, time_limit):
        """Keep the instance."""
        self.instance, self.time_limit = instance, time_limit

    def run(self, _):
        """Ask the package in its own process."""
        self.answer = worker(PYTHON, self.package, self.time_limit).ask(self.instance)

    def get_result(self):
        """All supports it found."""
        supports = [support for _, _, support in self.answer.supports]
        settings = [setting for setting, _, _ in self.answer.supports]
        return {"found": Found(supports, settings, self.answer.spent(), np.nan, self.answer.failure)}

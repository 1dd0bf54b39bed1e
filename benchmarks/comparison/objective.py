"""The objective: value after an accurate refit on the support, support size, proved gap, test score."""

from benchmark_utils.judge import Found, Judge
from benchopt import BaseObjective


class Objective(BaseObjective):
    """(1/N) sum_i l(x_i.w + b, y_i) + (lam/2) ||w||^2 with at most k nonzero coefficients."""

    name = "Sparse model"
    url = "https://github.com/benchopt/benchopt"
    min_benchopt_version = "1.7"
    parameters = {"time_limit": [60]}  # noqa: RUF012 - benchopt's way; seconds, for each solver on each instance

    def skip(self, instance, test, absent):
        """Data sets that are not here say so."""
        return bool(absent), absent or None

    def set_data(self, instance, test, absent):
        """Take what a data set hands over."""
        self.instance, self.judge = instance, Judge(instance, test)

    def get_objective(self):
        """What a solver gets to know."""
        return {"instance": self.instance, "time_limit": float(self.time_limit)}

    def evaluate_result(self, found):
        """Judge what a solver found."""
        return self.judge(found)

    def get_one_result(self):
        """The first k features."""
        return {"found": Found([range(self.instance.k)], ["first"], [0.0])}

"""The methods of this library, one thread each; the clock stops while an iterate is judged."""

from time import process_time

from benchmark_utils.judge import Found
from benchopt import BaseSolver
from benchopt.stopping_criterion import NoCriterion

from diht import Problem, solve
from peers import tiny


class Solver(BaseSolver):
    """A method by its name, with its default settings."""

    name = "diht"
    parameters = {"method": ["auto", "diht", "sdiht", "iht", "htp", "svrght", "branch"]}  # noqa: RUF012
    sampling_strategy = "callback"
    stopping_criterion = NoCriterion(strategy="callback")  # the method knows when to stop

    def set_objective(self, instance, time_limit):
        """Keep the instance; the problem is made while the clock runs."""
        self.instance, self.time_limit = instance, time_limit

    def warm_up(self):
        """Compile: on a tiny instance, as the other packages do that compile, and what only larger ones need, by the default."""
        solve(_problem(tiny(self.instance)), self.method)
        if self.method == "auto":
            solve(_problem(self.instance), time_limit=300.0)

    def get_next(self, stop_val):
        """Judge the first ten evaluations, then at intervals that grow by a tenth."""
        return max(stop_val + 1, int(1.1 * stop_val))

    def run(self, callback):
        """Solve, and let each evaluation be judged."""
        start, judging = process_time(), 0.0

        def spent():
            return process_time() - start - judging

        def judge(support, gap):
            nonlocal judging
            before = spent()
            self.best = support, gap, before
            going = callback()
            judging += spent() - before
            return not going

        result = solve(
            _problem(self.instance),
            self.method,
            callback=lambda iterate: judge(iterate.model.support, iterate.relative_gap),
            stop=lambda: spent() > self.time_limit,
        )
        judge(result.support, result.relative_gap)

    def get_result(self):
        """The best model so far."""
        support, gap, seconds = self.best
        return {"found": Found([support], [""], [seconds], gap)}


def _problem(x):
    return Problem(x.X, x.y, x.loss, x.k, x.lam, fit_intercept=x.intercept, n_threads=1)

"""What a fit tells while it runs: scikit-learn's callbacks (from 1.9 on), and the lines that `verbose` prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from diht.numerics.digits import shown
from diht.result import Iterate

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9: the estimators have no `set_callbacks`

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stand in for scikit-learn's class of this name."""

    with_callbacks = None

__all__ = ["CallbackSupportMixin", "FitTasks", "ends_callbacks", "print_line"]

Method = TypeVar("Method", bound=Callable[..., Any])


def ends_callbacks(fit: Method) -> Method:
    """Decorate `fit` so that its callbacks are torn down however it ends."""
    return fit if with_callbacks is None else cast(Method, with_callbacks(fit))


class FitTasks:
    """The tasks of one fit as scikit-learn's callbacks see them: the fit, each class of several, each evaluation.

    Parameters
    ----------
    estimator : estimator
        The one that is being fitted; it must have callbacks.
    X, y, sample_weight
        The training data as the user gave them.
    n_problems : int
        One, or the number of classes of a one-vs-rest fit.
    """

    def __init__(self, estimator: Any, X: Any, y: Any, sample_weight: Any, n_problems: int) -> None:
        self.estimator = estimator
        metadata = None if sample_weight is None else {"sample_weight": sample_weight}
        self.data = {"estimator": estimator, "X": X, "y": y, "metadata": metadata}
        self.several = n_problems > 1
        # How often a solve looks at its iterates is not known beforehand, hence None.
        self.fit = estimator._init_callback_context(max_subtasks=n_problems if self.several else None)
        self.fit.call_on_fit_task_begin(**self.data)
        self.problem = self.fit

    @classmethod
    def of(cls, estimator: Any, X: Any, y: Any, sample_weight: Any, n_problems: int) -> FitTasks | None:
        """Return the tasks of a fit, or None where there are no callbacks: contexts cost time."""
        if not getattr(estimator, "_skl_callbacks", None):
            return None
        return cls(estimator, X, y, sample_weight, n_problems)

    def begin_problem(self) -> None:
        """Tell that the next class's turn has come."""
        if self.several:
            self.problem = self.fit.subcontext(task_name="class", max_subtasks=None)
            self.problem.call_on_fit_task_begin(**self.data)

    def evaluate(self, attributes: Callable[[], dict[str, Any]]) -> bool:
        """Tell of an evaluation; True where a callback asks to stop.

        `attributes` returns the fitted attributes of the model so far. With several classes there is no model before
        all of them have had their turn.
        """
        task = self.problem.subcontext(task_name="evaluation")
        task.call_on_fit_task_begin(**self.data)
        model = None if self.several else attributes
        return bool(task.call_on_fit_task_end(**self.data, reconstruction_attributes=model))

    def end_problem(self) -> None:
        """Tell that a class's turn is over."""
        if self.several:
            self.problem.call_on_fit_task_end(**self.data)

    def end(self) -> None:
        """Tell that the estimator is fitted."""
        self.fit.call_on_fit_task_end(**self.data, reconstruction_attributes={})


def print_line(iterate: Iterate, label: str = "") -> None:
    """Print the figures of an evaluation."""
    figure = shown(iterate.best_objective, iterate.best_bound, 7)
    print(
        f"{label}iteration {iterate.iteration:>6}  objective {figure.objective}  "
        f"bound {figure.lower_bound}  relative gap {iterate.relative_gap:.2e}"
        f"{'' if iterate.traffic is None else f'  {iterate.traffic}'}",
        flush=iterate.traffic is not None,
    )

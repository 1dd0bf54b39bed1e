"""The documentation is whole: every option of every command, every public name; and what it says of other packages' penalties."""

import argparse
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import ElasticNet, LogisticRegression, PoissonRegressor, Ridge

import diht
import diht.losses
import diht.solvers
from diht import SparseClassifier, SparseRegressor, cli
from diht.estimators.parameters import documented

DOCS = Path(__file__).parent.parent / "docs"


def commands():
    """Each command with the names of its options."""
    (action,) = (a for a in cli._parser()._actions if isinstance(a, argparse._SubParsersAction))
    for name, parser in action.choices.items():
        for option in (
            option for a in parser._actions for option in a.option_strings if option not in ("-h", "--help")
        ):
            yield pytest.param(name, option, id=f"{name} {option}")


@pytest.mark.parametrize(("command", "option"), list(commands()))
def test_every_option_has_an_example(command, option):
    text = (DOCS / "command-line.md").read_text()
    blocks = re.findall(r"```(?:console|sh)\n(.*?)```", text, re.DOTALL)
    examples = [line for block in blocks for line in block.splitlines() if f"diht {command}" in line]
    assert any(option in re.split(r"[ =]", line) for line in examples), f"docs/command-line.md: no {command} {option}"


def test_every_public_name_is_on_the_page_of_the_api():
    text = (DOCS / "api.md").read_text()
    listed = {name.split(".")[-1] for name in re.findall(r"^(?:   |\.\. py:data:: )([A-Za-z_.]+)$", text, re.MULTILINE)}
    public = {*diht.__all__}
    public |= {loss.__name__ for loss in diht.losses.ALL_LOSSES.values()}
    public |= {solver.__name__ for solver in vars(diht.solvers).values() if is_solver(solver)}
    public |= {"Path", "PathPoint", "Intervals", "Stability", "NearOptimal", "Result", "Certificate", "Status", "Trace"}
    assert public - listed == set()


def is_solver(thing):
    return isinstance(thing, type) and issubclass(thing, diht.solvers.Solver) and thing is not diht.solvers.Solver


ESTIMATORS = [getattr(diht, name) for name in diht.__all__ if hasattr(getattr(diht, name), "get_params")]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_every_parameter_of_an_estimator_is_described_once(estimator):
    parameters = inspect.getdoc(estimator).split("\nParameters\n----------\n")[1].split("\n\n")[0]
    described = re.findall(r"^(\w+) : ", parameters, re.MULTILINE)
    assert sorted(described) == sorted(inspect.signature(estimator).parameters)
    assert estimator().get_params() == {
        name: parameter.default for name, parameter in inspect.signature(estimator).parameters.items()
    }
    assert "As in `Sparse" not in inspect.getdoc(estimator)


def test_a_reference_to_another_class_becomes_what_that_one_says():
    class Other:
        """Some.

        Parameters
        ----------
        a, b : int
            Two numbers.
        c : str
            A text,

            and more.

        Notes
        -----
        A note.

        Another.

        Examples
        --------
        None.
        """

    class One:
        """Some.

        Parameters
        ----------
        b, a, c
            As in `Other`.
        d : int
            Its own.

        Notes
        -----
        As in `Other`.

        And its own.
        """

    entries = "a, b : int\n    Two numbers.\nc : str\n    A text,\n\n    and more.\nd : int\n    Its own.\n"
    assert documented(Other)(One).__doc__ == (
        f"Some.\n\nParameters\n----------\n{entries}\nNotes\n-----\nA note.\n\nAnother.\n\nAnd its own.\n"
    )
    One.__doc__ = "Parameters\n----------\nunknown\n    As in `Other`.\n"
    with pytest.raises(KeyError, match="unknown"):
        documented(Other)(One)


def test_estimators_need_no_docstrings():
    code = "import diht; print(diht.SparseClassifierCV.__doc__, diht.SparseOrdinalClassifier(k=3))"
    done = subprocess.run([sys.executable, "-OO", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "SparseOrdinalClassifier(k=3)"]


# ---------------------------------------------------------------------------------------------------------------------
# lam in terms of other packages' penalties: docs/migrating.md

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 4)) * [1.0, 2.0, 0.5, 3.0] + 1.0
Z = X @ [1.0, -1.0, 2.0, 0.5]
Y, LABELS, COUNTS = Z + RNG.standard_normal(120), Z - 2 + RNG.logistic(size=120) > 0, RNG.poisson(np.exp(0.2 * Z))
N = len(Y)


def ours(lam, loss="squared", standardize=False):
    """Coefficients on all four columns."""
    kind, y = {
        "squared": (SparseRegressor, Y),
        "poisson": (SparseRegressor, COUNTS),
        "logistic": (SparseClassifier, LABELS),
    }[loss]
    return kind(k=4, lam=lam, loss=loss, standardize=standardize, tol=1e-10).fit(X, y).coef_.ravel()


def test_scikit_learn():
    assert_allclose(ours(0.3), Ridge(alpha=N * 0.3 / 2).fit(X, Y).coef_, rtol=1e-6)
    assert_allclose(ours(0.3), ElasticNet(alpha=0.15, l1_ratio=1e-9, tol=1e-10).fit(X, Y).coef_, rtol=1e-5)
    theirs = LogisticRegression(C=1 / (N * 0.3), tol=1e-10, max_iter=1000).fit(X, LABELS).coef_.ravel()
    assert_allclose(ours(0.3, "logistic"), theirs, rtol=1e-4)
    theirs = PoissonRegressor(alpha=0.3, tol=1e-10, max_iter=1000).fit(X, COUNTS).coef_
    assert_allclose(ours(0.3, "poisson"), theirs, rtol=1e-4)


def test_abess():
    abess = pytest.importorskip("abess")
    linear = abess.LinearRegression(support_size=4, alpha=10.0).fit(X, Y)
    assert_allclose(ours(2 * 10.0 / N, standardize=True), linear.coef_, rtol=1e-5)
    fine = {"primary_model_fit_max_iter": 1000, "primary_model_fit_epsilon": 1e-12}
    logistic = abess.LogisticRegression(support_size=4, alpha=1.0, **fine).fit(X, LABELS)
    assert_allclose(ours(2 * 1.0 / N, "logistic", standardize=True), logistic.coef_.ravel(), rtol=1e-4)


@pytest.mark.filterwarnings("ignore:num_gamma set to 1")
@pytest.mark.parametrize(("loss", "theirs", "factor"), [("squared", "SquaredError", 4), ("logistic", "Logistic", 2)])
def test_l0learn(loss, theirs, factor):
    l0learn = pytest.importorskip("fastsparsegams")
    y = Y if loss == "squared" else np.where(LABELS, 1.0, -1.0)
    path = l0learn.fit(X, y, loss=theirs, penalty="L0L2", num_gamma=1, gamma_min=0.01, gamma_max=0.01, rtol=1e-12)
    found = [path.coeff(lambda_0=lam, gamma=path.gamma[0]).toarray().ravel()[1:] for lam in path.lambda_0[0]]
    full = [w for w in found if np.all(w)]
    assert full
    assert_allclose(ours(factor * 0.01, loss, standardize=True), full[0], rtol=1e-3)

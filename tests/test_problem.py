"""A problem is checked once: every bad input is one line that names the argument and the value; every good one is taken."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from diht import Cardinality, Problem
from diht.bounds.duality import primal
from diht.design import AffineView, as_design
from diht.losses import Hinge, Logistic, Squared
from oracle import ridge

X = np.array([[1.0, 2.0, 0.0], [0.5, -1.0, 3.0], [0.0, 1.0, 1.0], [2.0, 0.0, -1.0]])
Y = np.array([1.0, -1.0, 1.0, -1.0])


def refused(*needles: str, **changes) -> None:
    """Assert that the problem with these changes is refused in one line that holds all the needles."""
    arguments = {"X": X, "y": Y, "loss": "squared", "k": 2, "lam": 0.1} | changes
    with pytest.raises(ValueError) as error:
        Problem(**arguments)
    message = str(error.value)
    assert "\n" not in message
    for needle in needles:
        assert needle in message


@pytest.mark.parametrize("k", [0, -2, 4, 1.5, "2", None, True, np.nan])
def test_bad_k(k) -> None:
    refused("k must be", str(k), k=k)


@pytest.mark.parametrize("lam", [0, -1.0, np.nan, np.inf, -np.inf, "strong", None, [0.1], 1j])
def test_bad_lam(lam) -> None:
    refused("lam must be", repr(lam) if lam is not np.nan else "nan", lam=lam)


@pytest.mark.parametrize(("bad", "word"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
@pytest.mark.parametrize("convert", [np.asarray, np.asfortranarray, sp.csr_array, sp.csc_matrix, sp.coo_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_x_that_is_not_finite(bad: float, word: str, convert, dtype) -> None:
    A = X.astype(dtype)
    A[2, 1] = bad
    refused("X", word, X=convert(A))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_y_and_weights_that_are_not_finite(bad: float) -> None:
    refused("y must be finite", str(bad), "position 1", y=[1.0, bad, 2.0, 3.0])
    refused("sample_weight must be finite", str(bad), "position 3", sample_weight=[1.0, 1.0, 1.0, bad])


@pytest.mark.parametrize("convert", [np.asarray, np.asfortranarray, sp.csr_array, sp.csc_matrix])
def test_numbers_whose_squares_would_overflow(convert) -> None:
    A = X.copy()
    A[1, 2] = -1e200
    refused("X must not hold numbers beyond 1e+75 in size", "1e+200", X=convert(A))
    refused("y must not hold numbers beyond 1e+75 in size", "-1e+300", "position 3", y=[1.0, 2.0, 3.0, -1e300])
    assert Problem(convert(1e74 * X), 1e74 * Y, "squared", 2, 0.1).shape == (4, 3)


def test_lengths_that_differ() -> None:
    refused("y must have length 4", "got length 3", y=Y[:3])
    refused("sample_weight must have length 4", "got length 5", sample_weight=np.ones(5))
    refused("scale must have length 3", "got length 4", scale=np.ones(4))
    refused("y must be one-dimensional", "(4, 1)", y=Y[:, None])
    refused("y must be one-dimensional", "()", y=1.0)


def test_weights_that_are_none() -> None:
    refused("sample_weight must not be negative", "-0.5", "position 2", sample_weight=[1, 1, -0.5, 1])
    refused("sample_weight must not be all zero", sample_weight=np.zeros(4))
    refused("sample_weight must be numeric", sample_weight=["a", "b", "c", "d"])


@pytest.mark.parametrize("loss", ["hinge", "smoothed_hinge", "squared_hinge", "logistic"])
def test_targets_of_classification(loss: str) -> None:
    refused("y must hold both classes", "+1", loss=loss, y=np.ones(4))
    refused("y must hold both classes", "-1", loss=loss, y=-np.ones(4))
    refused("y must be -1 or +1", "got 0", loss=loss, y=[0, 1, 0, 1])
    refused("y must be -1 or +1", "got 2", loss=loss, y=[-1, 1, 2, 1])
    # A class whose weights are all zero is not there.
    refused("y must hold both classes", "got only +1", loss=loss, sample_weight=[1, 0, 2, 0])


def test_targets_that_are_no_numbers() -> None:
    refused("y must be numeric", y=["spam", "ham", "spam", "ham"])
    refused("y must be numeric", y=np.array([1, None, 2, 3], dtype=object))
    refused("y must be numeric", "complex", y=Y + 1j)


def test_x_that_is_no_matrix_of_numbers() -> None:
    refused("X must hold real numbers", X=X.astype(str))
    refused("X must hold real numbers", "object", X=X.astype(object))
    refused("X must hold real numbers", "complex", X=X + 1j)
    refused("X must hold real numbers", "complex", X=sp.csr_array(X + 1j))
    refused("X must have two dimensions", "got 1", X=X[0])
    refused("X must have two dimensions", "got 3", X=X[None])
    refused("X", X=[[1.0, 2.0], [3.0]], y=[1.0, 2.0])
    refused("X", X="matrix")
    refused("X", X=None)
    for shape in ((0, 3), (4, 0), (0, 0)):
        refused("X must have at least one row and one column", str(shape), X=np.empty(shape))
        refused("X must have at least one row and one column", str(shape), X=sp.csr_array(shape))


def test_bad_scale() -> None:
    refused("scale must be positive", "0.0", scale=[1.0, 0.0, 1.0])
    refused("scale must be positive", "-2.0", scale=[1.0, -2.0, 1.0])
    refused("scale must be finite", "nan", scale=[1.0, np.nan, 1.0])


def test_unknown_loss() -> None:
    refused("absolute", "squared", "logistic", loss="absolute")
    with pytest.raises((ValueError, TypeError), match="loss must be"):
        Problem(X, Y, 3, 2, 0.1)


def test_a_view_is_not_scaled_or_centred_again() -> None:
    view = AffineView(as_design(X), center=np.ones(3))
    refused("X must be stored data", X=view, fit_intercept=True)
    refused("X must be stored data", X=view, scale=np.ones(3))
    assert Problem(view, Y, "squared", 2, 0.1).design is view


# ---------------------------------------------------------------------------------------------------------------------
# What is taken


def objective(problem: Problem) -> float:
    w = np.array([1.0, 0.0, -2.0])
    return primal(problem, w, problem.centred_intercept(w, 0.25) if problem.fit_intercept else 0.0)


def same(problem: Problem, **changes) -> None:
    assert objective(problem) == pytest.approx(objective(Problem(X, Y, "squared", 2, 0.1, **changes)), rel=1e-13)


def test_forms_of_x_and_y() -> None:
    for taken in (
        X.tolist(),
        pd.DataFrame(X, columns=list("abc")),
        np.asfortranarray(X),
        sp.csr_array(X),
        sp.lil_matrix(X),
    ):
        same(Problem(taken, Y.tolist(), "squared", 2, 0.1))
    same(Problem(X, pd.Series(Y, index=[9, 8, 7, 6]), "squared", 2, 0.1))
    same(Problem(X, Y.astype(int), "squared", 2, 0.1))
    same(Problem(X, Y, Squared(), np.int64(2), np.float64(0.1)))
    same(Problem(X, Y, Squared(), Cardinality(2), 0.1))
    integers = (2 * X).astype(np.int8)
    assert Problem(integers, Y, "squared", 2, 0.1).design.dtype == np.float64


def test_booleans_count_as_numbers() -> None:
    problem = Problem(X > 0, Y > 0, "squared", 2, 0.1)
    np.testing.assert_array_equal(problem.y, [1.0, 0.0, 1.0, 0.0])


def test_only_the_ratios_of_the_weights_matter() -> None:
    for factor in (1e-300, 1.0, 1e300):
        problem = Problem(X, Y, "squared", 2, 0.1, sample_weight=factor * np.array([1.0, 2.0, 0.0, 5.0]))
        np.testing.assert_allclose(problem.s, [0.125, 0.25, 0.0, 0.625], rtol=1e-15)
    repeated = Problem(X[[0, 1, 1, 3]], Y[[0, 1, 1, 3]], "squared", 2, 0.1, fit_intercept=True)
    same(repeated, sample_weight=[1, 2, 0, 1], fit_intercept=True)


def test_what_the_caller_changes_later_changes_nothing() -> None:
    y, weights = Y.copy(), np.ones(4)
    problem = Problem(X, y, "squared", 2, 0.1, weights)
    before = objective(problem)
    y[:], weights[:] = 7.0, 0.0
    assert objective(problem) == before


def test_an_intercept_centres_the_design_and_nothing_else() -> None:
    w, scale = np.array([0.5, -1.0, 2.0]), np.array([2.0, 0.5, 4.0])
    weights = np.array([1.0, 3.0, 0.0, 2.0])
    for q in (None, scale):
        problem = Problem(X, Y, "squared", 3, 0.1, weights, fit_intercept=True, scale=q)
        b = problem.centred_intercept(w, 0.7)
        assert problem.intercept_of(w, b) == pytest.approx(0.7, rel=1e-14)
        u = (X / (1.0 if q is None else q)) @ w + 0.7
        np.testing.assert_allclose(problem.design.matvec(w) + b, u, rtol=1e-13)
        expected = np.sum(weights * (u - Y) ** 2) / 6 + 0.05 * w @ w
        assert primal(problem, w, b) == pytest.approx(expected, rel=1e-13)


def test_the_paper_states_the_squared_loss_without_a_half() -> None:
    problem = Problem(X, Y, Squared(), 3, 0.1)
    w, _, value = ridge(X, Y, np.full(4, 0.25), 0.1, False)
    assert primal(problem, w) == pytest.approx(value, rel=1e-14)


def test_a_problem_says_what_it_is_and_can_be_pickled() -> None:
    problem = Problem(X, Y, Hinge(), 2, 0.1, fit_intercept=True)
    assert repr(problem) == "Problem(4 x 3, loss=Hinge(), Cardinality(k=2), lam=0.1, fit_intercept=True)"
    again = pickle.loads(pickle.dumps(problem))
    assert objective(again) == objective(problem)
    with pytest.raises(AttributeError):
        problem.lam = 1.0


def test_single_sample_and_single_feature() -> None:
    assert Problem([[2.0]], [3.0], "squared", 1, 1.0).shape == (1, 1)
    refused("y must hold both classes", X=[[2.0]], y=[1.0], k=1, loss=Logistic())

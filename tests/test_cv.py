import doctest
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import diht.cross_validation
from diht import SparseClassifierCV, SparseRegressorCV
from test_estimators import classification, regression

BOTH = pytest.mark.parametrize("make", [SparseRegressorCV, SparseClassifierCV])


def data_for(make, **kwargs):
    return (regression if make is SparseRegressorCV else classification)(**kwargs)


@pytest.mark.filterwarnings("ignore:ks up to:UserWarning", "ignore:The least populated class:UserWarning")
@parametrize_with_checks(
    [
        SparseRegressorCV(ks=[1, 2], cv=3),
        SparseRegressorCV(criterion="bic", standardize=True),
        SparseClassifierCV(ks=[1, 2], cv=3),
        SparseClassifierCV(ks=[1, 2], cv=3, criterion="1se", loss="smoothed_hinge", lams=[0.1, 1.0]),
    ]
)
def test_scikit_learn_checks(estimator, check):
    try:
        check(estimator)
    except SkipTest as reason:
        pytest.fail(f"skipped: {reason}")


def test_examples_of_the_docstrings():
    assert doctest.testmod(diht.cross_validation).failed == 0

"""The scikit-learn estimators: fit = validate, `Problem`, `solve`, copy the figures."""

from diht.estimators.classifier import SparseClassifier
from diht.estimators.regressor import SparseRegressor

__all__ = ["SparseClassifier", "SparseRegressor"]

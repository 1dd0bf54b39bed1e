"""Linear models with at most k features, and a proof of how good they are.

>>> from diht import SparseRegressor, SparseClassifier   # scikit-learn estimators
>>> from diht import sparse_path, SparseRegressorCV, SparseClassifierCV   # many k, and the best of them
>>> from diht import debiased, bootstrap, stability_selection   # after the selection
>>> from diht import Problem, solve, certify             # the same, without scikit-learn
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diht.constraint import Cardinality
    from diht.cross_validation import SparseClassifierCV, SparseRegressorCV
    from diht.estimators import SparseClassifier, SparseRegressor
    from diht.inference import bootstrap, debiased, stability_selection
    from diht.loop import certify, solve
    from diht.path import sparse_path
    from diht.problem import Problem
    from diht.shipping import SKOPS_TRUSTED, load_model

__version__ = "0.1.0"

__all__ = [
    "SKOPS_TRUSTED",
    "Cardinality",
    "Problem",
    "SparseClassifier",
    "SparseClassifierCV",
    "SparseRegressor",
    "SparseRegressorCV",
    "bootstrap",
    "certify",
    "debiased",
    "load_model",
    "solve",
    "sparse_path",
    "stability_selection",
]

_HOMES = {
    "SKOPS_TRUSTED": "diht.shipping",
    "Cardinality": "diht.constraint",
    "Problem": "diht.problem",
    "SparseClassifier": "diht.estimators",
    "SparseClassifierCV": "diht.cross_validation",
    "SparseRegressor": "diht.estimators",
    "SparseRegressorCV": "diht.cross_validation",
    "bootstrap": "diht.inference",
    "certify": "diht.loop",
    "debiased": "diht.inference",
    "load_model": "diht.shipping",
    "solve": "diht.loop",
    "sparse_path": "diht.path",
    "stability_selection": "diht.inference",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import diht` costs next to nothing."""
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'diht' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

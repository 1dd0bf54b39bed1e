"""Linear models with at most k features, and a proof of how good they are.

>>> from diht import SparseRegressor, SparseClassifier   # scikit-learn estimators
>>> from diht import sparse_path, SparseRegressorCV, SparseClassifierCV   # many k, and the best of them
>>> from diht import debiased, bootstrap, stability_selection   # after the selection
>>> from diht import TableEncoder                        # categories, booleans, missing values
>>> from diht import open_dataset                        # rows on disk
>>> from diht import Problem, solve, certify             # the same, without scikit-learn
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from diht.constraints.base import Cardinality
    from diht.constraints.budget import within_budget
    from diht.constraints.heredity import heredity
    from diht.constraints.lineage import parents_of
    from diht.constraints.per_group import per_group
    from diht.datasets.folder import open_dataset
    from diht.estimators import SparseClassifier, SparseRegressor
    from diht.estimators.cox import SparseCox
    from diht.estimators.cross_validation import SparseClassifierCV, SparseRegressorCV
    from diht.estimators.inference import bootstrap, debiased, stability_selection
    from diht.estimators.near import near_optimal
    from diht.estimators.ordinal import SparseOrdinalClassifier
    from diht.estimators.path import sparse_path
    from diht.estimators.scorecard import scorecard
    from diht.estimators.shipping import SKOPS_TRUSTED
    from diht.estimators.table_encoder import TableEncoder
    from diht.problem import Problem
    from diht.serving import load_model
    from diht.solvers.loop import certify, solve
    from diht.solvers.norm import norm_certificate

__version__ = "0.1.0"

__all__ = [
    "SKOPS_TRUSTED",
    "Cardinality",
    "Problem",
    "SparseClassifier",
    "SparseClassifierCV",
    "SparseCox",
    "SparseOrdinalClassifier",
    "SparseRegressor",
    "SparseRegressorCV",
    "TableEncoder",
    "bootstrap",
    "certify",
    "debiased",
    "heredity",
    "load_model",
    "near_optimal",
    "norm_certificate",
    "open_dataset",
    "parents_of",
    "per_group",
    "scorecard",
    "solve",
    "sparse_path",
    "stability_selection",
    "within_budget",
]

_HOMES = {
    "SKOPS_TRUSTED": "diht.estimators.shipping",
    "Cardinality": "diht.constraints.base",
    "Problem": "diht.problem",
    "SparseClassifier": "diht.estimators",
    "SparseClassifierCV": "diht.estimators.cross_validation",
    "SparseCox": "diht.estimators.cox",
    "SparseOrdinalClassifier": "diht.estimators.ordinal",
    "SparseRegressor": "diht.estimators",
    "SparseRegressorCV": "diht.estimators.cross_validation",
    "TableEncoder": "diht.estimators.table_encoder",
    "bootstrap": "diht.estimators.inference",
    "certify": "diht.solvers.loop",
    "debiased": "diht.estimators.inference",
    "heredity": "diht.constraints.heredity",
    "load_model": "diht.serving",
    "near_optimal": "diht.estimators.near",
    "norm_certificate": "diht.solvers.norm",
    "open_dataset": "diht.datasets.folder",
    "parents_of": "diht.constraints.lineage",
    "per_group": "diht.constraints.per_group",
    "scorecard": "diht.estimators.scorecard",
    "solve": "diht.solvers.loop",
    "sparse_path": "diht.estimators.path",
    "stability_selection": "diht.estimators.inference",
    "within_budget": "diht.constraints.budget",
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

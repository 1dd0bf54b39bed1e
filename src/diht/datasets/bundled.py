"""Data that comes with scikit-learn."""

from __future__ import annotations

import numpy as np

from diht.datasets.table import Table

__all__ = ["load_breast_cancer"]


def load_breast_cancer() -> Table:
    """Return the 569 x 30 breast-cancer data of scikit-learn, with ``"malignant"`` and ``"benign"`` as targets."""
    from sklearn.datasets import load_breast_cancer as load

    bunch = load()
    y = np.array([str(name) for name in bunch.target_names])[bunch.target]
    names = [str(name) for name in bunch.feature_names]
    return Table(np.asarray(bunch.data, dtype=np.float64), y, names, ["diagnosis"], "scikit-learn: breast_cancer")

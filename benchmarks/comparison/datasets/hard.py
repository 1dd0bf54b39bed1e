"""Regression with N = 500, d = 5000, 20 true features, rho = .9, SNR 2."""

from benchmark_utils.data import generated
from benchopt import BaseDataset

from instances import hard


class Dataset(BaseDataset):
    """Regression with N = 500, d = 5000, 20 true features, rho = .9, SNR 2."""

    name = "hard"
    parameters = {"k": [5, 20, 40], "lam": [0.01, 0.1, 1.0]}  # noqa: RUF012

    def get_data(self):
        """The instance."""
        X, y, _ = hard()
        return generated(X, y, self.k, self.lam)

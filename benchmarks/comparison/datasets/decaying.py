"""Regression with N = 2000, d = 20,000, 40 coefficients that fall by a fifth each, SNR 1."""

from benchmark_utils.data import generated
from benchopt import BaseDataset

from instances import decaying


class Dataset(BaseDataset):
    """Regression with N = 2000, d = 20,000, 40 coefficients that fall by a fifth each, SNR 1."""

    name = "decaying"
    parameters = {"k": [5, 15], "lam": [0.01, 0.1]}  # noqa: RUF012

    def get_data(self):
        """The instance."""
        X, y, _ = decaying()
        return generated(X, y, self.k, self.lam)

"""Regression with N = 1000, d = 5000, 20 true features, rho = .5, SNR 5."""

from benchmark_utils.data import generated
from benchopt import BaseDataset

from instances import reg


class Dataset(BaseDataset):
    """Regression with N = 1000, d = 5000, 20 true features, rho = .5, SNR 5."""

    name = "reg"
    parameters = {"k": [5, 20, 40], "lam": [0.01, 0.1, 1.0]}  # noqa: RUF012

    def get_data(self):
        """The instance."""
        X, y, _ = reg()
        return generated(X, y, self.k, self.lam)

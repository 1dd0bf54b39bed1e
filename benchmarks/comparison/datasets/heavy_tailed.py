"""Regression with N = 500, d = 2000, columns and noise with heavy tails, SNR 3."""

from benchmark_utils.data import generated
from benchopt import BaseDataset

from instances import heavy_tailed


class Dataset(BaseDataset):
    """Regression with N = 500, d = 2000, columns and noise with heavy tails, SNR 3."""

    name = "heavy-tailed"
    parameters = {"k": [5, 15, 30], "lam": [0.001, 0.01, 0.1]}  # noqa: RUF012

    def get_data(self):
        """The instance."""
        X, y, _ = heavy_tailed()
        return generated(X, y, self.k, self.lam)

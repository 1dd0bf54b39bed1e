"""Regression with N = 500, d = 1000, blocks of 20 columns with correlation .8, SNR 3."""

from benchmark_utils.data import generated
from benchopt import BaseDataset

from instances import blocks


class Dataset(BaseDataset):
    """Regression with N = 500, d = 1000, blocks of 20 columns with correlation .8, SNR 3."""

    name = "blocks"
    parameters = {"k": [5, 10, 20], "lam": [0.001, 0.01, 0.1]}  # noqa: RUF012

    def get_data(self):
        """The instance."""
        X, y, _ = blocks()
        return generated(X, y, self.k, self.lam)

"""Regression with N = 1000, d = 5000, counts of alleles with linkage, SNR 1."""

from benchmark_utils.data import generated
from benchopt import BaseDataset

from instances import genotypes


class Dataset(BaseDataset):
    """Regression with N = 1000, d = 5000, counts of alleles with linkage, SNR 1."""

    name = "genotypes"
    parameters = {"k": [5, 20], "lam": [0.001, 0.01, 0.1]}  # noqa: RUF012

    def get_data(self):
        """The instance."""
        X, y, _ = genotypes()
        return generated(X, y, self.k, self.lam)

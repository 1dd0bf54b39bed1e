"""Classes with many rows: N = 200,000 and 1,000,000, d = 50 and 30."""

from benchmark_utils.data import generated
from benchopt import BaseDataset

from instances import tall


class Dataset(BaseDataset):
    """Classes with many rows: N = 200,000 and 1,000,000, d = 50 and 30."""

    name = "tall-classes"
    parameters = {"n": [200_000, 1_000_000], "k": [5], "lam": [1e-3]}  # noqa: RUF012

    def get_data(self):
        """The instance."""
        X, _, labels = tall(self.n, 30 if self.n > 500_000 else 50)
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        return generated(X, labels, self.k, self.lam, "logistic")

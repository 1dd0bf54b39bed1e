"""Film reviews, CSR 25,000 + 25,000 x 44,208, logistic."""

from benchmark_utils.data import real, svmlight
from benchopt import BaseDataset


class Dataset(BaseDataset):
    """Film reviews, CSR 25,000 + 25,000 x 44,208, logistic."""

    name = "imdb"
    parameters = {"k": [100, 600], "lam": [2e-4, 2e-3]}  # noqa: RUF012

    def get_data(self):
        """The instance, or why it is absent."""
        return real("imdb", svmlight("imdb.train.bz2", "imdb.test.bz2"), self.k, self.lam, "logistic", intercept=False)

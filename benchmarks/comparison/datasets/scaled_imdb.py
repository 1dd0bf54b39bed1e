"""Which words occur, CSR 25,000 x 44,208, columns of deviation one, logistic."""

from benchmark_utils.data import real, svmlight
from benchopt import BaseDataset

from instances import scaled_words


class Dataset(BaseDataset):
    """Which words occur, CSR 25,000 x 44,208, columns of deviation one, logistic."""

    name = "scaled-imdb"
    parameters = {"k": [15, 40], "lam": [1e-3, 1e-2]}  # noqa: RUF012

    def get_data(self):
        """The instance, or why it is absent."""
        load = svmlight("imdb.train.bz2", change=scaled_words)
        return real("imdb", load, self.k, self.lam, "logistic", intercept=True)

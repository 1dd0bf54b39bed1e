"""Which words occur, CSR 7,770 x 8,315, columns of deviation one, logistic."""

from benchmark_utils.data import real, svmlight
from benchopt import BaseDataset

from instances import scaled_words


class Dataset(BaseDataset):
    """Which words occur, CSR 7,770 x 8,315, columns of deviation one, logistic."""

    name = "scaled-reuters-money-fx"
    parameters = {"k": [15, 40], "lam": [1e-3, 1e-2]}  # noqa: RUF012

    def get_data(self):
        """The instance, or why it is absent."""
        load = svmlight("reuters.trn.bz2", change=scaled_words)
        return real("reuters-money-fx", load, self.k, self.lam, "logistic", intercept=True)

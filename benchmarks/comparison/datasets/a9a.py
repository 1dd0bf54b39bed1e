"""Census, CSR 32,561 + 16,281 x 123, logistic."""

from benchmark_utils.data import real, svmlight
from benchopt import BaseDataset


class Dataset(BaseDataset):
    """Census, CSR 32,561 + 16,281 x 123, logistic."""

    name = "a9a"
    parameters = {"k": [5, 10, 20], "lam": [1e-3, 1e-2]}  # noqa: RUF012

    def get_data(self):
        """The instance, or why it is absent."""
        return real("a9a", svmlight("adult.trn.bz2", "adult.tst.bz2"), self.k, self.lam, "logistic", intercept=True)

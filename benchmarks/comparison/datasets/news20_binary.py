"""Newsgroups, CSR 19,996 x 1,355,191, logistic."""

from benchmark_utils.data import real, svmlight
from benchopt import BaseDataset


class Dataset(BaseDataset):
    """Newsgroups, CSR 19,996 x 1,355,191, logistic."""

    name = "news20.binary"
    parameters = {"k": [100, 1000], "lam": [2e-4, 2e-3]}  # noqa: RUF012

    def get_data(self):
        """The instance, or why it is absent."""
        return real("news20.binary", svmlight("news20.binary.xz"), self.k, self.lam, "logistic", intercept=False)

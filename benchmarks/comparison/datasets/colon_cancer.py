"""Gene expression, 62 x 2000, logistic, columns standardised."""

from benchmark_utils.data import genes, real
from benchopt import BaseDataset


class Dataset(BaseDataset):
    """Gene expression, 62 x 2000, logistic, columns standardised."""

    name = "colon-cancer"
    parameters = {"k": [5, 10, 20], "lam": [0.001, 0.01, 0.1]}  # noqa: RUF012

    def get_data(self):
        """The instance, or why it is absent."""
        return real("colon-cancer", genes, self.k, self.lam, "logistic", intercept=True)

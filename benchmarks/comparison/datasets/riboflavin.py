"""Gene expression, 71 x 4088, regression, columns standardised."""

from benchmark_utils.data import genes, real
from benchopt import BaseDataset


class Dataset(BaseDataset):
    """Gene expression, 71 x 4088, regression, columns standardised."""

    name = "riboflavin"
    parameters = {"k": [5, 10, 20], "lam": [0.01, 0.1, 1.0]}  # noqa: RUF012

    def get_data(self):
        """The instance, or why it is absent."""
        return real("riboflavin", genes, self.k, self.lam, "squared", intercept=True)

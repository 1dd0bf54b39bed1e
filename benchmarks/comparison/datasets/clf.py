"""Classification, CSR 20,000 x 50,000 with 0.1% nonzeros, 200 true features."""

from benchmark_utils.data import generated
from benchopt import BaseDataset

from instances import zipf_logistic


class Dataset(BaseDataset):
    """Classification, CSR 20,000 x 50,000 with 0.1% nonzeros, 200 true features."""

    name = "clf"
    parameters = {"k": [50, 200], "lam": [1e-4, 1e-3]}  # noqa: RUF012

    def get_data(self):
        """The instance."""
        X, y, _ = zipf_logistic()
        return generated(X, y, self.k, self.lam, "logistic")

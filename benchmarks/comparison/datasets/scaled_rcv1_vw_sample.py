"""Which words occur, CSR 1,747 x 47,236, columns of deviation one, logistic."""

from benchmark_utils.data import real, svmlight
from benchopt import BaseDataset

from instances import scaled_words


class Dataset(BaseDataset):
    """Which words occur, CSR 1,747 x 47,236, columns of deviation one, logistic."""

    name = "scaled-rcv1-vw-sample"
    parameters = {"k": [15, 40], "lam": [1e-3, 1e-2]}  # noqa: RUF012

    def get_data(self):
        """The instance, or why it is absent."""
        load = svmlight("rcv1-vw-sample.bz2", change=scaled_words)
        return real("rcv1-vw-sample", load, self.k, self.lam, "logistic", intercept=True)

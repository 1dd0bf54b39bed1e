"""The paper's regression (section 5.1): d = 500, 100 true features, means and correlations."""

from benchmark_utils.data import generated
from benchopt import BaseDataset

from instances import paper_design


class Dataset(BaseDataset):
    """The paper's regression (section 5.1): d = 500, 100 true features, means and correlations."""

    name = "paper"
    parameters = {"n": [100, 300], "k": [100], "lam": [0.1, 1.0, 10.0]}  # noqa: RUF012

    def get_data(self):
        """The instance."""
        X, y, _ = paper_design(500, 100, self.n, seed=0)
        return generated(X, y, self.k, self.lam)

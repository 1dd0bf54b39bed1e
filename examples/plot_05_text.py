"""
Text with a million features
============================

Sparse matrices are used as they are, whatever their number of columns: nothing of the size of X is copied or made dense.
"""

# %%
# Word counts have few common words and very many rare ones. Here are 20,000 documents over a million words, of which thirty tell
# the class.
from time import perf_counter

import numpy as np
import scipy.sparse as sp

from diht import SparseClassifier

rng = np.random.default_rng(0)
n, d, length = 20_000, 1_000_000, 50
words = np.minimum((rng.pareto(0.7, size=n * length) * 50).astype(np.int64), d - 1)
X = sp.csr_matrix((np.ones(n * length), words, np.arange(0, n * length + 1, length)), shape=(n, d))
X.sum_duplicates()
X.data[:] = 1.0
X = X.multiply(1.0 / np.sqrt(length)).tocsr()
telling = rng.choice(300, 30, replace=False)
planted = rng.uniform(4.0, 12.0, 30) * rng.choice([-1.0, 1.0], 30)
score = X[:, telling] @ planted
y = score + 0.3 * rng.standard_normal(n) > np.median(score)

# %%
# Words are comparable as they are: `standardize=False`. Divided by its standard deviation, the entry of a word of a single document
# among 20,000 would be 141, and the ridge would favour rare words, which tell nothing of other documents.
model = SparseClassifier(k=30, lam=1e-3, standardize=False)
start = perf_counter()
model.fit(X, y)
print(f"{perf_counter() - start:.1f} s; {np.isin(model.support_, telling).sum()} of the 30 words found")
print(f"relative gap {model.result_.relative_gap:.2%} after {model.result_.n_passes:.0f} reads of the data")

# %%
# Found against planted coefficients: the ridge shrinks them, the signs are right.
import matplotlib.pyplot as plt

fig, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.scatter(planted, model.coef_[0, telling], s=12)
axes.set(xlabel="planted coefficient", ylabel="found")
plt.show()

# %%
# `sparsify` keeps the coefficients as a sparse row, so that a stored model takes kilobytes.
print(model.sparsify().coef_.nnz, "coefficients stored")

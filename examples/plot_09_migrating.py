"""
Coming from another tool
========================

A lasso with a refit, an abess or L0Learn model, and the same in one line. What each of them calls things, and what its penalty
is in terms of `lam`: :doc:`/migrating`.
"""

# %%
# From SelectFromModel
# --------------------
# A lasso whose penalty is tuned until ten features are left, followed by a refit, becomes one line.
import numpy as np
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import Lasso, Ridge
from sklearn.pipeline import make_pipeline

from diht import Problem, SparseRegressor, certify

rng = np.random.default_rng(3)
X = rng.standard_normal((200, 100))
for j in range(1, 100):  # neighbours are correlated
    X[:, j] = 0.9 * X[:, j - 1] + np.sqrt(1 - 0.9**2) * X[:, j]
y = X[:, 5::10].sum(axis=1) + 1.5 * rng.standard_normal(200)
lam = 0.01
theirs = make_pipeline(
    SelectFromModel(Lasso(alpha=0.05), max_features=10, threshold=-np.inf), Ridge(alpha=0.5 * len(y) * lam)
)
theirs.fit(X, y)
ours = SparseRegressor(k=10, lam=lam, standardize=False).fit(X, y)  # the same problem as theirs

chosen = theirs[0].get_support(indices=True)
w = np.zeros(X.shape[1])
w[chosen] = theirs[1].coef_
problem = Problem(X, y, loss="squared", k=10, lam=lam, fit_intercept=True)
print("lasso and refit:", chosen.tolist())
print("diht:           ", ours.support_.tolist(), "(planted: 5, 15, ..., 95)")
print(certify(problem, w, intercept=theirs[1].intercept_))

# %%
# Where the two differ, a neighbour took the place of the feature that matters:
import matplotlib.pyplot as plt

fig, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
axes.stem(np.arange(100), np.isin(np.arange(100), np.arange(5, 100, 10)), linefmt="0.85", markerfmt=" ", basefmt=" ")
axes.plot(np.flatnonzero(w), w[w != 0], "x", label="lasso and refit")
axes.plot(ours.support_, ours.coef_[ours.support_], "o", mfc="none", label="diht")
axes.set(xlabel="feature", ylabel="coefficient")
axes.legend()
plt.show()

# %%
# The estimators select as well, so they can take SelectFromModel's place in a pipeline:
print(make_pipeline(SparseRegressor(k=10, lam=lam), Ridge(alpha=1.0)).fit(X, y).score(X, y))

# %%
# From abess and L0Learn
# ----------------------
# .. code-block:: python
#
#     from abess import LinearRegression                       # before
#     LinearRegression(support_size=10).fit(X, y)
#
#     import fastsparsegams                                    # before
#     fastsparsegams.fit(X, y, penalty="L0L2", max_support_size=10)
#
#     from diht import SparseRegressor                         # now
#     SparseRegressor(k=10, lam=1e-3).fit(X, y)
#
# Without a ridge (abess by default) take a small `lam`: it has to be positive, for it is what a bound is made of. Where a model was
# found by another tool and is to be kept, `certify` says how good it is.

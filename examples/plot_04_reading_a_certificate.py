"""
Reading a certificate
=====================

What is proved of a model, what of single features, and how a model of another tool gets a certificate.
"""

# %%
# A model of five of the features of the diabetes data and their products, 55 in all, many of them correlated.
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from diht import Problem, SparseRegressor, certify

X, y = load_diabetes(return_X_y=True)
X = StandardScaler().fit_transform(PolynomialFeatures(2, interaction_only=True, include_bias=False).fit_transform(X))
model = SparseRegressor(k=5, lam=1.0).fit(X, y)
print(model.certificate_)

# %%
# Required features are in every best model, excluded ones in none. That holds even while the gap is open: what remains undecided is
# all that the search still has to settle.
certificate = model.certificate_
print("required:", certificate.required.tolist())
print("excluded:", len(certificate.excluded), "of", X.shape[1])

# %%
# What it costs, at the least, to do without a feature of the model:
import matplotlib.pyplot as plt

fig, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
axes.barh([f"feature {j}" for j in model.support_], certificate.drop_cost[model.support_])
axes.set_xlabel("the objective is at least so much higher without it")
plt.show()

# %%
# Near-ties: models that came close. If two of them differ in one feature only, the data hardly distinguishes the two.
for other in model.result_.pool[1:4]:
    gone, come = np.setdiff1d(model.support_, other.support), np.setdiff1d(other.support, model.support_)
    print(f"{other.objective / model.objective_ - 1:.2%} worse: {come.tolist()} for {gone.tolist()}")

# %%
# A model from elsewhere: the five largest coefficients of a ridge regression, refitted. The certificate says how far from the best
# it can be at most. `Problem` takes columns as they are; these have been given unit variance above.
from sklearn.linear_model import Ridge

largest = np.sort(np.argsort(-np.abs(Ridge(alpha=1.0).fit(X, y).coef_))[:5])
n = len(y)
fit = Ridge(alpha=0.5 * n * 1.0).fit(X[:, largest], y)  # alpha = N lam / 2
w = np.zeros(X.shape[1])
w[largest] = fit.coef_
problem = Problem(X, y, loss="squared", k=5, lam=1.0, fit_intercept=True)
print(certify(problem, w, intercept=fit.intercept_))

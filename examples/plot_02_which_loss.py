"""
Which loss
==========

The loss says what counts as an error.

========================================  =====================================================
the target                                loss
========================================  =====================================================
measured, errors of one size              ``"squared"``
measured, a few of them wild              ``"huber"``
measured, a quantile is wanted            ``"quantile(q=0.9)"``
counts, variance about the mean           ``"poisson"``
counts, variance above the mean           ``"negative_binomial(dispersion=0.5)"``
positive, errors in proportion            ``"gamma"``
amounts with zeros, such as claims        ``"tweedie(power=1.5)"``
classes, probabilities are wanted         ``"logistic"``
classes, only the decision matters        ``"hinge"``, ``"smoothed_hinge"``, ``"squared_hinge"``
========================================  =====================================================
"""

# %%
# What an error of a given size costs; a margin of the right sign is no error for the hinges.
import matplotlib.pyplot as plt
import numpy as np

from diht.losses import Hinge, Huber, Logistic, Quantile, SmoothedHinge, Squared

u, zero, one = np.linspace(-3, 3, 301), np.zeros(301), np.ones(301)
fig, (left, right) = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
for loss in (Squared(), Huber(), Quantile(q=0.9)):
    left.plot(u, loss.value(u, zero), label=loss.name)
for loss in (Logistic(), SmoothedHinge(), Hinge()):
    right.plot(u, loss.value(u, one), label=loss.name)
left.set(xlabel="prediction minus target", ylim=(0, 8))
right.set(xlabel="margin y u", ylim=(0, 4))
left.legend(loc="upper center")
right.legend()
plt.show()

# %%
# A few wild targets
# ------------------
# Three features matter. One target in twenty is far off, as a typing error would be.
from diht import SparseRegressor

rng = np.random.default_rng(0)
X = rng.standard_normal((150, 60))
w = np.zeros(60)
w[[3, 17, 41]] = 1.0, -1.0, 0.8
y = X @ w + 0.3 * rng.standard_normal(150)
wild = rng.random(150) < 0.05
y[wild] += 30.0 * rng.standard_normal(wild.sum())

for loss in ("squared", Huber(delta=1.0)):
    model = SparseRegressor(k=3, lam=0.01, loss=loss).fit(X, y)
    error = np.linalg.norm(model.coef_ - w) / np.linalg.norm(w)
    print(f"{loss!s:22} features {model.support_.tolist()}, relative error of the coefficients {error:.2f}")

# %%
# Counts
# ------
# For counts the mean is the exponential of a linear model, and predictions are means.
counts = rng.poisson(np.exp(0.5 + 0.6 * X[:, 5] - 0.4 * X[:, 30]))
model = SparseRegressor(k=2, lam=0.01, loss="poisson").fit(X, counts)
print(model.support_.tolist(), model.predict(X[:4]).round(2), counts[:4])

# %%
# Claims
# ------
# Most policies have no claim, a few have large ones. An offset is the logarithm of the time that a policy was there.
years = rng.uniform(0.2, 1.0, 150)
number = rng.poisson(years * np.exp(0.6 * X[:, 5]))
claims = np.array([rng.gamma(2.0, np.exp(0.4 * X[i, 9]), n).sum() for i, n in enumerate(number)])
model = SparseRegressor(k=2, lam=0.01, loss="tweedie(power=1.5)").fit(X, claims, offset=np.log(years))
print(f"{np.mean(claims == 0):.0%} without a claim, features {model.support_.tolist()}, gap {model.gap_:.1e}")

# %%
# Quantiles
# ---------
# A prediction that one target in ten exceeds; where the noise grows with a feature, it has that feature, too.
noisy = 2.0 * X[:, 3] + np.exp(0.5 * X[:, 17]) * rng.gumbel(size=150)
for q in (0.1, 0.5, 0.9):
    model = SparseRegressor(k=2, lam=1e-3, loss=f"quantile(q={q})").fit(X, noisy)
    below = np.mean(noisy <= model.predict(X))
    print(f"q = {q}: features {model.support_.tolist()}, {below:.0%} of the targets are below the prediction")

# %%
# Classes
# -------
# All of these losses find the two features; only the logistic one gives probabilities.
from diht import SparseClassifier

labels = np.where(X[:, 8] + X[:, 50] + 0.5 * rng.standard_normal(150) > 0, "ill", "well")
for loss in ("logistic", "smoothed_hinge", "hinge", "squared_hinge"):
    model = SparseClassifier(k=2, lam=0.01, loss=loss).fit(X, labels)
    print(f"{loss:15} features {model.support_.tolist()}, right on {model.score(X, labels):.0%} of the training set")
print(SparseClassifier(k=2, lam=0.01).fit(X, labels).predict_proba(X[:2]).round(3))

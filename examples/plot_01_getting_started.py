"""
Getting started
===============

A model with five of thirty features, and what is proved about it.
"""

# %%
# The data: measurements of cell nuclei, with the diagnosis.
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from diht import SparseClassifier

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

# %%
# `k` is the largest number of features, `lam` the strength of the ridge. Columns are divided by their standard deviations, without
# changing the data, and the coefficients are in its units all the same; `standardize=False` leaves columns as they are.
model = SparseClassifier(k=5, lam=0.1).fit(X_train, y_train)
for name, coefficient in zip(model.get_feature_names_out(), model.coef_[0, model.support_], strict=True):
    print(f"{name:25} {coefficient: .4g}")

# %%
# It predicts like every scikit-learn classifier.
print(f"right on {model.score(X_test, y_test):.1%} of the test set")

# %%
# And it knows how good it is. No model with five features has an objective below the lower bound, whichever of the 142,506 choices
# it makes. A fit ends when the gap is below `tol`, 0.0001 of the objective by default: on a table of this size that is a proof
# within seconds.
print(model.certificate_)

# %%
# `exact=True` with a smaller `tol` searches on until the two figures agree.
exact = SparseClassifier(k=5, lam=0.1, exact=True, tol=1e-8).fit(X_train, y_train)
print(exact.result_.status, f"relative gap {exact.result_.relative_gap:.1e}")

# %%
# How the two bounds came together, objective from above and bound from below:
import matplotlib.pyplot as plt

trace = exact.result_.trace
steps = trace.column("iteration")
fig, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.step(steps, trace.column("best_objective"), where="post", label="objective of the best model so far")
axes.step(steps, trace.column("best_bound"), where="post", label="lower bound on all models")
axes.set(xlabel="step", ylabel="objective", ylim=(0.9 * exact.objective_, 1.1 * exact.objective_))
axes.legend()
plt.show()

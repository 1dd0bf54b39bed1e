"""
Choosing k
==========

A path tells how much each further feature buys; cross-validation how much of it is real.
"""

# %%
from sklearn.datasets import load_breast_cancer

from diht import SparseClassifierCV, sparse_path

X, y = load_breast_cancer(return_X_y=True, as_frame=True)

# %%
# Every point of the path starts from its neighbours and has a bound of its own. Neither objective nor bound rises with k.
path = sparse_path(X, y, ks=range(1, 11), lams=0.1, loss="logistic")
print(path.to_frame()[["k", "objective", "lower_bound", "relative_gap", "bic"]].round(4).to_string(index=False))

# %%
# The lowest panel shows which features are in the model at which k, and where that is proved for every best model.
figure = path.plot()

# %%
# Cross-validation over about ten k and three lam: the smallest k is taken whose score is within one standard error of the best;
# `criterion="score"` takes the best. Columns are standardised in every fold by its own training samples.
model = SparseClassifierCV().fit(X, y)
print(f"k = {model.best_k_}, lam = {model.best_lam_}: {model.best_score_:.3f} of the held out samples right")
print(model.get_feature_names_out())

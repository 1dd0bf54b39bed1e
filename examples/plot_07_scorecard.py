"""
A scorecard
===========

A small model that people can apply by hand: categories that enter as a whole, effects of a sign that makes sense, points instead of
coefficients.
"""

# %%
# Made data: an applicant's age, income, years employed, debts, and a region of four that is coded by four columns.
import numpy as np

from diht import SparseClassifier

rng = np.random.default_rng(0)
n = 2000
region = rng.integers(4, size=n)
columns = {
    "age": rng.uniform(18, 80, n),
    "income": rng.lognormal(10, 0.5, n) / 1000,
    "employed": rng.exponential(5, n),
    "debt": rng.exponential(10, n),
    "noise a": rng.standard_normal(n),
    "noise b": rng.standard_normal(n),
} | {f"region {r}": (region == r).astype(float) for r in range(4)}
names, X = list(columns), np.column_stack(list(columns.values()))
z = (
    0.04 * columns["income"]
    + 0.1 * columns["employed"]
    - 0.12 * columns["debt"]
    + np.array([0.0, 0.5, -0.5, 1.0])[region]
)
repaid = rng.random(n) < 1 / (1 + np.exp(-z))

# %%
# `groups` lets the four columns of the region enter and leave together, with one scale (k counts groups), `keep` has income in
# whatever k says, and `sign` forbids that more debt earns points.
groups = [name.split()[0] if name.startswith("region") else name for name in names]
model = SparseClassifier(
    k=3,
    lam=1e-3,
    groups=groups,
    keep=[names.index("income")],
    sign={names.index("debt"): -1, names.index("employed"): 1},
)
model.fit(X, repaid)
for j in model.support_:
    print(f"{names[j]:10} {model.coef_[0, j]: .4f}")
print(model.certificate_)

# %%
# Points: what a unit of a feature is worth, rounded to tenths, with twenty points doubling the odds.
points = 20 / np.log(2) * model.coef_[0]
card = {names[j]: float(points[j].round(1)) for j in model.support_}

import matplotlib.pyplot as plt

fig, axes = plt.subplots(figsize=(6, 3), layout="constrained")
bars = axes.barh(list(card), list(card.values()))
axes.bar_label(bars, padding=3)
axes.margins(x=0.15)
axes.set_xlabel("points for a unit more")
plt.show()

# %%
# How much does the rounding cost?
rounded = X @ np.array([card.get(name, 0.0) for name in names])
exact = model.decision_function(X)
print(f"correlation of the rounded score with the model's: {np.corrcoef(rounded, exact)[0, 1]:.5f}")

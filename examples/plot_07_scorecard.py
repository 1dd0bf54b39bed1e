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
print(f"\n{model.certificate_}")

# %%
# Points: whole numbers, at most five in size, for every unit of a feature. Slope and intercept turn their sum into a risk. A card
# is a linear model too, so that what is proved of all models with as many features bounds what the whole numbers cost.
from diht import scorecard

units = {names.index("income"): 10, names.index("employed"): 5, names.index("debt"): 5}
card = scorecard(model, X, repaid, points=5, units=units)
for name, points, unit in zip(card.names, card.points, card.units, strict=True):
    print(f"{names[int(name[1:])]:10} {points:+d} for each {unit:g}")
print(f"objective {card.objective:.5f}, without rounding {card.model_objective:.5f}")
print(f"any model with as many features is better by at most {card.price:.2%}")

# %%
# What the card says, and what happened: the risk of each sum of points, and the share that repaid. `print(card)` shows the same as
# a table, `card.to_html("card.html")` writes a page for the printer.
import matplotlib.pyplot as plt

fig, axes = plt.subplots(figsize=(6, 4), layout="constrained")
axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
axes.plot([level.risk for level in card.levels], [level.observed for level in card.levels], "o")
axes.set_xlabel("repaid, by the card")
axes.set_ylabel("repaid, observed")
plt.show()

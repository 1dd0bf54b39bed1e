"""
Equations of motion from data
=============================

Sparse identification of dynamics (SINDy) writes the rate of change of a system as a few terms out of a library of many. With
`exact=True` the choice is proved: no other choice of as many terms has a lower objective. PySINDy takes any regressor of
scikit-learn's kind as its optimiser, so that no commercial solver is needed.
"""

# %%
# The Lorenz system, observed 2,000 times with noise.
import numpy as np
from scipy.integrate import solve_ivp

rng = np.random.default_rng(0)


def lorenz(t, p):
    """Return the rates of change of the three states."""
    x, y, z = p
    return [10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z]


t = np.linspace(0, 10, 2000)
states = solve_ivp(lorenz, (0, 10), [-8, 8, 27], t_eval=t, rtol=1e-10, atol=1e-10).y.T
observed = states + 0.02 * rng.standard_normal(states.shape)

# %%
# All products of up to three of the states are 20 candidate terms. `SparseRegressorCV` chooses the number of terms of each equation
# by cross-validation; `exact=True` proves the choice at that number.
import pysindy as ps

from diht import SparseRegressorCV

regressor = SparseRegressorCV(ks=range(1, 7), lams=1e-6, fit_intercept=False, exact=True, tol=1e-6)
model = ps.SINDy(
    optimizer=ps.WrappedOptimizer(regressor, unbias=True),
    feature_library=ps.PolynomialLibrary(degree=3),
    differentiation_method=ps.SmoothedFiniteDifference(),
)
model.fit(observed, t=t)
model.print()

# %%
# What is proved, for each equation.
for name, equation in zip("xyz", model.optimizer.optimizer.estimators_, strict=True):
    print(f"{name}': {equation.best_k_} terms\n{equation.certificate_}\n")

# %%
# The equations found, solved from a start of their own: the same attractor.
import matplotlib.pyplot as plt

found = model.simulate([5.0, -5.0, 20.0], t)
fig, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
axes.plot(observed[:, 0], observed[:, 2], ".", markersize=2, color="0.7", label="observed")
axes.plot(found[:, 0], found[:, 2], linewidth=0.9, label="equations found")
axes.set(xlabel="x", ylabel="z")
axes.legend()
plt.show()

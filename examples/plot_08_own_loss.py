"""
Your own loss
=============

A loss is a few lines: its value, its derivative, its convex conjugate. Bounds, screening and the exact solver come with it.
"""

# %%
# The loss of quantile regression, smoothed at its kink: under-estimates cost `q`, over-estimates `1 - q`.
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from diht import SparseRegressor
from diht.losses import Loss


@dataclass(frozen=True)
class SmoothQuantile(Loss):
    """With r = y - u: q r for r > 0, (q - 1) r for r < 0, rounded to a parabola within `mu` of it."""

    q: float = 0.9
    mu: float = 0.2  # the derivative changes by at most 1 / mu a unit
    name: ClassVar[str] = "smooth_quantile"
    task: ClassVar[str] = "regression"

    def value(self, u, y):
        """Return l(u, y): the maximum over a in F of a u - l*(a)."""
        a = self.derivative(u, y)
        return a * u - self.conjugate(a, y)

    def derivative(self, u, y):
        """Return l'(u, y)."""
        return np.clip((u - y) / self.mu, -self.q, 1.0 - self.q)

    def second_derivative(self, u, y):
        """Return l''(u, y)."""
        return (np.abs((u - y) / self.mu + self.q - 0.5) < 0.5) / self.mu

    def conjugate(self, a, y):
        """Return l*(a, y) = y a + (mu/2) a^2 on F."""
        inside = (a >= -self.q) & (a <= 1.0 - self.q)
        return np.where(inside, y * a + 0.5 * self.mu * a**2, np.inf)

    def conjugate_derivative(self, a, y):
        """Return the derivative of the conjugate."""
        return y + self.mu * a

    def domain(self, y):
        """Return the ends of F."""
        return -self.q, 1.0 - self.q


# %%
# The noise grows with one feature, so the upper quantile depends on it although the mean does not.
rng = np.random.default_rng(0)
X = rng.uniform(0, 1, size=(600, 20))
y = X[:, 2] + 2.0 * X[:, 11] * rng.standard_normal(600)
models = {q: SparseRegressor(k=2, lam=1e-3, loss=SmoothQuantile(q=q)).fit(X, y) for q in (0.1, 0.5, 0.9)}
for q, model in models.items():
    print(
        f"q = {q}: {model.support_.tolist()}, {np.mean(y <= model.predict(X)):.0%} of the targets below the predictions"
    )
print(model.certificate_)

# %%
import matplotlib.pyplot as plt

grid = np.full((50, 20), 0.5)
grid[:, 11] = np.linspace(0, 1, 50)
fig, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
axes.scatter(X[:, 11], y, s=4, color="0.7")
for q, model in models.items():
    axes.plot(grid[:, 11], model.predict(grid), label=f"q = {q}")
axes.set(xlabel="feature 11", ylabel="target")
axes.legend()
plt.show()

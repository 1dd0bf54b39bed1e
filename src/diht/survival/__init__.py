"""Cox's partial likelihood, which is no sum over samples: its value and derivatives, bounds, solves, scores."""

"""The paper's experiments, one module a figure; ``diht reproduce`` runs them."""

"""Linear models with at most k features, and a proof of how good they are."""

__version__ = "0.1.0"

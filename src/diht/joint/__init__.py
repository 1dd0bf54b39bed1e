"""Losses that are no sum over samples of functions of their predictions: what solves and bounds them; proportional odds."""

"""Supports: exchanges of features, which exchanges may still gain, the pool of models."""

"""Models in files: the schema of model.json, its checks, models that others give."""

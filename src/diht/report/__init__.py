"""A fit for people: models on disk, words, pictures, a live line. Nothing here solves anything."""

from diht.persistence.model import SavedModel
from diht.persistence.schema import read_model, to_json, write_model

__all__ = ["SavedModel", "read_model", "to_json", "write_model"]

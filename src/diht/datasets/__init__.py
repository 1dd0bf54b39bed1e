"""Read tables from files, and write files safely."""

from diht.datasets.bundled import load_breast_cancer
from diht.datasets.reading import read_table
from diht.datasets.table import Table
from diht.datasets.writing import atomic_write

__all__ = ["Table", "atomic_write", "load_breast_cancer", "read_table"]

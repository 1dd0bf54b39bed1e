"""Read tables from files, fetch the data sets of the paper, and write files safely."""

from diht.datasets.bundled import load_breast_cancer
from diht.datasets.converting import convert
from diht.datasets.fetching import fetch_imdb, fetch_news20, fetch_rcv1
from diht.datasets.folder import Dataset, open_dataset
from diht.datasets.home import get_data_home
from diht.datasets.reading import read_table
from diht.datasets.standin import rcv1_standin
from diht.datasets.table import Table
from diht.datasets.writing import atomic_write, write_files

__all__ = [
    "Dataset",
    "Table",
    "atomic_write",
    "convert",
    "fetch_imdb",
    "fetch_news20",
    "fetch_rcv1",
    "get_data_home",
    "load_breast_cancer",
    "open_dataset",
    "rcv1_standin",
    "read_table",
    "write_files",
]

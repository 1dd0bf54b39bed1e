"""Tables with named columns of any kind, and how they become numbers; numpy alone is needed."""

from diht.tables.encoding import Column, Encoding
from diht.tables.frame import Frame
from diht.tables.looks import kind_of, left_out

__all__ = ["Column", "Encoding", "Frame", "kind_of", "left_out"]

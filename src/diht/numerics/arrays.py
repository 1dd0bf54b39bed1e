"""Types of arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "Indices", "Mask", "Matrix", "Vector"]

Array = NDArray[Any]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

"""Where rows live: the targets, the weights and all that is as long as the samples."""

from diht.samples.base import Curvatures, Rows, Samples, added
from diht.samples.blocks import BlockSamples
from diht.samples.memory import MemorySamples, null_intercept
from diht.samples.partition import Blocks, check_blocks

__all__ = [
    "BlockSamples",
    "Blocks",
    "Curvatures",
    "MemorySamples",
    "Rows",
    "Samples",
    "added",
    "check_blocks",
    "null_intercept",
]

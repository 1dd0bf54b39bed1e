"""Where rows live: the targets, the weights and all that is as long as the samples."""

from diht.samples.base import Curvatures, Intercept, Rows, Samples, added
from diht.samples.blocks import BlockSamples
from diht.samples.descents import Descents, Optimum
from diht.samples.greedy import Greedy
from diht.samples.lines import Along, Lines
from diht.samples.memory import MemorySamples, null_intercept
from diht.samples.partition import Blocks, check_blocks
from diht.samples.targets import TargetSamples
from diht.samples.walks import Around, Found, Walks

__all__ = [
    "Along",
    "Around",
    "BlockSamples",
    "Blocks",
    "Curvatures",
    "Descents",
    "Found",
    "Greedy",
    "Intercept",
    "Lines",
    "MemorySamples",
    "Optimum",
    "Rows",
    "Samples",
    "TargetSamples",
    "Walks",
    "added",
    "check_blocks",
    "null_intercept",
]

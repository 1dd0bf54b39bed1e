"""Where rows live: the targets, the weights and all that is as long as the samples."""

from diht.samples.base import Samples
from diht.samples.blocks import BlockSamples
from diht.samples.memory import MemorySamples

__all__ = ["BlockSamples", "MemorySamples", "Samples"]

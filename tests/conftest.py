"""Settings that must hold before the libraries under test are imported."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Without it scipy has no array API support and one of scikit-learn's checks of an estimator is skipped.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# There is a worker for each processor: were the linear algebra of each to use several threads, these would wait for each other,
# busily, and take up to three times as long. Tests of threads ask for theirs.
for library in ("OPENBLAS", "MKL", "BLIS"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

# A kernel compiles at its first call, which no deadline should count. On CI the examples are the same each time.
settings.register_profile("dev", deadline=None, max_examples=60)
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True)
settings.load_profile("ci" if "CI" in os.environ else "dev")

# What is imported and collected lives until the end: looking through it for garbage, again and again, took a tenth of the time.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on there is garbage to collect, but not among what is here already."""
    gc.freeze()
    gc.enable()


# Files whose tests compile most of the kernels that take seconds, in two parts without a kernel in common.
NODES, WALKS = ("test_nodes.py", "test_limits.py"), ("test_swap_optimality.py",)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin each half of the tests with one of these parts, so that two workers do not compile the same kernels at one time.

    Machine code is on disk once it is compiled; each worker begins with a half.
    """
    nodes = [item for item in items if item.path.name in NODES]
    walks = [item for item in items if item.path.name in WALKS]
    others = [item for item in items if item.path.name not in (*NODES, *WALKS)]
    half = max(0, len(items) // 2 - len(nodes))
    items[:] = nodes + others[:half] + walks + others[half:]


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own answer to Ctrl-C, in the processes that a test starts too, and none pressed before.

    Where the tests run in the background of a script the signal is ignored.
    """
    from diht.numerics.interrupt import Interrupt

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    Interrupt._last = -float("inf")
    yield
    assert Interrupt._outer is None
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler

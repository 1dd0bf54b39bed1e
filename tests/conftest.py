"""Settings that must hold before the libraries under test are imported."""

import os

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

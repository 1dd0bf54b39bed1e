"""Settings that must hold before the libraries under test are imported."""

import os

# Without it scipy has no array API support and one of scikit-learn's checks of an estimator is skipped.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

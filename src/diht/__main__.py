"""``python -m diht`` is the command ``diht``."""

import sys

from diht.cli import main

if __name__ == "__main__":
    sys.exit(main())

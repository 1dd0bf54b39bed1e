"""What the commands of ``diht`` do, one module a command; `diht.cli` has their arguments."""

import sys

from diht.report.text import printable

__all__ = ["warn"]


def warn(message: str) -> None:
    """Print a warning, one line on standard error."""
    print(f"diht: warning: {printable(message)}", file=sys.stderr)

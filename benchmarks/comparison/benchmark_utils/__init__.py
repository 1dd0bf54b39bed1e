"""What the parts of the comparison share; the generated instances and the other packages are in the folder above."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

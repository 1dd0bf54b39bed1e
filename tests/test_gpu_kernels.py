"""The Triton kernels, on a GPU where there is one, else in Triton's interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="kernels of a device need torch: pip install 'diht[gpu]'")


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_are_sums_in_float64() -> None:
    """In a process of its own: whether functions are compiled or interpreted is settled when Triton is imported."""
    import torch

    here = Path(__file__).parent
    path = os.pathsep.join([str(here.parent / "src"), str(here), *filter(None, [os.environ.get("PYTHONPATH")])])
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(here / "triton_cases.py")],
        env=os.environ | {"PYTHONPATH": path} | interpreted,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "all kernels agree" in done.stdout

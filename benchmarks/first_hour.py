"""What a newcomer waits for: installing, importing, the first fit and the next, loading a model and predicting a row.

    python benchmarks/first_hour.py             # all but installing
    python benchmarks/first_hour.py --install   # from an empty environment to the first report, over the network

Each line is the median of several processes (--repeat), in seconds: of the clock, and of the processor, which is what to
compare where the machine has other work. The table has 600 rows and eight columns: numbers, categories, an id, names, blanks.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

from awkward import titanic  # noqa: E402

PREDICT = """
import diht
model = diht.load_model("diht-report/model.json")
model.predict([{"Sex": "female", "Age": 30, "Pclass": 1}])
"""


def seconds(command: list[str], folder: Path, **environment: str) -> tuple[float, float]:
    """Run a command and return its seconds of the clock and of the processor."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    paths = {"PYTHONPATH": str(ROOT / "src")} | environment
    subprocess.run(command, cwd=folder, env=os.environ | paths, check=True, capture_output=True)
    wall, after = perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def told(name: str, runs: list[tuple[float, float]]) -> None:
    print(f"{name:<48} {median(wall for wall, _ in runs):7.2f} {median(cpu for _, cpu in runs):7.2f}", flush=True)


def install(folder: Path, fit: list[str]) -> None:
    """Make an environment, install the package into it, fit a first model."""
    steps = {
        "python -m venv": [sys.executable, "-m", "venv", "fresh"],
        "pip install '.[app]'": ["fresh/bin/pip", "install", "-q", f"{ROOT}[app]"],
        "diht fit titanic.csv (the first, nothing compiled)": ["fresh/bin/python", "-m", "diht", *fit],
    }
    runs = {name: seconds(command, folder, PYTHONPATH="") for name, command in steps.items()}
    for name, run in runs.items():
        told(name, [run])
    told("from nothing to the first report", [tuple(map(sum, zip(*runs.values(), strict=True)))])  # type: ignore[list-item]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="measure an installation, too")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="processes of each kind (default: 3)")
    arguments = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        case = titanic(folder)
        fit = ["fit", str(case.path), "--target", case.target, "--quiet", *case.options]
        python = [sys.executable]
        print(f"{'':<48} {'clock':>7} {'cpu':>7}")
        if arguments.install:
            install(folder, fit)
        cold = [
            seconds([*python, "-m", "diht", *fit], folder, NUMBA_CACHE_DIR=str(folder / f"cache{i}"))
            for i in range(arguments.repeat)
        ]
        told("diht fit titanic.csv, no kernel compiled yet", cold)
        again = [
            seconds([*python, "-m", "diht", *fit], folder, NUMBA_CACHE_DIR=str(folder / "cache0"))
            for _ in range(arguments.repeat)
        ]
        told("diht fit titanic.csv, again", again)
        for name, code in {
            "python -c pass": "pass",
            "import diht": "import diht",
            "from diht import SparseClassifier": "from diht import SparseClassifier",
            "load_model and one prediction": PREDICT,
        }.items():
            told(name, [seconds([*python, "-c", code], folder) for _ in range(arguments.repeat)])


if __name__ == "__main__":
    main()

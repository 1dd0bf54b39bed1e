"""The rooms of the package, from the bottom up: imports point downward only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import diht

ROOT = Path(diht.__file__).parent

# Each room may use itself and those above it in this list. A name stands for a module, or a package with all it holds.
ROOMS: list[tuple[str, ...]] = [
    ("numerics", "tables"),  # tools that know nothing of the field; columns of any kind as numbers
    ("status",),
    ("losses",),  # formulas
    ("design",),  # X: storage, kernels, products and their error bounds
    ("constraints",),  # which supports are allowed
    ("samples",),  # where rows live
    ("problem",),
    ("bounds", "fit", "result"),  # what is proved, what is handed out
    ("relaxation",),  # the relaxed problem, from sums and small matrices
    ("refit",),  # the best model on a support
    ("search",),  # supports
    ("joint",),  # losses that are no sum over samples
    ("survival",),  # Cox's partial likelihood
    ("solvers", "theory"),  # the methods, and the loop that drives them all
    ("datasets",),
    ("dask", "gpu"),  # rows on the workers of a cluster, on a device
    ("persistence",),  # models in files
    ("estimators", "report", "serving"),
    ("experiments",),
    ("commands", "cli", "__main__"),
]

STORAGE = {
    "AffineView",
    "BlockSamples",
    "DenseDesign",
    "FormedView",
    "MemorySamples",
    "RowBlocks",
    "SparseDesign",
    "StoredDesign",
}

THREADED = {
    "Ahead",
    "_in_parts",
    "_summed",
    "each",
    "in_slices",
    "map",
    "run_parts",
    "total",
}  # what calls its arguments in threads


def modules() -> dict[str, Path]:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in names.items() if name != "__init__"}


MODULES = modules()


def room(name: str) -> int:
    """The number of the room that names a module, or the package that it is in."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        found = [i for i, held in enumerate(ROOMS) if ".".join(parts[:length]) in held]
        if found:
            return found[0]
    raise AssertionError(f"{name} is in no room")


def imports(path: Path) -> Iterator[str]:
    """Modules of the package that a file imports when it runs, at once or later."""
    for node in running(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "diht":
            for alias in node.names:
                full = f"{node.module}.{alias.name}".removeprefix("diht.")
                whole = node.module.removeprefix("diht").removeprefix(".")
                yield full if full in MODULES else whole


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker reads."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            yield node
            yield from running(node)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_point_downward(name: str) -> None:
    assert not [other for other in imports(MODULES[name]) if other and room(other) > room(name)]


def test_every_room_holds_what_it_names() -> None:
    named = [name for held in ROOMS for name in held]
    assert len(named) == len(set(named))
    assert all(name in MODULES for name in named)


def test_nothing_but_the_design_and_the_samples_asks_how_rows_are_stored() -> None:
    """No check of a class of storage, no private array of X, no dense copy of it, elsewhere."""
    for name, path in MODULES.items():
        if name.split(".")[0] in ("design", "samples"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                asked = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                assert not asked & STORAGE, f"{name}, line {node.lineno}"
            if isinstance(node, ast.Attribute):
                assert node.attr not in ("_X", "_by_rows", "_passes"), f"{name}, line {node.lineno}"


@pytest.mark.parametrize(
    "name", ["design.dense", "design.gram", "samples.base", "samples.memory", "samples.compiled_loss"]
)
def test_products_in_threads_let_other_threads_run(name: str) -> None:
    """``@`` keeps the interpreter's lock where its result is short; ``np.dot`` does not."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        inner = {node.name: node for node in ast.walk(function) if isinstance(node, ast.FunctionDef)}
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        threaded = [call for call in calls if ast.unparse(call.func).split(".")[-1] in THREADED]
        parts = [inner.get(ast.unparse(argument), argument) for call in threaded for argument in call.args]
        for part in parts:
            assert "MatMult" not in ast.dump(part), f"{name}, line {part.lineno}"


@pytest.mark.parametrize("page", ["architecture.md", "mathematics.md", "your-own-loss.md"])
def test_the_files_that_the_pages_name_exist(page: str) -> None:
    repository = Path(__file__).parent.parent
    named = re.findall(r"`((?:\w+/)+\w*(?:\.py)?)`", (repository / "docs" / page).read_text(encoding="utf-8"))
    named = [name.removeprefix("diht/") for name in named]
    assert named or page == "your-own-loss.md"
    assert not [name for name in named if not ((ROOT / name).exists() or (repository / name).exists())]

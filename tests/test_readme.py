"""Every snippet of the README and of the documentation runs."""

import re
import shlex
from pathlib import Path

import pytest

from diht.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SNIPPETS = {page: re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) for page in PAGES}
COMMANDS = [
    pytest.param(part, id=part)
    for page in PAGES
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    for line in re.findall(r"^\$ (.*?)(?:\s+#.*)?$", block, re.MULTILINE)
    for part in line.split(" && ")
]


def test_there_are_snippets():
    assert SNIPPETS[ROOT / "README.md"]
    assert COMMANDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_snippets_run(page, capsys):
    namespace = {"__name__": page.stem}
    for code in SNIPPETS[page]:
        exec(compile(code, page.name, "exec"), namespace)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_works(command, capsys, tmp_path, monkeypatch):
    """The package's own commands run; what installs it and runs the tests is checked to exist (CI runs it)."""
    words = shlex.split(command)
    if words[0] == "pip":
        extra = re.fullmatch(r"\.\[(\w+)\]", words[2])
        assert extra is not None
        assert f"\n{extra.group(1)} = [" in (ROOT / "pyproject.toml").read_text()
    elif words[0] == "diht":
        monkeypatch.chdir(tmp_path)
        assert main(words[1:]) == 0
    elif words[0] == "python":
        assert (ROOT / words[1]).exists()
    else:
        assert words == ["pytest"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target

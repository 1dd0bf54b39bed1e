"""Every snippet of the README and of the documentation runs, and prints what the page says that it prints."""

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import pytest

from diht.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A snippet, and the text right after it that it prints.
SNIPPETS = {
    page: re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", page.read_text(), re.DOTALL) for page in PAGES
}
# The commands of a page in order, each with the lines that it prints among others.
COMMANDS = {
    page: [
        (command.strip(), lines)
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
        for line, *lines in (part.splitlines() for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:])
        for command in re.sub(r"\s+#.*", "", line).split(" && ")
    ]
    for page in PAGES
}
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


def agree(shown, printed):
    """Whether the words are the same and the numbers too, but for the last digits: they depend on the machine."""
    words = [" ".join(NUMBER.sub("#", text).split()) for text in (shown, printed)]
    if words[0] != words[1]:
        return False
    numbers = [[float(number.replace(",", "")) for number in NUMBER.findall(text)] for text in (shown, printed)]
    return all(a == pytest.approx(b, rel=0.05) for a, b in zip(*numbers, strict=True))


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run the snippets of a page, once, in a folder of their own; gives the folder and what each of them prints.

    Those of the README stand alone; those of other pages go on from the ones before them.
    """
    done = {}

    def run(page):
        if page.name == "gpu.md" and not pytest.importorskip("torch").cuda.is_available():
            pytest.skip("there is no GPU")
        if page not in done:
            folder, namespace, printed = tmp_path_factory.mktemp(page.stem), {"__name__": page.stem}, []
            with contextlib.chdir(folder):
                for code, _ in SNIPPETS[page]:
                    if page.name == "README.md":
                        namespace = {"__name__": page.stem}  # each stands alone
                    with contextlib.redirect_stdout(io.StringIO()) as out:
                        exec(compile(code, page.name, "exec"), namespace)
                    printed.append(out.getvalue())
            done[page] = folder, printed
        return done[page]

    return run


def test_there_are_snippets():
    assert SNIPPETS[ROOT / "README.md"]
    assert COMMANDS[ROOT / "README.md"]
    assert any(shown for _, shown in SNIPPETS[ROOT / "docs" / "certificates.md"])


def test_numbers_agree_to_some_digits_and_words_to_the_letter():
    assert agree("gap  0.0167 (6.8%)", "gap 0.0168 (6.75%)")
    assert not agree("gap 0.0167", "gap 0.0187")
    assert not agree("gap 0.0167", "bound 0.0167")
    assert not agree("5 required", "6 required")


def parametrized(pages):
    """The README is quick."""
    marks = [() if page.name == "README.md" else pytest.mark.slow for page in pages]
    return [pytest.param(page, id=page.name, marks=mark) for page, mark in zip(pages, marks, strict=True)]


@pytest.mark.parametrize("page", parametrized(PAGES))
def test_python_snippets_run(page, ran):
    _, printed = ran(page)
    for (_, shown), out in zip(SNIPPETS[page], printed, strict=True):
        assert not shown or agree(shown, out), f"{page.name} shows\n{shown}\nand it prints\n{out}"


@pytest.mark.parametrize("page", parametrized([page for page in PAGES if COMMANDS[page]]))
def test_commands_work(page, ran, capsys, monkeypatch):
    """The package's own commands run; what installs it and runs the tests is checked to exist (CI runs it)."""
    for command, shown in COMMANDS[page]:
        words = shlex.split(command)
        if words[0] == "pip":
            extra = re.fullmatch(r"\.\[(\w+)\]", words[2])
            assert extra is not None
            assert f"\n{extra.group(1)} = [" in (ROOT / "pyproject.toml").read_text()
        elif words[0] == "diht":
            monkeypatch.chdir(ran(page)[0])
            assert main(words[1:]) == 0, command
            out = capsys.readouterr().out.splitlines()
            for line in shown:
                assert any(agree(line, printed) for printed in out), f"{command}: {line}"
        elif words[0] == "python":
            assert (ROOT / words[1]).exists()
        else:
            assert words == ["pytest"]


def test_the_numbers_in_the_text_were_computed():
    text = " ".join((ROOT / "docs" / "certificates.md").read_text().split())
    for name, number in json.loads((ROOT / "docs" / "figures" / "numbers.json").read_text()).items():
        assert number in text, f"{name}: {number}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target

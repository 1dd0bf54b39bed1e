"""What is written down in several files is the same in all of them: version, Python, names, links."""

import re
import tomllib
from pathlib import Path

import pytest

import diht

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
CITATION = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github").rglob("*.md"))
PAGES = [*sorted(ROOT.glob("*.md")), *TEMPLATES]


def cited(key):
    """Return the one value of a key at the top of the citation."""
    (value,) = re.findall(rf"^{key}: (.+)$", CITATION, re.MULTILINE)
    return value.strip('"')


def minor(text):
    """Return the versions 3.x in a text, as their x."""
    return [int(number) for number in re.findall(r"\b3\.(\d+)\b", text)]


def supported():
    """Return the x of every Python 3.x that the classifiers name."""
    return minor(
        " ".join(line for line in PROJECT["classifiers"] if line.startswith("Programming Language :: Python :: 3."))
    )


# Version


def test_the_version_stands_in_the_package_alone():
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["hatch"]["version"] == {"path": "src/diht/__init__.py"}


def test_the_citation_has_the_version():
    assert cited("version") == diht.__version__


def test_the_changelog_begins_with_the_version():
    headings = re.findall(r"^## \[(.+?)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0][0] == diht.__version__
    assert all(re.fullmatch(r"\d{4}-\d{2}-\d{2}", date) for _, date in headings[1:])
    assert re.fullmatch(r"unreleased|\d{4}-\d{2}-\d{2}", headings[0][1])


# Names


def test_the_citation_says_what_the_package_says_of_itself():
    assert cited("license") == PROJECT["license"]
    assert cited("url") in PROJECT["urls"].values()
    assert cited("title").casefold() == f"diht: {PROJECT['description']}".casefold()
    for author in PROJECT["authors"]:
        assert f"\n  - name: {author['name']}\n" in CITATION
        assert author["name"] in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert (
        re.findall(r"^  - (.+)$", CITATION[CITATION.index("keywords:") : CITATION.index("references:")], re.MULTILINE)
        == (PROJECT["keywords"])
    )


def test_the_citation_has_the_title_of_the_paper_as_the_documentation_has_it():
    (paper,) = re.findall(r'^    title: "(.+)"$', CITATION, re.MULTILINE)
    assert f"*{paper}*" in " ".join((ROOT / "docs" / "mathematics.md").read_text(encoding="utf-8").split())


# Python


def test_supported_pythons_have_no_gap():
    (first,) = minor(PROJECT["requires-python"])
    assert PROJECT["requires-python"] == f">=3.{first}"
    assert supported() == list(range(first, first + len(supported())))


def test_the_tests_run_on_every_supported_python():
    (matrix,) = re.findall(
        r"^ +python-version: \[(.+)\]$", (ROOT / ".github/workflows/tests.yml").read_text(), re.MULTILINE
    )
    assert minor(matrix) == supported()


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_use_supported_pythons(workflow):
    text = workflow.read_text(encoding="utf-8")
    asked = " ".join(re.findall(r"(?:python-version: |container: python:)(.+)$", text, re.MULTILINE))
    assert minor(asked)
    assert set(minor(asked)) <= set(supported())


def test_the_pages_name_the_supported_pythons():
    words = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"Python 3.{supported()[0]} to 3.{supported()[-1]}" in words
    assert f"Python 3.{supported()[0]} or later" in words


# Links, and what is run


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_anchors_are_headings(page):
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]+)#([^)]+)\)", page.read_text(encoding="utf-8")):
        headings = re.findall(r"^#+ (.+)$", (page.parent / target).read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_pages_of_the_project_are_there():
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"} <= {page.name for page in PAGES}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CITATION.cff"):
        assert f"({name})" in readme


def test_extras_that_pages_and_workflows_install_exist():
    texts = [
        path.read_text(encoding="utf-8")
        for path in (*PAGES, *WORKFLOWS, ROOT / ".pre-commit-config.yaml", ROOT / ".ci/run")
    ]
    extras = {
        name for text in texts for found in re.findall(r"\.\[([\w,]+)\][\'\"]", text) for name in found.split(",")
    }
    assert {"dev", "test"} <= extras
    assert extras <= set(PROJECT["optional-dependencies"])


def test_every_form_that_has_a_schema_is_checked():
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (named,) = re.findall(r"ISSUE_TEMPLATE/\{(.+)\}\.yml", run)
    forms = {path.stem for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")}
    assert {*named.split(","), "config"} == forms

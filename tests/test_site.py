"""The pages of the documentation in a real browser; they are built by `sphinx-build -W docs docs/_build`."""

from pathlib import Path

import pytest

from browser import CHROMIUM, Browser

SITE = Path(__file__).parent.parent / "docs" / "_build"
PAGES = sorted(
    path
    for path in SITE.rglob("*.html")
    if not {"_static", "_downloads", "_sources"} & set(path.relative_to(SITE).parts)
)

pytestmark = [
    pytest.mark.skipif(not PAGES, reason="the pages have not been built"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium"),
]


def test_no_page_complains_or_asks_for_the_network():
    with Browser() as browser:
        for page in PAGES:
            browser.open(page)
            assert browser.complaints == [], page
            assert all(request.startswith(("file:", "data:")) for request in browser.requests), page
            assert browser.evaluate("[...document.images].every(image => image.naturalWidth > 0)"), page


@pytest.mark.parametrize("name", ["index.html", "certificates.html", "examples/index.html"])
def test_pages_fit_a_phone(name):
    with Browser() as browser:
        browser.open(SITE / name, width=360, height=740)
        assert browser.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")


def test_every_example_has_a_page():
    examples = Path(__file__).parent.parent / "examples"
    built = {path.stem for path in PAGES}
    assert all(script.stem in built for script in examples.glob("plot_*.py"))

"""The pages of the documentation in a real browser; they are built by `sphinx-build -W docs docs/_build`."""

import re
from pathlib import Path

import pytest

from browser import CHROMIUM, Browser

DOCS = Path(__file__).parent.parent / "docs"
SITE = DOCS / "_build"
PAGES = sorted(
    path
    for path in SITE.rglob("*.html")
    if not {"_static", "_downloads", "_sources"} & set(path.relative_to(SITE).parts)
)
DRAWINGS = sorted([*DOCS.glob("figures/*.svg"), *DOCS.glob("reproduction/*.svg")])
SIZES = {"desktop": (1300, 900), "phone": (390, 840)}
PARTS = 4  # of the pages, for as many processes

pytestmark = [
    pytest.mark.skipif(not PAGES, reason="the pages have not been built"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium"),
]


def look(browser, page, device):
    """Check what the browser says of a page."""
    browser.resize(*SIZES[device])
    found = browser.layout()
    browser.keep("site", *page.relative_to(SITE).with_suffix("").parts, device)
    said = f"{page.name}, {device}"
    assert found["n_texts"] > 0, said
    assert found["wide"] <= 1, said
    assert found["overlaps"] == [], said
    assert found["cut"] == found["broken"] == [], said
    assert device == "phone" or found["clipped"] == [], said  # on a phone they scroll


@pytest.mark.parametrize("part", range(PARTS))
def test_pages_fit_their_windows_and_nothing_is_written_over(part):
    with Browser() as browser:
        for page in PAGES[part::PARTS]:
            browser.open(page, *SIZES["desktop"])
            look(browser, page, "desktop")
            look(browser, page, "phone")
            browser.prefer(dark=True)
            paper = browser.evaluate("getComputedStyle(document.body).backgroundColor")
            assert max(map(int, re.findall(r"\d+", paper)[:3])) < 80, page
            browser.keep("site", *page.relative_to(SITE).with_suffix("").parts, "dark")
            assert browser.complaints == [], page
            assert all(request.startswith(("file:", "data:")) for request in browser.requests), page


def test_drawings_have_no_text_over_text():
    with Browser() as browser:
        for drawing in DRAWINGS:
            browser.open(drawing)
            assert browser.layout()["overlaps"] == [], drawing


def test_what_is_wrong_is_found(tmp_path):
    """The checks see text over text, a page that is too wide, texts and blocks that are cut off and a picture that is missing."""
    page = tmp_path / "page.html"
    page.write_text(
        "<!doctype html><p style='position:absolute;top:20px;left:0'>one text</p>"
        "<p style='position:absolute;top:22px;left:4px'>another</p>"
        "<pre style='width:40px;overflow:auto;margin-top:90px'>a line that is longer</pre>"
        "<div style='width:3000px'>wide</div><img src='none.png'>"
        "<div style='width:40px;overflow:hidden;white-space:nowrap'>goes on</div>"
    )
    with Browser() as browser:
        browser.open(page, *SIZES["desktop"])
        found = browser.layout()
    assert found["overlaps"] == ['"one text" and "another"']
    assert found["wide"] > 1000
    assert found["cut"] == ["goes on"]
    assert len(found["clipped"]) == len(found["broken"]) == 1


def test_every_example_has_a_page():
    built = {path.stem for path in PAGES}
    assert all(script.stem in built for script in (DOCS.parent / "examples").glob("plot_*.py"))


def test_what_pages_link_to_is_there():
    for name in ("peers.csv", "reproduction/page.html", "reproduction/results.csv"):
        assert (SITE / name).read_bytes() == (DOCS / name).read_bytes()

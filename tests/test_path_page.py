"""The page of a path: what it says of each k and lam, and how it works in a real browser, by keyboard and on a phone."""

import json
import re
from html import unescape

import numpy as np
import pandas as pd
import pytest

from browser import CHROMIUM, Browser
from command import refused, run
from diht import SparseClassifierCV, sparse_path
from diht.numerics.digits import shown
from diht.report.path import Known, path_page, point_scores
from diht.report.text import printable

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 12))
U = X[:, 2] - 0.5 * X[:, 7] + 0.4 * X[:, 5] + 0.2 * RNG.normal(size=120)
NAMES = ["<script>alert(1)</script>", "名" * 20, ("long " * 12).strip(), "a&b", *(f"x{j}" for j in range(4, 12))]
FRAME = pd.DataFrame(X, columns=NAMES)
WORDS = np.array(["few", "many", "so"])[np.digitize(U, [-0.5, 0.5])]

PATHS = {
    "regression": (lambda: sparse_path(FRAME, U, ks=range(1, 8), lams=[0.01, 0.1, 1.0]), U),
    "two classes": (lambda: sparse_path(FRAME, U > 0, ks=[1, 2, 5, 12], lams=0.05, loss="logistic"), U > 0),
    "classes": (lambda: sparse_path(FRAME, WORDS, ks=[1, 2, 3], lams=0.05, loss="logistic"), WORDS),
    "hinge": (lambda: sparse_path(FRAME, WORDS, ks=[1, 2], lams=0.1, loss="hinge"), WORDS),
    "targets": (lambda: sparse_path(X, np.c_[U, X[:, 7]], ks=[1, 2], lams=0.1), np.c_[U, X[:, 7]]),
    "groups": (lambda: sparse_path(X, U, ks=[1, 2], groups=np.arange(12) // 3, keep=[0], bounds=(-1, 1)), U),
    "one": (lambda: sparse_path(X, U, ks=[3], fit_intercept=False, standardize=False), U),
}


@pytest.fixture(scope="module", params=PATHS, ids=list(PATHS))
def page(request, tmp_path_factory):
    make, y = PATHS[request.param]
    path, file = make(), tmp_path_factory.mktemp("path") / request.param / "path.html"
    file.parent.mkdir()
    path.report(file, FRAME if path.feature_names[0] != "x0" else X, y)
    return path, y, file


def panels(html):
    """Text of each panel by its places of k and lam."""
    parts = re.findall(r'<section class="point" data-point="([\d,]+)">(.*?)</section>', html, re.DOTALL)
    return {tuple(map(int, at.split(","))): re.sub(r"<[^>]*>", " ", part) for at, part in parts}


def test_each_point_is_on_it(page):
    path, y, file = page
    html = file.read_text(encoding="utf-8")
    assert list(file.parent.iterdir()) == [file]
    assert not re.search(r"<(?:img|link|iframe)|\son\w+=\"|@import|url\(|https?://(?!www\.w3\.org)|<script>alert", html)
    found = panels(html)
    assert len(found) == len(path)
    scored = [point_scores(path, point, Known(X, y)) for point in path]
    for point, figures in zip(path, scored, strict=True):
        words = found[path.ks.index(point.k), path.lams.index(point.lam)]
        figure = shown(point.objective, point.lower_bound)
        assert figure.objective in words
        assert figure.lower_bound in words
        for value in np.atleast_2d(point.coef)[np.atleast_2d(point.coef) != 0]:
            assert f"{value:.5g}" in words
        inside = ", ".join(printable(path.feature_names[j], 40) for j in point.certificate.required) or "none"
        assert f"Provably in: {inside}." in unescape(words)
        for value in figures.values():
            assert f"{value:.4g}" in words
        if path.loss.is_likelihood:
            assert f"{path.criterion('bic')[list(path).index(point)]:.6g}" in words


def test_scores_are_those_of_predictions():
    """Against the estimator that has the same models."""
    model = SparseClassifierCV(ks=[1, 2, 3], lams=0.05, cv=3).fit(FRAME, WORDS)
    point = model.path_.point(model.best_k_)
    found = point_scores(model.path_, point, Known(X, WORDS))
    assert found["accuracy"] == pytest.approx(model.score(FRAME, WORDS))
    p = model.predict_proba(FRAME)[np.arange(120), np.searchsorted(model.classes_, WORDS)]
    assert found["log loss"] == pytest.approx(-np.log(p).mean(), rel=1e-6)
    counts = sparse_path(X, np.round(np.exp(U)), ks=[2], loss="poisson")
    u = np.exp(X @ counts[0].coef + counts[0].intercept)
    assert point_scores(counts, counts[0], Known(X, U))["RMSE"] == pytest.approx(np.sqrt(np.square(U - u).mean()))


def test_a_path_that_was_stopped_has_a_page():
    path = sparse_path(X, U, ks=[1, 2, 3], lams=[0.1, 1.0], callback=lambda point: point.k == 2 and point.lam == 0.1)
    assert len(path) == 5
    assert path_page(path).count("This one was not solved.") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, None), "X and y must be given together"),
        ((X[:, :3], U), "X must have the 12 columns of the path, got 3"),
        ((X, U[:5]), r"y must have shape \(120,\), got shape \(5,\)"),
        ((X, np.full(120, "a")), "y must hold finite numbers"),
    ],
)
def test_bad_data(tmp_path, arguments, message):
    path = sparse_path(X, U, ks=[1])
    with pytest.raises(ValueError, match=message):
        path.report(tmp_path / "path.html", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_pages_of_tables_speak_of_their_columns(tmp_path):
    table = pd.DataFrame({"town": np.resize([*"abcd"], 120), "x": X[:, 0], "pay": np.where(X[:, 1] > 0, "a b", "c")})
    y = U + 3 * (table["town"] == "b") + 2 * table["x"]
    path = sparse_path(table, y, ks=[1, 2], lams=0.01, solver="branch")
    path.report(tmp_path / "path.html", table, y)
    html = (tmp_path / "path.html").read_text(encoding="utf-8")
    words = re.sub(r"<style.*?</style>|<script.*?</script>|<[^>]*>", " ", html, flags=re.DOTALL)
    assert "group" not in words
    assert "at most 2 features" in words
    assert "Provably in: town, x." in words
    assert "120 samples, 3 features" in repr(path)
    assert path.to_frame()["n_features"].tolist() == [1, 2]
    assert panels(html)[1, 0].count("town=") == 4
    chosen = SparseClassifierCV(ks=[1, 2], lams=0.05, cv=2).fit(table, y > 0)
    assert chosen.path_.columns(chosen.path_[1].support) == ["town", "x"]
    labelled = sparse_path(table, y, ks=[1], groups=[0, 1, 1])
    assert labelled.counted == "groups"
    assert labelled.report(tmp_path / "path.html", table[["x", "pay", "town"]], y) is None


# The command


def test_command(tmp_path, capsys):
    FRAME.rename(columns={NAMES[2]: "long"}).assign(target=U).to_csv(tmp_path / "data.csv", index=False)
    out = tmp_path / "out"
    assert run("fit", tmp_path / "data.csv", "--k", "1:3", "--lam", "0.1", "--out", out) == 0
    text = capsys.readouterr().out
    assert "at most 1 to 3 features, lam = 0.1, standardised columns" in " ".join(text.split())
    assert "Path of 3 models: squared loss, lam = 0.1, 120 samples, 12 features" in text
    assert text.splitlines()[-1] == f"Report:  {out / 'path.html'}"
    assert len(panels((out / "path.html").read_text(encoding="utf-8"))) == 3
    assert [file.name for file in out.iterdir()] == ["path.html"]
    assert run("fit", tmp_path / "data.csv", "--k", "11:40", "--out", out) == 0
    assert "--k 11:40 is more than the 12 features" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--k", "3:1"], "argument --k: must be a whole number of at least 3, got '1'"),
        (["--k", "0:4"], "argument --k: must be a whole number of at least 1, got '0'"),
        (["--k", ":"], "argument --k: must be a whole number of at least 1, got ''"),
        (["--k", "1:3", "--max-iter", "5"], "argument --max-iter: cannot be used with several k"),
    ],
)
def test_command_complains_in_one_line(tmp_path, capsys, arguments, message):
    error = refused(capsys, "fit", *arguments, "--out", tmp_path / "out")
    assert message in error
    assert error.count("\n") == 1


# In a browser

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
SHOWN = "[...document.querySelectorAll('[data-point]')].filter(p => p.checkVisibility()).map(p => p.dataset.point)"


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1300, True)], ids=["390-light", "1300-dark"])
def test_in_a_browser(browser, page, width, dark):
    path, _, file = page
    browser.open(file, width=width, dark=dark)
    assert len(browser.evaluate(SHOWN)) == 1
    for i in (0, len(path.ks) - 1):
        browser.evaluate(
            f"document.getElementById('k').value = {i}; document.getElementById('k').dispatchEvent(new Event('input'))"
        )
        assert browser.evaluate(SHOWN)[0].startswith(f"{i},")
        assert browser.evaluate("document.scrollingElement.scrollWidth") <= width
        assert browser.overlaps() == []
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("document.scrollingElement.scrollWidth") <= width
    browser.keep("path", file.parent.name, width, "dark" if dark else "light")
    touch = (
        "[...document.querySelectorAll('.controls input, .controls button')].map(e => e.getBoundingClientRect().height)"
    )
    assert min(browser.evaluate(touch)) >= 32
    assert [url for url in browser.requests if not url.startswith("file:")] == []
    assert browser.complaints == []


@needs_browser
def test_keys_and_buttons_move_it(browser, tmp_path):
    path = PATHS["regression"][0]()
    path.report(tmp_path / "path.html")
    browser.open(tmp_path / "path.html")
    browser.evaluate("document.getElementById('k').focus()")
    browser.key("Home", 36)
    assert browser.evaluate(SHOWN) == ["0,1"]
    browser.key("ArrowRight", 39)
    browser.key("ArrowRight", 39)
    assert browser.evaluate(SHOWN) == ["2,1"]
    assert browser.evaluate("document.getElementById('k').getAttribute('aria-valuetext')") == "at most 3"
    assert browser.evaluate("document.getElementById('k-now').textContent") == "at most 3"
    browser.evaluate("document.getElementById('lam').focus()")
    browser.key("End", 35)
    assert browser.evaluate(SHOWN) == ["2,2"]
    assert browser.evaluate("document.querySelector('[data-lam=\"2\"]').checkVisibility()")
    assert not browser.evaluate("document.querySelector('[data-lam=\"0\"]').checkVisibility()")
    browser.evaluate("document.querySelector('.step button').click()")
    assert browser.evaluate(SHOWN) == ["1,2"]
    x = browser.evaluate("+document.querySelector('[data-lam=\"2\"] .cursor').getAttribute('x1')")
    places = json.loads(browser.evaluate("document.querySelector('[data-lam=\"2\"] svg').dataset.x"))
    assert x == places["2"]
    mark = browser.evaluate(
        "document.querySelectorAll('[data-lam=\"2\"] svg .series .mark')[1].transform.baseVal.consolidate().matrix.e"
    )
    assert x == pytest.approx(mark, abs=0.1)


@needs_browser
def test_without_scripts_everything_is_there(browser, tmp_path):
    PATHS["two classes"][0]().report(tmp_path / "path.html")
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(tmp_path / "path.html")
        browser.call("DOM.enable")
        root = browser.call("DOM.getDocument")["root"]["nodeId"]
        nodes = browser.call("DOM.querySelectorAll", nodeId=root, selector="[data-point]")["nodeIds"]
        heights = [browser.call("DOM.getBoxModel", nodeId=node)["model"]["height"] for node in nodes]
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert len(heights) == 4
    assert min(heights) > 100

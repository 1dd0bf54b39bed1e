"""The report on a model: what it says, what it escapes, and how it looks in a real browser."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import diht
from browser import CHROMIUM, Browser
from diht import SparseClassifier, SparseClassifierCV, SparseRegressor, SparseRegressorCV
from diht.cli import main
from diht.numerics.digits import rounded_down
from diht.report.page import Predictions, Story, page

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 12))
U = X[:, 2] - 0.5 * X[:, 7] + 0.2 * RNG.normal(size=120)
EVIL = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a&b",
    "\x1b[31m\n",
    "'",
    "名" * 40,
    ("long " * 30).strip(),
]
NAMES = EVIL + [f"x{j}" for j in range(len(EVIL), 12)]
FRAME = pd.DataFrame(X, columns=NAMES)[["x7", "x8", "x9", "x10", "x11", *EVIL]]
WORDS = np.array(["<b>few</b>", "many", "so"])[np.digitize(U, [-0.5, 0.5])]

TARGETS = pd.DataFrame({EVIL[0]: U, "long " * 20: X[:, 7] + U, "c": U**2})

MODELS = {
    "regression": (lambda: SparseRegressor(k=3, lam=0.01).fit(X, U), X, U),
    "evil names": (lambda: SparseRegressor(k=9, lam=0.01, standardize=True, keep=EVIL[:2]).fit(FRAME, U), FRAME, U),
    "classes": (lambda: SparseClassifier(k=2, lam=0.01).fit(FRAME, WORDS), FRAME, WORDS),
    "two classes": (lambda: SparseClassifier(k=4, lam=1e-4, standardize=True).fit(X, U > 0), X, U > 0),
    "hinge": (lambda: SparseClassifier(k=2, loss="hinge").fit(X, np.sign(U)), X, np.sign(U)),
    "cv": (lambda: SparseRegressorCV(ks=[1, 2, 3, 5], lams=[0.01, 0.1], cv=3).fit(FRAME, U), FRAME, U),
    "classes, bic": (lambda: SparseClassifierCV(ks=[1, 2], lams=0.1, criterion="bic").fit(X, WORDS), X, WORDS),
    "shared": (lambda: SparseClassifier(k=3, lam=0.01, loss="multinomial", standardize=True).fit(FRAME, WORDS), FRAME, WORDS),
    "ovr": (lambda: SparseClassifierCV(ks=[1, 2], lams=0.1, cv=2, multiclass="ovr").fit(FRAME, WORDS), FRAME, WORDS),
    "shared hinge": (lambda: SparseClassifier(k=2, lam=0.1, loss="hinge").fit(X, WORDS), X, WORDS),
    "targets": (lambda: SparseRegressorCV(ks=[1, 2, 3], lams=0.1, cv=2).fit(FRAME, TARGETS), FRAME, TARGETS),
    "counts": (lambda: SparseRegressor(k=2, loss="poisson").fit(X, np.round(np.exp(U))), X, np.round(np.exp(U))),
    "nothing": (lambda: SparseRegressor(k=1, lam=0.1).fit(np.ones((9, 2)), U[:9]), np.ones((9, 2)), U[:9]),
}  # fmt: skip


@pytest.fixture(scope="module", params=MODELS, ids=list(MODELS))
def report(request, tmp_path_factory):
    """A model, its data, and its page."""
    fit, data, y = MODELS[request.param]
    path = tmp_path_factory.mktemp("report") / request.param / "report.html"
    path.parent.mkdir()
    model = fit()
    model.report(path, data, y)
    return model, data, y, path


def text_of(html):
    return re.sub(r"<[^>]*>", " ", html)


def test_it_needs_nothing_else_and_escapes(report):
    model, _, _, path = report
    html = path.read_text(encoding="utf-8")
    assert list(path.parent.iterdir()) == [path]
    assert not re.search(r"<(?:script|img|link|iframe|b>few)|\son\w+=\"|@import|url\(|https?://(?!www\.w3\.org)", html)
    assert "\x1b" not in html
    for name in model.get_feature_names_out()[:20] if hasattr(model, "feature_names_in_") else ():
        if name == EVIL[0]:
            assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_it_says_what_was_fitted(report):
    model, data, _, path = report
    words = text_of(path.read_text(encoding="utf-8"))
    assert f"A model with {len(model.support_)} of {data.shape[1]} features" in words
    assert f"{len(data)} samples, {data.shape[1]} features" in words
    assert "best possible" in words
    rows = np.atleast_2d(model.coef_)
    for value in rows[rows != 0][:20]:
        assert f"{value:.5g}" in words
    for cost in [c for c in np.ravel(getattr(model.certificate_, "drop_cost", [])) if 0 < c < np.inf]:
        assert "required" in words
        assert rounded_down(cost, 3) in words


def test_figures_of_a_regression():
    tested = Predictions(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 4.0]), None, "here")
    html = page(SparseRegressor(k=1).fit(X, U)._saved(), Story(tested=tested))
    assert "<b>0.5</b>" in html  # R²
    assert f"<b>{np.sqrt(1 / 3):.4g}</b>" in html
    assert "3 samples (here)" in html
    assert html.count("<svg") == 2


def test_figures_of_several_targets():
    model = SparseRegressor(k=2, lam=0.1).fit(X, np.column_stack([U, X[:, 7]]))
    y = np.array([[1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])
    tested = Predictions(y, np.array([[1.0, 6.0], [2.0, 6.0], [4.0, 6.0]]), None, "here")
    html = page(model._saved(), Story(tested=tested, results=[model.result_]))
    assert re.findall(r"<b>([-\d.]+)</b><span>R²", html) == ["0.5", "0"]
    assert [text_of(part) for part in re.findall(r"<h3>.*?</h3>", html)] == [
        " target &quot;y0&quot; ",
        " target &quot;y1&quot; ",
    ] * 2
    assert "at most 2 features" in html
    assert html.count("lower bound: no model allowed is below") == 1


def test_words_of_classes_on_a_page():
    shared, apart = (
        text_of(page(SparseClassifier(k=2, lam=0.1, loss="hinge", multiclass=kind).fit(X, WORDS)._saved(), Story()))
        for kind in ("shared", "ovr")
    )
    assert "possible with at most 2 features:" in shared.replace(", up to", ":")
    assert "average hinge loss over the data, summed over the 3 classes, plus" in shared
    assert "at most 2 features a class" in apart
    assert "one model for each class against the rest" in apart
    assert "summed over" not in apart


def test_figures_of_a_classifier():
    y = np.array([False] * 6 + [True] * 4)
    p = np.repeat([0.15, 0.25, 0.85], [5, 3, 2])
    tested = Predictions(y, p > 0.5, np.column_stack([1 - p, p]), "here")
    html = page(SparseClassifier(k=1).fit(X, U > 0)._saved(), Story(tested=tested))
    assert "<b>80%</b>" in html
    assert "<b>60%</b>" in html
    cells = re.findall(r"<td(?: class=right)?>(\d+)</td>", html.split('class="confusion"')[1].split("</table>")[0])
    assert cells == ["6", "0", "2", "2"]
    tips = re.findall(r"<title>True, predicted probability of True, % ([\d.]+): ([\d.]+)%</title>", html)
    assert [(float(x), float(v)) for x, v in tips] == [(15.0, 0.0), (25.0, 66.7), (85.0, 100.0)]


def test_near_ties_are_near_and_others():
    model = SparseRegressor(k=2, lam=0.01).fit(np.column_stack([X, X[:, 2] + 1e-3 * X[:, 0]]), U)
    html = page(model._saved(), Story.of(model))
    rows = re.findall(r"<tr>(.*?)</tr>", html.split('class="ties"')[1])
    cells = [re.findall("<td>(.*?)</td>", row) for row in rows[1:]]
    assert [cell for cell in cells if cell[1:] in (["feature 2", "feature 12"], ["feature 12", "feature 2"])]
    assert all(float(cell[0].strip("+%")) <= 10 for cell in cells)


def test_wide_gaps_are_not_praised():
    saved = SparseRegressor(k=2, lam=0.01).fit(X, U)._saved()
    equation = saved.equations[0]
    open_figures = replace(
        equation.figures, lower_bound=0.5 * equation.figures.objective, status=diht.result.Status.STALLED
    )
    wide = replace(saved, equations=(replace(equation, figures=open_figures),))
    assert "wide gap</span>" in page(wide, Story())
    assert "this has not been proved" in page(wide, Story())
    narrow = replace(open_figures, lower_bound=0.98 * equation.figures.objective)
    assert "within 2%</span>" in page(replace(saved, equations=(replace(equation, figures=narrow),)), Story())
    assert "✓ best possible</span>" in page(saved, Story())


def test_a_model_that_was_read_has_a_report_too(tmp_path):
    SparseClassifier(k=2).fit(FRAME, WORDS).to_json(tmp_path / "model.json")
    diht.load_model(tmp_path / "model.json").report(tmp_path / "report.html", FRAME, WORDS)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Calibration" in html
    assert "How the proof came about" not in html


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, None), "X and y must be given together"),
        ((None, U), "X and y must be given together"),
        ((X, U[:5]), "y must hold one target for each of the 120 samples"),
        ((X, np.full(120, "a")), "y must hold finite numbers"),
        ((X, np.where(U > 0, U, np.nan)), "y must hold finite numbers"),
        ((X, np.column_stack([U, U])), "y must hold one target for each of the 120 samples"),
    ],
)
def test_bad_data(tmp_path, arguments, message):
    model = SparseRegressor(k=2).fit(X, U)
    with pytest.raises(ValueError, match=message):
        model.report(tmp_path / "report.html", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_offsets(tmp_path):
    shift = np.where(X[:, 0] > 0, 5.0, 0.0)
    model = SparseRegressor(k=2, lam=1e-3).fit(X, U + shift, offset=shift)
    for offset, right in ((shift, True), (None, False)):
        model.report(tmp_path / "report.html", X, U + shift, offset)
        r2 = float(re.search(r"<b>([-\d.]+)</b><span>R²", (tmp_path / "report.html").read_text(encoding="utf-8"))[1])
        assert (r2 > 0.9) == right


def test_unknown_classes(tmp_path):
    with pytest.raises(ValueError, match="y holds 'other', which is not among"):
        SparseClassifier(k=2).fit(X, WORDS).report(tmp_path / "r.html", X[:1], ["other"])


# the command


@pytest.fixture(scope="module")
def plain_model():
    frame = FRAME.rename(columns={EVIL[3]: "plain"}).assign(target=WORDS)
    return frame, SparseClassifier(k=2).fit(frame.drop(columns="target"), WORDS)


@pytest.fixture
def files(plain_model, tmp_path):
    frame, model = plain_model
    frame.to_csv(tmp_path / "data.csv", index=False)
    model.to_json(tmp_path / "model.json")
    return tmp_path


def test_command(files, capsys):
    assert main(["report", str(files / "model.json"), str(files / "data.csv"), "--target", "target"]) == 0
    assert capsys.readouterr().out == f"Written: {files / 'report.html'}\n"
    html = (files / "report.html").read_text(encoding="utf-8")
    assert "120 samples (data.csv)" in html
    assert "Calibration" in html
    assert main(["report", str(files / "model.json"), "--out", str(files / "plain.html")]) == 0
    assert "Calibration" not in (files / "plain.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.json"], "none.json: no such file"),
        (["model.json", "none.csv"], "none.csv: no such file"),
        (["model.json", "--target", "target"], "argument --target: 'target' needs DATA"),
        (["data.csv"], "not a model file"),
        (["model.json", "other.csv", "--target", "target"], "other.csv: y holds 'else', which is not among"),
        (["model.json", "few.csv", "--target", "target"], "few.csv: no column"),
    ],
)
def test_command_complains_in_one_line(files, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(files)
    data = pd.read_csv("data.csv")
    data.assign(target="else").to_csv("other.csv", index=False)
    data[["x8", "target"]].to_csv("few.csv", index=False)
    assert main(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (files / "report.html").exists()


def test_a_regression_by_file(tmp_path, capsys):
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(12)]).assign(y=U)
    frame.to_csv(tmp_path / "data.csv", index=False)
    SparseRegressor(k=2).fit(frame.drop(columns="y"), U).to_json(tmp_path / "model.json")
    assert main(["report", str(tmp_path / "model.json"), str(tmp_path / "data.csv")]) == 0
    assert "Residuals" in (tmp_path / "report.html").read_text(encoding="utf-8")
    capsys.readouterr()


def test_several_targets_by_file(tmp_path, capsys):
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(12)]).assign(a=U, b=X[:, 7])
    frame.to_csv(tmp_path / "data.csv", index=False)
    SparseRegressor(k=2).fit(frame.drop(columns=["a", "b"]), frame[["a", "b"]]).to_json(tmp_path / "model.json")
    assert main(["report", str(tmp_path / "model.json"), str(tmp_path / "data.csv")]) == 0
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count("R², the share") == 2
    assert "&quot;a&quot;, &quot;b&quot;" in html
    capsys.readouterr()


# in a browser

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


@needs_browser
@pytest.mark.parametrize(("width", "dark"), [(360, False), (1280, True)], ids=["360-light", "1280-dark"])
def test_in_a_browser(browser, report, width, dark):
    path = report[-1]
    browser.open(path, width=width, dark=dark)
    assert browser.evaluate("document.scrollingElement.scrollWidth") <= width
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.evaluate("document.scrollingElement.scrollWidth") <= width
    boxes = browser.evaluate(
        "[...document.querySelectorAll('svg.chart')].map(s => [s.getBBox().width, s.getBBox().height, "
        "s.querySelectorAll('.series .mark').length, s.querySelectorAll('text').length, "
        "innerWidth + 1 - s.getBoundingClientRect().right])"
    )
    assert len(boxes) == path.read_text(encoding="utf-8").count("<svg") > 0
    assert all(min(box) > 0 for box in boxes)
    outside = (
        "[...document.querySelectorAll('svg.chart text')].filter(t => { const a = t.getBoundingClientRect(), "
        "b = t.closest('svg').getBoundingClientRect(); return a.left < b.left - 1 || a.right > b.right + 1 })"
        ".map(t => t.textContent)"
    )
    assert browser.evaluate(outside) == []
    assert browser.overlaps() == []
    browser.keep("report", path.parent.name, width, "dark" if dark else "light")
    assert [url for url in browser.requests if not url.startswith("file:")] == []
    assert browser.complaints == []


@needs_browser
def test_names_are_shown_as_they_are(browser, tmp_path):
    """What looks like a script is text: nothing runs, and the reader sees the name."""
    model = SparseRegressor(k=12, lam=0.01).fit(FRAME, U)
    model.report(tmp_path / "report.html", FRAME, U)
    browser.open(tmp_path / "report.html")
    shown = browser.evaluate("document.querySelector('.features').innerText")
    for name in EVIL[:3]:
        assert name in shown
    assert browser.evaluate("document.scripts.length + document.images.length") == 0


@needs_browser
def test_it_can_be_printed(browser, tmp_path):
    """On paper it is light, and what unfolds is unfolded."""
    SparseRegressor(k=40, lam=0.1, solver="iht").fit(RNG.normal(size=(60, 50)), U[:60]).report(tmp_path / "report.html")
    browser.open(tmp_path / "report.html", dark=True)
    browser.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "light"}]
    )
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate(
        "[...document.querySelectorAll('details td')].every(c => c.getBoundingClientRect().height > 0)"
    )
    browser.call("Emulation.setEmulatedMedia", media="", features=[])

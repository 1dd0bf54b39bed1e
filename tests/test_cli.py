"""The command line: what it says, what it writes, how it refuses, how it stops."""

import csv
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from sklearn.exceptions import ConvergenceWarning

from command import refused, run
from diht import SparseClassifier, SparseRegressor, __version__
from diht.datasets import load_breast_cancer
from diht.numerics.digits import shown
from diht.numerics.interrupt import Interrupt
from diht.persistence.schema import read_model

RNG = np.random.default_rng(7)
N, D = 60, 6
X = RNG.normal(size=(N, D)) * [1, 10, 0.1, 1, 5, 1]
SCORES = X[:, 1] / 10 - X[:, 3] + 0.1 * RNG.normal(size=N)
TARGETS = np.column_stack([SCORES, X[:, 1] / 10 + 0.3 * X[:, 5] + 0.1 * RNG.normal(size=N)])
NAMES = ["age", "bmi", "dose", "risk", "weight, kg", "noise"]
QUICK = ["--lam", "0.1", "--k", "2", "--max-iter", "60"]


@contextmanager
def quiet():
    """Do without scikit-learn's warning that a limit on iterations was reached."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def write_csv(path, y, columns=X, names=NAMES, target="outcome"):
    with open(path, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*names, target])
        writer.writerows([*row, label] for row, label in zip(columns.tolist(), y, strict=True))
    return path


@pytest.fixture(autouse=True, scope="module")
def no_pictures():
    """Drawing takes most of the time of a small fit; tests/test_report.py looks at the pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diht.commands.fit.to_png", lambda figure: b"PNG")
        yield patch


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small files: a regression, two classes, three classes, two targets, sparse data."""
    folder = tmp_path_factory.mktemp("data")
    write_csv(folder / "numbers.csv", SCORES.tolist())
    write_csv(folder / "classes.csv", np.where(SCORES > 0, "sick", "well"))
    write_csv(folder / "three.csv", np.digitize(SCORES, [-0.7, 0.7]))
    sparse = np.where(np.abs(X) > 0.5, X, 0.0)
    sparse[:, -1] = 1.0
    dump_svmlight_file(sparse, SCORES, str(folder / "numbers.svm"), zero_based=False)
    np.savez(folder / "single.npz", X=X.astype(np.float32), y=SCORES)
    np.savez(folder / "targets.npz", X=X, y=TARGETS)
    write_csv(folder / "targets.csv", TARGETS[:, 1].tolist(), np.c_[TARGETS[:, 0], X], ["dose, mg", *NAMES], "effect")
    (folder / "mine.csv").write_text("name,coefficient\nbmi,0.09\nrisk,-0.9\nintercept,0.01\n")
    return folder


@pytest.fixture(scope="module")
def models(data):
    """The model files of a fit to each of them."""
    paths = {}
    for file in ("numbers.csv", "classes.csv", "three.csv", "numbers.svm", "single.npz", "targets.csv", "targets.npz"):
        out = data / f"report-{file}"
        targets = ["--target", "effect", "--target", "dose, mg"] if file == "targets.csv" else []
        assert run("fit", data / file, *QUICK, *targets, "--out", out) == 0
        paths[file] = out / "model.json"
    return paths


# what a fit says and writes


def test_fit_without_a_file(tmp_path, capsys):
    out = tmp_path / "deep" / "report"
    assert run("fit", "--k", "3", "--lam", "0.5", "--tol", "0.01", "--max-iter", "100", "--out", out) == 0
    text, err = capsys.readouterr()
    assert err == ""
    assert "569 samples, 30 features" in text
    assert "benign (357), malignant (212)" in text
    assert "logistic loss (chosen: the target names 2 classes)" in text
    assert 'speaks for "malignant"' in text
    for word in ("objective", "lower bound", "gap", "best possible with at most 3 features"):
        assert word in " ".join(text.split())
    assert sorted(os.listdir(out)) == ["coefficients.png", "convergence.png", "model.json", "report.html"]
    model = read_model(str(out / "model.json"))
    assert model.classes == ("benign", "malignant")
    assert model.standardize
    assert model.data.file == "scikit-learn: breast_cancer"
    names = load_breast_cancer().feature_names
    for j in model.support:
        assert re.search(rf"^  {re.escape(names[j])} +-?\d", text, re.MULTILINE)


def test_fit_gives_the_estimators_model(data, models):
    estimator = SparseRegressor(k=2, lam=0.1, standardize=True, max_iter=60, random_state=0)
    with quiet():
        estimator.fit(X, SCORES)
    model = read_model(str(models["numbers.csv"]))
    coef = np.zeros(D)
    coef[model.equations[0].indices] = model.equations[0].values
    np.testing.assert_allclose(coef, estimator.coef_, rtol=1e-12)
    assert model.equations[0].figures.objective == pytest.approx(estimator.objective_, rel=1e-12)
    assert model.equations[0].figures.scaled


def test_figures_agree_with_the_file(data, capsys, tmp_path):
    assert run("fit", data / "numbers.csv", *QUICK, "--out", tmp_path) == 0
    text = capsys.readouterr().out
    figures = read_model(str(tmp_path / "model.json")).equations[0].figures
    assert f"objective    {shown(figures.objective, figures.lower_bound).objective:>14}" in text
    assert f"lower bound  {shown(figures.objective, figures.lower_bound).lower_bound:>14}" in text
    assert figures.lower_bound <= figures.objective


def test_choice_of_loss_is_said(data, capsys, tmp_path):
    run("fit", data / "numbers.csv", *QUICK, "--out", tmp_path)
    assert "squared loss (chosen: the target has 60 different numbers)" in capsys.readouterr().out
    run("fit", data / "three.csv", *QUICK, "--out", tmp_path)
    assert (
        "multinomial loss (chosen: the target has 3 values; --loss squared for regression)" in capsys.readouterr().out
    )
    run("fit", data / "three.csv", *QUICK, "--out", tmp_path, "--loss", "huber")
    assert "huber loss; at most 2 features" in capsys.readouterr().out
    assert read_model(str(tmp_path / "model.json")).classes is None


def test_standardize(data, capsys, tmp_path):
    run("fit", data / "numbers.csv", *QUICK, "--out", tmp_path, "--no-standardize", "--no-intercept")
    text = capsys.readouterr().out
    assert "standardised" not in text
    assert "per std. dev." not in text
    assert "(intercept)" not in text
    model = read_model(str(tmp_path / "model.json"))
    assert not model.standardize
    assert not model.fit_intercept
    for flag, standardize in (((), True), (("--standardize",), True), (("--no-standardize",), False)):
        run("fit", data / "numbers.svm", *QUICK, "--out", tmp_path, *flag)
        assert read_model(str(tmp_path / "model.json")).standardize is standardize


@pytest.mark.parametrize(("options", "words"), [([], "features"), (["--multiclass", "ovr"], "features a class")])
def test_several_classes_have_a_table_each(data, capsys, tmp_path, options, words):
    assert run("fit", data / "three.csv", *QUICK, *options, "--out", tmp_path) == 0
    text = " ".join(capsys.readouterr().out.split())
    for label in range(3):
        assert f"Selected features for class {label}: " in text
    assert f"at most 2 {words}, lam = 0.1" in text
    assert f"possible with at most 2 {words}" in text
    model = read_model(str(tmp_path / "model.json"))
    assert len(model.equations) == 3
    assert len(model.certificates) == (3 if options else 1)
    assert len(model.support) <= (6 if options else 2)
    estimator = SparseClassifier(
        k=2, lam=0.1, max_iter=60, random_state=0, multiclass=options[1] if options else "shared"
    )
    with quiet():
        estimator.fit(X, np.digitize(SCORES, [-0.7, 0.7]))
    np.testing.assert_allclose([each.objective for each in model.certificates], estimator.objective_, rtol=1e-12)
    assert run("certify", tmp_path / "model.json", data / "three.csv", "--exact", "--quiet") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"at most 2 {words}, lam = 0.1" in text
    assert ("Class 2: what is proved" in text) == bool(options)
    assert ("(for the worst of the classes)" in text) == bool(options)


@pytest.mark.parametrize("options", [["--exact"], ["--solver", "htp"], ["--solver", "relaxed"]])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_methods_of_several_classes(data, tmp_path, capsys, loss, options):
    assert run("fit", data / "three.csv", "--lam", "0.1", "--k", "2", "--loss", loss, *options, "--out", tmp_path) == 0
    model = read_model(str(tmp_path / "model.json"))
    assert model.loss.name == {"logistic": "multinomial"}.get(loss, loss)
    assert model.shared
    assert options[0] != "--exact" or model.worst.status == "optimal"
    summed = "average squared hinge loss, summed over the 3 classes, plus ridge" in capsys.readouterr().out
    assert summed == (loss == "squared_hinge")


def test_several_targets_share_features(data, models, capsys, tmp_path):
    assert run("fit", data / "targets.csv", *QUICK, "--target", "effect", "--target", "0", "--out", tmp_path) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert '60 samples, 6 features, targets "effect", "dose, mg"' in text
    assert "squared loss (chosen: there are 2 targets); at most 2 features" in text
    assert 'Selected features for target "dose, mg": 2 of 6' in text
    assert "average squared loss, summed over the 2 targets, plus ridge" in text
    model = read_model(str(tmp_path / "model.json"))
    assert model.targets == ("effect", "dose, mg")
    assert len(model.support) == 2
    estimator = SparseRegressor(k=2, lam=0.1, max_iter=60, random_state=0)
    with quiet():
        estimator.fit(X, TARGETS[:, ::-1])
    assert model.certificates[0].objective == pytest.approx(estimator.objective_, rel=1e-9)
    for file, names in (("targets.csv", ("effect", "dose, mg")), ("targets.npz", ("y1", "y0"))):
        rows = predictions(capsys, models[file], data / file)
        assert sorted(rows[0]) == sorted(f"prediction_{name}" for name in names)
        found = [[float(row[f"prediction_{name}"]) for name in names] for row in rows]
        np.testing.assert_allclose(found, estimator.predict(X), rtol=1e-9)
    whole = predictions(capsys, models["targets.csv"], data / "targets.csv")
    assert predictions(capsys, models["targets.csv"], data / "numbers.csv") == whole  # without these targets


def test_certify_several_targets_and_classes_by_their_features(data, tmp_path, capsys):
    path = tmp_path / "names.json"
    path.write_text('["bmi", "noise"]')
    targets = ["--target", "effect", "--target", "dose, mg"]
    for file, asked in (("targets.csv", targets), ("three.csv", [])):
        assert run("certify", path, data / file, *asked, "--lam", "0.1", "--exact", "--quiet") == 0
        text = " ".join(capsys.readouterr().out.split())
        assert "A better model was found: objective" in text
        assert "new risk (not in your model)" in text
        assert all(f"For {each}: feature coefficient" in text for each in (
            ("class 0", "class 2") if file == "three.csv" else ('target "effect"', 'target "dose, mg"')
        ))  # fmt: skip


def test_certify_coefficients_of_several_targets(data, tmp_path, capsys):
    W, b = np.zeros((2, D)), np.array([0.1, -0.2])
    W[:, 1], W[0, 3] = (0.09, 0.11), -0.9
    path = tmp_path / "mine.json"
    by_name = {str(j): W[:, j].tolist() for j in (1, 3)} | {"intercept": b.tolist()}
    expected = np.square(X @ W.T + b - TARGETS).mean(axis=0).sum() + 0.1 * np.square(W).sum()
    argv = [data / "targets.npz", "--lam", "0.2", "--no-standardize", "--quiet"]
    for content in ({"coef_": W.tolist(), "intercept_": b.tolist()}, by_name):
        path.write_text(json.dumps(content))
        assert run("certify", path, *argv) == 0
        out = capsys.readouterr().out
        objective, bound = figures_in(out)
        assert objective == pytest.approx(expected, rel=1e-5)
        assert bound <= objective
        assert "2 features\n" in out
    path.write_text(json.dumps({"coef_": W[:1].tolist()}))
    assert "1 set of coefficients, where 2 are needed, one for each target" in refused(capsys, "certify", path, *argv)
    path.write_text(json.dumps({"coef_": W.tolist()}))
    assert "2 sets of coefficients, where 1 is needed" in refused(capsys, "certify", path, data / "numbers.csv")


def test_sparse_features_are_numbered_as_in_the_file(models):
    entries = json.loads(models["numbers.svm"].read_text())["equations"][0]["coefficients"]
    assert entries
    assert all(entry["name"] == f"feature {entry['index'] + 1}" for entry in entries)


def test_single_precision_is_kept(models):
    assert read_model(str(models["single.npz"])).dtype == "float32"


def test_more_features_than_there_are(data, capsys, tmp_path):
    assert run("fit", data / "numbers.csv", *QUICK, "--k", "99", "--out", tmp_path) == 0
    out, err = capsys.readouterr()
    assert err == "diht: warning: --k 99 is more than the 6 features of the data: all of them may be used\n"
    assert "at most 6 features" in out
    assert read_model(str(tmp_path / "model.json")).k == 6


def test_fewer_features_than_allowed_are_explained(tmp_path, capsys):
    columns = X.copy()
    columns[:, [0, 2, 4]] = 0.0
    path = write_csv(tmp_path / "constant.csv", SCORES.tolist(), columns)
    assert run("fit", path, "--k", "5", "--lam", "0.1", "--max-iter", "60", "--out", tmp_path / "out") == 0
    assert "uses 3 of the 5 features allowed: only 3 columns of the data vary" in " ".join(
        capsys.readouterr().out.split()
    )


def test_constant_target_of_a_regression(tmp_path, capsys):
    path = write_csv(tmp_path / "flat.csv", [3.0] * N)
    assert run("fit", path, *QUICK, "--loss", "squared", "--out", tmp_path / "out") == 0
    assert "objective                 0" in capsys.readouterr().out


def test_target_and_solver_options(data, capsys, tmp_path):
    argv = ["fit", data / "numbers.csv", *QUICK, "--out", tmp_path, "--target", "noise", "--solver", "iht"]
    assert run(*argv, "--seed", "3", "--threads", "1", "--time-limit", "20", "--quiet") == 0
    text = capsys.readouterr().out
    assert 'target "noise"' in text
    assert "Solved with IHT" in text


def test_a_second_fit_replaces_the_files(data, tmp_path):
    for k in ("1", "2"):
        assert run("fit", data / "numbers.csv", *QUICK, "--k", k, "--out", tmp_path) == 0
        assert read_model(str(tmp_path / "model.json")).k == int(k)
    assert len(os.listdir(tmp_path)) == 4


# predictions


def predictions(capsys, *argv):
    assert run("predict", *argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return list(csv.DictReader(io.StringIO(out)))


def test_predict_numbers(data, models, capsys):
    estimator = SparseRegressor(k=2, lam=0.1, standardize=True, max_iter=60, random_state=0)
    with quiet():
        estimator.fit(X, SCORES)
    capsys.readouterr()
    rows = predictions(capsys, models["numbers.csv"], data / "numbers.csv")
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], estimator.predict(X), rtol=1e-9)


@pytest.mark.parametrize("file", ["classes.csv", "three.csv"])
def test_predict_classes(data, models, capsys, file):
    y = np.where(SCORES > 0, "sick", "well") if file == "classes.csv" else np.digitize(SCORES, [-0.7, 0.7])
    estimator = SparseClassifier(k=2, lam=0.1, standardize=True, max_iter=60, random_state=0)
    with quiet():
        estimator.fit(X, y)
    capsys.readouterr()
    rows = predictions(capsys, models[file], data / file, "--proba")
    assert [row["prediction"] for row in rows] == [str(label) for label in estimator.predict(X)]
    found = [[float(row[f"proba_{label}"]) for label in estimator.classes_] for row in rows]
    np.testing.assert_allclose(found, estimator.predict_proba(X), rtol=1e-9)


def test_predict_needs_only_the_selected_columns(data, models, capsys, tmp_path):
    whole = predictions(capsys, models["numbers.csv"], data / "numbers.csv")
    used = [NAMES[j] for j in read_model(str(models["numbers.csv"])).support][::-1]
    path = tmp_path / "few.csv"
    with open(path, "w", newline="") as stream:
        csv.writer(stream).writerows([[*used, "other"], *X[:, [*map(NAMES.index, used), 0]].tolist()])
    assert predictions(capsys, models["numbers.csv"], path) == whole


def test_predict_to_a_file(data, models, capsys, tmp_path):
    rows = predictions(capsys, models["classes.csv"], data / "classes.csv")
    assert run("predict", models["classes.csv"], data / "classes.csv", "--out", tmp_path / "p.csv") == 0
    assert capsys.readouterr().out == ""
    with open(tmp_path / "p.csv") as stream:
        assert list(csv.DictReader(stream)) == rows


def test_predict_sparse_and_arrays(data, models, capsys, tmp_path):
    rows = predictions(capsys, models["numbers.svm"], data / "numbers.svm")
    assert len(rows) == N
    first = tmp_path / "first.svm"  # fewer columns than the model knows: the rest are zero
    first.write_text("1:0.0 2:0.0\n")
    intercept = read_model(str(models["numbers.svm"])).equations[0].intercept
    assert float(predictions(capsys, models["numbers.svm"], first)[0]["prediction"]) == pytest.approx(intercept)
    np.savez(tmp_path / "new.npz", X=X.astype(np.float32))
    rows = predictions(capsys, models["single.npz"], tmp_path / "new.npz")
    assert all(row["prediction"] == str(np.float32(row["prediction"])) for row in rows)


# certificates


@pytest.mark.parametrize(
    "file", ["numbers.csv", "classes.csv", "three.csv", "numbers.svm", "single.npz", "targets.csv", "targets.npz"]
)
def test_certify_own_model(data, models, capsys, file):
    assert run("certify", models[file], data / file, "--time-limit", "5") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "Your model is" in out
    objective, bound = figures_in(out)
    assert objective == pytest.approx(read_model(str(models[file])).worst.objective, rel=1e-4)
    assert bound <= objective * (1 + 1e-5)


def figures_in(text):
    found = [re.search(rf"^  {name} +(\S+)", text, re.MULTILINE) for name in ("objective", "lower bound")]
    objective, bound = (match[1] for match in found)
    return float(objective), float(objective if bound == "proved" else bound)


def test_certify_with_columns_in_another_order(data, models, capsys, tmp_path):
    order = [3, 1, 5, 0, 2, 4]
    path = write_csv(tmp_path / "mixed.csv", SCORES.tolist(), X[:, order], [NAMES[j] for j in order])
    assert run("certify", models["numbers.csv"], path) == 0
    objective, _ = figures_in(capsys.readouterr().out)
    assert objective == pytest.approx(read_model(str(models["numbers.csv"])).equations[0].figures.objective, rel=1e-5)


def test_certify_coefficients_of_another_tool(data, capsys):
    assert run("certify", data / "mine.csv", data / "numbers.csv", "--lam", "0.2", "--no-standardize") == 0
    out = capsys.readouterr().out
    assert "within" in out
    assert "of the best possible with at most 2 features" in " ".join(out.split())
    w = np.array([0, 0.09, 0, -0.9, 0, 0])
    expected = np.mean((X @ w + 0.01 - SCORES) ** 2) + 0.1 * w @ w
    objective, bound = figures_in(out)
    assert objective == pytest.approx(expected, rel=1e-5)
    assert bound <= best_of_two(lam=0.2) * (1 + 1e-5)


def test_certify_exactly(data, capsys):
    mine = ("certify", data / "mine.csv", data / "numbers.csv", "--lam", "1e-4", "--exact", "--quiet")
    assert run(*mine) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "within" in text
    assert "To narrow the gap" not in text


def test_certify_says_what_is_better_and_what_is_proved(data, tmp_path, capsys):
    mine = tmp_path / "mine.csv"
    mine.write_text("name,coefficient\nbmi,0.09\ndose,0.5\nintercept,0.01\n")
    assert run("certify", mine, data / "numbers.csv", "--lam", "0.1") == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "required bmi (in every best possible model)" in text
    assert "missing risk (in every best possible model, but not in yours)" in text
    assert "excluded dose (in no best possible model)" in text
    assert "Of the 4 features not in your model 3 are excluded." in text
    assert "A better model was found: objective" in text
    assert "new risk (not in your model) gone dose (in yours only)" in text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("names.csv", "feature\nbmi\nrisk\n"),
        ("names.txt", "risk\nbmi\n"),
        ("names.json", '["bmi", "risk"]'),
        ("places.json", "[1, 3]"),
        ("places.csv", "1\n3\n"),
    ],
)
def test_certify_a_list_of_names(data, tmp_path, capsys, name, content):
    path = tmp_path / name
    path.write_text(content)
    assert run("certify", path, data / "numbers.csv", "--lam", "0.2", "--no-standardize", "--tol", "1e-3") == 0
    out = capsys.readouterr().out
    assert "2 features\n" in out
    objective, _ = figures_in(out)
    assert objective == pytest.approx(best_of_two(lam=0.2), rel=1e-5)
    assert "better model" not in out


def test_certify_coefficients_of_every_column(data, tmp_path, capsys):
    path = tmp_path / "sklearn.json"
    path.write_text(json.dumps({"coef_": [0, 0.09, 0, -0.9, 0, 0], "intercept_": 0.01}))
    argv = [data / "numbers.csv", "--lam", "0.2", "--no-standardize"]
    assert run("certify", path, *argv) == 0
    found = figures_in(capsys.readouterr().out)
    assert run("certify", data / "mine.csv", *argv) == 0
    assert found == figures_in(capsys.readouterr().out)
    path.write_text(json.dumps({"coef_": [1.0]}))
    assert "1 coefficients, where" in refused(capsys, "certify", path, *argv)
    path.write_text(json.dumps({"a": "b"}))
    assert "expected a number" in refused(capsys, "certify", path, *argv)
    path.write_text(json.dumps([99]))
    assert "has no feature 99 (its first one is 'age')" in refused(capsys, "certify", path, *argv)
    path.write_text(json.dumps(["bmi", 1]))
    assert "a feature comes twice" in refused(capsys, "certify", path, *argv)
    path.write_text(json.dumps(["bmi", "age", "dose"]))
    assert "2 features allowed, but the model of" in refused(capsys, "certify", path, *argv, "--k", "2")


def test_fit_shows_and_writes_what_is_proved_of_features(data, capsys, tmp_path):
    assert run("fit", data / "numbers.csv", *QUICK, "--out", tmp_path) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "drop cost" in text
    assert "Features with a * are required" in text
    assert "4 of the 6 features are proved to be in no best possible model" in text
    equation = read_model(str(tmp_path / "model.json")).equations[0]
    assert equation.required.tolist() == equation.indices.tolist() == [1, 3]
    assert equation.figures.excluded == 4


def test_certify_coefficients_by_number_and_for_classes(data, tmp_path, capsys):
    mine = tmp_path / "mine.csv"
    mine.write_text("feature 2,0.1\n4,-0.9\n")
    assert run("certify", mine, data / "numbers.svm", "--tol", "0.5") == 0
    assert "2 features\n" in capsys.readouterr().out
    mine.write_text("bmi,-0.1\nrisk,0.9\n")
    assert run("certify", mine, data / "classes.csv", "--lam", "1", "--tol", "0.5") == 0
    assert 'a positive score means "well", a negative one "sick"' in capsys.readouterr().out


def best_of_two(lam):
    """The smallest objective with two features and an intercept, by trying all pairs."""
    A, b = X - X.mean(axis=0), SCORES - SCORES.mean()
    best = np.inf
    for i in range(D):
        for j in range(i):
            Z = A[:, [i, j]]
            w = np.linalg.solve(Z.T @ Z / N + lam / 2 * np.eye(2), Z.T @ b / N)
            best = min(best, np.mean((Z @ w - b) ** 2) + lam / 2 * w @ w)
    return best


def test_certify_other_options(data, models, capsys):
    argv = ["certify", models["numbers.csv"], data / "numbers.csv", "--k", "3", "--lam", "1", "--loss", "huber"]
    assert run(*argv, "--no-standardize", "--tol", "0.1") == 0
    assert "huber loss, at most 3 features, lam = 1\n" in capsys.readouterr().out


# bad input


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--k", "0"], "argument --k: must be a whole number of at least 1, got '0'"),
        (["--k", "-3"], "argument --k: must be a whole number of at least 1, got '-3'"),
        (["--k", "2.5"], "argument --k: must be a whole number of at least 1, got '2.5'"),
        (["--k", "ten"], "argument --k: must be a whole number of at least 1, got 'ten'"),
        (["--k", "9" * 5000], "argument --k: must be a whole number"),
        (["--lam", "0"], "argument --lam: must be a positive, finite number, got '0'"),
        (["--lam", "-1e-3"], "argument --lam: must be a positive, finite number, got '-1e-3'"),
        (["--lam", "-inf"], "argument --lam: must be a positive, finite number, got '-inf'"),
        (["--lam", "nan"], "argument --lam: must be a positive, finite number, got 'nan'"),
        (["--lam", "1e999"], "argument --lam: must be a positive, finite number, got '1e999'"),
        (["--lam"], "argument --lam: expected one argument"),
        (["--tol", "-1"], "argument --tol: must be a finite number, zero or more, got '-1'"),
        (["--max-iter", "0"], "argument --max-iter: must be a whole number of at least 1, got '0'"),
        (["--time-limit", "0"], "argument --time-limit: must be a positive, finite number, got '0'"),
        (["--seed", "-1"], "argument --seed: must be a whole number from 0 to 4294967295, got '-1'"),
        (["--threads", "0"], "argument --threads: must be a whole number from 1 to 1024, got '0'"),
        (["--loss", "cubic"], "argument --loss: invalid choice: 'cubic' (choose from "),
        (["--solver", "magic"], "argument --solver: invalid choice: 'magic' (choose from "),
        (["--target", "y"], "argument --target: 'y' needs a FILE"),
        (["--multiclass", "both"], "argument --multiclass: invalid choice: 'both'"),
        (["--exact", "--solver", "iht"], "argument --exact: needs --solver auto or branch, got --solver iht"),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_bad_options(capsys, argv, message):
    assert message in refused(capsys, "fit", *argv)


def test_choices_are_listed(capsys):
    line = refused(capsys, "fit", "--loss", "cubic")
    assert all(name in line for name in ("squared", "logistic", "huber", "hinge"))
    assert all(name in refused(capsys, "fit", "--solver", "magic") for name in ("auto", "sdiht", "htp"))


def test_bad_commands(capsys):
    assert "argument COMMAND: invalid choice: 'fti'" in refused(capsys, "fti")
    assert "required: MODEL, FILE" in refused(capsys, "predict")
    assert run() == 2
    assert "examples:" in capsys.readouterr().err


BAD_DATA = {
    "empty.csv": (b"", "empty"),
    "header.csv": (b"a,b\n", "no data"),
    "nan.csv": (b"a,b\n1,2\nnan,3\n", "missing values in 'a' (1 of 2)"),
    "inf.csv": (b"a,b\n1,2\ninf,3\n", "infinity in column 'a'"),
    "text.csv": (b"a,b\n1,2\n2,x\n", "line 3) and '2' (line 2)"),
    "ragged.csv": (b"a,b\n1,2\n3\n", "line 3"),
    "one.csv": (b"a,b\n1,yes\n2,yes\n", "the target 'b' has one class only: 'yes'"),
    "onenumber.csv": (b"a,b\n1,4\n2,4\n", "the target 'b' has one class only: '4'"),
    "nan.svm": (b"1 1:nan\n", "line 1"),
    "broken.svm": (b"1 1:2 3\n", "line 1"),
    "cut.csv.gz": (b"\x1f\x8b\x08\x00\x00\x00", "cut.csv.gz"),
    "plain.csv.gz": (b"a,b\n1,2\n", "not a gzip file"),
    "not.parquet": (b"a,b\n1,2\n", "not a Parquet file"),
    "not.npz": (b"a,b\n1,2\n", "not an npz file"),
    "what.doc": (b"a,b\n1,2\n", "unknown kind of file"),
    "binary.csv": (b"\xff\xfe\x00", "not UTF-8"),
}


@pytest.mark.parametrize(("name", "case"), BAD_DATA.items(), ids=BAD_DATA)
def test_bad_data(tmp_path, capsys, name, case):
    content, message = case
    path = tmp_path / name
    path.write_bytes(content)
    line = refused(capsys, "fit", path, "--out", tmp_path / "out")
    assert message in line
    assert not (tmp_path / "out").exists()


def test_missing_data_and_target(data, tmp_path, capsys):
    assert f"{tmp_path}/none.csv: no such file" in refused(capsys, "fit", tmp_path / "none.csv")
    assert "is a directory" in refused(capsys, "fit", tmp_path)
    line = refused(capsys, "fit", data / "numbers.csv", "--target", "outcom")
    assert "no column 'outcom'; did you mean 'outcome'?" in line


def test_loss_that_does_not_suit_the_target(data, capsys):
    line = refused(capsys, "fit", data / "classes.csv", "--loss", "squared")
    assert "argument --loss: squared needs numbers, but the target 'outcome' holds texts such as 'sick'" in line
    line = refused(capsys, "fit", data / "numbers.csv", "--loss", "hinge")
    assert "argument --loss: hinge needs classes, but the target 'outcome' has 60 different numbers" in line


def test_what_does_not_suit_several_classes_or_targets(data, models, capsys):
    three, two = data / "three.csv", [data / "targets.csv", "--target", "effect", "--target", "dose, mg"]
    known = "does not know several {} that share features; use auto, iht, htp, relaxed, branch"
    for solver in ("diht", "sdiht", "svrght"):
        line = refused(capsys, "fit", three, "--solver", solver)
        assert line == f"diht: error: argument --solver: {solver} {known.format('classes')}, or --multiclass ovr\n"
        line = refused(capsys, "fit", *two, "--solver", solver)
        assert line == f"diht: error: argument --solver: {solver} {known.format('targets')}\n"
    line = refused(capsys, "fit", three, "--loss", "multinomial", "--multiclass", "ovr")
    assert "argument --multiclass: ovr cannot be used with --loss multinomial, which is one of all classes" in line
    assert "argument --loss: hinge is for one target, but there are 2" in refused(
        capsys, "fit", *two, "--loss", "hinge"
    )
    assert "the target 'effect' comes twice" in refused(capsys, "fit", *two, "--target", "effect")
    line = refused(capsys, "fit", data / "classes.csv", "--target", "age", "--target", "outcome")
    assert "the target 'outcome' holds texts such as 'sick'; several must be numbers" in line
    for command in ("certify", "report"):
        line = refused(capsys, command, models["targets.csv"], data / "targets.csv", "--target", "effect")
        assert "1 target, where the model has 2" in line


def test_out_that_cannot_be_written(data, tmp_path, capsys, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    assert f"argument --out: {file}: is a file, not a folder" in refused(capsys, "fit", "--out", file)
    assert f"{file} is a file, not a folder" in refused(capsys, "fit", "--out", file / "deeper")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "cannot be written" in refused(capsys, "fit", "--out", tmp_path / "out")


def test_predict_out_that_cannot_be_written(data, models, tmp_path, capsys):
    argv = ["predict", models["numbers.csv"], data / "numbers.csv", "--out"]
    assert "is a directory" in refused(capsys, *argv, tmp_path)
    assert "cannot be written" in refused(capsys, *argv, tmp_path / "none" / "p.csv")


def test_fit_needs_its_extra(capsys, monkeypatch):
    monkeypatch.setattr("diht.commands.fit.find_spec", lambda name: None if name == "matplotlib" else object())
    line = refused(capsys, "fit")
    assert line == "diht: error: diht fit needs rich and matplotlib: pip install 'diht[app]'\n"


@pytest.mark.parametrize("command", ["predict", "certify"])
def test_bad_models(data, models, tmp_path, capsys, command):
    path = tmp_path / "model.json"
    assert "no such file" in refused(capsys, command, path, data / "numbers.csv")
    text = models["numbers.csv"].read_text()
    for content, message in {
        "": "empty file",
        text[:500]: "not a model file, or a damaged one",
        text.replace('"k": 2', '"k": 3'): "checksum",
        text.replace('"format_version": 3', '"format_version": 7'): "model format version 7",
        "{}": "not a model file of diht",
    }.items():
        path.write_text(content)
        assert message in refused(capsys, command, path, data / "numbers.csv")


def test_data_that_does_not_suit_the_model(data, models, tmp_path, capsys):
    other = write_csv(tmp_path / "other.csv", SCORES.tolist(), names=["a", "b", "c", "d", "e", "f"])
    assert "no column 'bmi', 'risk', which the model needs" in refused(capsys, "predict", models["numbers.csv"], other)
    assert "no column 'age'" in refused(capsys, "certify", models["numbers.csv"], other)
    np.savez(tmp_path / "narrow.npz", X=X[:, :3], y=SCORES)
    assert "3 features, where 6 are expected" in refused(
        capsys, "predict", models["single.npz"], tmp_path / "narrow.npz"
    )
    assert "3 features, where the model has 6" in refused(
        capsys, "predict", models["numbers.csv"], tmp_path / "narrow.npz"
    )
    (tmp_path / "blank.csv").write_text("bmi,risk\n1,\n2,3\n")
    said = refused(capsys, "predict", models["numbers.csv"], tmp_path / "blank.csv")
    assert "blank.csv: contains NaN or missing values in 'risk' (1 of 2): fill them in, fit with" in said
    (tmp_path / "wide.svm").write_text("1 1:1 99:1\n")
    assert "99" in refused(capsys, "predict", models["numbers.svm"], tmp_path / "wide.svm")
    extra = write_csv(tmp_path / "extra.csv", SCORES.tolist(), np.c_[X, X[:, 0]], [*NAMES, "more"])
    assert "7 features, where the model has 6" in refused(capsys, "certify", models["numbers.csv"], extra)


def test_certify_refusals(data, models, tmp_path, capsys):
    classes, numbers = data / "classes.csv", data / "numbers.csv"
    assert "argument --proba" in refused(capsys, "predict", models["numbers.csv"], numbers, "--proba")
    assert "argument --k: 1 feature allowed" in refused(capsys, "certify", models["numbers.csv"], numbers, "--k", "1")
    assert "argument --loss: hinge is for classification" in refused(
        capsys, "certify", models["numbers.csv"], numbers, "--loss", "hinge"
    )
    assert "holds texts such as" in refused(capsys, "certify", models["numbers.csv"], classes)
    line = refused(capsys, "certify", models["three.csv"], write_csv(tmp_path / "four.csv", np.arange(N) % 4))
    assert "the target holds 3, which is not among the model's classes" in line
    line = refused(capsys, "certify", models["three.csv"], write_csv(tmp_path / "one.csv", [1] * N))
    assert "one class only" in line
    mine = tmp_path / "mine.csv"
    mine.write_text("bmi,1\nheight,2\n")
    assert "has no feature 'height'" in refused(capsys, "certify", mine, numbers)
    mine.write_text("bmi,1\n")
    assert "1 set of coefficients, where 3 are needed, one for each class" in refused(
        capsys, "certify", mine, data / "three.csv"
    )
    line = refused(capsys, "certify", models["three.csv"], write_csv(tmp_path / "two.csv", np.arange(N) % 2))
    assert "the target never holds 2, which is among the model's classes" in line


def test_not_enough_memory(data, capsys, monkeypatch):
    def fail(*_, **__):
        raise MemoryError

    monkeypatch.setattr("diht.commands.fit.read_table", fail)
    assert refused(capsys, "fit", data / "numbers.csv") == "diht: error: not enough memory\n"


def test_interrupted_outside_a_solve(data, capsys, monkeypatch):
    def fail(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("diht.commands.fit.read_table", fail)
    assert run("fit", data / "numbers.csv") == 130
    assert capsys.readouterr().err == "diht: interrupted\n"


# help


def test_version_and_help(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out == f"diht {__version__}\n"
    for argv in (["--help"], ["fit", "--help"], ["predict", "--help"], ["certify", "--help"]):
        assert run(*argv) == 0
        text = capsys.readouterr().out
        assert all(len(line) <= 80 for line in text.splitlines())
    run("--help")
    assert "diht certify diht-report/model.json patients.csv" in capsys.readouterr().out


# Ctrl-C, terminals and pipes


@pytest.mark.usefixtures("ctrl_c")
def test_first_ctrl_c_asks_second_quits():
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        assert not interrupt()
        signal.raise_signal(signal.SIGINT)
        assert interrupt()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def command(*argv):
    return [sys.executable, "-m", "diht", *map(str, argv)]


def at_a_terminal(argv, interrupt_at=None):
    """Run a command to its end at a terminal and return what it writes; Ctrl-C once this is seen."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    child = subprocess.Popen(argv, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    text = b""
    try:
        while select.select([leader], [], [], 60)[0]:
            try:
                block = os.read(leader, 65536)
            except OSError:  # the terminal is gone with its last user
                break
            if not block:
                break
            text += block
            if interrupt_at is not None and interrupt_at in text:
                child.send_signal(signal.SIGINT)
                interrupt_at = None
        assert child.wait(timeout=60) == 0
    finally:
        child.kill()
        os.close(leader)
    return text


def plain(text):
    """What stays visible of what is written to a terminal."""
    return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", text).decode()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_reports_the_best_so_far(tmp_path):
    """On noise the search for the best 15 of 60 features would go on for ages."""
    rng = np.random.default_rng(0)
    file = tmp_path / "noise.csv"
    np.savetxt(file, rng.standard_normal((80, 61)), delimiter=",")
    argv = command("fit", file, "--exact", "--k", "15", "--lam", "1e-6", "--tol", "0", "--out", tmp_path)
    text = " ".join(plain(at_a_terminal(argv, interrupt_at=b"open nodes")).split())
    assert "Stopped by Ctrl-C: this is the best model found so far." in text
    assert "because it was asked to stop" in text
    assert read_model(str(tmp_path / "model.json")).equations[0].figures.status == "stopped"


def test_exact_closes_the_gap(data, capsys, tmp_path):
    assert run("fit", data / "numbers.csv", "--exact", "--lam", "1e-4", "--k", "2", "--out", tmp_path) == 0
    assert "BranchAndBound" in capsys.readouterr().out
    assert read_model(str(tmp_path / "model.json")).equations[0].figures.status == "optimal"


def test_live_line_at_a_terminal(data, tmp_path):
    text = at_a_terminal(command("fit", data / "numbers.csv", *QUICK, "--out", tmp_path))
    assert re.search(r"step \d+ +objective \S+ +bound \S+( optimal)? +gap", plain(text))
    assert text.count(b"\x1b[?25l") == text.count(b"\x1b[?25h") == 1  # the cursor is there again
    assert "How good is it?" in plain(text)


def test_silent_where_there_is_no_terminal_and_bad_names_do_not_matter(tmp_path):
    """Not a single escape code; names that the encoding lacks are escaped."""
    path = write_csv(tmp_path / "d.csv", SCORES.tolist(), names=["ärger", "名前", "a\x1b[31m", "b$^_", "c", "d"])
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    argv = command("fit", path, *QUICK, "--k", "6", "--out", tmp_path / "out")
    child = subprocess.run(argv, capture_output=True, env=environment, timeout=120)
    assert child.returncode == 0
    assert child.stderr == b""
    assert b"\x1b" not in child.stdout
    assert b"\\xe4rger" in child.stdout


def test_closed_pipe(data, models, tmp_path):
    big = tmp_path / "big.npz"
    np.savez(big, X=np.tile(X.astype(np.float32), (2000, 1)))
    child = subprocess.Popen(
        command("predict", models["single.npz"], big), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    child.stdout.readline()
    child.stdout.close()
    err = child.stderr.read()
    child.stderr.close()
    assert child.wait(timeout=60) == 141
    assert err == b""

"""Models on disk and back, hostile files, words and pictures."""

import copy
import dataclasses
import io
import json
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from diht.losses import LOSSES, Hinge, Huber, Logistic, Multinomial, SmoothedHinge, Squared
from diht.persistence.given import GivenModel, is_given_model, read_given_model
from diht.persistence.model import (
    Data,
    Equation,
    Figures,
    SavedModel,
    Structure,
    as_labels,
    equation_labels,
    feature_name,
)
from diht.persistence.schema import read_model, to_json
from diht.report.plots import Bars, Curve, draw_coefficients, draw_convergence, to_png
from diht.report.text import Context, Finding, certificate_in_words, fit_report, percent, printable, significant
from diht.result import Status

FIGURES = Figures(1.0, 0.75, True, Status.STALLED)
PROVED = Figures(1.0, 0.75, True, Status.STALLED, 2, (3,), (0.12345,))


def make_equation(label=None, indices=(1, 3), values=(0.5, -2.0), intercept=0.25, dtype="float64", figures=FIGURES):
    return Equation(
        label,
        np.array(indices, dtype=np.int64),
        np.array(values, dtype=dtype),
        intercept,
        figures,
    )


def make_model(classes=None, loss=None, dtype="float64", **changes):
    names = tuple(f"column {j}" for j in range(5))
    entries = {
        "loss": loss or (Squared() if classes is None else Logistic()),
        "k": 3,
        "lam": 0.01,
        "fit_intercept": True,
        "standardize": True,
        "dtype": dtype,
        "n_features": 5,
        "feature_names": names,
        "classes": classes,
        "targets": ("target",),
        "data": Data("data.csv", 100, False, None),
    }
    entries |= changes
    labels = equation_labels(classes, entries["targets"])
    equations = tuple(make_equation(label, dtype=dtype) for label in labels)
    return SavedModel(**{"equations": equations} | entries)


TARGETS = ("height", "weight")
SIGNS = Structure(sign=((0, 1, 0, -1, 0), (0, 0, 0, -1, 1)))


MODELS = {
    "regression": make_model(),
    "huber": make_model(loss=Huber(delta=0.1)),
    "two classes": make_model(("no", "yes"), SmoothedHinge(gamma=0.3)),
    "numbers as classes": make_model((-1, 1)),
    "several classes": make_model((0, 1, 2.5)),
    "float32": make_model(dtype="float32", equations=(make_equation(values=(0.1, 1e-20), dtype="float32"),)),
    "no names": make_model(feature_names=None, targets=None, data=Data(None, 100, True, False)),
    "shared classes": make_model((0, 1, 2), Multinomial(), shared=True),
    "shared losses": make_model(("a", "b", "c"), Hinge(), shared=True),
    "targets": make_model(
        targets=TARGETS,
        shared=True,
        equations=(
            make_equation("height", figures=PROVED),
            make_equation("weight", (3, 4), (-1.0, 2.0), figures=PROVED),
        ),
    ),
    "signs": make_model(
        targets=TARGETS,
        shared=True,
        structure=SIGNS,
        equations=(make_equation("height"), make_equation("weight", (3, 4), (-1.0, 2.0))),
    ),
    "empty": make_model(equations=(make_equation(indices=(), values=()),)),
    "required": make_model(equations=(make_equation(figures=PROVED),)),
    "required, missing": make_model(
        equations=(make_equation(figures=dataclasses.replace(PROVED, required=(0, 3), drop_cost=(0.1, 0.12345))),)
    ),
    "kept": make_model(
        structure=Structure(keep=(3,)),
        equations=(make_equation(figures=dataclasses.replace(PROVED, drop_cost=(math.inf,))),),
    ),
    "odd names": make_model(feature_names=("a,b", "", "ü\n", "\x1b[31m", '"')),
}


@pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
def model(request):
    return request.param


def written(path, text):
    path.write_text(text, encoding="utf-8")
    return str(path)


# model.json


def test_round_trip(model, tmp_path):
    back = read_model(written(tmp_path / "model.json", to_json(model)))
    assert to_json(back) == to_json(model)
    assert back.loss == model.loss
    assert (back.classes, back.targets, back.shared) == (model.classes, model.targets, model.shared)
    assert back.structure == model.structure
    assert back.certificates == model.certificates
    for old, new in zip(model.equations, back.equations, strict=True):
        np.testing.assert_array_equal(new.indices, old.indices)
        np.testing.assert_array_equal(new.values, old.values)
        assert new.values.dtype == old.values.dtype == model.dtype
        assert new.figures == old.figures
        np.testing.assert_array_equal(new.drop_cost, old.drop_cost)
        np.testing.assert_array_equal(new.required, old.required)


def test_file_says_what_it_should():
    content = json.loads(to_json(MODELS["two classes"]))
    assert content["format"] == "diht-model"
    assert content["loss"] == {"name": "smoothed_hinge", "gamma": 0.3}
    assert content["equations"][0]["coefficients"][1] == {"index": 3, "name": "column 3", "value": -2.0}
    assert content["structure"] == {"keep": [], "groups": None, "sign": None, "limits": None}
    assert content["encoders"] is None
    figures = content["certificates"][content["equations"][0]["certificate"]]
    assert figures["gap"] == 0.25
    assert figures["status"] == "stalled"
    assert figures["required"] == []
    assert figures["given"] is None
    (figures,) = json.loads(to_json(MODELS["required"]))["certificates"]
    assert figures["required"] == [{"index": 3, "name": "column 3", "drop_cost": 0.12345}]
    assert figures["excluded"] == 2


@pytest.mark.parametrize(
    ("name", "numbers"),
    [("several classes", [0, 1, 2]), ("shared classes", [0, 0, 0]), ("targets", [0, 0]), ("regression", [0])],
)
def test_each_certificate_is_there_once(name, numbers):
    content = json.loads(to_json(MODELS[name]))
    assert [equation["certificate"] for equation in content["equations"]] == numbers
    assert len(content["certificates"]) == max(numbers) + 1
    said = [(equation["class"], equation["target"]) for equation in content["equations"]]
    labels = [equation.label for equation in MODELS[name].equations]
    assert said == [(None, label) if content["classes"] is None else (label, None) for label in labels]


def read_or_one_line(path):
    """Return the model, or None where there is one line that names the file."""
    try:
        return read_model(str(path))
    except ValueError as error:
        message = str(error)
    assert message.startswith(str(path))
    assert "\n" not in message
    return None


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(list(MODELS)),
    at=st.floats(0, 1, exclude_max=True),
    cut=st.integers(0, 3),
    insert=st.one_of(st.text(max_size=3), st.sampled_from(list('0123456789.-eE{}[],:"\\ nul'))),
)
def test_damaged_text_is_noticed(tmp_path_factory, name, at, cut, insert):
    """A changed file is the same model, or an error of one line: the checksum notices a changed digit."""
    text = to_json(MODELS[name])
    place = int(at * len(text))
    damaged = text[:place] + insert + text[place + cut :]
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(damaged.encode("utf-8", "surrogatepass"))
    back = read_or_one_line(path)
    assert back is None or to_json(back) == text


def nodes(value, path=()):
    """Every place in a JSON document."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from nodes(value[key], (*path, key))
    if isinstance(value, list):
        for i, item in enumerate(value):
            yield from nodes(item, (*path, i))


def replaced(document, path, value):
    document = copy.deepcopy(document)
    if not path:
        return value
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return document


hostile = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, -1, 2**31, 2**53, 2**64, 10**400]),
    st.floats(),
    st.sampled_from([1e-400, 1e39, 1e308, -0.0]),
    st.text(max_size=5),
    st.lists(st.integers(-1, 5), max_size=3),
    st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
)


@settings(max_examples=250, deadline=None)
@given(data=st.data(), name=st.sampled_from(list(MODELS)), value=hostile)
def test_hostile_values(tmp_path_factory, data, name, value):
    """Without the checksum every entry stands for itself: what is read is a valid model, or there is one clear line."""
    document = json.loads(to_json(MODELS[name]))
    del document["checksum"]
    path = data.draw(st.sampled_from(list(nodes(document))))
    file = tmp_path_factory.getbasetemp() / "hostile.json"
    file.write_text(json.dumps(replaced(document, path, value)))
    model = read_or_one_line(file)
    if model is None:
        return
    assert model.lam > 0
    assert 1 <= model.k <= model.n_features
    for equation in model.equations:
        assert len(equation.indices) <= model.k
        assert np.all(np.diff(equation.indices) > 0)
        assert np.all((equation.indices >= 0) & (equation.indices < model.n_features))
        assert np.all(np.isfinite(equation.values))
        assert np.all(equation.values != 0)
        assert math.isfinite(equation.intercept)
        assert equation.figures.gap >= 0
    assert to_json(model)


def changed(**changes):
    document = json.loads(to_json(make_model()))
    del document["checksum"]
    return json.dumps(document | changes)


def with_coefficients(*coefficients):
    document = json.loads(changed())
    document["equations"][0]["coefficients"] = list(coefficients)
    return json.dumps(document)


def entry(index, value=1.0, name=None):
    return {"index": index, "name": f"column {index}" if name is None else name, "value": value}


def required(index, cost=0.1):
    return {"index": index, "name": f"column {index}", "drop_cost": cost}


def with_certificate(**changes):
    return at("required", "certificates", 0, **changes)


def at(name, *place, **changes):
    """A model's file with other entries at a place."""
    document = json.loads(to_json(MODELS[name]))
    del document["checksum"]
    inside = document
    for step in place:
        inside = inside[step]
    inside |= changes
    return json.dumps(document)


BAD_FILES = {
    "": "empty file",
    "{": "not a model file, or a damaged one: Expecting",
    "[]": "no entry 'format'",
    "\ud800": "not UTF-8",
    '{"format": "diht-model"}': "model format version None",
    '{"name": 1}': "not a model file of diht",
    "[" * 100_000: "nested too deeply",
    '{"k": NaN}': "NaN is not a number",
    '{"k": 1, "k": 2}': "comes twice",
    changed(format_version=4, diht_version="9.9"): r"format version 4 \(written by diht 9.9\)",
    changed(format_version=2, diht_version="0.1"): r"format version 2 \(written by diht 0.1\)",
    changed(format_version=1, diht_version="0.0"): r"format version 1 \(written by diht 0.0\)",
    changed(extra=1): "unknown entry 'extra'",
    changed(n_features=0): "n_features: expected a whole number",
    changed(n_features=10**30): "n_features: expected a whole number",
    changed(n_features=6): "5 names for 6 features",
    changed(k=0): "k: expected a whole number from 1 to 5, got 0",
    changed(k=6): "k: expected a whole number from 1 to 5, got 6",
    changed(k=True): "k: expected a whole number",
    changed(lam=0): "lam: expected a positive number",
    changed(lam="1"): "lam: expected a number, got '1'",
    changed(lam=1e309): "Infinity",
    changed(loss={"name": "cubic"}): "loss.name: expected one of squared",
    changed(loss={"name": "huber"}): "loss: no entry 'delta'",
    changed(loss={"name": "huber", "delta": -1}): "loss: .*delta",
    changed(loss="squared"): "loss: expected an object",
    changed(task="classification"): "task: expected one of regression",
    changed(dtype="float16"): "dtype: expected one of float32, float64",
    changed(date="yesterday"): "date: expected a date",
    changed(classes=["a", "b"]): "classes: expected null",
    changed(feature_names=["a"] * 5): "a name comes twice",
    changed(equations=[]): "0 equations, where 1 are expected",
    with_coefficients(entry(1), entry(1)): "ascending and distinct",
    with_coefficients(entry(3), entry(1)): "ascending and distinct",
    with_coefficients(entry(5)): "index: expected a whole number from 0 to 4, got 5",
    with_coefficients(entry(-1)): "index: expected a whole number from 0 to 4, got -1",
    with_coefficients(entry(1, 0.0)): "other than zero",
    with_coefficients(entry(1, "2")): "value: expected a number",
    with_coefficients(entry(1, name="column 2")): "name: expected one of column 1",
    with_coefficients(*map(entry, range(4))): "4 features, where k = 3",
    with_certificate(required=[required(3, -0.1)]): r"required\[0\].drop_cost: expected a positive number, got -0.1",
    with_certificate(required=[required(3, 0)]): r"required\[0\].drop_cost: expected a positive number, got 0",
    with_certificate(required=[required(3, None)]): r"required\[0\].drop_cost: expected a number, got None",
    with_certificate(required=[required(3), required(1)]): r"certificates\[0\].required: indices must be ascending",
    with_certificate(required=[required(5)]): "expected a whole number from 0 to 4, got 5",
    with_certificate(required=[3]): r"required\[0\]: expected an object, got 3",
    with_certificate(required=3): "required: expected a list",
    with_certificate(given={"column 1": 0}): r"certificates\[0\].given: no entry 'norm'",
    with_certificate(given={"norm": -1, "larger_ridges": []}): "given.norm: expected a number that is not negative",
    with_certificate(excluded=6): "excluded: expected a whole number from 0 to 5, got 6",
    with_certificate(excluded=[1]): "excluded: expected a whole number",
    changed(encoders=[]): "feature_names: not the names of the columns that the encoders make",
    changed(encoders=3): "encoders: expected a list",
    at("regression", "structure", limits=[[0, 1]]): "structure.limits: 1 lists of limits",
    at("signs", "structure", sign=[[0] * 5]): "structure.sign: 1 rows of signs, where there are 2 equations",
    at("signs", "structure", sign=[[0] * 5, [0] * 4]): r"structure.sign\[1\]: 4 numbers for 5 features",
    at("signs", "structure", sign=[[0] * 5, 0]): r"structure.sign\[1\]: expected a list",
    at(
        "signs", "structure", sign=[[0] * 5, [0, 0, 0, 0, -1]]
    ): r"equations\[1\].coefficients\[1\].value: .* of the sign",
    at("several classes", "structure", sign=[[0] * 5] * 3): r"structure.sign\[0\]: expected a whole number",
    at("regression", targets=[]): "targets: 0 targets, where there is at least one",
    at("regression", targets="y"): "targets: expected a list",
    at("regression", targets=["a", "b"]): "equations: 1 equations, where 2 are expected",
    at("targets", targets=["a", "a"]): "targets: a name comes twice",
    at("targets", targets=["height"]): "equations: 2 equations, where 1 are expected",
    at("targets", k=2): "equations: 3 features, where k = 2 are allowed",
    at("targets", "equations", 1, target="height"): r"equations\[1\].target: expected 'weight', got 'height'",
    at("targets", "equations", 1, **{"class": "a"}): r"equations\[1\].class: expected null",
    at(
        "targets", "equations", 1, certificate=1
    ): r"equations\[1\].certificate: expected 0, the number of its certificate",
    at("several classes", "equations", 1, certificate=0): r"equations\[1\].certificate: expected 1, the number",
    at("several classes", "equations", 1, certificate=True): r"equations\[1\].certificate: expected a whole number",
    at("two classes", targets=["a", "b"]): "targets: 2 targets, where there is one",
    at("several classes", certificates=json.loads(to_json(MODELS["regression"]))["certificates"]): (
        "certificates: 1 certificates, where 3 are expected for the logistic loss"
    ),
    at("shared classes", certificates=json.loads(to_json(MODELS["several classes"]))["certificates"]): (
        "certificates: 3 certificates, where 1 are expected for the multinomial loss"
    ),
    at("shared losses", certificates=[]): "certificates: 0 certificates, where 1 or 3 are expected for the hinge loss",
    to_json(make_model()).replace("-2.0", "-2.5"): "checksum",
}


@pytest.mark.parametrize(("text", "message"), BAD_FILES.items(), ids=range(len(BAD_FILES)))
def test_bad_files(tmp_path, text, message):
    path = tmp_path / "model.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError, match=message) as caught:
        read_model(str(path))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_values_beyond_float32_are_refused(tmp_path):
    document = json.loads(to_json(MODELS["float32"]))
    del document["checksum"]
    document["equations"][0]["coefficients"][0]["value"] = 1e300
    with pytest.raises(ValueError, match="finite float32 number"):
        read_model(written(tmp_path / "model.json", json.dumps(document)))


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_model(str(tmp_path / "none.json"))
    with pytest.raises(OSError, match=str(tmp_path)):
        read_model(str(tmp_path))


def test_a_users_loss_cannot_be_saved():
    class Own(Squared):
        pass

    with pytest.raises(ValueError, match="loss must be one of"):
        to_json(make_model(loss=Own()))


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_saved_with_its_parameters(name, tmp_path):
    loss = LOSSES[name]()
    model = make_model(None if loss.task == "regression" else ("a", "b"), loss)
    assert read_model(written(tmp_path / "model.json", to_json(model))).loss == loss


# predictions


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, sp.csc_array], ids=["dense", "csr", "csc"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_decision(convert, dtype):
    X = np.random.default_rng(0).normal(size=(7, 5)).astype(dtype)
    model = make_model(dtype=dtype)
    expected = 0.5 * X[:, 1] - 2.0 * X[:, 3] + dtype_of(dtype)(0.25)
    decision = model.decision(convert(X))
    np.testing.assert_allclose(decision[:, 0], expected, rtol=1e-5)
    assert decision.dtype == dtype
    columns = np.array([4, 3, -1, 1, 0])
    np.testing.assert_allclose(model.decision(convert(X[:, [4, 3, 2, 1, 0]]), columns), decision, rtol=1e-5)


def dtype_of(name):
    return np.dtype(name).type


def test_probabilities_far_out():
    """Sums to one even where every class is as good as impossible."""
    X = np.zeros((1, 5))
    model = make_model((0, 1, 2), equations=tuple(make_equation(c, (), (), -1000.0 - c) for c in range(3)))
    p = model.probabilities(X)
    np.testing.assert_allclose(p, [[0.66524096, 0.24472847, 0.09003057]], rtol=1e-6)
    two = make_model(("a", "b"), equations=(make_equation("b", (), (), 800.0),))
    np.testing.assert_array_equal(two.probabilities(X), [[0.0, 1.0]])
    assert two.predict(X) == ["b"]
    with pytest.raises(ValueError, match="logistic"):
        make_model().probabilities(X)


def test_labels_and_names():
    assert as_labels(np.array([1.0, 2.0])) == (1, 2)
    assert all(type(label) is int for label in as_labels(np.array([1.0, 2.0])))
    assert as_labels(np.array(["a", "b"])) == ("a", "b")
    assert as_labels(np.array([0.5])) == (0.5,)
    assert feature_name(3, None) == "feature 3"
    assert feature_name(3, None, zero_based=False) == "feature 4"
    assert feature_name(1, ["a", "b"]) == "b"


# models of other tools


@pytest.mark.parametrize("header", ["", "name,coefficient\n", "\ufeffterm,estimate\n", '"","s0"\n', ",0\n"])
@pytest.mark.parametrize("intercept", ["intercept", "(Intercept)", "const"])
def test_coefficients_by_name(tmp_path, header, intercept):
    path = written(tmp_path / "c.csv", f'{header}a,1.5\n\n"b, c",-2e-3\n{intercept},4\n')
    assert is_given_model(path)
    assert read_given_model(path) == GivenModel(("a", "b, c"), ((1.5, -0.002),), (4.0,))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("c.csv", "a;1.5\nb;2\n", GivenModel(("a", "b"), ((1.5, 2.0),))),
        ("c.tsv", "name\tvalue\na\t1.5\n", GivenModel(("a",), ((1.5,),))),
        ("c.csv", ",name,value\n0,a,1.5\n1,b,2\n", GivenModel(("a", "b"), ((1.5, 2.0),))),
        ("c.csv", "a\nb c\n\n", GivenModel(("a", "b c"), None)),
        ("c.txt", "feature\na\n2\n", GivenModel(("a", "2"), None)),
        ("c.json", '["a", "b"]', GivenModel(("a", "b"), None)),
        ("c.json", "[0, 4]", GivenModel((0, 4), None)),
        ("c.json", '{"support": [0, 4]}', GivenModel((0, 4), None)),
        ("c.json", '{"a": 1, "b": -2.5, "Intercept": 3}', GivenModel(("a", "b"), ((1.0, -2.5),), (3.0,))),
        ("c.json", '{"coefficients": {"a": 1}, "intercept": 3}', GivenModel(("a",), ((1.0,),), (3.0,))),
        ("c.json", '{"coef_": [[0, 2.5]], "intercept_": [3]}', GivenModel((0, 1), ((0.0, 2.5),), (3.0,))),
        (
            "c.json",
            '{"coef_": [[1, 2], [3, 4]], "intercept_": [5, 6]}',
            GivenModel((0, 1), ((1.0, 2.0), (3.0, 4.0)), (5.0, 6.0)),
        ),
        ("c.json", '{"a": [1, 2], "b": [3, 4]}', GivenModel(("a", "b"), ((1.0, 3.0), (2.0, 4.0)))),
        ("c.json", '{"intercept": [1, 2]}', GivenModel((), ((), ()), (1.0, 2.0))),
        ("c.json", '{"coef_": [0, 2.5]}', GivenModel((0, 1), ((0.0, 2.5),))),
    ],
)
def test_models_of_other_tools(tmp_path, name, text, expected):
    path = written(tmp_path / name, text)
    assert is_given_model(path)
    assert read_given_model(path) == expected


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.csv", "", "no line"),
        ("c.csv", "name,value\n", "no line"),
        ("c.csv", "feature\n", "no line"),
        ("c.csv", "a,1\nb\n", "line 2: expected name,coefficient, got 1 cells"),
        ("c.csv", "a,1,2\n", "line 1: expected name,coefficient, got 3 cells"),
        ("c.csv", "a,1\nb,x\n", "line 2: 'x' is not a finite number"),
        ("c.csv", "a,nan\n", "'nan' is not a finite number"),
        ("c.csv", "a,1\na,2\n", "line 2: 'a' comes twice"),
        ("c.csv", "a\na\n", "line 2: 'a' comes twice"),
        ("c.csv", 'a,1\n"b,2\n', "line 2"),
        ("c.csv", "\udcff,1\n", "not UTF-8"),
        ("c.json", "[]", "no feature"),
        ("c.json", "[true]", "expected a whole number"),
        ("c.json", "[1.5]", "expected a text, got 1.5"),
        ("c.json", '["a", "a"]', "a feature comes twice"),
        ("c.json", "{}", "no coefficients"),
        ("c.json", '{"coefficients": [], "intercept": 1}', "no coefficients"),
        ("c.json", '{"a": "x"}', "a: expected a number, got 'x'"),
        ("c.json", '{"a": 1, "a": 2}', "comes twice"),
        ("c.json", '{"coef_": [1], "intercept_": [1, 2]}', "intercept_: expected one number"),
        ("c.json", '{"coef_": [[1], 2]}', r"expected a number, got \[1\]"),
        ("c.json", '{"coef_": [[1], [2, 3]]}', "coef_: rows of different lengths"),
        ("c.json", '{"coef_": [[], []]}', "coef_: no coefficients"),
        ("c.json", '{"coef_": [[1], [2]], "intercept_": 3}', "intercept_: expected 2 numbers, got 3"),
        ("c.json", '{"a": [1, 2], "b": 3}', "b: 1 numbers, where the first feature has 2"),
        ("c.json", '{"a": []}', r"a: expected a number, got \[\]"),
        ("c.json", "3", "expected an object"),
    ],
)
def test_bad_models_of_other_tools(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=message) as caught:
        read_given_model(str(path))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_missing_models_of_other_tools(tmp_path):
    for name in ("none.csv", "none.json"):
        with pytest.raises(FileNotFoundError, match="no such file"):
            read_given_model(str(tmp_path / name))
    assert not is_given_model(written(tmp_path / "model.json", to_json(make_model())))
    assert not is_given_model(written(tmp_path / "model.json", "{}"))


# words


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.0, "0%"),
        (1e-9, "less than 0.001%"),
        (1e-5, "0.001%"),
        (0.00341, "0.35%"),
        (0.004, "0.4%"),
        (0.0999, "10%"),
        (0.123, "13%"),
        (1.0, "100%"),
        (12.345, "1235%"),
        (math.inf, "100% or more"),
    ],
)
def test_percent_rounds_up(fraction, text):
    assert percent(fraction) == text


@given(st.floats(1e-5, 1.0))
def test_percent_is_a_bound(fraction):
    assert float(percent(fraction).rstrip("%")) >= 100 * fraction * (1 - 1e-9)


def test_printable():
    assert printable("\x1b[31mred\n") == "\\x1b[31mred\\n"
    assert printable("grün") == "grün"
    assert printable("a" * 20, 10) == "aaaaaaa..."
    assert significant(-0.123456789, 3) == "-0.123"


def report(model, effects=None, **context):
    context = Context(**{"tol": 1e-4, "n_varying": 5} | context)
    return " ".join(fit_report(model, effects or [None] * len(model.equations), context).split())


def with_figures(model, objective, bound, status=Status.STALLED):
    figures = Figures(objective, bound, model.standardize, status)
    equations = tuple(dataclasses.replace(equation, figures=figures) for equation in model.equations)
    return dataclasses.replace(model, equations=equations)


def test_report_names_the_features_strongest_first():
    text = report(make_model())
    assert text.index("column 3 -2") < text.index("column 1 0.5") < text.index("(intercept) 0.25")
    assert "objective 1 " in text
    assert "lower bound 0.75" in text
    assert "within 25% of the best possible with at most 3 features" in text


def test_report_orders_by_the_effect_of_a_standard_deviation():
    text = report(make_model(), [np.array([9.0, -1.0])])
    assert "per std. dev." in text
    assert text.index("column 1 0.5 9") < text.index("column 3 -2 -1")


def test_report_marks_required_features():
    text = report(MODELS["required"])
    assert "column 3 -2 0.123 *" in text  # rounded down
    assert "column 1 0.5 (intercept)" in text  # nothing is proved of it
    assert "required: proved to be in every best possible model with at most 3 features" in text
    assert "2 of the 5 features are proved to be in no best possible model" in text
    assert "required" not in report(make_model())
    assert "drop cost" not in report(make_model())
    several = make_model((0, 1, 2), equations=tuple(make_equation(c, figures=PROVED) for c in range(3)))
    assert "in every best possible model for the class with" in report(several)


def test_findings_about_a_given_model():
    context = Context(1e-4, 5, fitted=False)

    def words(*finding, model=MODELS["regression"]):
        return " ".join(certificate_in_words(model, context, [Finding(*finding)] * len(model.equations)).split())

    none = np.array([], dtype=np.int64)
    assert "the gap is too wide for that" in words(none, none)
    text = words(np.array([0, 1]), np.array([2, 3]))
    assert "required column 1 (in every" in text
    assert "missing column 0 (in every best possible model, but not in yours)" in text
    assert "excluded column 3 (in no best possible model)" in text
    assert "Of the 3 features not in your model 1 is excluded." in text
    assert "To narrow the gap: search on with --exact" in text
    branched = Context(1e-4, 5, fitted=False, exact=True)
    assert "To narrow the gap: fit with a larger ridge" in " ".join(
        certificate_in_words(MODELS["regression"], branched, [Finding(none, none)]).split()
    )
    better = make_equation(indices=(0, 1), values=(7.0, 8.0), figures=Figures(0.8, 0.75, True, Status.STALLED))
    text = words(none, none, (better,))
    assert "A better model was found: objective 0.8, 20% lower new column 0 (not in your model)" in text
    assert "gone column 3 (in yours only)" in text
    assert "column 1 8 column 0 7 (intercept) 0.25" in text
    assert "To narrow the gap" not in text
    same = make_equation(values=(1.0, 1.0), figures=Figures(0.8, 0.75, True, Status.STALLED))
    assert "found with the same features: objective 0.8" in words(none, none, (same,))
    assert "Class 2.5: what is proved" in words(none, none, model=MODELS["several classes"])


def test_report_of_an_optimal_model():
    text = report(with_figures(make_model(), 1.0, 1.0 - 1e-6, Status.OPTIMAL))
    assert "is the best possible with at most 3 features, up to less than 0.001%" in text
    assert "To narrow" not in text


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (Status.TIME_LIMIT, "--time-limit"),
        (Status.MAX_ITER, "--max-iter"),
        (Status.STALLED, "--lam 0.1"),
        (Status.STOPPED, "let it run longer"),
    ],
)
def test_report_says_how_to_narrow_a_gap(status, advice):
    text = report(with_figures(make_model(), 1.0, 0.5, status))
    assert "That is a wide gap" in text
    assert advice in text
    assert "--tol 0.5" in text
    assert "wide" not in report(with_figures(make_model(), 1.0, 0.97, status))


def test_report_explains_fewer_features_than_allowed():
    assert "uses 2 of the 3 features allowed: all other coefficients" in report(make_model())
    assert "only 2 columns of the data vary" in report(make_model(), n_varying=2)
    optimal = with_figures(make_model(), 1.0, 1.0, Status.OPTIMAL)
    assert "no further feature lowers the objective" in report(optimal)
    assert "allowed:" not in report(make_model(k=2))
    assert "Selected features: none" in report(MODELS["empty"])


def test_report_of_classes():
    assert 'positive coefficient speaks for "yes", a negative one for "no"' in report(MODELS["two classes"])
    text = report(MODELS["several classes"])
    assert "for class 2.5: 2 of 5" in text
    assert "for the worst of the classes" in text


def test_report_of_classes_that_share_features():
    text = report(MODELS["shared classes"])
    assert "for class 2: 2 of 5" in text
    assert "average multinomial loss plus ridge, the figure to minimise" in text
    assert "within 25% of the best possible with at most 3 features:" in text
    text = report(MODELS["shared losses"])
    assert "average hinge loss, summed over the 3 classes, plus ridge" in text
    assert "uses 2 of the 3 features allowed" in text
    assert "possible with at most 3 features a class (for the worst of the classes)" in report(
        MODELS["several classes"]
    )


def test_report_of_targets():
    text = report(MODELS["targets"])
    assert 'Selected features for target "weight": 2 of 5' in text
    assert "column 3 -1 0.123 *" in text
    assert (
        "The objective is the average squared loss over the data, summed over the 2 targets, plus 0.005 times" in text
    )
    assert "2 of the 5 features are proved to be in no best possible model" in text
    assert "allowed:" not in text  # three features in all
    none = np.array([], dtype=np.int64)
    better = tuple(
        make_equation(name, (0, 3), (1.0, 2.0), figures=Figures(0.5, 0.4, True, Status.STALLED)) for name in TARGETS
    )
    finding = Finding(np.array([0, 3]), none, better)
    words = " ".join(certificate_in_words(MODELS["targets"], Context(1e-4, 5, fitted=False), [finding]).split())
    assert words.count("What is proved of single features?") == 1
    assert "required column 3" in words
    assert "missing column 0" in words
    assert "objective 0.5, 50% lower new column 0 (not in your model) gone column 1, column 4 (in yours only)" in words
    assert 'For target "height": feature coefficient column 3 2 column 0 1' in words


def test_predictions_of_several_targets():
    X = np.random.default_rng(0).normal(size=(7, 5))
    expected = np.column_stack([0.5 * X[:, 1] - 2 * X[:, 3] + 0.25, -X[:, 3] + 2 * X[:, 4] + 0.25])
    np.testing.assert_allclose(MODELS["targets"].predict(X), expected)


def test_report_of_many_features_and_classes_is_short():
    many = make_model(
        tuple(range(30)),
        k=100,
        n_features=100,
        feature_names=None,
        equations=tuple(make_equation(c, range(100), np.arange(1, 101)) for c in range(30)),
    )
    text = fit_report(many, [None] * 30, Context(1e-4, 100))
    assert "... and 50 more" in text
    assert text.count("... and 10 more classes") == 2
    assert all(len(line) <= 100 for line in text.splitlines())


def test_interrupted_report_and_certificate_words():
    assert "Stopped by Ctrl-C" in report(make_model(), interrupted=True)
    words = certificate_in_words(make_model(), Context(1e-4, 5, fitted=False))
    assert words.split("\n\n")[1].startswith("Your model is within 25%")
    assert "--tol" not in words


def test_control_characters_stay_out_of_the_terminal():
    model = make_model(feature_names=("a", "\x1b[2J", "b", "c\rd", "e"), classes=None)
    text = fit_report(model, [None], Context(1e-4, 5))
    assert "\x1b" not in text
    assert "\r" not in text


# pictures


def make_curve(label="", n=50, gap=0.01):
    t = np.arange(1.0, n + 1)
    P, D = 1 + 1000 * np.exp(-t), 1 - gap - np.exp(-t)
    P[-1], D[-1] = 1.0, 1.0 - gap
    return Curve(label, t, P, D, gap, 0.5)


def size_of(png):
    assert png.startswith(b"\x89PNG")
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])


@pytest.mark.parametrize(
    "curves",
    [
        [make_curve()],
        [make_curve(n=1)],
        [make_curve(gap=0.0)],
        [make_curve(n=2000)],
        [dataclasses.replace(make_curve(), bound=np.append(np.full(49, -np.inf), 0.0), relative_gap=1.0)],
        [dataclasses.replace(make_curve(), objective=np.zeros(50), bound=np.zeros(50))],
        [make_curve(f"class ${c}$") for c in range(3)],
        [make_curve(str(c), n=5, gap=0.01 * c) for c in range(13)],
    ],
    ids=["one", "one iteration", "no gap", "long", "no bound", "zero", "classes", "many classes"],
)
def test_convergence_is_drawn(curves):
    figure = draw_convergence(curves, "a $title with _ and ^")
    width, height = size_of(to_png(figure))
    assert width > 800
    assert height > 400
    assert len(figure.axes) == (2 if len(curves) == 1 else min(len(curves), 12))


def test_convergence_shows_the_gap_and_where_it_ends():
    figure = draw_convergence([make_curve()], "title")
    top = figure.axes[0]
    assert "gap 1%" in [text.get_text() for text in top.texts]
    low, high = top.get_ylim()
    assert low < 0.99 < 1.0 < high < 3.0


@pytest.mark.parametrize(("count", "panels"), [(0, 1), (1, 1), (100, 1), (15, 4), (2, 13)])
def test_coefficients_are_drawn(count, panels):
    values = np.random.default_rng(0).normal(size=count)
    names = [f"$name_{j}^\n 名" for j in range(count)]
    figure = draw_coefficients([Bars(str(c), names, values) for c in range(panels)], "title", "coefficient")
    assert size_of(to_png(figure)) > (800, 300)
    assert len(figure.axes) == min(panels, 12)
    bars = [abs(bar.get_width()) for bar in figure.axes[0].patches]
    assert len(bars) == min(count, 40 if panels == 1 else 12)
    assert bars == sorted(bars, reverse=True)


def test_marks_survive_long_names():
    long = "a" * 100
    figure = draw_coefficients([Bars("", [long, "b"], np.array([1.0, 2.0]), frozenset([long]))], "title", "axis")
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["b", "a" * 37 + "... *"]


def test_pyplot_is_not_touched():
    import subprocess
    import sys

    code = (
        "import sys; from diht.report.plots import *; import numpy as np;"
        "to_png(draw_coefficients([Bars('', ['a'], np.ones(1))], 't', 'x')); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_png_is_what_pillow_reads():
    image = pytest.importorskip("PIL.Image")
    picture = image.open(io.BytesIO(to_png(draw_convergence([make_curve()], "title"))))
    picture.load()
    assert picture.format == "PNG"

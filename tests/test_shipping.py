"""Models for others: JSON files and hostile ones, skops and pickle, plain scikit-learn objects, ONNX, sparse coefficients."""

import copy
import io
import json
import pickle
import re
import subprocess
import sys
import time
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

import diht
from diht import SparseClassifier, SparseClassifierCV, SparseRegressor, SparseRegressorCV
from diht.losses import Huber, Logistic, SmoothedHinge, Squared
from diht.persistence.schema import read_model, to_json
from diht.solvers.tree import TreeBound

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 12))
U = X[:, 2] - 0.5 * X[:, 7] + 0.2 * RNG.normal(size=90)
NAMES = [f"column <{j}>" for j in range(12)]
FRAME = pd.DataFrame(X, columns=NAMES)
WORDS = np.array(["few", "many", "some"])[np.digitize(U, [-0.5, 0.5])]
TARGETS = np.column_stack([U, X[:, 2] + X[:, 9]])
NAMED = pd.DataFrame(TARGETS, columns=["a", "b"])
SIGNS = np.zeros((3, 12), dtype=int)
SIGNS[1, 2] = -1

MODELS = {
    "squared": lambda: SparseRegressor(k=3, lam=0.01).fit(X, U),
    "huber, names": lambda: SparseRegressor(k=3, lam=0.01, loss=Huber(0.3), standardize=True).fit(FRAME, U),
    "float32": lambda: SparseRegressor(k=3, lam=0.01).fit(X.astype(np.float32), U),
    "poisson": lambda: SparseRegressor(k=3, lam=0.01, loss="poisson").fit(X, np.round(np.exp(U))),
    "logistic": lambda: SparseClassifier(k=3, lam=0.01).fit(X, U > 0),
    "no intercept": lambda: SparseClassifier(k=2, lam=0.01, loss=Logistic(), fit_intercept=False).fit(X, np.sign(U)),
    "float32 classes": lambda: SparseClassifier(k=3, lam=0.01).fit(X.astype(np.float32), WORDS),
    "three classes": lambda: SparseClassifier(k=2, lam=0.01, exact=True).fit(FRAME, WORDS),
    "one against the rest": lambda: SparseClassifier(k=2, lam=0.01, multiclass="ovr").fit(FRAME, WORDS),
    "signs of classes": lambda: SparseClassifier(k=2, lam=0.01, sign=SIGNS).fit(X, WORDS),
    "targets": lambda: SparseRegressor(k=2, lam=0.01, exact=True).fit(X, TARGETS),
    "named targets, kept": lambda: SparseRegressor(k=2, loss="huber", keep=[4]).fit(FRAME, NAMED),
    "hinge": lambda: SparseClassifier(k=3, lam=0.01, loss="hinge").fit(X, np.where(U > 0, "yes", "no")),
    "smoothed hinge": lambda: SparseClassifier(k=3, lam=0.01, loss=SmoothedHinge(0.4)).fit(X, WORDS),
    "squared hinge": lambda: SparseClassifier(k=3, lam=0.01, loss="squared_hinge").fit(X, (U > 0).astype(float)),
    "kept, signs": lambda: SparseRegressor(k=2, lam=0.01, keep=[5], sign={7: -1}).fit(X, U),
    "groups": lambda: SparseClassifier(k=2, lam=0.01, groups=np.arange(12) // 3, keep=[11]).fit(X, U > 0),
    "cv": lambda: SparseRegressorCV(ks=[1, 2, 3], lams=[0.01, 0.1], cv=3).fit(FRAME, U),
    "classes cv": lambda: SparseClassifierCV(ks=[1, 2], lams=0.1, criterion="bic").fit(X, WORDS),
}  # fmt: skip


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS.keys())
def model(request):
    return request.param()


def data_for(model):
    return FRAME if hasattr(model, "feature_names_in_") else X.astype(model.coef_.dtype)


def assert_same(one, other):
    """Whatever the two say of the same samples is the same, up to the rounding of sums."""
    data = data_for(one)
    close = {"rtol": 1e-4, "atol": 1e-5} if one.coef_.dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-12}
    if one._task == "regression":
        np.testing.assert_allclose(other.predict(data), one.predict(data), **close)
    else:
        np.testing.assert_array_equal(other.predict(data), one.predict(data))
    for name in ("decision_function", "predict_proba"):
        assert hasattr(other, name) == hasattr(one, name)
        if hasattr(one, name):
            np.testing.assert_allclose(getattr(other, name)(data), getattr(one, name)(data), **close)
    np.testing.assert_array_equal(other.transform(data), one.transform(data))
    np.testing.assert_array_equal(other.get_feature_names_out(), one.get_feature_names_out())


# JSON


def test_json_round_trip(model, tmp_path):
    path = tmp_path / "model.json"
    model.to_json(path)
    back = diht.load_model(path)
    assert type(back.estimator_).__name__ == type(model).__name__.removesuffix("CV")
    assert_same(model, back)
    np.testing.assert_array_equal(back.coef_, model.coef_)
    assert back.coef_.dtype == model.coef_.dtype
    np.testing.assert_array_equal(back.lower_bound_, model.lower_bound_)
    np.testing.assert_array_equal(back.gap_, model.gap_)
    again = tmp_path / "again.json"
    back.to_json(again)
    assert again.read_bytes() == path.read_bytes()


def test_a_file_predicts_means_of_counts(tmp_path):
    model = MODELS["poisson"]()
    model.to_json(tmp_path / "model.json")
    np.testing.assert_allclose(read_model(str(tmp_path / "model.json")).predict(X), model.predict(X), rtol=1e-12)


def test_json_says_it_all(tmp_path):
    model = MODELS["three classes"]()
    model.to_json(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    assert content["diht_version"] == diht.__version__
    assert content["feature_names"] == NAMES
    assert content["classes"] == ["few", "many", "some"]
    assert content["targets"] is None
    for j, equation in enumerate(content["equations"]):
        support = np.flatnonzero(model.coef_[j])
        assert [entry["name"] for entry in equation["coefficients"]] == [NAMES[i] for i in support]
        assert [entry["value"] for entry in equation["coefficients"]] == model.coef_[j, support].tolist()
        assert equation["intercept"] == model.intercept_[j]
        assert equation["certificate"] == 0
    (figures,) = content["certificates"]
    assert figures["lower_bound"] == model.lower_bound_
    required = model.certificate_.required
    assert [entry["index"] for entry in figures["required"]] == required.tolist()
    assert [entry["drop_cost"] for entry in figures["required"]] == model.certificate_.drop_cost[required].tolist()


def test_json_of_one_against_the_rest(tmp_path):
    model = MODELS["one against the rest"]()
    model.to_json(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    assert [figures["lower_bound"] for figures in content["certificates"]] == model.lower_bound_.tolist()
    assert [equation["certificate"] for equation in content["equations"]] == [0, 1, 2]
    assert diht.load_model(tmp_path / "model.json").multiclass == "ovr"


def test_several_targets_have_names(tmp_path):
    for name, names in (("targets", ["y0", "y1"]), ("named targets, kept", ["a", "b"])):
        model = MODELS[name]()
        assert hasattr(model, "target_names_in_") == (names == ["a", "b"])
        model.to_json(tmp_path / "model.json")
        assert json.loads((tmp_path / "model.json").read_text())["targets"] == names
        back = diht.load_model(tmp_path / "model.json")
        assert back.target_names_in_.tolist() == names
        assert not hasattr(back.fit(X, U), "target_names_in_")
    chosen = SparseRegressorCV(ks=[1, 2], lams=0.1, cv=2).fit(X, NAMED)
    assert chosen.target_names_in_.tolist() == ["a", "b"]
    assert not hasattr(chosen.fit(X, TARGETS), "target_names_in_")


def test_rows_that_are_not_numbers_are_refused(tmp_path):
    MODELS["logistic"]().to_json(tmp_path / "model.json")
    back = diht.load_model(tmp_path / "model.json")
    used, unused = back.saved_.support[0], np.setdiff1d(np.arange(X.shape[1]), back.saved_.support)[0]
    for value in (np.nan, np.inf):
        rows = X[:4].copy()
        rows[:, unused] = value
        np.testing.assert_array_equal(back.predict(rows), back.predict(X[:4]))
        rows[1::2, used] = value
        for method in (back.predict, back.predict_proba, back.decision_function):
            with pytest.raises(ValueError, match="in features that the model uses: row 1 and 1 more"):
                method(rows)


def test_signs_of_several_classes_are_kept(tmp_path):
    model = MODELS["signs of classes"]()
    model.to_json(tmp_path / "model.json")
    saved = read_model(str(tmp_path / "model.json"))
    assert saved.structure.sign == tuple(map(tuple, SIGNS.tolist()))
    assert saved.structure.moved(np.arange(12)[::-1]).sign == tuple(map(tuple, SIGNS[:, ::-1].tolist()))
    back = diht.load_model(tmp_path / "model.json")
    np.testing.assert_allclose(back.fit(X, WORDS).coef_, model.coef_, rtol=1e-6, atol=1e-9)
    one = SparseRegressor(k=2, lam=0.01, sign=SIGNS[1:2]).fit(X, U)._saved()
    assert one.structure.sign == tuple(SIGNS[1].tolist())


def test_what_was_asked_for_is_kept(tmp_path):
    model = MODELS["kept, signs"]()
    model.to_json(tmp_path / "model.json")
    saved = read_model(str(tmp_path / "model.json"))
    assert saved.structure.keep == (5,)
    assert saved.structure.sign == tuple(-1 if j == 7 else 0 for j in range(12))
    assert saved.equations[0].drop_cost[saved.equations[0].indices == 5] == np.inf
    back = diht.load_model(tmp_path / "model.json")
    again = back.set_params(k=2).fit(X, U)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    assert hasattr(again, "certificate_")


def test_groups_are_kept_and_counted(tmp_path):
    model = MODELS["groups"]()
    model.to_json(tmp_path / "model.json")
    saved = read_model(str(tmp_path / "model.json"))
    assert saved.structure.keep == (9, 10, 11)
    assert saved.structure.groups == tuple(np.arange(12) // 3)
    assert len(saved.support) > saved.k
    moved = saved.structure.moved(np.arange(12)[::-1])
    assert moved.keep == (0, 1, 2)
    assert moved.groups == tuple(3 - np.arange(12) // 3)
    content = json.loads(to_json(saved))
    del content["checksum"]
    content["k"] = 1
    file = tmp_path / "k.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="2 groups, where k = 1"):
        diht.load_model(file)


def test_certify_poses_the_problem_of_the_file(tmp_path, capsys):
    """Kept features, groups and signs come back from the file, also for columns in another order."""
    from diht.cli import main

    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(12)])
    asked = {"groups": np.arange(12) // 3, "keep": ["c11"], "sign": {"c7": -1}}
    model = SparseRegressor(k=2, lam=0.1, **asked).fit(frame, U)
    model.to_json(tmp_path / "model.json")
    frame[frame.columns[RNG.permutation(12)]].assign(y=U).to_csv(tmp_path / "data.csv", index=False)
    assert main(["certify", str(tmp_path / "model.json"), str(tmp_path / "data.csv"), "--target", "y", "--exact"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "best possible with at most 2 groups besides the 3 features to keep and with the signs asked for" in said
    assert f"objective {model.objective_:.6g}" in said


def changed_structure(**changes):
    model = MODELS["groups"]()._saved()
    content = json.loads(to_json(model))
    del content["checksum"]
    content["structure"] |= changes
    return json.dumps(content)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keep": [11, 9]}, "keep: features must be ascending"),
        ({"keep": [9]}, "keep: a group is kept in part"),
        ({"keep": [12]}, r"keep\[0\]: expected a whole number from 0 to 11"),
        ({"groups": [0]}, "groups: 1 numbers for 12 features"),
        ({"groups": [10**30] * 12}, r"groups\[0\]: expected a whole number"),
        ({"sign": [2] * 12}, r"sign\[0\]: expected a whole number from -1 to 1"),
        ({"sign": [-1] * 12}, "value: expected a number of the sign that is allowed"),
        ({"sign": "+"}, "sign: expected a list"),
        ({"more": 1}, "unknown entry 'more'"),
        ({"keep": [], "groups": None}, "drop_cost: expected a number, got None"),
    ],
)
def test_bad_structure(tmp_path, changes, message):
    file = tmp_path / "model.json"
    file.write_text(changed_structure(**changes))
    with pytest.raises(ValueError, match=message):
        diht.load_model(file)


def small_file():
    frame = pd.DataFrame(X[:, [2, 7]], columns=["ü", '<a href="b">'])
    return to_json(SparseClassifier(k=1, lam=0.1).fit(frame, np.where(U > 0, "é", "no"))._saved()).encode()


def test_a_changed_byte_is_harmless_or_noticed(tmp_path):
    """Every byte of a file, replaced by each of several: the same model, or one line that names the file."""
    content, file = small_file(), tmp_path / "model.json"
    refused = 0
    for place in range(len(content)):
        for byte in {content[place] ^ 1, content[place] ^ 128, *b'0"'} - {content[place]}:
            file.write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
            refused += read_or_refused(file, content)
    assert refused > 2 * len(content)


def read_or_refused(file, content):
    try:
        back = diht.load_model(file)
    except ValueError as error:
        message = str(error)
    else:
        assert to_json(back._saved()).encode() == content
        return False
    assert message.startswith(str(file))
    assert "\n" not in message
    return True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[" * 10_000_000, "nested too deeply"),
        (b'{"a":' * 1_000_000, "nested too deeply"),
        (b'{"format": "diht-model", "k": ' + b"9" * 10_000_000 + b"}", "damaged model file: Exceeds the limit"),
        (b'{"format": "diht-model", "k": 1e' + b"9" * 1_000_000 + b"}", "format version None"),
        (b'{"lam": -Infinity}', "-Infinity is not a number"),
        (b'{"lam": NaN}', "NaN is not a number"),
        (b'{"k": 1, "k": 1}', "an entry comes twice"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"\x80\x04\x95cposix\nsystem\n", "not UTF-8"),  # a pickle
        (b'cos\nsystem\n(S"true"\ntR.', "not a model file"),  # an old pickle
        (b"\x00" * 1000, "not a model file"),
        (b'"' + b"a" * 10_000_000 + b'"', "not a model file of diht"),
        (b"[" + b"0," * 3_000_000 + b"0]", "not a model file of diht"),
    ],
    ids=range(13),
)
def test_hostile_files_are_refused_at_once(tmp_path, text, message):
    file = tmp_path / "model.json"
    file.write_bytes(text)
    began = time.process_time()
    with pytest.raises(ValueError, match=message) as caught:
        diht.load_model(file)
    assert time.process_time() - began < 20  # what took this long would take forever
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def with_entries(**changes):
    content = json.loads(to_json(MODELS["squared"]()._saved()))
    del content["checksum"]
    return json.dumps(content | changes)


def test_huge_sizes_take_no_memory(tmp_path):
    """A model may claim as many features as a number holds: nothing of that size is made."""
    file = tmp_path / "model.json"
    file.write_text(with_entries(n_features=2**53))
    model = diht.load_model(file)
    assert model.coef_.shape == (1, 2**53)
    with pytest.raises(ValueError, match="X has 12 features, but SparseRegressor is expecting"):
        model.predict(X)
    file.write_text(with_entries(n_features=2**53 + 1))
    with pytest.raises(ValueError, match="n_features: expected a whole number"):
        diht.load_model(file)


def test_too_large_a_file_is_not_read(tmp_path):
    file = tmp_path / "model.json"
    with file.open("wb") as stream:
        stream.truncate(1 << 40)  # a hole: it takes no space
    with pytest.raises(ValueError, match="too many for a model"):
        diht.load_model(file)


def test_reading_imports_nothing_that_a_file_names(tmp_path):
    """Neither pickle nor any evaluation is involved: the reader's modules do not use them."""
    import diht.persistence.document
    import diht.persistence.model

    for module in (diht.persistence.document, diht.persistence.model):
        with open(module.__file__, encoding="utf-8") as stream:
            assert not re.search(r"\b(?:pickle|eval|exec|import_module|__import__|marshal|joblib)\b", stream.read())


class Own(Squared):
    pass


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: SparseRegressor(k=1, loss=Own()).fit(X, U), "loss must be one of"),
        (lambda: SparseClassifier(k=1).fit(X, (U > 0) + 2**60), "classes"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path, fit, message):
    model = fit()
    with pytest.raises(ValueError, match=message):
        model.to_json(tmp_path / "model.json")
    assert list(tmp_path.iterdir()) == []


def test_unfitted_models_are_not_written(tmp_path):
    from sklearn.exceptions import NotFittedError

    for call in (SparseRegressor().to_json, SparseRegressor().report):
        with pytest.raises(NotFittedError):
            call(tmp_path / "model")
    for call in (SparseClassifier().to_sklearn, SparseClassifier().sparsify, SparseClassifier().densify):
        with pytest.raises(NotFittedError):
            call()


# pickle, joblib, skops


def test_pickle_and_joblib(model):
    assert_same(model, pickle.loads(pickle.dumps(model)))
    stream = io.BytesIO()
    joblib.dump(model, stream)
    stream.seek(0)
    assert_same(model, joblib.load(stream))


def test_skops(model):
    sio = pytest.importorskip("skops.io")
    data = sio.dumps(model)
    untrusted = set(sio.get_untrusted_types(data=data))
    assert untrusted <= set(diht.SKOPS_TRUSTED)
    back = sio.loads(data, trusted=diht.SKOPS_TRUSTED)
    assert_same(model, back)
    assert str(back.certificate_) == str(model.certificate_)
    assert str(back.result_) == str(model.result_)
    sparse = sio.loads(sio.dumps(pickle.loads(pickle.dumps(model)).sparsify()), trusted=diht.SKOPS_TRUSTED)
    assert_same(model, sparse)


def vectors(value, seen=None):
    """All arrays that an object holds, however deep."""
    seen = {} if seen is None else seen
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, list | tuple | dict):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from vectors(entry, seen)
    elif hasattr(value, "__dict__"):
        yield from vectors(vars(value), seen)


def test_a_stored_estimator_holds_its_figures_and_nothing_as_long_as_the_samples(model):
    back = pickle.loads(pickle.dumps(model))
    assert any(len(X) in array.shape for array in vectors(model))
    assert not any(len(X) in array.shape for array in vectors(back))
    np.testing.assert_array_equal(back.lower_bound_, model.lower_bound_)
    pairs = [np.ravel(np.array(value, dtype=object)) for value in (model.certificate_, back.certificate_)]
    for whole, figures in zip(*pairs, strict=True):
        assert str(figures) == str(whole)
        assert figures.bound.claimed == whole.bound.claimed
        np.testing.assert_array_equal(figures.drop_cost, whole.drop_cost)
        with pytest.raises(ValueError, match=r"holds no dual point.*diht\.certify") as refusal:
            figures.bound.check(None)
        assert "\n" not in str(refusal.value)
    with pytest.raises(AttributeError, match="holds no dual point"):
        assert back.dual_coef_ is None
    assert not hasattr(back, "dual_coef_")
    again = pickle.loads(pickle.dumps(back))
    assert str(again.result_) == str(model.result_)


def test_a_certificate_that_is_stored_by_itself_keeps_its_proof():
    y = np.where(U + RNG.normal(size=90) > 0, 1.0, -1.0)
    model = SparseClassifier(k=3, lam=1e-3, exact=True, standardize=False, fit_intercept=False).fit(X, y)
    problem = diht.Problem(X, y, "logistic", 3, 1e-3)
    assert isinstance(model.certificate_.bound, TreeBound)
    for back in (pickle.loads(pickle.dumps(model.certificate_)), through_skops(model.certificate_)):
        assert back.bound.check(problem) >= back.lower_bound == model.lower_bound_


def through_skops(value):
    sio = pytest.importorskip("skops.io")
    return sio.loads(sio.dumps(value), trusted=diht.SKOPS_TRUSTED)


def test_a_stored_estimator_goes_on(tmp_path):
    """It is fitted again from its model, converted and written as the original is."""
    model = SparseRegressor(k=3, lam=0.01, warm_start=True).fit(X, U)
    back = pickle.loads(pickle.dumps(model))
    assert back.to_sklearn().alpha == model.to_sklearn().alpha
    back.to_json(tmp_path / "model.json")
    assert diht.load_model(tmp_path / "model.json").saved_.data.n_samples == 90
    back.report(tmp_path / "report.html", X, U)
    assert back.fit(X, U).objective_ == pytest.approx(model.objective_, rel=1e-9)
    assert back.dual_coef_.shape == (90,)


def test_copies_in_memory_keep_the_proof():
    model = SparseRegressor(k=3, lam=0.01).fit(X, U)
    for twin in (copy.copy(model), copy.deepcopy(model)):
        np.testing.assert_array_equal(twin.dual_coef_, model.dual_coef_)
        assert_same(model, twin)
    assert copy.deepcopy(model).coef_ is not model.coef_


def test_a_model_that_was_read_says_why_it_has_no_dual_point(tmp_path):
    MODELS["squared"]().to_json(tmp_path / "model.json")
    with pytest.raises(AttributeError, match="holds no dual point"):
        assert diht.load_model(tmp_path / "model.json").dual_coef_ is None
    assert not hasattr(SparseRegressor(), "dual_coef_")


def test_skops_of_a_model_that_was_read(tmp_path):
    sio = pytest.importorskip("skops.io")
    MODELS["huber, names"]().to_json(tmp_path / "model.json")
    model = diht.load_model(tmp_path / "model.json")
    assert_same(model, sio.loads(sio.dumps(model), trusted=diht.SKOPS_TRUSTED))
    assert_same(model, pickle.loads(pickle.dumps(model)))


def test_the_trusted_list_names_classes():
    from importlib import import_module

    for name in diht.SKOPS_TRUSTED:
        module, _, kind = name.rpartition(".")
        assert module.startswith("diht.") or name == "scipy.sparse._csr.csr_array"
        assert isinstance(getattr(import_module(module), kind), type)


# scikit-learn and ONNX


def test_plain_models_predict_the_same(model):
    plain, data = model.to_sklearn(), data_for(model)
    tolerance = 1e-4 if model.coef_.dtype == np.float32 else 1e-9
    assert type(plain).__module__.startswith("sklearn.")
    if model._task == "regression":
        np.testing.assert_allclose(plain.predict(data), model.predict(data), rtol=tolerance, atol=tolerance)
        return
    np.testing.assert_array_equal(plain.predict(data), model.predict(data))
    np.testing.assert_array_equal(plain.classes_, model.classes_)
    scores = plain.decision_function(data)
    np.testing.assert_allclose(scores, model.decision_function(data), rtol=tolerance, atol=tolerance)
    if hasattr(model, "predict_proba"):
        np.testing.assert_allclose(plain.predict_proba(data), model.predict_proba(data), atol=tolerance)
    pickle.loads(pickle.dumps(plain)).predict(data)


def test_kinds_of_plain_models():
    assert type(MODELS["squared"]().to_sklearn()) is Ridge
    assert type(MODELS["poisson"]().to_sklearn()) is PoissonRegressor
    assert type(MODELS["hinge"]().to_sklearn()) is LinearSVC
    assert type(MODELS["smoothed hinge"]().to_sklearn()) is LinearSVC
    assert type(MODELS["logistic"]().to_sklearn()) is LogisticRegression
    assert type(MODELS["three classes"]().to_sklearn()) is LogisticRegression
    assert type(MODELS["one against the rest"]().to_sklearn()) is OneVsRestClassifier
    assert type(MODELS["targets"]().to_sklearn()) is Ridge


def test_plain_models_share_nothing():
    model = MODELS["logistic"]()
    plain = model.to_sklearn()
    plain.coef_[:], plain.intercept_[:] = 0.0, 0.0
    assert model.coef_.any()
    assert model.intercept_.any()


@pytest.mark.parametrize("name", ["squared", "logistic", "poisson"])
def test_the_strength_is_that_of_the_same_problem(name):
    """Fitted again on the chosen features alone, scaled as they were, the plain estimator finds the same coefficients."""
    model = MODELS[name]()
    plain = model.to_sklearn().set_params(tol=1e-12)
    y = {"squared": U, "logistic": U > 0, "poisson": np.round(np.exp(U))}[name]
    scale = X[:, model.support_].std(axis=0)
    again = plain.fit(X[:, model.support_] / scale, y)
    np.testing.assert_allclose(again.coef_.ravel() / scale, np.ravel(model.coef_)[model.support_], rtol=1e-4)


@pytest.fixture(scope="module")
def onnx():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what these packages do to each other is not ours
        skl2onnx, runtime = pytest.importorskip("skl2onnx"), pytest.importorskip("onnxruntime")
    return skl2onnx, runtime


@pytest.mark.filterwarnings("ignore")
def test_onnx(model, onnx):
    skl2onnx, runtime = onnx
    plain = model.to_sklearn()
    proba = hasattr(plain, "predict_proba")
    options = {id(plain): {"zipmap": False}} if proba else None
    data = np.asarray(data_for(model), dtype=np.float32)
    graph = skl2onnx.to_onnx(plain, data[:1], options=options)
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    answers = session.run(None, {session.get_inputs()[0].name: data})
    if model._task == "regression":
        expected = model.predict(data_for(model))
        np.testing.assert_allclose(answers[0].reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)
        return
    np.testing.assert_array_equal(answers[0].astype(model.classes_.dtype), model.predict(data_for(model)))
    if proba:
        np.testing.assert_allclose(answers[1], model.predict_proba(data_for(model)), atol=1e-5)


# sparse coefficients


def test_sparsify_and_densify(model, tmp_path):
    one = pickle.loads(pickle.dumps(model))
    assert one.sparsify() is one
    assert sp.issparse(one.coef_)
    assert one.coef_.nnz == np.count_nonzero(model.coef_)
    assert one.sparsify() is one
    assert_same(model, one)
    assert_same(model, pickle.loads(pickle.dumps(one)))
    one.to_json(tmp_path / "sparse.json")
    np.testing.assert_array_equal(diht.load_model(tmp_path / "sparse.json").coef_, model.coef_)
    plain, again = model.to_sklearn(), one.to_sklearn()
    for old, new in zip(getattr(plain, "estimators_", [plain]), getattr(again, "estimators_", [again]), strict=True):
        np.testing.assert_array_equal(new.coef_, old.coef_)
    assert one.densify() is one
    np.testing.assert_array_equal(one.coef_, model.coef_)
    assert one.coef_.shape == model.coef_.shape
    assert one.coef_.dtype == model.coef_.dtype


@pytest.mark.parametrize("name", ["squared", "three classes"])
def test_a_sparse_model_can_be_fitted_again(name):
    model = MODELS[name]().set_params(warm_start=True)
    expected = model.coef_
    model.sparsify().fit(data_for(model), U if name == "squared" else WORDS)
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-6, atol=1e-9)


def test_a_million_features(tmp_path):
    """A model of a million features is read, pickled and used as what it is: a handful of numbers."""
    d = 1_200_000
    rows = sp.random_array((30, d), density=2e-5, rng=np.random.default_rng(1), format="csr")
    y = np.where(rows.sum(axis=1) > np.median(rows.sum(axis=1)), "b", "a")
    model = SparseClassifier(k=4, lam=0.1, max_iter=1, solver="iht")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows, y)
    expected = model.predict_proba(rows)
    model.to_json(tmp_path / "model.json")
    assert (tmp_path / "model.json").stat().st_size < 10_000
    back = diht.load_model(tmp_path / "model.json")
    assert sp.issparse(back.coef_)
    np.testing.assert_array_equal(back.predict_proba(rows), expected)
    assert len(pickle.dumps(back)) < 20_000
    assert back.transform(rows).shape == (30, len(model.support_))
    back.to_json(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "model.json").read_bytes()
    np.testing.assert_array_equal(model.sparsify().predict_proba(rows), expected)


def test_importing_the_package_stays_cheap():
    code = "import sys, diht; assert 'sklearn' not in sys.modules and 'numpy' not in sys.modules; diht.load_model"
    subprocess.run([sys.executable, "-c", code], check=True)

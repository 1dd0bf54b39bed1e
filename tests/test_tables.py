"""Tables of any kind: the encoder, data frames in estimators, files and the command line, predictions from few columns."""

import csv
import doctest
import json
import pickle
import subprocess
import sys
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

from awkward import AWKWARD, KNOWN, Case
from diht import (
    SparseClassifier,
    SparseClassifierCV,
    SparseRegressor,
    SparseRegressorCV,
    TableEncoder,
    bootstrap,
    debiased,
    load_model,
    sparse_path,
    stability_selection,
)
from diht.cli import main
from diht.datasets import read_table
from diht.estimators import table_encoder
from diht.persistence.schema import read_model, to_json
from diht.tables import Frame, kind_of
from diht.tables.looks import looks_like_id

RNG = np.random.default_rng(0)
N = 160
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(50, 12, N),
        "port": [*"DDD", *RNG.choice(list("ABC"), N - 3, p=[0.5, 0.3, 0.2])],
        "paid": RNG.random(N) < 0.4,
        "size": pd.Categorical(RNG.choice([1, 2, 3], N)),
        "noise": RNG.normal(size=N),
    }
)
TRUTH = FRAME["age"] / 12 + 2.0 * (FRAME["port"] == "B") - FRAME["paid"]
Y = (TRUTH + 0.3 * RNG.normal(size=N)).to_numpy()
GAPS = FRAME.mask(np.random.default_rng(1).random(FRAME.shape) < 0.07)


def refusal(call, *args, **settings):
    with pytest.raises(ValueError) as caught:
        call(*args, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---------------------------------------------------------------------------------------------------------------------
# The encoder


@parametrize_with_checks([TableEncoder(), TableEncoder(impute="mean"), TableEncoder(impute="indicator")])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_examples_of_the_docstring():
    assert doctest.testmod(table_encoder).failed == 0


@pytest.mark.parametrize("impute", ["median", "mean", "indicator"])
def test_the_encoder_does_what_scikit_learns_do(impute):
    """Imputers and one-hot encoders of scikit-learn, fitted to the same columns, give the same numbers, new levels included."""
    encoder = TableEncoder(impute=impute, min_frequency=8).fit(GAPS)
    new = GAPS.iloc[::-1].copy().astype({"size": object})
    new.loc[new.index[:9], "port"], new.loc[new.index[4:13], "size"] = "Z", 9
    names = encoder.get_feature_names_out().tolist()
    numbers, categories = ["age", "paid", "noise"], ["port", "size"]
    strategy = "mean" if impute == "mean" else "median"
    imputer = SimpleImputer(strategy=strategy, add_indicator=impute == "indicator").fit(GAPS[numbers].astype(float))
    one_hot = OneHotEncoder(
        min_frequency=8, max_categories=30, handle_unknown="infrequent_if_exist", sparse_output=False
    )
    texts = [frame[categories].astype(object).map(_as_level) for frame in (GAPS, new)]
    one_hot.fit(texts[0])
    for frame, levels in ((GAPS, texts[0]), (new, texts[1])):
        encoded = dict(zip(names, np.asarray(encoder.transform(frame)).T, strict=True))
        theirs = imputer.transform(frame[numbers].astype(float))
        flagged = [f"{name} is missing" for name in numbers] if impute == "indicator" else []
        ours = np.column_stack([encoded[name] for name in numbers + flagged])
        np.testing.assert_allclose(ours, theirs, rtol=1e-15)
        columns = [names.index(name) for name in names if "=" in name]
        np.testing.assert_array_equal(encoder.transform(frame)[:, columns], one_hot.transform(levels))
    assert "port=(other)" in names
    assert "size=(other)" not in names


def _as_level(value):
    return "(blank)" if value != value or value is None else str(value)


def test_groups_are_the_categories():
    encoder = TableEncoder(min_frequency=1).fit(FRAME)
    assert encoder.get_feature_names_out().tolist() == [
        "age", "port=A", "port=B", "port=C", "port=D", "paid", "size=1", "size=2", "size=3", "noise",
    ]  # fmt: skip
    assert encoder.groups_.tolist() == [0, 1, 1, 1, 1, 2, 3, 3, 3, 4]
    assert encoder.transform(FRAME).groups.tolist() == encoder.groups_.tolist()
    assert encoder.transform(FRAME)[:, ::-1].groups is None


def test_levels_of_numbers_are_the_same_however_they_are_written():
    encoder = TableEncoder(min_frequency=1).fit(pd.DataFrame({"a": pd.Categorical([1, 2, 1])}))
    for column in (pd.Categorical([2, 2]), [2, 2], [2.0, 2.0], ["2", "2"]):
        assert encoder.encoding_.encode({"a": column}).tolist() == [[0, 1], [0, 1]]


def test_all_columns_with_missing_values_are_named():
    message = refusal(TableEncoder().fit, GAPS)
    for name in GAPS.columns:
        assert f"{name!r} ({GAPS[name].isna().sum()} of {N})" in message
    assert "--impute median" in message
    encoder = TableEncoder().fit(FRAME)
    assert "'age' (1 of 2)" in refusal(encoder.transform, FRAME.iloc[:2].assign(age=[np.nan, 3.0]))


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([1.5, 2.5], "number"),
        (["1.5", "2"], "number"),
        ([True, False], "boolean"),
        (["TRUE", "false"], "boolean"),
        (["yes", "no"], "category"),
        (["a", None], "category"),
        ([None, None], "empty"),
        ([np.nan, np.nan], "empty"),
        (pd.date_range("2024-01-01", periods=2), "date"),
        (["2024-01-01", "2024-02-01 10:00"], "date"),
        (["31.12.2024", None], "date"),
        (["1.2", "3.4.2024"], "category"),
        (pd.array([1, None], dtype="Int64"), "number"),
        (pd.array([True, None], dtype="boolean"), "number"),
        (pd.Series(["a", None], dtype="string"), "category"),
    ],
)
def test_kinds(column, kind):
    assert kind_of(Frame.of(pd.DataFrame({"a": column}))["a"]) == kind


@pytest.mark.parametrize(
    ("name", "column", "looks"),
    [
        ("customer_id", [7, 12, 99], True),
        ("PassengerId", [7, 12, 99], True),
        ("x", list(range(1, 40)), True),
        ("x", list(range(40))[::-1], True),
        ("year", list(range(1980, 2020)), False),
        ("paid", [1, 2, 3], False),
        ("customer_id", [7, 7, 99], False),
        ("customer_id", [7.5, 7, 99], False),
        ("name", [f"person {i}" for i in range(60)], True),
        ("name", [f"person {i % 20}" for i in range(60)], False),
        ("name", ["a", "b", "c"], False),
    ],
)
def test_ids(name, column, looks):
    values = Frame.of({name: column})[name]
    assert looks_like_id(name, values, kind_of(values)) is looks


def test_ids_are_named_and_left_out_unless_they_are_kept():
    frame = FRAME.assign(id=np.arange(N), empty=np.nan)
    with pytest.warns(UserWarning, match=r"'id' looks like an id.*'empty' has no value at all"):
        encoder = TableEncoder().fit(frame)
    assert list(encoder.left_out_) == ["id", "empty"]
    with pytest.warns(UserWarning, match="'empty'"):
        assert "id" in TableEncoder(keep=["id"]).fit(frame).get_feature_names_out()
    chosen = TableEncoder(drop=["id", "empty", "size"]).fit(frame)
    assert chosen.get_feature_names_out()[-1] == "noise"
    assert TableEncoder(only=["paid"]).fit(frame).get_feature_names_out().tolist() == ["paid"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"impute": "mode"}, "impute must be one of"),
        ({"drop": ["agee"]}, "drop names 'agee', which is not among the columns; did you mean 'age'?"),
        ({"only": "age"}, "only must be a list of columns, got 'age'"),
        ({"drop": list(FRAME.columns)}, "at least one column to use"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    assert message in refusal(TableEncoder(**settings).fit, FRAME)


def test_bad_tables_are_refused():
    dates = FRAME.assign(when=pd.date_range("2024-01-01", periods=N))
    assert "'when', such as '2024-01-01" in refusal(TableEncoder().fit, dates)
    assert "--drop when" in refusal(SparseRegressor().fit, dates.assign(other="a"), Y)
    twins = pd.concat([FRAME, FRAME[["age"]]], axis=1)
    assert "two columns named 'age': rename one" in refusal(TableEncoder().fit, twins)
    assert "infinity in column 'age'" in refusal(TableEncoder().fit, FRAME.assign(age=np.inf))
    stray = FRAME.astype({"age": object})
    stray.loc[7, "age"] = "61 years"
    assert "texts among the numbers of 'age' (1 of 160, such as '61 years')" in refusal(TableEncoder().fit, stray)
    named = pd.DataFrame({"a": ["u", "v"] * 9, "a=u": range(5, 23)})
    assert "two encoded columns would be named 'a=u'" in refusal(TableEncoder().fit, named)
    encoder = TableEncoder().fit(FRAME)
    assert "'age' of X must hold a number, as in fit, got 'old'" in refusal(
        encoder.encoding_.encode, FRAME.assign(age="old")
    )


# ---------------------------------------------------------------------------------------------------------------------
# In estimators


def test_estimators_speak_of_the_columns_and_coefficients_of_the_encoded_ones():
    model = SparseRegressor(k=3, lam=0.01).fit(FRAME, Y)
    assert model.n_features_in_ == 5
    assert model.feature_names_in_.tolist() == list(FRAME.columns)
    assert model.get_support().tolist() == [True, True, True, False, False]
    assert model.get_feature_names_out().tolist() == ["age", "port", "paid"]
    assert list(model.transform(FRAME).columns) == ["age", "port", "paid"]
    assert model.coef_.shape == model.coef_names_.shape == (10,)
    used = set(model.coef_names_[model.support_])
    assert used == {"age", "port=A", "port=B", "port=C", "port=(other)", "paid"}
    assert not hasattr(clone(model), "encoder_")
    assert not hasattr(model.set_params(k=1).fit(FRAME[["age", "noise"]], Y), "encoder_")
    assert model.coef_names_.tolist() == ["age", "noise"]


def encoded_problem(names, frame, y, lam):
    """The objective of the best model of some columns, by the normal equations of the encoded, standardised problem."""
    blocks = {
        name: pd.get_dummies(frame[name]).to_numpy(float)
        if frame[name].dtype.kind == "O"
        else frame[[name]].to_numpy(float)
        for name in names
    }
    scaled = [block / np.sqrt(block.var(axis=0).mean()) for block in blocks.values()]
    Z, r = np.hstack([block - block.mean(axis=0) for block in scaled]), y - y.mean()
    w = np.linalg.solve(2 * Z.T @ Z / len(y) + lam * np.eye(Z.shape[1]), 2 * Z.T @ r / len(y))
    return np.mean((r - Z @ w) ** 2) + lam / 2 * w @ w


def test_the_certificate_speaks_of_the_encoded_problem():
    """Against all choices of columns, none of which is a choice of single levels."""
    frame, lam = FRAME.astype({"size": object}).assign(size=lambda t: "s" + t["size"].astype(str)), 0.05
    for k in (1, 2, 3):
        best = min(encoded_problem(chosen, frame, Y, lam) for chosen in combinations(frame.columns, k))
        encoder = TableEncoder(min_frequency=1)
        model = SparseRegressor(k=k, lam=lam, encoder=encoder, exact=True).fit(frame, Y)
        assert model.lower_bound_ <= best
        assert model.objective_ == pytest.approx(best, rel=1e-9)
        assert model.gap_ <= 1e-4 * best


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_pipelines_give_the_same_model(task):
    kind, y = (SparseRegressor, Y) if task == "regression" else (SparseClassifier, np.median(Y) < Y)
    inside = kind(k=2, lam=0.01, encoder=TableEncoder(impute="median")).fit(GAPS, y)
    outside = make_pipeline(TableEncoder(impute="median"), kind(k=2, lam=0.01, groups="auto")).fit(GAPS, y)
    np.testing.assert_allclose(outside[-1].coef_, inside.coef_, rtol=1e-9)
    np.testing.assert_allclose(outside.predict(GAPS), inside.predict(GAPS))
    outside.set_output(transform="pandas").fit(GAPS, y)
    np.testing.assert_allclose(outside[-1].coef_, inside.coef_, rtol=1e-6, atol=1e-9)
    levels = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="(blank)"),
        OneHotEncoder(min_frequency=5, max_categories=30, handle_unknown="infrequent_if_exist", sparse_output=False),
    )
    numbers, texts = ["age", "paid", "noise"], GAPS.astype({"size": object}).assign(paid=GAPS["paid"].astype(float))
    texts["size"] = texts["size"].map(_as_level)
    columns = ColumnTransformer([("n", SimpleImputer(strategy="median"), numbers), ("c", levels, ["port", "size"])])
    sizes = [1, 1, 1, *(len(c.names) for c in inside.encoder_.encoding_.columns if c.kind == "category")]
    theirs = make_pipeline(columns, kind(k=2, lam=0.01, groups=np.repeat(np.arange(5), sizes))).fit(texts, y)
    assert theirs[-1].objective_ == pytest.approx(inside.objective_, rel=1e-9)
    np.testing.assert_allclose(
        np.sort(theirs[-1].coef_, axis=None), np.sort(inside.coef_, axis=None), rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(theirs.predict(texts), inside.predict(GAPS), rtol=1e-6)


def test_groups_auto_needs_an_encoder():
    assert "groups='auto' needs X of a TableEncoder" in refusal(SparseRegressor(groups="auto").fit, FRAME[["age"]], Y)
    assert "groups must be" in refusal(SparseRegressor(groups="none").fit, FRAME[["age"]], Y)
    assert "encoder needs a data frame" in refusal(
        SparseRegressor(encoder=TableEncoder()).fit, FRAME[["age"]].to_numpy(), Y
    )


def test_what_is_asked_of_columns_holds_for_all_that_they_become():
    settings = {"keep": ["size"], "sign": {"age": -1}, "bounds": {"port": (-0.5, 0.5)}, "groups": [0, 1, 2, 3, 2]}
    model = SparseRegressor(k=1, lam=0.01, **settings).fit(FRAME, Y)
    by_name = dict(zip(model.coef_names_, model.coef_, strict=True))
    assert all(by_name[f"size={j}"] for j in (1, 2, 3))
    assert by_name["age"] <= 0
    assert all(abs(value) <= 0.5 for name, value in by_name.items() if name.startswith("port"))
    assert model.groups_.tolist() == [0, 1, 1, 1, 1, 2, 3, 3, 3, 2]
    chosen = SparseRegressorCV(ks=[1], lams=0.01, cv=2, **settings).fit(FRAME, Y)
    np.testing.assert_allclose(chosen.coef_, model.coef_, rtol=1e-5, atol=1e-7)
    path = sparse_path(FRAME, Y, ks=[1], lams=0.01, **settings)
    np.testing.assert_allclose(path.point(1).coef, model.coef_, rtol=1e-5, atol=1e-7)
    assert path.feature_names == tuple(model.coef_names_)


def test_missing_values_of_numbers_are_named_by_their_columns():
    frame = FRAME[["age", "noise"]].mask(RNG.random((N, 2)) < 0.05)
    for kind in (SparseRegressor, SparseRegressorCV):
        message = refusal(kind().fit, frame, Y)
        assert "'age' (" in message
        assert "'noise' (" in message


def test_a_fitted_estimator_needs_its_own_columns_only():
    model = SparseRegressor(k=2, lam=0.01).fit(FRAME, Y)
    np.testing.assert_array_equal(model.predict(FRAME[["port", "age"]]), model.predict(FRAME))
    unseen = FRAME[["age"]].assign(port="Q")
    assert np.isfinite(model.predict(unseen)).all()
    assert "no column 'port'" in refusal(model.predict, FRAME[["age"]])
    plain = SparseRegressor(k=1, lam=0.01).fit(FRAME[["noise", "age", "paid"]], Y)
    np.testing.assert_allclose(plain.predict(FRAME[["age"]]), plain.predict(FRAME[["noise", "age", "paid"]]))
    with pytest.raises(ValueError, match="yet now missing"):
        plain.predict(FRAME[["noise"]])
    with pytest.raises(ValueError, match="same order"):
        plain.predict(FRAME[["age", "noise", "paid"]])


@pytest.mark.filterwarnings("ignore:the columns of the support are linearly dependent:UserWarning")  # levels sum to one
def test_what_comes_after_a_fit_takes_data_frames():
    model = SparseRegressor(k=2, lam=0.01).fit(FRAME, Y)
    assert list(bootstrap(model, FRAME, Y, n_resamples=5, random_state=0).to_frame()["feature"])[:2] == [
        "age",
        "port=A",
    ]
    assert "port=B" in stability_selection(model, FRAME, Y, n_resamples=4, random_state=0).get_feature_names_out()
    assert debiased(model, FRAME, Y).predict(FRAME).shape == (N,)
    chosen = SparseClassifierCV(ks=[1, 2], lams=0.1, cv=3).fit(FRAME, Y > 5)
    assert chosen.n_features_in_ == 5
    assert chosen.score(FRAME, Y > 5) > 0.8
    assert set(chosen.get_feature_names_out()) <= set(FRAME.columns)


@pytest.mark.parametrize("impute", ["median", "indicator"])
@pytest.mark.parametrize("classes", [False, True])
def test_folds_encode_their_training_samples_alone(impute, classes):
    """The scores are those of pipelines fitted by hand to the rows of each fold; rare levels and medians differ by fold."""
    table, y = GAPS.assign(rare=[*["one"] * 6, *["two"] * (N - 6)]), Y > 5 if classes else Y
    folds = [(np.setdiff1d(np.arange(N), rows), rows) for rows in (np.arange(60), np.arange(60, N, 2))]
    encoder, scoring = TableEncoder(impute=impute), "neg_log_loss" if classes else "neg_mean_squared_error"
    settings = {"ks": [1, 3], "lams": 0.05, "cv": folds, "encoder": encoder, "scoring": scoring, "n_jobs": 2}
    chosen = (SparseClassifierCV if classes else SparseRegressorCV)(**settings).fit(table, y)
    assert chosen.coef_names_.tolist() == encoder.fit(table).get_feature_names_out().tolist()
    for k, *scores in zip([1, 3], *(chosen.cv_results_[f"split{i}_test_score"] for i in range(2)), strict=True):
        plain = (SparseClassifier if classes else SparseRegressor)(k=k, lam=0.05, groups="auto")
        by_hand = cross_val_score(make_pipeline(encoder, plain), table, y, cv=folds, scoring=scoring)
        np.testing.assert_allclose(scores, by_hand, rtol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Files, and predictions with numpy alone

MODELS = {
    "regression": lambda: SparseRegressor(k=2, lam=0.01, encoder=TableEncoder(impute="indicator")).fit(GAPS, Y),
    "classes": lambda: SparseClassifier(k=2, lam=0.01).fit(FRAME, Y > 5),
    "three classes": lambda: SparseClassifier(k=3, lam=0.01).fit(FRAME, np.digitize(Y, [4, 6])),
    "kept": lambda: SparseRegressor(k=1, keep=["size"], sign={"paid": -1}, groups=[0, 1, 2, 3, 2]).fit(FRAME, Y),
    "cv": lambda: SparseRegressorCV(ks=[1, 2], lams=0.1, cv=2).fit(FRAME, Y),
}  # fmt: skip


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_files_hold_encoders_and_predict_as_the_estimator_does(make, tmp_path):
    model = make()
    model.to_json(tmp_path / "model.json")
    back = load_model(tmp_path / "model.json")
    new = FRAME.assign(port=np.where(np.arange(N) % 5, FRAME["port"], "Z"))
    for data in (FRAME, new, GAPS if hasattr(model, "encoder") and model.encoder else FRAME):
        np.testing.assert_allclose(
            np.asarray(back.predict(data), float), np.asarray(model.predict(data), float), rtol=1e-12
        )
        if hasattr(model, "predict_proba"):
            np.testing.assert_allclose(back.predict_proba(data), model.predict_proba(data), rtol=1e-9)
    few = new[list(back.needed_)[::-1]]
    np.testing.assert_array_equal(back.predict(few), back.predict(new))
    np.testing.assert_array_equal(back.predict(few.to_dict("records")), back.predict(new))
    np.testing.assert_array_equal(back.predict(few.to_dict("list")), back.predict(new))
    estimator = back.estimator_
    close = {"rtol": 1e-12} if estimator._task == "regression" else {}
    np.testing.assert_allclose(estimator.predict(few), back.predict(new), **close)
    np.testing.assert_array_equal(estimator.get_support(), model.get_support())
    assert estimator.coef_names_.tolist() == model.coef_names_.tolist()
    back.to_json(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "model.json").read_bytes()
    wanted = estimator._wanted(estimator.coef_.shape[-1])
    if hasattr(model, "k"):
        assert str(estimator._constraint(estimator.coef_.shape[-1])) == str(model._constraint(model.coef_.shape[-1]))
    assert (wanted.groups is None) == (model.groups_ is None)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_reduced_models_know_their_own_columns_only(make, tmp_path):
    model = make()
    small = model.reduced()
    assert set(small.feature_names_in_) == set(load_and_back(model, tmp_path).needed_)
    few = FRAME[list(small.feature_names_in_)]
    np.testing.assert_allclose(
        np.asarray(small.predict(few), float), np.asarray(model.predict(FRAME), float), rtol=1e-12
    )
    twin = pickle.loads(pickle.dumps(small))
    np.testing.assert_array_equal(twin.predict(few), small.predict(few))
    np.testing.assert_array_equal(load_and_back(small, tmp_path).predict(few), small.predict(few))
    assert small.lower_bound_ == pytest.approx(model.lower_bound_)


def load_and_back(model, folder):
    model.to_json(folder / "model.json")
    return load_model(folder / "model.json")


def test_plain_models_take_columns_in_any_order(tmp_path):
    X = FRAME[["age", "noise", "paid"]]
    model = SparseRegressor(k=2, lam=0.01).fit(X, Y)
    for small in (load_and_back(model, tmp_path), model.reduced()):
        np.testing.assert_allclose(small.predict(FRAME[["paid", "age"]]), model.predict(X), rtol=1e-12)
        assert "no column 'age'" in refusal(small.predict, FRAME[["paid"]])
        assert "'age' (1 of 1)" in refusal(small.predict, [{"age": None, "paid": True}])
    rows = X.to_numpy(float)
    nameless = SparseRegressor(k=1, lam=0.01).fit(rows, Y)
    np.testing.assert_allclose(nameless.reduced().predict(X[["age"]].to_numpy()), nameless.predict(rows))
    np.testing.assert_allclose(load_and_back(nameless, tmp_path).predict(rows.tolist()), nameless.predict(rows))


def test_reading_and_predicting_need_numpy_alone(tmp_path):
    MODELS["classes"]().to_json(tmp_path / "model.json")
    code = f"""
import sys, diht
model = diht.load_model({str(tmp_path / "model.json")!r})
print(model, model.predict([{{"age": 61, "port": "B"}}]), model.predict_proba({{"age": [61], "port": ["?"]}}))
heavy = {{"scipy", "sklearn", "numba", "pandas", "joblib", "matplotlib"}}
print("imported:", *sorted({{name.split(".")[0] for name in sys.modules}} & heavy))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    said, modules = done.stdout.splitlines()
    assert "Predictor(classification, logistic loss: age, port)" in said
    assert modules == "imported:"


def test_a_loaded_model_is_an_estimator_where_one_is_asked_for(tmp_path):
    model = MODELS["classes"]()
    back = load_and_back(model, tmp_path)
    assert type(clone(back)) is SparseClassifier
    assert back.score(FRAME, Y > 5) == model.score(FRAME, Y > 5)
    assert back.fit(FRAME, Y > 5).gap_ == pytest.approx(model.gap_)
    assert not hasattr(load_and_back(MODELS["regression"](), tmp_path), "predict_proba")
    with pytest.raises(AttributeError):
        back.no_such_thing  # noqa: B018


def changed(**changes):
    content = json.loads(to_json(MODELS["classes"]()._saved()))
    del content["checksum"]
    content["encoders"][1] |= changes
    return json.dumps(content)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "date"}, r"encoders\[1\].kind: expected one of"),
        ({"levels": ["A", "A"]}, "a level comes twice"),
        ({"levels": ["A"]}, "feature_names: not the names of the columns that the encoders make"),
        ({"levels": [], "other": False}, "no level"),
        ({"fill": 1.0}, "more is said than a column of kind 'category' has"),
        ({"column": "age"}, "a column comes twice"),
        ({"column": 3}, "column: expected a text"),
        ({"run": "me"}, "unknown entry 'run'"),
    ],
)
def test_bad_encoders(tmp_path, changes, message):
    (tmp_path / "model.json").write_text(changed(**changes))
    with pytest.raises(ValueError, match=message):
        load_model(tmp_path / "model.json")


# ---------------------------------------------------------------------------------------------------------------------
# The command line


def run(capsys, *arguments):
    """Run the command and return its status, output and complaint."""
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("make", [*AWKWARD, *KNOWN], ids=lambda make: make.__name__)
def test_each_table_is_fitted_or_says_what_to_do(make, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case: Case = make(tmp_path)
    fit = ["fit", case.path, "--target", case.target, "--quiet"]
    if case.refused:
        status, out, said = run(capsys, *fit)
        assert status == 2
        assert case.refused in said
        assert said.count("\n") == 1
        assert "Data" not in out
    if not case.options:
        return
    status, out, said = run(capsys, *fit, *case.options)
    assert status == 0, said
    assert out.rstrip().endswith("Report:  diht-report/report.html")
    model = read_model("diht-report/model.json")
    assert set(case.uses) <= set(model.needed)
    for name in case.left_out:
        assert f'"{name}"' in out
        assert name not in (model.input_names or ())
    new = tmp_path / "new.csv"
    names = list(dict.fromkeys(name for row in case.new for name in row))
    with new.open("w", newline="") as file:
        csv.writer(file).writerows([names, *([row.get(name, "") for name in names] for row in case.new)])
    status, out, said = run(capsys, "predict", "diht-report/model.json", new)
    assert status == 0, said
    assert len(list(csv.reader(out.splitlines()))) == 1 + len(case.new)
    expected = load_model("diht-report/model.json").predict(read_table(new, [], needs_target=False, texts=True).frame)
    assert [row[0] for row in csv.reader(out.splitlines()[1:])] == [str(value) for value in expected]
    status, out, said = run(capsys, "report", "diht-report/model.json", case.path)
    assert status == 0, said
    assert (tmp_path / "diht-report" / "report.html").stat().st_size > 1000


@pytest.mark.parametrize("make", [AWKWARD[0], AWKWARD[2], KNOWN[3]], ids=lambda make: make.__name__)
def test_the_command_and_python_fit_the_same_model(make, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case: Case = make(tmp_path)
    assert run(capsys, "fit", case.path, "--target", case.target, "--quiet", *case.options)[0] == 0
    written = read_model("diht-report/model.json")
    comma = ";" in case.path.read_text().splitlines()[0]
    frame = pd.read_csv(case.path, sep=";" if comma else ",", decimal="," if comma else ".")
    dropped = [case.target, *[name for name in frame if name in ("joined", "Unnamed: 0")]]
    model = SparseRegressor(k=2).fit(frame.drop(columns=dropped), frame[case.target])
    assert model.objective_ == pytest.approx(written.worst.objective, rel=1e-9)
    assert tuple(model.coef_names_[model.support_]) == tuple(written.name(j) for j in written.support)
    status, out, _ = run(capsys, "certify", "diht-report/model.json", case.path, "--quiet")
    assert status == 0
    assert f"objective {written.worst.objective:.6g}" in " ".join(out.split())


def test_options_for_columns(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    case = KNOWN[3](tmp_path)
    fit = ["fit", case.path, "--target", "mpg", "--quiet", "--k", "2"]
    assert run(capsys, *fit, "--only", "wt", "--only", "gear")[0] == 0
    assert set(read_model("diht-report/model.json").input_names) == {"wt", "gear"}
    assert "--drop names 'weight'" in run(capsys, *fit, "--drop", "weight")[2]
    assert run(capsys, *fit, "--keep", "x0")[0] == 0
    assert "x0" in read_model("diht-report/model.json").input_names
    (tmp_path / "a.svm").write_text("1 1:2 2:3\n0 1:1 2:5\n1 1:4\n")
    assert "needs a CSV or Parquet file" in run(capsys, "fit", "a.svm", "--drop", "x")[2]
    (tmp_path / "few.csv").write_text("gear\n3\n")
    said = run(capsys, "predict", "diht-report/model.json", "few.csv")[2]
    assert "few.csv: no column 'cyl', 'wt', which the model needs" in said


def test_a_target_of_names_is_refused(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("x,name\n" + "".join(f"{i % 7},person {i}\n" for i in range(50)))
    status, _, said = run(capsys, "fit", path, "--out", tmp_path / "out")
    assert status == 2
    assert "the target 'name' has 50 different texts in 50 samples" in said


def test_parquet_files_with_texts(tmp_path, capsys, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    GAPS.assign(y=Y).to_parquet("a.parquet")
    assert "missing values in 'age'" in run(capsys, "fit", "a.parquet", "--quiet")[2]
    assert run(capsys, "fit", "a.parquet", "--quiet", "--k", "2", "--impute", "median")[0] == 0
    model = SparseRegressor(k=2, encoder=TableEncoder(impute="median")).fit(GAPS, Y)
    assert read_model("diht-report/model.json").worst.objective == pytest.approx(model.objective_, rel=1e-9)
    assert run(capsys, "predict", "diht-report/model.json", "a.parquet")[0] == 0


def test_scores_of_samples_that_were_not_fitted(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    FRAME.assign(y=np.where(Y > 5, "high", "low")).to_csv("a.csv", index=False)
    status, out, said = run(capsys, "fit", "a.csv", "--quiet", "--k", "cv", "--cv", "3", "--test-fraction", "0.25")
    assert status == 0, said
    for words in (
        "Chosen by 3-fold",
        "accuracy",
        "AUC",
        "log loss",
        "Brier",
        "3-fold cross-validation (120",
        "held out (40",
    ):
        assert words in out
    model = load_model("diht-report/model.json")
    assert model.saved_.data.n_samples == 120
    FRAME.assign(y=Y).to_csv("b.csv", index=False)
    status, out, said = run(capsys, "fit", "b.csv", "--quiet", "--k", "2", "--cv", "4")
    assert status == 0, said
    assert "R2" in out
    assert "RMSE" in out
    assert "4-fold cross-validation (160 samples)" in out
    with pytest.raises(SystemExit):
        main(["fit", "b.csv", "--test-fraction", "1.5"])
    assert "argument --test-fraction: must be a number between 0 and 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["52.5%", "-3 %"], [52.5, -3]),
        (["$1,000.50", "-$7"], [1000.5, -7]),
        (["1 234 567", "5\u202f000"], [1234567, 5000]),
        (["1.234.567,5 €", "2,5 €"], [1234567.5, 2.5]),
    ],
)
def test_numbers_as_spreadsheets_show_them(tmp_path, cells, numbers):
    (tmp_path / "a.csv").write_text("x|c|y\n" + "".join(f"{cell}|u|{cell}\n" for cell in cells), encoding="utf-16")
    table = read_table(tmp_path / "a.csv", texts=True)
    assert [float(value) for value in table.X["x"]] == table.y.tolist() == numbers


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([f"{150 + i} cm,{i}" for i in range(30)], "texts among the numbers of 'x' (30 of 30, such as '150 cm')"),
        ([f"({i}),{i}" if i % 2 else f"{i},{i}" for i in range(60)], "texts among the numbers of 'x' (30 of 60"),
        ([f"{1 + i % 28}-Mar-2024,{i}" for i in range(30)], "holds dates in 'x', such as '1-Mar-2024'"),
        (["1,2", "2,"], "line 3, column 'y': missing value (empty cell); leave out rows without a target"),
        (["1,2\r3,4"], "its lines end in carriage returns alone"),
    ],
)
def test_one_line_says_what_is_wrong(tmp_path, capsys, rows, says):
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *rows, ""]), newline="")
    status, _, said = run(capsys, "fit", tmp_path / "a.csv", "--out", tmp_path / "out")
    assert (status, said.count("\n")) == (2, 1)
    assert says in said


def test_lines_that_end_in_a_separator(tmp_path):
    for text in ("a,b,y,\n1,u,3,\n2,v,4,\n", "a,b,y\n1,u,3,\n2,v,4\n"):
        (tmp_path / "a.csv").write_text(text)
        table = read_table(tmp_path / "a.csv", texts=True)
        assert (table.target_names, table.y.tolist()) == (["y"], [3, 4])
    (tmp_path / "a.txt").write_text("x,y\n1,2\n")
    assert "a table is named .csv or .tsv" in refusal(read_table, tmp_path / "a.txt")


def test_separators_and_commas(tmp_path):
    def columns(text, **settings):
        path = tmp_path / "a.csv"
        path.write_text(text)
        return read_table(path, texts=True, **settings)

    assert columns("a;y\n1;1,5\n2;-2,25\n").y.tolist() == [1.5, -2.25]
    table = columns("1,5;2;x\n2,5;3;y\n")
    assert table.X.tolist() == [[1.5, 2.0], [2.5, 3.0]]
    table = columns('a,b,y\n"1,234",u,1\n"12,345.5",v,2\n')
    assert table.X["a"].tolist() == ["1234", "12345.5"]
    table = columns("a;b;y\n1,234;u;1\n-,5;v;2\n")
    assert table.X["a"].tolist() == ["1.234", "-.5"]
    table = columns('a,b,y\n"1,5",u,1\n"2,25",v,2\n')
    assert table.X["a"].tolist() == ["1.5", "2.25"]
    table = columns('a,b,y\n"1,5",u,1\n"x, y",v,2\n')
    assert table.X["a"].tolist() == ["1,5", "x, y"]
    assert "both named 'a': rename one" in refusal(columns, "a,a,y\n1,2,3\n")
    assert "line 3: 2 cells, where the first has 3" in refusal(columns, "a,b,y\n1,u,3\n1,2\n")

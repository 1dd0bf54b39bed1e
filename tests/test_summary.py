"""What is shown of a model on one screen: the figures against independent computation, text, tables, notebooks."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, r2_score, roc_auc_score, root_mean_squared_error
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

from diht import (
    Problem,
    SparseClassifier,
    SparseClassifierCV,
    SparseRegressor,
    bootstrap,
    debiased,
    solve,
    sparse_path,
)
from diht.losses import Logistic
from diht.report.scores import scores

RNG = np.random.default_rng(3)
X = RNG.normal(size=(150, 6)) * [1, 10, 0.1, 1, 5, 1]
U = X @ [1.0, 0.1, -8.0, 0.0, 0.1, 0.0] + 0.8 * RNG.normal(size=150)
NAMES = ["age", "height in a long name of more than twenty-eight letters", "<b>dose</b>", "d", "e", "f"]
FRAME = pd.DataFrame(X, columns=NAMES)
SICK = np.where(U + RNG.normal(size=150) > 0, "sick", "well")


def test_columns_of_a_logistic_model_against_scikit_learn():
    """Coefficients, effects of a standard deviation and odds ratios, from a ridge on standardised columns by another solver."""
    lam = 0.02
    model = SparseClassifier(k=3, lam=lam).fit(FRAME, SICK)
    table = model.summary().to_frame().set_index("feature")
    chosen = [NAMES[j] for j in model.support_]
    assert set(table.index) == {*chosen, "(intercept)"}
    Z = StandardScaler().fit_transform(FRAME[chosen])
    other = LogisticRegression(C=1 / (lam * len(Z)), tol=1e-10, max_iter=10000).fit(Z, SICK)
    own = table.loc[chosen]
    np.testing.assert_allclose(own["per s.d."], other.coef_[0], rtol=1e-4)
    np.testing.assert_allclose(own["coefficient"], other.coef_[0] / FRAME[chosen].std(ddof=0), rtol=1e-4)
    row = FRAME[chosen].mean().to_frame().T
    for name, deviation in FRAME[chosen].std(ddof=0).items():
        odds = [expit_odds(model, row.assign(**{name: row[name] + step})) for step in (0.0, 1.0, deviation)]
        assert own.loc[name, "odds ratio"] == pytest.approx(odds[1] / odds[0], rel=1e-9)
        assert own.loc[name, "ratio per s.d."] == pytest.approx(odds[2] / odds[0], rel=1e-9)


def expit_odds(model, row):
    p = model.predict_proba(row.reindex(columns=NAMES, fill_value=0.0))[0]
    return p[1] / p[0]


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_drop_costs_against_exact_fits_without_the_feature(loss):
    """No model without the feature is better than its drop cost says: the best one of them is found by branch and bound."""
    kind, y = (SparseClassifier, SICK) if loss == "logistic" else (SparseRegressor, U)
    model = kind(k=2, lam=0.05).fit(FRAME, y)
    costs = model.summary().to_frame().set_index("feature")["drop cost"].dropna()
    assert len(costs)
    for name, cost in costs.items():
        without = kind(k=2, lam=0.05, exact=True, tol=1e-7).fit(FRAME.drop(columns=name), y)
        assert 0 < cost <= without.objective_ - model.objective_ + 1e-9


def test_text():
    model = SparseClassifier(k=3, lam=0.02).fit(FRAME, SICK)
    text = str(model.summary(FRAME, SICK))
    assert repr(model.summary(FRAME, SICK)) == text
    lines = text.splitlines()
    assert lines[0] == "SparseClassifier: 3 of 6 features, logistic loss, lam = 0.02"
    assert max(map(len, lines)) <= 100
    assert "height in a long name of ..." in text
    assert "best possible with at most 3 features" in " ".join(text.split())
    assert 'A positive coefficient speaks for "well"' in text
    assert f"On 150 samples: accuracy {model.score(FRAME, SICK):.4g}, AUC 0." in text
    assert f"{model.coef_[0, model.support_[0]]:.5g}" in text


def test_what_other_losses_have():
    counts = SparseRegressor(k=2, loss="poisson").fit(X, np.round(np.exp(0.3 * U)))
    assert "mean ratio" in counts.summary().columns(0)
    plain = SparseRegressor(k=2, standardize=False).fit(X, U).summary()
    assert not {"per s.d.", "odds ratio", "mean ratio"} & set(plain.columns(0))
    several = SparseClassifier(k=2).fit(X, np.digitize(U, [-1, 1])).summary()
    assert "odds ratio" not in several.columns(0)  # exp of a softmax's coefficient is none
    assert str(several).count("For class") == 3
    assert several.to_frame()["equation"].nunique() == 3
    apart = SparseClassifier(k=2, multiclass="ovr").fit(X, np.digitize(U, [-1, 1])).summary()
    assert "odds ratio" in apart.columns(0)
    kept = str(SparseRegressor(k=1, keep=[4]).fit(X, U).summary())
    assert re.search(r"x4 .* kept\n|feature 4 .* kept\n", kept)
    nothing = str(SparseRegressor(k=1, lam=0.1).fit(np.ones((9, 2)), U[:9]).summary())
    assert "0 of 2 features" in nothing
    chosen = SparseClassifierCV(ks=[1, 2], lams=0.1, cv=2).fit(X, SICK).summary()
    assert str(chosen).startswith("SparseClassifierCV: ")
    many = RNG.normal(size=(80, 60))
    assert "... and 5 more" in str(SparseRegressor(k=55, lam=1.0).fit(many, many.sum(axis=1)).summary())


def test_intervals_and_their_caveat():
    model = SparseClassifier(k=2, lam=0.02).fit(FRAME[:100], SICK[:100])
    found = bootstrap(model, FRAME[100:], SICK[100:], n_resamples=20, random_state=0)
    summary = model.summary(intervals=found)
    table = summary.to_frame().set_index("feature")
    for name, low, high in zip(found.names, found.low, found.high, strict=True):
        assert tuple(table.loc["(intercept)" if name == "intercept" else name, ["low", "high"]]) == (low, high)
    assert "bootstrap intervals of 95%" in str(summary)
    assert "the intervals are too short" in " ".join(str(summary).split())
    anew = bootstrap(model, FRAME, SICK, n_resamples=5, random_state=0, reselect=True)
    assert "chosen anew in every resample" in str(model.summary(intervals=anew))


def test_scores_against_scikit_learn():
    p = RNG.dirichlet(np.ones(3), size=60)
    y = np.array(["a", "b", "c"])[RNG.integers(0, 3, 60)]
    classes = ["a", "b", "c"]
    predicted = np.array(classes)[p.argmax(axis=1)]
    found = scores(y, predicted, p, classes)
    assert found["accuracy"] == accuracy_score(y, predicted)
    assert found["AUC"] == pytest.approx(roc_auc_score(y, p, multi_class="ovr"))
    assert found["log loss"] == pytest.approx(log_loss(y, p))
    assert found["Brier"] == pytest.approx(brier_score_loss(y, p, labels=classes, scale_by_half=False))
    q, z = np.round(RNG.random(60), 1), RNG.integers(0, 2, 60)
    two = scores(z, (q > 0.5).astype(int), np.column_stack([1 - q, q]), [0, 1])
    assert two["AUC"] == pytest.approx(roc_auc_score(z, q))
    assert two["Brier"] == pytest.approx(brier_score_loss(z, q))
    assert "AUC" not in scores(np.zeros(3, int), np.zeros(3, int), np.full((3, 2), 0.5), [0, 1])
    t, u = RNG.normal(size=(2, 50, 2))
    found = scores(t, u, None, None)
    assert found["R2"] == pytest.approx(r2_score(t, u))
    assert found["RMSE"] == pytest.approx(np.sqrt(np.square(t - u).mean()))
    assert scores(t[:, 0], u[:, 0], None, None)["RMSE"] == pytest.approx(root_mean_squared_error(t[:, 0], u[:, 0]))
    assert "R2" not in scores(np.ones(3), np.zeros(3), None, None)


def test_bad_data():
    model = SparseRegressor(k=2).fit(X, U)
    for arguments in ((X, None), (None, U)):
        with pytest.raises(ValueError, match="X and y must be given together"):
            model.summary(*arguments)
    with pytest.raises(ValueError, match="not fitted"):
        SparseRegressor(k=2).summary()


# In notebooks


def test_scikit_learns_display_is_kept_and_extended():
    model = SparseClassifier(k=2)
    unfitted = model._repr_html_()
    assert "sk-top-container" in unfitted
    assert "diht-summary" not in unfitted
    model.fit(FRAME, SICK)
    for html in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        assert "sk-top-container" in html
        assert html.count("diht-summary") == 1
        assert "best possible with at most 2 features" in html
        assert "<b>dose" not in html
    assert model._repr_mimebundle_()["text/plain"] == repr(model)
    assert "sk-top-container" in estimator_html_repr(make_pipeline(StandardScaler(), model))
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert "text/html" not in model._repr_mimebundle_()
    bare = debiased(model, FRAME, SICK)._repr_html_()
    assert "sk-top-container" in bare
    assert "diht-summary" not in bare


def test_results_certificates_and_paths():
    problem = Problem(X, np.where(U > 0, 1.0, -1.0), Logistic(), k=2, lam=0.1, fit_intercept=True)
    result = solve(problem)
    assert max(map(len, str(result.certificate).splitlines())) <= 80
    for html, words in (
        (result.certificate._repr_html_(), ("objective", "lower bound", "gap")),
        (result._repr_html_(), ("features", "objective", "Auto(random_state=0)")),
    ):
        assert html.startswith("<table>")
        assert all(word in html for word in words)
    path = sparse_path(FRAME, SICK, ks=[1, 2, 6], lams=[0.01, 0.1], loss="logistic")
    lines = repr(path).splitlines()
    assert lines[0] == "Path of 6 models: logistic loss, 150 samples, 6 features"
    assert lines[1].split() == ["k", "lam", "features", "objective", "lower", "bound", "gap", "required", "BIC"]
    assert len(lines) == 8
    assert len({len(line) for line in lines[1:]}) == 1
    assert "<td>0.01</td>" in path._repr_html_()
    assert repr(sparse_path(X, U, ks=[2])).splitlines()[1].split()[:2] == ["k", "features"]
    long = sparse_path(np.tile(X, (1, 8)) + RNG.normal(size=(150, 48)), U, ks=range(1, 46), lams=1.0)
    assert len(repr(long).splitlines()) == 43

"""The audit's own arithmetic: fits, searches along columns and swaps, beside scipy and an enumeration."""

import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize, minimize_scalar

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

from swap_audit import FORMULAS, Case, Oracle, audit, table


def data(loss: str, convert=np.asarray):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 8)) * (rng.random((40, 8)) < 0.6)
    signal = X[:, :3] @ [2.0, -1.0, 1.5] + 0.5 * rng.standard_normal(40)
    y = signal if loss in ("squared", "huber") else np.where(signal > 0, 1.0, -1.0)
    return convert(X), y


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("loss", FORMULAS)
def test_fits_and_searches_along_columns(loss, convert):
    X, y = data(loss, convert)
    oracle, support = Oracle.of(X, y, loss, 0.01), np.array([0, 4, 6])
    fit = oracle.fit(support)
    Z = oracle.columns(np.arange(8))

    def value(w, b):
        return np.mean(FORMULAS[loss].value(Z @ w + b, y)) + 0.005 * w @ w

    def on_support(x):
        return value(np.bincount(support, x[:-1], minlength=8), x[-1])

    assert fit.objective == pytest.approx(on_support(np.append(fit.w, fit.b)), rel=1e-12)
    assert fit.objective <= minimize(on_support, np.zeros(4), tol=1e-12).fun * (1 + 1e-12)
    w = np.bincount(support, fit.w, minlength=8)
    others, changes = np.setdiff1d(np.arange(8), support), []
    for j, (change, t) in zip(others, np.transpose(oracle.along(others, fit.u)), strict=True):
        best = minimize_scalar(lambda t, j=j: value(w + t * np.eye(8)[j], fit.b), tol=1e-12)
        assert fit.objective + change == pytest.approx(best.fun, rel=1e-9)
        assert t == pytest.approx(best.x, rel=1e-3, abs=1e-5)
        changes.append(change)
    found, t = oracle.best_along(fit.u, 0.0, support, 3)
    assert found.tolist() == others[np.argsort(changes)[:3]].tolist()
    assert t == pytest.approx(oracle.along(found, fit.u)[1], rel=1e-9)


@pytest.mark.parametrize("loss", FORMULAS)
def test_a_swap_that_improves_is_found(loss):
    X, y = data(loss)
    oracle, support = Oracle.of(X, y, loss, 0.01), np.array([0, 5, 6])
    best = oracle.fit(support)
    swaps = {(i, j): oracle.fit(np.append(support[support != i], j)) for i in support for j in (1, 2, 3, 4, 7)}
    found = {(i, j): objective for i, j, objective in oracle.swaps(best, 100)}
    for pair, fit in swaps.items():
        if fit.objective < best.objective:
            assert found[pair] == pytest.approx(fit.objective, rel=1e-9)
    assert min(found.values()) < best.objective


def test_a_row_of_the_table():
    X, y = data("logistic")
    row = audit(Case("made", "raw", "logistic", 3, 0.01), X, y, 100)
    assert row["improving"] == 0
    assert row["refitted"] == pytest.approx(row["objective"], rel=1e-8)
    assert "0 that a swap improves" in list(table([row]))[-1]

"""Scorecards beside FasterRisk's: loss, AUC, calibration, time, and what is proved of the price of whole numbers.

    python benchmarks/scorecards.py --data FOLDER --peer PYTHON > scorecards.md

FOLDER holds `a9a/adult.trn.bz2` and `adult.tst.bz2`. Breast cancer comes with scikit-learn: columns are cut at their deciles into
zeros and ones, every third sample is held out. PYTHON is an interpreter with fasterrisk, which needs another numpy than ours.
Points are between -5 and 5. Both cards are fitted and calibrated on the same samples. Of FasterRisk's pool, at its defaults, the
card with the least loss is taken, as it is and with slope and intercept fitted anew. Processor seconds, one thread, kernels warm.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy

import numpy as np
from sklearn.datasets import load_breast_cancer, load_svmlight_file
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from diht import SparseClassifier, scorecard
from measure import machine

SIZES, RIDGES, POINTS = (5, 10), (1e-4, 1e-3), 5
PEER = """
import json, sys, time
import numpy as np
from fasterrisk.fasterrisk import RiskScoreOptimizer
given = np.load(sys.argv[1])
X = np.column_stack([np.ones(len(given["y"])), given["X"]])
began = time.process_time()
search = RiskScoreOptimizer(X, given["y"], k=int(sys.argv[2]))
search.optimize()
seconds = time.process_time() - began
multipliers, intercepts, points = search.get_models()
points = points[:, points.shape[1] - X.shape[1] + 1 :]  # without the intercept's
u = (intercepts + X[:, 1:] @ points.T) / multipliers
losses = np.logaddexp(0.0, -given["y"][:, None] * u).mean(axis=0)
best = int(np.argmin(losses))
print(json.dumps({"seconds": seconds, "points": points[best].tolist(), "slope": 1.0 / float(multipliers[best]),
                  "intercept": float(intercepts[best]) / float(multipliers[best])}))
"""


def tables(folder: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield a name, and columns and classes to fit and to test."""
    X, y = load_breast_cancer(return_X_y=True)
    cuts = [np.unique(np.quantile(X[::3], np.arange(1, 10) / 10, axis=0)[:, j]) for j in range(X.shape[1])]
    Z = np.column_stack([X[:, j] <= cut for j, own in enumerate(cuts) for cut in own]).astype(float)
    test = np.arange(len(y)) % 3 == 2
    yield "breast cancer", Z[~test], y[~test], Z[test], y[test]
    parts = [load_svmlight_file(str(folder / "a9a" / f"adult.{part}.bz2"), n_features=123) for part in ("trn", "tst")]
    (X, y), (X_test, y_test) = parts
    yield "a9a", X.toarray(), (y > 0).astype(int), X_test.toarray(), (y_test > 0).astype(int)


def peer(python: str, X: np.ndarray, y: np.ndarray, k: int) -> dict[str, object]:
    """Run FasterRisk in its own interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/data.npz", X=X, y=np.where(y > 0, 1.0, -1.0))
        command = [python, "-c", PEER, f"{folder}/data.npz", str(k)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(name: str, k: int, who: str, p: list[np.ndarray], y: list[np.ndarray], seconds: str, proved: str) -> str:
    """Return a line: losses and AUC of the samples of the fit and of others, Brier score and calibration error of the others."""
    bins = np.minimum((p[1] * 10).astype(int), 9)
    error = sum(abs(p[1][bins == i].sum() - y[1][bins == i].sum()) for i in range(10)) / len(y[1])
    figures = f"{log_loss(y[0], p[0]):.5f} | {log_loss(y[1], p[1]):.5f} | {roc_auc_score(y[1], p[1]):.4f}"
    return f"| {name} | {k} | {who} | {figures} | {brier_score_loss(y[1], p[1]):.4f} | {error:.4f} | {seconds} | {proved} |"


def ours(name: str, X: list[np.ndarray], y: list[np.ndarray], k: int) -> Iterator[str]:
    """Return the lines of models and of their cards."""
    for lam in RIDGES:
        settings = {"k": k, "lam": lam, "n_jobs": 1}
        SparseClassifier(**settings, time_limit=1.0).fit(X[0], y[0])  # compiles
        began = process_time()
        model = SparseClassifier(**settings).fit(X[0], y[0])
        fitted = process_time()
        card = scorecard(model, X[0], y[0], POINTS)
        ended = process_time()
        p, proved = [model.predict_proba(Z)[:, 1] for Z in X], f"{model.result_.relative_gap:.2%}"
        yield row(name, k, f"model, lam = {lam:g}", p, y, f"{fitted - began:.2f}", proved)
        p = [card.predict_proba(Z)[:, 1] for Z in X]
        yield row(name, k, "its card", p, y, f"+ {ended - fitted:.2f}", f"{card.price:.2%}")


def theirs(name: str, X: list[np.ndarray], y: list[np.ndarray], k: int, python: str) -> Iterator[str]:
    """Return the lines of FasterRisk's card."""
    found = peer(python, X[0], y[0], k)
    totals = [Z @ np.array(found["points"]) for Z in X]
    p = [1 / (1 + np.exp(-(found["slope"] * t + found["intercept"]))) for t in totals]
    yield row(name, k, "FasterRisk", p, y, f"{found['seconds']:.2f}", "")
    again = LogisticRegression(C=np.inf).fit(totals[0][:, None], y[0])
    p = [again.predict_proba(t[:, None])[:, 1] for t in totals]
    yield row(name, k, "the same, calibrated anew", p, y, "", "")


def lines(folder: Path, python: str | None) -> Iterator[str]:
    for name, X, y, X_test, y_test in tables(folder):
        for k in SIZES:
            yield from ours(name, [X, X_test], [y, y_test], k)
            if python:
                yield from theirs(name, [X, X_test], [y, y_test], k, python)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--peer", help="an interpreter that has fasterrisk")
    given = parser.parse_args()
    print(f"{machine()}; points from {-POINTS} to {POINTS}.\n")
    tested = "loss, test | AUC, test | Brier, test | calibration error, test"
    print(f"| data | k | | loss, fit | {tested} | seconds | any model better by at most |")
    print("|---" * 10 + "|")
    for line in lines(given.data, given.peer):
        print(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()

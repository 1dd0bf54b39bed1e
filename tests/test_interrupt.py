"""Ctrl-C in Python: once to keep what was found, twice to interrupt; real signals, sent at a known moment."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from diht import (
    Problem,
    SparseClassifier,
    SparseClassifierCV,
    SparseRegressor,
    SparseRegressorCV,
    bootstrap,
    near_optimal,
    solve,
    sparse_path,
    stability_selection,
)
from diht.estimators import folds
from diht.numerics.interrupt import Interrupt, interruptible, not_interruptible

RNG = np.random.default_rng(0)
X = RNG.standard_normal((80, 60))
Y = RNG.standard_normal(80)  # noise: the search for the best 15 of 60 features would go on for ages
ENDLESS = {"exact": True, "k": 15, "lam": 1e-6, "tol": 0.0}

pytestmark = [pytest.mark.linux, pytest.mark.usefixtures("ctrl_c")]


def press(times=1):
    """Return a function that presses Ctrl-C so many times, when it is called first."""
    left = [times]

    def pressed(*_, **__):
        while left[0]:
            left[0] -= 1
            signal.raise_signal(signal.SIGINT)
        return False

    return pressed


def test_solve_keeps_the_best_so_far():
    problem = Problem(X, Y, "squared", k=15, lam=1e-6)
    with pytest.warns(UserWarning, match="stopped by Ctrl-C: the result is the best model found so far") as warned:
        result = solve(problem, "branch", tol=0.0, callback=press())
    assert result.status == "stopped"
    assert 0 < result.lower_bound < result.objective
    assert len(result.support) <= 15
    assert warned[0].filename == __file__


def test_a_second_one_interrupts():
    problem = Problem(X, Y, "squared", k=15, lam=1e-6)
    with pytest.raises(KeyboardInterrupt):
        solve(problem, "branch", tol=0.0, callback=press(2))


def test_one_in_the_next_of_many_fits_interrupts():
    problem = Problem(X, Y, "squared", k=15, lam=1e-6)
    with pytest.warns(UserWarning, match="Ctrl-C"):
        solve(problem, "branch", tol=0.0, callback=press())
    with pytest.raises(KeyboardInterrupt):
        solve(problem, "branch", tol=0.0, callback=press())


@pytest.mark.parametrize("multiclass", [False, True])
def test_fit(monkeypatch, multiclass):
    monkeypatch.setattr("diht.estimators.base.print_line", press())
    if multiclass:
        model = SparseClassifier(**ENDLESS, multiclass="ovr", verbose=True)
        y = np.digitize(Y, [-0.5, 0.5])
    else:
        model, y = SparseRegressor(**ENDLESS, verbose=True), Y
    with pytest.warns(UserWarning, match="stopped by Ctrl-C: the model is the best found so far") as warned:
        model.fit(X, y)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    results = model.result_ if multiclass else [model.result_]
    assert {str(result.status) for result in results} == {"stopped"}
    assert np.all(model.lower_bound_ <= model.objective_)
    assert model.predict(X[:2]).shape == (2,)


def test_a_path_keeps_what_it_has():
    with pytest.warns(UserWarning, match="the path has the points that were solved so far") as warned:
        path = sparse_path(X, Y, ks=range(1, 9), lams=[0.01, 0.1], callback=press())
    assert warned[0].filename == __file__
    assert [(point.k, point.lam) for point in path] == [(8, 0.1)]
    assert path[0].lower_bound <= path[0].objective


@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize("solver", ["auto", "iht"])
def test_cross_validation_chooses_by_the_folds_done(n_jobs, solver):
    done = []

    def score(model, X, y):
        done.append(1)
        if len(done) == 9:  # in the third fold; with two jobs in a thread other than the main one
            os.kill(os.getpid(), signal.SIGINT)
        return -float(np.square(model.predict(X) - y).mean())

    model = SparseRegressorCV(ks=[1, 2], lams=[0.1, 1.0], cv=5, scoring=score, n_jobs=n_jobs, solver=solver)
    with pytest.warns(UserWarning, match="k and lam are chosen by what was done so far") as warned:
        model.fit(X, Y)
    assert warned[0].filename == __file__
    assert model.n_splits_ == 3 or n_jobs
    assert 1 <= model.n_splits_ <= 5
    assert model.lower_bound_ <= model.objective_
    assert len(model.path_) == 4


def test_cross_validation_stopped_before_the_first_fold_is_done(monkeypatch):
    pressed, scales = press(), folds.column_scales

    def pressing(*arguments):
        pressed()
        return scales(*arguments)

    monkeypatch.setattr(folds, "column_scales", pressing)
    with pytest.warns(UserWarning, match="Ctrl-C"):
        model = SparseClassifierCV(ks=[1, 2], lams=0.1, cv=3).fit(X, Y > 0)
    assert model.n_splits_ == 1
    assert len(model.support_) <= 2
    assert model.lower_bound_ <= model.objective_


def test_many_fits_are_interrupted_at_once(monkeypatch):
    """Resamples and lists of models are of no use in part."""
    model = SparseRegressor(k=2).fit(X, Y)
    problem = Problem(X, Y, "squared", k=2, lam=0.1)
    calls = {
        "diht.estimators.equations.refit": lambda: bootstrap(model, X, Y, n_resamples=5),
        "diht.estimators.inference.clone": lambda: stability_selection(model, X, Y, n_resamples=4),
        "diht.solvers.loop.drive": lambda: near_optimal(problem, 0.01),
    }
    for name, call in calls.items():
        with monkeypatch.context() as patched:
            patched.setattr(name, press())
            with pytest.raises(KeyboardInterrupt):
                call()


def test_other_threads_are_left_alone():
    seen = []

    def work():
        with interruptible("nothing") as asked:
            seen.extend([signal.getsignal(signal.SIGINT), Interrupt._outer, asked()])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler, None, False]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None], ids=["ignored", "own"])
def test_handlers_of_the_program_stay(handler):
    signal.signal(signal.SIGINT, handler)
    try:
        with interruptible("nothing") as asked:
            assert signal.getsignal(signal.SIGINT) is handler
            signal.raise_signal(signal.SIGINT)
            assert not asked()
    finally:
        assert signal.signal(signal.SIGINT, signal.default_int_handler) is handler


def test_one_listens_for_all_within():
    def nested():
        with interruptible("outer") as outer:
            with interruptible("inner") as inner, not_interruptible():
                signal.raise_signal(signal.SIGINT)
                assert inner()
            assert outer()

    with pytest.warns(UserWarning, match="outer") as warned:
        nested()
    assert len(warned) == 1
    with pytest.raises(KeyboardInterrupt), not_interruptible(), interruptible("nothing"):
        signal.raise_signal(signal.SIGINT)


def test_from_another_process():
    """As a notebook's kernel gets it: a signal from outside while the main thread is in a fit."""
    code = """
import numpy as np, signal, threading, os
signal.signal(signal.SIGINT, signal.default_int_handler)
from diht import SparseRegressor
rng = np.random.default_rng(0)
class Loud(SparseRegressor):
    def _callback(self, *_):
        return lambda iterate: print("going", flush=True)
model = Loud(exact=True, k=15, lam=1e-6, tol=0.0).fit(rng.standard_normal((80, 60)), rng.standard_normal(80))
print("kept", model.result_.status, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "going\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert out.splitlines()[-1] == "kept stopped True"
    assert "stopped by Ctrl-C" in err
    assert child.returncode == 0

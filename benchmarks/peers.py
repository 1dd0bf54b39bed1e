"""Other packages, each in a process of its own in their environment: `python peers.py PEER SECONDS`.

What is taken from a peer is its supports; their objectives are this library's, after an accurate refit at the instance's own
lam. Every peer gets several settings, the ridge as exactly as it can take it, and the best of its supports counts. For the
squared loss the ridge can be had exactly from a package that knows none: sqrt(N lam / 2) I as further rows of X.

A name such as "path: alpha=0.1" is a setting and a step of it: the seconds of a support are those of its setting up to it. All
seconds are those of the processor, of which everybody has one: what else the machine does changes them little. A peer that
compiles is warmed up on a tiny instance first. One that does not end is killed, with what it has found; so is one that crashes,
or asks for more memory than MEMORY.

This file runs under two interpreters: nothing of the library is imported at its head, and no peer outside its own function.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp

# A setting with its support, with what the peer says of itself, or, before it is tried, with nothing.
Supports = Iterator[tuple[str, np.ndarray | dict[str, float] | None]]
FINISHED: set[str] = set()  # settings that a peer need not try again
PREPARED: tuple[str, dict[str, float]] = (
    "claims",
    {},
)  # says nothing, but the clock starts again: what was done is no part of the fit

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
ONE_THREAD["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
MOST_TRIED = 20  # settings, with repetitions after crashes, before a peer is given up
LEEWAY = 1.25  # times its limit at which a peer is killed; it starts no new setting after its limit
PATIENCE = 20  # times its limit, by the clock on the wall, at which a peer that does nothing is killed
STARTING = 240  # seconds for imports, reading the data and compiling
MEMORY = 8 << 30  # bytes of data that a peer may ask for
ALL_SWAPS = 10_000  # features up to which those that exchange some are asked to consider all


# ---------------------------------------------------------------------------------------------------------------------
# What is asked, and what comes back


@dataclass(frozen=True, eq=False)
class Instance:
    """(1/N) sum_i l(x_i.w + b, y_i) + (lam/2) ||w||^2 with at most k nonzero coefficients; b is zero without intercept."""

    X: Any
    y: np.ndarray
    k: int
    lam: float
    loss: str = "squared"
    intercept: bool = False

    def save(self, path: Path) -> None:
        """Write it for another interpreter."""
        if sp.issparse(self.X):
            X = self.X.tocsr()
            parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
        else:
            parts = {"X": np.asarray(self.X, dtype=np.float64)}
        np.savez(path, y=self.y, k=self.k, lam=self.lam, loss=self.loss, intercept=self.intercept, **parts)

    @classmethod
    def load(cls, path: Path) -> Instance:
        """Read what `save` wrote."""
        with np.load(path) as f:
            sparse = "indptr" in f
            X = sp.csr_matrix((f["data"], f["indices"], f["indptr"]), shape=tuple(f["shape"])) if sparse else f["X"]
            return cls(X, f["y"], int(f["k"]), float(f["lam"]), str(f["loss"]), bool(f["intercept"]))

    def centred(self) -> tuple[Any, np.ndarray]:
        """X and y with which the squared loss needs no intercept."""
        if not self.intercept:
            return self.X, self.y
        return self.X - np.asarray(self.X.mean(axis=0)).reshape(1, -1), self.y - self.y.mean()

    def with_ridge_rows(self) -> tuple[Any, np.ndarray]:
        """X and y whose plain residual sum of squares is N times the instance's objective; an intercept is centred away."""
        n, d = self.X.shape
        X, y = self.centred()
        stack, eye = (sp.vstack, sp.eye_array(d)) if sp.issparse(X) else (np.vstack, np.eye(d))
        return stack([X, np.sqrt(0.5 * n * self.lam) * eye]), np.concatenate([y, np.zeros(d)])


@dataclass(frozen=True, eq=False)
class Answer:
    """The supports a peer found, with the setting that led to each, its seconds, and why there are no more."""

    peer: str
    supports: list[tuple[str, float, np.ndarray]] = field(default_factory=list)
    claims: dict[str, float] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)
    failure: str = ""

    @property
    def seconds(self) -> float:
        """Of all settings together, without imports and loading."""
        return sum(seconds for _, seconds, _ in self.supports)

    def spent(self) -> list[float]:
        """For each support, the seconds of its own setting up to it."""
        totals: dict[str, float] = {}
        spent = []
        for name, seconds, _ in self.supports:
            setting = name.split(":")[0]
            totals[setting] = totals.get(setting, 0.0) + seconds
            spent.append(totals[setting])
        return spent


def missing(python: str) -> dict[str, str]:
    """The peers that an interpreter cannot import, each with the reason."""
    code = (
        "import importlib, json\nout = {}\n"
        f"for peer, module in {sorted((name, peer.module) for name, peer in PEERS.items())!r}:\n"
        "    try: importlib.import_module(module)\n"
        "    except Exception as error: out[peer] = f'{type(error).__name__}: {error}'\n"
        "print(json.dumps(out))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def ask(python: str, peer: str, instances: list[Instance], limit: float) -> list[Answer]:
    """Run one peer on some instances. One that it crashes on takes down no other."""
    with Worker(python, peer, limit) as worker:
        return [worker.ask(instance) for instance in instances]


class Worker:
    """A peer in a process of its own, which is imported once and asked often; where it died it is started anew."""

    def __init__(self, python: str, peer: str, limit: float) -> None:
        self.command = [python, __file__, peer, str(limit)]
        self.peer = peer
        self.killed = f"stopped after {LEEWAY * limit:.0f} s"
        self.folder = tempfile.TemporaryDirectory()  # to run in: the names in this file's folder could hide a package's
        self.errors = Path(self.folder.name) / "errors"
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self.folder.cleanup()

    def _stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()

    def ask(self, instance: Instance) -> Answer:
        """Ask for supports; where the peer crashes, it is asked again, from where it crashed."""
        answer = self._ask(instance, Answer(self.peer), set())
        while answer.failure.startswith("SIG"):
            tried = list(answer.tried)
            finished = {setting for setting in tried if setting != tried[-1] or tried.count(setting) > 1}
            answer = self._ask(instance, answer, finished)
            if answer.tried == tried or len(answer.tried) > MOST_TRIED:
                break
        return answer

    def _ask(self, instance: Instance, answer: Answer, finished: set[str]) -> Answer:
        """Ask once, for all but the finished settings; what it has found when it is stopped, or breaks, counts."""
        path = Path(self.folder.name) / "instance.npz"
        instance.save(path)
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([str(path), sorted(finished)]) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if not line.startswith("@"):
                continue
            found = json.loads(line[1:])
            answer.claims.update(found.get("claims", {}))
            answer.tried.extend(found.get("trying", []))
            if "support" in found:
                support = np.array(found["support"], dtype=np.int64)
                answer.supports.append((found["setting"], found["seconds"], support))
            if "done" in found:
                return replace(answer, failure=found["done"])
        return replace(answer, failure=self._death(process.wait()))

    def _running(self) -> subprocess.Popen[str]:
        if self.process is None or self.process.poll() is not None:
            self._stop()
            with self.errors.open("wb") as errors:
                self.process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=self.folder.name,
                    env={**os.environ, **ONE_THREAD},
                    text=True,
                    errors="replace",
                )
        return self.process

    def _death(self, status: int) -> str:
        """Why the process ended."""
        if status < 0:
            name = signal.Signals(-status).name
            return self.killed if name in ("SIGALRM", "SIGPROF") else name
        errors = self.errors.read_text(errors="replace").strip().splitlines()
        return errors[-1] if errors else f"exit status {status}"


def judged(instance: Instance, answer: Answer) -> tuple[float, str, float]:
    """Objective, by this library, of the peer's best support, the setting that found it, and the seconds of all settings."""
    from diht import Problem

    problem = Problem(
        instance.X, instance.y, instance.loss, instance.k, instance.lam, fit_intercept=instance.intercept, n_threads=1
    )
    best = (np.inf, answer.failure or "nothing found")
    for setting, _, support in answer.supports:
        best = min(best, (refitted(problem, support), setting))
    return *best, answer.seconds


def refitted(problem: Any, support: np.ndarray) -> float:
    """Objective of the best model on a support."""
    return best_model(problem, support)[0]


def best_model(problem: Any, support: np.ndarray) -> tuple[float, np.ndarray, float]:
    """Objective, coefficients and intercept of the best model on a support, completed to k by the steepest other features."""
    from diht.refit import refit

    size = problem.constraint.size
    fit = refit(problem, support)
    if len(support) < size:
        slope = np.abs(problem.design.rmatvec(problem.s * problem.loss.derivative(fit.u, problem.y)))
        slope[support] = -1.0
        support = np.union1d(support, np.argsort(-slope, kind="stable")[: size - len(support)])
        fit = refit(problem, support, fit.w, fit.b)
    return fit.objective, fit.w, problem.intercept_of(fit.w, fit.b)


# ---------------------------------------------------------------------------------------------------------------------
# The peers


@dataclass(frozen=True)
class Peer:
    """A package by the module it is imported as, what it can take, and how it is asked."""

    module: str
    run: Callable[[Instance, float], Supports]
    losses: tuple[str, ...] = ("squared",)
    sparse: bool = False
    compiles: bool = False
    keeps_limit: bool = False

    def takes(self, instance: Instance) -> bool:
        """Whether the peer knows the loss and the kind of matrix."""
        return not self.refuses(instance)

    def refuses(self, instance: Instance) -> str:
        """Why the peer cannot be asked, or nothing."""
        if instance.loss not in self.losses:
            return f"does not know the {instance.loss} loss"
        return "does not take sparse data" if sp.issparse(instance.X) and not self.sparse else ""


def largest(w: np.ndarray, k: int) -> np.ndarray:
    """Up to k largest coefficients."""
    order = np.argsort(-np.abs(w), kind="stable")[:k]
    return np.sort(order[w[order] != 0])


def abess(instance: Instance, limit: float) -> Supports:
    """Splicing, with the ridge in further rows (exact), as the fit's own alpha, and as the swaps' own alpha."""
    from abess import LinearRegression, LogisticRegression

    n, d = instance.X.shape
    common = {"support_size": instance.k, "max_iter": 100}
    searches = [("", {})]
    if d <= ALL_SWAPS:
        searches.append((", all swaps", {"important_search": 0}))
        searches.append((", many swaps at once", {"important_search": 0, "exchange_num": max(instance.k // 2, 5)}))
    for note, search in searches:
        kind = LinearRegression if instance.loss == "squared" else LogisticRegression
        y = instance.y if instance.loss == "squared" else (instance.y > 0).astype(int)
        for alpha in (0.0, instance.lam / 4, n * instance.lam / 2):
            model = kind(fit_intercept=instance.intercept, alpha=alpha, **common, **search).fit(instance.X, y)
            yield f"alpha={alpha:g}{note}", largest(model.coef_.ravel(), instance.k)
        if instance.loss == "squared":
            X, y = instance.with_ridge_rows()
            yield PREPARED
            model = LinearRegression(fit_intercept=False, **common, **search).fit(X, y)
            yield f"ridge rows{note}", largest(model.coef_.ravel(), instance.k)


def _objective(instance: Instance) -> Callable[[Any], Any]:
    """The instance's own objective, in jax; an intercept is the last parameter."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    y, d = jnp.asarray(instance.y), instance.X.shape[1]
    if sp.issparse(instance.X):
        from jax.experimental.sparse import BCOO

        X = BCOO.from_scipy_sparse(instance.X)
    else:
        X = jnp.asarray(instance.X)

    def objective(params: Any) -> Any:
        w = params[:d]
        u = X @ w + (params[d] if instance.intercept else 0.0)
        losses = (y - u) ** 2 if instance.loss == "squared" else jnp.logaddexp(0.0, -y * u)
        return losses.mean() + 0.5 * instance.lam * (w @ w)

    return objective


def _skscope(solver: str) -> Callable[[Instance, float], Supports]:
    def run(instance: Instance, limit: float) -> Supports:
        import skscope

        objective, d = _objective(instance), instance.X.shape[1]
        more = {"preselect": [d]} if instance.intercept else {}
        settings = [{}, {"important_search": 0}] if solver == "ScopeSolver" and d <= ALL_SWAPS else [{}]
        for setting in settings:
            method = getattr(skscope, solver)(
                d + len(more), instance.k + len(more), instance.X.shape[0], **more, **setting
            )
            params = np.asarray(method.solve(objective, jit=True))
            yield ", ".join(f"{a}={b}" for a, b in setting.items()) or "default", largest(params[:d], instance.k)

    return run


def _l0learn(algorithm: str) -> Callable[[Instance, float], Supports]:
    def run(instance: Instance, limit: float) -> Supports:
        """Paths of L0L2 for some gammas around ours (its columns are scaled to norm one), and of L0 with ridge rows."""
        import fastsparsegams

        n = instance.X.shape[0]
        X = sp.csc_matrix(instance.X) if sp.issparse(instance.X) else np.asfortranarray(instance.X)
        squares = np.asarray(X.multiply(X).sum(axis=0) if sp.issparse(X) else np.square(X).sum(axis=0)).ravel()
        # 1/2 ||y - Xw||^2 and ||w||^2 there; a sum of logistic losses is twice as large against the ridge as half a square's
        exact = n * instance.lam / (4 if instance.loss == "squared" else 2) / np.mean(squares[squares > 0])
        kind = "SquaredError" if instance.loss == "squared" else "Logistic"
        common = {
            "loss": kind,
            "algorithm": algorithm,
            "max_support_size": int(1.2 * instance.k) + 2,
            "num_lambda": 200,
        }
        common |= {"scale_down_factor": 0.95, "max_iter": 500}

        def path(factor: float, Z: Any, z: np.ndarray) -> Any:
            if not factor:
                return fastsparsegams.fit(Z, z, penalty="L0", intercept=False, **common)
            gamma = factor * exact
            ridge = {"penalty": "L0L2", "num_gamma": 1, "gamma_min": gamma, "gamma_max": gamma}
            return fastsparsegams.fit(Z, z, intercept=instance.intercept, **ridge, **common)

        for factor in (1.0, 0.1, 10.0, 100.0, 0.0)[: 5 if instance.loss == "squared" else 4]:  # the slowest last
            setting = f"gamma={factor:g} ours" if factor else "ridge rows"
            if setting not in FINISHED:
                Z, z = (X, instance.y) if factor else instance.with_ridge_rows()
                Z = sp.csc_matrix(Z) if sp.issparse(Z) else np.asfortranarray(Z)
                yield setting, None  # it may crash
                coefficients = path(factor, Z, z).coeffs[0].T.tocsr()
                yield from _from_path(setting, coefficients[:, -instance.X.shape[1] :], instance.k)

    return run


def _from_path(setting: str, models: Any, k: int) -> Supports:
    """The models of a path (rows) just up to k features, just above, and denser: these are cut to their k largest coefficients."""
    models = sp.csr_matrix(models)
    models.eliminate_zeros()
    sizes = np.diff(models.indptr)
    wanted = {"up to k": sizes[sizes <= k].max(initial=0), "above k": sizes[sizes > k].min(initial=0)}
    wanted |= {f"{i} k": sizes[sizes <= i * k].max(initial=0) for i in (2, 4)}
    for name, chosen in wanted.items():
        for i in np.flatnonzero((sizes == chosen) & (sizes > 0)):
            yield f"{setting}: {name}", largest(models[[i]].toarray().ravel(), k)


def okridge(instance: Instance, limit: float) -> Supports:
    """Branch and bound; it crashes for d > N."""
    from okridge.tree import BNBTree

    n = instance.X.shape[0]
    X, y = instance.centred()
    tree = BNBTree(X, y, lambda2=n * instance.lam / 2, max_memory_GB=8)
    upper, w, _, lower, seconds = tree.solve(instance.k, gap_tol=1e-4, time_limit=limit)
    yield "default", largest(w, instance.k)
    square = float(y @ y)  # which its own bounds leave out
    yield claim({"objective": (upper + square) / n, "lower_bound": (lower + square) / n, "seconds": seconds})


def omp(instance: Instance, limit: float) -> Supports:
    """Orthogonal matching pursuit, as it is and with the ridge in further rows."""
    from sklearn.linear_model import orthogonal_mp

    for name, data in (("no ridge", instance.centred), ("ridge rows", instance.with_ridge_rows)):
        X, y = data()
        yield PREPARED
        yield name, largest(orthogonal_mp(X, y, n_nonzero_coefs=min(instance.k, *X.shape)), instance.k)


def top_of_ridge(instance: Instance, limit: float) -> Supports:
    """The largest coefficients of the model without a limit on features, for several ridges."""
    from sklearn.linear_model import LogisticRegression, Ridge

    n = instance.X.shape[0]
    for factor in (1.0, 10.0, 100.0):
        ridge = factor * instance.lam * n
        if instance.loss == "squared":
            model = Ridge(alpha=ridge / 2, fit_intercept=instance.intercept)
        else:
            model = LogisticRegression(C=1.0 / ridge, fit_intercept=instance.intercept, max_iter=1000)
        w = model.fit(instance.X, instance.y).coef_.ravel()
        yield f"ridge={factor:g} ours", largest(w, instance.k)


def _near_k(setting: str, w: np.ndarray, k: int) -> Supports:
    """A step on the way to k features, if it is near enough for its largest coefficients to say something."""
    if 0.25 * k <= np.count_nonzero(w):
        yield setting, largest(w, k)


def skglm(instance: Instance, limit: float) -> Supports:
    """Paths of the MCP (squared loss) or the lasso (logistic), cut to the k largest coefficients near k features."""
    from skglm.estimators import MCPRegression, SparseLogisticRegression

    n = instance.X.shape[0]
    X = sp.csc_matrix(instance.X) if sp.issparse(instance.X) else np.asfortranarray(instance.X)
    slope = np.abs(X.T @ (instance.y - instance.y.mean() * instance.intercept)).max() / n
    kind = MCPRegression if instance.loss == "squared" else SparseLogisticRegression
    # its own tolerance is that of a violation: one of alpha's own size would leave the last coefficients as they are
    for setting, end, steps, fine in (("path", 2e-3, 25, np.inf), ("fine path", 2e-4, 35, 1e-2)):
        model = kind(fit_intercept=instance.intercept, warm_start=True)
        for alpha in slope * np.geomspace(0.7, end, steps):
            w = model.set_params(alpha=alpha, tol=min(1e-4, fine * alpha)).fit(X, instance.y).coef_.ravel()
            yield from _near_k(f"{setting}: alpha={alpha:.3g}", w, instance.k)
            if np.count_nonzero(w) > 3 * instance.k:
                break


def l1_bisection(instance: Instance, limit: float) -> Supports:
    """scikit-learn's l1 penalty, bisected until k features are left, without a ridge and (squared loss) with ours."""
    n = instance.X.shape[0]
    X = sp.csc_matrix(instance.X) if sp.issparse(instance.X) else np.asfortranarray(instance.X)
    slope = np.abs(X.T @ (instance.y - instance.y.mean() * instance.intercept)).max() / n
    ridges = {"lasso": 0.0} | ({"elastic net, our ridge": 0.5 * instance.lam} if instance.loss == "squared" else {})
    for setting, ridge in ridges.items():
        fit = _l1_fit(X, instance, ridge)
        low, high = 0.0, slope
        for _ in range(60):
            # at first from above, where there are few features and a fit is quick
            alpha = np.sqrt(low * high) if low else 0.5 * high
            w = fit(alpha)
            yield from _near_k(f"{setting}: alpha={alpha:.3g}", w, instance.k)
            size = np.count_nonzero(w)
            if size == instance.k or (low and high < 1.0001 * low):
                break
            low, high = (alpha, high) if size > instance.k else (low, alpha)
        for denser in alpha * np.geomspace(0.5, 0.01, 6):  # their largest coefficients may be the better ones
            yield from _near_k(f"{setting}: alpha={denser:.3g}", fit(denser), instance.k)


def _l1_fit(X: Any, instance: Instance, ridge: float) -> Callable[[float], np.ndarray]:
    """Coefficients for alpha ||w||_1 + (ridge / 2) ||w||^2 beside half the mean square, or the mean logistic loss."""
    from sklearn.linear_model import ElasticNet, LogisticRegression

    if instance.loss == "squared":
        model = ElasticNet(fit_intercept=instance.intercept, warm_start=True, max_iter=5000)
        return lambda alpha: (
            model.set_params(alpha=alpha + ridge, l1_ratio=alpha / (alpha + ridge)).fit(X, instance.y).coef_
        )
    # its intercept is penalised, the less the larger its feature is
    logistic = LogisticRegression(l1_ratio=1.0, solver="liblinear", intercept_scaling=100.0, max_iter=200)
    logistic.set_params(fit_intercept=instance.intercept)
    return lambda alpha: logistic.set_params(C=1.0 / (len(instance.y) * alpha)).fit(X, instance.y).coef_.ravel()


def adelie(instance: Instance, limit: float) -> Supports:
    """Paths of the lasso and of the elastic net."""
    import adelie as ad

    squared = instance.loss == "squared"
    X = instance.X
    X = ad.matrix.sparse(sp.csc_matrix(X), method="naive") if sp.issparse(X) else np.asfortranarray(X)
    glm = ad.glm.gaussian(instance.y) if squared else ad.glm.binomial((instance.y > 0).astype(float))
    sizes = {"max_active_size": 4 * instance.k, "min_ratio": 1e-4, "lmda_path_size": 200}
    for alpha in (1.0, 0.5, 0.1):
        path = ad.grpnet(
            X,
            glm,
            alpha=alpha,
            intercept=instance.intercept,
            early_exit=False,
            progress_bar=False,
            adev_tol=1.0,
            **sizes,
        )
        yield from _from_path(f"alpha={alpha:g}", path.betas, instance.k)


def l0bnb(instance: Instance, limit: float) -> Supports:
    """Branch and bound along its own path of l0 penalties, with our ridge."""
    np.Inf = np.inf  # noqa: NPY201 - which numpy 2 has no more
    from l0bnb import fit_path

    n, k = instance.X.shape[0], instance.k
    own = {
        "lambda_2": n * instance.lam / 4,
        "normalize": False,
        "time_limit": limit / (2 * k),
    }  # for each of its penalties
    path = fit_path(instance.X, instance.y, max_nonzeros=k, intercept=instance.intercept, **own)
    yield from _from_path("path", np.array([step["B"] for step in path]), k)


def el0ps(instance: Instance, limit: float) -> Supports:
    """Branch and bound along a path of l0 penalties, with our ridge; it has no intercept: the columns are centred."""
    from el0ps.compilation import compiled_clone
    from el0ps.datafit import Leastsquares, Logistic
    from el0ps.penalty import L2norm
    from el0ps.solver import BnbSolver
    from el0ps.utils import compute_lmbd_max

    n, squared = instance.X.shape[0], instance.loss == "squared"
    X, y = instance.centred()
    X = np.asfortranarray(X)
    datafit = compiled_clone(Leastsquares(y) if squared else Logistic(instance.y))
    ridge = compiled_clone(L2norm(n * instance.lam / (4 if squared else 2)))
    w, end = None, process_time() + limit
    for l0 in compute_lmbd_max(datafit, ridge, X) * np.geomspace(0.99, 1e-3, 40):
        w = (
            BnbSolver(relative_gap=1e-4, time_limit=max(end - process_time(), 0.1) / 5)
            .solve(datafit, ridge, X, l0, w)
            .x
        )
        yield from _near_k(f"path: l0={l0:.3g}", w, instance.k)
        if np.count_nonzero(w) >= instance.k:
            return


BOTH = ("squared", "logistic")
PEERS: dict[str, Peer] = {
    "abess": Peer("abess", abess, BOTH, sparse=True),
    "scope": Peer("skscope", _skscope("ScopeSolver"), BOTH, sparse=True, compiles=True),
    "skscope-iht": Peer("skscope", _skscope("IHTSolver"), BOTH, sparse=True, compiles=True),
    "skscope-htp": Peer("skscope", _skscope("HTPSolver"), BOTH, sparse=True, compiles=True),
    "l0learn-cd": Peer("fastsparsegams", _l0learn("CD"), BOTH, sparse=True),
    "l0learn-swaps": Peer("fastsparsegams", _l0learn("CDPSI"), BOTH, sparse=True),
    "omp": Peer("sklearn.linear_model", omp),
    "l1-bisection": Peer("sklearn.linear_model", l1_bisection, BOTH, sparse=True),
    "ridge-top-k": Peer("sklearn.linear_model", top_of_ridge, BOTH, sparse=True),
    "skglm": Peer("skglm", skglm, BOTH, sparse=True, compiles=True),
    "adelie": Peer("adelie", adelie, BOTH, sparse=True),
    "okridge": Peer("okridge", okridge, compiles=True, keeps_limit=True),
    "l0bnb": Peer("l0bnb", l0bnb, compiles=True, keeps_limit=True),
    "el0ps": Peer("el0ps", el0ps, BOTH, compiles=True, keeps_limit=True),
}


# ---------------------------------------------------------------------------------------------------------------------
# In the peers' own interpreter


def claim(figures: dict[str, float]) -> tuple[str, dict[str, float]]:
    """What the peer says about itself, in place of a support."""
    return "claims", figures


def tiny(instance: Instance) -> Instance:
    """A small instance of the same kind: what compiles for it need not compile again."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 30))
    u = X[:, :3].sum(axis=1) + rng.standard_normal(60)
    y = u if instance.loss == "squared" else np.where(u > 0, 1.0, -1.0)
    return replace(instance, X=sp.csr_matrix(X) if sp.issparse(instance.X) else X, y=y, k=3)


def serve(peer: str, limit: float) -> None:
    """Answer each line of the input, an instance's file and the settings not to try again, until there is none left."""
    sys.path.pop(0)  # this folder's names are not the packages'
    signal.alarm(STARTING)  # an alarm that nothing waits for ends the process
    how = PEERS[peer]
    importlib.import_module(how.module)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    warm: set[tuple[str, bool]] = set()
    for line in sys.stdin:
        path, finished = json.loads(line)
        FINISHED.clear()
        FINISHED.update(finished)
        failure = ""
        try:
            instance = Instance.load(path)
            kind = (instance.loss, sp.issparse(instance.X))
            if how.compiles and kind not in warm:
                signal.alarm(STARTING)
                list(how.run(tiny(instance), 5.0))
                warm.add(kind)
            signal.setitimer(signal.ITIMER_PROF, LEEWAY * limit)
            signal.setitimer(signal.ITIMER_REAL, PATIENCE * limit)
            answer(how, instance, limit)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}".splitlines()[-1]
        for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
            signal.setitimer(timer, 0.0)
        tell(done=failure)


def answer(how: Peer, instance: Instance, limit: float) -> None:
    """Print each support as soon as it is there, until the time is up."""
    clock = start = process_time()
    for setting, found in how.run(instance, limit):
        now = process_time()
        if found is None:
            tell(trying=[setting])
        elif isinstance(found, dict):
            tell(claims=found)
        else:
            tell(setting=setting, seconds=now - clock, support=found.tolist())
        clock = process_time()
        if now - start > limit and not how.keeps_limit:
            break


def tell(**what: Any) -> None:
    """One line for the other interpreter; peers print too."""
    print("\n@" + json.dumps(what), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]))

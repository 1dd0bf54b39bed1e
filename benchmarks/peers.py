"""Other packages, each in a process of its own in their environment: `python peers.py PEER SECONDS [] FILE ...`.

What is taken from a peer is its supports; their objectives are this library's, after an accurate refit at the instance's own
lam. Every peer gets several settings, the ridge as exactly as it can take it, and the best of its supports counts. For the
squared loss the ridge can be had exactly from a package that knows none: sqrt(N lam / 2) I as further rows of X.

This file runs under two interpreters: nothing of the library is imported at its head, and no peer outside its own function.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

# A setting with its support, with what the peer says of itself, or, before it is tried, with nothing.
Supports = Iterator[tuple[str, np.ndarray | dict[str, float] | None]]
FINISHED: set[str] = set()  # settings that a peer need not try again

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
MOST_TRIED = 20  # settings, with repetitions after crashes, before a peer is given up


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

    def with_ridge_rows(self) -> tuple[Any, np.ndarray]:
        """X and y whose plain residual sum of squares is N times the instance's objective; an intercept is centred away."""
        n, d = self.X.shape
        X, y = self.X, self.y
        if self.intercept:
            X, y = X - np.asarray(X.mean(axis=0)).reshape(1, -1), y - y.mean()
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
    """Run one peer on some instances. One that it crashes on takes down no other, and is asked again, from where it crashed."""
    answers = [Answer(peer, failure="not asked") for _ in instances]
    _ask_once(python, peer, instances, limit, answers, set())
    for i, instance in enumerate(instances):
        while answers[i].failure.startswith("SIG"):
            tried = list(answers[i].tried)
            finished = {setting for setting in tried if setting != tried[-1] or tried.count(setting) > 1}
            _ask_once(python, peer, [instance], limit, one := [answers[i]], finished)
            answers[i] = one[0]
            if answers[i].tried == tried or len(answers[i].tried) > MOST_TRIED:
                break
    return answers


def _ask_once(
    python: str, peer: str, instances: list[Instance], limit: float, answers: list[Answer], finished: set[str]
) -> None:
    """Ask in one process, for all but the finished settings; what it has found when it is stopped, or breaks, counts."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.npz" for i in range(len(instances))]
        for instance, path in zip(instances, paths, strict=True):
            instance.save(path)
        output = Path(folder) / "output"
        command = [python, __file__, peer, str(limit), json.dumps(sorted(finished)), *map(str, paths)]
        with output.open("wb") as file:
            failure = _child(command, file, len(paths) * limit + 60.0)
        lines = [line for line in output.read_text(errors="replace").splitlines() if line.startswith("@")]
    answers[:] = [replace(answer, failure=failure or "nothing found") for answer in answers]
    for found in (json.loads(line[1:]) for line in lines):
        i = found["instance"]
        answers[i].claims.update(found.get("claims", {}))
        answers[i].tried.extend(found.get("trying", []))
        if "support" in found:
            support = np.array(found["support"], dtype=np.int64)
            answers[i].supports.append((found["setting"], found["seconds"], support))
        if "done" in found:
            answers[i] = replace(answers[i], failure="")


def _child(command: list[str], output: IO[bytes], limit: float) -> str:
    """Run a command away from this folder, whose names could hide a package's; return why it ended early, if it did."""
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen(
            command, stdout=output, stderr=subprocess.PIPE, cwd=folder, env={**os.environ, **ONE_THREAD}
        )
        try:
            errors = child.communicate(timeout=limit)[1].decode(errors="replace").strip().splitlines()
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return f"stopped after {limit:.0f} s"
    if child.returncode <= 0:
        return signal.Signals(-child.returncode).name if child.returncode else ""
    return errors[-1] if errors else f"exit status {child.returncode}"


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
    """Objective of the best model on a support; one that is not full is completed by the steepest other features."""
    from diht.duality import primal
    from diht.solvers.refit import refit

    size = problem.constraint.size
    w, b, u = refit(problem, support)
    if len(support) < size:
        slope = np.abs(problem.design.rmatvec(problem.s * problem.loss.derivative(u, problem.y)))
        slope[support] = -1.0
        support = np.union1d(support, np.argsort(-slope, kind="stable")[: size - len(support)])
        w, b, u = refit(problem, support, w, b)
    return primal(problem, w, b, u)


# ---------------------------------------------------------------------------------------------------------------------
# The peers


@dataclass(frozen=True)
class Peer:
    """A package by the module it is imported as, what it can take, and how it is asked."""

    module: str
    run: Callable[[Instance, float], Supports]
    losses: tuple[str, ...] = ("squared",)
    sparse: bool = False

    def takes(self, instance: Instance) -> bool:
        """Whether the peer knows the loss and the kind of matrix."""
        return instance.loss in self.losses and (self.sparse or not sp.issparse(instance.X))


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
    if d <= 2000:
        searches.append((", all swaps", {"important_search": 0}))
        searches.append((", many swaps at once", {"important_search": 0, "exchange_num": max(instance.k // 2, 5)}))
    for note, search in searches:
        if instance.loss == "squared":
            X, y = instance.with_ridge_rows()
            model = LinearRegression(fit_intercept=False, **common, **search).fit(X, y)
            yield f"ridge rows{note}", largest(model.coef_.ravel(), instance.k)
        kind = LinearRegression if instance.loss == "squared" else LogisticRegression
        y = instance.y if instance.loss == "squared" else (instance.y > 0).astype(int)
        for alpha in (0.0, instance.lam / 4, n * instance.lam / 2):
            model = kind(fit_intercept=instance.intercept, alpha=alpha, **common, **search).fit(instance.X, y)
            yield f"alpha={alpha:g}{note}", largest(model.coef_.ravel(), instance.k)


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
        settings = [{}, {"important_search": 0}] if solver == "ScopeSolver" and d <= 2000 else [{}]
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

        def path(factor: float) -> Any:
            if factor:
                gamma = factor * exact
                ridge = {"penalty": "L0L2", "num_gamma": 1, "gamma_min": gamma, "gamma_max": gamma}
                return fastsparsegams.fit(X, instance.y, intercept=instance.intercept, **ridge, **common)
            Z, z = instance.with_ridge_rows()
            Z = sp.csc_matrix(Z) if sp.issparse(Z) else np.asfortranarray(Z)
            return fastsparsegams.fit(Z, z, penalty="L0", intercept=False, **common)

        for factor in (0.0, 100.0, 10.0, 1.0, 0.1) if instance.loss == "squared" else (100.0, 10.0, 1.0, 0.1):
            setting = f"gamma={factor:g} ours" if factor else "ridge rows"
            if setting not in FINISHED:
                yield setting, None  # it may crash
                yield from _from_path(setting, path(factor), instance)

    return run


def _from_path(setting: str, fit: Any, instance: Instance) -> Supports:
    """The models of the path just up to k features and just above: the latter cut to its k largest coefficients."""
    coefficients = fit.coeffs[0].tocsc()
    skip = coefficients.shape[0] - instance.X.shape[1]
    models = [coefficients[:, [i]].toarray().ravel()[skip:] for i in range(coefficients.shape[1])]
    sizes = np.array([np.count_nonzero(w) for w in models])
    below, above = sizes[sizes <= instance.k].max(initial=0), sizes[sizes > instance.k].min(initial=0)
    for name, chosen in (("up to k", below), ("above k", above)):
        for w in [w for w, size in zip(models, sizes, strict=True) if size == chosen and size > 0]:
            yield f"{setting}, {name}", largest(w, instance.k)


def okridge(instance: Instance, limit: float) -> Supports:
    """Branch and bound; it crashes for d > N."""
    from okridge.tree import BNBTree

    n = instance.X.shape[0]
    X, y = np.asarray(instance.X, dtype=float), instance.y
    if instance.intercept:
        X, y = X - X.mean(axis=0), y - y.mean()
    tree = BNBTree(X, y, lambda2=n * instance.lam / 2, max_memory_GB=8)
    upper, w, _, lower, seconds = tree.solve(instance.k, gap_tol=1e-4, time_limit=limit)
    yield "default", largest(w, instance.k)
    square = float(y @ y)  # which its own bounds leave out
    yield claim({"objective": (upper + square) / n, "lower_bound": (lower + square) / n, "seconds": seconds})


def omp(instance: Instance, limit: float) -> Supports:
    """Orthogonal matching pursuit, as it is and with the ridge in further rows."""
    from sklearn.linear_model import orthogonal_mp

    for name, (X, y) in {"no ridge": (instance.X, instance.y), "ridge rows": instance.with_ridge_rows()}.items():
        size = min(instance.k, *X.shape)
        yield name, largest(orthogonal_mp(X, y, n_nonzero_coefs=size), instance.k)


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


def skglm(instance: Instance, limit: float) -> Supports:
    """Paths of the MCP (squared loss) or the lasso (logistic), cut to the k largest coefficients near k features."""
    from skglm.estimators import MCPRegression, SparseLogisticRegression

    n = instance.X.shape[0]
    X = sp.csc_matrix(instance.X) if sp.issparse(instance.X) else np.asfortranarray(instance.X)
    slope = np.abs(X.T @ (instance.y - instance.y.mean() * instance.intercept)).max() / n
    kind = MCPRegression if instance.loss == "squared" else SparseLogisticRegression
    for alpha in slope * np.geomspace(0.7, 0.002, 25):
        w = kind(alpha=alpha, fit_intercept=instance.intercept).fit(X, instance.y).coef_.ravel()
        if 0.5 * instance.k <= np.count_nonzero(w):
            yield f"alpha={alpha:.3g}", largest(w, instance.k)
        if np.count_nonzero(w) > 3 * instance.k:
            return


PEERS: dict[str, Peer] = {
    "abess": Peer("abess", abess, ("squared", "logistic"), sparse=True),
    "scope": Peer("skscope", _skscope("ScopeSolver"), ("squared", "logistic"), sparse=True),
    "skscope-iht": Peer("skscope", _skscope("IHTSolver"), ("squared", "logistic"), sparse=True),
    "skscope-htp": Peer("skscope", _skscope("HTPSolver"), ("squared", "logistic"), sparse=True),
    "l0learn-cd": Peer("fastsparsegams", _l0learn("CD"), ("squared", "logistic"), sparse=True),
    "l0learn-swaps": Peer("fastsparsegams", _l0learn("CDPSI"), ("squared", "logistic"), sparse=True),
    "okridge": Peer("okridge", okridge),
    "omp": Peer("sklearn", omp),
    "ridge-top-k": Peer("sklearn", top_of_ridge, ("squared", "logistic"), sparse=True),
    "skglm": Peer("skglm", skglm, ("squared", "logistic"), sparse=True),
}


# ---------------------------------------------------------------------------------------------------------------------
# In the peers' own interpreter


def claim(figures: dict[str, float]) -> tuple[str, dict[str, float]]:
    """What the peer says about itself, in place of a support."""
    return "claims", figures


def answer(peer: str, limit: float, paths: list[Path]) -> None:
    """Print each support as soon as it is there, until the time is up."""
    sys.path.pop(0)  # this folder's names are not the packages'
    importlib.import_module(PEERS[peer].module)
    for i, path in enumerate(paths):
        instance = Instance.load(path)
        clock = start = perf_counter()
        for setting, found in PEERS[peer].run(instance, limit):
            now = perf_counter()
            line: dict[str, Any] = {"setting": setting, "seconds": now - clock}
            if found is None:
                line = {"trying": [setting]}
            elif isinstance(found, dict):
                line = {"claims": found}
            else:
                line["support"] = found.tolist()
            print("\n@" + json.dumps({"instance": i, **line}), flush=True)
            clock = now
            if now - start > limit and PEERS[peer].module != "okridge":  # which keeps to the limit itself
                break
        print("\n@" + json.dumps({"instance": i, "done": True}), flush=True)


if __name__ == "__main__":
    FINISHED.update(json.loads(sys.argv[3]))
    answer(sys.argv[1], float(sys.argv[2]), [Path(path) for path in sys.argv[4:]])

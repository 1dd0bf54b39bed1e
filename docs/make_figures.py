"""Draw the figures of certificates.md and choosing-k.md, and write down the numbers that it quotes.

``python docs/make_figures.py`` writes docs/figures/*.svg and docs/figures/numbers.json; ``--png FOLDER`` writes PNG files to look
at instead. Everything is computed from data that comes with scikit-learn.
"""

from __future__ import annotations

import argparse
import io
import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from math import comb
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer
from sklearn.feature_selection import RFE, SelectKBest, SequentialFeatureSelector
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from diht import Problem, SparseRegressorCV, certify, near_optimal, solve, sparse_path
from diht.estimators.near import NearOptimal
from diht.losses import Logistic
from diht.numerics.digits import rounded_up
from diht.result import Result
from diht.solvers import Auto

FIGURES = Path(__file__).parent / "figures"

# Colours that the colour-blind can tell apart (Okabe and Ito), on light pages and, lightened, on dark ones.
INK, FAINT, PAPER, SHADE = "#222222", "#767676", "#fffffe", "#e3e8ee"
MODEL, BOUND, OTHER = "#0072b2", "#d55e00", "#009e73"
DARK = {
    INK: "#e6edf3", FAINT: "#9aa4af", PAPER: "#0d1117", SHADE: "#2b3440", MODEL: "#56b4e9", BOUND: "#ff9e4a", OTHER: "#3fcf9f"
}  # fmt: skip

K, LAM = 10, 0.1
LAMBDAS = np.array([1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0])
FEWEST = 1e-3  # the smallest lam that is solved exactly here

mpl.rcParams |= {
    "font.size": 12, "axes.edgecolor": FAINT, "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False, "figure.facecolor": PAPER,
    "axes.facecolor": "none", "svg.fonttype": "none", "svg.hashsalt": "diht", "legend.frameon": False,
}  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------------
# What is shown


@cache
def data() -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Breast cancer data: standardised columns, +1 for benign, and the names of the columns."""
    table, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return StandardScaler().fit_transform(table), np.where(y == 1, 1.0, -1.0), list(table.columns)


def problem(lam: float = LAM, k: int = K) -> Problem:
    """A logistic model with at most k features."""
    X, y, _ = data()
    return Problem(X, y, loss=Logistic(), k=k, lam=lam, fit_intercept=True)


@cache
def solved(exact: bool = False, lam: float = LAM, k: int = K) -> Result:
    """The result of an exact solve, or of the default before it branches."""
    return solve(problem(lam, k), "branch" if exact else Auto(branching=False), tol=1e-6)


@cache
def near(epsilon: float) -> NearOptimal:
    """All regressions with four features whose objectives are near the best."""
    X, y, names = data()
    return near_optimal(Problem(X, y, "squared", k=4, lam=1e-3, fit_intercept=True), epsilon, feature_names=names)


def chosen_by_others() -> dict[str, np.ndarray]:
    """Ten features by usual methods."""
    X, y, _ = data()
    model = LogisticRegression(C=1.0 / (LAM * len(y)))
    everything = [(np.arange(len(y)), np.arange(len(y)))]
    selectors = {
        "one by one (F test)": SelectKBest(k=K),
        "backward (RFE)": RFE(model, n_features_to_select=K),
        "forward": SequentialFeatureSelector(
            model, n_features_to_select=K, scoring="neg_log_loss", cv=everything
        ),
    }  # fmt: skip
    found = {name: np.flatnonzero(selector.fit(X, y).get_support()) for name, selector in selectors.items()}
    return found | {"lasso": lasso(X, y)}


def lasso(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The first K features of a path of l1-penalised models (in the terms of scikit-learn 1.8 and later)."""
    for C in np.geomspace(1e-3, 1.0, 200):
        model = LogisticRegression(l1_ratio=1.0, C=C, solver="liblinear", random_state=0).fit(X, y)
        support = np.flatnonzero(model.coef_[0])
        if len(support) >= K:
            return support[np.argsort(-np.abs(model.coef_[0][support]))[:K]]
    raise RuntimeError("the path ended early")


# ---------------------------------------------------------------------------------------------------------------------
# Figures


def figure(height: float, n: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of the usual width, and its panels."""
    drawn = Figure(figsize=(8.0, height), layout="constrained")
    drawn.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
    axes = np.atleast_1d(drawn.subplots(1, n))
    return drawn, list(axes)


def bound() -> Figure:
    """Models on a line, and the part of the line where there can be none."""
    result = solved()
    objectives = np.array([model.objective for model in result.pool])
    low, high = result.lower_bound - 0.0016, result.objective + 0.0052
    shown = objectives[objectives < high]
    drawn, (axes,) = figure(2.9)
    axes.axvspan(low, result.lower_bound, color=SHADE, lw=0)
    axes.axvline(result.lower_bound, color=BOUND, lw=2.5)
    axes.plot(shown[1:], np.zeros(len(shown) - 1), "o", color=MODEL, ms=8, alpha=0.55)
    axes.plot(result.objective, 0.0, "D", color=MODEL, ms=11)
    axes.text((low + result.lower_bound) / 2, 0.0, "no model\nis here", ha="center", va="center")
    axes.text(result.lower_bound + 0.0001, 0.9, "the lower bound", color=BOUND, va="center")
    line = {"arrowstyle": "-", "color": MODEL}
    axes.annotate("the model found", (result.objective, 0.08), (result.objective, 0.48), color=MODEL, arrowprops=line)
    axes.text(float(np.mean(shown[1:])), 0.2, "other models that were met", color=MODEL, ha="center")
    arrow = {"arrowstyle": "<->", "color": INK, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (result.lower_bound, -0.35), (result.objective, -0.35), arrowprops=arrow)
    axes.text(result.lower_bound + 0.0001, -0.5, f"the gap: {percent(result.relative_gap)}", va="top")
    axes.set(xlim=(low, high), ylim=(-0.95, 1.15), yticks=[])
    axes.set_xlabel("objective of a model with 10 features (smaller is better)")
    axes.spines["left"].set_visible(False)
    return drawn


def closing() -> Figure:
    """The two bounds of an exact solve, and the end of it magnified."""
    trace = solved(exact=True).trace
    steps, objective, proved = (trace.column(name) for name in ("iteration", "best_objective", "best_bound"))
    drawn, panels = figure(3.6, 2)
    for axes in panels:
        axes.fill_between(steps, proved, objective, step="post", color=SHADE, lw=0)
        axes.step(steps, objective, where="post", color=MODEL, lw=2.5, marker="o", ms=4)
        axes.step(steps, proved, where="post", color=BOUND, lw=2.5, ls="--", marker="s", ms=4)
        axes.set(xlabel="step")
        axes.xaxis.get_major_locator().set_params(integer=True)
    whole, end = panels
    whole.set(ylabel="objective", ylim=(0, None))
    whole.text(3.2, 0.25, "best model so far", color=MODEL)
    whole.text(3.2, 0.19, "best lower bound so far", color=BOUND)
    first = root_steps(proved)
    top, bottom = objective[-1] + 0.0002, proved[first - 1] - 0.0004
    end.set(ylim=(bottom, top), xlim=(4.5, steps[-1] + 0.4), title="the end of it, magnified")
    corner = (0.04, proved[first - 1] - 0.0001)
    end.annotate("branching begins here", corner, xycoords=("axes fraction", "data"), va="top")
    end.text(
        0.5 * (4.5 + first), float(np.mean((objective[-1], proved[first - 1]))), "still open", ha="center", va="center"
    )
    end.title.set_size(12)
    return drawn


def root_steps(proved: np.ndarray) -> int:
    """The step after which branching begins."""
    return int(np.flatnonzero(proved <= solved().lower_bound * (1 + 1e-9))[-1]) + 1


def small_lam() -> Figure:
    """How wide the gap stays, and how many parts an exact solve needs, as lam falls."""
    drawn, (gaps, parts) = figure(3.6, 2)
    for k, colour, marker, style in ((5, OTHER, "s", "--"), (10, MODEL, "o", "-")):
        values = [100 * solved(False, lam, k).relative_gap for lam in LAMBDAS]
        gaps.plot(LAMBDAS, values, style, marker=marker, color=colour, lw=2, label=f"k = {k}")
        exact = LAMBDAS[LAMBDAS >= FEWEST]
        parts.plot(
            exact, [n_parts(lam, k) for lam in exact], style, marker=marker, color=colour, lw=2, label=f"k = {k}"
        )
    gaps.set(xscale="log", ylim=(0, None), xlabel="lam", ylabel="gap, % of the objective", title="before branching")
    parts.set(xscale="log", yscale="log", xlabel="lam", ylabel="parts of the search", title="exact")
    for axes in (gaps, parts):
        axes.legend()
        axes.title.set_size(12)
    parts.yaxis.set_major_formatter("{x:g}")
    return drawn


def n_parts(lam: float, k: int) -> int:
    """Parts into which an exact solve cut the problem."""
    return len(getattr(solved(True, lam, k).certificate.bound, "leaves", "1"))


def features() -> Figure:
    """What it costs at least to drop or to add each feature."""
    _, _, names = data()
    certificate = solved().certificate
    size = certificate.objective / 100
    drop, add = certificate.drop_cost / size, certificate.add_cost / size
    order = np.argsort(drop - add, kind="stable")
    drawn, (axes,) = figure(8.2)
    rows = np.arange(len(order))
    axes.barh(rows, drop[order], color=MODEL, height=0.7)
    axes.barh(rows, -add[order], color=BOUND, height=0.7, hatch="///", edgecolor=PAPER, lw=0)
    axes.axvline(0, color=FAINT, lw=1)
    for row, j in zip(rows, order, strict=True):
        if drop[j] == 0.0 == add[j]:
            axes.plot(0, row, "o", color=FAINT, ms=5)
    axes.set_yticks(rows, [names[j] + (" *" if j in certificate.support else "") for j in order], fontsize=11)
    axes.set(xlabel="proved to cost at least, % of the objective", xlim=(-2.4, 1.4), ylim=(-0.8, len(order) - 0.2))
    axes.xaxis.set_major_formatter(lambda x, _: f"{abs(x):g}")
    axes.text(0.08, 3.0, "excluded:\nto use it costs this", color=BOUND, va="center")
    axes.text(-0.08, 27.0, "required:\nto leave it out costs this", color=MODEL, ha="right", va="center")
    undecided = float(np.mean(rows[(drop[order] == 0) & (add[order] == 0)]))
    axes.text(0.08, undecided, "nothing proved", color=FAINT, va="center")
    return drawn


def near_ties() -> Figure:
    """The best models met, and the features of each."""
    _, _, names = data()
    models = solved(exact=True).pool[:7]
    uses = Counter(j for model in models for j in model.support.tolist())
    used = sorted(uses, key=lambda j: (-uses[j], j))
    drawn, (axes,) = figure(4.9)
    for row, model in enumerate(models):
        held = [place for place, j in enumerate(used) if j in model.support]
        axes.plot(range(len(used)), [row] * len(used), ".", color=FAINT, ms=3)
        axes.plot(held, [row] * len(held), "o", color=MODEL, ms=12)
    best = models[0].objective
    labels = ["the best", *(f"+{100 * (model.objective / best - 1):.2f}%" for model in models[1:])]
    axes.set_yticks(range(len(models)), labels)
    axes.set_xticks(range(len(used)), [names[j] for j in used], rotation=40, ha="right", rotation_mode="anchor")
    axes.set(ylabel="objective", ylim=(len(models) - 0.5, -0.5), xlim=(-0.6, len(used) - 0.4))
    axes.tick_params(length=0)
    return drawn


def frequencies() -> Figure:
    """How often each feature is in a model that is nearly as good as the best."""
    _, _, names = data()
    drawn, (axes,) = figure(6.4)
    widest = near(0.1).frequency
    order = np.argsort(widest, kind="stable")[-16:]
    rows = np.arange(len(order))
    for epsilon, colour, height in ((0.1, SHADE, 0.8), (0.05, OTHER, 0.5), (0.01, MODEL, 0.2)):
        label = f"within {100 * epsilon:g}%: {len(near(epsilon)):,} models"
        axes.barh(rows, 100 * near(epsilon).frequency[order], color=colour, height=height, label=label)
    axes.set_yticks(rows, [names[j] for j in order], fontsize=11)
    axes.set(xlabel="% of the models with the feature", xlim=(0, 100), ylim=(-0.6, len(order) - 0.4))
    axes.legend(loc="lower right")
    return drawn


def other_tools() -> Figure:
    """The features that other methods choose, each with its best coefficients."""
    found = {name: certify(problem(), support=support).objective for name, support in chosen_by_others().items()}
    found["diht"] = solved().objective
    order = sorted(found, key=lambda name: -found[name])
    proved = solved(exact=True).lower_bound
    drawn, (axes,) = figure(3.1)
    low, high = proved - 0.004, max(found.values()) + 0.004
    axes.axvspan(low, proved, color=SHADE, lw=0)
    axes.axvline(proved, color=BOUND, lw=2.5)
    for row, name in enumerate(order):
        gap = (found[name] - proved) / found[name]
        axes.plot([proved, found[name]], [row, row], color=FAINT, lw=1.5)
        axes.plot(found[name], row, "D" if name == "diht" else "o", color=MODEL, ms=10)
        axes.annotate(percent(gap), (found[name], row), xytext=(11, 0), textcoords="offset points", va="center")
    axes.text((low + proved) / 2, (len(order) - 1) / 2, "no model\nis here", ha="center", va="center")
    axes.set_yticks(range(len(order)), order)
    axes.set(
        xlim=(low, high),
        ylim=(-0.6, len(order) - 0.4),
        xlabel="objective with the best coefficients; its gap beside it",
    )
    axes.tick_params(axis="y", length=0)
    return drawn


def choosing_k() -> Figure:
    """The path over k, its score on samples held out, and what was planted: the data of choosing-k.md."""
    rng = np.random.default_rng(3)
    w = np.zeros(100)
    w[:5] = 1.0, -0.8, 0.6, 0.4, 0.2
    X, new = rng.standard_normal((150, 100)), rng.standard_normal((150, 100))
    y, _ = (samples @ w + 1.5 * rng.standard_normal(150) for samples in (X, new))
    ks = np.arange(1, 13)
    path = sparse_path(X, y, ks=ks, lams=0.05)
    model = SparseRegressorCV(ks=ks, lams=0.05, scoring="neg_mean_squared_error").fit(X, y)
    scores = np.array([model.cv_results_[f"split{i}_test_score"] for i in range(model.n_splits_)])
    mean, error = -scores.mean(axis=0), scores.std(axis=0, ddof=1) / np.sqrt(len(scores))
    best = int(np.argmin(mean))
    drawn, (left, right) = figure(3.8, 2)
    left.fill_between(ks, [p.lower_bound for p in path], [p.objective for p in path], color=SHADE, lw=0)
    left.plot(ks, [p.objective for p in path], "o-", color=MODEL, lw=2, ms=4)
    left.plot(ks, [p.lower_bound for p in path], "s--", color=BOUND, lw=2, ms=4)
    left.text(4.2, path.point(4).objective + 0.15, "objective", color=MODEL)
    left.text(5.0, path.point(5).lower_bound - 0.35, "lower bound", color=BOUND, va="top")
    left.set(xlabel="k", ylim=(0, None), title="samples that were fitted")
    right.axhspan(0, mean[best] + error[best], color=SHADE, lw=0)
    right.errorbar(ks, mean, error, fmt="o-", color=OTHER, lw=2, ms=4, elinewidth=1)
    right.plot(model.best_k_, mean[list(ks).index(model.best_k_)], "D", color=INK, ms=9)
    right.annotate("chosen: the least k\nwithin one standard error", (0.3, 0.97), xycoords="axes fraction", va="top")
    right.set(xlabel="k", ylim=(0.9 * float((mean - error).min()), None), title="squared error, samples held out")
    for axes in (left, right):
        axes.title.set_size(12)
        axes.xaxis.get_major_locator().set_params(integer=True)
    return drawn


# ---------------------------------------------------------------------------------------------------------------------
# Numbers and files


def percent(part: float) -> str:
    """A part in per cent, rounded up: to two digits, or below one per cent to one, for a proof ends at a hundredth of its gap."""
    return f"{rounded_up(100 * part, 1 if part < 0.01 else 2)}%"


def fewer_than(n: int) -> str:
    """A number of parts in round words: it changes a little with every change of the search."""
    unit = 10 ** max(1, len(str(n)) - 1)
    return f"fewer than {(n // unit + 1) * unit} parts"


def numbers() -> dict[str, str]:
    """What the page says in its text, as it says it."""
    fast, exact = solved(), solved(exact=True)
    gap = {lam: percent(solved(False, lam).relative_gap) for lam in (1e-4, 1.0)}
    others = {name: certify(problem(), support=support) for name, support in chosen_by_others().items()}
    ties = [model.objective / exact.pool[0].objective - 1 for model in exact.pool[1:]]
    return {
        "choices": f"{comb(len(data()[2]), K):,} ways",
        "gap": percent(fast.relative_gap),
        "gap at lam = 1": gap[1.0],
        "gap at lam = 0.0001": gap[1e-4],
        "gap at lam = 0.003": percent(solved(False, 3e-3).relative_gap),
        "parts at lam = 0.1": fewer_than(n_parts(LAM, K)),
        "parts at lam = 0.001": fewer_than(n_parts(FEWEST, K)),
        "second best": f"{100 * ties[0]:.2f}%",
        "near-optimal": " and ".join(f"{len(near(epsilon))} within {100 * epsilon:g}%" for epsilon in (0.05, 0.1)),
        "required": f"{len(fast.certificate.required)} features are required",
        "excluded": f"{len(fast.certificate.excluded)} are excluded",
        **{name: percent(certificate.relative_gap) for name, certificate in others.items()},
    }


FIGURE_OF: dict[str, Callable[[], Figure]] = {
    "bound": bound, "closing": closing, "small-lam": small_lam, "features": features, "near-ties": near_ties,
    "frequencies": frequencies, "other-tools": other_tools, "choosing-k": choosing_k,
}  # fmt: skip


def to_svg(drawn: Figure) -> str:
    """The figure as SVG text, its colours changed where the page is dark."""
    buffer = io.StringIO()
    drawn.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    rules = "".join(
        f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}\n'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    )
    style = f"<style>@media (prefers-color-scheme: dark) {{\n{rules}}}</style>\n"
    head, body = buffer.getvalue().split(" <defs>", 1)
    lines = (head + style + " <defs>" + body).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main() -> None:
    """Write the figures and the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--png", metavar="FOLDER", type=Path, help="write PNG files there, to look at, and nothing else"
    )
    parser.add_argument("names", nargs="*", default=list(FIGURE_OF), metavar="NAME", help=", ".join(FIGURE_OF))
    arguments = parser.parse_args()
    for name in arguments.names:
        drawn = FIGURE_OF[name]()
        if arguments.png is None:
            (FIGURES / f"{name}.svg").write_text(to_svg(drawn))
        else:
            drawn.savefig(arguments.png / f"{name}.png", dpi=100)
    if arguments.png is None and arguments.names == list(FIGURE_OF):
        (FIGURES / "numbers.json").write_text(json.dumps(numbers(), indent=2) + "\n")


if __name__ == "__main__":
    main()

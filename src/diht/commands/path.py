"""``diht fit --k 1:20``: a model for each of many k, as a table and on a page with a slider."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from diht.commands import warn
from diht.datasets import Table
from diht.estimators.path import Path, PathPoint, sparse_path
from diht.losses import Loss
from diht.numerics.interrupt import Interrupt
from diht.report.path import write_path_page

__all__ = ["check_path_options", "fit_path", "write_path"]


def check_path_options(arguments: argparse.Namespace, n_classes: int) -> None:
    """Raise where an option is for one model only."""
    if arguments.max_iter is not None:
        raise ValueError("argument --max-iter: cannot be used with several k; --time-limit can")
    if arguments.multiclass == "ovr" and n_classes > 2:
        raise ValueError("argument --multiclass: ovr cannot be used with several k, whose models share features")


def fit_path(arguments: argparse.Namespace, table: Table, loss: Loss, **settings: Any) -> tuple[Path, bool]:
    """Solve for all k, and tell whether Ctrl-C ended that."""
    d = table.X.shape[1]
    if arguments.k[-1] > d:
        warn(
            f"--k {arguments.k[0]}:{arguments.k[-1]} is more than the {d} features of the data: all of them may be used"
        )
    told = not arguments.quiet and sys.stderr.isatty()

    def tell(point: PathPoint) -> None:
        if told:
            print(point, file=sys.stderr, flush=True)

    with Interrupt() as interrupt:
        path = sparse_path(
            table.X,
            np.asarray(table.y),
            ks=sorted({min(k, d) for k in arguments.k}),
            loss=loss,
            sample_weight=table.weights,
            fit_intercept=not arguments.no_intercept,
            standardize=arguments.standardize,
            solver="branch" if arguments.exact else arguments.solver,
            tol=arguments.tol,
            time_limit=arguments.time_limit,
            random_state=arguments.seed,
            n_jobs=arguments.threads,
            callback=tell,
            **settings,
        )
    if table.feature_names is not None and len(table.feature_names) == len(path.feature_names):
        path = replace(path, feature_names=tuple(table.feature_names))
    return path, interrupt.asked


def write_path(arguments: argparse.Namespace, path: Path, interrupted: bool) -> None:
    """Print the table, write the page."""
    os.makedirs(arguments.out, exist_ok=True)
    file = os.path.join(arguments.out, "path.html")
    write_path_page(path, file)
    note = "Stopped by Ctrl-C: these are the models found so far.\n\n" if interrupted else ""
    print(f"{note}{path!r}\n\nOne of them as a model of its own: --k K\nReport:  {file}")

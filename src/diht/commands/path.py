"""``diht fit --k 1:20``: a model for each of many k, as a table and on a page with a slider."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, replace

import numpy as np

from diht.commands import warn
from diht.datasets import Table
from diht.estimators.path import Path, PathPoint, sparse_path
from diht.estimators.table_encoder import TableEncoder
from diht.losses import Loss
from diht.numerics.interrupt import Interrupt
from diht.report.path import Known, write_path_page

__all__ = ["FittedPath", "check_path_options", "fit_path", "write_path"]


@dataclass(frozen=True, eq=False)
class FittedPath:
    """A path, and whether Ctrl-C ended it."""

    path: Path
    interrupted: bool

    def known(self, table: Table | None) -> Known | None:
        """Return samples with known targets as the models of the path take them."""
        if table is None:
            return None
        X = table.X if self.path.encoding is None else self.path.encoding.encode(table.X)
        return Known(X, np.asarray(table.y))


def check_path_options(arguments: argparse.Namespace, n_classes: int) -> None:
    """Raise where an option is for one model only."""
    if arguments.max_iter is not None:
        raise ValueError("argument --max-iter: cannot be used with several k; --time-limit can")
    if arguments.cv is not None:
        raise ValueError("argument --cv: cannot be used with several k; --k cv chooses one, --test-fraction scores all")
    if arguments.multiclass == "ovr" and n_classes > 2:
        raise ValueError("argument --multiclass: ovr cannot be used with several k, whose models share features")


def fit_path(
    arguments: argparse.Namespace, table: Table, loss: Loss, lam: float, encoder: TableEncoder | None
) -> FittedPath:
    """Solve for all k."""
    d, ks = table.X.shape[1], arguments.k
    if ks[-1] > d:
        warn(f"--k {ks[0]}:{ks[-1]} is more than the {d} features of the data: all of them may be used")
    told = not arguments.quiet and sys.stderr.isatty()

    def tell(point: PathPoint) -> None:
        if told:
            print(point, file=sys.stderr, flush=True)

    with Interrupt() as interrupt:
        path = sparse_path(
            table.X,
            np.asarray(table.y),
            ks=sorted({min(k, d) for k in ks}),
            lams=lam,
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
            encoder=encoder,
            device=arguments.device,
        )
    if encoder is None and table.feature_names is not None:
        path = replace(path, feature_names=tuple(table.feature_names))
    return FittedPath(path, interrupt.asked)


def write_path(
    arguments: argparse.Namespace, fitted: FittedPath, held_out: Table | None, gone: BrokenPipeError | None
) -> None:
    """Write the page, print the table, unless the reader of the output is gone."""
    os.makedirs(arguments.out, exist_ok=True)
    file = os.path.join(arguments.out, "path.html")
    write_path_page(fitted.path, file, fitted.known(held_out))
    if gone is not None:
        raise gone
    note = "Stopped by Ctrl-C: these are the models found so far.\n\n" if fitted.interrupted else ""
    print(f"{note}{fitted.path!r}\n\nOne of them as a model of its own: --k K\nReport:  {file}")

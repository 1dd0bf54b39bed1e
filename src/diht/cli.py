"""The command ``diht``: fit a sparse model to a file, predict with it, prove how good a model is, report; redo the paper."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NoReturn, TypeAlias

from diht import __version__
from diht.losses import ALL_LOSSES, LOSSES, as_loss, losses_with_probabilities
from diht.report.text import printable
from diht.solvers.loop import SOLVERS

__all__ = ["main"]

FAILED, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
_COLUMNS = 78  # of the help's lines


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, 2 for bad input, 130 for a second Ctrl-C, 141 for a broken pipe."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no reason to fail
    argv = sys.argv[1:] if argv is None else argv
    if not argv:
        _parser().print_help(sys.stderr)
        return FAILED
    arguments = _parser().parse_args(_joined(argv))
    try:
        command = import_module(f"diht.commands.{arguments.command}")  # each brings only what it needs
        getattr(command, arguments.command)(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has closed it
        _drop_output()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print("diht: interrupted", file=sys.stderr)
        return INTERRUPTED
    except MemoryError:
        return _complain("not enough memory")
    except ValueError as error:
        return _complain(str(error))
    except OSError as error:
        return _complain(_named(error))
    return 0


def _named(error: OSError) -> str:
    """Say what went wrong with which file; an error without a name that is not ours is one of standard output."""
    if error.strerror is None:
        return str(error)
    if error.filename is None:
        _drop_output()
    return f"{error.filename or 'standard output'}: {error.strerror}"


def _complain(message: str) -> int:
    print(f"diht: error: {printable(' '.join(message.split()))}", file=sys.stderr)
    return FAILED


def _drop_output() -> None:
    """Point standard output nowhere, so that the interpreter's last flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ----------------------------------------------------------------------------------------------------- arguments


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line, the same for all commands."""

    def error(self, message: str) -> NoReturn:
        sys.exit(_complain(message))


_Arguments: TypeAlias = argparse._ActionsContainer  # a parser, or a group of its options


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)


def _joined(argv: Sequence[str]) -> list[str]:
    """Write ``--lam -1e-3`` as ``--lam=-1e-3``: argparse takes such numbers for options."""
    joined: list[str] = []
    for word in argv:
        if joined and re.fullmatch(r"--[a-z-]+", joined[-1]) and re.fullmatch(r"-(\d|\.\d|inf|nan).*", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")


def _whole(low: int, high: int | None = None) -> Callable[[str], int]:
    limits = f"of at least {low}" if high is None else f"from {low} to {high}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low or (high is not None and value > high):
            raise argparse.ArgumentTypeError(f"must be a whole number {limits}, got {_shown(text)}")
        return value

    return parse


def _k(text: str) -> int | range | str:
    """Return a number of features, for "1:20" all from one to another, or "cv"."""
    first, colon, last = text.partition(":")
    if not colon:
        return text if text == "cv" else _whole(1)(text)
    low = _whole(1)(first)
    return range(low, _whole(low)(last) + 1)


def _fraction(text: str) -> float:
    if not 0 < _float(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1, got {_shown(text)}")
    return _float(text)


def _float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _not_negative(text: str) -> float:
    if not _float(text) >= 0:
        raise argparse.ArgumentTypeError(f"must be a finite number, zero or more, got {_shown(text)}")
    return _float(text)


def _positive(text: str) -> float:
    if not _float(text) > 0:
        raise argparse.ArgumentTypeError(f"must be a positive, finite number, got {_shown(text)}")
    return _float(text)


def _losses(kind: str, task: str) -> str:
    names = ", ".join(name for name, loss in LOSSES.items() if loss.task == task)
    return textwrap.fill(f"Losses for {kind}: {names}", _COLUMNS, break_on_hyphens=False)


_EXAMPLES = """\
examples:
  diht fit                                   data that comes with scikit-learn
  diht fit patients.csv --target sick --k 5  a classifier with 5 features
  diht fit patients.csv --target sick --k 1:20  a page with 20 of them
  diht fit patients.csv --target sick --k cv --test-fraction 0.2 --impute median
  diht fit prices.parquet --lam 0.01         the last column is the target
  diht fit rain.csv --target may --target june  two targets, the same features
  diht fit news20.svm.gz --no-standardize    sparse data, one line a sample
  diht predict diht-report/model.json new.csv > predictions.csv
  diht certify diht-report/model.json patients.csv
  diht certify mine.csv patients.csv         lines of name,coefficient
  diht report diht-report/model.json         one HTML page
  diht convert day*.parquet --out rows       rows on disk, for "diht fit rows"

"diht fit --help" and so on explain the options of each command.
"""

_FILES = """\
Files: svmlight, CSV and TSV, also with .gz, .bz2 or .xz; Parquet; npz; folders
of "diht convert".
"""

_FIT_NOTES = f"""\
{_FILES}
{_losses("classes", "classification")}.
Several classes share the K features: by the multinomial loss where logistic is
asked for, else by the sum of the losses of each class against the rest. With
--multiclass ovr each of them has K features of its own.
{_losses("numbers", "regression")}.
A loss takes its parameters in parentheses: "quantile(q=0.9)".

--no-standardize is for columns that are comparable as they are, such as words
of texts: a rare word divided by its tiny deviation gets huge entries.

Columns with texts are categories, and K counts each of them once. Columns that
look like ids or row numbers are left out unless --keep names them. --k cv tries
K and L by cross-validation and takes the smallest K within one standard error
of the best. Missing values are refused unless --impute says what to put: median
or mean of a column, or the median with a column that says where; in a category
they are a level of their own.

--k 1:20 writes path.html in place of a model: one page with all of them, and
what is proved of each.

Ctrl-C ends the solve and reports the best so far; a second one quits.
"""

_CERTIFY_NOTES = f"""\
MODEL is the model.json of a fit, or a model of any other tool: a CSV file with
lines of name,coefficient, the constant term in a line intercept,value, or a
JSON file such as {{"age": 0.5, "bmi": -1, "intercept": 2}}. Names alone, one a
line or ["age", "bmi"], stand for the best model with these features; numbers
in place of names count columns. A model.json brings its own problem, which the
options replace; for others the defaults are as many features as the model has,
and else those of "diht fit".

{_FILES}"""

_REPORT_NOTES = f"""\
The page needs no network and no script, and can be printed or sent. With DATA,
best such as was not used to fit, it shows calibration and a confusion table, or
residuals. How the proof came about and which other models are nearly as good is
known to the estimator only: estimator.report(FILE) in Python.

{_FILES}"""

_CONVERT_NOTES = """\
The rows of all files, which have the same columns, become blocks in FOLDER that
"diht fit FOLDER", "predict" and "certify" read as they need them: X may be
larger than the memory. Stopped, however that was, and started again with the
same arguments, the command goes on where it was.

Files: svmlight, CSV and TSV, also with .gz, .bz2 or .xz; Parquet; npz.
"""

_REPRODUCE_NOTES = """\
Figures (default: all): fig1 (estimation error and support recovery), fig2 and
fig4 (time to IHT's objective, smoothed hinge and hinge), fig3 and fig5 (the
primal-dual gap), theory (the theorem's bounds where the optimum is known).

FOLDER gets results.csv, one line a measurement, and index.html. Started again
after it was stopped, however that was, the command goes on where it was.

Data: --data, or the environment variable DIHT_DATA, names the folder with
news20.binary, rcv1_*.binary and imdb.train, as LIBSVM has them; a full run
downloads what it can. A generated stand-in takes the place of a missing RCV1.
"""


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="diht",
        description="Linear models with at most k features, and a proof of how good they are.",
        epilog=_EXAMPLES,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"diht {__version__}", help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    _add_fit(_command(commands, "fit", "fit a model and bound how far it is from the best", _FIT_NOTES))
    _add_predict(_command(commands, "predict", "predict with a fitted model, one line a sample", _FILES))
    _add_certify(_command(commands, "certify", "bound how far any model is from the best", _CERTIFY_NOTES))
    _add_report(_command(commands, "report", "write one HTML page that explains a model", _REPORT_NOTES))
    _add_convert(_command(commands, "convert", "turn files into a data set on disk", _CONVERT_NOTES))
    _add_reproduce(_command(commands, "reproduce", "measure the paper's figures again", _REPRODUCE_NOTES))
    return parser


def _command(commands: Any, name: str, summary: str, notes: str) -> _Arguments:
    description = summary[0].upper() + summary[1:] + "."
    parser: _Parser = commands.add_parser(
        name, help=summary, description=description, epilog=notes, formatter_class=_Formatter, allow_abbrev=False
    )
    return parser


def _add_fit(parser: _Arguments) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="the data (default: breast cancer, from scikit-learn)")
    data = parser.add_argument_group("data")
    _add_target(data, "column, or its number from 0 (default: the last); again for further ones")
    _add_max_features(data)
    _add_standardize(data, "scale columns to unit variance (default: yes)", True)
    data.add_argument("--impute", choices=["median", "mean", "indicator"], help="what to put for missing values")
    data.add_argument("--drop", action="append", metavar="NAME", help="column not to use; again for further ones")
    data.add_argument("--only", action="append", metavar="NAME", help="column to use, and no others; again for more")
    data.add_argument("--keep", action="append", metavar="NAME", help="column to use although it looks like an id")
    model = parser.add_argument_group("model")
    model.add_argument(
        "--k", type=_k, default=10, metavar="K", help="features it may use, cv to choose, 1:20 for each (default: 10)"
    )
    model.add_argument("--lam", type=_positive, metavar="L", help="strength of the ridge (default: 0.001)")
    _add_loss(model, "see below (default: logistic or squared, as it fits)", *ALL_LOSSES)
    model.add_argument(
        "--multiclass", choices=["shared", "ovr"], default="shared", help="features of several classes (see below)"
    )
    model.add_argument("--no-intercept", action="store_true", help="fit no constant term")
    scores = parser.add_argument_group("scores")
    scores.add_argument("--cv", type=_whole(2), metavar="N", help="score by N-fold cross-validation (--k cv: 5)")
    scores.add_argument("--test-fraction", type=_fraction, metavar="F", help="hold out that part of the rows to score")
    solve = parser.add_argument_group("solve")
    solve.add_argument("--solver", choices=[*SOLVERS], default="auto", metavar="NAME", help=", ".join(SOLVERS))
    _add_exact(solve)
    solve.add_argument("--device", metavar="NAME", help="cuda fits on a GPU (needs torch; default: the host)")
    solve.add_argument("--max-iter", type=_whole(1), metavar="N", help="limit on iterations")
    _add_limits(solve)
    solve.add_argument(
        "--seed", type=_whole(0, 2**32 - 1), default=0, metavar="N", help="seed of random choices (default: 0)"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out", default="diht-report", metavar="FOLDER", help="where model and plots go (default: diht-report)"
    )
    _add_quiet(output)


def _add_predict(parser: _Arguments) -> None:
    parser.add_argument("model", metavar="MODEL", help="model.json of a fit")
    parser.add_argument("file", metavar="FILE", help="the samples; columns are found by name")
    parser.add_argument(
        "--proba",
        action="store_true",
        help=f"add each class's probability ({' or '.join(losses_with_probabilities())})",
    )
    parser.add_argument("--out", default="-", metavar="FILE", help="file to write (default: -, standard output)")


def _add_certify(parser: _Arguments) -> None:
    parser.add_argument("model", metavar="MODEL", help="model.json of a fit, or coefficients or names (see below)")
    parser.add_argument("file", metavar="FILE", help="the data, with targets")
    problem = parser.add_argument_group("problem")
    _add_target(problem, "column, or its number from 0; again for further ones")
    _add_max_features(problem)
    _add_standardize(problem, "whether the ridge sees standardised columns", None)
    problem.add_argument("--k", type=_whole(1), metavar="K", help="how many features a model may use")
    problem.add_argument("--lam", type=_positive, metavar="L", help="strength of the ridge")
    _add_loss(problem, "loss that the model should minimise", *LOSSES)
    solve = parser.add_argument_group("solve")
    _add_exact(solve)
    _add_limits(solve)
    _add_quiet(solve)


def _add_report(parser: _Arguments) -> None:
    parser.add_argument("model", metavar="MODEL", help="model.json of a fit, or of to_json in Python")
    parser.add_argument("file", nargs="?", metavar="DATA", help="samples with targets to show predictions on")
    _add_target(parser, "column of DATA, or its number from 0 (default: that of the fit); again for further ones")
    parser.add_argument("--out", metavar="FILE", help="file to write (default: report.html beside MODEL)")


def _add_convert(parser: _Arguments) -> None:
    parser.add_argument("sources", nargs="+", metavar="FILE", help="the data, one file or many")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where it goes")
    _add_target(parser, "column, or its number from 0 (default: the last); again for further ones")
    parser.add_argument("--weights", metavar="NAME", help="column with the weights of the samples")
    parser.add_argument("--block-rows", type=_whole(1), metavar="N", help="rows of a block (default: 128 MB of them)")
    parser.add_argument(
        "--dtype", choices=["float32", "float64"], help="type of the entries (default: as in the files)"
    )
    _add_max_features(parser)


def _add_reproduce(parser: _Arguments) -> None:
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help="which ones (see below)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a few minutes on 2 cores (the default)")
    size.add_argument("--full", action="store_true", help="all of the paper's settings: several hours")
    parser.add_argument(
        "--out", default="diht-reproduction", metavar="FOLDER", help="where it goes (default: diht-reproduction)"
    )
    parser.add_argument("--data", metavar="FOLDER", help="where the data sets are")
    parser.add_argument("--jobs", type=_whole(1, 1024), metavar="N", help="processes for fig1 (default: all cores)")
    _add_quiet(parser)


def _add_target(group: _Arguments, summary: str) -> None:
    group.add_argument("--target", action="append", metavar="NAME", help=summary)


def _add_max_features(group: _Arguments) -> None:
    group.add_argument("--max-features", type=_whole(1), metavar="D", help="refuse a file with more features")


def _add_standardize(group: _Arguments, summary: str, default: bool | None) -> None:
    group.add_argument("--standardize", action=argparse.BooleanOptionalAction, default=default, help=summary)


def _add_loss(group: _Arguments, summary: str, *names: str) -> None:
    group.add_argument("--loss", type=_loss_among(names), metavar="NAME", help=summary)


def _loss_among(names: tuple[str, ...]) -> Callable[[str], str]:
    """Return what checks a loss: one of these names, with parameters or without."""

    def checked(text: str) -> str:
        if text.partition("(")[0] not in names:
            raise argparse.ArgumentTypeError(f"invalid choice: {_shown(text)} (choose from {', '.join(names)})")
        try:
            as_loss(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return checked


def _add_exact(group: _Arguments) -> None:
    group.add_argument("--exact", action="store_true", help="branch and bound to the optimum: may take long")


def _add_limits(group: _Arguments) -> None:
    group.add_argument("--time-limit", type=_positive, metavar="S", help="limit on seconds")
    group.add_argument(
        "--tol", type=_not_negative, default=1e-4, metavar="T", help="relative gap to stop at (default: 0.0001)"
    )
    group.add_argument("--threads", type=_whole(1, 1024), metavar="N", help="threads to use (default: all cores)")


def _add_quiet(group: _Arguments) -> None:
    group.add_argument("--quiet", action="store_true", help="show no progress line")

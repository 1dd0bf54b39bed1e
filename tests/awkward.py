"""Tables as people have them: ten awkward ones, and four like well-known ones; made here, the same every time."""

import csv
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

LEVELS = 100_000


@dataclass(frozen=True)
class Case:
    """A file, how to fit it, and what becomes of it."""

    path: Path
    target: str
    options: list[str] = field(default_factory=list)
    refused: str = ""  # what is said without the options
    uses: tuple[str, ...] = ()  # columns that the model must use
    left_out: tuple[str, ...] = ()  # columns that the fit must name
    new: list[dict[str, object]] = field(
        default_factory=list
    )  # rows to predict: without unused columns, with unseen levels


def write(path: Path, rows: list[list[object]], delimiter: str = ",", encoding: str = "utf-8") -> Path:
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=delimiter).writerows(rows)
    return path


def signal(n: int, seed: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng, rng.normal(size=n), rng.choice(["red", "green", "blue"], n)


def mixed(folder: Path) -> Case:
    """Numbers, texts, booleans and dates."""
    n = 120
    rng, x, colour = signal(n, 0)
    y = 2 * x + 3 * (colour == "red") + 0.1 * rng.normal(size=n)
    rows = [["x", "colour", "member", "joined", "y"]]
    rows += [[x[i], colour[i], str(rng.random() < 0.5), f"2024-01-{1 + i % 28:02}", y[i]] for i in range(n)]
    new = [{"colour": "violet", "x": 0.5}, {"colour": "red", "x": 0.5}]
    options = ["--drop", "joined", "--k", "2"]
    path = write(folder / "mixed.csv", rows)
    return Case(path, "y", options, "holds dates in 'joined'", ("x", "colour"), (), new)


def blanks(folder: Path) -> Case:
    """Missing numbers and categories, written in several ways, and a column with nothing in it."""
    n = 150
    rng, x, colour = signal(n, 1)
    y = np.where(x + 2.0 * (colour == "blue") + 0.3 * rng.normal(size=n) > 0.5, "yes", "no")
    marks = ["", "NA", "?", "null"]
    rows: list[list[object]] = [["x", "colour", "nothing", "y"]]
    for i in range(n):
        gone = rng.random(2) < 0.1
        rows.append([marks[i % 4] if gone[0] else x[i], marks[i % 3] if gone[1] else colour[i], marks[i % 2], y[i]])
    new = [{"x": "", "colour": "blue"}, {"x": 1.0, "colour": ""}]
    path = write(folder / "blanks.csv", rows)
    return Case(
        path, "y", ["--impute", "indicator", "--k", "2"], "missing values in 'x'", ("x", "colour"), ("nothing",), new
    )


def decimal_commas(folder: Path) -> Case:
    """Semicolons between cells, commas in numbers."""
    n = 90
    rng, x, colour = signal(n, 2)
    y = 5 * x - 4 * (colour == "green") + 0.1 * rng.normal(size=n)

    def comma(value: float) -> str:
        return f"{value:.3f}".replace(".", ",")

    rows = [["grösse", "farbe", "preis"]] + [[comma(x[i]), colour[i], comma(y[i])] for i in range(n)]
    path = write(folder / "decimal commas.csv", rows, ";")
    return Case(path, "preis", ["--k", "2"], "", ("grösse", "farbe"), (), [{"farbe": "pink", "grösse": "0,5"}])


def byte_order_mark(folder: Path) -> Case:
    """As spreadsheets write it: a mark in front of the first name, thousands with commas."""
    n = 80
    rng, x, _ = signal(n, 3)
    income = np.round(50_000 + 20_000 * x)
    y = income / 1000 + rng.normal(size=n)
    rows = [["income", "noise", "y"]] + [[f"{income[i]:,.0f}", rng.normal(), y[i]] for i in range(n)]
    path = write(folder / "bom.csv", rows, encoding="utf-8-sig")
    return Case(path, "y", ["--k", "1"], "", ("income",), (), [{"income": "61,000"}])


def quoted_newlines(folder: Path) -> Case:
    """Remarks with line ends and commas in them, and a category whose levels have some."""
    n = 100
    rng, x, _ = signal(n, 4)
    kind = rng.choice(['a "quoted", one', "two\nlines", "plain"], n)
    y = x + 2 * (kind == "two\nlines") + 0.1 * rng.normal(size=n)
    rows = [["x", "kind", "remark", "y"]]
    rows += [[x[i], kind[i], f'said {i}:\n"so, {rng.integers(9**9)}"', y[i]] for i in range(n)]
    path = write(folder / "newlines.csv", rows)
    return Case(path, "y", ["--k", "2"], "", ("x", "kind"), ("remark",), [{"x": 1, "kind": "two\nlines", "more": "x"}])


def duplicated_names(folder: Path) -> Case:
    """Two columns of one name: there is nothing to do but to rename one."""
    rows = [["a", "b", "a", "y"], [1, 2, 3, 4], [2, 3, 5, 4]]
    refused = "the columns 0 and 2 are both named 'a': rename one of them"
    return Case(write(folder / "twins.csv", rows), "y", [], refused)


def many_levels(folder: Path) -> Case:
    """A category of 10^5 levels; half of the rows have one of four."""
    n = 2 * LEVELS + 4
    rng, x, _ = signal(n, 5)
    code = np.concatenate([np.arange(LEVELS), np.arange(LEVELS + 4) % 4])
    y = x + 2 * (code == 1) + 0.5 * rng.normal(size=n)
    path = folder / "levels.csv"
    path.write_text("x,code,y\n" + "".join(f"{x[i]:.3f},c{code[i]},{y[i]:.3f}\n" for i in range(n)))
    return Case(path, "y", ["--k", "2"], "", ("x", "code"), (), [{"x": 0, "code": "c1"}, {"x": 0, "code": "never"}])


def constants(folder: Path) -> Case:
    """Columns that are always the same, as numbers and as texts."""
    n = 60
    rng, x, _ = signal(n, 6)
    y = x + 0.1 * rng.normal(size=n)
    rows = [["one", "x", "same", "zero", "y"]] + [[1, x[i], "always", 0.0, y[i]] for i in range(n)]
    return Case(write(folder / "constants.csv", rows), "y", ["--k", "3"], "", ("x",), (), [{"x": 0.5}])


def leaked_id(folder: Path) -> Case:
    """Rows in the order of their class, with a number: it would predict best of all."""
    n = 200
    rng, x, colour = signal(n, 7)
    order = np.argsort(x + 0.7 * rng.normal(size=n))
    y = np.where(np.arange(n) < n // 2, "low", "high")
    rows = [["", "customer_id", "x", "colour", "class"]]
    rows += [[i, 90_000 + 7 * i, x[j], colour[j], y[i]] for i, j in enumerate(order)]
    return Case(
        write(folder / "leak.csv", rows), "class", ["--k", "1"], "", ("x",), ("x0", "customer_id"), [{"x": 2.0}]
    )


def imbalanced(folder: Path) -> Case:
    """Two percent of one class."""
    n = 1500
    rng, x, colour = signal(n, 8)
    score = x + 2.0 * (colour == "red") + rng.normal(size=n)
    y = np.where(score >= np.sort(score)[-30], "fraud", "fine")
    rows = [["x", "colour", "class"]] + [[x[i], colour[i], y[i]] for i in range(n)]
    options = ["--k", "2", "--test-fraction", "0.3"]
    return Case(write(folder / "imbalanced.csv", rows), "class", options, "", ("x",), (), [{"x": 3, "colour": "red"}])


def titanic(folder: Path) -> Case:
    n = 600
    rng = np.random.default_rng(9)
    sex, port = rng.choice(["male", "female"], n, p=[0.6, 0.4]), rng.choice(list("SCQ"), n, p=[0.7, 0.2, 0.1])
    travel, age = rng.choice([1, 2, 3], n), rng.normal(30, 14, n).clip(1, 80).round()
    fare = rng.lognormal(4 - travel / 2, 0.7).round(2)
    u = 3.0 * (sex == "female") - (travel - 2) - 0.03 * (age - 30) - 1
    y = (rng.random(n) < 1 / (1 + np.exp(-u))).astype(int)
    rows = [["PassengerId", "Survived", "Pclass", "Name", "Sex", "Age", "Fare", "Embarked"]]
    for i in range(n):
        there = "" if rng.random() < 0.2 else age[i]
        rows.append([i + 1, y[i], travel[i], f"Doe, Mr. J. {i * 7919 % 9973}", sex[i], there, fare[i], port[i]])
    new = [{"Sex": "female", "Age": "", "Pclass": 1}, {"Pclass": 3, "Sex": "unknown", "Age": 40}]
    path, left = write(folder / "titanic.csv", rows), ("PassengerId", "Name")
    return Case(
        path, "Survived", ["--impute", "median", "--k", "3"], "missing values in 'Age'", ("Sex", "Pclass"), left, new
    )


def adult(folder: Path) -> Case:
    n = 2000
    rng = np.random.default_rng(10)
    school = rng.choice(["HS-grad", "Bachelors", "Masters", "11th", "Doctorate"], n, p=[0.5, 0.25, 0.1, 0.13, 0.02])
    years = np.array([{"HS-grad": 9, "Bachelors": 13, "Masters": 14, "11th": 7, "Doctorate": 16}[s] for s in school])
    age, hours = rng.integers(17, 80, n), rng.integers(10, 70, n)
    work = rng.choice(["Private", "Self-emp", "Gov", "?"], n, p=[0.7, 0.12, 0.12, 0.06])
    country = rng.choice(["United-States", *(f"Land{j}" for j in range(40))], n, p=[0.8, *[0.005] * 40])
    u = 0.4 * (years - 10) + 0.05 * (age - 40) + 0.04 * (hours - 40) - 1
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-u)), ">50K", "<=50K")
    names = ["age", "workclass", "education", "education-num", "hours", "native-country", "income"]
    columns = zip(age, work, school, years, hours, country, y, strict=True)
    new = [{"age": 50, "hours": 60, "education-num": 13, "education": "PhD"}]
    path = write(folder / "adult.csv", [names, *map(list, columns)])
    options = ["--impute", "mean", "--k", "3", "--cv", "3"]
    return Case(path, "income", options, "missing values in 'workclass'", ("age", "hours"), (), new)


def housing(folder: Path) -> Case:
    n = 800
    rng = np.random.default_rng(11)
    area, rooms, built = rng.normal(120, 40, n).clip(30).round(), rng.integers(1, 8, n), rng.integers(1900, 2020, n)
    town = rng.choice([f"T{j}" for j in range(12)], n)
    pool = rng.choice(["", "small", "large"], n, p=[0.9, 0.06, 0.04])
    price = 1000 * area + 20_000 * (town == "T3") + 300 * (built - 1950) + 9000 * rng.normal(size=n)
    names = ["Id", "area", "rooms", "built", "town", "pool", "price"]
    columns = zip(range(1, n + 1), area, rooms, built, town, pool, price.round(), strict=True)
    path = write(folder / "housing.csv", [names, *map(list, columns)])
    new = [{"area": 100, "town": "T99", "built": 1990, "pool": ""}]
    options = ["--impute", "median", "--k", "cv", "--lam", "0.001"]
    return Case(path, "price", options, "missing values in 'pool'", ("area", "built"), ("Id",), new)


def mtcars(folder: Path) -> Case:
    n = 32
    rng = np.random.default_rng(12)
    cylinders, gear = rng.choice(["four", "six", "eight"], n), rng.choice([3, 4, 5], n)
    weight = rng.normal(3.2, 0.8, n).round(3)
    mpg = 37 - 5 * weight - 3 * (cylinders == "eight") + rng.normal(size=n)
    names = ["", "mpg", "cyl", "wt", "gear", "am"]
    columns = zip(
        (f"Car {j}" for j in range(n)), mpg.round(1), cylinders, weight, gear, rng.integers(2, size=n), strict=True
    )
    path = write(folder / "mtcars.csv", [names, *map(list, columns)])
    new = [{"wt": 3.0, "cyl": "twelve"}, {"wt": 3.0, "cyl": "eight"}]
    return Case(path, "mpg", ["--k", "2"], "", ("wt", "cyl"), ("x0",), new)


AWKWARD = [
    mixed,
    blanks,
    decimal_commas,
    byte_order_mark,
    quoted_newlines,
    duplicated_names,
    many_levels,
    constants,
    leaked_id,
    imbalanced,
]
KNOWN = [titanic, adult, housing, mtcars]
